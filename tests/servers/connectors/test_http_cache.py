"""Answers of HTTP that are kept as their headers allow: what is asked of the server, and what is not."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector, cache

from lookup_hints.errors import ConnectorError, OptionError
from lookup_hints.spi.model import LookupTable, Miss, RowRequest, Rows
from lookup_hints.spi.reporting import NOBODY, reporting_to
from tests.servers.connectors import http_asking
from tests.servers.connectors.http_asking import SCHEMA, connector_of, rows_of, table_of, taking_turns
from tests.servers.http_server import Api
from tests.unit.connectors.asking import request_for

ONE = {"id": 1, "name": "n1"}
NEW = {"id": 1, "name": "new"}


@pytest.fixture(autouse=True, params=["fast", "httpx"])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds over each client."""
    monkeypatch.setattr(http_asking, "ENGINE", request.param)


@pytest.fixture(autouse=True)
def _warn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_warned", set())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the engine gives one."""
    path = tmp_path / "kept"
    path.mkdir(mode=0o700)
    return path


class Told:
    """Counts the lookups that were answered without the server."""

    def __init__(self) -> None:
        self.recalled_lookups = 0

    def recalled(self) -> None:
        self.recalled_lookups += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(NOBODY, name)


def cached(api: Api, path: str = "/people/{id}", schema: pa.Schema = SCHEMA, **options: str) -> LookupTable:
    """A table whose answers are kept."""
    return table_of(api, path, schema, http__cache="true", **options)


def ask(
    table: LookupTable,
    folder: Path | None,
    key: dict[str, Any] | None = None,
    *,
    attempt: int = 1,
    kept_as: str | None = "",
    told: Any = NOBODY,
) -> list[dict[str, Any]]:
    """The rows of one key, asked by a connector that is opened for it."""

    async def run() -> list[dict[str, Any]]:
        connector = connector_of(table)
        if folder is not None:
            connector.keep_in(folder)
        await connector.aopen()
        try:
            request = RowRequest(key or {"id": 1}, table.schema, 30.0, attempt, kept_as)
            rows = await connector.alookup_row(request)
            found: list[dict[str, Any]] = []
            if not isinstance(rows, Miss):
                found = connector.rows_as_table([(request, row) for row in rows], table.schema).to_pylist()
            return found
        finally:
            await connector.aclose()

    with taking_turns(), reporting_to(told):
        return asyncio.run(run())


def says(api: Api, body: Any = ONE, path: str = "/people/1", *, status: int = 200, **headers: Any) -> None:
    """Answer the next request for ``path`` so; ``_`` in names of headers is a hyphen, a number a moment."""
    named = {
        name.replace("_", "-"): http_date(text) if isinstance(text, int) else text
        for name, text in headers.items()
    }
    api.script(path, {"status": status, "body": body, "headers": named})


def name_in(rows: Rows) -> str:
    """The name in the one row of a key."""
    assert not isinstance(rows, Miss)
    (found,) = rows
    name: str = found.row["name"]
    return name


def http_date(seconds: float) -> str:
    """That moment from now, as HTTP writes it."""
    return formatdate(time.time() + seconds, usegmt=True)


# --- what is fresh ----------------------------------------------------------------------------------


def test_an_error_inside_a_200_is_never_kept(api: Api, folder: Path) -> None:
    table = cached(api, "/x/{id}", rows="user")
    says(api, {"ok": False, "error": "invalid_auth"}, "/x/1", cache_control="max-age=60")
    with pytest.raises(ConnectorError, match="says that it failed"):
        ask(table, folder)
    says(api, {"ok": True, "user": ONE}, "/x/1", cache_control="max-age=60")
    assert ask(table, folder) == [ONE]
    assert ask(table, folder) == [ONE]
    assert api.targets() == {"/x/1": 2}


