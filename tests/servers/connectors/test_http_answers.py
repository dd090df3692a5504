"""What an answer says of itself: that it failed, that it is not there yet, that there is more, in which charset."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.http.headers import next_link
from lookup_connectors.http.options import plan_of
from lookup_connectors.http.response import FoundRow, FoundRows, HttpFailure, Response, RowMetadata
from lookup_connectors.shared.json_paths import parse_path

from lookup_hints.errors import OptionError
from lookup_hints.spi import Outcomes
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.connectors.recorded import HOME, Outcome, answer, outcome, response

ADA = {"id": "1", "name": "Ada"}
URL = f"{HOME}/x/1"


# --- an error inside a 200 ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        ({"ok": False, "error": "ratelimited"}, "throttled", ""),
        (
            {"ok": False, "error": "invalid_auth"},
            "permanent",
            'It says: {"ok": false, "error": "invalid_auth"}',
        ),
        ({"success": False}, "permanent", 'It says: {"success": false}'),
        ({"success": "false", "user": None}, "permanent", "says that it failed"),
        ({"error": {"message": "nothing works"}}, "permanent", "nothing works"),
        ({"user": None, "errors": ["nothing works"]}, "permanent", "nothing works"),
        ({"errcode": 40013, "errmsg": "invalid appid"}, "permanent", "40013"),
        ({"user": None, "status": "error"}, "permanent", '{"status": "error"}'),
        ({"status": "OVER_QUERY_LIMIT"}, "throttled", ""),
        ({"code": 429, "message": "slow down"}, "throttled", ""),
        ({"error": {"code": 429}}, "throttled", ""),
        ({"code": 503}, "transient", ""),
        ({"error": "internal_server_error"}, "transient", ""),
        ({"error": "Rate limit exceeded"}, "throttled", ""),
        ({"error": {"status": 404, "message": "no such user"}}, "miss", ""),
        ({"code": 404, "user": None}, "miss", ""),
        ({"ok": True, "error": None, "user": None}, "miss", ""),
        ({"success": 1, "error": "", "errors": [], "status": "ok", "code": 0, "user": {}}, "miss", ""),
        ({"status": "inactive", "user": None}, "miss", ""),
        ({"user": ADA, "ok": False}, "found", ""),
        ({"data": None, "errors": [{"message": "?"}]}, "permanent", '{"errors": [{"message": "?"}]}'),
        ({"errors": [{"message": "?"}]}, "permanent", ""),
        ({"data": {"user": None}, "errors": [{"message": "?"}]}, "permanent", ""),
        ({"data": {"user": ADA}, "errors": []}, "miss", ""),
        ({"errors": [{"status": "503", "title": "?"}]}, "transient", ""),
        ({"errors": [{"status": "404", "title": "?"}]}, "miss", ""),
        ({"errors": [{"type": "https://h/problems/resource-not-found"}]}, "miss", ""),
        ({"user": None, "error": "not_found"}, "miss", ""),
        ({"user": None, "error": "Not found."}, "miss", ""),
        ({"error": {"code": "NOT_FOUND", "message": "?"}}, "miss", ""),
        ({"user": None, "errorCode": "00000", "hasErrors": False, "errorMessages": []}, "miss", ""),
        ({"user": None, "hasErrors": True}, "permanent", ""),
        ({"errorMessages": ["no such field"]}, "permanent", ""),
        ({"odata.error": {"code": "BadRequest"}}, "permanent", ""),
        ({"status": False, "message": "Invalid key"}, "permanent", '"message": "Invalid key"'),
        ({"status": "UNAUTHENTICATED"}, "permanent", ""),
        ({"user": {}, "timed_out": True}, "transient", ""),
        ({"meta": {"code": 400, "error_message": "bad"}}, "permanent", "bad"),
        ({"meta": {"code": 429}, "user": {}}, "throttled", ""),
        ({"meta": {"code": 200}, "user": {}}, "miss", ""),
        ({"status": {"state": "FAILED"}}, "permanent", "FAILED"),
        ({"error": {"code": 6, "error_msg": "Too many requests per second"}}, "throttled", ""),
        ({"Note": "Our standard API call frequency is 5 calls per minute."}, "throttled", ""),
        ({"user": [], "note": "5 calls per minute are free"}, "miss", ""),
        # Something else stands where the rows should.
        ({"message": "no such key"}, "permanent", "there is nothing at 'rows' = 'user'"),
        ({"detail": "Not authenticated"}, "permanent", '{"detail": "Not authenticated"}'),
        ({"code": 7, "msg": "bad key", "requestId": "x"}, "permanent", '"msg": "bad key"'),
        ({"code": 0, "msg": "ok"}, "miss", ""),
        ({"code": 200, "message": "OK", "total": 0}, "miss", ""),
        ({"code": 200, "message": "nobody of that name"}, "permanent", "there is nothing at"),
        ({"status": "1", "info": "OK", "infocode": "10000"}, "permanent", "there is nothing at"),
        ({"code": 1, "msg": "查询成功"}, "permanent", "there is nothing at"),
        ({"success": True, "message": "nobody is called so"}, "permanent", "there is nothing at"),
        ({"message": "Not found"}, "miss", ""),
        ({"message": "hello", "author": {"id": 7}}, "permanent", "there is nothing at"),
        ({"message": ""}, "miss", ""),
        ({"total": 0}, "miss", ""),
        ("Unauthorized", "permanent", "the answer is something else. It says: Unauthorized"),
        ([ADA], "permanent", "there is nothing at 'rows' = 'user'"),
        ([], "miss", ""),
        ("", "miss", ""),
        ("Not found", "miss", ""),
        (False, "miss", ""),
        ({"user": None, "success": 0}, "permanent", '{"success": 0}'),
        ({"user": [], "success": 0}, "miss", ""),
        ({"user": None, "resultCode": "FAIL"}, "permanent", ""),
        ({"faultcode": "Server", "faultstring": "?"}, "permanent", ""),
        ({"user": None, "exceptions": [{"message": "?"}]}, "permanent", ""),
        ({"user": None, "message": "nobody is called so"}, "miss", ""),
        ({"user": None, "code": 10001}, "miss", ""),
        ({"user": None, "code": 10001, "message": "bad key"}, "permanent", '"code": 10001'),
        ({"user": None, "code": "PARAM_ERROR", "message": "bad key"}, "permanent", "PARAM_ERROR"),
        ({"user": [], "status": "0", "info": "INVALID_USER_KEY"}, "transient", "INVALID_USER_KEY"),
        ({"user": [], "status": "0"}, "transient", '{"status": "0"}'),
        ({"user": None, "status": "0", "message": "NOTOK"}, "transient", "NOTOK"),
        ({"user": [], "status": "0", "message": "rate limit reached"}, "throttled", ""),
        ({"user": [], "status": "0", "message": "No user found"}, "miss", ""),
        ({"user": [], "status": "1", "info": "OK"}, "miss", ""),
        ({"user": "Max rate limit reached", "status": "0"}, "throttled", ""),
        ({"user": "Invalid API Key", "status": "0"}, "permanent", "Invalid API Key"),
        ({"user": None, "status": 0, "info": "INVALID_KEY"}, "permanent", "INVALID_KEY"),
        ({"user": None, "status": 0, "message": "Success"}, "miss", ""),
        ({"user": None, "status": 0}, "miss", ""),
        ({"user": None, "code": "DE", "currency": "EUR"}, "miss", ""),
        ({"user": {}, "code": 10001, "message": "bad key"}, "miss", ""),
        ({"status": {"state": "PENDING"}}, "transient", "The answer is not there yet."),
        ({"jobComplete": False}, "transient", ""),
        ({"user": None, "status": "processing"}, "transient", ""),
        ({"user": [], "status": "pending"}, "miss", ""),
        ({"user": ADA, "status": "processing", "done": False}, "found", ""),
    ],
    ids=str,
)
def test_an_error_inside_a_200_is_no_miss(body: Any, kind: str, shown: str) -> None:
    told = outcome({"rows": "user"}, response(body), response({"user": ADA}))
    assert told.kind == ("found" if kind == "throttled" else kind), told.error
    assert len(told.pauses) == (kind == "throttled")
    assert shown in str(told.error)
    if "there is nothing at" in str(told.error):
        assert "'miss-when' = '!user'" in str(told.error)
        assert outcome({"rows": "user", "miss-when": "!user"}, response(body)).kind == "miss"
    elif told.kind == "permanent":
        assert f"table people: {HOME}:443 answered 200 to GET, and says that it failed." in str(told.error)
        assert "say with 'error-when' what is a failure" in str(told.error)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"code": 10001, "data": None}, "permanent"),
        ({"code": "10001"}, "permanent"),
        ({"code": -1, "data": None}, "permanent"),
        ({"code": 10001, "data": []}, "miss"),
        *(
            ({"code": code, "data": None}, "miss")
            for code in (0, 1, "0000", 200, 1000, 20000, "SUCCESS", "DE")
        ),
    ],
    ids=str,
)
def test_a_number_beside_general_data_is_a_failure_unless_some_write_it_for_success(
    data: Any, kind: str
) -> None:
    assert outcome({"rows": "data.user"}, response(data)).kind == kind
    assert outcome({"rows": "data.user", "error-when": "`false`"}, response(data)).kind == "miss"


def test_a_text_or_list_on_the_way_to_the_rows_is_something_else() -> None:
    for data, kind in (("no rights", "permanent"), ([ADA], "permanent"), ([], "miss"), (False, "miss")):
        assert outcome({"rows": "data.items"}, response({"data": data})).kind == kind
    assert outcome({"rows": "data[].items[]"}, response({"data": [{"items": [ADA]}]})).rows == [ADA]


def test_hits_of_which_there_are_more_are_not_all() -> None:
    options = {"rows": "hits.hits[]._source"}
    for total, relation, kind in ((2, "eq", "permanent"), (1, "gte", "found"), (1, "eq", "found")):
        hits = {"total": {"value": total, "relation": relation}, "hits": [{"_source": ADA}]}
        assert outcome(options, response({"took": 1, "timed_out": False, "hits": hits})).kind == kind


def test_errors_are_seen_on_the_way_to_the_rows() -> None:
    for data in ({"error": "bad"}, {"success": False, "items": []}):
        assert outcome({"rows": "data.items"}, response({"data": data})).kind == "permanent"
    row = {"data": {"items": [{"id": "1", "name": "Ada", "error": "E1"}], "ok": False}}
    assert outcome({"rows": "data.items"}, response(row)).rows == [ADA]


@pytest.mark.parametrize(
    ("data", "path", "kind"),
    [
        ({"user": ADA, "posts": None}, ["posts", 0], "found"),
        ({"user": None, "posts": None}, ["posts"], "miss"),
        ({"user": {**ADA, "name": None}}, ["user", "name"], "permanent"),
        ({"user": ADA}, [], "permanent"),
        (None, ["posts"], "permanent"),
    ],
    ids=str,
)
def test_an_error_of_another_field_of_graphql_is_not_ours(data: Any, path: list[Any], kind: str) -> None:
    body = {"data": data, "errors": [{"message": "?", "path": path}]}
    assert outcome({"rows": "data.user"}, response(body)).kind == kind
    assert outcome({"rows": "data"}, response(body)).kind == "permanent"


def test_a_document_that_is_the_row_may_have_members_of_any_name() -> None:
    schema = pa.schema([("id", pa.string()), ("error", pa.string()), ("status", pa.string())])
    body = {"error": "ratelimited", "status": "failed"}
    assert outcome({}, response(body), schema=schema).rows == [{"id": "1", **body}]
    graphql = {"data": None, "errors": [{"message": "?"}]}
    options = {"path.name": "errors[0].message"}
    assert outcome(options, response(graphql)).rows == [{"id": "1", "name": "?"}]
    assert outcome({"path.name": "data.user.name"}, response(graphql)).kind == "permanent"


def test_a_limit_is_seen_where_the_document_should_be_the_row() -> None:
    told = outcome({}, response({"ok": False, "error": "ratelimited"}), response(ADA))
    assert (told.rows, told.pauses) == ([ADA], [None])


@pytest.mark.parametrize(
    ("rules", "body", "kind"),
    [
        ({"error-when": "meta.bad"}, {"meta": {"bad": True}, "user": ADA}, "permanent"),
        ({"error-when": "meta.bad"}, {"meta": {"bad": ""}, "user": ADA}, "found"),
        ({"error-when": "meta.bad"}, {"meta": {"bad": {}}, "user": ADA}, "found"),
        ({"error-when": "meta.bad", "error-kind": "transient"}, {"meta": {"bad": "x"}}, "transient"),
        ({"error-when": "meta.bad", "error-kind": "Throttled"}, {"meta": {"bad": [0]}}, "throttled"),
        ({"error-when": "!ok", "error-kind": "permanent"}, {"error": "ratelimited"}, "permanent"),
        ({"error-when": "!ok"}, {"error": "ratelimited"}, "throttled"),
        ({"error-when": "code && (code == `7` && 'transient' || 'permanent')"}, {"code": 7}, "transient"),
        ({"error-when": "code && (code == `7` && 'transient' || 'permanent')"}, {"code": 8}, "permanent"),
        ({"error-when": "code && (code == `7` && 'transient' || 'permanent')"}, {"user": ADA}, "found"),
        ({"error-when": "`false`"}, {"ok": False, "error": "ratelimited"}, "miss"),
        ({"error-when": "`false`"}, {"data": None, "errors": [{"message": "?"}]}, "miss"),
        ({"error-when": "sort(ok)"}, {"ok": False}, "permanent"),
        ({"error-kind": "transient"}, {"ok": False}, "transient"),
    ],
    ids=str,
)
def test_what_is_a_failure_can_be_said(rules: dict[str, str], body: Any, kind: str) -> None:
    told = outcome({"rows": "user", **rules}, response(body), response({"ok": True, "user": ADA}))
    assert told.kind == ("found" if kind == "throttled" else kind), told.error
    assert len(told.pauses) == (kind == "throttled")


def test_a_kind_that_the_expression_names_counts_for_other_codes() -> None:
    rules = {"error-when": "code == 'burst' && 'throttled'", "error-message": "detail"}
    told = outcome(rules, response({"code": "burst"}, 400), response(ADA))
    assert (told.rows, told.pauses) == ([ADA], [None])
    other = outcome(rules, response({"code": "bad", "detail": "no such\n field"}, 400))
    assert "answered 400 to GET. It says: no such field Check 'url'" in str(other.error)
    assert outcome(rules, response({"code": "burst"}, 404)).kind == "miss"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"error-when": "a ="}, "'error-when': it is not JMESPath"),
        ({"error-message": "a["}, "'error-message': it is not JMESPath"),
        ({"error-when": 'error == "ratelimited"'}, "For the text write 'ratelimited' or `\"ratelimited\"`"),
        ({"rows": 'items[?kind != "a"]'}, '"a" behind a comparison is the member of that name, and no text'),
        ({"error-when": "${env:X}"}, "'error-when' may not be a reference"),
        (
            {"paging": "next_url", "paging-path": "@odata.nextLink"},
            'Put a name with such characters in quotes: "@odata.nextLink"',
        ),
        ({"rows": "data.odd-name"}, 'Put a name with such characters in quotes: data."odd-name"'),
        ({"rows": "$.data.items"}, "JMESPath begins with no $: data.items"),
    ],
)
def test_expressions_that_mean_something_else_are_refused(options: dict[str, str], shown: str) -> None:
    with pytest.raises(Exception, match="table people") as raised:
        outcome(options)
    assert shown in str(raised.value)


def test_a_name_in_quotes_may_be_compared_where_it_is_meant() -> None:
    assert parse_path('"@type" == \'x\' && @."a b" == `1`').find({"@type": "x", "a b": 1}) is True


def test_what_is_proposed_leads_to_the_next_page() -> None:
    linked = {"items": [ADA], "links": [{"rel": "next", "href": "/x/2"}]}
    assert "'paging-path' = 'links[?rel==''next''] | [0].href'" in str(
        outcome({"rows": "items"}, response(linked)).error
    )
    counted = {"items": [ADA], "page": 1, "pages": 2}
    assert "'paging' = 'page' or 'offset'" in str(outcome({"rows": "items"}, response(counted)).error)
    unfinished = {"id": "query", "nextUri": "/x/2"}
    assert "in its member nextUri that there is more" in str(
        outcome({"rows": "data"}, response(unfinished)).error
    )


# --- nothing at the way to the rows ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "body", "shown"),
    [
        ("data", {"items": [ADA]}, "there is nothing at 'rows' = 'data': the answer has no 'data' but 'items'."),
        ("_embedded.customers", {"_embedded": {"customerList": [ADA]}, "_links": {}},
         "the answer has no 'customers' but 'customerList'. Did you mean 'customerList'?"),
        ("data.user", {"data": {"account": ADA}}, "has no 'user' but 'account'"),
        ("data.user", {"Data": {"user": ADA}, "ok": True}, "Did you mean 'Data'?"),
        ("items[?ok]", {"item": [ADA]}, "Did you mean 'item'?"),
        ("results[0].series[]", {"result": [{"series": [ADA]}]}, "Did you mean 'result'?"),
    ],
)  # fmt: skip
def test_rows_that_stand_elsewhere_are_no_misses(rows: str, body: Any, shown: str) -> None:
    for rules in ({}, {"error-when": "error"}, {"miss-when": "error"}):
        told = outcome({"rows": rows, **rules}, response(body))
        assert told.kind == "permanent"
        assert shown in str(told.error)
    assert outcome({"rows": rows, "miss-when": "`true`"}, response(body)).kind == "miss"


@pytest.mark.parametrize(
    ("rows", "body"),
    [
        (
            "_embedded.customers",
            {"_links": {"self": {"href": "/x"}}, "page": {"size": 20, "totalElements": 0}},
        ),
        ("_embedded.customers", {"_embedded": {}, "_links": {"self": {"href": "/x"}}}),
        ("_embedded.customers", {"_links": {"self": {"href": "/x"}}}),
        ("items", {"kind": "books#volumes", "totalItems": 0}),
        ("value", {"@odata.context": "$metadata#people"}),
        ("Item", {}),
        ("data", {"data": None, "links": {"self": "/x"}}),
        ("data", {"jsonapi": None, "meta": {"count": 0}}),
        ("data", {"status": "ok"}),
        ("data", {"success": True}),
        ("data.user", {"data": None}),
        ("data.user", {"data": {}}),
        ("data.user", {}),
        ("data.user", None),
    ],
    ids=str,
)
def test_an_answer_that_has_nothing_but_itself_is_a_miss(rows: str, body: Any) -> None:
    assert outcome({"rows": rows}, response(body)).kind == "miss"


def test_pages_without_a_place_for_rows_are_empty_where_another_has_one() -> None:
    options = {"rows": "data", "paging": "next_url", "paging-path": "nextUri"}
    queued = response({"id": "q", "nextUri": "/x/2", "stats": {"state": "QUEUED"}})
    ended = response({"id": "q", "stats": {"state": "FINISHED"}})
    told = outcome(options, queued, response({"id": "q", "data": [ADA], "nextUri": "/x/3"}), ended)
    assert told.rows == [ADA], told.error
    assert "there is nothing at 'rows' = 'data'" in str(outcome(options, queued, ended).error)


# --- paths of columns that no row has ---------------------------------------------------------------

THREE = pa.schema([("id", pa.string()), ("name", pa.string()), ("other", pa.string())])


@pytest.mark.parametrize(
    ("path", "row", "shown"),
    [
        ("data.nam", {"data": {"name": "Ada", "zip": "1"}},
         "no row has had 'nam' so far, to which the path data.nam of column 'name' leads: the row for id = '1'"
         " has 'name', 'zip' there. Did you mean 'name'?"),
        ("first_name", {"firstName": "Ada"}, "Did you mean 'firstName'?"),
        ("Data.name", {"data": {"name": "Ada"}}, "Did you mean 'data'?"),
        ("lables[].text", {"labels": [{"text": "Ada"}]}, "Did you mean 'labels'?"),
        ("titel", {"title": "Ada"}, "Did you mean 'title'?"),
        ("data.nam", {"data": {"nickname": "Ada"}}, ""),
        ("data.nam", {"data": {}}, ""),
        ("data.nam", {"data": None}, ""),
        ("data.nam", {"data": {"nam": None, "name": "Ada"}}, ""),
        ("address2", {"address1": "Ada"}, ""),
        ("updated_at", {"created_at": "Ada"}, ""),
        ("parent", {"parent_id": "Ada"}, ""),
        ("others", {"other": "what another column reads"}, ""),
        ("not_null(data.nam)", {"data": {"name": "Ada"}}, ""),
    ],
)  # fmt: skip
def test_a_path_that_is_nearly_one_of_the_row_is_an_error(path: str, row: Any, shown: str) -> None:
    told = outcome({"path.name": path}, response({"id": "1", "other": "x", **row}), schema=THREE)
    assert told.kind == ("permanent" if shown else "found"), told.error
    assert shown in str(told.error)
    assert not shown or f"'path.name' = 'not_null({path})'" in str(told.error)


@pytest.mark.parametrize(("rows", "kind"), [(50, "found"), (51, "permanent")])
def test_a_path_that_no_row_has_is_an_error_after_some(rows: int, kind: str) -> None:
    told = outcome({"path.name": "profile.title"}, response([{"id": "1", "other": "x"}] * rows), schema=THREE)
    assert told.kind == kind, told.error
    if kind == "permanent":
        assert "no row has had 'profile' so far" in str(told.error)
    one_has_it = [{"other": "x"}] * 100 + [{"other": "x", "profile": {"title": "Countess"}}]
    assert len(outcome({"path.name": "profile.title"}, response(one_has_it), schema=THREE).rows) == 101


def test_rows_without_a_path_are_counted_over_answers() -> None:
    table = LookupTable("people", THREE, (), {"url": f"{HOME}/x/{{id}}", "path.name": "profile.title"})
    reader = plan_of(table).reader
    found = FoundRows.of([FoundRow({"other": "x"}, None, {"id": "1"}, RowMetadata("hit"))])
    for _ in range(50):
        reader.as_table(found, THREE)
    with pytest.raises(HttpFailure, match="no row has had 'profile' so far"):
        reader.as_table(found, THREE)


def test_a_column_that_only_feeds_the_request_need_not_be_in_rows() -> None:
    options = {"url": f"{HOME}/x/{{id}}?o={{other}}"}
    assert outcome(options, response([{"name": "Ada"}] * 60), schema=THREE).kind == "found"


# --- misses that are said ---------------------------------------------------------------------------

MOVIE = {"Response": "False", "Error": "Movie not found!"}
HUBSPOT = {"status": "error", "category": "OBJECT_NOT_FOUND", "message": "no such object"}


@pytest.mark.parametrize(
    ("options", "answer", "without", "kind"),
    [
        ({"miss-when": "Error == 'Movie not found!'"}, response(MOVIE), "permanent", "miss"),
        ({"miss-when": "Error == 'Movie not found!'"}, response({**MOVIE, "Error": "Invalid API key!"}),
         "permanent", "permanent"),
        ({"miss-when": "Response == 'False'", "rows": "Search"}, response(MOVIE), "permanent", "miss"),
        ({"miss-when": "category == 'OBJECT_NOT_FOUND'"}, response(HUBSPOT, 400), "permanent", "miss"),
        ({"miss-when": "category == 'OBJECT_NOT_FOUND'"}, response({"category": "SCOPES"}, 403), "permanent",
         "permanent"),
        ({"miss-when": "code == 'NoSuchKey'"}, response({"code": "NoSuchKey"}, 500), "transient", "miss"),
        ({"miss-when": "code == 'NoSuchKey'"}, response(b"<html>", 500), "transient", "transient"),
        ({"miss-when": "length(code) > `3`"}, response({"code": 5}, 500), "transient", "transient"),
        ({"miss-when": "errors[?category == 'OBJECT_NOT_FOUND']", "rows": "results"},
         response({"results": [], "errors": [HUBSPOT]}), "permanent", "miss"),
        ({"miss-when": "error == 'user_not_found'", "error-when": "ok == `false`", "rows": "user"},
         response({"ok": False, "error": "user_not_found"}), "permanent", "miss"),
        ({"miss-when": "!found", "rows": "item"}, response({"found": False, "item": {"name": ""}}), "found",
         "miss"),
        ({"miss-when": "!found", "rows": "item"}, response({"found": True, "item": ADA}), "found", "found"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_a_miss_can_be_said_whatever_the_code(
    options: dict[str, str], answer: Response, without: str, kind: str
) -> None:
    told = outcome(options, answer)
    assert told.kind == kind, told.error
    unsaid = {key: text for key, text in options.items() if key != "miss-when"}
    assert outcome(unsaid, answer).kind == without


def test_of_many_keys_those_are_kept_that_were_found_beside_a_miss() -> None:
    options = {
        "url": f"{HOME}/x?ids={{id}}", "keys-per-request": "9", "rows": "results",
        "miss-when": "errors[?category == 'OBJECT_NOT_FOUND']",
    }  # fmt: skip
    body = {"results": [ADA], "errors": [HUBSPOT]}
    assert outcome(options, response(body), keys={"id": ["1", "2"]}).rows == [ADA]
    assert outcome(options, response({**body, "results": []}), keys={"id": ["1", "2"]}).kind == "miss"


def test_a_rule_for_misses_that_cannot_be_followed_is_an_error() -> None:
    told = outcome({"miss-when": "length(code) > `3`"}, response({"code": 5, "name": "Ada"}))
    assert "'miss-when', length(code) > `3`, cannot be followed: In function length()" in str(told.error)


# --- keys that have no place in the request of others ----------------------------------------------


def test_a_key_that_holds_the_comma_of_its_list_fails_alone() -> None:
    schema = pa.schema([("id", pa.string()), ("lang", pa.string()), ("name", pa.string())])
    options = {
        "connector": "http",
        "url": f"{HOME}/x?ids={{id}}&lang={{lang}}",
        "keys-per-request": "9",
        "list-columns": "id",
    }
    keys = {"id": ["a", "b,c", "d", ",", "e"], "lang": ["de", "de", "de", "fr", "fr"]}
    told = Outcome()
    found = answer(told, options, [response([ADA | {"id": "d"}]), response([])], schema, keys)
    assert isinstance(found, Outcomes)
    assert found.rows.to_pylist() == [{"id": "d", "lang": "de", "name": "Ada"}]
    assert [each.url for each in told.asked] == [f"{HOME}/x?ids=a,d&lang=de", f"{HOME}/x?ids=e&lang=fr"]
    assert {at: str(error) for at, error in found.failures.items()} == {
        at: f"table people: the key id = {text!r} holds the comma that separates the keys of a request."
        " In parameters set 'list-style' = 'repeat'; else write an array in a JSON 'body', or leave"
        " 'keys-per-request' out."
        for at, text in ((1, "b,c"), (3, ","))
    }


# --- codes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind", "shown"),
    [
        (202, {}, "transient", "The answer is not there yet."),
        (202, None, "transient", "answered 202 to GET. The answer is not there yet."),
        (202, {"id": "1", "name": None, "state": "queued"}, "transient", "queued"),
        (200, ADA, "found", ""),
        (201, ADA, "found", ""),
        (203, ADA, "found", ""),
        (204, None, "miss", ""),
        (205, None, "miss", ""),
        (206, ADA, "permanent", "That is a part of what there is"),
        (207, [ADA], "permanent", "Each part of it has an outcome of its own."),
        (226, ADA, "permanent", "That is a change and not the whole"),
        (300, [ADA], "permanent", "It offers several answers"),
        (304, None, "permanent", "leave 'header.If-None-Match' and the like out"),
    ],
)
def test_not_every_2xx_is_an_answer(status: int, body: Any, kind: str, shown: str) -> None:
    told = outcome({}, response(body, status))
    assert told.kind == kind, told.error
    assert shown in str(told.error)
    if kind != "miss":
        assert outcome({"success-codes": "2XX,3XX"}, response(ADA, status)).rows == [ADA]


@pytest.mark.parametrize("status", [202, 500, 503])
def test_the_pause_of_a_failure_that_may_pass_is_kept(status: int) -> None:
    options = {"on-throttle": "fail"}
    error = outcome(options, response({}, status, retry_after="30")).error
    assert error is not None
    assert (error.permanent, error.retry_after) == (False, 30.0)


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind"),
    [
        (403, {"message": "no"}, {}, "permanent"),
        (403, {"message": "no"}, {"x_ratelimit_remaining": "7"}, "permanent"),
        (403, {"message": "no"}, {"retry_after": "7"}, "throttled"),
        (403, {"message": "no"}, {"x_ratelimit_remaining": "0"}, "throttled"),
        (403, {"message": "You have exceeded a secondary rate limit."}, {}, "throttled"),
        (403, {"message": "You have triggered an abuse detection mechanism."}, {}, "throttled"),
        (403, b"<html>rate limit</html>", {}, "permanent"),
        (400, {"message": "the rate limit must be a number"}, {}, "permanent"),
        (420, None, {}, "throttled"),
        (429, {"error": {"code": "insufficient_quota"}}, {"x_should_retry": "false"}, "permanent"),
        (400, {"error": {"status": "RESOURCE_EXHAUSTED"}}, {}, "throttled"),
        (500, {"retry": "no"}, {"stripe_should_retry": "false"}, "permanent"),
        (409, {}, {"stripe_should_retry": "true"}, "transient"),
        (404, {"error": "ratelimited"}, {}, "miss"),
    ],
)
def test_limits_are_told_by_codes_headers_and_words(
    status: int, body: Any, headers: dict[str, str], kind: str
) -> None:
    told = outcome({}, response(body, status, **headers), response(ADA))
    assert told.kind == ("found" if kind == "throttled" else kind), told.error
    assert len(told.pauses) == (kind == "throttled")


def test_a_403_that_is_a_limit_says_its_pause_and_no_rights() -> None:
    limited = response({"message": "API rate limit exceeded"}, 403, retry_after="60")
    text = str(outcome({}, limited, timeout=5).error)
    assert "answered 403 and wants a pause of 60 s. It says:" in text
    assert "That is longer than this lookup has left: raise 'timeout'." in text
    assert "rights" not in text
    spent = response({"error": {"errors": [{"reason": "dailyLimitExceeded"}]}}, 403)
    assert "A quota of these credentials is used up" in str(outcome({}, spent).error)


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "link"),
    [
        ('<u>; rel="next"', "u"),
        ("<u>; rel=next", "u"),
        ("<u>; REL=Next", "u"),
        ("<u>; rel='next'", "u"),
        ('<u>;rel="prev next"', "u"),
        ('<u>; rel = "next"', "u"),
        ('<u>; title="start, index"; rel="next"', "u"),
        ("<u>; title='start, index'; rel='next'", "u"),
        ('<u>; title="a \\"b\\"; rel=prev"; rel="next"', "u"),
        ('<a>; rel="prev"; title="rel=next", <u>; rel="next"', "u"),
        ('<a>; rel="prev", , <u?a=1,2;b>; rel="next"', "u?a=1,2;b"),
        ("<u>; title*=UTF-8''a%2Cb; rel=next", "u"),
        ('<u>; crossorigin; rel="next"', "u"),
        ('<u>; rel="next"; rel="prev"', "u"),
        ('<u>; rel="next"; anchor=""', "u"),
        (f'<u>; rel="next"; anchor="{URL}"', "u"),
        ('<u>; rel="next"; anchor="/other"', None),
        ('<u>; rel="next"; anchor="#part"', None),
        ('<u>; rel="prev"; rel="next"', None),
        ('<u>; rel="nextpage"', None),
        ('<u>; title="rel=next"', None),
        ("<u>; rev=next", None),
        ("<u>", None),
        ("", None),
    ],
)
def test_a_link_is_read_by_its_grammar(header: str, link: str | None) -> None:
    assert next_link(header, URL) == link
    pages = [response([ADA], link=header), response([{"name": "Bob"}])]
    told = outcome({"paging": "link"}, *pages)
    assert len(told.rows) == (2 if link else 1), told.error


def test_a_link_leads_on_from_where_the_answer_came() -> None:
    moved = Response(307, {"location": "/moved/here/1"}, b"")
    page = response([ADA], link='<2>; rel="next"')
    told = outcome({"paging": "link"}, moved, page, response([{"name": "Bob"}]))
    assert [each.url for each in told.asked] == [URL, f"{HOME}/moved/here/1", f"{HOME}/moved/here/2"]


@pytest.mark.parametrize("header", ['u; rel="next"', '<u; rel="next"', '<u>; rel="next', "<u> rel=next"])
def test_a_link_that_cannot_be_read_is_an_error_where_it_is_to_be_followed(header: str) -> None:
    told = outcome({"paging": "link"}, response([ADA], link=header))
    assert told.kind == "permanent"
    assert "the header Link cannot be read" in str(told.error)
    assert "says in the header Link that there is more" in str(
        outcome({}, response([ADA], link=header)).error
    )
    unread = response([ADA], link=header.replace("next", "prev"))
    assert outcome({}, unread).kind == "found", "it may say anything"


@pytest.mark.parametrize(
    ("beside", "where"),
    [
        ({"next": "/x?page=2"}, "next"),
        ({"next": {"href": "/x"}}, "next"),
        ({"has_more": True}, "has_more"),
        ({"hasMore": True}, "hasMore"),
        ({"nextPageToken": "abc"}, "nextPageToken"),
        ({"@odata.nextLink": "/x"}, '"@odata.nextLink"'),
        ({"next_cursor": "abc"}, "next_cursor"),
        ({"pagination": {"next": "/x"}}, "pagination.next"),
        ({"paging": {"next": {"after": "5"}}}, "paging.next"),
        ({"meta": {"pagination": {"next_url": "/x"}}}, "meta.pagination.next_url"),
        ({"_links": {"next": {"href": "/x"}}}, "_links.next"),
        ({"links": {"next": "/x"}}, "links.next"),
        ({"pageInfo": {"hasNextPage": True}}, "pageInfo.hasNextPage"),
        ({"LastEvaluatedKey": {"id": {"S": "1"}}}, "LastEvaluatedKey"),
        ({"isLast": False}, "isLast"),
        ({"offset": "itrX/recY"}, "offset"),
        ({"startAt": 0, "total": 9}, "total"),
        ({"startIndex": 1, "totalResults": 2}, "totalResults"),
        ({"startIndex": 1, "totalResults": 1}, ""),
        ({"page": {"number": 0, "totalPages": 2}}, "page.totalPages"),
        ({"page": {"number": 1, "totalPages": 2}}, ""),
        ({"info": {"next": "/x"}}, "info.next"),
        ({"exceededTransferLimit": True}, "exceededTransferLimit"),
        (
            {"links": [{"rel": "self", "href": "/"}, {"rel": "next", "href": "/x"}]},
            "links[?rel=='next'] | [0].href",
        ),
        ({"link": [{"relation": "next", "url": "/x"}]}, "link[?relation=='next'] | [0].url"),
        ({"links": [{"rel": "self", "href": "/x"}]}, ""),
        ({"page": 1, "total_pages": 3}, "total_pages"),
        ({"continue": {"sroffset": 10}}, "continue"),
        ({"next": None, "has_more": False, "next_cursor": "", "nextPageToken": ""}, ""),
        ({"pagination": {"next": None, "total": 99}, "links": {"next": None, "self": "/x"}}, ""),
        ({"startAt": 8, "total": 9}, ""),
        ({"page": 3, "total_pages": 3}, ""),
        ({"total": 120, "offset": 5}, "total"),
        ({"total": 120.5, "currency": "EUR"}, ""),
        ({"total": 120}, ""),
        ({"isLast": True, "last": True}, ""),
        ({"owner": {"next": "of kin"}}, ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("inside", [False, True])
def test_an_answer_that_says_that_there_is_more_is_not_taken_for_all(
    beside: dict[str, Any], where: str, inside: bool
) -> None:
    document = {"items": [ADA], **beside}
    answer = response({"data": document} if inside else document)
    options = {"rows": "data.items" if inside else "items"}
    told = outcome(options, answer)
    if not where:
        assert told.rows == [ADA], told.error
        return
    place = f"data.{where}" if inside else where
    assert told.kind == "permanent"
    assert f"says in its member {place} that there is more, and 'paging' is not set" in str(told.error)
    assert outcome({**options, "paging": "none"}, answer).rows == [ADA]


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({}, {**ADA, "next": "/x", "has_more": True}),
        ({"rows": "user"}, {"user": ADA, "next": "/x"}),
        ({"rows": "items"}, {"items": [{**ADA, "next": "/x", "has_more": True}]}),
        ({"rows": "items[0]"}, {"items": [ADA, ADA], "has_more": True}),
        ({}, [{**ADA, "next": "/x"}]),
        ({"row-key": "id"}, {"1": {"name": "Ada", "next": "/x"}}),
    ],
)
def test_what_stands_in_rows_says_nothing_of_pages(options: dict[str, str], body: Any) -> None:
    assert outcome(options, response(body)).rows == [ADA]


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"link": '<2>; rel="next"'}, "in the header Link that there is more"),
        ({"content_range": "items 0-0/9"}, "in the header Content-Range that there is more"),
        ({"content_range": "0-0/1"}, ""),
        ({"content_range": "0-0/*"}, ""),
        ({"link": '<0>; rel="prev"'}, ""),
    ],
)
def test_headers_say_that_there_is_more(headers: dict[str, str], shown: str) -> None:
    told = outcome({}, response([ADA], 200, **headers))
    assert told.kind == ("permanent" if shown else "found")
    assert shown in str(told.error)
    assert outcome({}, response(ADA, 200, **headers)).kind == "found", "one row has no pages"


def test_a_path_that_misses_the_next_page_is_no_end() -> None:
    options = {"rows": "items", "paging": "next_url", "paging-path": "links.nxt"}
    told = outcome(options, response({"items": [ADA], "links": {"next": "/x"}}))
    assert told.kind == "permanent"
    assert "says in its member links.next that there is more, and 'paging-path' finds no next page" in str(
        told.error
    )


@pytest.mark.parametrize("status", [400, 422])
def test_an_error_behind_the_last_page_speaks_of_pages(status: int) -> None:
    options = {"rows": "items", "paging": "page", "paging-parameter": "page"}
    pages = response({"items": [ADA]}), response({"message": "page out of range"}, status)
    text = str(outcome(options, *pages).error)
    assert f"answered {status} to GET" in text
    assert "It was asked for page 2, as 'paging' = 'page' says; the pages before it were read." in text
    assert (
        f"Set 'page-size', so that a page with fewer rows is the last; or add {status} to 'miss-codes'."
        in text
    )
    assert outcome({**options, "miss-codes": f"404,{status}"}, *pages).rows == [ADA]
    assert "page 1" not in str(outcome(options, pages[1]).error)


# --- whose a row is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "body", "shown"),
    [
        (
            {"row-key": "id"},
            {"2": {"name": "Bob"}},
            "id = '2', where '1' was asked. The API does not select by what",
        ),
        ({"row-key": "id"}, {"ok": False, "error": "ratelimited"}, "where '1' was asked"),
        (
            {"path.id": "key"},
            {"key": " 1", "name": "Ada"},
            "id = ' 1', where '1' was asked. The API spells it otherwise",
        ),
    ],
)
def test_a_row_of_another_key_is_refused(options: dict[str, str], body: Any, shown: str) -> None:
    told = outcome(options, response(body))
    assert told.kind == "permanent"
    assert shown in str(told.error)


# --- charsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "kind", "shown"),
    [
        (
            '{"name": "é"}'.encode("latin-1"),
            "application/json",
            "no charset is named, and it is not UTF-8 at byte 11. 'charset' names it, as 'iso-8859-1'.",
        ),
        (
            '{"name": "é"}'.encode("latin-1"),
            "application/json; charset=utf-8",
            "it is not in the charset utf-8 at byte 11",
        ),
        (
            b'{"name": "e"}',
            "application/json; charset=klingon",
            "no charset is called 'klingon'; 'charset' names",
        ),
        (
            '{"name": "é"}'.encode("utf-16"),
            "application/json",
            "no charset is named, and it is not UTF-8 at byte 1",
        ),
        (b"<html>", "text/html", "the body is not JSON (text/html). It begins"),
    ],
)
def test_a_charset_that_does_not_fit_is_named(content: bytes, kind: str, shown: str) -> None:
    told = outcome({}, response(content, content_type=kind))
    assert told.kind == "permanent"
    assert shown in str(told.error)


@pytest.mark.parametrize(
    ("charset", "label"),
    [
        ("latin-1", "iso-8859-1"),
        ("utf-16", "'utf-16'"),
        ("utf-8", '"UTF-8"'),
        ("cp1252", "Windows-1252; x=y"),
        ("utf-8", "utf8mb4"),
        ("utf-8", "binary"),
    ],
)
def test_a_charset_that_is_named_is_kept(charset: str, label: str) -> None:
    content = '{"name": "é"}'.encode(charset)
    told = outcome({}, response(content, content_type=f"application/json; charset={label}"))
    assert [row["name"] for row in told.rows] == ["é"], told.error


def test_a_charset_can_be_said_for_answers_that_say_none_or_another() -> None:
    for kind in ("application/json", "application/json; charset=utf-8", "text/plain; charset=klingon"):
        content = response('{"name": "é"}'.encode("latin-1"), content_type=kind)
        told = outcome({"charset": "iso-8859-1"}, content)
        assert [row["name"] for row in told.rows] == ["é"], told.error
    for charset in ("klingon", "zlib"):
        with pytest.raises(OptionError, match=f"no charset is called '{charset}'"):
            outcome({"charset": charset}, response(ADA))
