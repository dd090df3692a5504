"""Writes ``docs/performance.md``, with figures of the benchmarks: ``python docs/generate_performance.py``.

A test compares the file with what this makes, so that the page tells what was measured.
"""

from __future__ import annotations

import re
from pathlib import Path

TARGET = Path(__file__).with_name("performance.md")
TABLES = TARGET.parent.parent / "benchmarks" / "README.md"

FIGURES = {
    "added": ("latency", "time added to 100 rows"),
    "limit_requests": ("latency", "requests sent by LIMIT 20"),
    "limit_keys": ("latency", "keys asked by LIMIT 20"),
    "few": ("crossover", "1,000 orders: whole table, connector's scan / lookup join"),
    "crossing": ("crossover", "orders from which on it is faster: whole table, connector's scan"),
    "scanned": ("read", "rows per second, whole table"),
    "jdbc": ("read", "speed of the whole table / Spark JDBC"),
    "jdbc_2": ("read", "speed of the whole table / Spark JDBC, 2 partitions"),
    "asyncpg": ("postgres", "speed of the lookup join / asyncpg, columns, keys as they come"),
    "asyncpg_sorted": ("postgres", "speed of the lookup join / asyncpg, columns, sorted keys"),
    "asyncpg_single": ("postgres", "speed of the lookup join / asyncpg, one key per query"),
    "zipf": ("postgres", "speed with Zipf keys / with uniform keys"),
    "columnar": ("postgres", "speed with columnarInput off / on"),
    "pandas": ("postgres", "speed by pandas transport / by Arrow"),
    "sync": ("runners", "speed of the sync runner / of the async one"),
    "aiohttp": ("http", "speed of the lookup join, one key per request / plain aiohttp, one process"),
    "httpx": ("http_httpx", "speed of the lookup join, one key per request / the same over httpx"),
    "post": ("http", "speed of the lookup join, 1,000 keys per POST / one key per request"),
    "get": ("http", "speed of the lookup join, 100 keys per GET / one key per request"),
    "cold": ("cache", "time with a cache that never hits / without"),
    "warm": ("cache", "Zipf 1.1, speed of the second run / of the first"),
    "warm_http": (
        "cache",
        "100,000 keys over HTTP, one in a request, speed of the second run / of the first",
    ),
    "whole": ("cache", "seconds to the first answer of 1,000,000 rows of five columns kept whole"),
    "whole_again": ("cache", "what a second worker pays to begin with it"),
    "late": ("late_rows", "time added by late rows, ordered"),
    "late_memory": ("late_rows", "largest resident size of a worker"),
    "late_in_flink": ("late_rows", "computed: Flink's async lookup, capacity 100, 2 tasks"),
    "wide": ("wide", "time that the lookup adds, wide / narrow rows"),
    "cores": ("scale", "speed of 2 cores / of 1"),
    "executors": ("scale", "speed of 2 executors / of 1"),
    "memory": ("scale", "largest resident size of a worker, 10 M rows"),
    "overhead": ("overhead", "lookup join / identity UDF"),
    "plan": ("planning", "star of 5: asked, as the tables say"),
    "plan_20": ("planning", "star of 20: asked, as the tables say"),
    "views": ("planning", "star of 5: Spark's own analysis over views"),
    "views_20": ("planning", "star of 20: Spark's own analysis over views"),
    "row": ("latency", "time added to an identity UDF by one row by key"),
    "start": ("latency", "lookup-hints run / a plain PySpark job, to the end"),
    "plain": ("planning", "no lookup: what is added"),
    "refused": ("citizen_refusing", "4 tasks, no Retry-After: answers 429 after 5 s"),
    "of_the_best": ("citizen_refusing", "4 tasks, no Retry-After: the same / of the best fixed capacity"),
    "dead": ("citizen_dead", "refused: time beyond that work"),
}
"""The name of a figure on the page; the table that has it, and the beginning of its row."""

