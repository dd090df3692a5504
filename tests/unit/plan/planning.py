"""Planning without Spark: a catalog of small tables and function names that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lookup_hints.hints.hint_comments import lookup_hints
from lookup_hints.lookup_spec import Invalidation, LookupSpec
from lookup_hints.plan.cost import LeftRows
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.parse.lookup_use import LookThrough
from lookup_hints.plan.planner import plan
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analyse, NamesAndTypes
from lookup_hints.retry import RowPredicate
from lookup_hints.spi import AsyncLookup, Connector, Filter, Scan, SyncLookup, TableSize
from lookup_hints.spi.arrow_types import TIMESTAMP
from lookup_hints.spi.option_values import Conf
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable
from lookup_hints.sql.sql_text import SqlText


class SyncOnly(SyncLookup):
    """A connector that is never asked."""

    def lookup(self, request: LookupRequest) -> Answer:
        raise AssertionError("planning asks nothing")


class AsyncOnly(AsyncLookup):
    """A connector that is never asked."""

    async def alookup(self, request: LookupRequest) -> Answer:
        raise AssertionError("planning asks nothing")


class Both(SyncOnly, AsyncOnly, Scan):
    """A connector with every ability, never asked."""

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        raise AssertionError("planning asks nothing")


class Templated(AsyncOnly):
    """Asked through a template that needs ``id`` and may hold ``lang``, for ten keys at once."""

    def required_keys(self) -> frozenset[str]:
        return frozenset({"id"})

    def request_columns(self) -> frozenset[str]:
        return frozenset({"id", "lang"})

    def keys_per_request(self) -> int | None:
        return 10


KINDS = {"sync": SyncOnly, "async": AsyncOnly, "both": Both, "templated": Templated}


def table(
    name: str, connector: str, columns: dict[str, pa.DataType], key: tuple[str, ...] = (), **options: str
) -> LookupTable:
    given = {option.replace("_", "-"): value for option, value in options.items()}
    return LookupTable(name, pa.schema(list(columns.items())), key, {"connector": connector, **given})


CUSTOMERS = table(
    "customers",
    "both",
    {
        "id": pa.int64(),
        "name": pa.string(),
        "country": pa.string(),
        "zip": pa.string(),
        "address": pa.struct([("city", pa.string())]),
    },
    key=("id",),
)
WEATHER = table("weather", "sync", {"origin": pa.string(), "hour": TIMESTAMP, "wind": pa.float64()})
RATES = table("rates", "async", {"currency": pa.string(), "kind": pa.string(), "rate": pa.float64()})
TEXTS = table(
    "texts",
    "templated",
    {"id": pa.int64(), "lang": pa.string(), "region": pa.string(), "text": pa.string()},
    key=("id",),
)
NETWORKS = table("networks", "both", {"low": pa.int64(), "high": pa.int64(), "name": pa.string()})
TABLES = {each.name: each for each in (CUSTOMERS, WEATHER, RATES, TEXTS, NETWORKS)}


def connector(of: LookupTable) -> Connector:
    return KINDS[of.connector](of)


@dataclass(frozen=True)
class FakeContext:
    """What the planner asks, as values and functions of a test; it is a ``Context``."""

    find_table: Callable[[str], LookupTable | None]
    conf: Conf
    analyse: Analyse | None
    name_function: Callable[[LookupSpec, bool], str]
    name_scan: Callable[[LookupTable, tuple[str, ...], tuple[Filter, ...], tuple[str, ...]], str]
    predicates: Mapping[str, RowPredicate]
    connector: Callable[[LookupTable], Connector] = connector
    wrapping: Callable[[pa.DataType], tuple[str, str]] = lambda _: ("", "")
    unwritable: Callable[[str], str | None] = lambda _: None
    tables: Callable[[], Sequence[LookupTable]] = lambda: ()
    table_size: Callable[[Connector], TableSize] = lambda _: TableSize(None, source="nothing was asked")
    left_rows: Callable[[str], LeftRows] = lambda _: LeftRows(None, "unknown: Spark was not asked")
    is_stream: Callable[[str], bool] = lambda _: False
    has_function: Callable[[str], bool] = lambda _: False
    few_rows: bool = False
    line: int = 1
    read_because: str = ""
    find_view: Callable[[str], LookThrough | None] = lambda _: None
    is_lookup_view: Callable[[str], bool] = lambda _: False
    analysed_plan: Callable[[str], str] = lambda _: ""
    invalidations: Callable[[LookupTable, float], tuple[Invalidation, ...]] = lambda *_: ()


def context(
    *,
    conf: dict[str, str] | None = None,
    analyse: NamesAndTypes | None = None,
    predicates: dict[str, RowPredicate] | None = None,
    tables: dict[str, LookupTable] | None = None,
) -> FakeContext:
    """A planner's context; ``analyse`` is what every analysis answers."""
    known = TABLES if tables is None else tables

    def name_function(spec: LookupSpec, repeated: bool) -> str:
        once = "_once" if repeated else ""
        return f"ask_{spec.table.name}{once}"

    return FakeContext(
        find_table=lambda name: known.get(name.lower()),
        conf=(conf or {}).get,
        analyse=None if analyse is None else (lambda sql: analyse),
        name_function=name_function,
        name_scan=lambda of, columns, filters, match_key: f"scan_{of.name}__{'_'.join(columns)}",
        predicates=predicates or {},
    )


def planned(text: str, using: Context | None = None) -> LookupPlan:
    return plan(SqlText(text), lookup_hints(SqlText(text)), using or context())
