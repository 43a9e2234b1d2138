"""Directories and files of a project through the graph."""

from pathlib import Path
from typing import Any

import pytest

from graph.rules.git import last_changes
from storage import tables
from storage.git import trees
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import build_once, commit_files, git

TREE = """query ($path: String!, $ref: String, $at: String! = "", $recursive: Boolean! = false, $first: Int, $after: String, $last: Int,
  $before: String, $offset: Int) {
  project(path: $path) {
    tree(ref: $ref, path: $at, recursive: $recursive, first: $first, after: $after, last: $last, before: $before, offset: $offset) {
      totalCount pageInfo { hasNextPage hasPreviousPage startCursor endCursor } nodes { name path kind mode oid size } edges { cursor }
    } } }"""
BLOB = """query ($path: String!, $ref: String, $at: String!) {
  project(path: $path) { blob(ref: $ref, path: $at) { name path oid mode size isBinary text truncated } } }"""


def create_source(folder: Path) -> None:
    git(folder.parent, "init", "-q", "--bare", "-b", "master", str(folder))
    first = commit_files(folder, {"only": b"at first\n"})
    files: dict[str | bytes, bytes | tuple[int, bytes]] = {
        "README.md": b"# Read me\n",
        "a-file": b"-",
        "a/b/two.txt": b"two\n",
        "a/one.txt": b"one\n",
        "binary": b"\0\1",
        "link": (0o120000, b"a/one.txt"),
        "sub": (0o160000, b"5" * 40),
        b"wrong\xff": b"bytes",
    }
    git(folder, "update-ref", "refs/heads/master", commit_files(folder, files, first))
    git(folder, "update-ref", "refs/tags/v1", first)
    git(folder, "update-ref", "refs/heads/--output=x", first)


@pytest.fixture
def source(histories: Path, tmp_path: Path) -> Path:
    build_once(create_source, histories, tmp_path / "source.git")
    return tmp_path / "source.git"


async def listed(ask: Ask, project: tables.Project, viewer: tables.User, **variables: Any) -> dict[str, Any]:
    return dict((await ask.data(TREE, viewer, path=str(project.id), **variables))["project"]["tree"])


async def names(ask: Ask, project: tables.Project, viewer: tables.User, **variables: Any) -> list[str]:
    return [entry["path"] for entry in (await listed(ask, project, viewer, **variables))["nodes"]]


