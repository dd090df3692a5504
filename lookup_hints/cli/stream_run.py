"""Running a file whose statements start streaming queries: wait for them, stop them on a signal, sum up."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from lookup_hints.errors import cause_of
from lookup_hints.metrics.readable_summary import seconds_text, share_text
from lookup_hints.streaming.streams import MicroBatch, StartedStream, Streams
from lookup_hints.streaming.supervisor import FOR_GOOD, Supervised

Tell = Callable[[str], None]


class Interrupted(BaseException):
    """SIGINT or SIGTERM came; not an error, so nothing that handles errors swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM raise ``Interrupted`` here; a second one acts as ever.

    Spark's own handler of SIGINT cancels all jobs, which a restart strategy would take for a failure.
    """
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def interrupt(number: int, _: object) -> None:
        restore()
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        restore()


LOOK_SECONDS = 1.0
"""How often the streaming queries are asked for new micro-batches."""


def run_with_streams(
    streams: Streams, run: Callable[[], int], tell: Tell, tell_error: Tell, *, quiet: bool = False
) -> int:
    """Run statements, then wait for the streaming queries that they started; none is left running.

    Returns:
        The exit code: that of ``run``, 1 when a query failed for good, 128 + n after signal n.
    """
    known = len(streams.started)
    raised: Exception | None = None
    with _told_here():
        try:
            with signals_raise():
                code = run()
                if code == 0 and streams.running:
                    number = len(streams.running)
                    count = "1 streaming query runs" if number == 1 else f"{number} streaming queries run"
                    tell(f"\n{count}; Ctrl-C stops {'it' if number == 1 else 'them'}")
                    _await_all(streams, None if quiet else _Batches(streams, tell))
        except Interrupted as interrupted:
            tell_error(f"\nstopped by {signal.Signals(interrupted.number).name}")
            code = 128 + interrupted.number
        except Exception as error:
            raised, code = error, 1
    failures = [_failure(each.supervised) for each in streams.started[known:] if each.supervised.error]
    if raised is not None and not failures:
        failures = [f"error in a streaming query: {cause_of(raised)}"]
    for failure in failures:
        tell_error(f"\n{failure}")
    code = 1 if failures and code == 0 else code
    streams.stop()
    if streams.started[known:]:
        tell(f"\n{stream_summary(streams.started[known:])}")
    return code


def _await_all(streams: Streams, batches: _Batches | None) -> None:
    if batches is None:
        streams.await_all()
        return
    try:
        while not streams.await_all(LOOK_SECONDS):
            batches.tell_new()
    finally:
        batches.tell_new()


class _Batches:
    def __init__(self, streams: Streams, tell: Tell) -> None:
        self._streams, self._tell = streams, tell
        self._told: dict[Supervised, datetime] = {}

    def tell_new(self) -> None:
        for stream in self._streams.started:
            told = self._told.get(stream.supervised, _LONG_AGO)
            for batch in stream.history:
                if batch.began > told:
                    self._told[stream.supervised] = batch.began
                    self._tell(batch_line(stream.supervised.name, batch))


_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


def batch_line(query: str, batch: MicroBatch) -> str:
    """One line about a micro-batch: rows, what its lookups did together, how long it took, how late it is."""
    counts = batch.total
    said = [f"{batch.rows:,} rows"]
    if counts.tasks:
        said += [f"{counts.keys:,} keys", f"{counts.requests:,} requests"]
    if counts.keys:
        said.append(f"{share_text(counts.hits, counts.keys)} found")
    if counts.requests:
        said.append(f"p99 {seconds_text(counts.latency.quantile(0.99))}")
    if counts.retried_keys:
        said.append(f"{counts.retried_keys:,} retried")
    if counts.errors:
        said.append(f"{counts.errors:,} failed")
    said.append(seconds_text(batch.seconds))
    return f"{query} batch {batch.number}: {', '.join([*said, *filter(None, [batch.lag])])}"


@contextmanager
def _told_here() -> Iterator[None]:
    """Keep the log from telling of failures that end a query: they are told at the end, each once."""
    log = logging.getLogger("lookup_hints")
    log.addFilter(_is_not_final)
    try:
        yield
    finally:
        log.removeFilter(_is_not_final)


def _is_not_final(record: logging.LogRecord) -> bool:
    return not getattr(record, FOR_GOOD, False)


def _failure(query: Supervised) -> str:
    assert query.error is not None
    head = f"error in the streaming query {query.name}, which is not started again ({query.strategy})"
    return f"{head}: {cause_of(query.error)}"


def stream_summary(streams: Sequence[StartedStream]) -> str:
    """A line for each query: where it wrote, how it ended, how many batches and restarts it had."""
    return "\n".join(map(_line, streams))


def _line(stream: StartedStream) -> str:
    query = stream.supervised
    batches = "no batch" if not stream.batches else f"batches so far {stream.batches}"
    restarts = len(query.restarts)
    again = f", {restarts} restart{'' if restarts == 1 else 's'}" if restarts else ""
    seconds = time.time() - stream.started
    where = "" if query.name == stream.insert.shown_sink else f" into {stream.insert.shown_sink}"
    return f"streaming query {query.name}{where}: {query.status.value}, {batches}{again}, {seconds:.1f} s"