@pytest.mark.parametrize(
    "headers",
    [
        {"Cache_Control": "max-age=9000"},
        {"Cache_Control": "private, max-age=9000"},
        {"Cache_Control": "max-age=9000", "Date": -20},
        {"Cache_Control": "max-age=9000", "Age": "20"},
        {"Cache_Control": "max-age=9000", "Expires": "0"},
        {"Expires": 9000},
        {"Expires": 9000, "Date": 0},
        {"Date": 3600, "Expires": 12600},
    ],
    ids=str,
)
def test_a_fresh_answer_is_used_and_nothing_is_asked(api: Api, folder: Path, headers: dict[str, Any]) -> None:
    says(api, **headers)
    told = Told()
    assert [ask(cached(api), folder, told=told) for _ in range(3)] == [[ONE]] * 3
    assert (api.targets(), told.recalled_lookups) == ({"/people/1": 1}, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cache_Control": "no-store, max-age=9000"},
        {"Cache_Control": "no-cache, max-age=9000"},
        {"Cache_Control": "max-age=0"},
        {"Cache_Control": "max-age=soon"},
        {"Cache_Control": "s-maxage=60"},
        {"Cache_Control": "max-age=9000", "Age": "9000"},
        {"Cache_Control": "max-age=9000", "Date": -9001},
        {"Cache_Control": "max-age=9000", "Vary": "*"},
        {"Expires": "0"},
        {"Expires": 9000, "Age": "9500"},
        {"Expires": -1},
        {"Last_Modified": -30 * 86400},
    ],
    ids=str,
)
def test_any_other_answer_is_asked_for_again(api: Api, folder: Path, headers: dict[str, Any]) -> None:
    says(api, **headers)
    says(api, NEW)
    told = Told()
    assert [ask(cached(api), folder, told=told) for _ in range(2)] == [[ONE], [NEW]]
    assert (api.targets(), told.recalled_lookups) == ({"/people/1": 2}, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Cache_Control": '=;,"", max-age=', "ETag": ""},
        {"Cache_Control": "max-age=" + "9" * 40, "Age": "9" * 40},
        {"Cache_Control": "max-age=-1, max-age=x", "Age": "-5"},
        {"Expires": "Thu, 01 Jan 99999 00:00:00 GMT", "Date": "yesterday"},
        {"Expires": "", "Date": "Thu, 99 Jan 2026 00:00:00 GMT"},
        {"Last_Modified": "\xe9", "ETag": '"\xe9"', "Vary": ", ,"},
    ],
    ids=str,
)
def test_headers_that_make_no_sense_do_no_harm(
    api: Api, folder: Path, headers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        says(api, **headers)
    assert [ask(cached(api), folder) for _ in range(3)] == [[ONE]] * 3
    says(api, NEW, "/people/2", Cache_Control="max-age=9000")
    assert [ask(cached(api), folder, {"id": 2})[0]["name"] for _ in range(2)] == ["new", "new"]
    assert api.targets()["/people/2"] == 1
    assert not caplog.records


def test_without_the_option_or_a_folder_nothing_is_kept(api: Api, folder: Path) -> None:
    api.script(
        "/people/1", {"status": 200, "body": ONE, "headers": {"Cache-Control": "max-age=9000"}, "repeat": 1}
    )
    for _ in range(2):
        ask(table_of(api, "/people/{id}"), None)
        ask(cached(api), None)
    assert api.targets() == {"/people/1": 4}
    assert connector_of(table_of(api, "/people/{id}")).keeps() == ""
    assert connector_of(cached(api)).keeps() == "answers as long as their HTTP headers allow"


def test_a_query_may_do_without(api: Api, folder: Path) -> None:
    says(api, Cache_Control="max-age=9000")
    says(api, NEW, Cache_Control="max-age=9000")
    assert [ask(cached(api), folder, kept_as=name) for name in ("", None, "")] == [[ONE], [NEW], [ONE]]


def test_what_was_taken_back_is_kept_under_another_name(api: Api, folder: Path) -> None:
    says(api, Cache_Control="max-age=9000")
    says(api, NEW, Cache_Control="max-age=9000")
    assert [ask(cached(api), folder, kept_as=name) for name in ("", "s 1", "s 1")] == [[ONE], [NEW], [NEW]]


def test_each_page_is_kept(api: Api, folder: Path) -> None:
    schema = pa.schema([("customer", pa.int64()), ("order", pa.int64())])
    table = cached(
        api, "/list?customer={customer}&page=1", schema, paging="next_url", paging_path="next", rows="orders"
    )
    first = {"orders": [{"order": 1}], "next": "/list2"}
    says(api, first, "/list", Cache_Control="max-age=9000")
    says(api, {"orders": [{"order": 2}]}, "/list2", Cache_Control="max-age=9000")
    rows = [{"customer": 1, "order": 1}, {"customer": 1, "order": 2}]
    assert [ask(table, folder, {"customer": 1}) for _ in range(2)] == [rows, rows]
    assert sum(api.targets().values()) == 2


def test_many_keys_of_one_request_are_one_answer(api: Api, folder: Path) -> None:
    table = cached(api, "/people?ids={id}", rows="data", keys_per_request="9")
    says(api, {"data": [ONE]}, "/people", Cache_Control="max-age=9000")
    told = Told()

    def rows() -> list[dict[str, Any]]:
        connector = connector_of(table)
        connector.keep_in(folder)
        connector.open()
        with taking_turns(), reporting_to(told), closing(connector):
            return rows_of(connector.lookup(request_for(SCHEMA, {"id": [1, 2]})))

    assert [rows(), rows()] == [[ONE], [ONE]]
    assert (api.targets(), told.recalled_lookups) == ({"/people?ids=1,2": 1}, 1)


# --- what is confirmed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"ETag": '"a"'}, {"if-none-match": '"a"'}),
        ({"ETag": 'W/"a"', "Cache_Control": "no-cache"}, {"if-none-match": 'W/"a"'}),
        (
            {"Last_Modified": "Tue, 01 Jul 2025 10:00:00 GMT"},
            {"if-modified-since": "Tue, 01 Jul 2025 10:00:00 GMT"},
        ),
    ],
    ids=str,
)
def test_a_server_confirms_what_is_kept(
    api: Api, folder: Path, headers: dict[str, Any], sent: dict[str, str]
) -> None:
    says(api, **headers)
    says(api, "", status=304)
    says(api, "", status=304, Cache_Control="max-age=9000")
    assert [ask(cached(api), folder) for _ in range(4)] == [[ONE]] * 4
    first, *others = (each["headers"] for each in api.asked())
    assert len(others) == 2, "the last 304 says for how long it may be used"
    assert not first.keys() & sent.keys()
    assert [{name: each[name] for name in sent} for each in others] == [sent, sent]


