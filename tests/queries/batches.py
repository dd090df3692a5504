"""Queries with and without lookup tables, many in one job of Spark: a job costs more than these queries do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from lookup_hints.errors import HintError, InternalError, UnsupportedLookup
from tests.queries.trees import CORRECTED, LOOKUPS, as_it_was, as_it_was_known
from tests.queries.worlds import QUICK, Worlds, with_ties_by_key
from tests.spark.answers import answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Each query is few rows in one partition: nothing is shuffled, compiled, or planned again at run time. But it is run:
# the optimizer computes nothing by itself.
CONF = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    **QUICK,
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.crossJoin.enabled": "true",
}


# Spark cannot select ``c.k`` where ``LEFT JOIN c USING (k)`` stands behind a LATERAL join: it loses the column.
_SPARKS_BUG = "[MISSING_ATTRIBUTES."


@dataclass(frozen=True)
class Pair:
    """A query over ordinary tables, and over lookup tables unless it is refused."""

    text: str
    plain: DataFrame
    ours: DataFrame | None


@dataclass
class Both:
    """Runs queries with and without lookup tables, several in one job of Spark."""

    worlds: Worlds

    def check(self, texts: list[str]) -> None:
        """Each query must be refused or give what Spark gives without lookup tables."""
        failures = list(self.failures(self.pairs(texts)))
        assert not failures, "\n\n".join(failures)

    def pairs(self, texts: list[str]) -> list[Pair]:
        """Those of ``texts`` that Spark takes, with and without lookup tables."""
        return [pair for text in texts if (pair := self._pair(text)) is not None]

    def failures(self, pairs: list[Pair]) -> Iterator[str]:
        """What is wrong with the answers of ``pairs``, as one text for each that differs."""
        running = [pair for pair in pairs if pair.ours is not None]
        if not running:
            return
        try:
            found = answers(
                [each for pair in running for each in (pair.plain, pair.ours) if each is not None]
            )
        except Exception as error:
            if len(running) > 1:
                for pair in running:
                    yield from self.failures([pair])
            elif self._runs(running[0].plain):
                yield f"{_first_line(error)}, in\n{running[0].text}"
            return
        for number, pair in enumerate(running):
            try:
                found[2 * number + 1].require(found[2 * number], pair.text, ordered=False)
            except AssertionError as difference:
                yield str(difference)

    def _pair(self, text: str) -> Pair | None:
        """The query twice; None where Spark itself refuses it, as then we must."""
        from pyspark.errors import AnalysisException

        session = self.worlds.world(LOOKUPS | {CORRECTED}, _read(text)).session
        ours = as_it_was_known(as_it_was(text) if crc32(text.encode()) & 64 else text)
        try:
            plain = self.worlds.plain.sql(self.worlds.plain_text(text))
        except AnalysisException as error:
            if _SPARKS_BUG in str(error):
                return None
            try:
                # Not `ours`: what ON may name, as a column that USING hides, MATCH_CONDITION may not.
                session.sql(text)
            except InternalError:
                raise
            except Exception:
                return None
            raise AssertionError(f"Spark refuses what runs with lookup tables:\n{text}") from None
        try:
            if with_ties_by_key(ours) != ours:
                plan = session.prepare(ours).plan
                # Of a table that is read, Spark takes any of the rows that are equally near.
                ours = with_ties_by_key(ours) if plan is None or "NEAREST" in plan.sql else ours
            return Pair(ours, plain, session.sql(ours))
        except UnsupportedLookup:
            return Pair(ours, plain, None)
        except HintError as error:
            if "because a lookup_get in ON has its columns as key" not in str(error):
                raise AssertionError(f"{_first_line(error)}, in\n{ours}") from error
            return Pair(ours, plain, None)
        except Exception as error:
            raise AssertionError(f"{_first_line(error)}, in\n{ours}") from error

    def _runs(self, frame: DataFrame) -> bool:
        """Whether Spark itself runs the query to its end."""
        try:
            frame.collect()
        except Exception:
            return False
        return True


def _read(text: str) -> frozenset[str]:
    """Which lookup tables are read whole in the query, though they could be asked: none in half of them.

    None where a hint wants a table asked: it is an error if its table says otherwise and has no key.
    """
    number = 0 if "EXTERNAL_LOOKUP" in text else crc32(text.encode())
    return frozenset(name for bit, name in enumerate(sorted(LOOKUPS), 1) if number & 1 and number >> bit & 1)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
