"""Answers that are kept in a file which processes share, as RFC 9111 says for a private cache.

hishel decides by the headers what may be kept, used and renewed, and keeps it in SQLite. What is said here is
what lookups need beside that:

- Nothing is guessed: an answer without a lifetime is used only after the server has confirmed it.
- ``Age``, and a clock of the server that is late, count; a ``Date`` that is missing is that of now.
- The file holds no URL and no header of a request, only hashes of them.
- What was damaged on the disk is not used.

Imported where `http.cache` is on: only there hishel is needed. All of it blocks, and runs on one thread.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import formatdate, parsedate_to_datetime
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, cast
from uuid import uuid4

import hishel

from lookup_connectors.http.message import Request, Response

MOST_BYTES = 256 * 1024 * 1024
"""The file holds about so much; then what was unused for longest goes."""
MOST_BYTES_OF_ANSWER = MOST_BYTES // 16
UNUSED_SECONDS = 24 * 3600.0
"""What nobody has used for so long goes."""
READ_SECONDS = 30.0
"""What was used in the last seconds is not removed: somebody may be reading it."""

_PRIVATE = hishel.CacheOptions(shared=False, supported_methods=["GET"], allow_stale=False)
_NOT_MODIFIED = 304
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\d+(?=\s*(?:,|$))", re.IGNORECASE)
_VALIDATORS = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
_CHECK = "lookup-hints-check"
"""A header of kept responses: a checksum, as SQLite has none."""

_T = TypeVar("_T")
_log = logging.getLogger("lookup_hints.cache")
_warned: set[tuple[str, str]] = set()


class Kept:
    """The answers that a table's servers have given, in a file of ``folder``.

    Where the file fails, nothing is kept or used any more, and a warning says why.
    """

    def __init__(self, table: str, folder: Path) -> None:
        self._table, self._path = table, folder / "answers.sqlite"
        self._storage: hishel.SqliteStorage | None = None
        self._is_off = False

    def answers(self, name: str, *, confirmed: bool) -> LookupAnswers:
        """What one lookup may use: what was kept under ``name``; only what servers confirm, if so wanted."""
        return LookupAnswers(self, name, confirmed=confirmed)

    def close(self) -> None:
        """Close the file."""
        self._is_off = True
        storage, self._storage = self._storage, None
        if storage is not None:
            storage.close()

    def safely(self, work: Callable[[hishel.SqliteStorage], _T], otherwise: _T) -> _T:
        """What ``work`` gives; ``otherwise`` where the file cannot be used, now or as it fails."""
        if self._is_off:
            return otherwise
        _heard.take()
        try:
            self._storage = self._storage or self._opened()
            found = work(self._storage)
            failure = _heard.take()
        except Exception as error:
            failure = error
        if failure is None:
            return found
        self._give_up(failure)
        return otherwise

    def _opened(self) -> hishel.SqliteStorage:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        return hishel.SqliteStorage(
            connection=connection,
            default_tti=UNUSED_SECONDS,
            max_stream_size=MOST_BYTES_OF_ANSWER,
            max_size=MOST_BYTES,
            soft_delete_ttl=READ_SECONDS,
        )

    def _give_up(self, failure: Exception) -> None:
        why = f"{type(failure).__name__}: {getattr(failure, 'strerror', None) or failure}"
        if (self._table, why) not in _warned:
            _warned.add((self._table, why))
            _log.warning("Lookup of %s runs without its HTTP cache: %s", self._table, why)
        with suppress(Exception):
            self.close()
        self._is_off = True


class Damaged(Exception):
    """What was read is not what was written."""


class LookupAnswers:
    """The answers of one lookup; see ``exchange.Answers``."""

    def __init__(self, kept: Kept, name: str, *, confirmed: bool) -> None:
        self.asked = self.recalled = False
        self._kept, self._name, self._confirmed = kept, name, confirmed

    def recall(self, request: Request, signed: Request) -> Recalled:
        """What is kept for ``request``, which goes out as ``signed``. Blocks."""
        found = Recalled(signed, kept=self._kept)
        found = self._kept.safely(lambda storage: self._recalled(storage, request, signed), found)
        self.recalled = self.recalled or found.response is not None
        return found

    def _recalled(self, storage: hishel.SqliteStorage, request: Request, signed: Request) -> Recalled:
        key = _hash((self._name, request.url, sorted(request.headers.items())))
        headers = {name.lower(): _hash(text) for name, text in signed.headers.items()}
        asked = hishel.Request(request.method, key, hishel.Headers(headers))
        stored = _newest(storage, asked)
        wanted = asked
        if self._confirmed:
            wanted = replace(asked, headers=hishel.Headers({**headers, "cache-control": "no-cache"}))
        state = hishel.IdleClient(_PRIVATE).next(wanted, [stored.entry] if stored else [])
        if isinstance(state, hishel.FromCache):
            assert stored is not None
            return Recalled(signed, stored.as_response(state.entry.response), self._kept)
        more = {"Cache-Control": "no-cache"} if self._confirmed else {}
        if isinstance(state, hishel.NeedRevalidation):
            more |= _conditions(state.request.headers)
        return Recalled(signed.with_headers(more), None, self._kept, _Question(asked, state, stored))


@dataclass(frozen=True)
class _Stored:
    """An entry of the file, read whole, and all that answer the same request."""

    entry: hishel.Entry
    body: bytes
    all: tuple[hishel.Entry, ...]

    def as_response(self, response: hishel.Response) -> Response:
        """``response``, which is that of the entry, as we have them."""
        headers = {name.lower(): text for name, text in response.headers.items() if name != _CHECK}
        return Response(response.status_code, headers, self.body)


@dataclass(frozen=True)
class _Question:
    """What is asked of a server, and what is kept that its answer may renew or replace."""

    asked: hishel.Request
    state: hishel.CacheMiss | hishel.NeedRevalidation
    stored: _Stored | None
    time: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Recalled:
    """What is kept for one request; see ``exchange.Recalled``."""

    request: Request
    response: Response | None = None
    kept: Kept | None = field(default=None, repr=False)
    question: _Question | None = field(default=None, repr=False)

    def end(self, response: Response) -> Response | None:
        """What answers the request, which is kept if it may be; None: ask again. Blocks."""
        asks_again = response.status == _NOT_MODIFIED and self._asks_for_confirmation
        otherwise = None if asks_again else response
        question = self.question
        if self.kept is None or question is None or (response.status == _NOT_MODIFIED and not asks_again):
            return otherwise
        return self.kept.safely(lambda storage: _end(storage, question, response), otherwise)

    @property
    def _asks_for_confirmation(self) -> bool:
        return self.question is not None and isinstance(self.question.state, hishel.NeedRevalidation)


def _end(storage: hishel.SqliteStorage, question: _Question, response: Response) -> Response | None:
    stored = question.stored
    state: hishel.AnyState = question.state.next(_received(response, question.time))
    while True:
        if isinstance(state, hishel.InvalidateEntries):
            for each in state.entry_ids:
                storage.remove_entry(each)
            state = state.next()
        elif isinstance(state, hishel.NeedToBeUpdated):
            assert stored is not None
            for entry in state.updating_entries:
                storage.update_headers(entry.id, _checked(entry, stored.body).response.headers)
            state = state.next()
        elif isinstance(state, hishel.FromCache):
            assert stored is not None
            return stored.as_response(state.entry.response)
        elif isinstance(state, hishel.StoreAndUse | hishel.CouldNotBeStored):
            if isinstance(state, hishel.StoreAndUse):
                _keep(storage, question.asked, state.response, response.body)
            for entry in stored.all if stored else ():  # what is newer counts, also where it is not kept
                storage.remove_entry(entry.id)
            return response
        else:
            return None


def _keep(
    storage: hishel.SqliteStorage, asked: hishel.Request, response: hishel.Response, body: bytes
) -> None:
    """Keep ``response`` where it can be of use: as long as it is fresh, or as the server may confirm it."""
    chosen_by = _named_by_vary(asked, response)
    if chosen_by is None:
        return
    entry = hishel.Entry(uuid4(), replace(asked, headers=hishel.Headers(chosen_by)), response)
    state = hishel.IdleClient(_PRIVATE).next(asked, [entry])
    if isinstance(state, hishel.NeedRevalidation) and not _conditions(state.request.headers):
        return
    entry = _checked(entry, body)
    whole = replace(entry.response, stream=iter([body] if body else []))
    kept = storage.create_entry(entry.request, whole, asked.url)
    for _ in cast("Iterable[bytes]", kept.response.stream):  # which writes it
        pass


def _named_by_vary(asked: hishel.Request, response: hishel.Response) -> dict[str, str] | None:
    """The headers by which a server has chosen its ``response``; None where nobody can know."""
    names = {name.strip().lower() for name in response.headers.get("vary", "").split(",")}
    return None if "*" in names else {name: text for name, text in asked.headers.items() if name in names}


def _newest(storage: hishel.SqliteStorage, asked: hishel.Request) -> _Stored | None:
    """The newest entry that answers what is ``asked``; processes that asked at once have kept several.

    Raises:
        Damaged: it is not as it was written.
    """
    # Not left to hishel, which would ask whether an answer to other headers was modified.
    entries = [
        entry
        for entry in storage.get_entries(asked.url)
        if dict(entry.request.headers.items()) == _named_by_vary(asked, entry.response)
    ]
    if not entries:
        return None
    entry = entries[0]
    if len(entries) > 1:
        entry = max(entries, key=lambda each: _seconds(each.response.headers.get("date", "")) or 0.0)
    try:
        body = b"".join(cast("Iterable[bytes]", entry.response.stream or ()))
    except RuntimeError:  # another process has just removed it
        return None
    if _checked(entry, body).response.headers.get(_CHECK) != entry.response.headers.get(_CHECK):
        raise Damaged("a file of it is damaged and is not used")
    return _Stored(entry, body, tuple(entries))


def _checked(entry: hishel.Entry, body: bytes) -> hishel.Entry:
    """``entry`` with the checksum of all that is kept of it, and of its ``body``."""
    headers = {name: text for name, text in entry.response.headers.items() if name != _CHECK}
    request = entry.request
    parts = (request.method, request.url, sorted(request.headers.items()), entry.response.status_code)
    check = _hash((parts, sorted(headers.items()), blake2b(body).digest()))
    return replace(
        entry, response=replace(entry.response, headers=hishel.Headers({**headers, _CHECK: check}))
    )


def _received(response: Response, asked: float) -> hishel.Response:
    """``response`` to what was ``asked`` then, with all that hishel has no eye for said by ``Date``."""
    now = time.time()
    headers = {name.lower(): text for name, text in response.headers.items()}
    sent = _seconds(headers.get("date", "")) or now
    age = headers.pop("age", "").split(",")[0].strip()
    old = max(0.0, now - sent, (float(age) if _is_count(age) else 0.0) + now - asked)
    headers["date"] = formatdate(now - old, usegmt=True)
    if "expires" in headers:
        until = _seconds(headers["expires"])
        headers["expires"] = "0" if until is None else formatdate(now - old + until - sent, usegmt=True)
    elif response.status != _NOT_MODIFIED and not _MAX_AGE.search(headers.get("cache-control", "")):
        headers["expires"] = "0"  # no lifetime is guessed from Last-Modified
    for name in _VALIDATORS:
        if not headers.get(name, "").isascii():
            del headers[name]  # no client could send it
    return hishel.Response(response.status, hishel.Headers(headers))


def _is_count(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 10


def _seconds(date: str) -> float | None:
    """A date of HTTP in seconds since 1970."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _conditions(headers: hishel.Headers) -> dict[str, str]:
    """What of ``headers`` asks a server to confirm what is kept."""
    return {name: headers[name] for name in _VALIDATORS.values() if name.lower() in headers}


def _hash(parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=24).hexdigest()


class _Heard(logging.Handler):
    """The failure that hishel has told last on this thread: it goes on without its file, and logs why."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._last = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        self._last.failure = record.exc_info[1] if record.exc_info else None

    def take(self) -> Exception | None:
        """That failure, once."""
        failure: Exception | None = getattr(self._last, "failure", None)
        self._last.failure = None
        return failure


_heard = _Heard()
logging.getLogger("hishel").addHandler(_heard)
