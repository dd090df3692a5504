"""Restart strategies: whether and when a failed query starts again. Pure: no clock, no waiting.

The rules are those of Flink's task failure recovery (``RestartBackoffTimeStrategy`` and its four kinds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lookup_hints.errors import OptionError, Problem, counted

UNLIMITED = 2**31 - 1
"""As many attempts as one likes: the largest number that Flink's options hold."""


@dataclass(frozen=True)
class Failures:
    """A strategy's record of the failures of one query (or one script)."""

    attempts: int = 0
    restart_at: float = float("-inf")
    times: tuple[float, ...] = ()


@dataclass(frozen=True)
class RestartDecision:
    """The decision after a failure.

    Args:
        wait: seconds until the restart; None: no restart, the failure is final.
        failures: the record to keep until the next failure.
    """

    wait: float | None
    failures: Failures


class RestartStrategy(Protocol):
    """Decides after each failure. Immutable: the record of failures is passed in and returned."""

    def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
        """The decision after a failure at ``now`` (seconds); ``spread`` in [-1, 1] places the jitter."""


@dataclass(frozen=True)
class NoRestart:
    """No restart: the first failure is final (Flink's ``none``)."""

    def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
        return RestartDecision(None, failures)

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class FixedDelayRestart:
    """The same wait before each restart, up to a number of restarts in all (Flink's ``fixed-delay``).

    Args:
        attempts: restarts in the whole life of the query; they are never forgotten.
        delay: seconds before each.
    """

    attempts: int = 1
    delay: float = 1.0

    def __post_init__(self) -> None:
        _check_argument(self.attempts >= 0, f"the number of attempts must be at least 0, not {self.attempts}")
        _check_argument(self.delay >= 0, f"the delay must be at least 0 s, not {self.delay:g} s")

    def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
        if failures.attempts >= self.attempts:
            return RestartDecision(None, failures)
        return RestartDecision(self.delay, Failures(failures.attempts + 1, now + self.delay))

    def __str__(self) -> str:
        return f"fixed-delay {self.delay:g} s, {_attempts_text(self.attempts)}"


@dataclass(frozen=True)
class FailureRateRestart:
    """Restarts until failures come too often (Flink's ``failure-rate``).

    Args:
        max_failures_per_interval: failures within ``interval`` that are tolerated; one more is final.
        interval: seconds over which failures are counted, back from the last one.
        delay: seconds before each restart.
    """

    max_failures_per_interval: int = 1
    interval: float = 60.0
    delay: float = 1.0

    def __post_init__(self) -> None:
        number = self.max_failures_per_interval
        _check_argument(number >= 1, f"the failures per interval must be at least 1, not {number}")
        _check_argument(self.interval > 0, f"the interval must be longer than 0 s, not {self.interval:g} s")
        _check_argument(self.delay >= 0, f"the delay must be at least 0 s, not {self.delay:g} s")

    def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
        # Keep one more than allowed: the oldest shows whether all fell within the interval.
        times = (*failures.times, now)[-self.max_failures_per_interval - 1 :]
        known = replace(failures, times=times)
        if len(times) > self.max_failures_per_interval and now - times[0] <= self.interval:
            return RestartDecision(None, known)
        return RestartDecision(self.delay, Failures(failures.attempts + 1, now + self.delay, times))

    def __str__(self) -> str:
        number = self.max_failures_per_interval
        return f"failure-rate {number} in {self.interval:g} s, delay {self.delay:g} s"


