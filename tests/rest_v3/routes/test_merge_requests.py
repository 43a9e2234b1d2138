"""The section Merge requests of the interface document."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, IssueState, Visibility
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_to_branch, git

NOT_FOUND = {"message": "404 Not found"}
NO_PROJECT = {"message": "404 Project Not Found"}
UNAUTHORIZED = {"message": "401 Unauthorized"}
FORBIDDEN = {"message": "403 Forbidden"}


class MergeRequestProject:
    """A project with a branch `feature` that can be merged, and people of each level; `ada` is its master."""

    def __init__(self, make: DataFactory, api: Api, project: tables.Project, people: Mapping[str, tables.User]) -> None:
        self.make, self.api, self.project, self.people = make, api, project, people
        self.ada = people["ada"]
        self.path = make.services.repositories.path_of(project.id)
        self.url = f"/projects/{project.id}/merge_requests"

    def commit(self, branch: str, files: dict[str, bytes | None], **more: Any) -> str:
        return commit_to_branch(self.path, branch, files, **more)

    async def create_merge_request(
        self, branch: str = "feature", target: str = "master", viewer: tables.User | None = None, **more: Any
    ) -> Any:
        """A new merge request as the API shows it."""
        parameters = {"source_branch": branch, "target_branch": target, "title": "Add a door", **more}
        response = await self.api.post(self.url, viewer or self.ada, **parameters)
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
async def workspace(make: DataFactory, api: Api) -> MergeRequestProject:
    people = {name: await make.user(name, name=name.title()) for name in ("ada", "dev", "rep", "guest", "stranger")}
    levels = {"ada": AccessLevel.MASTER, "dev": AccessLevel.DEVELOPER, "rep": AccessLevel.REPORTER, "guest": AccessLevel.GUEST}
    project = await make.project(history={"commits": 4}, members=[(people[name], level) for name, level in levels.items()])
    shop = MergeRequestProject(make, api, project, people)
    shop.commit("feature", {"door.txt": b"a door\n"}, start="master", message="Add a door")
    return shop


class TestListMergeRequests:
    """GET /projects/:id/merge_requests"""

    async def test_returns_merge_requests_into_the_project_newest_first(self, workspace: MergeRequestProject) -> None:
        first = await workspace.create_merge_request()
        workspace.commit("other", {"wall.txt": b"a wall\n"}, start="master")
        second = await workspace.create_merge_request("other", title="Add a wall")

        response = await workspace.api.get(workspace.url, workspace.people["guest"])

        assert response.status_code == 200
        assert [entry["id"] for entry in response.json()] == [second["id"], first["id"]]
        assert response.headers["X-Total"] == "2"

    async def test_filters_by_state_and_number(self, workspace: MergeRequestProject) -> None:
        for name in ("a", "b", "c"):
            workspace.commit(name, {f"{name}.txt": name.encode()}, start="master")
        opened, closed, merged = [await workspace.create_merge_request(name, title=name) for name in ("a", "b", "c")]
        await workspace.api.put(f"{workspace.url}/{closed['id']}", workspace.ada, state_event="close")
        await workspace.api.put(f"{workspace.url}/{merged['id']}/merge", workspace.ada)

        async def found(**filters: Any) -> set[str]:
            return {entry["title"] for entry in (await workspace.api.get(workspace.url, workspace.ada, **filters)).json()}

        assert await found(state="opened") == {"a"}
        assert await found(state="closed") == {"b"}
        assert await found(state="merged") == {"c"}
        assert await found(state="all") == await found(state="nonsense") == await found() == {"a", "b", "c"}
        assert await found(iid=opened["iid"]) == {"a"}
        assert await found(iid=99999999999) == await found(iid="x") == set()
        await workspace.api.put(f"{workspace.url}/{closed['id']}", workspace.ada, state_event="reopen")
        assert await found(state="opened") == {"a", "b"}

    async def test_orders_by_either_time_in_either_direction(self, workspace: MergeRequestProject) -> None:
        for name in ("a", "b"):
            workspace.commit(name, {f"{name}.txt": name.encode()}, start="master")
        first = await workspace.create_merge_request("a", title="a")
        await workspace.create_merge_request("b", title="b")
        await workspace.api.put(f"{workspace.url}/{first['id']}", workspace.ada, description="changed last")

        async def titles(**order: str) -> list[str]:
            return [entry["title"] for entry in (await workspace.api.get(workspace.url, workspace.ada, **order)).json()]

        assert await titles() == await titles(order_by="created_at", sort="desc") == await titles(order_by="nonsense") == ["b", "a"]
        assert await titles(sort="asc") == ["a", "b"]
        assert await titles(order_by="updated_at") == ["a", "b"]

    async def test_statement_count_does_not_grow_with_rows(self, workspace: MergeRequestProject, statements: StatementRecorder) -> None:
        label = await workspace.make.label(workspace.project, "bug")
        for number in range(3):
            workspace.commit(f"b{number}", {f"{number}.txt": b"x"}, start="master")
            await workspace.create_merge_request(f"b{number}", labels="bug", assignee_id=workspace.ada.id)
            if number == 0:
                with statements.record() as one:
                    await workspace.api.get(workspace.url, workspace.ada)
        with statements.record() as three:
            assert len((await workspace.api.get(workspace.url, workspace.ada)).json()) == 3
        assert len(one) == len(three)
        assert label.title == "bug"

    async def test_is_hidden_from_outsiders_and_requires_a_token(self, workspace: MergeRequestProject) -> None:
        assert (await workspace.api.get(workspace.url, workspace.people["stranger"])).json() == NO_PROJECT
        assert (await workspace.api.get(workspace.url)).json() == UNAUTHORIZED


class TestGetMergeRequest:
    """GET /projects/:id/merge_requests/:merge_request_id"""

    async def test_shows_every_field_of_the_document(self, workspace: MergeRequestProject) -> None:
        milestone = await workspace.make.milestone(workspace.project, title="v1")
        made = await workspace.create_merge_request(
            description="So that one can get in.", assignee_id=workspace.people["dev"].id, milestone_id=milestone.id, labels="z, a"
        )

        response = await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.people["guest"])

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
            "project_id": workspace.project.id,
            "source_project_id": workspace.project.id,
            "target_project_id": workspace.project.id,
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

    async def test_has_a_second_path_that_clients_use(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        response = await workspace.api.get(f"/projects/{workspace.project.id}/merge_request/{made['id']}", workspace.ada)

        assert response.status_code == 200
        assert response.json() == made

    async def test_counts_thumbs(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()
        await workspace.api.post(f"{workspace.url}/{made['id']}/notes", workspace.people["dev"], body=":+1:")
        await workspace.api.post(f"{workspace.url}/{made['id']}/notes", workspace.ada, body=":thumbsdown:")

        found = (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json()

        assert (found["upvotes"], found["downvotes"]) == (1, 1)

    async def test_is_not_found_in_another_project(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()
        other = await workspace.make.project(owner=workspace.ada)
        for wrong in (f"/projects/{other.id}/merge_requests/{made['id']}", f"{workspace.url}/{made['id'] + 1}", f"{workspace.url}/1x"):
            response = await workspace.api.get(wrong, workspace.ada)
            assert response.status_code == 404
            assert response.json() == NOT_FOUND


class TestMergeRequestCommits:
    """GET /projects/:id/merge_requests/:merge_request_id/commits"""

    async def test_returns_commits_to_be_merged_newest_first(self, workspace: MergeRequestProject) -> None:
        workspace.commit("feature", {"door.txt": b"a better door\n"}, message="Mend the door\n\nIt squeaked.\n")
        made = await workspace.create_merge_request()

        response = await workspace.api.get(f"{workspace.url}/{made['id']}/commits", workspace.people["guest"])

        assert response.status_code == 200
        assert [commit["title"] for commit in response.json()] == ["Mend the door", "Add a door"]
        assert response.json()[0]["message"].startswith("Mend the door\n\nIt squeaked.")
        assert response.headers["X-Total"] == "2"

    async def test_pages(self, workspace: MergeRequestProject) -> None:
        workspace.commit("feature", {"door.txt": b"a better door\n"}, message="Mend the door")
        made = await workspace.create_merge_request()

        response = await workspace.api.get(f"{workspace.url}/{made['id']}/commits", workspace.ada, per_page=1, page=2)

        assert [commit["title"] for commit in response.json()] == ["Add a door"]

    async def test_stay_after_the_merge_and_the_end_of_the_branch(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()
        await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada, should_remove_source_branch=True)

        response = await workspace.api.get(f"{workspace.url}/{made['id']}/commits", workspace.ada)

        assert [commit["title"] for commit in response.json()] == ["Add a door"]


class TestMergeRequestChanges:
    """GET /projects/:id/merge_requests/:merge_request_id/changes"""

    async def test_adds_times_and_the_changes(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request(assignee_id=workspace.people["dev"].id)

        response = await workspace.api.get(f"{workspace.url}/{made['id']}/changes", workspace.people["guest"])

        assert response.status_code == 200
        (change,) = response.json()["changes"]
        assert (change["new_path"], change["new_file"], change["renamed_file"], change["deleted_file"]) == ("door.txt", True, False, False)
        assert change["diff"].endswith("@@ -0,0 +1 @@\n+a door\n")
        assert response.json()["assignee"]["username"] == "dev"

    async def test_are_those_since_the_merge_base(self, workspace: MergeRequestProject) -> None:
        workspace.commit("master", {"wall.txt": b"a wall\n"}, message="Meanwhile")
        made = await workspace.create_merge_request()

        response = await workspace.api.get(f"{workspace.url}/{made['id']}/changes", workspace.ada)

        assert [change["new_path"] for change in response.json()["changes"]] == ["door.txt"]

    async def test_statement_count_does_not_grow_with_rows(self, workspace: MergeRequestProject, statements: StatementRecorder) -> None:
        small = await workspace.create_merge_request()
        workspace.commit("big", {f"room{number}.txt": b"a room\n" * 20 for number in range(50)}, start="master")
        big = await workspace.create_merge_request("big")

        with statements.record() as one:
            await workspace.api.get(f"{workspace.url}/{small['id']}/changes", workspace.ada)
        with statements.record() as fifty:
            response = await workspace.api.get(f"{workspace.url}/{big['id']}/changes", workspace.ada)

        assert len(response.json()["changes"]) == 50
        assert len(one) == len(fifty)


class TestCreateMergeRequest:
    """POST /projects/:id/merge_requests"""

    @cites("Errors: 200 for created issues, merge requests and labels")
    async def test_answers_200_with_the_new_one(self, workspace: MergeRequestProject) -> None:
        response = await workspace.api.post(
            workspace.url, workspace.people["dev"], source_branch="feature", target_branch="master", title="WIP: Add a door"
        )

        assert response.status_code == 200
        assert (response.json()["iid"], response.json()["work_in_progress"]) == (1, True)

    async def test_answers_201_to_legacy_clients(self, workspace: MergeRequestProject, legacy_api: Api) -> None:
        response = await legacy_api.post(workspace.url, workspace.ada, source_branch="feature", target_branch="master", title="A door")

        assert response.status_code == 201

    async def test_names_the_first_parameter_that_is_missing(self, workspace: MergeRequestProject) -> None:
        values: dict[str, Any] = {}
        for name in ("source_branch", "target_branch", "title"):
            response = await workspace.api.post(workspace.url, workspace.ada, **values)
            assert response.status_code == 400
            assert response.json() == {"message": f'400 (Bad request) "{name}" not given'}
            values[name] = "master"

    async def test_rejects_the_same_branch_twice(self, workspace: MergeRequestProject) -> None:
        response = await workspace.api.post(workspace.url, workspace.ada, source_branch="master", target_branch="master", title="Nothing")

        assert response.status_code == 422
        assert response.json() == {"message": "You can not use same project/branch for source and target"}

    async def test_rejects_a_target_that_is_no_parent(self, workspace: MergeRequestProject) -> None:
        other = await workspace.make.project(owner=workspace.ada, history={"commits": 4})

        response = await workspace.api.post(
            workspace.url, workspace.ada, source_branch="feature", target_branch="master", title="Far", target_project_id=other.id
        )

        assert response.status_code == 422
        assert response.json() == {"message": "Source project is not a fork of target project"}

    async def test_does_not_find_a_target_that_the_caller_may_not_see(self, workspace: MergeRequestProject) -> None:
        hidden = await workspace.make.project()
        for target in (hidden.id, 99999):
            response = await workspace.api.post(
                workspace.url, workspace.ada, source_branch="feature", target_branch="master", title="Far", target_project_id=target
            )
            assert response.status_code == 404

    @pytest.mark.parametrize(("source", "target", "field"), [("absent", "master", "source_branch"), ("feature", "@{-1}", "target_branch")])
    async def test_rejects_missing_branches(self, workspace: MergeRequestProject, source: str, target: str, field: str) -> None:
        response = await workspace.api.post(workspace.url, workspace.ada, source_branch=source, target_branch=target, title="Odd")

        assert response.status_code == 400
        assert list(response.json()["message"]) == [field]

    async def test_rejects_a_second_one_of_the_same_branches(self, workspace: MergeRequestProject) -> None:
        await workspace.create_merge_request(title="First")

        response = await workspace.api.post(workspace.url, workspace.ada, source_branch="feature", target_branch="master", title="Second")

        assert response.status_code == 409
        assert response.json() == {"message": ['Cannot Create: This merge request already exists: ["First"]']}

    async def test_comes_from_a_fork(self, workspace: MergeRequestProject) -> None:
        public = await workspace.make.project(owner=workspace.ada, history={"commits": 4}, visibility=Visibility.PUBLIC)
        fork = await workspace.make.project(owner=workspace.people["stranger"], history={"commits": 4}, forked_from_id=public.id)
        commit_to_branch(workspace.make.services.repositories.path_of(fork.id), "patch", {"patch.txt": b"mended\n"}, start="master")

        response = await workspace.api.post(
            f"/projects/{fork.id}/merge_requests",
            workspace.people["stranger"],
            source_branch="patch",
            target_branch="master",
            title="A patch",
            target_project_id=public.id,
        )

        assert response.status_code == 200, response.text
        made = response.json()
        assert (made["project_id"], made["source_project_id"], made["target_project_id"]) == (public.id, fork.id, public.id)
        accepted = await workspace.api.put(f"/projects/{public.id}/merge_requests/{made['id']}/merge", workspace.ada)
        assert accepted.json()["state"] == "merged"

    async def test_any_author_may_choose_labels(self, workspace: MergeRequestProject) -> None:
        public = await workspace.make.project(
            owner=workspace.ada,
            history={"commits": 4},
            visibility=Visibility.PUBLIC,
            members=[(workspace.people["rep"], AccessLevel.REPORTER)],
        )
        await workspace.make.label(public, "bug")
        for name, labels in (("stranger", ["bug"]), ("rep", ["bug", "new"])):
            author = workspace.people[name]
            fork = await workspace.make.project(owner=author, history={"commits": 4}, forked_from_id=public.id)
            commit_to_branch(workspace.make.services.repositories.path_of(fork.id), "patch", {"patch.txt": b"x\n"}, start="master")
            branches = {"source_branch": "patch", "target_branch": "master", "target_project_id": public.id}

            made = await workspace.api.post(f"/projects/{fork.id}/merge_requests", author, title="A patch", labels="bug,new", **branches)
            updated = await workspace.api.put(f"/projects/{public.id}/merge_requests/{made.json()['id']}", author, labels="new, bug")

            assert made.json()["labels"] == updated.json()["labels"] == labels

    async def test_requires_a_developer(self, workspace: MergeRequestProject) -> None:
        for name in ("rep", "guest"):
            response = await workspace.api.post(
                workspace.url, workspace.people[name], source_branch="feature", target_branch="master", title="A door"
            )
            assert response.status_code == 403
            assert response.json() == FORBIDDEN
        assert (await workspace.api.post(workspace.url, workspace.people["stranger"], title="A door")).status_code == 404


class TestUpdateMergeRequest:
    """PUT /projects/:id/merge_requests/:merge_request_id"""

    async def test_changes_given_fields_and_nothing_else(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request(description="Why", labels="a")

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, title="[WIP] A window", labels="b,c")

        assert response.status_code == 200
        assert response.json() == {**made, "title": "[WIP] A window", "labels": ["b", "c"], "work_in_progress": True}

    async def test_clears_labels_assignee_and_milestone(self, workspace: MergeRequestProject) -> None:
        milestone = await workspace.make.milestone(workspace.project)
        made = await workspace.create_merge_request(labels="a", assignee_id=workspace.ada.id, milestone_id=milestone.id)

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, labels="", assignee_id=0, milestone_id=0)

        assert (response.json()["labels"], response.json()["assignee"], response.json()["milestone"]) == ([], None, None)

    @cites("States: state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged")
    async def test_closes_and_reopens(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()
        for event, state in (("close", "closed"), ("close", "closed"), ("reopen", "reopened"), ("close", "closed")):
            response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, state_event=event)
            assert response.json()["state"] == state

    @cites("States: state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged")
    async def test_merges(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, state_event="merge")

        assert response.json()["state"] == "merged"
        assert git(workspace.path, "show", "master:door.txt") == "a door"

    async def test_moves_to_another_target(self, workspace: MergeRequestProject) -> None:
        workspace.commit("stable", {"old.txt": b"old\n"}, start="master")
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, target_branch="stable")

        assert response.json()["target_branch"] == "stable"
        assert response.json()["merge_status"] == "can_be_merged"

    async def test_the_source_branch_cannot_change(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        same = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, source_branch="feature")
        other = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, source_branch="master")

        assert same.status_code == 200
        assert other.status_code == 400
        assert other.json() == {"message": "Source branch cannot be changed"}

    async def test_rejects_its_source_as_the_target(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        for more in ({}, {"state_event": "merge"}, {"state_event": "reopen"}):
            response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, target_branch="feature", **more)
            assert response.status_code == 422
            assert response.json() == {"message": "You can not use same project/branch for source and target"}
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json() == made

    async def test_rejects_the_branches_of_another_one(self, workspace: MergeRequestProject) -> None:
        workspace.commit("stable", {"old.txt": b"old\n"}, start="master")
        closed = await workspace.create_merge_request(title="Closed")
        await workspace.api.put(f"{workspace.url}/{closed['id']}", workspace.ada, state_event="close")
        await workspace.create_merge_request(title="First {message}")
        other = await workspace.create_merge_request(target="stable", title="Other")

        for made, change in ((other, {"target_branch": "master"}), (closed, {"state_event": "reopen"})):
            response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, **change)
            assert response.status_code == 409
            assert response.json() == {"message": ['Cannot Create: This merge request already exists: ["First {message}"]']}

    async def test_answers_405_to_a_merge_that_the_state_does_not_allow(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request(title="WIP: Add a door")

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, state_event="merge")

        assert (response.status_code, response.json()) == (405, {"message": "405 Method Not Allowed"})

    @cites("States: state_event of a merge request is close, reopen or merge and makes it closed, reopened or merged")
    async def test_rejects_an_unknown_event(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, state_event="explode", title="Never")

        assert response.status_code == 400
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json() == made

    async def test_rejects_a_milestone_of_another_project(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()
        foreign = await workspace.make.milestone(await workspace.make.project(owner=workspace.ada))

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, milestone_id=foreign.id)

        assert response.status_code == 400

    async def test_requires_a_master_the_author_or_the_assignee(self, workspace: MergeRequestProject) -> None:
        dev = workspace.people["dev"]
        made = await workspace.create_merge_request(viewer=dev)
        assert (await workspace.api.put(f"{workspace.url}/{made['id']}", dev, title="Mine")).status_code == 200
        theirs = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.people["rep"], title="Not mine")
        assert theirs.status_code == 403

    @cites("Authentication: merge without the right to accept is 401", "Errors: 401 without the right to accept or cancel a merge")
    async def test_merging_answers_401_without_the_right(self, workspace: MergeRequestProject) -> None:
        await workspace.make.save(tables.ProtectedBranch(project_id=workspace.project.id, name="master"))
        made = await workspace.create_merge_request(viewer=workspace.people["dev"])
        for name in ("dev", "rep", "guest"):
            for more in ({}, {"title": "Changed"}):
                response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.people[name], state_event="merge", **more)
                assert (response.status_code, response.json()) == (401, UNAUTHORIZED)
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json() == made

    async def test_merging_with_changes_needs_both_rights(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.people["dev"], state_event="merge", title="Not mine")

        assert response.status_code == 403
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json() == made

    async def test_merging_into_another_target_needs_the_right_to_push_to_it(self, workspace: MergeRequestProject) -> None:
        workspace.commit("stable", {"old.txt": b"old\n"}, start="master")
        await workspace.make.save(tables.ProtectedBranch(project_id=workspace.project.id, name="stable"))
        made = await workspace.create_merge_request(viewer=workspace.people["dev"])

        response = await workspace.api.put(
            f"{workspace.url}/{made['id']}", workspace.people["dev"], state_event="merge", target_branch="stable"
        )

        assert (response.status_code, response.json()) == (401, UNAUTHORIZED)
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json() == made


class TestAcceptMergeRequest:
    """PUT /projects/:id/merge_requests/:merge_request_id/merge"""

    @cites("States: a merge request is merged by merge")
    async def test_makes_a_merge_commit(self, workspace: MergeRequestProject) -> None:
        made, before = await workspace.create_merge_request(description="Please"), git(workspace.path, "rev-parse", "master")

        response = await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.people["dev"])

        assert response.status_code == 200
        assert response.json() == {**made, "state": "merged"}
        assert git(workspace.path, "rev-parse", "master^1", "master^2").split() == [before, git(workspace.path, "rev-parse", "feature")]
        message = git(workspace.path, "log", "-1", "--format=%B", "master").strip()
        assert message == "Merge branch 'feature' into 'master'\n\nAdd a door\n\nPlease\n\nSee merge request !1"
        assert git(workspace.path, "log", "-1", "--format=%an <%ae>", "master") == "Dev <dev@example.org>"

    async def test_accepts_a_message_and_removes_the_branch(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        await workspace.api.put(
            f"{workspace.url}/{made['id']}/merge", workspace.ada, merge_commit_message="In it goes", should_remove_source_branch="true"
        )

        assert git(workspace.path, "log", "-1", "--format=%B", "master").strip() == "In it goes"
        assert git(workspace.path, "branch", "--list", "feature") == ""

    @cites(
        "States: merge needs a merge request that can be merged and is not merged or closed",
        "Errors: 405 Branch cannot be merged for conflicts",
    )
    async def test_answers_405_to_conflicts(self, workspace: MergeRequestProject) -> None:
        workspace.commit("master", {"door.txt": b"another door\n"}, message="Meanwhile")
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada)

        assert made["merge_status"] == "cannot_be_merged"
        assert response.status_code == 405
        assert response.json() == {"message": "Branch cannot be merged"}
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json()["state"] == "opened"

    @cites(
        "States: merge needs a merge request that can be merged and is not merged or closed",
        "Errors: 405 Method Not Allowed for a merge request merged or closed",
    )
    @pytest.mark.parametrize("why", ["merged", "closed", "wip"])
    async def test_answers_405_to_merged_closed_or_unfinished_ones(self, workspace: MergeRequestProject, why: str) -> None:
        made = await workspace.create_merge_request(title="WIP: A door" if why == "wip" else "A door")
        if why == "merged":
            await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada)
        if why == "closed":
            await workspace.api.put(f"{workspace.url}/{made['id']}", workspace.ada, state_event="close")

        response = await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada)

        assert response.status_code == 405
        assert response.json() == {"message": "405 Method Not Allowed"}
        assert "Allow" in response.headers

    async def test_of_no_commits_is_rejected_and_announced(self, workspace: MergeRequestProject) -> None:
        git(workspace.path, "branch", "old", "master~1")

        made = await workspace.create_merge_request("old")

        assert made["merge_status"] == "cannot_be_merged"
        response = await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada)
        assert (response.status_code, response.json()) == (405, {"message": "Branch cannot be merged"})
        assert (await workspace.api.get(f"{workspace.url}/{made['id']}", workspace.ada)).json() == made

    @cites("Authentication: merge without the right to accept is 401", "Errors: 401 without the right to accept or cancel a merge")
    async def test_answers_401_without_the_right(self, workspace: MergeRequestProject) -> None:
        await workspace.make.save(tables.ProtectedBranch(project_id=workspace.project.id, name="master"))
        made = await workspace.create_merge_request()
        for name in ("dev", "rep", "guest"):
            response = await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.people[name])
            assert response.status_code == 401
            assert response.json() == UNAUTHORIZED
        assert (await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.people["stranger"])).json() == NO_PROJECT

    @pytest.mark.parametrize("parameter", ["merged_when_build_succeeds", "merge_when_build_succeeds"])
    async def test_waits_for_the_build_if_requested(self, workspace: MergeRequestProject, parameter: str) -> None:
        made = await workspace.create_merge_request()
        sha = git(workspace.path, "rev-parse", "feature")
        await workspace.make.commit_status(workspace.project, sha)

        response = await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada, **{parameter: True})

        assert response.json() == {**made, "merge_when_build_succeeds": True}

    async def test_closes_the_issues_that_it_names(self, workspace: MergeRequestProject) -> None:
        issue = await workspace.make.issue(workspace.project)
        made = await workspace.create_merge_request(description=f"Fixes #{issue.iid}")

        await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada)

        row = await workspace.make.fetch(tables.Issue, issue.id)
        assert row is not None and row.state is IssueState.CLOSED


class TestCancelMergeWhenBuildSucceeds:
    """PUT /projects/:id/merge_requests/:merge_request_id/cancel_merge_when_build_succeeds"""

    @cites("States: a merge request is opened and waits no more after cancel_merge_when_build_succeeds")
    @pytest.mark.parametrize("method", ["PUT", "POST"])
    async def test_cancels_the_automatic_merge(self, workspace: MergeRequestProject, method: str) -> None:
        made = await workspace.create_merge_request()
        await workspace.make.commit_status(workspace.project, git(workspace.path, "rev-parse", "feature"))
        await workspace.api.put(f"{workspace.url}/{made['id']}/merge", workspace.ada, merged_when_build_succeeds=True)

        response = await workspace.api.request(method, f"{workspace.url}/{made['id']}/cancel_merge_when_build_succeeds", workspace.ada)

        assert response.status_code == (200 if method == "PUT" else 201)
        assert response.json() == made

    @cites("Errors: 406 for cancel where no merge waits")
    async def test_answers_406_without_an_automatic_merge(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}/cancel_merge_when_build_succeeds", workspace.ada)

        assert response.status_code == 406

    @cites(
        "Authentication: cancel of the waiting merge without the right to accept is 401",
        "Errors: 401 without the right to accept or cancel a merge",
    )
    async def test_answers_401_without_the_right(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        response = await workspace.api.put(f"{workspace.url}/{made['id']}/cancel_merge_when_build_succeeds", workspace.people["rep"])

        assert response.status_code == 401
        assert response.json() == UNAUTHORIZED


class TestClosesIssues:
    """GET /projects/:id/merge_requests/:merge_request_id/closes_issues"""

    async def test_returns_issues_named_in_description_and_commits(self, workspace: MergeRequestProject) -> None:
        one, two, three = [await workspace.make.issue(workspace.project) for _ in range(3)]
        workspace.commit("feature", {"key.txt": b"a key\n"}, message=f"Add a key\n\nCloses #{two.iid}")
        made = await workspace.create_merge_request(title=f"Fixes #{three.iid}", description=f"Fixes #{one.iid}")

        response = await workspace.api.get(f"{workspace.url}/{made['id']}/closes_issues", workspace.ada)

        assert response.status_code == 200
        assert {issue["iid"] for issue in response.json()} == {one.iid, two.iid}

    async def test_are_none_where_the_target_is_not_the_default_branch(self, workspace: MergeRequestProject) -> None:
        issue = await workspace.make.issue(workspace.project)
        workspace.commit("stable", {"old.txt": b"old\n"}, start="master")
        made = await workspace.create_merge_request(target="stable", description=f"Fixes #{issue.iid}")

        assert (await workspace.api.get(f"{workspace.url}/{made['id']}/closes_issues", workspace.ada)).json() == []

    async def test_hidden_issues_are_excluded(self, workspace: MergeRequestProject) -> None:
        hidden = await workspace.make.project(owner=workspace.ada, path="hidden")
        issue = await workspace.make.issue(hidden)
        made = await workspace.create_merge_request(description=f"Fixes ada/hidden#{issue.iid}")

        url = f"{workspace.url}/{made['id']}/closes_issues"
        assert len((await workspace.api.get(url, workspace.ada)).json()) == 1
        assert (await workspace.api.get(url, workspace.people["dev"])).json() == []


class TestTimes:
    async def test_timestamps_have_milliseconds(self, workspace: MergeRequestProject) -> None:
        made = await workspace.create_merge_request()

        found = (await workspace.api.get(f"{workspace.url}/{made['id']}/changes", workspace.ada)).json()

        assert datetime.fromisoformat(found["created_at"]).tzinfo == UTC
