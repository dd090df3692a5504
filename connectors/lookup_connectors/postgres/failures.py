"""Translate the driver's errors: what failed, and whether a retry can help."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Collection
from typing import Any

import asyncpg

from lookup_connectors.postgres.url import FILES, KNOWN, Target
from lookup_connectors.shared.postgres_server import is_permanent
from lookup_hints.errors import ConnectorError, did_you_mean

# asyncio's TimeoutError is a class of its own before Python 3.11.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncio.TimeoutError,
    OSError,
)
SEARCH_PATH = "search_path"
NAME_SCHEMA = "Write 'table-name' = 'schema.table' in its place."
_TIPS = {
    "26000": "Behind a pooler in transaction mode set 'statement-cache-size' = '0'.",
    "28": "Check user and password.",
    "42501": "Grant the role SELECT on the table, and USAGE on its schema.",
    "42602": "Write names as in SQL: special characters need double quotes.",
    "42P05": "Behind a pooler in transaction mode set 'statement-cache-size' = '0'.",
    "53300": "Lower 'pool-size' (it counts per worker process), or put a pooler in front.",
    "54": "Lower 'batch-size'.",
}
# The doctor's name of the failed check, by the first characters of the SQLSTATE.
_CHECKS = {
    "28": "login",
    "3D": "database",
    "42501": "rights",
    "42P01": "table",
    "3F": "table",
    "42703": "columns",
    "53300": "connections",
}


class PostgresFailure(ConnectorError):
    """A failure; ``check`` is the doctor's name of the failed check, if known."""

    check = ""


class BeyondServer(ConnectorError):
    """An answer is larger than PostgreSQL can make one, which is a gigabyte."""


class SettingRefused(ConnectorError):
    """A pooler, or a server that does not know it, lets no session begin with one of our settings."""

    def __init__(self, text: str, setting: str) -> None:
        super().__init__(text)
        self.setting = setting
        self.is_unknown = "unrecognized configuration parameter" in text


class PostgresFailures:
    """Translates the driver's errors."""

    def __init__(
        self,
        table: str,
        options: dict[str, Any],
        target: Target,
        settings: Collection[str],
        mask: Callable[[str], str],
    ) -> None:
        self._table, self._options, self._target, self._mask = table, options, target, mask
        self._settings = settings

    def explained(self, error: Exception, *, connecting: bool = False) -> ConnectorError:
        """The error to raise: what failed, and whether a retry can help."""
        # The driver says by a class of the server's errors that a connection broke, and why by its cause.
        is_cut = isinstance(error, asyncpg.ConnectionDoesNotExistError)
        if isinstance(error, asyncpg.PostgresError) and not is_cut:
            return self._from_server(error, connecting)
        if isinstance(error, asyncio.TimeoutError) and connecting:
            limit = self._options["connect-timeout"]
            return self._make_error(f"PostgreSQL took no connection within {limit:g} s ('connect-timeout')")
        if isinstance(error, ssl.SSLCertVerificationError):
            tip = "Check 'sslrootcert' and the host's name."
            if self._target.binds_channel:
                tip += " For 'channel_binding' = require it is checked as by sslmode=verify-full."
            what = f"the server's certificate is not trusted: {error.verify_message}"
            return self._make_error(what, tip, permanent=True, check="tls")
        if isinstance(error, FileNotFoundError | PermissionError):
            files = [text for key, text in self._target.driver.items() if key in FILES]
            tip = f"One of: {', '.join(files)}." if files else ""
            return self._make_error(
                f"a file cannot be read: {error.strerror}", tip, permanent=True, check="tls"
            )
        if isinstance(error, asyncpg.ClientConfigurationError):
            tip = (
                "Give the file as 'sslrootcert', or 'sslrootcert' = 'system'."
                if "root cert" in str(error)
                else ""
            )
            said = str(error).partition("\n")[0]
            return self._make_error(f"the connection options cannot be used: {said}", tip, permanent=True)
        if isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError):
            # The text may be a piece of the URL, and with it of the password.
            tip = "Special characters in a user or password are percent-encoded."
            return self._make_error("the connection URL cannot be read", tip, permanent=True)
        if "rejected SSL upgrade" in str(error):
            what = "the server has no TLS, and 'sslmode' asks for it"
            return self._make_error(what, permanent=True, check="tls")
        cause = (is_cut and error.__cause__) or error
        return self._make_error(f"the connection to PostgreSQL failed: {cause or type(cause).__name__}")

    def _from_server(self, error: asyncpg.PostgresError, connecting: bool) -> ConnectorError:
        state = error.sqlstate or ""
        # The driver's own hints are about its own parameters, and long.
        said = str(error).partition("\nHINT:")[0]
        text = f"PostgreSQL says: {said} (SQLSTATE {state})"
        if state == "54000" or "invalid memory alloc request size" in said:
            return BeyondServer(self._mask(text), permanent=True)
        setting = next((name for name in self._settings if connecting and name in str(error)), None)
        if setting is not None:
            return SettingRefused(text, setting)
        tip = _TIPS.get(state) or _TIPS.get(state[:2], "")
        unknown = re.search(r'parameter:? "?([\w.]+)', said) if connecting else None
        if unknown is not None and unknown[1] == SEARCH_PATH:
            tip = NAME_SCHEMA
        elif unknown is not None and unknown[1] in self._target.session:
            near = did_you_mean(unknown[1], KNOWN)
            tip = f"It is a parameter of 'url', and none of libpq. {near}"
        check = next((name for begin, name in _CHECKS.items() if state.startswith(begin)), "")
        return self._make_error(text, tip, permanent=is_permanent(state), check=check)

    def permanent(self, what: str, tip: str) -> ConnectorError:
        """The failure that it is to find ``what``."""
        return self._make_error(what, tip, permanent=True)

    def _make_error(
        self, what: str, tip: str = "", *, permanent: bool = False, check: str = ""
    ) -> ConnectorError:
        message = f"table {self._table}: {what}. {tip}".replace("..", ".").rstrip()
        error = PostgresFailure(self._mask(message), permanent=permanent)
        error.check = check
        return error
