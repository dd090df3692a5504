"""HTTP through Spark: what is asked, how it ends, and what SQL sees of it, counted at a real server."""

from __future__ import annotations

import re
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints import LookupSession
from lookup_hints.errors import OptionError
from tests.servers.certificates import Certificates
from tests.servers.http_server import Api
from tests.spark.warm import RUNS, thrice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETRY = "'retry-strategy'='fixed_delay', 'fixed-delay'='200 ms', 'max-attempts'='5'"


@pytest.fixture
def session(spark: SparkSession) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.sql("CREATE TEMPORARY VIEW visits AS SELECT id % 40 AS person FROM range(0, 400, 1, 2)")
    return own


def create(session: LookupSession, api: Api, columns: str, path: str, **options: str) -> None:
    given = {"connector": "http", "url": api.url + path, **options}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    session.sql(f"CREATE OR REPLACE TEMPORARY TABLE people ({columns}) WITH ({listed})")


BUDGETS = count()


def people(session: LookupSession, api: Api, **options: str) -> None:
    if not any(key.startswith("lookup.") for key in options):
        # What one test scripts, a pause of minutes perhaps, is not to hold for the next.
        options["lookup.budget"] = f"test-{next(BUDGETS)}"
    create(
        session,
        api,
        "id BIGINT, name STRING, zip STRING, tags ARRAY<STRING>",
        "/people/{id}",
        **{"path.zip": "address.zip", "path.tags": "address.tags", **options},
    )


def test_one_key_per_request_equals_sparks_join_and_asks_each_key_once(
    session: LookupSession, api: Api
) -> None:
    people(session, api)
    session.sql("CREATE TEMPORARY VIEW few AS SELECT id * 300 AS person FROM range(0, 12, 1, 2)")
    rows = thrice(
        session,
        "SELECT f.person, p.name, p.zip, p.tags FROM few f LEFT JOIN people p ON f.person = p.id",
        api.targets,
    )
    assert sorted(rows) == [
        (key, f"n{key}", f"{key:05}", ["a", "b"]) if key < 1000 else (key, None, None, None)
        for key in range(0, 3600, 300)
    ]
    assert api.targets() == {f"/people/{key}": RUNS for key in range(0, 3600, 300)}


def test_equal_keys_of_a_task_are_asked_once(session: LookupSession, api: Api) -> None:
    people(session, api)
    query = "SELECT count(p.name) AS n FROM visits v JOIN people p ON v.person = p.id"
    assert thrice(session, query, api.targets) == [(400,)]
    assert sum(api.targets().values()) == 80 * RUNS, "two tasks, forty keys each"


NOTHING: list[dict[str, Any]] = [
    {"status": 404},
    {"status": 204},
    {"status": 200, "body": []},
    {"status": 200, "body": None},
    {"status": 200, "body": "null"},
]


@pytest.mark.parametrize("path", ["/nothing/{id}", "/nothing?ids={id}"], ids=["one key", "many keys"])
def test_a_miss_is_requested_once_in_whatever_way_the_api_says_it(
    session: LookupSession, api: Api, path: str
) -> None:
    for number, act in enumerate(NOTHING):
        api.reset()
        many = {"keys-per-request": "16"} if "?" in path else {}
        people_path = path.replace("nothing", f"nothing{number}")
        create(
            session, api, "id BIGINT, name STRING", people_path,
            **{"lookup.cache": "PARTIAL", "lookup.partial-cache.missing-ttl": "1 h", **many},
        )  # fmt: skip
        target = people_path.replace("{id}", "7")
        api.script(target, *[act | {"repeat": True}])
        query = "SELECT id, p.name FROM VALUES (7) AS v (id) LEFT JOIN people p USING (id)"
        assert [session.sql(query).collect() for _ in range(3)] == [[(7, None)]] * 3
        assert api.targets() == {target: 1}, act


def test_a_miss_ends_a_row_that_is_too_old(session: LookupSession, api: Api) -> None:
    people(
        session, api,
        **{
            "lookup.cache": "PARTIAL", "lookup.partial-cache.expire-after-write": "100 ms",
            "lookup.partial-cache.missing-ttl": "1 h",
            "lookup.partial-cache.stale-while-revalidate": "1 h",
        },
    )  # fmt: skip
    query = "SELECT id, p.name FROM VALUES (7) AS v (id) LEFT JOIN people p USING (id)"
    assert session.sql(query).collect() == [(7, "n7")]
    api.script("/people/7", {"status": 404, "repeat": True})
    deadline = time.monotonic() + 60
    while session.sql(query).collect() != [(7, None)]:
        assert time.monotonic() < deadline, "the deleted row is still there"
        time.sleep(0.05)
    requests = api.targets()
    assert session.sql(query).collect() == [(7, None)]
    assert api.targets() == requests, "the miss is remembered"


