"""Each target takes what is known, and small changes to it, without a crash, a hang or much memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Sequence
from random import Random

import pytest

from tests.unit.fuzz.targets import TARGETS, seeds

# jmespath itself says it, of a literal that is no JSON.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

SECONDS = 0.3
MOST_SECONDS = 1.0
MOST_MEMORY = 64 * 2**20
MOST_LENGTH = 4096
MOST_LEFT = 128 * 2**10
_ODD = (
    b"\x00",
    b"\xff\xff\xff\x7f",
    b"'",
    b'"',
    b"{",
    b"[",
    b"(",
    b",",
    b"\r\n",
    b"99999999999999999999",
    b"\\",
    b"\xc3",
    b"-1",
    b"NaN",
    b"1e999",
)


def mutated(data: bytes, random: Random) -> bytes:
    """``data`` with a few changes."""
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        at, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
        piece = random.choice((random.choice(_ODD), random.randbytes(1), data[at:end] * 2, b""))
        end = random.choice((end, at, min(at + 1, len(data))))
        data = data[:at] + piece + data[end:]
    return data[:MOST_LENGTH]


def feed(name: str, data: bytes) -> None:
    # What an input costs, it costs again; what the machine or a first import costs, it does not.
    is_slow = work_on(name, data) >= MOST_SECONDS and work_on(name, data) >= MOST_SECONDS
    assert not is_slow, f"{name} works too long on {data!r}"


def work_on(name: str, data: bytes) -> float:
    """The seconds of the processor that a target works."""
    began = time.process_time()
    try:
        TARGETS[name](data)
    except Exception as error:
        error.args = (f"{name} of {data!r}: {error}",)
        raise
    return time.process_time() - began


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_of_what_comes_from_outside_fails_in_words_of_ours_alone(name: str) -> None:
    known, random = seeds()[name], Random(name)
    end = time.process_time() + SECONDS
    for seed in known:
        feed(name, seed)
    while time.process_time() < end:
        feed(name, mutated(random.choice(known), random))


@pytest.mark.work(5)
@pytest.mark.parametrize("name", TARGETS)
def test_it_keeps_to_its_memory(name: str) -> None:
    tracemalloc.start()
    try:
        for seed in seeds()[name]:
            TARGETS[name](seed)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.work(5)
@pytest.mark.parametrize("name", TARGETS)
def test_it_leaves_nothing_in_memory(name: str) -> None:
    short = [seed for seed in seeds()[name] if len(seed) <= MOST_LENGTH]
    for seed in short:  # what is imported and remembered once is
        TARGETS[name](seed)
    # A table of Python's own, as that of interned texts, may grow meanwhile: once.
    assert any(_bytes_left(name, short * 3) < MOST_LEFT for _ in range(2))


def _bytes_left(name: str, inputs: Sequence[bytes]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        for each in inputs:
            TARGETS[name](each)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
