"""Numbers that several processes may share: a record is some of them, with names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol


class SharedNumbers(Protocol):
    """Numbers that are read and written by their place: a list, or mapped memory."""

    def __getitem__(self, place: int, /) -> float: ...

    def __iter__(self) -> Iterator[float]: ...

    def __setitem__(self, place: int, number: float, /) -> None: ...


class Cell:
    """A number of a record, as one of its attributes; 0 at first."""

    def __set_name__(self, owner: type[Record], name: str) -> None:
        self._place = owner.SIZE
        owner.SIZE += 1

    def __get__(self, record: Record, owner: type[Record]) -> float:
        return record.cells[record.start + self._place]

    def __set__(self, record: Record, number: float) -> None:
        record.cells[record.start + self._place] = number


class Record:
    """Cells from ``start`` on."""

    SIZE: ClassVar[int] = 0

    def __init__(self, cells: SharedNumbers, start: int = 0) -> None:
        self.cells = cells
        self.start = start


class Latest:
    """The last ``size`` numbers that were added, from ``start`` on; numbers are not 0."""

    def __init__(self, cells: SharedNumbers, start: int, size: int) -> None:
        self._cells, self._start, self._size = cells, start + 1, size

    @classmethod
    def cells_for(cls, size: int) -> int:
        return size + 1

    @property
    def is_sound(self) -> bool:
        """Whether the place of the next number is one of the record."""
        return 0 <= self._cells[self._start - 1] < self._size

    def add(self, number: float, times: int = 1) -> None:
        """Add ``number`` several times; the oldest ones are dropped when the record is full."""
        cells, start, place = self._cells, self._start, int(self._cells[self._start - 1])
        for _ in range(times):
            cells[start + place] = number
            place = (place + 1) % self._size
        cells[start - 1] = place

    def clear(self) -> None:
        for place in range(self._start - 1, self._start + self._size):
            self._cells[place] = 0.0

    def __iter__(self) -> Iterator[float]:
        numbers = (self._cells[place] for place in range(self._start, self._start + self._size))
        return (number for number in numbers if number)
