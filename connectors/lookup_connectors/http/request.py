"""Requests, and the templates that make one for given keys.

A value is always encoded for its place: a slash in a key never ends a path segment, a quote never ends a
JSON text. Literal text is the author's and stays as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import groupby, repeat
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from lookup_connectors.shared.key_templates import (
    Hole,
    Resolve,
    Template,
    TemplateError,
    parse_template,
    spelled,
)


@dataclass(frozen=True)
class Private:
    """The parts of a request for one origin only.

    Args:
        headers: names of headers, in lower case.
        body: whether the body is private.
    """

    headers: frozenset[str] = frozenset()
    body: bool = False


class Request(NamedTuple):
    """One HTTP request: a named tuple, as a frozen dataclass takes four times as long to make.

    Args:
        method: GET or POST.
        url: absolute, with its query, all of it encoded.
        headers: by name; without credentials, which are added for each attempt.
        body: its body, if any.
        private: the parts that no other origin may see.
    """

    method: str
    url: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None
    private: Private = Private()

    def __repr__(self) -> str:
        return f"Request({self.method} to {self.origin})"  # the rest may hold secrets

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return origin_of(self.url)

    def with_headers(self, more: Mapping[str, str]) -> Request:
        """The same request with ``more`` headers, those apart that it has itself."""
        if not more:
            return self
        own = {name.lower() for name in self.headers}
        added = {name: value for name, value in more.items() if name.lower() not in own}
        return self._replace(headers={**self.headers, **added})


PORTS = {"http": 80, "https": 443}
AUTHORITY = re.compile(r"[a-zA-Z]+://[^/?#]*")


def origin_of(url: str) -> str:
    """Scheme, host and port of ``url``, in one spelling.

    Raises:
        ValueError: it is not an absolute HTTP URL.
    """
    authority = AUTHORITY.match(url)
    return _origin_of_url(url if authority is None else authority[0])


@lru_cache(256)  # called for every request, with few different URLs
def _origin_of_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("write an absolute URL: https://host/path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or PORTS[parts.scheme]}"


def host_and_port(url: str) -> tuple[str, int | None]:
    """Whom ``url`` leads to: an API, a proxy.

    Raises:
        ValueError: its port is none.
    """
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme)


Key = Mapping[str, Any]
"""The values of the key columns."""

_DOT_SEGMENTS = ("", ".", "..")


class Unaskable(Exception):
    """A key that no request can be made for: nothing can be found under it."""


class Unsendable(Exception):
    """A key that has no place in the request, though something may be found under it."""


@dataclass(slots=True)  # and not frozen, which takes three times as long to make
class TemplateKeys:
    """The keys of one request, and the columns whose values differ among them.

    Args:
        columns: for each key column its values, one for each key.
        lists: the columns sent as lists; in each other column all values are equal.
    """

    columns: Mapping[str, Sequence[Any]]
    lists: frozenset[str] = frozenset()

    @classmethod
    def one(cls, key: Key) -> TemplateKeys:
        """A single key, without lists."""
        return cls({name: (value,) for name, value in key.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[Key]:
        return (
            dict(zip(self.columns, values, strict=True))
            for values in zip(*self.columns.values(), strict=True)
        )

    def values(self, column: str) -> Sequence[Any]:
        """The values of ``column``, a single one unless it is listed; empty if it is no key column."""
        values = self.columns.get(column, ())
        return values if column in self.lists else values[:1]

    def listed(self, hole: Hole) -> Iterator[str]:
        """The values of the column of ``hole`` as texts, to be separated by commas.

        Raises:
            Unsendable: one of them holds a comma.
        """
        for value in self.values(hole.column):
            text = hole.text(value)
            if "," in text and hole.column in self.lists:
                raise Unsendable(
                    f"the key {hole.column} = {text[:60]!r} holds the comma that separates the keys of a"
                    " request. In parameters set 'list-style' = 'repeat'; else write an array in a JSON"
                    " 'body', or leave 'keys-per-request' out."
                )
            yield text

    def check(self, template: Template) -> None:
        """Refuse a key that gives ``template`` the text of another one."""
        names = template.several
        if names and not self.lists.intersection(names) and all(name in self.columns for name in names):
            mistaken = template.mistaken({name: self.columns[name][0] for name in names})
            if mistaken:
                raise Unsendable(mistaken)

    def groups(self) -> list[Sequence[int]]:
        """The positions of keys that differ in nothing but the columns that list their values."""
        common = [values for name, values in self.columns.items() if name not in self.lists]
        if not common:
            return [range(len(self))]
        found: dict[tuple[Any, ...], list[int]] = {}
        for at, values in enumerate(zip(*common, strict=True)):
            found.setdefault(values, []).append(at)
        return list(found.values())

    def among(self, positions: Sequence[int]) -> TemplateKeys:
        """The keys at ``positions``."""
        if len(positions) == len(self):
            return self
        return TemplateKeys(
            {name: [values[at] for at in positions] for name, values in self.columns.items()}, self.lists
        )


def _address_pieces(address: Template) -> list[str | Template]:
    """The parts between slashes of ``address``: those with holes one by one, and the text between them."""
    segments: list[list[str | Hole]] = [[]]
    for part in address.parts:
        if isinstance(part, Hole):
            segments[-1].append(part)
            continue
        first, *others = part.split("/")
        segments[-1].append(first)
        segments.extend([each] for each in others)
    pieces: list[str | Template] = []
    for is_text, group in groupby(segments, lambda each: all(isinstance(part, str) for part in each)):
        if is_text:
            pieces.append("/".join("".join(map(str, each)) for each in group))
        else:
            pieces += [Template(tuple(part for part in each if part != "")) for each in group]
    return pieces


def _fill_segment(template: Template, keys: TemplateKeys) -> str:
    column = template.sole_column
    if column is not None and type(value := keys.columns[column][0]) is int and column not in keys.lists:
        return str(value)  # nothing in it to encode
    keys.check(template)
    text = template.filled(partial(_fill_hole, keys))
    if text in _DOT_SEGMENTS:
        raise Unaskable
    return text


def _fill_hole(keys: TemplateKeys, hole: Hole) -> str:
    if hole.column not in keys.lists:
        return quote(hole.text(keys.columns[hole.column][0]), safe="")
    texts = list(keys.listed(hole))
    if any(text in _DOT_SEGMENTS for text in texts):
        raise Unaskable
    return ",".join([quote(text, safe="") for text in texts])


@dataclass(frozen=True)
class QueryTemplate:
    """The parameters of a query string (or a form), each a name and a value."""

    parameters: tuple[tuple[Template, Template], ...]
    repeated: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for pair in self.parameters for each in pair for column in each.columns)

    def text(self, keys: TemplateKeys) -> str:
        """The query string for ``keys``, without parameters whose columns are no key columns."""
        return "&".join([part for pair in self.parameters for part in self._query_parts(*pair, keys)])

    def _query_parts(self, name: Template, value: Template, keys: TemplateKeys) -> Iterator[str]:
        asked = [keys.values(column) for column in (*name.columns, *value.columns)]
        if not all(asked):
            return
        column = value.sole_column
        if self.repeated and column is not None and column in keys.lists:
            for each in keys.values(column):
                yield f"{name.filled(str)}={quote(spelled(each), safe='')}"
            return

        def fill(hole: Hole) -> str:
            values = keys.values(hole.column)
            if type(values[0]) is int:
                return ",".join(map(str, values))  # nothing in them to encode
            return ",".join([quote(text, safe="") for text in keys.listed(hole)])

        keys.check(name)
        keys.check(value)
        equals = "=" if value.parts else ""
        yield f"{name.filled(fill)}{equals}{value.filled(fill)}"

    def resolved(self, resolve: Resolve) -> QueryTemplate:
        """The same, with references to secrets resolved, and encoded for a query."""

        def encoded(text: str) -> str:
            known = resolve(text)
            return text if known == text else quote(known, safe="&=%+,:;/?@!$'()*~-._")

        pairs = tuple((name.resolved(encoded), value.resolved(encoded)) for name, value in self.parameters)
        return QueryTemplate(pairs, self.repeated)


def parse_query(text: str, columns: Sequence[str], *, repeated: bool, start: int = 0) -> QueryTemplate:
    """The parameters that ``text`` lists: ``a=1&ids={id}``; it begins at ``start`` of its option.

    Raises:
        TemplateError: a parameter is no template.
    """
    pairs = []
    for each in text.split("&"):
        name, equals, value = each.partition("=")
        value_start = start + len(name) + len(equals)
        if each:
            pairs.append(
                (
                    parse_template(name, columns, "parameter", start),
                    parse_template(value, columns, "parameter", value_start),
                )
            )
        start += len(each) + 1
    return QueryTemplate(tuple(pairs), repeated)


def in_header(name: str, template: Template, keys: TemplateKeys) -> str:
    """The value of the header ``name`` for ``keys``.

    Raises:
        Unsendable: it holds characters that no header can. (RFC 2047 and RFC 8187 define encodings, but only
            for certain headers: elsewhere a server would take the encoded text for another key.)
    """

    def fill(hole: Hole) -> str:
        texts = list(keys.listed(hole))
        for text in texts:
            if not _fits_header(text):
                raise Unsendable(
                    f"header {name!r} cannot hold the key {hole.column} = {text[:60]!r}: headers hold"
                    " printable ASCII. Send this column in 'url', 'query' or 'body'."
                )
        return ",".join(texts)

    keys.check(template)
    text = template.filled(fill)
    if not _fits_header(text):
        raise Unsendable(f"header {name!r} holds something else than printable ASCII.")
    if template.columns and text != text.strip():
        raise Unsendable(
            f"header {name!r} cannot hold {text[:60]!r}: servers drop blanks at its ends and would"
            " take it for another key. Send its columns in 'url', 'query' or 'body'."
        )
    return text


def _fits_header(text: str) -> bool:
    return text.isprintable() and text.isascii()


@dataclass(frozen=True)
class JsonBody:
    """A JSON document whose texts are templates.

    A text that is one hole and nothing else becomes the value itself: a number stays a number, and many
    keys are an array. An array whose only element names columns of many keys has one for each key.
    """

    document: Any

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for template in _templates_in(self.document) for column in template.columns)

    def text(self, keys: TemplateKeys) -> str:
        """The document for ``keys``, without members whose columns are no key columns."""
        return json.dumps(_fill_document(self.document, keys), ensure_ascii=False, separators=(",", ":"))

    def resolved(self, resolve: Resolve) -> JsonBody:
        """The same, with references to secrets resolved."""
        return JsonBody(_map_templates(self.document, lambda template: template.resolved(resolve)))


def parse_json_body(text: str, columns: Sequence[str]) -> JsonBody:
    """The document that ``text`` spells.

    Raises:
        ValueError: it is not JSON, or a hole names no column.
    """
    try:
        document = json.loads(text)
        return JsonBody(_parse_document(document, columns, ""))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except json.JSONDecodeError as error:
        bare = _BARE_HOLE.search(text)
        tip = f'Columns stand in quotes, and numbers stay numbers: "{bare[1]}".' if bare else ""
        raise TemplateError(f"it is not JSON ({error})", tip) from None


_BARE_HOLE = re.compile(r"[:\[,]\s*(\{\w+\})")


def _parse_document(node: Any, columns: Sequence[str], path: str) -> Any:
    """The document with its texts read; ``path`` leads to it."""
    if isinstance(node, dict):
        for name in node:
            try:
                is_text = not parse_template(name, columns, "text").columns
            except TemplateError:
                is_text = True
            if not is_text:
                raise TemplateError(
                    f"the name of the member {f'{path}.{name}'.lstrip('.')!r} is text",
                    "Columns stand in the values of members alone.",
                )
        return {name: _parse_document(value, columns, f"{path}.{name}") for name, value in node.items()}
    if isinstance(node, list):
        return [_parse_document(value, columns, f"{path}[{at}]") for at, value in enumerate(node)]
    if not isinstance(node, str):
        return node
    try:
        return parse_template(node, columns, "text")
    except TemplateError as error:
        where = f" of the text {path.lstrip('.')}" if path else ""
        raise TemplateError(str(error), error.tip[:-1] + f"{where}.") from None


def _map_templates(node: Any, change: Callable[[Any], Any]) -> Any:
    """The document with each template changed."""
    if isinstance(node, dict):
        return {name: _map_templates(value, change) for name, value in node.items()}
    if isinstance(node, list):
        return [_map_templates(value, change) for value in node]
    return change(node) if isinstance(node, Template) else node


def _templates_in(node: Any) -> Iterator[Template]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _templates_in(child)
    if isinstance(node, Template):
        yield node


_LEFT_OUT = object()


def _fill_document(node: Any, keys: TemplateKeys) -> Any:
    if isinstance(node, Template):
        if not all(keys.values(column) for column in node.columns):
            return _LEFT_OUT
        column = node.sole_column
        if column is None:
            keys.check(node)
            return node.filled(lambda hole: ",".join(keys.listed(hole)))
        values = _as_json(keys.values(column))
        return values if column in keys.lists else values[0]
    if isinstance(node, dict):
        filled = {name: _fill_document(value, keys) for name, value in node.items()}
        return {name: value for name, value in filled.items() if value is not _LEFT_OUT}
    if isinstance(node, list):
        if len(node) == 1 and not keys.lists.isdisjoint(JsonBody(node[0]).columns):
            return _filled_for_each(node[0], keys) or []
        return [value for value in (_fill_document(each, keys) for each in node) if value is not _LEFT_OUT]
    return node


def _filled_for_each(node: Any, keys: TemplateKeys) -> Sequence[Any] | None:
    """``_fill_document`` for each of ``keys`` alone, column by column; None where it is left out."""
    if isinstance(node, Template):
        return _texts_for_each(node, keys)
    if isinstance(node, dict):
        members = {name: _filled_for_each(value, keys) for name, value in node.items()}
        there = {name: values for name, values in members.items() if values is not None}
        return [dict(zip(there, values, strict=True)) for values in _rows_across(there.values(), len(keys))]
    if isinstance(node, list):
        items = [_filled_for_each(each, keys) for each in node]
        there_too = [values for values in items if values is not None]
        return [list(values) for values in _rows_across(there_too, len(keys))]
    return [node] * len(keys)


def _rows_across(columns: Collection[Sequence[Any]], count: int) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True) if columns else repeat((), count)


def _texts_for_each(template: Template, keys: TemplateKeys) -> Sequence[Any] | None:
    if not template.columns:
        return [template.filled(str)] * len(keys)
    if not keys.columns.keys() >= set(template.columns):
        return None
    column = template.sole_column
    if column is not None:
        return _as_json(keys.columns[column])
    several = TemplateKeys({name: keys.columns[name] for name in template.columns})
    for each in several if template.several else ():
        TemplateKeys.one(each).check(template)

    def spelled_of(key: Key) -> Callable[[Hole], str]:
        return lambda hole: hole.text(key[hole.column])

    return [template.filled(spelled_of(key)) for key in several]


def _as_json(values: Sequence[Any]) -> Sequence[Any]:
    """The values of a column as JSON values; as text if JSON has no exact number for them."""
    if isinstance(values[0], float):
        return [value if math.isfinite(value) else spelled(value) for value in values]
    return values if isinstance(values[0], int | str) else list(map(spelled, values))


@dataclass(frozen=True)
class Templates:
    """The parts of a request.

    Args:
        method: GET or POST.
        address: scheme, host and path.
        query: its parameters.
        headers: by name.
        body: the body of a POST.
        lists: the columns that list the keys, if a request holds many.
        private: the parts with references to secrets, which are only for the origin of the address.
    """

    method: str
    address: Template
    query: QueryTemplate
    headers: Mapping[str, Template]
    body: JsonBody | QueryTemplate | None
    lists: frozenset[str]
    private: Private = field(default_factory=Private)

    @property
    def columns(self) -> frozenset[str]:
        """Every column that some part names."""
        body = self.body.columns if self.body else ()
        return self.needed | {*self.query.columns, *body}

    def unsafe_holes(self, texts: Collection[str]) -> Iterator[tuple[str, str]]:
        """The columns of ``texts`` inside quotes of the request for which no escaping rule is known."""
        queries = [self.query, self.body] if isinstance(self.body, QueryTemplate) else [self.query]
        values = [value for query in queries for _, value in query.parameters]
        in_body = _templates_in(self.body.document) if isinstance(self.body, JsonBody) else ()
        for template in (self.address, *values, *in_body):
            yield from template.unsafe_holes(texts)

    @property
    def needed(self) -> frozenset[str]:
        """The columns without which there is no request."""
        in_headers = (column for each in self.headers.values() for column in each.columns)
        return frozenset({*self.address.columns, *in_headers})

    @cached_property
    def _address_pieces(self) -> list[str | Template]:
        return _address_pieces(self.address)

    def request(self, keys: TemplateKeys) -> Request:
        """The request for ``keys``.

        Raises:
            Unaskable: a segment of the path would be empty, or climb: ``/x/..`` asks for something else.
            Unsendable: there is none, though something may be found.
        """
        query = self.query.text(keys) if self.query.parameters else ""
        address = "/".join(
            [
                piece if isinstance(piece, str) else _fill_segment(piece, keys)
                for piece in self._address_pieces
            ]
        )
        headers = {name: in_header(name, value, keys) for name, value in self.headers.items()}
        body = self.body.text(keys).encode() if self.body else None
        url = f"{address}?{query}" if query else address
        return Request(self.method, url, headers, body, self.private)

    def requests(self, keys: Sequence[Key]) -> Iterator[Request]:
        """The request for each of ``keys`` alone.

        Raises:
            Unaskable: as for ``request``.
            Unsendable: as for ``request``.
        """
        found = self._split_at_number
        if found is None or not keys or keys[0].keys() != {found[0]}:
            yield from (self.request(TemplateKeys.one(key)) for key in keys)
            return
        column, before, after, like = found
        for key in keys:
            value = key[column]
            if type(value) is int:
                yield Request(self.method, f"{before}{value}{after}", like.headers, like.body, self.private)
            else:
                yield self.request(TemplateKeys.one(key))

    @cached_property
    def _split_at_number(self) -> tuple[str, str, str, Request] | None:
        """If just one column occurs, once and in the URL: it, and the text around a number there."""
        named = [*self.address.columns, *self.query.columns]
        if len(named) != 1 or self.columns != self.needed | {*named} or self.lists:
            return None
        if any(each.columns for each in self.headers.values()) or (self.body and self.body.columns):
            return None
        first, second = (self.request(TemplateKeys.one({named[0]: number})) for number in (0, 1))
        at = next(at for at, both in enumerate(zip(first.url, second.url, strict=True)) if len({*both}) > 1)
        return named[0], first.url[:at], first.url[at + 1 :], first

    def resolved(self, resolve: Resolve) -> Templates:
        """The same, with references to secrets resolved."""
        return replace(
            self,
            address=self.address.resolved(resolve),
            query=self.query.resolved(resolve),
            headers={name: each.resolved(resolve) for name, each in self.headers.items()},
            body=self.body.resolved(resolve) if self.body else None,
        )
