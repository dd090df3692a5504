"""`lookup-hints import` prints statements that `check` accepts, and that answer keys from a real server.

``openapi/`` holds documents in the styles of well-known APIs; responses to their operations are recorded here.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from lookup_connectors.mysql import MysqlConnector

from lookup_hints.cli.check import check_script
from lookup_hints.cli.import_http_tables import NoTable
from lookup_hints.cli.import_openapi import Refused, read
from lookup_hints.cli.main import main
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.statements import split_statements
from lookup_hints.tables.catalog import build_connector, declared_table
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl
from tests.servers.certificates import Certificates
from tests.servers.connectors.http_asking import ask
from tests.servers.http_server import Api
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.unit.connectors.asking import ask as ask_database

DOCUMENTS = Path(__file__).parent / "openapi"


@dataclass(frozen=True)
class Printed:
    """What a run of the command printed."""

    code: int
    out: str
    err: str

    @property
    def tables(self) -> dict[str, LookupTable]:
        """The tables of its statements, which `check` accepts."""
        assert [each for each in check_script(self.out) if each.is_error] == []
        tables = {}
        for statement in split_statements(self.out):
            ddl = parse_ddl(statement.text)
            assert isinstance(ddl, CreateLookupTable)
            tables[ddl.name] = declared_table(ddl, lambda _: None)
            build_connector(tables[ddl.name])
        return tables

    @property
    def table(self) -> LookupTable:
        [table] = self.tables.values()
        return table


Import = Callable[..., Printed]


@pytest.fixture
def imported(capsys: pytest.CaptureFixture[str]) -> Import:
    def run(*arguments: str) -> Printed:
        code = main(["import", *arguments])
        return Printed(code, *capsys.readouterr())

    return run


# --- documents ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A lookup in a table of a document, and what the API answered.

    Args:
        table: its name.
        keys: what is asked.
        acts: the answers, by path.
        rows: members of the rows that come.
        targets: what was asked for.
        header: a header that each request has, and its value.
    """

    table: str
    keys: Mapping[str, list[Any]]
    acts: Mapping[str, list[dict[str, Any]]]
    rows: list[dict[str, Any]]
    targets: list[str]
    header: tuple[str, str] = ("accept", "application/json")
    env: Mapping[str, str] = field(default_factory=dict)


def answers(body: Any, **more: Any) -> dict[str, Any]:
    return {"status": 200, "body": body if isinstance(body, str) else json.dumps(body), **more}


PAYMENTS_TOKEN = {"LOOKUP_ACME_PAYMENTS_TOKEN": "t0ken"}
ISSUE = {"id": 2**40, "number": 5, "title": "Slow", "state": "open", "user": None, "closed_at": None}
ADA = {
    "id": "0f0e0d0c-0000-4000-8000-000000000001",
    "@odata.etag": "W/1",
    "displayName": "Ada",
    "department": "R&D",
}
DISK = (
    '{"name": "d1", "sizeGb": "9223372036854775807", "iops": 18446744073709551615, "share": 0.10,'
    ' "created": "2024-02-29T12:00:00.5+01:00", "labels": null, "parts": [{"at": 1, "zone": null}], "anything": 1}'
)

