"""``lookup-hints import``: reads the document, asks the source, and prints the statements."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import pyarrow as pa

from lookup_hints.cli.arguments import FAILED, WELL, WrongUse
from lookup_hints.cli.import_http_tables import (
    HOLE,
    Imported,
    KeyedRequest,
    NoTable,
    NoType,
    find_rows,
    http_table,
    identifier,
    last_name,
    type_of,
    with_holes,
)
from lookup_hints.cli.import_openapi import Refused, read
from lookup_hints.errors import ConnectorError, LookupHintsError, nearest
from lookup_hints.spi import Connector, ReportsSchema, ShowsAnswers
from lookup_hints.spi.option_values import hidden_keys
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import has_reference, known_secrets, masked, masked_text, masker, references
from lookup_hints.spi.security_policy import Policy
from lookup_hints.tables.catalog import build_connector, why_no_columns
from lookup_hints.tables.ddl import create_statement
from lookup_hints.tables.registry import connector_class

_T = TypeVar("_T")
ImportResults = Iterator[Imported | Refused]

_SECRET_NAME = re.compile(
    r".*(auth(?!or)|cookie|session|token|secret|password|credential|signature|apikey).*|(.*[-_])?key|sig|code",
    re.IGNORECASE,
)


def run_import(options: argparse.Namespace) -> int:
    """Print the CREATE statements of lookup tables: for an OpenAPI document, for the answer of an API to one
    request, or for the tables of a database. Secrets are left to variables of the environment."""
    ways: dict[str, Callable[[argparse.Namespace, _GivenOptions], ImportResults]] = {
        "document": _import_from_document,
        "sample": _import_from_sample,
        "url": _import_from_database,
    }
    asked = [way for name, way in ways.items() if getattr(options, name) is not None]
    if len(asked) != 1:
        raise WrongUse("Give one of: an OpenAPI document, --sample URL, --url DATABASE.")
    printed = 0
    with _GivenOptions() as given:
        given.read(options)
        for found in asked[0](options, given):
            if isinstance(found, Imported):
                found = _check_imported(found)
            if isinstance(found, Refused):
                why = found.why.removeprefix(f"table {found.operation}: ")
                print(_to_one_line(f"no table: {found.operation}: {why}"), file=sys.stderr)
                continue
            texts = found.table.options.values()
            variables = {name: None for text in texts for kind, name in references(text) if kind == "env"}
            notes = [*([f"to be set: {', '.join(variables)}"] if variables else []), *found.notes]
            comments = "".join(f"-- {_to_one_line(note)}\n" for note in notes)
            print(f"{comments}{create_statement(found.table, ())};\n", flush=True)
            printed += 1
    return WELL if printed else FAILED


def _check_imported(found: Imported) -> Imported | Refused:
    """``found``, where `check` accepts it and its statement shows all of it."""
    name = found.table.name
    try:
        build_connector(found.table)
    except LookupHintsError as error:
        return Refused(name, str(error))
    hidden = [key for key, text in found.table.options.items() if masked_text(text) != text]
    return Refused(name, f"{hidden[0]!r} looks as if it held a password") if hidden else found


def _to_one_line(text: str) -> str:
    """``text`` in one line: a name in a document may have line breaks."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class _GivenOptions:
    """The options given for the table, with secrets replaced by references to variables.

    Inside of its block these have their values, as they will when the statement is used.
    """

    def __init__(self) -> None:
        self.place: dict[str, str] = {}
        self.options: dict[str, str] = {}
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> _GivenOptions:
        return self

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})

    def read(self, options: argparse.Namespace) -> None:
        """Read the address of the source, ``--option`` and ``--header``."""
        self.place = {"connector": "http"} if options.url is None else _options_of_url(options.url, self)
        known = connector_class(self.place["connector"]).OPTIONS
        for key, value in _read_pairs(options.option, "--option"):
            self.options[key] = self.hidden(key, value) if hidden_keys([key], known) else value
        for name, value in _read_pairs(options.header, "--header", ":"):
            scheme, _, token = value.partition(" ")
            if name.lower() == "authorization" and scheme.lower() == "bearer":
                self.options["token"] = self.hidden("token", token.strip())
            else:
                is_secret = _SECRET_NAME.fullmatch(name) is not None
                self.options[f"header.{name}"] = self.hidden(name, value) if is_secret else value

    def hidden(self, name: str, value: str, prefix: str = "API") -> str:
        if has_reference(value):
            return value
        variable = f"LOOKUP_{prefix}_{identifier(name).upper()}"
        while variable in self._before and os.environ[variable] != value:
            variable += "_2"
        self._before.setdefault(variable, os.environ.get(variable))
        os.environ[variable] = value
        return f"${{env:{variable}}}"


