"""Look through derived tables, CTEs and views: find those that are a query over just one lookup table.

In doubt they are not looked through: the table inside is then read, or looked up on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.key_conditions import ColumnNames, references
from lookup_hints.plan.parse.lookup_use import OF_LOOKUP_GET, Expression, LookThrough, LookupUse, TableColumn
from lookup_hints.plan.parse.query_blocks import Block, Cte, Query, Relation, Shape
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.spi.changed_column_and_versions import versions_of
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.text_edits import Cut

FindView = Callable[[str], LookThrough | None]
"""The query over one lookup table that the view of that name is; None for other views."""

# Functions of Spark's own that give one value for one row, and the same each time.
_FUNCTIONS = tuple(
    getattr(exp, name)
    for name in (
        *("Abs", "Ceil", "Coalesce", "Concat", "ConcatWs", "CurrentDate", "CurrentTimestamp", "Floor"),
        *("Greatest", "If", "Initcap", "Least", "Left", "Length", "Lower", "Nullif", "Nvl2", "Replace"),
        *("Right", "Round", "Sign", "StartsWith", "Substring", "Trim", "Upper", "Cast", "TryCast", "Case"),
        *("RegexpReplace", "RegexpLike", "Year", "Month", "Day"),
    )
    if hasattr(exp, name)
)

_OTHERS = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Between, exp.In),
    *(exp.Unary, exp.DataType, exp.DataTypeParam, exp.Placeholder, exp.Parameter, exp.Interval, exp.Var),
    *(exp.Tuple,),
)


def names_view(statement: Statement, find_view: FindView) -> bool:
    return any(
        find_view(each.session_name) is not None
        for _, each in statement.structure.relations
        if each.session_name
    )


# A query over one lookup table is that table with other columns, so it can be looked up by key.
# (docs/decisions/0152)
class ViewResolver:
    """Looks through the relations of one statement; each is read once."""

    def __init__(self, statement: Statement, find_view: FindView, case_sensitive: bool) -> None:
        self._statement, self._find_view, self._case_sensitive = statement, find_view, case_sensitive
        self._found: dict[Relation, LookThrough | None] = {}

    def uses(self) -> tuple[LookupUse, ...]:
        def virtual(relation: Relation) -> LookupTable | None:
            through = self.through(relation)
            return None if through is None else through.table

        placed = self._statement.uses_as(virtual)
        return tuple(replace(use, through=self.through(use.relation)) for use in placed)

    # Expressions are substituted in parentheses, which is right only for functions that give the same each
    # time. (docs/decisions/0152)
    def of_query(self, query: Query) -> LookThrough | None:
        """The query as a view of one lookup table; None if it is more than that."""
        try:
            found = self._look_through_query(query)
        except UnsupportedLookup:
            return None
        return found if found is not None and found.is_clear else None

    def through(self, relation: Relation) -> LookThrough | None:
        """A derived table, CTE or view as a view of one lookup table; None if it is more than that."""
        if relation not in self._found:
            self._found[relation] = self._look_through(relation)
        return self._found[relation]

    def _look_through(self, relation: Relation) -> LookThrough | None:
        if relation.lateral or not relation.plain:
            return None
        if relation.shape is Shape.QUERY and relation.query is not None:
            name = self._statement.alias_of(relation) or ""
            shown = "lookup_get" if name.startswith(OF_LOOKUP_GET) else f"derived table {name}".rstrip()
            return _with_name(self.of_query(relation.query), shown)
        if relation.shape is not Shape.TABLE or not relation.name:
            return None
        if relation.cte is not None:
            return _with_name(self._look_through_cte(relation.cte), f"CTE {relation.name}")
        is_table = self._statement.table_of(relation) is not None
        return None if is_table else _with_name(self._find_view(relation.name), f"view {relation.name}")

    def _look_through_cte(self, cte: Cte) -> LookThrough | None:
        if cte.recursive:
            return None
        found, names = self.of_query(cte.query), names_of_cte(self._statement, cte)
        if found is None or not names:
            return found
        if len(names) != len(found.columns):
            return None
        renamed = zip(names, (expression for _, expression in found.columns), strict=True)
        through = replace(found, columns=tuple(renamed))
        return through if through.is_clear else None

    def _look_through_query(self, query: Query) -> LookThrough | None:
        block = plain_block(self._statement, query)
        if block is None or block.source is None or block.distinct or query.first != block.first:
            return None
        head = block.source.chains[0].head
        table = self._statement.table_of(head)
        below = self.through(head) if table is None else LookThrough.whole(table)
        # A time that chooses rows would be lost.
        is_plain = table is None or versions_of(table) is None
        is_now = head.time is None or (is_plain and self._statement.calls_the_present(head.time))
        if below is None or head.lateral or not head.plain or not is_now:
            return None
        names = self._names_of_view(head, below)
        if names is None:
            return None
        inside = _Inside(self._statement, names, dict(below.columns))
        where = inside.expression(block.wheres[0]) if block.wheres else None
        columns = inside.listed(block)
        if columns is None or (block.wheres and where is None):
            return None
        hinted = (*below.hinted, (self._statement.pieces[block.selects[0]].start, names.alias.lower()))
        return LookThrough(
            below.base, tuple(columns), (*below.where, *([where] if where else [])), hinted=hinted
        )

    def _names_of_view(self, head: Relation, below: LookThrough) -> ColumnNames | None:
        columns = head.columns or below.names
        if len(columns) != len(below.names) or len({name.lower() for name in columns}) != len(columns):
            return None
        alias = self._statement.alias_of(head) or ""
        folded = alias if self._case_sensitive else alias.lower()
        return ColumnNames(
            below.table, alias, columns, {folded: 1}, self._case_sensitive, lambda _: False, lambda _: False
        )


class _Inside:
    """Reads the expressions of a query over one relation."""

    def __init__(self, statement: Statement, names: ColumnNames, below: dict[str, Expression]) -> None:
        self._statement, self._names, self._below = statement, names, below

    def listed(self, block: Block) -> list[tuple[str, Expression]] | None:
        """Name and expression of each column of the SELECT list; None if one is unclear."""
        assert block.source is not None
        columns: list[tuple[str, Expression]] = []
        for part in select_items(self._statement, block):
            found = self._expand_star(part) or self._select_item(part)
            if found is None:
                return None
            columns += found
        return columns or None

    def expression(self, part: Cut) -> Expression | None:
        """The expression at ``part`` over the lookup table's own columns, or None where that is in doubt."""
        tree = self._statement.expression(part)
        if tree is None or not all(map(_is_plain, tree.walk())):
            return None
        columns = tree.find_all(exp.Column)
        if any(isinstance(each.this, exp.Star) or self._names.column(each) is None for each in columns):
            return None
        parts: list[str | TableColumn] = []
        at, text = part.start, self._statement.text
        for reference in sorted(references(tree, self._names), key=lambda found: found.at):
            parts += [text[at : reference.at.start], TableColumn(reference.column)]
            at = reference.at.end
        parts.append(text[at : part.end])
        return Expression(tuple(each for each in parts if each != "")).with_columns(self._below)

    def _expand_star(self, part: Cut) -> list[tuple[str, Expression]] | None:
        """The columns of ``*``, ``c.*`` or ``* EXCEPT (...)``; None for anything else."""
        tokens = self._statement.tokens
        at, last = tokens.indices(part)
        is_qualified = tokens.is_symbol(at + 1, ".") and tokens.is_symbol(at + 2, "*")
        if is_qualified and tokens.names(at, self._names.alias):
            at += 2
        if not tokens.is_symbol(at, "*"):
            return None
        if at < last and tokens.except_list(at) != last:
            return None
        names, commas = tokens[at + 3 : last : 2], tokens[at + 4 : last : 2]
        without = [self._names.own_name(piece.name) if piece.is_name else None for piece in names]
        if None in without or not all(piece.is_symbol(",") for piece in commas):
            return None
        called = zip(self._names.columns, self._names.table.schema.names, strict=True)
        return [(name, self._below[own]) for name, own in called if own not in without]

    def _select_item(self, part: Cut) -> list[tuple[str, Expression]] | None:
        tokens, tree = self._statement.tokens, self._statement.expression(part)
        last = tokens.index_at(part.end - 1)
        name = self._statement.pieces[last].name
        if isinstance(tree, exp.Alias):
            end = last - 2 if tokens.is_word(last - 1, "AS") else last - 1
            value = tokens.cut(tokens.index_at(part.start), end)
            if not self._statement.pieces[last].is_name or self._statement.expression(value) != tree.this:
                return None
            part = value
        elif not isinstance(tree, exp.Column):
            return None  # Spark names it after its expression.
        found = self.expression(part)
        if found is None or (
            isinstance(tree, exp.Column) and len(tree.parts) > self._names.qualifier_length(tree) + 1
        ):
            return None
        return [(name, found)]


