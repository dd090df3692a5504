"""FOR SYSTEM_TIME AS OF a moment: the rows that held then, as Spark's own windows and inequalities find them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lookup_hints.driver.spark_versions import spark_version
from lookup_hints.errors import HintError, QueryError, UnsupportedLookup
from tests.queries.worlds import QUICK, Data, World, Worlds, last_frame
from tests.spark.answers import Answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKUPS = frozenset({"prices", "rates", "days", "steps", "plain", "ledger", "closing", "counts"})
FROM, TO = {"lookup.valid-from": "since"}, {"lookup.valid-to": "until"}
KNOWN = {"lookup.known-from": "known"}
CHANCE = Random(12)
NOON = datetime(2024, 3, 10, 12)  # clocks go forward in New York on that day


def moments(count: int) -> list[Any]:
    return [
        CHANCE.choice([None, *(NOON + timedelta(hours=each) for each in range(-12, 12, 3))])
        for _ in range(count)
    ]


def versions(kind: pa.DataType, values: list[Any]) -> pa.Table:
    """Rows of five keys, each version of a key once; some with an end, which may leave gaps or overlap."""
    pairs = sorted({(CHANCE.randrange(5), CHANCE.choice(values)) for _ in range(30)}, key=repr)
    ends = [CHANCE.choice([None, *values]) for _ in pairs]
    columns = {
        "k": [key for key, _ in pairs],
        "since": pa.array([since for _, since in pairs], kind),
        "until": pa.array(ends, kind),
        "v": list(range(len(pairs))),
    }
    return pa.table(columns)


def corrected(kind: pa.DataType, values: list[Any]) -> pa.Table:
    """Versions of five keys, most of them corrected, some late, some before they begin; a few with NULLs."""
    drawn = [(CHANCE.randrange(5), *CHANCE.choices([None, *values], k=2)) for _ in range(90)]
    rows = sorted(set(drawn), key=repr)
    return pa.table(
        {
            "k": [key for key, _, _ in rows],
            "since": pa.array([since for _, since, _ in rows], kind),
            "known": pa.array([known for _, _, known in rows], kind),
            "until": pa.array(CHANCE.choices([None, *values], k=len(rows)), kind),
            "v": list(range(len(rows))),
        }
    )


HOURS = [NOON + timedelta(hours=each) for each in range(-12, 12, 2)]
DAYS = [date(2024, 3, each) for each in range(8, 14)]
TABLES = {
    "o": Data(
        pa.table(
            {
                "no": list(range(60)),
                "k": [CHANCE.choice([None, 0, 1, 2, 3, 4, 9]) for _ in range(60)],
                "ts": pa.array(moments(60), pa.timestamp("us", "UTC")),
                "local": pa.array(moments(60), pa.timestamp("us")),
                "day": pa.array([CHANCE.choice([None, *DAYS]) for _ in range(60)], pa.date32()),
                "n": pa.array([CHANCE.choice([None, 1, 2, 3, 4]) for _ in range(60)], pa.int32()),
                "learned": pa.array(moments(60), pa.timestamp("us")),
                "later": pa.array([CHANCE.choice([None, *DAYS]) for _ in range(60)], pa.date32()),
            }
        )
    ),
    "prices": Data(versions(pa.timestamp("us", "UTC"), HOURS), ("k", "since"), FROM),
    "rates": Data(versions(pa.timestamp("us"), HOURS), options={**FROM, **TO}),
    "days": Data(versions(pa.date32(), DAYS), ("k", "since"), FROM),
    "steps": Data(versions(pa.int64(), [1, 2, 3]), options={**FROM, **TO}),
    "ledger": Data(corrected(pa.timestamp("us"), HOURS), ("k", "since", "known"), {**FROM, **KNOWN}),
    "closing": Data(corrected(pa.date32(), DAYS), ("k", "since", "known"), {**FROM, **TO, **KNOWN}),
    "counts": Data(corrected(pa.int64(), [1, 2, 3]), ("k", "since", "known"), {**FROM, **KNOWN}),
    "plain": Data(versions(pa.int64(), [1, 2, 3])),
}  # fmt: skip


def last(table: str, value: str, kind: str = "LEFT") -> str:
    """Spark's way to say it: of the rows of a key that had begun the last one."""
    return (
        f"SELECT no, since, v FROM (SELECT o.no, t.since, t.v, row_number() OVER (PARTITION BY o.no ORDER BY"
        f" t.since DESC) AS rank FROM o {kind} JOIN {table} t ON o.k = t.k AND t.since <= {value}) WHERE rank = 1"
    )


