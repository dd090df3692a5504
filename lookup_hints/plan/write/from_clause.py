"""The edits that turn a planned statement into Spark SQL.

A lookup join at the end of its FROM becomes a ``LATERAL VIEW`` where it stands. Where more of the FROM
follows, or relations must change places, the relations so far are packed as structs under private names
into a derived table, and lateral projections give their names back. Spark makes plain projections of
those: its optimized plan is that of flat SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.analysis import alias_text, extended, removed_hints, selected_instead
from lookup_hints.plan.draft import Draft, LookupJoin, Place, TableScan
from lookup_hints.plan.joins import refused
from lookup_hints.plan.read.statement import Statement
from lookup_hints.plan.read.structure import Block, Chain, Pipe, Relation, Shape, Step
from lookup_hints.plan.write.columns import own_stars, stars
from lookup_hints.plan.write.using import (
    Merged,
    merged_by,
    qualified_names,
    shared_edits,
    short_names,
    star_edits,
    star_of_all,
)
from lookup_hints.plan.write.views import (
    Text,
    joined,
    lateral_view,
    pipe_operators,
    private_name,
    semi_condition,
    source_query,
)
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Cut, Edit, Fragment


def edits_of(draft: Draft) -> tuple[Edit, ...]:
    """All edits of a draft whose joins are complete."""
    rewriter = _Rewriter(draft)
    return (*removed_hints(draft.statement), *rewriter.edits())


@dataclass(frozen=True)
class _Visible:
    """A relation that the block's expressions can name, and by which alias."""

    relation: Relation
    alias: str


@dataclass
class _Built:
    """Part of a FROM written anew.

    Args:
        parts: its text.
        visible: the relations that it shows, in the user's order.
        views: lookup joins that are still to be appended to it.
        reordered: whether the text shows the relations in another order than ``visible``.
        hidden: private columns that it has beside.
        filters: lookup joins that are conditions on its rows, still to be appended to it, too.
        using: its ordinary joins by USING or NATURAL: packed, they must not be joins any more.
        first: index of its first piece.
    """

    parts: list[Fragment]
    visible: list[_Visible]
    views: list[LookupJoin] = field(default_factory=list)
    filters: list[LookupJoin] = field(default_factory=list)
    reordered: bool = False
    hidden: list[str] = field(default_factory=list)
    using: list[Step] = field(default_factory=list)
    first: int = -1

    @property
    def must_be_packed(self) -> bool:
        """Whether its lookup joins leave conditions that can only be checked inside."""
        return bool(self.filters) or any(join.conditions.after for join in self.views)

    @property
    def is_open(self) -> bool:
        """Whether lookup joins are still to be appended to it."""
        return bool(self.views or self.filters)

    @property
    def asked(self) -> list[LookupJoin]:
        """The lookup joins that are still to be appended, in the order of the text."""
        return sorted([*self.views, *self.filters], key=lambda join: join.use.index)


