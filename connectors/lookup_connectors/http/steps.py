"""What an exchange may want next: the alphabet between decisions and I/O."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from lookup_connectors.http.message import Request

_T = TypeVar("_T")


@dataclass(frozen=True)
class Send:
    """Send ``request`` and give me the Response, within ``timeout`` seconds."""

    request: Request
    timeout: float


@dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Alone:
    """Run ``steps`` while no other steps that want to be alone run, and give me what they return."""

    steps: Generator[Any, Any, Any]


Steps: TypeAlias = Generator["Send | Pause | Alone", Any, _T]
"""Says what it wants, is sent what came of it, and returns a result."""
