"""One question to an API, from the first request to a response that can be read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import urljoin

from lookup_connectors.http.auth_interface import Auth
from lookup_connectors.http.classification import SMALL_BODY, Classification
from lookup_connectors.http.client import HeldBack, HttpClient, one_of
from lookup_connectors.http.error_bodies import pause_told
from lookup_connectors.http.headers import reported_pause, retry_after
from lookup_connectors.http.request import Request, origin_of
from lookup_connectors.http.response import HttpFailure, KeptConnectionLost, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease
from lookup_hints.spi import Ending, Permits, permits, reporting

_REDIRECTS = (301, 302, 303, 307, 308)
SECOND_TRIES = 10
"""This many requests whose kept connection was lost are sent again at once."""
_ANSWERS = ("answer", "miss")
# A parsed document of small objects takes this many times the bytes of its text.
_PARSED = 8
# Status codes of gateways that cannot reach the server.
_UNREACHABLE = (502, 503, 504)
_OURS = frozenset({"authorization", "cookie", "proxy-authorization", "host"})


class Answered(NamedTuple):
    """A success or a miss: the request (after redirects), the response, and its classification."""

    request: Request
    response: Response
    classified: Classification


class Begun(NamedTuple):
    """A request that was sent already, with its credentials, time, and response or failure."""

    request: Request
    credentials: dict[str, str]
    time: float
    came: Response | Exception
    classified: Classification | None = None
    ending: Ending = "unknown"
    wait: float = 0.0


def ending_of_failure(failure: Exception) -> Ending:
    """The state of the server as a failure without a response shows it."""
    if isinstance(failure, KeptConnectionLost) or not isinstance(failure, HttpFailure) or failure.permanent:
        return "unknown"  # servers close connections that they do not need
    return "lost"


# Redirects, pauses and tokens are decided without I/O; a client only carries one request to its end.
# (docs/decisions/0021)
@dataclass
class Exchange:
    """Sends requests to one origin, under its limits, with its credentials.

    Args:
        table: its name, for messages.
        client: sends requests.
        home: the origin of the table; only it gets credentials and private parts.
        auth: the credentials.
        classify: classifies a response.
        request_timeout: seconds for each request.
        max_redirects: redirects to follow at most.
        allowed: other origins that redirects and pages may lead to.
        waits: whether it waits when the server asks for a pause.
        check_origin: raises if the security policy forbids an origin.
        clock: seconds.
        wall_clock: seconds since 1970.
    """

    table: str
    client: HttpClient
    home: str
    auth: Auth
    classify: Callable[[Response], Classification]
    request_timeout: float
    max_redirects: int
    allowed: frozenset[str] = frozenset()
    waits: bool = True
    check_origin: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._second_tries = asyncio.Semaphore(SECOND_TRIES)

    async def ask(
        self, request: Request, deadline: float | None, lease: ByteLease, begun: Begun | None = None
    ) -> Answered:
        """The answer to ``request``: a success or a miss, after redirects, pauses and a renewed token.

        Its bytes are counted by ``lease``. ``begun`` is the first attempt, if it was sent already.

        Raises:
            HttpFailure: anything else.
        """
        own = permits()
        redirects, renewed = 0, False
        after: float | None = None
        classified: Classification | None
        while True:
            credentials = self.auth.known if begun is None else begun.credentials
            if credentials is None:
                credentials = await self.auth.fetched(self.client, lease, self._seconds_left(deadline))
            try:
                if begun is None:
                    response, classified, wait = await self._with_permit(
                        request, credentials, own, deadline, lease, after=after
                    )
                elif isinstance(begun.came, Exception):
                    raise begun.came
                else:
                    response, classified = begun.came, begun.classified
                    wait = self._seconds_before_repeat(
                        response, classified, begun.ending, begun.wait, deadline
                    )
            except KeptConnectionLost:
                # Few at once, as they serve to detect a server that is down.
                async with one_of(self._second_tries, lease):
                    response, classified, wait = await self._with_permit(
                        request, credentials, own, deadline, lease, fresh=True
                    )
            begun = None
            if wait is not None:
                after = self.clock() + wait if wait else None
                continue
            if response.status == 401 and self.auth.renews and not renewed:
                renewed = True
                self.auth.forget(credentials)
                continue
            if response.status in _REDIRECTS and "location" in response.headers:
                redirects += 1
                request = self._follow_redirect(request, response, redirects)
                continue
            if classified is None:
                await lease.room(len(response.body) * _PARSED)
                classified = self.classify(response)
            if classified.kind not in _ANSWERS:
                raise self._failure_of(request, response, classified)
            return Answered(request, response, classified)

    async def _with_permit(
        self,
        request: Request,
        credentials: dict[str, str],
        own: Permits,
        deadline: float | None,
        lease: ByteLease,
        *,
        after: float | None = None,
        fresh: bool = False,
    ) -> tuple[Response, Classification | None, float | None]:
        """The response, under a permit of ``own``; and the seconds until a repeat, if one is needed.

        A large body is not classified yet: that must wait for room, and no permit should be held meanwhile.

        Raises:
            HttpFailure: there is no response, or one that asks for a pause beyond the timeout.
        """
        while True:
            if after is not None or not own.try_acquire():
                with lease.idle():
                    await own.acquire(deadline, after)
            started = self.clock()
            ending: Ending = "unknown"
            pause: float | None = None
            wait = 0.0
            may_send = partial(own.may_send, started)
            try:
                # Signed no sooner: a signature holds the time, and a permit may take minutes.
                signed = self._with_credentials(request, credentials)
                response = await self.client.send(
                    signed, self._seconds_left(deadline), lease, fresh=fresh, may_send=may_send
                )
                classified, ending, pause = self.assessed(response)
            except HeldBack:
                ending, after = "unsent", None
                continue
            except HttpFailure as failure:
                ending = ending_of_failure(failure)
                raise
            except asyncio.CancelledError:
                ending = "lost" if deadline is not None and self.clock() >= deadline else "unknown"
                raise
            finally:
                wait = own.release(started, ending, pause)
            return (
                response,
                classified,
                self._seconds_before_repeat(response, classified, ending, wait, deadline),
            )

    # An endless Retry-After: 0 would cause requests at the speed of the network; one of 400 digits would
    # close the origin. (docs/decisions/0065)
    def _seconds_before_repeat(
        self,
        response: Response,
        classified: Classification | None,
        ending: Ending,
        wait: float,
        deadline: float | None,
    ) -> float | None:
        """The seconds after which a request is sent again that was refused; None where it was not.

        Raises:
            HttpFailure: that is too late.
        """
        if classified is None or ending != "refused":
            return None
        reporting().throttled()
        self._check_refusal(response, classified, wait, deadline)
        return wait

    def is_final(self, answered: Answered) -> bool:
        """Whether it is a success or a miss, and leads nowhere else."""
        _, response, classified = answered
        is_elsewhere = response.status in _REDIRECTS or response.status == 401
        return classified.kind in _ANSWERS and not is_elsewhere

    def assessed(self, response: Response) -> tuple[Classification | None, Ending, float | None]:
        """The classification of a response, the state of the server, and the requested pause in seconds.

        A large body is not classified yet: that must wait for room. "Now" (``Retry-After: 0``, or a moment in
        the past) is ignored, as it would mean no pause at all.
        """
        classified = self.classify(response) if len(response.body) <= SMALL_BODY else None
        kind = "answer" if classified is None else classified.kind
        status = 429 if kind == "throttled" else response.status
        told = reported_pause(status, response.headers, self.wall_clock()) or None
        if classified is not None and kind == "throttled":
            return classified, "refused", told or pause_told(classified.document, self.wall_clock()) or None
        is_lost = response.status in _UNREACHABLE and kind not in _ANSWERS
        return classified, "lost" if is_lost else "served", told

    def page(self, request: Request, link: str) -> Request:
        """The request for the page that ``link`` leads to.

        Raises:
            HttpFailure: it leads to an origin that is not allowed.
        """
        return self._request_to_link(request._replace(method="GET", body=None), link, "the next page")

    def _seconds_left(self, deadline: float | None) -> float:
        """Seconds for the next request."""
        if deadline is None:
            return self.request_timeout
        return min(self.request_timeout, max(deadline - self.clock(), 1e-3))

    def signed(self, requests: Sequence[Request], credentials: dict[str, str]) -> Sequence[Request]:
        """``requests`` to the home origin with credentials."""
        return (
            [self._with_credentials(request, credentials) for request in requests]
            if credentials
            else requests
        )

    # Values of references go only to the origin of `url`; a redirect elsewhere carries only literal text.
    # (docs/decisions/0082)
    def _with_credentials(self, request: Request, credentials: dict[str, str]) -> Request:
        """``request`` with credentials; for other origins without them and without private parts."""
        if not credentials and not request.headers:
            return request
        if request.origin == self.home:
            return self.auth.applied(request, credentials) if credentials else request
        hidden = _OURS | request.private.headers
        headers = {name: text for name, text in request.headers.items() if name.lower() not in hidden}
        return request._replace(headers=headers)

    def _check_refusal(
        self, response: Response, classified: Classification, pause: float, deadline: float | None
    ) -> None:
        """Refuse to ask again where that is not wanted, or too late."""
        if self.waits and (deadline is None or self.clock() + pause < deadline):
            return
        tip = " That is longer than this lookup has left: raise 'timeout'." if self.waits else ""
        wants = f" and wants a pause of {pause:.3g} s" if pause else ""
        # 429 needs no further explanation.
        told = classified.said or ("" if response.status == 429 else response.excerpt())
        raise HttpFailure(
            f"table {self.table}: {self.home} answered {response.status}{wants}.{_says_text(told)}{tip}",
            retry_after=pause or None,
            response=response,
        )

    def _follow_redirect(self, request: Request, response: Response, redirects: int) -> Request:
        if redirects > self.max_redirects:
            raise HttpFailure(
                f"table {self.table}: more than {self.max_redirects} redirects, the last one from"
                f" {request.origin}. 'max-redirects' says how many are followed.",
                permanent=True,
            )
        # As in browsers, only 307 and 308 repeat a POST. Without its body it would be another request.
        if response.status in (301, 302) and request.body is not None:
            raise HttpFailure(
                f"table {self.table}: {request.origin} answered {response.status} to POST, a redirect which"
                " most clients follow by a GET without 'body'. Set 'url' to where it leads.",
                permanent=True,
                response=response,
            )
        if response.status in (301, 302, 303) and request.method == "POST":
            request = request._replace(method="GET", body=None)
        return self._request_to_link(request, response.headers["location"], "a redirect")

    def _request_to_link(self, request: Request, link: str, what: str) -> Request:
        """``request``, sent to where ``link`` leads."""
        try:
            url = urljoin(request.url, link).partition("#")[0]
            origin = origin_of(url)
        except ValueError:
            raise HttpFailure(f"table {self.table}: {what} leads to no URL.", permanent=True) from None
        if origin == self.home:
            return request._replace(url=url)
        if origin not in self.allowed:
            raise HttpFailure(
                f"table {self.table}: {what} leads to {origin}, which is not allowed. If it is to be"
                f" trusted, name it in 'allowed-origins'.",
                permanent=True,
            )
        self.check_origin(origin)
        if request.body is not None and request.private.body:
            raise HttpFailure(
                f"table {self.table}: {what} leads to {origin}, and 'body' holds a reference, which is for"
                f" {self.home} alone.",
                permanent=True,
            )
        return request._replace(url=url)

    def _failure_of(self, request: Request, response: Response, classified: Classification) -> HttpFailure:
        if classified.failure is not None:
            return classified.failure
        status = response.status
        how = f", and {classified.verdict}" if classified.verdict else ""
        tip = classified.tip or ("" if classified.verdict else _TIPS.get(status, ""))
        return HttpFailure(
            f"table {self.table}: {request.origin} answered {status} to {request.method}{how}."
            f"{_says_text(classified.said or response.excerpt())} {tip}".rstrip(),
            permanent=classified.kind == "permanent",
            retry_after=retry_after(response.headers, self.wall_clock()) or None,
            response=response,
        )


def _says_text(told: str) -> str:
    return f" It says: {told}" if told else ""


_TIPS = {
    202: "The answer is not there yet. 'success-codes' = '2XX' takes it as it is.",
    206: "That is a part of what there is: see 'paging'. 'success-codes' = '2XX' takes the part alone.",
    207: (
        "Each part of it has an outcome of its own. Let 'rows' choose those that succeeded, and 'error-when'"
        " say which others are failures; then 'success-codes' = '2XX' takes it."
    ),
    226: "That is a change and not the whole: leave 'header.A-IM' out.",
    300: "It offers several answers: name one of them in 'url', or in 'header.Accept'.",
    304: "It holds no rows: leave 'header.If-None-Match' and the like out.",
    400: "Check 'url', 'query' and 'body'.",
    401: "Check the credentials.",
    403: "Check the rights of these credentials.",
    405: "Check 'method'.",
    413: "Lower 'keys-per-request'.",
    414: "Lower 'keys-per-request', or send the keys in a body.",
    415: "Set 'header.Content-Type'.",
}
