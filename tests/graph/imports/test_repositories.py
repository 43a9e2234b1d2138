"""Imported repositories."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graph.errors import NotAllowed
from graph.imports import InstanceImports
from storage import tables
from storage.database.engine import Database
from tests.graph.imports.support import FINISH, RunningImport, begin, rows_of, user_item
from tests.graph.imports.test_projects import group_item, project_item
from tests.make import DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.git.git_history import GIT_ENVIRONMENT, make_history


class Mirror:
    """A bare repository as `git clone --mirror` makes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_history(path, commits=12)

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        run = subprocess.run(
            ["git", "-C", str(self.path), *arguments], input=stdin, check=True, capture_output=True, text=True, env=GIT_ENVIRONMENT
        )
        return run.stdout.strip()

    def commit(self, branch: str, name: str, text: str) -> str:
        """Commits a file to a branch, which may be new."""
        blob = self.git("hash-object", "-w", "--stdin", stdin=text)
        tree = self.git("mktree", stdin=f"100644 blob {blob}\t{name}\n")
        parent = self.git("rev-parse", branch if self.git("branch", "--list", branch) else "master")
        oid = self.git("commit-tree", tree, "-p", parent, "-m", f"Add {name}")
        self.git("update-ref", f"refs/heads/{branch}", oid)
        return oid

    def refs(self) -> dict[str, str]:
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "mirror.git")


async def begin_with_project(ask: Ask, make: DataFactory) -> tuple[RunningImport, int]:
    running = await begin(ask, await make.admin())
    await running.ids("importUsers", user_item(1))
    await running.ids("importGroups", group_item(70))
    (project_id,) = await running.ids("importProjects", project_item(5, lastActivityAt="2015-01-01T00:00:00Z"))
    return running, project_id


async def stored_refs(database: Database) -> dict[str, str]:
    return {row["name"]: row["oid"] for row in await rows_of(database, tables.GitRef)}


