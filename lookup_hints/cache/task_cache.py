"""Between a scheduler and a cache: what is known of the keys of a window, and what the source has answered.

The scheduler's runner hands over answers and does not wait; the thread that reads the input asks the cache,
and writes. Where the cache fails, the task goes on without it and says so once: its rows are the same.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lookup_hints.engine.arrow import Keys, KnownAnswers, Placed, flat_keys
from lookup_hints.engine.backlog import Learn
from lookup_hints.errors import LookupHintsError
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.lookup_metrics import CountsByKey, LookupMetrics, MaxGauge
from lookup_hints.spi.request_and_answer import OrderCondition

if TYPE_CHECKING:
    from lookup_hints.cache.open_caches import WatchedTable
    from lookup_hints.cache.store.answer_store import Past, Store

KEYS_AT_ONCE = 64 * 1024
BYTES_AT_ONCE = 16 * 1024 * 1024
"""This many keys, or bytes of rows, are held in memory before they are written."""

_log = logging.getLogger("lookup_hints.cache")


class NotKept(Exception):
    """The cache cannot be used; the text gives the reason."""


NOTHING = KnownAnswers((), pa.nulls(0, pa.int32()))
"""The answer without a cache: its keys are not counted as cache misses."""

CacheWrite = tuple[pa.Table, Placed, pa.Array, float]


class Cache:
    """Answers that are kept for other windows, tasks and queries.

    Any error means that there is none, but those of the source: they fail the task.
    """

    learns = False
    """Whether it takes answers."""

    def keys_of(self, rows: pa.Table) -> Keys | None:
        """The distinct keys of ``rows`` in the order in which it has them; None where any other will do."""
        return None

    def probe(self, keys: Keys, columns: Sequence[str]) -> KnownAnswers:
        """Cached answers to ``keys``; ``NOTHING`` if no cache is in use yet."""
        raise NotImplementedError

    def count_held(self, keys: Keys) -> int:
        """How many of ``keys`` are answered without a request; the source is not read for that."""
        known = self.probe(keys, ())
        at = [each.positions.cast(pa.int32()) for each in known.found]
        return len(pa.concat_arrays([*at, known.missing.cast(pa.int32())]).unique())

    def most_rows(self) -> int | None:
        """For how many keys at once the rows surely fit into memory; None where that is not its business."""

    def refresh(self, keys: pa.Table) -> None:
        """Let fresh rows of ``keys`` be asked for beside the task, where rows differ in age."""

    def learn(self, learned: Sequence[CacheWrite]) -> None:
        """Remember what the source has answered."""

    @property
    def counts(self) -> LookupMetrics:
        """Counts of this task, and the size of the cache."""
        return LookupMetrics()


class StoreCache(Cache):
    """The answers of one store, for one task. Stale ones are used if there is a ``refresh`` for them."""

    learns = True

    def __init__(
        self,
        store: Store,
        warn: Callable[[str], None],
        refresh: Callable[[pa.Table], None] | None = None,
        past_order: OrderCondition | None = None,
    ) -> None:
        self._store, self._warn, self._refresh = store, warn, refresh
        self._past_order = past_order
        self._evicted_before = Counter(store.evicted)
        self._damaged_before = store.damaged

    def probe(self, keys: Keys, columns: Sequence[str]) -> KnownAnswers:
        known = self._store.probe(flat_keys(keys.table), columns, self._past_versions(keys))
        if self._store.damaged > self._damaged_before:
            self._warn("a file of it is damaged and is not used")
        found, refreshing, fallback = (
            tuple(Placed(rows, positions) for rows, positions in each)
            for each in (known.found, known.refreshing, known.fallback)
        )
        if self._refresh is None or not refreshing:
            return KnownAnswers(found, known.missing, fallback=(*refreshing, *fallback))
        positions = pa.concat_arrays([each.positions for each in refreshing]).unique()
        return KnownAnswers((*found, *refreshing), known.missing, positions, fallback)

    def _past_versions(self, keys: Keys) -> Past | None:
        from lookup_hints.cache.store.answer_store import Past

        order = self._past_order
        if order is None or keys.values is None:
            return None
        offset = time.time() - time.monotonic()
        # What is learned later is known from later on: it changes no answer for an earlier moment, and nor
        # does the end of a row, as a row that is corrected is another row.
        since, until = (order.column, order.until) if order.known_from is None else (order.known_from, None)
        moments = keys.values.flatten()[-1] if order.known_apart else keys.values
        return Past(since, until, keys.codes, moments, keys.table.num_rows, offset)

    def refresh(self, keys: pa.Table) -> None:
        if self._refresh is not None:
            self._refresh(keys)

    def learn(self, learned: Sequence[CacheWrite]) -> None:
        from lookup_hints.cache.store.segment_entries import Answers

        self._store.learn(
            [
                Answers(flat_keys(keys), found.rows, found.positions, missing, asked)
                for keys, found, missing, asked in learned
            ]
        )

    @property
    def counts(self) -> LookupMetrics:
        return LookupMetrics(
            cache_rows=MaxGauge(self._store.rows),
            cache_bytes=MaxGauge(self._store.nbytes),
            cache_evicted_by_reason=CountsByKey(dict(self._store.evicted - self._evicted_before)),
        )


class TaskCache:
    """The cache of one lookup in one task, as the task uses it.

    Args:
        spec: the lookup.
        cache: the answers; None where there is no cache.
        warn: takes the table, and why it is asked without its cache.
        watch: says whether answers may be used; None where they may while they are young.
    """

    def __init__(
        self,
        spec: LookupSpec,
        cache: Cache | None,
        warn: Callable[[str, str], None] | None = None,
        watch: WatchedTable | None = None,
    ) -> None:
        retry = spec.settings.retry
        self._table = spec.table.name
        self._columns = spec.held_columns if retry.on_rows is None else tuple(spec.answer_schema.names)
        self._cache, self._warn, self._watch = cache, warn or warn_without_cache, watch
        kept = spec.settings.cache
        self._keeps_stale = kept is not None and kept.stale_if_error > 0
        # Where rows that are too old may be used, a miss is kept, too: it hides them, and is not used itself.
        self._keeps_missing = kept is not None and (
            kept.missing_ttl is not None or self._keeps_stale or kept.stale_while_revalidate > 0
        )
        self._pending: deque[CacheWrite] = deque()
        self._learned = self._written = (0, 0)  # keys and bytes; each is changed by one thread
        self._counts = LookupMetrics()
        self._most = (0, 0)  # rows and bytes of the cache

    @property
    def learn(self) -> Learn | None:
        """Takes what the source answers, where that is remembered."""
        return None if self._cache is None or not self._cache.learns else self._learn_answers

    def _learn_answers(self, keys: pa.Table, found: Placed, missing: pa.Array, asked: float) -> None:
        self._pending.append((keys, found, missing if self._keeps_missing else missing[:0], asked))
        count, nbytes = self._learned
        self._learned = count + keys.num_rows, nbytes + found.rows.nbytes

    def keys_of(self, rows: pa.Table) -> Keys | None:
        """The distinct keys of ``rows`` in the order of the cache; None where it has none."""
        try:
            return None if self._cache is None else self._cache.keys_of(rows)
        except Exception as error:
            self._give_up(error)
            return None

    def most_rows(self) -> int | None:
        """How many rows the next window may have, for what is known of their keys; None: any number."""
        return None if self._cache is None else self._cache.most_rows()

    def count_held(self, keys: Keys) -> int:
        """How many of ``keys`` are answered without a request."""
        is_current = self._watch is None or self._watch.is_current()
        return self._cache.count_held(keys) if self._cache is not None and is_current else 0

    # Beside the engine, not in it: Spark's thread asks the cache for a window, and the event loop never waits
    # for a disk. (docs/decisions/0158)
    def recall(self, keys: Keys) -> Keys:
        """``keys`` with what is known of them. What has been learned is written before."""
        self.write()
        cache = self._cache
        if cache is None or not keys.table.num_rows:
            return keys
        try:
            known = self._probe_cache(cache, keys)
            if known.refreshing is not None:
                cache.refresh(keys.table.take(known.refreshing))
        except LookupHintsError:
            raise
        except Exception as error:
            self._give_up(error)
            return keys
        finally:
            self._update_counts()
        return keys if known is NOTHING else replace(keys, known=known)

    def _probe_cache(self, cache: Cache, keys: Keys) -> KnownAnswers:
        if self._watch is not None and not self._watch.is_current():
            # For use only if the request fails: whether they have changed is unknown.
            nothing = KnownAnswers((), NOTHING.missing)
            known = cache.probe(keys, self._columns) if self._keeps_stale else nothing
            return KnownAnswers((), known.missing[:0], fallback=(*known.found, *known.fallback))
        return cache.probe(keys, self._columns)

    def write_if_due(self) -> None:
        learned, written = self._learned, self._written
        if learned[0] - written[0] >= KEYS_AT_ONCE or learned[1] - written[1] >= BYTES_AT_ONCE:
            self.write()

    def write(self) -> None:
        cache, pending = self._cache, []
        while self._pending:
            pending.append(self._pending.popleft())
        self._written = (
            self._written[0] + sum(keys.num_rows for keys, *_ in pending),
            self._written[1] + sum(found.rows.nbytes for _, found, *_ in pending),
        )
        if cache is None or not pending:
            return
        try:
            cache.learn(pending)
        except Exception as error:
            self._give_up(error)
        self._update_counts()

    def close(self) -> None:
        """The task is over, well or not: what it has learned is of use for others."""
        self.write()

    def _update_counts(self) -> None:
        if self._cache is not None:
            self._counts = self._cache.counts
            self._most = (
                max(self._most[0], self._counts.cache_rows),
                max(self._most[1], self._counts.cache_bytes),
            )

    def _give_up(self, error: Exception) -> None:
        self._update_counts()
        self._cache = None
        self._pending.clear()
        self._warn(self._table, error_summary(error))

    @property
    def counts(self) -> LookupMetrics:
        rows, nbytes = self._most
        return replace(
            self._counts,
            cache_rows=MaxGauge(rows),
            cache_bytes=MaxGauge(nbytes),
            cache_checks=0 if self._watch is None else self._watch.asked,
        )


def warn_without_cache(table: str, why: str) -> None:
    _log.warning("Lookup of %s runs without its cache: %s", table, why)


def error_summary(error: Exception) -> str:
    """What went wrong, without names of files, which do not help the reader."""
    if isinstance(error, NotKept):
        return str(error)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{type(error).__name__}: {text}"
