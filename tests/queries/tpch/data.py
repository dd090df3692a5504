"""The tables of TPC-H, made by ``tpchgen-cli``, with their primary keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.queries.worlds import Data

SCALE = "0.01"
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


def tables(folder: Path) -> dict[str, Data]:
    """All eight tables at scale 0.01; ``folder`` takes the generator's files."""
    command = Path(sys.executable).with_name("tpchgen-cli")
    arguments = ["parquet", "--scale-factor", SCALE, "--output-dir", str(folder)]
    subprocess.run([command, *arguments], check=True)
    return {name: Data(_plain(pq.read_table(folder / f"{name}.parquet")), key) for name, key in KEYS.items()}


def _plain(table: pa.Table) -> pa.Table:
    """``table`` with ordinary strings: the generator writes string views."""
    strings = {pa.string_view(): pa.string()}
    return table.cast(
        pa.schema([(column.name, strings.get(column.type, column.type)) for column in table.schema])
    )
