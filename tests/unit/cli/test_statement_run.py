"""One run of a statement: what it holds, of a query and of a stream."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints.errors import ConnectorError, Problem, QueryError, Span
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.readable_summary import Moment
from lookup_hints.metrics.tables import without_empty
from lookup_hints.runs.progress import Lines, Watch
from lookup_hints.runs.statement_run import LookupFailed, StatementRun, failure
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import read_statement, split_statements
from tests.unit.plan.planning import planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

QUERY = "SELECT c.name FROM orders o JOIN customers c ON o.id = c.id"


class FakeSession:
    """A session that counts two rows more at each statement, and starts a stream where told so."""

    def __init__(self, *, streams: bool = False) -> None:
        self.spark = object()
        self.streams = SimpleNamespace(started=("an older one",))
        self._starts_streams = streams
        self._rows = 0
        self.seen: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[Callable[[], Mapping[LookupName, Moment]]]:
        self.seen.append("watched")
        looks = count()
        yield lambda: {name: Moment(LookupMetrics(rows_in=next(looks)), 0, 0.0) for name in self.metrics()}
        self.seen.append("watched no more")

    def prepare(self, text: str, args: Any, *, few_rows: bool, line: int) -> Any:
        self.seen.append("planned")
        return SimpleNamespace(statement=read_statement(SqlText(text)), plan=planned(text))

    def metrics(self) -> dict[LookupName, LookupMetrics]:
        return {join.function.name: LookupMetrics(rows_in=self._rows) for join in planned(QUERY).joins}

    def run(self, prepared: Any) -> Any:
        self._rows += 2
        if self._starts_streams:
            self.streams.started += ("a new one",)
        return "rows"


def made(session: FakeSession) -> StatementRun:
    (statement,) = split_statements(QUERY)
    fake: Any = session
    return StatementRun(fake, statement, {}, watching(session.seen))


def watching(seen: list[str]) -> Watch:
    @contextmanager
    def watch(lines: Lines) -> Iterator[None]:
        seen.extend(["begins", *lines()])
        yield
        seen.append("ends")

    return watch


def test_a_query_gives_rows_and_what_was_counted_for_it() -> None:
    session = FakeSession()
    run, seen = made(session), session.seen
    assert run.plan is not None

    def take(frame: Any) -> str:
        seen.append("taken")
        return str(frame)

    assert run.take(take) == "rows"
    assert seen[:3] == ["begins", "planned", "ends"]
    assert seen[3:] == ["watched", "begins", "c: 0 keys/s", "taken", "ends", "watched no more"]
    session.run(None)  # what others count later is not of this statement
    assert [(name.alias, each.counts) for name, each in run.lookups.items()] == [
        ("c", LookupMetrics(rows_in=2))
    ]
    assert run.stream is None
    assert run.seconds > 0
    assert not run.gives_text
    assert run.uncounted == ""


def test_a_stream_gives_no_rows_and_counts_on() -> None:
    session = FakeSession(streams=True)
    run = made(session)
    assert run.take(lambda frame: pytest.fail("no rows are taken")) is None
    assert str(run.stream) == "a new one"
    session.run(None)
    assert [each.counts for each in run.lookups.values()] == [LookupMetrics(rows_in=4)]


def test_a_failure_is_reported_with_its_place_in_the_file() -> None:
    _, statement = split_statements("SELECT 1;\n\nSELEC 2")
    error = QueryError(Problem("What is this?", Span(statement.text, 0, 5)))
    assert failure(statement, error).startswith("line 3, column 1: What is this?")


def test_columns_of_counts_that_say_nothing_are_left_out() -> None:
    lines = [["lookup", "keys", "cached", "p99"], ["c", "3", "", ""], ["d", "0", "", "5 ms"]]
    assert without_empty(lines) == [["lookup", "keys", "p99"], ["c", "3", ""], ["d", "0", "5 ms"]]


def test_the_failure_of_a_lookup_shows_its_join_in_the_file() -> None:
    _, statement = split_statements(
        "SET a = b;\nSELECT c.name FROM orders o\n  LEFT JOIN customers c ON o.id = c.id"
    )
    fake: Any = FakeSession()
    run = StatementRun(fake, statement, {})
    assert run.plan is not None
    (join,) = run.plan.joins

    def fail(_: Any) -> None:
        raise ConnectorError(f"no answer (connector c, function {join.function.name.function}).")

    with pytest.raises(LookupFailed) as caught:
        run.take(fail)
    said, *place = failure(statement, caught.value).splitlines()
    assert said.startswith("no answer (connector c, function ")
    assert place == [
        "line 3, column 3:",
        "  LEFT JOIN customers c ON o.id = c.id",
        "  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]


def test_what_no_lookup_did_fails_as_it_is() -> None:
    def fail(_: Any) -> None:
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match=r"^no such thing$"):
        made(FakeSession()).take(fail)
