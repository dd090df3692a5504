"""The arithmetic of an estimate: keys of windows -> requests, seconds and money. Pure.

A figure that is not known is UNKNOWN; what is known of its bounds is kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, takewhile

from lookup_hints.engine.adaptive_batch_size import (
    CAREFUL_GROWTH,
    FEWEST_KEYS,
    FIRST_KEYS,
    GROWTH,
    LARGEST_ROWS,
    SLOW_SECONDS,
    window_sizes,
)

UNKNOWN = "UNKNOWN"
LARGEST_WINDOW = LARGEST_ROWS
HYPERLOGLOG_ERROR = 0.05
"""Five times the standard error that Spark's HyperLogLog is asked for."""


@dataclass(frozen=True)
class Figure:
    """A number that is known exactly, or between two bounds.

    Args:
        least: no less; 0 where nothing is known.
        most: no more; None where nothing bounds it.
        likely: the measured value between the bounds; None where there is none.
    """

    least: float
    most: float | None
    likely: float | None = None

    @classmethod
    def exactly(cls, value: float) -> Figure:
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        return self.least == self.most

    def __add__(self, other: Figure) -> Figure:
        most = None if self.most is None or other.most is None else self.most + other.most
        both = self.likely is not None and other.likely is not None
        return Figure(
            self.least + other.least, most, (self.likely or 0) + (other.likely or 0) if both else None
        )

    def at_most(self, most: float) -> Figure:
        """This figure with what else bounds it from above, where nothing bounds it from below."""
        return Figure(0, most if self.most is None else min(self.most, most))

    def scaled(self, factor: float) -> Figure:
        most = None if self.most is None else self.most * factor
        return Figure(self.least * factor, most, None if self.likely is None else self.likely * factor)


