"""Lookup joins of DataFrames: ``session.lookup_join(df, "customers", on="id")``.

A call becomes a statement over the frame, ``SELECT df.*, ... FROM {df} AS df LEFT JOIN customers ON ...``,
and goes the way of every statement: there is one planner, and one meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lookup_hints.dataframe.frames_in_text import is_frame, private_name
from lookup_hints.errors import OptionError, Problem, QueryError, Span, nearest
from lookup_hints.hints.hint_comments import LookupHint
from lookup_hints.nearest import Nearest
from lookup_hints.retry import RetryPolicy, RetryStrategy
from lookup_hints.spi import Connector
from lookup_hints.spi.changed_column_and_versions import versions_of
from lookup_hints.spi.lookup_options import KNOWN_AS_OF, LOOKUP_OPTIONS
from lookup_hints.spi.option_values import bad_value
from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEFT = "df"
"""The frame's name in conditions."""

_PRIVATE_KEY = "__lookup_key_"
_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "left semi": "LEFT SEMI JOIN", "left anti": "LEFT ANTI JOIN"}
_SYNONYMS = {
    "inner": "inner",
    **dict.fromkeys(("left", "leftouter", "left_outer"), "left"),
    **dict.fromkeys(("semi", "leftsemi", "left_semi"), "left semi"),
    **dict.fromkeys(("anti", "leftanti", "left_anti"), "left anti"),
}
_INSTEAD = {
    "right": "Read the whole table: df.join(session.sql('SELECT * FROM {}'), ...).",
    "full": "Read the whole table: df.join(session.sql('SELECT * FROM {}'), ...).",
    "cross": "A lookup needs a key; read the whole table: df.crossJoin(session.sql('SELECT * FROM {}')).",
}

On: TypeAlias = "str | Sequence[str] | Mapping[str, str] | Sequence[tuple[str | Column, str]] | None"
"""Which columns are equal; see ``LookupSession.lookup_join``."""

ColumnChoice: TypeAlias = "Sequence[str] | Mapping[str, str]"
"""Which columns of the table come, and under which names."""


@dataclass(frozen=True)
class JoinRequest:
    """The arguments of one call.

    Args:
        pairs: for each key its left side, a text or a Column, and the table's column.
        is_using: whether the columns of ``pairs`` have one name on both sides, and appear once in the result.
        kind: the kind of join, as ``LookupJoin.kind`` in lower case.
        condition: the rest of the ON condition, as SQL.
        columns: the table's columns to return, by their new names; None: all.
        alias: the name of the table in the statement.
        options: typed values, by the keys of hints.
        retry: the retry policy, if given.
        as_of: the moment whose rows are joined, a text or a Column; None: all rows of a key.
        known_as_of: the same of the moment by which they must be known; None: ``as_of``.
        nearest: which of the rows found are joined; None: all.
    """

    pairs: tuple[tuple[Any, str], ...]
    is_using: bool
    kind: str
    condition: str | None
    columns: tuple[tuple[str, str], ...] | None
    alias: str
    options: Mapping[str, Any]
    retry: RetryPolicy | None
    as_of: Any = None
    known_as_of: Any = None
    nearest: Nearest | None = None


@dataclass(frozen=True)
class FrameJoin:
    """A lookup join of a frame, as a statement.

    Args:
        text: the statement, which calls the frame ``private_name(LEFT)``.
        frame: the frame, with private columns for keys that are no columns.
        private: those columns, which the statement may give and the user must not see.
        hint: the options.
    """

    text: str
    frame: DataFrame
    private: tuple[str, ...]
    hint: LookupHint


def frame_join(df: DataFrame, connector: Connector, request: JoinRequest, case_sensitive: bool) -> FrameJoin:
    """``df`` joined with the table of ``connector``, as ``request`` says.

    Raises:
        QueryError: a column is not there, or the join has no key.
    """
    if not is_frame(df):
        raise QueryError(Problem(f"A lookup join takes a DataFrame, not {type(df).__name__}."))
    if request.alias.lower() == LEFT:
        raise QueryError(
            Problem(f"The table cannot be called {request.alias!r}: that is the frame.", tip="Give an alias.")
        )
    left = _Left(df, case_sensitive)
    text, options = _write_statement(left, connector, request), request.options
    if request.known_as_of is not None:
        options = {**options, KNOWN_AS_OF: left.key(request.known_as_of)}
    hint = LookupHint(request.alias, Span(text, 0, len("SELECT")), 0, options, retry=request.retry)
    return FrameJoin(text, left.frame, tuple(left.private), hint)


