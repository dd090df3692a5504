"""Mistakes of those who write a connector: each is told where it was made, in their words."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from lookup_hints import registry, spi
from lookup_hints.catalog import build_connector
from lookup_hints.errors import AnswerError, ConnectorError, OptionError
from lookup_hints.model import LookupTable
from lookup_hints.runtime.worker import identity_of
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Connector, SyncLookup, SyncRowLookup
from lookup_hints.testing import looked_up

PAGE = Path(__file__).parent.parent / "docs" / "your-own-connector.md"
SCHEMA = pa.schema([("code", pa.string()), ("capital", pa.string())])
TABLE = LookupTable("capitals", SCHEMA, (), {"connector": "mine"})


@pytest.fixture(autouse=True)
def _registered_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def built(kind: Any) -> Connector:
    """The connector that a table of class ``kind`` has."""
    registry.register_connector("mine", kind)
    return build_connector(TABLE)


def class_with(base: type[Connector], **members: Any) -> type[Connector]:
    """A class that someone wrote."""
    return type("Mine", (base,), members)


async def _no_rows(self: object, request: object) -> list[Any]:
    return []


def _named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def _plain(name: str) -> Any:
    return _named(name, lambda self, *_: [])


def _coroutine(name: str) -> Any:
    async def coroutine(self: object, *_: object) -> list[Any]:
        return []

    return _named(name, coroutine)


def _generator(name: str) -> Any:
    async def generator(self: object, *_: object) -> Any:
        yield {}

    return _named(name, generator)


class Alone:
    """No connector, although it has the method of one."""

    def lookup(self, request: object) -> None:
        """Nothing."""


MISSHAPEN: list[tuple[Any, str]] = [
    (class_with(AsyncRowLookup), "class Mine has no method alookup_row()."),
    (
        class_with(AsyncRowLookup, lookup_row=_coroutine("lookup_row")),
        "class Mine has no method alookup_row(). Did you mean 'lookup_row'?",
    ),
    (class_with(AsyncRowLookup, alookup_row=_plain("alookup_row")), "Mine.alookup_row must be written with"),
    (class_with(AsyncRowLookup, alookup_row=_generator("alookup_row")), "'async def', and return its answer"),
    (class_with(AsyncLookup, alookup=_plain("alookup")), "Mine.alookup must be written with 'async def'"),
    (
        class_with(AsyncRowLookup, alookup_row=_no_rows, aopen=_plain("aopen")),
        "Mine.aopen must be written with 'async def'",
    ),
    (class_with(SyncLookup, lookup=_coroutine("lookup")), "Mine.lookup may not be 'async'"),
    (
        class_with(SyncLookup, lookup=_plain("lookup"), open=_coroutine("open")),
        "Mine.open may not be 'async': an async connector has aopen()",
    ),
    (
        class_with(SyncLookup, lookup=_plain("lookup"), OPTIONS=[("url", "x")]),
        "Mine.OPTIONS must hold Options",
    ),
    (
        class_with(SyncLookup, lookup=_plain("lookup"), __init__=lambda self, table: None),
        "Mine.__init__(self, table) must call super().__init__(table)",
    ),
    (Alone, "is not a Connector class. Inherit AsyncRowLookup, SyncRowLookup, AsyncLookup or SyncLookup"),
    (Connector, "has no ability. Inherit"),
]


@pytest.mark.parametrize(("kind", "shown"), MISSHAPEN)
def test_a_class_that_cannot_work_is_refused_when_its_table_is_created(kind: Any, shown: str) -> None:
    with pytest.raises(OptionError) as raised:
        built(kind)
    assert shown in str(raised.value)


def test_a_method_may_be_decorated_or_made_by_a_decorator() -> None:
    @functools.wraps(_no_rows)
    def kept(self: object, request: object) -> Any:
        return _no_rows(self, request)

    def lost(self: object, request: object) -> Any:
        return _no_rows(self, request)

    for function in (kept, lost, functools.partial(_no_rows, None)):
        assert isinstance(built(class_with(AsyncRowLookup, alookup_row=function)), AsyncRowLookup)


def test_what_is_opened_too_early_cannot_travel() -> None:
    class Early(SyncRowLookup):
        def __init__(self, table: LookupTable) -> None:
            super().__init__(table)
            self.lock = threading.Lock()

        def lookup_row(self, request: object) -> list[Any]:
            return []

    with pytest.raises(OptionError, match=r"Early cannot be sent to the workers: .* Open what a connector"):
        identity_of(built(Early))


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("rows", "kind", "shown"),
    [
        (None, AnswerError, "connector Mine of table capitals answered a NoneType for code = 'DE'; expected a list"),
        ({"capital": "x"}, AnswerError, "answered a dict for code = 'DE'"),
        ("Berlin", AnswerError, "answered a str for code = 'DE'"),
        ([{"capitol": "x"}], ConnectorError, "a row has 'capitol', which is no column. Did you mean 'capital'?"),
        ([{"capital": 5}], ConnectorError, "column 'capital' of the row {'code': 'DE', 'capital': 5}: 5 (int)"),
        ([("DE", "x")], ConnectorError, "the row ('DE', 'x') does not fit the columns"),
    ],
)  # fmt: skip
def test_rows_that_are_none_say_what_came_and_what_is_expected(
    rows: Any, kind: type[Exception], shown: str, asynchronous: bool
) -> None:
    async def alookup_row(self: object, request: object) -> Any:
        return rows

    given = (
        class_with(AsyncRowLookup, alookup_row=alookup_row)
        if asynchronous
        else class_with(SyncRowLookup, lookup_row=lambda self, request: rows)
    )
    with pytest.raises(kind) as raised:
        looked_up(built(given), [("DE",)], asynchronous=asynchronous)
    assert shown in str(raised.value)


def test_rows_may_come_one_by_one() -> None:
    def lookup_row(self: object, request: object) -> Iterator[dict[str, str]]:
        yield {"capital": "Bonn"}
        yield {"capital": "Berlin"}

    found = looked_up(built(class_with(SyncRowLookup, lookup_row=lookup_row)), [("DE",)])
    assert found.rows == [[("DE", "Bonn"), ("DE", "Berlin")]]


# --- the page ---------------------------------------------------------------------------------------


def from_the_page(name: str, **given: Any) -> type[Connector]:
    """The class that the page on connectors of one's own shows first under ``name``."""
    text = PAGE.read_text(encoding="utf-8")
    code = next(code for code in re.findall(r"```python\n(.*?)```", text, re.S) if f"class {name}(" in code)
    everything: dict[str, Any] = {**vars(spi), **given}
    exec(code, everything)
    kind: type[Connector] = everything[name]
    return kind


