"""Answers that say of themselves that they are not whole: beside the rows, in headers, in rows, in texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.servers.connectors.recorded import outcome, response

ADA = {"id": "1", "name": "Ada"}
BOB = {"id": "2", "name": "Bob"}
ACCEPT = {"partial": "accept"}
NAMES = {"rows": "rows", "path.name": "name"}
VIES = {"countryCode": "DE", "vatNumber": "1", "requestIdentifier": ""}
VALID = pa.schema([("id", pa.string()), ("isValid", pa.bool_())])


# --- parts that failed ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[ADA], []], ids=["rows", "none"])
@pytest.mark.parametrize(
    ("options", "document", "kind", "shown"),
    [
        ("hits.hits", {"_shards": {"total": 5, "failed": 1, "failures": [{"reason": "node down"}]},
                       "hits": {"hits": "ROWS"}}, "transient", "node down"),
        ("hits.hits", {"_clusters": {"total": 2, "skipped": 1}, "hits": {"hits": "ROWS"}}, "transient",
         '"skipped": 1'),
        ("hits.hits", {"timed_out": True, "_shards": {"failed": 0}, "hits": {"hits": "ROWS"}}, "transient",
         '"timed_out": true'),
        ("hits.hits", {"terminated_early": True, "hits": {"hits": "ROWS"}}, "permanent", "terminated_early"),
        ("responses[0].hits.hits[]", {"responses": [{"_shards": {"failed": 2}, "hits": {"hits": "ROWS"}}]},
         "transient", '"failed": 2'),
        ("response.docs", {"responseHeader": {"status": 0, "partialResults": True},
                           "response": {"docs": "ROWS"}}, "transient", "partialResults"),
        ("results[0].series[]", {"results": [{"series": "ROWS", "partial": True}]}, "transient", "partial"),
        ("elements", {"version": 0.6, "elements": "ROWS",
                      "remark": "runtime error: Query timed out in \"query\" at line 3"}, "transient",
         "runtime error: Query timed out"),
        ("items", {"incomplete_results": True, "total_count": 1, "items": "ROWS"}, "transient",
         "incomplete_results"),
        ("items", {"unreachable": ["europe-west1"], "items": "ROWS"}, "transient", "europe-west1"),
        ("Responses.people", {"UnprocessedKeys": {"people": {"Keys": [{"id": "2"}]}},
                              "Responses": {"people": "ROWS"}}, "transient", "UnprocessedKeys"),
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_which_a_part_failed_is_an_error(
    options: str, document: Any, kind: str, shown: str, rows: list[Any]
) -> None:
    def with_rows(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: with_rows(each) for name, each in value.items()}
        return list(map(with_rows, value)) if isinstance(value, list) else rows if value == "ROWS" else value

    answer = response(with_rows(document))
    told = outcome({"rows": options}, answer)
    assert told.kind == kind
    assert "answered 200 to GET, and says that" in str(told.error)
    assert shown in str(told.error)
    assert outcome({"rows": options, **ACCEPT}, answer).rows == rows or not rows


def test_what_is_partial_is_said_to_be_and_with_the_cure() -> None:
    told = outcome({"rows": "value"}, response({"value": [ADA], "error": {"code": "500", "message": "gone"}}))
    assert told.kind == "transient", "the server began to answer, and could not end"
    text = str(told.error)
    assert "answered 200 to GET, and says that it is not whole. It says:" in text
    assert '"message": "gone"' in text
    assert text.endswith("'partial' = 'accept' takes what came.")


@pytest.mark.parametrize(
    ("rows", "document", "kind"),
    [
        ("value", {"value": [ADA], "error": {"message": "gone"}}, "transient"),
        ("value", {"value": [ADA], "errors": [{"code": "THROTTLED"}]}, "throttled"),
        ("results[0].series[]", {"results": [{"statement_id": 0, "error": "shard is down"}]}, "transient"),
        ("results[0].series[]", {"results": [{"error": "timeout", "series": [ADA]}]}, "transient"),
        ("data.items", {"data": {"items": [ADA], "error": "half of it is missing"}}, "transient"),
        ("data", {"data": [ADA], "errors": [{"status": "404"}, {"type": "not-found"}]}, "found"),
        ("user", {"user": ADA, "errcode": 0, "errmsg": "done well", "error": "OK", "errors": []}, "found"),
        ("user", {"user": ADA, "errorCode": "00000", "error": None}, "found"),
        ("results[0].series[]", {"results": [{"statement_id": 0}]}, "miss"),
        ("items[?ok]", {"items": [{**ADA, "ok": True}, {"error": "no such key"}]}, "found"),
        ("items[]", {"items": [{**ADA, "error": "E1", "timed_out": True}]}, "found"),
    ],
    ids=str,
)
def test_an_error_beside_rows_says_that_others_are_missing(rows: str, document: Any, kind: str) -> None:
    told = outcome({"rows": rows}, response(document), response({"value": [ADA]}))
    assert told.kind == ("found" if kind == "throttled" else kind), told.error
    assert len(told.pauses) == (kind == "throttled")
    if kind == "transient":
        assert outcome({"rows": rows, **ACCEPT}, response(document)).kind in ("found", "miss", "permanent")
        assert outcome({"rows": rows, "error-when": "`false`"}, response(document)).kind in ("found", "miss")


@pytest.mark.parametrize(
    ("user_error", "kind"),
    [("MS_UNAVAILABLE", "transient"), ("SERVICE_UNAVAILABLE", "transient"), ("TIMEOUT", "transient"),
     ("VALID", "found"), ("INVALID", "found"), ("", "found")],
)  # fmt: skip
def test_a_document_that_is_the_row_may_say_that_nobody_knows(user_error: str, kind: str) -> None:
    body = {"isValid": kind == "found", **VIES, "userError": user_error}
    told = outcome({}, response(body), schema=VALID)
    assert told.kind == kind
    if kind != "found":
        assert user_error in str(told.error)
        assert outcome(ACCEPT, response(body), schema=VALID).rows == [{"id": "1", "isValid": False}]


def test_what_a_column_reads_says_nothing_of_the_answer() -> None:
    schema = pa.schema([("id", pa.string()), ("remark", pa.string()), ("timed_out", pa.bool_())])
    body = {"remark": "an error of mine", "timed_out": True}
    assert outcome({}, response(body), schema=schema).rows == [{"id": "1", **body}]


def test_a_count_of_which_shards_failed_is_no_row() -> None:
    schema = pa.schema([("id", pa.string()), ("count", pa.int64())])
    for failed, kind in ((1, "transient"), (0, "found")):
        assert outcome({}, response({"count": 5, "_shards": {"failed": failed}}), schema=schema).kind == kind


# --- headers and counts that say that there is more -------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "where"),
    [
        ({"x_total_count": "5"}, "header x-total-count"),
        ({"x_total": "5"}, "header x-total"),
        ({"x_wp_total": "5", "x_wp_totalpages": "3"}, "header x-wp-totalpages"),
        ({"x_next_page": "2"}, "header x-next-page"),
        ({"x_page": "1", "x_total_pages": "3"}, "header x-total-pages"),
        ({"x_pagination": '{"TotalCount": 5, "CurrentPage": 1, "TotalPages": 3}'}, "header x-pagination"),
        ({"x_ms_continuation": "abc"}, "header x-ms-continuation"),
        ({"x_has_more": "true"}, "header x-has-more"),
        ({"total_count": "5"}, "header total-count"),
        ({"link": "https://api.example/x?page=2; rel=next"}, "header Link"),
        ({"link": "<https://api.example/x?page=2; rel='next'"}, "header Link"),
        ({"x_total_count": "2"}, ""),
        ({"x_next_page": "", "x_page": "3", "x_total_pages": "3"}, ""),
        ({"x_wp_totalpages": "1"}, ""),
        ({"x_pagination": '{"TotalPages": 1}'}, ""),
        ({"x_has_more": "false", "x_per_page": "2", "last_modified": "2024"}, ""),
        ({"x_ratelimit_remaining": "5", "x_ratelimit_limit": "10"}, ""),
    ],
    ids=str,
)
def test_a_header_that_says_that_there_is_more_is_heard(headers: dict[str, str], where: str) -> None:
    for options, body in (({}, [ADA, BOB]), ({"rows": "rows"}, {"rows": [ADA, BOB]})):
        told = outcome(options, response(body, 200, **headers))
        assert told.kind == ("permanent" if where else "found"), told.error
        assert where in str(told.error)
        assert not where or "'paging' = 'none' takes the first page alone" in str(told.error)
        for cure in ({"paging": "none"}, ACCEPT):
            assert len(outcome({**options, **cure}, response(body, 200, **headers)).rows) == 2
    assert outcome({}, response(ADA, 200, **headers)).kind == "found", "one row has no pages"


@pytest.mark.parametrize(
    ("beside", "where"),
    [
        ({"total": "9", "pages": "9"}, "total"),
        ({"totalResults": "532", "Response": "True"}, "totalResults"),
        ({"total_count": 5}, "total_count"),
        ({"page": 1, "per_page": 2, "total": 5}, "total"),
        ({"page": "1", "pages": "3"}, "pages"),
        ({"limit": 2, "total": 5}, "total"),
        ({"totalPages": 3}, "totalPages"),
        ({"start": "0", "total": "5"}, "total"),
        ({"numFound": 5}, "numFound"),
        ({"resumptionToken": "x"}, "resumptionToken"),
        ({"resultTruncated": "true"}, "resultTruncated"),
        ({"meta": {"total_count": "5"}}, "meta.total_count"),
        ({"total": "9"}, ""),
        ({"limit": 100, "total": 5}, ""),
        ({"total_count": 2, "totalPages": 1}, ""),
        ({"page": 1, "per_page": 2, "total": "2"}, ""),
        ({"pages": 320}, ""),
        ({"resultTruncated": "false", "resumptionToken": ""}, ""),
    ],
    ids=str,
)
def test_totals_in_numbers_and_texts_say_that_there_is_more(beside: dict[str, Any], where: str) -> None:
    body = {"rows": [ADA, BOB], **beside}
    told = outcome({"rows": "rows"}, response(body))
    assert told.kind == ("permanent" if where else "found"), told.error
    assert where in str(told.error)
    assert len(outcome({"rows": "rows", **ACCEPT}, response(body)).rows) == 2


def test_a_list_of_what_is_said_and_the_rows_has_pages_too() -> None:
    for pages, kind in ((9, "permanent"), (1, "found")):
        body = [{"page": 1, "pages": pages, "total": 2 * pages}, [ADA, BOB]]
        told = outcome({"rows": "[1]"}, response(body))
        assert told.kind == kind
        assert ("its member [0].pages" in str(told.error)) == (kind == "permanent")


# --- totals are trusted over the size of pages ------------------------------------------------------


@pytest.mark.parametrize(
    ("paging", "first", "second", "sent"),
    [
        ({"paging": "offset", "paging-parameter": "startAt"}, {"maxResults": 2, "total": 5}, {}, "startAt=2"),
        ({"paging": "offset", "paging-parameter": "startAt"}, {"meta": {"total": "5"}}, {}, "startAt=2"),
        ({"paging": "page", "paging-parameter": "p"}, {"page": 1, "total_pages": 2}, {"page": 2}, "p=2"),
        ({"paging": "page", "paging-parameter": "p"}, {"has_more": True}, {"has_more": False}, "p=2"),
        ({"paging": "page", "paging-parameter": "p", "first-page": "0"}, {"totalPages": 2}, {}, "p=1"),
    ],
    ids=str,
)
def test_a_short_page_is_not_the_last_where_a_total_says_so(
    paging: dict[str, str], first: dict[str, Any], second: dict[str, Any], sent: str
) -> None:
    options = {"rows": "rows", "page-size": "100", **paging}
    pages = (response({"rows": [ADA, BOB], **first}), response({"rows": [ADA, BOB, ADA], **first, **second}))
    told = outcome(options, *pages)
    assert len(told.rows) == 5, told.error
    assert [sent in each.url for each in told.asked] == [False, True], "none is asked for behind the last"


def test_a_total_in_a_header_is_trusted_too() -> None:
    options = {"paging": "page", "paging-parameter": "p", "page-size": "100"}
    pages = [response(rows, 200, x_total_count="3") for rows in ([ADA, BOB], [ADA])]
    assert len(outcome(options, *pages).rows) == 3


def test_an_empty_page_before_the_total_is_an_error() -> None:
    options = {"rows": "rows", "paging": "offset", "paging-parameter": "at"}
    pages = [response({"rows": rows, "total": 5}) for rows in ([ADA, BOB], [])]
    told = outcome(options, *pages)
    assert told.kind == "permanent"
    assert "says in its member total that there is more, and page 2 is empty after 2 rows. 'partial'" in str(
        told.error
    )
    assert len(outcome({**options, **ACCEPT}, *pages).rows) == 2


def test_pages_are_counted_with_the_rows_that_an_expression_leaves_out() -> None:
    options = {"rows": "rows[?name == 'Bob']", "paging": "offset", "paging-parameter": "at", "page-size": "2"}
    told = outcome(
        options, response({"rows": [ADA, BOB]}), response({"rows": [ADA, ADA]}), response({"rows": [BOB]})
    )
    assert [row["name"] for row in told.rows] == ["Bob", "Bob"], told.error
    assert [each.url.partition("?")[2] for each in told.asked] == ["at=0", "at=2", "at=4"]


def test_a_page_that_comes_twice_is_an_error() -> None:
    options = {"rows": "rows", "paging": "offset", "paging-parameter": "ofset", "page-size": "100"}
    told = outcome(options, *[response({"rows": [ADA, BOB], "total": 5})] * 3)
    assert told.kind == "permanent"
    assert "page 2 is the one before again: the API does not page by 'paging-parameter' = 'ofset'" in str(
        told.error
    )


# --- lists inside rows that are cut -----------------------------------------------------------------

LISTED = pa.schema([("id", pa.string()), ("items", pa.list_(pa.string()))])
INSIDE = pa.schema(
    [("id", pa.string()), ("lines", pa.struct([("data", pa.list_(pa.struct([("n", pa.string())])))]))]
)
PAGES = pa.list_(pa.struct([("tags", pa.struct([("nodes", pa.list_(pa.string()))]))]))
DEEP = pa.schema([("id", pa.string()), ("items", PAGES)])


@pytest.mark.parametrize(
    ("schema", "options", "row", "where"),
    [
        (LISTED, {"path.items": "items.edges[].node.n"},
         {"items": {"edges": [{"node": {"n": "a"}}], "pageInfo": {"hasNextPage": True}}},
         "items.pageInfo.hasNextPage"),
        (LISTED, {"path.items": "items.edges[].node.n"},
         {"items": {"edges": [{"node": {"n": "a"}}], "pageInfo": {"hasNextPage": False}}}, ""),
        (LISTED, {"path.items": "Items[].n"}, {"Items": [{"n": "a"}], "Items@odata.nextLink": "http://h/x"},
         '"Items@odata.nextLink"'),
        (LISTED, {}, {"items": ["a"], "items_has_more": True}, "items_has_more"),
        (LISTED, {}, {"items": ["a"], "items_has_more": False, "next": "/x", "has_more": True}, ""),
        (LISTED, {"path.items": "lines.data[].n"}, {"lines": {"data": [{"n": "a"}], "has_more": True}},
         "lines.has_more"),
        (LISTED, {"path.items": "lines.data[].n"}, {"lines": {"data": [{"n": "a"}], "total_count": 7}},
         "lines.total_count"),
        (INSIDE, {}, {"lines": {"data": [{"n": "a"}], "has_more": True}}, "has_more"),
        (INSIDE, {}, {"lines": {"data": [{"n": "a"}], "has_more": False, "total_count": 1}}, ""),
        (DEEP, {}, {"items": [{"tags": {"nodes": []}},
                              {"tags": {"nodes": ["a"], "pageInfo": {"hasNextPage": True}}}]},
         "tags.pageInfo.hasNextPage"),
        (LISTED, {"path.items": "items.edges[].node.n"}, {"items": None}, ""),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("rows", ["@", "data.rows"])
def test_a_list_in_a_row_that_says_that_it_is_cut_is_an_error(
    schema: pa.Schema, options: dict[str, str], row: Any, where: str, rows: str
) -> None:
    answer = response({"data": {"rows": [row]}} if rows != "@" else row)
    told = outcome({"rows": rows, **options}, answer, schema=schema)
    assert told.kind == ("permanent" if where else "found"), told.error
    if where:
        column = schema.names[1]
        assert (
            f"column {column!r} of the row for id = '1' is not whole: the row says in {where} that there is"
            " more. 'partial' = 'accept' takes what came." in str(told.error)
        )
        assert outcome({"rows": rows, **options, **ACCEPT}, answer, schema=schema).kind == "found"
