"""No unit test starts a JVM, also where a command would."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that asks for its Spark fails here."""

    def refuse(*_: object) -> None:
        raise AssertionError("a unit test asks for Spark")

    monkeypatch.setattr("lookup_hints.runs.start.launched_jvm", refuse)