def make_empty(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", "-b", "trunk", str(path)], check=True)
    return path


EFFECTS_OF_A_PUSH: tuple[Any, ...] = (tables.Event, tables.Activity, tables.Build, tables.Pipeline, tables.Note)


class TestRepositories:
    async def test_become_those_of_the_mirror_without_the_effects_of_a_push(
        self, ask: Ask, api: Api, make: DataFactory, database: Database, mirror: Mirror
    ) -> None:
        running, project_id = await begin_with_project(ask, make)
        await make.save(tables.Hook(project_id=project_id, url="http://93.184.215.14/"))
        imports = InstanceImports(make.services)
        deleted = mirror.commit("gone", "a.txt", "a")
        mirror.git("update-ref", "-d", "refs/heads/gone")
        mirror.git("update-ref", "refs/merge-requests/3/head", deleted)
        mirror.git("update-ref", "refs/merge-requests/3/merge", deleted)
        mirror.git("update-ref", "refs/keep-around/x", deleted)
        mirror.commit("master", ".gitlab-ci.yml", "job:\n  script: make\n")
        wanted = {name: oid for name, oid in mirror.refs().items() if not name.startswith(("refs/keep", "refs/merge-requests/3/merge"))}

        results = [await imports.import_repository(running.id, "5", mirror.path) for _ in range(2)]
        assert [(each.outcome, each.database_id, list(each.errors)) for each in results] == [
            ("created", project_id, []), ("unchanged", project_id, []),
        ]  # fmt: skip
        assert await stored_refs(database) == wanted
        (project,) = await rows_of(database, tables.Project)
        assert (project["default_branch"], project["unborn_branch"], project["last_activity_at"].year) == ("master", None, 2015)
        commits = (await api.get(f"/projects/{project_id}/repository/commits", running.admin)).json()
        assert commits[0]["title"] == "Add .gitlab-ci.yml" and len(await rows_of(database, tables.Commit)) >= 12
        assert (await api.get(f"/projects/{project_id}/repository/commits/{deleted}", running.admin)).status_code == 200

        topic = mirror.commit("topic", ".gitlab-ci.yml", "job:\n  script: make all\n")
        mirror.commit("new/one", "b.txt", "b")
        mirror.git("tag", "-d", "v1")
        mirror.git("tag", "-a", "-m", "T", "v9", topic)
        mirror.git("symbolic-ref", "HEAD", "refs/heads/topic")
        mirror.git("update-ref", "refs/merge-requests/4/head", topic)
        row = await make.fetch(tables.Project, project_id)
        assert row is not None
        request = await make.merge_request(row, source_branch="topic", target_branch="master", head_oid=wanted["refs/heads/topic"])
        await make.save(tables.ProtectedBranch(project_id=project_id, name="topic"))
        wanted = {name: oid for name, oid in mirror.refs().items() if not name.startswith(("refs/keep", "refs/merge-requests/3/merge"))}
        outcomes = [(await imports.import_repository(running.id, "5", mirror.path)).outcome for _ in range(2)]
        assert outcomes == ["updated", "unchanged"]
        found = await stored_refs(database)
        assert found.pop(f"refs/merge-requests/{request.iid}/head") == topic
        wanted.pop(f"refs/merge-requests/{request.iid}/head", None)
        assert found == wanted
        (project,) = await rows_of(database, tables.Project)
        assert (project["default_branch"], project["last_activity_at"].year) == ("topic", 2015)
        shown = await make.fetch(tables.MergeRequest, request.id)
        assert shown is not None and shown.head_oid == topic and shown.updated_at == request.updated_at
        heads = (await api.get(f"/projects/{project_id}/repository/branches", running.admin)).json()
        assert {each["name"] for each in heads} == {"master", "new/one", "topic"}
        assert shown.merge_status is not tables.MergeStatus.UNCHECKED
        await ask.data(FINISH, running.admin, input={"importId": running.id})
        shown = await make.fetch(tables.MergeRequest, request.id)
        assert shown is not None and shown.merge_status is tables.MergeStatus.UNCHECKED
        for table in EFFECTS_OF_A_PUSH:
            assert await make.count(table) == 0, table

    async def test_whose_head_has_a_long_name_have_another_default_branch(
        self, ask: Ask, make: DataFactory, database: Database, mirror: Mirror
    ) -> None:
        running, _ = await begin_with_project(ask, make)
        long_name = "/".join(["a" * 100] * 3)
        mirror.commit(long_name, "a.txt", "a")
        mirror.git("symbolic-ref", "HEAD", f"refs/heads/{long_name}")
        result = await InstanceImports(make.services).import_repository(running.id, "5", mirror.path)
        assert (result.outcome, list(result.errors)) == ("created", [])
        (project,) = await rows_of(database, tables.Project)
        assert project["default_branch"] == "master" and f"refs/heads/{long_name}" in await stored_refs(database)

    async def test_that_cannot_be_read_are_skipped(self, ask: Ask, make: DataFactory, database: Database, mirror: Mirror) -> None:
        running, _ = await begin_with_project(ask, make)
        imports = InstanceImports(make.services)
        empty = make_empty(mirror.path.parent / "empty.git")
        unknown = await imports.import_repository(running.id, "6", mirror.path)
        missing = await imports.import_repository(running.id, "5", mirror.path / "nothing")
        nothing = await imports.import_repository(running.id, "5", empty)
        assert [(each.outcome, [f"{error.field} {error.code}" for error in each.errors]) for each in (unknown, missing, nothing)] == [
            ("skipped", ["projectId NOT_FOUND"]), ("skipped", ["mirror INVALID"]), ("unchanged", []),
        ]  # fmt: skip
        mirror.git("repack", "-a", "-d", "-q")
        pack = next(mirror.path.glob("objects/pack/*.pack"))
        pack.chmod(0o600)
        pack.write_bytes(pack.read_bytes()[:200])
        damaged = await imports.import_repository(running.id, "5", mirror.path)
        assert (damaged.outcome, damaged.errors[0].field) == ("skipped", "mirror")
        assert await stored_refs(database) == {}
        assert not list(make.services.repositories.root.glob(".incoming-*"))
        await ask.data(FINISH, running.admin, input={"importId": running.id})
        with pytest.raises(NotAllowed):
            await imports.import_repository(running.id, "5", Mirror(mirror.path.parent / "second.git").path)
        assert await stored_refs(database) == {}

    async def test_that_are_imported_twice_at_once_are_whole(self, ask: Ask, make: DataFactory, database: Database, mirror: Mirror) -> None:
        running, _ = await begin_with_project(ask, make)
        imports = InstanceImports(make.services)
        results = await asyncio.gather(*(imports.import_repository(running.id, "5", mirror.path) for _ in range(3)))
        assert sorted(each.outcome for each in results).count("created") == 1
        assert await stored_refs(database) == mirror.refs()
        assert (await imports.import_repository(running.id, "5", mirror.path)).outcome == "unchanged"
