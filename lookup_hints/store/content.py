"""Keys with their rows, on their way into a segment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_hints.store.hashing import Hashes, comparable, hashes_of

Positions = npt.NDArray[np.int64]
Chosen = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Learned:
    """What a source answered.

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
class Known:
    """What a store has of the keys that it was asked.

    Args:
        found: rows, and for each the position of its key; those of one key stand together.
        missing: the positions of the keys that are known to have none.
        late: rows of other keys that are too old, but may be used while they are asked for anew.
        stale: rows of still others, which may be used where asking fails.
    """

    found: tuple[tuple[pa.Table, pa.Array], ...]
    missing: pa.Array
    late: tuple[tuple[pa.Table, pa.Array], ...] = ()
    stale: tuple[tuple[pa.Table, pa.Array], ...] = ()


@dataclass(frozen=True)
class Content:
    """Entries in ascending order of their hashes, no two of which are equal, and their rows in that order.

    Args:
        hashes: of the keys.
        starts: the first row of each.
        counts: how many rows each has; 0 for a key that is known to have none.
        loaded: when each was asked for.
        used: when each was last used, in whole seconds from 1 on; 0 for not since then.
        keys: the keys, as they are compared.
        rows: the rows, those of one key side by side.
    """

    hashes: Hashes
    starts: Positions
    counts: Positions
    loaded: npt.NDArray[np.float64]
    used: npt.NDArray[np.uint32]
    keys: pa.RecordBatch
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def held(self) -> int:
        """Its rows; a key that is known to have none counts as one."""
        return int(np.maximum(self.counts, 1).sum())

    def only(self, chosen: Chosen) -> Content:
        """The ``chosen`` entries, and none but their rows."""
        if chosen.all():
            return self
        kept = replace(
            self,
            hashes=self.hashes[chosen],
            starts=self.starts[chosen],
            counts=self.counts[chosen],
            loaded=self.loaded[chosen],
            used=self.used[chosen],
            keys=self.keys.filter(pa.array(chosen)),
        )
        return kept.with_rows_in_order()

    def with_rows_in_order(self) -> Content:
        """The same with the rows of all entries, and no others, one after the other."""
        rows = self.rows.take(pa.array(expanded(self.starts, self.counts)))
        return replace(self, rows=rows, starts=self.counts.cumsum() - self.counts)


def content_of(learned: Sequence[Learned]) -> Content:
    """What was ``learned``, one after the other; of a key that is there twice the last answer counts."""
    sizes = [each.keys.num_rows for each in learned]
    before = np.cumsum([0, *sizes[:-1]])
    keys = comparable(pa.concat_tables([each.keys for each in learned]))
    positions = _joined([each.positions for each in learned], before)
    missing = _joined([each.missing for each in learned], before)
    rows = _one_batch(pa.concat_tables([each.rows for each in learned]))
    if (np.diff(positions) < 0).any():
        order = np.argsort(positions, kind="stable")
        positions, rows = positions[order], rows.take(pa.array(order))
    counts = np.bincount(positions, minlength=keys.num_rows).astype(np.int64)
    known = counts > 0
    known[missing] = True
    everything = Content(
        hashes_of(keys),
        counts.cumsum() - counts,
        counts,
        np.repeat([float(each.asked) for each in learned], sizes),
        np.zeros(keys.num_rows, np.uint32),
        keys,
        rows,
    )
    return _in_order(everything, known)


def merged(contents: Sequence[Content]) -> Content:
    """All ``contents``, from the oldest to the newest, as one; of equal keys the newest counts."""
    sizes = [each.rows.num_rows for each in contents]
    before = np.cumsum([0, *sizes[:-1]])
    everything = Content(
        np.concatenate([each.hashes for each in contents]),
        np.concatenate([each.starts + start for each, start in zip(contents, before, strict=True)]),
        np.concatenate([each.counts for each in contents]),
        np.concatenate([each.loaded for each in contents]),
        np.concatenate([each.used for each in contents]),
        _one_batch(pa.Table.from_batches([each.keys for each in contents])),
        _one_batch(pa.Table.from_batches([each.rows for each in contents])),
    )
    return _in_order(everything, np.ones(len(everything), np.bool_))


def expanded(starts: Positions, counts: Positions) -> Positions:
    """The numbers from each start on, so many as it has."""
    firsts: Positions = np.repeat(starts - (counts.cumsum() - counts), counts)
    return firsts + np.arange(len(firsts))


def _in_order(content: Content, known: Chosen) -> Content:
    """The ``known`` entries by their hashes; the last of those with equal hashes, be it that of another key.

    Two keys of one hash are so rare that only one of them is kept.
    """
    order = np.argsort(content.hashes)
    is_last = np.diff(content.hashes[order]) > 0
    if not is_last.all():
        order = np.argsort(content.hashes, kind="stable")
        known[order[:-1][~is_last]] = False
    order = order[known[order]]
    return replace(
        content,
        hashes=content.hashes[order],
        starts=content.starts[order],
        counts=content.counts[order],
        loaded=content.loaded[order],
        used=content.used[order],
        keys=content.keys.take(pa.array(order)),
    ).with_rows_in_order()


def _joined(positions: Sequence[pa.Array], before: Positions) -> Positions:
    parts = [
        each.to_numpy(zero_copy_only=False).astype(np.int64) + start
        for each, start in zip(positions, before, strict=True)
    ]
    return np.concatenate(parts)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise pa.ArrowInvalid("a segment holds no more than fits into one array")
    return (
        batches[0]
        if batches
        else pa.RecordBatch.from_arrays(
            [pa.array([], kind) for kind in table.schema.types], schema=table.schema
        )
    )
