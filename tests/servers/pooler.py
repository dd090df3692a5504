"""What a pooler does at the start of a session: it refuses settings that it does not track.

pgbouncer answers an unknown startup parameter with this very error and hangs up.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Collection, Iterator

from tests.servers.tls import pass_both_ways

_TRACKED = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone"}
_PROTOCOL_3 = 196608


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


class _Front(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, target_port: int, tracked: set[str], refusal: str, passes_over: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.target_port = target_port
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
            with socket.create_connection(("127.0.0.1", self.server.target_port)) as target:
                target.sendall(packet)
                pass_both_ways(self.request, target)

    def _packet(self) -> bytes:
        head: bytes = self.request.recv(4, socket.MSG_WAITALL)
        (length,) = struct.unpack("!I", head)
        return head + bytes(self.request.recv(length - 4, socket.MSG_WAITALL))


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
