"""SQL files through ``spark-submit``: the command, and the program that it runs on the driver."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from tempfile import mkdtemp

from lookup_hints.cli import archive, job
from lookup_hints.cli.arguments import (
    ARCHIVE_NAME,
    FAILED,
    METRICS_OPTIONS,
    WELL,
    WRONG_USE,
    WrongUse,
    add_metrics_options,
    add_script_options,
    add_showing_options,
)
from lookup_hints.cli.interrupts import signals_raise
from lookup_hints.driver.init_statements import init_file
from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.errors import LookupHintsError
from lookup_hints.pyspark_internals import oldest_java
from lookup_hints.runs.java import check_java
from lookup_hints.runs.start import NO_BAR_OF_SPARK, await_server
from lookup_hints.spi.lookup_options import INIT

SCRIPT = Path(__file__).resolve().parent / "scripts" / "lookup_job.py"
"""The script for ``spark-submit``."""
# Where this library is: a folder, or the archive that `spark-submit` has put before all others.
_HOME = Path(__file__).resolve().parents[2]

# Of SparkSubmitOptionParser.
_SWITCHES = {"--verbose", "-v", "--supervise", "--usage-error", "--version"}
_WITH_VALUE = (
    *("--archives", "--class", "--conf", "--deploy-mode", "--driver-class-path", "--driver-cores"),
    *("--driver-java-options", "--driver-library-path", "--driver-memory", "--exclude-packages"),
    *("--executor-cores", "--executor-memory", "--files", "--jars", "--keytab", "--kill"),
    *("--load-spark-defaults", "--master", "--name", "--num-executors", "--packages", "--principal"),
    *("--properties-file", "--proxy-user", "--py-files", "--queue", "--remote", "--repositories"),
    *("--status", "--total-executor-cores"),
)
_AS_CLOSE = 0.8
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")
_log = logging.getLogger("lookup_hints.submit")
# In the URL of a Connect server.
_TOKEN = re.compile(r"(?i)(;token=)[^;]*")


# Environment variables that determine what spark-submit runs, and where.
_KEPT = (
    *("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"),
)


INIT_KEY = f"spark.{INIT.session_key}"


# --- the command -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submission:
    file: str
    script: tuple[str, ...]
    spark: tuple[str, ...]
    modules: tuple[archive.Module, ...]
    init: str = ""

    def __post_init__(self) -> None:
        """Refuse arguments for which spark-submit would only print a Java stack trace."""
        master = _last_value("--master", self.spark) or ""
        if self.on_cluster and master.startswith(("spark://", "local")):
            raise WrongUse(
                f"--deploy-mode cluster: the master {master} runs no driver of Python in the cluster; YARN"
                " and Kubernetes do. Leave --deploy-mode out, and the driver runs here."
            )

    @property
    def on_cluster(self) -> bool:
        """Whether the driver runs in the cluster too, where the file is not."""
        return _last_value("--deploy-mode", self.spark) == "cluster"

    def command(self, spark_submit: str, shipped: str) -> list[str]:
        spark = _append_value(self.spark, "--py-files", shipped)
        if _last_value("--name", spark) is None:
            spark = (*spark, "--name", Path(self.file).name)
        file, init = self.file, self.init
        if self.on_cluster:
            # Spark lays them beside the driver, under their bare names.
            spark, file = _append_value(spark, "--files", file), Path(file).name
            if init_file(init) is not None:
                spark, init = _append_value(spark, "--files", init), Path(init).name
        # To the script, as a Spark Connect server sees nothing of what spark-submit gets.
        conf = ("--conf", f"{INIT_KEY}={init}") if init else ()
        modules = [part for module in self.modules for part in ("--module", module.name)]
        return [spark_submit, *spark, str(SCRIPT), file, *self.script, *conf, *modules]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """``given``, the Connect server, and which Python the driver is: this one by default."""
        environment = dict(given)
        if (remote := _last_value("--remote", self.spark)) is not None:
            environment["SPARK_REMOTE"] = remote  # spark-submit does not pass it on
        if not self.on_cluster and not any("spark.pyspark." in each for each in self.spark):
            environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            if (_last_value("--master", self.spark) or "").startswith("local"):
                environment.setdefault("PYSPARK_PYTHON", sys.executable)
        return environment

    def as_typed(self, spark_submit: str, folder: Path, given: Mapping[str, str]) -> str:
        """The same command for pasting into any shell in any folder; without secrets.

        Args:
            spark_submit: the program.
            folder: where relative paths begin, and the archive is made.
            given: the environment of this process.
        """
        shipped = str(folder / ARCHIVE_NAME)
        archive_of = [sys.executable, "-m", "lookup_hints.cli.main", "archive", "--output", shipped]
        archive_of += [part for module in self.modules for part in ("--module", str(module.path.resolve()))]
        environment = self.environment(given)
        if Path(spark_submit).parent == Path(sys.executable).parent:  # which looks for its home by `python3`
            environment.setdefault("SPARK_HOME", str(Path(import_module("pyspark").__path__[0])))
        kept = [_TOKEN.sub(r"\1***", f"{name}={environment[name]}") for name in _KEPT if name in environment]
        init = self.init if init_file(self.init) is None else str(folder / self.init)
        command = replace(self, file=str(folder / self.file), init=init).command(spark_submit, shipped)
        steps = (["cd", str(folder)], archive_of, ["env", *kept, *command])
        return "(" + " &&\n ".join(map(command_text, steps)) + ")"


def _last_value(option: str, arguments: Sequence[str]) -> str | None:
    values = [value for name, value in pairwise(arguments) if name == option]
    return values[-1] if values else None


def _append_value(arguments: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    given = _last_value(option, arguments)
    if given is None:
        return (*arguments, option, value)
    at = len(arguments) - 1 - arguments[::-1].index(option)
    return (*arguments[: at + 1], f"{given},{value}", *arguments[at + 2 :])


def divided(arguments: Sequence[str], ours: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Split arguments into ours and those of spark-submit, keeping their order.

    Args:
        arguments: the arguments of the command line.
        ours: our options, and whether each takes a value.

    >>> divided(["job.sql", "--master", "local[2]", "--rows=5"], {"--rows": True})
    (['job.sql', '--rows=5'], ['--master', 'local[2]'])
    """
    mine: list[str] = []
    sparks: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if not argument.startswith("-") or argument == "-":
            mine.append(argument)
        elif name == "--conf" and not (value or (value := next(rest, ""))).startswith("spark."):
            mine += ["--conf", value]  # spark-submit drops settings that are not Spark's
        elif name == "--conf":
            sparks += ["--conf", value]
        elif name in ours:
            mine.append(argument)
            if ours[name] and not has_value:
                mine += islice(rest, 1)
        elif tip := _tip_for_misspelt(name, ours):
            raise WrongUse(f"There is no option {name}. {tip}")
        elif has_value and name.startswith("--"):
            sparks += [name, value]
        else:
            sparks.append(argument)
            if argument not in _SWITCHES:
                sparks += islice(rest, 1)
    return mine, sparks