@dataclass(frozen=True)
class WindowKeys:
    """What one window of a task holds, or several together.

    Args:
        rows: its rows.
        asking: rows among them whose key has no NULL.
        counted: distinct keys among these, counted once per window.
        windows: how many windows have a key.
        distinct: distinct keys over all these windows; None: the keys of the one window.
    """

    rows: int
    asking: int
    counted: int
    windows: int = 1
    distinct: int | None = None

    @property
    def keys(self) -> int:
        """The keys; HyperLogLog may count more than there are rows."""
        return min(self.counted, self.asking)

    @property
    def most_in_one(self) -> int:
        """No window has more keys, and all together have no fewer distinct ones."""
        return self.keys if self.distinct is None else self.distinct

    def requests(self, largest: int, smallest: int) -> tuple[int, int]:
        """How many requests there are at least and at most, if each but the last has so many keys."""
        if not self.keys:
            return 0, 0
        windows = self.windows
        most = windows + (self.keys - windows) // smallest
        return max(windows, -(-self.keys // largest)), min(most, windows * -(-self.most_in_one // smallest))


def window_bounds(*, is_careful: bool) -> list[int]:
    """The row of a task, from 0, at which its second, third, ... window begins; then all are equally large.

    >>> window_bounds(is_careful=False)
    [1024, 9216, 74752]
    """
    sizes = window_sizes(CAREFUL_GROWTH if is_careful else GROWTH)
    return list(accumulate(takewhile(lambda rows: rows < LARGEST_ROWS, sizes)))


def keys_of_windows(windows: Sequence[WindowKeys], *, is_approximate: bool, is_stable: bool) -> Figure:
    """The keys that are asked: distinct within each window of a task.

    Args:
        windows: the windows as they were counted.
        is_approximate: whether distinct keys were counted by HyperLogLog.
        is_stable: whether the run will cut the same windows; a shuffle may cut others.
    """
    asking = sum(each.asking for each in windows)
    keys = sum(each.keys for each in windows)
    error = HYPERLOGLOG_ERROR if is_approximate else 0.0
    if is_stable:
        return Figure(math.floor(keys * (1 - error)), min(asking, math.ceil(keys * (1 + error))), keys)
    fewest = max((each.most_in_one for each in windows), default=0)
    return Figure(math.floor(fewest * (1 - error)), asking, keys)


def requests_of_windows(
    windows: Sequence[WindowKeys], keys: Figure, *, batch_size: int, seconds: float | None, is_stable: bool
) -> Figure:
    """The requests for ``keys``, which no request takes from two windows; retries are not counted.

    Their size adapts: it begins at ``FIRST_KEYS``, and falls only where an answer takes over a second.

    Args:
        windows: the windows as they were counted.
        keys: the keys that are asked.
        batch_size: the most keys in one request; 1 where each key is a request of its own.
        seconds: what an answer took until now; None where none was seen.
        is_stable: whether the run will have the same tasks.
    """
    if batch_size == 1:
        return keys
    is_quick = seconds is not None and seconds < SLOW_SECONDS
    smallest = min(FIRST_KEYS if is_quick else FEWEST_KEYS, batch_size)
    counted = sum(each.keys for each in windows)
    if not counted:
        return keys if keys.is_exact else Figure(math.ceil(keys.least / batch_size), keys.most)
    fewest, most = map(sum, zip(*(each.requests(batch_size, smallest) for each in windows), strict=True))
    if keys.is_exact and keys.least == counted:
        return Figure(fewest, most, fewest if fewest == most else None)
    # Each window adds one request at most that is not full. In other tasks each key may be one.
    partly_full = sum(each.windows for each in windows) + (keys.most or 0) // smallest
    bound = keys.most if keys.most is None or not is_stable else min(keys.most, partly_full)
    return Figure(math.ceil(keys.least / batch_size), bound)


_SIX_SIGMA = 6.0


def bounds_of_count(counted: int, *, squares: int | None = None, largest: int = 1) -> tuple[int, int]:
    """The least and the most that is expected of a sum that chance has made ``counted``.

    Args:
        counted: the sum.
        squares: the sum of the squares of what was added; None where each is 1.
        largest: no summand is larger.

    >>> bounds_of_count(100)
    (31, 170)
    """
    spread = _SIX_SIGMA * ((counted if squares is None else squares) + (_SIX_SIGMA * largest) ** 2) ** 0.5
    return max(0, math.ceil(counted - spread)), math.ceil(counted + spread)


def share_of_hashes(last: int) -> float:
    """The share of all keys whose hash, a signed number of 64 bits, is up to ``last``."""
    return (last + 2**63 + 1) / 2**64


def last_hash_of_share(share: float) -> int:
    """The hash that ends so large a share of all hashes.

    >>> last_hash_of_share(0.5)
    -1
    """
    return int(share * 2**64) - 2**63 - 1


@dataclass(frozen=True)
class KeysOfSample:
    """What the keys with some hashes have shown of all keys of a left side.

    Args:
        share: the share of all keys that they are, about.
        distinct: how many they are.
        in_windows: the sum over them of how many windows each is in.
        squares: the sum of the squares of these numbers.
    """

    share: float
    distinct: int
    in_windows: int
    squares: int

    def keys_of_windows(self, windows: Sequence[WindowKeys], *, is_stable: bool) -> Figure:
        """The keys that are asked: distinct within each window of a task, as ``keys_of_windows`` has them."""
        asking = sum(each.asking for each in windows)
        fewest, _ = bounds_of_count(self.distinct)
        if not is_stable:
            return Figure(max(self.distinct, math.ceil(fewest / self.share)), asking)
        most_windows = sum(each.asking > 0 for each in windows)
        least, most = bounds_of_count(self.in_windows, squares=self.squares, largest=most_windows)
        most = min(asking, math.ceil(most / self.share))
        least = max(self.in_windows, math.ceil(least / self.share))
        return Figure(least, most, min(most, max(least, round(self.in_windows / self.share))))


@dataclass(frozen=True)
class SampledKeys:
    """What some keys of a lookup have shown of the keys of a lookup behind it.

    Args:
        looked_up: how many keys were looked up.
        share: the share of all keys that they are, about; 1: they are all.
        found: each key that has rows, with each key behind it; None where a row asks for none.
    """

    looked_up: int
    share: float
    found: frozenset[tuple[int, int | None]]

    @property
    def behind(self) -> Counter[int]:
        """The keys behind, and how many of those that were looked up lead to each."""
        return Counter(behind for _, behind in self.found if behind is not None)

    # The keys that one key alone has led to say how many the next ones will (Good and Turing).
    @property
    def keys_behind(self) -> Figure:
        """The distinct keys behind all keys: some of them are not seen."""
        seen = len(self.behind)
        if self.share == 1 or not self.looked_up:
            return Figure(seen, seen if self.looked_up else None)
        once = sum(count == 1 for count in self.behind.values())
        others = bounds_of_count(self.looked_up)[1] / self.share - self.looked_up
        return Figure(seen, seen + math.ceil(bounds_of_count(once)[1] * others / self.looked_up))


@dataclass(frozen=True)
class Pace:
    """How fast requests may go, over all tasks.

    Args:
        rate: requests per second, at most; None without a limit.
        in_flight: requests at once, at most; None where that is not known.
        seconds: what one request takes; None where none was seen.
    """

    rate: float | None = None
    in_flight: int | None = None
    seconds: float | None = None


def seconds_of(requests: Figure, pace: Pace) -> Figure | None:
    """How long the requests take at this pace; None where neither a rate nor a latency is known."""
    if pace.rate is None and pace.seconds is None:
        return None
    least, most = 0.0, requests.most
    if pace.rate is not None:
        least = requests.least / pace.rate
    if pace.seconds is not None and pace.in_flight is not None:
        least = max(least, math.ceil(requests.least / pace.in_flight) * pace.seconds)
    if most is None or pace.seconds is None:
        return Figure(least, None)
    # One task, with one request after the other.
    slowest = max(most * pace.seconds, 0.0 if pace.rate is None else most / pace.rate)
    return Figure(least, slowest)


@dataclass(frozen=True)
class Money:
    """An amount between two bounds; ``most`` None: nothing bounds it. It has the unit of the price."""

    least: Decimal
    most: Decimal | None

    def __add__(self, other: Money) -> Money:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Money(self.least + other.least, most)


def money_of(
    requests: Figure, rows: Figure, per_request: Decimal | None, per_row: Decimal | None
) -> Money | None:
    """What the requests and the rows found cost; None without a price."""
    prices = [
        (figure, price) for figure, price in ((requests, per_request), (rows, per_row)) if price is not None
    ]
    if not prices:
        return None
    bounds = [figure.most if price else 0 for figure, price in prices]
    counts = zip(bounds, prices, strict=True)
    most = None if None in bounds else sum_of((each or 0, price) for each, (_, price) in counts)
    return Money(sum_of((figure.least, price) for figure, price in prices), most)


def sum_of(amounts: Iterable[tuple[float, Decimal]]) -> Decimal:
    """The sum of whole numbers of things at their prices."""
    return sum((Decimal(int(count)) * price for count, price in amounts), Decimal(0))
