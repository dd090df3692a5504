"""What a client of Spark Connect does; prints what came of it. See ``test_connect``."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient

from lookup_hints import (
    FixedDelay,
    LookupMetrics,
    LookupSession,
    async_wait,
    disable,
    enable,
    register_connector,
    register_retry_predicate,
)
from lookup_hints.spi import TEXT, Option, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest
from tests.nth_call import Target
from tests.queries.test_dataframe import JOINS
from tests.queries.test_oracle import CUSTOMERS, ORDERS, PRICES, STATEMENTS
from tests.spark.answers import Answer, collected
from tests.spark.elsewhere import FailingConnector, Steps, names_asked
from tests.spark.failing_calls import check_disabling, check_enabling, check_planning
from tests.spark.joined import native
from tests.spark.oracle import Twins

JOIN = "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.k = c.id"
PEOPLE = """CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]')"""


SERVER = [
    Target(
        SparkConnectClient, name, lambda: SparkConnectGrpcException("the server does not answer (injected)")
    )
    for name in ("_analyze", "_execute", "_execute_and_fetch", "config")
]


class Squares(SyncLookup):
    """Belongs to ``__main__``, as a class of a notebook does, so that workers cannot import it."""

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Each key with its square."""
        numbers = request.keys.column("n").to_pylist()
        return pa.table({"n": numbers, "square": [number * number for number in numbers]}, request.schema)


class Town(SyncLookup, Scan):
    """Town 1, whose name stands in a file."""

    OPTIONS = (Option("file", TEXT, "The file.", required=True),)

    def lookup(self, request: LookupRequest) -> pa.Table:
        """The town, if it is asked for."""
        asked = request.keys.column("id").to_pylist()
        return self._rows(request.schema).slice(0, int(1 in asked))

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The town."""
        yield from self._rows(schema).to_batches()

    def _rows(self, schema: pa.Schema) -> pa.Table:
        options, _ = self.table.read(self.OPTIONS)
        name = Path(options["file"]).read_text(encoding="utf-8")
        return pa.table({"id": [1], "name": [name]}).select(schema.names).cast(schema)


def rows(frame: Any) -> list[list[Any]]:
    """What a frame holds, as JSON can say it."""
    return [list(row) for row in frame.collect()]


