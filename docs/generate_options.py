"""Writes the reference of options: ``python docs/generate_options.py``.

The pages in ``docs/options`` are made whole, as is ``docs/options.md``, which lists all options. A page in
``docs/connectors`` is written by hand up to its last title, ``## Options``. A test compares the files with
what this makes, so that the reference cannot fall behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from lookup_hints.spi import flink
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, REMOVED_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.option_values import Option, Place
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS
from lookup_hints.tables.registry import connector_class

DOCS = Path(__file__).resolve().parent
PROJECT = DOCS.parent / "pyproject.toml"
# Read from the tree, as what is installed may be older.
CONNECTORS = dict(
    re.findall(
        r'^(\w+) = "(lookup_connectors\.[\w.]+:\w+)"$', PROJECT.read_text(encoding="utf-8"), re.MULTILINE
    )
)

_INTRODUCTION = """\
# Options

A lookup option can be given in a hint, in the `WITH` clause of the table as the default of every query,
and sometimes in the session. The hint wins over the table, the table over the session, the session over the
default. Two hints for one table are merged option by option; the first wins. EXPLAIN names the place that
gave each value that is not the default: `capacity 20 requests in flight per task (hint)`.

| value | how it is written |
|---|---|
| in a hint | a string literal: `'capacity' = '20'` |
| a name, or one of a list | capitals do not matter; `-` and `_` are the same |
| a duration | a whole number and a unit: `10s`, `500 ms`, `3 min`, `1 h`, `1 d`; milliseconds without one |
| a size | a whole number of bytes, or one with a unit: `64 kb`, `256 mb`, `1 gb` |
| in the session | `SET key = value`, or `spark-submit --conf spark.key=value` |
"""

_OF_READING = ("access", "scan", "on-scan", "scan.max-rows", "scan.partitions")
_OF_TIME = ("on-event-time", "valid-from", "valid-to", "known-from", "known-as-of")
_OF_LIMITS = ("budget", "max-concurrency", "rate-limit", "max-requests", "on-open")
_OF_RETRIES = (
    "retry-predicate",
    "retry-strategy",
    "fixed-delay",
    "max-attempts",
    "initial-backoff",
    "max-backoff",
    "backoff-multiplier",
    "jitter-factor",
)

_RETRY = """\
`retry-predicate`, `retry-strategy`, `max-attempts` and the wait of the strategy (`fixed-delay`, or
`initial-backoff`) are given together or not at all. `max-attempts` counts retries after the first try.
`lookup_miss` asks again while no row is found for the key; a row that a residual condition rejects is
not a miss. `exception` asks again after a failure that may pass. Predicates of your own, over the rows
of a key, are registered with `lookup_hints.register_retry_predicate(name, function)`.
"""

_BUDGETS = """\
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

The rate counts requests, retries included: keys if each has a request, else batches.

`lookup.max-requests` is a safety catch, for sources that cost money. It is exact with one executor; with
several each has its part, rounded up, and the statement fails when the first of them is over it. `on-open`
says what requests do while the source is down.
"""

_STREAMS = """\
For `INSERT INTO ... SELECT ... FROM STREAM ...`, see [Streams](../streaming.md). An option can be set in
`WITH (...)` after the sink, or in `SET`; the former wins. Other options go to the sink.
"""

_RESTARTS = """\
For streaming queries that an `INSERT` starts; as in Flink. `restart-strategy` is another name of
`restart-strategy.type`, and `jobmanager.execution.failover-strategy` of `execution.failover-strategy`.
"""

_CONNECTORS = """
## Options of connectors

`${env:NAME}` and `${file:path}` in any value are read on the machine that connects. `${call:module:function}`
is [called there](changing-credentials.md), in options that take it. `${conf:key}` is read
from Spark's configuration when the table is created. None of them is ever shown, nor is the value of a
secret option. [Security](security.md) says where each travels, and how an administrator bounds references
and files.
"""

_FLINK = """\
# Options of Flink's that are not here

Names in Flink's documentation and its connectors for which there is another name here, or nothing yet. A name
that ends with a dot or a dash stands for all that begin so. Using one gives the same message.
"""

_REMOVED = """
## Options that were removed

