"""When the source was asked last what has changed: once in an interval, for all processes of an executor.

A column grows with each change of a row. A check must find all rows that have become visible since the last
one. Their values may be smaller than the greatest one that was seen: who writes takes a time or a number, and
commits later. So a check looks back. The interval of checks is also the time within which a change must
become visible. How far that is back is known in two ways, and the nearer one counts:

- The greatest value that was seen two intervals before the last check. What became visible after that check
  took its value later, whatever the column counts.
- Of a time, the greatest value at the last check less two intervals.

One interval is for the delay, the other for columns whose steps are coarse: two changes in one step have one
value. Where there is neither bound yet, everything is invalidated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from lookup_hints.cache.store.folder import Folder, StoreLimits, locked
from lookup_hints.cache.store.invalidations import Invalidations

MOST_CHANGED = 100_000
"""This many keys are invalidated one by one; where there are more, everything is."""

_LOOK_BACK = 2

Ask = Callable[[int | None], tuple[int | None, pa.Table | None]]
"""Asks the source: what is above a value of the column, or only how far it has grown.

Returns the greatest value, None where there is none; and the keys of the rows that are above, None where they
are too many, or were not asked for.
"""


class Unanswered(Exception):
    """The source did not say what has changed; the text says why, without secrets."""


@dataclass(frozen=True)
class _State:
    """What the processes of an executor know of the checks of one table by one kind of keys.

    Args:
        tried: when the last check began, or failed.
        failure: why it failed; empty where it did not.
        began: when the last one began that did not fail; None where there was none.
        seen: when greatest values of the column had been seen, and these, from the oldest on; the last one
            is that of the last check that did not fail. Empty where the column had no value then.
    """

    tried: float
    failure: str = ""
    began: float | None = None
    seen: tuple[tuple[float, int], ...] = ()


class Checks:
    """The checks of one table by one kind of keys, as one process sees them. Not thread-safe.

    Args:
        path: the folder above the stores of the table.
        invalidations: invalidates what has changed.
        interval: seconds between two checks.
        step: how many seconds a unit of the column is; None where it counts.
        longest: no answer is used that is older than this many seconds.
        clock: seconds, the same for all processes.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(
        self,
        path: Path,
        invalidations: Invalidations,
        interval: float,
        step: float | None,
        longest: float,
        clock: Callable[[], float],
    ) -> None:
        self._folder, self._invalidations = Folder(path, StoreLimits()), invalidations
        self._interval, self._step, self._longest, self._clock = interval, step, longest, clock
        self._known = _State(-math.inf)

    def failure(self, ask: Ask) -> str:
        """Why answers may not be used, as changes are not known; empty where all of them are invalidated.

        Asks the source if that is due; whoever comes meanwhile waits.
        """
        if not self._is_fresh(self._known):
            with locked(self._folder.path / f"{self._invalidations.source}.checking"):
                self._known = self._read()
                if not self._is_fresh(self._known):
                    self._known = self._checked(self._known, ask)
                    self._write(self._known)
        return self._known.failure

    def _is_fresh(self, state: _State) -> bool:
        """Whether no check is due; one of the future counts for nothing, as clocks may jump."""
        return 0 <= self._clock() - state.tried < self._interval

    def _checked(self, state: _State, ask: Ask) -> _State:
        """Invalidate what has changed since ``state``."""
        began, since = self._clock(), self._since(state)
        try:
            latest, keys = ask(since)
        except Unanswered as error:
            return replace(state, tried=self._clock(), failure=str(error))
        ended = self._clock()
        is_empty = state.began is not None and not state.seen and latest is None
        has_fallen = bool(state.seen) and (latest is None or latest < state.seen[-1][1])
        if not is_empty:
            # Up to now, not to when the check began: a row may have been asked for, and then have changed,
            # before the source has said so. What it has not said yet, it says the next time.
            self._invalidate(None if since is None or has_fallen else keys, ended)
        seen = () if has_fallen else state.seen
        if latest is not None:
            seen = (*self._of_use(seen, began), (ended, latest))
        return _State(began, began=began, seen=seen)

    def _since(self, state: _State) -> int | None:
        """Above this value are all rows that became visible after the last check; None: that is not known."""
        if state.began is None or not state.seen:
            return None
        settled = state.began - _LOOK_BACK * self._interval
        bounds: list[int] = []
        if self._step is None or self._step <= self._interval:
            bounds += [latest for ended, latest in state.seen if ended <= settled]
        if self._step is not None:
            bounds.append(state.seen[-1][1] - math.ceil(_LOOK_BACK * self._interval / self._step) - 1)
        return max(bounds, default=None)

    def _of_use(self, seen: tuple[tuple[float, int], ...], began: float) -> tuple[tuple[float, int], ...]:
        """Those of ``seen`` that the next check may look back to, where the last one ``began`` then."""
        settled = [each for each in seen if each[0] <= began - _LOOK_BACK * self._interval]
        return (*settled[-1:], *seen[len(settled) :])

    def _invalidate(self, keys: pa.Table | None, now: float) -> None:
        if keys is None or keys.num_rows:
            who = self._invalidations.source
            number = self._invalidations.number(who) + 1
            self._invalidations.invalidate(who, number, keys, now, self._longest, MOST_CHANGED)

    # --- shared by the processes ------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self._invalidations.source}.checks"

    def _read(self) -> _State:
        with suppress(FileNotFoundError, KeyError, ValueError, TypeError):  # damaged: as if nothing was known
            told = json.loads((self._folder.path / self._name).read_text(encoding="utf-8"))
            state = _State(**{**told, "seen": tuple((float(at), int(latest)) for at, latest in told["seen"])})
            if state.tried <= self._clock():
                return state
        return _State(-math.inf)

    def _write(self, state: _State) -> None:
        self._folder.put(self._name, json.dumps(asdict(state)).encode(), ())
