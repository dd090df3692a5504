"""Options as data: key, type, default, meaning, and where each may stand.

Validation, nearest-name help, DESCRIBE and the reference in ``docs/options.md`` are all made from tables of
options: ``lookup_options``, ``streaming/options`` and, for connectors, their ``OPTIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi.option_types import OptionType


class Place(Enum):
    """Where an option may be given; what is nearer to the statement beats what is further away."""

    HINT = "hint"
    TABLE = "table"
    INSERT = "insert"
    SESSION = "session"


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        key: its name in a hint or a ``WITH`` clause; that of a family ends with a dot (``header.``).
        type: what values it takes.
        meaning: one sentence for the reference.
        default: the value in force when it is given nowhere; None when there is none.
        places: where it may stand.
        table_key: its name in ``WITH`` where that differs.
        session_key: its name in ``SET`` (also accepted with the prefix ``spark.``).
        insert_key: its name in the ``WITH`` of a streaming INSERT.
        session_aliases: other names that it has in ``SET``.
        required: whether it must be given.
        secret: whether its value is never shown.
        family: what follows the dot where one option stands for many (``header.<name>``); its value is
            then a dictionary by what follows.
    """

    key: str
    type: OptionType
    meaning: str
    default: Any = None
    places: frozenset[Place] = frozenset({Place.TABLE})
    table_key: str = ""
    session_key: str = ""
    insert_key: str = ""
    session_aliases: tuple[str, ...] = ()
    required: bool = False
    secret: bool = False
    family: str = ""

    @property
    def shown_key(self) -> str:
        """Its name for a reader."""
        return f"{self.key}<{self.family}>" if self.family else self.key

    @property
    def shown_type(self) -> str:
        """The values that it takes, for a reader, in Markdown."""
        return self.type.name.replace("|", "or").replace("<duration>", "*duration*")

    @property
    def shown_default(self) -> str:
        """Its default for a reader, in Markdown; empty where there is none."""
        if self.default is None:
            return ""
        if self.type.name == "status codes":
            return f"`{self.default}`"
        if self.type.name == "duration":
            return f"`{self.default:g} s`"
        return f"`{str(self.default).lower()}`"

    @property
    def shown_meaning(self) -> str:
        """What it does, and whether it must be given and is hidden, in Markdown."""
        marks = [mark for mark, is_set in (("required", self.required), ("secret", self.secret)) if is_set]
        return f"{self.meaning} *({', '.join(marks)})*" if marks else self.meaning

    def is_named(self, key: str) -> bool:
        """Whether ``key`` of a ``WITH`` clause is this option, or one of this family."""
        own = self.key_in(Place.TABLE)
        return key.startswith(own) and key != own if self.family else key == own

    def key_in(self, place: Place) -> str:
        """The name that the option has at ``place``."""
        own = ""
        if place is Place.TABLE:
            own = self.table_key
        elif place is Place.SESSION:
            own = self.session_key
        elif place is Place.INSERT:
            own = self.insert_key
        return own or self.key

    @cached_property
    def session_keys(self) -> tuple[str, ...]:
        """Its names in ``SET``; the first that is set counts."""
        names = (self.key_in(Place.SESSION), *self.session_aliases)
        return (*names, *(f"spark.{name}" for name in names))


def hidden_keys(given: Iterable[str], options: Sequence[Option]) -> set[str]:
    """Those of the keys ``given`` in a ``WITH`` clause whose values are never shown."""
    return {key for key in given if any(option.secret and option.is_named(key) for option in options)}


def options_at(place: Place, options: Sequence[Option]) -> dict[str, Option]:
    """The options that may stand at ``place``, by the name they have there."""
    return {option.key_in(place): option for option in options if place in option.places}


def read_options(given: Mapping[str, str], options: Sequence[Option], *, owner: str) -> dict[str, Any]:
    """The typed value of each option of ``options``, defaults included; keys of others are left out.

    Raises:
        OptionError: all bad values and missing required options at once; ``owner`` says whose they are.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for option in options:
        key = option.key_in(Place.TABLE)
        if option.family:
            values[option.key], wrong = _read_family(given, option, owner)
            problems += wrong
            continue
        text = given.get(key)
        if text is None:
            if option.required:
                problems.append(Problem(f"{owner}: the option {key!r} is missing.", tip=option.meaning))
            values[option.key] = option.default
            continue
        try:
            values[option.key] = option.type.parse(text)
        except ValueError as error:
            problems.append(bad_value(option, key, text, error, owner=f"{owner}: "))
    if problems:
        raise OptionError(problems)
    return values


def parsed(option: Option, key: str, text: str, *, owner: str) -> Any:
    """The typed value of ``text``, which stands under ``key``; an OptionError says whose it is."""
    try:
        return option.type.parse(text)
    except ValueError as error:
        raise OptionError(bad_value(option, key, text, error, owner=owner)) from None


def _read_family(
    given: Mapping[str, str], option: Option, owner: str
) -> tuple[dict[str, Any], list[Problem]]:
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key in filter(option.is_named, given):
        try:
            values[key[len(option.key) :]] = option.type.parse(given[key])
        except ValueError as error:
            problems.append(bad_value(option, key, given[key], error, owner=f"{owner}: "))
    return values, problems


def bad_value(option: Option, key: str, text: str, error: ValueError, *, owner: str = "") -> Problem:
    """The problem of a value that ``option`` cannot have; the value is shown unless it is secret."""
    shown = "the value given" if option.secret else repr(text)
    why = str(error)
    return Problem(f"{owner}{key!r} cannot be {shown}: {why}{'' if why.endswith(('.', '?')) else '.'}")


_NEAREST_FIRST = tuple(Place)

Conf = Callable[[str], str | None]
"""The value of a key of the session's configuration, or None."""


@dataclass(frozen=True)
class InForce:
    """A value, and the place that gives it; None where that is the option's default."""

    value: Any
    source: Place | None = None


def in_force(option: Option, conf: Conf, given: Mapping[Place, Mapping[str, Any]] = {}) -> InForce:
    """The value that the place nearest to the statement gives ``option``.

    Args:
        option: what is asked for.
        conf: the session, which counts where nothing nearer gives a value.
        given: the typed values that nearer places give, by the keys of options.

    Raises:
        OptionError: the session gives a value that the option cannot have.
    """
    places = [place for place, values in given.items() if option.key in values]
    if places:
        nearest = min(places, key=_NEAREST_FIRST.index)
        return InForce(given[nearest][option.key], nearest)
    if Place.SESSION in option.places:
        for key in option.session_keys:
            text = conf(key)
            if text is not None:
                return InForce(parsed(option, key, text, owner="session: "), Place.SESSION)
    return InForce(option.default)
