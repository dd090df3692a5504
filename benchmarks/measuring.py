"""How the benchmarks measure: ways timed in turn, ratios within a round, and figures beside their limits.

The machine may do other things, and its absolute figures then move by a third and more. So every ratio is
taken between two ways of the same round, and the median of the rounds' ratios is what counts. Processor
seconds of all processes that take part are printed too: they move much less.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "bench"

Way = Callable[[], object]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Workers import the benchmarks' own connectors.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@contextmanager
def spark_session(master: str = "local[2]", **conf: str) -> Iterator[SparkSession]:
    """A quiet Spark session of its own, stopped at the end; ``conf`` with ``_`` for ``.``."""
    builder = SparkSession.builder.master(master).appName("lookup_hints benchmarks")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    settings["spark.python.unix.domain.socket.enabled"] = "true"  # docs/performance.md recommends it
    # What is measured is asking; a benchmark of the planner's choice says so of its tables.
    settings["spark.lookup.access"] = "lookup"
    settings |= {key.replace("_", "."): value for key, value in conf.items()}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for input files, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lookup-hints-bench-") as folder:
        yield Path(folder)


def drained(session: Asks, query: str) -> Way:
    """Plan ``query``, compute all its rows and drop them."""
    return lambda: session.sql(query).write.format("noop").mode("overwrite").save()


class Asks(Protocol):
    """A session, of Spark or of ours."""

    def sql(self, query: str, /) -> DataFrame:
        """The rows of ``query``."""


def identity_udf() -> Any:
    """A UDF that hands its keys back: the least that a call of Python costs."""

    def identity(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from keys

    functions_of_4_1: Any = functions  # its stubs may be older
    return functions_of_4_1.arrow_udf(identity, "bigint")


# --- time -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """What one run took: seconds on the clock, of all processors, and of those outside the JVM."""

    seconds: float
    cpu: float
    outside_jvm: float


def timed(way: Way) -> Sample:
    """Run ``way`` once. Where it returns a float, that is the time it took, by its own clock."""
    (jvm, others), start = _cpu_seconds(), time.perf_counter()
    result = way()
    seconds = result if isinstance(result, float) else time.perf_counter() - start
    jvm_after, others_after = _cpu_seconds()
    return Sample(seconds, jvm_after + others_after - jvm - others, others_after - others)


def in_turn(ways: Mapping[str, Way], runs: int, pause: float = 0.0) -> dict[str, list[Sample]]:
    """Run all ``ways`` one after the other, ``runs`` times; every round begins with another one.

    ``pause`` seconds are between them, where one is so short that it would pay for what another leaves
    behind: workers that collect their garbage, and Spark's own tidying.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(runs):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(pause)
            samples[name].append(timed(ways[name]))
    return samples


def ratio(over: list[Sample], under: list[Sample]) -> float:
    """The median over the rounds of how many times as long ``over`` took as ``under``."""
    return _ratio("seconds", over, under)


def cpu_ratio(over: list[Sample], under: list[Sample]) -> float:
    """The same of processor seconds."""
    return _ratio("cpu", over, under)


def outside_jvm_ratio(over: list[Sample], under: list[Sample]) -> float:
    """The same of processor seconds outside the JVM."""
    return _ratio("outside_jvm", over, under)


def _ratio(what: str, over: list[Sample], under: list[Sample]) -> float:
    pairs = zip(over, under, strict=True)
    ratios: list[float] = [getattr(one, what) / getattr(other, what) for one, other in pairs]
    return statistics.median(ratios)


def seconds(samples: list[Sample]) -> float:
    """The median time."""
    return statistics.median(sample.seconds for sample in samples)


def _cpu_seconds() -> tuple[float, float]:
    """Processor seconds so far of Spark's JVM; and of this process, Spark's workers and the servers."""
    jvm = others = 0.0
    for process in _family():
        try:
            times, is_jvm = process.cpu_times(), process.name() == "java"
        except psutil.Error:  # it ended meanwhile
            continue
        own, of_children = times.user + times.system, times.children_user + times.children_system
        jvm += own if is_jvm else 0.0
        others += of_children if is_jvm else own + of_children
    return jvm, others


def _family() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


# --- memory ---------------------------------------------------------------------------------------


class WorkerMemory:
    """Watches the largest resident size of a Python worker of Spark, in bytes, while a block runs."""

    def __init__(self) -> None:
        self.peak = 0
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.2):
            for process in _family()[1:]:
                try:
                    if process.name().startswith("python"):
                        self.peak = max(self.peak, process.memory_info().rss)
                except psutil.Error:
                    continue


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One measured figure; ``at_least`` or ``at_most`` is its limit, where it has one."""

    what: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the limit holds; None without one."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    @property
    def limit(self) -> str:
        """The limit as it is shown."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}{self.unit}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}{self.unit}"

    @property
    def shown(self) -> str:
        """The value as it is shown."""
        digits = 0 if abs(self.value) >= 1000 else 2 if abs(self.value) < 10 else 1
        return f"{self.value:,.{digits}f}{self.unit}"


@dataclass
class Theme:
    """The figures of one benchmark, printed as they come and kept for the page."""

    name: str
    title: str
    runs: int
    figures: list[Figure] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)

    def add(self, figure: Figure) -> None:
        """Print ``figure`` and keep it."""
        self.figures.append(figure)
        verdict = {True: "ok", False: "MISSED", None: ""}[figure.is_met]
        print(f"  {figure.what:<64} {figure.shown:>12}  {figure.limit:<12} {verdict}", flush=True)
        if figure.note:
            print(f"      {figure.note}")

    def times(self, samples: Mapping[str, list[Sample]], count: int = 0) -> None:
        """Print what each way took; as a rate of ``count`` rows where that is given."""
        for name, each in samples.items():
            median, cpu = seconds(each), statistics.median(sample.cpu for sample in each)
            rate = f"{count / median:>12,.0f} rows/s" if count else ""
            print(f"  {name:<64} {median:>8.2f} s {cpu:>8.2f} cpu s {rate}", flush=True)

    def save(self) -> None:
        """Keep the figures for ``benchmarks/page.py``."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        load = f"{os.getloadavg()[1]:.1f}"
        kept = {**asdict(self), "load": load, "day": time.strftime("%Y-%m-%d")}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")


@contextmanager
def theme(name: str, title: str, runs: int) -> Iterator[Theme]:
    """A benchmark's figures, saved where it came to its end."""
    one = Theme(name, title, runs)
    print(f"{title} (medians of {runs}; load {os.getloadavg()[0]:.1f})", flush=True)
    yield one
    one.save()
