"""Pairs of SQL in ``cases/*.sql``: what the user writes, and what it becomes or why it is refused.

A file holds blocks of the form::

    -- case: a sentence about the behaviour
    <the user's SQL>
    -- becomes:            or   -- refused:
    <the Spark SQL>             <the whole error text>
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "cases"
_BLOCK = re.compile(
    r"^-- case: (?P<title>[^\n]+)\n(?P<text>.*?)\n-- (?P<kind>becomes|refused):\n(?P<expected>.*?)\n*(?=^-- case: |\Z)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class GoldenCase:
    """One pair."""

    file: str
    title: str
    text: str
    refused: bool
    expected: str

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


def golden_cases() -> list[GoldenCase]:
    """All pairs of all files."""
    return [
        GoldenCase(file.stem, found["title"], found["text"], found["kind"] == "refused", found["expected"])
        for file in sorted(CASES.glob("*.sql"))
        for found in _BLOCK.finditer(file.read_text(encoding="utf-8"))
    ]
