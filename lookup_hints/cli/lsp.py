"""``lookup-hints lsp``: a language server for SQL files. pygls is known here alone, and Spark is not."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from lookup_hints import __version__
from lookup_hints.cli.check import CheckOptions, Finding, check_script
from lookup_hints.cli.completion import Candidate
from lookup_hints.cli.language import EditedScript

_PAUSE = 0.2
"""Seconds without a change after which a text is checked: half a word that is typed is no mistake."""
_LINE_END = re.compile(r"\r\n|\n|\r")


class Places:
    """Offsets of a text as lines and characters, and back.

    pygls also ends lines where Python does and no editor: at a form feed or U+2028.
    """

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


def server(given: CheckOptions) -> LanguageServer:
    serves = LanguageServer(
        "lookup-hints", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full
    )

    checking = asyncio.Lock()  # one text after the other

    def opened(uri: str) -> tuple[str, Places]:
        document = serves.workspace.get_text_document(uri)
        return document.source, Places(document.source, document.position_codec.client_num_units)

    async def publish(document: types.VersionedTextDocumentIdentifier, pause: float = 0.0) -> None:
        def is_current() -> bool:
            now = serves.workspace.text_documents.get(document.uri)
            return now is not None and now.version == document.version

        await asyncio.sleep(pause)
        async with checking:
            if not is_current():
                return
            text, places = opened(document.uri)
            found = await asyncio.to_thread(check_script, text, given)
        if is_current():
            # That an empty file has no statements is no news to who writes it.
            marks = [_diagnostic(each, places) for each in found if each.is_error or each.end]
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
        text, places = opened(params.text_document.uri)
        found = EditedScript(text).hover(places.offset(params.position))
        if found is None:
            return None
        markup = types.MarkupContent(types.MarkupKind.Markdown, found[0])
        return types.Hover(markup, places.range(found[1].start, found[1].end))

    @serves.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", "'", "("])
    )
    def completion(params: types.CompletionParams) -> list[types.CompletionItem]:
        text, places = opened(params.text_document.uri)
        at = places.offset(params.position)
        offered = enumerate(EditedScript(text).candidates(at))
        return [_item(each, places.range(at - each.typed, at), number) for number, each in offered]

    return serves


def _diagnostic(finding: Finding, places: Places) -> types.Diagnostic:
    severity = types.DiagnosticSeverity.Error if finding.is_error else types.DiagnosticSeverity.Information
    return types.Diagnostic(
        places.range(finding.start, finding.end), finding.message, severity, source="lookup-hints"
    )


def _item(candidate: Candidate, place: types.Range, number: int) -> types.CompletionItem:
    is_call = "(" in candidate.text
    return types.CompletionItem(
        label=candidate.text if is_call else candidate.text.removesuffix("' = '").strip("'"),
        detail=candidate.meaning or None,
        sort_text=f"{number:04}",
        text_edit=types.TextEdit(place, candidate.text),
    )
