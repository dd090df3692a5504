"""Forms and outcomes, three times in workers that are warm, and several tables at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from tests.e2e.warm import FAILING, FOUND, MISSING, Source, http, memory, sqlite, thrice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("memory", "sqlite", "http fast", "http httpx")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Source]]:
    """All sources, running."""
    with ExitStack() as stack:
        yield {
            "memory": memory(),
            "sqlite": sqlite(tmp_path_factory.mktemp("warm")),
            **stack.enter_context(http()),
        }


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> LookupSession:
    own_session = LookupSession(spark.newSession())
    for name, keys in {"calm": [*FOUND, *MISSING], "rough": [*FOUND, *MISSING, FAILING]}.items():
        rows = ", ".join(f"({key}L)" for key in keys)
        own_session.spark.sql(f"SELECT * FROM VALUES {rows} AS o (id)").repartition(
            2
        ).createOrReplaceTempView(name)
    return own_session


@pytest.fixture(params=NAMES)
def source(request: pytest.FixtureRequest, sources: dict[str, Source]) -> Source:
    """One after the other."""
    return sources[request.param]


def test_every_form_with_hits_and_misses(
    session: LookupSession, source: Source, sources: dict[str, Source]
) -> None:
    source.create(session, "c")
    source.create(session, "d", **{"lookup.async": source.runners[-1]})
    sources["memory"].create(session, "m")
    names = [(key, FOUND.get(key)) for key in (*FOUND, *MISSING)]
    for runner in source.runners:
        hint = f"/*+ LOOKUP('table'='c', 'async'='{runner}') */"
        forms = {
            "inner": "o.id, c.name FROM calm o JOIN c ON o.id = c.id",
            "left": "o.id, c.name FROM calm o LEFT JOIN c ON o.id = c.id",
            "semi": "o.id, '' FROM calm o LEFT SEMI JOIN c ON o.id = c.id",
            "anti": "o.id, '' FROM calm o LEFT ANTI JOIN c ON o.id = c.id",
            "residual": "o.id, c.name FROM calm o LEFT JOIN c ON o.id = c.id AND c.name <> 'n1'",
            "two": (
                "o.id, concat(c.name, x.name, d.name, m.name) FROM calm o LEFT JOIN c ON o.id = c.id"
                " LEFT JOIN c x ON o.id = x.id LEFT JOIN d ON o.id = d.id LEFT JOIN m ON o.id = m.id"
            ),
        }
        found = thrice(
            session, " UNION ALL ".join(f"SELECT {hint} '{form}', {text}" for form, text in forms.items())
        )
        assert found == sorted(
            [
                *(("inner", key, name) for key, name in names if name),
                *(("left", key, name) for key, name in names),
                *(("semi", key, "") for key, name in names if name),
                *(("anti", key, "") for key, name in names if not name),
                *(("residual", key, None if name == "n1" else name) for key, name in names),
                *(("two", key, name and name * 4) for key, name in names),
            ],
            key=repr,
        )


def test_outcomes_are_told_in_rows(session: LookupSession, sources: dict[str, Source]) -> None:
    source = sources["http fast"]
    more = {"outcome-rows": "true", "path.outcome": "$outcome", "path.error": "$error"}
    more |= {"on-error": "null", "batch-size": "1"}
    source.create(session, "c", **more)
    ends = {**dict.fromkeys(FOUND, "hit"), **dict.fromkeys(MISSING, "miss"), FAILING: "error"}
    for runner in source.runners:
        query = (
            f"SELECT /*+ LOOKUP('table'='c', 'async'='{runner}') */ o.id, c.name, c.outcome"
            " FROM rough o JOIN c ON o.id = c.id"
        )
        expected = [(key, FOUND.get(key), end) for key, end in ends.items()]
        assert thrice(session, query) == sorted(expected, key=repr)
