"""What is told of PostgreSQL itself, whichever driver asks it: nothing here needs one.

What its SQLSTATEs say of a failure, which characters it does not have, and how large a table is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.spi import Ending, TableSize

# Classes and codes of SQLSTATE for which asking again cannot help. All others may pass: a lost or refused
# connection (08, 53, 57), a deadlock or serialization failure (40), a lock (55), an I/O error (58).
_PERMANENT = re.compile("0A|22|25006|26|28|2F|3D|3F|42|54")
_TOO_MUCH = ("53", "57014")
# How SQLSTATEs begin of a server with too much to do, and of one that is not there, or not for long.
_GONE = ("08", "57P")


def is_permanent(state: str) -> bool:
    """Whether asking again cannot help, by the SQLSTATE of a failure."""
    return _PERMANENT.match(state) is not None


def ending_of(state: str) -> Ending:
    """Too many connections and the like are a refusal, shutdowns no answer."""
    if state.startswith(_TOO_MUCH):
        return "refused"
    return "lost" if state.startswith(_GONE) else "unknown"


# --- characters -----------------------------------------------------------------------------------


def unheld_character(error: str) -> str:
    """The character that ``error`` (SQLSTATE 22P05) names, which the server's encoding has not; else nothing.

    No row holds a key with such a character, so it is a miss. Which these are only the server knows: its
    tables are not those of Python's codecs.
    """
    named = re.search(r"(0x[0-9a-f]{2} ?)+", error)
    character = bytes.fromhex(named[0].replace("0x", "")).decode(errors="ignore") if named else ""
    return character if len(character) == 1 and not character.isascii() else ""


def without_characters(keys: pa.Table, characters: Collection[str]) -> pa.Table:
    """``keys`` without those that hold one of ``characters``."""
    pattern = f"[{''.join(map(re.escape, sorted(characters)))}]"
    for name in keys.column_names if characters else ():
        if types.is_string(keys.schema.field(name).type):
            keys = keys.filter(pc.invert(pc.match_substring_regex(keys.column(name), pattern)))
    return keys


# --- sizes ----------------------------------------------------------------------------------------

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
