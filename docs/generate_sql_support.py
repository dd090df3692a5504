"""Writes the pages on SQL from ``tests/queries``: run ``python docs/generate_sql_support.py``.

A test compares the files with what this makes, and the suites hold every line of them against Spark, so that
the pages cannot promise what does not run.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs.generate_options import anchor  # noqa: E402 (the path above comes first)
from tests.queries.corpus import Case, cases  # noqa: E402 (the path above comes first)
from tests.queries.kinds import KINDS  # noqa: E402
from tests.queries.tpch.data import KEYS  # noqa: E402
from tests.queries.tpch.pairs import QUERIES, outcomes, pairs, tables_of  # noqa: E402

DOCS = Path(__file__).resolve().parent

_INTRODUCTION = """\
# SQL support

Each line of these pages is a statement that the tests run twice, once with lookup tables and once over
ordinary tables. Column names, types and rows must be the same. A statement that cannot be a lookup join is
refused while it is planned, with the reason; it is never answered wrong.

{counts}

- [Statements that run](sql-support/statements.md):
{topics}
- [Statements that are refused, and what to write instead](sql-support/refused.md)
- [The queries of TPC-H](sql-support/tpch.md)

## Join types, by the side of the lookup table

*looked up*: by key. Otherwise the table is read whole and Spark joins it, for the reason that EXPLAIN gives
(`read because`). Where the connector cannot read its table, or a LOOKUP hint names it, the join is refused
with that reason.

| join | lookup table on the right | lookup table on the left |
|---|---|---|
"""

_TOPICS = {
    "position": "Where a lookup join may stand",
    "joins": "Kinds of join",
    "conditions": "Conditions",
    "types": "Types and NULL",
    "names": "Names",
    "clauses": "Around it: clauses, stars, windows, table functions",
    "subqueries": "Subqueries, CTEs and set operations",
    "statements": "Statements",
    "through": "Looked up through derived tables, CTEs and views; constant lists",
    "read": "Read whole, as there is no key",
    "values": "One value by key",
    "once": "Looked up once",
}

_ONCE = """
In these statements each key is looked up once, however Spark plans the rest. Each task looks up equal keys
once.

If Spark computes a lookup join twice, it also looks up keys twice. That happens in these cases, and EXPLAIN
says so:

- `FROM ... INSERT ... INSERT ...`: each INSERT computes the FROM by itself. Write the rows once, or cache.
- A scalar or LATERAL subquery that is correlated by more than equalities: Spark computes the rows around it
  once for their distinct values and once more for the join with the subquery's rows.
- A lookup table that the outer query gives the key (`(SELECT max(c.x) FROM c WHERE c.id = o.k)`): Spark
  computes the outer query twice; each key is looked up once.
- A lookup join in a CTE that is read more than once: each reader looks up again if the WITH is in a subquery.
  The same happens if the join or a reader is below LATERAL, or in a subquery other than in WHERE and SELECT.
- `/*+ REPARTITION_BY_RANGE(...) */` right over a lookup join: Spark samples its rows first. Use REPARTITION.
- A DataFrame that is used twice (written twice, joined with itself): `cache()` it, as everywhere in Spark.
"""

_CLAUSE = re.compile(r" ((?:FROM|WHERE|GROUP|SELECT|(?:(?:LEFT|RIGHT|FULL|CROSS|OUTER|ANTI) )*JOIN) )")

_REFUSED = """\
# Statements that are refused

Each has its message, and the statement to write instead if there is one.

"""

_TPCH = """\
# The queries of TPC-H

The 22 queries at scale 0.01. Each runs with each of its tables in turn as the lookup table, with each two
neighbours in the list, and with all of them. {counts}

| query | {tables} | several |
|---|{rules}---|
"""

_LEGEND = """
*looked up*: by key, as needed by the rest of the query. *read whole*: it drives the query, or nothing gives
it a key. Both give Spark's rows. *several* counts the choices of more than one table that run.

