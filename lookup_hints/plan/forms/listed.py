"""``FROM c WHERE c.id IN (1, 2, 3)``: a relation that is the rows of several constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from lookup_hints.plan.alternatives import Alternative, alternatives, are_alike, combined
from lookup_hints.plan.analysis import LeftSide, selected_instead
from lookup_hints.plan.conditions import Conditions, KeyEquality
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.forms.asked import AskedRelation
from lookup_hints.plan.forms.facts import Facts, where_of
from lookup_hints.plan.keys import KeyCast
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Relation
from lookup_hints.plan.write.views import Text, joined, source_query
from lookup_hints.sql.splice import Cut, Edit, Fragment

_KEYS = "`__lookup_keys`"
_KEY = "`__lookup_key`"


@dataclass(frozen=True)
class ListedRelation(LookupJoin):
    """A relation that is the rows of a list of keys; the conditions that give them stay where they are.

    Args:
        listed: the constants of each key column, those of one key at the same place.
    """

    listed: tuple[tuple[Cut, ...], ...] = ()

    form: ClassVar[str] = "asked for a list of constants"

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, waiting: set[Relation]) -> ListedRelation | None:
        """The relation whose rows WHERE narrows to those of several constants, or None."""
        if not use.relation.plain or not facts.may_be_listed(use):
            return None
        every = _alternatives(facts, use)
        columns = [name for name in use.table.schema.names if name in every[0]]
        listed = tuple(tuple(each[column] for each in every) for column in columns)
        if len(every) < 2 or not all(are_alike(facts.statement, each) for each in listed):
            return None
        keys = tuple(_key(facts, *each) for each in zip(columns, listed, strict=True))
        asked = AskedRelation.found(facts, use, waiting)
        is_asked_from_outside = asked is not None and not all(key.constant for key in asked.conditions.keys)
        if facts.missing(use, keys) or is_asked_from_outside:
            return None
        at = facts.statement.tokens.cut(use.relation.first, use.relation.last)
        return facts.join(cls, use, "INNER", at, Conditions(keys)).with_(listed=listed)

    def left_side(self, statement: Statement) -> LeftSide:
        return LeftSide(None)

    def asked_for(self, key: KeyEquality) -> Fragment:
        """How many constants there are."""
        return f"one of {len(self.listed[0])} constants"

    def edits(self, draft: Draft, numbers: Iterator[int]) -> Iterator[Edit]:
        """The relation as a query over the rows of its keys."""
        statement, relation = draft.statement, self.use.relation
        at = statement.tokens.cut(relation.first, relation.last)
        yield Edit(at, source_query(statement, self._by_number, self._rows))
        yield from selected_instead(statement, self.use)

    @property
    def _rows(self) -> Text:
        """The FROM that gives each key once, in one row each of one partition."""
        columns = joined(
            [_values(listed, cast) for listed, cast in zip(self.listed, self.casts, strict=True)], ", "
        )
        return (" FROM (SELECT explode(array_distinct(arrays_zip(", *columns, f"))) AS {_KEYS})")

    @property
    def _by_number(self) -> ListedRelation:
        """It with the keys of those rows, which have their column's type already."""
        keys = (replace(key, left=f"{_KEYS}.`{number}`") for number, key in enumerate(self.conditions.keys))
        casts = tuple(KeyCast(wrapping=cast.wrapping) for cast in self.casts)
        return self.with_(conditions=replace(self.conditions, keys=tuple(keys)), casts=casts)


def _alternatives(facts: Facts, use: LookupUse) -> list[Alternative]:
    """What WHERE says of the columns that are asked by: those of the primary key alone where it has them."""
    if use.relation not in facts.shown_scope(use.block).relations or not use.may_be_narrowed:
        return [{}]
    names, askable = facts.names(use), facts.askable(use) - _inexact(use)
    conditions = facts.statement.once(where_of, use.block)
    found = (alternatives(facts.statement, each, names) for each in conditions)
    every = [_only(each, askable) for each in found if each]
    key = set(use.table.primary_key)
    if key and key <= {column for each in every for column in each[0]}:
        every = [_only(each, frozenset(key | facts.always(use))) for each in every]
    return combined(each for each in every if each[0])


def _only(every: Sequence[Alternative], columns: frozenset[str]) -> list[Alternative]:
    return [{column: value for column, value in each.items() if column in columns} for each in every]


def _inexact(use: LookupUse) -> frozenset[str]:
    """The columns of floating point numbers, two of which may be equal and look different."""
    return frozenset(column.name for column in use.table.schema if pa.types.is_floating(column.type))


def _key(facts: Facts, column: str, listed: Sequence[Cut]) -> KeyEquality:
    texts = (" ".join(each.of(facts.statement.text).split()) for each in listed)
    left = f"element_at(array({', '.join(dict.fromkeys(texts))}), 1)"
    return KeyEquality(column, left, listed[0], constant=True, kept=True)


def _values(listed: Sequence[Cut], cast: KeyCast) -> Text:
    """The array of the constants as values of their column's type."""
    before, after = replace(cast, wrapping=("", "")).prefix_and_suffix()
    array: Text = ("array(", *joined([(each,) for each in listed], ", "), ")")
    return ("transform(", *array, f", {_KEY} -> {before}{_KEY}{after})") if before or after else array
