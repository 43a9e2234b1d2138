"""Hooks of projects: who may administrate them, what they receive, and what they do not."""

import base64
import dataclasses
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from graph.context import Services
from graph.events.delivery_worker import DeliveryWorker
from graph.events.outbox import Outbox
from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, CheckStatus
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.git.git_history import commit_to_branch
from tests.support.servers.webhook_receiver import ReceivedRequest, WebhookReceiver, finish_deliveries

CREATE = """mutation ($input: CreateProjectHookInput!) { createProjectHook(input: $input) { userErrors { field code }
    hook { id databaseId url projectId project { path } pushEvents buildEvents hasSecret hasToken restPath } } }"""
UPDATE = """mutation ($input: UpdateProjectHookInput!) { updateProjectHook(input: $input) { userErrors { field code }
    hook { url pushEvents noteEvents hasSecret hasToken } } }"""
TEST = """mutation ($input: ProjectHookInput!) { testProjectHook(input: $input) { userErrors { code }
    delivery { id event state responseCode payload hook { deliveries { totalCount } } } } }"""
DELETE = "mutation ($input: ProjectHookInput!) { deleteProjectHook(input: $input) { deletedId userErrors { code } } }"
REDELIVER = "mutation ($input: RedeliverHookInput!) { redeliverHook(input: $input) { delivery { state } userErrors { code } } }"
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename } }"
SWITCHES = ("push_events", "tag_push_events", "issues_events", "merge_requests_events", "note_events", "build_events")
PERSON = {"name", "username", "avatar_url"}
PROJECT = {
    "name", "description", "web_url", "avatar_url", "git_ssh_url", "git_http_url", "namespace", "visibility_level", "path_with_namespace",
    "default_branch", "homepage", "url", "ssh_url", "http_url",
}  # fmt: skip
COMMIT = {"id", "message", "timestamp", "url", "author"}
REPOSITORY = {"name", "url", "description", "homepage"}
ISSUE = {
    "id", "iid", "project_id", "title", "description", "state", "author_id", "assignee_id", "milestone_id", "branch_name", "position",
    "created_at", "updated_at",
}  # fmt: skip
MERGE_REQUEST = {
    "id", "iid", "title", "description", "state", "merge_status", "source_branch", "source_project_id", "source", "target_branch",
    "target_project_id", "target", "last_commit", "work_in_progress", "author_id", "assignee_id", "milestone_id", "position", "locked_at",
    "created_at", "updated_at",
}  # fmt: skip
NOTE = {
    "id", "note", "noteable_type", "noteable_id", "commit_id", "author_id", "project_id", "attachment", "line_code", "st_diff", "system",
    "url", "created_at", "updated_at",
}  # fmt: skip
SNIPPET = {
    "id", "title", "content", "file_name", "author_id", "project_id", "expires_at", "type", "visibility_level", "created_at", "updated_at",
}  # fmt: skip
PUSH = {
    "object_kind", "before", "after", "ref", "checkout_sha", "message", "user_id", "user_name", "user_email", "user_avatar", "project_id",
    "project", "repository", "commits", "total_commits_count",
}  # fmt: skip
BUILD = {
    "object_kind", "ref", "tag", "before_sha", "sha", "build_id", "build_name", "build_stage", "build_status", "build_started_at",
    "build_finished_at", "build_duration", "build_allow_failure", "project_id", "project_name", "user", "commit", "repository",
}  # fmt: skip


@pytest.fixture
async def services(services: Services) -> AsyncIterator[Services]:
    """Hooks may call the receivers on loopback here."""
    ours = dataclasses.replace(services, outbox=Outbox(allow_local=True))
    yield ours
    await ours.outbox.close()


async def make_hook(make: DataFactory, project: tables.Project | None, url: str = "http://hooks.example/", **columns: Any) -> tables.Hook:
    hook = tables.Hook(url=url, project_id=project and project.id, **columns)
    await make.save(hook)
    make.services.outbox.record_hook_change()
    return hook


class Deliveries:
    """`async with Deliveries(services) as deliveries`: `await deliveries.next()` delivers, and returns what arrived since the last call."""

    def __init__(self, services: Services) -> None:
        self.worker, self.receiver, self.seen = DeliveryWorker(services), WebhookReceiver(), 0

    async def __aenter__(self) -> "Deliveries":
        await self.receiver.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.receiver.__aexit__(*error)

    async def next(self) -> list[ReceivedRequest]:
        # A hook without a success gets one request at a time.
        while await self.worker.run_once() == 0.0 or self.worker._running:
            await finish_deliveries(self.worker)
        found, self.seen = self.receiver.requests[self.seen :], len(self.receiver.requests)
        return found


