"""dbt with dbt-spark runs a project of five models that look up, by a wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.timeout(900)

# While it is installed, dbt-core 1.12 downloads a program from outside the package index.
DBT = ("dbt-core>=1.10,<1.12", "dbt-spark>=1.9")

FILES = {
    "dbt_project.yml": """
name: shop
version: '1.0'
profile: shop
on-run-start:
  - >
    CREATE TEMPORARY TABLE IF NOT EXISTS customers (id BIGINT, name STRING, country STRING,
    PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'sqlite', 'path' = '{folder}/crm.db')
""",
    "profiles.yml": """
shop:
  target: dev
  outputs:
    dev:
      type: spark
      method: session
      schema: shop
      host: NA
      threads: 2
      server_side_parameters:
        spark.lookup.init: {folder}/rates.sql
        spark.sql.warehouse.dir: {folder}/warehouse
        spark.sql.shuffle.partitions: "1"
        spark.ui.enabled: "false"
""",
    "rates.sql": """
CREATE TEMPORARY TABLE rates (country STRING, rate DOUBLE, PRIMARY KEY (country) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[["GB", 2.0], ["CN", 0.5]]');
""",
    "models/orders.sql": """
{{ config(materialized='table', file_format='parquet') }}
SELECT * FROM VALUES (1, 1, 10.0D), (2, 2, 5.0D), (3, 9, 7.5D) AS o(id, customer_id, amount)
""",
    "models/recent.sql": """
{{ config(materialized='view') }}
SELECT * FROM {{ ref('orders') }} WHERE id > 1
""",
    "models/enriched.sql": """
{{ config(materialized='table', file_format='parquet') }}
SELECT /*+ LOOKUP('table' = 'c', 'batch-size' = '100') */ o.id, o.amount, c.name, c.country
FROM {{ ref('orders') }} o LEFT JOIN customers AS c ON o.customer_id = c.id
""",
    "models/converted.sql": """
{{ config(materialized='ephemeral') }}
SELECT e.id, e.country, e.amount * r.rate AS amount FROM {{ ref('enriched') }} e JOIN rates r USING (country)
""",
    "models/history.sql": """
{{ config(materialized='incremental', incremental_strategy='append', file_format='parquet') }}
SELECT c.id, o.customer_id, c.amount FROM {{ ref('converted') }} c JOIN {{ ref('orders') }} o USING (id)
{% if is_incremental() %} WHERE c.id > (SELECT max(id) FROM {{ this }}) {% endif %}
""",
    "models/schema.yml": """
version: 2
models:
  - name: enriched
    columns:
      - name: id
        data_tests: [unique, not_null]
""",
    "refused/seen.sql": """
{{ config(materialized='view') }}
SELECT o.id, c.name FROM {{ ref('orders') }} o JOIN customers c ON o.customer_id = c.id
""",
}

RUN = """
import json, shutil, sqlite3, sys
from dbt.cli.main import dbtRunner
with sqlite3.connect("crm.db") as database:
    database.executescript(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, country TEXT);"
        "INSERT INTO customers VALUES (1, 'Ada', 'GB'), (2, 'Lin', 'CN')"
    )
def run(*words):
    found = dbtRunner().invoke([*words, "--profiles-dir", "."])
    results = getattr(found.result, "results", None) or []
    return {each.node.name: [str(each.status), each.message] for each in results} if words[0] != "docs" else found.success
said = {"first": run("build"), "second": run("run"), "docs": run("docs", "generate")}
from pyspark.sql import SparkSession
spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
for name in ("enriched", "history"):
    said[name] = [list(row) for row in spark.sql(f"SELECT * FROM shop.{name} ORDER BY id").collect()]
shutil.copy("refused/seen.sql", "models/seen.sql")
said["refused"] = run("run", "--select", "seen")
with open("said.json", "w") as file:
    json.dump(said, file)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What runs of dbt say."""
    folder = tmp_path_factory.mktemp("dbt")
    for name, text in {**FILES, "run.py": RUN}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.replace("{folder}", str(folder)), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", *DBT], check=True)
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True)
    # Spark and what the wheel needs are those of the tests, behind what dbt brings.
    (packages,) = folder.glob("env/lib/python3*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    ran = subprocess.run(
        [python, "run.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=800
    )
    file = folder / "said.json"
    assert file.exists(), f"{ran.stdout[-4000:]}\n{ran.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_models_look_up(said: dict[str, Any]) -> None:
    """By a table that a hook creates, and one of `spark.lookup.init`, through an ephemeral model."""
    assert {status for status, _ in said["first"].values()} == {"success", "pass"}
    assert {"enriched", "history", "orders", "recent"} <= said["first"].keys()
    assert said["enriched"] == [[1, 10.0, "Ada", "GB"], [2, 5.0, "Lin", "CN"], [3, 7.5, None, None]]


def test_an_incremental_model_adds_only_new_rows(said: dict[str, Any]) -> None:
    assert {status for status, _ in said["second"].values()} == {"success"}
    assert said["history"] == [[1, 1, 20.0], [2, 2, 2.5]]


def test_docs_are_generated(said: dict[str, Any]) -> None:
    assert said["docs"] is True


def test_a_model_that_is_a_view_is_refused_with_what_to_write(said: dict[str, Any]) -> None:
    status, message = said["refused"]["seen"]
    assert status == "error"
    assert "A view that outlives the session cannot hold a lookup join" in message
    assert re.search(r"In dbt: config\(materialized='table'\)", message)
