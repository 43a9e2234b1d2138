"""Comments on commits through the graph."""

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from graph.errors import Code
from graph.fields.entities import global_id
from graph.rules.git import commits
from storage import tables
from storage.git.diffs.diff import FileDiff
from storage.git.repository import Repository
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import build_once, commit_files, git

CREATE = """mutation ($input: CreateCommitCommentInput!) { createCommitComment(input: $input) {
    commitComment { note path line lineType createdAt restPath author { username } commit { oid } project { path } }
    userErrors { field message code } } }"""
WHOLE = (None, None, None)


@dataclass
class CommentedHistory:
    """A repository and its newest commit."""

    path: Path
    oid: str


def create_history(path: Path) -> str:
    """A change of `a.txt` (line 2 replaced, line 5 removed), on the branches `master` and `feature/x`; returns its commit."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "master", str(path)], check=True)
    base = commit_files(path, {"a.txt": b"1\n2\n3\n4\n5\n6\n", "old.txt": b"x\n" * 20})
    oid = commit_files(path, {"a.txt": b"1\ntwo\n3\n4\n6\n", "new.txt": b"x\n" * 20}, base)
    for name in ("heads/master", "heads/feature/x", "tags/v1"):
        git(path, "update-ref", f"refs/{name}", oid)
    return oid


@pytest.fixture
def history(histories: Path, tmp_path: Path) -> CommentedHistory:
    path = tmp_path / "source.git"
    return CommentedHistory(path, build_once(create_history, histories, path))


async def create(ask: Ask, viewer: tables.User, **input: Any) -> dict[str, Any]:
    data = await ask.data(CREATE, viewer, input={"note": "Nice", **input})
    assert data["createCommitComment"]["userErrors"] == []
    found: dict[str, Any] = data["createCommitComment"]["commitComment"]
    return found


class TestCreateCommitComment:
    async def test_stands_at_a_line_that_the_commit_changed(self, ask: Ask, make: DataFactory, history: CommentedHistory) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)

        found = await create(ask, owner, projectPath=str(project.id), rev=history.oid, path="a.txt", line=2, lineType="NEW")

        assert found.pop("createdAt").endswith("Z")
        assert found == {
            "note": "Nice",
            "path": "a.txt",
            "line": 2,
            "lineType": "NEW",
            "restPath": f"/api/v3/projects/{project.id}/repository/commits/{history.oid}/comments",
            "author": {"username": owner.username},
            "commit": {"oid": history.oid},
            "project": {"path": project.path},
        }

    @pytest.mark.parametrize(
        ("position", "stands"),
        [
            ({"path": "a.txt", "line": 2, "lineType": "NEW"}, ("a.txt", 2, "NEW")),
            ({"path": "a.txt", "line": 2}, ("a.txt", 2, "NEW")),
            ({"path": "a.txt", "line": 2, "lineType": "OLD"}, ("a.txt", 2, "OLD")),
            ({"path": "a.txt", "line": 5, "lineType": "OLD"}, ("a.txt", 5, "OLD")),
            ({"path": "a.txt", "line": 5, "lineType": "NEW"}, WHOLE),
            ({"path": "a.txt", "line": 3, "lineType": "NEW"}, WHOLE),
            ({"path": "a.txt", "line": 99, "lineType": "NEW"}, WHOLE),
            ({"path": "a.txt", "line": 0, "lineType": "NEW"}, WHOLE),
            ({"path": "a.txt", "line": -2, "lineType": "NEW"}, WHOLE),
            ({"path": "a.txt", "line": 2**31 - 1, "lineType": "NEW"}, WHOLE),
            ({"path": "A.txt", "line": 2, "lineType": "NEW"}, WHOLE),
            ({"path": "../a.txt", "line": 2, "lineType": "NEW"}, WHOLE),
            ({"path": "old.txt", "line": 1, "lineType": "OLD"}, WHOLE),
            ({"path": "", "line": 2, "lineType": "NEW"}, WHOLE),
            ({"path": "a.txt", "lineType": "NEW"}, WHOLE),
            ({"line": 2, "lineType": "NEW"}, WHOLE),
            ({}, WHOLE),
        ],
    )
    async def test_anything_else_places_it_under_the_commit(
        self, ask: Ask, make: DataFactory, history: CommentedHistory, position: dict[str, Any], stands: tuple[Any, ...]
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)

        found = await create(ask, owner, projectPath=str(project.id), rev=history.oid, **position)

        assert (found["path"], found["line"], found["lineType"]) == stands

    async def test_only_the_full_id_leads_to_a_line(self, ask: Ask, make: DataFactory, history: CommentedHistory) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)
        place = {"path": "a.txt", "line": 2, "lineType": "NEW"}

        for rev in ("master", "feature/x", "v1", history.oid[:10]):
            found = await create(ask, owner, projectPath=str(project.id), rev=rev, **place)
            assert (found["commit"]["oid"], found["line"]) == (history.oid, None), rev
        for rev in (history.oid, history.oid.upper()):
            assert (await create(ask, owner, projectPath=str(project.id), rev=rev, **place))["line"] == 2
        assert (await create(ask, owner, id=global_id("Commit", f"{project.id}-{history.oid}"), **place))["line"] == 2

    async def test_a_note_is_needed(self, ask: Ask, make: DataFactory, history: CommentedHistory) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)

        for note, code in (("", "REQUIRED"), (" \n", "REQUIRED"), ("x" * 1_000_001, "INVALID")):
            data = await ask.data(CREATE, owner, input={"projectPath": str(project.id), "rev": "master", "note": note})
            assert data["createCommitComment"]["commitComment"] is None
            assert [(error["field"], error["code"]) for error in data["createCommitComment"]["userErrors"]] == [("note", code)]
        assert await make.count(tables.CommitComment) == 0

    async def test_on_a_commit_that_is_there(self, ask: Ask, make: DataFactory, history: CommentedHistory) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)
        empty = await make.project(owner=owner)

        for input in (
            *({"projectPath": str(project.id), "rev": rev} for rev in ("gone", "HEAD~1", "@{-1}", ":/A", "--output=x", "f" * 40, "")),
            {"projectPath": str(empty.id), "rev": "master"},
            {"id": global_id("Commit", f"{empty.id}-{history.oid}")},
            {"id": global_id("Project", f"{project.id}-{history.oid}")},
            {"id": "nonsense"},
        ):
            outcome = await ask(CREATE, owner, input={"note": "", **input})
            assert [(problem.code, problem.subject) for problem in outcome.errors] == [(Code.NOT_FOUND, "Commit")], input
        assert await make.count(tables.CommitComment) == 0

    async def test_permissions(self, ask: Ask, make: DataFactory, history: CommentedHistory) -> None:
        guest, reporter, outsider = await make.user(), await make.user(), await make.user()
        members = [(guest, AccessLevel.GUEST), (reporter, AccessLevel.REPORTER)]
        private = await make.project(members=members, source=history.path)
        public = await make.project(visibility=Visibility.PUBLIC, source=history.path)

        async def codes(viewer: tables.User | None, project: tables.Project, rev: str = "master") -> list[str]:
            return await ask.codes(CREATE, viewer, input={"projectPath": str(project.id), "rev": rev, "note": "Nice"})

        assert await codes(None, private) == ["UNAUTHENTICATED"]
        assert await codes(outsider, private) == ["NOT_FOUND"]
        assert await codes(guest, private) == await codes(guest, private, "gone") == ["FORBIDDEN"]
        assert await codes(reporter, private) == await codes(outsider, public) == await codes(await make.admin(), private) == []

    async def test_a_missing_repository(self, ask: Ask, make: DataFactory, history: CommentedHistory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)
        services.repositories.remove(project.id)

        assert await ask.codes(CREATE, owner, input={"projectPath": str(project.id), "rev": "master", "note": "Nice"}) == ["UNAVAILABLE"]

    async def test_no_write_lock_is_held_while_the_diff_is_read(
        self, ask: Ask, make: DataFactory, history: CommentedHistory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)
        loop, reading, written = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        original = commits.diff.diff_of_commit

        def slow(repository: Repository, oid: str) -> list[FileDiff]:
            loop.call_soon_threadsafe(reading.set)
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(written.wait(), 3), loop).result()
            return original(repository, oid)

        monkeypatch.setattr(commits.diff, "diff_of_commit", slow)
        commenting = asyncio.create_task(
            create(ask, owner, projectPath=str(project.id), rev=history.oid, path="a.txt", line=2, lineType="NEW")
        )
        await reading.wait()
        await make.label(project)
        written.set()

        assert (await commenting)["line"] == 2

    async def test_costs_a_fixed_number_of_statements(
        self, ask: Ask, make: DataFactory, history: CommentedHistory, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), source=history.path)

        with statements.assert_at_most(8):
            await create(ask, owner, projectPath=str(project.id), rev=history.oid, path="a.txt", line=2)
