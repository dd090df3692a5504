"""Sparks of tests begin with classes that are ready: ``python -m tests.jvm`` keeps those of one Spark in a file.

Reading and checking classes is most of what a young JVM does. Java maps the file in place of that (class data
sharing). It belongs to one Java and one Spark: where it is missing or does not fit, a JVM goes without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CLASSES = Path(sys.prefix) / "spark.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=256m"
"""They live for minutes: compiling their code well, or looking for classes to unload, would take longer than it saves."""


def options() -> str:
    """The options of a JVM; it says nothing about a file that does not fit."""
    if not CLASSES.exists() or " " in str(CLASSES):
        return QUICK
    return f"{QUICK} -XX:SharedArchiveFile={CLASSES} -Xlog:disable"


def main() -> None:
    """Run a Spark that writes down its classes when it ends; an empty file where it cannot."""
    with TemporaryDirectory() as folder:
        if sys.argv[1:] == ["use"]:
            _use(Path(folder))
            return
        new = Path(folder) / "classes"
        run = subprocess.run(
            [sys.executable, "-m", "tests.jvm", "use"],
            env={**os.environ, "SPARK_SUBMIT_OPTS": f"{QUICK} -XX:ArchiveClassesAtExit={new} -Xlog:disable"},
            stdout=subprocess.PIPE,  # the JVM has it too: when it is closed, the JVM has ended
            stderr=subprocess.STDOUT,
        )
        if run.returncode:
            print(run.stdout.decode(errors="replace"))
        CLASSES.write_bytes(new.read_bytes() if new.exists() else b"")


def _use(folder: Path) -> None:
    """Do a little of most that tests do."""
    from tests.conftest import local_spark
    from tests.spark.oracle import Twins

    for spark in local_spark(folder / "warehouse"):
        twins = Twins(spark.newSession, folder)
        twins.table(
            "orders", "id INT, k BIGINT, kind STRING, total DOUBLE", [(1, 1, "a", 1.5), (2, None, "b", 2.5)]
        )
        twins.dimension(
            "c", "id BIGINT, name STRING, day DATE", [(1, "Ann", None), (3, "Cy", None)], key="id"
        )
        for text in (
            "SELECT o.id, c.name FROM orders o LEFT JOIN c ON o.k = c.id AND o.total > 1 ORDER BY o.id",
            "SELECT c.name, count(*) n, sum(o.total) s FROM orders o JOIN c ON o.k = c.id GROUP BY c.name HAVING n > 0",
            "SELECT id, row_number() OVER (PARTITION BY kind ORDER BY id) n FROM orders WHERE k IN (SELECT id FROM c)",
            "WITH q AS (SELECT o.*, c.day FROM orders o JOIN c ON o.k = c.id)"
            " SELECT a.day, b.id FROM q a FULL JOIN q b ON a.id = b.id UNION ALL SELECT DISTINCT day, 1 FROM c",
            "SELECT struct(o.*) s, CAST(total AS DECIMAL(9,2)) d FROM orders o WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.id = o.k)",
        ):
            twins.check(text)
        twins.session.explain("SELECT o.id, c.name FROM orders o LEFT JOIN c ON o.k = c.id")
        session = twins.session.spark
        session.sql("CREATE TABLE written USING parquet AS SELECT * FROM orders")
        stream = session.readStream.schema("id INT, k BIGINT").parquet(str(folder / "warehouse" / "written"))
        joined = twins.session.lookup_join(stream, "c", {"k": "id"})
        writing = joined.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
        writing.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main()
