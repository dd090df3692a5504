"""Columns that no star shows, as ``_metadata`` of files, where the lookup join stands before other joins."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pytest

from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("files", "words")
CHAIN = "FROM files AS o LEFT JOIN c ON o.k = c.id LEFT JOIN words AS z ON z.id = o.n"


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    folder = tmp_path_factory.mktemp("hidden")
    made = Twins(spark.newSession, folder)
    made.dimension("c", "id BIGINT, name STRING", [(1, "x"), (2, "y")], key="id")
    made.plain.sql("SELECT id AS n, 2 * id - 1 AS k FROM range(1, 4, 1, 1)").write.parquet(f"{folder}/o")
    made.plain.sql("SELECT id, chr(96 + id) AS w FROM range(1, 3, 1, 1)").write.parquet(f"{folder}/z")
    for name, files in zip(NAMES, "oz", strict=True):
        made.conf(name, f"parquet.`{folder}/{files}`")
    return made


TEXTS = [
    f"SELECT o.n, o._metadata.row_index AS r, c.name, z.w {CHAIN} AND o._metadata.file_size > 0",
    f"SELECT *, O.`_METADATA`.row_index {CHAIN}",
    f"SELECT o.*, (o.n) AS m, z.*, z._metadata.row_index, o._metadata {CHAIN} WHERE o._metadata.file_size > 1",
    f"SELECT struct(o._metadata, c.name), upper(o._metadata.file_name) {CHAIN} GROUP BY ALL",
    f"SELECT o.n, d.name {CHAIN} JOIN c AS d ON d.id = o._metadata.row_index + 1"
    " JOIN words AS y ON y.id = o._metadata.row_index + 1 ORDER BY o._metadata.row_index",
    f"SELECT o.n {CHAIN} WHERE EXISTS (SELECT 1 FROM words AS q WHERE q.id = o._metadata.row_index + 1)",
    "SELECT _metadata.row_index, _metadata, c.name FROM files AS o JOIN c ON o.k = c.id"
    " CROSS JOIN range(2) AS r WHERE _metadata.row_index < 2",
    "SELECT o._metadata.row_index AS r, c.name FROM files AS o, c, words AS z WHERE o.k = c.id AND z.id = c.id",
    "SELECT a._metadata.row_index, b.* FROM files AS a JOIN (c JOIN words AS b ON b.id = c.id) ON a.k = c.id"
    " JOIN words AS e ON e.id = b.id",
]


def test_a_hidden_column_is_found_behind_a_packed_relation(twins: Twins) -> None:
    texts = [
        reduce(lambda text, name: text.replace(f" {name} ", f" {twins.plain.conf.get(name)} "), NAMES, text)
        for text in TEXTS
    ]
    for text, answer in zip(texts, twins.check_all(texts), strict=True):
        assert answer.rows, text
        assert "asked: " in twins.session.explain(text), text