RECORDED = {
    "payments": [
        Recorded(
            "customers",
            {"customer": ["cus_1", "cus_2", "cus_3"]},
            {
                "/v1/customers/cus_1": [
                    answers(
                        {
                            "id": "cus_1",
                            "object": "customer",
                            "address": {"city": "Köln", "postal_code": None},
                            "balance": -100,
                            "default_source": "card_1",
                            "delinquent": False,
                            "metadata": {"crm": "77"},
                            "preferred_locales": ["de"],
                        }
                    )
                ],
                "/v1/customers/cus_2": [answers({"id": "cus_2", "object": "customer", "deleted": True})],
                "/v1/customers/cus_3": [{"status": 404, "body": {"error": {"code": "resource_missing"}}}],
            },
            [
                {
                    "customer": "cus_1",
                    "address": {"city": "Köln", "postal_code": None},
                    "balance": -100,
                    "metadata": [("crm", "77")],
                    "preferred_locales": ["de"],
                    "deleted": None,
                },
                {"customer": "cus_2", "deleted": True, "address": None, "metadata": None},
            ],
            ["/v1/customers/cus_1", "/v1/customers/cus_2", "/v1/customers/cus_3"],
            ("authorization", "Bearer t0ken"),
            PAYMENTS_TOKEN,
        ),
        Recorded(
            "charges",
            {"customer": ["cus_1"]},
            {
                "/v1/charges": [
                    answers(
                        '{"object": "list", "has_more": true, "data":'
                        ' [{"id": "ch_1", "amount": 250, "customer": "cus_1", "fee_ratio": 0.0290}]}'
                    ),
                    answers(
                        {"object": "list", "has_more": False, "data": [{"id": "ch_2", "customer": "cus_1"}]}
                    ),
                ]
            },
            [{"id": "ch_1", "amount": 250, "fee_ratio": Decimal("0.0290")}, {"id": "ch_2", "amount": None}],
            [
                "/v1/charges?customer=cus_1&limit=100",
                "/v1/charges?customer=cus_1&limit=100&starting_after=ch_1",
            ],
            env=PAYMENTS_TOKEN,
        ),
    ],
    "code_host": [
        Recorded(
            "repos",
            {"repo_owner": ["apache"], "repo": ["spark"]},
            {
                "/repos/apache/spark": [
                    answers(
                        {
                            "id": 17165658,
                            "full_name": "apache/spark",
                            "owner": {"login": "apache", "id": 47359, "+1": 3},
                            "pushed_at": "2024-02-29T12:00:00Z",
                            "topics": ["sql"],
                            "default-branch": "master",
                        }
                    )
                ]
            },
            [
                {
                    "repo_owner": "apache",
                    "owner": {"login": "apache", "id": 47359, "+1": 3},
                    "pushed_at": datetime(2024, 2, 29, 12, tzinfo=timezone.utc),
                    "topics": ["sql"],
                    "default_branch": "master",
                }
            ],
            ["/repos/apache/spark"],
        ),
        Recorded(
            "repos_issues_by_owner_repo_state",
            {"owner": ["apache"], "repo": ["spark"], "state": ["open"]},
            {
                "/repos/apache/spark/issues": [
                    answers(
                        [{**ISSUE, "labels": [{"name": "bug"}, {"name": "sql", "color": "red"}]}],
                        headers={"Link": '</repos/apache/spark/issues?page=2>; rel="next"'},
                    ),
                    answers([{**ISSUE, "number": 6, "user": {"login": "ada", "id": 1}}]),
                ]
            },
            [
                {"number": 5, "labels": [{"name": "bug", "color": None}, {"name": "sql", "color": "red"}]},
                {"number": 6, "user": {"login": "ada", "id": 1, "+1": None}},
            ],
            ["/repos/apache/spark/issues?state=open&per_page=30", "/repos/apache/spark/issues?page=2"],
        ),
        Recorded(
            "repos_issues_by_owner_repo_number",
            {"owner": ["apache"], "repo": ["spark"], "number": [5]},
            {"/repos/apache/spark/issues/5": [answers(ISSUE, type="application/vnd.code+json")]},
            [{"number": 5, "id": 2**40, "user": None}],
            ["/repos/apache/spark/issues/5"],
            ("accept", "application/vnd.code+json"),
        ),
    ],
    "cloud": [
        Recorded(
            "projects_disks",
            {"project": ["p"]},
            {
                "/v2/projects/p/disks": [
                    answers(f'{{"kind": "disks", "items": [{DISK}], "nextPageToken": "t/2"}}'),
                    answers({"kind": "disks", "items": [{"name": "d2"}]}),
                ]
            },
            [
                {
                    "name": "d1",
                    "sizeGb": Decimal(2**63 - 1),
                    "iops": Decimal(2**64 - 1),
                    "share": Decimal("0.1"),
                    "created": datetime(2024, 2, 29, 11, 0, 0, 500_000, timezone.utc),
                    "labels": None,
                    "parts": [{"at": 1, "zone": None}],
                },
                {"name": "d2", "sizeGb": None},
            ],
            [
                "/v2/projects/p/disks?key=k&api-version=2024-05&pageSize=500",
                "/v2/projects/p/disks?key=k&api-version=2024-05&pageSize=500&pageToken=t%2F2",
            ],
            ("x-tenant", "acme"),
            {"LOOKUP_CLOUD_KEY": "k", "LOOKUP_CLOUD_X_TENANT": "acme"},
        ),
        Recorded(
            "disks",
            {"name": ["d1"]},
            {"/v2/disks/d1:describe": [answers(DISK)]},
            [{"name": "d1", "sizeGb": Decimal(2**63 - 1)}],
            ["/v2/disks/d1:describe?key=k"],
            env={"LOOKUP_CLOUD_KEY": "k", "LOOKUP_CLOUD_X_TENANT": "acme"},
        ),
    ],
    "directory": [
        Recorded(
            "people_by_id",
            {"id": [ADA["id"]]},
            {
                f"/people/{ADA['id']}": [
                    answers({**ADA, "born": "1815-12-10", "salary": "1e3", "manager": None})
                ]
            },
            [{"id": ADA["id"], "odata_etag": "W/1", "born": date(1815, 12, 10), "salary": Decimal(1000)}],
            [f"/people/{ADA['id']}"],
            ("subscription-key", "sub"),
            {"LOOKUP_DIRECTORY_SUBSCRIPTION_KEY": "sub"},
        ),
        Recorded(
            "people_by_department",
            {"department": ["R&D"]},
            {
                "/people": [
                    answers(
                        {"@odata.nextLink": "/more?$skip=2", "value": [ADA, {**ADA, "displayName": None}]}
                    ),
                ],
                "/more": [answers({"value": [{**ADA, "displayName": "Emmy", "manager": {"id": "m"}}]})],
            },
            [
                {"displayName": "Ada", "department": "R&D"},
                {"displayName": None},
                {"displayName": "Emmy", "manager": {"id": "m", "@odata.etag": None}},
            ],
            ["/people?department=R%26D&$top=2", "/more?$skip=2"],
            env={"LOOKUP_DIRECTORY_SUBSCRIPTION_KEY": "sub"},
        ),
    ],
    "shop": [
        Recorded(
            "products",
            {"sku": ["tea", "cup", "jam"], "currency": ["EUR"] * 3},
            {
                "/products": [
                    answers(
                        '{"total": 2, "products": [{"sku": "cup", "price": "8.25", "currency": "EUR"},'
                        ' {"sku": "tea", "price": "4.50", "currency": "EUR", "size": {"width": 1}}]}'
                    ),
                ]
            },
            [
                {"sku": "cup", "price": Decimal("8.25"), "size": None},
                {"sku": "tea", "price": Decimal("4.50"), "size": {"width": 1.0}},
            ],
            ["/products?skus=tea,cup,jam&currency=EUR"],
            ("authorization", "Bearer token-1"),
            {"LOOKUP_THE_SHOP_PUBLIC_CLIENT_ID": "me", "LOOKUP_THE_SHOP_PUBLIC_CLIENT_SECRET": "s3cret/+"},
        ),
        Recorded(
            "customers_orders",
            {"customer_id": [7]},
            {
                "/customers/7/orders": [
                    answers({"orders": [{"id": 1, "total": 0.1}, {"id": 2, "placed": None}], "count": 3}),
                    answers({"orders": [{"id": 3, "placed": "2024-02-29T12:00:00Z"}], "count": 3}),
                ]
            },
            [
                {"customer_id": 7, "id": 1, "total": Decimal("0.10")},
                {"customer_id": 7, "id": 2},
                {"customer_id": 7, "id": 3, "placed": datetime(2024, 2, 29, 12, tzinfo=timezone.utc)},
            ],
            ["/customers/7/orders?limit=2&offset=0", "/customers/7/orders?limit=2&offset=2"],
        ),
        Recorded(
            "rates",
            {"base": ["EUR"]},
            {"/rates/EUR": [answers({"base": "EUR", "day": "2024-02-29", "rates": {"USD": 1.08, "GBP": 1}})]},
            [{"base": "EUR", "day": date(2024, 2, 29), "rates": [("USD", 1.08), ("GBP", 1.0)]}],
            ["/rates/EUR"],
            ("authorization", f"Basic {b64encode(b'me:pass').decode()}"),
            {"LOOKUP_THE_SHOP_PUBLIC_USERNAME": "me", "LOOKUP_THE_SHOP_PUBLIC_PASSWORD": "pass"},
        ),
    ],
}
REFUSED = {
    "payments": [
        "no table: GET /v1/balance: no parameter of its path or query can be a key",
        "no table: GET /v1/files/{file}/contents: its answer is no JSON",
    ],
    "code_host": ["no table: GET /zen: its answer is no JSON"],
    "cloud": [
        "no table: GET /v2/quota/{id}: its parameter id is not one plain value",
        "no table: GET /v2/elsewhere/{id}: its answer is described in another document: other.json#/Disk",
    ],
    "directory": [],
    "shop": [],
}


