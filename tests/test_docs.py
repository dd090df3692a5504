"""The reference says what the code says."""

from __future__ import annotations

from docs.generate_options import TARGET, page


def test_the_option_reference_is_made_from_the_option_tables() -> None:
    assert TARGET.read_text(encoding="utf-8") == page(), "run: python docs/generate_options.py"
