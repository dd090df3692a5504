"""Options as data: key, type, default, meaning, and where each may stand; and what values each type takes.

Validation, nearest-name help, DESCRIBE and the reference in ``docs/options`` are all made from tables of
options: ``lookup_options``, ``stream_options`` and, for connectors, their ``OPTIONS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import time
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from lookup_hints.errors import OptionError, Problem, did_you_mean


@dataclass(frozen=True)
class OptionType:
    """A named set of values and how one is read from text; ``parse`` raises ValueError.

    Args:
        name: what it is called in the reference.
        parse: reads a value.
        values: those that can be listed.
    """

    name: str
    parse: Callable[[str], Any] = field(compare=False)
    values: tuple[str, ...] = field(default=(), compare=False)


_DURATION = re.compile(r"\s*(-?\d+)\s*([^\d\s]*)\s*", re.UNICODE)
_UNITS: dict[str, float] = {
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
}


def _parse_duration(text: str, least: float = 1e-3) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("write a whole number and a unit, as in '10s', '500 ms', '3 min' or '1 h'")
    unit = match[2].lower()
    if unit not in _UNITS:
        tip = "; write 'min' for minutes" if unit == "m" else ""
        raise ValueError(f"{match[2]!r} is not a unit; use d, h, min, s, ms, µs or ns{tip}")
    seconds = int(match[1]) * _UNITS[unit]
    if seconds < least:
        raise ValueError("it must be at least 1 ms" if least else "it must not be negative")
    return seconds


_SIZE = re.compile(r"\s*(\d{1,18})\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS: dict[str, int] = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib"), 1024),
    **dict.fromkeys(("m", "mb", "mib"), 1024**2),
    **dict.fromkeys(("g", "gb", "gib"), 1024**3),
}


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("write a whole number and a unit, as in '256 mb', '64 kb' or '1 gb'")
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()]
    if size < 1:
        raise ValueError("it must be at least 1 byte")
    return size


def _parse_amount(text: str) -> Decimal:
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError("write an amount, as in '0.005'") from None
    if not amount.is_finite() or amount < 0:
        raise ValueError("it must be a finite amount of at least 0")
    return amount


def _parse_boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("write true or false")
    return value


def integer(minimum: int, maximum: int = 2**31 - 1) -> OptionType:
    """Whole numbers from ``minimum`` to ``maximum``."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text):
            raise ValueError("write a whole number")
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"it must be between {minimum} and {maximum}")
        return value

    return OptionType(f"integer >= {minimum}", parse)


def number(minimum: float, maximum: float | None = None) -> OptionType:
    """Numbers from ``minimum`` to ``maximum``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("write a number") from None
        if not value >= minimum or (maximum is not None and value > maximum):
            upper = "" if maximum is None else f" and at most {maximum:g}"
            raise ValueError(f"it must be at least {minimum:g}{upper}")
        return value

    return OptionType(f"number >= {minimum:g}", parse)


def choice(*values: str) -> OptionType:
    """One of ``values``, ignoring case and taking ``-`` for ``_``."""

    def parse(text: str) -> str:
        value = normal_value(text)
        if value not in values:
            raise ValueError(_one_of(", ".join(values), text, values))
        return value

    return OptionType(" | ".join(values), parse, values)


def _one_of(listed: str, given: str, values: Sequence[str]) -> str:
    return f"it must be one of {listed}. {did_you_mean(given, values)}".rstrip(". ")


def spelled(**values: Sequence[str]) -> OptionType:
    """One of ``values``, each with its other spellings; case is ignored, ``_`` stands for ``-``.

    Keyword arguments take no dash, so ``fixed_delay=...`` is the value ``fixed-delay``.
    """
    names = {name.replace("_", "-"): others for name, others in values.items()}
    spellings = {spelling: name for name, others in names.items() for spelling in (name, *others)}

    def parse(text: str) -> str:
        value = text.strip().lower().replace("_", "-")
        if value not in spellings:
            raise ValueError(_one_of(", ".join(names), value, list(names)))
        return spellings[value]

    return OptionType(" | ".join(names), parse, tuple(names))


Trigger = tuple[str, str | bool]
"""When a streaming query runs: keyword and value for ``DataStreamWriter.trigger``."""

_TRIGGERS = {
    "processing-time": "processingTime",
    "available-now": "availableNow",
    "once": "once",
    "real-time": "realTime",
    "continuous": "continuous",
}
_WITHOUT_TIME = ("available-now", "once")


def _parse_trigger(text: str) -> Trigger:
    match = re.fullmatch(r"([a-z]+(?:[-_ ][a-z]+)?)\s*(.*)", text.strip().lower())
    kind = match[1].replace("_", "-").replace(" ", "-") if match else text
    if match is None or kind not in _TRIGGERS:
        raise ValueError(_one_of(TRIGGER.name, kind, list(_TRIGGERS)))
    if kind in _WITHOUT_TIME:
        if match[2]:
            raise ValueError(f"{kind} takes no time")
        return _TRIGGERS[kind], True
    if not match[2]:
        raise ValueError(f"{kind} needs a time, as in '{kind} 10s'")
    seconds = _parse_duration(match[2], 0.0 if kind == "processing-time" else 1e-3)
    return _TRIGGERS[kind], f"{round(seconds * 1000)} milliseconds"


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(normal_value(name) for name in text.split(","))
    if "" in names:
        raise ValueError("write names separated by commas")
    return names


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text


def _parse_column(text: str) -> str:
    part = r"(?:\w+|`(?:[^`]|``)+`)"
    if not re.fullmatch(rf"{part}(?:\.{part})*", text.strip()):
        raise ValueError("write the name of a column, as in 'o.ordered'")
    return text.strip()


def _parse_label(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise ValueError("write letters, digits, '-', '_' and '.'")
    return text


_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "hdfs": "hdfs"}
_HOW_FOLDER = (
    "write an absolute path, or an address that begins with file:///, s3://, s3a://, gs:// or hdfs://"
)


def _parse_folder(text: str) -> str:
    """An absolute path, or an address as pyarrow spells it."""
    address = urlsplit(text.strip())
    if address.scheme in ("", "file"):
        path = unquote(address.path) if address.scheme else text.strip()
        if not path.startswith("/") or address.netloc:
            raise ValueError(_HOW_FOLDER)
        return path.rstrip("/") or "/"
    if address.scheme not in _SCHEMES or not address.netloc:
        raise ValueError(_HOW_FOLDER)
    if address.password is not None:
        raise ValueError("it must hold no password, as plans show it; give the machines their own rights")
    return address._replace(scheme=_SCHEMES[address.scheme], path=address.path.rstrip("/")).geturl()


def normal_value(text: str) -> str:
    """The normal form of an enumerated value: case is ignored, ``-`` and ``_`` are the same."""
    return text.strip().lower().replace("-", "_")


def _time_of_day(text: str) -> time:
    try:
        return time.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
    except ValueError:
        raise ValueError("write a time of day, as in '10:15', '10:15Z' or '10:15+07:00'") from None


BOOLEAN = OptionType("boolean", _parse_boolean, ("true", "false"))
AMOUNT = OptionType("amount", _parse_amount)
"""An exact decimal number, such as a price."""
DURATION = OptionType("duration", _parse_duration)
SIZE = OptionType("size", _parse_size)
DURATION_OR_ZERO = OptionType("duration", lambda text: _parse_duration(text, 0.0))
TRIGGER = OptionType(
    "processing-time <duration> | available-now | once | real-time <duration> | continuous <duration>",
    _parse_trigger,
    tuple(_TRIGGERS),
)
TIME_OF_DAY = OptionType("ISO time", _time_of_day)
TEXT = OptionType("text", _parse_text)
LABEL = OptionType("name", _parse_label)
COLUMN = OptionType("column", _parse_column)
"""A column of the statement, maybe behind the name of its relation."""
FILE = OptionType("file", _parse_text)
"""The path of a file on the machine that connects; `lookup.security.allowed-references` counts for it."""
FOLDER = OptionType("folder", _parse_folder)
"""A folder that is written to: an absolute path, or an address that begins with ``s3://`` or the like."""
NAMES = OptionType("names, comma-separated", _parse_names)


