"""Lookup joins under settings that decide what SQL means, against Spark's own join under the same settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.queries.settings import SETTINGS, configured
from tests.queries.worlds import QUICK
from tests.spark.answers import Answer, answers
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC = timezone.utc
LEFT = "n INT, k BIGINT, s STRING, d DATE, t TIMESTAMP_LTZ, u TIMESTAMP_NTZ, m DECIMAL(10,2), f DOUBLE, on BOOLEAN"
RIGHT = (
    "id BIGINT, name STRING, at TIMESTAMP_LTZ, local TIMESTAMP_NTZ, day DATE, price DECIMAL(12,3), ratio DOUBLE,"
    " tags ARRAY<STRING>, extra STRUCT<a: INT, b: STRING>"
)
ORDERS: list[tuple[Any, ...]] = [
    (
        number,
        number % 3,
        text,
        date(2024, 3, 9 + number % 3),
        datetime(2024, 3, 10, 5 + number % 2, tzinfo=UTC),
        datetime(2024, 3, 10, number % 2),
        Decimal(number),
        number / 2,
        number % 2 == 0,
    )
    for number, text in enumerate(
        ("1", "a", "A", " 2", "2024-03-10", "2024-03-10 00:00:00", r"b\t", "1e0", "é")
    )
]
ORDERS.append((None,) * 9)
CUSTOMERS: list[tuple[Any, ...]] = [
    (
        number,
        text,
        datetime(2024, 3, 10, 5 + number, tzinfo=UTC),
        datetime(2024, 3, 10, number),
        date(2024, 3, 10 + number),
        Decimal(number),
        float(number),
        [text, None],
        (number, text),
    )
    for number, text in enumerate(("a", "1", r"b\t", "2024-03-10 "))
]
CUSTOMERS.append((7, None, None, None, None, None, None, None, None))

CORPUS = (
    # The types of keys, and what Spark compares them as.
    "SELECT o.n, c.* FROM o LEFT JOIN c ON o.n = c.id",
    "SELECT o.n, c.at, hour(c.at) AS h, c.local FROM o LEFT JOIN c ON o.d = c.at",
    "SELECT o.n, c.at, c.day FROM o LEFT JOIN c ON o.u = c.at",
    "SELECT o.n, c.at, c.local FROM o LEFT JOIN c ON o.t = c.at AND c.at < TIMESTAMP '2024-03-10 01:30:00'",
    "SELECT o.n, c.at FROM o LEFT JOIN c ON try_cast(o.s AS DATE) = c.local",
    "SELECT id, at, date_trunc('day', at) AS day FROM c WHERE at = TIMESTAMP '2024-03-10 00:00:00'",
    "SELECT id, typeof(at) AS a, typeof(local) AS l FROM c WHERE id IN (1, 2) AND at IN (DATE '2024-03-10', at)",
    "SELECT o.n, c.id FROM o LEFT JOIN c ON o.s = c.name AND c.name <> 'A' AND o.s = 'b\\\\t'",
    "SELECT o.n, c.id FROM o JOIN c ON o.s = c.name WHERE c.name LIKE 'b%' OR c.name = \"a\"",
    "SELECT o.n, c.id FROM o JOIN c ON o.f = c.price WHERE o.m + c.price > 0.5 AND o.m * c.price < 1e1",
    "SELECT o.n, c.id, o.m * c.price AS p, c.price / 3 AS q, 1.5E0 AS e FROM o JOIN c ON o.m = c.id",
    "SELECT o.n, c.id FROM o JOIN c ON o.k = c.ratio AND c.id BETWEEN 0 AND 2",
    # Where a name, an ordinal or a clause may mean something else.
    "SELECT O.N, C.NAME AS x, x AS y FROM o JOIN c ON o.K = C.Id",
    "SELECT c.name, count(*) FROM o JOIN c ON o.k = c.id GROUP BY 1 HAVING count(*) > 1 ORDER BY 1, 2",
    "SELECT count(*) AS n FROM o JOIN c ON o.k = c.id HAVING n > 1",
    "SELECT `n|name` FROM (SELECT o.n, c.name FROM o JOIN c ON o.k = c.id)",
    'SELECT "n" FROM o AS "o" JOIN c ON "o"."k" = "c".id',
    "WITH t AS (SELECT id FROM c WHERE id = 1) SELECT * FROM (WITH t AS (SELECT id FROM c WHERE id = 2)"
    " SELECT * FROM t) JOIN t USING (id)",
    "SELECT o.n FROM o, o AS p JOIN c ON o.k = c.id WHERE p.n = 1",
    "SELECT id FROM c WHERE id = 1 UNION SELECT n FROM o INTERSECT SELECT id FROM c WHERE id = 2 MINUS SELECT 1",
    "SELECT o.n AS left, c.id AS order FROM o CROSS JOIN c WHERE o.k = c.id",
    "FROM o |> LEFT JOIN c ON o.k = c.id |> WHERE c.id > 0 |> SELECT n, name",
    "SELECT /*+ BROADCAST(c) */ o.n, c.id FROM o LEFT JOIN c ON ! o.k = c.id AND o.k = c.id",
    "SELECT ${name} FROM o JOIN c ON o.k = c.id",
    "SELECT o.n, c.name, p.s FROM o LEFT JOIN c ON o.k = c.id JOIN o AS p ON p.n = o.n AND p.k = c.id",
    "SELECT n, id FROM o JOIN IDENTIFIER('c') ON n = id",
    # Subqueries, and NULL in them.
    "SELECT n FROM o WHERE k IN (SELECT id FROM c WHERE name = 'a')",
    "SELECT n FROM o WHERE k NOT IN (SELECT id FROM c WHERE id < 2)",
    "SELECT n, (SELECT max(name) FROM c WHERE id = o.k) AS x FROM o WHERE EXISTS (SELECT 1 FROM c WHERE id = o.n)",
    "SELECT n, (SELECT count(*) FROM c WHERE id = o.n) AS x FROM o",
    # Values of the rows found.
    "SELECT o.n, size(c.tags) AS z, c.tags[0] AS t, array_insert(c.tags, -1, 'x') AS i, c.extra.b AS b,"
    " map(coalesce(c.id, -1), o.n) AS m FROM o LEFT JOIN c ON o.n = c.id",
    "SELECT o.n, concat(c.name, 'x') AS c, cast(c.id AS VARCHAR(3)) AS v, c.extra AS e, cast(c.extra AS STRING) AS s"
    " FROM o JOIN c ON o.n = c.id",
    "SELECT o.n, element_at(c.tags, 1) AS t, c.at - INTERVAL '1' DAY AS y, try_to_timestamp(c.name, 'yyyy-MM-dd ') AS z"
    " FROM o JOIN c ON o.n = c.id",
)

GIVEN = {
    **QUICK,
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "name": "o.n",
}


def twins_in(spark: SparkSession, folder: Path) -> Twins:
    made = Twins(spark.newSession, folder)
    made.table("o", LEFT, ORDERS, partitions=1)
    made.dimension("c", RIGHT, CUSTOMERS, key="id")
    made.plain.table("c").coalesce(1).write.parquet(f"{folder}/c")
    made.plain.read.schema(RIGHT).parquet(f"{folder}/c").createOrReplaceTempView("c")
    for key, value in GIVEN.items():
        made.conf(key, value)
    return made


Outcome = Answer | Exception
"""Columns and rows of a statement, or why it has none."""


def outcomes(run: Callable[[str], DataFrame], texts: Sequence[str]) -> list[Outcome]:
    """What each statement gives; all that can be analysed run in one job, where none of them fails."""
    frames = [_analysed(run, text) for text in texts]
    running = [frame for frame in frames if not isinstance(frame, Exception)]
    try:
        found: Iterator[Outcome] = iter(answers(running))
    except Exception:
        found = map(_answer, running)
    return [frame if isinstance(frame, Exception) else next(found) for frame in frames]


def _analysed(run: Callable[[str], DataFrame], text: str) -> DataFrame | Exception:
    try:
        return run(text)
    except Exception as error:
        return error


def _answer(frame: DataFrame) -> Outcome:
    try:
        return answers([frame])[0]
    except Exception as error:
        return error


def difference(ours: Outcome, sparks: Outcome) -> str:
    """What is wrong with ``ours``; empty where it is what Spark's own join gives, or an error in both."""
    if isinstance(ours, Exception):
        is_fair = isinstance(sparks, Exception) and "please report" not in str(ours)
        return "" if is_fair else f"{type(ours).__name__}: {ours}"[:1000]
    is_same = isinstance(sparks, Answer) and (
        ours.columns == sparks.columns and Counter(ours.rows) == Counter(sparks.rows)
    )
    return "" if is_same else f"{ours}"[:1000]


