"""Every use of a lookup table -> a lookup join, a scan of the whole table, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.analysis import Analysis
from lookup_hints.plan.conditions import (
    Conditions,
    Conjunct,
    KeyEquality,
    Names,
    chosen_keys,
    conjuncts,
    has_condition_subquery,
    implied_equalities,
    key_equality,
    not_asked,
    references,
    sides_of,
    sorted_conditions,
)
from lookup_hints.plan.draft import Context, LookupJoin, Place
from lookup_hints.plan.keys import is_key_type
from lookup_hints.plan.membership import Membership, membership
from lookup_hints.plan.read.scope import InnerNames, Referred, Scope
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Block, Relation, Role, Step
from lookup_hints.plan.times import check_time
from lookup_hints.spi import Connector, Scan
from lookup_hints.spi.types import sql_type
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Cut

_KINDS = {
    (): "INNER",
    ("INNER",): "INNER",
    ("CROSS",): "INNER",
    ("LEFT",): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
    ("SEMI",): "LEFT SEMI",
    ("LEFT", "SEMI"): "LEFT SEMI",
    ("ANTI",): "LEFT ANTI",
    ("LEFT", "ANTI"): "LEFT ANTI",
}
_SWAPPED_KINDS = {
    **dict.fromkeys(((), ("INNER",), ("CROSS",)), "INNER"),
    ("RIGHT",): "LEFT",
    ("RIGHT", "OUTER"): "LEFT",
}
_REFUSED_KINDS = {
    "RIGHT": "a RIGHT JOIN needs every row of the lookup table; write LEFT JOIN with the sides swapped",
    "FULL": "a FULL JOIN needs every row of the lookup table; write LEFT JOIN",
}


@dataclass(frozen=True)
class Found:
    """The lookup joins of a statement, and the uses that read the whole table."""

    joins: tuple[LookupJoin, ...]
    scans: tuple[LookupUse, ...]


def find_lookups(statement: Statement, context: Context, analysis: Analysis) -> Found:
    """What each use of a lookup table is.

    Raises:
        UnsupportedLookup: a lookup table stands where it can neither be asked nor read; says why.
    """
    return _Finder(statement, context, analysis).find()


def refused(statement: Statement, use: LookupUse, at: Cut, reason: str) -> UnsupportedLookup:
    """The error of a lookup join that cannot run."""
    message = f"The lookup join with {use.alias} cannot run: {reason}."
    return UnsupportedLookup(Problem(message, statement.span(at)))


class _Finder:
    def __init__(self, statement: Statement, context: Context, analysis: Analysis) -> None:
        self._statement, self._context, self._analysis = statement, context, analysis
        self._joins: list[LookupJoin] = []
        self._scans: list[LookupUse] = []
        self._scopes: dict[Block, Scope] = {}
        self._shown_scopes: dict[Block, Scope] = {}
        self._wheres: dict[Block, dict[str, list[tuple[int, Conjunct]]]] = {}
        self._whys: dict[Relation, UnsupportedLookup] = {}
        self._inner_names = InnerNames(statement, analysis.columns_of, context.case_sensitive)

    def find(self) -> Found:
        """Joins and scans, in the order of the text."""
        heads: dict[int, list[LookupUse]] = {}
        for use in self._statement.uses:
            check_time(self._statement, use)
            if use.step is not None:
                self._joins.append(self._explicit(use, use.step))
            elif (join := self._condition(use)) is not None:
                self._joins.append(join)
            else:
                heads.setdefault(id(use.block), []).append(use)
        for uses in heads.values():
            self._find_heads(uses)
        by_place = sorted(self._joins, key=lambda join: join.use.index)
        return Found(tuple(by_place), tuple(sorted(self._scans, key=lambda use: use.index)))

    # --- the right side of a join ------------------------------------------------------------------

    def _explicit(self, use: LookupUse, step: Step) -> LookupJoin:
        tokens = self._statement.tokens
        head = tokens.cut(step.first, use.relation.last)
        self._refuse_extra_clauses(use)
        for word, reason in _REFUSED_KINDS.items():
            if word in step.words:
                raise refused(self._statement, use, head, reason)
        natural = step.words[:1] == ("NATURAL",)
        kind = _KINDS.get(step.words[1:] if natural else step.words)
        if kind is None:
            raise refused(self._statement, use, head, f"{' '.join(step.words)} JOIN is not a join type")
        shared = self._shared_columns(use, step, natural)
        conditions = sorted_conditions(
            self._statement,
            conjuncts(self._statement, step.on) if step.on is not None else (),
            self._names(use),
            self._askable(use),
            [self._shared_key(use, each, number) for number, each in enumerate(shared)],
            self._always(use),
        )
        if kind == "INNER" and not shared:
            conditions = self._with_where(use, conditions)
        place = Place.STEP if use.pipe is None else Place.PIPE
        join = self._join(use, kind, place, tokens.cut(step.first, step.last), conditions)
        if not conditions.keys:
            raise self._no_key(join, step)
        self._refuse_missing(join)
        outer = self._asked_from_outside(use, conditions.keys)
        if outer:
            return join.with_(
                place=Place.SOURCE, conditions=Conditions(_answered(outer)), notes=_asked_by(outer)
            )
        possible = self._possible(self._without_outer(join))
        return join.with_(conditions=possible, needs=self._before_comma(use, possible))

    def _before_comma(self, use: LookupUse, conditions: Conditions) -> frozenset[Relation]:
        """The relations before a comma that the chain so far names: a comma binds as a JOIN does in Spark."""
        source = use.block.source
        if source is None or use.chain is None or use.chain not in source.chains[1:]:
            return frozenset()
        chains = source.chains[: source.chains.index(use.chain)]
        before = {relation for chain in chains for relation in chain.shown}
        scope, expression = self._scope(use.block), self._statement.expression
        steps = use.chain.steps[: use.chain.steps.index(use.step) + 1] if use.step is not None else ()
        computed = [each for each in use.chain.everything if each.lateral and each.first < use.index]
        stated = (expression(step.on) for step in steps if step.on is not None)
        referred = [scope.referred(tree) for tree in stated if tree is not None]
        referred += [self._referred(scope, key) for key in conditions.keys if not key.shared]
        named = {relation for relation in before for each in computed if self._may_name(each, relation)}
        return frozenset(before & named.union(*(each.relations for each in referred)))

    def _join(self, use: LookupUse, kind: str, place: Place, at: Cut, conditions: Conditions) -> LookupJoin:
        """The lookup join of ``use`` with the rows of its own block."""
        return LookupJoin(
            use=use,
            connector=self._context.connector(use.table),
            kind=kind,
            place=place,
            at=at,
            home=use.block,
            names=self._names(use),
            conditions=conditions,
        )

    def _without_outer(self, join: LookupJoin) -> LookupJoin:
        """``join`` without conditions that name an outer query: they are checked on its result."""
        if join.home.query.outer is None:
            return join
        scope, conditions = self._scope(join.home), join.conditions
        outer_keys = [key for key in conditions.keys if self._referred(scope, key).outer]
        outer = [
            conjunct
            for conjunct in (*conditions.residual, *conditions.left_only)
            if scope.referred(conjunct.tree).outer
        ]
        trees = ((key.whole, self._statement.expression(key.whole)) for key in outer_keys)
        outer += [Conjunct(at, tree) for at, tree in trees if tree is not None]
        if not outer:
            return join
        if join.kind != "INNER" or join.place is not Place.STEP:
            reason = "its ON condition names the outer query, which Spark allows in an INNER JOIN only"
            raise refused(self._statement, join.use, join.at, reason)
        kept = replace(
            conditions,
            keys=tuple(key for key in conditions.keys if key not in outer_keys),
            residual=tuple(each for each in conditions.residual if each not in outer),
            left_only=tuple(each for each in conditions.left_only if each not in outer),
            after=(*conditions.after, *outer),
        )
        return join.with_(conditions=kept)

    def _refuse_extra_clauses(self, use: LookupUse) -> None:
        relation = use.relation
        if relation.plain and not relation.lateral:
            return
        raise UnsupportedLookup(
            Problem(
                f"Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table {use.table.name}:"
                " it is asked by key, not read.",
                self._statement.span_of(relation),
            )
        )

    def _shared_columns(self, use: LookupUse, step: Step, natural: bool) -> list[int | str]:
        """What USING names (by index), or what both sides of a NATURAL join have (by name)."""
        if not natural:
            return list(step.using)
        left = self._analysis.columns_before(use)
        own = {name.lower() for name in use.column_aliases or use.table.schema.names}
        shared: list[int | str] = [name for name in left or () if name.lower() in own]
        if not shared:
            at = self._statement.tokens.cut(step.first, use.relation.last)
            raise refused(
                self._statement,
                use,
                at,
                "NATURAL JOIN finds no column of the same name; write JOIN ... ON with the equality",
            )
        return shared

    def _shared_key(self, use: LookupUse, shared: int | str, position: int) -> KeyEquality:
        tokens, names = self._statement.tokens, self._names(use)
        assert use.step is not None
        name = shared if isinstance(shared, str) else tokens.pieces[shared].name
        at = tokens.cut(use.step.first, use.relation.last)
        if isinstance(shared, int):
            at = tokens.cut(shared, shared)
        column = names.own_name(name)
        if column is None or column not in self._askable(use):
            raise refused(self._statement, use, at, f"{use.alias} cannot be looked up by column {name}")
        left = quoted(name) if isinstance(shared, str) else at
        return KeyEquality(column, left, at, shared=True, position=position)

    def _with_where(
        self, use: LookupUse, conditions: Conditions, right: Relation | None = None
    ) -> Conditions:
        """``conditions`` with the equalities of WHERE, which count as those of ON in an INNER join.

        What they name stands before ``use``, or is ``right`` where the sides are swapped.
        """
        keys = {key.column: key for key in conditions.keys}
        wanted = {*use.table.primary_key, *self._always(use)}
        if use.table.primary_key and wanted <= keys.keys():
            return conditions
        equalities = list(self._where_equalities(use))
        if not equalities:
            return conditions
        left = use.chain.before(use.relation) if use.chain is not None else []
        before = frozenset(left if right is None else right.as_seen(lambda _: True))
        for equality, referred in equalities:
            is_usable = bool(referred.relations) and referred.relations <= before and not referred.outer
            is_usable = is_usable or (equality.constant and equality.column in self._always(use))
            if is_usable and equality.column not in keys:
                keys[equality.column] = equality
        if not keys:
            # A constant in WHERE is no key beside others: a filter must not decide what is a miss.
            keys = {equality.column: equality for equality, _ in equalities if equality.constant}
        chosen = chosen_keys(keys.values(), use.table, self._always(use))
        residual = not_asked(self._statement, conditions.keys, chosen)
        return replace(conditions, keys=chosen, residual=(*conditions.residual, *residual))

    def _where_equalities(self, use: LookupUse) -> Iterator[tuple[KeyEquality, Referred]]:
        """The key equalities that stand in the WHERE of the block, and what their left sides name."""
        if use.relation not in self._shown_scope(use.block).relations:
            return
        names, scope = self._names(use), self._shown_scope(use.block)
        is_piped = not use.block.wheres
        for conjunct in self._where_about(use):
            equality = key_equality(self._statement, conjunct, names)
            equalities = [replace(equality, kept=True)] if equality is not None else []
            for each in equalities or implied_equalities(self._statement, conjunct, names):
                if each.column not in self._askable(use) or _is_random(conjunct.tree):
                    continue
                referred = self._referred(scope, each)
                # Below a pipe operator Spark lets no generator name the outer query.
                if not (is_piped and referred.outer):
                    yield each, referred

    def _where_about(self, use: LookupUse) -> Iterator[Conjunct]:
        """The conjuncts of WHERE that may hold a key of ``use``, but for equalities of other relations."""
        if use.block not in self._wheres:
            found: dict[str, list[tuple[int, Conjunct]]] = {}
            for number, conjunct in enumerate(self._statement.once(_where, use.block)):
                for alias in self._compared(use.block, conjunct):
                    found.setdefault(alias, []).append((number, conjunct))
            self._wheres[use.block] = found
        by_alias = self._wheres[use.block]
        about = {**dict(by_alias.get("", ())), **dict(by_alias.get(use.alias.lower(), ()))}
        yield from (about[number] for number in sorted(about))

    def _compared(self, block: Block, conjunct: Conjunct) -> set[str]:
        """The aliases, in lower case, of the columns that an equality compares; "" for anything else."""
        aliases = self._statement.aliases_in(block)
        sides = self._statement.once(sides_of, conjunct.at)
        trees = [side.tree.unnest() for side in sides] if sides is not None else []
        columns = [tree for tree in trees if isinstance(tree, exp.Column)]
        names = {column.parts[0].name.lower() if len(column.parts) > 1 else "" for column in columns}
        return {name if name in aliases else "" for name in names} or {""}

    def _always(self, use: LookupUse) -> frozenset[str]:
        return self._context.connector(use.table).request_columns()

    def _missing(self, use: LookupUse, keys: Iterable[KeyEquality]) -> list[str]:
        """The columns without which the source cannot be asked, and which ``keys`` do not give."""
        missing = self._context.connector(use.table).required_keys() - {key.column for key in keys}
        return [name for name in use.table.schema.names if name in missing]

    def _refuse_missing(self, join: LookupJoin) -> None:
        names = self._missing(join.use, join.conditions.keys)
        if not names:
            return
        equalities = " and ".join(f"{join.use.alias}.{name} = ..." for name in names)
        step = join.use.step
        at = step.on if step is not None and step.on is not None else join.at
        raise UnsupportedLookup(
            Problem(
                f"The lookup join with {join.use.alias} cannot ask its source without {' and '.join(names)}.",
                self._statement.span(at),
                f"Add {equalities} to the condition.",
            )
        )

    def _asked_from_outside(self, use: LookupUse, keys: Iterable[KeyEquality]) -> tuple[KeyEquality, ...]:
        """The keys that only the outer query (or a constant) gives; empty where the left side gives one."""
        if use.block.query.outer is None:
            return ()
        scope = self._scope(use.block)
        by_scope = [(key, self._referred(scope, key)) for key in keys]
        if any(referred.relations for _, referred in by_scope):
            return ()
        return tuple(keys) if any(referred.outer for _, referred in by_scope) else ()

    def _possible(self, join: LookupJoin) -> Conditions:
        """The conditions of a join, those that cannot stand where they should moved or refused."""
        conditions = join.conditions
        all_awkward = bool(self._queried(conditions.keys))
        awkward = [each for each in conditions.residual if all_awkward or _is_awkward(each.tree)]
        hard = [each for each in conditions.left_only if has_condition_subquery(each.tree)]
        for conjunct in awkward:
            self._refuse_both_sides(join, conjunct)
        kept = replace(
            conditions,
            residual=tuple(each for each in conditions.residual if each not in awkward),
            left_only=tuple(each for each in conditions.left_only if each not in hard),
        )
        if join.kind == "INNER" and join.place is not Place.PIPE:
            return replace(kept, after=(*conditions.after, *awkward, *hard))
        if join.is_semi and join.place is Place.STEP:
            return replace(kept, after=tuple(hard), queries=tuple(awkward))
        # In pipes a lambda pads what a LEFT JOIN finds.
        is_padded = join.kind == "LEFT" and join.place is Place.PIPE
        all_hard = self._queried(conditions.keys) if is_padded else []
        for conjunct in (
            *(each for each in awkward if all_awkward or each.tree.find(exp.Query)),
            *hard,
            *all_hard,
        ):
            raise self._subquery(join, conjunct)
        return conditions

    def _queried(self, keys: Iterable[KeyEquality]) -> list[Conjunct]:
        """The keys that a query gives: Spark takes none in the call whose rows a lambda looks at."""
        trees = ((key, self._statement.expression(key.left)) for key in keys if isinstance(key.left, Cut))
        return [Conjunct(key.whole, tree) for key, tree in trees if tree is not None and tree.find(exp.Query)]

    def _refuse_both_sides(self, join: LookupJoin, conjunct: Conjunct) -> None:
        """Refuse what Spark refuses when it optimizes: an IN or EXISTS of ON that names both sides."""
        scope = self._scope(join.home)
        for found in conjunct.tree.find_all(exp.Exists, exp.In):
            names_table = any(True for _ in references(found, join.names))
            others = scope.referred(found).relations - {join.use.relation}
            if found.find(exp.Query) and names_table and others:
                reason = "an IN or EXISTS in its ON condition names both sides, which Spark does not take"
                raise UnsupportedLookup(
                    Problem(
                        f"The lookup join with {join.use.alias} cannot run: {reason}.",
                        self._statement.span(conjunct.at),
                        "Move it to WHERE." if join.kind == "INNER" else "",
                    )
                )

    def _subquery(self, join: LookupJoin, conjunct: Conjunct) -> UnsupportedLookup:
        tip = "Move it to WHERE." if join.kind == "INNER" else "Compute it in a subquery on the left first."
        return UnsupportedLookup(
            Problem(
                f"The lookup join with {join.use.alias} cannot run: a subquery stands in its ON condition.",
                self._statement.span(conjunct.at),
                tip,
            )
        )

    def _no_key(self, join: LookupJoin, step: Step) -> UnsupportedLookup:
        statement, use = self._statement, join.use
        if step.on is None:
            head = statement.tokens.cut(step.first, use.relation.last)
            is_cross = "CROSS" in step.words
            return refused(
                statement,
                use,
                head,
                "a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality"
                if is_cross
                else "it has no ON condition, so nothing says which rows to ask for",
            )
        can = ", ".join(name for name in use.table.schema.names if name in self._askable(use))
        return UnsupportedLookup(
            Problem(
                f"The lookup join with {use.alias} has no key: no equality between an expression of the left"
                " side and a column that can be asked by.",
                statement.span(step.on),
                f"Columns that can be asked by: {can}.",
            )
        )

    # --- EXISTS and IN -----------------------------------------------------------------------------

    def _condition(self, use: LookupUse) -> LookupJoin | None:
        """The semi or anti join that an EXISTS or IN over the lookup table is, or None."""
        parent = use.block.query.parent
        if parent is None or use.block.query.role is not Role.EXPRESSION or parent.source is None:
            return None
        where = self._statement.once(_where, parent)
        found = membership(self._statement, use, where, self._names(use))
        if found is None or not use.relation.plain:
            return None
        inner = list(conjuncts(self._statement, use.block.wheres[0])) if use.block.wheres else []
        askable = self._askable(use)
        given = [key for key in found.keys if key.column in askable]
        conditions = sorted_conditions(
            self._statement, inner, self._names(use), askable, given, self._always(use)
        )
        if len(given) < len(found.keys) or not conditions.keys or self._missing(use, conditions.keys):
            return None
        checked = [*conditions.residual, *conditions.left_only]
        if checked and self._queried(conditions.keys):
            return None
        if any(_is_awkward(each.tree) for each in checked) or _is_random(found.tree):
            return None
        why_not = self._three_values(use, found)
        if why_not is not None:
            self._whys[use.relation] = why_not
            return None
        kind = "LEFT ANTI" if found.negated else "LEFT SEMI"
        return self._join(use, kind, Place.CONDITION, found.at, conditions).with_(home=parent)

    def _three_values(self, use: LookupUse, found: Membership) -> UnsupportedLookup | None:
        """Why a NOT IN is no anti join: it is one only where neither side can be NULL."""
        if not found.negated or not found.keys:
            return None
        key = found.keys[0]
        is_plain = len(found.keys) == 1 and key.column in use.table.primary_key
        if is_plain and found.left_is_not_null:
            return None
        return UnsupportedLookup(
            Problem(
                f"NOT IN over the lookup table {use.table.name} cannot run: where either side may be NULL it"
                " needs the whole table.",
                self._statement.span(found.at),
                "Write NOT EXISTS (SELECT 1 FROM ... WHERE column = value) instead, or add IS NOT NULL for"
                " the left side of a NOT IN over the primary key.",
            )
        )

    # --- the first relation of a FROM --------------------------------------------------------------

    def _find_heads(self, uses: list[LookupUse]) -> None:
        """What the uses of one block are that stand first in their chains.

        They may give keys to each other, so those that have theirs come first.
        """
        pending = list(uses)
        while pending:
            waiting = {use.relation for use in pending}
            found = next(((use, join) for use in pending if (join := self._moved(use, waiting))), None)
            if found is None:
                found = next(((use, join) for use in pending if (join := self._asked(use))), None)
            if found is not None:
                pending.remove(found[0])
                self._joins.append(found[1])
                continue
            for use in pending:
                if self._statement.tokens.is_word(use.relation.first, "STREAM", "LATERAL"):
                    self._refuse_extra_clauses(use)
            self._refuse_products(pending)
            scanned = next((use for use in pending if self._can_scan(use)), None)
            if scanned is None:
                raise self._no_scan(pending[0])
            pending.remove(scanned)
            self._scans.append(scanned)

    def _refuse_products(self, pending: list[LookupUse]) -> None:
        """Refuse a lookup table between commas that nothing gives a key: it would be read whole."""
        for use in pending:
            source = use.block.source
            if use.around or source is None or use.chain is None or use.chain.steps:
                continue
            heads = {other.relation for other in pending} | {scan.relation for scan in self._scans}
            if any(chain.head not in heads and not chain.head.lateral for chain in source.chains):
                at = self._statement.tokens.cut(use.relation.first, use.relation.last)
                raise refused(self._statement, use, at, self._why_no_key(use))

    def _why_no_key(self, use: LookupUse) -> str:
        """Why a lookup table between commas has no key."""
        computed = self._computed_from(use)
        if any(referred.relations & computed for _, referred in self._where_equalities(use)):
            return (
                "a LATERAL relation names it, and stands in one chain of joins with what gives its key; write"
                " CROSS JOIN in place of the comma"
            )
        return "no equality in WHERE gives its key, so nothing says which rows to ask for"

    def _can_scan(self, use: LookupUse) -> bool:
        return isinstance(self._context.connector(use.table), Scan)

    def _no_scan(self, use: LookupUse) -> UnsupportedLookup:
        if use.relation in self._whys:
            return self._whys[use.relation]
        return UnsupportedLookup(
            Problem(
                f"{use.table.name} cannot be read whole: connector"
                f" {use.table.connector!r} answers keys only.",
                self._statement.span(self._statement.tokens.cut(use.index, use.index)),
                "Put it on the right side of a JOIN with an equality.",
            )
        )

    def _moved(self, use: LookupUse, waiting: set[Relation]) -> LookupJoin | None:
        """The lookup join that ``use`` is behind the relations that give its keys, or None."""
        if use.chain is None or not use.relation.plain:
            return None
        if use.chain.steps:
            return self._swapped(use, use.chain.steps[0])
        source = use.block.source
        if use.around or source is None or len(source.chains) < 2:
            return None
        waiting |= self._computed_from(use)
        equalities = [
            (equality, referred)
            for equality, referred in self._where_equalities(use)
            if referred.relations and not referred.relations & waiting and not referred.outer
        ]
        keys: dict[str, KeyEquality] = {}
        for equality, _ in equalities:
            keys.setdefault(equality.column, equality)
        chosen = chosen_keys(keys.values(), use.table, self._always(use))
        if not chosen or self._missing(use, chosen):
            return None
        needs = [referred.relations for equality, referred in equalities if equality in chosen]
        at = self._statement.tokens.cut(use.relation.first, use.relation.last)
        join = self._join(use, "INNER", Place.COMMA, at, Conditions(chosen))
        return join.with_(needs=frozenset().union(*needs))

    def _computed_from(self, use: LookupUse) -> set[Relation]:
        """The relations of chains behind ``use`` that hold a LATERAL one which may name it."""
        source = use.block.source
        behind = [chain for chain in source.chains if chain.first > use.index] if source is not None else []
        return {
            relation
            for chain in behind
            if any(each.lateral and self._may_name(each, use.relation) for each in chain.everything)
            for relation in chain.relations
        }

    def _may_name(self, lateral: Relation, relation: Relation) -> bool:
        """Whether the name of ``relation``, or a bare one of its columns, stands in ``lateral``."""
        columns, tokens = self._analysis.columns_of(relation), self._statement.tokens
        if columns is None:
            return True
        alias = self._statement.alias_of(relation) or ""
        bare = (at for name in columns for at in tokens.places(name, lateral.first, lateral.last))
        return any(not tokens.is_symbol(at - 1, ".") for at in bare) or any(
            True for _ in tokens.places(alias, lateral.first, lateral.last)
        )

    def _swapped(self, use: LookupUse, step: Step) -> LookupJoin | None:
        """The lookup join that ``use`` is with the sides swapped, or None."""
        right = step.right
        kind = _SWAPPED_KINDS.get(step.words)
        if kind is None or right is None or right.lateral or step.using:
            return None
        if self._statement.table_of(right) is not None:
            return None
        on = conjuncts(self._statement, step.on) if step.on is not None else ()
        conditions = sorted_conditions(
            self._statement, on, self._names(use), self._askable(use), always=self._always(use)
        )
        if kind == "INNER":
            conditions = self._with_where(use, conditions, right)
        if not conditions.keys or all(key.constant for key in conditions.keys):
            return None
        if self._missing(use, conditions.keys):
            return None
        if self._asked_from_outside(use, conditions.keys):
            return None
        at = self._statement.tokens.cut(use.relation.first, step.last)
        join = self._join(use, kind, Place.SWAP, at, conditions)
        return join.with_(conditions=self._possible(join))

    def _asked(self, use: LookupUse) -> LookupJoin | None:
        """The relation that is asked for the rows of a key from outside its FROM, or None."""
        if not use.relation.plain:
            return None
        keys: dict[str, KeyEquality] = {}
        for equality, referred in (*self._where_equalities(use), *self._on_equalities(use)):
            if referred.relations or (referred.outer and not use.keeps_rows):
                continue  # What may be filled with NULLs can name no outer query in Spark.
            if equality.column not in keys or keys[equality.column].constant:
                keys[equality.column] = equality
        chosen = chosen_keys(keys.values(), use.table, self._always(use))
        if not chosen or self._missing(use, chosen):
            return None
        at = self._statement.tokens.cut(use.relation.first, use.relation.last)
        # Of rows filled with NULLs a condition that stays is all that keeps them out.
        conditions = Conditions(_answered(chosen) if use.keeps_rows else chosen)
        join = self._join(use, "INNER", Place.SOURCE, at, conditions)
        return join.with_(notes=_asked_by(chosen))

    def _on_equalities(self, use: LookupUse) -> Iterator[tuple[KeyEquality, Referred]]:
        """The key equalities in the ON of the INNER joins right behind the relation."""
        names, scope = self._names(use), self._scope(use.block)
        for step in use.chain.steps if use.chain is not None else ():
            if _KINDS.get(step.words) != "INNER":
                break
            for conjunct in conjuncts(self._statement, step.on) if step.on is not None else ():
                equality = key_equality(self._statement, conjunct, names)
                if equality is not None and equality.column in self._askable(use):
                    yield replace(equality, kept=True), self._referred(scope, equality)

    # --- names -------------------------------------------------------------------------------------

    def _askable(self, use: LookupUse) -> frozenset[str]:
        connector = self._context.connector(use.table)
        return connector.key_columns() & _key_typed(connector)

    def _names(self, use: LookupUse) -> Names:
        return names_of(self._statement, use, self._inner_names, self._context.case_sensitive)

    def _scope(self, block: Block) -> Scope:
        if block not in self._scopes:
            self._scopes[block] = self._scope_of(block, block.relations)
        return self._scopes[block]

    def _shown_scope(self, block: Block) -> Scope:
        """What the WHERE of the block can name."""
        if block not in self._shown_scopes:
            self._shown_scopes[block] = self._scope_of(block, block.shown)
        return self._shown_scopes[block]

    def _scope_of(self, block: Block, relations: Iterable[Relation]) -> Scope:
        columns_of, case_sensitive = self._analysis.columns_of, self._context.case_sensitive
        return Scope(self._statement, block, relations, columns_of, case_sensitive)

    def _referred(self, scope: Scope, equality: KeyEquality) -> Referred:
        tree = self._statement.expression(equality.left) if isinstance(equality.left, Cut) else None
        return Referred(frozenset()) if tree is None else scope.referred(tree)


def _answered(keys: Iterable[KeyEquality]) -> tuple[KeyEquality, ...]:
    """``keys`` that the rows asked for fulfil, so that nothing of them stays."""
    return tuple(replace(key, kept=key.implied) for key in keys)


def _asked_by(keys: Iterable[KeyEquality]) -> tuple[str, ...]:
    """What EXPLAIN says of a relation that the outer query asks for rows."""
    if all(key.constant for key in keys):
        return ()
    return ("Spark computes the outer query twice for it: once for its distinct keys, which are asked",)


def _key_typed(connector: Connector) -> frozenset[str]:
    schema = connector.table.schema
    return frozenset(column.name for column in schema if is_key_type(sql_type(column.type).lower()))


def _is_awkward(tree: exp.Expr) -> bool:
    """Whether a condition cannot stand in a lambda: it holds a query or, maybe, a function of the user's."""
    return tree.find(exp.Query, exp.Anonymous) is not None


