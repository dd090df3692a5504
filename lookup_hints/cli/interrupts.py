"""SIGINT and SIGTERM while a command runs: the first ends it in order, a later one at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lookup_hints.pyspark_internals import give_up_call

PATIENCE = 3.0
"""Seconds after the first signal in which others are ignored: a hasty second Ctrl-C would leave folders."""


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM was received.

    As it is a KeyboardInterrupt, PySpark makes a Connect server cancel its work.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.number).name}"

    @property
    def exit_code(self) -> int:
        return 128 + self.number


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM raise ``Interrupted`` here, and one after ``PATIENCE`` end the process.

    Spark's own handler of SIGINT cancels all jobs, which a restart strategy would take for a failure.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before: dict[signal.Signals, Any] = {}
    first: float | None = None

    def interrupt(number: int, _: object) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic()
            give_up_call()
            raise Interrupted(number)
        if time.monotonic() - first > PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        if first is None:  # else the process ends, and has more to do for that
            for number in before:
                signal.signal(number, before[number])
