"""What the soak checks: which values a source held when, what a micro-batch brought, and what grows."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Lock
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

KEYS = 1000
"""The stream asks for the ids below this."""
PEOPLE = 900
"""A source has rows for the ids below this."""
POISONED = 13
"""The id to which HTTP answers with an error, always."""
STALE = 5
"""Seconds for which an answer of Redis may be remembered."""
SLACK = 1.0
"""Seconds between a moment and what a clock says of it, at most."""


class Versions:
    """When a source held which version of its rows: a write gives all of them the next one."""

    def __init__(self) -> None:
        self._since: list[float] = []
        self._until: list[float] = []
        self._lock = Lock()

    @property
    def latest(self) -> int:
        """The version that was written last, or is being written."""
        return len(self._since) - 1

    def begin(self) -> int:
        """Number the next version, which may be there from now on."""
        with self._lock:
            self._since.append(time.time())
            self._until.append(float("inf"))
            return self.latest

    def end(self) -> None:
        """Say that the version before the latest one is gone by now."""
        with self._lock:
            if self.latest:
                self._until[self.latest - 1] = time.time()

    def is_allowed(self, version: int, since: float, until: float) -> bool:
        """Whether the source held ``version`` at some moment from ``since`` to ``until``."""
        with self._lock:
            return (
                0 <= version <= self.latest
                and self._since[version] <= until + SLACK
                and self._until[version] >= since - SLACK
            )


@dataclass
class Sink:
    """The rows that the stream has committed to its folder, read batch by batch.

    Args:
        folder: where the stream writes.
        sources: the versions of each source, by its column.
    """

    folder: Path
    sources: dict[str, Versions]
    rows: int = 0
    batches: int = -1
    misses: Counter[str] = field(default_factory=Counter)
    failed: set[tuple[int, int]] = field(default_factory=set)
    """Batch and id of each row without what HTTP has for it."""
    latest: float = 0.0
    """When the youngest row came."""
    sizes: dict[int, dict[str, Counter[str]]] = field(default_factory=dict)
    """Of each batch, and each source: rows, and rows found."""
    missed: dict[int, set[int]] = field(default_factory=dict)
    """The ids of each batch that no source has."""
    faults: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def read_new_batches(self) -> None:
        """Check what has been committed since the last time."""
        log = self.folder / "_spark_metadata"
        while True:
            number = self.batches + 1
            entry = next(
                (path for path in (log / f"{number}", log / f"{number}.compact") if path.exists()), None
            )
            if entry is None:
                return
            self._read_batch(number, entry)
            self.batches = number

    def _read_batch(self, number: int, entry: Path) -> None:
        committed = entry.stat().st_mtime
        lines = entry.read_text(encoding="utf-8").splitlines()[1:]
        paths = {unquote(urlsplit(json.loads(line)["path"]).path) for line in lines} - self._seen
        if not paths:
            return
        self._seen |= paths
        table = pa.concat_tables(pq.read_table(path) for path in paths)
        ids = sorted(table.column("id").to_pylist())
        if not ids:
            return
        if ids != list(range(self.rows, self.rows + len(ids))):
            self._fault(
                f"batch {number} has {len(ids)} rows, {ids[:3]}..{ids[-3:]}, after row {self.rows - 1}"
            )
        self.rows = max(self.rows, max(ids) + 1)
        moments = table.column("at").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        self.latest = max(self.latest, max(moments) / 1e6)
        self.sizes[number] = {}
        for name, versions in self.sources.items():
            values = table.column(name).to_pylist()
            counts = self.sizes[number][name] = Counter(rows=len(ids))
            for row, moment, value in zip(table.column("id").to_pylist(), moments, values, strict=True):
                person = row * 7 % KEYS
                counts["found"] += value is not None
                if value is not None:
                    since = moment / 1e6 - (STALE if name == "kv" else 0)
                    self._check_value(
                        name, versions, f"batch {number}, row {row}", person, value, since, committed
                    )
                elif person >= PEOPLE:
                    self.missed.setdefault(number, set()).add(person)
                    self.misses[name] += 1
                elif name == "web":
                    self.failed.add((number, person))
                else:
                    self._fault(f"batch {number}, row {row}: {name} has nobody with the id {person}")

    def _check_value(
        self, name: str, versions: Versions, where: str, person: int, value: str, since: float, until: float
    ) -> None:
        text, _, version = value.partition(":")
        if text != str(person) or person >= PEOPLE or (name == "web" and person == POISONED):
            self._fault(f"{where}: {name} says {value!r} of the id {person}")
        elif not versions.is_allowed(int(version), since, until):
            self._fault(
                f"{where}: {name} says {value!r}, which it did not hold from {since:.3f} to {until:.3f};"
                f" the latest is {versions.latest}"
            )

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    def check_letters(self, letters: Counter[tuple[int, int]]) -> None:
        """Each row without what HTTP has for it has its letter, and no row with it has one.

        Letters of a batch that the end of the stream cut short say nothing: it would run again.
        """
        for batch, person in sorted(self.failed - set(letters)):
            self._fault(f"batch {batch}: the id {person} has neither its row nor a letter")
        for batch, person in sorted(set(letters) - self.failed):
            if batch <= self.batches and person not in self.missed.get(batch, ()):
                self._fault(f"batch {batch}: the id {person} has its row, and a letter")

    def check_counts(self, number: int, told: dict[str, dict[str, int]], letters: dict[int, int]) -> None:
        """Compare what lookups counted in a batch with what came out of it.

        Args:
            number: of the batch.
            told: the counts of each lookup, by its table.
            letters: how many dead letters the batch has of each id.
        """
        for name, came in self.sizes[number].items():
            counts = told.get(name, {})
            failed = letters if name == "web" else {}
            missed = len(self.missed.get(number, set()) - set(failed))
            if (
                counts.get("rows_in") != came["rows"]
                or counts.get("rows_found") != came["found"]
                or not missed <= counts.get("misses", 0) <= came["rows"]
                or counts.get("dead_letters") != sum(failed.values())
            ):
                self._fault(
                    f"batch {number}, {name}: counts say {counts}, rows say {dict(came)}, {missed} ids missed, letters {failed}"
                )


def letters_in(folder: Path) -> Counter[tuple[int, int]]:
    """How many dead letters there are of each batch and id."""
    letters: Counter[tuple[int, int]] = Counter()
    for path in folder.glob("run=*/[!_]*.parquet"):
        table = pq.read_table(path, columns=["batch_id", "key"], partitioning=None)
        for batch, key in zip(*(column.to_pylist() for column in table.columns), strict=True):
            letters[batch, json.loads(key)["id"]] += 1
    return letters


def paths_below(folder: Path) -> list[Path]:
    """What is in a folder at any depth, while others remove some of it; ``rglob`` fails then."""
    return [Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files)]


@dataclass
class Gauge:
    """Something that shall not grow, looked at again and again.

    Args:
        most: the growth that is allowed, from the end of the warm-up to the end.
    """

    most: float
    samples: list[tuple[float, float]] = field(default_factory=list)

    def add(self, moment: float, value: float) -> None:
        """Take one more sample."""
        self.samples.append((moment, value))

    def per_hour(self, since: float) -> float:
        """How fast it grows from ``since`` on: the median slope between any two samples, as few wild ones do nothing."""
        samples = [each for each in self.samples if each[0] >= since]
        samples = samples[:: max(1, len(samples) // 200)]
        slopes = [
            (later - earlier) / (end - begin)
            for place, (begin, earlier) in enumerate(samples)
            for end, later in samples[place + 1 :]
        ]
        return 3600 * median(slopes) if slopes else 0.0

    def growth(self, since: float) -> float:
        """How much it has grown by that slope from ``since`` to its last sample."""
        seconds = self.samples[-1][0] - since if self.samples else 0.0
        return self.per_hour(since) * max(0.0, seconds) / 3600


def table_of(gauges: dict[str, Gauge], since: float) -> Iterator[str]:
    """A line for each gauge."""
    yield f"{'':34} {'least':>9} {'median':>9} {'most':>9} {'an hour':>9} {'grew by':>9} {'may by':>8}"
    for name, gauge in gauges.items():
        values = [value for moment, value in gauge.samples if moment >= since]
        if values:
            grew = gauge.growth(since)
            figures = (min(values), median(values), max(values), gauge.per_hour(since), grew)
            line = " ".join(f"{figure:9.1f}" for figure in figures)
            yield f"{name:34} {line} {gauge.most:8.1f}{'' if grew <= gauge.most else '  TOO MUCH'}"
