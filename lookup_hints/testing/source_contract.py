"""The contract of a connector whose source the tests can fill, as a pytest class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import Connector, NullSafeLookup, OrderedLookup, Scan
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable, PlacedRows
from lookup_hints.spi.secrets import known_secrets
from lookup_hints.testing.contract import askers, placed_answers, skip
from lookup_hints.testing.row_checks import check_rows_by_order

CONTRACT_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("active", pa.bool_()),
    ]
)
"""The columns of the contract's tables. No column is unique: `id` and `region` are asked by."""

_ROWS = [
    (1, "eu", "one", 1.5, True),
    (1, "us", "one again", None, False),
    (1, "us", "one again", None, False),
    (2, "eu", "two", -0.25, None),
    (3, None, None, None, True),
    (-(2**63), "eu", "least", 0.0, True),
    (2**63 - 1, "eu", "greatest", 1e300, True),
]
_TEXTS = [
    "",
    " ",
    "it's",
    'double "quotes"',
    "back\\slash",
    "100%_",
    "'; DROP TABLE customers; --",
    "{braces} $1 :name ?",
    "line\nbreak\ttab",
    "Grüße, 世界 👋",
    "e\u0301",  # as two code points, next to the one it looks like:
    "\u00e9",
    "UPPER",
    "upper",
    "trailing ",
    "trailing",
]
_ABSENT = "no such key"
_NULLABLE = ("id", "region")
_KEYS_WITH_NULLS: tuple[tuple[dict[str, list[Any]], tuple[str, ...]], ...] = (
    ({}, ("region",)),
    ({}, ("id", "region")),
    ({"id": [3, 1, 77]}, ("region",)),
    ({"region": ["us", "eu"]}, ("id",)),
)


class ContractSource(Protocol):
    """The source under test, for the tests of the contract."""

    def filled(self, rows: pa.Table) -> LookupTable:
        """A table whose source holds exactly ``rows`` (of ``CONTRACT_SCHEMA``), without unique keys."""

    def missing(self) -> LookupTable:
        """A table (of ``CONTRACT_SCHEMA``) that the source does not have."""


