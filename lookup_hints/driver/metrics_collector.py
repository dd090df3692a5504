"""Collect the counts of the workers on the driver."""

from __future__ import annotations

import io
import json
import logging
import pickle
import pickletools
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import compare_digest, token_hex
from typing import TYPE_CHECKING, Any, NoReturn

from lookup_hints import pyspark_internals
from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.metrics.lookup_metrics import LookupMetrics, Plain, TaskRecord, TaskRun
from lookup_hints.process.running_task import PROPERTY, Send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMEMBERED_TASKS = 20_000
"""This many of the last tasks are remembered: Spark repeats a task soon, or not at all."""

REMEMBERED_BATCHES = 1_000
"""This many of the last micro-batches are remembered, of all streaming queries together."""

AWAITED = 2.0
"""Seconds to wait for the counts of a micro-batch, if its query has sent counts before."""

AWAITED_OF_NEW_QUERY = 0.5
"""The same where it has not: it may have no lookup at all."""

# Tasks send counts one by one; those within this many seconds of each other belong together.
_FOLLOWING = 0.05

BatchId = tuple[str, int]
"""A micro-batch: the id of its streaming query, and its number."""

# No datagram is larger.
_LARGEST = 64 * 1024

_log = logging.getLogger("lookup_hints")


class Counts:
    """The counts of the lookups of one application. A task that Spark repeats counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._totals: dict[str, LookupMetrics] = {}
        self._batches: OrderedDict[BatchId, _BatchCounts] = OrderedDict()
        self._latest: dict[str, _BatchCounts] = {}
        """The last batch of each streaming query."""
        self._tasks: OrderedDict[tuple[str, int, int], _Known] = OrderedDict()
        self._running: dict[tuple[str, int], tuple[LookupMetrics, int]] = {}

    @property
    def totals(self) -> Mapping[str, LookupMetrics]:
        with self._lock:
            return dict(self._totals)

    def of_batch(self, query: str, batch: int) -> Mapping[str, LookupMetrics]:
        """The sum of one micro-batch of a streaming query, by function; empty where nothing is remembered."""
        with self._lock:
            return self._counts_of_batch((query, batch))

    def awaited_of_batch(self, query: str, batch: int) -> Mapping[str, LookupMetrics]:
        """The same, where counts may still be on their way in another thread's response from the server."""
        with self._lock:
            is_known = any(each == query for each, _ in self._batches)
            patience = AWAITED if is_known else AWAITED_OF_NEW_QUERY
            deadline = time.monotonic() + patience
            if self._arrived.wait_for(lambda: (query, batch) in self._batches, patience):
                while time.monotonic() < deadline and self._arrived.wait(_FOLLOWING):
                    pass
            return self._counts_of_batch((query, batch))

    @property
    def so_far(self) -> Mapping[str, tuple[LookupMetrics, int]]:
        """The sum of all tasks, those that run too, and the keys that wait for a retry, by function."""
        with self._lock:
            found = {function: (counts, 0) for function, counts in self._totals.items()}
            for (function, _), (counts, waiting) in self._running.items():
                before, waited = found.get(function, (LookupMetrics(), 0))
                found[function] = before + counts, waited + waiting
            return found

    def see(self, record: TaskRecord, waiting: int) -> None:
        """A task that runs has counted ``record`` so far, and this many of its keys wait for a retry."""
        run = record.run
        with self._lock:
            ended = self._tasks.get((record.function, run.stage, run.partition))
            if ended is None:
                self._running[record.function, run.number] = record.counts, waiting

    def forget_running(self) -> None:
        """Drop the progress of running tasks, as no more of it will arrive."""
        with self._lock:
            self._running.clear()

    def take(self, update: Sequence[Plain]) -> None:
        """Add the counts of a task: a plain `TaskRecord` for each of its lookups."""
        for plain in update:
            record = TaskRecord.of(plain)
            with self._lock:
                self._running.pop((record.function, record.run.number), None)
                run = record.run
                task = (record.function, run.stage, run.partition)
                known = self._tasks.setdefault(task, _Known(run.number))
                self._tasks.move_to_end(task)
                if len(self._tasks) > REMEMBERED_TASKS:
                    self._tasks.popitem(last=False)
                # Of another run of a task only that it was repeated.
                counts = record.counts if run.number == known.counted else LookupMetrics()
                counts += LookupMetrics(repeated_tasks=known.new_repeats(run))
                self._add_counts(record.function, run, counts)
                self._arrived.notify_all()

    def _counts_of_batch(self, batch: BatchId) -> dict[str, LookupMetrics]:
        known = self._batches.get(batch)
        return {} if known is None else known.counts()

    def _add_counts(self, function: str, run: TaskRun, counts: LookupMetrics) -> None:
        self._totals[function] = self._totals.get(function, LookupMetrics()) + counts
        if run.batch is None:
            return
        batch = self._batches.get(run.batch)
        # A query that starts again runs its last batch once more: rows of the run before were dropped.
        if batch is None or (batch.query_run != run.query_run and run.stage > batch.last_stage):
            batch = self._batches[run.batch] = _BatchCounts(run.query_run)
            self._pack_batch_before(run.batch)
            self._forget_oldest_batch()
        if batch.query_run == run.query_run:
            batch.add(function, run.stage, counts)

    def _pack_batch_before(self, batch: BatchId) -> None:
        query, _ = batch
        if query in self._latest:
            self._latest[query].pack()
        self._latest[query] = self._batches[batch]

    def _forget_oldest_batch(self) -> None:
        if len(self._batches) > REMEMBERED_BATCHES:
            (query, _), oldest = self._batches.popitem(last=False)
            if self._latest.get(query) is oldest:
                del self._latest[query]