class TestAdministration:
    async def test_masters_create_update_and_delete(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=await make.user())
        master = await make.user()
        await make.member(project, master, AccessLevel.MASTER)
        secret = "whsec_" + base64.b64encode(bytes(32)).decode()
        fields = {"projectPath": str(project.id), "url": "http://u:p.w@hooks.example/x", "secret": secret, "token": "t.1"}

        hook = (await ask.data(CREATE, master, input=fields))["createProjectHook"]["hook"]

        assert (hook["url"], hook["pushEvents"], hook["buildEvents"]) == ("http://hooks.example/x", True, False)
        assert (hook["hasSecret"], hook["hasToken"], hook["projectId"], hook["project"]) == (True, True, project.id, {"path": project.path})
        assert hook["restPath"] == f"/api/v3/projects/{project.id}/hooks/{hook['databaseId']}"
        row = await make.fetch(tables.Hook, hook["databaseId"])
        assert row is not None and "t.1" not in str(row.sealed_token) and "p.w" not in str(row.sealed_credentials)
        changes = {"id": hook["id"], "secret": None, "noteEvents": True, "pushEvents": None}
        changed = (await ask.data(UPDATE, master, input=changes))["updateProjectHook"]["hook"]
        assert changed == {"url": "http://hooks.example/x", "pushEvents": True, "noteEvents": True, "hasSecret": False, "hasToken": True}
        for wrong in ({"url": "ftp://x"}, {"token": "a\nb"}, {"token": ""}, {"secret": "x"}):
            assert await ask.codes(UPDATE, master, input={"id": hook["id"], **wrong}) == ["INVALID"]
        assert (await ask.data(DELETE, master, input={"id": hook["id"]}))["deleteProjectHook"]["deletedId"] == hook["id"]
        assert await ask.codes(DELETE, master, input={"id": hook["id"]}) == ["NOT_FOUND"]

    async def test_system_hooks_and_those_of_projects_are_apart(self, ask: Ask, make: DataFactory) -> None:
        admin, owner, developer, outsider = await make.admin(), await make.user(), await make.user(), await make.user()
        project, other = await make.project(owner=owner), await make.project(owner=outsider)
        await make.member(project, developer, AccessLevel.DEVELOPER)
        system, ours, theirs = [await make_hook(make, each) for each in (None, project, other)]
        event = tables.Event(project_id=project.id, name="push", payload={}, created_at=project.created_at)
        await make.save(event)
        delivery = tables.Delivery(event_id=event.id, hook_id=ours.id, webhook_id="w", event_name="push", created_at=project.created_at)
        await make.save(delivery)
        ids = [*(global_id("Hook", hook.id) for hook in (system, ours, theirs)), global_id("Delivery", delivery.id)]

        for viewer, visible in ((admin, [1, 1, 1, 1]), (owner, [0, 1, 0, 1]), (developer, [0] * 4), (outsider, [0, 0, 1, 0])):
            nodes = (await ask.data(NODES, viewer, ids=ids))["nodes"]
            assert [node is not None for node in nodes] == [bool(each) for each in visible]
        for viewer, code in ((outsider, "NOT_FOUND"), (developer, "FORBIDDEN")):
            for query, name in ((UPDATE, "Hook"), (TEST, "Hook"), (DELETE, "Hook"), (REDELIVER, "Delivery")):
                row_id = delivery.id if name == "Delivery" else ours.id
                assert await ask.codes(query, viewer, input={"id": global_id(name, row_id)}) == [code]
        # A system hook, or one of another project, is not one of this project.
        assert await ask.codes(DELETE, admin, input={"id": global_id("Hook", system.id)}) == ["NOT_FOUND"]
        for hook in (system, theirs):
            for query in (DELETE, TEST):
                assert await ask.codes(query, owner, input={"projectPath": str(project.id), "databaseId": hook.id}) == ["NOT_FOUND"]
        listed = await ask.data(
            "query ($path: String!) { hooks { totalCount } project(path: $path) { hooks { nodes { databaseId } } } }",
            admin,
            path=str(project.id),
        )
        assert listed == {"hooks": {"totalCount": 1}, "project": {"hooks": {"nodes": [{"databaseId": ours.id}]}}}
        for query in ("{ hook(databaseId: %d) { url } }", "mutation { deleteHook(input: {databaseId: %d}) { userErrors { code } } }"):
            assert await ask.codes(query % ours.id, admin) == ["NOT_FOUND"]
        assert await ask.codes(REDELIVER, owner, input={"id": global_id("Delivery", delivery.id)}) == []


