"""Imported groups, projects and their members."""

from typing import Any

import pytest

from storage import tables
from storage.database.engine import Database
from storage.tables import AccessLevel, Visibility
from tests.graph.imports.support import T0, T1, begin, rows_of, user_item
from tests.make import DataFactory
from tests.support.api_clients import Api, Ask

FULL = {
    "description": "About", "visibility": "INTERNAL", "defaultBranch": "main", "issuesEnabled": False, "mergeRequestsEnabled": False,
    "buildsEnabled": False, "wikiEnabled": False, "snippetsEnabled": False, "sharedRunnersEnabled": False, "publicBuilds": False,
    "archived": True, "avatarUrl": "https://old.example/a.png", "tagList": ["b", "a"], "updatedAt": T1, "lastActivityAt": T1,
}  # fmt: skip


def group_item(number: int, **fields: Any) -> dict[str, Any]:
    return {"sourceId": number, "name": f"Group {number}", "path": f"Group-{number}", "createdAt": T0, **fields}


def project_item(number: int, namespace: int = 70, **fields: Any) -> dict[str, Any]:
    values = {"sourceId": number, "namespaceId": namespace, "name": f"Project {number}", "path": f"Project-{number}"}
    return {**values, "visibility": "PRIVATE", "createdAt": T0, **fields}


