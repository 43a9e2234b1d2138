"""Comparison of two commits of a project through the graph."""

from pathlib import Path
from typing import Any

import pytest

from storage import tables
from storage.git import merge
from storage.git.history import short_histories
from storage.git.subprocesses import git_command
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import build_once, commit_files, git

COMPARE = """query ($path: String!, $from: String!, $to: String!, $straight: Boolean! = false, $first: Int, $after: String, $offset: Int) {
  project(path: $path) {
    compare(from: $from, to: $to, straight: $straight) {
      from { oid } to { oid } mergeBase { oid } aheadBy behindBy diffStat { files additions deletions }
      commits(first: $first, after: $after, offset: $offset) { totalCount pageInfo { hasNextPage hasPreviousPage endCursor } nodes { oid } }
      diff { oldPath newPath newFile deletedFile diff }
    } } }"""
NAMES = "query ($path: String!, $from: String!, $to: String!) { project(path: $path) { compare(from: $from, to: $to) { aheadBy } } }"


def create_source(folder: Path) -> None:
    """`topic` left `master` at `base`: two commits against one; `apart` has nothing in common with them."""
    git(folder.parent, "init", "-q", "--bare", "-b", "master", str(folder))
    base = commit_files(folder, {"a": b"1\n2\n3\n"})
    tips = {"base": base, "master": commit_files(folder, {"a": b"1\n2\n3\n", "later": b"x\n"}, base)}
    first = commit_files(folder, {"a": b"1\ntwo\n3\n"}, base)
    tips["topic"] = commit_files(folder, {"a": b"1\ntwo\n3\n", "new": b"1\n2\n"}, first)
    tips["apart"] = commit_files(folder, {"b": b"b\n"})
    for name, oid in tips.items():
        git(folder, "update-ref", f"refs/heads/{name}", oid)


@pytest.fixture
def source(histories: Path, tmp_path: Path) -> Path:
    build_once(create_source, histories, tmp_path / "source.git")
    return tmp_path / "source.git"


async def compare_refs(ask: Ask, project: tables.Project, viewer: tables.User, start: str, end: str, **more: Any) -> dict[str, Any]:
    variables = {"path": str(project.id), "from": start, "to": end, **more}
    return dict((await ask.data(COMPARE, viewer, **variables))["project"]["compare"])


def oids(*commits: dict[str, Any] | None) -> list[str | None]:
    return [commit["oid"] if commit else None for commit in commits]