class _BatchCounts:
    """The counts of a micro-batch, by function, in the last run of its query."""

    def __init__(self, query_run: str) -> None:
        self.query_run, self.last_stage = query_run, -1
        self._counts: dict[str, LookupMetrics] | bytes = {}

    def counts(self) -> dict[str, LookupMetrics]:
        counts = self._counts
        return dict(pickle.loads(counts) if isinstance(counts, bytes) else counts)  # noqa: S301 - our own

    def add(self, function: str, stage: int, counts: LookupMetrics) -> None:
        self.last_stage = max(self.last_stage, stage)
        is_packed, sums = isinstance(self._counts, bytes), self.counts()
        sums[function] = sums.get(function, LookupMetrics()) + counts
        self._counts = sums
        if is_packed:
            self.pack()

    def pack(self) -> None:
        """Take a fifth of the memory, as hardly anything is added to this batch any more."""
        self._counts = pickle.dumps(self.counts())


class _Known:
    __slots__ = ("_others", "_repeats", "counted")  # many are remembered

    def __init__(self, counted: int) -> None:
        self.counted = counted
        self._others: frozenset[int] = frozenset()
        self._repeats = 0

    def new_repeats(self, run: TaskRun) -> int:
        """The number of repeats that ``run`` reveals: failed attempts themselves report nothing."""
        if run.number != self.counted:
            self._others |= {run.number}
        repeats = max(self._repeats, run.attempt, len(self._others))
        new, self._repeats = repeats - self._repeats, repeats
        return new


# --- when tasks end -------------------------------------------------------------------------------


