"""The session: the one place where plan, runtime and Spark meet."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lookup_hints.catalog import LookupCatalog, build_connector, secret_keys
from lookup_hints.commands import explained, own_setting
from lookup_hints.ddl import (
    CreateLookupTable,
    Ddl,
    DescribeTable,
    DropTable,
    ShowColumns,
    ShowLookupTables,
    ShowTables,
    create_statement,
    parse_ddl,
)
from lookup_hints.errors import HintError, InternalError, Problem, QueryError, Span, UnsupportedLookup
from lookup_hints.functions import Functions, transport_for, wrapping_for
from lookup_hints.hints.validate import LookupHint, read_hints
from lookup_hints.model import LookupTable
from lookup_hints.plan.analysis import Columns
from lookup_hints.plan.choose import session_option
from lookup_hints.plan.draft import Context, LookupPlan
from lookup_hints.plan.explain import explain
from lookup_hints.plan.planner import mentions_lookup, plan, surely_uses_lookup
from lookup_hints.plan.reading import UnreadableStatement
from lookup_hints.plan.views import PRIVATE_PREFIX
from lookup_hints.retry import RowPredicate
from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.script import read_script, split_statements
from lookup_hints.secrets import shown
from lookup_hints.spec import LookupSpec
from lookup_hints.sqltext import code, pieces, string_literal
from lookup_hints.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("lookup_hints")

Args = Mapping[str, Any] | Sequence[Any] | None
"""Values of a statement's parameter markers, as ``spark.sql`` takes them."""

_predicates: dict[str, RowPredicate] = {}


def register_retry_predicate(name: str, predicate: RowPredicate) -> None:
    """Let ``'retry-predicate'='<name>'`` ask again while ``predicate`` is true of a key's rows.

    Args:
        name: its name in hints, ignoring case, ``-`` and ``_`` being the same.
        predicate: takes the rows found for one key as dictionaries (none for a miss); runs on the
            workers, so it is pickled. On the last attempt the rows are taken as they are.

    Example:
        >>> register_retry_predicate("no_zip", lambda rows: any(row["zip"] is None for row in rows))
    """
    _predicates[name.lower().replace("-", "_")] = predicate


@dataclass
class _State:
    """What belongs to one Spark session, however many LookupSessions are made for it."""

    functions: Functions
    catalog: LookupCatalog = field(default_factory=LookupCatalog)


_states: WeakKeyDictionary[Any, _State] = WeakKeyDictionary()


@dataclass(frozen=True)
class Prepared:
    """A statement that is planned but not run: a plan, or DDL of ours, or neither: Spark's business.

    Its text and the values of its parameters may hold secrets, so they are not shown.
    """

    text: str = field(repr=False)
    args: Args = field(default=None, repr=False)
    plan: LookupPlan | None = None
    ddl: Ddl | None = None


