"""How many requests each of the last statements has sent, where that is bounded. Pure."""

from __future__ import annotations

from typing import ClassVar

from lookup_hints.limits.shared_numbers import Record

_REMEMBERED = 64


class Spent(Record):
    """Requests by statement; of the statements with the highest numbers, which are the latest."""

    SIZE: ClassVar[int] = 2 * _REMEMBERED

    def send(self, statement: int, most: int) -> bool:
        """Count one more request of ``statement``; False, and no count, where that is over ``most``."""
        place = self._place_of(statement)
        if self.cells[place + 1] >= most:
            return False
        self.cells[place + 1] += 1
        return True

    def _place_of(self, statement: int) -> int:
        # From 1, as an empty place holds 0.
        number = statement + 1.0
        places = range(self.start, self.start + self.SIZE, 2)
        place = next((place for place in places if self.cells[place] == number), None)
        if place is None:
            place = min(places, key=self.cells.__getitem__)
            self.cells[place], self.cells[place + 1] = number, 0.0
        return place