@pytest.mark.parametrize(
    ("name", "recorded"),
    [(name, each) for name, every in RECORDED.items() for each in every],
    ids=lambda value: value.table if isinstance(value, Recorded) else value,
)
def test_the_tables_of_a_document_answer_recorded_responses(
    name: str, recorded: Recorded, api: Api, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = imported(str(DOCUMENTS / f"{name}.json"), "--server", api.url).tables[recorded.table]
    for variable, value in recorded.env.items():
        monkeypatch.setenv(variable, value)
    for path, acts in recorded.acts.items():
        api.script(path, *acts)
    rows = ask(table, dict(recorded.keys))
    assert [
        {key: row[key] for key in wanted} for row, wanted in zip(rows, recorded.rows, strict=True)
    ] == recorded.rows
    asked = [each for each in api.asked() if each["target"] != "/token"]
    assert [each["target"] for each in asked] == recorded.targets
    header, value = recorded.header
    assert all(value in each["headers"][header] for each in asked)


@pytest.mark.parametrize("name", RECORDED)
def test_each_get_of_a_document_is_a_table_or_refused_in_a_line_and_holds_no_secret(
    name: str, imported: Import
) -> None:
    printed = imported(str(DOCUMENTS / f"{name}.json"), "--server", "https://api.example")
    assert {*printed.tables} == {each.table for each in RECORDED[name]}
    assert printed.err.splitlines() == REFUSED[name]
    assert printed.code == 0


def places(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all that is in ``node``."""
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, each in inside:
        yield (*at, name)
        yield from places(each, (*at, name))


@pytest.mark.parametrize("name", RECORDED)
def test_a_document_that_holds_something_else_anywhere_is_refused_or_a_table(name: str) -> None:
    text = (DOCUMENTS / f"{name}.json").read_text(encoding="utf-8")
    others: Iterator[Any] = cycle([None, 7, "x", [], {}, [{}], {"a": {}}])
    for *way, last in places(json.loads(text)):
        document = json.loads(text)
        node = document
        for each in way:
            node = node[each]
        node[last] = next(others)
        with suppress(NoTable):
            for found in read(document):
                assert isinstance(found, Refused) or "url" in found.table.options


# --- samples --------------------------------------------------------------------------------------

THING = (
    '{"id": 9007199254740993, "when": "2024-02-29T10:00:00.123456Z", "naive": "2024-02-29 10:00", "day": "2024-02-29",'
    ' "odd name": 1.5, "exact": 0.12345678901234567890123, "huge": 123456789012345678901234567890, "nothing": null,'
    ' "fine": "2024-02-29T10:00:00.123456789Z", "parts": [{"a": 1}, {"a": 2.5}], "mixed": [1, "a"], "none": {}}'
)


def test_one_request_of_a_sample_gives_a_table_that_loses_nothing(api: Api, imported: Import) -> None:
    api.script("/things/9007199254740993", answers(THING), answers(THING))
    printed = imported("--sample", f"{api.url}/things/{{id}}", "--key", "id=9007199254740993")
    assert len(api.asked()) == 1
    notes = [line for line in printed.out.splitlines() if line.startswith("--")]
    assert notes == [
        "-- nothing is NULL wherever it was seen: STRING is a guess",
        "-- left out: mixed, which is BIGINT here and STRING there",
        "-- left out: none, which is an object of unknown members",
    ]
    [row] = ask(printed.table, {"id": [9007199254740993]})
    assert row == {
        "id": 9007199254740993,
        "when": datetime(2024, 2, 29, 10, 0, 0, 123456, timezone.utc),
        "naive": datetime(2024, 2, 29, 10),
        "day": date(2024, 2, 29),
        "odd_name": 1.5,
        "exact": Decimal("0.12345678901234567890123"),
        "huge": Decimal("123456789012345678901234567890"),
        "nothing": None,
        "fine": "2024-02-29T10:00:00.123456789Z",
        "parts": [{"a": 1.0}, {"a": 2.5}],
    }


def test_rows_of_a_sample_are_found_and_their_id_is_not_that_of_the_key(api: Api, imported: Import) -> None:
    body = {"orders": [{"id": 1, "total": 2}, {"id": 2, "total": None}], "next": None, "count": 2}
    api.script("/customers/7/orders", *[answers(body)] * 2)
    printed = imported("--sample", f"{api.url}/customers/{{id}}/orders", "--key", "id=7", "--table", "bought")
    assert printed.table.name == "bought"
    assert ask(printed.table, {"customer_id": [7]}) == [
        {"customer_id": 7, "id": 1, "total": 2},
        {"customer_id": 7, "id": 2, "total": None},
    ]


@pytest.mark.parametrize(
    ("answer", "query", "paging"),
    [
        (answers([{"id": 1}], headers={"Link": '</x?page=2>; rel="next"'}), "", {"paging": "link"}),
        (answers({"data": [{"id": 1}], "next": None}), "", {}),
        (
            answers({"data": [{"id": 1}], "next": "https://a.example/2"}),
            "",
            {"paging": "next_url", "paging-path": "next"},
        ),
        (answers([{"id": 1}]), "?page=1", {"paging": "page", "paging-parameter": "page"}),
        (answers({"id": 1}), "?page=1", {}),
    ],
    ids=["link", "the only page", "URL", "page", "one row"],
)
def test_pages_of_a_sample_are_found_as_it_shows_them(
    answer: dict[str, Any], query: str, paging: dict[str, str], api: Api, imported: Import
) -> None:
    api.script("/lists/a", answer)
    options = imported("--sample", f"{api.url}/lists/{{name}}{query}", "--key", "name=a").table.options
    assert {key: text for key, text in options.items() if key.startswith("paging")} == paging


def test_secrets_of_a_sample_are_left_to_variables_of_the_environment(
    api: Api, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = imported(
        *("--sample", f"{api.url}/people/{{id}}?api_key=qu3ry", "--key", "id=1"),
        *(
            "--header",
            "Authorization: Bearer b3arer",
            "--header",
            "X-Session: s3ssion",
            "--header",
            "X-Version: 2",
        ),
    )
    assert not any(secret in printed.out + printed.err for secret in ("qu3ry", "b3arer", "s3ssion"))
    assert printed.out.startswith(
        "-- to be set: LOOKUP_API_API_KEY, LOOKUP_API_TOKEN, LOOKUP_API_X_SESSION\n"
    )
    [asked] = api.asked()
    for variable, value in {
        "LOOKUP_API_API_KEY": "qu3ry",
        "LOOKUP_API_TOKEN": "b3arer",
        "LOOKUP_API_X_SESSION": "s3ssion",
    }.items():
        monkeypatch.setenv(variable, value)
    assert ask(printed.table, {"id": [1]})[0]["name"] == "n1"
    again = api.asked()[1]
    assert again["target"] == asked["target"] == "/people/1?api_key=qu3ry"
    for header in ("authorization", "x-session", "x-version"):
        assert again["headers"][header] == asked["headers"][header]


@pytest.mark.parametrize(
    ("act", "options", "told"),
    [
        ({"status": 404}, (), "nothing answers this key. Give one that has a row."),
        ({"status": 429}, (), "answered 429"),
        ({"status": 302, "headers": {"Location": "/people/1"}}, (), "more than 0 redirects"),
        (
            {"status": 200, "body": '"' + "x" * 99 + '"'},
            ("--option", "max-response-bytes=50"),
            "max-response-bytes",
        ),
        ({"hang": True}, ("--option", "request-timeout=50 ms"), "within 0.05 s"),
        ({"status": 200, "body": "[1, 2]"}, (), "no objects"),
        ({"status": 200, "body": "[]"}, (), "no objects"),
        ({"status": 200, "body": "<html>"}, (), "the body is not JSON"),
    ],
    ids=str,
)
def test_a_sample_that_gives_no_rows_is_asked_once_and_says_why(
    act: dict[str, Any], options: tuple[str, ...], told: str, api: Api, imported: Import
) -> None:
    api.script("/odd/1", act)
    printed = imported("--sample", f"{api.url}/odd/{{id}}", "--key", "id=1", *options)
    assert (printed.code, printed.out) == (1, "")
    assert told in printed.err
    assert len(api.asked()) == 1


def test_a_sample_goes_through_the_connectors_own_tls(
    api: Api, certificates: Certificates, imported: Import
) -> None:
    url = f"https://localhost:{api.tls_port}/people/{{id}}"
    assert "certificate" in imported("--sample", url, "--key", "id=1").err
    printed = imported("--sample", url, "--key", "id=1", "--option", f"tls-ca={certificates.authority}")
    assert ask(printed.table, {"id": [2]})[0]["name"] == "n2"


# --- databases ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _shop(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        """
        DROP SCHEMA IF EXISTS shop CASCADE;
        CREATE SCHEMA shop;
        CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text, since timestamptz, "Odd Name" numeric(10,2)[]);
        COMMENT ON COLUMN shop.customers.name IS 'as it''s said';
        INSERT INTO shop.customers VALUES (1, 'Ada', '2024-02-29T12:00:00Z', '{1.50}');
        CREATE TABLE shop.codes (code text NOT NULL, zone text NOT NULL, meaning text, UNIQUE (meaning));
        CREATE UNIQUE INDEX ON shop.codes (zone, code) INCLUDE (meaning);
        CREATE UNIQUE INDEX ON shop.codes (code) WHERE zone = 'a';
        INSERT INTO shop.codes VALUES ('x', 'a', 'first'), ('x', 'b', NULL);
        CREATE TABLE shop."Twice" (a int, "A" int);
        """
    )


def test_tables_of_postgres_have_their_keys_types_and_comments_and_no_password(
    postgres_server: PostgresServer, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.url(sslmode="disable")
    printed = imported("--url", url, "--table", "shop.*")
    assert PASSWORD not in printed.out + printed.err
    assert "s3cret" not in printed.out + printed.err
    monkeypatch.setenv("LOOKUP_DATABASE_URL", url)
    tables = printed.tables
    assert {name: table.primary_key for name, table in tables.items()} == {
        "codes": ("zone", "code"),
        "customers": ("id",),
    }
    referred = imported("--url", "${env:LOOKUP_DATABASE_URL}", "--table", "shop.customers")
    assert referred.table == tables["customers"]
    assert "`name` STRING COMMENT 'as it\\'s said'" in printed.out
    assert ask_database(tables["customers"], {"id": [1, 2]}) == [
        {
            "id": 1,
            "name": "Ada",
            "since": datetime(2024, 2, 29, 12, tzinfo=timezone.utc),
            "Odd Name": [Decimal("1.50")],
        }
    ]
    assert ask_database(tables["codes"], {"zone": ["b"], "code": ["x"]}, ["meaning"]) == [
        {"code": "x", "zone": "b", "meaning": None}
    ]
    [told] = printed.err.splitlines()
    assert re.fullmatch(
        r"""no table: shop."Twice": its columns '\w+' and '\w+' differ in capitals alone""", told
    )


def test_tables_of_mysql_have_their_keys_types_and_comments_and_no_password(
    mariadb_server: MariaDbServer, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb_server.execute(
        """
        CREATE OR REPLACE DATABASE stock; USE stock;
        CREATE TABLE goods (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(9) COMMENT 'as it''s said', at TIMESTAMP NULL);
        INSERT INTO goods VALUES (1, 'Ada', '2024-02-29 12:00:00');
        CREATE TABLE `Odd "goods"` (code CHAR(3), zone CHAR(3) NOT NULL, UNIQUE (code), UNIQUE (zone, code));
        """
    )
    url = mariadb_server.url()
    printed = imported("--url", url, "--table", "stock.*")
    assert "s3cret" not in printed.out + printed.err
    monkeypatch.setenv("LOOKUP_DATABASE_URL", url)
    tables = printed.tables
    assert {name: table.primary_key for name, table in tables.items()} == {
        "goods": ("id",),
        "Odd_goods": (),
    }
    assert "`name` STRING COMMENT 'as it\\'s said'" in printed.out
    assert ask_database(tables["goods"], {"id": [Decimal(1)]}, connector_type=MysqlConnector) == [
        {"id": Decimal(1), "name": "Ada", "at": datetime(2024, 2, 29, 12, tzinfo=timezone.utc)}
    ]


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@127.0.0.1:1/shop", "host=127.0.0.1 port=1 user=me password=hunter2"]
)
def test_a_database_that_cannot_be_reached_does_not_show_its_password(url: str, imported: Import) -> None:
    printed = imported("--url", url)
    assert printed.code == 1
    assert "hunter2" not in printed.err
    assert "the connection to PostgreSQL failed" in printed.err
