"""A mutation that uses what an earlier one has read answers as if it had read it itself, whatever another process has changed meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from storage import tables
from storage.database.engine import Database
from storage.database.statements import known_reads
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

NOTE = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { note { body } userErrors { code } } }"
ISSUE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { title iid } userErrors { code } } }"
UPDATE = "mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { userErrors { code } } }"
OWN_CHANGES: Mapping[str, dict[str, Any]] = {
    "one statement": {"description": "Changed"},
    "a batch": {"stateEvent": "CLOSE"},
    "the ORM": {"labels": ["one"]},
}
"""Changes of the issue, by how they are written."""


@dataclass
class KnownProject:
    """A private project whose developer has just written a note on its issue, and created another issue."""

    ask: Ask
    make: DataFactory
    project: tables.Project
    issue: tables.Issue
    owner: tables.User
    developer: tables.User
    note_input: dict[str, Any]
    issue_input: dict[str, Any]

    @property
    def database(self) -> Database:
        return self.make.services.database

    async def note(self) -> Any:
        return await self.ask(NOTE, self.developer, input=self.note_input)

    async def new_issue(self, **input: Any) -> Any:
        return await self.ask(ISSUE, self.developer, input={**self.issue_input, **input})

    async def outcomes(self) -> list[tuple[list[Any], Any]]:
        return [([error.code for error in each.errors], each.data) for each in (await self.note(), await self.new_issue())]

    async def change(self, *statements: Any) -> None:
        """In a transaction of its own, as another process would."""
        async with self.database.write_session() as session:
            for statement in statements:
                await session.execute(statement)
            await session.commit()

    async def counts(self) -> tuple[int, int, int]:
        return await self.make.count(tables.Note), await self.make.count(tables.Issue), await self.make.count(tables.Activity)


@pytest.fixture
async def known(ask: Ask, make: DataFactory) -> KnownProject:
    developer, owner = await make.user(), await make.user()
    project = await make.project(owner=owner)
    await make.member(project, developer, AccessLevel.DEVELOPER)
    issue, path = await make.issue(project), f"{owner.username}/{project.path}"
    note_input = {"projectPath": path, "issueDatabaseId": issue.id, "body": "A note"}
    scenario = KnownProject(ask, make, project, issue, owner, developer, note_input, {"projectPath": path, "title": "New"})
    await scenario.note()
    await scenario.new_issue()
    return scenario


MEMBER, PROJECT = tables.ProjectMember, tables.Project
REFUSING: Mapping[str, Any] = {
    "the member was removed": delete(MEMBER),
    "issues were switched off": update(PROJECT).values(issues_enabled=False),
    "the project has another path": update(PROJECT).values(path="moved", path_key="moved"),
}
"""What another process changes, so that a write that names the project by its path is refused."""


class TestKnownReads:
    async def test_a_second_write_reads_nothing_on_postgresql(self, known: KnownProject, statements: StatementRecorder) -> None:
        reads = 0 if known.database.dialect == "postgresql" else 1
        for write in (known.note, known.new_issue):
            with statements.record() as seen:
                outcome = await write()
            assert outcome.errors == []
            assert sum(statement.startswith("SELECT") for statement in seen) == reads
            assert reads or len(seen) == 1

    async def test_numbers_are_those_of_the_new_rows(self, known: KnownProject) -> None:
        numbers = [(await known.new_issue()).data["createIssue"]["issue"]["iid"] for _ in range(3)]
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]

    async def test_the_answer_shows_what_another_process_has_changed(self, known: KnownProject) -> None:
        text = (
            "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { project { description } } userErrors { code } } }"
        )
        for description in ("Before", "After"):
            await known.change(update(PROJECT).values(description=description))
            data = await known.ask.data(text, known.developer, input=known.issue_input)
            assert data["createIssue"]["issue"] == {"project": {"description": description}}

    @pytest.mark.parametrize("input", OWN_CHANGES.values(), ids=OWN_CHANGES)
    async def test_what_this_process_has_changed_is_read_once_more(
        self, known: KnownProject, statements: StatementRecorder, input: dict[str, Any]
    ) -> None:
        """A write that relied on an outdated read would be sent twice."""
        path = known.note_input["projectPath"]
        changed = {"projectPath": path, "databaseId": known.issue.id, **input}
        assert await known.ask.codes(UPDATE, known.developer, input=changed) == []
        with statements.record() as seen:
            assert (await known.note()).errors == []
        assert sum(statement.startswith("SELECT") for statement in seen) == 1
        assert known.database.dialect == "sqlite" or len(seen) == 2

    async def test_what_a_mutation_changes_of_the_project_is_read_once_more(
        self, known: KnownProject, statements: StatementRecorder
    ) -> None:
        text = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { code } } }"
        assert await known.ask.codes(text, known.owner, input={"projectPath": str(known.project.id), "description": "Changed"}) == []
        for write in (known.note, known.new_issue):
            with statements.record() as seen:
                assert (await write()).errors == []
            assert sum(statement.startswith("SELECT") for statement in seen) == 1

    async def test_keeps_nothing_of_what_it_has_forgotten(self, known: KnownProject) -> None:
        reads = known.database.known_reads
        if reads is None:
            pytest.skip("SQLite reads each time")
        await known.change(update(PROJECT).values(description="Changed"))
        await known.outcomes()
        assert len(reads._reads) == 2
        reads.forget([(PROJECT, known.project.id)])
        assert (len(reads._reads), reads._keys) == (0, {})

    async def test_is_read_again_after_a_new_connection(self, known: KnownProject, statements: StatementRecorder) -> None:
        """It may be to a server on which another transaction has the number of a known version."""
        if known.database.dialect != "postgresql":
            pytest.skip("SQLite reads each time")
        connection = await known.database.connect_unpooled()
        await connection.close()
        for write in (known.note, known.new_issue):
            with statements.record() as seen:
                assert (await write()).errors == []
            assert sum(statement.startswith("SELECT") for statement in seen) == 1

    @pytest.mark.parametrize("change", REFUSING)
    async def test_a_change_that_forbids_the_write_counts(self, known: KnownProject, change: str) -> None:
        """The last outcome is of a process that knows nothing."""
        await known.change(REFUSING[change])
        before = await known.counts()

        outcomes = [await known.outcomes(), await known.outcomes()]
        known.database.known_reads = None

        assert outcomes == [await known.outcomes()] * 2
        assert all(codes for codes, _ in outcomes[0])
        assert await known.counts() == before

    async def test_a_deleted_issue_is_not_found(self, known: KnownProject) -> None:
        await known.change(delete(tables.Note), delete(tables.Issue).where(col(tables.Issue.id) == known.issue.id))
        before = await known.counts()
        assert [error.code for error in (await known.note()).errors] == ["NOT_FOUND"]
        assert await known.counts() == before

    async def test_a_refusal_is_read_again(self, known: KnownProject) -> None:
        await known.change(delete(MEMBER))
        assert await known.ask.codes(ISSUE, known.developer, input=known.issue_input) == ["NOT_FOUND"]
        assert await known.ask.codes(ISSUE, known.developer, input=known.issue_input) == ["NOT_FOUND"]
        await known.make.member(known.project, known.developer, AccessLevel.DEVELOPER)
        assert await known.ask.codes(ISSUE, known.developer, input=known.issue_input) == []

    async def test_what_the_orm_writes_is_verified_too(self, known: KnownProject) -> None:
        """The labels of an issue are rows of their own."""
        assert (await known.new_issue(labels=["one"])).errors == []
        await known.change(delete(MEMBER))
        before = await known.counts()
        assert [error.code for error in (await known.new_issue(labels=["two"])).errors] == ["NOT_FOUND"]
        assert await known.counts() == before
        assert await known.make.count(tables.Label) == 1

    @pytest.mark.parametrize("is_outdated", [False, True])
    async def test_a_hook_receives_its_event(self, known: KnownProject, is_outdated: bool) -> None:
        await known.make.save(tables.Hook(url="http://hooks.example/", note_events=True))
        known.make.services.outbox.record_hook_change()
        if is_outdated:
            await known.change(update(PROJECT).values(description="Changed"))
        assert (await known.note()).errors == []
        assert await known.make.count(tables.Event) == 1

    async def test_a_change_during_the_mutation_counts(self, known: KnownProject, monkeypatch: pytest.MonkeyPatch) -> None:
        """The member is removed when everything has been decided, before the first statement is sent."""
        if known.database.dialect != "postgresql":
            pytest.skip("SQLite reads before it writes")
        write, before = known.database.write, await known.counts()

        async def change_and_write(*arguments: Any) -> list[int]:
            monkeypatch.undo()
            await known.change(delete(MEMBER))
            return await write(*arguments)

        monkeypatch.setattr(known.database, "write", change_and_write)
        assert [error.code for error in (await known.note()).errors] == ["NOT_FOUND"]
        assert await known.counts() == before

    async def test_a_lost_connection_does_not_repeat_the_write(self, known: KnownProject, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody knows whether it has succeeded."""
        write, attempts = known.database.write, []

        async def write_and_fail(*arguments: Any) -> list[int]:
            attempts.append(await write(*arguments))
            raise ConnectionError

        monkeypatch.setattr(known.database, "write", write_and_fail)
        before = await known.make.count(tables.Note)
        assert (await known.note()).errors
        assert len(attempts) == 1
        assert await known.make.count(tables.Note) == before + 1

    async def test_is_read_again_when_it_is_old(
        self, known: KnownProject, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(known_reads, "MAX_AGE_SECONDS", -1.0)
        with statements.record() as seen:
            assert (await known.note()).errors == []
        assert sum(statement.startswith("SELECT") for statement in seen) == 1

    async def test_a_version_may_exceed_an_integer(self, known: KnownProject, monkeypatch: pytest.MonkeyPatch) -> None:
        """PostgreSQL counts transactions up to 2**32."""
        find = known_reads.KnownReads.find

        def find_with_late_version(*arguments: Any) -> Any:
            found = find(*arguments)
            return found and replace(found, values={**found.values, "known_version_0": 2**32 - 1})

        monkeypatch.setattr(known_reads.KnownReads, "find", find_with_late_version)
        assert (await known.note()).errors == []
        assert await known.make.count(tables.Note) == 2

    async def test_is_of_one_viewer(self, known: KnownProject) -> None:
        other = await known.make.user()
        assert await known.ask.codes(NOTE, other, input=known.note_input) == ["NOT_FOUND"]
        assert await known.ask.codes(ISSUE, other, input=known.issue_input) == ["NOT_FOUND"]
