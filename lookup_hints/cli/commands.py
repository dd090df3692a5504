"""The commands of ``lookup-hints``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from io import FileIO
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lookup_hints.cli import archive, demo, job, submit
from lookup_hints.cli.arguments import FAILED, STDIN, WELL, WrongUse, parser
from lookup_hints.cli.check import FORMATS, CheckOptions, Finding, check_script
from lookup_hints.cli.import_command import run_import
from lookup_hints.cli.result_formats import TABLE
from lookup_hints.errors import LookupHintsError, naming_file
from lookup_hints.runs.start import SparkStart, await_server, on_terminal
from lookup_hints.runs.statement_run import failure
from lookup_hints.statements import (
    ScriptStatement,
    Setting,
    SparkStatement,
    StatementKind,
    read_script,
    read_statement,
)
from lookup_hints.tables.ddl import CreateLookupTable
from lookup_hints.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lookup_hints.session import LookupSession

_SETUP_WORDS = ("SET", "USE", "DECLARE", "ADD", "REFRESH")


def _read_script(options: argparse.Namespace) -> job.Script:
    """The script to run: from a text, a file or the standard input."""
    if options.sql is not None:
        if options.file is not None:
            raise WrongUse(f"Both -c and a file are given: {options.file}")
        return job.script_of(options.sql, "-c", options.param)
    if options.file is None and sys.stdin.isatty():
        raise WrongUse("Nothing to run. Name a file, write -c 'SELECT ...', or send SQL through a pipe.")
    return job.read(options.file or STDIN, options.param)


# --- demo ------------------------------------------------------------------------------------------


def _run_demo(options: argparse.Namespace) -> int:
    if options.postgres:
        from lookup_hints.cli.demo_postgres import serve

        return serve()
    from lookup_hints.session import LookupSession

    folder = options.folder.absolute()
    script = demo.prepare(folder)
    conf = {"spark.master": "local[1]", **demo.configuration(folder)}
    options.spark = SparkStart(conf, hides_log=sys.stderr.isatty())
    return demo.run(LookupSession(_start_spark(options)), script)


# --- run -------------------------------------------------------------------------------------------


def _run_script(options: argparse.Namespace) -> int:
    script = _read_script(options)
    if not script.statements:
        return _nothing_to_do(script.file)
    if options.estimate:
        return _estimate_script(options, script)
    for name in ("sample", "ask"):
        if getattr(options, name) is not None:
            raise WrongUse(f"--{name} belongs to --estimate")
    job.check_metrics(options)
    with (
        _choose_output(options) as showing,
        _open_session(options, script) as session,
        job.serving_metrics(session, options),
    ):
        return job.run(session, script, showing)


def _estimate_script(options: argparse.Namespace, script: job.Script) -> int:
    with _open_session(options, script) as session:

        def estimate(statement: ScriptStatement) -> object:
            return session.estimate(
                statement.text, script.params, sample=options.sample, ask=options.ask, line=statement.line
            )

        return _show_without_running(session, script, estimate)


_FEW_ROWS = 20


@contextmanager
def _choose_output(options: argparse.Namespace) -> Iterator[job.Showing]:
    """What to show and where; if rows are for other programs, only they go to the standard output."""
    is_data = options.format != TABLE or options.output is not None
    rows = _FEW_ROWS if options.rows is None and options.format == TABLE else options.rows
    shown = replace(job.Showing.of(options, bar=sys.stderr.isatty()), rows=rows)
    with ExitStack() as opened:
        if options.output is not None:
            opened.enter_context(naming_file(options.output))
        results = None if options.output is None else opened.enter_context(_open_output(options.output))
        report = sys.stderr if is_data else None
        yield replace(shown, report=report, results=results, format=options.format)


def _open_output(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise WrongUse(f"--output: {path} cannot be written: {error.strerror}") from None


# --- shell -----------------------------------------------------------------------------------------


def _run_shell(options: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WrongUse("The shell needs a terminal. Send SQL through a pipe to `lookup-hints run`.")
    try:
        from lookup_hints.cli.shell_prompt import HISTORY, prompt
    except ModuleNotFoundError as error:
        raise WrongUse(
            f"The package {error.name} is missing. Try: pip install 'lookup-hints[shell]'"
        ) from None
    from lookup_hints.cli.completion import SessionNames
    from lookup_hints.cli.shell import HELP, Shell

    script = job.read(options.init, options.param) if options.init else job.script_of("", "", options.param)
    showing = job.Showing.of(options, bar=sys.stderr.isatty())
    with _open_session(options, script) as session:
        names = SessionNames(session)
        showing.tell(f"lookup_hints {__version__} on Spark {session.spark.version}\n{HELP}")
        shell = Shell(session, script.params, showing, names.forget)
        return shell.run(script.statements, prompt(names, Path.home() / HISTORY))


# --- explain and check -----------------------------------------------------------------------------


def _explain_script(options: argparse.Namespace) -> int:
    script = _read_script(options)
    if not script.statements:
        return _nothing_to_do(script.file)
    with _open_session(options, script) as session:
        return _show_without_running(
            session, script, lambda each: session.explain(each.text, script.params, line=each.line)
        )


def _show_without_running(
    session: LookupSession, script: job.Script, show: Callable[[ScriptStatement], object]
) -> int:
    """Run the statements that later ones need, and print what ``show`` gives for each other one."""
    for number, statement in enumerate(script.statements, 1):
        if len(script.statements) > 1:
            print(f"\n{job.head_of(statement, number, len(script.statements))}", flush=True)
        try:
            if _is_setup(read_statement(statement.text)):
                session.sql(statement.text, script.params)
            else:
                print(show(statement), flush=True)
        except Exception as error:
            said = failure(statement, error)
            print(f"\nerror in the statement at line {statement.line}: {said}", file=sys.stderr)
            return FAILED
    return WELL


def _is_setup(statement: StatementKind) -> bool:
    if not isinstance(statement, SparkStatement):
        return isinstance(statement, Setting | CreateLookupTable)
    words = statement.words
    if words[:1] == ("CREATE",):
        # CREATE TABLE ... AS would write rows; temporary things and views do not.
        kind = takewhile(lambda word: word != "TABLE", words)
        return not {"TEMPORARY", "TEMP", "VIEW", "FUNCTION"}.isdisjoint(kind)
    return bool(words) and words[0] in _SETUP_WORDS


def _check_files(options: argparse.Namespace) -> int:
    modules = [archive.find_module(each, to_ship=False) for each in options.module]
    given = job.surroundings(options, [module.name for module in modules])
    given = replace(given, params=job.read_params(options.param))
    with job.importing(modules):
        checked = {file: _check_file(file, given) for file in options.files}
    found = {file: findings for file, findings in checked.items() if findings is not None}
    if text := FORMATS[options.format](found):
        print(text)
    is_well = len(found) == len(checked) and not any(
        each.is_error or (options.strict and each.is_gap) for every in found.values() for each in every
    )
    return WELL if is_well else FAILED


def _serve_lsp(options: argparse.Namespace) -> int:
    try:
        from lookup_hints.cli.language_server import EditorInput, server
    except ModuleNotFoundError as error:
        raise WrongUse(f"The package {error.name} is missing. Try: pip install 'lookup-hints[lsp]'") from None
    modules = [archive.find_module(each, to_ship=False) for each in options.module]
    given = job.surroundings(options, [module.name for module in modules])
    with (
        os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output,
        redirect_stdout(sys.stderr),  # keeps prints of modules out of the answer
        job.importing(modules),
    ):
        serves = server(replace(given, params=job.read_params(options.param) or None))
        serves.start_io(EditorInput(FileIO(sys.stdin.fileno(), closefd=False)), output)
    return WELL


def _check_file(file: str, given: CheckOptions) -> Sequence[Finding] | None:
    try:
        return check_script(read_script(Path(file)), given)
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return None


# --- doctor -----------------------------------------------------------------------------------------


def _run_doctor(options: argparse.Namespace) -> int:
    from lookup_hints.cli.doctor_command import examine_file

    script = _read_script(options)
    key = dict(each.split("=", 1) for each in options.key if "=" in each)
    if len(key) < len(options.key):
        raise WrongUse("--key needs COLUMN=VALUE, each column once")
    if not options.timeout > 0:
        raise WrongUse(f"--timeout must be greater than 0, not {options.timeout:g}")
    modules = [archive.find_module(each, to_ship=False).name for each in options.module]
    with _open_session(options, script) as session:
        report = examine_file(session, script, modules, key, options.timeout)
    print(report if report.findings else f"{script.file}: no lookup table is created in it")
    return WELL if report.is_well else FAILED


# --- shared ----------------------------------------------------------------------------------------


def _nothing_to_do(file: str) -> int:
    print(f"{file}: no statement to run")
    return 0


@contextmanager
def _open_session(options: argparse.Namespace, script: job.Script) -> Iterator[LookupSession]:
    """A session for ``script`` with the user's modules; reports errors of arguments before starting Spark."""
    from lookup_hints.session import LookupSession

    job.configuration(options.conf)  # reports its errors first
    modules = [archive.find_module(each) for each in options.module]
    with job.importing(modules):
        job.check_connectors(script)
        spark = _start_spark(options)
        job.ship(spark, modules)
        yield LookupSession(spark)


