"""What PostgreSQL's catalog says of a table or view, and whether it still says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import asyncpg
import pyarrow as pa

from lookup_connectors.postgres_types import PostgresColumn, SourceColumn, missing_column, plan_column
from lookup_hints.errors import ConnectorError, nearest
from lookup_hints.spi import LookupTable

_RELATION = """
SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS sql,
       CASE WHEN c.reltuples > 0
            THEN (c.relpages + coalesce(t.relpages, 0)) * 8192.0::float8 / c.reltuples END AS row_bytes
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_class AS t ON t.oid = c.reltoastrelid
WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_RELATIONS = """
SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname ELSE n.nspname || '.' || c.relname END AS name
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^(pg_|information_schema$)'
ORDER BY 1 LIMIT 1000
"""
_COLUMNS = """
WITH RECURSIVE attributes AS (
  SELECT attnum, attname, atttypid AS declared, atttypid AS type, atttypmod AS modifier,
         attndims::int AS dimensions
  FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
  UNION ALL
  SELECT attnum, attname, declared, typbasetype, typtypmod, typndims
  FROM attributes JOIN pg_catalog.pg_type ON oid = type WHERE typtype = 'd'
)
SELECT attname AS name,
       CASE WHEN typtype = 'e' THEN 'enum'
            WHEN typnamespace = 'pg_catalog'::regnamespace THEN typname::text
            WHEN typcategory = 'A' THEN '_' ELSE '' END AS type,
       coalesce(element.name, '') AS element, coalesce(element.modifier, -1) AS element_modifier, dimensions,
       format_type(oid, attributes.modifier) AS sql,
       attributes.modifier,
       typcategory = 'A' OR typtype = 'c' OR typname = 'hstore' AS structured,
       declared::bigint AS oid
FROM attributes JOIN pg_catalog.pg_type ON oid = type
LEFT JOIN LATERAL (
  WITH RECURSIVE bases AS (
    SELECT e.oid, e.typtype, e.typbasetype, attributes.modifier, e.typtypmod FROM pg_catalog.pg_type AS e
    WHERE pg_type.typcategory = 'A' AND e.oid = pg_type.typelem
    UNION ALL
    SELECT e.oid, e.typtype, e.typbasetype, bases.typtypmod, e.typtypmod
    FROM bases JOIN pg_catalog.pg_type AS e ON e.oid = bases.typbasetype WHERE bases.typtype = 'd'
  )
  SELECT e.typname::text AS name, bases.modifier FROM bases JOIN pg_catalog.pg_type AS e USING (oid)
  WHERE bases.typtype <> 'd' AND e.typnamespace = 'pg_catalog'::regnamespace
) AS element ON true
WHERE typtype <> 'd' ORDER BY attnum
"""
_PRIMARY_KEY = """
SELECT a.attname AS name
FROM pg_catalog.pg_constraint AS k
CROSS JOIN unnest(k.conkey) WITH ORDINALITY AS part(attnum, place)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = part.attnum
WHERE k.conrelid = $1 AND k.contype = 'p' ORDER BY part.place
"""
_UNIQUE_INDEX = """
SELECT a.attname AS name
FROM (
  SELECT i.indrelid, i.indkey, i.indnkeyatts FROM pg_catalog.pg_index AS i
  WHERE i.indrelid = $1 AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_attribute AS n
      WHERE n.attrelid = $1 AND n.attnum = ANY ((i.indkey::int2[])[:i.indnkeyatts - 1]) AND NOT n.attnotnull)
  ORDER BY i.indnkeyatts, i.indexrelid LIMIT 1
) AS k
CROSS JOIN unnest(k.indkey) WITH ORDINALITY AS part(attnum, place)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.indrelid AND a.attnum = part.attnum
WHERE part.place <= k.indnkeyatts ORDER BY part.place
"""
_COMMENTS = """
SELECT attname AS name, col_description(attrelid, attnum) AS comment FROM pg_catalog.pg_attribute
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND col_description(attrelid, attnum) IS NOT NULL
"""
_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname) AS name
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname !~ '^(pg_|information_schema$)' AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1
"""


@dataclass(frozen=True)
class CatalogRelation:
    """A table or view found in the catalog.

    Args:
        oid: its number.
        sql: its name as SQL writes it.
        row_bytes: about how much a row takes on disk, where statistics say it.
        columns: its columns.
    """

    oid: int
    sql: str
    row_bytes: float | None
    columns: tuple[SourceColumn, ...]


async def find_relation(connection: asyncpg.Connection, source: str, table: str) -> CatalogRelation:
    """The table or view that SQL finds under the name ``source``.

    Raises:
        ConnectorError: there is none; the message has the nearest name.
    """
    found = await connection.fetchrow(_RELATION, source)
    if found is None:
        known = [record["name"] for record in await connection.fetch(_RELATIONS)]
        raise ConnectorError(
            f"table {table}: PostgreSQL has no table or view {source}. {nearest(source, known)}".rstrip(),
            permanent=True,
        )
    columns = await connection.fetch(_COLUMNS, found["oid"])
    return CatalogRelation(**dict(found), columns=tuple(SourceColumn(**dict(column)) for column in columns))


async def primary_key(connection: asyncpg.Connection, relation: CatalogRelation) -> tuple[str, ...]:
    """The columns of its primary key, else of a unique index over few columns that hold no NULL; or none."""
    found = await connection.fetch(_PRIMARY_KEY, relation.oid)
    return tuple(each["name"] for each in found or await connection.fetch(_UNIQUE_INDEX, relation.oid))


async def comments(connection: asyncpg.Connection, relation: CatalogRelation) -> dict[str, str]:
    """The comments on its columns."""
    return {each["name"]: each["comment"] for each in await connection.fetch(_COMMENTS, relation.oid)}


async def readable_tables(connection: asyncpg.Connection) -> list[str]:
    """The tables and views that may be read, as SQL names them; partitions are their table's."""
    return [each["name"] for each in await connection.fetch(_TABLES)]


