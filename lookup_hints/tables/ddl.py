"""Parse the statements that may concern lookup tables: CREATE, DROP, DESCRIBE, SHOW, REFRESH.

Only ``CreateLookupTable`` and ``ShowLookupTables`` are surely ours. For the others the caller looks up the
name in the catalog, and leaves statements about unknown names to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lookup_hints.errors import DdlError, OptionError, Problem, did_you_mean
from lookup_hints.hints.dialect import place_of, read_options
from lookup_hints.spi.arrow_types import TIMESTAMP, sql_type
from lookup_hints.spi.lookup_options import TABLE_OPTIONS
from lookup_hints.spi.option_values import hidden_keys
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import SECRET_HEADER, masked_text, secret_parts
from lookup_hints.sql.cursor import Cursor, Unreadable
from lookup_hints.sql.lexer import Kind, Piece, blanked, quoted, string_literal
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.with_options import ListedOption, option_lists, read_option_list
from lookup_hints.tables.ddl_columns import COMMENT, DdlReader, read_columns
from lookup_hints.tables.registry import connector_class, module_named


@dataclass(frozen=True)
class CreateLookupTable:
    """``CREATE [OR REPLACE] TEMPORARY TABLE [IF NOT EXISTS] name [(...)] WITH (...)``.

    Args:
        name: the table's name.
        columns: the declared columns; None to discover them. Comments of columns and of the table are kept as
            Arrow metadata under ``comment``.
        primary_key: columns of the key, spelled as they are declared.
        options: the ``WITH`` clause, in order; not shown, as it may hold secrets.
        or_replace: whether an existing table is replaced.
        if_not_exists: whether an existing table is kept.
    """

    name: str
    columns: pa.Schema | None = None
    primary_key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    """``DROP [TEMPORARY] TABLE [IF EXISTS] name``.

    Args:
        name: the table's name.
        if_exists: whether a missing table is no error.
        is_temporary: whether it has TEMPORARY, which Flink knows and Spark does not; the effect is the same.
    """

    name: str
    if_exists: bool = False
    is_temporary: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class DescribeTable:
    """``DESC[RIBE] [TABLE] [EXTENDED] name``."""

    name: str
    extended: bool = False


@dataclass(frozen=True)
class ShowCreateTable:
    """``SHOW CREATE TABLE name``."""

    name: str


@dataclass(frozen=True)
class ShowColumns:
    """``SHOW COLUMNS {IN | FROM} name``."""

    name: str


@dataclass(frozen=True)
class ShowTables:
    """``SHOW TABLES [{IN | FROM} database] [[LIKE] 'pattern']``; our tables are added to Spark's answer.

    Args:
        like: the pattern for names, in the syntax of Spark's SHOW TABLES; None for all.
        namespace: the database; None is the current one.
    """

    like: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class ShowLookupTables:
    """``SHOW LOOKUP TABLES``."""


@dataclass(frozen=True)
class RefreshTable:
    """``REFRESH [TABLE] name``."""

    name: str


Ddl = (
    CreateLookupTable
    | DropTable
    | DescribeTable
    | ShowCreateTable
    | ShowColumns
    | ShowTables
    | ShowLookupTables
    | RefreshTable
)


def create_statement(table: LookupTable, secret_keys: Collection[str]) -> str:
    """The CREATE TEMPORARY TABLE of ``table``; values of ``secret_keys`` and passwords are masked."""
    columns = [
        f"{quoted(column.name)} {sql_type(column.type)}{_comment_text(column.metadata)}"
        for column in table.schema
    ]
    if table.primary_key:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary_key))}) NOT ENFORCED")
    options = [
        f"{string_literal(key)} = {string_literal(masked_text(value, declared=key in secret_keys))}"
        for key, value in table.options.items()
    ]
    return (
        f"CREATE TEMPORARY TABLE {quoted(table.name)} {_list_in_lines(columns)}"
        f"{_comment_text(table.schema.metadata)} WITH {_list_in_lines(options)}"
    )


def _comment_text(metadata: Mapping[bytes, bytes] | None) -> str:
    text = (metadata or {}).get(COMMENT)
    return "" if text is None else f" COMMENT {string_literal(text.decode())}"


def _list_in_lines(items: list[str]) -> str:
    return "(\n  " + ",\n  ".join(items) + "\n)"


_EXAMPLE = "Write WITH ('connector' = '<name>', ...)."
_WHOLE_EXAMPLE = "Write CREATE TEMPORARY TABLE <name> (...) WITH ('connector' = '<name>', ...)."


def parse_ddl(text: SqlText, timestamp: pa.DataType = TIMESTAMP) -> Ddl | None:
    """Parse ``text``; None if it does not concern lookup tables and is Spark's.

    >>> parse_ddl(SqlText("DROP TABLE IF EXISTS customers"))
    DropTable(name='customers', if_exists=True)

    Raises:
        DdlError: every mistake in a CREATE of a lookup table, with secrets in options masked. Also any other
            statement with a connector in its options, as Spark's error would show them.
    """
    found = text.code.before_semicolons
    names_connector = _names_connector(found)
    if not (names_connector or found.is_word(0, *_STATEMENTS)):
        return None
    reader = DdlReader(_mask_values(text, found, {}), found, [], found[-1].end, timestamp)
    try:
        statement = next((read(reader) for word, read in _STATEMENTS.items() if reader.words(word)), None)
        if statement is None and names_connector:
            raise DdlError(_not_understood(reader))
    except DdlError as error:
        shown = _mask_values(text, found, _secrets_in_options(found))
        raise DdlError(
            [replace(each, at=each.at and replace(each.at, text=shown)) for each in error.problems]
        ) from None
    return statement


def columns_of(text: str, timestamp: pa.DataType = TIMESTAMP) -> pa.Schema:
    """The columns that ``text`` lists, as in the parentheses of CREATE TEMPORARY TABLE.

    >>> columns_of("id BIGINT, name STRING").names
    ['id', 'name']

    Raises:
        DdlError: every mistake, with its place.
    """
    found = SqlText(text).code
    if not found:
        raise DdlError(Problem("The column list is empty.", tip="Write names and types: 'name STRING'."))
    reader = DdlReader(text, found, [], len(text), timestamp)
    schema, primary_key = read_columns(reader)
    if primary_key:
        reader.report("A PRIMARY KEY cannot stand here.", found, tip="Leave it out.")
    if reader.problems:
        raise DdlError(reader.problems)
    return schema


def shown_statement(text: SqlText) -> SqlText:
    """``text`` as it may be shown: where it is about options of a lookup table, their secrets are masked."""
    try:
        gives_options = isinstance(parse_ddl(text), CreateLookupTable)
    except DdlError:
        gives_options = True
    if not gives_options:
        return text
    return SqlText(_mask_values(text, text.code, _secrets_in_options(text.code)))


def _not_understood(reader: DdlReader) -> Problem:
    """The problem of a statement that gives a connector and is none of ours."""
    at = reader.span(reader.rest[:1])
    if reader.words("EXPLAIN"):
        tip = "Leave EXPLAIN out: a source is asked for its columns at most."
        return Problem("EXPLAIN is for queries, not for a table WITH ('connector' = ...).", at, tip)
    word = at.text[at.start : at.end]
    message = f"A table WITH ('connector' = ...) is not created like this: {word} is not understood."
    return Problem(message, at, _WHOLE_EXAMPLE)


# --- DROP, DESCRIBE, SHOW: anything that is not exactly ours is Spark's ------------------------------


def _read_drop(reader: DdlReader) -> DropTable | None:
    is_temporary = _is_temporary(reader)
    if not reader.words("TABLE"):
        return None
    if_exists = reader.words("IF", "EXISTS")
    name = reader.last_name()
    if name is None and is_temporary:
        at = reader.rest[:1]
        tip = "Write DROP TEMPORARY TABLE [IF EXISTS] <name>: a temporary table belongs to no database."
        reader.report("This DROP TEMPORARY TABLE names no table.", at, tip)
        raise DdlError(reader.problems)
    return None if name is None else DropTable(name, if_exists, is_temporary)


def _read_describe(reader: DdlReader) -> DescribeTable | None:
    # A table may be called `table` or `extended`: the last word is always a name.
    if len(reader.rest) > 1:
        reader.words("TABLE")
    extended = len(reader.rest) > 1 and (reader.words("EXTENDED") or reader.words("FORMATTED"))
    name = reader.last_name()
    return None if name is None else DescribeTable(name, extended)


def _read_show(reader: DdlReader) -> ShowCreateTable | ShowColumns | ShowTables | ShowLookupTables | None:
    if reader.words("CREATE", "TABLE"):
        name = reader.last_name()
        return None if name is None else ShowCreateTable(name)
    if reader.words("COLUMNS"):
        name = reader.last_name() if reader.words("IN") or reader.words("FROM") else None
        return None if name is None else ShowColumns(name)
    if reader.words("LOOKUP", "TABLES"):
        return None if reader.rest else ShowLookupTables()
    if not reader.words("TABLES"):
        return None
    try:
        has_namespace = reader.words("IN") or reader.words("FROM")
        namespace = reader.name("the database").name if has_namespace else None
        has_pattern = reader.words("LIKE") or bool(reader.rest)
        like = reader.string("the pattern") if has_pattern else None
    except Unreadable:
        return None
    return None if reader.rest else ShowTables(like, namespace)


def _read_refresh(reader: DdlReader) -> RefreshTable | None:
    if len(reader.rest) > 1:
        reader.words("TABLE")
    name = reader.last_name()
    return None if name is None else RefreshTable(name)


# --- CREATE ------------------------------------------------------------------------------------------


def _read_create_if_ours(reader: DdlReader) -> CreateLookupTable | None:
    or_replace = reader.words("OR", "REPLACE")
    is_temporary = _is_temporary(reader)
    if not reader.words("TABLE"):
        return None
    tokens = reader.tokens
    is_other = any(tokens.depth(at) == 0 and tokens.is_word(at, "USING", "AS") for at in range(len(tokens)))
    if not _names_connector(tokens) and (not is_temporary or is_other):
        return None
    if not is_temporary:
        tip = "Write CREATE TEMPORARY TABLE: a lookup table lives in the session."
        reader.report("A table WITH ('connector' = ...) must be temporary.", reader.rest[:1], tip)
    try:
        statement = _read_create(reader, or_replace)
    except Unreadable as unreadable:
        raise DdlError([*reader.problems, unreadable.problem]) from None
    if reader.problems:
        raise DdlError(reader.problems)
    return statement


def _read_create(reader: DdlReader, or_replace: bool) -> CreateLookupTable:
    """Read the rest of CREATE TEMPORARY TABLE; recoverable mistakes are collected."""
    before = reader.rest
    if_not_exists = reader.words("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        reader.report(
            "OR REPLACE and IF NOT EXISTS exclude each other.", before[:3], tip="Write one of them."
        )
    parts = reader.dotted_name("The name of the table")
    if len(parts) > 1:
        tip = f"Write {reader.shown_name(parts[-1])}."
        reader.report("A lookup table is temporary and belongs to no database.", parts, tip)
    name = parts[-1].name
    columns, primary_key = _read_columns(reader)
    if reader.words("COMMENT"):
        comment = reader.string("The text of the comment").encode()
        # Without declared columns the schema is discovered, comments included.
        columns = columns and columns.with_metadata({COMMENT: comment})
    _refuse_partitions(reader)
    options = _read_options(reader)
    if reader.rest:
        reader.report("Nothing can follow WITH (...) of a lookup table.", reader.rest)
    return CreateLookupTable(name, columns, primary_key, options, or_replace, if_not_exists)


def _read_columns(reader: DdlReader) -> tuple[pa.Schema | None, tuple[str, ...]]:
    if not reader.is_symbol("("):
        return None, ()
    opening = reader.rest[:2]
    inside = reader.parenthesised()
    if not inside.rest:
        reader.report(
            "The column list is empty.", opening, tip="Without it, the connector tells the columns."
        )
        return None, ()
    columns, primary_key = read_columns(inside)
    return (None if primary_key and not len(columns) else columns), primary_key


def _refuse_partitions(reader: DdlReader) -> None:
    before = reader.rest
    if reader.words("PARTITIONED", "BY"):
        reader.report("PARTITIONED BY is not for lookup tables.", before[:2], tip="Leave it out.")
        if reader.is_symbol("("):
            reader.parenthesised()


def _read_options(reader: DdlReader) -> dict[str, str]:
    before = reader.rest
    if not reader.words("WITH"):
        reader.fail_missing("WITH", tip=_EXAMPLE)
    if not reader.is_symbol("("):
        reader.fail_missing("'(' after WITH", tip=_EXAMPLE)
    inside = reader.parenthesised()
    found = read_options(reader.shown, inside.rest)
    reader.problems += found.problems
    options: dict[str, str] = {}
    for option in found.expressions:
        key = option.this.name
        if key in options:
            at = place_of(option.this, reader.shown)
            reader.problems.append(Problem(f"The option {key!r} is given twice.", at))
        options[key] = option.expression.name
    if "connector" not in options and not found.problems:
        misspelt = next(
            (each for each in found.expressions if did_you_mean(each.this.name, ["connector"])), None
        )
        if misspelt is None:
            reader.report("WITH names no 'connector'.", before[:1], _EXAMPLE)
        else:
            message = f"WITH names no 'connector', but {misspelt.this.name!r}."
            at = place_of(misspelt.this, reader.shown)
            reader.problems.append(Problem(message, at, "Did you mean 'connector'?"))
    return options


def _is_temporary(reader: DdlReader) -> bool:
    return reader.words("TEMPORARY") or reader.words("TEMP")


def _names_connector(found: Tokens) -> bool:
    """Whether a ``WITH (`` with a connector follows, except after a relation of a query.

    Spark itself accepts ``WITH (...)`` only after relations. Quotes are ignored here, as after a forgotten
    quote strings and code change places.
    """
    for at in found.places("WITH", 0, len(found) - 2):
        if found.is_word(at, "WITH") and found.is_symbol(at + 1, "(") and not _is_in_query(found, at):
            return any("connector" in inside.text.lower() for inside in found[at:])
    return False


def _is_in_query(found: Tokens, index: int) -> bool:
    """Whether the piece at ``index`` may belong to a relation that a query reads or writes."""
    depth = found.depth(index)
    for at in range(index - 1, -1, -1):
        if found.is_symbol(at, ";"):
            break
        depth = min(depth, found.depth(at))
        if found.depth(at) == depth and found.is_word(at, "FROM", "INTO", "OVERWRITE"):
            return True
    return False


# The reader of each statement, by its first word.
_STATEMENTS: dict[str, Callable[[DdlReader], Ddl | None]] = {
    "CREATE": _read_create_if_ours,
    "DROP": _read_drop,
    "DESC": _read_describe,
    "DESCRIBE": _read_describe,
    "SHOW": _read_show,
    "REFRESH": _read_refresh,
}


# --- masking of errors -------------------------------------------------------------------------------

_OPTIONS_BEGIN = re.compile(r"(?<=\bwith)\s*\(|=", re.IGNORECASE)
_KEY = re.compile(r"[\w.-]+|'[\w.-]+'|\"[\w.-]+\"")
_CONNECTOR_KEY = re.compile(r"(['\"]?)connector\1", re.IGNORECASE)
_CONNECTOR = re.compile(r"'[\w.:-]+'|\"[\w.:-]+\"")


def _secrets_in_options(found: Tokens) -> dict[int, list[tuple[int, int]]]:
    """The secret parts of each value in ``WITH (...)``, by its place; empty if they cannot be determined.

    They can be if the list has no mistakes, and the connector is known and declares which are secret.
    """
    listed = next(option_lists(found), ())
    try:
        written = list(read_option_list(Cursor("", listed, 0)))
    except Unreadable:
        return {}
    if not all(map(_is_plain, written)):
        return {}
    given = {option.key: option.value for option in written}
    name = given["connector"].value if "connector" in given else ""
    try:
        options = () if module_named(name) else connector_class(name).OPTIONS
    except OptionError:
        return {}
    secret = hidden_keys(given, options) | {
        key for key in given if SECRET_HEADER.fullmatch(key.split(".")[-1])
    }
    return {
        value.start: _secret_parts(value, declared=key in secret)
        for key, value in given.items()
        if key in TABLE_OPTIONS or any(option.is_named(key) for option in options)
    }


def _is_plain(option: ListedOption) -> bool:
    """Whether it is written ``'key' = 'value'``, so that the role of each string is clear."""
    is_key = len(option.key_pieces) == 1 and _KEY.fullmatch(option.key_pieces[0].text)
    return bool(is_key) and option.has_sign and option.value.kind is Kind.STRING


def _secret_parts(value: Piece, *, declared: bool) -> list[tuple[int, int]]:
    parts = secret_parts(value.value, declared=declared)
    is_plain = value.text[1:-1] == value.value and parts != [(0, len(value.value))]
    shifted = [(start + 1, end + 1) for start, end in parts]
    return shifted if is_plain or not parts else [(0, len(value.text))]


def _mask_values(text: SqlText, found: Tokens, secrets: Mapping[int, Sequence[tuple[int, int]]]) -> str:
    """``text`` with everything masked by stars that may be a secret value; places stay unchanged.

    Without ``secrets`` for a value, all strings and comments are masked, except keys and the name of the
    connector. Among options words and numbers are masked too, as after a forgotten quote strings and code
    change places. The place of the options is found in the plain text.
    """
    places = [
        at
        for at, piece in enumerate(found)
        if at
        and found[at - 1].text in ("(", ",")
        and found.is_symbol(at + 1, "=")
        and _KEY.fullmatch(piece.text)
    ]
    keys = {found[at].start for at in places}
    keys |= {
        found[at + 2].start
        for at in places
        if _CONNECTOR_KEY.fullmatch(found[at].text)
        and (found.is_symbol(at + 3, ",") or found.is_symbol(at + 3, ")"))
        and _CONNECTOR.fullmatch(found[at + 2].text)
    }
    options = _OPTIONS_BEGIN.search(text)
    options_from = options.start() if options else len(text)
    shown: str = text
    for piece in text.pieces:
        is_plain = piece.kind in (Kind.WORD, Kind.NUMBER, Kind.QUOTED) and piece.end <= options_from
        if not (is_plain or piece.kind is Kind.SYMBOL or piece.start in keys):
            for start, end in secrets.get(piece.start, [(0, len(piece.text))]):
                shown = blanked(shown, piece.start + start, piece.start + end, "*")
    return shown
