"""Options whose value a field of a lookup's settings takes as it is, and the arguments of Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from lookup_hints import LookupSession, async_wait
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, RETRY_KEYS
from lookup_hints.spi.option_values import Option, Place
from tests.unit.plan.planning import CUSTOMERS, context, planned

RETRY = {"retry-predicate": "lookup_miss", "max-attempts": "3"}
NEEDED = {
    "LookupSettings": {},
    "PartialCache": {"lookup.cache": "partial"},
    "FullCache": {"lookup.cache": "full", "lookup.full-cache.periodic-reload.interval": "1 h"},
    "DeadLetters": {"on-error": "dead-letter", "lookup.dead-letter.path": "/letters"},
    "FixedDelay": {**RETRY, "retry-strategy": "fixed_delay"},
    "ExponentialDelay": {**RETRY, "retry-strategy": "exponential_delay", "initial-backoff": "1 s"},
}
VALUES = {
    "duration": "7 s",
    "size": "3 mb",
    "folder": "/other",
    "parquet | json": "json",
    "integer >= 1": "3",
    "number >= 0": "0.5",
    "number >= 1": "3",
}
PLAIN = [option for option in LOOKUP_OPTIONS if option.field]


def settings_of(**options: str) -> Any:
    table = replace(CUSTOMERS, options={**CUSTOMERS.options, **options})
    plan = planned(
        "SELECT /*+ LOOKUP('table'='c') */ o.n, c.name FROM o JOIN customers c ON o.k = c.id",
        context(tables={"customers": table}),
    )
    return plan.joins[0].chosen.settings


def inside(value: Any) -> Iterator[Any]:
    """``value`` and all values in it."""
    yield value
    for each in fields(value) if is_dataclass(value) else ():
        yield from inside(getattr(value, each.name))


@pytest.mark.parametrize("option", PLAIN, ids=lambda option: option.key)
def test_a_plain_option_reaches_the_field_that_it_names(option: Option) -> None:
    owner, field = option.field.split(".")
    text = VALUES[option.type.name]
    settings = settings_of(**{**NEEDED[owner], option.key_in(Place.TABLE): text})
    (found,) = (each for each in inside(settings) if type(each).__name__ == owner)
    assert getattr(found, field) == option.type.parse(text) != option.default


def test_no_field_has_two_options() -> None:
    named = [option.field for option in PLAIN]
    assert len(set(named)) == len(named) > 10


# --- arguments of Python ----------------------------------------------------------------------------

ARGUMENTS = {
    option.argument: option
    for option in LOOKUP_OPTIONS
    if Place.HINT in option.places and not option.required and option.key not in RETRY_KEYS
}
FROM_TABLE_OR_SESSION = {"dead_letter_format", "dead_letter_then"}
OF_A_TABLE = {"asynchronous", "batch_size", "on_open", "access", "cache", "known_as_of"}
"""What means nothing for a function: it has no table, no connector and no requests for many keys."""


def type_of(option: Option) -> str:
    if option.argument == "ordered" or option.type.name == "boolean":
        return "bool | None"
    types = {
        "duration": "float | str | None",
        "integer": "int | None",
        "number": "float | None",
        "column": "str | Column | None",
    }
    return types.get(option.type.name.split()[0], "str | None")


@pytest.mark.parametrize(
    ("function", "without"),
    [
        (LookupSession.lookup_join, FROM_TABLE_OR_SESSION),
        (async_wait, FROM_TABLE_OR_SESSION | OF_A_TABLE),
    ],
    ids=["lookup_join", "async_wait"],
)
def test_each_option_of_a_hint_is_an_argument_with_its_type_and_a_text(
    function: Callable[..., Any], without: set[str]
) -> None:
    given = inspect.signature(function).parameters
    assert set(ARGUMENTS) & set(given) == set(ARGUMENTS) - without
    arguments = {name: given[name] for name in ARGUMENTS if name in given}
    assert {name: each.annotation for name, each in arguments.items()} == {
        name: type_of(ARGUMENTS[name]) for name in arguments
    }
    assert {(each.kind, each.default) for each in arguments.values()} == {
        (inspect.Parameter.KEYWORD_ONLY, None)
    }
    explained = re.findall(r"^    (\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    assert set(arguments) <= set(explained)
