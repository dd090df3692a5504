"""What the exporters call a count, and the attribute by which it is divided."""

from __future__ import annotations


def division(field: str) -> str:
    """By what a count of several keys is divided.

    >>> division("errors_by_class"), division("waited")
    ('class', 'cause')
    """
    _, by, rest = field.rpartition("_by_")
    return rest if by else "cause"
