"""How the permits of one executor are shared by its tasks. Pure: times are given.

A task holds permits, and may have as many requests in flight. It keeps those that it uses, so that it need
not ask for each request; what others lack it gives back as its requests end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from lookup_hints.limits.mapped_record import Cell, Record

MOST_LEASES = 1200
"""This many lookups of one origin may run at once in one executor: tasks times joins."""


class Lease(Record):
    owner = Cell()
    """Its process; 0 where the lease is free."""
    ticket = Cell()
    """No two owners of the same lease have the same one."""
    held = Cell()
    until = Cell()
    """When its permits come back, whatever has become of it."""
    wanted_since = Cell()
    """Since when it could use more; 0 where it cannot."""


class Leases(Record):
    _used = Cell()
    _tickets = Cell()
    fair = Cell()
    """What a task may hold while others have less; 0 where it may hold whatever it has."""
    excess = Cell()
    """How many permits all hold above the limit."""

    @classmethod
    def cells_for(cls) -> int:
        return cls.SIZE + MOST_LEASES * Lease.SIZE

    def _lease(self, place: int) -> Lease:
        return Lease(self.cells, self.start + self.SIZE + place * Lease.SIZE)

    def _taken(self) -> Iterator[Lease]:
        return (lease for place in range(int(self._used)) if (lease := self._lease(place)).owner)

    def begin(self, owner: int, until: float) -> Lease | None:
        """A lease for a task in the process ``owner``; None where there are too many."""
        place = next((place for place in range(MOST_LEASES) if not self._lease(place).owner), None)
        if place is None:
            return None
        self._used = max(self._used, place + 1)
        self._tickets += 1
        lease = self._lease(place)
        lease.owner, lease.ticket, lease.held, lease.until = owner, self._tickets, 0.0, until
        lease.wanted_since = 0.0
        return lease

    @property
    def held(self) -> float:
        return sum(lease.held for lease in self._taken())

    def grant(self, lease: Lease, wanted: int, limit: int, now: float) -> int:
        """Up to ``wanted`` more permits for ``lease``, where all may hold ``limit``; how many these are.

        Who has waited for longer, and has less than others, is first.
        """
        since = lease.wanted_since or now
        leases = list(self._taken())
        free = limit - sum(each.held for each in leases)
        fair = limit / self._claims(leases, lease)
        first = sum(
            each.ticket != lease.ticket and 0 < each.wanted_since < since and each.held < fair
            for each in leases
        )
        granted = int(max(0, min(wanted, free - first)))
        lease.held += granted
        lease.wanted_since = 0.0 if granted == wanted else now if granted else since
        self._share(leases, limit)
        return granted

    def give_back(self, lease: Lease, permits: int, limit: int) -> None:
        lease.held -= permits
        self.share(limit)

    def share(self, limit: int) -> None:
        """Find out what is fair, where some lack permits or all hold too many."""
        self._share(list(self._taken()), limit)

    def _share(self, leases: list[Lease], limit: int) -> None:
        fair = limit / self._claims(leases)
        lacking = any(each.wanted_since and each.held < fair for each in leases)
        self.excess = max(0.0, sum(each.held for each in leases) - limit)
        self.fair = fair if lacking or self.excess else 0.0

    @staticmethod
    def _claims(leases: list[Lease], own: Lease | None = None) -> int:
        claiming = sum(bool(each.held or each.wanted_since) for each in leases)
        is_new = own is not None and not (own.held or own.wanted_since)
        return max(1, claiming + is_new)

    def drop(self, lease: Lease) -> None:
        lease.owner = lease.held = lease.wanted_since = 0.0

    def drop_lost(self, is_alive: Callable[[int], bool], now: float) -> None:
        """Take back what is held by processes that are gone, or for too long."""
        owners = {lease.owner for lease in self._taken()}
        gone = {owner for owner in owners if not is_alive(int(owner))}
        for lease in self._taken():
            if lease.owner in gone or now > lease.until:
                self.drop(lease)


def surplus(held: float, fair: float, excess: float = 0.0) -> int:
    """How many of ``held`` permits a task gives back whose request is over, where ``fair`` is its part.

    Where there is less than one for each, they go round: whoever has used one gives it back. Where all hold
    ``excess`` permits too many, who holds a part of one above what is fair gives that one back, too.
    """
    if not fair:
        return 0
    more = held - fair
    return 1 if fair < 1 else max(0, math.floor(more), min(math.ceil(more), int(excess)))
