"""Texts as values: what each type reads, held against Python and Spark, and that each connector reads so."""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from lookup_connectors.adbc.connector import AdbcConnector
from lookup_connectors.http.connector import HttpConnector
from lookup_connectors.memory import MemoryConnector
from lookup_connectors.redis.connector import RedisConnector
from lookup_connectors.shared.text_values import REFUSALS, from_texts, moments, spelled_values
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import ConnectorError, OptionError
from lookup_hints.spi import AsyncLookup, SyncLookup
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ, cast, sql_type
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.connectors.http_asking import ask as ask_http
from tests.servers.connectors.http_asking import rows_of, taking_turns
from tests.servers.http_server import Api
from tests.servers.redis import RedisServer
from tests.unit.connectors.asking import during, request_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc
COUNT = int(os.environ.get("TEXTS", "30000"))
SEED = int(os.environ.get("SEED", "0"))
NOON = datetime(2024, 1, 1, 10, 11, 12)
LARGEST = "9" * 38
FLOAT = 3.4028235677973366e38
"""The least number that is too large for a FLOAT."""


def zoned(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]  # parts of a date, not a zone


READ: list[tuple[pa.DataType, dict[str, Any]]] = [
    (pa.int8(), {"-128": -128, "+127": 127, "-0": 0, "0000000000000000000000001": 1}),
    (pa.int64(), {"9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63)}),
    (pa.float64(), {"1e308": 1e308, "+.5": 0.5, "5.": 5.0, "1E-400": 0.0, "-inf": -math.inf, "Infinity": math.inf}),
    (pa.float32(), {"16777217": 16777216.0, "-Infinity": -math.inf}),
    (pa.bool_(), {"true": True, "F": False, "Yes": True, "n": False, "1": True, "0": False}),
    (pa.date32(), {"2024-02-29": date(2024, 2, 29), "2024-2-9": date(2024, 2, 9), "9999-12-31": date.max}),
    (pa.decimal128(38, 0), {LARGEST: Decimal(LARGEST), "-" + LARGEST: Decimal("-" + LARGEST), "1e37": Decimal(10) ** 37}),
    (pa.decimal128(38, 18), {"1e19": Decimal(10) ** 19, "99999999999999999999.999999999999999999": Decimal("99999999999999999999.999999999999999999")}),
    (pa.decimal128(38, 38), {"." + LARGEST: Decimal("." + LARGEST), "0." + LARGEST: Decimal("." + LARGEST)}),
    (pa.decimal128(5, 2), {"+1.500": Decimal("1.50"), "1.5E+1": Decimal(15), "-0": Decimal(0), ".5": Decimal("0.5"), "5.": Decimal(5), "0e999999999": Decimal(0), "100" + "0" * 0 + "." + "0" * 90: Decimal(100)}),
    (TIMESTAMP_NTZ, {
        "2024-01-01": datetime(2024, 1, 1), "2024-01-01 10:11": datetime(2024, 1, 1, 10, 11), "2024-01-01T10:11:12": NOON,
        "2024-1-1 10:11:12.": NOON, "2024-01-01 10:11:12.000000000000": NOON,
        "2024-01-01 10:11:12.1234567": NOON.replace(microsecond=123456), "1969-12-31 23:59:59.9999999": datetime(1969, 12, 31, 23, 59, 59, 999999),
    }),
    (TIMESTAMP, {
        "2024-01-01T10:11:12.0000000Z": NOON.replace(tzinfo=UTC), "2024-01-01 10:11:12.123456789+02:00": zoned(2024, 1, 1, 8, 11, 12, 123456),
        "2024-01-01 10:11:12 UTC": NOON.replace(tzinfo=UTC), "2024-01-01 10:11:12.1234567 UTC": zoned(2024, 1, 1, 10, 11, 12, 123456),
        "2024-01-01 10:11:12 Z": NOON.replace(tzinfo=UTC), "2024-01-01 10:11:12+0130": zoned(2024, 1, 1, 8, 41, 12),
        "2024-01-01 10:11:12 GMT+5": zoned(2024, 1, 1, 5, 11, 12), "2024-01-01 10:11:12+01:30:15": zoned(2024, 1, 1, 8, 40, 57),
        "2024-01-01 10:11:12 Europe/Berlin": zoned(2024, 1, 1, 9, 11, 12),
        "2024-03-31 02:30:00 Europe/Berlin": zoned(2024, 3, 31, 1, 30), "2024-10-27 02:30:00 Europe/Berlin": zoned(2024, 10, 27, 0, 30),
    }),
    (pa.duration("us"), {"-1": timedelta(microseconds=-1)}),
]  # fmt: skip

REFUSED: list[tuple[pa.DataType, list[str]]] = [
    (pa.int64(), ["", "+", " 1", "1 ", "1_000", "1.0", "1e3", "0x1F", "0XfF", "9223372036854775808", "٣", "NaN", "1" * 5000]),
    (pa.int8(), ["0xFF", "128", "-129"]),
    (pa.float64(), ["", ".", " 1", "1_0", "1e400", "-1e400", "NAN(x)", "-nan", "1d", "0x1p3", "1e", "٣", "n"]),
    (pa.float32(), ["1e39", "-3.5e38"]),
    (pa.bool_(), ["", "on", "2", "tru", " true", "01"]),
    (pa.date32(), ["", "2024-02-30", "2024", "2024-01", "20240101", "2024-01-01T00:00:00", "0000-01-01", "10000-01-01",
                   "-0001-01-01", "0044-03-15 BC", "infinity", "today", " 2024-01-01"]),
    (pa.decimal128(38, 0), [str(2**128), str(2**128 + 7), str(-(2**128)), str(2**256), "1e38", "1" + "0" * 38, "1e99999999999", "NaN", "0x1", "1_0"]),
    (pa.decimal128(38, 18), ["1e30", "1" + "0" * 20, "100000000000000000000", "18960114910927365649471927.5", "1e-19"]),
    (pa.decimal128(5, 2), ["", ".", "1.005", "1000", "1e3", "1e-400", "1e400", " 1", "1d", "٣", "Infinity", "0." + "0" * 80 + "1"]),
    (TIMESTAMP_NTZ, ["", "2024-01-01 24:00:00", "2024-01-01 23:59:60", "2024-01-01 10:11:12Z", "2024-01-01 10:11:12 UTC", "infinity",
                     "0000-01-01 00:00:00", "10000-01-01 00:00:00", "2024-01-01 10:11:12,5", "10:11:12", "1704067200", "2024-02-30 00:00:00"]),
    (TIMESTAMP, ["2024-01-01", "2024-01-01 10:11:12", "2024-01-01 10:11:12 PST", "2024-01-01 10:11:12 Nowhere/City", "2024-01-01 10:11:12+25:00",
                 "2024-01-01 10:11:12.1234567+25:00", "2024-01-01 10:11:12+029:53", "2024-01-01 10:11:12+00000", "2024-01-01 10:11:12+01:60:00", "0001-01-01 00:00:00+05", "9999-12-31 23:59:59-05",
                 "9999-12-31 23:59:59.9999999-05", "2024-01-01 10:11:12 UTC UTC", "2024-01-01 10:11:12.12345678x"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), READ, ids=lambda each: str(each)[:20])
@pytest.mark.parametrize("beside", [[], ["x"]], ids=["alone", "beside a text that is none"])
def test_a_text_is_read_as_its_type(kind: pa.DataType, values: dict[str, Any], beside: list[str]) -> None:
    for text, expected in values.items():
        column = pa.array(["", text, None, *beside]).slice(1)
        assert spelled_values(column, kind).to_pylist() == [expected, None, *[None for _ in beside]], text
    together = pa.array([*values, *beside])
    assert spelled_values(together, kind).to_pylist()[: len(values)] == list(values.values())


@pytest.mark.parametrize(("kind", "texts"), REFUSED, ids=lambda each: str(each)[:20])
def test_what_is_no_text_of_the_type_is_refused(kind: pa.DataType, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(REFUSALS):
            from_texts([text], kind)
    assert spelled_values(pa.array(texts), kind).null_count == len(texts)


def test_a_text_without_a_zone_may_be_utc() -> None:
    texts = ["2024-01-01 10:11:12", "2024-01-01T12:11:12+02:00", None]
    for given in (texts, texts[:1], texts[1:]):
        assert set(moments(given, TIMESTAMP).to_pylist()) <= {NOON.replace(tzinfo=UTC), None}
    with pytest.raises(REFUSALS):
        moments([*texts, "soon"], TIMESTAMP)


# --- Arrow's types ----------------------------------------------------------------------------------


def raw_decimal(number: int) -> pa.Array:
    """A decimal of 128 bits that no 38 digits hold: what drivers make of wider integers."""
    return pa.Array.from_buffers(
        pa.decimal128(38, 0), 1, [None, pa.py_buffer(number.to_bytes(16, "little", signed=True))]
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (raw_decimal(10**38 + 5), pa.decimal128(38, 0)),
        (pa.array([Decimal(10) ** 30], pa.decimal128(38, 0)), pa.decimal128(38, 18)),
        (pa.array([Decimal(10) ** 60], pa.decimal256(76, 0)), pa.decimal128(38, 18)),
        (pa.array([Decimal("1.5")], pa.decimal128(2, 1)), pa.int64()),
        (pa.array([Decimal("1.005")], pa.decimal128(4, 3)), pa.decimal128(10, 2)),
        (pa.array([10**9]), pa.decimal128(10, 2)),
        (pa.array([300]), pa.int8()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([1e39]), pa.float32()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**60], pa.timestamp("us")), TIMESTAMP_NTZ),
        (pa.array([3 * 10**11], pa.timestamp("s")), TIMESTAMP_NTZ),
        (pa.array([-719_163], pa.int32()).cast(pa.date32()), pa.date32()),
        (pa.array([[10**9]]), pa.list_(pa.decimal128(10, 2))),
        (pa.array([{"a": [("b", 2**60)]}], pa.struct([("a", pa.map_(pa.string(), pa.timestamp("us")))])),
         pa.struct([("a", pa.map_(pa.string(), TIMESTAMP_NTZ))])),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_arrow_that_the_type_does_not_hold_is_refused(values: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(REFUSALS):
        cast(values, kind)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([5, None]), pa.decimal128(10, 2), [Decimal(5), None]),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
        (pa.array([Decimal("1.500")], pa.decimal256(76, 40)), pa.decimal128(10, 2), [Decimal("1.5")]),
        (pa.array([-1, 1_999], pa.timestamp("ns")), TIMESTAMP_NTZ,
         [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1, 0, 0, 0, 1)]),
        (pa.array([datetime.min, datetime.max], pa.timestamp("us")), TIMESTAMP_NTZ, [datetime.min, datetime.max]),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int64()), [[1, 2], None]),
        (pa.array([[1], None, [None]], pa.large_list(pa.int32())).slice(1), pa.list_(pa.decimal128(5, 1)), [None, [None]]),
        (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.decimal128(5, 1)),
         [[("a", Decimal(1))], None]),
        (pa.array([{"a": 1}, None]), pa.struct([("a", pa.decimal128(5, 1))]), [{"a": Decimal(1)}, None]),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_arrow_is_taken_by_its_value(
    values: pa.Array, kind: pa.DataType, expected: list[Any]
) -> None:
    assert cast(values, kind).to_pylist() == expected
    assert cast(values, kind).type == kind


