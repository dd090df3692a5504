"""The retry policy: when a key is asked again, and after how long. Pure: no clock, no waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lookup_hints.errors import ConnectorError, LookupHintsError

RowPredicate = Callable[[Sequence[Mapping[str, Any]]], bool]
"""The rows found for one key (as dictionaries, none for a miss) -> whether to ask again."""


class Backoff(Protocol):
    """How long to wait after attempt 1, 2, 3, ..."""

    def delay(self, attempt: int, spread: float) -> float:
        """Seconds to wait after ``attempt`` (from 1). ``spread`` in [-1, 1] places the jitter."""


@dataclass(frozen=True)
class FixedDelay:
    """The same wait after each attempt (FLIP-234's `fixed_delay`)."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"a fixed delay must be longer than 0 s, not {self.seconds} s")

    def delay(self, attempt: int, spread: float) -> float:
        return self.seconds

    def __str__(self) -> str:
        return f"fixed_delay {self.seconds:g} s"


@dataclass(frozen=True)
class ExponentialDelay:
    """A wait that grows from ``initial`` by ``multiplier`` up to ``maximum``, give or take ``jitter``.

    The first wait is ``initial`` itself; the jitter adds or takes up to ``jitter * wait``, as Flink's
    exponential-delay restart strategy does. State lives in the attempt number alone, so keys that wait
    at the same time do not disturb each other (in Flink's ExponentialBackoffDelayRetryStrategy they do).
    """

    initial: float
    maximum: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not self.initial > 0:
            raise ValueError(f"the initial backoff must be longer than 0 s, not {self.initial} s")
        if self.maximum < self.initial:
            raise ValueError(
                f"the maximum backoff ({self.maximum} s) is shorter than the initial one ({self.initial} s)"
            )
        if self.multiplier < 1:
            raise ValueError(f"the backoff multiplier must be at least 1, not {self.multiplier}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"the jitter factor must be between 0 and 1, not {self.jitter}")

    def delay(self, attempt: int, spread: float) -> float:
        try:
            wait = min(self.initial * self.multiplier ** (attempt - 1), self.maximum)
        except OverflowError:
            wait = self.maximum
        return wait * (1 + self.jitter * spread)

    def __str__(self) -> str:
        return (
            f"exponential_delay {self.initial:g} s x {self.multiplier:g} up to {self.maximum:g} s,"
            f" jitter {self.jitter:g}"
        )


@dataclass(frozen=True)
class RetryPolicy:
    """When and how often a key is asked again.

    ``max_attempts`` counts the retries after the first try, as in Flink: 3 means up to 4 lookups.
    The default policy never retries.
    """

    on_miss: bool = False
    on_exception: bool = False
    on_rows: RowPredicate | None = field(default=None, compare=False)
    predicate_names: tuple[str, ...] = ()
    backoff: Backoff | None = None
    max_attempts: int = 0

    def __post_init__(self) -> None:
        wanted = self.on_miss or self.on_exception or self.on_rows is not None
        if wanted and (self.backoff is None or self.max_attempts < 1):
            raise ValueError("a retry needs a backoff and at least one attempt")

    def delay_after_miss(self, attempt: int, spread: float) -> float | None:
        """Seconds to wait after ``attempt`` missed (or a predicate refused its rows), or None: final."""
        return self._delay(attempt, spread) if self.on_miss or self.on_rows is not None else None

    def delay_after_error(self, attempt: int, error: BaseException, spread: float) -> float | None:
        """Seconds to wait after ``attempt`` raised ``error``, or None: final.

        A permanent error is final; a source that says how long to wait is believed when it asks for
        more than the backoff.
        """
        if not self.on_exception or not is_retryable(error):
            return None
        delay = self._delay(attempt, spread)
        asked = error.retry_after if isinstance(error, ConnectorError) else None
        return delay if delay is None or asked is None else max(delay, asked)

    def _delay(self, attempt: int, spread: float) -> float | None:
        if self.backoff is None or attempt > self.max_attempts:
            return None
        return self.backoff.delay(attempt, spread)

    def longest_wait(self) -> float:
        """Seconds that all waits of one key may last together."""
        if self.backoff is None:
            return 0.0
        counted = min(self.max_attempts, 1000)  # every backoff has reached its maximum long before
        waits = [self.backoff.delay(attempt, 1.0) for attempt in range(1, counted + 1)]
        return sum(waits) + (self.max_attempts - counted) * waits[-1]

    def __str__(self) -> str:
        if self.backoff is None:
            return "none"
        return f"{','.join(self.predicate_names)}, {self.backoff}, max-attempts {self.max_attempts}"


def is_retryable(error: BaseException) -> bool:
    """Whether asking again may help: not after a permanent connector error, nor after one of our own."""
    if isinstance(error, ConnectorError):
        return not error.permanent
    return isinstance(error, Exception) and not isinstance(error, LookupHintsError)
