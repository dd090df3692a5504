"""A world of one seed: a clock that jumps, event loops, threads that take turns, processes that die.

One loop has the callbacks of all processes. Each process has a lane of its own on it, and so has each thread: within
a lane callbacks keep their order, as asyncio promises; which lane is next is chance. A thread runs while it has its
turn, and gives it back where a real one might lose it: where it waits, sleeps, or touches a file.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from math import inf
from pathlib import Path
from queue import Empty, Full
from random import Random
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

from lookup_hints.process.open_connectors import CallTimeout, Process

T = TypeVar("T")

MOST_STEPS = 60_000
"""A run that takes more does not end."""

LONGEST_RUN = 1e6
"""Nor does one that takes more seconds of its own."""

_STALLS = (0.01, 0.3, 2.0)
"""So many seconds the machine stands still."""


class Killed(BaseException):
    """The process was killed: nothing that it does from now on has any effect."""


class Broken(AssertionError):
    """Something that must hold does not."""


class Lane:
    """Callbacks that keep their order: the event loop of a process, or one of its threads."""

    def __init__(self, process: SimulatedProcess) -> None:
        self.process = process
        self.ready: deque[_Callback] = deque()


_lane: ContextVar[Lane] = ContextVar("lane")


class SimulatedProcess:
    """A process of an executor, or the driver: what the library keeps in it, its threads and open files."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.is_dead = False
        self.died_at = inf
        self.lane = Lane(self)
        self.threads: list[SimulatedThread] = []
        self.files: set[int] = set()
        self.streams: list[Any] = []
        self.queues: list[SimulatedQueue] = []
        self.limiters: list[Any] = []
        self.folder: Any = None
        self.here = self.new_state()
        self.dies_after: int | None = None
        """So many more turns, calls of the source or touches of files, and it is killed."""

    def new_state(self) -> Process:
        """What the library keeps in a process: nothing yet."""
        state = Process(self.world.clock)
        state._loop = SimulatedLoopThread(self)  # type: ignore[assignment]
        return state

    def work(self) -> None:
        """Something happens here: the process may die of it.

        Raises:
            Killed: it is dead.
        """
        if self.dies_after is not None and not self.is_dead:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.world.kill(self)
        if self.is_dead or self.world.is_over:
            raise Killed


