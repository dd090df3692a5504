"""Ask or read in whole statements: whose wish counts, what is estimated, and what guards forbid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lookup_hints.errors import HintError, LookupHintsError, OptionError, UnsupportedLookup
from lookup_hints.notebook.html import plan_picture
from lookup_hints.plan.cost import UNKNOWN, LeftRows
from lookup_hints.plan.explain import explain
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.spark_analysis import NamesAndTypes
from lookup_hints.spi import TableSize
from tests.unit.plan.planning import TABLES, Both, FakeContext, context, planned

SMALL = TableSize(1_000, 64_000, "pg_class")
JOIN = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.k = c.id"
COLUMNS = (("id", "bigint"), ("k", "bigint"), ("name", "string"))
MANY = LeftRows(995_000, "EXPLAIN COST")


class Spark:
    """What is known of a left side, and which were asked about."""

    def __init__(self, told: LeftRows = MANY) -> None:
        self.told = told
        self.asked: list[str] = []

    def __call__(self, sql: str) -> LeftRows:
        self.asked.append(sql)
        return self.told


def known(
    spark: Spark | None = None,
    size: TableSize = SMALL,
    conf: dict[str, str] | None = None,
    stream: bool = False,
    options: Mapping[str, str] | None = None,
) -> FakeContext:
    """A context in which the table of customers has these options, and these figures are told."""
    customers = TABLES["customers"]
    given = {**customers.options, **(options or {})}
    tables = {**TABLES, "customers": replace(customers, options=given)}
    return replace(
        context(conf=conf, analyse=COLUMNS, tables=tables),
        table_size=lambda _: size,
        left_rows=spark or Spark(),
        is_stream=lambda _: stream,
    )


def hinted(text: str = JOIN, **options: str) -> str:
    listed = ", ".join(f"'{key.replace('_', '-')}'='{value}'" for key, value in options.items())
    return text.replace("SELECT", f"SELECT /*+ LOOKUP('table'='c', {listed}) */", 1)


def reads(plan: LookupPlan) -> bool:
    assert len(plan.joins) + len(plan.scans) == 1
    return bool(plan.scans)


# --- whose wish counts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "table", "session", "is_read"),
    [
        (None, None, None, True),  # auto, and many rows on the left
        ("lookup", "scan", "scan", False),
        ("scan", "lookup", "lookup", True),
        ("auto", "lookup", "lookup", True),
        (None, "lookup", "scan", False),
        (None, "scan", "lookup", True),
        (None, None, "lookup", False),
        (None, None, "SCAN", True),
    ],
)
def test_the_hint_wins_over_the_table_and_the_table_over_the_session(
    hint: str | None, table: str | None, session: str | None, is_read: bool
) -> None:
    options = {} if table is None else {"lookup.access": table}
    using = known(conf={} if session is None else {"lookup.access": session}, options=options)
    assert reads(planned(JOIN if hint is None else hinted(access=hint), using)) is is_read


def test_a_hint_that_says_nothing_of_it_wants_a_lookup() -> None:
    assert not reads(planned(hinted(capacity="5"), known()))
    assert reads(planned(hinted(capacity="5"), known(conf={"lookup.access": "scan"})))
    assert reads(planned(hinted(capacity="5"), known(options={"lookup.access": "auto"})))


def test_a_bad_wish_is_an_error() -> None:
    with pytest.raises(HintError, match="'access' cannot be 'read'"):
        planned(hinted(access="read"), known())
    with pytest.raises(OptionError, match=r"session: 'lookup\.access' cannot be 'read'"):
        planned(JOIN, known(conf={"lookup.access": "read"}))


RATES = "SELECT o.id, c.rate FROM orders o JOIN rates c ON o.k = c.currency"


def test_a_hint_or_table_that_requires_reading_an_unreadable_source_is_refused() -> None:
    using = replace(known(), analyse=lambda _: (("k", "string"),))
    with pytest.raises(HintError) as caught:
        planned(hinted(RATES, access="scan"), using)
    assert "c cannot be read as 'access' = 'scan' wants it: connector 'async' answers keys only." in str(
        caught.value
    )
    assert "line 1, column 41" in str(caught.value)
    with pytest.raises(OptionError, match="'scan' = 'false' of table customers forbids to read it"):
        planned(JOIN, known(options={"lookup.access": "scan", "scan": "false"}))


def test_a_session_that_prefers_reading_still_looks_up_unreadable_sources() -> None:
    using = replace(known(conf={"lookup.access": "scan"}), analyse=lambda _: (("k", "string"),))
    plan = planned(RATES, using)
    (join,) = plan.joins
    assert join.access is not None
    assert join.access.reason == (
        "connector 'async' answers keys only, so 'access' = 'scan' (session) has no effect"
    )


class ByName(Both):
    """Gives all rows, and must be asked by name, which no row has."""

    def required_keys(self) -> frozenset[str]:
        return frozenset({"name"})


def test_a_table_that_must_be_asked_by_a_column_is_never_read() -> None:
    by_name = JOIN.replace("c.id", "c.name")
    using = replace(known(), connector=ByName, analyse=lambda _: (("k", "string"),))
    (join,) = planned(by_name, using).joins
    assert join.access is not None
    assert not join.access.reads
    for text, message in (
        (hinted(by_name, access="scan"), "wants it: customers is asked by name only."),
        (hinted(by_name, cache="full"), "customers is asked by name only, so the table cannot be read"),
        ("SELECT id FROM customers", "customers cannot be read whole: customers is asked by name only."),
        (JOIN, "The lookup join with c cannot ask its source without name."),
    ):
        with pytest.raises(LookupHintsError) as caught:
            planned(text, using)
        assert message in str(caught.value)


RIGHT = "SELECT o.id, c.name FROM orders o RIGHT JOIN customers c ON o.k = c.id"


def test_a_hint_or_table_that_requires_an_impossible_lookup_is_refused() -> None:
    assert reads(planned(RIGHT, known()))
    for text, using in (
        (hinted(RIGHT, access="lookup"), known()),
        (hinted(RIGHT, capacity="5"), known()),
        (RIGHT, known(options={"lookup.access": "lookup"})),
    ):
        with pytest.raises(UnsupportedLookup, match="a RIGHT JOIN needs every row"):
            planned(text, using)
    assert reads(planned(hinted(RIGHT, access="scan"), known()))
    assert reads(planned(hinted(RIGHT, access="auto"), known()))
    assert reads(planned(RIGHT, known(conf={"lookup.access": "lookup"})))


def test_a_stream_always_asks() -> None:
    plan = planned(hinted(access="scan"), known(stream=True))
    assert "a stream always asks, so 'access' = 'scan' (hint) has no effect" in explain(plan)
    assert not reads(plan)


# --- what is estimated ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        JOIN,
        f"{JOIN} WHERE c.country = 'DE'",
        f"SELECT * FROM ({JOIN}) x",
        f"SELECT name, count(*) FROM ({JOIN}) x GROUP BY name ORDER BY 2",
        "SELECT * FROM customers c JOIN orders o ON o.k = c.id",
        "SELECT * FROM orders o, customers c WHERE o.k = c.id",
        "SELECT * FROM orders o LEFT JOIN customers c ON o.k = c.id LEFT JOIN stores s ON s.id = o.id",
        "SELECT * FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.k)",
        f"{JOIN} ORDER BY 1 LIMIT 20000",
        f"INSERT INTO t {JOIN}",
        f"CREATE TABLE t AS {JOIN}",
    ],
)
def test_a_left_side_whose_rows_all_ask_is_estimated_by_spark(text: str) -> None:
    spark = Spark()
    assert reads(planned(text, known(spark)))
    assert spark.asked[0] == "SELECT o.k AS k0 FROM orders o"


def test_spark_is_asked_one_text_for_the_cost_and_the_types_of_keys() -> None:
    spark, texts = Spark(), list[str]()
    using = known(spark, TableSize(1_999_999, None, "pg_class"))
    analyse = using.analyse
    assert analyse is not None

    def told(sql: str) -> NamesAndTypes:
        texts.append(sql)
        return analyse(sql)

    assert planned(JOIN, replace(using, analyse=told)).joins
    assert spark.asked == texts[-1:]


def test_spark_is_asked_once_for_the_keys_of_a_star() -> None:
    using, texts = context(analyse=COLUMNS), list[str]()

    def told(sql: str) -> NamesAndTypes:
        texts.append(sql)
        return (("k0", "bigint"), ("k1", "int")) if "AS k1" in sql else COLUMNS

    keys = ["o.k", "o.nearest", "o.k"]
    joins = "".join(f" JOIN customers c{each} ON c{each}.id = {key}" for each, key in enumerate(keys))
    planned_joins = planned(f"SELECT c0.id FROM orders o{joins}", replace(using, analyse=told)).joins
    assert [text for text in texts if " AS k0" in text] == ["SELECT o.k AS k0, o.nearest AS k1 FROM orders o"]
    assert [join.casts[0].steps for join in planned_joins] == [(), ("bigint",), ()]


def test_ordinary_joins_before_it_are_estimated_with_it() -> None:
    spark = Spark()
    text = "SELECT * FROM orders o LEFT JOIN stores s ON s.id = o.id JOIN customers c ON o.k = c.id"
    assert reads(planned(text, known(spark)))
    assert spark.asked == ["SELECT * FROM orders o LEFT JOIN stores s ON s.id = o.id "]


@pytest.mark.parametrize(
    "text",
    [
        f"{JOIN} WHERE o.total > 10",
        f"{JOIN} WHERE c.id > 10",
        f"{JOIN} WHERE c.id > o.total",
        f"{JOIN} AND o.total > 10",
        f"{JOIN} JOIN stores s ON s.id = o.id AND o.total > 10",
        f"SELECT * FROM ({JOIN}) x WHERE x.id > 10",
        f"SELECT * FROM ({JOIN}) x JOIN stores s ON s.id = x.id AND x.id > 10",
        f"SELECT o.id, count(c.name) {JOIN[JOIN.index('FROM') :]} GROUP BY o.id HAVING o.id > 10",
        f"WITH x AS ({JOIN}) SELECT * FROM x WHERE id > 10",
        f"{JOIN} LIMIT 20000",
        "FROM orders o |> JOIN customers c ON o.k = c.id |> WHERE o.total > 10",
        "SELECT * FROM orders o, stores s, customers c WHERE o.k = c.id AND s.id = o.id",
        "SELECT * FROM orders o LATERAL VIEW explode(o.items) i AS item WHERE EXISTS"
        " (SELECT 1 FROM customers c WHERE c.id = o.k)",
    ],
)
def test_a_left_side_that_may_lose_rows_before_the_lookup_is_looked_up(text: str) -> None:
    spark = Spark()
    plan = planned(text, known(spark))
    assert not plan.scans
    assert spark.asked == []
    assert "unknown: conditions or joins may take some away before they are asked for" in explain(plan)


def test_a_lookup_join_before_it_may_take_rows_away_where_it_is_inner() -> None:
    inner, left = (
        f"SELECT * FROM orders o {kind} JOIN customers c ON o.k = c.id {kind} JOIN customers d ON o.id = d.id"
        for kind in ("", "LEFT")
    )
    big = TableSize(1_999_999, None, "pg_class")
    spark = Spark()
    assert len(planned(inner, known(spark, big)).joins) == 2
    assert spark.asked == ["SELECT * FROM orders o"]
    assert len(planned(left, known(Spark())).scans) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{JOIN} LIMIT 10", "the first rows alone go to a LIMIT"),
        (f"CREATE TEMPORARY VIEW v AS {JOIN}", "what will read the view, and how much of it, is not known"),
    ],
)
def test_who_takes_few_rows_or_says_it_later_asks(text: str, why: str) -> None:
    spark = Spark()
    plan = planned(text, known(spark))
    assert (reads(plan), spark.asked) == (False, [])
    assert f"asked: {why}" in explain(plan)


@pytest.mark.parametrize(
    ("join", "why"),
    [
        ("JOIN orders o USING (id)", "the sides of USING and NATURAL stay in their order"),
        ("NATURAL JOIN orders o", "the sides of USING and NATURAL stay in their order"),
        ("LEFT JOIN orders o ON o.k = c.id", "a LEFT JOIN needs every row of its left side"),
        ("CROSS JOIN orders o", "no equality gives its key"),
    ],
)
def test_explain_says_why_a_table_that_stands_first_is_read(join: str, why: str) -> None:
    plan = planned(
        f"SELECT c.name FROM customers c {join}", context(analyse=(("id", "BIGINT"), ("k", "BIGINT")))
    )
    assert reads(plan)
    assert f"read because  {why}" in explain(plan)


IN_SUBQUERY = f"SELECT 1 FROM stores s WHERE s.id IN ({JOIN.replace('o.id, c.name', 'o.id')})"


@pytest.mark.parametrize(
    ("text", "is_stream", "asked"),
    [
        (JOIN, False, ["SELECT o.id, c.name FROM orders o JOIN "]),
        (f"SELECT * FROM ({JOIN}) q", False, ["SELECT * FROM (SELECT o.id, c.name FROM orders o JOIN "]),
        (JOIN, True, ["SELECT o.id, c.name FROM orders o JOIN ", "SELECT o.k AS k0 FROM orders o"]),
        (
            IN_SUBQUERY,
            False,
            ["SELECT o.k AS k0 FROM orders o"],
        ),  # an expression may hold a stream of its own
    ],
)
def test_a_statement_that_is_no_stream_has_none_on_the_left(
    text: str, is_stream: bool, asked: list[str]
) -> None:
    questions: list[str] = []

    def ask(sql: str) -> bool:
        questions.append(sql)
        return is_stream

    planned(text, replace(known(size=LARGE), is_stream=ask))
    assert [question[: len(start)] for question, start in zip(questions, asked, strict=True)] == asked


@pytest.mark.parametrize(
    ("on", "values", "is_read"),
    [
        ("o.k = c.id", {"k": 349}, False),
        ("o.k = c.id", {"k": 350}, True),
        ("c.id = `k`", {"k": 349}, False),
        ("o.k = c.id", {"id": 2}, True),
        ("o.k + 1 = c.id", {"k": 2}, True),
        ("o.k = c.id AND o.name = c.name", {"k": 20, "name": 10}, False),
    ],
)
def test_many_rows_with_few_different_keys_are_asked_for(
    on: str, values: dict[str, int], is_read: bool
) -> None:
    told = LeftRows(995_000, "footers of 2 files", values)
    plan = planned(JOIN.replace("o.k = c.id", on), known(Spark(told), replace(SMALL, rows=1000)))
    assert reads(plan) == is_read
    if not is_read:
        assert "different keys on the left (footers of 2 files) are fewer than 0.35 for each" in explain(plan)


def test_where_the_first_rows_alone_are_shown_no_limit_is_spoken_of() -> None:
    plan = planned(JOIN, replace(known(), few_rows=True))
    assert "asked: the first rows alone are shown" in explain(plan)


def test_a_table_that_says_what_becomes_of_misses_and_failures_is_asked() -> None:
    for options in ({"on-error": "null"}, {"lookup.max-requests": "5"}):
        using = known(conf={"spark.master": "local[2]"}, options=options)
        assert not reads(planned(JOIN, using))


def test_spark_is_not_queried_if_the_size_of_the_table_decides() -> None:
    for size in (TableSize(None, source="never analysed"), TableSize(10_000_001, None, "pg_class")):
        spark = Spark()
        assert not reads(planned(JOIN, known(spark, size)))
        assert spark.asked == []


def test_spark_that_knows_nothing_leaves_it_to_asking() -> None:
    plan = planned(JOIN, known(Spark(LeftRows(None, UNKNOWN))))
    text = explain(plan)
    assert "asked: the rows on the left are unknown: Spark does not know the rows of its left" in text
    assert "reading brings about 1,000 rows, 0.1 MB (pg_class)" in text


def test_explain_says_why_it_is_read_and_what_asking_takes() -> None:
    text = explain(planned(JOIN, known()))
    for line in (
        "read because  there are 995,000 rows or more on the left (EXPLAIN COST), more than 0.9 for each of about"
        " 1,000 rows, 0.1 MB (pg_class)",
        "rows          about 1,000 rows, 0.1 MB (pg_class)",
        "instead       asking takes a key for each of 995,000 rows or more on the left (EXPLAIN COST), fewer"
        " where keys repeat",
    ):
        assert line in text


# --- guards -----------------------------------------------------------------------------------------

WHOLE = "SELECT name FROM customers"


@pytest.mark.parametrize("text", [WHOLE, RIGHT, hinted(access="scan")])
@pytest.mark.parametrize(
    ("options", "conf", "rule"),
    [
        ({"scan": "false"}, {}, "'scan' = 'false'"),
        ({"lookup.on-scan": "error"}, {}, "'lookup.on-scan' = 'error' (table)"),
        ({}, {"lookup.on-scan": "error"}, "'lookup.on-scan' = 'error' (session)"),
        ({"lookup.scan.max-rows": "999"}, {}, "'lookup.scan.max-rows' = '999' (table)"),
        ({}, {"lookup.scan.max-rows": "999"}, "'lookup.scan.max-rows' = '999' (session)"),
    ],
)
def test_a_guard_forbids_every_read(
    text: str, options: dict[str, str], conf: dict[str, str], rule: str
) -> None:
    with pytest.raises(LookupHintsError) as caught:
        planned(text, known(conf=conf, options=options))
    assert rule in str(caught.value)
    assert "customers" in str(caught.value)
    assert "about 1,000 rows" in str(caught.value) or "cannot be read" in str(caught.value)


def test_an_error_of_a_guard_says_what_is_read_why_how_large_it_is_and_what_to_do() -> None:
    with pytest.raises(UnsupportedLookup) as caught:
        planned(RIGHT, known(options={"lookup.scan.max-rows": "999"}))
    message = " ".join(str(caught.value).split("\n")[0].split())
    assert message == (
        "line 1, column 46: The lookup table customers would be read whole, because a RIGHT JOIN needs every row"
        " of the lookup table: 'lookup.scan.max-rows' = '999' (table) forbids it. It has about 1,000 rows,"
        " 0.1 MB (pg_class). Join it by an equality with its key, or raise that number."
    )


def test_auto_never_reads_what_a_guard_forbids() -> None:
    assert not reads(planned(JOIN, known(options={"scan": "false"})))
    assert not reads(planned(JOIN, known(conf={"lookup.on-scan": "error"})))
    assert not reads(planned(JOIN, known(conf={"lookup.scan.max-rows": "999"})))


@pytest.mark.parametrize(
    ("rows", "on_scan", "warns"),
    [
        (10_000_000, None, False),
        (10_000_001, None, True),
        (10_000_001, "allow", False),
        (1, "warn", True),
        (None, None, False),
        (None, "warn", True),
    ],
)
def test_a_large_read_is_warned_of_by_default(rows: int | None, on_scan: str | None, warns: bool) -> None:
    options = {} if on_scan is None else {"lookup.on-scan": on_scan}
    plan = planned(WHOLE, known(size=TableSize(rows, None, "pg_class"), options=options))
    assert bool(plan.scans[0].warning) is warns
    assert ("warning" in explain(plan)) is warns


# --- the picture ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("using", "told"),
    [
        (
            known(),
            ("read because there are 995,000 rows or more", "rows: about 1,000", "instead asking takes"),
        ),
        (
            known(Spark(LeftRows(None, UNKNOWN))),
            ("asked: the rows on the left are unknown", "instead reading brings about 1,000"),
        ),
        (
            known(options={"lookup.access": "scan", "lookup.on-scan": "warn"}),
            ("warning: the table has about",),
        ),
    ],
)
def test_the_notebooks_picture_says_the_same(using: FakeContext, told: tuple[str, ...]) -> None:
    picture = plan_picture(planned(JOIN, using))
    assert [text for text in told if text not in picture] == []


# --- to ask, and then to read


def may_read(plan: LookupPlan) -> int | None:
    switch = plan.joins[0].chosen.settings.switch
    return None if switch is None else switch.keys


LARGE = TableSize(2_000_000, 128_000_000, "pg_class")


def test_a_lookup_may_read_its_table_when_it_has_asked_for_about_a_third_of_it() -> None:
    plan = planned(JOIN, known(size=LARGE))
    assert may_read(plan) == 700_000
    shown = explain(plan)
    assert "may read     each executor reads the table when it has asked for 700,000 keys" in shown
    assert may_read(planned(hinted(access="auto"), known(size=LARGE))) == 700_000


AS_OF = JOIN.replace("customers c", "customers FOR SYSTEM_TIME AS OF o.k AS c")
VERSIONS = {"lookup.valid-from": "id", "lookup.valid-to": "id"}


def test_past_rows_may_be_chosen_from_a_table_that_an_executor_has_read() -> None:
    """Spark does not read the table for them, whatever that costs."""
    plan = planned(AS_OF, known(Spark(MANY), size=LARGE, options=VERSIONS))
    assert (reads(plan), may_read(plan)) == (False, 700_000)
    assert "FOR SYSTEM_TIME AS OF chooses among its rows" in explain(plan)
    assert may_read(planned(AS_OF, known(size=LARGE, stream=True, options=VERSIONS))) is None
    assert may_read(planned(f"{AS_OF} LIMIT 5", known(size=LARGE, options=VERSIONS))) is None
    for key, value in (("scan", "false"), ("lookup.on-scan", "error"), ("lookup.access", "lookup")):
        options = {**VERSIONS, key: value}
        assert may_read(planned(AS_OF, known(size=LARGE, options=options))) is None


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (hinted(timeout="9 s"), {}),  # who says how it is asked
        (hinted(access="auto", cache="none"), {}),
        (hinted(access="auto", cache="partial"), {}),
        (JOIN, {"lookup.cache": "NONE"}),
        (JOIN, {"lookup.cache": "PARTIAL"}),
        (JOIN, {"lookup.access": "lookup"}),
        (JOIN, {"scan": "false"}),
        (JOIN, {"lookup.on-scan": "error"}),
        (JOIN, {"lookup.scan.max-rows": "1000"}),
        (f"{JOIN} LIMIT 5", {}),
    ],
)
def test_it_asks_to_the_end_where_somebody_says_so(text: str, options: dict[str, str]) -> None:
    assert may_read(planned(text, known(size=LARGE, options=options))) is None


@pytest.mark.parametrize(
    "size", [TableSize(None, source="a view"), TableSize(11_000_000), TableSize(2_000_000, 2 * 10**9)]
)
def test_a_table_of_unknown_size_or_a_large_one_is_asked_to_the_end(size: TableSize) -> None:
    assert may_read(planned(JOIN, known(size=size))) is None


def test_a_stream_and_who_waits_for_late_rows_ask_to_the_end() -> None:
    assert may_read(planned(JOIN, known(size=LARGE, stream=True))) is None
    late = {"retry_predicate": "lookup_miss", "retry_strategy": "fixed_delay", "fixed_delay": "1s"}
    text = hinted(access="auto", max_attempts="3", **late)
    assert may_read(planned(text, known(size=LARGE))) is None
