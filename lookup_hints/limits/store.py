"""Where the numbers of an origin are kept: a mapped file of the executor, or the memory of one process."""

from __future__ import annotations

import hashlib
import mmap
import os
from array import array
from pathlib import Path
from threading import Lock

from lookup_hints.limits.shared_limits import CELLS, SharedLimits
from lookup_hints.limits.shared_numbers import SharedNumbers

try:
    import fcntl
except ImportError:  # on Windows
    _can_lock = False
else:
    _can_lock = True


_ATTEMPTS = 50
"""The lock is held for some microseconds; who has it for longer was interrupted, or stopped."""


class LimitStore:
    """The shared limits of one origin, and the lock that goes with them."""

    def __init__(self, cells: SharedNumbers, file: int | None = None) -> None:
        self.limits = SharedLimits(cells)
        self.is_shared = file is not None
        """Whether the other processes of the executor see the same."""
        self._file = file
        self._lock = Lock()
        self._attempts = _ATTEMPTS

    def acquire(self) -> SharedLimits | None:
        """The shared limits, until ``release``; None where another process has them: try again in a moment.

        It never waits for another process. That may be stopped while it holds the lock, and whoever waits
        here may be an event loop with other work to do.
        """
        self._lock.acquire()
        if self._file is None or self._lock_file(self._file):
            return self.limits
        self._lock.release()
        return None

    def release(self) -> None:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._lock.release()

    def _lock_file(self, file: int) -> bool:
        for attempt in range(self._attempts):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt + 1 < self._attempts:
                    os.sched_yield()
            except BaseException:
                self._lock.release()
                raise
            else:
                self._attempts = _ATTEMPTS
                return True
        self._attempts = 1  # until it has come back, looking costs no time
        return False


def in_memory() -> LimitStore:
    """Limits that this process shares with no other one."""
    return LimitStore(array("d", bytes(8 * CELLS)))


def in_folder(folder: Path, name: str) -> LimitStore:
    """The limits of the origin called ``name``, shared by all processes that are given this ``folder``.

    Raises:
        OSError: it cannot be written, or this system has no locks.
    """
    if not _can_lock:
        raise OSError("this system has no locks for files")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A name may hold a user's name, and signs that a file may not have.
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.origin"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_size < 8 * CELLS:
            os.ftruncate(file, 8 * CELLS)  # all of it zeros, which is how limits begin
        return LimitStore(memoryview(mmap.mmap(file, 8 * CELLS)).cast("d"), file)
    except BaseException:
        os.close(file)
        raise


class LimitStores:
    """The stores that one process has opened: those of a folder where there is one, else its own."""

    def __init__(self) -> None:
        self._opened: dict[tuple[Path | None, str], LimitStore] = {}
        self._lock = Lock()

    def of(self, folder: Path | None, name: str) -> LimitStore:
        with self._lock:
            key = folder, name
            if key not in self._opened:
                try:
                    self._opened[key] = in_memory() if folder is None else in_folder(folder, name)
                except OSError:
                    self._opened[key] = in_memory()
            return self._opened[key]


def folder_of_executor() -> Path | None:
    """A folder that Spark makes for each executor, and deletes with it; None where this is no worker."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    return Path(folders.split(",")[0]) / "lookup_hints" if folders else None


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs; one that has ended and is not waited for does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state != "Z"
