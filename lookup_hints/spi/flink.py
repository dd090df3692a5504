"""Options and connectors of Flink that have another name here, or none: what to write instead.

Consulted only for unknown names, so an option that is added later takes effect without a change here.
"""

from __future__ import annotations

from collections.abc import Mapping

_OLD_CACHE = "Write 'lookup.cache' = 'PARTIAL', and options that begin with 'lookup.partial-cache.'."
_RETRY = (
    "Write 'retry-predicate' = 'exception', 'retry-strategy' = 'fixed_delay', 'fixed-delay' and"
    " 'max-attempts'."
)
_HTTP_RETRY = f"{_RETRY} With 'exponential_delay': 'initial-backoff', 'max-backoff' and 'backoff-multiplier'."
_NO_HBASE = "There is no connector for HBase yet. A connector of your own is one class."
_HTTP = "The connector 'http' has names of its own: see its options in docs/connectors/http.md."

TABLE_OPTIONS: Mapping[str, str] = {
    "lookup.cache.": _OLD_CACHE,
    "lookup.max-retries": _RETRY,
    "lookup.retry.": _RETRY,
    "max-retries": _RETRY,
    "scan.": "Write 'lookup.scan.partitions': in how many parts a table is read whole. A part is a range of"
    " blocks.",
    "sink.": "A lookup table is not written to: INSERT into a table of Spark's.",
    "format": "Leave it out; the connector 'http' reads JSON, by 'rows' and 'path.<column>'.",
    # JDBC
    "driver": "Leave it out: a connector brings its own driver.",
    "username": "The connectors 'postgres' and 'mysql' call it 'user'.",
    "connection.max-retry-timeout": "Write 'connect-timeout'.",
    "compatible-mode": "There is no equivalent.",
    # HTTP
    "asyncpolling": "Write 'lookup.async'.",
    "lookup-method": "Write 'method'.",
    "http.": _HTTP,
    "gid.connector.http.": _HTTP,
    **{
        f"{prefix}{name}": answer
        for prefix in ("http.", "gid.connector.http.")
        for name, answer in {
            "source.lookup.header.": "Write 'header.<name>'.",
            "source.lookup.request.timeout": "Write 'request-timeout'.",
            "source.lookup.connection.timeout": "Write 'connect-timeout'.",
            "source.lookup.query-creator": "Name the columns in 'url', 'query' or 'body': 'id={id}'.",
            "source.lookup.success-codes": "Write 'success-codes'.",
            "source.lookup.retry-codes": "Write 'transient-codes', and 'retry-predicate' = 'exception'.",
            "source.lookup.ignored-response-codes": "Write 'miss-codes'.",
            "source.lookup.continue-on-error": "Write 'on-error' = 'null', and 'outcome-rows' = 'true'.",
            "source.lookup.retry-strategy.": _HTTP_RETRY,
            "source.lookup.use-raw-authorization-header": "Write 'header.Authorization'.",
            "source.lookup.proxy.": "Write 'proxy', a URL.",
            "security.cert.server": "Write 'tls-ca'.",
            "security.cert.client": "Write 'tls-cert'.",
            "security.key.client": "Write 'tls-key'.",
            "security.oidc.token.endpoint.url": "Write 'oauth2-token-url'.",
            "security.oidc.token.request": "See 'oauth2-client-id', 'oauth2-client-secret', 'oauth2-scope'",
            "logging.level": "There is no equivalent.",
        }.items()
    },
    # HBase
    "zookeeper.": _NO_HBASE,
    "null-string-literal": _NO_HBASE,
    "properties.": "Leave it out: a connector takes its options by their own names.",
}
"""What to say of an option in WITH, by its name, or by what it begins with (up to a dot)."""

HINT_OPTIONS: Mapping[str, str] = {
    **{
        name: f"In Flink, too, it belongs in WITH, not in a hint. {answer}"
        for name, answer in TABLE_OPTIONS.items()
        if name.startswith(("lookup.", "scan.", "sink."))
    },
    "lookup.async": "Write 'async'; in WITH it is 'lookup.async'.",
    "lookup.cache": "Write 'cache'; in WITH it is 'lookup.cache'.",
    "lookup.partial-cache.": "In Flink, too, it belongs in WITH, not in a hint.",
    "lookup.full-cache.": "In Flink, too, it belongs in WITH, not in a hint.",
    "lookup-table": "Write 'table'.",
}
"""What to say of an option in a LOOKUP hint."""

