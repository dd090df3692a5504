"""Processes of a cluster that are killed in the middle of a lookup; a read that fails. See ``test_worker_loss``."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from lookup_connectors.memory import MemoryConnector
from pyspark.sql import SparkSession

from lookup_hints import LookupSession
from lookup_hints.spi import TEXT, ConnectorError, Option
from lookup_hints.spi.request_and_answer import LookupRequest
from tests.spark.elsewhere import Steps, cluster

ROWS, PARTS, FALTERS = 4000, 5, 2
KILLED = ("worker", "executor", "executor_of_a_stream")
PEOPLE = ", ".join(f'[{n}, "name {n}"]' for n in range(0, 500, 2))


class Hesitating(MemoryConnector):
    """Says which process asks, and answers only once the folder holds the word to go on."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *MemoryConnector.OPTIONS,
        Option("folder", TEXT, "For its words."),
    )

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Wait, then answer."""
        folder = Path(self.table.options["folder"])
        (folder / f"asked-{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while not (folder / "go-on").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return super().lookup(request)


class Faltering(MemoryConnector):
    """Is read in parts; the first try of one of them fails in its middle."""

    OPTIONS: ClassVar[tuple[Option, ...]] = Hesitating.OPTIONS

    def partitions(self, wanted: int) -> Sequence[str]:
        """Always as many."""
        return tuple(map(str, range(PARTS)))

    def scan_partition(self, schema: pa.Schema, partition: str) -> Iterator[pa.RecordBatch]:
        """The rows of the part; each try leaves a line."""
        tries = Path(self.table.options["folder"]) / f"part-{partition}"
        is_first = not tries.exists()
        with tries.open("a", encoding="utf-8") as log:
            log.write(f"{os.getpid()}\n")
        rows = pa.Table.from_batches(self.scan(schema), schema)
        size = rows.num_rows // PARTS
        own = rows.slice(int(partition) * size, size)
        yield from own.slice(0, size // 2).to_batches()
        if is_first and int(partition) == FALTERS:
            raise ConnectorError("the line broke")
        yield from own.slice(size // 2).to_batches()


def parent(pid: int) -> int:
    """The process that started ``pid``."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


def worker(pid: int) -> int:
    """The Python worker that asked."""
    return pid


def executor(pid: int) -> int:
    """The JVM whose daemon forked the worker."""
    return parent(parent(pid))


def scenario(spark: SparkSession, folder: Path) -> Steps:
    """All steps."""
    step = Steps(optional=KILLED)
    session = LookupSession(spark)
    visits = folder / "visits"
    spark.range(0, ROWS, 1, 4).selectExpr("id", "id % 700 AS person").write.parquet(str(visits))
    session.sql(f"CREATE TABLE visits (id BIGINT, person BIGINT) USING parquet LOCATION '{visits}'")
    session.sql("SET lookup.stream.trigger = available-now")
    spark.sql(
        "CREATE TEMPORARY VIEW everyone AS SELECT id * 2 AS id, concat('name ', id * 2) AS name FROM range(250)"
    )
    expected = spark.sql(
        "SELECT v.id, p.name FROM visits v LEFT JOIN everyone p ON v.person = p.id"
    ).collect()

    def killed(name: str, victim: Callable[[int], int], run: Callable[[str], list[Any]]) -> Any:
        words = folder / name
        words.mkdir()
        table = f"people_{name}"
        session.sql(
            f"CREATE TEMPORARY TABLE {table} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
            f" ('connector' = 'tests.processes.worker_loss_scenario:Hesitating', 'rows' = '[{PEOPLE}]',"
            f" 'folder' = '{words}', 'lookup.async' = 'false')"
        )
        pids: list[int] = []

        def kill() -> None:
            deadline = time.monotonic() + 60
            while not (asked := list(words.glob("asked-*"))):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            pids.append(victim(int(asked[0].name.removeprefix("asked-"))))
            os.kill(pids[0], signal.SIGKILL)
            (words / "go-on").touch()

        killer = threading.Thread(target=kill)
        killer.start()
        rows = run(table)
        killer.join()
        workers = len(list(words.glob("asked-*")))
        return {"killed": len(pids), "right": sorted(rows) == sorted(expected), "workers": workers}

    def batch(table: str) -> list[Any]:
        query = f"SELECT v.id, p.name FROM visits v LEFT JOIN {table} p ON v.person = p.id"
        return session.sql(query).collect()

    def stream(table: str) -> list[Any]:
        out = folder / f"out_{table}"
        session.sql(
            f"INSERT INTO parquet.`{out}` WITH (checkpointLocation = '{folder}/checkpoint_{table}')"
            f" SELECT v.id, p.name FROM STREAM visits v LEFT JOIN {table} p ON v.person = p.id"
        )
        assert session.streams.await_all(120)
        assert not session.streams.started[-1].supervised.restarts, "Spark itself runs lost tasks again"
        return spark.read.parquet(str(out)).collect()

    for name, victim, run in (
        ("worker", worker, batch),
        ("executor", executor, batch),
        ("executor_of_a_stream", executor, stream),
    ):
        step.run(name, lambda name=name, victim=victim, run=run: killed(name, victim, run))  # type: ignore[misc]

    @step
    def read_in_parts() -> Any:
        session.sql(
            "CREATE TEMPORARY TABLE parted (id BIGINT, name STRING) WITH ('connector' ="
            f" 'tests.processes.worker_loss_scenario:Faltering', 'rows' = '[{PEOPLE}]', 'folder' = '{folder}')"
        )
        rows = session.sql("SELECT id, name FROM parted").collect()
        tries = [len((folder / f"part-{part}").read_text("utf-8").splitlines()) for part in range(PARTS)]
        return {"right": sorted(rows) == sorted(spark.table("everyone").collect()), "tries": tries}

    return step


if __name__ == "__main__":
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "1g",
    }
    with cluster("local-cluster[2,1,512]", "lookup-hints-loss", settings) as spark:
        scenario(spark, Path(sys.argv[1])).tell(Path(sys.argv[1]))
