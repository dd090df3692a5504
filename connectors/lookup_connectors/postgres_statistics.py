"""How large PostgreSQL says that a table is, without reading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lookup_hints.spi import TableSize

if TYPE_CHECKING:
    import asyncpg

SECONDS = 1.0
"""The server ends a statement that takes longer: it waits for a lock, and planning does not."""

# As the server's own planner does, rows are scaled by the growth since the table was analysed: old
# statistics of a small table must not hide that it is large by now. Parts of a partitioned table are counted
# one by one, as nothing analyses its root by itself. No rows and no pages is what servers before 14 say of
# tables that they never analysed.
SIZE = """
WITH RECURSIVE parts(oid) AS (
  SELECT to_regclass($1)::oid
  UNION
  SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN parts ON i.inhparent = parts.oid
), sizes AS (
  SELECT c.relkind, c.reltuples::float8 AS tuples,
         c.relpages * current_setting('block_size')::float8 AS then_bytes,
         pg_relation_size(c.oid)::float8 AS bytes,
         coalesce(pg_relation_size(c.reltoastrelid), 0)::float8 AS toast_bytes
  FROM pg_catalog.pg_class AS c JOIN parts ON parts.oid = c.oid
), told AS (
  SELECT bytes + toast_bytes AS bytes,
         CASE WHEN relkind <> 'f' AND bytes = 0 THEN 0
              WHEN tuples < 0 OR tuples = 0 AND then_bytes = 0 THEN NULL
              WHEN relkind = 'f' OR then_bytes = 0 THEN tuples
              ELSE tuples * bytes / then_bytes END AS rows
  FROM sizes WHERE relkind IN ('r', 'm', 'f')
)
SELECT (SELECT c.relkind::text FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass($1)) AS kind,
       count(*) AS parts, bool_and(rows IS NOT NULL) AS is_known,
       sum(rows)::bigint AS rows, sum(bytes)::bigint AS bytes,
       (SELECT json_object_agg(s.attname, s.n_distinct)::text
        FROM pg_catalog.pg_stats AS s, pg_catalog.pg_class AS c
        WHERE c.oid = to_regclass($1) AND s.schemaname = c.relnamespace::regnamespace::text
          AND s.tablename = c.relname AND s.inherited = (c.relkind = 'p')) AS distinct_values
FROM told
"""


async def table_size(connection: asyncpg.Connection, source: str) -> TableSize:
    """What the catalog says of the table or view that SQL finds under the name ``source``."""
    return size_of(await connection.fetchrow(SIZE, source, timeout=SECONDS))


def size_of(found: Mapping[str, Any]) -> TableSize:
    """What the row that ``SIZE`` gives says."""
    if found["kind"] == "v":
        return TableSize(None, source="a view has no statistics")
    if not found["parts"]:
        return TableSize(None, source="PostgreSQL has no table of that name, or it has no partition")
    size = found["bytes"] or None
    if not found["is_known"]:
        return TableSize(None, size, "never analysed: ANALYZE lets PostgreSQL know its rows")
    rows = found["rows"]
    # A negative number is a part of all rows: it grows with them.
    told = json.loads(found["distinct_values"] or "{}")
    distinct = {name: round(-each * rows if each < 0 else each) for name, each in told.items()}
    return TableSize(rows, size, "pg_class", distinct=distinct)
