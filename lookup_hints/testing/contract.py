"""The contract that every connector keeps, as a pytest class.

Public as ``lookup_hints.testing.ConnectorContract``.
"""

from __future__ import annotations

import asyncio
import operator
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import Placed, place
from lookup_hints.errors import ConnectorError
from lookup_hints.pyspark_internals import cloudpickled
from lookup_hints.spi import (
    AsyncLookup,
    AsyncRowLookup,
    ChangesRequest,
    Connector,
    Filter,
    FilteredScan,
    NearestLookup,
    OrderedLookup,
    ReportsChanges,
    ReportsOutcomes,
    ReportsSchema,
    Scan,
    Statistics,
    SyncLookup,
)
from lookup_hints.spi.changed_column_and_versions import grows
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable, Outcome, Outcomes
from lookup_hints.spi.secrets import known_secrets, masker
from lookup_hints.testing.fake import looked_up
from lookup_hints.testing.nearest_checks import check_nearest_rows
from lookup_hints.testing.row_checks import check_rows_by_order, check_started_rows, row_texts

KeyValues = Mapping[str, Any]
"""The value of each column asked by."""

RowsByKey = list["Counter[str]"]
"""For each key asked its rows, as text and counted."""


# Takes a table and some keys: a currency service cannot be filled with columns of ours. Sources that can be
# filled use `SourceContract`. (docs/decisions/0097)
class ConnectorContract:
    """The contract that the engine relies on. Subclass it, and give keys with their expected rows.

    Name the connector, a few keys that are there and a few that are not, and define a pytest fixture
    ``table`` that gives the ``LookupTable``. The source must not change while a test runs. A connector with
    both abilities is asked in both ways, and must answer both alike.

    Examples:
        >>> class TestRates(ConnectorContract):
        ...     connector_type = Rates
        ...     present = [{"currency": "EUR"}, {"currency": "USD"}]
        ...     absent = [{"currency": "XYZ"}]
        ...
        ...     @pytest.fixture
        ...     def table(self):
        ...         schema = pa.schema({"currency": pa.string(), "rate": pa.float64()})
        ...         return LookupTable("rates", schema, options={"connector": "rates"})
    """

    connector_type: ClassVar[type[Connector]]
    """The class under test."""

    present: ClassVar[Sequence[KeyValues]]
    """Keys that have rows: the value of each column asked by, the same columns in all. At least one."""

    absent: ClassVar[Sequence[KeyValues]]
    """Keys without a row. At least one."""

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts of the table's options that may show nowhere."""

    def connector(self, table: LookupTable) -> Connector:
        """A checked connector, as the engine builds it."""
        table.check(self.connector_type.OPTIONS)
        connector = self.connector_type(table)
        connector.check()
        return connector

    def found(self, table: LookupTable, keys: Sequence[KeyValues], columns: Iterable[str] = ()) -> RowsByKey:
        """The rows of each of ``keys``, with these columns (all by default); the same by each ability."""
        return _same_for_each_ability(
            _found_by_each_ability(self.connector(table), _make_request(table, keys, columns))
        )

    def test_the_columns_of_the_keys_can_be_asked_by(self, table: LookupTable) -> None:
        connector, names = self.connector(table), {*self.present[0]}
        assert all({*key} == names for key in (*self.present, *self.absent)), "keys have the same columns"
        assert names <= {*table.schema.names}
        assert names <= connector.key_columns()
        assert connector.required_keys() <= names

    def test_keys_that_are_there_have_rows_and_others_have_none(self, table: LookupTable) -> None:
        found = self.found(table, [*self.absent, *self.present])
        count = len(self.absent)
        assert [rows.total() for rows in found[:count]] == [0] * count, "keys of `absent` have no rows"
        assert all(found[count:]), "keys of `present` have rows"

    def test_keys_that_are_not_there_give_an_empty_answer(self, table: LookupTable) -> None:
        assert self.found(table, self.absent) == [Counter()] * len(self.absent)

    def test_a_key_has_the_same_rows_alone_and_among_others(self, table: LookupTable) -> None:
        alone = [self.found(table, [key])[0] for key in self.present]
        assert self.found(table, [*self.present, *self.absent])[: len(alone)] == alone

    def test_the_order_of_the_keys_does_not_matter(self, table: LookupTable) -> None:
        keys = [*self.present, *self.absent]
        assert self.found(table, keys[::-1])[::-1] == self.found(table, keys)

    def test_the_order_of_the_key_columns_does_not_matter(self, table: LookupTable) -> None:
        turned = [dict(reversed([*key.items()])) for key in self.present]
        assert self.found(table, turned) == self.found(table, self.present)

    def test_the_same_question_has_the_same_answer_each_time(self, table: LookupTable) -> None:
        request = _make_request(table, [*self.present, *self.absent])
        answers = _found_by_each_ability(self.connector(table), request, times=3)
        assert all(answer == answers[0] for answer in answers)

    def test_columns_can_be_asked_for_one_by_one(self, table: LookupTable) -> None:
        connector, keys = self.connector(table), [*self.present[0]]
        whole = placed_answers(connector, [_make_request(table, self.present[:1])])[0][0].rows
        for name in table.schema.names:
            request = _make_request(table, self.present[:1], [name])
            for (answer,) in placed_answers(connector, [request]):
                part = answer.rows
                assert part.schema.names == request.schema.names
                assert _count_rows(part) == _count_rows(whole.select(part.column_names)), (
                    f"{name} beside {keys}"
                )

    def test_the_key_columns_alone_can_be_asked_for(self, table: LookupTable) -> None:
        rows = [rows.total() for rows in self.found(table, self.present)]
        assert [rows.total() for rows in self.found(table, self.present, self.present[0])] == rows

    def test_it_is_picklable_until_it_is_opened(self, table: LookupTable) -> None:
        connector = self.connector(table)
        try:
            pickled = pickle.dumps(connector)
        except (pickle.PicklingError, AttributeError, TypeError):
            pickled = cloudpickled(connector)
        travelled = pickle.loads(pickled)  # noqa: S301
        found = _same_for_each_ability(_found_by_each_ability(travelled, _make_request(table, self.present)))
        assert found == self.found(table, self.present)

    def test_it_can_be_closed_twice_and_opened_again(self, table: LookupTable) -> None:
        connector, request = self.connector(table), _make_request(table, self.present)
        for _ in range(2):
            assert all(_same_for_each_ability(_found_by_each_ability(connector, request)))
            _close_connector(connector)

    def test_it_can_be_closed_without_having_been_opened(self, table: LookupTable) -> None:
        _close_connector(self.connector(table))

    def test_many_lookups_run_at_once(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, AsyncLookup):
            skip("the connector is asked one request at a time")
        keys = [*self.present, *self.absent]
        requests = [_make_request(table, [key]) for key in keys]
        answers = asyncio.run(_ask_async(connector, requests * 25, at_once=True))
        found = [_count_by_key(_place_parts(parts, connector), parts[0][0]) for parts in answers]
        assert found == [[rows] for rows in self.found(table, keys)] * 25

    def test_a_cancelled_lookup_takes_no_answer_from_the_next(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, AsyncLookup):
            skip("the connector is asked one request at a time")
        first, second = (_make_request(table, [key]) for key in ([*self.present, *self.absent] * 2)[:2])
        alone = _found_by_each_ability(connector, second)[-1]
        assert asyncio.run(_ask_after_cancellations(connector, first, second)) == [alone] * 6

    def test_keys_that_are_started_together_have_the_rows_and_errors_that_they_have_alone(
        self, table: LookupTable
    ) -> None:
        connector = self.connector(table)
        if not isinstance(connector, AsyncRowLookup) or connector.keys_per_request() != 1:
            skip("the connector is not asked key by key")
        if not check_started_rows(connector, _make_request(table, [*self.present, *self.absent] * 5)):
            skip("the connector starts no keys together")

    def test_each_input_row_gets_the_rows_of_its_key_and_no_null_is_asked(self, table: LookupTable) -> None:
        by, null = [*self.present[0]], [dict.fromkeys(self.present[0])]
        inputs = [*self.present, *null, *self.absent, *self.present, *null]
        expected = self.found(table, [*self.present, *self.absent])
        there, missing = expected[: len(self.present)], expected[len(self.present) :]
        for asynchronous in (False, True):
            connector = self.connector(table)
            if not isinstance(connector, AsyncLookup if asynchronous else SyncLookup):
                continue
            rows = [tuple(key[name] for name in by) for key in inputs]
            found = looked_up(connector, rows, by=by, waits=True, asynchronous=asynchronous)
            given = [Counter(map(repr, each or ())) for each in found.rows]
            if isinstance(connector, ReportsOutcomes):  # it may have told a row of each miss
                missing = given[len(there) + 1 :][: len(missing)]
            assert given == [*there, Counter(), *missing, *there, Counter()]
            assert found.metrics.keys == len(self.present) + len(self.absent), "each distinct key once"
            assert found.metrics.null_key_rows == 2
            has_rows = {
                tuple(key[name] for name in by): is_there
                for keys, is_there in ((self.present, True), (self.absent, False))
                for key in keys
            }
            assert {key: count > 0 for key, count in found.cached.items()} == has_rows, "a cache keeps both"

    def test_it_shows_none_of_its_secrets_and_knows_them(self, table: LookupTable) -> None:
        connector = self.connector(table)
        shown = [repr(connector), str(connector), repr(connector.table)]
        assert not [(secret, text) for secret in self.secrets for text in shown if secret in text]
        mask = masker(known_secrets(connector))
        assert not [secret for secret in self.secrets if secret in mask(f"refused as {secret} today")]

    def test_a_scan_gives_the_rows_that_lookups_give(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, Scan):
            skip("the connector cannot read the whole table")
        columns = [field for field in table.schema if field.name not in self.present[0]][:1]
        for schema in (table.schema, pa.schema([*(table.schema.field(name) for name in self.present[0])])):
            rows = pa.Table.from_batches(connector.scan(schema), schema)
            looked = self.found(table, self.present, schema.names)
            assert sum(looked, Counter()) <= _count_rows(rows)
        if columns:
            assert (
                pa.Table.from_batches(connector.scan(pa.schema(columns)), pa.schema(columns)).num_columns == 1
            )

    def test_a_filtered_scan_gives_every_row_that_meets_the_filter(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, FilteredScan):
            skip("the connector cannot leave out rows of a scan")
        rows = pa.Table.from_batches(connector.scan(table.schema), table.schema)
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            for wanted in filters_over(name, column):
                if connector.can_filter(wanted):
                    kept = pa.Table.from_batches(
                        connector.scan_filtered(table.schema, "", [wanted]), table.schema
                    )
                    meeting = rows.filter(pa.array([meets(wanted, value) for value in column.to_pylist()]))
                    assert not _count_rows(meeting) - _count_rows(kept), f"{wanted} loses rows"

    def test_rows_by_order_are_those_that_the_worker_would_choose(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, OrderedLookup):
            skip("the connector gives all rows of a key")
        check_rows_by_order(connector, _make_request(table, [*self.present, *self.absent]), placed_answers)

    def test_no_row_is_nearer_than_those_of_an_answer(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, NearestLookup):
            skip("the worker finds the nearest rows")
        check_nearest_rows(connector, _make_request(table, [*self.present, *self.absent]), placed_answers)

    def test_the_size_it_tells_names_its_source_and_is_right_where_it_is_exact(
        self, table: LookupTable
    ) -> None:
        connector = self.connector(table)
        if not isinstance(connector, Statistics):
            skip("the connector does not know how large the table is")
        size = connector.statistics()
        assert size.source, "EXPLAIN says where the number is from, or why there is none"
        if size.exact and isinstance(connector, Scan):
            assert size.rows == pa.Table.from_batches(connector.scan(table.schema), table.schema).num_rows

    def test_it_tells_every_row_that_has_changed(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, ReportsChanges) or not isinstance(connector, Scan):
            skip("the connector does not tell what has changed, or what there is")
        rows = pa.Table.from_batches(connector.scan(table.schema), table.schema)
        keys = pa.schema([table.schema.field(name) for name in self.present[0]])
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if not grows(column.type):
                continue
            for since in pc.unique(column.drop_null()):
                found = connector.changes(ChangesRequest(name, since, keys, rows.num_rows, 60.0))
                assert found.latest == pc.max(column), f"the greatest {name}"
                changed = rows.filter(pc.greater(column, since)).select(keys.names)
                assert found.keys is not None, "all of them are wanted"
                assert not _count_rows(changed) - _count_rows(found.keys), f"{name} > {since} loses rows"
            least = connector.changes(ChangesRequest(name, None, keys, rows.num_rows, 60.0))
            assert (least.latest, least.keys) == (pc.max(column), None), "only how far it has grown is asked"

    def test_it_need_not_tell_many_rows_that_have_changed(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, ReportsChanges) or not isinstance(connector, Scan):
            skip("the connector does not tell what has changed, or what there is")
        rows = pa.Table.from_batches(connector.scan(table.schema), table.schema)
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            least, greatest = (pc.min(column), pc.max(column)) if grows(column.type) else (None, None)
            if greatest != least:
                for since, is_told in ((least, False), (greatest, True)):
                    found = connector.changes(ChangesRequest(name, since, pa.schema([]), 0, 60.0))
                    assert (found.keys is not None) == is_told, f"{name} > {since}"

    def test_the_schema_it_tells_is_one_it_can_be_asked_with(self, table: LookupTable) -> None:
        connector = self.connector_type(replace(table, schema=pa.schema([]), primary_key=()))
        if not isinstance(connector, ReportsSchema):
            skip("the connector does not know its columns")
        schema, primary_key = connector.discover()
        assert {*table.schema.names} <= {*schema.names}
        told = replace(table, schema=schema, primary_key=primary_key)
        assert all(self.found(told, self.present))

    def test_what_it_tells_of_a_failure_is_a_row_for_each_key(self, table: LookupTable) -> None:
        connector = self.connector(table)
        if not isinstance(connector, ReportsOutcomes):
            skip("the connector does not tell outcomes in rows")
        request = _make_request(table, self.absent)
        outcome = Outcome(ConnectorError("scripted"), 1, [None] * len(self.absent))
        told = connector.outcome_rows(request.keys, request.schema, outcome)
        assert told is None or told.num_rows == len(self.absent)
        assert told is None or {*request.schema.names} <= {*told.column_names}


