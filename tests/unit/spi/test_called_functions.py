"""`${call:package.module:function}`: when a function is called, how long its value is kept, and what shows it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.errors import ConnectorError, NotAllowed, OptionError
from lookup_hints.spi import TEXT, Option, SyncLookup
from lookup_hints.spi.called_functions import MOST_KNOWN, called_function
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.spi.secrets import known_secrets, masked_text, without_secrets
from lookup_hints.spi.security_policy import Policy
from lookup_hints.tables.catalog import build_connector

OPTIONS = (Option("password", TEXT, "Secret.", secret=True, may_call=True), Option("host", TEXT, "Place."))
Register = Callable[[Callable[[], object]], str]
_numbers = count()


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("lookup_hints.spi.called_functions.time", clock)
    return clock


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    def make(function: Callable[[], object]) -> str:
        name = f"called_{next(_numbers)}"
        module = ModuleType(name)
        module.login = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
        return f"{name}:login"

    return make


def table_of(password: str, policy: Policy | None = None, **more: str) -> LookupTable:
    options = {"connector": "own", "password": password, **more}
    return LookupTable("people", pa.schema([("id", pa.int64())]), options=options, policy=policy)


def password_of(table: LookupTable) -> str:
    return str(table.read(OPTIONS)[0]["password"])


def numbered(seconds: float | None) -> Callable[[], object]:
    numbers = count(1)

    def login() -> object:
        value = f"token-{next(numbers)}"
        return value if seconds is None else (value, seconds)

    return login


def test_a_value_is_kept_as_long_as_the_function_says(register: Register, clock: Clock) -> None:
    table = table_of(f"${{call:{register(numbered(5))}}}")
    assert password_of(table) == "token-1"
    clock.now += 4.9
    assert password_of(table) == "token-1"
    assert table.keeps_called()
    clock.now += 0.1
    assert not table.keeps_called()
    assert password_of(table) == "token-2"


def test_a_value_without_seconds_is_kept_until_it_is_refused(register: Register, clock: Clock) -> None:
    table = table_of(f"${{call:{register(numbered(None))}}}")
    used = table.read(OPTIONS)[1]
    clock.now += 1e9
    assert password_of(table) == "token-1"
    assert table.forget_called(used)
    assert password_of(table) == "token-2"
    assert table.forget_called(used)
    assert password_of(table) == "token-2", "another one has replaced what was refused"


def test_a_value_for_no_time_is_used_once(register: Register) -> None:
    table = table_of(f"a${{call:{register(numbered(0))}}}b")
    assert [password_of(table), password_of(table)] == ["atoken-1b", "atoken-2b"]


def test_a_table_without_functions_has_nothing_to_forget() -> None:
    assert not table_of("plain").forget_called({"plain"})


def test_one_call_runs_at_a_time_in_a_process(register: Register) -> None:
    at_work, most = [0], [0]

    def login() -> tuple[str, int]:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(0.005)
        at_work[0] -= 1
        return "token", 0

    tables = [table_of(f"${{call:{register(login)}}}") for _ in range(4)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(password_of, tables * 4))
    assert most == [1]


def test_nothing_is_called_where_nothing_connects(register: Register) -> None:
    def never() -> str:
        raise AssertionError("called")

    class Own(SyncLookup):
        OPTIONS = OPTIONS

        def lookup(self, request: LookupRequest) -> pa.Table:
            raise AssertionError(request)

    table = table_of(f"${{call:{register(never)}}}", host="db")
    connector = Own(table)
    table.check(OPTIONS)
    table.check_allowed()
    assert connector.opened_with() == connector.opened_with()
    assert (connector.origin(), connector.place()) == ("db", "db")
    assert table.options["password"] in known_secrets(connector)
    assert table.read(OPTIONS, calling=False)[0]["password"] == table.options["password"]


def test_the_last_values_are_masked(register: Register, clock: Clock) -> None:
    name = register(numbered(1))
    table = table_of(f"${{call:{name}}}")
    for _ in range(MOST_KNOWN + 3):
        password_of(table)
        clock.now += 2
    given = [f"token-{number}" for number in range(4, MOST_KNOWN + 4)]
    assert list(called_function(name).given) == given
    assert set(given) <= table.secrets(OPTIONS)
    assert "token-" not in repr(table) + str(called_function(name))
    assert masked_text(table.options["password"], declared=True) == table.options["password"]


def test_what_is_raised_shows_no_value(register: Register, caplog: pytest.LogCaptureFixture) -> None:
    values = iter([("hunter2", 0), RuntimeError("the vault refuses hunter2")])

    def login() -> object:
        value = next(values)
        if isinstance(value, Exception):
            raise value
        return value

    class Own(SyncLookup):
        OPTIONS = OPTIONS

        def lookup(self, request: LookupRequest) -> pa.Table:
            raise AssertionError(request)

    name = register(login)
    table = table_of(f"${{call:{name}}}")
    assert password_of(table) == "hunter2"

    def asks() -> Iterator[Any]:
        yield password_of(table)

    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectorError) as raised:
        list(without_secrets(asks(), Own(table)))
    said = str(raised.value)
    assert not raised.value.permanent
    assert f"The function '{name}' raised RuntimeError: the vault refuses *** (on " in said
    assert "for the option 'password' of table people)" in said
    assert "hunter2" not in f"{said} {raised.value.__cause__} {caplog.text}"


@pytest.mark.parametrize(
    ("returned", "shape"),
    [
        (None, "a value of the type NoneType"),
        (b"hunter2", "a value of the type bytes"),
        ("", "an empty text"),
        (("hunter2",), "a tuple of str"),
        (("hunter2", "60"), "a tuple of str, str"),
        (("hunter2", True), "a tuple of str, bool"),
        (("hunter2", -1), "a tuple of str, int"),
        (("hunter2", float("nan")), "a tuple of str, float"),
        ((), "a tuple of nothing"),
    ],
)
def test_what_is_no_text_is_refused_and_not_shown(register: Register, returned: object, shape: str) -> None:
    table = table_of(f"${{call:{register(lambda: returned)}}}")
    with pytest.raises(OptionError) as refused:
        password_of(table)
    assert f"returned {shape} (on " in str(refused.value)
    assert "It returns a text, or a text and for how many seconds it may be used." in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:login", "The module 'no_such_module' cannot be imported on "),
        ("os.path:no_such", "The module 'os.path' has no function 'no_such'"),
        ("os.path:sep", "The module 'os.path' has no function 'sep'"),
    ],
)
def test_a_function_that_is_not_there_is_an_error(name: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        password_of(table_of(f"${{call:{name}}}"))
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["", "login", "module:", ":login", "a b:c", "a:b.c", "a.:b", "1a:b"])
def test_a_reference_that_names_no_function_is_refused_when_the_table_is_made(name: str) -> None:
    with pytest.raises(OptionError) as refused:
        table_of(f"${{call:{name}}}").check(OPTIONS)
    assert str(refused.value) == (
        f"table people: option 'password': '${{call:{name}}}' names no function."
        " Write ${call:package.module:function}."
    )


def test_only_options_that_are_read_for_each_connection_take_it() -> None:
    with pytest.raises(OptionError) as refused:
        table_of("plain", host="${call:m:f}").check(OPTIONS)
    assert str(refused.value) == (
        "table people: option 'host': ${call:} may not stand here. It may in 'password'."
    )
    with pytest.raises(OptionError, match="No option of this connector takes it"):
        LookupTable("t", pa.schema([]), options={"connector": "x", "x": "${call:m:f}"}).check(())


@pytest.mark.parametrize(
    ("connector", "options", "said"),
    [
        ("http", {"url": "https://h/${call:m:f}/{id}"}, "It may in 'header.<name>', 'password', 'token', 'api-key',"
         " 'oauth2-client-secret', 'tls-key-password'."),
        ("http", {"url": "https://h/{id}", "header.X": "${call:m:f}{id}"}, "a header with ${call:} names no column"),
        ("adbc", {"driver": "adbc_driver_sqlite", "username": "${call:m:f}"},
         "It may in 'uri', 'password', 'adbc.db.<key>', 'adbc.connection.<key>'."),
        ("sqlite", {"path": "${call:m:f}"}, "No option of this connector takes it."),
    ],
)  # fmt: skip
def test_connectors_say_where_it_may_stand(connector: str, options: dict[str, str], said: str) -> None:
    table = LookupTable("t", pa.schema([("id", pa.int64())]), options={"connector": connector, **options})
    with pytest.raises(OptionError) as refused:
        build_connector(table)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "is_allowed"),
    [
        (Policy(), True),
        (Policy(hosts=(("*",),)), False),
        (Policy(connectors=(("own",),)), False),
        (Policy(references=(("env", "file"),)), False),
        (Policy(references=(("call:m:other",),)), False),
        (Policy(references=(("call:m:f",),)), True),
        (Policy(references=(("call:m:*",),), connectors=(("own",),)), True),
        (Policy(references=(("call",),)), True),
        (Policy(references=(("call",), ("env",))), False),
    ],
)
def test_where_anything_is_restricted_a_function_must_be_listed(policy: Policy, is_allowed: bool) -> None:
    table = table_of("${call:m:f}", policy)
    if is_allowed:
        table.check_allowed()
        return
    with pytest.raises(NotAllowed) as refused:
        table.check_allowed()
    assert "the function 'm:f' is not allowed here." in str(refused.value) or "connector" in str(
        refused.value
    )


def test_a_function_that_is_not_allowed_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKUP_SECURITY_ALLOWED_REFERENCES", "env:A")
    with pytest.raises(NotAllowed, match="the function 'no_such_module:login' is not allowed here"):
        password_of(table_of("${call:no_such_module:login}", Policy()))
