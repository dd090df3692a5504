"""Rows of an answer that share one declared primary key: the first of them, or an error for each key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import Placed, distinct_keys
from lookup_hints.engine.event_log import shown_key
from lookup_hints.errors import ConnectorError


def first_rows(found: Placed, key: Sequence[str]) -> Placed:
    """``found`` without the later rows of each ``key``, in its order; rows with a NULL in it stay."""
    groups = _group_rows(found, key)
    _, firsts = np.unique(groups, return_index=True)
    return found if len(firsts) == len(groups) else _take_rows(found, np.sort(firsts))


def positions_with_several(found: Placed, key: Sequence[str]) -> pa.Array:
    """The positions of keys that were asked for which ``found`` has several rows of one ``key``."""
    groups = _group_rows(found, key)
    _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    return found.positions.take(pa.array(firsts[counts > 1])).unique()


def errors_by_position(found: Placed, key: Sequence[str]) -> dict[int, Exception]:
    """An error for each position with several rows of one ``key``, which names the first such key."""
    _, firsts, counts = np.unique(_group_rows(found, key), return_index=True, return_counts=True)
    errors: dict[int, Exception] = {}
    for first, count in sorted(zip(firsts.tolist(), counts.tolist(), strict=True)):
        if count > 1:
            which = shown_key(found.rows.select(list(key)).slice(first, 1))
            text = f"{count:,} rows have the primary key {which}, and 'multiple-match' = 'error' allows one"
            errors.setdefault(found.positions[first].as_py(), ConnectorError(text, permanent=True))
    return errors


def _group_rows(found: Placed, key: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each row a number that those of the same position and ``key`` share; one of its own for a NULL."""
    count = found.rows.num_rows
    codes = distinct_keys(found.rows.select(list(key))).codes
    known = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    known = np.where(known < 0, count + np.arange(count), known)
    positions = found.positions.to_numpy(zero_copy_only=False).astype(np.int64)
    groups: np.ndarray[tuple[int], np.dtype[np.int64]] = positions * (2 * count + 1) + known
    return groups


def _take_rows(found: Placed, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Placed:
    chosen = pa.array(rows)
    return Placed(found.rows.take(chosen), found.positions.take(chosen))
