"""The session: the one place where plan, runtime and Spark meet."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lookup_hints.errors import HintError, InternalError, Problem, QueryError, Span, UnsupportedLookup
from lookup_hints.execution.scope import Args, Scope
from lookup_hints.frames import join as frame_join
from lookup_hints.frames.variables import named_frames, variables_refused
from lookup_hints.hints.validate import LookupHint, read_hints
from lookup_hints.plan.analysis import Columns
from lookup_hints.plan.choose import session_option
from lookup_hints.plan.draft import Context, LookupPlan
from lookup_hints.plan.explain import explain
from lookup_hints.plan.planner import mentions_lookup, plan, surely_uses_lookup
from lookup_hints.plan.read.statement import UnreadableStatement
from lookup_hints.plan.write.views import PRIVATE_PREFIX, ROW
from lookup_hints.retry import RetryPolicy
from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.runtime.spec import LookupSpec
from lookup_hints.spark.functions import (
    Functions,
    policy_of,
    run_the_drivers_python,
    spark_version,
    transport_for,
    wrapping_for,
)
from lookup_hints.spi import Connector
from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.secrets import shown
from lookup_hints.spi.types import sql_type
from lookup_hints.sql.lexer import code, pieces, string_literal
from lookup_hints.statements.script import read_script, split_statements
from lookup_hints.statements.statement import Explain, Setting, SparkStatement, Statement, read_statement
from lookup_hints.streaming.insert import StreamInsert, StreamSource, read_insert
from lookup_hints.streaming.sinks import sink_without_table
from lookup_hints.streaming.stream_views import SINCE, with_views
from lookup_hints.streaming.streams import Preparation, Streams
from lookup_hints.tables.catalog import ConfValue, LookupCatalog, build_connector, secret_keys
from lookup_hints.tables.ddl import (
    CreateLookupTable,
    Ddl,
    DescribeTable,
    DropTable,
    ShowColumns,
    ShowLookupTables,
    ShowTables,
    create_statement,
)
from lookup_hints.tables.registry import retry_predicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("lookup_hints")


@dataclass
class _State:
    """What belongs to one Spark session, however many LookupSessions are made for it."""

    functions: Functions
    streams: Streams
    catalog: LookupCatalog


_states: WeakKeyDictionary[Any, _State] = WeakKeyDictionary()


@dataclass(frozen=True)
class Prepared:
    """A statement that is read and planned, but not run.

    Its text and the values of its parameters may hold secrets, so they are not shown.

    Args:
        statement: what it is.
        text: as Spark gets it, where it has no plan; of a streaming INSERT, that of its query.
        args: values of its parameter markers.
        plan: how its lookups run; None where it has none.
    """

    statement: Statement
    text: str = field(repr=False)
    args: Args = field(default=None, repr=False)
    plan: LookupPlan | None = None


@dataclass(frozen=True)
class _Statements:
    """Prepares, runs and explains statements over one scope."""

    state: _State
    scope: Scope

    def over(self, frames: Mapping[str, DataFrame]) -> _Statements:
        """The same for statements that read ``frames``."""
        return replace(self, scope=self.scope.over(frames))

    def sql(self, text: str, args: Args = None) -> DataFrame:
        return self.run(self.prepare(text, args))

    def prepare(self, text: str, args: Args = None, *, few_rows: bool = False) -> Prepared:
        statement = self._read(text)
        if isinstance(statement, StreamInsert):
            return self._prepare_stream(statement, args)
        if not isinstance(statement, SparkStatement) or set(statement.words) <= {";"}:
            return Prepared(statement, text, args)
        hints, problems = read_hints(text)
        if not (hints or problems or mentions_lookup(text, self.scope.find)):
            return Prepared(statement, text, args)
        if args is not None and not isinstance(args, Mapping):
            text, args = _named_parameters(text, args)
            hints, problems = read_hints(text)
        planned = self._plan(text, args, (*hints, *self.scope.hints), problems, few_rows)
        uses_lookup = planned is not None and (planned.joins or planned.scans)
        return Prepared(statement, text, args, planned if uses_lookup else None)

    def _read(self, text: str) -> Statement:
        return read_statement(text, self.scope.catalog.concerns)

    def run(self, prepared: Prepared) -> DataFrame:
        """Run a prepared statement; a streaming INSERT gives the name and id of the query that it started."""
        statement = prepared.statement
        if isinstance(statement, StreamInsert):
            return self._start_stream(prepared, statement)
        if isinstance(statement, Setting):
            return self._set(statement)
        if isinstance(statement, Explain):
            return self._run_explain(prepared, statement)
        if isinstance(statement, Ddl):
            return self._run_ddl(statement)
        try:
            return self._run_query(prepared)
        except Exception as error:
            if not (_reads_a_stream(prepared.text, error) or self._overflows_over_a_stream(prepared, error)):
                raise
            return self.run(self._prepare_stream(read_insert(prepared.text), prepared.args))

    def _overflows_over_a_stream(self, prepared: Prepared, error: Exception) -> bool:
        """Whether ``error`` is how Spark 3.5 refuses an INSERT that reads a stream: by endless explaining."""
        if "StackOverflowError" not in str(error) or not code(pieces(prepared.text))[0].is_word("INSERT"):
            return False
        try:
            return self.sql(read_insert(prepared.text).query, prepared.args).isStreaming
        except QueryError:
            return False

    def _run_query(self, prepared: Prepared) -> DataFrame:
        if prepared.plan is None:
            return self.scope.sql(prepared.text, prepared.args)
        planned = prepared.plan
        self._register(planned)
        self._refuse_functions_in_lambdas(planned, prepared.args)
        try:
            if planned.query is None:
                return _named_as_written(planned, self.scope.sql(planned.sql, prepared.args))
            if planned.output is not None:
                # Before it writes: what it would write must be what the user's text says.
                _check_columns(planned, self.scope.sql(planned.query, prepared.args))
            return self.scope.sql(planned.sql, prepared.args)
        except Exception as error:
            from pyspark.errors import AnalysisException

            _refuse_own_functions(error)
            if planned.query is None and planned.output and isinstance(error, AnalysisException):
                raise _not_taken(error) from error
            raise

    def _refuse_functions_in_lambdas(self, planned: LookupPlan, args: Args) -> None:
        """Find what Spark before 4.0 finds when it runs: that a lambda calls a function of the user's own."""
        sql = planned.query or planned.sql
        if ROW not in sql or spark_version(self.scope.spark) >= (4, 0):
            return
        if _OWN_IN_LAMBDA.search(self.scope.explained(sql, args, "extended")):
            raise UnsupportedLookup(_OWN_FUNCTION_IN_ON)

    def explain(self, text: str, args: Args = None, mode: str = "formatted") -> str:
        statement = self._read(text)
        prepared = self.prepare(statement.text if isinstance(statement, Explain) else text, args)
        if isinstance(prepared.statement, Ddl):
            return "A statement about lookup tables; Spark does not see it."
        if isinstance(prepared.statement, StreamInsert):
            head = f"== Streaming query into {prepared.statement.shown_sink} =="
            return f"{head}\n\n{self.explain(prepared.text, prepared.args, mode)}"
        if prepared.plan is None:
            return self.scope.explained(prepared.text, prepared.args, mode)
        self._register(prepared.plan)
        spark_plan = self.scope.explained(prepared.plan.sql, prepared.args, mode)
        return f"{explain(prepared.plan)}\n\n== Spark plan ==\n{spark_plan}"

    # --- streams -----------------------------------------------------------------------------------

    def _prepare_stream(self, insert: StreamInsert, args: Args) -> Prepared:
        query = insert.query
        if spark_version(self.scope.spark) < SINCE:
            query = with_views(query, self.scope.spark, self._name_stream)
        return replace(self.prepare(query, args), statement=insert)

    def _name_stream(self, source: StreamSource) -> str:
        return self.state.functions.name("lookup_stream", source.name, dict(source.options))

    def _start_stream(self, prepared: Prepared, insert: StreamInsert) -> DataFrame:
        frame = self._run_query(prepared)
        planned = prepared.plan
        started = self.state.streams.start(
            Preparation(
                insert=insert,
                frame=frame,
                query=prepared.text if planned is None else planned.sql,
                has_lookups=planned is not None and bool(planned.joins),
                run_sql=lambda sql: self.scope.sql(sql, prepared.args),
            )
        )
        query = started.supervised
        return self.scope.rows("query STRING, id STRING", [(query.name, str(query.query.id))])

    # --- planning ----------------------------------------------------------------------------------

    def _plan(
        self,
        text: str,
        args: Args,
        hints: tuple[LookupHint, ...],
        problems: tuple[Problem, ...],
        few_rows: bool,
    ) -> LookupPlan | None:
        """The plan of a statement; None when a lookup table's name in it means something else."""
        conf = self.scope.settings()
        context = replace(self._context(args, conf), few_rows=few_rows)
        tolerant = session_option("on-invalid-hint", conf) == "warn"
        try:
            if problems:
                raise HintError(problems)
            return plan(text, hints, context)
        except UnreadableStatement:
            if not (hints or surely_uses_lookup(text, self.scope.find)):
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
            self.scope.sql(f"EXPLAIN {text}", args)
        except Exception as error:
            if type(error).__name__ == "ParseException":
                raise

    def _context(self, args: Args, conf: ConfValue) -> Context:
        functions, transport = self.state.functions, _transport(conf)
        built: dict[str, Connector] = {}

        def connector(table: LookupTable) -> Connector:
            if table.name not in built:
                built[table.name] = self.scope.connector_of(table)
            return built[table.name]

        def analyse(sql: str) -> Columns:
            return _columns(self.scope.sql(sql, args))

        def name_function(spec: LookupSpec, repeated: bool) -> str:
            return functions.name("lookup", spec, repeated, transport)

        def name_scan(table: LookupTable, columns: tuple[str, ...]) -> str:
            return functions.name("lookup_scan", connector(table), columns)

        return Context(
            find_table=self.scope.find,
            connector=connector,
            conf=conf,
            analyse=analyse,
            name_function=name_function,
            name_scan=name_scan,
            predicates=retry_predicates(),
            wrapping=wrapping_for(transport),
        )

    def _register(self, planned: LookupPlan) -> None:
        transport = _transport(self.scope.conf)
        for planned_join in planned.joins:
            self.state.functions.register(
                self.scope.spark, planned_join.function, planned_join.repeated, transport
            )
        for scan in planned.scans:
            self.state.functions.create_scan(self.scope.spark, scan)

    def _set(self, setting: Setting) -> DataFrame:
        self.scope.spark.conf.set(setting.key, setting.value)
        return self.scope.rows("key STRING, value STRING", [(setting.key, setting.value)])

    def _run_explain(self, prepared: Prepared, explained: Explain) -> DataFrame:
        if not mentions_lookup(explained.text, self.scope.catalog.find):
            return self.scope.sql(prepared.text, prepared.args)
        text = self.explain(explained.text, prepared.args, explained.mode)
        return self.scope.rows("plan STRING", [(text,)])

    # --- DDL ---------------------------------------------------------------------------------------

    def _run_ddl(self, ddl: Ddl) -> DataFrame:
        catalog = self.scope.catalog
        if isinstance(ddl, CreateLookupTable):
            catalog.create(ddl, self.scope.conf)
            return self._nothing()
        if isinstance(ddl, ShowLookupTables):
            rows = [(table.name, table.connector) for table in catalog.tables()]
            return self.scope.rows("tableName STRING, connector STRING", rows)
        if isinstance(ddl, ShowTables):
            return self._show_tables(ddl)
        if isinstance(ddl, DropTable):
            self._drop(ddl)
            return self._nothing()
        table = catalog.find(ddl.name)
        assert table is not None, "only statements about lookup tables come here"
        if isinstance(ddl, DescribeTable):
            return self.scope.rows(
                "col_name STRING, data_type STRING, comment STRING", _described(table, ddl.extended)
            )
        if isinstance(ddl, ShowColumns):
            return self.scope.rows("col_name STRING", [(name,) for name in table.schema.names])
        return self.scope.rows("createtab_stmt STRING", [(create_statement(table, secret_keys(table)),)])

    def _drop(self, ddl: DropTable) -> None:
        """Forget a table. With the word TEMPORARY, that of Spark's own too: Spark has no such statement."""
        if self.scope.catalog.find(ddl.name) is not None:
            self.scope.catalog.drop(ddl.name)
        elif not self.scope.spark.catalog.dropTempView(ddl.name) and not ddl.if_exists:
            raise self.scope.catalog.no_table(ddl.name)

    def _show_tables(self, ddl: ShowTables) -> DataFrame:
        """Spark's tables and ours, which show like temporary views."""
        pattern = "*" if ddl.like is None else ddl.like
        like = "" if ddl.like is None else f" LIKE {string_literal(ddl.like)}"
        ours = [("", table.name, True) for table in self.scope.catalog.tables() if _like(table.name, pattern)]
        spark_tables = self.scope.sql(f"SHOW TABLES{like}")
        if not ours:
            return spark_tables
        return spark_tables.unionAll(
            self.scope.rows("namespace STRING, tableName STRING, isTemporary BOOLEAN", ours)
        )

    def _nothing(self) -> DataFrame:
        return self.scope.spark.range(0).select()

    def sql_with_variables(self, text: str, args: Args, variables: dict[str, Any]) -> DataFrame:
        if isinstance(self._read(text), Ddl):
            raise variables_refused(variables)
        if mentions_lookup(text, self.scope.find):
            text, frames = named_frames(text, variables)
            return self.over(frames).sql(text, args)
        original: Callable[..., DataFrame] = type(self.scope.spark).sql
        return original(self.scope.spark, text, args, **variables)


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
            run_the_drivers_python(spark)
            # Read once, before any statement: what a session sets later does not count.
            policy = policy_of(spark)
            _states[spark] = _State(Functions(spark), Streams(spark), LookupCatalog(policy))
        self._state = _states[spark]

    @property
    def _statements(self) -> _Statements:
        return _Statements(self._state, Scope(self.spark, self._state.catalog))

    # --- statements --------------------------------------------------------------------------------

    def sql(self, text: str, args: Args = None, **kwargs: Any) -> DataFrame:
        """Run one statement, as ``spark.sql`` does, with lookup joins and the DDL of lookup tables.

        Args:
            text: one statement. Without a lookup table in it, it goes to Spark untouched.
            args: values of parameter markers, by name (``:p``) or position (``?``).
            kwargs: as ``spark.sql`` takes them; with lookup tables DataFrames only (``FROM {orders}``).

        Raises:
            QueryError: a hint, an option or the shape of a join is wrong; shows the place.
            ConnectorError: the schema of a new table was asked for, and the source failed.
        """
        if kwargs:
            return self._statements.sql_with_variables(text, args, kwargs)
        return self._statements.sql(text, args)

    def explain(self, text: str, args: Args = None, mode: str = "formatted") -> str:
        """How a statement would run: its lookup joins, the Spark SQL, and Spark's plan. Runs nothing.

        Args:
            text: one statement; a leading EXPLAIN is allowed.
            args: as for ``sql``.
            mode: as ``EXPLAIN`` takes it: ``extended``, ``codegen``, ``cost`` or ``formatted``.
        """
        return self._statements.explain(text, args, mode)

    def lookup_join(
        self,
        df: DataFrame,
        table: str,
        on: frame_join.On = None,
        how: str = "inner",
        *,
        condition: str | None = None,
        columns: frame_join.Columns | None = None,
        alias: str | None = None,
        retry: RetryPolicy | None = None,
        asynchronous: bool | None = None,
        ordered: bool | None = None,
        capacity: int | None = None,
        timeout: float | str | None = None,
        batch_size: int | None = None,
        on_error: str | None = None,
        shuffle: bool | None = None,
    ) -> DataFrame:
        """Join ``df`` with a lookup table, asking it for the keys of ``df`` alone; lazy, as ``df.join`` is.

        The rows, names and types are those that ``df.join`` gives over the same rows. What is not given
        is as the table or the session says.

        Args:
            df: batch or streaming, classic or Connect.
            table: the name of a lookup table.
            on: which columns are equal. A name, or a list of names, that both sides have: such a column
                comes once, and first, as in ``df.join(other, on="id")``. ``{"customer_id": "id"}``, or
                pairs ``[(df.customer_id, "id")]``, for a column, SQL expression or Column of ``df`` and a
                column of the table: then all columns come.
            how: ``inner``, ``left``, ``left_semi`` or ``left_anti``, or another name that Spark has for one.
            condition: more of the join's condition as SQL: what rows that are found must meet, or keys
                (``"kind = 'b'"``). Columns of ``df`` are ``df.total``, those of the table
                ``customers.country``; a name that only one side has may stand alone.
            columns: which columns of the table come, or a dictionary of them with new names; all without it.
            alias: what the table is called in ``condition`` and in the result (``select("c.name")``).
            retry: when a key is asked again, such as ``FixedDelay(3, 10.0).if_miss()``.
            asynchronous: a wish for the async or the sync runner.
            ordered: whether completed requests count against ``capacity`` until all before them are out.
            capacity: requests in flight per task.
            timeout: seconds for one key, retries and waits included; or as in a hint (``"3 min"``).
            batch_size: the most keys in one request.
            on_error: ``fail``, ``null`` or ``skip``.
            shuffle: whether the rows of ``df`` are partitioned by key first.

        Raises:
            QueryError: a column, an option or the kind of join is wrong; says what to write.

        Example:
            >>> session.lookup_join(orders, "customers", on={"customer_id": "id"}, how="left",
            ...                     condition="customers.country <> 'DE'", columns=["name", "zip"],
            ...                     retry=FixedDelay(3, 10.0).if_miss(), timeout=60.0)
        """
        connector = self._connector_named(table)
        options = {
            "async": asynchronous,
            "output-mode": frame_join.output_mode(ordered),
            "capacity": capacity,
            "timeout": timeout,
            "batch-size": batch_size,
            "on-error": on_error,
            "shuffle": shuffle,
        }
        wishes = frame_join.JoinRequest(
            pairs=frame_join.pairs_of(on),
            is_using=frame_join.is_using(on),
            kind=frame_join.kind_of(how, table),
            condition=condition,
            columns=None if columns is None else frame_join.renamed(columns),
            alias=alias or connector.table.name,
            options=frame_join.read_options("lookup_join", options),
            retry=frame_join.checked_retry("lookup_join", retry),
        )
        return self.join_frame(df, connector, wishes)

    def join_frame(self, df: DataFrame, connector: Connector, wishes: frame_join.JoinRequest) -> DataFrame:
        """``df`` joined with the table of ``connector``, which need not be in the catalog."""
        scope = self._statements.scope
        case_sensitive = (scope.conf("spark.sql.caseSensitive") or "false").lower() == "true"
        joined = frame_join.frame_join(df, connector, wishes, case_sensitive)
        scope = scope.over({frame_join.LEFT: joined.frame}).with_table(connector, joined.hint)
        result = _Statements(self._state, scope).sql(joined.text)
        return result.drop(*joined.private) if joined.private else result

    def run_script(self, path_or_text: str | os.PathLike[str], args: Args = None) -> list[DataFrame]:
        """Run each statement of a script; one DataFrame for each, lazy where Spark's are.

        Streaming queries that it starts go on; ``streams`` waits for them and stops them.

        Args:
            path_or_text: a path to a file, or the text of the script.
            args: values of named parameter markers, the same for all statements.

        Raises:
            QueryError: as for ``sql``, at the first statement that fails; the ones before it have run.
        """
        return [self.sql(statement.text, args) for statement in split_statements(read_script(path_or_text))]

    def prepare(self, text: str, args: Args = None, *, few_rows: bool = False) -> Prepared:
        """Plan a statement without running it; ``run`` runs it.

        Args:
            text: one statement.
            args: as for ``sql``.
            few_rows: whether the first rows alone will be taken, as by ``show``: few keys are then asked.
        """
        return self._statements.prepare(text, args, few_rows=few_rows)

    def run(self, prepared: Prepared) -> DataFrame:
        """Run a prepared statement; a streaming INSERT gives the name and id of the query that it started."""
        return self._statements.run(prepared)

    def metrics(self) -> Mapping[str, LookupMetrics]:
        """What each lookup function counted so far, by its name (EXPLAIN shows it); empty on Connect.

        Counts arrive when a task ends; those of a task that Spark stopped early may be missing. Two sessions
        of one application that make the very same lookup share its function, and so its counts.
        """
        return self._state.functions.metrics()

    def tables(self) -> tuple[LookupTable, ...]:
        """The lookup tables of the session, by name."""
        return tuple(self._state.catalog.tables())

    @property
    def streams(self) -> Streams:
        """The streaming queries that INSERT statements of this session started: to wait for and to stop."""
        return self._state.streams

    def _connector_named(self, name: str) -> Connector:
        found = self._state.catalog.find(name)
        if found is None:
            known = [table.name for table in self._state.catalog.tables()]
            raise QueryError(frame_join.no_table(name, known))
        return build_connector(found)


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


