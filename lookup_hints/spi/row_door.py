"""One key at a time: requests of many keys taken apart, and the outcomes of single keys put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from lookup_hints.errors import AnswerError, ConnectorError
from lookup_hints.spi.model import LookupRequest, LookupTable, Miss, Outcomes, RowRequest, Rows


class RowDoor(Protocol):
    """A connector with a row door, as far as it makes tables."""

    table: LookupTable

    def rows_as_table(self, found: Sequence[tuple[RowRequest, Any]], schema: pa.Schema) -> pa.Table:
        """The rows of many keys, each with its request, as a table of ``schema``, in their order."""


def rows_of(request: LookupRequest) -> list[RowRequest]:
    """The keys of ``request``, each as a request of its own."""
    same = request.schema, request.timeout, request.attempt
    return [RowRequest(key, *same) for key in _keys_of(request)]


def _keys_of(request: LookupRequest) -> list[dict[str, Any]]:
    names = request.key_columns
    columns = [column.to_pylist() for column in request.keys.columns]  # faster than to_pylist of the table
    if len(names) == 1:
        return [{names[0]: value} for value in columns[0]]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def outcomes_of(
    door: RowDoor,
    asked: Sequence[tuple[RowRequest, Rows | Exception]],
    schema: pa.Schema,
) -> Outcomes:
    """One answer from the outcomes of single keys; their places are those in ``asked``."""
    found: list[tuple[int, tuple[RowRequest, Any]]] = []
    failures: dict[int, Exception] = {}
    notes: dict[int, Any] = {}
    for place, (request, outcome) in enumerate(asked):
        if isinstance(outcome, Exception):
            failures[place] = outcome
        elif isinstance(outcome, Miss):
            notes[place] = outcome.note
        else:
            if not isinstance(outcome, list):
                _check_rows(door, request, outcome)
            found += [(place, (request, row)) for row in outcome]
    try:
        table = _table_of(door, found, schema)
    except Exception:
        refused = _refused(door, found, schema)
        failures |= refused
        found = [(place, row) for place, row in found if place not in refused]
        table = _table_of(door, found, schema)
    return Outcomes(table, pa.array([place for place, _ in found], pa.int32()), failures, notes)


def _table_of(
    door: RowDoor, found: Sequence[tuple[int, tuple[RowRequest, Any]]], schema: pa.Schema
) -> pa.Table:
    """The rows found as a table; the door is not asked for none, as it may have failed to open."""
    return door.rows_as_table([row for _, row in found], schema) if found else schema.empty_table()


def _check_rows(door: RowDoor, request: RowRequest, rows: object) -> None:
    """Refuse what holds no rows: None, one row alone, a coroutine.

    Raises:
        AnswerError: ``rows`` are none.
    """
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str | bytes):
        key = " and ".join(f"{name} = {value!r}" for name, value in request.key.items())
        raise AnswerError(
            f"connector {type(door).__name__} of table {door.table.name} answered a {type(rows).__name__} for"
            f" {key}; expected a list of dictionaries, an empty one where there is no row."
        )


def _refused(
    door: RowDoor, found: Sequence[tuple[int, tuple[RowRequest, Any]]], schema: pa.Schema
) -> Mapping[int, Exception]:
    """The keys whose rows make no table, and why."""
    refused: dict[int, Exception] = {}
    for place, row in found:
        try:
            door.rows_as_table([row], schema)
        except ConnectorError as error:
            refused[place] = error
        except Exception as error:
            text = f"table {door.table.name}: the row {row[1]!r:.200} does not fit the columns: {error}"
            refused[place] = ConnectorError(text, permanent=True)
    return refused
