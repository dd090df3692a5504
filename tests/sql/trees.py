"""Random queries over join trees: some of their relations are lookup tables, somewhere in the tree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import pyarrow as pa

from tests.sql.worlds import Data

Item = TypeVar("Item")

# Few values, so that rows meet; NULL in every column; keys without a row, with one, and with several.
NUMBERS = [None, 0, 1, 2, 3, 4]
TEXTS = [None, "a", "b", "c"]
LOOKUPS = frozenset({"d1", "d2", "d3"})
ORDINARY = ("t1", "t2", "t3")
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "t1": {"id": pa.int32(), "k": pa.int32(), "s": pa.string(), "v": pa.int32()},
    "t2": {"id": pa.int32(), "j": pa.int64(), "s": pa.string(), "v": pa.int32()},
    "t3": {"k": pa.int64(), "u": pa.string()},
    "d1": {"k": pa.int64(), "s": pa.string(), "v": pa.int32()},
    "d2": {"k": pa.int64(), "s": pa.string(), "w": pa.int32()},
    "d3": {"j": pa.int32(), "u": pa.string(), "v": pa.int32()},
}
KEYS = {"d1": ("k",), "d3": ("j",)}
ROWS = {"t1": 9, "t2": 7, "t3": 6, "d1": 5, "d2": 9, "d3": 4}


def tables(seed: int = 7) -> dict[str, Data]:
    """The tables that the queries read; primary keys are unique, other columns are not."""
    return {name: Data(_rows(Random(seed), name), KEYS.get(name, ())) for name in COLUMNS}


def _rows(random: Random, name: str) -> pa.Table:
    columns = {}
    for column, kind in COLUMNS[name].items():
        values: Sequence[object] = NUMBERS if pa.types.is_integer(kind) else TEXTS
        if column in KEYS.get(name, ()):
            drawn = random.sample(NUMBERS[1:], ROWS[name])
        else:
            drawn = [random.choice(values) for _ in range(ROWS[name])]  # type: ignore[misc]
        columns[column] = pa.array(drawn, kind)
    return pa.table(columns)


@dataclass(frozen=True)
class Column:
    """A column that can be named: ``relation.name``, or the name alone where ``relation`` is empty."""

    relation: str
    name: str
    is_number: bool

    def __str__(self) -> str:
        return f"{self.relation}.{self.name}" if self.relation else self.name


@dataclass
class Relation:
    """A relation of a FROM: its text, its columns, and whether it is asked by key."""

    text: str
    columns: list[Column]
    is_lookup: bool = False


@dataclass
class From:
    """A FROM as it grows: its text, the columns that it shows, and what its WHERE must say."""

    text: str
    columns: list[Column]
    shown: list[Column] = field(default_factory=list)
    """Columns of relations since the last comma: those that the next ON can name."""
    where: list[str] = field(default_factory=list)
    has_comma: bool = False


class Trees:
    """Draws queries from a source of random numbers."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = itertools.count(1)
        self._ctes: list[str] = []

    def query(self) -> str:
        """A whole statement, with a lookup table in it."""
        while not re.search(r"\bd[123]\b", statement := self._statement()):
            self._ctes.clear()
        return statement

    def _statement(self) -> str:
        main = self._select(depth=0)
        if self._chance(0.08):
            main = f"({main}) UNION ALL {self._select_alike(main)}"
        ctes = ", ".join(self._ctes)
        return f"WITH {ctes} {main}" if ctes else main

    # --- drawing -----------------------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        """True in ``share`` of the draws; False is the simpler choice, towards which examples shrink."""
        return self._random.randrange(100) >= 100 - share * 100

    def _pick(self, items: Sequence[Item]) -> Item:
        return items[self._random.randrange(len(items))]

    def _some(self, items: Sequence[Item], most: int) -> list[Item]:
        return [self._pick(items) for _ in range(1 + self._random.randrange(most))]

    def _alias(self) -> str:
        return f"r{next(self._names)}"

    # --- blocks ------------------------------------------------------------------------------------

    def _select_alike(self, main: str) -> str:
        """The same statement again, for a set operation: its columns fit."""
        return f"({main})" if self._chance(0.5) or main.startswith("FROM") else main

    def _select(self, depth: int) -> str:
        source = self._from(depth)
        where = self._where(source, depth)
        body = f"FROM {source.text}{where}"
        visible = self._unambiguous(source.columns)
        if self._chance(0.06):
            return f"FROM {source.text}{where.replace(' WHERE', ' |> WHERE', 1)} |> SELECT {self._pick(visible)} AS a"
        kind = self._random.randrange(10)
        if kind < 4:
            chosen = [*self._some(visible, 4)]
            return f"SELECT {', '.join(f'{column} AS c{n}' for n, column in enumerate(chosen))} {body}"
        if kind == 4:
            return f"SELECT * {body}"
        if kind == 5:
            relations = sorted({column.relation for column in source.columns} - {""})
            return f"SELECT {', '.join(f'{relation}.*' for relation in relations)} {body}"
        if kind == 6:
            group = self._pick(visible)
            return (
                f"SELECT {group} AS g, count(*) AS n, max({self._pick(visible)}) AS m {body} GROUP BY {group}"
            )
        if kind == 7:
            return f"SELECT count(*) AS n, count({self._pick(visible)}) AS m {body}"
        if kind == 8:
            return f"SELECT DISTINCT {self._pick(visible)} AS a, {self._pick(visible)} AS b {body}"
        return f"SELECT {self._pick(visible)} AS a, {self._scalar(visible)} AS b {body}"

    def _derived(self, depth: int) -> tuple[str, list[tuple[str, bool]]]:
        """A nested block whose columns have names of their own."""
        source = self._from(depth)
        visible = self._unambiguous(source.columns)
        chosen = [*self._some(visible, 3), self._pick([c for c in visible if c.is_number] or visible)]
        names = [f"c{n}" for n in range(len(chosen))]
        listed = ", ".join(f"{column} AS {name}" for column, name in zip(chosen, names, strict=True))
        text = f"SELECT {listed} FROM {source.text}{self._where(source, depth)}"
        return text, [(name, column.is_number) for name, column in zip(names, chosen, strict=True)]

    def _unambiguous(self, columns: list[Column]) -> list[Column]:
        """``columns``, some of those whose name nothing else has without their relation."""
        seen: dict[str, int] = {}
        for column in columns:
            seen[column.name] = seen.get(column.name, 0) + 1
        bare = {column.name for column in columns if seen[column.name] == 1}
        return [
            Column("", column.name, column.is_number) if column.name in bare and self._chance(0.3) else column
            for column in columns
        ]

    # --- FROM --------------------------------------------------------------------------------------

    def _from(self, depth: int) -> From:
        first = self._relation(depth, lookup_share=0.12)
        source = From(first.text, list(first.columns), list(first.columns))
        most = (4, 2, 1)[depth]
        for number in range(1 + self._random.randrange(most)):
            self._join(source, depth, lookup_share=0.6 if number == 0 else 0.45)
        return source

    def _relation(self, depth: int, lookup_share: float) -> Relation:
        if self._chance(lookup_share):
            return self._table(self._pick(sorted(LOOKUPS)), is_lookup=True)
        if depth < 2 and self._chance(0.15):
            text, columns = self._derived(depth + 1)
            alias = self._alias()
            shown = [Column(alias, name, is_number) for name, is_number in columns]
            if self._chance(0.3):
                self._ctes.append(f"q_{alias} AS ({text})")
                return Relation(f"q_{alias} {alias}", shown)
            return Relation(f"({text}) {alias}", shown)
        return self._table(self._pick(ORDINARY), is_lookup=False)

    def _table(self, name: str, *, is_lookup: bool) -> Relation:
        alias = self._alias()
        columns = [Column(alias, column, pa.types.is_integer(kind)) for column, kind in COLUMNS[name].items()]
        text = f"({name} {alias})" if self._chance(0.04) else f"{name} {alias}"
        return Relation(text, columns, is_lookup)

    def _join(self, source: From, depth: int, lookup_share: float) -> None:
        right = self._relation(depth, lookup_share)
        if not right.is_lookup and depth < 2 and self._chance(0.12):
            right = self._in_parentheses(right)
        style = self._random.randrange(20)
        if style < 8:
            self._explicit(source, right, self._pick(["JOIN", "INNER JOIN"]))
        elif style < 13:
            self._explicit(source, right, self._pick(["LEFT JOIN", "LEFT OUTER JOIN"]))
        elif style < 15:
            self._explicit(source, right, self._pick(["LEFT SEMI JOIN", "LEFT ANTI JOIN"]))
        elif style < 17:
            self._comma(source, right)
        elif style < 18:
            self._using(source, right)
        elif right.is_lookup:
            self._crossed(source, right)
        else:
            self._explicit(source, right, self._pick(["RIGHT JOIN", "FULL JOIN"]))
        if not source.has_comma and self._chance(0.06):
            source.text = f"({source.text})"

    def _in_parentheses(self, left: Relation) -> Relation:
        """``left`` joined with one more relation, in parentheses."""
        inner = From(left.text, list(left.columns), list(left.columns))
        right = self._relation(2, lookup_share=0.6)
        self._explicit(inner, right, self._pick(["JOIN", "LEFT JOIN"]))
        return Relation(f"({inner.text})", inner.columns)

    def _explicit(self, source: From, right: Relation, kind: str) -> None:
        moves = kind in ("JOIN", "INNER JOIN") and self._chance(0.15)
        conditions = self._conditions(_qualified(source.shown) if moves else source.shown, right)
        if moves:
            source.where += conditions[1:]
            conditions = conditions[:1]
        source.text += f" {kind} {right.text} ON {' AND '.join(conditions)}"
        if kind not in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
            self._show(source, right)

    def _comma(self, source: From, right: Relation) -> None:
        source.where += self._conditions(_qualified(source.columns), right)
        source.text += f", {right.text}"
        source.has_comma = True
        source.shown = []
        self._show(source, right)

    def _crossed(self, source: From, right: Relation) -> None:
        source.where += self._conditions(_qualified(source.shown), right)
        source.text += f" {self._pick(['CROSS JOIN', 'JOIN'])} {right.text}"
        self._show(source, right)

    def _using(self, source: From, right: Relation) -> None:
        """A join by equal names, where each side has one such column of a kind; else one with ON."""
        ours = [column.name for column in source.shown]
        kinds = {column.name: column.is_number for column in source.shown}
        shared = [c for c in right.columns if ours.count(c.name) == 1 and kinds[c.name] == c.is_number]
        if not shared or any(ours.count(c.name) for c in right.columns if c not in shared):
            self._explicit(source, right, "LEFT JOIN")
            return
        name = self._pick(shared).name
        kind = self._pick(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN"])
        source.text += f" {kind} {right.text} USING ({name})"
        if kind == "LEFT SEMI JOIN":
            return
        self._show(source, right)
        merged = Column("", name, kinds[name])
        if sum(column.name == name for column in source.columns) == 2:  # none behind an earlier comma
            source.columns.append(merged)
        source.shown.append(merged)

    def _show(self, source: From, right: Relation) -> None:
        """Add the columns of ``right``; a merged column whose name it has can no longer be named alone."""
        names = {column.name for column in right.columns}
        for columns in (source.columns, source.shown):
            columns[:] = [column for column in columns if column.relation or column.name not in names]
            columns += right.columns

    # --- conditions --------------------------------------------------------------------------------

    def _conditions(self, left: list[Column], right: Relation) -> list[str]:
        """What joins ``right``: an equality first, then more of any kind."""
        theirs = {column.name for column in right.columns}
        left = [column for column in left if column.relation or column.name not in theirs]
        conditions = [self._equality(left, right.columns)]
        if self._chance(0.2):
            conditions.append(self._equality(left, right.columns))
        if self._chance(0.35):
            conditions.append(self._residual([*left, *right.columns]))
        if self._chance(0.2):
            conditions.append(self._residual(right.columns))
        if self._chance(0.15):
            conditions.append(self._residual(left))
        return conditions

    def _equality(self, left: list[Column], right: list[Column]) -> str:
        pairs = [(one, other) for one in left for other in right if one.is_number == other.is_number]
        if not pairs:
            number = self._pick([column for column in right if column.is_number] or right)
            return f"{number} = {2 if number.is_number else repr('a')}"
        one, other = self._pick(pairs)
        key = self._expression(one)
        return f"{key} = {other}" if self._chance(0.5) else f"{other} = {key}"

    def _expression(self, column: Column) -> str:
        """A column, or something over it."""
        kind = self._random.randrange(10)
        if kind < 7:
            return str(column)
        if not column.is_number:
            return (f"lower({column})", f"coalesce({column}, 'a')", f"substr({column}, 1, 1)")[kind - 7]
        return (f"{column} + 1", f"coalesce({column}, 1)", f"CASE WHEN {column} > 1 THEN {column} END")[
            kind - 7
        ]

    def _residual(self, columns: list[Column]) -> str:
        one, other = self._pick(columns), self._pick(columns)
        kind = self._random.randrange(8)
        if kind == 0:
            return self._comparison(one)
        if kind == 1 and one.is_number == other.is_number:
            return f"{one} {self._pick(['<', '<>', '>=', '<=>', '='])} {other}"
        if kind == 2:
            return f"({self._comparison(one)} OR {self._comparison(other)})"
        if kind == 3:
            return f"NOT ({self._comparison(one)} AND {self._comparison(other)})"
        if kind == 4:
            return f"{one} IS {self._pick(['', 'NOT '])}NULL"
        if kind == 5:
            return f"coalesce({self._comparison(one)}, {self._pick(['true', 'false'])})"
        if kind == 6:
            return f"CASE WHEN {self._comparison(one)} THEN {self._comparison(other)} ELSE true END"
        return self._comparison(other)

    def _comparison(self, column: Column) -> str:
        if column.is_number:
            return f"{column} {self._pick(['>', '<', '<>', '='])} {self._random.randrange(4)}"
        return f"{column} {self._pick(['>', '<', '<>', '='])} '{self._pick('abc')}'"

    # --- WHERE and subqueries ----------------------------------------------------------------------

    def _where(self, source: From, depth: int) -> str:
        conditions = list(source.where)
        if self._chance(0.3):
            conditions.append(self._residual(source.columns))
        if depth == 0 and self._chance(0.25):
            conditions.append(self._subquery_predicate(source.columns))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _subquery_predicate(self, columns: list[Column]) -> str:
        predicate = self._pick((self._exists, self._in, self._compared_scalar))(columns)
        if self._chance(0.2):
            return f"({self._comparison(self._pick(columns))} OR {predicate})"
        return predicate

    def _exists(self, columns: list[Column]) -> str:
        inner, condition = self._correlated(columns)
        outer = [column for column in columns if column.relation]
        more = f" AND {self._residual([*inner.columns, *outer])}" if self._chance(0.3) else ""
        return f"{self._pick(['', 'NOT '])}EXISTS (SELECT 1 FROM {inner.text} WHERE {condition}{more})"

    def _in(self, columns: list[Column]) -> str:
        outer = self._pick(columns)
        inner = self._asked()
        fitting = [column for column in inner.columns if column.is_number == outer.is_number]
        where = f" WHERE {self._residual(inner.columns)}" if self._chance(0.4) else ""
        negation = self._pick(["", "NOT "])
        return f"{outer} {negation}IN (SELECT {self._pick(fitting)} FROM {inner.text}{where})"

    def _compared_scalar(self, columns: list[Column]) -> str:
        return f"{self._scalar(columns)} > {self._random.randrange(3)}"

    def _scalar(self, columns: list[Column]) -> str:
        inner, condition = self._correlated(columns)
        number = self._pick([column for column in inner.columns if column.is_number])
        aggregate = self._pick([f"max({number})", "count(*)", f"sum({number})"])
        more = f" AND {self._residual(inner.columns)}" if self._chance(0.3) else ""
        return f"(SELECT {aggregate} FROM {inner.text} WHERE {condition}{more})"

    def _correlated(self, columns: list[Column]) -> tuple[Relation, str]:
        """A relation for a subquery, and what ties it to the outer query."""
        inner = self._asked()
        if self._chance(0.25):
            left = self._table(self._pick(ORDINARY), is_lookup=False)
            joined = From(left.text, list(left.columns), list(left.columns))
            self._explicit(joined, inner, "JOIN")
            inner = Relation(joined.text, joined.columns)
        # A name alone would be looked for in the subquery first.
        outer = [column for column in columns if column.relation] or columns
        pairs = [(one, other) for one in outer for other in inner.columns if one.is_number == other.is_number]
        one, other = self._pick(pairs)
        return inner, f"{other} = {one}"

    def _asked(self) -> Relation:
        is_lookup = not self._chance(0.15)
        return self._table(self._pick(sorted(LOOKUPS) if is_lookup else ORDINARY), is_lookup=is_lookup)


def _qualified(columns: list[Column]) -> list[Column]:
    """Without the merged columns of USING: a later relation may make their names ambiguous in WHERE."""
    return [column for column in columns if column.relation]
