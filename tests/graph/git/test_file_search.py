"""Searches in the files of a project, the blame of a file, and the distance of branches from the default branch."""

from pathlib import Path
from typing import Any

import pytest

from graph.rules.branches import branch_distances
from graph.rules.git import file_search
from storage import tables
from storage.git.history import blame
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import build_once, commit_files, git

SEARCH = """query ($path: String!, $ref: String, $search: String!) { project(path: $path) {
  searchText(ref: $ref, search: $search) { commitOid truncated matches { path line text } }
  searchPaths(ref: $ref, search: $search) { truncated matches { path } } } }"""
BLAME = """query ($path: String!, $at: String!, $ref: String) { project(path: $path) { blob(path: $at, ref: $ref) {
  blame { startLine lineCount path oid previousOid previousPath commit { title } } } } }"""
DISTANCES = "query ($path: String!) { project(path: $path) { branches { nodes { name aheadBy behindBy } } } }"
ODD = 'src/"odd\tname".txt'
TWO_LINES = "src/of two\nlines.txt"


KEPT = b"the first line stays\nthe second one stays\n"


def create_source(folder: Path) -> None:
    git(folder.parent, "init", "-q", "--bare", "-b", "master", str(folder))
    others: dict[str | bytes, bytes | tuple[int, bytes]] = {"docs/Needle.md": b"x\n", "bin": b"\0needle"}
    first = commit_files(folder, {"src/old.py": KEPT + b"3\n", ODD: b"a\n", **others})
    second = commit_files(folder, {"src/new.py": KEPT + b"TWO needle\n", ODD: b"a\nb\n", **others}, first)
    files = {"src/new.py": KEPT + b"TWO needle\nfour NEEDLE.*\r\n", ODD: b"a\nb\n", **others}
    git(folder, "update-ref", "refs/heads/master", commit_files(folder, files, second))
    git(folder, "update-ref", "refs/heads/topic", commit_files(folder, {"only": b"-"}, first))
    git(folder, "update-ref", "refs/heads/same", second)
    git(folder, "update-ref", "refs/tags/lines", commit_files(folder, {TWO_LINES: b"\na needle\nneedles\n", "z": b"needle"}))


@pytest.fixture
def source(histories: Path, tmp_path: Path) -> Path:
    build_once(create_source, histories, tmp_path / "source.git")
    return tmp_path / "source.git"


class TestSearches:
    async def test_find_lines_and_paths(
        self, ask: Ask, project: tables.Project, viewer: tables.User, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def found(search: str, **variables: Any) -> dict[str, Any]:
            return dict((await ask.data(SEARCH, viewer, path=str(project.id), search=search, **variables))["project"])

        needle = await found("needle")
        assert needle["searchText"]["matches"] == [
            {"path": "src/new.py", "line": 3, "text": "TWO needle"},
            {"path": "src/new.py", "line": 4, "text": "four NEEDLE.*"},
        ]
        assert needle["searchPaths"] == {"truncated": False, "matches": [{"path": "docs/Needle.md"}]}
        assert [each["line"] for each in (await found("LE.*"))["searchText"]["matches"]] == [4]
        assert (await found("py src"))["searchPaths"]["matches"] == [{"path": "src/new.py"}]
        assert (await found("--help"))["searchText"]["matches"] == []
        topic = await found("needle", ref="topic")
        assert (topic["searchText"]["matches"], topic["searchPaths"]["matches"]) == ([], [])
        lines = await found("needle", ref="lines")
        assert [(each["path"], each["line"], each["text"]) for each in lines["searchText"]["matches"]] == [
            (TWO_LINES, 2, "a needle"),
            (TWO_LINES, 3, "needles"),
            ("z", 1, "needle"),
        ]
        assert (await found("lines", ref="lines"))["searchPaths"]["matches"] == [{"path": TWO_LINES}]
        monkeypatch.setattr(file_search, "MAX_FOUND", 1)
        cut = await found("e")
        assert [(cut[field]["truncated"], len(cut[field]["matches"])) for field in ("searchText", "searchPaths")] == [(True, 1)] * 2

        for search in ("", "  ", "a\nb", "\0", "x" * 201):
            assert set(await ask.codes(SEARCH, viewer, path=str(project.id), search=search)) == {"BAD_REQUEST"}
        assert set(await ask.codes(SEARCH, viewer, path=str(project.id), search="x", ref="none")) == {"NOT_FOUND"}
        outsider = await make.user()
        assert (await ask(SEARCH, outsider, path=str(project.id), search="x")).data == {"project": None}


class TestBlame:
    async def test_names_the_commits_of_lines(
        self, ask: Ask, project: tables.Project, viewer: tables.User, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def blamed(at: str, **variables: Any) -> list[dict[str, Any]]:
            return list((await ask.data(BLAME, viewer, path=str(project.id), at=at, **variables))["project"]["blob"]["blame"])

        first, second, third = (git(source, "rev-parse", f"master~{number}") for number in (2, 1, 0))
        ranges = await blamed("src/new.py")
        assert [(each["startLine"], each["lineCount"], each["oid"], each["path"], each["previousPath"]) for each in ranges] == [
            (1, 2, first, "src/old.py", None),
            (3, 1, second, "src/new.py", "src/old.py"),
            (4, 1, third, "src/new.py", "src/new.py"),
        ]
        assert [each["previousOid"] for each in ranges] == [None, first, second]
        assert all(each["commit"] for each in ranges)
        odd = await blamed(ODD)
        assert [(each["path"], each["oid"], each["previousOid"], each["previousPath"]) for each in odd] == [
            (ODD, first, None, None),
            (ODD, second, first, ODD),
        ]
        assert await blamed("bin") == []
        monkeypatch.setattr(blame, "MAX_RANGES", 1)
        assert await ask.codes(BLAME, viewer, path=str(project.id), at=ODD) == ["LIMIT_EXCEEDED"]


class TestDistances:
    async def test_count_from_the_default_branch(
        self, ask: Ask, project: tables.Project, viewer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def counted() -> list[tuple[Any, ...]]:
            data = await ask.data(DISTANCES, viewer, path=str(project.id))
            return [tuple(each.values()) for each in data["project"]["branches"]["nodes"]]

        assert await counted() == [("master", 0, 0), ("same", 0, 1), ("topic", 1, 2)]
        monkeypatch.setattr(branch_distances, "MAX_OPERATION_SECONDS", 0.0)
        assert await counted() == [("master", None, None), ("same", None, None), ("topic", None, None)]
