"""Shortens an error for a terminal or notebook: what is wrong and where, without stacks and plans."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from lookup_hints.errors import LookupHintsError, QueryError, Span, cause_of

_PLACE = re.compile(r"[;(]?\s*\(?line \d+,? pos \d+\)?;?$", re.MULTILINE)
_STACK = re.compile(r"\n\s+at [\w.$]+\(|\nJVM stacktrace|\n\s*\n?== SQL|\n'|\n\+- ")
_FROM_WORKER = ("PythonException", "from the Python worker", "Traceback (most recent call last)")
# Spark's tip is for those who call it from Python.
_UNBOUND = re.compile(r"(unbound parameter: (\w+)\.) Please, fix `args`.*?(?= SQLSTATE|\Z)", re.DOTALL)
_MODULES = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")


def brief(error: BaseException, text: str = "", line: int = 1, column: int = 1) -> str:
    """What ``error`` says to the author of a statement, in few lines.

    Errors of this library stay as they are. Of Spark's, the condition, the message and the place are kept;
    of a failure on a worker, what failed there.

    Args:
        error: anything that came out of a statement.
        text: the statement, for the line and the mark under what is wrong.
        line: where the statement begins in its file or cell; places are those of the file.
        column: and in which column.

    >>> brief(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    moved = partial(_moved, line=line, column=column)
    if isinstance(error, QueryError):
        return str(QueryError([replace(each, at=each.at and moved(each.at)) for each in error.problems]))
    if isinstance(error, LookupHintsError):
        return str(error)
    said = str(error).strip()
    if any(mark in said or mark in type(error).__name__ for mark in _FROM_WORKER):
        return _MODULES.sub("", cause_of(error))
    if not _is_sparks(error):
        return f"{type(error).__name__}: {said}".rstrip(": ")
    message = _PLACE.sub("", _STACK.split(said)[0]).strip() or type(error).__name__
    message = _UNBOUND.sub(r"\1 Give it: --param \2=VALUE.", message)
    place = next(map(moved, _places(error, said, text)), None)
    return message if place is None else f"{message}\n{place}:\n{place.underlined()}"


def _moved(at: Span, line: int, column: int) -> Span:
    """A place of a statement as one of the file where it begins; what stands before it there is not shown."""
    before = "\n" * (line - 1) + " " * (column - 1)
    return Span(before + at.text, at.start + len(before), at.end + len(before))


@contextmanager
def reported_once() -> Iterator[None]:
    """Keep PySpark from logging the errors of the block, stack and all: whoever catches them tells them."""
    logs = _logs()
    for log in logs:
        log.addFilter(_refuse)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(_refuse)


def _logs() -> list[logging.Logger]:
    """Made by PySpark's own hand, as it gives them arguments that others refuse."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before 4.0 nothing was logged
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


def _refuse(_: logging.LogRecord) -> bool:
    return False


def _is_sparks(error: BaseException) -> bool:
    return any(kind.__module__.startswith(("pyspark", "py4j")) for kind in type(error).__mro__)


def _places(error: BaseException, said: str, text: str) -> Iterator[Span]:
    """Where ``text`` has what Spark points at; Spark may have seen it in other surroundings."""
    for context in _contexts(error):
        fragment = context.fragment()
        start = context.startIndex()
        if fragment and text[start : start + len(fragment)] == fragment:
            yield Span(text, start, start + len(fragment))
        elif fragment and text.count(fragment) == 1:
            start = text.index(fragment)
            yield Span(text, start, start + len(fragment))
    marked = re.search(r"^(.*)\n([ \t-]*)(\^+)", said, re.MULTILINE)
    if marked is not None:
        line = marked[1].removeprefix("EXPLAIN ")
        column = len(marked[2]) - (len(marked[1]) - len(line))
        if line and column >= 0 and text.count(line) == 1:
            start = text.index(line) + column
            yield Span(text, start, start + len(marked[3]))


def _contexts(error: Any) -> list[Any]:
    try:
        return [each for each in error.getQueryContext() if str(each.contextType()).endswith("SQL")]
    except Exception:  # older errors have none, and those of a lost JVM cannot be asked
        return []
