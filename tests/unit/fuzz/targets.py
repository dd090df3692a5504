"""A target for each parser of what comes from outside: bytes in, an error of ours or nothing out.

A target raises only for a bug. ``SEEDS`` has a few good inputs of each, and each input that found a bug.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from gzip import compress
from pathlib import Path

import pyarrow as pa
from lookup_connectors.http.client import BodyTooLarge, decoded
from lookup_connectors.http.connection import BrokenOff
from lookup_connectors.http.headers import next_link, reported_pause
from lookup_connectors.http.response import Response, ResponseReader
from lookup_connectors.postgres.url import parameters_of, target_of
from lookup_connectors.shared.json_paths import PathFailure, named, parse_path

from lookup_hints.cache.store.segment_entries import content_of
from lookup_hints.cache.store.segment_files import Encoded, NotASegment, _decode_segment
from lookup_hints.cli.completion import candidates
from lookup_hints.cli.import_http_tables import NoTable
from lookup_hints.cli.import_openapi import read as read_openapi
from lookup_hints.errors import ConnectorError, LookupHintsError, QueryError
from tests.unit.cache.support import learned
from tests.unit.connectors.mmdb_file import mmdb
from tests.unit.connectors.test_http_client import asked_connection
from tests.unit.connectors.test_mmdb import FILE, ask, connected, table_of
from tests.unit.fuzz import servers, this_machine
from tests.unit.plan.test_mutations import read as read_statement

MOST_BODY = 10**6


def json_paths(data: bytes) -> None:
    """A path, a line break, and the document."""
    text, _, document = data.decode("utf-8", "replace").partition("\n")
    try:
        found, path = json.loads(document), parse_path(text)
    except (ValueError, RecursionError):
        return
    with suppress(PathFailure):
        path.find(found)
    assert isinstance(path.way, tuple)
    assert isinstance(path.leads_into_elements, bool)


def headers(data: bytes) -> None:
    """A status and lines of headers: links to a next page, and times to come back."""
    lines = (line.partition(":") for line in data.decode("latin-1").split("\n"))
    told = {name.strip().lower(): value.strip() for name, _, value in lines}
    with suppress(ValueError):
        next_link(told.get("link", ""), "https://api.example/a?b")
    for status in (200, 429):
        pause = reported_pause(status, told, 1.8e9)
        assert pause is None or 0 <= pause <= 7 * 86400


def http_response(data: bytes) -> None:
    """The bytes of a connection, in pieces as long as the first byte says."""
    step = 1 + data[0] if data else 1
    with asked_connection() as (connection, sink):
        for start in range(1, len(data), step):
            connection.data_received(data[start : start + step])
        connection.connection_lost(None)
        assert sink.done(), "somebody waits for ever"
        with suppress(BrokenOff, asyncio.InvalidStateError, ConnectorError):
            response = sink.result()
            with suppress(zlib.error, OSError, BodyTooLarge):
                body = decoded(response.body, response.headers.get("content-encoding", ""), MOST_BODY)
                assert len(body) <= MOST_BODY
                response = response._replace(body=body)
            _read_rows(response)


def _read_rows(response: Response) -> None:
    schema = pa.schema({"id": pa.int64(), "name": pa.string(), "price": pa.decimal128(9, 2)})
    reader = ResponseReader(
        "t", named("rows"), None, {name: named(name) for name in schema.names}, frozenset(), frozenset(), True
    )
    document = reader.document(response)
    if document is not None:
        reader.found(document)


def content_codings(data: bytes) -> None:
    """The names of codings, a line break, and the body."""
    codings, _, body = data.partition(b"\n")
    with suppress(zlib.error, OSError, BodyTooLarge):
        assert len(decoded(body, codings.decode("latin-1"), MOST_BODY)) <= MOST_BODY


def postgres_url(data: bytes) -> None:
    with suppress(ValueError):
        target_of(parameters_of(data.decode("utf-8", "replace")))


def statements(data: bytes) -> None:
    """DDL, hints and queries, as far as they go without Spark."""
    with suppress(QueryError):
        read_statement(data.decode("utf-8", "replace"), None, {})


class _Names:
    def tables(self) -> list[str]:
        return ["customers", "odd `name"]

    def columns(self, table: str) -> list[str]:
        return ["id", "country"]


def completion(data: bytes) -> None:
    """What an editor sends: a text, and where its cursor is by the first byte."""
    text = data[1:].decode("utf-8", "replace")
    candidates(text, data[0] * len(text) // 255 if data else 0, _Names())


def openapi(data: bytes) -> None:
    with suppress(ValueError, NoTable, RecursionError):
        document = json.loads(data)
        if isinstance(document, dict):
            for each in read_openapi(document):
                str(each)


def mmdb_file(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".mmdb") as file:
        file.write(data)
        file.flush()
        with suppress(LookupHintsError):
            connector = connected(table_of(Path(file.name), {"country": pa.string(), "few": pa.int64()}))
            try:
                ask(connector, "81.2.69.161", "2001:218::1", "9.9.9.9")
            finally:
                connector.close()


def cache_segment(data: bytes) -> None:
    with suppress(NotASegment):
        _decode_segment(pa.py_buffer(data), None)


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        json_paths,
        headers,
        http_response,
        content_codings,
        postgres_url,
        statements,
        completion,
        openapi,
        mmdb_file,
        cache_segment,
        servers.redis_replies,
        servers.packed_columns,
        servers.pages,
        servers.urls,
        this_machine.scripts,
        this_machine.settings,
        this_machine.limits_file,
        this_machine.cache_notes,
        this_machine.editor_messages,
    )
}

_OPENAPI = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://{region}.example/v1", "variables": {"region": {"default": "eu"}}}],
    "paths": {
        "/customers/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {
                "operationId": "getCustomer",
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/C"}}}}
                },
            },
        }
    },
    "components": {
        "schemas": {
            "C": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "parent": {"$ref": "#/components/schemas/C"}},
            }
        },
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    },
    "security": [{"key": []}],
}


@cache
def _segment() -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        Encoded(content_of([learned({1: ["Ada"], 2: ["Emmy", "Eve"], 3: []})])).write(file.fileno())
        return Path(file.name).read_bytes()


def seeds() -> Mapping[str, tuple[bytes, ...]]:
    """Good inputs of each target, and those that found a bug, some of them in files."""
    found = Path(__file__).parent / "found"
    return {
        name: (*good, *(each.read_bytes() for each in sorted(found.glob(f"{name}-*"))))
        for name, good in _good_inputs().items()
    }


def _good_inputs() -> Mapping[str, tuple[bytes, ...]]:
    ok = b"HTTP/1.1 200 OK\r\n"
    return {
        "json_paths": (
            b'a.b\n{"a": {"b": 1}}',
            b'rows[?id == `1`].{name: name, n: length(tags)} | [0]\n{"rows": [{"id": 1, "tags": []}]}',
            b'max_by(a, &b)[*].c[::2]\n{"a": [{"b": 1}]}',
        ),
        "headers": (
            b'link: <https://api.example/a?page=2>; rel="next", </x>; rel=last; title="a, b"',
            b"retry-after: Wed, 21 Oct 2026 07:28:00 GMT\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1800000060",
            b'ratelimit: "default";r=0;t=30\nratelimit-policy: "default";q=100;w=60',
        ),
        "http_response": (
            b"\xff" + ok + b'Content-Length: 22\r\n\r\n{"rows": [{"id": 1.5}]}',
            b"\x07" + ok + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n",
            b"\x30" + ok + b"Content-Encoding: gzip\r\n\r\n" + compress(b'{"rows": []}'),
            b"\x01" + ok + b"Content-Type: application/json; charset=iso-8859-1\r\n\r\n{}",
        ),
        "content_codings": (
            b"gzip\n" + compress(b"{}") + compress(b"[]"),
            b"deflate\n" + zlib.compress(b"{}"),
            b"gzip\n" + compress(b"") * 100_000,  # took 3 s, and four times as long for twice as many
            b"br\n\x0b\x00\x80{}\x03",
            b"zstd, gzip\n" + compress(b"x"),
        ),
        "postgres_url": (
            b"postgresql://ann:p%40ss@[::1]:5433,b.example/db?sslmode=require&target_session_attrs=read-write",
            b"host=a.example,b port=5432 user='an n' password='it\\'s' connect_timeout=3",
            b"postgresql+psycopg2://ann@/db?host=/tmp",
        ),
        "statements": (
            b"SELECT /*+ LOOKUP('table'='c', 'async'='true', 'retry-predicate'='lookup_miss') */ o.id, c.name "
            b"FROM orders o LEFT JOIN customers c ON c.id = o.id",
            b"CREATE TEMPORARY TABLE c (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'http', "
            b"'url' = 'https://${env:H}/{id}', 'lookup.cache' = 'PARTIAL')",
        ),
        "completion": (
            b"\xffSELECT /*+ LOOKUP('table'='c', 'as",
            b"\x80CREATE TABLE c (id INT) WITH ('connector' = 'postgres', 'dsn' = '')",
            b"\xf0SELECT c. FROM customers c JOIN `odd ``name` x",
        ),
        "openapi": (json.dumps(_OPENAPI).encode(),),
        "mmdb_file": (mmdb(FILE), mmdb(FILE, bits=24)),
        "cache_segment": (_segment(),),
        **servers.GOOD,
        **this_machine.good_inputs(),
    }
