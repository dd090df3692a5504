"""Calls that block, on a thread of their own, so that whoever waits for them need not wait for ever."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class CallThread:
    """A thread that does one call after the other, in the context of whoever asked for it.

    Nobody can end a call that hangs. So it is a daemon, unlike those of ``ThreadPoolExecutor``, for whose
    calls Python waits when a process ends.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._run, name=name, daemon=True).start()

    def call(self, work: Callable[[], T], seconds: float | None) -> T:
        """What ``work`` gives, or raises. A call that has not begun when its time is up is not made.

        Raises:
            CallTimeout: it took longer than ``seconds``.
        """
        future: Future[T] = Future()
        self._calls.put((future, partial(copy_context().run, work)))
        try:
            return future.result(seconds)
        except NotInTime:
            if future.done():  # an error of the call itself
                raise
            raise CallTimeout from None
        finally:
            future.cancel()

    def end(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (called := self._calls.get()) is not None:
            future, work = called
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del called, future, work  # they may be large, and the next call takes its time


class CallTimeout(Exception):
    """A call has not come back in time. It may still be running."""


def call_with_timeout(work: Callable[[], T], seconds: float, what: str) -> T:
    """What ``work`` gives, or raises, on a thread of its own that is called after ``what``.

    Raises:
        TimeoutError: it took longer than ``seconds``.
    """
    thread = CallThread(f"lookup_hints {what}")
    try:
        return thread.call(work, seconds)
    except CallTimeout:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    finally:
        thread.end()
