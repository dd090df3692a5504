"""The value of an option that is in force, and the place that gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lookup_hints.spi.options import Option, Place, parsed

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
