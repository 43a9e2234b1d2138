"""The section Commits and commit statuses of the interface document: commit statuses."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graph.context import Services
from storage import tables
from storage.tables import AccessLevel, CheckStatus, UserState, Visibility
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

NO_PROJECT = {"message": "404 Project Not Found"}
NO_COMMIT = {"message": "404 Commit Not Found"}
FORBIDDEN = {"message": "403 Forbidden"}
UNAUTHORIZED = {"message": "401 Unauthorized"}
WRONG_STATE = {"message": {"status": ["is not included in the list"]}}
STATES = ("pending", "running", "success", "failed", "canceled")
MOMENT = datetime(2016, 1, 1, tzinfo=UTC)


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, history={"commits": 8})


@pytest.fixture
async def head(services: Services, project: tables.Project) -> str:
    """The commit of `master`."""
    return str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))


def list_of(project: tables.Project, sha: str = "master") -> str:
    return f"/projects/{project.id}/repository/commits/{sha}/statuses"


def post_of(project: tables.Project, sha: str = "master") -> str:
    return f"/projects/{project.id}/statuses/{sha}"


class TestListStatuses:
    """GET /projects/:id/repository/commits/:sha/statuses"""

    @pytest.fixture
    async def posted_statuses(self, make: DataFactory, project: tables.Project, head: str) -> None:
        for name, ref, stage, status in (
            ("unit", "master", "test", CheckStatus.FAILED),
            ("unit", None, "test", CheckStatus.SUCCESS),
            ("lint", "master", "check", CheckStatus.RUNNING),
            ("unit", "master", "test", CheckStatus.SUCCESS),
            ("unit", "topic", "other", CheckStatus.CANCELED),
        ):
            await make.commit_status(project, head, name=name, ref=ref, stage=stage, status=status)

    async def test_shows_each_in_the_documents_form(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        status = await make.commit_status(
            project,
            head,
            name="unit",
            ref="master",
            status=CheckStatus.FAILED,
            allow_failure=True,
            description="3 of 4",
            target_url="https://ci.example/1",
            author_id=owner.id,
            created_at=MOMENT,
            started_at=MOMENT + timedelta(seconds=1),
            finished_at=MOMENT + timedelta(seconds=2.5),
        )
        plain = await make.commit_status(project, head, created_at=MOMENT)

        response = await api.get(list_of(project, head), owner)

        assert response.status_code == 200
        assert response.json() == [
            {
                "id": status.id,
                "sha": head,
                "ref": "master",
                "status": "failed",
                "name": "unit",
                "target_url": "https://ci.example/1",
                "description": "3 of 4",
                "created_at": "2016-01-01T00:00:00.000Z",
                "started_at": "2016-01-01T00:00:01.000Z",
                "finished_at": "2016-01-01T00:00:02.500Z",
                "allow_failure": True,
                "author": {
                    "id": owner.id,
                    "username": owner.username,
                    "name": owner.name,
                    "state": "active",
                    "avatar_url": None,
                    "web_url": f"{EXTERNAL_URL}/u/{owner.username}",
                },
            },
            {
                **dict.fromkeys(("ref", "target_url", "description", "started_at", "finished_at", "author")),
                "id": plain.id,
                "sha": head,
                "status": "pending",
                "name": "default",
                "created_at": "2016-01-01T00:00:00.000Z",
                "allow_failure": False,
            },
        ]

    @pytest.mark.usefixtures("posted_statuses")
    @pytest.mark.parametrize(
        ("params", "indexes"),
        [
            ({}, [1, 2, 3, 4]),
            ({"all": "true"}, [0, 1, 2, 3, 4]),
            ({"all": "1"}, [0, 1, 2, 3, 4]),
            ({"all": "false"}, [1, 2, 3, 4]),
            ({"all": "perhaps"}, [1, 2, 3, 4]),
            ({"ref_name": "master"}, [2, 3]),
            ({"ref": "master"}, [2, 3]),
            ({"ref_name": "master", "ref": "topic"}, [2, 3]),
            ({"ref_name": "master", "all": "true"}, [0, 2, 3]),
            ({"ref_name": " "}, [1, 2, 3, 4]),
            ({"stage": "test"}, [1, 3]),
            ({"stage": "test", "ref_name": "master"}, [3]),
            ({"name": "lint"}, [2]),
            ({"name": "unit", "ref": "topic"}, [4]),
            ({"name": "gone"}, []),
            ({"nonsense": "x"}, [1, 2, 3, 4]),
        ],
    )
    async def test_filters(self, api: Api, owner: tables.User, project: tables.Project, params: dict[str, str], indexes: list[int]) -> None:
        every = (await api.get(list_of(project), owner, all="true")).json()
        assert [(each["name"], each["ref"], each["status"]) for each in every][:2] == [
            ("unit", "master", "failed"),
            ("unit", None, "success"),
        ]

        assert (await api.get(list_of(project), owner, **params)).json() == [every[place] for place in indexes]

    async def test_is_empty_for_a_commit_without_statuses(self, api: Api, owner: tables.User, project: tables.Project) -> None:
        response = await api.get(list_of(project), owner)

        assert (response.status_code, response.json()) == (200, [])

    async def test_of_a_commit_by_any_exact_name(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        status = await make.commit_status(project, head)

        for name in (head, head[:8], "master"):
            assert [each["id"] for each in (await api.get(list_of(project, name), owner)).json()] == [status.id]
        assert (await api.get(list_of(project, "topic"), owner)).json() == []

    async def test_pages_with_totals(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        for number in range(5):
            await make.commit_status(project, head, name=str(number), ref="master")
        await make.commit_status(project, head, name="other", ref="topic")

        response = await api.get(list_of(project, head), owner, page="2", per_page="2", ref="master")

        assert [each["name"] for each in response.json()] == ["2", "3"]
        assert (response.headers["x-total"], response.headers["x-total-pages"], response.headers["x-next-page"]) == ("5", "3", "3")
        assert f'<{EXTERNAL_URL}/api/v3{list_of(project, head)}?page=3&per_page=2&ref=master>; rel="next"' in response.headers["link"]

    async def test_rejects_invalid_requests(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        guest, reporter, stranger = await make.user(), await make.user(), await make.user()
        blocked = await make.user(state=UserState.BLOCKED)
        await make.member(project, guest, AccessLevel.GUEST)
        await make.member(project, reporter, AccessLevel.REPORTER)
        internal = await make.project(visibility=Visibility.INTERNAL, history={"commits": 8})
        for viewer, path, status, body in (
            (None, list_of(project), 401, UNAUTHORIZED),
            (blocked, list_of(internal), 401, UNAUTHORIZED),
            (stranger, list_of(project), 404, NO_PROJECT),
            (owner, "/projects/99999/repository/commits/master/statuses", 404, NO_PROJECT),
            (guest, list_of(project), 403, FORBIDDEN),
            (guest, list_of(project, "gone"), 403, FORBIDDEN),
            (reporter, list_of(project, "gone"), 404, NO_COMMIT),
            (reporter, list_of(project, "HEAD~1"), 404, NO_COMMIT),
            (reporter, list_of(project, "%00"), 404, NO_COMMIT),
            (reporter, list_of(project), 200, []),
            (stranger, list_of(internal), 200, []),
        ):
            response = await api.get(path, viewer)
            assert (response.status_code, response.json()) == (status, body), path

    async def test_statement_count_does_not_grow_with_rows(
        self, api: Api, make: DataFactory, statements: StatementRecorder, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        for number in range(31):
            await make.commit_status(project, head, name=str(number), author_id=owner.id)

        # The refs of the project are cached from then on.
        await api.get(list_of(project), owner, per_page="1")
        with statements.record() as one:
            await api.get(list_of(project), owner, per_page="1")
        with statements.record() as thirty:
            assert len((await api.get(list_of(project), owner, per_page="30")).json()) == 30

        assert len(thirty) == len(one) <= 6


class TestPostStatus:
    """POST /projects/:id/statuses/:sha"""

    async def test_shows_it_in_the_documents_form(self, api: Api, owner: tables.User, project: tables.Project, head: str) -> None:
        body = {"name": "unit", "ref": "master", "target_url": "https://ci.example/1", "description": "3 of 4"}

        response = await api.post(post_of(project, head), owner, state="success", **body)

        assert response.status_code == 201
        found = response.json()
        assert {key: found[key] for key in body} == body
        assert (found["sha"], found["status"], found["allow_failure"], found["started_at"]) == (head, "success", False, None)
        assert found["finished_at"] == found["created_at"]
        assert found["author"]["username"] == owner.username
        assert (await api.get(list_of(project, head), owner)).json() == [found]

    @cites(
        "States: a commit status takes the given state whatever it was",
        "States: posting adds a commit status or updates the one of the same name",
    )
    @pytest.mark.parametrize("state", STATES)
    async def test_accepts_every_state_whatever_it_was(self, api: Api, owner: tables.User, project: tables.Project, state: str) -> None:
        for before in STATES:
            first = (await api.post(post_of(project), owner, state=before, name=before)).json()
            response = await api.post(post_of(project), owner, state=state, name=before)

            assert (response.status_code, response.json()["status"]) == (201, state)
            # What waits or runs is updated; what has ended gets a new row.
            assert (response.json()["id"] == first["id"]) is (before in ("pending", "running"))

    async def test_preserves_started_and_finished_times(self, api: Api, owner: tables.User, project: tables.Project) -> None:
        pending, running, success = [
            (await api.post(post_of(project), owner, state=state)).json() for state in ("pending", "running", "success")
        ]

        assert (pending["started_at"], pending["finished_at"]) == (None, None)
        assert running["started_at"] is not None
        assert running["finished_at"] is None
        assert success["started_at"] == running["started_at"] <= success["finished_at"]
        assert pending["id"] == running["id"] == success["id"]

    async def test_accepts_parameters_in_the_query(self, api: Api, owner: tables.User, project: tables.Project, head: str) -> None:
        """As a Ruby client of the time does: a query string and no body."""
        response = await api.request(
            "POST", post_of(project, head), owner, params={"state": "running", "context": "ci/a b", "ref": "master", "description": "é"}
        )

        assert response.status_code == 201
        assert [response.json()[key] for key in ("status", "name", "ref", "description")] == ["running", "ci/a b", "master", "é"]

    async def test_accepts_a_form(self, api: Api, owner: tables.User, project: tables.Project) -> None:
        response = await api.request("POST", post_of(project), owner, data={"state": "failed", "name": "unit"})

        assert (response.status_code, response.json()["name"]) == (201, "unit")

    @pytest.mark.parametrize(
        ("params", "name", "ref"),
        [
            ({}, "default", None),
            ({"name": "", "ref": " "}, "default", None),
            ({"name": None, "ref": None}, "default", None),
            ({"context": "ci"}, "ci", None),
            ({"name": "unit", "context": "ci"}, "unit", None),
            ({"name": None, "context": "ci"}, "ci", None),
            ({"name": " ", "context": "ci", "ref": "", "ref_name": "gone"}, "ci", "gone"),
            ({"ref": "v1"}, "default", "v1"),
            ({"ref_name": "gone"}, "default", "gone"),
            ({"ref": "master", "ref_name": "topic"}, "default", "master"),
        ],
    )
    async def test_accepts_aliases_of_name_and_ref(
        self, api: Api, owner: tables.User, project: tables.Project, params: dict[str, Any], name: str, ref: str | None
    ) -> None:
        found = (await api.post(post_of(project), owner, state="pending", **params)).json()

        assert (found["name"], found["ref"]) == (name, ref)
        again = (await api.post(post_of(project), owner, state="running", name=name, ref=ref)).json()
        assert again["id"] == found["id"]

    async def test_by_id_short_id_branch_or_tag(self, api: Api, owner: tables.User, project: tables.Project, head: str) -> None:
        for name in (head, head[:8], "master"):
            found = (await api.post(post_of(project, name), owner, state="pending")).json()
            assert (found["sha"], found["ref"]) == (head, None)
        assert (await api.post(post_of(project, "v1"), owner, state="pending")).status_code == 201

    async def test_the_commit_follows_at_once(self, api: Api, owner: tables.User, project: tables.Project, head: str) -> None:
        path = f"/projects/{project.id}/repository/commits/{head}"
        assert (await api.get(path, owner)).json()["status"] == "not_found"
        for state in ("pending", "running", "failed", "success", "canceled"):
            await api.post(post_of(project, head), owner, state=state)
            assert (await api.get(path, owner)).json()["status"] == state

    @cites("States: states of a commit status")
    async def test_requires_a_state(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for body in ({}, {"state": ""}, {"state": " "}, {"state": None}):
            response = await api.post(post_of(project), owner, **body)
            assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "state" not given'})
        for state in ("skipped", "Success", "SUCCESS", "5", 5, ["success", "failed"], {"a": "success"}):
            response = await api.post(post_of(project), owner, state=state)
            assert (response.status_code, response.json()) == (400, WRONG_STATE), state
        assert await make.count(tables.CommitStatus) == 0

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            ({"target_url": "javascript:alert(1)"}, "must be a valid URL"),
            ({"target_url": "data:text/html,<script>"}, "must be a valid URL"),
            ({"target_url": "JavaScript:alert(1)"}, "must be a valid URL"),
            ({"target_url": "mailto:a@example.org"}, "must be a valid URL"),
            ({"target_url": "java\tscript:alert(1)"}, "must be a valid URL"),
            ({"target_url": "builds\\1"}, "must be a valid URL"),
            ({"target_url": "//[x"}, "must be a valid URL"),
            ({"name": "x" * 256}, "is too long (maximum is 255 characters)"),
            ({"ref": "x" * 256}, "is too long (maximum is 255 characters)"),
            ({"name": "a\0b"}, "is invalid"),
            ({"description": {}}, "is invalid"),
        ],
    )
    async def test_rejects_invalid_values(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, wrong: dict[str, Any], text: str
    ) -> None:
        response = await api.post(post_of(project), owner, state="success", **wrong)

        assert (response.status_code, response.json()) == (400, {"message": {name: [text] for name in wrong}})
        assert await make.count(tables.CommitStatus) == 0

    async def test_rejects_invalid_requests_in_order(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        """401, 404 of the project, 403, 404 of the commit, 400 (docs/decisions.md 5)."""
        reporter, developer, stranger = await make.user(), await make.user(), await make.user()
        blocked = await make.user(state=UserState.BLOCKED)
        await make.member(project, reporter, AccessLevel.REPORTER)
        await make.member(project, developer, AccessLevel.DEVELOPER)
        internal = await make.project(visibility=Visibility.INTERNAL, history={"commits": 8})
        for viewer, path, status, body in (
            (None, post_of(project), 401, UNAUTHORIZED),
            (blocked, post_of(internal), 401, UNAUTHORIZED),
            (stranger, post_of(project), 404, NO_PROJECT),
            (owner, "/projects/99999/statuses/master", 404, NO_PROJECT),
            (reporter, post_of(project), 403, FORBIDDEN),
            (reporter, post_of(project, "gone"), 403, FORBIDDEN),
            (stranger, post_of(internal), 403, FORBIDDEN),
            (developer, post_of(project, "gone"), 404, NO_COMMIT),
            (developer, post_of(project, "master~1"), 404, NO_COMMIT),
            (developer, post_of(project, "%00"), 404, NO_COMMIT),
        ):
            for state in ("success", "nonsense"):
                response = await api.post(path, viewer, state=state)
                assert (response.status_code, response.json()) == (status, body), (path, state)
        assert (await api.post(post_of(project), developer, state="nonsense")).json() == WRONG_STATE
        assert await make.count(tables.CommitStatus) == 0
        assert (await api.post(post_of(project), developer, state="success")).status_code == 201

    async def test_ignores_read_only_parameters(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        other = await make.user()

        response = await api.request(
            "POST",
            post_of(project),
            owner,
            json={
                "state": "pending",
                "author_id": other.id,
                "created_at": "2000-01-01",
                "finished_at": "2000-01-01",
                "allow_failure": True,
            },
            headers={"PRIVATE-TOKEN": token_of(owner)},
        )

        found = response.json()
        assert (found["author"]["id"], found["finished_at"], found["allow_failure"]) == (owner.id, None, False)
        assert not found["created_at"].startswith("2000")

    async def test_concurrent_duplicates_create_one_row(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        responses = await asyncio.gather(*(api.post(post_of(project), owner, state="pending", name="unit") for _ in range(12)))

        assert {response.status_code for response in responses} == {201}
        assert len({response.json()["id"] for response in responses}) == 1
        assert await make.count(tables.CommitStatus) == 1

    async def test_an_unreadable_repository_is_unavailable(
        self, api: Api, owner: tables.User, project: tables.Project, services: Services
    ) -> None:
        services.repositories.remove(project.id)

        for response in (await api.post(post_of(project), owner, state="success"), await api.get(list_of(project), owner)):
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) in range(1, 6)
