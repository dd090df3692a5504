"""What the planner finds, refuses and hands over: joins that are found, those that run, scans, the plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.plan.decide.access import AccessDecision
from lookup_hints.plan.decide.settings import Choice
from lookup_hints.plan.key_casts import KeyCast
from lookup_hints.plan.key_conditions import ColumnNames, Conditions, Conjunct, KeyEquality
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, KeyQuestion, LeftSide, NamesAndTypes
from lookup_hints.spi import Connector, Filter, TableSize
from lookup_hints.spi.request_and_answer import OrderCondition
from lookup_hints.sql.text_edits import Cut, Edit, Fragment

Join = TypeVar("Join", bound="FoundJoin")


@dataclass(frozen=True)
class JoinOrder:
    """Which of the rows of a key are joined.

    Args:
        condition: the column that is compared, and how.
        value: what it is compared with, computed from the left row.
        at: where that is said.
        is_sparks: whether Spark can run it by itself over the whole table, as an ASOF JOIN or a range.
        parts: the comparisons with columns that it fulfils, so that nothing of them stays.
    """

    condition: OrderCondition
    value: Fragment
    at: Cut
    is_sparks: bool = False
    parts: tuple[KeyEquality, ...] = ()


# One type per form of join, each in a file of its own: before, an enum was asked for at every turn.
# (docs/decisions/0130)
class Form(ABC):
    """Where a lookup join stands: its left side, and how it is written; ``plan/forms`` has them."""

    shown: ClassVar[str] = ""
    """What EXPLAIN calls it; empty for the right side of a join, which most are."""
    compares_as_in: ClassVar[bool] = False
    """Whether its shared keys are compared as IN compares, not as ``=`` does."""

    @abstractmethod
    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        """What its keys are computed from."""

    def left_table(self, join: FoundJoin) -> Relation | None:
        return None

    def asked_for(self, key: KeyEquality) -> Fragment:
        """What EXPLAIN says that a key is."""
        return key.left

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        """The edits that need not know its neighbours in FROM; ``numbers`` tell private names apart."""
        yield from ()

    def behind_from(
        self, join: LookupJoin, statement: Statement, numbers: Iterator[int]
    ) -> tuple[Fragment, ...]:
        """What it adds behind the FROM of its home, where it has no relation there; nothing mostly."""
        return ()


@dataclass(frozen=True)
class FoundJoin:
    """A use of a lookup table that can be a lookup join.

    Args:
        use: where its table is named.
        connector: what is asked.
        form: where it stands.
        kind: ``INNER``, ``LEFT``, ``LEFT SEMI`` or ``LEFT ANTI``.
        at: the whole join in the text.
        home: the block whose rows are joined.
        names: what its columns are called.
        conditions: its conditions, sorted.
        needs: the relations beyond its chain that it names: those that give the keys of a comma join,
            and those that the ON of a join names though a comma stands between.
        order: which of the rows of a key are joined; None: all.
        notes: what the user should know.
    """

    use: LookupUse
    connector: Connector
    form: Form
    kind: str
    at: Cut
    home: Block
    names: ColumnNames
    conditions: Conditions
    needs: frozenset[Relation] = frozenset()
    order: JoinOrder | None = None
    notes: tuple[str, ...] = ()

    def left_side(self, statement: Statement) -> LeftSide:
        """What its keys are computed from."""
        return self.form.left_side(self, statement)

    def question(self, statement: Statement) -> KeyQuestion:
        """What Spark is asked about its keys."""
        value: Fragment | None = None if self.order is None else self.order.value
        if (
            self.order is None
            and self.use.time is not None
            and not statement.calls_the_present(self.use.time)
        ):
            value = self.use.time
        return KeyQuestion(self.use, self.home, self.conditions.keys, self.left_side(statement), value)

    @property
    def left_table(self) -> Relation | None:
        return self.form.left_table(self)

    @property
    def is_in_range(self) -> bool:
        """Whether it has no key: all rows are kept, and those are found whose range holds its value."""
        return self.order is not None and not self.conditions.keys

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
        """Whether it is written as a condition on the left rows, as a query stands in its own."""
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
    """The lookup table's own columns of which ``columns`` are made."""
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
    """A lookup join as it runs.

    Args:
        access: why it asks, and what reading would have cost.
        chosen: its settings, and where each is from.
        casts: for each key how it becomes a value of the column's type.
        order_cast: how the value that is compared by order becomes one.
        columns: dimension columns handed back, in the table's order.
        repeated: whether Spark would run it more than once, were its function deterministic.
        shuffled: whether the left rows are partitioned by key first.
        function: what the worker is told.
    """

    access: AccessDecision
    chosen: Choice
    casts: tuple[KeyCast, ...]
    order_cast: KeyCast
    columns: tuple[str, ...]
    repeated: bool
    shuffled: bool
    function: LookupSpec

    @property
    def is_computed(self) -> bool:
        """Whether a query through which its table is seen makes other rows of those that are found."""
        return is_computed(self.use, self.columns)

    def field(self, column: str) -> str:
        """What one of its columns is called in the rows that are found."""
        return column if self.is_computed else self.use.base_column(column)

    @property
    def is_renamed(self) -> bool:
        """Whether its columns are called otherwise in the query than in the rows that are found."""
        return bool(self.use.column_aliases) or any(self.field(name) != name for name in self.columns)