def _start_spark(options: argparse.Namespace) -> SparkSession:
    if (options.master or "").startswith("sc://"):
        raise WrongUse("--master names no Spark Connect server. Write --remote sc://...")
    if options.spark is None:
        raise SystemExit("lookup-hints: PySpark is missing. Try: pip install 'lookup-hints[spark]'")
    if options.remote is not None:
        await_server(options.remote, partial(print, file=sys.stderr, flush=True))
    spark: SparkStart = options.spark
    if spark.log is None or options.quiet:
        return spark.session()
    with on_terminal(sys.stderr) as say:
        return spark.session(say)


def _print_completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ModuleNotFoundError:
        raise WrongUse("The package shtab is missing. Try: pip install 'lookup-hints[shell]'") from None
    top = parser()
    for action in _list_actions(top):
        if action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(top, options.shell))
    return WELL


def _list_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _list_actions(command)


# The arguments that a shell completes to names of files.
_FILES = frozenset({"arguments", "document", "file", "files", "folder", "init", "module", "output"})


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "demo": _run_demo,
    "run": _run_script,
    "shell": _run_shell,
    "explain": _explain_script,
    "check": _check_files,
    "lsp": _serve_lsp,
    "doctor": _run_doctor,
    "submit": submit.run_submit,
    "submit-script": submit.print_script,
    "archive": submit.make_archive,
    "import": run_import,
    "completion": _print_completion,
}
