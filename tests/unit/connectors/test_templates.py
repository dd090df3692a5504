"""The grammar of templates: what is a column, what is text, and what is refused with its place."""

from __future__ import annotations

import re
from datetime import date
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.http.request import TemplateKeys, Unsendable, parse_json_body, parse_query
from lookup_connectors.redis import RedisConnector
from lookup_connectors.shared.key_templates import Template, TemplateError, TemplatePlace, parse_template

from lookup_hints.errors import OptionError
from lookup_hints.spi.request_and_answer import LookupTable

COLUMNS = ["id", "tenant", "name", "User-Key"]


def filled(text: str, place: TemplatePlace) -> str:
    return parse_template(text, COLUMNS, place).filled(lambda hole: f"<{hole.column}>")


@pytest.mark.parametrize(
    ("place", "text", "expected"),
    [
        ("path", "https://h/{tenant}/u/{ID}", "https://h/<tenant>/u/<id>"),
        ("path", "https://h/{user-key}", "https://h/<User-Key>"),
        ("path", "https://h/{{{id}}}", "https://h/%7B<id>%7D"),
        ("path", "https://h/{{x}}/{id}", "https://h/%7Bx%7D/<id>"),
        ("path", "https://h/v1/{name}:cancel", "https://h/v1/<name>:cancel"),
        ("path", "https://h/%7Bx%7D/a%20b/{id}", "https://h/%7Bx%7D/a%20b/<id>"),
        ("path", "https://h/Items('{id}')/$value", "https://h/Items('<id>')/$value"),
        ("path", "${env:API}/{id}", "${env:API}/<id>"),
        ("parameter", "100%25", "100%25"),
        ("parameter", "{id}:{name}", "<id>:<name>"),
        ("key", "user:{{{id}}}:profile", "user:{<id>}:profile"),
        ("key", "{{users}}:{id}", "{users}:<id>"),
        ("key", "{{42}}:{id}", "{42}:<id>"),
        ("key", "{{id}}:{id}", "{id}:<id>"),
        ("key", "a:id:%:{id}", "a:id:%:<id>"),
        ("key", "${env:STAGE}:{id}", "${env:STAGE}:<id>"),
        ("text", "{id}", "<id>"),
        ("text", "query($id: ID!) { user(id: $id) { name } }", "query($id: ID!) { user(id: $id) { name } }"),
        ("text", "query($id: ID!) { user(id: $id) {{name}} }", "query($id: ID!) { user(id: $id) {name} }"),
        ("text", "query($id: ID!){user(id:$id){{name}}}", "query($id: ID!){user(id:$id){name}}"),
        ("text", "{{ user(id: {id}) {{name}} }}", "{ user(id: <id>) {name} }"),
        ("text", '{ user(id: "{id}") { name } }', '{ user(id: "<id>") { name } }'),
        ("text", "{user(id:{id}){name tenant}}", "{user(id:<id>){name tenant}}"),
        ("text", '{"a":{"b":"{id}"}}', '{"a":{"b":"<id>"}}'),
        ("text", r"^\d{3}$", r"^\d{3}$"),
        ("text", "LIKE '%s%' %Y-%m-%d", "LIKE '%s%' %Y-%m-%d"),
        ("text", "WHERE id = :id", "WHERE id = :id"),
    ],
)
def test_what_is_text_is_sent_as_text(place: TemplatePlace, text: str, expected: str) -> None:
    assert filled(text, place) == expected


