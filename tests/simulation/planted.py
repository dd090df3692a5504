"""Bugs that a developer might write, planted one at a time: seeds must find them (``make simulate PLANTED=all``).

A bug is one piece of text in one function of the product, replaced at run time; no file changes. Which bugs there
are was decided before anybody looked which of them are found. A bug that no seed finds shows what the worlds do
not contain, or what is not checked after a run. (docs/decisions/0311)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from types import CodeType, FunctionType
from typing import Any

from tests.simulation.run import begin_process, ending_in_time, run_seed
from tests.simulation.world import Broken

MOST_RUNS = 10_000
"""So many seeds are tried, one after the other."""


@dataclass(frozen=True)
class PlantedBug:
    """One change of one function.

    Args:
        name: what to call it on the command line.
        does: what goes wrong.
        function: its module below ``lookup_hints``, and its name there.
        old: what is replaced; it is there once.
        new: what a developer wrote by mistake.
    """

    name: str
    does: str
    function: str
    old: str
    new: str

    def function_in_product(self) -> FunctionType:
        module, _, names = self.function.partition(":")
        found: Any = import_module(f"lookup_hints.{module}")
        for name in names.split("."):
            found = getattr(found, name)
        return inspect.unwrap(found)  # type: ignore[no-any-return]


BUGS = (
    # Permits, rates and limits that are shared.
    PlantedBug(
        "permit-of-cancelled-request",
        "a permit that comes in the moment in which its request is cancelled is not given back",
        "limits.origin_limiter:OriginLimiter._wait_for_permit",
        "self._permits.in_use -= 1 ",
        "pass ",
    ),
    PlantedBug(
        "rate-counts-from-now",
        "requests that wait for the rate together get the same time",
        "limits.rate_and_retry_budget:Rate.reserve",
        "self._next = due + 1.0 / rate",
        "self._next = now + 1.0 / rate",
    ),
    PlantedBug(
        "limits-begin-anew",
        "a process that opens the limits of its executor clears them",
        "limits.shared_limits:in_folder",
        "os.O_RDWR | os.O_CREAT | os.O_CLOEXEC",
        "os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC",
    ),
    PlantedBug(
        "permits-of-killed-process",
        "permits of a process that was killed come back only when their time is up",
        "limits.shared_limits:Leases.drop_lost",
        "if lease.owner in gone or now > lease.until:",
        "if lease.owner in gone and now > lease.until:",
    ),
    # The circuit breaker.
    PlantedBug(
        "probes-not-counted",
        "all requests go out to a source that is down once it may be probed",
        "limits.shared_limits:SharedLimits.sends",
        "if self.breaker.opened_at:",
        "if self.breaker.waits(now):",
    ),
    PlantedBug(
        "breaker-remembers-losses",
        "a breaker that was closed opens again at the next lost request",
        "limits.circuit_breaker:Breaker.answered",
        "            self._ends.clear()\n",
        "",
    ),
    # The cache.
    PlantedBug(
        "age-from-answer",
        "the age of a cached answer counts from its arrival, and not from its request",
        "engine.request_scheduler:RequestScheduler.answered",
        "self._settling.judge(part, share, began, now,",
        "self._settling.judge(part, share, now, now,",
    ),
    PlantedBug(
        "invalidation-forgotten",
        "a later invalidation takes the place of the earlier ones",
        "cache.store.invalidations:Invalidations.invalidate",
        "_merge_notes([*notes, self._new_notes(keys, now)],",
        "_merge_notes([self._new_notes(keys, now)],",
    ),
    PlantedBug(
        "damaged-segment",
        "a segment whose bytes are not those that were written is used",
        "cache.store.segment_files:_decode_segment",
        " or checksum != _weighted_checksum(body):",
        ":",
    ),
    PlantedBug(
        "merge-uncovers-old-rows",
        "a merge drops a miss that is too old, and an older segment has rows of its key",
        "cache.store.answer_store:Store._merge_segments",
        "if filed[0] == next(iter(self._segments)):",
        "if filed[0] in self._segments:",
    ),
    PlantedBug(
        "misses-of-other-keys",
        "where several answers are written together, misses are noted for other keys",
        "cache.store.segment_entries:content_of",
        "_shift_positions([each.missing for each in learned], before)",
        "np.concatenate([each.missing.to_numpy(zero_copy_only=False) for each in learned]).astype(np.int64)",
    ),
    # Retries.
    PlantedBug(
        "last-retry-lost",
        "the last of the retries is not made",
        "retry:ExponentialDelay.can_retry",
        "attempt <= self.max_attempts",
        "attempt < self.max_attempts",
    ),
    PlantedBug(
        "answered-keys-retried",
        "keys that were answered are asked again with those that missed",
        "engine.outcomes:Settling.judge",
        "self._retry_part(part.among(again), now, delay)",
        "self._retry_part(part, now, delay)",
    ),
    PlantedBug(
        "retry-after-ignored",
        "keys are asked again before the time that the source has asked for",
        "retry:RetryPolicy.delay_after_error",
        "return delay if delay is None or asked is None else max(delay, asked)",
        "return delay",
    ),
    PlantedBug(
        "rows-of-other-keys",
        "where some keys of a request fail, the others get rows by their old places",
        "engine.backlog:ScheduledRequest.among",
        "codes.append(now.drop_null())",
        "codes.append(own.filter(now.is_valid()))",
    ),
    # Dead letters.
    PlantedBug(
        "letters-of-copy-removed",
        "a copy of a task that ends late removes the letters of the one whose rows were taken",
        "worker.dead_letter_files:_TaskFiles.publish",
        "for each in self._outdated if",
        "for each in self._outdated_files() if",
    ),
    PlantedBug(
        "letters-of-batch-twice",
        "a batch that is repeated after a restart leaves the letters of its first run",
        "worker.dead_letter_files:_TaskFiles._is_outdated",
        "return is_of_this_task or (self._repeats_batches and is_of_another_run)",
        "return is_of_this_task",
    ),
    # Streams, windows and whole tables.
    PlantedBug(
        "stopped-run-ends-stream",
        "a stream that is stopped to restart with others counts as finished",
        "streaming.supervisor:Supervisor._plan_restart",
        "        query._run_number += 1  # later reports about the old run are ignored\n",
        "",
    ),
    PlantedBug(
        "rows-before-their-answer",
        "after a portion of a window, as many rows are handed out again, settled or not",
        "engine.input_window:Window._take_first",
        "        self._ready = max(0, self._ready - rows)\n",
        "",
    ),
    PlantedBug(
        "one-reload-for-each-process",
        "a process that has read a whole table again once never does so again",
        "cache.full_cache:HeldTable.probe",
        "self._reloading is not None and self._reloading.is_alive()",
        "self._reloading is not None",
    ),
)


def bugs_named(name: str) -> Sequence[PlantedBug]:
    """The bug of that ``name``, or all of them.

    Raises:
        ValueError: there is no such bug.
    """
    found = [each for each in BUGS if name in (each.name, "all")]
    if not found:
        raise ValueError(
            f"no bug is called {name!r}; there are: all, {', '.join(each.name for each in BUGS)}"
        )
    return found


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """A block in which the product has ``bug``, whoever has imported the function.

    Raises:
        LookupError: what it changes is not there any more.
    """
    function = bug.function_in_product()
    code = function.__code__
    function.__code__ = _code_with(bug, function)
    try:
        yield
    finally:
        function.__code__ = code


def _code_with(bug: PlantedBug, function: FunctionType) -> CodeType:
    """The code of ``function`` as its module has it once the text is replaced."""
    own, first = inspect.getsourcelines(function)
    text = "".join(own)
    if text.count(bug.old) != 1:
        raise LookupError(
            f"planted bug {bug.name}: {bug.function} has {bug.old!r} {text.count(bug.old)} times,"
            " and should have it once. Write the bug anew for the function as it is now."
        )
    path = inspect.getfile(function)
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - Path is the simulated one's base
        lines = file.readlines()
    lines[first - 1 : first - 1 + len(own)] = [text.replace(bug.old, bug.new)]
    code = compile("".join(lines), path, "exec", dont_inherit=True)
    for name in bug.function.partition(":")[2].split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
    return code


def search(bug: PlantedBug, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first of ``seeds`` that finds ``bug``, and in what words; None where none does.

    Raises:
        Broken: the same seed fails without it, so nothing is known.
    """
    for seed in seeds:
        with planted(bug), ending_in_time():
            words = _failure_of(seed)
        if words is not None:
            without = _failure_of(seed)
            if without is not None:
                raise Broken(f"seed {seed} fails without a planted bug, too: {without}")
            return seed, words
    return None


