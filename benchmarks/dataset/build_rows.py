"""The builds and merge requests of the data set, with the runners, commits, pipelines, labels and votes that belong to them.

At scale 1: 200,000 commits, 500,000 builds in 50,000 pipelines, 50,000 merge requests. Every project has the same
history (`project_history.py`).
"""

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from benchmarks.dataset.project_history import AUTHOR, BRANCH, EMAIL, FILES, HistoryCommit, ProjectHistory
from storage import tables
from storage.secrets import digest_token
from storage.tables import CheckStatus, CounterKind, MergeRequestState, MergeStatus, RunWhen

BUILDS = 2_500
"""Builds of each project: ten for each of its newest commits."""
BUILDS_PER_COMMIT = 10
"""Builds of one commit."""
MERGE_REQUESTS = 250
"""Merge requests of each project, each with another commit. The last one is open, and changes fifty files; the others change one. The last
two have every optional field."""
RUNNERS = 50
"""Shared runners, each with a token. They run builds without tags, and those with tags of TAGS."""
TAGS = ["docker", "linux"]
JOBS = ("compile", "lint", "unit", "integration", "browser", "package", "image", "docs", "deploy", "smoke")
STATES = (*[CheckStatus.SUCCESS] * 7, CheckStatus.FAILED, CheckStatus.FAILED, CheckStatus.CANCELED)

Rows = Iterable[dict[str, Any]]


def newest_commits(history: ProjectHistory, count: int) -> tuple[HistoryCommit, ...]:
    """The newest `count` commits, that of the branch last."""
    return (*history.commits, history.branch_commit)[-count:]


def runner_token(number: int) -> str:
    """The token of the runner with this id."""
    return f"fr-bench-runner-{number:07}"


def commit_rows(projects: Iterable[int], history: ProjectHistory) -> Rows:
    """Rows of the index of commits, with the commit of the branch."""
    author_columns = {"author_name": AUTHOR, "author_email": EMAIL, "committer_name": AUTHOR, "committer_email": EMAIL}
    offsets = {"authored_offset": 0, "committed_offset": 0}
    for project in projects:
        for commit in (*history.commits, history.branch_commit):
            parents = [commit.parent] if commit.parent else []
            columns = {"project_id": project, "oid": commit.oid, "first_parent": commit.parent, "parents": parents, "title": commit.title}
            yield {**columns, **author_columns, **offsets, "authored_at": commit.committed_at, "committed_at": commit.committed_at}


def ref_rows(projects: Iterable[int], history: ProjectHistory) -> Rows:
    """Rows of the branches that the repositories have."""
    for project in projects:
        for name, commit in (("master", history.commits[-1]), (BRANCH, history.branch_commit)):
            yield {"project_id": project, "name": f"refs/heads/{name}", "oid": commit.oid, "is_indexed": True}


def runner_rows(start: datetime) -> Rows:
    for number in range(1, RUNNERS + 1):
        yield {
            "description": f"Runner {number}",
            "token_digest": digest_token(runner_token(number)),
            "active": True,
            "shared": True,
            "tags": TAGS,
            "run_untagged": True,
            "name": "forgefront",
            "contacted_at": start,
            "created_at": start,
            "updated_at": start,
        }


