"""The key that is asked for, when the left side of an equality has another type than the column.

Spark compares ``CAST(left AS W) = CAST(column AS W)`` for a common type W. A connector can be asked for
one value only where at most one value of the column's type equals a given W, and the original equality
is checked again on the rows that come back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_KEY_TYPES = (
    *_INTEGERS,
    *("boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"),
)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class KeyCast:
    """How a key becomes a value of the column's type.

    Args:
        steps: types to cast to, in order; the last one is cast to with ``try_cast`` when ``recheck``.
        recheck: whether the original equality must be checked on the rows found.
        wrapping: what to write around the cast value, so that it reaches Python as it is.
    """

    steps: tuple[str, ...] = ()
    recheck: bool = False
    wrapping: tuple[str, str] = ("", "")

    def prefix_and_suffix(self) -> tuple[str, str]:
        """What to write before and after the key expression."""
        before, after = "", ""
        for number, step in enumerate(self.steps):
            is_last = number == len(self.steps) - 1
            function = "try_cast" if self.recheck and is_last else "CAST"
            before, after = f"{function}({before}", f"{after} AS {step.upper()})"
        return self.wrapping[0] + before, after + self.wrapping[1]


def is_key_type(kind: str) -> bool:
    """Whether columns of this type can be asked by."""
    return kind in _KEY_TYPES or _DECIMAL.fullmatch(kind) is not None


def key_cast(left: str, column: str, *, ansi: bool = True) -> KeyCast | None:
    """How a ``left`` value asks for a ``column`` value (Spark type names), or None: no single value does.

    ``ansi`` says whether `spark.sql.ansi.enabled` is on, which decides how texts are compared.

    >>> key_cast("bigint", "int")
    KeyCast(steps=('int',), recheck=True)
    """
    if left == column:
        return KeyCast()
    if left == "void":
        return KeyCast((column,))
    if re.fullmatch(r"(var)?char\(\d+\)", left) and column == "string":
        return KeyCast((column,))
    if left in _INTEGERS and column in _INTEGERS:
        narrower = _INTEGERS.index(left) < _INTEGERS.index(column)
        return KeyCast((column,), recheck=not narrower)
    if _is_exact(left) and _is_exact(column):
        common = _wider_decimal(left, column)
        # Where the common type has fewer decimals than the column, several values of it are one there.
        is_told_apart = _precision(column)[1] <= _precision(common)[1]
        return KeyCast((common, column), recheck=True) if is_told_apart else None
    if left == "string":
        return _from_text(column, ansi)
    return _KEY_CASTS.get((left, column)) or _floating(left, column)


_KEY_CASTS = {
    ("float", "double"): KeyCast(("double",)),
    ("double", "float"): KeyCast(("float",), recheck=True),
    ("date", "timestamp"): KeyCast(("timestamp",)),
    ("timestamp", "date"): KeyCast(("date",), recheck=True),
    ("date", "timestamp_ntz"): KeyCast(("timestamp_ntz",)),
    ("timestamp_ntz", "date"): KeyCast(("date",), recheck=True),
}


def _from_text(column: str, ansi: bool) -> KeyCast | None:
    """A text against another type: Spark reads the text as that type, or as a wider one.

    With ANSI a text that is no number fails the query; without, it equals nothing.
    """
    if column in _INTEGERS and column != "bigint" and ansi:
        return KeyCast(("bigint", column), recheck=True)
    if column in (*_INTEGERS, "boolean", "date", "timestamp", "double"):
        return KeyCast((column,))
    return None


def _floating(left: str, column: str) -> KeyCast | None:
    """DOUBLE against exact numbers: compared as DOUBLE, which tells apart up to 15 digits."""
    if column == "double" and _is_exact(left):
        return KeyCast(("double",))
    if left == "double" and _is_exact(column) and _precision(column)[0] <= 15:
        return KeyCast((column,), recheck=True)
    return None


def _is_exact(kind: str) -> bool:
    return kind in _INTEGERS or _DECIMAL.fullmatch(kind) is not None


def _precision(kind: str) -> tuple[int, int]:
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else (_DIGITS[kind], 0)


def _wider_decimal(one: str, other: str) -> str:
    """The DECIMAL in which Spark compares two exact numbers (its DecimalPrecisionTypeCoercion)."""
    (p1, s1), (p2, s2) = _precision(one), _precision(other)
    scale = max(s1, s2)
    surplus = max(0, max(p1 - s1, p2 - s2) + scale - 38)
    digits = max(p1 - s1, p2 - s2) + scale - surplus
    # Over 38 digits Spark keeps the whole ones and cuts the scale.
    return f"decimal({digits},{max(0, scale - surplus)})"
