"""Templates that name columns (``https://api/x/{id}``), and what they become for given keys.

A value is always encoded for its place: a slash in a key never ends a path segment, a quote never ends a
JSON text. Literal text is the author's and stays as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import quote

Key = Mapping[str, Any]
"""The values of the columns asked by."""

Resolve = Callable[[str], str]
"""Text with references to secrets -> the text itself."""

_PLACEHOLDER = re.compile(r"\{(\{\w+\})\}|\{([^\W\d]\w*)\}")
_DOT_SEGMENTS = ("", ".", "..")


class Unaskable(Exception):
    """A key that no request can be made for: nothing can be found under it."""


@dataclass(frozen=True)
class Hole:
    """A place for the value of a column."""

    column: str


@dataclass(frozen=True)
class Template:
    """Text with holes."""

    parts: tuple[str | Hole, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(part.column for part in self.parts if isinstance(part, Hole))

    @property
    def sole_column(self) -> str | None:
        """The column whose hole is all there is."""
        [part, *others] = self.parts or ("",)
        return part.column if isinstance(part, Hole) and not others else None

    def filled(self, fill: Callable[[str], str]) -> str:
        """The text, with what ``fill`` makes of each column."""
        return "".join([part if isinstance(part, str) else fill(part.column) for part in self.parts])

    def resolved(self, resolve: Resolve) -> Template:
        """The same, with references to secrets resolved; what a secret holds is never a hole."""
        return Template(tuple(part if isinstance(part, Hole) else resolve(part) for part in self.parts))


def parse_template(text: str, columns: Sequence[str]) -> Template:
    """The template that ``text`` spells: ``{name}`` is a hole, ``{{name}}`` is the text ``{name}``.

    Raises:
        ValueError: a hole names no column, or is written ``${name}``.
    """
    parts: list[str | Hole] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        if match.start() and text[match.start() - 1] == "$" and match[2]:
            raise ValueError(f"write {match[0]} without the dollar sign")
        parts.append(text[end : match.start()])
        parts.append(match[1] or Hole(_column(match[2], columns)))
        end = match.end()
    parts.append(text[end:])
    return Template(tuple(part for part in parts if part != ""))


def _column(name: str, columns: Sequence[str]) -> str:
    found = (
        name if name in columns else next((each for each in columns if each.lower() == name.lower()), None)
    )
    if found is None:
        raise ValueError(f"there is no column {name!r}")
    return found


# --- values ---------------------------------------------------------------------------------------


def spelled(value: Any) -> str:
    """A key as text: ISO dates, moments in UTC, exact numbers."""
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        in_utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return in_utc.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _as_json(value: Any) -> Any:
    """A key as a JSON value; what JSON has no exact number for is text."""
    if isinstance(value, float) and not math.isfinite(value):
        return spelled(value)
    return value if isinstance(value, bool | int | float | str) else spelled(value)


# --- places in a request --------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """The keys of one request, and the columns whose values differ among them."""

    keys: Sequence[Key]
    lists: frozenset[str] = frozenset()

    def values(self, column: str) -> Sequence[Any]:
        """The values of ``column``; empty where it is not asked by."""
        if column not in self.keys[0]:
            return ()
        return [key[column] for key in (self.keys if self.is_list(column) else self.keys[:1])]

    def is_list(self, column: str) -> bool:
        """Whether ``column`` stands for many keys."""
        return column in self.lists


@dataclass(frozen=True)
class Address:
    """Scheme, host and path: plain text, and the segments of the path that have holes."""

    pieces: tuple[str | Template, ...]

    @classmethod
    def of(cls, template: Template) -> Address:
        """The address that ``template`` spells."""
        segments: list[list[str | Hole]] = [[]]
        for part in template.parts:
            if isinstance(part, Hole):
                segments[-1].append(part)
                continue
            first, *others = part.split("/")
            segments[-1].append(first)
            segments.extend([each] for each in others)
        pieces: list[str | Template] = []
        for number, segment in enumerate(segments):
            has_holes = any(isinstance(part, Hole) for part in segment)
            pieces.append("/" if number else "")
            pieces.append(Template(tuple(segment)) if has_holes else "".join(map(str, segment)))
        return cls(tuple(pieces))

    def text(self, keys: Keys) -> str:
        """The address for ``keys``.

        Raises:
            Unaskable: a segment would be empty, or climb: ``/x/..`` asks for something else.
        """
        return "".join([piece if isinstance(piece, str) else _segment(piece, keys) for piece in self.pieces])


def _segment(template: Template, keys: Keys) -> str:
    text = template.filled(partial(_in_segment, keys))
    if text in _DOT_SEGMENTS:
        raise Unaskable
    return text


def _in_segment(keys: Keys, column: str) -> str:
    if not keys.is_list(column):
        return quote(spelled(keys.keys[0][column]), safe="")
    texts = [spelled(value) for value in keys.values(column)]
    if any(text in _DOT_SEGMENTS for text in texts):
        raise Unaskable
    return ",".join([quote(text, safe="") for text in texts])


@dataclass(frozen=True)
class Query:
    """The parameters of a query string (or a form), each a name and a value."""

    parameters: tuple[tuple[Template, Template], ...]
    repeated: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(column for pair in self.parameters for each in pair for column in each.columns)

    def text(self, keys: Keys) -> str:
        """The query string for ``keys``, without parameters whose columns are not asked by."""
        return "&".join(part for pair in self.parameters for part in self._parts(*pair, keys))

    def _parts(self, name: Template, value: Template, keys: Keys) -> Iterator[str]:
        asked = [keys.values(column) for column in (*name.columns, *value.columns)]
        if not all(asked):
            return
        column = value.sole_column
        if self.repeated and column is not None and keys.is_list(column):
            for each in keys.values(column):
                yield f"{name.filled(str)}={quote(spelled(each), safe='')}"
            return

        def fill(column: str) -> str:
            values = keys.values(column)
            if isinstance(values[0], int):
                return ",".join(map(spelled, values))  # nothing in them to encode
            return ",".join([quote(spelled(each), safe="") for each in values])

        equals = "=" if value.parts else ""
        yield f"{name.filled(fill)}{equals}{value.filled(fill)}"

    def resolved(self, resolve: Resolve) -> Query:
        """The same, with references to secrets resolved, and encoded for a query."""

        def encoded(text: str) -> str:
            known = resolve(text)
            return text if known == text else quote(known, safe="&=%+,:;/?@!$'()*~-._")

        pairs = tuple((name.resolved(encoded), value.resolved(encoded)) for name, value in self.parameters)
        return Query(pairs, self.repeated)


def parse_query(text: str, columns: Sequence[str], *, repeated: bool) -> Query:
    """The parameters that ``text`` lists: ``a=1&ids={id}``."""
    pairs = (each.partition("=") for each in text.split("&") if each)
    return Query(
        tuple((parse_template(name, columns), parse_template(value, columns)) for name, _, value in pairs),
        repeated,
    )


def in_header(template: Template, keys: Keys) -> str:
    """The value of a header for ``keys``.

    Raises:
        Unaskable: a value holds what no header can.
    """
    text = template.filled(lambda column: ",".join(spelled(value) for value in keys.values(column)))
    if not text.isprintable() or not text.isascii():
        raise Unaskable
    return text


@dataclass(frozen=True)
class JsonBody:
    """A JSON document whose texts are templates.

    A text that is one hole and nothing else becomes the value itself: a number stays a number, and many
    keys are an array. An array whose only element names columns of many keys has one for each key.
    """

    document: Any

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(_columns_in(self.document))

    def text(self, keys: Keys) -> str:
        """The document for ``keys``, without members whose columns are not asked by."""
        return json.dumps(_filled(self.document, keys), ensure_ascii=False, separators=(",", ":"))

    def resolved(self, resolve: Resolve) -> JsonBody:
        """The same, with references to secrets resolved."""
        return JsonBody(_mapped(self.document, lambda template: template.resolved(resolve)))


def parse_json_body(text: str, columns: Sequence[str]) -> JsonBody:
    """The document that ``text`` spells.

    Raises:
        ValueError: it is no JSON, or a hole names no column.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    return JsonBody(_mapped(document, lambda leaf: parse_template(leaf, columns)))


