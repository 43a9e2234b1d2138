"""The OpenAPI document and the page that shows it."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rest_v3.api_docs.openapi import READING_FOLDER, build_document
from rest_v3.profiles import PROFILES, apply_profile
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from tests.rest_v3.support.response_shapes import ADMIN_SHAPES, SHAPES_OF_PROFILES
from tests.rest_v3.support.sample_routes import SAMPLE_ROUTES
from tests.support.api_clients import app_of_profile

ANSWERS_OF_ANY_KEYS = ("GET /hooks/:id",)
"""Rows whose body is a value of the scalar `JSON`."""


@pytest.fixture
async def described(client: httpx.AsyncClient) -> Any:
    response = await client.get("/openapi.json", headers={"PRIVATE-TOKEN": ""})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()


def braced(path: str) -> str:
    return re.sub(r":(\w+)", r"{\1}", path)


def resolve(described: Any, part: Any) -> Any:
    """What a part of the document is, or what it refers to."""
    if "$ref" in part:
        for key in part["$ref"].removeprefix("#/").split("/"):
            described = described[key]
        return described
    return part


def answer_of(described: Any, path: str, method: str = "get", status: str = "200") -> Any:
    """The schema of an answer; of its entries where it is a list."""
    schema = described["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
    return resolve(described, resolve(described, schema).get("items", schema))


def key_sets(described: Any, schema: Any) -> Iterator[set[str]]:
    """The keys of the objects that a schema allows; of the entries where it is a list."""
    schema = resolve(described, schema)
    for part in schema.get("anyOf", [schema["items"]] if "items" in schema else []):
        yield from key_sets(described, part)
    if "properties" in schema:
        yield set(schema["properties"])


class TestDocument:
    def test_has_every_row(self, described: Any) -> None:
        assert described["openapi"] == "3.1.0"
        assert [server["url"] for server in described["servers"]] == ["https://forge.example/api/v3"]
        found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
        assert found == {(row.method, braced(row.path)) for row in SAMPLE_ROUTES if row.rejection_status is None}

    def test_names_are_unique(self, described: Any) -> None:
        found = [call["operationId"] for methods in described["paths"].values() for call in methods.values()]
        assert len(found) == len(set(found))

    def test_every_path_parameter_is_declared(self, described: Any) -> None:
        for path, methods in described["paths"].items():
            for call in methods.values():
                declared = {each["name"] for each in call["parameters"] if each["in"] == "path"}
                assert declared == set(re.findall(r"{(\w+)}", path))

    def test_a_list(self, described: Any) -> None:
        call = described["paths"]["/projects/{id}/issues"]["get"]
        parameters = {each["name"]: each for each in call["parameters"]}
        assert parameters.keys() == {"id", "state", "labels", "iid", "page", "per_page"}
        assert resolve(described, parameters["state"]["schema"])["enum"] == ["opened", "closed"]
        assert parameters["per_page"]["schema"] == {"type": "integer", "minimum": 1, "default": 20, "maximum": 100}
        answer = call["responses"]["200"]
        assert {"Link", "X-Total"} <= answer["headers"].keys()
        assert set(call["responses"]) == {"200", "400", "401", "403", "404", "429", "500", "503"}
        assert answer["content"]["application/json"]["schema"] == {"type": "array", "items": {"$ref": "#/components/schemas/Issue"}}
        issue = described["components"]["schemas"]["Issue"]
        assert issue["properties"]["state"] == {"$ref": "#/components/schemas/IssueState"}
        assert issue["properties"]["closed_at"] == {"type": ["string", "null"], "format": "date-time"}
        assert issue["properties"]["labels"] == {"type": "array", "items": {"type": "string"}}
        assert issue["properties"]["author"] == {"anyOf": [{"$ref": "#/components/schemas/Person"}, {"type": "null"}]}
        assert issue["additionalProperties"] is False
        assert described["components"]["schemas"]["IssueState"]["enum"] == ["opened", "closed"]

    def test_inner_connections_are_arrays(self, described: Any) -> None:
        watchers = answer_of(described, "/projects/{id}/issues/{issue_id}")["properties"]["watchers"]
        assert watchers == {"type": "array", "items": {"$ref": "#/components/schemas/Person"}}

    def test_a_body(self, described: Any) -> None:
        call = described["paths"]["/projects/{id}/issues/{issue_id}/names"]["post"]
        for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert call["requestBody"]["content"][kind]["schema"] == {"$ref": "#/components/schemas/NameIssueBody"}
        body = described["components"]["schemas"]["NameIssueBody"]
        assert body["required"] == ["title"]
        assert body["properties"] == {"title": {"type": "string", "minLength": 1, "pattern": r"\S"}, "note": {"type": "string"}}
        assert {"201", "400", "401", "404", "406", "413", "422"} <= call["responses"].keys()
        assert "403" in call["responses"], "the row answers 401 to a forbidden request, but 403 to a token that lacks the scope"
        assert call["responses"]["201"]["content"]["application/json"]["schema"]["type"] == "array"

    def test_every_error_is_the_one_object(self, described: Any) -> None:
        for methods in described["paths"].values():
            for call in methods.values():
                for status, reference in call["responses"].items():
                    if int(status) >= 400:
                        content = resolve(described, reference)["content"]
                        assert content == {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}

    def test_a_deletion_that_may_find_nothing_answers_null(self, described: Any) -> None:
        call = described["paths"]["/projects/{id}/issues/{issue_id}/names"]["delete"]
        schema = call["responses"]["200"]["content"]["application/json"]["schema"]
        assert {"type": "null"} in schema["anyOf"]
        assert "404" in call["responses"], "of an id that is not one"

    async def test_responses_match_the_document(self, described: Any, client: httpx.AsyncClient) -> None:
        for path, call in (
            ("/projects/1/issues/101", "/projects/{id}/issues/{issue_id}"),
            ("/users/1", "/users/{id}"),
            ("/user", "/user"),
        ):
            schema = answer_of(described, call)
            found = (await client.get(path)).json().keys()
            assert set(schema["required"]) <= found <= schema["properties"].keys()


class TestInterface:
    """The document of the rows that are served."""

    @pytest.fixture(params=PROFILES)
    def served(self, request: pytest.FixtureRequest) -> Any:
        return build_document(app_of_profile(request.param).endpoints, "https://forge.example/api/v3")

    def test_paths_that_differ_in_names_alone_are_one(self, served: Any) -> None:
        bare = [re.sub(r"{\w+}", "{}", path) for path in served["paths"]]
        assert len(bare) == len(set(bare))
        assert served["paths"]["/users/{uid}/keys"].keys() == {"get", "post"}
        for path, methods in served["paths"].items():
            for call in methods.values():
                assert [each["name"] for each in call["parameters"] if each["in"] == "path"] == re.findall(r"{(\w+)}", path)

    @pytest.mark.parametrize("profile", PROFILES)
    def test_answers_have_the_keys_of_the_closed_shapes(self, profile: str) -> None:
        """Also of rows whose answers no test reads, as a list that is empty in all of them."""
        endpoints, shapes = app_of_profile(profile).endpoints, SHAPES_OF_PROFILES[profile]
        served = build_document(endpoints, "https://forge.example/api/v3")
        calls = {re.sub(r"{\w+}", "{}", path): methods for path, methods in served["paths"].items()}
        compared, differences = 0, []
        for route in (endpoint.route for endpoint in endpoints):
            names = (route.shape or "", ADMIN_SHAPES.get(route.shape or "", ""))
            keys = [shapes[name].keys() for name in names if isinstance(shapes.get(name), dict)]
            if not keys or route.call in ANSWERS_OF_ANY_KEYS:
                continue
            call = calls[re.sub(r":\w+", "{}", route.path)][route.method.lower()]
            schema = call["responses"][str(route.success_status)]["content"]["application/json"]["schema"]
            compared += 1
            if not any(found in keys for found in key_sets(served, schema)):
                differences.append(f"{route.call}: the operation does not select the keys of {route.shape} in response_shapes.py")
        assert compared > 150
        assert not differences, "\n".join(differences)

    @pytest.mark.parametrize(("profile", "first", "largest", "has_headers"), [("document", 1, 100, True), ("gitlab-8.5", 0, 10_000, False)])
    def test_pages_are_those_of_the_profile(self, profile: str, first: int, largest: int, has_headers: bool) -> None:
        served = build_document(app_of_profile(profile).endpoints, "https://forge.example/api/v3")
        call = served["paths"]["/projects/{id}/repository/commits"]["get"]
        schemas = {each["name"]: each["schema"] for each in call["parameters"]}
        assert schemas["page"] == {"type": "integer", "minimum": first, "default": first}
        assert schemas["per_page"]["maximum"] == largest
        assert ("headers" in call["responses"]["200"]) is has_headers

    def test_operations_are_called_the_same_under_every_profile(self) -> None:
        names = [{row.call: row.operation_id for row in apply_profile(profile, (*ROUTES, *EXTRA_ROUTES))} for profile in PROFILES]
        assert names[0] == names[1]
        assert len(set(names[0].values())) == len(names[0])

    def test_generators_make_fewer_models_than_calls(self, served: Any) -> None:
        """A schema with members or words of its own becomes a class wherever it stands; all of them stand among the components."""

        def own(part: Any) -> int:
            if isinstance(part, list):
                return sum(map(own, part))
            if not isinstance(part, dict):
                return 0
            counts = (part.get("type") == "object" and "properties" in part) or "enum" in part
            return counts + sum(map(own, part.values()))

        assert own(served["paths"]) == 0
        calls = sum(map(len, served["paths"].values()))
        assert own(served["components"]["schemas"]) <= len(served["components"]["schemas"]) < calls

    def test_everything_is_described(self, served: Any) -> None:
        for methods in served["paths"].values():
            for call in methods.values():
                assert call["summary"] and call["description"]
                assert all(each["description"] for each in call["parameters"] if each["in"] == "path")
        assert all(tag["description"] for tag in served["tags"])

    @pytest.mark.parametrize(
        ("method", "path", "schema"),
        [
            ("put", "/users/{uid}/unblock", {"type": "boolean", "description": "Whether anything was changed."}),
            ("put", "/users/{uid}/block", None),
            ("delete", "/user/emails/{id}", {"type": "null"}),
            ("delete", "/user/keys/{id}", {"anyOf": [{"$ref": "#/components/schemas/SSHKey"}, {"type": "null"}]}),
        ],
    )
    def test_bodies_that_are_no_objects(self, served: Any, method: str, path: str, schema: Any) -> None:
        found = served["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
        legacy = {"anyOf": [{"$ref": "#/components/schemas/DeletedSSHKey"}, {"type": "null"}]}
        assert (found in (schema, legacy)) if schema is not None else found["type"] == "boolean"


class TestReadingPage:
    async def test_the_page_loads_its_own_files_only(self, client: httpx.AsyncClient) -> None:
        page = await client.get("/docs/", headers={"PRIVATE-TOKEN": ""})
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "$" not in page.text
        links = re.findall(r'(?:src|href|data-document)="([^"]+)"', page.text)
        assert {"/", "/-/reference", "/-/graphiql"} < set(links)
        for link in links:
            if link in ("/", "/-/reference", "/-/graphiql", "data:,"):
                continue
            assert link.startswith("/api/v3/")
            answer = await client.get(f"http://inside{link}")
            assert answer.status_code == 200, link
            assert answer.headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize("name", ["reading.html", "reading.js", "reading.css"])
    def test_nothing_from_elsewhere_and_nothing_inline(self, name: str) -> None:
        text = (READING_FOLDER / name).read_text(encoding="utf-8")
        for word in ("http:", "https:", "//cdn", "@import", "url(", "innerHTML", "eval(", "style=", "onclick", "<style"):
            assert word not in text

    async def test_is_compressed_for_clients_that_accept_it(self, client: httpx.AsyncClient) -> None:
        plain, compressed = [await client.get("/openapi.json", headers={"Accept-Encoding": coding}) for coding in ("identity", "gzip")]
        assert plain.content == compressed.content
        assert ("content-encoding" in plain.headers, compressed.headers["content-encoding"]) == (False, "gzip")
        assert int(compressed.headers["content-length"]) < 100_000
        assert plain.headers["vary"] == compressed.headers["vary"] == "accept-encoding"

    async def test_only_get_and_head_are_allowed(self, client: httpx.AsyncClient) -> None:
        response = await client.post("/docs")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert (await client.head("/openapi.json")).content == b""