def _with_name(through: LookThrough | None, shown: str) -> LookThrough | None:
    return None if through is None else replace(through, shown=shown)


def plain_block(statement: Statement, query: Query) -> Block | None:
    """The block of a query that is ``[WITH ...] SELECT ... FROM one relation [WHERE ...]``, or None."""
    block = query.blocks[0] if len(query.blocks) == 1 else None
    if block is None or block.source is None or query.branches or block.selects != [block.first]:
        return None
    if len(block.source.chains) != 1 or block.source.chains[0].steps or block.pipes:
        return None
    if block.views_last > -1 or len(block.wheres) > 1:
        return None
    end = statement.tokens.index_at(block.wheres[0].end - 1) if block.wheres else block.source.last
    return block if end == query.last else None


def names_of_cte(statement: Statement, cte: Cte) -> tuple[str, ...]:
    """The names that the WITH gives the columns of a CTE; none mostly."""
    opening = statement.tokens.index_at(cte.at.start) + 1
    if not statement.tokens.is_symbol(opening, "("):
        return ()
    names = statement.pieces[opening + 1 : statement.tokens.closing(opening)]
    return tuple(piece.name for piece in names if piece.is_name)


def select_items(statement: Statement, block: Block) -> list[Cut]:
    """The items of a block's only SELECT list, after DISTINCT if present."""
    first = block.selects[0] + 1 + block.distinct
    last = block.last if block.source is None else block.source.at - 1
    return statement.tokens.parts(first, last)


def _is_plain(node: exp.Expr) -> bool:
    """Whether it is computed from one row, the same each time, by Spark alone."""
    if isinstance(node, exp.Func) and not isinstance(node, (exp.And, exp.Or)):
        return isinstance(node, _FUNCTIONS)
    return isinstance(node, (*_OTHERS, exp.Binary))
