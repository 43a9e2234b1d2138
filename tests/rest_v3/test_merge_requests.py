"""The section Merge requests of the interface document."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, IssueState, Visibility
from tests.forge import Api
from tests.history import git, grow
from tests.make import Make
from tests.rest_v3.rules import cites
from tests.statements import Statements

NOT_FOUND = {"message": "404 Not found"}
NO_PROJECT = {"message": "404 Project Not Found"}
UNAUTHORIZED = {"message": "401 Unauthorized"}
FORBIDDEN = {"message": "403 Forbidden"}


class Shop:
    """A project with a branch `feature` that can be merged, and people of each level; `ada` is its master."""

    def __init__(self, make: Make, api: Api, project: tables.Project, people: Mapping[str, tables.User]) -> None:
        self.make, self.api, self.project, self.people = make, api, project, people
        self.ada = people["ada"]
        self.path = make.services.repositories.path_of(project.id)
        self.url = f"/projects/{project.id}/merge_requests"

    def grow(self, branch: str, files: dict[str, bytes | None], **more: Any) -> str:
        return grow(self.path, branch, files, **more)

    async def open(self, branch: str = "feature", target: str = "master", viewer: tables.User | None = None, **more: Any) -> Any:
        """A new merge request as the API shows it."""
        given = {"source_branch": branch, "target_branch": target, "title": "Add a door", **more}
        response = await self.api.post(self.url, viewer or self.ada, **given)
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
async def shop(make: Make, api: Api) -> Shop:
    people = {name: await make.user(name, name=name.title()) for name in ("ada", "dev", "rep", "guest", "stranger")}
    levels = {"ada": AccessLevel.MASTER, "dev": AccessLevel.DEVELOPER, "rep": AccessLevel.REPORTER, "guest": AccessLevel.GUEST}
    project = await make.project(history={"commits": 4}, members=[(people[name], level) for name, level in levels.items()])
    shop = Shop(make, api, project, people)
    shop.grow("feature", {"door.txt": b"a door\n"}, start="master", message="Add a door")
    return shop


class TestListMergeRequests:
    """GET /projects/:id/merge_requests"""

    async def test_gives_those_into_the_project_newest_first(self, shop: Shop) -> None:
        first = await shop.open()
        shop.grow("other", {"wall.txt": b"a wall\n"}, start="master")
        second = await shop.open("other", title="Add a wall")

        response = await shop.api.get(shop.url, shop.people["guest"])

        assert response.status_code == 200
        assert [entry["id"] for entry in response.json()] == [second["id"], first["id"]]
        assert response.headers["X-Total"] == "2"

    async def test_filters_by_state_and_number(self, shop: Shop) -> None:
        for name in ("a", "b", "c"):
            shop.grow(name, {f"{name}.txt": name.encode()}, start="master")
        opened, closed, merged = [await shop.open(name, title=name) for name in ("a", "b", "c")]
        await shop.api.put(f"{shop.url}/{closed['id']}", shop.ada, state_event="close")
        await shop.api.put(f"{shop.url}/{merged['id']}/merge", shop.ada)

        async def found(**filters: Any) -> set[str]:
            return {entry["title"] for entry in (await shop.api.get(shop.url, shop.ada, **filters)).json()}

        assert await found(state="opened") == {"a"}
        assert await found(state="closed") == {"b"}
        assert await found(state="merged") == {"c"}
        assert await found(state="all") == await found(state="nonsense") == await found() == {"a", "b", "c"}
        assert await found(iid=opened["iid"]) == {"a"}
        await shop.api.put(f"{shop.url}/{closed['id']}", shop.ada, state_event="reopen")
        assert await found(state="opened") == {"a", "b"}

    async def test_orders_by_either_time_in_either_direction(self, shop: Shop) -> None:
        for name in ("a", "b"):
            shop.grow(name, {f"{name}.txt": name.encode()}, start="master")
        first = await shop.open("a", title="a")
        await shop.open("b", title="b")
        await shop.api.put(f"{shop.url}/{first['id']}", shop.ada, description="changed last")

        async def titles(**order: str) -> list[str]:
            return [entry["title"] for entry in (await shop.api.get(shop.url, shop.ada, **order)).json()]

        assert await titles() == await titles(order_by="created_at", sort="desc") == await titles(order_by="nonsense") == ["b", "a"]
        assert await titles(sort="asc") == ["a", "b"]
        assert await titles(order_by="updated_at") == ["a", "b"]

    async def test_costs_the_same_for_one_and_for_many(self, shop: Shop, statements: Statements) -> None:
        label = await shop.make.label(shop.project, "bug")
        for number in range(3):
            shop.grow(f"b{number}", {f"{number}.txt": b"x"}, start="master")
            await shop.open(f"b{number}", labels="bug", assignee_id=shop.ada.id)
            if number == 0:
                with statements.counted() as one:
                    await shop.api.get(shop.url, shop.ada)
        with statements.counted() as three:
            assert len((await shop.api.get(shop.url, shop.ada)).json()) == 3
        assert len(one) == len(three)
        assert label.title == "bug"

    async def test_is_not_there_for_strangers_and_needs_a_token(self, shop: Shop) -> None:
        assert (await shop.api.get(shop.url, shop.people["stranger"])).json() == NO_PROJECT
        assert (await shop.api.get(shop.url)).json() == UNAUTHORIZED


class TestGetMergeRequest:
    """GET /projects/:id/merge_requests/:merge_request_id"""

    async def test_shows_every_field_of_the_document(self, shop: Shop) -> None:
        milestone = await shop.make.milestone(shop.project, title="v1")
        made = await shop.open(
            description="So that one can get in.", assignee_id=shop.people["dev"].id, milestone_id=milestone.id, labels="z, a"
        )

        response = await shop.api.get(f"{shop.url}/{made['id']}", shop.people["guest"])

        found = response.json()
        assert response.status_code == 200
        assert found["author"]["username"] == "ada"
        assert found["author"]["email"] == "ada@example.org"
        assert found["assignee"]["username"] == "dev"
        assert found["milestone"]["title"] == "v1"
        for key in ("author", "assignee", "milestone"):
            del found[key]
        assert found == {
            "id": made["id"],
            "iid": 1,
            "project_id": shop.project.id,
            "source_project_id": shop.project.id,
            "target_project_id": shop.project.id,
            "title": "Add a door",
            "description": "So that one can get in.",
            "state": "opened",
            "source_branch": "feature",
            "target_branch": "master",
            "upvotes": 0,
            "downvotes": 0,
            "labels": ["a", "z"],
            "work_in_progress": False,
            "merge_when_build_succeeds": False,
            "merge_status": "can_be_merged",
        }

    async def test_has_a_second_path_that_clients_use(self, shop: Shop) -> None:
        made = await shop.open()

        response = await shop.api.get(f"/projects/{shop.project.id}/merge_request/{made['id']}", shop.ada)

        assert response.status_code == 200
        assert response.json() == made

    async def test_counts_thumbs(self, shop: Shop) -> None:
        made = await shop.open()
        await shop.api.post(f"{shop.url}/{made['id']}/notes", shop.people["dev"], body=":+1:")
        await shop.api.post(f"{shop.url}/{made['id']}/notes", shop.ada, body=":thumbsdown:")

        found = (await shop.api.get(f"{shop.url}/{made['id']}", shop.ada)).json()

        assert (found["upvotes"], found["downvotes"]) == (1, 1)

    async def test_is_not_found_in_another_project(self, shop: Shop) -> None:
        made = await shop.open()
        other = await shop.make.project(owner=shop.ada)
        for wrong in (f"/projects/{other.id}/merge_requests/{made['id']}", f"{shop.url}/{made['id'] + 1}", f"{shop.url}/1x"):
            response = await shop.api.get(wrong, shop.ada)
            assert response.status_code == 404
            assert response.json() == NOT_FOUND


class TestMergeRequestCommits:
    """GET /projects/:id/merge_requests/:merge_request_id/commits"""

    async def test_gives_what_merging_would_bring_newest_first(self, shop: Shop) -> None:
        shop.grow("feature", {"door.txt": b"a better door\n"}, message="Mend the door\n\nIt squeaked.\n")
        made = await shop.open()

        response = await shop.api.get(f"{shop.url}/{made['id']}/commits", shop.people["guest"])

        assert response.status_code == 200
        assert [commit["title"] for commit in response.json()] == ["Mend the door", "Add a door"]
        assert response.json()[0]["message"].startswith("Mend the door\n\nIt squeaked.")
        assert response.headers["X-Total"] == "2"

    async def test_pages(self, shop: Shop) -> None:
        shop.grow("feature", {"door.txt": b"a better door\n"}, message="Mend the door")
        made = await shop.open()

        response = await shop.api.get(f"{shop.url}/{made['id']}/commits", shop.ada, per_page=1, page=2)

        assert [commit["title"] for commit in response.json()] == ["Add a door"]

    async def test_stay_after_the_merge_and_the_end_of_the_branch(self, shop: Shop) -> None:
        made = await shop.open()
        await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada, should_remove_source_branch=True)

        response = await shop.api.get(f"{shop.url}/{made['id']}/commits", shop.ada)

        assert [commit["title"] for commit in response.json()] == ["Add a door"]


class TestMergeRequestChanges:
    """GET /projects/:id/merge_requests/:merge_request_id/changes"""

    async def test_adds_times_and_the_changes(self, shop: Shop) -> None:
        made = await shop.open(assignee_id=shop.people["dev"].id)

        response = await shop.api.get(f"{shop.url}/{made['id']}/changes", shop.people["guest"])

        assert response.status_code == 200
        (change,) = response.json()["changes"]
        assert (change["new_path"], change["new_file"], change["renamed_file"], change["deleted_file"]) == ("door.txt", True, False, False)
        assert change["diff"].endswith("@@ -0,0 +1 @@\n+a door\n")
        assert response.json()["assignee"]["username"] == "dev"

    async def test_are_those_since_the_branch_left(self, shop: Shop) -> None:
        shop.grow("master", {"wall.txt": b"a wall\n"}, message="Meanwhile")
        made = await shop.open()

        response = await shop.api.get(f"{shop.url}/{made['id']}/changes", shop.ada)

        assert [change["new_path"] for change in response.json()["changes"]] == ["door.txt"]

    async def test_costs_the_same_for_one_file_and_for_fifty(self, shop: Shop, statements: Statements) -> None:
        small = await shop.open()
        shop.grow("big", {f"room{number}.txt": b"a room\n" * 20 for number in range(50)}, start="master")
        big = await shop.open("big")

        with statements.counted() as one:
            await shop.api.get(f"{shop.url}/{small['id']}/changes", shop.ada)
        with statements.counted() as fifty:
            response = await shop.api.get(f"{shop.url}/{big['id']}/changes", shop.ada)

        assert len(response.json()["changes"]) == 50
        assert len(one) == len(fifty)


class TestCreateMergeRequest:
    """POST /projects/:id/merge_requests"""

    @cites("Errors: 200 for created issues, merge requests and labels")
    async def test_answers_200_with_the_new_one(self, shop: Shop) -> None:
        response = await shop.api.post(
            shop.url, shop.people["dev"], source_branch="feature", target_branch="master", title="WIP: Add a door"
        )

        assert response.status_code == 200
        assert (response.json()["iid"], response.json()["work_in_progress"]) == (1, True)

    async def test_answers_201_to_clients_of_the_time(self, shop: Shop, api_of_the_time: Api) -> None:
        response = await api_of_the_time.post(shop.url, shop.ada, source_branch="feature", target_branch="master", title="A door")

        assert response.status_code == 201

    async def test_names_the_first_parameter_that_is_missing(self, shop: Shop) -> None:
        given: dict[str, Any] = {}
        for name in ("source_branch", "target_branch", "title"):
            response = await shop.api.post(shop.url, shop.ada, **given)
            assert response.status_code == 400
            assert response.json() == {"message": f'400 (Bad request) "{name}" not given'}
            given[name] = "master"

    async def test_refuses_the_same_branch_twice(self, shop: Shop) -> None:
        response = await shop.api.post(shop.url, shop.ada, source_branch="master", target_branch="master", title="Nothing")

        assert response.status_code == 422
        assert response.json() == {"message": "You can not use same project/branch for source and target"}

    async def test_refuses_a_target_that_is_no_parent(self, shop: Shop) -> None:
        other = await shop.make.project(owner=shop.ada, history={"commits": 4})

        response = await shop.api.post(
            shop.url, shop.ada, source_branch="feature", target_branch="master", title="Far", target_project_id=other.id
        )

        assert response.status_code == 422
        assert response.json() == {"message": "Source project is not a fork of target project"}

    async def test_does_not_find_a_target_that_the_caller_may_not_see(self, shop: Shop) -> None:
        hidden = await shop.make.project()
        for target in (hidden.id, 99999):
            response = await shop.api.post(
                shop.url, shop.ada, source_branch="feature", target_branch="master", title="Far", target_project_id=target
            )
            assert response.status_code == 404

    @pytest.mark.parametrize(("source", "target", "field"), [("absent", "master", "source_branch"), ("feature", "@{-1}", "target_branch")])
    async def test_refuses_branches_that_are_not_there(self, shop: Shop, source: str, target: str, field: str) -> None:
        response = await shop.api.post(shop.url, shop.ada, source_branch=source, target_branch=target, title="Odd")

        assert response.status_code == 400
        assert list(response.json()["message"]) == [field]

    async def test_refuses_a_second_one_of_the_same_branches(self, shop: Shop) -> None:
        await shop.open(title="First")

        response = await shop.api.post(shop.url, shop.ada, source_branch="feature", target_branch="master", title="Second")

        assert response.status_code == 409
        assert response.json() == {"message": 'Cannot Create: This merge request already exists: ["First"]'}

    async def test_comes_from_a_fork(self, shop: Shop) -> None:
        public = await shop.make.project(owner=shop.ada, history={"commits": 4}, visibility=Visibility.PUBLIC)
        fork = await shop.make.project(owner=shop.people["stranger"], history={"commits": 4}, forked_from_id=public.id)
        grow(shop.make.services.repositories.path_of(fork.id), "patch", {"patch.txt": b"mended\n"}, start="master")

        response = await shop.api.post(
            f"/projects/{fork.id}/merge_requests",
            shop.people["stranger"],
            source_branch="patch",
            target_branch="master",
            title="A patch",
            target_project_id=public.id,
        )

        assert response.status_code == 200, response.text
        made = response.json()
        assert (made["project_id"], made["source_project_id"], made["target_project_id"]) == (public.id, fork.id, public.id)
        accepted = await shop.api.put(f"/projects/{public.id}/merge_requests/{made['id']}/merge", shop.ada)
        assert accepted.json()["state"] == "merged"

    async def test_is_for_developers(self, shop: Shop) -> None:
        for name in ("rep", "guest"):
            response = await shop.api.post(shop.url, shop.people[name], source_branch="feature", target_branch="master", title="A door")
            assert response.status_code == 403
            assert response.json() == FORBIDDEN
        assert (await shop.api.post(shop.url, shop.people["stranger"], title="A door")).status_code == 404


class TestUpdateMergeRequest:
    """PUT /projects/:id/merge_requests/:merge_request_id"""

    async def test_changes_what_is_sent_and_nothing_else(self, shop: Shop) -> None:
        made = await shop.open(description="Why", labels="a")

        response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, title="[WIP] A window", labels="b,c")

        assert response.status_code == 200
        assert response.json() == {**made, "title": "[WIP] A window", "labels": ["b", "c"], "work_in_progress": True}

    async def test_clears_labels_assignee_and_milestone(self, shop: Shop) -> None:
        milestone = await shop.make.milestone(shop.project)
        made = await shop.open(labels="a", assignee_id=shop.ada.id, milestone_id=milestone.id)

        response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, labels="", assignee_id=0, milestone_id=0)

        assert (response.json()["labels"], response.json()["assignee"], response.json()["milestone"]) == ([], None, None)

    @cites("States: state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged")
    async def test_closes_and_reopens(self, shop: Shop) -> None:
        made = await shop.open()
        for event, state in (("close", "closed"), ("close", "closed"), ("reopen", "reopened"), ("close", "closed")):
            response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, state_event=event)
            assert response.json()["state"] == state

    @cites("States: state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged")
    async def test_merges(self, shop: Shop) -> None:
        made = await shop.open()

        response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, state_event="merge")

        assert response.json()["state"] == "merged"
        assert git(shop.path, "show", "master:door.txt") == "a door"

    async def test_moves_to_another_target(self, shop: Shop) -> None:
        shop.grow("stable", {"old.txt": b"old\n"}, start="master")
        made = await shop.open()

        response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, target_branch="stable")

        assert response.json()["target_branch"] == "stable"
        assert response.json()["merge_status"] == "can_be_merged"

    async def test_keeps_the_source_branch(self, shop: Shop) -> None:
        made = await shop.open()

        same = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, source_branch="feature")
        other = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, source_branch="master")

        assert same.status_code == 200
        assert other.status_code == 400
        assert other.json() == {"message": "Source branch cannot be changed"}

    @cites("States: state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged")
    async def test_refuses_an_event_that_nobody_knows(self, shop: Shop) -> None:
        made = await shop.open()

        response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, state_event="explode", title="Never")

        assert response.status_code == 400
        assert (await shop.api.get(f"{shop.url}/{made['id']}", shop.ada)).json() == made

    async def test_refuses_a_milestone_of_another_project(self, shop: Shop) -> None:
        made = await shop.open()
        foreign = await shop.make.milestone(await shop.make.project(owner=shop.ada))

        response = await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, milestone_id=foreign.id)

        assert response.status_code == 400

    async def test_is_for_masters_the_author_and_the_assignee(self, shop: Shop) -> None:
        dev = shop.people["dev"]
        made = await shop.open(viewer=dev)
        assert (await shop.api.put(f"{shop.url}/{made['id']}", dev, title="Mine")).status_code == 200
        theirs = await shop.api.put(f"{shop.url}/{made['id']}", shop.people["rep"], title="Not mine")
        assert theirs.status_code == 403


class TestAcceptMergeRequest:
    """PUT /projects/:id/merge_requests/:merge_request_id/merge"""

    @cites("States: a merge request is merged by merge")
    async def test_makes_a_merge_commit(self, shop: Shop) -> None:
        made, before = await shop.open(description="Please"), git(shop.path, "rev-parse", "master")

        response = await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.people["dev"])

        assert response.status_code == 200
        assert response.json() == {**made, "state": "merged"}
        assert git(shop.path, "rev-parse", "master^1", "master^2").split() == [before, git(shop.path, "rev-parse", "feature")]
        message = git(shop.path, "log", "-1", "--format=%B", "master").strip()
        assert message == "Merge branch 'feature' into 'master'\n\nAdd a door\n\nPlease\n\nSee merge request !1"
        assert git(shop.path, "log", "-1", "--format=%an <%ae>", "master") == "Dev <dev@example.org>"

    async def test_takes_a_message_and_removes_the_branch(self, shop: Shop) -> None:
        made = await shop.open()

        await shop.api.put(
            f"{shop.url}/{made['id']}/merge", shop.ada, merge_commit_message="In it goes", should_remove_source_branch="true"
        )

        assert git(shop.path, "log", "-1", "--format=%B", "master").strip() == "In it goes"
        assert git(shop.path, "branch", "--list", "feature") == ""

    @cites(
        "States: merge needs a merge request that can be merged and is not merged or closed",
        "Errors: 405 Branch cannot be merged for conflicts",
    )
    async def test_answers_405_to_conflicts(self, shop: Shop) -> None:
        shop.grow("master", {"door.txt": b"another door\n"}, message="Meanwhile")
        made = await shop.open()

        response = await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada)

        assert made["merge_status"] == "cannot_be_merged"
        assert response.status_code == 405
        assert response.json() == {"message": "Branch cannot be merged"}
        assert (await shop.api.get(f"{shop.url}/{made['id']}", shop.ada)).json()["state"] == "opened"

    @cites(
        "States: merge needs a merge request that can be merged and is not merged or closed",
        "Errors: 405 Method Not Allowed for a merge request merged or closed",
    )
    @pytest.mark.parametrize("why", ["merged", "closed", "wip"])
    async def test_answers_405_to_what_is_done_or_not_ready(self, shop: Shop, why: str) -> None:
        made = await shop.open(title="WIP: A door" if why == "wip" else "A door")
        if why == "merged":
            await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada)
        if why == "closed":
            await shop.api.put(f"{shop.url}/{made['id']}", shop.ada, state_event="close")

        response = await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada)

        assert response.status_code == 405
        assert response.json() == {"message": "405 Method Not Allowed"}
        assert "Allow" in response.headers

    @cites("Authentication: merge without the right to accept is 401", "Errors: 401 without the right to accept or cancel a merge")
    async def test_answers_401_without_the_right(self, shop: Shop) -> None:
        await shop.make.save(tables.ProtectedBranch(project_id=shop.project.id, name="master"))
        made = await shop.open()
        for name in ("dev", "rep", "guest"):
            response = await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.people[name])
            assert response.status_code == 401
            assert response.json() == UNAUTHORIZED
        assert (await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.people["stranger"])).json() == NO_PROJECT

    @pytest.mark.parametrize("spelling", ["merged_when_build_succeeds", "merge_when_build_succeeds"])
    async def test_waits_for_the_build_where_asked(self, shop: Shop, spelling: str) -> None:
        made = await shop.open()
        sha = git(shop.path, "rev-parse", "feature")
        await shop.make.commit_status(shop.project, sha)

        response = await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada, **{spelling: True})

        assert response.json() == {**made, "merge_when_build_succeeds": True}

    async def test_closes_the_issues_that_it_names(self, shop: Shop) -> None:
        issue = await shop.make.issue(shop.project)
        made = await shop.open(description=f"Fixes #{issue.iid}")

        await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada)

        row = await shop.make.fetch(tables.Issue, issue.id)
        assert row is not None and row.state is IssueState.CLOSED


class TestCancelMergeWhenBuildSucceeds:
    """PUT /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds"""

    @cites("States: a merge request is opened and waits no more after cancel_merge_when_build_succeeds")
    @pytest.mark.parametrize("method", ["PUT", "POST"])
    async def test_takes_it_back(self, shop: Shop, method: str) -> None:
        made = await shop.open()
        await shop.make.commit_status(shop.project, git(shop.path, "rev-parse", "feature"))
        await shop.api.put(f"{shop.url}/{made['id']}/merge", shop.ada, merged_when_build_succeeds=True)

        response = await shop.api.request(method, f"{shop.url}/{made['id']}/cancel_merge_when_build_succeeds", shop.ada)

        assert response.status_code == (200 if method == "PUT" else 201)
        assert response.json() == made

    @cites("Errors: 406 for cancel where no merge waits")
    async def test_answers_406_where_nothing_waits(self, shop: Shop) -> None:
        made = await shop.open()

        response = await shop.api.put(f"{shop.url}/{made['id']}/cancel_merge_when_build_succeeds", shop.ada)

        assert response.status_code == 406

    @cites(
        "Authentication: cancel of the waiting merge without the right to accept is 401",
        "Errors: 401 without the right to accept or cancel a merge",
    )
    async def test_answers_401_without_the_right(self, shop: Shop) -> None:
        made = await shop.open()

        response = await shop.api.put(f"{shop.url}/{made['id']}/cancel_merge_when_build_succeeds", shop.people["rep"])

        assert response.status_code == 401
        assert response.json() == UNAUTHORIZED


class TestClosesIssues:
    """GET /projects/:id/merge_requests/:merge_request_id/closes_issues"""

    async def test_gives_the_issues_that_the_texts_name(self, shop: Shop) -> None:
        one, two, three = [await shop.make.issue(shop.project) for _ in range(3)]
        shop.grow("feature", {"key.txt": b"a key\n"}, message=f"Add a key\n\nCloses #{two.iid}")
        made = await shop.open(title=f"Fixes #{three.iid}", description=f"Fixes #{one.iid}")

        response = await shop.api.get(f"{shop.url}/{made['id']}/closes_issues", shop.ada)

        assert response.status_code == 200
        assert {issue["iid"] for issue in response.json()} == {one.iid, two.iid}

    async def test_are_none_where_the_target_is_not_the_default_branch(self, shop: Shop) -> None:
        issue = await shop.make.issue(shop.project)
        shop.grow("stable", {"old.txt": b"old\n"}, start="master")
        made = await shop.open(target="stable", description=f"Fixes #{issue.iid}")

        assert (await shop.api.get(f"{shop.url}/{made['id']}/closes_issues", shop.ada)).json() == []

    async def test_leave_out_what_the_caller_may_not_see(self, shop: Shop) -> None:
        hidden = await shop.make.project(owner=shop.ada, path="hidden")
        issue = await shop.make.issue(hidden)
        made = await shop.open(description=f"Fixes ada/hidden#{issue.iid}")

        url = f"{shop.url}/{made['id']}/closes_issues"
        assert len((await shop.api.get(url, shop.ada)).json()) == 1
        assert (await shop.api.get(url, shop.people["dev"])).json() == []


class TestTimes:
    async def test_are_instants_with_three_digits(self, shop: Shop) -> None:
        made = await shop.open()

        found = (await shop.api.get(f"{shop.url}/{made['id']}/changes", shop.ada)).json()

        assert datetime.fromisoformat(found["created_at"]).tzinfo == UTC
