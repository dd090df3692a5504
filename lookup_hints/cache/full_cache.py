"""Tables that a worker's executor keeps whole: when they are read, by whom, and what becomes of failures."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_hints.cache.store.full_table import TICKS, Generation, Generations, Note
from lookup_hints.cache.store.hashing import comparable, distinct, hash_is_exact, hashes_of, in_order
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.ranges import Bounds, RowSearch, TooLarge
from lookup_hints.cache.store.segment_files import StoreLimits, make_private
from lookup_hints.cache.task_cache import NOTHING, Cache, NotKept, error_summary
from lookup_hints.engine.adaptive_batch_size import WINDOW_BYTES
from lookup_hints.engine.arrow import Keys, KnownAnswers, Placed, distinct_keys
from lookup_hints.engine.asof_and_ranges import Integers
from lookup_hints.errors import ConnectorError, LookupHintsError
from lookup_hints.lookup_spec import DailyReload, FullCache, LookupSpec, PeriodicReload, Switch
from lookup_hints.metrics.lookup_metrics import LookupMetrics, MaxGauge
from lookup_hints.process.open_connectors import scanned
from lookup_hints.spi.request_and_answer import NearestCondition, OrderCondition

RETRY_SECONDS = 60.0
"""A load that failed is tried again after so long, or after the interval of reloads, if that is less."""

_log = logging.getLogger("lookup_hints.cache")


class HeldTable:
    """One table that this executor keeps whole, as one process sees it.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(
        self,
        path: Path,
        spec: LookupSpec,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        assert spec.settings.whole is not None
        self._wanted: FullCache = spec.settings.whole
        self._generations = Generations(path, StoreLimits(self._wanted.max_bytes), clock, _search_of(spec))
        self._clock, self._wall = clock, wall
        self._spec = spec
        self._invalidations: Invalidations | None = None
        self._reloading: Thread | None = None
        self.loads = LookupMetrics()
        """Metrics of the loads of this process, and the age of the table."""

    def cache(self, spec: LookupSpec, invalidations: Invalidations | None = None) -> HeldCache:
        """It as the cache of a task, without what ``invalidations`` hold.

        Raises:
            NotKept: as this process or another has found out.
            OSError: the folder cannot be read.
        """
        if invalidations is not None:
            # Another task of this process may be between its look and its answer, and takes these then.
            invalidations.look(self._clock)
        self._spec, self._invalidations = spec, invalidations
        note = self._generations.noted()
        if note is not None and note.kind == "cache" and self._generations.newest() is None:
            self._raise_noted(note)
        return HeldCache(self) if spec.searched_whole is None else SearchedCache(self)

    def probe(self, keys: pa.Table, columns: Sequence[str]) -> KnownAnswers:
        """The rows of ``keys``; all others have none.

        Raises:
            ConnectorError: the table could not be read.
            NotKept: its rows could not be kept.
            OSError: the folder cannot be read.
        """
        current = self._valid_generation()
        age = max(0, self._generations.now - current.began) // TICKS
        self.loads = replace(self.loads, cache_age=MaxGauge(age))
        note = self._generations.noted()
        # No process is in charge: a timer would need a process that lives on, and Spark ends idle workers. So
        # a reload begins when a lookup finds that it is due. (docs/decisions/0162)
        is_reloading = self._reloading is not None and self._reloading.is_alive()
        if self._clock() >= self._next_reload(current, note) and not is_reloading:
            self._reloading = Thread(target=self._reload_alone, name="lookup-reload", daemon=True)
            self._reloading.start()
        if note is not None and not self._wanted.keeps_old:
            text = f"{note.text} (of a reload that failed)"
            raise NotKept(text) if note.kind == "cache" else self._unreadable_table(text)
        known = self._generations.probe(keys, columns, self._invalidations)
        return KnownAnswers(tuple(Placed(rows, at) for rows, at in known.found), known.missing)

    def most(self) -> int:
        """No value is answered by many more rows, where it is searched; raises as ``probe``."""
        self._valid_generation()
        return self._generations.most

    @property
    def held(self) -> tuple[int, int]:
        """Rows, and the bytes that they take."""
        return self._generations.held

    @property
    def counts(self) -> LookupMetrics:
        rows, nbytes = self.held
        return replace(self.loads, cache_rows=MaxGauge(rows), cache_bytes=MaxGauge(nbytes))

    @property
    def name(self) -> str:
        return self._spec.table.name

    def is_there(self) -> bool:
        return self._generations.opened() is not None

    def read_alone(self) -> bool:
        with self._generations.loading(wait=False) as is_alone:
            if is_alone and not self.is_there() and self._generations.noted() is None:
                self._load_table()
        return self.is_there()

    # --- when ------------------------------------------------------------------------------------------

    # Times of day follow the wall clock as it is now, ages the clock that does not jump: a wall clock set
    # back by an hour causes no reload. (docs/decisions/0162)
    def _next_reload(self, current: Generation, note: Note | None) -> float:
        """When the table is read again, on the shared clock."""
        reload, began, ended = self._wanted.reload, current.began / TICKS, current.ended / TICKS
        offset = self._wall() - self._clock() if isinstance(reload, DailyReload) else 0.0
        due = reload.after(current.number, began + offset, ended + offset) - offset
        if self._invalidations is not None and began <= self._invalidations.before:
            due = self._invalidations.before
        return due if note is None else max(due, note.at / TICKS + self._retry_pause)

    @property
    def _retry_pause(self) -> float:
        reload = self._wanted.reload
        return min(reload.interval, RETRY_SECONDS) if isinstance(reload, PeriodicReload) else RETRY_SECONDS

    # --- loading ---------------------------------------------------------------------------------------

    def _valid_generation(self) -> Generation:
        if self._invalidations is not None:
            self._invalidations.look(self._clock)
        current = self._generations.opened()
        return current if current is not None and self._is_valid(current) else self._load_first()

    def _is_valid(self, current: Generation) -> bool:
        """Whether rows that are searched are used: where one is invalidated, any value may be concerned.

        By key, those that are invalidated are asked for, and nothing else is.
        """
        if self._spec.searched_whole is None or self._invalidations is None:
            return True
        began = np.array([current.began / TICKS])
        return bool(self._invalidations.allow(np.zeros(1, np.uint64), began)[0])

    # A first load that fails, fails the task: asking by key instead would hide that the options cannot work.
    # (docs/decisions/0162)
    def _load_first(self) -> Generation:
        came = self._generations.now
        with self._generations.loading(wait=True):
            current = self._generations.opened()
            if current is None or not self._is_valid(current):
                note = self._generations.noted()
                if note is not None and note.at >= came:
                    self._raise_noted(note)
                self._load_table()
                current = self._generations.opened()
        if current is None:
            raise NotKept("what was written of the table cannot be read")
        return current

    def _reload_alone(self) -> None:
        try:
            with self._generations.loading(wait=False) as is_alone:
                newest, note = self._generations.newest(), self._generations.noted()
                if is_alone and newest is not None and self._clock() >= self._next_reload(newest, note):
                    self._load_table()
        except Exception as error:
            table = self._spec.table.name
            _log.warning("Table %s could not be read again for its cache: %s", table, error_summary(error))

    def wait(self) -> None:
        if self._reloading is not None:
            self._reloading.join()

    def _load_table(self) -> None:
        spec, start = self._spec, time.monotonic()
        try:
            batches = _with_marks(scanned(spec.connector, spec.answer_schema), spec.key_schema)
            self._generations.load(batches, spec.key_columns)
        except LookupHintsError as error:
            self._note_failure("source", str(error))
            raise self._unreadable_table(str(error)) from error
        except TooLarge:
            most = f"{(self._wanted.max_bytes or 0) / 1024**2:,.6g} MB"
            raise self._note_not_kept(
                f"the table takes more than {most}; 'lookup.full-cache.max-bytes' gives it more"
            ) from None
        except Exception as error:
            raise self._note_not_kept(error_summary(error)) from error
        millis = MaxGauge((time.monotonic() - start) * 1000)
        self.loads = replace(self.loads, cache_loads=self.loads.cache_loads + 1, cache_load_millis=millis)

    def _note_not_kept(self, text: str) -> NotKept:
        self._note_failure("cache", text)
        return NotKept(text)

    # Written down for all processes of the executor, so that they do not all try what one has tried.
    # (docs/decisions/0162)
    def _note_failure(self, kind: str, text: str) -> None:
        self.loads += LookupMetrics(cache_load_failures=1)
        self._generations.note(kind, text)

    def _raise_noted(self, note: Note) -> None:
        """Do not try what another process has just tried."""
        if note.kind == "source":
            raise self._unreadable_table(note.text)
        if self._clock() < note.at / TICKS + self._retry_pause:
            raise NotKept(note.text)

    def _unreadable_table(self, text: str) -> ConnectorError:
        wanted, tip = "for its FULL cache", "; 'lookup.cache' = 'PARTIAL' asks it by key"
        if self._spec.searched_whole is not None:
            what = "ranges" if isinstance(self._spec.searched_whole, OrderCondition) else "nearest rows"
            wanted, tip = f"whole, for the {what} that are asked for", ""
        return ConnectorError(
            f"table {self.name} could not be read {wanted}: {text.rstrip('.')}."
            f" See that the source can be read whole{tip}."
        )


def _with_marks(batches: Iterator[pa.RecordBatch], keys: pa.Schema) -> Iterator[pa.RecordBatch]:
    """``batches`` whose columns of ``keys`` say whether NULL is a key."""
    for batch in batches:
        fields = [keys.field(each.name) if each.name in keys.names else each for each in batch.schema]
        yield pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def keys_by_hash(rows: pa.Table) -> Keys:
    column = rows.column(0)
    if hash_is_exact(rows.schema) and types.is_integer(column.type) and not column.null_count:
        firsts, codes = distinct(hashes_of(comparable(rows)))
        return Keys(rows.take(pa.array(firsts)), pa.array(codes))
    keys = distinct_keys(rows)
    order, _ = in_order(hashes_of(comparable(keys.table)))
    codes = np.empty(len(order), np.int32)
    codes[order] = np.arange(len(order), dtype=np.int32)
    return Keys(keys.table.take(pa.array(order)), pa.array(codes).take(keys.codes))


class HeldCache(Cache):
    """A table that is kept whole as the cache of a task; it counts what happens from now on."""

    use: object = None
    """A lock that keeps the table's folder from being removed by others."""

    def __init__(self, table: HeldTable) -> None:
        self._table, self._before = table, table.loads

    def probe(self, keys: Keys, columns: Sequence[str]) -> KnownAnswers:
        return self._table.probe(keys.table, columns)

    def count_held(self, keys: Keys) -> int:
        return keys.table.num_rows if self._table.is_there() else 0

    def keys_of(self, rows: pa.Table) -> Keys | None:
        """By their hashes, once the table is read: then the rows that are found need no other order."""
        return keys_by_hash(rows) if self._table.is_there() else None

    @property
    def counts(self) -> LookupMetrics:
        counts = self._table.counts - self._before
        return counts if counts.cache_loads else replace(counts, cache_load_millis=MaxGauge(0))


def _search_of(spec: LookupSpec) -> Bounds | RowSearch | None:
    """How the table is searched; None where it is asked by key."""
    order = spec.searched_whole
    if isinstance(order, NearestCondition):
        return RowSearch(spec.answer_schema, partial(_nearest_search, order, spec.table.name), order.most)
    if order is None or order.until is None:
        return None
    holds = order.operator == ">=", order.until_operator == "<="
    return Bounds(spec.answer_schema, order.column, order.until, *holds)


def _nearest_search(
    condition: NearestCondition, table: str, rows: pa.Table
) -> Callable[[pa.Array], tuple[Integers, Integers]]:
    from lookup_hints.engine.nearest_rows import NearestRows  # only where such rows are wanted

    searched = NearestRows(rows, np.zeros(rows.num_rows, np.int64), condition, table)

    def find(values: pa.Array) -> tuple[Integers, Integers]:
        answers = searched.answering(np.zeros(len(values), np.int64), values)
        return np.repeat(np.arange(len(values)), np.diff(answers.ends, prepend=0)), answers.rows.to_numpy()

    return find


# A range or a distance has no key to ask by; the whole table is kept so that it can be searched.
# (docs/decisions/0208)
class SearchedCache(HeldCache):
    """A table that is kept whole, searched for the rows that answer values. There is nobody else to ask."""

    def keys_of(self, rows: pa.Table) -> None:
        """Ascending, as any other: the index of ranges has them so."""

    def probe(self, keys: Keys, columns: Sequence[str]) -> KnownAnswers:
        """The rows that answer each of ``keys``.

        Raises:
            ConnectorError: the table could not be read, or kept.
        """
        with failing_for(self._table.name):
            return self._table.probe(keys.table, columns)

    def most_rows(self) -> int | None:
        """For how many values at once the rows fit into memory, whatever they are."""
        with failing_for(self._table.name):
            most = self._table.most()
        rows, nbytes = self._table.held
        return max(1, WINDOW_BYTES * rows // max(1, most * nbytes))


@contextmanager
def failing_for(table: str) -> Iterator[None]:
    """A block in which a failure to keep ``table`` ends the task."""
    try:
        yield
    except LookupHintsError:
        raise
    except Exception as error:
        raise ConnectorError(
            f"table {table} is kept whole to be searched, and cannot be:"
            f" {error_summary(error).rstrip('.')}. 'access' = 'scan' lets Spark join it."
        ) from error


# Nobody knows beforehand how many keys there will be. When the keys have cost as much as reading the table,
# it is read: at most about twice what the better way costs. (docs/decisions/0163)
class Switching(Cache):
    """The table of one lookup in one run of a statement, as a task sees it: asked first, then maybe read.

    It is read once its keys have cost as much: rent, then buy.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(self, folder: Path, run: str, spec: LookupSpec, switch: Switch) -> None:
        self._path, self._switch, self._table = folder / run, switch, spec.table.name
        self._use = use_of(self._path)
        whole = FullCache(PeriodicReload(math.inf), max_bytes=switch.max_bytes)
        self._held = HeldTable(self._path, replace(spec, settings=replace(spec.settings, whole=whole)))
        self._is_read = self._is_given_up = False  # each stays as it has become
        self._after = 0

    def keys_of(self, rows: pa.Table) -> Keys | None:
        return keys_by_hash(rows) if self._is_read else None

    def probe(self, keys: Keys, columns: Sequence[str]) -> KnownAnswers:
        if self._is_given_up:
            return NOTHING
        try:
            self._is_read = self._is_read or self._held.is_there() or self._has_read(keys.table.num_rows)
            return self._held.probe(keys.table, columns) if self._is_read else NOTHING
        except Exception as error:  # it can be asked still
            self._is_given_up = True
            _log.warning(
                "Table %s is still asked by key, as it could not be read: %s",
                self._table,
                error_summary(error),
            )
            return NOTHING

    # A failure to read fails nothing here: nobody has asked for the table to be read. (docs/decisions/0163)
    def _has_read(self, keys: int) -> bool:
        """Read the table if this many more keys make it worthwhile and no other process is reading it."""
        asked = _add_to_counter(self._path / "asked", keys)
        if asked < self._switch.keys:
            return False
        self._after = asked
        return self._held.read_alone()

    @property
    def counts(self) -> LookupMetrics:
        counts = self._held.counts
        return replace(counts, switched_after=MaxGauge(self._after if counts.cache_loads else 0))


class _Use:
    """Somebody uses the folder of a run as long as this is there."""


# What is read belongs to one run of a statement: a later one may find newer rows, as it does when it asks.
# (docs/decisions/0163)
def use_of(path: Path) -> object:
    """Make the folder of a run. It stays until nothing that this has returned is left, and a later run comes.

    Raises:
        OSError: there can be no such folder.
    """
    if not path.is_dir():
        _remove_unused(path)
    for _ in range(_TRIES):  # a task of another run may take it for unused, a moment before it is used
        with suppress(FileNotFoundError, FileExistsError):
            make_private(path)
            file = _open_locked(path / "in-use", fcntl.LOCK_SH)
            if file is not None:
                use = _Use()
                weakref.finalize(use, os.close, file)
                return use
    raise OSError("no folder can be made for the run of a statement")


_TRIES = 1000


# The file may be removed between the opening and the lock; its number of links shows that.
def _open_locked(path: Path, how: int) -> int | None:
    """The file ``path``, opened and locked; None where others have it, or it is gone by then."""
    with ExitStack() as stack:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, file)
        with suppress(BlockingIOError):
            fcntl.flock(file, how)
            if os.fstat(file).st_nlink:
                stack.pop_all()
                return file
    return None


def _remove_unused(new: Path) -> None:
    """Remove what runs have left that are over; not that of the run whose folder is to be ``new``."""
    for run in new.parent.iterdir() if new.parent.is_dir() else ():
        with suppress(FileNotFoundError):
            file = None if run == new else _open_locked(run / "in-use", fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file is None:
                continue
            try:
                gone = run.with_name(f"{uuid4().hex}.gone")  # the next user makes a new folder
                run.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
            finally:
                os.close(file)


# The count is that of the executor, whose tasks share what is read; read and written under one lock.
# (docs/decisions/0163)
def _add_to_counter(path: Path, more: int) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        count = int(os.read(file, 20) or b"0") + more
        os.pwrite(file, str(count).encode(), 0)
        return count
    finally:
        os.close(file)
