"""Where the queries of a statement begin and end."""

from __future__ import annotations

import pytest

from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.sql.sql_text import SqlText


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t [TABLE c]",
        "INSERT INTO TABLE t [TABLE c UNION ALL TABLE d];",
        "INSERT OVERWRITE TABLE a.t PARTITION (table = 1) (x, table) [TABLE c |> WHERE x > 1]",
        "INSERT INTO t [((TABLE c))]",
        "INSERT INTO t REPLACE WHERE table = 1 [TABLE IDENTIFIER('c') LIMIT 3]",
        "INSERT INTO TABLE t BY NAME [SELECT table FROM c]",
        "CREATE TABLE t CLUSTER BY (table) AS [TABLE c ORDER BY 1]",
        "CREATE OR REPLACE TABLE t USING x AS [SELECT 1 FROM c]",
        "CREATE TEMP VIEW v (table COMMENT 'TABLE c') AS [TABLE a.c]",
        "CACHE LAZY TABLE t [TABLE c]",
        "BEGIN INSERT INTO TABLE t [TABLE c]; FOR r AS [TABLE c] DO [TABLE r]; END FOR; END",
        "CREATE TEMPORARY FUNCTION f() RETURNS TABLE (x INT) RETURN [TABLE c]",
        "MERGE INTO t USING ([TABLE c]) c ON t.id = c.id WHEN MATCHED THEN DELETE",
        "DESCRIBE QUERY [TABLE c]",
    ],
)
def test_a_query_is_found_wherever_it_is_written(text: str) -> None:
    sql = SqlText(text.replace("[", "").replace("]", ""))
    parts = query_parts(Statement(sql, lambda _: None))
    assert [part.of(sql) for part in parts] == [piece.split("]")[0] for piece in text.split("[")[1:]]
