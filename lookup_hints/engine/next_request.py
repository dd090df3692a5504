"""Which request to send next, or until when to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lookup_hints.engine.event_log import out_of_time
from lookup_hints.engine.outcomes import Settling
from lookup_hints.engine.request_size import ANSWER_BYTES
from lookup_hints.engine.state import LookupState
from lookup_hints.engine.steps import Ask, Batch, Idle, Part, Step, WaitUntil, distinct_keys_of
from lookup_hints.metrics.lookup_metrics import Cause
from lookup_hints.spi.request_and_answer import LookupRequest


class Asking:
    """Takes keys out of the backlog: those that wait before fresh ones, and no more than memory bears."""

    def __init__(self, state: LookupState, settling: Settling) -> None:
        self._state, self._settling = state, settling
        self._settings = state.spec.settings
        self._full_since: float | None = None

    def next(self, now: float) -> Step:
        """What the runner should do at ``now``; after an ``Ask``, ask again what is next."""
        if self._state.slots.free <= 0 or self._state.limiter.is_crowded(self._state.slots.in_flight):
            return Idle()
        is_full = bool(self._state.held) and not self._state.has_room_for(self._state.keys_in_flight)
        if self._full_since is not None:
            self._state.waiting.forgive(self._full_since, now)
        self._full_since = now if is_full else None
        return self._for_the_head(now) if is_full else self._for_any(now)

    def blocked_by(self, now: float, under_way: int, *, has_queue: bool) -> Cause:
        """What a task that can only wait waits for; ``has_queue``: keys wait for slots of its runner."""
        pending_waits = self._state.recorder.pending_waits.most_of(under_way)
        if pending_waits is not None:
            return pending_waits
        due = self._state.waiting.next_due
        is_due = due is not None and due <= now
        if not under_way:
            return "retry"
        return "slot" if has_queue or self._lacks_slots(is_due=is_due) else "source"

    def _lacks_slots(self, *, is_due: bool) -> bool:
        """Whether keys could be asked now if more slots were free; ``is_due``: some are due again."""
        slots = self._state.slots
        if is_due:
            return slots.free <= 0
        return self._may_begin and slots.free_for_fresh < self._wanted_for_fresh

    def _for_any(self, now: float) -> Step:
        parts = self._due_parts(now, self._room(self._state.slots.free))
        if parts:
            return self._ask_again(parts, now)
        if self._may_begin and self._state.slots.free_for_fresh >= self._wanted_for_fresh:
            return self._ask([self._fresh_part(now, self._room(self._state.slots.free_for_fresh))], now)
        due = self._state.waiting.next_due
        return Idle() if due is None else WaitUntil(due)

    def _for_the_head(self, now: float) -> Step:
        """What lets the first row go that holds the others; nothing else may be asked.

        It needs a slot that is not in flight, whatever waits behind it.
        """
        window = self._state.held.first
        head = window.head
        if head is None:
            return Idle()  # until rows are handed out
        waiting = self._state.waiting.of_key(window, head)
        if waiting is not None:
            return self._again_for_the_head(*waiting, now)
        if self._state.fresh.begins_with(window, head):
            return self._ask([self._fresh_part(now, self._room_for_the_head())], now)
        return Idle()

    def _again_for_the_head(self, due: float, part: Part, now: float) -> Step:
        if due > now:
            return WaitUntil(due)
        self._state.waiting.remove(part)
        if part.batch.deadline <= now:
            self._settling.give_up(part, out_of_time(self._state.spec, part, None))
            return self.next(now)
        positions = part.batch.window.in_order_of_rows(part.positions)
        first, others = replace(part, positions=positions).cut(self._room_for_the_head())
        if len(others):
            self._state.waiting.add(others, due)
        return self._ask_again([first], now)

    def _room_for_the_head(self) -> int:
        return min(self._room(self._state.slots.free), self._state.size.fitting(ANSWER_BYTES))

    @property
    def _may_begin(self) -> bool:
        """Whether keys may be asked for the first time: not ahead of the oldest window where much is held."""
        if not self._state.fresh:
            return False
        return not self._state.held.is_full or self._state.fresh.window is self._state.held.first

    def _room(self, slots: int) -> int:
        """How many keys may go out together where this many slots are free."""
        if not self._state.spec.by_row:
            return self._state.size.keys
        room = self._state.limiter.room
        allowed = slots if room is None else room
        left = self._state.held.bytes_left(self._state.size.bytes_of(self._state.keys_in_flight))
        return min(slots, self._settings.capacity, allowed, self._state.size.fitting(left))

    @property
    def _wanted_for_fresh(self) -> int:
        """How many slots must be free: not a few where keys are asked one by one: each costs us something."""
        in_bulk = self._state.spec.by_row and self._state.limiter.room is None
        return min(self._state.fresh.in_window, self._settings.capacity) if in_bulk else 1

    def _fresh_part(self, now: float, room: int) -> Part:
        window, positions = self._state.fresh.take(room)
        batch = Batch(window, len(positions), now + self._settings.timeout)
        self._state.slots.enter(batch)
        return Part(batch, positions, attempt=1)

    def _due_parts(self, now: float, room: int) -> list[Part]:
        """Parts that are due, of ``room`` keys together at most; the last one is cut to fit."""
        parts: list[Part] = []
        while room and (found := self._state.waiting.take_due(now)) is not None:
            due, part = found
            if part.batch.deadline <= now:  # all slots were taken for that long
                self._settling.give_up(part, out_of_time(self._state.spec, part, None))
                continue
            if len(part) > room:
                part, others = part.cut(room)
                self._state.waiting.add(others, due)
            parts.append(part)
            room -= len(part)
        return parts

    def _ask_again(self, parts: Sequence[Part], now: float) -> Ask:
        self._state.recorder.count(retried_keys=sum(map(len, parts)))
        return self._ask(parts, now)

    def _ask(self, parts: Sequence[Part], now: float) -> Ask:
        deadline = min(part.batch.deadline for part in parts)
        attempt = max(part.attempt for part in parts)
        keys = distinct_keys_of(parts)
        spec = self._state.spec
        order = spec.order if spec.order_asked else None
        request = LookupRequest(keys.table, self._state.answer_schema, deadline - now, attempt, order)
        slots = keys.table.num_rows if spec.by_row else 1
        self._state.slots.in_flight += slots
        self._state.keys_in_flight += keys.table.num_rows
        self._state.recorder.count(requests=slots)
        self._state.recorder.asked(keys.table.nbytes)
        if not self._state.spec.by_row:  # there the runner knows
            self._state.recorder.in_flight(self._state.slots.in_flight)
        return Ask(request, tuple(parts), keys.codes, now, deadline, slots)
