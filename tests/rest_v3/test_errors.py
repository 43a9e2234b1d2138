"""Codes become statuses and bodies."""

from typing import Any

import httpx
import pytest

from graph.errors import Code
from rest_v3.errors import STATUSES, from_problem, from_user_errors, not_given, standard_text
from rest_v3.route import Route
from tests.rest_v3.fake_graph import FakeProblem
from tests.rest_v3.rules import cites
from tests.rest_v3.shapes import check_error


def row(**settings: Any) -> Route:
    return Route(call="PUT /things/:id", operation="UpdateThing", **settings)


def error(code: str, message: str = "is wrong", field: str | None = "title") -> dict[str, Any]:
    return {"code": code, "message": message, "field": field}


def test_every_code_of_the_graph_has_a_line() -> None:
    assert STATUSES.keys() == {code.value for code in Code}


@cites("Errors: every failure has a status and a message")
@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_an_object_for_a_body(code: Code) -> None:
    for refused in (from_problem(row(), FakeProblem(code)), from_user_errors(row(), [error(code)], {})):
        assert refused.status == STATUSES[code]
        check_error(refused.body)


class TestProblems:
    @pytest.mark.parametrize(
        ("code", "status", "message"),
        [
            ("UNAUTHENTICATED", 401, "401 Unauthorized"),
            ("FORBIDDEN", 403, "403 Forbidden"),
            ("INTERNAL", 500, "500 Internal Server Error"),
            ("BAD_REQUEST", 400, "400 Bad Request"),
            ("SOMETHING_NEW", 500, "500 Internal Server Error"),
        ],
    )
    def test_texts(self, code: str, status: int, message: str) -> None:
        refused = from_problem(row(), FakeProblem(code, "never shown"))
        assert (refused.status, refused.body, refused.headers) == (status, {"message": message}, {})

    @pytest.mark.parametrize(
        ("missing", "subject", "message"),
        [
            (None, "Issue", "404 Not found"),
            (None, None, "404 Not found"),
            (None, "Project", "404 Project Not Found"),
            ("Label", "Project", "404 Project Not Found"),
            ("Label", "Commit", "404 Commit Not Found"),
            ("Label", "Label", "404 Label Not Found"),
            ("User", "Key", "404 User Not Found"),
            ("", "Build", "404 Not Found"),
        ],
    )
    def test_the_noun_that_is_missing(self, missing: str | None, subject: str | None, message: str) -> None:
        refused = from_problem(row(missing=missing), FakeProblem("NOT_FOUND", subject=subject))
        assert (refused.status, refused.body) == (404, {"message": message})

    def test_a_reason(self) -> None:
        refused = from_problem(row(), FakeProblem("FORBIDDEN", reason="Build is not retryable"))
        assert refused.body == {"message": "403 Forbidden - Build is not retryable"}

    def test_when_to_come_again(self) -> None:
        assert from_problem(row(), FakeProblem("LIMIT_EXCEEDED")).headers == {"Retry-After": "60"}
        assert from_problem(row(), FakeProblem("UNAVAILABLE")).headers == {"Retry-After": "1"}
        assert from_problem(row(), FakeProblem("UNAVAILABLE", retry_after=9)).headers == {"Retry-After": "9"}


class TestOverrides:
    def test_a_status_brings_its_own_words(self) -> None:
        refused = from_problem(row(errors={"FORBIDDEN": 401}), FakeProblem("FORBIDDEN"))
        assert (refused.status, refused.body) == (401, {"message": "401 Unauthorized"})

    def test_a_success_is_null(self) -> None:
        refused = from_problem(row(errors={"NOT_FOUND": 200}), FakeProblem("NOT_FOUND"))
        assert (refused.status, refused.body) == (200, None)

    def test_a_success_with_a_body(self) -> None:
        refused = from_user_errors(row(errors={"CONFLICT": (200, False)}), [error("CONFLICT")], {})
        assert (refused.status, refused.body) == (200, False)

    def test_a_status_with_a_text(self) -> None:
        refused = from_user_errors(row(errors={"CONFLICT": (409, "Already exists")}), [error("CONFLICT")], {})
        assert (refused.status, refused.body) == (409, {"message": "Already exists"})

    def test_reasons_stay(self) -> None:
        refused = from_user_errors(row(errors={"TAKEN": 404}), [error("TAKEN", "has already been taken", "email")], {})
        assert (refused.status, refused.body) == (404, {"message": {"email": ["has already been taken"]}})