class SimulatedThread:
    """A thread of a process, which runs while it has its turn: a stack of its own on the one real thread."""

    def __init__(self, process: SimulatedProcess, work: Callable[[], object], name: str) -> None:
        self.process, self.name = process, name
        self.world = process.world
        self.lane = Lane(process)
        self.is_over = False
        self.task: Any = None
        """What Spark tells of the task that runs here."""
        self.error: BaseException | None = None
        self._work = work
        self._is_waked = False
        self._ends: list[Callable[[], None]] = []
        context = copy_context()
        context.run(_lane.set, self.lane)
        context.run(_thread.set, self)
        self.on_loop = Context()
        """In which the loop wakes it."""
        self.on_loop.run(_lane.set, self.lane)
        process.threads.append(self)
        self._stack, self._before = greenlet(self._run), getcurrent()
        self._stack.gr_context = context
        self.wake()

    def is_alive(self) -> bool:
        return not self.is_over

    def wake(self, *_: object) -> None:
        """Let it go on, soon."""
        if not self._is_waked and not self.is_over:
            self._is_waked = True
            self.world.loop.call_soon(self.take_turn, context=self.on_loop)

    def take_turn(self) -> None:
        """Run it until it waits; called by who has the turn now."""
        self._is_waked = False
        if self.is_over:
            return
        loop = self.world.loop
        if is_called_by_loop := loop.has_turn:
            loop.has_turn = False
            asyncio._set_running_loop(None)  # a thread has none
        self._stack.parent = self._before = getcurrent()
        self._stack.switch()
        if is_called_by_loop:
            asyncio._set_running_loop(loop)
            loop.has_turn = True

    def end(self) -> None:
        """Let it end, as all is over."""
        while not self.is_over:
            self.take_turn()

    def wait(self) -> None:
        """Wait until somebody wakes it; called on the thread itself."""
        if self.process.is_dead or self.world.is_over:
            raise Killed
        self._before.switch()
        self.process.work()

    def let_others_run(self) -> None:
        """Give the turn back, and take it again some time."""
        self.wake()
        self.wait()

    def sleep(self, seconds: float) -> None:
        """Wait for so long."""
        self.process.work()
        timer = self.world.loop.call_later(max(0.0, seconds), self.wake, context=self.on_loop)
        self.wait()
        timer.cancel()

    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until ``condition`` holds, which is looked at whenever somebody wakes it."""
        timer, is_late = None, []
        if timeout is not None:

            def end() -> None:
                is_late.append(True)
                self.wake()

            timer = self.world.loop.call_later(max(0.0, timeout), end, context=self.on_loop)
        while not condition() and not is_late:
            self.wait()
        if timer is not None:
            timer.cancel()
        return condition()

    def join(self, timeout: float | None = None) -> None:
        me = this_thread()
        if self.is_over:
            return
        self._ends.append(me.wake)
        me.wait_until(lambda: self.is_over, timeout)

    @property
    def place(self) -> str:
        """Where it waits."""
        frames = traceback.extract_stack(self._stack.gr_frame)
        own = [
            frame for frame in frames if "/lookup_hints/" in frame.filename or "/jobs.py" in frame.filename
        ]
        return " < ".join(
            f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(own[-5:])
        )

    def _run(self) -> None:
        try:
            self.process.work()
            self._work()
        except Killed:
            pass
        except BaseException as error:
            self.error = None if self.process.is_dead else error
        finally:
            self.is_over = True
            self._work = lambda: None
            for end in self._ends:
                end()


_thread: ContextVar[SimulatedThread] = ContextVar("thread")
asker: ContextVar[SimulatedThread] = ContextVar("asker")
"""The thread of the task for which something is asked, whoever does it."""


def this_thread() -> SimulatedThread:
    """The thread of the world that runs.

    Raises:
        Killed: there is none, as what a run has left is ended after it.
    """
    thread = _thread.get(None)
    if thread is None:
        raise Killed
    return thread


def this_process() -> SimulatedProcess:
    """The process of the world that runs.

    Raises:
        Killed: there is none, as for ``this_thread``.
    """
    lane = _lane.get(None)
    if lane is None:
        raise Killed
    return lane.process


class SimulatedLoopThread:
    """What the library calls its thread with an event loop: the lane of the process."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    def call(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run ``coroutine`` on the lane of the process, while the thread waits."""
        process = self._process
        try:
            thread = this_thread()
            process.work()
        except Killed:
            coroutine.close()
            raise
        context = Context()
        context.run(_lane.set, process.lane)
        context.run(asker.set, thread)
        task = context.run(process.world.loop.create_task, coroutine)
        task.add_done_callback(thread.wake, context=thread.on_loop)
        thread.wait_until(task.done)
        result: T = task.result()
        return result


class SimulatedCallThread:
    """The thread on which a blocking connector is called."""

    def __init__(self, name: str) -> None:
        self._name, self._calls = name, SimulatedLock()

    def call(
        self, work: Callable[[], T], seconds: float | None, more: Callable[[], float] = lambda: 0.0
    ) -> T:
        thread, outcome = this_thread(), list[tuple[T | None, Exception | None]]()

        def run() -> None:
            asker.set(thread)
            with self._calls:
                if is_late:
                    return
                try:
                    outcome.append((work(), None))
                except Exception as error:
                    outcome.append((None, error))
            thread.wake()

        is_late: list[bool] = []
        SimulatedThread(thread.process, run, self._name)
        while not thread.wait_until(lambda: bool(outcome), seconds):
            if (seconds := more()) <= 0:
                is_late.append(True)
                raise CallTimeout
        value, error = outcome[0]
        if error is not None:
            raise error
        return cast("T", value)

    def end(self) -> None:
        pass


