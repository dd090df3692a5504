"""A request and the shape of its answer -> a table of the connector ``http``: rows, columns, keys, pages.

The shape of JSON is a type of Arrow. A member of a STRUCT that no type can hold is there without one: as
NULL, with the reason in its metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ, sql_type
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.security_policy import Policy

WHY = b"why"
"""Where the metadata of a member says why it has no type."""

LARGE = pa.decimal128(19, 0)
"""A whole number that a BIGINT holds, and a DOUBLE may not."""

WIDE = pa.decimal128(38, 18)

URI = pa.large_string()
"""A text that is known to be an address."""

_MOST_DIGITS = 38
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_MOMENT = re.compile(
    rf"{_DATE.pattern}[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d{{1,6}})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NAME_OF_A_ROW = re.compile(r"-?\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d", re.IGNORECASE)


class NoType(Exception):
    """No column type fits; the message is the end of a sentence that begins with the value's name."""


def struct_field(name: str, kind: Callable[[], pa.DataType]) -> pa.Field:
    """The member ``name`` of a STRUCT, with the reason where it has no type."""
    try:
        return pa.field(name, kind())
    except NoType as none:
        return pa.field(name, pa.null(), metadata={WHY: str(none)})


# Guesses only what fails loudly: a type that is too narrow ends in an error, as columns are read strictly.
# (docs/decisions/0183)
def type_of(value: Any) -> pa.DataType:
    """The lossless type of a JSON value.

    Args:
        value: with fractions as exact decimals.

    Raises:
        NoType: no column can hold it.
    """
    if isinstance(value, dict):
        if value and all(map(_NAME_OF_A_ROW.fullmatch, value)):
            return pa.map_(pa.string(), together(map(type_of, value.values())))
        return pa.struct([struct_field(name, partial(type_of, each)) for name, each in value.items()])
    if isinstance(value, list):
        return pa.list_(together(map(type_of, value)))
    if isinstance(value, str):
        return _type_of_text(value)
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if abs(value) <= 2**53 else _exact_type(Decimal(value))
    if value is None:
        return pa.null()
    is_double = isinstance(value, float) or Decimal(repr(float(value))) == value
    return pa.float64() if is_double else _exact_type(value)


def _type_of_text(text: str) -> pa.DataType:
    if text.startswith(("https://", "http://")):
        return URI
    match = _MOMENT.fullmatch(text) or _DATE.fullmatch(text)
    if match is None:
        return pa.string()
    *parts, zone = (*match.groups(), None) if match.re is _DATE else match.groups()
    try:
        datetime(*(int(part or 0) for part in parts))  # type: ignore[arg-type]
    except ValueError:  # 2024-02-30
        return pa.string()
    if match.re is _DATE:
        return pa.date32()
    return TIMESTAMP if zone else TIMESTAMP_NTZ


