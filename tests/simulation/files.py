"""The seams at which the library touches files: faults, other threads' turns, and what a crash leaves.

The files are real ones of a file system in memory, so that locks and mapped memory are those of the system. What is
written may fail (ENOSPC, EIO), be written in part, or be gone after a crash of the machine: nothing was synced.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.simulation.world import Killed, SimulatedProcess, World, _lane, _thread, this_process


class Disk:
    """How the disk of an executor behaves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.failing = 0.0
        """How probable it is that one touch fails."""
        self.short_writes = False
        self.busy = 0.0
        """How probable it is that a lock that nobody waits for is held by somebody else."""
        self.turns = 0.0
        """How probable it is that others run before a touch."""
        self.renamed: list[tuple[Path, Path]] = []

    def __str__(self) -> str:
        return (
            f"disk: failing {self.failing}, short writes {self.short_writes}, busy locks {self.busy},"
            f" turns {self.turns}"
        )

    def touch(self, what: str, path: object, *, may_fail: bool = True) -> None:
        """Something touches a file: others may run before, the process may die, it may fail.

        Raises:
            OSError: no space is left, or the device fails.
        """
        process, world = this_process(), self._world
        process.work()
        thread = _thread.get(None)
        if thread is not None and self.turns and world.chance(self.turns):
            thread.let_others_run()
        if may_fail and self.failing and not world.is_well and world.chance(self.failing):
            number = world.random.choice((errno.ENOSPC, errno.EIO))
            world.tell(
                f"process {process.number}: {what} of {Path(str(path)).name} fails: {errno.errorcode[number]}"
            )
            raise OSError(number, os.strerror(number))

    def crash(self, folder: Path) -> None:
        """The machine was reset: of what was written lately any prefix is there, and last renames are undone."""
        random = self._world.random
        undone = random.choice((0, random.randrange(len(self.renamed) + 1)))
        for source, target in reversed(self.renamed[len(self.renamed) - undone :]):
            if target.exists() and not source.exists() and source.parent.is_dir():
                os.rename(target, source)  # noqa: PTH104 - not the simulated one
        self.renamed.clear()
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".lock" and random.random() < 0.4:
                _damage(path, random)
        self._world.tell("the machine is reset")


