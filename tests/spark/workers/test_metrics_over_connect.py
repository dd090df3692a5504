"""Updates in the responses of a Connect server, through PySpark's own client and a server that is not there."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import accumulators

from lookup_hints.driver import metrics_collector
from lookup_hints.driver.metrics_collector import Update, can_receive, receive_over_connect, send_over_connect
from tests.spark.versions import SPARK

pb2 = pytest.importorskip("pyspark.sql.connect.proto")
ME = metrics_collector._OURS
UPDATE: Update = [{"function": "f", "run": {"batch": None}, "counts": {"keys": 3, "latency": {7: 1}}}]

needs_a_receiving_client = pytest.mark.skipif(SPARK < (4, 0), reason="before PySpark 4.0 nothing is received")


class Server:
    """Answers each statement with the next of ``answers``, or with nothing when they are used up."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[Any] = []

    def ExecutePlan(self, request: Any, **_: Any) -> Iterator[Any]:  # noqa: N802 (of the protocol)
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        yield pb2.ExecutePlanResponse(session_id=request.session_id, server_side_session_id="1", **answer)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def spark(server: Server) -> Any:
    """What is used of a Connect session."""
    from pyspark.sql.connect.client import SparkConnectClient

    client: Any = SparkConnectClient("sc://localhost:1", use_reattachable_execute=False)
    client._stub = server
    return SimpleNamespace(client=client)


def bringing(*pickled: bytes, name: str = "__python_accumulator__") -> dict[str, Any]:
    values = [pb2.Expression.Literal(binary=each) for each in pickled]
    metrics = pb2.ExecutePlanResponse.ObservedMetrics(name=name, values=values)
    return {"observed_metrics": [metrics]}


def of_id(number: int, update: Any = UPDATE) -> bytes:
    return pickle.dumps((number, update))


def run(spark: Any) -> Any:
    """One statement; the observed metrics that a user sees of it."""
    _, _, execution = spark.client.execute_command(command())
    return [(name, len(values)) for name, values in execution.flows]


def passed_over(update: Update) -> None:
    """Take an update and forget it."""


def command() -> Any:
    made = pb2.Command()
    made.streaming_query_manager_command.reset_terminated = True
    return made


def joined_watch() -> None:
    """Wait until nothing is fetched from time to time."""
    for thread in threading.enumerate():
        if thread.name == "lookup-counts":
            thread.join(10)
            assert not thread.is_alive()


def test_pyspark_lets_a_session_receive_from_4_0_on(spark: Any) -> None:
    assert can_receive(spark) is (SPARK >= (4, 0))


def test_a_session_of_classic_spark_does_not_receive() -> None:
    assert not can_receive(SimpleNamespace())  # type: ignore[arg-type]


def test_what_lookups_of_one_task_send_goes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: dict[int, Any] = {}
    monkeypatch.setattr(accumulators, "_accumulatorRegistry", registry)
    send_over_connect([{"function": "f"}])
    send_over_connect([{"function": "g"}])
    assert registry[ME]._value == [{"function": "f"}, {"function": "g"}]
    registry.clear()  # as the worker does before each task
    send_over_connect([{"function": "h"}])
    assert registry[ME]._value == [{"function": "h"}]