FEW = CORPUS[:4] + CORPUS[7:10] + CORPUS[12:14]
"""For settings that should mean nothing: keys, conditions, names, an aggregate."""

_ELSEWHERE = (
    *(
        "streaming",
        "sources",
        "hive",
        "parquet",
        "orc",
        "avro",
        "csv",
        "json",
        "xml",
        "protobuf",
        "thriftServer",
    ),
    *("catalog", "cbo", "statistics", "artifact", "repl", "cli", "ui", "bucketing", "files", "pyspark"),
    *("debug", "extensions", "pipelines", "redaction", "planner", "metricView"),
)
"""What comes after ``spark.sql.`` in names of settings of what no lookup reads, writes or shows."""


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return twins_in(spark, tmp_path_factory.mktemp("settings"))


def check(twins: Twins, settings: Mapping[str, str], corpus: Sequence[str]) -> None:
    with configured(twins.sessions, settings):
        sparks = outcomes(twins.plain.sql, corpus)
        ours = outcomes(twins.session.sql, corpus)
    wrong = [
        f"{text}\n  {found}\nand not\n  {wanted}"
        for text, found, wanted in (
            (text, difference(own, other), other)
            for text, own, other in zip(corpus, ours, sparks, strict=True)
        )
        if found
    ]
    assert not wrong, f"under {dict(settings)}:\n" + "\n".join(wrong)
    assert any(not isinstance(each, Exception) for each in sparks), "some of them mean something"


