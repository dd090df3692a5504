"""The sync runner beside the async one, on one local PostgreSQL.

``python -m benchmarks.bench_runners [--orders N] [--runs N]``. Both send the same requests; the sync
runner has one in flight and waits for it.
"""

from __future__ import annotations

import argparse

from benchmarks.bench_postgres import COLUMNS, QUERY, session_with, write_orders
from benchmarks.measuring import (
    Figure,
    cpu_ratio,
    drained,
    in_turn,
    ratio,
    scratch,
    seconds,
    spark_session,
    theme,
)
from benchmarks.postgres_raw import ORDERS, customers_server, order_keys
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

DELAY_SECONDS = 2.0
RETRIED = (
    "SELECT {hint} o.id, c.name FROM (SELECT id FROM range(0, 200000, 1, 2)) o"
    " LEFT JOIN blocking c ON o.id * 50 = c.id"
)
HINT = (
    "/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
    f" 'fixed-delay'='{DELAY_SECONDS:g}s', 'max-attempts'='2') */"
)


def main() -> None:
    """Time both runners in turn, and what a retry adds to the sync one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    title = f"Sync runner: {options.orders:,} orders, local PostgreSQL, local[2]"
    with (
        customers_server() as server,
        theme("runners", title, options.runs) as found,
        scratch() as folder,
        spark_session() as spark,
    ):
        write_orders(folder / "orders", order_keys(options.orders))
        session = session_with(spark, server, folder, transport="arrow")
        _add_blocking(session, server)
        asynchronous = QUERY.format(orders="orders")
        ways = {
            "async": drained(session, asynchronous),
            "sync": drained(session, asynchronous.replace("customers c", "blocking c")),
            "sync, 180,000 misses": drained(session, RETRIED.format(hint="")),
            "sync, 180,000 misses asked again twice": drained(session, RETRIED.format(hint=HINT)),
        }
        in_turn(ways, 1)
        samples = in_turn(ways, options.runs)
        found.times(samples)
        note = f"processor seconds: {cpu_ratio(samples['async'], samples['sync']):.2f}"
        speed = ratio(samples["async"], samples["sync"])
        found.add(Figure("speed of the sync runner / of the async one", speed, at_least=0.6, note=note))
        plain, again = (seconds(samples[way]) for way in list(ways)[2:])
        waits = (again - plain) / DELAY_SECONDS
        note = "2 waits are due; the rest is asking 180,000 keys twice more"
        found.add(Figure("sync, time added by two retries, in delays", waits, at_most=4.0, note=note))


def _add_blocking(session: LookupSession, server: PostgresServer) -> None:
    session.sql(
        f"CREATE TEMPORARY TABLE blocking ({COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ("
        f"'connector' = 'benchmarks.connectors:Blocking', 'url' = '{server.url()}', "
        "'table-name' = 'customers')"
    )


if __name__ == "__main__":
    main()
