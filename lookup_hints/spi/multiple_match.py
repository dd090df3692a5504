"""What happens where several rows of a table have one declared primary key: ``'multiple-match'``."""

from __future__ import annotations

from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi.changed_column_and_versions import VALID_FROM
from lookup_hints.spi.lookup_options import TABLE_OPTIONS
from lookup_hints.spi.option_values import parsed
from lookup_hints.spi.request_and_answer import LookupTable

MULTIPLE_MATCH = "multiple-match"
ALL, FIRST, ERROR = "all", "first", "error"


def multiple_match_of(table: LookupTable) -> str:
    """``all``, ``first`` or ``error``: how many rows of a primary key count."""
    text = table.options.get(MULTIPLE_MATCH)
    if text is None:
        return ALL
    option = TABLE_OPTIONS[MULTIPLE_MATCH]
    return str(parsed(option, MULTIPLE_MATCH, text, owner=f"table {table.name}: "))


def check_multiple_match(table: LookupTable) -> None:
    """Refuse ``first`` and ``error`` where they say nothing.

    Raises:
        OptionError: the table has no primary key, or several rows of a key on purpose.
    """
    how = multiple_match_of(table)
    if how == ALL:
        return
    what, tip = "", ""
    if not table.primary_key:
        what, tip = "a PRIMARY KEY, of which there is one row", "Declare PRIMARY KEY (...) NOT ENFORCED."
    elif VALID_FROM in table.options:
        what, tip = f"a table without {VALID_FROM!r}, whose keys have several rows", "Leave one of them out."
    if what and len(table.schema):
        raise OptionError(Problem(f"table {table.name}: {MULTIPLE_MATCH!r} = {how!r} needs {what}.", tip=tip))
