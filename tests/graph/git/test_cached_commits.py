"""Commits, pages of histories and peeled refs are read once, as long as the refs of their project stay as they are."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from graph.operations.execution import Graph
from graph.rules.git import ref_adoption
from storage import tables
from storage.git.commit_cache import CommitCache, WalkedCommits
from storage.git.commits import GitCommit
from storage.git.repository import Ref
from storage.tables import CheckStatus
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import commit_files, commit_to_branch, git
from tests.support.git.repositories import keep_refs_in_step
from tests.support.measuring.measured_memory import measure_memory

COMMIT = "{ oid message authorName authorEmail authoredAt committedAt parentOids }"
FIELDS = {
    "a page of a history": f"commits(first: 2) {{ nodes {COMMIT} pageInfo {{ hasNextPage endCursor }} }}",
    "the next pages": f"commits(first: 1, offset: 1) {{ nodes {COMMIT} pageInfo {{ hasNextPage }} }}",
    "a commit by a branch": f'commit(rev: "master") {COMMIT}',
    "a commit by a tag": f'commit(rev: "v1") {COMMIT}',
    "all branches": f"branches {{ totalCount nodes {{ name target {COMMIT} }} }}",
    "one branch": f'branch(name: "master") {{ name target {COMMIT} }}',
    "all tags": f"tags {{ nodes {{ name target {COMMIT} }} }}",
    "one tag": f'tag(name: "v1") {{ name target {COMMIT} }}',
    "the commits of builds": f"builds {{ nodes {{ sha commit {COMMIT} }} }}",
}
RUNS = 3
"""A string is planned at its second run."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "master", str(path))
    for number in range(3):
        parents = [] if number == 0 else [git(path, "rev-parse", "master")]
        git(path, "update-ref", "refs/heads/master", commit_files(path, {"file": b"%d" % number}, *parents))
    git(path, "tag", "-a", "-m", "The first release", "v1", "master~1")
    return path


@pytest.fixture(params=[True, False], ids=["planned", "without plans"])
def ask(services: Services, request: pytest.FixtureRequest) -> Ask:
    return Ask(keep_refs_in_step(Graph(services, planner=request.param)))


@pytest.fixture
async def build(make: DataFactory, project: tables.Project, source: Path) -> tables.Build:
    return await make.build(project, git(source, "rev-parse", "master~2"), status=CheckStatus.SUCCESS)


async def ask_for(ask: Ask, viewer: tables.User, project: tables.Project, field: str) -> Any:
    return (await ask.data(f"query ($path: String!) {{ project(path: $path) {{ {field} }} }}", viewer, path=str(project.id)))["project"]


async def move_master(make: DataFactory, project: tables.Project) -> str:
    """Adds a commit to the branch, and returns its id."""
    path = make.services.repositories.path_of(project.id)
    commit_to_branch(path, "master", {"file": b"new\n"})
    assert await ref_adoption.adopt_changes(make.services, project.id)
    return git(path, "rev-parse", "master")


class TestAnswers:
    @pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
    async def test_are_read_once(
        self, ask: Ask, viewer: tables.User, project: tables.Project, build: tables.Build, reads: list[int], field: str
    ) -> None:
        answers = [await ask_for(ask, viewer, project, field) for _ in range(RUNS)]
        assert project.id in reads
        reads.clear()

        answers.append(await ask_for(ask, viewer, project, field))

        assert (answers.count(answers[0]), reads) == (RUNS + 1, [])

    async def test_show_a_branch_that_has_moved(
        self, ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project, build: tables.Build
    ) -> None:
        of_branch = [FIELDS[name] for name in ("a page of a history", "a commit by a branch", "all branches", "one branch")]
        for field in of_branch:
            for _ in range(RUNS):
                await ask_for(ask, viewer, project, field)

        tip = await move_master(make, project)

        for field in of_branch:
            assert tip in str(await ask_for(ask, viewer, project, field)), field

    async def test_to_abbreviated_ids_are_read_each_time(
        self, ask: Ask, viewer: tables.User, project: tables.Project, source: Path, reads: list[int]
    ) -> None:
        field = f'commit(rev: "{git(source, "rev-parse", "--short=8", "master")}") {{ message }}'
        for _ in range(RUNS):
            reads.clear()
            assert (await ask_for(ask, viewer, project, field))["commit"]["message"]
            assert reads == [project.id]

    async def test_are_not_for_viewers_without_access(
        self, ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project, build: tables.Build
    ) -> None:
        stranger = await make.user()
        query = "query ($path: String!) { project(path: $path) { %s } }"
        for field in FIELDS.values():
            await ask_for(ask, viewer, project, field)
            assert (await ask(query % field, stranger, path=str(project.id))).data == {"project": None}


def make_commit(number: int) -> GitCommit:
    name, email = f"Author {number}", f"author{number}@example.com"
    authored, committed = (datetime.fromtimestamp(1_700_000_000 + number + later, timezone(timedelta(hours=1))) for later in (0, 60))
    message = f"Message {number}\n" * 3
    return GitCommit(f"{number:040}", (f"{number:039}1",), message, name, email, authored, f"{name}!", f"{email}.", committed)


@pytest.mark.parametrize(
    "make_value",
    [
        make_commit,
        lambda number: WalkedCommits(f"{number:040}", 0, [make_commit(1000 * number + each) for each in range(20)]),
        lambda number: [Ref(f"branch-{number}-{each}", f"{number:020}{each:020}") for each in range(50)],
    ],
    ids=["commits", "pages of histories", "refs"],
)
def test_the_estimate_is_within_a_factor_of_two(make_value: Any) -> None:
    cache = CommitCache()
    with measure_memory() as measured:
        for number in range(100):
            cache.put((number, 1_700_000_000_000_000 + number, ("name", number)), make_value(number))
    assert len(cache) == 100
    assert measured.bytes / 2 < cache.bytes < measured.bytes * 2