@pytest.mark.parametrize(
    ("place", "text", "what", "tip"),
    [
        ("path", "https://h/{user-id}", "'{user-id}' is no column", "character 11."),
        ("path", "https://h/{tenent}", "there is no column 'tenent'", "Did you mean 'tenant'?"),
        ("path", "https://h/{ id }", "'{ id }' is no column", "Write {id}."),
        ("path", "https://h/{{id}}", "'{{id}}' is the text '{id}'", "Write {id} for the value"),
        ("path", "https://h/{{ id }}", "'{{ id }}' is the text '{ id }'", "Write {id} for the value"),
        ("path", "https://h/${id}", "write {id} without the dollar sign", "character 12."),
        ("path", "https://h/{id:int}", "'{id:int}' is no column", "character 11."),
        ("path", "https://h/{?id}", "'{?id}' is no column", "character 11."),
        ("path", "https://h/{}", "'{}' is no column", "character 11."),
        ("path", "https://h/{0}", "'{0}' is no column", "character 11."),
        ("path", "https://h/{id", "the brace '{' has no other one", "character 11."),
        ("path", "https://h/{id}}", "the brace '}' has no other one", "character 15."),
        ("path", "https://h/:id", "':id' is no column", "Write {id} for a value."),
        ("path", "https://h/:user/{id}", "':user' is no column", "percent-encoded: %3Auser."),
        ("path", "https://h/:id.json", "':id' is no column", "Write {id}"),
        ("path", "${env:API}/x/:id", "':id' is no column", "character 14."),
        ("path", "https://h/<int:id>", "'<int:id>' is no column", "Write {id}"),
        ("path", "https://h/[id]", "'[id]' is no column", "Write {id}"),
        ("path", "https://h/$id", "'$id' is no column", "Write {id}"),
        ("path", "https://h/%s", "'%s' is no column and no percent-encoding", "Write {column}"),
        ("path", "https://h/%(id)s", "'%(id)s' is no column", "Write {id}"),
        ("path", "https://h/%7Bid%7D", "'%7Bid%7D' is no column", "Write {id}"),
        ("parameter", "100%", "'%' is no column and no percent-encoding", "percent-encoded: %25."),
        ("parameter", ":id", "':id' is no column", "Write {id}"),
        (
            "key",
            "{{tenant}}:{id}",
            "'{{tenant}}' is the text '{tenant}'",
            "{{{tenant}}} for the value in braces",
        ),
        ("key", "user:{42}:{id}", "'{42}' is no column", "Braces that are text are doubled"),
        ("key", "user:%s:{id}", "'%s' is no column", "character 6."),
        ("key", "user:<id>", "'<id>' is no column", "Write {id}"),
        (
            "text",
            "query($id: ID!) { user(id: $id) {name} }",
            "{name} may be a value or text",
            "Write {{name}}",
        ),
        ("text", "{ user(id: {idd}) { name } }", "there is no column 'idd'", "Did you mean 'id'?"),
        ("text", '{ user(id: "{ id }") { name } }', "'{ id }' is no column", "Write {id}."),
        ("text", "{ user(id: {{id}}) { name } }", "'{{id}}' is the text '{id}'", "Write {id} for the value"),
        ("text", "{ user(id: {{{id}}}) { name } }", "{id} may be a value or text", "Write {{id}}"),
        ("text", "{user-id}", "'{user-id}' is no column", "character 1."),
        ("text", "{{id}}", "'{{id}}' is the text '{id}'", "Write {id} for the value"),
        ("text", "{ id }", "'{ id }' is no column", "Write {id}."),
        ("text", "${id}", "write {id} without the dollar sign", "character 2."),
        ("text", "${vault:x}", "${vault:x} is no reference", "${env:NAME}"),
        ("text", ":id", "':id' is no column", "Write {id}"),
        ("text", "%s", "'%s' is no column", "Write {column}"),
    ],
)
def test_what_looks_like_a_column_and_is_none_is_refused_with_its_place(
    place: TemplatePlace, text: str, what: str, tip: str
) -> None:
    with pytest.raises(TemplateError) as raised:
        filled(text, place)
    assert what in str(raised.value)
    assert tip in raised.value.tip
    assert "character" in raised.value.tip


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"url": "https://h/x?a=1&i={idd}"}, "'url': there is no column 'idd'. Did you mean 'id'? Braces that"
         " are text are doubled: {{ and }}. It is at character 19."),
        ({"url": "https://h/{id}", "query": "a=1&b={ name }"}, "It is at character 7."),
        ({"url": "https://h/x{?id}"}, "'url': '{?id}' is no column"),
        ({"url": "https://h/{id}?a=1#b"}, "'url': a fragment ('#') is never sent; write %23"),
        ({"url": "https://h/{id}", "query": "a=#b"}, "'query': a fragment ('#') is never sent"),
        ({"url": "https://h/{id}", "header.X": "{user-id}"}, "'header.X': '{user-id}' is no column"),
        ({"url": "https://h/x", "method": "post", "body": '{"q": {"i": ["{ id }"]}}'},
         "'body': '{ id }' is no column. Write {id}. Braces that are text are doubled: {{ and }}. It is at"
         " character 1 of the text q.i[0]."),
        ({"url": "https://h/x", "method": "post", "body": '{"id": {id}}'},
         'Columns stand in quotes, and numbers stay numbers: "{id}".'),
        ({"url": "https://h/{id}", "method": "post", "body": '{"{name}": 1}'},
         "the name of the member '{name}' is text"),
        ({"url": "https://h/x", "method": "post", "body-format": "form", "body": "id=%s"},
         "'body': '%s' is no column and no percent-encoding"),
    ],
)  # fmt: skip
def test_an_option_of_http_names_the_place(options: dict[str, str], shown: str) -> None:
    with pytest.raises(OptionError) as raised:
        HttpConnector(LookupTable("people", SCHEMA, options=options)).check()
    assert shown in str(raised.value)


