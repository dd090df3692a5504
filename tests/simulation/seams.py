"""Where the library meets the world: the names in its modules that stand for the simulated world while runs go on."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from lookup_hints.cache import full_cache, open_caches, task_cache
from lookup_hints.cache.store import answer_store, full_table, segment_files
from lookup_hints.engine import adaptive_batch_size, input_window, permits, request_scheduler
from lookup_hints.limits import circuit_breaker, origin_limiter, shared_limits, task_permits
from lookup_hints.process import open_connectors, running_task
from lookup_hints.spi import secrets
from lookup_hints.streaming import supervisor
from lookup_hints.worker import arrow_worker, dead_letter_files
from tests.simulation.files import (
    SimulatedArrow,
    SimulatedFileSystem,
    SimulatedLocks,
    SimulatedOs,
    SimulatedRemoval,
)
from tests.simulation.world import (
    Killed,
    SimulatedCallThread,
    SimulatedCondition,
    SimulatedLock,
    SimulatedQueue,
    SimulatedThread,
    World,
    _thread,
    asker,
    this_process,
    this_thread,
)


def _world() -> World:
    return this_process().world


class SimulatedTime:
    """The module ``time`` as the library sees it."""

    def monotonic(self) -> float:
        return _world().now

    def time(self) -> float:
        return _world().now + 1.7e9

    def sleep(self, seconds: float) -> None:
        this_thread().sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _ThreadToStart:
    """As ``threading.Thread``."""

    def __init__(self, *, target: Callable[[], object], name: str = "", daemon: bool = True) -> None:
        self._target, self._name = target, name
        self._started: SimulatedThread | None = None

    def start(self) -> None:
        self._started = SimulatedThread(this_process(), self._target, self._name)

    def is_alive(self) -> bool:
        return self._started is not None and self._started.is_alive()

    def join(self) -> None:
        if self._started is not None:
            self._started.join()


class SimulatedThreading:
    """The module ``threading`` as the supervisor of streams sees it."""

    Thread, Condition = _ThreadToStart, SimulatedCondition


class SimulatedQueues:
    """The module ``queue``, the same."""

    from queue import Empty

    Queue = SimulatedQueue


class _Chance:
    """The module ``random``, the same."""

    def uniform(self, low: float, high: float) -> float:
        return _world().random.uniform(low, high)


class _OpenConnectors:
    """The module with the open connectors: each simulated process has its own."""

    @property
    def this_process(self) -> open_connectors.Process:
        return this_process().here

    def __getattr__(self, name: str) -> Any:
        return getattr(open_connectors, name)


class _Collector:
    def freeze(self) -> None:
        pass


class _Unique:
    """As ``uuid4``: the same in each run of a seed."""

    def __init__(self) -> None:
        self.hex = f"{_world().random.getrandbits(128):032x}"


def _random() -> Random:
    return Random(_world().random.random())


def _limiter_of(*args: Any, **options: Any) -> Any:
    limiter = permits.limiter_of(
        *args, clock=_world().clock, sleep=lambda seconds: this_thread().sleep(seconds), **options
    )
    this_process().limiters.append(limiter)
    return limiter


def _folder_of_executor() -> Path | None:
    return this_process().folder  # type: ignore[no-any-return]


def _file_system(folder: str) -> Any:
    return SimulatedFileSystem(), folder


def _task_context() -> Any:
    thread = _thread.get(None)
    return None if thread is None else thread.task


def _short(error: BaseException) -> list[str]:
    return [repr(error)]


class _Background(arrow_worker.Background):
    def __init__(self) -> None:
        super().__init__()
        self.process = this_process().new_state()


def _report_unraisable(told: Any) -> None:
    """A process that was killed unwinds as one that ends does: whatever it meets is of no interest."""
    if not isinstance(told.exc_value, Killed):
        sys.__unraisablehook__(told)


def _is_alive(number: int) -> bool:
    return _world().is_alive(number)


_CLOCK = SimulatedTime()
_SYSTEM = SimulatedOs()
_ARROW = SimulatedArrow()
_LOCKS = SimulatedLocks()
_SEAMS: tuple[tuple[Any, str, Any], ...] = (
    *((each, "time", _CLOCK) for each in (arrow_worker, open_caches, task_cache, full_cache, supervisor)),
    *((each, "os", _SYSTEM) for each in (segment_files, full_table, full_cache, shared_limits, permits)),
    *((each, "pa", _ARROW) for each in (segment_files, full_table)),
    *((each, "fcntl", _LOCKS) for each in (segment_files, full_cache, shared_limits)),
    *((each, "uuid4", _Unique) for each in (segment_files, full_table, full_cache, open_caches)),
    *((each, "shutil", SimulatedRemoval()) for each in (full_table, full_cache)),
    *((each, "Thread", _ThreadToStart) for each in (arrow_worker, full_cache)),
    *((each, "Lock", SimulatedLock) for each in (arrow_worker, open_connectors, shared_limits, permits)),
    *((each, "POLL_SECONDS", 0.05) for each in (shared_limits, task_permits, origin_limiter)),
    (arrow_worker, "process", _OpenConnectors()),
    (arrow_worker, "Background", _Background),
    (arrow_worker, "Queue", SimulatedQueue),
    (arrow_worker, "gc", _Collector()),
    (arrow_worker, "Random", _random),
    (arrow_worker, "limiter_of", _limiter_of),
    (arrow_worker, "folder_of_executor", _folder_of_executor),
    (open_connectors, "CallThread", SimulatedCallThread),
    (running_task, "_task_context", _task_context),
    (dead_letter_files, "_file_system", _file_system),
    (origin_limiter, "is_alive", _is_alive),
    (secrets, "format_exception", _short),
    (supervisor, "threading", SimulatedThreading),
    (supervisor, "queue", SimulatedQueues),
    (supervisor, "random", _Chance()),
)


class _CacheLog(logging.Handler):
    """Takes what the library logs of caches that it does without."""

    def emit(self, record: logging.LogRecord) -> None:
        _world().cache_warnings.append(record.getMessage())


class _EventLog(logging.Handler):
    """Takes the lines of the library's event log."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        _world().events.append((asker.get(None), " ".join(text.partition("): ")[2].split()[:3])))


