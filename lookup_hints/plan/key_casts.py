"""The key to look up when the left side of an equality has another type than the column.

Spark compares ``CAST(left AS W) = CAST(column AS W)`` for a common type W. Looking up one value is correct
only if at most one value of the column's type equals a given W. If needed, the original equality is checked
again on the rows found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lookup_hints.spi.arrow_types import written_type

ANSI = "spark.sql.ansi.enabled"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_KEY_TYPES = (
    *_INTEGERS,
    *("boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"),
)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FIXED_ZONE = re.compile(
    r"(Etc/)?(UTC|GMT|UCT|Z|Zulu|Universal)|(UTC|GMT|UT)?[+-]\d\d?(:?\d\d)?", re.IGNORECASE
)
KEY = "`__lookup_key`"
_ABOVE = {"int": "2147483648D", "bigint": "9223372036854775808D"}
# Exact numbers of this many digits are different ones as floating point numbers, too.
_DIGITS_TOLD_APART = {"double": 15, "float": 6}


@dataclass(frozen=True)
class KeyCast:
    """The cast of a key to the column's type.

    Args:
        steps: types to cast to, in order; with ``recheck`` the last cast is a ``try_cast``.
        recheck: whether the original equality must be checked on the rows found.
        digits: for a floating point key of an exact column: below ten to this power a float distinguishes the
            column's values; a larger number that the column can hold fails the query.
        wrapping: text to write around the cast value, so that it reaches Python unchanged.
    """

    steps: tuple[str, ...] = ()
    recheck: bool = False
    digits: int | None = None
    wrapping: tuple[str, str] = ("", "")

    def prefix_and_suffix(self) -> tuple[str, str]:
        before, after = "", ""
        for number, step in enumerate(self.steps):
            is_last = number == len(self.steps) - 1
            if is_last and self.digits is not None:
                before, after = (
                    f"element_at(transform(array({before}",
                    f"{after}){self._guarded_cast(step)}), 1)",
                )
                continue
            function = "try_cast" if self.recheck and is_last else "CAST"
            before, after = f"{function}({before}", f"{after} AS {written_type(step)})"
        return self.wrapping[0] + before, after + self.wrapping[1]

    def _guarded_cast(self, column: str) -> str:
        """The last cast as a lambda: no false match below this many digits, an error above them.

        Numbers that the column cannot hold become NULL.
        """
        precision, scale = _precision_and_scale(column)
        largest = _ABOVE.get(column, f"1E{precision - scale}D")
        written = written_type(column)
        message = (
            f"' is too large to be looked up as {written}: it equals several such values."
            f" Write CAST(... AS {written}) around the key.'"
        )
        return (
            f", {KEY} -> CASE WHEN abs({KEY}) < 1E{self.digits}D THEN try_cast({KEY} AS {written})"
            f" WHEN abs({KEY}) <= {largest}"
            f" THEN raise_error(concat('The key ', {KEY}, {message})) END"
        )


def is_key_type(kind: str) -> bool:
    return kind in _KEY_TYPES or _DECIMAL.fullmatch(kind) is not None


# A key is compared as Spark would compare it. If one value cannot represent all equal ones, the found row
# is checked again.
def key_cast(left: str, column: str, *, ansi: bool = True, zone: str = "") -> KeyCast | None:
    """The cast from type ``left`` to type ``column`` (Spark type names); None if no single value would do.

    Args:
        left: the type of the key.
        column: the type of the column.
        ansi: whether `spark.sql.ansi.enabled` is on: it decides how Spark compares texts and FLOATs.
        zone: the session's time zone: if its offset changes, two local times can be one moment.

    >>> key_cast("bigint", "int")
    KeyCast(steps=('int',), recheck=True, digits=None, wrapping=('', ''))
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
        is_told_apart = _precision_and_scale(column)[1] <= _precision_and_scale(common)[1]
        return KeyCast((common, column), recheck=True) if is_told_apart else None
    if _is_number(left) and _is_number(column):
        return _floating_cast(left, column, _common_float(left, column, ansi))
    if left == "string":
        return _cast_from_text(column, ansi)
    if (left, column) == ("timestamp", "timestamp_ntz") and not _FIXED_ZONE.fullmatch(zone):
        return None
    return _KEY_CASTS.get((left, column))


