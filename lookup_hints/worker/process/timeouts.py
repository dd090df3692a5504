"""Asking a source something that must not hold anybody up."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def call_with_timeout(ask: Callable[[], T], seconds: float, what: str) -> T:
    """What ``ask`` gives, on a thread of its own that is called after ``what``.

    Raises:
        Exception: what ``ask`` raised; ``TimeoutError`` where it takes longer than ``seconds``.
    """
    told: Future[T] = Future()

    def run() -> None:
        try:
            told.set_result(ask())
        except BaseException as error:
            told.set_exception(error)

    # A thread that may be left behind: nobody can end a call that hangs.
    Thread(target=run, name=f"lookup_hints {what}", daemon=True).start()
    return told.result(seconds)