def test_a_new_answer_takes_the_place_of_the_old_one(api: Api, folder: Path) -> None:
    says(api, ETag='"a"')
    says(api, NEW, ETag='"b"')
    says(api, "", status=304, ETag='"b"')
    assert [ask(cached(api), folder) for _ in range(3)] == [[ONE], [NEW], [NEW]]
    assert [each["headers"].get("if-none-match") for each in api.asked()] == [None, '"a"', '"b"']


def test_a_confirmation_of_something_else_is_asked_about(api: Api, folder: Path) -> None:
    says(api, ETag='"a"')
    says(api, "", status=304, ETag='"b"')
    says(api, NEW)
    assert [ask(cached(api), folder) for _ in range(2)] == [[ONE], [NEW]]
    assert [each["headers"].get("if-none-match") for each in api.asked()] == [None, '"a"', None]


def test_what_a_server_forbids_to_keep_ends_what_was_kept(api: Api, folder: Path) -> None:
    says(api, ETag='"a"')
    says(api, NEW, Cache_Control="no-store")
    says(api, ONE)
    assert [ask(cached(api), folder) for _ in range(3)] == [[ONE], [NEW], [ONE]]
    assert "if-none-match" not in api.asked()[-1]["headers"]


@pytest.mark.parametrize("status", [500, 501, 429, 400])
def test_a_failure_is_never_kept_and_leaves_what_is(api: Api, folder: Path, status: int) -> None:
    table = cached(api, on_throttle="fail")
    says(api, ETag='"a"')
    says(api, "", status=status, Cache_Control="max-age=9000", ETag='"z"')
    says(api, "", status=304)
    assert ask(table, folder) == [ONE]
    with pytest.raises(ConnectorError, match=str(status)):
        ask(table, folder)
    assert ask(table, folder) == [ONE]
    assert api.asked()[-1]["headers"]["if-none-match"] == '"a"'


# --- misses -----------------------------------------------------------------------------------------


def test_a_miss_is_kept_only_as_long_as_its_server_says(api: Api, folder: Path) -> None:
    says(api, "", status=404)
    says(api, "", status=404, Cache_Control="max-age=9000")
    assert [ask(cached(api), folder) for _ in range(3)] == [[], [], []]
    assert api.targets() == {"/people/1": 2}


def test_a_further_try_after_a_miss_asks_the_server_and_the_caches_between(api: Api, folder: Path) -> None:
    says(api, "", status=404, Cache_Control="max-age=9000")
    says(api, ONE, Cache_Control="max-age=9000")
    assert ask(cached(api), folder) == []
    assert [ask(cached(api), folder, attempt=n) for n in (2, 1)] == [[ONE], [ONE]]
    first, again = api.asked()
    assert ("cache-control" in first["headers"], again["headers"]["cache-control"]) == (False, "no-cache")


def test_a_further_try_after_rows_that_were_not_wanted_confirms_them(api: Api, folder: Path) -> None:
    says(api, Cache_Control="max-age=9000", ETag='"a"')
    says(api, "", status=304)
    assert [ask(cached(api), folder, attempt=n) for n in (1, 2, 1)] == [[ONE]] * 3
    assert api.asked()[-1]["headers"]["if-none-match"] == '"a"'
    assert api.targets() == {"/people/1": 2}


