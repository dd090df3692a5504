"""A query that looks up some keys of one lookup, and shows the keys of the lookups behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.plan.write.lateral_view import lateral_view
from lookup_hints.plan.write.left_rows_to_count import (
    KeysBehindLookup,
    LeftRowsToCount,
    asked_key,
    key_expressions,
)
from lookup_hints.sql.text_edits import Fragment

_KEY, _HASH, _VALUE = "__lookup_key", "__lookup_hash", "__lookup_value_"
_LIST, _COUNT, _LAST = "__lookup_list", "__lookup_count", "__lookup_last"


# The keys are chosen by their hashes, so each has the same chance. LIMIT stands before the lookup: nothing
# can let Spark pass it one key more.
def sample_query(
    left: LeftRowsToCount, behind: KeysBehindLookup, joins: Sequence[LookupJoin], keys: int
) -> str:
    """A query that looks up at most ``keys`` keys, each once.

    Its rows hold the hash of a key, how many keys were looked up and the last of their hashes, and the hash
    of a key of each of ``joins``, NULL where none is asked.

    Args:
        left: the rows that give the keys of the lookup before.
        behind: what the keys of ``joins`` are computed from.
        joins: the lookups behind it.
        keys: the most keys.
    """
    before = behind.before
    analysis = Analysis(before.use.statement, None)
    written: list[Fragment] = [key.left for key in before.conditions.keys]
    written += [] if before.order is None else before.order.values
    names = [f"{_VALUE}{at}" for at in range(len(written))]
    wanted = [f"{asked_key(before, key_expressions(analysis, before))} AS {_KEY}"]
    wanted += [
        f"{analysis.text_over_stubs(each)} AS {name}" for each, name in zip(written, names, strict=True)
    ]
    rows = analysis.selecting(left.home, left.left, wanted, left.conditions)
    listed = ", ".join(names)
    some = (
        f"SELECT DISTINCT xxhash64({_KEY}) AS {_HASH}, {listed} FROM ({rows}) WHERE {_KEY} IS NOT NULL"  # noqa: S608
        f" ORDER BY {_HASH} LIMIT {keys}"
    )
    view = lateral_view(before.use.statement, _over_names(before, names), 0)
    hashes = [
        f"IF({key} IS NULL, NULL, xxhash64({key}))"
        for key in (asked_key(each, key_expressions(analysis, each)) for each in joins)
    ]
    conditions = " AND ".join(f"({analysis.text_over_stubs(each)})" for each in behind.conditions)
    # One list of all: over a window Spark would warn that there is one partition.
    facts = f"collect_list(struct(*)) AS {_LIST}, count(1) AS {_COUNT}, max({_HASH}) AS {_LAST}"
    return (
        f"SELECT DISTINCT {_HASH}, {_COUNT}, {_LAST}, {', '.join(hashes)}"  # noqa: S608
        f" FROM (SELECT {facts} FROM ({some}))"
        f" LATERAL VIEW inline({_LIST}) `__lookup_keys` AS {_HASH}, {listed} "
        + "".join(map(analysis.text_over_stubs, view))
        + (f" WHERE {conditions}" if conditions else "")
    )


def _over_names(join: LookupJoin, names: Sequence[str]) -> LookupJoin:
    """``join`` with the values of its keys in columns of these ``names``."""
    keys = zip(join.conditions.keys, names, strict=False)
    conditions = replace(
        join.conditions, keys=tuple(replace(key, left=name) for key, name in keys), left_only=()
    )
    order, moments = join.order, names[len(join.conditions.keys) :]
    if order is not None:
        order = replace(order, value=moments[0], known_by=None if order.known_by is None else moments[1])
    return join.with_(conditions=conditions, order=order)
