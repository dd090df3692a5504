"""The picture of a plan."""

from __future__ import annotations

import re

from lookup_hints.notebook.html import plan_picture
from tests.unit.plan.planning import planned


def test_long_reasons_and_conditions_take_several_lines() -> None:
    conditions = " AND ".join(f"c.name <> 'a name of some length, {number}'" for number in range(5))
    picture = plan_picture(
        planned(f"SELECT c.name FROM orders o JOIN customers c ON o.k = c.id AND {conditions}")
    )
    lines = [line.strip("\u00a0") for line in re.findall(r">([^<>]+)</text>", picture)]
    told = " ".join(lines).replace("&lt;", "<").replace("&gt;", ">").replace("&#x27;", "'")
    assert "asked: the table's rows are not known (nothing was asked)" in told
    assert f"then {conditions}" in told
    assert "…" not in told
