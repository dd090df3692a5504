"""What belongs to one Spark session, however many LookupSessions are made for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lookup_hints.driver.functions import Functions, MadeOnce, policy_of, run_the_drivers_python
from lookup_hints.driver.invalidation import InvalidationLog
from lookup_hints.driver.table_sizes import LeftCosts, TableSizes
from lookup_hints.driver.views import LookupViews
from lookup_hints.streaming.streams import Streams
from lookup_hints.tables.catalog import LookupCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SessionState:
    """Its functions, streams, lookup tables, sizes, costs, views, and what was invalidated."""

    functions: Functions
    streams: Streams
    catalog: LookupCatalog
    sizes: TableSizes = field(default_factory=TableSizes)
    costs: LeftCosts = field(default_factory=LeftCosts)
    views: LookupViews = field(default_factory=LookupViews)
    invalidations: InvalidationLog = field(default_factory=InvalidationLog)


_states: MadeOnce[SessionState] = MadeOnce()


def state_of(spark: SparkSession) -> SessionState:
    """The state of a Spark session, made at the first call."""
    return _states.of(spark, lambda: _new_state(spark))


def _new_state(spark: SparkSession) -> SessionState:
    run_the_drivers_python(spark)
    # Read once, before any statement: what a session sets later does not count.
    policy = policy_of(spark)
    functions = Functions(spark)
    streams = Streams(spark, functions.metrics_of_batch, functions.fetch_counts)
    return SessionState(functions, streams, LookupCatalog(policy))
