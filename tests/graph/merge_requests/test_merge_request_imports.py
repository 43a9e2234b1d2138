"""Merge requests imported from a history."""

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import select, update

from graph.context import Services
from graph.rules.merge_requests import merge_request_imports, merged_history
from storage import tables
from storage.tables import AccessLevel, MergeRequestState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_to_branch, git, make_history
from tests.support.reliability_promises import promise

IMPORT = "mutation ($path: String!) { importMergeRequests(input: {projectPath: $path}) { project { path } userErrors { code } } }"


PROGRESS = """query ($path: String!) { project(path: $path) { mergeRequestImport {
    state total processed imported known skipped error createdAt updatedAt finishedAt } } }"""


async def import_merge_requests(ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project) -> dict[str, Any]:
    """Starts an import and does it, as the service does in the background; what it then says of itself."""
    await ask.data(IMPORT, viewer, path=str(project.id))
    await merge_request_imports.run_pending(make.services)
    return await progress(ask, viewer, project)


async def progress(ask: Ask, viewer: tables.User, project: tables.Project) -> dict[str, Any]:
    found: dict[str, Any] = (await ask.data(PROGRESS, viewer, path=str(project.id)))["project"]["mergeRequestImport"]
    return found


def merge(path: Path, branch: str, message: str) -> str:
    """Merges the branch into master, without a look at master's own files."""
    oid = git(path, "commit-tree", f"{branch}^{{tree}}", "-p", "master", "-p", branch, "-m", message)
    git(path, "update-ref", "refs/heads/master", oid)
    return oid


def history(folder: Path, *messages: str) -> Path:
    """A repository whose master merged `part0`, `part1`, … with these messages."""
    path = make_history(folder / "app.git", commits=3, merges_every=0).path
    for number, message in enumerate(messages):
        commit_to_branch(path, f"part{number}", {f"{number}.txt": b"one\ntwo\n"}, start="master", message=f"Part {number}")
        merge(path, f"part{number}", message)
    return path


async def merge_request_rows(make: DataFactory, project: tables.Project) -> list[tables.MergeRequest]:
    async with make.services.database.read_session() as session:
        statement = select(tables.MergeRequest).where(tables.MergeRequest.project_id == project.id).order_by(tables.MergeRequest.iid)
        return [row[0] for row in await session.read(statement)]


class TestImport:
    async def test_imports_merge_requests_from_commit_messages(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        owner, author = await make.user(), await make.user(email="author@example.org")
        source = history(tmp_path, "Merge pull request #7 from ada/doors\n\nAdd a door\n", "Merge branch 'walls'\n")
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])

        await import_merge_requests(ask, make, owner, project)

        first, second = await merge_request_rows(make, project)
        assert (first.iid, first.title, first.source_branch, first.target_branch) == (7, "Add a door", "doors", "master")
        assert (second.iid, second.title, second.source_branch) == (8, "Merge branch 'walls'", "walls")
        assert {first.state, second.state} == {MergeRequestState.MERGED}
        assert first.merge_commit_oid == git(source, "rev-parse", "master~1")
        assert first.head_oid == git(source, "rev-parse", "part0")
        assert first.merged_at is not None and first.created_at <= first.merged_at
        assert (first.author_id, first.merge_user_id) == (author.id, author.id)
        assert (first.commit_count, first.files, first.additions, first.deletions) == (1, 1, 2, 0)

    async def test_twice_writes_nothing_more(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        owner = await make.user()
        source = history(tmp_path, "Merge branch 'doors'")
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])
        for _ in range(2):
            await import_merge_requests(ask, make, owner, project)

        assert [row.iid for row in await merge_request_rows(make, project)] == [1]

    async def test_skips_numbers_already_taken(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        owner = await make.user()
        source = history(tmp_path, *("Merge pull request #2 from ada/doors" for _ in range(2)))
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])

        await import_merge_requests(ask, make, owner, project)

        assert [row.iid for row in await merge_request_rows(make, project)] == [2, 3]
        async with make.services.database.read_session() as session:
            counter = await session.get(tables.Counter, (project.id, tables.CounterKind.MERGE_REQUEST))
        assert counter is not None and counter.value == 3

    async def test_sends_no_notifications(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        owner = await make.user()
        await make.save(tables.Hook(url="http://hooks.invalid/", merge_requests_events=True))
        issue_project = await make.project(
            owner=owner, source=history(tmp_path, "Merge branch 'doors'\n\nFixes #1"), members=[(owner, AccessLevel.OWNER)]
        )
        issue = await make.issue(issue_project)

        await import_merge_requests(ask, make, owner, issue_project)

        found = await make.fetch(tables.Issue, issue.id)
        assert found is not None and found.state is tables.IssueState.OPENED
        assert await make.count(tables.Event) == await make.count(tables.Note) == 0

    async def test_requires_an_owner(self, ask: Ask, make: DataFactory) -> None:
        master = await make.user()
        project = await make.project(members=[(master, AccessLevel.MASTER)])

        assert await ask.codes(IMPORT, master, path=str(project.id)) == ["FORBIDDEN"]

    async def test_the_number_of_statements_does_not_depend_on_the_merges(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder, tmp_path: Path
    ) -> None:
        owner = await make.user()
        costs = []
        for name, messages in (("one", ("Merge branch 'a'",)), ("nine", ("Merge branch 'a'",) * 9)):
            source = history(tmp_path / name, *messages)
            project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])
            with statements.record() as seen:
                await import_merge_requests(ask, make, owner, project)
            costs.append(len(seen))
        assert costs[0] == costs[1]


