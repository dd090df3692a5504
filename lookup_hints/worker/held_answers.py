"""How many keys the cache of an executor answers now. The source is not asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from lookup_hints.cache.open_caches import OpenCaches
from lookup_hints.engine.adaptive_batch_size import key_batches
from lookup_hints.engine.arrow import distinct_keys
from lookup_hints.limits.shared_limits import folder_of_executor
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.process import open_connectors as process
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.worker.arrow_worker import open_connector

HELD = "keys BIGINT, held BIGINT"
"""The columns that ``count_held`` gives, for Spark."""


def count_held(spec: LookupSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow`` over distinct keys of ``spec``: how many come, and how many are held."""
    carried = PickledConnector.of(spec.connector)
    identity, over = carried.identity, spec.over(carried)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here, keys, held = process.this_process, 0, 0
        with open_connector(over, identity, here) as opened:
            own = over.over(opened.connector)
            cache = here.the(OpenCaches).task_cache(own, identity, folder_of_executor())
            for batch in key_batches((each.columns for each in batches), own.key_schema):
                keys += batch.num_rows
                held += cache.count_held(distinct_keys(pa.Table.from_batches([batch])))
        yield pa.RecordBatch.from_pydict({"keys": [keys], "held": [held]})

    return count
