"""Columns that the server packs hold what plain asyncpg reads, whatever the values; by hand with EXAMPLES=100000."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import struct
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.postgres.lookup_sql import joined

from lookup_hints.errors import AnswerTooLarge
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from tests.kinds import EXAMPLES
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import ask, during, failure_of, request_for, rows_of

ROWS = max(200, EXAMPLES)
_numbers = itertools.count(1)
_MOMENTS = (datetime.max - datetime.min) // timedelta(microseconds=1)
_CHARACTERS = "ab,;'\"\\\\x00\x1e\x1f\n\r\t\x01 é漢👋"

Draw = Callable[[random.Random], Any]


def _signed(bits: int) -> Draw:
    return lambda chance: chance.choice(
        [0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), chance.getrandbits(bits) - 2 ** (bits - 1)]
    )


def _float(code: str, size: int) -> Draw:
    def draw(chance: random.Random) -> float:
        drawn: float = struct.unpack(code, chance.randbytes(size))[0]
        return chance.choice(
            [drawn, drawn, 0.0, -0.0, math.inf, -math.inf, math.nan, 0.1 if size == 8 else 0.5]
        )

    return draw


def _decimal(digits: int, scale: int) -> Draw:
    return lambda chance: (
        Decimal(chance.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)
        if chance.random() < 0.9
        else Decimal(chance.choice([0, 1, -1]))
    )


def _moment(chance: random.Random) -> datetime:
    # Days inside the first and the last: the driver writes these as '-infinity' and 'infinity'.
    later = timedelta(days=1, microseconds=chance.randrange(_MOMENTS - 2 * 86_400_000_000))
    return chance.choice([datetime.min, datetime.min + later - timedelta(days=1)]) + timedelta(days=1)


def _text(chance: random.Random) -> str:
    return "".join(chance.choices(_CHARACTERS, k=chance.choice([0, 1, 2, 9, 300])))


def _plain(value: Any) -> Any:
    return value


def _time(value: time | str) -> str:
    text = str(value)
    return text.rstrip("0") if "." in text else text


TYPES: dict[str, tuple[str, pa.DataType, Draw, Callable[[Any], Any]]] = {
    "bool": ("bool", pa.bool_(), lambda chance: chance.random() < 0.5, _plain),
    "int2": ("int2", pa.int16(), _signed(16), _plain),
    "int4": ("int4", pa.int32(), _signed(32), _plain),
    "int8": ("int8", pa.int64(), _signed(64), _plain),
    "float4": ("float4", pa.float32(), _float("<f", 4), repr),
    "float8": ("float8", pa.float64(), _float("<d", 8), repr),
    "numeric": ("numeric", pa.decimal128(38, 10), _decimal(38, 10), _plain),
    "numeric(18,2)": ("numeric(18,2)", pa.decimal128(18, 2), _decimal(18, 2), _plain),
    "numeric(18)": ("numeric(18)", pa.int64(), _decimal(18, 0), int),
    "date": ("date", pa.date32(), lambda chance: _moment(chance).date(), _plain),
    "timestamp": ("timestamp", TIMESTAMP_NTZ, _moment, _plain),
    "timestamptz": (
        "timestamptz",
        TIMESTAMP,
        lambda chance: _moment(chance).replace(tzinfo=timezone.utc),
        _plain,
    ),
    "interval": (
        "interval",
        pa.duration("us"),
        lambda chance: timedelta(microseconds=chance.randrange(-(10**15), 10**15)),
        _plain,
    ),
    "time": (
        "time",
        pa.string(),
        lambda chance: time(chance.randrange(24), 59, 0, chance.randrange(10**6)),
        _time,
    ),
    "uuid": ("uuid", pa.string(), lambda chance: uuid.UUID(bytes=chance.randbytes(16)), str),
    "text": ("text", pa.string(), _text, _plain),
    "varchar": ("varchar", pa.string(), _text, _plain),
    "bytea": ("bytea", pa.binary(), lambda chance: chance.randbytes(chance.choice([0, 1, 7, 300])), _plain),
}


def put(server: PostgresServer, sql_type: str, values: list[Any]) -> str:
    """A new table of ``values`` as the driver sends them, with the columns n (from 0 on) and v."""
    name = f"packed_{next(_numbers)}"
    server.execute(f"CREATE TABLE {name} (n int PRIMARY KEY, v {sql_type})")
    server.copy(name, list(enumerate(values)), ("n", "v"))
    return name


def table_of(server: PostgresServer, name: str, kind: pa.DataType) -> LookupTable:
    schema = pa.schema([("n", pa.int32()), ("v", kind)])
    return LookupTable(name, schema, ("n",), {"url": server.url(), "max-bytes-in-flight": "1 gb"})


def asked_in_batches(table: LookupTable, count: int) -> Iterator[Any]:
    """The values in the order of n, asked for by n."""

    async def ask_all(connector: PostgresConnector) -> list[pa.Table]:
        starts = range(0, count, 5000)
        requests = [request_for(table.schema, {"n": [*range(at, min(at + 5000, count))]}) for at in starts]
        return [rows_of(await connector.alookup(request)) for request in requests]

    found = pa.concat_tables(during(PostgresConnector(table), ask_all)).sort_by("n")
    found.validate(full=True)
    assert found.column("n").to_pylist() == [*range(count)]
    yield from found.column("v").to_pylist()


def plain(server: PostgresServer, name: str) -> list[Any]:
    """The values in the order of n, as the driver itself reads them."""

    async def fetch() -> list[Any]:
        connection = await asyncpg.connect(server.url())
        try:
            return [record["v"] for record in await connection.fetch(f"SELECT v FROM {name} ORDER BY n")]
        finally:
            await connection.close()

    return asyncio.run(fetch())


@pytest.mark.parametrize("name", TYPES)
def test_packed_values_are_those_that_plain_asyncpg_reads(postgres_server: PostgresServer, name: str) -> None:
    sql_type, kind, draw, shown = TYPES[name]
    chance = random.Random(f"{name} {EXAMPLES}")
    values = [None if chance.random() < 0.2 else draw(chance) for _ in range(ROWS)]
    stored = put(postgres_server, sql_type, values)
    expected = [None if value is None else shown(value) for value in plain(postgres_server, stored)]
    table = table_of(postgres_server, stored, kind)
    found = list(asked_in_batches(table, ROWS))
    assert [value if value is None or shown is not repr else repr(value) for value in found] == expected
    schema = table.schema
    scanned = pa.Table.from_batches(PostgresConnector(table).scan(schema), schema).sort_by("n")
    assert scanned.column("v").combine_chunks().equals(pa.array(found, kind)) or "float" in name
    assert repr(scanned.column("v").to_pylist()) == repr(found)


NULLS = {
    "none": "xxxx",
    "all": "    ",
    "first": " xxx",
    "last": "xxx ",
    "alone": " ",
    "one row": "x",
    "no row": "",
}


@pytest.mark.parametrize("name", TYPES)
def test_null_is_null_at_every_place(postgres_server: PostgresServer, name: str) -> None:
    sql_type, kind, draw, shown = TYPES[name]
    for place, pattern in NULLS.items():
        chance = random.Random(place)
        values = [draw(chance) if sign == "x" else None for sign in pattern]
        stored = put(postgres_server, sql_type, values)
        table = table_of(postgres_server, stored, kind)
        wanted = [None if value is None else shown(value) for value in plain(postgres_server, stored)]
        rows = sorted(ask(table, {"n": [*range(-1, len(values) + 1)]}), key=lambda row: row["n"])
        assert [None if row["v"] is None else shown(row["v"]) for row in rows] == wanted, place


@pytest.mark.parametrize("sql_type", ["text", "bytea"])
def test_large_values_stand_among_small_ones(postgres_server: PostgresServer, sql_type: str) -> None:
    chance = random.Random(1)
    values: list[Any] = ["", "é" * 500_000, None, "x", "y" * 1_000_000, "", None]
    if sql_type == "bytea":
        values = [None if value is None else value.encode() + chance.randbytes(10) for value in values]
    kind = pa.string() if sql_type == "text" else pa.binary()
    table = table_of(postgres_server, put(postgres_server, sql_type, values), kind)
    assert list(asked_in_batches(table, len(values))) == values


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
def test_texts_of_other_encodings_come_whole(postgres_server: PostgresServer, encoding: str) -> None:
    database = f"packed_{encoding.lower()}"
    letters = "aé\x1f" if encoding == "LATIN1" else "a漢\x1f"
    texts = ["".join(letters[number // 3**place % 3] for place in range(3)) for number in range(27)]
    rows = ", ".join(f"({number}, '{text}')" for number, text in enumerate(texts))
    postgres_server.execute(f"CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    postgres_server.execute(
        f"CREATE TABLE t (n int PRIMARY KEY, v text); INSERT INTO t VALUES {rows}", database
    )
    schema = pa.schema([("n", pa.int32()), ("v", pa.string())])
    table = LookupTable("t", schema, ("n",), {"url": postgres_server.url(database=database)})
    assert list(asked_in_batches(table, 27)) == texts
    assert {row["v"] for row in ask(table, {"v": texts})} == set(texts)


def test_a_database_that_looks_at_no_text_gives_texts_or_a_failure(postgres_server: PostgresServer) -> None:
    """The encoding SQL_ASCII takes any bytes, so the server checks them when it sends them as UTF-8."""
    postgres_server.execute("CREATE DATABASE packed_bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
    postgres_server.execute(
        r"""
        CREATE TABLE t (n int PRIMARY KEY, v text);
        INSERT INTO t VALUES (0, 'é漢👋'), (1, ''), (2, NULL), (3, E'\xff\xe9'), (4, 'ok'), (5, E'\xc3'), (6, E'\xa9')
        """,
        "packed_bytes",
    )
    schema = pa.schema([("n", pa.int32()), ("v", pa.string())])
    table = LookupTable("t", schema, ("n",), {"url": postgres_server.url(database="packed_bytes")})
    rows = sorted(ask(table, {"n": [0, 1, 2, 4]}), key=lambda row: row["n"])
    assert rows == [{"n": 0, "v": "é漢👋"}, {"n": 1, "v": ""}, {"n": 2, "v": None}, {"n": 4, "v": "ok"}]
    assert ask(table, {"v": ["é漢👋", "?"]}) == [{"n": 0, "v": "é漢👋"}]
    asked = [lambda: ask(table, {"n": [3]}), lambda: ask(table, {"n": [5, 6]})]
    for action in [*asked, lambda: list(PostgresConnector(table).scan(schema))]:
        failed = failure_of(action)
        assert failed.permanent
        assert 'table t: PostgreSQL says: invalid byte sequence for encoding "UTF8": 0x' in str(failed)


def test_rows_of_a_megabyte_come_whole(postgres_server: PostgresServer) -> None:
    """Each in a request of its own, where the answer may have no more; and read, one range after the other."""
    values = [chr(97 + number % 26) * (1_000_000 + number) for number in range(40)]
    table = table_of(postgres_server, put(postgres_server, "text", values), pa.string())
    table = replace(table, options={**table.options, "max-bytes-in-flight": "8 mb"})

    async def ask_in_pieces(connector: PostgresConnector) -> list[Any]:
        found: dict[int, str] = {}
        left, largest = [[*range(40)]], 0
        while left:
            asked = left.pop(0)
            try:
                answer = rows_of(await connector.alookup(request_for(table.schema, {"n": asked})))
            except AnswerTooLarge as error:
                keys = max(1, min(error.keys, len(asked) - 1))
                left += [asked[at : at + keys] for at in range(0, len(asked), keys)]
                continue
            largest = max(largest, len(asked))
            found |= zip(answer.column("n").to_pylist(), answer.column("v").to_pylist(), strict=True)
        assert largest < 4, "four have more than half of the budget"
        return [found[number] for number in range(40)]

    assert during(PostgresConnector(table), ask_in_pieces) == values
    batches = list(PostgresConnector(table).scan(table.schema))
    assert max(batch.nbytes for batch in batches) < 10_000_000
    assert pa.Table.from_batches(batches).sort_by("n").column("v").to_pylist() == values


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
def test_every_value_is_found_by_itself_alone_and_among_others(
    postgres_server: PostgresServer, name: str
) -> None:
    sql_type, kind, draw, shown = TYPES[name]
    chance = random.Random(name)
    values = [draw(chance) for _ in range(200)]
    table = table_of(postgres_server, put(postgres_server, sql_type, values), kind)
    keys = pa.array([shown(value) if shown in (str, int, _time) else value for value in values], kind)
    for asked in (keys, keys.slice(0, 1)):
        request = LookupRequest(pa.table({"v": asked}), table.schema)
        answer = during(PostgresConnector(table), lambda connector: connector.alookup(request))  # noqa: B023
        found = rows_of(answer)
        wanted = {
            number
            for number, key in enumerate(keys.to_pylist())
            if repr(key) in {repr(x) for x in asked.to_pylist()}
        }
        assert wanted <= set(found.column("n").to_pylist())
        both = {"v": asked, "n": pa.array(range(len(asked)), pa.int32())}
        request = LookupRequest(pa.table(both), table.schema)
        answer = during(PostgresConnector(table), lambda connector: connector.alookup(request))  # noqa: B023
        assert sorted(rows_of(answer).column("n").to_pylist()) == [*range(len(asked))]


@pytest.mark.parametrize(
    "texts",
    [
        [""],
        ["", ""],
        ["\x1f"],
        ["\x1e", "\x1f", "\x1e\x1f", "\x1e\x1e\x1f"],
        ["a\x1e", "\x1fb", ""],
        ["x"] * 3,
    ],
)
def test_keys_are_separated_by_what_none_of_them_holds(texts: list[str]) -> None:
    text, separator = joined([pa.chunked_array([pa.array(texts, pa.string())])])
    assert text.split(separator) == texts


def test_a_key_may_hold_what_separates_others(postgres_server: PostgresServer) -> None:
    texts = ["", "\x1f", "\x1e\x1f", "a", "a\x1fb"]
    table = table_of(postgres_server, put(postgres_server, "text", texts), pa.string())
    for asked in (texts, [""], ["\x1f"], ["a\x1fb", "a"]):
        assert {row["v"] for row in ask(table, {"v": asked})} == set(asked)
        numbers = [texts.index(text) for text in asked]
        assert {row["v"] for row in ask(table, {"v": asked, "n": numbers})} == set(asked)


def test_many_keys_without_an_index_are_found_at_once_each_time(postgres_server: PostgresServer) -> None:
    """PostgreSQL makes a hash table of keys that it knows when it plans, else it compares each row with each."""
    values = [*range(20_000)]
    name = put(postgres_server, "int8", values)
    table = table_of(postgres_server, name, pa.int64())
    request = request_for(table.schema, {"v": [*range(0, 20_000, 5)]})

    async def ask_often(connector: PostgresConnector) -> list[int]:
        return [rows_of(await connector.alookup(request)).num_rows for _ in range(8)]

    assert during(PostgresConnector(table), ask_often) == [4000] * 8
