"""Keys that conditions of WHERE give to a use of a lookup table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from lookup_hints.plan.key_conditions import (
    Conditions,
    Conjunct,
    KeyEquality,
    chosen_keys,
    implied_equalities,
    is_random,
    key_equality,
    known_conjuncts,
    not_asked,
    sides_of,
)
from lookup_hints.plan.parse.name_resolution import Referred
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.table_use import TableUse


def with_where(use: TableUse, conditions: Conditions, right: Relation | None = None) -> Conditions:
    """``conditions`` plus the equalities of WHERE, which in an INNER join mean the same as in ON.

    Only equalities with relations before ``use`` count, or with ``right`` if the sides are swapped.
    Constants count for columns that belong to every request, and where nothing else gives a key.
    """
    keys = {key.column: key for key in conditions.keys}
    wanted = {*use.table.primary_key, *use.always}
    if use.table.primary_key and wanted <= keys.keys():
        return conditions
    equalities = list(where_equalities(use))
    if not equalities:
        return conditions
    left = use.chain.before(use.relation) if use.chain is not None else []
    before = frozenset(left if right is None else right.as_seen(lambda _: True))
    for equality, referred in equalities:
        is_usable = bool(referred.relations) and referred.relations <= before and not referred.outer
        is_usable = is_usable or (equality.constant and equality.column in use.always)
        if is_usable and equality.column not in keys:
            keys[equality.column] = equality
    if not keys:
        # Beside other keys a constant in WHERE is a filter: it must not turn a found row into a miss.
        keys = {equality.column: equality for equality, _ in equalities if equality.constant}
    chosen = chosen_keys(keys.values(), use.table, use.always)
    residual = not_asked(use.statement, conditions.keys, chosen)
    return replace(conditions, keys=chosen, residual=(*conditions.residual, *residual))


def where_equalities(use: TableUse) -> Iterator[tuple[KeyEquality, Referred]]:
    """The key equalities in the WHERE of the block, and the names in their left sides."""
    scope = use.scopes.of_where(use.block)
    if use.relation not in scope.relations or not use.may_be_narrowed:
        return
    names = use.names
    is_piped = not use.block.wheres
    for conjunct in _where_about(use):
        equality = key_equality(use.statement, conjunct, names)
        equalities = [replace(equality, kept=True)] if equality is not None else []
        for each in equalities or implied_equalities(use.statement, conjunct, names):
            if each.column not in use.askable or is_random(conjunct.tree):
                continue
            # It is true of two sides that an outer join fills with NULLs.
            if each.null_safe and not use.keeps_rows:
                continue
            referred = use.scopes.referred(scope, each)
            # Below a pipe operator Spark lets no generator name the outer query.
            if not (is_piped and referred.outer):
                yield each, referred


def _where_about(use: TableUse) -> Iterator[Conjunct]:
    """The conjuncts of WHERE that may hold a key of ``use``, but for equalities of other relations."""
    by_alias = use.statement.once(_where_by_alias, use.block)
    about = {**dict(by_alias.get("", ())), **dict(by_alias.get(use.alias.lower(), ()))}
    yield from (about[number] for number in sorted(about))


def _where_by_alias(statement: Statement, block: Block) -> dict[str, list[tuple[int, Conjunct]]]:
    """The conjuncts of WHERE by the aliases that an equality compares, in lower case; "" for others."""
    found, aliases = dict[str, list[tuple[int, Conjunct]]](), statement.aliases_in(block)
    for number, conjunct in enumerate(statement.once(where_of, block)):
        sides = statement.once(sides_of, conjunct.at)
        trees = [side.tree.unnest() for side in sides] if sides is not None else []
        columns = [tree for tree in trees if isinstance(tree, exp.Column)]
        names = {column.parts[0].name.lower() if len(column.parts) > 1 else "" for column in columns}
        for alias in {name if name in aliases else "" for name in names} or {""}:
            found.setdefault(alias, []).append((number, conjunct))
    return found


def where_of(statement: Statement, block: Block) -> list[Conjunct]:
    """The conjuncts of the block's WHERE, or of the ``|> WHERE`` right after its FROM.

    Empty if there is no WHERE, or several.
    """
    pipe = block.pipes[0] if block.pipes else None
    selects = [at for at in block.selects if pipe is None or at < pipe.first]
    wheres = list(block.wheres)
    if pipe is not None and pipe.where is not None and not selects:
        wheres.append(pipe.where)
    if len(wheres) != 1 or len(selects) > 1:
        return []
    # Unreadable conditions can be ignored: they stay in the statement.
    return known_conjuncts(statement, wheres[0]) or []
