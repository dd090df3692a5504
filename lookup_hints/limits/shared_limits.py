"""All that the processes of an executor know of one origin, and the mapped file or memory that holds it.

Times are given; who calls has the lock.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeAlias

import numpy as np

from lookup_hints.limits.adaptive_concurrency import AdaptiveLimit
from lookup_hints.limits.circuit_breaker import Breaker, Pause
from lookup_hints.limits.rate_and_retry_budget import Rate, Retries, Spent
from lookup_hints.limits.shared_memory_record import Cell, Record, SharedNumbers
from lookup_hints.spi.request_context import Ending, Wait

CELLS = 8192
"""More than the limits take; the rest is there for what comes."""

IS_SHUT = 0
"""The cell that says whether a pause or an outage may be going on; it is read without the lock."""

UNBOUNDED = 1_000_000

# Seconds, where the source did not ask for a pause.
_FIRST_PAUSE = 1.0

POLL_SECONDS = 0.002
"""How often a task looks for a permit that another one gives back."""

Lack: TypeAlias = tuple[float, Wait]
"""The seconds until it is worth asking for a permit again, and what is waited for."""


@dataclass(frozen=True)
class Rules:
    """The limits of the requests of one lookup.

    Args:
        source: what is asked, for messages.
        capacity: requests of one task in flight.
        concurrency: requests of one executor in flight, or None.
        rate: requests of one executor per second, or None.
        adapts: whether the source tells by its answers how much it bears.
        timeout: seconds for which a request waits where the source is down.
        waits_on_open: whether it waits at all.
        max_requests: of one statement, or None.
        statement: the number of that statement.
    """

    source: str = "the source"
    capacity: int = 100
    concurrency: int | None = None
    rate: float | None = None
    adapts: bool = True
    timeout: float = 300.0
    waits_on_open: bool = True
    max_requests: int | None = None
    statement: int = 0


class OriginSignal(NamedTuple):
    started: float
    ending: Ending
    pause: float | None
    time: float


class SharedLimits:
    """The limits of one origin, in cells."""

    def __init__(self, cells: SharedNumbers) -> None:
        self.cells = cells
        self.limit = AdaptiveLimit(cells, place := IS_SHUT + 1)
        self.pause = Pause(cells, place := place + AdaptiveLimit.SIZE)
        self.rate = Rate(cells, place := place + Pause.SIZE)
        self.retries = Retries(cells, place := place + Rate.SIZE)
        self.breaker = Breaker(cells, place := place + Retries.SIZE)
        self.leases = Leases(cells, place := place + Breaker.cells_for())
        self.spent = Spent(cells, place + Leases.cells_for())

    # (docs/decisions/0314)
    def repair(self) -> None:
        """Begin anew if there is what no limits leave: a damaged file, or one of another layout."""
        if not (np.isfinite(np.asarray(self.cells)).all() and self.leases.is_sound and self.breaker.is_sound):
            for place in range(CELLS):
                self.cells[place] = 0.0

    def allowed(self, rules: Rules) -> int:
        most = math.inf if rules.concurrency is None else rules.concurrency
        if rules.adapts:
            return self.limit.allowed(most)
        return UNBOUNDED if math.isinf(most) else int(most)

    def shut(self, longest: float, now: float) -> Lack | None:
        """Why a request must wait: a pause, or an outage, which it waits for ``longest`` seconds at most."""
        if not self.cells[IS_SHUT]:
            return None
        outage = self.breaker.waits(now)
        if outage > 0:
            return min(outage, longest), "outage"
        if self.pause.opens > now:
            if self.pause.may_try(now):
                return None
            return self.pause.worth_asking(now, POLL_SECONDS), "throttle"
        if not self.breaker.opened_at:
            self.cells[IS_SHUT] = 0.0
        return None

    def sends(self, now: float) -> None:
        """A request goes out: a probe, or a try, where there is an outage or a pause."""
        if self.breaker.opened_at:
            self.breaker.probes(now)
        elif self.pause.opens > now:
            self.pause.tries(now)

    def served(self, requests: int, started: float, ended: float, rules: Rules, now: float) -> None:
        """Record ``requests`` served requests, the last one between ``started`` and ``ended``."""
        if self.pause.served(started, now):
            self.limit.unpaused(now)
        self.breaker.answered(requests, started, now)
        if rules.adapts:
            self.limit.served(requests, self.leases.held, ended - started, now)

    def ended(self, signal: OriginSignal, rules: Rules) -> bool:
        """Learn from ``signal`` what the origin bears; whether the breaker opened by it."""
        started, pause, now = signal.started, signal.pause, signal.time
        is_refused = signal.ending == "refused"
        if pause:
            self.pause.asked(pause, started, now, self.limit.settling if is_refused else None)
        if is_refused:
            self.breaker.answered(1, started, now)
            if not pause and (self.allowed(rules) <= 1 or not rules.adapts):
                self.pause.refused(started, _FIRST_PAUSE, now)
            if rules.adapts:
                self.limit.refused(started, self.leases.held, pause or 0.0, now)
        elif signal.ending == "lost" and rules.adapts:
            self.limit.lost(started, now)
            return self.breaker.lost(started, now)
        return False


try:
    import fcntl
except ImportError:  # on Windows
    _can_lock = False
else:
    _can_lock = True


# The lock is held for microseconds; a process that holds it longer was interrupted or stopped.
_ATTEMPTS = 50


# A mapped file in the folder that Spark makes for the executor, and deletes with it. Decisions work on
# numbers by place, so that tests can give them a list. (docs/decisions/0141)
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
        try:
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError:
            self._close_file()
        finally:
            self._lock.release()

    def _lock_file(self, file: int) -> bool:
        for attempt in range(self._attempts):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt + 1 < self._attempts:
                    os.sched_yield()
            except OSError:
                self._close_file()
                return True
            except BaseException:
                self._lock.release()
                raise
            else:
                self._attempts = _ATTEMPTS
                return True
        self._attempts = 1  # until it has come back, looking costs no time
        return False

    def _close_file(self) -> None:
        """Go on without the lock of the file, which the system refuses: that is no reason to fail a lookup.

        The numbers stay shared, and closing the file releases a lock that it may have.
        """
        assert self._file is not None
        file, self._file = self._file, None
        with suppress(OSError):
            os.close(file)


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
        cells = memoryview(mmap.mmap(file, 8 * CELLS)).cast("d")
        # Mapped memory keeps its file open. The lock is on a second one, as closing that must release it.
        store = LimitStore(cells, os.open(path, os.O_RDWR | os.O_CLOEXEC))
    finally:
        os.close(file)
    if (limits := store.acquire()) is not None:  # who has it has found it sound
        try:
            limits.repair()
        finally:
            store.release()
    return store


class LimitStores:
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


# All processes of one executor find the same folder; another executor on the machine must not.
# (docs/decisions/0140)
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


# --- permits, shared by the tasks of one executor ---------------------------------------------------

# A task holds permits, and may have as many requests in flight. It keeps those that it uses, so that it need
# not ask for each request; what others lack it gives back as its requests end.

MOST_LEASES = 1200
"""This many lookups of one origin may run at once in one executor: tasks times joins."""

# Numbers of processes fit into this many everywhere.
_MOST_PROCESS = 2**31


class Lease(Record):
    owner = Cell()
    """Its process; 0 where the lease is free."""
    ticket = Cell()
    """No two owners of the same lease have the same one."""
    held = Cell()
    until = Cell()
    """When its permits come back, whatever has become of it."""
    wanted_since = Cell()
    """Since when it could use more; 0 where it cannot."""


# Workers of one executor share a mapped file. They cannot reach the driver: Connect has no socket for it, and
# a firewall may block one. (docs/decisions/0140)
class Leases(Record):
    _used = Cell()
    _tickets = Cell()
    fair = Cell()
    """Permits that a task may hold while others have fewer; 0 if there is no bound."""
    excess = Cell()
    """How many permits all hold above the limit."""

    @classmethod
    def cells_for(cls) -> int:
        return cls.SIZE + MOST_LEASES * Lease.SIZE

    def _lease_at(self, place: int) -> Lease:
        return Lease(self.cells, self.start + self.SIZE + place * Lease.SIZE)

    def _used_leases(self) -> Iterator[Lease]:
        return (lease for place in range(int(self._used)) if (lease := self._lease_at(place)).owner)

    def begin(self, owner: int, until: float) -> Lease | None:
        """A lease for a task in the process ``owner``; None where there are too many."""
        place = next((place for place in range(MOST_LEASES) if not self._lease_at(place).owner), None)
        if place is None:
            return None
        self._used = max(self._used, place + 1)
        self._tickets += 1
        lease = self._lease_at(place)
        lease.owner, lease.ticket, lease.held, lease.until = owner, self._tickets, 0.0, until
        lease.wanted_since = 0.0
        return lease

    @property
    def is_sound(self) -> bool:
        first = self._lease_at(0).start
        owners = np.asarray(self.cells)[first : first + MOST_LEASES * Lease.SIZE : Lease.SIZE]
        return 0 <= self._used <= MOST_LEASES and bool(((owners >= 0) & (owners < _MOST_PROCESS)).all())

    @property
    def held(self) -> float:
        return sum(lease.held for lease in self._used_leases())

    # Leased, so that a request costs no lock while nothing is amiss. (docs/decisions/0141)
    def grant(self, lease: Lease, wanted: int, limit: int, now: float) -> int:
        """Up to ``wanted`` more permits for ``lease``, where all may hold ``limit``; how many these are.

        Who has waited for longer, and has less than others, is first.
        """
        since = lease.wanted_since or now
        leases = list(self._used_leases())
        free = limit - sum(each.held for each in leases)
        fair = limit / self._count_claims(leases, lease)
        first = sum(
            each.ticket != lease.ticket and 0 < each.wanted_since < since and each.held < fair
            for each in leases
        )
        granted = int(max(0, min(wanted, free - first)))
        lease.held += granted
        lease.wanted_since = 0.0 if granted == wanted else now if granted else since
        self._set_fair_share(leases, limit)
        return granted

    def give_back(self, lease: Lease, permits: int, limit: int) -> None:
        lease.held -= permits
        self.share(limit)

    def share(self, limit: int) -> None:
        """Find out what is fair, where some lack permits or all hold too many."""
        self._set_fair_share(list(self._used_leases()), limit)

    def _set_fair_share(self, leases: list[Lease], limit: int) -> None:
        fair = limit / self._count_claims(leases)
        lacking = any(each.wanted_since and each.held < fair for each in leases)
        self.excess = max(0.0, sum(each.held for each in leases) - limit)
        self.fair = fair if lacking or self.excess else 0.0

    @staticmethod
    def _count_claims(leases: list[Lease], own: Lease | None = None) -> int:
        claiming = sum(bool(each.held or each.wanted_since) for each in leases)
        is_new = own is not None and not (own.held or own.wanted_since)
        return max(1, claiming + is_new)

    def drop(self, lease: Lease) -> None:
        lease.owner = lease.held = lease.wanted_since = 0.0

    def drop_lost(self, is_alive: Callable[[int], bool], now: float) -> None:
        """Take back what is held by processes that are gone, or for too long."""
        owners = {lease.owner for lease in self._used_leases()}
        gone = {owner for owner in owners if not is_alive(int(owner))}
        for lease in self._used_leases():
            if lease.owner in gone or now > lease.until:
                self.drop(lease)


def surplus(held: float, fair: float, excess: float = 0.0) -> int:
    """How many of ``held`` permits a task gives back whose request is over, where ``fair`` is its part.

    Where there is less than one for each, they go round: whoever has used one gives it back. Where all hold
    ``excess`` permits too many, who holds a part of one above what is fair gives that one back, too.
    """
    if not fair:
        return 0
    more = held - fair
    return 1 if fair < 1 else max(0, math.floor(more), min(math.ceil(more), int(excess)))
