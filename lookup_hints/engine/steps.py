"""What the flow says should be done next, and the keys that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import Keys, Placed, absent, count_up_to, distinct_keys, holds
from lookup_hints.engine.window import Window
from lookup_hints.spi.request_and_answer import LookupRequest, Outcomes


class Batch:
    """Keys of one window that were first asked together, and so must be settled by the same time."""

    def __init__(self, window: Window, size: int, deadline: float) -> None:
        self.window = window
        self.size = size
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

    def waits_for(self, window: Window, key: int) -> bool:
        return self.batch.window is window and holds(self.positions, key)

    @property
    def keys(self) -> pa.Table:
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
        asked: when it is sent.
        deadline: when the most urgent part must be settled.
        slots: how many requests it counts for.
    """

    request: LookupRequest
    parts: tuple[Part, ...]
    codes: pa.Array
    asked: float
    deadline: float
    slots: int = 1

    def shares(self, placed: Placed) -> Iterator[tuple[Part, Placed]]:
        """Each part with its rows of the answer, placed by the part's own keys."""
        if len(self.parts) == 1:
            yield self.parts[0], placed
            return
        for part, codes in self.codes_of_parts():
            own = pc.index_in(placed.positions, value_set=codes)
            yield part, Placed(placed.rows, own).filter(own.is_valid())

    def codes_of_parts(self) -> Iterator[tuple[Part, pa.Array]]:
        """Each part with the positions of its keys in the request."""
        start = 0
        for part in self.parts:
            yield part, self.codes[start : start + len(part)]
            start += len(part)

    def among(self, chosen: pa.Array) -> Ask:
        """The same question for the keys at ``chosen`` alone, in that order."""
        parts: list[Part] = []
        codes: list[pa.Array] = []
        for part, own in self.codes_of_parts():
            now = pc.index_in(own, value_set=chosen)
            if now.null_count < len(now):
                parts.append(part.among(pc.indices_nonzero(now.is_valid())))
                codes.append(now.drop_null())
        request = replace(self.request, keys=self.request.keys.take(chosen))
        slots = self.slots * len(chosen) // self.request.keys.num_rows
        return replace(self, request=request, parts=tuple(parts), codes=pa.concat_arrays(codes), slots=slots)

    def notes_of(self, part: Part, notes: Mapping[int, Any]) -> list[Any]:
        """What was noted about each key of ``part``; nothing where nothing was noted at all."""
        if not notes:
            return []
        codes = next(own for each, own in self.codes_of_parts() if each is part)
        return [notes.get(code) for code in codes.to_pylist()]

    def without_failed(self, placed: Placed, answer: Outcomes) -> tuple[Ask, Placed, Mapping[int, Any]]:
        """The same question and what came of it, for the keys that did not fail."""
        others = absent(pa.array(answer.failures, pa.int32()), self.request.keys.num_rows)
        if not len(others):
            return replace(self, parts=(), codes=others), placed, {}
        positions = pc.index_in(placed.positions, value_set=others)
        found = Placed(placed.rows, positions).filter(positions.is_valid())
        notes = {now: answer.notes[was] for now, was in enumerate(others.to_pylist()) if was in answer.notes}
        return self.among(others), found, notes


@dataclass(frozen=True)
class WaitUntil:
    """Nothing to ask before ``time``, when keys fall due again."""

    time: float


@dataclass(frozen=True)
class Idle:
    """Nothing to ask before an answer comes or input is added."""


Step = Ask | WaitUntil | Idle


@dataclass(frozen=True)
class Hold:
    """Lookups under way should wait, if they can: rows that are held take much memory.

    Args:
        until: when they should go on all the same.
        needs_answer: the first row waits for one of them; else rows will be handed out or asked for.
    """

    until: float
    needs_answer: bool


def distinct_keys_of(parts: Sequence[Part]) -> Keys:
    """The distinct keys of ``parts``: two windows may wait for the same key."""
    if len(parts) == 1:
        return Keys(parts[0].keys, count_up_to(len(parts[0])))
    return distinct_keys(pa.concat_tables([part.keys for part in parts]))
