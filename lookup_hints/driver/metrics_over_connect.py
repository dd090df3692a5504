"""How counts of the workers reach a client of Spark Connect (docs/decisions/0135).

A worker hands what accumulators hold to the Connect server at the end of each task. The server keeps it with
the session, and sends it to the client at the end of the session's next statement. PySpark's profiler goes
this way. Its client passes over what is not its own.
"""

from __future__ import annotations

import io
import logging
import pickle
import pickletools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from lookup_hints import pyspark_internals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Update = list[dict[str, Any]]
"""What one task counted, as plain data: dictionaries, lists, texts, numbers, truth values and None alone."""

_OURS = -7301
"""The id of our accumulator: Spark's own are above zero, and those of its profiler just below."""

_METRIC = "__python_accumulator__"
"""How the server calls what accumulators held, among the observed metrics of a response."""

_log = logging.getLogger("lookup_hints")


# --- on the worker ---------------------------------------------------------------------------------


def send(update: Update) -> None:
    """Hand ``update`` to the client at the end of the task that runs, after what was sent before in it."""
    pyspark_internals.accumulator_of_task(_OURS, [], _Appended).add(update)


class _Appended:
    """How an accumulator of lists adds up."""

    @staticmethod
    def addInPlace(value1: Update, value2: Update) -> Update:  # noqa: N802 (Spark's name)
        return [*value1, *value2]


# --- on the client ---------------------------------------------------------------------------------


def can_receive(spark: SparkSession) -> bool:
    """Whether this PySpark lets a Connect session receive updates."""
    return pyspark_internals.can_be_watched(getattr(spark, "client", None))


def receive(spark: SparkSession, take: Callable[[Update], None]) -> Callable[[], None]:
    """Hand every update that comes to this Connect session to ``take``, from now on.

    Gives a function that fetches what waits on the server. ``take`` is called from the thread whose statement
    brought the update, and must bear several at once.
    """
    client: Any = spark.client
    with _installing:
        receiver = pyspark_internals.response_check(client)
        if not isinstance(receiver, _Receiver):
            receiver = _Receiver(client)
            pyspark_internals.replace_response_check(client, receiver)
        if take not in receiver.takers:
            receiver.takers.append(take)
    return receiver.fetch


_installing = threading.Lock()

_EVERY = 60.0
"""Seconds between two fetches while something runs: less would crowd the server's list of statements."""

_PATIENCE = 10.0
"""Seconds for which a fetch waits for the server."""

_MOST_FAILURES = 10
"""After so many fetches in a row that the server did not answer, no more are tried until it tells of work."""


class _Receiver:
    """Looks at each response of the server before its client does, and takes our updates out of it.

    The client checks each response first of all, whatever it is for, and this stands in the place of that
    check. So nothing else of PySpark meets our updates: no result, no listener, no unpickling.
    """

    def __init__(self, client: Any) -> None:
        self.takers: list[Callable[[Update], None]] = []
        self._client = client
        self._check = pyspark_internals.response_check(client)
        self._fetching = threading.Lock()
        self._watch = _Watch(self._fetched, lambda: bool(client.is_closed))

    def __call__(self, response: Any) -> None:
        self._check(response)
        try:
            if hasattr(response, "observed_metrics"):  # it is that of a statement
                self._take(response)
                if _tells_of_work(response):
                    self._watch.begin()
        except Exception as error:
            _log.debug("Counts in a response of the Connect server were not read: %s", error)

    def fetch(self) -> None:
        """Fetch what waits on the server; where it does not answer, that stays there."""
        self._fetched()

    def _fetched(self) -> bool | None:
        """The same; whether a streaming query runs, or None where the server did not answer."""
        with self._fetching:  # whoever comes second finds what the first one fetched
            try:
                return self._ask_for_streams()
            except Exception as error:
                _log.debug("Counts that wait on the Connect server were not fetched: %s", error)
                return None

    def _ask_for_streams(self) -> bool:
        """Whether a streaming query runs; at the end of the statement that asks so come the updates."""
        running = False
        for response in pyspark_internals.ask_for_streams(self._client, _PATIENCE):
            self._take(response)
            running |= bool(response.streaming_query_manager_command_result.active.active_queries)
        return running

    def _take(self, response: Any) -> None:
        for pickled in _taken_out(response):
            try:
                update = _update_of(pickled)
            except Exception as error:
                _log.debug("Counts of a task cannot be read: %s: %s", type(error).__name__, error)
            else:
                self._hand_on(update)

    def _hand_on(self, update: Update) -> None:
        for take in self.takers:
            try:
                take(update)
            except Exception as error:
                _log.debug("Counts of a task were not taken: %s: %s", type(error).__name__, error)


class _Watch:
    """Fetches from time to time while something runs, in a thread that ends with it.

    A server keeps updates until the session's next statement ends, however many they are. Then they come in
    one response, and one of more than 128 MB fails that statement.

    Args:
        fetched: fetches; whether a streaming query runs, None where that is not known.
        closed: whether there is nothing to fetch any more.
    """

    def __init__(self, fetched: Callable[[], bool | None], closed: Callable[[], bool]) -> None:
        self._fetched, self._closed = fetched, closed
        self._lock = threading.Lock()
        self._signs = 0
        self._running = False

    def begin(self) -> None:
        with self._lock:
            self._signs += 1
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._run, name="lookup-counts", daemon=True).start()

    def _run(self) -> None:
        failures = 0
        while True:
            signs = self._signs
            time.sleep(_EVERY)
            stream = None if self._closed() else self._fetched()
            failures = failures + 1 if stream is None else 0
            with self._lock:
                self._running = bool(stream) or self._signs != signs or 0 < failures < _MOST_FAILURES
                if self._closed() or not self._running:
                    self._running = False
                    return


def _tells_of_work(response: Any) -> bool:
    """Whether the response tells of tasks that run, or of a streaming query that began."""
    fields = ("execution_progress", "write_stream_operation_start_result")
    return any(response.HasField(field) for field in fields)


def _taken_out(response: Any) -> list[bytes]:
    ours: list[bytes] = []
    metrics = response.observed_metrics
    for metric in [each for each in metrics if each.name == _METRIC]:
        others = [value for value in metric.values if _id_of(value.binary) != _OURS]
        ours += [value.binary for value in metric.values if _id_of(value.binary) == _OURS]
        del metric.values[:]
        metric.values.extend(others)
        if not others:
            metrics.remove(metric)
    return ours


def _id_of(pickled: bytes) -> object:
    """The id in a pickle of an id and an update, of which nothing more is read; None where there is none."""
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name not in ("PROTO", "FRAME", "MARK"):
                return argument
    except ValueError:
        pass
    return None


def _update_of(pickled: bytes) -> Update:
    _, update = _PlainData(io.BytesIO(pickled)).load()
    if not isinstance(update, list):
        raise TypeError(f"an update is a list, and this is of type {type(update).__name__}")
    return update


class _PlainData(pickle.Unpickler):
    """Reads built-in containers, texts and numbers, and refuses everything else before it is imported."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
