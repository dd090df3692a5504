"""The contract notices a connector whose nearest rows are not the nearest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lookup_connectors.memory import MemoryConnector, put_rows

from lookup_hints.engine.arrow import positions_of, whole
from lookup_hints.engine.nearest_rows import NearestRows
from lookup_hints.spi import Answer, LookupRequest, LookupTable, NearestCondition, NearestLookup, PlacedRows
from lookup_hints.testing.contract import askers, placed_answers
from lookup_hints.testing.nearest_checks import check_nearest_rows

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("t", pa.string()),
        ("v", pa.list_(pa.float32())),
    ]
)
ROWS = [
    (1, 5, 0.5, "one", [1.0, 0.0]),
    (1, 7, 2.5, "tone", [1.0, 1.0]),
    (1, 7, 2.5, "none", [0.0, 0.0]),
    (1, None, None, None, None),
    (2, -3, 40.0, "two", [0.5, 2.0]),
    (2, 4, -40.0, "too", [None, 2.0]),
    (2, 9, 41.0, "", [3.0, 3.0]),
    (2, 11, 39.5, "town", [-1.0, 3.0]),
]


class Finding(MemoryConnector, NearestLookup):
    """Finds nearest rows as the worker does."""

    extra, among_all = 0, True

    def can_find_nearest(self, nearest: NearestCondition, *, among: tuple[str, ...]) -> bool:
        return bool(among) or self.among_all

    def lookup(self, request: LookupRequest) -> Answer:
        if request.nearest is None:
            return super().lookup(request)
        rows = pa.Table.from_batches(self.scan(request.schema), request.schema)
        names, owners, keys = (
            request.key_columns,
            np.zeros(len(rows), np.int64),
            np.zeros(request.keys.num_rows),
        )
        if names:
            known = request.keys.select(names).group_by(names).aggregate([])
            owners = pc.fill_null(positions_of(rows, known), len(known)).to_numpy().astype(np.int64)
            keys = positions_of(request.keys.select(names), known).to_numpy()
        searched = NearestRows(rows, owners, self.changed(request.nearest), "t")
        found = searched.answering(keys.astype(np.int64), whole(request.keys.columns[-1]))
        counts = np.diff(found.ends.to_numpy(), prepend=0)
        return PlacedRows(
            rows.take(found.rows), pa.array(np.repeat(np.arange(len(counts)), counts), pa.int32())
        )

    def changed(self, nearest: NearestCondition) -> NearestCondition:
        return nearest


class Few(Finding):
    """Finds one row."""

    def changed(self, nearest: NearestCondition) -> NearestCondition:
        return NearestCondition(nearest.columns, nearest.metric, 1)


class Other(Finding):
    """Takes one metric for another one."""

    def changed(self, nearest: NearestCondition) -> NearestCondition:
        metric = {"cosine": "inner-product"}.get(nearest.metric, nearest.metric)
        return NearestCondition(nearest.columns, metric, nearest.most)


class Strange(Finding):
    """Finds rows of other keys."""

    among_all = False

    def lookup(self, request: LookupRequest) -> Answer:
        answer = super().lookup(request)
        if request.nearest is None:
            return answer
        assert isinstance(answer, PlacedRows)
        return PlacedRows(answer.rows, pc.subtract(request.keys.num_rows - 1, answer.positions))


@pytest.mark.work(4)  # each metric, among the rows of a key and among all
@pytest.mark.parametrize(
    ("kind", "mistake"),
    [
        (Finding, ""),
        (Few, "most=3.*lacks a nearer row"),
        (Other, "metric='cosine'.*lacks a nearer row"),
        (Strange, "is not among the rows"),
    ],
)
def test_a_row_that_is_missing_is_noticed(kind: type[Finding], mistake: str) -> None:
    put_rows("nearest", [dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS])
    connector = kind(LookupTable("nearest", SCHEMA, options={"connector": "memory"}))
    request = LookupRequest(pa.table({"k": [1, 3, 2]}), SCHEMA)
    if not mistake:
        abilities = len(askers(connector))
        # difference, two metrics of texts, three of vectors, and points of two numbers in each order
        assert (
            check_nearest_rows(connector, request, placed_answers) == (2 + 2 + 3 + 2 + 2) * 2 * 2 * abilities
        )
        return
    with pytest.raises(AssertionError, match=mistake):
        check_nearest_rows(connector, request, placed_answers)
