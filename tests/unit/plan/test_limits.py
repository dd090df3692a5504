"""A connector that limits the keys of a request."""

from __future__ import annotations

import pytest

from lookup_hints.plan.explain import explain
from tests.unit.plan.planning import planned

JOIN = "o.id, t.text FROM orders o JOIN texts t ON o.k = t.id"


@pytest.mark.parametrize(("wish", "size"), [("", 10), ("'batch-size'='3'", 3), ("'batch-size'='50'", 10)])
def test_a_request_holds_no_more_keys_than_its_connector_allows(wish: str, size: int) -> None:
    options = f", {wish}" if wish else ""
    plan = planned(f"SELECT /*+ LOOKUP('table'='t'{options}) */ {JOIN}")
    assert plan.joins[0].chosen.settings.batch_size == size
    assert f"{size} keys in one request" in explain(plan)
    note = "'batch-size'='50' has no effect: a request of this table holds 10 at most"
    assert (note in explain(plan)) == ("50" in wish)
