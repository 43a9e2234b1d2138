"""An index that differs from its repository is repaired: at start, when it is detected, and after a kill."""

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from graph.jobs import maintenance
from graph.rules.git import commit_index, index_reconciler
from storage import index_comparison, tables
from tests.make import DataFactory
from tests.support.git_history import commit_to_branch, git
from tests.support.statements import StatementRecorder


@pytest.fixture
def no_grace_period(make: DataFactory) -> None:
    make.services.index_drift.grace_seconds = 0.0


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    return await make.indexed(await make.project(history={"commits": 8}))


async def index_differs(make: DataFactory, project: tables.Project) -> list[str]:
    return (await index_comparison.compare_index(make.services.database, make.services.repositories, project.id)).describe()


async def run_job(make: DataFactory, *statements: object) -> None:
    async with make.services.database.write_session() as session:
        for statement in statements:
            await session.execute(statement)
        await session.commit()


def change_branch(make: DataFactory, project: tables.Project) -> None:
    """Changes the repository directly: one branch moved, one created, one deleted."""
    path = make.services.repositories.path_of(project.id)
    commit_to_branch(path, "master", {"new": b"new\n"})
    git(path, "branch", "made", "master")
    git(path, "branch", "-D", "topic")


@pytest.mark.usefixtures("no_grace_period")
class TestJob:
    async def test_indexes_projects_imported_before_the_index(self, make: DataFactory) -> None:
        project, empty = await make.project(history={"commits": 8}), await make.project()
        assert await index_differs(make, project) == ["2 branches are not in the index: master, topic", "8 commits are not in the index"]
        await maintenance.run_once(make.services)
        assert await index_differs(make, project) == []
        assert await index_differs(make, empty) == []
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.last_activity_at == project.last_activity_at

    async def test_repairs_changes_made_outside_the_service(self, make: DataFactory, project: tables.Project) -> None:
        change_branch(make, project)
        assert await index_differs(make, project) == [
            "1 branch is not in the index: made",
            "1 branch is somewhere else in the index: master",
            "1 branch is in the index only: topic",
            "1 commit is not in the index",
        ]
        await maintenance.run_once(make.services)
        assert await index_differs(make, project) == []
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.last_activity_at > project.last_activity_at

    async def test_a_first_push_that_was_not_recorded(self, make: DataFactory) -> None:
        project = await make.project()
        source = make.repository_with_history({"commits": 8})
        git(source, "push", "-q", str(make.services.repositories.path_of(project.id)), "master")
        await maintenance.run_once(make.services)
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.default_branch == "master"
        assert await index_differs(make, project) == []

    async def test_checks_all_projects_once_and_then_only_drifted_ones(
        self, make: DataFactory, project: tables.Project, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(index_reconciler, "PROJECTS_PER_RUN", 2)
        projects = [await make.project(history={"commits": 8}) for _ in range(4)]
        for _ in range(3):
            assert make.services.index_drift.checked_up_to is not None
            await index_reconciler.reconcile_drifted(make.services)
        assert make.services.index_drift.checked_up_to is None
        assert [await index_differs(make, each) for each in projects] == [[]] * 4
        change_branch(make, project)
        with statements.assert_at_most(0):
            await index_reconciler.reconcile_drifted(make.services)
        commit_index.flag_drift(make.services, project.id)
        await index_reconciler.reconcile_drifted(make.services)
        assert await index_differs(make, project) == []

    async def test_an_unreadable_repository_is_skipped(self, make: DataFactory, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        path.rename(path.with_suffix(".away"))
        other = await make.project(history={"commits": 8})
        await index_reconciler.reconcile_drifted(make.services)
        assert await index_differs(make, other) == []
        commit_index.flag_drift(make.services, project.id)
        assert make.services.index_drift.next_projects(10) == []

    async def test_a_deleted_project_is_skipped(self, make: DataFactory, project: tables.Project) -> None:
        await run_job(make, delete(tables.Project).where(col(tables.Project.id) == project.id))
        commit_index.flag_drift(make.services, project.id)
        await index_reconciler.reconcile_drifted(make.services)
        assert make.services.index_drift.next_projects(10) == []


class TestGracePeriod:
    async def test_a_difference_may_be_a_push_that_is_being_recorded(self, make: DataFactory, project: tables.Project) -> None:
        change_branch(make, project)
        await index_reconciler.reconcile_drifted(make.services)
        await index_reconciler.reconcile_drifted(make.services)
        assert await index_differs(make, project)
        make.services.index_drift.grace_seconds = 0.0
        await index_reconciler.reconcile_drifted(make.services)
        assert await index_differs(make, project) == []

    async def test_another_difference_gets_its_own(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        drift, now = make.services.index_drift, [100.0]
        monkeypatch.setattr("graph.jobs.index_drift.time.monotonic", lambda: now[0])
        assert not drift.has_persisted(1, "one")
        now[0] += drift.grace_seconds
        assert not drift.has_persisted(1, "two")
        now[0] += drift.grace_seconds
        assert drift.has_persisted(1, "two")

    @pytest.mark.usefixtures("no_grace_period")
    async def test_pushes_being_recorded_are_skipped(self, make: DataFactory, project: tables.Project) -> None:
        change_branch(make, project)
        with make.services.index_drift.recording(project.id):
            await index_reconciler.reconcile_drifted(make.services)
            assert await index_differs(make, project)
        await index_reconciler.reconcile_drifted(make.services)
        assert await index_differs(make, project) == []


class TestRepair:
    async def test_everything_that_can_be_wrong(self, make: DataFactory, project: tables.Project) -> None:
        path = make.services.repositories.path_of(project.id)
        of_project = col(tables.Commit.project_id) == project.id
        root = git(path, "rev-list", "--max-parents=0", "master").split()[0]
        await run_job(
            make,
            delete(tables.Commit).where(of_project, col(tables.Commit.oid) == root),
            update(tables.Commit).where(of_project, col(tables.Commit.oid) == git(path, "rev-parse", "master")).values(oid="1" * 40),
            update(tables.Branch).where(col(tables.Branch.name) == "master").values(oid="1" * 40),
            update(tables.Branch).where(col(tables.Branch.name) == "topic").values(name="gone"),
        )
        assert await index_differs(make, project) == [
            "1 branch is not in the index: topic",
            "1 branch is somewhere else in the index: master",
            "1 branch is in the index only: gone",
            "2 commits are not in the index",
            "1 commit is in the index only",
        ]
        await index_reconciler.rebuild_index(make.services, project.id)
        assert await index_differs(make, project) == []
