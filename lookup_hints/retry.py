"""The retry policy: when a key is asked again, and after how long. Pure: no clock, no waiting.

A strategy says how often and after how long; its ``if_...`` methods say after which outcomes, and make
a policy. Hints and Python make the same policies: ``'retry-predicate'='lookup_miss'`` with
``'retry-strategy'='fixed_delay'`` is ``FixedDelay(3, 10.0).if_miss()``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lookup_hints.errors import ConnectorError, LookupHintsError

RowPredicate = Callable[[Sequence[Mapping[str, Any]]], bool]
"""The rows found for one key (as dictionaries, none for a miss) -> whether to ask again."""

ErrorPredicate = Callable[[BaseException], bool]
"""Why a key could not be looked up -> whether to ask again."""

ErrorKind: TypeAlias = "type[BaseException] | ErrorPredicate"
"""An exception class, which stands for its subclasses too, or a predicate."""

SHORTEST_WAIT = 1e-3
"""Seconds; a strategy that wants less gets this."""

_ATTEMPTS_COUNTED = 10_000


class RetryStrategy(ABC):
    """How often a key is asked again, and after how long (FLIP-232's ``AsyncRetryStrategy``).

    A strategy of your own is a subclass. It is pickled and asked on the workers, for many keys at once:
    what it answers may depend on the attempt alone.

    Examples:
        >>> class Squares(RetryStrategy):
        ...     def can_retry(self, attempt): return attempt <= 5
        ...     def backoff(self, attempt): return float(attempt**2)
        >>> Squares().if_miss()
    """

    @abstractmethod
    def can_retry(self, attempt: int) -> bool:
        """Whether a key may be asked again after ``attempt`` (from 1)."""

    @abstractmethod
    def backoff(self, attempt: int) -> float:
        """Seconds to wait after ``attempt`` (from 1), before the next one."""

    @property
    def jitter(self) -> float:
        """The share of each wait, from 0 to 1, that is added or subtracted at random."""
        return 0.0

    def if_miss(self) -> RetryPolicy:
        """Ask again for a key that has no rows."""
        return RetryPolicy(self).if_miss()

    def if_exception(self, *kinds: ErrorKind) -> RetryPolicy:
        """Ask again after a failure of one of ``kinds``; without any, after every failure that may pass."""
        return RetryPolicy(self).if_exception(*kinds)

    def if_result(self, predicate: RowPredicate, name: str = "") -> RetryPolicy:
        """Ask again while ``predicate`` is true of the rows found for a key."""
        return RetryPolicy(self).if_result(predicate, name)

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class FixedDelay(RetryStrategy):
    """The same wait after each attempt (FLIP-234's `fixed_delay`).

    Args:
        max_attempts: retries after the first try, as in Flink: 3 means up to 4 lookups of a key.
        delay: seconds between them.

    Examples:
        >>> FixedDelay(3, 10.0).if_miss()
    """

    max_attempts: int
    delay: float

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        if not 0 < self.delay < math.inf:
            raise ValueError(f"a fixed delay must be longer than 0 s, not {self.delay} s")

    def can_retry(self, attempt: int) -> bool:
        """While there are attempts left."""
        return attempt <= self.max_attempts

    def backoff(self, attempt: int) -> float:
        """The delay."""
        return self.delay

    def __str__(self) -> str:
        return f"fixed_delay {self.delay:g} s, max-attempts {self.max_attempts}"


@dataclass(frozen=True)
class ExponentialDelay(RetryStrategy):
    """A wait that grows from ``initial`` by ``multiplier`` up to ``maximum``, give or take ``jitter``.

    The first wait is ``initial`` itself; the jitter adds or subtracts up to ``jitter * wait``, as Flink's
    exponential-delay restart strategy does. State lives in the attempt number alone, so keys that wait
    at the same time do not disturb each other (in Flink's ExponentialBackoffDelayRetryStrategy they do).

    Args:
        max_attempts: retries after the first try.
        initial: seconds before the first retry.
        maximum: longest wait in seconds, before the jitter.
        multiplier: factor from one wait to the next.
        jitter: from 0 to 1.
    """

    max_attempts: int
    initial: float
    maximum: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        if not 0 < self.initial < math.inf:
            raise ValueError(f"the initial backoff must be longer than 0 s, not {self.initial} s")
        if not self.maximum >= self.initial:
            raise ValueError(
                f"the maximum backoff ({self.maximum} s) is shorter than the initial one ({self.initial} s)"
            )
        if not self.multiplier >= 1:
            raise ValueError(f"the backoff multiplier must be at least 1, not {self.multiplier}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"the jitter factor must be between 0 and 1, not {self.jitter}")

    def can_retry(self, attempt: int) -> bool:
        """While there are attempts left."""
        return attempt <= self.max_attempts

    def backoff(self, attempt: int) -> float:
        """The wait, without its jitter."""
        try:
            return min(self.initial * self.multiplier ** (attempt - 1), self.maximum)
        except OverflowError:
            return self.maximum

    def __str__(self) -> str:
        return (
            f"exponential_delay {self.initial:g} s x {self.multiplier:g} up to {self.maximum:g} s,"
            f" jitter {self.jitter:g}, max-attempts {self.max_attempts}"
        )


# A miss depends on which equalities are keys: with a constant in the key, every other row would be a miss and
# wait for all its retries. (docs/decisions/0001)
@dataclass(frozen=True)
class RetryPolicy:
    """When and how often a key is asked again: a strategy, and the outcomes that it is for.

    Made by the ``if_...`` methods of a strategy, which this has too: ``FixedDelay(3,
    10.0).if_miss().if_exception(OSError)`` asks again after either. The default policy never retries.

    Args:
        strategy: how often and after how long.
        on_miss: whether a key without rows is asked again.
        on_exception: after which failures a key is asked again; None: after none.
        on_rows: for which rows a key is asked again; None: for none.
        predicate_names: what is asked again, as EXPLAIN shows it.
    """

    strategy: RetryStrategy | None = None
    on_miss: bool = False
    on_exception: ErrorPredicate | None = None
    on_rows: RowPredicate | None = None
    predicate_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.strategy is not None and not isinstance(self.strategy, RetryStrategy):
            raise TypeError(
                f"a retry strategy is a RetryStrategy, such as FixedDelay(3, 10.0), not {self.strategy!r}"
            )
        if self.strategy is None and (self.on_miss or self.on_exception or self.on_rows):
            raise ValueError("a retry needs a strategy: how often, and after how long")

    def if_miss(self) -> RetryPolicy:
        """This policy, also for keys without rows."""
        return self._with_predicate("lookup_miss", on_miss=True)

    def if_exception(self, *kinds: ErrorKind) -> RetryPolicy:
        """This policy, also after failures.

        Args:
            kinds: exception classes, whose subclasses count too, and predicates of exceptions. Without
                any, every failure that may pass. One that a connector calls permanent is always final.
        """
        for kind in kinds:
            if not callable(kind):
                raise TypeError(f"if_exception takes exception classes and predicates, not {kind!r}")
        name = f"exception ({', '.join(map(_name_of, kinds))})" if kinds else "exception"
        wanted = AnyError(kinds or (Exception,))
        return self._with_predicate(name, on_exception=_either_predicate(self.on_exception, wanted))

    def if_result(self, predicate: RowPredicate, name: str = "") -> RetryPolicy:
        """This policy, also while ``predicate`` is true of the rows found.

        Args:
            predicate: takes the rows of one key as dictionaries, none for a miss; runs on the workers, so
                it is pickled. When there are no attempts left, the rows are taken as they are.
            name: what to call it in EXPLAIN; its own name without one.

        Examples:
            >>> FixedDelay(3, 10.0).if_result(lambda rows: any(row["zip"] is None for row in rows))
        """
        if not callable(predicate):
            raise TypeError(f"if_result takes a function of the rows found, not {predicate!r}")
        return self._with_predicate(
            name or _name_of(predicate), on_rows=_either_predicate(self.on_rows, predicate)
        )

    def _with_predicate(self, name: str, **changes: Any) -> RetryPolicy:
        return replace(self, predicate_names=(*self.predicate_names, name), **changes)

    def delay_after_miss(self, attempt: int, spread: float) -> float | None:
        """Seconds to wait after ``attempt`` missed (or a predicate refused its rows), or None: final.

        ``spread`` in [-1, 1] places the jitter.
        """
        return self._delay_after(attempt, spread) if self.on_miss or self.on_rows is not None else None

    def delay_after_error(self, attempt: int, error: BaseException, spread: float) -> float | None:
        """Seconds to wait after ``attempt`` raised ``error``, or None: final.

        A permanent error is final; a source that says how long to wait is believed when it asks for
        more than the backoff.
        """
        if self.on_exception is None or not is_retryable(error) or not self.on_exception(error):
            return None
        delay = self._delay_after(attempt, spread)
        asked = error.retry_after if isinstance(error, ConnectorError) else None
        return delay if delay is None or asked is None else max(delay, asked)

    def _delay_after(self, attempt: int, spread: float) -> float | None:
        if self.strategy is None or not self.strategy.can_retry(attempt):
            return None
        wait = self.strategy.backoff(attempt)
        if not 0 <= wait < math.inf:
            raise ValueError(
                f"backoff({attempt}) of the retry strategy {type(self.strategy).__name__} gave {wait!r};"
                " it must be a number of seconds from 0 on"
            )
        return max(wait * (1 + self.strategy.jitter * spread), SHORTEST_WAIT)

    def longest_wait(self) -> float:
        """Seconds that all waits of one key may last together; infinite where there is no end of them."""
        total = 0.0
        for attempt in range(1, _ATTEMPTS_COUNTED + 1):
            wait = self._delay_after(attempt, 1.0)
            if wait is None:
                return total
            total += wait
        return math.inf

    def __str__(self) -> str:
        return "none" if self.strategy is None else f"{','.join(self.predicate_names)}, {self.strategy}"


@dataclass(frozen=True)
class AnyError:
    """Whether an exception is of one of ``kinds``, or one of those that are predicates says yes."""

    kinds: tuple[ErrorKind, ...]

    def __call__(self, error: BaseException) -> bool:
        return any(isinstance(error, kind) if isinstance(kind, type) else kind(error) for kind in self.kinds)


@dataclass(frozen=True)
class AnyOf:
    """Whether one of several predicates says yes."""

    predicates: tuple[Callable[[Any], bool], ...]

    def __call__(self, value: Any) -> bool:
        return any(predicate(value) for predicate in self.predicates)


def _either_predicate(
    one: Callable[[Any], bool] | None, other: Callable[[Any], bool]
) -> Callable[[Any], bool]:
    return other if one is None else AnyOf((one, other))


def _name_of(predicate: Any) -> str:
    return str(getattr(predicate, "__name__", type(predicate).__name__))


def _check_attempts(attempts: int) -> None:
    if not (isinstance(attempts, int) and attempts >= 1) or isinstance(attempts, bool):
        raise ValueError(f"max_attempts must be a whole number from 1 on, not {attempts!r}")


def is_retryable(error: BaseException) -> bool:
    """Whether asking again may help: not after a permanent connector error, nor after one of our own."""
    if isinstance(error, ConnectorError):
        return not error.permanent
    return isinstance(error, Exception) and not isinstance(error, LookupHintsError)
