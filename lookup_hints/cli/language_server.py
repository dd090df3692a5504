"""``lookup-hints lsp``: a language server for SQL files.

Only this module uses pygls, and it does not use Spark.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import getdoc
from io import BufferedReader
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lookup_hints.cli.arguments import WrongUse
from lookup_hints.cli.check import CheckOptions, Finding, check_script
from lookup_hints.cli.completion import Candidate, candidates, option_at, relations
from lookup_hints.cli.names_in_text import created_name
from lookup_hints.errors import LookupHintsError, QueryError
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut
from lookup_hints.statements import ScriptStatement, split_statements
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl
from lookup_hints.tables.registry import connector_class
from lookup_hints.version import __version__


# Holds no state but the text: each change is checked whole. (docs/decisions/0184)
class EditedScript:
    def __init__(self, text: str) -> None:
        self._text = text
        self._created: dict[str, CreateLookupTable] = {}
        self._names: dict[str, None] = {}  # in their order
        for statement in _split_or_none(text):
            name = created_name(statement.text.code)
            self._names |= {} if name is None else {name: None}
            with suppress(QueryError):  # reported as a diagnostic
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
        """Markdown about the name at the place ``at``, and its place in the text."""
        for statement in _split_or_none(self._text):
            if 0 <= at - statement.offset < len(statement.text):
                found = self._hover_text(statement.text, at - statement.offset)
                if found is not None:
                    text, place = found
                    return text, Cut(statement.offset + place.start, statement.offset + place.end)
        return None

    def _hover_text(self, text: SqlText, at: int) -> tuple[str, Cut] | None:
        given = option_at(text, at)
        if given is not None and given.value and given.key == "table":
            described = self._describe_table(dict(relations(text)).get(given.value, given.value))
            return None if described is None else (described, given.place)
        if given is not None and given.value and given.key == "connector":
            return _connector_text(given.value), given.place
        if given is not None:
            default = f", default {given.option.shown_default}" if given.option.shown_default else ""
            head = f"**{given.key}** ({given.option.shown_type}{default})"
            return f"{head}\n\n{given.option.shown_meaning}", given.place
        name = next((each for each in text.code if each.start <= at < each.end and each.is_name), None)
        if name is None:
            return None
        by_alias = {alias.lower(): table for alias, table in relations(text)}
        described = self._describe_table(by_alias.get(name.name.lower(), name.name))
        return None if described is None else (described, Cut(name.start, name.end))

    def _describe_table(self, table: str) -> str | None:
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


def _split_or_none(text: str) -> Sequence[ScriptStatement]:
    try:
        return split_statements(text)
    except QueryError:  # a quote or a comment is not closed yet
        return []


def _connector_text(name: str) -> str:
    try:
        kind = connector_class(name)
    except LookupHintsError as error:
        return str(error)
    options = [f"- `{each.shown_key}`: {each.shown_meaning}" for each in kind.OPTIONS]
    about = (getdoc(kind) or "").partition("\n\n")[0]
    return "\n".join([f"**{name}**: {about}", "", *options])


class EditorInput(BufferedReader):
    """What an editor sends over a stream of bytes; a message that no editor sends ends the server."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read a message.

        Raises:
            WrongUse: it is said to be longer than ``MOST_BYTES``.
        """
        if size is not None and size > MOST_BYTES:
            raise WrongUse(
                f"The editor announces a message of {size:,} bytes, and {MOST_BYTES:,} are read at most."
                " Restart the language server in it."
            )
        return super().read(size)


MOST_BYTES = 2**28
"""More than all texts of a message have together."""

# Seconds without a change after which a text is checked: half a word that is typed is no mistake.
_PAUSE = 0.2
_LINE_END = re.compile(r"\r\n|\n|\r")


# Lines are counted here: pygls also ends them at a form feed or U+2028, where no editor does.
# (docs/decisions/0184)
class Places:
    """Offsets of a text as lines and characters, and back."""

    def __init__(self, text: str, units: Callable[[str], int]) -> None:
        self._text, self._units = text, units
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]

    def position(self, offset: int) -> types.Position:
        line = bisect_right(self._starts, offset) - 1
        return types.Position(line, self._units(self._text[self._starts[line] : offset]))

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.position(start), self.position(end))

    def offset(self, position: types.Position) -> int:
        """The offset of ``position``; of the end of its line where it is behind that."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[position.line]
        end = _LINE_END.search(self._text, start)
        line = self._text[start : end.start() if end else len(self._text)]
        passed = 0
        for at, character in enumerate(line):
            if passed >= position.character:
                return start + at
            passed += self._units(character)
        return start + len(line)


