"""Writes ``tpch/refused.txt``: ``python -m tests.sql.record``; the tests then hold the planner to it."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from lookup_hints.errors import UnsupportedLookup
from tests.conftest import local_spark
from tests.sql.test_tpch import CONF
from tests.sql.tpch.data import tables
from tests.sql.tpch.pairs import REFUSED, Pair, pairs, reason_of
from tests.sql.worlds import Worlds

_HEAD = "# Pairs of a TPC-H query and its lookup tables that are refused, and why; made by python -m tests.sql.record\n"


def main() -> None:
    """Plan every pair and write down those that are refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for spark in local_spark(folder / "warehouse"):
            (folder / "made").mkdir()
            worlds = Worlds(spark, folder, tables(folder / "made"), CONF)
            reasons = {str(pair): _reason(worlds, pair) for pair in pairs()}
    refused = {pair: reason for pair, reason in reasons.items() if reason is not None}
    lines = (f"{pair}: {reason}\n" for pair, reason in refused.items())
    REFUSED.write_text(_HEAD + "".join(lines), encoding="utf-8")
    print(f"{len(reasons) - len(refused)} of {len(reasons)} pairs are planned")
    for reason, count in Counter(refused.values()).most_common():
        print(f"{count:4} {reason}")


def _reason(worlds: Worlds, pair: Pair) -> str | None:
    try:
        worlds.world(pair.lookups).session.prepare(pair.text)
    except UnsupportedLookup as error:
        return reason_of(error)
    except Exception as error:  # the tests will show it; the file is about refusals
        print(f"{pair}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
