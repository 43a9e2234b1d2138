"""The history of branches through the graph, page by page, equal to `git log`."""

from datetime import UTC, datetime
from typing import Any

import pytest

from graph.rules.branches import branch_history
from storage import tables
from storage.git.history import log
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.git.git_history import FIRST_COMMIT_TIME, commit_to_branch, git

HISTORY = """query ($path: String!, $first: Int! = 100, $after: String, $firstParent: Boolean! = true, $file: String,
    $range: DateTimeRange) { project(path: $path) { branch {
    history(first: $first, after: $after, firstParent: $firstParent, path: $file, range: $range) {
        totalCount nodes { oid } pageInfo { hasNextPage hasPreviousPage endCursor } } } } }"""
WALL = """query ($path: String!) { group(path: $path) { projects { nodes { branch { history(first: 2) { nodes { oid } } } } } } }"""
FILE = "src/part1"
SPAN = {
    "since": datetime.fromtimestamp(FIRST_COMMIT_TIME + 1_800, UTC).isoformat(),
    "until": datetime.fromtimestamp(FIRST_COMMIT_TIME + 6_000, UTC).isoformat(),
}
DATES = (f"--since={FIRST_COMMIT_TIME + 1_800}", f"--until={FIRST_COMMIT_TIME + 5_999}")
PARENT_MODES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("--first-parent",)),
    ({"firstParent": False}, ()),
    ({"file": FILE}, ("--first-parent", "--", FILE)),
    ({"file": f"/{FILE}/", "firstParent": False}, ("--", FILE)),
    ({"range": SPAN}, ("--first-parent", *DATES)),
    ({"range": SPAN, "firstParent": False, "file": FILE}, (*DATES, "--", FILE)),
]
"""Arguments, and those of `git log` that mean the same."""


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.indexed(await make.project(owner=owner, history={"commits": 40, "merges_every": 4, "files": 3}))


def git_log_pages(make: DataFactory, project: tables.Project, *arguments: str) -> list[str]:
    """What `git log` says; of a path without `--first-parent`, of which it has a notion of its own, what is not as in any parent."""
    path = make.services.repositories.path_of(project.id)
    if "--" not in arguments or "--first-parent" in arguments:
        return git(path, "log", "--format=%H", "master", *arguments).split()
    rows = [row.split() for row in git(path, "log", "--format=%H %P", "master", *arguments[:-2]).splitlines()]
    revisions = [f"{oid}:{arguments[-1]}" for row in rows for oid in row]
    output = git(path, "cat-file", "--batch-check=%(objectname)", stdin="\n".join(revisions).encode()).splitlines()
    # For a name that does not exist git repeats the name.
    there = {name.partition(":")[0]: None if name in line else line for name, line in zip(revisions, output, strict=True)}
    return [oid for oid, *parents in rows if all(there[parent] != there[oid] for parent in parents) and (parents or there[oid])]


async def page(ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> dict[str, Any]:
    data = await ask.data(HISTORY, viewer, path=str(project.id), **variables)
    found: dict[str, Any] = data["project"]["branch"]["history"]
    return found


async def read_all_pages(ask: Ask, viewer: tables.User, project: tables.Project, **variables: Any) -> tuple[list[str], int]:
    """All commits, a page after the other, and how many pages there were."""
    seen: list[str] = []
    pages, after, has_more = 0, None, True
    while has_more:
        found = await page(ask, viewer, project, after=after, **variables)
        assert found["pageInfo"]["hasPreviousPage"] is (pages > 0)
        seen += [node["oid"] for node in found["nodes"]]
        pages, after, has_more = pages + 1, found["pageInfo"]["endCursor"], found["pageInfo"]["hasNextPage"]
    return seen, pages


class TestHistory:
    async def test_matches_git_log(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for variables, arguments in PARENT_MODES:
            expected = git_log_pages(make, project, *arguments)
            assert len(expected) > 3, arguments
            assert await read_all_pages(ask, owner, project, **variables) == (expected, 1), arguments
            assert (await read_all_pages(ask, owner, project, first=3, **variables))[0] == expected, arguments
        assert (await page(ask, owner, project))["totalCount"] is None

    async def test_a_page_scans_a_bounded_number_of_commits(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (log, branch_history):
            monkeypatch.setattr(module, "MAX_EXAMINED_COMMITS", 4)
        for variables, arguments in PARENT_MODES[2:]:
            seen, pages = await read_all_pages(ask, owner, project, **variables)
            assert seen == git_log_pages(make, project, *arguments), arguments
            assert pages > 4, arguments

    async def test_stays_exact_while_the_branch_moves(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        for variables, arguments in PARENT_MODES[:2]:
            expected = git_log_pages(make, project, *arguments)
            first = await page(ask, owner, project, first=2, **variables)
            commit_to_branch(make.services.repositories.path_of(project.id), "master", {"a.txt": b"a"})
            second = await page(ask, owner, project, first=2, after=first["pageInfo"]["endCursor"], **variables)
            assert [node["oid"] for node in (*first["nodes"], *second["nodes"])] == expected[:4]

    async def test_includes_commits_not_indexed_yet(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        for number in range(2):
            commit_to_branch(make.services.repositories.path_of(project.id), "master", {"a.txt": b"%d" % number})
        assert (await read_all_pages(ask, owner, project, first=5))[0] == git_log_pages(make, project, "--first-parent")

    async def test_a_missing_path_has_no_history(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        for name in ("nowhere", "src/../src", "src//part1", "x" * 5_000, "a/" * 200):
            for first_parent in (True, False):
                assert (await page(ask, owner, project, file=name, firstParent=first_parent))["nodes"] == []

    async def test_foreign_cursors_are_rejected(self, ask: Ask, owner: tables.User, project: tables.Project) -> None:
        cursors = [(await page(ask, owner, project, first=1, firstParent=way))["pageInfo"]["endCursor"] for way in (True, False)]
        for after, way in ((cursors[0], False), (cursors[1], True), ("x", True), ("", False)):
            assert await ask.codes(HISTORY, owner, path=str(project.id), after=after, firstParent=way) == ["BAD_REQUEST"]

    @requires_planner
    async def test_statement_count_does_not_grow_with_branches(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        group = await make.group(owner=owner)
        seen: list[int] = []
        for number in (1, 4):
            for _ in range(number):
                await make.indexed(await make.project(group=group, history={"commits": 4}))
            with statements.record() as run:
                data = await ask.data(WALL, owner, path=group.path)
            assert all(len(node["branch"]["history"]["nodes"]) == 2 for node in data["group"]["projects"]["nodes"])
            seen.append(len(run))
        assert seen[0] == seen[1]
        assert seen[1] <= 8
