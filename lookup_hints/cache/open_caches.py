"""The cache of a lookup on a worker: which folder has its answers, and whether they may be used."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.cache.task_cache import Cache, StoreCache, TaskCache, error_summary, warn_without_cache
from lookup_hints.engine.arrow import conform, is_null_key, with_flat_keys
from lookup_hints.errors import ConnectorError, InternalError, LookupHintsError
from lookup_hints.lookup_spec import ChangedColumn, Invalidation, LookupSpec, PartialCache, Switch
from lookup_hints.process.open_connectors import needing_its_driver
from lookup_hints.process.running_task import in_stream, running_part, running_statement
from lookup_hints.spi import Changes, ChangesRequest, ReportsChanges
from lookup_hints.spi.changed_column_and_versions import versions_of
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import known_secrets, masked, masker
from lookup_hints.version import __version__

if TYPE_CHECKING:
    from lookup_hints.cache.full_cache import HeldTable
    from lookup_hints.cache.store.answer_store import Store
    from lookup_hints.cache.store.invalidations import Checks, Invalidations

KEPT = 8
"""This many stores stay open in a process that no task uses now."""


class OpenCaches:
    """The stores that one process has open, and of what it has warned."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, Store] = OrderedDict()
        self._held: OrderedDict[Path, HeldTable] = OrderedDict()
        self._checks: OrderedDict[tuple[Path, str], Checks] = OrderedDict()
        self._warned: set[str] = set()

    def task_cache(
        self,
        spec: LookupSpec,
        identity: str,
        folder: Path | None,
        refresh: Callable[[pa.Table], None] | None = None,
    ) -> TaskCache:
        """The cache of one task; it has none where none is wanted or can be.

        Args:
            spec: the lookup, over the connector that is open here.
            identity: tells connectors apart that are not equal.
            folder: that of the executor.
            refresh: lets keys be asked for again whose rows are too old. Without it such rows are not used.
        """
        watch = None
        try:
            cache = self._open_cache(spec, identity, folder, refresh)
            if spec.settings.changed is not None:
                watch = self._watch_changes(spec, spec.settings.changed, identity, folder)
        except LookupHintsError:
            raise
        except Exception as error:
            self._warn_once(spec.table.name, error_summary(error))
            cache = None
        return TaskCache(spec, cache, self._warn_once, watch)

    def _watch_changes(
        self, spec: LookupSpec, changed: ChangedColumn, identity: str, folder: Path | None
    ) -> WatchedTable:
        from lookup_hints.cache.store.invalidations import Checks, Invalidations

        path = _folder_of(spec, identity, folder).parent
        longest = spec.settings.longest
        keys = with_flat_keys(spec.key_schema)
        invalidations = Invalidations(path, keys, lasting=longest == math.inf)
        checks = self._checks.pop((path, invalidations.source), None)
        if checks is None:
            checks = Checks(path, invalidations, changed.interval, changed.step, longest, time.monotonic)
        self._checks[path, invalidations.source] = checks
        _drop_oldest(self._checks)
        return WatchedTable(checks, spec, partial(self._warn_once, spec.table.name))

    def _open_cache(
        self, spec: LookupSpec, identity: str, folder: Path | None, refresh: Callable[[pa.Table], None] | None
    ) -> Cache | None:
        if spec.searched_whole is not None:
            return self._open_ranges(spec, identity, folder)
        if spec.settings.whole is not None:
            return self._open_full_table(spec, identity, folder)
        if spec.settings.switch is not None:
            return self._open_switching_cache(spec, spec.settings.switch, identity, folder)
        wanted = spec.settings.cache
        if wanted is None:
            return None
        store = self._open_store(spec, wanted, identity, folder)
        return StoreCache(store, partial(self._warn_once, spec.table.name), refresh, spec.past_order)

    def _open_full_table(self, spec: LookupSpec, identity: str, folder: Path | None) -> Cache:
        answers = _folder_of(spec, identity, folder)
        invalidations = _apply_invalidations(answers.parent, spec)
        path = answers / ("whole" if spec.searched_whole is None else _hash_of(spec.searched_whole))
        return self._held_table_of(path, spec).cache(spec, invalidations)

    def _held_table_of(self, path: Path, spec: LookupSpec) -> HeldTable:
        from lookup_hints.cache.full_cache import HeldTable

        for gone in [each for each in self._held if not each.is_dir()]:
            del self._held[gone]
        held = self._held.pop(path, None) or HeldTable(path, spec, time.monotonic)
        self._held[path] = held
        _drop_oldest(self._held)
        return held

    def _open_ranges(self, spec: LookupSpec, identity: str, folder: Path | None) -> Cache:
        """The table as ranges, kept for this run of the statement where it is not kept for others."""
        from lookup_hints.cache.full_cache import failing_for, use_of

        with failing_for(spec.table.name):
            assert spec.settings.whole is not None, "it is kept whole"
            if not spec.settings.whole.is_for_run:
                return self._open_full_table(spec, identity, folder)
            runs = _folder_of(spec, identity, folder) / f"{_hash_of(spec.searched_whole)}.runs"
            path = runs / (running_part() or uuid4().hex)
            use = use_of(path)
            cache = self._held_table_of(path, spec).cache(spec)
            cache.use = use
            return cache

    def _open_switching_cache(
        self, spec: LookupSpec, switch: Switch, identity: str, folder: Path | None
    ) -> Cache | None:
        """A stream asks on: what its next rows find may be newer. So does a worker that can keep nothing."""
        run = running_statement()
        if run is None or in_stream():
            return None
        try:
            from lookup_hints.cache.full_cache import Switching

            return Switching(_folder_of(spec, identity, folder) / "read", run, spec, switch)
        except (ImportError, OSError, TypeError):
            return None

    def _open_store(
        self, spec: LookupSpec, wanted: PartialCache, identity: str, folder: Path | None
    ) -> Store:
        # Imported late: what it needs is wanted on workers that have a cache, and on no others.
        from lookup_hints.cache.store.answer_store import Ages, Store
        from lookup_hints.cache.store.segment_files import StoreLimits

        path = _folder_of(spec, identity, folder)
        invalidations = _apply_invalidations(path.parent, spec)
        store = self._open.pop(path, None)
        limits = StoreLimits(wanted.max_bytes, wanted.max_rows)
        ages = Ages(
            rows=wanted.expire_after_write,
            missing=wanted.missing_ttl or 0.0,
            unused=wanted.expire_after_access,
            refreshing=wanted.stale_while_revalidate,
            fallback=wanted.stale_if_error,
            keeps_versions=wanted.versions_by in spec.answer_schema.names,
        )
        if store is None or not path.is_dir():
            store = Store(path, limits, ages, time.monotonic, invalidations)
        self._open[path] = store
        _drop_oldest(self._open)
        return store

    def _warn_once(self, table: str, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            warn_without_cache(table, why)


def _drop_oldest(opened: OrderedDict[Any, Any]) -> None:
    while len(opened) > KEPT:
        opened.popitem(last=False)


# The columns are part of the name: a query of fewer columns could use a store of more, but which stores there
# are would have to be found out. (docs/decisions/0158)
def _folder_of(spec: LookupSpec, identity: str, folder: Path | None) -> Path:
    from lookup_hints.cache.store.hashing import can_hash

    if folder is None:
        raise OSError(0, "Spark has given this worker no folder")
    if spec.searched_whole is None and not can_hash(with_flat_keys(spec.key_schema)):
        kinds = ", ".join(map(str, spec.key_schema.types))
        raise TypeError(f"no cache is kept by keys of the types {kinds}")
    return folder / "cache" / name_of(spec, identity)


def name_of(spec: LookupSpec, identity: str) -> Path:
    """The name of the folder of its answers, below that of its table: hashes of all that decides them.

    These are those of its source, the columns asked by and for, and what selects rows there.
    """
    columns: list[object] = [
        [(field.name, str(field.type), *(["or NULL"] * is_null_key(field))) for field in schema]
        for schema in (spec.key_schema, spec.answer_schema)
    ]
    if spec.order_asked:
        columns.append(spec.order)
    # The connector with its table and options, what references and files hold here, and our version.
    table = spec.connector.table
    resolved = {key: table.resolve(text, option=key, known=set()) for key, text in table.options.items()}
    source = identity, sorted(resolved.items()), spec.connector.opened_with(), __version__
    return Path(_hash_of(source), _hash_of(columns))


def _hash_of(parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:32]


# Invalidations arrive with the plan, as a driver cannot send anything to executors. (docs/decisions/0160)
def _apply_invalidations(folder: Path, spec: LookupSpec) -> Invalidations:
    from lookup_hints.cache.store.invalidations import MOST_CHANGED, Invalidations

    longest = spec.settings.longest
    is_lasting = longest == math.inf
    most = MOST_CHANGED if is_lasting else math.inf  # notes that stay would fill the disk
    invalidations = Invalidations(folder, with_flat_keys(spec.key_schema), lasting=is_lasting)
    for session, told in groupby(spec.settings.invalidations, key=attrgetter("session")):
        who = invalidations.name_of(session)
        done = invalidations.number(who)
        new = [each for each in told if each.number > done]
        if new:
            keys = _keys_of(new, spec.table)
            invalidations.invalidate(who, new[-1].number, keys, time.monotonic(), longest, most)
    return invalidations


def _keys_of(invalidations: Sequence[Invalidation], table: LookupTable) -> pa.Table | None:
    """The invalidated keys; None for all. Versions of a key are one answer, so all are invalidated."""
    columns = invalidations[-1].columns
    if not columns or any(each.columns != columns for each in invalidations):
        return None
    values = zip(*(key for each in invalidations for key in each.keys), strict=True)
    try:
        keys = pa.table(list(values), schema=pa.schema([table.schema.field(name) for name in columns]))
        versions = versions_of(table)
        others = [name for name in columns if versions is None or name not in versions.times]
        return keys.select(others or columns)
    except (KeyError, pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # the table was replaced by one with other columns


SECONDS = 30.0
"""The source has so long to say what has changed; tasks wait for that."""

# The first of January of the year 1, in days since 1970: no column of Spark goes further back.
_FIRST_DAY = -719_162


class WatchedTable:
    def __init__(self, checks: Checks, spec: LookupSpec, warn: Callable[[str], None]) -> None:
        self._checks, self._spec, self._warn = checks, spec, warn
        self.asked = 0
        """How often this task has asked."""

    # A check that fails stops the cache until the next one: a row that may have changed is what the option
    # was to prevent. (docs/decisions/0169)
    def is_current(self) -> bool:
        """Whether all that has changed is invalidated; asks the source if that is due.

        Raises:
            OSError: what the executor knows cannot be read or written.
        """
        failure = self._checks.failure(self._ask_changes)
        if failure:
            self._warn(f"what has changed is not known: {failure}")
        return not failure

    def _ask_changes(self, since: int | None) -> tuple[int | None, pa.Table | None]:
        from lookup_hints.cache.store.invalidations import Unanswered

        self.asked += 1
        connector = self._spec.connector
        try:
            found = _request_changes(self._spec, since)
        except Exception as error:
            text = str(masked(error, masker(known_secrets(connector))))
            raise Unanswered(text.rstrip(".")) from None
        latest: int | None = None
        if found.latest.is_valid:  # in units of the column: microseconds or days since 1970, or itself
            is_number = types.is_integer(found.latest.type)
            latest = int(found.latest.as_py() if is_number else found.latest.value)
        return latest, found.keys


def _request_changes(spec: LookupSpec, since: int | None) -> Changes:
    from lookup_hints.cache.store.invalidations import MOST_CHANGED

    connector, changed = spec.connector, spec.settings.changed
    if not isinstance(connector, ReportsChanges) or changed is None:
        raise InternalError(f"{type(connector).__name__} was planned to tell changes, which it cannot")
    kind, by_key = changed.column.type, spec.keys_are_immutable
    request = ChangesRequest(
        changed.column.name,
        None if since is None else _number_to_scalar(since, kind),
        spec.key_schema if by_key else pa.schema([]),
        MOST_CHANGED if by_key else 0,
        SECONDS,
    )
    with needing_its_driver(connector):
        told = connector.changes(request)
    who = f"connector {type(connector).__name__} of table {spec.table.name}"
    if not isinstance(told, Changes) or told.latest.type != kind:
        raise ConnectorError(f"{who} must tell changes by a Changes, with a latest {kind}", permanent=True)
    if request.since is None or told.keys is None or told.keys.num_rows > request.most:
        return Changes(told.latest)
    keys = pa.Table.from_arrays(conform(told.keys, request.schema, who).columns, schema=request.schema)
    for name in keys.column_names:  # a primary key has no NULL
        keys = keys.filter(pc.is_valid(keys.column(name)))
    return Changes(told.latest, keys)


def _number_to_scalar(number: int, kind: pa.DataType) -> pa.Scalar:
    """The value of the column that is ``number`` of its unit; one that is too early is the first there is."""
    if types.is_date(kind):
        return pa.scalar(max(number, _FIRST_DAY), pa.int32()).cast(kind)
    if types.is_timestamp(kind):
        return pa.scalar(max(number, _FIRST_DAY * 86_400 * 10**6), pa.int64()).cast(kind)
    return pa.scalar(number, kind)
