"""Servers of Spark on loopback: a standalone cluster of a master and workers, and a Connect server."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from tests import jvm
from tests.servers.postgres import free_port

SPARK_HOME = Path(next(iter(pyspark.__path__)))


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int, seconds: float) -> Iterator[str]:
    """Start a master and ``workers`` workers of one core each; gives the master's URL.

    Args:
        folder: for logs and the files of executors.
        workers: how many.
        seconds: that the start may take.
    """
    processes: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + seconds

    def start(name: str, kind: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = ["spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--port", "0"]
        variables = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder / "local")}
        processes.append(_start(log, *command, "--webui-port", "0", *arguments, **variables))
        return log

    try:
        master = start("master", "master.Master")
        url = _said(master, r"Starting Spark master at (spark://\S+)", deadline)
        sizes = ("--cores", "1", "--memory", "700m")
        logs = [
            start(name, "worker.Worker", *sizes, "--work-dir", str(folder / name), url)
            for name in (f"worker{number}" for number in range(workers))
        ]
        for log in logs:
            _said(log, r"(Successfully registered) with master", deadline)
        yield url
    finally:
        _end(processes)


@contextlib.contextmanager
def connect_server(folder: Path, python: str, seconds: float) -> Iterator[str]:
    """Start a Spark Connect server with two task slots, whose workers run ``python``; gives its URL."""
    port, log = free_port(), folder / "connect.log"
    binding = {"port": str(port), "address": "127.0.0.1"}
    conf = {f"spark.connect.grpc.binding.{key}": value for key, value in binding.items()}
    conf |= {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    process = _start(
        *(log, "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", *(part for each in conf.items() for part in ("--conf", "=".join(each)))),
        PYSPARK_PYTHON=python,
    )
    try:
        _said(log, r"(Spark Connect server started)", time.monotonic() + seconds)
        yield f"sc://127.0.0.1:{port}"
    finally:
        _end([process])


def _start(log: Path, program: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start a program of Spark that sees nothing of this environment's own settings of Spark."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": jvm.options(),
        "SPARK_DAEMON_JAVA_OPTS": jvm.options(),
        "PYTHONPATH": "",  # executors have what their interpreter has, and no more
        **variables,
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(SPARK_HOME / "bin" / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # so that executors can be ended with their worker
        )


def _said(log: Path, pattern: str, deadline: float) -> str:
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        found = re.search(pattern, text)
        if found:
            return found[1]
        assert time.monotonic() < deadline, f"{log.name} did not say {pattern}:\n{text[-3000:]}"
        time.sleep(0.1)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes with all that they have started, the last one first."""
    for process in reversed(processes):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
