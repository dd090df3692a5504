"""What a lookup join in one task remembers."""

from __future__ import annotations

from collections import deque
from collections.abc import Set

from lookup_hints.engine.backlog import FreshKeys, WaitingKeys
from lookup_hints.engine.dead_letters import GivenUp, Keep
from lookup_hints.engine.events import EventLog
from lookup_hints.engine.permits import RequestLimiter
from lookup_hints.engine.request_size import RequestSize
from lookup_hints.engine.steps import Batch
from lookup_hints.engine.task_cache import Learn
from lookup_hints.engine.window import HeldWindows
from lookup_hints.metrics.tally import RequestObserver, Tally
from lookup_hints.spec import LookupSpec

ROUNDS_AHEAD = 3
"""A row door's runner gets this many times `capacity` keys, so that none of its slots waits for the flow."""


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
        self.tally = Tally(lambda: self.events.throttled(self.keys_in_flight), observer)
        self.given_up = GivenUp(spec, self.tally, keep)
        self.size = RequestSize(spec.settings.batch_size)
        self.slots = _slots(spec, limiter)
        self.held = HeldWindows(self.tally)
        self.fresh = FreshKeys()
        self.waiting = WaitingKeys()
        self.keys_in_flight = 0

    def has_room_for(self, keys: int) -> bool:
        """Whether rows of this many keys may be on their way, beside those that are held."""
        return self.held.bytes_left(self.size.bytes_of(keys)) > 0


def _slots(spec: LookupSpec, limiter: RequestLimiter) -> RequestSlots:
    # Where few may go out, a row door's keys are given out when they may, and no sooner.
    ahead = ROUNDS_AHEAD if spec.by_row and limiter.room is None else 1
    capacity = spec.settings.capacity * ahead
    at_once = min(capacity, spec.connector.requests_at_once() or capacity)
    return RequestSlots(capacity, at_once, ordered=spec.settings.ordered, by_row=spec.by_row)


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
