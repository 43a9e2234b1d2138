"""Commits through the graph."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from graph.errors import Code
from graph.fields.entities import global_id
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import ChecksState
from storage import tables
from storage.git.history import log
from storage.git.repository import Repository
from storage.git.subprocesses import git_command
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_files, git, make_history, write_commit

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
PERSON = "A U Thor <author@example.org>"
COMMIT = """query ($path: String!, $rev: String!) { project(path: $path) { commit(rev: $rev) { oid shortOid title message restPath
    authorName authorEmail authoredAt committerName committerEmail committedAt parentOids author { username } project { path }
    status allowFailure commentCount viewerCan { comment } } } }"""
DIFF = """query ($path: String!, $rev: String!) { project(path: $path) { commit(rev: $rev) { diff {
    diff oldPath newPath aMode bMode newFile renamedFile deletedFile additions deletions tooLarge } } } }"""
LIST = """query ($path: String!, $ref: String, $first: Int, $after: String, $offset: Int) { project(path: $path) {
    commits(ref: $ref, first: $first, after: $after, offset: $offset) { totalCount
      nodes { oid title status allowFailure commentCount author { username } comments(first: 2) { nodes { note author { username } } } }
      edges { cursor } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }"""
NODE = "query ($id: ID!) { node(id: $id) { id ... on Commit { oid title } } }"
HOSTILE = [
    "",
    "HEAD",
    "HEAD~1",
    "master~1",
    "master^",
    "master^{tree}",
    "@",
    "@{-1}",
    "master@{1}",
    ":/Change",
    ":file",
    "..",
    "master..topic",
    "--output=x",
    "-n1",
    "refs/heads/master",
    "../../etc/passwd",
    "x" * 5000,
    "\uff28\uff25\uff21\uff24",
]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An empty bare repository to fill."""
    path = tmp_path / "source.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "master", str(path)], check=True)
    return path


def raw_commit(
    bare: Path, message: str = "A change\n", *, author: str = PERSON, when: str = "1700000000 +0000", parents: tuple[str, ...] = ()
) -> str:
    git(bare, "hash-object", "-t", "tree", "-w", "--stdin")
    links = "".join(f"parent {parent}\n" for parent in parents)
    return write_commit(bare, f"tree {EMPTY_TREE}\n{links}author {author} {when}\ncommitter C <c@example.org> {when}\n\n{message}".encode())


def point_branch(bare: Path, name: str, oid: str) -> str:
    git(bare, "update-ref", f"refs/heads/{name}", oid)
    return oid


async def commits_of(ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> dict[str, Any]:
    data = await ask.data(LIST, viewer, path=str(project.id), **variables)
    found: dict[str, Any] = data["project"]["commits"]
    return found


def oids(page: dict[str, Any]) -> list[str]:
    return [node["oid"] for node in page["nodes"]]


class TestCommit:
    async def test_fields_match_git(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        parent = raw_commit(bare)
        oid = point_branch(
            bare,
            "master",
            write_commit(
                bare,
                f"tree {EMPTY_TREE}\nparent {parent}\nauthor Zoë <zoe@example.org> 1450972274 +0100\n"
                "committer Build Bot <bot@example.org> 1450972300 -0730\n\nMerge it\n\nWith reasons.\n".encode(),
            ),
        )
        owner = await make.user()
        project = await make.project(owner=owner, source=bare)

        data = await ask.data(COMMIT, owner, path=str(project.id), rev="master")

        assert data["project"]["commit"] == {
            "oid": oid,
            "shortOid": oid[:8],
            "title": "Merge it",
            "message": "Merge it\n\nWith reasons.\n",
            "restPath": f"/api/v3/projects/{project.id}/repository/commits/{oid}",
            "authorName": "Zoë",
            "authorEmail": "zoe@example.org",
            "authoredAt": "2015-12-24T16:51:14.000000+01:00",
            "committerName": "Build Bot",
            "committerEmail": "bot@example.org",
            "committedAt": "2015-12-24T08:21:40.000000-07:30",
            "parentOids": [parent],
            "author": None,
            "project": {"path": project.path},
            "status": "NOT_FOUND",
            "allowFailure": False,
            "commentCount": 0,
            "viewerCan": {"comment": True},
        }

    @pytest.mark.parametrize(
        ("message", "title"),
        [("x" * 100, "x" * 100), ("x" * 101, "x" * 80 + "…"), ("", "--no commit message"), ("\n\n", "--no commit message")],
    )
    async def test_title_is_the_first_line_cut_when_it_is_long(
        self, ask: Ask, make: DataFactory, bare: Path, message: str, title: str
    ) -> None:
        point_branch(bare, "master", raw_commit(bare, message))
        project = await make.project(owner=(owner := await make.user()), source=bare)

        data = await ask.data(COMMIT, owner, path=str(project.id), rev="master")

        assert data["project"]["commit"]["title"] == title

    async def test_author_is_the_account_that_owns_the_address(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        owner, second = await make.user(), await make.user()
        await make.save(tables.Email(user_id=second.id, email="second@example.org"))
        first = raw_commit(bare, author=f"N <{owner.email.upper()}>")
        other = raw_commit(bare, author="N <Second@Example.org>", parents=(first,), when="1700000100 +0000")
        nobody = raw_commit(bare, author="N <>", parents=(other,), when="1700000200 +0000")
        point_branch(bare, "master", nobody)
        project = await make.project(owner=owner, source=bare)

        page = await commits_of(ask, owner, project)

        assert [node["author"] for node in page["nodes"]] == [None, {"username": second.username}, {"username": owner.username}]

    async def test_counts_and_lists_the_comments_of_this_project_only(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        oid = point_branch(bare, "master", raw_commit(bare))
        owner, other = await make.user(), await make.user()
        project, fork = await make.project(owner=owner, source=bare), await make.project(owner=owner, source=bare)
        moment = datetime(2016, 1, 1, tzinfo=UTC)
        for note, days in (("third", 3), ("first", 1), ("second", 2)):
            await make.commit_comment(project, oid, author=other, note=note, created_at=moment + timedelta(days=days))
        await make.commit_comment(fork, oid, author=other, note="elsewhere")

        (node,) = (await commits_of(ask, owner, project))["nodes"]

        assert node["commentCount"] == 3
        assert [comment["note"] for comment in node["comments"]["nodes"]] == ["first", "second"]
        (node,) = (await commits_of(ask, owner, fork))["nodes"]
        assert [comment["note"] for comment in node["comments"]["nodes"]] == ["elsewhere"]


class TestChecks:
    async def test_reads_the_newest_of_each_name_and_ref(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        oid = point_branch(bare, "master", raw_commit(bare))
        project = await make.project(owner=(owner := await make.user()), source=bare)
        fork = await make.project(owner=owner, source=bare)
        for name, ref, status in (
            ("unit", "master", CheckStatus.FAILED),
            ("unit", None, CheckStatus.FAILED),
            ("lint", "master", CheckStatus.RUNNING),
            ("unit", "master", CheckStatus.SUCCESS),
            ("unit", None, CheckStatus.SUCCESS),
        ):
            await make.commit_status(project, oid, name=name, ref=ref, status=status)
        await make.commit_status(fork, oid, status=CheckStatus.FAILED, allow_failure=True)

        async def shown(of: tables.Project) -> tuple[str, bool]:
            commit = (await ask.data(COMMIT, owner, path=str(of.id), rev=oid))["project"]["commit"]
            return commit["status"], commit["allowFailure"]

        assert await shown(project) == ("RUNNING", False)
        assert await shown(fork) == ("SUCCESS", True)

    @pytest.mark.parametrize(
        ("checks", "state"),
        [
            ("", ChecksState.NOT_FOUND),
            ("success", ChecksState.SUCCESS),
            ("success forgiven", ChecksState.SUCCESS),
            ("forgiven", ChecksState.SUCCESS),
            ("pending", ChecksState.PENDING),
            ("pending pending", ChecksState.PENDING),
            ("pending success", ChecksState.RUNNING),
            ("pending forgiven", ChecksState.RUNNING),
            ("running failed", ChecksState.RUNNING),
            ("canceled canceled", ChecksState.CANCELED),
            ("canceled success", ChecksState.FAILED),
            ("canceled forgiven", ChecksState.FAILED),
            ("failed success", ChecksState.FAILED),
        ],
    )
    def test_combined_status_of_all_checks(self, checks: str, state: ChecksState) -> None:
        rows = [
            tables.CommitStatus(
                project_id=1, sha="a", status=CheckStatus(word.replace("forgiven", "failed")), allow_failure=word == "forgiven"
            )
            for word in checks.split()
        ]

        assert commit_checks.state_of(rows) is state
        assert commit_checks.has_allowed_failure(rows) is ("forgiven" in checks)


class TestFindCommit:
    async def test_resolves_ids_branches_tags_and_unique_prefixes(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 20, "tags": 2})

        async def oid_of(rev: str) -> str:
            return str((await ask.data(COMMIT, owner, path=str(project.id), rev=rev))["project"]["commit"]["oid"])

        master = await oid_of("master")
        assert await oid_of(master) == await oid_of(master.upper()) == await oid_of(master[:9]) == master
        assert await oid_of("v2") == master
        assert await oid_of("topic") not in (master, await oid_of("v1"))

    async def test_a_branch_with_a_slash_and_one_that_looks_like_an_option(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        oid = point_branch(bare, "feature/one.two", raw_commit(bare))
        project = await make.project(owner=(owner := await make.user()), source=bare)

        data = await ask.data(COMMIT, owner, path=str(project.id), rev="feature/one.two")

        assert data["project"]["commit"]["oid"] == oid

    async def test_nothing_is_read_as_revision_syntax(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 20})
        others = git(make_history(tmp_path / "other.git", commits=5, seed=2).path, "rev-parse", "master")

        for rev in (*HOSTILE, others, "f" * 40, "0" * 7):
            outcome = await ask(COMMIT, owner, path=str(project.id), rev=rev)
            assert [(problem.code, problem.subject) for problem in outcome.errors] == [(Code.NOT_FOUND, "Commit")], rev
            assert outcome.data == {"project": {"commit": None}}

    async def test_requires_the_right_to_read_code(self, ask: Ask, make: DataFactory) -> None:
        guest, reporter, outsider = await make.user(), await make.user(), await make.user()
        members = [(guest, AccessLevel.GUEST), (reporter, AccessLevel.REPORTER)]
        project = await make.project(members=members, history={"commits": 4})
        internal = await make.project(visibility=Visibility.INTERNAL, history={"commits": 4})

        for query, more in ((COMMIT, {"rev": "master"}), (LIST, {}), (BRANCHES, {})):
            assert await ask.codes(query, guest, path=str(project.id), **more) == ["FORBIDDEN"] * (2 if query == BRANCHES else 1)
            assert await ask.codes(query, outsider, path=str(project.id), **more) == ["NOT_FOUND"]
            await ask.data(query, reporter, path=str(project.id), **more)
            await ask.data(query, outsider, path=str(internal.id), **more)

    async def test_a_missing_repository_makes_the_fields_null(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 4})
        services.repositories.remove(project.id)

        query = """query ($path: String!) { project(path: $path) { path commit(rev: "master") { oid } commits { nodes { oid } }
            branches { nodes { name } } tags { nodes { name } } branch { name } } }"""
        outcome = await ask(query, owner, path=str(project.id))

        assert {problem.code for problem in outcome.errors} == {Code.UNAVAILABLE}
        assert outcome.data == {
            "project": {"path": project.path, "commit": None, "commits": None, "branches": None, "tags": None, "branch": None}
        }

    async def test_a_damaged_repository_makes_the_fields_null(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 4})
        for pack in (services.repositories.path_of(project.id) / "objects" / "pack").iterdir():
            pack.unlink()

        assert await ask.codes(COMMIT, owner, path=str(project.id), rev="master") == ["UNAVAILABLE"]
        assert await ask.codes(LIST, owner, path=str(project.id)) == ["UNAVAILABLE"]

    async def test_an_empty_repository_has_no_commits(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        page = await commits_of(ask, owner, project)
        assert page["nodes"] == page["edges"] == []
        assert page["pageInfo"] == {"hasNextPage": False, "hasPreviousPage": False, "startCursor": None, "endCursor": None}
        assert await ask.codes(COMMIT, owner, path=str(project.id), rev="master") == ["NOT_FOUND"]


class TestListCommits:
    async def test_is_the_history_of_the_branch_as_git_has_it(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 40, "merges_every": 4})
        path = services.repositories.path_of(project.id)

        for ref in (None, "master", "topic", "v1", git(path, "rev-parse", "topic")):
            page = await commits_of(ask, owner, project, ref=ref, first=100)
            assert oids(page) == git(path, "log", "--format=%H", ref or "master").split()
            assert page["totalCount"] is None

    async def test_starts_from_the_default_branch_that_the_project_names(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 10})
        topic = oids(await commits_of(ask, owner, project, ref="topic"))
        project.default_branch = "topic"
        await make.save(project)
        assert oids(await commits_of(ask, owner, project)) == topic

    async def test_an_unknown_ref_has_no_commits(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 10})

        for ref in HOSTILE:
            assert (await commits_of(ask, owner, project, ref=ref))["nodes"] == [], ref

    async def test_pages_stay_exact_while_the_branch_moves(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 30, "merges_every": 5})
        path = services.repositories.path_of(project.id)
        expected = git(path, "log", "--format=%H", "master").split()
        seen: list[str] = []
        after: str | None = None
        while True:
            page = await commits_of(ask, owner, project, first=7, after=after)
            seen += oids(page)
            assert page["pageInfo"]["hasPreviousPage"] is (after is not None)
            assert page["pageInfo"]["endCursor"] == page["edges"][-1]["cursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
            after = page["pageInfo"]["endCursor"]
            new = git(path, "commit-tree", f"{expected[0]}^{{tree}}", "-p", git(path, "rev-parse", "master"), "-m", "Later")
            git(path, "update-ref", "refs/heads/master", new)

        assert seen == expected

    async def test_offset_gives_the_pages_of_v3(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 12})
        whole = oids(await commits_of(ask, owner, project))

        assert oids(await commits_of(ask, owner, project, first=4, offset=4)) == whole[4:8]
        last = await commits_of(ask, owner, project, first=4, offset=8)
        assert (oids(last), last["pageInfo"]["hasNextPage"], last["pageInfo"]["hasPreviousPage"]) == (whole[8:], False, True)
        assert oids(await commits_of(ask, owner, project, first=4, offset=2**31 - 1)) == []

    async def test_cursors_of_other_lists_are_rejected(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 5, "seed": 1})
        other = await make.project(owner=owner, history={"commits": 5, "seed": 2})
        foreign = (await commits_of(ask, owner, other))["pageInfo"]["endCursor"]

        for cursor in (foreign, "", "nonsense", "WyIjIiwxXQ", "é"):
            assert await ask.codes(LIST, owner, path=str(project.id), after=cursor) == ["BAD_REQUEST"], cursor
        assert await ask.codes(LIST, owner, path=str(project.id), after=foreign, offset=1) == ["BAD_REQUEST"]

    async def test_a_page_costs_a_page_and_no_process(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2000, "merges_every": 7})
        read: list[str] = []
        original = Repository.raw_commit
        monkeypatch.setattr(Repository, "raw_commit", lambda self, oid: read.append(oid) or original(self, oid))

        def no_process(*_: Any, **__: Any) -> None:
            raise AssertionError("a git process was started")

        monkeypatch.setattr(git_command, "run", no_process)
        monkeypatch.setattr(subprocess, "Popen", no_process)

        await ask.data(LIST, owner, path=str(project.id), first=20)
        await ask.data(DIFF, owner, path=str(project.id), rev="master")

        # Twenty-one walked and read, the edge of the walk, and the two that the diff compares.
        assert len(read) <= 2 * 21 + 10

    async def test_a_page_that_is_too_deep_is_rejected(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 5})
        monkeypatch.setattr(log, "MAX_WALK_SECONDS", -1.0)

        assert await ask.codes(LIST, owner, path=str(project.id), first=4) == ["LIMIT_EXCEEDED"]

    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder, services: Services
    ) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 30, "authors": 3})
        for number in range(3):
            await make.user(email=f"author{number}@example.org")
        for oid in git(services.repositories.path_of(project.id), "log", "--format=%H", "master").split():
            await make.commit_comment(project, oid, author=owner)
            await make.commit_status(project, oid, status=CheckStatus.SUCCESS)

        with statements.record() as one:
            await ask.data(LIST, owner, path=str(project.id), first=1)
        with statements.record() as thirty:
            page = await commits_of(ask, owner, project, first=30)

        assert all(node["author"] and node["commentCount"] == 1 and node["status"] == "SUCCESS" for node in page["nodes"])
        assert len(thirty) <= len(one) <= 10


