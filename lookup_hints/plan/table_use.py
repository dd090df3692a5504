"""One use of a lookup table, with what is known of it before any decision; and how it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lookup_hints.errors import Problem, UnsupportedLookup, counted
from lookup_hints.hints.hint_comments import LookupHint, merged
from lookup_hints.plan.key_casts import is_key_type
from lookup_hints.plan.key_conditions import ColumnNames, KeyEquality
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.name_resolution import NameScope
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.scopes import Scopes
from lookup_hints.plan.session_interface import Context
from lookup_hints.spi import Connector, NullSafeLookup
from lookup_hints.spi.arrow_types import type_name
from lookup_hints.spi.connector import why_not_read
from lookup_hints.spi.lookup_options import AUTO, LOOKUP, LOOKUP_OPTIONS, options_of_table
from lookup_hints.spi.multiple_match import ALL, multiple_match_of
from lookup_hints.spi.option_values import InForce, Place, in_force
from lookup_hints.sql.text_edits import Cut

_OPTIONS = {option.key: option for option in LOOKUP_OPTIONS}


@dataclass(frozen=True, eq=False, kw_only=True)
class TableUse(LookupUse):
    """A use of a lookup table with its connector, hint, options, column names and possible keys.

    Nothing here depends on the join that it becomes. Each fact is computed on first use and kept.

    Args:
        statement: the statement.
        context: its session.
        hints: all hints of the statement.
        scopes: the names visible in its blocks.
    """

    statement: Statement = field(repr=False)
    context: Context = field(repr=False)
    hints: tuple[LookupHint, ...] = field(repr=False)
    scopes: Scopes = field(repr=False)

    # --- hints and options -------------------------------------------------------------------------

    @cached_property
    def hint(self) -> LookupHint | None:
        """All hints that name the use, merged into one; None if there are none."""
        own = merged(hint for hint in self.hints if self.is_named_by(hint))
        own = own or merged(hint for hint in self.hints if self.is_named_inside_by(hint))
        return own[0] if own else None

    @property
    def is_named(self) -> bool:
        """Whether a hint of its own query block names the use."""
        return any(self.is_named_by(hint) for hint in self.hints)

    def is_named_by(self, hint: LookupHint) -> bool:
        """Whether the hint is in the query block of the use, and names it."""
        return hint.scope in ((select, self.alias.lower()) for select in self.selects)

    def is_meant_by(self, hint: LookupHint) -> bool:
        """Whether the hint is in the query block of the use, and names it, or its table by mistake."""
        names = (self.alias.lower(), self.table.name.lower())
        return any(hint.scope == (select, name) for select in self.selects for name in names)

    def is_named_inside_by(self, hint: LookupHint) -> bool:
        """Whether the hint is in the query through which the table is seen, and names the table there."""
        return self.through is not None and hint.scope in self.through.hinted

    @property
    def selects(self) -> list[int]:
        """Offsets of the SELECTs whose hints may name the use: those of its query block."""
        return [self.statement.pieces[index].start for index in self.block.selects]

    @cached_property
    def _given_options(self) -> Mapping[Place, Mapping[str, Any]]:
        hint = {} if self.hint is None else self.hint.options
        return {Place.HINT: hint, Place.TABLE: options_of_table(self.table)}

    def value_of(self, key: str) -> InForce:
        """The value in force of a lookup option.

        Raises:
            OptionError: the table or the session gives a bad value.
        """
        return in_force(_OPTIONS[key], self.context.conf, self._given_options)

    @cached_property
    def requested_access(self) -> InForce:
        """``lookup``, ``scan`` or ``auto``: a LOOKUP hint that says nothing of it wants a lookup."""
        requested = self.value_of("access")
        if requested.value is not None:
            return requested
        return InForce(LOOKUP, Place.HINT) if self.hint is not None else InForce(AUTO)

    @property
    def must_be_asked(self) -> bool:
        """Whether a hint or the table requires a lookup by key; the session's setting does not count."""
        requested = self.requested_access
        return requested.value == LOOKUP and requested.source is not Place.SESSION

    @property
    def may_be_read(self) -> bool:
        """Whether the table can be read whole, and neither hint nor table requires a lookup by key."""
        return self.can_be_read and not self.must_be_asked

    @property
    def can_be_read(self) -> bool:
        """Whether its connector gives all rows, and no moment chooses among them."""
        return not why_not_read(self.connector) and self.versions is None

    # --- possible keys -----------------------------------------------------------------------------

    @cached_property
    def connector(self) -> Connector:
        """The connector of its table, built and checked."""
        return self.context.connector(self.base)

    @cached_property
    def askable(self) -> frozenset[str]:
        """The columns that can be keys.

        Where one row of a primary key counts, all its rows must be seen: no other column may narrow them.
        """
        typed = {each.name for each in self.connector.table.schema if is_key_type(type_name(each.type))}
        if multiple_match_of(self.base) != ALL:
            typed &= set(self.base.primary_key)
        return self.named(self.connector.key_columns() & typed)

    @cached_property
    def _asked_by_null(self) -> frozenset[str]:
        """The columns by which the source can be asked for NULL."""
        connector = self.connector
        if not isinstance(connector, NullSafeLookup):
            return frozenset()
        return self.named(frozenset(filter(connector.can_ask_null, connector.table.schema.names)))

    @property
    def always(self) -> frozenset[str]:
        """The columns that belong to the request where the query gives them."""
        return self.named(self.connector.request_columns())

    def missing(self, keys: Iterable[KeyEquality]) -> list[str]:
        """The columns that the source requires as keys, and that ``keys`` lack."""
        missing = self.connector.required_keys() - {self.base_column(key.column) for key in keys}
        return [name for name in self.base.schema.names if name in missing]

    # --- names -------------------------------------------------------------------------------------

    def refuse_aliases(self) -> None:
        """Refuse an alias list of the wrong length, and an alias that Spark would change.

        Raises:
            UnsupportedLookup: it has one.
        """
        here, given = self.statement.tokens.place(self.relation), len(self.column_aliases)
        count = len(self.table.schema.names)
        if given and given != count:
            raise self.cannot_run(here, f"it gives {counted(given, 'name')} to {counted(count, 'column')}")
        if self.scopes.case_sensitive and self.alias != self.alias.lower():
            reason = "with spark.sql.caseSensitive its alias must be in lower case, as Spark makes it so"
            raise self.cannot_run(here, reason)

    @cached_property
    def names(self) -> ColumnNames:
        """The names of the table's columns in its query block.

        Raises:
            UnsupportedLookup: its alias, or its column aliases, are refused.
        """
        self.refuse_aliases()
        # The use holds these names, so they must not hold it.
        inner, block, case_sensitive = self.scopes.inner_names, self.block, self.scopes.case_sensitive
        return ColumnNames(
            table=self.table,
            alias=self.alias,
            columns=self.column_aliases or tuple(self.table.schema.names),
            aliases=self.statement.aliases_in(block, case_sensitive),
            case_sensitive=case_sensitive,
            is_inner=lambda column: inner.is_inner(column, block),
            is_outer=lambda column: inner.is_outer(column, block),
            asked_by_null=self._asked_by_null,
        )

    @property
    def scope(self) -> NameScope:
        """The names visible to conditions inside the FROM of its block."""
        return self.scopes.of_from(self.block)

    # --- refusals ----------------------------------------------------------------------------------

    def refused(self, at: Cut, reason: str, instead: str = "", tip: str = "") -> CannotBeAsked:
        """The error of a lookup join that cannot run, and what to write ``instead``; it may be read."""
        whole = f"{reason}; {instead}" if instead else reason
        return CannotBeAsked(self.cannot_run(at, whole, tip).problems, self, reason)

    def cannot_run(self, at: Cut, reason: str, tip: str = "") -> UnsupportedLookup:
        """The error of a lookup join that cannot run, and whose table cannot be read in its place either."""
        message = f"The lookup join with {self.shown} cannot run: {reason}."
        return UnsupportedLookup(Problem(message, self.statement.span(at), tip))

    def refuse_extra_clauses(self) -> None:
        """Refuse LATERAL, STREAM, samples and the like on the lookup table.

        Raises:
            CannotBeAsked: it has a sample or the like, which is possible when the table is read whole.
            UnsupportedLookup: it has LATERAL or STREAM.
        """
        statement, relation = self.statement, self.relation
        if relation.plain and not relation.lateral:
            return
        problem = Problem(
            f"Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table {self.table.name}:"
            " it is asked by key, not read.",
            statement.span(statement.tokens.place(relation)),
        )
        if statement.tokens.is_word(relation.first, "STREAM", "LATERAL"):
            raise UnsupportedLookup(problem)
        extra = " ".join(extension.of(statement.text) for extension in relation.extensions)
        raise CannotBeAsked(problem, self, f"{' '.join(extra.split())} applies to it")


# A form that cannot ask is no error: the planner reads the table, and Spark joins its rows.
# (docs/decisions/0150)
class CannotBeAsked(UnsupportedLookup):
    """A use of a lookup table cannot be a lookup join; it is read whole instead if its source allows that.

    Args:
        problems: the errors to raise if it cannot be read either.
        use: the place that names its table.
        reason: why it cannot be looked up, in words that follow "because".
    """

    def __init__(self, problems: Sequence[Problem] | Problem, use: TableUse, reason: str) -> None:
        super().__init__(problems)
        self.use, self.reason = use, reason


# A hint that names the table demands a lookup. So the refusal is raised, with what to write instead.
# (docs/decisions/0150)
class NotReadEither(UnsupportedLookup):
    """A lookup table that can be neither looked up nor read here, as reading would give other rows."""