@dataclass(frozen=True)
class ExponentialDelayRestart:
    """A wait that grows from one restart to the next, and starts small again after a quiet time.

    Flink's ``exponential-delay``: the first wait is ``initial_backoff``, each further one is longer by
    ``multiplier`` up to ``max_backoff``; the jitter adds or subtracts up to ``jitter_factor`` of the wait and
    never leaves these bounds. A failure that comes before the restart of the last one is part of it.

    Args:
        initial_backoff: seconds before the first restart.
        max_backoff: seconds that a wait lasts at most.
        multiplier: growth from one wait to the next, more than 1.
        reset_threshold: seconds without a failure after a restart that make the next wait a first one.
        jitter_factor: the part of a wait, from 0 to 1, that is added or subtracted at random.
        attempts: restarts in a row, before a quiet time; one more failure is final.
    """

    initial_backoff: float = 1.0
    max_backoff: float = 60.0
    multiplier: float = 1.5
    reset_threshold: float = 3600.0
    jitter_factor: float = 0.1
    attempts: int = UNLIMITED

    def __post_init__(self) -> None:
        first, longest = self.initial_backoff, self.max_backoff
        _check_argument(first > 0, f"the initial backoff must be longer than 0 s, not {first:g} s")
        _check_argument(
            longest >= first,
            f"the maximum backoff ({longest:g} s) is shorter than the initial one ({first:g} s)",
        )
        _check_argument(
            self.multiplier > 1, f"the backoff multiplier must be more than 1, not {self.multiplier:g}"
        )
        _check_argument(
            self.reset_threshold > 0,
            f"the reset threshold must be longer than 0 s, not {self.reset_threshold:g} s",
        )
        _check_argument(
            0 <= self.jitter_factor <= 1,
            f"the jitter factor must be between 0 and 1, not {self.jitter_factor:g}",
        )
        _check_argument(self.attempts >= 1, f"the number of attempts must be at least 1, not {self.attempts}")

    def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
        if now <= failures.restart_at:
            return RestartDecision(failures.restart_at - now, failures)
        is_quiet = now - failures.restart_at >= self.reset_threshold
        attempts = 0 if is_quiet else failures.attempts
        if attempts >= self.attempts:
            return RestartDecision(None, failures)
        wait = self._backoff_after(attempts, spread)
        return RestartDecision(wait, Failures(attempts + 1, now + wait))

    # A float overflows after a few hundred attempts.
    def _backoff_after(self, attempts: int, spread: float) -> float:
        try:
            wait = self.initial_backoff * self.multiplier**attempts
        except OverflowError:
            return self.max_backoff
        jittered = wait * (1 + self.jitter_factor * spread)
        return max(self.initial_backoff, min(jittered, self.max_backoff))

    def __str__(self) -> str:
        return (
            f"exponential-delay {self.initial_backoff:g} s x {self.multiplier:g}"
            f" up to {self.max_backoff:g} s, jitter {self.jitter_factor:g}, {_attempts_text(self.attempts)}"
        )


def restart_strategy(values: Mapping[str, Any], *, has_checkpoint: bool) -> RestartStrategy:
    """The strategy that options ask for.

    Args:
        values: the value in force of each of ``stream_options.RESTART_OPTIONS``, by its key.
        has_checkpoint: whether the query has a checkpoint to go on from: without a type given, one that
            has is restarted with exponential delays, one that has not is not restarted.

    Raises:
        OptionError: the options of the strategy contradict each other.
    """
    default = "exponential-delay" if has_checkpoint else "none"
    name = values["restart-strategy.type"] or default
    kind, options = _KINDS[name]
    try:
        return kind(
            **{field: values[f"restart-strategy.{name}.{option}"] for field, option in options.items()}
        )
    except ValueError as error:
        raise OptionError(Problem(f"The restart strategy cannot be: {error}.")) from None


# By Flink's name of a strategy: its constructor, and the option for each of its parameters.
_KINDS: Mapping[str, tuple[Callable[..., RestartStrategy], Mapping[str, str]]] = {
    "none": (NoRestart, {}),
    "fixed-delay": (FixedDelayRestart, {"attempts": "attempts", "delay": "delay"}),
    "failure-rate": (
        FailureRateRestart,
        {
            "max_failures_per_interval": "max-failures-per-interval",
            "interval": "failure-rate-interval",
            "delay": "delay",
        },
    ),
    "exponential-delay": (
        ExponentialDelayRestart,
        {
            "initial_backoff": "initial-backoff",
            "max_backoff": "max-backoff",
            "multiplier": "backoff-multiplier",
            "reset_threshold": "reset-backoff-threshold",
            "jitter_factor": "jitter-factor",
            "attempts": "attempts-before-reset-backoff",
        },
    ),
}


def _check_argument(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _attempts_text(attempts: int) -> str:
    return "unlimited attempts" if attempts >= UNLIMITED else f"{counted(attempts, 'attempt')} at most"
