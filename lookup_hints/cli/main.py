"""The program ``lookup-hints``: the JVM of Spark starts while the rest of it is imported."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from lookup_hints.cli.arguments import FAILED, STDIN, WELL, WRONG_USE, WrongUse, parser
from lookup_hints.cli.interrupts import Interrupted, signals_raise
from lookup_hints.errors import LookupHintsError, naming_file
from lookup_hints.runs.start import SparkStart

_ON_SPARK = ("run", "shell", "explain", "doctor")
# Exit codes above it say that a signal has ended the command.
_AFTER_SIGNAL = 128


# Imports only the parser of arguments, and launches the JVM before importing the rest.
# (docs/decisions/0193)
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(given or ["--help"])
    options.spark = None
    code = _exit_code(options)
    spark = options.spark
    if spark is not None and spark.log is not None:
        # It is named unless all went well, a signal ended the command, or Spark never came.
        if code == WELL or code > _AFTER_SIGNAL or not spark.is_there:
            spark.log.unlink(missing_ok=True)
        else:
            print(f"Spark's log: {spark.log}", file=sys.stderr)
    return code


def _spark_for_command(options: Namespace) -> SparkStart | None:
    """The Spark that the command will use; None if it cannot start, which is reported later."""
    file = getattr(options, "file", None)
    if file not in (None, STDIN) and (not Path(file).exists() or Path(file).is_dir()):
        return None
    if (options.master or "").startswith("sc://"):
        return None
    # A key that is no key of Spark's is refused later, with all that is wrong in the file.
    conf = {key.strip(): value for key, _, value in (text.partition("=") for text in options.conf)}
    given = {"spark.master": options.master, "spark.remote": options.remote}
    conf |= {key: value for key, value in given.items() if value is not None}
    # Without a terminal, Spark's log belongs to the output.
    hides_log = options.verbose < 2 and options.remote is None and sys.stderr.isatty()
    try:
        return SparkStart(conf, hides_log=hides_log)
    except ModuleNotFoundError:
        return None


def _exit_code(options: Namespace) -> int:
    try:
        with signals_raise():
            if options.command in _ON_SPARK:
                options.spark = _spark_for_command(options)
            from lookup_hints.cli.commands import COMMANDS

            code = COMMANDS[options.command](options)
            with naming_file("standard output"):
                sys.stdout.flush()
            return code
    except Interrupted as interrupted:
        print(f"\n{interrupted}", file=sys.stderr)
        return interrupted.exit_code
    except BrokenPipeError:  # of `lookup-hints ... | head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _AFTER_SIGNAL + signal.SIGPIPE
    except OSError as error:
        if error.filename is None:
            raise
        print(f"lookup-hints: {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG_USE
    except LookupHintsError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except WrongUse as error:
        print(f"lookup-hints: {error}", file=sys.stderr)
        return WRONG_USE


if __name__ == "__main__":
    sys.exit(main())
