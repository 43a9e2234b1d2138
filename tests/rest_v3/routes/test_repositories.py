"""Directories, blobs, comparisons and contributors in v3."""

from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.git.git_history import commit_files, git

LARGE = bytes(range(256)) * 8192


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "source.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "master", str(path))
    files = {"b.txt": b"1\n", "docs/a.md": "größe\n".encode(), "docs/more/c": b"\0\xff", "a<script>.html": b"<script>", "large": LARGE}
    first = commit_files(path, files)
    second = commit_files(path, {"b.txt": b"2\n", **{name: files[name] for name in files if name != "b.txt"}}, first)
    third = commit_files(path, {"b.txt": b"3\n", "new": b"x\n"}, second)
    git(path, "update-ref", "refs/heads/master", second)
    git(path, "update-ref", "refs/heads/fix/new", third)
    git(path, "update-ref", "refs/tags/v1", first)
    return path


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User, bare: Path) -> tables.Project:
    return await make.project(owner=owner, source=bare)


def path_of(project: tables.Project, rest: str) -> str:
    return f"/projects/{project.id}/repository{rest}"


class TestTree:
    """GET /projects/:id/repository/tree"""

    async def test_lists_directories_first(
        self, any_api: Api, make: DataFactory, owner: tables.User, project: tables.Project, bare: Path
    ) -> None:
        root = (await any_api.get(path_of(project, "/tree"), owner)).json()
        assert [(entry["name"], entry["type"], entry["mode"]) for entry in root] == [
            ("docs", "tree", "040000"),
            *((name, "blob", "100644") for name in ("a<script>.html", "b.txt", "large")),
        ]
        assert root[0]["id"] == git(bare, "rev-parse", "master:docs")
        inner = await any_api.get(path_of(project, "/tree"), owner, path="docs", ref_name="v1", per_page="1")
        assert [entry["name"] for entry in inner.json()] == ["more", "a.md"]
        assert "link" not in inner.headers
        for path, listing in (("docs/", inner.json()), ("docs//", inner.json()), ("/", root)):
            listed = await any_api.get(path_of(project, "/tree"), owner, path=path, ref_name="v1" if listing != root else "")
            assert (path, listed.json()) == (path, listing)
        unknown_paths = [{"path": path} for path in ("unknown", "b.txt", "b.txt/", "../docs")]
        for parameters in (*unknown_paths, {"ref_name": "unknown"}, {"ref_name": "v1~0"}):
            response = await any_api.get(path_of(project, "/tree"), owner, **parameters)
            assert (parameters, response.status_code, response.json()) == (parameters, 404, {"message": "404 Tree Not Found"})
        empty = await any_api.get(path_of(await make.project(owner=owner), "/tree"), owner)
        assert (empty.status_code, empty.json()) == (404, {"message": "404 Tree Not Found"})


