"""Reads of merge requests: lists, notes, votes, commits and blockers, for each viewer."""

from datetime import UTC, datetime
from typing import Any

import pytest

from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, MergeStatus, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

LIST = """query ($path: String!, $filter: MergeRequestFilter, $orderBy: MergeRequestOrder, $first: Int, $after: String) {
  project(path: $path) { mergeRequests(filter: $filter, orderBy: $orderBy, first: $first, after: $after) {
    totalCount nodes { title } pageInfo { endCursor hasNextPage } } } }"""
WHOLE = """query ($path: String!, $first: Int) { project(path: $path) { mergeRequests(first: $first) { totalCount nodes {
    iid title labels labelNodes { name } author { username } assignee { username } milestone { title } project { fullPath }
    sourceProject { fullPath } upvotes downvotes noteCount firstResponseAt mergedBy { username } diffStat { files } blockers
    headCommit { title status mergeRequests(first: 2) { totalCount nodes { iid } } } mergeCommit { title }
    commits(first: 5) { totalCount nodes { title author { username } } } notes(first: 2) { totalCount nodes { body } }
    closesIssues(first: 2) { totalCount nodes { iid } } viewerCan { update merge cancelMerge comment }
    } } } }"""


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("owner")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner)


async def titles(ask: Ask, viewer: tables.User, project: tables.Project, **arguments: Any) -> list[str]:
    found = await ask.data(LIST, viewer, path=str(project.id), **arguments)
    return [row["title"] for row in found["project"]["mergeRequests"]["nodes"]]


async def merge_request_fields(ask: Ask, viewer: tables.User, row: tables.MergeRequest, fields: str) -> dict[str, Any]:
    query = f"query ($path: String!, $id: Int!) {{ project(path: $path) {{ mergeRequest(databaseId: $id) {{ {fields} }} }} }}"
    found: dict[str, Any] = (await ask.data(query, viewer, path=str(row.project_id), id=row.id))["project"]["mergeRequest"]
    return found


async def add_commits(make: DataFactory, row: tables.MergeRequest, oids: list[str]) -> None:
    """Writes the commits that a merge request brings, newest first."""
    await make.save(*(tables.MergeRequestCommit(merge_request_id=row.id, position=index, oid=oid) for index, oid in enumerate(oids)))


def at(day: int) -> datetime:
    return datetime(2020, 1, day, tzinfo=UTC)


