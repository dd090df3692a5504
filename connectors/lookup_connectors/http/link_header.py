"""Lists in headers: ``Link`` and its like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin

# One quote is not of the grammar, but sent: rel='next'.
_VALUE = r"""[ \t]*(<[^>]*>|"(?:[^"\\]|\\.)*"|'[^']*'(?=[ \t]*(?:[;,]|$))|[^;,"]*)[ \t]*"""
_MEMBER = re.compile(_VALUE)
_PARAMETER = re.compile(rf';[ \t]*([^=;,"]*)(?:={_VALUE})?')


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

    >>> members('<a,b>; title="x, y"; REL=next, <c>')
    [Member(value='<a,b>', parameters={'title': 'x, y', 'rel': 'next'}), Member(value='<c>', parameters={})]
    """
    found: list[Member] = []
    at = 0
    while at < len(text):
        match = _MEMBER.match(text, at)
        assert match is not None
        at = match.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(text, at):
            at = parameter.end()
            parameters.setdefault(parameter[1].strip().lower(), _unquoted(parameter[2] or ""))
        if at < len(text) and text[at] != ",":
            raise ValueError(f"{text[at : at + 20]!r} is where a comma or semicolon should be")
        at += 1
        if match[1] or parameters:
            found.append(Member(_unquoted(match[1]), parameters))
    return found


def _unquoted(text: str) -> str:
    if text[:1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text.strip()


def next_link(header: str, base: str) -> str | None:
    """The first URL of a next page in the header ``Link`` of an answer from ``base`` (RFC 8288)."""
    for value, parameters in members(header):
        if not (value.startswith("<") and value.endswith(">")):
            raise ValueError(f"{value[:20]!r} is no URL in < and >")
        is_next = "next" in parameters.get("rel", "").lower().split()
        # A link with an anchor begins at another document, or at a part of this one.
        if is_next and urljoin(base, parameters.get("anchor", "")) == base:
            return value[1:-1].strip()
    return None
