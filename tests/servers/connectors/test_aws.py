"""Requests that are signed for AWS: checked by an independent verifier, and by a server of DynamoDB."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.http import aws_signature as signature_module

from lookup_hints.errors import OptionError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import known_secrets
from tests.servers.aws import KEY_ID, SECRET, checking_server
from tests.servers.connectors.http_asking import ask, failure
from tests.servers.postgres import free_port

SCHEMA = pa.schema([("id", pa.string()), ("name", pa.string())])
NAMES = ["plain", "a b", "ü/ö", "x+y=z&q", "~*'()", "100%"]


@pytest.fixture(autouse=True)
def _no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def signed_table(url: str, service: str = "execute-api", **options: str) -> LookupTable:
    given = {
        "connector": "http",
        "url": url,
        "aws-service": service,
        "aws-region": "eu-central-1",
        "aws-access-key-id": KEY_ID,
        "aws-secret-access-key": SECRET,
        **{key.replace("_", "-"): value for key, value in options.items()},
    }
    return LookupTable("people", SCHEMA, options=given)


def echo(path: str, body: bytes) -> tuple[int, str]:
    return 200, json.dumps({"name": "found"})


@pytest.mark.parametrize("service", ["execute-api", "s3", "dynamodb"])
@pytest.mark.parametrize("where", ["path", "query", "body"])
def test_each_request_is_signed_as_aws_documents_it(service: str, where: str) -> None:
    with checking_server(echo, region="eu-central-1", service=service) as (url, asked):
        options = {
            "path": {"url": f"{url}/people/{{id}}/of"},
            "query": {"url": f"{url}/people?z=1&id={{id}}&a=%20"},
            "body": {
                "url": f"{url}/",
                "method": "post",
                "body": '{"id": "{id}"}',
                "header.X-Amz-Target": "Get",
            },
        }[where]
        rows = ask(signed_table(service=service, **options), {"id": NAMES})
    assert [row["name"] for row in rows] == ["found"] * len(NAMES)
    assert len(asked) == len(NAMES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"aws_secret_access_key": "another"}, "another signature"),
        ({"aws_region": "us-east-1"}, "signed for AKIDEXAMPLE, us-east-1, execute-api"),
    ],
)
def test_a_wrong_key_or_region_is_refused_and_not_shown(change: dict[str, str], said: str) -> None:
    with checking_server(echo, region="eu-central-1", service="execute-api") as (url, _):
        error = failure(signed_table(f"{url}/{{id}}", **change), id="1")
    assert error.permanent
    assert said in str(error)
    assert "answered 403" in str(error)
    assert SECRET not in str(error)


def test_a_session_token_is_sent_and_signed() -> None:
    with checking_server(echo, region="eu-central-1", service="execute-api") as (url, asked):
        table = signed_table(f"{url}/{{id}}", aws_session_token="s3cret-token")
        ask(table, {"id": ["1"]})
    assert asked[0]["x-amz-security-token"] == "s3cret-token"
    assert "x-amz-security-token" in asked[0]["authorization"]
    assert {SECRET, "s3cret-token"} <= known_secrets(HttpConnector(table))


def test_a_repeat_is_signed_anew() -> None:
    answers = iter([429, 200])

    def throttles(path: str, body: bytes) -> tuple[int, str]:
        return next(answers), '{"name": "found"}'

    with checking_server(throttles, region="eu-central-1", service="execute-api") as (url, asked):
        assert ask(signed_table(f"{url}/{{id}}"), {"id": ["1"]}) == [{"id": "1", "name": "found"}]
    first, second = asked
    assert first["x-amz-date"] < second["x-amz-date"]
    assert first["authorization"] != second["authorization"]


def test_keys_are_found_where_the_aws_cli_finds_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        f"[lookups]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / "config").write_text("[profile lookups]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_PROFILE", "lookups")
    with checking_server(echo, region="eu-central-1", service="execute-api") as (url, _):
        table = LookupTable(
            "people",
            SCHEMA,
            options={"connector": "http", "url": f"{url}/{{id}}", "aws-service": "execute-api"},
        )
        assert ask(table, {"id": ["1"]}) == [{"id": "1", "name": "found"}]


def test_keys_of_the_chain_that_end_are_renewed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The chain runs a program for keys, which it says end soon: each request asks it again."""
    runs = tmp_path / "runs"
    program = tmp_path / "keys.py"
    program.write_text(
        f"""
import datetime, json
with open({str(runs)!r}, "a") as file:
    file.write("x")
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=11)
print(json.dumps({{"Version": 1, "AccessKeyId": {KEY_ID!r}, "SecretAccessKey": {SECRET!r},
                  "SessionToken": "t", "Expiration": end.isoformat()}}))
"""
    )
    (tmp_path / "config").write_text(
        f"[default]\nregion = eu-central-1\ncredential_process = {sys.executable} {program}\n"
    )
    with checking_server(echo, region="eu-central-1", service="execute-api") as (url, asked):
        options = {"connector": "http", "url": f"{url}/{{id}}", "aws-service": "execute-api"}
        assert len(ask(LookupTable("people", SCHEMA, options=options), {"id": NAMES})) == len(NAMES)
    assert len(runs.read_text()) >= 2
    assert {each["x-amz-security-token"] for each in asked} == {"t"}


