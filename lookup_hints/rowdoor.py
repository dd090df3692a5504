"""One key at a time: requests of many keys taken apart, and the outcomes of single keys put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from lookup_hints.errors import ConnectorError
from lookup_hints.model import LookupRequest, LookupTable, Miss, Outcomes, RowRequest, Rows


class RowDoor(Protocol):
    """A connector with a row door, as far as it makes tables."""

    table: LookupTable

    def rows_as_table(self, found: Sequence[tuple[RowRequest, Any]], schema: pa.Schema) -> pa.Table:
        """The rows of many keys, each with its request, as a table of ``schema``, in their order."""


def rows_of(request: LookupRequest) -> list[RowRequest]:
    """The keys of ``request``, each as a request of its own."""
    keys = request.keys.to_pylist()
    return [RowRequest(key, request.schema, request.timeout, request.attempt) for key in keys]


def outcomes_of(
    door: RowDoor,
    asked: Sequence[tuple[RowRequest, Rows | Exception]],
    schema: pa.Schema,
) -> Outcomes:
    """One answer from the outcomes of single keys; their places are those in ``asked``."""
    failures = {place: outcome for place, (_, outcome) in enumerate(asked) if isinstance(outcome, Exception)}
    notes = {place: outcome.note for place, (_, outcome) in enumerate(asked) if isinstance(outcome, Miss)}
    found = [
        (place, (request, row))
        for place, (request, outcome) in enumerate(asked)
        if not isinstance(outcome, Exception | Miss)
        for row in outcome
    ]
    try:
        table = door.rows_as_table([row for _, row in found], schema)
    except Exception:
        refused = _refused(door, found, schema)
        failures |= refused
        found = [(place, row) for place, row in found if place not in refused]
        table = door.rows_as_table([row for _, row in found], schema)
    return Outcomes(table, pa.array([place for place, _ in found], pa.int32()), failures, notes)


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
