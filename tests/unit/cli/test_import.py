"""What `lookup-hints import` makes of schemas and of JSON, without a server."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lookup_connectors.http.options import plan_of
from lookup_connectors.http.response import FoundRow, FoundRows, HttpFailure, RowMetadata

from lookup_hints.cli.check import check_script
from lookup_hints.cli.import_http_tables import Imported, KeyedRequest, NoTable, NoType, http_table, type_of
from lookup_hints.cli.import_openapi import Refused, read
from lookup_hints.cli.main import main
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.tables.catalog import build_connector


def document(
    answer: Any, *parameters: dict[str, Any], path: str = "/things/{id}", **more: Any
) -> dict[str, Any]:
    """A document of one operation, whose answer has the schema ``answer``."""
    given = [{"name": "id", "in": "path", "schema": {"type": "integer"}}] if "{id}" in path else []
    content = {"application/json": {"schema": answer}}
    get = {"parameters": [*given, *parameters], "responses": {"200": {"content": content}}}
    servers = [{"url": "https://api.example"}]
    return {"openapi": "3.1.0", "servers": servers, "paths": {path: {"get": get}}, **more}


def table_of(answer: Any, *parameters: dict[str, Any], **more: Any) -> Imported:
    [found] = read(document(answer, *parameters, **more))
    assert isinstance(found, Imported), found
    build_connector(found.table)
    return found


def refused(answer: Any, *parameters: dict[str, Any], **more: Any) -> str:
    [found] = read(document(answer, *parameters, **more))
    assert isinstance(found, Refused)
    return found.why


def options_of(found: Imported) -> Mapping[str, str]:
    return dict(found.table.options)


def query(name: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string", **schema}}


TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "integer", "format": "int32"}, "INT"),
        ({"type": "integer", "format": "int64"}, "BIGINT"),
        ({"type": "integer", "maximum": 2**64}, "DECIMAL(38,0)"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": "number", "format": "decimal"}, "DECIMAL(38,18)"),
        ({"type": "number", "multipleOf": 0.01}, "DECIMAL(38,2)"),
        ({"type": "string", "format": "decimal"}, "DECIMAL(38,18)"),
        ({"type": "string", "format": "int64"}, "DECIMAL(20,0)"),
        ({"type": "string", "format": "date"}, "DATE"),
        ({"type": "string", "format": "date-time"}, "TIMESTAMP_LTZ"),
        ({"type": "string", "format": "uuid"}, "STRING"),
        ({"type": "string", "format": "uri"}, "STRING"),
        ({"type": "boolean", "nullable": True}, "BOOLEAN"),
        ({"type": ["integer", "null"]}, "BIGINT"),
        ({"enum": ["a", "b"]}, "STRING"),
        ({"const": 1}, "BIGINT"),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, "DATE"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "DOUBLE"),
        ({"type": "array", "items": {"type": "array", "items": NUMBER}}, "ARRAY<ARRAY<BIGINT>>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        (
            {"properties": {"a b": TEXT, "c": {"$ref": "#/components/schemas/n"}}},
            "STRUCT<`a b`: STRING, `c`: BIGINT>",
        ),
        (
            {"allOf": [{"$ref": "#/components/schemas/o"}, {"properties": {"b": {"type": "boolean"}}}]},
            "STRUCT<`a`: BIGINT, `b`: BOOLEAN>",
        ),
        ({"$ref": "#/components/schemas/tree"}, "STRUCT<`name`: STRING>"),
        ({"allOf": [{"$ref": "#/components/schemas/n"}, {"description": "How many."}]}, "BIGINT"),
    ],
    ids=json.dumps,
)
def test_a_schema_has_a_type(schema: dict[str, Any], expected: str) -> None:
    components = {
        "schemas": {
            "n": NUMBER,
            "o": {"type": "object", "properties": {"a": NUMBER}},
            "tree": {
                "properties": {
                    "name": TEXT,
                    "below": {"type": "array", "items": {"$ref": "#/components/schemas/tree"}},
                }
            },
        }
    }
    found = table_of({"type": "object", "properties": {"x": schema, "y": TEXT}}, components=components)
    assert sql_type(found.table.schema.field("x").type) == expected


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "may be anything"),
        (True, "may be anything"),
        ({"type": "object"}, "is an object of unknown members"),
        ({"type": "array"}, "may be anything"),
        ({"allOf": [{"description": "Something."}]}, "may be anything"),
        ({"anyOf": [TEXT, {}]}, "may be anything"),
        ({"anyOf": [TEXT, NUMBER]}, "is STRING here and BIGINT there"),
        ({"oneOf": [TEXT, {"properties": {"id": TEXT}}]}, "is STRING here and an object there"),
        ({"type": "file"}, "has the type file, which JSON has not"),
        ({"$ref": "other.yaml#/x"}, "is described in another document: other.yaml#/x"),
        ({"$ref": "#/nowhere"}, "is described nowhere: #/nowhere"),
    ],
    ids=json.dumps,
)
def test_a_member_that_has_no_type_is_left_out_with_the_reason(schema: Any, why: str) -> None:
    found = table_of({"type": "object", "properties": {"x": schema, "y": TEXT}})
    assert found.table.schema.names == ["id", "y"]
    assert found.notes == (f"left out: x, which {why}",)


def test_schemas_that_name_one_another_without_end_are_cut() -> None:
    names = [f"s{number}" for number in range(30)]
    schemas = {
        name: {
            "properties": {"a": TEXT} | {other: {"$ref": f"#/components/schemas/{other}"} for other in names}
        }
        for name in names
    }
    found = table_of({"$ref": "#/components/schemas/s0"}, components={"schemas": schemas})
    assert any("too many parts" in note for note in found.notes)
    assert found.table.schema.field("a").type == pa.string()


# --- operations -----------------------------------------------------------------------------------

ROWS = {"type": "array", "items": {"type": "object", "properties": {"id": NUMBER, "kind": TEXT}}}


def test_parameters_are_keys_where_they_must_be_or_a_row_says_them() -> None:
    size = {"name": "size", "in": "query", "required": True, "schema": {"enum": ["L"]}}
    region = {"name": "region", "in": "query", "required": True, "schema": TEXT}
    found = table_of(ROWS, query("kind", default="a"), query("sort"), size, region, path="/things")
    assert options_of(found) == {
        "connector": "http",
        "url": "https://api.example/things?kind={kind}&size=L&region={region}",
        "path.kind": "kind",
    }
    assert found.notes == (
        "parameters that are not asked by: sort",
        "where kind is not asked by, it is 'a'",
    )


@pytest.mark.parametrize(
    ("ids", "style"),
    [
        ({"name": "ids", "in": "query", "schema": {"type": "array", "items": NUMBER}}, "repeat"),
        (
            {"name": "id[]", "in": "query", "explode": False, "schema": {"type": "array", "items": NUMBER}},
            None,
        ),
    ],
    ids=["repeated", "separated"],
)
def test_a_list_of_keys_is_asked_in_one_request(ids: dict[str, Any], style: str | None) -> None:
    found = options_of(table_of(ROWS, ids, path="/things"))
    assert found["url"] == f"https://api.example/things?{ids['name']}={{id}}"
    assert (found["keys-per-request"], found["list-columns"], found.get("list-style")) == ("50", "id", style)


@pytest.mark.parametrize(
    ("parameters", "beside", "expected"),
    [
        (
            [query("page", type="integer", minimum=0)],
            {},
            {"paging": "page", "paging-parameter": "page", "first-page": "0"},
        ),
        (
            [query("offset"), query("limit", type="integer", maximum=5000)],
            {"total": NUMBER},
            {"paging": "offset", "paging-parameter": "offset", "page-size": "1000"},
        ),
        (
            [query("cursor")],
            {"meta": {"properties": {"next_cursor": TEXT}}},
            {"paging": "cursor", "paging-path": "meta.next_cursor", "paging-parameter": "cursor"},
        ),
        (
            [query("cursor")],
            {"next": {"type": "string", "format": "uri"}},
            {"paging": "next_url", "paging-path": "next"},
        ),
        (
            [],
            {"_links": {"properties": {"next": {"properties": {"href": TEXT}}}}},
            {"paging": "next_url", "paging-path": "_links.next.href"},
        ),
        (
            [query("Page")],
            {"uri": TEXT, "next_page_uri": TEXT},
            {"paging": "next_url", "paging-path": "next_page_uri"},
        ),
        ([], {"count": NUMBER}, {}),
    ],
    ids=str,
)
def test_pages_are_found_as_the_document_shows_them(
    parameters: list[dict[str, Any]], beside: dict[str, Any], expected: dict[str, str]
) -> None:
    answer = {"type": "object", "properties": {"items": ROWS, **beside}}
    found = options_of(table_of(answer, *parameters, path="/customers/{id}/things"))
    assert {key: text for key, text in found.items() if "page" in key or "paging" in key} == expected
    assert found["rows"] == "items"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"servers": [{"url": "https://evil.example/${env:HOME}"}]},
            "a reference, ${env:HOME}, which only its reader",
        ),
        (
            {"security": [{"unknown": []}]},
            "its security scheme unknown is not described, which no option follows",
        ),
        ({"servers": [{"url": "https://me:pw@api.example"}]}, None),
    ],
    ids=["reference", "scheme", "password"],
)
def test_what_a_document_may_not_ask_for_is_refused(
    more: dict[str, Any], why: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document({"properties": {"x": TEXT}}, **more)), encoding="utf-8")
    assert main(["import", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("no table: ")
    assert len(err.splitlines()) == 1
    assert (why or "'username' and 'password'") in err


def test_a_name_with_line_breaks_stays_in_its_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "api.json"
    answer = {"properties": {"x": TEXT, "a\nDROP TABLE b;\n": {}, "`c`; --": TEXT}}
    file.write_text(json.dumps(document(answer)), encoding="utf-8")
    assert main(["import", str(file)]) == 0
    out = capsys.readouterr().out
    assert "DROP" in out
    assert [line for line in out.splitlines() if "DROP" in line and not line.startswith("--")] == []
    assert [each for each in check_script(out) if each.is_error] == []


@pytest.mark.parametrize(
    ("path", "answer", "asked", "paths"),
    [
        ("/files/{file_id}", {"id": TEXT}, "{id}", {"path.id": "id"}),
        ("/pets/{petId}", {"Id": TEXT}, "{Id}", {"path.Id": "Id"}),
        ("/users/{username}", {"name": TEXT}, "{username}", {}),
        ("/users/{user}", {"id": TEXT, "user": {"properties": {"a": TEXT}}}, "{user_user}", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_member_that_is_the_key_is_found_where_it_is_sure(
    path: str, answer: dict[str, Any], asked: str, paths: dict[str, str]
) -> None:
    name = re.findall(r"\{(\w+)\}", path)[0]
    key = {"name": name, "in": "path", "schema": TEXT}
    found = options_of(table_of({"properties": {**answer, "more": TEXT}}, key, path=path))
    assert found["url"].rpartition("/")[2] == asked
    assert {option: text for option, text in found.items() if option.startswith("path.")} == paths


def test_a_table_is_called_as_its_path_without_versions_and_endings() -> None:
    found = table_of(
        {"properties": {"people": ROWS, "end": NUMBER}}, path="/api/2010-04-01/teams/{id}/people.json"
    )
    assert (found.table.name, options_of(found)["rows"]) == ("teams_people", "people")


def test_one_table_is_chosen_by_path_or_operation() -> None:
    both = document({"properties": {"x": TEXT}})
    both["paths"]["/others/{id}"] = {
        "get": {**both["paths"]["/things/{id}"]["get"], "operationId": "getOther"}
    }
    for chosen in (read(both, path="/o*"), read(both, operation="get*")):
        assert [each.table.name for each in chosen if isinstance(each, Imported)] == ["others"]


def test_the_reason_why_a_get_is_no_table_is_printed() -> None:
    row = {"properties": {"x": TEXT}}
    deep = {"name": "f", "in": "query", "required": True, "style": "deepObject", "schema": {"type": "object"}}
    assert refused(row, query("q"), path="/things") == (
        "no parameter of its path or query can be a key: no member of its rows is called q"
    )
    assert refused(row, deep, path="/things") == "its parameter f is not one plain value"
    assert refused({"type": "array", "items": TEXT}) == "it answers no objects, of which rows could be made"
    assert refused({"$ref": "#/a", "a": 1}) == "its answer is described nowhere: #/a"
    part = document(row)
    responses = part["paths"]["/things/{id}"]["get"]["responses"]
    responses["206"] = responses.pop("200")
    [only_a_part] = read(part)
    assert isinstance(only_a_part, Refused)
    assert only_a_part.why.startswith("its only answer is 206, a part of the rows")
    assert refused(row, path="/{what}/{id}") == "nothing describes the parameter what of its path"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"swagger": "2.0"}', "This is version 2.0: versions 3.0 and 3.1 are read."),
        ("{}", "The document has no member 'openapi'"),
        ("[1]", "is no OpenAPI document"),
        ("<!doctype html>", "is HTML or XML, and no OpenAPI document. Try: the file behind /openapi.json"),
        (" \n", "is empty, and no OpenAPI document."),
        ("{", "cannot be read"),
        ("openapi: 3.0.0", "needs the package PyYAML. Try: pip install pyyaml"),
    ],
)
def test_a_file_that_is_no_openapi_document_is_wrong_use(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    file = tmp_path / "api.yaml"
    file.write_text(text, encoding="utf-8")
    assert main(["import", str(file)]) == 2
    assert told in capsys.readouterr().err


YAML = """openapi: 3.1.0
servers: [{url: https://api.example}]
paths:
  /things/{id}:
    get:
      parameters: [{name: id, in: path, schema: {type: integer, example: 010}}]
      responses:
        200:
          description: since 2024-02-30
          content:
            application/json:
              schema:
                properties:
                  on: {type: boolean, example: yes}
                  no: {enum: [yes, off]}
                  y: {type: string, default: 12:30:00}
"""


def test_yaml_has_the_words_of_its_version_1_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "api.yaml"
    file.write_text(YAML, encoding="utf-8")
    assert main(["import", str(file)]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"`(\w+)` (\w+)", out) == [
        ("id", "BIGINT"),
        ("on", "BOOLEAN"),
        ("no", "STRING"),
        ("y", "STRING"),
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Give one of: an OpenAPI document, --sample URL, --url DATABASE."),
        (["a.json", "--url", "b"], "Give one of"),
        (["--sample", "https://a/{id}"], "--key id=..."),
        (["--sample", "https://a/{id}", "--key", "i=1"], "--key id=..."),
        (["--sample", "https://a/b"], "a {name} in the URL, and its --key"),
        (["--url", "oracle://a/b"], "There are postgresql://, mysql://, sqlite:/// and duckdb:///."),
        (["--sample", "https://a/{id}", "--key", "id"], "--key needs NAME=VALUE"),
    ],
    ids=str,
)
def test_wrong_use_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", *arguments]) == 2
    assert told in capsys.readouterr().err


ODATA = {"properties": {"value": ROWS, "@odata.nextLink": TEXT, "@odata.count": NUMBER}}
PET = {
    "Pet": {
        "properties": {"id": NUMBER, "kind": TEXT},
        "discriminator": {"propertyName": "kind"},
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
    },
    "Cat": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"lives": NUMBER}}]},
    "Dog": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"properties": {"barks": TEXT}}]},
    "Kennel": {"properties": {"id": NUMBER, "inside": {"allOf": [{"$ref": "#/components/schemas/Kennel"}]}}},
}


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ({"url": "//api.example/v1"}, "https://api.example/v1/things/{id}"),
        ({"url": "https://api.example/v1/?v=2"}, "https://api.example/v1/things/{id}?v=2"),
        ({"url": "https://api.example/v1#docs"}, "https://api.example/v1/things/{id}"),
        ({"url": "https://{tenant}.example"}, "https://${env:LOOKUP_API_TENANT}.example/things/{id}"),
        (
            {"url": "https://{tenant}.example", "variables": {"tenant": {"description": "Yours."}}},
            "https://${env:LOOKUP_API_TENANT}.example/things/{id}",
        ),
        (
            {"url": "https://{region}.example", "variables": {"region": {"default": "eu"}}},
            "https://eu.example/things/{id}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_address_is_that_of_the_server(server: dict[str, Any], url: str) -> None:
    assert options_of(table_of({"properties": {"x": TEXT}}, servers=[server]))["url"] == url


@pytest.mark.parametrize(
    ("schemes", "wanted", "expected"),
    [
        ({"a": {"type": "http", "scheme": "Bearer"}}, [{"a": []}], {"token": "${env:LOOKUP_API_TOKEN}"}),
        (
            {"a": {"type": "http", "scheme": "digest"}, "b": {"type": "http", "scheme": "bearer"}},
            [{"a": []}, {"b": []}],
            {"token": "${env:LOOKUP_API_TOKEN}"},
        ),
        ({"a": {"type": "http", "scheme": "digest"}}, [{"a": []}], "http digest"),
        ({"a": {"type": "apiKey", "in": "cookie", "name": "c"}}, [{"a": []}], "apiKey cookie"),
        ({"a": {"type": "mutualTLS"}}, [{"a": []}], "mutualTLS"),
        ({"a": {"type": "mutualTLS"}}, [{}, {"a": []}], {}),
    ],
    ids=["bearer", "second", "digest", "cookie", "mutual", "none"],
)
def test_who_asks_is_said_in_a_way_that_there_is(
    schemes: dict[str, Any], wanted: list[Any], expected: dict[str, str] | str
) -> None:
    more = {"components": {"securitySchemes": schemes}, "security": wanted}
    if isinstance(expected, str):
        why = f"its security scheme a is {expected}, which no option follows"
        assert refused({"properties": {"x": TEXT}}, **more) == why
    else:
        found = options_of(table_of({"properties": {"x": TEXT}}, **more))
        assert {key: found[key] for key in found if key not in ("connector", "url")} == expected


def test_a_required_filter_is_a_key_whose_name_needs_no_column() -> None:
    condition = {"name": "$filter", "in": "query", "required": True, "schema": TEXT}
    found = table_of(ODATA, condition, path="/things")
    assert options_of(found)["url"] == "https://api.example/things?%24filter={filter}"
    assert found.keys == ("filter",)


def test_the_next_page_of_odata_is_followed_beside_its_parameters() -> None:
    top, skip = query("$top", type="integer"), query("$skip", type="integer")
    found = options_of(table_of(ODATA, top, skip, path="/customers/{id}/things"))
    assert (found["paging"], found["paging-path"]) == ("next_url", '"@odata.nextLink"')


def test_a_key_in_parentheses_leaves_its_segment_a_name() -> None:
    found = table_of(ROWS["items"], path="/v1/items({id})")
    assert (found.table.name, options_of(found)["url"]) == ("items", "https://api.example/v1/items({id})")


def test_a_key_between_quotes_is_written_as_odata_does() -> None:
    found = table_of(ROWS["items"], path="/v1/items('{id}')")
    assert options_of(found)["url"] == "https://api.example/v1/items('{id|odata}')"


def test_a_parent_that_lists_its_children_holds_their_members() -> None:
    found = table_of({"$ref": "#/components/schemas/Pet"}, components={"schemas": PET})
    assert found.table.schema.names == ["id", "kind", "lives", "barks"]
    kennel = table_of({"$ref": "#/components/schemas/Kennel"}, components={"schemas": PET})
    assert kennel.notes == ("left out: inside, which holds itself",)


@pytest.mark.parametrize(
    ("parsed", "arguments", "why"),
    [
        (
            {"paths": {"/a": {"post": {}}}},
            [],
            "the document: it describes no GET, and only a GET becomes a table",
        ),
        ({}, ["--path", "/thing/*"], "the document: no GET fits --path '/thing/*'."),
        ({}, ["--operation", "list*"], "the document: no GET fits --operation 'list*'."),
    ],
    ids=["none", "path", "operation"],
)
def test_a_document_of_which_no_table_is_made_says_so(
    parsed: dict[str, Any],
    arguments: list[str],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document({"properties": {"x": TEXT}}) | parsed), encoding="utf-8")
    assert main(["import", str(file), *arguments]) == 1
    assert capsys.readouterr().err.startswith(f"no table: {why}")


# --- databases ------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, "odd name" DECIMAL(10,2));
            CREATE TABLE codes (code TEXT NOT NULL, zone TEXT NOT NULL, meaning TEXT);
            CREATE UNIQUE INDEX nullable ON codes (meaning);
            CREATE UNIQUE INDEX of_some ON codes (code) WHERE meaning IS NULL;
            CREATE UNIQUE INDEX of_an_expression ON codes (upper(code));
            CREATE UNIQUE INDEX whole ON codes (zone, code);
            CREATE TABLE strange (x MONEY);
            CREATE VIEW names AS SELECT name FROM customers;
            """
        )
    return path


def test_tables_of_sqlite_have_their_key_or_a_unique_index(
    sqlite_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--url", f"sqlite:///{sqlite_file}"]) == 0
    out, err = capsys.readouterr()
    assert [each for each in check_script(out) if each.is_error] == []
    assert re.findall(r"TABLE `(\w+)`|KEY \((.*)\) NOT", out) == [
        ("codes", ""),
        ("", "`zone`, `code`"),
        ("customers", ""),
        ("", "`id`"),
        ("names", ""),
    ]
    assert "`odd name` DECIMAL(10,2)" in out
    assert err == (
        "no table: strange: the declared type 'MONEY' of column 'x' does not say what it holds. Give a column list.\n"
    )


def test_a_pattern_that_fits_no_table_has_the_nearest(
    sqlite_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--url", str(sqlite_file), "--table", "custmers"]) == 1
    assert capsys.readouterr().err == "error: No table is called 'custmers'. Did you mean 'customers'?\n"


def test_tables_of_duckdb_come_through_adbc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(duckdb.connect(str(tmp_path / "a.duckdb"))) as connection:
        connection.execute(
            "CREATE SCHEMA shop; CREATE TABLE shop.items (sku VARCHAR PRIMARY KEY, sizes INTEGER[])"
        )
        connection.execute("CREATE TABLE other (a INTEGER)")
    assert main(["import", "--url", f"duckdb:///{tmp_path}/a.duckdb", "--table", "shop.*"]) == 0
    out = capsys.readouterr().out
    assert [each for each in check_script(out) if each.is_error] == []
    assert re.findall(r"  `(\w+)` (\S+),\n", out) == [("sku", "STRING"), ("sizes", "ARRAY<INT>")]
    assert "'table-name' = 'shop.items'" in out


def test_secrets_of_options_are_left_to_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document({"properties": {"x": TEXT}})), encoding="utf-8")
    given = ("--option", "token=hunter2", "--option", "request-timeout=5s", "--header", "X-Key: hunter3")
    assert main(["import", str(file), *given]) == 0
    out = capsys.readouterr().out
    assert "hunter" not in out
    for option in (
        "'token' = '${env:LOOKUP_API_TOKEN}'",
        "'header.X-Key' = '${env:LOOKUP_API_X_KEY}'",
        "'request-timeout' = '5s'",
    ):
        assert option in out
    assert "LOOKUP_API_TOKEN" not in os.environ


# --- answers --------------------------------------------------------------------------------------


def of_sample(value: Any, url: str = "https://a/orders/{id}") -> Imported:
    return http_table(KeyedRequest("t", url, {"id": pa.int64()}, ["id"]), type_of(value))


@pytest.mark.parametrize(
    ("answer", "rows"),
    [
        ({"id": 1, "name": "a"}, None),
        ([{"id": 1}], None),
        ({"data": {"id": 1}}, "data"),
        ({"status": "ok", "data": {"items": [{"id": 1}], "total": 1}}, "data.items"),
        ({"orders": [{"id": 1}], "meta": {"page": 1}}, "orders"),
        ({"order": {"id": 1}}, "order"),
        ({"lines": [{"id": 1}], "next": None}, "lines"),
        ({"id": 1, "lines": [{"a": 1}]}, None),
        ({"status": "open", "lines": [{"a": 1}]}, None),
        ({"name": "a", "data": {"b": 1}}, None),
        ({"hits": {"total": 1, "hits": [{"_id": "1"}]}}, "hits.hits"),
        ({"_embedded": {"orders": [{"id": 1}]}, "_links": {"self": {"href": "/"}}}, "_embedded.orders"),
        ({"my-rows": [{"id": 1}]}, '"my-rows"'),
    ],
    ids=json.dumps,
)
def test_rows_are_found_where_an_answer_wraps_them(answer: Any, rows: str | None) -> None:
    assert options_of(of_sample(answer)).get("rows") == rows


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53 + 1, "BIGINT"),
        (2**63, "DECIMAL(38,0)"),
        ([1, 1.5], "ARRAY<DOUBLE>"),
        ([2**53 + 1, Decimal("1.5")], "ARRAY<DECIMAL(38,18)>"),
        (Decimal("0.1"), "DOUBLE"),
        (Decimal("0.12345678901234567890"), "DECIMAL(38,20)"),
        ("2024-02-30", "STRING"),
        (["2024-02-29", "soon"], "ARRAY<STRING>"),
        (["2024-02-29T10:00Z", "2024-02-29 10:00"], "ARRAY<STRING>"),
        ({"7": {"a": 1}, "8": {"b": None}}, "MAP<STRING, STRUCT<`a`: BIGINT, `b`: STRING>>"),
        ([{"a": [1]}, {"a": None}, {}], "ARRAY<STRUCT<`a`: ARRAY<BIGINT>>>"),
    ],
    ids=str,
)
def test_a_value_has_a_type_that_loses_nothing(value: Any, expected: str) -> None:
    assert sql_type(of_sample({"id": 1, "x": value}).table.schema.field("x").type) == expected


