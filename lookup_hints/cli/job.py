"""Running a file of SQL: each statement with its plan, its rows and its counts, and a summary at the end.

Where statements have started streaming queries, it waits for them, and stops them on a signal.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import io
import logging
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

from lookup_hints.cli.archive import Module, build_modules
from lookup_hints.cli.arguments import FAILED, STDIN, WELL, WrongUse
from lookup_hints.cli.check import CheckOptions, dry_run_results, unknown_connectors
from lookup_hints.cli.interrupts import Interrupted
from lookup_hints.cli.result_formats import TABLE, written
from lookup_hints.driver.run_statement import run_to_its_end
from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.errors import LookupHintsError, OptionError, QueryError, cause_of, counted
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.prometheus import check_package
from lookup_hints.metrics.readable_summary import Measured, nonzero, seconds_text, share_text, what_mattered
from lookup_hints.metrics.tables import COLUMNS, TITLES, aligned, table_of, without_empty
from lookup_hints.plan.explain import joins_text
from lookup_hints.pyspark_internals import errors_unlogged
from lookup_hints.runs.progress import TerminalBar
from lookup_hints.runs.statement_run import StatementRun, failure
from lookup_hints.statements import (
    ScriptStatement,
    check_configuration,
    parse_params,
    read_script,
    shown_text,
    split_statements,
)
from lookup_hints.streaming.streams import MicroBatch, StartedStream, Streams
from lookup_hints.streaming.supervisor import FOR_GOOD, Supervised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lookup_hints.session import LookupSession

_log = logging.getLogger("lookup_hints.job")


def configuration(given: Sequence[str]) -> dict[str, str]:
    conf = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise WrongUse(f"--conf needs KEY=VALUE, not {text!r}")
        try:
            check_configuration(key.strip(), value)
        except LookupHintsError as error:
            raise WrongUse(f"--conf: {error}") from None
        conf[key.strip()] = value
    return conf


@dataclass(frozen=True)
class Script:
    """A file of SQL and the values of its parameters."""

    file: str
    statements: Sequence[ScriptStatement]
    params: Mapping[str, Any]


def read(file: str, params: Sequence[str] = ()) -> Script:
    if file == STDIN:
        return script_of(sys.stdin.read(), "standard input", params)
    try:
        text = read_script(Path(file))
    except LookupHintsError as error:
        raise WrongUse(str(error)) from None
    return script_of(text, file, params)


def script_of(text: str, name: str, params: Sequence[str]) -> Script:
    values = read_params(params)
    return Script(name, split_statements(text), values)


def read_params(params: Sequence[str]) -> dict[str, Any]:
    try:
        return parse_params(params)
    except LookupHintsError as error:
        raise WrongUse(str(error)) from None


@contextmanager
def importing(modules: Sequence[Module]) -> Iterator[None]:
    folders = [str(module.path.resolve().parent) for module in modules]
    sys.path[:0] = folders
    try:
        import_all(module.name for module in modules)
        yield
    finally:
        for folder in folders:
            sys.path.remove(folder)


def import_all(names: Iterable[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise WrongUse(f"The module {name!r} cannot be imported: {error}") from error


def ship(spark: SparkSession, modules: Sequence[Module]) -> None:
    """Give ``modules`` to the workers of ``spark``, whose functions name them."""
    if not modules:
        return
    # Spark reads it for as long as it runs; and what was shipped before under a name stays.
    folder = Path(mkdtemp(prefix="lookup-hints-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ships = str(build_modules(folder / f"{folder.name}.zip", modules))
    if is_connect(spark):
        spark.addArtifacts(ships, pyfile=True)
    else:
        spark.sparkContext.addPyFile(ships)


def surroundings(
    options: argparse.Namespace, modules: Collection[str], conf: Mapping[str, str] = MappingProxyType({})
) -> CheckOptions:
    """The surroundings of a script that the command line gives."""
    return CheckOptions(modules=modules, settings={**conf, **configuration(options.conf)})


def check_connectors(script: Script) -> None:
    """Refuse tables with unregistered connectors, before Spark takes its time to start."""
    problems = [
        replace(problem, message=f"{script.file}, line {statement.line}: {problem.message}")
        for statement, error in unknown_connectors(script.statements)
        for problem in error.problems
    ]
    if problems:
        raise OptionError(problems)


# --- running ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Showing:
    """What to show of running statements.

    Args:
        rows: number of rows of each result.
        bar: whether to show a progress bar; for a terminal.
        analyze: whether to show the plan with measured figures instead of rows.
        quiet: whether to show only rows and errors.
        verbose: whether to show the plan before the rows, and all counts after them.
        report: output for plans, counts and the summary; None is the standard output.
        results: output for rows; None is the standard output.
        format: format of rows, one of ``results.FORMATS``.
    """

    rows: int | None
    bar: bool
    analyze: bool = False
    quiet: bool = False
    verbose: bool = False
    report: TextIO | None = None
    results: TextIO | None = None
    format: str = TABLE

    @property
    def tell(self) -> Callable[..., None]:
        """Prints into the report, at once; nothing where it is quiet."""
        return (lambda _: None) if self.quiet else partial(print, file=self.report, flush=True)

    @classmethod
    def of(cls, options: argparse.Namespace, *, bar: bool) -> Showing:
        """As options of a command say; ``bar``: whether the standard error is a terminal."""
        quiet, verbose = options.quiet, bool(options.verbose)
        return cls(options.rows, bar and not quiet, options.analyze, quiet, verbose)


def run(session: LookupSession, script: Script, showing: Showing) -> int:
    """Run each statement, stop at the first that fails, and sum up; returns the exit code.

    Results and the report go where ``showing`` says, errors to the standard error, and a line for each
    statement to the log. Streaming queries that the statements start are waited for.
    """
    ran: list[StatementRun] = []
    started = time.perf_counter()

    def run_all() -> int:
        for number, statement in enumerate(script.statements, 1):
            head = head_of(statement, number, len(script.statements))
            if showing.verbose or len(script.statements) > 1:
                showing.tell(f"\n{head}")
            try:
                with errors_unlogged():
                    ran.append(run_statement(session, statement, script.params, showing))
            except Exception as error:
                said = failure(statement, error)
                print(f"\nerror in the statement at line {statement.line}: {said}", file=sys.stderr)
                _log.info("%s: failed", head)  # the reason was logged above
                return FAILED
            _log.info("%s: %s", head, _log_line(ran[-1]))
        return WELL

    exit_code = run_with_streams(
        session.streams, run_all, showing.tell, partial(print, file=sys.stderr), quiet=showing.quiet
    )
    for each in ran:
        if each.stream is not None:
            _print_counts(each, showing)
    if summary := _summary_text(script, ran, time.perf_counter() - started, verbose=showing.verbose):
        showing.tell(f"\n{summary}")
    return exit_code


def run_statement(
    session: LookupSession, statement: ScriptStatement, params: Mapping[str, Any], showing: Showing
) -> StatementRun:
    """Run one statement, and print its rows and a summary of its lookups."""
    watch = partial(TerminalBar(sys.stderr).over, session.spark) if showing.bar else None
    few_rows = not showing.analyze and showing.rows is not None
    ran = StatementRun(session, statement, params, watch, few_rows=few_rows)
    is_analyzed = showing.analyze and ran.plan is not None and bool(ran.plan.joins)
    if ran.plan is not None and showing.verbose and not is_analyzed:
        showing.tell(f"\n{joins_text(ran.plan, statement.line)}\n")

    def rows_of(frame: DataFrame) -> str:
        if is_analyzed:
            run_to_its_end(frame)
            return ""
        if showing.format != TABLE:
            return written(frame, showing.format, showing.rows)
        rows = showing.rows or 0
        if ran.gives_text:
            return "".join(f"{row[0]}\n" for row in frame.collect())
        if not frame.columns or rows <= 0:
            return ""
        with redirect_stdout(io.StringIO()) as printed:  # the bar must have gone before the rows come
            frame.show(rows, truncate=40)
        return printed.getvalue()

    shown = ran.take(rows_of)
    if ran.stream is not None:
        showing.tell(f"started: {ran.stream}")
        return ran
    if is_analyzed:
        print(f"\n{ran.analyzed}\n", file=showing.report, flush=True)
        return ran
    print(shown, end="", file=showing.results, flush=True)
    _print_counts(ran, showing)
    showing.tell(f"{ran.seconds:.1f} s")
    return ran


def head_of(statement: ScriptStatement, number: int, of: int) -> str:
    """One line that says which statement it is; without secrets."""
    first, *more = shown_text(statement.text).splitlines()
    rest = " ..." if more or len(first) > _HEAD else ""
    return f"[{number}/{of}] line {statement.line}: {first[:_HEAD].rstrip()}{rest}"


# The most characters of a statement's first line that are shown.
_HEAD = 90


# --- summaries -------------------------------------------------------------------------------------


def _print_counts(ran: StatementRun, showing: Showing) -> None:
    table = table_of(ran.lookups) if showing.verbose else []
    lines = [aligned(table), *filter(None, [ran.uncounted])] if table else ran.in_short
    for line in lines:
        showing.tell(line)


def _log_line(ran: StatementRun) -> str:
    if ran.stream is not None:
        return "started"
    done = [
        f"{name.alias}: {', '.join(f'{n} {title}' for title, text in COLUMNS if (n := text(each.counts)))}"
        for name, each in ran.lookups.items()
        if each.counts.rows_in
    ]
    return "; ".join([f"done in {ran.seconds:.1f} s", *done])


def _summary_text(script: Script, ran: Sequence[StatementRun], seconds: float, *, verbose: bool) -> str:
    number = len(script.statements)
    of = counted(number, "statement")
    head = f"{script.file}: {of if len(ran) == number else f'{len(ran)} of {of}'} in {seconds:.1f} s"
    lines: list[list[str]] = []
    all_lookups: dict[LookupName, Measured] = {}
    for each in ran:
        all_lookups.update(each.lookups)
        for name, lookup in each.lookups.items():
            if lookup.counts.rows_in:
                pace = lookup.counts.rows_in / each.seconds
                rate = "" if each.stream is not None else f"{pace:,.{0 if pace >= 10 else 1}f}"
                texts = (text(lookup.counts) for _, text in COLUMNS)
                lines.append([str(each.statement.line), name.alias, rate, *texts])
    mattered = what_mattered(all_lookups, seconds)
    if number == 1 and not verbose:  # everything else was printed above
        return mattered
    if number == 1 or not verbose:
        return "\n".join(filter(None, (mattered, head)))
    if not lines:
        return head
    table = aligned(without_empty([["line", TITLES[0], "rows/s", *TITLES[1:]], *lines]), left=2)
    return "\n".join(filter(None, (mattered, head, table)))


# --- a dry run -------------------------------------------------------------------------------------


def dry_run(script: Script, given: CheckOptions, steps: str = "") -> int:
    """Print the mistakes, then ``steps`` that run the file, and what each statement would do.

    Without Spark or any source; returns the exit code.
    """
    results = list(dry_run_results(script.statements, given))
    for statement, what in results:
        for problem in what.problems if isinstance(what, QueryError) else ():
            print(f"error: {failure(statement, QueryError(problem))}", file=sys.stderr, flush=True)
    print(steps, end="\n" if steps else "")
    for number, (statement, what) in enumerate(results, 1):
        print(f"\n{head_of(statement, number, len(results))}")
        says = "does not run: its error is above" if isinstance(what, QueryError) else what
        print("\n".join(f"    {line}" for line in says.splitlines()))
    return FAILED if any(isinstance(what, QueryError) for _, what in results) else WELL


def metrics_arguments(options: argparse.Namespace) -> list[str]:
    if options.metrics_port is None:
        return []
    return ["--metrics-port", str(options.metrics_port), "--metrics-names", options.metrics_names]


def check_metrics(options: argparse.Namespace) -> None:
    """Refuse metrics that cannot be served, before Spark takes its time to start."""
    if options.metrics_port is not None:
        check_package()


@contextmanager
def serving_metrics(session: LookupSession, options: argparse.Namespace) -> Iterator[None]:
    """Serve metrics inside the block, if the command's options say so."""
    if options.metrics_port is None:
        yield
        return
    at, flink_names = options.metrics_port, options.metrics_names == "flink"
    with session.serve_metrics(at.port, at.host, flink_names=flink_names) as server:
        if server.url:
            print(f"metrics: {server.url}", flush=True)
        yield


