"""Estimate the lookups of a planned statement: its left sides are run and counted, nothing is looked up."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lookup_hints.driver.parse_and_plan import Prepared
from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.driver.table_sizes import explained_cost
from lookup_hints.errors import Problem, QueryError
from lookup_hints.estimate.figures import (
    LARGEST_WINDOW,
    Figure,
    Money,
    Pace,
    WindowKeys,
    keys_of_windows,
    money_of,
    requests_of_windows,
    seconds_of,
    window_bounds,
)
from lookup_hints.estimate.report import LookupEstimate, ReadEstimate, StatementEstimate, admission_problem
from lookup_hints.metrics.lookup_metrics import Latencies, LookupMetrics
from lookup_hints.plan.cost import bytes_of
from lookup_hints.plan.decide.budgets import cluster_of
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.explain import rows_of
from lookup_hints.plan.joins import LookupJoin, LookupPlan
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.plan.write.left_rows_to_count import (
    CannotBeCounted,
    LeftRowsToCount,
    key_expressions,
    left_rows_to_count,
)
from lookup_hints.retry import RetryPolicy

if TYPE_CHECKING:
    from pyspark.sql import Row

EXACT_BYTES = 64 * 1024**2
"""Of left sides that Spark thinks to be no larger, distinct keys are counted exactly."""

_STANDARD_ERROR = 0.01
# The number of a row in its partition is in the lower bits of its `monotonically_increasing_id`.
_ROW_BITS = (1 << 33) - 1
_SHUFFLE = re.compile(r"\bExchange\b")
_SIX_SIGMA = 6.0

_log = logging.getLogger("lookup_hints")


@dataclass(frozen=True)
class _Counted:
    """The windows of one left side: for each join the keys in each of them."""

    windows: Sequence[Sequence[WindowKeys]]
    is_approximate: bool
    is_stable: bool

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.windows[0])


def estimate_lookups(
    prepared: Prepared, scope: StatementScope, sample: float | None = None
) -> StatementEstimate:
    """What the lookups of a statement will cost. Runs the left sides of its joins, and no lookup.

    Args:
        prepared: the statement.
        scope: its session.
        sample: the share of left rows that are counted; None counts all.

    Raises:
        QueryError: ``sample`` is no share.
    """
    if sample is not None and not 0 < sample <= 1:
        tip = "Write sample=0.01, or --sample 1%."
        raise QueryError(Problem(f"A sample is a share above 0 and at most 1, not {sample:g}.", tip=tip))
    plan = prepared.plan
    if plan is None:
        return StatementEstimate(())
    reads = tuple(
        ReadEstimate(each.use.table.name, rows_of(each), each.decision.reason) for each in plan.scans
    )
    lookups = _Estimation(prepared, plan, scope, sample).lookups()
    part = "" if sample is None else f" for {sample:.4g} of its rows"
    ran = f"The left side was run{part} and counted; no lookup was made." if lookups else ""
    return StatementEstimate(tuple(lookups), reads, ran)


class _Estimation:
    """The estimate of one statement."""

    def __init__(
        self, prepared: Prepared, plan: LookupPlan, scope: StatementScope, sample: float | None
    ) -> None:
        self._args, self._plan, self._scope, self._sample = prepared.args, plan, scope, sample
        self._line = prepared.line
        conf = scope.settings()
        self._cluster = cluster_of(conf, session_option("cluster-tasks", conf))
        self._metrics = scope.state.functions.metrics()

    def lookups(self) -> list[LookupEstimate]:
        found: dict[int, LookupEstimate] = {}
        groups = defaultdict[tuple[str, bool], list[tuple[LookupJoin, LeftRowsToCount]]](list)
        for join in self._plan.joins:
            try:
                left = left_rows_to_count(self._plan.joins, join)
            except CannotBeCounted as unknown:
                bound = None if unknown.bound is None else self._rows_of(join, unknown.bound)
                found[join.use.index] = self._unknown_estimate(join, unknown.reason, bound)
            else:
                groups[self._left_text(join, left, ["NULL"]), _is_careful(join)].append((join, left))
        for group in groups.values():
            found.update({join.use.index: each for join, each in self._estimate_group(group)})
        return [found[join.use.index] for join in self._plan.joins]

    def _left_text(self, join: LookupJoin, left: LeftRowsToCount, wanted: Sequence[str]) -> str:
        sampled = () if self._sample is None or self._sample == 1 else (f"rand() < {self._sample}",)
        analysis = Analysis(join.use.statement, None)
        return analysis.selecting(left.home, left.left, wanted, (*left.conditions, *sampled))

    def _rows_of(self, join: LookupJoin, left: LeftRowsToCount) -> Figure | None:
        """The left rows, which bound a lookup whose keys are not known before it runs."""
        counting = f"SELECT count(1) FROM ({self._left_text(join, left, ['1 AS one'])})"  # noqa: S608
        try:
            count = int(self._scope.sql(counting, self._args).collect()[0][0])
        except Exception:  # Spark cannot analyse this part of the statement alone
            return None
        return self._of_all_rows(count)

    def _of_all_rows(self, counted: int) -> Figure:
        """The rows of which a sample has ``counted``."""
        if self._sample is None or self._sample == 1:
            return Figure.exactly(counted)
        spread = _SIX_SIGMA * (counted + _SIX_SIGMA**2) ** 0.5
        least = max(counted, int((counted - spread) / self._sample))
        return Figure(least, int((counted + spread) / self._sample) + 1, round(counted / self._sample))

    def _estimate_group(
        self, group: Sequence[tuple[LookupJoin, LeftRowsToCount]]
    ) -> Iterator[tuple[LookupJoin, LookupEstimate]]:
        """The estimates of joins that share a left side: one query counts it for all."""
        try:
            counted = self._count_windows(group)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            for join, _ in group:
                yield join, self._unknown_estimate(join, f"Spark cannot count its left side alone: {reason}")
            return
        for (join, left), windows in zip(group, counted.windows, strict=True):
            yield join, self._estimate_join(join, left, counted, windows)

    def _count_windows(self, group: Sequence[tuple[LookupJoin, LeftRowsToCount]]) -> _Counted:
        wanted, counts, keys = list[str](), ["count(1)"], list[str]()
        for number, (join, _) in enumerate(group):
            expressions = key_expressions(Analysis(join.use.statement, None), join)
            names = [f"k{number}_{at}" for at in range(len(expressions))]
            wanted += [f"{text} AS {name}" for text, name in zip(expressions, names, strict=True)]
            asking = " AND ".join(f"{name} IS NOT NULL" for name in names)
            compared = names if join.function.order_asked else names[: len(join.function.key_columns)]
            key = compared[0] if len(compared) == 1 else f"struct({', '.join(compared)})"
            keys.append(f"IF({asking}, {key}, NULL) AS k{number}")
        join, left = group[0]
        rows = ("spark_partition_id() AS p", f"monotonically_increasing_id() & {_ROW_BITS} AS n")
        inner = self._left_text(join, left, [*rows, *wanted])
        frame = self._scope.sql(inner, self._args)
        size = bytes_of(explained_cost(frame))
        is_exact = size is not None and size <= EXACT_BYTES
        for number in range(len(group)):
            key = f"k{number}"
            of_key = (
                f"count(DISTINCT {key})" if is_exact else f"approx_count_distinct({key}, {_STANDARD_ERROR})"
            )
            counts += [f"count({key})", of_key]
        window = _window_expression(is_careful=_is_careful(join))
        counting = (
            f"SELECT {', '.join(counts)} FROM (SELECT p, {window} AS w, {', '.join(keys)}"  # noqa: S608
            f" FROM ({inner})) GROUP BY p, w"
        )
        found: Sequence[Row] = self._scope.sql(counting, self._args).collect()
        windows = [
            [WindowKeys(row[0], row[1 + 2 * at], row[2 + 2 * at]) for row in found]
            for at in range(len(group))
        ]
        is_cut_alike = not _SHUFFLE.search(self._scope.explained(inner, self._args, "formatted"))
        return _Counted(windows, not is_exact, is_cut_alike and self._sample in (None, 1))

    def _estimate_join(
        self, join: LookupJoin, left: LeftRowsToCount, counted: _Counted, windows: Sequence[WindowKeys]
    ) -> LookupEstimate:
        settings, notes = join.function.settings, list[str]()
        is_stable = counted.is_stable and not join.shuffled
        rows = self._of_all_rows(counted.rows)
        keys = keys_of_windows(windows, is_approximate=counted.is_approximate, is_stable=is_stable)
        if self._sample not in (None, 1):
            asking = self._of_all_rows(sum(each.asking for each in windows))
            keys = Figure(keys.least, asking.most)
        elif not is_stable:
            notes.append("a shuffle before the lookup decides which keys its tasks share")
        if counted.is_approximate:
            notes.append("distinct keys are counted by HyperLogLog, to within 5 %")
        if left.why_more:
            rows, keys = Figure(0, None), Figure(0, None)
            notes.append(left.why_more)
        elif left.why_fewer:
            asking_most = sum(each.asking for each in windows) if rows.is_exact else rows.most
            rows, keys = Figure(0, rows.most), Figure(0, asking_most)
            notes.append(left.why_fewer)
        cached = ""
        if settings.whole is not None:
            cached = "the whole table, once each executor has read it"
            keys, windows = Figure.exactly(0), ()
        elif settings.cache is not None:
            cached = "UNKNOWN: executors keep answers, and share them between tasks"
            keys = Figure(0, keys.most)
        elif settings.switch is not None:
            notes.append(f"{settings.switch}")
            least = min(keys.least, settings.switch.keys)
            keys = (
                keys
                if keys.most is not None and keys.most < settings.switch.keys
                else Figure(least, keys.most)
            )
        return self._add_requests(
            LookupEstimate(join.function.name, rows, keys, None, None, None, cached, tuple(notes)),
            join,
            windows,
            is_stable=is_stable,
        )

    def _add_requests(
        self, estimate: LookupEstimate, join: LookupJoin, windows: Sequence[WindowKeys], *, is_stable: bool
    ) -> LookupEstimate:
        """The estimate with what follows from its keys: requests, time and money."""
        keys = estimate.keys or Figure(0, None)
        seconds, settings = self._seconds_of_request(join), join.function.settings
        size = 1 if join.function.by_row else settings.batch_size
        requests = requests_of_windows(windows, keys, batch_size=size, seconds=seconds, is_stable=is_stable)
        notes = estimate.notes
        if settings.retry != RetryPolicy():
            notes = (*notes, "retries come on top")
        return replace(
            estimate,
            requests=requests,
            seconds=seconds_of(requests, self._pace_of(join, seconds)),
            money=_price_of(join, keys, requests),
            max_requests=join.use.value_of("max-requests").value,
            notes=notes,
        )

    def _unknown_estimate(self, join: LookupJoin, reason: str, rows: Figure | None = None) -> LookupEstimate:
        most = None if rows is None else rows.most
        keys = Figure(0, most)
        return self._add_requests(
            LookupEstimate(join.function.name, keys, keys, None, notes=(reason,)), join, (), is_stable=False
        )

    def _seconds_of_request(self, join: LookupJoin) -> float | None:
        """What a request to the table took, in earlier statements of this session or by the doctor."""
        table, seen = join.function.table.name, Latencies()
        for name, counts in self._metrics.items():
            if name.table == table:
                seen += counts.latency
        return seen.quantile(0.5) if seen.total else self._scope.state.doctor_seconds.get(table.lower())

    def _pace_of(self, join: LookupJoin, seconds: float | None) -> Pace:
        settings, cluster = join.function.settings, self._cluster
        budget, tasks = settings.budget, cluster.tasks
        each = settings.capacity if settings.asynchronous else 1
        each = min(each, join.function.connector.requests_at_once() or each)
        in_flight = None if tasks is None else tasks * each
        if budget.concurrency is not None and budget.executors is not None:
            allowed = budget.concurrency * budget.executors
            in_flight = allowed if in_flight is None else min(in_flight, allowed)
        rate = None if budget.rate is None else budget.rate * (budget.executors or 1)
        if rate is None and budget.task_rate is not None and tasks is not None:
            rate = budget.task_rate * tasks
        return Pace(rate, in_flight, seconds)


def _price_of(join: LookupJoin, keys: Figure, requests: Figure) -> Money | None:
    """What requests and the rows found for keys cost, by the prices of the table."""
    key = set(join.function.table.primary_key)
    is_unique = bool(key and key <= set(join.function.key_columns))
    prices = (join.use.value_of(f"price-per-{what}").value for what in ("request", "row"))
    return money_of(requests, Figure(0, keys.most if is_unique else None), *prices)


def _is_careful(join: LookupJoin) -> bool:
    return join.function.by_row or join.function.settings.stops_early


def _window_expression(*, is_careful: bool) -> str:
    """The number of the window that takes row ``n`` of a task."""
    bounds = window_bounds(is_careful=is_careful)
    cases = " ".join(f"WHEN n < {bound} THEN {number}" for number, bound in enumerate(bounds))
    return f"CASE {cases} ELSE {len(bounds)} + (n - {bounds[-1]}) div {LARGEST_WINDOW} END"


# --- streams ----------------------------------------------------------------------------------------


def estimate_of_last_batch(prepared: Prepared, scope: StatementScope) -> StatementEstimate:
    """What the lookups of a stream did in its last micro-batch that had any: the next may be alike.

    Raises:
        QueryError: no query of this statement has run in this session.
    """
    joins = () if prepared.plan is None else prepared.plan.joins
    wanted = {join.function.name.function for join in joins}
    for stream in reversed(scope.state.streams.started):
        for batch in reversed(stream.history):
            counts = {name.function: each for name, each in batch.lookups.items()}
            if wanted and wanted <= counts.keys():
                ran = (
                    f"Measured in micro-batch {batch.number} of {stream.supervised.name}; nothing was run."
                    " The next one may differ."
                )
                return StatementEstimate(
                    tuple(_estimate_of_batch(join, counts[join.function.name.function]) for join in joins),
                    ran=ran,
                )
    message = "A stream has no end up to which its left side could be counted, and has had no batch yet."
    tip = "Start it: then EXPLAIN ESTIMATE of the same statement gives the figures of its last batch."
    raise QueryError(Problem(message, tip=tip))


def _estimate_of_batch(join: LookupJoin, counts: LookupMetrics) -> LookupEstimate:
    rows, requests = Figure.exactly(counts.rows_in), Figure.exactly(counts.requests)
    keys = Figure.exactly(counts.keys)
    seconds = Figure.exactly(counts.seconds) if counts.tasks == 1 else Figure(0, counts.seconds)
    return LookupEstimate(join.function.name, rows, keys, requests, seconds, _price_of(join, keys, requests))


# --- admission --------------------------------------------------------------------------------------


def check_admission(prepared: Prepared, scope: StatementScope) -> None:
    """Hold ``lookup.max-requests`` against an estimate, where ``lookup.admission`` says so.

    Raises:
        QueryError: the statement would surely send more requests, and admission is ``refuse``.
    """
    plan = prepared.plan
    checked = [] if plan is None else [join for join in plan.joins if _admission_of(join) != "off"]
    if not checked:
        return
    estimate = estimate_lookups(prepared, scope)
    requests = dict[tuple[str, str], Figure]()
    for join, each in zip(plan.joins if plan else (), estimate.lookups, strict=True):
        key = _shared_budget(join)
        requests[key] = requests.get(key, Figure.exactly(0)) + (each.requests or Figure(0, None))
    for join in checked:
        limit, key = join.use.value_of("max-requests").value, _shared_budget(join)
        problem = admission_problem(join.use.table.name, requests[key], limit)
        if problem and _admission_of(join) == "refuse":
            tip = (
                "Raise 'lookup.max-requests', narrow the left side, or use a cache."
                " To run it all the same: SET lookup.admission = off. EXPLAIN ESTIMATE shows all figures."
            )
            raise QueryError(Problem(f"{problem}. No request was sent.", tip=tip))
        if problem:
            _log.warning("%s.", problem)


def _admission_of(join: LookupJoin) -> str:
    """Whether a join is held against its limit: ``off`` where it has none."""
    has_limit = join.use.value_of("max-requests").value is not None
    return str(join.use.value_of("admission").value) if has_limit else "off"


def _shared_budget(join: LookupJoin) -> tuple[str, str]:
    """What its requests are counted with: those of a budget's name, else of an origin."""
    name = join.function.settings.budget.name
    return (name, "") if name else ("", join.function.connector.origin() or join.function.table.name)