class _Rewriter:
    def __init__(self, draft: Draft) -> None:
        self._draft, self._statement = draft, draft.statement
        self._by_relation = {join.use.relation: join for join in draft.joins}
        self._private = 0
        self._hidden: dict[Block | Relation, list[str]] = {}
        self._using: dict[Relation, list[Step]] = {}
        self._merged: list[Merged] = []

    def edits(self) -> Iterator[Edit]:
        """The edits of all blocks."""
        for scan in self._draft.scans:
            yield from _scan(self._statement, scan)
        for join in self._draft.joins:
            yield from self._in_place(join)
            if join.shuffled:
                yield _distributed(self._statement, join)
        for block in self._statement.structure.blocks:
            joins = [join for join in self._draft.joins if join.home is block]
            self._merged = []
            if joins:
                yield from self._parentheses(block)
                yield from self._source(block, joins)
                yield from self._names(block, joins)

    def _in_place(self, join: LookupJoin) -> Iterator[Edit]:
        """The edits of joins that need not know their neighbours."""
        tokens, use = self._statement.tokens, join.use
        if join.place is Place.SOURCE:
            at = tokens.cut(use.relation.first, use.relation.last)
            yield Edit(at, source_query(self._statement, join))
            yield from selected_instead(self._statement, use)
            # Left in place, it would name the outer query once more, and Spark's name of the subquery tells.
            yield from (Edit(key.whole, ("true",)) for key in join.conditions.keys if not key.kept)
        elif join.place is Place.CONDITION:
            yield Edit(join.at, ("true",))
        elif join.place is Place.PIPE and use.pipe is not None:
            first, last = use.pipe.first, use.pipe.last
            merged = self._merged_in_pipe(join, use.pipe)
            at = Cut(tokens.pieces[first].end, tokens.pieces[last].end)
            yield Edit(at, pipe_operators(self._statement, join, self._next(), private=merged is not None))
            if merged is not None:
                yield from shared_edits(self._draft, join.home, [merged])

    def _merged_in_pipe(self, join: LookupJoin, pipe: Pipe) -> Merged | None:
        """What ``|> JOIN c USING (id)`` shares, where ``c.id`` or ``c.*`` stands behind it; else None.

        Raises:
            UnsupportedLookup: no list of columns behind it takes the private column away again.
        """
        merged = merged_by(join)
        named = [] if merged is None else [at for at in self._shared_names(merged) if at > pipe.last]
        if merged is None or not named:
            return None
        end = _last_of_projection(self._statement, join.home, pipe)
        if end is None:
            raise self._not_projected(join, named[0])
        return replace(merged, own=(end + 1, join.home.last))

    def _shared_names(self, merged: Merged) -> Iterator[int]:
        """The places behind ``c.`` of columns of USING and of stars."""
        shared = set(map(str.lower, merged.columns))
        for index in qualified_names(self._statement, merged.join.home, merged.alias):
            piece = self._statement.pieces[index]
            if piece.is_symbol("*") or (piece.is_name and piece.name.lower() in shared):
                yield index

    def _not_projected(self, join: LookupJoin, index: int) -> UnsupportedLookup:
        alias, piece = join.use.alias, self._statement.pieces[index]
        at = self._statement.tokens.cut(index - 2, index)
        if piece.is_symbol("*"):
            reason = (
                f"{alias}.* holds a column of USING, and no list of columns follows; list the columns, and"
                f" name that one without {alias}"
            )
        else:
            reason = (
                f"{piece.text} is a column of USING, and no list of columns follows; name it without {alias}"
            )
        return refused(self._statement, join.use, at, reason)

    def _names(self, block: Block, joins: list[LookupJoin]) -> Iterator[Edit]:
        """The edits of stars and names that private columns make necessary."""
        hidden = self._hidden.get(block, [])
        looked_up = [merged_by(join) for join in joins if join.place is Place.STEP]
        merged = [*self._merged, *(each for each in looked_up if each is not None)]
        if self._selects_first(block):
            yield from star_edits(self._draft, block, merged, hidden)
        elif block.source is not None and not _is_projected(self._statement, block):
            star = star_of_all(self._draft, block, merged, hidden)
            end = self._end(_last_before_columns(self._statement, block))
            if star is not None:
                yield Edit(Cut(end, end), (f" |> SELECT {star}",))
            elif hidden:
                yield Edit(Cut(end, end), (f" |> DROP {', '.join(hidden)}",))
        yield from shared_edits(self._draft, block, merged)
        if hidden:
            yield from short_names(self._statement, block)

    # --- one FROM ----------------------------------------------------------------------------------

    def _source(self, block: Block, joins: list[LookupJoin]) -> Iterator[Edit]:
        if block.source is None:
            return
        semis = [join for join in joins if join.place is Place.CONDITION]
        moved = [
            join
            for join in joins
            if join.place in (Place.STEP, Place.SWAP, Place.COMMA) and not join.use.around
        ]
        views = tuple(part for join in semis for part in (" ", *self._view(join)))
        if moved:
            self._refuse_using_behind_comma(block, moved[0])
        if self._is_simple(block, moved):
            self._hidden[block] = [
                column
                for chain in block.source.chains
                for relation in chain.direct_shown
                for column in self._hidden_in(relation)
            ]
            for join in moved:
                yield Edit(join.at, self._view(join))
        else:
            at = self._statement.tokens.cut(block.source.chains[0].first, block.source.last)
            yield Edit(at, self._rebuilt(block))
        if views:
            end = self._end(max(block.source.last, block.views_last))
            yield Edit(Cut(end, end), views)

    def _refuse_using_behind_comma(self, block: Block, join: LookupJoin) -> None:
        """Refuse USING whose left column may be that of a relation before the comma.

        A comma binds no looser than JOIN in Spark: ``a, b JOIN c USING (id)`` is ``(a, b) JOIN c``.
        """
        assert block.source is not None
        before: list[Relation] = []
        for chain in block.source.chains:
            for step in _using_in(chain) if before else ():
                names = {self._statement.pieces[at].name.lower() for at in step.using}
                columns = [self._draft.analysis.columns_of(relation) for relation in before]
                if not names or any(each is None or names & set(map(str.lower, each)) for each in columns):
                    reason = (
                        "a join with USING or NATURAL stands behind a comma, where its columns may be those"
                        " of a relation before the comma; write ON with the equality"
                    )
                    raise refused(self._statement, join.use, join.at, reason)
            before += chain.shown

    def _is_simple(self, block: Block, joins: list[LookupJoin]) -> bool:
        """Whether each lookup join can become its view where it stands: all of them are last in FROM."""
        assert block.source is not None
        if not joins:
            return True
        chain = block.source.chains[-1]
        if any(join.place is not Place.STEP or join.use.chain is not chain for join in joins):
            return False
        # What stands before a comma need not go through the lookup, unless the lookup names it.
        if len(block.source.chains) > 1 and not any(join.needs for join in joins):
            return False
        if any(join.conditions.after or join.is_condition for join in joins):
            return False
        steps = chain.steps
        moved = {join.use.relation for join in joins}
        looked_up = [step.right in moved for step in steps]
        tail = looked_up[looked_up.index(True) :]
        is_pivoted = steps[-1].right is None and self._statement.tokens.is_word(steps[-1].first, "PIVOT")
        return all(tail[:-1] if is_pivoted else tail)

    def _rebuilt(self, block: Block) -> Text:
        """The relations of a FROM, written anew."""
        assert block.source is not None
        groups: list[_Built] = []
        waiting, shown = list(block.source.chains), set[Relation]()
        while waiting:
            chain = next(self._ready(waiting, shown))
            waiting.remove(chain)
            self._refuse_unshown(chain, shown)
            shown.update(chain.shown)
            groups = self._with_chain(groups, chain)
        order = [visible for chain in block.source.chains for visible in self._user_order(chain)]
        only = groups[0] if len(groups) == 1 else None
        if only is not None and not (only.must_be_packed or self._shows_order(only, order, block)):
            self._hidden[block] = only.hidden
            return (*only.parts, *self._views(only))
        return self._in_order(groups, order, block)

    def _shows_order(self, built: _Built, order: list[_Visible], block: Block) -> bool:
        """Whether the order of relations matters and is not the user's."""
        relations = [visible.relation for visible in built.visible]
        if not built.reordered and relations == [visible.relation for visible in order]:
            return False
        gives_all = not self._selects_first(block)
        return gives_all or next(own_stars(self._statement, block), None) is not None

    def _selects_first(self, block: Block) -> bool:
        """Whether a SELECT list, not a pipe operator, takes the columns of its FROM."""
        return bool(block.selects) and not (block.pipes and block.pipes[0].first < block.selects[0])

    def _moved(self, chain: Chain) -> LookupJoin | None:
        """The comma join that the chain is, or None."""
        join = self._by_relation.get(chain.head)
        return join if join is not None and join.place is Place.COMMA else None

    def _ready(self, waiting: list[Chain], shown: set[Relation]) -> Iterator[Chain]:
        """The chains that can be written next: ordinary ones first, and a leaning one behind all before it.

        Where what stands before a LATERAL one waits for its rows, it does not name that.
        """
        before = list(takewhile(lambda chain: not self._leans(chain), waiting))
        for chains in (before, waiting if before else []):
            yield from (each for each in chains if self._moved(each) is None and not self._leans(each))
            yield from (each for each in chains if self._has_keys(each, shown))
        yield from (each for each in waiting if self._leans(each))

    def _leans(self, chain: Chain) -> bool:
        """Whether the chain must be written behind all before it, in one derived table where it needs one."""
        return chain.head.lateral or bool(self._needed(chain))

    def _needed(self, chain: Chain) -> frozenset[Relation]:
        """What the lookup joins of the chain name from before the comma."""
        joins = (self._by_relation.get(relation) for relation in chain.relations)
        needs = (join.needs for join in joins if join is not None and join.place is Place.STEP)
        return frozenset[Relation]().union(*needs)

    def _with_chain(self, groups: list[_Built], chain: Chain) -> list[_Built]:
        join = self._moved(chain)
        if join is not None:
            return self._joined_by(join, groups)
        if self._leans(chain):
            return [self._chain(chain, groups)]
        return [*groups, self._chain(chain)]

    def _refuse_unshown(self, chain: Chain, shown: set[Relation]) -> None:
        """Refuse a lookup join whose ON names a table before a comma that waits for a key from behind it."""
        unshown = self._needed(chain) - shown
        for join in map(self._by_relation.get, chain.relations):
            if join is not None and join.needs & unshown:
                names = " and ".join(sorted(self._seen(each).alias for each in join.needs & unshown))
                reason = (
                    f"its ON names {names} from before a comma, whose key comes from behind the comma; write"
                    " CROSS JOIN in place of the comma"
                )
                raise refused(self._statement, join.use, join.at, reason)

    def _has_keys(self, chain: Chain, shown: set[Relation]) -> bool:
        join = self._moved(chain)
        return join is not None and join.needs <= shown

    def _joined_by(self, join: LookupJoin, groups: list[_Built]) -> list[_Built]:
        """``groups`` with the ones that give the keys of ``join`` made one, and joined with it."""
        own = [built for built in groups if any(each.relation in join.needs for each in built.visible)]
        whole = self._side_by_side(own)
        seen = list(whole.visible)
        whole.visible = [*seen, self._seen(join.use.relation)]
        whole.views = [*whole.views, join]
        rest = [built for built in groups if not any(each in seen for each in built.visible)]
        first = next(
            number for number, built in enumerate(groups) if any(each in seen for each in built.visible)
        )
        before = [built for built in groups[:first] if built in rest]
        return [*before, whole, *(built for built in rest if built not in before)]

    def _side_by_side(self, groups: list[_Built]) -> _Built:
        """``groups`` with commas between them; only the last may have lookup joins left to append."""
        packed = [self._packed(built) if built.is_open else built for built in groups[:-1]]
        packed.append(groups[-1])
        return _Built(
            list(joined([built.parts for built in packed], ", ")),
            [visible for built in packed for visible in built.visible],
            list(groups[-1].views),
            list(groups[-1].filters),
            reordered=any(built.reordered for built in packed),
            hidden=[column for built in packed for column in built.hidden],
            using=[step for built in packed for step in built.using],
            first=min(built.first for built in packed),
        )

    def _in_order(self, groups: list[_Built], order: list[_Visible], block: Block) -> Text:
        """The groups with commas between them, their relations shown in the user's order."""
        out: list[Fragment] = []
        hidden = self._hidden.setdefault(block, [])
        packed: dict[int, dict[Relation, str]] = {}
        previous: int | None = None
        for visible in order:
            number = next(
                index
                for index, built in enumerate(groups)
                if any(each.relation is visible.relation for each in built.visible)
            )
            built = groups[number]
            if number not in packed:
                is_packed = built.is_open or not _is_in(order, built)
                if is_packed:
                    self._refuse_using(built)
                text, packed[number] = self._packing(built) if is_packed else (built.parts, {})
                out += [", " if out else "", *text]
                hidden += packed[number].values() or built.hidden
                previous = number
            if packed[number]:
                out.append(" JOIN " if previous == number else ", ")
                out += self._given_back(visible, f"{packed[number][visible.relation]}.*")
            previous = number
        return tuple(out)

    # --- chains ------------------------------------------------------------------------------------

    def _user_order(self, chain: Chain) -> list[_Visible]:
        return [self._seen(relation) for relation in chain.shown]

    def _chain(self, chain: Chain, before: Sequence[_Built] = ()) -> _Built:
        """The relations of a chain behind what stands ``before``, lookup joins in the middle packed."""
        steps = list(chain.steps)
        swapped = self._by_relation.get(chain.head)
        if swapped is not None and swapped.place is Place.SWAP and steps[0].right is not None:
            built = self._relation(steps[0].right)
            built = replace(built, visible=[self._seen(chain.head), *built.visible], views=[swapped])
            built.reordered = True
            end = self._end(steps.pop(0).last)
        else:
            is_pivoted = bool(steps) and steps[0].pivoted is not None
            built = self._relation(chain.head, named=not is_pivoted)
            end = self._end(chain.head.last)
        if before:
            built = self._side_by_side([*before, built])
        for step in steps:
            join = None if step.right is None else self._by_relation.get(step.right)
            if join is not None and join.place is Place.STEP:
                (built.filters if join.is_condition else built.views).append(join)
                if not join.is_semi:
                    built.visible.append(self._seen(join.use.relation))
            else:
                if built.is_open:
                    self._refuse_pivot(built.asked[-1], step)
                    built = self._packed(built)
                self._append(built, step, end)
            end = self._end(step.last)
        return built

    def _append(self, built: _Built, step: Step, end: int) -> None:
        """Add an ordinary join, with what stands between ``end`` and it."""
        right = step.right
        if step.pivoted is not None:
            seen = self._seen(step.pivoted)
            name = f" AS {seen.alias}" if step.pivoted.alias_at is None else ""
            built.parts += [Cut(end, self._end(step.last)), name]
            built.visible = [seen]
            return
        assert right is not None, "a step joins, or pivots"
        added = self._relation(right)
        built.parts += [Cut(end, self._statement.pieces[right.first].start), *added.parts]
        built.parts.append(Cut(self._end(right.last), self._end(step.last)))
        built.using += [step] if step.using or "NATURAL" in step.words else []
        if not step.hides_right:
            built.visible += added.visible
            built.hidden += added.hidden
            built.using += added.using

    def _refuse_pivot(self, join: LookupJoin, step: Step) -> None:
        if step.right is None:
            reason = "a PIVOT or UNPIVOT follows it; put the join into a subquery"
            raise refused(self._statement, join.use, join.at, reason)

    def _relation(self, relation: Relation, named: bool = True) -> _Built:
        """One ordinary relation, with a name where it has none and one is wanted."""
        at = self._statement.tokens.cut(relation.first, relation.last)
        if relation.open_chain is not None:
            seen_inside = [self._seen(each) for each in relation.open_chain.shown]
            using = self._using.get(relation, list(_using_in(relation.open_chain)))
            hidden = self._hidden_in(relation)
            return _Built([at], seen_inside, hidden=hidden, using=using, first=relation.first)
        seen = self._seen(relation)
        parts: list[Fragment] = [at]
        if named and self._statement.alias_index(relation) is None:
            parts.append(f" AS {seen.alias}")
        return _Built(parts, [seen], first=relation.first)

    def _seen(self, relation: Relation) -> _Visible:
        at = self._statement.alias_index(relation)
        if at is None:
            return _Visible(relation, f"`__lookup_relation_{relation.first}`")
        if relation.alias_at is None:
            return _Visible(relation, alias_text(self._statement, relation))
        return _Visible(relation, self._statement.pieces[at].text)

    def _end(self, index: int) -> int:
        return self._statement.pieces[index].end

    # --- packing -----------------------------------------------------------------------------------

    def _packed(self, built: _Built) -> _Built:
        """The relations and lookup joins of ``built`` in a derived table, their names given back."""
        merged = {id(each.step.right): each for each in self._unmerged(built)}
        self._merged += merged.values()
        parts, columns = self._packing(built)
        for visible in built.visible:
            column, shared = columns[visible.relation], merged.get(id(visible.relation))
            items = f"{column}.*"
            if shared is not None:
                names = {quoted(name): private for name, private in shared.private.items()}
                renamed = "".join(f"{column}.{name} AS {private}, " for name, private in names.items())
                items = f"{renamed}{column}.* EXCEPT ({', '.join(names)})"
            parts += [" JOIN ", *self._given_back(visible, items)]
        return _Built(parts, built.visible, hidden=list(columns.values()), first=built.first)

    def _unmerged(self, built: _Built) -> Iterator[Merged]:
        """The ordinary joins by USING that are about to be packed: each name must mean one column then."""
        if not built.using:
            return
        join, pieces = built.asked[-1], self._statement.pieces
        last = self._statement.tokens.index_at(join.at.end - 1)
        elsewhere = (key.left for each in built.asked for key in each.conditions.keys if key.kept)
        if any(isinstance(left, Cut) and left.start > join.at.end for left in elsewhere):
            # Its key stands in WHERE, too, where the names are the private ones.
            self._refuse_using(built)
        for step in built.using:
            if step.hides_right:
                continue
            right = step.right
            alias = None if right is None else self._statement.alias_of(right)
            is_kept = step.words in ((), ("INNER",), ("LEFT",), ("LEFT", "OUTER"))
            if not is_kept or right is None or right.chain is not None or alias is None:
                self._refuse_using(built)
            assert right is not None and alias is not None  # noqa: PT018 (refused above)
            spelled = {name.lower(): name for name in self._draft.analysis.columns_of(right) or ()}
            given = (pieces[at].name for at in step.using)
            names = tuple(spelled.get(name.lower(), name) for name in given)
            private = {name: private_name(name) for name in names}
            before = [visible.relation for visible in built.visible]
            left = tuple(before[: before.index(right)])
            yield Merged(join, step, alias, left, names, private, own=(built.first, last))

    def _refuse_using(self, built: _Built) -> None:
        """Refuse to pack joins by USING whose columns could not be told apart behind it."""
        if any(not step.hides_right for step in built.using):
            asked = (self._by_relation.get(visible.relation) for visible in built.visible)
            join = built.asked[-1] if built.is_open else next(each for each in asked if each is not None)
            reason = (
                "a join with USING or NATURAL stands before it, and another relation after it; write ON"
                " with the equality, or put the lookup join last"
            )
            raise refused(self._statement, join.use, join.at, reason)

    def _packing(self, built: _Built) -> tuple[list[Fragment], dict[Relation, str]]:
        """The derived table, and the private column of each of its relations."""
        columns = {visible.relation: f"`__lookup_{self._next()}`" for visible in built.visible}
        structs: list[Text] = [
            ("struct(", visible.alias, f".*) AS {columns[visible.relation]}") for visible in built.visible
        ]
        conditions: list[Text] = [
            ("(", conjunct.at, ")") for join in built.views for conjunct in join.conditions.after
        ]
        conditions += [semi_condition(self._statement, join) for join in built.filters]
        where = [" WHERE ", *joined(conditions, " AND ")] if conditions else []
        return [
            "(SELECT ",
            *joined(structs, ", "),
            " FROM ",
            *built.parts,
            *self._views(built),
            *where,
            f") AS `__lookup_{self._next()}`",
        ], columns

    def _given_back(self, visible: _Visible, items: str) -> Text:
        """The lateral projection that gives a packed relation its name back, and its columns theirs."""
        return (f"LATERAL (SELECT {items}) AS ", visible.alias)

    def _views(self, built: _Built) -> Text:
        return tuple(part for join in built.views for part in (" ", *self._view(join)))

    def _view(self, join: LookupJoin) -> Text:
        return lateral_view(self._statement, join, self._next() if join.is_semi else 0)

    def _next(self) -> int:
        self._private += 1
        return self._private

    # --- parentheses -------------------------------------------------------------------------------

    def _parentheses(self, block: Block) -> Iterator[Edit]:
        """The edits of relations in parentheses that hold lookup joins: no LATERAL VIEW can stand there."""
        around: set[Relation] = set()
        for join in self._draft.joins:
            if join.home is block and join.use.around and join.place in (Place.STEP, Place.SWAP):
                # A name of its own makes a star of all columns, private ones of those inside it too.
                named = (relation for relation in join.use.around if relation.alias_at is not None)
                around |= {join.use.around[-1], *named}
        for relation in sorted(around, key=lambda relation: relation.first, reverse=True):
            assert relation.chain is not None
            at = self._statement.tokens.cut(relation.chain.first, relation.chain.last)
            if relation.alias_at is None:
                built = self._chain(relation.chain)
                built = self._packed(built) if built.is_open else built
                self._hidden[relation], self._using[relation] = built.hidden, built.using
                yield Edit(at, tuple(built.parts))
            else:
                yield Edit(at, self._named(relation.chain))

    def _hidden_in(self, relation: Relation) -> list[str]:
        """The private columns that a relation has, by the parentheses inside it too."""
        if relation in self._hidden or relation.open_chain is None:
            return list(self._hidden.get(relation, []))
        inside = relation.open_chain.direct_shown
        return [column for each in inside for column in self._hidden_in(each)]

    def _named(self, chain: Chain) -> Text:
        """A chain in parentheses that has a name of its own, as a query."""
        already = len(self._merged)
        built = self._chain(chain)
        if built.must_be_packed or built.reordered:
            built = self._packed(built)
        for merged in self._merged[already:]:
            reason = "it stands in named parentheses behind a join with USING; write ON with the equality"
            raise refused(self._statement, merged.join.use, merged.join.at, reason)
        star = f"* EXCEPT ({', '.join(built.hidden)})" if built.hidden else "*"
        return (f"SELECT {star} FROM ", *built.parts, *self._views(built))  # noqa: S608 (the user's text)