NAMES = st.sampled_from(
    ["id", "ID", "a", "b c", "é", "a.b", "@odata.x", "7", "next", "items", "`", '"', "", "2x"]
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.text(max_size=3),
    st.sampled_from(["2024-02-29", "2024-02-29T10:00:00+02:00", "2024-02-29 10:00", "https://a"]),
)
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


@pytest.mark.work(10)  # it makes hundreds of tables
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, JSON, min_size=1, max_size=5))
def test_any_answer_fits_the_table_that_is_made_of_it(answer: dict[str, Any]) -> None:
    try:
        made = of_sample(answer)
    except (NoTable, NoType):
        return
    build_connector(made.table)
    reader = plan_of(made.table).reader
    found = reader.found(answer)
    asked = {made.keys[0]: 1}
    members = {each.split(".")[0].strip('"') for each in options_of(made).values()} | {
        *made.table.schema.names
    }
    # The connector refuses a row that has no column at all.
    rows = [
        FoundRow(row, None, asked, RowMetadata("hit")) for row in found.rows if not members.isdisjoint(row)
    ]
    if rows:
        columns = pa.schema([each for each in made.table.schema if each.name not in made.keys])
        try:
            read_rows = reader.as_table(FoundRows.of(rows), columns)
        except HttpFailure as error:  # the answer says of itself that a list goes on
            if "is not whole" not in str(error):
                raise
            return
        assert read_rows.num_rows == (len(rows) if columns.names else 0)
