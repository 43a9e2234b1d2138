"""Imported issues, merge requests, notes, builds and what else people and runners wrote."""

from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import col

from storage import tables
from storage.secrets import digest_token
from storage.tables import AccessLevel, ImportKind
from storage.tables.builds import runners as statements
from tests.graph.imports.copied_project import copied_project, know
from tests.graph.imports.support import T0, T1, RunningImport, begin
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

SILENT = (tables.Event, tables.Delivery, tables.Change, tables.Activity, tables.HealthCheckDue)
"""The tables from which others would learn of the import."""
DELETE = "mutation ($path: String!) { deleteProject(input: {projectPath: $path}) { userErrors { code } } }"
CREATE_ISSUE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { iid databaseId } } }"
SHA = "a" * 40
OID = "b" * 40


async def rows_of(make: DataFactory, table: Any, project: tables.Project) -> list[Any]:
    async with make.services.database.read_session() as session:
        return [row for (row,) in await session.read(select(table).where(table.project_id == project.id).order_by(col(table.id)))]


async def sources(make: DataFactory, project: tables.Project) -> Counter[Any]:
    """How many notes refer to each kind of object, and whether that closed something."""
    notes = await rows_of(make, tables.Note, project)
    return Counter((note.body[:12], (note.source or "").split(":")[0], note.source_project_id == project.id) for note in notes)


async def recorded_health(make: DataFactory, project: tables.Project) -> list[Any]:
    refs = await rows_of(make, tables.GitRef, project)
    return [(row.notified_health, row.notified_oid) for row in refs if row.name == "refs/heads/master"]


async def empty_copy(make: DataFactory, running: RunningImport) -> tables.Project:
    """The project 1 of the source, whose user 1 owns it; it has the issue 1, the snippet 1 and the milestone 1."""
    owner = await make.user("ada")
    project = await make.project(owner=owner, members=[(owner, AccessLevel.OWNER)])
    await know(make, running, ImportKind.USER, {1: owner.id})
    await know(make, running, ImportKind.PROJECT, {1: project.id})
    await know(make, running, ImportKind.SNIPPET, {1: (await make.snippet(project)).id})
    await know(make, running, ImportKind.MILESTONE, {1: (await make.milestone(project)).id})
    await know(make, running, ImportKind.ISSUE, {1: (await make.issue(project)).id})
    await make.save(tables.GitRef(project_id=project.id, name="refs/tags/v1", oid=OID))
    return project


def item(mutation: str, number: int, **fields: Any) -> dict[str, Any]:
    """A complete item with this number in the source."""
    common = {"sourceId": number, "projectId": 1, "authorId": 1, "createdAt": T0}
    issuable = {"iid": number + 100, "title": f"T{number}", "state": "OPENED", "labels": ["a", f"l{number % 7}"], "assigneeId": 1}
    values: dict[str, dict[str, Any]] = {
        "importIssues": {**common, **issuable, "milestoneId": 1, "updatedAt": T1, "description": "D"},
        "importMergeRequestBatch": {
            **common, **issuable, "updatedAt": T1, "sourceBranch": f"b{number}", "targetBranch": "master", "headOid": OID,
        },
        "importSnippets": {**common, "title": "T", "fileName": "a.rb", "content": "C", "visibility": "PUBLIC", "updatedAt": T1},
        "importNotes": {**common, "issueId": 1, "body": f"mentioned in merge request !{number}", "system": True},
        "importCommitComments": {**common, "sha": SHA, "note": f"N{number}", "path": "a", "line": 1},
        "importCommitStatuses": {**common, "sha": SHA, "ref": "master", "name": f"c{number}", "status": "FAILED"},
        "importBuilds": {
            **common, "sha": SHA, "ref": "master", "name": f"b{number}", "stage": "test", "status": "SUCCESS", "userId": 1,
            "finishedAt": T1,
        },
        "importReleases": {**common, "tagName": "v1", "description": f"R{number}"},
    }  # fmt: skip
    found = {**values[mutation], **fields}
    for name in {"importBuilds": ["authorId"], "importReleases": ["authorId"]}.get(mutation, []):
        del found[name]
    return found


CHANGED_FIELDS: dict[str, str | None] = {
    "importIssues": "title",
    "importMergeRequestBatch": "title",
    "importSnippets": "title",
    "importNotes": "attachment",
    "importCommitStatuses": "description",
    "importBuilds": "description",
    "importCommitComments": None,
}
"""A field of each kind that a later run may change; a comment is another one if it says something else."""


