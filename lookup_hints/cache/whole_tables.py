"""Tables that a worker's executor keeps whole: when they are read, by whom, and what becomes of failures."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import shutil
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_hints.cache.store.folder import StoreLimits, locked, make_private
from lookup_hints.cache.store.hashing import comparable, distinct, hashes_of, in_order
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.whole import Generation, Generations, Note, TooLarge
from lookup_hints.cache.task_cache import NOTHING, Cache, Loads, NotKept, error_summary
from lookup_hints.engine.arrow import Keys, KnownAnswers, Placed, distinct_keys
from lookup_hints.errors import ConnectorError, LookupHintsError
from lookup_hints.spec import DailyReload, FullCache, LookupSpec, PeriodicReload, Switch
from lookup_hints.worker.process.open_connectors import scanned

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
        self._generations = Generations(path, StoreLimits(self._wanted.max_bytes), clock)
        self._clock, self._wall = clock, wall
        self._spec = spec
        self._invalidations: Invalidations | None = None
        self._reloading: Thread | None = None
        self.loads = Loads()

    def cache(self, spec: LookupSpec, invalidations: Invalidations | None = None) -> HeldCache:
        """It as the cache of a task, without what ``invalidations`` hold.

        Raises:
            NotKept: as this process or another has found out.
        """
        self._spec, self._invalidations = spec, invalidations
        note = self._generations.noted()
        if note is not None and note.kind == "cache" and self._generations.newest() is None:
            self._refuse(note)
        return HeldCache(self)

    def probe(self, keys: pa.Table, columns: Sequence[str]) -> KnownAnswers:
        """The rows of ``keys``; all others have none.

        Raises:
            ConnectorError: the table could not be read.
            NotKept: its rows could not be kept.
            OSError: the folder cannot be read.
        """
        current = self._generations.opened() or self._first()
        self.loads = replace(self.loads, age=max(0, self._generations.now - current.began) // 1000)
        if self._invalidations is not None:
            self._invalidations.look(self._clock())
        note = self._generations.noted()
        if self._clock() >= self._due(current, note):
            self._reload()
        if note is not None and not self._wanted.keeps_old:
            raise self._not_read(f"{note.text} (of a reload that failed)")
        known = self._generations.probe(keys, columns, self._invalidations)
        return KnownAnswers(tuple(Placed(rows, at) for rows, at in known.found), known.missing)

    @property
    def held(self) -> tuple[int, int]:
        return self._generations.held

    def is_there(self) -> bool:
        return self._generations.opened() is not None

    def read_alone(self) -> bool:
        """Read it unless another process does, or has failed to; tells whether it is there."""
        with self._generations.loading(wait=False) as is_alone:
            if is_alone and not self.is_there() and self._generations.noted() is None:
                self._load()
        return self.is_there()

    # --- when ------------------------------------------------------------------------------------------

    def _due(self, current: Generation, note: Note | None) -> float:
        """When the table is read again, on the shared clock."""
        reload, began, ended = self._wanted.reload, current.began / 1000, current.ended / 1000
        offset = self._wall() - self._clock() if isinstance(reload, DailyReload) else 0.0
        due = reload.after(current.number, began + offset, ended + offset) - offset
        if self._invalidations is not None and began <= self._invalidations.before:
            due = self._invalidations.before
        return due if note is None else max(due, note.at / 1000 + self._pause)

    @property
    def _pause(self) -> float:
        reload = self._wanted.reload
        return min(reload.interval, RETRY_SECONDS) if isinstance(reload, PeriodicReload) else RETRY_SECONDS

    # --- loading ---------------------------------------------------------------------------------------

    def _first(self) -> Generation:
        came = self._generations.now
        with self._generations.loading(wait=True):
            current = self._generations.opened()
            if current is None:
                note = self._generations.noted()
                if note is not None and note.at >= came:
                    self._refuse(note)
                self._load()
                current = self._generations.opened()
        if current is None:
            raise NotKept("what was written of the table cannot be read")
        return current

    def _reload(self) -> None:
        """Read the table again, beside this thread, if nobody does."""
        if self._reloading is None or not self._reloading.is_alive():
            self._reloading = Thread(target=self._reload_alone, name="lookup-reload", daemon=True)
            self._reloading.start()

    def _reload_alone(self) -> None:
        try:
            with self._generations.loading(wait=False) as is_alone:
                newest, note = self._generations.newest(), self._generations.noted()
                if is_alone and newest is not None and self._clock() >= self._due(newest, note):
                    self._load()
        except Exception as error:
            table = self._spec.table.name
            _log.warning("Table %s could not be read again for its cache: %s", table, error_summary(error))

    def wait(self) -> None:
        """Wait until a reload of this process, if there is one, is over."""
        if self._reloading is not None:
            self._reloading.join()

    def _load(self) -> None:
        spec, start = self._spec, time.monotonic()
        try:
            self._generations.load(scanned(spec.connector, spec.answer_schema), spec.key_columns)
        except LookupHintsError as error:
            self._failed("source", str(error))
            raise self._not_read(str(error)) from error
        except TooLarge:
            most = f"{(self._wanted.max_bytes or 0) / 1024**2:,.6g} MB"
            raise self._not_kept(
                f"the table takes more than {most}; 'lookup.full-cache.max-bytes' gives it more"
            ) from None
        except Exception as error:
            raise self._not_kept(error_summary(error)) from error
        millis = int((time.monotonic() - start) * 1000)
        self.loads = replace(self.loads, done=self.loads.done + 1, millis=millis)

    def _not_kept(self, text: str) -> NotKept:
        self._failed("cache", text)
        return NotKept(text)

    def _failed(self, kind: str, text: str) -> None:
        self.loads = replace(self.loads, failed=self.loads.failed + 1)
        self._generations.note(kind, text)

    def _refuse(self, note: Note) -> None:
        """Do not try what another process has just tried."""
        if note.kind == "source":
            raise self._not_read(note.text)
        if self._clock() < note.at / 1000 + self._pause:
            raise NotKept(note.text)

    def _not_read(self, text: str) -> ConnectorError:
        return ConnectorError(
            f"table {self._spec.table.name} could not be read for its FULL cache: {text.rstrip('.')}."
            " See that the source can be read whole; 'lookup.cache' = 'PARTIAL' asks it by key."
        )


def keys_by_hash(rows: pa.Table) -> Keys:
    """The distinct keys of ``rows`` in the order of their hashes."""
    column = rows.column(0)
    if rows.num_columns == 1 and types.is_integer(column.type) and not column.null_count:
        firsts, codes = distinct(hashes_of(comparable(rows)))
        return Keys(rows.take(pa.array(firsts)), pa.array(codes))
    keys = distinct_keys(rows)
    order, _ = in_order(hashes_of(comparable(keys.table)))
    codes = np.empty(len(order), np.int32)
    codes[order] = np.arange(len(order), dtype=np.int32)
    return Keys(keys.table.take(pa.array(order)), pa.array(codes).take(keys.codes))


class HeldCache(Cache):
    """A table that is kept whole as a flow's cache; it counts what happens from now on."""

    def __init__(self, table: HeldTable) -> None:
        self._table, self._before = table, table.loads

    def probe(self, keys: pa.Table, columns: Sequence[str]) -> KnownAnswers:
        return self._table.probe(keys, columns)

    def keys_of(self, rows: pa.Table) -> Keys | None:
        """By their hashes, once the table is read: then the rows that are found need no other order."""
        return keys_by_hash(rows) if self._table.is_there() else None

    @property
    def held(self) -> tuple[int, int]:
        return self._table.held

    @property
    def loads(self) -> Loads:
        """How often the table was read for this task."""
        now, before = self._table.loads, self._before
        done, failed = now.done - before.done, now.failed - before.failed
        return Loads(done, failed, now.millis if done else 0, now.age)


