"""What a check of a script sees in its text, beside what the planner says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lookup_hints.cli.check import CheckOptions, check_script, dry_run_results
from lookup_hints.cli.names_in_text import ScriptNames
from lookup_hints.errors import QueryError
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.statements import split_statements
from tests.queries.corpus import cases
from tests.queries.tpch.pairs import QUERIES
from tests.unit.plan.golden import golden_cases
from tests.unit.plan.planning import CUSTOMERS

ROOT = Path(__file__).parents[3]
TABLE = (
    "CREATE TEMPORARY TABLE c (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
    " WITH ('connector' = '{}', 'rows' = '[]');\n"
)


def found(query: str, connector: str = "memory") -> list[str]:
    """The mistakes of a script that creates a table and runs a query, with their places."""
    return [
        f"{each.line}:{each.column} {each.message}" for each in check_script(TABLE.format(connector) + query)
    ]


@pytest.mark.parametrize(
    ("query", "mistakes"),
    [
        (
            "SELECT c.nam, o.nam FROM o JOIN c ON o.id = c.id",
            ["2:10 The table c has no column 'nam'. Did you mean 'name'?"],
        ),
        (
            "SELECT o.id FROM o JOIN c AS p ON o.id = p.id WHERE P.`Idd` = 1 AND p.nme > 'a'",
            [
                "2:55 The table c has no column 'Idd'. Did you mean 'id'?",
                "2:71 The table c has no column 'nme'. Did you mean 'name'?",
            ],
        ),
        (
            "SELECT o.id FROM o JOIN c ON o.id = c.id WHERE o.x = (SELECT max(x) FROM u WHERE u.z = c.nm)",
            ["2:90 The table c has no column 'nm'. Did you mean 'name'?"],
        ),
        (
            "SELECT o.id, FROM o JOIN c ON o.id = c.id",
            ["2:12 There is no column between this comma and FROM. Leave the comma out."],
        ),
    ],
)
def test_columns_that_are_not_there(query: str, mistakes: list[str]) -> None:
    assert found(query) == mistakes


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM o LEFT ~JOINN c AS d ON d.id = o.id",
        "SELECT * FROM o left outer ~jion c ON c.id = o.id",
        "SELECT /*+ LOOKUP('table' = 'd') */ * FROM o p ~JION c AS d ON d.id = p.id",
        "SELECT * FROM o ~JION c ON c.id = o.id",
        "SELECT * FROM o AS p NATURAL ~JON c",
        "SELECT * FROM (o CROSS ~JOINN c) WHERE o.id = c.id",
        "SELECT * FROM a, o RIGHT ~JOINS c d USING (id)",
        "SELECT * FROM x WHERE EXISTS (SELECT 1 FROM o JOIN y USING (id) INNER ~JIN c USING (id))",
        "FROM o |> LEFT ~JOINT c ON c.id = o.id",
        "INSERT INTO t SELECT * FROM o LEFT ANTI ~JOINI c ON c.id = o.id",
    ],
)
def test_a_join_that_is_spelt_wrong(query: str) -> None:
    at, text = query.index("~"), query.replace("~", "")
    word = text[at:].split()[0]
    assert found(text) == [f"2:{at + 1} A join cannot begin with {word!r}. Did you mean JOIN?"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT joins.id FROM o joins JOIN c ON c.id = joins.id",
        "SELECT joins.id FROM o joins, c join1 WHERE join1.id = joins.id",
        "SELECT joins.id FROM o AS joins LEFT JOIN c AS join2 ON join2.id = joins.id ORDER BY 1",
        "SELECT p.id FROM joint p JOIN c ON p.id = c.id AND p.joins DIV c.id > 0",
        "SELECT p.id AS joins FROM o p JOIN c joins LATERAL VIEW explode(p.xs) joins AS x",
        "SELECT left joins, right FROM o p JOIN c ON c.id = p.left",
        "FROM o joins |> JOIN c ON c.id = joins.id |> AS joins",
        "BEGIN FOR r AS SELECT c.id FROM c joins DO SELECT 1; END FOR; END",
        "FROM o joins INSERT INTO t SELECT 1 INSERT INTO u SELECT c.id FROM c",
    ],
)
def test_names_that_are_nearly_join(query: str) -> None:
    assert not [each for each in found(query) if "A join cannot" in each]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT C.NAME, c.*, o.c.nam, c.name.field FROM o JOIN c ON o.id = c.id",
        "SELECT o.id FROM o JOIN c ON o.id = c.id WHERE EXISTS (SELECT 1 FROM d AS c WHERE c.nope = 1)",
        # A derived table sees no relation beside it, so this is a column with fields.
        "SELECT c.name FROM o JOIN c ON o.id = c.id JOIN (SELECT c.part AS part FROM t) d ON d.part = o.id",
        "SELECT x.a, x.b FROM o JOIN c AS x(a, b) ON o.id = x.a",
        "FROM o |> JOIN c ON o.id = c.id |> EXTEND 1 AS n |> SELECT c.name, n",
    ],
)
def test_columns_that_may_be_there(query: str) -> None:
    assert found(query) == []


def test_a_misspelt_connector_is_one_mistake() -> None:
    (mistake,) = found("SELECT o.id, c.name FROM o JOIN c ON o.id = c.id", connector="memry")
    assert "No connector is called 'memry'. Did you mean 'memory'?" in mistake


ORDERS = "CREATE TABLE orders (id INT, customer INT) USING csv;\n"


@pytest.mark.parametrize(
    ("query", "mistakes"),
    [
        (
            "SELECT q.nope FROM orders o JOIN c ON o.id = c.id",
            ["3:8 Nothing is called 'q' here. Known: o, c."],
        ),
        (
            "WITH x AS (SELECT id FROM orders) SELECT x.id FROM x JOIN c ON x.id = c.id AND cc.id = 1",
            ["3:80 Nothing is called 'cc' here. Did you mean 'c'?"],
        ),
        (
            "CREATE TEMPORARY VIEW v AS SELECT o.*, 1 AS n FROM orders o CROSS JOIN range(3);\n"
            "SELECT v.n, `Q`.x FROM v JOIN c ON v.id = c.id",
            ["4:13 Nothing is called 'Q' here. Known: v, c."],
        ),
        (
            "SELECT o.id FROM (VALUES (1)) AS o(id) JOIN c ON o.id = c.id WHERE EXISTS (SELECT 1 WHERE p.id = 1)",
            ["3:91 Nothing is called 'p' here. Known: o, c."],
        ),
    ],
)
def test_aliases_that_are_not_there(query: str, mistakes: list[str]) -> None:
    assert found(ORDERS + query) == mistakes


@pytest.mark.parametrize(
    "query",
    [
        "SELECT q.nope FROM unknown o JOIN c ON o.id = c.id",
        "SELECT q.nope FROM db.orders o JOIN c ON o.id = c.id",
        "SELECT named_struct('f', 1) AS q, q.f FROM orders o JOIN c ON o.id = c.id",
        "SELECT q.f FROM (SELECT id, from_json(j, 'q STRUCT<f: INT>').* FROM orders) o JOIN c ON o.id = c.id",
        "SELECT q.f FROM (SELECT inline(mine(id)) FROM orders) o JOIN c ON o.id = c.id",
        "SELECT o.id, (SELECT max(o.id) FROM c AS i WHERE i.id = o.id) FROM orders o JOIN c ON o.id = c.id",
        "SELECT q.f(c.id), :q.f, session.q FROM orders o JOIN c ON o.id = c.id",
        "DECLARE q STRUCT<f: INT>; SELECT q.f FROM orders o JOIN c ON o.id = c.id",
        "ALTER TABLE orders ADD COLUMN q STRUCT<f: INT>; SELECT q.f FROM orders o JOIN c ON o.id = c.id",
        "USE other; SELECT q.f FROM orders o JOIN c ON o.id = c.id",
        "CREATE TABLE IF NOT EXISTS t (id INT) USING csv; SELECT q.f FROM t JOIN c ON t.id = c.id",
        "SELECT transform(array(c), q -> q.id), w.start FROM orders o JOIN c ON o.id = c.id LATERAL VIEW f(1) AS w",
    ],
)
def test_aliases_that_may_be_there(query: str) -> None:
    assert found(ORDERS + query) == []


_CUT_OFF = "a time that ends the text"


def right_statements() -> Iterator[tuple[str, str]]:
    """Scripts that run, and where they stand; each table of theirs may be taken for a lookup table."""
    yield from ((f"flights, {case.topic}", case.text) for case in cases() if case.runs)
    yield from (
        ("golden", case.text) for case in golden_cases() if not case.refused and case.title != _CUT_OFF
    )
    yield from (("TPC-H", text) for text in QUERIES.values())
    for file in (ROOT / "tests/queries/shapes.sql", *sorted((ROOT / "sql_examples").glob("*.sql"))):
        yield file.name, file.read_text(encoding="utf-8")


UNLISTED = (
    "CREATE TEMPORARY TABLE {} WITH"
    " ('connector' = 'postgres', 'url' = '${{env:SHOP}}', 'table-name' = '{}');\n"
)
NOTE = "columns not checked: c takes them from its source; give it a column list"


@pytest.mark.parametrize(
    ("query", "mistake"),
    [
        (
            "SELECT /*+ LOOKUP('table' = 'x') */ c.name FROM o JOIN c ON o.id = c.id",
            "2:29 LOOKUP names 'x', but no lookup join in this query block has that alias. Known: c.",
        ),
        (
            "SELECT c.name FROM o LEFT JOIN c ON o.id >> = c.id",
            "2:37 This condition of a lookup join cannot be parsed.",
        ),
        (
            "SELECT c.name FROM o JOIN c ON o.id = c.id AND",
            "2:44 A condition is missing beside this AND.",
        ),
        (
            "SELECT c.name, FROM o JOIN c ON o.id = c.id",
            "2:14 There is no column between this comma and FROM. Leave the comma out.",
        ),
        (
            "SELECT c.name FRM o JOIN c ON o.id = c.id",
            "2:26 How the lookup table c is used here cannot be read.",
        ),
        (
            "SELECT /*+ LOOKUP('table' = 'c', 'async' = 'false', 'capacity' = '3') */ c.name FROM o"
            " FULL JOIN c ON o.id = c.id",
            "2:1 " + NOTE,
        ),
    ],
)
def test_a_table_without_a_column_list_is_checked_as_far_as_that_needs_no_columns(
    query: str, mistake: str
) -> None:
    told = check_script(UNLISTED.format("c", "c") + query)
    assert [f"{each.line}:{each.column} {each.message}" for each in told] == [mistake]


def test_columns_of_other_tables_are_checked_beside_one_without_a_column_list() -> None:
    told = found(
        UNLISTED.format("d", "d") + "SELECT c.nam, d.nam FROM o JOIN c ON o.id = c.id JOIN d ON o.id = d.id"
    )
    assert told == ["3:10 The table c has no column 'nam'. Did you mean 'name'?"]


@pytest.mark.work(10)
def test_right_statements_over_tables_without_a_column_list_have_no_mistakes() -> None:
    unlisted = "".join(UNLISTED.format(name, name) for name in ("customers", "weather", "rates"))
    checked = 0
    for where, script in right_statements():
        if where == "golden":
            wrong = [each.message for each in check_script(unlisted + script) if each.is_error]
            assert wrong == [], script
            checked += 1
    assert checked > 200


@pytest.mark.work(10)
def test_no_alias_of_a_right_statement_is_unknown() -> None:
    read = 0
    for where, script in right_statements():
        names = ScriptNames()
        for each in split_statements(script):
            statement = Statement(each.text, lambda _: CUSTOMERS)
            with suppress(QueryError):  # no statement that holds a query
                statement.queries = query_parts(Statement(each.text, lambda _: None))
                assert [f"{where}: {problem}" for problem in names.unknown_aliases(statement)] == []
                names.read(each.text, lambda _: None)
                read += 1
    assert read > 500


def test_a_table_that_is_not_created_is_one_mistake() -> None:
    script = (
        "CREATE TEMPORARY TABLE c (id BIGINT) WITH ('connector' = 'memry');\n"
        "SELECT /*+ LOOKUP('table' = 'c') */ o.id FROM o JOIN c ON o.id = c.id;\n"
        "CREATE TEMPORARY TABLE d (id BIGINT, ) WITH ('connector' = 'memory');\n"
        "SELECT /*+ LOOKUP('table' = 'd') */ o.id FROM o JOIN d ON o.id = d.id;\n"
        "CREATE TEMPORARY TABLE c (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]');\n"
        "SELECT /*+ LOOKUP('table' = 'x') */ o.id FROM o JOIN c ON o.id = c.id;\n"
    )
    assert [each.line for each in check_script(script)] == [1, 3, 6]
    told = [what for _, what in dry_run_results(split_statements(script))]
    assert told[1] == "lookups unknown: c is not created"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT c.name FROM ${db}.o o LEFT JOIN c ON o.id = c.id",
        "SELECT c.name FROM o${suffix} o LEFT JOIN c ON o.id = c.id",
        "SELECT /*+ LOOKUP('table' = 'c') */ c.name FROM ${db}.o o LEFT JOIN c ON o.id = c.id",
        "SELECT ${columns} FROM o JOIN c ON o.id = c.id ${where}",
    ],
)
def test_what_a_variable_of_spark_hides_is_no_mistake(query: str) -> None:
    assert found(query) == []


def test_a_hint_beside_a_variable_is_checked() -> None:
    [mistake] = found(
        "SELECT /*+ LOOKUP('table' = 'c', 'capacty' = '2') */ 1 FROM ${db}.o JOIN c ON o.id = c.id"
    )
    assert "Did you mean 'capacity'?" in mistake


def test_a_key_whose_columns_the_source_tells_is_taken() -> None:
    script = "CREATE TEMPORARY TABLE t (PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'sqlite', 'path' = 'x', {});"
    assert not check_script(script.format("'query' = 'SELECT id FROM a'"))
    (finding,) = check_script(script.format("'query' = 'SELECT id FROM a; DROP TABLE a'"))
    assert "'query', line 1, character 17 ('; DROP TABLE a'): a ';' ends a statement" in finding.message


def test_the_tables_of_a_session_are_known(tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(TABLE.format("memory"), encoding="utf-8")
    given = CheckOptions(settings={"spark.lookup.init": str(file)})
    good = "SELECT /*+ LOOKUP('table'='c') */ c.name FROM o JOIN c ON o.id = c.id"
    assert not check_script(good, given)
    assert [each.message for each in check_script(good.replace("c.name", "c.nam"), given)] == [
        "The table c has no column 'nam'. Did you mean 'name'?"
    ]
    assert not check_script(file.read_text(encoding="utf-8"), given), "its tables are not created twice"


def test_a_mistake_in_the_tables_of_a_session_is_found_once_and_shows_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(TABLE.format("postgres', 'password' = 'hunter2").replace("STRING", "STRNG"))
    given = CheckOptions(settings={"spark.lookup.init": str(file)})
    (finding,) = check_script("SELECT c.name FROM o JOIN c ON o.id = c.id; SELECT * FROM c", given)
    assert finding.is_error
    assert finding.message.startswith(
        f"lookup.init: {file}, line 1, column 43: Column 'name': The type is missing"
    )
    assert "hunter2" not in finding.message
    file.unlink()
    (finding,) = check_script("SELECT c.name FROM o JOIN c ON o.id = c.id", given)
    assert finding.message.startswith(f"lookup.init: There is no file '{file}'")
