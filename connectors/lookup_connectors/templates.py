"""Text that names columns (``https://api/x/{id}``, ``customer:{id}``), and keys as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

Resolve = Callable[[str], str]
"""Text with references to secrets -> the text itself."""

_PLACEHOLDER = re.compile(r"\{(\{\w+\})\}|\{([^\W\d]\w*)\}")


@dataclass(frozen=True)
class Hole:
    """A place for the value of a column."""

    column: str


@dataclass(frozen=True)
class Template:
    """Text with holes."""

    parts: tuple[str | Hole, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(part.column for part in self.parts if isinstance(part, Hole))

    @cached_property
    def sole_column(self) -> str | None:
        """The column whose hole is all there is."""
        [part, *others] = self.parts or ("",)
        return part.column if isinstance(part, Hole) and not others else None

    def filled(self, fill: Callable[[str], str]) -> str:
        """The text, with what ``fill`` makes of each column."""
        return "".join([part if isinstance(part, str) else fill(part.column) for part in self.parts])

    def resolved(self, resolve: Resolve) -> Template:
        """The same, with references to secrets resolved; what a secret holds is never a hole."""
        return Template(tuple(part if isinstance(part, Hole) else resolve(part) for part in self.parts))


def parse_template(text: str, columns: Sequence[str]) -> Template:
    """The template that ``text`` spells: ``{name}`` is a hole, ``{{name}}`` is the text ``{name}``.

    Raises:
        ValueError: a hole names no column, or is written ``${name}``.
    """
    parts: list[str | Hole] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        if match.start() and text[match.start() - 1] == "$" and match[2]:
            raise ValueError(f"write {match[0]} without the dollar sign")
        parts.append(text[end : match.start()])
        parts.append(match[1] or Hole(_column(match[2], columns)))
        end = match.end()
    parts.append(text[end:])
    return Template(tuple(part for part in parts if part != ""))


def _column(name: str, columns: Sequence[str]) -> str:
    found = (
        name if name in columns else next((each for each in columns if each.lower() == name.lower()), None)
    )
    if found is None:
        raise ValueError(f"there is no column {name!r}")
    return found


def spelled(value: Any) -> str:
    """A key as text: ISO dates, moments in UTC, exact numbers."""
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        in_utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return in_utc.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def keys_of(keys: pa.Table) -> list[dict[str, Any]]:
    """The values of each row of ``keys``, by column: what ``to_pylist`` gives, in a quarter of the time."""
    names = keys.column_names
    if len(names) == 1:
        [name] = names
        return [{name: value} for value in keys.column(0).to_pylist()]
    columns = (column.to_pylist() for column in keys.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
