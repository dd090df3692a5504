"""The http connector against a real server: requests, responses, outcomes, and everything that goes wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle
import re
import socket
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from lookup_connectors.http import HttpConnector
from lookup_connectors.http.request import TemplateKeys, parse_json_body

from lookup_hints.errors import ConnectorError, OptionError
from lookup_hints.limits.circuit_breaker import Pause
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupTable, Miss, Outcome, RowRequest
from lookup_hints.spi.secrets import known_secrets
from tests.servers.certificates import Certificates
from tests.servers.connectors import http_asking
from tests.servers.connectors.http_asking import SCHEMA, ask, connector_of, during, failure, rows_of, table_of
from tests.servers.http_server import ORDERS, Api, running_api
from tests.servers.short_logins import function_of
from tests.unit.connectors.asking import awaited_failure, request_for

ONE = {"id": 1, "name": "n1"}
TWO = {"id": 2, "name": "n2"}
OK = {"status": 200, "body": ONE}


@pytest.fixture(autouse=True, params=http_asking.WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for keys that have a task each, and for keys that are started together."""
    http_asking.use_way(request.param, monkeypatch)


# --- requests -------------------------------------------------------------------------------------


def test_one_key_per_request(api: Api) -> None:
    assert ask(table_of(api, "/people/{id}"), {"id": [1, 5000, 2]}) == [ONE, TWO]
    assert api.targets() == {"/people/1": 1, "/people/5000": 1, "/people/2": 1}


def test_many_keys_per_request(api: Api) -> None:
    table = table_of(api, "/people?ids={id}", rows="data", keys_per_request="100")
    assert ask(table, {"id": [1, 5000, 2]}) == [ONE, TWO]
    assert api.targets() == {"/people?ids=1,5000,2": 1}


def test_a_parameter_may_be_repeated_for_each_key(api: Api) -> None:
    table = table_of(api, "/people?ids={id}", rows="data", keys_per_request="9", list_style="repeat")
    assert ask(table, {"id": [1, 2]}) == [ONE, TWO]
    assert api.targets() == {"/people?ids=1&ids=2": 1}


def test_keys_may_be_listed_in_the_path(api: Api) -> None:
    ask(table_of(api, "/people/{id}", keys_per_request="9"), {"id": [1, 2]})
    assert api.targets() == {"/people/1,2": 1}


def test_keys_may_be_listed_in_a_json_body(api: Api) -> None:
    table = table_of(
        api, "/people", method="POST", body='{"ids": "{id}", "lang": "de"}', rows="data", keys_per_request="9"
    )
    assert ask(table, {"id": [1, 2]}) == [ONE, TWO]
    [asked] = api.asked()
    assert json.loads(asked["body"]) == {"ids": [1, 2], "lang": "de"}
    assert asked["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ('["{id}"]', "[1,2]"),
        ('{"ids": ["{part}"], "lang": ["de"]}', '{"ids":["a","b"],"lang":["de"]}'),
        ('[{"id": "{id}", "n": 1, "z": "{zip}"}]', '[{"id":1,"n":1},{"id":2,"n":1}]'),
        ('[{"k": {"p": "{part}"}, "kind": "x"}]', '[{"k":{"p":"a"},"kind":"x"},{"k":{"p":"b"},"kind":"x"}]'),
        ('[["{id}", "{part}", "{zip}"]]', '[[1,"a"],[2,"b"]]'),
        ('[["x", ["{id}"]]]', '[["x",[1]],["x",[2]]]'),
        ('["{id}/{part}"]', '["1/a","2/b"]'),
        ('["{id}/{zip}"]', "[]"),
        ('["{day}"]', '["2024-01-02","2024-01-03"]'),
        ('["{rate}"]', '[0.5,"nan"]'),
    ],
)
def test_an_array_of_one_element_that_names_columns_has_one_for_each_key(body: str, sent: str) -> None:
    keys: dict[str, list[Any]] = {
        "id": [1, 2],
        "part": ["a", "b"],
        "day": [date(2024, 1, 2), date(2024, 1, 3)],
        "rate": [0.5, float("nan")],
    }
    template = parse_json_body(body, [*keys, "zip"])
    assert template.text(TemplateKeys(keys, frozenset([*keys, "zip"]))) == sent


def test_keys_that_differ_in_more_than_the_list_go_in_requests_of_their_own(api: Api) -> None:
    schema = pa.schema([*SCHEMA, ("lang", pa.string())])
    table = table_of(
        api, "/people?ids={id}", schema, header__Accept_Language="{lang}", rows="data", keys_per_request="9"
    )
    rows = ask(table, {"id": [1, 2, 2], "lang": ["de", "fr", "de"]})
    assert rows == [{**ONE, "lang": "de"}, {**TWO, "lang": "de"}, {**TWO, "lang": "fr"}]
    asked = {(each["target"], each["headers"]["accept-language"]) for each in api.asked()}
    assert asked == {("/people?ids=1,2", "de"), ("/people?ids=2", "fr")}


AWKWARD = ["a/b", "a b", "a?b#c", "ä%2F", "q\"uo'te", "{id}", "../x", "a&b=c", "+", "x\ny", "日本"]


@pytest.mark.parametrize("key", AWKWARD)
def test_a_key_is_encoded_for_its_place(api: Api, key: str) -> None:
    schema = pa.schema([("key", pa.string()), ("target", pa.string()), ("body", pa.string())])
    table = table_of(
        api, "/echo/{key}?q={key}&fixed=a%20b", schema, method="POST", body='{"in": "<{key}>", "as": "{key}"}'
    )
    [row] = ask(table, {"key": [key]})
    path, _, query = row["target"].partition("?")
    assert unquote(path.removeprefix("/echo/")) == key
    assert "/" not in path.removeprefix("/echo/")
    q, fixed = query.split("&")
    assert unquote(q.removeprefix("q=")) == key
    assert fixed == "fixed=a%20b"
    [asked] = api.asked()
    sent = json.loads(asked["body"].encode("latin-1"))
    assert sent == {"in": f"<{key}>", "as": key}


@pytest.mark.parametrize("key", ["", ".", ".."])
def test_a_key_that_would_lead_elsewhere_is_a_miss_and_is_not_asked(api: Api, key: str) -> None:
    schema = pa.schema([("key", pa.string()), ("target", pa.string())])
    assert ask(table_of(api, "/echo/{key}/x", schema), {"key": [key]}) == []
    many = table_of(api, "/echo/{key}", schema, keys_per_request="5", path__key="'a'")
    assert len(ask(many, {"key": [key, "a"]})) == 1
    assert api.targets() == {"/echo/a": 1}


def test_a_header_takes_no_key_that_would_break_it(api: Api) -> None:
    schema = pa.schema([("key", pa.string()), ("method", pa.string())])
    table = table_of(api, "/echo", schema, header__X_Key="k-{key}")
    assert "header 'X-Key' cannot hold the key key = 'a\\r\\nX-Evil: 1'" in str(
        failure(table, key="a\r\nX-Evil: 1")
    )
    assert ask(table, {"key": ["b"]}) == [{"key": "b", "method": "GET"}]
    [asked] = api.asked()
    assert asked["headers"]["x-key"] == "k-b"


def test_keys_of_every_type_are_spelled(api: Api) -> None:
    kinds = {
        "i": (pa.int32(), -5, "-5"),
        "b": (pa.bool_(), True, "true"),
        "d": (pa.date32(), date(2024, 2, 29), "2024-02-29"),
        "t": (TIMESTAMP, datetime(2024, 1, 1, 12, 30, tzinfo=timezone.utc), "2024-01-01T12:30:00Z"),
        "n": (TIMESTAMP_NTZ, datetime(2024, 1, 1, 0, 0, 0, 5), "2024-01-01T00:00:00.000005"),
        "m": (pa.decimal128(10, 3), Decimal("1.500"), "1.5"),
        "w": (pa.decimal128(38, 18), Decimal("5"), "5"),
        "h": (pa.decimal128(5, 2), Decimal("100.00"), "100"),
        "f": (pa.float64(), 0.1, "0.1"),
    }
    schema = pa.schema([*((name, kind) for name, (kind, _, _) in kinds.items()), ("target", pa.string())])
    query = "&".join(f"{name}={{{name}}}" for name in kinds)
    [row] = ask(
        table_of(api, f"/echo?{query}", schema), {name: [value] for name, (_, value, _) in kinds.items()}
    )
    assert unquote(row["target"]) == "/echo?" + "&".join(
        f"{name}={text}" for name, (_, _, text) in kinds.items()
    )
    assert row["t"] == kinds["t"][1]


