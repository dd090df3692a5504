"""What an editor shows of a script: its tables as completion knows them, and what stands at a place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from inspect import getdoc

from lookup_hints.cli.completion import Candidate, candidates, option_at, relations
from lookup_hints.cli.names_in_text import created_name
from lookup_hints.errors import LookupHintsError, QueryError
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.options import Option
from lookup_hints.sql.lexer import code, pieces
from lookup_hints.sql.text_edits import Cut
from lookup_hints.statements.script import ScriptStatement, split_statements
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl
from lookup_hints.tables.registry import connector_class


class EditedScript:
    def __init__(self, text: str) -> None:
        self._text = text
        self._created: dict[str, CreateLookupTable] = {}
        self._names: dict[str, None] = {}  # in their order
        for statement in _statements(text):
            name = created_name(code(pieces(statement.text)))
            self._names |= {} if name is None else {name: None}
            with suppress(QueryError):  # which is told as a mistake
                ddl = parse_ddl(statement.text)
                if isinstance(ddl, CreateLookupTable):
                    self._created.setdefault(ddl.name.lower(), ddl)

    def tables(self) -> Sequence[str]:
        return list(self._names)

    def columns(self, table: str) -> Sequence[str]:
        ddl = self._created.get(table.lower())
        return [] if ddl is None or ddl.columns is None else list(ddl.columns.names)

    def candidates(self, at: int) -> list[Candidate]:
        end = self._text.find(";", at)  # what follows the statement names other tables
        return candidates(self._text if end < 0 else self._text[:end], at, self)

    def hover(self, at: int) -> tuple[str, Cut] | None:
        """What stands at the place ``at``, in Markdown, and where it does."""
        for statement in _statements(self._text):
            if 0 <= at - statement.offset < len(statement.text):
                found = self._hover(statement.text, at - statement.offset)
                if found is not None:
                    text, place = found
                    return text, Cut(statement.offset + place.start, statement.offset + place.end)
        return None

    def _hover(self, text: str, at: int) -> tuple[str, Cut] | None:
        given = option_at(text, at)
        if given is not None and given.value and given.key == "table":
            described = self._described(dict(relations(text)).get(given.value, given.value))
            return None if described is None else (described, given.place)
        if given is not None and given.value and given.key == "connector":
            return _connector(given.value), given.place
        if given is not None:
            return _option(given.key, given.option), given.place
        name = next(
            (each for each in code(pieces(text)) if each.start <= at < each.end and each.is_name), None
        )
        if name is None:
            return None
        by_alias = {alias.lower(): table for alias, table in relations(text)}
        described = self._described(by_alias.get(name.name.lower(), name.name))
        return None if described is None else (described, Cut(name.start, name.end))

    def _described(self, table: str) -> str | None:
        ddl = self._created.get(table.lower())
        if ddl is None:
            return None
        head = f"**{ddl.name}**: lookup table, connector `{ddl.options.get('connector', '?')}`"
        if ddl.columns is None:
            return f"{head}; its columns are those of its source"
        columns = [f"- `{each.name}` {sql_type(each.type)}" for each in ddl.columns]
        key = (
            f"\n\nprimary key: {', '.join(f'`{each}`' for each in ddl.primary_key)}"
            if ddl.primary_key
            else ""
        )
        return "\n".join([head, "", *columns]) + key


def _statements(text: str) -> Sequence[ScriptStatement]:
    try:
        return split_statements(text)
    except QueryError:  # a quote or a comment is not closed yet
        return []


def _option(key: str, option: Option) -> str:
    default = f", default {option.shown_default}" if option.shown_default else ""
    return f"**{key}** ({option.shown_type}{default})\n\n{option.shown_meaning}"


def _connector(name: str) -> str:
    try:
        kind = connector_class(name)
    except LookupHintsError as error:
        return str(error)
    options = [f"- `{each.shown_key}`: {each.shown_meaning}" for each in kind.OPTIONS]
    about = (getdoc(kind) or "").partition("\n\n")[0]
    return "\n".join([f"**{name}**: {about}", "", *options])
