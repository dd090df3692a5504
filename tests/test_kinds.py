"""Tests know their kind, and a unit test that works for long fails."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests import kinds
from tests.kinds import Budget, kind_of, misplaced


def item(path: str = "tests/unit/plan/test_x.py", *fixtures: str, **marks: float) -> Any:
    """What the plugin sees of a test."""

    def mark(name: str) -> Any:
        return SimpleNamespace(args=(marks[name],)) if name in marks else None

    return SimpleNamespace(
        nodeid=f"{path}::test_z" if "::" not in path else path,
        fixturenames=fixtures,
        get_closest_marker=mark,
        user_properties=[],
        runtest=lambda: None,
    )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/test_docs.py", "unit"),
        *((f"tests/{kind}/test_x.py", kind) for kind in kinds.KINDS),
        ("tests/spark/cli/test_x.py", "spark"),
    ],
)
def test_the_kind_of_a_test_is_its_folder(path: str, kind: str) -> None:
    assert kind_of(item(path)) == kind


@pytest.mark.parametrize(
    ("test", "place"),
    [
        (item(), None),
        (item("tests/unit/test_x.py", "spark"), "spark"),
        (item("tests/unit/test_x.py", "spark", "postgres_server"), "servers"),
        (item("tests/test_x.py", "api"), "servers"),
        (item("tests/spark/test_x.py", "spark"), None),
        (item("tests/spark/test_x.py", "postgres_server"), "servers"),
        (item("tests/queries/test_x.py", "spark", "api"), None),
    ],
)
def test_a_test_that_needs_more_than_its_kind_may_is_refused(test: Any, place: str | None) -> None:
    said = misplaced(test)
    assert (said and said.split()[3]) == (place and f"tests/{place},")


@pytest.mark.parametrize(
    ("test", "slowness", "is_late"),
    [
        (item(), 1.0, True),
        (item(work=3.0), 1.0, False),
        (item(work=2.0), 1.0, True),
        (item("tests/spark/test_x.py", "spark"), 1.0, False),
        (item(), 4.0, False),
    ],
)
def test_a_unit_test_may_work_for_a_second_of_a_free_processor(
    test: Any, slowness: float, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: Iterator[float] = iter([10.0, 12.5, 20.0, 22.5])
    monkeypatch.setattr(kinds, "slowness", lambda: slowness)
    running = Budget(clock=lambda: next(times)).pytest_runtest_call(test)
    next(running)
    if is_late:
        with pytest.raises(pytest.fail.Exception, match=r"works for 2.5 s and may for"):
            next(running)
    else:
        with pytest.raises(StopIteration):
            next(running)
    assert dict(test.user_properties)["work"] == 2.5


def raises() -> None:
    raise FileExistsError


@pytest.mark.parametrize(("again", "is_late"), [(lambda: None, False), (raises, True)])
def test_a_unit_test_is_late_where_it_is_so_twice(
    again: Any, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: Iterator[float] = iter([10.0, 12.5, 20.0, 20.5])
    monkeypatch.setattr(kinds, "slowness", lambda: 1.0)
    test = item()
    test.runtest = again
    running = Budget(clock=lambda: next(times)).pytest_runtest_call(test)
    next(running)
    with pytest.raises(pytest.fail.Exception if is_late else StopIteration):
        next(running)


def test_a_share_has_a_case_of_each_test_and_the_parts_have_all() -> None:
    cases = {"wide": 300, "narrow": 2, "pair": 3}
    tests = [f"tests/queries/test_x.py::{name}[{n}]" for name, most in cases.items() for n in range(most)]
    tests.append("tests/queries/test_x.py::alone")

    def run(share: int, part: int = 0) -> list[str]:
        items = [item(test) for test in tests]
        config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
        Budget(share, part).pytest_collection_modifyitems(config, items)
        return [each.nodeid for each in items]

    assert run(1) == tests
    parts = [run(3, part) for part in range(7, 10)]
    assert [len(part) for part in parts] == [100 + 1 + 1 + 1] * 3
    assert set().union(*parts) == set(tests)
    assert all(
        {test.partition("[")[0] for test in part} == {test.partition("[")[0] for test in tests}
        for part in parts
    )
    assert run(3) == run(3)


def test_parts_that_follow_each_other_run_all_files_and_then_other_cases() -> None:
    tests = [f"tests/queries/test_{name}.py::run[{n}]" for name in "abcde" for n in range(4)]

    def run(files: int, share: int, part: int) -> list[str]:
        items = [item(test) for test in tests]
        config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
        Budget(share, part, files).pytest_collection_modifyitems(config, items)
        return [each.nodeid for each in items]

    def files_in(part: list[str]) -> set[str]:
        return {test.partition("::")[0] for test in part}

    once = [run(3, 2, part) for part in range(6, 9)]
    assert [len(files_in(part)) for part in once] == [2, 2, 1]
    assert len(set().union(*map(files_in, once))) == 5
    assert sum(map(len, once)) == len(tests) / 2
    assert set().union(*once, *(run(3, 2, part) for part in range(9, 12))) == set(tests)
    assert len(files_in(run(9, 1, 7))) == 1
