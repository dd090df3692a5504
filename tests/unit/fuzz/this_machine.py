"""Targets for what people, editors and other processes of the machine give: scripts, messages, shared files."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from pygls.io_ import StdoutWriter, run_async

from lookup_hints.cli.arguments import WrongUse
from lookup_hints.cli.check import CheckOptions
from lookup_hints.cli.language_server import EditorInput, server
from lookup_hints.errors import LookupHintsError, QueryError
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import CELLS, Rules, SharedLimits, in_folder
from lookup_hints.statements import (
    check_configuration,
    own_setting,
    parameters,
    parse_params,
    read_statement,
    split_statements,
)


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


class _Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 1e5

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "whoever waits for nothing waits for ever"
        self.now += seconds


def limits_file(data: bytes) -> None:
    """Numbers, each with its place in the files of shared limits; then a task asks its origin."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for origin in ("api", "statements"):
            in_folder(folder, origin)
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
        for each in (store, spent):
            assert each._file is not None
            os.close(each._file)


class _Editor:
    """What an editor sends, in the way that the loop of the server reads it."""

    def __init__(self, data: bytes) -> None:
        self._data = EditorInput(BytesIO(data))

    async def readline(self) -> bytes:
        return self._data.readline()

    async def readexactly(self, size: int) -> bytes:
        return self._data.read(size)


_SILENT = logging.getLogger("fuzzed")
"""pygls tells it of each message that is none."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def editor_messages(data: bytes) -> None:
    """Messages of an editor with their headers, as they come over the standard input."""

    async def run() -> None:
        serves = server(CheckOptions())
        serves.protocol.set_writer(StdoutWriter(BytesIO()))
        await run_async(threading.Event(), _Editor(data), serves.protocol, _SILENT)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with suppress(SystemExit, WrongUse):  # it was told to end
        asyncio.run(run())


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
        "editor_messages": (_good_editor(),),
    }