class _Left:
    """The frame, and the private columns that it gets for keys that are no columns of it."""

    def __init__(self, frame: DataFrame, case_sensitive: bool) -> None:
        self.frame = frame
        self.private: list[str] = []
        self._case_sensitive = case_sensitive
        self._names = list(frame.columns)
        self._count = Counter(map(self._fold_case, self._names))

    def _fold_case(self, name: str) -> str:
        return name if self._case_sensitive else name.lower()

    def named(self, name: str) -> str:
        """The one column of that name, as the frame writes it."""
        if not self._count[self._fold_case(name)]:
            raise self._unknown_column(name)
        if self.has_twice(name):
            message = f"The frame has more than one column {name!r}."
            tip = f"Say which as a Column: on=[(df[...], {name!r})]."
            raise QueryError(Problem(message, tip=tip))
        return next(each for each in self._names if self._fold_case(each) == self._fold_case(name))

    def _unknown_column(self, name: str) -> QueryError:
        return QueryError(Problem(f"The frame has no column {name!r}.", tip=nearest(name, self._names)))

    def has_twice(self, name: str) -> bool:
        return self._count[self._fold_case(name)] > 1

    def key(self, left: Any) -> str:
        """The text in the statement for a key's left side: a name, an SQL expression or a Column."""
        if isinstance(left, str) and self._count[self._fold_case(left)] == 1:
            return f"{LEFT}.{quoted(self.named(left))}"
        private = f"{_PRIVATE_KEY}{len(self.private)}"
        # Here the frame's own aliases are known (`o.id`), and columns of its parts (`df.id`).
        if isinstance(left, str):
            try:
                self.frame = self.frame.selectExpr("*", f"(\n{left}\n) AS {private}")
            except Exception:
                if not left.isidentifier():
                    raise
                # Spark's error would name the private column, and a line of generated text.
                raise self._unknown_column(left) from None
        else:
            self.frame = self.frame.withColumn(private, left)
        self.private.append(private)
        return f"{LEFT}.{private}"

    def star(self, first: Sequence[str]) -> str:
        if self._names[: len(first)] == list(first):
            return f"{LEFT}.*"
        twice = [name for name in self._names if self.has_twice(name)]
        if twice:
            message = f"The frame has more than one column {twice[0]!r}: {first[0]!r} cannot come first."
            tip = f"Rename one of them, or write on={{{first[0]!r}: ...}}."
            raise QueryError(Problem(message, tip=tip))
        others = [name for name in self._names if name not in first]
        return ", ".join(f"{LEFT}.{quoted(name)}" for name in (*first, *others))


# One SQL text for DataFrames and tables: keys, casts, residual conditions, NULLs and refusals have one
# meaning. (docs/decisions/0040)
def _write_statement(left: _Left, connector: Connector, request: JoinRequest) -> str:
    schema_names = connector.table.schema.names
    keys = [left.named(one) for one, _ in request.pairs] if request.is_using else []
    pairs = [(one, _find_column(connector, name, request)) for one, name in request.pairs]
    alias = quoted(request.alias)
    moment = (
        "" if request.as_of is None else f" FOR SYSTEM_TIME AS OF {_as_of_moment(left, connector, request)}"
    )
    conditions = [f"{left.key(one)} = {alias}.{quoted(name)}" for one, name in pairs]
    if request.condition is not None:
        if not request.condition.strip():
            raise QueryError(Problem("The condition is empty.", tip="Leave it out."))
        conditions.append(f"(\n{request.condition}\n)")
    if not conditions and request.nearest is None:
        message = f"The lookup join with {request.alias} has no key."
        tip = f"Give on='name', or on={{'column of the frame': {schema_names[0]!r}}}."
        raise QueryError(Problem(message, tip=tip))
    selected = [left.star(keys)]
    if request.kind in ("inner", "left"):
        selected += [
            f"{alias}.{quoted(name)} AS {quoted(new)}" if new != name else f"{alias}.{quoted(name)}"
            for name, new in chosen_columns(connector, request) or ()
        ]
    elif request.columns is not None:
        raise QueryError(
            Problem(f"A {request.kind} join gives no columns of the table.", tip="Leave columns out.")
        )
    table = f"{quoted(connector.table.name)}{moment} AS {alias}"
    clause = f"ON {' AND '.join(conditions)}"
    if request.nearest is not None:
        distance = _write_distance(left, connector, request, request.nearest)
        clause = _nearest_clause(request.nearest, distance, conditions)
        name = request.nearest.distance
        selected += [] if name is None else [f"{distance} AS {quoted(name)}"]
    return (
        f"SELECT {', '.join(selected)} FROM {private_name(LEFT)} AS {LEFT}"  # noqa: S608
        f" {_JOINS[request.kind]} {table} {clause}"
    )


