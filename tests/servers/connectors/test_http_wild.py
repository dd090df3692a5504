"""The http connector against servers that bend HTTP and JSON: no wrong row, no hang, and an error that says why."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector

from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.certificates import Certificates
from tests.servers.connectors import http_asking
from tests.servers.connectors.http_asking import SCHEMA, ask, during, failure, rows_of, table_of
from tests.servers.http_server import Api
from tests.unit.connectors.asking import request_for

ONE = {"id": 1, "name": "n1"}
TWO = {"id": 2, "name": "n2"}
BODY = '{"name": "n1"}'


@pytest.fixture(autouse=True, params=http_asking.WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for keys that have a task each, and for keys that are started together."""
    http_asking.use_way(request.param, monkeypatch)


def one_after_the_other(table: LookupTable) -> list[Any]:
    """The rows of the keys 1 and 2, asked over one connection where the server lets it live."""

    async def ask_both(connector: HttpConnector) -> list[Any]:
        return [rows_of(await connector.alookup(request_for(SCHEMA, {"id": [key]}))) for key in (1, 2)]

    return during(table, ask_both)


# --- the line -------------------------------------------------------------------------------------


def answer(body: str, *headers: str) -> str:
    """A whole answer of status 200."""
    return "\r\n".join(["HTTP/1.1 200 OK", *headers, "", body])


WHOLE = answer(BODY, "Content-Length: 14")
ODD = {
    "trailers": answer(
        f"e;why=not\r\n{BODY}\r\n0\r\nContent-Encoding: gzip\r\nContent-Type: a/b; charset=utf-16\r\n\r\n",
        "Transfer-Encoding: chunked",
    ),
    "much news": "HTTP/1.1 102 Processing\r\nX: y\r\n\r\n" * 50 + WHOLE,
    "until the end": answer(BODY).replace("1.1", "1.0"),
    "1.0 with a length": answer(BODY, "Content-Length: 14").replace("1.1", "1.0"),
    "1.0 kept": answer(BODY, "Content-Length: 14", "Connection: keep-alive").replace("1.1", "1.0"),
    "closing": answer(BODY, "Content-Length: 14", "Connection: close"),
    "more than its length": WHOLE + "HTT",
    "garbage after it": WHOLE + "\0garbage",
    "garbage later": [WHOLE, "garbage"],
    "no reason": WHOLE.replace("200 OK", "200"),
}


@pytest.mark.parametrize("raw", ODD.values(), ids=ODD)
def test_odd_forms_are_read_and_disturb_no_other_key(api: Api, raw: str | list[str]) -> None:
    api.script("/people/1", {"raw": raw})
    assert one_after_the_other(table_of(api, "/people/{id}", connections="1")) == [[ONE], [TWO]]


def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(api: Api) -> None:
    api.script("/people/1", {"raw": [WHOLE + "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n", BODY]})
    assert one_after_the_other(table_of(api, "/people/{id}", connections="1")) == [[ONE], [TWO]]


