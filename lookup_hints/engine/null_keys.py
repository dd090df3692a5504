"""Keys with NULLs, as sources are asked: by the other columns, where these are NULL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import conform, positions_of
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, Outcomes, PlacedRows


def look_up(lookup: Callable[[LookupRequest], Answer], request: LookupRequest) -> Answer:
    """The answer to ``request``, whose keys may hold NULLs: a lookup for each set of NULL columns."""
    parts = list(_parts_by_nulls(request))
    if not parts:
        return lookup(request)
    return _merged_answer(request, [(positions, lookup(part)) for positions, part in parts])


async def look_up_async(
    lookup: Callable[[LookupRequest], Awaitable[Answer]], request: LookupRequest
) -> Answer:
    """``look_up`` by an async lookup; one part after the other, as they share one slot."""
    parts = list(_parts_by_nulls(request))
    if not parts:
        return await lookup(request)
    return _merged_answer(request, [(positions, await lookup(part)) for positions, part in parts])


def _parts_by_nulls(request: LookupRequest) -> Iterator[tuple[pa.Array, LookupRequest]]:
    """The keys that are NULL in the same columns, as requests, with their positions; none without a NULL."""
    keys = request.keys
    nullable = [name for name in request.key_columns if keys.column(name).null_count]
    if not nullable:
        return
    bits = [
        pc.multiply(keys.column(name).is_null().cast(pa.int64()), 1 << n) for n, name in enumerate(nullable)
    ]
    patterns = reduce(pc.add, bits)
    for pattern in pc.unique(patterns).to_pylist():
        nulls = tuple(name for number, name in enumerate(nullable) if pattern >> number & 1)
        positions = pc.indices_nonzero(pc.equal(patterns, pattern).combine_chunks())
        own = keys.take(positions).drop_columns(list(nulls))
        yield positions.cast(pa.int32()), replace(request, keys=own, nulls=nulls)


def _merged_answer(request: LookupRequest, found: Sequence[tuple[pa.Array, Answer]]) -> Answer:
    tables, places = [request.schema.empty_table()], [pa.array([], pa.int32())]
    failures: dict[int, Exception] = {}
    notes: dict[int, Any] = {}
    for positions, answer in found:
        rows = answer.rows if isinstance(answer, PlacedRows) else answer
        if not isinstance(rows, pa.Table):
            return answer  # which breaks the contract, and is refused as such
        rows = conform(rows, request.schema, "a connector that is asked for NULL")
        own = answer.positions if isinstance(answer, PlacedRows) else None
        if own is None:
            at = positions_of(rows, request.keys)
            rows, at = rows.filter(at.is_valid()), at.drop_null()
        else:
            at = positions.take(own)
        tables.append(rows)
        places.append(at.cast(pa.int32()))
        if isinstance(answer, Outcomes):
            failures |= {positions[each].as_py(): error for each, error in answer.failures.items()}
            notes |= {positions[each].as_py(): note for each, note in answer.notes.items()}
    return Outcomes(pa.concat_tables(tables), pa.concat_arrays(places), failures, notes)
