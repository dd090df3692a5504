"""One statement prepared, run and explained: the one place where plan, runtime and Spark meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lookup_hints.dataframe.variables import named_frames, variables_refused
from lookup_hints.driver.ddl import nothing, run_ddl
from lookup_hints.driver.invalidation import invalidation_spec, keys_of
from lookup_hints.driver.prepare import Prepared, prepare, prepare_stream, read, transport_of
from lookup_hints.driver.query import check_taken, register, run_query
from lookup_hints.driver.scope import Args, StatementScope
from lookup_hints.driver.spark_errors import NotTaken
from lookup_hints.driver.state import SessionState
from lookup_hints.driver.streams import is_stream, start_stream
from lookup_hints.errors import InternalError, QueryError
from lookup_hints.plan.explain import explain
from lookup_hints.plan.planner import mentions_lookup
from lookup_hints.statements.statement import Explain, Setting, SparkStatement
from lookup_hints.streaming.insert import StreamInsert, read_insert
from lookup_hints.tables.ddl import Ddl, RefreshTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Statements:
    """Prepares, runs and explains statements over one scope."""

    state: SessionState
    scope: StatementScope

    def over(self, frames: Mapping[str, DataFrame]) -> Statements:
        """The same for statements that read ``frames``."""
        return replace(self, scope=self.scope.over(frames))

    def sql(self, text: str, args: Args = None) -> DataFrame:
        """Prepare one statement, and run it."""
        return self.run(self.prepare(text, args))

    def prepare(self, text: str, args: Args = None, *, few_rows: bool = False, line: int = 1) -> Prepared:
        """Read and plan one statement, which begins at ``line`` of its file."""
        return prepare(text, args, self.scope, self.state.functions, few_rows=few_rows, line=line)

    def run(self, prepared: Prepared) -> DataFrame:
        """Run a prepared statement; a streaming INSERT gives the name and id of the query that it started."""
        statement, functions = prepared.statement, self.state.functions
        if isinstance(statement, StreamInsert):
            return start_stream(prepared, statement, self.scope, self.state)
        if isinstance(statement, Setting):
            return self._set(statement)
        if isinstance(statement, Explain):
            return self._run_explain(prepared, statement)
        if isinstance(statement, RefreshTable):
            self.invalidate(statement.name)
            return nothing(self.scope)
        if isinstance(statement, Ddl):
            return run_ddl(statement, self.scope)
        try:
            return run_query(prepared, self.scope, functions)
        except (NotTaken, InternalError) as error:
            return run_query(self._read_instead(prepared, error), self.scope, functions)
        except Exception:
            if not is_stream(prepared, self.scope):
                raise
            return self.run(prepare_stream(read_insert(prepared.text), prepared.args, self.scope, functions))

    def explain(self, text: str, args: Args = None, mode: str = "formatted") -> str:
        """How one statement would run."""
        statement = read(self.scope.as_read(text), self.scope)
        prepared = self.prepare(statement.text if isinstance(statement, Explain) else text, args)
        if isinstance(prepared.statement, Ddl):
            return "A statement about lookup tables; Spark does not see it."
        if isinstance(prepared.statement, StreamInsert):
            head = f"== Streaming query into {prepared.statement.shown_sink} =="
            return f"{head}\n\n{self.explain(prepared.text, prepared.args, mode)}"
        planned = self._taken(prepared).plan
        if planned is None:
            return self.scope.explained(prepared.text, prepared.args, mode)
        spark_plan = self.scope.explained(planned.sql, prepared.args, mode)
        return f"{explain(planned)}\n\n== Spark plan ==\n{spark_plan}"

    def _taken(self, prepared: Prepared) -> Prepared:
        """``prepared``, known to Spark; with its tables read where Spark does not take what asks them."""
        if prepared.plan is None:
            return prepared
        register(prepared.plan, self.scope, self.state.functions)
        try:
            check_taken(prepared, self.scope)
        except (NotTaken, InternalError) as error:
            return self._taken(self._read_instead(prepared, error))
        return prepared

    def _read_instead(self, prepared: Prepared, error: NotTaken | InternalError) -> Prepared:
        """What was asked for by a text that Spark does not take, with its tables read whole.

        Raises:
            NotTaken: they cannot be read, or are not to be.
            InternalError: likewise.
        """
        reason = NotTaken.reason if isinstance(error, NotTaken) else f"asking failed ({error})"
        try:
            read = prepare(
                prepared.text, prepared.args, self.scope, self.state.functions, read_because=reason
            )
        except QueryError:
            raise error from None
        if read.plan is None or read.plan.joins or not read.plan.scans:
            raise error
        return read

    def invalidate(self, name: str, keys: Iterable[Any] | DataFrame | None = None) -> None:
        """Invalidate what is remembered of the table of that name."""
        table = self.scope.table(name)
        if keys is None:
            self.scope.invalidations.invalidate(table)
        else:
            self.scope.invalidations.invalidate(table, table.primary_key, keys_of(table, keys))
        if self.scope.has_one_executor:
            conf = self.scope.settings()
            spec = invalidation_spec(self.scope.connector_of(table), self.scope.invalidations, conf)
            self.state.functions.begin_task(self.scope.spark, spec, transport_of(conf))

    def _set(self, setting: Setting) -> DataFrame:
        self.scope.spark.conf.set(setting.key, setting.value)
        return self.scope.rows("key STRING, value STRING", [(setting.key, setting.value)])

    def _run_explain(self, prepared: Prepared, explained: Explain) -> DataFrame:
        inner = self.prepare(explained.text, prepared.args)
        if isinstance(inner.statement, SparkStatement) and inner.plan is None:
            return self.scope.sql(prepared.text, prepared.args)
        text = self.explain(explained.text, prepared.args, explained.mode)
        return self.scope.rows("plan STRING", [(text,)])

    def sql_with_variables(self, text: str, args: Args, variables: dict[str, Any]) -> DataFrame:
        """Run one statement whose text names ``variables`` in braces."""
        if isinstance(read(self.scope.as_read(text), self.scope), Ddl):
            raise variables_refused(variables)
        if mentions_lookup(text, self.scope.may_concern):
            try:
                named, frames = named_frames(text, variables)
            except QueryError:
                if mentions_lookup(text, self.scope.find):
                    raise
                # A view over a lookup table, and variables that only Spark takes: it reads the table whole.
            else:
                return self.over(frames).sql(named, args)
        original: Callable[..., DataFrame] = type(self.scope.spark).sql
        return original(self.scope.spark, text, args, **variables)
