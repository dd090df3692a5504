"""Orders looked up over HTTP through Spark, beside plain clients in one process asking for the same keys.

``python -m benchmarks.bench_http [--keys N] [--runs N]``. The server is 2 ms away and shares the machine.
Each key is asked once, 100 requests at a time in each task; the ways with many keys per request get ten times
as many keys; httpx, the client where httptools is missing, gets a tenth. Planning the job counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import aiohttp

from benchmarks.connectors import OverHttpx
from benchmarks.http_server import running_api, seconds_of
from benchmarks.measuring import Figure, Sample, Way, cpu_ratio, in_turn, ratio, seconds, spark_session, theme
from lookup_hints import LookupSession, register_connector

IN_FLIGHT = 100
MANY, MORE = 100, 1000
QUERY = "SELECT count(p.name) AS found, max(p.name) AS name FROM {keys} o JOIN {table} p ON o.id = p.id"

AIOHTTP = "plain aiohttp, one process"
ONE = "lookup join, one key per request"
HTTPX = f"{ONE}, over httpx"
BY_GET, BY_POST = f"lookup join, {MANY} keys per GET", f"lookup join, {MORE:,} keys per POST"

Get = Callable[[str], Awaitable[object]]


def main() -> None:
    """Time all ways in turn, and compare their rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    one, many = options.keys, options.keys * 10
    title = f"HTTP, 2 ms away: {one:,} keys one by one, {many:,} in requests of many, local[2]"
    with theme("http", title, options.runs) as found, running_api() as api, spark_session() as spark:
        session = LookupSession(spark)
        _declare(session, api.url)
        looked_up = partial(_looked_up, session)
        ways: dict[str, tuple[int, Way]] = {
            AIOHTTP: (one // 2, lambda: asyncio.run(_with_aiohttp(api.url, one // 2))),
            ONE: (one, looked_up("one", one)),
            BY_GET: (many, looked_up("many", many)),
            BY_POST: (many, looked_up("more", many)),
        }
        counts = {name: count for name, (count, _) in ways.items()}
        served: dict[str, float] = {}
        watched = {name: _watched(way, name, api.pid, served) for name, (_, way) in ways.items()}
        in_turn(watched, 1)  # warms all sides
        samples = in_turn(watched, options.runs)
        _print(samples, counts, served)

        def speed(over: str, under: str) -> float:
            return ratio(samples[under], samples[over]) * counts[over] / counts[under]

        cpu = cpu_ratio(samples[AIOHTTP], samples[ONE]) * counts[ONE] / counts[AIOHTTP]
        note = f"the aim is 2.5; processor seconds: {cpu:.2f}"
        found.add(Figure(f"speed of the {ONE} / {AIOHTTP}", speed(ONE, AIOHTTP), at_least=1.2, note=note))
        for way in (BY_POST, BY_GET):
            least = 20.0 if way == BY_POST else None
            found.add(Figure(f"speed of the {way} / one key per request", speed(way, ONE), at_least=least))
        for way in (ONE, BY_POST):
            share = served[way] / seconds(samples[way]) * 100
            found.add(Figure(f"share of a core that the server takes, {way}", share, unit=" %", at_most=90))
        few = one // 10
        title = f"HTTP, 2 ms away: with httptools ({one:,} keys) and with httpx ({few:,} keys), local[2]"
        with theme("http_httpx", title, options.runs) as beside:
            clients = {ONE: looked_up("one", one), HTTPX: looked_up("one_httpx", few)}
            in_turn(clients, 1)
            took = in_turn(clients, options.runs)
            faster = ratio(took[HTTPX], took[ONE]) * one / few
            beside.add(Figure(f"speed of the {ONE} / the same over httpx", faster))


def _watched(way: Way, name: str, server: int, served: dict[str, float]) -> Way:
    """``way``, noting in ``served`` the processor seconds of the server in its last run."""

    def run() -> object:
        before = seconds_of(server)
        result = way()
        served[name] = seconds_of(server) - before
        return result

    return run


def _print(
    samples: Mapping[str, list[Sample]], counts: Mapping[str, int], served: Mapping[str, float]
) -> None:
    for name, each in samples.items():
        took, count = seconds(each), counts[name]
        cpu = statistics.median(sample.cpu for sample in each) / count * 1e6
        server = served[name] / count * 1e6
        print(
            f"  {name:<40} {took:>7.2f} s {count / took:>10,.0f} keys/s;"
            f" {cpu:>6.1f} us of processors per key, {server:>5.1f} of them the server's",
            flush=True,
        )


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


def _declare(session: LookupSession, url: str) -> None:
    columns = "id BIGINT, name STRING, country STRING"
    register_connector("http_httpx", OverHttpx)
    for table, path, more in (
        ("one", "/people/{id}", ""),
        ("one_httpx", "/people/{id}", ""),
        ("many", "/people?ids={id}", f", 'keys-per-request' = '{MANY}'"),
        ("more", "/people", f", 'keys-per-request' = '{MORE}', 'method' = 'POST', 'body' = '[\"{{id}}\"]'"),
    ):
        connector = "http_httpx" if table == "one_httpx" else "http"
        session.sql(
            f"CREATE TEMPORARY TABLE {table} ({columns})"
            f" WITH ('connector' = '{connector}', 'url' = '{url}{path}', 'capacity' = '{IN_FLIGHT}'{more})"
        )


def _looked_up(session: LookupSession, table: str, count: int) -> Way:
    """The query for ``count`` keys, planning included; all must be found."""
    query = QUERY.format(table=table, keys=f"range(0, {count}, 1, 2)")

    def run() -> None:
        [row] = session.sql(query).collect()
        assert row.found == count

    return run


if __name__ == "__main__":
    main()