def _damage(path: Path, random: Any) -> None:
    size = path.stat().st_size
    if random.random() < 0.7 and size > 64:  # blocks in the midst were not written
        with path.open("r+b") as file:
            written = file.read()
            places = [each for each in range(0, size, 8) if any(written[each : each + 8])]
            # Most of a small file says where its numbers are: damaged there, it cannot be read anyhow.
            numbers = [each for each in places if not any(written[each + 4 : each + 8])] or places
            for _ in range(random.choice((1, 1, 4)) if places else 0):
                place = random.choice(random.choice((numbers, places[-50:])))
                file.seek(place)
                file.write(bytes(min(random.choice((8, 8, 64)), size - place)))
        return
    kept = random.randrange(size + 1)
    if random.random() < 0.3:
        kept = 8 * (kept // 8)
    with path.open("r+b") as file:
        file.truncate(kept)
        if random.random() < 0.3:  # its length was written, its blocks were not
            file.truncate(size)


def close_files(process: SimulatedProcess) -> None:
    """Close what a process has open, as its end does."""
    for file in process.files:
        fcntl.flock(file, fcntl.LOCK_UN)  # mapped memory has the file open still
        os.close(file)
    process.files.clear()
    while process.streams:
        process.streams.pop().end()


def disk() -> Disk:
    found: Disk = this_process().world.disk  # type: ignore[attr-defined]
    return found


class SimulatedOs:
    """The module ``os`` as the library sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        return this_process().number

    def cpu_count(self) -> int:
        return 2

    def sched_yield(self) -> None:
        pass

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        disk().touch("opening", path)
        file = os.open(path, flags, mode)
        this_process().files.add(file)
        return file

    def close(self, file: int) -> None:
        lane = _lane.get(None)
        if lane is not None and file in lane.process.files:  # else its process has ended
            lane.process.files.remove(file)
            os.close(file)

    def write(self, file: int, data: Any) -> int:
        disk().touch("writing", "a file")
        return os.write(file, _some_of(data))

    def fdopen(self, file: int, mode: str) -> Any:
        """Its file is written to as long as the process lives."""
        this_process().files.discard(file)
        raw = _RawFile(file, "r+b" if "+" in mode else "wb")
        if "b" not in mode:
            return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    def scandir(self, path: Any) -> Any:
        disk().touch("listing", path, may_fail=False)
        with os.scandir(path) as entries:
            return nullcontext(iter(sorted(entries, key=lambda each: each.name)))


def _some_of(data: Any) -> Any:
    found = disk()
    if found.short_writes and len(data) > 1:
        return memoryview(data)[: 1 + found._world.random.randrange(len(data))]
    return data


class _RawFile(io.FileIO):
    def __init__(self, file: int, mode: str) -> None:
        super().__init__(file, mode)
        self._process = this_process()
        self._process.streams.append(self)

    def end(self) -> None:
        """Close it as the system does: what is buffered is lost."""
        super().close()

    def close(self) -> None:
        if self in self._process.streams:
            self._process.streams.remove(self)
        super().close()

    def write(self, data: Any) -> int:
        self._process.work()
        disk().touch("writing", "a file")
        return super().write(_some_of(data))


class SimulatedLocks:
    """The module ``fcntl`` as the library sees it: who waits for a lock lets others run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(fcntl, name)

    def flock(self, file: int, how: int) -> None:
        process = this_process()
        process.work()
        if file not in process.files:
            raise Killed
        world = process.world
        if how == fcntl.LOCK_UN or how & fcntl.LOCK_NB:
            if how & fcntl.LOCK_NB and not world.is_well and disk().busy and world.chance(disk().busy):
                raise BlockingIOError(errno.EAGAIN, "another process has it")
            fcntl.flock(file, how)
            return
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                _thread.get().sleep(0.001)
            else:
                return


class SimulatedPath(type(Path())):  # type: ignore[misc]
    """A path of the executor's disk."""

    __slots__ = ()

    def iterdir(self) -> Iterator[Any]:
        return iter(sorted(super().iterdir()))

    def glob(self, pattern: str) -> Iterator[Any]:
        return iter(sorted(super().glob(pattern)))

    def rename(self, target: Any) -> Any:
        found = disk()
        found.touch("renaming", self)
        renamed = super().rename(target)
        found.renamed.append((Path(self), Path(target)))
        return renamed

    def unlink(self, missing_ok: bool = False) -> None:
        disk().touch("removing", self)
        super().unlink(missing_ok=missing_ok)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        disk().touch("making", self)
        super().mkdir(mode, parents, exist_ok)

    def read_bytes(self) -> bytes:
        disk().touch("reading", self)
        return super().read_bytes()  # type: ignore[no-any-return]


class SimulatedRemoval:
    """The module ``shutil`` as the library sees it: a folder goes file by file, and its remover may die meanwhile."""

    def rmtree(self, path: Path, ignore_errors: bool = False) -> None:
        disk().touch("removing", path, may_fail=False)
        if not Path(path).is_dir():
            return
        for each in sorted(os.scandir(path), key=lambda each: each.name):
            disk().touch("removing", each.path, may_fail=False)
            if each.is_dir():
                self.rmtree(Path(each.path))
            else:
                os.unlink(each.path)  # noqa: PTH108 - not the simulated one
        os.rmdir(path)  # noqa: PTH106 - not the simulated one


class SimulatedArrow:
    """The module ``pyarrow`` as the cache sees it, whose files may not be readable."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(pa, name)
        setattr(self, name, found)
        return found

    def memory_map(self, path: str) -> Any:
        disk().touch("mapping", path)
        return pa.memory_map(path)


class SimulatedFileSystem:
    """A file system of Arrow, as dead letters are written to it."""

    def __init__(self) -> None:
        from pyarrow.fs import LocalFileSystem

        self._real = LocalFileSystem()

    def create_dir(self, path: str, *, recursive: bool) -> None:
        disk().touch("making", path)
        self._real.create_dir(path, recursive=recursive)

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[Any]:
        disk().touch("opening", path)
        with self._real.open_output_stream(path) as file:
            try:
                yield file
            finally:
                disk().touch("writing", path)

    def delete_file(self, path: str) -> None:
        disk().touch("removing", path)
        self._real.delete_file(path)

    def move(self, source: str, target: str) -> None:
        disk().touch("renaming", source)
        self._real.move(source, target)

    def get_file_info(self, selector: Any) -> Any:
        disk().touch("listing", "dead letters")
        return sorted(self._real.get_file_info(selector), key=lambda each: each.path)


_runs = count(1)


@contextmanager
def new_folder() -> Iterator[Path]:
    """A block with an empty folder in memory, which is gone after it."""
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(os.environ.get("TMPDIR", "/tmp"))
    folder = root / f"lookup_hints_simulation_{os.getpid()}_{next(_runs)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