class Switching(Cache):
    """The table of one lookup in one run of a statement, as a task sees it: asked first, then maybe read.

    It is read once its keys have cost as much: rent, then buy.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(self, folder: Path, run: str, spec: LookupSpec, switch: Switch) -> None:
        self._path, self._switch, self._table = folder / run, switch, spec.table.name
        if not self._path.is_dir():
            _remove_unused(folder)
        make_private(self._path)
        weakref.finalize(self, os.close, _shared(self._path / "in-use"))
        whole = FullCache(PeriodicReload(math.inf), max_bytes=switch.max_bytes)
        self._held = HeldTable(self._path, replace(spec, settings=replace(spec.settings, whole=whole)))
        self._is_read = self._is_given_up = False  # each stays as it has become
        self._after = 0

    def keys_of(self, rows: pa.Table) -> Keys | None:
        """By their hashes, once the table is read: then the rows that are found need no other order."""
        return keys_by_hash(rows) if self._is_read else None

    def probe(self, keys: pa.Table, columns: Sequence[str]) -> KnownAnswers:
        """The rows of ``keys``, once the table is read."""
        if self._is_given_up:
            return NOTHING
        try:
            self._is_read = self._is_read or self._held.is_there() or self._has_read(keys.num_rows)
            return self._held.probe(keys, columns) if self._is_read else NOTHING
        except Exception as error:  # it can be asked still
            self._is_given_up = True
            _log.warning(
                "Table %s is still asked by key, as it could not be read: %s",
                self._table,
                error_summary(error),
            )
            return NOTHING

    def _has_read(self, keys: int) -> bool:
        """Read the table, if this many more keys make that worth it, and nobody else does."""
        asked = _counted(self._path / "asked", keys)
        if asked < self._switch.keys:
            return False
        self._after = asked
        return self._held.read_alone()

    @property
    def held(self) -> tuple[int, int]:
        return self._held.held

    @property
    def loads(self) -> Loads:
        """Whether this task has read the table, and after how many keys."""
        loads = self._held.loads
        return replace(loads, after=self._after if loads.done else 0)


def _shared(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _remove_unused(folder: Path) -> None:
    for run in folder.iterdir() if folder.is_dir() else ():
        with locked(run / "in-use", wait=False) as is_unused:
            if is_unused:
                shutil.rmtree(run, ignore_errors=True)


def _counted(path: Path, more: int) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        count = int(os.read(file, 20) or b"0") + more
        os.pwrite(file, str(count).encode(), 0)
        return count
    finally:
        os.close(file)