def _tip_for_misspelt(name: str, ours: Mapping[str, bool]) -> str:
    """Which option ``name`` may have meant, where it is none; spark-submit may have more than we know."""
    known = (*ours, *_WITH_VALUE, *_SWITCHES)
    near = [] if name in known else get_close_matches(name, known, n=1, cutoff=_AS_CLOSE)
    return f"Did you mean {near[0]}?" if near else ""


def find_spark_submit(environment: Mapping[str, str]) -> str:
    """The program ``spark-submit``: of SPARK_HOME, of the path, or beside this Python."""
    home, path = environment.get("SPARK_HOME"), environment.get("PATH", "")
    places = [home and Path(home) / "bin", *path.split(os.pathsep), Path(sys.executable).parent]
    program = shutil.which("spark-submit", path=os.pathsep.join(str(each) for each in places if each))
    if program is not None:
        return program
    raise WrongUse(
        "spark-submit is missing. Set SPARK_HOME, or install PySpark: pip install 'lookup-hints[spark]'"
    )


def command_text(command: Sequence[str]) -> str:
    """A command as one would type it, without secrets."""
    masked = list(command)
    for at, argument in enumerate(command[1:], 1):
        key, sign, _ = argument.partition("=")
        if command[at - 1] in ("--conf", "--param") and sign and _SECRET.search(key):
            masked[at] = f"{key}=***"
        if command[at - 1] == "--remote":
            masked[at] = _TOKEN.sub(r"\1***", argument)
    return shlex.join(masked)


# --- lookup-hints submit, submit-script, archive ---------------------------------------------------


def print_script(_: argparse.Namespace) -> int:
    print(SCRIPT)
    return WELL


def make_archive(options: argparse.Namespace) -> int:
    if options.output.suffix != ".zip":
        raise WrongUse(f"--output must end with .zip, as workers take nothing else: {options.output}")
    modules = [archive.find_module(each) for each in options.module]
    print(archive.build_archive(options.output.absolute(), modules))
    return WELL


