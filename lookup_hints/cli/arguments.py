"""The arguments of ``lookup-hints``, and its exit codes.

Parsed before any slow import, so that Spark's JVM starts meanwhile.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lookup_hints.cli.result_formats import FORMATS as RESULT_FORMATS
from lookup_hints.cli.result_formats import TABLE
from lookup_hints.errors import did_you_mean
from lookup_hints.metrics.prometheus import LOOPBACK
from lookup_hints.version import __version__

WELL, FAILED, WRONG_USE = 0, 1, 2
"""Exit codes: all well, a statement failed, wrong use of the command."""


class WrongUse(Exception):
    """The command cannot be understood: a file that is not there, a parameter without a value."""


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

_DEMO = """\
Make a small SQLite database and a stream of orders, run three statements over them, explain what
happened, and say what to type next. Needs no network. With --postgres: run a PostgreSQL with the
same tables, in a temporary folder, and say how to look rows up in it from a second terminal."""
_SHELL = """\
Run statements as you type them: with a history, completion, and Ctrl-C to cancel one."""
_EXPLAIN = """\
Show how each query would run. Statements that only set the scene (CREATE of lookup tables and
views, SET, USE) are run, as later ones need them; nothing else is, and no lookup is made."""
_CHECK = """\
Find mistakes in hints, lookup joins and DDL from the text alone: no Spark, no external system."""
_LSP = """\
Speak the language server protocol on the standard input and output: mistakes as `check` finds them,
what stands at the pointer, and completions. Parameters have values where none is given."""
_DOCTOR = """\
Look whether the lookup tables of a file can be reached, read and asked fast, from this machine and
from a worker of each executor. Each line has its cure. No query of the file runs; nothing is written."""
_IMPORT = """\
Print the CREATE statements of lookup tables: for an OpenAPI document, for the answer of an API to one
request, or for the tables of a database. Secrets are left to variables of the environment."""

STDIN = "-"
"""The name of a file that means the standard input."""

SHELLS = ("bash", "zsh", "fish")

FINDING_FORMATS = ("text", "github", "json", "sarif")
"""Output formats of `check`."""

DEMO_FOLDER = "lookup-hints-demo"

ARCHIVE_NAME = f"lookup_hints-{__version__}.zip"

_SHIP_HELP = "connectors of your own to ship: a .py file, the folder of a package, or a name"


class CommandParser(argparse.ArgumentParser):
    """Suggests the nearest option or command for an unknown word."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^' ]+)", message)
        word = "" if unknown is None else unknown[1]
        known = re.findall(r"--[\w-]+", self.format_help()) + re.findall(
            r"[\w-]+", message.partition("from ")[2]
        )
        if "argument COMMAND" in message:
            message = f"there is no command {word!r}"
        is_file = word.endswith(".sql") and "run" in known
        tip = f"Write: {self.prog} run {word}" if is_file else did_you_mean(word, known)
        told = f"{message}. {tip}" if tip else message
        self.exit(WRONG_USE, f"{self.prog}: {told}\nAll options: {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands. ``command`` in its result is a key of ``commands.COMMANDS``."""
    top = CommandParser(
        "lookup-hints",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.set_defaults(verbose=0, quiet=False, remote=None, master=None)
    top.add_argument("--version", action="version", version=f"lookup-hints {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")

    shows = commands.add_parser("demo", help="try lookups on small data that it makes", description=_DEMO)
    shows.add_argument(
        "--folder", type=Path, default=Path(DEMO_FOLDER), help="where the data is made (default %(default)s)"
    )
    shows.add_argument(
        "--postgres", action="store_true", help="run a PostgreSQL to try things with instead, until Ctrl-C"
    )

    run = commands.add_parser("run", help="run each statement of a file and show its rows")
    _add_spark_options(run)
    add_showing_options(run)
    _add_result_options(run)
    _add_estimate_options(run)
    add_metrics_options(run)

    shell = commands.add_parser("shell", help="run statements as you type them", description=_SHELL)
    shell.add_argument("-f", "--init", metavar="FILE.sql", help="run the statements of this file first")
    _add_spark(shell)
    add_showing_options(shell)

    explain = commands.add_parser("explain", help="show how each statement would run", description=_EXPLAIN)
    _add_spark_options(explain)
    _add_spark_log(explain)

    check = commands.add_parser(
        "check", help="find mistakes without Spark or any external system", description=_CHECK
    )
    check.add_argument("files", nargs="+", metavar="FILE.sql")
    check.add_argument(
        "--format",
        choices=FINDING_FORMATS,
        default="text",
        help="how findings are written: for readers (default), for GitHub Actions, as JSON or SARIF",
    )
    check.add_argument(
        "--strict", action="store_true", help="exit code 1 also where a statement is not fully checked"
    )
    add_surroundings(check)

    lsp = commands.add_parser(
        "lsp", help="show editors mistakes and completions, as a language server", description=_LSP
    )
    add_surroundings(lsp)

    examines = commands.add_parser(
        "doctor",
        help="look whether lookup tables can be asked from here and from workers",
        description=_DOCTOR,
    )
    _add_spark_options(examines)
    _add_spark_log(examines)
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

    _add_shipping(commands)
    _add_import(commands)
    completes = commands.add_parser(
        "completion", help="print the script by which a shell completes this command"
    )
    completes.add_argument("shell", choices=SHELLS)
    return top


MODULE_HELP = (
    "a .py file, the folder of a package or the name of a module that registers connectors or retry"
    " predicates of yours: imported first; may be repeated"
)


def add_script_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.sql")
    add_surroundings(parser)


def add_surroundings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of the parameter marker :NAME; a number, true, false, null or text",
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark or lookup configuration"
    )
    parser.add_argument("--module", action="append", default=[], metavar="MODULE", help=MODULE_HELP)


def add_showing_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=_row_count, default=20, metavar="N", help="rows of each result to show (default 20)"
    )
    parser.add_argument(
        "--analyze",
        action="store_true",
        help="run each query to its end, and show its plan with measured figures in place of its rows",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="show rows and errors alone: no counts, no progress"
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show plans and all counts, too; given twice (-vv), also what Spark logs, in place of a file",
    )


