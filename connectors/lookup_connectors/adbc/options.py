"""The options of the ``adbc`` connector, what a driver is told to connect, and what of it SQL may choose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from lookup_connectors.adbc.drivers import DUCKDB, POSTGRES, SQLITE, is_module
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.options import POOL_SIZE, check_file_exists, option_error
from lookup_connectors.shared.source_query import QUERY
from lookup_hints.errors import OptionError
from lookup_hints.spi import DURATION, TEXT, LookupTable, Option
from lookup_hints.spi.address import origin_text, resolved, split_url

OPTIONS = (
    Option(
        "driver",
        TEXT,
        "Python module of the driver (adbc_driver_duckdb, adbc_driver_postgresql, adbc_driver_sqlite,"
        " adbc_driver_snowflake ...), or the path of its library.",
        required=True,
    ),
    Option("entrypoint", TEXT, "Function that makes the driver, where the library has an unusual one."),
    Option(
        "uri",
        TEXT,
        "Where the database is, as the driver wants it: a URL or a file.",
        secret=True,
        may_call=True,
    ),
    Option("username", TEXT, "Who connects, where `uri` does not say it."),
    Option("password", TEXT, "Password of the user.", secret=True, may_call=True),
    Option("table-name", TEXT, "`table` or `schema.table`, as in SQL; the table's own name by default."),
    QUERY,
    Option("dialect", TEXT, "SQL that the database speaks, as sqlglot calls it. Default: the driver's."),
    Option("adbc.db.", TEXT, "An option of the driver's database.", secret=True, may_call=True, family="key"),
    Option(
        "adbc.connection.", TEXT, "An option of its connections.", secret=True, may_call=True, family="key"
    ),
    POOL_SIZE,
    Option("connect-timeout", DURATION, "Time to connect and look at the columns.", default=30.0),
    MAX_BYTES_IN_FLIGHT,
)

# Names that the driver manager and drivers know, and that have options of their own here.
_OWN = {"driver", "entrypoint", "path", "profile", "uri", "username", "password"}

_POSTGRES_SCHEMES = ("postgresql://", "postgres://")
# One reading only: libpq takes the first @ for the end of the password, other readers take the last one.
_PLAIN_URL = re.compile(
    r"postgres(ql)?://([^@/?#\s]*@)?(?P<hosts>[^@/?#\s]+)(/[^@/?#\s]*)?(\?(?P<query>[^@?#\s]*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:(?P<port>\d+))?")
_HARMLESS = {"application_name", "connect_timeout", "sslmode", "target_session_attrs", "channel_binding"}
# Parameters of a `file:` URI that SQLite knows; it passes over all others.
_OF_SQLITE = {"vfs", "mode", "cache", "psow", "nolock", "immutable", "modeof"}
_PORT = 5432


def check_options(table: LookupTable, given: Mapping[str, str]) -> None:
    """Refuse options that do not fit together, and what SQL may not choose; ``given`` has no references.

    Raises:
        OptionError: they do not fit.
        NotAllowed: a driver or a place is not allowed.
    """
    driver = given.get("driver", "")
    check_driver(table, driver)
    for key in given:
        name = key.removeprefix("adbc.db.")
        if key.startswith("adbc.db.") and name in _OWN:
            own = "uri" if name == "path" else name
            raise wrong(table, key, f"write it as the option {own!r}")
        if key.startswith("adbc.") and table.is_restricted:
            raise wrong(table, key, "a driver may load code or files by it, and these are restricted")
    uri = given.get("uri")
    if driver == POSTGRES:
        _check_postgres(table, uri)
    elif driver in (SQLITE, DUCKDB):
        _check_file(table, uri, needed=driver == SQLITE)
    elif table.restricts_hosts or table.restricts_files:
        raise wrong(table, "driver", "where it connects to is not known, and hosts or files are restricted")


def check_driver(table: LookupTable, driver: str) -> None:
    """Refuse a driver that is not allowed; nothing of it is loaded."""
    table.check_code(f"adbc:{driver}", option="driver")
    if not is_module(driver) and not driver.startswith("/"):
        raise wrong(table, "driver", "write a Python module, as in adbc_driver_sqlite, or a full path")


def _check_postgres(table: LookupTable, uri: str | None) -> None:
    if uri is None or not uri.startswith(_POSTGRES_SCHEMES):
        raise wrong(table, "uri", "write postgresql://user@host:5432/database")
    if not (table.restricts_hosts or table.restricts_files):
        return
    plain = _PLAIN_URL.fullmatch(uri)
    if plain is None:
        raise wrong(table, "uri", "write it without @, # and ? in names, as hosts or files are restricted")
    unknown = {name for name, _ in parse_qsl(plain["query"] or "", keep_blank_values=True)} - _HARMLESS
    if unknown:
        raise wrong(table, "uri", f"{min(unknown)!r} is not allowed in it, as hosts or files are restricted")
    for text in plain["hosts"].split(","):
        host = _HOST.fullmatch(text)
        if host is None:
            raise wrong(table, "uri", "where hosts or files are restricted, it names plain hosts")
        table.check_host(host["host"].strip("[]"), int(host["port"] or _PORT), option="uri")


def _check_file(table: LookupTable, uri: str | None, *, needed: bool) -> None:
    if uri is None:
        if needed:
            raise wrong(table, "uri", "write the path of the database file")
        return
    if table.restricts_hosts and _is_remote_path(uri):
        raise wrong(table, "uri", "write the path of a file, as hosts are restricted")
    table.check_file(uri, option="uri")
    if uri.startswith("file:"):
        unknown = {name for name, _ in parse_qsl(uri.partition("?")[2], keep_blank_values=True)} - _OF_SQLITE
        if unknown or "#" in uri:
            raise wrong(table, "uri", f"{min(unknown, default='#')!r} in it means nothing to SQLite")


def wrong(table: LookupTable, option: str, what: str) -> OptionError:
    return option_error(table, f"option {option!r}: {what}")


# --- what the driver is told ------------------------------------------------------------------------


def database_options(table: LookupTable, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of the ADBC database that ``options``, which are checked, describe.

    Raises:
        ConnectorError: there is no such file.
    """
    told: dict[str, str] = dict(options["adbc.db."])
    given = {key: options[key] for key in ("uri", "username", "password") if options[key] is not None}
    if options["driver"] == POSTGRES:
        return {**told, "uri": _url_with_user(**given)}
    if options["driver"] == SQLITE:
        return {**told, "uri": _read_only_uri(table, given["uri"])}
    if options["driver"] == DUCKDB:
        return _duckdb_options(table, given.get("uri"), told)
    return {**told, **given}