"""


def pages() -> dict[Path, str]:
    """All files that are made, with their texts."""
    known = cases()
    links = (f"[{title}](sql-support/statements.md#{anchor(title)})" for title in _TOPICS.values())
    index = _INTRODUCTION.format(counts=_counts(known), topics="\n".join(f"    - {link}" for link in links))
    made = {
        "sql-support.md": [index, *_kinds()],
        "sql-support/statements.md": ["# Statements that run\n", *_topics(known)],
        "sql-support/refused.md": _refusals(known),
        "sql-support/tpch.md": _tpch(),
    }
    return {DOCS / name: "".join(parts) for name, parts in made.items()}


def _counts(known: list[Case]) -> str:
    running = sum(case.runs for case in known)
    refused = sum(case.refused is not None for case in known)
    failing = len(known) - running - refused
    return (
        f"{running} statements run, {refused} are refused, and {failing} end in the error that Spark has for"
        " them without lookup tables, too."
    )


def _kinds() -> Iterable[str]:
    for kind in KINDS:
        sides = ("looked up" if side == "asked" else side for side in (kind.on_the_right, kind.on_the_left))
        yield f"| {kind.title} | {' | '.join(sides)} |\n"


def _topics(known: list[Case]) -> Iterable[str]:
    for topic, title in _TOPICS.items():
        running = [case for case in known if case.topic == topic and case.runs]
        yield f"\n## {title}\n{_ONCE if topic == 'once' else ''}\n"
        yield f"The statements are in [`{topic}.sql`](../../tests/queries/flights/{topic}.sql).\n\n"
        yield from (f"- {case.title}\n" for case in running)


def _refusals(known: list[Case]) -> Iterable[str]:
    yield _REFUSED
    for case in known:
        if case.refused is not None:
            title = case.title.replace("where a hint wants it asked", "with a LOOKUP hint")
            yield f"## {title[0].upper()}{title[1:]}\n\n"
            yield f"```sql\n{_wrapped(case.text)}\n```\n\n> {case.refused}\n\n"
            if case.instead is not None:
                yield f"Instead:\n\n```sql\n{_wrapped(case.instead)}\n```\n\n"


def _wrapped(sql: str) -> str:
    """A long line with its outermost clauses on lines of their own, none longer than 80 characters."""
    wrap = partial(textwrap.wrap, width=80, subsequent_indent="  ", break_on_hyphens=False)
    clauses = (each for line in sql.splitlines() for each in (_clauses(line) if len(line) > 80 else [line]))
    return "\n".join(part for clause in clauses for part in wrap(clause))


def _clauses(line: str) -> list[str]:
    def begun(clause: re.Match[str]) -> str:
        before = line[: clause.start()]
        return f"\n{clause[1]}" if before.count("(") == before.count(")") else clause[0]

    return _CLAUSE.sub(begun, line).splitlines()


def _tpch() -> Iterable[str]:
    known = outcomes()
    refused = {pair: outcome for pair, outcome in known.items() if outcome.startswith("refused")}
    counts = f"{len(known) - len(refused)} of the {len(known)} pairs of a query and its lookup tables run."
    names = list(KEYS)
    yield _TPCH.format(counts=counts, tables=" | ".join(names), rules="---|" * len(names))
    for query, group in groupby(pairs(), key=lambda pair: pair.query):
        several = [str(pair) for pair in group if len(pair.lookups) > 1]
        running = sum(pair not in refused for pair in several)
        cells = [_cell(known.get(f"{query} {name}", "")) for name in names]
        cells.append(f"{running} of {len(several)}" if several else "")
        yield f"| {query.upper()} | {' | '.join(cells)} |\n"
    yield _LEGEND
    without = [query.upper() for query in QUERIES if not tables_of(query)]
    yield f"{' and '.join(without)} read `lineitem` alone.\n"
    if refused:
        yield "\n| pairs refused | reason |\n|---|---|\n"
        reasons = Counter(outcome.partition(": ")[2] for outcome in refused.values())
        yield from (f"| {count} | {reason} |\n" for reason, count in reasons.most_common())


def _cell(outcome: str) -> str:
    """What becomes of one table: several uses of it may end differently."""
    words = ("asks", "looked up"), ("reads whole", "read whole"), ("refused", "refused")
    return ", ".join(said for word, said in words if word in outcome.partition(":")[0])


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