def scenario(new_session: Callable[[], SparkSession], folder: Path) -> Steps:
    """All steps."""
    step = Steps()
    twins = Twins(new_session, folder)
    twins.table("orders", "id INT, k BIGINT, kind STRING, total DOUBLE", ORDERS)
    twins.table("zips", "zip STRING, town STRING", [("10115", "Berlin"), ("75001", "Paris")])
    twins.dimension("customers", "id BIGINT, name STRING, country STRING, zip STRING", CUSTOMERS, key="id")
    twins.dimension("prices", "k BIGINT, kind STRING, price DOUBLE", PRICES)
    session = twins.session

    names = names_asked()
    for name in sorted(STATEMENTS.keys() & names):
        step.run(f"oracle: {name}", lambda name=name: len(twins.check(STATEMENTS[name])))  # type: ignore[misc]

    def joined(name: str) -> int:
        """Frames of two sessions cannot be in one job on Connect."""
        join = {**JOINS[name], "how": "left"}
        answer = Answer.of(session.lookup_join(session.spark.table("orders"), **join))
        answer.require(Answer.of(native(twins, "orders", **join)), name, ordered=False)
        return len(answer.rows)

    for name in sorted(JOINS.keys() & names):
        step.run(f"lookup_join: {name}", partial(joined, name))

    for check in (check_enabling, check_disabling, check_planning):
        if check.__name__ in names:
            step.run(check.__name__, partial(check, new_session, SERVER))

    orders = session.spark.table("orders")

    @step
    def columns_of_the_frame() -> Any:
        joined = session.lookup_join(orders.alias("o"), "customers", {"o.k": "id"}, "left", alias="c")
        return rows(joined.filter(orders.id < 3).select(orders.id, "c.name", joined.total))

    @step
    def frames_in_braces() -> Any:
        return session.sql(
            "SELECT o.id FROM {orders} o JOIN customers c ON o.k = c.id WHERE '{{' = :brace",
            {"brace": "{"},
            orders=orders,
        ).count()

    @step
    def retry_of_a_policy() -> Any:
        twins.forget()
        retry = FixedDelay(2, 0.001).if_miss()
        one = orders.filter("k = 5").limit(1)
        session.lookup_join(one, "customers", {"k": "id"}, "left", retry=retry).collect()
        return len(twins.calls("customers").requests)

    @step
    def functions_of_ones_own() -> Any:
        async def double(k: int) -> int:
            return 2 * k

        doubled = async_wait(orders, double, ["k"], "double BIGINT", retry=FixedDelay(1, 0.1).if_exception())
        tripled = async_wait(doubled, lambda k: 3 * k, [doubled.k], "triple BIGINT", how="inner")
        return [tripled.columns, tripled.filter("double * 3 = triple * 2").count()]

    @step
    def streams() -> Any:
        files = str(folder / "arriving")
        orders.repartition(2).write.parquet(files)
        arriving = session.spark.readStream.schema(orders.schema).parquet(files)
        joined = session.lookup_join(arriving, "customers", {"k": "id"}, "left", columns=["name"])
        waited = async_wait(joined, lambda k: -k, ["k"], "minus BIGINT")
        writing = waited.writeStream.format("memory").queryName("arrived")
        query = writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        finished = query.start().awaitTermination(120)
        expected = async_wait(
            session.lookup_join(orders, "customers", {"k": "id"}, "left", columns=["name"]),
            lambda k: -k,
            ["k"],
            "minus BIGINT",
        )
        arrived = sorted(collected(session.spark.table("arrived")))
        return [finished, len(arrived), arrived == sorted(collected(expected))]

    # What Connect cannot do: docs/connect.md.

    @step
    def no_spark_context() -> Any:
        return session.spark.sparkContext

    @step
    def no_lookup_in_a_micro_batch() -> Any:
        def keep(batch: Any, number: int) -> None:
            session.lookup_join(batch, "customers", "id").count()

        arriving = session.spark.readStream.schema(orders.schema).parquet(str(folder / "arriving"))
        query = arriving.writeStream.foreachBatch(keep).trigger(availableNow=True)
        return query.option("checkpointLocation", str(folder / "batches")).start().awaitTermination(60)

    @step
    def connect_is_what_runs() -> Any:
        return type(session.spark).__module__

    @step
    def trips_for_settings() -> Any:
        client: Any = session.spark._client  # type: ignore[attr-defined]  # of the Connect session
        # Without a look at prices: PySpark itself asks for settings where it fetches what EXPLAIN says.
        session.sql("SET lookup.access = lookup")
        with patch.object(client, "config", wraps=client.config) as config:
            session.prepare(JOIN)
        session.spark.conf.unset("lookup.access")
        return config.call_count

    @step
    def times_each_key_is_asked() -> Any:
        asked = {}
        for name in ("inner", "aggregate", "order by", "cte twice"):
            twins.forget()
            session.sql(STATEMENTS[name]).collect()
            asked[name] = max(twins.calls("customers").keys.values())
        return asked

    @step
    def tables() -> Any:
        session.sql(PEOPLE)
        shown = [rows(session.sql(f"SHOW {what}")) for what in ("LOOKUP TABLES", "COLUMNS IN people")]
        described = rows(session.sql("DESCRIBE people"))
        ((created,),) = rows(session.sql("SHOW CREATE TABLE people"))
        session.sql("DROP TABLE people")
        session.sql(created)
        return [*shown, described, rows(session.sql("SHOW TABLES LIKE 'peo*'"))]

    @step
    def doctor() -> Any:
        return str(session.doctor("people")).splitlines()

    @step
    def parameters() -> Any:
        by_name = twins.check(f"{JOIN} AND c.country = :land WHERE o.id < :n", {"land": "US", "n": 9})
        by_position = twins.check(
            "SELECT c.name, ? FROM orders o LEFT JOIN customers c ON c.country = ? AND o.k = c.id AND o.id < ?",
            ["x", "US", 9],
        )
        return len(by_name), len(by_position)

    @step
    def explain() -> Any:
        return session.explain(JOIN), rows(session.sql(f"EXPLAIN {JOIN}"))[0][0]

    @step
    def estimate() -> Any:
        behind = f"{JOIN} LEFT JOIN prices p ON p.kind = c.country"
        return [str(session.estimate(behind, ask=3)), rows(session.sql(f"EXPLAIN ESTIMATE {JOIN}"))[0][0]]

    @step
    def enabled() -> Any:
        enable(session.spark)
        return session.spark.sql(JOIN).count(), rows(session.spark.sql("SELECT {x} AS x", x=1))

    @step
    def disabled() -> Any:
        disable(session.spark)
        return rows(session.spark.sql(JOIN))

    @step
    def temporary_view() -> Any:
        session.sql(f"CREATE OR REPLACE TEMPORARY VIEW joined AS {JOIN}")
        session.sql(JOIN).createOrReplaceTempView("joined_too")
        both = "SELECT * FROM joined EXCEPT ALL SELECT * FROM joined_too"
        return session.spark.table("joined").count(), session.sql(both).count()

    @step
    def writing() -> Any:
        session.sql(f"CREATE TABLE written USING parquet AS {JOIN}")
        session.sql(f"INSERT INTO written {JOIN} WHERE o.id < 4")
        written = session.sql("SELECT * FROM written").count()
        session.sql("DROP TABLE written")
        return written

    @step
    def frame_functions() -> Any:
        frame = session.sql(JOIN)
        return frame.filter("name IS NULL").count(), frame.groupBy("name").count().count()

    register_connector("failing", FailingConnector)
    options = f"'connector' = 'failing', 'password' = 'hunter2', 'log' = '{folder}/failing', 'rows' = '[]'"
    session.sql(f"CREATE TEMPORARY TABLE failing (id BIGINT, name STRING) WITH ({options})")

    @step
    def failing() -> Any:
        return rows(session.sql("SELECT f.name FROM orders o JOIN failing f ON o.k = f.id"))

    @step
    def failing_is_null() -> Any:
        hint = "/*+ LOOKUP('table'='f', 'on-error'='null') */"
        return rows(
            session.sql(
                f"SELECT {hint} count(*), count(f.name) FROM orders o LEFT JOIN failing f ON o.k = f.id"
            )
        )

    @step
    def failing_is_skipped() -> Any:
        hint = "/*+ LOOKUP('table'='f', 'on-error'='skip') */"
        return rows(session.sql(f"SELECT {hint} o.id FROM orders o LEFT JOIN failing f ON o.k = f.id"))

    @step
    def wrong_hint() -> Any:
        return rows(
            session.sql(JOIN.replace("SELECT", "SELECT /*+ LOOKUP('table'='c', 'capasity'='1') */", 1))
        )

    @step
    def unknown_column() -> Any:
        return rows(session.sql("SELECT c.nope FROM orders o JOIN customers c ON o.k = c.id"))

    @step
    def retry_predicate() -> Any:
        register_retry_predicate("nameless", lambda found: any(row["name"] is None for row in found))
        hint = "LOOKUP('table'='c', 'retry-predicate'='nameless', 'retry-strategy'='fixed_delay', 'fixed-delay'='1ms', 'max-attempts'='2')"
        return session.sql(JOIN.replace("SELECT", f"SELECT /*+ {hint} */", 1)).count()

    @step
    def class_of_main() -> Any:
        register_connector("squares", Squares)
        session.sql("CREATE TEMPORARY TABLE squares (n BIGINT, square BIGINT) WITH ('connector' = 'squares')")
        return rows(session.sql("SELECT r.id, s.square FROM range(3) r JOIN squares s ON r.id = s.n"))

    @step
    def evaluated_again() -> Any:
        frame = session.sql(JOIN)
        before = sorted(map(str, rows(frame)))
        session.sql(
            "CREATE OR REPLACE TEMPORARY TABLE customers (id BIGINT, name STRING)"
            """ WITH ('connector' = 'memory', 'rows' = '[[1, "someone else"]]')"""
        )
        after = sorted(map(str, rows(session.sql(JOIN))))
        again = sorted(map(str, rows(frame)))
        return {"the new frame has other rows": after != before, "the old one has its own": again == before}

    @step
    def pandas_transport() -> Any:
        session.sql("SET lookup.transport = pandas")
        return len(
            twins.check(
                "SELECT o.id, p.price FROM orders o LEFT JOIN prices p ON o.k = p.k AND o.kind = p.kind"
            )
        )

    @step
    def answers_are_remembered_and_invalidated() -> Any:
        session.sql("SET lookup.transport = auto")
        register_connector("town", Town)
        return [_remembered(session, folder / f"town-{kind}", kind) for kind in ("PARTIAL", "FULL")]

    @step
    def asked_or_read_by_price() -> Any:
        _write_towns(folder / "priced.db", 20_000)
        session.sql(_towns("priced", folder / "priced.db", "'lookup.access' = 'auto'"))
        session.sql("CREATE TEMPORARY VIEW numbers AS SELECT id FROM range(1, 20001, 1, 2)")
        join = "SELECT n.id, t.name FROM numbers n LEFT JOIN priced t ON n.id = t.id"
        return session.explain(join), session.sql(f"SELECT count(name) FROM ({join})").collect()[0][0]

    @step
    def views_are_looked_through() -> Any:
        found = []
        for condition in ("id < 3", "id > 1"):
            session.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW some AS SELECT id, name FROM people WHERE {condition}"
            )
            join = "SELECT r.id, s.name FROM range(1, 3) r LEFT JOIN some s ON r.id = s.id ORDER BY r.id"
            found.append((rows(session.sql(join)), "through" in session.explain(join)))
        return found

    @step
    def names_of_spark() -> Any:
        spark = new_session()
        enable(spark)
        spark.sql(PEOPLE)
        frame = spark.range(3)
        named = [
            frame.join(spark.table("people"), "id").count(),
            frame.join(spark.read.table("people"), "id", "left").count(),
            frame.where("id IN (SELECT id FROM people)").count(),
            rows(frame.join(spark.table("people").hint("lookup", "capacity=5"), "id").orderBy("id")),
            [table.name for table in spark.catalog.listTables()],
            [row[1] for row in spark.sql("SHOW TABLES").collect()],
        ]
        spark.sql(
            PEOPLE.replace("CREATE", "CREATE OR REPLACE").replace("memory'", "memory', 'scan' = 'false'")
        )
        try:
            spark.read.table("people").collect()
        except Exception as error:
            named.append(str(error))
        spark.catalog.dropTempView("people")
        named.append([table.name for table in LookupSession(spark).tables()])
        disable(spark)
        return [*named, type(frame).join.__module__]

    @step
    def tables_of_the_configuration() -> Any:
        (folder / "tables.sql").write_text(PEOPLE, encoding="utf-8")
        another = new_session()
        another.conf.set("spark.lookup.init", str(folder / "tables.sql"))
        return rows(LookupSession(another).sql("SELECT name FROM people WHERE id = 2"))

    @step
    def metrics() -> Any:
        before = sum(session.metrics().values(), LookupMetrics())
        session.sql(JOIN).collect()
        new = sum(session.metrics().values(), LookupMetrics()) - before
        return new.rows_in, new.rows_out

    return step