_PLANS = "Spark plans this itself: see spark.sql.adaptive.enabled and the settings like it."
_NO_SINK = "Options of a sink stand in the WITH of the INSERT."
_CALLS = "Give capacity, timeout and retry to async_wait, or write LOOKUP options."

SESSION_OPTIONS: Mapping[str, str] = {
    **{
        name: f"In Flink, too, it belongs in WITH, not in SET. {answer}"
        for name, answer in TABLE_OPTIONS.items()
        if name.startswith("lookup.")
    },
    "lookup.full-cache.": "In Flink, too, it belongs in WITH, not in SET.",
    "table.exec.async-lookup.key-ordered-enabled": "Leave it out: rows keep their order.",
    "table.exec.async-scalar.": _CALLS,
    "table.exec.async-table.": _CALLS,
    "table.exec.mini-batch.": "Leave it out: Spark runs micro-batches; lookup.stream.trigger says how often.",
    "table.exec.resource.default-parallelism": "Set spark.sql.shuffle.partitions.",
    "table.exec.state.ttl": "There is no equivalent: state is Spark's, and a watermark bounds it.",
    "table.exec.source.": "There is no equivalent: a source is Spark's, with options of its own.",
    "table.exec.sink.": _NO_SINK,
    "table.optimizer.": _PLANS,
    "table.local-time-zone": "Set spark.sql.session.timeZone.",
    "table.sql-dialect": "Leave it out: statements are in Spark's SQL.",
    "parallelism.default": "Set spark.default.parallelism or spark.sql.shuffle.partitions.",
    "pipeline.name": "Set lookup.stream.name.",
    "execution.runtime-mode": "Leave it out: FROM STREAM makes a streaming query, all others are batch.",
    "execution.checkpointing.interval": "Set lookup.stream.trigger: each micro-batch ends with a checkpoint.",
    "execution.checkpointing.": "Set lookup.stream.checkpoint, the folder; there is no other option for it.",
    "state.checkpoints.dir": "Set lookup.stream.checkpoint.",
    "state.backend": "Set spark.sql.streaming.stateStore.providerClass.",
    "state.backend.": "Set spark.sql.streaming.stateStore.providerClass.",
    "sql-client.": "There is no equivalent: lookup-hints run --rows says how many rows are shown.",
}
"""What to say of a SET; only what Spark cannot mean."""

OTHER_SESSION_OPTIONS: Mapping[str, str] = {
    "table.exec.": "There is no equivalent: all but table.exec.async-lookup.* is set by spark.sql.*."
}
"""What to say of a SET that is like none of ours."""

CONNECTORS: Mapping[str, str] = {
    "jdbc": "For PostgreSQL write 'postgres', for MySQL 'mysql', for SQLite 'sqlite'.",
    "rest-lookup": "Write 'http'.",
    "http-async-client": "Write 'http'.",
    "hbase-": _NO_HBASE,
    **dict.fromkeys(
        ("kafka", "upsert-kafka", "filesystem", "datagen", "print", "blackhole"),
        "It is not asked by key: Spark reads and writes it, as in CREATE TABLE ... USING.",
    ),
}
"""What to say of a connector of Flink's."""


# Options that were removed or belong to Flink name what to write instead, so that a copied statement fails
# helpfully. (docs/decisions/0180)
def instead_of(name: str, known: Mapping[str, str]) -> str:
    """What to write in place of ``name``, or nothing where it is none of ``known``; ignores case.

    >>> instead_of("lookup.cache.ttl", TABLE_OPTIONS).partition(",")[0]
    "Write 'lookup.cache' = 'PARTIAL'"
    """
    lower = name.lower()
    if lower in known:
        return known[lower]
    families = [each for each in known if each.endswith((".", "-")) and lower.startswith(each)]
    return known[max(families, key=len)] if families else ""
