"""The OpenAPI document and the page that reads it."""

import re
from typing import Any

import httpx
import pytest

from rest_v3.openapi import READING
from tests.rest_v3.rows import ROWS


@pytest.fixture
async def described(client: httpx.AsyncClient) -> Any:
    response = await client.get("/openapi.json", headers={"PRIVATE-TOKEN": ""})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()


def braced(path: str) -> str:
    return re.sub(r":(\w+)", r"{\1}", path)


class TestDocument:
    def test_has_every_row(self, described: Any) -> None:
        assert described["openapi"] == "3.1.0"
        assert described["servers"] == [{"url": "https://forge.example/api/v3"}]
        found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
        assert found == {(row.method, braced(row.path)) for row in ROWS}

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
        assert parameters["state"]["schema"]["enum"] == ["opened", "closed"]
        assert parameters["per_page"]["schema"] == {"type": "integer", "minimum": 1, "default": 20, "maximum": 100}
        answer = call["responses"]["200"]
        assert {"Link", "X-Total"} <= answer["headers"].keys()
        assert set(call["responses"]) == {"200", "400", "401", "403", "404", "500", "503"}
        schema = answer["content"]["application/json"]["schema"]
        assert schema["type"] == "array"
        assert schema["items"]["properties"]["state"] == {"type": "string", "enum": ["opened", "closed"]}
        assert schema["items"]["properties"]["closed_at"] == {"type": ["string", "null"], "format": "date-time"}
        assert schema["items"]["properties"]["labels"] == {"type": "array", "items": {"type": "string"}}
        assert schema["items"]["properties"]["author"]["type"] == ["object", "null"]
        assert schema["items"]["additionalProperties"] is False

    def test_inner_connections_are_arrays(self, described: Any) -> None:
        answer = described["paths"]["/projects/{id}/issues/{issue_id}"]["get"]["responses"]["200"]
        watchers = answer["content"]["application/json"]["schema"]["properties"]["watchers"]
        assert (watchers["type"], watchers["items"]["type"]) == ("array", "object")

    def test_a_body(self, described: Any) -> None:
        call = described["paths"]["/projects/{id}/issues/{issue_id}/names"]["post"]
        for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data"):
            schema = call["requestBody"]["content"][kind]["schema"]
            assert schema["required"] == ["title"]
            assert schema["properties"].keys() == {"title", "note"}
        assert {"201", "400", "401", "404", "422"} <= call["responses"].keys()
        assert "403" not in call["responses"], "the row answers 401 there"
        assert call["responses"]["201"]["content"]["application/json"]["schema"]["type"] == "array"

    def test_a_row_that_refuses(self, described: Any) -> None:
        call = described["paths"]["/projects/{id}/issues/{issue_id}"]["delete"]
        assert call["deprecated"]
        assert "200" not in call["responses"]
        assert "405" in call["responses"]

    async def test_answers_are_what_it_says(self, described: Any, client: httpx.AsyncClient) -> None:
        for path, call in (
            ("/projects/1/issues/101", "/projects/{id}/issues/{issue_id}"),
            ("/users/1", "/users/{id}"),
            ("/user", "/user"),
        ):
            answer = described["paths"][call]["get"]["responses"]["200"]
            schema = answer["content"]["application/json"]["schema"]
            found = (await client.get(path)).json().keys()
            assert set(schema["required"]) <= found <= schema["properties"].keys()


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
        assert links
        for link in links:
            assert link.startswith("/api/v3/")
            answer = await client.get(f"http://inside{link}")
            assert answer.status_code == 200, link
            assert answer.headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize("name", ["reading.html", "reading.js", "reading.css"])
    def test_nothing_from_elsewhere_and_nothing_inline(self, name: str) -> None:
        text = (READING / name).read_text(encoding="utf-8")
        for word in ("http:", "https:", "//cdn", "@import", "url(", "innerHTML", "eval(", "style=", "onclick", "<style"):
            assert word not in text

    async def test_only_reading(self, client: httpx.AsyncClient) -> None:
        response = await client.post("/docs")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert (await client.head("/openapi.json")).content == b""
