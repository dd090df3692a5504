"""An answer of PostgreSQL whose packed columns cannot be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.spi import LookupTable
from tests.unit.connectors.asking import failure_of

NUMBER, TEXT = bytes(7) + b"\x05", b"\x00\x00\x00\x03"


@pytest.mark.parametrize(
    ("wires", "parts", "why"),
    [
        (["bigint"], [NUMBER[1:], b""], "bytes length not a multiple of item size"),
        (["bigint"], [NUMBER, b"\x01\x00"], "1 value came with 2 flags"),
        (["text"], [TEXT, b"Ad"], "values of 3 bytes came as 2"),
        (["text"], [TEXT, b"Adam"], "values of 3 bytes came as 4"),
        (["bytea"], [b"\x7f\xff\xff\xff" * 3, b""], "values of 6442450941 bytes came as 0"),
        (["bigint", "text"], [NUMBER * 2, b"", TEXT, b"Ada"], "columns have 2, 1 rows"),
    ],
)
def test_an_answer_that_does_not_fit_together_may_pass_and_is_told(
    wires: list[str], parts: list[bytes], why: str
) -> None:
    connector = PostgresConnector(LookupTable("people", pa.schema({"id": pa.int64()})))
    error = failure_of(lambda: connector._unpack(wires, parts))
    assert not error.permanent
    assert str(error) == (
        f"table people: the answer does not fit together: {why}. Something between here and the server"
        " changes it, or it is no PostgreSQL."
    )
