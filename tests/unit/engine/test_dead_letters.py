"""Keys that failed for good: which are kept, what is told of them, and how many may be."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine.outcomes import FailedKeys
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import DeadLetters
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import LookupRequest, Outcomes
from tests.unit.engine.support import Clock, asks, handed_back, ids, keys, names_of, rows, spec

LETTERS = DeadLetters("/letters")
ALL = names_of()


def kept_by(**settings: Any) -> tuple[RequestScheduler, list[FailedKeys]]:
    """A scheduler, and where it puts keys that failed for good."""
    kept: list[FailedKeys] = []
    return RequestScheduler(spec(**settings), Random(7), keep=kept.append), kept


def told(kept: list[FailedKeys]) -> list[tuple[list[int], str, str, int]]:
    return [(each.keys["id"].to_pylist(), each.error_class, each.error, each.attempts) for each in kept]


@pytest.mark.parametrize(("then", "result"), [("null", []), ("skip", None)])
def test_keys_that_fail_for_good_are_kept_and_their_rows_go_on(
    then: str, result: list[tuple[int, str]] | None
) -> None:
    lookup, kept = kept_by(on_error=then, dead_letters=LETTERS)
    lookup.add(keys(1, 2, 1))
    (ask,) = asks(lookup)
    lookup.failed(ask, OSError("no route"), 1.0)
    assert handed_back(lookup.finished()) == [result] * 3
    assert told(kept) == [([1, 2], "OSError", "no route", 1)]
    assert lookup.metrics.dead_letters == 2


def test_without_a_folder_nothing_is_kept() -> None:
    lookup, kept = kept_by(on_error="null")
    lookup.add(keys(1))
    lookup.failed(asks(lookup)[0], OSError("no route"), 1.0)
    assert (kept, lookup.metrics.dead_letters) == ([], 0)


def test_a_key_is_kept_after_its_last_attempt_alone(clock: Clock) -> None:
    lookup, kept = kept_by(
        on_error="null", dead_letters=LETTERS, retry=FixedDelay(2, 10.0).if_exception(), batch_size=1
    )
    fails_once = {2}

    def answer(request: LookupRequest) -> pa.Table:
        (key,) = ids(request)
        if key == 3 or key in fails_once:
            fails_once.discard(key)
            raise OSError(f"no answer for {key}")
        return ALL(request)

    found = run_sync(lookup, iter([keys(1, 2, 3)]), answer, clock=clock, sleep=clock.sleep)
    assert handed_back(found) == [[(1, "n1")], [(2, "n2")], []]
    assert told(kept) == [([3], "OSError", "no answer for 3", 3)]


def test_a_key_that_runs_out_of_time_says_so_and_what_failed_last() -> None:
    lookup, kept = kept_by(
        on_error="null", dead_letters=LETTERS, timeout=5.0, retry=FixedDelay(3, 10.0).if_exception()
    )
    lookup.add(keys(1))
    lookup.failed(asks(lookup)[0], OSError("no route"), 1.0)
    ((_, kind, error, attempts),) = told(kept)
    assert (kind, attempts) == ("LookupTimeout", 1)
    assert "no final outcome within the timeout of 5 s" in error
    assert "no route" in error


def test_of_an_answer_in_part_the_keys_that_failed_are_kept() -> None:
    lookup, kept = kept_by(on_error="skip", dead_letters=LETTERS)
    lookup.add(keys(1, 2, 3))
    (ask,) = asks(lookup)
    found = rows((1, "a"), (3, "c"))
    lookup.answered(ask, Outcomes(found, pa.array([0, 2], pa.int32()), {1: OSError("ill")}), 0.0)
    assert handed_back(lookup.finished()) == [[(1, "a")], None, [(3, "c")]]
    assert told(kept) == [([2], "OSError", "ill", 1)]


# --- how many may fail


def failing(lookup: RequestScheduler, *failed: int, of: int = 10) -> None:
    """Ask keys from 0 on one by one, of which some fail; the input ends."""
    lookup.add(keys(*range(of)))
    lookup.add(None)
    while asked := asks(lookup):
        for ask in asked:
            (key,) = ids(ask)
            if key in failed:
                lookup.failed(ask, OSError(f"no answer for {key}"), 0.0)
            else:
                lookup.answered(ask, ALL(ask.request), 0.0)
    assert handed_back(lookup.finished())
    lookup.check_errors()


@pytest.mark.parametrize("on_error", ["null", "skip"])
def test_the_key_after_the_last_that_may_fail_fails_the_task(on_error: str) -> None:
    failing(kept_by(on_error=on_error, max_errors=2, batch_size=1)[0], 3, 5)
    with pytest.raises(ConnectorError) as raised:
        failing(kept_by(on_error=on_error, max_errors=2, batch_size=1)[0], 3, 5, 8)
    assert str(raised.value).startswith(
        "Too many keys failed for good in table people: 3 of the 10 that this task has read so far;"
        " 'max-errors' = 2 allows fewer. The last: "
    )
    assert "no answer for 8. The lookup of 1 key (id = 8) in table people failed" in str(raised.value)
    assert raised.value.__cause__ is not None


def test_no_key_may_fail_where_max_errors_is_zero() -> None:
    lookup, kept = kept_by(on_error="null", max_errors=0, dead_letters=LETTERS, batch_size=1)
    with pytest.raises(ConnectorError, match="1 of the 10"):
        failing(lookup, 3)
    assert kept == []


def test_the_ratio_counts_when_all_is_asked() -> None:
    failing(kept_by(on_error="null", max_error_ratio=0.2, batch_size=1)[0], 0, 1)
    with pytest.raises(ConnectorError, match=r"3 of the 10 .*'max-error-ratio' = 0.2 allows fewer"):
        failing(kept_by(on_error="null", max_error_ratio=0.2, batch_size=1)[0], 0, 1, 2)


def test_an_empty_task_is_within_every_limit() -> None:
    lookup, _ = kept_by(on_error="null", max_errors=0, max_error_ratio=0.0)
    lookup.add(None)
    lookup.check_errors()
    assert lookup.metrics == LookupMetrics()


# --- what a letter holds
