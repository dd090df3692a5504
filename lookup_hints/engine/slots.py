"""How many requests may be sent now."""

from __future__ import annotations

from collections import deque

from lookup_hints.engine.steps import Batch


class RequestSlots:
    """Counts requests against `capacity`, and those in flight against what the source works on ``at_once``.

    In flight they always count. In ordered mode a batch whose keys are all settled counts, too, while a
    batch asked before it is not; a batch with keys that wait for a retry does not count. Through a row
    door each key is a request.
    """

    def __init__(self, capacity: int, at_once: int, *, ordered: bool, by_row: bool = False) -> None:
        self.in_flight = 0
        self._capacity = capacity
        self._at_once = at_once
        self._ordered = ordered
        self._by_row = by_row
        self._asked: deque[Batch] = deque()
        self._settled_behind = 0

    @property
    def free(self) -> int:
        """How many requests may be sent; retries may use whatever is not in flight."""
        return self._at_once - self.in_flight

    @property
    def free_for_fresh(self) -> int:
        """How many requests may be sent with keys that are asked for the first time."""
        settled_behind = self._settled_behind if self._ordered else 0
        return min(self.free, self._capacity - self.in_flight - settled_behind)

    @property
    def oldest(self) -> Batch | None:
        """What was asked first of all that is not settled."""
        return self._asked[0] if self._asked else None

    def enter(self, batch: Batch) -> None:
        """``batch`` is asked for the first time."""
        self._asked.append(batch)

    def leave(self, batch: Batch) -> None:
        """``batch`` is settled; it is out once all before it are."""
        assert batch.unsettled == 0
        self._settled_behind += self._requests_of(batch)
        while self._asked and self._asked[0].unsettled == 0:
            self._settled_behind -= self._requests_of(self._asked.popleft())

    def _requests_of(self, batch: Batch) -> int:
        return batch.size if self._by_row else 1