class TestDiff:
    async def test_diffs_against_the_first_parent(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        base = commit_files(bare, {"kept.txt": b"1\n2\n3\n", "gone.txt": b"gone\n"})
        oid = point_branch(bare, "master", commit_files(bare, {"kept.txt": b"1\ntwo\n3\n", "new.txt": b"new\n"}, base))
        project = await make.project(owner=(owner := await make.user()), source=bare)

        data = await ask.data(DIFF, owner, path=str(project.id), rev=oid)

        missing, stored, new = data["project"]["commit"]["diff"]
        assert stored == {
            "diff": "--- a/kept.txt\n+++ b/kept.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n",
            "oldPath": "kept.txt",
            "newPath": "kept.txt",
            "aMode": "100644",
            "bMode": "100644",
            "newFile": False,
            "renamedFile": False,
            "deletedFile": False,
            "additions": 1,
            "deletions": 1,
            "tooLarge": False,
        }
        assert (missing["oldPath"], missing["deletedFile"], missing["bMode"]) == ("gone.txt", True, "0")
        assert (new["newPath"], new["newFile"], new["aMode"]) == ("new.txt", True, "0")

    async def test_an_operation_reads_no_more_than_it_may_show(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        parents: tuple[str, ...] = ()
        for number in range(3):
            parents = (commit_files(bare, {f"{number}.txt": b"line of number %d\n" % number * 170_000}, *parents),)
        point_branch(bare, "master", parents[0])
        project = await make.project(owner=(owner := await make.user()), source=bare)

        query = "query ($path: String!) { project(path: $path) { commits { nodes { oid diff { newPath tooLarge } } } } }"
        outcome = await ask(query, owner, path=str(project.id))

        assert outcome.data is not None
        assert [node["diff"] is None for node in outcome.data["project"]["commits"]["nodes"]].count(True) == 1
        assert [problem.code for problem in outcome.errors] == [Code.LIMIT_EXCEEDED]

    async def test_is_null_where_a_tree_is_missing(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        missing = write_commit(bare, b"tree " + b"1" * 40 + b"\nauthor A <a> 1 +0000\ncommitter C <c> 1 +0000\n\nBroken\n")
        (bare / "refs" / "heads" / "master").write_text(missing + "\n")
        project = await make.project(owner=(owner := await make.user()), default_branch="master")
        target = make.services.repositories.path_of(project.id)
        (target / "refs" / "heads" / "master").write_text(missing + "\n")
        loose = Path("objects", missing[:2], missing[2:])
        (target / loose).parent.mkdir(parents=True)
        (target / loose).write_bytes((bare / loose).read_bytes())

        outcome = await ask(
            "query ($path: String!) { project(path: $path) { commits { nodes { title diff { diff } } } } }", owner, path=str(project.id)
        )

        assert outcome.data == {"project": {"commits": {"nodes": [{"title": "Broken", "diff": None}]}}}
        assert [problem.code for problem in outcome.errors] == [Code.UNAVAILABLE]


class TestNodes:
    async def test_a_commit_is_a_node(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        oid = point_branch(bare, "master", raw_commit(bare))
        project = await make.project(owner=(owner := await make.user()), source=bare)
        found = await ask.data(
            'query ($path: String!) { project(path: $path) { commit(rev: "master") { id } } }', owner, path=str(project.id)
        )
        id = found["project"]["commit"]["id"]

        assert id == global_id("Commit", f"{project.id}-{oid}")
        assert (await ask.data(NODE, owner, id=id))["node"] == {"id": id, "oid": oid, "title": "A change"}

    async def test_requires_permission_to_read_code(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        oid = point_branch(bare, "master", raw_commit(bare))
        guest, outsider = await make.user(), await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)], source=bare)
        comment = await make.commit_comment(project, oid, author=guest)

        for viewer in (guest, outsider):
            assert (await ask.data(NODE, viewer, id=global_id("Commit", f"{project.id}-{oid}")))["node"] is None
            assert (await ask.data(NODE, viewer, id=global_id("CommitComment", comment.id)))["node"] is None
        assert (await ask.data(NODE, await make.admin(), id=global_id("CommitComment", comment.id)))["node"] is not None

    async def test_ids_that_name_nothing(self, ask: Ask, make: DataFactory, bare: Path) -> None:
        oid = point_branch(bare, "master", raw_commit(bare))
        project = await make.project(owner=(owner := await make.user()), source=bare)

        for key in (
            f"{project.id}-{'f' * 40}",
            f"{project.id}-master",
            f"{project.id}",
            oid,
            f"0-{oid}",
            f"{project.id + 1}-{oid}",
            f"-{oid}",
        ):
            assert (await ask.data(NODE, owner, id=global_id("Commit", key)))["node"] is None, key

    async def test_one_unreadable_repository_does_not_spoil_the_others(
        self, ask: Ask, make: DataFactory, bare: Path, services: Services, statements: StatementRecorder
    ) -> None:
        oid = point_branch(bare, "master", raw_commit(bare))
        owner = await make.user()
        projects = [await make.project(owner=owner, source=bare) for _ in range(4)]
        services.repositories.remove(projects[1].id)

        with statements.assert_at_most(4):
            outcome = await ask(
                "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Commit { oid } } }",
                owner,
                ids=[global_id("Commit", f"{project.id}-{oid}") for project in projects],
            )

        assert outcome.data == {"nodes": [{"oid": oid}, None, {"oid": oid}, {"oid": oid}]}
        assert [(problem.code, problem.path) for problem in outcome.errors] == [(Code.UNAVAILABLE, ["nodes", 1])]


BRANCHES = """query ($path: String!) { project(path: $path) { branches { totalCount nodes { name target { oid } } }
    tags { totalCount nodes { name target { title } } } } }"""


class TestBranches:
    async def test_lists_branches_and_tags_with_their_commits(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 10, "tags": 2})
        path = services.repositories.path_of(project.id)

        data = (await ask.data(BRANCHES, owner, path=str(project.id)))["project"]

        assert data["branches"] == {
            "totalCount": 2,
            "nodes": [{"name": name, "target": {"oid": git(path, "rev-parse", name)}} for name in ("master", "topic")],
        }
        assert [tag["name"] for tag in data["tags"]["nodes"]] == ["v1", "v2"]
        assert data["tags"]["nodes"][1]["target"]["title"] == git(path, "log", "-1", "--format=%s", "v2")

    async def test_pages_by_name(self, ask: Ask, make: DataFactory, bare: Path, services: Services) -> None:
        oid = raw_commit(bare)
        for name in ("a", "b", "c/d", "ü", "z"):
            point_branch(bare, name, oid)
        project = await make.project(owner=(owner := await make.user()), source=bare)
        query = """query ($path: String!, $first: Int, $after: String, $last: Int, $before: String, $offset: Int) { project(path: $path) {
            branches(first: $first, after: $after, last: $last, before: $before, offset: $offset) { totalCount nodes { name }
            pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }"""

        async def page(**variables: Any) -> tuple[str, Any]:
            found = (await ask.data(query, owner, path=str(project.id), **variables))["project"]["branches"]
            assert found["totalCount"] >= 5
            return " ".join(node["name"] for node in found["nodes"]), found["pageInfo"]

        names, info = await page(first=2)
        assert (names, info["hasNextPage"], info["hasPreviousPage"]) == ("a b", True, False)
        git(services.repositories.path_of(project.id), "update-ref", "refs/heads/aa", oid)
        names, info = await page(first=2, after=info["endCursor"])
        assert (names, info["hasNextPage"], info["hasPreviousPage"]) == ("c/d z", True, True)
        assert (await page(last=2, before=info["startCursor"]))[0] == "aa b"
        assert (await page(last=1))[0] == "ü"
        assert (await page(first=2, offset=4))[0] == "z ü"
        assert (await page(first=0))[0] == ""
        assert await ask.codes(query, owner, path=str(project.id), after="WyIjIiwxXQ") == ["BAD_REQUEST"]

    async def test_finds_one_by_name_or_the_default(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 10})
        query = "query ($path: String!, $name: String) { project(path: $path) { branch(name: $name) { name target { shortOid } } } }"

        async def name_of(name: str | None) -> str:
            return str((await ask.data(query, owner, path=str(project.id), name=name))["project"]["branch"]["name"])

        assert [await name_of(None), await name_of("topic")] == ["master", "topic"]
        for name in ("v1", "top", "refs/heads/topic", ""):
            outcome = await ask(query, owner, path=str(project.id), name=name)
            assert [(problem.code, problem.subject) for problem in outcome.errors] == [(Code.NOT_FOUND, "Branch")]
