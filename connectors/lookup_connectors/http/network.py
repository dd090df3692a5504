"""Make connections: TLS, proxies, and their failures."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from lookup_connectors.http.request import PORTS, origin_of
from lookup_connectors.http.response import HttpFailure, Response

_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3})[^\r\n]*")
_MOST_HEAD_BYTES = 64 * 1024

_Connection = TypeVar("_Connection", bound=asyncio.Protocol)


@dataclass(frozen=True)
class Connecting:
    """Settings of connections.

    Args:
        table: its name, for messages.
        connections: the most at once.
        connect_timeout: seconds to connect.
        idle_timeout: seconds after which an unused one is closed.
        most_bytes: the largest body that is read.
        tls: trusted certificates, and the client's own.
        proxy: URL of a proxy, or None.
        environment: whether proxies from environment variables are used.
    """

    table: str
    connections: int
    connect_timeout: float
    idle_timeout: float
    most_bytes: int
    tls: ssl.SSLContext
    proxy: str | None
    environment: bool

    def failure(self, text: str, *, permanent: bool = False, response: Response | None = None) -> HttpFailure:
        text = f"table {self.table}: {text}".replace("..", ".")
        return HttpFailure(text, permanent=permanent, response=response)

    def untrusted(self, origin: str, error: ssl.SSLCertVerificationError) -> HttpFailure:
        text = f"the certificate of {origin} is not trusted: {error.verify_message}. Check 'tls-ca'."
        return self.failure(text, permanent=True)

    def not_connected(self, origin: str, seconds: float) -> HttpFailure:
        return self.failure(f"{origin} took no connection within {seconds:.3g} s ('connect-timeout').")

    def unanswered(self, origin: str, seconds: float) -> HttpFailure:
        return self.failure(f"no answer from {origin} within {seconds:.3g} s ('request-timeout').")

    def proxy_failed(self, origin: str, why: str, status: int) -> HttpFailure:
        """The failure of a tunnel to ``origin``, whose proxy answered with ``status``; 0 for none."""
        is_wrong = 400 <= status < 500 and status not in (408, 429)
        response = Response(status, {}, b"") if status else None
        return self.failure(f"no connection to {origin}: {why}.", permanent=is_wrong, response=response)

    def too_large(self) -> HttpFailure:
        text = f"a response is larger than {self.most_bytes} bytes ('max-response-bytes')."
        return self.failure(text, permanent=True)

    def announced(self, headers: Mapping[str, str]) -> int:
        """How many bytes of body are announced; none where they are too many to be read."""
        length = headers.get("content-length", "")
        size = int(length) if length.isdecimal() and length.isascii() and len(length) <= 18 else 0
        return size if size <= self.most_bytes else 0


# For both clients; only our own keeps connections to a proxy. (docs/decisions/0199)
class Proxy(NamedTuple):
    """A proxy: where it is, whether it speaks TLS, and the header that says who we are."""

    host: str
    port: int
    is_secure: bool
    headers: Mapping[str, str]


class HttpOrigin:
    """Whom to connect to, by which proxy, and how they are called."""

    def __init__(self, connecting: Connecting, url: str) -> None:
        self.url = origin_of(url)
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        self.host = host if host.isascii() else host.encode("idna").decode("ascii")
        self.port = parts.port or 0
        self.is_secure = parts.scheme == "https"
        self.shown = f"[{self.host}]" if ":" in self.host else self.host
        is_standard = self.port == (443 if self.is_secure else 80)
        self.authority = self.shown if is_standard else f"{self.shown}:{self.port}"
        self.proxy = _proxy_of(connecting, parts.scheme, self.authority)


def _proxy_of(connecting: Connecting, scheme: str, authority: str) -> Proxy | None:
    """The proxy for an origin: from the options, or from the environment if enabled.

    Raises:
        HttpFailure: its kind is not supported.
    """
    found = connecting.proxy
    if found is None and connecting.environment and not proxy_bypass(authority):
        proxies = getproxies()
        found = proxies.get(scheme) or proxies.get("all")
    if not found:
        return None
    parts = urlsplit(found if "://" in found else f"http://{found}")
    if parts.scheme not in PORTS or not parts.hostname:
        text = f"a proxy of the scheme {parts.scheme!r} is not known; there are http and https."
        raise connecting.failure(text, permanent=True)
    headers = {}
    if parts.username is not None:
        headers["Proxy-Authorization"] = basic(unquote(parts.username), unquote(parts.password or ""))
    port = parts.port or PORTS[parts.scheme]
    return Proxy(parts.hostname, port, parts.scheme == "https", headers)


def basic(user: str, password: str) -> str:
    """The value of the header for basic authentication."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