| option | instead |
|---|---|
"""


def pages() -> dict[Path, str]:
    """All files that are made, with their texts."""
    made = {f"options/{name}.md": text for name, text in _option_pages().items()}
    made |= {f"connectors/{name}.md": _connector_page(name) for name in CONNECTORS}
    made["options.md"] = _index(made)
    made["options/flink.md"] = _flink_page()
    return {DOCS / name: text for name, text in made.items()}


def _option_pages() -> dict[str, str]:
    apart = (*_OF_READING, *_OF_TIME, *_OF_LIMITS, *_OF_RETRIES)
    caches = [each for each in LOOKUP_OPTIONS if "cache" in each.key.partition(".")[0]]
    failures = [each for each in LOOKUP_OPTIONS if re.match("on-error|dead-letter|max-error", each.key)]
    others = [each for each in LOOKUP_OPTIONS if each.key not in apart and each not in caches + failures]
    return {
        "requests": _page(
            "Requests, reading, time",
            ("Requests", "", others, _lookup_facts),
            ("Look up, or read the table", "", _named(_OF_READING), _lookup_facts),
            ("Rows of the past", "", _named(_OF_TIME), _lookup_facts),
        ),
        "retries": _page(
            "Retries and failures",
            ("Retry", _RETRY, _named(_OF_RETRIES), _lookup_facts),
            ("Keys that failed", "", failures, _lookup_facts),
        ),
        "limits": _page(
            "Limits", ("Budgets for the whole cluster", _BUDGETS, _named(_OF_LIMITS), _lookup_facts)
        ),
        "caches": _page("Options of caches", ("Caches", "", caches, _lookup_facts)),
        "session": _page(
            "Sessions and streams",
            ("Session options", "", SESSION_OPTIONS, _session_facts),
            ("Streams", _STREAMS, STREAM_OPTIONS, _stream_facts),
            ("Restart strategies", _RESTARTS, RESTART_OPTIONS, _session_facts),
        ),
    }


def _named(keys: Sequence[str]) -> list[Option]:
    return [next(option for option in LOOKUP_OPTIONS if option.key == key) for key in keys]


def _page(title: str, *sections: tuple[str, str, Sequence[Option], Callable[[Option], str]]) -> str:
    parts = [f"# {title}\n"]
    for name, said, options, facts in sections:
        parts.append(f"\n## {name}\n" + (f"\n{said}" if said else ""))
        parts += [_entry(_title_of(option), option.meaning, facts(option)) for option in options]
    return "".join(parts)


def _title_of(option: Option) -> str:
    return option.key if option in LOOKUP_OPTIONS else option.key_in(Place.SESSION)


def _entry(key: str, meaning: str, facts: str) -> str:
    """An option under a title of its own, so that it has an anchor and search finds it."""
    return f"\n### `{key}`\n\n{_escaped(meaning)}\n\n{facts}\n"


def _lookup_facts(option: Option) -> str:
    places = [f"hint `{option.key}`"] if Place.HINT in option.places else []
    places += [f"`WITH` `{option.key_in(Place.TABLE)}`"] if Place.TABLE in option.places else []
    places += [f"`SET` `{option.session_key}`"] if Place.SESSION in option.places else []
    return f"- {_values(option)}\n- {', '.join(places)}"


def _session_facts(option: Option) -> str:
    return f"- {_values(option)}"


def _stream_facts(option: Option) -> str:
    in_insert = f"\n- `WITH` `{option.key_in(Place.INSERT)}`" if Place.INSERT in option.places else ""
    return f"- {_values(option)}{in_insert}"


def _values(option: Option) -> str:
    default = [f"default {option.shown_default}"] if option.shown_default else []
    return ", ".join([option.shown_type, *default, *option.marks])


def _connector_page(name: str) -> str:
    written = (DOCS / "connectors" / f"{name}.md").read_text(encoding="utf-8").partition("\n## Options\n")[0]
    options = connector_class(CONNECTORS[name]).OPTIONS
    entries = (_entry(each.shown_key, each.meaning, f"- {_values(each)}") for each in options)
    return f"{written}\n## Options\n{''.join(entries)}"


def _index(made: Mapping[str, str]) -> str:
    """The page that links to each option."""
    parts = [_INTRODUCTION]
    for file, text in made.items():
        if file == "connectors/memory.md":
            parts.append(_CONNECTORS)
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            keys = re.findall(r"^### `(.*)`$", section, re.MULTILINE)
            if keys and file.startswith("options/"):
                parts.append(f"\n## {section.partition(chr(10))[0]}\n\n{_links(file, keys)}\n")
            elif keys:
                parts.append(f"\n### `'connector' = '{Path(file).stem}'`\n\n{_links(file, keys)}\n")
    parts.append(
        "\n## Other names\n\n[Options of Flink's, and options that were removed](options/flink.md).\n"
    )
    return "".join(parts)


def _links(file: str, keys: Iterable[str]) -> str:
    return "\n".join(f"- [`{key}`]({file}#{anchor(key)})" for key in keys)


def anchor(title: str) -> str:
    """The anchor of a title on the site, and in the repository where nothing stands in ``<>``."""
    return re.sub("<.*?>|[^a-z0-9_-]", "", title.lower().replace(" ", "-"))


def _flink_page() -> str:
    in_sets = {**flink.SESSION_OPTIONS, **flink.OTHER_SESSION_OPTIONS}
    own = {name: answer for name, answer in in_sets.items() if name not in flink.TABLE_OPTIONS}
    parts = [_FLINK]
    for where, answers in (("WITH", flink.TABLE_OPTIONS), ("SET", own), ("connector", flink.CONNECTORS)):
        parts.append(f"\n## In `{where}`\n\n| in Flink | here |\n|---|---|\n")
        parts += [_row(f"`{name}`", answer) for name, answer in answers.items()]
    parts += [_REMOVED, *(_row(f"`{name}`", instead) for name, instead in REMOVED_OPTIONS.items())]
    return "".join(parts)


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cell).replace('|', chr(92) + '|') for cell in cells)} |\n"


def _escaped(text: str) -> str:
    """``text`` where names in ``<>`` are no tags of HTML; code is shown as it is."""
    return re.sub("(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
