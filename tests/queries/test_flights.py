"""A corpus of queries over two days of flights: each as Spark answers it over ordinary tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints.errors import QueryError
from tests.queries.corpus import Case, cases, told
from tests.queries.flights_data import tables
from tests.queries.settings import configured
from tests.queries.worlds import World, Worlds, last_frame

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet
    from pyspark.sql import SparkSession

CASES = cases()


def chosen(wanted: Callable[[Case], bool]) -> list[ParameterSet]:
    """The cases for a test, by their titles."""
    return [pytest.param(case, id=str(case)) for case in CASES if wanted(case)]


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    folder = tmp_path_factory.mktemp("flights")
    return Worlds(spark, folder, tables(tmp_path_factory.mktemp("csv")))


@contextmanager
def world_of(worlds: Worlds, case: Case) -> Iterator[World]:
    """The world of a case, configured as it says."""
    world = worlds.world(case.lookups)
    with configured([worlds.plain, world.session.spark], case.conf):
        yield world


@pytest.mark.parametrize("case", chosen(lambda case: case.runs))
def test_the_rows_are_those_of_ordinary_tables(worlds: Worlds, case: Case) -> None:
    with world_of(worlds, case) as world:
        world.forget()
        worlds.check(case.text, case.lookups, case.args, ordered=case.ordered)
        for name in case.once:
            keys = world.calls(name).keys
            again = {key: times for key, times in keys.items() if times > 1}
            assert keys, f"{name} was not asked at all"
            assert not again, f"{len(again)} keys of {name} were asked for more than once: {again}"


@pytest.mark.parametrize("case", chosen(lambda case: bool(case.read_because)))
def test_what_is_read_whole_says_why(worlds: Worlds, case: Case) -> None:
    with world_of(worlds, case) as world:
        shown = world.session.explain(case.text)
    reasons = [line.partition("read because")[2].strip() for line in shown.splitlines()]
    assert case.read_because in reasons


@pytest.mark.parametrize("case", chosen(lambda case: case.fails is not None))
def test_the_error_is_sparks_own(worlds: Worlds, case: Case) -> None:
    with world_of(worlds, case) as world:
        conditions = [_condition_of(session, case) for session in (worlds.plain, world.session)]
    assert conditions == [case.fails, case.fails]


def _condition_of(session: Any, case: Case) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        last_frame(session, case.text, case.args).collect()
    return str(caught.value.getCondition())


@pytest.mark.parametrize("case", chosen(lambda case: case.refused is not None))
def test_a_refusal_says_why(worlds: Worlds, case: Case) -> None:
    with world_of(worlds, case) as world:
        with pytest.raises(QueryError) as caught:
            last_frame(world.session, case.text, case.args)
        assert told(caught.value) == case.refused


@pytest.mark.parametrize("case", [case for case in CASES if case.instead], ids=str)
def test_what_to_write_instead_gives_the_rows_that_were_meant(worlds: Worlds, case: Case) -> None:
    assert case.instead is not None
    with world_of(worlds, case):
        meant = worlds.answer(case.text, case.args)
        worlds.answer(case.instead, case.args).require(meant, case.instead, ordered=False)
        worlds.check(case.instead, case.lookups, case.args)


def test_the_corpus_is_wide() -> None:
    assert sum(case.runs for case in CASES) > 250
    assert len({str(case) for case in CASES}) == len(CASES), "titles name the tests"


def test_the_answers_say_something(worlds: Worlds, request: pytest.FixtureRequest) -> None:
    """A case whose answer is empty would hold for a join that finds nothing."""
    compared = test_the_rows_are_those_of_ordinary_tables.__name__
    items = (item for item in request.session.items if getattr(item, "originalname", "") == compared)
    cases = [item.callspec.params["case"] for item in items if item.path == request.path]  # type: ignore[attr-defined]
    with_rows = 0
    for case in cases:
        with configured([worlds.plain], case.conf):
            with_rows += bool(worlds.answer(case.text, case.args).rows)
    assert with_rows > 0.95 * len(cases), "with --share these are not all cases; their answers are known"
