"""Every n-th call fails: runs of one path in which its first call fails, then its second, until none is left.

``survive`` runs a path of the product over real files. In each run one call that our code makes of a file, a lock,
a socket, memory, a thread or a process fails, as the system would let it fail. Such a run ends with its right
result, or with an error that names the cause. It leaves no file, lock or thread behind, and the next run over the
same folder gives the right result.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import gc
import io
import mmap
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce, wraps
from operator import or_
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from lookup_hints.cache import open_caches
from lookup_hints.limits.shared_limits import LimitStores
from lookup_hints.process import open_connectors
from lookup_hints.process.open_connectors import LoopThread, Process
from tests.unit.engine.support import Clock

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / each}{os.sep}" for each in ("lookup_hints", "connectors/lookup_connectors"))
_STDLIB = f"{sysconfig.get_paths()['stdlib']}{os.sep}"
_THROUGH = ("numpy", "pyarrow")
"""Packages whose calls count as those of our code, where it calls them."""
MOST_RUNS = 3000

Failure = Callable[[], BaseException]
NumberedPlace = tuple[tuple[str, tuple[tuple[str, int], ...]], int]
"""What is called by which lines of our code, and the how-manieth call it is of the same."""


def _system_error(number: int, named: bool = True) -> Failure:
    """What the system says; of an open file it does not say the name."""
    return lambda: OSError(number, os.strerror(number), *(["injected"] if named else []))


def _cannot_start_thread() -> BaseException:
    return RuntimeError("can't start new thread (injected)")


def _no_memory() -> BaseException:
    return MemoryError("out of memory (injected)")


def _connection_reset() -> BaseException:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET), "injected")


@dataclass(frozen=True)
class Target:
    """A call that can fail: ``owner.name``, how it fails, and whether that comes after it has been made."""

    owner: Any
    name: str
    failure: Failure
    after: bool = False
    """A file that cannot be closed is closed all the same."""


_FULL, _BROKEN, _DENIED = (_system_error(each) for each in (errno.ENOSPC, errno.EIO, errno.EACCES))
_FULL_DISK, _BROKEN_DISK = (_system_error(each, named=False) for each in (errno.ENOSPC, errno.EIO))
_NO_LOCKS = _system_error(errno.ENOLCK, named=False)

FILES = (
    *(Target(os, name, _FULL) for name in ("mkdir", "link", "symlink")),
    *(Target(os, name, _FULL_DISK) for name in ("write", "pwrite", "ftruncate")),
    *(Target(os, name, _BROKEN_DISK) for name in ("read", "fsync", "fstat")),
    *(Target(os, name, _BROKEN) for name in ("rename", "replace", "scandir", "listdir")),
    *(Target(os, name, _BROKEN) for name in ("unlink", "remove", "rmdir", "stat", "lstat")),
    *(Target(os, name, _DENIED) for name in ("open", "utime", "chmod")),
    Target(os, "close", _BROKEN_DISK, after=True),
    Target(os, "dup", _system_error(errno.EMFILE)),
    Target(fcntl, "flock", _NO_LOCKS),
    Target(fcntl, "lockf", _NO_LOCKS),
)
MEMORY = (
    Target(mmap, "mmap", _system_error(errno.ENOMEM)),
    Target(np, "memmap", _system_error(errno.ENOMEM)),
    Target(pa, "memory_map", _system_error(errno.ENOMEM)),
    Target(pa, "OSFile", _FULL),
    *(Target(pa, name, _no_memory) for name in ("py_buffer", "concat_tables", "BufferOutputStream")),
)
PROCESSES = (
    Target(threading.Thread, "start", _cannot_start_thread),
    Target(subprocess.Popen, "__init__", _system_error(errno.EAGAIN)),
)
SOCKETS = (
    *(
        Target(socket.socket, name, _connection_reset)
        for name in ("connect", "connect_ex", "send", "sendall")
    ),
    *(Target(socket.socket, name, _connection_reset) for name in ("recv", "recv_into", "sendto")),
    *(Target(socket.socket, name, _system_error(errno.EADDRINUSE)) for name in ("bind", "listen")),
    Target(socket, "getaddrinfo", lambda: socket.gaierror(socket.EAI_AGAIN, "no name server (injected)")),
)
SYSTEM = (*FILES, *MEMORY, *PROCESSES, *SOCKETS)
REMOVALS = ("unlink", "remove", "rmdir", "rename", "scandir", "open", "lstat", "stat")
"""Where one of these fails while something is cleared away, it stays until the next run."""


@dataclass
class NthCall:
    """A run in which the ``number``-th call by our code fails, and no other.

    Args:
        number: from 1 on.
        lasting: all later calls of the same function fail, too, as on a disk that stays full.
        through: packages whose calls count as ours, where our code calls them.
        of_all: calls count whoever makes them, such as an event loop.
    """

    number: int
    lasting: bool = False
    through: tuple[str, ...] = ()
    of_all: bool = False
    most_of_a_place: int = 2
    """So often the same line counts that is reached by the same lines, as in a loop."""
    only: NumberedPlace | None = None
    """The call that fails in place of one with a number, as threads make theirs in any order."""
    calls: int = 0
    places: list[NumberedPlace] = field(default_factory=list)
    """All calls that count, in the order in which they came."""
    fired: str = ""
    """The call that failed, with the line of our code that made it; empty where none did."""
    _failed: str = ""
    _seen: Counter[Any] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failure_of(self, target: Target, frame: FrameType) -> BaseException | None:
        """What this call of ``target`` raises; None where it goes on."""
        line = self._line_of_ours(frame)
        if line is None or (
            frame.f_code.co_filename.endswith("shutil.py") and target.name in ("fstat", "close")
        ):
            return None  # shutil closes twice what could not be closed
        if frame.f_code.co_name in ("_write_to_self", "_read_from_self"):
            return None  # by which asyncio wakes its own loop: no connection to anybody
        place = target.name, tuple(_lines_of_ours(frame))
        with self._lock:
            self._seen[place] += 1
            counts = self._seen[place] <= (1 if self.lasting else self.most_of_a_place)
            self.calls += counts
            if counts:
                self.places.append((place, self._seen[place]))
            is_it = counts and (
                self.calls == self.number if self.only is None else self.places[-1] == self.only
            )
            is_it = is_it or (self.lasting and target.name == self._failed)
            if is_it and not self.fired:
                self.fired, self._failed = f"{target.name} ({line})", target.name
        return target.failure() if is_it else None

    def _line_of_ours(self, frame: FrameType | None) -> str | None:
        """The line of our code that makes a call, maybe by way of a library; None where another one does."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(OURS):
                return f"{name[len(str(ROOT)) + 1 :]}:{frame.f_lineno} {frame.f_code.co_name}"
            if not self.of_all and not self._is_library(name):
                return None
            frame = frame.f_back
        return "another" if self.of_all else None

    def _is_library(self, name: str) -> bool:
        if name.startswith("<frozen importlib") or name.endswith(_NOT_OF_A_PATH):
            return False
        if "site-packages" in name:
            package = name.partition(f"site-packages{os.sep}")[2].partition(os.sep)[0]
            return package in (*_THROUGH, *self.through)
        return name == __file__ or name.startswith((_STDLIB, "<"))


