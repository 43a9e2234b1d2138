"""Payloads of hooks: the closed schema of each event, with its values."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from graph.context import Context, Services
from graph.events import build_payloads, object_payloads, payloads, push_payloads
from graph.events.payloads import EventPayload
from graph.events.project_hook_payloads import MAX_COMMITS, MAX_MESSAGE_CHARACTERS
from graph.rules.git.commit_index import RefUpdate
from storage import tables
from storage.git.commits import GitCommit
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import NULL_ID
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, MergeStatus, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.rest_v3.support.interface_rules import cites

WHEN: dict[str, Any] = {"created_at": datetime(2026, 3, 1, 12, 0, 5, 999_999, UTC), "updated_at": datetime(2026, 3, 2, 13, 0, 0, 1, UTC)}
EVENT_FIELDS = {"created_at": "2026-03-01T12:00:05Z", "updated_at": "2026-03-02T13:00:00Z"}


class EventScenario:
    """`await event_body(kind, subject)`: the body of the event that the viewer `ada` causes."""

    def __init__(self, services: Services, make: DataFactory) -> None:
        self.services = services
        self.make = make

    async def __call__(self, kind: type[EventPayload], *subjects: Any) -> dict[str, Any]:
        async with self.services.database.read_session() as session:
            context = Context(self.services, session, self.ada, "test")
            return (await kind.of(context, *subjects)).body()

    async def create_rows(self) -> None:
        self.ada = await self.make.user("ada", name="Ada L.", **WHEN)
        self.group = await self.make.group(path="math", name="Math", **WHEN)
        self.project = await self.make.project(owner=self.ada, path="engine", name="Engine", visibility=Visibility.INTERNAL, **WHEN)


@pytest.fixture
async def event_body(services: Services, make: DataFactory) -> EventScenario:
    scenario = EventScenario(services, make)
    await scenario.create_rows()
    return scenario


@cites("Events: system events have closed payloads")
class TestSystemEvents:
    async def test_of_projects(self, event_body: EventScenario, make: DataFactory) -> None:
        engine = {
            **EVENT_FIELDS,
            "project_id": event_body.project.id,
            "name": "Engine",
            "path": "engine",
            "path_with_namespace": "ada/engine",
            "owner_name": "Ada L.",
            "owner_email": "ada@example.org",
            "project_visibility": "internal",
        }
        moved = {**engine, "old_path_with_namespace": "ada/mill"}
        assert await event_body(payloads.ProjectCreated, event_body.project) == {"event_name": "project_create", **engine}
        assert await event_body(payloads.ProjectDestroyed, event_body.project) == {"event_name": "project_destroy", **engine}
        assert await event_body(payloads.ProjectRenamed, event_body.project, "ada/mill") == {"event_name": "project_rename", **moved}
        assert await event_body(payloads.ProjectTransferred, event_body.project, "ada/mill") == {"event_name": "project_transfer", **moved}

        of_group = await event_body(payloads.ProjectCreated, await make.project(group=event_body.group))
        assert (of_group["owner_name"], of_group["owner_email"], of_group["project_visibility"]) == ("Math", "", "private")

    async def test_of_users_and_keys(self, event_body: EventScenario, make: DataFactory) -> None:
        ada = {**EVENT_FIELDS, "user_id": event_body.ada.id, "username": "ada", "name": "Ada L.", "email": "ada@example.org"}
        assert await event_body(payloads.UserCreated, event_body.ada) == {"event_name": "user_create", **ada}
        assert await event_body(payloads.UserDestroyed, event_body.ada) == {"event_name": "user_destroy", **ada}

        await make.save(key := tables.SshKey(user_id=event_body.ada.id, title="t", key="ssh-ed25519 AAAA", fingerprint="f", **WHEN))
        body = {**EVENT_FIELDS, "id": key.id, "key": "ssh-ed25519 AAAA", "username": "ada"}
        assert await event_body(payloads.KeyCreated, key) == {"event_name": "key_create", **body}
        assert await event_body(payloads.KeyDestroyed, key) == {"event_name": "key_destroy", **body}

        project_key = tables.DeployKey(project_id=event_body.project.id, title="t", key="ssh-ed25519 BBBB", fingerprint="g", **WHEN)
        await make.save(project_key)
        body = {**EVENT_FIELDS, "id": project_key.id, "key": "ssh-ed25519 BBBB"}
        assert await event_body(payloads.DeployKeyCreated, project_key) == {"event_name": "deploykey_create", **body}
        assert await event_body(payloads.DeployKeyDestroyed, project_key) == {"event_name": "deploykey_destroy", **body}

    async def test_of_members(self, event_body: EventScenario, make: DataFactory) -> None:
        bob = await make.user("bob", name="Bob")
        who = {"user_id": bob.id, "user_username": "bob", "user_name": "Bob", "user_email": "bob@example.org"}
        in_project = tables.ProjectMember(project_id=event_body.project.id, user_id=bob.id, access_level=AccessLevel.DEVELOPER, **WHEN)
        in_group = tables.GroupMember(group_id=event_body.group.id, user_id=bob.id, access_level=AccessLevel.OWNER, **WHEN)
        await make.save(in_project, in_group)

        place = {
            "project_id": event_body.project.id,
            "project_name": "Engine",
            "project_path": "engine",
            "project_path_with_namespace": "ada/engine",
            "project_visibility": "internal",
        }
        team = {**EVENT_FIELDS, **who, **place, "access_level": "Developer"}
        assert await event_body(payloads.UserAddedToProject, in_project) == {"event_name": "user_add_to_team", **team}
        assert await event_body(payloads.UserRemovedFromProject, in_project) == {"event_name": "user_remove_from_team", **team}
        group = {
            **EVENT_FIELDS,
            **who,
            "group_id": event_body.group.id,
            "group_name": "Math",
            "group_path": "math",
            "group_access": "Owner",
        }
        assert await event_body(payloads.UserAddedToGroup, in_group) == {"event_name": "user_add_to_group", **group}
        assert await event_body(payloads.UserRemovedFromGroup, in_group) == {"event_name": "user_remove_from_group", **group}

    async def test_of_groups(self, event_body: EventScenario) -> None:
        math = {**EVENT_FIELDS, "group_id": event_body.group.id, "name": "Math", "path": "math", "owner_name": None, "owner_email": None}
        assert await event_body(payloads.GroupCreated, event_body.group) == {"event_name": "group_create", **math}
        assert await event_body(payloads.GroupDestroyed, event_body.group) == {"event_name": "group_destroy", **math}


@cites("Events: push, tag, issue, merge request and note events have closed payloads")
class TestObjectEvents:
    def project_fields(self, scenario: EventScenario) -> dict[str, Any]:
        return {
            "user": {"name": "Ada L.", "username": "ada", "avatar_url": None},
            "project": {
                "id": scenario.project.id,
                "name": "Engine",
                "description": None,
                "path_with_namespace": "ada/engine",
                "visibility_level": 1,
                "default_branch": None,
                "web_url": f"{EXTERNAL_URL}/ada/engine",
            },
        }

    async def test_of_issues(self, event_body: EventScenario, make: DataFactory) -> None:
        issue = await make.issue(event_body.project, title="It leaks", **WHEN)
        assert await event_body(object_payloads.IssueChanged, issue, "close") == {
            "object_kind": "issue",
            **self.project_fields(event_body),
            "object_attributes": {
                **EVENT_FIELDS,
                "id": issue.id,
                "iid": 1,
                "project_id": event_body.project.id,
                "title": "It leaks",
                "description": None,
                "state": "opened",
                "action": "close",
                "author_id": event_body.ada.id,
                "assignee_id": None,
                "milestone_id": None,
            },
        }

    async def test_of_merge_requests(self, event_body: EventScenario, make: DataFactory) -> None:
        project, author = event_body.project, await make.user("bob")
        row = await make.merge_request(project, author=author, title="WIP: Pump", source_branch="topic1", head_oid="b" * 40, **WHEN)
        around = self.project_fields(event_body)
        assert await event_body(object_payloads.MergeRequestChanged, row, "open") == {
            "object_kind": "merge_request",
            **around,
            "object_attributes": {
                **EVENT_FIELDS,
                "id": row.id,
                "iid": 1,
                "project_id": project.id,
                "title": "WIP: Pump",
                "description": None,
                "state": "opened",
                "action": "open",
                "source_branch": "topic1",
                "source_project_id": project.id,
                "source": around["project"],
                "target_branch": "master",
                "target_project_id": project.id,
                "target": around["project"],
                "merge_status": "unchecked",
                "last_commit": {"id": "b" * 40},
                "work_in_progress": True,
                "merge_commit_sha": None,
                "url": f"{EXTERNAL_URL}/ada/engine/merge_requests/1",
                "author_id": author.id,
                "assignee_id": None,
                "milestone_id": None,
            },
        }

    async def test_of_a_merged_one_with_a_deleted_fork(self, event_body: EventScenario, make: DataFactory) -> None:
        columns: dict[str, Any] = {"state": MergeRequestState.MERGED, "merge_status": MergeStatus.CAN_BE_MERGED}
        row = await make.merge_request(event_body.project, source_project_id=999, merge_commit_oid="c" * 40, **columns)
        attributes = (await event_body(object_payloads.MergeRequestChanged, row, "merge"))["object_attributes"]
        expected = {"state": "merged", "action": "merge", "source": None, "source_project_id": 999, "last_commit": None}
        assert attributes == {**attributes, **expected, "merge_commit_sha": "c" * 40, "work_in_progress": False}

    async def test_of_pushes(self, event_body: EventScenario) -> None:
        at = datetime(2026, 3, 1, 12, 0, 5, 999_999, timezone(timedelta(hours=2)))

        def commit(number: int) -> GitCommit:
            who = ("A U Thor", "author@example.org", at, "C O Mitter", "committer@example.org", at)
            return GitCommit(f"{number:040x}", (), f"Number {number}\n" + "x" * MAX_MESSAGE_CHARACTERS, *who)

        commits = tuple(commit(number) for number in range(30, 0, -1))
        updates = RefUpdate(RefCommand("refs/heads/master", "a" * 40, "b" * 40), 31, commits)
        body = await event_body(push_payloads.BranchPushed, event_body.project, updates)
        shown = body["object_attributes"].pop("commits")
        assert body == {
            "object_kind": "push",
            **self.project_fields(event_body),
            "object_attributes": {"before": "a" * 40, "after": "b" * 40, "ref": "refs/heads/master", "total_commits_count": 31},
        }
        assert [each["id"] for each in shown] == [f"{number:040x}" for number in range(31 - MAX_COMMITS, 31)]
        assert shown[-1] == {
            "id": f"{30:040x}",
            "message": ("Number 30\n" + "x" * MAX_MESSAGE_CHARACTERS)[:MAX_MESSAGE_CHARACTERS],
            "timestamp": "2026-03-01T12:00:05+02:00",
            "url": f"{EXTERNAL_URL}/ada/engine/commit/{30:040x}",
            "author": {"name": "A U Thor", "email": "author@example.org"},
        }

    async def test_of_branches_and_tags_that_come_and_go(self, event_body: EventScenario) -> None:
        for kind, name, ref in (
            (push_payloads.BranchPushed, "push", "refs/heads/a\udcff"),
            (push_payloads.TagPushed, "tag_push", "refs/tags/v1\udcff"),
        ):
            for old, new in ((None, "b" * 40), ("a" * 40, None)):
                assert await event_body(kind, event_body.project, RefUpdate(RefCommand(ref, old, new))) == {
                    "object_kind": name,
                    **self.project_fields(event_body),
                    "object_attributes": {
                        "before": old or NULL_ID,
                        "after": new or NULL_ID,
                        "ref": ref.replace("\udcff", "?"),
                        "commits": [],
                        "total_commits_count": 0,
                    },
                }

    async def test_of_notes(self, event_body: EventScenario, make: DataFactory) -> None:
        issue = await make.issue(event_body.project)
        note = await make.note(issue, body="Where?", **WHEN)
        attributes = {
            **EVENT_FIELDS,
            "id": note.id,
            "note": "Where?",
            "project_id": event_body.project.id,
            "author_id": event_body.ada.id,
            "attachment": None,
        }
        assert await event_body(object_payloads.NoteWritten, note) == {
            "object_kind": "note",
            **self.project_fields(event_body),
            "object_attributes": {**attributes, "noteable_type": "Issue", "noteable_id": issue.id, "commit_id": None},
        }

        row = await make.merge_request(event_body.project)
        under = (await event_body(object_payloads.NoteWritten, await make.note(row)))["object_attributes"]
        assert (under["noteable_type"], under["noteable_id"], under["commit_id"]) == ("MergeRequest", row.id, None)

        comment = await make.commit_comment(event_body.project, "a" * 40, author=event_body.ada, note="Here", created_at=WHEN["created_at"])
        body = await event_body(object_payloads.CommitCommented, comment)
        assert body["object_kind"] == "note"
        assert body["object_attributes"] == {
            **attributes,
            "id": comment.id,
            "note": "Here",
            "updated_at": EVENT_FIELDS["created_at"],
            "noteable_type": "Commit",
            "noteable_id": None,
            "commit_id": "a" * 40,
        }


class TestBuildEvents:
    async def test_of_a_pipeline_that_waits_only_for_a_manual_build_say_when_it_finished(
        self, event_body: EventScenario, make: DataFactory
    ) -> None:
        await make.save(pipeline := tables.Pipeline(project_id=event_body.project.id, sha="a" * 40, ref="master"))
        times = {"created_at": WHEN["created_at"], "started_at": WHEN["created_at"], "finished_at": WHEN["updated_at"]}
        build = await make.build(event_body.project, "a" * 40, pipeline_id=pipeline.id, status=CheckStatus.SUCCESS, **times)
        await make.build(event_body.project, "a" * 40, pipeline_id=pipeline.id, status=CheckStatus.MANUAL)

        commit = (await event_body(build_payloads.BuildChanged, build))["commit"]

        assert (commit["status"], commit["started_at"], commit["finished_at"]) == (
            "success",
            EVENT_FIELDS["created_at"],
            EVENT_FIELDS["updated_at"],
        )
