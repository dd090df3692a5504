"""The rows nearest to a value, found by PostgreSQL: those that Spark would choose, by indexes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import LookupRequest, LookupTable, NearestCondition
from tests.servers.connectors.nearest_rows import NUMBERS, as_float, check_found, near_vectors
from tests.servers.pooler import transaction_pooler
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import ask, during, rows_of

FLOATS = pa.list_(pa.float32())


@pytest.fixture(scope="module")
def server(postgres_server: PostgresServer) -> PostgresServer:
    postgres_server.execute(
        "CREATE EXTENSION vector; CREATE EXTENSION pg_trgm; CREATE EXTENSION earthdistance CASCADE;"
        "CREATE EXTENSION fuzzystrmatch"
    )
    return postgres_server


def _table(server: PostgresServer, name: str, schema: pa.Schema, **options: str) -> LookupTable:
    return LookupTable(name, schema, ("id",), {"connector": "postgres", "url": server.url(), **options})


def _check(table: LookupTable, rows: list[dict[str, Any]], keys: pa.Table, nearest: NearestCondition) -> int:
    connector = PostgresConnector(table)
    assert connector.can_find_nearest(nearest, among=tuple(keys.column_names[:-1]))
    request = LookupRequest(keys, table.schema, 60.0, nearest=nearest)
    answer: Any = during(connector, lambda opened: opened.alookup(request))
    return check_found(nearest, rows, keys, answer.rows, answer.positions.to_pylist())


@pytest.mark.parametrize("kind", ["vector", "halfvec", "real[]"])
@pytest.mark.parametrize("size", [3, 40])
def test_vectors_are_the_nearest_ones_with_all_that_rounding_mixes_up(
    server: PostgresServer, kind: str, size: int
) -> None:
    chance = Random(f"{kind} {size}")
    vectors = near_vectors(chance, 240, size)
    if kind == "halfvec":
        vectors = [each and [as_float(min(max(part, -6e4), 6e4), "e") for part in each] for each in vectors]
    name = f"v_{kind.strip('[]')}_{size}"
    start, end = "{}" if kind == "real[]" else "[]"
    server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, g int, e {kind})")
    values = ", ".join(
        f"({at}, {at % 3}, {'NULL' if each is None else repr(start + ','.join(map(repr, each)) + end)})"
        for at, each in enumerate(vectors)
    )
    server.execute(f"INSERT INTO {name} VALUES {values}")
    if kind == "real[]":
        server.execute(
            f"INSERT INTO {name} VALUES (240, 1, '{{{','.join(['NaN'] * size)}}}'),"
            f" (241, 1, '{{{','.join(['NULL'] * size)}}}')"
        )
        vectors += cast("Any", [[float("nan")] * size, [None] * size])
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("e", FLOATS)])
    rows = [{"id": at, "g": at % 3, "e": each} for at, each in enumerate(vectors)]
    for row in rows[240:]:
        row["g"] = 1
    known = [each for each in vectors if each is not None and None not in each]
    asked = [*chance.sample(known, 12), [0.0] * size, [float("nan")] * size, [1e19] * size, [1e-19] * size]
    table = _table(server, name, schema)
    for metric in ("l2", "cosine", "inner-product"):
        for most in (1, 7, 200):
            nearest = NearestCondition(("e",), metric, most, ties=("id",))
            among = pa.table(
                {
                    "g": pa.array([at % 4 for at in range(len(asked))], pa.int32()),
                    "v": pa.array(asked, FLOATS),
                }
            )
            _check(table, rows, among, nearest)
            _check(table, rows, among.select(["v"]), nearest)


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_and_times_are_found_on_both_sides(server: PostgresServer, kind: str) -> None:
    sql, data_type, values = NUMBERS[kind]
    chance = Random(kind)
    own = [chance.choice([None, *values]) for _ in range(120)]
    rows = [{"id": at, "g": at % 3, "n": each} for at, each in enumerate(own)]
    name = f"numbers_{kind}"
    server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, g int, n {sql}); CREATE INDEX ON {name} (g, n)")
    server.copy(name, [tuple(row.values()) for row in rows], ["id", "g", "n"])
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("n", data_type)])
    keys = pa.table(
        {
            "g": pa.array([at % 4 for at in range(len(values) * 4)], pa.int32()),
            "v": pa.array(values * 4, data_type),
        }
    )
    keys = keys.group_by(["g", "v"]).aggregate([])
    table = _table(server, name, schema)
    for most in (1, 3, 60):
        nearest = NearestCondition(("n",), "difference", most)
        _check(table, rows, keys, nearest)
        _check(table, rows, pa.table({"v": keys.column("v").combine_chunks().unique()}), nearest)


@pytest.mark.parametrize("columns", [("x", "y"), ("x", "y", "z"), ("x",)])
def test_points_are_found_by_their_distance(server: PostgresServer, columns: tuple[str, ...]) -> None:
    chance = Random(len(columns))
    values = [None, 0.0, 1.0, 1 + 1e-16, 2.0, 3.0, 1e9, 1e9 + 1e-7, float("nan"), float("inf"), 1e-170]
    rows = [
        {"id": at, "g": at % 3, **{name: chance.choice([*values, chance.random()]) for name in "xyz"}}
        for at in range(150)
    ]
    name = f"points_{len(columns)}"
    server.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, g int, x float8, y float8, z float8);"
        f"CREATE INDEX ON {name} USING gist (point(x, y))"
    )
    server.copy(name, [tuple(row.values()) for row in rows], list(rows[0]))
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), *((each, pa.float64()) for each in "xyz")])
    struct_type = pa.struct([(each, pa.float64()) for each in columns])
    asked = [{each: chance.choice(values[1:]) for each in columns} for _ in range(40)]
    asked += [{each: chance.random() for each in columns} for _ in range(40)]
    keys = pa.table(
        {"g": pa.array([at % 4 for at in range(80)], pa.int32()), "v": pa.array(asked, struct_type)}
    )
    table = _table(server, name, schema)
    for most in (1, 3, 40):
        nearest = NearestCondition(columns, "euclidean", most)
        _check(table, rows, keys, nearest)
        _check(table, rows, keys.select(["v"]), nearest)


def test_places_are_found_by_the_great_circle(server: PostgresServer) -> None:
    chance = Random(7)
    places = [
        (chance.choice([None, 90.0, -90.0, 0.0]), chance.choice([0.0, 180.0, -180.0, 360.0]))
        for _ in range(40)
    ]
    places += [(48.1 + chance.random() * 1e-9, 11.5 + chance.random() * 1e-9) for _ in range(40)]
    places += [(chance.uniform(-90, 90), chance.uniform(-180, 180)) for _ in range(80)]
    rows = [{"id": at, "lat": lat, "lon": lon} for at, (lat, lon) in enumerate(places)]
    server.execute(
        "CREATE TABLE places (id int PRIMARY KEY, lat float8, lon float8);"
        "CREATE INDEX ON places USING gist (ll_to_earth(lat, lon))"
    )
    server.copy("places", [tuple(row.values()) for row in rows], list(rows[0]))
    schema = pa.schema([("id", pa.int32()), ("lat", pa.float64()), ("lon", pa.float64())])
    asked = [{"lat": lat, "lon": lon} for lat, lon in places if lat is not None][::3]
    asked += [{"lat": -48.1, "lon": 11.5 - 180}, {"lat": float("nan"), "lon": 1.0}]
    keys = pa.table({"v": pa.array(asked, pa.struct([("lat", pa.float64()), ("lon", pa.float64())]))})
    for most in (1, 5, 200):
        _check(
            _table(server, "places", schema),
            rows,
            keys,
            NearestCondition(("lat", "lon"), "great-circle", most),
        )


@pytest.mark.parametrize("metric", ["levenshtein", "trigram"])
def test_texts_are_found_by_their_letters(server: PostgresServer, metric: str) -> None:
    chance = Random(metric)
    words = [
        "",
        "ann",
        "anna",
        "Anna-Lena",
        "hanna",
        "MÜLLER",
        "müller",
        "muller ann",
        "東京",
        "x_y 12",
        "y" * 255,
    ]
    words += ["é" * 256, "z" * 300, "  "]
    words += ["".join(chance.choices("abn ", k=chance.randrange(8))) for _ in range(80)]
    rows = [{"id": at, "g": at % 2, "t": each} for at, each in enumerate([None, *words])]
    server.execute(
        f"CREATE TABLE {metric}s (id int PRIMARY KEY, g int, t text);"
        f"CREATE INDEX ON {metric}s USING gist (t gist_trgm_ops)"
    )
    server.copy(f"{metric}s", [tuple(row.values()) for row in rows], list(rows[0]))
    schema = pa.schema([("id", pa.int32()), ("g", pa.int32()), ("t", pa.string())])
    asked = [*words[:14], *words[20:30]]
    keys = pa.table({"g": pa.array([at % 3 for at in range(len(asked))], pa.int32()), "v": pa.array(asked)})
    for most in (1, 4, 70):
        nearest = NearestCondition(("t",), metric, most)
        _check(_table(server, f"{metric}s", schema), rows, keys, nearest)
        _check(_table(server, f"{metric}s", schema), rows, keys.select(["v"]), nearest)


def _plan(table: LookupTable, keys: pa.Table, nearest: NearestCondition) -> str:
    """How PostgreSQL runs the statement for ``keys``."""

    async def explained(connector: PostgresConnector) -> str:
        live = connector._live
        assert live is not None
        query, _, bound = live.statements.of(LookupRequest(keys, table.schema, nearest=nearest))
        async with live.pool.borrowed() as connection:
            return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {query}", *bound, 10**9))

    return during(PostgresConnector(table), explained)


LARGE = """
CREATE TABLE large AS
SELECT id::int, (id % 20)::int AS g, random() * 100 AS x, random() * 100 AS y, (random() * 1e6)::int AS n,
       md5(id::text) AS t, random() * 180 - 90 AS lat, random() * 360 - 180 AS lon, random() AS d,
       ARRAY[random(), random(), random(), random()]::vector(4) AS e,
       ARRAY[random(), random(), random(), random()]::halfvec(4) AS h
