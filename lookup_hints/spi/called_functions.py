"""Functions behind ``${call:package.module:function}``: what each gave last, kept for as long as it said."""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Set
from importlib import import_module
from threading import Lock
from typing import Any

from lookup_hints.errors import ConnectorError, OptionError, Problem

MOST_KNOWN = 16
"""So many of the last values of a function are masked in messages."""

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_SHAPES = "It returns a text, or a text and for how many seconds it may be used."


def is_function_name(text: str) -> bool:
    """Whether ``text`` names a function as ``package.module:function`` does."""
    return _NAME.fullmatch(text) is not None


class CalledFunction:
    """A function of a user's, the value that it gave last, and until when that may be used."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._value: str | None = None
        self._until = -math.inf
        self.given: tuple[str, ...] = ()
        """Its last values, to be masked; read without the lock, as a call may hang."""

    def is_kept(self) -> bool:
        return self._value is not None and time.monotonic() < self._until

    def value(self, option: str, table: str) -> str:
        """The kept value, or that of a new call, which blocks; at most one call runs in a process.

        Raises:
            OptionError: there is no such function, or it returns neither a text nor a text and seconds.
            ConnectorError: it raised, which may pass.
        """
        with _calling:
            if self._value is None or not self.is_kept():
                began = time.monotonic()
                value, seconds = self._call_function(option, table)
                self._value, self._until = value, began + seconds
                self.given = (*self.given[1 - MOST_KNOWN :], value)
            return self._value

    def forget(self, refused: Set[str]) -> None:
        """Call again for the next value, if the kept one is among those ``refused``."""
        with _calling:
            if self._value in refused:
                self._value = None

    def _call_function(self, option: str, table: str) -> tuple[str, float]:
        where = f"on {socket.gethostname()}, for the option {option!r} of table {table}"
        function = self._find_function(where)
        try:
            returned = function()
        except Exception as error:
            what = f"{type(error).__name__}: {error}".rstrip(". ")
            raise ConnectorError(f"The function {self._name!r} raised {what} ({where}).") from error
        value, seconds = returned if type(returned) is tuple and len(returned) == 2 else (returned, math.inf)
        is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0
        if not (isinstance(value, str) and value and is_time):
            shape = _shape_of(returned)
            raise OptionError(
                Problem(f"The function {self._name!r} returned {shape} ({where}).", tip=_SHAPES)
            )
        return value, float(seconds)

    def _find_function(self, where: str) -> Any:
        module, _, name = self._name.partition(":")
        try:
            function = getattr(import_module(module), name, None)
        except Exception as error:
            tip = "Install the module there, or ship it with --py-files."
            what = f"The module {module!r} cannot be imported {where}: {type(error).__name__}: {error}"
            raise OptionError(Problem(f"{what.rstrip('.')}.", tip=tip)) from error
        if not callable(function):
            raise OptionError(Problem(f"The module {module!r} has no function {name!r} ({where})."))
        return function


def _shape_of(returned: object) -> str:
    """What kind of value it is, without the value."""
    if isinstance(returned, tuple):
        return f"a tuple of {', '.join(type(each).__name__ for each in returned) or 'nothing'}"
    return "an empty text" if returned == "" else f"a value of the type {type(returned).__name__}"


_functions: dict[str, CalledFunction] = {}
_calling = Lock()


def called_function(name: str) -> CalledFunction:
    """The one of this process that is called ``name``, as ``package.module:function``."""
    return _functions.setdefault(name, CalledFunction(name))


def _renew_lock() -> None:
    # Another thread of the parent may hold it, which does not exist in the child.
    global _calling
    _calling = Lock()


os.register_at_fork(after_in_child=_renew_lock)
