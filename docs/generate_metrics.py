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
`latency.quantile(0.99)` gives seconds, exact to 10 %. It covers a request from the moment it is sent until
its answer is there, with the time in which the connector itself waits: for a connection, or for the end of
a throttling pause. Where a connector is asked one key at a time, each key is a request.

`most_in_flight` is that of one task. Of several tasks the largest counts, and it is never a sum.

`seconds` is how long a task ran in the lookup. `waited` says for what it could only wait meanwhile; the rest is
work of its own. A task waits for one thing at a time, so that causes never overlap:

| cause in `waited` | what is waited for |
|---|---|
| `source` | answers under way; nothing more may or need be asked |
| `slot` | a free place: as many requests are in flight as may be, and more keys could be asked |
| `budget` | the rate limit |
| `throttle` | the adaptive limit, or a pause that the source asked for; at least half of the requests wait for it |
| `outage` | a source that does not answer: its circuit breaker is open |
| `retry` | the next attempt of keys; nothing is under way |
| `reading` | Spark's next input rows |
| `writing` | Spark, which takes rows |

`bytes_out` and `bytes_in` are what the `http` connector sends and reads, with headers and before decompression. For
the other connectors they are the size of keys and rows as Arrow holds them.

`rows_out` counts the rows of the join as a query sees them before a residual condition. A `LEFT` join has one for each
input row that finds nothing; a `LEFT SEMI` join has one for each input row that finds something.

`events` holds what was worth a line in a log: the first failure of a task, the first time that the source refused a
request, the first rows of keys that were not asked, a task that was stopped early. The workers log the same lines as `lookup_hints.events`. They name table,
connector, host and how many keys, and hold values of keys only where the session sets `lookup.log-keys = true`.

## Which Spark brings counts back

| Spark | batch queries, writes, views | streams | while tasks run |
|---|---|---|---|
| classic, 3.5 to 4.3 | yes | yes | yes |
| Spark Connect, client 4.0 or newer, server 4.3 | yes | yes | when a task has ended |
| Spark Connect, client 4.0 or newer, server 4.0 or 4.1 | yes | yes, but not into a Python `foreachBatch` | when a task has ended |
| Spark Connect, client or server 3.5 | no | no | no |

Where the table says yes, totals are the same as on classic Spark: a test runs one job on both. On Spark Connect the
server keeps counts until the session asks for something. `session.metrics()` asks, and so does any statement. While
tasks or streams run, the library asks once a minute, so that counts do not pile up on the server.

On Spark 4.0 and 4.1 a Python function of `foreachBatch` runs its statements in the stream's own session, from another
process. The counts go there, and are lost.

## What to do when a figure is bad

| figure | what it means | what to do |
|---|---|---|
| `slot` is most of `waited` | the source is slower than the tasks | raise `capacity` or connections, if the source can take it |
| `budget` is most of `waited` | the rate limit sets the pace | raise the rate, if the source can take it |
| `throttled` grows, `throttle` is most of `waited` | the source gets more requests than it allows | nothing, as the limit adapts; or set `lookup.rate-limit` |
| `unasked_rows` grows | the source spells keys otherwise (`DE` for `de`), or gives more than it is asked | see the log of the workers; write keys as the source does |
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