class TestProjects:
    async def test_and_groups_are_written_as_they_are_in_the_source(
        self, ask: Ask, api: Api, make: DataFactory, database: Database
    ) -> None:
        running = await begin(ask, await make.admin())
        creator, member = await running.ids("importUsers", user_item(1), user_item(2))
        (group,) = await running.ids("importGroups", group_item(70, description="D", updatedAt=T1))
        members = [{"groupId": 70, "userId": 2, "accessLevel": "OWNER", "createdAt": T0}]
        assert await running.write("importGroupMembers", *members) == [("CREATED", [])]
        assert running.results[0]["sourceId"] == "70/2"
        items = [project_item(5, creatorId=1, **FULL), project_item(6, 501, forkedFromId=5)]
        first, fork = await running.ids("importProjects", *items)
        levels = [{"projectId": 6, "userId": 2, "accessLevel": level} for level in ("OWNER",)]
        assert await running.write("importProjectMembers", *levels) == [("CREATED", [])]
        assert await running.write("importProjectStars", {"projectId": 5, "userId": 2}) == [("CREATED", [])]

        (row,) = await rows_of(database, tables.Project, id=first)
        expected = {
            "namespace_id": group, "creator_id": creator, "name": "Project 5", "path": "Project-5", "path_key": "project-5",
            "description": "About", "visibility_level": int(Visibility.INTERNAL), "default_branch": None, "unborn_branch": "main",
            "issues_enabled": False, "merge_requests_enabled": False, "builds_enabled": False, "wiki_enabled": False,
            "snippets_enabled": False, "shared_runners_enabled": False, "public_builds": False, "archived": True,
            "avatar_url": "https://old.example/a.png", "tag_list": ["b", "a"], "forked_from_id": None,
        }  # fmt: skip
        assert {name: row[name] for name in expected} == expected
        assert row["last_activity_at"] == row["updated_at"] > row["created_at"]
        (copy,) = await rows_of(database, tables.Project, id=fork)
        assert copy["forked_from_id"] == first and copy["last_activity_at"] == copy["updated_at"] == copy["created_at"]
        (space,) = await rows_of(database, tables.Namespace, id=group)
        assert (space["kind"], space["path_key"], space["description"]) == (tables.NamespaceKind.GROUP, "group-70", "D")
        for project_id, head in ((first, "main"), (fork, "master")):
            assert await make.services.repositories.read(project_id, lambda repository: repository.head_branch()) == head
        (project_member,) = await rows_of(database, tables.ProjectMember)
        assert (project_member["user_id"], project_member["access_level"]) == (member, int(AccessLevel.MASTER))
        (group_member,) = await rows_of(database, tables.GroupMember)
        assert (group_member["user_id"], group_member["access_level"]) == (member, int(AccessLevel.OWNER))
        shown = (await api.get(f"/projects/{first}", running.admin)).json()
        assert (shown["path_with_namespace"], shown["star_count"], shown["forks_count"]) == ("Group-70/Project-5", 1, 1)
        for table in (tables.Event, tables.Activity, tables.Change):
            assert await make.count(table) == 0

        before = await rows_of(database, tables.Project), await rows_of(database, tables.Namespace)
        assert await running.write("importGroups", group_item(70, description="D", updatedAt=T1)) == [("UNCHANGED", [])]
        assert await running.write("importProjects", *items) == [("UNCHANGED", [])] * 2
        assert await running.write("importProjectStars", {"projectId": 5, "userId": 2}) == [("UNCHANGED", [])]
        assert (await rows_of(database, tables.Project), await rows_of(database, tables.Namespace)) == before
        moved = {**items[0], "namespaceId": 502, "path": "renamed", "archived": False}
        assert await running.write("importProjects", moved, items[1]) == [("UPDATED", []), ("UNCHANGED", [])]
        (row,) = await rows_of(database, tables.Project, id=first)
        assert (row["path_key"], row["archived"], row["created_at"].year) == ("renamed", False, 2014)
        lower = [{**members[0], "accessLevel": "GUEST"}]
        assert await running.write("importGroupMembers", *lower) == [("UPDATED", [])]
        assert (await rows_of(database, tables.GroupMember))[0]["access_level"] == int(AccessLevel.GUEST)

    async def test_with_invalid_or_unknown_values_are_skipped_and_the_others_written(self, ask: Ask, make: DataFactory) -> None:
        running = await begin(ask, await make.admin())
        local = await make.user()
        here = await make.project(owner=local)
        group = await make.group()
        await running.ids("importUsers", user_item(1))
        groups = [
            group_item(70), group_item(71, path=group.path), group_item(72, path="group-70"), group_item(501), group_item(73, path="-"),
            group_item(74, mergeInto=group.path), group_item(75, mergeInto="nothing"), group_item(76, description="d" * 256),
        ]  # fmt: skip
        assert await running.write("importGroups", *groups) == [
            ("CREATED", []), ("SKIPPED", ["path TAKEN"]), ("SKIPPED", ["path TAKEN"]), ("SKIPPED", ["sourceId INVALID"]),
            ("SKIPPED", ["path INVALID"]), ("UPDATED", []), ("SKIPPED", ["mergeInto NOT_FOUND"]), ("CREATED", ["description INVALID"]),
        ]  # fmt: skip
        assert running.results[5]["databaseId"] == group.id
        items = [
            project_item(1, 999), project_item(2, namespaceId=None), project_item(3, namespaceId=None, namespacePath="nothing"),
            project_item(4, namespaceId=None, namespacePath=local.username.upper()),
            project_item(5, namespaceId=None, namespacePath=local.username, path=here.path.upper()),
            project_item(6, name="?"), project_item(7, path=".."), project_item(8, creatorId=9, forkedFromId=99),
            project_item(9, avatarUrl="javascript:a", tagList=[str(number) for number in range(101)], defaultBranch=".."),
            project_item(10, path="project-9"), project_item(11, 74, description=""),
        ]  # fmt: skip
        outcomes = await running.write("importProjects", *items)
        assert outcomes == [
            ("SKIPPED", ["namespaceId NOT_FOUND"]), ("SKIPPED", ["namespaceId REQUIRED"]), ("SKIPPED", ["namespacePath NOT_FOUND"]),
            ("CREATED", []), ("SKIPPED", ["path TAKEN"]), ("SKIPPED", ["name INVALID"]), ("SKIPPED", ["path INVALID"]),
            ("CREATED", ["creatorId NOT_FOUND", "forkedFromId NOT_FOUND"]),
            ("CREATED", ["defaultBranch INVALID", "avatarUrl INVALID", "tagList INVALID"]), ("SKIPPED", ["path TAKEN"]), ("CREATED", []),
        ]  # fmt: skip
        again = project_item(8, creatorId=1, forkedFromId=9)
        assert await running.write("importProjects", again) == [("UPDATED", [])]
        bad = [{"projectId": 4, "userId": 9, "accessLevel": "GUEST"}, {"projectId": 44, "userId": 1, "accessLevel": "GUEST"}]
        good = {"projectId": 4, "userId": 1, "accessLevel": "GUEST"}
        assert await running.write("importProjectMembers", *bad, good, good) == [
            ("SKIPPED", ["userId NOT_FOUND"]), ("SKIPPED", ["projectId NOT_FOUND"]), ("CREATED", []), ("SKIPPED", ["sourceId INVALID"]),
        ]  # fmt: skip
        assert not list(make.services.repositories.root.glob(".incoming-*"))

    async def test_that_were_deleted_here_are_created_again(self, ask: Ask, api: Api, make: DataFactory, database: Database) -> None:
        running = await begin(ask, await make.admin())
        await running.ids("importGroups", group_item(70))
        (old,) = await running.ids("importProjects", project_item(1))
        assert (await api.delete(f"/projects/{old}", running.admin)).status_code == 200
        assert await running.write("importLabels", {"projectId": 1, "name": "a", "color": "#FFF"}) == [("SKIPPED", ["projectId NOT_FOUND"])]
        other = (await api.post("/projects", running.admin, name="Another")).json()["id"]
        assert await running.write("importProjects", project_item(1)) == [("CREATED", [])]
        (another, row) = await rows_of(database, tables.Project)
        assert (another["id"], another["name"]) == (other, "Another")
        assert row["id"] == running.results[0]["databaseId"] > other
        assert await make.services.repositories.read(row["id"], lambda repository: repository.branches()) == []

    async def test_that_cannot_be_committed_leave_no_repository(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        from graph.rules.imports import batches

        running = await begin(ask, await make.admin())
        await running.ids("importGroups", group_item(70))

        async def fail(*_: Any) -> None:
            raise RuntimeError

        with monkeypatch.context() as patched:
            patched.setattr(batches, "_write_identities", fail)
            query = "mutation ($input: ImportProjectsInput!) { importProjects(input: $input) { userErrors { code } } }"
            values = {"importId": running.id, "items": [project_item(1), project_item(2)]}
            assert await ask.codes(query, running.admin, input=values) == ["INTERNAL"]
        assert await make.count(tables.Project) == 0
        assert list(make.services.repositories.root.iterdir()) == []

    async def test_keep_their_ids(self, ask: Ask, api: Api, make: DataFactory, database: Database) -> None:
        admin = await make.admin()
        running = await begin(ask, admin, keep_ids=True)
        await running.ids("importUsers", user_item(7, username=admin.username))
        assert await running.ids("importGroups", group_item(70)) == [70]
        assert await running.ids("importProjects", project_item(30), project_item(12, 507)) == [30, 12]
        assert await running.write("importProjectMembers", {"sourceId": 9, "projectId": 30, "userId": 7, "accessLevel": "MASTER"})
        assert [row["id"] for row in await rows_of(database, tables.ProjectMember)] == [9]
        created = await api.post("/projects", admin, name="New")
        assert created.json()["id"] > 30
        assert await running.write("importProjects", project_item(created.json()["id"])) == [("SKIPPED", ["sourceId TAKEN"])]
