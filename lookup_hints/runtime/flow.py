"""What to ask next: the heart of the runtime, without a clock, a thread or any I/O.

The flow takes windows of keys, says which request to send now or until when to wait, takes the answers,
and hands back the windows in their order once they are settled. A runner drives it: see
``sync_runner`` and ``async_runner``. Times are seconds on the runner's clock.

A key's life: it is *asked* first in a batch of its window; a batch's keys that must be asked again wait
together as a ``Part``, and parts of many batches that are due go out as one request. A key is *settled*
when its outcome is final.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, takewhile
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.errors import AnswerError, AnswerTooLarge, ConnectorError, LookupHintsError, LookupTimeout
from lookup_hints.runtime.arrow import (
    Keys,
    Placed,
    absent,
    count_up_to,
    distinct_keys,
    holds,
    lists_per_key,
    place,
)
from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.runtime.rate import Pace
from lookup_hints.runtime.request_size import ANSWER_BYTES, RequestSize
from lookup_hints.runtime.spec import LookupSpec
from lookup_hints.runtime.window import Settled, Window
from lookup_hints.spi import Connector, ReportsOutcomes
from lookup_hints.spi.model import Answer, LookupRequest, Outcome, Outcomes, PlacedRows

BUFFER_BYTES = 64 * 1024 * 1024
"""Reading of input stops while windows that are not handed out hold this much."""

ROWS_BYTES = 128 * 1024 * 1024
"""Rows that are held, and those that are expected for keys in flight, take about this together at most."""

HOLD_BYTES = 96 * 1024 * 1024
"""Lookups under way are held back while rows hold this much: rows of more keys came than were expected."""

HOLD_SECONDS = 30.0
"""Lookups under way are held back for this long at a time: servers end connections that nobody reads."""

ROUNDS_AHEAD = 3
"""A row door's runner gets so many times `capacity` keys, so that none of its slots waits for the flow."""

_LONGEST_BEAT = 0.125
_KEYS_SHOWN = 3


# --- what the flow says ------------------------------------------------------------------------------


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

    @property
    def keys(self) -> pa.Table:
        """The keys themselves."""
        return self.batch.window.keys.take(self.positions)

    def among(self, chosen: pa.Array) -> Part:
        """The keys of this part at ``chosen``."""
        return replace(self, positions=self.positions.take(chosen))

    def again(self) -> Part:
        """The same keys, for their next attempt."""
        return replace(self, attempt=self.attempt + 1)

    def cut(self, size: int) -> tuple[Part, Part]:
        """The first ``size`` keys, and the others."""
        first, others = self.positions[:size], self.positions[size:]
        return replace(self, positions=first), replace(self, positions=others)


