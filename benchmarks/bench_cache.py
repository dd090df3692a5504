"""What a cache costs and saves: alone, and in lookups over PostgreSQL and HTTP.

``python -m benchmarks.bench_cache [--orders N] [--runs N]``. The store is measured in processor seconds of
its thread. A run without any hit, and a first run, each use a table of a new name, whose cache is empty.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.bench_postgres import COLUMNS, write_orders
from benchmarks.http_server import running_api
from benchmarks.measuring import (
    Figure,
    Sample,
    Theme,
    Way,
    cpu_ratio,
    drained,
    ratio,
    scratch,
    spark_session,
    theme,
    timed,
)
from benchmarks.postgres_raw import CUSTOMERS, IDS, ORDERS, customers_server, order_keys, skewed_keys
from lookup_hints import LookupSession
from lookup_hints.cache.store.answer_store import Ages, Store
from lookup_hints.cache.store.segment_entries import Answers
from lookup_hints.cache.store.segment_files import StoreLimits
from lookup_hints.plan.decide.access import KEYS_PER_ROW
from tests.servers.postgres import PostgresServer

ROWS = 1_000_000
INSERTED = 2 * ROWS
"""So many that segments are merged while they are inserted."""

WINDOW = 65_536
SEGMENTS = 8
QUERY = (
    "SELECT o.order_id, c.id, c.name, c.country, c.zip FROM {orders} o LEFT JOIN {table} c"
    " ON o.customer_id = c.id"
)
SAME_KEYS = 10_000
HTTP_KEYS = 100_000
_FOREVER = Ages(1e9, 1e9)
_numbers = count()


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pause", type=float, default=120.0, help="seconds between two queries")
    options = parser.parse_args()
    title = f"A cache: {ROWS:,} rows of five columns; {options.orders:,} orders over PostgreSQL, local[2]"
    with theme("cache", title, options.runs) as found, scratch() as folder:
        for kind, least in (("integers", 3.0), ("strings", 1.5)):
            _store_alone(found, folder / kind, kind, least)
            _private_memory(found, folder / kind, kind)
        with customers_server() as server, spark_session() as spark:
            _through_spark(found, server, spark, folder, options.orders, options.runs)
            _over_http(found, spark, options.runs)
            _switch(found, server, spark, folder, options.runs)
        with customers_server() as server:
            _whole_table(found, server, folder)
        _after_a_pause(found, folder, options.pause)


# --- the store alone -------------------------------------------------------------------------------


def _store_alone(found: Theme, folder: Path, kind: str, least: float) -> None:
    chance = np.random.default_rng(7)
    store = Store(folder, StoreLimits(), _FOREVER, time.monotonic)
    ids = chance.permutation(INSERTED)
    batches = [_rows(ids[start : start + WINDOW], kind) for start in range(0, INSERTED, WINDOW)]
    inserted = statistics.median(_inserted(folder / str(run), batches) for run in range(5))
    what = f"rows inserted, keys are {kind}, {INSERTED:,} of them, merges included"
    found.add(Figure(what, inserted / 1e6, " M/s", at_least=2.0))
    for part in np.array_split(ids[ids < ROWS], SEGMENTS):
        store.learn([_learned(_rows(part, kind))])
    probed = [_probed(store, chance, kind) for _ in range(25)][5:]
    what = f"keys probed, {kind}, 80 % hits, rows taken, {SEGMENTS} segments"
    found.add(Figure(what, statistics.median(probed) / 1e6, " M/s", at_least=least))


def _private_memory(found: Theme, folder: Path, kind: str) -> None:
    """Of a process that probes all keys of a store, beside one that has the same keys and no store.

    Pages of files are not counted, be they written back to the disk or not.
    """
    none, some = (
        int(subprocess.check_output([sys.executable, "-c", _PROBE, str(each), kind])) for each in ("", folder)
    )
    what = f"private memory of a process for a cache of {ROWS:,} rows, {kind}"
    found.add(Figure(what, (some - none) / 1024, " MB", at_most=40))


_PROBE = """
import sys
from pathlib import Path
from benchmarks import bench_cache as bench
keys = bench._rows(bench.np.arange(bench.ROWS), sys.argv[2]).select(["id"])
if sys.argv[1]:
    store = bench.Store(Path(sys.argv[1]), bench.Limits(), bench._FOREVER, bench.time.monotonic)
    for start in range(0, bench.ROWS, bench.WINDOW):
        store.probe(keys.slice(start, bench.WINDOW).combine_chunks(), ("id", "name", "score", "zip", "kind"))
lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("Anonymous")))
"""


def _inserted(folder: Path, batches: list[pa.Table]) -> float:
    store = Store(folder, StoreLimits(), _FOREVER, time.monotonic)

    def insert() -> None:
        for rows in batches:
            store.learn([_learned(rows)])

    return INSERTED / _cpu(insert)


def _probed(store: Store, chance: np.random.Generator, kind: str) -> float:
    hits = WINDOW * 8 // 10
    ids = np.concatenate(
        [chance.choice(ROWS, hits, replace=False), ROWS + chance.choice(ROWS, WINDOW - hits, replace=False)]
    )
    keys = _rows(chance.permutation(ids), kind).select(["id"])
    return WINDOW / _cpu(lambda: store.probe(keys, ("id", "name", "score", "zip", "kind")))


def _cpu(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _rows(ids: npt.NDArray[np.int64], kind: str) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids) if kind == "integers" else pa.array([f"customer-{each:08d}" for each in ids]),
            "name": pa.array([f"name-{each % 99_991}" for each in ids]),
            "score": pa.array(ids * 0.5),
            "zip": pa.array(ids % 100_003),
            "kind": pa.array((ids % 7).astype(np.int32)),
        }
    )


def _learned(rows: pa.Table) -> Answers:
    everything = pa.array(np.arange(rows.num_rows, dtype=np.int32))
    return Answers(rows.select(["id"]), rows, everything, everything[:0], time.monotonic())


# --- through Spark ---------------------------------------------------------------------------------


def _through_spark(
    found: Theme, server: PostgresServer, spark: SparkSession, folder: Path, orders: int, runs: int
) -> None:
    chance = random.Random(7)
    write_orders(folder / "each", chance.sample(range(1, max(orders, CUSTOMERS) + 1), orders))
    write_orders(folder / "skewed", skewed_keys(orders))
    session = LookupSession(spark)
    for name in ("each", "skewed"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    samples: dict[str, list[Sample]] = {}

    def run(what: str, way: Way) -> None:
        samples.setdefault(what, []).append(timed(way))

    for number in range(runs + 1):
        for kind in ("NONE", "PARTIAL")[:: 1 if number % 2 else -1]:
            run(f"no key twice, cache {kind}", drained(session, _query(session, server, "each", kind)))
        query = _query(session, server, "skewed", "PARTIAL")
        run("Zipf 1.1, no cache", drained(session, _query(session, server, "skewed", "NONE")))
        run("Zipf 1.1, first run", drained(session, query))
        run("Zipf 1.1, second run", drained(session, query))
    samples = {what: each[1:] for what, each in samples.items()}
    found.times(samples, orders)
    none, partial = samples["no key twice, cache NONE"], samples["no key twice, cache PARTIAL"]
    note = f"processor seconds: {cpu_ratio(partial, none):.2f}"
    found.add(
        Figure("time with a cache that never hits / without", ratio(partial, none), at_most=1.1, note=note)
    )
    first, second = samples["Zipf 1.1, first run"], samples["Zipf 1.1, second run"]
    note = f"processor seconds: {cpu_ratio(first, second):.2f}"
    found.add(
        Figure(
            "Zipf 1.1, speed of the second run / of the first", ratio(first, second), at_least=2.5, note=note
        )
    )
    found.add(
        Figure(
            "Zipf 1.1, speed of the second run / without cache", ratio(samples["Zipf 1.1, no cache"], second)
        )
    )


def _query(session: LookupSession, server: PostgresServer, orders: str, kind: str) -> str:
    """Over a table whose cache, where it has one, is empty. Workers keep the connections of each table."""
    table = f"customers_{next(_numbers)}" if kind == "PARTIAL" else "customers_asked"
    cache = "" if kind == "AUTO" else f" 'lookup.cache' = '{kind}',"
    session.sql(
        f"CREATE OR REPLACE TEMPORARY TABLE {table} ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'postgres', 'url' = '{server.url()}', 'table-name' = 'customers',"
        f"{cache} 'pool-size' = '1')"
    )
    return QUERY.format(orders=orders, table=table)


# --- asking, and then reading -----------------------------------------------------------------------


def _switch(found: Theme, server: PostgresServer, spark: SparkSession, folder: Path, runs: int) -> None:
    """Orders whose number the planner cannot know; to fool it, they end where it has just read."""
    session, samples = LookupSession(spark), dict[str, list[Sample]]()
    query = _query(session, server, "(SELECT * FROM {orders} WHERE order_id >= 0)", "AUTO")
    fooling = int(KEYS_PER_ROW * CUSTOMERS) + WINDOW // 2
    for orders in (1_000, 10_000, 100_000, fooling, 1_000_000, 10_000_000):
        chance = random.Random(orders)
        keys = chance.sample(range(1, IDS + 1), orders) if orders <= IDS else order_keys(orders)
        write_orders(folder / f"switch-{orders}", keys)
        spark.read.parquet(str(folder / f"switch-{orders}")).createOrReplaceTempView(f"switch_{orders}")
        for number in range(runs + 1):
            for access in ("lookup", "scan", "auto"):
                spark.conf.set("spark.lookup.access", access)
                sample = timed(drained(session, query.format(orders=f"switch_{orders}")))
                if number:
                    samples.setdefault(f"{orders:,} orders, {access}", []).append(sample)
        asked, read, auto = (samples[f"{orders:,} orders, {way}"] for way in ("lookup", "scan", "auto"))
        most = 2.2 if orders == fooling else 1.5
        found.add(
            Figure(
                f"{orders:,} orders, auto / the better way",
                max(ratio(auto, asked), ratio(auto, read)),
                at_most=most,
            )
        )
    spark.conf.set("spark.lookup.access", "lookup")
    found.times(samples, 1_000_000)


# --- a whole table ---------------------------------------------------------------------------------


def _whole_table(found: Theme, server: PostgresServer, folder: Path) -> None:
    """In worker processes alone: what Spark takes to begin is not measured."""
    runs = []
    for number in range(3):
        kinds = ("FULL", "FULL", "NONE")
        runs.append([_worker(server, folder / f"whole-{number}", kind) for kind in kinds])
    loaded, others, asked = zip(*runs, strict=True)
    what = f"of {CUSTOMERS:,} rows of five columns kept whole"
    first = statistics.median(each["first"] for each in loaded)
    found.add(Figure(f"seconds to the first answer {what}", first, " s", at_most=2.0))
    pays = statistics.median((each["first"] - each["second"]) * 1000 for each in others)
    found.add(Figure("what a second worker pays to begin with it", pays, " ms", at_most=50.0))
    without = statistics.median(each["memory"] for each in asked)
    for who, each in (("worker that reads it", loaded), ("worker that uses it", others)):
        more = statistics.median(run["memory"] for run in each) - without
        found.add(Figure(f"memory of a {who} / without cache, more", more, " MB", at_most=40.0))


def _worker(server: PostgresServer, folder: Path, kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.whole_table", server.url(), kind]
    # An installed library is compiled; else what it takes to compile would be measured, too.
    env = {**os.environ, "SPARK_LOCAL_DIRS": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=env)
    result: dict[str, float] = json.loads(run.stdout)
    return result


# --- over HTTP, and after a pause --------------------------------------------------------------------


def _over_http(found: Theme, spark: SparkSession, runs: int) -> None:
    """One key in each request: the first run asks for all, the second for none."""
    session, speeds = LookupSession(spark), []
    with running_api() as api:
        for _ in range(runs):
            table = f"people_{next(_numbers)}"
            session.sql(
                f"CREATE TEMPORARY TABLE {table} (id BIGINT, name STRING, country STRING) WITH ('connector' ="
                f" 'http', 'url' = '{api.url}/people/{{id}}', 'lookup.cache' = 'PARTIAL')"
            )
            query = (
                f"SELECT o.id, p.name FROM range(0, {HTTP_KEYS}, 1, 2) o LEFT JOIN {table} p ON o.id = p.id"
            )
            first, second = (timed(drained(session, query)).seconds for _ in range(2))
            speeds.append(first / second)
    what = f"{HTTP_KEYS:,} keys over HTTP, one in a request, speed of the second run / of the first"
    found.add(Figure(what, statistics.median(speeds), at_least=20))


def _after_a_pause(found: Theme, folder: Path, seconds: float) -> None:
    """Spark ends idle workers meanwhile; the answers stay."""
    notes = folder / "notes-pause"
    with spark_session() as spark:
        session = LookupSession(spark)
        session.sql(
            "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
            f" ('connector' = 'benchmarks.connectors:Counted', 'notes' = '{notes}',"
            " 'lookup.cache' = 'PARTIAL')"
        )
        ask = drained(
            session, f"SELECT o.id, p.name FROM range({SAME_KEYS}) o LEFT JOIN people p ON o.id = p.id"
        )
        ask()
        ask()
        before, asked = _workers(), len(notes.read_text(encoding="ascii").split())
        time.sleep(seconds)
        dead = before - _workers()
        ask()
        again = sum(int(line) for line in notes.read_text(encoding="ascii").split()[asked:])
    note = f"{len(dead)} of {len(before)} workers had ended"
    what = f"hit ratio after a pause of {seconds:g} s"
    found.add(Figure(what, 100 * (1 - again / SAME_KEYS), " %", at_least=100, note=note))


def _workers() -> set[int]:
    """The Python workers of Spark that this process has, which are children of a daemon."""
    children = psutil.Process().children(recursive=True)
    return {each.pid for each in children if each.name().startswith("python") and each.parent() in children}


if __name__ == "__main__":
    main()
