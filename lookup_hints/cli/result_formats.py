"""Rows of a result as CSV, JSON or Markdown: each value exactly, as Spark itself writes it in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lookup_hints.errors import Problem, QueryError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TABLE = "table"
FORMATS = (TABLE, "csv", "json", "jsonl", "markdown")
"""The names of ``--format``; the table is Spark's own."""

# Without these Spark leaves out microseconds, seconds of old offsets, and fields that are NULL.
# (docs/decisions/0155)
_EXACT = {
    "ignoreNullFields": "false",
    # Spark leaves out microseconds by itself, and the seconds of the offsets of old times.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_NESTED = ("array", "map", "struct", "variant")

CellText = str | None


# Spark formats values by to_json: Python's floats print more digits, and times lose their zones.
# (docs/decisions/0155)
def written(frame: DataFrame, kind: str, rows: int | None) -> str:
    """The rows of ``frame`` as text that ends with a line end; empty where the frame has no columns.

    Raises:
        QueryError: the names of columns would say one thing twice in JSON.
    """
    if not frame.columns:
        return ""
    if kind in ("json", "jsonl"):
        lines = _take_json(frame, _columns_by_name(frame), rows)
        if kind == "jsonl":
            return "".join(f"{line}\n" for line in lines)
        return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"
    cells = [_cells_of_line(line) for line in _take_json(frame, _columns_by_number(frame), rows)]
    return (_as_csv if kind == "csv" else _as_markdown)(frame.columns, cells)


# --- in Spark --------------------------------------------------------------------------------------


def _take_json(frame: DataFrame, columns: Sequence[Column], rows: int | None) -> list[str]:
    from pyspark.sql import functions

    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))  # two may have one name
    texts = numbered.select(functions.to_json(functions.struct(*columns), _EXACT))
    return [row[0] for row in (texts.collect() if rows is None else texts.take(rows))]


def _columns_by_name(frame: DataFrame) -> list[Column]:
    from pyspark.sql import functions

    twice = [name for name, times in Counter(frame.columns).items() if times > 1]
    if twice:
        message = f"Two columns are called {twice[0]!r}, so JSON cannot hold both."
        tip = "Rename one with AS."
        raise QueryError(Problem(message, tip=tip))
    return [functions.col(f"c{number}").alias(name) for number, name in enumerate(frame.columns)]


def _columns_by_number(frame: DataFrame) -> list[Column]:
    """The columns, with nested values as JSON."""
    from pyspark.sql import functions

    return [
        functions.to_json(f"c{number}", _EXACT).alias(f"c{number}")
        if field.dataType.typeName() in _NESTED
        else functions.col(f"c{number}")
        for number, field in enumerate(frame.schema)
    ]


# --- as text ---------------------------------------------------------------------------------------


def _cells_of_line(line: str) -> list[CellText]:
    # Numbers stay the text that they are: a float would round decimals.
    values: dict[str, Any] = json.loads(line, parse_float=str, parse_int=str)
    return [str(value).lower() if isinstance(value, bool) else value for value in values.values()]


# Not Spark's to_csv, which refuses nested columns and binary on older versions. (docs/decisions/0155)
def _as_csv(names: Iterable[str], lines: Iterable[Iterable[CellText]]) -> str:
    return "".join(",".join(map(_csv_cell, line)) + "\n" for line in (names, *lines))


def _csv_cell(cell: CellText) -> str:
    """Empty for NULL, and ``""`` for an empty text, as PostgreSQL and Arrow distinguish them."""
    if cell is None:
        return ""
    if cell and cell == cell.strip() and not any(letter in cell for letter in ',"\r\n'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _as_markdown(names: Sequence[str], lines: Iterable[Iterable[CellText]]) -> str:
    rows = [_markdown_row(names), "|" + " --- |" * len(names), *map(_markdown_row, lines)]
    return "".join(f"{row}\n" for row in rows)


def _markdown_row(cells: Iterable[CellText]) -> str:
    return "| " + " | ".join(map(_markdown_cell, cells)) + " |"


def _markdown_cell(cell: CellText) -> str:
    text = "NULL" if cell is None else cell
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "<br>").replace("\n", "<br>")