class TestBlobs:
    """GET /projects/:id/repository/blobs/:sha, /commits/:sha/blob and /raw_blobs/:sha"""

    async def test_contents_are_sent_as_text_that_no_browser_runs(
        self, any_api: Api, owner: tables.User, project: tables.Project, bare: Path
    ) -> None:
        for rest in ("/blobs/{}", "/commits/{}/blob"):
            for ref in ("fix%2Fnew", "master", "v1", git(bare, "rev-parse", "master")):
                for name, content in (("docs/a.md", "größe\n".encode()), ("docs/more/c", b"\0\xff"), ("large", LARGE)):
                    if ref == "fix%2Fnew":
                        name, content = "new", b"x\n"
                    response = await any_api.get(path_of(project, rest.format(ref)), owner, filepath=name)
                    assert (response.status_code, response.content) == (200, content)
                    assert response.headers["content-type"] == "text/plain; charset=utf-8"
                    assert response.headers["x-content-type-options"] == "nosniff"
                    assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
            for ref, name, status, message in (
                ("unknown", "b.txt", 404, "404 Commit Not Found"),
                ("master", "unknown", 404, "404 File Not Found"),
                ("master", "docs", 404, "404 File Not Found"),
                ("master", "docs/../b.txt", 404, "404 File Not Found"),
                ("master", "", 400, '400 (Bad request) "filepath" not given'),
                ("unknown", "", 404, "404 Commit Not Found"),
            ):
                response = await any_api.get(path_of(project, rest.format(ref)), owner, filepath=name)
                assert (response.status_code, response.json()) == (status, {"message": message})

    async def test_a_blob_is_found_by_its_id(self, any_api: Api, owner: tables.User, project: tables.Project, bare: Path) -> None:
        for name, content in (("large", LARGE), ("docs/more/c", b"\0\xff")):
            path = path_of(project, f"/raw_blobs/{git(bare, 'rev-parse', f'master:{name}')}")
            assert (await any_api.get(path, owner)).content == content
            part = await any_api.request("GET", path, owner, headers={"Range": "bytes=1-"})
            assert (part.status_code, part.content) == (206, content[1:])
            middle = await any_api.request("GET", path, owner, headers={"Range": f"bytes={len(content) - 2}-{len(content) - 2}"})
            assert middle.content == content[-2:-1]
        for oid in (git(bare, "rev-parse", "master"), git(bare, "rev-parse", "master:docs"), "0" * 40, "master", "abcdef"):
            response = await any_api.get(path_of(project, f"/raw_blobs/{oid}"), owner)
            assert (response.status_code, response.json()) == (404, {"message": "404 Blob Not Found"})


class TestCompare:
    """GET /projects/:id/repository/compare"""

    async def test_shows_commits_and_changes(self, any_api: Api, owner: tables.User, project: tables.Project, bare: Path) -> None:
        parameters: dict[str, Any] = {"from": "v1", "to": "fix/new"}
        found = (await any_api.get(path_of(project, "/compare"), owner, **parameters)).json()
        assert [commit["id"] for commit in found["commits"]] == git(bare, "rev-list", "--reverse", "v1..fix/new").split()
        assert found["commit"] == found["commits"][-1]
        assert {entry["new_path"] for entry in found["diffs"]} == set(git(bare, "diff", "--name-only", "v1", "fix/new").splitlines())
        assert (found["compare_timeout"], found["compare_same_ref"]) == (False, False)

        same = (await any_api.get(path_of(project, "/compare"), owner, **{"from": "master", "to": "master"})).json()
        assert same == {"commit": None, "commits": [], "diffs": [], "compare_timeout": False, "compare_same_ref": True}
        for parameters, status, message in (
            ({"from": "unknown", "to": "master"}, 404, "404 Commit Not Found"),
            ({"from": "master", "to": "master~1"}, 404, "404 Commit Not Found"),
            ({"to": "master"}, 400, '400 (Bad request) "from" not given'),
            ({"from": "master"}, 400, '400 (Bad request) "to" not given'),
        ):
            response = await any_api.get(path_of(project, "/compare"), owner, **parameters)
            assert (response.status_code, response.json()) == (status, {"message": message})


class TestContributors:
    """GET /projects/:id/repository/contributors"""

    async def test_counts_the_commits_of_the_default_branch(
        self, any_api: Api, make: DataFactory, services: Services, owner: tables.User
    ) -> None:
        project = await make.project(owner=owner, history={"commits": 40, "authors": 3})
        lines = git(services.repositories.path_of(project.id), "log", "--no-merges", "--format=%ae", "master").splitlines()

        found = (await any_api.get(path_of(project, "/contributors"), owner)).json()

        assert {each["email"]: each["commits"] for each in found} == {email: lines.count(email) for email in lines}
        assert [each["commits"] for each in found] == sorted((each["commits"] for each in found), reverse=True)
        assert all((each["additions"], each["deletions"]) == (0, 0) for each in found)
        assert (await any_api.get(path_of(await make.project(owner=owner), "/contributors"), owner)).json() == []