def _write_distance(left: _Left, connector: Connector, request: JoinRequest, wanted: Nearest) -> str:
    """The distance that ``wanted`` names, between what the frame gives and columns of the table."""
    if request.kind not in ("inner", "left") or request.as_of is not None:
        other = "as_of" if request.as_of is not None else f"a {request.kind} join"
        raise QueryError(
            Problem(f"nearest= cannot be used with {other}: both choose rows.", tip="Leave one out.")
        )
    alias = quoted(request.alias)
    pairs = [
        (left.key(one), f"{alias}.{quoted(_find_column(connector, name, request))}")
        for one, name in wanted.compared
    ]
    return wanted.expression(pairs, left.frame.sparkSession.catalog.functionExists)


def _nearest_clause(wanted: Nearest, distance: str, conditions: Sequence[str]) -> str:
    """``NEAREST BY`` of the rows that meet ``conditions``: others are at no distance."""
    within = [] if wanted.within is None else [f"{distance} <= {wanted.limit}"]
    gates = " AND ".join([*conditions, *within])
    by = f"CASE WHEN {gates} THEN {distance} END" if gates else distance
    return f"{'EXACT' if wanted.exact else 'APPROX'} NEAREST {wanted.k} BY DISTANCE {by}"


def _as_of_moment(left: _Left, connector: Connector, request: JoinRequest) -> str:
    """The moment of ``request`` as the statement writes it."""
    if versions_of(connector.table) is None:
        message = f"as_of chooses no rows of {request.alias}: no column says from when its rows are valid."
        tip = "Name that column in its WITH: 'lookup.valid-from' = '...'."
        raise QueryError(Problem(message, tip=tip))
    return left.key(request.as_of)


def chosen_columns(connector: Connector, request: JoinRequest) -> tuple[tuple[str, str], ...] | None:
    """The table's columns that the join gives, with their new names; None for a semi or anti join."""
    if request.kind not in ("inner", "left"):
        return None
    shared = [_find_column(connector, name, request) for _, name in request.pairs] if request.is_using else []
    return tuple(each for each in _wanted_columns(connector, request) if each[0] not in shared)


def _wanted_columns(connector: Connector, request: JoinRequest) -> Iterator[tuple[str, str]]:
    if request.columns is None:
        yield from ((name, name) for name in connector.table.schema.names)
        return
    for name, new in request.columns:
        own = _find_column(connector, name, request)
        yield own, own if new == name else new


def _find_column(connector: Connector, name: str, request: JoinRequest) -> str:
    """The table's own name of its column ``name``, which ignores case."""
    if not isinstance(name, str):
        message = f"A column of the table {request.alias} is given by its name, not as {name!r}."
        raise QueryError(Problem(message, tip=_ON_HELP))
    names = connector.table.schema.names
    for each in names:
        if each.lower() == name.lower():
            return str(each)
    raise QueryError(Problem(f"The table {request.alias} has no column {name!r}.", tip=nearest(name, names)))


# --- arguments -------------------------------------------------------------------------------------

