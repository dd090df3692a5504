"""The nearest rows: what a call of ``lookup_join`` wants, and each distance as Spark SQL. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lookup_hints.errors import OptionError, Problem, nearest
from lookup_hints.spi.request_and_answer import METRICS

DISTANCE, SIMILARITY = "DISTANCE", "SIMILARITY"

MOST = 100_000
"""The most rows that can be the nearest ones, in Spark's ``NEAREST BY``."""

# Twice the mean radius of the Earth, in kilometres.
_EARTH = "12742.0176D"


@dataclass(frozen=True)
class Formula:
    """A metric as Spark SQL over the names ``a0``, ``b0`` (and ``a1``, ``b1`` ...) of what is compared.

    Args:
        metric: a key of ``METRICS``.
        text: the expression. ``{scale}`` is any number.
        by: whether its smallest (``DISTANCE``) or its largest values (``SIMILARITY``) are the nearest ones.
        needs: a function that not every Spark has.
        is_of_dates: whether it is so for dates alone, as of timestamps it counts whole days.
    """

    metric: str
    text: str
    by: str = DISTANCE
    needs: str = ""
    is_of_dates: bool = False

    def over(self, pairs: Sequence[tuple[str, str]], scale: str = _EARTH) -> str:
        """The expression over ``pairs`` of what is compared.

        >>> FORMULAS[-1].over([("q.name", "p.name")])
        'levenshtein(q.name, p.name)'
        """
        names = {f"{side}{at}": text for at, pair in enumerate(pairs) for side, text in zip("ab", pair)}  # noqa: B905
        return self.text.format(scale=scale, **names)


def _sum_over_elements(product: str) -> str:
    return f"aggregate(zip_with({{a0}}, {{b0}}, (x, y) -> {product}), 0D, (s, x) -> s + x)"


def _norm_of(side: str) -> str:
    return f"sqrt(aggregate({side}, 0D, (s, x) -> s + CAST(x AS DOUBLE) * x))"


def _trigrams_of(side: str) -> str:
    words = f"filter(split(lower({side}), r'[^\\p{{{{L}}}}\\p{{{{N}}}}]+'), w -> w <> '')"
    parts = "transform(sequence(1, length(w) + 1), i -> substr(concat('  ', w, ' '), i, 3))"
    return f"array_distinct(flatten(transform({words}, w -> {parts})))"


def _great_circle_texts() -> Iterator[str]:
    half = "pow(sin(radians({b%d} - {a%d}) / 2), 2)"
    for one, other in ("ab", "ba"):
        both = f"cos(radians({{{one}0}})) * cos(radians({{{other}0}}))"
        yield f"{{scale}} * asin(sqrt({half % (0, 0)} + {both} * {half % (1, 1)}))"


def _euclidean_texts(columns: int) -> Iterator[str]:
    for square in ("pow({a%d} - {b%d}, 2)", "({a%d} - {b%d}) * ({a%d} - {b%d})"):
        each = [square.replace("%d", str(number)) for number in range(columns)]
        yield f"sqrt({' + '.join(each)})"
        yield " + ".join(each)


_COSINE = "vector_cosine_similarity"
_INNER = "vector_inner_product"
_NORMS = f"{_norm_of('{a0}')} * {_norm_of('{b0}')}"
_SHARED = f"size(array_intersect({_trigrams_of('{a0}')}, {_trigrams_of('{b0}')}))"
_EITHER = f"size(array_union({_trigrams_of('{a0}')}, {_trigrams_of('{b0}')}))"

# The first formula of a metric is the one that is written; all are recognised. (docs/decisions/0300)
FORMULAS = (
    Formula("l2", "vector_l2_distance({a0}, {b0})", needs="vector_l2_distance"),
    Formula("l2", f"sqrt({_sum_over_elements('pow(CAST(x AS DOUBLE) - y, 2)')})"),
    Formula("cosine", f"1 - {_COSINE}({{a0}}, {{b0}})", needs=_COSINE),
    Formula("cosine", f"1 - {_sum_over_elements('CAST(x AS DOUBLE) * y')} / nullif({_NORMS}, 0D)"),
    Formula("cosine", f"-{_COSINE}({{a0}}, {{b0}})"),
    Formula("cosine", f"{_COSINE}({{a0}}, {{b0}})", SIMILARITY),
    Formula("inner-product", f"-{_INNER}({{a0}}, {{b0}})", needs=_INNER),
    Formula("inner-product", f"-{_sum_over_elements('CAST(x AS DOUBLE) * y')}"),
    Formula("inner-product", f"{_INNER}({{a0}}, {{b0}})", SIMILARITY),
    *(Formula("euclidean", text) for columns in (2, 3) for text in _euclidean_texts(columns)),
    *(Formula("great-circle", text) for text in _great_circle_texts()),
    Formula(
        "trigram",
        f"if({{a0}} IS NULL OR {{b0}} IS NULL, NULL, 1 - coalesce(try_divide({_SHARED}, {_EITHER}), 0D))",
    ),
    Formula("difference", "abs({a0} - {b0})"),
    Formula("difference", "-abs({a0} - {b0})", SIMILARITY),
    Formula("difference", "abs(datediff({a0}, {b0}))", is_of_dates=True),
    Formula("levenshtein", "levenshtein({a0}, {b0})"),
)


