"""`session.serve_metrics()` and `--metrics-port`: what Prometheus scrapes is what was counted."""

from __future__ import annotations

import socket
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from lookup_hints.cli import commands, job, submit
from lookup_hints.cli import main as cli
from lookup_hints.cli.arguments import FAILED
from lookup_hints.errors import OptionError
from lookup_hints.metrics import prometheus as prometheus
from tests.unit.metrics.scraping import scraped, value

TABLE = """CREATE OR REPLACE TEMPORARY TABLE {name} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]')"""
QUERY = "SELECT x.name FROM range(5) r LEFT JOIN {name} x ON r.id = x.id"


numbers = count()


@pytest.fixture
def ran(spark: SparkSession) -> LookupSession:
    """A session in which one lookup has run, once in all this application."""
    return asking(spark, f"people_{next(numbers)}")


def asking(spark: SparkSession, table: str) -> LookupSession:
    session = LookupSession(spark.newSession())
    session.sql(TABLE.format(name=table))
    session.sql(QUERY.format(name=table)).collect()
    return session


def test_a_scrape_equals_the_counts_of_the_session(ran: LookupSession) -> None:
    ((name, counts),) = ran.metrics().items()
    with ran.serve_metrics(0) as server:
        families = scraped(server.url)
    labels = {"table": name.table, "alias": "x", "connector": "memory", "line": "1"}
    assert (counts.rows_in, counts.hits, counts.misses) == (5, 2, 3)
    for field in ("rows_in", "rows_out", "keys", "requests", "hits", "misses", "errors"):
        shown = value(families, f"lookup_{field}_total", **labels, function=name.function)
        assert shown == getattr(counts, field)
    assert value(families, "lookup_most_in_flight", **labels) == counts.most_in_flight
    assert value(families, "lookup_latency_seconds_count", **labels) == counts.latency.total


def test_a_scrape_shows_what_has_run_since_the_last(ran: LookupSession) -> None:
    (name,) = ran.metrics()
    with ran.serve_metrics(0) as server:
        assert value(scraped(server.url), "lookup_rows_in_total") == 5
        ran.sql(QUERY.format(name=name.table)).collect()
        assert value(scraped(server.url), "lookup_rows_in_total") == 10


def test_two_sessions_serve_their_own_counts(spark: SparkSession, ran: LookupSession) -> None:
    other = asking(spark, "others")
    with ran.serve_metrics(0) as first, other.serve_metrics(0) as second:
        assert value(scraped(first.url), "lookup_keys_total") == 5
        assert value(scraped(second.url), "lookup_keys_total", table="others") == 5


def test_flinks_names(ran: LookupSession) -> None:
    (name,) = ran.metrics()
    with ran.serve_metrics(0, flink_names=True) as server:
        families = scraped(server.url)
    labels = {"job_name": "lookup-hints-tests", "operator_name": f"LookupJoin[{name}]"}
    assert value(families, "flink_taskmanager_job_task_operator_numRecordsIn", **labels) == 5


# --- the command line ------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.sql"
    path.write_text(f"{TABLE.format(name='served')};\n{QUERY.format(name='served')};\n")
    return path


@pytest.fixture
def scrapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Metric]]:
    """What was scraped at the end of each run of a file, at the address that was printed at its beginning."""
    run, seen = job.run, []

    def scraping(session: LookupSession, script: job.Script, showing: job.Showing) -> int:
        (url,) = [line[9:] for line in capsys.readouterr().out.splitlines() if line.startswith("metrics: ")]
        code = run(session, script, showing)
        seen.append(scraped(url))
        return code

    monkeypatch.setattr(job, "run", scraping)
    return seen


def test_a_run_serves_metrics_while_it_runs(
    spark: SparkSession, file: Path, scrapes: list[dict[str, Metric]]
) -> None:
    assert cli.main(["run", str(file), "--metrics-port", "0"]) == 0
    (families,) = scrapes
    assert value(families, "lookup_rows_in_total", table="served", line="3") >= 5
    assert not [name for name in families if name.startswith("flink")]


def test_a_run_may_choose_address_and_names(
    spark: SparkSession, file: Path, scrapes: list[dict[str, Metric]]
) -> None:
    arguments = ["run", str(file), "--metrics-port", "localhost:0", "--metrics-names", "flink"]
    assert cli.main(arguments) == 0
    name = "flink_taskmanager_job_task_operator_numRecordsIn"
    assert value(scrapes[0], name, operator_name="LookupJoin[served AS x, line 3]") >= 5


def test_a_run_goes_on_where_the_port_is_taken(
    spark: SparkSession, file: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["run", str(file), "--metrics-port", str(port)]) == 0
    out = capsys.readouterr().out
    assert "metrics:" not in out
    assert "2 statements in " in out
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "lookup_hints.metrics"]
    assert warning.startswith(f"metrics are not served at 127.0.0.1, port {port}: ")


@pytest.mark.parametrize("wrong", ["http", "70000", "localhost:", "-1"])
def test_a_bad_address_is_refused(wrong: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["run", str(file), f"--metrics-port={wrong}"])
    assert exit_.value.code == 2
    assert f"[HOST:]PORT needs a port of 0 to 65535, not '{wrong}'" in capsys.readouterr().err


def test_a_missing_package_is_told_before_spark_starts(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prometheus, "find_spec", lambda _: None)
    monkeypatch.setattr(commands, "_open_session", None)
    assert cli.main(["run", str(file), "--metrics-port", "0"]) == FAILED
    assert "pip install 'lookup-hints[prometheus]'" in capsys.readouterr().err
    assert submit.main([str(file), "--metrics-port", "0"]) == FAILED


def test_submit_hands_the_options_on(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["submit", str(file), "--dry-run", "--metrics-port", "0.0.0.0:9091"]
    assert cli.main([*arguments, "--metrics-names", "flink"]) == 0
    assert "--metrics-port 0.0.0.0:9091 --metrics-names flink" in capsys.readouterr().out
    assert cli.main(["submit", str(file), "--dry-run"]) == 0
    assert "--metrics" not in capsys.readouterr().out


def test_a_session_refuses_what_is_no_port(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match="70000 is no port"):
        LookupSession(spark).serve_metrics(70000)
