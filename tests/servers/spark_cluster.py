"""A standalone Spark cluster on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

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

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            processes.append(
                subprocess.Popen(
                    [
                        *(str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}"),
                        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments[1:]),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # so that executors can be ended with their worker
                )
            )
        return log

    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": "",  # executors have what their interpreter has, and no more
    }
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
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            _end(process)


def _said(log: Path, pattern: str, deadline: float) -> str:
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        found = re.search(pattern, text)
        if found:
            return found[1]
        assert time.monotonic() < deadline, f"{log.name} did not say {pattern}:\n{text[-3000:]}"
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
