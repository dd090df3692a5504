"""The page of errors shows messages that the code has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
SOURCES = (ROOT / "lookup_hints", ROOT / "connectors" / "lookup_connectors")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """All texts of the code; what a message fills in is ``...``."""
    files = [path for folder in SOURCES for path in folder.rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    return [text for tree in trees for node in ast.walk(tree) if (text := text_of(node))]


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) if isinstance(value, ast.Constant) else "..." for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_the_page_has_messages_of_all_groups() -> None:
    assert len(MESSAGES) > 30
    assert len(set(MESSAGES)) == len(MESSAGES)


def test_the_messages_of_the_page_are_those_of_the_code(texts: list[str]) -> None:
    assert [message for message in MESSAGES if not is_said(message, texts)] == []


def is_said(message: str, texts: list[str]) -> bool:
    parts = [part.strip(" ,:") for part in message.split("...") if len(part.strip(" ,:")) > 3]
    pattern = re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)
    return bool(parts) and any(pattern.search(text) for text in texts)