def plans_of(
    relation: CatalogRelation, table: LookupTable, before: Mapping[str, PostgresColumn] | None = None
) -> dict[str, PostgresColumn]:
    """How each declared column is read; ``before`` is how it was read so far.

    Raises:
        ConnectorError: a column is not there, or cannot be read as declared; the message names it, its type
            and the type that it had before.
    """
    before = before or {}
    return {field.name: _plan(relation, table, field, before.get(field.name)) for field in table.schema}


def _plan(
    relation: CatalogRelation, table: LookupTable, field: pa.Field, before: PostgresColumn | None
) -> PostgresColumn:
    source = _source_of(field.name, relation, table.name)
    try:
        return plan_column(source, field)
    except ValueError as error:
        changed = ""
        if before is not None and before.source.sql != source.sql:
            changed = f" (its type was {before.source.sql} before, and has changed to {source.sql})"
        raise ConnectorError(
            f"table {table.name}: column {field.name!r}{changed}: {error}", permanent=True
        ) from None


def _source_of(name: str, relation: CatalogRelation, table: str) -> SourceColumn:
    by_name = {source.name: source for source in relation.columns}
    # SQL folds a name without quotes to lower case: customerId was created as customerid.
    source = by_name.get(name) or by_name.get(name.lower())
    if source is None:
        raise ConnectorError(
            f"table {table}: {relation.sql}: {missing_column(name, relation.columns)}", permanent=True
        )
    return source


def types_unchanged(relation: str, plans: Iterable[PostgresColumn]) -> str:
    """SQL that is true where the columns of ``relation`` have the types still for which ``plans`` were made.

    A part of the statement that reads the columns: server and statement see the same types, and the check
    costs no trip of its own. It touches no row: the type of a field of NULL is known without one.
    """
    return " AND ".join(
        f"pg_typeof((NULL::{relation}).{plan.column}) = {plan.source.oid}::regtype" for plan in plans
    )
