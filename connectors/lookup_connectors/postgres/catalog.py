"""Read PostgreSQL's catalog: the size, columns and indexes of a table or view. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import pyarrow as pa

from lookup_connectors.postgres.columns import (
    PostgresColumn,
    SourceColumn,
    missing_column,
    plan_column,
    reported_type,
)
from lookup_connectors.postgres.inet_and_cidr import (
    NETWORK_COLUMN,
    AddressColumn,
    address_column,
    plan_addresses,
)
from lookup_connectors.shared.postgres_server import SECONDS, SIZE, is_permanent, size_of
from lookup_connectors.shared.source_query import (
    UNCOUNTED,
    check_names,
    derived_table,
    place_in,
    pushed_keys_check,
    query_of,
)
from lookup_connectors.shared.sql_parts import index_check as shared_index_check
from lookup_hints.errors import ConnectorError, nearest
from lookup_hints.spi import HealthCheck, HealthRequest, LookupTable, TableSize, connections_check
from lookup_hints.spi.arrow_types import sql_type

_RELATION = """
SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS sql,
       CASE WHEN c.reltuples > 0
            THEN (c.relpages + coalesce(t.relpages, 0)) * 8192.0::float8 / c.reltuples END AS row_bytes,
       c.relkind NOT IN ('r', 'm') OR coalesce(pg_relation_size(c.reltoastrelid), 0) > 0 AS is_wide
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
            WHEN typname IN ('vector', 'halfvec') AND typtype = 'b' THEN typname::text
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
# The same of a query, whose names and types the server tells when it prepares it; it tells no modifiers.
_QUERY_COLUMNS = _COLUMNS.replace(
    """  SELECT attnum, attname, atttypid AS declared, atttypid AS type, atttypmod AS modifier,
         attndims::int AS dimensions
  FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped
""",
    """  SELECT attnum, attname, type AS declared, type, -1 AS modifier, 1 AS dimensions
  FROM unnest($1::name[], $2::oid[]) WITH ORDINALITY AS given(attname, type, attnum)
""",
)
_INDEXED = """
SELECT DISTINCT m.amname::text AS kind
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND a.attname = $2
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
        is_wide: whether it has values that rows are too small for, or may have them.
        columns: its columns.
        searched: the kinds of indexes that the column of networks is in, where there is one.
        is_query: whether it is a query, which stands in parentheses.
    """

    oid: int
    sql: str
    row_bytes: float | None
    is_wide: bool
    columns: tuple[SourceColumn, ...]
    searched: tuple[str, ...] = ()
    is_query: bool = False

    @property
    def shown(self) -> str:
        """What messages call it."""
        return "its query" if self.is_query else self.sql


async def find_relation(connection: asyncpg.Connection, source: str, table: LookupTable) -> CatalogRelation:
    """The table or view that SQL finds under the name ``source``, or the query of ``table``."""
    query = query_of(table)
    if query is not None:
        return await _prepare_query(connection, query, table)
    found = await connection.fetchrow(_RELATION, source)
    if found is None:
        known = [record["name"] for record in await connection.fetch(_RELATIONS)]
        what = f"PostgreSQL has no table or view {source}. {nearest(source, known)}".rstrip()
        raise ConnectorError(f"table {table.name}: {what}", permanent=True)
    columns = await connection.fetch(_COLUMNS, found["oid"])
    relation = CatalogRelation(**dict(found), columns=tuple(SourceColumn(**dict(each)) for each in columns))
    networks = table.options.get(NETWORK_COLUMN.key)
    if networks is None:
        return relation
    indexed = await connection.fetch(
        _INDEXED, relation.oid, _find_source_column(networks, relation, table.name).name
    )
    return replace(relation, searched=tuple(record["kind"] for record in indexed))


async def _prepare_query(connection: asyncpg.Connection, query: str, table: LookupTable) -> CatalogRelation:
    """The query as a derived table; the server reads it, and runs nothing.

    Raises:
        ConnectorError: the server does not understand it; the message says where.
    """
    try:
        told = (await connection.prepare(query)).get_attributes()
    except asyncpg.PostgresError as error:
        at = getattr(error, "position", None)
        where = place_in(query, int(at) - 1) if at else ""
        said = str(error).partition("\n")[0]
        message = f"table {table.name}: 'query'{where}: PostgreSQL says: {said} (SQLSTATE {error.sqlstate})."
        raise ConnectorError(message, permanent=is_permanent(error.sqlstate or "")) from error
    names = [each.name for each in told]
    check_names(table, names)
    columns = await connection.fetch(_QUERY_COLUMNS, names, [each.type.oid for each in told])
    listed = tuple(SourceColumn(**dict(each)) for each in columns)
    return CatalogRelation(0, derived_table(query), None, True, listed, is_query=True)