# The user's join stays as it is written: only the table's name becomes that of a view which reads it, so
# NULLs, stars and USING are Spark's own. (docs/decisions/0150)
@dataclass(frozen=True)
class TableScan:
    """One place where a lookup table is read whole.

    Args:
        use: where the table is named.
        connector: what is read.
        columns: the columns that are read, in the table's order.
        relation: the name of the view that reads them.
        readers: in how many parts it is read, at most.
        decision: why it is read, and what asking would have cost.
        size: how large the table is, as far as its source says it.
        filters: conditions of the query by which the source leaves rows out.
        warning: what to say of a read that nobody may have meant; else empty.
    """

    use: LookupUse
    connector: Connector
    columns: tuple[str, ...]
    relation: str
    readers: int
    decision: AccessDecision
    size: TableSize
    filters: tuple[Filter, ...]
    warning: str


@dataclass(frozen=True)
class LookupPlan:
    """A planned statement.

    Args:
        text: the user's text.
        sql: what Spark runs.
        joins: the lookup joins, in the order of the text.
        scans: lookup tables read whole.
        output: the columns that the user's query has by Spark's own analysis; None for statements
            that hold several queries, and when planned without Spark.
        query: the query inside a statement that writes; None for one that is a query.
        notes: what the user should know about the whole statement.
        warnings: those of the notes that are logged when it runs.
    """

    text: str
    sql: str
    joins: tuple[LookupJoin, ...] = ()
    scans: tuple[TableScan, ...] = ()
    output: NamesAndTypes | None = None
    query: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def text_of(self, part: Fragment) -> str:
        """What the user wrote at ``part``, on one line."""
        return " ".join((part if isinstance(part, str) else part.of(self.text)).split())


# A form that cannot ask is no error: the planner reads the table, and Spark joins its rows.
# (docs/decisions/0150)
class CannotBeAsked(UnsupportedLookup):
    """A use of a lookup table cannot be a lookup join; where its source can be read, it is read instead.

    Args:
        problems: what the user is told where it cannot be read.
        use: where its table is named.
        reason: why it cannot be asked, as a sentence goes on behind "because".
    """

    def __init__(self, problems: Sequence[Problem] | Problem, use: LookupUse, reason: str) -> None:
        super().__init__(problems)
        self.use, self.reason = use, reason


# A hint that names the table means: ask. Then the refusal stays, with what to write instead.
# (docs/decisions/0150)
class NotReadEither(UnsupportedLookup):
    """A lookup table that cannot be asked as it stands there; to read it would give other rows."""


def refused(
    statement: Statement, use: LookupUse, at: Cut, reason: str, instead: str = "", tip: str = ""
) -> CannotBeAsked:
    """The error of a lookup join that cannot run, with what to write ``instead``; its table may be read."""
    whole = f"{reason}; {instead}" if instead else reason
    return CannotBeAsked(cannot_run(statement, use, at, whole, tip).problems, use, reason)


def cannot_run(
    statement: Statement, use: LookupUse, at: Cut, reason: str, tip: str = ""
) -> UnsupportedLookup:
    """The error of a lookup join that cannot run, and whose table cannot be read in its place either."""
    message = f"The lookup join with {use.shown} cannot run: {reason}."
    return UnsupportedLookup(Problem(message, statement.span(at), tip))


def refuse_extra_clauses(statement: Statement, use: LookupUse) -> None:
    """Refuse LATERAL, STREAM, samples and the like beside the lookup table.

    Raises:
        CannotBeAsked: a sample or the like stands there, which a table that is read can have.
        UnsupportedLookup: LATERAL or STREAM stands there.
    """
    relation = use.relation
    if relation.plain and not relation.lateral:
        return
    problem = Problem(
        f"Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table {use.table.name}:"
        " it is asked by key, not read.",
        statement.span(statement.tokens.place(relation)),
    )
    if statement.tokens.is_word(relation.first, "STREAM", "LATERAL"):
        raise UnsupportedLookup(problem)
    extra = " ".join(extension.of(statement.text) for extension in relation.extensions)
    raise CannotBeAsked(problem, use, f"{' '.join(extra.split())} applies to it")
