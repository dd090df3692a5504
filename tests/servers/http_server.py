"""An HTTP API in a process of its own, which misbehaves as told, and counts what it is asked.

``running_api()`` starts it and hands back an ``Api``; an ``ApiServer`` can be killed. Below ``/people`` and the like it answers as an API
should; ``script`` gives the next requests for a path other acts: a status, a pause, a hang, a cut line, raw
bytes (a list of them is sent piece by piece), a ``last`` answer before the line is closed without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit
from urllib.request import Request, urlopen

from tests.servers.certificates import Certificates

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = 1000
"""People have the ids from 0 up to this."""
ORDERS = 7
"""Orders of customer 1; customer 2 has one, all others have none."""


# --- the tests' side ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Api:
    """A running server, as tests see it."""

    port: int
    tls_port: int
    strict_tls_port: int

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    def script(self, path: str, *acts: dict[str, Any]) -> None:
        """Answer the next requests for ``path`` so: one act each, an act with ``repeat`` for ever.

        ``*`` is any path that has none of its own.
        """
        self._control("script", {"path": path, "acts": acts})

    def fill(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Give ``/tables/<name>`` and ``/rows/<name>/<id>`` these rows."""
        self._control("fill", {"name": name, "rows": rows})

    def asked(self) -> list[dict[str, Any]]:
        """The requests since the last ``reset``: method, target, headers, body, time."""
        asked: list[dict[str, Any]] = self._control("asked", {})
        return asked

    def targets(self) -> Counter[str]:
        """How often each target was asked for."""
        return Counter(each["target"] for each in self.asked())

    def connections(self) -> int:
        """How many connections were made since the last ``reset``."""
        return int(self._control("connections", {}))

    def nbytes(self) -> tuple[int, int]:
        """Bytes of requests and of answers since the last ``reset``, but for raw ones."""
        read, written = self._control("nbytes", {})
        return read, written

    def reset(self) -> None:
        """Forget what was asked, scripts and tokens."""
        self._control("reset", {})

    def _control(self, name: str, content: Any) -> Any:
        request = Request(f"{self.url}/_/{name}", json.dumps(content).encode(), method="POST")
        with urlopen(request, timeout=30) as response:
            return json.loads(response.read())


class ApiServer:
    """The process of the API; ``start`` and ``kill`` may alternate, the port stays, the rows go.

    Args:
        port: where it listens, or 0 for any port.
        certificates: with which it speaks TLS on two more ports.
    """

    def __init__(self, port: int = 0, certificates: Certificates | None = None) -> None:
        files = (
            (certificates.server_certificate, certificates.server_key, certificates.authority)
            if certificates
            else ()
        )
        self._arguments = [str(port), *map(str, files)]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Api:
        """Start it, without any rows, and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.http_server", *self._arguments],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert self._process.stdout is not None
        return Api(*json.loads(self._process.stdout.readline()))

    def kill(self) -> None:
        """Kill it at once; nothing when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextlib.contextmanager
def running_api(certificates: Certificates | None = None) -> Iterator[Api]:
    """A server for the length of a block; with ``certificates`` it speaks TLS on two more ports."""
    server = ApiServer(certificates=certificates)
    try:
        yield server.start()
    finally:
        server.kill()


# --- the server's side ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    time: float
    nbytes: int = 0

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    def described(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "method": self.method,
            "target": self.target,
            "headers": self.headers,
            "body": self.body.decode("latin-1"),
            "time": self.time,
        }


Answer = tuple[int, dict[str, str], bytes]