async def primary_key(connection: asyncpg.Connection, relation: CatalogRelation) -> tuple[str, ...]:
    """The columns of its primary key, else of a unique index over few columns that hold no NULL; or none."""
    found = await connection.fetch(_PRIMARY_KEY, relation.oid)
    return tuple(each["name"] for each in found or await connection.fetch(_UNIQUE_INDEX, relation.oid))


async def comments(connection: asyncpg.Connection, relation: CatalogRelation) -> dict[str, str]:
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
    return {field.name: _plan_field(relation, table, field, before.get(field.name)) for field in table.schema}


def _plan_field(
    relation: CatalogRelation, table: LookupTable, field: pa.Field, before: PostgresColumn | None
) -> PostgresColumn:
    is_address = field.name == address_column(table)
    name = table.options[NETWORK_COLUMN.key] if is_address else field.name
    source = _find_source_column(name, relation, table.name)
    try:
        return plan_addresses(source, field, relation.searched) if is_address else plan_column(source, field)
    except ValueError as error:
        changed = ""
        if before is not None and before.source.sql != source.sql:
            changed = f" (its type was {before.source.sql} before, and has changed to {source.sql})"
        raise ConnectorError(
            f"table {table.name}: column {name!r}{changed}: {error}", permanent=True
        ) from None


def _find_source_column(name: str, relation: CatalogRelation, table: str) -> SourceColumn:
    by_name = {source.name: source for source in relation.columns}
    # SQL folds a name without quotes to lower case: customerId was created as customerid.
    source = by_name.get(name) or by_name.get(name.lower())
    if source is None:
        raise ConnectorError(
            f"table {table}: {relation.shown}: {missing_column(name, relation.columns)}", permanent=True
        )
    return source


async def table_size(connection: asyncpg.Connection, source: str, table: LookupTable) -> TableSize:
    """The size in the catalog of the table or view that SQL resolves ``source`` to; unknown of a query."""
    if query_of(table) is not None:
        return UNCOUNTED
    return size_of(await connection.fetchrow(SIZE, source, timeout=SECONDS))


# --- health ---------------------------------------------------------------------------------------

_SESSION = """
SELECT current_user AS role, current_database() AS database, current_setting('server_version') AS version
"""
_TLS = "SELECT max(version) AS tls FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"
_UNREADABLE = """
SELECT name FROM unnest($2::text[]) AS asked(name) WHERE NOT has_column_privilege($1::oid, name, 'SELECT')
"""
_INDEXES = """
SELECT c.relname AS name, i.indisunique AS is_unique, m.amname AS method,
       array_agg(coalesce(a.attname::text, '') ORDER BY part.place) AS columns
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS part(attnum, place)
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = part.attnum
WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND part.place <= i.indnkeyatts
  AND m.amname IN ('btree', 'hash', 'gist')
GROUP BY 1, 2, 3 ORDER BY 1
"""
_BYTES = """
SELECT relkind::text AS kind, CASE relkind WHEN 'p' THEN NULL ELSE pg_relation_size(oid) END AS bytes
FROM pg_catalog.pg_class WHERE oid = $1
"""
# Up to this size, reading a table is faster than using an index.
_SMALL = 1024 * 1024

# Who may not see others' sessions may see how many there are.
_CONNECTIONS = """
SELECT 'max_connections' AS name, (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database)::int AS used,
       current_setting('max_connections')::int
       - CASE WHEN r.rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::int
           + coalesce(current_setting('reserved_connections', true)::int, 0) END AS most
FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user
UNION ALL
SELECT 'CONNECTION LIMIT of the role', (SELECT count(*) FROM pg_catalog.pg_stat_activity AS s
       WHERE s.usesysid = r.oid), r.rolconnlimit
FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user
UNION ALL
SELECT 'CONNECTION LIMIT of the database', s.numbackends, d.datconnlimit
FROM pg_catalog.pg_database AS d JOIN pg_catalog.pg_stat_database AS s ON s.datid = d.oid
WHERE d.datname = current_database()
"""


async def health_of(
    connection: asyncpg.Connection, source: str, table: LookupTable, request: HealthRequest, pool_size: int
) -> AsyncIterator[HealthCheck]:
    """The checks of a doctor, one by one, on an authenticated connection.

    Raises:
        ConnectorError: the table is not there, or a column cannot be read as declared.
    """
    session = await connection.fetchrow(_SESSION)
    (tls,) = await _query_or_none(connection, _TLS) or [{"tls": None}]
    where = f"as {session['role']} in database {session['database']}, PostgreSQL {session['version']}"
    yield HealthCheck("login", "ok", f"{where}, {tls['tls'] or 'without TLS, as far as the server sees'}")
    relation = await find_relation(connection, source, table)
    yield HealthCheck("table", "ok", relation.shown)
    plans = plans_of(relation, table)
    yield HealthCheck("columns", "ok", f"{len(plans)} as declared")
    if relation.is_query:
        for by in request.keys:
            yield await _check_pushed_keys(connection, relation, [plans[name] for name in by])
        yield await _check_connections(connection, request, pool_size)
        return
    rights = await _check_rights(connection, relation, plans, session["role"])
    yield rights
    if rights.verdict == "fail":
        return
    size = await _query_or_none(connection, _BYTES, relation.oid)
    indexes = await _query_or_none(connection, _INDEXES, relation.oid)
    for by in request.keys:
        key = [plans[name] for name in by]
        if size is None or indexes is None:
            yield HealthCheck("index", "skipped", "the server does not say which indexes there are")
        else:
            yield index_check(relation.sql, key, indexes, size[0]["kind"], size[0]["bytes"])
    yield await _check_connections(connection, request, pool_size)