def _lines_of_ours(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


_NOT_OF_A_PATH = ("gettext.py", "linecache.py", "traceback.py", "warnings.py", "weakref.py", "subprocess.py")


class Interception:
    """While it is entered, ``targets`` go through ``run``, where there is one."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.run: NthCall | None = None
        self._targets, self._patches = targets, ExitStack()

    def __enter__(self) -> Interception:
        new = [(each.owner, each.name, self._counted(each)) for each in self._targets]
        new += [(io, "open", self._open), (builtins, "open", self._open)]
        ours = [module for name, module in sys.modules.items() if name.startswith(_PACKAGES)]
        holders: dict[int, list[tuple[Any, str]]] = {}
        for module in ours:
            for name, value in vars(module).items():
                holders.setdefault(id(value), []).append((module, name))
        accessor = getattr(pathlib, "_NormalAccessor", None)  # of Python 3.10
        for owner, name, call in new:
            original = getattr(owner, name)
            if accessor is not None and owner in (os, io) and getattr(accessor, name, None) is original:
                self._patches.enter_context(mock.patch.object(accessor, name, staticmethod(call)))
            for holder, its_name in {(owner, name): 0, **dict.fromkeys(holders.get(id(original), ()))}:
                self._patches.enter_context(mock.patch.object(holder, its_name, call))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def failure_of(self, target: Target, depth: int) -> BaseException | None:
        """What the call of ``target`` raises that is ``depth`` frames above; None where it goes on."""
        return None if self.run is None else self.run.failure_of(target, sys._getframe(depth + 1))

    def _counted(self, target: Target) -> Any:
        original = getattr(target.owner, target.name)

        @wraps(original, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            failure = self.failure_of(target, 1)
            if failure is None:
                result = original(*args, **kwargs)
                return _Entries(self, result) if target.name == "scandir" else result
            if target.after:
                original(*args, **kwargs)
            raise failure

        return call

    # The layers that `open` puts together, over a file that counts what reaches the system: what is written is
    # often written when the file is closed.
    def _open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        is_ours = self.run is not None and self.run._line_of_ours(sys._getframe(1)) is not None
        if not is_ours or (encoding == "locale"):
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        plain = mode.replace("b", "").replace("t", "")
        if not isinstance(file, int):  # which is open already
            failure = self.failure_of(_OPEN_FOR_READING if plain == "r" else _OPEN_FOR_WRITING, 1)
            if failure is not None:
                raise failure
        raw = _CountedFile(self, file, plain, closefd, opener)
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in plain else io.BufferedReader if plain == "r" else io.BufferedWriter
        buffered = kind(raw)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text


_open = io.open
_PACKAGES = ("lookup_hints", "lookup_connectors")
_OPEN_FOR_READING, _OPEN_FOR_WRITING = Target(io, "open", _DENIED), Target(io, "open", _FULL)
_WRITE, _READ = Target(io, "write", _FULL_DISK), Target(io, "read", _BROKEN_DISK)
_CLOSE = Target(io, "close", _BROKEN_DISK, after=True)


class _CountedFile(io.FileIO):
    """A file that counts what reaches the system."""

    def __init__(self, calls: Interception, file: Any, mode: str, closefd: bool, opener: Any) -> None:
        self._calls = calls
        super().__init__(file, mode, closefd, opener)

    def _count(self, target: Target) -> None:
        failure = self._calls.failure_of(target, 2)
        if failure is not None:
            raise failure

    def write(self, data: Any) -> int:
        self._count(_WRITE)
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        self._count(_READ)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._count(_READ)
        return super().readall()

    def close(self) -> None:
        was_open = not self.closed
        super().close()
        if was_open:
            self._count(_CLOSE)


_STAT = Target(os, "stat", _BROKEN)


class _Entries:
    """What ``os.scandir`` gives, with entries that count their ``stat``."""

    def __init__(self, calls: Interception, found: Any) -> None:
        self._calls, self._found = calls, found

    def __iter__(self) -> Iterator[Any]:
        return (_Entry(self._calls, each) for each in self._found)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.close()

    def close(self) -> None:
        self._found.close()


class _Entry:
    def __init__(self, calls: Interception, entry: os.DirEntry[Any]) -> None:
        self._calls, self._entry = calls, entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> Any:
        return self._entry.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        failure = self._calls.failure_of(_STAT, 1)
        if failure is not None:
            raise failure
        return self._entry.stat(follow_symlinks=follow_symlinks)


# --- a worker -------------------------------------------------------------------------------------------


@contextmanager
def worker_in(folder: Path, loop: LoopThread | None = None) -> Iterator[None]:
    """This process is a worker of its own, whose executor has a folder; in the end it has nothing open.

    Args:
        folder: where that of the executor is.
        loop: the event loop of such workers; that of a real one ends with its process.
    """
    fresh = Process(Clock())
    fresh._loop = loop
    with (
        mock.patch.object(open_connectors, "this_process", fresh),
        mock.patch.dict(os.environ, {"SPARK_LOCAL_DIRS": str(folder / "executor")}),
        mock.patch.object(open_caches, "running_statement", return_value="7"),
        mock.patch.object(open_caches, "running_part", return_value="1"),
    ):
        try:
            yield
        finally:
            for shared in fresh._shared.values():
                shared.opened.close()
            for store in fresh.the(LimitStores)._opened.values():
                if store._file is not None:
                    store._close_file()
            fresh._kept.clear()  # with what the limits have mapped


LATER = r"(segment|used|taken)$|identity_of_file.*leaves|/note$"
"""Merges wait for the next writer; a file without identity has answers of its own; why a load failed is noted."""


# --- what a run may leave -------------------------------------------------------------------------------


_KINDS = ("files", "opened", "threads", "elsewhere")
_END_SOON = tuple(f"{each} " for each in ("threads", "elsewhere"))


@dataclass
class Traces:
    """What a process and a folder hold at a moment: files, open files, threads, and what others hold for it."""

    files: Counter[str]
    opened: Counter[str]
    threads: Counter[str]
    elsewhere: Counter[str] = field(default_factory=Counter)
    """Such as sessions of a server."""

    def beyond(self, before: Traces) -> list[str]:
        """What is here that was not there before."""
        return sorted(
            f"{kind} {name}" for kind in _KINDS for name in getattr(self, kind) - getattr(before, kind)
        )


_UNIQUE = re.compile(r"\b[0-9a-f]{8,}\b|\d+")


def traces(folder: Path, elsewhere: Callable[[], Counter[str]] = Counter) -> Traces:
    """What is below ``folder``, open, and running; names without what differs from run to run."""
    files = Counter(_UNIQUE.sub("#", str(each.relative_to(folder))) for each in folder.rglob("*"))
    opened: Counter[str] = Counter()
    for each in Path("/proc/self/fd").iterdir() if Path("/proc").exists() else ():
        try:
            place = str(each.readlink())
        except OSError:
            continue
        if place.startswith(("socket:", str(folder))) or place.endswith("(deleted)"):
            opened[_UNIQUE.sub("#", place)] += 1
    threads = Counter(_UNIQUE.sub("#", each.name) for each in threading.enumerate())
    return Traces(files, opened, threads, elsewhere())


def settled(
    folder: Path, before: Traces, elsewhere: Callable[[], Counter[str]] = Counter, seconds: float = 0.3
) -> list[str]:
    """What a run has left beyond ``before``, once what is about to end has ended."""
    ends = time.monotonic() + seconds
    while (left := traces(folder, elsewhere).beyond(before)) and time.monotonic() < ends:
        if not any(each.startswith(_END_SOON) for each in left):
            break
        time.sleep(0.01)
    return left


# --- a path ---------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """How many calls of a path failed, one in each run, and how the runs ended."""

    failures: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    texts: dict[str, str] = field(default_factory=dict)
    """What a run raised, by the call that failed."""
    faults: list[str] = field(default_factory=list)

    def check(self) -> None:
        """The path bore all of it."""
        assert not self.faults, "\n".join(self.faults)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending = [error]
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [other for other in (each.__cause__, each.__context__) if other is not None]


_INJECTED = (
    "injected",
    *map(os.strerror, (errno.ENOSPC, errno.EIO, errno.EACCES, errno.ENOLCK, errno.ENOMEM, errno.ECONNRESET)),
    "Connection lost",  # as asyncio says it to who waits until all is sent
)


def names_cause(error: BaseException) -> bool:
    """Whether ``error`` says what was injected, or is caused by it."""
    return any(word in str(each) or word in repr(each) for each in _chain(error) for word in _INJECTED)


@dataclass
class Survivor:
    """A path of the product.

    Args:
        run: gives the result of one run over a folder, and closes what it opens.
        prepare: makes a folder what the path expects; nothing fails meanwhile.
        targets: the calls that may fail.
        is_right: compares the result of a run in which a call failed with that of one in which none did.
        errors: what a run may raise.
        says: whether an error says enough.
        excused: a pattern of what is no fault: a call with what became of it.
        elsewhere: what others hold for this process, such as sessions of a server.
        through, of_all, most_of_a_place: as of ``NthCall``.
        has_threads: whether several threads make the calls, so that each is known by its lines and by no number.
    """

    run: Callable[[Path], Any]
    prepare: Callable[[Path], object] = lambda _: None
    targets: Sequence[Target] = SYSTEM
    is_right: Callable[[Any, Any], bool] = lambda found, right: bool(found == right)
    errors: type[BaseException] | tuple[type[BaseException], ...] = Exception
    says: Callable[[BaseException], bool] = names_cause
    excused: str = "(?!)"
    elsewhere: Callable[[], Counter[str]] = Counter
    through: tuple[str, ...] = ()
    of_all: bool = False
    most_of_a_place: int = 2
    has_threads: bool = False

    def nth_call(self, which: int | NumberedPlace, lasting: bool) -> NthCall:
        """Of a run of this path, the one call that fails."""
        number, only = (which, None) if isinstance(which, int) else (0, which)
        return NthCall(number, lasting, self.through, self.of_all, self.most_of_a_place, only)


def survive(
    path: Survivor,
    folder: Path,
    part: int = 0,
    parts: int = 1,
    lasting: Sequence[bool] = (False, True),
    most: int = MOST_RUNS,
) -> Outcome:
    """Run ``path`` over folders below ``folder``, each time with another failing call.

    Args:
        path: what runs.
        folder: an empty one.
        part: of so many ``parts`` of the calls this one is tried, all of them over the parts.
        lasting: whether all later calls of the same function fail, too; each is tried.
        most: of more calls, the first half of so many fail, and as many that are spread over the rest; where
            several threads make them, so many that are spread over all.
    """
    outcome, own, as_prepared = Outcome(), folder / "own", folder / "prepared"
    own.mkdir()
    path.prepare(own)
    shutil.copytree(own, as_prepared, symlinks=True)
    path.run(own)  # what a process imports and keeps once
    _begin(own, as_prepared)
    seen = [traces(own, path.elsewhere)]
    rights = []
    for _ in range(2):
        rights.append(path.run(own))
        seen.append(traces(own, path.elsewhere))
    gc.collect()
    gc.freeze()  # so that each run can be looked through at once
    try:
        with Interception(path.targets) as calls:
            for stays in lasting:
                for which in _calls_to_fail(path, own, as_prepared, calls, stays, most)[part::parts]:
                    _begin(own, as_prepared)
                    before = traces(own, path.elsewhere)
                    run = path.nth_call(which, stays)
                    _run_with_failure(path, own, calls, run, rights[0], outcome)
                    if not run.fired:
                        continue
                    outcome.failures += 1
                    where = f"{'all of ' if stays else ''}{run.fired}"
                    is_clearing = stays or run.fired.split(" ")[0] in REMOVALS
                    left = [f"{where}: leaves {each}" for each in _left_beyond(path, own, before, *seen[:2])]
                    if is_clearing:
                        left = [each for each in left if ": leaves files" not in each]
                    try:
                        found = path.run(own)
                    except Exception as error:
                        outcome.faults.append(f"{where}: the next run raises {error!r}")
                    else:
                        if not path.is_right(found, rights[1]):
                            outcome.faults.append(f"{where}: the next run gives {found!r}")
                    left += [
                        f"{where}: the next run leaves {each}"
                        for each in _left_beyond(path, own, before, *seen[1:])
                    ]
                    outcome.faults += left
    finally:
        gc.unfreeze()
    outcome.faults = [each for each in outcome.faults if not re.search(path.excused, each)]
    return outcome


def _calls_to_fail(
    path: Survivor, own: Path, as_prepared: Path, calls: Interception, stays: bool, most: int
) -> Sequence[int | NumberedPlace]:
    """The calls that fail, one in each run; a run in which none does counts them."""
    _begin(own, as_prepared)
    calls.run = none = path.nth_call(0, stays)
    path.run(own)
    calls.run = None
    assert none.calls, "no call was made to fail"
    assert none.calls < MOST_RUNS, f"this path has no end: {none.calls} calls"
    numbers = range(1, none.calls + 1)
    every: Sequence[int | NumberedPlace] = sorted(none.places) if path.has_threads else numbers
    first = 0 if path.has_threads else min(len(every), most // 2)
    rest = every[first:]
    return [*every[:first], *rest[:: max(1, -(-len(rest) // (most - first)))]]


def _begin(own: Path, as_prepared: Path) -> None:
    if own.exists():
        shutil.rmtree(own)
    shutil.copytree(as_prepared, own, symlinks=True)


def _run_with_failure(
    path: Survivor, own: Path, calls: Interception, run: NthCall, right: Any, outcome: Outcome
) -> None:
    found, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        calls.run = run
        try:
            found = path.run(own)
        except (Exception, SystemExit) as raised:
            error = raised
        finally:
            calls.run = None
        where = f"{'all of ' if run.lasting else ''}{run.fired or 'no failure'}"
        if error is not None:
            outcome.errors[type(error).__name__] += 1
            outcome.texts.setdefault(run.fired, f"{type(error).__name__}: {error}")
            if not isinstance(error, path.errors):
                outcome.faults.append(f"{where}: raises {error!r}")
            elif not path.says(error):
                outcome.faults.append(f"{where}: says no cause: {error!r}")
        elif not path.is_right(found, right):
            outcome.faults.append(f"{where}: gives {found!r}, not {right!r}")
        found = error = None
        gc.collect()
    outcome.faults += [
        f"{where}: is left to the collector: {each.message}"
        for each in caught
        if issubclass(each.category, ResourceWarning)
    ]


def _left_beyond(path: Survivor, own: Path, *allowed: Traces) -> list[str]:
    most = (reduce(or_, (getattr(each, kind) for each in allowed)) for kind in _KINDS)
    return settled(own, Traces(*most), path.elsewhere)
