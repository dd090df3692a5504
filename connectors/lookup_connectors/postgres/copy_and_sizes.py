"""How much is read at once: answers of a size that is known before, and whole tables by COPY."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Sequence

import asyncpg
import pyarrow as pa
from pyarrow import csv

from lookup_connectors.postgres.columns import PostgresColumn
from lookup_connectors.shared.bytes_in_flight import BytesInFlight

COPIES = 4
"""So often an answer is in memory while it is read: as it came, joined, as Python's objects, as columns."""

_CONNECTIONS = 4
_LEAST = 256 * 1024


class AnswerSizes:
    def __init__(self, in_flight: int, row_bytes: float) -> None:
        self.budget = BytesInFlight(in_flight)
        self.largest = max(1, in_flight // COPIES // _CONNECTIONS)
        """Bytes that one answer for several keys may have."""
        self._key_bytes = row_bytes

    def fitting(self) -> int:
        """For how many keys an answer should not be too large."""
        return max(1, int(self.largest / max(1.0, self._key_bytes)))

    def limit(self, keys: int) -> int:
        """The bytes that the answer to a request for this many keys may have."""
        if not self._key_bytes:
            return self.largest
        return int(min(self.largest, max(_LEAST, 4 * keys * self._key_bytes)))

    def saw(self, keys: int, size: int) -> None:
        """An answer for so many keys had so many bytes. Wide rows count at once, narrow ones by and by."""
        seen = size / keys
        self._key_bytes = max(seen, (self._key_bytes + seen) / 2)


# --- a whole table --------------------------------------------------------------------------------

# Arrow parses CSV several times as fast as a driver makes objects of rows.
CHUNK_BYTES = 1024 * 1024
"""So much of CSV becomes one batch."""

FEWEST_BLOCKS = 1024
"""A partition of fewer blocks (8 MB) is not worth a connection."""

BLOCKS = """
SELECT coalesce(max(pg_catalog.pg_relation_size(part.oid)), 0) / current_setting('block_size')::bigint
FROM (SELECT $1::oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree($1::oid::regclass)) AS given
     JOIN pg_catalog.pg_class AS part ON part.oid = given.oid
     LEFT JOIN pg_catalog.pg_am AS method ON method.oid = part.relam
HAVING bool_and(part.relkind = 'p' OR part.relkind IN ('r', 'm') AND method.amname = 'heap')
       AND current_setting('server_version_num')::int >= 140000
"""
"""How many blocks the largest part of a table has; no row where rows have no place, as those of views."""

_RANGE = re.compile(r"(\d+)-(\d*)")
_CSV = {"bigint": pa.int64(), "float8": pa.float64(), "boolean": pa.bool_()}


def ranges(blocks: int, wanted: int) -> tuple[str, ...]:
    """Up to ``wanted`` ranges of blocks; the last one has no end, as the table may grow.

    >>> ranges(4000, 3)
    ('0-1333', '1333-2666', '2666-')
    >>> ranges(4000, 100), ranges(100, 8)
    (('0-1333', '1333-2666', '2666-'), ('',))
    """
    count = min(wanted, blocks // FEWEST_BLOCKS)
    if count < 2:
        return ("",)
    ends = [blocks * part // count for part in range(1, count)]
    return tuple(f"{begin}-{end}" for begin, end in zip([0, *ends], [*ends, ""], strict=True))


def where_of(partition: str, conditions: Iterable[str] = ()) -> str:
    """The WHERE of a range of blocks, and of the ``conditions`` that there are; empty for all rows.

    Raises:
        ValueError: this is no range.

    >>> where_of("0-1024"), where_of(""), where_of("", ["a > 1", ""])
    (" WHERE ctid >= '(0,0)' AND ctid < '(1024,0)'", '', ' WHERE a > 1')
    """
    found = list(filter(None, [_condition_of(partition) if partition else "", *conditions]))
    return f" WHERE {' AND '.join(found)}" if found else ""


def _condition_of(partition: str) -> str:
    found = _RANGE.fullmatch(partition)
    if found is None:
        raise ValueError(f"{partition!r} is no range of blocks")
    end = f" AND ctid < '({found[2]},0)'" if found[2] else ""
    return f"ctid >= '({found[1]},0)'{end}"


async def copied(connection: asyncpg.Connection, query: str) -> AsyncGenerator[bytes, None]:
    """The rows of ``query`` as CSV, in chunks of whole rows; the server is read as fast as they are taken.

    Each message of the server is one row (PostgreSQL's documentation, "COPY Operations").
    """
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = asyncio.Semaphore(1)
    held = bytearray()

    async def take(rows: bytes) -> None:
        held.extend(rows)
        if len(held) >= CHUNK_BYTES:
            await room.acquire()
            chunks.put_nowait(bytes(held))
            held.clear()

    copying = asyncio.ensure_future(connection.copy_from_query(query, output=take, format="csv"))
    copying.add_done_callback(lambda _: chunks.put_nowait(None))
    try:
        while (chunk := await chunks.get()) is not None:
            yield chunk
            room.release()
        await copying
        if held:
            yield bytes(held)
    finally:
        if not copying.done():
            # asyncpg 0.32 stumbles over the rows that still come for a copy that was left.
            connection.terminate()
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)


def csv_columns(data: bytes, plans: Sequence[PostgresColumn]) -> list[pa.Array]:
    """The columns of CSV, in types of the wire: an empty field is NULL, a quoted one is a text."""
    names = [str(number) for number in range(len(plans))]
    kinds = [_CSV.get(plan.wire, pa.string()) for plan in plans]
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict(zip(names, kinds, strict=True)),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [column.combine_chunks() for column in table.columns]
    return [
        _octets(column) if plan.wire == "bytea" else column
        for column, plan in zip(columns, plans, strict=True)
    ]


def _octets(texts: pa.Array) -> pa.Array:
    """What ``texts`` spell as `bytea_output` = hex does; the other form may look like hex, too."""
    values = texts.to_pylist()
    if any(not (value is None or value.startswith("\\x")) for value in values):
        raise ValueError("not hex")
    return pa.array([None if value is None else bytes.fromhex(value[2:]) for value in values], pa.binary())