async def _check_connections(
    connection: asyncpg.Connection, request: HealthRequest, pool_size: int
) -> HealthCheck:
    found = await _query_or_none(connection, _CONNECTIONS)
    limits = found and {row["name"]: (row["most"], row["used"]) for row in found if row["most"] >= 0}
    return connections_check(request, pool_size, limits or None)


async def _check_pushed_keys(
    connection: asyncpg.Connection, relation: CatalogRelation, key: Sequence[PostgresColumn]
) -> HealthCheck:
    """Whether the server looks for keys inside the query, by its own EXPLAIN."""
    names = ", ".join(plan.source.name for plan in key)
    conditions = [f"{plan.compared} = ANY(ARRAY(SELECT NULL::{plan.bound}))" for plan in key]
    asked = f"SELECT * FROM {relation.sql} WHERE {' AND '.join(conditions)}"  # noqa: S608  quoted
    told = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {asked}"))
    steps = list(_steps_of(told[0]["Plan"]))
    if any(step["Node Type"] == "Subquery Scan" and "Filter" in step for step in steps):
        return pushed_keys_check(names, "")
    read = dict.fromkeys(_step_text(step) for step in steps if "Relation Name" in step)
    return pushed_keys_check(names, ", ".join(read) or "no table is read")


def _steps_of(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _steps_of(below)


def _step_text(step: Mapping[str, Any]) -> str:
    by = f" by {step['Index Name']}" if "Index Name" in step else ""
    return f"{step['Node Type']} of {step['Relation Name']}{by}"


async def _query_or_none(connection: asyncpg.Connection, query: str, *arguments: object) -> list[Any] | None:
    """The rows of a catalog query; None if other servers of this protocol lack the tables."""
    try:
        return list(await connection.fetch(query, *arguments))
    except asyncpg.PostgresError:
        return None


async def _check_rights(
    connection: asyncpg.Connection, relation: CatalogRelation, plans: Mapping[str, PostgresColumn], role: str
) -> HealthCheck:
    names = [plan.source.name for plan in plans.values()]
    lacking = [record["name"] for record in await connection.fetch(_UNREADABLE, relation.oid, names)]
    if not lacking:
        return HealthCheck("rights", "ok", f"{role} may read it")
    columns = "" if len(lacking) == len(names) else f"{', '.join(lacking)} of "
    cure = f'GRANT SELECT ON {relation.sql} TO "{role}"; USAGE on its schema, too.'
    return HealthCheck("rights", "fail", f"{role} may not read {columns}{relation.sql}", cure)


def index_check(
    relation: str, key: Sequence[PostgresColumn], indexes: Sequence[Any], kind: str, size: int | None
) -> HealthCheck:
    """Whether a lookup by ``key`` can use one of ``indexes``.

    Args:
        relation: the table's name as SQL writes it.
        key: the columns asked by.
        indexes: records with ``name``, ``is_unique``, ``method`` and ``columns``; those of expressions are
            empty.
        kind: what it is, as ``pg_class.relkind`` says it.
        size: its bytes, where they are known.
    """
    if kind in ("v", "f"):
        what = "view" if kind == "v" else "foreign table"
        return HealthCheck("index", "skipped", f"a {what}: EXPLAIN in PostgreSQL tells how it is read")
    cast = next((plan for plan in key if plan.compared != plan.column), None)
    if cast is not None:
        declared = sql_type(reported_type(cast.source))
        what = f"{cast.source.name} is compared as {cast.compared}, which an index on it does not serve"
        cure = f"Declare it {declared}, or CREATE INDEX ON {relation} (({cast.compared}))."
        return HealthCheck("index", "warn", what, cure)
    searched = any(isinstance(plan, AddressColumn) and plan.is_searched for plan in key)
    methods = ("gist",) if searched else ("btree", "hash")
    columns = ", ".join(plan.column for plan in key)
    using = f"USING gist ({columns} inet_ops)" if searched else f"({columns})"
    return shared_index_check(
        [plan.source.name for plan in key],
        [(each["name"], each["columns"]) for each in indexes if each["method"] in methods],
        f"the table has {size // 1024} kB, and needs none" if size is not None and size <= _SMALL else "",
        f"CREATE INDEX ON {relation} {using}.",
    )