FROM generate_series(1, 20000) AS id;
ALTER TABLE large ADD PRIMARY KEY (id);
CREATE INDEX by_hnsw ON large USING hnsw (e vector_cosine_ops);
CREATE INDEX by_half ON large USING hnsw (h halfvec_l2_ops);
CREATE INDEX by_ivfflat ON large USING ivfflat (e vector_l2_ops);
CREATE INDEX by_point ON large USING gist (point(x, y));
CREATE INDEX by_place ON large USING gist (ll_to_earth(lat, lon));
CREATE INDEX by_text ON large USING gist (t gist_trgm_ops);
CREATE INDEX by_number ON large (g, n);
CREATE INDEX by_double ON large (d);
CREATE INDEX strange_texts ON large (id) WHERE octet_length(t) > length(t);
ANALYZE large
"""
LARGE_SCHEMA = pa.schema(
    [
        *((name, pa.int32()) for name in ("id", "g", "n")),
        *((name, pa.float64()) for name in ("x", "y", "lat", "lon", "d")),
        ("t", pa.string()),
        ("e", FLOATS),
        ("h", FLOATS),
    ]
)


@pytest.fixture(scope="module")
def large(server: PostgresServer) -> LookupTable:
    server.execute(LARGE)
    return _table(server, "large", LARGE_SCHEMA)


def _structs(**values: float) -> pa.Array:
    return pa.array([values], pa.struct([(name, pa.float64()) for name in values]))


VECTOR = pa.array([[0.1, 0.2, 0.3, 0.4]], FLOATS)


@pytest.mark.parametrize(
    ("columns", "metric", "value", "by", "exact"),
    [
        (("e",), "cosine", VECTOR, "by_hnsw", False),
        (("h",), "l2", VECTOR, "by_half", False),
        (("e",), "l2", VECTOR, "by_ivfflat", False),
        (("x", "y"), "euclidean", _structs(x=1.0, y=2.0), "by_point", True),
        (("lat", "lon"), "great-circle", _structs(lat=48.0, lon=11.0), "by_place", True),
        (("t",), "trigram", pa.array(["abcdef"]), "by_text", True),
        (("d",), "difference", pa.array([0.5]), "by_double", True),
    ],
)
def test_an_index_finds_the_nearest_rows(
    large: LookupTable, columns: tuple[str, ...], metric: str, value: pa.Array, by: str, exact: bool
) -> None:
    keys = pa.table({"v": value})
    plan = _plan(large, keys, NearestCondition(columns, metric, 3, exact=exact))
    assert by in plan
    if exact:  # all rows are read only where the last of the nearest is not known
        assert plan.count("Seq Scan") <= 1, plan
        assert plan.count("One-Time Filter") >= plan.count("Seq Scan"), plan


def test_an_index_of_keys_and_a_number_finds_the_nearest_rows(large: LookupTable) -> None:
    keys = pa.table({"g": pa.array([1], pa.int32()), "v": pa.array([5], pa.int32())})
    plan = _plan(large, keys, NearestCondition(("n",), "difference", 3))
    assert plan.count("by_number") == 2
    assert "Seq Scan" not in plan
    assert "Sort" not in plan


@pytest.mark.parametrize(("column", "metric"), [("e", "cosine"), ("e", "l2"), ("h", "l2")])
def test_no_approximate_index_answers_an_exact_search(large: LookupTable, column: str, metric: str) -> None:
    plan = _plan(large, pa.table({"v": VECTOR}), NearestCondition((column,), metric, 3))
    assert "Seq Scan" in plan
    assert not any(index in plan for index in ("by_hnsw", "by_half", "by_ivfflat"))


def _found(table: LookupTable, keys: pa.Table, nearest: NearestCondition) -> list[int]:
    request = LookupRequest(keys, pa.schema([table.schema.field("id")]), 60.0, nearest=nearest)
    answer: Any = during(PostgresConnector(table), lambda opened: opened.alookup(request))
    return sorted(answer.rows.column("id").to_pylist())


def test_an_approximate_search_finds_as_many_as_are_wanted(large: LookupTable) -> None:
    nearest = NearestCondition(("e",), "cosine", 100, exact=False)
    assert len(_found(large, pa.table({"v": VECTOR}), nearest)) == 100  # ef_search is 40
    among = pa.table({"g": pa.array([7], pa.int32()), "v": VECTOR})
    assert len(_found(large, among, nearest)) == 100


def test_settings_of_a_search_hold_for_its_statement_alone(
    server: PostgresServer, large: LookupTable
) -> None:
    options = {"nearest.ef-search": "1", "nearest.probes": "1", "pool-size": "1"}
    few = _table(server, "large", LARGE_SCHEMA, **options)
    # So many that some of them lie at the edge of their list, however the index was built.
    tenths = [at / 10 for at in range(1, 10)]
    keys = pa.table({"v": pa.array([[a, b, 0.3, 0.4] for a in tenths for b in tenths], FLOATS)})
    l2 = NearestCondition(("e",), "l2", 20, exact=False)
    exact = _found(large, keys, NearestCondition(("e",), "l2", 20))
    found = {
        probes: _found(_table(server, "large", LARGE_SCHEMA, **{"nearest.probes": probes}), keys, l2)
        for probes in ("1", "100")
    }
    assert found["100"] == exact
    assert found["1"] != exact
    assert PostgresConnector(few).nearest_search(l2) == (
        "asked of pgvector; approximate where it has an index (hnsw.ef_search = 1, ivfflat.probes = 1)"
    )

    async def settings(connector: PostgresConnector) -> Any:
        await connector.alookup(LookupRequest(keys, LARGE_SCHEMA, 60.0, nearest=l2))
        assert connector._live is not None
        async with connector._live.pool.borrowed() as connection:
            return await connection.fetchrow(
                "SELECT current_setting('hnsw.ef_search'), current_setting('ivfflat.iterative_scan')"
            )

    assert tuple(during(PostgresConnector(few), settings)) == ("40", "off")


def test_settings_of_a_search_go_with_it_through_a_pooler(server: PostgresServer, large: LookupTable) -> None:
    l2 = NearestCondition(("e",), "l2", 20, exact=False)
    asked = [pa.table({"v": pa.array([[at / 10, 0.2, 0.3, 0.4]], FLOATS)}) for at in range(10)]
    ids = pa.schema([LARGE_SCHEMA.field("id")])

    async def ask_each(connector: PostgresConnector) -> list[list[int]]:
        answers = [await connector.alookup(LookupRequest(keys, ids, 60.0, nearest=l2)) for keys in asked]
        return [sorted(rows_of(answer).column("id").to_pylist()) for answer in answers]

    async def settings_left(port: int) -> set[str]:
        connection = await asyncpg.connect(server.url(port=port, sslmode="disable"), statement_cache_size=0)
        left = {await connection.fetchval("SELECT current_setting('ivfflat.probes', true)") for _ in range(6)}
        await connection.close()
        return left

    exact = [_found(large, keys, NearestCondition(("e",), "l2", 20)) for keys in asked]
    with transaction_pooler(server.port) as (port, lent):
        url = server.url(port=port, sslmode="disable")
        for probes, is_exact in (("100", True), ("1", False)):
            options = {"url": url, "statement-cache-size": "0", "pool-size": "1", "nearest.probes": probes}
            found = during(PostgresConnector(_table(server, "large", LARGE_SCHEMA, **options)), ask_each)
            assert (found == exact) is is_exact
        assert len(lent.transactions) >= 20
        assert asyncio.run(settings_left(port)) <= {"1", None, ""}


def test_a_space_partitioned_index_finds_the_nearest_points(
    server: PostgresServer, large: LookupTable
) -> None:
    server.execute(
        "CREATE TABLE spread AS SELECT id, x, y FROM large; CREATE INDEX by_quads ON spread USING spgist (point(x, y));"
        "ANALYZE spread"
    )
    spread = _table(server, "spread", pa.schema([LARGE_SCHEMA.field(name) for name in ("id", "x", "y")]))
    keys, nearest = pa.table({"v": _structs(x=1.0, y=2.0)}), NearestCondition(("x", "y"), "euclidean", 3)
    assert "by_quads" in _plan(spread, keys, nearest)
    assert _found(spread, keys, nearest) == _found(large, keys, nearest)


def test_another_length_and_a_missing_extension_are_errors_that_say_what_to_do(
    server: PostgresServer, large: LookupTable
) -> None:
    longer = pa.table({"v": pa.array([[1.0, 2.0]], FLOATS)})
    with pytest.raises(
        ConnectorError, match=r"table large: .*different vector dimensions 4 and 2.* l2 of e\."
    ):
        _found(large, longer, NearestCondition(("e",), "l2"))
    server.execute("CREATE DATABASE bare")
    server.execute("CREATE TABLE names (id int PRIMARY KEY, t text)", "bare")
    schema = pa.schema([("id", pa.int32()), ("t", pa.string())])
    bare = LookupTable("names", schema, (), {"connector": "postgres", "url": server.url(database="bare")})
    texts = pa.table({"v": pa.array(["a"])})
    for metric, extension in (("trigram", "pg_trgm"), ("levenshtein", "fuzzystrmatch")):
        with pytest.raises(
            ConnectorError, match=f"by {metric} of t. CREATE EXTENSION {extension} in a schema"
        ):
            _found(bare, texts, NearestCondition(("t",), metric))


def test_an_extension_in_a_schema_of_its_own_is_found(server: PostgresServer) -> None:
    server.execute("CREATE DATABASE apart")
    server.execute(
        "CREATE SCHEMA vectors; CREATE EXTENSION vector SCHEMA vectors;"
        "CREATE TABLE items (id int PRIMARY KEY, e vectors.vector(2), h vectors.halfvec(2));"
        "INSERT INTO items VALUES (1, '[1,2]', '[1,2]'), (2, '[3,4]', '[3,4]')",
        "apart",
    )
    url = server.url(database="apart")
    told, key = PostgresConnector(
        LookupTable("items", pa.schema([]), (), {"connector": "postgres", "url": url})
    ).discover()
    table = LookupTable("items", told, key, {"connector": "postgres", "url": url})
    assert told == pa.schema([("id", pa.int32()), ("e", FLOATS), ("h", FLOATS)])
    keys = pa.table({"v": pa.array([[3.0, 3.9]], FLOATS)})
    for column in ("e", "h"):
        for metric in ("l2", "cosine", "inner-product"):
            for exact in (True, False):
                found = _found(table, keys, NearestCondition((column,), metric, 1, exact))
                assert found == [2]


def test_vectors_are_read_as_arrays_of_floats(server: PostgresServer) -> None:
    server.execute(
        "CREATE TABLE kept (id int PRIMARY KEY, e vector, h halfvec(2));"
        "INSERT INTO kept VALUES (1, '[0.1, 2, 1e-30]', '[1, 0.5]'), (2, NULL, NULL), (3, '[7]', '[-3, 65504]');"
        "CREATE VIEW seen AS SELECT * FROM kept"
    )
    schema = pa.schema([("id", pa.int32()), ("e", FLOATS), ("h", pa.list_(pa.float64()))])
    expected = [[[as_float(0.1), 2.0, as_float(1e-30)], None, [7.0]], [[1.0, 0.5], None, [-3.0, 65504.0]]]
    for name in ("kept", "seen"):
        table = _table(server, name, schema)
        scanned = pa.Table.from_batches(PostgresConnector(table).scan(schema)).sort_by("id")
        assert [scanned.column(each).to_pylist() for each in ("e", "h")] == expected
        asked = sorted(ask(table, {"id": [1, 2, 3]}), key=lambda row: row["id"])
        assert [[row[each] for row in asked] for each in ("e", "h")] == expected


def test_what_postgresql_cannot_tell_as_spark_does_is_left_to_the_worker(server: PostgresServer) -> None:
    schema = pa.schema(
        [
            ("t", pa.string()),
            ("d", pa.decimal128(38, 2)),
            ("f", pa.list_(pa.float64())),
            ("b", pa.bool_()),
            ("n", pa.int64()),
        ]
    )
    connector = PostgresConnector(_table(server, "t", pa.schema([("id", pa.int32()), *schema])))
    asked = [
        ("t", "difference"),
        ("d", "difference"),
        ("f", "l2"),
        ("b", "difference"),
        ("n", "levenshtein"),
        ("n", "euclidean"),
    ]
    assert not any(
        connector.can_find_nearest(NearestCondition((name,), metric), among=()) for name, metric in asked
    )
