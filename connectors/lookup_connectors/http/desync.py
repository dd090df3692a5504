"""The guard against answers that nobody asked for."""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable
from functools import partial

from lookup_hints.errors import AnswerError

_ANSWER = re.compile(rb"\s*HTTP/\d(?:\.\d)? (\d{3})")


class DesyncGuard:
    """What came unasked over all connections of one client.

    An origin that has sent one answer too many is asked over a new connection each time. Where any of its
    connections has served a second question, before or since, an answer may have been taken for that of the
    next one: whatever is asked from then on fails, so that no wrong row stays unnoticed.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._origins: set[str] = set()
        self._asked_again: set[str] = set()
        self._is_in_doubt = False

    def came(self, origin: str, data: bytes, questions: int) -> None:
        """``data`` came from ``origin`` on a connection that had been asked this many ``questions``."""
        answer = _ANSWER.match(data)
        if answer is None or not _tells_something(int(answer[1])):
            return
        self._origins.add(origin)
        self._is_in_doubt |= questions > 1 or origin in self._asked_again

    def answered_again(self, origin: str) -> None:
        """A connection to ``origin`` that was asked several times got an answer to the last question.

        It may be the second answer to the question before. Whether it is, only that connection would show
        later, and it may be closed by then.
        """
        self._asked_again.add(origin)
        self._is_in_doubt |= origin in self._origins

    def may_keep(self, origin: str) -> bool:
        """Whether a connection to ``origin`` may be used again."""
        return origin not in self._origins

    def check(self) -> None:
        """Refuse to go on where rows may be wrong.

        Raises:
            AnswerError: an answer too many came from an origin whose connections served several questions.
        """
        if self._is_in_doubt:
            raise AnswerError(
                f"table {self._table}: {', '.join(sorted(self._origins))} sent more responses than requests."
                " Rows that were read may belong to other keys. Set 'header.Connection' ="
                " 'close', so that each request uses a new connection."
            )


def _tells_something(status: int) -> bool:
    """Whether it can be taken for a row or a miss; many servers say goodbye with 408, 400 or 503."""
    return 200 <= status < 400 or status in (404, 410)


class Peek:
    """Looks at what waits to be read on an open ``connection``, and takes nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._is_readable = _readable(connection.fileno())

    def waiting(self) -> bytes | None:
        """The first bytes that wait; empty at the end of the connection, None where there are none."""
        if not self._is_readable():
            return None
        # Asyncio's sockets cannot be read; this one is for the same descriptor.
        own = socket.socket(fileno=self._connection.fileno())
        try:
            return own.recv(64, socket.MSG_PEEK)
        except OSError:
            return b""
        finally:
            own.detach()


def _readable(descriptor: int) -> Callable[[], object]:
    """Says whether something waits to be read."""
    if descriptor < 0:
        return lambda: False
    if not hasattr(select, "poll"):
        return lambda: select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return partial(poll.poll, 0)
