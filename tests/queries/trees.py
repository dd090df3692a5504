"""Random queries over join trees: some of their relations are lookup tables, somewhere in the tree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import pyarrow as pa

from tests.queries.worlds import Data

Item = TypeVar("Item")

# Few values, so that rows meet; NULL in every column; keys without a row, with one, and with several.
NUMBERS = [None, 0, 1, 2, 3, 4]
TEXTS = [None, "a", "b", "c"]
LOOKUPS = frozenset({"d1", "d2", "d3", "d4", "d5"})
ORDINARY = ("t1", "t2", "t3")
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "t1": {"id": pa.int32(), "k": pa.int32(), "s": pa.string(), "v": pa.int32()},
    "t2": {"id": pa.int32(), "j": pa.int64(), "s": pa.string(), "v": pa.int32()},
    "t3": {"k": pa.int64(), "u": pa.string()},
    "d1": {"k": pa.int64(), "s": pa.string(), "v": pa.int32()},
    "d2": {"k": pa.int64(), "s": pa.string(), "w": pa.int32()},
    "d3": {"j": pa.int32(), "u": pa.string(), "v": pa.int32()},
    "d4": {"k": pa.int64(), "since": pa.int64(), "v": pa.int32()},
    "d5": {"k": pa.int64(), "s": pa.string(), "w": pa.int32()},
}
# What columns are called where a table's alias names them: some are those of other tables.
OTHER_NAMES = ["k", "s", "v", "p", "q", "x"]
KEYS = {"d1": ("k",), "d3": ("j",), "d4": ("k", "since"), "d5": ("k", "s")}
# The source of d5 holds each row twice, so the first of a key is known: it is either.
OPTIONS = {"d4": {"lookup.valid-from": "since"}, "d5": {"multiple-match": "first"}}
TIMES = {"d5": 2}
ROWS = {"t1": 9, "t2": 7, "t3": 6, "d1": 5, "d2": 9, "d3": 4, "d4": 9, "d5": 8}
VIEWS = 12


def tables(seed: int = 7) -> dict[str, Data]:
    """The tables that the queries read; primary keys are unique, other columns are not."""
    return {
        name: Data(_rows(Random(seed), name), KEYS.get(name, ()), OPTIONS.get(name, {}), TIMES.get(name, 1))
        for name in COLUMNS
    } | {CORRECTED: Data(_corrected_rows(Random(seed)), ("k", "since", "known"), _KNOWN_OPTIONS)}


def _corrected_rows(random: Random) -> pa.Table:
    """Versions of a few keys with corrections, some late, some before they begin, and with NULLs."""
    every = [*itertools.product([1, 2, 3], NUMBERS, NUMBERS)]
    rows = [(*each, random.choice(NUMBERS)) for each in random.sample(every, 40)]
    kinds = {"k": pa.int64(), "since": pa.int64(), "known": pa.int64(), "v": pa.int32()}
    columns = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(values, kind) for (name, kind), values in columns})


def _rows(random: Random, name: str) -> pa.Table:
    columns, keys = {}, KEYS.get(name, ())
    unique = random.sample(_all_keys(name), ROWS[name]) if keys else []
    for column, kind in COLUMNS[name].items():
        values: Sequence[object] = NUMBERS if pa.types.is_integer(kind) else TEXTS
        if column in keys:
            drawn = [key[keys.index(column)] for key in unique]
        else:
            drawn = [random.choice(values) for _ in range(ROWS[name])]
        columns[column] = pa.array(drawn, kind)
    return pa.table(columns)


def _all_keys(name: str) -> list[tuple[object, ...]]:
    """All primary keys that a table could have."""
    kinds = [COLUMNS[name][column] for column in KEYS[name]]
    values: list[Sequence[object]] = [
        NUMBERS[1:] if pa.types.is_integer(kind) else TEXTS[1:] for kind in kinds
    ]
    return list(itertools.product(*values))


CORRECTED = "d6"
"""The table whose rows are chosen among those known then, as no clause of Spark does."""
_KNOWN_OPTIONS = {"lookup.valid-from": "since", "lookup.known-from": "known"}
_KNOWN_THEN = (
    "LATERAL (SELECT b.k, b.since, b.known, b.v FROM (SELECT max_by(struct(d.*), struct(d.since, d.known)) AS b"
    " FROM d6 d WHERE d.k = {key} AND d.since <= {at} AND d.known <= {by}) WHERE b IS NOT NULL) {alias}"
)
_KNOWN = re.compile(
    re.escape(_KNOWN_THEN)
    .replace(r"\{key\}", r"(\S+)", 1)
    .replace(r"\{at\}", r"(\S+)", 1)
    .replace(r"\{by\}", r"([^\s)]+)", 1)
    .replace(r"\{alias\}", r"(r\d+)", 1)
)
_NEAREST = re.compile(r"ASOF (JOIN d4) (AS r\d+) MATCH_CONDITION \((\S+) >= r\d+\.since\)")


def as_it_was_known(text: str) -> str:
    """``text`` with FOR SYSTEM_TIME AS OF in place of each subquery for the row of ``CORRECTED``.

    Where rows are known by another moment, a hint says so in the SELECT of the block.
    """
    edits = []
    for found in _KNOWN.finditer(text):
        key, at, by, alias = found.groups()
        edits.append((*found.span(), f"d6 FOR SYSTEM_TIME AS OF {at} AS {alias} ON {key} = {alias}.k"))
        if by != at:
            behind = _select_of(text, found.start()) + len("SELECT ")
            edits.append((behind, behind, f"/*+ LOOKUP('table'='{alias}', 'known-as-of'='{by}') */ "))
    for start, end, written in sorted(edits, reverse=True):
        text = text[:start] + written + text[end:]
    return text


def _select_of(text: str, at: int) -> int:
    """Where the SELECT of the block is whose FROM holds the place ``at``."""
    depth = 0
    for place in range(at, -1, -1):
        if not depth and text.startswith("SELECT ", place):
            return place
        depth = max(0, depth + {")": 1, "(": -1}.get(text[place], 0))
    raise AssertionError(f"no SELECT before {at} in {text}")


def _is_known_apart(text: str) -> bool:
    return any(found[2] != found[3] for found in _KNOWN.finditer(text))


def as_it_was(text: str) -> str:
    """``text`` with FOR SYSTEM_TIME AS OF in place of each ASOF JOIN that means the same."""
    return _NEAREST.sub(r"\1 FOR SYSTEM_TIME AS OF \3 \2", text)


def views() -> dict[str, str]:
    """The queries of the views that queries may read: over one lookup table each, or over another view."""
    return {name: text for name, (text, _) in _VIEWS.items()}


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
    """Columns that the next ON may name: those of relations since the last comma, mostly."""
    where: list[str] = field(default_factory=list)
    has_comma: bool = False
    hinted: list[str] = field(default_factory=list)
    """Names that a hint EXTERNAL_LOOKUP may have: of tables that are asked by key, and of others."""


class Trees:
    """Draws queries from a source of random numbers."""

    def __init__(
        self, random: Random, *, asof: bool = False, values: bool = False, corrected: bool = False
    ) -> None:
        """``asof``: whether there is ASOF JOIN among the joins, which Spark has since 4.3.

        ``corrected``: whether there are joins with what was known then, as Spark says it.

        ``values``: whether there are calls of lookup_get among the expressions.
        """
        self._random = random
        self._asof, self._values, self._corrected = asof, values, corrected
        self._names = itertools.count(1)
        self._ctes: list[str] = []
        self._through_ctes: dict[str, list[tuple[str, bool]]] = {}
        self._block_ctes: dict[str, list[tuple[str, bool]]] = {}

    def query(self) -> str:
        """A whole statement, with a lookup table in it."""
        while not re.search(r"\b(d[123456]|view\d+)\b", statement := self._statement()):
            self._ctes.clear()
            self._block_ctes.clear()
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
        block = self._block(source, depth)
        if source.hinted and self._chance(0.3):
            named = ", ".join(dict.fromkeys(self._some(source.hinted, 3)))
            more = self._pick(["", "", ", COALESCE(2)"])
            block = re.sub("^SELECT ", f"SELECT /*+ EXTERNAL_LOOKUP({named}){more} */ ", block)
        return block

    def _block(self, source: From, depth: int) -> str:
        where = self._where(source, depth)
        body = f"FROM {source.text}{where}"
        visible = self._unambiguous(source.columns)
        if not _is_known_apart(source.text) and self._chance(0.12):  # a pipe has no place for a hint
            return self._piped(source, where, depth)
        kind = self._random.randrange(10)
        if kind < 4:
            chosen = [str(column) for column in self._some(visible, 4)]
            if self._values:
                chosen += [self._looked_up_value(visible)[0] for _ in range(self._random.randrange(3))]
            return f"SELECT {', '.join(f'{column} AS c{n}' for n, column in enumerate(chosen))} {body}"
        if kind == 4:
            return f"SELECT * {body}"
        if kind == 5:
            relations = sorted({column.relation for column in source.columns} - {""})
            return f"SELECT {', '.join(f'{relation}.*' for relation in relations)} {body}"
        if kind == 6:
            group = self._pick(visible)
            if self._values and self._chance(0.5):
                return self._grouped_values(group, visible, body)
            return (
                f"SELECT {group} AS g, count(*) AS n, max({self._pick(visible)}) AS m {body} GROUP BY {group}"
            )
        if kind == 7:
            return f"SELECT count(*) AS n, count({self._pick(visible)}) AS m {body}"
        if kind == 8:
            return f"SELECT DISTINCT {self._pick(visible)} AS a, {self._pick(visible)} AS b {body}"
        return f"SELECT {self._pick(visible)} AS a, {self._scalar(visible)} AS b {body}"

    def _piped(self, source: From, where: str, depth: int) -> str:
        """The block in pipe syntax: joins and conditions behind its FROM, and a list of columns at the end."""
        text = f"FROM {source.text}{where.replace(' WHERE', ' |> WHERE', 1)}"
        for _ in range(self._random.randrange(3)):
            piped = From("", _qualified(source.columns), _qualified(source.columns))
            right = self._relation(depth + 1, lookup_share=0.6)
            self._explicit(piped, right, self._pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
            source.columns = piped.columns
            conditions = [*piped.where, *([self._filter(piped.columns)] if self._chance(0.4) else [])]
            text += f" |>{piped.text}" + (f" |> WHERE {' AND '.join(conditions)}" if conditions else "")
        visible = _qualified(source.columns)
        if self._chance(0.3):
            group = self._pick(visible)
            return f"{text} |> AGGREGATE count(*) AS n, max({self._pick(visible)}) AS m GROUP BY {group} AS g"
        return f"{text} |> SELECT {self._pick(visible)} AS a, {self._pick(visible)} AS b"

    def _derived(self, depth: int, outer: Sequence[Column] = ()) -> tuple[str, list[tuple[str, bool]]]:
        """A nested block whose columns have names of their own; it may name ``outer`` columns."""
        source = self._from(depth)
        visible = self._unambiguous(source.columns)
        chosen = [*self._some(visible, 3), self._pick([c for c in visible if c.is_number] or visible)]
        names = [f"c{n}" for n in range(len(chosen))]
        listed = ", ".join(f"{column} AS {name}" for column, name in zip(chosen, names, strict=True))
        text = f"SELECT {listed} FROM {source.text}{self._where(source, depth, outer)}"
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
        first = self._relation(depth, lookup_share=0.25)
        source = From(first.text, list(first.columns), list(first.columns))
        most = (4, 2, 1)[depth]
        for number in range(1 + self._random.randrange(most)):
            self._join(source, depth, lookup_share=0.6 if number == 0 else 0.45)
        return source

    def _relation(self, depth: int, lookup_share: float) -> Relation:
        if self._chance(lookup_share):
            if self._chance(0.3):
                return self._through(depth)
            return self._table(self._pick(sorted(LOOKUPS)), is_lookup=True)
        if depth < 2 and self._chance(0.15):
            if self._chance(0.7 if self._block_ctes else 0.4):
                return self._cte(depth)
            text, columns = self._derived(depth + 1)
            alias = self._alias()
            shown = [Column(alias, name, is_number) for name, is_number in columns]
            return Relation(f"({text}) {alias}", shown)
        return self._table(self._pick(ORDINARY), is_lookup=False)

    def _cte(self, depth: int) -> Relation:
        """A CTE, new or read already; each reader has conditions of its own."""
        if self._block_ctes and self._chance(0.7):
            name = self._pick(list(self._block_ctes))
        else:
            text, columns = self._derived(depth + 1)
            name = f"q_{self._alias()}"
            self._ctes.append(f"{name} AS ({text})")
            self._block_ctes[name] = columns
        alias = self._alias()
        shown = [Column(alias, column, is_number) for column, is_number in self._block_ctes[name]]
        if self._chance(0.5):
            bare = [Column("", column.name, column.is_number) for column in shown]
            name = f"(SELECT * FROM {name} WHERE {self._filter(bare)})"
        return Relation(f"{name} {alias}", shown)

    def _through(self, depth: int) -> Relation:
        """A derived table, CTE or view over one lookup table; as a CTE it may be read again."""
        kind = self._random.randrange(4)
        alias = self._alias()
        if kind == 0 and _VIEWS:
            name = self._pick(list(_VIEWS))
            columns = _VIEWS[name][1]
        else:
            text, columns = self.over_one_table(self._random.randrange(2))
            name = f"({text})"
        if kind == 1:
            known = [each.partition(" ")[0] for each in self._ctes if each.startswith("w_")]
            name = f"w_{alias}"
            self._ctes.append(f"{name} AS ({text})")
            self._through_ctes[name] = columns
            if known and self._chance(0.3):
                name = self._pick(known)
                columns = self._through_ctes[name]
        given = ""
        if self._chance(0.1) and len(columns) <= len(OTHER_NAMES):
            names = self._random.sample(OTHER_NAMES, len(columns))
            columns = [(name, is_number) for name, (_, is_number) in zip(names, columns, strict=True)]
            given = f"({', '.join(names)})"
        shown = [Column(alias, column, is_number) for column, is_number in columns]
        time = " FOR SYSTEM_TIME AS OF now() AS" if self._chance(0.15) else ""
        # Read whole it may stand on either side of any join.
        return Relation(f"{name}{time} {alias}{given}", shown, is_lookup=not self._chance(0.15))

    def over_one_table(self, nested: int) -> tuple[str, list[tuple[str, bool]]]:
        """A query that projects, renames, computes and filters one lookup table, and its columns."""
        if not nested and self._chance(0.08):
            return self.whole_table()
        if nested or (_VIEWS and self._chance(0.15)):
            text, below = self.over_one_table(nested - 1) if nested > 0 else ("", [])
            if not text:
                text = self._pick(list(_VIEWS))
                below = _VIEWS[text][1]
            alias = self._alias()
            source = f"({text}) {alias}" if " " in text else f"{text} {alias}"
            columns = [Column(alias, name, is_number) for name, is_number in below]
        else:
            table = self._table(self._pick(sorted(LOOKUPS)), is_lookup=True)
            source, columns = table.text, table.columns
        columns = [self._pick([column, Column("", column.name, column.is_number)]) for column in columns]
        where = f" WHERE {self._filter(columns)}" if self._chance(0.4) else ""
        if self._chance(0.2):
            return f"SELECT * FROM {source}{where}", [(each.name, each.is_number) for each in columns]
        if self._chance(0.1) and len(columns) > 1:
            left_out, *kept = columns
            shown = [(each.name, each.is_number) for each in kept]
            return f"SELECT * EXCEPT ({left_out.name}) FROM {source}{where}", shown
        names = self._random.sample(["k", "s", "v", "j", "u", "w", "y", "z"], 1 + self._random.randrange(4))
        chosen = [(self._pick(columns), name) for name in names]
        listed = ", ".join(f"{self._item(column)} AS {name}" for column, name in chosen)
        if self._chance(0.2):
            listed = ", ".join(
                str(column) if column.name == name else f"{column} {name}" for column, name in chosen
            )
        distinct = "DISTINCT " if self._chance(0.06) else ""
        return f"SELECT {distinct}{listed} FROM {source}{where}", [
            (name, column.is_number) for column, name in chosen
        ]

    def whole_table(self) -> tuple[str, list[tuple[str, bool]]]:
        """``TABLE name``, which may have a condition behind it."""
        name = self._pick([*sorted(LOOKUPS), *_VIEWS])
        shown = (
            _VIEWS[name][1]
            if name in _VIEWS
            else [(column, pa.types.is_integer(kind)) for column, kind in COLUMNS[name].items()]
        )
        columns = [Column("", column, is_number) for column, is_number in shown]
        return f"TABLE {name}" + (f" |> WHERE {self._filter(columns)}" if self._chance(0.3) else ""), shown

    def _item(self, column: Column) -> str:
        return self._expression(column) if self._chance(0.5) else str(column)

    def _table(self, name: str, *, is_lookup: bool) -> Relation:
        alias = self._alias()
        names = list(COLUMNS[name])
        given = ""
        if self._chance(0.06):
            names = self._random.sample(OTHER_NAMES, len(names))
            given = f"({', '.join(names)})"
        kinds = zip(names, COLUMNS[name].values(), strict=True)
        columns = [Column(alias, column, pa.types.is_integer(kind)) for column, kind in kinds]
        text = f"{name} {alias}{given}"
        return Relation(f"({text})" if self._chance(0.04) else text, columns, is_lookup)

    def _join(self, source: From, depth: int, lookup_share: float) -> None:
        if self._corrected and self._chance(0.25) and _numbers(_qualified(source.shown)):
            self._known_then(source)
            return
        right = self._relation(depth, lookup_share)
        if depth < 2 and self._chance(0.12):
            right = self._in_parentheses(right)
        style = self._random.randrange(29 if self._asof else 25)
        if style >= 27:
            self._nearest_by(source)
        elif style >= 25:
            self._nearest(source)
        elif style < 8:
            self._explicit(source, right, self._pick(["JOIN", "INNER JOIN"]))
        elif style < 13:
            self._explicit(source, right, self._pick(["LEFT JOIN", "LEFT OUTER JOIN"]))
        elif style < 15:
            self._explicit(source, right, self._pick(["LEFT SEMI JOIN", "LEFT ANTI JOIN"]))
        elif style < 17:
            self._comma(source, right)
        elif style < 19:
            self._using(source, right)
        elif style < 20:
            self._lateral(source)
        elif style < 22:
            self._explicit(source, right, self._pick(["RIGHT JOIN", "FULL JOIN"]))
        elif style < 23:
            self._commas(source, right)
        else:
            self._crossed(source, right)
        if not source.has_comma and self._chance(0.06):
            source.text = f"({source.text})"

    def _known_then(self, source: From) -> None:
        """The last row of a key that had begun, among those known at the same moment or at another one."""
        numbers = _numbers(_qualified(source.shown))
        alias, columns = self._alias(), ("k", "since", "known", "v")
        at = self._pick(numbers)
        by = self._pick(numbers) if self._chance(0.5) else at
        subquery = _KNOWN_THEN.format(key=self._pick(numbers), at=at, by=by, alias=alias)
        source.text += f" {self._pick(['JOIN', 'LEFT JOIN'])} {subquery}"
        self._show(source, Relation(alias, [Column(alias, name, is_number=True) for name in columns]))

    def _nearest(self, source: From) -> None:
        """The row of d4 that is nearest to a number; no two rows of a key are equally near."""
        numbers = [column for column in source.shown if column.is_number] or [Column("", "1", is_number=True)]
        alias = self._alias()
        columns = [Column(alias, name, pa.types.is_integer(kind)) for name, kind in COLUMNS["d4"].items()]
        operator = self._pick([">=", ">=", ">=", ">", "<=", "<"])
        match = f"{self._pick(numbers)} {operator} {alias}.since"
        kind = self._pick(["ASOF JOIN", "LEFT ASOF JOIN"])
        text = "(SELECT since, v, k FROM d4 WHERE v <> 1)" if self._chance(0.2) else "d4"
        key = self._equal(self._pick(numbers), f"{alias}.k")
        if text != "d4":
            columns = [columns[1], columns[2], columns[0]]
        source.text += f" {kind} {text} AS {alias} MATCH_CONDITION ({match}) ON {key}"
        self._show(source, Relation(alias, columns))

    def _nearest_by(self, source: From) -> None:
        """The rows at the least distance, of all or of those that meet a condition; ties go by their key."""
        name, key, text, value = self._pick(
            [("d1", "k", "s", "v"), ("d3", "j", "u", "v"), ("d1", "k", "s", "k")]
        )
        alias, shown = self._alias(), _qualified(source.shown)
        columns = [Column(alias, column, pa.types.is_integer(kind)) for column, kind in COLUMNS[name].items()]
        number = self._pick([*_numbers(shown), Column("", "2", is_number=True)])
        texts = [column for column in shown if not column.is_number] or [Column("", "'b'", is_number=False)]
        distance, direction = self._pick(
            [
                (f"abs({number} - {alias}.{value})", "DISTANCE"),
                (f"abs({alias}.{value} - ({self._expression(number)}))", "DISTANCE"),
                (f"-abs({number} - {alias}.{value})", "SIMILARITY"),
                (f"levenshtein({self._pick(texts)}, {alias}.{text})", "DISTANCE"),
                (f"{alias}.{value} * 2 - {number}", self._pick(["DISTANCE", "SIMILARITY"])),
            ]
        )
        gates = [
            self._equal(self._pick(texts), f"{alias}.{text}"),
            self._equal(self._pick([*_numbers(shown), Column("", "2", is_number=True)]), f"{alias}.{value}"),
            f"{distance} {'<=' if direction == 'DISTANCE' else '>='} {self._random.randrange(-2, 3)}",
            f"{alias}.{value} > {self._random.randrange(3)}",
            self._filter(shown or columns),
        ]
        gate = " AND ".join(self._random.sample(gates, self._pick([0, 1, 1, 1, 2, 3])))
        if gate:
            form = self._pick(
                ["CASE WHEN {} THEN {} END", "if({}, {}, NULL)", "CASE WHEN {} THEN {} ELSE NULL END"]
            )
            distance = form.format(gate, distance)
        most = self._pick(["", " 1", " 2", " 3", " 9"])
        from_table = (
            name if self._chance(0.8) else f"(SELECT * FROM {name} WHERE {self._pick(['v = 2', 'v > 1'])})"
        )
        kind, exact = self._pick(["JOIN", "LEFT JOIN", "LEFT OUTER JOIN"]), self._pick(["EXACT", "APPROX"])
        source.text += f" {kind} {from_table} AS {alias} {exact} NEAREST{most} BY {direction} {distance}"
        source.text += f" /* key {alias}.{key} */"
        self._show(source, Relation(alias, columns))

    def _in_parentheses(self, left: Relation) -> Relation:
        """``left`` joined with one more relation, in parentheses."""
        inner = From(left.text, list(left.columns), list(left.columns))
        right = self._relation(2, lookup_share=0.6)
        self._explicit(inner, right, self._pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
        return Relation(f"({inner.text})", inner.columns)

    def _lateral(self, source: From) -> None:
        """A subquery, or a function of tables, that names the relations before it."""
        outer = _qualified(source.columns)
        alias = self._alias()
        kind = self._random.randrange(4)
        if kind == 0:
            column = self._pick(outer)
            columns = [("c0", column.is_number)]
            text = f"(SELECT {self._expression(column)} AS c0) {alias}"
        elif kind == 1:
            column = self._pick(outer)
            other = self._pick([each for each in outer if each.is_number == column.is_number])
            columns = [("c0", column.is_number)]
            text = f"explode(array({column}, {other})) {alias}(c0)"
        else:
            query, columns = self._derived(2, outer)
            text = f"({query}) {alias}"
        right = Relation(alias, [Column(alias, name, is_number) for name, is_number in columns])
        joined = self._pick([",", " JOIN", " CROSS JOIN", " LEFT JOIN"])
        source.text += f"{joined} LATERAL {text}"
        source.has_comma |= joined == ","
        self._show(source, right)

    def _explicit(self, source: From, right: Relation, kind: str) -> None:
        moves = kind in ("JOIN", "INNER JOIN") and self._chance(0.15)
        conditions = self._conditions(_qualified(source.shown) if moves else source.shown, right)
        if moves:
            source.where += conditions[1:]
            conditions = conditions[:1]
        is_semi = kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
        if is_semi and self._chance(0.2):
            # Spark takes none that names both sides.
            conditions.append(self._exists(self._pick([source.shown, right.columns])))
        source.text += f" {kind} {right.text} ON {' AND '.join(conditions)}"
        is_asked = right.is_lookup and kind in ("JOIN", "INNER JOIN", "LEFT JOIN", "LEFT OUTER JOIN")
        if is_asked or re.match(r"\(?t\d ", right.text):
            source.hinted.append(right.columns[0].relation)
        if not is_semi:
            self._show(source, right)

    def _comma(self, source: From, right: Relation) -> None:
        source.where += self._conditions(_qualified(source.columns), right)
        source.text += f", {right.text}"
        source.has_comma = True
        if not self._chance(0.2):
            source.shown = []
        self._show(source, right)

    def _commas(self, source: From, right: Relation) -> None:
        """Two or three more relations between commas, most of them lookup tables, tied by WHERE in any order."""
        added = [right, *(self._relation(2, lookup_share=0.7) for _ in range(1 + self._random.randrange(2)))]
        for relation in added:
            source.text += f", {relation.text}"
            self._show(source, relation)
        source.shown = list(added[-1].columns)
        source.has_comma = True
        for relation in added:
            others = [column for column in _qualified(source.columns) if column not in relation.columns]
            for _ in range(1 + self._chance(0.5)):
                source.where.append(self._equality(others, relation.columns))

    def _crossed(self, source: From, right: Relation) -> None:
        if not self._chance(0.2):
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
        kind = self._pick(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "RIGHT JOIN", "FULL JOIN"])
        names = [self._pick(shared).name]
        if kind != "LEFT SEMI JOIN" and self._chance(0.3):
            names = [column.name for column in shared]
            source.text += f" NATURAL {kind} {right.text}"
        else:
            source.text += f" {kind} {right.text} USING ({names[0]})"
        if kind == "LEFT SEMI JOIN":
            return
        self._show(source, right)
        for name in names:
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
        if self._chance(0.1):
            conditions[:] = [self._unasked(left, right.columns)]
        if self._chance(0.12):
            conditions[:] = [self._given(right.columns) for _ in range(1 + self._chance(0.4))]
        if self._chance(0.2):
            conditions.append(self._equality(left, right.columns))
        if self._chance(0.35):
            conditions.append(self._residual([*left, *right.columns]))
        if self._chance(0.2):
            conditions.append(self._residual(right.columns))
        if self._chance(0.15):
            conditions.append(self._residual(left))
        return conditions

    def _unasked(self, left: list[Column], right: list[Column]) -> str:
        """What ties both sides, and gives no key: a range, a list, an expression around the column."""
        pairs = [(one, other) for one in left for other in right if one.is_number == other.is_number]
        if not pairs:
            return self._equality(left, right)
        one, other = self._pick(pairs)
        more = self._pick([column for column in left if column.is_number == other.is_number])
        whole = f"{other} + 0" if other.is_number else f"concat({other}, '')"
        last = self._pick([column for column in right if column.is_number == other.is_number])
        value = self._expression(one)
        return self._pick(
            [
                f"{value} BETWEEN {other} AND {last}",
                f"{value} >= {other} AND {last} {self._pick(['>', '>='])} {value}",
                f"({other} < {value} AND {value} <= {last})",
                f"{other} {self._pick(['<', '<=', '<>'])} {one}",
                f"{other} IN ({one}, {more})",
                f"({other} = {one} OR {other} = {more})",
                f"{whole} = {one}",
            ]
        )

    def _given(self, columns: list[Column]) -> str:
        """A column equals what none of the relations beside it gives: a constant, or a subquery's value."""
        column = self._pick(columns)
        value = self._constant(column)
        if column.is_number and self._chance(0.2):
            asked = f" WHERE k = {self._random.randrange(5)}" if self._chance(0.5) else ""
            aggregate = f"int({self._pick(['max', 'min'])}({self._pick('kv')}))"
            value = f"(SELECT {aggregate} FROM {self._pick(['t1', 'd1'])}{asked})"
        return self._equal(column, value, 0.7)

    def _equal(self, one: object, other: object, share: float = 1) -> str:
        """An equality, with ``one`` on its left in ``share`` of the draws; in some, two NULLs are equal, too."""
        number = self._random.randrange(100)
        if number < 100 - share * 100:
            one, other = other, one
        forms = {11: "{} <=> {}", 12: "{} IS NOT DISTINCT FROM {}", 13: "equal_null({}, {})"}
        return forms.get(number % 14, "{} = {}").format(one, other)

    def _constant(self, column: Column) -> str:
        return str(self._random.randrange(5)) if column.is_number else f"'{self._pick('abc')}'"

    def _equality(self, left: list[Column], right: list[Column]) -> str:
        pairs = [(one, other) for one in left for other in right if one.is_number == other.is_number]
        if not pairs:
            number = self._pick([column for column in right if column.is_number] or right)
            return self._equal(number, self._pick([2, "NULL"]) if number.is_number else "'a'")
        one, other = self._pick(pairs)
        key = self._expression(one)
        return self._equal(key, other, 0.5)

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

    def _looked_up_value(self, columns: list[Column]) -> tuple[str, bool]:
        """A call of lookup_get whose key is of ``columns``, and whether it gives a number."""
        table = self._pick(sorted(KEYS))
        name = self._pick(list(COLUMNS[table]))
        parts = [self._key_part(columns, COLUMNS[table][key]) for key in KEYS[table]]
        key = parts[0] if len(parts) == 1 else f"{self._pick(['struct', ''])}({', '.join(parts)})"
        is_number = pa.types.is_integer(COLUMNS[table][name])
        alike = [str(column) for column in columns if column.is_number == is_number]
        literal = str(self._random.randrange(9)) if is_number else "'z'"
        default = f", {self._pick([literal, *alike])}" if self._chance(0.4) else ""
        return f"lookup_get('{table}', '{name}', {key}{default})", is_number

    def _key_part(self, columns: list[Column], kind: pa.DataType) -> str:
        alike = [column for column in columns if column.is_number == pa.types.is_integer(kind)]
        if not alike:
            return str(self._random.randrange(5)) if pa.types.is_integer(kind) else "'a'"
        if pa.types.is_integer(kind) and self._chance(0.1):
            inner = self._pick(["'d1', 'v'", "'d3', 'v'"])
            return f"lookup_get({inner}, {self._pick(alike)})"
        return self._expression(self._pick(alike))

    def _grouped_values(self, group: Column, visible: list[Column], body: str) -> str:
        """A value that is grouped by, or one of a key that is grouped by."""
        value, _ = self._looked_up_value([group])
        kind = self._random.randrange(4)
        if kind == 0:
            return f"SELECT {value} AS g, count(*) AS n {body} GROUP BY {value}"
        if kind == 1:
            return f"SELECT {value} AS g, max({self._pick(visible)}) AS n {body} GROUP BY {self._pick('1g')}"
        if kind == 2:
            return f"SELECT max({value}) AS g, count(*) AS n {body} GROUP BY {group}"
        have = f" HAVING {self._looked_up_value([group])[0]} IS NOT NULL" if self._chance(0.3) else ""
        return f"SELECT {group} AS g, {value} AS n, count(*) AS m {body} GROUP BY {group}{have}"

    def _comparison(self, column: Column) -> str:
        if self._values and self._chance(0.2):
            value, is_number = self._looked_up_value([column])
            other = str(self._random.randrange(4)) if is_number else f"'{self._pick('abc')}'"
            return f"{value} {self._pick(['>', '<', '<>', '='])} {other}"
        if column.is_number:
            return f"{column} {self._pick(['>', '<', '<>', '='])} {self._random.randrange(4)}"
        return f"{column} {self._pick(['>', '<', '<>', '='])} '{self._pick('abc')}'"

    # --- WHERE and subqueries ----------------------------------------------------------------------

    def _filter(self, columns: list[Column]) -> str:
        """A condition of WHERE: a third of them can be keys."""
        kind = self._random.randrange(6)
        if kind == 0:
            return self._given(columns)
        if kind == 1:
            return self._listed(columns)
        return self._residual(columns)

    def _listed(self, columns: list[Column]) -> str:
        """A column, or two, equal one of several constants."""
        kind = self._random.randrange(6)
        one, other = self._pick(columns), self._pick(columns)
        if kind == 0:
            return f"({one} = {self._constant(one)} OR {one} = {self._constant(one)})"
        if kind == 1:
            first, last = (f"({self._constant(one)}, {self._constant(other)})" for _ in range(2))
            return f"({one}, {other}) IN ({first}, {last})"
        if kind == 2:
            both = f"({one} = {self._constant(one)} AND {other} = {self._constant(other)})"
            return f"({both} OR {one} IN ({self._constant(one)}, {self._constant(one)}))"
        last_value = "NULL" if kind == 3 else self._constant(one)
        return f"{one} IN ({self._constant(one)}, {self._constant(one)}, {last_value})"

    def _correlation(self, columns: list[Column], outer: list[Column]) -> str:
        """What ties the columns of a subquery to the query around it: an equality, mostly a bare one."""
        # A name alone would be looked for in the subquery first.
        outer = _qualified(outer) or outer
        pairs = [(one, other) for one in outer for other in columns if one.is_number == other.is_number]
        if not pairs:
            return self._given(columns)
        one, other = self._pick(pairs)
        names = [column.name for column in (*outer, *columns)]
        if names.count(one.name) == 1 and self._chance(0.3):
            one = Column("", one.name, one.is_number)
        value = self._expression(one)
        return self._equal(other, value, 0.6)

    def _where(self, source: From, depth: int, outer: Sequence[Column] = ()) -> str:
        conditions = list(source.where)
        if self._chance(0.4):
            conditions.append(self._filter(source.columns))
        if outer and self._chance(0.9):
            conditions.append(self._correlation(source.columns, list(outer)))
        if depth == 0 and self._chance(0.3):
            conditions.append(self._subquery_predicate(source.columns))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _subquery_predicate(self, columns: list[Column]) -> str:
        predicate = self._pick((self._exists, self._in, self._compared_scalar))(columns)
        if self._chance(0.2):
            return f"({self._comparison(self._pick(columns))} OR {predicate})"
        return predicate

    def _exists(self, columns: list[Column]) -> str:
        inner = self._inner(columns)
        outer = _qualified(columns)
        if self._chance(0.1):
            inner.where[:] = [self._unasked(outer, inner.columns)]
        more = f" AND {self._residual([*inner.columns, *outer])}" if self._chance(0.3) else ""
        where = f"{' AND '.join(inner.where)}{more}"
        return f"{self._pick(['', 'NOT '])}EXISTS (SELECT 1 FROM {inner.text} WHERE {where})"

    def _in(self, columns: list[Column]) -> str:
        outer = self._pick(columns)
        inner = self._inner(columns if self._chance(0.3) else [])
        fitting = [column for column in inner.columns if column.is_number == outer.is_number]
        if not fitting:
            return self._given(columns)
        if self._chance(0.4):
            inner.where.append(self._filter(inner.columns))
        where = f" WHERE {' AND '.join(inner.where)}" if inner.where else ""
        negation = self._pick(["", "NOT "])
        return f"{outer} {negation}IN (SELECT {self._pick(fitting)} FROM {inner.text}{where})"

    def _compared_scalar(self, columns: list[Column]) -> str:
        if self._chance(0.4):
            number = self._pick([column for column in columns if column.is_number] or columns)
            return f"{number} = {self._scalar(columns)}"
        return f"{self._scalar(columns)} > {self._random.randrange(3)}"

    def _scalar(self, columns: list[Column]) -> str:
        inner = self._inner(columns)
        number = self._pick([column for column in inner.columns if column.is_number] or inner.columns)
        aggregate = self._pick([f"max({number})", "count(*)", f"count({number})"])
        more = f" AND {self._filter(inner.columns)}" if self._chance(0.3) else ""
        return f"(SELECT {aggregate} FROM {inner.text} WHERE {' AND '.join(inner.where)}{more})"

    def _inner(self, columns: list[Column]) -> From:
        """The FROM of a subquery: a lookup table mostly, alone or among others; WHERE ties it to ``columns``."""
        if columns and self._chance(0.1):
            return self._correlated_below(columns)
        if self._chance(0.2):
            return self._nested(columns)
        asked = self._asked()
        inner = From(asked.text, list(asked.columns), list(asked.columns))
        if self._chance(0.25):
            left = self._table(self._pick(ORDINARY), is_lookup=False)
            inner = From(left.text, list(left.columns), list(left.columns))
            self._explicit(inner, asked, self._pick(["JOIN", "LEFT JOIN"]))
        if self._chance(0.25):
            self._join(inner, 2, lookup_share=0.3)
        if columns:
            inner.where.append(self._correlation(inner.columns, columns))
        return inner

    def _correlated_below(self, columns: list[Column]) -> From:
        """A derived table that names ``columns`` of the query around the subquery."""
        text, own = self._derived(2, columns)
        alias = self._alias()
        shown = [Column(alias, name, is_number) for name, is_number in own]
        return From(f"({text}) {alias}", shown, shown, where=[self._residual(shown)])

    def _nested(self, columns: list[Column]) -> From:
        """A derived table over one lookup table, which may hold another, and may have no name."""
        text, own = self.over_one_table(self._random.randrange(3))
        alias = self._alias() if self._chance(0.5) else ""
        shown = [Column(alias, name, is_number) for name, is_number in own]
        inner = From(f"({text}) {alias}".rstrip(), shown, shown)
        if columns:
            inner.where.append(self._correlation(shown, columns))
        return inner

    def _asked(self) -> Relation:
        is_lookup = not self._chance(0.15)
        return self._table(self._pick(sorted(LOOKUPS) if is_lookup else ORDINARY), is_lookup=is_lookup)


def _numbers(columns: list[Column]) -> list[Column]:
    return [column for column in columns if column.is_number]


def _qualified(columns: list[Column]) -> list[Column]:
    """Without the merged columns of USING: a later relation may make their names ambiguous in WHERE."""
    return [column for column in columns if column.relation]


def _drawn_views() -> dict[str, tuple[str, list[tuple[str, bool]]]]:
    """Views, some over those before them."""
    for number in range(VIEWS):
        _VIEWS[f"view{number}"] = Trees(Random(number)).over_one_table(number % 2)
    _VIEWS[f"view{VIEWS}"] = Trees(Random(VIEWS)).whole_table()
    return _VIEWS


_VIEWS: dict[str, tuple[str, list[tuple[str, bool]]]] = {}
_drawn_views()