def test_many_keys_per_request(session: LookupSession, api: Api) -> None:
    create(
        session, api, "id BIGINT, name STRING", "/people?ids={id}",
        **{"rows": "data", "keys-per-request": "16"},
    )  # fmt: skip
    query = "SELECT count(p.name) AS n FROM visits v JOIN people p ON v.person = p.id"
    assert thrice(session, query) == [(400,)]
    assert sum(api.targets().values()) == 2 * 3 * RUNS
    assert "16 keys in one request" in session.explain(query)


def test_several_rows_of_several_pages(session: LookupSession, api: Api) -> None:
    create(
        session, api, "id BIGINT, `order` INT, total DECIMAL(8, 2)", "/orders/cursor?customer={id}",
        **{"rows": "orders", "paging": "cursor", "paging-path": "meta.cursor", "paging-parameter": "cursor"},
    )  # fmt: skip
    rows = session.sql(
        "SELECT c.id, count(p.`order`) AS orders, sum(p.total) AS total FROM VALUES (1L), (2L), (3L) AS c (id)"
        " LEFT JOIN people p ON c.id = p.id GROUP BY c.id ORDER BY c.id"
    ).collect()
    assert [(row.id, row.orders, str(row.total)) for row in rows] == [
        (1, 7, "22.75"),
        (2, 1, "0.25"),
        (3, 0, "None"),
    ]


def test_an_expression_of_the_left_feeds_the_request_beside_the_key(session: LookupSession, api: Api) -> None:
    create(
        session,
        api,
        "id BIGINT, region STRING, target STRING, PRIMARY KEY (id) NOT ENFORCED",
        "/echo/{id}?region={region}",
    )
    rows = session.sql(
        "SELECT p.target FROM VALUES (1L, 'eu'), (2L, 'u s') AS o (id, part)"
        " JOIN people p ON o.id = p.id AND p.region = upper(o.part) ORDER BY o.id"
    ).collect()
    assert [row.target for row in rows] == ["/echo/1?region=EU", "/echo/2?region=U%20S"]
    with pytest.raises(Exception, match="cannot ask its source without id"):
        session.sql("SELECT p.target FROM visits v JOIN people p ON p.region = 'EU'")


def test_a_429_delays_a_job_and_fails_nothing(session: LookupSession, api: Api) -> None:
    people(session, api)
    for key in (3, 17):
        api.script(f"/people/{key}", {"status": 429, "headers": {"Retry-After": "1"}})
    query = "SELECT count(p.name) AS n FROM visits v JOIN people p ON v.person = p.id"
    assert session.sql(query).collect()[0].n == 400
    assert sum(api.targets().values()) == 82


def test_a_rate_for_the_whole_cluster_is_kept_by_its_tasks_together(session: LookupSession, api: Api) -> None:
    people(session, api, **{"lookup.rate-limit": "40"})
    session.sql("CREATE TEMPORARY VIEW once AS SELECT id AS person FROM range(0, 60, 1, 20)")
    query = "SELECT count(p.name) AS n FROM once v JOIN people p ON v.person = p.id"
    assert "'lookup.rate-limit' = 40 is shared by all tasks of the executor; 20/s" in session.explain(query)
    started = time.monotonic()
    assert session.sql(query).collect()[0].n == 60
    assert sum(api.targets().values()) == 60
    assert time.monotonic() - started > 1.4, "twenty short tasks, two at a time"


def test_a_statement_sends_no_request_above_its_limit(session: LookupSession, api: Api) -> None:
    people(session, api)
    hint = "/*+ LOOKUP('table'='p', 'max-requests'='30', 'on-error'='null') */"
    query = f"SELECT {hint} count(p.name) AS n FROM visits v JOIN people p ON v.person = p.id"
    with pytest.raises(
        Exception,
        match=r"TooManyRequests: table people: 127\.0\.0\.1:\d+: this statement has sent 30 requests,"
        r" and 'lookup\.max-requests' = 30 allows no more\. Raise it, or ask for fewer keys\.$",
    ):
        session.sql(query).collect()
    # Some of the 30 may be stopped on their way, when the first task has failed.
    assert 0 < sum(api.targets().values()) <= 30


def test_tables_of_a_session_that_contradict_each_other_are_refused_at_planning(
    session: LookupSession, api: Api
) -> None:
    people(session, api, **{"lookup.rate-limit": "40"})
    rival = (
        "CREATE OR REPLACE TEMPORARY TABLE rivals (id BIGINT) WITH ('connector' = 'http',"
        f" 'url' = '{api.url}/other/{{id}}', 'lookup.rate-limit' = '50'"
    )
    query = "SELECT p.name FROM range(3) r JOIN people p ON r.id = p.id"
    session.sql(f"{rival})")
    with pytest.raises(OptionError, match=r"people and rivals ask one origin, .* 40 in WITH of people"):
        session.sql(query)
    session.sql(f"{rival}, 'lookup.budget' = 'rivals')")
    assert "'lookup.rate-limit' = 40 is shared" in session.explain(query)
    assert sum(api.targets().values()) == 0