def test_without_keys_or_region_the_error_says_what_to_give() -> None:
    options = {"connector": "http", "url": "http://127.0.0.1:1/{id}", "aws-service": "dynamodb"}
    table = LookupTable("people", SCHEMA, options=options)
    assert "there is no 'aws-region', and none in the environment" in str(failure(table, id="1"))
    table = LookupTable("people", SCHEMA, options={**options, "aws-region": "x"})
    error = failure(table, id="1")
    assert "no credentials for AWS are found here. Give 'aws-access-key-id' and" in str(error)


def test_a_missing_signer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name.partition(".")[0])

    monkeypatch.setattr(signature_module, "import_module", missing)
    error = failure(signed_table("http://127.0.0.1:1/{id}"), id="1")
    assert "'aws-service' needs the module 'botocore': pip install 'lookup-hints[aws]'." in str(error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"aws-region": "x"}, "'aws-region' is of no use without 'aws-service'"),
        (
            {"aws-service": "x", "token": "t"},
            "'token' and 'aws-service' are different ways to say who we are",
        ),
        ({"aws-service": "x", "aws-access-key-id": "k"}, "'aws-access-key-id' needs 'aws-secret-access-key'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], said: str) -> None:
    table = LookupTable("people", SCHEMA, options={"connector": "http", "url": "https://h/{id}", **options})
    with pytest.raises(OptionError) as refused:
        HttpConnector(table).check()
    assert said in str(refused.value)


# --- DynamoDB -------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[3] / "docs" / "connectors" / "dynamodb.md"


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[str]:
    """An emulator of DynamoDB with a table ``customers`` of 300 rows."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    ) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    urlopen(f"{url}/moto-api/", timeout=5).close()
                    break
                except URLError:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            _call(url, "CreateTable", {
                "TableName": "customers",
                "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "N"}],
                "BillingMode": "PAY_PER_REQUEST",
            })  # fmt: skip
            for number in range(300):
                item = {"id": {"N": str(number)}, "name": {"S": f"name {number}"}}
                _call(url, "PutItem", {"TableName": "customers", "Item": item})
            yield url
        finally:
            process.terminate()


def _call(url: str, what: str, content: dict[str, Any]) -> Any:
    headers = {
        "X-Amz-Target": f"DynamoDB_20120810.{what}",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=x/20261128/eu-central-1/dynamodb/aws4_request,"
        " SignedHeaders=host, Signature=x",
    }
    with urlopen(Request(url, json.dumps(content).encode(), headers), timeout=30) as response:
        return json.loads(response.read())


def _documented_table(url: str) -> LookupTable:
    """The table of the page, at another address and with keys."""
    statement = re.findall(r"```sql\n(CREATE.*?)```", EXAMPLE.read_text(encoding="utf-8"), re.DOTALL)[0]
    options = dict(re.findall(r"'([\w.-]+)' = '(.*?)'(?=,\n|\n\))", statement, re.DOTALL))
    options |= {"url": f"{url}/", "aws-access-key-id": KEY_ID, "aws-secret-access-key": SECRET}
    return LookupTable("customers", pa.schema([("id", pa.int64()), ("name", pa.string())]), options=options)


def test_the_documented_example_asks_dynamodb_for_many_keys(dynamodb: str) -> None:
    keys = [7, 299, 1000, 0, *range(100, 190)]
    rows = ask(_documented_table(dynamodb), {"id": keys})
    assert sorted((row["id"], row["name"]) for row in rows) == sorted(
        (key, f"name {key}") for key in keys if key < 300
    )


def test_unprocessed_keys_are_asked_again_and_never_taken_for_misses(dynamodb: str) -> None:
    """In front of the emulator, which never throttles: each second answer leaves keys out, as DynamoDB would."""
    asked: list[int] = []

    class Throttles(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = _call(dynamodb, "BatchGetItem", json.loads(body))
            asked.append(len(json.loads(body)["RequestItems"]["customers"]["Keys"]))
            if len(asked) % 2:
                rows = answer["Responses"]["customers"]
                left = [{"id": row["id"]} for row in rows[::3]]
                answer["Responses"]["customers"] = [row for row in rows if {"id": row["id"]} not in left]
                answer["UnprocessedKeys"] = {"customers": {"Keys": left}}
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Throttles)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        rows = ask(_documented_table(f"http://127.0.0.1:{server.server_port}"), {"id": list(range(50))})
    finally:
        server.shutdown()
        server.server_close()
    assert sorted(row["id"] for row in rows) == list(range(50))
    assert asked == [50, 50], "the whole batch is asked again"
