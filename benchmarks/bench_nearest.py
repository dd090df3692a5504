"""The nearest rows by vectors, found by the worker: in a table kept whole, and among those of a key.

``python -m benchmarks.bench_nearest [--rows N] [--queries N] [--groups N] [--spark N]``. A vector has 384
numbers; the 10 nearest by cosine are wanted, and among equals the 10 nearest by L2. There are as many groups
as given, and so many rows in each. Spark compares each query with each row. So it is given N and 4 N queries
over 1,000 N rows, and what the 3 N more take is extrapolated: what it takes to start is left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, Theme, WorkerMemory, drained, scratch, spark_session, theme, timed
from lookup_hints import LookupSession

ROWS, QUERIES, GROUPS, SPARKS = 1_000_000, 10_000, 1_000, 20
DIMENSIONS, MOST = 384, 10
COSINE = "1 - vector_cosine_similarity({0}.v, q.v)"
AMONG_EQUALS = "CASE WHEN {0}.g = q.g THEN vector_l2_distance({0}.v, q.v) END"
WHOLE_FASTER, EQUALS_FASTER = 50.0, 200.0


def main() -> None:
    """Time both ways of lookup, and Spark's own over a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--spark", type=int, default=SPARKS)
    options = parser.parse_args()
    title = f"Nearest: {options.queries:,} vectors of {DIMENSIONS} numbers among {options.rows:,}"
    with theme("nearest", title, 1) as found, spark_session() as spark, scratch() as folder:
        session = LookupSession(spark)
        for name, distance, rows, faster in (
            ("whole", COSINE, options.rows, WHOLE_FASTER),
            ("equals", AMONG_EQUALS, options.groups**2, EQUALS_FASTER),
        ):
            _write_vectors(folder / f"{name}.parquet", rows, options.groups, seed=1)
            session.sql(
                f"CREATE TEMPORARY TABLE {name} (id BIGINT, g INT, v ARRAY<FLOAT>,"
                " PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'benchmarks.connectors:Stored',"
                f" 'path' = '{folder}/{name}.parquet',"
                " 'lookup.full-cache.max-bytes' = '8 gb')"
            )
            _compare_with_spark(found, session, folder, options, name, distance, rows, faster)


def _compare_with_spark(
    found: Theme,
    session: LookupSession,
    folder: Path,
    options: argparse.Namespace,
    name: str,
    distance: str,
    rows: int,
    faster: float,
) -> None:
    part = min(rows, 1000 * options.spark)
    _write_vectors(folder / f"{name}_part.parquet", part, options.groups, seed=1)
    session.spark.read.parquet(f"{folder}/{name}_part.parquet").createOrReplaceTempView(f"{name}_part")
    took = dict[int, float]()
    for queries in (options.queries, options.spark, 4 * options.spark):
        _write_vectors(folder / f"{name}_{queries}.parquet", queries, options.groups, seed=2)
        session.spark.read.parquet(f"{folder}/{name}_{queries}.parquet").createOrReplaceTempView("queries")
        table = name if queries == options.queries else f"{name}_part"
        query = (
            f"SELECT q.id, {table}.id AS found FROM queries q JOIN {table} EXACT NEAREST {MOST} BY DISTANCE"
        )
        way = drained(session, f"{query} {distance.format(table)}")
        with WorkerMemory() as memory:
            took[queries] = timed(way).seconds
        if table == name:
            found.add(Figure(f"{name}: seconds of the lookup, which reads the rows", took[queries]))
            found.add(Figure(f"{name}: largest worker", memory.peak / 1e6, " MB"))
    more = took[4 * options.spark] - took[options.spark]
    hours = more / (3 * options.spark * part) * options.queries * rows / 3600
    found.add(Figure(f"{name}: hours of Spark's join, extrapolated", hours))
    times = hours * 3600 / took[options.queries]
    found.add(Figure(f"{name}: times as fast as Spark", times, "x", at_least=faster))


def _write_vectors(path: Path, rows: int, groups: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    schema = pa.schema([("id", pa.int64()), ("g", pa.int32()), ("v", pa.list_(pa.float32()))])
    with pq.ParquetWriter(path, schema) as file:
        for begin in range(0, rows, 50_000):
            ids = np.arange(begin, min(begin + 50_000, rows))
            items = random.standard_normal(len(ids) * DIMENSIONS, np.float32)
            offsets = np.arange(0, len(items) + 1, DIMENSIONS, dtype=np.int32)
            vectors = pa.ListArray.from_arrays(pa.array(offsets), pa.array(items))
            file.write_table(pa.table([ids, (ids % groups).astype(np.int32), vectors], schema=schema))


if __name__ == "__main__":
    main()
