"""Writes ``tpch/outcomes.txt``: ``python -m tests.queries.record``; the tests then hold the planner to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.conftest import local_spark
from tests.queries.test_tpch import CONF
from tests.queries.tpch.data import tables
from tests.queries.tpch.pairs import OUTCOMES, outcome_of, pairs
from tests.queries.worlds import Worlds

_HEAD = "# What becomes of each TPC-H query and its lookup tables; made by python -m tests.queries.record\n"


def main() -> None:
    """Plan every pair and write down what becomes of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for spark in local_spark(folder / "warehouse"):
            (folder / "made").mkdir()
            worlds = Worlds(spark, folder, tables(folder / "made"), CONF)
            lines = [f"{pair}: {outcome_of(pair, worlds.world(pair.lookups).session)}\n" for pair in pairs()]
    OUTCOMES.write_text(_HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
