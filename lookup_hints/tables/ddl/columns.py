"""The column list of CREATE TEMPORARY TABLE -> an Arrow schema and the primary key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lookup_hints.errors import Problem, nearest
from lookup_hints.sql.lexer import Piece, comma_groups
from lookup_hints.tables.ddl.column_types import read_type
from lookup_hints.tables.ddl.reader import DdlReader, Unreadable

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
    """What has been read of a column list. Names are taken down before types, so that a bad type does
    not make the key name an unknown column."""

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
        draft.keys.append(_key_names(reader))
        _expect_not_enforced(reader)
    elif reader.words("WATERMARK", "FOR"):
        reader.fail("WATERMARK is not for lookup tables.", reader.rest, tip="Leave it out.")
    else:
        _read_column(reader, draft)
    if reader.rest:
        reader.fail("The column list is not understood here.", tip="Is a comma missing?")


def _read_column(reader: DdlReader, draft: _Draft) -> None:
    name = reader.name("The name of a column")
    draft.names.append(name)
    try:
        draft.fields.append(_column(reader, name, draft))
    except Unreadable as unreadable:
        problem, shown = unreadable.problem, reader.shown_name(name)
        raise Unreadable(Problem(f"Column {shown!r}: {problem.message}", problem.at, problem.tip)) from None


def _column(reader: DdlReader, name: Piece, draft: _Draft) -> pa.Field:
    _refuse_extras(reader)
    kind = read_type(reader)
    metadata: dict[bytes, bytes] = {}
    while reader.rest:
        _refuse_extras(reader)
        # NOT NULL is a promise that nobody checks: Spark sees every looked-up column as nullable.
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
    """Fail at what columns of other tables may have."""
    for word, (what, tip) in _EXTRAS.items():
        before = reader.rest
        if reader.words(word):
            reader.fail(f"{what} is not for lookup tables.", before, tip)


def _key_names(reader: DdlReader) -> Sequence[Piece]:
    reader.expect("(", "after PRIMARY KEY")
    names = [reader.name("a column of the primary key")]
    while reader.symbol(","):
        names.append(reader.name("a column of the primary key"))
    reader.expect(")", "after the columns of the primary key")
    return names


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
