"""The queries of TPC-H, and which tables of each are looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from lookup_hints import LookupSession
from lookup_hints.errors import UnsupportedLookup
from tests.queries.tpch.data import KEYS

FOLDER = Path(__file__).parent
QUERIES = {file.stem: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("queries/*.sql"))}

# The fact that drives most queries; in Q4 it is the one that is asked, by the orders.
FACT = "lineitem"


@dataclass(frozen=True)
class Pair:
    """A query, and the tables of it that are lookup tables."""

    query: str
    lookups: frozenset[str]

    @property
    def text(self) -> str:
        """The query's text."""
        return QUERIES[self.query]

    def __str__(self) -> str:
        return f"{self.query} {'+'.join(sorted(self.lookups))}"


def tables_of(query: str) -> list[str]:
    """The tables that a query names, without the fact."""
    words = set(re.findall(r"\w+", QUERIES[query]))
    return [name for name in KEYS if name in words and (name != FACT or query == "q04")]


def pairs() -> Iterator[Pair]:
    """Each query with each of its tables in turn, with each neighbouring two, and with all of them."""
    for query in QUERIES:
        names = tables_of(query)
        choices = [{name} for name in names]
        choices += [{one, other} for one, other in pairwise(names)]
        choices += [set(names)] if len(names) > 2 else []
        yield from (Pair(query, frozenset(choice)) for choice in choices)


OUTCOMES = FOLDER / "outcomes.txt"


@cache
def outcomes() -> dict[str, str]:
    """What becomes of each pair, as ``outcome_of`` tells it: a line ``pair: outcome`` each."""
    lines = OUTCOMES.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


def outcome_of(pair: Pair, session: LookupSession) -> str:
    """Which tables are asked by key, and which are read whole; or ``refused`` and why."""
    try:
        plan = session.prepare(pair.text).plan
    except UnsupportedLookup as error:
        return f"refused: {error.problems[0].message}"
    assert plan is not None, "it names a lookup table"
    asked = sorted({join.use.table.name for join in plan.joins})
    read = sorted({scan.use.table.name for scan in plan.scans})
    parts = [("asks", asked), ("reads whole", read)]
    return "; ".join(f"{verb} {', '.join(names)}" for verb, names in parts if names)