def test_what_is_not_asked_by_is_left_out_of_query_and_body(api: Api) -> None:
    schema = pa.schema(
        [("a", pa.string()), ("b", pa.string()), ("target", pa.string()), ("body", pa.string())]
    )
    table = table_of(
        api,
        "/echo?a={a}&x={a}-{b}&c",
        schema,
        method="POST",
        body='{"a": "{a}", "b": {"c": "{b}"}, "d": ["{b}"]}',
    )
    [row] = ask(table, {"a": ["1"]})
    assert row["target"] == "/echo?a=1&c"
    assert json.loads(row["body"]) == {"a": "1", "b": {}, "d": []}


def test_a_form_is_sent_as_one(api: Api) -> None:
    schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
    table = table_of(api, "/echo", schema, method="POST", body="id={id}&what=a", body_format="form")
    assert ask(table, {"id": [7]}) == [{"id": 7, "body": "id=7&what=a"}]
    assert api.asked()[0]["headers"]["content-type"] == "application/x-www-form-urlencoded"


def test_secrets_in_templates_are_resolved_and_never_holes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "a {id}&b=c")
    schema = pa.schema([("id", pa.int64()), ("target", pa.string())])
    table = table_of(
        api, "/echo?key=${env:API_TOKEN}&id={id}", schema, header__Authorization="T ${env:API_TOKEN}"
    )
    [row] = ask(table, {"id": [7]})
    assert row["target"] == "/echo?key=a%20%7Bid%7D&b=c&id=7" or unquote(row["target"]).endswith("&id=7")
    assert api.asked()[0]["headers"]["authorization"] == "T a {id}&b=c"


def test_the_address_may_come_from_the_environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_BASE", api.url)
    table = LookupTable("people", SCHEMA, options={"url": "${env:API_BASE}/people/{id}"})
    assert ask(table, {"id": [1]}) == [ONE]
    monkeypatch.setenv("API_BASE", "not a url")
    assert "write an absolute URL" in str(failure(table))


# --- responses ------------------------------------------------------------------------------------


def test_columns_are_found_by_their_paths(api: Api) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("zip", pa.string()),
            ("first_tag", pa.string()),
            ("address", pa.struct([("zip", pa.string()), ("tags", pa.list_(pa.string()))])),
        ]
    )
    table = table_of(api, "/people/{id}", schema, path__zip="address.zip", path__FIRST_TAG="address.tags[0]")
    assert ask(table, {"id": [1]}) == [
        {"id": 1, "zip": "00001", "first_tag": "a", "address": {"zip": "00001", "tags": ["a", "b"]}}
    ]


