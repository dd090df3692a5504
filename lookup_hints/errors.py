"""The errors of the library, sorted by who can act on them.

* ``QueryError`` and its kinds: the author of the query or of the DDL. They show the place in the text.
* ``ConnectorError`` and its kinds: whoever runs the external system. Connectors raise them.
* ``InternalError``: us.

Every error keeps what it says in ``args``, so it survives the trip from a Spark worker.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial


class LookupHintsError(Exception):
    """Base of every error that this library raises on purpose."""


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def naming_file(file: str | os.PathLike[str]) -> Iterator[None]:
    """A block whose errors of a disk name ``file``; the system names no file that is open already."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_ERRORS:
            error.filename = os.fspath(file)
        raise


@dataclass(frozen=True)
class Span:
    """A stretch of the user's text: ``text[start:end]``."""

    text: str
    start: int
    end: int

    @property
    def line(self) -> int:
        """Line of the first character, from 1."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """Column of the first character, from 1."""
        return self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"

    def in_file(self, line: int, column: int) -> Span:
        """The same place in the file where the text begins there; what stands before it is left blank."""
        before = "\n" * (line - 1) + " " * (column - 1)
        return Span(before + self.text, self.start + len(before), self.end + len(before))

    def underlined(self) -> str:
        """The line of the text that holds the span, with the span underlined.

        A span of several lines is underlined to the end of its first line.
        """
        line_start = self.text.rfind("\n", 0, self.start) + 1
        line_end = self.text.find("\n", line_start)
        line = self.text[line_start:] if line_end < 0 else self.text[line_start:line_end]
        before = line[: self.column - 1]
        width = max(1, min(self.end, line_start + len(line)) - self.start)
        # Tabs are kept in the indent, so that the marks stand below the text in any terminal.
        indent = "".join("\t" if character == "\t" else " " for character in before)
        return f"{line}\n{indent}{'^' * width}"


@dataclass(frozen=True)
class Problem:
    """One mistake: what is wrong, where, and what to try."""

    message: str
    at: Span | None = None
    tip: str = ""

    def __str__(self) -> str:
        sentence = f"{self.message} {self.tip}".rstrip()
        return sentence if self.at is None else f"{self.at}: {sentence}\n{self.at.underlined()}"


class QueryError(LookupHintsError):
    """The text of a statement asks for something that cannot be done; lists every problem found."""

    def __init__(self, problems: Sequence[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


class HintError(QueryError):
    """A LOOKUP hint is malformed, has a bad option or names no lookup join of its query block."""


class DdlError(QueryError):
    """A statement that creates, drops or describes a lookup table is wrong."""


class OptionError(QueryError):
    """An option is unknown, missing or has a value that it cannot have."""


class NotAllowed(OptionError):
    """A table needs something that the security policy forbids; names the switch (``lookup.security.*``)."""


class UnsupportedLookup(QueryError):
    """A join over a lookup table has a shape that is not supported; names the join and the reason."""


class ConnectorError(LookupHintsError):
    """A lookup in an external system failed. Raised by connectors; `retry-predicate=exception` covers it.

    Args:
        message: what failed and what to try; secrets in it are masked by the runtime.
        permanent: whether a retry cannot help (a missing table, a refused password); then there is none.
        retry_after: seconds that the source asked us to wait, or None.
    """

    def __init__(self, message: str, *, permanent: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message, permanent, retry_after)
        self.message, self.permanent, self.retry_after = message, permanent, retry_after

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        rebuild = partial(type(self), permanent=self.permanent, retry_after=self.retry_after)
        return rebuild, (self.message,)


class AnswerTooLarge(ConnectorError):
    """The answer to a request is too large to take at once: its keys are asked again in smaller requests.

    Raised by connectors. It counts neither as a failure nor as an attempt. A request of one key must be
    answered whatever its size.

    Args:
        message: what was too large.
        keys: the number of keys to ask at once instead, at least 1.
    """

    def __init__(self, message: str, *, keys: int) -> None:
        super().__init__(message)
        self.keys = keys


class LookupTimeout(ConnectorError):
    """A key had no final outcome within `timeout` seconds of its first request."""


class NoTurn(ConnectorError):
    """The limits of the source gave a request no permit, so it was not sent; its keys are asked again."""


class SourceDown(ConnectorError):
    """A request was not sent: its source is down, and `timeout` or `on-open` allows no waiting. Final."""


class TooManyRequests(LookupHintsError):
    """A statement needs more requests than `lookup.max-requests` allows. `on-error` does not apply to it."""


class AnswerError(ConnectorError):
    """A connector's answer breaks its contract: a column is missing or has another type."""


class InternalError(LookupHintsError):
    """Something that cannot happen did: a defect of this library, please report it."""


def nearest(name: str, known: Sequence[str]) -> str:
    """A sentence that names the nearest of ``known``, or lists them; for the tip of an unknown name.

    >>> nearest("capasity", ["capacity", "timeout"])
    "Did you mean 'capacity'?"
    """
    return did_you_mean(name, known) or (f"Known: {', '.join(known)}." if known else "")


def counted(number: int, noun: str) -> str:
    """A number of things, in words that agree with it.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A sentence that names the nearest of ``known``, or nothing where none is near.

    >>> did_you_mean("capasity", ["capacity", "timeout"])
    "Did you mean 'capacity'?"
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), by_lower, n=1)
    return f"Did you mean {by_lower[close[0]]!r}?" if close else ""


# Error text starts a line, or follows one of Spark's prefixes ("PythonException: " is that of Spark 3.5).
_BEGIN = r"(?:^|thrown from the Python worker: |PythonException: )"
_OWN_ERROR = re.compile(rf"{_BEGIN}lookup_hints\.errors\.(\w+: .*)$", re.MULTILINE)
_PYTHON_ERROR = re.compile(
    rf"{_BEGIN}((?:\w+\.)*\w*(?:Error|Exception|Timeout|Interrupt)\b: .*)$", re.MULTILINE
)


def cause_of(error: BaseException) -> str:
    """One line that says what went wrong: the lookup's own error, if Spark's message contains one."""
    # PySpark closes what it could not open, and so hides why it could not.
    if isinstance(error, UnboundLocalError) and error.__context__ is not None:
        return cause_of(error.__context__)
    text = str(error).strip() or type(error).__name__
    found = _OWN_ERROR.findall(text) or _PYTHON_ERROR.findall(text)
    line = found[-1] if found else text.splitlines()[0]
    return str(line)[:500]