class Place(Enum):
    """The places where an option may be given; the place nearest to the statement wins."""

    HINT = "hint"
    TABLE = "table"
    INSERT = "insert"
    SESSION = "session"

    __hash__ = object.__hash__  # a member is equal to itself alone; Enum's own hash is slow


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
        field: the field of a lookup's settings that takes the value as it is, as ``PartialCache.max_rows``;
            empty where no field does, or one is computed from it.
        python_name: what it is called as an argument of functions, where that differs.
        required: whether it must be given.
        secret: whether its value is never shown.
        may_call: whether it takes ``${call:}``: its connector reads it again when it opens a connection.
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
    field: str = ""
    python_name: str = ""
    required: bool = False
    secret: bool = False
    may_call: bool = False
    family: str = ""

    @property
    def argument(self) -> str:
        """Its name as an argument of functions."""
        return self.python_name or self.key.replace("-", "_").replace(".", "_")

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
        return f"{self.meaning} *({', '.join(self.marks)})*" if self.marks else self.meaning

    @property
    def marks(self) -> list[str]:
        """What is special about it, in Markdown."""
        could = {"required": self.required, "secret": self.secret, "takes `${call:}`": self.may_call}
        return [mark for mark, is_set in could.items() if is_set]

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
        own = option.key_in(Place.TABLE)
        found: dict[str, Any] = {}
        for key in filter(option.is_named, given) if option.family else given.keys() & {own}:
            try:
                found[key] = option.type.parse(given[key])
            except ValueError as error:
                problems.append(bad_value(option, key, given[key], error, owner=f"{owner}: "))
        if option.family:
            values[option.key] = {key[len(option.key) :]: value for key, value in found.items()}
            continue
        values[option.key] = found.get(own, option.default)
        if option.required and own not in given:
            problems.append(Problem(f"{owner}: the option {own!r} is missing.", tip=option.meaning))
    if problems:
        raise OptionError(problems)
    return values


def parsed(option: Option, key: str, text: str, *, owner: str) -> Any:
    """The typed value of ``text``, which stands under ``key``; an OptionError says whose it is."""
    try:
        return option.type.parse(text)
    except ValueError as error:
        raise OptionError(bad_value(option, key, text, error, owner=owner)) from None


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
    """A value and the place it comes from; None for the option's default."""

    value: Any
    source: Place | None = None


# The one place that decides which value counts: for lookups, for the session's own options and for streams.
# (docs/decisions/0131)
def in_force(option: Option, conf: Conf, given: Mapping[Place, Mapping[str, Any]] = {}) -> InForce:
    """The value in force: the one of the place nearest to the statement.

    Args:
        option: the option.
        conf: the session, which is used if no nearer place gives a value.
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
