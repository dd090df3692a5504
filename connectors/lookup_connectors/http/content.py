"""Bodies without their content codings."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

_PIECE = 64 * 1024


class BodyTooLarge(Exception):
    """A body is larger than it may be."""


def decoded(body: bytes, codings: str, most_bytes: int) -> bytes:
    """``body`` without its ``codings``, of ``most_bytes`` at most.

    Unknown codings are left, as some servers name charsets.

    Raises:
        BodyTooLarge: it is larger.
        zlib.error, OSError: it is not what it says.
    """
    for coding in reversed(codings.lower().replace(" ", "").split(",")):
        inflate = _INFLATE.get(coding)
        if body and inflate is not None:
            body = inflate(body, most_bytes)
    return body


def _by_zlib(body: bytes, most_bytes: int, *, may_be_bare: bool = False) -> bytes:
    # Some servers send "deflate" bare, without a header of zlib.
    is_bare = may_be_bare and body[:1] not in (b"\x78", b"\x1f")
    reader = zlib.decompressobj(-15 if is_bare else 47)  # 47: gzip or zlib, whichever it begins with
    inflated = reader.decompress(body, most_bytes + 1)
    if len(inflated) > most_bytes:
        raise BodyTooLarge
    if not reader.eof:
        raise zlib.error("it has no end")
    return inflated


def _by_arrow(codec: str, body: bytes, most_bytes: int) -> bytes:
    inflated = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while piece := stream.read(_PIECE):
            inflated += piece
            if len(inflated) > most_bytes:
                raise BodyTooLarge
    return bytes(inflated)


_INFLATE: Mapping[str, Callable[[bytes, int], bytes]] = {
    "gzip": _by_zlib,
    "x-gzip": _by_zlib,
    "deflate": partial(_by_zlib, may_be_bare=True),
    **{
        name: partial(_by_arrow, codec)
        for name, codec in {"br": "brotli", "zstd": "zstd"}.items()
        if pa.Codec.is_available(codec)
    },
}

ACCEPTED = ", ".join(name for name in _INFLATE if name != "x-gzip")
"""The codings that we ask for."""
