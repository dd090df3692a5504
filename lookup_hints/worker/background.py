"""What a worker does beside its tasks: it asks again for rows that were used though they were too old."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Full, Queue
from threading import Lock, Thread

from lookup_hints.worker.process.open_connectors import Process

MOST_WAITING = 64
"""So much work may wait; what comes then is not done, and is asked for another time."""

_log = logging.getLogger("lookup_hints.cache")


class Background:
    """One thread beside the tasks of a worker; Spark ends it with the worker."""

    def __init__(self) -> None:
        self.process = Process()
        """Its own connectors and stores: many may not be used on two threads."""
        self._work: Queue[Callable[[], object]] = Queue(MOST_WAITING)
        self._lock = Lock()
        self._is_running = False

    def do(self, work: Callable[[], object]) -> None:
        """Do ``work`` after what waits; where it fails, that is logged."""
        with self._lock:
            if not self._is_running:
                self._is_running = True
                Thread(target=self._run, name="lookup_hints background", daemon=True).start()
        try:
            self._work.put_nowait(work)
        except Full:
            _log.info("Rows that are too old are not fetched again now: too many are due.")

    def wait(self) -> None:
        """Until all that was to be done is done."""
        self._work.join()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:
                _log.info("Rows that are too old were not fetched again: %s", type(error).__name__)
            finally:
                self._work.task_done()
