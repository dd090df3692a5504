"""Every n-th call to Spark fails while a session is enabled or disabled, or plans: for sessions of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from lookup_hints.driver.scan_views import SCAN_PREFIX
from lookup_hints.session import LookupSession, disable, enable
from tests.nth_call import Interception, NthCall, Target, names_cause

NewSession = Callable[[], SparkSession]


def fails(calls: Interception, run: NthCall, step: Callable[[], Any]) -> bool:
    """Whether ``step`` failed because a call did, and says so."""
    calls.run = run
    try:
        step()
    except Exception as raised:
        error = raised
    else:
        return False
    finally:
        calls.run = None
    assert names_cause(error), f"{run.fired}: {error!r}"
    return True


def failing_runs() -> Iterator[NthCall]:
    """Runs in which the first call of ours to Spark fails, then the second, until none does."""
    for number in count(1):
        run = NthCall(number, through=("pyspark", "py4j"), most_of_a_place=1)
        yield run
        if not run.fired:
            assert number > 1, "no call was made to fail"
            return


def _table(new_session: NewSession) -> SparkSession:
    """A session with a lookup table, whose names are not Spark's yet."""
    own = new_session()
    LookupSession(own).sql(
        "CREATE TEMPORARY TABLE early (id INT) WITH ('connector' = 'memory', 'rows' = '[[1]]')"
    )
    return own


def tables_of(own: SparkSession) -> list[str]:
    """What Spark's own SHOW TABLES lists, which makes no objects of the JVM of it, as ``catalog.listTables`` does."""
    return [row.tableName for row in type(own).sql(own, "SHOW TABLES").collect()]


def _state(own: SparkSession) -> Any:
    kind, catalog = type(own.range(1)), own.catalog
    ours = {"sql", "table"} & set(vars(own))
    tables = tables_of(own)
    if is_remote():  # there they stay, as frames are analysed over them again
        tables = [each for each in tables if not each.startswith(SCAN_PREFIX)]
    return kind.join, kind.hint, ours, set(vars(catalog)), tables


def check_enabling(new_session: NewSession, targets: Sequence[Target]) -> None:
    """It is enabled, or as before."""
    with Interception(targets) as calls:
        for run in failing_runs():
            own = _table(new_session)
            before = _state(own)
            if fails(calls, run, partial(enable, own)):
                assert _state(own) == before, run.fired
            enable(own)
            assert own.table("early").count() == 1, run.fired
            disable(own)
            assert _state(own) == before, run.fired


def check_disabling(new_session: NewSession, targets: Sequence[Target]) -> None:
    """What is disabled halfway can be disabled again."""
    with Interception(targets) as calls:
        for run in failing_runs():
            own = _table(new_session)
            before = _state(own)
            enable(own)
            if fails(calls, run, partial(disable, own)):
                assert _state(own)[:4] == before[:4], run.fired
                disable(own)
            assert _state(own) == before, run.fired


def check_planning(new_session: NewSession, targets: Sequence[Target]) -> None:
    """A statement is planned, or leaves nothing."""
    own = _table(new_session)
    session = LookupSession(own)
    text = "SELECT /*+ LOOKUP('table' = 'e') */ r.id, e.id AS found FROM range(2) r LEFT JOIN early e ON r.id = e.id"
    assert sorted(session.sql(text).collect()) == [(0, None), (1, 1)]
    before = _state(own)
    with Interception(targets) as calls:
        for run in failing_runs():
            fails(calls, run, lambda: session.sql(text))
            assert _state(own) == before, run.fired
    assert sorted(session.sql(text).collect()) == [(0, None), (1, 1)]
