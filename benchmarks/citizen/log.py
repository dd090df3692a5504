"""What a server saw, by the machine's monotonic clock, and what can be said of it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_OWN_ANSWERS = 0.5
"""Seconds in which the answers come that a task still waits for when it falls silent."""


@dataclass
class Log:
    """Moments in the order in which they came, in seconds."""

    requests: list[tuple[float, int]] = field(default_factory=list)
    """When each request arrived, and the key it asks for."""
    answers: list[tuple[float, int, int]] = field(default_factory=list)
    """When each was answered, by which status, and the key."""
    lost: list[float] = field(default_factory=list)
    """When a request ended with its connection."""
    connects: list[float] = field(default_factory=list)
    """When each connection was accepted."""

    @property
    def served(self) -> list[float]:
        """When each answer with a row went out."""
        return [at for at, status, _ in self.answers if status == 200]

    def speed(self, since: float = 0.0, until: float = math.inf) -> float:
        """Answers with a row per second, from ``since`` or the first request to the last such answer."""
        within = [at for at in self.served if since <= at <= until]
        if not within:
            return math.nan
        start = max(since, self.requests[0][0])
        return len(within) / (within[-1] - start)

    def refused_percent(self, after: float) -> float:
        """How many of 100 answers are 429, from ``after`` seconds after the first request on."""
        start = self.requests[0][0] + after if self.requests else math.inf
        late = [status for at, status, _ in self.answers if at >= start]
        return 100 * late.count(429) / len(late) if late else math.nan

    def longest_silence(self) -> float:
        """Seconds between two requests, at most."""
        return max(map(_length, pairwise(at for at, _ in self.requests)), default=math.nan)

    def longest_silence_of_a_task(self, keys_per_task: int) -> float:
        """Seconds between two requests for keys of one task, at most, while others got rows; 0 for none."""
        of_task: dict[int, list[float]] = defaultdict(list)
        for at, key in self.requests:
            of_task[key // keys_per_task].append(at)
        silences = (silence for moments in of_task.values() for silence in pairwise(moments))
        served = self.served
        return max((_length(each) for each in silences if _others_got_rows(each, served)), default=0.0)

    def first_end(self, keys_per_task: int) -> float:
        """When the first of the tasks has all its rows; infinite where none has."""
        last: dict[int, float] = {}
        counts: dict[int, int] = defaultdict(int)
        for at, status, key in self.answers:
            if status == 200:
                last[key // keys_per_task] = at
                counts[key // keys_per_task] += 1
        return min((last[task] for task, count in counts.items() if count >= keys_per_task), default=math.inf)

    def per_second(self) -> list[int]:
        """Requests in each whole second since the first one, without the first second and the last."""
        if not self.requests:
            return []
        start = self.requests[0][0]
        counts: dict[int, int] = defaultdict(int)
        for at, _ in self.requests:
            counts[int(at - start)] += 1
        return [counts[second] for second in range(1, max(counts))]

    def busiest(self, seconds: float) -> int:
        """Requests within any ``seconds``, at most."""
        most = first = 0
        for last, (at, _) in enumerate(self.requests):
            while self.requests[first][0] <= at - seconds:
                first += 1
            most = max(most, last - first + 1)
        return most

    def at_work(self) -> Iterator[tuple[float, int]]:
        """Each moment at which the number of requests at work changed, and that number."""
        changes = [(at, 1) for at, _ in self.requests]
        changes += [(at, -1) for at, _, _ in self.answers] + [(at, -1) for at in self.lost]
        count = 0
        for at, change in sorted(changes):
            count += change
            yield at, count


def _length(silence: tuple[float, float]) -> float:
    return silence[1] - silence[0]


def _others_got_rows(silence: tuple[float, float], served: Sequence[float]) -> bool:
    start, end = silence
    start += _OWN_ANSWERS
    return end > start and bisect_left(served, end) > bisect_right(served, start)
