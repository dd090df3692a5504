"""Paths to values in JSON documents, and in what is built as they are: a chain of names, or JMESPath."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_CHAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NAME = r"(?:[^\W\d]\w*|\"[^\"\\]+\")"
_WAY = re.compile(rf"{_NAME}(?:\.{_NAME})*(?=\[|\.[\[{{*]|\s*\|(?!\|)|$)")
_INTO_ELEMENTS = re.compile(r"\[[\d*]*\]\.")
_ODD_NAME = re.compile(r"[\w@$:/#-]*[@$:/#-][\w@$:/#-]*|\d\w*|@\w+\.\w+")
_PARTS = re.compile(r"@\w+\.\w+|[^.]+")


class PathFailure(Exception):
    """A path cannot be followed: a function, slice or comparison met a value that it does not take."""


@dataclass(frozen=True)
class Path:
    """A way to a value.

    Args:
        text: as it is written.
        find: gives the value in a document, None where there is none.
        first: the name that it begins with, where it is a chain of names.
        only: the name that it is, where it is one name.
    """

    text: str
    find: Callable[[Any], Any]
    first: str | None = None
    only: str | None = None

    @cached_property
    def way(self) -> tuple[str, ...]:
        """The names that it leads through before it does anything else; none where that cannot be said."""
        if self.only is not None:
            return (self.only,)
        match = _WAY.match(self.text)
        return tuple(part.strip('"') for part in re.findall(r'"[^"]+"|\w+', match[0])) if match else ()

    @cached_property
    def leads_into_elements(self) -> bool:
        """Whether it goes on from a list to members of its elements, none of which it leaves out."""
        match = _WAY.match(self.text)
        return _INTO_ELEMENTS.match(self.text, match.end() if match else 0) is not None


def named(name: str) -> Path:
    """The path to the member ``name``, whatever characters it has."""
    return Path(name, _follow_names((name,)), name, name)


def parse_path(text: str) -> Path:
    """The path that ``text`` spells."""
    text = text.strip()
    if text == "@":
        return Path(text, lambda document: document)
    if _CHAIN.fullmatch(text):
        # Most paths are; this is a tenth of the time that an expression takes.
        names = tuple(text.split("."))
        return Path(text, _follow_names(names), names[0], text if len(names) == 1 else None)
    return Path(text, _compile_jmespath(text))


# A chain of names, as most paths are, needs no jmespath.
def _follow_names(names: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(names) == 1:
        [only] = names
        return lambda document: document.get(only) if isinstance(document, dict) else None

    def find(document: Any) -> Any:
        for name in names:
            if not isinstance(document, dict):
                return None
            document = document.get(name)
        return document

    return find


def _compile_jmespath(text: str) -> Callable[[Any], Any]:
    try:
        import jmespath
    except ImportError:
        raise ValueError(
            "it is not a chain of names, and needs the package jmespath: pip install jmespath"
        ) from None
    try:
        compiled = jmespath.compile(text)
    except ValueError as error:  # jmespath's own errors are such, too
        raise ValueError(f"it is not JMESPath: {_first_line(error)}.{_tip_for(text)}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None

    if name := _compared_name(text):
        raise ValueError(
            f"{name} behind a comparison is the member of that name, and no text. For the text write"
            f" '{name[1:-1]}' or `{name}`, for the member @.{name}"
        )

    def find(document: Any) -> Any:
        try:
            return compiled.search(document)
        except (ValueError, TypeError, ArithmeticError) as error:  # the last two of operators
            raise PathFailure(_first_line(error)) from None
        except RecursionError:
            raise PathFailure("it is nested too deep") from None

    return find


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(":.")


def _tip_for(text: str) -> str:
    """How ``text`` may have been meant."""
    if text.startswith(("$.", "$[")):
        return f" This looks like JSONPath; JMESPath begins with no $: {text[1:].lstrip('.')}"
    parts = _PARTS.findall(text)
    quoted = [f'"{part}"' if _ODD_NAME.fullmatch(part) else part for part in parts]
    return f" Put a name with such characters in quotes: {'.'.join(quoted)}" if quoted != parts else ""


def _compared_name(text: str) -> str:
    """The name in double quotes that stands behind a comparison, where most mean a text; empty for none."""
    from jmespath.lexer import Lexer

    before = ""
    for token in Lexer().tokenize(text):
        if token["type"] == "quoted_identifier" and before in ("eq", "ne", "lt", "lte", "gt", "gte"):
            return f'"{token["value"]}"'
        before = token["type"]
    return ""