class SimulatedQueue:
    """As ``queue.Queue``, between threads of the world."""

    def __init__(self, most: int = 0) -> None:
        self._most, self._items, self._waiting = most, deque[Any](), list[SimulatedThread]()
        self.unfinished = 0
        this_process().queues.append(self)

    def put(self, item: Any) -> None:
        self._items.append(item)
        self.unfinished += 1
        self._wake()

    def put_nowait(self, item: Any) -> None:
        if self._most and len(self._items) >= self._most:
            raise Full
        self.put(item)

    def get(self, timeout: float | None = None) -> Any:
        me = this_thread()
        self._waiting.append(me)
        try:
            if not me.wait_until(lambda: bool(self._items), timeout):
                raise Empty
            return self._items.popleft()
        finally:
            self._waiting.remove(me)

    def task_done(self) -> None:
        self.unfinished -= 1

    def _wake(self) -> None:
        for each in self._waiting:
            each.wake()


class SimulatedCondition:
    """As ``threading.Condition``, between threads of the world, of which one runs at a time."""

    def __init__(self) -> None:
        self._waiting: list[SimulatedThread] = []

    def __enter__(self) -> SimulatedCondition:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        me = this_thread()
        self._waiting.append(me)
        try:
            return me.wait_until(condition, timeout)
        finally:
            self._waiting.remove(me)

    def notify_all(self) -> None:
        for each in self._waiting:
            each.wake()


class SimulatedLock:
    """As ``threading.Lock``, between threads of the world."""

    def __init__(self) -> None:
        self._is_held = False
        self._changed = SimulatedCondition()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        if self._is_held:
            self._changed.wait_for(lambda: not self._is_held)
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._changed.notify_all()


class _Callback:
    """What is to run in a lane: ``asyncio.Handle`` without what only a real loop needs, as a run makes many."""

    __slots__ = ("args", "context", "function", "is_cancelled", "lane")

    def __init__(self, function: Any, args: tuple[Any, ...], context: Context | None) -> None:
        self.context = copy_context() if context is None else context
        self.lane = self.context[_lane]
        self.function, self.args = function, args
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def run(self) -> None:
        """Run it.

        Raises:
            Broken: it failed.
        """
        try:
            self.context.run(self.function, *self.args)
        except Killed:
            pass
        except (Exception, asyncio.CancelledError) as error:
            raise Broken(f"a callback failed: {error!r}") from error


class _NumberedTask(asyncio.Task[Any]):
    """Its place in a set is the same in each run of a seed."""

    def __init__(self, coroutine: Any, loop: Loop, number: int) -> None:
        self._number = number
        super().__init__(coroutine, loop=loop)

    def __hash__(self) -> int:
        return self._number


class Loop(asyncio.BaseEventLoop):
    """One loop for all lanes; its time jumps to the next timer when nothing is ready."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._lanes: list[Lane] = []
        self._timers: list[tuple[float, int, _Callback]] = []
        self._tie = count()
        self.tasks: list[asyncio.Task[Any]] = []
        self.has_turn = False
        """Whether it runs now, and none of the threads."""
        # A task whose answer nobody waits for any more may fail unnoticed; a callback may not.
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        return self._world.now

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = _NumberedTask(coro, self, len(self.tasks))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        called = _Callback(callback, args, context)
        self._put(called)
        return called

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        called = _Callback(callback, args, context)
        heappush(self._timers, (when, next(self._tie), called))
        return called

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def _put(self, called: _Callback) -> None:
        lane = called.lane
        if not lane.ready:
            self._lanes.append(lane)
        lane.ready.append(called)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Run callbacks until ``is_over``.

        Raises:
            Broken: nothing more happens, or there is no end of it.
        """
        asyncio._set_running_loop(self)
        self.has_turn = True
        try:
            while not is_over():
                self._step()
        finally:
            self.has_turn = False
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        world, lanes, timers = self._world, self._lanes, self._timers
        chance = world.random.random
        world.steps += 1
        if world.steps > MOST_STEPS or world.now > LONGEST_RUN:
            raise Broken("the run does not end")
        world.now += chance() * 2e-5
        if world.stalls and not world.is_well:
            if chance() < 0.002:
                world.now += world.random.choice(_STALLS)
            if timers and not lanes and chance() < 0.02:  # several are due
                world.now = max(world.now, timers[0][0]) + world.random.choice(_STALLS)
        while timers and (not lanes or timers[0][0] <= world.now):
            when, _, timer = heappop(timers)
            if not timer.is_cancelled:
                world.now = max(world.now, when)
                self._put(timer)
        if not lanes:
            raise Broken("nothing more happens, and the run is not over")
        place = int(chance() * len(lanes))
        lane = lanes[place]
        called = lane.ready.popleft()
        if not lane.ready:
            lanes[place] = lanes[-1]
            lanes.pop()
        if not called.is_cancelled and not lane.process.is_dead:
            called.run()

    def abandon(self) -> None:
        """Drop what is left, as the end of a process does."""
        for task in self.tasks:
            if not task.done():
                try:
                    task.get_coro().close()
                except BaseException:
                    continue
        self._timers.clear()
        self._lanes.clear()
        self.tasks.clear()


