"""Every connector, form and option of outcome, three times in workers that are warm.

All of them together would be thousands of joins. Here each connector runs each form once, with options chosen so
that each two of connector, form and the options' values come together somewhere. A statement holds all joins of
a connector, over two tables: a worker process has both of them open.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from lookup_hints import FixedDelay, LookupSession, async_wait
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.process.open_connectors import Process
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.spi import AsyncLookup, Connector, SyncLookup
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.tables.catalog import build_connector
from lookup_hints.worker.arrow_worker import look_up
from tests.spark.own import FAILING, FOUND, LATE, PASSING, Use
from tests.spark.versions import since
from tests.spark.warm import (
    FAILING_ALONE,
    OWN,
    RUNS,
    SOURCES,
    TELLING,
    Row,
    Source,
    own,
    running_sources,
    small_session,
    thrice,
)
from tests.unit.engine.support import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MISSING = (5000, 5001)

# --- cases ------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """A query over rows ``o``, and which of them it gives with which name, where None is found as such."""

    sql: str
    gives: str = "hits"


FORMS = {
    "inner": Form("SELECT {hint} o.id, c.name FROM {o} JOIN {c} c ON o.id = c.id"),
    "left": Form("SELECT {hint} o.id, c.name FROM {o} LEFT JOIN {c} c ON o.id = c.id", "all"),
    "semi": Form("SELECT {hint} o.id, '' FROM {o} LEFT SEMI JOIN {c} c ON o.id = c.id AND c.name > ''", "ids"),
    "anti": Form("SELECT {hint} o.id, '' FROM {o} LEFT ANTI JOIN {c} c ON o.id = c.id AND c.name > ''", "others"),
    "residual": Form("SELECT {hint} o.id, c.name FROM {o} LEFT JOIN {c} c ON o.id = c.id AND c.name <> 'x'", "all"),
    "chain": Form(
        "SELECT {hint} o.id, least(c.name, d.name) FROM {o} JOIN {c} c ON o.id = c.id JOIN {d} d ON o.id = d.id"
    ),
    "packed": Form(
        "SELECT {hint} o.id, c.name FROM {o} LEFT JOIN {c} c ON o.id = c.id JOIN {o2} ON o2.id = o.id", "all"
    ),
    "swapped": Form("SELECT {hint} o.id, c.name FROM {c} c JOIN {o} ON o.id = c.id"),
    "comma": Form("SELECT {hint} o.id, c.name FROM {o}, {c} c WHERE o.id = c.id"),
    "exists": Form(
        "SELECT o.id, '' FROM {o} WHERE EXISTS (SELECT {hint} 1 FROM {c} c WHERE c.id = o.id AND c.name > '')", "ids"
    ),
    "scalar": Form("SELECT o.id, (SELECT {hint} max(c.name) FROM {c} c WHERE c.id = o.id) FROM {o}", "all"),
    "using": Form("SELECT {hint} id, name FROM {o} JOIN {c} c USING (id)"),
    "pipe": Form("SELECT id, name FROM (FROM {o} |> JOIN {c} c ON o.id = c.id |> SELECT {hint} o.id, c.name)"),
    "told": Form("SELECT {hint} o.id, concat_ws(' ', c.outcome, c.name) FROM {o} JOIN told c ON o.id = c.id", "told"),
}  # fmt: skip
RETRY = "'retry-strategy'='fixed_delay', 'fixed-delay'='1 ms', 'max-attempts'='1'"
OPTIONS: dict[str, Sequence[str]] = {
    "async": ("true", "false"),
    "on-error": ("fail", "null", "skip"),
    "retry-predicate": ("", "lookup_miss", "exception", "nothing_found"),
    "output-mode": ("ordered", "allow_unordered"),
}

Case = Mapping[str, str]
"""A source, a form, and a value of each option, by what they are."""


def pairs_in(case: Case) -> set[tuple[Any, Any]]:
    """Each two items of ``case``."""
    return set(combinations(case.items(), 2))


def is_there(case: Case) -> bool:
    """Whether its source has its form: not all tell how lookups end."""
    return case["form"] != "told" or case["source"] in TELLING


FACTORS: dict[str, Sequence[str]] = {
    "source": SOURCES,
    "form": list(since({name: name for name in FORMS}, {"pipe": (4, 0)})),
    **OPTIONS,
}


def all_cases() -> list[Case]:
    """Each source with each form that it has, each time with the options that give most pairs not yet there."""
    there: set[tuple[Any, Any]] = set()
    cases: list[Case] = []
    for source, form in product(FACTORS["source"], FACTORS["form"]):
        each: list[Case] = [
            {"source": source, "form": form, **dict(zip(OPTIONS, values, strict=True))}
            for values in product(*OPTIONS.values())
        ]
        if is_there(each[0]):
            cases.append(max(each, key=lambda case: len(pairs_in(case) - there)))
            there |= pairs_in(cases[-1])
    return cases


CASES = all_cases()


def test_each_two_of_source_form_and_options_come_together() -> None:
    every = [dict(zip(FACTORS, values, strict=True)) for values in product(*FACTORS.values())]
    wanted = set().union(*(pairs_in(case) for case in every if is_there(case)))
    assert set().union(*map(pairs_in, CASES)) == wanted


# --- what they ask, and what comes of it ------------------------------------------------------------


def keys_of(case: Case, source: Source) -> Iterator[int]:
    """What is asked for: all that does not fail the statement."""
    yield from (*FOUND, *MISSING)
    may_fail = case["on-error"] != "fail"
    if source.fails and may_fail:
        yield FAILING
    if source.heals:
        yield LATE
        if may_fail or case["retry-predicate"] == "exception":
            yield PASSING


SKIPPED = "skipped"


def end_of(key: int, case: Case, source: Source) -> str:
    """How its lookup ends: a name, ``miss``, ``error``, or SKIPPED."""
    retry = case["retry-predicate"]
    if source.heals and key == LATE and retry in ("lookup_miss", "nothing_found"):
        return "late"
    if source.heals and key == PASSING and retry == "exception":
        return "passing"
    if key in (FAILING, PASSING):
        return SKIPPED if case["on-error"] == "skip" else "error"
    return FOUND.get(key, "miss")


def query_of(case: Case, keys: Iterable[int], number: int) -> str:
    """The query of ``case``, which gives its number with each row."""
    given = {name: case[name] for name in OPTIONS}
    retry = given.pop("retry-predicate")
    options = ", ".join(f"'{name}'='{value}'" for name, value in given.items())
    options += f", 'retry-predicate'='{retry}', {RETRY}" if retry else ""
    # What fails must fail alone, also where a request is one.
    options += "" if case["on-error"] == "fail" else ", 'batch-size'='1'"
    tables = {"c": "one", "d": "other"} if number % 2 else {"c": "other", "d": "one"}
    values = ", ".join(f"({key}L)" for key in keys)
    form = case["form"]
    hints = [f"LOOKUP('table'='{alias}', {options})" for alias in (["c", "d"] if form == "chain" else ["c"])]
    sql = FORMS[form].sql.format(
        hint=f"/*+ {', '.join(hints)} */",
        o=f"VALUES {values} AS o (id)",
        o2=f"VALUES {values} AS o2 (id)",
        **tables,
    )
    return f"SELECT {number}, t.* FROM ({sql}) AS t (id, name)"


def rows_of(case: Case, ends: Mapping[int, str], number: int) -> Iterator[Row]:
    """What the query of ``case`` gives where lookups end so."""
    gives = FORMS[case["form"]].gives
    for key, end in ends.items():
        name = None if end in ("miss", "error", SKIPPED) else end
        if end == SKIPPED and case["form"] != "scalar":  # a subquery cannot drop a row of the outer query
            continue
        if gives == "told":
            yield number, key, f"hit {name}" if name else end
        elif gives == "all" or (gives == "hits" and name):
            yield number, key, name
        elif (gives == "ids" and name) or (gives == "others" and not name):
            yield number, key, ""


# --- the tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warm")


@pytest.fixture(scope="module")
def sources(folder: Path) -> Iterator[dict[str, Source]]:
    with running_sources(folder) as running:
        yield running


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[LookupSession]:
    with small_session(spark, "of every case") as small:
        yield small


@pytest.mark.parametrize("name", SOURCES)
def test_every_form_with_hits_misses_failures_and_what_is_done_then(
    session: LookupSession, sources: dict[str, Source], name: str
) -> None:
    source = sources[name]
    for table in ("one", "other"):
        source.create(session, table)
    if name in TELLING:
        source.create(session, "told", tells=True)
    queries: list[str] = []
    expected: list[Row] = []
    for number, case in enumerate(case for case in CASES if case["source"] == name):
        ends = {key: end_of(key, case, source) for key in keys_of(case, source)}
        queries.append(query_of(case, ends, number))
        expected += rows_of(case, ends, number)
    # In one task they take turns: two processes are enough, and one of them has each case twice in three runs.
    statement = f"SELECT /*+ COALESCE(1) */ * FROM ({' UNION ALL '.join(queries)})"
    assert thrice(session, statement) == sorted(expected, key=repr)
    if name in OWN:
        assert len(Use.read(Path(source.options["log"])).processes) <= 2 < RUNS


def test_a_failure_fails_a_statement_each_time(session: LookupSession, sources: dict[str, Source]) -> None:
    sources["http"].create(session, "one")
    query = "SELECT o.id, c.name FROM VALUES (1L), ({}L) AS o (id) JOIN one c ON o.id = c.id"
    for _ in range(RUNS):  # Spark drops a worker with its failure: the next one becomes warm first
        assert sorted(map(tuple, session.sql(query.format(2)).collect())) == [(1, "n1"), (2, "n2")]
        with pytest.raises(Exception, match=r"answered 500.* The lookup of .*id = 7"):
            session.sql(query.format(FAILING)).collect()


@pytest.mark.parametrize("name", FAILING_ALONE)
def test_a_process_goes_on_after_a_failure(worker: Process, sources: dict[str, Source], name: str) -> None:
    """Without Spark, which would drop it."""
    table = LookupTable(
        "one", pa.schema({"id": pa.int64(), "name": pa.string()}), options=sources[name].options
    )
    connector = build_connector(table)
    runners = [kind is AsyncLookup for kind in (SyncLookup, AsyncLookup) if isinstance(connector, kind)]
    for _, asynchronous in product(range(RUNS), runners):
        assert looked_up(connector, asynchronous, [1, 2, 5000]) == [[(1, "n1")], [(2, "n2")], []]
        with pytest.raises(ConnectorError, match=r"The lookup of .*id = 7"):
            looked_up(connector, asynchronous, [1, FAILING])
    assert len(worker._shared) == len(runners)


def looked_up(connector: Connector, asynchronous: bool, ids: list[int]) -> list[Any]:
    """What one task of this process finds, with a copy of ``connector`` as Spark makes it."""
    copy = pickle.loads(pickle.dumps(connector))
    spec = LookupSpec(copy, ("id",), ("id", "name"), LookupSettings(asynchronous, batch_size=1))
    return plain(
        look_up(spec, PickledConnector.of(connector).identity, iter([(pa.array(ids, pa.int64()),)]), None)
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_process_opens_each_of_its_tables_once(spark: SparkSession, log: Path) -> None:
    tables = [f"{name}_{number}" for name in OWN for number in range(2)]
    with small_session(spark, "one process") as session:
        for table in tables:
            own(table.split("_")[0], log).create(session, table)
        for table in tables * 2:
            query = f"SELECT o.id, c.name FROM VALUES (1L), (8L) AS o (id) LEFT JOIN {table} c ON o.id = c.id"
            assert thrice(session, query, lambda: Use.read(log).asked) == [(1, "n1"), (8, None)]
    use = Use.read(log)
    [worker] = use.processes
    assert use.opened == {(worker, table): 1 for table in tables}
    assert use.asked == {(table, key): 2 * RUNS for table in tables for key in (1, 8)}


KINDS: list[tuple[type[Exception], str | None]] = [(ConnectorError, "passing"), (OSError, None)]


@pytest.mark.parametrize(("kind", "name"), KINDS, ids=["its kind", "another kind"])
@pytest.mark.parametrize("source", OWN)
def test_frames_and_kinds_of_exceptions(
    session: LookupSession, sources: dict[str, Source], source: str, kind: type[Exception], name: str | None
) -> None:
    sources[source].create(session, "one")
    frame = session.spark.createDataFrame([(1,), (PASSING,)], "id BIGINT")
    retry = FixedDelay(1, 0.001).if_exception(kind)

    def joined() -> DataFrame:
        return session.lookup_join(frame, "one", on="id", how="left", retry=retry, on_error="null")

    assert thrice(session, joined) == [(1, "n1"), (PASSING, name)]


def test_an_accumulator_counts_the_calls_of_each_run(session: LookupSession) -> None:
    frame = session.spark.createDataFrame([(1,), (2,)], "id BIGINT")
    counter = session.spark.sparkContext.accumulator(0)

    def counted(key: int) -> int:
        counter.add(1)
        return key

    def waited() -> DataFrame:
        return async_wait(frame, counted, inputs=["id"], returns="same BIGINT")

    assert thrice(session, waited, lambda: Counter(calls=counter.value)) == [(1, 1), (2, 2)]
    assert counter.value == 2 * RUNS
