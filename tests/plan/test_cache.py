"""What the options of a cache mean to the planner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.errors import HintError, OptionError
from lookup_hints.plan.draft import LookupPlan
from lookup_hints.plan.explain import explain
from lookup_hints.runtime.spec import PartialCache
from tests.plan.planning import TABLES, context, planned

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


def test_there_is_none_where_nobody_wants_one() -> None:
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
    assert "a miss 30 s; 660 s while it is asked for anew; 87000 s where asking fails;" in shown


def test_what_is_no_cache_is_refused() -> None:
    with pytest.raises(
        HintError, match="'cache' cannot be 'full': there is no FULL cache yet; PARTIAL keeps"
    ):
        cache("'cache'='full'")
    with pytest.raises(OptionError, match=r"'lookup\.cache' cannot be 'FULL': there is no FULL cache yet"):
        cache(cache="FULL")
    with pytest.raises(OptionError, match=r"'lookup\.cache' cannot be 'lru'"):
        cache(cache="lru")
    with pytest.raises(OptionError, match=r"'lookup\.partial-cache\.max-rows' cannot be '0'"):
        cache(cache="partial", partial_cache__max_rows="0")
