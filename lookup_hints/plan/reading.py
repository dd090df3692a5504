"""How many tasks read a table that is read whole."""

from __future__ import annotations

from lookup_hints.plan.budgets import CONCURRENCY, limits_of
from lookup_hints.plan.choose import session_option
from lookup_hints.plan.cluster_share import cluster_of
from lookup_hints.spi import Connector
from lookup_hints.spi.in_force import Conf
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.options import Place, options_at, parsed

PARTITIONS = "lookup.scan.partitions"

_MOST = 16
"""Each reader has a connection of its own: by default no source has more of them at once."""


def readers_of(connector: Connector, conf: Conf) -> int:
    """In how many parts the table is read, at most: what the user says, else as many as tasks run at once.

    No more than the source may be asked for at once.
    """
    table = connector.table
    text = table.options.get(PARTITIONS)
    if text is not None:
        option = options_at(Place.TABLE, LOOKUP_OPTIONS)[PARTITIONS]
        return int(parsed(option, PARTITIONS, text, owner=f"table {table.name}: "))
    tasks = cluster_of(conf, session_option("cluster-tasks", conf)).tasks
    limit = limits_of(connector, ()).get(CONCURRENCY)
    at_once = [number for number in (tasks, None if limit is None else int(limit.value)) if number]
    return min([_MOST, *at_once])