_PAGE = """\
# Performance

This page shows the cost of a lookup join on one small machine, when to use it, and how to speed it up. The figures come
from the [tables of the benchmarks](../benchmarks/README.md), which describe how, when and where they were measured.

![Seconds by number of orders](crossover.svg)

*Seconds by the number of orders. Each order needs one of a million customers in PostgreSQL.*

- One row by key takes **{row}** longer than a Python function that does nothing, planning included.
- Reading all customers takes **{few} times** as long as looking up those of 1,000 orders.
- From **{crossing}** orders on, reading all customers is faster.
- A million orders with unsorted keys are looked up at **{asyncpg} times** the speed of a loop of plain asyncpg.
- Over HTTP, 1,000 keys in each request go **{post} times** as fast as one.

Trust ratios more than seconds: your machine, network and source differ. Everything ran on two cores, shared by Spark, its
workers and the source.

## Looking up by key

**Use it** if a query needs few of the rows of a table, if the table cannot be read, and for streams. Reading a whole table
costs the same whether a query needs ten of its rows or all; the cost of a lookup join depends on the needed rows. The
larger the table and the slower the network, the longer a lookup is the better choice.

Over PostgreSQL, for a million orders:

- {asyncpg} times the speed of one process with plain asyncpg and unsorted keys, since lookups sort keys first. If that
  loop also sorts its keys, a lookup has {asyncpg_sorted} of its speed, since it also hands each row to Spark.
- {asyncpg_single} times the speed of a loop with one key in each query.
- If few keys have most rows (Zipf), {zipf} times the speed of evenly distributed keys.
- Through pandas, as on Spark 4.0 and 3.5, {pandas} of the speed. On Spark 4.2 and newer, sessions with lookups turn off
  Spark's columnar input for Python functions, which gives {columnar} times the speed.

Over a source that takes 50 ms for each request:

- Two cores give {cores} times the speed of one, and two executors {executors} times that of one.
- A Python worker took at most {memory} for 10 million rows; that does not grow with the input.

Compared with a Python UDF that only returns its keys, a lookup in memory takes {overhead} times as long.

## Reading the whole table

**Use it** if a query needs most of the table. The planner chooses it if that is [clearly cheaper](ask-or-read.md), or if a
join has no key.

- {scanned} rows of five columns are read from PostgreSQL in a second, by several tasks.
- That is {jdbc} times the speed of Spark's JDBC source with its defaults, and {jdbc_2} times that of JDBC with two partitions.
- A quarter of a second goes to planning, starting tasks and connecting, whatever the size.

## HTTP

**Use** `'keys-per-request'` if the API accepts several keys. No other option has a larger effect.

- 100 keys in a GET: {get} times as fast as one by one. 1,000 keys in a POST: {post} times.
- One key in each request: {aiohttp} times the speed of one process with plain aiohttp.
- That is {httpx} times as fast as with httpx, which is used if httptools cannot be installed.

## A cache

**Use** [a cache](caches.md) if the source is slow or costly and queries need the same keys again. With a fast database
nearby it gains little, since Spark's own work remains.

- HTTP, one key in each request: the second run is {warm_http} times as fast as the first.
- PostgreSQL on the same machine, few frequent keys: {warm} times.
- With a cache that never hits, a query takes {cold} times as long: it searches each key, and writes each answer.
- `FULL` over a million rows gives its first answer after {whole}; a second worker starts with it in {whole_again}.

## Waiting for late rows

**Use** `retry-predicate` with `fixed-delay` if rows arrive after the keys. Waiting costs no slot, and keys that fall due
together share a request.

- Rows of one customer in a hundred came 15 s late, with a delay of 10 s: the query over a million orders took {late}
  longer. A worker took {late_memory} at most.
- In Flink a key holds its slot while it waits. With a capacity of 100 in two tasks that would take {late_in_flink},
  computed and not measured.
- While more than 64 MB of a task wait, it stops reading; `buffer_full` counts that.
- With wide rows, lookups pause at about 128 MB of rows, including found ones. A first row that waits for its retry then
  stops the others.

## Small queries

Small queries mostly wait for planning: Spark analyses three texts, some 10 ms each.

- A query over 100 rows takes {added} longer with a lookup.
- A statement with five lookup joins is planned in {plan}, and with twenty in {plan_20}. Spark takes {views} and {views_20}
  for the same joins of views. A statement without a lookup table takes {plain} longer.
- `lookup-hints run` takes {start} times as long as a plain PySpark job with the same join, from start to end.
- `LIMIT 20` over a million orders sent {limit_requests} requests for {limit_keys} keys. Write it in the statement, or tell
  `prepare`: `session.run(session.prepare(text, few_rows=True)).show()`. A `limit`, `show`, `head` or `take` of the
  DataFrame alone comes after planning, and Spark tells its functions nothing of it. The lookup then asks for many times
  as many keys, until Spark stops it.

On Spark 4.1 and newer, set `spark.python.unix.domain.socket.enabled=true` when Spark starts. Python workers then
avoid TCP, which delays small messages by 40 ms. The figures above were measured with it. PySpark 4.3 may print a
`BrokenPipeError` of its worker daemon when such a Spark ends; it is harmless
([decision 133](decisions/0133-sockets-of-workers-are-sparks.md)).

## Wide rows

Left rows are not sent to Python, so a lookup adds to rows of 86 columns only {wide} times the time that it adds to narrow
ones. But Spark's Generate, which joins the left row with the rows found, copies it field by field.

A stage of more than `spark.sql.codegen.maxFields` (100) fields, nested ones counted, is not compiled, and copies each
row twice. 300,000 rows of 103 columns took 4.0 s with an immediate lookup, and 3.1 s with an identity UDF.
Raising `maxFields` is not a cure: from 150 columns on, everything took about twice as long, with a lookup and without.

## A source that refuses, fails or is slow

Without configuration, a lookup finds out how many requests a source takes.

- A server that answers 429 above 30 requests at once: {refused} of the answers after 5 s were refusals. Four tasks reached
  {of_the_best} of the speed of the best manual `capacity`.
- A server that was down for 30 s: no row was lost, and the query took {dead} longer than the remaining work.

If the source demands a pause by `Retry-After`, the refused request waits for that time. One other request tries a moment
later: if it succeeds, the others continue; if not, all wait. Two executors may end with different limits, since neither
knows of the other.

## What else helps

Nothing has to be tuned: sizes of requests adapt to the source. These options can still help:

- `'pool-size'` of the table, if the database has cores to spare: connections per worker process, 4 by default.
- `'shuffle'='true'` if few keys have most rows and many tasks run: one task then looks up each key.
- `'output-mode'='allow_unordered'` if single requests are slow now and then.
- `'async'='false'` changes little: over PostgreSQL on the same machine, the sync runner has {sync} times the speed of
  the async one.
"""


def page() -> str:
    """The text of the page."""
    text = TABLES.read_text(encoding="utf-8")
    tables = dict(re.findall(r"<!-- table: (\w+) -->(.*?)(?=<!--)", text, re.DOTALL))
    return _PAGE.format_map({name: _measured(tables[table], row) for name, (table, row) in FIGURES.items()})


def _measured(table: str, row: str) -> str:
    (found,) = re.findall(rf"^\| {re.escape(row)}(?: \([^|]*\))? \| ([^|]+) \|", table, re.MULTILINE)
    return str(found).removesuffix(".00")


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
