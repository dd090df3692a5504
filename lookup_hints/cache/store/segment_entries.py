"""Keys with their rows, on their way into a segment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_hints.cache.store.hashing import (
    Hashes,
    Numbers,
    Positions,
    comparable,
    equal,
    hash_is_exact,
    hashes_of,
    in_order,
    is_null_key,
)

Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Answers of a source.

    Args:
        keys: what was asked, and maybe keys of which nothing is known yet.
        rows: what was found.
        positions: for each row the position of its key.
        missing: the positions of the keys that have no rows.
        asked: when it was asked: an answer is as old as its question.
    """

    keys: pa.Table
    rows: pa.Table
    positions: pa.Array
    missing: pa.Array
    asked: float


@dataclass(frozen=True)
class ProbeResult:
    """Cached answers for the requested keys.

    Args:
        found: rows, and for each the position of its key; those of one key stand together.
        missing: the positions of the keys that are known to have none.
        refreshing: rows of other keys that are too old, but may be used while they are asked for again.
        fallback: rows of still others, which may be used where asking fails.
    """

    found: tuple[tuple[pa.Table, pa.Array], ...]
    missing: pa.Array
    refreshing: tuple[tuple[pa.Table, pa.Array], ...] = ()
    fallback: tuple[tuple[pa.Table, pa.Array], ...] = ()


@dataclass(frozen=True)
class Content:
    """Entries in ascending order of their hashes, no two of which are equal, and their rows.

    Rows fresh from a source stand as they came, because ordering them is a third of what remembering costs.
    Those of a merged segment, which is used for longer, stand in the order of the entries.

    Args:
        hashes: of the keys.
        starts: the first row of each.
        counts: how many rows each has; 0 for a key that is known to have none. Held as one value, it is 1.
        loaded: when each was asked for.
        used: when each was last used, in whole seconds from 1 on; 0 for not since then.
        keys: the keys, as they are compared; None where their hashes tell them, or rows hold them.
        rows: the rows, those of one key side by side.
        keyed_by: the columns of the rows that hold the keys, where each entry has a row; else none.
    """

    hashes: Hashes
    starts: Positions
    counts: Positions
    loaded: npt.NDArray[np.float64]
    used: npt.NDArray[np.uint32]
    keys: pa.RecordBatch | None
    rows: pa.RecordBatch
    keyed_by: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def held(self) -> int:
        """Its rows; a key that is known to have none counts as one."""
        return int(np.maximum(self.counts, 1).sum())

    @property
    def has_rows_of_no_entry(self) -> bool:
        """Whether some rows belong to no entry."""
        held = len(self) if is_one_value(self.counts) else int(self.counts.sum())
        return bool(self.rows.num_rows > held)

    def keys_of(self, entries: Positions) -> pa.RecordBatch:
        if self.keys is not None:
            return self.keys.take(pa.array(entries))
        columns = self.rows.select(list(self.keyed_by))
        return comparable(pa.Table.from_batches([columns.take(pa.array(self.starts[entries]))]))

    def only(self, chosen: Chosen) -> Content:
        """The ``chosen`` entries, and none but their rows."""
        if chosen.all():
            return self
        entries = np.flatnonzero(chosen)
        return _with_rows_in_order(self._pick_entries(entries, self.hashes[entries]))

    def in_order(self, known: Chosen) -> Content:
        """The ``known`` entries by their hashes; of equal hashes the last, be it that of another key.

        Two keys of one hash are so rare that only one of them is kept. Rows stay where they are.
        """
        order, hashes = in_order(self.hashes)
        if not known.all():
            order, hashes = order[known[order]], hashes[known[order]]
        is_last = np.append(hashes[1:] > hashes[:-1], np.ones(len(hashes[:1]), np.bool_))
        if not is_last.all():
            order, hashes = order[is_last], hashes[is_last]
        return self._pick_entries(order, hashes)

    def _pick_entries(self, entries: Positions, hashes: Hashes) -> Content:
        return replace(
            self,
            hashes=hashes,
            starts=self.starts[entries],
            counts=_take_numbers(self.counts, entries),
            loaded=_take_numbers(self.loaded, entries),
            used=_take_numbers(self.used, entries),
            keys=None if self.keys is None else self.keys.take(pa.array(entries)),
        )


def is_one_value(numbers: Numbers) -> bool:
    """Whether all ``numbers`` are one that is held once."""
    return numbers.strides == (0,)


def one_value(value: object, kind: npt.DTypeLike, length: int) -> Numbers:
    """This many times ``value``, held once."""
    return np.broadcast_to(np.array(value, kind), (length,))


def ones_as_one_value(counts: Positions) -> Positions:
    """``counts``, held as one value where each is 1."""
    return one_value(1, np.int64, len(counts)) if (counts == 1).all() else counts


def _take_numbers(numbers: Numbers, entries: Positions) -> Numbers:
    return numbers[: len(entries)] if is_one_value(numbers) else numbers[entries]


