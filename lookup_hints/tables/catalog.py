"""The lookup tables of a session: created, dropped and described without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock

import pyarrow as pa

from lookup_hints.errors import DdlError, OptionError, Problem, nearest
from lookup_hints.spi import Connector, ReportsSchema
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.changed_column_and_versions import check_changed_column, versions_of
from lookup_hints.spi.flink import TABLE_OPTIONS as FLINK_OPTIONS
from lookup_hints.spi.flink import instead_of
from lookup_hints.spi.lookup_options import REMOVED_OPTIONS, TABLE_OPTIONS
from lookup_hints.spi.multiple_match import check_multiple_match
from lookup_hints.spi.option_values import Conf, Option, hidden_keys
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import Secret, conf_references
from lookup_hints.spi.security_policy import Policy
from lookup_hints.tables.ddl import CreateLookupTable, Ddl, DropTable, ShowLookupTables, ShowTables
from lookup_hints.tables.registry import connector_class


# No stub views: a statement that bypasses our session would silently read an empty view. Without them it
# fails with TABLE_OR_VIEW_NOT_FOUND (docs/decisions/0002), or reads the view of an enabled session.
class LookupCatalog:
    """Lookup tables by name; names ignore case, as Spark's do by default."""

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008 (it is frozen)
        self._policy = policy
        self._tables: dict[str, LookupTable] = {}
        self._lock = Lock()

    def find(self, name: str) -> LookupTable | None:
        return self._tables.get(name.lower())

    def tables(self) -> list[LookupTable]:
        return [self._tables[name] for name in sorted(self._tables)]

    def concerns(self, ddl: Ddl) -> bool:
        """Whether a statement is about a lookup table; the same words about another table are Spark's."""
        if isinstance(ddl, CreateLookupTable | ShowLookupTables):
            return True
        if isinstance(ddl, DropTable) and ddl.is_temporary:
            return True
        if isinstance(ddl, ShowTables):
            return bool(self._tables) and ddl.namespace is None
        return self.find(ddl.name) is not None

    def create(self, ddl: CreateLookupTable, conf: Conf) -> LookupTable:
        """Create a table: check its options, and discover its schema if none is given.

        Raises:
            DdlError: the name is taken, or its source does not tell columns that a table can have.
            OptionError: an unknown connector; unknown, missing or bad options.
            NotAllowed: an administrator does not allow the connector, a reference, a file or a host.
            ConnectorError: discovering the schema failed.
        """
        existing = self._existing_table(ddl)
        if existing is not None:
            return existing
        table = self.declared(ddl, conf)
        if ddl.columns is None:
            table = _with_discovered_schema(table, build_connector(table), ddl.primary_key)
        build_connector(table)
        with self._lock:
            existing = self._existing_table(ddl)  # another thread may have been faster meanwhile
            if existing is not None:
                return existing
            self._tables[ddl.name.lower()] = table
        return table

    def declared(self, ddl: CreateLookupTable, conf: Conf) -> LookupTable:
        """The table that ``ddl`` declares, without creating it or contacting its source."""
        return declared_table(ddl, conf, self._policy)

    def _existing_table(self, ddl: CreateLookupTable) -> LookupTable | None:
        """The table that is there already, where ``ddl`` leaves it at that."""
        existing = None if ddl.or_replace else self.find(ddl.name)
        if existing is not None and not ddl.if_not_exists:
            message = f"The lookup table {ddl.name!r} exists already."
            tip = "Write CREATE OR REPLACE TEMPORARY TABLE, or IF NOT EXISTS."
            raise DdlError(Problem(message, tip=tip))
        return existing

    def no_table(self, name: str) -> DdlError:
        """The error for an unknown temporary table."""
        tip = nearest(name, [table.name for table in self.tables()])
        return DdlError(
            Problem(f"There is no temporary table {name!r}.", tip=f"{tip} Or write IF EXISTS.".strip())
        )

    def drop(self, name: str) -> None:
        """Forget a table, if it is there; its connections end with the workers' idle time."""
        self._tables.pop(name.lower(), None)


