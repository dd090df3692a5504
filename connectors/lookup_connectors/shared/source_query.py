"""``'query' = 'SELECT ...'``: a query of the database in place of a table, asked as a derived table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lookup_connectors.shared.options import option_error
from lookup_hints.errors import ConnectorError
from lookup_hints.spi import TEXT, HealthCheck, LookupTable, Option, TableSize
from lookup_hints.spi.secrets import has_reference

QUERY = Option(
    "query", TEXT, "A SELECT of the database, in place of `table-name`: its rows are those of the table."
)
ALIAS = "lookup_query"
"""What the derived table is called, which all databases write alike."""
VIEW = "lookup query"
"""What a view of it is called, on a connection of SQLite: no table of the file is called so."""

UNCOUNTED = TableSize(None, source="a query, whose rows nobody has counted")

_WORDS_AND_SIGNS = r"""| `[^`]*` | (?P<word>[^\W\d]\w*) | (?P<sign>[();'"`]|/\*) | \S"""
PIECE = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | '(?:[^']|'')*' | "(?:[^"]|"")*" """
    + _WORDS_AND_SIGNS,
    re.VERBOSE | re.DOTALL,
)
"""A comment, string, name, word or sign of SQL."""
# Two dashes are a comment where a blank is behind them. What is in /*! and /*M! is run.
MYSQL_PIECE = re.compile(
    r"""--(?=[\x00-\x20\x7f]|\Z)[^\n]* | \#[^\n]* | /\*(?!M?!).*?\*/
      | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" """
    + _WORDS_AND_SIGNS,
    re.VERBOSE | re.DOTALL,
)
"""The same of MariaDB and MySQL, where a backslash escapes."""
_HOLDS_BACK = {
    "LIMIT": "LIMIT",
    "FETCH": "FETCH",
    "OFFSET": "OFFSET",
    "GROUP": "GROUP BY",
    "DISTINCT": "DISTINCT",
    "OVER": "a window",
    "UNION": "UNION",
    "INTERSECT": "INTERSECT",
    "EXCEPT": "EXCEPT",
}


def query_of(table: LookupTable) -> str | None:
    """The query that ``table`` names; None where it is a table or view."""
    text = table.options.get(QUERY.key)
    return None if text is None else text.strip()


def check_query(table: LookupTable, piece: re.Pattern[str] = PIECE) -> None:
    """Refuse a query beside ``table-name``, and what is not one SELECT of ``piece``s of the database's SQL.

    Raises:
        OptionError: it says what is wrong, and where.
    """
    text = table.options.get(QUERY.key)
    if text is None:
        return
    if "table-name" in table.options:
        raise option_error(table, "'query' and 'table-name' exclude each other", "Give one of them.")
    if has_reference(text):
        raise option_error(table, "'query' may hold no reference", "Keys and filters need none.")
    depth, words = 0, 0
    for found in piece.finditer(text):
        sign, word = found["sign"], found["word"]
        if word is not None and not words and word.upper() not in ("SELECT", "WITH"):
            raise _misplaced_piece(table, text, found.start(), f"{word!r} begins no query", "Write SELECT.")
        words += word is not None
        if sign == ";":
            raise _misplaced_piece(
                table, text, found.start(), "a ';' ends a statement", "Write one SELECT, without ';'."
            )
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            raise _misplaced_piece(table, text, found.start(), "this ')' closes nothing", "Leave it out.")
        if sign and sign not in "()":
            what, tip = "this quote or comment is never closed", "Close it."
            if text.startswith(("/*!", "/*M!"), found.start()) and piece is MYSQL_PIECE:
                what, tip = "the server runs this comment", "Leave it out."
            raise _misplaced_piece(table, text, found.start(), what, tip)
    if depth or not words:
        raise option_error(table, "'query' ends too early", "Write one whole SELECT.")


def _misplaced_piece(table: LookupTable, text: str, at: int, what: str, tip: str) -> Exception:
    return option_error(table, f"'query'{place_in(text, at)}: {what}", tip)


def derived_table(query: str) -> str:
    """``query`` as what stands in FROM; a comment at its end does not reach what follows.

    >>> derived_table("SELECT 1")
    '(SELECT 1\\n) AS lookup_query'
    """
    return f"({query}\n) AS {ALIAS}"


def place_in(text: str, at: int) -> str:
    """Where the character ``at`` is in a query, for messages.

    >>> place_in("SELECT a\\nFORM t", 9)
    ", line 2, character 1 ('FORM t')"
    """
    before = text[:at].rsplit("\n", 1)
    shown = " ".join(text[at : at + 40].split())
    return f", line {text.count(chr(10), 0, at) + 1}, character {len(before[-1]) + 1} ({shown!r})"


def place_of_word(text: str, word: str) -> str:
    """Where ``word`` first stands by itself in a query, as ``place_in`` says it; empty if it does not.

    >>> place_of_word("SELECT id, d FROM t", "d"), place_of_word("SELECT a", "b")
    (", line 1, character 12 ('d FROM t')", '')
    """
    found = re.search(rf"((?<!\w)|(?=\W)){re.escape(word)}((?!\w)|(?<=\W))", text) if word else None
    return place_in(text, found.start()) if found else ""


def held_back_by(text: str, piece: re.Pattern[str] = PIECE) -> list[str]:
    """What in the outermost SELECT may keep a database from looking for keys inside the query.

    >>> held_back_by("SELECT a, max(b) FROM t GROUP BY a LIMIT 5"), held_back_by("SELECT a FROM t")
    (['GROUP BY', 'LIMIT'], [])
    """
    depth, found = 0, list[str]()
    for each in piece.finditer(text):
        depth += (each["sign"] == "(") - (each["sign"] == ")")
        name = _HOLDS_BACK.get((each["word"] or "").upper()) if depth == 0 else None
        if name is not None and name not in found:
            found.append(name)
    return found


def remarks_on(table: LookupTable, piece: re.Pattern[str] = PIECE) -> Sequence[str]:
    """What EXPLAIN says of a query that may be run whole for each request."""
    text = query_of(table)
    held = held_back_by(text, piece) if text is not None else []
    if not held:
        return ()
    what = (
        f"the query of {table.name} has {' and '.join(held)}: the database may run all of it for each request"
    )
    return (f"{what}, which lookup-hints doctor tells; 'access' = 'scan' runs it once",)


def check_names(table: LookupTable, names: Sequence[str]) -> None:
    """Refuse a query two of whose columns have one name."""
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise same_name_error(table, twice)


def same_name_error(table: LookupTable, name: str) -> ConnectorError:
    what = f"'query' gives two columns {name!r}. Name them by AS."
    return ConnectorError(f"table {table.name}: {what}", permanent=True)


def pushed_keys_check(names: str, steps: str) -> HealthCheck:
    """Whether a database looks for keys inside the query: by ``steps``, which are empty if it does not."""
    if steps:
        return HealthCheck("index", "ok", f"{names} is looked for inside the query: {steps}")
    what = f"{names} is compared with the rows of the query: each request runs all of it"
    cure = "Take LIMIT, GROUP BY, windows or UNION out of it, or set 'lookup.access' = 'scan'."
    return HealthCheck("index", "warn", what, cure)
