"""The rows nearest to a value among those of a key, found by DuckDB: those that Spark would choose."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from lookup_connectors.adbc import AdbcConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import LookupRequest, LookupTable, NearestCondition
from lookup_hints.spi.arrow_types import TIMESTAMP_NTZ
from tests.servers.connectors.adbc_tables import DuckDbSource, SqliteFileSource
from tests.servers.connectors.nearest_rows import NUMBERS, check_found, near_vectors
from tests.unit.connectors.asking import during

FLOATS = pa.list_(pa.float32())
PLACE = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
NAN, INF = float("nan"), float("inf")


def _filled(
    path: Path, sql_type: str, schema: pa.Schema, values: list[Any]
) -> tuple[LookupTable, list[dict[str, Any]]]:
    """A table of rows with an ``id``, the key ``g`` and ``values`` in the other columns."""
    rows: list[dict[str, Any]] = [
        {"id": at, "g": at % 3, **(each if isinstance(each, dict) else {"v": each})}
        for at, each in enumerate(values)
    ]
    given = pa.Table.from_pylist(rows, schema)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE items (id INT PRIMARY KEY, g INT, {sql_type})")
        connection.execute("INSERT INTO items SELECT * FROM given")
    assert given.num_rows == len(rows)
    return DuckDbSource(path).table("items", schema), rows


def _check(
    table: LookupTable,
    rows: list[dict[str, Any]],
    asked: list[Any],
    kind: pa.DataType,
    nearest: NearestCondition,
) -> int:
    keys = pa.table(
        {"g": pa.array([at % 4 for at in range(len(asked))], pa.int32()), "value": pa.array(asked, kind)}
    )
    connector = AdbcConnector(table)
    assert connector.can_find_nearest(nearest, among=("g",))
    request = LookupRequest(keys, table.schema, 60.0, nearest=nearest)
    answer: Any = during(connector, lambda opened: opened.alookup(request))
    return check_found(nearest, rows, keys, answer.rows, answer.positions.to_pylist())


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("kind", ["FLOAT[]", "FLOAT[{}]"])
def test_vectors_are_the_nearest_ones_with_all_that_rounding_mixes_up(
    tmp_path: Path, kind: str, size: int
) -> None:
    chance = Random(f"{kind} {size}")
    vectors: list[Any] = [
        *near_vectors(chance, 160, size),
        [NAN] * size,
        [None] * size,
        [INF] * size,
        [3e38] * size,
    ]
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("v", FLOATS)])
    table, rows = _filled(tmp_path / "nearest.duckdb", f"v {kind.format(size)}", schema, vectors)
    known = [each for each in vectors if each is not None and None not in each]
    asked = [*chance.sample(known, 16), [0.0] * size, [NAN] * size, [1e19] * size, [3e38] * size]
    for metric in ("l2", "cosine", "inner-product"):
        for most in (1, 7, 90):
            _check(table, rows, asked, FLOATS, NearestCondition(("v",), metric, most, ties=("id",)))


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_and_times_are_found_by_their_difference(tmp_path: Path, kind: str) -> None:
    sql_type, data_type, values = NUMBERS[kind]
    chance = Random(kind)
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("v", data_type)])
    own = [chance.choice([None, *values]) for _ in range(120)]
    table, rows = _filled(tmp_path / "nearest.duckdb", f"v {sql_type}", schema, own)
    for most in (1, 3, 60):
        asked = [each for each in values for _ in range(4)]
        _check(table, rows, asked, data_type, NearestCondition(("v",), "difference", most))


@pytest.mark.parametrize("metric", ["euclidean", "great-circle"])
def test_places_and_points_are_found(tmp_path: Path, metric: str) -> None:
    chance = Random(metric)
    numbers = [0.0, 1.0, 1 + 1e-9, 90.0, -180.0, 180.0, 48.1, -48.1, 1e-170, NAN, INF]
    places: list[Any] = [
        {"lat": chance.choice([None, *numbers]), "lon": chance.choice([None, *numbers, chance.random()])}
        for _ in range(150)
    ]
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), *PLACE])
    table, rows = _filled(tmp_path / "nearest.duckdb", "lat DOUBLE, lon DOUBLE", schema, places)
    asked = [
        {"lat": chance.choice(numbers), "lon": chance.choice([*numbers, chance.random()])} for _ in range(80)
    ]
    for most in (1, 4, 60):
        _check(table, rows, asked, PLACE, NearestCondition(("lat", "lon"), metric, most))


def test_texts_are_found_by_their_letters(tmp_path: Path) -> None:
    chance = Random(3)
    words = ["", "ann", "anna", "Müller", "Muller", "東京", "東", "é" * 40, "z" * 300, " "]
    words += ["".join(chance.choices("abné", k=chance.randrange(7))) for _ in range(90)]
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("v", pa.string())])
    table, rows = _filled(tmp_path / "nearest.duckdb", "v VARCHAR", schema, [None, *words])
    for most in (1, 4, 60):
        _check(table, rows, words[:24], pa.string(), NearestCondition(("v",), "levenshtein", most))


def test_arrays_of_a_fixed_size_are_found_to_be_arrays_of_floats(tmp_path: Path) -> None:
    source = DuckDbSource(tmp_path / "arrays.duckdb")
    source.execute(
        "CREATE TABLE items (id INT, g INT, v FLOAT[2]); INSERT INTO items VALUES (1, 1, [1, 2]), (2, 1, NULL)"
    )
    told, _ = AdbcConnector(source.table("items", pa.schema([]))).discover()
    assert told == pa.schema([("id", pa.int32()), ("g", pa.int32()), ("v", FLOATS)])
    table = source.table("items", told)
    found = pa.Table.from_batches(AdbcConnector(table).scan(told))
    assert found.column("v").to_pylist() == [[1.0, 2.0], None]
    with pytest.raises(ConnectorError, match=r"table items: .*left length '2' and right length '3'"):
        _check(table, [], [[1.0, 2.0, 3.0]] * 2, FLOATS, NearestCondition(("v",), "l2"))


def test_only_duckdb_finds_them_and_only_among_the_rows_of_a_key(tmp_path: Path) -> None:
    schema = pa.schema(
        [("g", pa.int32()), ("v", FLOATS), ("t", pa.string()), ("n", pa.int64()), ("at", TIMESTAMP_NTZ)]
    )
    duck, sqlite = DuckDbSource(tmp_path / "a.duckdb"), SqliteFileSource(tmp_path / "a.db")
    tables = [duck.table("t", schema), sqlite.table("t", schema), duck.table("t", schema, dialect="postgres")]
    by = [
        ("v", "l2"),
        ("t", "levenshtein"),
        ("n", "difference"),
        ("at", "difference"),
        ("t", "trigram"),
        ("v", "difference"),
    ]
    assert [
        [
            AdbcConnector(table).can_find_nearest(NearestCondition((name,), metric), among=among)
            for name, metric in by
        ]
        for table, among in [(tables[0], ("g",)), (tables[0], ()), (tables[1], ("g",)), (tables[2], ("g",))]
    ] == [[True] * 4 + [False] * 2, *[[False] * 6] * 3]
