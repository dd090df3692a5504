"""How many rows a query has at least, read from what Spark's ``EXPLAIN COST`` says of it.

Spark's own figures are bounds from above: behind a filter or a join it keeps the size of what comes in. A
table should be read only where there are surely enough rows on the left, so figures count where nothing can
take rows away: of leaves, below operators that keep each row. Of files Spark tells the bytes; others may know
their rows.
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
# One EiB and more is what Spark says of what it does not know.
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_COUNTED = ("Range", "LocalRelation", "InMemoryRelation", "Relation", "RelationV2", "HiveTableRelation")
# A file scan has no row count, and its size is compressed; a row for each KiB is what is counted.
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
    """How many rows a left side has at least.

    Args:
        rows: so many; None where it cannot be said.
        source: where the number is from, or why there is none.
        values: how many different values columns of that name have at most, as far as files tell.
        keys: so many different keys occur at most; None where it is not known.
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


# `sizeInBytes` behind a filter is that of its input, so only nodes that keep all rows count.
# (docs/decisions/0153)
def certain_rows(explained: str, rows_of_files: RowsOfFiles = lambda _: None) -> LeftRows:
    """What ``EXPLAIN COST`` says for certain of the rows of a query.

    >>> told = "Range (0, 5000, step=1), Statistics(sizeInBytes=39.1 KiB, rowCount=5.00E+3)"
    >>> certain_rows("== Optimized Logical Plan ==\\n" + told)
    LeftRows(rows=4975, source='EXPLAIN COST')
    """
    section = _SECTION.search(explained)
    nodes = list(_parse_nodes(section[1])) if section else []
    least = _least_rows(nodes, rows_of_files) if nodes else _NONE
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


def _parse_nodes(plan: str) -> Iterator[_Node]:
    """The operators; lines without statistics are of physical plans below what is cached."""
    for line in plan.splitlines():
        found = _NODE.match(line)
        if found is not None:
            rows = found["rows"]
            yield _Node(
                len(found["depth"]),
                found["text"],
                _parse_bytes(found["size"], found["unit"]),
                None if rows is None else int(float(rows) * _DIGITS),
            )


def _parse_bytes(number: str, unit: str) -> float | None:
    return float(number) * 1024 ** _UNITS.index(unit) if unit in _UNITS else None


@dataclass(frozen=True)
class _Least:
    """So many rows at the least, and who counted them."""

    rows: int
    sources: tuple[str, ...] = ("EXPLAIN COST",)
    values: Mapping[str, int] = field(default_factory=dict)


_NONE = _Least(0)


def _least_rows(nodes: Sequence[_Node], rows_of_files: RowsOfFiles) -> _Least:
    """The rows of the first of ``nodes``, at least; what is below it follows it."""
    top, below = nodes[0], nodes[1:]
    if not below:
        return _of_leaf(top, rows_of_files)
    starts = [at for at, node in enumerate(below) if node.depth == below[0].depth]
    ends = [*starts[1:], len(below)]
    children = [below[at:end] for at, end in zip(starts, ends, strict=True)]
    if len(children) == 1:
        return _least_rows(children[0], rows_of_files) if top.name in _KEEPS_ROWS else _NONE
    counted = next((sides for start, sides in _COMBINED.items() if top.text.startswith(start)), None)
    if counted is None:
        return _NONE
    parts = [_least_rows(child, rows_of_files) for child in children[counted]]
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
