"""Which connectors there are: a name stands for a class, given as ``"module:Class"`` or as the class.

Names come from ``register_connector``, from the entry-point group ``lookup_hints.connectors``, or are
themselves ``module:Class``. Nothing is imported before a table of that connector is created.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from lookup_hints.errors import OptionError, Problem, nearest
from lookup_hints.spi import AsyncLookup, Connector, SyncLookup

GROUP = "lookup_hints.connectors"

_registered: dict[str, type[Connector] | str] = {}


def register_connector(name: str, connector: type[Connector] | str) -> None:
    """Let ``'connector' = '<name>'`` mean ``connector``, a class or ``"module:Class"``.

    Registering the same name again replaces it, so a notebook cell can be run twice.

    Example:
        >>> register_connector("geoip", "my_company.geo:GeoIp")
    """
    _registered[name.lower()] = connector


def connector_names() -> list[str]:
    """The names known now, registered and installed, sorted."""
    return sorted({*_registered, *(entry.name for entry in entry_points(group=GROUP))})


def connector_class(name: str) -> type[Connector]:
    """The class that ``name`` stands for.

    Raises:
        OptionError: nothing is known under the name, it cannot be imported, two packages claim it,
            or what it names is no connector.
    """
    target = _registered.get(name.lower()) or _installed(name)
    if target is None and ":" in name:
        target = name
    if target is None:
        tip = nearest(name, connector_names())
        raise OptionError(
            Problem(f"No connector is called {name!r}.", tip=f"{tip} Your own: 'my_module:MyConnector'.")
        )
    loaded = _load(target, name) if isinstance(target, str) else target
    if not (isinstance(loaded, type) and issubclass(loaded, Connector)):
        raise OptionError(Problem(f"Connector {name!r}: {target} is not a Connector class."))
    if not issubclass(loaded, SyncLookup | AsyncLookup):
        raise OptionError(Problem(f"Connector {name!r}: {target} is neither SyncLookup nor AsyncLookup."))
    return loaded


def _installed(name: str) -> str | None:
    targets = {entry.value for entry in entry_points(group=GROUP) if entry.name == name.lower()}
    if len(targets) > 1:
        raise OptionError(
            Problem(
                f"Connector {name!r} is claimed by {' and '.join(sorted(targets))}.",
                tip="Name the one you mean as 'module:Class'.",
            )
        )
    return next(iter(targets), None)


def _load(target: str, name: str) -> object:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        missing = f" (no module named {error.name!r})" if error.name else f" ({error})"
        extra = f"lookup-hints[{name}]"
        tip = f"Install its driver: pip install '{extra}'." if ":" not in name else "Is it on the path?"
        raise OptionError(Problem(f"Connector {name!r} cannot be imported{missing}.", tip=tip)) from error
    except AttributeError as error:
        raise OptionError(Problem(f"Connector {name!r}: {module} has no {attribute!r}.")) from error
