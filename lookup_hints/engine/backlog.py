"""Keys that nobody works on now: those that were never asked, and those that wait to be asked again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count, takewhile

import pyarrow as pa

from lookup_hints.engine.arrow import holds
from lookup_hints.engine.steps import Batch, Part
from lookup_hints.engine.window import Window


class FreshKeys:
    """Keys that were never asked: those of the oldest window first."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Window, pa.Array]] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def window(self) -> Window:
        return self._queue[0][0]

    @property
    def in_window(self) -> int:
        return len(self._queue[0][1])

    def add(self, window: Window, positions: pa.Array) -> None:
        """The keys of a new window that are to be asked."""
        self._queue.append((window, positions))

    def take(self, room: int) -> tuple[Window, pa.Array]:
        """The next keys of one window, ``room`` at most: their positions."""
        window, positions = self._queue.popleft()
        if len(positions) > room:
            self._queue.appendleft((window, positions[room:]))
            positions = positions[:room]
        return window, positions

    def put_back(self, window: Window, positions: pa.Array, windows: Iterable[Window]) -> None:
        """Take keys back that were not asked; ``windows`` are all, in their order."""
        place = next((place for place, (each, _) in enumerate(self._queue) if each is window), None)
        if place is None:
            older = {id(each) for each in takewhile(lambda each: each is not window, windows)}
            place = sum(id(each) in older for each, _ in self._queue)
            self._queue.insert(place, (window, positions))
        else:
            self._queue[place] = (window, pa.concat_arrays([positions, self._queue[place][1]]))
        window.is_asked_by_row = False
        self._sort(place)

    def holds(self, window: Window, key: int) -> bool:
        return any(each is window and holds(positions, key) for each, positions in self._queue)

    def begins_with(self, window: Window, key: int) -> bool:
        """Whether the ``key`` of ``window`` is next, once keys stand in the order of the rows."""
        if not self._queue or self.window is not window:
            return False
        self._sort(0)
        return bool(self._queue[0][1][0].as_py() == key)

    def sort_longer_than(self, rows: int) -> None:
        """Put the keys of windows of more than ``rows`` in the order of their rows.

        Then the first rows are settled first, and are let go. Else the order of keys is better for a source.
        """
        for place, (window, _) in enumerate(self._queue):
            if window.rows > rows:
                self._sort(place)

    def _sort(self, place: int) -> None:
        window, positions = self._queue[place]
        if not window.is_asked_by_row:
            self._queue[place] = (window, window.in_order_of_rows(positions))
            window.is_asked_by_row = True


class WaitingKeys:
    """Keys that wait to be asked again: those that are due first come first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Part]] = []
        self._tie = count()

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def keys(self) -> int:
        return sum(len(part) for _, _, part in self._heap)

    @property
    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def add(self, part: Part, due: float) -> None:
        """The keys of ``part`` wait until ``due``."""
        heappush(self._heap, (due, next(self._tie), part))

    def take_due(self, now: float) -> tuple[float, Part] | None:
        """The next part that is due, and since when."""
        if not self._heap or self._heap[0][0] > now:
            return None
        due, _, part = heappop(self._heap)
        return due, part

    def of_key(self, window: Window, key: int) -> tuple[float, Part] | None:
        return next(((due, part) for due, _, part in self._heap if part.waits_for(window, key)), None)

    def remove(self, part: Part) -> None:
        self._heap = [each for each in self._heap if each[2] is not part]
        heapify(self._heap)

    def forgive(self, since: float, now: float) -> None:
        """Keys that were due after ``since``, and not asked as there was no room, do not lose that time."""
        waited: dict[Batch, float] = {}
        for due, _, part in self._heap:
            waited[part.batch] = max(waited.get(part.batch, 0.0), now - max(due, since))
        for batch, seconds in waited.items():
            batch.deadline += seconds
