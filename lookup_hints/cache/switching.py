"""Lookups that read their table while a statement runs, once its keys have cost as much (rent, then buy)."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import shutil
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lookup_hints.cache.store.folder import locked, make_private
from lookup_hints.cache.whole_tables import HeldTable, WholeCache, keys_by_hash
from lookup_hints.engine.arrow import Keys, KnownAnswers
from lookup_hints.engine.task_cache import NOTHING, Loads, error_summary
from lookup_hints.metrics.counts import CountsByKey
from lookup_hints.spec import FullCache, LookupSpec, PeriodicReload, Switch

_log = logging.getLogger("lookup_hints.cache")


class Switching(WholeCache):
    """The table of one lookup in one run of a statement, as a task sees it: asked first, then maybe read.

    Args:
        folder: that of the runs of this lookup; each has one in it while a task uses it.
        run: what Spark calls this run.
        spec: the lookup, over the connector that is open here.
        switch: when it is read.

    Raises:
        OSError: there can be no such folder.
    """

    learns = False
    evicted: CountsByKey[int] = CountsByKey()

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
        """Rows and bytes that it has."""
        return self._held.held

    @property
    def loads(self) -> Loads:
        """Whether this task has read the table, and after how many keys."""
        loads = self._held.loads
        return replace(loads, after=self._after if loads.done else 0)


def _shared(path: Path) -> int:
    """The number of a file that many may lock at once; it is unlocked when it is closed."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _remove_unused(folder: Path) -> None:
    """Remove what earlier runs have left."""
    for run in folder.iterdir() if folder.is_dir() else ():
        with locked(run / "in-use", wait=False) as is_unused:
            if is_unused:
                shutil.rmtree(run, ignore_errors=True)


def _counted(path: Path, more: int) -> int:
    """How many there are with ``more``, of all processes."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        count = int(os.read(file, 20) or b"0") + more
        os.pwrite(file, str(count).encode(), 0)
        return count
    finally:
        os.close(file)
