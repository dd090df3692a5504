"""Writes ``docs/options.md`` from the option tables: ``python docs/generate_options.py``.

A test compares the file with what this makes, so that the reference cannot fall behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lookup_hints.options import LOOKUP_OPTIONS, SESSION_OPTIONS, Option, Place
from lookup_hints.registry import connector_class

TARGET = Path(__file__).with_name("options.md")
CONNECTORS = ("memory", "sqlite", "postgres", "http")

_INTRODUCTION = """\
# Options

This page is made from the option tables in the code by `python docs/generate_options.py`.

A lookup option can stand in a hint, in the `WITH` clause of the table (as the default of every query),
and some in the session. The hint wins over the table, the table over the session, the session over the
default. Two hints for one table are merged option by option; the first wins.

Values of hints are string literals. Names and enumerated values ignore case; in values `-` and `_` are
the same. Durations are a whole number and a unit: `10s`, `500 ms`, `3 min`, `1 h`, `1 d`; without a unit
they are milliseconds. `m` is not a unit.

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

## Session options

| key | type | default | meaning |
|---|---|---|---|
"""

_CONNECTORS = """
Every session key may also be given with the prefix `spark.`, so that `spark-submit --conf` passes it on.

## Connector options

`${env:NAME}` and `${file:path}` in any value are read on the machine that connects, `${conf:key}` is read
from Spark's configuration when the table is created. None of them is ever shown, nor is the value of an
option marked *secret*.
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *map(_lookup_row, LOOKUP_OPTIONS), _RETRY, *map(_session_row, SESSION_OPTIONS)]
    parts += [_CONNECTORS, *(_connector(name) for name in CONNECTORS)]
    return "".join(parts)


def _lookup_row(option: Option) -> str:
    in_hint = "yes" if Place.HINT in option.places else ""
    in_table = f"`{option.key_in(Place.TABLE)}`" if Place.TABLE in option.places else ""
    in_session = f"`{option.session_key}`" if Place.SESSION in option.places else ""
    return _row(
        f"`{option.key}`",
        _type(option),
        _default(option),
        in_hint,
        in_table,
        in_session,
        option.meaning,
    )


def _session_row(option: Option) -> str:
    return _row(f"`{option.session_key}`", _type(option), _default(option), option.meaning)


def _connector(name: str) -> str:
    head = f"\n### `'connector' = '{name}'`\n\n| option | type | default | meaning |\n|---|---|---|---|\n"
    return head + "".join(_connector_row(option) for option in connector_class(name).OPTIONS)


def _connector_row(option: Option) -> str:
    marks = [mark for mark, is_set in (("required", option.required), ("secret", option.secret)) if is_set]
    meaning = f"{option.meaning} *({', '.join(marks)})*" if marks else option.meaning
    return _row(f"`{option.shown_key}`", _type(option), _default(option), meaning)


def _type(option: Option) -> str:
    return option.type.name.replace("|", "or")


def _default(option: Option) -> str:
    if option.default is None:
        return ""
    if option.type.name == "status codes":
        return f"`{option.default}`"
    if option.type.name == "duration":
        return f"`{option.default:g} s`"
    return f"`{str(option.default).lower()}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(_escaped(cells))} |\n"


def _escaped(cells: Iterable[str]) -> Iterable[str]:
    return (cell.replace("|", "\\|") for cell in cells)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
