"""What the options of a cache mean to the planner."""

from __future__ import annotations

from dataclasses import replace
from datetime import time, timedelta, timezone
from math import inf

import pytest

from lookup_hints.errors import HintError, OptionError
from lookup_hints.lookup_spec import ChangedColumn, DailyReload, FullCache, PartialCache, PeriodicReload
from lookup_hints.plan.explain import explain
from lookup_hints.plan.joins import LookupPlan
from tests.unit.plan.planning import TABLES, context, planned

MB = 1024**2


def plan(hint: str = "", **table: str) -> LookupPlan:
    written = f"/*+ LOOKUP('table'='c', {hint}) */" if hint else ""
    given = {f"lookup.{key.replace('__', '.').replace('_', '-')}": value for key, value in table.items()}
    customers = TABLES["customers"]
    tables = {**TABLES, "customers": replace(customers, options={**customers.options, **given})}
    return planned(
        f"SELECT {written} 1 FROM orders o JOIN customers c ON o.id = c.id", context(tables=tables)
    )


def cache(hint: str = "", **table: str) -> PartialCache | None:
    return plan(hint, **table).joins[0].chosen.settings.cache


def test_there_is_no_cache_by_default() -> None:
    assert cache() is None
    assert cache(partial_cache__max_rows="5") is None
    assert "cache" not in explain(plan())


def test_a_hint_beats_the_table() -> None:
    usual = PartialCache(600.0, missing_ttl=30.0, max_bytes=256 * MB)
    assert cache("'cache'='partial'") == usual
    assert cache(cache="Partial") == usual
    assert cache("'cache'='none'", cache="PARTIAL") is None
    assert cache("'cache'='PARTIAL'", cache="none") == usual


def test_the_options_are_flinks() -> None:
    found = cache(
        cache="PARTIAL",
        partial_cache__expire_after_write="1 h",
        partial_cache__expire_after_access="2 min",
        partial_cache__max_rows="1000",
        partial_cache__max_bytes="1 gb",
        partial_cache__missing_ttl="5 s",
    )
    assert found == PartialCache(3600.0, 120.0, 5.0, 1000, 1024 * MB)


@pytest.mark.parametrize(("ttl", "missing"), [("1 h", 30.0), ("100 s", 10.0), ("1 s", 0.1)])
def test_a_miss_is_believed_for_a_tenth_of_the_time_and_half_a_minute_at_most(
    ttl: str, missing: float
) -> None:
    found = cache(cache="partial", partial_cache__expire_after_write=ttl)
    assert found is not None
    assert found.missing_ttl == missing


def test_misses_need_not_be_remembered() -> None:
    found = cache(cache="partial", partial_cache__cache_missing_key="false")
    assert found is not None
    assert found.missing_ttl is None
    assert "a miss is asked again" in explain(plan(cache="partial", partial_cache__cache_missing_key="false"))


def test_explain_says_how_old_an_answer_may_be_and_who_wants_that() -> None:
    shown = explain(plan("'cache'='partial'", partial_cache__expire_after_access="60 s"))
    assert "partial: a row may be 600 s old, unused for 60 s, a miss 30 s;" in shown
    assert "at most 256 MB in each executor (hint, table)" in shown
    limits = explain(plan(cache="partial", partial_cache__max_rows="5000"))
    assert "at most 5,000 rows and 256 MB in each executor (table)" in limits


def test_rows_that_are_too_old_are_used_on_request_alone() -> None:
    times = {"partial_cache__stale_while_revalidate": "60 s", "partial_cache__stale_if_error": "1 d"}
    found = cache(cache="PARTIAL", **times)
    assert found is not None
    assert (found.stale_while_revalidate, found.stale_if_error, found.longest) == (60.0, 86400.0, 87000.0)
    shown = explain(plan(cache="PARTIAL", **times))
    assert "a miss 30 s; 660 s while it is fetched again; 87000 s where asking fails;" in shown


def test_versions_that_have_ended_are_kept_for_lookups_as_of_a_moment() -> None:
    times = {"partial_cache__stale_if_error": "1 d", "valid_from": "id", "valid_to": "ID"}
    found = cache(cache="PARTIAL", **times)
    assert found is not None
    assert (found.versions_by, found.longest) == ("id", inf), "what is invalidated stays so"
    assert "versions that have ended" not in explain(plan(cache="PARTIAL", **times))


def test_an_invalid_cache_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'lookup\.cache' cannot be 'lru'"):
        cache(cache="lru")
    with pytest.raises(OptionError, match=r"'lookup\.partial-cache\.max-rows' cannot be '0'"):
        cache(cache="partial", partial_cache__max_rows="0")


# --- what has changed


def test_a_column_shows_which_rows_have_changed() -> None:
    changed = {"cache__changed_column": "ID", "cache__check_interval": "5 s"}
    for found in (cache(cache="PARTIAL", **changed), whole(cache="FULL", **INTERVAL, **changed)):
        assert found is not None
        assert found.changed == ChangedColumn(TABLES["customers"].schema.field("id"), 5.0)
    assert cache(**changed) is None
    usual = cache("'cache'='partial'", cache__changed_column="id")
    assert usual is not None
    assert usual.changed is not None
    assert usual.changed.interval == 10.0
    said = "; what id says has changed is dropped, each 5 s; at most"
    assert f"a miss 30 s{said} 256 MB" in explain(plan(cache="PARTIAL", **changed))
    assert f"the old rows are used{said} 1,024 MB" in explain(plan(cache="FULL", **INTERVAL, **changed))