class SourceContract:
    """The contract over rows that the tests choose: odd texts, duplicates, ten thousand keys.

    Beside ``ConnectorContract``. Name the connector, and define the fixture ``source``: its columns are
    ``CONTRACT_SCHEMA``.
    A connector with both abilities is asked in both ways, and must answer both alike.
    """

    connector_type: ClassVar[type[Connector]]
    """The class under test."""

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts of the table's options that may show nowhere."""

    def connector(self, table: LookupTable) -> Connector:
        """A checked connector, as the engine builds it."""
        connector = self.connector_type(table)
        connector.check()
        return connector

    def test_an_answer_has_the_asked_columns_and_their_types(self, source: ContractSource) -> None:
        request = _make_request({"id": [1, 2]}, CONTRACT_SCHEMA.names)
        for answer in _answers_of_each_ability(
            self.connector(source.filled(_contract_table(_ROWS))), request
        ):
            assert _rows_of(answer).schema.names == request.schema.names
            _rows_of(answer).cast(request.schema)

    def test_every_row_of_a_key_comes_as_often_as_it_is_there(self, source: ContractSource) -> None:
        rows = self.asked(source, _ROWS, {"id": [1]})
        assert rows == Counter(row for row in _ROWS if row[0] == 1)

    def test_an_absent_key_has_no_rows_and_takes_none_away(self, source: ContractSource) -> None:
        rows = self.asked(source, _ROWS, {"id": [77, 2, 88]})
        assert rows == Counter(row for row in _ROWS if row[0] == 2)

    def test_only_absent_keys_give_an_empty_answer(self, source: ContractSource) -> None:
        assert self.asked(source, _ROWS, {"id": [77]}) == Counter()

    def test_the_least_and_the_greatest_integer_are_found(self, source: ContractSource) -> None:
        rows = self.asked(source, _ROWS, {"id": [-(2**63), 2**63 - 1]})
        assert rows == Counter(_ROWS[-2:])

    def test_several_key_columns_belong_together(self, source: ContractSource) -> None:
        rows = self.asked(source, _ROWS, {"id": [1, 2], "region": ["us", "eu"]})
        assert rows == Counter(row for row in _ROWS if row[:2] in {(1, "us"), (2, "eu")})

    def test_key_columns_may_come_in_any_order(self, source: ContractSource) -> None:
        rows = self.asked(source, _ROWS, {"region": ["us", "eu"], "id": [1, 2]})
        assert rows == Counter(row for row in _ROWS if row[:2] in {(1, "us"), (2, "eu")})

    def test_a_null_in_a_row_matches_no_key(self, source: ContractSource) -> None:
        rows = self.asked(source, _ROWS, {"region": ["eu", "NULL", "None", ""]})
        assert rows == Counter(row for row in _ROWS if row[1] == "eu")

    def test_rows_whose_key_is_null_are_found(self, source: ContractSource) -> None:
        rows = [*_ROWS, (None, "eu", "nobody", 2.5, None), (None, None, "nothing", None, False), _ROWS[4]]
        connector = self.connector(source.filled(_contract_table(rows)))
        if not isinstance(connector, NullSafeLookup) or not all(map(connector.can_ask_null, _NULLABLE)):
            skip(f"the connector cannot be asked for NULL by {' and '.join(_NULLABLE)}")
        for keys, nulls in _KEYS_WITH_NULLS:
            request = _make_request(keys or {"id": [1]}, CONTRACT_SCHEMA.names)
            request = replace(request, keys=request.keys.select([*keys]), nulls=nulls)
            wanted = {**keys, **{name: [None] for name in nulls}}
            places = {CONTRACT_SCHEMA.get_field_index(name): values for name, values in wanted.items()}
            meeting = [row for row in rows if all(row[place] in values for place, values in places.items())]
            for answer in _answers_of_each_ability(connector, request):
                found = _rows_as_tuples(_rows_of(answer).cast(request.schema))
                assert Counter(found) == Counter(meeting), f"{keys}, and NULL in {nulls}"

    def test_only_the_asked_columns_come(self, source: ContractSource) -> None:
        request = _make_request({"id": [2]}, ["id", "amount"])
        for answer in _answers_of_each_ability(
            self.connector(source.filled(_contract_table(_ROWS))), request
        ):
            assert _rows_of(answer).to_pylist() == [{"id": 2, "amount": -0.25}]

    def test_ten_thousand_keys_fit_into_one_request(self, source: ContractSource) -> None:
        rows = [(key, "eu", f"name {key}", float(key), True) for key in range(0, 12_000, 2)]
        found = self.asked(source, rows, {"id": list(range(10_000))})
        assert found == Counter(row for row in rows if row[0] < 10_000)

    def test_ten_thousand_keys_of_two_columns_fit_into_one_request(self, source: ContractSource) -> None:
        rows = [(key, "eu", f"name {key}", float(key), True) for key in range(0, 12_000, 2)]
        keys: dict[str, list[Any]] = {"id": list(range(10_000)), "region": ["eu", "us"] * 5_000}
        assert self.asked(source, rows, keys) == Counter(row for row in rows if row[0] < 10_000)

    def test_random_rows_by_order_are_those_that_the_worker_would_choose(
        self, source: ContractSource
    ) -> None:
        chance = Random(1)  # noqa: S311  the same rows each time
        ids = [None, *chance.sample(range(-50, 50), 9)]
        rows = [
            (chance.choice(ids), chance.choice(["eu", "us", None]), str(number), None, None)
            for number in range(40)
        ]
        connector = self.connector(source.filled(_contract_table(rows)))
        if not isinstance(connector, OrderedLookup):
            skip("the connector gives all rows of a key")
        request = _make_request({"region": ["us", "eu", "none"]}, CONTRACT_SCHEMA.names)
        check_rows_by_order(connector, request, placed_answers)

    def test_texts_are_keys_whatever_they_hold(self, source: ContractSource) -> None:
        rows = [(number, text, text, None, None) for number, text in enumerate(_TEXTS)]
        assert self.asked(source, rows, {"region": [*_TEXTS, _ABSENT]}) == Counter(rows)

    def test_each_text_finds_itself_alone(self, source: ContractSource) -> None:
        rows = [(number, text, text, None, None) for number, text in enumerate(_TEXTS)]
        connector = self.connector(source.filled(_contract_table(rows)))
        _need_keys(connector, ["region"])
        for row in rows:
            assert _count_found(
                connector, _make_request({"region": [row[1]]}, CONTRACT_SCHEMA.names)
            ) == Counter([row])

    def test_texts_are_keys_among_several_columns(self, source: ContractSource) -> None:
        rows = [(number, text, text, None, None) for number, text in enumerate(_TEXTS)]
        keys: dict[str, list[Any]] = {"id": list(range(len(_TEXTS))), "region": _TEXTS}
        assert self.asked(source, rows, keys) == Counter(rows)

    def test_a_missing_table_is_a_permanent_error(self, source: ContractSource) -> None:
        error = _failure_of_each_ability(self.connector_type(source.missing()))
        assert error.permanent
        assert source.missing().name in str(error)

    def test_secrets_show_nowhere(self, source: ContractSource) -> None:
        connector = self.connector_type(source.missing())
        shown = [
            repr(connector),
            str(connector),
            repr(connector.table),
            str(_failure_of_each_ability(connector)),
        ]
        assert not [(secret, text) for secret in self.secrets for text in shown if secret in text]

    def test_it_knows_its_secrets(self, source: ContractSource) -> None:
        known = " ".join(known_secrets(self.connector(source.filled(_contract_table(_ROWS)))))
        assert not [secret for secret in self.secrets if secret not in known]

    def test_a_scan_gives_every_row(self, source: ContractSource) -> None:
        connector = self.connector(source.filled(_contract_table(_ROWS)))
        if not isinstance(connector, Scan):
            skip("the connector cannot read the whole table")
        batches = list(connector.scan(CONTRACT_SCHEMA))
        assert _count_rows(pa.Table.from_batches(batches, CONTRACT_SCHEMA)) == Counter(_ROWS)

    def test_a_scan_gives_only_the_asked_columns(self, source: ContractSource) -> None:
        connector = self.connector(source.filled(_contract_table(_ROWS)))
        if not isinstance(connector, Scan):
            skip("the connector cannot read the whole table")
        schema = pa.schema([CONTRACT_SCHEMA.field("name"), CONTRACT_SCHEMA.field("active")])
        batches = list(connector.scan(schema))
        assert _count_rows(pa.Table.from_batches(batches, schema)) == Counter(
            (row[2], row[4]) for row in _ROWS
        )

    def test_the_partitions_of_a_scan_hold_each_row_once(self, source: ContractSource) -> None:
        table = source.filled(_contract_table(_ROWS))
        connector = self.connector(table)
        if not isinstance(connector, Scan):
            skip("the connector cannot read the whole table")
        parts = connector.partitions(4)
        assert 1 <= len(parts) <= 4
        assert len(connector.partitions(1)) == 1
        if len(parts) == 1:
            return
        batches = [batch for part in parts for batch in connector.scan_partition(CONTRACT_SCHEMA, part)]
        assert _count_rows(pa.Table.from_batches(batches, CONTRACT_SCHEMA)) == Counter(_ROWS)

    def asked(self, source: ContractSource, rows: list[Any], keys: dict[str, list[Any]]) -> Counter[Any]:
        """The rows of ``keys`` in a source that holds ``rows``, counted."""
        connector = self.connector(source.filled(_contract_table(rows)))
        _need_keys(connector, keys)
        return _count_found(connector, _make_request(keys, CONTRACT_SCHEMA.names))


