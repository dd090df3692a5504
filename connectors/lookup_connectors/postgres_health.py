"""What PostgreSQL's catalog says of how a table will be asked; nothing is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import asyncpg

from lookup_connectors.postgres_catalog import CatalogRelation, find_relation, plans_of
from lookup_connectors.postgres_types import PostgresColumn, reported_type
from lookup_hints.spi import HealthCheck, HealthRequest, LookupTable, connections_check
from lookup_hints.spi.types import sql_type

_SESSION = """
SELECT current_user AS role, current_database() AS database, current_setting('server_version') AS version
"""
_TLS = "SELECT max(version) AS tls FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"
_UNREADABLE = """
SELECT name FROM unnest($2::text[]) AS asked(name) WHERE NOT has_column_privilege($1::oid, name, 'SELECT')
"""
_INDEXES = """
SELECT c.relname AS name, i.indisunique AS is_unique,
       array_agg(coalesce(a.attname::text, '') ORDER BY part.place) AS columns
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS part(attnum, place)
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = part.attnum
WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND part.place <= i.indnkeyatts
  AND m.amname IN ('btree', 'hash')
GROUP BY 1, 2 ORDER BY 1
"""
_SIZE = """
SELECT relkind::text AS kind, CASE relkind WHEN 'p' THEN NULL ELSE pg_relation_size(oid) END AS bytes
FROM pg_catalog.pg_class WHERE oid = $1
"""
_SMALL = 1024 * 1024
"""A table of so many bytes is read faster than an index is looked into."""

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
    """What is found, step by step, on a connection that was let in.

    Raises:
        ConnectorError: the table is not there, or a column cannot be read as declared.
    """
    session = await connection.fetchrow(_SESSION)
    (tls,) = await _told(connection, _TLS) or [{"tls": None}]
    where = f"as {session['role']} in database {session['database']}, PostgreSQL {session['version']}"
    yield HealthCheck("login", "ok", f"{where}, {tls['tls'] or 'without TLS, as far as the server sees'}")
    relation = await find_relation(connection, source, table.name)
    yield HealthCheck("table", "ok", relation.sql)
    plans = plans_of(relation, table)
    yield HealthCheck("columns", "ok", f"{len(plans)} as declared")
    rights = await _rights(connection, relation, plans, session["role"])
    yield rights
    if rights.verdict == "fail":
        return
    size = await _told(connection, _SIZE, relation.oid)
    indexes = await _told(connection, _INDEXES, relation.oid)
    for by in request.keys:
        key = [plans[name] for name in by]
        if size is None or indexes is None:
            yield HealthCheck("index", "skipped", "the server does not say which indexes there are")
        else:
            yield index_check(relation.sql, key, indexes, size[0]["kind"], size[0]["bytes"])
    found = await _told(connection, _CONNECTIONS)
    limits = found and {row["name"]: (row["most"], row["used"]) for row in found if row["most"] >= 0}
    yield connections_check(request, pool_size, limits or None)


async def _told(connection: asyncpg.Connection, query: str, *arguments: object) -> list[Any] | None:
    """What the catalog says; None where it has other tables, as that of another server with this protocol."""
    try:
        return list(await connection.fetch(query, *arguments))
    except asyncpg.PostgresError:
        return None


async def _rights(
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
        indexes: records with ``name``, ``is_unique`` and ``columns``; those of expressions are empty.
        kind: what it is, as ``pg_class.relkind`` says it.
        size: its bytes, where they are known.
    """
    names = ", ".join(plan.source.name for plan in key)
    if kind in ("v", "f"):
        what = "view" if kind == "v" else "foreign table"
        return HealthCheck("index", "skipped", f"a {what}: EXPLAIN in PostgreSQL tells how it is read")
    cast = next((plan for plan in key if plan.compared != plan.column), None)
    if cast is not None:
        declared = sql_type(reported_type(cast.source))
        what = f"{cast.source.name} is compared as {cast.compared}, which an index on it does not serve"
        cure = f"Declare it {declared}, or CREATE INDEX ON {relation} (({cast.compared}))."
        return HealthCheck("index", "warn", what, cure)
    wanted = {plan.source.name for plan in key}
    serving = [index for index in indexes if index["columns"][0] in wanted]
    if serving:
        best = max(serving, key=lambda index: _leading(index["columns"], wanted))
        return HealthCheck("index", "ok", f"{best['name']} ({', '.join(best['columns'])}) serves {names}")
    if size is not None and size <= _SMALL:
        return HealthCheck("index", "ok", f"none on {names}; the table has {size // 1024} kB, and needs none")
    columns = ", ".join(plan.column for plan in key)
    what = f"no valid index begins with {names}: each request reads the whole table"
    return HealthCheck("index", "warn", what, f"CREATE INDEX ON {relation} ({columns}).")


def _leading(columns: Sequence[str], wanted: set[str]) -> int:
    """How many columns an index begins with that are asked by."""
    return next((place for place, name in enumerate(columns) if name not in wanted), len(columns))
