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

What a lookup join costs on one small machine, what each way is for, and what helps. The figures are made from the
[tables of the benchmarks](../benchmarks/README.md), which say how, when and on what they were measured.

![Seconds by number of orders](crossover.svg)

*Seconds by the number of orders, where each looks for one of a million customers in PostgreSQL.*

- One row by key takes **{row}** longer than a Python function that does nothing, planning included.
- Reading the customers whole takes **{few} times** as long as asking for those of 1,000 orders.
- From **{crossing}** orders on, reading all customers is faster.
- A million orders, keys as they come, are looked up at **{asyncpg} times** the speed of a loop of plain asyncpg.
- Over HTTP, 1,000 keys in each request go **{post} times** as fast as one.

Trust ratios more than seconds: your machine, network and source are others. All of this ran on two cores, which Spark,
its workers and the source shared.

## Ask by key

**Use it** where a query needs few of the rows of a table, where the table cannot be read, and over streams. A table that
is read whole costs the same whether a query needs ten of its rows or all; a lookup join costs what the query needs. A
larger table or a slower network makes the lookup better for longer.

What it costs over PostgreSQL, for a million orders:

- {asyncpg} times the speed of one process with plain asyncpg and keys as they come, as lookups sort keys before they
  ask. Where that loop sorts its keys, too, a lookup has {asyncpg_sorted} of its speed, as it also hands each row to
  Spark.
- {asyncpg_single} times the speed of a loop with one key in each query.
- Where few keys have most rows (Zipf), {zipf} times the speed of keys that occur equally often.
- By way of pandas, as on Spark 4.0 and 3.5, {pandas} of the speed. With Spark's columns for Python functions off, as a
  session with lookups sets them on Spark 4.2 and newer, {columnar} times the speed that they give.

Over a source that takes 50 ms for each request:

- Two cores give {cores} times the speed of one, and two executors {executors} times that of one.
- A Python worker took {memory} at most over 10 million rows; it does not grow with the input.

Beside a Python UDF that only hands its keys back, a lookup that is answered from memory takes {overhead} times as long.

## Read the whole table

**Use it** where a query needs most of the table. The planner does so by itself where that is [surely
cheaper](ask-or-read.md), and where a join has no key.

- {scanned} rows of five columns are read from PostgreSQL in a second, by several tasks.
- That is {jdbc} times the speed of Spark's JDBC source with its defaults, and {jdbc_2} times that of JDBC with two partitions.
- A quarter of a second goes to planning, starting tasks and connecting, whatever the size.

## HTTP

**Use** `'keys-per-request'` wherever the API takes several keys. It is the one option that changes most.

- 100 keys in a GET: {get} times as fast as one by one. 1,000 keys in a POST: {post} times.
- One key in each request: {aiohttp} times the speed of one process with plain aiohttp.
- That is {httpx} times as fast as over httpx, which sends requests where httptools cannot be installed.

## A cache

**Use** [a cache](caches.md) where the source is slow or costly and queries ask for the same keys again. Over a fast
database near by it gains little, as Spark's own part stays.

- HTTP, one key in each request: the second run is {warm_http} times as fast as the first.
- PostgreSQL on the same machine, few keys asked often: {warm} times.
- A cache that never hits makes a query take {cold} times as long: it looks for each key, and writes each answer.
- `FULL` over a million rows gives its first answer after {whole}; a second worker starts with it in {whole_again}.

## Wait for late rows

**Use** `retry-predicate` with `fixed-delay` where rows arrive after the keys. Waiting costs no slot, and keys that fall
due together are one request.

- Rows of one customer in a hundred came 15 s late, with a delay of 10 s: the query over a million orders took {late}
  longer. A worker took {late_memory} at most.
- By Flink's rule a key holds its slot while it waits. With a capacity of 100 in two tasks that comes to {late_in_flink},
  computed and not measured.
- While more than 64 MB of a task wait, it stops reading; the count `buffer_full` says so.
- Where rows are wide, no more keys are asked than about 128 MB of rows, found ones among them. A first row that waits
  for its retry then stops the others.

## Small queries

What a small query waits for is mostly planning: Spark analyses three texts, some 10 ms each.

- A query over 100 rows takes {added} longer with a lookup.
- A statement with five lookup joins is planned in {plan}, and with twenty in {plan_20}. Spark takes {views} and {views_20}
  for the same joins of views. A statement without a lookup table waits {plain} longer.
- `lookup-hints run` takes {start} times as long as a plain PySpark job with the same join, from start to end.
- `LIMIT 20` over a million orders sent {limit_requests} requests for {limit_keys} keys. Write it in the statement,
  rather than `show()` or `limit()` of its DataFrame: only the statement tells the lookup join that few rows will do.

On Spark 4.1 and newer, set `spark.python.unix.domain.socket.enabled=true` when Spark starts. Its Python workers then do
without TCP, which holds small messages back for 40 ms. The figures above have it set. PySpark 4.3 may print a
`BrokenPipeError` of its worker daemon when such a Spark ends; it is harmless
([decision 133](decisions/0133-sockets-of-workers-are-sparks.md)).

## Wide rows

The left row does not cross to Python, so a lookup adds only {wide} times to rows of 86 columns what it adds to narrow
ones. But Spark's Generate, which joins the left row with the rows found, copies it field by field.

A stage of more than `spark.sql.codegen.maxFields` (100) fields, nested ones counted, is not compiled, and copies each
row twice. 300,000 rows of 103 columns took 4.0 s with a lookup that answers at once, and 3.1 s with an identity UDF.
Raising `maxFields` is not a cure: from 150 columns on, everything took about twice as long, with a lookup and without.

## A source that refuses, dies or is slow

With nothing set, a lookup finds out how many requests a source takes.

- A server that answers 429 above 30 requests at once: {refused} of the answers after 5 s were refusals. Four tasks had
  {of_the_best} of the speed that the best `capacity` set by hand has.
- A server that was dead for 30 s: no row was lost, and the query took {dead} longer than the work that was left.

Where the source asks for a pause by `Retry-After`, the refused request waits for that long. One other request tries a
moment later: if it is served, the others continue; if not, all wait. Two executors may end with different limits, as
neither knows of the other.

## What else helps

Nothing has to be tuned: sizes of requests adapt to the source. What a query can still say:

- `'pool-size'` of the table, where the database has cores to spare: connections per worker process, 4 by default.
- `'shuffle'='true'` where few keys have most rows and many tasks run: each key is then asked by one task.
- `'output-mode'='allow_unordered'` where single requests are slow now and then.
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
