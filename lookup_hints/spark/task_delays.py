"""What PySpark's worker costs each of its tasks, and a lookup spares it (docs/decisions/0031).

It waits 40 ms for its input: the JVM writes in parts and, by Nagle's algorithm, sends a small one when those
before it were acknowledged, which TCP puts off. And after each task it collects garbage among the objects
of all modules, for as long again.
"""

from __future__ import annotations

import ctypes
import gc
import socket
import sys
from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

_ADDRESS_BYTES = 128
"""Of the system's largest address, `sockaddr_storage`: the family, and for the internet's a port and more."""


class FrozenObjects:
    """The objects that live as long as the worker, which collections leave alone from its second task on.

    PySpark has collected after the first one, so that there is no garbage among them.
    """

    def __init__(self) -> None:
        self._tasks = 0

    def begin_task(self) -> None:
        """A task begins."""
        self._tasks += 1
        if self._tasks == 2:
            gc.freeze()


def promptly(batches: Iterator[_T]) -> Iterator[_T]:
    """``batches``, which come over a TCP connection of this machine: their parts are acknowledged at once.

    On Linux alone; elsewhere, and where Spark talks over Unix domain sockets, they come as they do.
    """
    connections = _within_machine()
    _set(connections, "TCP_NODELAY")
    _set(connections, "TCP_QUICKACK")
    for batch in batches:
        yield batch
        _set(connections, "TCP_QUICKACK")  # which the system forgets, as soon as data goes the other way


def _within_machine() -> list[int]:
    """The descriptors of this process' connections within its machine; PySpark does not say which is its own.

    They belong to others: a socket object could change how they block, and a duplicate keep them open.
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return []
    try:
        descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
        return [one for one in descriptors if (peer := _peer(one)) is not None and peer.is_loopback]
    except OSError:  # neither is needed to look up rows
        return []


@cache
def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _peer(descriptor: int) -> IPv4Address | IPv6Address | None:
    """The address that it is connected with, if it is a connection of the internet's kind."""
    address, length = ctypes.create_string_buffer(_ADDRESS_BYTES), ctypes.c_uint32(_ADDRESS_BYTES)
    if _system().getpeername(descriptor, address, ctypes.byref(length)) != 0:
        return None
    family = int.from_bytes(address.raw[:2], sys.byteorder)
    place = {int(socket.AF_INET): slice(4, 8), int(socket.AF_INET6): slice(8, 24)}.get(family)
    return None if place is None else ip_address(address.raw[place])


def _set(descriptors: list[int], option: str) -> None:
    on = ctypes.c_int(1)
    for descriptor in descriptors:  # what refuses it, or is closed by now, goes on without
        _system().setsockopt(
            descriptor, socket.IPPROTO_TCP, getattr(socket, option), ctypes.byref(on), ctypes.sizeof(on)
        )
