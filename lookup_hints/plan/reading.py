"""A statement as the planner reads it: its pieces with places, its tree, and where lookup tables stand in it.

sqlglot gives the tree; structure that needs places (where a join begins, which SELECT it belongs to) is
read from the pieces, and both must agree. Hints, ``FOR SYSTEM_TIME AS OF`` and ``STREAM`` are blanked
before sqlglot reads the text: it knows them in part only, and places stay the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lookup_hints.errors import Problem, Span, UnsupportedLookup
from lookup_hints.model import LookupTable
from lookup_hints.plan.splice import Cut
from lookup_hints.sqltext import Kind, Piece, blanked, code, pieces

FindTable = Callable[[str], LookupTable | None]
"""The lookup table of a name, or None."""


class UnreadableStatement(UnsupportedLookup):
    """The statement as a whole cannot be planned: its kind, or its syntax."""


_DIALECTS = ("spark", "databricks")
_JOIN_WORDS = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI")
_CLAUSE_WORDS = (
    *_JOIN_WORDS,
    *("JOIN", "LATERAL", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "DISTRIBUTE", "CLUSTER", "LIMIT"),
    *("OFFSET", "WINDOW", "QUALIFY", "UNION", "INTERSECT", "EXCEPT", "MINUS", "PIVOT", "UNPIVOT"),
    *("TABLESAMPLE", "SELECT", "INSERT", "ON", "USING"),
)


@dataclass(frozen=True)
class LookupUse:
    """One place where a statement names a lookup table.

    Args:
        table: the lookup table.
        node: its node in the tree.
        index: position of its name among the pieces.
        time: the expression of ``FOR SYSTEM_TIME AS OF``, if there is one.
        end: end of the relation: name, time clause and alias.
    """

    table: LookupTable
    node: exp.Table
    index: int
    time: Cut | None
    end: int

    @property
    def alias(self) -> str:
        """The name by which the query calls the table."""
        return str(self.node.alias_or_name)

    @property
    def column_aliases(self) -> tuple[str, ...]:
        """The names that the query gives its columns, as in ``customers AS c(a, b)``; none mostly."""
        alias = self.node.args.get("alias")
        given = alias.args.get("columns") if alias is not None else None
        return tuple(column.name for column in given or ())


class Statement:
    """One SQL statement, read."""

    def __init__(self, text: str, find_table: FindTable) -> None:
        """Read ``text``; ``find_table`` says which names are lookup tables.

        Raises:
            UnsupportedLookup: the statement cannot be parsed.
        """
        self.text = text
        self.query = Cut(0, len(text))
        """The part that is a query; the planner narrows it for INSERT and CREATE before it reads the tree."""
        self.pieces: Sequence[Piece] = code(pieces(text))
        self._find = find_table
        self._starts = [piece.start for piece in self.pieces]
        self._depths = _depths(self.pieces)
        self._times: dict[int, tuple[Cut, Cut]] = {}

    @cached_property
    def clean(self) -> str:
        """The text with all that sqlglot need not see turned into spaces."""
        text = self.text
        for piece in pieces(text):
            if piece.kind in (Kind.HINT, Kind.COMMENT):
                text = blanked(text, piece.start, piece.end)
        for index, piece in enumerate(self.pieces):
            if self._is_stream(index):
                text = blanked(text, piece.start, piece.end)
            if self._names_lookup_table(index):
                found = self._time_clause(index)
                if found is not None:
                    self._times[index] = found
                    text = blanked(text, found[0].start, found[0].end)
        return text

    @cached_property
    def tree(self) -> exp.Expr:
        """The query as sqlglot sees it.

        Raises:
            UnreadableStatement: sqlglot does not know the syntax.
        """
        first, last = self.pieces[self.index_at(self.query.start)], self.query.end
        return self._parsed(Cut(first.start, last), " " * first.start)

    def _parsed(self, part: Cut, before: str) -> exp.Expr:
        """The tree of ``before`` and ``part``, its nodes placed as in the whole text."""
        padded = before + self.clean[part.start : part.end]
        problem = ""
        for dialect in _DIALECTS:
            try:
                return sqlglot.parse_one(padded, dialect=dialect)
            except SqlglotError as error:
                problem = problem or str(error).splitlines()[0]
            except RecursionError:
                problem = problem or "it is nested too deeply."
        raise UnreadableStatement(
            Problem(f"This text, which uses a lookup table, cannot be parsed: {problem}", self.span(part))
        )

    def expression(self, part: Cut) -> exp.Expr | None:
        """The tree of ``part`` as one expression, or None where it is none.

        It is read as a projection: by itself, a name such as `comment` would begin a statement.
        """
        word = "SELECT "
        try:
            tree = self._parsed(part, (" " * (part.start - len(word))) + word)
        except UnreadableStatement:
            return None
        projections = tree.expressions if isinstance(tree, exp.Select) else []
        return projections[0] if len(projections) == 1 else None

    # --- places ------------------------------------------------------------------------------------

    def span(self, part: Cut) -> Span:
        """``part`` as a place for an error."""
        return Span(self.text, part.start, part.end)

    def index_at(self, offset: int) -> int:
        """Index of the piece that holds ``offset``."""
        return bisect_right(self._starts, offset) - 1

    def depth(self, index: int) -> int:
        """How many parentheses are open around the piece."""
        return self._depths[index]

    def place_of(self, node: exp.Expr) -> Cut | None:
        """Where the names of ``node`` (a column or table) stand, or None when sqlglot does not say."""
        places = [
            Cut(part.meta["start"], part.meta["end"] + 1)
            for part in node.find_all(exp.Identifier)
            if "start" in part.meta
        ]
        return Cut(min(places).start, max(place.end for place in places)) if places else None

    def after(self, index: int) -> Piece | None:
        """The piece at ``index``, or None past the end."""
        return self.pieces[index] if index < len(self.pieces) else None

    def closing(self, index: int) -> int:
        """Index of the parenthesis that closes the one at ``index``."""
        for later in range(index + 1, len(self.pieces)):
            if self._depths[later] == self._depths[index] and self.pieces[later].is_symbol(")"):
                return later
        return len(self.pieces) - 1

    # --- structure ---------------------------------------------------------------------------------

    @cached_property
    def uses(self) -> tuple[LookupUse, ...]:
        """Every place where the statement reads a lookup table, in the order of the text."""
        return tuple(sorted(self._uses(), key=lambda use: use.index))

    def _uses(self) -> Iterator[LookupUse]:
        for node in self.tree.find_all(exp.Table):
            table = None if node.args.get("db") else self._find(node.name)
            if table is None or cte_named_by(node) is not None:
                continue
            start = node.this.meta.get("start")
            if start is None:
                raise UnsupportedLookup(Problem(f"The use of {node.name} cannot be placed in the text."))
            index = self.index_at(start)
            times = self._times.get(index)
            end = self._relation_end(node, index, times[0] if times else None)
            use = LookupUse(table, node, index, times[1] if times else None, end)
            self._refuse_strangers(use, times[0].end if times else self.pieces[index].end)
            yield use

    def _relation_end(self, node: exp.Table, index: int, time: Cut | None) -> int:
        alias = node.args.get("alias")
        if alias is None or alias.this is None or "start" not in alias.this.meta:
            return time.end if time else self.pieces[index].end
        last = self.index_at(alias.this.meta["start"])
        if alias.args.get("columns"):
            last = self.closing(last + 1)
        return self.pieces[last].end

    def _refuse_strangers(self, use: LookupUse, start: int) -> None:
        """Between a lookup table's name (with its time, up to ``start``) and its alias stands AS at most."""
        index = self.index_at(start - 1) + 1
        piece = self.after(index)
        if start < use.end:
            index += bool(piece is not None and piece.is_word("AS"))
            alias = use.node.args["alias"].this.meta["start"]
            fits = self.pieces[index].start == alias
        else:
            fits = piece is None or piece.text in (",", ")", ";", "|>") or self._starts_clause(index)
            fits = fits and not (piece is not None and piece.is_word("TABLESAMPLE"))
        if not fits:
            stranger = self.pieces[index]
            raise UnsupportedLookup(
                Problem(
                    f"{stranger.text} cannot stand behind the lookup table {use.table.name}:"
                    " it is asked by key, not read.",
                    self.span(Cut(stranger.start, stranger.end)),
                )
            )

    def select_of(self, index: int) -> int:
        """Offset of the SELECT of the query block whose FROM holds the piece at ``index``, or -1."""
        depth = self._depths[index]
        for earlier in range(index, -1, -1):
            if self._depths[earlier] < depth:
                if self._is_relation_parenthesis(earlier):
                    depth = self._depths[earlier]
                    continue
                break
            if self._depths[earlier] == depth:
                if self.pieces[earlier].is_word("SELECT"):
                    return self.pieces[earlier].start
                if self.pieces[earlier].is_word("UNION", "INTERSECT", "MINUS"):
                    break
        return self._select_after(index, depth)

    def _select_after(self, index: int, depth: int) -> int:
        """The SELECT of ``FROM t SELECT ...``."""
        for later in range(index, len(self.pieces)):
            if self._depths[later] < depth:
                break
            if self._depths[later] == depth and self.pieces[later].is_word("SELECT"):
                return self.pieces[later].start
        return -1

    def _is_relation_parenthesis(self, index: int) -> bool:
        """Whether the parenthesis opens a relation, ``FROM (a JOIN b ...)``, not a subquery or arguments."""
        following = self.after(index + 1)
        before = self.pieces[index - 1] if index else None
        opens_query = following is not None and following.is_word("SELECT", "WITH", "FROM", "VALUES")
        return (
            not opens_query and before is not None and (before.is_word("FROM", "JOIN") or before.text in "(,")
        )

    def join_start(self, index: int) -> int | None:
        """Index of the first word of the JOIN whose right side is the piece, or None when it is not one."""
        if index == 0 or not self.pieces[index - 1].is_word("JOIN"):
            return None
        start = index - 1
        while start > 0 and self.pieces[start - 1].is_word(*_JOIN_WORDS):
            start -= 1
        return start

    def condition_end(self, index: int) -> int:
        """End (offset) of the condition that begins at the piece: where the next clause starts."""
        depth = self._depths[index]
        end = self.pieces[index].start
        later, cases = index, 0
        while later < len(self.pieces):
            piece = self.pieces[later]
            if self._depths[later] < depth or (
                self._depths[later] == depth and piece.text in (",", ";", "|>")
            ):
                break
            if self._depths[later] == depth:
                cases += self.case_step(later)
                if cases == 0 and self._starts_clause(later):
                    break
            end = piece.end
            later += 1
        return end

    def case_step(self, index: int) -> int:
        """1 where the piece opens a CASE, -1 where it ends one, else 0 (as for the name in ``end.id``)."""
        is_part_of_name = self._is_dot(index + 1) or (index > 0 and self.pieces[index - 1].is_symbol("."))
        if is_part_of_name:
            return 0
        return self.pieces[index].is_word("CASE") - self.pieces[index].is_word("END")

    def _starts_clause(self, index: int) -> bool:
        piece, following = self.pieces[index], self.after(index + 1)
        if not piece.is_word(*_CLAUSE_WORDS) or (index and self.pieces[index - 1].is_symbol(".")):
            return False
        is_call = following is not None and following.is_symbol("(")
        return not (is_call and piece.is_word("LEFT", "RIGHT"))

    def is_lookup_table(self, name: str) -> bool:
        """Whether a lookup table is called ``name``."""
        return self._find(name) is not None

    def _names_lookup_table(self, index: int) -> bool:
        piece = self.pieces[index]
        return piece.is_name and self.is_lookup_table(piece.name)

    def _is_stream(self, index: int) -> bool:
        """``STREAM`` before a relation: sqlglot would take it for the relation itself."""
        before, following = self.pieces[index - 1] if index else None, self.after(index + 1)
        return (
            self.pieces[index].is_word("STREAM")
            and before is not None
            and (before.is_word("FROM", "JOIN") or before.is_symbol(","))
            and following is not None
            and following.is_name
            and not following.is_word(*_CLAUSE_WORDS, "AS")
        )

    # --- the time clause ---------------------------------------------------------------------------

    def _time_clause(self, index: int) -> tuple[Cut, Cut] | None:
        """Place of ``[FOR] SYSTEM_TIME AS OF expression`` after a table's name, and of its expression."""
        at = index + 1
        words = [piece.text.upper() for piece in self.pieces[at : at + 4]]
        if words[:1] == ["FOR"]:
            at, words = at + 1, words[1:]
        if words[:1] not in (["SYSTEM_TIME"], ["TIMESTAMP"], ["SYSTEM_VERSION"], ["VERSION"]):
            return None
        if words[1:3] != ["AS", "OF"]:
            return None
        first = at + 3
        if first >= len(self.pieces):
            return None
        last = self._operand_end(first)
        expression = Cut(self.pieces[first].start, self.pieces[last].end)
        return Cut(self.pieces[index + 1].start, expression.end), expression

    def _operand_end(self, index: int) -> int:
        """Index of the last piece of the value expression that begins at ``index``."""
        at = index
        if self.pieces[at].is_word("TIMESTAMP", "DATE", "INTERVAL") and self._is_literal(at + 1):
            at += 1
            while self.pieces[at - 1].is_word("INTERVAL") and self._is_unit(at + 1):
                at += 1
        elif self.pieces[at].is_symbol("("):
            at = self.closing(at)
        else:
            while self._is_dot(at + 1):
                at += 2
            following = self.after(at + 1)
            if following is not None and following.is_symbol("("):
                at = self.closing(at + 1)
        following = self.after(at + 1)
        if following is not None and following.text in ("+", "-", "*", "/") and self.after(at + 2):
            return self._operand_end(at + 2)
        return at

    def _is_literal(self, index: int) -> bool:
        piece = self.after(index)
        return piece is not None and piece.kind in (Kind.STRING, Kind.NUMBER)

    def _is_unit(self, index: int) -> bool:
        piece = self.after(index)
        units = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
        return piece is not None and piece.is_word(*units, *(unit + "S" for unit in units))

    def _is_dot(self, index: int) -> bool:
        piece = self.after(index)
        return piece is not None and piece.is_symbol(".") and self.after(index + 1) is not None


