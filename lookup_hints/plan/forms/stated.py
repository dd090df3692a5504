"""The right side of a join: its kind, and the keys that its ON, USING or NATURAL states."""

from __future__ import annotations

from dataclasses import replace

from lookup_hints.errors import Problem
from lookup_hints.plan.conditions import Conjunct, conjuncts, sorted_conditions
from lookup_hints.plan.draft import LookupJoin
from lookup_hints.plan.forms.facts import Facts, Form
from lookup_hints.plan.forms.shared import Before, shared_keys
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.plan.read.structure import Step
from lookup_hints.plan.refusal import CannotBeAsked, cannot_run, refuse_extra_clauses, refused

KINDS = {
    (): "INNER",
    ("INNER",): "INNER",
    ("CROSS",): "INNER",
    ("LEFT",): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
    ("SEMI",): "LEFT SEMI",
    ("LEFT", "SEMI"): "LEFT SEMI",
    ("ASOF",): "INNER",
    ("INNER", "ASOF"): "INNER",
    ("LEFT", "ASOF"): "LEFT",
    ("LEFT", "OUTER", "ASOF"): "LEFT",
    ("ANTI",): "LEFT ANTI",
    ("LEFT", "ANTI"): "LEFT ANTI",
}
_REFUSED_KINDS = {
    "RIGHT": ("a RIGHT JOIN needs every row of the lookup table", "write LEFT JOIN with the sides swapped"),
    "FULL": ("a FULL JOIN needs every row of the lookup table", "write LEFT JOIN"),
}


def stated(facts: Facts, form: type[Form], use: LookupUse, step: Step, before: Before) -> Form:
    """The lookup join that ``step`` states, in the given form; ``before`` says what stands before it.

    Raises:
        CannotBeAsked: its kind, or its condition, makes it none.
    """
    statement = facts.statement
    refuse_extra_clauses(statement, use)
    kind = _kind(facts, use, step)
    shared = shared_keys(facts, use, step, before)
    conditions = sorted_conditions(
        statement,
        conjuncts(statement, step.on) if step.on is not None else (),
        facts.names(use),
        facts.askable(use),
        shared,
        facts.always(use),
    )
    if kind == "INNER" and not shared:
        conditions = facts.with_where(use, conditions)
    join = facts.join(form, use, kind, statement.tokens.cut(step.first, step.last), conditions)
    if not conditions.keys:
        raise _no_key(facts, use, step)
    _refuse_missing(facts, join, step)
    return join


def without_outer(facts: Facts, join: Form, *, can_check_after: bool) -> Form:
    """``join`` without conditions that name an outer query: they are checked on its result.

    Raises:
        UnsupportedLookup: there are some, and its result cannot be checked.
    """
    if not facts.statement.has_outer(join.home):
        return join
    scope, conditions = facts.scope(join.home), join.conditions
    outer_keys = [key for key in conditions.keys if facts.referred(scope, key).outer]
    outer = [
        conjunct
        for conjunct in (*conditions.residual, *conditions.left_only)
        if scope.referred(conjunct.tree).outer
    ]
    trees = ((key.whole, facts.statement.expression(key.whole)) for key in outer_keys)
    outer += [Conjunct(at, tree) for at, tree in trees if tree is not None]
    if not outer:
        return join
    if not can_check_after:
        reason = "its ON condition names the outer query, which Spark allows in an INNER JOIN only"
        raise refused(facts.statement, join.use, join.at, reason)
    kept = replace(
        conditions,
        keys=tuple(key for key in conditions.keys if key not in outer_keys),
        residual=tuple(each for each in conditions.residual if each not in outer),
        left_only=tuple(each for each in conditions.left_only if each not in outer),
        after=(*conditions.after, *outer),
    )
    return join.with_(conditions=kept)


def _kind(facts: Facts, use: LookupUse, step: Step) -> str:
    head = facts.statement.tokens.cut(step.first, use.relation.last)
    for word, (reason, instead) in _REFUSED_KINDS.items():
        if word in step.words:
            raise refused(facts.statement, use, head, reason, instead)
    kind = KINDS.get(step.words[1:] if step.words[:1] == ("NATURAL",) else step.words)
    if kind is None:
        raise cannot_run(facts.statement, use, head, f"{' '.join(step.words)} JOIN is not a join type")
    return kind


def _refuse_missing(facts: Facts, join: LookupJoin, step: Step) -> None:
    names = facts.missing(join.use, join.conditions.keys)
    if not names:
        return
    equalities = " and ".join(f"{join.use.alias}.{name} = ..." for name in names)
    problem = Problem(
        f"The lookup join with {join.use.shown} cannot ask its source without {' and '.join(names)}.",
        facts.statement.span(join.at if step.on is None else step.on),
        f"Add {equalities} to the condition.",
    )
    reason = f"its source cannot be asked without {' and '.join(names)}"
    raise CannotBeAsked(problem, join.use, reason)


def _no_key(facts: Facts, use: LookupUse, step: Step) -> CannotBeAsked:
    statement = facts.statement
    if step.on is None:
        head = statement.tokens.cut(step.first, use.relation.last)
        if "CROSS" in step.words:
            reason = "a CROSS JOIN gives no key to ask for"
            return refused(statement, use, head, reason, "write JOIN ... ON with an equality")
        reason = "it has no ON condition, so nothing says which rows to ask for"
        return refused(statement, use, head, reason)
    can = ", ".join(name for name in use.table.schema.names if name in facts.askable(use))
    reason = "no equality between an expression of the left side and a column that can be asked by"
    problem = Problem(
        f"The lookup join with {use.shown} has no key: {reason}.",
        statement.span(step.on),
        f"Columns that can be asked by: {can}.",
    )
    return CannotBeAsked(problem, use, f"its condition has {reason}")
