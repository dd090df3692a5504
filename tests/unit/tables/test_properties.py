"""What must hold for every CREATE, however broken: it fails politely, and keeps its secrets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lookup_hints.errors import DdlError
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables import registry
from lookup_hints.tables.ddl import parse_ddl

SECRET = "hunter2"
STATEMENT = (
    "CREATE OR REPLACE TEMPORARY TABLE t (id BIGINT COMMENT 'the key', `a b` ARRAY<STRUCT<x: DEC(4,1)>>,\n"
    "PRIMARY KEY (id) NOT ENFORCED) COMMENT 'all' WITH ('connector' = 'x', -- the source\n"
    f"'password' = '{SECRET}', 'url' = 'a://u:{SECRET}@b')"
)
JUNK = st.sampled_from(
    ["", "'", '"', "`", "(", ")", ",", "=", "<", ">", "--", "/*", "*/", ";", "\\", "5", "AS", "é"]
)


@st.composite
def broken_statements(draw: st.DrawFn) -> str:
    """The statement with up to three places damaged, none of them inside a secret."""
    text = STATEMENT
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        damaged = text[:at] + draw(JUNK) + text[at + draw(st.integers(0, 4)) :]
        text = damaged if damaged.count(SECRET) == 2 else text
    return text


@pytest.fixture(scope="module", autouse=True)
def installed_once() -> Iterator[None]:
    """Each example names a connector that is not there, and to see what is installed takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "entry_points", cache(entry_points))
        yield


@pytest.mark.work(4)
@settings(deadline=None, max_examples=500)
@given(broken_statements())
@example(STATEMENT.replace("= 'hunter2", "= hunter2"))
@example(STATEMENT.replace("WITH", "WIHT"))
@example(STATEMENT.replace("CREATE", "CRAETE"))
@example(STATEMENT.replace("TABLE", "TABEL").replace("'connector'", "'connector"))
@example(f"EXPLAIN {STATEMENT}")
@example(STATEMENT.replace("TABLE t", "TABLE' t").replace("hunter2', 'url", "hunter2, 'url"))
@example(STATEMENT.replace("\nPR", "`").replace("hunter2', 'url", "hunter2`, 'url"))
def test_a_broken_statement_is_a_ddl_error_that_shows_no_secret(text: str) -> None:
    try:
        statement = parse_ddl(SqlText(text))
    except DdlError as error:
        shown = str(error) + repr(error)
    else:
        shown = repr(statement)
    assert SECRET not in shown
