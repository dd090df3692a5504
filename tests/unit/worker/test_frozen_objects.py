"""What a lookup asks of the collector of its process."""

from __future__ import annotations

import gc

import pytest

from lookup_hints.worker.arrow_worker import FrozenObjects


def test_what_lasts_leaves_the_collector_once_pyspark_has_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    lasting = FrozenObjects()
    for task in range(1, 5):
        monkeypatch.setattr(gc, "freeze", lambda task=task: frozen.append(task))
        lasting.begin_task()
    assert frozen == [2]
