"""The registry of connectors and retry predicates.

The name of a connector refers to a class, given as ``"module:Class"`` or as the class itself.

Names come from ``register_connector``, from the entry-point group ``lookup_hints.connectors``, or are
themselves ``module:Class``. Nothing is imported before a table of that connector is created.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points

from lookup_hints.errors import OptionError, Problem, nearest
from lookup_hints.retry import RowPredicate
from lookup_hints.spi import AsyncLookup, Connector, Option, SyncLookup
from lookup_hints.spi.flink import CONNECTORS, instead_of

GROUP = "lookup_hints.connectors"

_registered: dict[str, type[Connector] | str] = {}
# Reading the installed entry points takes 10 ms, and each statement needs its connectors several times.
_found: dict[str, str] = {}
_predicates: dict[str, RowPredicate] = {}

_BASES = "Inherit AsyncRowLookup, SyncRowLookup, AsyncLookup or SyncLookup."
_ASYNC_METHODS = ("aopen", "alookup", "alookup_row", "aclose")
_SYNC_METHODS = ("open", "lookup", "lookup_row", "close")


def register_connector(name: str, connector: type[Connector] | str) -> None:
    """Let ``'connector' = '<name>'`` mean ``connector``, a class or ``"module:Class"``.

    Registering the same name again replaces it, so a notebook cell can be run twice.

    Examples:
        >>> register_connector("geoip", "my_company.geo:GeoIp")
    """
    _registered[name.lower()] = connector


def register_retry_predicate(name: str, predicate: RowPredicate) -> None:
    """Let ``'retry-predicate'='<name>'`` ask again while ``predicate`` is true of a key's rows.

    Args:
        name: its name in hints, ignoring case, ``-`` and ``_`` being the same.
        predicate: takes the rows found for one key as dictionaries (none for a miss); runs on the
            workers, so it is pickled. On the last attempt the rows are taken as they are.

    Examples:
        >>> register_retry_predicate("no_zip", lambda rows: any(row["zip"] is None for row in rows))
    """
    _predicates[name.lower().replace("-", "_")] = predicate


def retry_predicates() -> Mapping[str, RowPredicate]:
    """The predicates registered now, by name."""
    return _predicates


def connector_names() -> list[str]:
    """The names known now, registered and installed, sorted."""
    return sorted({*_registered, *(entry.name for entry in entry_points(group=GROUP))})


def connector_class(name: str) -> type[Connector]:
    """The class of the connector ``name``.

    Raises:
        OptionError: the name is unknown, cannot be imported, is claimed twice, or is no connector.
    """
    target = _find_target(name)
    loaded = _load_class(target, name) if isinstance(target, str) else target
    if not (isinstance(loaded, type) and issubclass(loaded, Connector)):
        raise OptionError(Problem(f"Connector {name!r}: {target} is not a Connector class.", tip=_BASES))
    if not issubclass(loaded, SyncLookup | AsyncLookup):
        raise OptionError(Problem(f"Connector {name!r}: {target} has no lookup method.", tip=_BASES))
    problems = [Problem(f"Connector {name!r}: {each}") for each in _mistakes_in_class(loaded)]
    if problems:
        raise OptionError(problems)
    return loaded


def check_connector_name(name: str) -> None:
    """Refuse an unknown name, without importing anything."""
    _find_target(name)


def module_named(name: str) -> str | None:
    """The module of an unregistered ``'my_module:MyConnector'``; None for other names."""
    is_path = ":" in name and name.lower() not in _registered and _find_installed(name) is None
    return name.partition(":")[0] if is_path else None


def _find_target(name: str) -> type[Connector] | str:
    target = _registered.get(name.lower()) or _found.get(name.lower()) or _find_installed(name)
    if target is None and ":" in name:
        target = name
    if target is None:
        tip = instead_of(name, CONNECTORS) or nearest(name, connector_names())
        raise OptionError(
            Problem(
                f"No connector is called {name!r}.", tip=f"{tip} Your own: 'my_module:MyConnector'.".strip()
            )
        )
    return target


def _mistakes_in_class(kind: type[Connector]) -> Iterator[str]:
    """Mistakes in a class that show without an instance."""
    for method in sorted(getattr(kind, "__abstractmethods__", ())):
        yield f"class {kind.__name__} has no method {method}(). {nearest(method, list(vars(kind)))}"
    for method in _ASYNC_METHODS if issubclass(kind, AsyncLookup) else ():
        if _is_plain(getattr(kind, method, None), method):
            yield f"{kind.__name__}.{method} must be written with 'async def', and return its answer."
    for method in _SYNC_METHODS if issubclass(kind, SyncLookup) else ():
        if inspect.iscoroutinefunction(getattr(kind, method, None)):
            yield f"{kind.__name__}.{method} may not be 'async': an async connector has a{method}()."
    if not all(isinstance(option, Option) for option in kind.OPTIONS):
        yield f"{kind.__name__}.OPTIONS must hold Options: Option('url', TEXT, 'Where it is.')."


def _is_plain(function: object, name: str) -> bool:
    """Whether ``function`` was written so, and is neither a coroutine nor a decorator's work."""
    if not inspect.isfunction(function) or function.__name__ != name:
        return False
    return not inspect.iscoroutinefunction(inspect.unwrap(function))


# Two packages may claim one name. Which one would win is chance, so that is refused.
def _find_installed(name: str) -> str | None:
    targets = {entry.value for entry in entry_points(group=GROUP) if entry.name == name.lower()}
    if len(targets) > 1:
        message = f"Connector {name!r} is claimed by {' and '.join(sorted(targets))}."
        tip = "Name the one you mean as 'module:Class'."
        raise OptionError(Problem(message, tip=tip))
    if targets:
        _found[name.lower()] = targets.pop()
    return _found.get(name.lower())


def _load_class(target: str, name: str) -> object:
    module, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        about = "" if target == name else f": {target!r}"
        tip = "Write 'module:Class', as in 'my_company.geo:GeoIp'."
        raise OptionError(Problem(f"Connector {name!r} does not name a class{about}.", tip=tip))
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        missing = f" (no module named {error.name!r})" if error.name else f" ({error})"
        extra = f"lookup-hints[{name}]"
        tip = f"Install its driver: pip install '{extra}'." if ":" not in name else "Is it on the path?"
        raise OptionError(Problem(f"Connector {name!r} cannot be imported{missing}.", tip=tip)) from error
    except Exception as error:
        failed = f"Connector {name!r}: to import {module} failed with {type(error).__name__}: {error}."
        raise OptionError(Problem(failed)) from error
    if not hasattr(loaded, attribute):
        raise OptionError(Problem(f"Connector {name!r}: {module} has no {attribute!r}."))
    return getattr(loaded, attribute)
