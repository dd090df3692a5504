"""What to ask next: the heart of the runtime, without a clock, a thread or any I/O.

The flow takes windows of keys, says which request to send now or until when to wait, takes the answers,
and hands back the windows in their order once they are settled. A runner drives it: see
``sync_runner`` and ``async_runner``. Times are seconds on the runner's clock.

A key's life: it is *asked* first in a batch of its window; a batch's keys that must be asked again wait
together as a ``Part``, and parts of many batches that are due go out as one request. A key is *settled*
when its outcome is final.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.errors import AnswerError, ConnectorError, LookupHintsError, LookupTimeout
from lookup_hints.model import Answer, LookupRequest
from lookup_hints.runtime.arrow import Keys, Placed, absent, count_up_to, distinct_keys, lists_per_key, place
from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.runtime.window import Window
from lookup_hints.spec import LookupSpec

BUFFER_BYTES = 64 * 1024 * 1024
"""Reading of input stops while windows that are not handed out hold this much."""

_LONGEST_BEAT = 0.125
_KEYS_SHOWN = 3


# --- what the flow says ------------------------------------------------------------------------------


class Batch:
    """Keys of one window that were first asked together, and so must be settled by the same time."""

    def __init__(self, window: Window, size: int, deadline: float) -> None:
        self.window = window
        self.deadline = deadline
        self.unsettled = size


@dataclass(frozen=True)
class Part:
    """Some keys of a batch, and which attempt (from 1) their next request is."""

    batch: Batch
    positions: pa.Array
    attempt: int

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def keys(self) -> pa.Table:
        """The keys themselves."""
        return self.batch.window.keys.take(self.positions)

    def among(self, chosen: pa.Array) -> Part:
        """The keys of this part at ``chosen``."""
        return replace(self, positions=self.positions.take(chosen))

    def again(self) -> Part:
        """The same keys, for their next attempt."""
        return replace(self, attempt=self.attempt + 1)

    def cut(self, size: int) -> tuple[Part, Part]:
        """The first ``size`` keys, and the others."""
        first, others = self.positions[:size], self.positions[size:]
        return replace(self, positions=first), replace(self, positions=others)


@dataclass(frozen=True, eq=False)
class Ask:
    """Send ``request`` now, and tell the flow the outcome.

    Args:
        request: the distinct keys of all parts.
        parts: whose keys they are.
        codes: for each key of the parts, one after the other, its position in the request.
        deadline: when the most urgent part must be settled.
    """

    request: LookupRequest
    parts: tuple[Part, ...]
    codes: pa.Array
    deadline: float

    def shares(self, placed: Placed) -> Iterator[tuple[Part, Placed]]:
        """Each part with its rows of the answer, placed by the part's own keys."""
        if len(self.parts) == 1:
            yield self.parts[0], placed
            return
        start = 0
        for part in self.parts:
            codes = self.codes[start : start + len(part)]
            start += len(part)
            own = pc.index_in(placed.positions, value_set=codes)
            yield part, Placed(placed.rows, own).filter(own.is_valid())


@dataclass(frozen=True)
class WaitUntil:
    """Nothing to ask before ``time``, when keys fall due again."""

    time: float


@dataclass(frozen=True)
class Idle:
    """Nothing to ask before an answer comes or input is added."""


Step = Ask | WaitUntil | Idle


# --- the flow ----------------------------------------------------------------------------------------


