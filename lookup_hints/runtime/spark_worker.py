"""What PySpark's worker costs each of its tasks, and a lookup spares it (docs/decisions/0031).

It waits 40 ms for its input: the JVM writes in parts and, by Nagle's algorithm, sends a small one when those
before it were acknowledged, which TCP puts off. And after each task it collects garbage among the objects
of all modules, for as long again.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


class Lasting:
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
    with ExitStack() as held:
        connections = [held.enter_context(connection) for connection in _within_machine()]
        _set(connections, "TCP_NODELAY")
        _set(connections, "TCP_QUICKACK")
        for batch in batches:
            yield batch
            _set(connections, "TCP_QUICKACK")  # which the system forgets, as soon as data goes the other way


def _set(connections: list[socket.socket], option: str) -> None:
    for connection in connections:
        with suppress(OSError):  # a task that waits is better than one that fails
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), 1)


def _within_machine() -> Iterator[socket.socket]:
    """The TCP connections that this process has within its machine; PySpark does not say which is its own."""
    seen: set[int] = set()
    for descriptor in _descriptors():
        with suppress(OSError):  # closed meanwhile, as the one of the listing is
            status = os.fstat(descriptor)
            if not stat.S_ISSOCK(status.st_mode) or status.st_ino in seen:
                continue
            seen.add(status.st_ino)
            connection = socket.socket(fileno=os.dup(descriptor))
            if _is_within_machine(connection):
                yield connection
            else:
                connection.close()


def _descriptors() -> list[int]:
    """Those of this process, where the system is Linux and shows them."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return []
    try:
        return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return []


def _is_within_machine(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return False
    try:
        return ip_address(connection.getpeername()[0]).is_loopback
    except OSError:  # it has no peer: it listens
        return False