class LookupSession:
    """Runs SQL with lookup joins on a Spark session, classic or Connect.

    Lookup tables belong to the Spark session, like temporary views: two LookupSessions of one Spark
    session see the same tables.

    Example:
        >>> session = LookupSession(spark)
        >>> session.sql("CREATE TEMPORARY TABLE c (id BIGINT, name STRING) WITH ('connector' = 'memory')")
        >>> session.sql("SELECT o.id, c.name FROM orders o LEFT JOIN c ON o.customer_id = c.id")
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        if spark not in _states:
            _states[spark] = _State(Functions(spark))
        self._state = _states[spark]

    # --- statements --------------------------------------------------------------------------------

    def sql(self, text: str, args: Args = None, **kwargs: Any) -> DataFrame:
        """Run one statement, as ``spark.sql`` does, with lookup joins and the DDL of lookup tables.

        Args:
            text: one statement. Without a lookup table in it, it goes to Spark untouched.
            args: values of parameter markers, by name (``:p``) or position (``?``).
            kwargs: as ``spark.sql`` takes them; not together with lookup tables.

        Raises:
            QueryError: a hint, an option or the shape of a join is wrong; shows the place.
            ConnectorError: the schema of a new table was asked for, and the source failed.
        """
        if kwargs:
            return self._sql_with_variables(text, args, kwargs)
        return self.run(self.prepare(text, args))

    def explain(self, text: str, args: Args = None, mode: str = "formatted") -> str:
        """How a statement would run: its lookup joins, the Spark SQL, and Spark's plan. Runs nothing.

        Args:
            text: one statement; a leading EXPLAIN is allowed.
            args: as for ``sql``.
            mode: as ``EXPLAIN`` takes it: ``extended``, ``codegen``, ``cost`` or ``formatted``.
        """
        inner = explained(text)
        prepared = self.prepare(inner[0] if inner else text, args)
        if prepared.ddl is not None:
            return "A statement about lookup tables; Spark does not see it."
        if prepared.plan is None:
            return self._explained(prepared.text, prepared.args, mode)
        self._register(prepared.plan)
        spark_plan = self._explained(prepared.plan.sql, prepared.args, mode)
        return f"{explain(prepared.plan)}\n\n== Spark plan ==\n{spark_plan}"

    def run_script(self, path_or_text: str | os.PathLike[str], args: Args = None) -> list[DataFrame]:
        """Run each statement of a script; one DataFrame for each, lazy where Spark's are.

        Args:
            path_or_text: a path to a file, or the text of the script.
            args: values of named parameter markers, the same for all statements.

        Raises:
            QueryError: as for ``sql``, at the first statement that fails; the ones before it have run.
        """
        return [self.sql(statement.text, args) for statement in split_statements(read_script(path_or_text))]

    def prepare(self, text: str, args: Args = None) -> Prepared:
        """Plan a statement without running it; ``run`` runs it."""
        if all(piece.is_symbol(";") for piece in code(pieces(text))):
            return Prepared(text, args)
        ddl = parse_ddl(text)
        if ddl is not None and self._is_ours(ddl):
            return Prepared(text, args, ddl=ddl)
        hints, problems = read_hints(text)
        if not (hints or problems or mentions_lookup(text, self._state.catalog.find)):
            return Prepared(text, args)
        if explained(text) is not None:
            return Prepared(text, args)
        if args is not None and not isinstance(args, Mapping):
            text, args = _named_parameters(text, args)
            hints, problems = read_hints(text)
        planned = self._plan(text, args, hints, problems)
        uses_lookup = planned is not None and (planned.joins or planned.scans)
        return Prepared(text, args, plan=planned) if uses_lookup else Prepared(text, args)

    def run(self, prepared: Prepared) -> DataFrame:
        """Run a prepared statement."""
        if prepared.ddl is not None:
            return self._run_ddl(prepared.ddl)
        if prepared.plan is None:
            return self._run_plain(prepared)
        planned = prepared.plan
        self._register(planned)
        try:
            if planned.query is not None and planned.output is not None:
                # Before it writes: what it would write must be what the user's text says.
                _check_columns(planned, self._spark_sql(planned.query, prepared.args))
            frame = self._spark_sql(planned.sql, prepared.args)
        except Exception as error:
            _refuse_own_functions(error)
            raise
        if planned.query is None:
            _check_columns(planned, frame)
        return frame

    def metrics(self) -> Mapping[str, LookupMetrics]:
        """What each lookup function counted so far, by its name (EXPLAIN shows it); empty on Connect.

        Counts arrive when a task ends; those of a task that Spark stopped early may be missing.
        """
        return self._state.functions.metrics()

    # --- planning ----------------------------------------------------------------------------------

    def _plan(
        self, text: str, args: Args, hints: tuple[LookupHint, ...], problems: tuple[Problem, ...]
    ) -> LookupPlan | None:
        """The plan of a statement; None when a lookup table's name in it means something else."""
        context = self._context(args)
        tolerant = session_option("on-invalid-hint", self._conf) == "warn"
        try:
            if problems:
                raise HintError(problems)
            return plan(text, hints, context)
        except UnreadableStatement:
            if not (hints or surely_uses_lookup(text, self._state.catalog.find)):
                return None
            self._let_spark_refuse(text, args)
            raise
        except HintError as error:
            if not tolerant:
                raise
            _log.warning("LOOKUP hints without effect:\n%s", error)
            return plan(text, (), context)

    def _let_spark_refuse(self, text: str, args: Args) -> None:
        """Raise Spark's own error where Spark cannot parse ``text`` either: it knows best what is wrong."""
        if code(pieces(text))[0].is_word("BEGIN"):
            return
        try:
            self._spark_sql(f"EXPLAIN {text}", args)
        except Exception as error:
            if type(error).__name__ == "ParseException":
                raise

    def _context(self, args: Args) -> Context:
        functions = self._state.functions

        def analyse(sql: str) -> Columns:
            return _columns(self._spark_sql(sql, args))

        def name_function(spec: LookupSpec, repeated: bool) -> str:
            return functions.name("lookup", spec, repeated, self._transport())

        def name_scan(table: LookupTable, columns: tuple[str, ...]) -> str:
            return functions.name("lookup_scan", build_connector(table), columns)

        return Context(
            find_table=self._state.catalog.find,
            connector=build_connector,
            conf=self._conf,
            analyse=analyse,
            name_function=name_function,
            name_scan=name_scan,
            predicates=_predicates,
            wrapping=wrapping_for(self._transport()),
        )

    def _register(self, planned: LookupPlan) -> None:
        for join in planned.joins:
            self._state.functions.register(self.spark, join.function, join.repeated, self._transport())
        for scan in planned.scans:
            self._state.functions.create_scan(self.spark, scan)

    def _transport(self) -> str:
        return transport_for(session_option("transport", self._conf))

    def _conf(self, key: str) -> str | None:
        return self.spark.conf.get(key, None)

    # --- Spark -------------------------------------------------------------------------------------

    def _spark_sql(self, text: str, args: Args = None) -> DataFrame:
        """Spark's own ``sql``, also where ``enable`` has put ours in its place."""
        original: Callable[..., DataFrame] = type(self.spark).sql
        return original(self.spark, text, args) if args else original(self.spark, text)

    def _run_plain(self, prepared: Prepared) -> DataFrame:
        setting = own_setting(prepared.text)
        if setting is not None:
            self.spark.conf.set(*setting)
            return self._rows("key STRING, value STRING", [setting])
        inner = explained(prepared.text)
        if inner is not None and mentions_lookup(inner[0], self._state.catalog.find):
            return self._rows("plan STRING", [(self.explain(inner[0], prepared.args, inner[1]),)])
        return self._spark_sql(prepared.text, prepared.args)

    def _sql_with_variables(self, text: str, args: Args, variables: dict[str, Any]) -> DataFrame:
        ddl = parse_ddl(text)
        is_ours = ddl is not None and self._is_ours(ddl)
        if is_ours or mentions_lookup(text, self._state.catalog.find):
            raise QueryError(
                Problem(
                    f"Variables in braces ({', '.join(sorted(variables))}) cannot stand in a statement with a"
                    " lookup table.",
                    tip="Pass values as args= with markers (:name), and DataFrames as temporary views.",
                )
            )
        original: Callable[..., DataFrame] = type(self.spark).sql
        return original(self.spark, text, args, **variables)

    def _explained(self, text: str, args: Args, mode: str) -> str:
        row = self._spark_sql(f"EXPLAIN {mode.upper()} {text.rstrip().rstrip(';')}", args).collect()[0]
        return str(row[0])

    def _rows(self, schema: str, rows: Sequence[tuple[str | bool | None, ...]]) -> DataFrame:
        """A few rows of text: as SQL, for `createDataFrame` would start a Python worker to read them."""
        if not rows:
            return self.spark.createDataFrame([], schema)
        listed = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
        columns = (column.split() for column in schema.split(", "))
        select = ", ".join(
            f"CAST(col{number} AS {kind}) AS {name}" for number, (name, kind) in enumerate(columns, 1)
        )
        return self._spark_sql(f"SELECT {select} FROM VALUES {listed}")  # noqa: S608 (all parts are ours)

    # --- DDL ---------------------------------------------------------------------------------------

    def _is_ours(self, ddl: Ddl) -> bool:
        """Whether a statement is about a lookup table; the same words about another one are Spark's."""
        if isinstance(ddl, CreateLookupTable | ShowLookupTables):
            return True
        if isinstance(ddl, ShowTables):
            return bool(self._state.catalog.tables()) and ddl.namespace is None
        return self._state.catalog.find(ddl.name) is not None

    def _run_ddl(self, ddl: Ddl) -> DataFrame:
        catalog = self._state.catalog
        if isinstance(ddl, CreateLookupTable):
            catalog.create(ddl, self._conf)
            return self._nothing()
        if isinstance(ddl, ShowLookupTables):
            rows = [(table.name, table.connector) for table in catalog.tables()]
            return self._rows("tableName STRING, connector STRING", rows)
        if isinstance(ddl, ShowTables):
            return self._show_tables(ddl)
        table = catalog.find(ddl.name)
        assert table is not None, "only statements about lookup tables come here"
        if isinstance(ddl, DropTable):
            catalog.drop(ddl.name)
            return self._nothing()
        if isinstance(ddl, DescribeTable):
            return self._rows(
                "col_name STRING, data_type STRING, comment STRING", _described(table, ddl.extended)
            )
        if isinstance(ddl, ShowColumns):
            return self._rows("col_name STRING", [(name,) for name in table.schema.names])
        return self._rows("createtab_stmt STRING", [(create_statement(table, secret_keys(table)),)])

    def _show_tables(self, ddl: ShowTables) -> DataFrame:
        """Spark's tables and ours, which show like temporary views."""
        pattern = "*" if ddl.like is None else ddl.like
        like = "" if ddl.like is None else f" LIKE {string_literal(ddl.like)}"
        ours = [
            ("", table.name, True) for table in self._state.catalog.tables() if _like(table.name, pattern)
        ]
        spark_tables = self._spark_sql(f"SHOW TABLES{like}")
        if not ours:
            return spark_tables
        return spark_tables.unionAll(
            self._rows("namespace STRING, tableName STRING, isTemporary BOOLEAN", ours)
        )

    def _nothing(self) -> DataFrame:
        return self.spark.range(0).select()