def _read_pairs(texts: Sequence[str], option: str, sign: str = "=") -> Iterator[tuple[str, str]]:
    for text in texts:
        name, found, value = text.partition(sign)
        if not (found and name.strip()):
            raise WrongUse(f"{option} needs NAME{sign}VALUE")
        yield name.strip(), value.strip()


def _ask_masked(connector: Connector, ask: Callable[[], _T]) -> _T:
    """The result of ``ask``, with secrets of ``connector`` masked in its errors."""
    try:
        return ask()
    except Exception as error:
        clean = masked(error, masker(known_secrets(connector)))
    raise clean


# --- a document -----------------------------------------------------------------------------------


def _import_from_document(options: argparse.Namespace, given: _GivenOptions) -> ImportResults:
    try:
        found = read(
            _parse_document(options.document), options.path or "*", options.operation or "*", options.server
        )
        for each in found:
            if isinstance(each, Imported):
                each = replace(each, table=_with_options(each.table, given.options))
            yield each
    except NoTable as none:
        raise WrongUse(f"{options.document}: {none}") from None


def _with_options(table: LookupTable, more: Mapping[str, str]) -> LookupTable:
    return replace(table, options={**table.options, **more})


def _parse_document(file: str) -> Mapping[str, Any]:
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        first = text.lstrip()[:1]
        if first in ("", "<"):
            what = "HTML or XML" if first else "empty"
            raise WrongUse(f"{file} is {what}, and no OpenAPI document. Try: the file behind /openapi.json")
        document = json.loads(text) if first in "{[" else _from_yaml(text, file)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise WrongUse(f"{file} cannot be read: {why}") from None
    if not isinstance(document, dict):
        raise WrongUse(f"{file} is no OpenAPI document.")
    return document


def _from_yaml(text: str, file: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise WrongUse(f"{file} is YAML, which needs the package PyYAML. Try: pip install pyyaml") from None
    try:
        # Through JSON, so that codes of responses become texts.
        return json.loads(json.dumps(yaml.load(text, _core_schema(yaml))))  # noqa: S506
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def _core_schema(yaml: Any) -> Any:
    """A safe loader with the words of YAML 1.2, as OpenAPI asks for: `on`, `no` and dates are texts."""
    loader: Any = type("CoreLoader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    for kind, words, begins in (
        ("null", "~|null|Null|NULL|", ("~", "n", "N", "")),
        ("bool", "true|True|TRUE|false|False|FALSE", tuple("tTfF")),
        ("int", "0|-?[1-9][0-9]*", tuple("-0123456789")),
        ("float", r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", tuple("-0123456789")),
        ("merge", "<<", ("<",)),
    ):
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{words})\Z"), begins)
    return loader


# --- a sample -------------------------------------------------------------------------------------


def _import_from_sample(options: argparse.Namespace, given: _GivenOptions) -> ImportResults:
    keys = {identifier(name): value for name, value in _read_pairs(options.key, "--key")}
    holes = {name: identifier(name) for name in HOLE.findall(options.sample)}
    if set(keys) != set(holes.values()) or not keys:
        wanted = ", ".join(f"--key {name}=..." for name in holes) or "a {name} in the URL, and its --key"
        raise WrongUse(f"Each {{name}} in the URL of --sample needs a key, and no other: {wanted}")
    url = _without_secrets(with_holes(options.sample, holes), given)
    is_whole = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII).fullmatch
    values = {name: int(value) if is_whole(value) else value for name, value in keys.items()}
    kinds = {name: pa.string() if isinstance(value, str) else pa.int64() for name, value in values.items()}
    once = {"max-redirects": "0", "on-throttle": "fail"}
    table = LookupTable(
        identifier(options.table or last_name(url) or "rows"),
        pa.schema(list(kinds.items())),
        options={"connector": "http", "url": url, **once, **given.options},
        policy=Policy(),
    )
    connector = build_connector(table)
    assert isinstance(connector, ShowsAnswers)
    answered = _ask_masked(connector, lambda: connector.answer_to(values))
    if answered is None or answered[0] is None:
        raise ConnectorError(f"{url}: nothing answers this key. Give one that has a row.", permanent=True)
    document, headers = answered
    try:
        answer = type_of(document)
        found = reduce(getitem, find_rows(answer, last_name(url)).way, document)
        rows = [row for row in (found if isinstance(found, list) else [found]) if isinstance(row, dict)]

        def says(key: str, member: str) -> bool:
            return all(str(row.get(member)) == keys[key] for row in rows)

        path, _, query = url.partition("?")
        in_path = [name for name in keys if f"{{{name}}}" in path]
        asked = KeyedRequest(table.name, url, kinds, in_path, says, options=given.options)
        asked.page_names = list(dict(parse_qsl(query)))
        asked.has_link = 'rel="next"' in headers.get("link", "")
        yield http_table(asked, answer)
    except (NoTable, NoType) as none:
        why = none if isinstance(none, NoTable) else f"its answer {none}"
        yield Refused(options.sample.partition("?")[0], str(why))


