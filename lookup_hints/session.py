"""The session: what users call; ``driver`` does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lookup_hints.dataframe import join as frame_join
from lookup_hints.dataframe.hinted_frames import (
    FrameOfTable,
    mark_frame,
    replace_join_and_hint,
    restore_join_and_hint,
)
from lookup_hints.driver.parse_and_plan import Prepared
from lookup_hints.driver.pipelines import join_in_pipeline
from lookup_hints.driver.run_statement import Statements, explain_analyze
from lookup_hints.driver.scan_views import SCAN_PREFIX, unread_frame
from lookup_hints.driver.spark_names import why_not_read_by_frames
from lookup_hints.driver.spark_versions import is_pipeline
from lookup_hints.driver.statement_scope import Args, StatementScope, state_of
from lookup_hints.errors import Problem, QueryError, counted
from lookup_hints.estimate.report import EstimateOptions, StatementEstimate
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.prometheus import LOOPBACK, MetricsServer, serve
from lookup_hints.metrics.readable_summary import Moment
from lookup_hints.metrics.tables import aligned, html_table, shown_value
from lookup_hints.nearest import Nearest
from lookup_hints.retry import RetryPolicy
from lookup_hints.spi import Connector
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted
from lookup_hints.statements import read_script, split_statements
from lookup_hints.streaming.streams import Streams
from lookup_hints.tables.catalog import build_connector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lookup_hints.driver.doctor import DoctorReport, ExaminedTable


_TITLES = ("table", "connector", "key", "columns")


class LookupSession:
    """Runs SQL with lookup joins on a Spark session, classic or Connect.

    Lookup tables belong to the Spark session, like temporary views: two LookupSessions of one Spark
    session see the same tables.

    Examples:
        >>> session = LookupSession(spark)
        >>> session.sql("CREATE TEMPORARY TABLE c (id BIGINT, name STRING) WITH ('connector' = 'memory')")
        >>> session.sql("SELECT o.id, c.name FROM orders o LEFT JOIN c ON o.customer_id = c.id")
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._state = state_of(spark)

    def __repr__(self) -> str:
        head, rows = self._shown_tables()
        cells = [[shown_value(each) for each in row] for row in rows]
        return f"{head}\n{aligned([_TITLES, *cells], left=len(_TITLES))}" if rows else head

    def _repr_html_(self) -> str:
        head, rows = self._shown_tables()
        return f"<div>{escape(head)}</div>{html_table(_TITLES, rows) if rows else ''}"

    def _shown_tables(self) -> tuple[str, list[tuple[str | None, ...]]]:
        rows: list[tuple[str | None, ...]] = [
            (
                table.name,
                table.connector,
                ", ".join(table.primary_key) or None,
                ", ".join(f"{column.name} {sql_type(column.type)}" for column in table.schema),
            )
            for table in self.tables()
        ]
        return f"{counted(len(rows), 'lookup table')} on Spark {self.spark.version}", rows

    @property
    def _statements(self) -> Statements:
        self._state.init.run_once(
            self._state.catalog, lambda each: self.run(self.prepare(each.text, line=each.line)), self
        )
        return Statements(StatementScope(self.spark, self._state))

    # --- statements --------------------------------------------------------------------------------

    def sql(self, text: str, args: Args = None, **kwargs: Any) -> DataFrame:
        """Run one statement, as ``spark.sql`` does, with lookup joins and the DDL of lookup tables.

        Args:
            text: one statement. Without a lookup table in it, it goes to Spark untouched.
            args: values of parameter markers, by name (``:p``) or position (``?``).
            kwargs: as for ``spark.sql``; with lookup tables only DataFrames (``FROM {orders}``).

        Raises:
            QueryError: a hint, an option or the shape of a join is wrong; shows the place.
            ConnectorError: the source failed while the schema of a new table was discovered.
        """
        if kwargs:
            return self._statements.sql_with_variables(text, args, kwargs)
        return self._statements.sql(text, args)

    def explain(self, text: str, args: Args = None, mode: str = "formatted", *, line: int = 1) -> str:
        """How a statement would run: its lookup joins, the Spark SQL, and Spark's plan. Runs nothing.

        Args:
            text: one statement; a leading EXPLAIN is allowed.
            args: as for ``sql``.
            mode: as ``EXPLAIN`` takes it: ``extended``, ``codegen``, ``cost`` or ``formatted``.
            line: where the statement begins in its file; joins are named by their lines.
        """
        return self._statements.explain(text, args, mode, line)

    def explain_analyze(self, text: str, args: Args = None) -> str:
        """Run a statement to its end, and return its plan with the counts of each lookup; rows are not kept.

        The first line names what the tasks waited for most. A statement that writes does write.

        Args:
            text: one statement with a lookup join.
            args: as for ``sql``.

        Raises:
            QueryError: the statement has no lookup join, or starts a streaming query.

        Examples:
            >>> print(session.explain_analyze("SELECT ... FROM orders o JOIN customers c ON ..."))
            4.2 s; 82 % of 16.1 s in 4 tasks went into waiting for customers: 40 requests in flight
            ...
        """
        statements = self._statements
        return explain_analyze(statements, statements.prepare(text, args))

    def lookup_join(
        self,
        df: DataFrame,
        table: str,
        on: frame_join.On = None,
        how: str = "inner",
        *,
        condition: str | None = None,
        as_of: str | Column | None = None,
        known_as_of: str | Column | None = None,
        nearest: Nearest | None = None,
        columns: frame_join.ColumnChoice | None = None,
        alias: str | None = None,
        retry: RetryPolicy | None = None,
        asynchronous: bool | None = None,
        ordered: bool | None = None,
        capacity: int | None = None,
        timeout: float | str | None = None,
        batch_size: int | None = None,
        on_error: str | None = None,
        dead_letter_path: str | None = None,
        max_errors: int | None = None,
        max_error_ratio: float | None = None,
        max_requests: int | None = None,
        on_open: str | None = None,
        access: str | None = None,
        cache: str | None = None,
        shuffle: bool | None = None,
    ) -> DataFrame:
        """Join ``df`` with a lookup table, looking up only the keys of ``df``; lazy like ``df.join``.

        Rows, names and types equal those of ``df.join`` over the same rows. Arguments that are not given
        default to the settings of the table, then of the session.

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
            as_of: the moment whose rows are joined: a column, SQL expression or Column of ``df``. The table
                names with ``lookup.valid-from`` the column that says from when they are valid.
            known_as_of: the moment by which these rows must be known, if it is another one. The table names
                with ``lookup.known-from`` the column that says from when they are known.
            nearest: of the rows found only the nearest ones are joined: see ``Nearest``. Without ``on`` they
                are the nearest of all rows.
            columns: which columns of the table come, or a dictionary of them with new names; all by default.
            alias: the table's name in ``condition`` and in the result (``select("c.name")``).
            retry: when a key is looked up again, such as ``FixedDelay(3, 10.0).if_miss()``.
            asynchronous: prefer the async or the sync runner.
            ordered: whether a finished request keeps its slot until all earlier ones are delivered.
            capacity: requests in flight per task.
            timeout: seconds for one key, retries and waits included; or as in a hint (``"3 min"``).
            batch_size: the most keys in one request.
            on_error: ``fail``, ``null``, ``skip`` or ``dead-letter``.
            dead_letter_path: the folder for keys that failed permanently, if ``on_error`` is ``dead-letter``.
            max_errors: keys of one task that may fail permanently.
            max_error_ratio: share of the keys of one task that may fail permanently, from 0 to 1.
            max_requests: requests of one query; the first one above it fails the query.
            on_open: what requests do while the source is down: ``wait`` within their timeout, or ``fail``.
            access: ``lookup`` (the default) looks up keys, ``scan`` reads the table whole for Spark to join,
                ``auto`` does whichever is surely cheaper.
            cache: ``partial`` to use cached answers, ``none`` to do without.
            shuffle: whether the rows of ``df`` are partitioned by key first.

        Raises:
            QueryError: a column, an option or the kind of join is wrong; says what to write.

        Examples:
            >>> session.lookup_join(orders, "customers", on={"customer_id": "id"}, how="left",
            ...                     condition="customers.country <> 'DE'", columns=["name", "zip"],
            ...                     retry=FixedDelay(3, 10.0).if_miss(), timeout=60.0)
        """
        options = frame_join.read_options("lookup_join", locals())  # by their names among the arguments
        connector = build_connector(self._statements.scope.table(table))
        request = frame_join.JoinRequest(
            pairs=frame_join.pairs_of(on),
            is_using=frame_join.is_using(on),
            kind=frame_join.kind_of(how, table),
            condition=condition,
            columns=None if columns is None else frame_join.renamed(columns),
            alias=alias or connector.table.name,
            options=options,
            retry=frame_join.checked_retry("lookup_join", retry),
            as_of=as_of,
            known_as_of=known_as_of,
            nearest=nearest,
        )
        return self.join_frame(df, connector, request)

    def join_frame(self, df: DataFrame, connector: Connector, request: frame_join.JoinRequest) -> DataFrame:
        """``df`` joined with the table of ``connector``, which need not be in the catalog."""
        scope = self._statements.scope
        if is_pipeline(self.spark):
            return join_in_pipeline(df, connector, request, scope)
        case_sensitive = (scope.conf("spark.sql.caseSensitive") or "false").lower() == "true"
        joined = frame_join.frame_join(df, connector, request, case_sensitive)
        scope = scope.over({frame_join.LEFT: joined.frame}).with_table(connector, joined.hint)
        result = Statements(scope).sql(joined.text)
        if not joined.private:
            return result
        public = result.drop(*joined.private)
        if result in self._state.estimates:
            self._state.estimates[public] = self._state.estimates[result]
        return public

    def read(self, table: str) -> DataFrame:
        """A lookup table as a DataFrame that reads it whole, again at each action.

        After ``enable``, ``spark.table`` gives the same, and ``.hint("lookup", ...)`` on it lets a join look
        up keys instead: ``df.join(spark.table("customers").hint("lookup", "capacity=20"), "id")``.

        Args:
            table: the name of a lookup table.

        Raises:
            QueryError: there is no such table. That it may not be read fails the action, not this call.

        Examples:
            >>> session.read("customers").where("country = 'DE'").show()
        """
        scope = self._statements.scope
        connector = scope.connector_of(scope.table(table))
        name, names = connector.table.name, self._state.names
        names.refuse_other_view(scope, name)

        def unread(why: str) -> DataFrame:
            return unread_frame(self.spark, connector, why)

        def join(df: DataFrame, request: frame_join.JoinRequest) -> DataFrame:
            return self.join_frame(df, connector, request)

        refusal = why_not_read_by_frames(connector, scope.conf)
        if refusal:
            frame = unread(refusal)
        elif names.has(name) and self.spark.catalog.isCached(quoted(name)):
            frame = type(self.spark).table(self.spark, quoted(name))
        else:
            try:
                frame = self.sql(f"SELECT * FROM {quoted(name)}")  # noqa: S608 (a quoted name)
            except QueryError as error:
                frame = unread(" ".join(str(replace(each, at=None)) for each in error.problems))
        return mark_frame(frame, FrameOfTable(name, join, unread))

    def estimate(
        self,
        query: str | DataFrame,
        args: Args = None,
        *,
        sample: float | None = None,
        ask: int | None = None,
        line: int = 1,
    ) -> StatementEstimate:
        """What the lookups of a query will cost: left rows, keys, requests, time and price.

        Runs the left sides of its lookup joins and counts them. Makes no lookup, but those of ``ask``. What
        cannot be known before the query runs is UNKNOWN, with its bounds.

        Args:
            query: a statement, or a DataFrame that ``sql`` or ``lookup_join`` of this session gave.
            args: values of the statement's parameter markers.
            sample: the share of keys to count, such as 0.01; their number is a range then.
            ask: how many keys of a lookup are looked up, at most, to know those of the lookups behind it.
            line: where the statement begins in its file.

        Raises:
            QueryError: the DataFrame is another one, or the query is a stream.

        Examples:
            >>> session.estimate("SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id")
        """
        options = EstimateOptions(sample, ask)
        if isinstance(query, str):
            return self._statements.estimate(query, args, options, line)
        estimate = self._state.estimates.get(query)
        if estimate is None:
            tip = "Estimate what session.sql or session.lookup_join gave, or the text of a statement."
            raise QueryError(Problem("No lookup join of this session made this DataFrame.", tip=tip))
        return estimate(options)

    def run_script(self, path_or_text: str | os.PathLike[str], args: Args = None) -> list[DataFrame]:
        """Run each statement of a script; one DataFrame for each, lazy where Spark's are.

        Streaming queries that it starts go on; ``streams`` waits for them and stops them.

        Args:
            path_or_text: a path to a file, or the text of the script.
            args: values of named parameter markers, the same for all statements.

        Raises:
            QueryError: as for ``sql``, at the first statement that fails; the ones before it have run.
        """
        return [
            self.run(self.prepare(statement.text, args, line=statement.line))
            for statement in split_statements(read_script(path_or_text))
        ]

    def prepare(self, text: str, args: Args = None, *, few_rows: bool = False, line: int = 1) -> Prepared:
        """Plan a statement without running it; ``run`` runs it.

        Args:
            text: one statement.
            args: as for ``sql``.
            few_rows: whether only the first rows will be taken, as by ``show``; then few keys are looked up.
            line: where the statement begins in its file; metrics name it.
        """
        return self._statements.prepare(text, args, few_rows=few_rows, line=line)

    def run(self, prepared: Prepared) -> DataFrame:
        """Run a prepared statement; a streaming INSERT gives the name and id of the query that it started."""
        return self._statements.run(prepared)

    def invalidate(self, table: str, keys: Iterable[Any] | DataFrame | None = None) -> None:
        """Drop the cached answers of a table, as ``REFRESH TABLE`` does.

        It holds for each statement that this session plans from now on, on all executors. Queries that run
        already see it on a local Spark at once, and elsewhere when such a statement runs on their executor.

        Args:
            table: the name of a lookup table.
            keys: values of its primary key, or a DataFrame of them: only answers to these are invalidated. A
                tuple each, where the key has several columns. Columns of a DataFrame are taken by name where
                they are called as those of the key. A time without a zone is one of this process. Lookups
                by other columns are invalidated whole.

        Raises:
            QueryError: there is no such table, or the keys are invalid.

        Examples:
            >>> def invalidate(changes, batch):
            ...     session.invalidate("customers", changes.select("id").distinct())
            >>> change_stream.writeStream.foreachBatch(invalidate).start()
        """
        self._statements.invalidate(table, keys)

    def metrics(self) -> Mapping[LookupName, LookupMetrics]:
        """The counts of each lookup of this session so far, by table, alias, connector and line.

        Counts arrive when a task ends; those of a task that Spark stopped early may be missing. On Spark
        Connect this fetches them from the server. Two sessions of one application that run the very same
        lookup share its counts.

        Examples:
            >>> for name, counts in session.metrics().items():
            ...     print(name, counts.keys, counts.latency.quantile(0.99))
            customers AS c, line 1 1000 0.0123
        """
        return self._state.functions.metrics()

    def doctor(
        self,
        *tables: str | ExaminedTable,
        key: Mapping[str, object] | None = None,
        timeout: float = 10.0,
        joins: int = 1,
    ) -> DoctorReport:
        """Check that lookup tables can be reached and looked up fast, from here and from each executor.

        Checks names, ports, TLS, login, rights, columns, indexes and connections as far as the connector can,
        and times ten lookups. Writes nothing. Each problem in the report comes with a fix.

        Args:
            tables: names of tables; by default all of the session.
            key: existing values of key columns, for sources that cannot list any.
            timeout: seconds for one step, such as a connection or a lookup.
            joins: lookup joins that run in one stage, at most.

        Examples:
            >>> report = session.doctor("customers", key={"id": 1})
            >>> print(report)
            >>> assert report.is_well
        """
        from lookup_hints.driver.doctor import ExaminedTable, examine

        scope = self._statements.scope
        named = [ExaminedTable(scope.table(each)) if isinstance(each, str) else each for each in tables]
        given = {name: str(value) for name, value in (key or {}).items()}
        examined = named or [ExaminedTable(table) for table in self.tables()]
        report = examine(scope, examined, given=given, timeout=timeout, joins=joins)
        timed = [(each.table.lower(), each.check.seconds) for each in report.findings if each.check.seconds]
        self._state.doctor_seconds.update({table: median(seconds) for table, seconds in timed})
        return report

    def serve_metrics(self, port: int, host: str = LOOPBACK, *, flink_names: bool = False) -> MetricsServer:
        """Serve ``metrics`` to Prometheus from this driver, until the server is stopped.

        If the port is taken, this logs a warning and serves nothing.

        Args:
            port: the port; 0 takes a free one.
            host: the address to listen on. The default admits no other machine.
            flink_names: whether counts that Flink also has are served under Flink's names as well.

        Raises:
            OptionError: ``port`` is invalid, or the package is missing (``lookup-hints[prometheus]``).

        Examples:
            >>> server = session.serve_metrics(0)
            >>> server.url
            'http://127.0.0.1:40123/metrics'
        """
        job_name = self.spark.conf.get("spark.app.name", "") or "" if flink_names else ""
        return serve(
            port,
            host,
            self.metrics,
            planner_failures=lambda: self._state.failures.count,
            flink_names=flink_names,
            job_name=job_name,
        )

    def watching(self) -> AbstractContextManager[Callable[[], Mapping[LookupName, Moment]]]:
        """Live counts while statements of this thread run, running tasks included.

        The yielded function may be called from any thread. On Spark Connect, and if workers cannot reach the
        driver by UDP, it includes only tasks that have ended.

        Examples:
            >>> with session.watching() as look:
            ...     Timer(5.0, lambda: print(look())).start()
            ...     session.sql("SELECT ...").collect()
        """
        return self._state.functions.watching(self.spark)

    def tables(self) -> tuple[LookupTable, ...]:
        """The lookup tables of the session, by name."""
        return tuple(self._statements.scope.state.catalog.tables())

    @property
    def streams(self) -> Streams:
        """The streaming queries that INSERT statements of this session started: to wait for and to stop."""
        return self._state.streams