def test_a_decimal_becomes_the_nearest_double() -> None:
    random = Random(SEED)
    for scale in (2, 9, 18):
        numbers = [
            Decimal(random.randrange(10 ** random.randrange(1, 37))).scaleb(-scale) for _ in range(2000)
        ]
        doubles = cast(pa.array(numbers, pa.decimal128(38, scale)), pa.float64()).to_pylist()
        assert doubles == [float(number) for number in numbers]


# --- Spark and Python -------------------------------------------------------------------------------


def numbers(random: Random) -> str:
    """A text that is a number, or nearly one."""
    sign = random.choice(("", "", "", "-", "+"))
    whole = random.choice((
        str(random.randrange(10 ** random.randrange(1, 42))),
        str(2 ** random.choice((7, 8, 15, 31, 32, 53, 63, 64, 127, 128, 256)) + random.randrange(-2, 3)),
        str(10 ** random.randrange(0, 60) + random.randrange(-1, 2)),
        "0" * random.randrange(0, 30) + str(random.randrange(1000)),
    ))  # fmt: skip
    if random.random() < 0.4:
        whole += (
            "."
            + "".join(random.choices("0123456789", k=random.randrange(0, 25)))
            + "0" * random.randrange(0, 5)
        )
    if random.random() < 0.2:
        whole += random.choice("eE") + random.choice(("", "+", "-")) + str(random.randrange(45))
    return sign + whole if random.random() < 0.97 else spoiled(random, sign + whole)


