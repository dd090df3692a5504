"""The scope of a statement: the Spark session, and the tables, frames and hints that its text may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from lookup_hints.dataframe.frames_in_text import run_over
from lookup_hints.dataframe.join import no_table
from lookup_hints.driver.application_policy import policy_of
from lookup_hints.driver.attempts import PlannerFailures
from lookup_hints.driver.execute_immediate import Immediate
from lookup_hints.driver.functions import Functions
from lookup_hints.driver.init_statements import InitStatements
from lookup_hints.driver.interrupts import catch_interrupts
from lookup_hints.driver.invalidation import InvalidationLog
from lookup_hints.driver.lineage import Lineage
from lookup_hints.driver.made_once import MadeOnce
from lookup_hints.driver.shipping import run_the_drivers_python
from lookup_hints.driver.spark_names import SparkNames
from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.driver.table_sizes import LeftCosts, TableSizes
from lookup_hints.driver.views import FoundView, LookupViews, view_definition
from lookup_hints.errors import QueryError
from lookup_hints.estimate.report import EstimateOptions, StatementEstimate
from lookup_hints.hints.hint_comments import LookupHint
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.key_casts import ANSI
from lookup_hints.pyspark_internals import all_settings
from lookup_hints.spi import Connector
from lookup_hints.spi.arrow_types import TIMESTAMP
from lookup_hints.spi.lookup_options import INIT
from lookup_hints.spi.option_values import Conf
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import text_value
from lookup_hints.sql.session_syntax import with_backquotes, with_escapes, with_long_pipes, with_variables
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.streaming.streams import Streams
from lookup_hints.tables.catalog import LookupCatalog, build_connector
from lookup_hints.tables.ddl_columns import plain_timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Args = Mapping[str, Any] | Sequence[Any] | Immediate | None
"""Values of a statement's parameter markers, as ``spark.sql`` takes them."""


@dataclass(frozen=True)
class SessionState:
    """The state of a session that all its statements share."""

    functions: Functions
    streams: Streams
    catalog: LookupCatalog
    sizes: TableSizes = field(default_factory=TableSizes)
    costs: LeftCosts = field(default_factory=LeftCosts)
    views: LookupViews = field(default_factory=LookupViews)
    invalidations: InvalidationLog = field(default_factory=InvalidationLog)
    failures: PlannerFailures = field(default_factory=PlannerFailures)
    lineage: Lineage = field(default_factory=Lineage)
    names: SparkNames = field(default_factory=SparkNames)
    init: InitStatements = field(default_factory=InitStatements)
    estimates: WeakKeyDictionary[DataFrame, Callable[[EstimateOptions], StatementEstimate]] = field(
        default_factory=WeakKeyDictionary
    )
    """How each DataFrame with lookup joins that the session gave is estimated."""
    doctor_seconds: dict[str, float] = field(default_factory=dict)
    """What one lookup took when the doctor timed it, by the table's name in lower case."""


_states: MadeOnce[SessionState] = MadeOnce()


def state_of(spark: SparkSession) -> SessionState:
    """The state of a Spark session, made at the first call."""
    return _states.of(spark, lambda: _new_state(spark))


def _new_state(spark: SparkSession) -> SessionState:
    run_the_drivers_python(spark)
    catch_interrupts()
    # Read once, before any statement, so that a session cannot change it.
    policy = policy_of(spark)
    functions = Functions(spark)
    streams = Streams(spark, functions.metrics_of_batch, functions.fetched_metrics_of_batch)
    init = InitStatements(session_option(INIT.key, lambda key: spark.conf.get(key, None)))
    return SessionState(functions, streams, LookupCatalog(policy), init=init)