class SqlServer(LanguageServer):
    """Tells the editor of its failures, but for those to tell it anything."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Show ``error`` in the editor."""
        # pygls would tell of a message that cannot be written by another message, without end.
        if not isinstance(error, OSError):
            super().report_server_error(error, source)


def server(given: CheckOptions) -> LanguageServer:
    serves = SqlServer("lookup-hints", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)

    checking = asyncio.Lock()  # one text after the other

    def read_text(uri: str) -> tuple[str, Places] | None:
        """The text as it is edited, or on disk where it is not open; None where it cannot be read."""
        try:
            document = serves.workspace.get_text_document(uri)
            source = document.source
        except (OSError, ValueError):  # there is no such file, or it is no text
            return None
        # A byte order mark is no part of the script, and a character for the client.
        text = re.sub("^\ufeff", " ", source)
        return text, Places(text, document.position_codec.client_num_units)

    async def publish(document: types.VersionedTextDocumentIdentifier, pause: float = 0.0) -> None:
        def is_current() -> bool:
            # By its own key, which is not the URI that was sent. One that is closed has no version.
            return serves.workspace.get_text_document(document.uri).version == document.version

        await asyncio.sleep(pause)
        async with checking:
            read = read_text(document.uri) if is_current() else None
            if read is None:
                return
            text, places = read
            found = await asyncio.to_thread(check_script, text, given)
        if is_current():
            # That an empty file has no statements is no news to who writes it.
            marks = [_to_diagnostic(each, places) for each in found if each.is_error or each.end]
            serves.text_document_publish_diagnostics(types.PublishDiagnosticsParams(document.uri, marks))

    @serves.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        await publish(types.VersionedTextDocumentIdentifier(document.version, document.uri))

    @serves.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: types.DidChangeTextDocumentParams) -> None:
        await publish(params.text_document, _PAUSE)

    @serves.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        serves.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))

    @serves.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        read = read_text(params.text_document.uri)
        if read is None:
            return None
        text, places = read
        found = EditedScript(text).hover(places.offset(params.position))
        if found is None:
            return None
        markup = types.MarkupContent(types.MarkupKind.Markdown, found[0])
        return types.Hover(markup, places.range(found[1].start, found[1].end))

    @serves.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", "'", "("])
    )
    def completion(params: types.CompletionParams) -> list[types.CompletionItem]:
        read = read_text(params.text_document.uri)
        if read is None:
            return []
        text, places = read
        at = places.offset(params.position)
        offered = enumerate(EditedScript(text).candidates(at))
        return [_completion_item(each, places.range(at - each.typed, at), number) for number, each in offered]

    return serves


def _to_diagnostic(finding: Finding, places: Places) -> types.Diagnostic:
    severity = types.DiagnosticSeverity.Error if finding.is_error else types.DiagnosticSeverity.Information
    return types.Diagnostic(
        places.range(finding.start, finding.end), finding.message, severity, source="lookup-hints"
    )


def _completion_item(candidate: Candidate, place: types.Range, number: int) -> types.CompletionItem:
    is_call = "(" in candidate.text
    return types.CompletionItem(
        label=candidate.text if is_call else candidate.text.removesuffix("' = '").strip("'"),
        detail=candidate.meaning or None,
        sort_text=f"{number:04}",
        text_edit=types.TextEdit(place, candidate.text),
    )
