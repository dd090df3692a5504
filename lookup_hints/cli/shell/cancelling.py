"""A statement that Ctrl-C cancels, and nothing else with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TYPE_CHECKING
from uuid import uuid4

from lookup_hints.driver.functions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN_SECONDS = 0.5


def run_cancellable(spark: SparkSession, run: Callable[[], None]) -> None:
    """Run statements in a thread of their own; a KeyboardInterrupt here cancels what Spark does for them.

    The calling thread only waits, so an interrupt never cuts its talk with the JVM in two.

    Raises:
        KeyboardInterrupt: when all has ended; or at once, at the second interrupt.
        Exception: what ``run`` raised.
    """
    done: Future[None] = Future()
    mark = f"lookup-hints-shell-{uuid4()}"

    def work() -> None:
        try:
            _mark(spark, mark)
            run()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    _start(work)
    try:
        wait([done])
    except KeyboardInterrupt:
        _start(lambda: _cancel(spark, mark, done))
        wait([done])
        raise
    done.result()


def _start(work: Callable[[], None]) -> None:
    """On a thread that does not keep the shell from ending."""
    threading.Thread(target=copy_context().run, args=(work,), name="shell-statement", daemon=True).start()


def _mark(spark: SparkSession, mark: str) -> None:
    """What Spark does for this thread from now on can be cancelled by ``mark``. Streams are not meant."""
    if is_connect(spark):
        spark.addTag(mark)
    else:
        spark.sparkContext.setJobGroup(mark, "lookup-hints shell")


def _cancel(spark: SparkSession, mark: str, done: Future[None]) -> None:
    """A statement has many jobs, and the next may begin after the first is cancelled."""
    while not done.done():
        if is_connect(spark):
            spark.interruptTag(mark)
        else:
            spark.sparkContext.cancelJobGroup(mark)
        wait([done], _AGAIN_SECONDS)
