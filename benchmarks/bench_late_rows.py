"""Orders whose customers are not there yet: 1 % of them appear 15 seconds after the query has begun.

``python -m benchmarks.bench_late_rows [--orders N] [--runs N]``. ``fixed-delay`` is 10 s, ``max-attempts`` 3.
Beside the times stands what Flink's rule gives, computed and not measured: there a key holds one of
`capacity` slots until its retries are over, so late keys pass through a task in groups of `capacity`.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable

from benchmarks.bench_postgres import session_with, write_orders
from benchmarks.measuring import (
    Figure,
    WorkerMemory,
    drained,
    in_turn,
    scratch,
    seconds,
    spark_session,
    theme,
)
from benchmarks.postgres_raw import CUSTOMERS, ORDERS, customers_server, order_keys
from lookup_hints import LookupSession
from tests.servers.postgres import PostgresServer

LATE_ONE_IN = 100
APPEAR_SECONDS = 15.0
DELAY_SECONDS = 10.0
CAPACITY = 100
TASKS = 2
HINT = (
    "/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
    " 'fixed-delay'='10s', 'max-attempts'='3', 'output-mode'='{mode}') */"
)
QUERY = "SELECT {hint} o.order_id, c.id FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
MODES = ("ordered", "allow_unordered")


def main() -> None:
    """Time the query without late rows, and with them in both output modes, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    title = f"Late rows: {options.orders:,} orders, 1 % of the customers appear after {APPEAR_SECONDS:g} s"
    with (
        customers_server() as server,
        theme("late_rows", title, options.runs) as found,
        scratch() as folder,
        spark_session() as spark,
    ):
        server.execute(
            f"CREATE TABLE late AS SELECT * FROM customers WHERE id % {LATE_ONE_IN} = 0; ANALYZE late"
        )
        keys = order_keys(options.orders, ids=CUSTOMERS)
        write_orders(folder / "orders", keys)
        session = session_with(spark, server, folder, transport="arrow")
        drained(session, QUERY.format(hint=""))()
        for mode in MODES:  # nothing is left without its customer
            missed = _missed_with_late_rows(server, session, mode)
            found.add(Figure(f"orders that stay without their customer, {mode}", missed, at_most=0))
        memory = WorkerMemory()
        with memory:
            samples = in_turn(
                {
                    "all rows there": drained(session, QUERY.format(hint="")),
                    **{mode: _late(server, session, mode) for mode in MODES},
                },
                options.runs,
            )
        found.times(samples)
        for mode in MODES:
            added = seconds(samples[mode]) - seconds(samples["all rows there"])
            found.add(Figure(f"time added by late rows, {mode}", added, " s", at_most=35.0))
        megabytes = memory.peak / 1e6
        found.add(Figure("largest resident size of a worker", megabytes, " MB", at_most=500.0))
        _add_flinks_rule(found.add, sum(key % LATE_ONE_IN == 0 for key in keys))


def _late(server: PostgresServer, session: LookupSession, mode: str) -> Callable[[], float]:
    query = QUERY.format(hint=HINT.format(mode=mode))

    def run() -> float:
        _take_away(server)
        start = time.perf_counter()
        coming = threading.Timer(APPEAR_SECONDS, _bring_back, [server])
        coming.start()
        drained(session, query)()
        taken = time.perf_counter() - start
        coming.join()
        return taken

    return run


def _missed_with_late_rows(server: PostgresServer, session: LookupSession, mode: str) -> int:
    query = QUERY.format(hint=HINT.format(mode=mode))
    _take_away(server)
    coming = threading.Timer(APPEAR_SECONDS, _bring_back, [server])
    coming.start()
    row = session.sql(f"SELECT count(*) - count(id) AS missed FROM ({query})").collect()[0]
    coming.join()
    return int(row.missed)


def _take_away(server: PostgresServer) -> None:
    server.execute(f"DELETE FROM customers WHERE id % {LATE_ONE_IN} = 0")
    server.execute("VACUUM customers")


def _bring_back(server: PostgresServer) -> None:
    server.execute("INSERT INTO customers SELECT * FROM late")


def _add_flinks_rule(add: Callable[[Figure], None], late_orders: int) -> None:
    waits = 2  # the row appears between the first and the second retry
    held = waits * DELAY_SECONDS
    note = f"{late_orders:,} late orders, each holds its slot for {held:g} s"
    computed = late_orders / (CAPACITY * TASKS) * held
    add(Figure("computed: Flink's async lookup, capacity 100, 2 tasks", computed, " s", note=note))
    blocking = late_orders / TASKS * held
    add(Figure("computed: Flink's sync lookup, 2 tasks", blocking, " s"))


if __name__ == "__main__":
    main()
