"""A statement with ``lookup_get`` -> the same with LEFT JOINs, for the planner to go on with.

The joined relation is a derived table over the lookup table whose columns have private names, so that no name
of the user's can mean them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from lookup_hints.errors import QueryError, Span
from lookup_hints.hints.hint_comments import LookupHint, read_hints
from lookup_hints.plan.column_pruning import leaving_out, own_stars
from lookup_hints.plan.lookup_get.calls import (
    ValueCall,
    calls_in,
    calls_lookup_get,
    raise_together,
    read_call,
)
from lookup_hints.plan.lookup_get.calls_in_merge import CallsInSource, move_calls_into_source
from lookup_hints.plan.lookup_get.changed_text import ChangedText
from lookup_hints.plan.lookup_get.places import (
    IN_DERIVED_TABLE,
    JoinPlace,
    clause_of,
    enclosing_calls,
    items_until_clause,
    place_of,
    refused,
)
from lookup_hints.plan.parse.aggregates import AGGREGATES
from lookup_hints.plan.parse.lookup_use import OF_LOOKUP_GET
from lookup_hints.plan.parse.query_blocks import Block
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.scopes import Scopes
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit, Fragment, original_offset


@dataclass
class ValueJoin:
    """One LEFT JOIN, which gives the values of all calls with its table, key and place.

    Args:
        place: where it goes.
        alias: its private alias.
        calls: its calls, in the order of the text.
    """

    place: JoinPlace
    alias: str
    calls: list[ValueCall] = field(default_factory=list)

    @property
    def first(self) -> ValueCall:
        return self.calls[0]

    def value_and_key(self, call: ValueCall) -> tuple[str, str]:
        """The columns of the value, and of the key, which is NULL where no row was found."""
        value, key = map(self.private, (call.column, call.table.primary_key[0]))
        return f"{self.alias}.{value}", f"{self.alias}.{key}"

    def private(self, column: str) -> str:
        return quoted(f"{self.alias}_{column}")

    @property
    def columns(self) -> list[str]:
        table = self.first.table
        named = {*table.primary_key, *(call.column for call in self.calls)}
        return [name for name in table.schema.names if name in named]

    def fragments(self, keys: Sequence[Sequence[Fragment]]) -> Iterator[Fragment]:
        """The text of the join; ``keys`` are what its key is compared with."""
        listed = ", ".join(f"{quoted(name)} AS {self.private(name)}" for name in self.columns)
        pipe = "|> " if self.place.is_pipe else ""
        yield f" {pipe}LEFT JOIN (SELECT {listed} FROM {self.first.relation}) AS {self.alias} ON "  # noqa: S608
        parts = zip(keys, self.first.trees, self.first.table.primary_key, strict=True)
        for number, (key, tree, column) in enumerate(parts):
            opening, closing = ("", "") if isinstance(tree, exp.Column) else ("(", ")")
            yield from (" AND " if number else "", opening, *key, closing)
            yield f" = {self.alias}.{self.private(column)}"


@dataclass(frozen=True)
class JoinsForCalls(ChangedText):
    """A statement whose calls became joins.

    Args:
        joins: the joins.
        hints: its hints, as they are meant in the new text.
        moved: where calls were moved into the source of a MERGE first, what that made of the user's text.
    """

    joins: tuple[ValueJoin, ...]
    hints: tuple[LookupHint, ...]
    moved: CallsInSource | None

    def put_in_place(self, error: Exception) -> None:
        super().put_in_place(error)
        if self.moved is not None:
            self.moved.put_in_place(error)

    def _without_private(self, text: str) -> str:
        for join in reversed(self.joins):
            table = join.first.table.name
            text = text.replace(f"{join.alias}_", f"{table}.").replace(join.alias, table)
        return text

    def _span_of_added(self, at: Span) -> Span | None:
        added = re.search(rf"{OF_LOOKUP_GET}(\d+)", at.text[at.start :])
        if added is None:
            return None
        call, code = self.joins[int(added[1]) - 1].first, self.written.code
        return Span(self.written, code[call.first].start, code[call.last].end)


# (docs/decisions/0272, docs/decisions/0273)
def joins_for_calls(text: SqlText, hints: tuple[LookupHint, ...], context: Context) -> JoinsForCalls | None:
    """The statement with a LEFT JOIN for each table and key of its calls; None if it has no calls of ours.

    Raises:
        QueryError: a call is wrong, or no join can be where it is; lists all such calls.
    """
    if not calls_lookup_get(text) or context.has_function("lookup_get"):
        return None
    if not text.code.has_matched_parentheses:
        return None  # Spark's parser says where
    statement = Statement(text, context.find_table, context.is_lookup_view)
    statement.queries = query_parts(statement)
    moved = move_calls_into_source(statement, context)
    if moved is not None:
        outside = [hint for hint in hints if hint.at.text != text]
        text, hints = moved.text, (*outside, *read_hints(moved.text)[0])
        statement = Statement(text, context.find_table, context.is_lookup_view)
        statement.queries = query_parts(statement)
    try:
        writer = _Rewriter(statement, context)
        edits = tuple(writer.edits())
    except QueryError as error:
        if moved is not None:
            moved.put_in_place(error)
        raise
    made = text.edited(edits)
    hints = tuple(_hints_of(writer, hints, edits, made))
    return JoinsForCalls(text, made, edits, tuple(writer.joins), hints, moved)


class _Rewriter:
    def __init__(self, statement: Statement, context: Context) -> None:
        self.statement, self._context = statement, context
        self._case_sensitive = (context.conf("spark.sql.caseSensitive") or "false").lower() == "true"
        self._scopes = Scopes(statement, Analysis(statement, context.analyse), self._case_sensitive)
        self.joins: list[ValueJoin] = []
        self._place_joins()

    def _place_joins(self) -> None:
        errors: list[QueryError] = []
        placed: list[tuple[ValueCall, JoinPlace]] = []
        for first in calls_in(self.statement.tokens):
            try:
                call = read_call(self.statement, self._context, first)
                placed.append((call, place_of(self.statement, self._scopes, call)))
            except QueryError as error:
                errors.append(error)
        raise_together(errors)
        # A call in the key of another ends before it, and its join comes first, too.
        for call, place in sorted(placed, key=lambda each: (not each[1].is_early, each[0].last)):
            join = next((each for each in self.joins if self._serves_call(each, place, call)), None)
            if join is None:
                join = ValueJoin(place, f"{OF_LOOKUP_GET}{len(self.joins) + 1}")
                self.joins.append(join)
            join.calls.append(call)

    def _serves_call(self, join: ValueJoin, place: JoinPlace, call: ValueCall) -> bool:
        """Whether a join has the table and the key of a call, and can be named at its place.

        A join inside the FROM serves the clauses behind it, too: where a later join fills a column of its key
        with NULL, it fills the value as well. What is computed from such a column may be no NULL.
        """
        first = join.first
        if first.relation != call.relation or join.place.block is not place.block:
            return False
        is_seen = join.place.is_early and not place.is_early
        are_columns = all(isinstance(tree, exp.Column) for tree in call.trees)
        is_same = self._key_text(first, place.block) == self._key_text(call, place.block)
        return is_same and (join.place == place or (is_seen and are_columns))

    def _key_text(self, call: ValueCall, block: Block) -> list[str]:
        """The parts of a key without what makes no difference: ``k`` is ``o.k`` if ``o`` has it."""
        texts = []
        for part, tree in zip(call.keys, call.trees, strict=True):
            text = self._normal_text(part)
            owners = self._scopes.of_where(block).referred(tree).relations
            if isinstance(tree, exp.Column) and len(tree.parts) == 1 and len(owners) == 1:
                alias = self.statement.alias_of(next(iter(owners))) or ""
                text = f"{alias if self._case_sensitive else alias.lower()} . {text}"
            texts.append(text)
        return texts

    def _normal_text(self, part: Cut) -> str:
        """The text of ``part`` without what makes no difference."""
        first, last = self.statement.tokens.indices(part)
        pieces = self.statement.tokens[first : last + 1]
        return " ".join(
            each.text.lower() if each.is_name and not self._case_sensitive else each.text for each in pieces
        )

    def edits(self) -> Iterator[Edit]:
        tokens = self.statement.tokens
        for block in self.statement.structure.blocks:
            yield from self._edits_of_names(block)
        for place in dict.fromkeys(join.place for join in self.joins):
            here = [join for join in self.joins if join.place == place]
            before = f" FROM (SELECT 1 AS {OF_LOOKUP_GET}0)" if place.needs_from else ""
            added = [
                fragment
                for join in here
                for fragment in join.fragments([list(self._of_one_row(key)) for key in join.first.keys])
            ]
            if place.opens > -1:
                yield Edit(Cut(place.opens, place.opens), ("(",))
            yield Edit(Cut(place.at, place.at), (before, *added, ")" if place.opens > -1 else ""))
        for comma in {comma for join in self.joins for comma in join.place.commas}:
            yield Edit(tokens.cut(comma, comma), (" CROSS JOIN",))
        yield from self._edits_of_stars()
        for join in self.joins:
            for call in join.calls:
                yield Edit(tokens.cut(call.first, call.last), tuple(self._value_fragments(join, call)))

    def _edits_of_stars(self) -> Iterator[Edit]:
        hidden: dict[Block, list[str]] = {}
        for join in self.joins:
            if not self._is_below_semi_join(join.place):
                hidden.setdefault(join.place.block, []).extend(map(join.private, join.columns))
        for block, names in hidden.items():
            for star in own_stars(self.statement, block):
                yield leaving_out(self.statement, star, ", ".join(names))

    def _is_below_semi_join(self, place: JoinPlace) -> bool:
        """Whether the place is inside the right side of a SEMI or ANTI join, whose columns no star shows."""
        inside = (each.chain for each in place.block.everything if each.chain is not None)
        steps = (step for chain in (*place.block.chains, *inside) for step in chain.steps)
        rights = (
            self.statement.tokens.place(step.right) for step in steps if step.right and step.hides_right
        )
        at = place.at - 1 if place.opens < 0 else place.opens
        return any(right.start <= at < right.end for right in rights)

    # --- values ------------------------------------------------------------------------------------

    def _value_fragments(self, join: ValueJoin, call: ValueCall) -> Iterator[Fragment]:
        """The expression in place of a call.

        A matched row has a key that is not NULL. Spark gives a struct's field the name of a bare column, so
        the value is none.
        """
        if not self._is_of_group(join, call):
            yield from self._value_of_one_row(join, call)
            return
        value, found = join.value_and_key(call)
        # One row says it for its group, as the key is grouped by: Spark checks that where it stands alone.
        yield "(CASE WHEN "
        for key in call.keys:
            yield from ("(", key, ") IS NULL OR ")
        yield f"any_value({found}) IS NULL THEN "
        yield "NULL" if call.default is None else call.default
        yield f" ELSE any_value({value}) END)"

    def _value_of_one_row(self, join: ValueJoin, call: ValueCall) -> Iterator[Fragment]:
        value, found = join.value_and_key(call)
        if call.default is None:
            yield f"coalesce({value})"
        else:
            default = self._of_one_row(call.default)
            yield from (f"(CASE WHEN {found} IS NULL THEN ", *default, f" ELSE {value} END)")

    def _of_one_row(self, part: Cut) -> Iterator[Fragment]:
        """``part`` as ON needs it: a call in it gives the value of the row, not that of a group."""
        at = part.start
        calls = ((join, call) for join in self.joins for call in join.calls)
        for join, call in sorted(calls, key=lambda each: each[1].first):
            place = self.statement.tokens.cut(call.first, call.last)
            if at <= place.start and place.end <= part.end:
                yield from (Cut(at, place.start), *self._value_of_one_row(join, call))
                at = place.end
        yield Cut(at, part.end)

    def _is_of_group(self, join: ValueJoin, call: ValueCall) -> bool:
        """Whether a call is computed once for each group, from a key that is grouped by."""
        statement, block = self.statement, join.place.block
        tokens = statement.tokens
        clause = clause_of(statement, block, call.first)
        if not block.grouped or clause not in ("SELECT", "HAVING", "QUALIFY", "ORDER", "SORT"):
            return False
        for opening in enclosing_calls(statement, block.first, call.first):
            after = tokens.closing(opening) + 1
            if tokens.is_word(after, "FILTER") and tokens.is_symbol(after + 1, "("):
                after = tokens.closing(after + 1) + 1
            if tokens[opening - 1].text.upper() in AGGREGATES and not tokens.is_word(after, "OVER"):
                return False
        if self._call_text(call) in self._grouped_calls(block):
            return False
        words = ("CUBE", "ROLLUP", "SETS")
        has_sets = any(True for word in words for _ in tokens.places(word, block.first, block.last))
        if has_sets and not all(isinstance(tree, exp.Column) for tree in call.trees):
            reason = "its key is computed from columns that CUBE, ROLLUP or GROUPING SETS leave out"
            raise refused(statement, call, reason, IN_DERIVED_TABLE)
        return True

    def _call_text(self, call: ValueCall) -> str:
        return self._normal_text(self.statement.tokens.cut(call.first, call.last))

    def _grouped_calls(self, block: Block) -> set[str]:
        """The calls in GROUP BY, and in those items of the list that it means by number, name or ALL."""
        statement, tokens = self.statement, self.statement.tokens
        calls = [call for join in self.joins for call in join.calls]
        places = (
            at
            for at in tokens.in_plain_sight(block.first, block.last)
            if tokens.is_word(at, "GROUP") and tokens.is_word(at + 1, "BY")
        )
        start = next(places, None)
        if start is None:  # it is behind a CASE without END, which Spark's parser reports
            return set()
        inside = [call for call in calls if clause_of(statement, block, call.first) == "GROUP"]
        items = list(self._list_items(block))
        for group in items_until_clause(self.statement, start + 2, block.last):
            first, last = tokens.indices(group)
            if first != last:
                continue
            named = tokens[first]
            for number, item in enumerate(items, 1):
                begin, finish = tokens.indices(item)
                is_meant = named.text == str(number) or (
                    named.is_name and begin < finish and tokens.names(finish, named.name)
                )
                if is_meant or (named.is_word("ALL") and not self._has_aggregate(begin, finish)):
                    inside += [call for call in calls if begin <= call.first <= finish]
        return {self._call_text(call) for call in inside}

    def _has_aggregate(self, first: int, last: int) -> bool:
        tokens = self.statement.tokens
        return any(
            tokens[at].text.upper() in AGGREGATES and tokens.is_symbol(at + 1, "(")
            for at in range(first, last)
        )

    # --- names of columns --------------------------------------------------------------------------

    def _edits_of_names(self, block: Block) -> Iterator[Edit]:
        """A name for each item of a list that holds a call and has none: its own text."""
        tokens, calls = self.statement.tokens, list(calls_in(self.statement.tokens))
        for item in self._list_items(block):
            first, last = tokens.indices(item)
            inner = self.statement.structure.queries_in(block)
            has_call = any(
                first <= at <= last and not any(query.first <= at <= query.last for query in inner)
                for at in calls
            )
            if has_call and not isinstance(self.statement.expression(item), exp.Alias | exp.Aliases):
                name = quoted(" ".join(item.of(self.statement.text).split()))
                yield Edit(Cut(item.end, item.end), (f" AS {name}",))

    def _list_items(self, block: Block) -> Iterator[Cut]:
        """The items of the SELECT lists of a block."""
        tokens = self.statement.tokens
        for select in block.selects:
            first = select + 1 + tokens.is_word(select + 1, "DISTINCT", "ALL")
            yield from items_until_clause(self.statement, first, block.last)


# --- hints ------------------------------------------------------------------------------------------


def _hints_of(
    writer: _Rewriter, hints: tuple[LookupHint, ...], edits: tuple[Edit, ...], made: SqlText
) -> Iterator[LookupHint]:
    """The hints of the new text: one that names the table of a call means its joins."""
    statement = writer.statement
    yield from (hint for hint in hints if hint.at.text != statement.text)
    if all(hint.at.text != statement.text for hint in hints):
        return
    for hint in read_hints(made)[0]:
        select = original_offset(statement.text, edits, Cut(0, len(statement.text)), hint.select)
        meant = [
            join
            for join in writer.joins
            if join.first.table.name.lower() == hint.table.lower()
            and select in [statement.tokens[at].start for at in join.place.block.selects]
        ]
        yield from (replace(hint, table=join.alias) for join in meant)
        aliases = {alias for join in meant for alias in statement.aliases_in(join.place.block)}
        if not meant or hint.table.lower() in aliases:
            yield hint
