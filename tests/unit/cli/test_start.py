"""A Spark that starts says so, and not more; a Connect server that is not there is not waited for in silence."""

from __future__ import annotations

import io
import re
import socket
import threading
from collections.abc import Mapping
from typing import IO, Any
from unittest.mock import MagicMock

import pytest

from lookup_hints.runs.start import NoServer, SparkStart, await_server, on_terminal

pytestmark = pytest.mark.usefixtures("launches")


class FakeJvm:
    """What is launched in place of a JVM: it says a line, and is there when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> None:
        self.may_be_there, self._failure = threading.Event(), failure
        self.confs: list[Mapping[str, str]] = []
        self.sessions: list[SparkStart] = []
        monkeypatch.setattr("lookup_hints.runs.start.has_jvm", lambda: False)
        monkeypatch.setattr("lookup_hints.runs.start.launched_jvm", self._launch)
        monkeypatch.setattr("lookup_hints.runs.start.check_java", lambda *_: "java")
        monkeypatch.setattr("lookup_hints.runs.start.failed_jvm", lambda *_: None)
        monkeypatch.setattr(SparkStart, "_build_session", self._session)

    def _launch(self, conf: Mapping[str, str], errors: IO[bytes] | None) -> str:
        self.confs.append(conf)
        if errors is not None:
            errors.write(b"WARNING: Using incubator modules\n")
        self.may_be_there.wait()
        if self._failure is not None:
            raise self._failure
        return "gateway"

    def _session(self) -> Any:
        (waiting,) = self.waiting
        return waiting.result()

    @property
    def waiting(self) -> list[Any]:
        return [each._jvm for each in self.sessions]

    def start(self, conf: Mapping[str, str], *, hides_log: bool) -> SparkStart:
        started = SparkStart(conf, hides_log=hides_log)
        self.sessions.append(started)
        return started


def test_the_jvm_starts_before_its_session_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = FakeJvm(monkeypatch)
    spark = jvm.start({"spark.master": "local[2]", "a": "b"}, hides_log=True)
    jvm.may_be_there.set()
    assert not spark.is_there
    said: list[str] = []
    assert str(spark.session(said.append)) == "gateway"
    assert spark.is_there
    (conf,) = jvm.confs
    assert {"spark.master": "local[2]", "a": "b", "spark.app.name": "lookup-hints"}.items() <= conf.items()
    assert spark.log is not None
    assert spark.log.read_text() == "WARNING: Using incubator modules\n"
    assert re.fullmatch(r"Starting Spark \.\.\. \d+ s", said[0])
    assert re.fullmatch(rf"Spark started in \d+\.\d s\. It logs to {spark.log}", said[-1])
    spark.log.unlink()


def test_where_spark_does_not_start_what_it_said_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jvm = FakeJvm(monkeypatch, RuntimeError("no gateway"))
    spark = jvm.start({}, hides_log=True)
    jvm.may_be_there.set()
    with pytest.raises(RuntimeError, match="no gateway"):
        spark.session()
    assert "Using incubator modules" in capsys.readouterr().err
    assert spark.log is not None
    assert not spark.log.exists()
    assert not spark.is_there


def test_sql_is_loaded_beside_the_context_and_before_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    context_is_there = threading.Event()
    steps: list[str] = []

    def make_context(**_: Any) -> None:
        steps.append("context")
        context_is_there.set()

    class FakeBuilder:
        def config(self, *_: str) -> FakeBuilder:
            return self

        def getOrCreate(self) -> str:  # noqa: N802 (PySpark's name)
            steps.append("session")
            return "session"

    def load_sql(gateway: str) -> None:
        assert context_is_there.wait(60), "the context waits for it"
        steps.append(f"SQL of {gateway}")

    monkeypatch.setattr("lookup_hints.runs.start.has_jvm", lambda: False)
    monkeypatch.setattr("lookup_hints.runs.start.launched_jvm", lambda conf, errors: "gateway")
    monkeypatch.setattr("lookup_hints.runs.start.check_java", lambda *_: "java")
    monkeypatch.setattr("lookup_hints.runs.start.load_sql", load_sql)
    monkeypatch.setattr("pyspark.SparkConf", MagicMock())
    monkeypatch.setattr("pyspark.SparkContext", make_context)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", FakeBuilder())
    assert str(SparkStart({}, hides_log=False).session()) == "session"
    assert steps == ["context", "SQL of gateway", "session"]


@pytest.mark.parametrize(
    ("conf", "environment"),
    [
        ({"spark.remote": "sc://here"}, {}),
        ({"spark.api.mode": "connect"}, {}),
        ({}, {"SPARK_REMOTE": "sc://here"}),
        ({}, {"SPARK_API_MODE": "connect"}),
        ({}, {"SPARK_CONNECT_MODE": "1"}),
    ],
)
def test_a_session_of_a_connect_server_needs_no_jvm_of_ours(
    conf: dict[str, str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = FakeJvm(monkeypatch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert jvm.start(conf, hides_log=True).log is None
    assert jvm.confs == []


@pytest.mark.parametrize("environment", [{"SPARK_API_MODE": "classic"}, {"SPARK_CONNECT_MODE": "0"}])
def test_where_classic_spark_is_asked_for_its_jvm_starts(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = FakeJvm(monkeypatch)
    jvm.may_be_there.set()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    jvm.start({}, hides_log=False).session()
    assert len(jvm.confs) == 1


def test_spark_draws_no_bar_of_its_own_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm, bar = FakeJvm(monkeypatch), "spark.ui.showConsoleProgress"
    jvm.may_be_there.set()
    for conf in ({}, {bar: "true"}):
        jvm.start(conf, hides_log=False).session()
        jvm.sessions.clear()
    assert [conf[bar] for conf in jvm.confs] == ["false", "true"], "who asks for it has it"


def test_nor_does_one_beside_a_jvm_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = FakeJvm(monkeypatch)
    monkeypatch.setattr("lookup_hints.runs.start.has_jvm", lambda: True)
    assert jvm.start({}, hides_log=True).log is None
    assert jvm.confs == []


def test_lines_on_a_terminal_stand_one_over_the_other() -> None:
    terminal = io.StringIO()
    with on_terminal(terminal) as say:
        say("one")
        say("two")
    assert terminal.getvalue() == "\rone\rtwo\n"


def test_a_server_that_does_not_answer_is_reported_and_given_up() -> None:
    pytest.importorskip("grpc")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        said: list[str] = []
        with pytest.raises(NoServer) as caught:
            await_server(f"sc://{place}/;token=hunter2;use_ssl=false", said.append, patience=0.3)
    assert said == [f"waiting for the Spark Connect server at {place}, up to 0.3 s"]
    assert str(caught.value).startswith(
        f"No Spark Connect server answers at {place} within 0.3 s. Check host"
    )


def test_other_masters_are_not_waited_for() -> None:
    await_server("local[2]", pytest.fail)