def enable(spark: SparkSession) -> LookupSession:
    """Let ``spark.sql`` itself understand lookup joins and the DDL of lookup tables.

    For code and notebooks that already exist; ``disable`` undoes it.
    """
    session = LookupSession(spark)
    vars(spark)["sql"] = session.sql
    return session


def disable(spark: SparkSession) -> None:
    """Give ``spark`` its own ``sql`` back. Lookup tables stay, for when it is enabled again."""
    vars(spark).pop("sql", None)


# --- small decisions -------------------------------------------------------------------------------


def _columns(frame: DataFrame) -> Columns:
    return tuple((column.name, column.dataType.simpleString()) for column in frame.schema.fields)


_OWN_FUNCTION = re.compile("LAMBDA_FUNCTION_WITH_(PYTHON|SQL)_UDF|UNSUPPORTED_SQL_UDF_USAGE")


def _refuse_own_functions(error: Exception) -> None:
    """Say in the user's words what Spark says about text that the user did not write."""
    if _OWN_FUNCTION.search(str(error)):
        raise UnsupportedLookup(
            Problem(
                "A function of your own (Python or SQL) stands in the ON condition of a lookup join, where"
                " Spark cannot call it.",
                tip="Of an INNER JOIN, move the condition to WHERE; of a LEFT JOIN, compute its left part in"
                " a subquery on the left.",
            )
        ) from error


