"""The mmdb connector, over files in MaxMind's format that the tests write."""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.errors import ConnectorError, NotAllowed, OptionError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.security_policy import Policy
from lookup_hints.testing import ConnectorContract
from tests.unit.connectors.asking import failure_of, request_for
from tests.unit.connectors.mmdb_file import Sized, mmdb

pytest.importorskip("maxminddb")

from lookup_connectors.mmdb import MmdbConnector

LONDON: dict[str, Any] = {
    "city": {"names": {"en": "London"}},
    "country": {"iso_code": "GB", "geoname_id": Sized("uint32", 2_635_167)},
    "location": {"latitude": 51.5142, "radius": Sized("uint16", 10)},
    "subdivisions": [{"iso_code": "ENG"}, {"iso_code": "LND"}],
    "is_anycast": True,
    "accuracy": Sized("float", 0.5),
    "serial": Sized("uint64", 2**64 - 1),
    "wide": Sized("uint128", 2**100),
    "few": Sized("uint128", 7),
    "below": -5,
    "raw": b"\x00",
    "long": "x" * 300,
}
FILE = {"81.2.69.160/27": LONDON, "81.2.0.0/16": {"country": {"iso_code": "IE"}}, "2001:218::/32": {"few": 3}}


def table_of(path: Path, columns: Mapping[str, pa.DataType] | None = None, **options: str) -> LookupTable:
    schema = pa.schema({"ip": pa.string(), **(columns or {})})
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return LookupTable("geo", schema, options={"connector": "mmdb", "path": str(path), **given})


def connected(table: LookupTable) -> MmdbConnector:
    table.check(MmdbConnector.OPTIONS)
    connector = MmdbConnector(table)
    connector.check()
    connector.open()
    return connector


