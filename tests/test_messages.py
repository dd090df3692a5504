"""The texts of messages that are made of what the user gave: short, complete, and said once."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest

import lookup_hints
from lookup_hints.cli.check import check_script
from lookup_hints.dataframe.join import read_options
from lookup_hints.errors import ConnectorError, OptionError, QueryError
from lookup_hints.hints.hint_comments import lookup_hints as hints_of
from lookup_hints.spi import TEXT, Option, SyncRowLookup, flink
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.option_values import Place, options_at
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import without_secrets
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import own_setting
from lookup_hints.streaming.stream_options import STREAM_OPTIONS
from lookup_hints.tables.ddl import parse_ddl, shown_statement


def said(*, hint: str) -> str:
    """What is wrong with a LOOKUP hint, without the place."""
    with pytest.raises(QueryError) as raised:
        hints_of(SqlText(f"SELECT /*+ LOOKUP('table' = 'c', {hint}) */ 1"))
    return " ".join(str(problem.message + " " + problem.tip).strip() for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (
            "'on-error' = 'sometimes'",
            "'on-error' cannot be 'sometimes': it must be one of fail, null, skip, dead-letter.",
        ),
        (
            "'on-error' = 'fial'",
            "'on-error' cannot be 'fial': it must be one of fail, null, skip, dead-letter. Did you mean 'fail'?",
        ),
        ("'timeout' = '-1'", "'timeout' cannot be '-1': it must be at least 1 ms."),
        ("'timeout' = '-1 s'", "'timeout' cannot be '-1 s': it must be at least 1 ms."),
        (
            "'timeout' = '1.5s'",
            "'timeout' cannot be '1.5s': write a whole number and a unit, as in '10s', '500 ms', '3 min' or '1 h'.",
        ),
    ],
)
def test_a_bad_value_is_reported_once_with_what_is_allowed(hint: str, told: str) -> None:
    assert said(hint=hint) == told


def test_a_negative_timeout_of_python_is_too_short() -> None:
    with pytest.raises(OptionError) as raised:
        read_options("lookup_join", {"timeout": -1, "on_error": "ignore", "table": "c"})
    assert str(raised.value) == (
        "lookup_join: 'timeout' cannot be '-1000 ms': it must be at least 1 ms.\n"
        "lookup_join: 'on_error' cannot be 'ignore': it must be one of fail, null, skip, dead-letter."
    )


def test_a_negative_time_that_may_be_zero_says_so() -> None:
    trigger = next(option for option in STREAM_OPTIONS if option.key == "trigger")
    with pytest.raises(ValueError, match=r"^it must not be negative$"):
        trigger.type.parse("processing-time -1 s")
    with pytest.raises(
        ValueError, match=r"^it must be one of processing-time <duration> .*continuous <duration>$"
    ):
        trigger.type.parse("sometimes")


class _Guarded(SyncRowLookup):
    OPTIONS = (Option("token", TEXT, "Who we are.", secret=True),)

    def lookup_row(self, request: object) -> list[object]:
        """Nothing is asked."""
        return []


def test_a_reference_that_names_nothing_says_where_and_how_to_set_it() -> None:
    table = LookupTable(
        "t", pa.schema([("id", pa.int64())]), options={"connector": "x", "token": "${env:NOT_SET_HERE}"}
    )

    def read() -> Iterator[object]:
        yield table.read(_Guarded.OPTIONS)

    with pytest.raises(OptionError) as raised:
        list(without_secrets(read(), _Guarded(table)))
    assert str(raised.value) == (
        f"Table t: the environment variable 'NOT_SET_HERE' cannot be read on {socket.gethostname()}, for the option 'token'."
        " Set it before Python starts there; for executors by the configuration"
        " spark.executorEnv.NOT_SET_HERE."
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("'connector' = 'postgres', 'url' = 'postgresql://h/shop'", None),
        ("'connector' = 'postgres', 'url' = '${env:SHOP}'", None),
        ("'connector' = 'postgres', 'password' = '${env:PASSWORD}'", None),
        ("'connector' = 'postgres', 'url' = 'a://u:hunter2@h/d'", "'a://u:*******@h/d'"),
        ("'connector' = 'postgres', 'url' = 'a://h?x=1&password=hunter2'", "'a://h?x=1&password=*******'"),
        ("'connector' = 'postgres', 'url' = 'a://u:hun ter2@h'", "*" * 18),
        ("'connector' = 'postgres', 'url' = 'a://u:hunt''er2@h'", "*" * 19),
        ("'connector' = 'postgres', 'url' = 'host=h password=hunter2'", "*" * 25),
        ("'connector' = 'postgres', 'password' = 'hunter2'", "*********"),
        ("'connector' = 'postgres', 'pasword' = 'hunter2'", "*********"),
        ("'connector' = 'http', 'url' = 'https://h/{id}', 'header.Accept' = 'text/csv'", None),
        ("'connector' = 'http', 'lookup.cache' = 'partial', 'rows' = 'people[]'", None),
        ("'connector' = 'http', 'header.X-Auth-Token' = 'hunter2'", "*********"),
        ("'connector' = 'my_module:Mine', 'url' = 'hunter2'", "*********"),
        ("'connector' = 'memry', 'url' = 'hunter2'", "*********"),
    ],
)
def test_a_statement_is_shown_without_what_is_secret_in_it_alone(given: str, shown: str | None) -> None:
    before = given[: given.rindex(" = ") + 3]
    expected = given if shown is None else f"{before}{shown}"
    text = f"CREATE TEMPORARY TABLE t (id INT) WITH ({given})"
    assert shown_statement(SqlText(text)) == text.replace(given, expected)
    with pytest.raises(QueryError) as raised:
        parse_ddl(SqlText(text.replace("INT", "INTT")))
    assert expected in str(raised.value)


def test_a_list_of_options_with_mistakes_is_shown_without_values() -> None:
    for odd in ("'connector' = 'a b'", "'connector' = 'x' 'y'", "'x' = 'connector' = 'y'"):
        assert "***" in shown_statement(
            SqlText(f"CREATE TEMPORARY TABLE t (id INT) WITH ({odd}, 'connector' = 'z')")
        )


def test_the_package_shows_its_public_names_alone() -> None:
    shown = [name for name in dir(lookup_hints) if not name.startswith("__")]
    assert shown == sorted(lookup_hints.__all__)
    assert "enable" in shown
    assert "__version__" in dir(lookup_hints)
    assert ConnectorError.__name__ not in shown


# --- what Flink calls otherwise ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connector", "option", "told"),
    [
        (
            "postgres",
            "lookup.cache.max-rows",
            "Write 'lookup.cache' = 'PARTIAL', and options that begin with",
        ),
        ("sqlite", "lookup.cache.ttl", "Write 'lookup.cache' = 'PARTIAL'"),
        ("postgres", "lookup.max-retries", "Write 'retry-predicate' = 'exception', 'retry-strategy' ="),
        (
            "postgres",
            "scan.partition.column",
            "Write 'lookup.scan.partitions': in how many parts a table is read whole.",
        ),
        ("postgres", "sink.buffer-flush.max-rows", "A lookup table is not written to"),
        ("postgres", "driver", "Leave it out: a connector brings its own driver."),
        ("postgres", "username", "The connectors 'postgres' and 'mysql' call it 'user'."),
        ("http", "gid.connector.http.source.lookup.header.X-Tenant", "Write 'header.<name>'."),
        ("http", "http.source.lookup.retry-codes", "Write 'transient-codes'"),
        ("http", "asyncPolling", "Write 'lookup.async'."),
        ("redis", "zookeeper.quorum", "There is no connector for HBase yet."),
    ],
)
def test_an_option_of_flink_is_told_what_it_is_here(connector: str, option: str, told: str) -> None:
    text = f"CREATE TEMPORARY TABLE t (id BIGINT) WITH ('connector' = '{connector}', '{option}' = 'x')"
    said = "\n".join(finding.message for finding in check_script(text))
    assert f"connector '{connector}' has no option '{option}'. " in said
    assert told in said
    assert "Did you mean" not in said.partition(option)[2].partition("\n")[0]


@pytest.mark.parametrize(
    ("connector", "option", "told"),
    [
        ("http", "http.cache", "'lookup.cache' = 'PARTIAL'"),
        ("postgres", "lookup.hedge", "Write 'output-mode' = 'allow_unordered'"),
    ],
)
def test_an_option_that_was_removed_is_told_what_to_write_instead(
    connector: str, option: str, told: str
) -> None:
    text = f"CREATE TEMPORARY TABLE t (id BIGINT) WITH ('connector' = '{connector}', '{option}' = 'x')"
    said = "\n".join(finding.message for finding in check_script(text))
    assert f"connector '{connector}' has no option '{option}'. It was removed. " in said
    assert told in said


@pytest.mark.parametrize(
    ("connector", "told"),
    [
        (
            "jdbc",
            "No connector is called 'jdbc'. For PostgreSQL write 'postgres', for MySQL 'mysql', for SQLite 'sqlite'.",
        ),
        ("rest-lookup", "Write 'http'."),
        ("hbase-2.2", "There is no connector for HBase yet."),
        ("kafka", "It is not asked by key: Spark reads and writes it"),
    ],
)
def test_a_connector_of_flink_is_told_what_it_is_here(connector: str, told: str) -> None:
    text = f"CREATE TEMPORARY TABLE t (id BIGINT) WITH ('connector' = '{connector}')"
    assert told in check_script(text)[0].message


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("lookup.cache", "Write 'cache'; in WITH it is 'lookup.cache'."),
        ("lookup.partial-cache.max-rows", "In Flink, too, it belongs in WITH, not in a hint."),
        ("lookup.full-cache.max-bytes", "In Flink, too, it belongs in WITH, not in a hint."),
        ("lookup.async", "Write 'async'; in WITH it is 'lookup.async'."),
        ("lookup-table", "Write 'table'."),
        ("hedge", "It was removed. Write 'output-mode' = 'allow_unordered'"),
        ("capasity", "Did you mean 'capacity'?"),
    ],
)
def test_an_option_of_flink_in_a_hint_is_told_what_it_is_here(option: str, told: str) -> None:
    assert said(hint=f"'{option}' = 'x'").startswith(f"No LOOKUP option is called '{option}'. {told}")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("table.exec.mini-batch.enabled", "Leave it out: Spark runs micro-batches"),
        ("table.exec.async-lookup.key-ordered-enabled", "Leave it out: rows keep their order."),
        ("table.exec.async-lookup.time-out", "Did you mean 'table.exec.async-lookup.timeout'?"),
        ("spark.table.exec.state.ttl", "There is no equivalent: state is Spark's"),
        ("table.exec.legacy-cast-behaviour", "There is no equivalent: all but table.exec.async-lookup.*"),
        ("execution.runtime-mode", "Leave it out: FROM STREAM makes a streaming query"),
        ("lookup.full-cache.x", "In Flink, too, it belongs in WITH, not in SET."),
    ],
)
def test_a_job_option_of_flink_is_told_what_it_is_here(key: str, told: str) -> None:
    with pytest.raises(OptionError) as raised:
        own_setting(SqlText(f"SET '{key}' = '1'"))
    assert raised.value.problems[0].message == f"No session option is called '{key}'."
    assert raised.value.problems[0].tip.startswith(told)


def test_what_spark_may_mean_is_left_to_it() -> None:
    for text in ("SET execution.date = '2026-01-01'", "SET spark.sql.x = 1", "SET scan.day = 1"):
        assert own_setting(SqlText(text)) is None


def test_no_option_that_there_is_has_an_answer_of_flinks() -> None:
    here = {
        *options_at(Place.TABLE, LOOKUP_OPTIONS),
        *(key for each in SESSION_OPTIONS for key in each.session_keys),
    }
    assert not here & {*flink.TABLE_OPTIONS, *flink.SESSION_OPTIONS}
