"""Outcomes of keys: an answer or failure settles them, or they are retried later."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import KnownAnswers, Placed, absent, count_up_to, lists_per_key, place, present
from lookup_hints.engine.backlog import Batch, LookupState, Part, ScheduledRequest
from lookup_hints.engine.event_log import connector_name, failure, is_defect, out_of_time
from lookup_hints.engine.input_window import Window
from lookup_hints.engine.multiple_match import errors_by_position, first_rows, positions_with_several
from lookup_hints.errors import ConnectorError, LookupTimeout, SourceDown
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.task_recorder import TaskRecorder
from lookup_hints.spi import ReportsOutcomes
from lookup_hints.spi.multiple_match import ERROR, multiple_match_of
from lookup_hints.spi.request_and_answer import LookupRequest, Outcome, PlacedRows


@dataclass(frozen=True)
class FailedKeys:
    """Keys that failed for good together.

    Args:
        keys: the keys.
        error_class: the class of the error.
        error: what it says; secrets in it are not masked.
        attempts: how often the keys were asked.
    """

    keys: pa.Table
    error_class: str
    error: str
    attempts: int


Keep = Callable[[FailedKeys], None]
"""Takes keys for the dead letters. Called by the runner that drives the scheduler, so it must not wait."""


class GivenUp:
    """The keys of a task that failed for good and do not fail it: counted, bounded and kept."""

    def __init__(self, spec: LookupSpec, recorder: TaskRecorder, keep: Keep) -> None:
        self._spec, self._settings, self._recorder, self._keep = spec, spec.settings, recorder, keep
        self._keys = 0
        self._last: ConnectorError | None = None

    def take(self, part: Part, error: ConnectorError) -> None:
        """The keys of ``part`` failed for good.

        Raises:
            ConnectorError: these are more than `max-errors` allows.
        """
        self._keys += len(part)
        self._last = error
        most = self._settings.max_errors
        if most is not None and self._keys > most:
            raise self._too_many_failed(f"'max-errors' = {most}")
        if self._settings.dead_letters is not None:
            self._recorder.count(dead_letters=len(part))
            cause = error.__cause__
            told = cause if isinstance(cause, Exception) and not isinstance(error, LookupTimeout) else error
            self._keep(FailedKeys(part.keys, type(told).__name__, str(told), part.attempt))

    def check_ratio(self) -> None:
        """The task asked all its keys.

        Raises:
            ConnectorError: more of them failed than `max-error-ratio` allows.
        """
        most = self._settings.max_error_ratio
        if most is not None and self._keys > most * self._recorder.total.keys:
            raise self._too_many_failed(f"'max-error-ratio' = {most:.6g}")

    def _too_many_failed(self, limit: str) -> ConnectorError:
        asked, table = self._recorder.total.keys, self._spec.table.name
        error = ConnectorError(
            f"Too many keys failed for good in table {table}: {self._keys:,} of the {asked:,} that this task"
            f" has read so far; {limit} allows fewer. The last: {self._last}"
        )
        error.__cause__ = self._last
        return error


_LONGEST_BEAT = 0.125


class Settling:
    """Applies the retry policy and `on-error`; the rows of settled keys are held, the others wait."""

    def __init__(self, state: LookupState, random: Random, keep: Keep) -> None:
        self._state, self._spec, self._settings = state, state.spec, state.spec.settings
        self._random = random
        self._match_key = state.spec.match_key
        self._is_one_required = multiple_match_of(state.spec.table) == ERROR
        self.given_up = GivenUp(state.spec, state.recorder, keep)

    def fail(self, ask: ScheduledRequest, error: Exception, now: float) -> None:
        self._state.recorder.failed(error)
        self._state.events.failed(ask.request.keys, error)
        if is_defect(error):
            raise error
        # A request has the time of its most urgent part. The others did not have theirs: ask them again.
        was_cut_short = isinstance(error, LookupTimeout) and ask.deadline <= now
        for part in ask.parts:
            if isinstance(error, SourceDown):
                self.give_up(part, failure(self._spec, part, error))
            elif part.batch.deadline <= now:
                self.give_up(part, out_of_time(self._spec, part, error))
            elif was_cut_short:
                self._state.waiting.add(part, now)
            else:
                self._retry_error(part, error, now)

    def judge(self, part: Part, placed: Placed, asked: float, now: float, notes: Sequence[Any]) -> None:
        """Settle the keys of ``part``, ``asked`` then, whose outcome is final, and let the others wait."""
        missed = absent(placed.positions, len(part))
        delay = self._settings.retry.delay_after_miss(part.attempt, self._random_jitter())
        again = missed[:0] if delay is None else self._positions_to_retry(placed, missed, len(part))
        if len(again):
            placed = placed.filter(pc.invert(pc.is_in(placed.positions, value_set=again)))
            missed = missed.filter(pc.invert(pc.is_in(missed, value_set=again)))
        self._keep_rows_of_part(part, placed)
        if self._state.learn is not None:
            self._state.learn(part.keys, placed, missed, asked)
        if len(missed):
            told = [notes[position] for position in missed.to_pylist()] if notes else [None] * len(missed)
            self._keep_outcome_rows(part.among(missed), Outcome(None, part.attempt, told))
        self._state.recorder.count(hits=len(part) - len(again) - len(missed), misses=len(missed))
        if delay is None or not len(again):
            self._settle_part(part)
        else:
            self._settle_part(part.among(absent(again, len(part))))
            self._retry_part(part.among(again), now, delay)

    def recall(self, window: Window, known: KnownAnswers) -> pa.Array:
        """Settle the keys of a new window that are known, and return those that must be asked.

        What the retry policy would ask again is asked: a late row is not known yet.
        """
        size = window.keys.num_rows
        known = self._without_several(self._without_retried(known, size))
        found = pa.concat_arrays([count_up_to(0), *(each.positions for each in known.found)])
        hits = present(found, size)
        settled = pa.concat_arrays([hits, known.missing])
        for each in known.found:
            self._keep_rows(window, each)
        if len(known.missing):
            part = Part(Batch(window, size, math.inf), known.missing, attempt=0)
            self._keep_outcome_rows(part, Outcome(None, 0, [None] * len(known.missing)))
        window.settle(settled)
        self._state.recorder.count(
            hits=len(hits),
            misses=len(known.missing),
            cache_hits=len(hits),
            cache_missing=len(known.missing),
            cache_misses=size - len(hits) - len(known.missing),
        )
        if known.refreshing is not None:
            refreshing = pc.sum(pc.is_in(known.refreshing, value_set=hits)).as_py()
            self._state.recorder.count(cache_stale=refreshing or 0)
        if len(hits):
            self._state.size.found(len(hits), sum(each.rows.nbytes for each in known.found))
        return absent(settled, size)

    def _without_retried(self, known: KnownAnswers, size: int) -> KnownAnswers:
        """``known`` without what the retry policy would ask again."""
        retry = self._settings.retry
        if retry.on_rows is None:
            return replace(known, missing=known.missing[:0]) if retry.on_miss else known
        none = Placed(self._state.answer_schema.empty_table(), count_up_to(0))
        rows = pa.concat_tables([each.rows for each in (none, *known.found)])
        positions = pa.concat_arrays([each.positions for each in (none, *known.found)])
        again = self._positions_to_retry(Placed(rows, positions), known.missing, size)
        found = (each.filter(pc.invert(pc.is_in(each.positions, value_set=again))) for each in known.found)
        missing = known.missing.filter(pc.invert(pc.is_in(known.missing, value_set=again)))
        return replace(known, found=tuple(found), missing=missing)

    def several_rows(self, placed: Placed) -> dict[int, Exception]:
        """An error for each key with several rows of which there must be one, by its position."""
        if not (self._match_key and self._is_one_required) or not placed.rows.num_rows:
            return {}
        return errors_by_position(placed, self._match_key)

    def _without_several(self, known: KnownAnswers) -> KnownAnswers:
        """``known`` without keys of which one row must be there, and several are: the source decides."""
        if not (self._match_key and self._is_one_required):
            return known
        several = [positions_with_several(each, self._match_key) for each in known.found]
        found = (
            each.filter(pc.invert(pc.is_in(each.positions, value_set=own)))
            for each, own in zip(known.found, several, strict=True)
        )
        return replace(known, found=tuple(found))

    def _positions_to_retry(self, placed: Placed, missed: pa.Array, size: int) -> pa.Array:
        retry = self._settings.retry
        if retry.on_rows is None:
            return missed
        if not retry.on_miss:
            missed = missed[:0]
        schema = placed.rows.schema
        lists = lists_per_key(placed, size, pa.struct(list(schema))).to_pylist()
        refused = [position for position, rows in enumerate(lists) if retry.on_rows(rows)]
        return pc.unique(pa.concat_arrays([missed, pa.array(refused, pa.int32())]))

    def _keep_rows(self, window: Window, placed: Placed) -> None:
        if placed.rows.num_rows:
            if self._match_key:
                placed = first_rows(placed, self._match_key)
            found = Placed(placed.rows.select(self._spec.held_columns), placed.positions)
            self._state.held.keep(window, found)

    def _keep_rows_of_part(self, part: Part, placed: Placed) -> None:
        self._keep_rows(part.batch.window, Placed(placed.rows, part.positions.take(placed.positions)))

    def _retry_error(self, part: Part, error: Exception, now: float) -> None:
        is_down = bool(self._state.limiter.outage)
        if is_down and part.attempt > 1:
            part = replace(part, attempt=part.attempt - 1)  # to probe a source that is down is no attempt
        delay = self._settings.retry.delay_after_error(part.attempt, error, self._random_jitter())
        if delay is None:
            self.give_up(part, failure(self._spec, part, error))
        else:
            requests = len(part) if self._spec.by_row else 1
            allowed = 0.0 if is_down else self._state.limiter.retry_delay(requests)
            self._retry_part(part, now, max(delay, allowed), error)

    def _retry_part(self, part: Part, now: float, delay: float, error: Exception | None = None) -> None:
        """Ask the keys of ``part`` again after ``delay``, unless their time is up before."""
        due, deadline = now + delay, part.batch.deadline
        if due >= deadline:
            self.give_up(part, out_of_time(self._spec, part, error))
        else:
            # Up to a sixteenth of the delay later: keys of one beat fall due together and share a request.
            # Without beats, each late key of a million rows would be a small request of its own after every
            # delay. Beats are powers of two: those of different delays fall together, and rounding is exact.
            # (docs/decisions/0008)
            beat = min(_LONGEST_BEAT, 2.0 ** (math.frexp(delay / 16)[1] - 1))
            beat = math.ceil(due / beat) * beat
            if error is None:
                self._state.recorder.count(retried_misses=len(part))
            else:
                self._state.recorder.count(retried_failures=len(part))
            self._state.waiting.add(part.again(), beat if beat < deadline else due)

    def _random_jitter(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    def give_up(self, part: Part, error: ConnectorError) -> None:
        """The keys of ``part`` failed for good: do what `on-error` says, where no rows are left of before."""
        part = self._settle_stale(part)
        if not len(part):
            return
        if self._settings.on_error == "fail":
            raise error
        self.given_up.take(part, error)
        if self._settings.on_error == "skip":
            part.batch.window.skip(part.positions)
            self._state.recorder.count(skipped=len(part))
        else:
            self._state.recorder.count(misses=len(part))
            told = error.__cause__ if isinstance(error.__cause__, Exception) else error
            self._keep_outcome_rows(part, Outcome(told, part.attempt, [None] * len(part)))
        self._settle_part(part)

    def _settle_stale(self, part: Part) -> Part:
        """Settle the keys of ``part`` that have stale rows in the cache; returns the others."""
        every = part.batch.window.fallback
        fallback = [each.filter(pc.is_in(each.positions, value_set=part.positions)) for each in every]
        positions = pa.concat_arrays([part.positions[:0], *(each.positions for each in fallback)])
        if not len(positions):
            return part
        for each in fallback:
            self._keep_rows(part.batch.window, each)
        is_settled = pc.is_in(part.positions, value_set=positions)
        settled = replace(part, positions=part.positions.filter(is_settled))
        self._state.recorder.count(hits=len(settled), cache_stale=len(settled))
        self._settle_part(settled)
        return replace(part, positions=part.positions.filter(pc.invert(is_settled)))

    def _keep_outcome_rows(self, part: Part, outcome: Outcome) -> None:
        """Let the connector say in rows how it ended for keys without rows, where it does."""
        connector = self._spec.connector
        if not isinstance(connector, ReportsOutcomes):
            return
        told = connector.outcome_rows(part.keys, self._state.answer_schema, outcome)
        if told is not None:
            positions = count_up_to(len(part))
            request = LookupRequest(part.keys, self._state.answer_schema)
            self._keep_rows_of_part(
                part, place(PlacedRows(told, positions), request, connector_name(self._spec))
            )

    def _settle_part(self, part: Part) -> None:
        part.batch.window.settle(part.positions)
        self.leave(part.batch, len(part))

    def leave(self, batch: Batch, size: int) -> None:
        batch.unsettled -= size
        if batch.unsettled == 0:
            self._state.slots.leave(batch)