BROKEN = {
    "too short": [answer(BODY, "Content-Length: 50").replace("1.1", "1.0")],
    "lengths that differ": answer(BODY, "Content-Length: 14", "Content-Length: 15"),
    "a chunk without a size": answer(f"x\r\n{BODY}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
    "another protocol": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "nothing but news": "HTTP/1.0 103 Early Hints\r\nLink: <a>\r\n\r\n",
    "a head without an end": [answer("", f"X: {'a' * 700_000}").rstrip(), "b" * 700_000],
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_breaks_http_may_pass_and_the_next_key_is_asked_anew(
    api: Api, raw: str | list[str], caplog: pytest.LogCaptureFixture
) -> None:
    # Twice, as what is lost on a kept connection is asked again.
    api.script("/people/1", {"raw": raw}, {"raw": raw})
    with caplog.at_level(logging.ERROR):
        error = failure(table_of(api, "/people/{id}", request_timeout="20 s"))
    assert not error.permanent
    assert f"the answer of {api.url} broke off" in str(error)
    assert not caplog.records, "nothing is told behind the user's back"


def test_a_head_that_drips_is_given_up(api: Api) -> None:
    api.script("/people/1", {"raw": ["HTTP/1.1 200 OK\r\n", *["X: y\r\n"] * 600]})
    started = time.monotonic()
    error = failure(table_of(api, "/people/{id}", request_timeout="1 s"))
    assert time.monotonic() - started < 20, "to its end it takes 30 s"
    assert f"no answer from {api.url} within 1 s ('request-timeout')" in str(error)


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_server_that_closes_after_some_answers_costs_nothing(api: Api, method: str) -> None:
    body = {"body": '{"ids": ["{id}"]}'} if method == "post" else {}
    path = "/people" if method == "post" else "/people?ids={id}"
    last = {"status": 200, "body": {"data": [ONE, TWO]}, "last": True}
    api.script("/people", last, last, last)
    table = table_of(api, path, rows="data", method=method, connections="1", keys_per_request="2", **body)

    async def four_times(connector: HttpConnector) -> list[Any]:
        request = request_for(SCHEMA, {"id": [1, 2]})
        return [rows_of(await connector.alookup(request)) for _ in range(4)]

    assert during(table, four_times) == [[ONE, TWO]] * 4


def zipped(coding: str, content: bytes) -> dict[str, Any]:
    """An answer in a content coding."""
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(content)}\r\n\r\n"
    return {"raw": head + content.decode("latin-1")}


def bare(content: bytes) -> bytes:
    """Deflated without a header."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


def by_arrow(codec: str, content: bytes) -> bytes:
    """Compressed with what pyarrow has: brotli, zstd."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def test_codings_are_undone_whatever_they_are_called(api: Api) -> None:
    content = BODY.encode()
    for coding, sent in (
        ("gzip", gzip.compress(content)),
        ("X-GZip", gzip.compress(content)),
        ("gzip", gzip.compress(content[:5]) + gzip.compress(content[5:]) + gzip.compress(b"\n")),
        ("gzip", gzip.compress(content) + b"\0\0"),
        ("deflate", zlib.compress(content)),
        ("deflate", bare(content)),
        ("deflate, gzip", gzip.compress(zlib.compress(content))),
        ("br", by_arrow("brotli", content)),
        ("ZSTD", by_arrow("zstd", content)),
        ("zstd, br", by_arrow("brotli", by_arrow("zstd", content))),
        ("utf-8", content),
    ):
        api.script("/people/1", zipped(coding, sent))
        assert ask(table_of(api, "/people/{id}"), {"id": [1]}) == [ONE]
    api.script("/people/1", zipped("compress", b"\x1f\x9d\x80"))
    assert "(without a content type, encoded as compress)" in str(failure(table_of(api, "/people/{id}")))
    for coding, cut, why in (
        ("gzip", gzip.compress(content)[:-4], "it has no end"),
        ("gzip", gzip.compress(content[:5]) + gzip.compress(content[5:])[:-4], "it has no end"),
        ("br", by_arrow("brotli", content)[:-4], "Truncated compressed stream"),
        ("zstd", by_arrow("zstd", content)[:-4], "Truncated compressed stream"),
    ):
        api.script("/people/1", zipped(coding, cut))
        assert f"it is not {coding} ({why})" in str(failure(table_of(api, "/people/{id}")))


def test_codings_are_asked_for_that_can_be_undone(api: Api) -> None:
    ask(table_of(api, "/people/{id}"), {"id": [1]})
    [asked] = api.asked()
    assert asked["headers"]["accept-encoding"] == "gzip, deflate, br, zstd"


def test_a_bomb_in_a_bomb_is_refused(api: Api) -> None:
    inner = gzip.compress(b" " * 50_000_000)
    for coding, sent in (
        ("gzip", inner),
        ("gzip, gzip", gzip.compress(inner)),
        ("gzip", gzip.compress(b" " * 60_000) * 2),
        ("br", by_arrow("brotli", b" " * 50_000_000)),
        ("zstd", by_arrow("zstd", b" " * 50_000_000)),
    ):
        api.script("/people/1", zipped(coding, sent))
        error = failure(table_of(api, "/people/{id}", max_response_bytes="100000"))
        assert "a response is larger than 100000 bytes ('max-response-bytes')" in str(error)


class _Person(BaseHTTPRequestHandler):
    """HTTP/1.0, as Python's own server speaks it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"name": self.headers["Host"]}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _OnIpv6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@contextmanager
def on_ipv6() -> Iterator[int]:
    """The port of a server on [::1]."""
    try:
        server = _OnIpv6(("::1", 0), _Person)
    except OSError:
        pytest.skip("there is no IPv6 here")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_host_may_be_an_ipv6_address() -> None:
    with on_ipv6() as port:
        options = {"url": f"http://[::1]:{port}/people/{{id}}"}
        rows = ask(LookupTable("people", SCHEMA, (), options), {"id": [1]})
    assert rows == [{"id": 1, "name": f"[::1]:{port}"}]


def test_a_redirect_from_tls_to_plain_http_is_refused(api: Api, certificates: Certificates) -> None:
    api.script("/people/1", {"status": 302, "headers": {"Location": f"http://localhost:{api.tls_port}/x"}})
    options = {
        "url": f"https://localhost:{api.tls_port}/people/{{id}}",
        "tls-ca": str(certificates.authority),
    }
    error = failure(LookupTable("people", SCHEMA, (), options))
    assert f"a redirect leads to http://localhost:{api.tls_port}, which is not allowed" in str(error)


# --- JSON -----------------------------------------------------------------------------------------

FIGURES = pa.schema([("id", pa.int64()), ("name", pa.string()), ("d", pa.float64())])


@pytest.mark.parametrize(
    ("body", "row"),
    [
        ('{"d": NaN}', "{'id': 1, 'name': None, 'd': nan}"),
        ('{"d": "-Infinity"}', "{'id': 1, 'name': None, 'd': -inf}"),
        ('{"d": 12345678901234567890}', "{'id': 1, 'name': None, 'd': 1.2345678901234567e+19}"),
        ('{"name": "a", "name": "b"}', "{'id': 1, 'name': 'b', 'd': None}"),
        ('\ufeff {"name": "a\\u0000b"}\r\n', "{'id': 1, 'name': 'a\\x00b', 'd': None}"),
        ('[null, {"name": "a"}, null]', "{'id': 1, 'name': 'a', 'd': None}"),
    ],
)
def test_what_json_leaves_open_is_read_so(api: Api, body: str, row: str) -> None:
    api.script("/x/1", {"status": 200, "body": body.encode().decode("latin-1")})
    [found] = ask(table_of(api, "/x/{id}", FIGURES), {"id": [1]})
    assert repr(found) == row


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (
            "[" * 100_000 + "]" * 100_000,
            "",
            "the JSON is nested too deep to be read, so the columns id, name",
        ),
        ('{"name": "\xe4"}', "", "the body is not JSON (application/json)"),
        (
            BODY,
            "application/json; charset=klingon",
            "the body is not JSON (application/json; charset=klingon)",
        ),
        (BODY, "application/json; charset=zlib", "the body is not JSON"),
        (
            '{"name": "a"}\n{"name": "b"}',
            "application/x-ndjson",
            "the body is not JSON (application/x-ndjson)",
        ),
        ('{"name": "\\ud800"}', "", "column 'name' of the row for id = 1 (path name): '\\ud800' (str)"),
        (
            '{"d": "1_000"}',
            "",
            "column 'd' of the row for id = 1 (path d): '1_000' (str) does not fit DOUBLE",
        ),
        ('{"d": " 1"}', "", "' 1' (str) does not fit DOUBLE"),
        ('{"id": 18446744073709551617}', "", "none of the columns"),
    ],
)
def test_what_is_no_json_or_no_value_says_so(api: Api, body: str, kind: str, shown: str) -> None:
    api.script("/x/1", {"status": 200, "body": body, "type": kind or "application/json"})
    error = failure(table_of(api, "/x/{id}", FIGURES, **{"path__id": "key"} if '"id"' in body else {}))
    assert error.permanent
    assert shown in str(error)


# --- whose rows they are --------------------------------------------------------------------------

MANY = {"keys_per_request": "9"}


def test_rows_of_keys_that_were_not_asked_are_refused_where_they_are_all_that_came(api: Api) -> None:
    table = table_of(api, "/x?ids={id}", **MANY)
    stranger = {"id": 8, "name": "z"}
    api.script("/x", {"status": 200, "body": [stranger, stranger, ONE]})
    assert ONE in ask(table, {"id": [1, 2]}), "the engine drops the others"
    api.script("/x", {"status": 200, "body": [stranger, stranger]})
    error = failure(table)
    assert error.permanent
    assert "every row that came is of a key that was not asked: id = 8, where 1 was asked" in str(error)


@pytest.mark.parametrize("id_", ['"1"', "1.0", "true", "null", "18446744073709551617"])
def test_a_key_of_another_type_is_an_error_and_no_miss(api: Api, id_: str) -> None:
    api.script("/x", {"status": 200, "body": f'[{{"id": {id_}, "name": "a"}}]'})
    error = failure(table_of(api, "/x?ids={id}", **MANY))
    assert error.permanent
    assert "column 'id' of the row of the answer" in str(error)


def test_a_key_twice_in_an_answer_has_two_rows(api: Api) -> None:
    api.script("/x", {"status": 200, "body": [ONE, {**ONE, "name": "again"}]})
    assert ask(table_of(api, "/x?ids={id}", **MANY), {"id": [1, 2]}) == [ONE, {**ONE, "name": "again"}]


def test_a_key_that_has_a_path_must_be_in_the_row_and_be_the_one_that_was_asked(api: Api) -> None:
    table = table_of(api, "/x?id={id}", path__id="id")
    api.script("/x", {"status": 200, "body": [ONE]})
    assert ask(table, {"id": [1]}) == [ONE]
    api.script("/x", {"status": 200, "body": [ONE, TWO]})
    error = failure(table)
    assert error.permanent
    assert "the row that came is of a key that was not asked: id = 2, where 1 was asked" in str(error)
    api.script("/x", {"status": 200, "body": [{"name": "a"}]})
    assert "id = None, where 1 was asked" in str(failure(table))


def test_a_key_without_a_path_is_what_was_asked(api: Api) -> None:
    api.script("/x", {"status": 200, "body": [{"id": 77, "name": "an order"}]})
    assert ask(table_of(api, "/x?customer={id}"), {"id": [1]}) == [{"id": 1, "name": "an order"}]


# --- pages ----------------------------------------------------------------------------------------


def paged(api: Api, kind: str, **options: str) -> LookupTable:
    """A table whose rows come in pages."""
    return table_of(api, "/x/{id}", rows="rows", paging=kind, **options)


def page(name: str, following: Any) -> dict[str, Any]:
    """One page."""
    return {"status": 200, "body": {"rows": [{"name": name}], "next": following}}


@pytest.mark.parametrize("following", [{"a": 1}, [1], True])
def test_a_way_to_the_next_page_that_is_none_is_an_error(api: Api, following: Any) -> None:
    for kind, options in (("next_url", {}), ("cursor", {"paging_parameter": "c"})):
        api.script("/x/1", page("a", following))
        error = failure(paged(api, kind, paging_path="next", **options))
        assert error.permanent
        assert "'paging-path', next, cannot be followed:" in str(error)


def test_a_path_that_cannot_be_followed_to_the_next_page_is_an_error(api: Api) -> None:
    api.script("/x/1", page("a", 5))
    error = failure(paged(api, "cursor", paging_path="length(next)", paging_parameter="c"))
    assert "'paging-path', length(next), cannot be followed: In function length()" in str(error)


def test_a_next_page_that_is_not_there_cuts_nothing_off(api: Api) -> None:
    api.script("/x/1", page("a", "/gone"))
    error = failure(paged(api, "next_url", paging_path="next"))
    assert error.permanent
    assert "the next page is not there (404)" in str(error)
    api.script("/x/1", page("a", None), {"status": 404})
    assert ask(paged(api, "page", paging_parameter="p"), {"id": [1]}) == [{"id": 1, "name": "a"}]


def test_a_cursor_goes_into_a_form(api: Api) -> None:
    api.script("/x", page("a", "c 2"), page("b", 1.5), page("c", None))
    table = table_of(
        api, "/x", method="post", body="id={id}&after=0", body_format="form", rows="rows",
        paging="cursor", paging_path="next", paging_parameter="after",
    )  # fmt: skip
    assert [row["name"] for row in ask(table, {"id": [1]})] == ["a", "b", "c"]
    assert [each["body"] for each in api.asked()] == ["id=1&after=0", "id=1&after=c%202", "id=1&after=1.5"]
