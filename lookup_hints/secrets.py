"""References to secrets in option values, and keeping what they stand for out of sight.

``${env:NAME}`` and ``${file:path}`` are read late, on the machine that connects. ``${conf:key}`` is
read from Spark's configuration on the driver, as workers have none, and travels inside the pickled
connector only.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from lookup_hints.errors import OptionError, Problem

MASK = "***"
_REFERENCE = re.compile(r"\$\{(env|file|conf):([^}]*)\}")
_URL_PASSWORD = re.compile(
    r"""
    (?<=://) (?: \$\{[^}]*\} | [^/@\s:$] | \$(?!\{[^}]*\}) )*  # the user, who may be a reference
    : (?P<value>\S*) (?=@)                                     # up to the last @
    """,
    re.VERBOSE,
)
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


def has_reference(text: str) -> bool:
    """Whether ``text`` holds a ``${env:}``, ``${file:}`` or ``${conf:}`` reference."""
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


def resolve(
    text: str,
    conf: Mapping[str, Secret],
    *,
    option: str,
    known: set[str],
    place_of: Callable[[str], str] = str,
) -> str:
    """``text`` with its references replaced; each value read is added to ``known``, for masking.

    Args:
        text: the value of an option.
        conf: values of the ``${conf:key}`` references.
        option: its name, for messages.
        known: where the values read are added.
        place_of: where the file of a ``${file:path}`` is; may refuse.

    Raises:
        OptionError: a reference names nothing; the message names the option and the reference.
    """

    def value_of(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        try:
            value = _read(kind, place_of(name) if kind == "file" else name, conf)
        except (KeyError, OSError) as error:
            raise OptionError(_unread(kind, name, option)) from (None if kind != "file" else error)
        known.add(value)
        return value

    return _REFERENCE.sub(value_of, text)


_KINDS = {"env": "environment variable", "file": "file", "conf": "Spark configuration key"}
_TIPS = {
    "env": "Set it before Python starts there; for executors by the configuration spark.executorEnv.{name}.",
    "file": "Put it there, readable for the user of that process, or ship it with --files.",
}


def _unread(kind: str, name: str, option: str) -> Problem:
    """What to say of a reference that names nothing; the option last, as masks look behind its name."""
    where = f"on {socket.gethostname()}"
    why = f"The {_KINDS[kind]} {name!r} cannot be read {where}, for the option {option!r}."
    return Problem(why, tip=_TIPS.get(kind, "").format(name=name))


def _read(kind: str, name: str, conf: Mapping[str, Secret]) -> str:
    if kind == "env":
        return os.environ[name]
    if kind == "file":
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    return conf[name].reveal()


def shown(text: str) -> str:
    """``text`` as it may be shown: references stay, passwords in URLs and DSNs are masked."""
    out, at = "", 0
    for start, end in _passwords(text):
        # Two may overlap: a password can look like the beginning of another.
        out += text[at:start] + MASK if start >= at else ""
        at = max(at, end)
    return out + text[at:]


def masker(secrets: set[str]) -> Callable[[str], str]:
    """A function that masks each of ``secrets`` (and the passwords of URLs and DSNs) in a message."""
    parts = {part for secret in secrets for part in _forms(secret) if len(part) >= 3}
    longest_first = sorted(parts, key=len, reverse=True)

    def mask(message: str) -> str:
        for part in longest_first:
            message = message.replace(part, MASK)
        return shown(message)

    return mask


def _passwords(text: str) -> list[tuple[int, int]]:
    """Where the values of passwords stand in ``text``, in order; those that are references are left out."""
    matches = (*_URL_PASSWORD.finditer(text), *_NAMED_PASSWORD.finditer(text))
    return sorted(
        match.span("value")
        for match in matches
        if match["value"] and _REFERENCE.fullmatch(match["value"]) is None
    )


def _forms(secret: str) -> set[str]:
    """A secret as drivers may print it: whole, its passwords, and each URL-encoded and decoded."""
    passwords = {secret[start:end] for start, end in _passwords(secret)}
    # Where an @ follows later, readers of URLs do not agree which one ends the password.
    passwords |= {password[: at.start()] for password in passwords for at in re.finditer("@", password)}
    wholes = {secret, *passwords, *map(_unquoted, passwords)}
    return wholes | {quote(whole, safe="") for whole in wholes} | {unquote(whole) for whole in wholes}


def _unquoted(value: str) -> str:
    """The value of a DSN without its quotes and backslashes."""
    is_quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return re.sub(r"\\(.)", r"\1", value[1:-1] if is_quoted else value, flags=re.DOTALL)
