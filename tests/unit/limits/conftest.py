"""The loop on whose clock limiters run here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.unit.engine.support import VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """A loop that waits in no time, and on which nothing may be left when the test ends."""
    loop = VirtualLoop()
    loop.run_until_complete(asyncio.sleep(1000.0))  # no clock of a machine stands at 0
    yield loop
    left = asyncio.all_tasks(loop)
    loop.close()
    assert not left, "a task outlived its run"
