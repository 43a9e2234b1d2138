"""Subscriptions to issues: an event for each change that the page of an issue shows, however it is made."""

from typing import Any

import pytest

from graph.context import Services
from graph.live.subscription_streams import SubscriptionStream
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.servers.streams import next_event, open_stream, queued_events, rejection_code, subscribed

CHANGED = """subscription ($projects: [String!], $after: String) { issueChanged(projects: $projects, afterSeq: $after) {
    seq from to at issue { iid title labels state newest: notes(last: 1) { nodes { body } } } } }"""
CREATE = "mutation ($i: CreateIssueInput!) { createIssue(input: $i) { issue { iid databaseId } userErrors { message } } }"
UPDATE = "mutation ($i: UpdateIssueInput!) { updateIssue(input: $i) { userErrors { message } } }"
NOTE = "mutation ($i: CreateNoteInput!) { createNote(input: $i) { note { databaseId } userErrors { message } } }"
UPDATE_NOTE = NOTE.replace("create", "update").replace("Create", "Update")
NO_CHANGE = [("OPENED", "OPENED")]


@pytest.fixture
async def reporter(make: DataFactory) -> tables.User:
    return await make.user("rita")


@pytest.fixture
async def project(make: DataFactory, reporter: tables.User) -> tables.Project:
    return await make.project(members=[(reporter, AccessLevel.REPORTER)])


async def read_events(services: Services, stream: SubscriptionStream) -> list[dict[str, Any]]:
    """New events since the last call."""
    await services.broadcaster.catch_up(services.database)
    found = []
    for next_one in await queued_events(stream):
        assert next_one.result.errors == []
        found.append((next_one.result.data or {})["issueChanged"])
    return found


class TestEvents:
    async def test_changes_are_streamed(
        self, graph: Graph, ask: Ask, make: DataFactory, services: Services, project: tables.Project, reporter: tables.User
    ) -> None:
        milestone = await make.milestone(project)
        place = {"projectPath": str(project.id)}
        async with subscribed(graph, reporter, CHANGED, projects=[str(project.id)]) as stream:

            async def transitions() -> list[tuple[str | None, str]]:
                return [(event["from"], event["to"]) for event in await read_events(services, stream)]

            made = await ask.data(CREATE, reporter, i={**place, "title": "A"})
            iid, key = made["createIssue"]["issue"]["iid"], made["createIssue"]["issue"]["databaseId"]
            (event,) = await read_events(services, stream)
            assert (event["from"], event["to"], event["issue"]["iid"], event["issue"]["title"]) == (None, "OPENED", iid, "A")
            await ask.data(CREATE, reporter, i={**place, "title": "With labels", "labels": ["bug"]})
            assert [event["issue"]["labels"] for event in await read_events(services, stream)] == [["bug"]]

            async def change(**values: Any) -> list[tuple[str | None, str]]:
                done = await ask.data(UPDATE, reporter, i={**place, "iid": iid, **values})
                assert done["updateIssue"]["userErrors"] == []
                return await transitions()

            for values in (
                {"title": "B"},
                {"assigneeId": reporter.id},
                {"milestoneId": milestone.id},
                {"labels": ["bug"]},
            ):
                assert await change(**values) == NO_CHANGE
                assert await change(**values) == []
            assert await change(description="At length") == []
            assert await change(description="Shorter", title="C") == NO_CHANGE
            for body in ("Hm.", "See #2.", ":+1:"):
                written = await ask.data(NOTE, reporter, i={**place, "issueDatabaseId": key, "body": body})
                (event,) = await read_events(services, stream)
                assert (event["from"], event["to"]) == ("OPENED", "OPENED")
                assert event["issue"]["newest"]["nodes"][0]["body"] == ("thumbsup" if body == ":+1:" else body)
            note = {**place, "issueDatabaseId": key, "body": "Hm."}
            written = await ask.data(NOTE, reporter, i=note)
            assert await transitions() == NO_CHANGE
            await ask.data(UPDATE_NOTE, reporter, i={**place, "databaseId": written["createNote"]["note"]["databaseId"], "body": "Well."})
            assert await transitions() == NO_CHANGE
            assert await change(stateEvent="CLOSE") == [("OPENED", "CLOSED")]
            assert await change(stateEvent="CLOSE") == []
            assert await change(stateEvent="REOPEN") == [("CLOSED", "OPENED")]

    async def test_a_change_takes_no_statement_of_its_own_on_postgresql(
        self, ask: Ask, make: DataFactory, services: Services, project: tables.Project, reporter: tables.User, statements: StatementRecorder
    ) -> None:
        """An issue or a note is one statement there, with its activity and its change. On SQLite each is one."""
        issue = await make.issue(project)
        place = {"projectPath": str(project.id)}
        expected = 1 if services.database.dialect == "postgresql" else 3
        for query, values in ((NOTE, {"issueDatabaseId": issue.id, "body": "Hm."}), (CREATE, {"title": "A"})):
            await ask.data(query, reporter, i={**place, **values})
            with statements.record() as sent:
                await ask.data(query, reporter, i={**place, **values})
            inserts = [text for text in sent if "INSERT INTO" in text]
            assert len(inserts) == expected + (query == CREATE and expected > 1)
            assert sum(text.count("INSERT INTO changes") for text in inserts) == 1


class TestRights:
    async def test_hidden_issues_are_not_streamed(
        self, graph: Graph, ask: Ask, make: DataFactory, services: Services, project: tables.Project, reporter: tables.User
    ) -> None:
        stranger = await make.user()
        public = await make.project(members=[(reporter, AccessLevel.REPORTER)], visibility=Visibility.PUBLIC)
        off = await make.project(owner=reporter, issues_enabled=False)
        async with subscribed(graph, stranger, CHANGED) as stream:
            for place, title in ((project, "Hidden"), (public, "Shown")):
                await ask.data(CREATE, reporter, i={"projectPath": str(place.id), "title": title})
            assert [event["issue"]["title"] for event in await read_events(services, stream)] == ["Shown"]
        assert await rejection_code(graph, stranger, CHANGED, projects=[str(project.id)]) == "NOT_FOUND"
        assert await rejection_code(graph, reporter, CHANGED, projects=[str(off.id)]) == "FORBIDDEN"
        assert await rejection_code(graph, None, CHANGED) == "UNAUTHENTICATED"


class TestResuming:
    async def test_resumes_after_the_last_sequence_number(
        self, graph: Graph, ask: Ask, make: DataFactory, project: tables.Project, reporter: tables.User
    ) -> None:
        issue = await make.issue(project)
        build = await make.build(project, "f" * 40)
        await make.save(tables.Change(kind="build", project_id=project.id, build_id=build.id, ref="master", new_state="pending"))
        for title in "abc":
            await ask.data(UPDATE, reporter, i={"projectPath": str(project.id), "iid": issue.iid, "title": title})
        stream = await open_stream(graph, reporter, CHANGED, after="2")
        assert isinstance(stream, SubscriptionStream)
        assert [(await next_event(stream))["seq"] for _ in range(2)] == ["3", "4"]
        assert await stream.next(0.02) is None
        stream.close()
