"""Translate the drivers' errors: what failed, and whether a retry can help."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from adbc_driver_manager import AdbcStatusCode, dbapi

from lookup_connectors.shared.postgres_server import ending_of, is_permanent
from lookup_hints.errors import ConnectorError
from lookup_hints.spi import Ending

DRIVER_ERRORS = (dbapi.Error, OSError, pa.ArrowException)
"""OSError and Arrow's own are what the stream of an answer raises."""

_PERMANENT_CODES = {
    AdbcStatusCode.NOT_IMPLEMENTED,
    AdbcStatusCode.NOT_FOUND,
    AdbcStatusCode.ALREADY_EXISTS,
    AdbcStatusCode.INVALID_ARGUMENT,
    AdbcStatusCode.INVALID_DATA,
    AdbcStatusCode.INTEGRITY,
    AdbcStatusCode.UNAUTHENTICATED,
    AdbcStatusCode.UNAUTHORIZED,
}
# Drivers give what they have no code for as IO or INTERNAL: DuckDB all, PostgreSQL a refused password.
_PERMANENT_TEXTS = re.compile(
    r"(Catalog|Binder|Parser|Conversion|Invalid Input|Permission|Not implemented) Error:"
    r"|authentication failed|invalid percent-encoded|role .* does not exist|database .* does not exist"
    r"|Type mismatch in column|file is not a database"
)
_LOST_CODES = {AdbcStatusCode.IO, AdbcStatusCode.TIMEOUT}
_GONE = re.compile(
    r"connection to server|server closed the connection|could not (send|receive) data|SSL SYSCALL"
)
_TIPS = {
    "42501": "Grant the user SELECT on the table, and USAGE on its schema.",
    "53300": "Lower 'pool-size' (it counts per worker process), or put a pooler in front.",
}


class DriverFailure(ConnectorError):
    """A driver raised an error; ``ending`` is the state of its database by that."""

    ending: Ending = "unknown"
    is_refused_login = False


def explained(error: Exception, table: str, mask: Callable[[str], str]) -> DriverFailure:
    """The error to raise in place of ``error``. It has no cause: a driver's text may hold a password."""
    text = _first_lines(str(error))
    state = getattr(error, "sqlstate", None) or ""
    tip = _TIPS.get(state, "") or ("Check user and password." if "authentication failed" in text else "")
    failure = DriverFailure(
        mask(f"table {table}: the driver says: {text}. {tip}".replace("..", ".").rstrip()),
        permanent=_is_permanent(error, state, text),
    )
    failure.ending = _ending_of(error, state, text)
    is_known = getattr(error, "status_code", None) == AdbcStatusCode.UNAUTHENTICATED
    failure.is_refused_login = is_known or state.startswith("28") or "authentication failed" in text
    return failure


def _first_lines(text: str) -> str:
    """What was said, on one line and without the statement, which may be long."""
    told = re.split(r"\nquery: |\n\nQuery was: |\n\nLINE \d+: |\nLINE \d+: ", text)[0]
    state = re.search(r"SQLSTATE: (\w{5})", text)
    said = " ".join(told.split()).rstrip(". ")
    return f"{said} (SQLSTATE {state[1]})" if state and state[1] not in said else said


def _is_permanent(error: Exception, state: str, text: str) -> bool:
    if state:
        return is_permanent(state)
    return getattr(error, "status_code", None) in _PERMANENT_CODES or bool(_PERMANENT_TEXTS.search(text))


def _ending_of(error: Exception, state: str, text: str) -> Ending:
    told = ending_of(state)
    if told != "unknown":
        return told
    is_lost = getattr(error, "status_code", None) in _LOST_CODES and not _PERMANENT_TEXTS.search(text)
    return "lost" if is_lost or _GONE.search(text) else "unknown"
