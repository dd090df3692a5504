"""What a lookup asks of the system around it: of the connections of its process, and of the collector."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lookup_hints.spark import task_delays as spark_worker
from lookup_hints.spark.task_delays import FrozenObjects, promptly

needs_linux = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection within the machine, between which some was said."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        for number in range(20):
            (one if number % 2 else other).sendall(b"x")
            assert (other if number % 2 else one).recv(1) == b"x"
        yield one, other


def is_quick(end: socket.socket) -> bool:
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


def is_undelayed(end: socket.socket) -> bool:
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@needs_linux
def test_before_each_reading_what_came_is_acknowledged(ends: tuple[socket.socket, socket.socket]) -> None:
    quick: list[list[bool]] = []

    def batches() -> Iterator[int]:
        for number in range(3):
            quick.append([is_quick(end) for end in ends])
            yield number

    assert not any(map(is_quick, ends))
    for _ in promptly(batches()):
        for end in ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert quick == [[True, True]] * 3


@needs_linux
def test_what_is_written_is_not_held_back(ends: tuple[socket.socket, socket.socket]) -> None:
    assert not any(map(is_undelayed, ends))
    assert list(promptly(iter([1, 2]))) == [1, 2]
    assert all(map(is_undelayed, ends))


@needs_linux
def test_a_connection_is_its_owners_to_close(ends: tuple[socket.socket, socket.socket]) -> None:
    task = promptly(iter(range(3)))
    assert next(task) == 0
    ends[0].close()
    ends[1].settimeout(10.0)
    assert ends[1].recv(1) == b""
    assert list(task) == [1, 2]


@needs_linux
def test_how_a_connection_blocks_is_left_alone(ends: tuple[socket.socket, socket.socket]) -> None:
    socket.setdefaulttimeout(5.0)  # which makes each new socket object set what it wraps to non-blocking
    try:
        assert list(promptly(iter("ab"))) == ["a", "b"]
    finally:
        socket.setdefaulttimeout(None)
    assert all(os.get_blocking(end.fileno()) for end in ends)


@needs_linux
def test_a_connection_of_ipv6_is_one_too() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server, socket.create_connection(server.getsockname()[:2]) as end:
        assert list(promptly(iter("ab"))) == ["a", "b"]
        assert is_undelayed(end)


def test_other_descriptors_are_left_alone() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        socket.socket() as unconnected,
    ):
        one, other = socket.socketpair()
        with one, other:
            assert list(promptly(iter("ab"))) == ["a", "b"]
        assert not is_undelayed(listening)
        assert not is_undelayed(unconnected)


def test_where_the_system_refuses_all_batches_come_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(spark_worker, "_within_machine", lambda: [-1])
        assert list(promptly(iter("ab"))) == ["a", "b"]
    monkeypatch.setattr(spark_worker, "Path", lambda path: Path("/there/is/no", path[1:]))
    assert list(promptly(iter("ab"))) == ["a", "b"]


def test_what_lasts_leaves_the_collector_once_pyspark_has_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    lasting = FrozenObjects()
    for task in range(1, 5):
        monkeypatch.setattr(gc, "freeze", lambda task=task: frozen.append(task))
        lasting.begin_task()
    assert frozen == [2]
