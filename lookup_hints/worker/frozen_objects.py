"""What PySpark's worker costs each of its tasks, and a lookup spares it (docs/decisions/0031).

After each task it collects garbage among the objects of all modules, for some 45 ms.
"""

from __future__ import annotations

import gc


class FrozenObjects:
    """The objects that live as long as the worker, which collections leave alone from its second task on.

    PySpark has collected after the first one, so that there is no garbage among them.
    """

    def __init__(self) -> None:
        self._tasks = 0

    def begin_task(self) -> None:
        self._tasks += 1
        if self._tasks == 2:
            gc.freeze()
