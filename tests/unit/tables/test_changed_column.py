"""A column that tells changes: which one it may be, and over which connectors."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lookup_hints.errors import OptionError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.changed_column_and_versions import changed_column_of
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.tables.catalog import build_connector

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("Updated_At", TIMESTAMP),
        ("local", TIMESTAMP_NTZ),
        ("day", pa.date32()),
        ("version", pa.int32()),
        ("price", pa.decimal128(10, 2)),
    ]
)


def table(schema: pa.Schema = SCHEMA, connector: str = "memory", **options: str) -> LookupTable:
    given = {f"lookup.cache.{key.replace('_', '-')}": text for key, text in options.items()}
    own = {
        "memory": {"rows": "[]"},
        "http": {"url": "http://localhost/{id}"},
        "redis": {"url": "redis://h", "key": "people:{id}"},
    }
    return LookupTable("people", schema, ("id",), {"connector": connector, **own[connector], **given})


@pytest.mark.parametrize("name", ["Updated_At", "local", "day", "version", "id"])
def test_it_is_a_time_a_day_or_a_number(name: str) -> None:
    found = changed_column_of(build_connector(table(changed_column=name, check_interval="1 s")).table)
    assert found == SCHEMA.field(name)


def test_case_matters_only_where_two_columns_differ_in_it_alone() -> None:
    assert changed_column_of(table(changed_column="UPDATED_AT")) == SCHEMA.field("Updated_At")
    both = pa.schema([("V", pa.int64()), ("v", pa.int32())])
    assert changed_column_of(LookupTable("t", both, options={"lookup.cache.changed-column": "v"})) == both[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"changed_column": "updated_a"},
            "table people: 'lookup.cache.changed-column' is 'updated_a', which is no column of it."
            " Did you mean 'Updated_At'?",
        ),
        (
            {"changed_column": "name"},
            "table people: 'lookup.cache.changed-column' is 'name', which is STRING."
            " Name a TIMESTAMP, TIMESTAMP_NTZ or DATE of the last change, or a number that counts changes.",
        ),
        (
            {"changed_column": "price"},
            "table people: 'lookup.cache.changed-column' is 'price', which is DECIMAL(10,2).",
        ),
        (
            {"check_interval": "1 s"},
            "table people: 'lookup.cache.check-interval' has no effect without 'lookup.cache.changed-column'."
            " Name the column that grows with each change of a row, or leave it out.",
        ),
        (
            {"changed_column": "version", "check_interval": "0 s"},
            "table people: 'lookup.cache.check-interval' cannot be '0 s': it must be at least 1 ms.",
        ),
    ],
)
def test_what_cannot_tell_changes_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        build_connector(table(**options))
    assert said in " ".join(str(caught.value).split())


@pytest.mark.parametrize("connector", ["http", "redis"])
def test_a_connector_that_cannot_tell_changes_is_named(connector: str) -> None:
    with pytest.raises(OptionError) as caught:
        build_connector(table(SCHEMA, connector, changed_column="version"))
    assert (
        f"'lookup.cache.changed-column' has no effect: connector '{connector}' cannot tell what has changed."
        " Leave it out; 'lookup.partial-cache.expire-after-write' says how old a row may be."
    ) in " ".join(str(caught.value).split())


def test_a_table_whose_columns_are_not_known_yet_is_looked_at_later() -> None:
    build_connector(table(pa.schema([("id", pa.int64())]), changed_column="id"))
    unknown = LookupTable("people", pa.schema([]), options=table(changed_column="nothing").options)
    build_connector(unknown)
