"""What ``'connector' = '...'`` may say, where it names a class by its module."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.tables.registry import connector_class

FORM = "Write 'module:Class', as in 'my_company.geo:GeoIp'."


@pytest.mark.parametrize(
    "name", [":x", "..a:x", "a:", ":", "a:b:c", "a b:c", "a.:x", "a:b.c", "a/b:c", "1a:x"]
)
def test_what_names_no_class_is_told_the_form(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        connector_class(name)
    assert str(caught.value) == f"Connector {name!r} does not name a class. {FORM}"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import os\nos.nope", "AttributeError: module 'os' has no attribute 'nope'"),
    ],
)
def test_a_module_that_fails_is_told_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, cause: str
) -> None:
    name = f"failing_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=f"to import {name} failed with {cause}"):
        connector_class(f"{name}:X")