# --- while streaming queries run --------------------------------------------------------------------


Tell = Callable[[str], None]


LOOK_SECONDS = 1.0
"""Seconds between polls of the streaming queries for new micro-batches."""


def run_with_streams(
    streams: Streams, run: Callable[[], int], tell: Tell, tell_error: Tell, *, quiet: bool = False
) -> int:
    """Run statements, then wait for the streaming queries that they started, and leave none running.

    Returns:
        The exit code: that of ``run``, 1 if a query failed permanently, 128 + n after signal n.
    """
    known = len(streams.started)
    raised: Exception | None = None
    with _without_final_logs():
        try:
            code = run()
            if code == 0 and streams.running:
                number = len(streams.running)
                count = "1 streaming query runs" if number == 1 else f"{number} streaming queries run"
                tell(f"\n{count}; Ctrl-C stops {'it' if number == 1 else 'them'}")
                _await_all(streams, None if quiet else _BatchReporter(streams, tell))
        except Interrupted as interrupted:
            tell_error(f"\n{interrupted}")
            code = interrupted.exit_code
        except Exception as error:
            raised, code = error, 1
    failures = [_failure_text(each.supervised) for each in streams.started[known:] if each.supervised.error]
    if raised is not None and not failures:
        failures = [f"error in a streaming query: {cause_of(raised)}"]
    for told in failures:
        tell_error(f"\n{told}")
    code = 1 if failures and code == 0 else code
    streams.stop()
    if streams.started[known:]:
        tell(f"\n{stream_summary(streams.started[known:])}")
    return code