def _add_spark_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE.sql", nargs="?", help="- is the standard input, as is a pipe")
    command.add_argument("-c", dest="sql", metavar="SQL", help="run this in place of a file")
    _add_spark(command)


def _add_spark(command: argparse.ArgumentParser) -> None:
    add_surroundings(command)
    where = command.add_mutually_exclusive_group()
    where.add_argument("--master", help="Spark master, for example local[4] (default local[*])")
    where.add_argument("--remote", metavar="URL", help="Spark Connect server, for example sc://host:15002")


def _add_spark_log(command: argparse.ArgumentParser) -> None:
    text = "let Spark log to the terminal, in place of a file"
    command.add_argument("-v", "--verbose", action="store_const", const=2, default=0, help=text)


def _add_result_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format",
        choices=RESULT_FORMATS,
        default=TABLE,
        help="how rows are written (default table); all others write all rows, unless --rows says how many",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the rows into this file")
    command.set_defaults(rows=None)


def _add_estimate_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--estimate",
        action="store_true",
        help="show what the lookups of each query will cost, and make none: only their left sides run",
    )
    command.add_argument(
        "--sample",
        type=_parse_share,
        metavar="SHARE",
        help="with --estimate: count this share of the keys, such as 1%%; figures are ranges then",
    )
    command.add_argument(
        "--ask",
        type=_parse_keys,
        metavar="KEYS",
        help="with --estimate: look up so many keys at most, to know those of the lookups behind",
    )


METRICS_OPTIONS = {"--metrics-port": True, "--metrics-names": True}
"""Our options, and whether each takes a value."""


@dataclass(frozen=True)
class MetricsAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=_parse_address,
        metavar="[HOST:]PORT",
        help=f"let Prometheus scrape counts here while the file runs (host {LOOPBACK}; port 0: any)",
    )
    parser.add_argument(
        "--metrics-names",
        choices=("lookup", "flink"),
        default="lookup",
        help="flink: serve Flink's names of metrics, too",
    )


def _row_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number of rows from 0 is needed, not {text!r}")
    return int(text)


def _parse_share(text: str) -> float:
    """``1%`` or ``0.01``."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"a share such as 1% or 0.01 is needed, not {text!r}")
    return share


def _parse_keys(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of keys such as 100 is needed, not {text!r}")
    return int(text)


def _parse_address(text: str) -> MetricsAddress:
    """``9091``, ``0.0.0.0:9091`` or ``[::]:9091``."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"[HOST:]PORT needs a port of 0 to 65535, not {text!r}")
    return MetricsAddress(host.strip("[]") or LOOPBACK, int(port))


def _add_shipping(commands: Any) -> None:
    # Options come in no order that argparse knows, as most are spark-submit's: all are taken as they are.
    submit = commands.add_parser(
        "submit",
        help="run a file through spark-submit, with all that the workers need",
        prefix_chars="\0",
        add_help=False,
    )
    submit.add_argument("arguments", nargs="*")

    commands.add_parser(
        "submit-script", help="print where the script is that spark-submit takes before FILE.sql"
    )

    ships = commands.add_parser(
        "archive", help="build the archive for spark-submit --py-files, and print where it is"
    )
    ships.add_argument("--module", action="append", default=[], metavar="MODULE", help=_SHIP_HELP)
    ships.add_argument(
        "--output", type=Path, default=Path(ARCHIVE_NAME), metavar="FILE.zip", help="default: %(default)s"
    )


_IMPORT_OPTIONS = (
    ("path", "PATTERN", "paths of the document, as /customers/*"),
    ("operation", "PATTERN", "its operations, by operationId"),
    ("server", "URL", "base URL of the API, in place of the document's"),
    ("sample", "URL", "ask an API once: https://api.example.com/customers/{id}, with --key id=1"),
    (
        "url",
        "DATABASE",
        "postgresql://..., mysql://..., sqlite:///FILE, duckdb:///FILE, or a reference to the URL",
    ),
    ("table", "PATTERN", "tables of the database, as 'shop.*'; or the name of the sample's"),
)
_IMPORT_REPEATED = (
    ("key", "NAME=VALUE", "a key of the sample that has a row"),
    ("header", "NAME:VALUE", "a header of the sample"),
    ("option", "KEY=VALUE", "an option of the tables, as in WITH"),
)


def _add_import(commands: Any) -> None:
    parser = commands.add_parser(
        "import", help="print CREATE statements for an API or a database", description=_IMPORT
    )
    parser.add_argument("document", nargs="?", metavar="OPENAPI.json", help="of OpenAPI 3.0 or 3.1; or YAML")
    for name, shown, what in _IMPORT_OPTIONS:
        parser.add_argument(f"--{name}", metavar=shown, help=what)
    for name, shown, what in _IMPORT_REPEATED:
        parser.add_argument(f"--{name}", action="append", default=[], metavar=shown, help=what)
