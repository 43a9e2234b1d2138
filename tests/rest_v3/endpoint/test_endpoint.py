"""The endpoint of a row: credentials, the order of checks, the operation and its answer."""

from typing import Any

import httpx
import orjson
import pytest

from rest_v3 import create_app
from rest_v3.operations import OperationRegistry
from rest_v3.profiles import UnknownProfileError
from rest_v3.requests.credentials import read_credential
from rest_v3.requests.params import choice, integer, text
from rest_v3.route import InvalidRouteError, Route
from rest_v3.router import Router, path_segments, split_path
from tests.rest_v3.support.fake_graph import FakeGraph, prepare
from tests.rest_v3.support.interface_rules import cites
from tests.rest_v3.support.response_shapes import check_error
from tests.rest_v3.support.sample_routes import SAMPLE_OPERATIONS, SAMPLE_ROUTES

ISSUE = "/projects/1/issues/101"


class TestPaths:
    @pytest.mark.parametrize("path", ["/projects/1/issues", "/projects/1/issues/", "/projects/1//issues//", "//projects/1/%69ssues"])
    async def test_slashes_are_folded(self, client: httpx.AsyncClient, path: str) -> None:
        assert (await client.get(f"http://inside/api/v3{path}")).status_code == 200

    async def test_an_escaped_slash_stays_in_its_segment(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        assert (await client.get("/projects/group%2Fname/issues")).status_code == 200
        assert fake.operations_run[-1][1]["id"] == "group/name"
        assert (await client.get("/projects/group/name/issues")).status_code == 404
        assert len(fake.operations_run) == 1

    async def test_the_singular_alias(self, client: httpx.AsyncClient) -> None:
        for word in ("merge_requests", "merge_request"):
            assert (await client.get(f"/projects/1/{word}/101")).json() == {"iid": 1}

    @cites("Errors: an error body is an object with message, for unknown calls too")
    @pytest.mark.parametrize("path", ["/", "/nothing", "/projects/1", "/projects/1/issues/1/2/3", "/user/..", "/projects/1/issues%2F1"])
    async def test_an_unknown_path(self, client: httpx.AsyncClient, fake: FakeGraph, path: str) -> None:
        response = await client.get(path)
        assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})
        assert fake.operations_run == []

    @cites("Errors: an error body is an object with message, for unknown calls too")
    async def test_a_wrong_method(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        response = await client.patch(ISSUE)
        assert (response.status_code, response.json()) == (405, {"message": "405 Method Not Allowed"})
        assert response.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PUT"
        response = await client.get(ISSUE + "/names", headers={"X-HTTP-Method-Override": "POST"})
        assert (response.status_code, fake.operations_run) == (405, [])

    async def test_options_lists_the_methods_and_matches_the_path_once(
        self, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        matches: list[str | None] = []
        find = Router.find
        monkeypatch.setattr(Router, "find", lambda self, *arguments: (matches.append(arguments[-1]), find(self, *arguments))[1])
        response = await client.options("http://inside/api/v3/projects/2/issues/102")
        assert (response.status_code, response.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PUT")
        assert len(matches) == 1

    async def test_head_is_get_without_the_body(self, client: httpx.AsyncClient) -> None:
        answer, head = await client.get("/projects/1/issues"), await client.head("/projects/1/issues")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers == answer.headers
        assert (await client.head(ISSUE + "/names")).status_code == 405

    @pytest.mark.parametrize("key", ["0", "-1", "1abc", "99999999999999999999", "%D9%A3", "%ff", "%00", "101%00", "%20101"])
    async def test_an_invalid_id_is_not_found(self, client: httpx.AsyncClient, key: str) -> None:
        response = await client.get(f"/projects/1/issues/{key}")
        assert response.status_code == 404
        check_error(response.json())

    @pytest.mark.parametrize("key", ["99999999999999999999", "%D9%A3", "%ff", "%00"])
    async def test_an_invalid_project_is_not_found(self, client: httpx.AsyncClient, fake: FakeGraph, key: str) -> None:
        response = await client.get(f"/projects/{key}/issues")
        assert (response.status_code, response.json()) == (404, {"message": "404 Project Not Found"})
        sent = fake.operations_run[-1][1]["id"]
        assert sent in ("0", "\ufffd")

    def test_below_a_mount(self) -> None:
        scope = {"raw_path": b"/api/v3/projects/a%2Fb", "path": "/api/v3/projects/a/b", "root_path": "/api/v3"}
        assert path_segments(scope) == ["projects", "a/b"]
        assert path_segments({**scope, "root_path": ""}) == ["projects", "a/b"]
        assert path_segments({"raw_path": b"/x/api/v3/user?a=/b", "path": "", "root_path": "/x/api/v3"}) == ["user"]
        assert path_segments({"raw_path": b"/api/v3/api/v3/user", "path": "", "root_path": "/api/v3"}) == ["api", "v3", "user"]
        assert path_segments({"path": "/user"}) == ["user"]

    def test_splitting(self) -> None:
        assert split_path(b"//a%2Fb/%c3%a9/%ff//") == ["a/b", "é", "\ufffd"]


class TestCredentials:
    @pytest.mark.parametrize(
        "settings",
        [
            {"headers": {"PRIVATE-TOKEN": "ada"}},
            {"headers": {"private-token": " ada "}},
            {"headers": {"Authorization": "Bearer ada"}},
            {"headers": {"Authorization": "bearer ada"}},
            {"params": {"private_token": "ada"}},
            {"data": {"private_token": "ada"}},
            {"json": {"private_token": "ada"}},
            {"files": {"private_token": (None, "ada")}},
        ],
    )
    async def test_accepted_locations(self, client: httpx.AsyncClient, fake: FakeGraph, settings: dict[str, Any]) -> None:
        del client.headers["PRIVATE-TOKEN"]
        response = await client.request("PUT", "/projects/1/merge_requests/101/touch", **settings)
        assert response.status_code == 200
        assert fake.credentials == ["ada"]
        assert "private_token" not in fake.operations_run[-1][1]

    async def test_a_parameter_wins_over_a_header(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/user?private_token=wrong")).status_code == 401
        assert (await client.get("/user?private_token=")).status_code == 401
        assert (await client.get("/user?private_token=ada", headers={"PRIVATE-TOKEN": "wrong"})).status_code == 200

    @cites("Authentication: a bearer header or the parameter private_token carry the token as well, and nothing else does")
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"headers": {"Authorization": "Basic YWRhOg=="}},
            {"headers": {"Cookie": "private_token=ada"}},
            {"headers": {"PRIVATE-TOKEN": ""}},
            {"params": {"access_token": "ada"}},
            {"json": {"private_token": ["ada"]}},
            {"json": {"private_token": {"a": "ada"}}},
        ],
    )
    async def test_a_credential_elsewhere_is_ignored(self, client: httpx.AsyncClient, settings: dict[str, Any]) -> None:
        del client.headers["PRIVATE-TOKEN"]
        response = await client.request("PUT", "/projects/1/merge_requests/101/touch", **settings)
        assert (response.status_code, response.json()) == (401, {"message": "401 Unauthorized"})

    async def test_a_body_of_a_get_is_ignored(self, client: httpx.AsyncClient) -> None:
        for settings in ({"json": {}}, {"data": {"private_token": "wrong"}}, {"content": b"{", "headers": {"content-type": "a/b"}}):
            assert (await client.request("GET", "/user", **settings)).status_code == 200  # type: ignore[arg-type]

    async def test_sudo_is_ignored(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/user?sudo=root", headers={"SUDO": "root"})
        assert response.json()["username"] == "ada"

    @pytest.mark.parametrize("token", ["a\0", "é", "x" * 600, "a\x01b"])
    def test_an_invalid_token_is_unauthorized(self, token: str) -> None:
        assert read_credential({}, token) == ""
        assert read_credential({b"private-token": token.encode()}, None) == ""


class TestOrderOfChecks:
    """401, then 404 of the project, then 403, then 404 of the thing, then 400 (docs/decisions.md 5)."""

    WRONG = {"state_event": "explode"}

    @pytest.mark.parametrize(
        ("path", "viewer", "status"),
        [
            (ISSUE, "nobody", 401),
            ("/projects/2/issues/101", "nobody", 401),
            ("/projects/2/issues/101", "ada", 404),
            ("/projects/1/issues/999", "ada", 404),
            (ISSUE, "reader", 403),
            (ISSUE, "ada", 400),
        ],
    )
    @pytest.mark.parametrize(
        "settings",
        [
            {"json": WRONG},
            {"json": {}},
            {"content": b"{", "headers": {"content-type": "application/json"}},
            {"content": b"title=%ff", "headers": {"content-type": "application/x-www-form-urlencoded"}},
            {"json": {"title": "a\0b"}},
            {"json": {"title": {}}},
            {"json": {"assignee_id": 2**31}},
        ],
    )
    async def test_wrong_parameters_come_last(
        self, client: httpx.AsyncClient, fake: FakeGraph, path: str, viewer: str, status: int, settings: dict[str, Any]
    ) -> None:
        settings = {**settings, "headers": {**settings.get("headers", {}), "PRIVATE-TOKEN": viewer}}
        response = await client.put(path, **settings)
        assert response.status_code == status
        check_error(response.json())
        assert fake.inputs == []

    async def test_routes_without_a_guard_check_viewer_and_project(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        assert (await client.post("/projects/1/issues/101/names")).status_code == 400
        assert (await client.post("/projects/2/issues/101/names")).json() == {"message": "404 Project Not Found"}
        assert (await client.get("/projects/1/issues?iid=x")).json() == {"message": {"iid": ["is not a number"]}}
        assert [name for name, _ in fake.operations_run] == ["ProjectSeen"] * 3

    async def test_a_too_large_body_comes_first(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        response = await client.put(ISSUE, content=b"a" * (2**20 + 1), headers={"PRIVATE-TOKEN": "nobody"})
        assert (response.status_code, response.json()) == (413, {"message": "413 Request Entity Too Large"})
        assert fake.operations_run == []

    async def test_a_rejecting_route_rejects_every_signed_in_caller(self, client: httpx.AsyncClient) -> None:
        for path in (ISSUE, "/projects/2/issues/abc"):
            response = await client.delete(path)
            assert (response.status_code, response.json()) == (405, {"message": "405 Method Not Allowed"})
            assert "allow" in response.headers
            assert (await client.delete(path, headers={"PRIVATE-TOKEN": "nobody"})).status_code == 401

    @pytest.mark.parametrize(
        ("query", "content", "content_type"),
        [
            ("", b"{", "application/json"),
            ("", b"[]", "application/json"),
            ("", b"title=%ff", "application/x-www-form-urlencoded"),
            ("", b"title=a", "text/plain"),
            ("", b"--", "multipart/form-data"),
            ("?title=%ff", b"", ""),
            ("?title[a]=b", b"", ""),
        ],
    )
    async def test_a_rejecting_route_ignores_what_it_is_sent(
        self, client: httpx.AsyncClient, query: str, content: bytes, content_type: str
    ) -> None:
        for path in (ISSUE, "/projects/2/issues/abc", "/projects/%ff/issues/%ff"):
            for viewer, status in (("ada", 405), ("nobody", 401)):
                headers = {"PRIVATE-TOKEN": viewer, "content-type": content_type}
                response = await client.request("DELETE", path + query, content=content, headers=headers)
                assert response.status_code == status
                check_error(response.json())

    async def test_a_rejecting_route_reads_no_large_body(self, client: httpx.AsyncClient) -> None:
        assert (await client.request("DELETE", ISSUE, content=b"a" * (2**20 + 1))).status_code == 413

    async def test_the_first_missing_parameter_is_named(self, client: httpx.AsyncClient) -> None:
        for settings in ({}, {"data": {"title": " "}}, {"json": {"title": None, "note": {}}}):
            response = await client.post("/projects/1/issues/101/names", **settings)  # type: ignore[arg-type]
            assert response.json() == {"message": '400 (Bad request) "title" not given'}

    async def test_one_of_several_is_needed(self, client: httpx.AsyncClient) -> None:
        response = await client.put(ISSUE, json={"unknown": 1})
        assert response.json()["message"].startswith('Required parameters "title" or "due_date" or')


class TestVariables:
    @pytest.mark.parametrize(
        "settings",
        [
            {"json": {"title": "a", "labels": ["x", "y"], "assignee_id": 0, "confidential": True, "state_event": "close"}},
            {"data": {"title": "a", "labels": "x, y", "assignee_id": "", "secret": "1", "state_event": "close"}},
            {"params": {"title": "a", "labels[]": ["x", "y"], "assignee_id": "0", "confidential": "t", "state_event": "close"}},
            {
                "files": {
                    "title": (None, "a"),
                    "labels": (None, "x,y"),
                    "assignee_id": (None, "0"),
                    "secret": (None, "on"),
                    "state_event": (None, "close"),
                }
            },
        ],
    )
    async def test_every_form_of_sending_is_equal(self, client: httpx.AsyncClient, fake: FakeGraph, settings: dict[str, Any]) -> None:
        assert (await client.put(ISSUE, **settings)).status_code == 200
        assert fake.operations_run[-1] == (
            "UpdateIssue",
            {
                "id": "1",
                "issue_id": 101,
                "title": "a",
                "labels": ["x", "y"],
                "assignee_id": None,
                "confidential": True,
                "state_event": "CLOSE",
            },
        )

    async def test_not_sent_differs_from_null(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        await client.put(ISSUE, json={"title": "a", "labels": None, "state_event": None, "assignee_id": "", "due_date": ""})
        assert fake.inputs == [{"project_path": "1", "database_id": 101, "title": "a", "assignee_id": None}]

    async def test_a_body_cannot_change_the_path(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        body = {"title": "a", "id": "<built-in function id>", "issue_id": 102, "project_id": 3, "first": 9}
        assert (await client.put(ISSUE + "?id=7", json=body)).status_code == 200
        assert fake.inputs == [{"project_path": "1", "database_id": 101, "title": "a"}]

    async def test_a_body_goes_before_the_query(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        await client.put(ISSUE + "?title=query&labels=q", json={"title": "body", "labels": ["b"]})
        assert (fake.inputs[0]["title"], fake.inputs[0]["labels"]) == ("body", ["b"])

    async def test_a_word_becomes_a_list_of_enums(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        await client.get("/projects/1/issues?state=closed&labels=a,b&iid[]=1&iid[]=2&page=3&per_page=5")
        assert fake.operations_run[-1][1] == {
            "id": "1",
            "state": ["CLOSED"],
            "labels": ["a", "b"],
            "iid": [1, 2],
            "first": 5,
            "offset": 10,
        }

    async def test_an_unknown_word_of_a_filter_is_ignored(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/projects/1/issues?state=all&milestone=&unknown=%00")
        assert response.headers["x-total"] == "45"

    async def test_parameters_of_a_delete_in_its_body(self, client: httpx.AsyncClient, fake: FakeGraph) -> None:
        for settings in ({"data": {"private_token": "ada"}}, {"json": {"private_token": "ada"}}):
            response = await client.request("DELETE", ISSUE + "/names", **settings)  # type: ignore[arg-type]
            assert response.json() == {"title": "Issue 1"}


class TestResponses:
    async def test_an_object(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/projects/1/issues/105")
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.json() == {
            "id": 105,
            "iid": 5,
            "title": "Issue 5",
            "state": "closed",
            "labels": ["bug"],
            "created_at": "2016-01-19T08:40:25.934Z",
            "closed_at": None,
            "author": {"username": "ada"},
            "history": ["opened", "closed"],
            "watchers": [{"username": "ada"}],
        }

    async def test_a_null_on_the_way_is_not_found(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/users/9")).json() == {"message": "404 User Not Found"}
        assert (await client.get("/projects/1/issues/999")).json() == {"message": "404 Not found"}
        assert (await client.get("/projects/1/repository/commits/abc")).json() == {"message": "404 Commit Not Found"}

    async def test_an_unavailable_part_is_null(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/projects/1/builds/101")
        assert (response.status_code, response.json()) == (200, {"id": 101, "build": None})

    async def test_a_part_that_failed_is_no_answer(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/projects/1/broken/101")).json() == {"message": "500 Internal Server Error"}

    async def test_an_idempotent_delete(self, client: httpx.AsyncClient) -> None:
        response = await client.delete("/projects/1/issues/999/names")
        assert (response.status_code, response.content) == (200, b"null")
        assert (await client.delete("/projects/1/issues/101/names", headers={"PRIVATE-TOKEN": "x"})).status_code == 401

    async def test_a_route_without_a_result_returns_null(self, client: httpx.AsyncClient) -> None:
        assert (await client.put("/projects/1/merge_requests/101/touch")).content == b"null"
        missing = await client.put("/projects/1/merge_requests/999/touch")
        assert (missing.status_code, missing.json()) == (404, {"message": "404 Label Not Found"})

    async def test_creating_is_201_and_a_row_may_reshape(self, client: httpx.AsyncClient) -> None:
        response = await client.post("/projects/1/issues/101/names", json={"title": "a"})
        assert (response.status_code, response.json()) == (201, [{"title": "Issue 1"}])

    async def test_a_row_for_administrators(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/users/1")).json() == {"id": 1, "username": "ada"}
        shown = await client.get("/users/1", headers={"PRIVATE-TOKEN": "root"})
        assert shown.json() == {"id": 1, "username": "ada", "email": "a@b"}

    async def test_secrets_are_not_stored(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/user")).headers["cache-control"] == "no-store"
        assert (await client.get(ISSUE)).headers["cache-control"] == "max-age=0, private, must-revalidate"

    async def test_the_request_id_of_the_server(self, fake: FakeGraph) -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/user", "headers": [], "state": {"request_id": "r-1"}}
        await build(fake)(scope, receive, send)
        assert sent[0]["status"] == 401
        assert (b"x-request-id", b"r-1") in sent[0]["headers"]

    async def test_a_fault_is_masked(self, fake: FakeGraph, caplog: pytest.LogCaptureFixture) -> None:
        async def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("secret")

        fake.run = broken  # type: ignore[method-assign]
        transport = httpx.ASGITransport(app=build(fake))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://inside") as client:
            response = await client.get("/user")
        assert (response.status_code, response.json()) == (500, {"message": "500 Internal Server Error"})
        assert "a request failed" in caplog.text

    async def test_a_disconnected_client_gets_no_response(self, fake: FakeGraph) -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await build(fake)({"type": "http", "method": "PUT", "path": ISSUE, "headers": []}, receive, send)
        assert (sent, fake.operations_run) == ([], [])


def build(fake: FakeGraph, *rows: Route, source: str = SAMPLE_OPERATIONS, profile: str = "document") -> Any:
    return create_app(
        fake,
        external_url="https://forge.example/",
        profile=profile,
        routes=rows or SAMPLE_ROUTES,
        operations=OperationRegistry((source,), prepare),
    )


ID = text("id", required=True)
KEY = integer("issue_id", required=True)


class TestInvalidRoutes:
    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"params": (ID,)}, "the path parameter issue_id is not declared"),
            ({"params": (ID, KEY, text("more"))}, "more must be both"),
            ({"operation": "NameIssue", "params": (ID, KEY, text("title"), text("note"))}, "title, which is an optional parameter"),
            ({"operation": "Gone"}, "defines the operation Gone"),
            ({"result_path": "project.thing"}, "does not select project.thing"),
            ({"guard": "Gone"}, "defines the operation Gone"),
            ({"guard": "ProjectCommit"}, "the guard ProjectCommit requires sha"),
            ({"guard": "TouchIssue"}, "must not be a mutation"),
            ({"needs_one_of": ("x",)}, "x is not a parameter"),
        ],
    )
    def test_end_the_start(self, settings: dict[str, Any], reason: str) -> None:
        defaults: dict[str, Any] = {"operation": "ProjectIssue", "params": (ID, KEY)}
        row = Route(call="GET /projects/:id/issues/:issue_id", **{**defaults, **settings})
        with pytest.raises(InvalidRouteError, match=reason):
            build(FakeGraph(), row)

    def test_a_word_the_schema_does_not_know(self) -> None:
        source = 'query A($s: [IssueState!]) { project(path: "1") { issues(state: $s) { totalCount } } }'
        with pytest.raises(InvalidRouteError, match="IssueState has no value MERGED"):
            build(FakeGraph(), Route(call="GET /a", params=(choice("s", "merged"),), operation="A"), source=source)

    def test_a_list_without_a_total_count(self) -> None:
        row = Route(call="GET /projects/:id/a", params=(ID,), operation="EndlessIssues", result_path="project.issues")
        with pytest.raises(InvalidRouteError, match="does not select nodes and totalCount"):
            build(FakeGraph(), row)

    def test_two_rows_of_one_call(self) -> None:
        row = Route(call="GET /user", operation="CurrentUser", result_path="viewer")
        with pytest.raises(ValueError, match="duplicate route GET /user"):
            build(FakeGraph(), row, row)


class TestProfiles:
    async def test_a_profile_changes_its_rows(self, fake: FakeGraph) -> None:
        row = Route(
            call="POST /projects/:id/labels",
            params=(ID, integer("issue_id", required=True)),
            operation="TouchIssue",
            result_path="updateIssue.issue",
            status=200,
        )
        found = {}
        for profile in ("document", "gitlab-8.5"):
            transport = httpx.ASGITransport(app=build(fake, row, profile=profile))
            async with httpx.AsyncClient(transport=transport, base_url="http://inside") as client:
                response = await client.post(
                    "/projects/1/labels?private_token=ada",
                    content=orjson.dumps({"issue_id": 101}),
                    headers={"content-type": "application/json"},
                )
                found[profile] = response.status_code
        assert found == {"document": 200, "gitlab-8.5": 201}

    def test_an_unknown_profile_ends_the_start(self, fake: FakeGraph) -> None:
        with pytest.raises(UnknownProfileError, match=r"unknown profile 'new'; use one of document, gitlab-8.5"):
            build(fake, profile="new")
