"""What a task counted, as plain data: it travels to the driver in ways that carry nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lookup_hints.metrics.counts import CountsByKey, Events, LookupMetrics

Plain = dict[str, Any]
"""Dictionaries, lists, texts and numbers alone."""


@dataclass(frozen=True)
class TaskRun:
    """One run of a task, by which Spark's repeats are told apart.

    Args:
        stage: the stage.
        partition: which part of the stage's work it does.
        attempt: how often that was tried before in this run of the stage.
        number: tells all runs of all tasks apart.
        batch: the streaming query and the micro-batch that it belongs to, where it belongs to one.
    """

    stage: int
    partition: int
    attempt: int
    number: int
    batch: tuple[str, int] | None = None


@dataclass(frozen=True)
class TaskRecord:
    """What one lookup counted in one run of a task.

    Args:
        function: the lookup's function.
        run: the run of the task.
        counts: what it counted.
    """

    function: str
    run: TaskRun
    counts: LookupMetrics

    def plain(self) -> Plain:
        """It as plain data; what is zero is left out."""
        return {
            "function": self.function,
            "run": {**vars(self.run), "batch": self.run.batch and list(self.run.batch)},
            "counts": {
                name: _plain(value) for name, value in vars(self.counts).items() if value != _ZERO[name]
            },
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> TaskRecord:
        """The record that ``plain`` is of."""
        batch = plain["run"]["batch"]
        run = TaskRun(**{**plain["run"], "batch": batch and (str(batch[0]), int(batch[1]))})
        counts = {name: _of_plain(name, value) for name, value in plain["counts"].items()}
        return cls(str(plain["function"]), run, LookupMetrics(**counts))


_ZERO: dict[str, Any] = {each.name: each.default for each in fields(LookupMetrics)}


def _of_plain(name: str, value: Any) -> Any:
    if isinstance(_ZERO[name], Events):
        return Events(tuple((str(kind), str(text)) for kind, text in value))
    return type(_ZERO[name])(value)


def _plain(value: Any) -> Any:
    if isinstance(value, CountsByKey):
        return dict(value.counts)
    if isinstance(value, Events):
        return [list(event) for event in value.told]
    return int(value) if isinstance(value, int) else value
