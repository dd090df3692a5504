"""Random queries with mistakes in them: Spark's error or ours, and never another meaning."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from lookup_hints.errors import QueryError
from tests.queries.batches import CONF, Both
from tests.queries.mutations import WORDS, changed, mutated, respelled_names
from tests.queries.settings import SETTINGS, configured
from tests.queries.trees import LOOKUPS, Trees, tables
from tests.queries.worlds import Worlds
from tests.spark.answers import answers
from tests.spark.oracle import OUR_WORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MUTATIONS = int(os.environ.get("SPARK_MUTATIONS", "240"))
BATCH = 12
"""Queries that run under one setting, in one job."""
VARIABLE = "v"
"""A name of the queries that a variable of the same name holds."""
SEED = int(os.environ.get("SEED", "0"))
SPARKS_WORDS = tuple(word for word in WORDS if "LOOKUP" not in word and "SYSTEM_TIME" not in word)


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(Worlds(spark, tmp_path_factory.mktemp("mutations"), tables(), CONF, connector="memory"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_a_mistake_is_told_or_means_what_it_means_to_spark(both: Both, seed: int) -> None:
    random = Random(seed)
    accepted = 0
    for start in range(0, MUTATIONS // 4, BATCH):
        setting = random.choice(SETTINGS) if start else None
        sessions = [both.worlds.plain, both.worlds.world(LOOKUPS).session.spark]
        with configured(sessions, settings_of(setting)):
            accepted += check_batch(both, random, setting)
    assert accepted > MUTATIONS // 40, "too few of them mean anything"


def settings_of(setting: tuple[str, str] | None) -> dict[str, str]:
    """A setting, what it needs to have an effect, and a variable."""
    found = {"v": VARIABLE}
    if setting is not None:
        found |= {"spark.sql.ansi.enabled": "true"} if setting[0].startswith("spark.sql.ansi.") else {}
        found[setting[0]] = setting[1]
    return found


def check_batch(both: Both, random: Random, setting: tuple[str, str] | None) -> int:
    """Some queries under one setting; how many of them mean something with lookup tables."""
    double_quoted = setting is not None and setting[0].endswith("doubleQuotedIdentifiers")
    accepted: list[tuple[str, DataFrame, DataFrame]] = []
    for _ in range(BATCH):
        # Our own words are not SQL of Spark's, and what is left of them after a change would compare with nothing.
        query = OUR_WORDS.sub("", Trees(random).query())
        text = mutated(query, random, SPARKS_WORDS) if random.random() < 0.3 else changed(query, random)
        if setting is not None:
            text = respelled_names(text, random, double_quoted=double_quoted, variable=VARIABLE)
        plain, ours = frames(both, text)
        if plain is not None and ours is not None:
            accepted.append((text, plain, ours))
    some = [each for each in accepted if runs(each[1])]
    if not some:
        return len(accepted)
    expected = answers([plain for _, plain, _ in some])
    actual = answers([ours for _, _, ours in some])
    for (text, _, _), wanted, given in zip(some, expected, actual, strict=True):
        given.require(wanted, f"{text}\nunder {setting}", ordered=False)
    return len(accepted)


def runs(frame: DataFrame) -> bool:
    """Whether Spark gets through: a text that is not a number, or two rows of a scalar subquery, show when it runs."""
    from pyspark.errors import PySparkException

    try:
        frame.collect()
    except PySparkException:
        return False
    return True


def frames(both: Both, text: str) -> tuple[DataFrame | None, DataFrame | None]:
    """What a text gives over ordinary tables and over lookup tables; None where it is refused."""
    from pyspark.errors import PySparkException

    try:
        plain = both.worlds.plain.sql(text)
    except PySparkException:
        with pytest.raises((QueryError, PySparkException)) as refused:
            both.worlds.world(LOOKUPS).session.sql(text)
        assert "please report" not in str(refused.value), text
        return None, None
    try:
        return plain, both.worlds.world(LOOKUPS).session.sql(text)
    except QueryError as error:
        if "please report" in str(error):
            raise AssertionError(f"neither asked nor read nor refused:\n{text}") from error
        return plain, None
    except PySparkException as error:
        raise AssertionError(f"Spark refuses the rewritten text, and takes this:\n{text}") from error