def ask(connector: MmdbConnector, *addresses: str) -> dict[str, Any]:
    """The row of each address that has one."""
    answer = connector.lookup(request_for(connector.table.schema, {"ip": [*addresses]}))
    assert answer.positions is not None
    rows = answer.rows.to_pylist()
    assert [row.pop("ip") for row in rows] == [addresses[at] for at in answer.positions.to_pylist()]
    return {addresses[at]: row for at, row in zip(answer.positions.to_pylist(), rows, strict=True)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "geo.mmdb"
    path.write_bytes(mmdb(FILE))
    return path


class TestContract(ConnectorContract):
    connector_type = MmdbConnector
    present = ({"ip": "81.2.69.161"}, {"ip": "81.2.1.1"}, {"ip": "::ffff:81.2.69.161"}, {"ip": "2001:218::1"})
    absent = ({"ip": "9.9.9.9"}, {"ip": "no address"})

    @pytest.fixture
    def table(self, file: Path) -> LookupTable:
        columns = {"country": pa.string(), "few": pa.int64(), "net": pa.string()}
        return table_of(file, columns, path__country="country.iso_code", path__net="$network")


# --- networks -------------------------------------------------------------------------------------


def _random_networks(rng: random.Random, version: int, count: int) -> list[IPv4Network | IPv6Network]:
    """Networks that often hold each other, and lie side by side."""
    bits = 32 if version == 4 else 128
    start = 0 if version == 4 else 0x2001 << 112
    bases = [start | rng.getrandbits(bits if version == 4 else 100) for _ in range(4)]
    made = set()
    for _ in range(count):
        length = rng.randint(1 if version == 4 else 16, bits)
        near = rng.choice(bases) ^ (rng.getrandbits(bits) >> rng.randint(8, bits))
        made.add(ip_network((near.to_bytes(bits // 8, "big"), length), strict=False))
    return sorted(made, key=str)


def _addresses_near(rng: random.Random, networks: list[IPv4Network | IPv6Network]) -> list[str]:
    ends = [end for net in networks for end in (int(net.network_address), int(net.broadcast_address))]
    top = networks[0].max_prefixlen
    found = [each for end in ends for each in (end - 1, end, end + 1) if 0 <= each < 2**top]
    found += [rng.getrandbits(top) for _ in range(50)]
    return list(dict.fromkeys(str(ip_address(each.to_bytes(top // 8, "big"))) for each in found))


@pytest.mark.parametrize("bits", [24, 28, 32])
@pytest.mark.parametrize("version", [4, 6])
def test_an_address_has_the_record_of_the_longest_network_that_holds_it(
    tmp_path: Path, bits: int, version: int
) -> None:
    rng = random.Random(bits * version)
    networks = {each: _random_networks(rng, each, 40) for each in (4, 6)[: 1 if version == 4 else 2]}
    every = [net for nets in networks.values() for net in nets]
    path = tmp_path / "random.mmdb"
    path.write_bytes(mmdb({str(net): {"of": str(net)} for net in every}, bits=bits, version=version))
    columns = {"of": pa.string(), "net": pa.string()}
    connector = connected(table_of(path, columns, path__net="$network"))
    hits = 0
    for family, nets in networks.items():
        addresses = _addresses_near(rng, nets)
        rows = ask(connector, *addresses)
        for text in addresses:
            holding = [net for net in nets if ip_address(text) in net]
            longest = max(holding, key=lambda net: net.prefixlen, default=None)
            assert rows.get(text, {"of": None})["of"] == (None if longest is None else str(longest)), text
            if longest is not None:
                hits += 1
                part = ip_network(rows[text]["net"])  # a network around a smaller one is told in parts
                assert ip_address(text) in part
                assert int(longest.network_address) <= int(part.network_address)
                assert int(part.broadcast_address) <= int(longest.broadcast_address), family
        if family == 4:
            mapped = ask(connector, *(f"::ffff:{text}" for text in addresses))
            assert mapped == {f"::ffff:{text}": row for text, row in rows.items()}
    assert hits > 100


def test_an_ipv4_address_in_a_network_of_ipv6_has_all_of_ipv4_as_its_network(tmp_path: Path) -> None:
    path = tmp_path / "wide.mmdb"
    path.write_bytes(mmdb({"::/20": {"few": 1}}))
    connector = connected(table_of(path, {"net": pa.string()}, path__net="$network"))
    assert ask(connector, "1.2.3.4", "::1") == {"1.2.3.4": {"net": "0.0.0.0/0"}, "::1": {"net": "::/20"}}


NO_ADDRESSES = [
    "",
    " 81.2.69.161",
    "81.2.69.161 ",
    "81.2.69.161/32",
    "081.2.69.161",
    "81.2.17825",
    "1359103393",
    "0x51024590",
    "81.2.69.161:80",
    "[2001:218::1]",
    "٨1.2.69.161",
    "localhost",
]


def test_a_text_that_is_no_address_is_a_miss_and_never_another_address(file: Path) -> None:
    assert ask(connected(table_of(file)), *NO_ADDRESSES, "81.2.69.161") == {"81.2.69.161": {}}


def test_a_text_that_is_no_address_can_fail_alone(file: Path) -> None:
    connector = connected(table_of(file, invalid_address="error"))
    answer = connector.lookup(
        request_for(connector.table.schema, {"ip": [" 81.2.69.161", "81.2.69.161", "9.9.9.9"]})
    )
    assert answer.positions is not None
    assert answer.positions.to_pylist() == [1]
    assert {at: str(error) for at, error in answer.failures.items()} == {
        0: "table geo: ' 81.2.69.161' is no IP address. Correct the value, or trim it."
    }


def test_a_file_of_ipv4_alone_misses_an_ipv6_address(tmp_path: Path) -> None:
    path = tmp_path / "four.mmdb"
    path.write_bytes(mmdb({"1.2.3.0/24": {"few": 1}}, version=4))
    rows = ask(connected(table_of(path, {"few": pa.int8()})), "2001::1", "1.2.3.4", "::ffff:1.2.3.4")
    assert rows == {"1.2.3.4": {"few": 1}, "::ffff:1.2.3.4": {"few": 1}}


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("city.names.en", pa.string(), "London"),
        ("country.geoname_id", pa.int64(), 2_635_167),
        ("location.latitude", pa.float64(), 51.5142),
        ("location.latitude", pa.float32(), 51.514198303222656),
        ("location.radius", pa.int16(), 10),
        ("subdivisions[1].iso_code", pa.string(), "LND"),
        ("subdivisions[-1].iso_code", pa.string(), "LND"),
        ("subdivisions[9].iso_code", pa.string(), None),
        ("subdivisions[].iso_code", pa.list_(pa.string()), ["ENG", "LND"]),
        ("is_anycast", pa.bool_(), True),
        ("accuracy", pa.float64(), 0.5),
        ("serial", pa.decimal128(20, 0), Decimal(2**64 - 1)),
        ("wide", pa.decimal128(38, 0), Decimal(2**100)),
        ("few", pa.int8(), 7),
        ("below", pa.int32(), -5),
        ("long", pa.string(), "x" * 300),
        ("city.names", pa.map_(pa.string(), pa.string()), [("en", "London")]),
        ("location", pa.struct({"latitude": pa.float64(), "radius": pa.int32()}), {"latitude": 51.5142, "radius": 10}),
        ("nothing.here", pa.string(), None),
        ("$network", pa.string(), "81.2.69.160/27"),
    ],
)  # fmt: skip
def test_a_value_is_found_by_its_path(file: Path, path: str, kind: pa.DataType, expected: Any) -> None:
    rows = ask(connected(table_of(file, {"Value": kind}, path__value=path)), "81.2.69.161")
    assert rows["81.2.69.161"]["Value"] == expected


@pytest.mark.parametrize(
    ("column", "kind", "what"),
    [
        ("serial", pa.int64(), f"{2**64 - 1} (int) does not fit BIGINT."),
        ("wide", pa.int64(), f"{2**100} (int) does not fit BIGINT."),
        ("few", pa.string(), "7 (int) does not fit STRING."),
        ("long", pa.int32(), "does not fit INT."),
        ("raw", pa.string(), "does not fit STRING."),
        ("city", pa.string(), "{'names': {'en': 'London'}} (dict) does not fit STRING."),
    ],
)
def test_a_value_that_does_not_fit_is_named(file: Path, column: str, kind: pa.DataType, what: str) -> None:
    connector = connected(table_of(file, {column: kind}))
    text = str(failure_of(lambda: ask(connector, "81.2.69.161")))
    assert text.startswith(f"table geo: column '{column}' of the row '81.2.69.161' (path {column}): ")
    assert what in text
    assert "declare the column with a type that holds it" in text


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        ({}, {"address_column": "addr"}, "there is no column addr STRING for the address"),
        ({"n": pa.int64()}, {"address_column": "n"}, "there is no column n STRING for the address"),
        ({}, {"address_column": "${env:A}"}, "'address-column' may not be a reference"),
        ({"city": pa.string()}, {"path__cty": "city"}, "'path.cty': there is no column 'cty'. Did you mean 'city'?"),
        ({"city": pa.string()}, {"path__city": "city..x"}, "'path.city': it is not JMESPath"),
        ({"city": pa.string()}, {"path__city": "$netwerk"}, "'path.city': there is no '$netwerk', only $network"),
        ({"city": pa.int8()}, {"path__city": "$network"}, "column 'city': $network is STRING, not TINYINT"),
        ({}, {"path__ip": "address"}, "column 'ip' holds the address asked for, and takes no path"),
        ({"raw": pa.binary()}, {}, "column 'raw': no value can be read as BINARY"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_answered_is_refused(
    file: Path, columns: dict[str, pa.DataType], options: dict[str, str], what: str
) -> None:
    with pytest.raises(OptionError) as refused:
        MmdbConnector(table_of(file, columns, **options)).check()
    assert what in " ".join(str(refused.value).split())


def test_the_column_of_addresses_may_have_another_name(file: Path) -> None:
    table = LookupTable(
        "geo", pa.schema({"Addr": pa.string()}), options={"path": str(file), "address-column": "addr"}
    )
    connector = connected(table)
    assert connector.key_columns() == connector.required_keys() == {"Addr"}
    assert connector.lookup(request_for(table.schema, {"Addr": ["81.2.69.161"]})).rows.num_rows == 1


# --- the file -------------------------------------------------------------------------------------


def _write_csv(path: Path) -> None:
    path.write_text("network,country\n1.0.0.0/24,AU\n")


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def _damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b"London", b"\xff\xfe\xfdLon").replace(b"iso_code", b"\xff" * 8))


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (Path.unlink, "there is no file {path} on this machine. Each worker opens it"),
        (_write_csv, "{path} cannot be read as an MMDB file"),
        (_cut_short, "{path} cannot be read as an MMDB file"),
        (lambda path: path.write_bytes(b""), "{path} cannot be read as an MMDB file"),
        (_damage, "{path} is damaged where '81.2.69.161' is"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(file: Path, spoil: Callable[[Path], None], what: str) -> None:
    spoil(file)
    failure = failure_of(lambda: ask(connected(table_of(file)), "81.2.69.161"))
    assert f"table geo: {what.format(path=file)}" in str(failure)
    assert failure.permanent


def test_a_file_that_a_policy_does_not_allow_is_not_opened(file: Path) -> None:
    table = replace(table_of(file), policy=Policy(references=(("file:/data/*",),)))
    uses: list[Callable[[], None]] = [lambda: table.check(MmdbConnector.OPTIONS), MmdbConnector(table).open]
    for use in uses:
        with pytest.raises(NotAllowed, match=r"the file .*geo\.mmdb' is not allowed here"):
            use()


def test_a_machine_without_the_package_says_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "maxminddb", None)
    with pytest.raises(ConnectorError, match=r"pip install 'lookup-hints\[mmdb\]'"):
        connected(table_of(file))


def test_a_file_that_is_replaced_while_it_is_open_answers_the_next_request(file: Path) -> None:
    connector = connected(table_of(file, {"few": pa.int64()}))
    assert ask(connector, "2001:218::1") == {"2001:218::1": {"few": 3}}
    new = file.with_suffix(".new")
    new.write_bytes(mmdb({"2001:218::/32": {"few": 4}}))
    new.replace(file)
    assert ask(connector, "2001:218::1", "81.2.69.161") == {"2001:218::1": {"few": 4}}
    file.rename(new)
    for _ in range(2):
        assert "there is no file" in str(failure_of(lambda: ask(connector, "2001:218::1")))
    new.rename(file)
    assert ask(connector, "2001:218::1") == {"2001:218::1": {"few": 4}}


def test_an_answer_during_which_the_file_changed_is_looked_up_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connected(table_of(file, {"few": pa.int64()}))
    assert connector._live is not None
    reader = connector._live.reader

    class Slow:
        """A reader that meets the new file on its way."""

        def get_with_prefix_len(self, address: Any) -> Any:
            found = reader.get_with_prefix_len(address)
            new = file.with_suffix(".new")
            new.write_bytes(mmdb({"2001:218::/32": {"few": 4}}))
            os.utime(new, ns=(1, 1))
            new.replace(file)
            return found

        def close(self) -> None:
            reader.close()

    monkeypatch.setattr(connector, "_live", connector._live._replace(reader=Slow()))
    assert ask(connector, "2001:218::1") == {"2001:218::1": {"few": 4}}


def test_tasks_are_told_of_a_new_file_and_a_connector_that_is_open_travels_closed(file: Path) -> None:
    connector = connected(table_of(file))
    before = connector.opened_with()
    file.with_suffix(".new").write_bytes(mmdb({"1.0.0.0/8": {}}))
    file.with_suffix(".new").replace(file)
    assert connector.opened_with() != before
    travelled = pickle.loads(pickle.dumps(connector))
    travelled.open()
    assert ask(travelled, "1.2.3.4") == {"1.2.3.4": {}}