def order_cast(left: str, column: str) -> KeyCast | None:
    """How a ``left`` value is compared with a ``column`` by order, or None: Spark would cast the column.

    >>> order_cast("date", "timestamp")
    KeyCast(steps=('timestamp',), recheck=False, digits=None, wrapping=('', ''))
    >>> order_cast("timestamp", "date") is None
    True
    """
    if left == column:
        return KeyCast()
    is_wider = (
        (left in _INTEGERS and column in _INTEGERS and _INTEGERS.index(left) < _INTEGERS.index(column))
        or (_is_exact(left) and _DECIMAL.fullmatch(column) and _wider_decimal(left, column) == column)
        or (_is_number(left) and column == "double")
        or (column in ("timestamp", "timestamp_ntz") and left in ("date", "string"))
        or (left, column) in (("timestamp_ntz", "timestamp"), ("string", "date"))
        or left == "void"
    )
    return KeyCast((column,)) if is_wider else None


_KEY_CASTS = {
    ("date", "timestamp"): KeyCast(("timestamp",)),
    ("timestamp", "date"): KeyCast(("date",), recheck=True),
    ("date", "timestamp_ntz"): KeyCast(("timestamp_ntz",)),
    ("timestamp_ntz", "date"): KeyCast(("date",), recheck=True),
    ("timestamp_ntz", "timestamp"): KeyCast(("timestamp",)),
    ("timestamp", "timestamp_ntz"): KeyCast(("timestamp_ntz",), recheck=True),
}


def _cast_from_text(column: str, ansi: bool) -> KeyCast | None:
    """A text against another type: Spark reads the text as that type, or as a wider one.

    With ANSI a text that is no number fails the query; without, it equals nothing.
    """
    if column in _INTEGERS and column != "bigint" and ansi:
        return KeyCast(("bigint", column), recheck=True)
    if _DECIMAL.fullmatch(column) or (column == "float" and ansi):
        return _floating_cast("string", column, "double")
    if is_key_type(column):
        return KeyCast((column,))
    return None


def _common_float(left: str, column: str, ansi: bool) -> str:
    """The type in which Spark compares two numbers, one of them a floating point number."""
    others = {left, column} - {"float"}
    is_float = not ansi and others <= set(_INTEGERS)
    return "float" if is_float else "double"


def _floating_cast(left: str, column: str, common: str) -> KeyCast:
    """A key that is compared with the column as a floating point number, FLOAT or DOUBLE."""
    steps = () if left == common else (common,)
    if column == common:
        return KeyCast(steps)
    if column == "float":
        return KeyCast((*steps, column), recheck=True)
    precision, scale = _precision_and_scale(column)
    told_apart = _DIGITS_TOLD_APART[common]
    digits = None if precision <= told_apart else told_apart - scale
    return KeyCast((*steps, column), recheck=True, digits=digits)


def _is_number(kind: str) -> bool:
    return kind in _DIGITS_TOLD_APART or _is_exact(kind)


def _is_exact(kind: str) -> bool:
    return kind in _INTEGERS or _DECIMAL.fullmatch(kind) is not None


def _precision_and_scale(kind: str) -> tuple[int, int]:
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else (_DIGITS[kind], 0)


def _wider_decimal(one: str, other: str) -> str:
    """The DECIMAL in which Spark compares two exact numbers (its DecimalPrecisionTypeCoercion)."""
    (p1, s1), (p2, s2) = _precision_and_scale(one), _precision_and_scale(other)
    scale = max(s1, s2)
    surplus = max(0, max(p1 - s1, p2 - s2) + scale - 38)
    digits = max(p1 - s1, p2 - s2) + scale - surplus
    # Over 38 digits Spark keeps the whole ones and cuts the scale.
    return f"decimal({digits},{max(0, scale - surplus)})"
