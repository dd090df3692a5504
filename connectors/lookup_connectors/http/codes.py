"""Lists of status codes: ``2XX,!203`` is every code from 200 to 299 but 203."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lookup_hints.spi import OptionType

_CODE = re.compile(r"!?[1-5](\d\d|[xX]{2})")


@dataclass(frozen=True)
class Codes:
    """A set of status codes; what it excludes counts more than what it includes."""

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join([*self.included, *(f"!{code}" for code in self.excluded)])

    def __contains__(self, status: int) -> bool:
        return _matches(status, self.included) and not _matches(status, self.excluded)


def _matches(status: int, codes: tuple[str, ...]) -> bool:
    text = str(status)
    return text in codes or f"{text[0]}XX" in codes


def _codes(text: str) -> Codes:
    given = [code.strip().upper() for code in text.split(",")]
    for code in given:
        if not _CODE.fullmatch(code):
            raise ValueError(f"{code!r} is no status code; write 404, 5XX or !501, separated by commas")
    included = tuple(code for code in given if not code.startswith("!"))
    return Codes(included, tuple(code[1:] for code in given if code.startswith("!")))


CODES = OptionType("status codes", _codes)


def codes(text: str) -> Codes:
    """The codes that ``text`` lists; for defaults."""
    return _codes(text)
