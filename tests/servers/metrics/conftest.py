"""How often the ends of tasks wait for what is sent."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import TypeVar

import pytest

from lookup_hints.metrics import otel_export

T = TypeVar("T")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each end of a task that waited, whether all was sent in time."""
    found: list[bool] = []

    class Counting(Condition):
        def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
            came = super().wait_for(predicate, timeout)
            if timeout is not None:
                found.append(bool(came))
            return came

    monkeypatch.setattr(otel_export, "Condition", Counting)
    return found
