"""The command line: ``lookup-hints run``, ``shell``, ``explain``, ``check``, and what ``submit`` adds."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lookup_hints import __version__
from lookup_hints.cli import archive, demo, job, submit
from lookup_hints.cli import import_command as importing
from lookup_hints.cli.check import FORMATS, CheckOptions, Finding, check_script
from lookup_hints.cli.result_formats import FORMATS as RESULT_FORMATS
from lookup_hints.cli.result_formats import TABLE
from lookup_hints.cli.start import await_server, spark_builder, starting_spark
from lookup_hints.cli.statement_run import failure
from lookup_hints.errors import LookupHintsError
from lookup_hints.statements.classify import Setting, SparkStatement, Statement, read_statement
from lookup_hints.statements.script import read_script
from lookup_hints.tables.ddl import CreateLookupTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lookup_hints.session import LookupSession

_DESCRIPTION = """\
Flink SQL's lookup join for Spark SQL: run, explain or check a file of SQL whose queries ask external
systems for just the keys they need."""
_EPILOG = """\
examples:
  lookup-hints demo
  lookup-hints run job.sql --param day=2013-01-01 --conf spark.sql.shuffle.partitions=8
  lookup-hints run job.sql --remote sc://host:15002
  lookup-hints run -c "SELECT 1 AS one" --format csv --output one.csv
  lookup-hints explain job.sql
  lookup-hints import openapi.json  prints CREATE statements for an API
  lookup-hints check jobs/*.sql     exit code 1 when something is wrong; needs no Spark
  lookup-hints doctor job.sql       whether its tables can be asked from here and from workers

exit codes: 0 all well, 1 a statement failed or has mistakes, 2 wrong use of the command,
128 + n stopped by signal n; streaming queries of the file are stopped with it"""

SHELLS = ("bash", "zsh", "fish")

_FILES = frozenset({"arguments", "document", "file", "files", "folder", "init", "module", "output"})
"""The arguments that a shell completes to names of files."""

_SETUP_WORDS = ("SET", "USE", "DECLARE", "ADD", "REFRESH")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    code = _exit_code(options)
    _close_log(options.spark_log, code)
    return code


def _exit_code(options: argparse.Namespace) -> int:
    try:
        code = int(options.command(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # of `lookup-hints ... | head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return job.FAILED
    except job.WrongUse as error:
        print(f"lookup-hints: {error}", file=sys.stderr)
        return job.WRONG_USE


def _close_log(log: Path | None, code: int) -> None:
    """Remove the file that Spark logs to where all went well: nobody will look for it."""
    if log is None:
        return
    if code == job.WELL:
        log.unlink(missing_ok=True)
    else:
        print(f"Spark's log: {log}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "lookup-hints",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(verbose=False, quiet=False, spark_log=None)
    parser.add_argument("--version", action="version", version=f"lookup-hints {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    shows = commands.add_parser(
        "demo", help="try lookups on small data that it makes", description=_demo.__doc__
    )
    shows.add_argument(
        "--folder", type=Path, default=Path(demo.FOLDER), help="where the data is made (default %(default)s)"
    )
    shows.set_defaults(command=_demo)

    run = commands.add_parser("run", help="run each statement of a file and show its rows")
    _add_spark_options(run)
    job.add_showing_options(run)
    _add_result_options(run)
    job.add_metrics_options(run)
    run.set_defaults(command=_run)

    shell = commands.add_parser("shell", help="run statements as you type them", description=_shell.__doc__)
    shell.add_argument("-f", "--init", metavar="FILE.sql", help="run the statements of this file first")
    _add_spark(shell)
    job.add_showing_options(shell)
    shell.set_defaults(command=_shell)

    explain = commands.add_parser(
        "explain", help="show how each statement would run", description=_explain.__doc__
    )
    _add_spark_options(explain)
    explain.set_defaults(command=_explain)

    check = commands.add_parser(
        "check", help="find mistakes without Spark or any external system", description=_check.__doc__
    )
    check.add_argument("files", nargs="+", metavar="FILE.sql")
    check.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="how findings are written: for readers (default), for GitHub Actions, as JSON or SARIF",
    )
    job.add_surroundings(check)
    check.set_defaults(command=_check)

    lsp = commands.add_parser(
        "lsp", help="show editors mistakes and completions, as a language server", description=_lsp.__doc__
    )
    job.add_surroundings(lsp)
    lsp.set_defaults(command=_lsp)

    examines = commands.add_parser(
        "doctor",
        help="look whether lookup tables can be asked from here and from workers",
        description=_doctor.__doc__,
    )
    _add_spark_options(examines)
    examines.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="a key that exists, for sources that cannot name one; may be repeated",
    )
    examines.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="for one step (default %(default)g)"
    )
    examines.set_defaults(command=_doctor)

    submit.add_commands(commands)
    importing.add_command(commands)
    completes = commands.add_parser(
        "completion", help="print the script by which a shell completes this command"
    )
    completes.add_argument("shell", choices=SHELLS)
    completes.set_defaults(command=lambda options: _completion(parser, options.shell))
    return parser


def _completion(parser: argparse.ArgumentParser, shell: str) -> int:
    try:
        import shtab
    except ModuleNotFoundError:
        raise job.WrongUse("The package shtab is missing. Try: pip install 'lookup-hints[shell]'") from None
    for action in _actions(parser):
        if action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return job.WELL


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _add_spark_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE.sql", nargs="?", help="- is the standard input, as is a pipe")
    command.add_argument("-c", dest="sql", metavar="SQL", help="run this in place of a file")
    _add_spark(command)


def _add_spark(command: argparse.ArgumentParser) -> None:
    job.add_surroundings(command)
    command.add_argument(
        "--verbose", action="store_true", help="let Spark log to the terminal, in place of a file"
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument("--master", help="Spark master, for example local[4] (default local[*])")
    where.add_argument("--remote", metavar="URL", help="Spark Connect server, for example sc://host:15002")


def _add_result_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format",
        choices=RESULT_FORMATS,
        default=TABLE,
        help="how rows are written (default table); all others write all rows, unless --rows says how many",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the rows into this file")
    command.set_defaults(rows=None)


def _script(options: argparse.Namespace) -> job.Script:
    """What the command is to run: a text, a file or the standard input."""
    if options.sql is not None:
        if options.file is not None:
            raise job.WrongUse(f"Both -c and a file are given: {options.file}")
        return job.script_of(options.sql, "-c", options.param)
    if options.file is None and sys.stdin.isatty():
        raise job.WrongUse("Nothing to run. Name a file, write -c 'SELECT ...', or send SQL through a pipe.")
    return job.read(options.file or job.STDIN, options.param)


# --- demo ------------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> int:
    """Make a small SQLite database and a stream of orders, run three statements over them, explain what
    happened, and say what to type next. Needs no network."""
    from lookup_hints.session import LookupSession

    folder = options.folder.absolute()
    script = demo.prepare(folder)
    return demo.run(LookupSession(_spark(options, "local[1]", demo.configuration(folder))), script)


# --- run -------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    """Run each statement of a file; stop at the first that fails."""
    script = _script(options)
    if not script.statements:
        return _nothing_to_do(script.file)
    job.check_metrics(options)
    with (
        _showing(options) as showing,
        _session(options, script) as session,
        job.serving_metrics(session, options),
    ):
        return job.run(session, script, showing)


_FEW_ROWS = 20


@contextmanager
def _showing(options: argparse.Namespace) -> Iterator[job.Showing]:
    """What is shown and where; rows that other programs read stand alone on the standard output."""
    is_data = options.format != TABLE or options.output is not None
    rows = _FEW_ROWS if options.rows is None and options.format == TABLE else options.rows
    shown = job.Showing(rows, sys.stderr.isatty() and not options.quiet, options.analyze, options.quiet)
    with ExitStack() as opened:
        results = None if options.output is None else opened.enter_context(_opened(options.output))
        report = sys.stderr if is_data else None
        yield replace(shown, report=report, results=results, format=options.format)


def _opened(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise job.WrongUse(f"--output: {path} cannot be written: {error.strerror}") from None


# --- shell -----------------------------------------------------------------------------------------


def _shell(options: argparse.Namespace) -> int:
    """Run statements as you type them: with a history, completion, and Ctrl-C to cancel one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise job.WrongUse("The shell needs a terminal. Send SQL through a pipe to `lookup-hints run`.")
    try:
        from lookup_hints.cli.shell_prompt import HISTORY, prompt
    except ModuleNotFoundError as error:
        raise job.WrongUse(
            f"The package {error.name} is missing. Try: pip install 'lookup-hints[shell]'"
        ) from None
    from lookup_hints.cli.completion import SessionNames
    from lookup_hints.cli.shell import HELP, Shell

    script = job.read(options.init, options.param) if options.init else job.script_of("", "", options.param)
    showing = job.Showing.of(options, bar=sys.stderr.isatty())
    with _session(options, script) as session:
        names = SessionNames(session)
        showing.tell(f"lookup_hints {__version__} on Spark {session.spark.version}\n{HELP}")
        shell = Shell(session, script.params, showing, names.forget)
        return shell.run(script.statements, prompt(names, Path.home() / HISTORY))


# --- explain and check -----------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    """Show how each query would run. Statements that only set the scene (CREATE of lookup tables and
    views, SET, USE) are run, as later ones need them; nothing else is, and no lookup is made."""
    script = _script(options)
    if not script.statements:
        return _nothing_to_do(script.file)
    with _session(options, script) as session:
        return _explain_all(session, script)


def _explain_all(session: LookupSession, script: job.Script) -> int:
    for number, statement in enumerate(script.statements, 1):
        print(f"\n{job.head_of(statement, number, len(script.statements))}", flush=True)
        try:
            if _sets_the_scene(read_statement(statement.text)):
                session.sql(statement.text, script.params)
            else:
                print(session.explain(statement.text, script.params))
        except Exception as error:
            said = failure(statement, error)
            print(f"\nerror in the statement at line {statement.line}: {said}", file=sys.stderr)
            return job.FAILED
    return job.WELL


def _sets_the_scene(statement: Statement) -> bool:
    if not isinstance(statement, SparkStatement):
        return isinstance(statement, Setting | CreateLookupTable)
    words = statement.words
    if words[:1] == ("CREATE",):
        # CREATE TABLE ... AS would write rows; temporary things and views do not.
        kind = takewhile(lambda word: word != "TABLE", words)
        return not {"TEMPORARY", "TEMP", "VIEW", "FUNCTION"}.isdisjoint(kind)
    return bool(words) and words[0] in _SETUP_WORDS


def _check(options: argparse.Namespace) -> int:
    """Find mistakes in hints, lookup joins and DDL from the text alone: no Spark, no external system."""
    modules = [archive.find_module(each, to_ship=False) for each in options.module]
    given = job.surroundings(options, [module.name for module in modules])
    given = replace(given, params=job.read_params(options.param))
    with job.importing(modules):
        checked = {file: _check_file(file, given) for file in options.files}
    found = {file: findings for file, findings in checked.items() if findings is not None}
    if text := FORMATS[options.format](found):
        print(text)
    is_well = len(found) == len(checked) and not any(
        each.is_error for every in found.values() for each in every
    )
    return job.WELL if is_well else job.FAILED


def _lsp(options: argparse.Namespace) -> int:
    """Speak the language server protocol on the standard input and output: mistakes as `check` finds them,
    what stands at the pointer, and completions. Parameters have values where none is given."""
    try:
        from lookup_hints.cli.lsp import server
    except ModuleNotFoundError as error:
        raise job.WrongUse(
            f"The package {error.name} is missing. Try: pip install 'lookup-hints[lsp]'"
        ) from None
    modules = [archive.find_module(each, to_ship=False) for each in options.module]
    given = job.surroundings(options, [module.name for module in modules])
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")  # the server closes it
    with redirect_stdout(sys.stderr), job.importing(modules):  # what a module prints is no answer
        server(replace(given, params=job.read_params(options.param) or None)).start_io(None, output)
    return job.WELL


def _check_file(file: str, given: CheckOptions) -> Sequence[Finding] | None:
    try:
        return check_script(read_script(Path(file)), given)
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return None


# --- doctor -----------------------------------------------------------------------------------------


def _doctor(options: argparse.Namespace) -> int:
    """Look whether the lookup tables of a file can be reached, read and asked fast, from this machine and
    from a worker of each executor. Each line has its cure. No query of the file runs; nothing is written."""
    from lookup_hints.cli.doctor import examine_file

    script = _script(options)
    key = dict(each.split("=", 1) for each in options.key if "=" in each)
    if len(key) < len(options.key):
        raise job.WrongUse("--key needs COLUMN=VALUE, each column once")
    if not options.timeout > 0:
        raise job.WrongUse(f"--timeout must be greater than 0, not {options.timeout:g}")
    modules = [archive.find_module(each, to_ship=False).name for each in options.module]
    with _session(options, script) as session:
        report = examine_file(session, script, modules, key, options.timeout)
    print(report if report.findings else f"{script.file}: no lookup table is created in it")
    return job.WELL if report.is_well else job.FAILED


# --- shared ----------------------------------------------------------------------------------------


def _nothing_to_do(file: str) -> int:
    print(f"{file}: the file contains no statements")
    return 0


@contextmanager
def _session(options: argparse.Namespace, script: job.Script) -> Iterator[LookupSession]:
    """A session for ``script``, in which the user's own modules are known; what is wrong is told before."""
    from lookup_hints.session import LookupSession

    conf = job.configuration(options.conf)
    modules = [archive.find_module(each) for each in options.module]
    with job.importing(modules):
        job.check_connectors(script)
        spark = _spark(options, options.master, conf, options.remote)
        job.ship(spark, modules)
        yield LookupSession(spark)


def _spark(
    options: argparse.Namespace, master: str | None, conf: Mapping[str, str], remote: str | None = None
) -> SparkSession:
    if master is not None and master.startswith("sc://"):
        raise job.WrongUse("--master names no Spark Connect server. Write --remote sc://...")
    try:
        builder = spark_builder(conf)
    except ModuleNotFoundError:
        raise SystemExit("lookup-hints: PySpark is missing. Try: pip install 'lookup-hints[spark]'") from None
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        await_server(remote, partial(print, file=sys.stderr, flush=True))
        builder = builder.remote(remote)
    # Where nobody watches, what Spark logs belongs to the output that is kept.
    if options.verbose or remote is not None or not sys.stderr.isatty():
        return builder.getOrCreate()
    with starting_spark(quiet=options.quiet) as options.spark_log:
        return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(main())