# --- asking in either way -------------------------------------------------------------------------


def _make_request(
    table: LookupTable, keys: Sequence[KeyValues], columns: Iterable[str] = ()
) -> LookupRequest:
    key_schema = pa.schema([table.schema.field(name) for name in keys[0]])
    wanted = {*keys[0], *(columns or table.schema.names)}
    schema = pa.schema([field for field in table.schema if field.name in wanted])
    values = [[key[name] for key in keys] for name in keys[0]]
    return LookupRequest(pa.table(values, schema=key_schema), schema, timeout=60.0)


def _found_by_each_ability(connector: Connector, request: LookupRequest, times: int = 1) -> list[RowsByKey]:
    """The rows that each ability finds, for the request repeated this many times."""
    return [
        _count_by_key(placed, request)
        for answers in placed_answers(connector, [request] * times)
        for placed in answers
    ]


def _same_for_each_ability(found: list[RowsByKey]) -> RowsByKey:
    assert all(each == found[0] for each in found), "the two abilities answer differently"
    return found[0]


Parts = list[tuple[LookupRequest, Answer]]
"""The parts of a request, as large as the connector allows, each with its answer."""


def askers(connector: Connector) -> list[Callable[[Sequence[LookupRequest]], list[Parts]]]:
    """For each ability what asks by it, one request after the other; the connector is opened and closed."""
    found: list[Callable[[Sequence[LookupRequest]], list[Parts]]] = []
    if isinstance(connector, SyncLookup):
        found.append(partial(_ask_sync, connector))
    if isinstance(connector, AsyncLookup):
        asynchronous = connector
        found.append(lambda requests: asyncio.run(_ask_async(asynchronous, requests)))
    return found


