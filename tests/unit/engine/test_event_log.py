"""Lines for the log: each kind once in a task, without secrets and, unless it is wished, without keys."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine.event_log import without_values
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import Events, LookupMetrics, TaskRecord, TaskRun
from lookup_hints.spi import LookupRequest, LookupTable, SyncLookup, reporting
from lookup_hints.testing import FakeConnector, looked_up
from tests.unit.engine.support import ON_ERROR, SCHEMA, Asked, asks, keys, names_of, scheduler, spec

LOGGER = "lookup_hints.events"


class Crm(SyncLookup):
    """At a place, with a password; its errors say both, and the keys."""

    def __init__(self, **options: str) -> None:
        given = {"connector": "crm", "url": "crm://me:hunter2@db.example:77/x", **options}
        super().__init__(LookupTable("people", SCHEMA, options=given))

    def secrets(self) -> set[str]:
        return {"hunter2"}

    def lookup(self, request: LookupRequest) -> pa.Table:
        first = request.keys.column(0)[0].as_py()
        raise ConnectorError(f"no answer for id {first} from me:hunter2@db.example")


def failing(**settings: Any) -> RequestScheduler:
    lookup = replace(spec(Crm(), **settings), name=LookupName("people", "p", "crm", 12))
    return RequestScheduler(lookup, Random(7), secrets={"hunter3"})


def fail(lookup: RequestScheduler, *texts: str) -> None:
    for ask, text in zip(asks(lookup), texts, strict=True):
        lookup.failed(ask, ConnectorError(text), 0.0)


def test_the_first_failure_of_a_task_is_logged_without_secrets_and_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lookup = failing(on_error="null", batch_size=3)
    lookup.add(keys(71, 72, 4711, 5))
    fail(lookup, "no 71 or 4711 for hunter2, hunter3", "again")
    text = (
        "Lookup of people AS p, line 12 (crm at db.example:77): the first failure in this task,"
        " of 3 keys: ConnectorError: no *** or *** for ***, ***"
    )
    assert lookup.metrics.events == Events((("failure", text),))
    assert [(each.name, each.levelno, each.getMessage()) for each in caplog.records] == [
        (LOGGER, logging.WARNING, text)
    ]


def test_keys_are_logged_where_that_is_wished() -> None:
    lookup = failing(on_error="null", log_keys=True)
    lookup.add(keys(71, 72, 73, 74))
    fail(lookup, "no 71 for hunter2")
    [(_, text)] = lookup.metrics.events.told
    assert "of 4 keys (id = 71; id = 72; id = 73; ...): ConnectorError: no 71 for ***" in text


def test_the_first_refusal_of_a_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Busy(Asked):
        def lookup(self, request: LookupRequest) -> pa.Table:
            reporting().throttled()
            return names_of()(request)

    found = looked_up(Busy(names_of()), [(1,), (2,)], batch_size=1, asynchronous=False)
    text = "Lookup of people (asked): the source refuses requests for a while; 1 key under way"
    assert found.metrics.events == Events((("throttled", text),))
    assert found.metrics.throttled == 2
    assert [each.getMessage() for each in caplog.records] == [text]


class Countries(SyncLookup):
    """Knows countries by their codes in capitals, whatever is asked."""

    def __init__(self, *answered: str) -> None:
        schema = pa.schema([("code", pa.string()), ("name", pa.string())])
        super().__init__(LookupTable("countries", schema, options={"connector": "geo"}))
        self._answered = answered

    def lookup(self, request: LookupRequest) -> pa.Table:
        return pa.table({"code": self._answered, "name": ["?"] * len(self._answered)}, request.schema)


@pytest.mark.parametrize(
    ("asked", "answered", "told"),
    [
        (("de", "FR"), ("DE", "FR"), True),
        (("007", "FR"), ("7", "FR"), True),
        (("DE ", "FR"), ("DE", "FR"), True),
        (("Zoe\u0308", "FR"), ("Zo\u00eb", "FR"), True),
        (("de", "FR"), ("IT", "FR"), False),
    ],
)
def test_rows_of_keys_that_were_not_asked_are_counted_and_logged(
    asked: tuple[str, str], answered: tuple[str, str], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = looked_up(Countries(*answered), [(code,) for code in asked])
    counts = found.metrics
    assert (counts.hits, counts.misses, counts.unasked_rows) == (1, 1, 1)
    [text] = [each.getMessage() for each in caplog.records]
    assert counts.events == Events((("unasked", text),))
    assert text.startswith(
        "Lookup of countries (geo): the first rows in this task of keys that were not asked are dropped: of 1 key"
    )
    assert ("write the key as the source does, as in ON upper(o.k) = c.k" in text) == told
    assert not any(code in text for code in answered)


def test_keys_that_were_not_asked_are_logged_once_and_named_where_that_is_wished() -> None:
    counts = looked_up(Countries("DE"), [("de",), ("fr",)], batch_size=1, log_keys=True).metrics
    assert counts.unasked_rows == 2
    [(_, text)] = counts.events.told
    assert "are dropped: of 1 key (code = 'DE')." in text


def test_a_stopped_task_logs_its_progress(caplog: pytest.LogCaptureFixture) -> None:
    lookup = scheduler()
    lookup.add(keys(*range(1500)))
    with caplog.at_level(logging.INFO, LOGGER):
        lookup.stopped()
    [(kind, text)] = lookup.metrics.events.told
    assert (kind, text) == (
        "stopped",
        "Lookup of people (asked): stopped after 1,500 keys: Spark wants no more rows",
    )
    assert [each.levelno for each in caplog.records] == [logging.INFO]


def test_an_uneventful_task_logs_nothing() -> None:
    assert looked_up(Asked(names_of()), [(1,)]).metrics.events == Events()


def test_a_connector_that_cannot_say_its_place_is_logged_all_the_same() -> None:
    class Lost(Crm):
        def place(self) -> str:
            raise OSError("gone")

    lookup = RequestScheduler(spec(Lost(), on_error="null"), Random(7))
    lookup.add(keys(1))
    fail(lookup, "down")
    [(_, text)] = lookup.metrics.events.told
    assert text.startswith("Lookup of people (crm): the first failure")


def test_a_repeated_failure_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    source = FakeConnector({"id": pa.int64(), "name": pa.string()}, [(1, "a")], key=["id"])
    source.fail(1, error="busy", times=3)
    found = looked_up(source, [(1,)], retry=ON_ERROR)
    assert (found.metrics.errors, len(found.metrics.events.told), len(caplog.records)) == (3, 1, 1)


# --- values of keys


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("answered 404 for 4", [4], "answered 404 for ***"),
        ("no row for 'a@b.example'", ["A@b.example"], "no row for '***'"),
        ("GET /people/J%C3%BCrgen%20K", ["Jürgen K"], "GET /people/***"),
        ('invalid input: "it\'s"', ["it's"], 'invalid input: "***"'),
        ("nothing of it", ["other", None, ""], "nothing of it"),
        ("bytes abcdef", [b"abcdef"], "bytes ***"),
        ("at 12.50 EUR", [12.5], "at ***0 EUR"),
    ],
)
def test_values_of_keys_are_hidden(text: str, values: list[Any], shown: str) -> None:
    assert without_values(text, pa.table({"k": values})) == shown


# --- on their way


def test_events_add_up_without_repeats_and_the_last_ones_are_kept() -> None:
    one, other = Events((("failure", "a"),)), Events((("failure", "a"), ("stopped", "b")))
    assert one + other == other
    assert other - one == Events((("stopped", "b"),))
    many = sum((Events((("failure", str(number)),)) for number in range(30)), Events())
    assert many.told == tuple(("failure", str(number)) for number in range(10, 30))


def test_events_travel_as_plain_data() -> None:
    counts = LookupMetrics(events=Events((("failure", "a"),)))
    plain = TaskRecord("f", TaskRun(1, 2, 0, 3), counts).plain()
    assert plain["counts"] == {"events": [["failure", "a"]]}
    assert TaskRecord.of(json.loads(json.dumps(plain))).counts == counts
