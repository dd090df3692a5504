"""Targets for what servers answer, and for the texts that say where they are."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.http import HttpConnector
from lookup_connectors.http.client import HttpClient, MaySend
from lookup_connectors.http.connector import OpenHttp
from lookup_connectors.http.network import Connecting
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import Response
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres.packed_columns import unpacked
from lookup_connectors.redis import RedisConnector
from lookup_connectors.redis.commands_and_replies import Commands, answer, reading_of
from lookup_connectors.redis.connections import RedisEndpoint
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight
from redis.exceptions import NoPermissionError, ResponseError

from lookup_hints.errors import ConnectorError, LookupHintsError
from lookup_hints.spi import Connector, LookupTable
from tests.unit.connectors.asking import request_for

_SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "born": pa.date32(), "tags": pa.list_(pa.string())}
)
_PAGING: Sequence[Mapping[str, str]] = (
    {"paging": "link"},
    {"paging": "next_url", "paging-path": "next"},
    {"paging": "cursor", "paging-path": "meta.cursor", "paging-parameter": "after"},
    {"paging": "page", "paging-parameter": "page"},
    {"paging": "offset", "paging-parameter": "from", "page-size": "2"},
    {},
)
_WIRES = (
    "bigint",
    "float8",
    "boolean",
    "date",
    "timestamp",
    "timestamptz",
    "text",
    "json",
    "bytea",
    "floats",
)
_URLS: Mapping[str, tuple[type[Connector], str, Mapping[str, str]]] = {
    "redis": (RedisConnector, "url", {"key": "person:{id}"}),
    "mysql": (MysqlConnector, "url", {}),
    "http": (HttpConnector, "url", {}),
    "pages": (HttpConnector, "allowed-origins", {"url": "https://api.example/{id}"}),
    "adbc": (AdbcConnector, "uri", {"driver": "adbc_driver_postgresql"}),
    "adbc-file": (AdbcConnector, "uri", {"driver": "adbc_driver_sqlite"}),
}
PAGE_ENDS = b"\n--\n"


def redis_replies(data: bytes) -> None:
    """The kind of value, a line break, and replies in JSON: each command gets the next one, round and round."""
    kind, _, document = data.partition(b"\n")
    with suppress(ValueError, RecursionError):
        replies = json.loads(document)
        if isinstance(replies, list) and replies:
            _look_up_in_redis(kind.decode("latin-1"), list(map(_reply_of, replies)))


def _reply_of(node: Any) -> Any:
    """What redis-py makes of a reply: bytes, a number, nothing, a list of these, or an error."""
    if isinstance(node, list):
        return [_reply_of(each) for each in node]
    if isinstance(node, dict):
        text = " ".join(node)
        return NoPermissionError(text) if text.startswith("NOPERM") else ResponseError(text)
    return node.encode("utf-8", "surrogateescape") if isinstance(node, str) else node


def _look_up_in_redis(kind: str, replies: list[Any]) -> None:
    options = {"connector": "redis", "url": "redis://here", "key": "person:{id}", "value-type": kind}
    schema = pa.schema(list(_SCHEMA)[:2]) if kind == "string" else _SCHEMA
    with suppress(LookupHintsError):
        reading = reading_of(LookupTable("t", schema, options=options))
        steps = answer(reading, request_for(schema, {"id": [1, 2, 3]}), together=True)
        server = RedisEndpoint("t", "here:6379", {}, False, 1, lambda *_: None)
        commands: Commands = ()
        came: list[Any] | None = None
        number = 0
        while True:
            try:
                commands = server.handed_over(commands, came, steps)
            except StopIteration as stop:
                stop.value.rows.validate(full=True)
                return
            came = [replies[(number + place) % len(replies)] for place in range(len(commands))]
            number += len(commands)


def packed_columns(data: bytes) -> None:
    """The type of the wire by the first byte, the length of the first part in two bytes, and both parts."""
    wire, size = _WIRES[data[0] % len(_WIRES)] if data else "text", int.from_bytes(data[1:3], "big")
    try:
        column = unpacked(wire, data[3 : 3 + size], data[3 + size :])
    except ValueError:
        return
    # That texts are UTF-8 is the server's to see to.
    is_text = pa.types.is_string(column.type)
    (column.cast(pa.binary()) if is_text else column).validate(full=True)


class _Pages(HttpClient):
    """Answers with one page after the other, and then that there is none."""

    keeps_connections = False

    def __init__(self, pages: Iterator[Response]) -> None:
        connecting = Connecting("t", 1, 1.0, 1.0, 10**6, _TLS, None, False)
        super().__init__(connecting, BytesInFlight(10**9))
        self._pages = pages

    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        return next(self._pages, Response(404, {}, b""))

    async def close(self) -> None:
        pass


_TLS = ssl.create_default_context()


@cache
def _paged(number: int) -> HttpConnector:
    """An open connector that follows pages in the way of this number."""
    options = {
        "connector": "http",
        "url": "https://api.example/people/{id}",
        "rows": "rows",
        "max-pages": "20",
    }
    table = LookupTable("t", pa.schema(list(_SCHEMA)[:2]), options={**options, **_PAGING[number]})
    connector = HttpConnector(table)
    connector._live = OpenHttp(table)
    return connector


def pages(data: bytes) -> None:
    """The way of paging by the first byte; then pages, each of lines of headers, an empty line and a body."""
    connector = _paged(data[0] % len(_PAGING) if data else 0)
    live = connector._live
    assert live is not None
    live.client = live.exchange.client = _Pages(map(_page_of, data[1:].split(PAGE_ENDS)))
    with suppress(ConnectorError):
        asyncio.run(connector.alookup(request_for(connector.table.schema, {"id": [1]})))


def _page_of(data: bytes) -> Response:
    head, _, body = data.partition(b"\n\n")
    lines = (line.partition(":") for line in head.decode("latin-1").split("\n"))
    return Response(200, {name.strip().lower(): value.strip() for name, _, value in lines}, body)


def urls(data: bytes) -> None:
    """What it is the address of, a line break, and the address."""
    name, _, address = data.decode("utf-8", "replace").partition("\n")
    if name in _URLS:
        kind, option, others = _URLS[name]
        with suppress(LookupHintsError):
            connector = kind(LookupTable("t", _SCHEMA, options={**others, option: address}))
            connector.check()
            connector.origin()
            if isinstance(connector, RedisConnector):
                RedisEndpoint.of(connector.table)
            if isinstance(connector, HttpConnector):
                OpenHttp(connector.table)


GOOD: Mapping[str, tuple[bytes, ...]] = {
    "redis_replies": (
        b'hash\n[["Ada", "1815-12-10", "[]"], [null, null, null], ["Bo", null, null], 1, 0, 3, 0]',
        b'string\n[["Ada", null, "Bo"], 1, null, {"WRONGTYPE Operation against": 0}]',
        b'json\n[["{\\"name\\": \\"Ada\\", \\"tags\\": [\\"x\\"]}", "[{\\"name\\": 1}, null]", null], 0]',
        b'hash\n[{"NOPERM no": 0}, [null, null, null], {"NOPERM no": 0}, 1]',
    ),
    "packed_columns": (
        b"\x00\x00\x10" + bytes(7) + b"\x05" + bytes(8) + b"\x01\x00",
        b"\x06\x00\x0c" + b"\x00\x00\x00\x03\xff\xff\xff\xff\x00\x00\x00\x02" + b"AdaBo",
        b"\x09\x00\x08" + b"\x00\x00\x00\x08\x00\x00\x00\x04" + bytes(12),
        b"\x02\x00\x02\x01\x00\x01\x01",
    ),
    "pages": (
        b"\x00link: <?page=2>; rel=next\n\n"
        + b'{"rows": [{"id": 1, "name": "a"}]}'
        + PAGE_ENDS
        + b"\n\n"
        + b'{"rows": []}',
        b'\x01\n\n{"rows": [{"name": "a"}], "next": "/people/1?p=2"}'
        + PAGE_ENDS
        + b'\n\n{"rows": [{"name": "b"}]}',
        b'\x02\n\n{"rows": [{"name": "a"}], "meta": {"cursor": 1.5}}'
        + PAGE_ENDS
        + b'\n\n{"rows": [], "meta": {}}',
        b'\x03x-total-pages: 2\n\n{"rows": [{"name": "a"}], "total": 2}' + PAGE_ENDS + b'\n\n{"rows": []}',
        b'\x04content-range: items 0-1/3\n\n{"rows": [{"name": "a"}, {"name": "b"}]}',
        b'\x05\n\n{"rows": [{"name": "a"}], "has_more": true, "total_count": 10}',
    ),
    "urls": (
        b"redis\nrediss://ann:p%40ss@[::1]:6380/2",
        b"mysql\nmysql://ann:p%40ss@db.example:3307/shop?sslmode=verify-ca",
        b"http\nhttps://api.example:8443/people/{id}?fields=a,b&x={id}",
        b"pages\nhttps://cdn.example:444, http://[::1]:81",
        b"adbc\npostgresql://ann@db:5432,b/shop?sslmode=require",
        b"adbc-file\nfile:/data/shop.db?mode=ro&cache=shared",
    ),
}