_ON_HELP = (
    "Write on='id', on=['id', 'kind'], on={'customer_id': 'id'} or on=[(df.customer_id, 'id')], and other"
    " conditions as SQL: condition=\"customers.country <> 'DE'\"."
)


def is_using(on: On) -> bool:
    """Whether ``on`` names columns that both sides have."""
    return isinstance(on, str) or (
        isinstance(on, Sequence) and bool(on) and all(isinstance(each, str) for each in on)
    )


def pairs_of(on: On) -> tuple[tuple[Any, str], ...]:
    """For each key its left side and the table's column.

    Raises:
        QueryError: ``on`` is something else.
    """
    if on is None:
        return ()
    if isinstance(on, str):
        return ((on, on),)
    if isinstance(on, Mapping):
        return tuple(on.items())
    if isinstance(on, Sequence):
        items: list[Any] = list(on)
        if all(isinstance(each, str) for each in items):
            return tuple((each, each) for each in items)
        if all(isinstance(each, tuple) and len(each) == 2 for each in items):
            return tuple((each[0], each[1]) for each in items)
    raise QueryError(Problem(f"on cannot be {on!r:.100}.", tip=_ON_HELP))


def renamed(columns: ColumnChoice) -> tuple[tuple[str, str], ...]:
    """Each column with its new name."""
    if isinstance(columns, Mapping):
        return tuple(columns.items())
    if isinstance(columns, str):
        raise QueryError(Problem(f"columns cannot be {columns!r}.", tip=f"Write columns=[{columns!r}]."))
    return tuple((name, name) for name in columns)


def kind_of(how: str, table: str) -> str:
    """The kind of join that Spark calls ``how``.

    Raises:
        QueryError: it is no join, or none that a lookup can be.
    """
    normal = str(how).lower().strip()
    if normal in _SYNONYMS:
        return _SYNONYMS[normal]
    word = normal.replace("_", "").replace("outer", "") or "full"
    if word in _INSTEAD:
        raise QueryError(Problem(f"A lookup join cannot be {how!r}.", tip=_INSTEAD[word].format(table)))
    raise QueryError(Problem(f"No join is called {how!r}.", tip=nearest(normal, tuple(_SYNONYMS))))


def read_options(caller: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values of the given options, checked like those of a hint.

    Args:
        caller: the function, for errors.
        given: its arguments by name, including those that are not options; None for options not given.

    Raises:
        OptionError: all bad values at once.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for option in LOOKUP_OPTIONS:
        value = given.get(option.argument)
        # `table` is an argument, too, and not the option of a hint that names the alias; what says which rows
        # were known may be a Column.
        if value is None or option.required or option.key == KNOWN_AS_OF:
            continue
        if option.argument == "ordered":
            text = "ordered" if value else "allow_unordered"
        elif isinstance(value, bool):
            text = str(value).lower()
        elif option.argument == "timeout" and isinstance(value, int | float):
            text = f"{round(value * 1000)} ms"
        else:
            text = str(value)
        try:
            values[option.key] = option.type.parse(text)
        except ValueError as error:
            problems.append(bad_value(option, option.argument, text, error, owner=f"{caller}: "))
    if problems:
        raise OptionError(problems)
    return values


def checked_retry(caller: str, retry: Any) -> RetryPolicy | None:
    """``retry``, if it is a policy.

    Raises:
        OptionError: it is something else, or a strategy without a condition such as ``if_miss``.
    """
    if retry is None or isinstance(retry, RetryPolicy):
        return retry
    if isinstance(retry, RetryStrategy):
        message = f"{caller}: the retry does not say what is asked again."
        tip = f"Write {type(retry).__name__}(...).if_miss(), .if_exception() or .if_result(predicate)."
        raise OptionError(Problem(message, tip=tip))
    raise OptionError(
        Problem(f"{caller}: retry cannot be {retry!r}.", tip="Write FixedDelay(3, 10.0).if_miss().")
    )


def no_table(name: str, known: Sequence[str]) -> Problem:
    """The problem of an unknown lookup table."""
    tip = "Create one: CREATE TEMPORARY TABLE ... WITH ('connector' = ...)."
    return Problem(f"No lookup table is called {name!r}.", tip=f"{nearest(name, known)} {tip}".strip())
