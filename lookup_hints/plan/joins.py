"""The planner's values: joins found, joins completed, scans, refusals, and the plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.plan.decide.access import AccessDecision
from lookup_hints.plan.decide.settings import Choice
from lookup_hints.plan.key_casts import KeyCast
from lookup_hints.plan.key_conditions import Conditions, Conjunct, KeyEquality
from lookup_hints.plan.lookup_get.rewrite import JoinsForCalls
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, KeyQuestion, LeftSide, NamesAndTypes, put_in_place
from lookup_hints.plan.table_use import TableUse
from lookup_hints.spi import Filter, TableSize
from lookup_hints.spi.request_and_answer import NearestCondition, OrderCondition
from lookup_hints.sql.text_edits import Cut, Edit, Fragment, spliced

Join = TypeVar("Join", bound="FoundJoin")


@dataclass(frozen=True)
class JoinOrder:
    """Which rows of a key are joined, by a comparison with an ordered column or by their distance.

    Args:
        condition: the compared column, and the operator or the metric.
        value: the value compared with it, computed from the left row.
        at: its place in the text.
        known_by: the moment by which rows are known, where it is another one than ``value``.
        is_sparks: whether Spark can run it over the whole table instead, as an ASOF JOIN, a range or NEAREST.
        parts: the comparisons that it fulfils; they are not checked again, and stay in the text if ``kept``.
        by_source: whether the source is asked by the value alone, where there is no key.
    """

    condition: OrderCondition | NearestCondition
    value: Fragment
    at: Cut
    is_sparks: bool = False
    parts: tuple[KeyEquality, ...] = ()
    by_source: bool = False
    known_by: Fragment | None = None

    @property
    def values(self) -> tuple[Fragment, ...]:
        """What the left row is compared by, in the order of the function's arguments."""
        return (self.value,) if self.known_by is None else (self.value, self.known_by)


@dataclass(frozen=True)
class Ranking:
    """Which of the rows found for a left row stay: the nearest ones, as Spark ranks them.

    Args:
        by: the expression.
        direction: ``DISTANCE`` or ``SIMILARITY``: whether small or large values of it are near.
        most: so many rows stay.
        is_exact: whether they must be the nearest rows of all.
    """

    by: Conjunct
    direction: str
    most: int
    is_exact: bool


# One type per form of join, each in a file of its own, instead of an enum that is checked everywhere.
# (docs/decisions/0130)
class Form(ABC):
    """The syntactic form of a lookup join: its left side, and how it is written. See ``plan/forms``."""

    shown: ClassVar[str] = ""
    """Its name in EXPLAIN; empty for the most common one, the right side of a join."""
    compares_as_in: ClassVar[bool] = False
    """Whether its shared keys are compared as IN compares, not as ``=`` does."""

    @abstractmethod
    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        """The relations that its keys are computed from."""

    def left_table(self, join: FoundJoin) -> Relation | None:
        return None

    def asked_for(self, key: KeyEquality) -> Fragment:
        """The text of a key in EXPLAIN."""
        return key.left

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        """The edits independent of its neighbours in FROM; ``numbers`` make private names unique."""
        yield from ()

    def behind_from(
        self, join: LookupJoin, statement: Statement, numbers: Iterator[int]
    ) -> tuple[Fragment, ...]:
        """Text to add after the FROM of its home, if it has no relation there; usually empty."""
        return ()


@dataclass(frozen=True)
class FoundJoin:
    """A use of a lookup table that can be a lookup join.

    Args:
        use: the place that names its table.
        form: its syntactic form.
        kind: ``INNER``, ``LEFT``, ``LEFT SEMI`` or ``LEFT ANTI``.
        at: the whole join in the text.
        home: the block whose rows are joined.
        conditions: its conditions, by kind.
        needs: relations beyond its chain that it refers to: those that give the keys of a comma join, and
            those that the ON of a join names across a comma.
        order: which rows of a key are joined; None: all.
        ranking: which of the rows found stay; None: all.
        notes: notes for the user.
    """

    use: TableUse
    form: Form
    kind: str
    at: Cut
    home: Block
    conditions: Conditions
    needs: frozenset[Relation] = frozenset()
    order: JoinOrder | None = None
    ranking: Ranking | None = None
    notes: tuple[str, ...] = ()

    def left_side(self, statement: Statement) -> LeftSide:
        """The relations that its keys are computed from."""
        return self.form.left_side(self, statement)

    def question(self, statement: Statement) -> KeyQuestion:
        """The question to Spark about the types of its keys."""
        values: tuple[Fragment, ...] = () if self.order is None else self.order.values
        if (
            self.order is None
            and self.use.time is not None
            and not statement.calls_the_present(self.use.time)
        ):
            values = (self.use.time,)
        return KeyQuestion(self.use, self.home, self.conditions.keys, self.left_side(statement), values)

    @property
    def left_table(self) -> Relation | None:
        return self.form.left_table(self)

    @property
    def is_in_range(self) -> bool:
        """Whether it has no key: all rows are kept, and those that answer its value are found among them."""
        return self.order is not None and not self.conditions.keys and not self.order.by_source

    @property
    def answered(self) -> tuple[KeyEquality, ...]:
        """The comparisons that the rows found fulfil."""
        return self.conditions.keys if self.order is None else (*self.conditions.keys, *self.order.parts)

    @property
    def is_semi(self) -> bool:
        """Whether it gives no columns, but keeps or drops left rows."""
        return self.kind in ("LEFT SEMI", "LEFT ANTI")

    @property
    def checked(self) -> tuple[Conjunct, ...]:
        return (*self.conditions.residual, *self.conditions.queries)

    @property
    def is_condition(self) -> bool:
        """Whether it is written as a condition on the left rows, as its own conditions hold a query."""
        return self.is_semi and bool(self.conditions.queries or self.conditions.after)

    @property
    def left(self) -> list[Relation]:
        return [] if self.use.chain is None else self.use.chain.before(self.use.relation)

    def with_(self: Join, **changes: Any) -> Join:
        return replace(self, **changes)


