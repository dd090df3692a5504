"""Pack relations and lookup joins into a derived table, so that more of a FROM can follow them.

The relations so far become structs under private names, and lateral projections restore their names. Spark
optimizes these to plain projections, as for flat SQL. ``struct(o.*)`` drops hidden columns, such as
`_metadata` of files: those that the statement names go into the struct under private names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lookup_hints.plan.column_pruning import leaving_out
from lookup_hints.plan.parse.query_blocks import Block, Relation, Step
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.write.from_parts import Concealed, FromPart, Rewrite, Visible
from lookup_hints.plan.write.lateral_view import HIDDEN_PREFIX, Text, joined, private_name, semi_condition
from lookup_hints.plan.write.using_and_stars import Merged, is_whole_item, qualified_names
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut, Edit, Fragment

MOST_VIEWS = 30
"""This many lookup joins of a FROM run in one stage: a task that holds many more overflows its stack."""


# Spark's analyzer needs two or three rounds per LATERAL VIEW and gives up after 100; a task with a hundred of
# them overflows its stack. (docs/decisions/0174)
def packed_if_long(rewrite: Rewrite, built: FromPart) -> FromPart:
    """``built``, packed if it has many lookup joins, so that those that follow run in another stage."""
    return built if len(built.views) < MOST_VIEWS else packed(rewrite, built, is_stage=True)


# Structs under private names; projections restore the names, and the optimized plan equals that of flat SQL.
# (docs/decisions/0011)
def packed(rewrite: Rewrite, built: FromPart, *, is_stage: bool = False) -> FromPart:
    """The relations and lookup joins of ``built`` in a derived table, their names given back."""
    merged = {id(each.step.right): each for each in _unmerge_using(rewrite, built)}
    rewrite.merged += merged.values()
    parts, columns = packing(rewrite, built, is_stage=is_stage)
    for visible in built.visible:
        column, shared = columns[visible.relation], merged.get(id(visible.relation))
        items = f"{column}.*" if shared is None else _rename_shared(column, shared)
        parts += [" JOIN ", *given_back(visible, items)]
    hidden = list(columns.values())
    return FromPart(parts, built.visible, hidden=hidden, first=built.first, open_ended=built.open_ended)


def packing(
    rewrite: Rewrite, built: FromPart, *, is_stage: bool = False
) -> tuple[list[Fragment], dict[Relation, str]]:
    """The derived table, and the private column of each of its relations.

    Where it ``is_stage``, its rows are shuffled.
    """
    columns = {visible.relation: rewrite.private() for visible in built.visible}
    structs: list[Text] = [
        (
            "struct(",
            visible.alias,
            f".*{_conceal_columns(rewrite, built, visible)}) AS {columns[visible.relation]}",
        )
        for visible in built.visible
    ]
    conditions: list[Text] = [
        ("(", conjunct.at, ")") for join in built.views for conjunct in join.conditions.after
    ]
    conditions += [semi_condition(rewrite.statement, join) for join in built.filters]
    where = [" WHERE ", *joined(conditions, " AND ")] if conditions else []
    hint = f" /*+ REPARTITION{_repartition_columns(rewrite, columns)} */" if is_stage else ""
    return [
        f"(SELECT{hint} ",
        *joined(structs, ", "),
        " FROM ",
        *built.parts,
        *rewrite.views(built.views),
        *where,
        f") AS {rewrite.private()}",
    ], columns


def _repartition_columns(rewrite: Rewrite, columns: Mapping[Relation, str]) -> str:
    """The private columns that say where a row goes, in parentheses; empty where any row may go anywhere.

    Then Spark sorts the rows first, and the queues of this many lookups may have left no memory for that.
    """
    analysis = rewrite.analysis
    known = [
        column
        for relation, column in columns.items()
        if rewrite.join_of(relation) is None and analysis.has_hash(relation)
    ]
    return f"({', '.join(known)})" if known else ""


def _conceal_columns(rewrite: Rewrite, built: FromPart, visible: Visible) -> str:
    """The columns of a relation that its star does not show, as far as the block still names them."""
    block, analysis, statement = rewrite.block, rewrite.analysis, rewrite.statement
    alias = statement.alias_of(visible.relation)
    is_done = any(each.relation is visible.relation for each in rewrite.concealed)
    if block is None or is_done or alias is None or not analysis.knows:
        return ""
    last = statement.tokens.index_at(built.asked[-1].at.end - 1) if built.is_open else -1
    if last < 0 and block.source is not None:
        last = block.source.last
    named = {
        statement.pieces[index].name: None
        for index in (*qualified_names(statement, block, alias), *_of_files(statement, block))
        if statement.pieces[index].is_name and not built.first <= index <= last
    }
    private = {
        name: quoted(f"{HIDDEN_PREFIX}{name}")
        for name in named
        if analysis.has_hidden(visible.relation, visible.alias, name)
    }
    if private:
        own = built.first, last
        rewrite.concealed.append(Concealed(visible.relation, visible.alias, private, own))
    return "".join(f", {visible.alias}.{quoted(name)} AS {given}" for name, given in private.items())


def given_back(visible: Visible, items: str) -> Text:
    return (f"LATERAL (SELECT {items}) AS ", visible.alias)


def _rename_shared(column: str, shared: Merged) -> str:
    """The columns of a packed relation, those that it shares by USING under private names."""
    names = {quoted(name): private for name, private in shared.private.items()}
    renamed = "".join(f"{column}.{name} AS {private}, " for name, private in names.items())
    return f"{renamed}{column}.* EXCEPT ({', '.join(names)})"


def _unmerge_using(rewrite: Rewrite, built: FromPart) -> Iterator[Merged]:
    """The ordinary joins by USING that are about to be packed: each name must mean one column then."""
    if not built.using:
        return
    join = built.asked[-1]
    elsewhere = (key.left for each in built.asked for key in each.conditions.keys if key.kept)
    if any(isinstance(left, Cut) and left.start > join.at.end for left in elsewhere):
        # Its key is also in WHERE, where the names are private.
        refuse_using(rewrite, built)
    last = rewrite.statement.tokens.index_at(join.at.end - 1)
    for step in built.using:
        if not step.hides_right:
            right, alias = _right_side_and_alias(rewrite, built, step)
            spelled = {name.lower(): name for name in rewrite.analysis.columns_of(right) or ()}
            given = (rewrite.statement.pieces[at].name for at in step.using)
            columns = tuple(spelled.get(name.lower(), name) for name in given)
            private = {name: private_name(name) for name in columns}
            left = tuple(built.relations[: built.relations.index(right)])
            yield Merged(join, step, alias, left, columns, private, own=(built.first, last))


def _right_side_and_alias(rewrite: Rewrite, built: FromPart, step: Step) -> tuple[Relation, str]:
    """The right side of a join by USING, and its alias; refuses indistinguishable columns."""
    right = step.right
    alias = None if right is None else rewrite.statement.alias_of(right)
    is_kept = step.words in ((), ("INNER",), ("LEFT",), ("LEFT", "OUTER"))
    if not is_kept or right is None or right.chain is not None or alias is None:
        refuse_using(rewrite, built)
    assert right is not None and alias is not None  # noqa: PT018 (refused above)
    return right, alias


def refuse_using(rewrite: Rewrite, built: FromPart) -> None:
    """Refuse to pack joins by USING whose columns would become indistinguishable.

    Raises:
        UnsupportedLookup: there are some.
    """
    if any(not step.hides_right for step in built.using):
        asked = [join for join in map(rewrite.join_of, built.relations) if join is not None]
        # A group without a lookup is packed for one of another group.
        here = asked or [join for join in rewrite.joins if join.home is rewrite.block]
        join = built.asked[-1] if built.is_open else here[0]
        reason = "a join with USING or NATURAL comes before it, and another relation after it"
        instead = "write ON with the equality, or put the lookup join last"
        raise join.use.refused(join.at, reason, instead)


# Spark's own name, which may also be used without a qualifier.
_OF_FILES = "_metadata"


def concealed_edits(
    statement: Statement, block: Block, concealed: Sequence[Concealed], merged: Sequence[Merged]
) -> Iterator[Edit]:
    """The edits of the names of hidden columns, and of the stars of their relations."""
    for each in concealed:
        alias = statement.alias_of(each.relation) or ""
        for index in qualified_names(statement, block, alias):
            if statement.tokens.is_symbol(index, "*"):
                yield from _without_private(statement, index, each, merged)
            else:
                yield from _with_private_name(statement, index, each, 3)
        for index in _of_files(statement, block):
            yield from _with_private_name(statement, index, each, 1)


def _of_files(statement: Statement, block: Block) -> Iterator[int]:
    tokens = statement.tokens
    for index in tokens.places(_OF_FILES, block.first, block.last):
        if not tokens.is_symbol(index - 1, ".") and not tokens.is_symbol(index + 1, "("):
            yield index


def _with_private_name(statement: Statement, index: int, concealed: Concealed, length: int) -> Iterator[Edit]:
    piece = statement.pieces[index]
    by_name = {name.lower(): private for name, private in concealed.private.items()}
    private = by_name.get(piece.name.lower()) if piece.is_name else None
    if private is None or concealed.own[0] <= index <= concealed.own[1]:
        return
    qualifier = "" if length > 1 else f"{concealed.alias}."
    name = f" AS {quoted(piece.name)}" if is_whole_item(statement, index, length) else ""
    yield Edit(Cut(piece.start, piece.end), (f"{qualifier}{private}{name}",))


def _without_private(
    statement: Statement, index: int, concealed: Concealed, merged: Sequence[Merged]
) -> Iterator[Edit]:
    alias = statement.pieces[index - 2].name.lower()
    shares = next((each for each in merged if each.alias.lower() == alias), None)
    if shares is not None:
        reason = "USING or NATURAL gives columns to a relation of which a hidden one is named, too"
        raise shares.join.use.refused(shares.join.at, reason, "list the columns, or write ON")
    yield leaving_out(statement, index, ", ".join(concealed.private.values()))
