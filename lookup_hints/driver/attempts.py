"""The attempts at a statement, in their order: ask its tables by key, read them whole, run it as a stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from lookup_hints.errors import InternalError, QueryError, UnsupportedLookup
from lookup_hints.spi.secrets import masked_text

Answer = TypeVar("Answer")

_log = logging.getLogger("lookup_hints")


class NotTaken(UnsupportedLookup):
    """Spark accepts the user's text, but not the rewritten one; its tables may be read whole instead."""


class PlannerFailures:
    """How many statements of a session the planner failed at, though Spark has run them."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: InternalError, line: int) -> None:
        """Count one, and log it: that it runs all the same must not hide a defect."""
        self.count += 1
        shown = masked_text(str(error))
        _log.warning("Statement at line %d: its lookup tables are read whole, because %s", line, shown)


# Spark has analysed the user's own text over stubs, so if it refuses ours, ours is at fault: the tables are
# read instead. (docs/decisions/0173)
def first_that_works(
    ask: Callable[[], Answer],
    read: Callable[[str], Answer | None],
    failures: PlannerFailures,
    *,
    line: int = 1,
    stream: Callable[[], Answer | None] = lambda: None,
) -> Answer:
    """The result of the first attempt at a statement that succeeds. The attempts, in order:

    1. ``ask``: look up its tables by key, as planned.
    2. ``read``: read them whole, because Spark rejects the rewritten text, or because the planner failed; it
       gets the reason.
    3. ``stream``: run it as a stream, because Spark refuses it and only a stream can run it.
    4. Refuse it with the error of the first attempt, as later errors are about rewritten texts.

    An attempt returns None if it does not apply to this statement.

    Args:
        failures: counts failures of the planner that reading whole made up for.
        line: the first line of the statement in its file.
    """
    try:
        return ask()
    except (NotTaken, InternalError) as error:
        reason = f"asking failed ({error})" if isinstance(error, InternalError) else _NOT_TAKEN
        try:
            answer = read(reason)
        except (QueryError, InternalError):
            answer = None
        if answer is None:
            raise error from None
        if isinstance(error, InternalError):
            failures.note(error, line)
        return answer
    except Exception:
        answer = stream()
        if answer is None:
            raise
        return answer


# As a sentence goes on behind "because".
_NOT_TAKEN = "Spark does not take the text that asking it becomes"
