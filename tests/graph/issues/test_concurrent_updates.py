"""Issues are changed without a lock where the commit finds out that nobody has changed them since they were read."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from graph.rules.issues import issues
from storage import tables
from storage.database.write_session import WriteSession
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.waiting import wait_for_lock_waiter

UPDATE = """mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) {
  issue { title description notes(first: 5) { nodes { body } } } userErrors { code } } }"""


@pytest.fixture
def interfere(monkeypatch: pytest.MonkeyPatch, make: DataFactory) -> Callable[[Any], None]:
    """`interfere(statement)`: another transaction runs the statement before the next change of an issue is written."""
    notify_changes = issues.notify_changes
    waiting: list[Any] = []

    async def interrupted(*arguments: Any, **settings: Any) -> None:
        while waiting:
            async with make.services.database.write_session() as session:
                await session.execute(waiting.pop())
                await session.commit()
        await notify_changes(*arguments, **settings)

    monkeypatch.setattr(issues, "notify_changes", interrupted)
    return waiting.append


async def test_an_update_keeps_what_another_one_has_changed_meanwhile(
    ask: Ask, make: DataFactory, interfere: Callable[[Any], None]
) -> None:
    issue = await make.issue(await make.project(owner=(owner := await make.user())), title="Old")
    this_issue = col(tables.Issue.id) == issue.id
    for number, change in enumerate(({"description": "Mine"}, {"stateEvent": "CLOSE"}, {"description": "See #1"})):
        interfere(update(tables.Issue).where(this_issue).values(title=f"Theirs {number}"))
        data = await ask.data(UPDATE, owner, input={"projectPath": str(issue.project_id), "databaseId": issue.id, **change})
        assert data["updateIssue"]["issue"]["title"] == f"Theirs {number}"
        row = await make.fetch(tables.Issue, issue.id)
        assert row is not None and row.title == f"Theirs {number}"
    assert (row.description, row.state) == ("See #1", tables.IssueState.CLOSED)
    notes = [note["body"] for note in data["updateIssue"]["issue"]["notes"]["nodes"]]
    assert notes == ["Status changed to closed"]

    interfere(delete(tables.Issue).where(this_issue))
    assert await ask.codes(UPDATE, owner, input={"projectPath": str(issue.project_id), "databaseId": issue.id, "title": "T"}) == [
        "NOT_FOUND"
    ]


async def test_the_answer_shows_an_assignee_that_another_one_has_set_meanwhile(
    planned_ask: Ask, make: DataFactory, interfere: Callable[[Any], None]
) -> None:
    issue = await make.issue(await make.project(owner=(owner := await make.user())), assignee_id=owner.id)
    query = """mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) {
      issue { title assignee { username } } userErrors { code } } }"""
    for number in range(2):
        other = await make.user()
        interfere(update(tables.Issue).where(col(tables.Issue.id) == issue.id).values(assignee_id=other.id))
        change = {"projectPath": str(issue.project_id), "databaseId": issue.id, "title": f"Mine {number}"}
        changed = (await planned_ask.data(query, owner, input=change))["updateIssue"]["issue"]
        assert changed == {"title": f"Mine {number}", "assignee": {"username": other.username}}


async def test_a_change_of_a_description_reads_once_and_writes_once(
    planned_ask: Ask, make: DataFactory, statements: StatementRecorder
) -> None:
    project = await make.project(owner=(owner := await make.user()))
    issue = await make.issue(project, author=(author := await make.user()))
    query = """mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) {
      issue { description author { username } } userErrors { code } } }"""
    for number in range(3):
        change = {"projectPath": str(project.id), "databaseId": issue.id, "description": f"Text {number}"}
        with statements.record() as recorded:
            changed = (await planned_ask.data(query, owner, input=change))["updateIssue"]["issue"]
        assert changed == {"description": f"Text {number}", "author": {"username": author.username}}
    assert len(recorded) == 2, recorded


async def test_an_update_that_waits_for_another_one_keeps_what_it_has_changed(ask: Ask, make: DataFactory) -> None:
    database = make.services.database
    if database.dialect != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    issue = await make.issue(await make.project(owner=(owner := await make.user())), title="Old")
    change = {"projectPath": str(issue.project_id), "databaseId": issue.id, "description": "Mine"}
    async with database.write_session() as other:
        await other.execute(update(tables.Issue).where(col(tables.Issue.id) == issue.id).values(title="Theirs"))
        waiting = asyncio.create_task(ask.data(UPDATE, owner, input=change))
        await wait_for_lock_waiter(database)
        await other.commit()
    found = (await waiting)["updateIssue"]["issue"]
    assert (found["title"], found["description"]) == ("Theirs", "Mine")


async def test_a_version_may_exceed_an_integer(ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL counts transactions up to 2**32. This one has not written the row, which is therefore locked."""
    keep_version = WriteSession.keep_version
    monkeypatch.setattr(WriteSession, "keep_version", lambda session, row, _: keep_version(session, row, 2**32 - 1))
    issue = await make.issue(await make.project(owner=(owner := await make.user())))
    change = {"projectPath": str(issue.project_id), "databaseId": issue.id, "description": "Mine"}
    assert (await ask.data(UPDATE, owner, input=change))["updateIssue"]["issue"]["description"] == "Mine"
