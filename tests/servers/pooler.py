"""What poolers do: they refuse settings that they do not track, and lend a server for one transaction.

pgbouncer answers an unknown startup parameter with this very error and hangs up.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import socketserver
import struct
import threading
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tests.servers.tls import pass_both_ways

_TRACKED = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone"}
_PROTOCOL_3 = 196608
# Requests of a server for a password, or for the next message of SCRAM.
_ASKS = {3, 5, 10, 11}


@contextlib.contextmanager
def strict_pooler(
    target_port: int,
    *,
    tracked: Collection[str] = (),
    refusal: str = "unsupported startup parameter: {}",
    passes_over: bool = False,
) -> Iterator[int]:
    """The port of a front of ``target_port`` that lets in sessions with tracked settings only.

    Args:
        target_port: where the server listens.
        tracked: settings that it lets in beside those that pgbouncer knows.
        refusal: what it says of another one.
        passes_over: whether it leaves out others in place of that, as with `ignore_startup_parameters`.
    """
    with _Front(target_port, {*_TRACKED, *tracked}, refusal, passes_over) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield front.server_address[1]
        finally:
            front.shutdown()
            thread.join()


@dataclass
class Lent:
    """The servers that nobody holds, and which server ran each transaction, by its process."""

    idle: deque[tuple[int, socket.socket]] = field(default_factory=deque)
    transactions: list[int] = field(default_factory=list)


@contextlib.contextmanager
def transaction_pooler(target_port: int) -> Iterator[tuple[int, Lent]]:
    """The port of a front of ``target_port`` that lends the server that has waited longest, for a transaction.

    A session logs in at a server of its own, which stays for all when the session ends.
    """
    lent = Lent()
    with _Front(target_port, _TRACKED, "unsupported startup parameter: {}", False, lent) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield front.server_address[1], lent
        finally:
            front.shutdown()
            thread.join()
            for _, server in lent.idle:
                server.close()


class _Front(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, target_port: int, tracked: set[str], refusal: str, passes_over: bool, lent: Lent | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.target_port = target_port
        self.lent = lent
        self.tracked = tracked
        self.refusal = refusal
        self.passes_over = passes_over


class _Session(socketserver.BaseRequestHandler):
    server: _Front

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            packet = self._packet()
            if _code(packet) != _PROTOCOL_3 and packet[4:8] == struct.pack("!I", 80877103):
                self.request.sendall(b"N")  # no TLS here
                packet = self._packet()
            refused = _parameters(packet) - self.server.tracked if _code(packet) == _PROTOCOL_3 else set()
            if refused and self.server.passes_over:
                packet = _without(packet, refused)
            elif refused:
                self.request.sendall(_error(self.server.refusal.format(sorted(refused)[0])))
                return
            if self.server.lent is not None:
                self._pass_transactions(packet, self.server.lent)
                return
            with socket.create_connection(("127.0.0.1", self.server.target_port)) as target:
                target.sendall(packet)
                pass_both_ways(self.request, target)

    def _pass_transactions(self, startup: bytes, lent: Lent) -> None:
        server = socket.create_connection(("127.0.0.1", self.server.target_port))
        server.sendall(startup)
        process = 0
        kind = b""
        while kind != b"Z":
            kind, message = _message(server)
            self.request.sendall(message)
            if kind == b"K":
                process = int.from_bytes(message[5:9], "big")
            if kind == b"R" and int.from_bytes(message[5:9], "big") in _ASKS:
                server.sendall(_message(self.request)[1])
        lent.idle.append((process, server))
        while True:
            kind, message = _message(self.request)
            if kind == b"X":
                return
            process, server = lent.idle.popleft()
            lent.transactions.append(process)
            self._pass_until_idle(kind, message, server)
            lent.idle.append((process, server))

    def _pass_until_idle(self, kind: bytes, message: bytes, server: socket.socket) -> None:
        """Pass a transaction on, whose first message is given: until the server is ready, and in none."""
        server.sendall(message)
        awaited = int(kind in (b"Q", b"S"))
        with selectors.DefaultSelector() as both:
            for source, target in ((self.request, server), (server, self.request)):
                both.register(source, selectors.EVENT_READ, (source, target))
            while True:
                for ready, _ in both.select():
                    source, target = ready.data
                    kind, message = _message(source)
                    target.sendall(message)
                    if source is self.request:
                        awaited += kind in (b"Q", b"S")
                    elif kind == b"Z":
                        awaited -= 1
                        if not awaited and message[5:6] == b"I":
                            return

    def _packet(self) -> bytes:
        head: bytes = self.request.recv(4, socket.MSG_WAITALL)
        (length,) = struct.unpack("!I", head)
        return head + bytes(self.request.recv(length - 4, socket.MSG_WAITALL))


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    """The kind of the next message, and all of it."""
    head = source.recv(5, socket.MSG_WAITALL)
    if len(head) < 5:
        raise ConnectionError
    return head[:1], head + source.recv(int.from_bytes(head[1:], "big") - 4, socket.MSG_WAITALL)


def _code(packet: bytes) -> int:
    return int.from_bytes(packet[4:8], "big")


def _parameters(packet: bytes) -> set[str]:
    return {name.decode().lower() for name in packet[8:].split(b"\0")[0::2] if name}


def _without(packet: bytes, names: set[str]) -> bytes:
    given = packet[8:].split(b"\0")
    pairs = zip(given[0::2], given[1::2], strict=False)
    kept = b"".join(b"%b\0%b\0" % pair for pair in pairs if pair[0] and pair[0].decode() not in names)
    return struct.pack("!II", len(kept) + 9, _PROTOCOL_3) + kept + b"\0"


def _error(message: str) -> bytes:
    fields = f"SFATAL\0VFATAL\0C08P01\0M{message}\0\0".encode()
    return b"E" + struct.pack("!I", len(fields) + 4) + fields
