"""Flink SQL's lookup join for Spark SQL.

Names are loaded on first use: this module is imported on every Python worker of a cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lookup_hints.registry import register_connector as register_connector
    from lookup_hints.session import LookupSession as LookupSession
    from lookup_hints.session import disable as disable
    from lookup_hints.session import enable as enable
    from lookup_hints.session import register_retry_predicate as register_retry_predicate

_HOME = {
    "LookupSession": "session",
    "disable": "session",
    "enable": "session",
    "register_connector": "registry",
    "register_retry_predicate": "session",
}

__all__ = ["LookupSession", "disable", "enable", "register_connector", "register_retry_predicate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
