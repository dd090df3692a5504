"""The words of Spark SQL that its statements are read by, each list once."""

from __future__ import annotations

JOIN_WORDS = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI")
SET_WORDS = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
"""First words of a query, anywhere."""
INSERTED_QUERY_WORDS = (*QUERY_WORDS, "MAP", "REDUCE")
"""First words of the query of an INSERT; elsewhere MAP and REDUCE are functions or names of columns."""
ORDER_WORDS = ("ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")

AFTER_RELATION = (
    *(*JOIN_WORDS, *SET_WORDS, *ORDER_WORDS),
    *(
        "JOIN",
        "ON",
        "USING",
        "LATERAL",
        "WHERE",
        "GROUP",
        "HAVING",
        "QUALIFY",
        "TABLESAMPLE",
        "SELECT",
        "INSERT",
    ),
)
"""Words after a relation that are no alias, without those that may be names, such as WINDOW and PIVOT."""
CLAUSE_WORDS = (*AFTER_RELATION, "WINDOW", "PIVOT", "UNPIVOT")
"""First words of a clause, which end the condition before it."""

# Spark's own, and those that Delta Lake, Iceberg and Hudi add.
FIRST_WORDS = (
    *("ADD", "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "CLOSE", "COMMENT", "COMMIT"),
    *("CONVERT", "COPY", "CREATE", "DECLARE", "DELETE", "DESC", "DESCRIBE", "DFS", "DROP", "EXECUTE"),
    *("EXPLAIN", "EXPORT", "FETCH", "FROM", "GENERATE", "GRANT", "IMPORT", "INSERT", "LIST", "LOAD"),
    *("LOCK", "MAP", "MERGE", "MSCK", "UNLIMITED", "OPTIMIZE", "REDUCE", "REFRESH", "REORG", "REPAIR"),
    *("REPLACE", "RESET", "RESTORE", "REVOKE", "ROLLBACK", "SELECT", "SET", "SHOW", "START", "TABLE"),
    *("TRUNCATE", "UNCACHE", "UNLOCK", "UPDATE", "USE", "VACUUM", "VALUES", "WITH"),
)
"""First words of statements."""

OFFERED_WORDS = (
    *("ALL", "AND", "ANTI", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "CROSS", "DESC", "DISTINCT"),
    *("ELSE", "END", "EXCEPT", "EXISTS", "FALSE", "FOR SYSTEM_TIME AS OF", "FROM", "FULL", "GROUP BY"),
    *("HAVING", "IN", "INNER", "INTERSECT", "INTO", "IS", "JOIN", "LATERAL VIEW", "LEFT", "LIKE", "LIMIT"),
    *("NOT", "NULL", "OFFSET", "ON", "OR", "ORDER BY", "OVER", "PARTITION BY", "RIGHT", "SEMI", "TABLES"),
    *("TEMPORARY", "THEN", "TRUE", "UNION", "USING", "VIEW", "WHEN", "WHERE"),
)
"""Completions inside a statement."""
NEVER_ALIASES = frozenset(
    {word for clause in (*OFFERED_WORDS, *FIRST_WORDS) for word in clause.split()} | {*CLAUSE_WORDS, "FOR"}
)
"""Words that are no alias in an unfinished statement."""
