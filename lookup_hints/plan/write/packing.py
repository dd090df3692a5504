"""Relations and lookup joins packed into a derived table, so that more of a FROM can follow them.

The relations so far become structs under private names, and lateral projections give their names back.
Spark makes plain projections of those: its optimized plan is that of flat SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lookup_hints.plan.read.structure import Relation, Step
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.built import Built, Visible
from lookup_hints.plan.write.concealed import concealed_in
from lookup_hints.plan.write.sheet import Sheet
from lookup_hints.plan.write.using import Merged
from lookup_hints.plan.write.views import Text, joined, private_name, semi_condition
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Cut, Fragment

MOST_VIEWS = 30
"""This many lookup joins of a FROM run in one stage: a task that holds many more overflows its stack."""


def packed_if_long(sheet: Sheet, built: Built) -> Built:
    """``built``; many lookup joins are packed, so that what follows runs in another stage."""
    return built if len(built.views) < MOST_VIEWS else packed(sheet, built, is_stage=True)


def packed(sheet: Sheet, built: Built, *, is_stage: bool = False) -> Built:
    """The relations and lookup joins of ``built`` in a derived table, their names given back."""
    merged = {id(each.step.right): each for each in _unmerged(sheet, built)}
    sheet.merged += merged.values()
    parts, columns = packing(sheet, built, is_stage=is_stage)
    for visible in built.visible:
        column, shared = columns[visible.relation], merged.get(id(visible.relation))
        items = f"{column}.*" if shared is None else _renamed(column, shared)
        parts += [" JOIN ", *given_back(visible, items)]
    hidden = list(columns.values())
    return Built(parts, built.visible, hidden=hidden, first=built.first, open_ended=built.open_ended)


def packing(
    sheet: Sheet, built: Built, *, is_stage: bool = False
) -> tuple[list[Fragment], dict[Relation, str]]:
    """The derived table, and the private column of each of its relations.

    Where it ``is_stage``, its rows are shuffled.
    """
    columns = {visible.relation: sheet.private() for visible in built.visible}
    structs: list[Text] = [
        ("struct(", visible.alias, f".*{_concealed(sheet, built, visible)}) AS {columns[visible.relation]}")
        for visible in built.visible
    ]
    conditions: list[Text] = [
        ("(", conjunct.at, ")") for join in built.views for conjunct in join.conditions.after
    ]
    conditions += [semi_condition(sheet.statement, join) for join in built.filters]
    where = [" WHERE ", *joined(conditions, " AND ")] if conditions else []
    hint = f" /*+ REPARTITION{_spread(sheet, columns)} */" if is_stage else ""
    return [
        f"(SELECT{hint} ",
        *joined(structs, ", "),
        " FROM ",
        *built.parts,
        *sheet.views(built.views),
        *where,
        f") AS {sheet.private()}",
    ], columns


def _spread(sheet: Sheet, columns: Mapping[Relation, str]) -> str:
    """The private columns that say where a row goes, in parentheses; empty where any row may go anywhere.

    Then Spark sorts the rows first, and the queues of this many lookups may have left no memory for that.
    """
    analysis = sheet.analysis
    known = [
        column
        for relation, column in columns.items()
        if sheet.join_of(relation) is None and analysis.has_hash(relation)
    ]
    return f"({', '.join(known)})" if known else ""


def _concealed(sheet: Sheet, built: Built, visible: Visible) -> str:
    """The columns of a relation that its star does not show, as far as the block still names them."""
    if sheet.block is None or any(each.relation is visible.relation for each in sheet.concealed):
        return ""
    last = sheet.statement.tokens.index_at(built.asked[-1].at.end - 1) if built.is_open else -1
    if last < 0 and sheet.block.source is not None:
        last = sheet.block.source.last
    found = concealed_in(sheet.analysis, sheet.block, visible, (built.first, last))
    if found is None:
        return ""
    sheet.concealed.append(found)
    return "".join(
        f", {visible.alias}.{quoted(name)} AS {private}" for name, private in found.private.items()
    )


def given_back(visible: Visible, items: str) -> Text:
    return (f"LATERAL (SELECT {items}) AS ", visible.alias)


def _renamed(column: str, shared: Merged) -> str:
    """The columns of a packed relation, those that it shares by USING under private names."""
    names = {quoted(name): private for name, private in shared.private.items()}
    renamed = "".join(f"{column}.{name} AS {private}, " for name, private in names.items())
    return f"{renamed}{column}.* EXCEPT ({', '.join(names)})"


def _unmerged(sheet: Sheet, built: Built) -> Iterator[Merged]:
    """The ordinary joins by USING that are about to be packed: each name must mean one column then."""
    if not built.using:
        return
    join = built.asked[-1]
    elsewhere = (key.left for each in built.asked for key in each.conditions.keys if key.kept)
    if any(isinstance(left, Cut) and left.start > join.at.end for left in elsewhere):
        # Its key stands in WHERE, too, where the names are the private ones.
        refuse_using(sheet, built)
    last = sheet.statement.tokens.index_at(join.at.end - 1)
    for step in built.using:
        if not step.hides_right:
            right, alias = _named_right(sheet, built, step)
            columns = _columns(sheet, right, step)
            private = {name: private_name(name) for name in columns}
            left = tuple(built.relations[: built.relations.index(right)])
            yield Merged(join, step, alias, left, columns, private, own=(built.first, last))


def _named_right(sheet: Sheet, built: Built, step: Step) -> tuple[Relation, str]:
    """The right side of a join by USING, and its alias; refuses those whose columns cannot be told apart."""
    right = step.right
    alias = None if right is None else sheet.statement.alias_of(right)
    is_kept = step.words in ((), ("INNER",), ("LEFT",), ("LEFT", "OUTER"))
    if not is_kept or right is None or right.chain is not None or alias is None:
        refuse_using(sheet, built)
    assert right is not None and alias is not None  # noqa: PT018 (refused above)
    return right, alias


def _columns(sheet: Sheet, right: Relation, step: Step) -> tuple[str, ...]:
    spelled = {name.lower(): name for name in sheet.analysis.columns_of(right) or ()}
    given = (sheet.statement.pieces[at].name for at in step.using)
    return tuple(spelled.get(name.lower(), name) for name in given)


def refuse_using(sheet: Sheet, built: Built) -> None:
    """Refuse to pack joins by USING whose columns could not be told apart behind it.

    Raises:
        UnsupportedLookup: there are some.
    """
    if any(not step.hides_right for step in built.using):
        asked = (sheet.join_of(relation) for relation in built.relations)
        join = built.asked[-1] if built.is_open else next(each for each in asked if each is not None)
        reason = "a join with USING or NATURAL comes before it, and another relation after it"
        instead = "write ON with the equality, or put the lookup join last"
        raise refused(sheet.statement, join.use, join.at, reason, instead)