def _failure_of(seed: int) -> str | None:
    try:
        run_seed(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def search_all(bugs: Sequence[PlantedBug], seeds: Sequence[int], processes: int) -> int:
    """Search each of ``bugs`` in a process of its own; prints what came of each, and returns how many were found."""
    left = iter(bugs)
    found: list[PlantedBug] = []

    def search_some() -> None:
        for bug in left:
            outcome = _search_in_process(bug, seeds)
            found.extend([bug] * outcome.startswith("found"))
            print(f"{bug.name}: {bug.does}\n  {outcome}", flush=True)

    with ThreadPoolExecutor(processes) as pool:
        for each in [pool.submit(search_some) for _ in range(processes)]:
            each.result()
    print(f"{len(found)} of {len(bugs)} found")
    return len(found)


def _search_in_process(bug: PlantedBug, seeds: Sequence[int]) -> str:
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, begin_process) as pool:
        try:
            outcome = pool.submit(search, bug, seeds).result()
        except BrokenProcessPool:
            return "found: the process died"
        except Broken as error:
            return f"not known: {error}"
    if outcome is None:
        return f"not found in {len(seeds):,} runs"
    seed, words = outcome
    return f"found by seed {seed} after {seed - seeds[0] + 1:,} runs: {words.splitlines()[0]:.300}"