def _with_rows_in_order(content: Content) -> Content:
    rows = content.rows.take(pa.array(expanded(content.starts, content.counts)))
    return replace(content, rows=rows, starts=_starts_of(content.counts))


def _starts_of(counts: Positions) -> Positions:
    return np.arange(len(counts)) if is_one_value(counts) else counts.cumsum() - counts


def content_of(learned: Sequence[Answers]) -> Content:
    """One content of all answers ``learned``; the last answer to a key counts."""
    sizes = [each.keys.num_rows for each in learned]
    before = np.cumsum([0, *sizes[:-1]])
    asked = pa.concat_tables([each.keys for each in learned])
    keys = comparable(asked)
    positions = _shift_positions([each.positions for each in learned], before)
    missing = _shift_positions([each.missing for each in learned], before)
    rows = _one_batch(pa.concat_tables([each.rows for each in learned]))
    if (np.diff(positions) < 0).any():
        order = np.argsort(positions, kind="stable")
        positions, rows = positions[order], rows.take(pa.array(order))
    counts = ones_as_one_value(np.bincount(positions, minlength=keys.num_rows))
    known = counts > 0
    known[missing] = True
    is_exact = hash_is_exact(asked.schema)
    keyed_by = (
        () if is_exact or not is_one_value(counts) else _columns_equal_to_keys(keys, asked.schema, rows)
    )
    everything = Content(
        hashes_of(keys),
        _starts_of(counts),
        counts,
        _repeat_times([float(each.asked) for each in learned], sizes),
        one_value(0, np.uint32, keys.num_rows),
        None if is_exact or keyed_by else keys,
        rows,
        keyed_by,
    )
    content = everything.in_order(known)
    return _with_rows_in_order(content) if content.has_rows_of_no_entry else content


def _columns_equal_to_keys(keys: pa.RecordBatch, schema: pa.Schema, rows: pa.RecordBatch) -> tuple[str, ...]:
    """The columns of ``rows`` that hold the same ``keys``, one in each row; none where they are others.

    A source may find a row by a key that is not the same to us, as where it compares texts in any case.
    """
    kinds = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    if any(kinds.get(column.name) != column.type or is_null_key(column) for column in schema):
        return ()
    held = comparable(pa.Table.from_batches([rows.select(schema.names)]))
    return tuple(schema.names) if equal(held, keys).all() else ()


def merged(contents: Sequence[Content]) -> Content:
    """All ``contents``, from the oldest to the newest, as one; of equal keys the newest counts."""
    sizes = [each.rows.num_rows for each in contents]
    before = np.cumsum([0, *sizes[:-1]])
    keyed_by, *others = {each.keyed_by for each in contents}
    keys = []
    if others or contents[0].keys is not None:
        keys, keyed_by = [each.keys_of(np.arange(len(each))) for each in contents], ()
    everything = Content(
        np.concatenate([each.hashes for each in contents]),
        np.concatenate([each.starts + start for each, start in zip(contents, before, strict=True)]),
        ones_as_one_value(np.concatenate([each.counts for each in contents])),
        np.concatenate([each.loaded for each in contents]),
        np.concatenate([each.used for each in contents]),
        _one_batch(pa.Table.from_batches(keys)) if keys else None,
        contents[0].rows.slice(0, 0),  # they are taken at the end, once
        keyed_by,
    )
    content = everything.in_order(np.ones(len(everything), np.bool_))
    rows = _take_rows([each.rows for each in contents], expanded(content.starts, content.counts))
    return replace(content, rows=rows, starts=_starts_of(content.counts))


def _take_rows(batches: Sequence[pa.RecordBatch], numbers: Positions) -> pa.RecordBatch:
    """The rows with these ``numbers``, where those of the first batch are the first.

    Column by column: so no more than one is put together before its values are taken.
    """
    schema, wanted = batches[0].schema, pa.array(numbers)
    columns = (pa.chunked_array([batch.column(place) for batch in batches]) for place in range(len(schema)))
    return pa.RecordBatch.from_arrays([_one_array(column).take(wanted) for column in columns], schema=schema)


def expanded(starts: Positions, counts: Positions) -> Positions:
    """The numbers from each start on, so many as it has."""
    if is_one_value(counts):
        return starts
    firsts: Positions = np.repeat(starts - (counts.cumsum() - counts), counts)
    return firsts + np.arange(len(firsts))


def _repeat_times(times: Sequence[float], sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    if len(set(times)) == 1:
        return one_value(times[0], np.float64, sum(sizes))
    return np.repeat(times, sizes)


def _shift_positions(positions: Sequence[pa.Array], before: Positions) -> Positions:
    parts = [
        each.to_numpy(zero_copy_only=False).astype(np.int64) + start
        for each, start in zip(positions, before, strict=True)
    ]
    return np.concatenate(parts)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_one_array(column) for column in table.columns], schema=table.schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """``column`` in one piece, which is copied only where there are more."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
