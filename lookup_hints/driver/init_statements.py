"""What ``spark.lookup.init`` names: the statements that create the lookup tables of a session."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import RLock

from lookup_hints.errors import LookupHintsError, Problem, QueryError
from lookup_hints.spi.lookup_options import INIT
from lookup_hints.statements import ScriptStatement, read_script, split_statements
from lookup_hints.tables.catalog import LookupCatalog

_FUNCTION = re.compile(r"(?P<module>\w+(\.\w+)*):(?P<function>\w+)")


def init_file(setting: str | None) -> Path | None:
    """The file of SQL that ``spark.lookup.init`` names; None if it names a function, or nothing."""
    return Path(setting) if setting and not _FUNCTION.fullmatch(setting) else None


# Read when the session starts, so that no later SET names a function that is then called.
# (docs/decisions/0250)
class InitStatements:
    """Runs what ``spark.lookup.init`` names, once, before the first statement of a session.

    Args:
        setting: the path of a file of SQL, or ``module:function``; None if nothing is set.
    """

    def __init__(self, setting: str | None = None) -> None:
        self._setting = setting
        self._is_done = setting is None
        self._is_running = False
        self._lock = RLock()

    def run_once(
        self, catalog: LookupCatalog, run: Callable[[ScriptStatement], object], session: object
    ) -> None:
        """Run it if it has not run; other threads wait for it.

        Args:
            catalog: the tables that it adds to; those of an attempt that fails are dropped again.
            run: runs one statement of a file.
            session: what a function is called with.

        Raises:
            QueryError: it fails; names the file and the line. The next statement tries again.
        """
        if self._is_done or self._setting is None:
            return
        with self._lock:
            if self._is_done or self._is_running:  # its own statements come here, too
                return
            self._is_running = True
            before = {table.name for table in catalog.tables()}
            call = _FUNCTION.fullmatch(self._setting)
            try:
                if call is None:
                    _run_file(Path(self._setting), run)
                else:
                    _call_function(call["module"], call["function"], session)
                self._is_done = True
            except BaseException:
                for table in catalog.tables():
                    if table.name not in before:
                        catalog.drop(table.name)
                raise
            finally:
                self._is_running = False


def _run_file(path: Path, run: Callable[[ScriptStatement], object]) -> None:
    try:
        text = read_script(path)
    except QueryError as error:
        raise _failure_at("", error) from error
    try:
        statements = split_statements(text)
    except QueryError as error:
        raise _failure_at(f"{path}, ", error) from error
    for statement in statements:
        try:
            run(statement)
        except QueryError as error:
            problems = [
                replace(each, at=each.at and each.at.in_file(statement.line, statement.column))
                for each in error.problems
            ]
            where = f"{path}, " if problems[0].at else f"{path}, line {statement.line}: "
            raise _failure_at(where, QueryError(problems)) from error
        except Exception as error:
            raise _failure_at(f"{path}, line {statement.line}: ", error) from error


def _call_function(module: str, name: str, session: object) -> None:
    try:
        function = getattr(import_module(module), name, None)
    except Exception as error:
        raise _failure_at(f"the module {module} cannot be imported: ", error) from error
    if not callable(function):
        tip = f"Write there: def {name}(session): session.sql('CREATE ...')."
        raise QueryError(
            Problem(f"{INIT.session_key}: the module {module} has no function {name!r}.", tip=tip)
        )
    try:
        function(session)
    except Exception as error:
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{file}, line {frame.lineno}: " for frame in frames if frame.filename == file]
        raise _failure_at(lines[-1] if lines else f"{module}:{name}: ", error) from error


def _failure_at(where: str, error: Exception) -> QueryError:
    said = str(error) if isinstance(error, LookupHintsError) else f"{type(error).__name__}: {error}"
    return QueryError(Problem(f"{INIT.session_key}: {where}{said}"))
