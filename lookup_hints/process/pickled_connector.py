"""Connectors on their way to a worker: as bytes, which a task reads only where its process has none yet.

Reading them again does harm (docs/decisions/0110). A class of a notebook travels with its code: reading it
again gives the class new globals, also where it is open, and what opening put there is gone. And what is
open would count in accumulators of a task that is over.
"""

from __future__ import annotations

import hashlib
from io import BytesIO
from pickle import PicklingError, Unpickler
from typing import Any
from weakref import WeakKeyDictionary

from lookup_hints.errors import OptionError, Problem
from lookup_hints.process import open_connectors as process
from lookup_hints.pyspark_internals import READS_ACCUMULATORS, accumulator_of_task, cloudpickled
from lookup_hints.spi import Connector
from lookup_hints.spi.request_and_answer import LookupTable


# As bytes, which a task reads only where its process has no equal connector: accumulators of later tasks
# would be lost otherwise. (docs/decisions/0110)
class PickledConnector(Connector):
    """Stands for a connector until a worker process uses it."""

    def __init__(
        self, table: LookupTable, identity: str, pickled: bytes, connector: Connector | None = None
    ) -> None:
        super().__init__(table)
        self.identity = identity
        """A text that is equal for connectors that may share their connections."""
        self._pickled = pickled
        self._connector = connector

    @classmethod
    def of(cls, connector: Connector) -> PickledConnector:
        """Stands for ``connector``; called on the driver.

        Raises:
            OptionError: the connector holds what cannot travel to a worker.
        """
        try:
            pickled = cloudpickled(connector)
        except (TypeError, AttributeError, PicklingError) as error:
            problem = f"{type(connector).__name__} cannot be sent to the workers: {error}."
            tip = "Open what a connector needs in open() or aopen(), not in __init__()."
            raise OptionError(Problem(problem, tip=tip)) from error
        return cls(connector.table, hashlib.sha256(pickled).hexdigest(), pickled, connector)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_on_worker, (self.table, self.identity, self._pickled)

    def connector(self) -> Connector:
        connector, self._connector = self._connector, None
        return _unpickle_connector(self.identity, self._pickled) if connector is None else connector


# Unpickling a class of a notebook again replaces the globals of the open connector's methods, so an open
# connector's copy is not read. (docs/decisions/0110)
def _unpickle_on_worker(table: LookupTable, identity: str, pickled: bytes) -> PickledConnector:
    """Unpickle on the worker. A missing module shows here, where the error can be explained."""
    if not process.this_process.has(identity):
        return PickledConnector(table, identity, pickled, _unpickle_connector(identity, pickled))
    # Let the accumulators of what is open count from zero for the task that runs. PySpark hands out what is
    # in those that the task has read. Others may use them beside the connector, so they share their state.
    for accumulator, zero in _accumulators.get(identity, {}).items():
        kind = accumulator.accum_param
        accumulator.__dict__ = accumulator_of_task(accumulator.aid, kind.zero(zero), kind).__dict__
    return PickledConnector(table, identity, pickled)


def _unpickle_connector(identity: str, pickled: bytes) -> Any:
    reader = _Unpickler(pickled)
    connector = reader.load()
    if reader.accumulators:
        _accumulators.setdefault(identity, WeakKeyDictionary()).update(reader.accumulators)
    return connector


# --- accumulators ----------------------------------------------------------------------------------

# By the identity of the connectors that hold them; each with its zero.
_accumulators: dict[str, WeakKeyDictionary[Any, Any]] = {}


class _Unpickler(Unpickler):
    """Reads what is pickled, and notes the accumulators in it, which PySpark pickles by a call."""

    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data))
        self.accumulators: list[tuple[Any, Any]] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if (module, name) != READS_ACCUMULATORS:
            return found

        def noted(number: int, zero: Any, kind: Any) -> Any:
            accumulator = found(number, zero, kind)
            self.accumulators.append((accumulator, zero))
            return accumulator

        return noted