def known(table: str, value: str, kind: str = "LEFT", ended: str = "false", by: str = "") -> str:
    """Of the rows of a key that had begun and were known the last one, of its corrections the last one."""
    return (
        f"SELECT no, CASE WHEN {ended} THEN NULL ELSE since END AS since, CASE WHEN {ended} THEN NULL ELSE v END"
        f" AS v FROM (SELECT o.*, t.since, t.until, t.v, row_number() OVER (PARTITION BY o.no ORDER BY t.since"
        f" DESC, t.known DESC) AS rank FROM o {kind} JOIN {table} t ON o.k = t.k AND t.since <= {value} AND"
        f" t.known <= {by or value}) WHERE rank = 1"
    )


def held(table: str, value: str, kind: str = "LEFT") -> str:
    """All rows of a key that had begun and were not over."""
    ends = f"(t.until IS NULL OR {value} < t.until)"
    return f"SELECT o.no, t.since, t.v FROM o {kind} JOIN {table} t ON o.k = t.k AND t.since <= {value} AND {ends}"


def asked(table: str, value: str, kind: str = "LEFT", by: str = "") -> str:
    hint = f"/*+ LOOKUP('table'='t', 'known-as-of'='{by}') */ " if by else ""
    return f"SELECT {hint}o.no, t.since, t.v FROM o {kind} JOIN {table} FOR SYSTEM_TIME AS OF {value} AS t ON o.k = t.k"


