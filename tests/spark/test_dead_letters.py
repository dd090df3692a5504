"""Keys that fail for good are kept in a folder, through Spark, and can be asked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints import LookupSession, async_wait
from lookup_hints.errors import OptionError, QueryError
from lookup_hints.statements import split_statements
from tests.spark.ailing import ill_table, letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ILL = [7, 107, 207, 307, 407, 507, 607, 707, 807, 907]
EXAMPLE = Path(__file__).resolve().parents[2] / "sql_examples" / "dead_letters.sql"
Letter = dict[str, object]


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.sql(ill_table(tmp_path))
    own.spark.range(0, 1000, 1, 4).createOrReplaceTempView("orders")
    return own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "letters"


def query(folder: Path, more: str = "", kind: str = "LEFT") -> str:
    hint = f"LOOKUP('table'='p', 'on-error'='dead-letter', 'dead-letter.path'='{folder}'{more})"
    return f"SELECT /*+ {hint} */ o.id, p.name FROM orders o {kind} JOIN people p ON o.id = p.id"


def ids_of(found: list[Letter]) -> list[int]:
    return sorted(json.loads(str(letter["key"]))["id"] for letter in found)


@pytest.mark.parametrize("runner", ["true", "false"])
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_letters_hold_the_failed_keys_once_each(
    session: LookupSession, folder: Path, runner: str, kind: str
) -> None:
    more = f", 'async'='{runner}', 'dead-letter.format'='{kind}'"
    found = {row.id: row.name for row in session.sql(query(folder, more)).collect()}
    assert found == {number: None if number in ILL else f"n{number}" for number in range(1000)}
    kept = letters(session.spark, folder, kind)
    assert ids_of(kept) == ILL
    (one,) = (letter for letter in kept if letter["key"] == '{"id": 7}')
    run, at = str(one.pop("run")), one.pop("failed_at")
    assert run.startswith(session.spark.sparkContext.applicationId)
    assert isinstance(at, datetime)
    assert abs(at - datetime.now()) < timedelta(minutes=5)
    assert one == {
        "table": "people",
        "alias": "p",
        "line": 1,
        "connector": "tests.spark.ailing:AilingConnector",
        "key": '{"id": 7}',
        "error_class": "ConnectorError",
        "error": "source at app:***@db is ill",
        "attempts": 1,
        "query_id": None,
        "batch_id": None,
    }


def test_a_row_whose_key_is_kept_may_be_dropped(session: LookupSession, folder: Path) -> None:
    rows = session.sql(query(folder, ", 'dead-letter.then'='skip'")).collect()
    assert len(rows) == 990
    assert ids_of(letters(session.spark, folder)) == ILL


def test_letters_of_several_runs_stand_side_by_side(session: LookupSession, folder: Path) -> None:
    session.sql(f"SET lookup.dead-letter.path = {folder}")
    frame = session.sql(query(folder))
    frame.collect()
    frame.collect()
    session.lookup_join(session.spark.range(10), "people", on="id", on_error="dead-letter").collect()
    kept = letters(session.spark, folder)
    assert ids_of(kept) == sorted([7, *ILL, *ILL])
    assert len({letter["run"] for letter in kept}) == 3


def test_letters_are_counted(session: LookupSession, folder: Path) -> None:
    before = session.metrics()
    session.sql(query(folder, ", 'timeout'='61 s'")).collect()
    (new,) = (counts for name, counts in session.metrics().items() if name not in before)
    assert (new.dead_letters, new.misses, new.keys) == (10, 10, 1000)


def test_dead_letters_can_be_looked_up_again(session: LookupSession, folder: Path, tmp_path: Path) -> None:
    session.sql(query(folder)).collect()
    (tmp_path / "ill").unlink()
    again = session.sql(
        "SELECT l.id, p.name FROM (SELECT DISTINCT from_json(key, 'id BIGINT').id AS id"
        f" FROM parquet.`{folder}` WHERE table = 'people') l JOIN people p ON l.id = p.id"
    )
    assert sorted(map(tuple, again.collect())) == [(number, f"n{number}") for number in ILL]


def test_the_example_asks_the_letters_again(session: LookupSession, folder: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("/tmp/lookup_dead_letters", str(folder))
    *_, late, kept, _, _, again = [session.sql(each.text).collect() for each in split_statements(text)]
    assert [row.name for row in late] == [None] * 4
    assert [row.key for row in kept] == ['{"id": 1}', '{"id": 2}', '{"id": 3}']
    assert [tuple(row) for row in again] == [(1, "Ada"), (2, "Emmy"), (3, "Grace")]


def test_a_function_of_ones_own_leaves_letters_too(session: LookupSession, folder: Path) -> None:
    def half(number: int) -> float:
        if number == 3:
            raise ValueError("three is odd")
        return number / 2

    kept = async_wait(
        session.spark.range(6), half, ["id"], "h DOUBLE", on_error="dead-letter", dead_letter_path=str(folder)
    )
    assert kept.filter("h IS NULL").count() == 1
    (letter,) = letters(session.spark, folder)
    told = [letter[name] for name in ("table", "key", "error_class", "error")]
    assert told[:2] == ["half", '{"id": 3}']
    assert "three is odd" in str(told[3])


def test_letters_are_kept_where_rows_travel_through_pandas(session: LookupSession, folder: Path) -> None:
    session.sql("SET lookup.transport = pandas")
    assert len(session.sql(query(folder)).collect()) == 1000
    assert ids_of(letters(session.spark, folder)) == ILL


KEYS = {
    "b": ("BOOLEAN", "true"),
    "i": ("INT", "-3"),
    "s": ("STRING", "concat('é\"', chr(10), '\\\\x')"),
    "d": ("DATE", "DATE'1582-10-15'"),
    "t": ("TIMESTAMP", "TIMESTAMP'2026-01-02 03:04:05.123456'"),
    "z": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2026-01-02 03:04:05.000001'"),
    "x": ("DECIMAL(20,3)", "12345678901234567.125BD"),
    "f": ("DOUBLE", "double('NaN')"),
    "g": ("DOUBLE", "0.1D"),
    "h": ("FLOAT", "float('-Infinity')"),
    "y": ("BINARY", "X'00FF'"),
}


def test_keys_of_every_type_come_back_from_a_letter(session: LookupSession, folder: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in KEYS.items())
    session.sql(
        f"CREATE TEMPORARY TABLE all_types ({columns}, name STRING) WITH"
        " ('connector' = 'tests.spark.ailing:DownConnector')"
    )
    values = ", ".join(f"{value} AS {name}" for name, (_, value) in KEYS.items())
    session.sql(f"SELECT {values}").createOrReplaceTempView("one")
    on = " AND ".join(f"o.{name} = a.{name}" for name in KEYS)
    session.sql(
        f"SELECT /*+ LOOKUP('table'='a', 'on-error'='dead-letter', 'dead-letter.path'='{folder}') */ 1"
        f" FROM one o JOIN all_types a ON {on}"
    ).collect()
    session.sql(f"SELECT from_json(key, '{columns}') AS k FROM parquet.`{folder}`").createOrReplaceTempView(
        "kept"
    )
    same = ", ".join(f"k.{name} = o.{name} AS {name}" for name in KEYS)
    (row,) = session.sql(f"SELECT {same} FROM kept, one o").collect()
    assert row.asDict() == dict.fromkeys(KEYS, True)


# --- when too much fails, or nothing can be written


@pytest.mark.parametrize("then", ["'dead-letter'", "'null'", "'skip'"])
@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (
            "'max-errors'='1'",
            r"[23] of the \d+ that this task has read so far; 'max-errors' = 1 allows fewer",
        ),
        ("'max-error-ratio'='0.005'", "'max-error-ratio' = 0.005 allows fewer"),
    ],
)
def test_too_many_errors_fail_the_job(
    session: LookupSession, folder: Path, then: str, limit: str, told: str
) -> None:
    session.sql(f"SET lookup.dead-letter.path = {folder}")
    hint = f"LOOKUP('table'='p', 'on-error'={then}, {limit})"
    with pytest.raises(Exception, match=f"Too many keys failed for good in table people: .*{told}") as raised:
        session.sql(f"SELECT /*+ {hint} */ p.name FROM orders o JOIN people p ON o.id = p.id").collect()
    assert "hunter2" not in str(raised.value)
    assert folder.exists() == (then == "'dead-letter'")
    assert not folder.exists() or letters(session.spark, folder) == []


def test_as_many_errors_as_allowed_do_not(session: LookupSession, folder: Path) -> None:
    more = ", 'max-errors'='3', 'max-error-ratio'='0.012'"
    assert len(session.sql(query(folder, more)).collect()) == 1000


def test_a_folder_that_cannot_be_written_is_an_error_at_planning(
    session: LookupSession, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(QueryError, match="Dead letters cannot be written to") as raised:
        session.sql(query(tmp_path / "file" / "letters"))
    assert "line 1, column" in str(raised.value)
    assert "Error" in str(raised.value)


def test_a_folder_that_is_lost_fails_the_task_and_names_the_machine(
    session: LookupSession, folder: Path
) -> None:
    frame = session.sql(query(folder))
    folder.rmdir()
    folder.touch()
    with pytest.raises(Exception, match=f"dead letters of table people cannot be written to {folder} on "):
        frame.collect()


def test_a_task_that_a_limit_stops_leaves_nothing_that_a_reader_takes(
    session: LookupSession, folder: Path
) -> None:
    session.spark.range(0, 5_000_000, 1, 1).createOrReplaceTempView("orders")
    slow = query(folder, ", 'async'='false'")
    rows = session.sql(f"{slow} LIMIT 20000").collect()
    assert len(rows) == 20000
    assert letters(session.spark, folder) == []


def test_a_bad_option_of_python_names_its_argument(session: LookupSession) -> None:
    with pytest.raises(
        OptionError, match="lookup_join: 'dead_letter_path' cannot be 'here': write an absolute"
    ):
        session.lookup_join(session.spark.range(1), "people", on="id", dead_letter_path="here")


# --- streams


def test_a_stream_goes_on_and_a_repeated_batch_takes_the_place_of_its_letters(
    session: LookupSession, folder: Path, tmp_path: Path
) -> None:
    session.sql(ill_table(tmp_path, f", 'on-error' = 'dead-letter', 'lookup.dead-letter.path' = '{folder}'"))
    spark, arrived = session.spark, tmp_path / "arrived"

    def arrive(first: int) -> None:
        spark.range(first, first + 500, 1, 2).write.mode("append").parquet(str(arrived))

    def run(write: Callable[[Any, int], None]) -> None:
        joined = session.lookup_join(
            spark.readStream.schema("id BIGINT").parquet(str(arrived)), "people", on="id"
        )
        stream = joined.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).foreachBatch(write).start().awaitTermination()

    def fails(frame: Any, batch: int) -> None:
        frame.collect()
        raise RuntimeError("the batch fails after its lookups")

    def collects(frame: Any, batch: int) -> None:
        frame.collect()

    arrive(0)
    with pytest.raises(Exception, match="the batch fails after its lookups"):
        run(fails)
    assert ids_of(letters(spark, folder)) == [7, 107, 207, 307, 407]
    run(collects)
    assert ids_of(letters(spark, folder)) == [7, 107, 207, 307, 407], "once each, though the batch ran twice"
    arrive(500)
    run(collects)
    kept = letters(spark, folder)
    assert ids_of(kept) == ILL
    assert {
        (letter["batch_id"], letter["run"] == f"{letter['query_id']}-{letter['batch_id']}") for letter in kept
    } == {
        (0, True),
        (1, True),
    }


def test_a_batch_that_succeeds_the_second_time_has_no_letters(
    session: LookupSession, folder: Path, tmp_path: Path
) -> None:
    more = f", 'on-error' = 'dead-letter', 'lookup.dead-letter.path' = '{folder}'"
    session.sql(ill_table(tmp_path, more))
    spark = session.spark
    spark.range(100).write.parquet(str(tmp_path / "arrived"))

    def run(heal: bool) -> None:
        def write(frame: Any, batch: int) -> None:
            frame.collect()
            if heal:
                return
            raise RuntimeError("not yet")

        source = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "arrived"))
        stream = session.lookup_join(source, "people", on="id").writeStream.foreachBatch(write)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="not yet"):
        run(heal=False)
    assert ids_of(letters(spark, folder)) == [7]
    (tmp_path / "ill").unlink()
    run(heal=True)
    assert letters(spark, folder) == []
