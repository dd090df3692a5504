"""What is private or has no types in PySpark and is used here all the same, named in this module alone.

PySpark is imported when it is used: some workers are spared it, and tests do without.
"""

from __future__ import annotations

import logging
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import BytesIO
from selectors import EVENT_READ, DefaultSelector
from types import FrameType
from typing import IO, Any

_log = logging.getLogger("lookup_hints")

READS_ACCUMULATORS = ("pyspark.accumulators", "_deserialize_accumulator")
"""The function that a pickled accumulator names."""


def cloudpickled(value: object) -> bytes:
    """``value`` by Spark's own pickler, which takes classes of notebooks with their code."""
    file = BytesIO()
    _make_pickler()(file).dump(value)
    return file.getvalue()


# Each field of a schema is four objects, and the pickler calls Python for each: a lookup of a table of 60
# columns was planned for a third of its time here. (docs/decisions/0234)
@cache
def _make_pickler() -> Any:
    """Spark's pickler, but for schemas, which Arrow writes as one."""
    pyarrow = import_module("pyarrow")

    class Pickler(import_module("pyspark.cloudpickle").CloudPickler):  # type: ignore[misc]  # known at run time
        def reducer_override(self, value: Any) -> Any:
            if type(value) is pyarrow.Schema:
                return pyarrow.ipc.read_schema, (value.serialize(),)
            return super().reducer_override(value)

    return Pickler


def accumulator_of_task(number: int, zero: Any, kind: Any) -> Any:
    """The accumulator ``number`` of the task that runs; a new one that starts at ``zero`` if it has none."""
    module, name = READS_ACCUMULATORS
    return getattr(import_module(module), name)(number, zero, kind)


class _UnreadSocket(socket.socket):
    """A worker's socket of which nothing more is read, until Spark closes it."""

    __slots__ = ()

    def recv(self, *_: int) -> bytes:
        poll = select.poll()
        poll.register(self, select.POLLRDHUP)
        poll.poll()
        return b""


# From 4.0 on one thread of the JVM writes rows and reads answers, and writes for as long as it can: a failed
# worker that goes on to read them, as PySpark's daemon does, keeps its own error from being read.
# (docs/decisions/0227)
def leave_input_unread() -> None:
    """Let this worker, which is about to fail, read no more rows, so that Spark sees the failure at once."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (
        frame.f_code.co_name == "manager" and frame.f_code.co_filename.endswith("daemon.py")
    ):
        frame = frame.f_back
    opened = None if frame is None else frame.f_locals.get("sock")
    if type(opened) is socket.socket and hasattr(select, "POLLRDHUP"):
        opened.__class__ = _UnreadSocket


# By a private attribute and Scala's own join: one by one, the settings of a statement take 12 ms.
# (docs/decisions/0181)
def all_settings(conf: Any) -> dict[str, str] | None:
    """All that is set in a classic session, in two round trips; PySpark itself makes one for each key.

    None where the JVM is out of reach, as on clusters that allow Python a list of its methods.
    """
    try:
        listed: str = conf._jconf.getAll().mkString("\0")
    except Exception:
        return None
    return dict(each.split(" -> ", 1) for each in listed.split("\0") if each)


# --- its log ------------------------------------------------------------------------------------------


@contextmanager
def errors_unlogged() -> Iterator[None]:
    """Keep PySpark from logging errors of this thread in the block: whoever catches them tells them."""
    thread = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = _error_loggers()
    for each in loggers:
        each.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(is_of_another_thread)


def _error_loggers() -> list[logging.Logger]:
    """Made by PySpark's own hand, as it gives them arguments that others refuse."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before 4.0 nothing was logged
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


# --- the JVM of a classic session --------------------------------------------------------------------


def has_jvm() -> bool:
    """Whether this process has a JVM of Spark's."""
    return import_module("pyspark").SparkContext._gateway is not None


def is_own_handler(handler: object) -> bool:
    """Whether it is PySpark's handler of SIGINT, which a SparkContext sets."""
    return getattr(handler, "__qualname__", "") == "SparkContext._do_init.<locals>.signal_handler"


_AGAIN_SECONDS = 0.1


def cancel_call(patience: float) -> None:
    """End the call to the JVM in which an interrupt has met this thread, and the jobs that Spark runs.

    Jobs of streaming queries go on.

    Args:
        patience: seconds for which the JVM is waited for.
    """
    over = threading.Event()
    # On a thread of its own, which has a connection of its own: that of this one waits for an answer.
    cancelling = threading.Thread(target=_cancel_jobs, args=(over,), name="lookup-cancel", daemon=True)
    cancelling.start()
    connection, is_busy = _connection_of_thread()
    if is_busy:
        with DefaultSelector() as selector:
            selector.register(connection.socket, EVENT_READ)
            selector.select(patience)
    over.set()
    cancelling.join(patience)
    give_up_call()