_STREAM_AS_BATCH = "streaming sources must be executed with writeStream.start"


def _reads_a_stream(text: str, error: Exception) -> bool:
    """Whether ``text`` is an INSERT that Spark refuses as a batch: it reads a stream, or writes to what
    only a stream can be written to.
    """
    found = code(pieces(text))
    if not (found and found[0].is_word("INSERT")):
        return False
    if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
        return _STREAM_AS_BATCH in str(error)
    try:
        return sink_without_table(read_insert(text)) is not None
    except QueryError:
        return False


_SHARED_COLUMN = re.compile(rf"{PRIVATE_PREFIX}(\w+)")
_OWN_FUNCTION = re.compile("LAMBDA_FUNCTION_WITH_(PYTHON|SQL)_UDF|UNSUPPORTED_SQL_UDF_USAGE")


# In a plan, a Python function is `name(arguments)#number`.
_OWN_IN_LAMBDA = re.compile(rf"lambda {ROW.strip('`')}#\d+[^\n]*?\)#\d+")
_OWN_FUNCTION_IN_ON = Problem(
    "A function of your own (Python or SQL) stands in the ON condition of a lookup join, where"
    " Spark cannot call it.",
    tip="Of an INNER JOIN, move the condition to WHERE; of a LEFT JOIN, compute its left part in a subquery"
    " on the left.",
)


