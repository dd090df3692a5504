"""Documents in the shape of public APIs, and the tables that `import` makes of them.

Each is cut down from what the API publishes to a few operations, with the parts that make it special.
"""

from __future__ import annotations

from typing import Any

import pytest

from lookup_hints.cli.import_openapi import Refused, read
from lookup_hints.tables.catalog import build_connector

Schema = dict[str, Any]

T: Schema = {"type": "string"}
N: Schema = {"type": "integer"}


def parameter(name: str, where: str = "path", **schema: Any) -> Schema:
    return {"name": name, "in": where, "required": where == "path", "schema": schema or T}


def document(
    paths: dict[str, tuple[Any, ...]],
    servers: list[Any] | None = None,
    schemas: Schema | None = None,
    schemes: Schema | None = None,
    security: list[Any] | None = None,
    title: str = "Api",
    **components: Any,
) -> Schema:
    """A document of GETs: for each path its parameters, its answer, and what else is said of that."""
    operations = {}
    for path, (parameters, answer, *more) in paths.items():
        said = {"content": "application/json", "code": "200", "headers": {}} | (more[0] if more else {})
        response = {"content": {said["content"]: {"schema": answer}}, "headers": said["headers"]}
        operations[path] = {"get": {"parameters": parameters, "responses": {said["code"]: response}}}
    return {
        "openapi": "3.0.3",
        "info": {"title": title},
        "paths": operations,
        "components": {"schemas": schemas or {}, "securitySchemes": schemes or {}, **components},
        **(
            {"servers": [{"url": each} if isinstance(each, str) else each for each in servers]}
            if servers
            else {}
        ),
        **({} if security is None else {"security": security}),
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def obj(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


DOCUMENTS: dict[str, Schema] = {
    "petstore": document(
        {"/pet/{petId}": ([parameter("petId", type="integer", format="int64")], ref("Pet"))},
        ["/api/v3"],
        {
            "Pet": {
                "required": ["name"],
                **obj(
                    id={"type": "integer", "format": "int64"},
                    name=T,
                    category=ref("Category"),
                    photoUrls={"type": "array", "xml": {"wrapped": True}, "items": T},
                    tags={"type": "array", "items": ref("Category")},
                    status={"type": "string", "enum": ["available", "sold"]},
                ),
            },
            "Category": obj(id=N, name=T),
        },
        {
            "petstore_auth": {
                "type": "oauth2",
                "flows": {"implicit": {"authorizationUrl": "https://p/oauth", "scopes": {}}},
            },
            "api_key": {"type": "apiKey", "name": "api_key", "in": "header"},
        },
        [{"api_key": []}, {"petstore_auth": ["read:pets"]}],
        "Swagger Petstore - OpenAPI 3.0",
    ),
    "graph": document(
        {
            "/users/{user-id}": (
                [
                    parameter("user-id"),
                    {
                        "name": "$select",
                        "in": "query",
                        "style": "form",
                        "explode": False,
                        "schema": {"type": "array", "items": T},
                    },
                ],
                ref("user"),
                {"code": "2XX"},
            ),
            "/users/{user-id}/messages": (
                [
                    parameter("user-id"),
                    {"$ref": "#/components/parameters/top"},
                    {"$ref": "#/components/parameters/skip"},
                    {"name": "$filter", "in": "query", "schema": T},
                ],
                ref("messages"),
                {"code": "2XX"},
            ),
        },
        ["https://graph.microsoft.com/v1.0/"],
        {
            "entity": {
                "title": "entity",
                "required": ["@odata.type"],
                "type": "object",
                "properties": {"id": T, "@odata.type": T},
                "discriminator": {
                    "propertyName": "@odata.type",
                    "mapping": {"#user": "#/components/schemas/user"},
                },
            },
            "user": {
                "allOf": [
                    ref("entity"),
                    {
                        "title": "user",
                        "type": "object",
                        "properties": {
                            "displayName": {"type": "string", "nullable": True},
                            "manager": {"anyOf": [ref("user"), {"type": "object", "nullable": True}]},
                            "businessPhones": {
                                "type": "array",
                                "items": {"type": "string", "nullable": True},
                            },
                            "@odata.type": T,
                        },
                    },
                ]
            },
            "message": {"allOf": [ref("entity"), obj(subject={"type": "string", "nullable": True})]},
            "messages": {
                "allOf": [
                    obj(**{"@odata.count": N, "@odata.nextLink": {"type": "string", "nullable": True}}),
                    obj(value={"type": "array", "items": ref("message")}),
                ]
            },
        },
        {
            "azureaadv2": {
                "type": "oauth2",
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://l",
                        "tokenUrl": "https://l/t",
                        "scopes": {},
                    }
                },
            }
        },
        [{"azureaadv2": []}],
        "Microsoft Graph",
        parameters={
            "top": {"name": "$top", "in": "query", "schema": {"type": "integer", "minimum": 0}},
            "skip": {"name": "$skip", "in": "query", "schema": {"type": "integer", "minimum": 0}},
        },
    ),
    "gitlab": document(
        {
            "/api/v4/projects/{id}/issues": (
                [
                    parameter("id", oneOf=[{"type": "integer"}, {"type": "string"}]),
                    parameter("page", "query", type="integer", default=1),
                    parameter("per_page", "query", type="integer", default=20),
                    parameter("state", "query", type="string", enum=["opened", "closed"]),
                ],
                {"type": "array", "items": obj(id=N, iid=N, project_id=N, title=T, state=T)},
                {"headers": {"Link": {"schema": T}}},
            )
        },
        ["https://gitlab.example"],
        None,
        {"k": {"type": "apiKey", "name": "PRIVATE-TOKEN", "in": "header"}},
        [{"k": []}],
    ),
    "nws": document(
        {
            "/stations/{stationId}": (
                [parameter("stationId")],
                ref("StationGeoJson"),
                {"content": "application/geo+json"},
            )
        },
        ["https://api.weather.gov"],
        {
            "StationGeoJson": {
                "allOf": [
                    obj(
                        id={"type": "string", "format": "uri"},
                        type={"type": "string", "enum": ["Feature"]},
                        geometry={
                            "oneOf": [obj(type=T, coordinates={"type": "array", "items": {"type": "number"}})]
                        },
                    ),
                    obj(
                        properties=obj(
                            stationIdentifier=T,
                            name=T,
                            elevation=obj(unitCode=T, value={"type": "number", "nullable": True}),
                        )
                    ),
                ]
            }
        },
        {"ua": {"type": "apiKey", "in": "header", "name": "User-Agent"}},
        [{"ua": []}],
        "weather.gov API",
    ),
    "twilio": document(
        {
            "/2010-04-01/Accounts/{AccountSid}/Messages/{Sid}.json": (
                [parameter("AccountSid"), parameter("Sid")],
                obj(
                    account_sid={"type": "string", "nullable": True},
                    sid={"type": "string", "nullable": True},
                    body={"type": "string", "nullable": True},
                    price={"type": "string", "nullable": True},
                    date_sent={"type": "string", "format": "date-time-rfc-2822", "nullable": True},
                ),
            )
        },
        ["https://api.twilio.com"],
        None,
        {"b": {"type": "http", "scheme": "basic"}},
        [{"b": []}],
        "Twilio - Api",
    ),
    "zendesk": document(
        {
            "/api/v2/users/{user_id}": (
                [parameter("user_id", type="integer")],
                obj(user=obj(id=N, name=T, organization_id={"type": "integer", "nullable": True})),
            )
        },
        [
            {
                "url": "https://{subdomain}.{domain}.com",
                "variables": {"domain": {"default": "zendesk"}, "subdomain": {"default": "example"}},
            }
        ],
        None,
        {"b": {"type": "http", "scheme": "basic"}},
        [{"b": []}],
    ),
    "digitalocean": document(
        {
            "/v2/droplets/{droplet_id}": (
                [parameter("droplet_id", type="integer", minimum=1)],
                obj(droplet=obj(id=N, name=T, memory=N, region=obj(slug=T))),
            ),
            "/v2/droplets/{droplet_id}/snapshots": (
                [
                    parameter("droplet_id", type="integer"),
                    parameter("per_page", "query", type="integer", minimum=1, maximum=200, default=20),
                    parameter("page", "query", type="integer", minimum=1, default=1),
                ],
                {
                    "allOf": [
                        obj(snapshots={"type": "array", "items": obj(id=N, name=T)}),
                        obj(links=obj(pages={"anyOf": [obj(last=T, next=T), obj(first=T, prev=T)]})),
                        obj(meta=obj(total=N)),
                    ]
                },
            ),
        },
        ["https://api.digitalocean.com"],
        None,
        {"b": {"type": "http", "scheme": "bearer"}},
        [{"b": []}],
        "DigitalOcean API",
    ),
    "kubernetes": document(
        {
            "/api/v1/namespaces/{namespace}/configmaps/{name}": (
                [parameter("name"), parameter("namespace"), parameter("pretty", "query")],
                ref("ConfigMap"),
            )
        },
        None,
        {
            "ConfigMap": obj(
                apiVersion=T,
                kind=T,
                data={"type": "object", "additionalProperties": {"type": "string", "default": ""}},
                immutable={"type": "boolean"},
                metadata={"allOf": [ref("Meta")], "default": {}},
            ),
            "Meta": obj(
                name=T,
                namespace=T,
                labels={"type": "object", "additionalProperties": {"type": "string"}},
                creationTimestamp={"type": "string", "format": "date-time"},
                managedFields={"type": "array", "items": obj(fieldsV1={"type": "object"}, manager=T)},
            ),
        },
        {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
        [{"BearerToken": []}],
        "Kubernetes",
    ),
    "jira": document(
        {
            "/rest/api/3/issue/{issueIdOrKey}": (
                [
                    parameter("issueIdOrKey"),
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": T}},
                    parameter("expand", "query"),
                ],
                ref("IssueBean"),
            ),
            "/rest/api/3/project/{projectIdOrKey}/version": (
                [
                    parameter("projectIdOrKey"),
                    parameter("startAt", "query", type="integer", format="int64", default=0),
                    parameter("maxResults", "query", type="integer", format="int32", default=50),
                    parameter("status", "query"),
                ],
                {
                    "additionalProperties": False,
                    **obj(
                        isLast={"type": "boolean", "readOnly": True},
                        maxResults=N,
                        nextPage={"type": "string", "format": "uri", "readOnly": True},
                        self={"type": "string", "format": "uri"},
                        startAt=N,
                        total=N,
                        values={
                            "type": "array",
                            "readOnly": True,
                            "items": obj(id=T, name=T, released={"type": "boolean"}),
                        },
                    ),
                },
            ),
        },
        ["https://your-domain.atlassian.net"],
        {
            "IssueBean": {
                "xml": {"name": "issue"},
                **obj(
                    expand=T,
                    fields={"type": "object", "additionalProperties": {}},
                    id=T,
                    key=T,
                    self={"type": "string", "format": "uri"},
                    names={"type": "object", "additionalProperties": {"type": "string"}},
                ),
            }
        },
        {
            "basicAuth": {"type": "http", "scheme": "basic"},
            "OAuth2": {"type": "oauth2", "flows": {"authorizationCode": {}}},
        },
        [{"basicAuth": []}, {"OAuth2": ["read:jira"]}],
        "The Jira Cloud platform REST API",
    ),
    "springhal": document(
        {
            "/people/search/findByLastName": (
                [parameter("lastName", "query")],
                ref("CollectionModel"),
                {"content": "application/hal+json"},
            ),
            "/people/{id}": ([parameter("id")], ref("EntityModel"), {"content": "application/hal+json"}),
            "/owners/{ownerId}/pets": (
                [parameter("ownerId", type="integer", format="int32")],
                {"type": "array", "items": obj(id={"type": "integer", "format": "int32"}, name=T)},
                {"content": "*/*"},
            ),
        },
        ["http://localhost:8080"],
        {
            "EntityModel": obj(firstName=T, lastName=T, _links=ref("Links")),
            "Links": {"type": "object", "additionalProperties": ref("Link")},
            "Link": obj(href=T, templated={"type": "boolean"}),
            "CollectionModel": obj(
                _embedded=obj(people={"type": "array", "items": ref("EntityModel")}), _links=ref("Links")
            ),
        },
        title="OpenAPI definition",
    ),
    "fastapi": document(
        {
            "/items/{item_id}": (
                [
                    parameter("item_id", type="integer", title="Item Id"),
                    {
                        "name": "q",
                        "in": "query",
                        "required": False,
                        "schema": {"anyOf": [T, {"type": "null"}], "title": "Q"},
                    },
                ],
                {},
            ),
            "/users/{user_id}": ([parameter("user_id", type="string", format="uuid")], ref("User")),
        },
        None,
        {
            "User": {
                "title": "User",
                "required": ["id"],
                **obj(
                    id={"type": "string", "format": "uuid"},
                    email={"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]},
                    score={
                        "anyOf": [{"type": "number"}, {"type": "string", "pattern": "^.*$"}],
                        "title": "Score",
                    },
                ),
            }
        },
        title="FastAPI",
    ),
    "cloudflare": document(
        {
            "/zones/{zone_id}": (
                [parameter("zone_id", **{"$ref": "#/components/schemas/identifier"})],
                {"allOf": [ref("common"), obj(result=ref("zone"))]},
            )
        },
        ["https://api.cloudflare.com/client/v4"],
        {
            "identifier": {"type": "string", "maxLength": 32, "readOnly": True},
            "common": obj(
                errors=ref("messages"), messages=ref("messages"), success={"type": "boolean", "enum": [True]}
            ),
            "messages": {"type": "array", "items": obj(code=N, message=T)},
            "zone": obj(id=ref("identifier"), name=T, plan=obj(id=T, price={"type": "number"})),
        },
        {
            "api_email": {"type": "apiKey", "in": "header", "name": "X-Auth-Email"},
            "api_key": {"type": "apiKey", "in": "header", "name": "X-Auth-Key"},
            "api_token": {"type": "http", "scheme": "bearer"},
        },
        [{"api_email": [], "api_key": []}, {"api_token": []}],
        "Cloudflare API",
    ),
}

TABLES: dict[str, list[tuple[Any, ...]]] = {
    "petstore": [
        (
            "pet",
            ["id"],
            {
                "url": "${env:LOOKUP_SWAGGER_PETSTORE_OPENAPI_URL}/api/v3/pet/{id}",
                "path.id": "id",
                "api-key": "${env:LOOKUP_SWAGGER_PETSTORE_OPENAPI_API_KEY}",
                "api-key-header": "api_key",
            },
        )
    ],
    "graph": [
        (
            "users",
            ["id"],
            {
                "url": "https://graph.microsoft.com/v1.0/users/{id}",
                "path.id": "id",
                "path.odata_type": '"@odata.type"',
                "token": "${env:LOOKUP_MICROSOFT_GRAPH_TOKEN}",
            },
        ),
        (
            "users_messages",
            ["user_id"],
            {
                "url": "https://graph.microsoft.com/v1.0/users/{user_id}/messages",
                "rows": "value",
                "path.odata_type": '"@odata.type"',
                "paging": "next_url",
                "paging-path": '"@odata.nextLink"',
                "token": "${env:LOOKUP_MICROSOFT_GRAPH_TOKEN}",
            },
        ),
    ],
    "gitlab": [
        (
            "projects_issues",
            ["project_id", "state"],
            {
                "url": "https://gitlab.example/api/v4/projects/{project_id}/issues?per_page=20&state={state}",
                "path.project_id": "project_id",
                "path.state": "state",
                "paging": "link",
                "api-key": "${env:LOOKUP_API_PRIVATE_TOKEN}",
                "api-key-header": "PRIVATE-TOKEN",
            },
        )
    ],
    "nws": [
        (
            "stations",
            ["stationId"],
            {
                "url": "https://api.weather.gov/stations/{stationId}",
                "header.Accept": "application/geo+json",
                "api-key": "${env:LOOKUP_WEATHER_GOV_API_USER_AGENT}",
                "api-key-header": "User-Agent",
            },
        )
    ],
    "twilio": [
        (
            "Accounts_Messages",
            ["account_sid", "sid"],
            {
                "url": "https://api.twilio.com/2010-04-01/Accounts/{account_sid}/Messages/{sid}.json",
                "path.account_sid": "account_sid",
                "path.sid": "sid",
                "username": "${env:LOOKUP_TWILIO_API_USERNAME}",
                "password": "${env:LOOKUP_TWILIO_API_PASSWORD}",
            },
        )
    ],
    "zendesk": [
        (
            "users",
            ["id"],
            {
                "url": "https://example.zendesk.com/api/v2/users/{id}",
                "rows": "user",
                "path.id": "id",
                "username": "${env:LOOKUP_API_USERNAME}",
                "password": "${env:LOOKUP_API_PASSWORD}",
            },
        )
    ],
    "digitalocean": [
        (
            "droplets",
            ["id"],
            {
                "url": "https://api.digitalocean.com/v2/droplets/{id}",
                "rows": "droplet",
                "path.id": "id",
                "token": "${env:LOOKUP_DIGITALOCEAN_API_TOKEN}",
            },
        ),
        (
            "droplets_snapshots",
            ["droplet_id"],
            {
                "url": "https://api.digitalocean.com/v2/droplets/{droplet_id}/snapshots?per_page=200",
                "rows": "snapshots",
                "paging": "page",
                "paging-parameter": "page",
                "page-size": "200",
                "token": "${env:LOOKUP_DIGITALOCEAN_API_TOKEN}",
            },
        ),
    ],
    "kubernetes": [
        (
            "namespaces_configmaps",
            ["name", "namespace"],
            {
                "url": "${env:LOOKUP_KUBERNETES_URL}/api/v1/namespaces/{namespace}/configmaps/{name}",
                "header.authorization": "${env:LOOKUP_KUBERNETES_AUTHORIZATION}",
            },
        )
    ],
    "jira": [
        (
            "issue",
            ["issueIdOrKey"],
            {
                "url": "https://your-domain.atlassian.net/rest/api/3/issue/{issueIdOrKey}",
                "username": "${env:LOOKUP_THE_JIRA_CLOUD_USERNAME}",
                "password": "${env:LOOKUP_THE_JIRA_CLOUD_PASSWORD}",
            },
        ),
        (
            "project_version",
            ["projectIdOrKey"],
            {
                "url": "https://your-domain.atlassian.net/rest/api/3/project/{projectIdOrKey}/version?maxResults=50",
                "rows": "values",
                "paging": "next_url",
                "paging-path": "nextPage",
                "username": "${env:LOOKUP_THE_JIRA_CLOUD_USERNAME}",
                "password": "${env:LOOKUP_THE_JIRA_CLOUD_PASSWORD}",
            },
        ),
    ],
    "springhal": [
        (
            "people_search_findByLastName",
            ["lastName"],
            {
                "url": "http://localhost:8080/people/search/findByLastName?lastName={lastName}",
                "rows": "_embedded.people",
                "path.lastName": "lastName",
                "path.links": "_links",
                "header.Accept": "application/hal+json",
            },
        ),
        (
            "people",
            ["id"],
            {
                "url": "http://localhost:8080/people/{id}",
                "path.links": "_links",
                "header.Accept": "application/hal+json",
            },
        ),
        ("owners_pets", ["ownerId"], {"url": "http://localhost:8080/owners/{ownerId}/pets"}),
    ],
    "fastapi": [
        ("/items/{item_id}", "its answer may be anything"),
        ("users", ["id"], {"url": "${env:LOOKUP_FASTAPI_URL}/users/{id}", "path.id": "id"}),
    ],
    "cloudflare": [
        (
            "zones",
            ["id"],
            {
                "url": "https://api.cloudflare.com/client/v4/zones/{id}",
                "rows": "result",
                "path.id": "id",
                "api-key": "${env:LOOKUP_CLOUDFLARE_API_X_AUTH_EMAIL}",
                "api-key-header": "X-Auth-Email",
                "header.X-Auth-Key": "${env:LOOKUP_CLOUDFLARE_API_X_AUTH_KEY}",
            },
        )
    ],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_of_a_public_document(name: str) -> None:
    found: list[tuple[Any, ...]] = []
    for each in read(DOCUMENTS[name]):
        if isinstance(each, Refused):
            found.append((each.operation.removeprefix("GET "), each.why))
        else:
            build_connector(each.table)
            options = {key: text for key, text in each.table.options.items() if key != "connector"}
            found.append((each.table.name, list(each.keys), options))
    assert found == TABLES[name]