# spark-submit reads both streams of the script through one pipe, so the script can see no terminal.
# (docs/decisions/0050)
def run_submit(options: argparse.Namespace) -> int:
    """Run a file of SQL through spark-submit. This library and your own modules are shipped to the workers,
    which need nothing but Python, pyarrow and the drivers of the connectors."""
    parser = _script_parser(
        "lookup-hints submit",
        usage="%(prog)s FILE.sql [--init FILE.sql] [--param NAME=VALUE] [--module MODULE] [--rows N]"
        " [--dry-run] [--metrics-port [HOST:]PORT] [OPTION ...]",
        description=run_submit.__doc__,
        epilog="All other options are those of spark-submit: --master, --deploy-mode, --jars, ...",
    )
    parser.add_argument(
        "--init",
        default="",
        metavar="FILE.sql",
        help="the statements that create the lookup tables, or module:function; with spark-submit itself:"
        f" --conf {INIT_KEY}=FILE.sql",
    )
    mine, sparks = divided(options.arguments, _OURS)
    options = parser.parse_args(mine)
    sparks_conf = job.configuration([value for name, value in pairwise(sparks) if name == "--conf"])
    script = job.read(options.file, options.param)
    try:
        modules = tuple(archive.find_module(each) for each in options.module)
    except LookupHintsError as error:
        raise WrongUse(str(error)) from None
    conf = [f"{key}={value}" for key, value in job.configuration(options.conf).items()]
    passed = [*_repeat_option("--param", options.param), *_repeat_option("--conf", conf)]
    passed += ["--rows", str(options.rows), *job.metrics_arguments(options)]
    passed += [flag for flag in ("--analyze", "--quiet") if getattr(options, flag.strip("-"))]
    passed += ["--verbose"] if {"--verbose", "-v"} & set(sparks) else []
    # spark-submit sends all that the script writes through a pipe to its own standard output.
    if options.progress or sys.stdout.isatty():
        passed.append("--progress")
    if (file := init_file(options.init)) is not None and not file.is_file():
        raise WrongUse(f"--init: there is no file {options.init!r}.")
    submission = Submission(options.file, tuple(passed), tuple(sparks), modules, options.init)
    program = find_spark_submit(os.environ)
    if options.dry_run:
        steps = submission.as_typed(program, Path.cwd(), os.environ)
        with job.importing(modules):
            if options.init:
                sparks_conf[INIT_KEY] = options.init
            surroundings = job.surroundings(options, [each.name for each in modules], sparks_conf)
            return job.dry_run(script, surroundings, steps)
    check_java(os.environ, oldest_java())
    folder = mkdtemp(prefix="lookup-hints-")
    try:
        ships = archive.build_archive(Path(folder) / ARCHIVE_NAME, modules)
        return _run_process(submission.command(program, str(ships)), submission.environment(os.environ))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a job that ran well has run well


_FLAGS = dict.fromkeys(("--dry-run", "--analyze", "--quiet", "--progress", "--help", "-h"), False)
_OURS = {"--init": True, "--param": True, "--rows": True, "--module": True, **METRICS_OPTIONS, **_FLAGS}


def _repeat_option(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def _run_process(command: Sequence[str], environment: Mapping[str, str]) -> int:
    process = subprocess.Popen(command, env=environment)  # noqa: S603 (the user's own command)
    before = {
        number: signal.signal(number, lambda number, _: process.send_signal(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


# --- the program on the driver ---------------------------------------------------------------------


def _script_parser(program: str, **texts: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(program, allow_abbrev=False, **texts)  # type: ignore[arg-type]
    add_script_options(parser)
    add_showing_options(parser)
    add_metrics_options(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="say what each statement would do, and run nothing"
    )
    parser.add_argument(
        "--progress",
        action="store_true",
        help="show a progress bar; on a terminal, lookup-hints submit does so by itself",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The program of ``spark-submit [...] $(lookup-hints submit-script) FILE.sql``; returns the exit code."""
    options = _script_parser(SCRIPT.name).parse_args(arguments)
    try:
        script = job.read(options.file, options.param)
        job.import_all(options.module)
        if options.dry_run:
            return job.dry_run(script, job.surroundings(options, options.module))
        job.check_metrics(options)
        job.check_connectors(script)
        return _run_on_spark(options, script)
    except WrongUse as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_USE
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED


def _run_on_spark(options: argparse.Namespace, script: job.Script) -> int:
    from pyspark.sql import SparkSession

    from lookup_hints.session import LookupSession

    builder = SparkSession.builder
    for key, value in {**NO_BAR_OF_SPARK, **job.configuration(options.conf)}.items():
        builder = builder.config(key, value)
    _log_to_stderr()
    if (remote := os.environ.get("SPARK_REMOTE")) is not None:
        await_server(remote, _log.info)
    spark = builder.getOrCreate()
    if is_connect(spark) and _HOME.is_file():
        # --py-files reaches the executors of this driver, but not those of a Connect server.
        spark.addArtifacts(str(_HOME), pyfile=True)
    try:
        session = LookupSession(spark)
        with signals_raise(), job.serving_metrics(session, options):
            return job.run(session, script, job.Showing.of(options, bar=options.progress))
    finally:
        spark.stop()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("lookup_hints")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
