"""One budget of bytes for all answers that are under way in a worker process.

A lookup counts what it holds by a ``ByteLease``, and waits where the budget is used up; the oldest lookup
goes on first. Nobody waits for ever: where all that hold bytes wait, too, one of them goes on, and the budget
is exceeded by what that lookup takes.

A task whose rows fill its memory holds all lookups back. Where its first row waits for one of them, that is
mostly the oldest, which then goes on.

All methods are called on one event loop; only a lease that is forgotten may be released elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from types import TracebackType
from typing import NamedTuple

from lookup_hints.spi import SIZE, Option

MAX_BYTES_IN_FLIGHT = Option(
    "max-bytes-in-flight",
    SIZE,
    "Bytes that answers under way may take together in a worker process; requests wait for their part.",
    default=256 * 1024 * 1024,
)


# More leases than a process makes.
_AGES = 2**62


# One budget for all answers of a connector: a fixed part for each request would forbid one large answer and
# still allow a hundred of 15 MB. (docs/decisions/0080)
class BytesInFlight:
    """A budget of ``limit`` bytes.

    Examples:
        Where the size is known before, or can be guessed:

            with budget.lease() as lease:
                await lease.room(expected)
                rows = await ask()
                lease.take(size_of(rows) - expected)
                return as_table(rows)
    """

    def __init__(self, limit: int) -> None:
        self.held = 0
        """Bytes that are counted now."""
        self._limit = limit
        self._ages = count()
        self._waiting: list[_WaitingRequest] = []  # a heap
        self._open: set[int] = set()  # ages of leases that are neither released nor forgotten
        self._pausing: set[int] = set()  # of those, who waits for something that others may hold
        self._holding: dict[Hashable, bool] = {}  # tasks, and whether they need an answer
        self._moving = 0  # leases that hold bytes and wait for nothing: theirs will come back

    def lease(self, *, again: bool = False, shared: bool = False) -> ByteLease:
        """The bytes of one more lookup, none so far; one that asks ``again`` is older than all others.

        One may be ``shared`` by many small lookups: it never waits, so it is not looked at for its age.
        """
        age = next(self._ages) - (_AGES if again else 0)
        if not shared:
            self._open.add(age)
        return ByteLease(self, age, is_shared=shared)

    def hold_back(self, task: Hashable, *, needs_answer: bool) -> None:
        """The rows of ``task`` fill its memory; see ``SupportsBackpressure``."""
        self._holding[task] = needs_answer
        self._grant_waiters()

    def go_on(self, task: Hashable) -> None:
        """There is room for rows of ``task`` again."""
        self._holding.pop(task, None)
        self._grant_waiters()

    def _has_room(self, size: int) -> bool:
        return not self._holding and self.held + size <= self._limit

    # The oldest request always goes on: rows wait for its answer, and without it nothing would ever be freed.
    # (docs/decisions/0080)
    def _may_be_granted(self, request: _WaitingRequest) -> bool:
        if not self._holding:
            return not self._moving or self._has_room(request.size)
        if not all(self._holding.values()):
            return False  # rows will be taken, whatever is answered
        oldest = min([*self._open], default=None)
        return not self._moving if oldest is None or oldest in self._pausing else oldest == request.age

    def _grant_waiters(self) -> None:
        """Let go on who waits, the oldest first, as far as there is room; one at least where nobody moves."""
        while self._waiting:
            request = self._waiting[0]
            is_wanted = not request.granted.done()
            if is_wanted and not self._may_be_granted(request):
                return
            heappop(self._waiting)
            request.lease._end_wait(request.granted.get_loop().time())
            if is_wanted:
                request.lease._add_bytes(request.size)
                request.granted.set_result(None)


class _WaitingRequest(NamedTuple):
    age: int
    number: int
    size: int
    lease: ByteLease
    granted: asyncio.Future[None]


# An answer is not over when it is read: parsed, it takes eight times its text, until its rows are Arrow.
# (docs/decisions/0080)
class ByteLease:
    """What one lookup holds of a budget; it comes back after its ``with`` block, or when it is forgotten."""

    __slots__ = (
        *("held", "is_shared"),
        *("_age", "_budget", "_is_moving", "_pauses", "_since", "_spare", "_waited", "_waits"),
    )

    def __init__(self, budget: BytesInFlight, age: int, *, is_shared: bool = False) -> None:
        self.held = 0
        """Bytes that it holds."""
        self.is_shared = is_shared
        self._budget = budget
        self._age = age
        self._spare = 0
        self._waits = 0
        self._pauses = 0
        self._is_moving = False
        self._waited = 0.0
        self._since = 0.0

    # Counting.

    def take(self, size: int) -> None:
        """Count ``size`` bytes that are here already, room or no room; negative ones come back."""
        if 0 < size <= self._spare:
            self._spare -= size  # it was counted when it was expected
            return
        self._add_bytes(self._use_spare(size))
        if size < 0 and self._budget._waiting:
            self._budget._grant_waiters()

    def request(self, size: int) -> asyncio.Future[None] | None:
        """Count ``size`` bytes: now where there is room, else when the future that is returned is done."""
        size = self._use_spare(size) if self._spare else size
        budget = self._budget
        if not budget._waiting and budget._has_room(size):
            self._add_bytes(size)
            return None
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        heappush(budget._waiting, _WaitingRequest(self._age, next(budget._ages), size, self, granted))
        self._begin_wait(loop.time())
        budget._grant_waiters()
        return None if granted.done() else granted

    def has_room(self, size: int) -> bool:
        """Whether there is room for ``size`` more bytes, and nobody waits for it."""
        return not self._budget._waiting and self._budget._has_room(size)

    def expect_now(self, size: int) -> None:
        """Count ``size`` bytes that are expected."""
        self._add_bytes(size)
        self._spare += size

    async def room(self, size: int) -> None:
        """Wait until there is room for ``size`` more bytes, and count them."""
        granted = self.request(size)
        if granted is not None:
            await granted

    # Waits for room for what is usual here; where more comes than there is room for, reading stops and TCP
    # slows the server. (docs/decisions/0080)
    async def expect(self, size: int) -> None:
        """Wait until there is room for ``size`` bytes, of which what comes next is taken first."""
        await self.room(size)
        self._spare += size

    def settle(self) -> None:
        """What was expected and did not come, comes back."""
        if self._spare:
            spare, self._spare = self._spare, 0
            self.take(-spare)

    # Of several lookups at once.

    def keep(self, size: int) -> None:
        """Hold just ``size`` bytes that are expected; all others came back, or are counted elsewhere."""
        self._spare = size
        self._add_bytes(size - self.held)
        if self._budget._waiting:
            self._budget._grant_waiters()

    def own(self) -> ByteLease:
        """The lease of one of the lookups, which may wait: a shared one never does."""
        return self._budget.lease() if self.is_shared else self

    def release(self) -> None:
        self._spare = 0
        self._budget._open.discard(self._age)
        self._add_bytes(-self.held)
        if self._budget._waiting:
            self._budget._grant_waiters()

    # Waiting.

    @contextmanager
    def idle(self) -> Iterator[None]:
        """A block in which the lookup waits for something that others may hold, who may wait for bytes."""
        self._pauses += 1
        self._budget._pausing.add(self._age)
        self._wake_waiters()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._budget._pausing.discard(self._age)
            self._update_moving()

    def waited(self, now: float) -> float:
        """Seconds that it has waited for room so far, at ``now`` of the loop's clock."""
        return self._waited + (now - self._since if self._waits else 0.0)

    def __enter__(self) -> ByteLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self._budget._open.discard(self._age)
        if self.held:
            waiting = self._budget._waiting
            self._budget.held -= self.held
            self._budget._moving -= self._is_moving
            if waiting:  # whatever thread this is: those who wait belong to their loop
                with suppress(RuntimeError):  # which may be closed
                    waiting[0].granted.get_loop().call_soon_threadsafe(self._budget._grant_waiters)

    # Inside.

    def _use_spare(self, size: int) -> int:
        """What of ``size`` was not expected."""
        if size <= 0 or not self._spare:
            return size
        expected = min(size, self._spare)
        self._spare -= expected
        return size - expected

    def _add_bytes(self, size: int) -> None:
        if size:
            self.held += size
            self._budget.held += size
            self._update_moving()

    def _begin_wait(self, now: float) -> None:
        if not self._waits:
            self._since = now
        self._waits += 1
        self._update_moving()

    def _end_wait(self, now: float) -> None:
        self._waits -= 1
        if not self._waits:
            self._waited += now - self._since
        self._update_moving()

    def _wake_waiters(self) -> None:
        self._update_moving()
        if self._budget._waiting:
            self._budget._grant_waiters()

    # A lease moves while it holds bytes and waits for nothing: then room will come. Where none moves, the
    # oldest goes on. (docs/decisions/0080)
    def _update_moving(self) -> None:
        moves = self.held > 0 and not self._waits and not self._pauses
        if moves is not self._is_moving:
            self._is_moving = moves
            self._budget._moving += 1 if moves else -1


class Usual:
    """What is usual, learnt from what came so far: a mean in which the last ones count most."""

    def __init__(self) -> None:
        self.size = 0

    def saw(self, size: int) -> None:
        # Rounded up: rounded down, it would stay a little below answers that are all of one size.
        self.size = -(-(7 * self.size + size) // 8) if self.size else size
