"""The forms of a lookup join: each is one of ``plan/forms``, and has a pair among the golden cases."""

from __future__ import annotations

import importlib
import pkgutil
from inspect import isabstract
from typing import Any

import pytest

from lookup_hints.plan import forms
from lookup_hints.plan.joins import Form
from tests.unit.plan.golden import golden_cases
from tests.unit.plan.planning import planned


def kinds_of(form: type[Any]) -> set[type[Any]]:
    return {form}.union(*(kinds_of(each) for each in form.__subclasses__()))


def all_forms() -> set[type[Any]]:
    for module in pkgutil.iter_modules(forms.__path__, f"{forms.__name__}."):
        importlib.import_module(module.name)
    return {form for form in kinds_of(Form) if not isabstract(form)}


def test_each_form_is_in_the_folder_of_forms() -> None:
    assert {form for form in all_forms() if not form.__module__.startswith(f"{forms.__name__}.")} == set()


@pytest.mark.work(5)
def test_each_form_is_tried_and_has_a_golden_pair() -> None:
    plans = (planned(case.text) for case in golden_cases() if not case.refused)
    assert {type(join.form) for plan in plans for join in plan.joins} == all_forms()


def test_explain_calls_no_two_forms_alike() -> None:
    assert len({form.shown for form in all_forms()}) == len(all_forms())
