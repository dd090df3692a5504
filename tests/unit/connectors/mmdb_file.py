"""Writes files in MaxMind's format: https://maxmind.github.io/MaxMind-DB/."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any


@dataclass(frozen=True)
class Sized:
    """A value that is written with a certain type: ``uint128``, ``float`` and the like."""

    kind: str
    value: Any


_NUMBERS = {"uint16": 5, "uint32": 6, "uint64": 9, "uint128": 10}


def mmdb(records: Mapping[str, Any], *, bits: int = 28, version: int = 6) -> bytes:
    """A file with a record for each network; of two that hold an address the longer one counts.

    Args:
        bits: the size of a record of the search tree: 24, 28 or 32.
        version: 4 for IPv4 alone, 6 for both.
    """
    nodes: list[list[Any]] = [[None, None]]
    for text in sorted(records, key=lambda text: ip_network(text).prefixlen):
        network, value = ip_network(text), records[text]
        path = f"{int(network.network_address):0{network.max_prefixlen}b}"[: network.prefixlen]
        path = "0" * 96 + path if (version, network.version) == (6, 4) else path
        _insert(nodes, path, _Leaf(value))
    data, tree = b"", b""
    places: dict[int, int] = {}
    for node in nodes:
        pair = []
        for child in node:
            if isinstance(child, _Leaf) and id(child) not in places:
                places[id(child)] = len(data)
                data += _encoded(child.value)
            to = len(nodes) + 16 + places[id(child)] if isinstance(child, _Leaf) else child
            pair.append(len(nodes) if to is None else to)
        left, right = pair
        tree += _node(left, right, bits)
    about = {
        "binary_format_major_version": Sized("uint16", 2),
        "binary_format_minor_version": Sized("uint16", 0),
        "build_epoch": Sized("uint64", 1_700_000_000),
        "database_type": "Test",
        "description": {"en": "Test"},
        "ip_version": Sized("uint16", version),
        "languages": ["en"],
        "node_count": Sized("uint32", len(nodes)),
        "record_size": Sized("uint16", bits),
    }
    return tree + bytes(16) + data + b"\xab\xcd\xefMaxMind.com" + _encoded(about)


class _Leaf:
    def __init__(self, value: Any) -> None:
        self.value = value


def _insert(nodes: list[list[Any]], path: str, leaf: _Leaf) -> None:
    """Put ``leaf`` at ``path``, which is not shorter than those put before."""
    node = 0
    for step in path[:-1]:
        child = nodes[node][int(step)]
        if not isinstance(child, int):
            nodes.append([child, child])
            child = nodes[node][int(step)] = len(nodes) - 1
        node = child
    nodes[node][int(path[-1])] = leaf


def _node(left: int, right: int, bits: int) -> bytes:
    if bits == 28:
        middle = (left >> 24) << 4 | right >> 24
        return (left & 0xFFFFFF).to_bytes(3, "big") + bytes([middle]) + (right & 0xFFFFFF).to_bytes(3, "big")
    return left.to_bytes(bits // 8, "big") + right.to_bytes(bits // 8, "big")


def _encoded(value: Any) -> bytes:
    if isinstance(value, Sized) and value.kind == "float":
        return _head(15, 4) + struct.pack(">f", value.value)
    if isinstance(value, Sized):
        number: bytes = value.value.to_bytes((value.value.bit_length() + 7) // 8, "big")
        return _head(_NUMBERS[value.kind], len(number)) + number
    if isinstance(value, bool):
        return _head(14, int(value))
    if isinstance(value, int):
        return _head(8, 4) + struct.pack(">i", value)
    if isinstance(value, float):
        return _head(3, 8) + struct.pack(">d", value)
    if isinstance(value, str | bytes):
        text = value.encode() if isinstance(value, str) else value
        return _head(2 if isinstance(value, str) else 4, len(text)) + text
    if isinstance(value, dict):
        items = (_encoded(key) + _encoded(item) for key, item in value.items())
        return _head(7, len(value)) + b"".join(items)
    return _head(11, len(value)) + b"".join(map(_encoded, value))


def _head(kind: int, size: int) -> bytes:
    first, extended = (kind << 5, b"") if kind < 8 else (0, bytes([kind - 7]))
    if size < 29:
        return bytes([first | size]) + extended
    if size < 285:
        return bytes([first | 29]) + extended + bytes([size - 29])
    return bytes([first | 30]) + extended + struct.pack(">H", size - 285)