SOME = [dict(SETTINGS[start::21]) for start in range(21)]
"""Three at a time, far from each other in the list: most have nothing to do with each other, and a run costs the same."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", [pytest.param(some, id=", ".join(some)) for some in SOME])
def test_a_lookup_join_is_sparks_own_join_under_every_setting(twins: Twins, settings: dict[str, str]) -> None:
    needs_ansi = {"spark.sql.ansi.enabled": "true"} if "spark.sql.ansi." in str(settings) else {}
    check(twins, {**needs_ansi, **settings}, CORPUS)


@pytest.mark.timeout(3600)
def test_no_other_switch_of_spark_makes_another_join_of_it(twins: Twins) -> None:
    """All that ``SET -v`` tells, each the other way round, six at a time."""
    known = {key for key, _ in SETTINGS} | set(GIVEN)
    switches = {
        row.key: "true" if row.value == "false" else "false"
        for row in twins.plain.sql("SET -v").collect()
        if row.value in ("true", "false")
        and row.key.startswith("spark.sql.")
        and row.key.split(".")[2] not in _ELSEWHERE
        and row.key not in known
    }
    assert len(switches) > 30
    keys = sorted(switches)
    for start in range(0, len(keys), 6):
        check(twins, {key: switches[key] for key in keys[start : start + 6]}, FEW)