def _remembered(session: LookupSession, file: Path, kind: str) -> list[Any]:
    """The name of town 1 after it was changed; and after that was told of, by its key and by its table."""
    table, found = f"towns_{kind.lower()}", []
    reload = ", 'lookup.full-cache.periodic-reload.interval' = '1 h'" if kind == "FULL" else ""
    session.sql(
        f"CREATE TEMPORARY TABLE {table} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'town', 'file' = '{file}', 'lookup.cache' = '{kind}'{reload})"
    )

    def look() -> None:
        join = f"SELECT t.name FROM range(1, 2) r JOIN {table} t ON r.id = t.id"
        found.append(session.sql(join).collect()[0][0])

    file.write_text("first", encoding="utf-8")
    look()
    for name, tell in (
        ("second", lambda: session.invalidate(table, [1])),
        ("third", lambda: session.sql(f"REFRESH TABLE {table}")),
    ):
        file.write_text(name, encoding="utf-8")
        look()
        tell()
        look()
    return found


def _write_towns(file: Path, towns: int) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE towns (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany(
            "INSERT INTO towns VALUES (?, ?)", ((each, f"town {each}") for each in range(1, towns + 1))
        )


def _towns(name: str, file: Path, options: str) -> str:
    return (
        f"CREATE TEMPORARY TABLE {name} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
        f" ('connector' = 'sqlite', 'path' = '{file}', 'table-name' = 'towns', {options})"
    )


if __name__ == "__main__":
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "3")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    # ``spark.newSession`` is there since PySpark 4.3 only.
    another = SparkSession.builder.remote("sc://localhost").create
    folder = Path(sys.argv[1])
    scenario(another, folder).tell(folder)
    spark.stop()
