"""Questions to Spark's own analysis: the user's text with an empty stub for each lookup table.

Spark then reports unknown and ambiguous columns with its own errors, and gives the output columns of the
statement, the columns of relations, and the types of keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from lookup_hints.hints.hint_comments import removals
from lookup_hints.plan.key_conditions import KeyEquality, is_random
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.query_blocks import Block, Cte, Level, Relation, Shape
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.sql.lexer import quoted, text_value
from lookup_hints.sql.text_edits import Cut, Edit, Fragment, original_offset, spliced

NamesAndTypes = tuple[tuple[str, str], ...]
"""Name and Spark type name of each output column."""

Analyse = Callable[[str], NamesAndTypes]


@dataclass(frozen=True)
class LeftSide:
    """The left side of a lookup join, which its keys are computed from.

    Args:
        at: the part of the text; None: the queries around the block, or nothing.
        is_query: whether that is a query in pipe syntax; else it is part of a FROM.
    """

    at: Cut | None
    is_query: bool = False


@dataclass(frozen=True)
class KeyQuestion:
    """The question to Spark about the key types of one lookup join.

    Args:
        use: the lookup table.
        home: the block whose rows are joined.
        keys: the keys.
        left: the relations that they are computed from.
        values: those compared by order, or the time of ``FOR SYSTEM_TIME AS OF``, if any.
    """

    use: LookupUse
    home: Block
    keys: Sequence[KeyEquality]
    left: LeftSide
    values: tuple[Fragment, ...] = ()


class KeyTypeError(Exception):
    """Spark cannot determine the type of ``part``: a key of ``question``, or its time."""

    def __init__(self, question: KeyQuestion, part: Fragment, problem: Exception) -> None:
        # Spark's places and suggestions refer to a rewritten text, so they are cut off.
        super().__init__(_OF_ANOTHER_TEXT.split(str(problem).strip().partition("\n")[0])[0])
        self.question, self.part = question, part


_OF_ANOTHER_TEXT = re.compile(r" Did you mean | SQLSTATE: |; line \d+")


# Spark analyses one text at a time: a second thread saved 5 to 13 ms, for threads of ours in each session and
# errors in another order. (docs/decisions/0197)
class Analysis:
    """Asks Spark about parts of one statement; without Spark (``analyse`` is None) nothing is known."""

    def __init__(
        self,
        statement: Statement,
        analyse: Analyse | None,
        variables: Mapping[str, str] | None = None,
        *,
        takes_asof: bool = True,
    ) -> None:
        """``variables``: the variables of the SQL script around the queries, with their types.

        ``takes_asof``: whether Spark supports ASOF JOIN; lookups by key are written without it anyway.
        """
        self._takes_asof = takes_asof
        self.statement, self._analyse = statement, analyse
        self._variables = variables or {}
        self._columns: dict[Relation, tuple[str, ...] | None] = {}
        self._texts: dict[Cut, str] = {}
        self._whole: str | None = None

    @property
    def knows(self) -> bool:
        return self._analyse is not None

    # Of a wide table Spark's analyser would resolve each column, though the statement names a few.
    # (docs/decisions/0234)
    def output(self, used: Mapping[int, Sequence[str]]) -> NamesAndTypes | None:
        """The output columns of the statement, which is a query.

        Args:
            used: the columns that it can name, by the index of the use, where these are not all.

        Raises:
            Exception: Spark's error about the user's statement.
        """
        if self._analyse is None:
            return None
        text, query = self.statement.text, self.statement.queries[0]
        if used:
            self._whole = spliced(text, self._edits_of_stubs(used), query)
            try:
                return self._analyse(self._whole)
            except Exception:  # its text would suggest these few columns alone
                self._whole = None
        try:
            return self._analyse(self.whole())
        except Exception as error:
            if type(error).__name__ == "ParseException":
                # It shows the text that it is about, which should be the user's.
                self._let_spark_parse(as_written(self.statement, query))
            put_in_place(error, text, self._stub_edits, query)
            raise

    def whole(self) -> str:
        """The one query of the statement over stubs, as Spark has analysed it for ``output``."""
        return self._whole or self._stubbed_text(self.statement.queries[0])

    def over_stubs(self) -> str:
        """The whole statement over stubs; it has the same columns as the original."""
        return self._stubbed_text(Cut(0, len(self.statement.text)))

    def _let_spark_parse(self, sql: str) -> None:
        """Raise Spark's error where it cannot parse ``sql``; lookup tables in it are not known to Spark."""
        assert self._analyse is not None
        try:
            self._analyse(sql)
        except Exception as error:
            if type(error).__name__ == "ParseException":
                raise error from None

    def columns_of(self, relation: Relation) -> tuple[str, ...] | None:
        """The names of a relation's columns; None if Spark cannot analyse the relation alone."""
        if self._analyse is None or relation.lateral:
            return None
        if relation not in self._columns:
            self._columns[relation] = self._columns_asked("*", relation)
        return self._columns[relation]

    def _columns_asked(self, wanted: str, relation: Relation, alias: str = "") -> tuple[str, ...] | None:
        """The column names of ``SELECT wanted FROM relation alias``; None if Spark refuses it."""
        rows = self._stubbed_text(self._place_of(relation))
        query = f"SELECT {wanted} FROM {rows}{alias}"  # noqa: S608 (the user's own text)
        return self._analysed_names(self._under_ctes(self._levels_around(relation), query))

    def has_hash(self, relation: Relation) -> bool:
        """Whether Spark can hash its rows; it cannot hash maps."""
        return not relation.lateral and self._columns_asked("hash(*)", relation) is not None

    def has_hidden(self, relation: Relation, alias: str, name: str) -> bool:
        """Whether a relation has a column that ``*`` does not show, as files have ``_metadata``."""
        columns = self.columns_of(relation)
        if columns is None or name.lower() in map(str.lower, columns):
            return False
        named = "" if relation.alias_at is not None or relation.shape is Shape.TABLE else f" AS {alias}"
        return self._columns_asked(f"{alias}.{quoted(name)}", relation, named) is not None

    def columns_of_cte(self, cte: Cte, block: Block) -> tuple[str, ...] | None:
        """The names of the columns of a CTE that ``block`` reads."""
        return self._analysed_names(self._under_ctes(block.query.levels, f"SELECT * FROM {quoted(cte.name)}"))  # noqa: S608

    def rows_of(self, block: Block, left: LeftSide) -> str:
        """A query for the rows of the left side of a join in ``block``."""
        assert left.at is not None, "the left side of a join is a part of the text"
        rows = self._stubbed_text(left.at)
        every = rows if left.is_query else f"SELECT * FROM {rows}"  # noqa: S608 (the user's own text)
        return self._under_ctes(block.query.levels, every)

    def selecting(
        self, block: Block, left: LeftSide, wanted: Sequence[str], conditions: Sequence[Fragment]
    ) -> str:
        """A query for ``wanted`` of the rows of a left side in ``block`` that meet ``conditions``."""
        assert left.at is not None, "the left side of a join is a part of the text"
        rows, listed = self._stubbed_text(left.at), ", ".join(wanted)
        met = " AND ".join(f"({self.text_over_stubs(each)})" for each in conditions)
        if left.is_query:
            where = f" |> WHERE {met}" if met else ""
            return self._under_ctes(block.query.levels, f"{rows}{where} |> SELECT {listed}")
        where = f" WHERE {met}" if met else ""
        return self._under_ctes(block.query.levels, f"SELECT {listed} FROM {rows}{where}")  # noqa: S608

    def text_over_stubs(self, part: Fragment) -> str:
        """``part`` of the statement's text, with stubs for lookup tables in it."""
        return part if isinstance(part, str) else self._stubbed_text(part)

    def asking_rows(self, question: KeyQuestion) -> str:
        """A query with a row for each row of the left side of ``question``, which is a part of the text.

        It gives the keys alone where ``key_types`` asks the same: Spark analyses it once for both.
        """
        assert question.left.at is not None, "there is a left side"
        only, text = self._single_relation_of(question), self.statement.text
        if only is not None and self._place_of(only).of(text) == question.left.at.of(text).strip():
            return next(self._key_texts(question, self._wanted_fragments(question)))
        return self.rows_of(question.home, question.left)

    def columns_before(self, block: Block, left: LeftSide) -> tuple[str, ...] | None:
        """The names of the columns on the left side of a join in ``block``."""
        return self._analysed_names(self.rows_of(block, left))

    def key_types(self, questions: Sequence[KeyQuestion]) -> list[list[str]]:
        """The types of the left sides of keys for each of ``questions``, in one query.

        The types of ``values`` come last. A time without effect is analysed too, so that wrong names show.

        Raises:
            KeyTypeError: Spark cannot analyse a key alone; names the first such question.
        """
        assert self._analyse is not None
        parts = [self._part_texts(self._wanted_fragments(question)) for question in questions]
        scopes = [next(self._key_texts(question, ["NULL"])) for question in questions]
        # The joins of a star have one fact table on their left: one query over it gives all of their keys.
        kinds: dict[str, dict[str, str]] = {scope: {} for scope in scopes}
        for scope, texts in zip(scopes, parts, strict=True):
            kinds[scope].update(dict.fromkeys(texts, ""))
        of_scope = dict(zip(scopes, questions, strict=True))
        selects = [next(self._key_texts(of_scope[scope], list(kinds[scope]))) for scope in kinds]
        relations = ", ".join(f"({text}) AS __keys{number}" for number, text in enumerate(selects))
        every = selects[0] if len(selects) == 1 else f"SELECT * FROM {relations}"  # noqa: S608
        try:
            found = iter([kind for _, kind in self._analyse(every)])
        except Exception:
            return [self._key_types(question) for question in questions]
        for of_text in kinds.values():
            of_text.update({text: next(found) for text in of_text})
        return [[kinds[scope][text] for text in texts] for scope, texts in zip(scopes, parts, strict=True)]

    def _key_types(self, question: KeyQuestion) -> list[str]:
        parts = self._wanted_fragments(question)
        try:
            return self._types_of(question, parts)
        except Exception:
            return [self._type_of(question, part) for part in parts]

    def _type_of(self, question: KeyQuestion, part: Fragment) -> str:
        try:
            return self._types_of(question, [part])[0]
        except Exception as error:
            raise KeyTypeError(question, part, error) from error

    def _types_of(self, question: KeyQuestion, parts: Sequence[Fragment]) -> list[str]:
        """The types of ``parts``; if every scope fails, raises Spark's error for the narrowest."""
        assert self._analyse is not None
        problem: Exception | None = None
        for sql in self._key_texts(question, parts):
            try:
                return [kind for _, kind in self._analyse(sql)]
            except Exception as error:
                problem = problem or error
        assert problem is not None, "there is one scope at least"
        raise problem

    def _key_texts(self, question: KeyQuestion, parts: Sequence[Fragment]) -> Iterator[str]:
        """Queries that select ``parts``, from the narrowest possible scope to wider ones."""
        use, home = question.use, question.home
        wanted = ", ".join(f"{text} AS k{number}" for number, text in enumerate(self._part_texts(parts)))
        left = question.left
        only = None if left.at is None else self._single_relation_of(question)
        if only is not None:
            rows = self._stubbed_text(self._place_of(only))
            yield self._under_ctes(home.query.levels, f"SELECT {wanted} FROM {rows}")  # noqa: S608
        if left.at is None:
            wider = self._in_wider_queries(f"SELECT {wanted}", use.block)
            around = use.block.query.outer
            has_outer = around is not None and around.source is not None
            if has_outer and not all(key.constant for key in question.keys):
                next(wider)  # by itself the query around it is sure to be missing
        elif left.is_query:
            wider = self._in_wider_queries(f"{self._stubbed_text(left.at)} |> SELECT {wanted}", home)
        else:
            wider = self._in_wider_queries(f"SELECT {wanted} FROM {self._stubbed_text(left.at)}", home)  # noqa: S608
        yield from wider

    def _single_relation_of(self, question: KeyQuestion) -> Relation | None:
        """The one relation that all columns of the keys are of, by their qualifier; else None.

        By itself it says the same as the whole left side, in a fraction of the time.
        """
        statement = self.statement
        trees = [statement.expression(part) for part in self._wanted_fragments(question)]
        columns = [column for tree in trees if tree is not None for column in tree.find_all(exp.Column)]
        qualifiers = {column.parts[0].name.lower() for column in columns if len(column.parts) > 1}
        is_told = None not in trees and not any(tree and tree.find(exp.Query) for tree in trees)
        if not is_told or len(qualifiers) != 1 or any(len(column.parts) == 1 for column in columns):
            return None
        named = [
            relation
            for relation in question.home.relations
            if (statement.alias_of(relation) or "").lower() in qualifiers and not relation.lateral
        ]
        return named[0] if len(named) == 1 and named[0] is not question.use.relation else None

    def _place_of(self, relation: Relation) -> Cut:
        return self.statement.tokens.place(relation)

    def _wanted_fragments(self, question: KeyQuestion) -> list[Fragment]:
        return [*(key.left for key in question.keys), *question.values]

    # --- texts -------------------------------------------------------------------------------------

    def _analysed_names(self, sql: str) -> tuple[str, ...] | None:
        if self._analyse is None:
            return None
        try:
            return tuple(name for name, _ in self._analyse(sql))
        except Exception:
            # For example a LATERAL subquery, which refers to relations elsewhere.
            return None

    def _part_texts(self, parts: Sequence[Fragment]) -> list[str]:
        return [part if isinstance(part, str) else self._with_variables(part) for part in parts]

    def _with_variables(self, part: Cut) -> str:
        """``part`` with a NULL of its type for each variable of the script."""
        tokens = self.statement.tokens
        if not self._variables:
            return self._stubbed_text(part)
        first, last = tokens.indices(part)
        edits = [
            Edit(tokens.cut(index, index), (f"CAST(NULL AS {self._variables[piece.name.lower()]})",))
            for index, piece in enumerate(tokens[first : last + 1], first)
            if piece.is_name and piece.name.lower() in self._variables
            if not (tokens.is_symbol(index - 1, ".") or tokens.is_symbol(index + 1, "("))
        ]
        return spliced(self.statement.text, [*self._stub_edits, *edits], part)

    def _in_wider_queries(self, body: str, block: Block) -> Iterator[str]:
        """``body`` by itself, then within each of the queries around it, whose columns it may name."""
        yield self._under_ctes(block.query.levels, body)
        for around in block.outward:
            if around is not block and around.source is not None:
                place, inner = self.statement.tokens.place, body
                body = _keys_over(self._stubbed_text(place(around.source)), inner)
                yield self._under_ctes(around.query.levels, body)
                # Expressions in ON may name the right side of a SEMI or ANTI join.
                each = [self._stubbed_text(place(relation)) for relation in around.relations]
                yield self._under_ctes(around.query.levels, _keys_over(", ".join(each), inner))

    def _under_ctes(self, levels: Sequence[Level], body: str) -> str:
        """``body`` below the WITHs that it can name: inner ones may hide outer ones of the same name."""
        for level in levels:
            if level:
                recursive = "RECURSIVE " if any(cte.recursive for cte in level) else ""
                ctes = ", ".join(self._stubbed_text(cte.at) for cte in level)
                body = f"WITH {recursive}{ctes} SELECT * FROM ({body})"  # noqa: S608 (the user's own text)
        return body

    def _levels_around(self, relation: Relation) -> Sequence[Level]:
        block = next(
            block
            for block in reversed(self.statement.structure.blocks)
            if block.first <= relation.first and relation.last <= block.last
        )
        return block.query.levels

    def _stubbed_text(self, part: Cut) -> str:
        if part not in self._texts:  # each join asks for the rows of the same left side
            self._texts[part] = spliced(self.statement.text, self._stub_edits, part)
        return self._texts[part]

    @cached_property
    def _stub_edits(self) -> list[Edit]:
        return self._edits_of_stubs({})

    def _edits_of_stubs(self, used: Mapping[int, Sequence[str]]) -> list[Edit]:
        stubs = (
            edit
            for use in self.statement.uses
            for edit in _stub_of_use(self.statement, use, columns=used.get(use.index))
        )
        asof = () if self._takes_asof else _edits_without_asof(self.statement)
        nearest = _edits_without_nearest(self.statement)
        return [*without_hints_and_times(self.statement), *stubs, *asof, *nearest]


