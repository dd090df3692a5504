"""The shell: reads statements and runs each, going on after errors."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lookup_hints.cli import job
from lookup_hints.cli.arguments import WELL
from lookup_hints.cli.interrupts import Interrupted
from lookup_hints.cli.job import stream_summary
from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.errors import LookupHintsError, QueryError
from lookup_hints.pyspark_internals import errors_unlogged
from lookup_hints.runs.statement_run import failure
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import ScriptStatement, split_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lookup_hints.session import LookupSession

_LEAVE = ("exit", "quit")
_HELP = "help"
HELP = """\
A statement ends with ; and may take several lines. SQL is Spark's, with lookup joins and their hints.
Tab completes tables, columns and options; the arrow keys bring back what was typed, Ctrl-R searches it.
Ctrl-C cancels the statement that runs, or drops the one that is typed. exit, or Ctrl-D, leaves."""


def is_complete(text: str) -> bool:
    """Whether Enter runs ``text``: its last statement has ended, or it is a word of the shell's own.

    >>> is_complete("SELECT 1"), is_complete("SELECT ';' -- ;"), is_complete("SELECT 1;"), is_complete("exit")
    (False, False, True, True)
    """
    if not text.strip() or _plain_command(text) in (*_LEAVE, _HELP):
        return True
    try:
        split_statements(text)
    except QueryError:  # a quote, a comment or a block is open
        return False
    found = SqlText(text).code
    return bool(found) and found[-1].is_symbol(";")


def _plain_command(text: str) -> str:
    return text.strip().rstrip(";").lower()


class Shell:
    def __init__(
        self,
        session: LookupSession,
        params: Mapping[str, Any],
        showing: job.Showing,
        ran: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._params, self._showing, self._ran = session, params, showing, ran

    def run(self, first: Sequence[ScriptStatement], ask: Callable[[], str]) -> int:
        """Run ``first``, then the statements from ``ask`` until the user leaves; returns the exit code."""
        known = len(self._session.streams.started)
        with _catch_interrupts():
            self._run_all(first, shown=True)
            while self._run_input(ask):
                pass
            self._session.streams.stop()
            if self._session.streams.started[known:]:
                self._showing.tell(f"\n{stream_summary(self._session.streams.started[known:])}")
        return WELL

    def _run_input(self, ask: Callable[[], str]) -> bool:
        try:
            text = ask()
        except Interrupted:  # by SIGTERM
            raise
        except KeyboardInterrupt:
            return True
        except EOFError:
            return False
        if _plain_command(text) in _LEAVE:
            return False
        if _plain_command(text) == _HELP:
            print(HELP, flush=True)
            return True
        try:
            self._run_all(split_statements(text))
        except LookupHintsError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return True

    def _run_all(self, statements: Sequence[ScriptStatement], *, shown: bool = False) -> None:
        """Stops at the first that fails, as a file does; ``shown``: the user has not just typed them."""
        for number, statement in enumerate(statements, 1):
            if shown:
                self._showing.tell(f"\n{job.head_of(statement, number, len(statements))}")
            if not self._run_one(statement):
                return

    def _run_one(self, statement: ScriptStatement) -> bool:
        def run() -> None:
            with errors_unlogged():
                job.run_statement(self._session, statement, self._params, self._showing)

        try:
            run_cancellable(self._session.spark, run)
        except Interrupted:
            raise
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr, flush=True)
            return False
        except Exception as error:
            print(f"error: {failure(statement, error)}", file=sys.stderr, flush=True)
            return False
        finally:
            self._ran()
        return True


@contextmanager
def _catch_interrupts() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt; Spark's own handler would cancel the jobs of streaming queries, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_AGAIN_SECONDS = 0.5


def run_cancellable(spark: SparkSession, run: Callable[[], None]) -> None:
    """Run statements in a thread of their own; a KeyboardInterrupt here cancels their Spark jobs.

    The calling thread only waits, so an interrupt never breaks off a call of the JVM.

    Raises:
        KeyboardInterrupt: when everything has ended; at the second interrupt at once.
        Exception: the error of ``run``.
    """
    done: Future[None] = Future()
    mark = f"lookup-hints-shell-{uuid4()}"

    def work() -> None:
        try:
            # Make Spark's further jobs of this thread cancellable by ``mark``, except streams.
            if is_connect(spark):
                spark.addTag(mark)
            else:
                spark.sparkContext.setJobGroup(mark, "lookup-hints shell")
            run()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    _start_thread(work)
    try:
        wait([done])
    except KeyboardInterrupt:
        _start_thread(lambda: _cancel_jobs(spark, mark, done))
        wait([done])
        raise
    done.result()


def _start_thread(work: Callable[[], None]) -> None:
    """On a thread that does not keep the shell from ending."""
    threading.Thread(target=copy_context().run, args=(work,), name="shell-statement", daemon=True).start()


def _cancel_jobs(spark: SparkSession, mark: str, done: Future[None]) -> None:
    """A statement has many jobs, and the next may begin after the first is cancelled."""
    while not done.done():
        if is_connect(spark):
            spark.interruptTag(mark)
        else:
            spark.sparkContext.cancelJobGroup(mark)
        wait([done], _AGAIN_SECONDS)