@dataclass(frozen=True)
class Nearest:
    """The rows of a lookup table that are nearest to each row of a frame, for ``session.lookup_join``.

    They are chosen among the rows that the keys of the join find, or among all rows without a key. A row
    of the frame comes once for each of them: ``k`` times, or fewer where there are fewer. A row whose
    distance is NULL is never near. Of equally near rows those with the smaller primary key come first.

    Args:
        left: what is compared: a column of the frame, an SQL expression over it, or a Column; for
            coordinates one for each of them.
        to: the column of the table, or its columns for coordinates; by default as ``left``.
        metric: ``l2``, ``cosine``, ``inner-product`` (of ARRAY<FLOAT>), ``difference`` (of numbers, dates or
            timestamps), ``levenshtein``, ``trigram`` (of texts), ``euclidean`` (of two or three coordinates)
            or ``great-circle`` (of a latitude and a longitude in degrees; kilometres).
        k: so many rows, from 1 to 100,000.
        within: rows at a greater distance are left out; None: none are. The distance of ``cosine`` and
            ``trigram`` is 1 less the similarity, that of ``inner-product`` its negative, that of dates and
            timestamps a ``timedelta``.
        exact: whether they must be the nearest rows. Otherwise a source may search by an approximate index.
        distance: the name of a column with the distance; None: there is none.

    Raises:
        OptionError: there is no such metric, a number is out of range, or the columns are not as many.

    Examples:
        >>> Nearest("embedding", metric="cosine", k=3, within=0.4).compared
        (('embedding', 'embedding'),)
    """

    left: Any
    to: Any = None
    metric: str = "difference"
    k: int = 1
    within: float | timedelta | None = None
    exact: bool = True
    distance: str | None = None

    def __post_init__(self) -> None:
        to = self.left if self.to is None else self.to
        columns = (to,) if isinstance(to, str) else tuple(to) if isinstance(to, Sequence) else ()
        object.__setattr__(self, "to", columns)
        problem = self._find_problem()
        if problem is not None:
            raise OptionError(problem)

    @property
    def compared(self) -> tuple[tuple[Any, str], ...]:
        """What of the frame is compared with which column of the table."""
        return tuple(zip(self._left_parts, self.to, strict=True))

    @property
    def _left_parts(self) -> tuple[Any, ...]:
        return tuple(self.left) if isinstance(self.left, list | tuple) else (self.left,)

    def _find_problem(self) -> Problem | None:
        if self.metric not in METRICS:
            return Problem(f"No metric is called {self.metric!r}.", tip=nearest(str(self.metric), [*METRICS]))
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MOST:
            return Problem(f"k is a whole number from 1 to {MOST:,}, not {self.k!r}.")
        if self.within is not None and not isinstance(self.within, int | float | timedelta):
            return Problem(f"within is a number or a timedelta, not {self.within!r}.")
        count = METRICS[self.metric]
        wanted = (2, 3) if count is None else (count,)
        if not self.to or not all(isinstance(name, str) for name in self.to):
            return Problem("The columns of the table are not named.", tip="Write to='name' or to=['x', 'y'].")
        if len(self.to) not in wanted or len(self._left_parts) != len(self.to):
            many, given = " or ".join(map(str, wanted)), f"{len(self._left_parts)} with {len(self.to)}"
            return Problem(f"{self.metric} compares {many} on each side, not {given}.")
        return None

    @property
    def limit(self) -> str:
        """``within`` as SQL."""
        if isinstance(self.within, timedelta):
            return f"make_dt_interval(0, 0, 0, {self.within.total_seconds():.6f})"
        return f"CAST('{self.within!r}' AS DOUBLE)"

    def expression(self, pairs: Sequence[tuple[str, str]], has_function: Callable[[str], bool]) -> str:
        """The distance as SQL over ``pairs`` of texts, by functions that Spark has."""
        every = (each for each in FORMULAS if each.metric == self.metric and each.by == DISTANCE)
        formula = next(
            each
            for each in every
            if not each.needs or has_function(each.needs)
            if f"{{b{len(pairs) - 1}}}" in each.text and f"{{b{len(pairs)}}}" not in each.text
        )
        return formula.over(pairs)
