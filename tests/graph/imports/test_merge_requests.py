"""Imported merge requests: their commits and changes are those that the repositories have."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from graph.jobs import object_collections
from graph.operations.transaction import write_transaction
from graph.rules.imports.contents import merge_requests
from graph.rules.merge_requests import merge_request_refresh
from storage import tables
from storage.database.clock import now
from storage.tables import ImportKind
from storage.tables.git import refs
from tests.graph.imports.copied_project import know
from tests.graph.imports.support import ITEMS, T0, T1, RunningImport, begin
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import commit_to_branch, git, make_history

SHOWN = """query ($path: String!, $iid: Int!) { project(path: $path) { mergeRequest(iid: $iid) {
    state mergeStatus sourceProjectId headCommit { oid } mergeCommit { oid } commits(first: 10) { totalCount nodes { oid } }
    changes { newPath } closesIssues(first: 10) { nodes { iid } } mergedBy { username } mergedAt } } }"""
ABSENT = "d" * 40


def add_branch(path: Path, name: str, *, commits: int = 2, start: str = "master") -> list[str]:
    """The commits of a new branch, newest first, each with a file of its own."""
    oids: list[str] = []
    for number in range(commits):
        files: dict[str, bytes | None] = {f"{name}{number}.txt": b"x\n"}
        message = f"{name} {number}\n\nFixes #1"
        oids.insert(0, commit_to_branch(path, name, files, start=None if oids else start, message=message))
    return oids


def merge(path: Path, name: str) -> str:
    tree = git(path, "merge-tree", "--write-tree", "master", name).split()[0]
    oid = git(path, "commit-tree", tree, "-p", "master", "-p", name, "-m", f"Merge branch '{name}'")
    git(path, "update-ref", "refs/heads/master", oid)
    return oid


class Forge:
    def __init__(self, ask: Ask, make: DataFactory, running: RunningImport, owner: tables.User, project: tables.Project) -> None:
        self.ask, self.make, self.running, self.owner, self.project = ask, make, running, owner, project

    async def write(self, number: int, **fields: Any) -> list[tuple[str, list[str]]]:
        common = {"sourceId": number, "projectId": 1, "iid": number, "authorId": 1, "title": "T", "targetBranch": "master"}
        return await self.running.write("importMergeRequestBatch", {**common, "createdAt": T0, "updatedAt": T1, **fields})

    async def shown(self, number: int) -> dict[str, Any]:
        data = await self.ask.data(SHOWN, self.owner, path=str(self.project.id), iid=number)
        found: dict[str, Any] = data["project"]["mergeRequest"]
        found["head"], found["merge"] = [(found.pop(name) or {}).get("oid") for name in ("headCommit", "mergeCommit")]
        found["commits"] = [each["oid"] for each in found["commits"]["nodes"]]
        found["changes"] = [each["newPath"] for each in found["changes"] or []]
        return found

    async def kept_head(self, number: int) -> str | None:
        """What the ref of the merge request keeps."""
        name = f"refs/merge-requests/{number}/head"
        async with self.make.services.database.read_session() as session:
            rows = await session.read(refs.targets(self.project.id, [name]))
        return rows[0][1] if rows else None


async def create_forge(ask: Ask, make: DataFactory, path: Path) -> Forge:
    owner = await make.user("ada")
    project = await make.indexed(await make.project(owner=owner, source=path))
    await make.issue(project)
    running = await begin(ask, await make.admin())
    await know(make, running, ImportKind.USER, {1: owner.id})
    await know(make, running, ImportKind.PROJECT, {1: project.id})
    return Forge(ask, make, running, owner, project)


class TestMerged:
    async def test_show_their_commits_whatever_the_source_names(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        path = make_history(tmp_path / "app.git", commits=3, merges_every=0).path
        oids, merges = {}, {}
        for name in ("one", "two", "three"):
            oids[name] = add_branch(path, name)
            merges[name] = merge(path, name)
        fast = add_branch(path, "fast")
        git(path, "update-ref", "refs/heads/master", fast[0])
        for name in ("one", "two", "three", "fast"):
            git(path, "update-ref", "-d", f"refs/heads/{name}")
        forge = await create_forge(ask, make, path)

        merged = {"state": "MERGED", "mergeUserId": 1}
        assert await forge.write(1, **merged, sourceBranch="one", commitOids=oids["one"]) == [("CREATED", [])]
        assert await forge.write(2, **merged, sourceBranch="two", headOid=oids["two"][0]) == [("CREATED", [])]
        assert await forge.write(3, **merged, sourceBranch="three", headOid=oids["three"][0], mergeCommitOid=merges["three"]) == [
            ("CREATED", [])
        ]
        assert await forge.write(4, **merged, sourceBranch="fast", commitOids=fast) == [("CREATED", [])]
        assert await forge.write(5, **merged, sourceBranch="gone") == [("CREATED", [])]
        assert await forge.write(6, **merged, sourceBranch="lost", commitOids=[ABSENT]) == [("CREATED", [])]
        # The mirror of a repository may have the ref by which the source keeps the head.
        await make.save(tables.GitRef(project_id=forge.project.id, name="refs/merge-requests/7/head", oid=oids["three"][0]))
        assert await forge.write(7, **merged, sourceBranch="three") == [("CREATED", [])]
        for number, name in ((1, "one"), (2, "two"), (3, "three"), (7, "three")):
            found = await forge.shown(number)
            assert (found["commits"], found["head"], found["merge"]) == (oids[name], oids[name][0], merges[name])
            assert found["changes"] == [f"{name}0.txt", f"{name}1.txt"]
            assert [each["iid"] for each in found["closesIssues"]["nodes"]] == [1]
            assert (found["mergeStatus"], found["mergedBy"], found["mergedAt"]) == ("CAN_BE_MERGED", {"username": "ada"}, T1)
            assert await forge.kept_head(number) == oids[name][0]
        found = await forge.shown(4)
        assert (found["commits"], found["changes"], found["merge"]) == (fast, ["fast0.txt", "fast1.txt"], fast[0])
        for number in (5, 6):
            found = await forge.shown(number)
            assert (found["commits"], found["changes"], found["head"]) == ([], [], None)
            assert await forge.kept_head(number) is None

    async def test_of_commits_that_a_collection_deletes_meanwhile_are_tried_again(
        self, ask: Ask, make: DataFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forge = await create_forge(ask, make, make_history(tmp_path / "app.git", commits=3, merges_every=0).path)
        services = make.services
        path = services.repositories.path_of(forge.project.id)
        oids = add_branch(path, "topic")
        git(path, "update-ref", "-d", "refs/heads/topic")
        assert await object_collections.collect_project(services, forge.project.id) == 0
        lock = merge_requests.lock_for_items

        async def collect_then_lock(*arguments: Any) -> Any:
            monkeypatch.setattr(merge_requests, "lock_for_items", lock)
            later = replace(services, clock=lambda: now() + timedelta(days=15))
            assert await object_collections.collect_project(later, forge.project.id)
            return await lock(*arguments)

        monkeypatch.setattr(merge_requests, "lock_for_items", collect_then_lock)
        closed = {"sourceId": 1, "projectId": 1, "iid": 1, "authorId": 1, "title": "T", "targetBranch": "master", "state": "CLOSED"}
        item = {**closed, "sourceBranch": "topic", "commitOids": oids, "createdAt": T0, "updatedAt": T1}
        values = {"importId": forge.running.id, "items": [item]}
        document = ITEMS % ("ImportMergeRequestBatch", "importMergeRequestBatch")
        assert await ask.codes(document, forge.running.admin, input=values) == ["UNAVAILABLE"]
        assert await ask.codes(document, forge.running.admin, input=values) == []
        assert await forge.kept_head(1) is None


class TestOpen:
    async def test_are_compared_and_follow_their_branches(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        path = make_history(tmp_path / "app.git", commits=3, merges_every=0).path
        oids = add_branch(path, "topic")
        commit_to_branch(path, "clash", {"topic0.txt": b"other\n"}, start="master", message="Clash")
        forge = await create_forge(ask, make, path)
        fork_path = tmp_path / "fork.git"
        shutil.copytree(path, fork_path)
        theirs = add_branch(fork_path, "theirs")
        fork = await make.indexed(await make.project(owner=forge.owner, source=fork_path, path="fork"))
        await know(make, forge.running, ImportKind.PROJECT, {2: fork.id})

        assert await forge.write(1, state="OPENED", sourceBranch="topic", mergeWhenBuildSucceeds=True) == [
            ("CREATED", ["mergeWhenBuildSucceeds INVALID"])
        ]
        assert await forge.write(2, state="REOPENED", sourceBranch="clash", targetBranch="topic") == [("CREATED", [])]
        assert await forge.write(3, state="OPENED", sourceBranch="theirs", sourceProjectId=2) == [("CREATED", [])]
        assert await forge.write(4, state="OPENED", sourceBranch="gone", sourceProjectId=None, headOid=ABSENT) == [("CREATED", [])]
        assert await forge.write(5, state="CLOSED", sourceBranch="topic", sourceProjectId=9, commitOids=oids) == [
            ("CREATED", ["sourceProjectId NOT_FOUND"])
        ]
        first = [await forge.shown(number) for number in range(1, 6)]
        assert [each["commits"] for each in first] == [oids, [git(path, "rev-parse", "clash")], theirs, [], oids]
        assert [each["mergeStatus"] for each in first] == [
            "CAN_BE_MERGED", "CANNOT_BE_MERGED", "CAN_BE_MERGED", "CANNOT_BE_MERGED", "UNCHECKED",
        ]  # fmt: skip
        assert [each["sourceProjectId"] for each in first] == [forge.project.id, forge.project.id, fork.id, 0, 0]
        assert [await forge.kept_head(number) for number in (1, 3, 4, 5)] == [oids[0], theirs[0], None, oids[0]]

        # Nothing changes when the maintenance job compares them, and the same items write nothing.
        async with write_transaction(make.services.database) as session:
            await session.execute(update(tables.MergeRequest).where(col(tables.MergeRequest.iid) != 5).values(merge_status="unchecked"))
        await merge_request_refresh.refresh_unchecked(make.services)
        assert [await forge.shown(number) for number in range(1, 6)] == first
        assert await forge.write(2, state="REOPENED", sourceBranch="clash", targetBranch="topic") == [("UNCHANGED", [])]
        assert await make.count(tables.Note) == 0

        # A later run finds it merged.
        assert await forge.write(1, state="MERGED", sourceBranch="topic", commitOids=oids[:1]) == [("UPDATED", [])]
        found = await forge.shown(1)
        assert (found["state"], found["commits"], found["merge"]) == ("MERGED", oids[:1], None)
