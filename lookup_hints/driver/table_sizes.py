"""How large the lookup tables of a session are: asked on the driver, in a second or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass

from lookup_hints.spi import Connector, LookupTable, Statistics, TableSize
from lookup_hints.worker.process.timeouts import call_with_timeout

ASKING_SECONDS = 1.0
"""A source that takes longer to say how large its table is has said nothing."""

REMEMBERED_SECONDS = 60.0
"""For so long a notebook that runs one statement after the other asks for the size of a table once."""


@dataclass(frozen=True)
class _Told:
    table: LookupTable
    at: float
    size: TableSize


class TableSizes:
    """The sizes of tables, each remembered for a minute; one that is exact is asked for each time.

    Args:
        seconds: how long a source may take.
        clock: tells the time.
    """

    def __init__(self, seconds: float = ASKING_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._told: dict[str, _Told] = {}

    def of(self, connector: Connector) -> TableSize:
        """The size of the table of ``connector``; without rows, and with the reason, where nobody says it."""
        if not isinstance(connector, Statistics):
            return TableSize(None, source=f"connector {connector.table.connector!r} has no statistics")
        table, now = connector.table, self._clock()
        told = self._told.get(table.name.lower())
        # A table that was dropped and created again is another object.
        if told is not None and told.table is table and now - told.at < REMEMBERED_SECONDS:
            return told.size
        size = self._asked(connector)
        if not size.exact:
            self._told[table.name.lower()] = _Told(table, now, size)
        return size

    def _asked(self, connector: Statistics) -> TableSize:
        try:
            return call_with_timeout(connector.statistics, self._seconds, "statistics")
        except NotInTime:
            return TableSize(None, source=f"the source did not say it within {self._seconds:g} s")
        except Exception as error:
            # Its text may hold anything; the type of what went wrong below says enough.
            why = type(error.__cause__ or error).__name__
            return TableSize(None, source=f"the source did not say it ({why})")