def test_a_key_of_redis_names_the_place() -> None:
    table = LookupTable("people", SCHEMA, options={"host": "h", "key": "p:{{id}}:{name}"})
    with pytest.raises(OptionError, match=r"table people: 'key': '\{\{id\}\}' is the text .* character 3\."):
        RedisConnector(table).check()


# --- languages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "sent"),
    [
        ("id eq '{id|odata}'", "x' or 'a' eq 'a", "id eq 'x'' or ''a'' eq ''a'"),
        ("NAME = '{ID|sql}'", "O'Neil", "NAME = 'O''Neil'"),
        ('{ user(id: "{id|json}") { name } }', 'a"b\\c\n', '{ user(id: "a\\"b\\\\c\\n") { name } }'),
        ("Name = '{id|backslash}'", "O'Ne\\il", "Name = 'O\\'Ne\\\\il'"),
        ('summary ~ "{id|backslash}"', 'a"b\nc', 'summary ~ "a\\"b\\nc"'),
        ("name:{id|lucene}", 'a:b "c" (d)', 'name:a\\:b \\"c\\" \\(d\\)'),
        ("'{id|url}'", "O'Neil", "'O'Neil'"),
    ],
)
def test_a_hole_says_in_which_language_its_value_stands(text: str, key: str, sent: str) -> None:
    template = parse_template(text, COLUMNS, "text")
    assert template.filled(lambda hole: hole.text(key)) == sent
    assert list(template.unsafe_holes(["id"])) == []


TEXTS = pa.schema([("id", pa.string()), ("number", pa.int64())])
POST = {"url": "https://h/x", "method": "post"}


@pytest.mark.parametrize(
    ("options", "column", "quote"),
    [
        ({"url": "https://h/x?$filter=id eq '{id}'"}, "id", "'"),
        ({"url": "https://h/x?$filter=a eq 'b' and startswith(id,'x{id}y')"}, "id", "'"),
        ({"url": "https://h/x", "query": "q=name%3D%27{id}%27"}, "id", "'"),
        ({"url": "https://h/Products('{id}')"}, "id", "'"),
        ({"url": "https://h/Products(a='{number}',b='{id}')"}, "id", "'"),
        ({"url": "https://h/x?$filter=id eq '{id|json}'"}, "id", "'"),
        ({"url": 'https://h/x?q="{id|sql}"'}, "id", '"'),
        ({**POST, "body": '{"query": "{ user(id: \\"{id}\\") { name } }"}'}, "id", '"'),
        ({**POST, "body": '{"statement": ["WHERE id = \'{id}\'"]}'}, "id", "'"),
        ({**POST, "body": "q=id = '{id}'", "body-format": "form"}, "id", "'"),
    ],
)  # fmt: skip
def test_a_text_between_quotes_needs_a_language(options: dict[str, str], column: str, quote: str) -> None:
    with pytest.raises(OptionError) as raised:
        HttpConnector(LookupTable("people", TEXTS, options=options)).check()
    language = "odata" if quote == "'" else "json"
    assert (
        f"column {column!r} stands between quotes, and a key that holds {quote} would end them. Write"
        f" {{{column}|{language}}}, or name another language: odata, sql, json, backslash, lucene, url."
        in str(raised.value)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"url": "https://h/x?$filter=number eq '{number}'"},
        {"url": "https://h/x?$filter=id eq '{id|odata}'"},
        {"url": "https://h/x?q=it's {id}"},
        {"url": "https://h/x?q={id}&a='b'"},
        {"url": "https://h/Products('{id|odata}')"},
        {"url": "https://h/x?q='{id|url}'"},
        {**POST, "body": '{"id": "{id}", "query": "query($id: ID!) { user(id: $id) { name } }"}'},
    ],
)
def test_what_cannot_end_its_quotes_needs_no_language(options: dict[str, str]) -> None:
    HttpConnector(LookupTable("people", TEXTS, options=options)).check()


