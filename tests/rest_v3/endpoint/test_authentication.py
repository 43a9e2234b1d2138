"""The section Authentication of the interface document, over whole tables of calls."""

import re
from typing import Any

import pytest

from storage.tables import Visibility
from tests.make import DataFactory, token_of
from tests.rest_v3.support.further_calls import FURTHER_CALLS
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api

UNAUTHORIZED = (401, {"message": "401 Unauthorized"})
ISSUES = [documented.call for documented in DOCUMENTED_CALLS if documented.area == "issues"]


@cites("Authentication: every call to issues needs a caller")
@pytest.mark.parametrize("call", ISSUES)
async def test_issues_require_authentication(api: Api, make: DataFactory, call: str) -> None:
    """Even where everybody sees the project, and whatever is sent with it."""
    project = await make.project(visibility=Visibility.PUBLIC)
    issue = await make.issue(project)
    method, path = call.split(" ")
    path = path.replace(":id", str(project.id)).replace(":issue_id", str(issue.id))

    sent: list[dict[str, Any]] = [{}, {"headers": {"PRIVATE-TOKEN": ""}}, {"params": {"title": "T"}}]
    for settings in sent:
        response = await api.request(method, path, **settings)
        assert (response.status_code, response.json()) == UNAUTHORIZED


@cites("Errors: a missing or wrong token is 401")
async def test_every_call_rejects_a_missing_or_wrong_token(api: Api, make: DataFactory) -> None:
    admin = await make.admin()
    wrong = (None, "", "x", f"{token_of(admin)}x", token_of(admin).upper(), admin.username)
    for documented in (*DOCUMENTED_CALLS, *FURTHER_CALLS):
        method, path = documented.call.split(" ")
        if path.endswith("/trigger/builds"):
            # Its credential is the token of a trigger, in a parameter.
            continue
        path = re.sub(r":\w+", "1", path)
        for token in wrong if documented.area == "users" else wrong[:3]:
            headers = {} if token is None else {"PRIVATE-TOKEN": token}
            response = await api.request(method, path, headers=headers)
            assert (response.status_code, response.json()) == UNAUTHORIZED, (documented.call, token)


@cites("Authentication: the header PRIVATE-TOKEN carries the user's private token")
async def test_the_token_identifies_the_caller(api: Api, make: DataFactory) -> None:
    for user in [await make.user() for _ in range(3)]:
        for name in ("PRIVATE-TOKEN", "private-token"):
            response = await api.request("GET", "/user", headers={name: token_of(user)})
            assert (response.json()["id"], response.json()["private_token"]) == (user.id, token_of(user))


@cites("Authentication: a password gives the token")
async def test_no_other_answer_shows_a_token(api: Api, make: DataFactory) -> None:
    user, admin = await make.user(), await make.admin()
    for path in ("/users", f"/users/{user.id}", f"/users/{admin.id}"):
        for viewer in (user, admin):
            assert "token" not in (await api.get(path, viewer)).text