# --- asking in either way -------------------------------------------------------------------------


def _answers_of_each_ability(connector: Connector, request: LookupRequest) -> list[Answer]:
    return [answer for ask in askers(connector) for parts in ask([request]) for _, answer in parts]


def _failure_of_each_ability(connector: Connector) -> ConnectorError:
    """The error of a lookup, after checking that each ability raises one equally permanent."""
    request = _make_request({"id": [1]}, CONTRACT_SCHEMA.names)
    errors = [_error_raised_by(partial(ask, [request])) for ask in askers(connector)]
    assert len({error.permanent for error in errors}) == 1
    return errors[-1]


def _error_raised_by(action: Callable[[], object]) -> ConnectorError:
    try:
        action()
    except ConnectorError as error:
        return error
    raise AssertionError("no ConnectorError was raised")


# --- requests and rows ----------------------------------------------------------------------------


def _make_request(keys: dict[str, list[Any]], columns: Iterable[str]) -> LookupRequest:
    key_schema = pa.schema([CONTRACT_SCHEMA.field(name) for name in keys])
    wanted = {*keys, *columns}
    schema = pa.schema([field for field in CONTRACT_SCHEMA if field.name in wanted])
    return LookupRequest(pa.table(keys, schema=key_schema), schema, timeout=60.0)


def _contract_table(rows: list[Any]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=CONTRACT_SCHEMA)


def _count_found(connector: Connector, request: LookupRequest) -> Counter[Any]:
    counts = [
        sum((_count_matching(answer, part) for part, answer in parts), Counter[Any]())
        for ask in askers(connector)
        for parts in ask([request])
    ]
    assert all(count == counts[0] for count in counts), "the two abilities answer differently"
    return counts[0]


def _count_matching(answer: Answer, request: LookupRequest) -> Counter[Any]:
    """The rows of ``answer`` that belong to a key, counted; rows of other keys are allowed."""
    rows = _rows_of(answer).cast(request.schema)
    if isinstance(answer, PlacedRows) and answer.positions is not None:
        assert len(answer.positions) == rows.num_rows
        assert all(0 <= position < request.keys.num_rows for position in answer.positions.to_pylist())
        return _count_rows(rows)
    keys = set(_rows_as_tuples(request.keys))
    of_a_key = [key in keys for key in _rows_as_tuples(rows.select(request.key_columns))]
    return _count_rows(rows.filter(pa.array(of_a_key, pa.bool_())))


def _rows_of(answer: Answer) -> pa.Table:
    return answer.rows if isinstance(answer, PlacedRows) else answer


def _count_rows(rows: pa.Table) -> Counter[Any]:
    return Counter(_rows_as_tuples(rows))


def _rows_as_tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _need_keys(connector: Connector, names: Iterable[str]) -> None:
    if not connector.required_keys() <= set(names) <= connector.key_columns():
        skip(f"the connector cannot be asked by {', '.join(names)}")
