"""Where a source is, as logs may show it: hosts and ports, and nothing of a password."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lookup_hints.spi import LookupTable
from lookup_hints.spi.address import origin_of, place_of


def table(**options: str) -> LookupTable:
    return LookupTable("t", pa.schema([("id", pa.int64())]), options=options)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"url": "https://api.example.com/people/{id}?q=1"}, "api.example.com"),
        ({"url": "postgresql://me:secret@db:5432/crm"}, "db:5432"),
        ({"url": "postgresql://me:s@cret@one:1,two:2/crm"}, "one:1,two:2"),
        ({"host": "one,two", "port": "1,2"}, "one:1,two:2"),
        ({"host": "one,two", "port": "1"}, "one:1,two:1"),
        ({"url": "redis://[::1]:6379/0"}, "[::1]:6379"),
        ({"host": "db"}, "db"),
        ({"host": "db", "port": "6379"}, "db:6379"),
        ({"url": "redis://:pass/word@db:6379"}, ""),
        ({"url": "redis://me:12/34@db:6379"}, ""),
        ({"url": "redis://:pass?word@db"}, ""),
        ({"url": "https://{tenant}.example.com/x"}, ""),
        ({"url": "no url"}, ""),
        ({"url": "http://[broken/"}, ""),
        ({"url": "${env:LOOKUP_NO_SUCH_NAME}"}, ""),
        ({"url": "${env:LOOKUP_TEST_URL}"}, "hidden:1"),
        ({"path": "/data/x"}, ""),
        ({}, ""),
    ],
)
def test_the_place_of_a_source_has_no_secrets(
    options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKUP_TEST_URL", "crm://me:secret@hidden:1/x")
    assert place_of(table(**options)) == place


@pytest.mark.parametrize(
    ("options", "origin"),
    [
        ({"url": "crm://me:secret@DB:5432/x"}, "db:5432"),
        ({"url": "crm://db:5432/x", "user": "Crm"}, "db:5432 user Crm"),
        ({"host": "db", "port": "1", "username": "crm", "password": "secret"}, "db:1 user crm"),
        ({"host": "${env:LOOKUP_TEST_HOST}", "user": "${env:LOOKUP_TEST_USER}"}, "hidden user crm"),
        ({"host": "db", "user": "${env:LOOKUP_NO_SUCH_NAME}"}, ""),
        ({"host": "${file:/no/such/file}"}, ""),
        ({"url": "crm://me:12/34@db:6379"}, ""),
        ({"path": "/data/x", "user": "me"}, ""),
        ({}, ""),
    ],
)
def test_an_origin_is_a_place_and_a_user(
    options: dict[str, str], origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKUP_TEST_HOST", "hidden")
    monkeypatch.setenv("LOOKUP_TEST_USER", "crm")
    assert origin_of(table(**options)) == origin
