"""Ctrl-C in a program or a notebook also cancels its Spark jobs."""

from __future__ import annotations

import signal
import threading

from lookup_hints import pyspark_internals

# Seconds for which the JVM is waited for: jobs that begin after the interrupt shall live.
_PATIENCE = 2.0


def catch_interrupts() -> None:
    """Let SIGINT cancel the jobs of classic Spark and raise KeyboardInterrupt; other handlers stay.

    PySpark's own handler asks the JVM over the connection that the interrupted call still holds. py4j refuses
    that with two stacks, and the jobs go on.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        return
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler or pyspark_internals.is_own_handler(handler):
        signal.signal(signal.SIGINT, _raise_interrupt)


def _raise_interrupt(_number: int, _frame: object) -> None:
    pyspark_internals.cancel_call(_PATIENCE)
    raise KeyboardInterrupt