def _refuse_own_functions(error: Exception) -> None:
    """Say in the user's words what Spark says about text that the user did not write."""
    if _OWN_FUNCTION.search(str(error)):
        raise UnsupportedLookup(_OWN_FUNCTION_IN_ON) from error


def _not_taken(error: Exception) -> UnsupportedLookup:
    """What to say when Spark took the user's text, and does not take the text that it became."""
    shared = _SHARED_COLUMN.search(str(error))
    if shared is not None:
        column = shared[1]
        return UnsupportedLookup(
            Problem(
                f"The column {column} of USING or NATURAL is not allowed here with the lookup table's alias.",
                tip="Use the alias of the other side, or write ON with the equality in place of USING"
                f" ({column}).",
            )
        )
    reason = str(error).strip().partition("\n")[0]
    return UnsupportedLookup(
        Problem(
            "Spark takes this statement, but not the one that it becomes with its lookup joins; please report"
            f" this with the statement. Spark says: {reason}",
            tip="Until then, try the lookup join in a subquery: FROM (SELECT ... FROM ... JOIN ...).",
        )
    )


def _transport(conf: ConfValue) -> str:
    return transport_for(session_option("transport", conf))


def _named_as_written(planned: LookupPlan, frame: DataFrame) -> DataFrame:
    """``frame`` with the names that the columns of the user's text have."""
    renamed = _renamed_columns(planned, frame)
    return frame.toDF(*(name for name, _ in planned.output or ())) if renamed else frame


