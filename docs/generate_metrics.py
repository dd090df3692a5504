"""Writes ``docs/metrics.md`` from the counts in the code: ``python docs/generate_metrics.py``.

A test compares the file with what this makes, so that the reference cannot fall behind.
"""

from __future__ import annotations

from pathlib import Path

from lookup_hints.metrics.lookup_metrics import about_counts

TARGET = Path(__file__).with_name("metrics.md")

_INTRODUCTION = """\
# Metrics

`session.metrics()` gives a `LookupMetrics` for each lookup of the session. Its key is a `LookupName`: table,
alias, connector, the line at which the statement begins, and the Spark function that EXPLAIN shows.

Counts arrive when a task ends. Those of a task that Spark stopped early, as under a `LIMIT`, may be
missing. Not every Spark [brings them back](#which-spark-brings-counts-back). Counts of tasks and micro-batches add up. A task that Spark
repeats counts once; `repeated_tasks` counts the runs that were left out:

```python
from lookup_hints import LookupMetrics

before = session.metrics()
session.sql("SELECT ...").collect()
for name, counts in session.metrics().items():
    new = counts - before.get(name, LookupMetrics())
    print(name.table, name.line, new.keys, new.hits / new.keys)
    print(new.latency.quantile(0.99))
```

| field | unit | meaning |
|---|---|---|
"""

_MORE = """
`latency.quantile(0.99)` gives seconds, exact to 10 %. It covers a request from sending it to its answer, including the time
that the connector waits for a connection, or for the end of a throttling pause. If a connector looks up one key at a
time, each key is a request.

`most_in_flight` is the maximum of any single task, and never a sum.

`seconds` is the time that a task spent in the lookup. `waited` is the part of it in which the task could only wait; the
rest is its own work. A task waits for one thing at a time, so causes never overlap:

| cause in `waited` | the task waits for |
|---|---|
| `source` | answers in flight; no further request may or need be sent |
| `slot` | a free slot: the maximum of requests is in flight, and more keys are ready |
| `budget` | the rate limit |
| `throttle` | the adaptive limit, or a pause that the source asked for; at least half of the requests wait for it |
| `outage` | a source that does not answer: its circuit breaker is open |
| `retry` | the next attempt of keys; nothing is in flight |
| `reading` | Spark's next input rows |
| `writing` | Spark, which takes rows |

For the `http` connector, `bytes_out` and `bytes_in` count sent and received bytes, with headers and before decompression.
For other connectors they are the size of keys and rows in Arrow.

`rows_out` counts the rows of the join as a query sees them before a residual condition. A `LEFT` join has one for each
input row that finds nothing; a `LEFT SEMI` join has one for each input row that finds something.

`events` holds lines worth logging: the first failure of a task, the first refused request, the first rows of unrequested
keys, a task that was stopped early. The workers log the same lines as `lookup_hints.events`. They name table, connector,
host and the number of keys, and values of keys only if the session sets `lookup.log-keys = true`.

## Which Spark brings counts back

| Spark | batch queries, writes, views | streams | while tasks run |
|---|---|---|---|
| classic, 3.5 to 4.3 | yes | yes | yes |
| Spark Connect, client 4.0 or newer, server 4.3 | yes | yes | when a task has ended |
| Spark Connect, client 4.0 or newer, server 4.0 or 4.1 | yes | yes, but not into a Python `foreachBatch` | when a task has ended |
| Spark Connect, client or server 3.5 | no | no | no |

Where the table says yes, totals equal those on classic Spark: a test runs one job on both. On Spark Connect the server
keeps counts until the next request of the session. `session.metrics()` is one, and so is any statement. While tasks or
streams run, the library fetches them once a minute, so that they do not pile up on the server.

On Spark 4.0 and 4.1 a Python function of `foreachBatch` runs its statements in the stream's own session, from another
process. The counts go there, and are lost.

## When a figure is bad

| figure | meaning | what to do |
|---|---|---|
| `slot` is most of `waited` | the source is slower than the tasks | raise `capacity` or connections, if the source can take it |
| `budget` is most of `waited` | the rate limit sets the pace | raise the rate, if the source can take it |
| `throttled` grows, `throttle` is most of `waited` | the source gets more requests than it allows | nothing, as the limit adapts; or set `lookup.rate-limit` |
| `unasked_rows` grows | the source spells keys otherwise (`DE` for `de`), or returns more than requested | see the log of the workers; write keys as the source does |
| `misses` near `keys` | wrong keys, or rows that come late | look at the types of the keys; retry with `lookup_miss` |
| `retried_failures` grows | the source fails and recovers | see `errors_by_class`, and the log of the workers |
| `keys` near `rows_in` | keys seldom repeat within a window | `'shuffle' = 'true'` brings equal keys together |
| `buffer_full` grows | rows are wide, or one slow key holds many back | `'output-mode' = 'allow_unordered'`, more tasks |
"""


def page() -> str:
    """The text of the page."""
    lines = [f"| `{name}` | {each.unit} | {each.meaning} |" for name, each in about_counts().items()]
    return _INTRODUCTION + "\n".join(lines) + "\n" + _MORE


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