def _await_all(streams: Streams, batches: _BatchReporter | None) -> None:
    if batches is None:
        streams.await_all()
        return
    try:
        while not streams.await_all(LOOK_SECONDS):
            batches.tell_new()
    finally:
        batches.tell_new()


class _BatchReporter:
    def __init__(self, streams: Streams, tell: Tell) -> None:
        self._streams, self._tell = streams, tell
        self._told: dict[Supervised, datetime] = {}

    def tell_new(self) -> None:
        for stream in self._streams.started:
            told = self._told.get(stream.supervised, _LONG_AGO)
            for batch in stream.history:
                if batch.began > told:
                    self._told[stream.supervised] = batch.began
                    self._tell(batch_line(stream.supervised.name, batch))


_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def batch_line(query: str, batch: MicroBatch) -> str:
    """One line about a micro-batch: rows, a summary of its lookups, duration and lag."""
    counts = batch.total
    said = [counted(batch.rows, "row")]
    if counts.tasks:
        said += [counted(counts.keys, "key"), counted(counts.requests, "request")]
    if counts.keys:
        said.append(f"{share_text(counts.hits, counts.keys)} found")
    if counts.requests:
        said.append(f"p99 {seconds_text(counts.latency.quantile(0.99))}")
    said += [*nonzero(retried=counts.retried_keys, failed=counts.errors), seconds_text(batch.seconds)]
    return f"{query} batch {batch.number}: {', '.join([*said, *filter(None, [batch.lag])])}"