class World:
    """All that is made up in one run.

    Args:
        seed: decides all that happens.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.now = 10_000.0
        self.steps = 0
        self.is_over = False
        self.setting = ""
        """The options and faults of the run, for who reads its trace."""
        self.stalls = False
        """Whether the machine stands still now and then."""
        self.is_well = False
        """Whether nothing goes wrong any more."""
        self.is_gone = False
        """Whether the source never answers again."""
        self._told: list[tuple[float, str]] = []
        self.folder = ""
        """Where its files are, which is another folder in each run of a seed."""
        self._numbers = count(1)
        self.events: list[tuple[SimulatedThread | None, str]] = []
        """What the library logged of lookups: the thread of the task, and how the line begins."""
        self.cache_warnings: list[str] = []
        """What it logged of caches that it did without."""
        self.processes: dict[int, SimulatedProcess] = {}
        self.loop = Loop(self)
        self.driver = self.start_process()
        self.context = Context()
        """In which something is done that no thread of the world does."""
        self.context.run(_lane.set, self.driver.lane)

    def clock(self) -> float:
        return self.now

    def tell(self, event: str) -> None:
        """Remember ``event`` for the trace."""
        self._told.append((self.now, event))

    @property
    def trace(self) -> list[str]:
        """All events, each with its time."""
        return [
            f"{at - 10_000:14.6f}  {event.replace(self.folder, 'FOLDER') if self.folder else event}"
            for at, event in self._told
        ]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def start_process(self) -> SimulatedProcess:
        process = SimulatedProcess(self, next(self._numbers))
        self.processes[process.number] = process
        return process

    def is_alive(self, number: int) -> bool:
        process = self.processes.get(number)
        return process is not None and not process.is_dead

    def kill(self, process: SimulatedProcess) -> None:
        """End ``process`` as SIGKILL does: its threads do nothing more, its files are closed."""
        from tests.simulation.files import close_files

        if process.is_dead:
            return
        process.is_dead, process.died_at = True, self.now
        self.tell(f"process {process.number} is killed")
        close_files(process)
        me = _thread.get(None)
        for thread in process.threads:
            if thread is not me and not thread.is_over:
                thread.take_turn()  # and ends
        for other in self.processes.values():
            for thread in other.threads:
                thread.wake()

    def run(self, work: Callable[[], object]) -> None:
        """Run ``work`` on a thread of the driver, and all that it starts, to its end.

        Raises:
            Broken: something does not hold.
        """
        main = self.context.run(SimulatedThread, self.driver, work, "driver")
        try:
            self.context.run(self.loop.run, lambda: main.is_over)
        except Broken:
            for process in self.processes.values():
                for thread in process.threads:
                    if not thread.is_over:
                        self.tell(f"process {process.number}: {thread.name} waits in {thread.place}")
            raise
        finally:
            self.end()
        if main.error is not None:
            raise main.error

    def end(self) -> None:
        """End all threads, close all files.

        Raises:
            Broken: a thread does not end.
        """
        from tests.simulation.files import close_files

        self.is_over = True
        self.tell(f"over after {self.steps} steps; the next number by chance is {self.random.random():.9f}")
        stuck: Broken | None = None
        for process in self.processes.values():
            for thread in process.threads:
                try:
                    thread.end()
                except Broken as error:
                    stuck = error
            close_files(process)
        self.context.run(self.loop.abandon)
        self.loop.close()
        if stuck is not None:
            raise stuck