_SIZES = (
    *("BUFFER_BYTES", "ROWS_BYTES", "ANSWER_BYTES", "WINDOW_BYTES", "HAND_OUT_BYTES", "FIRST_ROWS"),
    *("MOST_SEGMENTS", "_FEWEST"),
)
_HOLDERS = (adaptive_batch_size, input_window, request_scheduler, answer_store, circuit_breaker)


def set_sizes(sizes: Mapping[str, int]) -> None:
    """Set what few keys would not reach, for the run that begins; the end of ``simulated`` takes it back."""
    for name, size in sizes.items():
        for module in _HOLDERS:
            if hasattr(module, name):
                setattr(module, name, size)


@contextmanager
def simulated() -> Iterator[None]:
    """A block in which the library lives in the simulated world."""
    with ExitStack() as stack:
        for module, name, stand_in in _SEAMS:
            stack.enter_context(patch.object(module, name, stand_in))
        for module, name in product(_HOLDERS, _SIZES):
            if hasattr(module, name):
                stack.callback(setattr, module, name, getattr(module, name))
        log, others, cache_log = (
            logging.getLogger(name) for name in ("lookup_hints.events", "lookup_hints", "lookup_hints.cache")
        )
        clear_cache = log.manager._clear_cache  # type: ignore[attr-defined]
        stack.callback(clear_cache)  # once all levels are again what they were
        for each, attribute, value in (
            (log, "handlers", [_EventLog()]),
            (log, "propagate", False),
            (log, "level", logging.INFO),
            (cache_log, "handlers", [_CacheLog()]),
            (cache_log, "propagate", False),
            (cache_log, "level", logging.WARNING),
            (others, "level", logging.CRITICAL),
            (sys, "unraisablehook", _report_unraisable),
        ):
            stack.enter_context(patch.object(each, attribute, value))
        clear_cache()
        gc.collect()
        gc.freeze()  # else each run would take the time to look at all modules
        gc.disable()  # it would end what a run has left while another one goes on
        for end in (gc.collect, gc.enable, gc.unfreeze):
            stack.callback(end)
        yield