def visible_withs(node: exp.Expr) -> Iterator[list[exp.CTE]]:
    """The CTEs that ``node`` can name, a list for each WITH around it, innermost first, in their order.

    A CTE sees those before it in its own WITH, and itself where that is recursive.
    """
    inner: exp.Expr = node
    outer = node.parent
    while outer is not None:
        with_ = outer.args.get("with_")
        if isinstance(with_, exp.With) and inner is not with_:
            yield list(with_.expressions)
        if isinstance(outer, exp.With):
            before = list(outer.expressions[: _index_of(inner, outer.expressions)])
            yield [*before, inner] if outer.args.get("recursive") else before  # type: ignore[list-item]
        inner, outer = outer, outer.parent


def cte_named_by(table: exp.Table) -> exp.CTE | None:
    """The CTE that the table's name means, or None."""
    if table.args.get("db"):
        return None
    ctes = (cte for level in visible_withs(table) for cte in reversed(level))
    return next((cte for cte in ctes if cte.alias.lower() == table.name.lower()), None)


def _index_of(node: exp.Expr, among: list[exp.Expr]) -> int:
    return next(index for index, other in enumerate(among) if other is node)


def _depths(found: Sequence[Piece]) -> list[int]:
    """For each piece how many parentheses are open around it; a parenthesis counts as outside itself."""
    depths, depth = [], 0
    for piece in found:
        if piece.is_symbol(")"):
            depth -= 1
        depths.append(depth)
        if piece.is_symbol("("):
            depth += 1
    return depths
