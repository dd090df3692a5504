"""The reference says what the code says."""

from __future__ import annotations

from docs import generate_options, generate_sql_support


def test_the_option_reference_is_made_from_the_option_tables() -> None:
    text = generate_options.TARGET.read_text(encoding="utf-8")
    assert text == generate_options.page(), "run: python docs/generate_options.py"


def test_the_page_on_sql_is_made_from_the_cases() -> None:
    text = generate_sql_support.TARGET.read_text(encoding="utf-8")
    assert text == generate_sql_support.page(), "run: python docs/generate_sql_support.py"