async def connected(
    connecting: Connecting, origin: HttpOrigin, connection: Callable[[], _Connection], limit: float
) -> _Connection:
    """A new connection to ``origin``, within ``limit`` seconds.

    Raises:
        HttpFailure: none can be made.
    """
    try:
        return await asyncio.wait_for(_open_transport(connecting, origin, connection), limit)
    except asyncio.TimeoutError:
        raise connecting.not_connected(origin.url, limit) from None
    except ssl.SSLCertVerificationError as error:
        raise connecting.untrusted(origin.url, error) from None
    except (OSError, UnicodeError) as error:
        raise connecting.failure(f"no connection to {origin.url}: {error}.") from None


async def _open_transport(
    connecting: Connecting, origin: HttpOrigin, connection: Callable[[], _Connection]
) -> _Connection:
    loop, tls, proxy = asyncio.get_running_loop(), connecting.tls, origin.proxy
    first = proxy or origin
    secure: dict[str, Any] = {"ssl": tls, "server_hostname": first.host} if first.is_secure else {}
    if proxy is None or not origin.is_secure:
        _, made = await loop.create_connection(connection, first.host, first.port, **secure)
        return made
    if proxy.is_secure and sys.version_info < (3, 11):
        text = f"{origin.url} cannot be asked by a proxy over https before Python 3.11."
        raise connecting.failure(text, permanent=True)
    transport, tunnel = await loop.create_connection(
        lambda: _Tunnel(connecting, origin), first.host, first.port, **secure
    )
    try:
        transport.write(tunnel.question)
        await tunnel.answer
        made = connection()
        through = await loop.start_tls(transport, made, tls, server_hostname=origin.host)
        made.connection_made(cast("asyncio.BaseTransport", through))
        return made
    except BaseException:
        transport.abort()
        raise


class _Tunnel(asyncio.Protocol):
    """A connection to a proxy that is to lead on to ``origin``."""

    def __init__(self, connecting: Connecting, origin: HttpOrigin) -> None:
        assert origin.proxy is not None
        to = f"{origin.shown}:{origin.port}"
        lines = [f"CONNECT {to} HTTP/1.1", f"Host: {to}"]
        lines += [f"{name}: {text}" for name, text in origin.proxy.headers.items()]
        self.question = "".join([f"{line}\r\n" for line in [*lines, ""]]).encode("ascii")
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connecting, self._origin = connecting, origin
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        is_whole = self._head.endswith(b"\r\n\r\n") or len(self._head) > _MOST_HEAD_BYTES
        if self.answer.done() or not (is_whole or b"\r\n\r\n" in self._head):
            return
        status = _STATUS.match(self._head)
        if status is not None and is_whole and status[1].startswith(b"2"):
            self.answer.set_result(None)
        elif status is not None:
            said = status[0].partition(b" ")[2].decode("latin-1")
            self._fail_tunnel(f"its proxy answered {said}", int(status[1]))
        else:
            self._fail_tunnel("its proxy does not speak HTTP")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail_tunnel("its proxy closed the connection")

    def _fail_tunnel(self, why: str, status: int = 0) -> None:
        if not self.answer.done():
            self.answer.set_exception(self._connecting.proxy_failed(self._origin.url, why, status))


def tls_context(
    table: str, ca: str | None, cert: str | None, key: str | None, password: str | None
) -> ssl.SSLContext:
    """A context that trusts ``ca`` (or the authorities that browsers trust), and shows a certificate.

    Raises:
        HttpFailure: a file cannot be read, or is not a certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca or certifi.where())
        if cert:
            context.load_cert_chain(cert, key, password or _refuse_password_prompt)
    except (OSError, ssl.SSLError, ValueError) as error:
        files = ", ".join(file for file in (ca, cert, key) if file)
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise HttpFailure(
            f"table {table}: the TLS files cannot be used: {said}. They are: {files}.", permanent=True
        ) from None
    return context


def _refuse_password_prompt() -> str:
    # Without one, OpenSSL would ask on the terminal.
    raise ValueError("the key is encrypted; give 'tls-key-password'")
