"""A cache in front of PostgreSQL, whose rows tell when they have changed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession, disable
from lookup_hints.errors import OptionError
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)
JOIN = "SELECT v.id, p.name FROM visits v LEFT JOIN people p ON v.id = p.id"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[LookupSession]:
    own = LookupSession(spark.newSession())
    own.sql("CREATE OR REPLACE TEMPORARY VIEW visits AS SELECT id FROM range(0, 20, 1, 2)")
    yield own
    disable(own.spark)


class People:
    """Ten people in PostgreSQL, with a column that tells when each has changed."""

    def __init__(self, server: PostgresServer, session: LookupSession, column: str, **options: str) -> None:
        self.server, self.session, self.name = server, session, f"people_{next(_numbers)}"
        self.execute(
            "CREATE SEQUENCE {t}_versions; CREATE TABLE {t} (id bigint PRIMARY KEY, name text,"
            " updated_at timestamptz DEFAULT clock_timestamp(), version bigint DEFAULT nextval('{t}_versions'));"
            "INSERT INTO {t} SELECT g, 'n' || g FROM generate_series(0, 9) g"
        )
        given = {
            "connector": "postgres",
            "url": server.url(),
            "table-name": self.name,
            "lookup.cache": "PARTIAL",
            "lookup.partial-cache.missing-ttl": "1 h",
            "lookup.cache.changed-column": column,
            **{f"lookup.{key}": text for key, text in options.items()},
        }
        text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        session.sql(
            "CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING, updated_at TIMESTAMP,"
            f" version BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ({text})"
        )

    def execute(self, script: str) -> None:
        self.server.execute(script.replace("{t}", self.name))

    def rename(self, *ids: int, name: str) -> None:
        ours = ", ".join(map(str, ids))
        self.execute(
            f"UPDATE {{t}} SET name = '{name}', updated_at = clock_timestamp(),"
            f" version = nextval('{{t}}_versions') WHERE id IN ({ours})"
        )

    def run(self) -> tuple[dict[int, str | None], LookupMetrics]:
        """The names that are found, and what that took."""
        before = dict(self.session.metrics())
        found = {row["id"]: row["name"] for row in self.session.sql(JOIN).collect()}
        after = (
            counts - before.get(name, LookupMetrics()) for name, counts in self.session.metrics().items()
        )
        return found, sum(after, LookupMetrics())

    def run_until_nothing_is_asked(self) -> None:
        """Until what has changed lies so far back that it need not be looked at any more."""
        for _ in range(50):
            counts = self.run()[1]
            if counts.cache_checks and not counts.requests:
                return
        raise AssertionError("each run asks for something")


@pytest.mark.parametrize("column", ["updated_at", "version"])
def test_only_the_keys_that_have_changed_are_asked_again(
    postgres_server: PostgresServer, session: LookupSession, column: str
) -> None:
    people = People(postgres_server, session, column, **{"cache.check-interval": "50 ms"})
    expected: dict[int, str | None] = {each: f"n{each}" if each < 10 else None for each in range(20)}
    assert people.run()[0] == expected
    people.run_until_nothing_is_asked()
    people.rename(4, name="new")
    people.execute("INSERT INTO {t} (id, name) VALUES (15, 'late')")
    time.sleep(0.06)
    found, counts = people.run()
    assert found == {**expected, 4: "new", 15: "late"}
    assert counts.cache_misses == counts.keys - counts.cache_hits - counts.cache_missing == 2
    assert counts.cache_checks >= 1


def test_within_the_interval_nothing_is_asked(
    postgres_server: PostgresServer, session: LookupSession
) -> None:
    people = People(postgres_server, session, "updated_at", **{"cache.check-interval": "1 h"})
    _, counts = people.run()
    assert counts.cache_checks == 1, "for all tasks together"
    people.rename(4, name="new")
    found, counts = people.run()
    assert (found[4], counts.requests, counts.cache_checks) == ("n4", 0, 0)


def test_a_table_that_is_kept_whole_asks_for_what_has_changed(
    postgres_server: PostgresServer, session: LookupSession
) -> None:
    reload = {"cache": "FULL", "full-cache.periodic-reload.interval": "1 h"}
    people = People(postgres_server, session, "version", **reload, **{"cache.check-interval": "50 ms"})
    people.run()
    people.run_until_nothing_is_asked()
    people.rename(4, name="new")
    time.sleep(0.06)
    found, counts = people.run()
    assert (found[4], found[5], counts.cache_loads) == ("new", "n5", 0)
    assert counts.cache_misses == 1


def test_a_column_that_tells_nothing_is_refused_when_the_table_is_created(
    postgres_server: PostgresServer, session: LookupSession
) -> None:
    with pytest.raises(OptionError, match=r"'lookup\.cache\.changed-column' is 'name', which is STRING"):
        People(postgres_server, session, "name")


def test_explain_says_what_is_dropped(postgres_server: PostgresServer, session: LookupSession) -> None:
    People(postgres_server, session, "updated_at")
    assert "what updated_at says has changed is dropped, each 10 s" in session.explain(JOIN)