def is_computed(use: LookupUse, columns: Sequence[str]) -> bool:
    """Whether a query through which the table is seen makes other rows of those that are found."""
    through = use.through
    if through is None:
        return False
    bare = [through.expression(name).bare for name in columns]
    checked = {name for each in through.where for name in each.columns}
    is_plain = None not in bare and len(set(bare)) == len(bare) and checked <= set(bare)
    return not is_plain or use.pipe is not None


def asked_columns(use: LookupUse, columns: Sequence[str], keys: Sequence[KeyEquality]) -> tuple[str, ...]:
    """The lookup table's own columns that ``columns`` are computed from."""
    through = use.through
    if through is None:
        return tuple(columns)
    expressions = [through.expression(name) for name in columns]
    if not is_computed(use, columns):
        return tuple(each.bare for each in expressions if each.bare is not None)
    used = {name for each in (*expressions, *through.where) for name in each.columns}
    used = used or {use.base_column(keys[0].column)}
    return tuple(name for name in use.base.schema.names if name in used)


@dataclass(frozen=True, kw_only=True)
class LookupJoin(FoundJoin):
    """A completed lookup join, ready to run.

    Args:
        access: why it looks up by key, and the cost of reading instead.
        chosen: its settings, and where each comes from.
        casts: for each key the cast to the column's type.
        order_casts: for each value compared by order the cast to the column's type.
        columns: the lookup table's columns that it returns, in the table's order.
        repeated: whether Spark would run it more than once if its function were deterministic.
        shuffled: whether the left rows are partitioned by key first.
        function: the specification that the worker gets.
    """

    access: AccessDecision
    chosen: Choice
    casts: tuple[KeyCast, ...]
    order_casts: tuple[KeyCast, ...]
    columns: tuple[str, ...]
    repeated: bool
    shuffled: bool
    function: LookupSpec

    @property
    def is_computed(self) -> bool:
        """Whether a query through which its table is seen makes other rows of those that are found."""
        return is_computed(self.use, self.columns)

    def field(self, column: str) -> str:
        """The name of one of its columns in the rows returned by the function."""
        return column if self.is_computed else self.use.base_column(column)

    @property
    def is_renamed(self) -> bool:
        """Whether its columns are called otherwise in the query than in the rows that are found."""
        return bool(self.use.column_aliases) or any(self.field(name) != name for name in self.columns)


# The user's join stays as written; only the table's name is replaced by that of a view that reads it. So
# Spark itself handles NULLs, stars and USING. (docs/decisions/0150)
@dataclass(frozen=True)
class TableScan:
    """One use of a lookup table that is read whole.

    Args:
        use: the place that names the table.
        columns: the columns to read, in the table's order.
        relation: the name of the view that reads them.
        readers: the most parts in which it is read.
        decision: why it is read, and the cost of looking up instead.
        size: the size of the table, as far as its source knows it.
        filters: conditions of the query that the source applies.
        match_key: the primary key of which one row counts; empty where all do.
        warning: a warning for a read that may be unintended; else empty.
    """

    use: TableUse
    columns: tuple[str, ...]
    relation: str
    readers: int
    decision: AccessDecision
    size: TableSize
    filters: tuple[Filter, ...]
    match_key: tuple[str, ...]
    warning: str


@dataclass(frozen=True)
class LookupPlan:
    """A planned statement.

    Args:
        text: the user's text.
        sql: the text that Spark runs.
        joins: the lookup joins, in the order of the text.
        scans: lookup tables read whole.
        output: the columns of the user's query by Spark's own analysis; None for statements that hold several
            queries, and when planned without Spark.
        query_at: where the query is inside a statement that writes; None for one that is a query.
        notes: notes for the user about the whole statement.
        warnings: the subset of ``notes`` that is logged when it runs.
        edits: what makes ``sql`` of the text.
        calls: where calls of ``lookup_get`` made the text of another one.
    """

    text: str
    sql: str
    joins: tuple[LookupJoin, ...] = ()
    scans: tuple[TableScan, ...] = ()
    output: NamesAndTypes | None = None
    query_at: Cut | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    calls: JoinsForCalls | None = None

    @property
    def query(self) -> str | None:
        """What Spark runs as the query inside a statement that writes; None for one that is a query."""
        return None if self.query_at is None else self.sql_of(self.query_at)

    def sql_of(self, part: Cut) -> str:
        """What Spark runs as ``part`` of the user's text."""
        return spliced(self.text, self.edits, part)

    def put_in_place(self, error: Exception, part: Cut | None = None) -> None:
        """Let an error about ``sql``, or what is ``part`` of it, show places and names of the user's text."""
        put_in_place(error, self.text, self.edits, part or Cut(0, len(self.text)))
        if self.calls is not None:
            self.calls.put_in_place(error)

    def text_of(self, part: Fragment) -> str:
        """The user's text at ``part``, on one line."""
        return " ".join((part if isinstance(part, str) else part.of(self.text)).split())
