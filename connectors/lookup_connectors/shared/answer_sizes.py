"""How large answers of a database may be, learnt from those that came."""

from __future__ import annotations

from lookup_connectors.shared.bytes_in_flight import BytesInFlight

COPIES = 4
"""So often an answer is in memory while it is read: as it came, joined, as Python's objects, as columns."""

_CONNECTIONS = 4
_LEAST = 256 * 1024


# Drivers read an answer to its end, so its size is known or expected before it is asked for.
# (docs/decisions/0086)
class AnswerSizes:
    """What answers to requests for some keys may take, as ``in_flight`` bytes may be under way together."""

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
