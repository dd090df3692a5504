"""Reading a script from a file, and the parameters given beside it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lookup_hints.errors import QueryError
from lookup_hints.statements import parse_params, read_script


def test_a_path_is_read_and_text_is_text(tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_bytes("\ufeffSELECT 'é'".encode())
    assert read_script(job) == "SELECT 'é'"
    assert read_script(str(job)) == "SELECT 'é'"
    assert read_script("SELECT 1") == "SELECT 1"
    assert read_script("") == ""
    assert read_script("SELECT '" + "x" * 10_000 + "'").startswith("SELECT")


def test_a_file_of_any_name_is_read(tmp_path: Path) -> None:
    job = tmp_path / "job.hql"
    job.write_text("SELECT 1")
    assert read_script(str(job)) == "SELECT 1"


def test_a_path_without_a_file_says_so_and_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "flights.sql").touch()
    path = str(tmp_path / "fligths.sql")
    with pytest.raises(QueryError) as caught:
        read_script(path)
    assert str(caught.value) == f"There is no file {path!r}. Did you mean 'flights.sql'?"
    with pytest.raises(QueryError, match=r"There is no file"):
        read_script(tmp_path / "no" / "folder.txt")


def test_a_file_that_is_no_text_says_so(tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(QueryError, match=r"job\.sql' cannot be read: .*utf-8"):
        read_script(job)
    with pytest.raises(QueryError, match=r"cannot be read: .*directory"):
        read_script(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0.50", Decimal("0.50")),
        ("1e3", 1000.0),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("'5'", "5"),
        ('"it\'s"', "it's"),
        ("''", ""),
        ("2013-01-01", "2013-01-01"),
        ("a=b", "a=b"),
        ("'a' 'b'", "'a' 'b'"),
        ("", ""),
        ("nan", "nan"),
    ],
)
def test_a_value_is_typed_as_the_same_literal(text: str, value: Any) -> None:
    (parsed,) = parse_params([f"p={text}"]).values()
    assert parsed == value
    assert type(parsed) is type(value)


def test_all_bad_parameters_are_shown_at_once() -> None:
    with pytest.raises(QueryError) as caught:
        parse_params(["d", "=1", "a b=1", "n = 1", "n=2"])
    assert str(caught.value) == (
        "The parameter 'd' is not name=value. Write it as in n=5.\n"
        "The parameter '=1' is not name=value. Write it as in n=5.\n"
        "The parameter 'a b=1' is not name=value. Write it as in n=5.\n"
        "The parameter 'n' is given twice."
    )