def _check_columns(planned: LookupPlan, frame: DataFrame) -> None:
    """What a statement writes must be what the user's would have written."""
    renamed = _renamed_columns(planned, frame)
    if renamed:
        raise UnsupportedLookup(
            Problem(
                f"The column {renamed[0]} of what is written takes its name from its expression, which is"
                " another one inside.",
                tip=f"Give it a name: {renamed[0]} AS x.",
            )
        )


def _renamed_columns(planned: LookupPlan, frame: DataFrame) -> list[str]:
    """The columns that Spark names after expressions which the rewrite changed.

    Raises:
        InternalError: the rewritten statement gives anything else than the user's would have given.
    """
    found, wanted = _columns(frame), planned.output
    if wanted is None or found == wanted:
        return []
    pairs = list(zip(found, wanted, strict=False))
    is_same = len(found) == len(wanted) and all(
        has[1] == should[1] and _is_same_expression(has[0], should[0]) for has, should in pairs
    )
    if not is_same:
        raise InternalError(
            f"the rewritten statement gives {found} instead of {wanted}; please report"
            f" this with the statement:\n{planned.text}"
        )
    return [should[0] for has, should in pairs if has != should]


def _is_same_expression(found: str, wanted: str) -> bool:
    """Whether Spark's names of two expressions differ only in what a rewrite changes.

    That is a column of USING under its private name, or how often a subquery names the outer query.
    """
    subquery = "scalarsubquery("
    return found.replace(PRIVATE_PREFIX, "") == wanted or (subquery in found and subquery in wanted)


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