def _ask_sync(connector: SyncLookup, requests: Sequence[LookupRequest]) -> list[Parts]:
    connector.open()
    try:
        return [
            [(part, settled(connector.lookup(part))) for part in parts_of(request, connector)]
            for request in requests
        ]
    finally:
        connector.close()


async def _ask_async(
    connector: AsyncLookup, requests: Sequence[LookupRequest], *, at_once: bool = False
) -> list[Parts]:
    await connector.aopen()
    try:
        if at_once:
            return list(await asyncio.gather(*(_ask_in_parts(connector, each) for each in requests)))
        return [await _ask_in_parts(connector, each) for each in requests]
    finally:
        await connector.aclose()


async def _ask_in_parts(connector: AsyncLookup, request: LookupRequest) -> Parts:
    slots = asyncio.Semaphore(100)

    async def answer(part: LookupRequest) -> Answer:
        async with slots:
            return settled(await connector.alookup(part))

    parts = parts_of(request, connector)
    return list(zip(parts, await asyncio.gather(*map(answer, parts)), strict=True))


async def _ask_after_cancellations(
    connector: AsyncLookup, cancelled: LookupRequest, request: LookupRequest
) -> list[RowsByKey]:
    """The rows found after cancelled lookups, each cancelled a little later."""
    found: list[RowsByKey] = []
    await connector.aopen()
    try:
        for turns in range(6):
            lookup = asyncio.ensure_future(_ask_in_parts(connector, cancelled))
            for _ in range(turns):
                await asyncio.sleep(0)
            lookup.cancel()
            await asyncio.wait([lookup])
            placed = _place_parts(await _ask_in_parts(connector, request), connector)
            found.append(_count_by_key(placed, request))
    finally:
        await connector.aclose()
    return found


