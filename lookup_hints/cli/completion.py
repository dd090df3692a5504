"""``lookup-hints completion``: what a shell completes after ``lookup-hints``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lookup_hints.cli.job import WrongUse

SHELLS = ("bash", "zsh", "fish")

_FILES = frozenset({"arguments", "document", "file", "files", "folder", "init", "module", "output"})
"""The arguments that are completed to names of files."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that ``shell`` reads to complete the commands and options of ``parser``.

    Raises:
        WrongUse: shtab is missing, which writes it.
    """
    try:
        import shtab
    except ModuleNotFoundError:
        raise WrongUse("The package shtab is missing. Try: pip install 'lookup-hints[shell]'") from None
    for action in _actions(parser):
        if action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
