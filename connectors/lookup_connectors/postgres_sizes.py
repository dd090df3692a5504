"""How large answers of PostgreSQL may be, and how many keys to ask so that they are not larger.

The driver reads an answer to its end. So each statement says how many bytes its answer may have: the server
compares, and sends a larger one's size in its place.
"""

from __future__ import annotations

from lookup_connectors.bytes_in_flight import BytesInFlight

COPIES = 4
"""So often an answer is in memory while it is read: as it came, joined, as Python's objects, as columns."""

_CONNECTIONS = 4
_LEAST = 256 * 1024


class AnswerSizes:
    """What answers of one open connector may take, and what they took so far.

    Args:
        in_flight: bytes for all answers together, in all their copies.
        row_bytes: how large a row is expected to be before one was seen; 0 where nothing is known.
    """

    def __init__(self, in_flight: int, row_bytes: float) -> None:
        self.budget = BytesInFlight(in_flight)
        self.largest = max(1, in_flight // COPIES // _CONNECTIONS)
        """Bytes that one answer for several keys may have."""
        self._key_bytes = row_bytes

    def fitting(self) -> int:
        """For how many keys an answer should not be too large."""
        return max(1, int(self.largest / max(1.0, self._key_bytes)))

    def limit(self, keys: int) -> int:
        """The bytes that the answer to a request for this many keys may have."""
        if not self._key_bytes:
            return self.largest
        return int(min(self.largest, max(_LEAST, 4 * keys * self._key_bytes)))

    def saw(self, keys: int, size: int) -> None:
        """An answer for so many keys had so many bytes. Wide rows count at once, narrow ones by and by."""
        seen = size / keys
        self._key_bytes = max(seen, (self._key_bytes + seen) / 2)