# All settings in two round trips: one by one, forty of them take 12 ms, more than Spark's analysis of the
# statement. (docs/decisions/0181)
@dataclass(frozen=True)
class StatementScope:
    """The scope of one statement.

    Args:
        spark: the session.
        state: the session's lookup tables, functions, streams and views.
        frames: DataFrames, by their names in braces as for ``spark.sql``.
        connectors: lookup tables outside of the catalog, by their names in lower case.
        hints: LOOKUP hints in addition to those of the text.
    """

    spark: SparkSession
    state: SessionState
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    connectors: Mapping[str, Connector] = field(default_factory=dict)
    hints: tuple[LookupHint, ...] = ()

    def over(self, frames: Mapping[str, DataFrame]) -> StatementScope:
        """This scope with ``frames``, in the Spark session that they are of: a micro-batch has a copy."""
        others = (frame.sparkSession for frame in frames.values() if frame.sparkSession is not self.spark)
        return replace(self, frames=frames, spark=next(others, self.spark))

    def with_table(self, connector: Connector, hint: LookupHint) -> StatementScope:
        """This scope with a lookup table more, and the hint that is about it."""
        return replace(self, connectors={connector.table.name.lower(): connector}, hints=(hint,))

    # --- tables ------------------------------------------------------------------------------------

    def find(self, name: str) -> LookupTable | None:
        own = self.connectors.get(name.lower())
        return self.state.catalog.find(name) if own is None else own.table

    def find_written(self, name: str) -> LookupTable | None:
        """The table that ``name`` means as Spark's API takes it, quoted or not."""
        pieces = SqlText(name).code
        return self.find(pieces[0].name) if len(pieces) == 1 and pieces[0].is_name else None

    def table(self, name: str) -> LookupTable:
        found = self.state.catalog.find(name)
        if found is None:
            raise QueryError(no_table(name, [table.name for table in self.state.catalog.tables()]))
        return found

    def may_concern(self, name: str) -> bool:
        """Whether a lookup table has that name, or a view over one."""
        return self.find(name) is not None or self.state.views.knows(name)

    def find_view(self, name: str) -> FoundView:
        if not self.state.views.knows(name) or name in self.frames:
            return None, False
        return self.state.views.find(name, self._rows_of, case_sensitive=self._is_case_sensitive)

    def remember_view(self, text: SqlText, args: Args = None) -> None:
        """Remember the view that the statement has made, if it made one."""
        found = view_definition(
            text, self.find, cache(self.find_view), case_sensitive=self._is_case_sensitive
        )
        if found is None:
            return
        if args or "${" in text:
            # The view keeps the parameter values of its statement; its text would use later ones.
            found = replace(found, through=None)
        self.state.views.remember(found, self._rows_of)

    def drop_scans(self) -> None:
        """Drop the private views that statements read, unless a view of the user needs them."""
        if not is_connect(self.spark):  # there a frame is analysed again at each action, over these views
            self.state.functions.drop_scans(self.spark, self.state.views.plans(self._rows_of))

    def _rows_of(self, text: str) -> list[Row]:
        return self.sql(text).collect()

    @property
    def _is_case_sensitive(self) -> bool:
        return self._is_on("spark.sql.caseSensitive")

    def connector_of(self, table: LookupTable) -> Connector:
        own = self.connectors.get(table.name.lower())
        return build_connector(table) if own is None else own

    # --- Spark -------------------------------------------------------------------------------------

    @property
    def has_one_executor(self) -> bool:
        """Whether all tasks run on this machine, in the process of the driver's Spark."""
        if is_connect(self.spark):  # to ask it for its master would be a trip for nothing
            return False
        master = self.conf("spark.master") or ""
        return master == "local" or master.startswith("local[")

    def sql(self, text: str, args: Args = None, *, into: bool = False) -> DataFrame:
        """Spark's own ``sql``, also where ``enable`` has put ours in its place.

        With ``into`` the row of an EXECUTE IMMEDIATE goes where it says.
        """
        if isinstance(args, Immediate):
            text, args = args.running(text, into=into), args.args
        if self.frames:
            return run_over(self.spark, text, args, self.frames)
        original: Callable[..., DataFrame] = type(self.spark).sql
        return original(self.spark, text, args) if args else original(self.spark, text)

    def value_of(self, expression: str, args: Args = None) -> object:
        """The value of a constant expression; raises Spark's error if it has none."""
        value: object = self.sql(f"SELECT {expression}", args).collect()[0][0]
        return value

    def explained(self, text: str, args: Args, mode: str) -> str:
        """The text of Spark's own EXPLAIN; of an error, each line is a row."""
        try:
            rows = self.sql(f"{explain_words(mode)}{text.rstrip().rstrip(';')}", args).collect()
            return "\n".join(str(row[0]) for row in rows)
        except Exception as error:
            if is_syntax_error(error) and not SqlText.of(text).starts_with("BEGIN"):
                self.sql(text, args)  # runs nothing, but its error shows the text as it was written
            raise

    def conf(self, key: str) -> str | None:
        """The value of a key of Spark's configuration, or None."""
        if key == ANSI:  # its default differs between versions
            return self.spark.conf.get(key)
        return self.spark.conf.get(key, None)

    def as_read(self, text: SqlText) -> SqlText:
        """``text`` as Spark's parser reads it in this session, in words that mean it under every setting."""
        if "${" in text:
            text = with_variables(text, cache(self._value_of))
        if '"' in text and self._is_on("spark.sql.ansi.doubleQuotedIdentifiers") and self._is_on(ANSI):
            text = with_backquotes(text)
        if "|" in text and self._has_short_pipes:
            text = with_long_pipes(text)
        if "\\" in text and self._is_on("spark.sql.parser.escapedStringLiterals"):
            text = with_escapes(text)
        return text

    @property
    def _has_short_pipes(self) -> bool:
        try:
            return self.spark.conf.get("spark.sql.parser.singleCharacterPipeOperator.enabled") == "true"
        except Exception:  # a Spark before 4.3
            return False

    def timestamp_of(self, text: SqlText) -> pa.DataType:
        """The meaning of TIMESTAMP in this session, read only if ``text`` may create a table with one."""
        lower = text.lower()
        may_say_it = "create" in lower and "timestamp" in lower
        if may_say_it and {"create", "timestamp"} <= {piece.text.lower() for piece in text.pieces}:
            return plain_timestamp(self.conf)
        return TIMESTAMP

    def _value_of(self, reference: str) -> str | None:
        """The value that Spark substitutes for ``${name}``, read from the name of a column made with it."""
        for opening, quote in (("1 AS ", "`"), ("r", "'"), ("r", '"')):  # the value may hold quotes
            with suppress(Exception):
                name = self.sql(f"SELECT {opening}{quote}={reference}{quote}").columns[0]
                return name.partition("=")[2]
        return None

    def _is_on(self, key: str) -> bool:
        return (self.conf(key) or "false").lower() == "true"

    def settings(self) -> Conf:
        """The configuration for one statement, fetched at once, as each key would be a round trip."""
        found: dict[str, str] | None
        if is_connect(self.spark):
            found = getattr(self.spark.conf, "getAll", None)  # new in Spark 4.0
        elif (found := all_settings(self.spark.conf)) is not None and ANSI not in found:
            found[ANSI] = str(self.spark.conf.get(ANSI))  # its default differs between versions
        return cache(self.conf) if found is None else found.get

    def rows(self, schema: str, rows: Sequence[tuple[str | bool | None, ...]]) -> DataFrame:
        """A few rows of text: as SQL, for ``createDataFrame`` would start a Python worker to read them."""
        if not rows:
            return self.spark.createDataFrame([], schema)
        listed = ", ".join(f"({', '.join(map(_sql_literal, row))})" for row in rows)
        columns = (column.split() for column in schema.split(", "))
        select = ", ".join(
            f"CAST(col{number} AS {kind}) AS {name}" for number, (name, kind) in enumerate(columns, 1)
        )
        return self.sql(f"SELECT {select} FROM VALUES {listed}")  # noqa: S608 (all parts are ours)


def is_syntax_error(error: Exception) -> bool:
    return type(error).__name__ == "ParseException"


def _sql_literal(value: str | bool | None) -> str:
    return text_value(value) if isinstance(value, str) else str(value).upper().replace("NONE", "NULL")


def explain_words(mode: str) -> str:
    """What stands before the text of a statement that Spark is to explain."""
    return f"EXPLAIN {mode.upper()} "
