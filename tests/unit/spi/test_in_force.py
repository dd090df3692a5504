"""The value of an option that is in force: the nearest place wins."""

from __future__ import annotations

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.option_values import InForce, Place, in_force

CAPACITY = next(option for option in LOOKUP_OPTIONS if option.key == "capacity")
ON_ERROR = next(option for option in LOOKUP_OPTIONS if option.key == "on-error")
SESSION = {"table.exec.async-lookup.buffer-capacity": "4", "on-error": "skip"}


def test_the_nearest_place_that_gives_a_value_wins() -> None:
    nearer = {Place.TABLE: {"capacity": 3}, Place.HINT: {"capacity": 2}}
    assert in_force(CAPACITY, SESSION.get, nearer) == InForce(2, Place.HINT)
    assert in_force(CAPACITY, SESSION.get, {**nearer, Place.HINT: {}}) == InForce(3, Place.TABLE)
    assert in_force(CAPACITY, SESSION.get) == InForce(4, Place.SESSION)
    assert in_force(CAPACITY, lambda _: None) == InForce(100)


def test_the_session_gives_only_what_may_stand_there() -> None:
    assert in_force(ON_ERROR, SESSION.get) == InForce("fail")


def test_the_session_is_read_with_the_prefix_of_spark_too() -> None:
    conf = {f"spark.{key}": value for key, value in SESSION.items()}
    assert in_force(CAPACITY, conf.get).value == 4


def test_a_value_of_the_session_that_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match=r"session: .*buffer-capacity' cannot be 'x'"):
        in_force(CAPACITY, {"table.exec.async-lookup.buffer-capacity": "x"}.get)
