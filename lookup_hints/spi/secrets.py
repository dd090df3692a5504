"""References to secrets in option values, and keeping what they stand for out of sight.

``${env:NAME}`` and ``${file:path}`` are read late, on the machine that connects. ``${conf:key}`` is
read from Spark's configuration on the driver, as workers have none, and travels inside the pickled
connector only. ``${call:package.module:function}`` is called where and when a connection is opened.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path
from traceback import extract_tb, format_exception
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote

from lookup_hints.errors import (
    AnswerError,
    ConnectorError,
    InternalError,
    LookupHintsError,
    LookupTimeout,
    OptionError,
    Problem,
    QueryError,
    TooManyRequests,
)
from lookup_hints.spi.called_functions import called_function

if TYPE_CHECKING:
    from lookup_hints.spi.connector import Connector

MASK = "***"
# No expression here looks at a character more than a few times: errors hold what servers send, at any length.
_REFERENCE = re.compile(r"\$\{(env|file|conf|call):((?:[^}$]|\$(?!\{))*)\}")
_URL = re.compile(r"[A-Za-z][\w+.-]*://\S*")
_BRACES = r"\$\{(?:[^}$]|\$(?!\{))*\}"
_URL_USER = re.compile(rf"(?<=://)(?:{_BRACES}|[^/@\s:$]|\$(?!{_BRACES}))*:")  # who may be a reference
_WORD = re.compile(r"\S*")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+|[^%]+|%")
_NAMED_PASSWORD = re.compile(
    r"""
    (?P<in_url>[?&])?
    (?<![\w.-]) [\w.-]*
    (?: password | passwd | passphrase | pwd | secret | token | credentials?
      | (?: access | account | api | auth | private | secret ) [_-]? key )
    (?: ["'`]? \s* = \s* | ["'] \s* : \s* )
    (?P<value> (?(in_url) [^&\s]*
      | (?: '(?: \\. | '' | [^'] )*'? | "(?: \\. | "" | [^"] )*"? | (?: \\. | \S )+ ) ) )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


SECRET_HEADER = re.compile(
    r"(proxy-)?authorization|cookie|.*(token|secret|api-?key|password).*", re.IGNORECASE
)
"""Names of headers that hold secrets."""


class Secret:
    """A text that never shows itself: ``repr`` and ``str`` give a mask; ``reveal()`` gives the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one call that needs it."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class HiddenValues(dict[str, str]):
    """Texts by name, of which ``repr`` and ``str`` show the names alone: some of them may be secrets.

    >>> HiddenValues(password="hunter2")
    {'password': ***}
    """

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, Secret("")))


def has_reference(text: str) -> bool:
    """Whether ``text`` holds a ``${env:}``, ``${file:}``, ``${conf:}`` or ``${call:}`` reference."""
    return _REFERENCE.search(text) is not None


def references(text: str) -> list[tuple[str, str]]:
    """Kind and name of each reference in ``text``.

    >>> references("https://${env:HOST}/${file:/run/secrets/path}")
    [('env', 'HOST'), ('file', '/run/secrets/path')]
    """
    return _REFERENCE.findall(text)


def conf_references(text: str) -> list[str]:
    """The configuration keys that ``text`` refers to with ``${conf:key}``."""
    return [name for kind, name in references(text) if kind == "conf"]


def calls(text: str) -> list[str]:
    """The functions that ``text`` refers to with ``${call:package.module:function}``."""
    return [name for kind, name in references(text) if kind == "call"]


def resolve(
    text: str,
    conf: Mapping[str, Secret],
    *,
    option: str,
    table: str,
    known: set[str],
    place_of: Callable[[str], str] = str,
    calling: bool = False,
) -> str:
    """``text`` with its references replaced; each value read is added to ``known``, for masking.

    Args:
        text: the value of an option.
        conf: values of the ``${conf:key}`` references.
        option: its name, for messages.
        table: the name of the table that it belongs to, for messages.
        known: where the values read are added.
        place_of: where the file of a ``${file:path}`` is; may refuse.
        calling: whether functions may be called; else a ``${call:}`` stays as it is written.

    Raises:
        OptionError: a reference names nothing; the message names table, option and reference.
        ConnectorError: a function raised.
    """

    def value_of(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "call" and not calling:
            return match[0]
        try:
            if kind == "call":
                value = called_function(name).value(option, table)
            elif kind == "env":
                value = os.environ[name]
            elif kind == "file":
                value = Path(place_of(name)).read_text(encoding="utf-8").rstrip("\r\n")
            else:
                value = conf[name].reveal()
        except (KeyError, OSError) as error:
            # The option comes last, as masks look behind its name.
            what, where = f"the {REFERENCE_KINDS[kind]} {name!r}", f"on {socket.gethostname()}"
            why = f"Table {table}: {what} cannot be read {where}, for the option {option!r}."
            raise OptionError(Problem(why, tip=_TIPS.get(kind, "").format(name=name))) from (
                None if kind != "file" else error
            )
        known.add(value)
        return value

    return _REFERENCE.sub(value_of, text)


REFERENCE_KINDS = {
    "env": "environment variable",
    "file": "file",
    "conf": "Spark configuration key",
    "call": "function",
}
_TIPS = {
    "env": "Set it before Python starts there; for executors by the configuration spark.executorEnv.{name}.",
    "file": "Put it there, readable for the user of that process, or ship it with --files.",
}


def secret_parts(text: str, *, declared: bool = False) -> list[tuple[int, int]]:
    """What of ``text`` may not be shown: passwords in URLs and DSNs, and no references.

    Args:
        text: the value of an option.
        declared: whether its connector says that the option is a secret: all of it, unless it is a URL.
    """
    if declared and not (_URL.fullmatch(text) or _REFERENCE.fullmatch(text)):
        return [(0, len(text))]
    return _password_places(text)


def masked_text(text: str, *, declared: bool = False) -> str:
    """``text`` with a mask in the place of its secret parts."""
    out, at = [], 0
    for start, end in secret_parts(text, declared=declared):
        # Two may overlap: a password can look like the beginning of another.
        out += [text[at:start], MASK] if start >= at else []
        at = max(at, end)
    return "".join([*out, text[at:]])


def masker(secrets: set[str]) -> Callable[[str], str]:
    """A function that masks each of ``secrets`` (and the passwords of URLs and DSNs) in a message.

    They are found in capitals and small letters (a host's name is folded), and percent-encoded in any way.
    """
    parts = {
        part.casefold() for secret in secrets for part in _forms_of_secret(secret) if len(part) >= _SHORTEST
    }
    parts = {part for part in parts if len(part) >= _SHORTEST}

    def mask(message: str) -> str:
        if not parts:
            return masked_text(message)
        folded, starts, ends = _fold_and_decode(message)
        places = sorted(
            (starts[at], ends[at + len(part) - 1]) for part in parts for at in _find_all(part, folded)
        )
        out, at = [], 0
        for start, end in places:
            # Two may overlap: one secret can be a piece of another, or end as another begins.
            out += [message[at:start], MASK] if start >= at else []
            at = max(at, end)
        return masked_text("".join([*out, message[at:]]))

    return mask


_SHORTEST = 3
_PREFIXES = 16


# Not by a regular expression: to compile one of a long secret takes longer than to look for it.
def _find_all(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def _fold_and_decode(message: str) -> tuple[str, list[int], list[int]]:
    """``message`` decoded and in small letters, and where each of these began and ended."""
    letters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for match in _PERCENT.finditer(message):
        at = match.start()
        encoded = match[0].startswith("%") and len(match[0]) > 1
        text = unquote(match[0], errors="surrogateescape") if encoded else match[0]
        for letter in text:
            width = 3 * len(letter.encode("utf-8", "surrogateescape")) if encoded else 1
            small = letter.casefold()
            letters.append(small)
            starts += [at] * len(small)
            ends += [at + width] * len(small)
            at += width
    return "".join(letters), starts, ends


def _password_places(text: str) -> list[tuple[int, int]]:
    """Where the values of passwords stand in ``text``, in order; those that are references are left out."""
    named = (match.span("value") for match in _NAMED_PASSWORD.finditer(text))
    return sorted(
        (start, end)
        for start, end in (*_url_passwords(text), *named)
        if start < end and _REFERENCE.fullmatch(text, start, end) is None
    )


def _url_passwords(text: str) -> Iterator[tuple[int, int]]:
    """What stands between the user and the last @ of a URL."""
    word_end = last_at = -1
    for user in _URL_USER.finditer(text):
        if user.end() >= word_end:
            word = _WORD.match(text, user.end())
            word_end = word.end() if word else user.end()
            last_at = text.rfind("@", user.end(), word_end)
            if last_at >= 0:
                yield user.end(), last_at


def _forms_of_secret(secret: str) -> set[str]:
    """A secret as drivers may print it: whole, its passwords, and each URL-encoded and decoded."""
    passwords = {secret[start:end] for start, end in _password_places(secret)}
    # Where an @ follows later, readers of URLs do not agree which one ends the password.
    passwords |= {
        password[: at.start()]
        for password in passwords
        for at in islice(re.finditer("@", password), _PREFIXES)
    }
    wholes = {secret, *passwords, *map(_unquote_value, passwords)}
    encoded = {quote(whole, safe="") for whole in wholes} | {whole.replace(" ", "+") for whole in wholes}
    written = {form[1:-1] for whole in wholes for form in (repr(whole), json.dumps(whole))}
    return wholes | encoded | written | {unquote(whole) for whole in wholes}


def _unquote_value(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return re.sub(r"\\(.)", r"\1", value[1:-1] if is_quoted else value, flags=re.DOTALL)


# --- errors as they may leave a worker: the same story, without the secrets -------------------------

_log = logging.getLogger("lookup_hints.worker")

Mask = Callable[[str], str]
_T = TypeVar("_T")


def without_secrets(
    results: Iterator[_T],
    connector: Connector,
    secrets: Set[str] = frozenset(),
    kind: type[Exception] = LookupHintsError,
) -> Iterator[_T]:
    """``results``; an error is raised as a copy in which ``secrets`` and those of ``connector`` are masked.

    ``secrets`` are those that it was opened with, as they are known when it fails. The copy has no traceback:
    that is logged, with the causes, and masked likewise. Errors that are not of ``kind`` (those of Spark's
    input, by default) pass as they are.
    """
    try:
        yield from results
        return
    except kind as error:
        mask = masker({*secrets, *known_secrets(connector)})
        _log.error("%s", mask("".join(format_exception(error))).rstrip())
        clean = masked(error, mask)
    # Raised here and not in the handler: Python would attach the original as the context.
    raise clean


def known_secrets(connector: Connector) -> set[str]:
    """The secrets of ``connector``, as far as they can be known in the state in which it is."""
    table = connector.table
    secrets = table.secrets(connector.OPTIONS)
    with suppress(Exception):  # before it is opened, a connector may not know them yet
        secrets |= connector.secrets()
    return secrets


# Errors travel to the driver and into logs; drivers print URLs and DSNs with passwords in many spellings.
def masked(error: BaseException, mask: Mask) -> LookupHintsError:
    """A copy of ``error`` and of all its causes, of our own classes and without tracebacks."""
    clean = _masked_alone(error, mask)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    clean.__cause__ = None if cause is None else masked(cause, mask)
    return clean


def _masked_alone(error: BaseException, mask: Mask) -> LookupHintsError:
    if isinstance(error, QueryError):
        return type(error)([Problem(mask(one.message), tip=mask(one.tip)) for one in error.problems])
    if isinstance(error, (InternalError, TooManyRequests)):
        return type(error)(mask(str(error)))
    if isinstance(error, ConnectorError):
        # A kind of the connector's own may hold more than its message, and is not known on the driver.
        kind = next(kind for kind in (AnswerError, LookupTimeout, ConnectorError) if isinstance(error, kind))
        return kind(mask(error.message), permanent=error.permanent, retry_after=error.retry_after)
    return ConnectorError(mask(_describe_error(error)))


def _describe_error(error: BaseException) -> str:
    """Kind, text and place of a foreign error, and those of the errors of a group."""
    where = extract_tb(error.__traceback__)[-1:]
    place = "".join(f" (at {frame.filename}:{frame.lineno}, in {frame.name})" for frame in where)
    members = "".join(f"; {_describe_error(member)}" for member in getattr(error, "exceptions", ()))
    return f"{type(error).__name__}: {error}{place}{members}"