def _exact_type(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    before, behind = max(len(digits) + exponent, 0), max(-exponent, 0)
    if not behind and -(2**63) <= value < 2**63:
        return LARGE
    behind = max(behind, WIDE.scale) if behind else 0
    if before + behind > _MOST_DIGITS:
        raise NoType(f"is a number of more digits than a DECIMAL has ({value:.6g})")
    return pa.decimal128(_MOST_DIGITS, behind)


def together(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """One type for values of all ``kinds``.

    Raises:
        NoType: there is none.
    """
    return reduce(union, kinds, pa.null())


def union(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """One type for values of both.

    Raises:
        NoType: there is none.
    """
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        names = dict.fromkeys(each.name for kind in (one, other) for each in kind)
        return pa.struct([_merge_member(name, one, other) for name in names])
    if types.is_list(one) and types.is_list(other):
        return pa.list_(union(one.value_type, other.value_type))
    maps = [each for each in (one, other) if types.is_map(each)]
    if len(maps) == 2:
        return pa.map_(pa.string(), union(one.item_type, other.item_type))
    if maps and pa.struct([]) in (one, other):
        return maps[0]
    return _common_plain_type(one, other)


def _merge_member(name: str, one: pa.DataType, other: pa.DataType) -> pa.Field:
    there = [kind.field(name) for kind in (one, other) if kind.get_field_index(name) >= 0]
    without = [each for each in there if WHY in (each.metadata or {})]
    return without[0] if without else struct_field(name, lambda: together(each.type for each in there))


def _common_plain_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    both = (one, other)
    if all(kind == URI or types.is_string(kind) or types.is_temporal(kind) for kind in both):
        return pa.string()
    if all(types.is_integer(kind) for kind in both):
        return pa.int64()
    if all(types.is_integer(kind) or types.is_float64(kind) for kind in both):
        return pa.float64()
    if all(types.is_integer(kind) or types.is_decimal(kind) or types.is_float64(kind) for kind in both):
        before, behind = map(max, zip(*map(_digits_of_type, both), strict=True))
        if before + behind <= _MOST_DIGITS:
            return pa.decimal128(_MOST_DIGITS if behind else before, behind)
    raise NoType(f"is {_type_text(one)} here and {_type_text(other)} there")


def _digits_of_type(number: pa.DataType) -> tuple[int, int]:
    kind = LARGE if types.is_integer(number) else WIDE if types.is_float64(number) else number
    return kind.precision - kind.scale, kind.scale


def _type_text(kind: pa.DataType) -> str:
    if types.is_nested(kind):
        return "an object" if types.is_struct(kind) or types.is_map(kind) else "an array"
    return sql_type(pa.string() if kind == URI else kind)


def finished(kind: pa.DataType, where: str, notes: list[str]) -> pa.DataType:
    """The type of a column of ``kind``; omissions and guesses are added to ``notes``.

    Raises:
        NoType: nothing is left.
    """
    if types.is_null(kind):
        notes.append(f"{where} is NULL wherever it was seen: STRING is a guess")
        return pa.string()
    if kind in (LARGE, URI):
        return pa.int64() if kind == LARGE else pa.string()
    if types.is_list(kind):
        return pa.list_(finished(kind.value_type, f"{where}[]", notes))
    if types.is_map(kind):
        return pa.map_(pa.string(), finished(kind.item_type, f"{where}.*", notes))
    if types.is_struct(kind):
        members = finished_members(kind, f"{where}.", notes)
        if not members:
            raise NoType("is an object of unknown members")
        return pa.struct(members)
    return kind


def finished_members(row: pa.DataType, where: str, notes: list[str]) -> list[pa.Field]:
    """The members of ``row`` as columns or fields; omissions are added to ``notes``."""
    members: dict[str, pa.Field] = {}
    for each in row:
        try:
            if why := (each.metadata or {}).get(WHY):
                raise NoType(why.decode())
            if each.name.lower() in members:
                raise NoType("differs from another name in capitals alone")
            if not each.name:
                raise NoType("is a member without a name")
            members[each.name.lower()] = pa.field(each.name, finished(each.type, where + each.name, notes))
        except NoType as none:
            notes.append(f"left out: {where}{each.name}, which {none}")
    return list(members.values())


HOLE = re.compile(r"(?<!\$)\{([^{}]*)\}")
_QUOTED_HOLE = re.compile(r"'\{(\w+)\}'")
"""A place for a key in the address."""

_HOLDS_ROWS = re.compile(
    "data|items|results?|rows|records|values?|entries|content|elements|list|objects|hits|response|payload|_embedded",
    re.IGNORECASE,
)
_BESIDE_ROWS = re.compile(
    r"""_?(links?|meta\w*|next\w*|prev\w*|first\w*|last\w*|self|total\w*|count|page\w*|(\w+_?)?per_?page|limit
    |max_?results|offset|size|start(_?at|_?index)?|end|skip|cursors?|end_?cursor|has_?(more|next|prev)\w*|more|is_?last\w*|pagination|paging
    |object|kind|type|ur[li]|etag|status\w*|success|ok|code|messages?|errors?|warnings|request_?id|response_metadata
    |included|jsonapi|self_?link|incomplete_results|truncated|number|number_?of_?elements|empty|sort|pageable
    |@odata\.\w+|api_?version|generated_?at|took)""",
    re.VERBOSE | re.IGNORECASE,
)
# Members beside many rows, and not of one.
_PAGED = re.compile(
    r"next\w*|has_?more|total\w*|count|page\w*|paging|pagination|meta|_?links|offset|limit|cursors?",
    re.IGNORECASE,
)

_NAMES_A_ROW = re.compile("u?u?id|guid|key|number|code|sku|slug", re.IGNORECASE)

PAGE = re.compile(r"page(_?(number|num|no|index)|\[number\])?", re.IGNORECASE)
OFFSET = re.compile(r"offset|\$?skip|start(_?(at|index))?|page\[offset\]", re.IGNORECASE)
CURSOR = re.compile(
    r"(next_?|page_?)?(cursor|token)|cursor|marker|after|starting_?after|since_?id|page\[(after|cursor)\]|bookmark"
    r"|continuation_?(token)?|\$?skip_?token",
    re.IGNORECASE,
)
SIZE = re.compile(
    r"limit|(page_?)?size|per_?page|max_?results|page_?limit|page\[(size|limit)\]|count|\$top", re.IGNORECASE
)
"""A parameter that says how many rows a page has."""
_NEXT_CURSOR = re.compile(
    r"next_?(cursor|page_?token|token|marker|page)?|end_?cursor|after|cursor|continuation_?(token)?|bookmark"
    r"|marker",
    re.IGNORECASE,
)
_NEXT_URL = re.compile(
    r"next(_?page)?(?P<sure>_?(url|link|href|uri))?|(?P<odata>@?odata\.nextlink)", re.IGNORECASE
)


class NoTable(Exception):
    """No table can be made of it; why, as a sentence."""


@dataclass(frozen=True)
class Imported:
    """A table, with notes for the reader of its statement."""

    table: LookupTable
    notes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass
class KeyedRequest:
    """A request for one key, as far as it is known.

    Args:
        table: the name of the table.
        url: the address, whose holes name parameters.
        keys: the parameters in its holes, with the types of their columns.
        in_path: those of them that stand in the path.
        says: whether a member of the rows is known to repeat the key in a hole; None: this is guessed.
        lists: the parameters that take several values, and how many.
        options: further options.
        notes: notes for the user.
        page_names: the parameters that may ask for a page.
        page_size: rows of a page, where that is known.
        first_page: the number of the first one.
        has_link: whether a header Link leads to the next one.
    """

    table: str = ""
    url: str = ""
    keys: dict[str, pa.DataType] = field(default_factory=dict)
    in_path: Collection[str] = ()
    says: Callable[[str, str], bool] | None = None
    lists: dict[str, int] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    page_names: list[str] = field(default_factory=list)
    page_size: int | None = None
    first_page: int = 1
    has_link: bool = False


def identifier(name: str) -> str:
    """``name`` as the name of a column that needs no quotes.

    >>> identifier("@odata.etag"), identifier("2nd-line")
    ('odata_etag', '_2nd_line')
    """
    plain = re.sub(r"\W+", "_", name).strip("_") or "column"
    return f"_{plain}" if plain[0].isdigit() else plain


def jmespath(*names: str) -> str:
    """The JMESPath that leads through the members ``names``.

    >>> jmespath("value", "@odata.nextLink")
    'value."@odata.nextLink"'
    """
    return ".".join(
        name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else json.dumps(name, ensure_ascii=False)
        for name in names
    )


@dataclass(frozen=True)
class RowsPlace:
    """The place of the rows in an answer: path, type of a row, and whether there may be several."""

    way: tuple[str, ...]
    row: pa.DataType
    are_listed: bool
    beside: tuple[str, ...] = ()


# Only beside members that pages and envelopes have: an order with `items` and a number of its own is one row.
# (docs/decisions/0183)
def find_rows(answer: pa.DataType, named: str) -> RowsPlace:
    """Find the rows in an answer of that shape.

    Args:
        answer: the shape.
        named: their name in the address: the ``orders`` of ``/customers/{id}/orders``.

    Raises:
        NoTable: there are none.
    """
    way: tuple[str, ...] = ()
    beside: list[str] = []
    names = {named.lower(), named.lower().removesuffix("s")}
    while types.is_struct(answer) and (holder := _member_with_rows(answer, names)) is not None:
        beside += [jmespath(*way, each.name) for each in answer if each.name != holder.name]
        way, answer = (*way, holder.name), holder.type
    if types.is_list(answer) and types.is_struct(answer.value_type):
        return RowsPlace(way, answer.value_type, True, tuple(beside))
    if not types.is_struct(answer) or not answer.num_fields:
        raise NoTable("it answers no objects, of which rows could be made")
    return RowsPlace(way, answer, False, tuple(beside))


def _member_with_rows(answer: pa.DataType, names: set[str]) -> pa.Field | None:
    """The member of ``answer`` that holds the rows; None where ``answer`` is a row itself."""
    for each in answer:
        is_list = types.is_list(each.type) and types.is_struct(each.type.value_type)
        if not (is_list or (types.is_struct(each.type) and each.type.num_fields)):
            continue
        others = [other.name for other in answer if other.name != each.name]
        is_named = each.name.lower() in names or _HOLDS_ROWS.fullmatch(each.name)
        is_paged = is_list and any(map(_PAGED.fullmatch, others))
        if all(map(_BESIDE_ROWS.fullmatch, others)) and (is_named or is_paged or not others):
            return each
    return None


def last_name(url: str) -> str:
    """The name of the resource in the path of ``url``: the last segment without a hole."""
    return next((name for each in reversed(_path_segments(url)) if (name := static_name(each))), "")


def static_name(segment: str) -> str:
    """The fixed name in a segment of a path; empty if it is only a key.

    >>> static_name("orders.json"), static_name("items({id})"), static_name("{id}")
    ('orders', 'items', '')
    """
    name = re.sub(r"\(.*\)$", "", segment)
    return "" if "{" in name else name.removesuffix(".json")


def _path_segments(url: str) -> list[str]:
    return [each for each in re.sub(r"^\w+://[^/]*|\?.*", "", url).split("/") if each]


def http_table(asked: KeyedRequest, answer: pa.DataType) -> Imported:
    """The table for the request ``asked`` with an answer of type ``answer``.

    Raises:
        NoTable: the answer cannot become a table.
    """
    rows = find_rows(answer, last_name(asked.url))
    notes = list(asked.notes)
    members = {each.name.lower(): each for each in finished_members(rows.row, "", notes)}
    # An address says which row it is, but no request is made with it.
    addresses = {each.name for each in rows.row if each.type == URI}
    may_be_keys = {
        _normalise_name(each.name): each for each in members.values() if each.name not in addresses
    }
    columns: dict[str, pa.Field] = {}
    paths: dict[str, str] = {}

    def add(name: str, kind: pa.DataType, member: str | None, *, is_key: bool = False) -> str:
        """Add a column read from ``member``, or set by the request; a key's path is always written."""
        unique = plain = identifier(name)
        while unique.lower() in map(str.lower, columns):
            unique = f"{plain}_{len(columns)}"
        columns[unique] = pa.field(unique, kind)
        if member is not None and (is_key or unique != member):
            paths[unique] = jmespath(member)
        return unique

    holes: dict[str, str] = {}
    for hole, kind in asked.keys.items():
        # A member of its name may be something else: an order of the customer {id} has an id of its own.
        segment = _name_of_segment_before(hole, _path_segments(asked.url)).removesuffix("s")
        names = [hole, f"{segment}_{hole}"]
        short = re.sub(rf"^{segment}[\W_]*", "", hole, flags=re.IGNORECASE)
        # /files/{file_id} gives a file, with its id.
        if not rows.are_listed and _NAMES_A_ROW.fullmatch(short):
            names.append(short)
        alike = [may_be_keys.get(_normalise_name(each)) for each in names]
        is_same = asked.says or (
            lambda hole, name: (
                _normalise_name(name) != _normalise_name(hole)
                or not (rows.are_listed and hole in asked.in_path)
            )
        )
        member = next(
            (each for each in alike if each and _is_spelled_alike(each.type) and is_same(hole, each.name)),
            None,
        )
        if member is None:
            holes[hole] = add(f"{segment}_{hole}" if hole.lower() in members else hole, kind, None)
        else:
            del members[member.name.lower()], may_be_keys[_normalise_name(member.name)]
            holes[hole] = add(member.name, member.type, member.name, is_key=True)
    keys = tuple(columns)
    for each in members.values():
        add(each.name, each.type, each.name)
    if not members and not paths:
        raise NoTable("no member of its answer can be a column")
    options = {"connector": "http", "url": with_holes(asked.url, holes)}
    if rows.way:
        options["rows"] = jmespath(*rows.way)
    options |= {f"path.{column}": path for column, path in paths.items()}
    lists = {holes[name]: most for name, most in asked.lists.items() if holes[name] in paths}
    if lists:
        options |= {"keys-per-request": str(min(lists.values())), "list-columns": ",".join(lists)}
    if rows.are_listed:
        options |= paging(asked, answer, rows)
    if rows.beside:
        notes.append(f"beside the rows, and so no columns: {', '.join(rows.beside)}")
    primary = keys if not rows.are_listed and set(asked.in_path) == set(asked.keys) else ()
    schema = pa.schema(list(columns.values()))
    table = LookupTable(asked.table, schema, primary, options | asked.options, policy=Policy())
    return Imported(table, tuple(notes), keys)


def _normalise_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _is_spelled_alike(kind: pa.DataType) -> bool:
    """Whether a key of ``kind`` is spelled in a request as the API spells it in its answers."""
    return bool(
        types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind)
    )


def _name_of_segment_before(parameter: str, segments: Sequence[str]) -> str:
    at = next((number for number, each in enumerate(segments) if f"{{{parameter}}}" in each), 0)
    named = static_name(segments[at]) if segments else ""
    return identifier(named or segments[at - 1]) if named or at else "key"


def with_holes(url: str, holes: Mapping[str, str]) -> str:
    named = HOLE.sub(lambda hole: f"{{{holes.get(hole[1], hole[1])}}}", url)
    return _QUOTED_HOLE.sub(r"'{\1|odata}'", named)  # as OData writes keys that are texts


# --- pages ----------------------------------------------------------------------------------------


def paging(asked: KeyedRequest, answer: pa.DataType, rows: RowsPlace) -> dict[str, str]:
    """The options by which further pages are found; none where nothing shows them."""
    found = {
        kind: name
        for kind, sign in (("page", PAGE), ("offset", OFFSET), ("cursor", CURSOR))
        for name in asked.page_names
        if sign.fullmatch(name)
    }
    members = dict(_paths_to_plain_members(answer, rows.way))
    cursor = found.get("cursor")
    if cursor is not None and (path := _cursor_path(cursor, members, rows)):
        return {"paging": "cursor", "paging-path": path, "paging-parameter": cursor}
    for way, kind in members.items():
        *_, before, last = ("", *way)
        match = _NEXT_URL.fullmatch(last)
        is_next = match or (last in ("href", "url") and before == "next")
        is_url = kind == URI or (
            types.is_string(kind) and (not found or (match and (match["sure"] or match["odata"])))
        )
        if is_next and is_url:
            return {"paging": "next_url", "paging-path": jmespath(*way)}
    if asked.has_link:
        return {"paging": "link"}
    for how in ("page", "offset"):
        if how in found:
            first = {"first-page": str(asked.first_page)} if how == "page" and asked.first_page != 1 else {}
            size = {} if asked.page_size is None else {"page-size": str(asked.page_size)}
            return {"paging": how, "paging-parameter": found[how], **first, **size}
    return {}


def _cursor_path(
    parameter: str, members: Mapping[tuple[str, ...], pa.DataType], rows: RowsPlace
) -> str | None:
    for way, kind in members.items():
        if types.is_string(kind) and _NEXT_CURSOR.fullmatch(way[-1]):
            return jmespath(*way)
    more = next((way for way in members if way[-1].lower() in ("has_more", "hasmore")), None)
    if more and "after" in parameter.lower() and rows.row.get_field_index("id") >= 0:
        return f"{jmespath(*more)} && {jmespath(*rows.way)}[-1].id"
    return None


def _paths_to_plain_members(
    answer: pa.DataType, rows: Sequence[str], way: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """The paths to all plain members of ``answer`` outside of the rows."""
    if types.is_struct(answer) and way != tuple(rows):
        for each in answer:
            yield from _paths_to_plain_members(each.type, rows, (*way, each.name))
    elif not types.is_nested(answer):
        yield way, answer
