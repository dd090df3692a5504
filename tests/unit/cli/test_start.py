"""A Spark that starts says so, and not more; a Connect server that is not there is not waited for in silence."""

from __future__ import annotations

import os
import re
import socket

import pytest

from lookup_hints.cli.start import NoServer, await_server, starting_spark


@pytest.mark.parametrize("quiet", [False, True])
def test_what_spark_says_of_itself_goes_to_a_file(quiet: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with starting_spark(quiet=quiet) as log:
        os.write(2, b"WARNING: Using incubator modules\n")
    os.write(2, b"of the program\n")
    assert log.read_text() == "WARNING: Using incubator modules\n"
    told = capfd.readouterr().err
    if quiet:
        assert told == "of the program\n"
    else:
        line = (
            rf"\rStarting Spark \.\.\. 0 s\rSpark started in \d+\.\d s\. It logs to {log}\nof the program\n"
        )
        assert re.fullmatch(line, told)
    log.unlink()


def test_where_spark_does_not_start_what_it_said_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    logs = []

    def start() -> None:
        with starting_spark() as log:
            logs.append(log)
            os.write(2, b"JAVA_HOME is not set\n")
            raise RuntimeError("no gateway")

    with pytest.raises(RuntimeError, match="no gateway"):
        start()
    assert "JAVA_HOME is not set" in capfd.readouterr().err
    assert not logs[0].exists()


def test_a_server_that_does_not_answer_is_said_and_given_up() -> None:
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
