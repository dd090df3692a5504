"""Statements of Spark that we read too: ``SET`` of one of our options, and ``EXPLAIN``."""

from __future__ import annotations

import re

from lookup_hints.options import LOOKUP_OPTIONS, SESSION_OPTIONS, Place

OWN_KEYS = frozenset(
    key
    for option in (*LOOKUP_OPTIONS, *SESSION_OPTIONS)
    if Place.SESSION in option.places
    for key in (option.session_key, f"spark.{option.session_key}")
)
_SET = re.compile(r"\s*SET\s+(['`]?)([\w.-]+)\1\s*=\s*(.*?)\s*;?\s*", re.IGNORECASE | re.DOTALL)


def own_setting(text: str) -> tuple[str, str] | None:
    """Key and value of a SET of one of our options, or None for any other statement.

    Spark's own SET takes no bare key with a dash in it; Flink's quotes both (``SET 'k' = 'v'``).

    >>> own_setting("SET table.exec.async-lookup.timeout = 10s")
    ('table.exec.async-lookup.timeout', '10s')
    """
    match = _SET.fullmatch(text)
    if match is None or match[2] not in OWN_KEYS:
        return None
    value = match[3]
    is_quoted = len(value) >= 2 and value[0] == value[-1] == "'"
    return match[2], value[1:-1] if is_quoted else value


_EXPLAIN = re.compile(r"\s*EXPLAIN(?:\s+(EXTENDED|CODEGEN|COST|FORMATTED))?\s+", re.IGNORECASE)


def explained(text: str) -> tuple[str, str] | None:
    """What an EXPLAIN statement explains, and its mode; None for any other statement.

    >>> explained("EXPLAIN EXTENDED SELECT 1")
    ('SELECT 1', 'extended')
    """
    match = _EXPLAIN.match(text)
    return (text[match.end() :], (match[1] or "formatted").lower()) if match else None