def _mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """The document with each text (a template, once it is parsed) changed; names of members are left."""
    if isinstance(node, dict):
        return {name: _mapped(value, change) for name, value in node.items()}
    if isinstance(node, list):
        return [_mapped(value, change) for value in node]
    return change(node) if isinstance(node, str | Template) else node


def _columns_in(node: Any) -> Iterator[str]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _columns_in(child)
    if isinstance(node, Template):
        yield from node.columns


_LEFT_OUT = object()


def _filled(node: Any, keys: Keys) -> Any:
    if isinstance(node, Template):
        return _filled_text(node, keys)
    if isinstance(node, dict):
        filled = {name: _filled(value, keys) for name, value in node.items()}
        return {name: value for name, value in filled.items() if value is not _LEFT_OUT}
    if isinstance(node, list):
        if len(node) == 1 and any(keys.is_list(column) for column in _columns_in(node[0])):
            return [_filled(node[0], Keys([key])) for key in keys.keys]
        return [value for value in (_filled(each, keys) for each in node) if value is not _LEFT_OUT]
    return node


def _filled_text(template: Template, keys: Keys) -> Any:
    if not all(keys.values(column) for column in template.columns):
        return _LEFT_OUT
    column = template.sole_column
    if column is None:
        return template.filled(lambda name: ",".join(map(spelled, keys.values(name))))
    values = [_as_json(value) for value in keys.values(column)]
    return values if keys.is_list(column) else values[0]
