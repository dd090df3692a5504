"""Keys that failed for good while others go on: how many may, and what is kept of each as a dead letter."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_hints.engine.masking import Mask
from lookup_hints.engine.steps import Part
from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.metrics.task_recorder import TaskRecorder
from lookup_hints.spec import LookupSpec

LONGEST_ERROR = 2_000
"""This many characters of an error are kept: what a server answers may be a page."""

SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("alias", pa.string()),
        ("line", pa.int32()),
        ("connector", pa.string()),
        ("key", pa.string()),
        ("error_class", pa.string()),
        ("error", pa.string()),
        ("attempts", pa.int32()),
        ("failed_at", pa.timestamp("us", tz="UTC")),
        ("query_id", pa.string()),
        ("batch_id", pa.int64()),
    ]
)
"""The columns of dead letters."""


@dataclass(frozen=True)
class FailedKeys:
    """Keys that failed for good together.

    Args:
        keys: the keys.
        error_class: the class of the error.
        error: what it says; secrets in it are not masked.
        attempts: how often the keys were asked.
    """

    keys: pa.Table
    error_class: str
    error: str
    attempts: int


Keep = Callable[[FailedKeys], None]
"""Takes keys that are to be dead letters. Called by whoever drives the flow, so it must not wait."""


class GivenUp:
    """The keys of a task that failed for good and do not fail it: counted, bounded and kept."""

    def __init__(self, spec: LookupSpec, recorder: TaskRecorder, keep: Keep) -> None:
        self._spec, self._settings, self._recorder, self._keep = spec, spec.settings, recorder, keep
        self._keys = 0
        self._last: ConnectorError | None = None

    def take(self, part: Part, error: ConnectorError) -> None:
        """The keys of ``part`` failed for good.

        Raises:
            ConnectorError: these are more than `max-errors` allows.
        """
        self._keys += len(part)
        self._last = error
        most = self._settings.max_errors
        if most is not None and self._keys > most:
            raise self._too_many(f"'max-errors' = {most}")
        if self._settings.dead_letters is not None:
            self._recorder.count(dead_letters=len(part))
            self._keep(_failed(part, error))

    def check_ratio(self) -> None:
        """The task asked all its keys.

        Raises:
            ConnectorError: more of them failed than `max-error-ratio` allows.
        """
        most = self._settings.max_error_ratio
        if most is not None and self._keys > most * self._recorder.total.keys:
            raise self._too_many(f"'max-error-ratio' = {most:.6g}")

    def _too_many(self, limit: str) -> ConnectorError:
        asked, table = self._recorder.total.keys, self._spec.table.name
        error = ConnectorError(
            f"Too many keys failed for good in table {table}: {self._keys:,} of the {asked:,} that this task"
            f" has read so far; {limit} allows fewer. The last: {self._last}"
        )
        error.__cause__ = self._last
        return error


def _failed(part: Part, error: ConnectorError) -> FailedKeys:
    cause = error.__cause__
    told = cause if isinstance(cause, Exception) and not isinstance(error, LookupTimeout) else error
    return FailedKeys(part.keys, type(told).__name__, str(told), part.attempt)


@dataclass(frozen=True)
class Origin:
    """What the dead letters of one task have in common."""

    table: str
    alias: str
    connector: str
    line: int
    batch: tuple[str, int] | None = None


def letters_of(failed: FailedKeys, at: datetime, origin: Origin, mask: Mask) -> Iterator[dict[str, Any]]:
    """A dead letter for each key that failed ``at`` a time."""
    query, batch = origin.batch or (None, None)
    common = {
        "table": origin.table,
        "alias": origin.alias,
        "line": origin.line,
        "connector": origin.connector,
        "error_class": failed.error_class,
        "error": mask(failed.error)[:LONGEST_ERROR],
        "attempts": failed.attempts,
        "failed_at": at,
        "query_id": query,
        "batch_id": batch,
    }
    for text in key_texts(failed.keys):
        yield {**common, "key": text}


def key_texts(keys: pa.Table) -> list[str]:
    """Each key as a JSON object that Spark's ``from_json`` reads back as it was.

    >>> key_texts(pa.table({"id": [7], "kind": ["a"]}))
    ['{"id": 7, "kind": "a"}']
    """
    columns = [_as_text(column) if _is_time(column.type) else column for column in keys.columns]
    rows = pa.table(columns, names=keys.column_names).to_pylist()
    return [json.dumps(_jsonable(row), ensure_ascii=False, default=str) for row in rows]


def _is_time(kind: pa.DataType) -> bool:
    """Whether it can hold values that Python's own types cannot, such as the year 10,000."""
    return bool(types.is_timestamp(kind) or types.is_date(kind))


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _jsonable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value
