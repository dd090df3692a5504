"""The options of the ``http`` connector."""

from __future__ import annotations

from lookup_connectors.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.http.codes import CODES, codes
from lookup_connectors.http.judging import FAILURES
from lookup_connectors.http.paging import KINDS
from lookup_hints.spi import BOOLEAN, DURATION, FILE, SIZE, TEXT, Option, choice, integer

REQUEST = (
    Option(
        "url",
        TEXT,
        "The address; `{column}` stands for a key, encoded for its place. No column may choose the host.",
        required=True,
    ),
    Option("method", choice("get", "post"), "How the request is sent.", default="get"),
    Option("query", TEXT, "Parameters: `a=1&ids={id}`. One whose column is not asked by is left out."),
    Option("header.", TEXT, "A header; its value may name columns.", family="name"),
    Option("body", TEXT, "What a POST sends: a JSON document whose texts may name columns, or a form."),
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
)  # fmt: skip

OUTCOMES = (
    Option(
        "success-codes",
        CODES,
        "Status codes of an answer that is read.",
        default=codes("2XX,!202,!206,!207,!226"),
    ),
    Option("miss-codes", CODES, "Status codes that say that there is nothing.", default=codes("404")),
    Option(
        "transient-codes",
        CODES,
        "Status codes of failures that may pass; all others are permanent.",
        default=codes("202,408,425,429,5XX,!501,!505"),
    ),
    Option(
        "on-throttle",
        choice("wait", "fail"),
        "Where the source is asked too much (429 and the like): wait within the `timeout`, or fail.",
        default="wait",
    ),
    Option("outcome-rows", BOOLEAN, "A key without rows gets one of key and `$` columns.", default=False),
)  # fmt: skip

ERRORS = (
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
        "What such a failure is: it may pass, it does not, or the source is asked too much. By default known"
        " words in the answer decide; else it is permanent.",
    ),
    Option("error-message", TEXT, "JMESPath to what an answer says of its failure, for the error's text."),
)  # fmt: skip

LIMITS = (
    Option(
        "engine",
        choice("auto", "httpx", "fast"),
        "What sends async requests: the fast client where httptools is there and no proxy is wanted.",
        default="auto",
    ),
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
    Option("password", TEXT, "Password, for basic authentication.", secret=True),
    Option("token", TEXT, "A bearer token.", secret=True),
    Option("api-key", TEXT, "An API key, sent in a header.", secret=True),
    Option("api-key-header", TEXT, "The header of the API key.", default="X-API-Key"),
    Option("oauth2-token-url", TEXT, "Where a token is fetched, with client credentials."),
    Option("oauth2-client-id", TEXT, "The client's name."),
    Option("oauth2-client-secret", TEXT, "The client's secret.", secret=True),
    Option("oauth2-scope", TEXT, "The scope to ask for."),
    Option("oauth2-audience", TEXT, "The audience to ask for."),
    Option("oauth2-client-auth", choice("header", "body"), "Where the secret goes.", default="header"),
    Option("tls-ca", FILE, "File of the authorities to trust, on each worker."),
    Option("tls-cert", FILE, "File of the client's certificate."),
    Option("tls-key", FILE, "File of the client's private key, where it is not with the certificate."),
    Option("tls-key-password", TEXT, "Password of the private key.", secret=True),
)  # fmt: skip

OPTIONS = (*REQUEST, *RESPONSE, *OUTCOMES, *ERRORS, *LIMITS, *WHO)