CASES = {
    "a column": (asked("prices", "o.ts"), last("prices", "o.ts")),
    "inner": (asked("prices", "o.ts", "INNER"), last("prices", "o.ts", "INNER")),
    "an expression": (asked("prices", "(o.ts - INTERVAL 3 HOURS)"), last("prices", "(o.ts - INTERVAL 3 HOURS)")),
    "a constant": (
        asked("prices", "TIMESTAMP '2024-03-10 10:00:00'"), last("prices", "TIMESTAMP '2024-03-10 10:00:00'")),
    "the present": (asked("prices", "PROCTIME()"), last("prices", "current_timestamp()")),
    "a date against moments": (asked("prices", "o.day"), last("prices", "o.day")),
    "local time against moments": (asked("prices", "o.local"), last("prices", "o.local")),
    "a text against moments": (asked("prices", "'2024-03-10 08:00:00'"), last("prices", "'2024-03-10 08:00:00'")),
    "days": (asked("days", "o.day"), last("days", "o.day")),
    "today": (asked("days", "now()"), last("days", "current_date()")),
    "until": (asked("rates", "o.local"), held("rates", "o.local")),
    "until, inner": (asked("rates", "o.local", "INNER"), held("rates", "o.local", "INNER")),
    "until, a literal": (
        asked("rates", "TIMESTAMP_NTZ '2024-03-10 03:00:00'"), held("rates", "TIMESTAMP_NTZ '2024-03-10 03:00:00'")),
    "numbers": (asked("steps", "o.n"), held("steps", "o.n")),
    "below zero": (asked("steps", "-1"), held("steps", "-1")),
    "an element": (asked("steps", "map('a', array(o.n))['a'][0]"), held("steps", "o.n")),
    "a choice": (
        asked("steps", "CASE WHEN o.n < 2 THEN -1 ELSE - -o.n END + 0"), held("steps", "CASE WHEN o.n < 2 THEN -1 ELSE o.n END")),
    "an interval of two units": (
        asked("prices", "o.ts - INTERVAL 1 HOUR 30 MINUTES"), last("prices", "o.ts - INTERVAL '90' MINUTE")),
    "known": (asked("ledger", "o.local"), known("ledger", "o.local")),
    "known, inner": (asked("ledger", "o.local", "INNER"), known("ledger", "o.local", "INNER")),
    "known, a literal": (
        asked("ledger", "TIMESTAMP_NTZ '2024-03-10 10:00:00'"), known("ledger", "TIMESTAMP_NTZ '2024-03-10 10:00:00'")),
    "known numbers": (asked("counts", "o.n"), known("counts", "o.n")),
    "known, with an end": (asked("closing", "o.day"), known("closing", "o.day", ended="until <= day")),
    "known, semi": (
        "SELECT o.no FROM o LEFT SEMI JOIN ledger FOR SYSTEM_TIME AS OF o.local AS t ON o.k = t.k",
        f"SELECT no FROM ({known('ledger', 'o.local', 'INNER')})"),
    "known, a condition on the rows": (
        asked("ledger", "o.local", "INNER") + " AND t.v % 2 = 0", known("ledger", "o.local", "INNER") + " AND v % 2 = 0"),
    "known by another moment": (asked("ledger", "o.local", by="o.learned"), known("ledger", "o.local", by="o.learned")),
    "known by another moment, which is cast": (asked("ledger", "o.local", by="day"), known("ledger", "o.local", by="day")),
    "known by another moment, with an end": (
        asked("closing", "o.day", "INNER", by="`o`.`later`"),
        known("closing", "o.day", "INNER", "until <= day", "o.later") + " AND NOT coalesce(until <= day, false)"),
    "all that began, as far as it was known": (
        asked("ledger", "TIMESTAMP_NTZ '2024-03-10 10:00:00'", by="o.local"),
        known("ledger", "TIMESTAMP_NTZ '2024-03-10 10:00:00'", by="o.local")),
    "NULL": (asked("steps", "NULL"), held("steps", "CAST(NULL AS BIGINT)")),
    "a condition on the rows": (
        asked("prices", "o.ts", "INNER") + " AND t.v % 2 = 0", last("prices", "o.ts", "INNER") + " AND v % 2 = 0"),
    "a condition on the left": (
        asked("rates", "o.local") + " AND o.no > 30", held("rates", "o.local") + " AND o.no > 30"),
    "semi": (
        "SELECT o.no FROM o LEFT SEMI JOIN rates FOR SYSTEM_TIME AS OF o.local AS t ON o.k = t.k",
        f"SELECT DISTINCT no FROM ({held('rates', 'o.local', 'INNER')})"),
    "anti": (
        "SELECT o.no FROM o LEFT ANTI JOIN prices FOR SYSTEM_TIME AS OF o.ts AS t ON o.k = t.k",
        f"SELECT no FROM o EXCEPT SELECT no FROM ({last('prices', 'o.ts', 'INNER')})"),
    "using": (
        "SELECT no, since, v FROM o JOIN prices FOR SYSTEM_TIME AS OF o.ts USING (k)", last("prices", "o.ts", "INNER")),
    "a comma": (
        "SELECT o.no, t.since, t.v FROM o, prices FOR SYSTEM_TIME AS OF o.ts AS t WHERE o.k = t.k",
        last("prices", "o.ts", "INNER")),
    "a list of keys": (
        "SELECT k, v FROM steps FOR SYSTEM_TIME AS OF 2 WHERE k IN (0, 1, 9)",
        "SELECT k, v FROM steps WHERE k IN (0, 1, 9) AND since <= 2 AND (until IS NULL OR 2 < until)"),
    "a query as key": (
        asked("prices", "o.ts").replace("o.k = t.k", "(SELECT max(k) - 5 FROM o) = t.k"),
        last("prices", "o.ts").replace("o.k = t.k", "(SELECT max(k) - 5 FROM o) = t.k")),
    "a query as moment": (
        asked("steps", "(SELECT min(n) FROM o)"), held("steps", "(SELECT min(n) FROM o)")),
    "two of one table": (
        "SELECT o.no, a.v, b.v FROM o JOIN prices FOR SYSTEM_TIME AS OF o.ts AS a ON o.k = a.k"
        " LEFT JOIN prices FOR SYSTEM_TIME AS OF TIMESTAMP '2024-03-10 09:00:00' AS b ON o.k = b.k",
        f"SELECT a.no, a.v, b.v FROM ({last('prices', 'o.ts', 'INNER')}) a JOIN"
        f""" ({last("prices", "TIMESTAMP '2024-03-10 09:00:00'")}) b ON a.no = b.no"""),
    "without a time, all versions": (
        "SELECT o.no, t.v FROM o JOIN prices t ON o.k = t.k", "SELECT o.no, t.v FROM o JOIN prices t ON o.k = t.k"),
    "pipes": (
        "FROM o |> JOIN prices FOR SYSTEM_TIME AS OF o.ts AS t ON o.k = t.k |> SELECT no, since, v",
        last("prices", "o.ts", "INNER")),
}  # fmt: skip


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("versions"), TABLES, {**QUICK, "lookup.on-scan": "error"})


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds.world(LOOKUPS)