def long_history(path: Path, commits: int) -> Path:
    """A repository of this number of commits, every fourth of which merges the two before it into master."""
    subprocess.run(["git", "init", "-q", "--bare", "--template=", "-b", "master", str(path)], check=True)

    def stream() -> Iterator[str]:
        who = "A U Thor <author@example.org>"
        for number in range(1, commits + 1):
            ref = "refs/heads/master" if number % 4 in (0, 1) else "refs/heads/side"
            message = f"Merge branch 'side{number}'" if number % 4 == 0 else f"Commit {number}"
            yield f"commit {ref}\nmark :{number}\ncommitter {who} {1_400_000_000 + number} +0000\ndata {len(message)}\n{message}\n"
            if number > 1:
                yield f"from :{number - (3 if number % 4 == 0 else 1)}\n"
            if number % 4 == 0:
                yield f"merge :{number - 1}\n"
            text = f"{number}\n"
            yield f"M 100644 inline file{number % 97}\ndata {len(text)}\n{text}\n"

    with subprocess.Popen(["git", "-C", str(path), "fast-import", "--quiet", "--force"], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.writelines(stream())
    assert process.returncode == 0
    return path


class SlowReading:
    """Stops the reading of the first batch until `go_on` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun, self._goes_on = threading.Event(), threading.Event()
        self.go_on = self._goes_on.set
        read = merged_history.read_past_merges

        def read_later(*given: Any, **named: Any) -> Any:
            self._begun.set()
            assert self._goes_on.wait(30)
            return read(*given, **named)

        monkeypatch.setattr(merged_history, "read_past_merges", read_later)

    async def wait_begun(self) -> None:
        assert await asyncio.to_thread(self._begun.wait, 30)


@pytest.fixture
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowReading]:
    monkeypatch.setattr(merge_request_imports, "RENEW_SECONDS", 0.02)
    slow = SlowReading(monkeypatch)
    yield slow
    slow.go_on()


async def wait_for_renewal(make: DataFactory, services: Services) -> None:
    """Waits until the lease of the import lasts nearly as long as one that begins now."""
    async with asyncio.timeout(20):
        while True:
            async with make.services.database.read_session() as session:
                lease_until = await session.scalar(select(tables.MergeRequestImport.lease_until))
            if lease_until is not None and lease_until - services.clock() > merge_request_imports.LEASE_DURATION * 0.9:
                return
            await asyncio.sleep(0.02)


class TestImportJob:
    @pytest.fixture(autouse=True)
    def small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(merge_request_imports, "BATCH_SIZE", 10)

    @pytest.fixture
    async def owner(self, make: DataFactory) -> tables.User:
        return await make.user()

    @pytest.fixture
    async def project(self, make: DataFactory, owner: tables.User, tmp_path: Path) -> tables.Project:
        source = await asyncio.to_thread(long_history, tmp_path / "long.git", 140)
        return await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])

    async def test_returns_immediately_and_reports_progress(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        assert await progress(ask, owner, project) is None
        await ask.data(IMPORT, owner, path=str(project.id))
        queued = await progress(ask, owner, project)
        assert (queued["state"], queued["total"], queued["processed"], queued["finishedAt"]) == ("QUEUED", None, 0, None)
        assert await merge_request_rows(make, project) == []

        reported: list[tuple[str, int, int]] = []
        await merge_request_imports.run_pending(replace(make.services, progress=lambda *step: reported.append(step)))

        done = await progress(ask, owner, project)
        assert done["finishedAt"] is not None
        assert {name: done[name] for name in ("state", "total", "processed", "imported", "known", "skipped", "error")} == {
            "state": "FINISHED",
            "total": 35,
            "processed": 35,
            "imported": 35,
            "known": 0,
            "skipped": 0,
            "error": None,
        }
        assert [step[1:] for step in reported] == [(0, 35), (10, 35), (20, 35), (30, 35), (35, 35)]
        written = await merge_request_rows(make, project)
        assert [row.iid for row in written] == list(range(1, 36))
        assert {(row.commit_count, row.author_id) for row in written} == {(2, owner.id)}

    async def test_skipped_merges_are_reported(self, ask: Ask, make: DataFactory, owner: tables.User, tmp_path: Path) -> None:
        source = history(tmp_path, "Merge branch 'doors'", "Merge branch 'master' of example.org:app", "Anything")
        project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])
        done = await import_merge_requests(ask, make, owner, project)
        assert (done["total"], done["imported"], done["known"], done["skipped"]) == (3, 1, 0, 2)

    async def test_importing_twice_creates_no_duplicates(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await import_merge_requests(ask, make, owner, project)
        again = await import_merge_requests(ask, make, owner, project)
        assert (again["state"], again["processed"], again["imported"], again["known"]) == ("FINISHED", 35, 0, 35)
        assert len(await merge_request_rows(make, project)) == 35

    async def test_restarting_a_running_import_resumes_it(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await asyncio.gather(*(ask.data(IMPORT, owner, path=str(project.id)) for _ in range(4)))
        await asyncio.gather(*(merge_request_imports.run_pending(make.services) for _ in range(4)))
        assert await make.count(tables.MergeRequestImport) == 1
        assert len(await merge_request_rows(make, project)) == (await progress(ask, owner, project))["imported"] == 35

    async def test_resumes_after_a_killed_process(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole, batches = merged_history.write_past_merges, 0

        async def killed(*given: Any) -> Any:
            nonlocal batches
            batches += 1
            written = await whole(*given)
            if batches == 3:
                raise asyncio.CancelledError
            return written

        monkeypatch.setattr(merged_history, "write_past_merges", killed)
        await ask.data(IMPORT, owner, path=str(project.id))
        with pytest.raises(asyncio.CancelledError):
            await merge_request_imports.run_pending(make.services)
        left = await progress(ask, owner, project)
        assert (left["state"], left["processed"], left["imported"]) == ("RUNNING", 20, 20)

        # Its lease has not ended: nobody takes it over yet.
        await merge_request_imports.run_pending(make.services)
        assert (await progress(ask, owner, project))["processed"] == 20

        def later() -> Any:
            return make.services.clock() + 2 * merge_request_imports.LEASE_DURATION

        await merge_request_imports.run_pending(replace(make.services, clock=later))
        done = await progress(ask, owner, project)
        assert (done["state"], done["processed"], done["imported"], done["known"]) == ("FINISHED", 35, 35, 0)
        assert [row.iid for row in await merge_request_rows(make, project)] == list(range(1, 36))

    async def test_a_superseded_job_stops_writing(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = merged_history.load_known_merges

        async def taken_over(*given: Any) -> Any:
            async with make.services.database.write_session() as session:
                moment = make.services.clock() + 3 * merge_request_imports.LEASE_DURATION
                await session.execute(update(tables.MergeRequestImport).values(lease_until=moment))
                await session.commit()
            monkeypatch.setattr(merged_history, "load_known_merges", whole)
            return await whole(*given)

        monkeypatch.setattr(merged_history, "load_known_merges", taken_over)
        await ask.data(IMPORT, owner, path=str(project.id))
        await merge_request_imports.run_pending(make.services)
        assert await merge_request_rows(make, project) == []
        assert (await progress(ask, owner, project))["state"] == "RUNNING"

    async def test_a_batch_that_takes_longer_than_the_lease_keeps_it(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, slow_reading: SlowReading
    ) -> None:
        await ask.data(IMPORT, owner, path=str(project.id))
        offset = timedelta()
        services = replace(make.services, clock=lambda: make.services.clock() + offset)
        running = asyncio.create_task(merge_request_imports.run_pending(services))
        await slow_reading.wait_begun()
        for _ in range(3):
            offset += merge_request_imports.LEASE_DURATION * 0.75
            await wait_for_renewal(make, services)
            assert await merge_request_imports._lease_next(services) is None
        slow_reading.go_on()

        await running
        done = await progress(ask, owner, project)
        assert (done["state"], done["processed"], done["imported"]) == ("FINISHED", 35, 35)

    async def test_a_superseded_job_does_not_wait_for_its_reading(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, slow_reading: SlowReading
    ) -> None:
        await ask.data(IMPORT, owner, path=str(project.id))
        running = asyncio.create_task(merge_request_imports.run_pending(make.services))
        await slow_reading.wait_begun()
        async with make.services.database.write_session() as session:
            moment = make.services.clock() + 3 * merge_request_imports.LEASE_DURATION
            await session.execute(update(tables.MergeRequestImport).values(lease_until=moment))
            await session.commit()

        async with asyncio.timeout(20):
            await running
        slow_reading.go_on()
        assert await merge_request_rows(make, project) == []

    async def test_is_deleted_with_its_project(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = merged_history.load_known_merges

        async def removed(*given: Any) -> Any:
            monkeypatch.setattr(merged_history, "load_known_merges", whole)
            await ask.data(
                "mutation ($path: String!) { deleteProject(input: {projectPath: $path}) { userErrors { code } } }",
                owner,
                path=str(project.id),
            )
            return await whole(*given)

        monkeypatch.setattr(merged_history, "load_known_merges", removed)
        await ask.data(IMPORT, owner, path=str(project.id))
        await merge_request_imports.run_pending(make.services)
        assert await make.count(tables.MergeRequestImport) == await make.count(tables.MergeRequest) == 0

    async def test_an_unexpected_error_fails_it(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would be the same each time that the lease expires."""

        async def fail(*_: object) -> None:
            raise ValueError("what nobody thought of")

        monkeypatch.setattr(merged_history, "load_known_merges", fail)
        await ask.data(IMPORT, owner, path=str(project.id))
        await merge_request_imports.run_pending(make.services)
        assert (await progress(ask, owner, project))["state"] == "FAILED"

    async def test_a_repository_that_cannot_be_read_fails_it(
        self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await ask.data(IMPORT, owner, path=str(project.id))
        make.services.repositories.path_of(project.id).rename(make.services.repositories.root / "away")
        await merge_request_imports.run_pending(make.services)
        done = await progress(ask, owner, project)
        assert done["state"] == "FAILED"
        assert done["error"].endswith("Start the import again.")

    async def test_an_empty_project_has_nothing_to_import(self, ask: Ask, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, history={"commits": 1}, members=[(owner, AccessLevel.OWNER)])
        done = await import_merge_requests(ask, make, owner, project)
        assert (done["state"], done["total"], done["imported"]) == ("FINISHED", 0, 0)

    async def test_is_shown_to_owners(self, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        master = await make.user()
        await make.save(tables.ProjectMember(project_id=project.id, user_id=master.id, access_level=AccessLevel.MASTER))
        await import_merge_requests(ask, make, owner, project)
        assert await progress(ask, master, project) is None


@promise("R24")
async def test_forty_thousand_commits(ask: Ask, make: DataFactory, tmp_path: Path, figure: Callable[[str], None]) -> None:
    owner = await make.user()
    source = await asyncio.to_thread(long_history, tmp_path / "long.git", 40_000)
    project = await make.project(owner=owner, source=source, members=[(owner, AccessLevel.OWNER)])
    started = monotonic()
    done = await import_merge_requests(ask, make, owner, project)
    figure(f"40,000 commits: {done['imported']} of {done['total']} merges imported in {monotonic() - started:.1f} s")
    assert (done["state"], done["total"], done["imported"]) == ("FINISHED", 10_000, 10_000)
