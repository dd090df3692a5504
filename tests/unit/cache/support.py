"""A store on a made-up clock, and what is learned and asked in plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lookup_hints.cache.store.answer_store import Ages, Store
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.segment_entries import Answers, ProbeResult
from lookup_hints.cache.store.segment_files import StoreLimits

AGES = Ages(rows=1000.0, missing=100.0)
UNLIMITED = StoreLimits()
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYS = pa.schema([SCHEMA.field("id")])


NOW = float("inf")
"""For what is asked when it is learned."""


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


class Learning(Store):
    """A store that knows what NOW is."""

    def learn(self, learned: Sequence[Answers]) -> None:
        now = self._clock()
        super().learn([replace(each, asked=min(each.asked, now)) for each in learned])


def store(folder: Path, clock: Clock, limits: StoreLimits = UNLIMITED, ages: Ages = AGES) -> Learning:
    """A store below ``folder``."""
    path = folder / "lookup_hints" / "store"
    return Learning(path, limits, ages, clock, Invalidations(path.parent, KEYS))


def learned(
    answers: Mapping[Any, Sequence[str]],
    schema: pa.Schema = SCHEMA,
    unknown: Sequence[Any] = (),
    when: float = NOW,
) -> Answers:
    """The names that were found by id; ids without names are known to have none, ``unknown`` ones are not."""
    ids = [*answers, *unknown]
    rows = [(key, at, name) for at, key in enumerate(ids) for name in answers.get(key, ())]
    return Answers(
        keys=keys(ids, schema),
        rows=pa.table([[key for key, _, _ in rows], [name for _, _, name in rows]], schema=schema),
        positions=pa.array([at for _, at, _ in rows], pa.int32()),
        missing=pa.array([at for at, key in enumerate(answers) if not answers[key]], pa.int32()),
        asked=when,
    )


def keys(ids: Sequence[Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table of ids."""
    return pa.table([ids], schema=pa.schema([schema.field("id")]))


def asked(of: Store, ids: Sequence[Any], schema: pa.Schema = SCHEMA) -> dict[Any, list[str]]:
    """What the store knows of ``ids``: their names, none for a miss."""
    return told(of.probe(keys(ids, schema), ["name"]), ids)


def told(known: ProbeResult, ids: Sequence[Any]) -> dict[Any, list[str]]:
    """What is known of ``ids``: their names, none for a miss."""
    answers: dict[Any, list[str]] = {ids[at]: [] for at in known.missing.to_pylist()}
    for rows, positions in known.found:
        for name, at in zip(rows.column("name").to_pylist(), positions.to_pylist(), strict=True):
            answers.setdefault(ids[at], []).append(name)
    return answers