@needs_a_receiving_client
class TestReceiving:
    def test_an_update_comes_with_a_statement_and_nobody_else_sees_it(
        self, spark: Any, server: Server
    ) -> None:
        taken: list[Update] = []
        receive_over_connect(spark, taken.append)
        server.answers = [bringing(of_id(ME), of_id(ME, []))]
        assert run(spark) == []
        assert taken == [UPDATE, []]
        assert run(spark) == []
        assert len(taken) == 2

    def test_one_comes_with_statements_whose_answers_pyspark_drops_or_hands_on(
        self, spark: Any, server: Server
    ) -> None:
        taken: list[Update] = []
        receive_over_connect(spark, taken.append)
        server.answers = [bringing(of_id(ME)), bringing(of_id(ME))]
        spark.client._execute(spark.client._execute_plan_request_with_metadata())  # registers functions
        assert list(spark.client.execute_command_as_iterator(command())) == []  # reads events of streams
        assert len(taken) == 2

    def test_what_others_accumulated_or_observed_stays(self, spark: Any, server: Server) -> None:
        taken: list[Update] = []
        receive_over_connect(spark, taken.append)
        others = [bringing(of_id(-99, 1), of_id(ME), of_id(-98, 2)), bringing(of_id(ME), name="observed")]
        server.answers = list(others)
        assert run(spark) == [("__python_accumulator__", 2)]
        assert run(spark) == [("observed", 1)]
        assert taken == [UPDATE]

    @pytest.mark.parametrize(
        "malformed",
        [
            of_id(ME, {"not": "a list"}),
            of_id(ME)[:-4],
            pickle.dumps((ME, [], "more")),
            of_id(ME, [Path("/")]),
        ],
        ids=["no list", "cut off", "three", "a class"],
    )
    def test_a_malformed_update_is_dropped_with_one_line_in_the_log(
        self, spark: Any, server: Server, malformed: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "lookup_hints")
        taken: list[Update] = []
        receive_over_connect(spark, taken.append)
        server.answers = [bringing(malformed, of_id(ME))]
        assert run(spark) == []
        assert taken == [UPDATE]
        assert len([each for each in caplog.records if each.name == "lookup_hints"]) == 1

    def test_an_update_runs_no_code(self, spark: Any, server: Server, tmp_path: Path) -> None:
        class Harmful:
            def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
                return Path.touch, (tmp_path / "ran",)

        assert pickle.loads(pickle.dumps(Harmful())) is None
        (tmp_path / "ran").unlink()
        receive_over_connect(spark, passed_over)
        server.answers = [bringing(of_id(ME, [Harmful()]))]
        assert run(spark) == []
        assert not (tmp_path / "ran").exists()

    def test_one_who_fails_to_take_harms_neither_the_statement_nor_others(
        self, spark: Any, server: Server
    ) -> None:
        def fails(update: Update) -> None:
            raise KeyError("counts")

        taken: list[Update] = []
        receive_over_connect(spark, fails)
        receive_over_connect(spark, taken.append)
        server.answers = [bringing(of_id(ME))]
        assert run(spark) == []
        assert taken == [UPDATE]

    def test_one_who_takes_is_told_once_however_often_it_asks(self, spark: Any, server: Server) -> None:
        taken: list[Update] = []
        take = taken.append
        receive_over_connect(spark, take)
        receive_over_connect(spark, take)
        server.answers = [bringing(of_id(ME))]
        run(spark)
        assert taken == [UPDATE]

    def test_a_response_of_another_session_is_refused_as_ever(self, spark: Any) -> None:
        taken: list[Update] = []
        receive_over_connect(spark, taken.append)
        stranger = pb2.ExecutePlanResponse(session_id="another", **bringing(of_id(ME)))
        with pytest.raises(Exception, match="incorrect session identifier"):
            spark.client._verify_response_integrity(stranger)
        assert taken == []


@needs_a_receiving_client
class TestFetching:
    def test_what_waits_on_the_server_is_fetched(self, spark: Any, server: Server) -> None:
        taken: list[Update] = []
        fetch = receive_over_connect(spark, taken.append)
        server.answers = [bringing(of_id(ME))]
        fetch()
        assert taken == [UPDATE]
        assert server.requests[0].session_id == spark.client._session_id

    def test_a_server_that_is_away_is_no_error(self, spark: Any, server: Server) -> None:
        fetch = receive_over_connect(spark, passed_over)
        server.answers = [ConnectionError("away")]
        fetch()
        assert len(server.requests) == 1

    def test_while_a_stream_runs_it_is_fetched_from_time_to_time(
        self, spark: Any, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics_collector, "_EVERY", 0.0)
        taken: list[Update] = []
        receive_over_connect(spark, taken.append)
        active = pb2.StreamingQueryManagerCommandResult.ActiveResult(
            active_queries=[pb2.StreamingQueryManagerCommandResult.StreamingQueryInstance()]
        )
        runs = {"streaming_query_manager_command_result": {"active": active}}
        server.answers = [
            {"write_stream_operation_start_result": {"name": "q"}},
            {**runs, **bringing(of_id(ME))},
            ConnectionError("away for a moment"),
            {**runs, **bringing(of_id(ME))},
            {},
        ]
        run(spark)
        joined_watch()
        assert taken == [UPDATE, UPDATE]
        assert len(server.requests) == 5

    def test_while_tasks_run_too(self, spark: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metrics_collector, "_EVERY", 0.0)
        receive_over_connect(spark, passed_over)
        for _ in range(2):  # what ended begins again
            server.answers = [{"execution_progress": {"num_inflight_tasks": 1}}]
            run(spark)
            joined_watch()
        assert len(server.requests) >= 4, "two statements, and something fetched after each"

    def test_a_server_that_stays_away_is_left_alone_in_the_end(
        self, spark: Any, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics_collector, "_EVERY", 0.0)
        receive_over_connect(spark, passed_over)
        gone = [ConnectionError("gone")] * 100
        server.answers = [{"write_stream_operation_start_result": {"name": "q"}}, *gone]
        run(spark)
        joined_watch()
        assert len(server.requests) == 1 + metrics_collector._MOST_FAILURES

    def test_nothing_is_fetched_from_a_session_that_is_closed(
        self, spark: Any, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def closed_meanwhile(seconds: float) -> None:
            spark.client._closed = True

        monkeypatch.setattr(metrics_collector, "time", SimpleNamespace(sleep=closed_meanwhile))
        receive_over_connect(spark, passed_over)
        server.answers = [{"write_stream_operation_start_result": {"name": "q"}}]
        run(spark)
        joined_watch()
        assert len(server.requests) == 1

    def test_an_idle_session_is_left_alone(self, spark: Any, server: Server) -> None:
        receive_over_connect(spark, passed_over)
        run(spark)
        assert not [thread for thread in threading.enumerate() if thread.name == "lookup-counts"]
