"""The cases of ``flights/*.sql``.

A file holds blocks of the form::

    -- case: a sentence about the shape
    -- lookup: planes, airlines     which tables are lookup tables, if not those of the file's first lines
    -- ordered                      the order of the rows counts too
    -- once: planes                 no key of these tables is asked for twice
    -- read because: a reason       one table is read whole, and EXPLAIN says why
    -- args: {"p": 1}               values of the parameter markers, as JSON
    -- conf: spark.x = y            configuration of both sessions, while the case runs
    <statements; the last one gives the rows>

and after the statement, where it cannot run, one of::

    -- refused:                     our refusal: every problem, without its place
    <text>
    -- instead:                     a statement that gives the rows of the refused one, where there is one
    <statement>

    -- fails: CONDITION             Spark's own error, the same with and without lookup tables
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lookup_hints.errors import QueryError

FOLDER = Path(__file__).parent / "flights"
_HEADER = re.compile(r"^-- (lookup|ordered|once|read because|args|conf)(?:: (.*))?\n", re.MULTILINE)
_CASE = re.compile(r"^-- case: (?P<title>.+)\n(?P<body>(?:(?!^-- case: ).*\n?)*)", re.MULTILINE)
_END = re.compile(r"^-- (refused|instead|fails):(.*)\n?", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One block."""

    topic: str
    title: str
    text: str
    lookups: frozenset[str]
    ordered: bool = False
    once: tuple[str, ...] = ()
    read_because: str = ""
    args: Any = None
    conf: dict[str, str] = field(default_factory=dict)
    refused: str | None = None
    instead: str | None = None
    fails: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}: {self.title}"

    @property
    def runs(self) -> bool:
        """Whether the case gives rows."""
        return self.refused is None and self.fails is None


def cases() -> list[Case]:
    """All blocks of all files."""
    return [case for file in sorted(FOLDER.glob("*.sql")) for case in _cases_of(file)]


def _cases_of(file: Path) -> list[Case]:
    text = file.read_text(encoding="utf-8")
    defaults = dict(_HEADER.findall(text.partition("-- case: ")[0]))
    return [_case(file.stem, found["title"], found["body"], defaults) for found in _CASE.finditer(text)]


def _case(topic: str, title: str, body: str, defaults: dict[str, str]) -> Case:
    headers = {**defaults}
    while found := _HEADER.match(body):
        headers[found[1]] = found[2] or ""
        body = body[found.end() :]
    statement, *ends = _END.split(body)
    parts = {kind: (rest + text).strip() for kind, rest, text in zip(*[iter(ends)] * 3, strict=True)}
    return Case(
        topic=topic,
        title=title,
        text=statement.strip(),
        lookups=frozenset(_listed(headers["lookup"])),
        ordered="ordered" in headers,
        once=tuple(_listed(headers.get("once", ""))),
        read_because=headers.get("read because", ""),
        args=json.loads(headers["args"]) if "args" in headers else None,
        conf=dict([_setting(headers["conf"])]) if "conf" in headers else {},
        refused=parts.get("refused"),
        instead=parts.get("instead"),
        fails=parts.get("fails"),
    )


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key.strip(), value.strip()


def told(error: QueryError) -> str:
    """What a refusal says, without the places."""
    return "\n".join(f"{problem.message} {problem.tip}".strip() for problem in error.problems)
