"""A user's function as a connector: it is called key by key, like a source."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import AsyncRowLookup
from lookup_hints.spi.request_and_answer import LookupTable, RowRequest, Rows

THREADS = 1000
"""The most calls of a plain function at once in one worker process."""


# As a connector, a user's function gets the capacity, timeouts, retries and failures of lookups from the same
# code. (docs/decisions/0041)
class FunctionConnector(AsyncRowLookup):
    """Calls ``function`` with the inputs of each row, for up to `capacity` rows at once.

    An ``async def`` runs on the event loop of the worker; a plain ``def`` on a thread of its own, so it must
    be thread-safe. A thread cannot be stopped: after a timeout the call of a plain function goes on, and its
    result is dropped.
    """

    def __init__(
        self, table: LookupTable, function: Callable[..., Any], inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """``inputs`` and ``outputs`` are the columns of ``table`` that it takes and gives."""
        super().__init__(table)
        self._function = function
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._is_async = is_async(function)
        self._threads: ThreadPoolExecutor | None = None

    async def aopen(self) -> None:
        """Make a place for threads; they start when there is work."""
        if not self._is_async:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lookup_hints")

    async def alookup_row(self, request: RowRequest) -> Rows:
        """The function's result, as rows."""
        arguments = [request.key[name] for name in self._inputs]
        if self._is_async:
            result = await self._function(*arguments)
        else:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, self._function, *arguments)
            if inspect.isawaitable(result):  # a function that returns a coroutine, as a partial may
                result = await result
        if result is None:
            return []
        return [self._result_row(each) for each in (result if isinstance(result, list) else [result])]

    async def aclose(self) -> None:
        """Let go of the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _result_row(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        if isinstance(value, tuple):
            if len(value) == len(self._outputs):
                return dict(zip(self._outputs, value, strict=True))
            what = f"a tuple of {len(value)}"
        elif len(self._outputs) == 1:
            return {self._outputs[0]: value}
        else:
            what = f"a {type(value).__name__}"
        raise ConnectorError(
            f"{self.table.name} returned {what}, {value!r:.200}; expected for each row a dictionary or a"
            f" tuple with the columns {', '.join(self._outputs)}, or None for no row.",
            permanent=True,
        )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of ``function`` gives a coroutine: an ``async def``, or an object called by one."""
    call = getattr(function, "__call__", None)  # noqa: B004 (an object's own, not whether there is one)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
