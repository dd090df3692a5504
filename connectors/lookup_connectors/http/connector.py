"""The connector: doors for one key and for many, made of templates, exchanges and readers."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast
from urllib.parse import urlsplit

import pyarrow as pa

from lookup_connectors.http.auth import auth_of, netrc_path
from lookup_connectors.http.classification import ResponseClassifier
from lookup_connectors.http.client import HttpClient
from lookup_connectors.http.exchange import Answered, Begun, Exchange
from lookup_connectors.http.network import Connecting, tls_context
from lookup_connectors.http.options import (
    OPTIONS,
    check_address,
    check_hosts,
    check_options,
    check_other_urls,
    origin_and_user,
    origins,
    plan_of,
)
from lookup_connectors.http.request import (
    Key,
    Request,
    TemplateKeys,
    Templates,
    Unaskable,
    Unsendable,
    host_and_port,
)
from lookup_connectors.http.response import FoundRow, FoundRows, HttpFailure, PageRows, RowMetadata
from lookup_connectors.http.started_keys import StartedKeys
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT, ByteLease, BytesInFlight
from lookup_hints.spi import (
    AcquiresPermits,
    Answer,
    AsyncRowLookup,
    Endpoint,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    LookupTable,
    Miss,
    Option,
    Outcome,
    Outcomes,
    ReportsHealth,
    ReportsOutcomes,
    RowRequest,
    Rows,
    ShowsAnswers,
    SupportsBackpressure,
    TakeRows,
    connections_check,
)
from lookup_hints.spi.request_and_answer import identity_of_file
from lookup_hints.spi.secrets import calls, known_secrets, masker

if TYPE_CHECKING:
    from lookup_connectors.http.client_httptools import HttptoolsClient

_T = TypeVar("_T")


class HttpConnector(
    AsyncRowLookup, SupportsBackpressure, ReportsHealth, ReportsOutcomes, ShowsAnswers, AcquiresPermits
):
    """An HTTP API that answers JSON."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: OpenHttp | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    def check(self) -> None:
        """Refuse options that do not fit together, or that cannot be read here."""
        check_options(self.table)

    def key_columns(self) -> frozenset[str]:
        """The columns that the templates name."""
        return self.request_columns()

    def required_keys(self) -> frozenset[str]:
        """The columns in the path and in headers."""
        return plan_of(self.table).templates.needed

    def request_columns(self) -> frozenset[str]:
        """The columns that the templates name: each changes the request."""
        return plan_of(self.table).templates.columns

    def keys_per_request(self) -> int:
        return int(self.table.options.get("keys-per-request", "1"))

    def opened_with(self) -> Hashable:
        """The versions of the files that options and references name, and of .netrc."""
        return super().opened_with(), identity_of_file(netrc_path())

    def origin(self) -> str:
        """Scheme, host and port of the URL, and the user or the OAuth2 client."""
        return origin_and_user(self.table)

    def dataset(self) -> tuple[str, str]:
        """Scheme, host and port, and the path as it is written in the table."""
        url = urlsplit(self.table.options["url"])
        return self.origin().partition(" user ")[0], url.path or "/"

    def secrets(self) -> set[str]:
        """What it was opened with, and tokens that it has fetched."""
        return self._live.secrets if self._live else set()

    # Life.

    async def aopen(self) -> None:
        """Read the options; the first request makes the first connection."""
        await self.aclose()
        opening = asyncio.to_thread(OpenHttp, self.table) if self.table.called else None  # a call may block
        self._live = await opening if opening is not None else OpenHttp(self.table)

    async def aclose(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.client.close()

    # One key.

    async def alookup_row(self, request: RowRequest) -> Rows:
        return await self._opened_source.row(request)

    def row_starter(self, take: TakeRows) -> StartedKeys | None:
        """Over connections that are open."""
        return None if self._live is None else self._live.starter(take)

    def rows_as_table(self, found: Sequence[tuple[RowRequest, Any]], schema: pa.Schema) -> pa.Table:
        """The columns of ``schema`` for the rows ``found``."""
        reader = self._opened_source.plan.reader
        rows = reader.as_table(FoundRows.of([row for _, row in found]), schema)
        for name in reader.said.intersection(found[0][0].key if found else ()):
            reader.check_asked(rows, name, [request.key[name] for request, _ in found])
        return rows

    # Many keys.

    async def alookup(self, request: LookupRequest) -> Answer:
        live = self._opened_source
        with live.client.budget.lease(again=request.attempt > 1) as lease:
            if self.keys_per_request() > 1:
                asked, failures = live.requests(request)
                parts = [live.rows(keys, first, request, lease) for keys, first in asked]
                rows = self._build_table(request, await self._gather_or_cancel(parts))
                return Outcomes(rows, failures=failures) if failures else rows
            return await self._look_up_each(request, lambda row: live.row_under(row, lease))

    async def _gather_or_cancel(self, parts: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """The results of all ``parts``; if one fails, the others are cancelled."""
        if len(parts) == 1:
            return [await parts[0]]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _build_table(self, request: LookupRequest, answers: Sequence[FoundRows]) -> pa.Table:
        found = answers[0] if len(answers) == 1 else FoundRows.together(answers)
        reader = self._opened_source.plan.reader
        listed = self._opened_source.plan.templates.lists.intersection(request.key_columns)
        rows = reader.as_table(found, request.schema, listed)
        for name in listed:
            reader.check_any_asked(rows, name, request.keys.column(name))
        return rows

    # Memory.

    def hold_back(self, task: Hashable, *, needs_answer: bool) -> None:
        """Stop reading responses; if ``needs_answer``, go on with those of the oldest lookup only."""
        if self._live is not None:
            self._live.client.budget.hold_back(task, needs_answer=needs_answer)

    def go_on(self, task: Hashable) -> None:
        if self._live is not None:
            self._live.client.budget.go_on(task)

    # Outcomes.

    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, outcome: Outcome) -> pa.Table | None:
        """With `outcome-rows`: rows of the keys, with the outcome in the metadata columns."""
        # Also called without a connection, as its failure may be the outcome.
        live = self._live
        options = {} if live else self.table.read(self.OPTIONS, calling=False)[0]
        if not (live.tells_outcomes if live else options["outcome-rows"]):
            return None
        plan, mask = live.plan if live else plan_of(self.table), masker(known_secrets(self))
        told = [_outcome_told(outcome, note, mask) for note in outcome.notes]
        return plan.reader.outcome_rows(keys, schema, told)

    # Health.

    DRIVERS = ("httptools", "httpx")

    def endpoints(self) -> Sequence[Endpoint]:
        """The host of the URL or of the proxy; none if the environment may name a proxy."""
        options = self.table.read(self.OPTIONS, calling=False)[0]
        if options["use-environment"] and any(name in os.environ for name in _PROXIES):
            return ()
        home = check_address(_resolve_templates(self.table, set()).address)
        host, port = host_and_port(options["proxy"] or home)
        is_tls = not options["proxy"] and home.startswith("https:")
        return [Endpoint(host, port, _tls_of(self.table, options) if is_tls else None)]

    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """The number of connections; everything else shows in the trial lookups."""
        connections: int = self.table.read(self.OPTIONS, calling=False)[0]["connections"]
        yield connections_check(request, min(request.capacity, connections), {})

    def check_of(self, error: Exception) -> str:
        """A refused login, or a page of HTML that asks for one, is more than a failed lookup."""
        response = error.response if isinstance(error, HttpFailure) else None
        if response is None:
            return ""
        is_page = "html" in response.headers.get("content-type", "")
        asks = is_page and _LOGIN_PAGE.search(str(error)) is not None
        return "login" if asks or response.status in (401, 403, 407) else ""

    # Before there are columns.

    def answer_to(self, key: Key) -> tuple[Any, Mapping[str, str]] | None:
        """The first page that answers ``key``."""
        return asyncio.run(self._ask_document(key))

    async def _ask_document(self, key: Key) -> tuple[Any, Mapping[str, str]] | None:
        live = OpenHttp(self.table)
        try:
            return await live.document(key)
        finally:
            await live.client.close()

    # Inside.

    @property
    def _opened_source(self) -> OpenHttp:
        assert self._live is not None, "aopen() comes first"
        return self._live


def client_of(connecting: Connecting, budget: BytesInFlight) -> HttpClient:
    """The client on httptools where that is installed, which takes a fraction of the time; else httpx."""
    try:
        from lookup_connectors.http.client_httptools import HttptoolsClient
    except ModuleNotFoundError:
        from lookup_connectors.http.client_httpx import HttpxClient

        return HttpxClient(connecting, budget)
    return HttptoolsClient(connecting, budget)


class _RowsOfKey(list[Any]):
    """The rows of a key, whose bytes are counted as long as the rows are there."""

    __slots__ = ("lease",)
    lease: ByteLease


class OpenHttp:
    """The state of an open connector, made from the options of ``table`` on the machine that connects.

    Raises:
        HttpFailure: an option is wrong.
    """

    def __init__(self, table: LookupTable) -> None:
        options, self.secrets = table.read(OPTIONS, calling=False)
        self.plan = plan_of(table)
        self.tells_outcomes: bool = options["outcome-rows"]
        self._templates = templates = _resolve_templates(table, self.secrets)
        try:
            home = check_address(templates.address)
            allowed = origins(options["allowed-origins"] or "")
        except ValueError as error:
            raise HttpFailure(
                f"table {table.name}: 'url' or 'allowed-origins': {error}.", permanent=True
            ) from None
        check_other_urls(table, options)
        check_hosts(table, {**options, "url": home}.get)
        auth = auth_of(table, OPTIONS, options, templates.headers, home, self.secrets)
        connecting = Connecting(
            table=table.name,
            connections=options["connections"],
            connect_timeout=options["connect-timeout"],
            idle_timeout=options["idle-timeout"],
            most_bytes=options["max-response-bytes"],
            tls=_tls_of(table, options),
            proxy=options["proxy"],
            environment=options["use-environment"],
        )
        self.client = client_of(connecting, BytesInFlight(options[MAX_BYTES_IN_FLIGHT.key]))
        self.exchange = Exchange(
            table.name,
            self.client,
            home,
            auth,
            ResponseClassifier(
                self.plan.reader,
                options["success-codes"],
                options["miss-codes"],
                options["transient-codes"],
                self.plan.errors,
            ),
            options["request-timeout"],
            options["max-redirects"],
            allowed,
            waits=options["on-throttle"] == "wait",
            check_origin=lambda origin: table.check_host(*host_and_port(origin), option="allowed-origins"),
        )

    # Asking.

    async def row(self, request: RowRequest, begun: Begun | None = None) -> Rows:
        """The rows of one key, for which its first request may have ``begun``."""
        lease = self.client.budget.lease(again=request.attempt > 1)
        try:
            return await self.row_under(request, lease, begun)
        except BaseException:
            lease.release()
            raise

    async def row_under(self, request: RowRequest, lease: ByteLease, begun: Begun | None = None) -> Rows:
        """The same, whose bytes ``lease`` counts as long as the rows are there."""
        try:
            first = begun.request if begun else self._build_request(TemplateKeys.one(request.key))
        except Unaskable:
            return Miss()
        rows, told = await self._ask_pages(first, request, lease, begun)
        return self.found(request.key, rows, told, lease)

    def found(self, key: Key, rows: PageRows, told: RowMetadata, lease: ByteLease) -> Rows:
        if not rows.rows:
            return Miss(told)
        given = self._key_columns_given(key)
        found = _RowsOfKey(map(FoundRow, rows.rows, rows.names, repeat(given), repeat(told)))
        found.lease = lease
        return found

    # Many keys, started together.

    def starter(self, take: TakeRows) -> StartedKeys | None:
        """The starter of many keys; None if keys may need connections of their own, or further pages."""
        closes = any(name.lower() == "connection" for name in self._templates.headers)
        if closes or self.plan.paging.is_counted or not self.client.keeps_connections:
            return None
        return StartedKeys(self, cast("HttptoolsClient", self.client), take)

    def requests_of(self, rows: Sequence[RowRequest]) -> list[Request]:
        """The requests for the first of ``rows``, up to one for which there is none."""
        requests: list[Request] = []
        with suppress(Unaskable, Unsendable):
            requests.extend(self._templates.requests([row.key for row in rows]))
        return requests

    def is_whole(self, answered: Answered) -> bool:
        """Whether this is all that answers a request."""
        return self.exchange.is_final(answered) and self.plan.paging.is_whole(
            answered, self.exchange, self.plan.reader
        )

    async def rows(
        self, keys: TemplateKeys, first: Request, request: LookupRequest, lease: ByteLease
    ) -> FoundRows:
        """The rows of many keys, which say themselves whose they are; ``first`` asks for them."""
        rows, told = await self._ask_pages(first, request, lease)
        given = self._key_columns_given(
            {name: values[0] for name, values in keys.columns.items() if name not in keys.lists}
        )
        return FoundRows(rows.rows, rows.names, [given] * len(rows.rows), [told] * len(rows.rows))

    async def _ask_pages(
        self,
        first: Request,
        request: RowRequest | LookupRequest,
        lease: ByteLease,
        begun: Begun | None = None,
    ) -> tuple[PageRows, RowMetadata]:
        """The rows of all pages, beginning with the request ``first``, and their metadata."""
        started = begun.time if begun else time.monotonic()
        deadline = None if request.timeout is None else started + request.timeout
        try:
            response, rows = await self.plan.paging.pages(
                first, self.exchange, self.plan.reader, deadline, lease, begun
            )
        except HttpFailure as failure:
            failure.elapsed = time.monotonic() - started
            raise
        return rows, RowMetadata.of(rows, response, request.attempt, time.monotonic() - started)

    async def document(self, key: Key) -> tuple[Any, Mapping[str, str]] | None:
        """The JSON of the answer to ``key``, with exact fractions, and its headers; None for a miss."""
        with suppress(Unaskable), self.client.budget.lease() as lease:
            answered = await self.exchange.ask(self._build_request(TemplateKeys.one(key)), None, lease)
            if answered.classified.kind != "miss":
                reader = replace(self.plan.reader, exact=True)
                return reader.document(answered.response), answered.response.headers
        return None

    def _key_columns_given(self, key: Key) -> Key:
        """The values of ``key`` that rows need not repeat: settled by the request, and read by no path."""
        said = self.plan.reader.said
        return key if said.isdisjoint(key) else {name: key[name] for name in key if name not in said}

    def _build_request(self, keys: TemplateKeys) -> Request:
        try:
            return self._templates.request(keys)
        except Unsendable as error:
            raise self.plan.reader.refused(str(error)) from None

    def requests(
        self, request: LookupRequest
    ) -> tuple[list[tuple[TemplateKeys, Request]], dict[int, HttpFailure]]:
        """The requests for the keys of ``request``; and by its position, why another key cannot be sent.

        As many keys go together as differ in nothing but the columns that list them.
        """
        names = request.key_columns
        keys = TemplateKeys(
            {name: request.keys.column(name).to_pylist() for name in names}, self._templates.lists
        )
        asked: list[tuple[TemplateKeys, Request]] = []
        failures: dict[int, HttpFailure] = {}
        for positions in keys.groups():
            together = keys.among(positions)
            try:
                asked.append((together, self._build_request(together)))
            except (Unaskable, HttpFailure):
                sendable = self._sendable_positions(keys, positions, failures)
                if sendable:
                    some = keys.among(sendable)
                    asked.append((some, self._build_request(some)))
        return asked, failures

    def _sendable_positions(
        self, keys: TemplateKeys, positions: Sequence[int], failures: dict[int, HttpFailure]
    ) -> list[int]:
        """The ``positions`` whose keys can be sent; reasons for the others go into ``failures``."""
        sendable = []
        for at in positions:
            try:
                self._build_request(keys.among([at]))
            except Unaskable:
                continue
            except HttpFailure as failure:
                failures[at] = failure
            else:
                sendable.append(at)
        return sendable


def _outcome_told(outcome: Outcome, note: Any, mask: Callable[[str], str]) -> RowMetadata:
    """How the lookup of a key ended that found no rows."""
    error, attempts = outcome.error, outcome.attempts
    if error is None:
        return note if isinstance(note, RowMetadata) else RowMetadata("miss", attempts=attempts)
    text = mask(str(error))
    if not isinstance(error, HttpFailure) or error.response is None:
        return RowMetadata("error", None, text, attempts, getattr(error, "elapsed", None))
    return RowMetadata("error", error.response.status, text, attempts, error.elapsed, error.response.headers)


_LOGIN_PAGE = re.compile(r"\b(log|sign)[ -]?(in|on)\b|password", re.IGNORECASE)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def _resolve_templates(table: LookupTable, secrets: set[str]) -> Templates:
    """The templates of ``table`` with references resolved; their values are added to ``secrets``."""
    return plan_of(table).templates.resolved(
        lambda text: table.resolve(text, option="url, query, header or body", known=secrets)
    )


def _tls_of(table: LookupTable, options: Mapping[str, Any]) -> ssl.SSLContext:
    if calls(table.options.get("tls-key-password", "")):
        options, _ = table.read(OPTIONS)
    given = (options[f"tls-{name}"] for name in ("ca", "cert", "key", "key-password"))
    return tls_context(table.name, *given)
