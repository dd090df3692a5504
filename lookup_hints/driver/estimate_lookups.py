"""Estimate the lookups of a planned statement: its left sides are run and counted, nothing is looked up."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lookup_hints.driver.parse_and_plan import Prepared
from lookup_hints.driver.shipping import shipped, strip_annotations
from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.driver.table_sizes import explained_cost
from lookup_hints.errors import Problem, QueryError, cause_of, counted
from lookup_hints.estimate.figures import (
    LARGEST_WINDOW,
    UNKNOWN,
    Figure,
    KeysOfSample,
    Money,
    Pace,
    SampledKeys,
    WindowKeys,
    keys_of_windows,
    last_hash_of_share,
    money_of,
    requests_of_windows,
    seconds_of,
    share_of_hashes,
    window_bounds,
)
from lookup_hints.estimate.report import (
    EstimateOptions,
    LookupEstimate,
    ReadEstimate,
    StatementEstimate,
    admission_problem,
)
from lookup_hints.metrics.lookup_metrics import Latencies, LookupMetrics
from lookup_hints.plan.cost import bytes_of
from lookup_hints.plan.decide.budgets import cluster_of
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.explain import rows_of
from lookup_hints.plan.joins import LookupJoin, LookupPlan
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.plan.write.left_rows_to_count import (
    CannotBeCounted,
    KeysBehindLookup,
    LeftRowsToCount,
    asked_key,
    key_expressions,
    left_rows_to_count,
)
from lookup_hints.plan.write.sample_of_keys import sample_query
from lookup_hints.process.open_connectors import install_tip
from lookup_hints.retry import RetryPolicy
from lookup_hints.worker.held_answers import HELD, count_held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXACT_BYTES = 64 * 1024**2
"""Of left sides that Spark thinks to be no larger, distinct keys are counted exactly."""

# Of smaller ones the requests of each window are told.
_SMALL_BYTES = 1024**2
_STANDARD_ERROR = 0.01
_FIRST_ROWS, _FEWEST_REPEATED = 8192, 0.01
# The number of a row in its partition is in the lower bits.
_ROW = "monotonically_increasing_id()"
_ROW_BITS = (1 << 33) - 1
_SHUFFLE = re.compile(r"\bExchange\b")

_log = logging.getLogger("lookup_hints")


@dataclass(frozen=True)
class _Counted:
    """The windows of one left side: for each join the keys in each of them."""

    windows: Sequence[Sequence[WindowKeys]]
    is_approximate: bool
    is_stable: bool
    samples: Sequence[KeysOfSample] = ()

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.windows[0])


@dataclass(frozen=True)
class _Held:
    """How many distinct keys there are, and how many of them a cache answers."""

    keys: int
    held: int


def estimate_lookups(
    prepared: Prepared, scope: StatementScope, options: EstimateOptions
) -> StatementEstimate:
    """What the lookups of a statement will cost. Runs the left sides, and looks up ``options.ask`` keys."""
    plan = prepared.plan
    if plan is None:
        return StatementEstimate(())
    reads = tuple(
        ReadEstimate(each.use.table.name, rows_of(each), each.decision.reason) for each in plan.scans
    )
    estimation = _Estimation(prepared, plan, scope, options)
    lookups = estimation.lookups()
    part = "" if options.sample is None else f" {options.sample:.4g} of its keys were"
    ran = f"The left side was run and{part} counted; {estimation.looked_up}." if lookups else ""
    return StatementEstimate(tuple(lookups), reads, ran)


class _Estimation:
    """The estimate of one statement."""

    def __init__(
        self, prepared: Prepared, plan: LookupPlan, scope: StatementScope, options: EstimateOptions
    ) -> None:
        self._args, self._plan, self._scope = prepared.args, plan, scope
        self._sample = None if options.sample == 1 else options.sample
        self._ask, self._asked = options.ask, list[str]()
        self._most_windows = dict[int, int]()
        conf = scope.settings()
        self._cluster = cluster_of(conf, session_option("cluster-tasks", conf))
        self._metrics = scope.state.functions.metrics()

    @property
    def looked_up(self) -> str:
        """Which lookups were made, as text."""
        if not self._asked:
            return "no lookup was made"
        return f"at most {counted(self._ask or 0, 'key')} of {' and of '.join(self._asked)} were looked up"

    def lookups(self) -> list[LookupEstimate]:
        found: dict[int, LookupEstimate] = {}
        lefts, behind = dict[int, LeftRowsToCount](), list[tuple[LookupJoin, KeysBehindLookup]]()
        groups = defaultdict[tuple[str, bool], list[tuple[LookupJoin, LeftRowsToCount]]](list)
        for join in self._plan.joins:
            try:
                left = left_rows_to_count(self._plan.joins, join)
            except CannotBeCounted as unknown:
                bound = None if unknown.bound is None else self._rows_of(join, unknown.bound)
                found[join.use.index] = self._unknown_estimate(join, unknown.reason, bound)
                behind += [] if unknown.behind is None else [(join, unknown.behind)]
            else:
                lefts[join.use.index] = left
                groups[self._left_text(join, left, ["NULL"]), _is_careful(join)].append((join, left))
        for group in groups.values():
            found.update({join.use.index: each for join, each in self._estimate_group(group)})
        for before in {each.before.use.index for _, each in behind} & lefts.keys() if self._ask else ():
            sampled = [(join, each) for join, each in behind if each.before.use.index == before]
            found.update(self._estimate_behind(lefts[before], sampled, found))
        return [found[join.use.index] for join in self._plan.joins]

    def _left_text(self, join: LookupJoin, left: LeftRowsToCount, wanted: Sequence[str]) -> str:
        analysis = Analysis(join.use.statement, None)
        return analysis.selecting(left.home, left.left, wanted, left.conditions)

    def _rows_of(self, join: LookupJoin, left: LeftRowsToCount) -> Figure | None:
        """The left rows, which bound a lookup whose keys are not known before it runs."""
        counting = f"SELECT count(1) FROM ({self._left_text(join, left, ['1 AS one'])})"  # noqa: S608
        try:
            return Figure.exactly(self._scope.sql(counting, self._args).collect()[0][0])
        except Exception:  # Spark cannot analyse this part of the statement alone
            return None

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
        for at, (join, left) in enumerate(group):
            yield join, self._estimate_join(join, left, counted, at)

    def _count_windows(self, group: Sequence[tuple[LookupJoin, LeftRowsToCount]]) -> _Counted:
        wanted, keys = [f"{_ROW} AS r"], list[str]()
        for number, (join, _) in enumerate(group):
            expressions = key_expressions(Analysis(join.use.statement, None), join)
            names = [f"k{number}_{at}" for at in range(len(expressions))]
            wanted += [f"{text} AS {name}" for text, name in zip(expressions, names, strict=True)]
            keys.append(f"{asked_key(join, names)} AS k{number}")
        join, left = group[0]
        inner = self._left_text(join, left, wanted)
        frame = self._scope.sql(inner, self._args)
        explained = explained_cost(frame)
        size = bytes_of(explained)
        is_cut_alike = bool(explained) and not _SHUFFLE.search(explained)
        listed = [f"{_window_of_row(is_careful=_is_careful(join))} AS w", *keys]
        is_exact = size is not None and size <= EXACT_BYTES
        if self._sample is not None:
            text = f"SELECT {', '.join(listed)} FROM ({inner})"  # noqa: S608
            samples = [self._count_sample(text, at) for at in range(len(group))]
            windows = [windows for windows, _ in samples]
            return _Counted(windows, False, is_cut_alike, [sample for _, sample in samples])
        # Spark would list the files of a path again for each further text.
        rows = frame.selectExpr(*listed)
        is_by_key = is_cut_alike and len(group) == 1 and (size is None or size > _SMALL_BYTES)
        if is_by_key and (is_exact or self._has_few_keys(rows)):
            return _Counted([self._count_few_keys(rows)], False, is_cut_alike)
        of_key = "count(DISTINCT k{0})" if is_exact else f"approx_count_distinct(k{{0}}, {_STANDARD_ERROR})"
        counts = [each for at in range(len(group)) for each in (f"count(k{at})", of_key.format(at))]
        found = _count_groups(rows, ["w"], ["count(1)", *counts]).collect()
        windows = [
            [WindowKeys(row[1], row[2 + 2 * at], row[3 + 2 * at]) for row in found]
            for at in range(len(group))
        ]
        return _Counted(windows, not is_exact, is_cut_alike)

    # Keys are chosen by their hashes, and not rows at random: a key is counted in all its windows or in none.
    def _count_sample(self, rows: str, at: int) -> tuple[list[WindowKeys], KeysOfSample]:
        """The rows of all windows, and their keys among a share of all keys."""
        assert self._sample is not None, "it is asked for"
        key, last = f"k{at}", last_hash_of_share(self._sample)
        by_window = (
            f"SELECT w, IF(xxhash64({key}) <= {last}L, {key}, NULL) AS s, count(1) AS n, count({key}) AS a"  # noqa: S608
            f" FROM ({rows}) GROUP BY ALL"
        )
        sums = "SELECT w, sum(n) AS n, sum(a) AS a, count(s) AS c"
        counting = (
            "SELECT w, sum(n), sum(a), sum(c), sum(c * c), count_if(c > 0)"  # noqa: S608
            f" FROM ({sums} FROM ({by_window}) GROUP BY GROUPING SETS ((w), (s))) GROUP BY w"
        )
        found = self._scope.sql(counting, self._args).collect()
        windows = [WindowKeys(*row[1:4]) for row in found if row[0] is not None]
        pairs, squares, distinct = next((row[3:6] for row in found if row[0] is None), (0, 0, 0))
        return windows, KeysOfSample(self._sample, distinct, pairs, squares)

    def _has_few_keys(self, rows: DataFrame) -> bool:
        """Whether keys repeat among the first rows, so that grouping by them is cheaper than HyperLogLog."""
        first = rows.where("k0 IS NOT NULL").limit(_FIRST_ROWS).selectExpr("xxhash64(k0)").collect()
        return len(first) - len(set(first)) >= _FEWEST_REPEATED * len(first)

    # A group for each key, as count(DISTINCT) has, and not for each key of a window: it would have many more.
    def _count_few_keys(self, rows: DataFrame) -> list[WindowKeys]:
        """The keys of windows, 64 to a group: each key has a bit for each window that it is in."""
        by_key = _count_groups(
            rows,
            ["shiftright(w, 6) AS g", "k0"],
            ["count(1) AS n", "bit_or(shiftleft(1L, int(w & 63))) AS m"],
        )
        asking, bits = (f"IF(k0 IS NULL, 0L, {each})" for each in "nm")
        counts = [
            "sum(n)",
            f"sum({asking})",
            f"sum(bit_count({bits}))",
            f"bit_count(bit_or({bits}))",
            "count(k0)",
        ]
        return [WindowKeys(*row[1:]) for row in _count_groups(by_key, ["g"], counts).collect()]

    def _estimate_join(
        self, join: LookupJoin, left: LeftRowsToCount, counted: _Counted, at: int
    ) -> LookupEstimate:
        settings, notes, windows = join.function.settings, list[str](), counted.windows[at]
        is_stable = counted.is_stable and not join.shuffled
        if is_stable and not left.why_more:
            self._most_windows[join.use.index] = sum(each.windows for each in windows)
        rows = Figure.exactly(counted.rows)
        if counted.samples:
            keys = counted.samples[at].keys_of_windows(windows, is_stable=is_stable)
        else:
            keys = keys_of_windows(windows, is_approximate=counted.is_approximate, is_stable=is_stable)
        if not is_stable:
            notes.append("a shuffle before the lookup decides which keys its tasks share")
        if counted.is_approximate:
            notes.append("distinct keys are counted by HyperLogLog, to within 5 %")
        if left.why_more:
            rows, keys = Figure(0, None), Figure(0, None)
            notes.append(left.why_more)
        elif left.why_fewer:
            rows, keys = Figure(0, rows.most), Figure(0, sum(each.asking for each in windows))
            notes.append(left.why_fewer)
        estimate = LookupEstimate(join.function.name, rows, keys, None, notes=tuple(notes))
        estimate = self._less_cached(join, estimate, self._count_held(join, left))
        if settings.whole is not None:
            windows = ()
        elif (
            settings.cache is not None
            and sum(each.windows for each in windows) == 1
            and estimate.keys is not None
        ):
            least = int(estimate.keys.least)
            windows = [WindowKeys(least, least, least)]
        return self._add_requests(estimate, join, windows, is_stable=is_stable)

    def _less_cached(
        self, join: LookupJoin, estimate: LookupEstimate, held: _Held | str = "executors keep answers"
    ) -> LookupEstimate:
        """The estimate without the keys that a cache answers."""
        settings, keys = join.function.settings, estimate.keys or Figure(0, None)
        if settings.whole is not None:
            is_read = isinstance(held, _Held) and held.held > 0
            when = "as its executor has read it" if is_read else "once each executor has read it"
            return replace(estimate, keys=Figure.exactly(0), cached=f"the whole table, {when}")
        if settings.cache is not None:
            if isinstance(held, str):
                return replace(estimate, keys=Figure(0, keys.most), cached=f"{UNKNOWN}: {held}")
            asked = held.keys - held.held if keys.least else 0
            most = None if keys.most is None else max(asked, keys.most - held.held)
            of_sample = "" if self._sample is None else " of the sample"
            cached = f"{held.held:,} of {counted(held.keys, 'distinct key')}{of_sample}"
            return replace(estimate, keys=Figure(asked, most), cached=cached)
        switch = settings.switch
        if switch is None:
            return estimate
        if keys.most is None or keys.most >= switch.keys:
            keys = Figure(min(keys.least, switch.keys), keys.most)
        return replace(estimate, keys=keys, notes=(*estimate.notes, str(switch)))

    def _count_held(self, join: LookupJoin, left: LeftRowsToCount) -> _Held | str:
        """How many distinct keys the cache answers now; or why that is not known, as text."""
        cache = join.function.settings.cache
        if join.function.searched_whole is not None or not (cache or join.function.settings.whole):
            return ""
        if not self._scope.has_one_executor:
            return "each executor of the cluster keeps answers of its own"
        if cache is not None and cache.versions_by is not None:
            return "which answers hold depends on the moments that are asked for"
        expressions = key_expressions(Analysis(join.use.statement, None), join)
        names = [f"k{at}" for at in range(len(expressions))]
        wanted = [f"{text} AS {name}" for text, name in zip(expressions, names, strict=True)]
        listed = ", ".join(names[: len(join.function.key_schema)])
        key = asked_key(join, names)
        chosen = (
            "" if self._sample is None else f" AND xxhash64({key}) <= {last_hash_of_share(self._sample)}L"
        )
        query = (
            f"SELECT DISTINCT {listed} FROM ({self._left_text(join, left, wanted)})"  # noqa: S608
            f" WHERE {key} IS NOT NULL{chosen}"
        )
        look = shipped(count_held(join.function), install_tip=install_tip(join.function.connector))
        strip_annotations(look)
        try:
            rows = self._scope.sql(query, self._args).mapInArrow(look, HELD).collect()
        except Exception as error:  # the worker cannot open its connector, say
            return cause_of(error)
        return _Held(sum(row[0] for row in rows), sum(row[1] for row in rows))

    def _estimate_behind(
        self,
        left: LeftRowsToCount,
        behind: Sequence[tuple[LookupJoin, KeysBehindLookup]],
        found: Mapping[int, LookupEstimate],
    ) -> Iterator[tuple[int, LookupEstimate]]:
        """The estimates of lookups whose keys the rows of one lookup give: some of its keys are looked up."""
        assert self._ask is not None, "it is asked for"
        before, joins = behind[0][1].before, [join for join, _ in behind]
        query = sample_query(left, behind[0][1], joins, self._ask)
        self._asked.append(before.function.table.name)
        try:
            rows = self._scope.sql(query, self._args).collect()
        except Exception as error:
            note = f"keys of it cannot be looked up alone: {cause_of(error)}"
            for join, _ in behind:
                unknown = found[join.use.index]
                yield join.use.index, replace(unknown, notes=(*unknown.notes, note))
            return
        self._metrics = self._scope.state.functions.metrics()  # how long it took
        looked_up, last = rows[0][1:3] if rows else (0, 0)
        share = 1.0 if looked_up < self._ask else share_of_hashes(last)
        for at, (join, each) in enumerate(behind, 3):
            sample = SampledKeys(looked_up, share, frozenset((row[0], row[at]) for row in rows))
            yield join.use.index, self._estimate_sampled(join, each, sample, found)

    def _estimate_sampled(
        self,
        join: LookupJoin,
        behind: KeysBehindLookup,
        sample: SampledKeys,
        found: Mapping[int, LookupEstimate],
    ) -> LookupEstimate:
        unknown = found[join.use.index]
        assert unknown.keys is not None, "its bounds are known"
        distinct, bound = sample.keys_behind, unknown.keys.most
        windows = None if join.shuffled else self._most_windows.get(behind.before.use.index)
        times = None if windows is None or distinct.most is None else distinct.most * windows
        most = min((each for each in (times, bound) if each is not None), default=None)
        keys = Figure(0 if behind.why_fewer else distinct.least, most)
        rows = Figure(0 if behind.why_fewer else len({key for key, _ in sample.found}), bound)
        share = "all its keys were" if sample.share == 1 else f"{counted(sample.looked_up, 'key')} of it were"
        seen = f"{share} looked up: they lead to {len(sample.behind):,} others"
        seen = seen if sample.found else "no key of it that was looked up has a row"
        notes = (*unknown.notes, seen, behind.why_fewer)
        estimate = LookupEstimate(join.function.name, rows, keys, None, notes=tuple(filter(None, notes)))
        return self._add_requests(self._less_cached(join, estimate), join, (), is_stable=False)

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


def _count_groups(rows: DataFrame, groups: Sequence[str], counts: Sequence[str]) -> DataFrame:
    """SELECT groups, counts FROM rows GROUP BY groups."""
    from pyspark.sql.functions import expr

    return rows.groupBy(*map(expr, groups)).agg(*map(expr, counts))


def _window_of_row(*, is_careful: bool) -> str:
    """The number of the window, over all tasks, that takes the row ``r``."""
    starts = window_bounds(is_careful=is_careful)
    cases = [
        f"WHEN r & {_ROW_BITS} >= {start} THEN {number * LARGEST_WINDOW - start}"
        for number, start in enumerate(starts, 1)
    ]
    # A shift is much cheaper than a division. The last case comes first, as most rows are in it.
    bits = LARGEST_WINDOW.bit_length() - 1
    return f"shiftright(r + CASE {' '.join(reversed(cases))} ELSE 0 END, {bits})"


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
    estimate = estimate_lookups(prepared, scope, EstimateOptions())
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
