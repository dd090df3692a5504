"""What each statement becomes, or why it is refused, as pairs of SQL text."""

from __future__ import annotations

import pytest

from lookup_hints.errors import LookupHintsError
from tests.unit.plan.golden import GoldenCase, golden_cases
from tests.unit.plan.planning import planned

CASES = golden_cases()


def trimmed(sql: str) -> str:
    return "\n".join(line.rstrip() for line in sql.strip().splitlines())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_statement(case: GoldenCase) -> None:
    if case.refused:
        with pytest.raises(LookupHintsError) as caught:
            planned(case.text)
        assert str(caught.value) == case.expected
    else:
        assert trimmed(planned(case.text).sql) == trimmed(case.expected)


def test_there_are_cases() -> None:
    assert len(CASES) > 60
    assert len({str(case) for case in CASES}) == len(CASES), "titles name the tests"