def _last_of_projection(statement: Statement, block: Block, join: Pipe) -> int | None:
    """Index of the last piece of the operator behind ``join`` that selects columns by name, or None.

    None too where a star, or another operator that changes the columns, stands before its end.
    """
    for pipe in block.pipes[block.pipes.index(join) + 1 :]:
        if statement.tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            has_star = any(at > join.last for at in stars(statement, block, pipe.last + 1))
            return None if has_star else pipe.last
        if not _keeps_columns(statement, pipe):
            return None
    return None


def _is_projected(statement: Statement, block: Block) -> bool:
    """Whether a pipe operator selects columns by name before private ones are seen."""
    tokens = statement.tokens
    for pipe in block.pipes:
        if tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            return not any(at > pipe.first for at in stars(statement, block, pipe.last + 1))
        if not _keeps_columns(statement, pipe):
            return False
    return False


def _last_before_columns(statement: Statement, block: Block) -> int:
    """Index of the last piece of FROM and the pipe operators behind it that leave its columns as they are.

    So far a column of USING can be named by its qualifier.
    """
    assert block.source is not None
    last = max(block.source.last, block.views_last)
    for pipe in block.pipes:
        if not _keeps_columns(statement, pipe):
            break
        last = pipe.last
    return last


def _keeps_columns(statement: Statement, pipe: Pipe) -> bool:
    """Whether the columns so far stay first, in their order, with their qualifiers."""
    if pipe.join is not None:
        return not (pipe.join.using or "NATURAL" in pipe.join.words)
    return statement.tokens.is_word(
        pipe.first + 1, "WHERE", "ORDER", "LIMIT", "OFFSET", "TABLESAMPLE", "EXTEND"
    )