def times(random: Random) -> str:
    """A text that is a moment or a date, or nearly one."""
    year = random.choice((1970, 2024, random.randrange(1, 10_000), random.choice((0, 1, 9999, 10_000))))
    day = f"{year:04}-{random.randrange(1, 13):02}-{random.randrange(1, 32):02}"
    if random.random() < 0.2:
        return day
    time = f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}"
    if random.random() < 0.7:
        time += "." + "".join(random.choices("0123456789", k=random.randrange(1, 13)))
    zone = random.choice((
        "", "", "Z", "Z", "+00", "+00:00", " UTC", "UTC", " GMT", " Z",
        f"{random.choice('+-')}{random.randrange(18):02}:{random.randrange(60):02}",
        f"{random.choice('+-')}{random.randrange(18):02}{random.randrange(60):02}",
        random.choice((" Europe/Berlin", " America/New_York", " Asia/Kolkata")),
    ))  # fmt: skip
    text = f"{day}{random.choice(' T')}{time}{zone}"
    return text if random.random() < 0.97 else spoiled(random, text)


def spoiled(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice("0x_ .e-+:9nZ\tT") + text[at + random.randrange(2) :]


def words(random: Random) -> str:
    word = random.choice(
        [
            "true",
            "false",
            "t",
            "f",
            "yes",
            "no",
            "y",
            "n",
            "1",
            "0",
            "nan",
            "inf",
            "infinity",
            "null",
            "on",
            "off",
            "2",
        ]
    )
    return random.choice((word, word.upper(), word.title(), "+" + word, "-" + word, word + "x"))


HELD: list[tuple[pa.DataType, Callable[[Random], str]]] = [
    (pa.int8(), numbers), (pa.int32(), numbers), (pa.int64(), numbers), (pa.float32(), numbers), (pa.float64(), numbers),
    (pa.decimal128(38, 0), numbers), (pa.decimal128(38, 18), numbers), (pa.decimal128(10, 2), numbers),
    (pa.date32(), times), (TIMESTAMP, times), (TIMESTAMP_NTZ, times), (pa.float64(), words), (pa.bool_(), words),
]  # fmt: skip


def of_python(text: str, kind: pa.DataType) -> Any:
    """What Python's own decimal reads, but for blanks and underscores; None where it does not fit exactly."""
    if set(text) & set(" \t_"):
        return None
    try:
        number = Decimal(text)
    except ArithmeticError:
        return None
    if number.is_zero():
        return number
    if not number.is_finite() or not -60 < number.adjusted() < 60:
        return None
    unscaled = Fraction(number) * 10**kind.scale
    return number if unscaled.denominator == 1 and abs(unscaled) < 10**kind.precision else None


def may_be_refused(text: str, kind: pa.DataType) -> bool:
    """Whether Spark's CAST changes what ``text`` says, or reads what is no text of ``kind``: see the page."""
    if text != text.strip() or "\t" in text:
        return True
    if pa.types.is_decimal(kind):
        return of_python(text, kind) is None
    if pa.types.is_floating(kind):
        return not text[-1:].isdigit() or abs(float(text)) >= (FLOAT if kind == pa.float32() else math.inf)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return False
    whole = re.match(r"(\d{4})-\d{1,2}-\d{1,2}(?![0-9])(.*)", text)
    if whole is None or whole[1] == "0000":
        return True
    if pa.types.is_date(kind):
        return whole[2] != ""
    time = re.fullmatch(r"[ T]\d+:\d+(?::\d+(?:\.\d*)?)? *(.*)", whole[2])
    if time and time[1] == "GMT0":  # one of the names of zones that are no region
        return True
    return bool(time and time[1]) != (kind.tz is not None) or whole[1] in ("0001", "9999")


@pytest.mark.timeout(1200)  # a million texts, on a busy machine
def test_texts_are_read_as_python_and_spark_read_them(spark: SparkSession, tmp_path: Path) -> None:
    random, rows = Random(SEED), COUNT // len(HELD)
    texts = pa.table({str(at): [make(random) for _ in range(rows)] for at, (_, make) in enumerate(HELD)})
    pyarrow.parquet.write_table(texts, tmp_path / "texts.parquet")
    casts = [
        f"{_comparable(f'try_cast(`{at}` AS {sql_type(kind)})', kind)} AS c{at}"
        for at, (kind, _) in enumerate(HELD)
    ]
    frame = spark.read.parquet(str(tmp_path / "texts.parquet")).selectExpr(*casts)
    frame.coalesce(1).write.parquet(str(tmp_path / "values"))
    of_spark = pyarrow.parquet.read_table(tmp_path / "values")
    for at, (kind, _) in enumerate(HELD):
        column, theirs = texts.column(at).combine_chunks(), of_spark.column(at).combine_chunks()
        ours = spelled_values(column, kind)
        if kind == TIMESTAMP:
            theirs = theirs.cast(kind)
        same = pc.or_kleene(pc.equal(ours, theirs), _both_nan(ours, theirs))
        assert pc.all(pc.fill_null(same, True)).as_py(), _differences(column, ours, theirs, pc.invert(same))
        # ISO 8601 needs no seconds, and its offsets go beyond Spark's 18 hours.
        iso = pc.match_substring_regex(
            column, r"^.{10}[ T]\d\d(:\d\d)?(Z|[+-]\d\d(:?\d\d)?)$|[+-](18|19|2[0-3])(:?\d\d){0,2}$"
        )
        more = pc.and_not(pc.and_(ours.is_valid(), theirs.is_null()), iso)
        assert not pc.any(more).as_py(), _differences(column, ours, theirs, more)
        fewer = pc.and_(ours.is_null(), theirs.is_valid())
        refused = [text for text in column.filter(fewer).to_pylist() if not may_be_refused(text, kind)]
        assert not refused, (kind, refused[:10])
        assert rows / 50 < len(ours) - ours.null_count < rows, "some are texts of the type, and some are not"
        if pa.types.is_decimal(kind):
            pairs = zip(column.to_pylist(), ours.to_pylist(), strict=True)
            assert not [(text, value) for text, value in pairs if value != of_python(text, kind)][:10]


def _comparable(value: str, kind: pa.DataType) -> str:
    """Parquet keeps no moments with a zone beyond the years of nanoseconds."""
    return f"unix_micros({value})" if kind == TIMESTAMP else value


def _both_nan(ours: pa.Array, theirs: pa.Array) -> pa.Array:
    if not pa.types.is_floating(ours.type):
        return pa.repeat(False, len(ours))
    return pc.and_kleene(pc.is_nan(ours), pc.is_nan(theirs))


def _differences(texts: pa.Array, ours: pa.Array, theirs: pa.Array, where: pa.Array) -> list[Any]:
    columns = (
        each.filter(pc.fill_null(where, False)).slice(0, 10).to_pylist() for each in (texts, ours, theirs)
    )
    return list(zip(*columns, strict=True))


# --- the connectors ---------------------------------------------------------------------------------

BEYOND: list[tuple[pa.DataType, str]] = [
    (pa.decimal128(38, 0), str(2**128)),
    (pa.decimal128(38, 18), "1e30"),
    (pa.decimal128(38, 18), str(10**30)),
    (pa.decimal128(10, 2), "1.005"),
    (TIMESTAMP, "9999-12-31T23:59:59-05:00"),
]
WITHIN: list[tuple[pa.DataType, str, Any]] = [
    (pa.decimal128(38, 0), LARGEST, Decimal(LARGEST)),
    (pa.decimal128(38, 18), "1e19", Decimal(10) ** 19),
    (TIMESTAMP, "2024-01-01T10:11:12.1234567Z", zoned(2024, 1, 1, 10, 11, 12, 123456)),
    (TIMESTAMP, "2024-01-01 10:11:12 UTC", NOON.replace(tzinfo=UTC)),
    (TIMESTAMP_NTZ, "2024-01-01T10:11:12.123456789", NOON.replace(microsecond=123456)),
]


class Sources:
    """One value, held by each source that keeps texts or numbers, and how it is asked for there."""

    def __init__(self, folder: Path, api: Api, redis_server: RedisServer) -> None:
        self._folder, self._api, self._redis = folder, api, redis_server

    def tables(
        self, kind: pa.DataType, text: str
    ) -> list[tuple[type[AsyncLookup | SyncLookup], LookupTable]]:
        """The tables, with the column ``v`` of ``kind``."""
        document = json.dumps({"id": 1, "v": text})
        self._api.script("/x/1", {"status": 200, "body": document, "type": "application/json"})
        self._redis.run("HSET", "x:1", "v", text)
        self._redis.run("SET", "y:1", document)
        file = self._folder / "values.db"
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS x")
            connection.execute("CREATE TABLE x (id INTEGER, v TEXT)")
            connection.execute("INSERT INTO x VALUES (1, ?)", (text,))
        redis = {"url": self._redis.url}
        given: list[tuple[type[AsyncLookup | SyncLookup], dict[str, str]]] = [
            (MemoryConnector, {"rows": f"[{document}]"}),
            (HttpConnector, {"url": self._api.url + "/x/{id}"}),
            (RedisConnector, {**redis, "key": "x:{id}"}),
            (RedisConnector, {**redis, "key": "y:{id}", "value-type": "json"}),
            (SqliteConnector, {"path": str(file)}),
            (AdbcConnector, {"driver": "adbc_driver_sqlite", "uri": str(file)}),
        ]
        schema = pa.schema([("id", pa.int64()), ("v", kind)])
        return [(connector, LookupTable("x", schema, ("id",), options)) for connector, options in given]


@pytest.fixture
def sources(tmp_path: Path, api: Api, redis_server: RedisServer) -> Sources:
    return Sources(tmp_path, api, redis_server)


def value_of(connector: type[Any], table: LookupTable) -> Any:
    """The value of the column ``v``; the failure of its key is raised."""
    asked = connector(table)
    asked.check()
    request = request_for(table.schema, {"id": [1]})
    with taking_turns():
        if issubclass(connector, AsyncLookup):
            answer = during(asked, lambda opened: opened.alookup(request))
        else:
            asked.open()
            answer = asked.lookup(request)
            asked.close()
    [row] = rows_of(answer)
    return row["v"]


@pytest.mark.parametrize(("kind", "text"), BEYOND, ids=str)
def test_each_connector_refuses_a_text_beyond_its_type_and_names_it(
    sources: Sources, kind: pa.DataType, text: str
) -> None:
    for connector, table in sources.tables(kind, text):
        with pytest.raises((ConnectorError, OptionError)) as error:
            value_of(connector, table)
        for part in ("table x", "column 'v'", text[:40], f"does not fit {sql_type(kind)}"):
            assert part in str(error.value), connector


@pytest.mark.parametrize(("kind", "text", "expected"), WITHIN, ids=str)
def test_each_connector_reads_a_text_alike(
    sources: Sources, kind: pa.DataType, text: str, expected: Any
) -> None:
    for connector, table in sources.tables(kind, text):
        assert value_of(connector, table) == expected, connector


@pytest.mark.parametrize(
    ("kind", "number", "shown"),
    [
        (pa.decimal128(38, 0), str(2**128), str(2**128)),
        (pa.decimal128(38, 18), "1e30", "Decimal('1E+30')"),
        (pa.float64(), "1e400", "does not fit DOUBLE"),
        (pa.float32(), "1e39", "does not fit FLOAT"),
        (pa.int64(), "1.0", "1.0"),
        (pa.int64(), "1e3", "does not fit BIGINT"),
        (pa.int64(), "9223372036854775808", "9223372036854775808 (int)"),
        (pa.string(), "5", "5 (int)"),
        (pa.decimal128(5, 2), "NaN", "does not fit DECIMAL(5,2)"),
    ],
)
def test_a_number_of_json_that_does_not_fit_is_refused(
    api: Api, redis_server: RedisServer, kind: pa.DataType, number: str, shown: str
) -> None:
    document = f'{{"id": 1, "v": {number}}}'
    api.script("/x/1", {"status": 200, "body": document, "type": "application/json"})
    redis_server.run("SET", "y:1", document)
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    for connector, options in (
        (MemoryConnector, {"rows": f"[{document}]"}),
        (HttpConnector, {"url": api.url + "/x/{id}"}),
        (RedisConnector, {"url": redis_server.url, "key": "y:{id}", "value-type": "json"}),
    ):
        with pytest.raises((ConnectorError, OptionError)) as error:
            value_of(connector, LookupTable("x", schema, ("id",), options))
        assert shown in str(error.value), connector


def test_a_number_of_json_is_read_by_its_digits(api: Api) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("d", pa.decimal128(38, 20)), ("f", pa.float64()), ("n", pa.float64())]
    )
    body = '{"d": 0.10000000000000000001, "f": Infinity, "n": "NaN"}'
    api.script("/x/1", {"status": 200, "body": body, "type": "application/json"})
    options = {"url": api.url + "/x/{id}"}
    [row] = ask_http(LookupTable("x", schema, ("id",), options), {"id": [1]})
    assert (row["d"], row["f"], str(row["n"])) == (Decimal("0.10000000000000000001"), math.inf, "nan")