@pytest.mark.parametrize("case", CASES)
def test_the_rows_are_those_that_held(worlds: Worlds, world: World, case: str) -> None:
    if case == "pipes" and spark_version(worlds.spark) < (4, 0):
        pytest.skip("this Spark has no pipes")
    ours, plain = CASES[case]
    world.forget()
    Answer.of(last_frame(world.session, ours, None)).require(worlds.answer(plain), ours, ordered=False)
    for name in ("prices", "rates", "days", "steps"):
        assert len(world.calls(name).keys) == len(set(world.calls(name).keys)) or case == "two of one table"


@pytest.mark.parametrize("transport", ["arrow", "pandas"])
def test_by_pandas_it_is_the_same(worlds: Worlds, world: World, transport: str) -> None:
    world.session.spark.conf.set(
        "lookup.transport", transport if spark_version(worlds.spark) >= (4, 1) else "pandas"
    )
    try:
        for case in ("a column", "until", "days", "numbers", "a query as key"):
            ours, plain = CASES[case]
            Answer.of(last_frame(world.session, ours, None)).require(
                worlds.answer(plain), ours, ordered=False
            )
    finally:
        world.session.spark.conf.unset("lookup.transport")


def test_more_random_tables_are_answered_as_they_were_known(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(6):
        rows = corrected(pa.timestamp("us"), HOURS[number:])
        whole = {"lookup.cache": "FULL", "lookup.full-cache.periodic-reload.interval": "1 h"}
        ledger = Data(rows, TABLES["ledger"].key, {**FROM, **KNOWN, **(whole if number % 2 else {})})
        folder = tmp_path / str(number)
        folder.mkdir()
        worlds = Worlds(spark, folder, {"o": TABLES["o"], "ledger": ledger}, QUICK)
        session = worlds.world(frozenset({"ledger"})).session
        for by in ("", "o.learned"):
            found = Answer.of(last_frame(session, asked("ledger", "o.local", by=by), None))
            found.require(worlds.answer(known("ledger", "o.local", by=by)), f"{number} {by}", ordered=False)


@pytest.mark.parametrize("option", ["'cache'='partial'", "'async'='false'", "'batch-size'='2'"])
def test_known_rows_are_equal_for_all_kinds_of_lookup(worlds: Worlds, world: World, option: str) -> None:
    for moment in ("o.local", "(o.local - INTERVAL 5 HOURS)"):  # a cached answer serves another moment
        for by in ("", "o.learned"):
            known_by = f", 'known-as-of'='{by}'" if by else ""
            hint = f"SELECT /*+ LOOKUP('table'='t', {option}{known_by}) */"
            ours = asked("ledger", moment).replace("SELECT", hint, 1)
            Answer.of(last_frame(world.session, ours, None)).require(
                worlds.answer(known("ledger", moment, by=by)), ours, ordered=False
            )


@pytest.mark.parametrize("option", ["'cache'='partial'", "'async'='false'", "'batch-size'='2'"])
def test_past_rows_are_equal_for_all_kinds_of_lookup(worlds: Worlds, world: World, option: str) -> None:
    ours = asked("rates", "o.local").replace("SELECT", f"SELECT /*+ LOOKUP('table'='t', {option}) */", 1)
    for _ in range(2):
        Answer.of(last_frame(world.session, ours, None)).require(
            worlds.answer(held("rates", "o.local")), ours, ordered=False
        )


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM o FULL JOIN prices FOR SYSTEM_TIME AS OF o.ts AS t ON o.k = t.k", "a FULL JOIN needs every row"),
        ("SELECT * FROM prices FOR SYSTEM_TIME AS OF now()", "chooses among the rows of a key of prices"),
        (asked("(SELECT * FROM prices)", "o.ts"), r"chooses rows of prices, and t is a query over it\. Write it"),
        ("SELECT * FROM o JOIN (SELECT k, v FROM prices FOR SYSTEM_TIME AS OF now()) t ON o.k = t.k",
         "chooses among the rows of a key of prices"),
        (asked("prices", "o.n"), r"o\.n is INT, and since, which 'lookup\.valid-from' names, is TIMESTAMP\."),
        (asked("rates", "o.ts"), r"Write CAST\(o\.ts AS TIMESTAMP_NTZ\), in parentheses"),
        (asked("plain", "1"), "asked for a time of its own, but connector 'counting' knows only the present"),
        ("SELECT * FROM o JOIN prices FOR SYSTEM_TIME AS OF o.ts AS t ON o.no = t.v",
         r"without k, nothing says which of its rows are versions of one row\. Add an equality with k"),
        ("SELECT * FROM o JOIN closing FOR SYSTEM_TIME AS OF o.day AS t ON o.no = t.v",
         r"without k, nothing says which of its rows are versions of one row\. Add an equality with k\."),
        (asked("ledger", "o.local", by="o.n"),
         r"o\.n is INT, and known, which 'lookup\.known-from' names, is TIMESTAMP_NTZ\.\s+Write CAST\(o\.n AS TIMESTAMP_NTZ\)"),
        (asked("ledger", "o.local", by="t.known"), r"its time t\.known cannot be computed before the lookup"),
        (asked("ledger", "o.local", by="o.lerned"), r"its time o\.lerned cannot be computed before the lookup"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(world: World, sql: str, message: str) -> None:
    with pytest.raises(UnsupportedLookup, match=message) as caught:
        world.session.sql(sql)
    assert caught.value.problems[0].at is not None


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (asked("prices", "o.ts", by="o.local"),
         r"'known-as-of' chooses no rows of prices: no column says from when they are known\.\s+Name that column in its"
         r" WITH: 'lookup\.known-from' = '\.\.\.'\."),
        (asked("ledger", "o.local", by="o.local").replace(" FOR SYSTEM_TIME AS OF o.local", ""),
         r"'known-as-of' needs FOR SYSTEM_TIME AS OF, or as_of, which says when the rows are valid\."),
        (asked("ledger", "o.local", by="o.n + 1"), r"write the name of a column, as in 'o\.ordered'"),
    ],
)  # fmt: skip
def test_a_moment_by_which_nothing_is_known_is_an_error_in_its_place(
    world: World, sql: str, message: str
) -> None:
    with pytest.raises(HintError, match=message) as caught:
        world.session.sql(sql)
    at = caught.value.problems[0].at
    assert at is not None
    assert sql[at.start : at.end].startswith("'o.")