def accumulating(spark: SparkSession, counts: Counts) -> Send:
    """A way to ``counts`` through an accumulator of classic Spark."""
    from pyspark.accumulators import AccumulatorParam

    # On the driver the value is `counts`, on a worker the records of one task.
    class Records(AccumulatorParam[Any]):
        def zero(self, value: Any) -> list[Plain]:
            return []

        def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 (Spark's name)
            if isinstance(value1, list):
                return [*value1, *value2]
            value1.take(value2)
            return value1

    add: Send = spark.sparkContext.accumulator(counts, Records()).add
    return add


# --- while they run -------------------------------------------------------------------------------


@contextmanager
def listening(spark: SparkSession, counts: Counts) -> Iterator[None]:
    """Inside the block, tasks of this thread's statements report their progress to ``counts``.

    Only for classic Spark, as with Connect the driver is out of reach. If no address can be bound, there is
    no progress, and counts arrive when tasks end.
    """
    context = spark.sparkContext
    try:
        sock = _bind_socket(_driver_host(context))
    except OSError as error:
        _log.debug("no live counts: %s", error)
        yield
        return
    word = token_hex(8)
    with sock:
        before = context.getLocalProperty(PROPERTY)
        host, port = sock.getsockname()[:2]
        listener = threading.Thread(
            target=_receive_counts, args=(sock, word, counts), name="lookup-live-counts", daemon=True
        )
        try:
            listener.start()
        except RuntimeError as error:  # this process can start no more threads
            _log.debug("no live counts: %s", error)
            yield
            return
        try:
            context.setLocalProperty(PROPERTY, f"{host} {port} {word}")
            yield
        finally:
            with socket.socket(sock.family, socket.SOCK_DGRAM) as own:
                own.sendto(b"", (host, port))
            listener.join()
            counts.forget_running()
            context.setLocalProperty(PROPERTY, before)  # type: ignore[arg-type]  # None takes it away


def _driver_host(context: Any) -> str:
    if (context.master or "").startswith("local"):
        return "127.0.0.1"
    conf = context.getConf()
    return str(conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host") or "127.0.0.1")


def _bind_socket(host: str) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _receive_counts(sock: socket.socket, word: str, counts: Counts) -> None:
    while said := sock.recv(_LARGEST):
        told = _read_datagram(said, word)
        if told is not None:
            counts.see(*told)


def _read_datagram(said: bytes, word: str) -> tuple[TaskRecord, int] | None:
    """The record in a datagram, and the number of keys waiting for a retry; None for foreign datagrams."""
    try:
        told = json.loads(said)
        if not compare_digest(str(told["word"]), word):
            return None
        latency: Mapping[str, int] = told["record"]["counts"].get("latency", {})
        told["record"]["counts"]["latency"] = {int(bucket): count for bucket, count in latency.items()}
        return TaskRecord.of(told["record"]), int(told["waiting"])
    except Exception as error:
        _log.debug("a datagram that is not ours: %s", error)
        return None


# --- of Spark Connect (docs/decisions/0135) ---------------------------------------------------------

# A worker sends the values of accumulators to the Connect server at the end of each task. The server keeps
# them with the session, and sends them to the client at the end of the session's next statement. PySpark's
# profiler works this way, and its client ignores other accumulators.

Update = list[Plain]
"""The counts of one task as plain data: only dictionaries, lists, texts, numbers, booleans and None."""

# The id of our accumulator: Spark's own are positive, those of its profiler just below zero.
_OURS = -7301

# The server's name for accumulators among the observed metrics of a response.
_METRIC = "__python_accumulator__"


def send_over_connect(update: Update) -> None:
    """Send ``update`` to the client at the end of the running task, after earlier updates of that task."""
    pyspark_internals.accumulator_of_task(_OURS, [], _Appended).add(update)


class _Appended:
    """How an accumulator of lists adds up."""

    @staticmethod
    def addInPlace(value1: Update, value2: Update) -> Update:  # noqa: N802 (Spark's name)
        return [*value1, *value2]


def brings_counts(spark: SparkSession) -> bool:
    """Whether counts of the workers come back from ``spark``."""
    return not is_connect(spark) or can_receive(spark)


# Since 4.0 the server of Spark Connect sends a session's accumulators as observed metrics.
# (docs/decisions/0135)
def can_receive(spark: SparkSession) -> bool:
    """Whether this PySpark lets a Connect session receive updates."""
    return pyspark_internals.can_be_watched(getattr(spark, "client", None))


def receive_over_connect(spark: SparkSession, take: Callable[[Update], None]) -> Callable[[], object]:
    """Pass every update that arrives at this Connect session to ``take``.

    Returns a function that fetches pending updates from the server. ``take`` is called on the thread whose
    statement brought the update, and must be thread-safe.
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

# Seconds between two fetches while something runs: less would crowd the server's list of statements.
_EVERY = 60.0

# Seconds for which a fetch waits for the server.
_PATIENCE = 10.0

# After this many failed fetches in a row none is tried until the server reports work again.
_MOST_FAILURES = 10


# A Connect client has no accumulators; the server keeps updates until the session's next execution ends.
# (docs/decisions/0135)
class _Receiver:
    """Intercepts each response of the server and removes our updates before PySpark sees them.

    It replaces a check that PySpark's client applies to each response first. So our updates never reach
    PySpark's results, listeners or unpickling.
    """

    def __init__(self, client: Any) -> None:
        self.takers: list[Callable[[Update], None]] = []
        self._client = client
        self._check = pyspark_internals.response_check(client)
        self._fetching = threading.Lock()
        self._watch = _StreamPoller(self.fetch, lambda: bool(client.is_closed))

    def __call__(self, response: Any) -> None:
        self._check(response)
        try:
            if hasattr(response, "observed_metrics"):  # the response of a statement
                self._take_updates(response)
                # It reports running tasks, or the start of a streaming query.
                fields = ("execution_progress", "write_stream_operation_start_result")
                if any(response.HasField(field) for field in fields):
                    self._watch.begin()
        except Exception as error:
            _log.debug("Counts in a response of the Connect server were not read: %s", error)

    def fetch(self) -> bool | None:
        """Fetch pending updates from the server; if it does not answer, they stay there.

        Returns whether a streaming query runs, or None where the server did not answer.
        """
        with self._fetching:  # a second caller uses the result of the first
            try:
                # At the end of the statement that asks whether a streaming query runs come the updates.
                running = False
                for response in pyspark_internals.ask_for_streams(self._client, _PATIENCE):
                    self._take_updates(response)
                    running |= bool(response.streaming_query_manager_command_result.active.active_queries)
                return running
            except Exception as error:
                _log.debug("Counts that wait on the Connect server were not fetched: %s", error)
                return None

    def _take_updates(self, response: Any) -> None:
        for pickled in _extract_updates(response):
            try:
                _, update = _PlainData(io.BytesIO(pickled)).load()
                if not isinstance(update, list):
                    raise TypeError(f"an update is a list, and this is of type {type(update).__name__}")
            except Exception as error:
                _log.debug("Counts of a task cannot be read: %s: %s", type(error).__name__, error)
            else:
                self._hand_to_takers(update)

    def _hand_to_takers(self, update: Update) -> None:
        for take in self.takers:
            try:
                take(update)
            except Exception as error:
                _log.debug("Counts of a task were not taken: %s: %s", type(error).__name__, error)


class _StreamPoller:
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
            threading.Thread(target=self._poll_streams, name="lookup-counts", daemon=True).start()
            self._running = True  # once it runs: else no later sign would start it

    def _poll_streams(self) -> None:
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


def _extract_updates(response: Any) -> list[bytes]:
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
    """The id at the start of a pickled pair of id and update, without unpickling the rest; or None."""
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name not in ("PROTO", "FRAME", "MARK"):
                return argument
    except ValueError:
        pass
    return None


class _PlainData(pickle.Unpickler):
    """Reads built-in containers, texts and numbers, and refuses everything else before it is imported."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
