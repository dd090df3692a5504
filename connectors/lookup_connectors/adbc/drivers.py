"""ADBC drivers: where their libraries are, and what is known of those that come as Python packages."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

from lookup_hints.errors import ConnectorError

POSTGRES = "adbc_driver_postgresql"
SQLITE = "adbc_driver_sqlite"
DUCKDB = "adbc_driver_duckdb"

_DIALECTS = {
    POSTGRES: "postgres",
    SQLITE: "sqlite",
    DUCKDB: "duckdb",
    "adbc_driver_snowflake": "snowflake",
    "adbc_driver_bigquery": "bigquery",
}
_PACKAGES = {DUCKDB: "duckdb"}
_ENTRY_POINTS = {DUCKDB: "duckdb_adbc_init"}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Library:
    """The shared library of a driver, and the function in it that makes the driver (empty: the usual one)."""

    path: str
    entry_point: str


def is_module(driver: str) -> bool:
    """Whether ``driver`` names a Python module; else it is the path of a library."""
    return _MODULE.fullmatch(driver) is not None


def dialect_of(driver: str) -> str:
    """The SQL that ``driver`` speaks, as sqlglot calls it; empty for plain SQL.

    >>> dialect_of("adbc_driver_postgresql"), dialect_of("/opt/lib/libadbc_driver_dremio.so")
    ('postgres', '')
    """
    return _DIALECTS.get(driver, "")


# A driver's name in SQL loads code, so it counts as a connector for the security switches.
# (docs/decisions/0157)
def find_library(driver: str, entry_point: str | None, table: str) -> Library:
    """The library of ``driver`` on this machine; imports its module.

    Raises:
        ConnectorError: it is not installed here, or names no driver.
    """
    path = _path_of_library(driver, table) if is_module(driver) else driver
    return Library(path, entry_point or _ENTRY_POINTS.get(driver, ""))


def _path_of_library(module: str, table: str) -> str:
    """The library that a Python package of a driver brings along."""
    try:
        package = importlib.import_module(module)
    except ImportError as error:
        raise _missing_module(
            table, f"the driver {module!r} is not installed on this machine", module
        ) from error
    # Both kinds are found: DuckDB names the function publicly, the drivers of Apache Arrow do not.
    find = getattr(package, "driver_path", None) or getattr(package, "_driver_path", None)
    if find is None:
        raise _missing_module(table, f"the module {module!r} is not an ADBC driver", module)
    try:
        return str(Path(find()))
    except ImportError:
        raise _missing_module(
            table, f"the driver {module!r} lacks its library on this machine", module
        ) from None


def _missing_module(table: str, what: str, module: str) -> ConnectorError:
    package = _PACKAGES.get(module, module.replace("_", "-"))
    return ConnectorError(f"table {table}: {what}. Install it: pip install {package}.", permanent=True)
