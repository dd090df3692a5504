"""The command line: ``lookup-hints run``, ``explain``, ``check``, and what ``submit`` adds."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from lookup_hints import __version__, archive, job, submit
from lookup_hints.brief import brief
from lookup_hints.check import Finding, check_script
from lookup_hints.errors import LookupHintsError
from lookup_hints.script import read_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lookup_hints.session import LookupSession

_DESCRIPTION = """\
Flink SQL's lookup join for Spark SQL: run, explain or check a file of SQL whose queries ask external
systems for just the keys they need."""
_EPILOG = """\
examples:
  lookup-hints run job.sql --param day=2013-01-01 --conf spark.sql.shuffle.partitions=8
  lookup-hints run job.sql --remote sc://host:15002
  lookup-hints explain job.sql
  lookup-hints check job.sql        exit code 1 when something is wrong; needs no Spark

exit codes: 0 all well, 1 a statement failed or has mistakes, 2 wrong use of the command,
128 + n stopped by signal n; streaming queries of the file are stopped with it"""

_SETUP_WORDS = ("SET", "USE", "DECLARE", "ADD", "REFRESH")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return job.FAILED
    except job.WrongUse as error:
        print(f"lookup-hints: {error}", file=sys.stderr)
        return job.WRONG_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "lookup-hints",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lookup-hints {__version__}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="run | explain | check | submit | ..."
    )

    run = commands.add_parser("run", help="run each statement of a file and show its rows")
    _add_spark_options(run)
    job.add_rows_option(run)
    run.set_defaults(command=_run)

    explain = commands.add_parser(
        "explain", help="show how each statement would run", description=_explain.__doc__
    )
    _add_spark_options(explain)
    explain.set_defaults(command=_explain)

    check = commands.add_parser(
        "check", help="find mistakes without Spark or any external system", description=_check.__doc__
    )
    check.add_argument("file", metavar="FILE.sql")
    check.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="MODULE",
        help="a .py file, the folder of a package or the name of a module that registers connectors of yours:"
        " imported first; may be repeated",
    )
    check.set_defaults(command=_check)

    submit.add_commands(commands)
    return parser


def _add_spark_options(command: argparse.ArgumentParser) -> None:
    job.add_script_options(command)
    where = command.add_mutually_exclusive_group()
    where.add_argument("--master", help="Spark master, for example local[4] (default local[*])")
    where.add_argument("--remote", metavar="URL", help="Spark Connect server, for example sc://host:15002")


# --- run -------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    """Run each statement of a file; stop at the first that fails."""
    script = job.read(options.file, options.param)
    if not script.statements:
        return _nothing_to_do(options.file)
    return job.run(_session(options), script, options.rows, bar=sys.stderr.isatty())


# --- explain and check -----------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    """Show how each query would run. Statements that only set the scene (CREATE of lookup tables and
    views, SET, USE) are run, as later ones need them; nothing else is, and no lookup is made."""
    script = job.read(options.file, options.param)
    if not script.statements:
        return _nothing_to_do(options.file)
    session = _session(options)
    for number, statement in enumerate(script.statements, 1):
        print(f"\n{job.head_of(statement, number, len(script.statements))}", flush=True)
        try:
            if _sets_the_scene(statement.text):
                session.sql(statement.text, script.params)
            else:
                print(session.explain(statement.text, script.params))
        except Exception as error:
            said = brief(error, statement.text)
            print(f"\nerror in the statement at line {statement.line}: {said}", file=sys.stderr)
            return job.FAILED
    return job.WELL


def _sets_the_scene(text: str) -> bool:
    words = job.first_words(text)
    if words[:1] == ["CREATE"]:
        # CREATE TABLE ... AS would write rows; temporary things and views do not.
        kind = takewhile(lambda word: word != "TABLE", words)
        return not {"TEMPORARY", "TEMP", "VIEW", "FUNCTION"}.isdisjoint(kind)
    return bool(words) and words[0] in _SETUP_WORDS


def _check(options: argparse.Namespace) -> int:
    """Find mistakes in hints, lookup joins and DDL from the text alone: no Spark, no external system."""
    with submit.importing([archive.find_module(each) for each in options.module]):
        findings = check_script(read_script(Path(options.file)))
    for finding in findings:
        print(_line_of(options.file, finding))
    errors = sum(finding.is_error for finding in findings)
    print(f"{options.file}: {errors} error{'' if errors == 1 else 's'}")
    return 1 if errors else 0


def _line_of(file: str, finding: Finding) -> str:
    kind = "error" if finding.is_error else "note"
    excerpt = f"\n{finding.excerpt}" if finding.excerpt else ""
    return f"{file}:{finding.line}:{finding.column}: {kind}: {finding.message}{excerpt}"


# --- shared ----------------------------------------------------------------------------------------


def _nothing_to_do(file: str) -> int:
    print(f"{file}: the file contains no statements")
    return 0


def _session(options: argparse.Namespace) -> LookupSession:
    from lookup_hints.session import LookupSession

    return LookupSession(_spark(options.master, options.remote, job.configuration(options.conf)))


def _spark(master: str | None, remote: str | None, conf: Mapping[str, str]) -> SparkSession:
    if master is not None and master.startswith("sc://"):
        raise job.WrongUse("--master names no Spark Connect server. Write --remote sc://...")
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise SystemExit("lookup-hints: PySpark is missing. Try: pip install 'lookup-hints[spark]'") from None
    # Workers of a local Spark run this Python, not whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lookup-hints")
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(main())