def _edits_without_asof(statement: Statement) -> Iterator[Edit]:
    """The edits that make ordinary joins of ASOF JOINs with lookup tables: these give the same columns."""
    tokens = statement.tokens
    for use in statement.uses:
        step = use.step
        if step is None or step.match is None or not step.takes_nearest:
            continue
        word = next(at for at in range(step.first, use.relation.first) if tokens.is_word(at, "ASOF"))
        yield Edit(tokens.cut(word, word), ())
        first, last = tokens.indices(step.match)
        yield Edit(tokens.cut(first - 2, last + 1), ())
        if tokens.is_word(last + 2, "ON"):  # so that Spark reports errors in the comparison
            yield Edit(tokens.cut(last + 2, last + 2), ("ON (", step.match, ") AND"))


# Older Sparks do not know it, and none takes it over a stream. (docs/decisions/0300)
def _edits_without_nearest(statement: Statement) -> Iterator[Edit]:
    """The same of NEAREST BY; what it ranks by is analysed as a condition, if it can be one."""
    for use in statement.uses:
        step = use.step
        if step is None or step.nearest is None or step.words not in _WORDS_OF_NEAREST:
            continue
        tree = statement.expression(step.nearest)
        if tree is not None and not tree.find(exp.Query) and not is_random(tree):
            words = statement.tokens.cut(use.relation.last + 1, step.last)
            yield Edit(words, (" ON (", step.nearest, ") IS NOT NULL"))


