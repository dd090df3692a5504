"""Errors as they may leave a worker: the same story, without the secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from traceback import extract_tb, format_exception
from typing import TypeVar

from lookup_hints.errors import (
    AnswerError,
    ConnectorError,
    InternalError,
    LookupHintsError,
    LookupTimeout,
    OptionError,
    Problem,
    QueryError,
    TooManyRequests,
)
from lookup_hints.spi import Connector
from lookup_hints.spi.option_values import hidden_keys
from lookup_hints.spi.secrets import masker

_log = logging.getLogger("lookup_hints.worker")

Mask = Callable[[str], str]
_T = TypeVar("_T")


def without_secrets(
    results: Iterator[_T],
    connector: Connector,
    secrets: Set[str] = frozenset(),
    kind: type[Exception] = LookupHintsError,
) -> Iterator[_T]:
    """``results``; an error is raised as a copy in which ``secrets`` and those of ``connector`` are masked.

    ``secrets`` are those that it was opened with, as they are known when it fails. The copy has no traceback:
    that is logged, with the causes, and masked likewise. Errors that are not of ``kind`` (those of Spark's
    input, by default) pass as they are.
    """
    try:
        yield from results
        return
    except kind as error:
        mask = masker({*secrets, *known_secrets(connector)})
        _log.error("%s", mask("".join(format_exception(error))).rstrip())
        clean = masked(error, mask)
    # Raised here and not in the handler: Python would attach the original as the context.
    raise clean


def known_secrets(connector: Connector) -> set[str]:
    """The secrets of ``connector``, as far as they can be known in the state in which it is."""
    table = connector.table
    secrets = {value.reveal() for value in table.conf.values()}
    for key, text in table.options.items():
        with suppress(OptionError):
            table.resolve(text, option=key, known=secrets)
    secrets |= {table.options[key] for key in hidden_keys(table.options, connector.OPTIONS)}
    with suppress(Exception):  # before it is opened, a connector may not know them yet
        secrets |= connector.secrets()
    return secrets


def masked(error: BaseException, mask: Mask) -> LookupHintsError:
    """A copy of ``error`` and of all its causes, of our own classes and without tracebacks."""
    clean = _masked_alone(error, mask)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    clean.__cause__ = None if cause is None else masked(cause, mask)
    return clean


def _masked_alone(error: BaseException, mask: Mask) -> LookupHintsError:
    if isinstance(error, QueryError):
        return type(error)([Problem(mask(one.message), tip=mask(one.tip)) for one in error.problems])
    if isinstance(error, (InternalError, TooManyRequests)):
        return type(error)(mask(str(error)))
    if isinstance(error, ConnectorError):
        # A kind of the connector's own may hold more than its message, and is not known on the driver.
        kind = next(kind for kind in (AnswerError, LookupTimeout, ConnectorError) if isinstance(error, kind))
        return kind(mask(error.message), permanent=error.permanent, retry_after=error.retry_after)
    return ConnectorError(mask(_told(error)))


def _told(error: BaseException) -> str:
    """Kind, text and place of a foreign error, and those of the errors of a group."""
    where = extract_tb(error.__traceback__)[-1:]
    place = "".join(f" (at {frame.filename}:{frame.lineno}, in {frame.name})" for frame in where)
    members = "".join(f"; {_told(member)}" for member in getattr(error, "exceptions", ()))
    return f"{type(error).__name__}: {error}{place}{members}"