_RANDOM = (
    *("RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "MONOTONICALLY_INCREASING_ID"),
    *("SPARK_PARTITION_ID", "INPUT_FILE_NAME"),
)


def _is_random(tree: exp.Expr) -> bool:
    """Whether it gives something else each time, so that it cannot be a key and be checked again."""
    calls = tree.find_all(exp.Func)
    return any(
        (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).upper() in _RANDOM
        for call in calls
    )


def _where(statement: Statement, block: Block) -> list[Conjunct]:
    """What the ANDs of the block's WHERE join, or of the ``|> WHERE`` right behind its FROM.

    Nothing where there is none, or several.
    """
    pipe = block.pipes[0] if block.pipes else None
    selects = [at for at in block.selects if pipe is None or at < pipe.first]
    wheres = list(block.wheres)
    if pipe is not None and pipe.where is not None and not selects:
        wheres.append(pipe.where)
    if len(wheres) != 1 or len(selects) > 1:
        return []
    try:
        return list(conjuncts(statement, wheres[0]))
    except UnsupportedLookup:
        # It need not be understood: what it says stays where it is.
        return []


def names_of(statement: Statement, use: LookupUse, inner: InnerNames, case_sensitive: bool) -> Names:
    """What the columns of a lookup table are called in its query block.

    Raises:
        UnsupportedLookup: an alias list of the wrong length, or an alias that Spark would change.
    """
    here = statement.tokens.cut(use.relation.first, use.relation.last)
    given = use.column_aliases
    if given and len(given) != len(use.table.schema.names):
        count = len(use.table.schema.names)
        raise refused(statement, use, here, f"it gives {len(given)} names to {count} columns")
    if case_sensitive and use.alias != use.alias.lower():
        reason = "with spark.sql.caseSensitive its alias must be in lower case, as Spark makes it so"
        raise refused(statement, use, here, reason)
    return Names(
        table=use.table,
        alias=use.alias,
        columns=given or tuple(use.table.schema.names),
        aliases=statement.aliases_in(use.block, case_sensitive),
        case_sensitive=case_sensitive,
        is_inner=lambda column: inner.is_inner(column, use.block),
        is_outer=lambda column: inner.is_outer(column, use.block),
    )
