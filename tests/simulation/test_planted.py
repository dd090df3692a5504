"""Seeds find planted bugs, and each of these bugs can still be planted."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.simulation.planted import BUGS, PlantedBug, bugs_named, planted, search
from tests.simulation.seams import simulated


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    with simulated():
        yield


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_planted_in_its_function_for_the_time_of_a_block(bug: PlantedBug) -> None:
    function = bug.function_in_product()
    before = function.__code__
    with planted(bug):
        assert function.__code__ != before
        assert function.__code__.co_filename == inspect.getfile(function)
    assert function.__code__ is before


@pytest.mark.parametrize("name", ["rate-counts-from-now", "limits-begin-anew", "rows-before-their-answer"])
def test_a_seed_finds_a_planted_bug_and_holds_without_it(name: str) -> None:
    (bug,) = bugs_named(name)
    found = search(bug, range(100))
    assert found is not None
    _, words = found
    assert words.startswith("Broken: ")


def test_a_bug_whose_text_is_gone_is_an_error() -> None:
    gone = PlantedBug("gone", "nothing", "retry:ExponentialDelay.can_retry", "attempt <= self.most", "")
    with (
        pytest.raises(LookupError, match=r"planted bug gone: .* 0 times, and should have it once"),
        planted(gone),
    ):
        pass