def test_a_storm_of_errors_is_retried_for_the_keys_that_failed(session: LookupSession, api: Api) -> None:
    people(session, api)
    for key in range(10):
        api.script(f"/people/{key}", {"status": 500}, {"drop": True}, {"status": 200, "body": "{", "cut": 0})
    hint = f"/*+ LOOKUP('table'='p', 'retry-predicate'='exception', {RETRY}) */"
    session.sql("CREATE TEMPORARY VIEW once AS SELECT id AS person FROM range(0, 40, 1, 1)")
    query = f"SELECT {hint} count(p.name) AS n FROM once v JOIN people p ON v.person = p.id"
    assert session.sql(query).collect()[0].n == 40
    # A kept connection that breaks is asked again at once, so an attempt may cost one request more.
    asked = api.targets()
    assert {target for target, count in asked.items() if count > 1} == {f"/people/{key}" for key in range(10)}
    assert sum(asked.values()) <= 30 + 4 * 10


def test_a_late_row_is_waited_for(session: LookupSession, api: Api) -> None:
    people(session, api)
    api.script("/people/7", *[{"status": 404}] * 3)
    hint = f"/*+ LOOKUP('table'='p', 'retry-predicate'='lookup_miss', {RETRY}) */"
    query = f"SELECT {hint} p.name FROM VALUES (7L), (8L) AS o (id) LEFT JOIN people p ON o.id = p.id"
    assert Counter(row.name for row in session.sql(query).collect()) == {"n7": 1, "n8": 1}
    assert api.targets() == {"/people/7": 4, "/people/8": 1}


def test_outcomes_are_visible_in_sql(session: LookupSession, api: Api) -> None:
    create(
        session, api, "id BIGINT, name STRING, outcome STRING, status INT, error STRING, attempts INT", "/people/{id}",
        **{f"path.{name}": f"${name}" for name in ("outcome", "status", "error", "attempts")},
        **{"outcome-rows": "true", "on-error": "null"},
    )  # fmt: skip
    api.script("/people/1", {"status": 500, "body": "boom", "repeat": True})
    api.script("/people/2", {"status": 503})
    hint = f"/*+ LOOKUP('table'='p', 'retry-predicate'='exception', {RETRY}) */"
    rows = session.sql(
        f"SELECT {hint} o.id, p.name, p.outcome, p.status, p.error, p.attempts"
        " FROM VALUES (1L), (2L), (3L), (5000L) AS o (id) JOIN people p ON o.id = p.id ORDER BY o.id"
    ).collect()
    told = f"table people: {api.url} answered 500 to GET. It says: boom"
    assert [tuple(row) for row in rows] == [
        (1, None, "error", 500, told, 6),
        (2, "n2", "hit", 200, None, 2),
        (3, "n3", "hit", 200, None, 1),
        (5000, None, "miss", 404, None, 1),
    ]


def test_a_failure_fails_the_query_with_its_reason_and_without_the_secret(
    session: LookupSession, api: Api
) -> None:
    session.spark.conf.set("my.token", "hunter2hunter2")
    people(session, api, token="${conf:my.token}")
    api.script("/people/1", {"status": 403, "body": "who is hunter2hunter2?"})
    query = "SELECT p.name FROM VALUES (1L) AS o (id) JOIN people p ON o.id = p.id"
    with pytest.raises(Exception, match="answered 403 to GET") as caught:
        session.sql(query).collect()
    shown = [
        str(caught.value),
        session.explain(query),
        str(session.sql("SHOW CREATE TABLE people").collect()),
    ]
    assert "hunter2" not in " ".join(shown)
    assert "It says: who is ***?" in str(caught.value)
    assert api.asked()[0]["headers"]["authorization"] == "Bearer hunter2hunter2"


