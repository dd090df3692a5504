"""Decides which request is sent next: the heart of the engine, without a clock, a thread or any I/O.

The scheduler takes windows of keys, says which request to send now or until when to wait, takes the answers,
and hands back the windows in their order once they are settled. A runner drives it: see
``sync_runner`` and ``async_runner``. Times are seconds on the runner's clock.

A key's life: it is *asked* first in a batch of its window; a batch's keys that must be asked again wait
together as a ``Part``, and parts of many batches that are due go out as one request. A key is *settled*
when its outcome is final.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

from lookup_hints.engine.adaptive_batch_size import ANSWER_BYTES
from lookup_hints.engine.arrow import Keys, place
from lookup_hints.engine.backlog import (
    Batch,
    Hold,
    Idle,
    Learn,
    LookupState,
    NextStep,
    Part,
    ScheduledRequest,
    WaitUntil,
    distinct_keys_of,
)
from lookup_hints.engine.event_log import connector_name, out_of_time
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.outcomes import Keep, Settling
from lookup_hints.engine.permits import UNLIMITED, RequestLimiter, RequestPermits
from lookup_hints.errors import AnswerError, AnswerTooLarge, NoTurn, counted
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.lookup_metrics import Cause, LookupMetrics
from lookup_hints.metrics.task_recorder import UNOBSERVED, WATCH_SECONDS, OnCounts, RequestObserver
from lookup_hints.spi.request_and_answer import (
    Answer,
    LookupRequest,
    NearestCondition,
    OrderCondition,
    Outcomes,
)

HOLD_BYTES = 96 * 1024 * 1024
"""Bytes of buffered rows above which lookups in flight are paused: answers are larger than expected."""

HOLD_SECONDS = 30.0
"""The longest pause of lookups in flight: servers close connections that are not read for long."""


# Pure: no clock, no threads, no waiting. Two runners drive it, so sync and async lookups cannot drift apart.
class RequestScheduler:
    """The state of one lookup join in one task. Not thread-safe: one thread drives it.

    Args:
        spec: the lookup.
        random: for jitter.
        secrets: what may not be shown beside what the connector knows, as it is when something is.
        watch: is shown what was counted, while the scheduler is driven.
        observer: is told of each HTTP request.
        keep: takes the keys that failed for good, where they are to be kept as dead letters.
        learn: takes what the source answered, where that is to be remembered.
        limiter: the limits of the origin.
    """

    def __init__(
        self,
        spec: LookupSpec,
        random: Random,
        *,
        secrets: Set[str] = frozenset(),
        watch: OnCounts | None = None,
        observer: RequestObserver = UNOBSERVED,
        keep: Keep = lambda _: None,
        learn: Learn | None = None,
        limiter: RequestLimiter = UNLIMITED,
    ) -> None:
        self.connector, self.limiter, self._settings = spec.connector, limiter, spec.settings
        self._watch, self._shows_at = watch, math.inf if watch is None else -math.inf
        self._state = LookupState(spec, secrets, observer, limiter, learn)
        self.recorder = self._state.recorder
        """Listens to the connector, and to what the runner waits for. An answer ends a wait by itself."""
        self._settling = Settling(self._state, random, keep)
        self._full_since: float | None = None
        self._held_since: float | None = None
        self._is_heard = False
        self._is_ended = False

    @property
    def metrics(self) -> LookupMetrics:
        return replace(self.recorder.total, events=self._state.events.told)

    def show(self, now: float) -> float:
        """Show the counts, if it is time; when it will be time again is returned."""
        if self._watch is not None and now >= self._shows_at:
            self._shows_at = now + WATCH_SECONDS
            self._watch(self.metrics, self._state.waiting.keys)
        return self._shows_at

    def check_errors(self) -> None:
        """All is settled: fail if more keys failed for good than `max-error-ratio` allows.

        Raises:
            ConnectorError: they are more.
        """
        self._settling.given_up.check_ratio()

    def stopped(self) -> None:
        self._state.events.stopped(self.metrics.keys)

    # Input and output.

    @property
    def wants_input(self) -> bool:
        """Whether the next window should be added now.

        Nothing is read ahead of the first answer, and ahead of no answer where a LIMIT may stop the task.
        """
        reads_ahead = self._is_heard and not self._settings.stops_early
        is_stuck = self._state.held.is_full or (self._state.slots.in_flight > 0 and not reads_ahead)
        return not (self._is_ended or self._state.fresh or is_stuck)

    @property
    def most_rows(self) -> int | None:
        """How many rows the next window should have at most; None where it does not matter."""
        return self._state.size.rows

    @property
    def is_done(self) -> bool:
        return self._is_ended and not self._state.held

    def add(self, keys: Keys | None) -> None:
        """Take the next window, or None at the end of the input."""
        if keys is None:
            self._is_ended = True
            return
        window = self._state.held.add(keys)
        self._state.size.saw(keys.table)
        asked = window.everything if keys.known is None else self._settling.recall(window, keys.known)
        if len(asked):
            self._state.fresh.add(window, asked)
        self.recorder.count(
            rows_in=len(keys.codes), null_key_rows=keys.codes.null_count, keys=keys.table.num_rows
        )

    def finished(self) -> Iterator[Settled]:
        """Hand back settled rows before which no unsettled one is, in the order of the input."""
        return self._state.held.finished()

    # Ends after a while: servers close connections that are not read, and a slow consumer must not make
    # lookups fail. (docs/decisions/0115)
    def hold(self, now: float) -> Hold | None:
        """Whether lookups under way should wait. What they have left of their time must do for the source."""
        if self._state.held.found_bytes < HOLD_BYTES:
            self._held_since = None
            return None
        self._held_since = now if self._held_since is None else self._held_since
        asked = self._state.slots.oldest
        late = math.inf if asked is None else asked.deadline - self._settings.timeout / 2
        until = min(self._held_since + HOLD_SECONDS, late)
        return Hold(until, self._needs_answer) if now < until else None

    @property
    def _needs_answer(self) -> bool:
        """Whether the first row that is held waits for a lookup under way, or for its slot."""
        window = self._state.held.first
        head = window.head
        if head is None or window.has_settled_rows:
            return False
        if self._state.slots.free <= 0:
            return True
        return self._state.waiting.of_key(window, head) is None and not self._state.fresh.holds(window, head)

    def has_room_for(self, keys: int) -> bool:
        return self._state.has_room_for(keys)

    # What to ask.

    def next(self, now: float) -> NextStep:
        """What the runner should do at ``now``; after a ``ScheduledRequest``, ask again what is next."""
        if not (self._state.fresh or self._state.waiting):
            self._full_since = None
            return Idle()
        if self._state.slots.free <= 0 or self.limiter.is_crowded(self._state.slots.in_flight):
            return Idle()
        is_full = bool(self._state.held) and not self._state.has_room_for(self._state.keys_in_flight)
        if self._full_since is not None:
            self._state.waiting.forgive(self._full_since, now)
        self._full_since = now if is_full else None
        return self._next_for_head(now) if is_full else self._next_request(now)

    def blocked_by(self, now: float, *, under_way: int | None = None, has_queue: bool = False) -> Cause:
        """The reason why an idle task waits; ``has_queue``: keys wait for slots of its runner."""
        under_way = self._state.slots.in_flight if under_way is None else under_way
        pending_waits = self.recorder.pending_waits.most_of(under_way)
        if pending_waits is not None:
            return pending_waits
        due = self._state.waiting.next_due
        is_due = due is not None and due <= now
        if not under_way:
            return "retry"
        return "slot" if has_queue or self._lacks_slots(is_due=is_due) else "source"

    def _lacks_slots(self, *, is_due: bool) -> bool:
        slots = self._state.slots
        if is_due:
            return slots.free <= 0
        return self._may_start_fresh and slots.free_for_fresh < self._slots_for_fresh

    def _next_request(self, now: float) -> NextStep:
        parts = self._due_parts(now, self._most_keys(self._state.slots.free))
        if parts:
            return self._ask_again(parts, now)
        if self._may_start_fresh and self._state.slots.free_for_fresh >= self._slots_for_fresh:
            return self._make_request(
                [self._take_fresh_part(now, self._most_keys(self._state.slots.free_for_fresh))], now
            )
        due = self._state.waiting.next_due
        return Idle() if due is None else WaitUntil(due)

    # Beyond the memory for rows, only the key that the first row waits for is requested, whatever slots
    # others hold: so the task always moves. (docs/decisions/0115)
    def _next_for_head(self, now: float) -> NextStep:
        """The request that unblocks the first row, which holds up the others; nothing else may be sent.

        It needs a slot that is not in flight, whatever waits behind it.
        """
        window = self._state.held.first
        head = window.head
        if head is None:
            return Idle()  # until rows are handed out
        waiting = self._state.waiting.of_key(window, head)
        if waiting is not None:
            return self._retry_head(*waiting, now)
        if self._state.fresh.begins_with(window, head):
            return self._make_request([self._take_fresh_part(now, self._most_keys_for_head())], now)
        return Idle()

    def _retry_head(self, due: float, part: Part, now: float) -> NextStep:
        if due > now:
            return WaitUntil(due)
        self._state.waiting.remove(part)
        if part.batch.deadline <= now:
            self._settling.give_up(part, out_of_time(self._state.spec, part, None))
            return self.next(now)
        positions = part.batch.window.in_order_of_rows(part.positions)
        first, others = replace(part, positions=positions).cut(self._most_keys_for_head())
        if len(others):
            self._state.waiting.add(others, due)
        return self._ask_again([first], now)

    def _most_keys_for_head(self) -> int:
        return min(self._most_keys(self._state.slots.free), self._state.size.fitting(ANSWER_BYTES))

    @property
    def _may_start_fresh(self) -> bool:
        if not self._state.fresh:
            return False
        return not self._state.held.is_full or self._state.fresh.window is self._state.held.first

    def _most_keys(self, slots: int) -> int:
        if not self._state.spec.by_row:
            return self._state.size.keys
        room = self.limiter.room
        allowed = slots if room is None else room
        left = self._state.held.bytes_left(self._state.size.bytes_of(self._state.keys_in_flight))
        return min(slots, self._settings.capacity, allowed, self._state.size.fitting(left))

    @property
    def _slots_for_fresh(self) -> int:
        """How many slots must be free: not a few where keys are asked one by one: each costs us something."""
        in_bulk = self._state.spec.by_row and self.limiter.room is None
        return min(self._state.fresh.in_window, self._settings.capacity) if in_bulk else 1

    def _take_fresh_part(self, now: float, room: int) -> Part:
        window, positions = self._state.fresh.take(room)
        batch = Batch(window, len(positions), now + self._settings.timeout)
        self._state.slots.enter(batch)
        return Part(batch, positions, attempt=1)

    def _due_parts(self, now: float, room: int) -> list[Part]:
        """Due parts that are NULL in the same columns, of ``room`` keys at most; the last is cut to fit."""
        parts: list[Part] = []
        unlike: list[tuple[float, Part]] = []
        while room and (found := self._state.waiting.take_due(now)) is not None:
            due, part = found
            if part.batch.deadline <= now:  # all slots were taken for that long
                self._settling.give_up(part, out_of_time(self._state.spec, part, None))
                continue
            if parts and part.null_columns != parts[0].null_columns:
                unlike.append((due, part))
                continue
            if len(part) > room:
                part, others = part.cut(room)
                self._state.waiting.add(others, due)
            parts.append(part)
            room -= len(part)
        for due, part in unlike:
            self._state.waiting.add(part, due)
        return parts

    def _ask_again(self, parts: Sequence[Part], now: float) -> ScheduledRequest:
        self.recorder.count(retried_keys=sum(map(len, parts)))
        return self._make_request(parts, now)

    def _make_request(self, parts: Sequence[Part], now: float) -> ScheduledRequest:
        deadline = min(part.batch.deadline for part in parts)
        attempt = max(part.attempt for part in parts)
        keys = distinct_keys_of(parts)
        spec = self._state.spec
        asked = spec.order if spec.order_asked else None
        request = LookupRequest(
            keys.table,
            self._state.answer_schema,
            deadline - now,
            attempt,
            order=asked if isinstance(asked, OrderCondition) else None,
            nearest=asked if isinstance(asked, NearestCondition) else None,
        )
        slots = keys.table.num_rows if spec.by_row else 1
        self._state.slots.in_flight += slots
        self._state.keys_in_flight += keys.table.num_rows
        self.recorder.count(requests=slots)
        self.recorder.asked(keys.table.nbytes)
        if not self._state.spec.by_row:  # there the runner knows
            self.recorder.in_flight(self._state.slots.in_flight)
        return ScheduledRequest(request, tuple(parts), keys.codes, now, deadline, slots)

    # What came of it.

    def late_at(self, ask: ScheduledRequest, waited: float) -> float:
        """When the time of ``ask`` is up; that it ``waited`` for its permit counts if the source is down."""
        return ask.deadline + (0.0 if self.limiter.outage else waited)

    def forgive(self, ask: ScheduledRequest, permits: RequestPermits) -> ScheduledRequest:
        """``ask`` and its keys with the time that it waited for its ``permits``.

        What it found is as old as the first of several requests.
        """
        deadline = self.late_at(ask, permits.waited)
        for part in ask.parts:
            part.batch.deadline = max(part.batch.deadline, deadline)
        return replace(ask, asked=ask.asked + permits.waited_first, deadline=deadline)

    def answered(self, ask: ScheduledRequest, answer: Answer, now: float, sent: float | None = None) -> None:
        """Take the answer of ``ask``, which may have been ``sent`` later than it was asked for.

        Raises:
            AnswerError: the answer breaks the connector's contract.
            LookupTimeout: keys must be asked again after their time is up, and `on-error` is ``fail``.
        """
        self._close_request(ask, now)
        name = connector_name(self._state.spec)
        placed = place(
            answer, ask.request, name, lambda keys: self._drop_unasked_rows(keys, ask.request.keys)
        )
        nbytes = placed.rows.nbytes
        self._state.size.found(ask.request.keys.num_rows, nbytes)
        self.recorder.found(nbytes)
        self._sort_wide_windows()
        notes: Mapping[int, Any] = answer.notes if isinstance(answer, Outcomes) else {}
        failures = self._settling.several_rows(placed)
        if isinstance(answer, Outcomes):
            failures |= answer.failures
        self._check_positions(ask, failures)
        rest, placed, notes = (
            ask.without_failed(placed, failures, notes) if failures else (ask, placed, notes)
        )
        began = ask.asked if sent is None else sent
        for part, share in rest.shares(placed):
            self._settling.judge(part, share, began, now, rest.notes_of(part, notes))
        if failures:  # last: they may fail the task, and a cache keeps what was answered
            self._take_failures(ask, failures, now)

    def _drop_unasked_rows(self, strangers: pa.Table, asked: pa.Table) -> None:
        self.recorder.count(unasked_rows=strangers.num_rows)
        self._state.events.dropped(strangers, asked)

    def _check_positions(self, ask: ScheduledRequest, failures: Mapping[int, Exception]) -> None:
        count = ask.request.keys.num_rows
        stranger = next((each for each in failures if not 0 <= each < count), None)
        if stranger is not None:
            name = connector_name(self._state.spec)
            raise AnswerError(f"{name} failed key {stranger}; it was asked {counted(count, 'key')} (from 0).")

    def _take_failures(self, ask: ScheduledRequest, failures: Mapping[int, Exception], now: float) -> None:
        """Each key fails for its own reason; those of one reason fail together."""
        alike: dict[int, list[int]] = {}
        for position, error in failures.items():
            alike.setdefault(id(error), []).append(position)
        for positions in alike.values():
            failed = ask.among(pa.array(positions, pa.int32()))
            self._fail_request(failed, failures[positions[0]], now)

    def failed(self, ask: ScheduledRequest, error: Exception, now: float) -> None:
        """Take the failure of ``ask``.

        Raises:
            ConnectorError: some keys may not be asked again, and `on-error` is ``fail``.
        """
        self._close_request(ask, now)
        if isinstance(error, AnswerTooLarge) and ask.request.keys.num_rows > 1:
            self._state.size.too_large(min(error.keys, ask.request.keys.num_rows - 1))
            self._sort_wide_windows()
            for part in ask.parts:
                self._put_back_part(part, now)
        else:
            self._fail_request(ask, error, now)

    def _fail_request(self, ask: ScheduledRequest, error: Exception, now: float) -> None:
        if isinstance(error, NoTurn):
            # Time without a permit does not count against the timeout of a key, unless the source is down.
            # (docs/decisions/0141)
            self._uncount_request(ask)
            for part in ask.parts:
                part.batch.deadline = max(part.batch.deadline, now + self._settings.timeout)
                self._put_back_part(part, now)
        else:
            if self.limiter.outage:
                self._state.events.down(self.limiter.outage)
            self._settling.fail(ask, error, now)

    def unasked(self, ask: ScheduledRequest, now: float) -> None:
        self._release_slots(ask)
        self._uncount_request(ask)
        for part in ask.parts:
            self._put_back_part(part, now)

    # It was never sent: counts show what the source has seen.
    def _uncount_request(self, ask: ScheduledRequest) -> None:
        again = sum(len(part) for part in ask.parts if part.attempt > 1)
        self.recorder.count(requests=-ask.slots, retried_keys=-again)

    def _put_back_part(self, part: Part, now: float) -> None:
        """Let the keys of ``part`` be asked as if they had not been; each attempt counts when it is made."""
        if part.attempt > 1:
            self._state.waiting.add(part, now)
        else:
            self._settling.leave(part.batch, len(part))
            self._state.fresh.put_back(part.batch.window, part.positions, self._state.held)

    # An index likes the order of keys, but then the first row may be settled last and hold all others.
    # (docs/decisions/0115)
    def _sort_wide_windows(self) -> None:
        """Windows that will hold much let their first rows go as soon as they can."""
        if self._state.size.rows is not None and not self._state.spec.by_row:
            self._state.fresh.sort_longer_than(self._state.size.rows)

    def _close_request(self, ask: ScheduledRequest, now: float) -> None:
        self.recorder.waits.turn(None, now)
        self._release_slots(ask)
        self._state.size.answered(ask.request.keys.num_rows, now - ask.asked)
        if not self._state.spec.by_row:
            self.recorder.took([now - ask.asked])
        self._is_heard = True

    def _release_slots(self, ask: ScheduledRequest) -> None:
        self._state.slots.in_flight -= ask.slots
        self._state.keys_in_flight -= ask.request.keys.num_rows
