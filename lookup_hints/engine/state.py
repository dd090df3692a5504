"""What a lookup join in one task remembers: keys that wait, requests under way, sizes and speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Set
from heapq import heapify, heappop, heappush
from itertools import count, takewhile

import pyarrow as pa

from lookup_hints.engine.arrow import Placed, holds
from lookup_hints.engine.dead_letters import GivenUp, Keep
from lookup_hints.engine.event_log import EventLog
from lookup_hints.engine.permits import RequestLimiter
from lookup_hints.engine.request_size import RequestSize
from lookup_hints.engine.steps import Batch, Part
from lookup_hints.engine.window import HeldWindows, Window
from lookup_hints.metrics.task_recorder import RequestObserver, TaskRecorder
from lookup_hints.spec import LookupSpec

Learn = Callable[[pa.Table, Placed, pa.Array, float], None]
"""Takes keys, the rows of those found, the positions of those that have none, and when they were asked.

What is neither found nor missing is not known yet. Called by whoever drives the flow, so it must not wait.
"""


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


ROUNDS_AHEAD = 3
"""A runner that asks key by key gets this many times `capacity` keys, so that no slot waits for the flow."""


class LookupState:
    """Shared by the flow and its parts: where each key is, and what is known of sizes and speed."""

    def __init__(
        self,
        spec: LookupSpec,
        secrets: Set[str],
        observer: RequestObserver,
        keep: Keep,
        limiter: RequestLimiter,
        learn: Learn | None,
    ) -> None:
        self.spec = spec
        self.learn = learn
        self.limiter = limiter
        self.answer_schema = spec.answer_schema
        self.events = EventLog(spec, secrets)
        self.recorder = TaskRecorder(lambda: self.events.throttled(self.keys_in_flight), observer)
        self.given_up = GivenUp(spec, self.recorder, keep)
        self.size = RequestSize(spec.settings.batch_size)
        self.slots = _slots(spec, limiter)
        self.held = HeldWindows(self.recorder)
        self.fresh = FreshKeys()
        self.waiting = WaitingKeys()
        self.keys_in_flight = 0

    def has_room_for(self, keys: int) -> bool:
        """Whether rows of this many keys may be on their way, beside those that are held."""
        return self.held.bytes_left(self.size.bytes_of(keys)) > 0


def _slots(spec: LookupSpec, limiter: RequestLimiter) -> RequestSlots:
    # Where few may go out, keys that are asked one by one are given out when they may, and no sooner.
    ahead = ROUNDS_AHEAD if spec.by_row and limiter.room is None else 1
    capacity = spec.settings.capacity * ahead
    at_once = min(capacity, spec.connector.requests_at_once() or capacity)
    return RequestSlots(capacity, at_once, ordered=spec.settings.ordered, by_row=spec.by_row)


class RequestSlots:
    """Counts requests against `capacity`, and those in flight against what the source works on ``at_once``.

    In flight they always count. In ordered mode a batch whose keys are all settled counts, too, while a
    batch asked before it is not; a batch with keys that wait for a retry does not count. Where keys
    are asked one by one, each is a request.
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
