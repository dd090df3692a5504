"""Options that several connectors have, and what all say of mistakes in them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lookup_connectors.shared.sql_parts import quoted
from lookup_hints.errors import ConnectorError, OptionError, Problem
from lookup_hints.spi import LookupTable, Option, integer
from lookup_hints.spi.secrets import has_reference

POOL_SIZE = Option("pool-size", integer(1, 1000), "Connections per worker process, at most.", default=4)


def pooled_requests(table: LookupTable) -> int | None:
    """One for each connection, and one more each, so that none waits for the task's next one."""
    given = table.options.get(POOL_SIZE.key)
    if given and has_reference(given):
        return None
    return 2 * (int(given) if given else POOL_SIZE.default)


def source_name(table: LookupTable) -> str:
    """The table or view that is asked, as SQL writes it: ``table-name``, or the table's own name."""
    name = table.name
    return table.options.get("table-name") or (name if name.isidentifier() else quoted(name))


def option_error(table: LookupTable, what: str, tip: str = "") -> OptionError:
    return OptionError(Problem(f"table {table.name}: {what}.", tip=tip))


def server_problems(table: LookupTable, parts: Collection[str]) -> list[str]:
    """What is wrong where a server is said by ``url`` or by options that are ``parts`` of one."""
    given = table.options
    twice = [f"{key!r} is a part of 'url' already" for key in parts if "url" in given and key in given]
    return twice[:1] + ([] if "url" in given or "host" in given else ["give the server as 'url' or 'host'"])


def check_file_exists(table: LookupTable, path: str | Path) -> None:
    if not Path(path).is_file():
        raise ConnectorError(
            f"table {table.name}: there is no file {path} on this machine. Each worker opens it: put it on a"
            " shared volume or ship it with the job.",
            permanent=True,
        )
