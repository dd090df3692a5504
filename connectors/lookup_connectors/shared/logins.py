"""Log in with what functions of ``${call:}`` give at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lookup_hints.spi import LookupTable

_Login = TypeVar("_Login")
_Connection = TypeVar("_Connection")


async def connect_by_login(
    table: LookupTable,
    read: Callable[[], tuple[_Login, set[str]]],
    connect: Callable[[_Login], Awaitable[_Connection]],
    is_refused: Callable[[Exception], bool],
) -> _Connection:
    """A connection by the login of the moment; one that is refused is replaced once.

    Args:
        table: whose options refer to functions.
        read: the login and the values that were read for it; it may block.
        connect: makes a connection by a login.
        is_refused: whether an error of ``connect`` says that the login is not good.
    """
    login, used = await asyncio.to_thread(read)
    try:
        return await connect(login)
    except Exception as error:
        if not (table.called and is_refused(error) and await asyncio.to_thread(table.forget_called, used)):
            raise
    login, _ = await asyncio.to_thread(read)
    return await connect(login)
