"""A good citizen: what a source sees that refuses, that bounds its rate, that dies, whose client is killed.

``python -m benchmarks.bench_citizen [refusing] [rate] [dead] [killed] [--runs N] [--limit SECONDS]``; without
a name all four. Each job is one lookup join over HTTP, one key per request, in a Spark of its own. A job that
fails, or does not end within the limit, is a result: its error stands beside the figures.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.citizen.job import Job, Outcome, RunningJob, running_job
from benchmarks.citizen.log import Log
from benchmarks.citizen.server import CitizenServer, Manners, citizen_server
from benchmarks.measuring import Figure, Theme, scratch, theme

SETTLED = 5.0
"""Seconds after the first request from which on few requests may be refused."""
RATE = 200
BURST = 0.1
DEAD_AFTER, DEAD_FOR = 5.0, 30.0
DEAD_SPEED = 500.0
RETRIED = {
    "timeout": "120 s",
    "retry-predicate": "exception",
    "retry-strategy": "exponential_delay",
    "initial-backoff": "1 s",
    "max-backoff": "10 s",
    "max-attempts": "20",
}
AT_ONCE = 8
KILLED_AFTER = 4.0


@dataclass(frozen=True)
class Seen:
    """What one run showed: the log of the server, how the job ended, and when either was disturbed."""

    job: Job
    log: Log
    outcome: Outcome
    moments: Mapping[str, float]

    @property
    def is_right(self) -> bool:
        """Whether the job ended with the rows that are due."""
        return self.outcome.rows == self.outcome.right == self.job.rows

    @property
    def says(self) -> str:
        """The error, or nothing."""
        wrong = f"{self.outcome.right:,} right rows of {self.job.rows:,}"
        return "" if self.is_right else self.outcome.error or wrong


Case = Callable[[], Seen]
Disturb = Callable[[CitizenServer, RunningJob], Mapping[str, float]]


def main() -> None:
    """Run the scenarios that are named, or all."""
    scenarios = {"refusing": _refusing, "rate": _rate, "dead": _dead, "killed": _killed}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=", ".join(scenarios))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds that a job may take")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(scenarios):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(scenarios)}")
    for name in options.scenarios or scenarios:
        scenarios[name](options.runs, options.limit)


# --- a server that refuses ------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusing:
    """A job, what its server takes at once, and the capacity that never asks for more."""

    what: str
    job: Job
    manners: Manners
    best: int


REFUSING = (
    Refusing("4 tasks", Job("local[4]", 4, 24_000), Manners(0.02, at_once=30), best=7),
    Refusing(
        "8 tasks",
        Job("local-cluster[2,4,1024]", 8, 16_000),
        Manners(0.1, at_once=50),
        best=6,
    ),
)


def _refusing(runs: int, limit: float) -> None:
    title = "A server that answers 429: 4 tasks, over 30 requests at once; 8 tasks on 2 executors, over 50"
    with theme("citizen_refusing", title, runs) as found:
        for each in REFUSING:
            plain, told = "no Retry-After", "with Retry-After"
            fixed = f"capacity {each.best} by hand"
            by_hand = Job(each.job.master, each.job.tasks, each.job.keys, {"capacity": str(each.best)})
            asked_to_wait = Manners(each.manners.delay, each.manners.at_once, retry_after=1)
            seen = _rounds(
                {
                    fixed: partial(_undisturbed, by_hand, each.manners, limit),
                    plain: partial(_undisturbed, each.job, each.manners, limit),
                    told: partial(_undisturbed, each.job, asked_to_wait, limit),
                },
                runs,
            )
            speeds = [one.log.speed() for one in seen[fixed]]
            found.add(_figure(f"{each.what}, {fixed}: rows per second", speeds))
            for case in (plain, told):
                _add_refusing(found, f"{each.what}, {case}", seen[case], seen[fixed])


def _add_refusing(found: Theme, what: str, seen: Sequence[Seen], fixed: Sequence[Seen]) -> None:
    found.add(_ended(what, seen))
    late = [each.log.refused_percent(SETTLED) for each in seen]
    found.add(_figure(f"{what}: answers 429 after {SETTLED:g} s", late, " %", at_most=2.0))
    best = [each.log.speed() for each in fixed]
    speeds = [each.log.speed() for each in seen]
    shares = [speed / other for speed, other in zip(speeds, best, strict=True)]
    found.add(_figure(f"{what}: rows per second", speeds))
    found.add(_figure(f"{what}: the same / of the best fixed capacity", shares, at_least=0.9))
    together = [
        each.log.speed(until=each.log.first_end(each.job.keys_per_task)) / other
        for each, other in zip(seen, best, strict=True)
    ]
    found.add(_figure(f"{what}: the same until the first task ends", together, at_least=0.9))
    found.add(_figure(f"{what}: longest silence", [each.log.longest_silence() for each in seen], " s"))
    silences = [each.log.longest_silence_of_a_task(each.job.keys_per_task) for each in seen]
    found.add(_figure(f"{what}: silence of a task while others get rows", silences, " s", at_most=2.0))


# --- a rate that is bounded -----------------------------------------------------------------------


def _rate(runs: int, limit: float) -> None:
    manners = Manners(0.02)
    options = {"lookup.rate-limit": str(RATE)}
    even = Job("local[8]", 8, RATE * 20, options)
    alone, others = 2_500, 125
    skewed = Job(
        *("local[8]", 8, 8 * alone, options),
        only=f"id < {alone} OR id % {alone} < {others}",
        asked=alone + 7 * others,
    )
    with theme("citizen_rate", f"A rate limit of {RATE} requests per second, local[8]", runs) as found:
        cases = {"8 tasks": even, "8 tasks, 7 of which end early": skewed}
        seen = _rounds(
            {name: partial(_undisturbed, job, manners, limit) for name, job in cases.items()}, runs
        )
        for name, each in seen.items():
            found.add(_ended(name, each))
            of_limit = [[100 * count / RATE for count in one.log.per_second()] or [math.nan] for one in each]
            found.add(_figure(f"{name}: slowest second", list(map(min, of_limit)), " %", at_least=95.0))
            found.add(_figure(f"{name}: median second", list(map(statistics.median, of_limit)), " %"))
            bursts = 100 + 100 * BURST
            found.add(_figure(f"{name}: fastest second", list(map(max, of_limit)), " %", at_most=bursts))
            busiest = [float(one.log.busiest(BURST)) for one in each]
            most = 2 * RATE * BURST
            found.add(_figure(f"{name}: requests within {BURST * 1000:g} ms", busiest, at_most=most))


# --- a server that is dead for a while ------------------------------------------------------------


def _dead(runs: int, limit: float) -> None:
    manners = Manners(0.02, per_second=DEAD_SPEED)
    job = Job("local[4]", 4, int(DEAD_SPEED * (DEAD_AFTER + 10)), RETRIED)
    with theme("citizen_dead", f"A server that is dead for {DEAD_FOR:g} s, local[4]", runs) as found:
        refused, reset = "refused", "accepted, then reset"
        seen = _rounds(
            {
                refused: partial(_watched, job, manners, limit, partial(_die_for_a_while, CitizenServer.die)),
                reset: partial(_watched, job, manners, limit, partial(_die_for_a_while, CitizenServer.reset)),
            },
            runs,
        )
        for name, each in seen.items():
            found.add(_ended(name, each))
            found.add(_figure(f"{name}: from its return to the end", list(map(_after, each)), " s"))
            found.add(
                _figure(f"{name}: work that was left, by the speed before", list(map(_left, each)), " s")
            )
            beyond = [_after(one) - _left(one) for one in each]
            found.add(_figure(f"{name}: time beyond that work", beyond, " s", at_most=10.0))
        again = [_repeated(one) for one in seen[refused]]
        found.add(_figure(f"{refused}: requests counted beyond one per key", again, at_most=200.0))
        connects = [_connects_meanwhile(one) for one in seen[reset]]
        found.add(_figure(f"{reset}: connections meanwhile", connects, at_most=200.0))


def _die_for_a_while(
    die: Callable[[CitizenServer], float], server: CitizenServer, job: RunningJob
) -> Mapping[str, float]:
    time.sleep(DEAD_AFTER)
    died = die(server)
    end = died + DEAD_FOR
    while job.is_running and time.monotonic() < end:
        time.sleep(0.05)
    return {"died": died, "returned": server.come_back()}


def _after(seen: Seen) -> float:
    """Seconds from its return to the end of the job."""
    return seen.outcome.ended - seen.moments["returned"] if seen.is_right else math.nan


def _left(seen: Seen) -> float:
    """Seconds that the keys without an answer would have taken at the speed of the last seconds before."""
    died = seen.moments["died"]
    answered = sum(at <= died for at in seen.log.served)
    return (seen.job.rows - answered) / seen.log.speed(since=died - 2.0, until=died)


def _repeated(seen: Seen) -> float:
    """Requests beyond one for each key, as the job counts them: a dead server counts none."""
    return float(seen.outcome.requests - seen.job.rows) if seen.outcome.requests else math.nan


def _connects_meanwhile(seen: Seen) -> float:
    died, returned = seen.moments["died"], seen.moments["returned"]
    return float(sum(died <= at < returned for at in seen.log.connects))


# --- a worker that is killed ----------------------------------------------------------------------


def _killed(runs: int, limit: float) -> None:
    job = Job("local[2,4]", 2, 800, {"lookup.max-concurrency": str(AT_ONCE)})
    title = f"A worker that is killed, max-concurrency {AT_ONCE}, local[2]"
    with theme("citizen_killed", title, runs) as found:
        seen = _rounds({"killed": partial(_watched, job, Manners(0.2), limit, _kill_a_worker)}, runs)[
            "killed"
        ]
        found.add(_ended("killed", seen))
        back = [_until_all_at_work(each) for each in seen]
        found.add(_figure(f"time until {AT_ONCE} requests are at work again", back, " s", at_most=2.0))
        most = [float(max((count for _, count in each.log.at_work()), default=0)) for each in seen]
        found.add(_figure("requests at work, at most", most, at_most=AT_ONCE))


def _kill_a_worker(server: CitizenServer, job: RunningJob) -> Mapping[str, float]:
    time.sleep(KILLED_AFTER)
    worker = job.worker_connected_to(server.port)
    if worker is None:
        return {}
    os.kill(worker.pid, signal.SIGKILL)
    return {"killed": time.monotonic()}


def _until_all_at_work(seen: Seen) -> float:
    """Seconds from the kill until the server works on all that it may again; infinite if it never does.

    What the worker had asked for is at work until the server notices, so that counts as work still.
    """
    killed = seen.moments.get("killed", math.nan)
    after = [(at, count) for at, count in seen.log.at_work() if at > killed]
    dropped = next((at for at, count in after if count <= AT_ONCE // 2), killed)
    return next((at for at, count in after if at >= dropped and count >= AT_ONCE), math.inf) - killed


# --- runs and figures -----------------------------------------------------------------------------


def _rounds(cases: Mapping[str, Case], runs: int) -> dict[str, list[Seen]]:
    """What each case showed, all cases in turn, ``runs`` times."""
    seen: dict[str, list[Seen]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            one = case()
            seen[name].append(one)
            print(f"  {name}: {one.says or 'ended'}; {len(one.log.requests):,} requests", flush=True)
    return seen


def _undisturbed(job: Job, manners: Manners, limit: float) -> Seen:
    return _watched(job, manners, limit, _leave_alone)


def _leave_alone(_server: CitizenServer, _job: RunningJob) -> Mapping[str, float]:
    return {}


def _watched(job: Job, manners: Manners, limit: float, disturb: Disturb) -> Seen:
    """Run ``job`` against a server of its own; ``disturb`` comes with the first request."""
    with scratch() as folder, citizen_server(manners, folder) as server:
        return _seen(job, server, folder, limit, disturb)


def _seen(job: Job, server: CitizenServer, folder: Path, limit: float, disturb: Disturb) -> Seen:
    with running_job(job, server.url, folder, limit) as running:
        while running.is_running and not server.requests():
            time.sleep(0.05)
        moments = disturb(server, running)
        outcome = running.outcome()
    return Seen(job, server.log(), outcome, moments)


def _ended(what: str, seen: Sequence[Seen]) -> Figure:
    errors = "; ".join(dict.fromkeys(each.says for each in seen if each.says))
    right = float(sum(each.is_right for each in seen))
    return Figure(f"{what}: jobs that ended with right rows", right, at_least=len(seen), note=errors)


def _figure(
    what: str,
    values: Sequence[float],
    unit: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    """The median over the runs, with their range."""
    known = [value for value in values if not math.isnan(value)]
    median = statistics.median(known) if known else math.nan
    note = " to ".join(Figure("", edge(known)).shown for edge in (min, max)) if len(known) > 1 else ""
    return Figure(what, median, unit, at_least, at_most, note)


if __name__ == "__main__":
    main()