class Server:
    """The API and its misdeeds."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.clear()

    def clear(self) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.written = 0
        self.scripts: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
        self.tokens = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (asked := await _read(reader)) is not None:
                if not await self._answer(asked, writer):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # a client that goes away is none of our business
        finally:
            writer.transport.abort()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """Answer, and say whether the connection may be used again."""
        if asked.path.startswith("/_/"):
            self.connections -= 1
            _write(writer, (200, {}, json.dumps(self._control(asked)).encode()))
            await writer.drain()
            return False
        self.asked.append(asked)
        script = self.scripts[urlsplit(asked.target).path] or self.scripts["*"]
        act = {} if not script else script[0] if script[0].get("repeat") else script.popleft()
        await asyncio.sleep(act.get("delay", 0))
        if act.get("hang"):
            await asyncio.sleep(3600)
        if act.get("drop"):
            return False
        if "raw" in act:
            parts = act["raw"] if isinstance(act["raw"], list) else [act["raw"]]
            for number, part in enumerate(parts):
                await asyncio.sleep(0.05 if number else 0)
                writer.write(part.encode("latin-1"))
                await writer.drain()
            keeps = parts[0].startswith("HTTP/1.1") or "keep-alive" in parts[0]
            if not keeps:
                writer.close()
                await writer.wait_closed()
            return keeps
        answer = self._acted(act) if "status" in act else self._handled(asked)
        self.written += _write(writer, answer, cut=act.get("cut"), drip=bool(act.get("drip")))
        if act.get("drip"):
            for _ in range(600):
                writer.write(b"1\r\n \r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
            return False
        await writer.drain()
        return "cut" not in act and not act.get("last")

    def _control(self, asked: Asked) -> Any:
        name, content = asked.path.removeprefix("/_/"), json.loads(asked.body)
        if name == "script":
            self.scripts[content["path"]].extend(content["acts"])
        if name == "fill":
            self.tables[content["name"]] = content["rows"]
        if name == "reset":
            self.clear()
        if name == "asked":
            return [each.described() for each in self.asked]
        if name == "nbytes":
            return [sum(each.nbytes for each in self.asked), self.written]
        return self.connections if name == "connections" else None

    def _acted(self, act: dict[str, Any]) -> Answer:
        body = act.get("body", "")
        text = body if isinstance(body, str) else json.dumps(body)
        content = text.encode("latin-1") * act.get("times", 1)
        return (
            act["status"],
            {"Content-Type": act.get("type", "application/json"), **act.get("headers", {})},
            content,
        )

    # What an API should do.

    def _handled(self, asked: Asked) -> Answer:
        first, *rest = asked.path.strip("/").split("/")
        handler = getattr(self, f"_{first}", None)
        if handler is None:
            return 404, {}, b""
        status, answer = handler(asked, rest)
        headers = {"Content-Type": "application/json"}
        if isinstance(answer, tuple):
            more, answer = answer
            headers |= more
        return status, headers, b"" if answer is None else json.dumps(answer).encode()

    def _people(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        if rest and rest[0]:
            found = [_person(each) for each in rest[0].split(",")]
            return (200, found[0]) if found[0] else (404, {"error": "nobody"})
        if asked.method == "POST":
            ids = json.loads(asked.body)["ids"]
        else:
            ids = [each for text in asked.query.get("ids", []) for each in text.split(",")]
        return 200, {"data": [person for person in map(_person, ids) if person]}

    def _byid(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        people = map(_person, asked.query["ids"][0].split(","))
        return 200, {"people": {str(person["id"]): person for person in people if person}}

    def _orders(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        """Pages of two orders, in the way that the path says."""
        count = {"1": ORDERS, "2": 1}.get(asked.query["customer"][0], 0)
        orders = [{"order": number, "total": number + 0.25} for number in range(count)]
        way = rest[0]
        given = asked.query.get(
            {"link": "from", "url": "from"}.get(way, way), ["1" if way == "page" else "0"]
        )[0]
        start = (int(given) - 1) * 2 if way == "page" else int(given.removeprefix("c/"))
        page, end = orders[start : start + 2], start + 2
        more = end < count
        next_url = f"/orders/{way}?customer={asked.query['customer'][0]}&from={end}"
        if way == "link":
            return 200, ({"Link": f'<{next_url}>; rel="next", </>; rel="up"'} if more else {}, page)
        answer: dict[str, Any] = {"orders": page}
        if way == "url":
            answer["next"] = next_url if more else None
        if way == "cursor":
            answer["meta"] = {"cursor": f"c/{end}" if more else ""}
        return 200, answer

    def _echo(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        return 200, {**asked.described(), "path": rest}

    def _tables(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        """Rows whose columns equal what the query asks; ``id`` may list several."""
        if rest[0] not in self.tables:
            return 403, {"error": "no such table"}
        wanted = {
            name: set(values.split(",")) if name == "id" else {unquote(values)}
            for name, values in parse_qsl(urlsplit(asked.target).query, keep_blank_values=True)
        }
        if asked.method == "POST":
            pairs = {tuple(map(str, pair.values())) for pair in json.loads(asked.body)}
            names = list(json.loads(asked.body)[0])
            return 200, [
                row
                for row in self.tables[rest[0]]
                if tuple("\0" if row[name] is None else str(row[name]) for name in names) in pairs
            ]
        return 200, [
            row
            for row in self.tables[rest[0]]
            if all(row[name] is not None and str(row[name]) in values for name, values in wanted.items())
        ]

    def _rows(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        """The row whose ``id`` is in the path, with its ``status``, if it has one."""
        name, wanted = rest
        row = next((row for row in self.tables[name] if str(row["id"]) == wanted), None)
        return (404, None) if row is None else (row.get("status", 200), row)

    def _token(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        form = dict(parse_qsl(asked.body.decode()))
        client = (form.get("client_id", ""), form.get("client_secret", ""))
        if "authorization" in asked.headers:
            user, _, password = b64decode(asked.headers["authorization"].split()[1]).decode().partition(":")
            client = unquote(user), unquote(password)
        if form.get("grant_type") != "client_credentials" or client != ("me", "s3cret/+"):
            return 401, {"error": "invalid_client", "error_description": f"who is {client}?"}
        self.tokens += 1
        life = int(rest[0]) if rest else 3600
        return 200, {"access_token": f"token-{self.tokens}", "expires_in": life, "token_type": "Bearer"}

    def _private(self, asked: Asked, rest: list[str]) -> tuple[int, Any]:
        # An earlier token stays good: what was under way when a new one was fetched is answered, too.
        known = {f"Bearer token-{number}" for number in range(1, self.tokens + 1)}
        if asked.headers.get("authorization") not in known:
            return 401, {"error": "token expired"}
        return self._people(asked, rest)


def _person(text: Any) -> dict[str, Any] | None:
    if not str(text).isdigit() or not int(text) < PEOPLE:
        return None
    number = int(text)
    return {"id": number, "name": f"n{number}", "address": {"zip": f"{number:05}", "tags": ["a", "b"]}}


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    line = await reader.readline()
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split()
    headers: dict[str, str] = {}
    size = len(line)
    while True:
        header = await reader.readline()
        size += len(header)
        if not header.strip():
            break
        name, _, value = header.decode("latin-1").strip().partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, target, headers, body, time.monotonic(), size + len(body))


def _write(
    writer: asyncio.StreamWriter, answer: Answer, *, cut: int | None = None, drip: bool = False
) -> int:
    status, headers, body = answer
    lengths = {"Transfer-Encoding": "chunked"} if drip else {"Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in {**lengths, **headers}.items())]
    data = "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if drip else body[:cut])
    writer.write(data)
    return len(data)


async def main(port: int, files: list[str]) -> None:
    """Serve at ``port``, and with TLS at any two, until the process is ended."""
    server = Server()
    ports = []
    contexts: list[ssl.SSLContext | None] = [None]
    if files:
        certificate, key, authority = files
        for is_strict in (False, True):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            if is_strict:
                context.load_verify_locations(authority)
                context.verify_mode = ssl.CERT_REQUIRED
            contexts.append(context)
    for front in contexts:
        listening = await asyncio.start_server(
            server.serve, "127.0.0.1", 0 if front else port, ssl=front, backlog=1000
        )
        ports.append(listening.sockets[0].getsockname()[1])
    print(json.dumps([*ports, 0, 0][:3]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