_WORDS_OF_NEAREST = ((), ("INNER",), ("LEFT",), ("LEFT", "OUTER"))
"""The words before JOIN that NEAREST BY may have."""


def _keys_over(source: str, body: str) -> str:
    return f"SELECT __keys.* FROM {source}, LATERAL ({body}) AS __keys"  # noqa: S608 (the user's own text)


def without_hints_and_times(statement: Statement) -> Iterator[Edit]:
    """The edits that take LOOKUP hints out, and each FOR SYSTEM_TIME AS OF of a query or view."""
    yield from removals(statement.text, statement.own_names_in_hints)
    clauses = (statement.time_clause(relation) for relation in statement.timed)
    yield from (Edit(clause, ()) for clause in clauses if clause is not None)


def alias_text(statement: Statement, relation: Relation) -> str:
    """The name by which the query calls the relation, as the user wrote it, with its column list if any."""
    at = statement.alias_index(relation)
    assert at is not None, "a table has a name"
    if statement.tokens.is_word(at, "IDENTIFIER") and relation.alias_at is None:
        return quoted(relation.name)
    if relation.alias_at is None or not relation.columns:
        return statement.pieces[at].text
    return statement.tokens.cut(at, statement.tokens.closing(at + 1)).of(statement.text)


def selected_instead(statement: Statement, use: LookupUse) -> list[Edit]:
    """The edit that turns ``TABLE t`` into a SELECT, if the use is written so."""
    source = use.block.source
    if source is None or not statement.tokens.is_word(source.at, "TABLE"):
        return []
    return [Edit(statement.tokens.cut(source.at, source.at), ("SELECT * FROM",))]


