"""What a doctor's report says of many places, and which keys it asks by."""

from __future__ import annotations

import platform

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector

from lookup_hints.driver.doctor import DRIVER, DoctorFinding, DoctorReport, default_keys, versions_check
from lookup_hints.spi import ConnectorError, HealthCheck, HealthRequest, SyncRowLookup
from lookup_hints.spi.request_and_answer import LookupTable, RowRequest
from lookup_hints.spi.security_policy import Policy
from lookup_hints.tables.catalog import build_connector
from lookup_hints.worker.doctor_checks import checks_of, package_versions


def report(*found: tuple[str, HealthCheck]) -> list[str]:
    findings = tuple(DoctorFinding("c", place, check) for place, check in found)
    return str(DoctorReport(findings, {"c": "postgres, db:5432"})).splitlines()


def test_equal_findings_share_a_line_and_others_name_their_place() -> None:
    tcp = HealthCheck("tcp", "ok", "db port 5432 is open")
    dropped = HealthCheck("tcp", "fail", "db port 5432 did not answer within 10 s", "Check firewalls.")
    login = HealthCheck("login", "ok", "as app")
    assert report((DRIVER, tcp), (DRIVER, login), ("a #1", tcp), ("a #1", login), ("b #2", dropped)) == [
        "c: postgres, db:5432",
        "  ok      tcp         driver, 1 of 2 executors (a #1): db port 5432 is open.",
        "  fail    tcp         1 of 2 executors (b #2): db port 5432 did not answer within 10 s. Check firewalls.",
        "  ok      login       driver, 1 of 2 executors (a #1): as app.",
        "",
        "broken: c",
    ]


def test_times_of_the_driver_and_of_all_executors_are_told_apart() -> None:
    def lookup(*millis: int) -> HealthCheck:
        return HealthCheck("lookup", "ok", "by id: 10 found", seconds=tuple(each / 1000 for each in millis))

    found = report(
        (DRIVER, lookup(*range(1, 11))),
        ("a #1", lookup(*range(11, 21))),
        ("b #2", lookup(*range(21, 31))),
    )
    assert found[1:3] == [
        "  ok      lookup      driver: by id: 10 found; p50 5 ms, p99 10 ms.",
        "  ok      lookup      2 executors: by id: 10 found; p50 20 ms, p99 30 ms.",
    ]
    assert found[-1] == "all is well"


def test_a_warning_is_counted_and_breaks_nothing() -> None:
    warned = HealthCheck("index", "warn", "none", "CREATE INDEX.")
    finding = DoctorFinding("c", DRIVER, warned)
    assert DoctorReport((finding,), {}).is_well
    assert report((DRIVER, warned))[-1] == "all is well; 1 warning"


def test_a_step_takes_some_time() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        HealthRequest((), timeout=0)


def test_a_failed_check_needs_a_fix() -> None:
    with pytest.raises(ValueError, match="needs a cure"):
        HealthCheck("tcp", "fail", "closed")


def test_versions_are_those_of_the_driver_or_are_named() -> None:
    here = package_versions(["pyarrow", "no-such-package"])
    assert here == {
        "Python": platform.python_version(),
        "pyarrow": pa.__version__,
        "no-such-package": "missing",
    }
    assert versions_check(here, here).verdict == "ok"
    other = versions_check(here, {**here, "pyarrow": "1.0"})
    assert other.verdict == "warn"
    assert other.what == f"pyarrow 1.0; the driver has pyarrow {pa.__version__}"


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize(
    ("options", "primary_key", "keys"),
    [
        ({"connector": "memory", "rows": "[]"}, ("name",), (("name",),)),
        ({"connector": "memory", "rows": "[]"}, (), (("id",),)),
        ({"connector": "http", "url": "http://h/{name}?id={id}"}, (), (("name",),)),
    ],
)
def test_the_key_where_no_query_says_it(
    options: dict[str, str], primary_key: tuple[str, ...], keys: tuple[tuple[str, ...], ...]
) -> None:
    assert default_keys(build_connector(LookupTable("c", SCHEMA, primary_key, options))) == keys


class Own(SyncRowLookup):
    """A connector of a user's own, which says nothing of its health."""

    def lookup_row(self, request: RowRequest) -> list[dict[str, object]]:
        if request.key["id"] == 13:
            raise ConnectorError("13 is no key, and hunter2 is none", permanent=True)
        return [{"name": "Ann"}]


@pytest.mark.parametrize(
    ("given", "verdict", "told"),
    [
        ({}, "ok", "by id: 10 lookups of a key that is made up, 10 found"),
        ({"id": "7"}, "ok", "by id: 10 lookups of the key that is given, 10 found"),
        ({"id": "13"}, "fail", "13 is no key, and *** is none"),
        ({"id": "x"}, "fail", "Invalid key {'id': 'x'} for own: Failed to parse string: 'x' as a scalar"),
    ],
)
def test_a_connector_without_the_ability_is_asked(given: dict[str, str], verdict: str, told: str) -> None:
    class Guarded(Own):
        def secrets(self) -> set[str]:
            return {"hunter2"}

    table = LookupTable("own", SCHEMA, options={"connector": "own"})
    (check,) = checks_of(Guarded(table), HealthRequest((("id",),)), given)
    assert (check.name, check.verdict) == ("options" if "x" in given.values() else "lookup", verdict)
    assert check.what.startswith(told)


def test_a_host_that_is_not_allowed_is_not_looked_at() -> None:
    options = {"connector": "http", "url": "http://elsewhere.invalid/{id}"}
    table = LookupTable("c", SCHEMA, options=options, policy=Policy(hosts=(("db.invalid",),)))
    (check,) = checks_of(HttpConnector(table), HealthRequest((("id",),)))
    assert (check.name, check.verdict) == ("security", "fail")
    assert "elsewhere.invalid" in check.what


def test_a_key_that_cannot_be_made_up_is_skipped() -> None:
    table = LookupTable("own", pa.schema([("id", pa.duration("us"))]), options={"connector": "own"})
    (check,) = checks_of(Own(table), HealthRequest((("id",),)))
    assert check.verdict == "skipped"