def pipeline_rows(projects: Iterable[int], history: ProjectHistory, owner: Callable[[int], int]) -> Rows:
    for project in projects:
        for commit in newest_commits(history, BUILDS // BUILDS_PER_COMMIT):
            yield {
                "project_id": project,
                "sha": commit.oid,
                "ref": "master",
                "tag": False,
                "user_id": owner(project),
                "skipped": False,
                "created_at": commit.committed_at,
            }


def build_rows(projects: Iterable[int], history: ProjectHistory, people: Callable[[int], list[int]]) -> Rows:
    """Finished builds, those of the newest commit last."""
    dice = random.Random(4)
    for project in projects:
        users = people(project)
        for number, commit in enumerate(newest_commits(history, BUILDS // BUILDS_PER_COMMIT)):
            user, pipeline = dice.choice(users), (project - 1) * (BUILDS // BUILDS_PER_COMMIT) + number + 1
            for index in range(BUILDS_PER_COMMIT):
                began = commit.committed_at + timedelta(seconds=10 + index)
                yield {
                    "project_id": project,
                    "pipeline_id": pipeline,
                    "attempt": 1,
                    "sha": commit.oid,
                    "ref": "master",
                    "tag": False,
                    "name": JOBS[index],
                    "stage": ("build", "test", "deploy")[index * 3 // BUILDS_PER_COMMIT],
                    "stage_index": index * 3 // BUILDS_PER_COMMIT,
                    "status": dice.choice(STATES),
                    "allow_failure": False,
                    "run_when": RunWhen.ON_SUCCESS,
                    "user_id": user,
                    "runner_id": dice.randint(1, RUNNERS),
                    "commands": f"make {JOBS[index]}",
                    "options": {},
                    "tags": [],
                    "coverage": 87.5 if index == 2 else None,
                    "trace_size": 0,
                    "created_at": commit.committed_at,
                    "updated_at": began,
                    "started_at": began,
                    "finished_at": began + timedelta(seconds=dice.randint(5, 300)),
                }


def artifact_rows(projects: Iterable[int], start: datetime) -> Rows:
    """Artifacts of one build in ten. Their files do not exist, since nothing reads them."""
    for project in projects:
        for number in range(BUILDS // BUILDS_PER_COMMIT):
            build = (project - 1) * (BUILDS // BUILDS_PER_COMMIT) * BUILDS_PER_COMMIT + number * BUILDS_PER_COMMIT + 6
            columns = {"project_id": project, "build_id": build, "key": f"bench/{build}"}
            yield {**columns, "filename": "package.zip", "size": 100_000 + number, "created_at": start}


def merge_request_rows(projects: Iterable[int], history: ProjectHistory, people: Callable[[int], list[int]], milestones: int) -> Rows:
    """Merge requests, the newest last: of five, three are merged, one is closed and one open. `milestones` is their number per project."""
    dice = random.Random(5)
    for project in projects:
        users = people(project)
        for iid, head in enumerate(newest_commits(history, MERGE_REQUESTS), 1):
            last, is_complete = iid == MERGE_REQUESTS, iid >= MERGE_REQUESTS - 1
            state = (*[MergeRequestState.MERGED] * 3, MergeRequestState.CLOSED, MergeRequestState.OPENED)[4 if last else iid % 5]
            created_at = history.commits[0].committed_at + timedelta(hours=iid)
            ended = created_at + timedelta(minutes=50)
            yield {
                "project_id": project,
                "source_project_id": project,
                "iid": iid,
                "author_id": dice.choice(users),
                "assignee_id": dice.choice(users) if is_complete or dice.random() < 0.7 else None,
                "milestone_id": (project - 1) * milestones + dice.randint(1, milestones) if is_complete or dice.random() < 0.5 else None,
                "title": f"{'WIP: ' if iid % 9 == 0 else ''}Merge change {iid} when the tests pass",
                "description": "What it changes, and why, in a few sentences that a reviewer wants to read. " * 3,
                "state": state,
                "source_branch": BRANCH if last else f"{BRANCH}-{iid}",
                "target_branch": "master",
                "merge_status": MergeStatus.CAN_BE_MERGED,
                "head_oid": head.oid,
                "base_oid": head.parent,
                "commit_count": 1,
                **dict.fromkeys(("files", "additions", "deletions"), FILES if last else 1),
                "merge_when_build_succeeds": False,
                "merge_user_id": users[0] if state is MergeRequestState.MERGED else None,
                "merged_at": ended if state is MergeRequestState.MERGED else None,
                "closed_at": ended if state is MergeRequestState.CLOSED else None,
                "created_at": created_at,
                "updated_at": ended,
            }


def label_rows(projects: int, labels_per_project: int) -> Rows:
    """Up to three of the `labels_per_project` labels of a project for each merge request, at least one for the last two."""
    dice = random.Random(6)
    for number in range(1, projects * MERGE_REQUESTS + 1):
        first = (number - 1) // MERGE_REQUESTS * labels_per_project + 1
        for index in sorted(dice.sample(range(labels_per_project), dice.randint(1 if (number + 1) % MERGE_REQUESTS < 2 else 0, 3))):
            yield {"merge_request_id": number, "label_id": first + index}


def vote_rows(projects: int, people: Callable[[int], list[int]], start: datetime) -> Rows:
    """Up to two votes on each merge request."""
    dice = random.Random(7)
    for number in range(1, projects * MERGE_REQUESTS + 1):
        project = (number - 1) // MERGE_REQUESTS + 1
        for user in dice.sample(people(project), dice.randint(0, 2)):
            up = dice.random() < 0.8
            yield {
                "project_id": project,
                "merge_request_id": number,
                "author_id": user,
                "body": "+1" if up else "-1",
                "system": False,
                "upvote": up,
                "downvote": not up,
                "created_at": start,
                "updated_at": start,
            }


def tables_with_rows(
    projects: int, history: ProjectHistory, people: Callable[[int], list[int]], *, start: datetime, labels_each: int, milestones_each: int
) -> Iterator[tuple[Any, Rows]]:
    """Every table with its rows, parents first, for the projects from 1 on; `people` returns the owner and the members of a project."""
    numbers = range(1, projects + 1)
    yield tables.Commit, commit_rows(numbers, history)
    yield tables.GitRef, ref_rows(numbers, history)
    yield tables.Runner, runner_rows(start)
    yield tables.Pipeline, pipeline_rows(numbers, history, lambda project: people(project)[0])
    yield tables.Build, build_rows(numbers, history, people)
    yield tables.Artifact, artifact_rows(numbers, start)
    yield tables.MergeRequest, merge_request_rows(numbers, history, people, milestones_each)
    yield tables.MergeRequestLabel, label_rows(projects, labels_each)
    yield tables.Note, vote_rows(projects, people, start)
    yield tables.Counter, ({"project_id": number, "kind": CounterKind.MERGE_REQUEST, "value": MERGE_REQUESTS} for number in numbers)
