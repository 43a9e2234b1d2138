"""An index that differs from its repository is found and made equal: at start, when noticed, and after a kill."""

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from graph import upkeep
from graph.rules import indexing, reconciling
from storage import indexed, tables
from tests.history import git, grow
from tests.make import Make
from tests.statements import Statements


@pytest.fixture
def at_once(make: Make) -> None:
    make.services.noticed.grace = 0.0


@pytest.fixture
async def project(make: Make) -> tables.Project:
    return await make.indexed(await make.project(history={"commits": 8}))


async def differs(make: Make, project: tables.Project) -> list[str]:
    return (await indexed.compare(make.services.database, make.services.repositories, project.id)).lines()


async def run(make: Make, *statements: object) -> None:
    async with make.services.database.writing() as session:
        for statement in statements:
            await session.execute(statement)
        await session.commit()


def change(make: Make, project: tables.Project) -> None:
    """Behind the service's back: one branch moved, one made, one gone."""
    path = make.services.repositories.path_of(project.id)
    grow(path, "master", {"new": b"new\n"})
    git(path, "branch", "made", "master")
    git(path, "branch", "-D", "topic")


@pytest.mark.usefixtures("at_once")
class TestChore:
    async def test_what_was_imported_before_there_was_an_index(self, make: Make) -> None:
        project, empty = await make.project(history={"commits": 8}), await make.project()
        assert await differs(make, project) == ["2 branches are not in the index: master, topic", "8 commits are not in the index"]
        await upkeep.once(make.services)
        assert await differs(make, project) == []
        assert await differs(make, empty) == []
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.last_activity_at == project.last_activity_at

    async def test_what_changed_while_nobody_looked(self, make: Make, project: tables.Project) -> None:
        change(make, project)
        assert await differs(make, project) == [
            "1 branch is not in the index: made",
            "1 branch is somewhere else in the index: master",
            "1 branch is in the index only: topic",
            "1 commit is not in the index",
        ]
        await upkeep.once(make.services)
        assert await differs(make, project) == []
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.last_activity_at > project.last_activity_at

    async def test_a_first_push_that_was_not_recorded(self, make: Make) -> None:
        project = await make.project()
        source = make.imported({"commits": 8})
        git(source, "push", "-q", str(make.services.repositories.path_of(project.id)), "master")
        await upkeep.once(make.services)
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.default_branch == "master"
        assert await differs(make, project) == []

    async def test_looks_at_all_projects_once_and_then_at_those_that_were_noticed(
        self, make: Make, project: tables.Project, statements: Statements, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reconciling, "LOOKED_AT_ONCE", 2)
        projects = [await make.project(history={"commits": 8}) for _ in range(4)]
        for _ in range(3):
            assert make.services.noticed.at is not None
            await reconciling.reconcile(make.services)
        assert make.services.noticed.at is None
        assert [await differs(make, each) for each in projects] == [[]] * 4
        change(make, project)
        with statements.at_most(0):
            await reconciling.reconcile(make.services)
        indexing.notice(make.services, project.id)
        await reconciling.reconcile(make.services)
        assert await differs(make, project) == []

    async def test_a_repository_that_cannot_be_read_is_left_alone(self, make: Make, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        path.rename(path.with_suffix(".away"))
        other = await make.project(history={"commits": 8})
        await reconciling.reconcile(make.services)
        assert await differs(make, other) == []
        indexing.notice(make.services, project.id)
        assert make.services.noticed.some(10) == []

    async def test_a_project_that_is_gone(self, make: Make, project: tables.Project) -> None:
        await run(make, delete(tables.Project).where(col(tables.Project.id) == project.id))
        indexing.notice(make.services, project.id)
        await reconciling.reconcile(make.services)
        assert make.services.noticed.some(10) == []


class TestGrace:
    async def test_a_difference_may_be_a_push_that_is_being_recorded(self, make: Make, project: tables.Project) -> None:
        change(make, project)
        await reconciling.reconcile(make.services)
        await reconciling.reconcile(make.services)
        assert await differs(make, project)
        make.services.noticed.grace = 0.0
        await reconciling.reconcile(make.services)
        assert await differs(make, project) == []

    async def test_another_difference_gets_its_own(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        noticed, now = make.services.noticed, [100.0]
        monkeypatch.setattr("graph.noticed.time.monotonic", lambda: now[0])
        assert not noticed.is_old(1, "one")
        now[0] += noticed.grace
        assert not noticed.is_old(1, "two")
        now[0] += noticed.grace
        assert noticed.is_old(1, "two")

    @pytest.mark.usefixtures("at_once")
    async def test_what_this_process_records_is_left_to_it(self, make: Make, project: tables.Project) -> None:
        change(make, project)
        with make.services.noticed.recording(project.id):
            await reconciling.reconcile(make.services)
            assert await differs(make, project)
        await reconciling.reconcile(make.services)
        assert await differs(make, project) == []


class TestRepair:
    async def test_everything_that_can_be_wrong(self, make: Make, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        of_project = col(tables.Commit.project_id) == project.id
        root = git(path, "rev-list", "--max-parents=0", "master").split()[0]
        await run(
            make,
            delete(tables.Commit).where(of_project, col(tables.Commit.oid) == root),
            update(tables.Commit).where(of_project, col(tables.Commit.oid) == git(path, "rev-parse", "master")).values(oid="1" * 40),
            update(tables.Branch).where(col(tables.Branch.name) == "master").values(oid="1" * 40),
            update(tables.Branch).where(col(tables.Branch.name) == "topic").values(name="gone"),
        )
        assert await differs(make, project) == [
            "1 branch is not in the index: topic",
            "1 branch is somewhere else in the index: master",
            "1 branch is in the index only: gone",
            "2 commits are not in the index",
            "1 commit is in the index only",
        ]
        await reconciling.repair(make.services, project.id)
        assert await differs(make, project) == []