class TestCopy:
    async def test_is_answered_as_the_original(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        running = await begin(ask, await make.admin())
        forge = await copied_project(ask, make, tmp_path, running)
        await make.save(tables.Hook(url="http://93.184.215.14/", issues_events=True, merge_requests_events=True, note_events=True))
        expected, items, referring = await forge.answers(forge.original), await forge.items(), await sources(make, forge.original)
        health = await recorded_health(make, forge.original)
        # Its commits are in both, and show the merge requests of both.
        await ask.data(DELETE, forge.owner, path=str(forge.original.id))
        silent = {table: await make.count(table) for table in SILENT}

        for outcome in ("CREATED", "UNCHANGED"):
            for mutation, batch in items.items():
                assert await running.write(mutation, *batch) == [(outcome, [])] * len(batch), mutation

        assert await forge.answers(forge.copy) == expected
        assert await sources(make, forge.copy) == referring
        assert await recorded_health(make, forge.copy) == health
        assert {table: await make.count(table) for table in SILENT} == silent
        assert expected["openIssuesCount"] == 1 and referring["mentioned in", "issue", True] > 0

        created = await ask.data(CREATE_ISSUE, forge.owner, input={"projectPath": str(forge.copy.id), "title": "Next"})
        assert created["createIssue"]["issue"]["iid"] == max(each["iid"] for each in items["importIssues"]) + 1


class TestBatches:
    async def test_take_the_same_number_of_statements_for_any_number_of_items(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        running = await begin(ask, await make.admin())
        await empty_copy(make, running)
        counts: dict[tuple[str, str], list[int]] = {}
        number = 1000
        for size in (10, 10, 100):
            for mutation, changed in CHANGED_FIELDS.items():
                batch = [item(mutation, each) for each in range(number, number + size)]
                other = {changed: "other"} if changed is not None else {}
                for outcome, fields in (("CREATED", {}), ("UPDATED", other), ("UNCHANGED", other)):
                    if outcome == "UPDATED" and not other:
                        continue
                    with statements.record() as seen:
                        assert await running.write(mutation, *({**each, **fields} for each in batch)) == [(outcome, [])] * size
                    counts.setdefault((mutation, outcome), []).append(len(seen))
            number += size
        assert {name: found for name, found in counts.items() if found[1] != found[2]} == {}
        assert max(max(found) for found in counts.values()) <= 30

    async def test_skip_what_is_wrong_and_write_the_rest(self, ask: Ask, make: DataFactory) -> None:
        running = await begin(ask, await make.admin())
        project = await empty_copy(make, running)
        other = await make.project()
        await know(make, running, ImportKind.PROJECT, {2: other.id})
        await know(make, running, ImportKind.MILESTONE, {2: (await make.milestone(other)).id})
        wrong: dict[str, list[tuple[dict[str, Any], str]]] = {
            "importIssues": [
                ({"iid": 1}, "iid TAKEN"), ({"iid": 0}, "iid INVALID"), ({"title": " "}, "title REQUIRED"),
                ({"confidential": True}, "confidential NOT_ALLOWED"),
                ({"projectId": 9}, "projectId NOT_FOUND"),
                ({"authorId": 9}, "authorId NOT_FOUND"), ({"title": "x" * 256}, "title INVALID"), ({"sourceId": ""}, "sourceId INVALID"),
            ],
            "importMergeRequestBatch": [({"targetBranch": ""}, "targetBranch REQUIRED"),
            ({"sourceBranch": "b99"}, "sourceBranch CONFLICT")],
            "importNotes": [
                ({"issueId": 9}, "issueId NOT_FOUND"), ({"snippetId": 1}, "issueId INVALID"), ({"issueId": None}, "issueId INVALID"),
                ({"projectId": 2}, "issueId INVALID"), ({"body": ""}, "body REQUIRED"),
                ({"confidential": True}, "confidential NOT_ALLOWED"),
                ({"body": "mentioned in issue no/where#1"}, "body NOT_FOUND"),
                ({"body": f"closed via commit a/b/c@{OID}"}, "body NOT_FOUND"),
            ],
            "importSnippets": [({"content": ""}, "content REQUIRED")],
            "importCommitComments": [({"sha": "master"}, "sha INVALID")],
            "importCommitStatuses": [({"sha": "abc"}, "sha INVALID")],
            "importBuilds": [({"name": "", "sourceId": 50}, "name REQUIRED")],
            "importReleases": [({"tagName": "v2"}, "tagName NOT_FOUND")],
        }  # fmt: skip
        for mutation, cases in wrong.items():
            good = item(mutation, 99)
            batch = [item(mutation, 200 + number, **fields) for number, (fields, _) in enumerate(cases)]
            assert await running.write(mutation, good, *batch) == [("CREATED", []), *(("SKIPPED", [error]) for _, error in cases)]

        left_out = {"assigneeId": 9, "milestoneId": 2, "labels": ["ok", "a,b"], "state": "CLOSED"}
        errors = ["assigneeId NOT_FOUND", "milestoneId INVALID", "labels INVALID"]
        assert await running.write("importIssues", item("importIssues", 300, **left_out)) == [("CREATED", errors)]
        row = (await rows_of(make, tables.Issue, project))[-1]
        assert (row.assignee_id, row.milestone_id, row.closed_at) == (None, None, row.updated_at)
        left_out = {"coverage": 101.0, "runnerId": 4, "targetUrl": "javascript:1", "stageIndex": -1}
        assert await running.write("importBuilds", item("importBuilds", 301, **left_out)) == [
            ("CREATED", ["stageIndex INVALID", "coverage INVALID", "targetUrl INVALID", "runnerId NOT_FOUND"])
        ]
        payload = await running.payload("importIssues", [item("importIssues", 400)] * 100)
        assert [each["outcome"] for each in payload["results"]] == ["CREATED", *["SKIPPED"] * 99]
        assert await ask.codes(
            "mutation ($input: ImportIssuesInput!) { importIssues(input: $input) { userErrors { code } } }",
            running.admin,
            input={"importId": running.id, "items": [item("importIssues", 1)] * 101},
        ) == ["LIMIT_EXCEEDED"]


class TestKeptIds:
    async def test_are_those_of_the_rows_and_new_ones_are_larger(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        running = await begin(ask, admin, keep_ids=True)
        project = await empty_copy(make, running)
        for number, mutation in enumerate(("importIssues", *CHANGED_FIELDS)):
            found = await running.results_of(mutation, *(item(mutation, 7000 + 10 * number + each) for each in range(3)))
            assert [each["databaseId"] for each in found] == [7000 + 10 * number + each for each in range(3)]
        assert await running.write("importSnippets", item("importSnippets", 1), item("importSnippets", 0)) == [
            ("UPDATED", []),
            ("SKIPPED", ["sourceId INVALID"]),
        ]
        await make.snippet(project)
        assert await running.write("importSnippets", item("importSnippets", (await make.snippet(project)).id)) == [
            ("SKIPPED", ["sourceId TAKEN"])
        ]
        assert (await make.issue(project)).id > 7012 and (await make.note(await make.issue(project))).id > 7032


class TestNotes:
    async def test_of_the_system_are_hidden_from_who_may_not_see_what_they_mention(self, ask: Ask, make: DataFactory) -> None:
        running = await begin(ask, await make.admin())
        project = await empty_copy(make, running)
        secret = await make.project(group=await make.group(owner=await make.user("eve"), path="eve-top"), path="plans")
        issue = await make.issue(secret)
        await know(make, running, ImportKind.ISSUE, {2: issue.id})
        bodies = [f"mentioned in issue eve-top/plans#{issue.iid}", "mentioned in issue eve/top/plans#77"]
        bodies.append(f"mentioned in commit eve/top/plans@{OID}")
        batch = [item("importNotes", number, body=body) for number, body in enumerate([*bodies, bodies[0], "Status changed to closed"])]
        assert await running.write("importNotes", *batch) == [("CREATED", [])] * 5
        notes = await rows_of(make, tables.Note, project)
        moment = 1393754400000000
        assert [(note.source, note.source_project_id) for note in notes] == [
            (f"issue:{issue.id}", secret.id), ("issue:#77", secret.id), (f"commit:{OID}", secret.id),
            (f"issue:{issue.id}:{moment}", secret.id),
            (None, None),
        ]  # fmt: skip

        text = "query ($path: String!) { project(path: $path) { issue(iid: 1) { notes(first: 10) { nodes { body } } } } }"
        for viewer, shown in ((await make.fetch(tables.User, project.creator_id or 0), 1), (running.admin, 5)):
            found = await ask.data(text, viewer, path=str(project.id))
            assert len(found["project"]["issue"]["notes"]["nodes"]) == shown


class TestRunners:
    async def test_serve_their_projects_with_their_tokens(self, ask: Ask, make: DataFactory) -> None:
        running = await begin(ask, await make.admin())
        project = await empty_copy(make, running)
        known = await make.runner(project)
        full = {
            "sourceId": 5, "token": "an-old-runner-token", "description": "builder", "active": False, "tags": ["b", "a", "b"],
            "runUntagged": False, "projectIds": [1, 9], "name": "ci", "version": "1.0", "contactedAt": T1, "createdAt": T0,
        }  # fmt: skip
        items = [full, {"sourceId": 6, "description": "new", "shared": True}, {"sourceId": 7, "description": "known"}]
        items[2]["token"] = make.runner_token(known)
        batch = [("CREATED", ["projectIds NOT_FOUND"]), ("CREATED", []), ("UPDATED", [])]
        assert await running.write("importRunners", *items) == batch
        assert await running.write("importRunners", *items) == [("UNCHANGED", errors) for _, errors in batch]

        first, second, third = [await make.fetch(tables.Runner, each["databaseId"]) for each in running.results]
        assert first is not None and second is not None and third is not None
        assert (first.tags, first.active, first.run_untagged, first.shared) == (["a", "b"], False, False, False)
        assert first.token_digest == digest_token("an-old-runner-token") and third.id == known.id
        assert make.services.cipher.decrypt(first.sealed_token or "") == "an-old-runner-token"
        assert digest_token(make.services.cipher.decrypt(second.sealed_token or "")) == second.token_digest
        async with make.services.database.read_session() as session:
            served = [tuple(row) for row in await session.read(statements.projects_of([first.id, second.id, third.id]))]
        assert served == [(first.id, project.id)]
        assert await running.write("importBuilds", item("importBuilds", 1, runnerId=5)) == [("CREATED", [])]
        assert (await rows_of(make, tables.Build, project))[0].runner_id == first.id
