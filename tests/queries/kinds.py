"""Each of Spark's join types with a lookup table on either side: how its rows come, as EXPLAIN says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ASKED = "asked"
_EVERY = "a {} JOIN needs every row of the lookup table"
_DRIVES = "{} needs every row of its left side"
_NO_EQUALITY = (
    "its condition has no equality between an expression of the left side and a column that can be asked by"
)
_IN_ORDER = "the sides of USING and NATURAL stay in their order"
_NO_KEY = "no equality gives its key"
_CROSS = "a CROSS JOIN gives no key to ask for"
_COMMA = "no equality in WHERE gives its key, so nothing says which rows to ask for"


@dataclass(frozen=True)
class Kind:
    """One row of the table.

    Args:
        title: the join as the page calls it.
        text: a query with ``{left}`` and ``{right}`` for its tables, called l and r.
        on_the_right: what becomes of a lookup table on the right: asked, or why it is read whole.
        on_the_left: the same on the left.
    """

    title: str
    text: str
    on_the_right: str
    on_the_left: str

    def queries(self) -> Iterator[tuple[str, str]]:
        """Both queries over flights and airlines, each with what becomes of the lookup table ``airlines``."""
        ordinary = "(SELECT carrier, flight, day FROM first_day WHERE flight < 60)"
        yield self.text.format(left=f"{ordinary} l", right="airlines r"), self.on_the_right
        yield self.text.format(left="airlines l", right=f"{ordinary} r"), self.on_the_left


def _of(words: str, right: str, left: str, columns: str = "l.carrier AS a, r.carrier AS b") -> Iterator[Kind]:
    """The join with an equality, and with another comparison."""
    text = f"SELECT {columns} FROM {{left}} {words} JOIN {{right}} ON"
    yield Kind(f"`{words} JOIN ... ON`, an equality", f"{text} r.carrier = l.carrier", right, left)
    far = right if right != ASKED else _NO_EQUALITY
    near = left if left != ASKED else _NO_KEY
    yield Kind(f"`{words} JOIN ... ON`, `>`", f"{text} r.carrier > l.carrier", far, near)


def _alike(words: str, right: str, left: str) -> Iterator[Kind]:
    """The join by USING, and NATURAL."""
    yield Kind(
        f"`{words} JOIN ... USING`",
        f"SELECT * FROM {{left}} {words} JOIN {{right}} USING (carrier)",
        right,
        left,
    )
    yield Kind(
        f"`NATURAL {words} JOIN`", f"SELECT * FROM {{left}} NATURAL {words} JOIN {{right}}", right, left
    )


_LEFT_ONLY = "l.carrier AS a"
KINDS = (
    *_of("INNER", ASKED, ASKED),
    *_of("LEFT OUTER", ASKED, _DRIVES.format("a LEFT JOIN")),
    *_of("RIGHT OUTER", _EVERY.format("RIGHT"), ASKED),
    *_of("FULL OUTER", _EVERY.format("FULL"), _DRIVES.format("a FULL JOIN")),
    *_of("LEFT SEMI", ASKED, _DRIVES.format("a SEMI JOIN"), _LEFT_ONLY),
    *_of("LEFT ANTI", ASKED, _DRIVES.format("an ANTI JOIN"), _LEFT_ONLY),
    *_alike("INNER", ASKED, _IN_ORDER),
    *_alike("LEFT OUTER", ASKED, _DRIVES.format("a LEFT JOIN")),
    *_alike("RIGHT OUTER", _EVERY.format("RIGHT"), _IN_ORDER),
    *_alike("FULL OUTER", _EVERY.format("FULL"), _DRIVES.format("a FULL JOIN")),
    # Spark has no NATURAL SEMI and ANTI JOIN.
    next(_alike("LEFT SEMI", ASKED, _DRIVES.format("a SEMI JOIN"))),
    next(_alike("LEFT ANTI", ASKED, _DRIVES.format("an ANTI JOIN"))),
    Kind(
        "`CROSS JOIN`",
        "SELECT l.carrier AS a, r.carrier AS b FROM {left} CROSS JOIN {right}",
        _CROSS,
        _NO_KEY,
    ),
    Kind(
        "`CROSS JOIN`, an equality in `WHERE`",
        "SELECT l.carrier AS a, r.carrier AS b FROM {left} CROSS JOIN {right} WHERE l.carrier = r.carrier",
        ASKED,
        ASKED,
    ),
    Kind("a comma", "SELECT l.carrier AS a, r.carrier AS b FROM {left}, {right}", _COMMA, _COMMA),
    Kind(
        "a comma, an equality in `WHERE`",
        "SELECT l.carrier AS a, r.carrier AS b FROM {left}, {right} WHERE l.carrier = r.carrier",
        ASKED,
        ASKED,
    ),
    Kind(
        "`column IN (value, value)` in `ON`",
        "SELECT l.carrier AS a, r.carrier AS b FROM {left} JOIN {right} ON r.carrier IN (l.carrier, upper(l.carrier))",
        _NO_EQUALITY,
        _NO_KEY,
    ),
    Kind(
        "an expression around both columns in `ON`",
        "SELECT l.carrier AS a, r.carrier AS b FROM {left} JOIN {right} ON lower(r.carrier) = lower(l.carrier)",
        _NO_EQUALITY,
        _NO_KEY,
    ),
)