# --- whose it is ------------------------------------------------------------------------------------


def test_answers_to_other_headers_are_others(api: Api, folder: Path) -> None:
    schema = pa.schema([*SCHEMA, ("lang", pa.string())])
    table = cached(api, schema=schema, header__Accept_Language="{lang}")
    modified = "Tue, 01 Jul 2025 10:00:00 GMT"
    for name in ("eins", "un"):
        says(
            api, {"name": name}, Cache_Control="max-age=9000", Vary="Accept-Language", Last_Modified=modified
        )
    found = [ask(table, folder, {"id": 1, "lang": lang})[0]["name"] for lang in ("de", "fr", "de", "fr")]
    assert found == ["eins", "un", "eins", "un"]
    assert not any("if-modified-since" in each["headers"] for each in api.asked())


def test_an_answer_may_depend_on_a_token(api: Api, folder: Path) -> None:
    who = {
        "oauth2_token_url": f"{api.url}/token",
        "oauth2_client_id": "me",
        "oauth2_client_secret": "s3cret/+",
    }
    says(api, Cache_Control="max-age=9000", Vary="authorization")
    says(api, NEW, Cache_Control="max-age=9000", Vary="authorization")
    assert [ask(cached(api, **who), folder) for _ in range(2)] == [[ONE], [NEW]], (
        "each has a token of its own"
    )
    api.reset()
    says(api, Last_Modified=-9000, Vary="authorization")
    says(api, NEW, Last_Modified=-9000, Vary="authorization")
    assert [ask(cached(api, **who), folder, kept_as="a") for _ in range(2)] == [[ONE], [NEW]]
    assert not [each for each in api.asked() if "if-modified-since" in each["headers"]]
    api.reset()
    says(api, Cache_Control="max-age=9000")
    assert [ask(cached(api, **who), folder, kept_as="b") for _ in range(2)] == [[ONE], [ONE]]


def test_nothing_of_a_request_and_its_secrets_is_in_the_file(api: Api, folder: Path) -> None:
    table = cached(api, "/people/{id}?key=url-s3cret", token="s3cret-token", header__X_Tenant="tenant-name")
    says(api, Cache_Control="max-age=9000", Vary="Authorization, X-Tenant")
    ask(table, folder)
    ask(table, folder)
    assert api.targets() == {"/people/1?key=url-s3cret": 1}
    found = b"".join(each.read_bytes() for each in folder.iterdir())
    assert b"n1" in found
    assert not [text for text in (b"s3cret", b"tenant-name", b"people") if text in found]


# --- the file ---------------------------------------------------------------------------------------


def test_only_its_user_can_read_the_files(api: Api, folder: Path) -> None:
    table = cached(api)
    says(api, Cache_Control="max-age=9000")
    connector = connector_of(table)
    connector.keep_in(folder)

    async def run() -> dict[str, int]:
        await connector.aopen()
        try:
            await connector.alookup_row(RowRequest({"id": 1}, SCHEMA))
            return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}
        finally:
            await connector.aclose()

    modes = asyncio.run(run())
    assert len(modes) == 3, "the file has a journal while it is open"
    assert set(modes.values()) == {0o600}


ELSEWHERE = """
import json, sys
from pathlib import Path
from lookup_hints.spi.model import LookupTable
from tests.servers.connectors.http_asking import SCHEMA
from tests.servers.connectors.test_http_cache import ask

table = LookupTable("people", SCHEMA, (), json.loads(sys.argv[1]))
print(json.dumps(ask(table, Path(sys.argv[2]))))
"""


