"""The shell: reads statements, runs each, and goes on whatever becomes of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookup_hints.cli import job
from lookup_hints.cli.error_text import reported_once
from lookup_hints.cli.shell.cancelling import run_cancellable
from lookup_hints.cli.statement_run import failure
from lookup_hints.cli.stream_run import stream_summary
from lookup_hints.errors import LookupHintsError, QueryError
from lookup_hints.sql.lexer import code, pieces
from lookup_hints.statements.script import ScriptStatement, split_statements

if TYPE_CHECKING:
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
    if not text.strip() or _word(text) in (*_LEAVE, _HELP):
        return True
    try:
        split_statements(text)
    except QueryError:  # a quote, a comment or a block is open
        return False
    found = code(pieces(text))
    return bool(found) and found[-1].is_symbol(";")


def _word(text: str) -> str:
    return text.strip().rstrip(";").lower()


class Shell:
    """Runs what is typed, one statement after the other.

    Args:
        session: where they run.
        params: values of parameter markers.
        showing: what is shown.
        ran: told after each statement, as tables may have changed.
    """

    def __init__(
        self,
        session: LookupSession,
        params: Mapping[str, Any],
        showing: job.Showing,
        ran: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._params, self._showing, self._ran = session, params, showing, ran

    def run(self, first: Sequence[ScriptStatement], ask: Callable[[], str]) -> int:
        """Run ``first``, then what ``ask`` gives, until the user leaves; returns the exit code.

        Args:
            first: statements of a file.
            ask: gives what was typed; raises KeyboardInterrupt for Ctrl-C and EOFError for Ctrl-D.
        """
        known = len(self._session.streams.started)
        with _interruptible():
            self._run_all(first, shown=True)
            while self._goes_on(ask):
                pass
            self._stop_streams(known)
        return job.WELL

    def _goes_on(self, ask: Callable[[], str]) -> bool:
        try:
            text = ask()
        except KeyboardInterrupt:
            return True
        except EOFError:
            return False
        if _word(text) in _LEAVE:
            return False
        if _word(text) == _HELP:
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
            with reported_once():
                job.run_statement(self._session, statement, self._params, self._showing)

        try:
            run_cancellable(self._session.spark, run)
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr, flush=True)
            return False
        except Exception as error:
            print(f"error: {failure(statement, error)}", file=sys.stderr, flush=True)
            return False
        finally:
            self._ran()
        return True

    def _stop_streams(self, known: int) -> None:
        self._session.streams.stop()
        if self._session.streams.started[known:]:
            self._showing.tell(f"\n{stream_summary(self._session.streams.started[known:])}")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt; Spark's own handler would cancel the jobs of streaming queries, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
