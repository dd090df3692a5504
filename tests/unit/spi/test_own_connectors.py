"""Mistakes of those who write a connector: each is told where it was made, in their words."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest

from lookup_hints import spi
from lookup_hints.errors import AnswerError, ConnectorError, OptionError
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Connector, RowRequest, SyncLookup, SyncRowLookup
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.tables import registry
from lookup_hints.tables.catalog import build_connector
from lookup_hints.testing import ConnectorContract, looked_up

PAGE = Path(__file__).resolve().parents[3] / "docs" / "your-own-connector.md"
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
    (Connector, "has no lookup method. Inherit"),
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
        PickledConnector.of(built(Early))


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("rows", "kind", "shown"),
    [
        (None, AnswerError, "connector Mine of table capitals answered a NoneType for code = 'DE'; expected a list"),
        ({"capital": "x"}, AnswerError, "answered a dict for code = 'DE'"),
        ("Berlin", AnswerError, "answered a str for code = 'DE'"),
        ([{"capitol": "x"}], ConnectorError, "a row has 'capitol', which is not a column. Did you mean 'capital'?"),
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


class Rate(NamedTuple):
    """What the service of the page answers."""

    rate: float
    is_busy: bool = False


class Service:
    """The service that the page speaks of."""

    def __init__(self, **rates: Rate) -> None:
        self._rates = rates

    async def rate_of(self, currency: str) -> Rate | None:
        """Its answer for a currency that it knows."""
        return self._rates.get(currency)


def run_page(service: Service) -> dict[str, Any]:
    """All Python of the page behind its first program, which tests/spark/test_pages.py runs."""
    _, *blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    code = "\n\n".join(blocks)
    names: dict[str, Any] = {"__name__": "the_page", "my_service": service}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


_page = run_page(Service(EUR=Rate(1.0), USD=Rate(1.1)))
test_the_table_and_the_connector_of_the_page = _page["test_rates"]
TestRates, TestTowns = _page["TestRates"], _page["TestTowns"]


def test_the_row_connector_of_the_page_works() -> None:
    names = run_page(Service(EUR=Rate(1.0), USD=Rate(0.0, is_busy=True)))
    rates = names["Rates"](names["rates"])
    assert looked_up(rates, [("EUR",), ("XYZ",), (None,)]).rows == [[("EUR", 1.0)], [], []]
    with pytest.raises(ConnectorError, match="the service is busy"):
        looked_up(rates, [("USD",)])


@pytest.mark.parametrize("name", ["Cities", "Towns"])
def test_the_batch_connectors_of_the_page_work(tmp_path: Path, name: str) -> None:
    file = tmp_path / "cities.db"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE cities (code TEXT, city TEXT)")
        database.executemany("INSERT INTO cities VALUES (?, ?)", [("DE", "Berlin"), ("DE", "Bonn")])
        database.commit()
    schema = pa.schema([("code", pa.string()), ("city", pa.string())])
    table = LookupTable("cities", schema, (), {"connector": "cities", "file": str(file)})
    found = looked_up(_page[name](table), [("DE",), ("XX",), (None,)])
    none = [] if name == "Cities" else [("XX", "unknown")]
    assert found.rows == [[("DE", "Berlin"), ("DE", "Bonn")], none, []]


def test_the_contract_finds_what_is_wrong(tmp_path: Path) -> None:
    class Forgetful(SyncRowLookup):
        """Finds each key once, and nothing the next time."""

        asked: ClassVar[set[str]] = set()

        def lookup_row(self, request: RowRequest) -> list[dict[str, Any]]:
            """No row for a key that was asked before."""
            code = request.key["code"]
            return [] if code in self.asked or self.asked.add(code) else [{"capital": "x"}]  # type: ignore[func-returns-value]

    class Contract(ConnectorContract):
        connector_type = Forgetful
        present = ({"code": "DE"},)
        absent = ({"code": "XX"},)

    with pytest.raises(AssertionError):
        Contract().test_the_same_question_has_the_same_answer_each_time(TABLE)
    assert Forgetful.asked == {"DE", "XX"}
    Contract.present = ({"code": "FR"},)
    Contract.absent = ({"code": "ES"},)
    with pytest.raises(AssertionError, match="keys of `absent` have no rows"):
        Contract().test_keys_that_are_there_have_rows_and_others_have_none(TABLE)


def test_a_former_name_of_an_ability_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="SupportsBackpressure"):
        former = spi.HoldsBack
    assert former is spi.SupportsBackpressure
    assert not hasattr(spi, "HoldsForward")
