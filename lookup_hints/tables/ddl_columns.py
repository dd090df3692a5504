"""The column list of CREATE TEMPORARY TABLE -> Arrow schema and primary key; and the reader of DDL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lookup_hints.errors import Problem, nearest
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.option_values import Conf
from lookup_hints.spi.secrets import MASK
from lookup_hints.sql.cursor import Cursor, Unreadable
from lookup_hints.sql.lexer import Kind, Piece, comma_groups

_SIMPLE: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    **dict.fromkeys(("BINARY", "BYTES"), pa.binary()),
    "DATE": pa.date32(),
}
_TIMESTAMPS = {"TIMESTAMP_LTZ": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP_NTZ}
_INSTEAD = {
    "VARBINARY": "BINARY",
    "TEXT": "STRING",
    "JSON": "STRING",
    "UUID": "STRING",
    "DATETIME": "TIMESTAMP_NTZ",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    "BOOL": "BOOLEAN",
    "INT8": "BIGINT",
    "NUMBER": "DECIMAL(38, 0)",
    "ROW": "STRUCT<name: TYPE, ...>",
    "MULTISET": "ARRAY<TYPE>",
}
_NEVER = ("VARIANT", "TIME", "VOID", "NULL", "GEOMETRY", "GEOGRAPHY", "OBJECT", "RAW")
_MOST_DIGITS = 38
_MICROSECONDS = 6
_MOST_NESTED = 100


def plain_timestamp(conf: Conf) -> pa.DataType:
    """The type that TIMESTAMP is: the one that Spark's own CREATE TABLE gives it under the same settings."""
    chosen = conf("spark.sql.timestampType") or ""
    return TIMESTAMP_NTZ if chosen.upper() == "TIMESTAMP_NTZ" else TIMESTAMP


def read_type(reader: DdlReader, depth: int = 0) -> pa.DataType:
    """Read the type that comes next; ``depth`` types hold it.

    Raises:
        Unreadable: it is not a type, or none that a lookup column can have.
    """
    if depth > _MOST_NESTED:
        reader.fail(f"Types are nested here more than {_MOST_NESTED} deep.", tip="Write STRING for it.")
    name = reader.rest[0].text.upper() if reader.rest else ""
    if name in _NEVER:
        reader.fail(f"{name} cannot be the type of a lookup column.")
    if name in _INSTEAD:
        reader.fail(f"There is no type {name}.", tip=f"Write {_INSTEAD[name]}.")
    if not (name in _SIMPLE or name in _COMPOSED or name in _NESTING):
        known = (*_SIMPLE, *_COMPOSED, *_NESTING)
        reader.fail_missing("The type", tip=nearest(name, known) if name.isidentifier() else "")
    reader.words(name)
    if name in _NESTING:
        return _NESTING[name](reader, name, depth + 1)
    kind = _SIMPLE[name] if name in _SIMPLE else _COMPOSED[name](reader, name)
    before = reader.rest
    if reader.words("COLLATE"):
        tip = f"Write {name}, as sources compare texts by their bytes; COLLATE belongs into the query."
        reader.fail("A column of a lookup table has no collation.", before, tip)
    return kind


def _char_type(reader: DdlReader, name: str) -> pa.DataType:
    reader.expect("(", f"after {name}, as in {name}(10)")
    reader.integer("the length")
    reader.expect(")", "after the length")
    return pa.string()


def _decimal_type(reader: DdlReader, name: str) -> pa.DataType:
    size = reader.rest
    if not reader.symbol("("):
        return pa.decimal128(10, 0)
    precision = reader.integer("the precision")
    scale = reader.integer("the scale") if reader.symbol(",") else 0
    reader.expect(")", f"after the size of the {name}")
    if not (1 <= precision <= _MOST_DIGITS and scale <= precision):
        tip = f"The precision is 1 to {_MOST_DIGITS}, the scale at most the precision."
        reader.fail(f"{name}({precision}, {scale}) is impossible.", size[:2], tip)
    return pa.decimal128(precision, scale)


def _timestamp_type(reader: DdlReader, name: str) -> pa.DataType:
    size = reader.rest
    if reader.symbol("("):
        precision = reader.integer("the precision")
        reader.expect(")", "after the precision")
        if precision > _MICROSECONDS:
            reader.fail(f"{name}({precision}) is finer than microseconds.", size[:3], tip=f"Write {name}.")
    return _TIMESTAMPS.get(name, reader.timestamp)


