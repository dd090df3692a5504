"""Writes ``docs/options.md`` from the option tables: ``python docs/generate_options.py``.

A test compares the file with what this makes, so that the reference cannot fall behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lookup_hints.spi import flink
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, REMOVED_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.option_values import Option, Place
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS
from lookup_hints.tables.registry import connector_class

TARGET = Path(__file__).with_name("options.md")
PROJECT = TARGET.parent.parent / "pyproject.toml"
# Read from the tree, as what is installed may be older.
CONNECTORS = dict(
    re.findall(
        r'^(\w+) = "(lookup_connectors\.[\w.]+:\w+)"$', PROJECT.read_text(encoding="utf-8"), re.MULTILINE
    )
)

_INTRODUCTION = """\
# Options

This page is made from the option tables in the code by `python docs/generate_options.py`.

{index}

A lookup option can stand in a hint, in the `WITH` clause of the table (as the default of every query),
and some in the session. The hint wins over the table, the table over the session, the session over the
default. Two hints for one table are merged option by option; the first wins. EXPLAIN names the place behind
each value that is not the default: `capacity 20 requests in flight per task (hint)`.

Values of hints are string literals. Names and enumerated values ignore case; in values `-` and `_` are
the same. Durations are a whole number and a unit: `10s`, `500 ms`, `3 min`, `1 h`, `1 d`; without a unit
they are milliseconds. `m` is not a unit. Sizes are a whole number of bytes, or one with a unit: `64 kb`,
`256 mb`, `1 gb`.

## Lookup options

| option | type | default | in a hint | in `WITH` as | in `SET` as | meaning |
|---|---|---|---|---|---|---|
"""

_RETRY = """
### Retry

`retry-predicate`, `retry-strategy`, `max-attempts` and the wait of the strategy (`fixed-delay`, or
`initial-backoff`) are given together or not at all. `max-attempts` counts retries after the first try.
`lookup_miss` asks again while no row is found for the key; a row that a residual condition rejects is
not a miss. `exception` asks again after a failure that may pass. Predicates of your own, over the rows
of a key, are registered with `lookup_hints.register_retry_predicate(name, function)`.

### Budgets for the whole cluster

A budget belongs to an *origin*: host, port and user of a source. `lookup.max-concurrency` and
`lookup.rate-limit` bound all requests to it, over all lookup joins, statements and queries of a session.
`'lookup.budget' = 'crm'` gives a table a budget of that name instead: for tables that share an allowance
over several origins, or to be apart. A source without a server, such as SQLite or a function, has no
origin: its table has a budget of its own.

One table of a budget gives the limits, and they hold for all. Tables that give different ones are an error,
which shows both. Where a reference hides the host from the driver, equal origins cannot be seen while
planning: give such tables a `lookup.budget`.

The processes of one executor share a small file, so that together they keep exactly to their part.
Executors know nothing of each other: each has an equal part, the limit divided by their number. That is 1
for `local[n]`, else `spark.executor.instances`, `spark.dynamicAllocation.maxExecutors`, or
`spark.cores.max` by `spark.executor.cores`. While fewer executors work, part of the budget is unused. A
limit must allow one request for each executor.

Where an executor can write no file, or nothing says how many executors there are, each task has an equal
part. It is the limit divided by the tasks that Spark runs at once at the most, or by `SET
lookup.cluster-tasks = <number>`. A table with limits is refused where neither number is known. EXPLAIN
shows all parts.

The rate counts requests, retries included: keys where one is asked at a time, batches elsewhere.

`lookup.max-requests` is a safety catch, for sources that cost money. It is exact with one executor; with
several each has its part, rounded up, and the statement fails when the first of them is over it. `on-open`
says what requests do while the source is down.

## Session options

| key | type | default | meaning |
|---|---|---|---|
"""

_STREAMS = """
## Streams

For `INSERT INTO ... SELECT ... FROM STREAM ...`, see [Streams](streaming.md). An option can be set in
`WITH (...)` after the sink, or in `SET`; the former wins. Other options go to the sink.

| in `SET` as | in `WITH` as | type | default | meaning |
|---|---|---|---|---|
"""

_RESTARTS = """
## Restart strategies

