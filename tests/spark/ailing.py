"""A source that fails for some keys for good, until it is healed; and what a folder of dead letters holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from lookup_connectors.memory import MemoryConnector

from lookup_hints.spi import (
    TEXT,
    Answer,
    AsyncLookup,
    ConnectorError,
    NearestCondition,
    NearestLookup,
    Option,
    Outcomes,
    PlacedRows,
    SyncLookup,
)
from lookup_hints.spi.request_and_answer import LookupRequest
from tests.spark.counting import CountingConnector, write_down

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "table STRING, alias STRING, line INT, connector STRING, key STRING, error_class STRING, error STRING,"
    " attempts INT, failed_at TIMESTAMP, query_id STRING, batch_id BIGINT, run STRING"
)


class AilingConnector(SyncLookup, AsyncLookup):
    """Answers ``(id, 'n<id>')``, but fails for ids that end with 07 while its file says so; tells its password."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("ill", TEXT, "A file; without it all keys are answered."),
        Option("password", TEXT, "Told in errors.", default="hunter2", secret=True),
    )

    def lookup(self, request: LookupRequest) -> Outcomes:
        """The rows, and an error that all ill keys share."""
        ids = request.keys.column("id").combine_chunks()
        is_ill = Path(self.table.options["ill"]).exists()
        last_two = pc.subtract(ids, pc.multiply(pc.divide(ids, 100), 100))
        ill = pc.and_(pc.equal(last_two, 7), pa.scalar(is_ill))
        well = pc.indices_nonzero(pc.invert(ill)).cast(pa.int32())
        names = pc.binary_join_element_wise("n", pc.take(ids, well).cast(pa.string()), "")
        rows = pa.table({"id": pc.take(ids, well), "name": names})
        password = self.table.options.get("password", "hunter2")
        error = ConnectorError(f"source at app:{password}@db is ill", permanent=True)
        failures = dict.fromkeys(pc.indices_nonzero(ill).to_pylist(), error)
        return Outcomes(rows.select(list(request.columns)), well, failures)

    async def alookup(self, request: LookupRequest) -> Outcomes:
        """The same."""
        return self.lookup(request)


def ill_table(folder: Path, more: str = "") -> str:
    """A statement that creates the table ``people`` over an ill source; it is healed by removing ``ill``."""
    (folder / "ill").touch()
    return (
        "CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ('connector' ="
        f" 'tests.spark.ailing:AilingConnector', 'ill' = '{folder}/ill', 'password' = 'hunter2'{more})"
    )


def letters(spark: SparkSession, folder: Path, kind: str = "parquet") -> list[dict[str, object]]:
    """All letters that Spark finds in ``folder``."""
    frame = spark.read.format(kind).schema(SCHEMA).load(str(folder))
    return [row.asDict() for row in frame.collect()]


class DownConnector(SyncLookup):
    """Fails for all keys."""

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Fail."""
        raise ConnectorError("down", permanent=True)


class TroubledConnector(CountingConnector):
    """Rows in memory; each request takes a line of the file ``troubles``: to fail, to fail for good, or to find nothing."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *CountingConnector.OPTIONS,
        Option("troubles", TEXT, "A file of lines: fails, ill or empty. Without a line the rows are given."),
    )

    def lookup(self, request: LookupRequest) -> Answer:
        """The rows, unless a line says otherwise."""
        file = Path(self.table.options["troubles"])
        trouble, _, later = file.read_text(encoding="utf-8").partition("\n")
        file.write_text(later, encoding="utf-8")
        rows = self.find(request)
        if trouble in ("fails", "ill"):
            raise ConnectorError(f"the source {trouble}", permanent=trouble == "ill")
        return (
            PlacedRows(request.schema.empty_table(), pa.array([], pa.int32())) if trouble == "empty" else rows
        )

    async def alookup(self, request: LookupRequest) -> Answer:
        """The same."""
        return self.lookup(request)

    def find(self, request: LookupRequest) -> Answer:
        """The rows of each key."""
        return super().lookup(request)


class TroubledFinder(TroubledConnector, NearestLookup):
    """The same, and the source itself finds the nearest vectors among the rows of a key."""

    def can_find_nearest(self, nearest: NearestCondition, *, among: tuple[str, ...]) -> bool:
        """By ``vector_l2_distance``."""
        return nearest.metric == "l2" and bool(among)

    def find(self, request: LookupRequest) -> Answer:
        """The nearest rows, found by comparing each with each."""
        nearest = request.nearest
        if nearest is None:
            return super().find(request)
        write_down(request, Path(self.table.options["log"]))
        (column,), names = nearest.columns, request.key_columns
        read = [*request.schema.names, *({column, *names, *nearest.ties} - {*request.schema.names})]
        schema = pa.schema([self.table.schema.field(name) for name in read])
        rows = pa.Table.from_batches(MemoryConnector.scan(self, schema), schema)
        held = [each for each in enumerate(rows.to_pylist()) if each[1][column] is not None]
        found: list[tuple[int, int]] = []
        for position, asked in enumerate(request.keys.to_pylist()):
            *key, vector = asked.values()
            near = sorted(
                (math.dist(row[column], vector), *(row[name] for name in nearest.ties), at)
                for at, row in held
                if [row[name] for name in names] == key
            )
            found += [(position, each[-1]) for each in near[: nearest.most]]
        positions, taken = zip(*found, strict=True) if found else ((), ())
        answer = rows.take(pa.array(taken, pa.int64())).select(request.schema.names)
        return PlacedRows(answer, pa.array(positions, pa.int32()))
