"""Keys on their way through a task: fresh ones, those that wait for a retry, and the requests under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.adaptive_batch_size import RequestSize
from lookup_hints.engine.arrow import Keys, Placed, absent, count_up_to, distinct_keys, holds
from lookup_hints.engine.event_log import EventLog
from lookup_hints.engine.input_window import HeldWindows, Window
from lookup_hints.engine.null_keys import alike_in_nulls, null_columns_at
from lookup_hints.engine.permits import RequestLimiter
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.task_recorder import RequestObserver, TaskRecorder
from lookup_hints.spi.request_and_answer import LookupRequest


class Batch:
    """Keys of one window that were first asked together, and so must be settled by the same time."""

    def __init__(self, window: Window, size: int, deadline: float) -> None:
        self.window = window
        self.size = size
        self.deadline = deadline
        self.unsettled = size


@dataclass(frozen=True)
class Part:
    """Some keys of a batch, and which attempt (from 1) their next request is."""

    batch: Batch
    positions: pa.Array
    attempt: int

    def __len__(self) -> int:
        return len(self.positions)

    def waits_for(self, window: Window, key: int) -> bool:
        return self.batch.window is window and holds(self.positions, key)

    @property
    def keys(self) -> pa.Table:
        return self.batch.window.keys.take(self.positions)

    @property
    def null_columns(self) -> tuple[str, ...]:
        """The columns in which all its keys are NULL; no key is in the others."""
        return null_columns_at(self.batch.window.keys, self.positions[0].as_py())

    def among(self, chosen: pa.Array) -> Part:
        return replace(self, positions=self.positions.take(chosen))

    def again(self) -> Part:
        return replace(self, attempt=self.attempt + 1)

    def cut(self, size: int) -> tuple[Part, Part]:
        first, others = self.positions[:size], self.positions[size:]
        return replace(self, positions=first), replace(self, positions=others)


@dataclass(frozen=True, eq=False)
class ScheduledRequest:
    """Send ``request`` now, and tell the scheduler the outcome.

    Args:
        request: the distinct keys of all parts.
        parts: whose keys they are.
        codes: for each key of the parts, one after the other, its position in the request.
        asked: when it is sent.
        deadline: when the most urgent part must be settled.
        slots: how many requests it counts for.
    """

    request: LookupRequest
    parts: tuple[Part, ...]
    codes: pa.Array
    asked: float
    deadline: float
    slots: int = 1

    def shares(self, placed: Placed) -> Iterator[tuple[Part, Placed]]:
        """Each part with its rows of the answer, placed by the part's own keys."""
        if len(self.parts) == 1:
            yield self.parts[0], placed
            return
        for part, codes in self.codes_of_parts():
            own = pc.index_in(placed.positions, value_set=codes)
            yield part, Placed(placed.rows, own).filter(own.is_valid())

    def codes_of_parts(self) -> Iterator[tuple[Part, pa.Array]]:
        """Each part with the positions of its keys in the request."""
        start = 0
        for part in self.parts:
            yield part, self.codes[start : start + len(part)]
            start += len(part)

    def among(self, chosen: pa.Array) -> ScheduledRequest:
        """The same question for the keys at ``chosen`` alone, in that order."""
        parts: list[Part] = []
        codes: list[pa.Array] = []
        for part, own in self.codes_of_parts():
            now = pc.index_in(own, value_set=chosen)
            if now.null_count < len(now):
                parts.append(part.among(pc.indices_nonzero(now.is_valid())))
                codes.append(now.drop_null())
        request = replace(self.request, keys=self.request.keys.take(chosen))
        slots = self.slots * len(chosen) // self.request.keys.num_rows
        return replace(self, request=request, parts=tuple(parts), codes=pa.concat_arrays(codes), slots=slots)

    def notes_of(self, part: Part, notes: Mapping[int, Any]) -> list[Any]:
        """The notes of the answer on each key of ``part``; empty if it has none."""
        if not notes:
            return []
        codes = next(own for each, own in self.codes_of_parts() if each is part)
        return [notes.get(code) for code in codes.to_pylist()]

    def without_failed(
        self, placed: Placed, failures: Mapping[int, Exception], notes: Mapping[int, Any]
    ) -> tuple[ScheduledRequest, Placed, Mapping[int, Any]]:
        """This request with its answer, reduced to the keys that did not fail."""
        others = absent(pa.array(failures, pa.int32()), self.request.keys.num_rows)
        if not len(others):
            return replace(self, parts=(), codes=others), placed, {}
        positions = pc.index_in(placed.positions, value_set=others)
        found = Placed(placed.rows, positions).filter(positions.is_valid())
        of_others = {now: notes[was] for now, was in enumerate(others.to_pylist()) if was in notes}
        return self.among(others), found, of_others


