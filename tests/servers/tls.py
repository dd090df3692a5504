"""TLS in front of a server that has none, as poolers and cloud proxies do it.

To PostgreSQL a client asks with an ``SSLRequest`` packet, is answered ``S``, and speaks TLS from there on;
to others it speaks TLS at once.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator

from tests.servers.certificates import Certificates

_SSL_REQUEST = struct.pack("!II", 8, 80877103)


@contextlib.contextmanager
def tls_front(
    target_port: int,
    certificates: Certificates,
    *,
    client_certificates: bool = False,
    asked_first: bool = True,
    expired: bool = False,
) -> Iterator[int]:
    """The port of a TLS server that passes on to ``target_port``; it may insist on a client's certificate.

    ``asked_first``: clients ask for TLS as those of PostgreSQL do.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown = certificates.expired_certificate if expired else certificates.server_certificate
    context.load_cert_chain(shown, certificates.server_key)
    if client_certificates:
        context.load_verify_locations(certificates.authority)
        context.verify_mode = ssl.CERT_REQUIRED
    with _Front(target_port, context, asked_first=asked_first) as front:
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

    def __init__(self, target_port: int, context: ssl.SSLContext, *, asked_first: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.target_port, self.context, self.asked_first = target_port, context, asked_first


class _Session(socketserver.BaseRequestHandler):
    server: _Front

    def handle(self) -> None:
        # Clients that refuse the certificate, and lines cut at the end of a test, are not errors here.
        with contextlib.suppress(OSError):
            if self.server.asked_first:
                if self.request.recv(8, socket.MSG_WAITALL) != _SSL_REQUEST:
                    return  # a client without TLS is turned away
                self.request.sendall(b"S")
            with (
                self.server.context.wrap_socket(self.request, server_side=True) as client,
                socket.create_connection(("127.0.0.1", self.server.target_port)) as target,
            ):
                pass_both_ways(client, target)


def pass_both_ways(client: socket.socket, target: socket.socket) -> None:
    """Pass bytes on between two connections until one ends."""
    answers = threading.Thread(target=_pass_on, args=(target, client), daemon=True)
    answers.start()
    _pass_on(client, target)
    answers.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
