"""Which lookup join a LOOKUP hint is about."""

from __future__ import annotations

from collections import defaultdict

from lookup_hints.errors import HintError, Problem, nearest
from lookup_hints.hints.validate import LookupHint, merged
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.read.statement import LookupUse


def match_hints(draft: Draft) -> Draft:
    """Each hint goes to the lookup join of its query block that it names; one that names none is an error."""
    by_block: dict[int, list[LookupHint]] = defaultdict(list)
    for hint in draft.hints:
        by_block[hint.select].append(hint)
    problems = [
        _unmatched(hint, draft)
        for hint in draft.hints
        if not any(_names(draft, hint, join.use) for join in draft.joins)
    ]
    if problems:
        raise HintError(problems)

    def with_hint(join: LookupJoin) -> LookupJoin:
        in_block = tuple(hint for select in _selects(draft, join.use) for hint in by_block[select])
        own = [hint for hint in merged(in_block) if _names(draft, hint, join.use)]
        return join.with_(hint=own[0] if own else None)

    return draft.each_join(with_hint)


def is_hinted(draft: Draft, use: LookupUse) -> bool:
    """Whether a hint names the use: the user wants it to be asked."""
    return any(_names(draft, hint, use) for hint in draft.hints)


def _selects(draft: Draft, use: LookupUse) -> list[int]:
    """Where the SELECTs stand whose hints may be about the use: those of its query block."""
    return [draft.offset_of(index) for index in use.block.selects]


def _names(draft: Draft, hint: LookupHint, use: LookupUse) -> bool:
    return hint.select in _selects(draft, use) and hint.table.lower() == use.alias.lower()


def _unmatched(hint: LookupHint, draft: Draft) -> Problem:
    joins = [join for join in draft.joins if hint.select in _selects(draft, join.use)]
    here = [join.use.alias for join in joins]
    message = f"LOOKUP names {hint.table!r}, but no lookup join in this query block has that alias."
    by_name = [join.use.alias for join in joins if join.use.table.name.lower() == hint.table.lower()]
    if by_name:
        tip = f"Where a table has an alias, the hint uses it: {by_name[0]!r}."
    elif here:
        tip = nearest(hint.table, here)
    else:
        tip = (
            "The block has no lookup join: a lookup table is the right side of a JOIN, created WITH"
            " ('connector' = ...)."
        )
    return Problem(message, hint.places.get("table", hint.at), tip)