@dataclass(frozen=True)
class WaitUntil:
    time: float


@dataclass(frozen=True)
class Idle:
    """Nothing to ask before an answer comes or input is added."""


NextStep = ScheduledRequest | WaitUntil | Idle


@dataclass(frozen=True)
class Hold:
    """Lookups under way should wait, if they can: rows that are held take much memory.

    Args:
        until: when they should go on all the same.
        needs_answer: the first row waits for one of them; else rows will be handed out or asked for.
    """

    until: float
    needs_answer: bool


def distinct_keys_of(parts: Sequence[Part]) -> Keys:
    """The distinct keys of ``parts``: two windows may wait for the same key."""
    if len(parts) == 1:
        return Keys(parts[0].keys, count_up_to(len(parts[0])))
    return distinct_keys(pa.concat_tables([part.keys for part in parts]))


Learn = Callable[[pa.Table, Placed, pa.Array, float], None]
"""Takes keys, the rows of those found, the positions of those that have none, and when they were asked.

What is neither found nor missing is not known yet. Called by whoever drives the scheduler: it must not wait.
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
        self._queue.append((window, positions))

    def take(self, room: int) -> tuple[Window, pa.Array]:
        """The next keys of one window, ``room`` at most, NULL in the same columns: their positions."""
        window, positions = self._queue.popleft()
        taken, others = positions[:room], positions[room:]
        alike = alike_in_nulls(window.keys, taken)
        if alike is not None:
            others = pa.concat_arrays([taken.filter(pc.invert(alike)), others])
            taken = taken.filter(alike)
        if len(others):
            self._queue.appendleft((window, others))
        return window, taken

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
        self._sort_by_rows(place)

    def holds(self, window: Window, key: int) -> bool:
        return any(each is window and holds(positions, key) for each, positions in self._queue)

    def begins_with(self, window: Window, key: int) -> bool:
        """Whether the ``key`` of ``window`` is the next one, after sorting keys in the order of the rows."""
        if not self._queue or self.window is not window:
            return False
        self._sort_by_rows(0)
        return bool(self._queue[0][1][0].as_py() == key)

    def sort_longer_than(self, rows: int) -> None:
        """Put the keys of windows of more than ``rows`` in the order of their rows.

        Then the first rows are settled first, and are let go. Else the order of keys is better for a source.
        """
        for place, (window, _) in enumerate(self._queue):
            if window.rows > rows:
                self._sort_by_rows(place)

    def _sort_by_rows(self, place: int) -> None:
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
        heappush(self._heap, (due, next(self._tie), part))

    def take_due(self, now: float) -> tuple[float, Part] | None:
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
"""A runner that asks key by key gets this many times `capacity` keys: no slot waits for the scheduler."""


class LookupState:
    """Shared by the scheduler and its parts: where each key is, and what is known of sizes and speed."""

    def __init__(
        self,
        spec: LookupSpec,
        secrets: Set[str],
        observer: RequestObserver,
        limiter: RequestLimiter,
        learn: Learn | None,
    ) -> None:
        self.spec = spec
        self.learn = learn
        self.limiter = limiter
        self.answer_schema = spec.answer_schema
        self.events = EventLog(spec, secrets)
        self.recorder = TaskRecorder(lambda: self.events.throttled(self.keys_in_flight), observer)
        self.size = RequestSize(spec.settings.batch_size)
        # Where few may go out, keys that are asked one by one are given out when they may, and no sooner.
        ahead = ROUNDS_AHEAD if spec.by_row and limiter.room is None else 1
        capacity = spec.settings.capacity * ahead
        at_once = min(capacity, spec.connector.requests_at_once() or capacity)
        self.slots = RequestSlots(capacity, at_once, ordered=spec.settings.ordered, by_row=spec.by_row)
        self.held = HeldWindows(self.recorder)
        self.fresh = FreshKeys()
        self.waiting = WaitingKeys()
        self.keys_in_flight = 0

    def has_room_for(self, keys: int) -> bool:
        return self.held.bytes_left(self.size.bytes_of(keys)) > 0


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
        """The oldest batch with unsettled keys."""
        return self._asked[0] if self._asked else None

    def enter(self, batch: Batch) -> None:
        self._asked.append(batch)

    def leave(self, batch: Batch) -> None:
        """``batch`` is settled; it is out once all before it are."""
        assert batch.unsettled == 0
        self._settled_behind += self._requests_of(batch)
        while self._asked and self._asked[0].unsettled == 0:
            self._settled_behind -= self._requests_of(self._asked.popleft())

    def _requests_of(self, batch: Batch) -> int:
        return batch.size if self._by_row else 1
