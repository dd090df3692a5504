"""No unit test starts a JVM, also where a command would."""

from __future__ import annotations

import pytest

from lookup_hints.runs import start

_LAUNCH = start._launch_jvm


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that asks for its Spark fails here."""

    def refuse(*_: object) -> None:
        raise AssertionError("a unit test asks for Spark")

    # Looked up before its thread begins: one that begins late finds nothing of a later test.
    monkeypatch.setattr(start, "_launch_jvm", refuse)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, no_jvm: None) -> None:
    """Here a command goes as far as to the fakes of the test."""
    monkeypatch.setattr(start, "_launch_jvm", _LAUNCH)