@dataclass(frozen=True, eq=False)
class Ask:
    """Send ``request`` now, and tell the flow the outcome.

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

    def among(self, chosen: pa.Array) -> Ask:
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


@dataclass(frozen=True)
class WaitUntil:
    """Nothing to ask before ``time``, when keys fall due again."""

    time: float


@dataclass(frozen=True)
class Idle:
    """Nothing to ask before an answer comes or input is added."""


Step = Ask | WaitUntil | Idle


@dataclass(frozen=True)
class Hold:
    """Lookups under way should wait, if they can: rows that are held take much memory.

    Args:
        until: when they should go on all the same.
        needs_answer: the first row waits for one of them; else rows will be handed out or asked for.
    """

    until: float
    needs_answer: bool


# --- the flow ----------------------------------------------------------------------------------------


class LookupFlow:
    """The state of one lookup join in one task. Not thread-safe: one thread drives it."""

    def __init__(self, spec: LookupSpec, random: Random) -> None:
        self.metrics = LookupMetrics()
        self._spec = spec
        self._settings = spec.settings
        self._answer_schema = spec.answer_schema
        self._random = random
        self._windows: deque[Window] = deque()
        self._fresh: deque[tuple[Window, pa.Array]] = deque()  # and the positions of its keys
        self._due: list[tuple[float, int, Part]] = []
        self._tie = count()
        self._by_row = spec.by_row
        self._size = RequestSize(self._settings.batch_size)
        rate = spec.settings.rate
        self._pace = None if rate is None else Pace(rate)
        # At a pace a row door's keys are given out when they may go out, and no sooner.
        ahead = ROUNDS_AHEAD if self._by_row and self._pace is None else 1
        capacity = self._settings.capacity * ahead
        at_once = min(capacity, spec.connector.requests_at_once() or capacity)
        self._slots = Slots(capacity, at_once, ordered=self._settings.ordered, by_row=self._by_row)
        self._held_bytes = 0
        self._found_bytes = 0
        self._keys_in_flight = 0
        self._full_since: float | None = None
        self._held_since: float | None = None
        self._is_heard = False
        self._is_ended = False

    @property
    def connector(self) -> Connector:
        """What is asked."""
        return self._spec.connector

    # Input and output.

    @property
    def wants_input(self) -> bool:
        """Whether the next window should be added now.

        Nothing is read ahead of the first answer, and ahead of no answer where a LIMIT may stop the task.
        """
        reads_ahead = self._is_heard and not self._settings.stops_early
        is_stuck = self._held_bytes >= BUFFER_BYTES or (self._slots.in_flight > 0 and not reads_ahead)
        return not (self._is_ended or self._fresh or is_stuck)

    @property
    def most_rows(self) -> int | None:
        """How many rows the next window should have at most; None where it does not matter."""
        return self._size.rows

    @property
    def is_done(self) -> bool:
        """Whether the input is at its end and all windows are handed back."""
        return self._is_ended and not self._windows

    def add(self, keys: Keys) -> None:
        """Take the keys of a new window of input."""
        window = Window(keys)
        self._windows.append(window)
        self._size.saw(keys.table)
        if keys.table.num_rows:
            self._fresh.append((window, window.everything))
        self._hold(window.nbytes)
        self.metrics += LookupMetrics(
            rows_in=len(keys.codes), null_key_rows=keys.codes.null_count, keys=keys.table.num_rows
        )

    def end_input(self) -> None:
        """There will be no more windows."""
        self._is_ended = True

    def finished(self) -> Iterator[Settled]:
        """Hand back settled rows before which no unsettled one is, in the order of the input."""
        while self._windows:
            window = self._windows[0]
            held, found = window.nbytes, window.found_bytes
            settled = window.take_settled()
            self._found_bytes -= found - window.found_bytes
            self._held_bytes -= held - window.nbytes
            if window.is_over:
                self._held_bytes -= self._windows.popleft().nbytes
            elif settled is None:
                return
            if settled is not None:
                yield settled

    def hold(self, now: float) -> Hold | None:
        """Whether lookups under way should wait. What they have left of their time must do for the source."""
        if self._found_bytes < HOLD_BYTES:
            self._held_since = None
            return None
        self._held_since = now if self._held_since is None else self._held_since
        asked = self._slots.oldest
        late = math.inf if asked is None else asked.deadline - self._settings.timeout / 2
        until = min(self._held_since + HOLD_SECONDS, late)
        return Hold(until, self._needs_answer) if now < until else None

    @property
    def _needs_answer(self) -> bool:
        """Whether the first row that is held waits for a lookup under way, or for its slot."""
        window = self._windows[0]
        head = window.head
        if head is None or window.has_settled_rows:
            return False
        return self._slots.free <= 0 or not (
            any(_waits_for(part, window, head) for _, _, part in self._due)
            or any(each is window and holds(positions, head) for each, positions in self._fresh)
        )

    def has_room_for(self, keys: int) -> bool:
        """Whether rows of so many keys may be on their way, beside those that are held."""
        return self._found_bytes + self._size.bytes_of(keys) < ROWS_BYTES

    def _hold(self, nbytes: int) -> None:
        is_new = self._held_bytes < BUFFER_BYTES <= self._held_bytes + nbytes
        self._held_bytes += nbytes
        self.metrics += LookupMetrics(buffer_full=int(is_new))

    # What to ask.

    def next(self, now: float) -> Step:
        """What the runner should do at ``now``; after an ``Ask``, ask again what is next.

        Raises:
            LookupTimeout: the time of waiting keys ran out, and `on-error` is ``fail``.
        """
        if self._slots.free <= 0:
            return Idle()
        if self._pace is not None and (self._fresh or self._due) and not self._pace.allowed(now):
            return WaitUntil(self._pace.opens(now))
        if self._windows and not self.has_room_for(self._keys_in_flight):
            self._forgive_waiting(now)
            self._full_since = now
            return self._for_the_head(now)
        self._forgive_waiting(now)
        self._full_since = None
        parts = self._due_parts(now, self._room(self._slots.free, now))
        if parts:
            self.metrics += LookupMetrics(retried_keys=sum(map(len, parts)))
            return self._ask(parts, now)
        if self._may_begin and self._slots.free_for_fresh >= self._wanted_for_fresh:
            return self._ask([self._fresh_part(now, self._room(self._slots.free_for_fresh, now))], now)
        return WaitUntil(self._due[0][0]) if self._due else Idle()

    def _for_the_head(self, now: float) -> Step:
        """What lets the first row go that holds the others; nothing else may be asked.

        It needs a slot that is not in flight, whatever waits behind it.
        """
        head = self._windows[0].head
        if head is None:
            return Idle()  # until rows are handed out
        waiting = next((each for each in self._due if _waits_for(each[2], self._windows[0], head)), None)
        if waiting is not None:
            return self._again_for_the_head(waiting, now)
        if self._fresh and self._fresh[0][0] is self._windows[0]:
            self._sort_by_rows(0)
            if self._fresh[0][1][0].as_py() == head:
                return self._ask([self._fresh_part(now, self._room_for_the_head(now))], now)
        return Idle()

    def _again_for_the_head(self, waiting: tuple[float, int, Part], now: float) -> Step:
        due, _, part = waiting
        if due > now:
            return WaitUntil(due)
        self._due.remove(waiting)
        heapify(self._due)
        if part.batch.deadline <= now:
            self._give_up(part, self._out_of_time(part, None))
            return self.next(now)
        positions = part.batch.window.in_order_of_rows(part.positions)
        first, others = replace(part, positions=positions).cut(self._room_for_the_head(now))
        if len(others):
            self._wait(others, due)
        self.metrics += LookupMetrics(retried_keys=len(first))
        return self._ask([first], now)

    def _room_for_the_head(self, now: float) -> int:
        return min(self._room(self._slots.free, now), self._size.fitting(ANSWER_BYTES))

    def _forgive_waiting(self, now: float) -> None:
        """Keys that were due and not asked as there was no room do not lose that time."""
        if self._full_since is None:
            return
        waited: dict[Batch, float] = {}
        for due, _, part in self._due:
            waited[part.batch] = max(waited.get(part.batch, 0.0), now - max(due, self._full_since))
        for batch, seconds in waited.items():
            batch.deadline += seconds

    @property
    def _may_begin(self) -> bool:
        """Whether keys may be asked for the first time: not ahead of the oldest window where much is held."""
        if not self._fresh:
            return False
        return self._held_bytes < BUFFER_BYTES or self._fresh[0][0] is self._windows[0]

    def _room(self, slots: int, now: float) -> int:
        """How many keys may go out together at ``now`` where so many slots are free."""
        if not self._by_row:
            return self._size.keys
        allowed = slots if self._pace is None else self._pace.allowed(now)
        taken = self._found_bytes + self._size.bytes_of(self._keys_in_flight)
        return min(slots, self._settings.capacity, allowed, self._size.fitting(ROWS_BYTES - taken))

    @property
    def _wanted_for_fresh(self) -> int:
        """How many slots must be free. Through a row door not a few: each question costs us something."""
        in_bulk = self._by_row and self._pace is None
        return min(len(self._fresh[0][1]), self._settings.capacity) if in_bulk else 1

    def _fresh_part(self, now: float, room: int) -> Part:
        window, positions = self._fresh.popleft()
        if len(positions) > room:
            self._fresh.appendleft((window, positions[room:]))
            positions = positions[:room]
        batch = Batch(window, len(positions), now + self._settings.timeout)
        self._slots.enter(batch)
        return Part(batch, positions, attempt=1)

    def _due_parts(self, now: float, room: int) -> list[Part]:
        """Parts that are due, of ``room`` keys together at most; the last one is cut to fit."""
        parts: list[Part] = []
        while room and self._due and self._due[0][0] <= now:
            due, _, part = heappop(self._due)
            if part.batch.deadline <= now:  # all slots were taken for that long
                self._give_up(part, self._out_of_time(part, None))
                continue
            if len(part) > room:
                part, others = part.cut(room)
                self._wait(others, due)
            parts.append(part)
            room -= len(part)
        return parts

    def _ask(self, parts: Sequence[Part], now: float) -> Ask:
        deadline = min(part.batch.deadline for part in parts)
        attempt = max(part.attempt for part in parts)
        keys = _distinct_among(parts)
        request = LookupRequest(keys.table, self._answer_schema, deadline - now, attempt)
        slots = keys.table.num_rows if self._by_row else 1
        self._slots.in_flight += slots
        self._keys_in_flight += keys.table.num_rows
        if self._pace is not None:
            self._pace.take(slots)
        self.metrics += LookupMetrics(requests=slots)
        return Ask(request, tuple(parts), keys.codes, now, deadline, slots)

    # What came of it.

    def answered(self, ask: Ask, answer: Answer, now: float) -> None:
        """Take the answer of ``ask``.

        Raises:
            AnswerError: the answer breaks the connector's contract.
            LookupTimeout: keys must be asked again after their time is up, and `on-error` is ``fail``.
        """
        self._heard(ask, now)
        placed = place(answer, ask.request, self._connector_name)
        self._size.found(ask.request.keys.num_rows, placed.rows.nbytes)
        self._mind_the_width()
        notes: Mapping[int, Any] = {}
        if isinstance(answer, Outcomes):
            notes = answer.notes
            if answer.failures:
                self._take_failures(ask, answer.failures, now)
                ask, placed, notes = _without_failed(ask, placed, answer)
        for part, share in ask.shares(placed):
            self._judge(part, share, now, _notes_of(part, ask, notes))

    def _take_failures(self, ask: Ask, failures: Mapping[int, Exception], now: float) -> None:
        """Each key fails for its own reason; those of one reason fail together."""
        alike: dict[int, list[int]] = {}
        count = ask.request.keys.num_rows
        for position, error in failures.items():
            if not 0 <= position < count:
                raise AnswerError(
                    f"{self._connector_name} failed key {position}; it was asked {count} keys (from 0)."
                )
            alike.setdefault(id(error), []).append(position)
        for positions in alike.values():
            failed = ask.among(pa.array(positions, pa.int32()))
            self._fail(failed, failures[positions[0]], now)

    def failed(self, ask: Ask, error: Exception, now: float) -> None:
        """Take the failure of ``ask``.

        Raises:
            ConnectorError: some keys may not be asked again, and `on-error` is ``fail``.
        """
        self._heard(ask, now)
        if isinstance(error, AnswerTooLarge) and ask.request.keys.num_rows > 1:
            self._size.too_large(min(error.keys, ask.request.keys.num_rows - 1))
            self._mind_the_width()
            for part in ask.parts:
                self._put_back(part, now)
        else:
            self._fail(ask, error, now)

    def unasked(self, ask: Ask, now: float) -> None:
        """Take back ``ask``, which was not sent."""
        self._slots.in_flight -= ask.slots
        self._keys_in_flight -= ask.request.keys.num_rows
        self.metrics += LookupMetrics(requests=-ask.slots)
        for part in ask.parts:
            if part.attempt > 1:
                self.metrics += LookupMetrics(retried_keys=-len(part))
            self._put_back(part, now)

    def _put_back(self, part: Part, now: float) -> None:
        """Let the keys of ``part`` be asked as if they had not been; each attempt counts when it is made."""
        if part.attempt > 1:
            self._wait(part, now)
            return
        window = part.batch.window
        self._leave(part.batch, len(part))
        place = next((place for place, (each, _) in enumerate(self._fresh) if each is window), None)
        if place is None:
            older = {id(each) for each in takewhile(lambda each: each is not window, self._windows)}
            place = sum(id(each) in older for each, _ in self._fresh)
            self._fresh.insert(place, (window, part.positions))
        else:
            self._fresh[place] = (window, pa.concat_arrays([part.positions, self._fresh[place][1]]))
        window.is_asked_by_row = False
        self._sort_by_rows(place)

    def _mind_the_width(self) -> None:
        """Ask the keys of windows that will hold much in the order of their rows.

        Then the first rows are settled first, and are let go. Else the order of keys is better for a source.
        """
        rows = self._size.rows
        if rows is not None and not self._by_row:
            for place, (window, _) in enumerate(self._fresh):
                if window.rows > rows:
                    self._sort_by_rows(place)

    def _sort_by_rows(self, place: int) -> None:
        window, positions = self._fresh[place]
        if not window.is_asked_by_row:
            self._fresh[place] = (window, window.in_order_of_rows(positions))
            window.is_asked_by_row = True

    def _fail(self, ask: Ask, error: Exception, now: float) -> None:
        self.metrics += LookupMetrics(errors=1)
        if _is_defect(error):
            raise error
        # A request has the time of its most urgent part. The others did not have theirs: ask them again.
        was_cut_short = isinstance(error, LookupTimeout) and ask.deadline <= now
        for part in ask.parts:
            if part.batch.deadline <= now:
                self._give_up(part, self._out_of_time(part, error))
            elif was_cut_short:
                self._wait(part, now)
            else:
                self._retry_error(part, error, now)

    def _heard(self, ask: Ask, now: float) -> None:
        self._slots.in_flight -= ask.slots
        self._keys_in_flight -= ask.request.keys.num_rows
        self._size.answered(ask.request.keys.num_rows, now - ask.asked)
        self._is_heard = True

    def _judge(self, part: Part, placed: Placed, now: float, notes: Sequence[Any]) -> None:
        """Settle the keys of ``part`` whose outcome is final, and let the others wait."""
        missed = absent(placed.positions, len(part))
        delay = self._settings.retry.delay_after_miss(part.attempt, self._spread())
        again = missed[:0] if delay is None else self._refused(placed, missed, len(part))
        if len(again):
            placed = placed.filter(pc.invert(pc.is_in(placed.positions, value_set=again)))
            missed = missed.filter(pc.invert(pc.is_in(missed, value_set=again)))
        self._keep(part, placed)
        if len(missed):
            told = [notes[position] for position in missed.to_pylist()] if notes else [None] * len(missed)
            self._tell(part.among(missed), Outcome(None, part.attempt, told))
        self.metrics += LookupMetrics(hits=len(part) - len(again) - len(missed), misses=len(missed))
        if delay is None or not len(again):
            self._settle(part)
        else:
            self._settle(part.among(absent(again, len(part))))
            self._retry(part.among(again), now, delay)

    def _refused(self, placed: Placed, missed: pa.Array, size: int) -> pa.Array:
        """The positions of keys that the retry policy wants to ask again."""
        retry = self._settings.retry
        if retry.on_rows is None:
            return missed
        if not retry.on_miss:
            missed = missed[:0]
        schema = placed.rows.schema
        lists = lists_per_key(placed, size, pa.struct(list(schema))).to_pylist()
        refused = [position for position, rows in enumerate(lists) if retry.on_rows(rows)]
        return pc.unique(pa.concat_arrays([missed, pa.array(refused, pa.int32())]))

    def _keep(self, part: Part, placed: Placed) -> None:
        if placed.rows.num_rows:
            found = Placed(placed.rows.select(self._spec.columns), part.positions.take(placed.positions))
            part.batch.window.add(found)
            self._found_bytes += found.rows.nbytes
            self._hold(found.rows.nbytes)

    def _retry_error(self, part: Part, error: Exception, now: float) -> None:
        delay = self._settings.retry.delay_after_error(part.attempt, error, self._spread())
        if delay is None:
            self._give_up(part, self._failure(part, error))
        else:
            self._retry(part, now, delay, error)

    def _retry(self, part: Part, now: float, delay: float, error: Exception | None = None) -> None:
        """Ask the keys of ``part`` again after ``delay``, unless their time is up before."""
        due, deadline = now + delay, part.batch.deadline
        if due >= deadline:
            self._give_up(part, self._out_of_time(part, error))
        else:
            beat = _next_beat(due, delay)
            self._wait(part.again(), beat if beat < deadline else due)

    def _wait(self, part: Part, due: float) -> None:
        heappush(self._due, (due, next(self._tie), part))

    def _spread(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    # Final outcomes.

    def _give_up(self, part: Part, error: ConnectorError) -> None:
        """The keys of ``part`` failed for good: do what `on-error` says."""
        if self._settings.on_error == "fail":
            raise error
        if self._settings.on_error == "skip":
            part.batch.window.skip(part.positions)
            self.metrics += LookupMetrics(skipped=len(part))
        else:
            self.metrics += LookupMetrics(misses=len(part))
            told = error.__cause__ if isinstance(error.__cause__, Exception) else error
            self._tell(part, Outcome(told, part.attempt, [None] * len(part)))
        self._settle(part)

    def _tell(self, part: Part, outcome: Outcome) -> None:
        """Let the connector say in rows how it ended for keys without rows, where it does."""
        connector = self._spec.connector
        if not isinstance(connector, ReportsOutcomes):
            return
        told = connector.outcome_rows(part.keys, self._answer_schema, outcome)
        if told is not None:
            positions = count_up_to(len(part))
            request = LookupRequest(part.keys, self._answer_schema)
            self._keep(part, place(PlacedRows(told, positions), request, self._connector_name))

    def _settle(self, part: Part) -> None:
        part.batch.window.settle(part.positions)
        self._leave(part.batch, len(part))

    def _leave(self, batch: Batch, size: int) -> None:
        batch.unsettled -= size
        if batch.unsettled == 0:
            self._slots.leave(batch)

    # Messages.

    @property
    def _connector_name(self) -> str:
        return f"connector {type(self._spec.connector).__name__} of table {self._spec.table.name}"

    def _failure(self, part: Part, error: Exception) -> ConnectorError:
        message = f"{self._what(part)} failed after {_times(part.attempt)}: {_said(error)}"
        kind = LookupTimeout if isinstance(error, LookupTimeout) else ConnectorError
        return _chained(kind(message), error)

    def _out_of_time(self, part: Part, error: Exception | None) -> ConnectorError:
        last = f" The last one failed: {_said(error).rstrip('.')}." if error is not None else ""
        message = (
            f"{self._what(part)} has no final outcome within the timeout of {self._settings.timeout:g} s,"
            f" after {_times(part.attempt)}.{last} Raise 'timeout', or lower 'max-attempts' or the delay."
        )
        return _chained(LookupTimeout(message), error)

    def _what(self, part: Part) -> str:
        table = self._spec.table
        connector = table.options.get("connector", type(self._spec.connector).__name__)
        function = f", function {self._spec.name}" if self._spec.name else ""
        return f"The lookup of {_shown_keys(part)} in table {table.name} (connector {connector}{function})"


def feed(flow: LookupFlow, keys: Keys | None) -> None:
    """Give ``flow`` its next window, or tell it that there is none."""
    if keys is None:
        flow.end_input()
    else:
        flow.add(keys)


class Slots:
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


# --- helpers -----------------------------------------------------------------------------------------


def _distinct_among(parts: Sequence[Part]) -> Keys:
    """The distinct keys of ``parts``: two windows may wait for the same key."""
    if len(parts) == 1:
        return Keys(parts[0].keys, count_up_to(len(parts[0])))
    return distinct_keys(pa.concat_tables([part.keys for part in parts]))


def _waits_for(part: Part, window: Window, key: int) -> bool:
    """Whether ``part`` holds the ``key`` of ``window``."""
    return part.batch.window is window and holds(part.positions, key)


def _without_failed(ask: Ask, placed: Placed, answer: Outcomes) -> tuple[Ask, Placed, Mapping[int, Any]]:
    """``ask`` and what came of it, for the keys that did not fail."""
    others = absent(pa.array(answer.failures, pa.int32()), ask.request.keys.num_rows)
    if not len(others):
        return replace(ask, parts=(), codes=others), placed, {}
    positions = pc.index_in(placed.positions, value_set=others)
    found = Placed(placed.rows, positions).filter(positions.is_valid())
    notes = {now: answer.notes[was] for now, was in enumerate(others.to_pylist()) if was in answer.notes}
    return ask.among(others), found, notes


def _notes_of(part: Part, ask: Ask, notes: Mapping[int, Any]) -> list[Any]:
    """What was noted about each key of ``part``; nothing where nothing was noted at all."""
    if not notes:
        return []
    codes = next(own for each, own in ask.codes_of_parts() if each is part)
    return [notes.get(code) for code in codes.to_pylist()]


def _next_beat(due: float, delay: float) -> float:
    """``due``, or up to a sixteenth of ``delay`` later.

    Misses of requests that were answered within one beat then fall due together and go out as one
    request. Beats are powers of two: those of different delays fall together, and rounding is exact.
    """
    beat = min(_LONGEST_BEAT, 2.0 ** (math.frexp(delay / 16)[1] - 1))
    return math.ceil(due / beat) * beat


def _is_defect(error: Exception) -> bool:
    """Whether ``error`` tells of a wrong connector, query or library, which no policy may hide."""
    return isinstance(error, AnswerError) or (
        isinstance(error, LookupHintsError) and not isinstance(error, ConnectorError)
    )


def _shown_keys(part: Part) -> str:
    """The keys of ``part``, the first few in full: ``2 keys (id = 1; id = 2)``."""
    some = part.cut(_KEYS_SHOWN)[0].keys.to_pylist()
    shown = "; ".join(", ".join(f"{name} = {_short(value)}" for name, value in row.items()) for row in some)
    more = "; ..." if len(part) > _KEYS_SHOWN else ""
    noun = "key" if len(part) == 1 else "keys"
    return f"{len(part)} {noun} ({shown}{more})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _said(error: Exception) -> str:
    """What ``error`` says; the kind, too, unless it is one of ours."""
    text = str(error)
    return text if isinstance(error, ConnectorError) else f"{type(error).__name__}: {text}".rstrip(": ")


def _chained(error: ConnectorError, cause: Exception | None) -> ConnectorError:
    error.__cause__ = cause
    return error