class TestCompare:
    async def test_compares_with_the_merge_base(self, ask: Ask, project: tables.Project, viewer: tables.User, source: Path) -> None:
        found = await compare_refs(ask, project, viewer, "master", "topic")
        master, topic, base = git(source, "rev-parse", "master", "topic", "base").split()
        assert oids(found["from"], found["to"], found["mergeBase"]) == [master, topic, base]
        assert (found["aheadBy"], found["behindBy"]) == (2, 1)
        assert oids(*found["commits"]["nodes"]) == git(source, "rev-list", "master..topic").split()
        assert found["commits"]["totalCount"] == 2
        assert [(entry["newPath"], entry["newFile"]) for entry in found["diff"]] == [("a", False), ("new", True)]
        assert found["diffStat"] == {"files": 2, "additions": 3, "deletions": 1}

    async def test_straight_compares_the_two_trees(self, ask: Ask, project: tables.Project, viewer: tables.User) -> None:
        found = await compare_refs(ask, project, viewer, "master", "topic", straight=True)
        assert [(entry["newPath"], entry["deletedFile"]) for entry in found["diff"]] == [("a", False), ("later", True), ("new", False)]
        assert found["diffStat"] == {"files": 3, "additions": 3, "deletions": 2}
        assert found["commits"]["totalCount"] == 2

    async def test_of_a_commit_with_itself(self, ask: Ask, project: tables.Project, viewer: tables.User, source: Path) -> None:
        found = await compare_refs(ask, project, viewer, "topic", git(source, "rev-parse", "topic")[:12])
        assert (found["aheadBy"], found["behindBy"], found["diff"], found["commits"]["nodes"]) == (0, 0, [], [])
        assert found["diffStat"] == {"files": 0, "additions": 0, "deletions": 0}

    async def test_of_unrelated_histories(self, ask: Ask, project: tables.Project, viewer: tables.User) -> None:
        found = await compare_refs(ask, project, viewer, "master", "apart")
        assert (found["mergeBase"], found["aheadBy"], found["behindBy"]) == (None, 1, 2)
        assert [(entry["newPath"], entry["newFile"]) for entry in found["diff"]] == [("b", True)]
        assert found["diffStat"] == {"files": 1, "additions": 1, "deletions": 0}

    async def test_pages_stay_exact_while_the_branch_moves(self, ask: Ask, make: DataFactory, source: Path) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 40})
        repository = make.services.repositories.path_of(project.id)
        first = git(repository, "rev-list", "--max-parents=0", "master")
        expected = git(repository, "rev-list", f"{first}..master").split()
        page = await compare_refs(ask, project, owner, first, "master", first=10)
        assert oids(*page["commits"]["nodes"]) == expected[:10]
        assert page["commits"]["totalCount"] == len(expected)
        git(repository, "update-ref", "refs/heads/master", expected[5])
        after = page["commits"]["pageInfo"]["endCursor"]
        page = await compare_refs(ask, project, owner, first, "master", first=100, after=after)
        assert oids(*page["commits"]["nodes"]) == expected[10:]
        assert page["commits"]["pageInfo"]["hasPreviousPage"] is True
        assert page["commits"]["pageInfo"]["hasNextPage"] is False
        page = await compare_refs(ask, project, owner, first, "master", first=3, offset=2)
        assert oids(*page["commits"]["nodes"]) == expected[7:10]

    @pytest.mark.parametrize(
        ("start", "end"),
        [("nope", "topic"), ("master", "nope"), ("master~1", "topic"), ("@{-1}", "topic"), ("--all", "topic"), ("master", "HEAD"),
         ("", "topic"), ("0" * 40, "topic"), ("master..topic", "topic"), ("master", "--output=x")],
    )  # fmt: skip
    async def test_unknown_refs_are_not_found(self, ask: Ask, project: tables.Project, viewer: tables.User, start: str, end: str) -> None:
        assert await ask.codes(COMPARE, viewer, **{"path": str(project.id), "from": start, "to": end}) == ["NOT_FOUND"]

    @pytest.mark.parametrize("cursor", ["", "!", "W10", "WyJiZXR3ZWVuIiwxLDIsM10"])
    async def test_rejects_foreign_cursors(self, ask: Ask, project: tables.Project, viewer: tables.User, cursor: str) -> None:
        variables = {"path": str(project.id), "from": "master", "to": "topic", "after": cursor}
        assert await ask.codes(COMPARE, viewer, **variables) == ["BAD_REQUEST"]

    async def test_a_timeout_nulls_only_its_field(
        self, ask: Ask, project: tables.Project, viewer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow(*_: object) -> Any:
            raise git_command.GitCommandError("git rev-list took more than 10 s")

        monkeypatch.setattr(merge, "ahead_behind", slow)
        outcome = await ask(COMPARE, viewer, **{"path": str(project.id), "from": "master", "to": "topic"})
        assert {str(problem.code) for problem in outcome.errors} == {"UNAVAILABLE"}
        assert outcome.data is not None
        found = outcome.data["project"]["compare"]
        assert (found["aheadBy"], found["diffStat"]["files"], found["commits"]["totalCount"]) == (None, 2, None)


class TestRights:
    async def test_follow_those_of_reading_code(self, ask: Ask, make: DataFactory, source: Path) -> None:
        guest, outsider = await make.user(), await make.user()
        private = await make.project(source=source, members=[(guest, AccessLevel.GUEST)])
        public = await make.project(source=source, visibility=Visibility.PUBLIC)
        names = {"from": "master", "to": "topic"}
        assert await ask.codes(NAMES, guest, path=str(private.id), **names) == ["FORBIDDEN"]
        assert await ask.codes(NAMES, outsider, path=str(private.id), **names) == ["NOT_FOUND"]
        assert (await ask(NAMES, outsider, path=str(public.id), **names)).errors == []


class TestCost:
    async def test_cost_counts_rows(self, ask: Ask, make: DataFactory, viewer: tables.User) -> None:
        query = '{ projects(first: 30) { nodes { compare(from: "master", to: "topic") { aheadBy } } } }'
        outcome = await ask(query, viewer)
        assert [str(problem.code) for problem in outcome.errors] == ["LIMIT_EXCEEDED"]
        assert "Project.compare" in outcome.errors[0].message or "Query.projects" in outcome.errors[0].message
        assert (await ask(query.replace("30", "10"), viewer)).errors == []

    @pytest.mark.parametrize(
        ("examined", "commands"), [(short_histories.MAX_EXAMINED_COMMITS, ["diff"]), (0, ["diff", "merge-base", "rev-list", "rev-list"])]
    )
    async def test_uses_few_statements_and_one_process_per_field_of_a_long_history(
        self,
        ask: Ask,
        project: tables.Project,
        viewer: tables.User,
        statements: StatementRecorder,
        monkeypatch: pytest.MonkeyPatch,
        examined: int,
        commands: list[str],
    ) -> None:
        monkeypatch.setattr(short_histories, "MAX_EXAMINED_COMMITS", examined)
        started: list[str] = []
        ask_git = git_command.run_with_code

        def counted(git_dir: Path, *arguments: str, **settings: Any) -> tuple[int, bytes]:
            started.append(arguments[0])
            return ask_git(git_dir, *arguments, **settings)

        monkeypatch.setattr(git_command, "run_with_code", counted)
        with statements.assert_at_most(4):
            await compare_refs(ask, project, viewer, "master", "topic")
        assert sorted(started) == commands
