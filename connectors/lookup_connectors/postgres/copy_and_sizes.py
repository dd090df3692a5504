"""How a whole table is read: by ranges of blocks, or by COPY."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence

import asyncpg
import pyarrow as pa
from pyarrow import csv

from lookup_connectors.postgres.columns import PostgresColumn
from lookup_connectors.postgres.packed_columns import BYTES, floats_in
from lookup_connectors.shared.sql_parts import even_ends

CHUNK_BYTES = 1024 * 1024
"""About so much becomes one batch."""

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

ONE_MOMENT = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL idle_in_transaction_session_timeout = 0
"""
"""What lets many statements read as of one moment, however slowly what they read is taken."""

REWRITTEN = """
SELECT coalesce(bool_or(part.relfilenode NOT IN (0, pg_catalog.pg_relation_filenode(part.oid))), false)
FROM (SELECT $1::oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree($1::oid::regclass)) AS given
     JOIN pg_catalog.pg_class AS part ON part.oid = given.oid AND part.relkind IN ('r', 'm')
"""
"""Whether a table has been written anew since the moment of which is read, when it looks empty.

The function tells the file of now, the catalog that of the moment, or 0 for tables of the catalog itself. Ask
when the table is locked.
"""

# More than rows in a block.
_PLACES = 2048

# So many are read at once, and have less than a gigabyte even where values in rows are compressed well.
_MOST_PLACES = 256 * _PLACES

_MOST_BYTES = 8 * CHUNK_BYTES

_RANGE = re.compile(r"(\d+)-(\d*)")
_CSV = {"bigint": pa.int64(), "float8": pa.float64(), "boolean": pa.bool_()}


# Ranges of blocks need no index, no column of numbers and no statistics, and are even. (docs/decisions/0146)
def ranges(blocks: int, wanted: int) -> tuple[str, ...]:
    """Up to ``wanted`` ranges of blocks; the last one has no end, as the table may grow.

    >>> ranges(4000, 3)
    ('0-1333', '1333-2666', '2666-')
    >>> ranges(4000, 100), ranges(100, 8)
    (('0-1333', '1333-2666', '2666-'), ('',))
    """
    ends = even_ends(0, blocks, wanted, FEWEST_BLOCKS)
    if not ends:
        return ("",)
    return tuple(f"{begin}-{end}" for begin, end in zip([0, *ends], [*ends, ""], strict=True))


def blocks_of(partition: str, blocks: int) -> tuple[int, int]:
    """The first block of a range, and the one after its last; all ``blocks`` for none.

    Raises:
        ValueError: this is no range.

    >>> blocks_of("0-1024", 4000), blocks_of("1024-", 4000), blocks_of("", 4000)
    ((0, 1024), (1024, 4000), (0, 4000))
    """
    found = _RANGE.fullmatch(partition or "0-")
    if found is None:
        raise ValueError(f"{partition!r} is no range of blocks")
    return int(found[1]), int(found[2] or blocks)


IN_RANGE = "ctid >= $1 AND ctid < $2"
"""Rows of a range of places: a scan of these blocks alone."""


async def read_ranges(
    connection: asyncpg.Connection, query: str, begin: int, end: int
) -> AsyncGenerator[list[bytes], None]:
    """What ``query`` packs of the rows from block ``begin`` to ``end``, range by range, with one under way.

    Its parameters are two places and the bytes that an answer may have. It answers with how many rows and
    bytes there are, and the packed columns. Where they are too large, a shorter range is read.
    """
    place, step, limit = begin * _PLACES, 32 * _PLACES, _MOST_BYTES

    async def read_next() -> list[bytes] | None:
        nonlocal place, step, limit
        while place < end * _PLACES:
            places = [divmod(at, _PLACES) for at in (place, min(place + step, end * _PLACES))]
            rows, size, *parts = await connection.fetchrow(query, *places, limit)
            fitting = max(1, step * CHUNK_BYTES // max(size, 1))
            if size > limit:
                step, limit = min(step, fitting), limit if step > 1 else size
                continue
            place, step, limit = place + step, min(fitting, 2 * step, _MOST_PLACES), _MOST_BYTES
            if rows:
                return [part or b"" for part in parts]
        return None

    reading = asyncio.ensure_future(read_next())
    try:
        while (parts := await reading) is not None:
            reading = asyncio.ensure_future(read_next())
            await asyncio.sleep(0)  # it is sent before these are handed out
            yield parts
    finally:
        if not reading.done():
            connection.terminate()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


# For tables whose rows have no places. Arrow parses CSV several times as fast as a cursor of the driver makes
# Python objects of the values. (docs/decisions/0146)
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
    return [_read_bytes(column, plan.wire) for column, plan in zip(columns, plans, strict=True)]


def _read_bytes(column: pa.Array, wire: str) -> pa.Array:
    if wire not in BYTES:
        return column
    values = _decode_hex(column)
    return floats_in(values) if wire == "floats" else values


def _decode_hex(texts: pa.Array) -> pa.Array:
    """What ``texts`` spell as `bytea_output` = hex does; the other form may look like hex, too."""
    values = texts.to_pylist()
    if any(not (value is None or value.startswith("\\x")) for value in values):
        raise ValueError("not hex")
    return pa.array([None if value is None else bytes.fromhex(value[2:]) for value in values], pa.binary())
