"""Facts about the lookup tables of one statement, each computed once, before any decision:

names, hints, options, possible keys, and conditions of WHERE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlglot import exp

from lookup_hints.errors import counted
from lookup_hints.hints.hint_comments import LookupHint, merged
from lookup_hints.plan.joins import Form, FoundJoin, cannot_run
from lookup_hints.plan.key_casts import is_key_type
from lookup_hints.plan.key_conditions import (
    ColumnNames,
    Conditions,
    Conjunct,
    KeyEquality,
    chosen_keys,
    implied_equalities,
    key_equality,
    known_conjuncts,
    not_asked,
    sides_of,
)
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.name_resolution import InnerNames, NameScope, Referred
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.query_parts import is_one_query, script_variables
from lookup_hints.plan.parse.statement import Remembering, Statement, once
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analysis, NamesAndTypes
from lookup_hints.plan.views_and_derived_tables import ViewResolver, names_view
from lookup_hints.spi import Connector
from lookup_hints.spi.arrow_types import type_name
from lookup_hints.spi.connector import why_not_read
from lookup_hints.spi.lookup_options import AUTO, LOOKUP, LOOKUP_OPTIONS, options_of_table
from lookup_hints.spi.option_values import InForce, Place, in_force
from lookup_hints.sql.text_edits import Cut

_OPTIONS = {option.key: option for option in LOOKUP_OPTIONS}


class Facts(Remembering):
    """Facts about the lookup tables of one statement that do not depend on which joins they become."""

    def __init__(self, statement: Statement, context: Context, hints: tuple[LookupHint, ...]) -> None:
        """Computes nothing yet; each fact is computed on first use and kept."""
        super().__init__()
        self.statement, self.context, self.hints = statement, context, hints
        # Spark 4.3 and later can run an ASOF JOIN itself, if this setting is on.
        takes_asof = (context.conf("spark.sql.join.asofJoin.enabled") or "false").lower() == "true"
        self.analysis = Analysis(
            statement, context.analyse, script_variables(statement.tokens), takes_asof=takes_asof
        )
        self._views = ViewResolver(statement, context.find_view, self.case_sensitive)
        self.inner_names = InnerNames(statement, self.analysis.columns_of, self.case_sensitive)

    @cached_property
    def output(self) -> NamesAndTypes | None:
        """The output columns of a statement that is one query; None for other statements.

        Raises:
            Exception: the error of Spark's analysis of the user's statement.
        """
        statement = self.statement
        if not is_one_query(statement) or not (
            statement.uses or names_view(statement, self.context.find_view)
        ):
            return None
        return self.analysis.output()

    @cached_property
    def looked_through(self) -> tuple[LookupUse, ...]:
        """The uses that see a lookup table through a derived table, CTE or view."""
        return self._views.uses()

    @cached_property
    def makes_a_view(self) -> bool:
        tokens = self.statement.tokens
        return tokens.is_word(0, "CREATE") and any(tokens.is_word(at, "VIEW") for at in range(1, 6))

    @cached_property
    def makes_view_of_one_table(self) -> bool:
        """Whether the statement creates a view that is one lookup table, and nothing more."""
        return self.makes_a_view and self._views.of_query(self.statement.structure.queries[0]) is not None

    @property
    def case_sensitive(self) -> bool:
        return (self.context.conf("spark.sql.caseSensitive") or "false").lower() == "true"

    def join(
        self,
        form: Form,
        use: LookupUse,
        kind: str,
        at: Cut,
        conditions: Conditions,
        *,
        home: Block | None = None,
        needs: frozenset[Relation] = frozenset(),
        notes: tuple[str, ...] = (),
    ) -> FoundJoin:
        return FoundJoin(
            use=use,
            connector=self.connector(use),
            form=form,
            kind=kind,
            at=at,
            home=home or use.block,
            names=self.names(use),
            conditions=conditions,
            needs=needs,
            notes=notes,
        )

    # --- hints and options -------------------------------------------------------------------------

    def hint_of(self, use: LookupUse) -> LookupHint | None:
        """All hints that name the use, merged into one; None if there are none."""
        own = merged(hint for hint in self.hints if self.names_use(hint, use))
        own = own or merged(hint for hint in self.hints if is_inside(hint, use))
        return own[0] if own else None

    def is_named(self, use: LookupUse) -> bool:
        """Whether a hint of its own query block names the use."""
        return any(self.names_use(hint, use) for hint in self.hints)

    def names_use(self, hint: LookupHint, use: LookupUse) -> bool:
        """Whether the hint is in the query block of the use, and names it."""
        return hint.scope in ((select, use.alias.lower()) for select in self.selects(use))

    def selects(self, use: LookupUse) -> list[int]:
        """Offsets of the SELECTs whose hints may name the use: those of its query block."""
        return [self.statement.pieces[index].start for index in use.block.selects]

    def value_of(self, key: str, use: LookupUse) -> InForce:
        """The value in force of a lookup option for ``use``.

        Raises:
            OptionError: the table or the session gives a bad value.
        """
        hint = self.hint_of(use)
        given = {Place.HINT: {} if hint is None else hint.options, Place.TABLE: options_of_table(use.table)}
        return in_force(_OPTIONS[key], self.context.conf, given)

    def requested_access(self, use: LookupUse) -> InForce:
        """``lookup``, ``scan`` or ``auto``: a LOOKUP hint that says nothing of it wants a lookup."""
        requested = self.value_of("access", use)
        if requested.value is not None:
            return requested
        return InForce(LOOKUP, Place.HINT) if self.hint_of(use) is not None else InForce(AUTO)

    def must_be_asked(self, use: LookupUse) -> bool:
        """Whether a hint or the table requires a lookup by key; the session's setting does not count."""
        requested = self.requested_access(use)
        return requested.value == LOOKUP and requested.source is not Place.SESSION

    def may_be_read(self, use: LookupUse) -> bool:
        """Whether the table can be read whole, and neither hint nor table requires a lookup by key."""
        return self.can_be_read(use) and not self.must_be_asked(use)

    def can_be_read(self, use: LookupUse) -> bool:
        """Whether its connector gives all rows, and no moment chooses among them."""
        return not why_not_read(self.connector(use)) and use.versions is None

    # --- possible keys -----------------------------------------------------------------------------

    @once
    def connector(self, use: LookupUse) -> Connector:
        return self.context.connector(use.base)

    @once
    def askable(self, use: LookupUse) -> frozenset[str]:
        """The columns that can be keys."""
        connector = self.connector(use)
        typed = {each.name for each in connector.table.schema if is_key_type(type_name(each.type))}
        return use.named(connector.key_columns() & typed)

    def always(self, use: LookupUse) -> frozenset[str]:
        """The columns that belong to the request where the query gives them."""
        return use.named(self.connector(use).request_columns())

    def missing(self, use: LookupUse, keys: Iterable[KeyEquality]) -> list[str]:
        """The columns that the source requires as keys, and that ``keys`` lack."""
        missing = self.connector(use).required_keys() - {use.base_column(key.column) for key in keys}
        return [name for name in use.base.schema.names if name in missing]

    # --- names -------------------------------------------------------------------------------------

    @once
    def names(self, use: LookupUse) -> ColumnNames:
        """The names of the table's columns in its query block.

        Raises:
            UnsupportedLookup: an alias list of the wrong length, or an alias that Spark would change.
        """
        statement, count = self.statement, len(use.table.schema.names)
        here = statement.tokens.place(use.relation)
        given = use.column_aliases
        if given and len(given) != count:
            raise cannot_run(
                statement, use, here, f"it gives {counted(len(given), 'name')} to {counted(count, 'column')}"
            )
        if self.case_sensitive and use.alias != use.alias.lower():
            reason = "with spark.sql.caseSensitive its alias must be in lower case, as Spark makes it so"
            raise cannot_run(statement, use, here, reason)
        # The names outlive these facts, and must not hold them.
        inner, case_sensitive = self.inner_names, self.case_sensitive
        return ColumnNames(
            table=use.table,
            alias=use.alias,
            columns=use.column_aliases or tuple(use.table.schema.names),
            aliases=statement.aliases_in(use.block, case_sensitive),
            case_sensitive=case_sensitive,
            is_inner=lambda column: inner.is_inner(column, use.block),
            is_outer=lambda column: inner.is_outer(column, use.block),
        )

    @once
    def scope(self, block: Block) -> NameScope:
        """The names visible to conditions inside the FROM of the block."""
        return NameScope(self.inner_names, block, block.relations)

    @once
    def shown_scope(self, block: Block) -> NameScope:
        """The names visible to the WHERE of the block."""
        return NameScope(self.inner_names, block, block.shown)

    def referred(self, scope: NameScope, equality: KeyEquality) -> Referred:
        tree = self.statement.expression(equality.left)
        return Referred(frozenset()) if tree is None else scope.referred(tree)

    def may_name(self, lateral: Relation, relation: Relation) -> bool:
        """Whether ``lateral`` contains the name of ``relation``, or an unqualified one of its columns.

        True if its columns are not known.
        """
        columns, tokens = self.analysis.columns_of(relation), self.statement.tokens
        if columns is None:
            return True
        alias = self.statement.alias_of(relation) or ""
        bare = (at for name in columns for at in tokens.places(name, lateral.first, lateral.last))
        return any(not tokens.is_symbol(at - 1, ".") for at in bare) or any(
            True for _ in tokens.places(alias, lateral.first, lateral.last)
        )

    # --- WHERE -------------------------------------------------------------------------------------

    def with_where(self, use: LookupUse, conditions: Conditions, right: Relation | None = None) -> Conditions:
        """``conditions`` plus the equalities of WHERE, which in an INNER join mean the same as in ON.

        Only equalities with relations before ``use`` count, or with ``right`` if the sides are swapped.
        Constants count for columns that belong to every request, and where nothing else gives a key.
        """
        keys = {key.column: key for key in conditions.keys}
        wanted = {*use.table.primary_key, *self.always(use)}
        if use.table.primary_key and wanted <= keys.keys():
            return conditions
        equalities = list(self.where_equalities(use))
        if not equalities:
            return conditions
        left = use.chain.before(use.relation) if use.chain is not None else []
        before = frozenset(left if right is None else right.as_seen(lambda _: True))
        for equality, referred in equalities:
            is_usable = bool(referred.relations) and referred.relations <= before and not referred.outer
            is_usable = is_usable or (equality.constant and equality.column in self.always(use))
            if is_usable and equality.column not in keys:
                keys[equality.column] = equality
        if not keys:
            # Beside other keys a constant in WHERE is a filter: it must not turn a found row into a miss.
            keys = {equality.column: equality for equality, _ in equalities if equality.constant}
        chosen = chosen_keys(keys.values(), use.table, self.always(use))
        residual = not_asked(self.statement, conditions.keys, chosen)
        return replace(conditions, keys=chosen, residual=(*conditions.residual, *residual))

    def where_equalities(self, use: LookupUse) -> Iterator[tuple[KeyEquality, Referred]]:
        """The key equalities in the WHERE of the block, and the names in their left sides."""
        if use.relation not in self.shown_scope(use.block).relations or not use.may_be_narrowed:
            return
        names, scope = self.names(use), self.shown_scope(use.block)
        is_piped = not use.block.wheres
        for conjunct in self._where_about(use):
            equality = key_equality(self.statement, conjunct, names)
            equalities = [replace(equality, kept=True)] if equality is not None else []
            for each in equalities or implied_equalities(self.statement, conjunct, names):
                if each.column not in self.askable(use) or is_random(conjunct.tree):
                    continue
                referred = self.referred(scope, each)
                # Below a pipe operator Spark lets no generator name the outer query.
                if not (is_piped and referred.outer):
                    yield each, referred

    def _where_about(self, use: LookupUse) -> Iterator[Conjunct]:
        """The conjuncts of WHERE that may hold a key of ``use``, but for equalities of other relations."""
        by_alias = self._where_by_alias(use.block)
        about = {**dict(by_alias.get("", ())), **dict(by_alias.get(use.alias.lower(), ()))}
        yield from (about[number] for number in sorted(about))

    @once
    def _where_by_alias(self, block: Block) -> dict[str, list[tuple[int, Conjunct]]]:
        """The conjuncts of WHERE by the aliases that an equality compares, in lower case; "" for others."""
        found, aliases = dict[str, list[tuple[int, Conjunct]]](), self.statement.aliases_in(block)
        for number, conjunct in enumerate(self.statement.once(where_of, block)):
            sides = self.statement.once(sides_of, conjunct.at)
            trees = [side.tree.unnest() for side in sides] if sides is not None else []
            columns = [tree for tree in trees if isinstance(tree, exp.Column)]
            names = {column.parts[0].name.lower() if len(column.parts) > 1 else "" for column in columns}
            for alias in {name if name in aliases else "" for name in names} or {""}:
                found.setdefault(alias, []).append((number, conjunct))
        return found