For streaming queries that an `INSERT` starts; as in Flink. Another name of `restart-strategy.type` is
`restart-strategy`, of `execution.failover-strategy` `jobmanager.execution.failover-strategy`.

| key | type | default | meaning |
|---|---|---|---|
"""

_CONNECTORS = """
Every session key may also be given with the prefix `spark.`, so that `spark-submit --conf` passes it on.

## Connector options

`${env:NAME}` and `${file:path}` in any value are read on the machine that connects, `${conf:key}` is read
from Spark's configuration when the table is created. None of them is ever shown, nor is the value of an
option marked *secret*. Where each travels, and how an administrator bounds them and what options of the type
`file` name: [security](security.md).
"""


_FLINK = """
## Options of Flink's that are not here

Names in Flink's documentation and its connectors for which there is another name here, or nothing yet. A name
that ends with a dot or a dash stands for all that begin so. Using one gives the same message.

| in Flink | where | here |
|---|---|---|
"""


_REMOVED = """
## Options that were removed

| option | instead |
|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *map(_lookup_row, LOOKUP_OPTIONS), _RETRY, *map(_session_row, SESSION_OPTIONS)]
    parts += [_STREAMS, *map(_stream_row, STREAM_OPTIONS), _RESTARTS, *map(_session_row, RESTART_OPTIONS)]
    parts += [_CONNECTORS, *(_connector(name) for name in CONNECTORS)]
    parts += [_FLINK, *_flink_rows()]
    parts += [_REMOVED, *(_row(f"`{name}`", instead) for name, instead in REMOVED_OPTIONS.items())]
    return indexed("".join(parts), deepest=3)


def indexed(page: str, deepest: int) -> str:
    """The page with links to its headings, from the second level on, in place of ``{index}``."""
    links = []
    for level, title in re.findall(r"^(##+) (.*)", page, re.MULTILINE):
        if len(level) <= deepest:
            anchor = re.sub("[^a-z0-9_-]", "", title.lower().replace(" ", "-"))
            links.append(f"{'    ' * (len(level) - 2)}- [{title}](#{anchor})")
    return page.replace("{index}", "\n".join(links), 1)


def _flink_rows() -> Iterable[str]:
    in_sets = {**flink.SESSION_OPTIONS, **flink.OTHER_SESSION_OPTIONS}
    own = {name: answer for name, answer in in_sets.items() if name not in flink.TABLE_OPTIONS}
    for where, answers in (
        ("`WITH`", flink.TABLE_OPTIONS),
        ("`SET`", own),
        ("`connector`", flink.CONNECTORS),
    ):
        yield from (_row(f"`{name}`", where, answer) for name, answer in answers.items())


def _lookup_row(option: Option) -> str:
    in_hint = "yes" if Place.HINT in option.places else ""
    in_table = f"`{option.key_in(Place.TABLE)}`" if Place.TABLE in option.places else ""
    in_session = f"`{option.session_key}`" if Place.SESSION in option.places else ""
    return _row(
        f"`{option.key}`",
        option.shown_type,
        option.shown_default,
        in_hint,
        in_table,
        in_session,
        option.meaning,
    )


def _session_row(option: Option) -> str:
    key = option.key_in(Place.SESSION)
    return _row(f"`{key}`", option.shown_type, option.shown_default, option.meaning)


def _stream_row(option: Option) -> str:
    in_insert = f"`{option.key_in(Place.INSERT)}`" if Place.INSERT in option.places else ""
    return _row(f"`{option.session_key}`", in_insert, option.shown_type, option.shown_default, option.meaning)


def _connector(name: str) -> str:
    head = f"\n### `'connector' = '{name}'`\n\n| option | type | default | meaning |\n|---|---|---|---|\n"
    return head + "".join(_connector_row(option) for option in connector_class(CONNECTORS[name]).OPTIONS)


def _connector_row(option: Option) -> str:
    return _row(f"`{option.shown_key}`", option.shown_type, option.shown_default, option.shown_meaning)


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cells))} |\n"


def _escaped(cells: Iterable[str]) -> Iterable[str]:
    return (cell.replace("|", "\\|") for cell in cells)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
