"""A session that changes rows without a lock writes everything in one batch, or nothing."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import delete, event, select, update
from sqlmodel import col

from storage import tables
from storage.database.engine import Database
from storage.database.write_session import WriteSession
from storage.database.writers import ConcurrentChange
from storage.tables.accounts.members import project_with_child
from storage.tables.git.refs import MOVE, GitRef, insert_refs, move_values
from storage.tables.issues import issues
from storage.tables.projects import projects
from tests.make import DataFactory
from tests.support.database.statements import StatementRecorder
from tests.test_databases import group

OLD, NEW = "1" * 40, "2" * 40
BRANCH = "refs/heads/master"


@dataclass
class BatchScenario:
    """A project with an issue and a ref, which a batch changes."""

    database: Database
    project_id: int
    issue_id: int

    async def change(self, session: WriteSession, path: str = "deferred") -> bool:
        """Changes two rows, moves the ref, and inserts a namespace and a ref; returns whether everything was left to the commit."""
        ((project,),) = await session.read(select(tables.Project).where(col(tables.Project.id) == self.project_id))
        ((issue,),) = await session.read(select(tables.Issue).where(col(tables.Issue.id) == self.issue_id))
        is_left = all(session.lock_later(row) for row in (project, issue))
        if not is_left:
            ((project,),) = await session.read(projects.for_update(self.project_id))
            ((issue,),) = await session.read(issues.for_update(self.issue_id))
        project.description, issue.title = "Changed project", "Changed issue"
        values = move_values(self.project_id, BRANCH, OLD, NEW, None)
        if not session.require_later(MOVE, values):
            assert not is_left
            assert (await session.execute(MOVE, values)).first() is not None
        session.add_deferred(group(path))
        session.insert_later(insert_refs(), [self.ref_row("refs/heads/new", NEW)])
        return is_left

    def ref_row(self, name: str, oid: str) -> dict[str, Any]:
        return {"project_id": self.project_id, "name": name, "oid": oid, "peeled_oid": None, "is_indexed": False}

    async def execute(self, statement: Any) -> None:
        """In a transaction of its own, as another process would."""
        async with self.database.write_session() as session:
            await session.execute(statement)
            await session.commit()

    async def state(self) -> tuple[str | None, str, dict[str, str], bool]:
        """The description of the project, the title of the issue, the refs, and whether there is a new namespace."""
        async with self.database.read_session() as session:
            ((description,),) = await session.read(select(col(tables.Project.description)).where(col(tables.Project.id) == self.project_id))
            ((title,),) = await session.read(select(col(tables.Issue.title)).where(col(tables.Issue.id) == self.issue_id))
            refs = dict(map(tuple, await session.read(select(col(GitRef.name), col(GitRef.oid)))))
            found = await session.read(select(col(tables.Namespace.id)).where(col(tables.Namespace.path) == "deferred"))
        return description, title, refs, bool(found)


@pytest.fixture
async def batch(make: DataFactory) -> BatchScenario:
    project = await make.project(description="A project")
    scenario = BatchScenario(make.services.database, project.id, (await make.issue(project, title="An issue")).id)
    async with scenario.database.write_session() as session:
        session.insert_later(insert_refs(), [scenario.ref_row(BRANCH, OLD)])
        await session.commit()
    return scenario


DONE = ("Changed project", "Changed issue", {BRANCH: NEW, "refs/heads/new": NEW}, True)


class TestBatch:
    async def test_writes_everything_without_a_lock(self, batch: BatchScenario, statements: StatementRecorder) -> None:
        async with batch.database.write_session() as session:
            session.may_repeat = True
            with statements.record() as seen:
                assert await batch.change(session)
                assert [statement.split()[0] for statement in seen] == ["SELECT", "SELECT"]
                await session.commit()
        assert len(seen) == 7
        assert not any("FOR NO KEY UPDATE" in statement for statement in seen)
        assert await batch.state() == DONE

    @pytest.mark.parametrize("changed", ["project", "issue", "ref", "namespace"])
    async def test_writes_nothing_after_a_concurrent_change(self, batch: BatchScenario, changed: str) -> None:
        """The last case is an error in the middle of the batch: the path is in use."""
        concurrent: dict[str, Any] = {
            "project": update(tables.Project).values(description="Of another"),
            "issue": update(tables.Issue).values(title="Of another"),
            "ref": update(GitRef).values(oid="3" * 40),
            "namespace": update(tables.Namespace).values(path_key="deferred"),
        }
        async with batch.database.write_session() as session:
            session.may_repeat = True
            assert await batch.change(session)
            await batch.execute(concurrent[changed])
            before = await batch.state()
            with pytest.raises(ConcurrentChange):
                await session.commit()
        assert await batch.state() == before
        assert before != DONE

        if changed in ("project", "issue"):
            # The repetition locks, and therefore succeeds.
            async with batch.database.write_session() as session:
                assert not await batch.change(session)
                await session.commit()
            assert await batch.state() == DONE

    async def test_locks_rows_before_the_first_statement_of_the_transaction(
        self, batch: BatchScenario, statements: StatementRecorder
    ) -> None:
        """Also rows that have not changed yet: other transactions lock a row before what belongs to it."""
        for is_concurrent in (False, True):
            async with batch.database.write_session() as session:
                session.may_repeat = True
                ((issue,),) = await session.read(select(tables.Issue).where(col(tables.Issue.id) == batch.issue_id))
                assert session.lock_later(issue)
                detach = delete(tables.IssueLabel).where(col(tables.IssueLabel.issue_id) == batch.issue_id)
                if is_concurrent:
                    await batch.execute(update(tables.Issue).values(title="Of another"))
                    with pytest.raises(ConcurrentChange):
                        await session.execute(detach)
                else:
                    with statements.record() as seen:
                        await session.execute(detach)
                    assert [statement.split()[0] for statement in seen][-2:] == ["SELECT", "DELETE"]

    async def test_a_row_that_keeps_its_values_begins_no_transaction(self, batch: BatchScenario) -> None:
        """A changed row beside it is written all the same."""
        begun: list[Any] = []
        event.listen(batch.database.write_engine.sync_engine, "begin", begun.append)
        for title in (None, "Changed issue"):
            async with batch.database.write_session() as session:
                session.may_repeat = True
                ((project,),) = await session.read(select(tables.Project).where(col(tables.Project.id) == batch.project_id))
                ((issue,),) = await session.read(select(tables.Issue).where(col(tables.Issue.id) == batch.issue_id))
                assert session.lock_later(project)
                project.description = "A project"
                if title is not None:
                    issue.title = title
                await session.commit()
            assert bool(begun) is (title is not None)
        assert (await batch.state())[:2] == ("A project", "Changed issue")

    @pytest.mark.parametrize("is_read_before", [False, True])
    async def test_a_row_that_was_read_before_its_version_is_compared_by_its_columns(
        self, batch: BatchScenario, statements: StatementRecorder, is_read_before: bool
    ) -> None:
        if batch.database.dialect != "postgresql":
            pytest.skip("SQLite's rows have no versions")
        lookup = project_with_child(tables.Issue, "id", by_path=False, with_versions=True)
        values = {"id": batch.project_id, "value": batch.issue_id, "user_id": 0}
        async with batch.database.write_session() as session:
            session.may_repeat = True
            if is_read_before:
                await session.read(select(tables.Issue).where(col(tables.Issue.id) == batch.issue_id))
                await batch.execute(update(tables.Issue).values(title="Of another"))
            ((*_, issue, _, version),) = await session.read(lookup, values)
            session.keep_version(issue, version)
            assert session.lock_later(issue)
            issue.description = "Changed"
            if is_read_before:
                with pytest.raises(ConcurrentChange):
                    await session.commit()
            else:
                with statements.record() as seen:
                    await session.commit()
                assert "xmin" in seen[0]
                assert "issues.title" not in seen[0]
