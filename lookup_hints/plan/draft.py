"""What the planner works on and what it hands over: a draft that grows rule by rule, and the plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from lookup_hints.hints.parse import LookupHint
from lookup_hints.plan.access import AccessDecision
from lookup_hints.plan.analysis import Analyse, Analysis, Columns, KeyQuestion, LeftSide
from lookup_hints.plan.choose import Choice, Unwritable
from lookup_hints.plan.conditions import ColumnNames, Conditions, Conjunct, KeyEquality
from lookup_hints.plan.cost import LeftRows
from lookup_hints.plan.keys import KeyCast
from lookup_hints.plan.look_through import FindView
from lookup_hints.plan.read.statement import FindTable, LookupUse, Statement
from lookup_hints.plan.read.structure import Block, Relation
from lookup_hints.plan.times import is_time_column
from lookup_hints.retry import RowPredicate
from lookup_hints.spec import Invalidation, LookupSpec
from lookup_hints.spi import Connector, Filter, TableSize
from lookup_hints.spi.model import LookupTable, OrderCondition
from lookup_hints.spi.options import Conf
from lookup_hints.sql.splice import Cut, Edit, Fragment

Join = TypeVar("Join", bound="LookupJoin")


@dataclass(frozen=True)
class Context:
    """What the planner asks the session for; every answer is a value, so plans can be tested without Spark.

    Args:
        find_table: the lookup table of a name, or None.
        connector: the connector of a lookup table, built and checked.
        conf: session configuration.
        analyse: names and types of what a query gives, by Spark's analysis; raises Spark's own errors.
            None plans without Spark: keys are then taken to have their column's type.
        name_function: a name for a lookup function, from all that decides what it does.
        name_scan: a name for the relation that reads the given columns of a whole lookup table, without the
            rows that the given filters leave out.
        predicates: registered retry predicates.
        wrapping: what to write before and after a key of a type, so that it reaches Python as it is.
        unwritable: why a folder for dead letters cannot be written to, or None.
        tables: all lookup tables of the session.
        table_size: how large the table of a connector is, as far as its source says it in time.
        left_rows: how many rows a query has at least; None plans without Spark.
        is_stream: whether the rows of a query are a stream.
        few_rows: whether the first rows of the statement alone will be taken.
        line: where the statement begins in its file, from 1.
        read_because: why all tables are read whole, where nothing may be asked; else empty.
        find_view: what a view sees, where it is one lookup table seen through a query.
        is_lookup_view: whether a view of that name reads a lookup table.
        analysed_plan: Spark's analysed plan of a query, as EXPLAIN shows it; empty where it cannot be told.
        invalidations: what was invalidated of a table, in the last seconds.
    """

    find_table: FindTable
    connector: Callable[[LookupTable], Connector]
    conf: Conf
    analyse: Analyse | None
    name_function: Callable[[LookupSpec, bool], str]
    name_scan: Callable[[LookupTable, tuple[str, ...], tuple[Filter, ...]], str]
    predicates: Mapping[str, RowPredicate]
    wrapping: Callable[[pa.DataType], tuple[str, str]] = lambda _: ("", "")
    unwritable: Unwritable = lambda _: None
    tables: Callable[[], Sequence[LookupTable]] = lambda: ()
    table_size: Callable[[Connector], TableSize] = lambda _: TableSize(None, source="nothing was asked")
    left_rows: Callable[[str], LeftRows] | None = None
    is_stream: Callable[[str], bool] = lambda _: False
    few_rows: bool = False
    line: int = 1
    read_because: str = ""
    find_view: FindView = lambda _: None
    is_lookup_view: Callable[[str], bool] = lambda _: False
    analysed_plan: Callable[[str], str] = lambda _: ""
    invalidations: Callable[[LookupTable, float], tuple[Invalidation, ...]] = lambda *_: ()

    @property
    def case_sensitive(self) -> bool:
        """Whether Spark tells names apart by case."""
        return (self.conf("spark.sql.caseSensitive") or "false").lower() == "true"


@dataclass(frozen=True)
class JoinOrder:
    """Which of the rows of a key are joined.

    Args:
        condition: the column that is compared, and how.
        value: what it is compared with, computed from the left row.
        at: where that is said.
        is_asof: whether it is an ASOF JOIN, which Spark can run by itself over the whole table.
        cast: how the value becomes one of the column's type.
        is_asked: whether the source finds the rows; else it gives all rows of a key, and the worker chooses.
    """

    condition: OrderCondition
    value: Fragment
    at: Cut
    is_asof: bool = False
    cast: KeyCast = field(default_factory=KeyCast)
    is_asked: bool = False


@dataclass(frozen=True)
class LookupJoin(ABC):
    """One lookup join, of the form that its class is; fields after ``needs`` are filled in by later rules.

    ``plan/forms`` has the forms: each says what its left side is, and which edits write it again.

    Args:
        use: where its table is named.
        connector: what is asked.
        kind: ``INNER``, ``LEFT``, ``LEFT SEMI`` or ``LEFT ANTI``.
        at: the whole join in the text.
        home: the block whose rows are joined.
        names: what its columns are called.
        conditions: its conditions, sorted.
        needs: the relations beyond its chain that it names: those that give the keys of a comma join,
            and those that the ON of a join names though a comma stands between.
        order: which of the rows of a key are joined; None: all.
        hint: the merged LOOKUP hint, if any.
        access: why it asks, and what reading would have cost.
        choice: how it runs.
        casts: for each key how it becomes a value of the column's type.
        columns: dimension columns handed back, in the table's order.
        repeated: whether Spark would run it more than once, were its function deterministic.
        spec: what the worker is told.
        shuffled: whether the left rows are partitioned by key first.
        notes: what the user should know.
    """

    use: LookupUse
    connector: Connector
    kind: str
    at: Cut
    home: Block
    names: ColumnNames
    conditions: Conditions
    needs: frozenset[Relation] = frozenset()
    order: JoinOrder | None = None
    hint: LookupHint | None = None
    access: AccessDecision | None = None
    choice: Choice | None = None
    casts: tuple[KeyCast, ...] = ()
    columns: tuple[str, ...] = ()
    repeated: bool = False
    spec: LookupSpec | None = None
    shuffled: bool = False
    notes: tuple[str, ...] = ()

    form: ClassVar[str]
    """What EXPLAIN calls the place where it stands; empty for the right side of a join, which most are."""
    compares_as_in: ClassVar[bool] = False
    """Whether its shared keys are compared as IN compares, not as ``=`` does."""

    @abstractmethod
    def left_side(self, statement: Statement) -> LeftSide:
        """What its keys are computed from."""

    def question(self, statement: Statement) -> KeyQuestion:
        """What Spark is asked about its keys."""
        value: Fragment | None = None if self.order is None else self.order.value
        if self.order is None and is_time_column(statement, self.use):
            value = self.use.time
        return KeyQuestion(self.use, self.home, self.conditions.keys, self.left_side(statement), value)

    def edits(self, draft: Draft, numbers: Iterator[int]) -> Iterator[Edit]:
        """The edits that need not know its neighbours in FROM; ``numbers`` tell private names apart."""
        yield from ()

    def behind_from(self, statement: Statement, numbers: Iterator[int]) -> tuple[Fragment, ...]:
        """What it adds behind the FROM of its home, where it has no relation there; nothing mostly."""
        return ()

    @property
    def left_table(self) -> Relation | None:
        """The one table on its left, whose rows can be partitioned by key first; None for anything else."""
        return None

    @property
    def is_semi(self) -> bool:
        """Whether it gives no columns, but keeps or drops left rows."""
        return self.kind in ("LEFT SEMI", "LEFT ANTI")

    @property
    def checked(self) -> tuple[Conjunct, ...]:
        """Its conditions on the rows found."""
        return (*self.conditions.residual, *self.conditions.queries)

    @property
    def is_condition(self) -> bool:
        """Whether it is written as a condition on the left rows, as a query stands in its own."""
        return self.is_semi and bool(self.conditions.queries or self.conditions.after)

    def asked_for(self, key: KeyEquality) -> Fragment:
        """What EXPLAIN says that a key is."""
        return key.left

    @property
    def is_computed(self) -> bool:
        """Whether a query through which its table is seen makes other rows of those that are found."""
        through = self.use.through
        if through is None:
            return False
        bare = [through.expression(name).bare for name in self.columns]
        checked = {name for each in through.where for name in each.columns}
        is_plain = None not in bare and len(set(bare)) == len(bare) and checked <= set(bare)
        return not is_plain or self.use.pipe is not None

    @property
    def asked_columns(self) -> tuple[str, ...]:
        """The lookup table's own columns that its function gives."""
        through = self.use.through
        if through is None:
            return self.columns
        expressions = [through.expression(name) for name in self.columns]
        if not self.is_computed:
            return tuple(each.bare for each in expressions if each.bare is not None)
        used = {name for each in (*expressions, *through.where) for name in each.columns}
        used = used or {self.use.base_column(self.conditions.keys[0].column)}
        return tuple(name for name in self.use.base.schema.names if name in used)

    def field(self, column: str) -> str:
        """What one of its columns is called in the rows that are found."""
        return column if self.is_computed else self.use.base_column(column)

    @property
    def is_renamed(self) -> bool:
        """Whether its columns are called otherwise in the query than in the rows that are found."""
        return bool(self.use.column_aliases) or any(self.field(name) != name for name in self.columns)

    @property
    def left(self) -> list[Relation]:
        """The relations that stand before it in its chain."""
        return [] if self.use.chain is None else self.use.chain.before(self.use.relation)

    @property
    def chosen(self) -> Choice:
        """The choice, once it is made."""
        assert self.choice is not None
        return self.choice

    @property
    def function(self) -> LookupSpec:
        """The spec, once it is named."""
        assert self.spec is not None
        return self.spec

    def with_(self: Join, **changes: Any) -> Join:
        """This join with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class TableScan(ABC):
    """One place where a lookup table is read whole.

    Args:
        use: where the table is named.
        connector: what is read.
        columns: the columns that are read, in the table's order.
        relation: the name of the view that reads them.
        readers: in how many parts it is read, at most.
        reason: why it is read, as a sentence goes on behind "because".
        size: how large the table is, as far as its source says it.
        other_way: what asking would have cost, where that was possible; else empty.
        warning: what to say of a read that nobody may have meant; else empty.
        filters: conditions of the query by which the source leaves rows out.
    """

    use: LookupUse
    connector: Connector
    columns: tuple[str, ...]
    relation: str
    readers: int
    reason: str
    size: TableSize | None = None
    other_way: str = ""
    warning: str = ""
    filters: tuple[Filter, ...] = ()

    @abstractmethod
    def edits(self, statement: Statement) -> Iterator[Edit]:
        """The edits that read the table."""

    def with_(self, **changes: Any) -> TableScan:
        """This scan with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Draft:
    """A statement on its way to a plan.

    Args:
        statement: what the user wrote.
        context: what the planner asks the session for.
        analysis: what it asks Spark for.
        hints: the LOOKUP hints.
        read: the uses of lookup tables that must be read whole, and why.
        decided: those of them that could be asked, and the decision to read them.
        joins: the lookup joins.
        scans: lookup tables that are read whole.
        output: the columns that the statement gives.
        edits: what makes Spark SQL of the text.
        notes: what the user should know.
        warnings: those of the notes that are logged, too.
    """

    statement: Statement
    context: Context
    analysis: Analysis
    hints: tuple[LookupHint, ...]
    unlisted: frozenset[LookupUse] = frozenset()
    read: Mapping[LookupUse, str] = field(default_factory=dict)
    decided: Mapping[LookupUse, AccessDecision] = field(default_factory=dict)
    joins: tuple[LookupJoin, ...] = ()
    scans: tuple[TableScan, ...] = ()
    makes_view: bool = False
    looked_through: tuple[LookupUse, ...] = ()
    bypassed: tuple[LookupUse, ...] = ()
    output: Columns | None = None
    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def with_(self, **changes: Any) -> Draft:
        """This draft with some fields changed."""
        return replace(self, **changes)

    def offset_of(self, index: int) -> int:
        """Where the piece begins in the text."""
        return self.statement.pieces[index].start

    def each_join(self, change: Callable[[LookupJoin], LookupJoin]) -> Draft:
        """This draft with ``change`` made to every join."""
        return replace(self, joins=tuple(change(join) for join in self.joins))


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
    joins: tuple[LookupJoin, ...]
    scans: tuple[TableScan, ...]
    output: Columns | None
    query: str | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def text_of(self, part: Fragment) -> str:
        """What the user wrote at ``part``, on one line."""
        return " ".join((part if isinstance(part, str) else part.of(self.text)).split())
