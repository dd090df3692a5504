"""Networks in PostgreSQL: an address finds those that Python's ``ipaddress`` says hold it."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import OptionError
from lookup_hints.spi import LookupRequest, LookupTable, OrderCondition, PlacedRows
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import during, failure_of

SCHEMA = pa.schema([("ip", pa.string()), ("tenant", pa.int32()), ("network", pa.string()), ("n", pa.int32())])
NO_ADDRESSES = ["", "-", " 10.0.0.1", "10.0.0", "010.0.0.1", "1359103393", "10.0.0.0/8", "::1::", "\0", "é"]
LAYOUTS = {
    "cidr in a B-tree": ("cidr", "(network)"),
    "cidr in GiST": ("cidr", "USING gist (network inet_ops)"),
    "inet in GiST": ("inet", "USING gist (network inet_ops)"),
    "cidr behind another column": ("cidr", "(tenant, network)"),
    "inet in a B-tree": ("inet", "(network)"),
}


def table_of(server: PostgresServer, name: str, schema: pa.Schema = SCHEMA, **options: str) -> LookupTable:
    given = {"network-column": "network", **{key.replace("_", "-"): text for key, text in options.items()}}
    return LookupTable(name, schema, (), {"connector": "postgres", "url": server.url(), **given})


def asked(table: LookupTable, keys: dict[str, list[Any]]) -> list[Counter[tuple[Any, ...]]]:
    """The rows of each key, counted."""
    by = pa.table(keys, pa.schema([table.schema.field(name) for name in keys]))
    connector = PostgresConnector(table)
    connector.check()
    answer = during(connector, lambda open_: open_.alookup(LookupRequest(by, table.schema, 30.0)))
    assert isinstance(answer, PlacedRows)
    assert answer.positions is not None
    found: list[Counter[tuple[Any, ...]]] = [Counter() for _ in range(by.num_rows)]
    for position, row in zip(answer.positions.to_pylist(), answer.rows.to_pylist(), strict=True):
        found[position][tuple(row.values())] += 1
    return found


def random_text(chance: Random, near: list[IPv4Network | IPv6Network]) -> str:
    """An address, mostly at or beside an end of a network, in one of its spellings."""
    network = chance.choice(near)
    ends = [int(network[0]), int(network[-1])]
    number = chance.choice(
        [*ends, *(each + step for each in ends for step in (-1, 1)), chance.randint(*ends)]
    )
    if network.version == 4:
        address = IPv4Address(number % 2**32)
        return chance.choice(
            [str(address), f"::ffff:{address}", f"::FFFF:{number >> 16 & 0xFFFF:x}:{number & 0xFFFF:x}"]
        )
    long = IPv6Address(number % 2**128)
    return chance.choice([str(long), long.exploded, long.exploded.upper(), f"{long}%eth0"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_longest_network_that_holds_an_address_answers(
    postgres_server: PostgresServer, layout: str
) -> None:
    kind, index = LAYOUTS[layout]
    chance, name = Random(layout), f"networks_{layout.replace(' ', '_').replace('-', '_').lower()}"
    bases = [chance.randrange(2**32) for _ in range(4)], [chance.randrange(2**128) for _ in range(4)]
    rows: list[tuple[int, Any, int]] = []
    for number in range(120):
        is_long = number % 2
        bits = chance.choice([0, 1, 7, 31, 32, 64, 127, 128] if is_long else [0, 1, 8, 20, 31, 32])
        host = (IPv6Address if is_long else IPv4Address)(chance.choice(bases[is_long]))
        text = f"{host}/{bits}" if kind == "inet" else str(ip_network((host.packed, bits), strict=False))
        rows.append((number % 3, text, number))
    values = ", ".join(f"({tenant}, '{text}', {number})" for tenant, text, number in rows)
    postgres_server.execute(
        f"CREATE TABLE {name} (tenant int, network {kind}, n int); INSERT INTO {name} VALUES {values},"
        f" (1, NULL, -1); CREATE INDEX ON {name} {index}; ANALYZE {name}"
    )
    networks = [(tenant, ip_network(text, strict=False), text, number) for tenant, text, number in rows]
    texts = sorted({random_text(chance, [each for _, each, _, _ in networks]) for _ in range(150)})
    texts += NO_ADDRESSES

    def due(text: str, tenant: int | None) -> Counter[tuple[Any, ...]]:
        try:
            address = ip_address(text)
        except ValueError:
            return Counter()
        address = getattr(address, "ipv4_mapped", None) or ip_address(address.packed)
        holding = [each for each in networks if address in each[1] and tenant in (None, each[0])]
        longest = max((each.prefixlen for _, each, _, _ in holding), default=0)
        found = [each for each in holding if each[1].prefixlen == longest]
        return Counter((text, owner, shown, number) for owner, _, shown, number in found)

    table = table_of(postgres_server, name)
    assert asked(table, {"ip": texts}) == [due(text, None) for text in texts]
    tenants = [chance.randrange(4) for _ in texts]
    assert asked(table, {"tenant": tenants, "ip": texts}) == [*map(due, texts, tenants)]
    assert sum(rows.total() > 1 for rows in asked(table, {"ip": texts})) > 5, "some networks are there twice"


@pytest.mark.parametrize(
    ("kind", "index", "used"),
    [
        ("cidr", "(network)", "= ANY"),
        ("cidr", "USING gist (network inet_ops)", ">>="),
        ("inet", "USING gist (network inet_ops)", ">>="),
    ],
)
def test_an_index_finds_the_networks(
    postgres_server: PostgresServer, kind: str, index: str, used: str
) -> None:
    name = f"indexed_{kind}_{'gist' if 'gist' in index else 'btree'}"
    postgres_server.execute(
        f"CREATE TABLE {name} AS SELECT set_masklen('10.0.0.0'::inet + n * 256, 24)::{kind} AS network"
        f" FROM generate_series(0, 20000) AS n; CREATE INDEX ON {name} {index}; ANALYZE {name}"
    )
    schema = pa.schema([SCHEMA.field("ip"), SCHEMA.field("network")])
    request = LookupRequest(pa.table({"ip": ["10.0.7.9"]}), schema)

    async def plan(connector: PostgresConnector) -> list[Any]:
        live: Any = connector._live
        query, _, bound = live.statements.of(request)
        async with live.pool.borrowed() as connection:
            return [row[0] for row in await connection.fetch(f"EXPLAIN {query}", *bound, 1000)]

    table = table_of(postgres_server, name, schema)
    steps = during(PostgresConnector(table), plan)
    assert any("Index Cond" in step and used in step for step in steps)
    assert asked(table, {"ip": ["10.0.7.9"]}) == [Counter({("10.0.7.9", "10.0.7.0/24"): 1})]


def test_the_columns_are_told_with_that_of_addresses(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE TABLE told_networks (network cidr PRIMARY KEY, n int)")
    schema, key = PostgresConnector(table_of(postgres_server, "told_networks", pa.schema([]))).discover()
    assert schema == pa.schema([("ip", pa.string()), ("network", pa.string()), ("n", pa.int32())])
    assert key == ("network",)
    connector = PostgresConnector(table_of(postgres_server, "told_networks", schema))
    assert connector.required_keys() == connector.request_columns() == {"ip"}
    assert not connector.can_order(OrderCondition("n"))


def test_a_column_without_networks_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE TABLE no_networks (tenant int, network text, n int)")
    for options, message in (
        ({}, "column 'network': PostgreSQL's text is no network. Look up in a view that casts it to cidr"),
        ({"network_column": "netwrk"}, "there is no column 'netwrk'. Did you mean 'network'"),
    ):
        table = table_of(postgres_server, "no_networks", **options)
        error = failure_of(lambda table=table: asked(table, {"ip": ["10.0.0.1"]}))  # type: ignore[misc]
        assert error.permanent
        assert message in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address-column": "n", "network-column": "network"}, "no column n STRING for the address"),
        (
            {"address-column": "ipp", "network-column": "network"},
            "no column ipp STRING for the address. Did you",
        ),
        (
            {"address-column": "ip"},
            "'address-column' has no effect without 'network-column'. Name the column",
        ),
        ({"network-column": "IP"}, "'ip' is the column of networks and that of addresses. Name a column of"),
        ({"network-column": "${env:COLUMN}"}, "'network-column' may not be a reference"),
        (
            {"network-column": "network", "lookup.cache.changed-column": "n"},
            "'lookup.cache.changed-column' has no effect with 'network-column': changed rows have no address",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, str], message: str) -> None:
    table = LookupTable("t", SCHEMA, (), {"connector": "postgres", "host": "localhost", **options})
    with pytest.raises(OptionError, match="table t: ") as caught:
        PostgresConnector(table).check()
    assert message in str(caught.value)


def test_an_equality_without_the_option_means_what_it_meant(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "CREATE TABLE plain_networks (network cidr); INSERT INTO plain_networks VALUES ('10.0.0.0/8')"
    )
    schema = pa.schema([SCHEMA.field("network")])
    table = LookupTable("plain_networks", schema, (), {"connector": "postgres", "url": postgres_server.url()})
    keys = pa.table({"network": ["10.0.0.0/8", "10.0.0.1", "10.0.0.0"]})
    answer: Any = during(PostgresConnector(table), lambda open_: open_.alookup(LookupRequest(keys, schema)))
    assert answer.to_pylist() == [{"network": "10.0.0.0/8"}]
    assert PostgresConnector(table).required_keys() == frozenset()
