"""The soak of an hour, for some seconds: it runs, and what it checks holds."""

from __future__ import annotations

import pytest

from tests.processes.soak import soak

pytestmark = pytest.mark.timeout(400)


def test_a_stream_under_fire_loses_and_doubles_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert soak(20, seed=1) == []
    assert "rows, each once" in capfd.readouterr().out
