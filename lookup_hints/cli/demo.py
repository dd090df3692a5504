"""``lookup-hints demo``: lookups over small data of its own, and what to type next."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from lookup_hints.cli import job
from lookup_hints.cli.arguments import WELL, WrongUse
from lookup_hints.cli.job import run_with_streams
from lookup_hints.errors import counted
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.runs.statement_run import StatementRun
from lookup_hints.statements import ScriptStatement, split_statements

if TYPE_CHECKING:
    from lookup_hints.session import LookupSession

CUSTOMERS = ((1, "Ada", "GB"), (2, "Emmy", "DE"), (3, "Grace", "US"), (4, "Sofia", "RU"), (5, "Hedy", "AT"))
_LATE = (6, "Mary", "GB")
# The orders of each file: number, customer, total.
ORDERS = (
    ((101, 1, 20.0), (102, 3, 35.5), (103, 1, 12.25), (104, 2, 8.0)),
    ((105, 6, 99.9), (106, 5, 14.75), (107, 3, 60.0), (108, 6, 5.5)),
    ((109, 4, 31.0), (110, 1, 7.25), (111, 2, 42.0), (112, 5, 18.0)),
)
_MADE = ("customers.sqlite", "orders", "enriched", "checkpoint", "warehouse", "demo.sql")

_ExplainRun = Callable[[StatementRun], str]

_SHOWING = job.Showing(rows=20, bar=False)


def prepare(folder: Path) -> Path:
    """Make the demo's data in ``folder``; what an earlier demo made there goes. Returns the file of SQL."""
    if (
        folder.exists()
        and not (folder / "demo.sql").is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise WrongUse(f"{folder} is there already, and not from a demo. Name another with --folder.")
    here = folder.as_posix()
    if any(letter in here for letter in "'`;\\\n"):
        raise WrongUse(f"A quote, a backslash or a semicolon stands in {here!r}. Name another --folder.")
    for path in (folder / name for name in _MADE):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    (folder / "orders").mkdir(parents=True)
    _execute_sqlite(folder, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, country TEXT)")
    for customer in CUSTOMERS:
        _add_customer(folder, customer)
    for number, orders in enumerate(ORDERS, 1):
        lines = (json.dumps({"id": id_, "customer": who, "total": total}) for id_, who, total in orders)
        (folder / "orders" / f"{number}.json").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    script = folder / "demo.sql"
    template = files("lookup_hints.cli").joinpath("demo.sql").read_text("utf-8")
    script.write_text(template.replace("{folder}", here), "utf-8")
    return script


def configuration(folder: Path) -> Mapping[str, str]:
    """What the demo's Spark starts with: little, so that it starts soon."""
    return {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }


def run(session: LookupSession, script: Path) -> int:
    """Run the demo's statements, tell what they did and what to type next; returns the exit code."""
    text = script.read_text("utf-8")
    plain, patient, stream = (one for one in split_statements(text) if not _is_setup(one))
    for statement in split_statements(text):
        if _is_setup(statement):
            session.sql(statement.text)
    _print_block(_BEGINNING.format(folder=script.parent))

    def run_all() -> int:
        _run_statement(session, plain, "1. A lookup join", _explain_first)
        with _row_that_comes_late(session, script.parent):
            _run_statement(session, patient, "2. A row that comes late", _explain_second)
        _run_statement(session, stream, "3. A stream", lambda _: _STREAM)
        return WELL

    code = run_with_streams(
        session.streams, run_all, partial(print, flush=True), partial(print, file=sys.stderr)
    )
    if code == WELL:
        written = session.spark.read.parquet(str(script.parent / "enriched")).count()
        _print_block(
            _END.format(
                written=written,
                folder=script.parent,
                command=command_to_type(),
                script=shlex.quote(str(script)),
                more=shlex.quote(str(script.parent / "orders" / "4.json")),
            )
        )
    return code


# --- the statements --------------------------------------------------------------------------------


def _is_setup(statement: ScriptStatement) -> bool:
    return statement.text.startswith(("CREATE", "SET"))


def _run_statement(
    session: LookupSession, statement: ScriptStatement, title: str, explain: _ExplainRun
) -> None:
    print(f"\n== {title} ==\n\n{statement.text}", flush=True)
    _print_block(explain(job.run_statement(session, statement, {}, _SHOWING)))


@contextmanager
def _row_that_comes_late(session: LookupSession, folder: Path) -> Iterator[None]:
    """Write a customer while the block runs: as soon as a lookup waits to ask for it again."""
    over = threading.Event()
    with session.watching() as look:

        def write() -> None:
            for _ in range(_LOOKS):
                if any(moment.waiting for moment in look().values()) or over.wait(_LOOK_SECONDS):
                    break
            _add_customer(folder, _LATE)

        writer = threading.Thread(target=write, name="late-row")
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()


# The row is written in the end even where workers cannot say that they wait.
_LOOKS, _LOOK_SECONDS = 80, 0.1


# --- the data --------------------------------------------------------------------------------------


def _add_customer(folder: Path, customer: tuple[int, str, str]) -> None:
    _execute_sqlite(folder, "INSERT INTO customers VALUES (?, ?, ?)", customer)


def _execute_sqlite(folder: Path, statement: str, values: tuple[object, ...] = ()) -> None:
    with closing(sqlite3.connect(folder / "customers.sqlite")) as database, database:
        database.execute(statement, values)


# --- the words -------------------------------------------------------------------------------------


def _print_block(text: str) -> None:
    print(f"\n{text}", flush=True)


def _counts_of(ran: StatementRun) -> LookupMetrics:
    (lookup,) = ran.lookups.values()
    return lookup.counts


def _explain_first(ran: StatementRun) -> str:
    counts = _counts_of(ran)
    return (
        f"{counts.rows_in} rows came, and the source was asked for {counts.keys} keys in"
        f" {counted(int(counts.requests), 'request')}: a task asks for equal keys once.\n"
        f"Customer {_LATE[0]} is not in the database yet, so the LEFT JOIN shows NULL."
    )


def _explain_second(ran: StatementRun) -> str:
    counts = _counts_of(ran)
    late, name, _ = _LATE
    if not counts.retried_keys:
        return f"This machine was so slow that customer {late} was there before the lookup began."
    return (
        f"Customer {late} was missed at first. While the lookup waited, the demo wrote the row of {name} into"
        " the\ndatabase, and a retry found it. Keys that are found at once do not wait for it."
    )


def command_to_type() -> str:
    """The command as the user can type it: its name where the shell finds this one, else its path."""
    this = Path(sys.executable).parent / "lookup-hints"
    found = shutil.which("lookup-hints")
    return "lookup-hints" if found and Path(found).parent == this.parent else shlex.quote(str(this))


_BEGINNING = """\
Made in {folder}:
  customers.sqlite   5 customers
  orders/            12 orders, in 3 files"""

_STREAM = """\
The files of the folder are a stream: each is a micro-batch, and its rows are looked up as it comes."""

_END = """\
{written} rows are in {folder}/enriched, each of them once.

Next, type:

  {command} run {script}
      all of it again. The stream has nothing new to read.

  echo '{{"id": 113, "customer": 2, "total": 9.5}}' > {more}
      one order more. Run the file again, and the stream reads this one alone.

  {command} explain {script}
      how each statement would run, down to the plan of Spark.

  {command} check {script}
      finds mistakes without Spark. Misspell an option of the hint, and try."""