class LookupFlow:
    """The state of one lookup join in one task. Not thread-safe: one thread drives it."""

    def __init__(self, spec: LookupSpec, random: Random) -> None:
        self.metrics = LookupMetrics()
        self._spec = spec
        self._settings = spec.settings
        self._answer_schema = spec.answer_schema
        self._random = random
        self._windows: deque[Window] = deque()
        self._fresh: deque[tuple[Window, pa.Array]] = deque()
        self._due: list[tuple[float, int, Part]] = []
        self._tie = count()
        self._slots = Slots(self._settings.capacity, ordered=self._settings.ordered)
        self._held_bytes = 0
        self._is_heard = False
        self._is_ended = False

    # Input and output.

    @property
    def wants_input(self) -> bool:
        """Whether the next window should be added now.

        Nothing is read ahead of the first answer: a query with a LIMIT may be content with few rows.
        """
        is_stuck = self._held_bytes >= BUFFER_BYTES or (self._slots.in_flight > 0 and not self._is_heard)
        return not (self._is_ended or self._fresh or is_stuck)

    @property
    def is_done(self) -> bool:
        """Whether the input is at its end and all windows are handed back."""
        return self._is_ended and not self._windows

    def add(self, keys: Keys) -> None:
        """Take the keys of a new window of input."""
        window = Window(keys)
        self._windows.append(window)
        for start in range(0, keys.table.num_rows, self._settings.batch_size):
            self._fresh.append((window, window.everything[start : start + self._settings.batch_size]))
        self._hold(window.nbytes)
        self.metrics += LookupMetrics(
            rows_in=len(keys.codes), null_key_rows=keys.codes.null_count, keys=keys.table.num_rows
        )

    def end_input(self) -> None:
        """There will be no more windows."""
        self._is_ended = True

    def finished(self) -> Iterator[Window]:
        """Hand back the settled windows before which no unsettled one is, in the order of the input."""
        while self._windows and self._windows[0].is_settled:
            window = self._windows.popleft()
            self._held_bytes -= window.nbytes
            yield window

    def _hold(self, nbytes: int) -> None:
        is_new = self._held_bytes < BUFFER_BYTES <= self._held_bytes + nbytes
        self._held_bytes += nbytes
        self.metrics += LookupMetrics(buffer_full=int(is_new))

    # What to ask.

    def next(self, now: float) -> Step:
        """What the runner should do at ``now``; after an ``Ask``, ask again what is next.

        Raises:
            LookupTimeout: the time of waiting keys ran out, and `on-error` is ``fail``.
        """
        if self._slots.are_taken:
            return Idle()
        parts = self._due_parts(now)
        if parts:
            self.metrics += LookupMetrics(retried_keys=sum(map(len, parts)))
            return self._ask(parts, now)
        if self._fresh and self._slots.are_free_for_fresh:
            return self._ask([self._fresh_part(now)], now)
        return WaitUntil(self._due[0][0]) if self._due else Idle()

    def _fresh_part(self, now: float) -> Part:
        window, positions = self._fresh.popleft()
        batch = Batch(window, len(positions), now + self._settings.timeout)
        self._slots.enter(batch)
        return Part(batch, positions, attempt=1)

    def _due_parts(self, now: float) -> list[Part]:
        """Parts that are due, of ``batch_size`` keys together at most; the last one is cut to fit."""
        parts: list[Part] = []
        room = self._settings.batch_size
        while room and self._due and self._due[0][0] <= now:
            due, _, part = heappop(self._due)
            if part.batch.deadline <= now:  # all slots were taken for that long
                self._give_up(part, self._out_of_time(part, None))
                continue
            if len(part) > room:
                part, others = part.cut(room)
                self._wait(others, due)
            parts.append(part)
            room -= len(part)
        return parts

    def _ask(self, parts: Sequence[Part], now: float) -> Ask:
        self._slots.in_flight += 1
        self.metrics += LookupMetrics(requests=1)
        deadline = min(part.batch.deadline for part in parts)
        keys = _distinct_among(parts)
        request = LookupRequest(keys.table, self._answer_schema, timeout=deadline - now)
        return Ask(request, tuple(parts), keys.codes, deadline)

    # What came of it.

    def answered(self, ask: Ask, answer: Answer, now: float) -> None:
        """Take the answer of ``ask``.

        Raises:
            AnswerError: the answer breaks the connector's contract.
            LookupTimeout: keys must be asked again after their time is up, and `on-error` is ``fail``.
        """
        self._heard()
        placed = place(answer, ask.request, self._connector_name)
        for part, share in ask.shares(placed):
            self._judge(part, share, now)

    def failed(self, ask: Ask, error: Exception, now: float) -> None:
        """Take the failure of ``ask``.

        Raises:
            ConnectorError: some keys may not be asked again, and `on-error` is ``fail``.
        """
        self._heard()
        self.metrics += LookupMetrics(errors=1)
        if _is_defect(error):
            raise error
        # A request has the time of its most urgent part. The others did not have theirs: ask them again.
        was_cut_short = isinstance(error, LookupTimeout) and ask.deadline <= now
        for part in ask.parts:
            if part.batch.deadline <= now:
                self._give_up(part, self._out_of_time(part, error))
            elif was_cut_short:
                self._wait(part, now)
            else:
                self._retry_error(part, error, now)

    def _heard(self) -> None:
        self._slots.in_flight -= 1
        self._is_heard = True

    def _judge(self, part: Part, placed: Placed, now: float) -> None:
        """Settle the keys of ``part`` whose outcome is final, and let the others wait."""
        missed = absent(placed.positions, len(part))
        delay = self._settings.retry.delay_after_miss(part.attempt, self._spread())
        again = missed[:0] if delay is None else self._refused(placed, missed, len(part))
        if len(again):
            placed = placed.filter(pc.invert(pc.is_in(placed.positions, value_set=again)))
            missed = missed.filter(pc.invert(pc.is_in(missed, value_set=again)))
        self._keep(part, placed)
        self.metrics += LookupMetrics(hits=len(part) - len(again) - len(missed), misses=len(missed))
        self._settle(part, len(part) - len(again))
        if delay is not None and len(again):
            self._retry(part.among(again), now, delay)

    def _refused(self, placed: Placed, missed: pa.Array, size: int) -> pa.Array:
        """The positions of keys that the retry policy wants to ask again."""
        retry = self._settings.retry
        if retry.on_rows is None:
            return missed
        if not retry.on_miss:
            missed = missed[:0]
        schema = placed.rows.schema
        lists = lists_per_key(placed, size, pa.struct(list(schema))).to_pylist()
        refused = [position for position, rows in enumerate(lists) if retry.on_rows(rows)]
        return pc.unique(pa.concat_arrays([missed, pa.array(refused, pa.int32())]))

    def _keep(self, part: Part, placed: Placed) -> None:
        if placed.rows.num_rows:
            found = Placed(placed.rows.select(self._spec.columns), part.positions.take(placed.positions))
            part.batch.window.add(found)
            self._hold(found.rows.nbytes)

    def _retry_error(self, part: Part, error: Exception, now: float) -> None:
        delay = self._settings.retry.delay_after_error(part.attempt, error, self._spread())
        if delay is None:
            self._give_up(part, self._failure(part, error))
        else:
            self._retry(part, now, delay, error)

    def _retry(self, part: Part, now: float, delay: float, error: Exception | None = None) -> None:
        """Ask the keys of ``part`` again after ``delay``, unless their time is up before."""
        due, deadline = now + delay, part.batch.deadline
        if due >= deadline:
            self._give_up(part, self._out_of_time(part, error))
        else:
            beat = _next_beat(due, delay)
            self._wait(part.again(), beat if beat < deadline else due)

    def _wait(self, part: Part, due: float) -> None:
        heappush(self._due, (due, next(self._tie), part))

    def _spread(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    # Final outcomes.

    def _give_up(self, part: Part, error: ConnectorError) -> None:
        """The keys of ``part`` failed for good: do what `on-error` says."""
        if self._settings.on_error == "fail":
            raise error
        if self._settings.on_error == "skip":
            part.batch.window.skip(part.positions)
            self.metrics += LookupMetrics(skipped=len(part))
        else:
            self.metrics += LookupMetrics(misses=len(part))
        self._settle(part, len(part))

    def _settle(self, part: Part, size: int) -> None:
        part.batch.window.settle(size)
        part.batch.unsettled -= size
        if part.batch.unsettled == 0:
            self._slots.leave(part.batch)

    # Messages.

    @property
    def _connector_name(self) -> str:
        return f"connector {type(self._spec.connector).__name__} of table {self._spec.table.name}"

    def _failure(self, part: Part, error: Exception) -> ConnectorError:
        message = f"{self._what(part)} failed after {_times(part.attempt)}: {_said(error)}"
        kind = LookupTimeout if isinstance(error, LookupTimeout) else ConnectorError
        return _chained(kind(message), error)

    def _out_of_time(self, part: Part, error: Exception | None) -> ConnectorError:
        last = f" The last one failed: {_said(error)}" if error is not None else ""
        message = (
            f"{self._what(part)} has no final outcome within the timeout of {self._settings.timeout:g} s,"
            f" after {_times(part.attempt)}.{last} Raise 'timeout', or lower 'max-attempts' or the delay."
        )
        return _chained(LookupTimeout(message), error)

    def _what(self, part: Part) -> str:
        function = f" (function {self._spec.name})" if self._spec.name else ""
        return f"The lookup of {_shown_keys(part)} in table {self._spec.table.name}{function}"


def feed(flow: LookupFlow, keys: Keys | None) -> None:
    """Give ``flow`` its next window, or tell it that there is none."""
    if keys is None:
        flow.end_input()
    else:
        flow.add(keys)


class Slots:
    """Counts requests against `capacity`.

    In flight they always count. In ordered mode a batch whose keys are all settled counts, too, while a
    batch asked before it is not; a batch with keys that wait for a retry does not count.
    """

    def __init__(self, capacity: int, *, ordered: bool) -> None:
        self.in_flight = 0
        self._capacity = capacity
        self._ordered = ordered
        self._asked: deque[Batch] = deque()
        self._settled_behind = 0

    @property
    def are_taken(self) -> bool:
        """Whether nothing at all may be sent."""
        return self.in_flight >= self._capacity

    @property
    def are_free_for_fresh(self) -> bool:
        """Whether keys may be sent for the first time; retries may always use what is not in flight."""
        held = self._settled_behind if self._ordered else 0
        return self.in_flight + held < self._capacity

    def enter(self, batch: Batch) -> None:
        """``batch`` is asked for the first time."""
        self._asked.append(batch)

    def leave(self, batch: Batch) -> None:
        """``batch`` is settled; it is out once all before it are."""
        assert batch.unsettled == 0
        self._settled_behind += 1
        while self._asked and self._asked[0].unsettled == 0:
            self._asked.popleft()
            self._settled_behind -= 1


# --- helpers -----------------------------------------------------------------------------------------


def _distinct_among(parts: Sequence[Part]) -> Keys:
    """The distinct keys of ``parts``: two windows may wait for the same key."""
    if len(parts) == 1:
        return Keys(parts[0].keys, count_up_to(len(parts[0])))
    return distinct_keys(pa.concat_tables([part.keys for part in parts]))


def _next_beat(due: float, delay: float) -> float:
    """``due``, or up to a sixteenth of ``delay`` later.

    Misses of requests that were answered within one beat then fall due together and go out as one
    request. Beats are powers of two: those of different delays fall together, and rounding is exact.
    """
    beat = min(_LONGEST_BEAT, 2.0 ** (math.frexp(delay / 16)[1] - 1))
    return math.ceil(due / beat) * beat


def _is_defect(error: Exception) -> bool:
    """Whether ``error`` tells of a wrong connector, query or library, which no policy may hide."""
    return isinstance(error, AnswerError) or (
        isinstance(error, LookupHintsError) and not isinstance(error, ConnectorError)
    )


def _shown_keys(part: Part) -> str:
    """The keys of ``part``, the first few in full: ``2 keys (id = 1; id = 2)``."""
    some = part.cut(_KEYS_SHOWN)[0].keys.to_pylist()
    shown = "; ".join(", ".join(f"{name} = {_short(value)}" for name, value in row.items()) for row in some)
    more = "; ..." if len(part) > _KEYS_SHOWN else ""
    noun = "key" if len(part) == 1 else "keys"
    return f"{len(part)} {noun} ({shown}{more})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _said(error: Exception) -> str:
    """What ``error`` says; the kind, too, unless it is one of ours."""
    text = str(error)
    return text if isinstance(error, ConnectorError) else f"{type(error).__name__}: {text}".rstrip(": ")


def _chained(error: ConnectorError, cause: Exception | None) -> ConnectorError:
    error.__cause__ = cause
    return error
