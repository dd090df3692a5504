"""What is private or has no types in PySpark and is used here all the same, named in this module alone.

PySpark is imported when it is used: some workers are spared it, and tests do without.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import IO, Any

_log = logging.getLogger("lookup_hints")

READS_ACCUMULATORS = ("pyspark.accumulators", "_deserialize_accumulator")
"""The function that a pickled accumulator names."""


def cloudpickled(value: object) -> bytes:
    """``value`` by Spark's own pickler, which takes classes of notebooks with their code."""
    pickled: bytes = import_module("pyspark.cloudpickle").dumps(value)
    return pickled


def accumulator_of_task(number: int, zero: Any, kind: Any) -> Any:
    """The accumulator ``number`` of the task that runs; a new one that starts at ``zero`` if it has none."""
    module, name = READS_ACCUMULATORS
    return getattr(import_module(module), name)(number, zero, kind)


def all_settings(conf: Any) -> dict[str, str] | None:
    """All that is set in a classic session, in two round trips; PySpark itself makes one for each key.

    None where the JVM is out of reach, as on clusters that allow Python a list of its methods.
    """
    try:
        listed: str = conf._jconf.getAll().mkString("\0")
    except Exception:
        return None
    return dict(each.split(" -> ", 1) for each in listed.split("\0") if each)


# --- the JVM of a classic session --------------------------------------------------------------------


def has_jvm() -> bool:
    """Whether this process has a JVM of Spark's."""
    return import_module("pyspark").SparkContext._gateway is not None


def launched_jvm(conf: Mapping[str, str], errors: IO[bytes] | None) -> Any:
    """A JVM for Spark, as ``SparkContext`` takes it for its ``gateway``: it ends with this process.

    Args:
        conf: as it is given to ``spark-submit``.
        errors: where its standard error goes, in place of that of this process.
    """
    given = import_module("pyspark").SparkConf().setAll(list(conf.items()))
    more = {} if errors is None else {"stderr": errors}
    return import_module("pyspark.java_gateway").launch_gateway(given, more)


_SHAPES = """
SELECT o.id, c.name
FROM (SELECT CAST(NULL AS INT) AS id, CAST(NULL AS STRING) AS k WHERE false) AS o
LEFT JOIN (SELECT CAST(NULL AS INT) AS id, CAST(NULL AS STRING) AS name WHERE false) AS c
  ON o.id = c.id AND c.name <> 'x'
WHERE o.id > 10 ORDER BY o.id
"""
_LATERAL_VIEW = """
SELECT o.id, c.name FROM o LATERAL VIEW OUTER inline(filter(f(o.k), `r` -> (`r`.id > 10))) c AS id, name
"""


def load_sql(gateway: Any) -> None:
    """Let a JVM that has no context yet load what its first statement needs: parser, functions, analyser.

    Nothing of it belongs to a session. No session may be made meanwhile: two threads that initialise the
    same classes could wait for each other for ever. Those of a context are others.
    """
    try:
        sql = gateway.jvm.org.apache.spark.sql
        sql.catalyst.analysis.FunctionRegistry.builtin()
        parser = sql.execution.SparkSqlParser()
        parser.parsePlan(_LATERAL_VIEW)
        sql.catalyst.analysis.SimpleAnalyzer.execute(parser.parsePlan(_SHAPES))
    except Exception:
        _log.debug("Spark's SQL is loaded by the first statement", exc_info=True)


# --- the client of a Connect session ---------------------------------------------------------------


def can_be_watched(client: object) -> bool:
    """Whether it has what the functions below need: PySpark's has it from 4.0 on."""
    names = ("_verify_response_integrity", "_execute_plan_request_with_metadata", "_stub", "_builder")
    return all(hasattr(client, name) for name in names)


def response_check(client: Any) -> Any:
    """What the client calls with each response first of all, whatever it is for."""
    return client._verify_response_integrity


def replace_response_check(client: Any, check: Callable[[Any], None]) -> None:
    client._verify_response_integrity = check


def ask_for_streams(client: Any, timeout: float) -> Iterator[Any]:
    """The responses to a statement that costs the server next to nothing: which streaming queries run."""
    request = client._execute_plan_request_with_metadata()
    request.plan.command.streaming_query_manager_command.active = True
    # The client's own way waits for minutes for a server that is away.
    yield from client._stub.ExecutePlan(request, metadata=client._builder.metadata(), timeout=timeout)
