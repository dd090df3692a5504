"""Facts about one statement with lookup tables, each computed once, before any decision."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.hints.hint_comments import LookupHint
from lookup_hints.plan.column_pruning import used_columns
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.query_parts import is_one_query, script_variables
from lookup_hints.plan.parse.statement import Remembering, Statement
from lookup_hints.plan.scopes import Scopes
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analysis, NamesAndTypes
from lookup_hints.plan.table_use import TableUse
from lookup_hints.plan.views_and_derived_tables import ViewResolver, names_view


class Facts(Remembering):
    """Facts about a whole statement that do not depend on what its uses of lookup tables become."""

    def __init__(self, statement: Statement, context: Context, hints: tuple[LookupHint, ...]) -> None:
        """Computes nothing yet; each fact is computed on first use and kept."""
        super().__init__()
        self.statement, self.context, self.hints = statement, context, hints
        # Spark 4.3 and later can run an ASOF JOIN itself, if this setting is on.
        takes_asof = (context.conf("spark.sql.join.asofJoin.enabled") or "false").lower() == "true"
        self.analysis = Analysis(
            statement, context.analyse, script_variables(statement), takes_asof=takes_asof
        )
        case_sensitive = (context.conf("spark.sql.caseSensitive") or "false").lower() == "true"
        self._views = ViewResolver(statement, context.find_view, case_sensitive)
        self._scopes = Scopes(statement, self.analysis, case_sensitive)

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
        return self.analysis.output({use.index: each for use in self.uses if (each := _columns_named(use))})

    @cached_property
    def uses(self) -> tuple[TableUse, ...]:
        """Every place where the statement reads a lookup table, in the order of the text."""
        return self._as_table_uses(self.statement.uses)

    @cached_property
    def looked_through(self) -> tuple[TableUse, ...]:
        """The uses that see a lookup table through a derived table, CTE or view."""
        return self._as_table_uses(self._views.uses())

    def _as_table_uses(self, uses: Iterable[LookupUse]) -> tuple[TableUse, ...]:
        return tuple(
            TableUse(
                **vars(use),
                statement=self.statement,
                context=self.context,
                hints=self.hints,
                scopes=self._scopes,
            )
            for use in uses
        )

    @cached_property
    def makes_a_view(self) -> bool:
        tokens = self.statement.tokens
        return tokens.is_word(0, "CREATE") and any(tokens.is_word(at, "VIEW") for at in range(1, 6))

    @cached_property
    def makes_view_of_one_table(self) -> bool:
        """Whether the statement creates a view that is one lookup table, and nothing more."""
        return self.makes_a_view and self._views.of_query(self.statement.structure.queries[0]) is not None


def _columns_named(use: TableUse) -> tuple[str, ...]:
    """The columns of ``use`` that the statement can name; empty if these are all, or are not known."""
    if use.relation.columns:
        return ()
    try:
        named = used_columns(use)
    except UnsupportedLookup:  # Spark's errors come first
        return ()
    return named if len(named) < len(use.table.schema) else ()
