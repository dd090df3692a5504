"""Which columns say when rows hold, and what is wrong with others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lookup_hints.errors import OptionError
from lookup_hints.spi import LookupTable
from lookup_hints.spi.arrow_types import TIMESTAMP
from lookup_hints.spi.changed_column_and_versions import versions_of

SCHEMA = pa.schema([("id", pa.int64()), ("Since", TIMESTAMP), ("until", TIMESTAMP), ("name", pa.string())])
FROM, TO, KNOWN = "lookup.valid-from", "lookup.valid-to", "lookup.known-from"


def table(options: dict[str, str], key: tuple[str, ...] = ()) -> LookupTable:
    return LookupTable("t", SCHEMA, key, {"connector": "memory", **options})


def test_names_ignore_case() -> None:
    found = versions_of(table({FROM: "since", TO: "UNTIL"}))
    assert found is not None
    assert found.until is not None
    assert (found.since.name, found.until.name) == ("Since", "until")
    assert versions_of(table({})) is None


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({TO: "until"}, (), "'lookup.valid-to' needs 'lookup.valid-from'"),
        (
            {FROM: "sinse"},
            ("id",),
            "'lookup.valid-from' is 'sinse', which is no column of it. Did you mean 'Since'?",
        ),
        ({FROM: "name"}, ("id",), "'lookup.valid-from' is 'name', which is STRING. Name a TIMESTAMP"),
        (
            {FROM: "Since", TO: "id"},
            (),
            "'Since' is TIMESTAMP_LTZ, and 'lookup.valid-to' 'id' is BIGINT. Declare both",
        ),
        (
            {FROM: "Since"},
            (),
            "needs a PRIMARY KEY, which says which rows are versions of one. Declare PRIMARY KEY",
        ),
        ({KNOWN: "until"}, ("id",), "'lookup.known-from' needs 'lookup.valid-from'. Name the column"),
        ({FROM: "Since", KNOWN: "nown"}, ("id",), "'lookup.known-from' is 'nown', which is no column of it."),
        (
            {FROM: "Since", KNOWN: "name"},
            ("id",),
            "'lookup.known-from' is 'name', which is STRING. Name a TIMESTAMP",
        ),
        (
            {FROM: "Since", KNOWN: "id"},
            ("id",),
            "'Since' is TIMESTAMP_LTZ, and 'lookup.known-from' 'id' is BIGINT. Declare both with one type.",
        ),
        (
            {FROM: "Since", TO: "until", KNOWN: "until"},
            ("Since", "until"),
            "'lookup.known-from' needs a PRIMARY KEY, which says which rows are versions of one. Declare"
            " PRIMARY KEY (..., Since, until) NOT ENFORCED.",
        ),
        ({FROM: "Since"}, ("Since",), "or name the end of a row by 'lookup.valid-to'"),
    ],
)
def test_what_cannot_tell_versions_is_refused_with_what_to_write(
    options: dict[str, str], key: tuple[str, ...], message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        versions_of(table(options, key))
    assert message in str(caught.value)
