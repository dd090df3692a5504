"""What must hold for every hint: written anyhow it reads the same, broken anyhow it fails politely."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_hints.errors import HintError
from lookup_hints.hints.hint_comments import hint_comments, lookup_hints, removals
from lookup_hints.sql.lexer import string_literal
from lookup_hints.sql.sql_text import SqlText

_VALUES = {
    "async": st.sampled_from(["true", "FALSE"]),
    "capacity": st.integers(1, 10**6).map(str),
    "timeout": st.integers(1, 99).map("{} s".format),
    "output-mode": st.sampled_from(["ordered", "ALLOW_UNORDERED", "allow-unordered"]),
    "retry-predicate": st.sampled_from(["lookup_miss", "exception,lookup_miss"]),
    "jitter-factor": st.sampled_from(["0", "0.5", "1"]),
}
_GAPS = st.sampled_from(["", " ", "\n", "\t  ", "/* x, 'y'='z' */", " -- it's\n"])
_GONE = "\0"
_OTHERS = st.sampled_from(["BROADCAST(x)", "coalesce( 3 )", "REBALANCE", "`my hint`('a', b.c)"])


@st.composite
def options(draw: st.DrawFn) -> dict[str, str]:
    keys = draw(st.lists(st.sampled_from(sorted(_VALUES)), unique=True))
    table = draw(
        st.text(min_size=1).filter(str.strip).filter(lambda name: "*/" not in name and "/*" not in name)
    )
    return {"table": table, **{key: draw(_VALUES[key]) for key in keys}}


@st.composite
def calls(draw: st.DrawFn, given: dict[str, str]) -> str:
    """The call of ``given`` with odd case, white space and comments."""

    def gap() -> str:
        return draw(_GAPS)

    pairs = []
    for key, value in given.items():
        spelled = key.upper() if draw(st.booleans()) else key
        pairs.append(f"{gap()}'{spelled}'{gap()}={gap()}{string_literal(value)}{gap()}")
    name = draw(st.sampled_from(["LOOKUP", "lookup", "LookUp"]))
    return f"{name}{gap()}({','.join(pairs)})"


@st.composite
def selects(draw: st.DrawFn) -> tuple[str, dict[str, str], str]:
    """A SELECT with one LOOKUP among other hints, its options, and the SELECT with a mark in their place."""
    given = draw(options())
    others = draw(st.lists(_OTHERS, max_size=3))
    at = draw(st.integers(0, len(others)))
    with_lookup = [*others[:at], draw(calls(given)), *others[at:]]
    before, after = draw(_GAPS), draw(_GAPS)
    rest = f"/*+ {', '.join(others)} */" if others else _GONE
    text = f"SELECT {before}/*+ {', '.join(with_lookup)} */{after} 'LOOKUP' AS s"
    return text, given, f"SELECT {before}{rest}{after} 'LOOKUP' AS s"


@pytest.mark.work(3)
@settings(deadline=None)
@given(selects())
def test_a_hint_reads_the_same_however_it_is_written(case: tuple[str, dict[str, str], str]) -> None:
    text, given, _ = case
    (hint,) = (hint for comment in hint_comments(SqlText(text)) for hint in comment.lookups)
    assert hint.problems == ()
    assert {key.lower(): value for key, value in hint.options.items()} == given
    (valid,) = lookup_hints(SqlText(text))
    assert valid.table == given["table"]
    assert valid.options.keys() == given.keys() - {"table"}


@settings(deadline=None)
@given(selects())
def test_taking_the_hint_out_gives_the_text_that_never_had_it(case: tuple[str, dict[str, str], str]) -> None:
    text, _, expected = case
    for edit in reversed(removals(SqlText(text))):
        text = text[: edit.at.start] + "".join(map(str, edit.new)) + text[edit.at.end :]
    # Where the comment goes as a whole, a blank may stand for it.
    assert text in (expected.replace(_GONE, ""), expected.replace(_GONE, " "))


@pytest.mark.work(3)
@settings(deadline=None)
@given(selects(), st.data())
def test_a_broken_hint_is_a_hint_error_or_still_a_hint(
    case: tuple[str, dict[str, str], str], data: st.DataObject
) -> None:
    text, _, _ = case
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 5))
    junk = data.draw(
        st.sampled_from(["", "'", '"', "(", ")", ",", "=", "*/", "/*+", "`", "\\", ";", "é", "SELECT"])
    )
    broken = text[:at] + junk + text[at + length :]
    with suppress(HintError):
        lookup_hints(SqlText(broken))
    removals(SqlText(broken))


@settings(deadline=None)
@given(st.text(alphabet="SELECT /*+LOKUP('=,)\\\"`\n-ab"))
def test_any_text_at_all_is_read_or_refused(text: str) -> None:
    with suppress(HintError):
        lookup_hints(SqlText("SELECT " + text))
