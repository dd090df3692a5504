"""An OpenAPI document (3.0, 3.1) -> a table for each GET operation that looks up by key. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

import pyarrow as pa
from pyarrow import types

from lookup_hints.cli.import_http_tables import (
    CURSOR,
    HOLE,
    OFFSET,
    PAGE,
    SIZE,
    URI,
    WIDE,
    Imported,
    KeyedRequest,
    NoTable,
    NoType,
    find_rows,
    finished,
    http_table,
    identifier,
    last_name,
    static_name,
    struct_field,
    together,
    type_of,
)
from lookup_hints.errors import nearest
from lookup_hints.spi.arrow_types import TIMESTAMP
from lookup_hints.spi.secrets import references

_UINT64 = pa.decimal128(20, 0)
_BY_FORMAT: Mapping[str, Mapping[str, pa.DataType]] = {
    "string": {
        "date": pa.date32(),
        "date-time": TIMESTAMP,
        # JSON has them as texts, as JavaScript would round the numbers. A DECIMAL takes both.
        **dict.fromkeys(("int64", "uint64", "integer"), _UINT64),
        **dict.fromkeys(("decimal", "number", "money", "bignumber"), WIDE),
        **dict.fromkeys(("double", "float"), pa.float64()),
        **dict.fromkeys(("uri", "url", "uri-reference", "iri"), URI),
    },
    "integer": {"int32": pa.int32(), "int16": pa.int32(), "int8": pa.int32(), "uint64": _UINT64},
    "number": {"decimal": WIDE, "int32": pa.int32(), "int64": pa.int64()},
}
_PLAIN = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64()}
_PLAIN |= {"boolean": pa.bool_(), "null": pa.null()}
_HAVE_PARTS = {"$ref", "properties", "additionalProperties", "items", "allOf", "anyOf", "oneOf"}
# More parts of one answer are not looked at: schemas that name one another grow without bounds.
_MOST_PARTS = 1_000
_KEYS_PER_REQUEST = 50
_MOST_ROWS = 1_000
_OF_NO_TABLE = re.compile(r"v?\d[\w.]*|\d{4}-\d\d(-\d\d)?|api|rest|public", re.IGNORECASE)


class Refused(NamedTuple):
    """An operation that cannot become a table, and why."""

    operation: str
    why: str


def read(
    document: Mapping[str, Any], path: str = "*", operation: str = "*", server: str | None = None
) -> Iterator[Imported | Refused]:
    """The tables of ``document``, and the operations that cannot become one.

    Args:
        document: the parsed document.
        path: pattern of the wanted paths.
        operation: pattern of their ``operationId``.
        server: the base URL, in place of the document's.

    Raises:
        NoTable: it is not an OpenAPI 3 document.
    """
    if not str(document.get("openapi", "")).startswith("3."):
        other = document.get("swagger") or document.get("openapi")
        what = f"This is version {other}" if other else "The document has no member 'openapi'"
        raise NoTable(f"{what}: versions 3.0 and 3.1 are read. Try: convert it, as by swagger2openapi.")
    found = [*_tables_of_paths(_Document(document, server), path, operation)]
    if not found:
        yield Refused("the document", _reason_without_get(document, path, operation))
    names = [each.table.name.lower() for each in found if isinstance(each, Imported)]
    taken: set[str] = set()
    for each in found:
        if isinstance(each, Refused):
            yield each
            continue
        name = each.table.name
        if names.count(name.lower()) > 1:
            name += f"_by_{'_'.join(each.keys)}"
        while name.lower() in taken:
            name += f"_{len(taken)}"
        taken.add(name.lower())
        yield replace(each, table=replace(each.table, name=name))


def _tables_of_paths(document: _Document, path: str, operation: str) -> Iterator[Imported | Refused]:
    for address, node in _as_mapping(document.root.get("paths")).items():
        try:
            item = document.resolved(node)
            get = _as_mapping(item.get("get"))
            called = str(get.get("operationId", ""))
            if get and fnmatchcase(address, path) and fnmatchcase(called, operation):
                yield _Operation(document, address, item, get).table()
        except NoTable as none:
            yield Refused(f"GET {address}", str(none))
        except NoType as none:
            yield Refused(f"GET {address}", f"a part of it {none}")


def _reason_without_get(document: Mapping[str, Any], path: str, operation: str) -> str:
    paths = _as_mapping(document.get("paths"))
    gets = [address for address, item in paths.items() if "get" in _as_mapping(item)]
    if not gets:
        return "it describes no GET, and only a GET becomes a table"
    wanted = " and ".join(
        f"--{name} {pattern!r}"
        for name, pattern in (("path", path), ("operation", operation))
        if pattern != "*"
    )
    return f"no GET fits {wanted}. {nearest(path, gets)}"


def _as_mapping(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}


def _as_list(node: Any) -> Sequence[Any]:
    return node if isinstance(node, list) else ()


# --- schemas --------------------------------------------------------------------------------------


class _Document:
    def __init__(self, root: Mapping[str, Any], server: str | None) -> None:
        self.root, self.server = root, server
        title = str(_as_mapping(root.get("info")).get("title", ""))
        words = re.findall(r"[A-Za-z0-9]+", title)[:3]
        # The title is the document's: without LOOKUP_ it could name any variable of the reader's.
        self.prefix = "_".join(["LOOKUP", *(words or ["API"])]).upper()
        self._left = 0

    def resolved(self, node: Any) -> Mapping[str, Any]:
        for _ in range(100):
            if "$ref" not in _as_mapping(node):
                return _as_mapping(node)
            node = {
                **self._resolve_reference(str(node["$ref"])),
                **{key: node[key] for key in node if key != "$ref"},
            }
        raise NoTable("its references lead in a circle")

    def _resolve_reference(self, reference: str) -> Mapping[str, Any]:
        if not reference.startswith("#"):
            raise NoType(f"is described in another document: {reference}")
        node: Any = self.root
        for part in reference.lstrip("#/").split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            node = (
                node[int(name)] if isinstance(node, list) and name.isdigit() else _as_mapping(node).get(name)
            )
        if not isinstance(node, Mapping):
            raise NoType(f"is described nowhere: {reference}")
        return node

    def kind(self, schema: Any, inside: tuple[str, ...] | None = None) -> pa.DataType:
        """The type that ``schema`` describes, nested in the references ``inside``."""
        if inside is None:
            self._left = _MOST_PARTS + 1
        return self._resolve_type(schema, inside or (), ())

    def kind_of_parameter(self, schema: Mapping[str, Any]) -> pa.DataType:
        """The type that ``schema`` describes: text where values of several plain types are taken."""
        named = schema.get("type")
        choices = [{**schema, "type": each} for each in named] if isinstance(named, list) else []
        choices += [*_as_list(schema.get("oneOf")), *_as_list(schema.get("anyOf"))]
        kinds = {self.kind(each) for each in choices} - {pa.null()}
        return pa.string() if len(kinds) > 1 and not any(map(types.is_nested, kinds)) else self.kind(schema)

    def _type_of_schema(
        self, schema: Mapping[str, Any], inside: tuple[str, ...], same: tuple[str, ...]
    ) -> pa.DataType:
        """The type in ``schema``; the null type if it has none, such as only a description.

        Args:
            schema: the schema.
            inside: the references followed to the enclosing values.
            same: the references followed for this very value.
        """
        if self._left < 0 and not schema.keys().isdisjoint(_HAVE_PARTS):
            raise NoType("is left out, as the answer has too many parts")
        if (reference := schema.get("$ref")) is not None:
            if reference in same:
                # A parent lists its children by oneOf, and each child has it in allOf: its members are known.
                return pa.struct([])
            if reference in inside:
                raise NoType("holds itself")
            beside = {key: schema[key] for key in schema if key != "$ref"}
            return self._type_of_schema(
                {**self._resolve_reference(str(reference)), **beside}, inside, (*same, str(reference))
            )
        own = self._own_type(schema, (*inside, *same))
        every = (
            self._type_of_schema(_as_mapping(each), inside, same) for each in _as_list(schema.get("allOf"))
        )
        one = (
            self._resolve_type(each, inside, same)
            for word in ("anyOf", "oneOf")
            for each in _as_list(schema.get(word))
        )
        return together([own, *every, *one])

    def _resolve_type(self, schema: Any, inside: tuple[str, ...], same: tuple[str, ...]) -> pa.DataType:
        self._left -= 1
        found = self._type_of_schema(_as_mapping(schema), inside, same)
        if found == pa.null() and _as_mapping(schema).get("type") != "null":
            raise NoType("may be anything")
        return found

    def _own_type(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
        """The type in ``schema`` itself, without its compositions; the null type if it has none."""
        named = schema.get("type")
        if isinstance(named, list):
            return together(self._own_type({**schema, "type": each}, inside) for each in named)
        if named is None:
            values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else ()
            if values:
                return together(pa.string() if isinstance(each, str) else type_of(each) for each in values)
            named = "object" if "properties" in schema or "additionalProperties" in schema else named
            named = "array" if "items" in schema else named
        if named == "object":
            return self._object_type(schema, inside)
        if named == "array":
            return pa.list_(self.kind(schema.get("items"), inside))
        form = str(schema.get("format", ""))
        if named is None:
            return _BY_FORMAT["string"].get(form, pa.string()) if form else pa.null()
        if not isinstance(named, str) or named not in _PLAIN:
            raise NoType(f"has the type {named}, which JSON has not")
        bounds = (schema.get(each) for each in ("minimum", "maximum"))
        if named == "integer" and any(isinstance(each, int) and abs(each) > 2**63 for each in bounds):
            return pa.decimal128(38, 0)
        if named == "number" and isinstance(step := schema.get("multipleOf"), float) and 0 < step < 1:
            return pa.decimal128(38, len(f"{step:.18f}".rstrip("0").partition(".")[2]))
        return _BY_FORMAT.get(named, {}).get(form, _PLAIN[named])

    def _object_type(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> pa.DataType:
        properties, others = _as_mapping(schema.get("properties")), schema.get("additionalProperties")
        if not properties and isinstance(others, Mapping) and others:
            return pa.map_(pa.string(), self.kind(others, inside))
        answered = [name for name, each in properties.items() if not _as_mapping(each).get("writeOnly")]
        return pa.struct(
            [struct_field(name, partial(self.kind, properties[name], inside)) for name in answered]
        )


# --- operations -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parameter:
    name: str
    place: str
    schema: Mapping[str, Any]
    is_required: bool
    is_exploded: bool
    is_plain: bool

    @property
    def fixed(self) -> str | None:
        values = [self.schema.get("const"), self.schema.get("default")]
        values += self.schema["enum"] if len(_as_list(self.schema.get("enum"))) == 1 else []
        value = next((each for each in values if isinstance(each, str | int | float)), None)
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _unsupported_scheme(scheme: Mapping[str, Any]) -> str | None:
    """The name of a security scheme that no option supports; None for supported ones."""
    kind = str(scheme.get("type", ""))
    detail = str(scheme.get({"apiKey": "in", "http": "scheme"}.get(kind, ""), ""))
    known = {"apiKey": detail in ("query", "header"), "http": detail.lower() in ("basic", "bearer")}
    if known.get(kind, kind in ("oauth2", "openIdConnect")):
        return None
    return f"{kind} {detail}".strip() or "not described"


class _Operation:
    def __init__(
        self, document: _Document, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
    ) -> None:
        self._document, self._path, self._item, self._operation = document, path, item, operation
        self._asked = KeyedRequest()
        self._query: list[str] = []
        self._left_out: list[str] = []
        self._secrets: set[tuple[str, str]] = set()

    def table(self) -> Imported:
        asked, answer = self._asked, self._answer_type()
        self._add_security()
        parameters = [*self._read_parameters()]
        in_path = [each for each in parameters if each.place == "path" and f"{{{each.name}}}" in self._path]
        asked.in_path = [each.name for each in in_path if self._add_key(each, each.name)]
        if unknown := {*HOLE.findall(self._path)} - asked.keys.keys():
            raise NoTable(f"nothing describes the parameter {min(unknown)} of its path")
        rows = find_rows(answer, last_name(self._path))
        members = {each.name.lower(): each.name for each in rows.row} if rows.are_listed else {}
        for each in parameters:
            if each.place == "query":
                self._add_query(each, members)
            elif each.place == "header":
                self._add_header(each)
            elif each.place == "cookie" and each.is_required:
                raise NoTable(f"it needs the cookie {each.name}")
        if not asked.keys:
            others = [*self._left_out, *asked.page_names]
            reason = f": no member of its rows is called {', '.join(others)}" if others else ""
            raise NoTable(f"no parameter of its path or query can be a key{reason}")
        server, _, in_server = self._server_url().partition("?")
        asked.table, asked.url = self._table_name(), server.rstrip("/") + self._path
        query = [*([in_server] if in_server else []), *self._query]
        asked.url += f"?{'&'.join(query)}" if query else ""
        made = http_table(asked, answer)
        foreign = {each for text in made.table.options.values() for each in references(text)} - self._secrets
        if foreign:  # whoever wrote the document could ask for any variable of the reader's
            raise NoTable(
                f"it holds a reference, ${{{':'.join(min(foreign))}}}, which only its reader may write"
            )
        unused = [each for each in asked.page_names if each != made.table.options.get("paging-parameter")]
        if left_out := [*self._left_out, *unused]:
            note = f"parameters that are not asked by: {', '.join(left_out)}"
            made = replace(made, notes=(note, *made.notes))
        return made

    def _table_name(self) -> str:
        static = [each for each in map(static_name, self._path.split("/")) if each]
        named = [each for each in static if not _OF_NO_TABLE.fullmatch(each)]
        return identifier("_".join(named) or str(self._operation.get("operationId", "rows")))

    # The answer.

    def _answer_type(self) -> pa.DataType:
        responses = _as_mapping(self._operation.get("responses"))
        success = sorted(code for code in responses if str(code).startswith("2")) or ["default"]
        if str(success[0]) == "206":
            raise NoTable(
                "its only answer is 206, a part of the rows: give 'paging' and 'success-codes' by hand"
            )
        response = self._document.resolved(responses.get(success[0]))
        for kind, media in _as_mapping(response.get("content")).items():
            plain = str(kind).partition(";")[0].strip().lower()
            if plain in ("application/json", "text/json", "*/*", "application/*") or plain.endswith("+json"):
                if plain.endswith("+json"):
                    self._asked.options["header.Accept"] = str(kind)
                headers = map(str.lower, map(str, _as_mapping(response.get("headers"))))
                self._asked.has_link = "link" in headers
                try:
                    return self._document.kind(_as_mapping(media).get("schema"))
                except NoType as none:
                    raise NoTable(f"its answer {none}") from None
        raise NoTable("its answer is no JSON")

    # Who we are.

    def _add_security(self) -> None:
        """Let options say who asks, by references to secrets that are to be set."""
        schemes = _as_mapping(_as_mapping(self._document.root.get("components")).get("securitySchemes"))
        wanted = _as_list(self._operation.get("security", self._document.root.get("security")))
        refusals = []
        for alternative in wanted or [{}]:
            chosen = {
                str(name): self._document.resolved(schemes.get(name)) for name in _as_mapping(alternative)
            }
            refusals += [
                f"{name} is {what}" for name, each in chosen.items() if (what := _unsupported_scheme(each))
            ]
            if any(_unsupported_scheme(each) for each in chosen.values()):
                continue
            for name, scheme in chosen.items():
                self._add_scheme(scheme, _as_list(_as_mapping(alternative).get(name)))
            return
        raise NoTable(f"its security scheme {refusals[0]}, which no option follows")

    def _secret_reference(self, name: str) -> str:
        variable = f"{self._document.prefix}_{name}"
        self._secrets.add(("env", variable))
        return f"${{env:{variable}}}"

    def _add_scheme(self, scheme: Mapping[str, Any], scopes: Sequence[Any]) -> None:
        kind, place, called = (str(scheme.get(each, "")) for each in ("type", "in", "name"))
        flow = _as_mapping(_as_mapping(scheme.get("flows")).get("clientCredentials"))
        if kind == "apiKey":
            secret = self._secret_reference(identifier(called).upper())
            if place == "query":
                self._query.append(f"{quote(called)}={secret}")
            elif (
                place == "header"
                and called.lower() != "authorization"
                and "api-key" not in self._asked.options
            ):
                self._asked.options |= {"api-key": secret, "api-key-header": called}
            else:
                self._asked.options[f"header.{called}"] = secret
        elif kind == "http" and str(scheme.get("scheme", "")).lower() == "basic":
            self._asked.options |= {
                "username": self._secret_reference("USERNAME"),
                "password": self._secret_reference("PASSWORD"),
            }
        elif kind == "oauth2" and flow:
            url = urljoin(self._server_url(), str(flow.get("tokenUrl", "")))
            self._asked.options |= {
                "oauth2-token-url": url,
                "oauth2-client-id": self._secret_reference("CLIENT_ID"),
                "oauth2-client-secret": self._secret_reference("CLIENT_SECRET"),
                **({"oauth2-scope": " ".join(map(str, scopes))} if scopes else {}),
            }
        else:
            self._asked.options["token"] = self._secret_reference("TOKEN")

    # The request.

    # A reference in a document is refused: `${env:HOME}` would send a variable of the reader's to the
    # document's author. (docs/decisions/0183)
    def _server_url(self) -> str:
        if self._document.server is not None:
            return self._document.server.rstrip("/")
        places = (self._operation, self._item, self._document.root)
        servers = next((found for each in places if (found := _as_list(each.get("servers")))), ())
        server = _as_mapping(next(iter(servers), None))
        url = str(server.get("url", ""))
        for name, variable in _as_mapping(server.get("variables")).items():
            url = url.replace(f"{{{name}}}", str(_as_mapping(variable).get("default", f"{{{name}}}")))
        url = HOLE.sub(
            lambda hole: self._secret_reference(identifier(hole[1]).upper()), url.partition("#")[0]
        )
        if url.startswith("//"):
            url = f"https:{url}"  # relative to the scheme of the document's own address, which is unknown
        if not url.lower().startswith(("http://", "https://")):
            url = f"{self._secret_reference('URL')}/{url.lstrip('/')}"
        return url.rstrip("/")

    def _read_parameters(self) -> Iterator[_Parameter]:
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for node in (*_as_list(self._item.get("parameters")), *_as_list(self._operation.get("parameters"))):
            each = self._document.resolved(node)
            found[str(each.get("in")), str(each.get("name"))] = each
        for (place, name), each in found.items():
            style = each.get("style", "form" if place == "query" else "simple")
            yield _Parameter(
                name,
                place,
                self._document.resolved(each.get("schema")),
                bool(each.get("required")) or place == "path",
                bool(each.get("explode", style == "form")),
                "schema" in each and style == ("form" if place == "query" else "simple"),
            )

    def _add_key(self, parameter: _Parameter, hole: str) -> bool:
        """Let ``parameter`` be a key, where it is one value."""
        kind: pa.DataType | None = None
        with suppress(NoType):
            kind = finished(self._document.kind_of_parameter(parameter.schema), hole, [])
        if kind is not None and parameter.is_plain and not types.is_nested(kind):
            # A key is compared for equality, and texts of numbers are what a request holds.
            self._asked.keys[hole] = WIDE if types.is_float64(kind) else kind
            return True
        if parameter.is_required:
            raise NoTable(f"its parameter {parameter.name} is not one plain value")
        return False

    # A parameter that is not required and that no row says is no key. (docs/decisions/0183)
    def _add_query(self, parameter: _Parameter, members: Mapping[str, str]) -> None:
        """Ask by ``parameter`` where that is required, or a member of its name says whose a row is."""
        name, schema = parameter.name, parameter.schema
        in_url = quote(name, safe="[]$")
        if in_url in {each.partition("=")[0] for each in self._query}:
            return  # the key of the API
        if SIZE.fullmatch(name) and "enum" not in schema and name.lower() not in members:
            self._add_size(parameter, in_url)
        elif name.lower() not in members and any(each.fullmatch(name) for each in (PAGE, OFFSET, CURSOR)):
            self._asked.page_names.append(name)
            first = schema.get("default", schema.get("minimum", 1))
            if PAGE.fullmatch(name) and isinstance(first, int):
                self._asked.first_page = max(first, 0)
        elif "items" in schema:
            self._add_list(parameter, in_url, members)
        elif parameter.is_required and parameter.fixed is not None and name.lower() not in members:
            self._query.append(f"{in_url}={quote(parameter.fixed)}")
        elif (parameter.is_required or name.lower() in members) and self._add_key(parameter, name):
            self._query.append(f"{quote(name, safe='[]')}={{{name}}}")  # $filter would look like a hole
            if parameter.fixed is not None:
                self._asked.notes.append(f"where {name} is not asked by, it is {parameter.fixed!r}")
        else:
            self._left_out.append(name)

    def _add_size(self, parameter: _Parameter, in_url: str) -> None:
        given = (parameter.schema.get(each) for each in ("maximum", "default"))
        size = next((min(each, _MOST_ROWS) for each in given if isinstance(each, int) and each > 0), None)
        if size is None and not parameter.is_required:
            self._left_out.append(parameter.name)
            return
        self._asked.page_size = size or _KEYS_PER_REQUEST
        self._query.append(f"{in_url}={self._asked.page_size}")

    def _add_list(self, parameter: _Parameter, in_url: str, members: Mapping[str, str]) -> None:
        """Ask for several keys at once, where rows say whose they are; else for one."""
        name = parameter.name.removesuffix("[]")
        alike = (name.lower(), name.lower().removesuffix("s"))
        member = next((members[each] for each in alike if each in members), None)
        element = replace(parameter, schema=self._document.resolved(parameter.schema["items"]))
        hole = member or name
        if not ((member or parameter.is_required) and self._add_key(element, hole)):
            self._left_out.append(parameter.name)
            return
        self._query.append(f"{in_url}={{{hole}}}")
        if member is not None and not self._asked.lists:
            most = parameter.schema.get("maxItems")
            self._asked.lists[hole] = most if isinstance(most, int) and most > 0 else _KEYS_PER_REQUEST
            self._asked.options |= {"list-style": "repeat"} if parameter.is_exploded else {}

    def _add_header(self, parameter: _Parameter) -> None:
        name = parameter.name
        if name.lower() in ("accept", "content-type", "authorization"):
            return  # which are no parameters, as the specification says
        if not parameter.is_required:
            self._left_out.append(name)
        elif parameter.fixed is not None:
            self._asked.options[f"header.{name}"] = parameter.fixed
        else:
            self._asked.options[f"header.{name}"] = self._secret_reference(identifier(name).upper())
            self._asked.notes.append(f"the header {name} must be given")
