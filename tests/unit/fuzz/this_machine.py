"""Targets for what people, editors and other processes of the machine give: scripts, messages, shared files."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import struct
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import numpy as np
from pygls.io_ import StdoutWriter, run_async
from pygls.protocol import LanguageServerProtocol

from lookup_hints.cache.store.full_table import Generations
from lookup_hints.cache.store.invalidations import Checks, Invalidations
from lookup_hints.cli.arguments import WrongUse
from lookup_hints.cli.check import CheckOptions
from lookup_hints.cli.language_server import EditorInput, server
from lookup_hints.errors import LookupHintsError, QueryError
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import CELLS, LimitStore, Rules, SharedLimits, in_folder
from lookup_hints.statements import (
    check_configuration,
    own_setting,
    parameters,
    parse_params,
    read_statement,
    split_statements,
)
from lookup_hints.testing.fake import FakeClock
from tests.unit.cache.support import KEYS, UNLIMITED, keys


def scripts(data: bytes) -> None:
    """A script, and what its statements are."""
    with suppress(QueryError):
        for statement in split_statements(data.decode("utf-8", "replace")):
            with suppress(QueryError):
                read_statement(statement.text)
                own_setting(statement.text)
                parameters(statement.text)


def settings(data: bytes) -> None:
    """Lines of ``key=value``: parameters of a script, and settings of a Spark that starts."""
    lines = data.decode("utf-8", "replace").splitlines()
    with suppress(QueryError):
        parse_params(lines)
    for key, _, value in (line.partition("=") for line in lines):
        with suppress(LookupHintsError):
            check_configuration(key, value)


class _Clock(FakeClock):
    """A clock that finds whoever waits for nothing, which would be for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1e5

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        super().sleep(seconds)


