"""A lookup over HTTP whose responses are given, so that only what is made of them is tested: nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from lookup_connectors.http.client import MaySend
from lookup_connectors.http.client_httptools import HttptoolsClient
from lookup_connectors.http.connector import HttpConnector
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import KeptConnectionLost, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import Ending
from lookup_hints.spi.request_and_answer import Answer, LookupTable
from lookup_hints.spi.request_context import NOBODY, reporting_to
from tests.servers.connectors.http_asking import rows_of
from tests.unit.connectors.asking import during, request_for

HOME = "https://api.example"
SCHEMA = pa.schema([("id", pa.string()), ("name", pa.string())])


def response(body: Any = None, status: int = 200, **headers: str) -> Response:
    """A response; ``body`` is JSON unless it is bytes, and in names of headers ``_`` is a hyphen."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(status, {"content-type": "application/json", **named}, content)


@dataclass
class Outcome:
    """What became of a question.

    Args:
        rows: what was found.
        error: why it failed.
        pauses: what each refusal said of the time to wait.
        asked: the requests.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    error: ConnectorError | None = None
    pauses: list[float | None] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """In a word."""
        if self.error is not None:
            return "permanent" if self.error.permanent else "transient"
        return "found" if self.rows else "miss"


class _Turns:
    """Permits that are always free; nobody waits."""

    def __init__(self) -> None:
        self.pauses: list[float | None] = []

    def try_acquire(self, count: int = 1) -> int:
        return count

    async def acquire(self, deadline: float | None = None, after: float | None = None) -> None:
        pass

    def acquire_blocking(self, deadline: float | None = None, after: float | None = None) -> None:
        pass

    def may_send(self, granted: float) -> bool:
        return True

    def release(self, started: float, ending: Ending, pause: float | None = None, count: int = 1) -> float:
        if ending == "refused":
            self.pauses.append(pause)
        return pause or 0.0 if ending == "refused" else 0.0


class _RecordedClient(HttptoolsClient):
    def __init__(self, responses: Sequence[Response], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._left = list(responses)
        self.asked: list[Request] = []

    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        self.asked.append(request)
        if not self._left:
            raise KeptConnectionLost("nothing more was recorded", permanent=True)
        return self._left.pop(0)


def outcome(
    options: Mapping[str, str],
    *responses: Response,
    schema: pa.Schema = SCHEMA,
    keys: Mapping[str, Sequence[Any]] | None = None,
    timeout: float = 1e6,
) -> Outcome:
    """What becomes of asking a table with these ``options`` for ``keys``, when it is answered so."""
    given = {"connector": "http", "url": f"{HOME}/x/{{id}}", **options}
    told = Outcome()
    try:
        told.rows = rows_of(answer(told, given, responses, schema, keys or {"id": ["1"]}, timeout))
    except ConnectorError as error:
        told.error = error
    return told


def answer(
    told: Outcome,
    options: Mapping[str, str],
    responses: Sequence[Response],
    schema: pa.Schema,
    keys: Mapping[str, Sequence[Any]],
    timeout: float = 1e6,
) -> Answer:
    """What a connector with these ``options`` answers; ``told`` takes what was asked, and the pauses.

    Raises:
        ConnectorError: the connector fails.
    """
    connector, turns = HttpConnector(LookupTable("people", schema, (), options)), _Turns()
    connector.check()
    told.pauses = turns.pauses
    request = request_for(schema, {name: list(values) for name, values in keys.items()}, timeout=timeout)

    async def asked(connector: HttpConnector) -> Answer:
        client = connector._opened_source.client
        assert isinstance(client, _RecordedClient)
        told.asked = client.asked
        return await connector.alookup(request)

    recorded = partial(_RecordedClient, responses)
    with patch("lookup_connectors.http.connector.client_of", recorded), reporting_to(NOBODY, turns):
        return during(connector, asked)