class TestList:
    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=owner, history={"commits": 6})
        label, milestone = await make.label(project), await make.milestone(project)
        repositories = make.services.repositories
        newest = await repositories.read(project.id, lambda repository: repository.commit(repository.resolve("topic") or ""))
        oids = [newest.oid, newest.parents[0]]
        for _ in range(30):
            author = await make.user()
            row = await make.merge_request(
                project, author=author, assignee_id=owner.id, milestone_id=milestone.id, labels=[label], head_oid=oids[0], commit_count=2
            )
            await add_commits(make, row, oids)
            await make.note(row, author=owner)
            await make.note(row, author=owner, body="thumbsup", upvote=True)
        await make.commit_status(project, oids[0], status=CheckStatus.SUCCESS)

        # The pages and counts of one parent come by one statement, those of several by two.
        with statements.record() as two:
            await ask.data(WHOLE, owner, path=str(project.id), first=2)
        with statements.record() as thirty:
            data = await ask.data(WHOLE, owner, path=str(project.id), first=30)

        assert len(data["project"]["mergeRequests"]["nodes"]) == 30
        assert data["project"]["mergeRequests"]["nodes"][0]["headCommit"]["mergeRequests"]["totalCount"] == 30
        assert len(thirty) <= len(two)

    async def test_filters(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        label, milestone, somebody = await make.label(project, "bug"), await make.milestone(project, title="Soon"), await make.user("Else")
        await make.merge_request(project, title="a", author=somebody, labels=[label], created_at=at(1), updated_at=at(9))
        await make.merge_request(
            project, title="b", state=MergeRequestState.REOPENED, target_branch="stable", assignee_id=somebody.id, created_at=at(2)
        )
        await make.merge_request(project, title="c", state=MergeRequestState.MERGED, merged_at=at(5), created_at=at(3))
        await make.merge_request(project, title="d", state=MergeRequestState.CLOSED, milestone_id=milestone.id, created_at=at(4))
        await make.merge_request(project, title="e%", merge_when_build_succeeds=True, source_branch="x", created_at=at(5))

        async def found(**wanted: Any) -> str:
            return "".join(await titles(ask, owner, project, filter=wanted))

        assert await found() == "e%dcba"
        assert await found(state=["OPENED", "REOPENED"]) == "e%ba"
        assert await found(state=["MERGED"]) == "c"
        assert await found(state=[]) == ""
        assert await found(iid=[2, 4]) == "db"
        assert await found(targetBranch=["stable"]) == "b"
        assert await found(sourceBranch=["x"]) == "e%"
        assert await found(labels=["bug", "none"]) == "a"
        assert await found(milestone=["Soon"]) == "d"
        assert await found(authorUsername=["else"]) == "a"
        assert await found(assigneeUsername=["else"]) == "b"
        assert await found(mergeWhenBuildSucceeds=True) == "e%"
        assert await found(mergeWhenBuildSucceeds=False, state=["OPENED"]) == "a"
        assert await found(search="%") == "e%"
        assert await found(created={"since": at(2).isoformat(), "until": at(4).isoformat()}) == "cb"
        assert await found(updated={"since": at(9).isoformat(), "until": at(10).isoformat()}) == "a"
        assert await found(merged={"since": at(5).isoformat()}) == "c"
        assert await found(merged={"until": at(5).isoformat()}) == ""

    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            (None, "cba"),
            ({"field": "CREATED_AT", "direction": "ASC"}, "abc"),
            ({"field": "UPDATED_AT"}, "bca"),
            ({"field": "MERGED_AT"}, "ab"),
            ({"field": "MERGED_AT", "direction": "ASC"}, "ba"),
        ],
    )
    async def test_orders(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, order: dict[str, str] | None, expected: str
    ) -> None:
        merged = MergeRequestState.MERGED
        await make.merge_request(project, title="a", created_at=at(1), updated_at=at(1), state=merged, merged_at=at(9))
        await make.merge_request(project, title="b", created_at=at(2), updated_at=at(9), state=merged, merged_at=at(8))
        await make.merge_request(project, title="c", created_at=at(3), updated_at=at(3))
        found, after = "", None
        while True:
            page = (await ask.data(LIST, owner, path=str(project.id), orderBy=order, first=1, after=after))["project"]["mergeRequests"]
            found += page["nodes"][0]["title"]
            assert page["totalCount"] == len(expected)
            if not page["pageInfo"]["hasNextPage"]:
                break
            after = page["pageInfo"]["endCursor"]

        assert found == expected

    async def test_of_a_milestone(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        milestone = await make.milestone(project)
        await make.merge_request(project, milestone_id=milestone.id, title="In")
        await make.merge_request(project, title="Out")
        query = "query ($path: String!) { project(path: $path) { milestone(iid: 1) { mergeRequests { totalCount nodes { title } } } } }"

        found = (await ask.data(query, owner, path=str(project.id)))["project"]["milestone"]["mergeRequests"]

        assert found == {"totalCount": 1, "nodes": [{"title": "In"}]}


class TestVisibility:
    async def test_where_the_project_shows_none_or_is_hidden(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        row = await make.merge_request(project)
        note = await make.note(row)
        ids = {"ids": [str(global_id("MergeRequest", row.id)), str(global_id("Note", note.id))]}
        nodes = "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename } }"
        assert (await ask.data(nodes, owner, **ids))["nodes"] == [{"__typename": "MergeRequest"}, {"__typename": "Note"}]
        assert (await ask.data(nodes, await make.user(), **ids))["nodes"] == [None, None]

        project.merge_requests_enabled = False
        await make.save(project)

        assert (await ask.data(nodes, owner, **ids))["nodes"] == [None, None]
        assert await ask.codes(LIST, owner, path=str(project.id)) == ["FORBIDDEN"]

    async def test_merge_requests_containing_a_commit(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, history={"commits": 6})
        oid = await make.services.repositories.read(project.id, lambda repository: repository.resolve("topic"))
        assert oid is not None
        switched_off = await make.project(owner=owner, merge_requests_enabled=False)
        for place in (project, await make.project(), switched_off, await make.project(visibility=Visibility.PUBLIC)):
            row = await make.merge_request(place)
            await make.save(tables.MergeRequestCommit(merge_request_id=row.id, position=0, oid=oid))
        query = """query ($path: String!) { project(path: $path) { commit(rev: "topic") {
            mergeRequests { totalCount nodes { projectId } } } } }"""

        found = (await ask.data(query, owner, path=str(project.id)))["project"]["commit"]["mergeRequests"]

        assert found["totalCount"] == len(found["nodes"]) == 2
        assert found["nodes"][-1] == {"projectId": project.id}

    async def test_merge_request_merged_by_a_commit(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, history={"commits": 6})
        oid = await make.services.repositories.read(project.id, lambda repository: repository.resolve("topic"))
        merged = await make.merge_request(project, state=MergeRequestState.MERGED, merge_commit_oid=oid, head_oid=oid)
        await add_commits(make, merged, [oid or ""])
        query = (
            """query ($path: String!) { project(path: $path) { commit(rev: "topic") { mergeRequests { totalCount nodes { iid } } } } }"""
        )

        assert (await ask.data(query, owner, path=str(project.id)))["project"]["commit"]["mergeRequests"] == {
            "totalCount": 1,
            "nodes": [{"iid": 1}],
        }
        other = await make.merge_request(project, state=MergeRequestState.MERGED, merge_commit_oid=oid)
        assert [
            each["iid"] for each in (await ask.data(query, owner, path=str(project.id)))["project"]["commit"]["mergeRequests"]["nodes"]
        ] == [
            other.iid,
            merged.iid,
        ]

    async def test_one_by_its_number_or_id_within_its_project(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        row, other = await make.merge_request(project), await make.project(owner=owner)
        query = "query ($path: String!, $iid: Int, $id: Int) { project(path: $path) { mergeRequest(iid: $iid, databaseId: $id) { iid } } }"

        assert (await ask.data(query, owner, path=str(project.id), iid=1))["project"]["mergeRequest"] == {"iid": 1}
        assert (await ask.data(query, owner, path=str(project.id), id=row.id))["project"]["mergeRequest"] == {"iid": 1}
        assert await ask.codes(query, owner, path=str(other.id), id=row.id) == ["NOT_FOUND"]
        assert await ask.codes(query, owner, path=str(project.id), iid=2) == ["NOT_FOUND"]


class TestNotes:
    CREATE = """mutation ($input: CreateNoteInput!) { createNote(input: $input) {
        note { id body upvote noteableType restPath } userErrors { code } } }"""

    async def test_written_counted_and_answered(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        row, somebody = await make.merge_request(project), await make.user()
        await make.note(row, author=owner, created_at=at(1))
        await make.note(row, author=somebody, system=True, created_at=at(2))
        await make.note(row, author=somebody, created_at=at(4))
        await make.note(row, author=somebody, created_at=at(3))

        found = await merge_request_fields(ask, owner, row, "noteCount firstResponseAt notes { totalCount }")

        assert found == {"noteCount": 3, "firstResponseAt": "2020-01-03T00:00:00.000000Z", "notes": {"totalCount": 4}}

    async def test_thumbs_are_votes_once_each(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        row = await make.merge_request(project)
        somebody = await make.user()
        await make.member(project, somebody, AccessLevel.GUEST)
        expected = {"projectPath": str(project.id), "mergeRequestIid": row.iid, "body": ":+1:"}

        note = (await ask.data(self.CREATE, owner, input=expected))["createNote"]["note"]
        assert (note["body"], note["upvote"], note["noteableType"]) == ("thumbsup", True, "MERGE_REQUEST")
        assert note["restPath"].startswith(f"/api/v3/projects/{project.id}/merge_requests/{row.id}/notes/")
        assert await ask.codes(self.CREATE, owner, input=expected) == ["TAKEN"]
        await ask.data(self.CREATE, somebody, input={**expected, "body": ":-1:"})

        assert await merge_request_fields(ask, owner, row, "upvotes downvotes") == {"upvotes": 1, "downvotes": 1}

    async def test_are_named_and_found_under_their_merge_request(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        row, other = await make.merge_request(project), await make.merge_request(project)
        note = await make.note(row, author=owner)
        update = "mutation ($input: UpdateNoteInput!) { updateNote(input: $input) { note { body } userErrors { code } } }"
        expected = {"projectPath": str(project.id), "databaseId": note.id, "body": "New"}

        assert await ask.codes(update, owner, input={**expected, "mergeRequestDatabaseId": other.id}) == ["NOT_FOUND"]
        data = await ask.data(update, owner, input={**expected, "mergeRequestDatabaseId": row.id})
        assert data["updateNote"]["note"] == {"body": "New"}
        query = """query ($path: String!, $id: Int!, $note: Int!) { project(path: $path) { mergeRequest(databaseId: $id) {
            note(databaseId: $note) { body mergeRequest { iid } } } } }"""
        found = await ask.data(query, owner, path=str(project.id), id=row.id, note=note.id)
        assert found["project"]["mergeRequest"]["note"] == {"body": "New", "mergeRequest": {"iid": row.iid}}
        assert await ask.codes(query, owner, path=str(project.id), id=other.id, note=note.id) == ["NOT_FOUND"]

    async def test_go_to_the_ghost_with_the_merge_request(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        author, admin = await make.user(), await make.admin()
        row = await make.merge_request(
            project, author=author, assignee_id=author.id, state=MergeRequestState.MERGED, merge_user_id=author.id
        )
        await make.note(row, author=author)

        await ask.data("mutation ($id: Int!) { deleteUser(input: {databaseId: $id}) { userErrors { code } } }", admin, id=author.id)

        found = await merge_request_fields(ask, owner, row, "author { username } assignee { username } mergedBy { username } noteCount")
        assert found == {"author": {"username": "ghost"}, "assignee": None, "mergedBy": None, "noteCount": 1}


class TestCommits:
    QUERY = """query ($path: String!, $first: Int, $after: String, $offset: Int) { project(path: $path) { mergeRequest(iid: 1) {
        commits(first: $first, after: $after, offset: $offset) { totalCount nodes { oid } pageInfo { hasNextPage endCursor } } } } }"""

    async def test_pages(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, history={"commits": 6})
        page = await ask.data("query ($path: String!) { project(path: $path) { commits { nodes { oid } } } }", owner, path=str(project.id))
        oids = [commit["oid"] for commit in page["project"]["commits"]["nodes"]][:3]
        row = await make.merge_request(project, head_oid=oids[0], commit_count=3)
        await add_commits(make, row, oids)

        async def commits(**arguments: Any) -> Any:
            return (await ask.data(self.QUERY, owner, path=str(project.id), **arguments))["project"]["mergeRequest"]["commits"]

        first = await commits(first=2)
        assert ([each["oid"] for each in first["nodes"]], first["totalCount"]) == (oids[:2], 3)
        assert first["pageInfo"]["hasNextPage"] is True
        rest = await commits(after=first["pageInfo"]["endCursor"])
        assert ([each["oid"] for each in rest["nodes"]], rest["pageInfo"]["hasNextPage"]) == (oids[2:], False)
        assert [each["oid"] for each in (await commits(first=1, offset=1))["nodes"]] == oids[1:2]
        assert await ask.codes(self.QUERY, owner, path=str(project.id), after="x") == ["BAD_REQUEST"]

    async def test_are_null_with_an_error_where_the_repository_lost_them(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        row = await make.merge_request(project, head_oid="a" * 40, commit_count=1)
        await make.save(tables.MergeRequestCommit(merge_request_id=row.id, position=0, oid="a" * 40))

        outcome = await ask(self.QUERY, owner, path=str(project.id))

        assert [str(problem.code) for problem in outcome.errors] == ["UNAVAILABLE"]
        assert outcome.data == {"project": {"mergeRequest": {"commits": None}}}
        assert await merge_request_fields(ask, owner, row, "headCommit { oid }") == {"headCommit": None}


class TestBlockers:
    @pytest.mark.parametrize(
        ("columns", "expected"),
        [
            ({"merge_status": MergeStatus.CAN_BE_MERGED}, []),
            ({"merge_status": MergeStatus.UNCHECKED}, []),
            ({"merge_status": MergeStatus.CANNOT_BE_MERGED}, ["CONFLICT"]),
            ({"commit_count": 0, "merge_status": MergeStatus.CANNOT_BE_MERGED}, ["NO_COMMITS"]),
            ({"head_oid": None, "commit_count": None}, ["NO_COMMITS"]),
            ({"title": "WIP: a"}, ["WORK_IN_PROGRESS"]),
            ({"state": MergeRequestState.CLOSED, "title": "WIP: a"}, ["CLOSED"]),
            ({"state": MergeRequestState.MERGED}, ["MERGED"]),
        ],
    )
    async def test_of_the_row(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, columns: dict[str, Any], expected: list[str]
    ) -> None:
        row = await make.merge_request(project, **{"head_oid": "a" * 40, "commit_count": 1, **columns})

        assert (await merge_request_fields(ask, owner, row, "blockers"))["blockers"] == expected

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (CheckStatus.PENDING, ["BUILD_RUNNING"]),
            (CheckStatus.RUNNING, ["BUILD_RUNNING"]),
            (CheckStatus.FAILED, ["BUILD_FAILED"]),
            (CheckStatus.CANCELED, ["BUILD_FAILED"]),
            (CheckStatus.SUCCESS, []),
        ],
    )
    async def test_build_blockers_require_permission(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, status: CheckStatus, expected: list[str]
    ) -> None:
        guest = await make.user()
        await make.member(project, guest, AccessLevel.GUEST)
        row = await make.merge_request(project, head_oid="a" * 40, commit_count=1)
        await make.commit_status(project, "a" * 40, status=status)

        assert (await merge_request_fields(ask, owner, row, "blockers"))["blockers"] == expected
        assert (await merge_request_fields(ask, guest, row, "blockers"))["blockers"] == ["NO_PERMISSION"]

    async def test_abilities(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        developer, author = await make.user(), await make.user()
        await make.member(project, developer, AccessLevel.DEVELOPER)
        await make.member(project, author, AccessLevel.REPORTER)
        row = await make.merge_request(project, author=author, merge_when_build_succeeds=True)
        fields = "viewerCan { update merge cancelMerge comment }"
        assert (await merge_request_fields(ask, owner, row, fields))["viewerCan"] == dict.fromkeys(
            ("update", "merge", "cancelMerge", "comment"), True
        )
        can = (await merge_request_fields(ask, developer, row, fields))["viewerCan"]
        assert can == {"update": False, "merge": True, "cancelMerge": True, "comment": True}
        can = (await merge_request_fields(ask, author, row, fields))["viewerCan"]
        assert can == {"update": True, "merge": False, "cancelMerge": True, "comment": True}

        await make.save(tables.ProtectedBranch(project_id=project.id, name="master", developers_can_push=False))
        assert (await merge_request_fields(ask, developer, row, fields))["viewerCan"]["merge"] is False

        row.state, row.merge_when_build_succeeds = MergeRequestState.CLOSED, False
        await make.save(row)
        assert (await merge_request_fields(ask, owner, row, fields))["viewerCan"] == {
            "update": True,
            "merge": False,
            "cancelMerge": False,
            "comment": True,
        }
