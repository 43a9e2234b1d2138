"""The check of closed shapes detects wrong answers."""

from typing import Any

import pytest

from tests.rest_v3.support.response_shapes import SHAPES, check_error, check_shape

EMAIL = {"id": 1, "email": "a@b.example"}
MILESTONE = {
    "id": 1,
    "iid": 1,
    "project_id": 1,
    "title": "1.0",
    "description": None,
    "due_date": "2016-02-29",
    "state": "active",
    "created_at": "2016-01-19T08:40:25.934Z",
    "updated_at": "2016-01-19T08:40:25.934+01:00",
}


def test_a_matching_body_passes() -> None:
    check_shape("Email", EMAIL)
    check_shape("Milestone", MILESTONE)
    check_shape("Milestone", {**MILESTONE, "due_date": None})


@pytest.mark.parametrize(
    ("name", "body", "difference"),
    [
        ("Email", {**EMAIL, "token": "secret"}, "Email.token: is not in the shape"),
        ("Email", {"id": 1}, "Email.email: is missing"),
        ("Email", {**EMAIL, "id": "1"}, "Email.id: integer was expected"),
        ("Email", {**EMAIL, "id": True}, "Email.id: integer was expected"),
        ("Email", [EMAIL], "an object was expected"),
        ("Milestone", {**MILESTONE, "state": "ACTIVE"}, "Milestone.state: active|closed was expected"),
        ("Milestone", {**MILESTONE, "created_at": "2016-01-19T08:40:25.934123Z"}, "Milestone.created_at: time was expected"),
        ("Milestone", {**MILESTONE, "created_at": "2016-01-19T08:40:25Z"}, "Milestone.created_at: time was expected"),
        ("Milestone", {**MILESTONE, "title": None}, "Milestone.title: text was expected"),
        ("Integers", [1, "2"], "Integers[1]: integer was expected"),
    ],
)
def test_a_mismatch_is_reported(name: str, body: Any, difference: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_shape(name, body)
    assert difference in str(caught.value)


@pytest.mark.parametrize("body", [None, [], "", {}, {"error": "x"}, {"message": ""}, {"message": {"a": "b"}}, {"message": "x", "error": 1}])
def test_rejects_invalid_error_bodies(body: Any) -> None:
    with pytest.raises(AssertionError):
        check_error(body)


def test_every_type_of_a_shape_is_known() -> None:
    words = {"integer", "number", "boolean", "text", "time", "day", "any"}

    def check_kind(kind: Any) -> None:
        if isinstance(kind, dict):
            for part in kind.values():
                check_kind(part)
        elif isinstance(kind, list):
            check_kind(kind[0])
        else:
            plain = kind.removeprefix("?")
            assert plain in words or plain in SHAPES or "|" in plain or plain in ("project_create", "base64"), kind

    for shape in SHAPES.values():
        check_kind(shape)