def _is_in(order: list[_Visible], built: _Built) -> bool:
    """Whether the relations of ``built`` stand side by side in ``order``, as they do in its text."""
    own = [visible.relation for visible in built.visible]
    every = [visible.relation for visible in order]
    first = every.index(own[0]) if own else 0
    return every[first : first + len(own)] == own


def _using_in(chain: Chain) -> Iterator[Step]:
    """The joins by USING or NATURAL of a chain in parentheses, whose relations can be named behind it."""
    for relation in chain.direct_shown:
        if relation.open_chain is not None:
            yield from _using_in(relation.open_chain)
    yield from (step for step in chain.steps if step.using or "NATURAL" in step.words)


def _scan(statement: Statement, scan: TableScan) -> Iterator[Edit]:
    """The edits that read a whole table; what stands between its name and its alias stays."""
    relation, tokens = scan.use.relation, statement.tokens
    yield from selected_instead(statement, scan.use)
    at = tokens.cut(relation.start, relation.last)
    rows = extended((scan.relation,), relation.extensions)
    yield Edit(at, (*rows, f" AS {alias_text(statement, relation)}"))


# --- shuffle ---------------------------------------------------------------------------------------


def single_relation(join: LookupJoin) -> Relation | None:
    """The one table on the left of the join, or None when the left is anything else."""
    chain, source = join.use.chain, join.home.source
    if join.place is not Place.STEP or chain is None or source is None or len(source.chains) > 1:
        return None
    is_first = chain.steps[0] is join.use.step and not join.use.around
    return chain.head if is_first and chain.head.shape is Shape.TABLE and chain.head.plain else None


def _distributed(statement: Statement, join: LookupJoin) -> Edit:
    """The left table, partitioned by the lookup key."""
    relation = single_relation(join)
    assert relation is not None, "a join is shuffled only when its left side is one table"
    at = statement.tokens.cut(relation.first, relation.last)
    alias = statement.alias_of(relation)
    assert alias is not None
    keys: Iterable[Fragment] = joined([("(", key.left, ")") for key in join.conditions.keys], ", ")
    return Edit(at, ("(SELECT * FROM ", at, " DISTRIBUTE BY ", *keys, f") AS {quoted(alias)}"))