def _stub_of_use(
    statement: Statement, use: LookupUse, condition: str = "false", columns: Sequence[str] | None = None
) -> Iterator[Edit]:
    relation, tokens = use.relation, statement.tokens
    at = tokens.cut(relation.start, relation.last)
    samples = [
        each for each in relation.extensions if tokens.is_word(tokens.index_at(each.start), "TABLESAMPLE")
    ]
    values = (
        f"CAST(NULL AS {sql_type(each.type)}) AS {quoted(each.name)}"
        for each in use.table.schema
        if columns is None or each.name in columns
    )
    rows = extended((f"(SELECT {', '.join(values)} WHERE {condition})",), samples)
    yield Edit(at, (*rows, " AS ", alias_text(statement, relation)))
    yield from selected_instead(statement, use)


def extended(rows: tuple[Fragment, ...], extensions: Sequence[Cut]) -> tuple[Fragment, ...]:
    """``rows``, a relation without alias, with samples and the like behind it; each further one around it."""
    for number, extension in enumerate(extensions):
        rows = (*rows, " ", extension) if number == 0 else ("(", *rows, ") ", extension)
    return rows


def guarded(statement: Statement, use: LookupUse) -> Iterator[Edit]:
    """Edits for a table in a CTE whose readers all look up by key instead: reading it becomes an error."""
    message = text_value(f"{use.table.name} is asked by key, and not read here")
    yield from _stub_of_use(statement, use, f"raise_error({message}) IS NOT NULL")


