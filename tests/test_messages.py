"""The texts of messages that are made of what the user gave: short, complete, and said once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest

import lookup_hints
from lookup_hints.dataframe import read_options
from lookup_hints.ddl import shown_statement
from lookup_hints.errors import ConnectorError, OptionError, QueryError
from lookup_hints.hints.validate import lookup_hints as hints_of
from lookup_hints.model import LookupTable
from lookup_hints.options import STREAM_OPTIONS
from lookup_hints.runtime.masking import without_secrets
from lookup_hints.spi import TEXT, Option, SyncRowLookup


def said(*, hint: str) -> str:
    """What is wrong with a LOOKUP hint, without the place."""
    with pytest.raises(QueryError) as raised:
        hints_of(f"SELECT /*+ LOOKUP('table' = 'c', {hint}) */ 1")
    return " ".join(str(problem.message + " " + problem.tip).strip() for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("'on-error' = 'sometimes'", "'on-error' cannot be 'sometimes': it must be one of fail, null, skip."),
        (
            "'on-error' = 'fial'",
            "'on-error' cannot be 'fial': it must be one of fail, null, skip. Did you mean 'fail'?",
        ),
        ("'timeout' = '-1'", "'timeout' cannot be '-1': it must be at least 1 ms."),
        ("'timeout' = '-1 s'", "'timeout' cannot be '-1 s': it must be at least 1 ms."),
        (
            "'timeout' = '1.5s'",
            "'timeout' cannot be '1.5s': write a whole number and a unit, as in '10s', '500 ms', '3 min' or '1 h'.",
        ),
    ],
)
def test_a_bad_value_is_told_once_with_what_is_allowed(hint: str, told: str) -> None:
    assert said(hint=hint) == told


def test_a_negative_timeout_of_python_is_too_short() -> None:
    with pytest.raises(OptionError) as raised:
        read_options("lookup_join", {"timeout": -1, "on-error": "ignore"})
    assert str(raised.value) == (
        "lookup_join: 'timeout' cannot be '-1000 ms': it must be at least 1 ms.\n"
        "lookup_join: 'on_error' cannot be 'ignore': it must be one of fail, null, skip."
    )


def test_a_negative_time_that_may_be_zero_says_so() -> None:
    trigger = next(option for option in STREAM_OPTIONS if option.key == "trigger")
    with pytest.raises(ValueError, match=r"^it must not be negative$"):
        trigger.type.parse("processing-time -1 s")
    with pytest.raises(
        ValueError, match=r"^it must be one of processing-time <duration> .*continuous <duration>$"
    ):
        trigger.type.parse("sometimes")


class _Guarded(SyncRowLookup):
    OPTIONS = (Option("token", TEXT, "Who we are.", secret=True),)

    def lookup_row(self, request: object) -> list[object]:
        """Nothing is asked."""
        return []


def test_a_reference_that_names_nothing_says_where_and_how_to_set_it() -> None:
    table = LookupTable(
        "t", pa.schema([("id", pa.int64())]), options={"connector": "x", "token": "${env:NOT_SET_HERE}"}
    )

    def read() -> Iterator[object]:
        yield table.read(_Guarded.OPTIONS)

    with pytest.raises(OptionError) as raised:
        list(without_secrets(read(), _Guarded(table)))
    assert str(raised.value) == (
        f"The environment variable 'NOT_SET_HERE' cannot be read on {socket.gethostname()}, for the option 'token'."
        " Set it before Python starts there; for executors by the configuration"
        " spark.executorEnv.NOT_SET_HERE."
    )


def test_the_connector_is_shown_and_other_values_are_not() -> None:
    text = "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'postgres', 'url' = 'a://u:p@h')"
    assert shown_statement(text) == (
        "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'postgres', 'url' = ***********)"
    )
    for odd in ("'connector' = 'a b'", "'connector' = 'x' 'y'", "'x' = 'connector' = 'y'"):
        assert "***" in shown_statement(f"CREATE TEMPORARY TABLE t (id INT) WITH ({odd}, 'connector' = 'z')")


def test_the_package_shows_its_public_names_alone() -> None:
    shown = [name for name in dir(lookup_hints) if not name.startswith("__")]
    assert shown == sorted(lookup_hints.__all__)
    assert "enable" in shown
    assert "__version__" in dir(lookup_hints)
    assert ConnectorError.__name__ not in shown
