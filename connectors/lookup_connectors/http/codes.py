"""Lists of status codes: ``2XX,!203`` is every code from 200 to 299 but 203."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lookup_hints.spi import OptionType

_CODE = re.compile(r"!?[1-5](\d\d|[xX]{2})")


@dataclass(frozen=True)
class Codes:
    """A set of status codes, and how it was written."""

    text: str
    statuses: frozenset[int]

    def __str__(self) -> str:
        return self.text

    def __contains__(self, status: int) -> bool:
        return status in self.statuses


def _codes(text: str) -> Codes:
    given = [code.strip().upper() for code in text.split(",")]
    for code in given:
        if not _CODE.fullmatch(code):
            raise ValueError(f"{code!r} is not a status code; write 404, 5XX or !501, separated by commas")
    # What is excluded counts more, wherever it stands.
    included = {status for code in given if not code.startswith("!") for status in _statuses(code)}
    excluded = {status for code in given if code.startswith("!") for status in _statuses(code[1:])}
    return Codes(",".join(given), frozenset(included - excluded))


def _statuses(code: str) -> range:
    first = int(code.replace("X", "0"))
    return range(first, first + 100) if code.endswith("XX") else range(first, first + 1)


CODES = OptionType("status codes", _codes)


def codes(text: str) -> Codes:
    """The codes that ``text`` lists; for defaults."""
    return _codes(text)
