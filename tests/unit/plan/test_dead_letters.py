"""Options about lookups that fail for good: what they mean together, and which contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from lookup_hints.cli.check import check_script
from lookup_hints.errors import HintError, NotAllowed, OptionError, QueryError
from lookup_hints.lookup_spec import DeadLetters, LookupSettings
from lookup_hints.plan.explain import explain
from lookup_hints.spi.security_policy import Policy
from tests.unit.plan.planning import TABLES, context, planned

KEEP = "'on-error'='dead-letter'"
HERE = f"{KEEP}, 'dead-letter.path'='/letters'"
QUERY = "SELECT {} 1 FROM orders o JOIN customers c ON o.id = c.id"


def plan_of(
    hint: str = "",
    session: dict[str, str] | None = None,
    why: str | None = None,
    table: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What EXPLAIN says of errors."""
    return explained(hint, session, why, table=table)["on error"]


def settings_of(hint: str = "", session: dict[str, str] | None = None) -> LookupSettings:
    return planned(QUERY.format(written(hint)), context(conf=session)).joins[0].chosen.settings


def written(hint: str) -> str:
    return f"/*+ LOOKUP('table'='c', {hint}) */" if hint else ""


def explained(
    hint: str = "",
    session: dict[str, str] | None = None,
    why: str | None = None,
    policy: Policy | None = None,
    table: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The lines of EXPLAIN by their names, where a folder cannot be written because of ``why``."""
    customers = replace(TABLES["customers"], options={**TABLES["customers"].options, **table}, policy=policy)
    using = context(conf=session, tables={**TABLES, "customers": customers})
    using = replace(using, unwritable=lambda _: why)
    lines = explain(planned(QUERY.format(written(hint)), using)).splitlines()
    pairs = (line.strip().partition("  ") for line in lines if line.startswith("    "))
    return {name: text.strip() for name, _, text in pairs}


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (HERE, "dead-letter in /letters as parquet, then null (hint)"),
        (f"{HERE}, 'dead-letter.format'='JSON'", "dead-letter in /letters as json, then null (hint)"),
        (f"{HERE}, 'dead-letter.then'='skip'", "dead-letter in /letters as parquet, then skip (hint)"),
        (
            f"{HERE}, 'max-errors'='1000', 'max-error-ratio'='0.01'",
            "dead-letter in /letters as parquet, then null; at most 1,000 keys and 0.01 of the keys of a task (hint)",
        ),
        ("'on-error'='null', 'max-errors'='3'", "null; at most 3 keys of a task (hint)"),
        ("'on-error'='skip', 'max-error-ratio'='1'", "skip; at most 1 of the keys of a task (hint)"),
        (
            "'on-error'='DEAD_LETTER', 'dead-letter.path'='/a/'",
            "dead-letter in /a as parquet, then null (hint)",
        ),
    ],
)
def test_explain_shows_the_handling_of_failures(hint: str, told: str) -> None:
    assert plan_of(hint) == told


def test_each_option_comes_from_the_nearest_place() -> None:
    session = {"lookup.dead-letter.path": "/session", "lookup.max-errors": "5"}
    told = plan_of("'dead-letter.then'='skip'", session, table={"on-error": "dead-letter"})
    assert told == (
        "dead-letter in /session as parquet, then skip; at most 5 keys of a task (table, session, hint)"
    )
    told = plan_of("", session, table={"lookup.dead-letter.path": "/table", "on-error": "dead-letter"})
    assert told.startswith("dead-letter in /table as parquet, then null; at most 5 keys")


@pytest.mark.parametrize(
    ("folder", "address"),
    [
        ("/a b/c", "/a b/c"),
        ("file:///a%20b/", "/a b"),
        ("file:/a", "/a"),
        ("s3a://bucket/a/", "s3://bucket/a"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("hdfs://name:8020/a", "hdfs://name:8020/a"),
        (
            "s3://b/a?endpoint_override=localhost:9000&scheme=http",
            "s3://b/a?endpoint_override=localhost:9000&scheme=http",
        ),
    ],
)
def test_a_folder_is_a_path_or_an_address(folder: str, address: str) -> None:
    chosen = settings_of(f"{KEEP}, 'dead-letter.path'='{folder}'", {"spark.app.id": "app-1"})
    assert chosen.dead_letters == DeadLetters(address, "parquet", "app-1")


@pytest.mark.parametrize(
    "folder", ["letters", "./x", "dbfs:/x", "http://a/b", "s3:///x", "file://host/x", "C:/x"]
)
def test_another_folder_is_refused_at_its_place(folder: str) -> None:
    with pytest.raises(HintError) as raised:
        planned(QUERY.format(written(f"{KEEP}, 'dead-letter.path'='{folder}'")))
    (problem,) = raised.value.problems
    assert problem.message.startswith(
        f"'dead-letter.path' cannot be '{folder}': write an absolute path, or an"
    )
    assert "s3://, s3a://, gs:// or hdfs://" in problem.message
    assert problem.at is not None
    assert problem.at.text[problem.at.start : problem.at.end] == f"'{folder}'"


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(HintError, match="it must hold no password"):
        planned(QUERY.format(written(f"{KEEP}, 'dead-letter.path'='s3://key:secret@bucket/a'")))


def refused(
    hint: str = "", why: str | None = None, table: Mapping[str, str] = MappingProxyType({})
) -> QueryError:
    with pytest.raises(QueryError) as raised:
        plan_of(hint, None, why, table)
    return raised.value


def test_without_a_folder_the_place_of_the_wish_is_shown() -> None:
    error = refused(KEEP)
    assert isinstance(error, HintError)
    assert error.problems[0].at is not None
    assert "'on-error' = 'dead-letter' needs a folder to write to" in str(error)
    assert "SET lookup.dead-letter.path" in str(error)
    error = refused(table={"on-error": "dead-letter"})
    assert isinstance(error, OptionError)
    assert str(error).startswith("table customers: 'on-error' = 'dead-letter' needs a folder")


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (
            "'dead-letter.path'='/a'",
            "'dead-letter.path' has no effect where 'on-error' is 'fail', its default.",
        ),
        (
            "'on-error'='null', 'dead-letter.then'='skip'",
            "'dead-letter.then' has no effect where 'on-error' is 'null' (hint).",
        ),
        ("'max-errors'='3'", "'max-errors' has no effect where 'on-error' is 'fail', its default."),
        (
            "'on-error'='fail', 'max-error-ratio'='0'",
            "'max-error-ratio' has no effect where 'on-error' is 'fail' (hint).",
        ),
    ],
)
def test_a_hint_option_without_effect_is_refused_at_its_place(hint: str, told: str) -> None:
    (problem,) = refused(hint).problems
    assert problem.message == told
    assert problem.at is not None
    assert problem.tip.startswith("Give 'on-error' = '")


def test_failure_options_of_a_table_or_session_apply_only_with_a_fitting_hint() -> None:
    lines = explained("", {"lookup.max-errors": "3"}, table={"lookup.dead-letter.path": "/a"})
    assert lines["on error"] == "fail"
    assert lines["note"] == "'lookup.dead-letter.path' has no effect: 'on-error' is 'fail'"


def test_a_folder_that_cannot_be_written_is_shown_with_its_reason_and_place() -> None:
    error = refused(HERE, "PermissionError: denied.")
    assert "Dead letters cannot be written to /letters: PermissionError: denied." in str(error)
    (problem,) = error.problems
    assert problem.at is not None
    assert problem.at.text[problem.at.start : problem.at.end] == "'/letters'"


@pytest.mark.parametrize(
    ("folder", "policy", "allowed"),
    [
        ("/letters/a", Policy(references=(("file:/letters/**",),)), True),
        ("/letters", Policy(references=(("file:/letters/**",),)), True),
        ("/other", Policy(references=(("file:/letters/**",),)), False),
        ("/letters/../other", Policy(references=(("file:/letters/**",),)), False),
        ("s3://bucket/a", Policy(references=(("file:/letters/**",),)), True),
        ("s3://bucket/a", Policy(hosts=(("bucket",),)), True),
        ("s3://other/a", Policy(hosts=(("bucket",),)), False),
        ("hdfs://name:8020/a", Policy(hosts=(("name:9000",),)), False),
    ],
)
def test_an_administrator_bounds_the_folders(folder: str, policy: Policy, allowed: bool) -> None:
    hint = f"{KEEP}, 'dead-letter.path'='{folder}'"
    if allowed:
        assert explained(hint, policy=policy)["on error"].startswith("dead-letter in")
        return
    with pytest.raises(NotAllowed, match="dead-letter"):
        explained(hint, policy=policy)


def test_check_finds_a_missing_folder_without_spark() -> None:
    table = "CREATE TEMPORARY TABLE c (id BIGINT, name STRING) WITH ('connector' = 'memory', 'rows' = '[]'{})"
    query = f"SELECT /*+ LOOKUP('table'='c', {KEEP}) */ c.name FROM range(3) r JOIN c ON r.id = c.id"
    found = check_script(f"{table.format('')};\n{query};")
    assert ["needs a folder to write to" in finding.message for finding in found] == [True]
    given = table.format(", 'lookup.dead-letter.path' = '/letters'")
    assert check_script(f"{given};\n{query};") == []
    found = check_script(table.format(", 'lookup.dead-letter.path' = 'letters'"))
    assert ["write an absolute path" in finding.message for finding in found] == [True]