def test_processes_share_it(api: Api, folder: Path) -> None:
    table = cached(api)
    api.script(
        "/people/1", {"status": 200, "body": ONE, "headers": {"Cache-Control": "max-age=9000"}, "repeat": 1}
    )
    arguments = [sys.executable, "-c", ELSEWHERE, json.dumps(dict(table.options)), str(folder)]
    root = Path(__file__).resolve().parents[3]
    running = [subprocess.Popen(arguments, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [json.loads(each.communicate(timeout=120)[0]) for each in running] == [[ONE], [ONE]]
    asked = sum(api.targets().values())
    assert asked <= 2, "each may have asked before the other had an answer"
    assert ask(table, folder) == [ONE]
    assert sum(api.targets().values()) == asked


def test_many_lookups_at_once_are_answered_by_it(api: Api, folder: Path) -> None:
    for key in range(50):
        says(api, {"name": f"n{key}"}, f"/people/{key}", Cache_Control="max-age=9000")

    async def run() -> list[list[str]]:
        connector = connector_of(cached(api))
        connector.keep_in(folder)
        await connector.aopen()
        try:
            requests = [RowRequest({"id": key}, SCHEMA) for key in range(50)]
            found = [await asyncio.gather(*map(connector.alookup_row, requests)) for _ in range(2)]
            return [[name_in(row) for row in rows] for rows in found]
        finally:
            await connector.aclose()

    with taking_turns():
        names = asyncio.run(run())
    assert names == [[f"n{key}" for key in range(50)]] * 2
    assert sum(api.targets().values()) == 50


def _overwritten(path: Path) -> None:
    path.write_bytes(b"nothing that SQLite knows" * 1000)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _pages_lost(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))


def _of_another_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entries (id INT)")


def _body_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE streams SET chunk_data = ?", (json.dumps(NEW).encode(),))


def _lifetime_changed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        [data] = connection.execute("SELECT data FROM entries").fetchone()
        connection.execute("UPDATE entries SET data = ?", (data.replace(b"max-age=9000", b"max-age=9999"),))


def _folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _overwritten,
        _cut,
        _pages_lost,
        _of_another_program,
        _body_changed,
        _lifetime_changed,
        _folder_instead,
    ],
)
def test_a_damaged_file_is_not_used_and_warned_of_once(
    api: Api, folder: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    says(api, Cache_Control="max-age=9000")
    assert ask(cached(api), folder) == [ONE]
    [path] = folder.iterdir()
    damage(path)
    with caplog.at_level(logging.WARNING, "lookup_hints.cache"):
        assert [ask(cached(api), folder) for _ in range(2)] == [[ONE], [ONE]]
    assert api.targets() == {"/people/1": 3}
    warned = [each.getMessage() for each in caplog.records if each.name == "lookup_hints.cache"]
    assert len(warned) == 1
    assert warned[0].startswith("Lookup of people runs without its HTTP cache: ")


def test_a_confirmation_is_of_no_use_where_the_file_has_failed_meanwhile(
    api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(api, ETag='"a"')
    says(api, "", status=304)
    says(api, NEW)

    def failing(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    assert ask(cached(api), folder) == [ONE]
    monkeypatch.setattr(cache, "_end", failing)
    assert ask(cached(api), folder) == [NEW]


def test_it_holds_no_more_than_it_may(api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 256 * 1024)
    monkeypatch.setattr(cache, "READ_SECONDS", 0.0)
    large = {"id": 1, "name": "x" * 30_000}
    for key in range(20):
        says(api, large, f"/people/{key}", Cache_Control="max-age=9000")
        ask(cached(api), folder, {"id": key})
    [path] = folder.iterdir()
    assert path.stat().st_size < 400 * 1024
    assert ask(cached(api), folder, {"id": 19})[0]["name"] == large["name"]
    assert api.targets()["/people/19"] == 1


# --- what is refused --------------------------------------------------------------------------------


def test_a_missing_package_is_named_with_its_extra(
    api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = cached(api)
    connector = HttpConnector(table)
    connector.keep_in(folder)
    monkeypatch.setattr("lookup_connectors.http.connector.find_spec", lambda _: None)
    with pytest.raises(
        OptionError, match=r"needs the package hishel.*pip install 'lookup-hints\[http-cache\]'"
    ):
        connector.check()
    monkeypatch.delitem(sys.modules, "lookup_connectors.http.cache")
    monkeypatch.setitem(sys.modules, "hishel", None)
    with pytest.raises(
        ConnectorError, match=r"needs the package hishel.*on every worker.*\[http-cache\]"
    ) as got:
        asyncio.run(connector.aopen())
    assert got.value.permanent


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"method": "post", "body": '{"id": "{id}"}'},
            r"'http.cache' has no effect with 'method' = 'post': only answers to GET are kept",
        ),
        (
            {"header__Cache_Control": "max-age=0"},
            "'http.cache' = 'true' and 'header.Cache-Control' contradict",
        ),
        ({"header__If_None_Match": "*"}, "'http.cache' = 'true' and 'header.If-None-Match' contradict"),
    ],
)
def test_options_that_contradict_it_are_refused(api: Api, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        connector_of(cached(api, **options))


def test_the_option_may_not_be_a_reference(api: Api) -> None:
    with pytest.raises(OptionError, match=r"'http\.cache' may not be a reference"):
        connector_of(table_of(api, "/people/{id}", http__cache="${env:CACHE}"))
