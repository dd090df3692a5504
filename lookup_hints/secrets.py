"""References to secrets in option values, and keeping what they stand for out of sight.

``${env:NAME}`` and ``${file:path}`` are read late, on the machine that connects. ``${conf:key}`` is
read from Spark's configuration on the driver, as workers have none, and travels inside the pickled
connector only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from lookup_hints.errors import OptionError, Problem

MASK = "***"
_REFERENCE = re.compile(r"\$\{(env|file|conf):([^}]*)\}")
_URL_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):([^@\s]*)(?=@)")
_QUERY_PASSWORD = re.compile(r"(?i)\b(password|passwd|sslpassword|secret|token)=([^&\s]+)")


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


def conf_references(text: str) -> list[str]:
    """The configuration keys that ``text`` refers to with ``${conf:key}``."""
    return [name for kind, name in _REFERENCE.findall(text) if kind == "conf"]


def resolve(text: str, conf: Mapping[str, Secret], *, option: str, known: set[str]) -> str:
    """``text`` with its references replaced; each value read is added to ``known``, for masking.

    Raises:
        OptionError: a reference names nothing; the message names the option and the reference.
    """

    def value_of(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        try:
            value = _read(kind, name, conf)
        except (KeyError, OSError) as error:
            what = {"env": "environment variable", "file": "file", "conf": "Spark configuration key"}[kind]
            raise OptionError(
                Problem(f"option {option!r}: the {what} {name!r} cannot be read on this machine.")
            ) from (None if kind != "file" else error)
        known.add(value)
        return value

    return _REFERENCE.sub(value_of, text)


def _read(kind: str, name: str, conf: Mapping[str, Secret]) -> str:
    if kind == "env":
        return os.environ[name]
    if kind == "file":
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    return conf[name].reveal()


def shown(text: str) -> str:
    """``text`` as it may be shown: references stay, passwords in URLs and DSNs are masked."""
    without_userinfo = _URL_PASSWORD.sub(rf"\1:{MASK}", text)
    return _QUERY_PASSWORD.sub(rf"\1={MASK}", without_userinfo)


def masker(secrets: set[str]) -> Callable[[str], str]:
    """A function that masks each of ``secrets`` (and the passwords of URLs) in a message."""
    parts = {part for secret in secrets for part in _forms(secret) if len(part) >= 3}
    longest_first = sorted(parts, key=len, reverse=True)

    def mask(message: str) -> str:
        for part in longest_first:
            message = message.replace(part, MASK)
        return shown(message)

    return mask


def _forms(secret: str) -> set[str]:
    """A secret as drivers may print it: whole, its URL password, and each URL-encoded and decoded."""
    wholes = {secret, *(match[2] for match in _URL_PASSWORD.finditer(secret))}
    wholes |= {match[2] for match in _QUERY_PASSWORD.finditer(secret)}
    return wholes | {quote(whole, safe="") for whole in wholes} | {unquote(whole) for whole in wholes}
