"""The first signal ends a command in order, a later one at once, and a hasty one changes nothing."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from lookup_hints.cli.interrupts import PATIENCE, Interrupted, signals_raise


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_raised_and_says_how_the_command_ends(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    ended: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", ended.append)
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    try:
        with pytest.raises(Interrupted, match=f"stopped by {number.name}") as raised, signals_raise():
            signal.getsignal(number)(number, None)  # type: ignore[operator, misc]
        handler = signal.getsignal(number)
        assert callable(handler)
        assert raised.value.exit_code == code
        handler(number, None)
        assert not ended, "a hasty second one"
        now += PATIENCE + 1
        handler(number, None)
        assert ended == [number]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        for each, own in before.items():
            signal.signal(each, own)


def test_without_a_signal_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_raise():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_thread_that_may_not_handle_signals_runs_all_the_same() -> None:
    ran: list[bool] = []

    def run() -> None:
        with signals_raise():
            ran.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ran
