"""What a lookup join in one task remembers."""

from __future__ import annotations

from collections.abc import Set

from lookup_hints.engine.backlog import FreshKeys, WaitingKeys
from lookup_hints.engine.dead_letters import GivenUp, Keep
from lookup_hints.engine.events import EventLog
from lookup_hints.engine.held import HeldWindows
from lookup_hints.engine.permits import RequestLimiter
from lookup_hints.engine.request_size import RequestSize
from lookup_hints.engine.slots import RequestSlots
from lookup_hints.engine.task_cache import Learn
from lookup_hints.metrics.observing import RequestObserver
from lookup_hints.metrics.tally import Tally
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