def test_explain_says_where_a_change_drops_everything() -> None:
    note = "drops all that is remembered of this lookup, as (id) is not a part of a PRIMARY KEY of customers"
    shown = {key: explain(_with_key(key)) for key in [("id",), ("id", "country"), ("country",), ()]}
    assert [key for key, text in shown.items() if note in text] == [("country",), ()]


def _with_key(key: tuple[str, ...]) -> LookupPlan:
    customers = TABLES["customers"]
    given = {**customers.options, "lookup.cache": "PARTIAL", "lookup.cache.changed-column": "id"}
    tables = {**TABLES, "customers": replace(customers, options=given, primary_key=key)}
    text = "SELECT c.country FROM orders o JOIN customers c ON o.id = c.id"
    return planned(text, context(tables=tables))


# --- full

INTERVAL = {"full_cache__periodic_reload__interval": "10 min"}
AT = {"full_cache__reload_strategy": "TIMED", "full_cache__timed_reload__iso_time": "03:00+02:00"}


def whole(hint: str = "", **table: str) -> FullCache | None:
    return plan(hint, **table).joins[0].chosen.settings.whole


def test_a_table_is_kept_whole_where_somebody_wants_that() -> None:
    kept = FullCache(PeriodicReload(600.0), max_bytes=1024 * MB)
    assert whole(cache="FULL", **INTERVAL) == kept
    assert whole("'cache'='full'", cache="PARTIAL", **INTERVAL) == kept
    assert whole("'cache'='none'", cache="FULL", **INTERVAL) is None
    assert cache(cache="FULL", **INTERVAL) is None


def test_the_options_of_reloads_are_flinks() -> None:
    rate = whole(cache="FULL", **INTERVAL, full_cache__periodic_reload__schedule_mode="FIXED_RATE")
    assert rate is not None
    assert rate.reload == PeriodicReload(600.0, fixed_rate=True)
    timed = whole(cache="FULL", **AT, full_cache__timed_reload__interval_in_days="7")
    assert timed is not None
    assert timed.reload == DailyReload(time(3, tzinfo=timezone(timedelta(hours=2))), 7)
    others = whole(
        cache="FULL", **INTERVAL, full_cache__on_reload_failure="fail", full_cache__max_bytes="5 mb"
    )
    assert others == FullCache(PeriodicReload(600.0), keeps_old=False, max_bytes=5 * MB)


@pytest.mark.parametrize("text", ["10:15", "10:15Z", "10:15:30+07:00"])
def test_a_time_of_day_is_written_as_in_flink(text: str) -> None:
    assert whole(cache="FULL", **{**AT, "full_cache__timed_reload__iso_time": text}) is not None


def test_explain_says_when_the_table_is_read_again() -> None:
    assert (
        "cache        full: each executor reads the table, and again 600 s after the end of the last time;"
        " where that fails, the old rows are used; at most 1,024 MB of its disk (table)"
    ) in explain(plan(cache="FULL", **INTERVAL))
    timed = explain(plan(cache="FULL", **AT, full_cache__on_reload_failure="fail"))
    assert "and again at 03:00:00+02:00; where that fails, lookups fail" in timed


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, r"'periodic' needs 'lookup\.full-cache\.periodic-reload\.interval'.*= '10 min' in WITH"),
        (
            {"full_cache__reload_strategy": "timed"},
            r"'timed' needs 'lookup\.full-cache\.timed-reload\.iso-time'",
        ),
        ({**AT, **INTERVAL}, r"periodic-reload\.interval' has no effect where .*reload-strategy' is 'timed'"),
        ({**AT, "full_cache__reload_strategy": "periodic", **INTERVAL}, "iso-time' has no effect"),
        ({**INTERVAL, "on_scan": "error"}, "'lookup.on-scan' = 'error' forbids to read the table"),
        ({**AT, "full_cache__timed_reload__iso_time": "25:00"}, "write a time of day, as in '10:15'"),
        ({"full_cache__periodic_reload__interval": "0 s"}, "it must be at least 1 ms"),
    ],
)
def test_a_table_that_cannot_be_kept_whole_is_refused(table: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=f"(?s)customers.*{said}"):
        whole(cache="FULL", **table)
    if table.get("full_cache__timed_reload__iso_time") != "25:00" and "0 s" not in table.values():
        with pytest.raises(HintError, match=f"(?s){said}"):
            whole("'cache'='full'", **table)


def test_a_connector_that_answers_keys_only_cannot_be_kept_whole() -> None:
    options = {**TABLES["rates"].options, "lookup.cache": "FULL"}
    tables = {**TABLES, "rates": replace(TABLES["rates"], options=options)}
    with pytest.raises(
        OptionError, match=r"(?s)answers keys only, so the table cannot be read.*Write 'partial'"
    ):
        planned("SELECT 1 FROM orders o JOIN rates r ON o.id = r.currency", context(tables=tables))
