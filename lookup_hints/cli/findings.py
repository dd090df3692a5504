"""What ``lookup-hints check`` finds, written for readers, for GitHub and for other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from lookup_hints import __version__
from lookup_hints.cli.check import Finding

Findings = Mapping[str, Sequence[Finding]]
"""What was found, by file as the user named it."""


def as_text(found: Findings) -> str:
    """Each finding with an excerpt of its line, and a sum for each file."""
    return "\n".join(line for file, findings in found.items() for line in _text_lines(file, findings))


def as_github(found: Findings) -> str:
    """Commands of GitHub Actions, which shows each finding at its line of a pull request."""
    return "\n".join(_github_line(file, each) for file, findings in found.items() for each in findings)


def as_json(found: Findings) -> str:
    """A list of objects: file, line, column, severity (``error`` or ``note``) and message."""
    listed = [_as_object(file, each) for file, findings in found.items() for each in findings]
    return json.dumps(listed, indent=2)


def as_sarif(found: Findings) -> str:
    """A log in SARIF 2.1.0, which GitHub code scanning, Azure DevOps and editors read."""
    results = [_sarif_result(file, each) for file, findings in found.items() for each in findings]
    driver = {"name": "lookup-hints", "version": __version__, "rules": [{"id": _RULE}]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


FORMATS: Mapping[str, Callable[[Findings], str]] = MappingProxyType(
    {"text": as_text, "github": as_github, "json": as_json, "sarif": as_sarif}
)
"""How findings are written, by the name of ``--format``."""

_RULE = "lookup-hints"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _kind(finding: Finding) -> str:
    return "error" if finding.is_error else "note"


def _text_lines(file: str, findings: Sequence[Finding]) -> list[str]:
    errors = sum(finding.is_error for finding in findings)
    return [
        *(_text_line(file, each) for each in findings),
        f"{file}: {errors} error{'' if errors == 1 else 's'}",
    ]


def _text_line(file: str, finding: Finding) -> str:
    excerpt = f"\n{finding.excerpt}" if finding.excerpt else ""
    return f"{file}:{finding.line}:{finding.column}: {_kind(finding)}: {finding.message}{excerpt}"


def _github_line(file: str, finding: Finding) -> str:
    command = "error" if finding.is_error else "notice"
    where = f"file={_property(file)},line={finding.line},col={finding.column}"
    return f"::{command} {where},title=lookup-hints::{_data(finding.message)}"


def _data(text: str) -> str:
    """As the message of a command: it ends with its line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """As a property of a command: it ends at a comma or a colon, too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _as_object(file: str, finding: Finding) -> dict[str, Any]:
    return {
        "file": file,
        "line": finding.line,
        "column": finding.column,
        "severity": _kind(finding),
        "message": finding.message,
    }


def _sarif_result(file: str, finding: Finding) -> dict[str, Any]:
    region = {"startLine": finding.line, "startColumn": finding.column}
    return {
        "ruleId": _RULE,
        "level": _kind(finding),
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": region}}],
    }


def _uri(file: str) -> str:
    """A relative path stays relative, so that the reader finds it in its own copy of the files."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