def _interval_type(reader: DdlReader, name: str) -> pa.DataType:
    if not reader.words("DAY", "TO", "SECOND"):
        reader.fail(
            f"This {name} cannot be the type of a lookup column.", tip="Write INTERVAL DAY TO SECOND."
        )
    return pa.duration("us")


def _array_type(reader: DdlReader, name: str, depth: int) -> pa.DataType:
    reader.expect("<", f"after {name}, as in ARRAY<INT>")
    element = read_type(reader, depth)
    reader.expect(">", "after the type of the elements")
    return pa.list_(element)


def _map_type(reader: DdlReader, name: str, depth: int) -> pa.DataType:
    reader.expect("<", f"after {name}, as in MAP<STRING, INT>")
    key = read_type(reader, depth)
    reader.expect(",", "after the type of the keys")
    value = read_type(reader, depth)
    reader.expect(">", "after the type of the values")
    return pa.map_(key, value)


def _struct_type(reader: DdlReader, name: str, depth: int) -> pa.DataType:
    reader.expect("<", f"after {name}, as in STRUCT<name: TYPE>")
    fields = [_struct_field(reader, depth)]
    while reader.symbol(","):
        fields.append(_struct_field(reader, depth))
    reader.expect(">", "after the last field")
    return pa.struct(fields)


def _struct_field(reader: DdlReader, depth: int) -> pa.Field:
    name = reader.name("the name of a field").name
    reader.symbol(":")
    kind = read_type(reader, depth)
    # An unchecked promise about content: Spark sees every looked-up column as nullable.
    reader.words("NOT", "NULL")
    if reader.words("COMMENT"):
        reader.string("the text of the comment")
    return pa.field(name, kind)


_COMPOSED: dict[str, Callable[[DdlReader, str], pa.DataType]] = {
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), _char_type),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), _decimal_type),
    **dict.fromkeys(("TIMESTAMP", *_TIMESTAMPS), _timestamp_type),
    "INTERVAL": _interval_type,
}
_NESTING: dict[str, Callable[[DdlReader, str, int], pa.DataType]] = {
    "ARRAY": _array_type,
    "MAP": _map_type,
    "STRUCT": _struct_type,
}


COMMENT = b"comment"
"""Where comments are kept in Arrow metadata."""

_EXTRAS = {
    "AS": ("A computed column", "Compute it in the query."),
    "GENERATED": ("A computed column", "Compute it in the query."),
    "DEFAULT": ("A default", "Write COALESCE in the query."),
    "METADATA": ("METADATA", "Leave it out."),
}


@dataclass
class _Draft:
    """The columns read so far. Names are added before types are read, so that a bad type does not make a
    key's column unknown."""

    names: list[Piece] = field(default_factory=list)
    fields: list[pa.Field] = field(default_factory=list)
    keys: list[Sequence[Piece]] = field(default_factory=list)


def read_columns(reader: DdlReader) -> tuple[pa.Schema, tuple[str, ...]]:
    """The schema and the primary key of a column list; mistakes are noted in ``reader``."""
    draft = _Draft()
    for comma, group in comma_groups(reader.rest):
        if not group:
            beside = [comma] if comma else reader.rest[:1]
            reader.report("A column is missing here.", beside)
            continue
        part = reader.over(group, group[-1].end)
        try:
            _read_item(part, draft)
        except Unreadable as unreadable:
            reader.problems.append(unreadable.problem)
    _report_duplicates(reader, draft.names, "There are two columns called {!r}.")
    return pa.schema(draft.fields), _primary_key(reader, draft)


def _read_item(reader: DdlReader, draft: _Draft) -> None:
    if reader.words("CONSTRAINT"):
        reader.name("the name of the constraint")
    if reader.words("PRIMARY", "KEY"):
        reader.expect("(", "after PRIMARY KEY")
        names = [reader.name("a column of the primary key")]
        while reader.symbol(","):
            names.append(reader.name("a column of the primary key"))
        reader.expect(")", "after the columns of the primary key")
        draft.keys.append(names)
        _expect_not_enforced(reader)
    elif reader.words("WATERMARK", "FOR"):
        reader.fail("WATERMARK is not for lookup tables.", reader.rest, tip="Leave it out.")
    else:
        name = reader.name("The name of a column")
        draft.names.append(name)
        try:
            draft.fields.append(_column_field(reader, name, draft))
        except Unreadable as unreadable:
            message = f"Column {reader.shown_name(name)!r}: {unreadable.problem.message}"
            raise Unreadable(replace(unreadable.problem, message=message)) from None
    if reader.rest:
        reader.fail("The column list is not understood here.", tip="Is a comma missing?")