def _without_secrets(url: str, given: _GivenOptions) -> str:
    def hidden(match: re.Match[str]) -> str:
        sign, name, value = match.groups()
        is_secret = _SECRET_NAME.fullmatch(name) or masked_text(match[0]) != match[0]
        return f"{sign}{name}={given.hidden(name, value)}" if is_secret and "{" not in value else match[0]

    return re.sub(r"([?&])([^=&]+)=([^&]+)", hidden, url)


# --- a database -----------------------------------------------------------------------------------


def _import_from_database(options: argparse.Namespace, given: _GivenOptions) -> ImportResults:
    place = {**given.place, **given.options}
    everything = LookupTable("database", pa.schema([]), options=place, policy=Policy())
    source = build_connector(everything)
    assert isinstance(source, ReportsSchema)
    names = list(_ask_masked(source, source.tables))
    pattern = options.table or "*"
    plain = {name: name.replace('"', "") for name in names}
    if "." not in pattern:
        plain = {name: text.rpartition(".")[2] for name, text in plain.items()}
    wanted = [name for name in names if fnmatchcase(plain[name], pattern)]
    if not wanted:
        tip = nearest(pattern, [*plain.values()])
        raise ConnectorError(f"No table is called {pattern!r}. {tip}".rstrip(), permanent=True)
    short = {name: identifier(name.rpartition(".")[2].strip('"')) for name in wanted}
    often = Counter(each.lower() for each in short.values())
    for name in wanted:
        called = short[name] if often[short[name].lower()] == 1 else identifier(name)
        yield _discover_table(replace(_with_options(everything, {"table-name": name}), name=called))


def _options_of_url(url: str, given: _GivenOptions) -> dict[str, str]:
    scheme, found, rest = url.partition("://")
    kind = scheme.partition("+")[0]  # SQLAlchemy names its driver, too
    if kind in ("mysql", "mariadb"):
        return {"connector": "mysql", "url": given.hidden("URL", url, "DATABASE")}
    if has_reference(url) or kind in ("postgresql", "postgres") or re.match(r"\s*\w+\s*=", url):
        return {"connector": "postgres", "url": given.hidden("URL", url, "DATABASE")}
    file = rest[1:] if found else url
    if scheme == "duckdb":
        return {"connector": "adbc", "driver": "adbc_driver_duckdb", "uri": file}
    if scheme == "sqlite" or not found:
        return {"connector": "sqlite", "path": file}
    raise WrongUse(
        f"--url: no connector reads {scheme}://. There are postgresql://, mysql://, sqlite:/// and duckdb:///."
    )


def _discover_table(table: LookupTable) -> Imported | Refused:
    try:
        connector = build_connector(table)
        assert isinstance(connector, ReportsSchema)
        schema, key = _ask_masked(connector, connector.discover)
    except LookupHintsError as error:
        return Refused(table.options["table-name"], str(error))
    if wrong := why_no_columns(schema):
        return Refused(table.options["table-name"], wrong)
    return Imported(replace(table, schema=schema, primary_key=key))