WILD = [
    ("hang", {"hang": True}, {"request-timeout": "3 s"}, "within 3 s ('request-timeout')", 1),
    ("cut", {"status": 200, "body": {"name": "a long name"}, "cut": 5}, {}, "broke off", 1),
    ("drip", {"status": 200, "body": "", "drip": True}, {"request-timeout": "3 s"}, "within 3 s", 1),
    ("huge", {"status": 200, "body": "x" * 1000, "times": 5000}, {"max-response-bytes": "100000"}, "'max-response-bytes'", 1),
    ("html", {"status": 200, "body": "<html>", "type": "text/html"}, {}, "not JSON (text/html). It begins: <html>", 1),
    ("truncated", {"status": 200, "body": '{"name": '}, {}, 'not JSON (application/json). It begins: {"name":', 1),
    ("no row", {"status": 200, "body": {"error": "quota"}}, {}, 'none of the columns: {"error": "quota"} came', 1),
    ("no fit", {"status": 200, "body": {"name": 7}}, {}, "column 'name' of the row for id = 1 (path name): 7 (int)", 1),
    ("503", {"status": 503, "body": "later"}, {}, "answered 503 to GET. It says: later", 1),
    ("429", {"status": 429}, {"on-throttle": "fail"}, "answered 429.", 1),
    ("429 for long", {"status": 429, "headers": {"Retry-After": "900"}}, {}, "a pause of 900 s", 1),
    ("circle", {"status": 302, "headers": {"Location": "/people/1"}, "repeat": True}, {}, "more than 5 redirects", 6),
    ("head drips", {"raw": ["HTTP/1.1 200 OK\r\n", *["X: y\r\n"] * 600]}, {"request-timeout": "3 s"}, "within 3 s", 1),
    ("nested deep", {"status": 200, "body": "[" * 100_000}, {}, "the JSON is nested too deep to be read, so the columns id, name", 1),
    ("not asked", {"status": 200, "body": {"id": 2, "name": "n2"}}, {"path.id": "id"}, "id = 2, where 1 was asked", 1),
    ("elsewhere", {"status": 302, "headers": {"Location": "http://localhost:1/"}}, {}, "which is not allowed", 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("act", "options", "shown", "asked"), [each[1:] for each in WILD], ids=[each[0] for each in WILD]
)
def test_the_wild_fails_a_query_with_its_reason_and_no_request_too_many(
    session: LookupSession, api: Api, act: dict[str, Any], options: dict[str, str], shown: str, asked: int
) -> None:
    people(session, api, **options)
    api.script("/people/1", act)
    with pytest.raises(Exception, match=re.escape(shown)):
        session.sql("SELECT p.name FROM VALUES (1L) AS o (id) JOIN people p ON o.id = p.id").collect()
    assert api.targets() == {"/people/1": asked}


def test_a_server_that_drops_every_connection_fails_a_query_after_one_fresh_connection(
    session: LookupSession, api: Api
) -> None:
    people(session, api)
    api.script("/people/1", {"drop": True, "repeat": True})
    with pytest.raises(Exception, match="broke off"):
        session.sql("SELECT p.name FROM VALUES (1L) AS o (id) JOIN people p ON o.id = p.id").collect()
    # A connection that the worker kept from an earlier query may have been closed: a fresh one is tried then.
    assert api.targets()["/people/1"] in (1, 2)


def test_a_token_that_ran_out_is_fetched_once_more(session: LookupSession, api: Api) -> None:
    session.spark.conf.set("my.secret", "s3cret/+")
    create(
        session, api, "id BIGINT, name STRING", "/private/{id}",
        **{
            "oauth2-token-url": f"{api.url}/token",
            "oauth2-client-id": "me",
            "oauth2-client-secret": "${conf:my.secret}",
        },
    )  # fmt: skip
    api.script("/private/3", {"status": 401, "body": "expired"})
    session.sql("CREATE TEMPORARY VIEW once AS SELECT id AS person FROM range(0, 20, 1, 1)")
    query = "SELECT count(p.name) AS n FROM once o JOIN people p ON o.person = p.id"
    assert session.sql(query).collect()[0].n == 20
    assert api.targets() == {
        "/token": 2,
        "/private/3": 2,
        **{f"/private/{key}": 1 for key in range(20) if key != 3},
    }


def test_tls_with_an_authority_and_a_client_certificate_of_ones_own(
    session: LookupSession, api: Api, certificates: Certificates
) -> None:
    known = {"tls-ca": str(certificates.authority)}
    ours = {"tls-cert": str(certificates.client_certificate), "tls-key": str(certificates.client_key)}
    query = "SELECT p.name FROM VALUES (1L) AS o (id) JOIN people p ON o.id = p.id"
    url = f"https://localhost:{api.strict_tls_port}/people/{{id}}"
    create(session, api, "id BIGINT, name STRING", "/people/{id}", **{"url": url, **known, **ours})
    assert [row.name for row in session.sql(query).collect()] == ["n1"]
    for options, shown in ((known, "localhost"), (ours, "is not trusted")):
        create(session, api, "id BIGINT, name STRING", "/people/{id}", **{"url": url, **options})
        with pytest.raises(Exception, match=shown):
            session.sql(query).collect()
    assert api.targets() == {"/people/1": 1}
