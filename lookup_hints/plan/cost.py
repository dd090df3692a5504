"""A lower bound for the number of rows of a query, from Spark's ``EXPLAIN COST``.

Spark's own figures are upper bounds: after a filter or a join it keeps the size of the input. Reading a
whole table pays only if the left side surely has enough rows. So only figures of leaves count, below
operators that keep every row. For files Spark gives bytes; a callback may know the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

UNKNOWN = "unknown: Spark does not know the rows of its left side"

BYTES_OF_A_ROW = 1024
"""A file holds a row for each of this many bytes at the least; rows of most tables take a tenth of it."""

_SECTION = re.compile(r"== Optimized Logical Plan ==\n(.*?)(?:\n== |\Z)", re.DOTALL)
_NODE = re.compile(
    r"^(?P<depth>[ :]*(?:[:+]- )?)(?P<text>\w.*?), Statistics\(sizeInBytes=(?P<size>[\d.E+]+) (?P<unit>\w+)"
    r"(?:, rowCount=(?P<rows>[\d.E+]+))?\b.*\)$"
)
# Spark reports an unknown size as one EiB or more.
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_COUNTED = ("Range", "LocalRelation", "InMemoryRelation", "Relation", "RelationV2", "HiveTableRelation")
# A file scan has no row count, and its size is compressed; we assume one row for each KiB.
# (docs/decisions/0153)
_FILES = re.compile(r"Relation .*\] (parquet|orc|avro|csv|json|text|xml)")
# Nodes that give as many rows as they get; behind others a figure is only a bound from above.
# (docs/decisions/0153)
_KEEPS_ROWS = (
    *("Project", "Sort", "Window", "Repartition", "RepartitionByExpression", "RebalancePartitions"),
    *("SubqueryAlias", "ResolvedHint", "ArrowEvalPython", "BatchEvalPython"),
)
# A name that a query gives, be it to another column of its files.
_ALIAS = re.compile(r" AS (\w+)#")

# Spark prints three digits of a count.
_DIGITS = 0.995


@dataclass(frozen=True)
class LeftRows:
    """A lower bound for the rows of a left side.

    Args:
        rows: the bound; None if unknown.
        source: where the number comes from, or why there is none.
        values: upper bound of distinct values for each column name, where the files record it.
        keys: upper bound of distinct keys; None if unknown.
    """

    rows: int | None
    source: str
    values: Mapping[str, int] = field(default_factory=dict, compare=False)
    keys: int | None = None


RowsOfFiles = Callable[[str], LeftRows | None]
"""The rows of files, by their ``Relation name[columns] format`` in a plan; None where they are not known."""


@dataclass(frozen=True)
class _Node:
    depth: int
    text: str
    size: float | None
    rows: int | None

    @property
    def name(self) -> str:
        return self.text.split(maxsplit=1)[0]


# `sizeInBytes` after a filter is the size of its input, so only nodes that keep all rows count.
# (docs/decisions/0153)
def certain_rows(explained: str, rows_of_files: RowsOfFiles = lambda _: None) -> LeftRows:
    """The lower bound for the rows of a query that ``EXPLAIN COST`` proves.

    >>> node = "Range (0, 5000, step=1), Statistics(sizeInBytes=39.1 KiB, rowCount=5.00E+3)"
    >>> certain_rows("== Optimized Logical Plan ==\\n" + node)
    LeftRows(rows=4975, source='EXPLAIN COST', values={}, keys=None)
    """
    section = _SECTION.search(explained)
    nodes = list(_parse_nodes(section[1])) if section else []
    least = _lower_bound_of_rows(nodes, rows_of_files) if nodes else _NONE
    if section is None or not least.rows:
        return LeftRows(None, UNKNOWN)
    computed = set(_ALIAS.findall(section[1]))
    values = {name: most for name, most in least.values.items() if name not in computed}
    return LeftRows(least.rows, ", ".join(dict.fromkeys(least.sources)), values)


def files_of(explained: str) -> dict[str, float]:
    """The bytes of each relation of files in a plan, by its text; those that are there twice count once."""
    section = _SECTION.search(explained)
    nodes = _parse_nodes(section[1]) if section else iter(())
    return {node.text: node.size or 0.0 for node in nodes if _FILES.fullmatch(node.text)}


def bytes_of(explained: str) -> float | None:
    """The bytes that Spark thinks a query has at most; None if it does not say."""
    section = _SECTION.search(explained)
    first = None if section is None else next(_parse_nodes(section[1]), None)
    return None if first is None else first.size


def _parse_nodes(plan: str) -> Iterator[_Node]:
    """The operators; lines without statistics are skipped: they are physical plans of cached relations."""
    for line in plan.splitlines():
        found = _NODE.match(line)
        if found is not None:
            rows, unit = found["rows"], found["unit"]
            yield _Node(
                len(found["depth"]),
                found["text"],
                float(found["size"]) * 1024 ** _UNITS.index(unit) if unit in _UNITS else None,
                None if rows is None else int(float(rows) * _DIGITS),
            )


@dataclass(frozen=True)
class _Least:
    """A lower bound of rows, and where it comes from."""

    rows: int
    sources: tuple[str, ...] = ("EXPLAIN COST",)
    values: Mapping[str, int] = field(default_factory=dict)


_NONE = _Least(0)


def _lower_bound_of_rows(nodes: Sequence[_Node], rows_of_files: RowsOfFiles) -> _Least:
    """The lower bound for the first of ``nodes``; its descendants follow it."""
    top, below = nodes[0], nodes[1:]
    if not below:
        return _of_leaf(top, rows_of_files)
    starts = [at for at, node in enumerate(below) if node.depth == below[0].depth]
    ends = [*starts[1:], len(below)]
    children = [below[at:end] for at, end in zip(starts, ends, strict=True)]
    if len(children) == 1:
        return _lower_bound_of_rows(children[0], rows_of_files) if top.name in _KEEPS_ROWS else _NONE
    counted = next((sides for start, sides in _COMBINED.items() if top.text.startswith(start)), None)
    if counted is None:
        return _NONE
    parts = [_lower_bound_of_rows(child, rows_of_files) for child in children[counted]]
    return max(parts, key=lambda part: part.rows) if top.text.startswith("Join") else _sum_least(parts)


def _of_leaf(leaf: _Node, rows_of_files: RowsOfFiles) -> _Least:
    if leaf.rows is not None and leaf.name.split("[")[0] in _COUNTED:
        return _Least(leaf.rows)
    if leaf.size is None or not _FILES.fullmatch(leaf.text):
        return _NONE
    counted = rows_of_files(leaf.text)
    if counted is not None and counted.rows is not None:
        return _Least(counted.rows, (counted.source,), counted.values)
    return _Least(int(leaf.size) // BYTES_OF_A_ROW)


def _sum_least(parts: Sequence[_Least]) -> _Least:
    counted = [part for part in parts if part.rows]
    return _Least(
        sum(part.rows for part in counted), tuple(name for part in counted for name in part.sources)
    )


# Whose rows all go on: of a union the sum, of a join the most.
_COMBINED = {
    "Union": slice(None),
    "Join LeftOuter": slice(0, 1),
    "Join RightOuter": slice(1, 2),
    "Join FullOuter": slice(None),
}
