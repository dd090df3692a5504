"""Which lookup join a LOOKUP hint is about."""

from __future__ import annotations

from collections.abc import Iterator

from lookup_hints.errors import HintError, Problem, nearest
from lookup_hints.hints.parse import LookupHint, merged
from lookup_hints.plan.draft import Draft
from lookup_hints.plan.read.statement import LookupUse


def match_hints(draft: Draft) -> Draft:
    """Each hint goes to the lookup join of its query block that it names; one that names none is an error."""
    problems = [
        _unmatched(hint, draft)
        for hint in draft.hints
        if not any(_names(draft, hint, use) or _is_inside(hint, use) for use in _hintable(draft))
    ]
    if problems:
        raise HintError(problems)

    return draft.each_join(lambda join: join.with_(hint=hint_of(draft, join.use)))


def _hintable(draft: Draft) -> Iterator[LookupUse]:
    """The uses that hints may be about: lookup joins, and what is read because the user lets it be."""
    yield from (join.use for join in draft.joins)
    yield from draft.decided
    for scan in draft.scans:
        hint = hint_of(draft, scan.use)
        if hint is not None and hint.options.get("access") in ("scan", "auto"):
            yield scan.use


def hint_of(draft: Draft, use: LookupUse) -> LookupHint | None:
    """What the hints that name the use say together; None where none does."""
    own = merged(hint for hint in draft.hints if _names(draft, hint, use))
    own = own or merged(hint for hint in draft.hints if _is_inside(hint, use))
    return own[0] if own else None


def is_named(draft: Draft, use: LookupUse) -> bool:
    """Whether a hint of its own query block names the use."""
    return any(_names(draft, hint, use) for hint in draft.hints)


def _selects(draft: Draft, use: LookupUse) -> list[int]:
    """Where the SELECTs stand whose hints may be about the use: those of its query block."""
    return [draft.offset_of(index) for index in use.block.selects]


def _is_inside(hint: LookupHint, use: LookupUse) -> bool:
    """Whether the hint stands in the query through which the table is seen, and names the table there."""
    return use.through is not None and (hint.select, hint.table.lower()) in use.through.hinted


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