def _url_with_user(uri: str, username: str | None = None, password: str | None = None) -> str:
    """The URL with what else is known of it, in its query.

    Texts are UTF-8, as the driver takes them: without a word libpq talks in the encoding of the server.
    """
    more = {
        "user": username,
        "password": password,
        "fallback_application_name": "lookup_hints",
        "client_encoding": "UTF8",
    }
    query = urlencode({name: value for name, value in more.items() if value is not None}, quote_via=quote)
    return f"{uri}{'&' if '?' in uri else '?'}{query}"


def _read_only_uri(table: LookupTable, path: str) -> str:
    """SQLite makes a file that is not there, unless it is told not to."""
    if path.startswith("file:"):
        return path if re.search("[?&]mode=", path) else f"{path}{'&' if '?' in path else '?'}mode=ro"
    check_file_exists(table, path)
    return f"{Path(path).absolute().as_uri()}?mode=ro"


def _duckdb_options(table: LookupTable, path: str | None, told: dict[str, str]) -> dict[str, str]:
    """Files are opened for reading, so that many workers can; SQL that is restricted reads no others."""
    if table.is_restricted:
        told = {**told, "enable_external_access": "false"}
    if path is None or path == ":memory:":
        return told
    if _is_remote_path(path):
        return {**told, "path": path}
    check_file_exists(table, path)
    return {"access_mode": "READ_ONLY", **told, "path": path}


def _is_remote_path(path: str) -> bool:
    return "://" in path or path.startswith("md:")


# --- what may be told of it -------------------------------------------------------------------------


def place_of(table: LookupTable) -> str:
    """The file, or the hosts; empty where these cannot be told."""
    with suppress(OptionError, ValueError):
        uri = resolved(table, "uri")
        if table.options.get("driver") in (SQLITE, DUCKDB):
            return uri
        return split_url(uri).netloc.rpartition("@")[2]
    return ""


def file_of(table: LookupTable) -> str:
    """The database file; empty where there is none."""
    with suppress(OptionError, ValueError):
        uri = resolved(table, "uri")
        if table.options.get("driver") in (SQLITE, DUCKDB):
            return "" if _is_remote_path(uri) or uri.startswith(("file:", ":")) else uri
    return ""


def origin_of(table: LookupTable) -> str:
    """The hosts and the user; empty for files, and where they cannot be told."""
    with suppress(OptionError, ValueError):
        if table.options.get("driver") in (SQLITE, DUCKDB):
            return ""
        parts = split_url(resolved(table, "uri"))
        user = resolved(table, "username") or unquote(parts.username or "")
        return origin_text(parts.netloc.rpartition("@")[2], user)
    return ""
