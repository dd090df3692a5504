"""How long a small query waits for its lookup, and how much a ``LIMIT`` asks for.

``python -m benchmarks.bench_latency [--runs N]``
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.bench_postgres import session_with, write_orders
from benchmarks.measuring import Figure, drained, in_turn, scratch, seconds, spark_session, theme
from benchmarks.postgres_raw import ORDERS, customers_server, order_keys
from lookup_hints import LookupSession

PLAIN = "SELECT o.order_id, o.customer_id FROM {orders} o"
JOINED = "SELECT o.order_id, c.name, c.country FROM {orders} o LEFT JOIN customers c ON o.customer_id = c.id"
FEW = 100
PAUSE = 0.3


def main() -> None:
    """Time a query over few rows with and without its lookup, in turn, and count what a LIMIT asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs: int = parser.parse_args().runs
    with (
        customers_server() as server,
        theme("latency", f"Latency: {FEW} rows, and LIMIT 20 over {ORDERS:,}", runs) as found,
        scratch() as folder,
        spark_session() as spark,
    ):
        keys = order_keys(ORDERS)
        write_orders(folder / "few", keys[:FEW])
        write_orders(folder / "orders", keys)
        session = session_with(spark, server, folder, transport="arrow")
        ways = {
            "without the lookup": drained(session, PLAIN.format(orders="few")),
            "with the lookup": drained(session, JOINED.format(orders="few")),
        }
        in_turn(ways, 10, PAUSE)
        samples = in_turn(ways, runs, PAUSE)
        found.times(samples)
        pairs = zip(samples["with the lookup"], samples["without the lookup"], strict=True)
        added = statistics.median(one.seconds - other.seconds for one, other in pairs) * 1000
        note = f"of {seconds(samples['with the lookup']) * 1000:.0f} ms in all, planning included"
        found.add(Figure(f"time added to {FEW} rows", added, " ms", at_most=150.0, note=note))
        requests = _asked_by_limit(session, folder / "notes")
        found.add(Figure("requests sent by LIMIT 20", len(requests), at_most=4))
        found.add(Figure("keys asked by LIMIT 20", sum(requests)))


def _asked_by_limit(session: LookupSession, notes: Path) -> list[int]:
    """How many keys each request had."""
    session.sql(
        "CREATE TEMPORARY TABLE counted (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
        f" ('connector' = 'benchmarks.connectors:Counted', 'notes' = '{notes}')"
    )
    query = "SELECT o.order_id, c.name FROM orders o JOIN counted c ON o.customer_id = c.id LIMIT 20"
    assert len(session.sql(query).collect()) == 20
    return [int(line) for line in notes.read_text(encoding="ascii").splitlines()]


if __name__ == "__main__":
    main()
