"""Sending what was measured before a task ends, without letting a bad collector slow the job down."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread

TASK_SECONDS = 2.0
"""How long the end of a task waits at most until all is sent."""


class Flusher:
    """Flushes on a thread of its own whenever a task ends; the task waits, but only while that goes well.

    Spark ends idle workers without a word, so what a task measured should be sent before it ends. Where a
    flush fails, or takes longer than a task waits, no task waits for the next ones, until one goes well.

    Args:
        flush: sends all that was measured; whether that went well.
        failed: is told, once, that it does not.
        seconds: how long a task waits.
        clock: the time.
    """

    def __init__(
        self,
        flush: Callable[[], bool],
        failed: Callable[[], None],
        seconds: float = TASK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flush, self._failed = flush, failed
        self._seconds, self._clock = seconds, clock
        self._changed = Condition()
        self._wanted = self._done = 0
        self._goes_well = True
        self._is_told = False
        self._thread: Thread | None = None

    def end_of_task(self) -> None:
        """Have all sent that was measured so far, and wait for it while that goes well."""
        with self._changed:
            self._wanted += 1
            number = self._wanted
            if self._thread is None:
                self._thread = Thread(target=self._run, name="lookup_hints.metrics", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            if self._goes_well and not self._changed.wait_for(lambda: self._done >= number, self._seconds):
                self._goes_badly()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > self._done)
                number = self._wanted
            started = self._clock()
            is_sent = self._flush()
            is_fast = self._clock() - started < self._seconds
            with self._changed:
                self._done = number
                self._goes_well = is_sent and is_fast
                if not is_sent:
                    self._goes_badly()
                self._changed.notify_all()

    def _goes_badly(self) -> None:
        self._goes_well = False
        if not self._is_told:
            self._is_told = True
            self._failed()
