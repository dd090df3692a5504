"""Showing how far something is from a thread of its own, while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context


@contextmanager
def showing_meanwhile(show: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run ``show`` beside the block, on a thread called ``name``; it returns once its event is set.

    What is shown is no reason to fail: if this process can start no more threads, nothing is shown.
    """
    over = threading.Event()
    # In the context of the caller: a notebook finds the cell by it that the line belongs to.
    showing = threading.Thread(target=copy_context().run, args=(show, over), name=name, daemon=True)
    with suppress(RuntimeError):
        showing.start()
    try:
        yield
    finally:
        over.set()
        if showing.is_alive():
            showing.join()
