"""INSERTs that wait until their transaction needs them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlmodel import col

from storage import tables
from storage.database.engine import Database
from storage.tables import ActivityAction, ActivitySubject
from storage.tables.events.activities import insert_activities
from storage.tables.git.branch_moves import BranchMove, insert_moves
from storage.tables.git.refs import GitRef, insert_refs, upsert
from tests.make import DataFactory
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)
OID = "1" * 40


async def count(database: Database, table: Any) -> int:
    async with database.read_session() as session:
        return int(((await session.read(select(func.count(col(table.id)))))[0])[0])


def ref_row(project_id: int, name: str) -> dict[str, Any]:
    return {"project_id": project_id, "name": name, "oid": OID, "peeled_oid": None, "is_indexed": False}


class TestBulkInserts:
    async def test_rows_of_any_number_and_type_are_one_statement_on_postgresql(
        self, make: DataFactory, statements: StatementRecorder
    ) -> None:
        database, project, user = make.services.database, await make.project(), await make.user()
        activity = {"project_id": project.id, "author_id": user.id, "action": ActivityAction.PUSHED, "subject": ActivitySubject.REF}
        pushed = {"ref": 'refs/heads/"a"\\,{b}', "commits": [{"id": OID}, None], "total_commits_count": 1}
        shifted = MOMENT.astimezone(timezone(timedelta(hours=5)))
        for size in (1, 30):
            async with database.write_session() as session:
                for number in range(size):
                    session.insert_later(insert_activities(), [{**activity, "target_id": number, "push": pushed, "created_at": shifted}])
                session.insert_later(insert_activities(), [{**activity, "target_id": None, "push": None, "created_at": MOMENT}])
                move = {"project_id": project.id, "name": '{a,"b"}\'é', "oid": None, "moved_at": MOMENT}
                session.insert_later(insert_moves(), [move] * size)
                with statements.assert_at_most(1 if database.dialect == "postgresql" else 2):
                    await session.commit()
        async with database.read_session() as session:
            rows = [row for (row,) in await session.read(select(tables.Activity).order_by(col(tables.Activity.id)))]
            moves = [row for (row,) in await session.read(select(BranchMove))]
            nulls = await session.read(select(func.count(col(tables.Activity.id))).where(col(tables.Activity.push).is_(None)))
        assert [(row.target_id, row.push, row.created_at) for row in rows[2:-1]] == [(number, pushed, MOMENT) for number in range(30)]
        assert {(row.action, row.subject, row.author_id) for row in rows} == {(ActivityAction.PUSHED, ActivitySubject.REF, user.id)}
        assert (rows[-1].target_id, rows[-1].push, nulls[0][0]) == (None, None, 2)
        assert {(row.name, row.oid, row.moved_at) for row in moves} == {('{a,"b"}\'é', None, MOMENT)}
        assert len(moves) == 31

    async def test_wait_for_statements_that_depend_on_them(self, make: DataFactory) -> None:
        database, project = make.services.database, await make.project()
        row = ref_row(project.id, "refs/heads/x")
        names = select(col(GitRef.name)).where(col(GitRef.project_id) == project.id)
        async with database.write_session() as session:
            await session.execute(select(1))
            session.insert_later(insert_refs(), [row])
            assert await session.read_without_flush(names) == []
            assert await session.read(names) == [("refs/heads/x",)]
            session.insert_later(insert_refs(), [{**row, "name": "refs/heads/y"}])
            assert len((await session.execute(names)).all()) == 2
            session.insert_later(insert_refs(), [{**row, "name": "refs/heads/z"}])
            assert await session.scalar(select(func.count()).select_from(names.subquery())) == 3
            session.insert_later(insert_refs(), [{**row, "name": "refs/heads/lost"}])
            await session.rollback()
            await session.commit()
        assert await count(database, GitRef) == 0

    async def test_conflicts(self, make: DataFactory) -> None:
        database, project = make.services.database, await make.project()
        ref, statement = ref_row(project.id, "refs/heads/x"), upsert(database.dialect)
        for oid in (OID, "2" * 40):
            async with database.write_session() as session:
                session.insert_later(statement, [{**ref, "oid": oid}])
                await session.commit()
        async with database.read_session() as session:
            assert await session.read(select(col(GitRef.name), col(GitRef.oid))) == [("refs/heads/x", "2" * 40)]
        async with database.write_session() as session:
            session.insert_later(statement, [{**ref, "oid": "3" * 40}])
            session.insert_later(insert_refs(), [ref_row(project.id, "refs/heads/y")] * 2)
            with pytest.raises(IntegrityError):
                await session.commit()
        async with database.read_session() as session:
            assert await session.read(select(col(GitRef.name), col(GitRef.oid))) == [("refs/heads/x", "2" * 40)]