def placed_answers(connector: Connector, requests: Sequence[LookupRequest]) -> list[list[Placed]]:
    """For each ability its answers to ``requests``, placed and checked as the engine does it."""
    return [[_place_parts(parts, connector) for parts in ask(requests)] for ask in askers(connector)]


def _place_parts(parts: Parts, connector: Connector) -> Placed:
    who = f"connector {type(connector).__name__} of table {connector.table.name}"
    rows: list[pa.Table] = []
    positions: list[pa.Array] = []
    before = 0
    for part, answer in parts:
        placed = place(answer, part, who)
        rows.append(placed.rows)
        positions.append(pc.add(placed.positions, pa.scalar(before, placed.positions.type)))
        before += part.keys.num_rows
    return Placed(pa.concat_tables(rows), pa.concat_arrays(positions))


def _close_connector(connector: Connector) -> None:
    if isinstance(connector, SyncLookup):
        connector.close()
    if isinstance(connector, AsyncLookup):
        asyncio.run(connector.aclose())


def parts_of(request: LookupRequest, connector: Connector) -> list[LookupRequest]:
    """``request`` in as many parts as the engine would make of it, for the limit of ``connector``."""
    count = request.keys.num_rows
    size = connector.keys_per_request() or count
    return [replace(request, keys=request.keys.slice(start, size)) for start in range(0, count, size)]