def limits_file(data: bytes) -> None:
    """Numbers, each with its place in the files of shared limits; then a task asks its origin."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for origin in ("api", "statements"):
            _close(in_folder(folder, origin))
        for path in folder.iterdir():
            with path.open("r+b") as file:
                for place, number in struct.iter_unpack("<Hd", data[: len(data) // 10 * 10]):
                    file.seek(8 * (place % CELLS))
                    file.write(struct.pack("d", number))
        clock = _Clock()
        store, spent = in_folder(folder, "api"), in_folder(folder, "statements")
        rules = Rules(capacity=3, concurrency=2, rate=50.0, timeout=3.0, max_requests=9, statement=1)
        limiter = OriginLimiter(store, rules, spent=spent, process=1, clock=clock, sleep=clock.sleep)
        for ending in ("served", "refused", "lost", "served"):
            with suppress(LookupHintsError):
                limiter.acquire_blocking(clock() + 1.0)
                limiter.release(clock(), ending, 0.5 if ending == "refused" else None)
                assert limiter.retry_delay(2) >= 0
        limiter.close()
        _close(store)
        _close(spent)


def _close(store: LimitStore) -> None:
    assert store._file is not None
    os.close(store._file)


class _Editor:
    """What an editor sends, in the way that the loop of the server reads it."""

    def __init__(self, data: bytes) -> None:
        self._data = EditorInput(BytesIO(data))

    async def readline(self) -> bytes:
        return self._data.readline()

    async def readexactly(self, size: int) -> bytes:
        return self._data.read(size)


def cache_notes(data: bytes) -> None:
    """What a cache keeps beside its answers, by the first byte: what changed, when it looked, why it has no table."""
    kind, content = data[:1], data[1:]
    clock = _Clock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        invalidations = Invalidations(folder, KEYS)
        if kind == b"t":
            (folder / "cafe.3.taken").write_bytes(content)
            (folder / f"{invalidations.source}.7.taken").write_bytes(_with_checksum(content))
            invalidations.look(clock)
            invalidations.allow(np.arange(4, dtype=np.uint64), np.full(4, clock()))
            invalidations.invalidate("cafe", 4, None, clock(), 100.0)
        elif kind == b"c":
            checks = Checks(folder, invalidations, 10.0, 1.0, 100.0, clock)
            (folder / f"{invalidations.source}.checks").write_bytes(content)
            checks.failure(lambda since: (5, None if since is None else keys([since % 3])))
        else:
            (folder / "note").write_bytes(content)
            note = Generations(folder, UNLIMITED, clock).noted()
            assert note is None or (type(note.at), type(note.kind), type(note.text)) == (int, str, str)


def _with_checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest() + content


def editor_messages(data: bytes) -> None:
    """Messages of an editor with their headers, as they come over the standard input."""
    failures: list[BaseException] = []

    def note_failure(_: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        failure = context.get("exception")
        if isinstance(failure, Exception):  # pygls lets what was cancelled pass, too
            failures.append(failure)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(note_failure)
        serves = server(CheckOptions())
        serves.protocol.set_writer(StdoutWriter(BytesIO()))
        await run_async(threading.Event(), _Editor(data), serves.protocol)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    logging.disable()  # pygls tells of each message that is none
    try:
        with suppress(SystemExit, WrongUse):  # it was told to end
            asyncio.run(run())
    finally:
        logging.disable(logging.NOTSET)
        # They would keep the servers of 128 runs; a process of its own has one.
        LanguageServerProtocol.get_message_type.cache_clear()
        LanguageServerProtocol.get_result_type.cache_clear()
    for failure in failures:
        raise failure


def _message(number: int | None, method: str, **params: object) -> bytes:
    body = {
        "jsonrpc": "2.0",
        "method": method,
        "params": params,
        **({} if number is None else {"id": number}),
    }
    text = json.dumps(body).encode()
    return b"Content-Length: %d\r\n\r\n" % len(text) + text


def _cell(place: int, number: float) -> bytes:
    return struct.pack("<Hd", place, number)


def _good_editor() -> bytes:
    document = {"uri": "file:///a.sql", "languageId": "sql", "version": 1, "text": "SELECT c.\nFROM c"}
    at = {"textDocument": {"uri": "file:///a.sql"}, "position": {"line": 0, "character": 9}}
    return (
        _message(1, "initialize", processId=None, rootUri=None, capabilities={})
        + _message(None, "initialized")
        + _message(None, "textDocument/didOpen", textDocument=document)
        + _message(2, "textDocument/completion", **at)
        + _message(3, "textDocument/hover", **at)
        + _message(None, "exit")
    )


def _places_in_file() -> Mapping[str, int]:
    limits = SharedLimits([0.0] * CELLS)
    return {
        "value": limits.limit.start,
        "pause": limits.pause.start,
        "rate": limits.rate.start,
        "retries": limits.retries.start,
        "breaker": limits.breaker.start,
        "leases": limits.leases.start,
        "spent": limits.spent.start,
    }


def good_inputs() -> Mapping[str, tuple[bytes, ...]]:
    """Some of each."""
    place = _places_in_file()
    return {
        "scripts": (
            b"SET a = 1; -- one;\nSELECT ';' /* ; */; BEGIN DECLARE x INT; SET x = 1; END; SELECT :day, ?",
            b"SET lookup.stream.trigger = once; CREATE TEMPORARY TABLE c (id INT) WITH ('connector' = 'memory');"
            b"INSERT INTO noop SELECT * FROM STREAM t; EXPLAIN COST SELECT `a;``b`",
            b"BEGIN IF a THEN SELECT CASE WHEN 1 THEN 2 END; END IF; WHILE b DO LEAVE l; END WHILE; END",
        ),
        "settings": (
            b"n=5\nshare=0.5\nday=2013-01-01\ncode='007'\nlookup.max-requests=5\nspark.lookup.access=scan",
            b"spark.lookup.security.allowed-hosts=*.example\nrestart-strategy.type=none\ntable.dml-sync=true",
        ),
        "limits_file": (
            b"",
            _cell(place["value"], 7) + _cell(place["rate"], 1e5 + 3) + _cell(0, 1.0),
            _cell(place["pause"], 1e5 + 0.5) + _cell(0, 1.0) + _cell(place["retries"], -3.0),
            _cell(place["breaker"], 9e4) + _cell(place["breaker"] + 1, 1e5 + 0.2) + _cell(0, 1.0),
            _cell(place["leases"], 2) + b"".join(_cell(place["leases"] + 4 + n, 2.0) for n in range(10)),
            _cell(place["spent"], 2.0) + _cell(place["spent"] + 1, 8.0),
        ),
        "cache_notes": (
            b"t" + struct.pack("<dQQQdd", 9e4, 7, 1, 2, 9.5e4, 9.6e4),
            b"t" + _with_checksum(struct.pack("<dQQd", -math.inf, 7, 3, 9.9e4)),
            b'c{"tried": 99985.5, "failure": "", "began": 99985.5, "seen": [[99970.5, 3], [99986.0, 4]]}',
            b'c{"tried": 99999.5, "failure": "down", "began": null, "seen": []}',
            b'n{"at": 5, "kind": "source", "text": "no route"}',
        ),
        "editor_messages": (_good_editor(),),
    }