def declared_table(
    ddl: CreateLookupTable,
    conf: Conf,
    policy: Policy = Policy(),  # noqa: B008 (it is frozen)
) -> LookupTable:
    """The table that ``ddl`` declares, without columns where it leaves them to the source.

    Raises:
        OptionError: a ``${conf:key}`` reference names nothing.
        NotAllowed: ``policy`` or the environment does not allow the connector or a reference.
    """
    table = LookupTable(
        name=ddl.name,
        schema=pa.schema([]) if ddl.columns is None else ddl.columns,
        primary_key=() if ddl.columns is None else ddl.primary_key,
        options=ddl.options,
        policy=policy,
    )
    table.check_allowed()
    return replace(table, conf=_conf_values(ddl.options, conf))


def build_connector(table: LookupTable) -> Connector:
    """The connector of ``table``, its options checked as far as they can be without connecting."""
    kind = connector_class(table.connector)
    _refuse_unknown(table, kind.OPTIONS)
    table.check((*kind.OPTIONS, *TABLE_OPTIONS.values()))
    for column in table.schema:
        sql_type(column.type)
    connector = kind(table)
    if getattr(connector, "table", None) is not table:
        raise OptionError(
            Problem(f"{kind.__name__}.__init__(self, table) must call super().__init__(table).")
        )
    connector.check()
    check_changed_column(connector)
    versions_of(table)
    check_multiple_match(table)
    return connector


def secret_keys(table: LookupTable) -> set[str]:
    """Names of the options of ``table`` whose values are never shown."""
    return hidden_keys(table.options, connector_class(table.connector).OPTIONS)


def _refuse_unknown(table: LookupTable, own: tuple[Option, ...]) -> None:
    known = ["connector", *(option.shown_key for option in own), *TABLE_OPTIONS]
    problems = [
        Problem(
            f"table {table.name}: connector {table.connector!r} has no option {key!r}.",
            tip=instead_of(key, {**FLINK_OPTIONS, **REMOVED_OPTIONS}) or nearest(key, known),
        )
        for key in table.options
        if key not in known and not any(option.is_named(key) for option in own)
    ]
    if problems:
        raise OptionError(problems)


def _conf_values(options: Mapping[str, str], conf: Conf) -> dict[str, Secret]:
    """The values of ``${conf:key}`` references, read now: workers have no Spark configuration."""
    values: dict[str, Secret] = {}
    for option, text in options.items():
        for key in conf_references(text):
            value = conf(key)
            if value is None:
                raise OptionError(
                    Problem(f"Spark's configuration has no key {key!r}, for the option {option!r}.")
                )
            values[key] = Secret(value)
    return values


def why_no_columns(schema: pa.Schema) -> str:
    """Why a table of a source cannot be taken with all columns that ``schema`` has; empty where it can be."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            return f"its columns {other!r} and {name!r} differ in capitals alone"
    return "" if seen else "it has no columns"


def _with_discovered_schema(
    table: LookupTable, connector: Connector, declared_key: Sequence[str]
) -> LookupTable:
    """``table`` with the columns that its source tells, and the key that is declared, or that it tells."""
    if not isinstance(connector, ReportsSchema):
        raise DdlError(
            Problem(
                f"table {table.name}: connector {table.connector!r} cannot tell which columns there are.",
                tip=f"Give a column list: CREATE TEMPORARY TABLE {table.name} (id BIGINT, ...) WITH (...).",
            )
        )
    # On a thread of its own: a notebook's own thread has an event loop running, and drivers want one.
    with ThreadPoolExecutor(1, thread_name_prefix="lookup-schema") as thread:
        schema, primary_key = thread.submit(connector.discover).result()
    wrong = why_no_columns(schema)
    if wrong:
        tip = f"Give a column list: CREATE TEMPORARY TABLE {table.name} (id BIGINT, ...) WITH (...)."
        raise DdlError(
            Problem(f"table {table.name}: {wrong} at its source.", tip=tip if schema.names else "")
        )
    own = {name.lower(): name for name in schema.names}
    for name in declared_key:
        if name.lower() not in own:
            what = f"table {table.name}: PRIMARY KEY names {name!r}, which is no column of its source."
            raise DdlError(Problem(what, tip=nearest(name, schema.names)))
    key = tuple(own[name.lower()] for name in declared_key) or primary_key
    return replace(table, schema=schema, primary_key=key)
