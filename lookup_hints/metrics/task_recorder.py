"""Counts what one lookup function does in one task, and for what the task waits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, get_type_hints

from lookup_hints.metrics.lookup_metrics import Cause, CountsByKey, Latencies, LookupMetrics, MaxGauge
from lookup_hints.spi.request_context import UNTOLD, HttpExchange, Wait

TIMER_TOLERANCE = 1e-3
"""Seconds: a loop's timer may fire this much early, for the resolution of its clock."""


class RequestObserver(Protocol):
    """Observes each request of one lookup in one task; called on the thread that calls the connector."""

    def begin(self, keys: int) -> Any:
        """A request for this many keys is sent; gives what ``end`` wants to have back."""

    def end(self, begun: Any, seconds: float, error: type[BaseException] | None) -> None:
        """The request of ``begin`` was answered or failed after this many seconds."""

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        """A block in which the connector sends one HTTP request, and reads its response."""

    def task_ended(self, counts: LookupMetrics) -> None:
        """The task is over, and this is what it counted."""


class _Unobserved:
    def begin(self, keys: int) -> None:
        pass

    def end(self, begun: Any, seconds: float, error: type[BaseException] | None) -> None:
        pass

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        return UNTOLD

    def task_ended(self, counts: LookupMetrics) -> None:
        pass


UNOBSERVED: RequestObserver = _Unobserved()
"""Tells nobody."""


# The fields that are plain numbers.
_PLAIN = [name for name, kind in get_type_hints(LookupMetrics).items() if kind is int]


# One clock turned from cause to cause: causes never overlap, so their seconds add up to the task's time.
# (docs/decisions/0134)
class Waits:
    """Adds up by cause how long a task could only wait: for one thing at a time. Times are given."""

    def __init__(self) -> None:
        self._seconds: dict[Cause, float] = {}
        self._cause: Cause | None = None
        self._since = -math.inf

    @property
    def cause(self) -> Cause | None:
        """The present cause of waiting; None while the task works."""
        return self._cause

    def turn(self, cause: Cause | None, now: float) -> None:
        """From ``now`` on the task waits for ``cause``; with None it works."""
        now = max(now, self._since)  # a runner may tell of a deadline a moment before it
        if self._cause is not None:
            self._seconds[self._cause] = self._seconds.get(self._cause, 0.0) + (now - self._since)
        self._cause, self._since = cause, now

    @property
    def total(self) -> CountsByKey[float]:
        """All waits that are over."""
        return CountsByKey({cause: seconds for cause, seconds in self._seconds.items() if seconds})


class PendingWaits:
    """The requests under way that wait in the connector, and are not sent yet."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] | None = None
        """Called when one begins or ends to wait."""
        self._requests: dict[Cause, int] = {}

    def most_of(self, under_way: int) -> Cause | None:
        """For what at least half of the requests ``under_way`` wait; None where fewer do."""
        if 2 * sum(self._requests.values()) < max(1, under_way):
            return None
        return max(self._requests, key=self._requests.__getitem__)

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[None]:
        self._add_waiting(wait, 1)
        try:
            yield
        finally:
            self._add_waiting(wait, -1)

    def _add_waiting(self, wait: Wait, requests: int) -> None:
        self._requests[wait] = self._requests.get(wait, 0) + requests
        if self.on_change is not None:
            self.on_change()


class TaskRecorder:
    """Adds up the counts of one lookup function in one task; cheap enough to call for each request.

    It listens to the connector, too: see ``spi.request_context``. ``refused`` is called when that says
    that the source refused a request for a while.
    """

    def __init__(
        self, refused: Callable[[], None] | None = None, observer: RequestObserver = UNOBSERVED
    ) -> None:
        self._refused = refused
        self.waits = Waits()
        self.pending_waits = PendingWaits()
        self.observer = observer
        self._sent = 0
        self._received = 0
        self._counts = dict.fromkeys(_PLAIN, 0)
        self._errors: Counter[str] = Counter()
        self._latencies: Counter[int] = Counter()
        self._most_in_flight = 0
        self._key_bytes = 0
        self._row_bytes = 0

    def count(self, **counts: int) -> None:
        """Count so much more of each, by the names of ``LookupMetrics``."""
        for name, count in counts.items():
            self._counts[name] += count

    def failed(self, error: Exception) -> None:
        self._counts["errors"] += 1
        self._errors[type(error).__name__] += 1

    def took(self, seconds: Sequence[float]) -> None:
        self._latencies.update(map(Latencies.bucket_of, seconds))

    def in_flight(self, requests: int) -> None:
        self._most_in_flight = max(self._most_in_flight, requests)

    def asked(self, nbytes: int) -> None:
        self._key_bytes += nbytes

    def found(self, nbytes: int) -> None:
        self._row_bytes += nbytes

    def close(self) -> None:
        """End the run; connections that outlive it may only keep the recorder."""
        self._refused = self.pending_waits.on_change = None

    # What the connector tells.

    def sent(self, nbytes: int) -> None:
        self._sent += nbytes

    def received(self, nbytes: int) -> None:
        self._received += nbytes

    def throttled(self) -> None:
        self._counts["throttled"] += 1
        if self._refused is not None:
            self._refused()

    def waiting(self, wait: Wait) -> AbstractContextManager[None]:
        return self.pending_waits.waiting(wait)

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        return self.observer.http(method, url)

    @property
    def total(self) -> LookupMetrics:
        counts: dict[str, Any] = {
            **self._counts,
            "bytes_out": self._sent or self._key_bytes,
            "bytes_in": self._received or self._row_bytes,
        }
        return LookupMetrics(
            **counts,
            errors_by_class=CountsByKey(dict(self._errors)),
            most_in_flight=MaxGauge(self._most_in_flight),
            waited=self.waits.total,
            latency=Latencies(dict(self._latencies)),
        )


WATCH_SECONDS = 0.5
"""Counts are shown no more often."""

OnCounts = Callable[[LookupMetrics, int], None]
"""Takes what was counted so far, and how many keys wait to be asked again; quick, and raises nothing."""
