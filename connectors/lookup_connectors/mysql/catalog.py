"""Read the catalog of MariaDB or MySQL: the size, columns and indexes of a table or view. Writes nothing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from asyncmy.errors import MySQLError
from pyarrow import types

from lookup_connectors.mysql.columns import (
    CatalogColumn,
    MysqlColumn,
    described_column,
    plan_column,
    quoted,
    reported_type,
)
from lookup_connectors.mysql.connections import MysqlConnection
from lookup_connectors.mysql.failures import is_permanent
from lookup_connectors.mysql.lookup_sql import MysqlStatements, database_and_name
from lookup_connectors.mysql.options import ZERO_DATES
from lookup_connectors.shared.source_query import (
    UNCOUNTED,
    derived_table,
    place_in,
    place_of_word,
    pushed_keys_check,
    query_of,
    same_name_error,
)
from lookup_connectors.shared.sql_parts import find_name, index_check
from lookup_connectors.shared.sql_parts import quoted as quoted_in_standard_sql
from lookup_hints.errors import ConnectorError, nearest
from lookup_hints.spi import HealthCheck, HealthRequest, LookupTable, TableSize, connections_check
from lookup_hints.spi.arrow_types import sql_type

_COLUMNS = """
SELECT table_name, column_name, data_type, column_type, character_set_name, collation_name, numeric_precision,
       numeric_scale, column_comment
FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position
"""
_OWN = "('information_schema', 'mysql', 'performance_schema', 'sys')"
_NAMES = "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY 1 LIMIT 1000"
_TABLES = f"""
SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN {_OWN} ORDER BY 1, 2
"""  # noqa: S608  a constant
_SIZE = """
SELECT table_type, table_rows, data_length, avg_row_length FROM information_schema.tables
WHERE table_schema = ? AND table_name = ?
"""
# A column of an index over expressions has no name.
_INDEXES = """
SELECT index_name, column_name, non_unique, nullable, cardinality, sub_part, index_type
FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? ORDER BY index_name, seq_in_index
"""
_SESSION = "SELECT CURRENT_USER(), DATABASE(), VERSION()"
_LIMITS = "SELECT @@max_connections, @@max_user_connections"
_NEAR = re.compile(r"near '(.*)' at line (\d+)$", re.DOTALL)
_NAMED = re.compile(r"'([^']+)'|FUNCTION (\S+)")
_TWICE = re.compile("Duplicate column name '(.+)'")
# Up to this size, reading a table is faster than using an index.
_SMALL = 1024 * 1024


@dataclass(frozen=True)
class MysqlRelation:
    """A table or view found in the catalog, or a query.

    Args:
        database: where it is; empty for a query.
        name: its name; empty for a query.
        columns: its columns.
        query: the query.
    """

    database: str
    name: str
    columns: tuple[CatalogColumn, ...]
    query: str | None = None

    @property
    def sql(self) -> str:
        """What stands in FROM for it."""
        if self.query is not None:
            return derived_table(self.query)
        return f"{quoted(self.database)}.{quoted(self.name)}"

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.sql if self.query is None else "its query"


@dataclass(frozen=True)
class CatalogIndex:
    """An index: its name, its columns, and how many different values the first one has."""

    name: str
    columns: tuple[str, ...]
    distinct: int | None
    is_key: bool
    """Whether no two rows have the same values in it, and none is NULL."""
    finds_keys: bool
    """Whether it finds rows by equal values: a full-text index does not."""


async def find_relation(
    connection: MysqlConnection, source: str, table: LookupTable, default: str | None
) -> MysqlRelation:
    """The table or view that ``source`` names, by itself one of the database ``default``; or the query."""
    query = query_of(table)
    if query is not None:
        return await _describe_query(connection, query, table)
    database, name = database_and_name(source)
    database = database or default or ""
    if not database:
        what = "there is no database. Write it in 'table-name' = 'database.table', or as 'database'."
        raise ConnectorError(f"table {table.name}: {what}", permanent=True)
    found = await connection.rows(_COLUMNS, database, name)
    if not found:
        known = [each for (each,) in await connection.rows(_NAMES, database)]
        if name in known:  # a view that cannot be opened: the server says why
            await connection.rows(f"SELECT 1 FROM {quoted(database)}.{quoted(name)} LIMIT 0")  # noqa: S608
        what = f"the server shows this user no table or view {source} in {database}."
        raise ConnectorError(f"table {table.name}: {what} {nearest(name, known)}".rstrip(), permanent=True)
    names = {row[0] for row in found}  # names that differ in case alone may be those of two tables
    own = name if name in names else found[0][0]
    return MysqlRelation(database, own, tuple(CatalogColumn(*row[1:]) for row in found if row[0] == own))


async def _describe_query(connection: MysqlConnection, query: str, table: LookupTable) -> MysqlRelation:
    """The query as a derived table; the server reads it, and runs nothing.

    Raises:
        ConnectorError: the server does not understand it; the message says where.
    """
    no_rows = f"SELECT * FROM {derived_table(query)} LIMIT 0"  # noqa: S608  the user's own
    try:
        places = await connection.count_places(query)
        described = () if places else (await connection.ask_once(no_rows)).fields
    except MySQLError as error:
        raise _query_error(query, error, table) from error
    if places:
        what = f"'query'{place_of_word(query, '?')}: nothing is bound in it. Write a value in place of '?'."
        raise ConnectorError(f"table {table.name}: {what}", permanent=True)
    # The protocol tells the connection's character set. The least of no values has that of the column.
    texts = [each.name for each in described if described_column(each).charset is not None]
    asked = ", ".join(f"CHARSET(MIN({quoted(name)}))" for name in texts)
    told = await connection.rows(f"SELECT {asked} FROM ({no_rows}) AS none") if texts else [()]  # noqa: S608
    charsets = dict(zip(texts, told[0], strict=True))
    columns = tuple(described_column(each, charsets.get(each.name)) for each in described)
    return MysqlRelation("", "", columns, query)


def _query_error(query: str, error: MySQLError, table: LookupTable) -> Exception:
    """What is wrong with the query, and where; a lost connection stays what it is."""
    state = str(error.sqlstate or "")
    if len(error.args) != 2 or not state:
        return error
    number, said = error.args
    twice = _TWICE.search(said)
    if twice is not None:
        return same_name_error(table, twice[1])
    text = f"{said.partition('; check the manual')[0]} (error {number}, SQLSTATE {state})"
    message = f"table {table.name}: 'query'{_place_of_error(query, said)}: the server says: {text}."
    return ConnectorError(message, permanent=is_permanent(number, state))


def _place_of_error(query: str, said: str) -> str:
    """Where the mistake is: the server names the line and what follows, or a word."""
    near = _NEAR.search(said)
    if near is not None:
        line = sum(len(each) + 1 for each in query.split("\n")[: int(near[2]) - 1])
        at = query.find(near[1], line) if near[1] else len(query)
        return place_in(query, at) if at >= 0 else ""
    named = _NAMED.search(said)
    word = next(filter(None, named.groups()), "") if named else ""
    return place_of_word(query, word) or place_of_word(query, word.rpartition(".")[2])


def plans_of(relation: MysqlRelation, table: LookupTable) -> dict[str, MysqlColumn]:
    """How each declared column is read.

    Raises:
        ConnectorError: a column is not there, or cannot be read as declared; the message names it.
    """
    known = {source.name: source for source in relation.columns}
    is_null = table.options.get(ZERO_DATES.key, "").lower() == "null"
    plans = {}
    for field in table.schema:
        source = known[find_name(field.name, [*known], table.name, relation.shown)]
        try:
            plans[field.name] = plan_column(source, field, reads_zero_as_null=is_null)
        except ValueError as error:
            raise ConnectorError(
                f"table {table.name}: column {field.name!r}: {error}", permanent=True
            ) from None
    return plans


async def indexes_of(connection: MysqlConnection, relation: MysqlRelation) -> list[CatalogIndex]:
    """Its indexes over columns; none of a view."""
    by_name = defaultdict(list)
    for name, *rest in await connection.rows(_INDEXES, relation.database, relation.name):
        by_name[name].append(rest)
    return [
        CatalogIndex(
            name,
            tuple(column for column, *_ in parts),
            parts[0][3],
            all(
                not repeats and nullable != "YES" and part is None
                for _, repeats, nullable, _, part, _ in parts
            ),
            all(kind in ("BTREE", "HASH") for *_, kind in parts),
        )
        for name, parts in by_name.items()
        if all(column is not None for column, *_ in parts)
    ]


def primary_key(indexes: list[CatalogIndex]) -> tuple[str, ...]:
    """The columns of the primary key, else of a unique index over few columns that hold no NULL; or none."""
    keys = [index for index in indexes if index.is_key]
    best = min(
        keys, key=lambda index: (index.name != "PRIMARY", len(index.columns), index.name), default=None
    )
    return best.columns if best else ()


async def readable_tables(connection: MysqlConnection) -> list[str]:
    """The tables and views that this user sees, as SQL names them."""
    return [
        ".".join(each if each.isidentifier() else quoted_in_standard_sql(each) for each in names)
        for names in await connection.rows(_TABLES)
    ]


async def table_size(connection: MysqlConnection, relation: MysqlRelation) -> tuple[TableSize, float]:
    """The size that the catalog has, and about how many bytes a row takes."""
    if relation.query is not None:
        return UNCOUNTED, 0.0
    found = await connection.rows(_SIZE, relation.database, relation.name)
    kind, rows, size, row_bytes = found[0] if found else ("", None, None, None)
    if "VIEW" in kind or rows is None:
        return TableSize(None, source="a view has no statistics"), 0.0
    indexes = await indexes_of(connection, relation)
    distinct = {each.columns[0]: int(each.distinct) for each in indexes if each.distinct is not None}
    told = TableSize(int(rows), int(size or 0) or None, "information_schema", distinct=distinct)
    return told, float(row_bytes or 0)


# --- health ---------------------------------------------------------------------------------------


async def health_of(
    connection: MysqlConnection,
    relation: MysqlRelation,
    table: LookupTable,
    request: HealthRequest,
    pool_size: int,
) -> AsyncIterator[HealthCheck]:
    """The checks of a doctor behind the login, one by one.

    Raises:
        ConnectorError: a column cannot be read as declared.
        MySQLError: the user may not read it.
    """
    yield HealthCheck("table", "ok", relation.shown)
    plans = plans_of(relation, table)
    yield HealthCheck("columns", "ok", f"{len(plans)} as declared")
    ((user, _, _),) = await connection.rows(_SESSION)
    selected = ", ".join(plan.selected() for plan in plans.values())
    await connection.rows(f"SELECT {selected} FROM {relation.sql} LIMIT 0")  # noqa: S608  quoted
    yield HealthCheck("rights", "ok", f"{user} may read it")
    size, _ = await table_size(connection, relation)
    indexes = await indexes_of(connection, relation)
    for by in request.keys:
        key = [plans[name] for name in by]
        if relation.query is not None:
            yield await _check_pushed_keys(connection, relation, plans, key)
        else:
            yield _check_index(relation, key, indexes, size)
    yield connections_check(request, pool_size, await _connection_limits(connection))


async def login_check(connection: MysqlConnection) -> HealthCheck:
    """Who is logged in where, and by which TLS."""
    ((user, database, version),) = await connection.rows(_SESSION)
    tls = await connection.rows("SHOW SESSION STATUS LIKE 'Ssl_version'")
    shown = f"in database {database}" if database else "in no database"
    return HealthCheck("login", "ok", f"as {user} {shown}, {version}, {(tls and tls[0][1]) or 'without TLS'}")


async def _check_pushed_keys(
    connection: MysqlConnection,
    relation: MysqlRelation,
    plans: Mapping[str, MysqlColumn],
    key: Sequence[MysqlColumn],
) -> HealthCheck:
    """Whether the server looks for keys inside the query, by its own EXPLAIN of a lookup."""
    keys = pa.table({plan.field.name: _two_values(plan.field.type) for plan in key})
    (asked,) = MysqlStatements(relation.sql, plans).by_keys("EXPLAIN FORMAT=TRADITIONAL SELECT 1", key, keys)
    told = await connection.ask_once(asked.sql, asked.values)
    names = [each.name for each in told.fields]
    steps = [dict(zip(names, row, strict=True)) for row in told.rows]
    # What is DERIVED is made whole first, unless it is LATERAL. An index that could serve is named.
    is_whole = any(step["select_type"] == "DERIVED" for step in steps)
    is_whole |= not any(step["possible_keys"] for step in steps)
    read = ", ".join(f"{step['type']} of {step['table']} by {step['key'] or 'no index'}" for step in steps)
    return pushed_keys_check(", ".join(plan.source.name for plan in key), "" if is_whole else read)


def _two_values(kind: pa.DataType) -> pa.Array:
    if types.is_temporal(kind):
        day, whole = (1, pa.int32()) if types.is_date(kind) else (86_400_000_000, pa.int64())
        return pa.array([day, 2 * day], whole).cast(kind)
    return pa.array(["0", "1"]).cast(kind)


def _check_index(
    relation: MysqlRelation, key: list[MysqlColumn], indexes: list[CatalogIndex], size: TableSize
) -> HealthCheck:
    if size.rows is None:
        return HealthCheck("index", "skipped", "a view: EXPLAIN at the server tells how it is read")
    shown = next((plan for plan in key if plan.is_shown), None)
    if shown is not None:
        what = f"{shown.source.name} is compared as a text, which an index on it does not serve"
        return HealthCheck("index", "warn", what, f"Declare it {sql_type(reported_type(shown.source))}.")
    columns = ", ".join(quoted(plan.source.name) for plan in key)
    return index_check(
        [plan.source.name for plan in key],
        [(index.name, index.columns) for index in indexes if index.finds_keys],
        f"the table has {(size.bytes or 0) // 1024} kB, and needs none"
        if (size.bytes or 0) <= _SMALL
        else "",
        f"CREATE INDEX by_key ON {relation.sql} ({columns}).",
    )


async def _connection_limits(connection: MysqlConnection) -> dict[str, tuple[int, int]] | None:
    try:
        ((most, of_user),) = await connection.rows(_LIMITS)
        ((_, used),) = await connection.rows("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    except MySQLError:  # a proxy may not know them
        return None
    limits = {"max_connections": (int(most), int(used))}
    return {**limits, "max_user_connections": (int(of_user), int(used))} if of_user else limits