_enabled: WeakKeyDictionary[SparkSession, type] = WeakKeyDictionary()
"""The class of frames of each session that is enabled: to ask Spark for it again may fail."""


def enable(spark: SparkSession) -> LookupSession:
    """Let ``spark`` itself understand lookup tables: ``sql``, ``table``, ``catalog``, joins of DataFrames.

    For code and notebooks that already exist; ``disable`` undoes it. Each lookup table is a temporary view
    to Spark, which reads it whole where the table allows that.

    Raises:
        QueryError: a lookup table has the name of a temporary view, or ``spark.lookup.init`` fails.
    """
    session = LookupSession(spark)
    scope, names = session._statements.scope, session._state.names
    names.is_enabled = True
    try:
        names.update(scope)
        catalog, kind = spark.catalog, type(spark.range(0))
    except BaseException:
        disable(spark)
        raise

    def table(name: str) -> DataFrame:
        own = scope.find_written(name)
        return type(spark).table(spark, name) if own is None else session.read(own.name)

    def list_tables(*args: Any, **kwargs: Any) -> list[Any]:
        listed = type(catalog).listTables(catalog, *args, **kwargs)
        return [each for each in listed if not each.name.startswith(SCAN_PREFIX)]

    def drop_view(name: str) -> bool:
        own = scope.find_written(name)
        return names.drop_view(
            scope, name if own is None else own.name, lambda: type(catalog).dropTempView(catalog, name)
        )

    def refresh(name: str) -> None:
        own = scope.find_written(name)
        if own is None:
            type(catalog).refreshTable(catalog, name)
        else:
            session.invalidate(own.name)

    vars(spark).update(sql=session.sql, table=table)
    vars(catalog).update(listTables=list_tables, dropTempView=drop_view, refreshTable=refresh)
    replace_join_and_hint(kind)
    _enabled[spark] = kind
    return session


def disable(spark: SparkSession) -> None:
    """Give ``spark`` all that is its own back. Lookup tables stay, for when it is enabled again.

    On Spark Connect the private views ``lookup_scan...`` stay, too: frames are analysed over them again.
    """
    scope = StatementScope(spark, state_of(spark))
    scope.state.names.is_enabled = False
    try:
        scope.state.names.update(scope)
        scope.drop_scans()
    finally:  # also where Spark is gone, or fails
        for own, names in (
            (vars(spark), ("sql", "table")),
            (vars(spark.catalog), ("listTables", "dropTempView", "refreshTable")),
        ):
            for name in names:
                own.pop(name, None)
        kind = _enabled.pop(spark, None)
        if kind is not None and kind not in _enabled.values():
            restore_join_and_hint(kind)
