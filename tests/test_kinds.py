"""Tests know their kind, and a unit test that works for long fails."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests import kinds
from tests.kinds import Budget, kind_of

WITH_SERVERS = ModuleType("with_servers")
WITH_SERVERS.__dict__["Api"] = type("Api", (), {"__module__": "tests.servers.http_server"})


def item(path: str = "tests/plan/test_x.py", *fixtures: str, **marks: float) -> Any:
    """What the plugin sees of a test."""

    def mark(name: str) -> Any:
        return SimpleNamespace(args=(marks[name],)) if name in marks else None

    return SimpleNamespace(
        nodeid=f"{path}::test_y",
        fixturenames=fixtures,
        get_closest_marker=mark,
        module=None,
        user_properties=[],
    )


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        (item(), "unit"),
        (item("tests/queries/test_x.py", "spark"), "queries"),
        (item("tests/processes/test_x.py"), "processes"),
        (item("tests/e2e/test_x.py", "spark"), "spark"),
        (item("tests/e2e/test_x.py", "spark", "postgres_server"), "servers"),
        (item("tests/store/test_x.py", processes=1), "processes"),
    ],
)
def test_a_test_is_of_the_kind_that_its_folder_its_fixtures_or_its_mark_say(test: Any, kind: str) -> None:
    assert kind_of(test) == kind


def test_a_module_that_takes_from_the_servers_has_tests_with_servers() -> None:
    test = item()
    test.module = WITH_SERVERS
    assert kind_of(test) == "servers"


@pytest.mark.parametrize(
    ("test", "slowness", "is_late"),
    [
        (item(), 1.0, True),
        (item(work=3.0), 1.0, False),
        (item(work=2.0), 1.0, True),
        (item("tests/e2e/test_x.py", "spark"), 1.0, False),
        (item(), 4.0, False),
    ],
)
def test_a_unit_test_may_work_for_a_second_of_a_free_processor(
    test: Any, slowness: float, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: Iterator[float] = iter([10.0, 12.5])
    monkeypatch.setattr(kinds, "slowness", lambda: slowness)
    running = Budget(lambda: next(times)).pytest_runtest_call(test)
    next(running)
    if is_late:
        with pytest.raises(pytest.fail.Exception, match=r"works for 2.5 s and may for"):
            next(running)
    else:
        with pytest.raises(StopIteration):
            next(running)
    assert dict(test.user_properties)["work"] == 2.5