class TestDeliveries:
    async def test_have_the_bodies_of_the_time(self, ask: Ask, api: Api, make: DataFactory, services: Services) -> None:
        ada = await make.user("ada", name="Ada L.")
        project = await make.project(owner=ada, path="engine", name="Engine", history={"commits": 4})
        elsewhere = await make.project(owner=ada)
        await make.indexed(project)
        head = str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))
        path, web_url = f"/projects/{project.id}", f"{EXTERNAL_URL}/ada/engine"
        async with Deliveries(services) as deliveries:
            url = deliveries.receiver.url.replace("//", "//u:p@")
            target = {**dict.fromkeys(SWITCHES, True), "url": url, "token": "the token"}
            assert (await api.post(f"{path}/hooks", ada, **target)).status_code == 201

            async def receive(kind: str) -> dict[str, Any]:
                (request,) = await deliveries.next()
                headers = [request.headers[name] for name in ("x-gitlab-event", "x-gitlab-token", "authorization")]
                assert headers == [kind, "the token", "Basic dTpw"]
                return dict(request.json)

            await api.post(f"{path}/issues", ada, title="It leaks", assignee_id=ada.id)
            body = await receive("Issue Hook")
            assert body.keys() == {"object_kind", "user", "project", "repository", "object_attributes", "assignee"}
            assert body["project"].keys() == PROJECT
            assert (body["user"].keys(), body["repository"].keys()) == (PERSON, REPOSITORY)
            assert body["assignee"] == {"name": "Ada L.", "username": "ada", "avatar_url": None}
            assert body["object_attributes"].keys() == {*ISSUE, "url", "action"}
            assert (body["object_attributes"]["action"], body["object_attributes"]["url"]) == ("open", f"{web_url}/issues/1")
            issue_id = body["object_attributes"]["id"]

            await api.post(f"{path}/issues/{issue_id}/notes", ada, body="Yes")
            body = await receive("Note Hook")
            assert body.keys() == {"object_kind", "user", "project_id", "project", "repository", "object_attributes", "issue"}
            assert body["object_attributes"].keys() == NOTE
            assert body["issue"].keys() == ISSUE
            assert body["object_attributes"]["url"] == f"{web_url}/issues/1#note_{body['object_attributes']['id']}"
            snippet = await make.snippet(project)
            await api.post(f"{path}/snippets/{snippet.id}/notes", ada, body="Yes")
            assert (await receive("Note Hook"))["snippet"].keys() == SNIPPET
            await api.post(f"{path}/repository/commits/{head}/comments", ada, note="Yes")
            body = await receive("Note Hook")
            assert (body["commit"].keys(), body["commit"]["id"], body["object_attributes"]["noteable_type"]) == (COMMIT, head, "Commit")

            (branch,) = (await ask.data(CREATE_BRANCH, ada, path=str(project.id))).values()
            assert branch["userErrors"] == []
            body = await receive("Push Hook")
            assert body.keys() == PUSH
            assert (body["ref"], body["before"], body["after"]) == ("refs/heads/topic2", "0" * 40, head)
            assert (body["checkout_sha"], body["user_name"], body["user_email"]) == (head, "Ada L.", "ada@example.org")
            assert body["repository"].keys() == {*REPOSITORY, "git_http_url", "git_ssh_url", "visibility_level"}

            commit_to_branch(services.repositories.path_of(project.id), "feature", {"a/door.txt": b"a door"}, start="master")
            values = {"source_branch": "feature", "target_branch": "master", "title": "WIP: T"}
            created = (await api.post(f"{path}/merge_requests", ada, **values)).json()
            body = await receive("Merge Request Hook")
            assert body.keys() == {"object_kind", "user", "project", "repository", "object_attributes"}
            assert body["object_attributes"].keys() == {*MERGE_REQUEST, "url", "action"}
            assert body["object_attributes"]["source"].keys() == body["object_attributes"]["target"].keys() == PROJECT
            assert body["object_attributes"]["last_commit"].keys() == COMMIT
            await api.post(f"{path}/merge_request/{created['id']}/comments", ada, note="Yes")
            assert (await receive("Note Hook"))["merge_request"].keys() == MERGE_REQUEST
            await api.put(f"{path}/merge_requests/{created['id']}", ada, title="T")
            assert (await receive("Merge Request Hook"))["object_attributes"]["work_in_progress"] is False
            assert (await api.put(f"{path}/merge_requests/{created['id']}/merge", ada)).status_code == 200
            found = {request.headers["x-gitlab-event"]: request.json for request in await deliveries.next()}
            assert found["Merge Request Hook"]["object_attributes"]["action"] == "merge"
            commits = {commit["message"].splitlines()[0]: commit for commit in found["Push Hook"]["commits"]}
            assert all(commit.keys() == {*COMMIT, "added", "modified", "removed"} for commit in commits.values())
            assert ["a/door.txt"] in [commit["added"] for commit in commits.values()]

            build = await make.build(project, head, name="lint", status=CheckStatus.PENDING, user_id=ada.id)
            await ask.data(UPDATE_BUILD, ada, input={"projectPath": str(project.id), "databaseId": build.id, "status": "RUNNING"})
            running = await receive("Build Hook")
            assert (running.keys(), running["build_status"], running["build_finished_at"]) == (BUILD, "running", None)
            assert running["user"] == {"id": ada.id, "name": "Ada L.", "email": "ada@example.org"}
            await ask.data(UPDATE_BUILD, ada, input={"projectPath": str(project.id), "databaseId": build.id, "status": "SUCCESS"})
            finished = await receive("Build Hook")
            assert (finished["build_status"], finished["commit"]["status"], finished["commit"]["sha"]) == ("success", "success", head)
            assert finished["project_name"] == "Ada L. / Engine"

            # Neither another project nor the instance is of interest to it.
            await api.post(f"/projects/{elsewhere.id}/issues", ada, title="It leaks")
            await api.post(f"/projects/{elsewhere.id}/members", ada, user_id=(await make.user()).id, access_level=10)
            assert await deliveries.next() == []

    async def test_of_one_event_differ_by_the_kind_of_hook(self, api: Api, make: DataFactory, services: Services) -> None:
        ada = await make.user()
        project = await make.project(owner=ada)
        async with Deliveries(services) as deliveries:
            for owner in (None, project, project):
                await make_hook(make, owner, deliveries.receiver.url, issues_events=True)
            await make_hook(make, project, deliveries.receiver.url)
            await api.post(f"/projects/{project.id}/issues", ada, title="It leaks")
            found = await deliveries.next()

        assert sorted(request.headers["x-gitlab-event"] for request in found) == ["Issue Hook", "Issue Hook", "System Hook"]
        (system,) = (request.json for request in found if request.headers["x-gitlab-event"] == "System Hook")
        assert system.keys() == {"object_kind", "user", "project", "object_attributes"}
        assert await make.count(tables.Event) == 2

    async def test_a_test_is_a_push_of_the_head(self, ask: Ask, make: DataFactory, services: Services) -> None:
        ada = await make.user()
        full, empty = await make.project(owner=ada, history={"commits": 4}), await make.project(owner=ada)
        async with WebhookReceiver() as receiver:
            for project, number in ((full, 1), (empty, 0)):
                hook = await make_hook(make, project, receiver.url)
                tested = (await ask.data(TEST, ada, input={"id": global_id("Hook", hook.id)}))["testProjectHook"]["delivery"]
                assert (tested["event"], tested["state"], tested["responseCode"]) == ("push", "DELIVERED", 200)
                assert tested["payload"].keys() == PUSH
                assert tested["hook"] == {"deliveries": {"totalCount": 1}}
                assert tested["payload"]["total_commits_count"] == len(tested["payload"]["commits"]) == number
                assert receiver.requests[-1].json == tested["payload"]
                assert receiver.requests[-1].headers["x-gitlab-event"] == "Push Hook"

    async def test_a_test_takes_the_head_from_the_database(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(ada := await make.user()), history={"commits": 4})
        commit = (
            "mutation ($input: CreateCommitInput!) { createCommit(input: $input) { fileCommit { commit { oid } } userErrors { code } } }"
        )
        actions = [{"action": "CREATE", "path": "new.txt", "content": "x"}]
        input = {"projectPath": str(project.id), "branch": "master", "message": "A file", "actions": actions}
        head = (await ask.data(commit, ada, input=input))["createCommit"]["fileCommit"]["commit"]["oid"]
        async with WebhookReceiver() as receiver:
            hook = {"id": global_id("Hook", (await make_hook(make, project, receiver.url)).id)}
            assert (await ask.data(TEST, ada, input=hook))["testProjectHook"]["delivery"]["payload"]["after"] == head
            shutil.rmtree(services.repositories.path_of(project.id))
            tested = (await ask.data(TEST, ada, input=hook))["testProjectHook"]["delivery"]
        assert (tested["state"], tested["payload"]["commits"]) == ("DELIVERED", [])


CREATE_BRANCH = """mutation ($path: String!) { createBranch(input: {projectPath: $path, name: "topic2", ref: "master"}) {
    userErrors { code } } }"""
UPDATE_BUILD = "mutation ($input: UpdateBuildInput!) { updateBuild(input: $input) { userErrors { code } } }"
