"""Lookups of IP addresses in a file of networks, held against Spark's join with what Python's ipaddress finds."""

from __future__ import annotations

import random
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from tests.spark.test_pages import DOCS, blocks_of, run_blocks
from tests.unit.connectors.mmdb_file import mmdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("maxminddb")


def test_a_join_by_address_is_the_join_by_the_longest_network(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(1)
    places = [f"10.{rng.randrange(4)}.{rng.randrange(9)}.0/{rng.randint(17, 24)}" for _ in range(30)]
    places += [f"2001:db8:{rng.randrange(9):x}::/{rng.randint(46, 64)}" for _ in range(30)]
    networks = sorted({ip_network(each, strict=False) for each in places}, key=lambda each: each.prefixlen)
    (tmp_path / "geo.mmdb").write_bytes(mmdb({str(net): {"name": str(net)} for net in networks}))
    texts = [f"10.{rng.randrange(6)}.{rng.randrange(12)}.{rng.randrange(256)}" for _ in range(300)]
    texts += [f"2001:db8:{rng.randrange(12):x}::{rng.randrange(99):x}" for _ in range(300)]
    texts += [f"::FFFF:{text}" for text in texts[:50]] + [f" {text}" for text in texts[:9]] + ["", "?"]
    found = []
    for text in dict.fromkeys(texts):
        try:
            address = ip_address(text)
        except ValueError:
            continue
        address = getattr(address, "ipv4_mapped", None) or address
        holding = [str(net) for net in networks if address in net]
        found += [(text, holding[-1])] if holding else []
    assert 100 < len(found) < len(texts) - 100, len(found)
    session = LookupSession(spark.newSession())
    rows = [*enumerate([*texts, None, *texts[::7]])]
    session.spark.createDataFrame(rows, "id INT, ip STRING").repartition(3).createOrReplaceTempView("o")
    session.spark.createDataFrame(found, "ip STRING, name STRING").createOrReplaceTempView("expected")
    session.sql(
        "CREATE TEMPORARY TABLE geo (name STRING, ip STRING)"
        f" WITH ('connector' = 'mmdb', 'path' = '{tmp_path}/geo.mmdb')"
    )
    query = "SELECT o.id, 'l', g.ip, g.name FROM o LEFT JOIN {0} g ON o.ip = g.ip UNION ALL SELECT o.id, 'i', g.ip, g.name FROM o JOIN {0} g ON o.ip = g.ip"
    expected = session.spark.sql(query.format("expected")).collect()
    assert sorted(map(str, session.sql(query.format("geo")).collect())) == sorted(map(str, expected))


def test_the_page_on_networks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "city.mmdb"
    file.write_bytes(
        mmdb(
            {
                "81.2.69.160/27": {"country": {"iso_code": "GB"}, "city": {"names": {"en": "London"}}},
                "89.160.20.112/28": {"country": {"iso_code": "SE"}, "city": {"names": {"en": "Linköping"}}},
                "2001:218::/32": {"country": {"iso_code": "JP"}},
            }
        )
    )
    page = (
        (DOCS / "which-network.md").read_text(encoding="utf-8").replace("/data/GeoLite2-City.mmdb", str(file))
    )
    blocks = blocks_of(page)
    assert [kind for kind, _ in blocks] == ["python", ""] * 3
    run_blocks(blocks, "which-network.md", spark, capsys)
