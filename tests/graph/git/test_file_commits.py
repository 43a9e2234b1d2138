"""Commits of files through the graph."""

import shutil
from typing import Any

import pytest

from graph.context import Services
from storage import tables
from storage.git.diffs.tree_changes import InvalidPath, check_path
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import git

CREATE = """mutation ($input: CreateCommitInput!) { createCommit(input: $input) {
    fileCommit { branchName paths commit { oid title parentOids } } userErrors { field message code } } }"""
BLOB = "query ($path: String!, $file: String!) { project(path: $path) { fileLimit blob(path: $file) { oid base64 text commitOid } } }"


def of(project: tables.Project, *actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"projectPath": str(project.id), "branch": "master", "message": "Change", "actions": list(actions), **more}


class TestCreateCommit:
    async def test_changes_several_files_or_none(self, ask: Ask, make: DataFactory, services: Services) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, history={"commits": 4})
        path = services.repositories.path_of(project.id)
        head, first = git(path, "rev-parse", "master"), git(path, "ls-tree", "-r", "--name-only", "master").splitlines()[0]
        oid = git(path, "rev-parse", f"master:{first}")
        actions = [
            {"action": "CREATE", "path": "deep/er/new", "content": "1"},
            {"action": "UPDATE", "path": first, "content": "Mg==", "encoding": "BASE64", "expectedOid": oid},
        ]

        data = await ask.data(CREATE, owner, input=of(project, *actions))

        made = data["createCommit"]["fileCommit"]
        assert made["paths"] == ["deep/er/new", first] and made["branchName"] == "master"
        assert made["commit"] == {"oid": git(path, "rev-parse", "master"), "title": "Change", "parentOids": [head]}
        assert git(path, "diff", "--name-only", head, "master").splitlines() == sorted(made["paths"])
        shown = (await ask.data(BLOB, owner, path=str(project.id), file=first))["project"]
        assert shown["blob"] | {"oid": ""} == {"oid": "", "base64": "Mg==", "text": "2", "commitOid": made["commit"]["oid"]}
        assert shown["fileLimit"] == services.max_file_bytes

        for expected, *wrong in (
            ("CONFLICT", {"action": "DELETE", "path": first, "expectedOid": oid}),
            ("TAKEN", {"action": "CREATE", "path": "fine", "content": ""}, {"action": "CREATE", "path": first, "content": ""}),
            ("INVALID", {"action": "CREATE", "path": "a", "content": ""}, {"action": "CREATE", "path": "a", "content": ""}),
            ("TAKEN", {"action": "CREATE", "path": "b", "content": ""}, {"action": "CREATE", "path": "b/c", "content": ""}),
            ("TOO_LARGE", {"action": "CREATE", "path": "a", "content": "x" * (services.max_file_bytes + 1)}),
            ("REQUIRED",),
        ):
            assert await ask.codes(CREATE, owner, input=of(project, *wrong)) == [expected]
        assert await ask.codes(CREATE, owner, input=of(project, actions[0], branch="..")) == ["INVALID"]
        assert git(path, "rev-parse", "master") == made["commit"]["oid"]

    @pytest.mark.parametrize(
        ("file", "content"),
        [
            (".gitmodules", '[submodule "x"]\n\tpath = x\n\turl = --upload-pack=id\n'),
            ("deep/.GITmodules", '[submodule "../../x"]\n\tpath = x\n\turl = ../y\n'),
            ("GITMOD~1", '[submodule "x"]\n\tpath = -x\n\turl = ../y\n'),
            (".gitm\u200codules", '[submodule "x"]\n\tpath = x\n\tupdate = !id\n'),
            (".gitattributes", "a" * 3000 + " text\n"),
        ],
    )
    async def test_rejects_what_git_refuses_in_a_push(
        self, ask: Ask, make: DataFactory, services: Services, file: str, content: str
    ) -> None:
        """Nobody who checks objects could clone the repository, and clients that do not could run commands of the author."""
        project = await make.project(owner=(owner := await make.user()))
        fine = {"action": "CREATE", "path": ".gitmodules", "content": '[submodule "x"]\n\tpath = x\n\turl = ../y\n'}
        assert await ask.codes(CREATE, owner, input=of(project, fine)) == []
        head = git(services.repositories.path_of(project.id), "rev-parse", "master")
        kind = "UPDATE" if file == fine["path"] else "CREATE"

        refused = (await ask.data(CREATE, owner, input=of(project, {"action": kind, "path": file, "content": content})))["createCommit"]

        assert [(each["field"], each["code"]) for each in refused["userErrors"]] == [("content", "INVALID")]
        assert git(services.repositories.path_of(project.id), "rev-parse", "master") == head

    async def test_removing_the_last_file_leaves_an_empty_tree(self, ask: Ask, make: DataFactory, services: Services) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        path = services.repositories.path_of(project.id)
        await ask.data(CREATE, owner, input=of(project, {"action": "CREATE", "path": "a/b", "content": "1"}))
        await ask.data(CREATE, owner, input=of(project, {"action": "DELETE", "path": "a/b"}))
        assert git(path, "ls-tree", "-r", "-t", "master") == ""
        assert git(path, "fsck", "--strict") == ""

    async def test_a_repository_without_the_commit_of_the_branch_is_unavailable(
        self, ask: Ask, make: DataFactory, services: Services
    ) -> None:
        """As while the repository of a deleted project is removed."""
        project = await make.project(owner=(owner := await make.user()), history={"commits": 1})
        for folder in (services.repositories.path_of(project.id) / "objects").iterdir():
            shutil.rmtree(folder)

        assert await ask.codes(CREATE, owner, input=of(project, {"action": "CREATE", "path": "a", "content": "1"})) == ["UNAVAILABLE"]


@pytest.mark.parametrize(
    "path", [".git", "a/.Git/b", "git~1/x", ".g\u200cit/config", "a\0b", "x" * 256, "a/" * 200 + "b", "\ud800", "a/.."]
)
def test_names_that_systems_interpret_are_invalid(path: str) -> None:
    with pytest.raises(InvalidPath):
        check_path(path)
    check_path("a/.gitmodules.d/é b/..c")
