"""The connector: doors for one key and for many, made of templates, exchanges and readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from lookup_connectors.bytes_in_flight import MAX_BYTES_IN_FLIGHT, ByteLease, BytesInFlight
from lookup_connectors.http.answer import (
    FoundRow,
    FoundRows,
    HttpFailure,
    PageRows,
    PathFailure,
    Response,
    Told,
)
from lookup_connectors.http.answer_kind import Judge, StatusPolicy
from lookup_connectors.http.auth import Auth, ClientCredentials, Fixed, basic, from_netrc, netrc_path
from lookup_connectors.http.engine import Client, Connecting, Sender, tls_context
from lookup_connectors.http.engine_httpx import HttpxClient
from lookup_connectors.http.exchange import Exchange, ExchangeLimits
from lookup_connectors.http.options import (
    OPTIONS,
    Plan,
    check_address,
    hidden,
    origin_and_user,
    origins,
    plain_origin,
    plan_of,
    read_on_the_driver,
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
from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi import (
    Answer,
    AsyncRowLookup,
    LookupRequest,
    LookupTable,
    Miss,
    Option,
    Outcome,
    Outcomes,
    ReportsOutcomes,
    RowRequest,
    Rows,
    SupportsBackpressure,
    SyncRowLookup,
    TakesTurns,
)
from lookup_hints.spi.model import identity_of_file
from lookup_hints.spi.secrets import has_reference, masker

_T = TypeVar("_T")


class HttpConnector(AsyncRowLookup, SyncRowLookup, SupportsBackpressure, ReportsOutcomes, TakesTurns):
    """An HTTP API that answers JSON."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: _OpenHttp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None, "_loop": None}

    def check(self) -> None:
        """Refuse options that do not fit together, or that cannot be read here."""
        hidden = [key for key in read_on_the_driver() if has_reference(self.table.options.get(key, ""))]
        if hidden:
            raise OptionError(Problem(f"table {self.table.name}: {hidden[0]!r} may not be a reference."))
        plan_of(self.table)
        _check_other_urls(self.table, self.table.options)
        _check_hosts(self.table, {key: plain_origin(self.table.options.get(key, "")) for key in _URLS})

    def key_columns(self) -> frozenset[str]:
        """The columns that the templates name."""
        return self.request_columns()

    def request_columns(self) -> frozenset[str]:
        """The columns that the templates name: each changes what is asked for."""
        return plan_of(self.table).keys

    def required_keys(self) -> frozenset[str]:
        """The columns in the path and in headers."""
        return plan_of(self.table).templates.needed

    def keys_per_request(self) -> int:
        """As the option says."""
        return int(self.table.options.get("keys-per-request", "1"))

    def opened_with(self) -> Hashable:
        """The files that options and references name, and that of .netrc."""
        return super().opened_with(), identity_of_file(netrc_path())

    def origin(self) -> str:
        """Scheme, host and port of the URL, and the user or the OAuth2 client."""
        return origin_and_user(self.table)

    def secrets(self) -> set[str]:
        """Passwords, tokens, and what references in the options stand for."""
        return self._live.secrets if self._live else self.table.read(self.OPTIONS)[1]

    # Life.

    def open(self) -> None:
        """Read the options; the first request makes the first connection."""
        self.close()
        # Of its own, which runs while a lookup does: the clients for async lookups serve the others, too.
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self.aopen())
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    async def aopen(self) -> None:
        """Read the options; the first request makes the first connection."""
        await self.aclose()
        self._live = _OpenHttp.of(self.table)

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(self.aclose())
            loop.close()

    async def aclose(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.sender.close()

    # One key.

    def lookup_row(self, request: RowRequest) -> Rows:
        """The rows of one key."""
        return self._run(self.alookup_row(request))

    async def alookup_row(self, request: RowRequest) -> Rows:
        """The rows of one key."""
        live = self._opened
        lease = live.sender.budget.lease(again=request.attempt > 1)
        try:
            rows = await live.row(request, lease)
        except BaseException:
            lease.release()
            raise
        if isinstance(rows, Miss):
            return rows
        kept = _RowsOfKey(rows)
        kept.lease = lease
        return kept

    def rows_as_table(self, found: Sequence[tuple[RowRequest, Any]], schema: pa.Schema) -> pa.Table:
        """The columns of ``schema`` for the rows ``found``."""
        reader = self._opened.plan.reader
        rows = reader.as_table(FoundRows.of([row for _, row in found]), schema)
        for name in reader.said.intersection(found[0][0].key if found else ()):
            reader.check_asked(rows, name, [request.key[name] for request, _ in found])
        return rows

    # Many keys.

    def lookup(self, request: LookupRequest) -> Answer:
        """The rows of each key."""
        if self.keys_per_request() == 1:
            return super().lookup(request)
        return self._run(self.alookup(request))

    async def alookup(self, request: LookupRequest) -> Answer:
        """The rows of each key."""
        live = self._opened
        with live.sender.budget.lease(again=request.attempt > 1) as lease:
            if self.keys_per_request() > 1:
                asked, failures = live.requests(request)
                parts = [live.rows(keys, first, request, lease) for keys, first in asked]
                rows = self._table(request, await self._all(parts))
                return Outcomes(rows, failures=failures) if failures else rows
            return await self._each(request, lambda row: live.row(row, lease))

    async def _all(self, parts: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """What all ``parts`` return; where one fails, none is left running."""
        if len(parts) == 1:
            return [await parts[0]]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _table(self, request: LookupRequest, answers: Sequence[FoundRows]) -> pa.Table:
        found = answers[0] if len(answers) == 1 else FoundRows.together(answers)
        reader = self._opened.plan.reader
        listed = self._opened.plan.templates.lists.intersection(request.key_columns)
        rows = reader.as_table(found, request.schema, listed)
        for name in listed:
            reader.check_any_asked(rows, name, request.keys.column(name))
        return rows

    # Memory.

    def hold_back(self, task: Hashable, *, needs_answer: bool) -> None:
        """Take no more bytes of answers; where a row waits for one, those of the oldest lookup alone."""
        if self._live is not None:
            self._live.sender.budget.hold_back(task, needs_answer=needs_answer)

    def go_on(self, task: Hashable) -> None:
        if self._live is not None:
            self._live.sender.budget.go_on(task)

    # Outcomes.

    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, outcome: Outcome) -> pa.Table | None:
        """Where `outcome-rows` asks for it: the key, and in the columns for it what happened."""
        if not self._tells_outcomes:
            return None
        told = [_ended(outcome, note, masker(self.secrets())) for note in outcome.notes]
        return self._plan.reader.outcome_rows(keys, schema, told)

    # Inside.

    @property
    def _plan(self) -> Plan:
        return self._live.plan if self._live else plan_of(self.table)

    @property
    def _tells_outcomes(self) -> bool:
        # Asked without a connection, too: that there is none may be the outcome.
        live = self._live
        return live.tells_outcomes if live else bool(self.table.read(self.OPTIONS)[0]["outcome-rows"])

    @property
    def _opened(self) -> _OpenHttp:
        assert self._live is not None, "open() or aopen() comes first"
        return self._live

    def _run(self, lookup: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None, "open() comes first"
        return self._loop.run_until_complete(lookup)


class _RowsOfKey(list[Any]):
    """The rows of a key, whose bytes are counted as long as the rows are there."""

    __slots__ = ("lease",)
    lease: ByteLease


class _OpenHttp:
    """What an open connector has."""

    def __init__(
        self,
        table: LookupTable,
        plan: Plan,
        templates: Templates,
        exchange: Exchange,
        sender: Sender,
        auth: Auth,
        secrets: set[str],
        options: Mapping[str, Any],
    ) -> None:
        self.plan = plan
        self.sender = sender
        self.tells_outcomes: bool = options["outcome-rows"]
        self._name = table.name
        self._templates = templates
        self._exchange = exchange
        self._auth = auth
        self._secrets = secrets

    @classmethod
    def of(cls, table: LookupTable) -> _OpenHttp:
        """Made from the options of ``table``, on the machine that connects.

        Raises:
            HttpFailure: an option is wrong, or the client that `engine` asks for cannot be had.
        """
        options, secrets = table.read(OPTIONS)
        plan = plan_of(table)
        templates = plan.templates.resolved(
            lambda text: table.resolve(text, option="url, query, header or body", known=secrets)
        )
        try:
            home = check_address(templates.address)
            allowed = origins(options["allowed-origins"] or "")
        except ValueError as error:
            raise HttpFailure(
                f"table {table.name}: 'url' or 'allowed-origins': {error}.", permanent=True
            ) from None
        _check_other_urls(table, options)
        _check_hosts(table, {**{key: options[key] for key in _URLS}, "url": home})
        auth = _auth(table.name, options) or Fixed(_netrc(table, options, templates, home, secrets))
        client = _client(options["engine"], _connecting(table.name, options))
        sender = Sender(client, BytesInFlight(options[MAX_BYTES_IN_FLIGHT.key]))
        exchange = Exchange(
            table.name,
            sender=sender,
            home=home,
            auth=auth,
            limits=ExchangeLimits(
                options["request-timeout"],
                options["max-redirects"],
                allowed,
                waits=options["on-throttle"] == "wait",
            ),
            judge=Judge(
                plan.reader,
                StatusPolicy(options["success-codes"], options["miss-codes"], options["transient-codes"]),
                plan.errors,
            ),
            clock=time.monotonic,
            wall_clock=time.time,
            check_origin=lambda origin: _check_hosts(table, {"allowed-origins": origin}),
        )
        return cls(table, plan, templates, exchange, sender, auth, secrets, options)

    @property
    def secrets(self) -> set[str]:
        """All that may not be shown."""
        tokens = self._auth.secrets if isinstance(self._auth, ClientCredentials) else set()
        return self._secrets | tokens

    # Asking.

    async def row(self, request: RowRequest, lease: ByteLease) -> Rows:
        """The rows of one key."""
        started = time.monotonic()
        deadline = None if request.timeout is None else started + request.timeout
        try:
            first = self._request(TemplateKeys.one(request.key))
        except Unaskable:
            return Miss()
        try:
            response, rows = await self._pages(first, deadline, lease)
        except HttpFailure as failure:
            failure.elapsed = time.monotonic() - started
            raise
        elapsed = time.monotonic() - started
        if not rows.rows:
            return Miss(_told("miss", response, elapsed, request.attempt))
        told = _told("hit", response, elapsed, request.attempt)
        given = self._given(request.key)
        return [FoundRow(row, name, given, told) for row, name in zip(rows.rows, rows.names, strict=True)]

    async def rows(
        self, keys: TemplateKeys, first: Request, request: LookupRequest, lease: ByteLease
    ) -> FoundRows:
        """The rows of many keys, which say themselves whose they are; ``first`` asks for them."""
        started = time.monotonic()
        deadline = None if request.timeout is None else started + request.timeout
        response, rows = await self._pages(first, deadline, lease)
        told = _told("hit", response, time.monotonic() - started, request.attempt)
        given = self._given(
            {name: values[0] for name, values in keys.columns.items() if name not in keys.lists}
        )
        return FoundRows(rows.rows, rows.names, [given] * len(rows), [told] * len(rows))

    def _given(self, key: Key) -> Key:
        """What need not be in the rows of ``key``, as the request said it, and no path leads to it there."""
        said = self.plan.reader.said
        return key if said.isdisjoint(key) else {name: key[name] for name in key if name not in said}

    def _request(self, keys: TemplateKeys) -> Request:
        try:
            return self._templates.request(keys)
        except Unsendable as error:
            raise HttpFailure(f"table {self._name}: {error}", permanent=True) from None

    async def _pages(
        self, request: Request, deadline: float | None, lease: ByteLease
    ) -> tuple[Response, PageRows]:
        """The rows of all pages, and the last response."""
        paging = self.plan.paging
        current: Request | None = paging.begin(request)
        rows: PageRows | None = None
        asked: set[tuple[str, bytes | None]] = set()
        while True:
            assert current is not None
            if len(asked) == paging.most:
                raise self._failure(
                    f"there are more than {paging.most} pages ('max-pages'). Nothing is cut off: ask for less"
                )
            asked.add((current.url, current.body))
            try:
                answered = await self._exchange.ask(current, deadline, lease)
            except HttpFailure as failure:
                told = paging.explained(failure, len(asked))
                if told is failure:
                    raise
                raise told from None
            response = answered.response
            if answered.is_miss:
                if len(asked) > 1 and not paging.may_miss:
                    raise self._failure(f"the next page is not there ({response.status})")
                return response, rows or answered.rows
            if rows is None:
                rows = answered.rows
            else:
                rows.add(answered.rows)
            try:
                current = paging.following(
                    current, answered, len(asked), len(rows), self._exchange.page, self.plan.reader.rows.way
                )
            except PathFailure as error:
                assert paging.path is not None, "no other way follows one"
                raise self.plan.reader.not_followed(paging.path, "'paging-path'", error) from None
            except ValueError as error:
                raise self._failure(str(error)) from None
            if current is None:
                return response, rows
            if (current.url, current.body) in asked:
                raise self._failure("the next page is one that was read already")

    def _failure(self, what: str) -> HttpFailure:
        return HttpFailure(f"table {self._name}: {what}.", permanent=True)

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
                asked.append((together, self._request(together)))
            except (Unaskable, HttpFailure):
                sendable = self._sendable(keys, positions, failures)
                if sendable:
                    some = keys.among(sendable)
                    asked.append((some, self._request(some)))
        return asked, failures

    def _sendable(
        self, keys: TemplateKeys, positions: Sequence[int], failures: dict[int, HttpFailure]
    ) -> list[int]:
        """Those of ``positions`` whose key can be sent; why others cannot is put into ``failures``."""
        sendable = []
        for at in positions:
            try:
                self._request(keys.among([at]))
            except Unaskable:
                continue
            except HttpFailure as failure:
                failures[at] = failure
            else:
                sendable.append(at)
        return sendable


def _told(outcome: str, response: Response | None, elapsed: float | None, attempt: int) -> Told:
    status = response.status if response else None
    return Told(outcome, status, None, attempt, elapsed, response.headers if response else None)


def _ended(outcome: Outcome, note: Any, mask: Callable[[str], str]) -> Told:
    """How the lookup of a key ended that found no rows."""
    error = outcome.error
    if error is None:
        return note if isinstance(note, Told) else Told("miss", attempts=outcome.attempts)
    response = error.response if isinstance(error, HttpFailure) else None
    elapsed = error.elapsed if isinstance(error, HttpFailure) else None
    told = _told("error", response, elapsed, outcome.attempts)
    return told._replace(error=mask(str(error)))


def _auth(table: str, options: Mapping[str, Any]) -> Auth | None:
    """What the options say of who we are, if they do."""
    if options["username"] is not None:
        return Fixed(basic(options["username"], options["password"] or ""))
    if options["token"] is not None:
        return Fixed({"Authorization": f"Bearer {options['token']}"})
    if options["api-key"] is not None:
        return Fixed({options["api-key-header"]: options["api-key"]})
    if options["oauth2-token-url"] is None:
        return None
    extra = {name: options[f"oauth2-{name}"] for name in ("scope", "audience")}
    return ClientCredentials(
        table,
        url=options["oauth2-token-url"],
        client=(options["oauth2-client-id"], options["oauth2-client-secret"]),
        in_body=options["oauth2-client-auth"] == "body",
        extra={name: text for name, text in extra.items() if text},
        clock=time.monotonic,
    )


_URLS = ("url", "oauth2-token-url", "proxy")
"""The options that say whom to connect to."""


def _check_other_urls(table: LookupTable, given: Mapping[str, Any]) -> None:
    """Refuse parts of the URLs of tokens and proxies that nobody would read."""

    def refuse(option: str, what: str) -> OptionError:
        return OptionError(Problem(f"table {table.name}: {option!r}: {what}."))

    for option in ("oauth2-token-url", "proxy"):
        text = hidden(given.get(option) or "")
        authority, _, rest = text.partition("://")[2].partition("/")
        if "#" in text:
            raise refuse(option, "a '#' ends an address; in a password it is %23")
        if option == "proxy" and ("?" in text or rest):
            raise refuse(option, "a proxy has no path; in a password '/' is %2F and '?' is %3F")
        if option != "proxy" and "@" in authority:
            raise refuse(option, "write who we are in 'oauth2-client-id' and 'oauth2-client-secret'")


def _check_hosts(table: LookupTable, urls: Mapping[str, str | None]) -> None:
    """Refuse to talk to a host that is not allowed.

    Args:
        table: whose options name the hosts.
        urls: for the name of an option, the URL that it gives, if it gives one.
    """
    for option, url in urls.items():
        if not url:
            continue
        try:
            host, port = host_and_port(url)
        except ValueError:
            raise OptionError(
                Problem(f"table {table.name}: {option!r}: write an absolute URL: https://host/path.")
            ) from None
        table.check_host(host, port, option=option)


def _netrc(
    table: LookupTable, options: Mapping[str, Any], templates: Templates, home: str, secrets: set[str]
) -> dict[str, str]:
    """What a .netrc file says of who we are, where that is wanted and no header says it."""
    says_who = any(name.lower() == "authorization" for name in templates.headers)
    if says_who or not options["use-environment"]:
        return {}
    path = netrc_path()
    if table.restricts_files:
        table.check_file(path, option="use-environment")
    return from_netrc(table.name, path, urlsplit(home).hostname or "", secrets)


def _client(engine: str, connecting: Connecting) -> Client:
    """The client that ``engine`` asks for.

    Raises:
        HttpFailure: it is the fast one, which cannot be had.
    """
    plain = connecting.proxy is None and not connecting.environment
    if engine == "httpx" or (engine == "auto" and not plain):
        return HttpxClient(connecting)
    if not plain:
        raise HttpFailure(f"table {connecting.table}: 'engine' = 'fast' knows no proxies.", permanent=True)
    try:
        from lookup_connectors.http.engine_fast import FastClient
    except ModuleNotFoundError:
        if engine == "auto":
            return HttpxClient(connecting)
        raise
    return FastClient(connecting)


def _connecting(table: str, options: Mapping[str, Any]) -> Connecting:
    tls = [options[f"tls-{name}"] for name in ("ca", "cert", "key", "key-password")]
    return Connecting(
        table=table,
        connections=options["connections"],
        connect_timeout=options["connect-timeout"],
        idle_timeout=options["idle-timeout"],
        most_bytes=options["max-response-bytes"],
        tls=tls_context(table, *tls),
        proxy=options["proxy"],
        environment=options["use-environment"],
    )
