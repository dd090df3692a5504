"""Whether a lookup table is read whole where it cannot be asked, and by how many tasks."""

from __future__ import annotations

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.budgets import CONCURRENCY, limits_of
from lookup_hints.plan.choose import session_option
from lookup_hints.plan.cluster_share import cluster_of
from lookup_hints.plan.draft import Draft
from lookup_hints.plan.refusal import CannotBeAsked
from lookup_hints.plan.requested_access import can_be_read, must_be_asked
from lookup_hints.spi import Connector
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.options import Conf, Place, options_at, parsed

PARTITIONS = "lookup.scan.partitions"

_MOST = 16
"""Each reader has a connection of its own: by default no source has more of them at once."""


def read_instead(draft: Draft, error: CannotBeAsked) -> Draft:
    """``draft`` with the table that cannot be asked among those that are read.

    Raises:
        UnsupportedLookup: its source cannot be read, or the user wants it to be asked.
    """
    use = error.use
    connector = draft.context.connector(use.base)
    if use in draft.read or must_be_asked(draft, use) or not can_be_read(connector, use):
        raise UnsupportedLookup(error.problems) from None
    return draft.with_(read={**draft.read, use: error.reason})


def read_all(draft: Draft) -> Draft:
    """``draft`` with each of its lookup tables among those that are read, and nothing seen through.

    Raises:
        UnsupportedLookup: the source of one cannot be read, or the user wants it to be asked.
    """
    for use in draft.statement.uses:
        if must_be_asked(draft, use) or not can_be_read(draft.context.connector(use.base), use):
            raise UnsupportedLookup(Problem(f"{use.alias} cannot be read: {draft.context.read_because}."))
    reasons = dict.fromkeys(draft.statement.uses, draft.context.read_because)
    return draft.with_(read=reasons, unlisted=frozenset(reasons), looked_through=())


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
