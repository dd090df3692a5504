"""The kinds of tests: where they are, what all of a kind took, and how long a unit test may work.

The folder of a test is its kind:

- ``unit``: no Spark, no server, no process of its own. The tests of the tree itself, beside the folders, are of it.
- ``simulation``: runs the whole runtime in a made-up world of one seed.
- ``spark``: asks the Spark that all tests of a worker process share.
- ``servers``: talks to a server that the tests start.
- ``processes``: starts Sparks or interpreters of its own.
- ``queries``: each query is answered twice, by lookups and by Spark alone.

A unit test that takes more than a second of processor time, twice, fails, not one that a busy machine keeps waiting;
``@pytest.mark.work(seconds)`` lets one that tries many cases take more.
"""

from __future__ import annotations

import ast
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from statistics import quantiles
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import strategies

KINDS = ("unit", "simulation", "spark", "servers", "processes", "queries")
NEEDS = {
    "spark": "spark",
    **dict.fromkeys(("postgres_server", "mariadb_server", "redis_server", "api"), "servers"),
}
"""The kind that a fixture is of, at the least."""

USUAL_EXAMPLES = 40
EXAMPLES = int(os.environ.get("EXAMPLES", USUAL_EXAMPLES))
"""How many examples of each property are tried; ``make test-examples`` tries more."""

MOST_SECONDS = 1.0
_PARSED, _PARSED_SECONDS, _MOMENTS = "call(one, [2, 'three', {four: five}])\n" * 400, 0.0075, 100
"""What a fast processor that nobody else uses takes to parse a text: it makes many objects, as tests do."""


def kind_of(item: pytest.Item) -> str:
    """The kind of a test: the folder that it is in."""
    folder = item.nodeid.split("/")[1]
    return folder if folder in KINDS else "unit"


def misplaced(item: pytest.Item) -> str | None:
    """Where a test belongs that needs more than its folder may."""
    needed = [NEEDS[each] for each in getattr(item, "fixturenames", ()) if each in NEEDS]
    most = max((kind_of(item), *needed), key=KINDS.index)
    return (
        None
        if most == kind_of(item)
        else f"{item.nodeid} belongs to tests/{most}, not to tests/{kind_of(item)}"
    )


def share_of(tests: Sequence[str], share: int, part: int) -> set[str]:
    """One of ``share`` cases of each test, at least one of each, and all of them over that many parts."""
    cases: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        cases[test.partition("[")[0]].append(test)
    chosen: set[str] = set()
    for test, its in cases.items():
        step = min(share, len(its))
        chosen.update(its[(part + crc32(test.encode())) % step :: step])
    return chosen


def files_of(tests: Sequence[str], files: int, part: int) -> set[str]:
    """The tests of one of ``files`` files; over that many parts, all."""
    names = sorted({test.partition("::")[0] for test in tests})
    step = min(files, len(names)) or 1
    chosen = set(names[part % step :: step])
    return {test for test in tests if test.partition("::")[0] in chosen}


@dataclass
class Total:
    """What the tests of one kind took together."""

    tests: int = 0
    seconds: float = 0.0
    work: float = 0.0
    """Of that, seconds of the processor in the process of the tests."""


class Budget:
    """A plugin of pytest that measures each test, refuses one that is in the wrong folder, and can run a share of them.

    Parts that follow each other run other files; once all files have run, the next parts run other cases of them.
    """

    def __init__(
        self, share: int = 1, part: int = 0, files: int = 1, clock: Callable[[], float] = time.process_time
    ) -> None:
        self._share, self._part, self._files, self._clock = share, part, files, clock
        self.totals: dict[str, Total] = defaultdict(Total)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Refuse a test that needs what its kind may not: a unit test Spark, one of Spark a server."""
        if wrong := list(filter(None, map(misplaced, items))):
            raise pytest.UsageError("\n".join(wrong))
        if self._share > 1 or self._files > 1:
            chosen = files_of([item.nodeid for item in items], self._files, self._part)
            cases = [item.nodeid for item in items if item.nodeid in chosen]
            chosen = share_of(cases, self._share, self._part // self._files)
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
            items[:] = [item for item in items if item.nodeid in chosen]

    def pytest_runtest_setup(self) -> None:
        """Leave to no test what is done once."""
        _load_what_is_loaded_once()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the work of a test; one of a unit that works for long fails."""
        began = self._clock()
        result = yield
        work = self._clock() - began
        kind = kind_of(item)
        item.user_properties += [("kind", kind), ("work", work)]
        mark = item.get_closest_marker("work")
        most = (mark.args[0] if mark else MOST_SECONDS) * max(1.0, EXAMPLES / USUAL_EXAMPLES)
        if kind == "unit" and work > most and work > most * slowness():
            work = min(work, self._work_again(item))
        if kind == "unit" and work > most and work > most * slowness():
            pytest.fail(f"this unit test works for {work:.1f} s and may for {most:g} s (tests/kinds.py)")
        return result

    # What a test costs, it costs again; what others take of the processor, it does not.
    def _work_again(self, item: pytest.Item) -> float:
        """What a test works when it runs a second time; no less than before where its fixtures are used up."""
        began = self._clock()
        try:
            item.runtest()
        except Exception:
            return inf
        return self._clock() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what a part of a test took; its fixtures count with the test that needs them first."""
        told = dict(report.user_properties)
        total = self.totals[str(told.get("kind", "fixtures"))]
        total.seconds += report.duration
        if report.when == "call":
            total.tests += 1
            total.work += float(str(told.get("work", 0.0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each kind."""
        terminalreporter.section("kinds of tests")
        terminalreporter.write_line(f"{'kind':10} {'tests':>6} {'seconds':>9} {'of the processor':>17}")
        for kind in (*KINDS, "fixtures"):
            if kind in self.totals:
                total = self.totals[kind]
                terminalreporter.write_line(
                    f"{kind:10} {total.tests:6} {total.seconds:9.1f} {total.work:17.1f}"
                )


@cache
def _load_what_is_loaded_once() -> None:
    strategies.text().validate()  # in a fresh clone it works for seconds on a table of characters
    pa.array([None])  # with its first array of values it loads pandas


def slowness() -> float:
    """How many times slower the processor is now than it was when the limits were set; 1 where it is faster.

    One that others use is slow at one moment and not at the next, so it is watched for a while, and its slower moments count.
    """
    return max(1.0, quantiles((_parse() for _ in range(_MOMENTS)), n=4)[-1] / _PARSED_SECONDS)


def _parse() -> float:
    began = time.process_time()
    ast.parse(_PARSED)
    return time.process_time() - began
