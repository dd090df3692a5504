"""Whether a source can be asked, and asked fast: what ``lookup-hints doctor`` looks at."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pyarrow as pa


@dataclass(frozen=True)
class HealthCheck:
    """One thing that was looked at.

    Args:
        name: what was looked at: ``dns``, ``tcp``, ``tls``, ``login``, ``rights``, ``table``, ``columns``,
            ``index``, ``connections``, ``lookup``, or a name of the connector's own.
        verdict: ``ok``, ``warn``, ``fail``, or ``skipped`` where it cannot be seen.
        what: what was found.
        cure: what to try; needed where something is wrong.
        seconds: how long each of several tries took.
    """

    name: str
    verdict: Literal["ok", "warn", "fail", "skipped"]
    what: str
    cure: str = ""
    seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict in ("warn", "fail") and not self.cure:
            raise ValueError(f"{self.name}: what is wrong needs a cure")


@dataclass(frozen=True)
class HealthRequest:
    """What will be asked of a table.

    Args:
        keys: each list of columns that lookups ask by.
        capacity: requests in flight of one task, at most.
        processes: worker processes that may ask at once; None where that is not known here.
        tables: how many tables of this origin each of them may ask.
        timeout: seconds for one step.
    """

    keys: tuple[tuple[str, ...], ...]
    capacity: int = 100
    processes: int | None = None
    tables: int = 1
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ValueError(f"the timeout of a step must be greater than 0, not {self.timeout:g}")


@dataclass(frozen=True)
class Endpoint:
    """Whom a connector connects to; ``tls`` is what it trusts where TLS begins at once."""

    host: str
    port: int | None
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class ReportsHealth(ABC):
    """The ability to say more of a source than that its host and port are there, and that a lookup works.

    All methods are called on the driver and on workers, on a thread without an event loop and on a connector
    that is not open; they open what they need, and write nothing. Secrets in what they say are masked.
    """

    DRIVERS: ClassVar[tuple[str, ...]] = ()
    """The packages that talk to the source: their versions are compared between driver and workers."""

    @abstractmethod
    def endpoints(self) -> Sequence[Endpoint]:
        """Whom it connects to; none where there is no host, or another program finds it."""

    @abstractmethod
    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """What can be found out, step by step; what it raises is a check that failed (``check_of``)."""

    def sample(self, columns: Sequence[str], most: int) -> pa.Table | None:
        """Some rows of ``columns``, whose keys are then asked for; None where that would cost too much."""
        return None

    def check_of(self, error: Exception) -> str:
        """The name of the check that failed with ``error``."""
        return "lookup"
