"""Translate the driver's errors: what failed, and whether a retry can help."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable

from asyncmy import errors

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import Ending

# asyncio's TimeoutError is a class of its own before Python 3.11.
DRIVER_ERRORS = (errors.MySQLError, asyncio.TimeoutError, OSError)

# Errors for which asking again cannot help, beside those of SQLSTATEs: a host that may not connect,
# collations that do not mix, a view that is broken, a password that must be changed, TLS that is required.
_PERMANENT = {1130, 1227, 1267, 1270, 1271, 1356, 1524, 1820, 3159}
_PERMANENT_STATES = re.compile("0A|21|22|25|28|42")
# Too many connections, statements, or whatever else a user or the server is given: this may pass.
_REFUSED = {1040, 1129, 1203, 1226, 1461}
# The server goes down, or the line is lost.
_LOST = re.compile("08S01|70100")
ACCESS_DENIED = 1045
_TIPS = {
    1040: "Lower 'pool-size' (it counts per worker process), or raise max_connections.",
    1044: "Grant the user SELECT on the table.",
    ACCESS_DENIED: "Check user and password.",
    1142: "Grant the user SELECT on the table.",
    1143: "Grant the user SELECT on the columns.",
    1203: "Lower 'pool-size' (it counts per worker process).",
    1461: "Raise max_prepared_stmt_count, or lower 'pool-size'.",
    1698: "Check user and password.",
    3159: "The server takes connections by TLS alone: 'sslmode' = 'require' or stricter.",
}
# The doctor's name of the failed check.
_CHECKS = {
    **dict.fromkeys((ACCESS_DENIED, 1698), "login"),
    **dict.fromkeys((1044, 1049), "database"),
    **dict.fromkeys((1142, 1143), "rights"),
    **dict.fromkeys((1040, 1203), "connections"),
    1146: "table",
    1054: "columns",
}


class MysqlFailure(ConnectorError):
    """A failure: the doctor's name of the failed check, if known, and how the server fares."""

    check = ""
    ending: Ending = "unknown"


def is_permanent(number: int, state: str) -> bool:
    """Whether asking again cannot help, by the number and the SQLSTATE of a failure."""
    return number not in _REFUSED and (number in _PERMANENT or bool(_PERMANENT_STATES.match(state)))


class MysqlFailures:
    """Translates the driver's errors for a table; ``mask`` hides its secrets."""

    def __init__(self, table: str, seconds: float, mask: Callable[[str], str]) -> None:
        self._table, self._seconds, self._mask = table, seconds, mask

    def explained(self, error: Exception, *, connecting: bool = False) -> MysqlFailure:
        """The error to raise: what failed, and whether a retry can help."""
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            tip = "Check 'sslrootcert' and the host's name, or see 'sslmode'."
            what = f"the server's certificate is not trusted: {cause.verify_message}"
            return self._make_error(what, tip, permanent=True, check="tls")
        if "WRONG_VERSION_NUMBER" in str(cause):
            what = "the server has no TLS, and 'sslmode' asks for it"
            return self._make_error(what, permanent=True, check="tls")
        if isinstance(cause, FileNotFoundError | PermissionError | ssl.SSLError) and connecting:
            tip = "Check the files of 'sslrootcert', 'sslcert' and 'sslkey'."
            return self._make_error(
                f"TLS failed: {cause.strerror or cause}", tip, permanent=True, check="tls"
            )
        if isinstance(error, asyncio.TimeoutError):
            what = f"the server took no connection within {self._seconds:g} s ('connect-timeout')"
            return self._make_error(what, ending="lost")
        if isinstance(error, errors.MySQLError) and len(error.args) == 2:
            return self._from_server(error)
        if isinstance(error, RuntimeError):
            tip = "Connect by TLS, or give the user another way to log in."
            return self._make_error(f"the driver cannot log in: {error}", tip, permanent=True, check="login")
        return self._make_error(
            f"the connection to the server failed: {error or type(error).__name__}", ending="lost"
        )

    def _from_server(self, error: errors.MySQLError) -> MysqlFailure:
        number, said = error.args
        state = str(error.sqlstate or "")
        if not state:  # it is the driver's own
            return self._make_error(f"the connection to the server failed: {said}", ending="lost")
        ending: Ending = "lost" if _LOST.match(state) else "unknown"
        if number in _REFUSED:
            ending = "refused"
        text = f"the server says: {said} (error {number}, SQLSTATE {state})"
        return self._make_error(
            text,
            _TIPS.get(number, ""),
            permanent=is_permanent(number, state),
            check=_CHECKS.get(number, ""),
            ending=ending,
        )

    def _make_error(
        self,
        what: str,
        tip: str = "",
        *,
        permanent: bool = False,
        check: str = "",
        ending: Ending = "unknown",
    ) -> MysqlFailure:
        message = f"table {self._table}: {what}. {tip}".replace("..", ".").rstrip()
        failure = MysqlFailure(self._mask(message), permanent=permanent)
        failure.check, failure.ending = check, ending
        return failure