def _check_columns(planned: LookupPlan, frame: DataFrame) -> None:
    """The rewritten statement must give what the user's would have given."""
    if planned.output is None or _columns(frame) == planned.output:
        return
    unnamed = [name for name in frame.columns if PRIVATE_PREFIX in name]
    if unnamed and len(frame.columns) == len(planned.output):
        names = [name for name, _ in planned.output]
        natural = names[frame.columns.index(unnamed[0])]
        raise UnsupportedLookup(
            Problem(
                f"The column {natural} of the result takes its name from a column that USING or NATURAL joins"
                " with a lookup table, which has another name inside.",
                tip=f"Give it a name: {natural} AS x.",
            )
        )
    raise InternalError(
        f"the rewritten statement gives {_columns(frame)} instead of {planned.output}; please report"
        f" this with the statement:\n{planned.text}"
    )


def _described(table: LookupTable, extended: bool) -> list[tuple[str, str, str | None]]:
    rows: list[tuple[str, str, str | None]] = [
        (column.name, sql_type(column.type).lower(), "key" if column.name in table.primary_key else None)
        for column in table.schema
    ]
    if extended:
        hidden = secret_keys(table)
        rows += [("", "", ""), ("# Lookup table", "", "")]
        rows += [(key, "***" if key in hidden else shown(text), "") for key, text in table.options.items()]
    return rows


def _literal(value: str | bool | None) -> str:
    return string_literal(value) if isinstance(value, str) else str(value).upper().replace("NONE", "NULL")


def _named_parameters(text: str, args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """``?`` markers as named ones: the rewrite moves text about, and positions would change."""
    out, at = [], 0
    markers = [piece for piece in code(pieces(text)) if piece.is_symbol("?")]
    if len(markers) != len(args):
        first_without = [Span(text, marker.start, marker.end) for marker in markers[len(args) :]]
        counted = f"{_count(len(markers), 'parameter marker')} (?) and {_count(len(args), 'value')}"
        tip = "Each marker takes one value, in the order of the text."
        place = first_without[0] if first_without else None
        raise QueryError(Problem(f"There are {counted} for them.", place, tip))
    for number, marker in enumerate(markers):
        out += [text[at : marker.start], f":__p{number}"]
        at = marker.end
    named = {f"__p{number}": value for number, value in enumerate(args)}
    return "".join([*out, text[at:]]), named


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _like(name: str, pattern: str) -> bool:
    """SHOW TABLES LIKE: ``*`` any characters, ``|`` between alternatives, ignoring case."""
    alternatives = (re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|"))
    return any(re.fullmatch(part, name, re.IGNORECASE) for part in alternatives)
