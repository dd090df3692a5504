"""How a table can be asked from one place, the driver or a worker; nothing is written."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import platform
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle, islice
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import types

from lookup_hints.engine.arrow import conform
from lookup_hints.errors import LookupTimeout, NotAllowed, OptionError, Problem
from lookup_hints.limits.shared_limits import folder_of_executor
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import T, call_with_timeout, needing_its_driver
from lookup_hints.spi import (
    Answer,
    AsyncLookup,
    Connector,
    Endpoint,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    Outcomes,
    ReportsHealth,
    Scan,
    SyncLookup,
)
from lookup_hints.spi.secrets import known_secrets, masker

TIMED = 10
"""The number of lookups to time."""

SLOW_SECONDS = 1.0
_MADE_UP = "a key that is made up"

CURES = {
    "columns": "Make the column list of CREATE TABLE that of the source, or leave it out.",
    "connections": "Lower 'pool-size' or the number of tasks, or raise the server's limit.",
    "database": "Check which database the table names.",
    "dns": "Check the name, and the name servers of this machine.",
    "file": "Put it where this machine sees it, under the same path.",
    "driver": "Install it for that Python on every worker, and start Spark again.",
    "login": "Check user and password, and that the server lets them in from this machine.",
    "lookup": "See what the source says, and the options of the table.",
    "options": "Check the options of the table.",
    "rights": "Grant the user the right to read the table.",
    "security": "Ask the administrator, or name another host or file.",
    "table": "Check 'table-name', and which database the URL leads to.",
    "tcp": "Check host and port, and firewalls and routes from this machine.",
    "tls": "Check the TLS options of the table, and the server's certificate.",
}
"""What to try if the error gives no better advice, by the name of the check."""


@dataclass(frozen=True)
class HealthTask:
    """A table to look at, in a form that every worker can read.

    Args:
        name: of the table.
        connector: pickled by Spark's own pickler; by itself, as its driver may be missing on a worker.
        request: what will be asked of it.
        given: values of keys that exist, as texts by column.
        install_tip: how its driver is installed.
    """

    name: str
    connector: bytes = field(repr=False)
    request: HealthRequest
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    install_tip: str = ""

    def checks(self) -> list[HealthCheck]:
        try:
            connector = pickle.loads(self.connector)  # noqa: S301 (made by the driver)
        except ModuleNotFoundError as error:
            what = f"{sys.executable} on {socket.gethostname()} has no module {error.name!r}"
            return [HealthCheck("driver", "fail", what, f"{CURES['driver'][:-1]}{self.install_tip}.")]
        return checks_of(connector, self.request, self.given)


# --- one place ------------------------------------------------------------------------------------


def looked_from_executor(tasks: Sequence[HealthTask], packages: Sequence[str]) -> Iterator[str]:
    """The findings of one worker of this executor as JSON; nothing if another one is examining already."""
    with _chosen_on_executor() as is_chosen:
        if is_chosen:
            told = {
                "host": socket.gethostname(),
                "executor": os.environ.get("SPARK_LOCAL_DIRS", str(os.getppid())),
                "versions": package_versions(packages),
                "checks": [[asdict(check) for check in task.checks()] for task in tasks],
            }
            yield json.dumps(told)


# Spark cannot send a task to each executor. So there are as many tasks as run at once, and the one that gets
# the lock of its executor's folder looks. (docs/decisions/0182)
@contextmanager
def _chosen_on_executor() -> Iterator[bool]:
    """Whether this worker is the one of its executor that looks: it locks a folder, and writes nothing."""
    folder = folder_of_executor()
    try:
        import fcntl

        file = os.open(folder.parent if folder else "", os.O_RDONLY)
    except (ImportError, OSError):
        yield True
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


def package_versions(packages: Sequence[str]) -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
        except OSError as error:  # of the disk with its files
            found[name] = f"unknown ({error.strerror})"
    return found


def checks_of(
    connector: Connector, request: HealthRequest, given: Mapping[str, str] | None = None
) -> list[HealthCheck]:
    """Check a table from here, up to the first failure that makes lookups impossible."""
    found: list[HealthCheck] = []
    try:
        for check in _check_connector(connector, request, given or {}):
            found.append(check)  # noqa: PERF402 (those before an error are kept)
    except Exception as error:
        found.append(_failed_check(connector, error))
    mask = masker(known_secrets(connector))
    return [replace(check, what=mask(check.what), cure=mask(check.cure)) for check in found]


def _check_connector(
    connector: Connector, request: HealthRequest, given: Mapping[str, str]
) -> Iterator[HealthCheck]:
    connector.table.check_allowed()
    endpoints = call_with_timeout(partial(_endpoints_of, connector), request.timeout, "endpoints")
    reached = [list(_check_endpoint(connector, each, request.timeout)) for each in endpoints]
    all_fail = all(checks[-1].verdict == "fail" for checks in reached) if reached else False
    for check in (check for checks in reached for check in checks):
        # One of several servers may be away while another one answers.
        yield replace(check, verdict="warn") if check.verdict == "fail" and not all_fail else check
    if all_fail:
        return
    is_broken = False
    for check in _checks_of_connector(connector, request):
        is_broken |= check.verdict == "fail" and check.name != "connections"
        yield check
    if not is_broken:
        for by in request.keys:
            yield _time_lookups(connector, by, request.timeout, given)


# The connector says what it knows, through its own client: a second client could see something else.
# (docs/decisions/0182)
def _checks_of_connector(connector: Connector, request: HealthRequest) -> Iterator[HealthCheck]:
    if not isinstance(connector, ReportsHealth):
        return
    checks, steps = connector.health(request), list(connector.STEPS)
    while True:
        try:
            check = call_with_timeout(lambda: next(checks, None), request.timeout + 1, "health")
        except Exception as error:
            yield _failed_check(connector, error, steps[0] if steps else "lookup")
            return
        if check is None:
            return
        if check.name in steps:
            del steps[: steps.index(check.name) + 1]
        yield check


def _failed_check(connector: Connector, error: Exception, step: str = "lookup") -> HealthCheck:
    """The failed check for ``error``: ``step``, unless the error or the connector names another."""
    if isinstance(error, TimeoutError):
        error = LookupTimeout("the source gave no answer in time")
    name = (connector.check_of(error) if isinstance(connector, ReportsHealth) else "") or step
    if isinstance(error, OptionError):
        name = "security" if isinstance(error, NotAllowed) else "options"
    elif isinstance(error, ModuleNotFoundError) or isinstance(error.__cause__, ModuleNotFoundError):
        name = "driver"
    text = " ".join((str(error) or type(error).__name__).split())
    # Errors end with what to try, where they know it.
    what, _, tip = text.removeprefix(f"table {connector.table.name}: ").partition(". ")
    return HealthCheck(name, "fail", what.removesuffix("."), tip or CURES.get(name, CURES["lookup"]))


# --- DNS, TCP, TLS --------------------------------------------------------------------------------


def _endpoints_of(connector: Connector) -> Sequence[Endpoint]:
    if isinstance(connector, ReportsHealth):
        return connector.endpoints()
    with suppress(ValueError):
        parts = [urlsplit(f"//{place}") for place in connector.place().split(",") if "/" not in place]
        return [Endpoint(part.hostname, part.port) for part in parts if part.hostname]
    return []


def _check_endpoint(connector: Connector, endpoint: Endpoint, seconds: float) -> Iterator[HealthCheck]:
    host, port = endpoint.host, endpoint.port
    connector.table.check_host(host, port, option="url" if "url" in connector.table.options else "host")
    resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = call_with_timeout(resolve, seconds, "DNS")
    except TimeoutError:
        yield _failed_network_check("dns", f"the name {host} is not resolved within {seconds:g} s")
        return
    except (OSError, UnicodeError) as error:
        yield _failed_network_check("dns", f"the name {host} is not known here: {_os_error_text(error)}")
        return
    addresses = sorted({str(address[4][0]) for address in found})
    told = "an address" if addresses == [host] else ", ".join(addresses)
    yield HealthCheck("dns", "ok", f"{host} is {told}")
    if port is None:
        return
    where, began = f"{host} port {port}", time.monotonic()
    try:
        connect = partial(socket.create_connection, (host, port), seconds)
        line = call_with_timeout(connect, seconds + 0.5, "TCP")
    except OSError as error:
        yield _failed_network_check("tcp", _no_connection(error, where, seconds))
        return
    with line:
        yield HealthCheck("tcp", "ok", f"{where} is open", seconds=(time.monotonic() - began,))
        if endpoint.tls is None:
            return
        try:
            with endpoint.tls.wrap_socket(line, server_hostname=host) as encrypted:
                yield HealthCheck("tls", "ok", f"{where} speaks {encrypted.version()}, and is trusted")
        except (OSError, ValueError) as error:
            yield _no_tls(error, where)


def _no_connection(error: Exception, where: str, seconds: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"{where} is closed: nothing listens there"
    if isinstance(error, TimeoutError):
        return f"{where} did not answer within {seconds:g} s: a firewall may drop what is sent"
    return f"{where} cannot be reached: {_os_error_text(error)}"


# Codes of OpenSSL for a certificate that is not taken.
_EXPIRED, _NOT_YET, _WRONG_NAMES = 10, 9, (62, 64)


def _no_tls(error: Exception, where: str) -> HealthCheck:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_EXPIRED, _NOT_YET):
            what, cure = "has expired, or is not valid yet", "Renew it, and check the clocks."
        elif error.verify_code in _WRONG_NAMES:
            what, cure = "is for another name", "Connect by a name that is in the certificate."
        else:
            what, cure = "is signed by an authority that is not known here", "Name its file of authorities."
        return _failed_network_check(
            "tls", f"the certificate of {where} {what} ({error.verify_message})", cure
        )
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return _failed_network_check(
            "tls", f"{where} speaks no TLS", "Use the port that does, or a URL without TLS."
        )
    cure = "Check that this port speaks TLS, and whether the server wants a certificate of its clients."
    return _failed_network_check(
        "tls", f"{where} did not finish the handshake: {_os_error_text(error)}", cure
    )


def _failed_network_check(name: str, what: str, cure: str = "") -> HealthCheck:
    return HealthCheck(name, "fail", what, cure or CURES[name])


def _os_error_text(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


# --- keys and lookups -----------------------------------------------------------------------------


# Through the ordinary lookup, so the login is the one that lookups make, with its errors and their cures.
# (docs/decisions/0182)
def _time_lookups(
    connector: Connector, by: tuple[str, ...], seconds: float, given: Mapping[str, str]
) -> HealthCheck:
    """Ten lookups, one key each, after one that opens what is needed."""
    schema, names = connector.table.schema, ", ".join(by)
    keys, told = _keys_to_ask(connector, by, seconds, given)
    if keys is None:
        return HealthCheck("lookup", "skipped", f"by {names}: no key can be made up; --key names one")
    found, took, is_open = 0, list[float](), False
    try:
        with _open_calls(connector, seconds) as (start, ask):
            start()
            is_open = True
            ask(LookupRequest(keys.slice(0, 1), schema, seconds))  # what comes first may make connections
            for place in islice(cycle(range(keys.num_rows)), TIMED):
                began = time.monotonic()
                rows = _count_rows(connector, ask(LookupRequest(keys.slice(place, 1), schema, seconds)))
                took.append(time.monotonic() - began)
                found += bool(rows)
    except Exception as error:
        check = _failed_check(connector, error)
        may_be_the_key = is_open and told == _MADE_UP and getattr(error, "permanent", False)
        if check.name != "lookup" or not may_be_the_key:
            return check
        what = f"by {names}, {_MADE_UP}: {check.what}"
        return HealthCheck("lookup", "warn", what, f"Name a key that there is: --key {by[0]}=...")
    what = f"by {names}: {TIMED} lookups of {told}, {found} found"
    if found < TIMED and told != _MADE_UP:
        cure = "Compare the types and the spelling of the key with those of the source."
        return HealthCheck("lookup", "warn", what, cure, tuple(took))
    if sorted(took)[TIMED // 2] > SLOW_SECONDS:
        return HealthCheck("lookup", "warn", what, "See why the source is slow, or use a cache.", tuple(took))
    return HealthCheck("lookup", "ok", what, seconds=tuple(took))


def _keys_to_ask(
    connector: Connector, by: tuple[str, ...], seconds: float, given: Mapping[str, str]
) -> tuple[pa.Table | None, str]:
    """Keys to ask for, and where they are from; None where none can be made up."""
    table = connector.table
    schema = pa.schema([table.schema.field(name) for name in by])
    if given.keys() >= set(by):
        try:
            columns = [pa.array([given[column.name]]).cast(column.type) for column in schema]
        except pa.ArrowException as error:
            raise OptionError(Problem(f"Invalid key {dict(given)} for {table.name}: {error}.")) from None
        return pa.table(columns, schema=schema), "the key that is given"
    sampled = call_with_timeout(partial(_sample_keys, connector, schema), seconds, "sample")
    keys = None if sampled is None else sampled.select(list(by)).drop_null()
    if keys is not None and keys.num_rows:
        return keys, "keys of the table"
    made_up = [_make_up_value(column.type) for column in schema]
    if any(value is None for value in made_up):
        return None, ""
    return pa.table([[value] for value in made_up], schema=schema), _MADE_UP


def _sample_keys(connector: Connector, schema: pa.Schema) -> pa.Table | None:
    """Some rows, where that costs little; those of a connector without a server are read, up to the first."""
    if isinstance(connector, ReportsHealth):
        sampled = connector.sample(schema.names, TIMED)
        if sampled is not None:
            return sampled
    if not isinstance(connector, Scan) or connector.origin():
        return None
    first = list(islice(connector.scan(schema), 1))
    return pa.Table.from_batches(first, schema).slice(0, TIMED)


# A made-up key still shows a refused login, a login page, and how long an answer takes. (docs/decisions/0182)
def _make_up_value(kind: pa.DataType) -> object | None:
    """A value that few sources have."""
    if types.is_string(kind):
        return "lookup-hints-doctor"
    if types.is_decimal(kind):
        return Decimal(0)
    if types.is_timestamp(kind):
        return datetime(1970, 1, 1, tzinfo=timezone.utc if kind.tz else None)
    if types.is_date(kind):
        return date(1970, 1, 1)
    if types.is_boolean(kind):
        return False
    if types.is_binary(kind):
        return b"lookup-hints-doctor"
    return 0 if types.is_integer(kind) or types.is_floating(kind) else None


@contextmanager
def _open_calls(
    connector: Connector, seconds: float
) -> Iterator[tuple[Callable[[], None], Callable[[LookupRequest], Answer]]]:
    """Calls that open ``connector`` and look up keys, each with a timeout; it is closed afterwards."""

    def in_time(call: Callable[..., T], *arguments: object) -> T:
        try:
            with needing_its_driver(connector):
                return call_with_timeout(partial(call, *arguments), seconds + 2, "doctor")
        except (TimeoutError, asyncio.TimeoutError):
            raise LookupTimeout(f"no answer within {seconds:g} s") from None

    def on_loop(coroutine: Callable[..., Coroutine[object, object, T]]) -> Callable[..., T]:
        loop = process.this_process.loop
        return lambda *arguments: loop.call(asyncio.wait_for(coroutine(*arguments), seconds + 1))

    if isinstance(connector, AsyncLookup):
        start, ask, end = on_loop(connector.aopen), on_loop(connector.alookup), on_loop(connector.aclose)
    else:
        assert isinstance(connector, SyncLookup), "the registry knows no others"
        start, ask, end = connector.open, connector.lookup, connector.close
    try:
        yield partial(in_time, start), partial(in_time, ask)
    finally:
        with suppress(Exception):  # what is found counts, not how it ends
            in_time(end)


def _count_rows(connector: Connector, answer: Answer) -> int:
    """How many rows it has, once they are known to be of the table."""
    if isinstance(answer, Outcomes) and answer.failures:
        raise next(iter(answer.failures.values()))
    rows = answer if isinstance(answer, pa.Table) else answer.rows
    who = f"connector {type(connector).__name__} of table {connector.table.name}"
    return int(conform(rows, connector.table.schema, who).num_rows)
