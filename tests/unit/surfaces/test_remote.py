"""A Spark Connect server that is not there is not waited for in silence."""

from __future__ import annotations

import socket

import pytest

from lookup_hints.surfaces.remote import NoServer, await_server

pytest.importorskip("grpc")


def test_a_server_that_does_not_answer_is_said_and_given_up() -> None:
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