def settled(answer: Answer) -> Answer:
    """``answer``, unless a key of it failed."""
    if isinstance(answer, Outcomes):
        for failure in answer.failures.values():
            raise failure
    return answer


# --- rows -----------------------------------------------------------------------------------------


def _count_by_key(placed: Placed, request: LookupRequest) -> RowsByKey:
    found: RowsByKey = [Counter() for _ in range(request.keys.num_rows)]
    for position, row in zip(placed.positions.to_pylist(), row_texts(placed.rows), strict=True):
        found[position][row] += 1
    return found


def _count_rows(rows: pa.Table) -> Counter[str]:
    return Counter(row_texts(rows))


def skip(reason: str) -> NoReturn:
    """Skip the test that runs, for a ``reason``."""
    import pytest  # tests alone need it: the module is importable without

    pytest.skip(reason)


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def filters_over(name: str, column: pa.ChunkedArray) -> list[Filter]:
    """Filters of each kind, by a value that the column has."""
    value = next((each for each in column.to_pylist() if each is not None), None)
    if not isinstance(value, bool | int | str | Decimal) and type(value) is not date:
        return []
    by_value = [Filter(name, op, (value,)) for op in (*_COMPARED, "IN")]
    return [*by_value, Filter(name, "IS NULL"), Filter(name, "IS NOT NULL")]


def meets(wanted: Filter, value: Any) -> bool:
    """Whether ``value`` meets the filter, by Python's own comparison."""
    if wanted.op in ("IS NULL", "IS NOT NULL"):
        return (value is None) == (wanted.op == "IS NULL")
    if value is None:
        return False
    if wanted.op == "IN":
        return value in wanted.values
    return bool(_COMPARED[wanted.op](value, wanted.values[0]))
