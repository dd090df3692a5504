"""Flink SQL's lookup join for Spark SQL.

Names are loaded on first use: this module is imported on every Python worker of a cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lookup_hints.version import __version__ as __version__

if TYPE_CHECKING:
    from lookup_hints.async_function import async_wait as async_wait
    from lookup_hints.lookup_spec import LookupName as LookupName
    from lookup_hints.metrics.lookup_metrics import LookupMetrics as LookupMetrics
    from lookup_hints.nearest import Nearest as Nearest
    from lookup_hints.retry import ExponentialDelay as ExponentialDelay
    from lookup_hints.retry import FixedDelay as FixedDelay
    from lookup_hints.retry import RetryPolicy as RetryPolicy
    from lookup_hints.retry import RetryStrategy as RetryStrategy
    from lookup_hints.session import LookupSession as LookupSession
    from lookup_hints.session import disable as disable
    from lookup_hints.session import enable as enable
    from lookup_hints.spi.connector import AsyncLookup as AsyncLookup
    from lookup_hints.spi.connector import SyncLookup as SyncLookup
    from lookup_hints.streaming.restart_strategy import ExponentialDelayRestart as ExponentialDelayRestart
    from lookup_hints.streaming.restart_strategy import FailureRateRestart as FailureRateRestart
    from lookup_hints.streaming.restart_strategy import FixedDelayRestart as FixedDelayRestart
    from lookup_hints.streaming.restart_strategy import NoRestart as NoRestart
    from lookup_hints.streaming.supervisor import supervise as supervise
    from lookup_hints.tables.registry import register_connector as register_connector
    from lookup_hints.tables.registry import register_retry_predicate as register_retry_predicate

_HOME = {
    "AsyncLookup": "spi.connector",
    "ExponentialDelay": "retry",
    "ExponentialDelayRestart": "streaming.restart_strategy",
    "FailureRateRestart": "streaming.restart_strategy",
    "FixedDelay": "retry",
    "FixedDelayRestart": "streaming.restart_strategy",
    "LookupMetrics": "metrics.lookup_metrics",
    "LookupName": "lookup_spec",
    "LookupSession": "session",
    "Nearest": "nearest",
    "NoRestart": "streaming.restart_strategy",
    "RetryPolicy": "retry",
    "RetryStrategy": "retry",
    "SyncLookup": "spi.connector",
    "async_wait": "async_function",
    "disable": "session",
    "enable": "session",
    "register_connector": "tables.registry",
    "register_retry_predicate": "tables.registry",
    "supervise": "streaming.supervisor",
}

__all__ = [
    "AsyncLookup",
    "ExponentialDelay",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FixedDelay",
    "FixedDelayRestart",
    "LookupMetrics",
    "LookupName",
    "LookupSession",
    "Nearest",
    "NoRestart",
    "RetryPolicy",
    "RetryStrategy",
    "SyncLookup",
    "async_wait",
    "disable",
    "enable",
    "register_connector",
    "register_retry_predicate",
    "supervise",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext lookup_hints`` does: it brings ``%lookup_sql`` (and ``%%``) and ``%lookup_tables``."""
    from lookup_hints.notebook.magics import load

    load(shell)
