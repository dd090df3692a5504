"""What well-known APIs answer, in shapes made by hand: found, not found, failed, asked too much, more pages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from lookup_connectors.http.response import Response

from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.connectors.http_asking import ask
from tests.servers.connectors.recorded import HOME, SCHEMA, Outcome, outcome, response
from tests.servers.http_server import Api as Server

DAY = 86_400
ADA = [{"id": "1", "name": "Ada"}]


class Api(NamedTuple):
    """How a table over an API is declared, and what that answers.

    Args:
        options: those of the table; ``keys-per-request`` says that several keys are asked at once.
        found: a response that holds Ada, as 1.
        missing: one that says that she is not there.
        failed: one that says that something is wrong, each with its kind.
        throttled: ones that say that it is asked too much, each with the seconds that it asks to wait.
        following: two pages, the first with Ada as 1 and the second with Bob as 2.
        unpaged: the error of the first page where ``paging`` is left out.
        partial: ones that say that they are not whole, where ``paging`` is left out.
    """

    options: Mapping[str, str]
    found: Response
    missing: Response
    failed: tuple[tuple[Response, str], ...] = ()
    throttled: tuple[tuple[Response, float | None], ...] = ()
    following: tuple[()] | tuple[Response, Response] = ()
    unpaged: str = "says in its member"
    partial: tuple[Response, ...] = ()


def in_seconds(seconds: int) -> str:
    """A moment, in seconds since 1970."""
    return str(int(time.time()) + seconds)


def options(url: str = "/x/{id}", **more: str) -> dict[str, str]:
    """Options of a table; in their names ``__`` is a dot and ``_`` a hyphen."""
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    return {"url": HOME + url, **given}


def listing(url: str = "/x?ids={id}", **more: str) -> dict[str, str]:
    """The same of a table that is asked for many keys at once."""
    return options(url, keys_per_request="50", **more)


def graphql(rows: str, **more: str) -> dict[str, str]:
    """The same of a table over GraphQL."""
    return options("/graphql", method="post", body='{"variables": {"id": "{id}"}}', rows=rows, **more)


ada, bob = {"id": "1", "name": "Ada"}, {"id": "2", "name": "Bob"}
GITHUB_LIMIT = {"message": "API rate limit exceeded for user ID 1.", "documentation_url": "https://docs"}
GOOGLE = {
    "error": {"code": 403, "message": "Rate Limit Exceeded", "errors": [{"reason": "rateLimitExceeded"}]}
}

APIS: dict[str, Api] = {
    "GitHub": Api(
        options("/users/{id}/repos", paging="link"),
        response([ada]),
        response({"message": "Not Found"}, 404),
        failed=(
            (response({"message": "Bad credentials"}, 401), "permanent"),
            (response({"message": "Resource not accessible"}, 403, x_ratelimit_remaining="59"), "permanent"),
            (response({"message": "Server Error"}, 502), "transient"),
            (response({}, 202), "transient"),
        ),
        throttled=(
            (
                response(
                    GITHUB_LIMIT, 403, x_ratelimit_remaining="0", x_ratelimit_reset=in_seconds(DAY)
                ),
                DAY,
            ),
            (response({"message": "You have exceeded a secondary rate limit."}, 403, retry_after="60"), 60),
            (response({"message": "You have exceeded a secondary rate limit."}, 403), None),
            (response(GITHUB_LIMIT, 429, retry_after="5"), 5),
        ),
        following=(
            response([ada], link=f'<{HOME}/users/1/repos?page=2>; rel="next", <{HOME}/x?page=9>; rel="last"'),
            response([bob], link=f'<{HOME}/users/1/repos?page=1>; rel="first"'),
        ),
        unpaged="says in the header Link that there is more",
    ),
    "GitHub GraphQL": Api(
        graphql("data.user.repos.nodes", paging="cursor", paging_parameter="variables.after",
                paging_path="data.user.repos.pageInfo.hasNextPage && data.user.repos.pageInfo.endCursor"),
        response({"data": {"user": {"repos": {"nodes": [ada], "pageInfo": {"hasNextPage": False}}}}}),
        response({"data": {"user": None}, "errors": [{"type": "NOT_FOUND", "path": ["user"], "message": "?"}]}),
        failed=(
            (response({"errors": [{"message": "Field 'nam' doesn't exist"}]}), "permanent"),
            (response({"data": None, "errors": [{"message": "Something went wrong"}]}), "permanent"),
            (
                response({
                    "data": {"user": {"repos": {"nodes": [ada]}}},
                    "errors": [{"type": "FORBIDDEN", "path": ["user", "repos", "nodes", 1]}],
                }),
                "permanent",
            ),
            (
                response({"data": None, "errors": [{"extensions": {"code": "INTERNAL_SERVER_ERROR"}}]}),
                "transient",
            ),
        ),
        throttled=(
            (
                response(
                    {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]},
                    x_ratelimit_remaining="0", x_ratelimit_reset=in_seconds(DAY),
                ),
                DAY,
            ),
        ),
        following=(
            response({"data": {"user": {"repos": {
                "nodes": [ada], "pageInfo": {"hasNextPage": True, "endCursor": "c1"}}}}}),
            response({"data": {"user": {"repos": {
                "nodes": [bob], "pageInfo": {"hasNextPage": False, "endCursor": "c2"}}}}}),
        ),
        unpaged="says in its member data.user.repos.pageInfo.hasNextPage that there is more",
    ),
    "Stripe": Api(
        options("/v1/customers?email={id}", rows="data", paging="cursor", paging_parameter="starting_after",
                paging_path="has_more && data[-1].id"),
        response({"object": "list", "data": [ada], "has_more": False}),
        response({"object": "list", "data": [], "has_more": False}),
        failed=(
            (response({"error": {"type": "invalid_request_error", "message": "No such"}}, 400), "permanent"),
            (response({"error": {"type": "api_error"}}, 500, stripe_should_retry="false"), "permanent"),
            (response({"error": {"code": "lock_timeout"}}, 409, stripe_should_retry="true"), "transient"),
        ),
        throttled=(
            (response({"error": {"code": "rate_limit"}}, 429, stripe_should_retry="true"), None),
            (response({"error": {"code": "rate_limit"}}, 429, retry_after="2"), 2),
        ),
        following=(
            response({"data": [ada], "has_more": True}),
            response({"data": [bob], "has_more": False}),
        ),
        unpaged="says in its member has_more that there is more",
    ),
    "Slack": Api(
        options("/users.info?user={id}", rows="user",
                error_when="ok == `false` && error != 'user_not_found'", error_message="error"),
        response({"ok": True, "user": ada}),
        response({"ok": False, "error": "user_not_found"}),
        failed=(
            (response({"ok": False, "error": "invalid_auth"}), "permanent"),
            (response({"ok": False, "error": "internal_error"}), "transient"),
        ),
        throttled=(
            (response({"ok": False, "error": "ratelimited"}, 429, retry_after="30"), 30),
            (response({"ok": False, "error": "ratelimited"}), None),
            (response({"ok": False, "error": "rate_limited"}, retry_after="30"), 30),
        ),
    ),
    "Slack, a list": Api(
        options("/conversations.members?channel={id}", rows="members", paging="cursor",
                paging_parameter="cursor", paging_path="response_metadata.next_cursor"),
        response({"ok": True, "members": [ada], "response_metadata": {"next_cursor": ""}}),
        response({"ok": True, "members": [], "response_metadata": {"next_cursor": ""}}),
        failed=((response({"ok": False, "error": "channel_not_found"}), "permanent"),),
        throttled=((response({"ok": False, "error": "ratelimited"}, 429, retry_after="30"), 30),),
        following=(
            response({"ok": True, "members": [ada], "response_metadata": {"next_cursor": "dXNlcjpV"}}),
            response({"ok": True, "members": [bob], "response_metadata": {"next_cursor": ""}}),
        ),
        unpaged="says in its member response_metadata.next_cursor that there is more",
    ),
    "Google Geocoding": Api(
        options("/geocode/json?address={id}", rows="results"),
        response({"results": [ada], "status": "OK"}),
        response({"results": [], "status": "ZERO_RESULTS"}),
        failed=(
            (response({"results": [], "status": "REQUEST_DENIED", "error_message": "No key"}), "permanent"),
            (response({"results": [], "status": "OVER_DAILY_LIMIT"}), "permanent"),
            (response({"results": [], "status": "INVALID_REQUEST"}), "permanent"),
            (response({"results": [], "status": "UNKNOWN_ERROR"}), "transient"),
        ),
        throttled=(
            (response({"results": [], "status": "OVER_QUERY_LIMIT"}), None),
            (response({"results": [], "status": "OVER_QUERY_LIMIT", "error_message": "Slow down"}), None),
        ),
    ),
    "Google APIs": Api(
        options("/v3/files?q={id}", rows="files", paging="cursor", paging_parameter="pageToken",
                paging_path="nextPageToken"),
        response({"kind": "drive#fileList", "files": [ada]}),
        response({"kind": "drive#fileList", "files": []}),
        failed=(
            (response({"error": {"code": 403, "errors": [{"reason": "forbidden"}]}}, 403), "permanent"),
            (response({"error": {"code": 403, "errors": [{"reason": "dailyLimitExceeded"}]}}, 403), "permanent"),
            (response({"error": {"code": 503, "errors": [{"reason": "backendError"}]}}, 503), "transient"),
        ),
        throttled=(
            (response(GOOGLE, 403), None),
            (response({"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}}, 403), None),
            (
                response({"error": {
                    "code": 429, "status": "RESOURCE_EXHAUSTED",
                    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}],
                }}, 429),
                34.5,
            ),
        ),
        following=(
            response({"files": [ada], "nextPageToken": "~!!~AI9"}),
            response({"files": [bob]}),
        ),
        unpaged="says in its member nextPageToken that there is more",
    ),
    "Shopify": Api(
        graphql("data.products.nodes"),
        response({"data": {"products": {"nodes": [ada], "pageInfo": {"hasNextPage": False}}}, "extensions": {}}),
        response({"data": {"products": {"nodes": []}}}),
        failed=((response({"errors": [{"message": "Parse error", "locations": []}]}), "permanent"),),
        throttled=(
            (
                response({
                    "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
                    "extensions": {"cost": {"throttleStatus": {"currentlyAvailable": 0.0}}},
                }),
                None,
            ),
            (response({"errors": "Exceeded 2 calls per second"}, 429, retry_after="2.0"), 2),
        ),
    ),
    "Twilio": Api(
        options("/Messages.json?To={id}", rows="messages", paging="next_url", paging_path="next_page_uri"),
        response({"messages": [ada], "next_page_uri": None, "page": 0, "page_size": 50}),
        response({"messages": [], "next_page_uri": None}),
        failed=((response({"code": 20003, "message": "Authenticate", "status": 401}, 401), "permanent"),),
        throttled=((response({"code": 20429, "message": "Too Many Requests", "status": 429}, 429), None),),
        following=(
            response({"messages": [ada], "next_page_uri": "/Messages.json?To=1&Page=1"}),
            response({"messages": [bob], "next_page_uri": None}),
        ),
        unpaged="says in its member next_page_uri that there is more",
    ),
    "HubSpot": Api(
        listing("/crm/v3/objects/contacts/batch/read", method="post", body='{"inputs": [{"id": "{id}"}]}',
                rows="results", path__name="properties.name", success_codes="200,207",
                error_when="errors[?category != 'OBJECT_NOT_FOUND']"),
        response({"status": "COMPLETE", "results": [{"id": "1", "properties": {"name": "Ada"}}]}),
        response({"status": "COMPLETE", "results": [], "numErrors": 1,
                  "errors": [{"status": "error", "category": "OBJECT_NOT_FOUND"}]}, 207),
        failed=(
            (response({"results": [], "errors": [{"category": "MISSING_SCOPES"}]}, 207), "permanent"),
            (response({"status": "error", "category": "VALIDATION_ERROR"}, 400), "permanent"),
        ),
        throttled=(
            (response({"status": "error", "errorType": "RATE_LIMIT", "policyName": "SECONDLY"}, 429), None),
        ),
    ),
    "Salesforce": Api(
        options("/services/data/v60.0/query?q={id}", rows="records", path__name="Name",
                paging="next_url", paging_path="nextRecordsUrl"),
        response({"totalSize": 1, "done": True, "records": [{"Id": "1", "Name": "Ada"}]}),
        response({"totalSize": 0, "done": True, "records": []}),
        failed=((response([{"errorCode": "MALFORMED_QUERY", "message": "unexpected token"}], 400), "permanent"),),
        throttled=((response([{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "TotalRequests"}], 403), None),),
        following=(
            response({"done": False, "nextRecordsUrl": "/services/data/v60.0/query/01g-2000",
                      "records": [{"Id": "1", "Name": "Ada"}]}),
            response({"done": True, "records": [{"Id": "2", "Name": "Bob"}]}),
        ),
        unpaged="says in its member nextRecordsUrl that there is more",
    ),
    "Jira": Api(
        options("/rest/api/3/search?jql={id}", rows="issues", path__name="fields.summary",
                paging="offset", paging_parameter="startAt"),
        response({"startAt": 0, "maxResults": 1, "total": 1,
                  "issues": [{"key": "1", "fields": {"summary": "Ada"}}]}),
        response({"startAt": 0, "maxResults": 1, "total": 0, "issues": []}),
        failed=((response({"errorMessages": ["The value does not exist"], "errors": {}}, 400), "permanent"),),
        throttled=((response({}, 429, retry_after="9", x_ratelimit_reset="2099-01-01T00:00Z"), 9),),
        following=(
            response({"startAt": 0, "maxResults": 1, "total": 2,
                      "issues": [{"key": "1", "fields": {"summary": "Ada"}}]}),
            response({"startAt": 1, "maxResults": 1, "total": 2, "isLast": True,
                      "issues": [{"key": "2", "fields": {"summary": "Bob"}}]}),
        ),
        unpaged="says in its member total that there is more",
    ),
    "Dynamics (OData)": Api(
        options("/api/data/v9.2/contacts?$filter={id}", rows="value",
                paging="next_url", paging_path='"@odata.nextLink"'),
        response({"@odata.context": "$metadata", "value": [{"contactid": "1", "name": "Ada"}]}),
        response({"@odata.context": "$metadata", "value": []}),
        failed=((response({"error": {"code": "0x80060888", "message": "Bad filter"}}, 400), "permanent"),),
        throttled=((response({"error": {"code": "0x80072322"}}, 429, retry_after="17"), 17),),
        following=(
            response({"value": [{"contactid": "1", "name": "Ada"}],
                      "@odata.nextLink": f"{HOME}/api/data/v9.2/contacts?$skiptoken=2"}),
            response({"value": [{"contactid": "2", "name": "Bob"}]}),
        ),
        unpaged='says in its member "@odata.nextLink" that there is more',
    ),
    "Elasticsearch": Api(
        listing("/people/_mget", method="post", body='{"ids": "{id}"}', rows="docs[?found]",
                path__id="_id", path__name="_source.name"),
        response({"docs": [{"_index": "people", "_id": "1", "found": True, "_source": {"name": "Ada"}}]}),
        response({"docs": [{"_index": "people", "_id": "1", "found": False}]}),
        failed=(
            (response({"error": {"type": "index_not_found_exception"}, "status": 404}, 400), "permanent"),
            (response({"error": "cluster_block_exception"}, 503), "transient"),
        ),
        throttled=((response({"error": {"type": "es_rejected_execution_exception"}}, 429), None),),
    ),
    "CouchDB": Api(
        listing("/people/_all_docs?include_docs=true", method="post", body='{"keys": "{id}"}',
                rows="rows[?!error]", path__id="key", path__name="doc.name"),
        response({"total_rows": 9, "offset": 0, "rows": [{"key": "1", "doc": {"name": "Ada"}}]}),
        response({"total_rows": 9, "offset": 0, "rows": [{"key": "1", "error": "not_found"}]}),
        failed=((response({"error": "unauthorized", "reason": "You are not allowed"}, 401), "permanent"),),
    ),
    "Airtable": Api(
        options("/v0/base/People?filterByFormula={id}", rows="records", path__name="fields.name",
                paging="cursor", paging_parameter="offset", paging_path="offset"),
        response({"records": [{"id": "1", "fields": {"name": "Ada"}}]}),
        response({"records": []}),
        failed=((response({"error": {"type": "INVALID_FILTER_BY_FORMULA"}}, 422), "permanent"),),
        throttled=((response({"errors": [{"error": "RATE_LIMIT_REACHED"}]}, 429), None),),
        following=(
            response({"records": [{"id": "1", "fields": {"name": "Ada"}}], "offset": "itr1/rec2"}),
            response({"records": [{"id": "2", "fields": {"name": "Bob"}}]}),
        ),
        unpaged="says in its member offset that there is more",
    ),
    "Notion": Api(
        options("/v1/databases/{id}/query", method="post", body='{"page_size": 1}', rows="results",
                paging="cursor", paging_parameter="start_cursor", paging_path="next_cursor"),
        response({"object": "list", "results": [ada], "has_more": False, "next_cursor": None}),
        response({"object": "error", "status": 404, "code": "object_not_found"}, 404),
        failed=((response({"object": "error", "status": 400, "code": "validation_error"}, 400), "permanent"),),
        throttled=((response({"object": "error", "code": "rate_limited"}, 429, retry_after="1"), 1),),
        following=(
            response({"results": [ada], "has_more": True, "next_cursor": "fe2cc560"}),
            response({"results": [bob], "has_more": False, "next_cursor": None}),
        ),
        unpaged="that there is more, and 'paging' is not set",
    ),
    "OpenWeather": Api(
        options("/data/2.5/weather?id={id}", path__name="weather[0].main"),
        response({"cod": 200, "id": "1", "weather": [{"main": "Ada"}]}),
        response({"cod": "404", "message": "city not found"}, 404),
        failed=((response({"cod": 401, "message": "Invalid API key"}, 401), "permanent"),),
        throttled=((response({"cod": 429, "message": "Your account is temporary blocked"}, 429), None),),
    ),
    "Algolia": Api(
        listing("/1/indexes/*/objects", method="post", body='{"requests": [{"objectID": "{id}"}]}',
                rows="results[]", path__id="objectID"),
        response({"results": [{"objectID": "1", "name": "Ada"}]}),
        response({"results": [None], "message": "ObjectID 1 does not exist"}),
        failed=((response({"message": "Invalid Application-ID", "status": 403}, 403), "permanent"),),
        throttled=((response({"message": "Too many requests", "status": 429}, 429), None),),
    ),
    "Microsoft Graph": Api(
        options("/v1.0/users?$search={id}", rows="value", path__name="displayName",
                paging="next_url", paging_path='"@odata.nextLink"'),
        response({"@odata.context": "$metadata#users", "value": [{"id": "1", "displayName": "Ada"}]}),
        response({"error": {"code": "Request_ResourceNotFound"}}, 404),
        failed=((response({"error": {"code": "Authorization_RequestDenied"}}, 403), "permanent"),),
        throttled=(
            (response({"error": {"code": "TooManyRequests"}}, 429, retry_after="10"), 10),
            (response({"error": {"code": "serviceNotAvailable"}}, 503, retry_after="120"), 120),
            (response({"error": {"code": "activityLimitReached"}}, 509, retry_after="3"), 3),
        ),
        following=(
            response({"@odata.nextLink": f"{HOME}/v1.0/users?$skiptoken=x",
                      "value": [{"id": "1", "displayName": "Ada"}]}),
            response({"value": [{"id": "2", "displayName": "Bob"}]}),
        ),
        unpaged='says in its member "@odata.nextLink" that there is more',
    ),
    "Wikidata": Api(
        listing("/w/api.php?action=wbgetentities&ids={id}", rows="entities.*|[?!missing && missing != '']",
                path__name="labels.en.value"),
        response({"entities": {"1": {"id": "1", "labels": {"en": {"value": "Ada"}}}}, "success": 1}),
        response({"entities": {"1": {"id": "1", "missing": ""}}, "success": 1}),
        failed=(
            (response({"error": {"code": "no-such-entity", "info": "Could not find"}}), "permanent"),
            (response({"error": {"code": "maxlag", "info": "Waiting"}}, 503), "transient"),
        ),
        throttled=(
            (response({"error": {"code": "ratelimited", "info": "You've exceeded your rate limit."}}), None),
        ),
    ),
    "Zendesk": Api(
        listing("/api/v2/users/show_many.json?ids={id}", rows="users"),
        response({"users": [ada], "next_page": None, "previous_page": None, "count": 1}),
        response({"users": [], "next_page": None, "count": 0}),
        failed=((response({"error": "Couldn't authenticate you"}, 401), "permanent"),),
        throttled=((response(b"Rate limit exceeded", 429, retry_after="93"), 93),),
    ),
    "X": Api(
        listing("/2/users?ids={id}", rows="data", error_when="errors[?title != 'Not Found Error']"),
        response({"data": [ada]}),
        response({"errors": [{"title": "Not Found Error", "resource_type": "user", "value": "1"}]}),
        failed=((response({"title": "Forbidden", "status": 403, "type": "about:blank"}, 403), "permanent"),),
        throttled=(
            (
                response(
                    {"errors": [{"code": 88, "message": "Rate limit exceeded"}]}, 429,
                    x_rate_limit_remaining="0", x_rate_limit_reset=in_seconds(DAY),
                ),
                DAY,
            ),
        ),
    ),
    "AWS": Api(
        options("/", method="post", body='{"TableName": "t", "Key": {"S": "{id}"}}', rows="Item",
                path__id="id.S", path__name="name.S"),
        response({"Item": {"id": {"S": "1"}, "name": {"S": "Ada"}}}),
        response({}),
        failed=(
            (response({"__type": "com.amazonaws#ValidationException", "message": "?"}, 400), "permanent"),
            (response({"message": "Internal"}, 500, x_amzn_errortype="InternalServerError"), "transient"),
        ),
        throttled=(
            (
                response({"__type": "com.amazonaws#ProvisionedThroughputExceededException"}, 400),
                None,
            ),
            (response({"__type": "ThrottlingException", "message": "Rate exceeded"}, 400), None),
            (response({"message": "?"}, 400, x_amzn_errortype="ThrottlingException:http://x/"), None),
        ),
    ),
    "Cloudflare": Api(
        options("/client/v4/zones/{id}", rows="result"),
        response({"success": True, "errors": [], "messages": [], "result": ada}),
        response({"success": True, "errors": [], "result": None}),
        failed=(
            (response({"success": False, "errors": [{"code": 7003, "message": "No route"}], "result": None}, 400),
             "permanent"),
            (response({"success": False, "errors": [{"code": 10000}], "result": None}), "permanent"),
        ),
        throttled=(
            (response(b"error code: 1015", 429, retry_after="10"), 10),
            (response({"success": False, "errors": [{"code": 971}]}, 429, ratelimit='"default";r=0;t=7'), 7),
        ),
    ),
    "OpenAI": Api(
        options("/v1/files/{id}", path__name="filename"),
        response({"id": "1", "object": "file", "filename": "Ada"}),
        response({"error": {"message": "No such File object", "code": None}}, 404),
        failed=((response({"error": {"type": "server_error"}}, 500), "transient"),),
        throttled=(
            (
                response(
                    {"error": {"code": "rate_limit_exceeded"}}, 429,
                    x_ratelimit_remaining_requests="0", x_ratelimit_reset_requests="6m0s",
                    x_ratelimit_remaining_tokens="149984", x_ratelimit_reset_tokens="20ms",
                ),
                360,
            ),
            (response({"error": {}}, 429, retry_after_ms="1500", retry_after="2"), 1.5),
        ),
    ),
    "Spotify": Api(
        listing("/v1/artists?ids={id}", rows="artists"),
        response({"artists": [ada]}),
        response({"artists": [None]}),
        failed=(
            (response({"error": {"status": 400, "message": "Invalid base62 id"}}, 400), "permanent"),
            (response({"error": {"status": 401, "message": "The access token expired"}}, 401), "permanent"),
            (response({"error": {"status": 502, "message": "Bad gateway."}}, 502), "transient"),
        ),
        throttled=((response(b"Too many requests", 429, retry_after="12"), 12),),
    ),
    "Spotify, a list": Api(
        options("/v1/artists/{id}/albums", rows="items", paging="next_url", paging_path="next"),
        response({"items": [ada], "limit": 20, "offset": 0, "total": 1, "next": None, "previous": None}),
        response({"items": [], "limit": 20, "offset": 0, "total": 0, "next": None}),
        following=(
            response({"items": [ada], "limit": 1, "offset": 0, "total": 2,
                      "next": f"{HOME}/v1/artists/1/albums?offset=1"}),
            response({"items": [bob], "limit": 1, "offset": 1, "total": 2, "next": None}),
        ),
    ),
    "GitLab": Api(
        options("/api/v4/projects?search={id}", paging="link"),
        response([ada], x_total="1", x_total_pages="1", x_page="1", x_next_page="", x_per_page="20"),
        response([], x_total="0", x_total_pages="0", x_page="1", x_next_page=""),
        failed=(
            (response({"error": "invalid_token", "error_description": "Token was revoked."}, 401), "permanent"),
            (response({"message": "500 Internal Server Error"}, 500), "transient"),
        ),
        throttled=(
            (response(b"Retry later", 429, ratelimit_remaining="0", ratelimit_reset=in_seconds(DAY),
                      retry_after="30"), 30),
        ),
        following=(
            response([ada], x_next_page="2", x_page="1", x_total="2",
                     link=f'<{HOME}/api/v4/projects?page=2>; rel="next", <{HOME}/x>; rel="last"'),
            response([bob], x_next_page="", x_page="2", x_total="2", link=f'<{HOME}/x>; rel="prev"'),
        ),
        unpaged="says in the header",
    ),
    "Nominatim": Api(
        options("/search?format=jsonv2&q={id}", path__name="display_name"),
        response([{"place_id": 1, "display_name": "Ada"}]),
        response([]),
        failed=(
            (response({"error": {"code": 400, "message": "Parameter 'format' must be one of"}}, 400), "permanent"),
            (response(b"<html>Access blocked</html>", 403), "permanent"),
        ),
        throttled=((response(b"<html>Too many requests</html>", 429), None),),
    ),
    "Nominatim, reverse": Api(
        options("/reverse?format=jsonv2&osm={id}", path__name="display_name",
                miss_when="error == 'Unable to geocode'"),
        response({"place_id": 1, "display_name": "Ada"}),
        response({"error": "Unable to geocode"}),
    ),
    "MediaWiki": Api(
        options("/w/api.php?action=query&titles={id}", rows="query.pages[?!missing]", path__name="title"),
        response({"batchcomplete": True, "query": {"pages": [{"pageid": 1, "ns": 0, "title": "Ada"}]}}),
        response({"batchcomplete": True, "query": {"pages": [{"ns": 0, "title": "Ada", "missing": True}]}}),
        failed=(
            (response({"error": {"code": "badvalue", "info": "Unrecognized value"}}), "permanent"),
            (response({"errors": [{"code": "internal_api_error_DBQueryError"}]}), "permanent"),
            (response({"error": {"code": "maxlag", "info": "Waiting", "lag": 5}}, retry_after="5"), "transient"),
        ),
        throttled=(
            (response({"error": {"code": "ratelimited", "info": "You've exceeded your rate limit."}}), None),
        ),
        partial=(response({"continue": {"plcontinue": "1|0|B", "continue": "||"},
                      "query": {"pages": [{"pageid": 1, "title": "Ada"}]}}),
        ),
    ),
    "Alpha Vantage": Api(
        options("/query?function=GLOBAL_QUOTE&symbol={id}", rows='"Global Quote"', path__name='"05. price"'),
        response({"Global Quote": {"01. symbol": "1", "05. price": "Ada"}}),
        response({"Global Quote": {}}),
        failed=((response({"Error Message": "Invalid API call. Please retry or visit the docs"}), "permanent"),),
        throttled=(
            (response({"Note": "Our standard API call frequency is 5 calls per minute and 500 calls per day."}),
             None),
            (response({"Information": "Our standard API rate limit is 25 requests per day."}), None),
        ),
    ),
    "ip-api": Api(
        options("/json/{id}", path__name="country", miss_when="message == 'reserved range'",
                error_when="status == 'fail'"),
        response({"status": "success", "query": "1", "country": "Ada"}),
        response({"status": "fail", "message": "reserved range", "query": "1"}),
        failed=((response(b"", 403), "permanent"),),
        throttled=((response(b"", 429, x_rl="0", x_ttl="38"), None),),
    ),
    "Etherscan": Api(
        options("/api?module=account&action=txlist&address={id}", rows="result"),
        response({"status": "1", "message": "OK", "result": [ada]}),
        response({"status": "0", "message": "No transactions found", "result": []}),
        failed=(
            (response({"status": "0", "message": "NOTOK", "result": "Invalid API Key (#err2)"}), "permanent"),
            (response({"status": "0", "message": "Query Timeout occured", "result": None}), "transient"),
        ),
        throttled=((response({"status": "0", "message": "NOTOK", "result": "Max rate limit reached"}), None),),
    ),
    "CoinGecko": Api(
        options("/api/v3/coins/markets?ids={id}"),
        response([ada]),
        response([]),
        failed=((response({"error": "invalid vs_currency"}, 422), "permanent"),),
        throttled=(
            (response({"status": {"error_code": 429, "error_message": "You've exceeded the Rate Limit."}}, 429,
                      retry_after="60"), 60),
        ),
    ),
    "OpenFIGI": Api(
        options("/v3/mapping", method="post", body='[{"idType": "ID_ISIN", "idValue": "{id}"}]',
                rows="[].data[]", path__name="name"),
        response([{"data": [{"figi": "1", "name": "Ada"}]}]),
        response([{"warning": "No identifier found."}]),
        failed=(
            (response([{"error": "Invalid idType."}]), "transient"),
            (response({"status": 401, "message": "Invalid API key"}, 401), "permanent"),
        ),
        throttled=((response(b"Too many requests", 429, ratelimit_remaining="0", ratelimit_reset="6"), 6),),
    ),
    "Companies House": Api(
        options("/search/companies?q={id}", rows="items", path__name="title", paging="offset",
                paging_parameter="start_index"),
        response({"kind": "search#companies", "items": [{"title": "Ada"}], "start_index": 0, "total_results": 1,
                  "items_per_page": 20}),
        response({"kind": "search#companies", "items": [], "start_index": 0, "total_results": 0}),
        failed=((response({"error": "Invalid Authorization", "type": "ch:service"}, 401), "permanent"),),
        throttled=((response({}, 429, x_ratelimit_remain="0", x_ratelimit_reset=in_seconds(DAY)), DAY),),
        following=(
            response({"items": [{"title": "Ada"}], "start_index": 0, "total_results": 2, "items_per_page": 1}),
            response({"items": [{"title": "Bob"}], "start_index": 1, "total_results": 2, "items_per_page": 1}),
        ),
    ),
    "openFDA": Api(
        options("/drug/label.json?search={id}", rows="results", paging="link"),
        response({"meta": {"results": {"skip": 0, "limit": 1, "total": 1}}, "results": [ada]}),
        response({"error": {"code": "NOT_FOUND", "message": "No matches found!"}}, 404),
        failed=((response({"error": {"code": "BAD_REQUEST", "message": "Search not supported"}}, 400), "permanent"),),
        throttled=((response({"error": {"code": "OVER_RATE_LIMIT"}}, 429), None),),
        partial=(response({"meta": {"results": {"skip": 0, "limit": 1, "total": 9}}, "results": [ada]}),),
    ),
    "PubMed": Api(
        options("/esearch.fcgi?db=pubmed&retmode=json&term={id}", rows="esearchresult.idlist", path__name="@"),
        response({"header": {"type": "esearch"}, "esearchresult": {
            "count": "1", "retmax": "1", "retstart": "0", "idlist": ["Ada"]}}),
        response({"esearchresult": {"count": "0", "retmax": "0", "retstart": "0", "idlist": [],
                                    "warninglist": {"outputmessages": ["No items found."]}}}),
        failed=(
            (response({"esearchresult": {"ERROR": "Invalid db name specified: pubmd"}}), "permanent"),
            (response({"error": "API key invalid", "api-key": "x"}, 400), "permanent"),
        ),
        throttled=(
            (response({"error": "API rate limit exceeded", "api-key": "1.2.3.4", "count": "4", "limit": "3"}, 429),
             None),
            (response({"error": "API rate limit exceeded", "api-key": "1.2.3.4", "count": "4", "limit": "3"}),
             None),
        ),
        partial=(response({"esearchresult": {"count": "9", "retmax": "1", "retstart": "0", "idlist": ["Ada"]}}),),
    ),
    "Crossref": Api(
        options("/works?query={id}", rows="message.items", path__name="title[0]", paging="cursor",
                paging_parameter="cursor", paging_path='message."next-cursor"'),
        response({"status": "ok", "message-type": "work-list", "message": {
            "total-results": 1, "items-per-page": 20, "items": [{"DOI": "1", "title": ["Ada"]}]}}),
        response({"status": "ok", "message-type": "work-list", "message": {"total-results": 0, "items": []}}),
        failed=(
            (response({"status": "failed", "message-type": "validation-failure", "message": [
                {"type": "integer-not-valid", "value": "x", "message": "Integer specified as x"}]}, 400), "permanent"),
        ),
        throttled=((response(b"", 429, x_rate_limit_limit="50", x_rate_limit_interval="1s"), None),),
        following=(
            response({"status": "ok", "message": {"next-cursor": "AoJ", "items": [
                {"title": ["Ada"]}]}}),
            response({"status": "ok", "message": {"items": [{"title": ["Bob"]}]}}),
        ),
        partial=(response({"status": "ok", "message": {"total-results": 9, "items-per-page": 1, "items": [
            {"title": ["Ada"]}]}}),),
    ),
    "OpenAlex": Api(
        options("/works?search={id}", rows="results", path__name="display_name", paging="page",
                paging_parameter="page", page_size="1"),
        response({"meta": {"count": 1, "page": 1, "per_page": 25}, "results": [{"display_name": "Ada"}]}),
        response({"meta": {"count": 0, "page": 1, "per_page": 25}, "results": []}),
        failed=((response({"error": "Invalid query parameters error.", "message": "x is not valid"}, 403), "permanent"),),
        throttled=((response({"error": "Rate limit exceeded", "message": "100 per second"}, 429), None),),
        following=(
            response({"meta": {"count": 2, "page": 1, "per_page": 1}, "results": [{"display_name": "Ada"}]}),
            response({"meta": {"count": 2, "page": 2, "per_page": 1}, "results": [{"display_name": "Bob"}]}),
        ),
    ),
    "Discord": Api(
        options("/api/v10/users/{id}", path__name="username"),
        response({"id": "1", "username": "Ada", "flags": 0}),
        response({"message": "Unknown User", "code": 10013}, 404),
        failed=((response({"message": "Missing Access", "code": 50001}, 403), "permanent"),),
        throttled=(
            (response({"message": "You are being rate limited.", "retry_after": 64.57, "global": False}, 429), 64.57),
            (response({"message": "You are being rate limited.", "retry_after": 0.5}, 429,
                      x_ratelimit_remaining="0", x_ratelimit_reset_after="0.5"), 0.5),
        ),
    ),
    "Telegram": Api(
        options("/bot/getChat?chat_id={id}", rows="result", path__name="first_name"),
        response({"ok": True, "result": {"id": 1, "first_name": "Ada"}}),
        response({"ok": False, "error_code": 404, "description": "Not Found"}, 404),
        failed=(
            (response({"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}, 400), "permanent"),
            (response({"ok": False, "error_code": 502, "description": "Bad Gateway"}, 502), "transient"),
        ),
        throttled=(
            (response({"ok": False, "error_code": 429, "description": "Too Many Requests: retry after 5",
                       "parameters": {"retry_after": 5}}, 429), 5),
        ),
    ),
    "GeoNames": Api(
        options("/searchJSON?q={id}", rows="geonames"),
        response({"totalResultsCount": 1, "geonames": [ada]}),
        response({"totalResultsCount": 0, "geonames": []}),
        failed=(
            (response({"status": {"message": "user does not exist.", "value": 10}}, 401), "permanent"),
            (response({"status": {"message": "user does not exist.", "value": 10}}), "permanent"),
            (response({"status": {"message": "database timeout", "value": 13}}), "permanent"),
            (response({"status": {"message": "the hourly limit of 1000 credits has been exceeded.", "value": 19}}),
             "permanent"),
        ),
        partial=(response({"totalResultsCount": 9, "geonames": [ada]}),),
    ),
    "TMDB": Api(
        options("/3/search/movie?query={id}", rows="results", path__name="title", paging="page",
                paging_parameter="page"),
        response({"page": 1, "results": [{"id": 1, "title": "Ada"}], "total_pages": 1, "total_results": 1}),
        response({"page": 1, "results": [], "total_pages": 1, "total_results": 0}),
        failed=((response({"status_code": 7, "status_message": "Invalid API key", "success": False}, 401), "permanent"),),
        throttled=(
            (response({"status_code": 25, "status_message": "Your request count is over the allowed limit."}, 429),
             None),
        ),
        following=(
            response({"page": 1, "results": [{"title": "Ada"}], "total_pages": 2, "total_results": 2}),
            response({"page": 2, "results": [{"title": "Bob"}], "total_pages": 2, "total_results": 2}),
        ),
    ),
    "ArcGIS": Api(
        options("/arcgis/rest/services/x/FeatureServer/0/query?where=id='{id|sql}'&f=json",
                rows="features[].attributes", path__name="NAME"),
        response({"objectIdFieldName": "OBJECTID", "features": [{"attributes": {"OBJECTID": 1, "NAME": "Ada"}}]}),
        response({"objectIdFieldName": "OBJECTID", "features": []}),
        failed=(
            (response({"error": {"code": 400, "message": "Invalid query", "details": ["x"]}}), "permanent"),
            (response({"error": {"code": 498, "message": "Invalid token.", "details": []}}), "permanent"),
            (response({"error": {"code": 504, "message": "Your request has timed out.", "details": []}}), "transient"),
        ),
        throttled=((response({"error": {"code": 429, "message": "Unable to complete operation."}}), None),),
        partial=(response({"features": [{"attributes": {"NAME": "Ada"}}], "exceededTransferLimit": True}),),
    ),
    "SAP (OData 2)": Api(
        options("/sap/opu/odata/sap/x/People?$filter=Id eq '{id|odata}'&$format=json", rows="d.results",
                path__name="Name", paging="next_url", paging_path="d.__next"),
        response({"d": {"results": [{"Id": "1", "Name": "Ada"}]}}),
        response({"d": {"results": []}}),
        failed=(
            (response({"error": {"code": "005056A509B11EE1BB8", "message": {"lang": "en", "value": "Invalid"}}}, 400),
             "permanent"),
        ),
        following=(
            response({"d": {"results": [{"Name": "Ada"}], "__next": f"{HOME}/People?$skiptoken=2"}}),
            response({"d": {"results": [{"Name": "Bob"}]}}),
        ),
        unpaged="says in its member d.__next that there is more",
    ),
    "Prometheus": Api(
        options("/api/v1/query", method="post", body='query=up{{instance="{id|backslash}"}}', body_format="form",
                rows="data.result", path__name="metric.name"),
        response({"status": "success", "data": {"resultType": "vector", "result": [
            {"metric": {"name": "Ada"}, "value": [1, "1"]}]}}),
        response({"status": "success", "data": {"resultType": "vector", "result": []}}),
        failed=(
            (response({"status": "error", "errorType": "bad_data", "error": "parse error"}, 400), "permanent"),
            (response({"status": "error", "errorType": "timeout", "error": "query timed out"}, 503), "transient"),
        ),
        partial=(response({"status": "success", "warnings": ["remote read: store-2 is unavailable"],
                      "data": {"result": [{"metric": {"name": "Ada"}}]}}),
        ),
    ),
    "BigQuery": Api(
        options("/bigquery/v2/projects/p/queries", method="post", body='{"query": "SELECT", "k": "{id}"}', rows="rows",
                path__name="f[1].v"),
        response({"kind": "bigquery#queryResponse", "jobComplete": True, "totalRows": "1", "rows": [
            {"f": [{"v": "1"}, {"v": "Ada"}]}]}),
        response({"kind": "bigquery#queryResponse", "schema": {"fields": [{"name": "id"}]}, "jobComplete": True,
                  "jobReference": {"jobId": "j"}, "totalRows": "0"}),
        failed=(
            (response({"kind": "bigquery#queryResponse", "jobComplete": False, "jobReference": {"jobId": "j"}}),
             "transient"),
            (response({"error": {"code": 400, "errors": [{"reason": "invalidQuery"}]}}, 400), "permanent"),
            (response({"error": {"code": 403, "errors": [{"reason": "quotaExceeded"}]}}, 403), "permanent"),
        ),
        throttled=(
            (response({"error": {"code": 403, "errors": [{"reason": "rateLimitExceeded"}]}}, 403), None),
        ),
        partial=(response({"jobComplete": True, "totalRows": "9", "pageToken": "BE", "rows": [{"f": [{"v": "1"}, {"v": "Ada"}]}]}),
        ),
    ),
    "Zoho CRM": Api(
        options("/crm/v2/Contacts/search?email={id}", rows="data", path__name="Full_Name", paging="page",
                paging_parameter="page", page_size="1"),
        response({"data": [{"id": "1", "Full_Name": "Ada"}], "info": {"per_page": 200, "count": 1, "page": 1,
                                                                     "more_records": False}}),
        response(None, 204),
        failed=(
            (response({"code": "INVALID_TOKEN", "details": {}, "message": "invalid oauth token", "status": "error"}, 401),
             "permanent"),
        ),
        throttled=((response({"code": "TOO_MANY_REQUESTS", "message": "slow", "status": "error"}, 400), None),),
        following=(
            response({"data": [{"Full_Name": "Ada"}], "info": {"page": 1, "more_records": True}}),
            response({"data": [{"Full_Name": "Bob"}], "info": {"page": 2, "more_records": False}}),
        ),
    ),
    "Asana": Api(
        options("/api/1.0/tasks?project={id}", rows="data", paging="cursor", paging_parameter="offset",
                paging_path="next_page.offset"),
        response({"data": [ada], "next_page": None}),
        response({"data": [], "next_page": None}),
        failed=((response({"errors": [{"message": "Not Authorized", "help": "For more information"}]}, 401), "permanent"),),
        throttled=((response({"errors": [{"message": "You have made too many requests recently."}]}, 429,
                             retry_after="30"), 30),),
        following=(
            response({"data": [ada], "next_page": {"offset": "eyJ0", "path": "/tasks?offset=eyJ0", "uri": f"{HOME}/t"}}),
            response({"data": [bob], "next_page": None}),
        ),
    ),
}  # fmt: skip

ALL = pytest.mark.parametrize("name", APIS)


def asked(name: str, *responses: Response, **more: str) -> Outcome:
    """What becomes of asking the API of that name."""
    api = APIS[name]
    # Who counts rows asks until there are none.
    last = [api.missing] if api.options.get("paging") in ("offset", "page") else []
    return outcome({**api.options, **more}, *responses, *last)


@ALL
def test_found_and_not_found(name: str) -> None:
    found = asked(name, APIS[name].found)
    assert (found.kind, found.rows) == ("found", ADA), found.error
    missing = asked(name, APIS[name].missing)
    assert missing.kind == "miss", missing.error


FAILED = [(name, at) for name, api in APIS.items() for at in range(len(api.failed))]


@pytest.mark.parametrize(("name", "at"), FAILED)
def test_a_failure_is_none_of_these(name: str, at: int) -> None:
    failed, kind = APIS[name].failed[at]
    told = asked(name, failed)
    assert told.kind == kind
    assert not told.pauses
    assert f"answered {failed.status} to " in str(told.error) or "there is nothing at" in str(told.error)


THROTTLED = [(name, at) for name, api in APIS.items() for at in range(len(api.throttled))]


@pytest.mark.parametrize(("name", "at"), THROTTLED)
def test_who_is_asked_too_much_is_asked_again_after_the_pause_that_it_names(name: str, at: int) -> None:
    throttled, pause = APIS[name].throttled[at]
    told = asked(name, throttled, APIS[name].found)
    assert (told.kind, told.rows) == ("found", ADA), told.error
    # A moment was named when the tests were collected; others are exact.
    assert told.pauses == [
        pause if pause is None else pytest.approx(pause, abs=DAY / 2 if pause == DAY else 0)
    ]
    failed = asked(name, throttled, **{"on-throttle": "fail"})
    assert failed.kind == "transient"
    assert f"answered {throttled.status}" in str(failed.error)


PAGED = [name for name, api in APIS.items() if api.following]


@pytest.mark.parametrize("name", PAGED)
def test_the_next_page_is_read(name: str) -> None:
    told = asked(name, *APIS[name].following)
    assert [row["name"] for row in told.rows] == ["Ada", "Bob"], told.error


@pytest.mark.parametrize("name", PAGED)
def test_a_page_is_not_taken_for_all_where_the_answer_says_that_there_is_more(name: str) -> None:
    api = APIS[name]
    assert api.following
    first, last = api.following
    unset = {key: text for key, text in api.options.items() if not key.startswith("paging")}
    refused = outcome(unset, first)
    assert refused.kind == "permanent"
    assert api.unpaged in str(refused.error)
    assert "'paging' = 'none' takes the first page alone" in str(refused.error)
    assert outcome({**unset, "paging": "none"}, first).rows == ADA
    if "start_index" not in str(api.options):  # which counts from 0 there, and from 1 for SCIM
        assert outcome(unset, last).kind == "found", "nothing says that there is more"


PARTIAL = [(name, at) for name, api in APIS.items() for at in range(len(api.partial))]


@pytest.mark.parametrize(("name", "at"), PARTIAL)
def test_an_answer_that_says_that_it_is_not_whole_is_an_error(name: str, at: int) -> None:
    api = APIS[name]
    unset = {key: text for key, text in api.options.items() if not key.startswith("pag")}
    told = outcome(unset, api.partial[at])
    assert "there is more" in str(told.error) or "is not whole" in str(told.error)
    assert outcome({**unset, "partial": "accept"}, api.partial[at]).rows == ADA


@ALL
def test_the_same_comes_over_a_connection(name: str, api: Server) -> None:
    known = APIS[name]
    url = asked(name, known.found).asked[0].url
    for answer, rows in ((known.found, ADA), (known.missing, [])):
        headers = {key: text for key, text in answer.headers.items() if key != "content-type"}
        act = {"status": answer.status, "headers": headers, "body": answer.body.decode("latin-1")}
        api.script(unquote(urlsplit(url).path), act, {"status": 404, "repeat": True})
        given = {**known.options, "connector": "http", "url": known.options["url"].replace(HOME, api.url)}
        assert ask(LookupTable("people", SCHEMA, (), given), {"id": ["1"]}) == rows