def test_the_row_connector_of_the_page_works() -> None:
    class Rate(NamedTuple):
        rate: float
        is_busy: bool = False

    class Service:
        async def rate_of(self, currency: str) -> Rate | None:
            return {"EUR": Rate(1.0), "USD": Rate(0.0, is_busy=True)}.get(currency)

    kind = from_the_page("Rates", my_service=Service())
    schema = pa.schema([("currency", pa.string()), ("rate", pa.float64())])
    rates = kind(LookupTable("rates", schema, (), {"connector": "rates"}))
    assert looked_up(rates, [("EUR",), ("XYZ",), (None,)]).rows == [[("EUR", 1.0)], [], []]
    with pytest.raises(ConnectorError, match="the service is busy"):
        looked_up(rates, [("USD",)])


def test_the_batch_connector_of_the_page_works(tmp_path: Path) -> None:
    file = tmp_path / "cities.db"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE cities (code TEXT, city TEXT)")
        database.executemany("INSERT INTO cities VALUES (?, ?)", [("DE", "Berlin"), ("DE", "Bonn")])
        database.commit()
    kind = from_the_page("Cities", sqlite3=sqlite3, pa=pa)
    schema = pa.schema([("code", pa.string()), ("city", pa.string())])
    cities: Any = kind(LookupTable("cities", schema, (), {"connector": "cities", "file": str(file)}))
    found = looked_up(cities, [("DE",), ("XX",), (None,)])
    cities._database.close()  # Python 3.13 warns of a database that is left open
    assert found.rows == [[("DE", "Berlin"), ("DE", "Bonn")], [], []]
