"""A project that ordinary mutations made, and the items by which an import copies it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.rules.branches import branch_health_job
from graph.rules.git import refs
from graph.rules.merge_requests import merge_request_refresh
from storage import tables
from storage.tables import AccessLevel, ImportKind
from tests.graph.imports.support import RunningImport
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import commit_to_branch, make_history

PEOPLE = "author { databaseId } assignee { databaseId } milestone { databaseId }"
ITEMS = (
    """query ($path: String!) { project(path: $path) {
  issues(first: 12, orderBy: {field: CREATED_AT, direction: ASC}) { nodes {
    sourceId: databaseId iid PEOPLE title description state labels createdAt updatedAt closedAt notes(first: 12) { nodes { ...note } } } }
  mergeRequests(first: 12, orderBy: {field: CREATED_AT, direction: ASC}) { nodes {
    sourceId: databaseId sourceProjectId iid PEOPLE title description state sourceBranch targetBranch labels mergeStatus
    mergeCommit { oid } mergedBy { databaseId } createdAt updatedAt mergedAt closedAt
    commits(first: 12) { nodes { oid } } notes(first: 12) { nodes { ...note } } } }
  snippets(first: 12) { nodes { sourceId: databaseId author { databaseId } title fileName content visibility expiresAt createdAt updatedAt
    notes(first: 12) { nodes { ...note } } } }
  builds(first: 12) { nodes { sourceId: databaseId sha ref tag name stage status allowFailure coverage description targetUrl createdAt
    startedAt finishedAt erasedAt user { databaseId } runner { databaseId } } }
  commits(first: 12) { nodes { oid
    comments(first: 12) { nodes { author { databaseId } note path line lineType createdAt } }
    statuses(first: 12) { nodes { sourceId: databaseId ref name stage status description targetUrl allowFailure createdAt startedAt
      finishedAt author { databaseId } } } } }
  tags(first: 12) { nodes { name release { description createdAt updatedAt } } } } }
  fragment note on Note { sourceId: databaseId author { databaseId } body attachment system upvote downvote createdAt updatedAt }"""
).replace("PEOPLE", PEOPLE)

ANSWERS = """query ($path: String!) { project(path: $path) { openIssuesCount
  issues(first: 12, orderBy: {field: CREATED_AT, direction: ASC}) { totalCount nodes { iid title description state labels createdAt
    updatedAt closedAt upvotes downvotes author { username } assignee { username } milestone { title }
    mergeRequests(first: 10) { nodes { iid } }
    notes(first: 12) { totalCount nodes { ...note } } } }
  mergeRequests(first: 12, orderBy: {field: CREATED_AT, direction: ASC}) { totalCount nodes { iid title description state sourceBranch
    targetBranch labels mergeStatus createdAt updatedAt mergedAt closedAt upvotes downvotes noteCount firstResponseAt workInProgress
    author { username } assignee { username } mergedBy { username } headCommit { oid rollup { state } } mergeCommit { oid }
    diffStat { files additions deletions } commits(first: 12) { totalCount nodes { oid title } }
    changes { oldPath newPath diff } closesIssues(first: 10) { nodes { iid } } blockers
    leadTime { firstCommitToOpen openToFirstResponse openToMerge mergeToGreen total } notes(first: 12) { nodes { ...note } } } }
  mergeRequestStats { opened merged closed }
  snippets(first: 12) { totalCount nodes { title fileName content visibility expiresAt createdAt updatedAt author { username }
    notes(first: 12) { nodes { ...note } } } }
  builds(first: 12) { totalCount nodes { sha ref tag name stage status allowFailure coverage description targetUrl createdAt startedAt
    finishedAt erasedAt durationSeconds queuedSeconds user { username } runner { description } commit { title }
    artifact { filename size } trace(last: 10) { totalBytes lines } } }
  buildStats(groupBy: [NAME]) { rows { name counts { total failed success } } }
  branches(first: 10) { nodes { name health { state since lastGreen { oid } } target { oid status } } }
  commits(first: 12) { nodes { oid status rollup { state counts { total failed success } startedAt finishedAt durationSeconds coverage }
    mergeRequests(first: 10) { nodes { iid } } commentCount
    comments(first: 12) { nodes { author { username } note path line lineType createdAt } }
    statuses(first: 12) { nodes { ref name stage status description targetUrl allowFailure createdAt startedAt finishedAt
      author { username } } } } }
  tags(first: 12) { nodes { name release { description createdAt updatedAt } } } } }
  fragment note on Note { body attachment system upvote downvote createdAt updatedAt author { username } }"""


@dataclass
class CopiedProject:
    """`original` was made by mutations; `copy` has its repository, and gets what an import writes."""

    ask: Ask
    make: DataFactory
    owner: tables.User
    original: tables.Project
    copy: tables.Project

    async def answers(self, project: tables.Project, viewer: tables.User | None = None) -> Any:
        return (await self.ask.data(ANSWERS, viewer or self.owner, path=str(project.id)))["project"]

    async def items(self, project: tables.Project | None = None) -> dict[str, list[dict[str, Any]]]:
        """The items of each mutation, in the order in which an import sends them."""
        project = project or self.original
        found = (await self.ask.data(ITEMS, self.owner, path=str(project.id)))["project"]
        named = {"projectId": project.id}
        issues, merge_requests, snippets = (found[name]["nodes"] for name in ("issues", "mergeRequests", "snippets"))
        notes = [
            {**_item(note), **named, key: parent["sourceId"]}
            for key, parents in (("issueId", issues), ("mergeRequestId", merge_requests), ("snippetId", snippets))
            for parent in parents
            for note in parent.pop("notes")["nodes"]
        ]
        for row in merge_requests:
            row["commitOids"] = [commit["oid"] for commit in row.pop("commits")["nodes"]]
            row["mergeCommitOid"] = (row.pop("mergeCommit") or {}).get("oid")
            row["mergeUserId"] = (row.pop("mergedBy") or {}).get("databaseId")
        commits = [{**commit, "sha": commit["oid"]} for commit in found["commits"]["nodes"]]
        return {
            "importIssues": [{**_item(row), **named} for row in issues],
            "importMergeRequestBatch": [{**_item(row), **named} for row in merge_requests],
            "importSnippets": [{**_item(row), **named} for row in snippets],
            "importNotes": notes,
            "importCommitComments": [
                {**_item(row), **named, "sha": commit["sha"]} for commit in commits for row in commit["comments"]["nodes"]
            ],
            "importCommitStatuses": sorted(
                ({**_item(row), **named, "sha": commit["sha"]} for commit in commits for row in commit["statuses"]["nodes"]),
                key=lambda row: int(row["sourceId"]),
            ),
            "importBuilds": sorted(({**_item(row), **named} for row in found["builds"]["nodes"]), key=lambda row: int(row["sourceId"])),
            "importReleases": [
                {**tag["release"], **named, "tagName": tag["name"]} for tag in found["tags"]["nodes"] if tag["release"] is not None
            ],
        }


def _item(row: dict[str, Any]) -> dict[str, Any]:
    """An answer as an item: `author { databaseId }` as `authorId`."""
    found = dict(row)
    for name in ("author", "assignee", "milestone", "user", "runner"):
        if name in found:
            found[f"{name}Id"] = (found.pop(name) or {}).get("databaseId")
    return found


async def know(make: DataFactory, running: RunningImport, kind: ImportKind, rows: dict[int, int]) -> None:
    """Writes down that rows were imported: ids in the source, and those of the rows."""
    await make.save(
        *(
            tables.ImportIdentity(import_id=running.id, kind=kind, source_id=str(source_id), database_id=row_id, digest="")
            for source_id, row_id in rows.items()
        )
    )


async def copied_project(ask: Ask, make: DataFactory, folder: Path, running: RunningImport) -> CopiedProject:
    """The original, an indexed copy of its repository, and the identities of what they share."""
    owner, guest = await make.user("ada"), await make.user("bob")
    path = make_history(folder / "app.git", commits=5, merges_every=0, tags=2).path
    for number in range(4):
        commit_to_branch(
            path, f"part{number}", {f"{number}.txt": b"one\ntwo\n"}, start="master", message=f"Part {number}\n\nFixes #{number}"
        )
    members = [(owner, AccessLevel.OWNER), (guest, AccessLevel.DEVELOPER)]
    original = await make.indexed(await make.project(owner=owner, source=path, members=members, path="original"))
    forge = CopiedProject(ask, make, owner, original, original)
    milestone = await _write_original(forge, guest)
    await merge_request_refresh.refresh_unchecked(make.services)
    await branch_health_job.refresh_health(make.services)
    await refs.project_refs(make.services, original.id)
    members = [(owner, AccessLevel.OWNER), (guest, AccessLevel.DEVELOPER)]
    forge.copy = await make.project(owner=owner, source=make.services.repositories.path_of(original.id), members=members, path="copy")
    await make.indexed(forge.copy)
    await know(make, running, ImportKind.USER, {owner.id: owner.id, guest.id: guest.id})
    await know(make, running, ImportKind.PROJECT, {original.id: forge.copy.id})
    await know(make, running, ImportKind.MILESTONE, {milestone.id: (await make.milestone(forge.copy, title=milestone.title)).id})
    return forge


async def _write_original(forge: CopiedProject, guest: tables.User) -> tables.Milestone:
    """Everything that a project can have, by ordinary mutations."""
    ask, make, owner, project = forge.ask, forge.make, forge.owner, forge.original

    async def do(name: str, viewer: tables.User = owner, /, **values: Any) -> None:
        kind = name[0].upper() + name[1:]
        text = f"mutation ($input: {kind}Input!) {{ {name}(input: $input) {{ userErrors {{ message }} }} }}"
        payload = (await ask.data(text, viewer, input={"projectPath": str(project.id), **values}))[name]
        assert payload["userErrors"] == []

    milestone = await make.milestone(project, title="1.0")
    await do("createIssue", title="It leaks", description="Badly.", labels=["bug", "urgent"], assigneeId=guest.id, milestoneId=milestone.id)
    await do("createIssue", guest, title="It drips", description="As #1 does")
    await do("createIssue", title="It squeaks")
    await do("createIssue", title="It rattles", labels=["bug"])
    await do("createNote", guest, issueIid=1, body="Since when? See #2 and !1")
    await do("createNote", issueIid=1, body=":+1:")
    await do("updateIssue", iid=2, title="It drips again", milestoneId=milestone.id, stateEvent="CLOSE")
    for number in range(4):
        target = {"sourceBranch": f"part{number}", "targetBranch": "master"}
        await do("createMergeRequest", guest, title=f"Part {number}", description="Closes #1", labels=["bug"], **target)
    await do("createNote", mergeRequestIid=1, body="Good. As #3 wants")
    await do("createNote", mergeRequestIid=1, body=":thumbsdown:")
    await do("acceptMergeRequest", iid=2)
    await do("updateMergeRequest", iid=3, stateEvent="CLOSE")
    await do("acceptMergeRequest", iid=4, shouldRemoveSourceBranch=True)
    await do("createSnippet", title="Way", fileName="a.rb", content="puts 1", visibility="PUBLIC")
    head, parent = await _heads(forge)
    await do("createCommitComment", guest, rev=head, note="Why?")
    await do("createCommitComment", rev=parent, note="This")
    await do(
        "createCommitStatus",
        sha=head,
        state="FAILED",
        name="lint",
        ref="master",
        description="3 warnings",
        targetUrl="https://ci.example/1",
    )
    await do("createCommitStatus", sha=parent, state="SUCCESS", name="lint", ref="master")
    times = {"startedAt": "2016-01-01T10:00:00Z", "finishedAt": "2016-01-01T10:05:00Z"}
    await do("createBuild", sha=parent, ref="master", name="test", status="SUCCESS", coverage=81.5, **times)
    await do("createBuild", guest, sha=head, ref="master", name="test", stage="check", status="FAILED", allowFailure=True, **times)
    await do("createRelease", tagName="v1", description="The first.")
    return milestone


async def _heads(forge: CopiedProject) -> tuple[str, str]:
    text = "query ($path: String!) { project(path: $path) { commits(first: 2) { nodes { oid } } } }"
    head, parent = (await forge.ask.data(text, forge.owner, path=str(forge.original.id)))["project"]["commits"]["nodes"]
    return head["oid"], parent["oid"]