def test_the_value_of_a_language_is_encoded_for_its_place_too() -> None:
    keys = TemplateKeys.one({"id": "O'Ne/il"})
    query = parse_query("$filter=id eq '{id|odata}'", COLUMNS, repeated=False)
    assert query.text(keys) == "$filter=id eq 'O%27%27Ne%2Fil'"
    body = parse_json_body('{"a": "{id|odata}", "b": ["{id|json}"]}', COLUMNS)
    assert body.text(keys) == '{"a":"O\'\'Ne/il","b":["O\'Ne/il"]}'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{id|odta}", "there is no language 'odta'"),
        ("{idd|odata}", "'{idd|odata}' is no column"),
        ("{ user(id: {idd|json}) { name } }", "'{idd|json}' is no column"),
    ],
)
def test_a_language_that_is_none_is_refused(text: str, shown: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(shown)):
        parse_template(text, COLUMNS, "text")


def test_a_key_of_redis_has_no_language() -> None:
    with pytest.raises(TemplateError, match="is no column"):
        parse_template("user:{id|json}", COLUMNS, "key")


# --- keys that share a text -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "is_refused"),
    [
        ("{a}-{b}", {"a": "a", "b": "b-c"}, False),
        ("{a}-{b}", {"a": "a-b", "b": "c"}, True),
        ("{a}-{b}", {"a": "my-post", "b": 5}, False),
        ("{a}-{b}", {"a": "x", "b": -5}, False),
        ("{a}-{b}", {"a": date(2024, 1, 2), "b": "x-y"}, False),
        ("{a}-{b}", {"a": 1, "b": -2}, False),
        ("{a}:{b}:{a}", {"a": "x", "b": "y"}, False),
        ("{a}:{b}:{a}", {"a": "x:y", "b": "x"}, False),
        ("{a}-{a}:{b};{c}", {"a": "x", "b": "y;z", "c": "w"}, True),
        ("{a}{b}", {"a": "x", "b": "y"}, True),
        ("{a}--{b}", {"a": "x-", "b": "y"}, True),
        ("{a}--{b}", {"a": "x", "b": "-y"}, False),
        ("{a}0{b}", {"a": 1, "b": 2}, False),
        ("{a}0{b}", {"a": 1, "b": 102}, True),
        ("{a}/{b}:{c}", {"a": "x", "b": "y", "c": "z:/"}, False),
        ("{a}/{b}:{c}", {"a": "x", "b": "y:w", "c": "z"}, True),
        ("{a}", {"a": "x-y"}, False),
    ],
)
def test_of_keys_with_one_text_only_one_is_taken(text: str, key: dict[str, Any], is_refused: bool) -> None:
    mistaken = parse_template(text, list(key)).mistaken(key)
    assert bool(mistaken) == is_refused
    assert not is_refused or "a value contains the separator of the columns" in mistaken


@pytest.mark.parametrize("text", ["{a}-{b}", "{a}--{b}", "{a}{b}", "{a}0{b}", "{a}-{b}-{c}", "-{a}-{b}-"])
def test_no_two_keys_that_are_taken_have_one_text(text: str) -> None:
    template = parse_template(text, ["a", "b", "c"])
    texts: list[Any] = ["", "-", "a", "a-", "-a", "--", "a-a", "0"]
    columns = [texts, [0, 1, -1, 10, 102]]
    for chosen in product(columns, repeat=len(template.columns)):
        keys = [dict(zip(template.columns, values, strict=True)) for values in product(*chosen)]
        taken = [key for key in keys if not template.mistaken(key)]
        assert taken
        assert len({text_of(template, key) for key in taken}) == len(taken)


def text_of(template: Template, key: dict[str, Any]) -> str:
    return template.filled(lambda hole: str(key[hole.column]))


MANY = TemplateKeys({"id": ["a,b", "c"]}, frozenset({"id"}))


def test_a_key_that_holds_the_comma_of_its_list_is_refused() -> None:
    with pytest.raises(Unsendable, match=r"the key id = 'a,b' holds the comma .* 'list-style' = 'repeat'"):
        parse_query("ids={id}", ["id"], repeated=False).text(MANY)
    with pytest.raises(Unsendable, match="holds the comma"):
        parse_json_body('{"q": "id in ({id})"}', ["id"]).text(MANY)
    assert parse_query("ids={id}", ["id"], repeated=True).text(MANY) == "ids=a%2Cb&ids=c"
    assert parse_json_body('{"q": "{id}"}', ["id"]).text(MANY) == '{"q":["a,b","c"]}'
    assert (
        parse_query("ids={id}", ["id"], repeated=False).text(TemplateKeys.one({"id": "a,b"})) == "ids=a%2Cb"
    )
