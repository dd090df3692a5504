"""Keys with NULLs, as sources are asked: by the other columns, where these are NULL."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import is_null_key
from lookup_hints.spi.request_and_answer import LookupRequest


# Each set of NULL columns is a request of its own, with its permit, time and failure: a source that cannot
# answer for NULL still answers for the others.
def alike_in_nulls(keys: pa.Table, positions: pa.Array) -> pa.Array | None:
    """Which ``positions`` have keys that are NULL where that of the first is; None if all have."""
    nullable = _columns_with_nulls(keys)
    if not nullable:
        return None
    are_null = [keys.column(name).take(positions).combine_chunks().is_null() for name in nullable]
    alike = reduce(pc.and_, [pc.equal(each, each[0]) for each in are_null])
    return None if pc.all(alike).as_py() else alike


def null_columns_at(keys: pa.Table, position: int) -> tuple[str, ...]:
    """The columns in which the key at ``position`` is NULL."""
    return tuple(name for name in _columns_with_nulls(keys) if not keys.column(name)[position].is_valid)


def ask_beside_nulls(request: LookupRequest) -> LookupRequest:
    """``request``, whose keys are NULL in the same columns, as its connector gets it: keys without these."""
    nulls = null_columns_at(request.keys, 0)
    return replace(request, keys=request.keys.drop_columns(list(nulls)), nulls=nulls) if nulls else request


def _columns_with_nulls(keys: pa.Table) -> list[str]:
    return [each.name for each in keys.schema if is_null_key(each) and keys.column(each.name).null_count]
