"""Health checks of ``lookup-hints doctor``: whether a source can be reached, and how fast it answers."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pyarrow as pa


@dataclass(frozen=True)
class HealthCheck:
    """One check and its result.

    Args:
        name: what was checked: ``dns``, ``tcp``, ``tls``, ``login``, ``rights``, ``table``, ``columns``,
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
    """The lookups to expect of a table.

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
    """A host and port that a connector connects to; ``tls`` is its trust where TLS begins at once."""

    host: str
    port: int | None
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class ReportsHealth(ABC):
    """The ability to check more of a source than whether its host and port answer and a lookup works.

    All methods are called on the driver and on workers, on a thread without an event loop and on a connector
    that is not open; they open what they need, and write nothing. Secrets in their results are masked.
    """

    DRIVERS: ClassVar[tuple[str, ...]] = ()
    """The packages that talk to the source: their versions are compared between driver and workers."""
    STEPS: ClassVar[tuple[str, ...]] = ()
    """Checks of ``health`` in their order: an error belongs to the first that has not come yet."""

    @abstractmethod
    def endpoints(self) -> Sequence[Endpoint]:
        """Hosts and ports that it connects to; none if there is no host, or another program finds it."""

    @abstractmethod
    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """Run the checks step by step, up to the first error."""

    def sample(self, columns: Sequence[str], most: int) -> pa.Table | None:
        """Some rows of ``columns``, whose keys are then looked up; None if that would cost too much."""
        return None

    def check_of(self, error: Exception) -> str:
        """The name of the check that failed with ``error``; empty where that is the one that was made."""
        return ""


def connections_check(
    request: HealthRequest, pool_size: int, limits: Mapping[str, tuple[int, int]] | None
) -> HealthCheck:
    """Compare the connections that tasks will open with what the server allows.

    Args:
        request: what will be asked.
        pool_size: connections of one process.
        limits: by the name of each, how many there may be and how many are used now; None where that is
            not known.
    """
    if request.processes is None or limits is None:
        why = "the server does not say how many it takes"
        if request.processes is None:
            why = "SET lookup.cluster-tasks says how many processes there are"
        return HealthCheck("connections", "skipped", f"{pool_size} for each worker process; {why}")
    at_once = request.processes * pool_size
    wanted = at_once * request.tables  # idle ones of other tables are among them
    of_tables = f" x {request.tables} tables of the server" if request.tables > 1 else ""
    opened = f"{request.processes} worker processes x {pool_size} connections{of_tables} = {wanted}"
    if not limits:
        return HealthCheck("connections", "ok", opened)
    cure = "Lower 'pool-size', run fewer tasks, put a pooler between, or raise the limit."
    name = min(limits, key=lambda name: limits[name][0])
    if at_once > limits[name][0]:
        return HealthCheck("connections", "fail", f"{opened}, and {name} leaves {limits[name][0]}", cure)
    name = min(limits, key=lambda name: limits[name][0] - limits[name][1])
    free = f"{limits[name][0] - limits[name][1]} of {limits[name][0]} are free now ({name})"
    if wanted > limits[name][0] - limits[name][1]:
        return HealthCheck("connections", "warn", f"{opened}, and only {free}", cure)
    return HealthCheck("connections", "ok", f"{opened}; {free}")