class TestTree:
    async def test_shows_each_kind_of_entry(self, ask: Ask, project: tables.Project, viewer: tables.User, source: Path) -> None:
        found = await listed(ask, project, viewer)
        assert [(entry["name"], entry["kind"], entry["mode"], entry["size"]) for entry in found["nodes"]] == [
            ("README.md", "BLOB", "100644", 10),
            ("a-file", "BLOB", "100644", 1),
            ("a", "TREE", "040000", None),
            ("binary", "BLOB", "100644", 2),
            ("link", "BLOB", "120000", 9),
            ("sub", "COMMIT", "160000", None),
            ("wrong\ufffd", "BLOB", "100644", 5),
        ]
        assert found["totalCount"] == 7
        assert found["nodes"][2]["oid"] == git(source, "rev-parse", "master:a")
        assert found["nodes"][5]["oid"] == "5" * 40

    async def test_of_a_directory_and_of_all_below(self, ask: Ask, project: tables.Project, viewer: tables.User) -> None:
        assert await names(ask, project, viewer, at="a") == ["a/b", "a/one.txt"]
        assert await names(ask, project, viewer, at="a", recursive=True) == ["a/b", "a/b/two.txt", "a/one.txt"]
        assert await names(ask, project, viewer, recursive=True, first=5) == ["README.md", "a-file", "a", "a/b", "a/b/two.txt"]

    async def test_has_the_newest_commit_of_each_entry(
        self,
        ask: Ask,
        make: DataFactory,
        viewer: tables.User,
        tmp_path: Path,
        statements: StatementRecorder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        source = tmp_path / "changed.git"
        git(tmp_path, "init", "-q", "--bare", "-b", "master", str(source))
        files: dict[str | bytes, bytes | tuple[int, bytes]] = {"a/b/deep": b"1", "a/one": b"1", "old": b"1", b"wrong\xff": b"1"}
        first = commit_files(source, files)
        second = commit_files(source, files | {"a/b/deep": b"2"}, first)
        third = commit_files(source, files | {"a/b/deep": b"2", "new": b"3"}, second)
        git(source, "update-ref", "refs/heads/master", third)
        git(source, "update-ref", "refs/tags/v1", second)
        project = await make.project(source=source, members=[(viewer, AccessLevel.REPORTER)])
        query = """query ($path: String!, $ref: String, $recursive: Boolean!) { project(path: $path) {
          tree(ref: $ref, recursive: $recursive) { nodes { path lastCommit { oid title author { username } } } }
          blob(ref: $ref, path: "old") { lastCommit { oid } } } }"""

        async def commits(**variables: Any) -> dict[str, str | None]:
            found = (await ask.data(query, viewer, path=str(project.id), **variables))["project"]
            assert found["blob"]["lastCommit"] == {"oid": first}
            return {entry["path"]: entry["lastCommit"] and entry["lastCommit"]["oid"] for entry in found["tree"]["nodes"]}

        newest = {"a": second, "new": third, "old": first, "wrong\ufffd": first}
        with statements.record() as flat:
            assert await commits(recursive=False) == newest
        with statements.assert_at_most(len(flat)):
            assert await commits(recursive=True) == newest | {"a/b": second, "a/b/deep": second, "a/one": first}
        assert await commits(recursive=False, ref="v1") == {path: oid for path, oid in newest.items() if path != "new"}
        monkeypatch.setattr(last_changes._LastChangeReader.__init__, "__defaults__", (0.0,))
        assert set((await commits(recursive=True)).values()) == {None}

    async def test_at_another_ref(self, ask: Ask, make: DataFactory, project: tables.Project, viewer: tables.User) -> None:
        for ref in ("v1", "--output=x", (await make.services.repositories.read(project.id, lambda each: each.resolve("v1")))):
            assert await names(ask, project, viewer, ref=ref) == ["only"]

    @pytest.mark.parametrize("recursive", [False, True])
    async def test_pages_join_on_both_ways(self, ask: Ask, project: tables.Project, viewer: tables.User, recursive: bool) -> None:
        whole = await names(ask, project, viewer, recursive=recursive)
        forward: list[str] = []
        after = None
        while True:
            page = await listed(ask, project, viewer, recursive=recursive, first=2, after=after)
            forward += [entry["path"] for entry in page["nodes"]]
            assert page["totalCount"] == len(whole)
            assert page["pageInfo"]["hasPreviousPage"] is (after is not None)
            after = page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
        assert forward == whole
        last = await listed(ask, project, viewer, recursive=recursive, last=2)
        assert [entry["path"] for entry in last["nodes"]] == whole[-2:]
        assert last["pageInfo"]["hasPreviousPage"] is True
        before = await listed(ask, project, viewer, recursive=recursive, last=2, before=last["pageInfo"]["startCursor"])
        assert [entry["path"] for entry in before["nodes"]] == whole[-4:-2]
        assert await names(ask, project, viewer, recursive=recursive, first=2, offset=1) == whole[1:3]

    @pytest.mark.parametrize(
        "at", ["nope", "README.md", "link", "sub", "/", "a/", "/a", "a//b", "../a", "a/../a", "a/" * 10_000, "HEAD:a", "-r"]
    )
    async def test_a_missing_directory_is_not_found(
        self, ask: Ask, project: tables.Project, viewer: tables.User, at: str
    ) -> None:  # fmt: skip
        assert await ask.codes(TREE, viewer, path=str(project.id), at=at) == ["NOT_FOUND"]

    @pytest.mark.parametrize("ref", ["nope", "@{-1}", "HEAD", "master~1", "master:a", "--all", ""])
    async def test_a_missing_commit_is_not_found(self, ask: Ask, project: tables.Project, viewer: tables.User, ref: str) -> None:
        assert await ask.codes(TREE, viewer, path=str(project.id), ref=ref) == ["NOT_FOUND"]
        assert await ask.codes(BLOB, viewer, path=str(project.id), ref=ref, at="README.md") == ["NOT_FOUND"]

    @pytest.mark.parametrize("cursor", ["", "!", "W10", "WyJ0cmVlIiwxXQ", "WyJyZWYiLCJhIl0", "WyJ0cmVlIiwi4oKsIl0"])
    async def test_rejects_foreign_cursors(self, ask: Ask, project: tables.Project, viewer: tables.User, cursor: str) -> None:
        assert await ask.codes(TREE, viewer, path=str(project.id), after=cursor) == ["BAD_REQUEST"]

    async def test_of_an_empty_repository_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        assert await ask.codes(TREE, owner, path=str(project.id)) == ["NOT_FOUND"]

    async def test_a_timeout_is_reported(
        self, ask: Ask, project: tables.Project, viewer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trees, "MAX_LISTING_SECONDS", -1.0)
        assert await ask.codes(TREE, viewer, path=str(project.id), recursive=True) == ["LIMIT_EXCEEDED"]

    async def test_a_missing_repository_is_unavailable(
        self, ask: Ask, make: DataFactory, project: tables.Project, viewer: tables.User
    ) -> None:
        make.services.repositories.remove(project.id)
        assert await ask.codes(TREE, viewer, path=str(project.id)) == ["UNAVAILABLE"]
        assert await ask.codes(BLOB, viewer, path=str(project.id), at="README.md") == ["UNAVAILABLE"]


class TestBlob:
    async def test_shows_the_file(self, ask: Ask, project: tables.Project, viewer: tables.User, source: Path) -> None:
        shown = (await ask.data(BLOB, viewer, path=str(project.id), at="a/b/two.txt"))["project"]["blob"]
        assert shown == {
            "name": "two.txt",
            "path": "a/b/two.txt",
            "oid": git(source, "rev-parse", "master:a/b/two.txt"),
            "mode": "100644",
            "size": 4,
            "isBinary": False,
            "text": "two\n",
            "truncated": False,
        }

    @pytest.mark.parametrize(
        ("at", "mode", "binary", "text"),
        [("link", "120000", False, "a/one.txt"), ("binary", "100644", True, None), ("wrong\ufffd", "100644", False, "bytes")],
    )
    async def test_of_other_kinds(
        self, ask: Ask, project: tables.Project, viewer: tables.User, at: str, mode: str, binary: bool, text: str | None
    ) -> None:
        shown = (await ask.data(BLOB, viewer, path=str(project.id), at=at))["project"]["blob"]
        assert (shown["mode"], shown["isBinary"], shown["text"]) == (mode, binary, text)

    @pytest.mark.parametrize("at", ["", "a", "sub", "nope", "/README.md", "README.md/", "../README.md", "a/" * 10_000 + "x"])
    async def test_a_missing_file_is_not_found(self, ask: Ask, project: tables.Project, viewer: tables.User, at: str) -> None:
        assert await ask.codes(BLOB, viewer, path=str(project.id), at=at) == ["NOT_FOUND"]

    async def test_blob_bytes_of_one_operation_are_limited(self, ask: Ask, make: DataFactory, source: Path) -> None:
        files: dict[str | bytes, bytes | tuple[int, bytes]] = {f"f{number}": b"x" * 1024 * 1024 for number in range(7)}
        git(source, "update-ref", "refs/heads/large", commit_files(source, files))
        project = await make.project(source=source, owner=(owner := await make.user()))
        fields = " ".join(f'{name}: blob(ref: "large", path: "{name}") {{ size }}' for name in map(str, files))
        outcome = await ask(f"query ($path: String!) {{ project(path: $path) {{ {fields} }} }}", owner, path=str(project.id))
        assert [str(problem.code) for problem in outcome.errors] == ["LIMIT_EXCEEDED"] * 2


class TestRights:
    async def test_follow_those_of_reading_code(self, ask: Ask, make: DataFactory, source: Path) -> None:
        guest, outsider, admin = await make.user(), await make.user(), await make.admin()
        private = await make.project(source=source, members=[(guest, AccessLevel.GUEST)])
        public = await make.project(source=source, visibility=Visibility.PUBLIC)
        for query in (TREE, BLOB):
            at = {"at": "README.md"} if query is BLOB else {}
            assert await ask.codes(query, guest, path=str(private.id), **at) == ["FORBIDDEN"]
            assert await ask.codes(query, outsider, path=str(private.id), **at) == ["NOT_FOUND"]
            for viewer, project in ((outsider, public), (admin, private)):
                assert (await ask(query, viewer, path=str(project.id), **at)).errors == []

    async def test_cost_no_statement_of_their_own(
        self, ask: Ask, project: tables.Project, viewer: tables.User, statements: StatementRecorder
    ) -> None:
        with statements.record() as plain:
            await ask.data("query ($path: String!) { project(path: $path) { viewerCan { readCode } } }", viewer, path=str(project.id))
        # One reads the columns of the project that the policy does not, one resolves the name of the branch.
        with statements.assert_at_most(len(plain) + 2):
            await listed(ask, project, viewer, recursive=True)
        with statements.assert_at_most(len(plain) + 2):
            await ask.data(BLOB, viewer, path=str(project.id), at="README.md")
