"""The prompt: history, completion and colours. prompt_toolkit and pygments are known here alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import MySqlLexer

from lookup_hints.cli.completion import CompletionNames, candidates
from lookup_hints.cli.shell import is_complete
from lookup_hints.errors import QueryError
from lookup_hints.spi.secrets import masked_text
from lookup_hints.statements import shown_text, split_statements

HISTORY = ".lookup_hints_history"
"""The file of the user's home in which statements are kept, values of options masked."""

_PROMPT = "lookup> "


def prompt(names: CompletionNames, history: Path) -> Callable[[], str]:
    """A function that reads a statement; it raises KeyboardInterrupt for Ctrl-C and EOFError for Ctrl-D."""
    completer = _Completer(names)
    session: PromptSession[str] = PromptSession(
        _PROMPT,
        multiline=True,
        prompt_continuation=lambda width, *_: "> ".rjust(width),
        # Of all dialects that pygments has, this one knows quoted names and hints as Spark writes them.
        lexer=PygmentsLexer(MySqlLexer),
        completer=completer,
        complete_in_thread=True,
        history=_MaskedHistory(str(history)),
        key_bindings=_key_bindings(completer),
    )
    return session.prompt


class _Completer(Completer):
    def __init__(self, names: CompletionNames) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        asked = complete_event.completion_requested
        for each in candidates(document.text, document.cursor_position, self._names, asked=asked):
            yield Completion(each.text, -each.typed, display_meta=each.meaning)


class _MaskedHistory(FileHistory):
    """Statements are masked before they reach the file; until the shell ends they are kept as typed."""

    def store_string(self, string: str) -> None:
        os.close(os.open(self.filename, os.O_CREAT | os.O_WRONLY, 0o600))  # for its owner alone
        super().store_string(masked(string))


def masked(text: str) -> str:
    """``text`` without the values of options and without passwords."""
    try:
        statements = split_statements(text)
    except QueryError:
        return masked_text(text)
    for each in statements:
        text = text[: each.offset] + shown_text(each.text) + text[each.offset + len(each.text) :]
    return masked_text(text)


def _key_bindings(completer: Completer) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        """Take the only candidate, also where the menu is still to come, or go on through them all."""
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is None or state.current_completion is None:
            found = list(completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
            if len(found) == 1:
                buffer.apply_completion(found[0])
                return
        if state is None:
            buffer.start_completion(insert_common_part=True)
        else:
            buffer.complete_next()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        """Accept the selected completion, run a complete statement, or begin a line."""
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
