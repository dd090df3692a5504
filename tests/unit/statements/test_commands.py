"""SET of our options and EXPLAIN, found whatever comments stand around and inside them."""

from __future__ import annotations

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import explained, own_setting

TIMEOUT = "table.exec.async-lookup.timeout"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"SET {TIMEOUT} = 100 s", "100 s"),
        (f"set '{TIMEOUT}' = '100 s';", "100 s"),
        (f'SET "{TIMEOUT}"="100 s"', "100 s"),
        (f"SET `{TIMEOUT}`=100 s ; ", "100 s"),
        (f"-- c\nSET {TIMEOUT} = 100 s", "100 s"),
        (f"SET {TIMEOUT} = 100 s -- why", "100 s"),
        (f"/* a */ SET/* b */{TIMEOUT}/* c */=/* d */100 s/* e */;", "100 s"),
    ],
)
def test_a_setting_is_read_without_comments_and_quotes(text: str, value: str) -> None:
    assert own_setting(SqlText(text)) == (TIMEOUT, value)


def test_the_prefix_spark_is_kept() -> None:
    assert own_setting(SqlText("SET spark.lookup.transport = arrow")) == ("spark.lookup.transport", "arrow")


@pytest.mark.parametrize(
    "text",
    [
        "SET spark.sql.shuffle.partitions = 3",
        "SET my.lookup.transport = 1",
        "SET lookup = 1",
        "SET lookup.transport",
        "SET",
        "SET TIME ZONE LOCAL",
        "-- SET lookup.transport = arrow",
        "SELECT 'SET lookup.nothing = 1'",
        "UPDATE t SET lookup.nothing = 1",
        "",
    ],
)
def test_other_statements_are_no_settings_of_ours(text: str) -> None:
    assert own_setting(SqlText(text)) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "SET table.exec.async-lookup.buffer-capasity = 1",
            "line 1, column 5: No session option is called 'table.exec.async-lookup.buffer-capasity'."
            " Did you mean 'table.exec.async-lookup.buffer-capacity'?\n"
            "SET table.exec.async-lookup.buffer-capasity = 1\n"
            "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            "SET spark.lookup.transprot = auto",
            "line 1, column 5: No session option is called 'spark.lookup.transprot'."
            " Did you mean 'spark.lookup.transport'?\n"
            "SET spark.lookup.transprot = auto\n"
            "    ^^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            "SET Lookup.Transport = auto",
            "line 1, column 5: No session option is called 'Lookup.Transport'. Did you mean 'lookup.transport'?\n"
            "SET Lookup.Transport = auto\n"
            "    ^^^^^^^^^^^^^^^^",
        ),
        (
            "SET lookup.no-such-option = 1",
            "line 1, column 5: No session option is called 'lookup.no-such-option'."
            " Known: lookup.access, lookup.on-scan, lookup.on-event-time, lookup.scan.max-rows, lookup.dead-letter.path, lookup.dead-letter.format, lookup.dead-letter.then,"
            " lookup.max-errors, lookup.max-error-ratio, lookup.max-requests, lookup.admission, lookup.init, lookup.on-invalid-hint, lookup.transport,"
            " lookup.log-keys, lookup.rebalance-order-by, lookup.cluster-tasks, lookup.stream.checkpoint, lookup.stream.trigger, lookup.stream.output-mode, lookup.stream.name.\n"
            "SET lookup.no-such-option = 1\n"
            "    ^^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            f"SET {TIMEOUT} =\n  3m -- minutes",
            f"line 2, column 3: '{TIMEOUT}' cannot be '3m': 'm' is not a unit; use d, h, min, s, ms, µs or ns;"
            " write 'min' for minutes.\n"
            "  3m -- minutes\n"
            "  ^^",
        ),
        (
            "SET 'lookup.rebalance-order-by' = 'many';",
            "line 1, column 35: 'lookup.rebalance-order-by' cannot be 'many': write true or false.\n"
            "SET 'lookup.rebalance-order-by' = 'many';\n"
            "                                  ^^^^^^",
        ),
        (
            "SET lookup.rebalance-order-by =",
            "line 1, column 32: 'lookup.rebalance-order-by' cannot be '': write true or false.\n"
            "SET lookup.rebalance-order-by =\n"
            "                               ^",
        ),
    ],
)
def test_a_wrong_key_or_value_is_refused_at_its_place(text: str, error: str) -> None:
    with pytest.raises(OptionError) as caught:
        own_setting(SqlText(text))
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("text", "inner", "mode"),
    [
        ("EXPLAIN SELECT 1", "        SELECT 1", "formatted"),
        ("explain extended SELECT 1", "                 SELECT 1", "extended"),
        ("EXPLAIN(SELECT 1)", "       (SELECT 1)", "formatted"),
        ("-- c\nEXPLAIN COST\nSELECT 1", "    \n            \nSELECT 1", "cost"),
        ("/* c */ EXPLAIN SELECT 1", "                SELECT 1", "formatted"),
        ("EXPLAIN/* c */ CODEGEN SELECT 1", "                       SELECT 1", "codegen"),
        ("EXPLAIN/* c */SELECT 1", "       /* c */SELECT 1", "formatted"),
    ],
)
def test_what_is_explained_keeps_its_place(text: str, inner: str, mode: str) -> None:
    assert explained(SqlText(text)) == (inner, mode)
    assert len(inner) == len(text)


@pytest.mark.parametrize("text", ["SELECT 1", "-- EXPLAIN\nSELECT 1", "`EXPLAIN` SELECT 1", "EXPLAINS", ""])
def test_other_statements_explain_nothing(text: str) -> None:
    assert explained(SqlText(text)) is None