def _cancel_jobs(over: threading.Event) -> None:
    """Until ``over``, and once at least: a statement has many jobs, and may not have begun the first."""
    context = import_module("pyspark").SparkContext._active_spark_context
    if context is None:
        return
    tracker = context.statusTracker()
    session = import_module("pyspark.sql").SparkSession._instantiatedSession
    while True:
        streams = [] if session is None else session.streams.active
        of_streams = {job for each in streams for job in tracker.getJobIdsForGroup(str(each.runId))}
        for job in set(tracker.getActiveJobsIds()) - of_streams:
            context._jsc.sc().cancelJob(job)
        if over.wait(_AGAIN_SECONDS):
            return


def give_up_call() -> None:
    """Let the call of this thread to the JVM, which an exception is about to end, be answered to nobody.

    py4j would go on to read its answer as that of the next call; or, after a KeyboardInterrupt, close the
    connections of other threads as well, and log two stacks.
    """
    logging.getLogger().addFilter(_is_no_interrupt)
    connection, _ = _connection_of_thread()
    if connection is not None:
        connection.close()


def _connection_of_thread() -> tuple[Any, bool]:
    """The connection of this thread to the JVM, and whether a call waits for its answer on it."""
    client: Any = getattr(import_module("pyspark").SparkContext._gateway, "_gateway_client", None)
    # Without PYSPARK_PIN_THREAD threads share connections, and py4j does well.
    connection = client.get_thread_connection() if hasattr(client, "get_thread_connection") else None
    if connection is None or connection.socket is None:
        return None, False
    return connection, connection not in client.deque


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.msg != "KeyboardInterrupt while sending command."


def oldest_java() -> int:
    """The oldest Java that the installed Spark runs on."""
    return 8 if import_module("pyspark").__version__.startswith("3.") else 17


def launched_jvm(conf: Mapping[str, str], errors: IO[bytes] | None) -> Any:
    """A JVM for Spark, as ``SparkContext`` takes it for its ``gateway``: it ends with this process.

    Args:
        conf: as it is given to ``spark-submit``.
        errors: where its standard error goes, in place of that of this process.
    """
    given = import_module("pyspark").SparkConf().setAll(list(conf.items()))
    more = {} if errors is None else {"stderr": errors}
    return import_module("pyspark.java_gateway").launch_gateway(given, more)


_SHAPES = """
SELECT o.id, c.name
FROM (SELECT CAST(NULL AS INT) AS id, CAST(NULL AS STRING) AS k WHERE false) AS o
LEFT JOIN (SELECT CAST(NULL AS INT) AS id, CAST(NULL AS STRING) AS name WHERE false) AS c
  ON o.id = c.id AND c.name <> 'x'
WHERE o.id > 10 ORDER BY o.id
"""
_LATERAL_VIEW = """
SELECT o.id, c.name FROM o LATERAL VIEW OUTER inline(filter(f(o.k), `r` -> (`r`.id > 10))) c AS id, name
"""


# 3,500 classes that need no context load beside it; the session waits for them, as two threads that
# initialise the same classes can wait for each other for ever. (docs/decisions/0193)
def load_sql(gateway: Any) -> None:
    """Let a JVM that has no context yet load what its first statement needs: parser, functions, analyser.

    Nothing of it belongs to a session. No session may be made meanwhile; the classes of a context are others.
    """
    try:
        sql = gateway.jvm.org.apache.spark.sql
        sql.catalyst.analysis.FunctionRegistry.builtin()
        parser = sql.execution.SparkSqlParser()
        parser.parsePlan(_LATERAL_VIEW)
        sql.catalyst.analysis.SimpleAnalyzer.execute(parser.parsePlan(_SHAPES))
    except Exception:
        _log.debug("Spark's SQL is loaded by the first statement", exc_info=True)


# --- the client of a Connect session ---------------------------------------------------------------


def can_be_watched(client: object) -> bool:
    """Whether it has what the functions below need: PySpark's has it from 4.0 on."""
    names = ("_verify_response_integrity", "_execute_plan_request_with_metadata", "_stub", "_builder")
    return all(hasattr(client, name) for name in names)


def response_check(client: Any) -> Any:
    """What the client calls with each response first of all, whatever it is for."""
    return client._verify_response_integrity


def replace_response_check(client: Any, check: Callable[[Any], None]) -> None:
    client._verify_response_integrity = check


def ask_for_streams(client: Any, timeout: float) -> Iterator[Any]:
    """The responses to a statement that costs the server next to nothing: which streaming queries run."""
    request = client._execute_plan_request_with_metadata()
    request.plan.command.streaming_query_manager_command.active = True
    # The client's own way waits for minutes for a server that is away.
    yield from client._stub.ExecutePlan(request, metadata=client._builder.metadata(), timeout=timeout)


def defines_pipeline(client: Any) -> bool:
    """Whether this thread defines a Declarative Pipeline, as the requests of ``client`` say."""
    own = getattr(getattr(client, "thread_local", None), "user_context_extensions", ())
    return any(each.type_url.endswith("PipelineAnalysisContext") for _, each in own)
