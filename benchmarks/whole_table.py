"""One worker process that looks up keys of a table that may be kept whole: ``<url> <FULL or NONE>``.

It has asked before, so what a connection and imports cost is behind it. Prints as JSON the seconds to its
first answer and to one more, and its memory without mapped files, in MB.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.lookup_spec import FullCache, LookupSettings, LookupSpec, PeriodicReload
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.worker.arrow_worker import look_up

SCHEMA = pa.schema(
    [
        *((name, kind) for name, kind in (("id", pa.int64()), ("name", pa.string()))),
        *((name, pa.string()) for name in ("country", "zip")),
        ("balance", pa.decimal128(12, 2)),
    ]
)
KEYS = 8192


def main() -> None:
    """Look up two windows."""
    url, kind = sys.argv[1:]
    whole = FullCache(PeriodicReload(3600.0), max_bytes=2**30) if kind == "FULL" else None
    table = LookupTable(
        "customers", SCHEMA, ("id",), {"connector": "postgres", "url": url, "table-name": "customers"}
    )
    asks = LookupSpec(PostgresConnector(table), ("id",), tuple(SCHEMA.names), LookupSettings(True))
    spec = replace(asks, settings=replace(asks.settings, whole=whole))
    _seconds(asks, 0)
    first, second = (_seconds(spec, seed) for seed in (1, 2))
    print(json.dumps({"first": first, "second": second, "memory": _memory()}))


def _seconds(spec: LookupSpec, seed: int) -> float:
    keys = pa.array(random.Random(seed).sample(range(1, 1_000_001), KEYS))
    start = time.perf_counter()
    found = sum(len(lists.flatten()) for lists in look_up(spec, "customers", iter([(keys,)]), None))
    assert found == KEYS
    return time.perf_counter() - start


def _memory() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


if __name__ == "__main__":
    main()
