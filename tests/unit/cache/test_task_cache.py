"""When what a task has learned is written, so that others can use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from lookup_hints.cache.task_cache import BYTES_AT_ONCE, KEYS_AT_ONCE, NOTHING, Cache, CacheWrite, TaskCache
from lookup_hints.engine.arrow import Keys, KnownAnswers, Placed
from lookup_hints.lookup_spec import PartialCache
from tests.unit.engine.support import spec


class Written(Cache):
    """A cache that notes how many keys each write brings."""

    learns = True

    def __init__(self) -> None:
        self.writes: list[int] = []

    def probe(self, keys: Keys, columns: Sequence[str]) -> KnownAnswers:
        return NOTHING

    def refresh(self, keys: pa.Table) -> None:
        raise AssertionError("nothing is late")

    def learn(self, learned: Sequence[CacheWrite]) -> None:
        self.writes.append(sum(keys.num_rows for keys, *_ in learned))


def _ids(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64())})


def _begin_a_window(memory: TaskCache) -> None:
    memory.recall(Keys(_ids(1), pa.array([0], pa.int32())))


@pytest.mark.parametrize(
    ("keys", "nbytes", "then", "writes"),
    [
        (KEYS_AT_ONCE - 1, 0, TaskCache.write_if_due, []),
        (KEYS_AT_ONCE, 0, TaskCache.write_if_due, [KEYS_AT_ONCE]),
        (1, BYTES_AT_ONCE - 1000, TaskCache.write_if_due, []),
        (1, BYTES_AT_ONCE, TaskCache.write_if_due, [1]),
        (1, 0, _begin_a_window, [1]),
        (1, 0, TaskCache.close, [1]),
    ],
)
def test_it_is_written_where_it_is_much_when_a_window_begins_and_at_the_end(
    keys: int, nbytes: int, then: Callable[[TaskCache], None], writes: list[int]
) -> None:
    cache = Written()
    memory = TaskCache(spec(cache=PartialCache(600.0)), cache)
    assert memory.learn is not None
    rows = Placed(pa.table({"name": ["x" * nbytes]}), pa.array([0], pa.int32()))
    memory.learn(_ids(keys), rows, pa.array([], pa.int32()), 1.0)
    for _ in range(2):
        then(memory)
        assert cache.writes == writes, "once"


def test_what_is_written_counts_no_second_time() -> None:
    cache = Written()
    memory = TaskCache(spec(cache=PartialCache(600.0)), cache)
    assert memory.learn is not None
    rows = Placed(pa.table({"name": [""]}), pa.array([0], pa.int32()))
    for keys in (KEYS_AT_ONCE, KEYS_AT_ONCE, KEYS_AT_ONCE - 1):
        memory.learn(_ids(keys), rows, pa.array([], pa.int32()), 1.0)
        memory.write_if_due()
    assert cache.writes == [KEYS_AT_ONCE] * 2