def test_the_plan_says_which_rows_it_takes(world: World) -> None:
    assert "rows         the last one with o.ts >= since, chosen by the worker" in world.session.explain(
        asked("prices", "o.ts")
    )
    told = world.session.explain(asked("ledger", "o.local"))
    assert "the last one with o.local >= since, of those with o.local >= known, chosen by the worker" in told
    told = world.session.explain(asked("ledger", "o.local", by="o.learned"))
    assert (
        "the last one with o.local >= since, of those with o.learned >= known, chosen by the worker" in told
    )
    told = world.session.explain(asked("closing", "o.day"))
    assert "the last one with o.day >= since, unless until <= o.day, of those with o.day >= known" in told
    told = world.session.explain(asked("rates", "o.local"))
    assert "those with since <= o.local and until > o.local or NULL" in told
    assert "FOR SYSTEM_TIME AS OF chooses among its rows" in told
    assert "does not choose" not in told


def test_frames_are_joined_as_of_a_column_an_expression_or_a_column_of_spark(
    worlds: Worlds, world: World
) -> None:
    orders, plain = world.session.spark.table("o"), f"{held('rates', 'o.local')}"
    shifted = held("rates", "(o.local - INTERVAL 3 HOURS)", "INNER")

    def joined(as_of: Any, how: str) -> Answer:
        frame = world.session.lookup_join(
            orders, "rates", on="k", how=how, as_of=as_of, columns=["since", "v"]
        )
        return Answer.of(frame.select("no", "since", "v"))

    joined("local", "left").require(worlds.answer(plain), "a column", ordered=False)
    joined("local - INTERVAL 3 HOURS", "inner").require(
        worlds.answer(shifted), "an expression", ordered=False
    )
    frame = world.session.lookup_join(
        orders, "ledger", on="k", how="left", as_of="local", columns=["since", "v"]
    )
    Answer.of(frame.select("no", "since", "v")).require(
        worlds.answer(known("ledger", "o.local")), "known", ordered=False
    )
    joined(orders.local, "left").require(worlds.answer(plain), "a Column", ordered=False)
    for by in ("learned", "learned + INTERVAL 2 HOURS", orders.learned):
        frame = world.session.lookup_join(
            orders, "ledger", on="k", how="left", as_of="local", known_as_of=by, columns=["since", "v"]
        )
        at = by if isinstance(by, str) else "learned"
        Answer.of(frame.select("no", "since", "v")).require(
            worlds.answer(known("ledger", "o.local", by=f"(o.{at})")), at, ordered=False
        )
        assert {*frame.columns} == {*orders.columns, "since", "v"}
    with pytest.raises(HintError, match="'known-as-of' needs FOR SYSTEM_TIME AS OF, or as_of"):
        world.session.lookup_join(orders, "ledger", on="k", known_as_of="local")
    with pytest.raises(HintError, match="'known-as-of' chooses no rows of rates"):
        world.session.lookup_join(orders, "rates", on="k", as_of="local", known_as_of="local")
    with pytest.raises(QueryError, match=r"as_of chooses no rows of plain.*'lookup\.valid-from' = '\.\.\.'"):
        world.session.lookup_join(orders, "plain", on="k", as_of="ts")


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        (asked("prices", "o.ts"), last("prices", "o.ts")),
        (asked("ledger", "o.local"), known("ledger", "o.local")),
        (asked("ledger", "o.local", by="o.learned"), known("ledger", "o.local", by="o.learned")),
    ],
)
def test_a_stream_gets_the_rows_of_the_batch(
    worlds: Worlds, world: World, tmp_path: Path, ours: str, plain: str
) -> None:
    spark = world.session.spark
    folder = worlds.folder / "o.parquet"
    arriving = spark.readStream.schema(spark.table("o").schema).parquet(f"{folder.parent}/o.parque[t]")
    arriving.createOrReplaceTempView("arriving")
    frame = world.session.sql(ours.replace("FROM o ", "FROM arriving AS o "))
    query = (
        frame.writeStream.format("memory")
        .queryName("as_it_was")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    query.awaitTermination()
    got = Answer.of(spark.table("as_it_was"))
    got.require(worlds.answer(plain), "a stream", ordered=False)


def test_a_table_that_is_read_by_wish_is_asked_for_past_rows_and_a_hint_that_wants_it_read_is_refused(
    world: World,
) -> None:
    ours = asked("prices", "o.ts")
    world.session.spark.conf.set("lookup.access", "scan")
    try:
        assert "FOR SYSTEM_TIME AS OF chooses among its rows, so" in world.session.explain(ours)
    finally:
        world.session.spark.conf.unset("lookup.access")
    with pytest.raises(
        HintError, match="cannot be read as 'access' = 'scan' wants it: FOR SYSTEM_TIME AS OF"
    ):
        world.session.sql(ours.replace("SELECT", "SELECT /*+ LOOKUP('table'='t', 'access'='scan') */", 1))
