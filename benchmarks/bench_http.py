"""Orders looked up over HTTP through Spark, beside plain clients in one process asking for the same keys.

``python benchmarks/bench_http.py [--keys N] [--runs N]``. The server is 2 ms away and shares the machine; all
runs in one go, in turn: only the ratios mean something. Each key is asked once, 100 at a time in each task.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import aiohttp  # noqa: E402 (the path above comes first)
import httpx  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from benchmarks.http_server import running_api  # noqa: E402
from lookup_hints import LookupSession  # noqa: E402

IN_FLIGHT = 100
MANY = 100
QUERY = "SELECT count(p.name) AS found, max(p.name) AS name FROM {keys} o JOIN {table} p ON o.id = p.id"

Get = Callable[[str], Awaitable[object]]


def main() -> None:
    """Time all ways in turn and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with running_api() as url:
        session = _session(url, options.keys)
        for table in ("one", "many", "over_httpx"):
            _looked_up(session, table, "few")  # starts the workers and warms the server
        rates: dict[str, list[float]] = {}
        for _ in range(options.runs):
            for way, rate in _all_ways(url, session, options.keys).items():
                rates.setdefault(way, []).append(rate)
        session.spark.stop()
    _print({way: statistics.median(each) for way, each in rates.items()}, options.keys, options.runs)


def _all_ways(url: str, session: LookupSession, keys: int) -> dict[str, float]:
    """Keys per second of each way."""
    few = keys // 20
    return {
        "plain httpx, one process": few / asyncio.run(_with_httpx(url, few)),
        "plain aiohttp, one process": keys / asyncio.run(_with_aiohttp(url, keys)),
        "lookup join, engine httpx": few / _looked_up(session, "over_httpx", "few"),
        "lookup join, one key per request": keys / _looked_up(session, "one", "one_each"),
        f"lookup join, {MANY} keys per request": keys * 10 / _looked_up(session, "many", "ten_each"),
    }


def _print(rates: dict[str, float], keys: int, runs: int) -> None:
    mark = rates["plain aiohttp, one process"]
    print(f"{keys:,} keys, median of {runs}; ratio: that way / plain aiohttp")
    for way, rate in rates.items():
        print(f"  {way:<36} {rate:>10,.0f} keys/s   {rate / mark:>7.2f}")


async def _with_httpx(url: str, keys: int) -> float:
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:

        async def get(target: str) -> object:
            return (await client.get(target)).json()

        return await _all_asked(get, url, keys)


async def _with_aiohttp(url: str, keys: int) -> float:
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as client:

        async def get(target: str) -> object:
            async with client.get(target) as response:
                return await response.json()

        return await _all_asked(get, url, keys)


async def _all_asked(get: Get, url: str, keys: int) -> float:
    """Seconds for all keys, ``IN_FLIGHT`` of them at once."""
    numbers = iter(range(keys))

    async def work() -> None:
        for number in numbers:
            await get(f"{url}/people/{number}")

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return time.perf_counter() - start


def _session(url: str, keys: int) -> LookupSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("bench_http")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for name, count in (("few", keys // 20), ("one_each", keys), ("ten_each", keys * 10)):
        spark.range(0, count, 1, 2).createOrReplaceTempView(name)
    session = LookupSession(spark)
    columns = "id BIGINT, name STRING, country STRING"
    for table, path, more in (
        ("one", "/people/{id}", ""),
        ("over_httpx", "/people/{id}", ", 'engine' = 'httpx'"),
        ("many", "/people?ids={id}", f", 'keys-per-request' = '{MANY}'"),
    ):
        session.sql(
            f"CREATE TEMPORARY TABLE {table} ({columns}) WITH ('connector' = 'http', 'url' = '{url}{path}',"
            f" 'capacity' = '{IN_FLIGHT}'{more})"
        )
    return session


def _looked_up(session: LookupSession, table: str, keys: str) -> float:
    """Seconds that the query takes, planning included."""
    start = time.perf_counter()
    row = session.sql(QUERY.format(table=table, keys=keys)).collect()[0]
    seconds = time.perf_counter() - start
    assert row.found == session.spark.table(keys).count()
    return seconds


if __name__ == "__main__":
    main()