@contextmanager
def _without_final_logs() -> Iterator[None]:
    """Suppress log records of failures that end a query, as each is reported once at the end."""
    log = logging.getLogger("lookup_hints")
    log.addFilter(_is_not_final)
    try:
        yield
    finally:
        log.removeFilter(_is_not_final)


def _is_not_final(record: logging.LogRecord) -> bool:
    return not getattr(record, FOR_GOOD, False)


def _failure_text(query: Supervised) -> str:
    assert query.error is not None
    head = f"error in the streaming query {query.name}, which is not started again ({query.strategy})"
    return f"{head}: {cause_of(query.error)}"


def stream_summary(streams: Sequence[StartedStream]) -> str:
    """A line for each query: where it wrote, how it ended, how many batches and restarts it had."""
    return "\n".join(map(_stream_text, streams))


def _stream_text(stream: StartedStream) -> str:
    query = stream.supervised
    batches = "no batch" if not stream.batches else f"batches so far {stream.batches}"
    restarts = len(query.restarts)
    again = f", {counted(restarts, 'restart')}" if restarts else ""
    seconds = time.time() - stream.started
    where = "" if query.name == stream.insert.shown_sink else f" into {stream.insert.shown_sink}"
    return f"streaming query {query.name}{where}: {query.status.value}, {batches}{again}, {seconds:.1f} s"
