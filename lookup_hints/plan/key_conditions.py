"""The ON condition of a lookup join, taken apart: keys, residual conditions, conditions on the left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.parse.statement import Statement, UnreadableStatement
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut, Fragment

_PREDICATES = ("IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "NOT")
_COMPARISONS = ("=", "==", "<", ">", "<=", ">=", "<>", "!=", "<=>")


@dataclass(frozen=True)
class ColumnNames:
    """The names of the lookup table and its columns in its query block, and how names are compared.

    Args:
        table: the lookup table.
        alias: its name in the block.
        columns: the names of its columns there, in the table's order.
        aliases: number of relations of the block with each name, the lookup table included; in lower case
            unless ``case_sensitive``.
        case_sensitive: whether names that differ only in case are different.
        is_inner: whether a column name inside a nested query belongs to that query.
        is_outer: whether a column name inside a nested query belongs to the block or one around it.
        asked_by_null: the columns by which the source can be asked for NULL, too.
    """

    table: LookupTable
    alias: str
    columns: tuple[str, ...]
    aliases: Mapping[str, int]
    case_sensitive: bool
    is_inner: Callable[[exp.Column], bool] = field(compare=False)
    is_outer: Callable[[exp.Column], bool] = field(compare=False)
    asked_by_null: frozenset[str] = frozenset()

    def column(self, reference: exp.Column) -> str | None:
        """The dimension column (by the table's own name) that ``reference`` means, or None.

        An unqualified name is the dimension's when the dimension has it: where the left side has it
        too, Spark has already refused the statement as ambiguous.
        """
        parts = [part.name for part in reference.parts]
        if len(parts) > 1 and self._same_name(parts[0], self.alias):
            return self.own_name(parts[1])
        if len(parts) > 1 and self.is_other(parts[0]):
            return None
        return self.own_name(parts[0])

    def qualifier_length(self, reference: exp.Column) -> int:
        """How many parts of ``reference`` come before the lookup table's column name."""
        parts = [part.name for part in reference.parts]
        return 1 if len(parts) > 1 and self._same_name(parts[0], self.alias) else 0

    def is_other(self, name: str) -> bool:
        """Whether another relation of the block has this name."""
        return self.aliases.get(self._fold_case(name), 0) > self._same_name(name, self.alias)

    def own_name(self, name: str) -> str | None:
        """The dimension column (by the table's own name) that the query calls ``name``, or None."""
        return self._own_names.get(self._fold_case(name))

    @cached_property
    def _own_names(self) -> dict[str, str]:
        called = list(zip(map(self._fold_case, self.columns), self.table.schema.names, strict=False))
        return dict(reversed(called))  # the first of two that are called alike

    def _same_name(self, one: str, other: str) -> bool:
        return self._fold_case(one) == self._fold_case(other)

    def _fold_case(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()


@dataclass(frozen=True)
class Reference:
    """A dimension column (by the table's own name) where the query names it."""

    column: str
    at: Cut


# A condition stays in place if a join may fill the table with NULLs: a FULL JOIN adds rows of NULLs to those
# found. (docs/decisions/0071)
@dataclass(frozen=True)
class KeyEquality:
    """``left = dim column``, or ``left <=> dim column``.

    Args:
        column: the dimension column, by the table's own name.
        left: the other side, in the user's text mostly.
        whole: the whole equality.
        constant: whether the left side names no column.
        shared: whether USING or NATURAL gives it, so that both sides have one name.
        position: its position among those.
        kept: whether Spark checks it again by itself, as it stays where it is.
        implied: whether it is part of an OR that implies it.
        null_safe: whether NULL equals NULL.
    """

    column: str
    left: Fragment
    whole: Cut
    constant: bool = False
    shared: bool = False
    position: int = 0
    kept: bool = False
    implied: bool = False
    null_safe: bool = False

    @property
    def sign(self) -> str:
        return "<=>" if self.null_safe else "="


@dataclass(frozen=True)
class Conjunct:
    """One of the conditions that AND joins, with its tree."""

    at: Cut
    tree: exp.Expr


@dataclass(frozen=True)
class Conditions:
    """The conditions of a lookup join, by kind.

    Args:
        keys: the equalities looked up by, at most one for each column.
        residual: conditions on the lookup table that are checked on the rows found.
        left_only: conditions that do not touch the lookup table.
        after: conditions that can only be checked after joining: for an INNER join on its result, for a SEMI
            or ANTI join on the left row.
        queries: conditions of a SEMI or ANTI join on the rows found that hold a query.
    """

    keys: tuple[KeyEquality, ...]
    residual: tuple[Conjunct, ...] = ()
    left_only: tuple[Conjunct, ...] = ()
    after: tuple[Conjunct, ...] = ()
    queries: tuple[Conjunct, ...] = ()

    @property
    def shared_keys(self) -> list[KeyEquality]:
        """The keys of USING or NATURAL, in the order in which their columns come out."""
        return sorted((key for key in self.keys if key.shared), key=lambda key: key.position)

    # A NULL in the key keeps a row from being looked up, but where NULL is a key. (docs/decisions/0269)
    @property
    def without_gate(self) -> Conditions:
        """These, with conditions on the left alone checked on the rows found if no key can be left out."""
        if not (self.left_only and self.keys) or not all(key.null_safe for key in self.keys):
            return self
        return replace(self, residual=(*self.residual, *self.left_only), left_only=())


def sorted_conditions(
    statement: Statement,
    candidates: Iterable[Conjunct],
    names: ColumnNames,
    askable: frozenset[str],
    given: Iterable[KeyEquality] = (),
    always: frozenset[str] = frozenset(),
) -> Conditions:
    """Sort ``candidates``, and equalities ``given`` in another way (such as by USING), by kind.

    Equalities with columns that the connector can look up by are keys. If they cover the declared primary
    key, the lookup is by primary key alone and the others are checked on the row found. So further
    conditions do not turn a found row into a miss. Columns that ``always`` belong to the request stay keys.
    """
    keys: dict[str, KeyEquality] = {key.column: key for key in given}
    residual: list[Conjunct] = []
    left_only: list[Conjunct] = []
    for conjunct in candidates:
        equality = key_equality(statement, conjunct, names)
        previous = None if equality is None else keys.get(equality.column)
        # The first equality of a column is its key, but any before a constant, and `=` before `<=>`.
        is_first = equality is not None and (
            previous is None
            or (equality.null_safe, equality.constant) < (previous.null_safe, previous.constant)
        )
        if equality is not None and is_first and equality.column in askable:
            if previous is not None and not previous.kept:
                residual.append(_whole_equality(statement, previous))
            keys[equality.column] = equality
            continue
        for implied in implied_equalities(statement, conjunct, names):
            if implied.column in askable:
                keys.setdefault(implied.column, implied)
        if any(True for _ in references(conjunct.tree, names)):
            residual.append(conjunct)
        else:
            left_only.append(conjunct)
    by_key = chosen_keys(keys.values(), names.table, always)
    residual += not_asked(statement, keys.values(), by_key)
    return Conditions(by_key, tuple(residual), tuple(left_only))


def not_asked(
    statement: Statement, keys: Iterable[KeyEquality], chosen: Sequence[KeyEquality]
) -> list[Conjunct]:
    """The equalities of ``keys`` that are not ``chosen``: they are checked on the rows found."""
    return [
        _whole_equality(statement, key) for key in keys if key not in chosen and not (key.shared or key.kept)
    ]


# If equalities cover the primary key, only it is looked up; the others are conditions on the found row and
# make no misses. (docs/decisions/0001)
def chosen_keys(
    keys: Iterable[KeyEquality], table: LookupTable, always: frozenset[str]
) -> tuple[KeyEquality, ...]:
    """The subset of ``keys`` to look up by, in the order of the table.

    If they cover the primary key, and none is of USING or NATURAL: that, and the columns that ``always``
    belong to the request.
    """
    by_column = {key.column: key for key in keys}
    in_table_order = [by_column[column] for column in table.schema.names if column in by_column]
    primary_key = set(table.primary_key)
    if primary_key and by_column.keys() >= primary_key and not any(key.shared for key in in_table_order):
        in_table_order = [key for key in in_table_order if key.column in primary_key | always]
    return tuple(in_table_order)


def _whole_equality(statement: Statement, key: KeyEquality) -> Conjunct:
    return Conjunct(key.whole, _parse_condition(statement, key.whole))


def _parse_condition(statement: Statement, part: Cut) -> exp.Expr:
    tree = statement.expression(part)
    if tree is None:
        raise UnreadableStatement(
            Problem("This condition of a lookup join cannot be parsed.", statement.span(part))
        )
    return tree


def conjuncts(statement: Statement, part: Cut) -> Iterator[Conjunct]:
    """The operands of the top-level ANDs of ``part``, without outer parentheses.

    Raises:
        UnsupportedLookup: one of them cannot be read.
    """
    tree = statement.expression(part)
    inner = _without_parentheses(statement, part)
    if inner is not None:
        yield from conjuncts(statement, inner)
        return
    parts = list(cut_at(statement, part, "AND"))
    if len(parts) == 1 or isinstance(tree, exp.Or):  # AND binds closer: a AND b OR c is one condition
        yield Conjunct(part, _parse_condition(statement, part))
        return
    trees = [statement.expression(each) for each in parts]
    # If one odd conjunct keeps sqlglot from reading the whole, it reads them one by one.
    if tree is not None and not (isinstance(tree, exp.And) and trees == list(tree.flatten(unnest=False))):
        raise UnsupportedLookup(
            Problem(
                "The conditions of this join cannot be told apart.",
                statement.span(part),
                "Put parentheses around each of them.",
            )
        )
    for each in parts:
        yield from conjuncts(statement, each)


def known_conjuncts(statement: Statement, part: Cut) -> list[Conjunct] | None:
    """Like ``conjuncts``, but None instead of an error if one cannot be read."""
    try:
        return list(conjuncts(statement, part))
    except UnsupportedLookup:
        return None


def _without_parentheses(statement: Statement, part: Cut) -> Cut | None:
    """The inside of parentheses around all of ``part``; None if there are none, or they hold a query."""
    tokens = statement.tokens
    first, last = tokens.indices(part)
    is_wrapped = tokens.is_symbol(first, "(") and tokens.closing(first) == last and last - first > 1
    if not is_wrapped or tokens.begins_query(first + 1):
        return None
    return tokens.cut(first + 1, last - 1)


def cut_at(statement: Statement, part: Cut, word: str) -> Iterator[Cut]:
    """Split at top-level ANDs (or ORs), but not at the AND of BETWEEN or inside CASE."""
    first, last = statement.tokens.indices(part)
    if next(statement.tokens.places(word, first, last), None) is None:
        yield _cut_between(statement, first, last)
        return
    begin, betweens = first, 0
    for index in statement.tokens.in_plain_sight(first, last):
        piece = statement.pieces[index]
        if statement.tokens.is_symbol(index - 1, "."):
            continue
        betweens += piece.is_word("BETWEEN")
        if piece.is_word("AND") and betweens:
            betweens -= 1
        elif piece.is_word(word):
            yield _cut_between(statement, begin, index - 1)
            begin = index + 1
    yield _cut_between(statement, begin, last)


def _cut_between(statement: Statement, first: int, last: int) -> Cut:
    if first > last:
        at = min(first, len(statement.pieces) - 1)
        problem = "A condition is missing beside this AND."
        raise UnreadableStatement(Problem(problem, statement.span(statement.tokens.cut(at, at))))
    return statement.tokens.cut(first, last)


def key_equality(statement: Statement, conjunct: Conjunct, names: ColumnNames) -> KeyEquality | None:
    """The conjunct as ``left = dim column``, or None when it is not of that form.

    So is ``<=>``, by the columns by which the source can be asked for NULL.
    """
    null_safe = is_null_safe(conjunct.tree)
    if not null_safe and not isinstance(conjunct.tree, exp.EQ):
        return None
    sides = statement.once(sides_of, conjunct.at)
    if sides is None:
        return None
    for dim, left in (sides, sides[::-1]):
        column = bare_column(dim.tree, names)
        if null_safe and column not in names.asked_by_null:
            continue
        if column is not None and can_be_key(left.tree, names):
            constant = next(left.tree.find_all(exp.Column), None) is None
            return KeyEquality(column, left.at, conjunct.at, constant, null_safe=null_safe)
    return None


def is_null_safe(tree: exp.Expr) -> bool:
    """Whether it is ``a <=> b``, ``a IS NOT DISTINCT FROM b`` or ``equal_null(a, b)``."""
    if isinstance(tree, exp.Func):
        name = tree.name if isinstance(tree, exp.Anonymous) else tree.sql_name()
        return str(name).upper() == "EQUAL_NULL"
    return isinstance(tree, exp.NullSafeEQ)


def can_be_key(tree: exp.Expr, names: ColumnNames) -> bool:
    """Whether ``tree`` is known before the lookup, and can be computed where keys are: in a generator.

    Spark computes uncorrelated scalar subqueries there, but no others, and no IN or EXISTS.
    """
    if any(True for _ in references(tree, names)) or has_condition_subquery(tree):
        return False
    return not any(
        names.is_outer(column) for query in tree.find_all(exp.Query) for column in query.find_all(exp.Column)
    )


# A subquery as a second key of one function ends in a NullPointerException of Spark 4.3.
# (docs/decisions/0077)
def has_condition_subquery(tree: exp.Expr) -> bool:
    """Whether it holds an IN or EXISTS over a query."""
    return any(found.find(exp.Query) for found in tree.find_all(exp.Exists, exp.In))


def implied_equalities(statement: Statement, conjunct: Conjunct, names: ColumnNames) -> list[KeyEquality]:
    """Key equalities that occur in every branch of an OR, which therefore implies them. The OR stays."""
    if not isinstance(conjunct.tree, exp.Or):
        return []
    branches = list(cut_at(statement, conjunct.at, "OR"))
    if len(branches) < 2:
        return []
    equalities: list[list[KeyEquality]] = []
    for branch in branches:
        inner = known_conjuncts(statement, branch)
        if inner is None:
            return []
        found = (key_equality(statement, each, names) for each in inner)
        equalities.append([replace(each, kept=True, implied=True) for each in found if each is not None])
    return [
        each
        for each in equalities[0]
        if all(any(_is_same(statement, each, other) for other in others) for others in equalities[1:])
    ]


def _is_same(statement: Statement, one: KeyEquality, other: KeyEquality) -> bool:
    if (one.column, one.null_safe) != (other.column, other.null_safe):
        return False
    if isinstance(one.left, str) or isinstance(other.left, str):
        return False
    return statement.expression(one.left) == statement.expression(other.left)


def sides_of(statement: Statement, at: Cut) -> tuple[Conjunct, Conjunct] | None:
    """Both sides of the equality at ``at``, where its ``=`` is the only comparison in plain sight.

    So of ``<=>``, and of the forms that mean the same.
    """
    whole = statement.expression(at)
    if whole is None or not is_null_safe(whole):
        return comparison_sides(statement, at, exp.EQ)
    return comparison_sides(statement, at, exp.NullSafeEQ) or _sides_in_words(statement, at, whole)


def _sides_in_words(statement: Statement, at: Cut, whole: exp.Expr) -> tuple[Conjunct, Conjunct] | None:
    """Both sides of ``a IS NOT DISTINCT FROM b`` or ``equal_null(a, b)``."""
    tokens = statement.tokens
    first, last = tokens.indices(at)
    if isinstance(whole, exp.Func):
        is_call = tokens.is_symbol(first + 1, "(") and tokens.closing(first + 1) == last
        parts = tokens.parts(first + 2, last - 1) if is_call else []
    else:
        seen = list(tokens.in_plain_sight(first, last))
        words = [index for index in seen if tokens.is_word(index, *_PREDICATES, "DISTINCT", "FROM")]
        if any(statement.pieces[index].text in _COMPARISONS for index in seen) or len(words) != 4:
            return None
        if words[0] == first or words[-1] == last:
            return None
        parts = [tokens.cut(first, words[0] - 1), tokens.cut(words[-1] + 1, last)]
    trees = [statement.expression(part) for part in parts]
    if len(parts) != 2 or not (isinstance(whole, exp.Anonymous) or trees == [whole.this, whole.expression]):
        return None
    return Conjunct(parts[0], _parse_condition(statement, parts[0])), Conjunct(
        parts[1], _parse_condition(statement, parts[1])
    )


OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.GTE: ">=",
    exp.GT: ">",
    exp.LTE: "<=",
    exp.LT: "<",
}
TURNED = {"=": "=", ">=": "<=", ">": "<", "<=": ">=", "<": ">"}
"""Each comparison operator with its mirror image, for swapped sides."""


def comparison_sides(statement: Statement, at: Cut, kind: type[exp.Expr]) -> tuple[Conjunct, Conjunct] | None:
    """Both sides of the comparison of ``kind`` at ``at``, where it is the only one in plain sight.

    In Spark all comparisons have one level: ``a = b < c`` is ``(a = b) < c``. sqlglot reads it otherwise.
    """
    whole = statement.expression(at)
    if not isinstance(whole, kind):
        return None
    first, last = statement.tokens.indices(at)
    seen = list(statement.tokens.in_plain_sight(first, last))
    signs = [index for index in seen if statement.pieces[index].text in _COMPARISONS]
    if (
        any(statement.tokens.is_word(index, *_PREDICATES) for index in seen)
        or len(signs) != 1
        or statement.pieces[signs[0]].text.replace("==", "=") != OPERATORS.get(kind, "<=>")
        or not first < signs[0] < last
    ):
        return None
    left = Cut(at.start, statement.pieces[signs[0] - 1].end)
    right = Cut(statement.pieces[signs[0] + 1].start, at.end)
    trees = statement.trees((left, right))
    if trees != [whole.this, whole.expression]:
        return None
    return Conjunct(left, trees[0]), Conjunct(right, trees[1])


def between_parts(statement: Statement, at: Cut) -> tuple[Conjunct, ...] | None:
    """The value and both ends of the BETWEEN at ``at``, where no other predicate is in plain sight."""
    whole, tokens = statement.expression(at), statement.tokens
    if not isinstance(whole, exp.Between):
        return None
    first, last = tokens.indices(at)
    seen = list(tokens.in_plain_sight(first, last))
    places = [index for index in seen if tokens.is_word(index, *_PREDICATES, "AND")]
    if any(statement.pieces[index].text in _COMPARISONS for index in seen):
        return None
    if len(places) != 2 or not first < places[0] < places[1] - 1 or not places[1] < last:
        return None
    spans = (first, places[0] - 1), (places[0] + 1, places[1] - 1), (places[1] + 1, last)
    parts = [tokens.cut(*span) for span in spans]
    trees = [statement.expression(each) for each in parts]
    if trees != [whole.this, whole.args["low"], whole.args["high"]]:
        return None
    return tuple(Conjunct(each, _parse_condition(statement, each)) for each in parts)


def bare_column(tree: exp.Expr, names: ColumnNames) -> str | None:
    """The dimension column (by the table's own name) that ``tree`` is, and nothing more."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
        return None
    is_top_level = len(tree.parts) == names.qualifier_length(tree) + 1
    return names.column(tree) if is_top_level else None


def references(tree: exp.Expr, names: ColumnNames) -> Iterator[Reference]:
    """Each dimension column that ``tree`` names, with the place of its qualified name.

    Of ``c.addr.city`` the place of ``c.addr`` is given: the rest stays as it is.
    """
    for reference in tree.find_all(exp.Column):
        column = names.column(reference)
        if column is None or names.is_inner(reference):
            continue
        length = names.qualifier_length(reference) + 1
        first, last = reference.parts[0], reference.parts[length - 1]
        if "start" not in first.meta or "end" not in last.meta:
            raise UnsupportedLookup(Problem(f"The column {reference.sql()} cannot be placed in the text."))
        yield Reference(column, Cut(first.meta["start"], last.meta["end"] + 1))


def over_variable(
    conjunct: Conjunct, names: ColumnNames, variable: str, field_of: Callable[[str], str] = str
) -> tuple[Fragment, ...]:
    """The conjunct in parentheses, with the lookup table's columns read as fields of ``variable``.

    ``field_of`` gives the field's name for a column.
    """
    out: list[Fragment] = ["("]
    at = conjunct.at.start
    for reference in sorted(references(conjunct.tree, names), key=lambda found: found.at):
        out += [Cut(at, reference.at.start), f"{variable}.{quoted(field_of(reference.column))}"]
        at = reference.at.end
    return (*out, Cut(at, conjunct.at.end), ")")


_RANDOM = (
    *("RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "MONOTONICALLY_INCREASING_ID"),
    *("SPARK_PARTITION_ID", "INPUT_FILE_NAME"),
)


def is_random(tree: exp.Expr) -> bool:
    """Whether it gives something else each time, so that it cannot be a key and be checked again."""
    calls = tree.find_all(exp.Func)
    return any(
        (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).upper() in _RANDOM
        for call in calls
    )