def is_inside(hint: LookupHint, use: LookupUse) -> bool:
    """Whether the hint is in the query through which the table is seen, and names the table there."""
    return use.through is not None and hint.scope in use.through.hinted


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


_RANDOM = (
    *("RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "MONOTONICALLY_INCREASING_ID"),
    *("SPARK_PARTITION_ID", "INPUT_FILE_NAME"),
)


def is_random(tree: exp.Expr) -> bool:
    """Whether it gives something else each time, so that it cannot be a key and be checked again."""
    calls = tree.find_all(exp.Func)
    return any(
        (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).upper() in _RANDOM
        for call in calls
    )


@dataclass
class OtherUses:
    """What has been decided about the other relations of the statement.

    Args:
        read: lookup tables that are read whole.
        asked_through: derived tables, CTEs and views known to be looked up by key.
        waiting: relations that still lack keys, and so cannot give keys to others yet.
        tied: for each block the relations that can give no keys; filled on demand.
    """

    read: set[Relation]
    asked_through: set[Relation] = field(default_factory=set)
    waiting: set[Relation] = field(default_factory=set)
    tied: dict[Block, set[Relation]] = field(default_factory=dict)

    def may_be_asked(self, facts: Facts, relation: Relation) -> bool:
        """Whether the relation is a lookup table that is not sure to be read, or one seen through a query."""
        is_table = facts.statement.table_of(relation) is not None
        return relation in self.asked_through or (is_table and relation not in self.read)
