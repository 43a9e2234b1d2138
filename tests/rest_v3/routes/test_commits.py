"""The section Commits of the interface document, except commit statuses."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_files, git, write_commit

COMMITTER = b"committer C <c@example.org> 1450972274 +0100"
NO_PROJECT = {"message": "404 Project Not Found"}
NO_COMMIT = {"message": "404 Commit Not Found"}
FORBIDDEN = {"message": "403 Forbidden"}
UNAUTHORIZED = {"message": "401 Unauthorized"}
NOT_GIVEN = {"message": '400 (Bad request) "note" not given'}
HOSTILE = ["gone", "HEAD", "HEAD~1", "@%7B-1%7D", ":%2FChange", "--output=x", "master%5E", "..%2F..%2Fetc", "f" * 40, "%00", "a%00b", "%FF"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "source.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "master", str(path)], check=True)
    return path


@pytest.fixture
def changed(bare: Path) -> str:
    """The head of `master` and of `feature/x.y`: line 2 of a.txt was replaced."""
    base = commit_files(bare, {"a.txt": b"1\n2\n3\n"})
    oid = commit_files(bare, {"a.txt": b"1\ntwo\n3\n"}, base)
    for name in ("master", "feature/x.y"):
        git(bare, "update-ref", f"refs/heads/{name}", oid)
    return oid


def tree_of(bare: Path) -> bytes:
    """The empty tree, stored."""
    return git(bare, "hash-object", "-t", "tree", "-w", "--stdin").encode()


def path_of(project: tables.Project, rest: str = "") -> str:
    return f"/projects/{project.id}/repository/commits{rest}"


async def check_rejections(api: Api, make: DataFactory, bare: Path, method: str, rest: str, body: dict[str, Any] | None = None) -> None:
    """Who may not: nobody, a stranger, a guest of a private project; and everybody who may."""
    guest, reporter, stranger, blocked = (
        await make.user(),
        await make.user(),
        await make.user(),
        await make.user(state=tables.UserState.BLOCKED),
    )
    private = await make.project(members=[(guest, AccessLevel.GUEST), (reporter, AccessLevel.REPORTER)], source=bare)
    internal = await make.project(visibility=Visibility.INTERNAL, source=bare)

    async def answer(viewer: tables.User | None, project: tables.Project) -> tuple[int, Any]:
        response = await api.request(method, path_of(project, rest), viewer, json=body)
        return response.status_code, response.json()

    assert await answer(None, private) == await answer(blocked, internal) == (401, UNAUTHORIZED)
    assert await answer(stranger, private) == (404, NO_PROJECT)
    assert await answer(guest, private) == (403, FORBIDDEN)
    success = 201 if method == "POST" else 200
    for viewer, project in ((reporter, private), (await make.admin(), private), (stranger, internal)):
        assert (await answer(viewer, project))[0] == success
    private.id += 1000
    assert await answer(reporter, private) == (404, NO_PROJECT)


class TestListCommits:
    """GET /projects/:id/repository/commits"""

    async def test_shows_each_commit_in_the_documents_form(self, api: Api, make: DataFactory, bare: Path) -> None:
        owner = await make.user()
        oid = write_commit(
            bare,
            b"tree %s\nauthor A U Thor <author@example.org> 1450972000 +0000\n%s\n\nFix it\n\nBy hand.\n" % (tree_of(bare), COMMITTER),
        )
        git(bare, "update-ref", "refs/heads/master", oid)
        project = await make.project(owner=owner, source=bare)

        response = await api.get(path_of(project), owner)

        assert response.status_code == 200
        assert response.json() == [
            {
                "id": oid,
                "short_id": oid[:8],
                "title": "Fix it",
                "author_name": "A U Thor",
                "author_email": "author@example.org",
                "created_at": "2015-12-24T16:51:14.000+01:00",
                "message": "Fix it\n\nBy hand.\n",
                "allow_failure": False,
            }
        ]

    async def test_shows_allowed_failures(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)
        await make.commit_status(project, changed, status=CheckStatus.FAILED, allow_failure=True)

        commits = (await api.get(path_of(project), owner)).json()

        assert [commit["allow_failure"] for commit in commits] == [True, False]

    async def test_of_a_branch_or_tag_or_else_of_the_default_branch(self, api: Api, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 15})
        path = services.repositories.path_of(project.id)

        for ref in ("master", "topic", "v1"):
            commits = (await api.get(path_of(project), owner, ref_name=ref, per_page="100")).json()
            assert [commit["id"] for commit in commits] == git(path, "log", "--format=%H", ref).split()
        default = (await api.get(path_of(project), owner)).json()
        assert default == (await api.get(path_of(project), owner, ref_name="master")).json()
        assert default == (await api.get(path_of(project), owner, ref_name=" ")).json()

    @pytest.mark.parametrize("ref", ["gone", "HEAD~1", "@{-1}", ":/Change", "--output=x", "x" * 3000])
    async def test_is_empty_for_an_unknown_ref(self, api: Api, make: DataFactory, ref: str) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 5})

        response = await api.get(path_of(project), owner, ref_name=ref)

        assert (response.status_code, response.json()) == (200, [])

    async def test_pages_without_totals(self, api: Api, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 12})
        every = git(services.repositories.path_of(project.id), "log", "--format=%H", "master").split()

        first = await api.get(path_of(project), owner, per_page="4", ref_name="master")
        last = await api.get(path_of(project), owner, per_page="4", page="3")
        beyond = await api.get(path_of(project), owner, per_page="100", page="30000000")

        assert [commit["id"] for response in (first, last) for commit in response.json()] == every[:4] + every[8:]
        url = f"{EXTERNAL_URL}/api/v3{path_of(project)}?page={{}}&per_page=4&ref_name=master"
        assert first.headers["link"] == f'<{url.format(2)}>; rel="next", <{url.format(1)}>; rel="first"'
        assert (first.headers["x-page"], first.headers["x-per-page"], first.headers["x-next-page"]) == ("1", "4", "2")
        assert (last.headers["x-prev-page"], last.headers["x-next-page"]) == ("2", "")
        assert not {"x-total", "x-total-pages"} & set(first.headers)
        assert (beyond.status_code, beyond.json()) == (200, [])

    async def test_is_empty_for_an_empty_repository(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert (await api.get(path_of(project), owner)).json() == []

    async def test_an_unreadable_repository_is_unavailable(self, api: Api, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 5})
        services.repositories.remove(project.id)

        for rest in ("", "/master", "/master/diff", "/master/comments"):
            response = await api.get(path_of(project, rest), owner)
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) in range(1, 6)

    async def test_requires_permission_to_read_code(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        await check_rejections(api, make, bare, "GET", "")
        await check_rejections(api, make, bare, "GET", "?ref_name=gone")

    async def test_statement_count_does_not_grow_with_rows(self, api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 40})

        # The refs of the project are cached from then on.
        await api.get(path_of(project), owner, per_page="1")
        with statements.record() as one:
            await api.get(path_of(project), owner, per_page="1")
        with statements.record() as thirty:
            assert len((await api.get(path_of(project), owner, per_page="30")).json()) == 30

        assert len(thirty) == len(one) <= 5


class TestGetCommit:
    """GET /projects/:id/repository/commits/:sha"""

    async def test_shows_it_in_the_documents_form(self, api: Api, make: DataFactory, bare: Path) -> None:
        tree = tree_of(bare)
        parent = write_commit(bare, b"tree %s\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nRoot\n" % tree)
        oid = write_commit(
            bare,
            b"tree %s\nparent %s\nauthor A U Thor <author@example.org> 1450972000 -0730\n%s\n\n%s\n"
            % (tree, parent.encode(), COMMITTER, b"x" * 120),
        )
        git(bare, "update-ref", "refs/heads/master", oid)
        project = await make.project(owner=(owner := await make.user()), source=bare)
        await make.commit_status(project, oid, status=CheckStatus.RUNNING)

        response = await api.get(path_of(project, f"/{oid}"), owner)

        assert response.status_code == 200
        assert response.json() == {
            "id": oid,
            "short_id": oid[:8],
            "title": "x" * 80 + "…",
            "author_name": "A U Thor",
            "author_email": "author@example.org",
            "created_at": "2015-12-24T16:51:14.000+01:00",
            "message": "x" * 120 + "\n",
            "committed_date": "2015-12-24T16:51:14.000+01:00",
            "authored_date": "2015-12-24T08:16:40.000-07:30",
            "parent_ids": [parent],
            "status": "running",
        }
        root = (await api.get(path_of(project, f"/{parent}"), owner)).json()
        assert (root["parent_ids"], root["status"], root["created_at"]) == ([], "not_found", "1970-01-01T00:00:01.000Z")

    async def test_by_id_short_id_branch_or_tag(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        git(bare, "tag", "-a", "v1.0", changed, "-m", "Release")
        project = await make.project(owner=(owner := await make.user()), source=bare)

        for name in (changed, changed[:8], "master", "feature%2Fx.y", "v1.0"):
            assert (await api.get(path_of(project, f"/{name}"), owner)).json()["id"] == changed

    @pytest.mark.parametrize("rest", ["", "/diff", "/comments"])
    async def test_anything_else_is_not_found(self, api: Api, make: DataFactory, bare: Path, changed: str, rest: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        for name in HOSTILE:
            response = await api.get(path_of(project, f"/{name}{rest}"), owner)
            assert (response.status_code, response.json()) == (404, NO_COMMIT), name

    async def test_requires_permission_to_read_code(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        await check_rejections(api, make, bare, "GET", "/master")

    async def test_a_guest_cannot_tell_whether_a_commit_exists(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(members=[(guest := await make.user(), AccessLevel.GUEST)], source=bare)

        for rest in ("/gone", "/%00", "/gone/diff", "/gone/comments"):
            assert (await api.get(path_of(project, rest), guest)).status_code == 403


class TestGetDiff:
    """GET /projects/:id/repository/commits/:sha/diff"""

    async def test_shows_every_file_in_the_documents_form(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        response = await api.get(path_of(project, "/feature%2Fx.y/diff"), owner)

        assert response.status_code == 200
        assert response.json() == [
            {
                "diff": "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n",
                "new_path": "a.txt",
                "old_path": "a.txt",
                "a_mode": "100644",
                "b_mode": "100644",
                "new_file": False,
                "renamed_file": False,
                "deleted_file": False,
            }
        ]

    async def test_is_whole(self, api: Api, make: DataFactory, bare: Path) -> None:
        oid = commit_files(bare, {f"{number:03}.txt": b"%d\n" % number for number in range(120)})
        git(bare, "update-ref", "refs/heads/master", oid)
        project = await make.project(owner=(owner := await make.user()), source=bare)

        response = await api.get(path_of(project, "/master/diff"), owner, per_page="10")

        assert len(response.json()) == 120
        assert "link" not in response.headers

    async def test_requires_permission_to_read_code(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        await check_rejections(api, make, bare, "GET", "/master/diff")


class TestListComments:
    """GET /projects/:id/repository/commits/:sha/comments"""

    async def test_shows_them_oldest_first_and_only_this_projects(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        owner, other = await make.user(), await make.user()
        project, fork = await make.project(owner=owner, source=bare), await make.project(owner=owner, source=bare)
        moment = datetime(2016, 1, 1, tzinfo=UTC)
        await make.commit_comment(project, changed, author=owner, note="second", created_at=moment + timedelta(days=1))
        await make.commit_comment(project, changed, author=other, note="first", created_at=moment)
        await make.commit_comment(fork, changed, author=other, note="elsewhere")

        response = await api.get(path_of(project, "/master/comments"), owner)

        assert response.status_code == 200
        assert [comment["note"] for comment in response.json()] == ["first", "second"]
        assert response.json()[0]["author"] == {
            "id": other.id,
            "username": other.username,
            "email": other.email,
            "name": other.name,
            "state": "active",
            "created_at": other.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }

    async def test_pages_with_totals(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)
        for number in range(5):
            await make.commit_comment(project, changed, author=owner, note=str(number))

        response = await api.get(path_of(project, f"/{changed}/comments"), owner, page="2", per_page="2")

        assert [comment["note"] for comment in response.json()] == ["2", "3"]
        assert (response.headers["x-total"], response.headers["x-total-pages"]) == ("5", "3")

    async def test_statement_count_does_not_grow_with_rows(
        self, api: Api, make: DataFactory, bare: Path, changed: str, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)
        for _ in range(30):
            await make.commit_comment(project, changed, author=await make.user())

        with statements.record() as one:
            await api.get(path_of(project, "/master/comments"), owner, per_page="1")
        with statements.record() as thirty:
            assert len((await api.get(path_of(project, "/master/comments"), owner, per_page="30")).json()) == 30

        assert len(thirty) <= len(one) <= 7

    async def test_requires_permission_to_read_code(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        await check_rejections(api, make, bare, "GET", "/master/comments")


class TestCreateComment:
    """POST /projects/:id/repository/commits/:sha/comments"""

    async def test_stands_at_a_line_and_is_listed(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        response = await api.post(path_of(project, f"/{changed}/comments"), owner, note="Two!", path="a.txt", line=2, line_type="new")

        assert response.status_code == 201
        body = response.json()
        assert body.pop("created_at").endswith("Z")
        assert body.pop("author")["username"] == owner.username
        assert body == {"note": "Two!", "path": "a.txt", "line": 2, "line_type": "new"}
        assert [comment["note"] for comment in (await api.get(path_of(project, "/master/comments"), owner)).json()] == ["Two!"]

    @pytest.mark.parametrize(
        ("position", "stands"),
        [
            ({"path": "a.txt", "line": "2", "line_type": "old"}, ("a.txt", 2, "old")),
            ({"path": "a.txt", "line": 2}, ("a.txt", 2, "new")),
            ({}, (None, None, None)),
            ({"path": "a.txt", "line": 1, "line_type": "new"}, (None, None, None)),
            ({"path": "b.txt", "line": 2, "line_type": "new"}, (None, None, None)),
            ({"path": "a.txt", "line": 4_000_000_000, "line_type": "new"}, (None, None, None)),
            ({"path": "a.txt", "line": "9" * 5_000, "line_type": "new"}, (None, None, None)),
            ({"path": "a.txt", "line": "second", "line_type": "new"}, (None, None, None)),
            ({"path": None, "line": None, "line_type": None}, (None, None, None)),
        ],
    )
    async def test_places_it(
        self, api: Api, make: DataFactory, bare: Path, changed: str, position: dict[str, Any], stands: tuple[Any, ...]
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        response = await api.post(path_of(project, f"/{changed}/comments"), owner, note="Two!", **position)

        assert response.status_code == 201
        assert (response.json()["path"], response.json()["line"], response.json()["line_type"]) == stands

    @pytest.mark.parametrize("name", ["master", "feature%2Fx.y"])
    async def test_under_the_last_commit_of_a_branch(self, api: Api, make: DataFactory, bare: Path, changed: str, name: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        response = await api.post(path_of(project, f"/{name}/comments"), owner, note="Two!", path="a.txt", line=2, line_type="new")

        assert response.status_code == 201
        assert (response.json()["path"], response.json()["line"], response.json()["line_type"]) == (None, None, None)
        assert len((await api.get(path_of(project, f"/{changed}/comments"), owner)).json()) == 1

    async def test_accepts_a_form(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        response = await api.request("POST", path_of(project, "/master/comments"), owner, data={"note": "Nice & fine é"})

        assert (response.status_code, response.json()["note"]) == (201, "Nice & fine é")

    async def test_requires_a_note_after_everything_else_was_right(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        owner, guest, stranger = await make.user(), await make.user(), await make.user()
        project = await make.project(owner=owner, members=[(guest, AccessLevel.GUEST)], source=bare)

        for body in ({}, {"note": ""}, {"note": " \n"}, {"note": None}):
            assert (await api.post(path_of(project, "/master/comments"), owner, **body)).json() == NOT_GIVEN
        for viewer, name, status, message in (
            (None, "master", 401, UNAUTHORIZED),
            (stranger, "master", 404, NO_PROJECT),
            (guest, "gone", 403, FORBIDDEN),
            (owner, "gone", 404, NO_COMMIT),
            (owner, "%00", 404, NO_COMMIT),
        ):
            response = await api.post(path_of(project, f"/{name}/comments"), viewer)
            assert (response.status_code, response.json()) == (status, message)
        assert await make.count(tables.CommitComment) == 0

    async def test_rejects_invalid_values(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        for wrong in ({"line_type": "both"}, {"path": "a\0b"}, {"path": {}}, {"note": "a\0b"}, {"note": "x" * 1_000_001}):
            response = await api.post(path_of(project, "/master/comments"), owner, **{"note": "Nice", **wrong})
            assert (response.status_code, list(response.json()["message"])) == (400, list(wrong)), list(wrong)
        assert await make.count(tables.CommitComment) == 0

    async def test_on_no_revision_expression(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        project = await make.project(owner=(owner := await make.user()), source=bare)

        for name in HOSTILE:
            response = await api.post(path_of(project, f"/{name}/comments"), owner, note="Nice")
            assert (response.status_code, response.json()) == (404, NO_COMMIT), name

    async def test_requires_permission_to_read_code(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        await check_rejections(api, make, bare, "POST", "/master/comments", {"note": "Nice"})

    async def test_ignores_read_only_parameters(self, api: Api, make: DataFactory, bare: Path, changed: str) -> None:
        owner, other = await make.user(), await make.user()
        project, elsewhere = await make.project(owner=owner, source=bare), await make.project(owner=other, source=bare)

        response = await api.request(
            "POST",
            path_of(project, "/master/comments"),
            owner,
            json={"note": "Nice", "author_id": other.id, "project_id": elsewhere.id, "created_at": "2000-01-01"},
            headers={"PRIVATE-TOKEN": token_of(owner)},
        )

        assert response.json()["author"]["id"] == owner.id
        assert not response.json()["created_at"].startswith("2000")
        assert (await api.get(path_of(elsewhere, "/master/comments"), other)).json() == []