# --- places of Spark's errors -----------------------------------------------------------------------


_PLACE = re.compile(r"(?P<before>; )?\bline (?P<line>\d+)(?P<comma>,?) pos (?P<column>\d+)")
_SUGGESTED = re.compile(r" Did you mean one of the following\? \[(`[^\]]*)\]\.")
_PRIVATE_NAME = "`__lookup_"


def change_text_of(error: Exception, change: Callable[[str], str]) -> None:
    """Change what an error of PySpark says: of the JVM or of Spark Connect, and of Spark 3.5 or newer."""
    for name in {"_desc", "_message", "desc", "message"} & vars(error).keys():
        told = getattr(error, name)
        if isinstance(told, str):
            setattr(error, name, change(told))


def put_in_place(error: Exception, text: str, edits: Sequence[Edit], part: Cut) -> None:
    """Change the places that ``error`` names in the analysed ``part`` to those in ``text``.

    A place that is not found in ``text`` is left out, where the error says it last. Private names are not
    suggested.
    """

    def moved(match: re.Match[str]) -> str:
        found = original_place(text, edits, part, int(match["line"]), int(match["column"]))
        before = match["before"] or ""
        if found is None:
            return "" if before else match[0]
        return f"{before}line {found[0]}{match['comma']} pos {found[1]}"

    def suggested(match: re.Match[str]) -> str:
        names = [name for name in match[1].split(", ") if _PRIVATE_NAME not in name]
        return match[0].replace(match[1], ", ".join(names)) if names else ""

    change_text_of(error, lambda told: _SUGGESTED.sub(suggested, _PLACE.sub(moved, told)))


def original_place(
    text: str, edits: Sequence[Edit], part: Cut, line: int, column: int
) -> tuple[int, int] | None:
    """Map a place in the edited ``part`` back to its line (from 1) and column (from 0) in ``text``.

    None for text that an edit adds.

    >>> original_place("SELECT x FROM long_name a, b", [Edit(Cut(14, 23), ("n",))], Cut(0, 28), 1, 19)
    (1, 27)
    """
    lines = spliced(text, edits, part).split("\n")[: line - 1]
    offset = original_offset(text, edits, part, sum(len(each) + 1 for each in lines) + column)
    if offset is None:
        return None
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n") - 1


def as_written(statement: Statement, part: Cut) -> str:
    """``part`` with blanks for all text before it, and for LOOKUP hints, so that places stay the same."""
    out = statement.text[: part.end]
    for edit in removals(statement.text, statement.own_names_in_hints):
        if edit.at.end <= part.end:
            out = out[: edit.at.start] + _blank_out(edit.at.of(statement.text)) + out[edit.at.end :]
    return _blank_out(out[: part.start]) + out[part.start :]


def _blank_out(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