def test_values_are_read_strictly_into_their_types(api: Api) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("m", pa.decimal128(20, 10)),
            ("d", pa.date32()),
            ("t", TIMESTAMP),
            ("n", TIMESTAMP_NTZ),
            ("f", pa.float64()),
            ("g", pa.map_(pa.string(), pa.int32())),
            ("l", pa.list_(pa.struct([("a", pa.int8())]))),
            ("b", pa.bool_()),
        ]
    )
    body = {
        "m": "0.1234567891", "d": "2024-02-29", "t": "2024-01-01T00:00:00.5+02:00", "n": "2024-01-01T00:00:00",
        "f": 1, "g": {"x": 1}, "l": [{"a": 1}, None, {}], "b": False,
    }  # fmt: skip
    api.script("/x/1", {"status": 200, "body": json.dumps(body).replace('"0.1234567891"', "0.1234567891")})
    assert ask(table_of(api, "/x/{id}", schema), {"id": [1]}) == [
        {
            "id": 1, "m": Decimal("0.1234567891"), "d": date(2024, 2, 29),
            "t": datetime(2023, 12, 31, 22, 0, 0, 500_000, tzinfo=timezone.utc), "n": datetime(2024, 1, 1),
            "f": 1.0, "g": [("x", 1)], "l": [{"a": 1}, None, {"a": None}], "b": False,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.int32(), "5", "'5' (str) does not fit INT"),
        (pa.int8(), 500, "500 (int) does not fit TINYINT"),
        (pa.string(), 5, "5 (int) does not fit STRING"),
        (pa.bool_(), 1, "1 (int) does not fit BOOLEAN"),
        (pa.date32(), "2024-02-30", "'2024-02-30' (str) does not fit DATE"),
        (
            TIMESTAMP,
            "2024-01-01 00:00:00",
            "does not fit TIMESTAMP_LTZ. It has no time zone: declare the column",
        ),
        (pa.decimal128(4, 2), 1.005, "Decimal('1.005') (Decimal) does not fit DECIMAL(4,2)"),
        (pa.list_(pa.int64()), {"a": 1}, "{'a': 1} (dict) does not fit ARRAY<BIGINT>"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_told_with_column_path_and_key(
    api: Api, kind: pa.DataType, value: Any, shown: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    api.script("/x/1", {"status": 200, "body": {"a": {"v": value}}})
    error = failure(table_of(api, "/x/{id}", schema, path__v="a.v"))
    assert error.permanent
    assert "table people: column 'v' of the row for id = 1 (path a.v): " in str(error)
    assert shown in str(error)


def test_a_row_that_does_not_fit_spoils_no_other_key(api: Api) -> None:
    api.script("/people/1", {"status": 200, "body": {"name": 5}})
    request = request_for(SCHEMA, {"id": [1, 2]})
    answer: Any = during(table_of(api, "/people/{id}"), lambda connector: connector.alookup(request))
    assert answer.rows.to_pylist() == [TWO]
    assert list(answer.failures) == [0]


@pytest.mark.parametrize("body", ["", "null", "[]", "{}", "[null]", '{"data": []}'])
def test_nothing_is_a_miss(api: Api, body: str) -> None:
    api.script("/x/1", {"status": 200, "body": body})
    assert ask(table_of(api, "/x/{id}", rows="data" if "data" in body else "@"), {"id": [1]}) == []


def test_one_key_may_have_many_rows(api: Api) -> None:
    api.script("/x/1", {"status": 200, "body": {"data": {"rows": [{"name": "a"}, {"name": "b"}]}}})
    rows = ask(table_of(api, "/x/{id}", rows="data.rows"), {"id": [1]})
    assert rows == [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]


def test_rows_may_be_the_members_of_an_object(api: Api) -> None:
    table = table_of(api, "/byid?ids={id}", rows="people", row_key="id", keys_per_request="9")
    assert ask(table, {"id": [2, 5000, 1]}) == [TWO, ONE]
    api.script("/byid", {"status": 200, "body": {"people": [1]}})
    assert "an object whose members are the rows at 'people'; [1] came" in str(failure(table))


def test_plain_values_are_rows_too(api: Api) -> None:
    api.script("/x/1", {"status": 200, "body": "[3, 4]"})
    schema = pa.schema([("id", pa.int64()), ("score", pa.int32())])
    table = table_of(api, "/x/{id}", schema, path__score="@")
    assert [row["score"] for row in ask(table, {"id": [1]})] == [3, 4]


def test_a_response_in_another_encoding_is_read(api: Api) -> None:
    act = {"status": 200, "body": '{"name": "é"}', "type": "application/json; charset=iso-8859-1"}
    api.script("/x/1", act)
    assert ask(table_of(api, "/x/{id}"), {"id": [1]}) == [{"id": 1, "name": "é"}]


@pytest.mark.parametrize(
    ("act", "options", "shown"),
    [
        (
            {"body": "<html><b>Hello</b>", "type": "text/html"},
            {},
            "the body is not JSON (text/html). It begins: <html><b>Hello</b>",
        ),
        ({"body": '{"name": '}, {}, "the body is not JSON (application/json)"),
        (
            {"body": {"error": "quota"}},
            {},
            'the row for id = 1 has none of the columns: {"error": "quota"} came',
        ),
        (
            {"body": {"name": None}},
            {"required_columns": "name"},
            "column 'name' of the row for id = 1 is required, and its path name finds nothing",
        ),
        (
            {"body": {"data": "x"}},
            {"rows": "sort(data)"},
            "'rows', sort(data), cannot be followed",
        ),
        (
            {"body": {"name": 1}},
            {"path__name": "length(name)"},
            "the path of column 'name', length(name), cannot be followed",
        ),
    ],
)
def test_a_response_that_does_not_fit_says_how(
    api: Api, act: dict[str, Any], options: dict[str, str], shown: str
) -> None:
    api.script("/x/1", {"status": 200, **act})
    error = failure(table_of(api, "/x/{id}", **options))
    assert error.permanent
    assert shown in str(error)


def test_a_row_of_many_keys_that_says_no_key_is_an_error(api: Api) -> None:
    api.script("/x", {"status": 200, "body": [{"name": "a"}]})
    error = failure(table_of(api, "/x?ids={id}", keys_per_request="5"))
    assert "column 'id' of the row of the answer is required" in str(error)


# --- pages ----------------------------------------------------------------------------------------

ORDER = pa.schema([("id", pa.int64()), ("order", pa.int32()), ("total", pa.decimal128(8, 2))])
PAGING: dict[str, dict[str, str]] = {
    "link": {"rows": "@"},
    "next_url": {"paging_path": "next"},
    "cursor": {"paging_path": "meta.cursor", "paging_parameter": "cursor"},
    "page": {"paging_parameter": "page", "page_size": "2"},
    "offset": {"paging_parameter": "offset"},
}


@pytest.mark.parametrize("way", PAGING)
def test_all_pages_are_read_and_not_one_more(api: Api, way: str) -> None:
    path = f"/orders/{way.removeprefix('next_')}?customer={{id}}"
    table = table_of(api, path, ORDER, **{"rows": "orders", "paging": way, **PAGING[way]})
    rows = ask(table, {"id": [1, 2, 3]})
    assert [row["order"] for row in rows if row["id"] == 1] == list(range(ORDERS))
    assert [row["order"] for row in rows if row["id"] == 2] == [0]
    assert rows[6]["total"] == Decimal("6.25")
    # An API without a word about the end is asked once more, for an empty page.
    needed = 4 + 1 + 1 + (2 if way == "offset" else 0)
    assert sum(api.targets().values()) == needed


def test_more_pages_than_allowed_are_an_error_not_a_cut(api: Api) -> None:
    table = table_of(api, "/orders/link?customer={id}", ORDER, paging="link", max_pages="3")
    error = failure(table)
    assert error.permanent
    assert "there are more than 3 pages ('max-pages'). Nothing is cut off" in str(error)
    assert sum(api.targets().values()) == 3


def test_pages_in_a_circle_are_an_error(api: Api) -> None:
    api.script(
        "/x/1", {"status": 200, "body": [{"name": "a"}], "headers": {"Link": "<1>; rel=next"}, "repeat": True}
    )
    assert "one that was read already" in str(failure(table_of(api, "/x/{id}", paging="link")))


def test_a_page_elsewhere_is_refused(api: Api) -> None:
    act = {"status": 200, "body": [{"name": "a"}], "headers": {"Link": "<https://evil.example/x>; rel=next"}}
    api.script("/x/1", act)
    error = failure(table_of(api, "/x/{id}", paging="link"))
    assert "the next page leads to https://evil.example:443, which is not allowed" in str(error)


def test_a_cursor_goes_into_a_json_body(api: Api) -> None:
    api.script("/x", {"status": 200, "body": {"rows": [{"name": "a"}], "next": "c2"}})
    api.script("/x", {"status": 200, "body": {"rows": [{"name": "b"}], "next": None}})
    table = table_of(
        api, "/x", method="post", body='{"id": "{id}"}', rows="rows",
        paging="cursor", paging_path="next", paging_parameter="variables.after",
    )  # fmt: skip
    assert [row["name"] for row in ask(table, {"id": [1]})] == ["a", "b"]
    assert [json.loads(each["body"]) for each in api.asked()] == [
        {"id": 1},
        {"id": 1, "variables": {"after": "c2"}},
    ]


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "permanent", "shown"),
    [
        (400, True, "answered 400 to GET. It says: oops"),
        (401, True, "Check the credentials."),
        (403, True, "Check the rights of these credentials."),
        (410, True, "answered 410"),
        (408, False, "answered 408"),
        (500, False, "answered 500"),
        (501, True, "answered 501"),
        (503, False, "answered 503"),
    ],
)
def test_errors_say_the_status_and_whether_they_may_pass(
    api: Api, status: int, permanent: bool, shown: str
) -> None:
    api.script("/x/1", {"status": status, "body": "oops"})
    error = failure(table_of(api, "/x/{id}"))
    assert error.permanent == permanent
    assert str(error).startswith(f"table people: {api.url} answered {status}")
    assert shown in str(error)
    assert sum(api.targets().values()) == 1


@pytest.mark.parametrize(
    ("status", "options", "outcome"),
    [
        (404, {}, "miss"),
        (410, {"miss_codes": "404,410"}, "miss"),
        (203, {"success_codes": "2XX,!203"}, "permanent"),
        (404, {"miss_codes": "410"}, "permanent"),
        (404, {"miss_codes": "410", "transient_codes": "404"}, "transient"),
        (418, {"transient_codes": "4xx"}, "transient"),
        (500, {"miss_codes": "5XX"}, "miss"),
        (300, {"success_codes": "200,300"}, "hit"),
        (429, {"miss_codes": "429"}, "miss"),
    ],
)
def test_what_a_status_means_can_be_said(
    api: Api, status: int, options: dict[str, str], outcome: str
) -> None:
    api.script("/x/1", {"status": status, "body": {"name": "n1"}})
    table = table_of(api, "/x/{id}", **options)
    if outcome in ("hit", "miss"):
        assert ask(table, {"id": [1]}) == ([ONE] if outcome == "hit" else [])
    else:
        assert failure(table).permanent == (outcome == "permanent")


def test_codes_are_checked() -> None:
    with pytest.raises(OptionError, match="'20X' is not a status code"):
        table_of(None, "/x/{id}", miss_codes="404,20X").check(HttpConnector.OPTIONS)


METADATA = pa.schema(
    [
        *SCHEMA, ("outcome", pa.string()), ("status", pa.int32()), ("error", pa.string()), ("attempts", pa.int64()),
        ("elapsed", pa.float64()), ("headers", pa.map_(pa.string(), pa.string())),
    ]
)  # fmt: skip
METADATA_OPTIONS = {f"path__{name}": f"${name}" for name in METADATA.names[2:]}


def test_metadata_columns_tell_how_a_row_was_found(api: Api) -> None:
    table = table_of(api, "/people/{id}", METADATA, **METADATA_OPTIONS)
    [row] = ask(table, {"id": [1]})
    assert {**row, "elapsed": 0, "headers": 0} == {
        **ONE, "outcome": "hit", "status": 200, "error": None, "attempts": 1, "elapsed": 0, "headers": 0,
    }  # fmt: skip
    assert 0 < row["elapsed"] < 30
    assert dict(row["headers"])["content-type"] == "application/json"


@pytest.mark.parametrize("asked", [True, False])
def test_outcome_rows_tell_of_misses_and_errors_when_they_are_asked_for(
    api: Api, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter2hunter2")
    api.script("/people/1", {"status": 500, "body": "no hunter2hunter2"})
    options = {**METADATA_OPTIONS, "outcome_rows": str(asked), "token": "${env:API_TOKEN}"}
    table = table_of(api, "/people/{id}", METADATA, **options)

    async def tell(connector: HttpConnector) -> list[pa.Table | None]:
        missed = await connector.alookup_row(RowRequest({"id": 5000}, METADATA))
        assert isinstance(missed, Miss)
        failed = await awaited_failure(connector.alookup_row(RowRequest({"id": 1}, METADATA)))
        return [
            connector.outcome_rows(pa.table({"id": [5000]}), METADATA, Outcome(None, 2, [missed.note])),
            connector.outcome_rows(pa.table({"id": [1]}), METADATA, Outcome(failed, 3, [None])),
            connector.outcome_rows(pa.table({"id": [7]}), METADATA, Outcome(OSError("x"), 1, [None])),
        ]

    told = during(table, tell)
    if not asked:
        assert told == [None, None, None]
        return
    missed, failed, other = (rows.to_pylist()[0] for rows in told if rows is not None)
    assert (missed["id"], missed["outcome"], missed["status"], missed["error"]) == (5000, "miss", 404, None)
    assert (failed["name"], failed["outcome"], failed["status"], failed["attempts"]) == (
        None,
        "error",
        500,
        3,
    )
    assert failed["error"] == f"table people: {api.url} answered 500 to GET. It says: no ***"
    assert (other["error"], other["status"]) == ("x", None)


def test_outcome_rows_tell_that_the_connector_could_not_be_opened() -> None:
    options = {**METADATA_OPTIONS, "outcome_rows": "true", "tls_ca": "/nowhere.pem"}
    connector = connector_of(table_of(None, "/people/{id}", METADATA, **options))
    with pytest.raises(ConnectorError, match="cannot be used") as caught:
        asyncio.run(connector.aopen())
    rows = connector.outcome_rows(pa.table({"id": [1]}), METADATA, Outcome(caught.value, 1, [None]))
    assert rows is not None
    [told] = rows.to_pylist()
    assert (told["id"], told["outcome"], told["attempts"]) == (1, "error", 1)
    assert told["error"].startswith("table people: the TLS files cannot be used: No such file or directory.")


# --- misbehaviour ---------------------------------------------------------------------------------


def test_a_server_that_hangs_is_given_up(api: Api) -> None:
    api.script("/x/1", {"hang": True})
    error = failure(table_of(api, "/x/{id}", request_timeout="1 s"))
    assert not error.permanent
    assert f"no answer from {api.url} within 1 s ('request-timeout')" in str(error)


def test_a_body_that_drips_is_given_up_too(api: Api) -> None:
    api.script("/x/1", {"status": 200, "body": "", "drip": True})
    error = failure(table_of(api, "/x/{id}", request_timeout="1 s"))
    assert "within 1 s" in str(error)


def test_a_line_that_is_cut_may_pass(api: Api) -> None:
    api.script("/x/1", {"status": 200, "body": {"name": "a long name"}, "cut": 5})
    error = failure(table_of(api, "/x/{id}"))
    assert not error.permanent
    assert f"the answer of {api.url} broke off" in str(error)


def test_a_connection_that_is_dropped_may_pass_and_is_asked_once(api: Api) -> None:
    is_started = http_asking.is_started()  # over a kept connection, where what is lost is asked again
    api.script("/x/1", {"drop": True}, {"drop": True})
    error = failure(table_of(api, "/x/{id}"))
    assert not error.permanent
    assert sum(api.targets().values()) == (2 if is_started else 1)


def test_an_idle_connection_that_the_server_closed_costs_nothing(api: Api) -> None:
    http_asking.need_kept_connections()
    api.script("/people/2", {"drop": True})
    table = table_of(api, "/people/{id}", connections="1", idle_timeout="60 s")
    assert ask(table, {"id": [1, 2]}, one_by_one=True) == [ONE, TWO]


def test_nobody_at_the_port_may_pass() -> None:
    error = failure(table_of(None, "/x/{id}"))
    assert not error.permanent
    assert "no connection to http://127.0.0.1:9" in str(error)


def test_a_huge_body_is_not_read_to_its_end(api: Api) -> None:
    api.script("/x/1", {"status": 200, "body": "x" * 1000, "times": 5000})
    error = failure(table_of(api, "/x/{id}", max_response_bytes="100000"))
    assert error.permanent
    assert "a response is larger than 100000 bytes ('max-response-bytes')" in str(error)


def test_connections_are_bounded_and_kept(api: Api) -> None:
    http_asking.need_kept_connections()
    if http_asking.is_started():
        pytest.skip("a connection is opened for each key there")
    ask(table_of(api, "/people/{id}", connections="3", idle_timeout="60 s"), {"id": list(range(60))})
    assert api.connections() == 3


CHUNKED = (
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"name"\r\n6\r\n: "n1"\r\n1\r\n}\r\n0\r\n\r\n'
)
UNTIL_CLOSED = 'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"name": "n1"}'
AFTER_NEWS = (
    'HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"name": "n1"}'
)
TWICE = (
    'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"name": "n1"}HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n'
)
ZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"


@pytest.mark.parametrize(
    "raw", [CHUNKED, UNTIL_CLOSED, AFTER_NEWS, TWICE], ids=["chunked", "close", "103", "twice"]
)
def test_the_forms_of_http_are_understood(api: Api, raw: str) -> None:
    api.script("/people/1", {"raw": raw})
    table = table_of(api, "/people/{id}", connections="1")

    async def one_after_the_other(connector: HttpConnector) -> list[Any]:
        return [rows_of(await connector.alookup(request_for(SCHEMA, {"id": [key]}))) for key in (1, 2)]

    assert during(table, one_after_the_other) == [[ONE], [TWO]]


def test_a_body_may_be_compressed(api: Api) -> None:
    body = gzip.compress(json.dumps(ONE).encode())
    api.script("/people/1", {"raw": (ZIPPED % (len(body), body)).decode("latin-1")})
    assert ask(table_of(api, "/people/{id}"), {"id": [1]}) == [ONE]


def test_a_small_body_that_unpacks_to_a_huge_one_is_refused(api: Api) -> None:
    body = gzip.compress(b" " * 10_000_000)
    api.script("/people/1", {"raw": (ZIPPED % (len(body), body)).decode("latin-1")})
    error = failure(table_of(api, "/people/{id}", max_response_bytes="100000"))
    assert "a response is larger than 100000 bytes" in str(error)


@pytest.mark.parametrize("raw", ["SMTP ready\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_may_pass(api: Api, raw: str) -> None:
    # Twice, as what is lost on a kept connection is asked again.
    api.script("/people/1", {"raw": raw}, {"raw": raw})
    error = failure(table_of(api, "/people/{id}"))
    assert not error.permanent
    assert f"the answer of {api.url} broke off" in str(error)


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [(301, "GET", "GET"), (303, "POST", "GET"), (307, "POST", "POST"), (308, "POST", "POST")],
)
def test_a_redirect_is_followed_as_browsers_do(api: Api, status: int, method: str, then: str) -> None:
    api.script("/x/1", {"status": status, "headers": {"Location": "/echo?a=1#frag"}})
    schema = pa.schema([("id", pa.int64()), ("method", pa.string())])
    body = {"body": '{"a": 1}'} if method == "POST" else {}
    assert ask(table_of(api, "/x/{id}", schema, method=method, **body), {"id": [1]}) == [
        {"id": 1, "method": then}
    ]
    assert list(api.targets()) == ["/x/1", "/echo?a=1"]


@pytest.mark.parametrize("status", [301, 302])
def test_a_redirect_that_would_lose_the_body_is_an_error(api: Api, status: int) -> None:
    api.script("/x/1", {"status": status, "headers": {"Location": "/echo"}, "repeat": True})
    schema = pa.schema([("id", pa.int64()), ("method", pa.string())])
    error = failure(table_of(api, "/x/{id}", schema, method="POST", body='{"a": 1}'))
    assert error.permanent
    assert f"answered {status} to POST, a redirect which most clients follow by a GET without 'body'" in str(
        error
    )
    assert list(api.targets()) == ["/x/1"]
    assert ask(table_of(api, "/x/{id}", schema, method="POST"), {"id": [1]}) == [{"id": 1, "method": "GET"}]


def test_a_redirect_to_elsewhere_is_refused_unless_it_is_allowed(api: Api) -> None:
    elsewhere = f"http://localhost:{api.port}"
    api.script("/x/1", {"status": 302, "headers": {"Location": f"{elsewhere}/echo"}, "repeat": True})
    schema = pa.schema([("id", pa.int64()), ("headers", pa.map_(pa.string(), pa.string()))])
    error = failure(table_of(api, "/x/{id}", schema, token="t0ken"))
    assert error.permanent
    assert f"a redirect leads to {elsewhere}, which is not allowed" in str(error)
    assert "'allowed-origins'" in str(error)
    [row] = ask(table_of(api, "/x/{id}", schema, token="t0ken", allowed_origins=elsewhere), {"id": [1]})
    assert "authorization" not in dict(row["headers"]), "credentials are for the API alone"


def test_redirects_end(api: Api) -> None:
    api.script("/x/1", {"status": 302, "headers": {"Location": "/x/1"}, "repeat": True})
    error = failure(table_of(api, "/x/{id}", max_redirects="2"))
    assert "more than 2 redirects" in str(error)
    assert sum(api.targets().values()) == 3


# --- throttling -----------------------------------------------------------------------------------


def test_a_429_is_waited_out(api: Api) -> None:
    api.script("/people/1", {"status": 429, "headers": {"Retry-After": "1"}})
    started = time.monotonic()
    assert ask(table_of(api, "/people/{id}"), {"id": [1]}) == [ONE]
    assert time.monotonic() - started >= 1.0
    assert sum(api.targets().values()) == 2


async def ask_one_after_a_refusal(connector: HttpConnector) -> None:
    """Key 1, and once it is refused key 2 and key 3."""
    is_refused = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        asked = Pause.asked

        def noted(pause: Pause, *given: Any) -> None:
            is_refused.set()
            asked(pause, *given)

        patch.setattr(Pause, "asked", noted)
        keys = [RowRequest({"id": key}, SCHEMA) for key in (1, 2, 3)]
        first = asyncio.create_task(connector.alookup_row(keys[0]))
        await asyncio.wait_for(is_refused.wait(), 30)
        await asyncio.gather(first, *map(connector.alookup_row, keys[1:]))


def asked_after_the_first(api: Api) -> list[tuple[str, float]]:
    first, *others = api.asked()
    assert first["target"] == "/people/1"
    return [(each["target"], each["time"] - first["time"]) for each in others]


def test_a_429_holds_for_its_request_where_the_origin_serves_others(api: Api) -> None:
    api.script("/people/1", {"status": 429, "headers": {"Retry-After": "2"}})
    during(table_of(api, "/people/{id}"), ask_one_after_a_refusal)
    *others, (target, waited) = asked_after_the_first(api)
    assert target == "/people/1"
    assert waited > 1.95
    assert sorted(target for target, _ in others) == ["/people/2", "/people/3"]
    assert all(0.05 < waited < 1.9 for _, waited in others), "the first of them tries, a moment later"


def test_a_429_holds_for_all_requests_where_the_origin_refuses_others_too(api: Api) -> None:
    refusal = {"status": 429, "headers": {"Retry-After": "2"}}
    for key in (1, 2, 3):
        api.script(f"/people/{key}", refusal)
    during(table_of(api, "/people/{id}"), ask_one_after_a_refusal)
    (_, tried), *others = asked_after_the_first(api)
    assert tried < 1.9
    assert len(others) >= 2
    assert all(waited > 1.95 for _, waited in others)


@pytest.mark.parametrize(
    "refusal",
    [
        {"status": 403, "body": {"message": "slow down"}, "headers": {"Retry-After": "0.2"}},
        {"status": 200, "body": {"ok": False, "error": "ratelimited"}, "headers": {"Retry-After": "0.2"}},
    ],
    ids=["a 403", "a 200"],
)
def test_a_limit_in_other_words_is_waited_out(api: Api, refusal: dict[str, Any]) -> None:
    api.script("/x/1", refusal, OK)
    assert ask(table_of(api, "/x/{id}"), {"id": [1]}) == [ONE]
    first, second = (each["time"] for each in api.asked())
    assert second - first >= 0.2


def test_a_429_without_a_word_is_asked_again(api: Api) -> None:
    api.script("/people/1", *[{"status": 429}] * 3)
    assert ask(table_of(api, "/people/{id}"), {"id": [1]}) == [ONE]
    assert sum(api.targets().values()) == 4


def test_a_pause_longer_than_the_time_left_is_an_error_at_once(api: Api) -> None:
    api.script("/people/1", {"status": 503, "headers": {"Retry-After": "3600"}})
    error = failure(table_of(api, "/people/{id}"), timeout=20)
    assert sum(api.targets().values()) == 1
    assert (error.permanent, error.retry_after) == (False, 3600)
    assert "answered 503 and wants a pause of 3.6e+03 s" in str(error)
    assert "raise 'timeout'" in str(error)


def test_a_429_may_be_an_error(api: Api) -> None:
    api.script("/people/1", {"status": 429, "headers": {"Retry-After": "7"}})
    error = failure(table_of(api, "/people/{id}", on_throttle="fail"))
    assert (error.permanent, error.retry_after) == (False, 7)


def test_a_503_without_a_word_is_an_error_like_others(api: Api) -> None:
    api.script("/people/1", {"status": 503})
    error = failure(table_of(api, "/people/{id}"))
    assert (error.permanent, error.retry_after) == (False, None)


def test_an_empty_allowance_is_respected_before_it_is_overdrawn(api: Api) -> None:
    spent = {"status": 200, "body": ONE, "headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}}
    api.script("/people/1", spent)
    ask(table_of(api, "/people/{id}", connections="1"), {"id": [1]}, one_by_one=True)
    started = time.monotonic()
    api.script("/people/1", spent)
    ask(table_of(api, "/people/{id}"), {"id": [1, 2]}, one_by_one=True)
    assert time.monotonic() - started >= 1.0


def test_no_request_leaves_before_the_time_that_an_answer_said(api: Api) -> None:
    """Thirty-nine keys have their permit when the first answer comes, and wait for the connection."""
    spent = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}
    api.script("/people/1", {"status": 200, "body": ONE, "headers": spent})
    ask(table_of(api, "/people/{id}", connections="1"), {"id": list(range(1, 41))})
    first, *others = sorted(each["time"] for each in api.asked())
    assert len(others) == 39
    assert min(others) - first >= 0.99


# --- who we are -----------------------------------------------------------------------------------

ECHO = pa.schema([("id", pa.int64()), ("headers", pa.map_(pa.string(), pa.string()))])


@pytest.mark.parametrize(
    ("options", "header", "value"),
    [
        ({"username": "me", "password": "pä:ss"}, "authorization", "Basic bWU6cMOkOnNz"),
        ({"token": "t0ken"}, "authorization", "Bearer t0ken"),
        ({"api_key": "k3y"}, "x-api-key", "k3y"),
        ({"api_key": "k3y", "api_key_header": "Ocp-Key"}, "ocp-key", "k3y"),
    ],
)
def test_credentials_go_into_headers(api: Api, options: dict[str, str], header: str, value: str) -> None:
    [row] = ask(table_of(api, "/echo?id={id}", ECHO, **options), {"id": [1]})
    assert dict(row["headers"])[header] == value


@pytest.fixture
def netrc_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(path))
    return path


def test_a_netrc_file_says_who_we_are_where_it_is_wanted(api: Api, netrc_file: Path) -> None:
    netrc_file.write_text("machine elsewhere login x password y\nmachine 127.0.0.1 login me password pw")

    def sent(path: str = "/echo?id={id}", **options: str) -> str | None:
        [row] = ask(table_of(api, path, ECHO, **options), {"id": [1]})
        return dict(row["headers"]).get("authorization")

    assert sent(use_environment="true") == "Basic bWU6cHc="
    assert sent() is None
    assert sent(use_environment="true", token="t0ken") == "Bearer t0ken"
    api.script("/away", {"status": 302, "headers": {"Location": "/echo?id=1"}})
    assert sent("/away?id={id}", use_environment="true") == "Basic bWU6cHc="
    netrc_file.write_text("machine elsewhere login x password y")
    assert sent(use_environment="true") is None
    netrc_file.unlink()
    assert sent(use_environment="true") is None


def test_an_own_header_comes_before_a_netrc_file(
    api: Api, netrc_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc_file.write_text("machine 127.0.0.1 login me password pw")
    monkeypatch.setenv("API_TOKEN", "t0ken")
    options = {"use_environment": "true", "header__Authorization": "T ${env:API_TOKEN}"}
    [row] = ask(table_of(api, "/echo?id={id}", ECHO, **options), {"id": [1]})
    assert dict(row["headers"])["authorization"] == "T t0ken"


def test_a_broken_netrc_file_is_named_and_not_shown(api: Api, netrc_file: Path) -> None:
    netrc_file.write_text("machine 127.0.0.1 login me pasword s3cret")
    error = failure(table_of(api, "/echo?id={id}", ECHO, use_environment="true"))
    assert str(error) == f"table people: {netrc_file} cannot be read: line 1 is not understood."


@pytest.mark.parametrize(("content", "problem"), [(None, "Is a directory"), (b"\xff", "it is not UTF-8")])
def test_a_netrc_file_that_is_no_text_is_named(
    api: Api, netrc_file: Path, content: bytes | None, problem: str
) -> None:
    if content is None:
        netrc_file.mkdir()
    else:
        netrc_file.write_bytes(content)
    error = failure(table_of(api, "/echo?id={id}", ECHO, use_environment="true"))
    assert str(error) == f"table people: {netrc_file} cannot be read: {problem}."


def test_a_home_without_a_netrc_file_says_nothing(
    api: Api, netrc_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NETRC")
    monkeypatch.setenv("HOME", str(netrc_file))
    [row] = ask(table_of(api, "/echo?id={id}", ECHO, use_environment="true"), {"id": [1]})
    assert "authorization" not in dict(row["headers"])


def test_the_password_of_a_netrc_file_is_a_secret(api: Api, netrc_file: Path) -> None:
    netrc_file.write_text("machine 127.0.0.1 login me password s3cret")

    async def known(connector: HttpConnector) -> set[str]:
        return connector.secrets()

    assert "s3cret" in during(table_of(api, "/people/{id}", use_environment="true"), known)


def oauth(api: Api, life: str = "", **options: str) -> LookupTable:
    given = {
        "oauth2_token_url": f"{api.url}/token{life}",
        "oauth2_client_id": "me",
        "oauth2_client_secret": "s3cret/+",
        **options,
    }
    return table_of(api, "/private/{id}", **given)


@pytest.mark.parametrize("way", ["header", "body"])
def test_a_token_is_fetched_once_for_all(api: Api, way: str) -> None:
    assert len(ask(oauth(api, oauth2_client_auth=way), {"id": list(range(20))})) == 20
    assert api.targets()["/token"] == 1
    assert sum(api.targets().values()) == 21


def test_a_token_that_the_server_forgot_is_fetched_once_more(api: Api) -> None:
    refusal = {"status": 401, "body": "expired"}
    for key in range(10):
        api.script(f"/private/{key}", refusal)
    assert len(ask(oauth(api), {"id": list(range(10))})) == 10
    fetched = api.targets()["/token"]
    assert fetched == 2, "those that were refused together share the new one"


def test_a_token_that_is_refused_when_new_is_an_error(api: Api) -> None:
    api.script("/private/1", {"status": 401, "body": "never", "repeat": True})
    error = failure(oauth(api))
    assert error.permanent
    assert "answered 401" in str(error)
    assert api.targets() == {"/token": 2, "/private/1": 2}


def test_a_token_is_renewed_before_it_ends(api: Api) -> None:
    async def ask_late(connector: HttpConnector) -> list[Any]:
        first = rows_of(await connector.alookup(request_for(SCHEMA, {"id": [1]})))
        await asyncio.sleep(0.95)
        return first + rows_of(await connector.alookup(request_for(SCHEMA, {"id": [2]})))

    assert during(oauth(api, "/1"), ask_late) == [ONE, TWO]
    assert api.targets() == {"/token/1": 2, "/private/1": 1, "/private/2": 1}


def test_refused_client_credentials_are_permanent_and_not_shown(api: Api) -> None:
    error = failure(oauth(api, oauth2_client_secret="wrong-secret"))
    assert error.permanent
    assert "no token from 'oauth2-token-url': it answered 401: invalid_client" in str(error)


@pytest.mark.parametrize("way", ["header", "body"])
def test_a_client_secret_of_a_function_is_asked_for_again_when_it_is_refused(api: Api, way: str) -> None:
    secrets = ["0ld-secret", "s3cret/+", "s3cret/+"]
    with function_of(lambda: secrets.pop(0)) as reference:
        table = oauth(api, oauth2_client_secret=reference, oauth2_client_auth=way)
        HttpConnector(table).check()
        assert len(ask(table, {"id": list(range(10))})) == 10
    assert secrets == ["s3cret/+"]
    assert api.targets()["/token"] == 2
    asked = [0]

    def refused() -> str:
        asked[0] += 1
        return f"wr0ng-{asked[0]}"

    with function_of(refused) as reference:
        table = oauth(api, oauth2_client_secret=reference)
        error = failure(table)
        assert {"wr0ng-1", "wr0ng-2"} <= known_secrets(HttpConnector(table)), "they are masked"
    assert asked == [2]
    assert error.permanent
    assert "it answered 401: invalid_client" in str(error)


def test_a_token_that_is_nested_deep_is_none(api: Api) -> None:
    api.script("/token", {"status": 200, "body": "[" * 50_000, "repeat": True})
    assert "the answer of 'oauth2-token-url' has no access_token." in str(failure(oauth(api)))


def test_a_token_endpoint_in_trouble_is_asked_once_and_may_pass(api: Api) -> None:
    api.script("/token", {"status": 503, "body": "later", "repeat": True, "delay": 0.1})
    request = request_for(SCHEMA, {"id": list(range(10))})
    answer: Any = during(oauth(api), lambda connector: connector.alookup(request))
    assert len(answer.failures) == 10
    assert not any(error.permanent for error in answer.failures.values())
    assert api.targets() == {"/token": 1}


def test_a_token_shows_in_no_message(api: Api) -> None:
    async def known(connector: HttpConnector) -> set[str]:
        await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        return connector.secrets()

    assert {"token-1", "s3cret/+"} <= during(oauth(api), known)


# --- TLS ------------------------------------------------------------------------------------------


def over_tls(port: int, certificates: Certificates, host: str = "localhost", **options: str) -> LookupTable:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    given.setdefault("tls-ca", str(certificates.authority))
    return LookupTable("people", SCHEMA, (), {"url": f"https://{host}:{port}/people/{{id}}", **given})


def test_an_authority_of_ones_own_is_trusted(api: Api, certificates: Certificates) -> None:
    assert ask(over_tls(api.tls_port, certificates), {"id": [1]}) == [ONE]


def test_the_password_of_a_key_may_come_from_a_function(
    api: Api, certificates: Certificates, tmp_path: Path
) -> None:
    key = serialization.load_pem_private_key(certificates.client_key.read_bytes(), None)
    written = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encrypted = tmp_path / "client.key"
    encrypted.write_bytes(key.private_bytes(*written, serialization.BestAvailableEncryption(b"un1ock")))
    given = {"tls_cert": str(certificates.client_certificate), "tls_key": str(encrypted)}
    with function_of(lambda: "un1ock") as reference:
        table = over_tls(api.tls_port, certificates, tls_key_password=reference, **given)
        HttpConnector(table).check()
        assert ask(table, {"id": [1]}) == [ONE]
    with function_of(lambda: "0ther") as reference:
        error = failure(over_tls(api.tls_port, certificates, tls_key_password=reference, **given))
    assert error.permanent
    assert "the TLS files cannot be used" in str(error)
    assert "0ther" not in repr(error)


def test_a_strangers_certificate_is_refused_for_good(api: Api, certificates: Certificates) -> None:
    for table in (
        over_tls(api.tls_port, certificates, tls_ca=str(certificates.other_authority)),
        over_tls(api.tls_port, certificates, host="127.0.0.1"),
    ):
        error = failure(table)
        assert error.permanent
        assert "is not trusted" in str(error)
        assert "'tls-ca'" in str(error)


def test_a_client_may_have_to_show_a_certificate(api: Api, certificates: Certificates) -> None:
    shown = {"tls_cert": str(certificates.client_certificate), "tls_key": str(certificates.client_key)}
    assert ask(over_tls(api.strict_tls_port, certificates, **shown), {"id": [1]}) == [ONE]
    error = failure(over_tls(api.strict_tls_port, certificates))
    assert "localhost" in str(error)


def test_a_tls_file_that_is_missing_is_named(certificates: Certificates, tmp_path: Path) -> None:
    error = failure(over_tls(1, certificates, tls_ca=str(tmp_path / "no.pem")))
    assert error.permanent
    assert "No such file" in str(error)
    assert "no.pem" in str(error)


# --- the rest -------------------------------------------------------------------------------------


def test_the_environment_is_left_alone_unless_it_is_asked_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert ask(table_of(api, "/people/{id}"), {"id": [1]}) == [ONE]
    assert "no connection" in str(failure(table_of(api, "/people/{id}", use_environment="true")))


@pytest.mark.parametrize("environment", [False, True], ids=["option", "environment"])
def test_a_proxy_asks_hosts_that_it_alone_knows(
    api: Api, environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", api.url if environment else "http://127.0.0.1:9")
    options = {"use_environment": "true"} if environment else {"proxy": api.url}
    table = table_of(None, "", url="http://api.example/people/{id}", **options)
    assert ask(table, {"id": [1, 2]}) == [ONE, TWO]
    assert set(api.targets()) == {"http://api.example/people/1", "http://api.example/people/2"}


@contextmanager
def tunnels(answer: str, to: int) -> Iterator[tuple[int, list[str]]]:
    """A proxy that answers so, and leads to a port of this machine; its own port, and the heads that came."""
    heads: list[str] = []
    accepting = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = accepting.accept()
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                heads.append(head.decode())
                client.sendall(f"HTTP/1.1 {answer}\r\n\r\n".encode())
                if answer.startswith("200"):
                    onward = socket.create_connection(("127.0.0.1", to))
                    threading.Thread(target=tunnelled, args=(client, onward), daemon=True).start()
                else:
                    client.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield accepting.getsockname()[1], heads
    finally:
        accepting.close()


def tunnelled(client: socket.socket, onward: socket.socket) -> None:
    """Carry what each of them says to the other one, until both have said all."""
    with client, onward:
        back = threading.Thread(target=copied, args=(onward, client), daemon=True)
        back.start()
        copied(client, onward)
        back.join()


def copied(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
    with suppress(OSError):
        there.shutdown(socket.SHUT_WR)


def test_a_proxy_leads_to_servers_that_speak_tls_over_one_connection(
    api: Api, certificates: Certificates
) -> None:
    with tunnels("200 Connection established", api.tls_port) as (port, heads):
        table = over_tls(api.tls_port, certificates, proxy=f"http://us%65r:p%40ss@127.0.0.1:{port}")
        assert ask(table, {"id": [1, 2]}, one_by_one=True) == [ONE, TWO]
    assert len(heads) == (2 if http_asking.is_httpx() else 1)
    known = b64encode(b"user:p@ss").decode()
    for head in heads:
        first, *headers = head.removesuffix("\r\n\r\n").split("\r\n")
        assert first == f"CONNECT localhost:{api.tls_port} HTTP/1.1"
        assert {f"Host: localhost:{api.tls_port}", f"Proxy-Authorization: Basic {known}"} <= {*headers}
    assert all("proxy-authorization" not in each["headers"] for each in api.asked())


@pytest.mark.parametrize(
    ("answer", "permanent", "check"),
    [("400 What?", True, ""), ("407 Proxy Authentication Required", True, "login"), ("503 Busy", False, "")],
)
def test_a_proxy_that_refuses_is_named(
    api: Api, certificates: Certificates, answer: str, permanent: bool, check: str
) -> None:
    with tunnels(answer, api.tls_port) as (port, _):
        table = over_tls(api.tls_port, certificates, proxy=f"http://127.0.0.1:{port}")
        error = failure(table)
    assert f"no connection to https://localhost:{api.tls_port}: its proxy answered {answer}." in str(error)
    assert error.permanent is permanent
    assert HttpConnector(table).check_of(error) == check


def test_a_proxy_of_another_kind_is_refused(api: Api) -> None:
    error = failure(table_of(api, "/people/{id}", proxy="socks5://127.0.0.1:9"))
    assert error.permanent
    assert "a proxy of the scheme 'socks5' is not known; there are http and https" in str(error)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_proxy_may_speak_tls_itself(api: Api, certificates: Certificates, secure: bool) -> None:
    options = {"proxy": f"https://localhost:{api.tls_port}", "tls_ca": str(certificates.authority)}
    if not secure:
        table = table_of(None, "", url="http://api.example/people/{id}", **options)
        assert ask(table, {"id": [1]}) == [ONE]
        assert set(api.targets()) == {"http://api.example/people/1"}
        return
    error = failure(table_of(None, "", url="https://api.example/people/{id}", **options))
    expected = "before Python 3.11" if sys.version_info < (3, 11) else "its proxy answered 404"
    assert expected in str(error)


@pytest.mark.parametrize("spared", ["127.0.0.1", "127.0.0.1:{port}", "*"])
def test_hosts_that_the_environment_spares_are_asked_without_the_proxy(
    api: Api, spared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "http_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", spared.format(port=api.url.rpartition(":")[2]))
    table = table_of(api, "/people/{id}", use_environment="true")
    assert ask(table, {"id": [1]}) == [ONE]


def test_cookies_are_not_kept(api: Api) -> None:
    api.script("/echo", {"status": 200, "body": {"headers": {}}, "headers": {"Set-Cookie": "a=b; Path=/"}})
    ask(table_of(api, "/echo?id={id}", ECHO), {"id": [1, 2]}, one_by_one=True)
    assert "cookie" not in api.asked()[1]["headers"]


def test_a_cancelled_lookup_leaves_the_connector_usable(api: Api) -> None:
    api.script("/people/1", {"hang": True})

    async def cancel_and_ask(connector: HttpConnector) -> list[Any]:
        hanging = asyncio.create_task(connector.alookup_row(RowRequest({"id": 1}, SCHEMA)))
        while not api.targets():
            await asyncio.sleep(0.01)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        return rows_of(await connector.alookup(request_for(SCHEMA, {"id": [2]})))

    assert during(table_of(api, "/people/{id}", connections="1"), cancel_and_ask) == [TWO]


def test_an_open_connector_travels_closed(api: Api) -> None:
    async def pickled(connector: HttpConnector) -> HttpConnector:
        await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        copy = pickle.loads(pickle.dumps(connector))
        assert isinstance(copy, HttpConnector)
        return copy

    copy = during(table_of(api, "/people/{id}"), pickled)
    assert copy.table.name == "people"


def test_keys_and_limits_are_told_to_the_planner() -> None:
    schema = pa.schema([*SCHEMA, ("lang", pa.string()), ("region", pa.string())])
    one = connector_of(table_of(None, "/x/{id}?lang={lang}", schema))
    assert (set(one.key_columns()), set(one.required_keys())) == ({"id", "lang"}, {"id"})
    assert one.keys_per_request() == 1
    assert one.request_columns() == {"id", "lang"}
    many = connector_of(
        table_of(None, "/{region}?ids={id}&l={lang}", schema, keys_per_request="9", list_columns="ID")
    )
    assert (set(many.required_keys()), many.keys_per_request()) == ({"region"}, 9)


@pytest.mark.parametrize(
    ("path", "options", "shown"),
    [
        ("/x", {}, "no part of the request names a column"),
        ("/x/{ident}", {}, "'url': there is no column 'ident'. Known: id, name."),
        ("/x/${id}", {}, "'url': write {id} without the dollar sign"),
        ("/x/{id}", {"query": "a={nmae}"}, "'query': there is no column 'nmae'. Did you mean 'name'?"),
        ("/x/{id}", {"body": "{}"}, "'body' is sent by POST alone"),
        ("/x/{id}", {"method": "POST", "body": "{"}, "'body': it is not JSON"),
        ("/x/{id}", {"path__nmae": "a"}, "'path.nmae': there is no column 'nmae'. Did you mean 'name'?"),
        ("/x/{id}", {"path__name": "a["}, "'path.name': it is not JMESPath"),
        ("/x/{id}", {"rows": "a..b"}, "'rows': it is not JMESPath"),
        ("/x/{id}", {"rows": "(" * 5000 + "a" + ")" * 5000}, "'rows': it is nested too deep"),
        ("/x/{id}", {"method": "POST", "body": "[" * 50_000}, "'body': it is nested too deep"),
        ("/x/{id}", {"path__name": "$stat"}, "there is no metadata '$stat'"),
        ("/x/{id}", {"path__name": "$status"}, "column 'name': $status is INT, not STRING"),
        ("/x/{id}", {"path__id": "$attempts"}, "column 'id' is metadata, and cannot stand in a request"),
        ("/x/{id}", {"row_key": "nmae"}, "'row-key': there is no column 'nmae'"),
        ("/x/{id}", {"required_columns": "name,x"}, "'required-columns': there is no column 'x'"),
        ("/x/{id}", {"list_columns": "id"}, "'list-columns' is for several keys per request"),
        ("/x/{id}", {"keys_per_request": "2", "list_columns": "name"}, "nothing in the request names 'name'"),
        ("/x/{id}", {"paging": "cursor"}, "'paging' = 'cursor' needs 'paging-path'"),
        ("/x/{id}", {"paging_parameter": "p"}, "'paging' = 'none' does not take 'paging-parameter'"),
        ("/x/{id}", {"token": "a", "api_key": "b"}, "'token' and 'api-key' are different ways"),
        ("/x/{id}", {"password": "a"}, "'password' is of no use without 'username'"),
        ("/x/{id}", {"oauth2_token_url": "https://a/b"}, "'oauth2-token-url' needs 'oauth2-client-id'"),
        ("/x/{id}", {"tls_key": "a"}, "'tls-key' is of no use without 'tls-cert'"),
        ("/x/{id}", {"allowed_origins": "elsewhere"}, "'allowed-origins': write an absolute URL"),
        ("/x/{id}", {"allowed_origins": "https://a/b"}, "'allowed-origins': write scheme, host and port alone"),
        ("/x/{id}", {"allowed_origins": "https://u:p@a"}, "'allowed-origins': write scheme, host and port alone"),
        ("/x/{id}", {"proxy": "http://u:p#w@h"}, "'proxy': a '#' ends an address; in a password it is %23"),
        ("/x/{id}", {"proxy": "http://h:3128/x"}, "'proxy': a proxy has no path"),
        ("/x/{id}", {"oauth2_token_url": "https://u:p@a/b", "oauth2_client_id": "x", "oauth2_client_secret": "${env:S}"},
         "'oauth2-token-url': write who we are in 'oauth2-client-id'"),
        ("/x/{id}", {"header__Authorization": "Bearer abc"}, "a secret may not stand in the text of a statement"),
        ("/x/{id}", {"header__A B": "c"}, "'header.A B': this is not a name of a header"),
        ("/x/{id}", {"rows": "${env:ROWS}"}, "'rows' may not be a reference"),
        ("/x#{id}", {}, "a fragment"),
    ],
)  # fmt: skip
def test_wrong_options_are_explained(path: str, options: dict[str, str], shown: str) -> None:
    with pytest.raises(OptionError) as raised:
        connector_of(table_of(None, path, **options))
    assert shown in str(raised.value)
    assert "people" in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://{name}.example/x", "a column may not choose the host"),
        ("https://api.example{name}/x", "a '/' must stand between the host and the first column"),
        ("${env:HOST}{name}", "a '/' must stand between the reference and the first column"),
        ("{name}/x", "write an absolute URL"),
        ("ftp://host/{name}", "write an absolute URL"),
        ("https://me:pw@host/{name}", "write the user and the password in 'username' and 'password'"),
    ],
)
def test_no_key_chooses_whom_we_talk_to(url: str, shown: str) -> None:
    with pytest.raises(OptionError) as raised:
        connector_of(LookupTable("people", SCHEMA, options={"url": url}))
    assert shown in str(raised.value)


def test_a_column_that_cannot_be_asked_by_or_read_is_refused() -> None:
    schema = pa.schema([("id", pa.list_(pa.int64())), ("raw", pa.binary())])
    with pytest.raises(OptionError) as raised:
        connector_of(table_of(None, "/x/{id}", schema))
    assert "column 'id' cannot stand in a request" in str(raised.value)
    assert "JSON has no value that can be read as BINARY" in str(raised.value)


def test_a_failure_survives_the_trip_from_a_worker(api: Api) -> None:
    api.script("/x/1", {"status": 500})
    error = failure(table_of(api, "/x/{id}"))
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ConnectorError)
    assert str(copy) == str(error)


# --- what is for one origin alone -----------------------------------------------------------------


def test_headers_given_by_reference_go_to_the_origin_of_url_alone(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENANT_TOKEN", "hunter2hunter2")
    with running_api() as other:
        api.script("/x/1", {"status": 307, "headers": {"Location": f"{other.url}/x/1"}})
        other.script("/x/1", {"status": 307, "headers": {"Location": f"{api.url}/people/1"}})
        table = table_of(
            api, "/x/{id}", allowed_origins=other.url, token="${env:TENANT_TOKEN}",
            header__X_Tenant="${env:TENANT_TOKEN}", header__X_Plain="plain", header__Host="own.example",
        )  # fmt: skip
        assert ask(table, {"id": [1]}) == [ONE]
        [there] = other.asked()
    assert "hunter2" not in str(there)
    assert (there["headers"]["x-plain"], "x-tenant" in there["headers"]) == ("plain", False)
    assert there["headers"]["host"] == other.url.removeprefix("http://")
    assert [each["headers"]["x-tenant"] for each in api.asked()] == ["hunter2hunter2"] * 2


def test_a_body_given_by_reference_goes_nowhere_else(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENANT_TOKEN", "hunter2hunter2")
    with running_api() as other:
        api.script("/x", {"status": 307, "headers": {"Location": f"{other.url}/x"}})
        body = '{"id": "{id}", "token": "${env:TENANT_TOKEN}"}'
        table = table_of(api, "/x", method="post", body=body, allowed_origins=other.url)
        error = failure(table)
        assert other.asked() == []
    assert error.permanent
    assert f"a redirect leads to {other.url}, and 'body' holds a reference, which is for {api.url}" in str(
        error
    )


# --- keys of other alphabets ----------------------------------------------------------------------

TEXT_KEY = pa.schema([("name", pa.string()), ("target", pa.string())])
STRANGE = ["Zo\u00eb \u6771\u4eac", "a/b?c#d&e=f%41+g", "tab\tline\nnull\0", "\U0001f600"]


@pytest.mark.parametrize("key", STRANGE)
def test_every_character_of_a_key_arrives_in_paths_and_queries(api: Api, key: str) -> None:
    for url in ("/echo/{name}", "/echo?n={name}"):
        [row] = ask(table_of(api, url, TEXT_KEY), {"name": [key]})
        assert row["target"].isascii()
        assert unquote(row["target"]).removeprefix("/echo").lstrip("/")[-len(key) :] == key


@pytest.mark.parametrize("key", ["Zo\u00eb", "line\nbreak", "\u6771\u4eac"])
def test_a_key_that_no_header_can_hold_is_an_error_and_no_miss(api: Api, key: str) -> None:
    table = table_of(api, "/echo", TEXT_KEY, header__X_Name="the {name}")
    error = failure(table, name=key)
    assert error.permanent
    assert f"table people: header 'X-Name' cannot hold the key name = {key!r}" in str(error)
    assert "Send this column in 'url', 'query' or 'body'" in str(error)
    assert api.asked() == []


@pytest.mark.parametrize("key", [" Ada", "Ada ", " "])
def test_a_key_whose_blanks_a_header_loses_is_an_error_and_not_another_key(api: Api, key: str) -> None:
    table = table_of(api, "/echo", TEXT_KEY, header__X_Name="{name}")
    error = failure(table, name=key)
    assert error.permanent
    assert f"header 'X-Name' cannot hold {key!r}: servers drop blanks at its ends" in str(error)
    assert api.asked() == []
    inside = table_of(api, "/echo", TEXT_KEY, header__X_Name="<{name}>")
    assert ask(inside, {"name": [key]})


def test_a_key_with_the_text_of_another_one_is_an_error_and_not_its_row(api: Api) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string()), ("target", pa.string())])
    for url in ("/echo/{a}-{b}", "/echo?x={a}-{b}"):
        table = table_of(api, url, schema)
        [row] = ask(table, {"a": ["a"], "b": ["b-c"]})
        assert row["target"].endswith("a-b-c")
        error = failure(table, a="a-b", b="c")
        assert error.permanent
        assert "table people: the key a = 'a-b', b = 'c' has the same text as another one" in str(error)


def test_a_key_that_holds_the_comma_of_its_list_is_an_error_and_no_miss(api: Api) -> None:
    for path in ("/echo?ids={name}", "/echo/{name}"):
        error = failure(table_of(api, path, TEXT_KEY, keys_per_request="9"), name="a,b")
        assert error.permanent
        assert "the key name = 'a,b' holds the comma that separates the keys of a request" in str(error)
        assert "'list-style' = 'repeat'" in str(error)
    assert api.asked() == []


# --- JSON that is nested deep ---------------------------------------------------------------------


@pytest.mark.parametrize("depth", [400, 2_000, 50_000])
def test_json_that_is_nested_deep_names_table_and_column(api: Api, depth: int) -> None:
    body = '{"name": ' + "[" * depth + "]" * depth + "}"
    api.script("/x/1", {"status": 200, "body": body})
    error = failure(table_of(api, "/x/{id}"))
    assert error.permanent
    assert "table people: " in str(error)
    assert re.search(r"column 'name' of|the columns id, name cannot be found", str(error))
    assert re.search(r"nested too deep|does not fit STRING", str(error))
