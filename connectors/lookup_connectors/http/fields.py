"""Headers that list members with parameters: ``Link``, ``RateLimit``, ``Content-Type``. By their grammar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin

_BLANKS = re.compile(r"[ \t]*")
_URL = re.compile(r"<([^>]*)>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_IN_ONE_QUOTE = re.compile(r"'([^']*)'(?=[ \t]*(?:[;,]|$))")
"""Not of the grammar, but sent: ``rel='next'``."""
_TOKEN = re.compile(r"[^;,\"]*")
_NAME = re.compile(r"[^=;,\"]*")


class Member(NamedTuple):
    """One member of a list.

    Args:
        value: what it is; a URL stands in ``<`` and ``>``.
        parameters: by name in lower case; of a name that comes twice the first one counts (RFC 8288).
    """

    value: str
    parameters: Mapping[str, str]


def members(text: str) -> list[Member]:
    """The members that the value ``text`` of a header lists.

    Raises:
        ValueError: it cannot be read.

    >>> members('<a,b>; title="x, y"; REL=next, <c>')
    [Member(value='<a,b>', parameters={'title': 'x, y', 'rel': 'next'}), Member(value='<c>', parameters={})]
    """
    found: list[Member] = []
    at = 0
    while (at := _after_blanks(text, at)) < len(text):
        if text[at] == ",":
            at += 1
            continue
        url = _URL.match(text, at)
        value, at = (url[0], url.end()) if url else _value(text, at)
        parameters: dict[str, str] = {}
        while (at := _after_blanks(text, at)) < len(text) and text[at] == ";":
            name, given, at = _parameter(text, _after_blanks(text, at + 1))
            parameters.setdefault(name, given)
        if at < len(text) and text[at] != ",":
            raise ValueError(f"{text[at : at + 20]!r} is where a comma or semicolon should be")
        found.append(Member(value, parameters))
    return found


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _parameter(text: str, at: int) -> tuple[str, str, int]:
    match = _NAME.match(text, at)
    assert match is not None
    name, at = match[0].strip().lower(), match.end()
    if at < len(text) and text[at] == "=":
        return name, *_value(text, _after_blanks(text, at + 1))
    return name, "", at


def _value(text: str, at: int) -> tuple[str, int]:
    quoted = _QUOTED.match(text, at)
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1]), quoted.end()
    match = _IN_ONE_QUOTE.match(text, at)
    if match:
        return match[1], match.end()
    match = _TOKEN.match(text, at)
    assert match is not None
    return match[0].strip(), match.end()


def next_link(header: str, base: str) -> str | None:
    """The first URL of a next page in the header ``Link`` of an answer from ``base`` (RFC 8288).

    Raises:
        ValueError: the header cannot be read.
    """
    for value, parameters in members(header):
        if not (value.startswith("<") and value.endswith(">")):
            raise ValueError(f"{value[:20]!r} is no URL in < and >")
        is_next = "next" in parameters.get("rel", "").lower().split()
        # A link with an anchor begins at another document, or at a part of this one.
        if is_next and urljoin(base, parameters.get("anchor", "")) == base:
            return value[1:-1].strip()
    return None
