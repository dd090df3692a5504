"""The command line: ``lookup-hints run``, ``explain`` and ``check``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookup_hints import __version__
from lookup_hints.check import Finding, check_script
from lookup_hints.ddl import shown_statement
from lookup_hints.errors import LookupHintsError
from lookup_hints.plan.explain import joins_text
from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.script import Statement, parse_params, read_script, split_statements
from lookup_hints.sqltext import code, pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lookup_hints.session import LookupSession, Prepared

_DESCRIPTION = """\
Flink SQL's lookup join for Spark SQL: run, explain or check a file of SQL whose queries ask external
systems for just the keys they need."""
_EPILOG = """\
examples:
  lookup-hints run job.sql --param day=2013-01-01 --conf spark.sql.shuffle.partitions=8
  lookup-hints explain job.sql
  lookup-hints check job.sql        exit code 1 when something is wrong; needs no Spark

exit codes: 0 all well, 1 a statement failed or has mistakes, 2 wrong use of the command"""

_SETUP_WORDS = ("SET", "USE", "DECLARE", "ADD", "REFRESH")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "lookup-hints",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lookup-hints {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="run | explain | check")

    run = commands.add_parser("run", help="run each statement of a file and show its rows")
    _add_spark_options(run)
    run.add_argument(
        "--rows", type=int, default=20, metavar="N", help="rows of each result to show (default 20)"
    )
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
    check.set_defaults(command=_check)
    return parser


def _add_spark_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE.sql")
    command.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of the parameter marker :NAME; a number, true, false, null or text",
    )
    command.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark or lookup configuration"
    )
    command.add_argument("--master", help="Spark master, for example local[4] (default local[*])")


# --- run -------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    """Run each statement of a file; stop at the first that fails."""
    statements = split_statements(read_script(Path(options.file)))
    if not statements:
        return _nothing_to_do(options.file)
    session = _session(options)
    params = parse_params(options.param)
    for number, statement in enumerate(statements, 1):
        _print_head(number, len(statements), statement)
        try:
            _run_statement(session, statement, params, options.rows)
        except Exception as error:
            print(f"\nerror in the statement at line {statement.line}: {_short(error)}", file=sys.stderr)
            return 1
    return 0


def _run_statement(
    session: LookupSession, statement: Statement, params: Mapping[str, Any], rows: int
) -> None:
    started = time.perf_counter()
    prepared = session.prepare(statement.text, params)
    if prepared.plan is not None:
        print(f"\n{joins_text(prepared.plan, statement.line)}\n")
    before = session.metrics()
    frame = session.run(prepared)
    _show(frame, rows, is_text=_gives_text(statement.text))
    seconds = time.perf_counter() - started
    if prepared.plan is not None and prepared.plan.joins:
        print(summary(prepared, before, session.metrics()))
    print(f"{seconds:.1f} s", flush=True)


def _show(frame: DataFrame, rows: int, *, is_text: bool) -> None:
    if is_text:
        for row in frame.collect():
            print(row[0])
    elif frame.columns and rows > 0:
        frame.show(rows, truncate=40)


def _gives_text(text: str) -> bool:
    """Whether the result of a statement is a text of several lines rather than rows."""
    words = _first_words(text)
    return words[:1] == ["EXPLAIN"] or words[:3] == ["SHOW", "CREATE", "TABLE"]


_COLUMNS: tuple[tuple[str, str], ...] = (
    ("rows in", "rows_in"),
    ("rows out", "rows_out"),
    ("keys", "keys"),
    ("requests", "requests"),
    ("hits", "hits"),
    ("misses", "misses"),
    ("retried", "retried_keys"),
    ("errors", "errors"),
)


def summary(
    prepared: Prepared, before: Mapping[str, LookupMetrics], after: Mapping[str, LookupMetrics]
) -> str:
    """A table of what each lookup join of a statement did."""
    assert prepared.plan is not None
    aliases: dict[str, list[str]] = {}
    for join in prepared.plan.joins:
        aliases.setdefault(join.function.name, []).append(join.use.alias)
    lines = [["lookup", *(title for title, _ in _COLUMNS), "waited"]]
    uncounted = []
    for function, names in aliases.items():
        done = after.get(function, LookupMetrics()) - before.get(function, LookupMetrics())
        if done == LookupMetrics():
            uncounted += names
            continue
        counts = [f"{getattr(done, counter):,}" for _, counter in _COLUMNS]
        lines.append([", ".join(names), *counts, f"{done.seconds_waiting:.1f} s"])
    told = [_aligned(lines)] if len(lines) > 1 else []
    if uncounted:
        told.append(
            f"no counts of {', '.join(uncounted)}: none of its tasks ran to its end (LIMIT), or had a row"
        )
    return "\n".join(told)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines
    )


# --- explain and check -----------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    """Show how each query would run. Statements that only set the scene (CREATE of lookup tables and
    views, SET, USE) are run, as later ones need them; nothing else is, and no lookup is made."""
    statements = split_statements(read_script(Path(options.file)))
    if not statements:
        return _nothing_to_do(options.file)
    session = _session(options)
    params = parse_params(options.param)
    for number, statement in enumerate(statements, 1):
        _print_head(number, len(statements), statement)
        try:
            if _sets_the_scene(statement.text):
                session.sql(statement.text, params)
            else:
                print(session.explain(statement.text, params))
        except Exception as error:
            print(f"\nerror in the statement at line {statement.line}: {_short(error)}", file=sys.stderr)
            return 1
    return 0


def _sets_the_scene(text: str) -> bool:
    words = _first_words(text)
    if words[:1] == ["CREATE"]:
        # CREATE TABLE ... AS would write rows; temporary things and views do not.
        kind = takewhile(lambda word: word != "TABLE", words)
        return not {"TEMPORARY", "TEMP", "VIEW", "FUNCTION"}.isdisjoint(kind)
    return bool(words) and words[0] in _SETUP_WORDS


def _first_words(text: str) -> list[str]:
    return [piece.text.upper() for piece in code(pieces(text))[:5]]


def _check(options: argparse.Namespace) -> int:
    """Find mistakes in hints, lookup joins and DDL from the text alone: no Spark, no external system."""
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
    print(f"{file}: there is no statement here")
    return 0


def _print_head(number: int, of: int, statement: Statement) -> None:
    first_line = shown_statement(statement.text).splitlines()[0]
    print(f"\n[{number}/{of}] line {statement.line}: {first_line[:90]}", flush=True)


def _short(error: Exception) -> str:
    """The message of an error without the JVM's stack."""
    text = str(error).strip() or type(error).__name__
    return text.split("\n\tat ")[0].split("\nJVM stacktrace")[0]


def _session(options: argparse.Namespace) -> LookupSession:
    from lookup_hints.session import LookupSession

    conf = dict(_pair(text) for text in options.conf)
    return LookupSession(_spark(options.master, conf))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise SystemExit(f"lookup-hints: --conf needs KEY=VALUE, not {text!r}")
    return key.strip(), value


def _spark(master: str | None, conf: Mapping[str, str]) -> SparkSession:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise SystemExit("lookup-hints: PySpark is missing. Try: pip install 'lookup-hints[spark]'") from None
    # Workers of a local Spark run this Python, not whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lookup-hints")
    if master is not None:
        builder = builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(main())
