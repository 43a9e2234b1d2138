"""Error codes become statuses and bodies."""

from typing import Any

import httpx
import pytest

from graph.errors import Code
from rest_v3.errors import STATUS_BY_CODE, missing_parameter_message, response_from_error, response_from_user_errors, standard_message
from rest_v3.route import Route
from tests.rest_v3.support.fake_graph import FakeErrorEntry
from tests.rest_v3.support.interface_rules import cites
from tests.rest_v3.support.response_shapes import check_error


def row(**settings: Any) -> Route:
    return Route(call="PUT /things/:id", operation="UpdateThing", **settings)


def error(code: str, message: str = "is wrong", field: str | None = "title") -> dict[str, Any]:
    return {"code": code, "message": message, "field": field}


def test_every_code_of_the_graph_has_a_line() -> None:
    assert STATUS_BY_CODE.keys() == {code.value for code in Code}


@cites("Errors: every failure has a status and a message")
@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_an_object_for_a_body(code: Code) -> None:
    for refused in (response_from_error(row(), FakeErrorEntry(code)), response_from_user_errors(row(), [error(code)], {})):
        assert refused.status == STATUS_BY_CODE[code]
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
        refused = response_from_error(row(), FakeErrorEntry(code, "never shown"))
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
        refused = response_from_error(row(not_found_noun=missing), FakeErrorEntry("NOT_FOUND", subject=subject))
        assert (refused.status, refused.body) == (404, {"message": message})

    def test_a_reason(self) -> None:
        refused = response_from_error(row(), FakeErrorEntry("FORBIDDEN", reason="Build is not retryable"))
        assert refused.body == {"message": "403 Forbidden - Build is not retryable"}

    def test_retry_after(self) -> None:
        assert response_from_error(row(), FakeErrorEntry("LIMIT_EXCEEDED")).headers == {"Retry-After": "60"}
        assert response_from_error(row(), FakeErrorEntry("UNAVAILABLE")).headers == {"Retry-After": "1"}
        assert response_from_error(row(), FakeErrorEntry("UNAVAILABLE", retry_after=9)).headers == {"Retry-After": "9"}


class TestOverrides:
    def test_a_status_has_its_own_message(self) -> None:
        refused = response_from_error(row(errors={"FORBIDDEN": 401}), FakeErrorEntry("FORBIDDEN"))
        assert (refused.status, refused.body) == (401, {"message": "401 Unauthorized"})

    def test_a_success_is_null(self) -> None:
        refused = response_from_error(row(errors={"NOT_FOUND": 200}), FakeErrorEntry("NOT_FOUND"))
        assert (refused.status, refused.body) == (200, None)

    def test_a_success_with_a_body(self) -> None:
        refused = response_from_user_errors(row(errors={"CONFLICT": (200, False)}), [error("CONFLICT")], {})
        assert (refused.status, refused.body) == (200, False)

    def test_a_status_with_a_text(self) -> None:
        refused = response_from_user_errors(row(errors={"CONFLICT": (409, "Already exists")}), [error("CONFLICT")], {})
        assert (refused.status, refused.body) == (409, {"message": "Already exists"})

    def test_the_message_of_an_error(self) -> None:
        refused = response_from_error(row(errors={"FORBIDDEN User": (404, "{message}")}), FakeErrorEntry("FORBIDDEN", "No", subject="User"))
        assert (refused.status, refused.body) == (404, {"message": "No"})

    def test_a_status_with_a_list_of_texts(self) -> None:
        refused = response_from_user_errors(row(errors={"CONFLICT": (409, ["{Field}: {message}"])}), [error("CONFLICT", "is {odd}")], {})
        assert (refused.status, refused.body) == (409, {"message": ["Title: is {odd}"]})

    def test_reasons_stay(self) -> None:
        refused = response_from_user_errors(row(errors={"TAKEN": 404}), [error("TAKEN", "has already been taken", "email")], {})
        assert (refused.status, refused.body) == (404, {"message": {"email": ["has already been taken"]}})


class TestUserErrors:
    def test_value_errors_are_merged(self) -> None:
        refused = response_from_user_errors(
            row(),
            [error("INVALID", "is too long"), error("TAKEN", "is taken"), error("INVALID", "is odd", "dueDate")],
            {"dueDate": "due_date"},
        )
        assert refused.status == 400
        assert refused.body == {"message": {"title": ["is too long", "is taken"], "due_date": ["is odd"]}}

    def test_names_of_fields(self) -> None:
        refused = response_from_user_errors(
            row(error_field_names={"name": "title"}),
            [error("INVALID", field="name"), error("INVALID", field="sshKeyText"), error("INVALID", field="admin")],
            {"admin": "is_admin"},
        )
        assert isinstance(refused.body, dict)
        assert list(refused.body["message"]) == ["title", "ssh_key_text", "is_admin"]

    def test_an_error_about_the_whole(self) -> None:
        assert response_from_user_errors(row(), [error("INVALID", "cannot be", None)], {}).body == {"message": "cannot be"}

    def test_an_error_without_a_field_takes_precedence(self) -> None:
        refused = response_from_user_errors(row(), [error("INVALID"), error("CONFLICT", "Label already exists")], {})
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
        refused = response_from_user_errors(row(), [error(code, "Branch cannot be merged")], {})
        assert (refused.status, refused.body) == (status, {"message": message})


def test_standard_texts() -> None:
    assert standard_message(404) == "404 Not found"
    assert standard_message(405) == "405 Method Not Allowed"
    assert standard_message(413) == "413 Request Entity Too Large"
    assert missing_parameter_message("title") == '400 (Bad request) "title" not given'


@cites("Errors: every failure has a status and a message")
class TestOnTheWire:
    @pytest.mark.parametrize("code", ["FORBIDDEN", "LIMIT_EXCEEDED", "UNAVAILABLE", "INTERNAL", "NOT_FOUND"])
    async def test_an_error_of_the_operation(self, client: httpx.AsyncClient, code: str) -> None:
        response = await client.get(f"/failures/{code}")
        assert response.status_code == STATUS_BY_CODE[code]
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