class TestUserErrors:
    def test_values_are_told_together(self) -> None:
        refused = from_user_errors(
            row(),
            [error("INVALID", "is too long"), error("TAKEN", "is taken"), error("INVALID", "is odd", "dueDate")],
            {"dueDate": "due_date"},
        )
        assert refused.status == 400
        assert refused.body == {"message": {"title": ["is too long", "is taken"], "due_date": ["is odd"]}}

    def test_names_of_fields(self) -> None:
        refused = from_user_errors(
            row(fields={"name": "title"}),
            [error("INVALID", field="name"), error("INVALID", field="sshKeyText"), error("INVALID", field="admin")],
            {"admin": "is_admin"},
        )
        assert isinstance(refused.body, dict)
        assert list(refused.body["message"]) == ["title", "ssh_key_text", "is_admin"]

    def test_an_error_about_the_whole(self) -> None:
        assert from_user_errors(row(), [error("INVALID", "cannot be", None)], {}).body == {"message": "cannot be"}

    def test_what_is_not_about_a_value_decides(self) -> None:
        refused = from_user_errors(row(), [error("INVALID"), error("CONFLICT", "Label already exists")], {})
        assert (refused.status, refused.body) == (409, {"message": "Label already exists"})

    @pytest.mark.parametrize(
        ("code", "status", "message"),
        [
            ("REQUIRED", 400, '400 (Bad request) "title" not given'),
            ("NOT_ALLOWED", 405, "405 Method Not Allowed"),
            ("NOT_MERGEABLE", 405, "Branch cannot be merged"),
            ("NOT_SET", 406, "Branch cannot be merged"),
            ("CONFLICT", 409, "Branch cannot be merged"),
            ("TOO_LARGE", 413, "413 Request Entity Too Large"),
        ],
    )
    def test_texts(self, code: str, status: int, message: str) -> None:
        refused = from_user_errors(row(), [error(code, "Branch cannot be merged")], {})
        assert (refused.status, refused.body) == (status, {"message": message})


def test_standard_texts() -> None:
    assert standard_text(404) == "404 Not found"
    assert standard_text(405) == "405 Method Not Allowed"
    assert standard_text(413) == "413 Request Entity Too Large"
    assert not_given("title") == '400 (Bad request) "title" not given'


@cites("Errors: every failure has a status and a message")
class TestOnTheWire:
    @pytest.mark.parametrize("code", ["FORBIDDEN", "LIMIT_EXCEEDED", "UNAVAILABLE", "INTERNAL", "NOT_FOUND"])
    async def test_an_error_of_the_operation(self, client: httpx.AsyncClient, code: str) -> None:
        response = await client.get(f"/failures/{code}")
        assert response.status_code == STATUSES[code]
        check_error(response.json())
        assert ("retry-after" in response.headers) == (response.status_code in (429, 503))

    @pytest.mark.parametrize(
        ("title", "status", "message"),
        [
            ("INVALID", 404, {"message": {"note": ["says no"]}}),
            ("CONFLICT", 422, {"message": "No room"}),
            ("NOT_ALLOWED", 405, {"message": "405 Method Not Allowed"}),
            ("TAKEN", 404, {"message": {"note": ["says no"]}}),
        ],
    )
    async def test_a_user_error(self, client: httpx.AsyncClient, title: str, status: int, message: object) -> None:
        response = await client.post("/projects/1/issues/101/names", json={"title": title})
        expected = 400 if title == "INVALID" else status
        assert (response.status_code, response.json()) == (expected, message)
        assert ("allow" in response.headers) == (status == 405)