def _column_field(reader: DdlReader, name: Piece, draft: _Draft) -> pa.Field:
    _refuse_extras(reader)
    kind = read_type(reader)
    metadata: dict[bytes, bytes] = {}
    while reader.rest:
        _refuse_extras(reader)
        # NOT NULL is an unchecked promise: Spark sees every looked-up column as nullable.
        if reader.words("NOT", "NULL"):
            continue
        if reader.words("COMMENT"):
            metadata[COMMENT] = reader.string("the text of the comment").encode()
        elif reader.words("PRIMARY", "KEY"):
            _expect_not_enforced(reader)
            draft.keys.append([name])
        else:
            reader.fail("This is not understood after the type.", tip="Is a comma missing?")
    return pa.field(name.name, kind, metadata=metadata or None)


def _refuse_extras(reader: DdlReader) -> None:
    """Refuse clauses that only columns of other tables may have."""
    for word, (what, tip) in _EXTRAS.items():
        before = reader.rest
        if reader.words(word):
            reader.fail(f"{what} is not for lookup tables.", before, tip)


def _expect_not_enforced(reader: DdlReader) -> None:
    if not reader.words("NOT", "ENFORCED"):
        tip = "The key is not checked, and SQL wants that said."
        reader.fail_missing("NOT ENFORCED after the primary key", tip)


def _primary_key(reader: DdlReader, draft: _Draft) -> tuple[str, ...]:
    """The key's columns as they are declared; other keys and unknown columns are noted."""
    for second in draft.keys[1:]:
        reader.report("There is another PRIMARY KEY already.", second, tip="Write PRIMARY KEY (a, b) once.")
    declared = {name.name.lower(): name for name in draft.names}
    key = draft.keys[0] if draft.keys else []
    if not declared and not reader.problems:  # the source tells the columns
        declared = {name.name.lower(): name for name in key}
    for column in key:
        if column.name.lower() not in declared:
            shown = reader.shown_name(column)
            tip = nearest(shown, [reader.shown_name(name) for name in draft.names])
            reader.report(f"PRIMARY KEY names {shown!r}, which is not a column.", [column], tip)
    _report_duplicates(reader, key, "PRIMARY KEY names {!r} twice.")
    return tuple(declared.get(column.name.lower(), column).name for column in key)


def _report_duplicates(reader: DdlReader, names: Sequence[Piece], message: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.name.lower() in seen:
            reader.report(message.format(reader.shown_name(name)), [name], tip="Names ignore case.")
        seen.add(name.name.lower())


class DdlReader(Cursor):
    """Reads a statement about a table, and collects its mistakes.

    Args:
        shown: the statement for errors: with values of options masked, and all places unchanged.
        found: the pieces to read.
        problems: collects mistakes; shared by the readers of one statement.
        end: the place for errors about something missing after the last piece.
        timestamp: the meaning of TIMESTAMP.
    """

    def __init__(
        self,
        shown: str,
        found: Sequence[Piece],
        problems: list[Problem],
        end: int,
        timestamp: pa.DataType = TIMESTAMP,
    ) -> None:
        super().__init__(shown, found, end)
        self.problems = problems
        self.timestamp = timestamp

    def over(self, found: Sequence[Piece], end: int) -> DdlReader:
        """A reader of a part, with the same list of problems."""
        return DdlReader(self.shown, found, self.problems, end, self.timestamp)

    def shown_name(self, name: Piece) -> str:
        """``name`` as errors may show it: behind a forgotten quote, a name can hold values of options."""
        is_masked = self.shown[name.start : name.end] != name.text
        return MASK if is_masked else name.name

    def last_name(self) -> str | None:
        """The identifier that is all that is left, or None."""
        return self.rest[0].name if len(self.rest) == 1 and self.rest[0].is_name else None

    def parenthesised(self) -> DdlReader:
        """A reader of the pieces inside the next pair of parentheses."""
        opening, last = self._at, self.tokens.closing_if_any(self._at)
        if last is None and self.tokens[-1].kind is Kind.UNCLOSED:
            self.fail("This quote or comment is never closed.", self.tokens[-1:])
        if last is None:
            self.fail("This parenthesis is never closed.")
        self._at = last + 1
        return self.over(self.tokens[opening + 1 : last], end=self.tokens[last].start)

    def report(self, message: str, found: Sequence[Piece], tip: str = "") -> None:
        """Note a mistake in ``found`` and go on."""
        self.problems.append(Problem(message, self.span(found), tip))
