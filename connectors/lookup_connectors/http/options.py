"""The options of the ``http`` connector, and the plan that they describe.

Planning is pure: it resolves no secret and does not touch the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyarrow import types

from lookup_connectors.http.classification import FAILURES, Codes, ErrorRules, ResponseKind
from lookup_connectors.http.completeness import has_list
from lookup_connectors.http.paging import KINDS, Paging, has_room
from lookup_connectors.http.request import (
    JsonBody,
    Private,
    QueryTemplate,
    Templates,
    host_and_port,
    origin_of,
    parse_json_body,
    parse_query,
)
from lookup_connectors.http.response import ResponseReader, unreadable
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.json_paths import Path, named, parse_path
from lookup_connectors.shared.key_templates import (
    LANGUAGES,
    Template,
    TemplateError,
    can_be_spelled,
    parse_template,
)
from lookup_connectors.shared.options import option_error
from lookup_hints.errors import OptionError, Problem, nearest
from lookup_hints.spi import (
    BOOLEAN,
    DURATION,
    FILE,
    SIZE,
    TEXT,
    LookupTable,
    Option,
    OptionType,
    choice,
    integer,
)
from lookup_hints.spi.address import origin_text, resolved
from lookup_hints.spi.secrets import SECRET_HEADER, calls, has_reference

_CODES = OptionType("status codes", Codes.listed)


def _checked_charset(text: str) -> str:
    try:
        b"{}".decode(text)
    except (LookupError, UnicodeError):
        raise ValueError(f"no charset is called {text!r}") from None
    return text


REQUEST = (
    Option(
        "url",
        TEXT,
        "The address; `{column}` stands for a key, encoded for its place. No column may choose the host.",
        required=True,
    ),
    Option("method", choice("get", "post"), "How the request is sent.", default="get"),
    Option("query", TEXT, "Parameters: `a=1&ids={id}`. One whose column is no key of the join is left out."),
    Option("header.", TEXT, "A header; its value may name columns.", may_call=True, family="name"),
    Option("body", TEXT, "The body of a POST: a JSON document whose texts may name columns, or a form."),
    Option("body-format", choice("json", "form"), "How `body` is written and sent.", default="json"),
    Option("keys-per-request", integer(1, 100_000), "How many keys one request may hold.", default=1),
    Option(
        "list-columns",
        TEXT,
        "The columns that list several keys; those in `query` and `body` by default, else those in `url`.",
    ),
    Option(
        "list-style",
        choice("comma", "repeat"),
        "How a parameter lists keys: `ids=1,2` or `ids=1&ids=2`.",
        default="comma",
    ),
)  # fmt: skip

RESPONSE = (
    Option(
        "charset",
        OptionType("a charset", _checked_charset),
        "The charset of answers; by default the one that they name, else UTF-8.",
    ),
    Option("rows", TEXT, "JMESPath to the row, or the array of rows, in the response.", default="@"),
    Option("row-key", TEXT, "The rows are the members of an object; this column takes their names."),
    Option(
        "path.",
        TEXT,
        "JMESPath from a row to a column's value (its name by default), or `$status` and the like.",
        family="column",
    ),
    Option("required-columns", TEXT, "Columns that each row must have, separated by commas."),
    Option(
        "paging",
        choice(*KINDS),
        "How further pages are found; `none`: the first page is all. Where it is not set, an answer that says"
        " that there is more is an error.",
    ),
    Option("paging-path", TEXT, "JMESPath to the next URL (`next_url`) or the cursor (`cursor`)."),
    Option("paging-parameter", TEXT, "The parameter that takes the cursor, the page or the offset."),
    Option("first-page", integer(0), "Number of the first page (`page`).", default=1),
    Option("page-size", integer(1), "Rows of a full page: a shorter one is the last (`page`, `offset`)."),
    Option("max-pages", integer(1), "More pages than this are an error.", default=100),
    Option(
        "partial",
        choice("fail", "accept"),
        "Whether an answer that says that it is incomplete (a part failed, a list is cut, there are more"
        " rows) is an error, or accepted.",
        default="fail",
    ),
)  # fmt: skip

OUTCOMES = (
    Option(
        "success-codes",
        _CODES,
        "Status codes of an answer that is read.",
        default=Codes.listed("2XX,!202,!206,!207,!226"),
    ),
    Option("miss-codes", _CODES, "Status codes that say that there is nothing.", default=Codes.listed("404")),
    Option(
        "transient-codes",
        _CODES,
        "Status codes of failures that may pass; all others are permanent.",
        default=Codes.listed("202,408,425,429,5XX,!501,!505"),
    ),
    Option(
        "on-throttle",
        choice("wait", "fail"),
        "When the source reports too many requests (429 and the like): wait within the `timeout`, or fail.",
        default="wait",
    ),
    Option("outcome-rows", BOOLEAN, "A key without rows gets one of key and `$` columns.", default=False),
)  # fmt: skip

ERRORS = (
    Option(
        "miss-when",
        TEXT,
        "JMESPath that gives true, or something not empty, where an answer says that nothing was found,"
        " whatever its code. It comes before `error-when`.",
    ),
    Option(
        "error-when",
        TEXT,
        "JMESPath that gives true, or something not empty, where an answer with a success code is a failure."
        " Where it gives the name of a kind, it is one of that kind, whatever its code. By default `errors`"
        " of GraphQL are a failure, and an answer without rows that tells an error beside them.",
    ),
    Option(
        "error-kind",
        choice(*FAILURES),
        "Whether such a failure may pass, is permanent, or means too many requests. By default known"
        " words in the answer decide; else it is permanent.",
    ),
    Option("error-message", TEXT, "JMESPath to what an answer says of its failure, for the error's text."),
)  # fmt: skip

LIMITS = (
    Option("connections", integer(1, 10_000), "Connections per worker process, at most.", default=100),
    Option("request-timeout", DURATION, "Time for one request.", default=30.0),
    Option("connect-timeout", DURATION, "Time to make one connection.", default=10.0),
    Option("idle-timeout", DURATION, "Unused connections are closed after this.", default=4.0),
    Option("max-response-bytes", SIZE, "A larger response is an error.", default=16 * 1024 * 1024),
    MAX_BYTES_IN_FLIGHT,
    Option("max-redirects", integer(0, 100), "How many redirects are followed.", default=5),
    Option("allowed-origins", TEXT, "Other origins that redirects and pages may lead to (comma-separated)."),
    Option("proxy", TEXT, "URL of a proxy.", secret=True),
    Option("use-environment", BOOLEAN, "Use proxies and .netrc of the environment.", default=False),
)  # fmt: skip

WHO = (
    Option("username", TEXT, "User, for basic authentication."),
    Option("password", TEXT, "Password, for basic authentication.", secret=True, may_call=True),
    Option("token", TEXT, "A bearer token.", secret=True, may_call=True),
    Option("api-key", TEXT, "An API key, sent in a header.", secret=True, may_call=True),
    Option("api-key-header", TEXT, "The header of the API key.", default="X-API-Key"),
    Option("oauth2-token-url", TEXT, "Where a token is fetched, with client credentials."),
    Option("oauth2-client-id", TEXT, "The client's name."),
    Option("oauth2-client-secret", TEXT, "The client's secret.", secret=True, may_call=True),
    Option("oauth2-scope", TEXT, "The scope to ask for."),
    Option("oauth2-audience", TEXT, "The audience to ask for."),
    Option("oauth2-client-auth", choice("header", "body"), "Where the secret goes.", default="header"),
    Option("aws-service", TEXT, "Sign requests for this service of AWS (Signature Version 4): `dynamodb`."),
    Option("aws-region", TEXT, "The region to sign for; that of the environment by default."),
    Option("aws-access-key-id", TEXT, "The key to sign with; by default what the AWS CLI would find."),
    Option("aws-secret-access-key", TEXT, "The secret of that key.", secret=True),
    Option("aws-session-token", TEXT, "The token of a key that ends.", secret=True),
    Option("tls-ca", FILE, "File of the authorities to trust, on each worker."),
    Option("tls-cert", FILE, "File of the client's certificate."),
    Option("tls-key", FILE, "File of the client's private key, where it is not with the certificate."),
    Option("tls-key-password", TEXT, "Password of the private key.", secret=True, may_call=True),
)  # fmt: skip

OPTIONS = (*REQUEST, *RESPONSE, *OUTCOMES, *ERRORS, *LIMITS, *WHO)


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_ORIGIN = re.compile(r"https?://[^/?#{}]+(?=[/?]|$)", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_BRACES = re.compile(r"\{[^{}]*\}")
# Options that are of no use without another one.
_BELONGS = {
    "password": "username",
    "api-key-header": "api-key",
    "oauth2-client-id": "oauth2-token-url",
    "oauth2-client-secret": "oauth2-token-url",
    "oauth2-scope": "oauth2-token-url",
    "oauth2-audience": "oauth2-token-url",
    "oauth2-client-auth": "oauth2-token-url",
    "aws-region": "aws-service",
    "aws-access-key-id": "aws-service",
    "aws-secret-access-key": "aws-access-key-id",
    "aws-session-token": "aws-access-key-id",
    "tls-key": "tls-cert",
    "tls-key-password": "tls-cert",
}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Plan:
    """The parsed options of a table: its request, and how it reads responses."""

    templates: Templates
    reader: ResponseReader
    paging: Paging
    errors: ErrorRules


def plan_of(table: LookupTable) -> Plan:
    """The plan that the options of ``table`` describe.

    Raises:
        OptionError: all that is wrong with them, at once.
    """
    return _HttpPlanning(table).plan()


class _HttpPlanning:
    def __init__(self, table: LookupTable) -> None:
        self._table = table
        self._options = table.options
        self._names = table.schema.names
        self._problems: list[Problem] = []

    def plan(self) -> Plan:
        templates = self._read_templates()
        reader = self._response_reader(templates)
        paging = self._read_paging(templates.body)
        kind = self._choice_of("error-kind", "")
        errors = ErrorRules(
            self._read_path("miss-when"),
            bool(templates.lists),
            self._read_path("error-when"),
            cast("ResponseKind", kind) if kind in FAILURES else None,
            self._read_path("error-message"),
        )
        self._check_keys(templates, reader)
        self._check_credentials()
        allowed = self._option_text("allowed-origins")
        if not has_reference(allowed):
            self._parse_option("allowed-origins", allowed, origins, frozenset[str]())
        if self._problems:
            raise OptionError(self._problems)
        return Plan(templates, reader, paging, errors)

    # Problems.

    def _add_problem(self, what: str, tip: str = "") -> None:
        self._problems.append(Problem(f"table {self._table.name}: {what}.".replace("..", "."), tip=tip))

    def _parse_option(self, key: str, text: str, parse: Callable[[str], _T], otherwise: _T) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            self._add_problem(f"{key!r}: {error}", error.tip if isinstance(error, TemplateError) else "")
            return otherwise

    def _option_text(self, key: str) -> str:
        return self._options.get(key, "")

    def _find_column(self, key: str, name: str) -> str | None:
        """The column ``name`` of the option ``key``, ignoring case."""
        found = next((each for each in self._names if each.lower() == name.lower()), None)
        if found is None:
            self._add_problem(f"{key!r}: there is no column {name!r}", nearest(name, self._names))
        return found

    def _find_columns(self, key: str) -> frozenset[str]:
        """The columns that an option lists."""
        given = (name.strip() for name in self._option_text(key).split(",") if name.strip())
        found = [self._find_column(key, name) for name in given]
        return frozenset(name for name in found if name is not None)

    def _options_with_prefix(self, prefix: str) -> list[tuple[str, str, str]]:
        """The options that begin with ``prefix``: each with the rest of its name, and its text."""
        return [
            (key, key[len(prefix) :], text) for key, text in self._options.items() if key.startswith(prefix)
        ]

    # The request.

    def _read_templates(self) -> Templates:
        url = self._option_text("url")
        address = url[: len(_blank_braces(url).partition("?")[0])]  # as long as it is
        in_url = url[len(address) + 1 :]
        none = Template(())
        path = self._parse_option(
            "url", address, lambda text: parse_template(text, self._names, "path"), none
        )
        self._check_address(path)
        repeated = self._choice_of("list-style", "comma") == "repeat"

        def parsed_query(text: str, start: int = 0) -> QueryTemplate:
            if "#" in _blank_braces(text):
                raise ValueError("a fragment ('#') is never sent; write %23")
            return parse_query(text, self._names, repeated=repeated, start=start)

        none_asked = QueryTemplate((), repeated)
        start = len(address) + 1
        said = self._parse_option("url", in_url, lambda text: parsed_query(text, start), none_asked)
        more = self._parse_option("query", self._option_text("query"), parsed_query, none_asked)
        query = QueryTemplate((*said.parameters, *more.parameters), repeated)
        headers = self._read_headers()
        body = self._read_body(parsed_query, headers)
        method = "POST" if self._choice_of("method", "get") == "post" else "GET"
        if body is not None and method == "GET":
            self._add_problem("'body' is sent by POST alone", "Set 'method' = 'POST'.")
        lists = self._list_columns(path, query, body)
        referring = (
            name.lower() for _, name, text in self._options_with_prefix("header.") if has_reference(text)
        )
        private = Private(frozenset(referring), has_reference(self._option_text("body")))
        return Templates(method, path, query, headers, body, lists, private)

    def _choice_of(self, key: str, default: str) -> str:
        return self._options.get(key, default).strip().lower().replace("-", "_")

    def _read_headers(self) -> dict[str, Template]:
        headers: dict[str, Template] = {}
        for key, name, text in self._options_with_prefix("header."):
            if not _HEADER_NAME.fullmatch(name):
                self._add_problem(f"{key!r}: this is not a name of a header")
            if SECRET_HEADER.fullmatch(name) and not has_reference(text):
                self._add_problem(
                    f"{key!r}: a secret may not stand in the text of a statement",
                    "Write '${env:NAME}' or '${file:path}'; or use 'token', 'password' or 'api-key'.",
                )
            if calls(text):
                if _BRACES.search(_REFERENCE.sub("", text)):
                    self._add_problem(
                        f"{key!r}: a header with ${{call:}} names no column", "Use a header for each."
                    )
                for other in ("oauth2-token-url", "aws-service"):
                    if other in self._options:
                        twice = f"{key!r} and {other!r} are different ways to say who we are"
                        self._add_problem(twice, "Give one.")
                continue
            headers[name] = self._parse_option(
                key, text, lambda text: parse_template(text, self._names, "text"), Template(())
            )
        return headers

    def _read_body(
        self, parsed_query: Callable[[str], QueryTemplate], headers: dict[str, Template]
    ) -> JsonBody | QueryTemplate | None:
        if "body" not in self._options:
            return None
        is_form = self._choice_of("body-format", "json") == "form"
        if not any(name.lower() == "content-type" for name in headers):
            kind = "application/x-www-form-urlencoded" if is_form else "application/json"
            headers["Content-Type"] = Template((kind,))
        if is_form:
            return self._parse_option("body", self._option_text("body"), parsed_query, QueryTemplate(()))
        parse: Callable[[str], JsonBody] = lambda text: parse_json_body(text, self._names)  # noqa: E731
        return self._parse_option("body", self._option_text("body"), parse, JsonBody(None))

    def _list_columns(
        self, path: Template, query: QueryTemplate, body: JsonBody | QueryTemplate | None
    ) -> frozenset[str]:
        if self._option_text("keys-per-request").strip() in ("", "1"):
            if "list-columns" in self._options:
                self._add_problem("'list-columns' is for several keys per request", "Set 'keys-per-request'.")
            return frozenset()
        in_text = frozenset({*query.columns, *(body.columns if body else ())})
        named_lists = self._find_columns("list-columns")
        lists = named_lists or in_text or frozenset(path.columns)
        strangers = lists - in_text - set(path.columns)
        for name in sorted(strangers):
            self._add_problem(f"'list-columns': nothing in the request names {name!r}", f"Write {{{name}}}.")
        return lists

    def _check_address(self, path: Template) -> None:
        """No key may choose whom we talk to."""
        if self._problems:
            return  # there is no address to check
        start = path.parts[0] if path.parts and isinstance(path.parts[0], str) else ""
        if has_reference(start):
            # Checked again when it is resolved, on the worker.
            if path.columns and not re.search(r"\}[^{]*/", start):
                self._add_problem("'url': a '/' must stand between the reference and the first column")
            return
        try:
            check_address(path)
        except ValueError as error:
            self._add_problem(f"'url': {error}")

    # The response.

    def _response_reader(self, templates: Templates) -> ResponseReader:
        sources = self._column_sources()
        rows = self._parse_option("rows", self._options.get("rows", "@"), parse_path, named("@"))
        row_key = next(iter(self._find_columns("row-key")), None)
        required = self._find_columns("required-columns")
        given = {key.lower() for key in self._options}
        for column in self._table.schema:
            if problem := unreadable(column, sources[column.name]):
                self._add_problem(f"column {column.name!r}: {problem}")
        said = frozenset(name for name in self._names if name == row_key or f"path.{name.lower()}" in given)
        of_rows = {*self._names} - (templates.columns - said) - {row_key}
        takes_part = self._choice_of("partial", "fail") == "accept"
        return ResponseReader(
            table=self._table.name,
            rows=rows,
            row_key=row_key,
            sources=sources,
            required=required,
            said=said,
            exact=any(_has_decimal(field.type) for field in self._table.schema),
            takes_part=takes_part,
            lists=frozenset(
                each.name for each in self._table.schema if has_list(each.type) and each.name in of_rows
            )
            if not takes_part
            else frozenset(),
            charset=self._option_text("charset"),
            unseen=dict.fromkeys(of_rows, 0),
        )

    def _column_sources(self) -> dict[str, Path | str]:
        sources: dict[str, Path | str] = {name: named(name) for name in self._names}
        for key, name, text in self._options_with_prefix("path."):
            column = self._find_column(key, name)
            if column is not None:
                is_metadata = text.startswith("$")
                sources[column] = (
                    text.strip().lower()
                    if is_metadata
                    else self._parse_option(key, text, parse_path, named(column))
                )
        return sources

    def _read_paging(self, body: JsonBody | QueryTemplate | None) -> Paging:
        kind = self._choice_of("paging", "")
        wants = {
            "next_url": ("paging-path",),
            "cursor": ("paging-path", "paging-parameter"),
            "page": ("paging-parameter",),
            "offset": ("paging-parameter",),
        }.get(kind, ())
        for key in ("paging-path", "paging-parameter"):
            if (key in wants) != (key in self._options):
                verb = "needs" if key in wants else "does not take"
                self._add_problem(f"'paging' = {kind or 'none'!r} {verb} {key!r}")
        parameter = self._option_text("paging-parameter")
        if parameter and isinstance(body, JsonBody) and not has_room(body.document, parameter):
            self._add_problem(f"'paging-parameter': {parameter!r} cannot become a member of 'body'")
        return Paging(
            kind=kind,
            path=self._read_path("paging-path"),
            parameter=parameter,
            first=_whole_number(self._option_text("first-page"), 1),
            size=_whole_number(self._option_text("page-size"), 0) or None,
            most=_whole_number(self._option_text("max-pages"), 100),
            in_form=isinstance(body, QueryTemplate),
        )

    def _read_path(self, key: str) -> Path | None:
        text = self._option_text(key)
        return self._parse_option(key, text, parse_path, None) if text else None

    # All together.

    def _check_keys(self, templates: Templates, reader: ResponseReader) -> None:
        if not templates.columns and not self._problems:
            self._add_problem(
                "no part of the request names a column, so every key would ask the same",
                "Write {column} in 'url', 'query', 'body' or a header.",
            )
        texts = {column.name for column in self._table.schema if types.is_string(column.type)}
        for name, quote in sorted(set(templates.unsafe_holes(texts))):
            language = "odata" if quote == "'" else "json"
            self._add_problem(
                f"column {name!r} stands between quotes, and a key that holds {quote} would end them",
                f"Write {{{name}|{language}}}, or name another language: {', '.join(LANGUAGES)}."
                f" {{{name}|url}} sends it as it is.",
            )
        for name in sorted(templates.columns):
            kind = self._table.schema.field(name).type
            if not can_be_spelled(kind):
                self._add_problem(f"column {name!r} cannot stand in a request: {kind} has no text")
            if isinstance(reader.sources[name], str):
                self._add_problem(f"column {name!r} is metadata, and cannot stand in a request")

    def _check_credentials(self) -> None:
        ways = [
            key
            for key in ("username", "token", "api-key", "oauth2-token-url", "aws-service")
            if key in self._options
        ]
        if len(ways) > 1:
            self._add_problem(
                f"{' and '.join(map(repr, ways))} are different ways to say who we are", "Give one."
            )
        for key, to in _BELONGS.items():
            if key in self._options and to not in self._options:
                self._add_problem(f"{key!r} is of no use without {to!r}")
        if "aws-access-key-id" in self._options and "aws-secret-access-key" not in self._options:
            self._add_problem("'aws-access-key-id' needs 'aws-secret-access-key'")
        for key in ("oauth2-client-id", "oauth2-client-secret"):
            if "oauth2-token-url" in self._options and key not in self._options:
                self._add_problem(f"'oauth2-token-url' needs {key!r}")


def check_address(address: Template) -> str:
    """The origin that ``address`` leads to.

    Raises:
        ValueError: it leads nowhere, or a column could choose where.
    """
    start = address.parts[0] if address.parts and isinstance(address.parts[0], str) else ""
    match = _ORIGIN.match(start)
    if match is None and start.lower().startswith(("http://", "https://")) and address.columns:
        raise ValueError("a column may not choose the host")
    if match is None:
        raise ValueError("write an absolute URL: https://host/path")
    if match.end() == len(start) and address.columns:
        raise ValueError("a '/' must stand between the host and the first column")
    if "@" in match[0]:
        raise ValueError("write the user and the password in 'username' and 'password'")
    if any("#" in part for part in address.parts if isinstance(part, str)):
        raise ValueError("a fragment ('#') is never sent; write %23")
    return origin_of(match[0])


def origin_and_user(table: LookupTable) -> str:
    """The owner of the budgets of ``table``; empty if a reference cannot be resolved here."""
    with suppress(OptionError, ValueError):
        user = resolved(table, "username") or resolved(table, "oauth2-client-id")
        return origin_text(origin_of(resolved(table, "url")), user)
    return ""


def origins(text: str) -> frozenset[str]:
    """The origins that ``text`` lists."""
    given = [each.strip() for each in text.split(",") if each.strip()]
    if any(re.fullmatch(r"[^@]*//[^/?#@]*/?", each) is None for each in given if "://" in each):
        raise ValueError("write scheme, host and port alone: https://host:443")
    return frozenset(map(origin_of, given))


def _blank_braces(text: str) -> str:
    """``text`` without the references and columns in braces."""
    return _BRACES.sub(lambda match: "_" * len(match[0]), text)


def _whole_number(text: str, default: int) -> int:
    return int(text) if text.strip().isdigit() else default


def _has_decimal(kind: pa.DataType) -> bool:
    if types.is_nested(kind):
        return any(_has_decimal(kind.field(position).type) for position in range(kind.num_fields))
    return bool(types.is_decimal(kind))


# --- whom to connect to ---------------------------------------------------------------------------

_URLS = ("url", "oauth2-token-url", "proxy")


def check_options(table: LookupTable) -> None:
    """Refuse options of ``table`` that do not fit together, or that cannot be read on the driver."""
    for option in (*REQUEST, *RESPONSE, *ERRORS):  # they decide about the plan: references are read too late
        in_request = option.key in ("url", "query", "header.", "body")
        if not in_request and has_reference(table.options.get(option.key, "")):
            raise option_error(table, f"{option.key!r} may not be a reference")
    plan_of(table)
    check_other_urls(table, table.options)
    check_hosts(table, lambda option: _plain_origin(table.options.get(option, "")))


def check_other_urls(table: LookupTable, given: Mapping[str, Any]) -> None:
    """Refuse parts of the URLs of tokens and proxies that would be ignored."""
    for option in ("oauth2-token-url", "proxy"):
        text = _blank_braces(given.get(option) or "")
        authority, _, rest = text.partition("://")[2].partition("/")
        if "#" in text:
            raise option_error(table, f"{option!r}: a '#' ends an address; in a password it is %23")
        if option == "proxy" and ("?" in text or rest):
            raise option_error(
                table, f"{option!r}: a proxy has no path; in a password '/' is %2F and '?' is %3F"
            )
        if option != "proxy" and "@" in authority:
            raise option_error(
                table, f"{option!r}: write who we are in 'oauth2-client-id' and 'oauth2-client-secret'"
            )


def check_hosts(table: LookupTable, url_of: Callable[[str], str | None]) -> None:
    """Refuse to talk to a host that is not allowed; ``url_of`` gives the URL of an option, if it has one."""
    for option in _URLS:
        url = url_of(option)
        if not url:
            continue
        try:
            host, port = host_and_port(url)
        except ValueError:
            raise option_error(table, f"{option!r}: write an absolute URL: https://host/path") from None
        table.check_host(host, port, option=option)


def _plain_origin(url: str) -> str | None:
    """Scheme, host and port of ``url`` as they are written; None where a reference says them."""
    match = re.match(r"\w+://[^/?#]*", _REFERENCE.sub(lambda reference: "$" * len(reference[0]), url))
    return None if match is None or "$" in match[0] else match[0]
