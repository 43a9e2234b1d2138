"""Pipelines: a push of `.gitlab-ci.yml` creates builds, stage by stage (docs/wire-facts.md 5.1, 5.6 and 13.1)."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context, Services
from graph.git_access import GitAccess, RepositoryGrant
from graph.jobs import maintenance
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.builds import builds
from graph.rules.ci import config_parser, pipeline_planner
from graph.rules.git import commit_index, ref_adoption
from graph.rules.merge_requests import merging
from storage import tables
from storage.git.protocol.push import RefCommand
from storage.git.repository import Repository
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_files, git
from tests.support.git.repositories import push as push_refs
from tests.support.merge_requests import MergeRequestFactory, acting, commit_text_files

FILE = config_parser.CONFIG_FILENAME
PENDING, RUNNING, SUCCESS, FAILED, CANCELED, MANUAL = CheckStatus
STAGES = """
compile: {stage: build, script: make, tags: [b, a]}
unit: {script: make test}
lint: {script: make lint, allow_failure: true}
deploy: {stage: deploy, script: make deploy, only: [master]}
alarm: {stage: deploy, script: ring, when: on_failure}
clean: {stage: deploy, script: make clean, when: always}
"""
CREATE = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { branch { name } userErrors { field code } } }"
SHOWN = """query ($path: String!, $filter: PipelineFilter) { project(path: $path) { pipelines(filter: $filter) { totalCount nodes {
  databaseId sha ref tag beforeSha error skipped status createdAt user { username } project { path } commit { title }
  builds { totalCount nodes { name pipeline { databaseId } } }
  stages { name status builds { name status } } } } } }"""
OF_COMMIT = "query ($path: String!, $rev: String!) { project(path: $path) { commit(rev: $rev) { status pipelines { nodes { ref } } } } }"
ACCEPT = "mutation ($input: AcceptMergeRequestInput!) { acceptMergeRequest(input: $input) { mergeRequest { state } userErrors { code } } }"
SWITCH = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { code } } }"
LINT_QUERY = """query ($path: String!, $content: String!, $ref: String) { ciConfig(projectPath: $path, content: $content, ref: $ref) {
  valid errors { message line } stages jobs { name stage commands tags allowFailure runWhen only excepted line } } }"""


class PushScenario:
    """`await pushes(".gitlab-ci.yml text")` commits it to a branch and records the push."""

    def __init__(self, make: DataFactory, project: tables.Project, pusher: tables.User) -> None:
        self.make = make
        self.services = make.services
        self.project = project
        self.pusher = pusher

    async def __call__(self, text: str | None, branch: str = "master", *, message: str = "Change", **files: str) -> str:
        update = await self.commit(text, branch, message=message, **files)
        await self.record_push(update)
        return str(update.new)

    async def commit(self, text: str | None, branch: str = "master", *, message: str = "Change", **files: str) -> RefCommand:
        """As `__call__`, without the record."""
        expected = {"other.txt": message, **files, **({} if text is None else {FILE: text})}

        def work(repository: Repository) -> RefCommand:
            old = repository.find_ref(f"refs/heads/{branch}")
            return RefCommand(f"refs/heads/{branch}", old, commit_text_files(repository, branch, expected, message=message))

        return await self.services.repositories.read(self.project.id, work)

    async def record_push(self, *updates: RefCommand) -> None:
        await push_refs(self.services, RepositoryGrant(self.project.id, self.path, self.pusher.id), list(updates), "test")

    @property
    def path(self) -> Any:
        return self.services.repositories.path_of(self.project.id)

    async def pipelines(self) -> list[tables.Pipeline]:
        async with self.services.database.read_session() as session:
            return list(await session.scalars(select(tables.Pipeline).order_by(col(tables.Pipeline.id))))

    async def builds(self, *status: CheckStatus) -> dict[str, tables.Build]:
        """The newest attempts, by name; `status`: of one of these."""
        async with self.services.database.read_session() as session:
            found = await session.scalars(select(tables.Build).where(col(tables.Build.current_id).is_(None)).order_by(col(tables.Build.id)))
            return {build.name: build for build in found if not status or build.status in status}

    async def finish(self, *names: str, to: CheckStatus = SUCCESS) -> list[str]:
        """Brings builds to their end, one after the other; gives the names of those that wait then."""
        for name in names:
            await change_build(self.services, (await self.builds())[name], to)
        return list(await self.builds(PENDING))

    async def retry(self, name: str) -> None:
        async with session_for(self.services.database, writing=True) as session:
            context = Context(self.services, session, None, "test")
            await builds.retry_build(context, (await self.builds())[name])
            await commit_and_notify(context)


async def change_build(services: Services, build: tables.Build, to: CheckStatus) -> None:
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "test")
        assert await builds.change_status(context, build, to) is not None
        await commit_and_notify(context)


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def pushes(make: DataFactory, owner: tables.User) -> PushScenario:
    project = await make.project(owner=owner, history={"commits": 4}, visibility=Visibility.PUBLIC)
    return PushScenario(make, await make.indexed(project), owner)


def names(rows: Iterable[Any]) -> list[str]:
    return sorted(row.name for row in rows)


class TestPush:
    async def test_makes_a_pipeline_and_the_builds_of_the_first_stage(self, pushes: PushScenario, owner: tables.User) -> None:
        before = git(pushes.path, "rev-parse", "master")
        sha = await pushes(STAGES)
        (pipeline,) = await pushes.pipelines()
        assert (pipeline.sha, pipeline.ref, pipeline.tag, pipeline.before_sha) == (sha, "master", False, before)
        assert (pipeline.user_id, pipeline.error, pipeline.skipped) == (owner.id, None, False)
        assert [job["name"] for job in pipeline.jobs or []] == ["compile", "unit", "lint", "deploy", "alarm", "clean"]
        (build,) = (await pushes.builds()).values()
        assert (build.name, build.stage, build.stage_index, build.status, build.attempt) == ("compile", "build", 0, PENDING, 1)
        assert (build.project_id, build.pipeline_id, build.sha, build.ref) == (pushes.project.id, pipeline.id, sha, "master")
        assert (build.commands, build.tags, build.queue, build.user_id) == ("make", ["a", "b"], "a,b", owner.id)
        assert (build.current_id, build.trace_size, build.started_at, build.finished_at) == (None, 0, None, None)

    async def test_a_push_is_an_event(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        async with pushes.services.database.read_session() as session:
            (event,) = list(await session.scalars(select(tables.Change)))
        assert (event.old_state, event.new_state, event.build_id) == (None, PENDING, (await pushes.builds())["compile"].id)

    async def test_notifies_waiting_runners(self, pushes: PushScenario) -> None:
        rings = pushes.services.runner_queue.notification_count
        await pushes(STAGES)
        assert pushes.services.runner_queue.notification_count == rings + 1

    async def test_waiting_runners_are_notified_before_the_push_is_answered(self, pushes: PushScenario) -> None:
        committed = await pushes.commit(STAGES)
        access, grant = GitAccess(pushes.services), RepositoryGrant(pushes.project.id, pushes.path, pushes.pusher.id)
        count = pushes.services.runner_queue.notification_count
        update = RefCommand("refs/heads/new", None, committed.new)
        assert await access.move_refs(grant, [update], "test", atomic=False) == [None]
        assert pushes.services.runner_queue.notification_count == count + 1
        await access.finish_push(grant)
        assert pushes.services.runner_queue.notification_count == count + 1

    async def test_the_jobs_are_those_of_the_ref(self, pushes: PushScenario) -> None:
        await pushes(STAGES, "topic")
        (pipeline,) = await pushes.pipelines()
        assert "deploy" not in [job["name"] for job in pipeline.jobs or []]

    async def test_job_options_are_stored(self, pushes: PushScenario) -> None:
        await pushes("variables: {A: 1}\na: {script: x, artifacts: {paths: [log]}, coverage: /x(\\d)/}")
        build = (await pushes.builds())["a"]
        assert build.options == {"variables": {"A": "1"}, "artifacts": {"paths": ["log"]}, "coverage": "x(\\d)"}

    async def test_without_the_file_nothing_is_made(self, pushes: PushScenario) -> None:
        await pushes(None)
        assert await pushes.pipelines() == []

    async def test_without_a_job_for_the_ref_nothing_is_made(self, pushes: PushScenario) -> None:
        await pushes("a: {script: x, only: [tags]}")
        assert await pushes.pipelines() == []

    async def test_where_builds_are_off_nothing_is_made(self, make: DataFactory, owner: tables.User) -> None:
        project = await make.indexed(await make.project(owner=owner, history={"commits": 4}, builds_enabled=False))
        pushes = PushScenario(make, project, owner)
        await pushes(STAGES)
        assert await pushes.pipelines() == []

    @pytest.mark.parametrize("message", ["Change [ci skip]", "A title\n\nand [CI Skip] below", "[skip ci]"])
    async def test_ci_skip_in_the_message(self, pushes: PushScenario, ask: Ask, owner: tables.User, message: str) -> None:
        await pushes(STAGES, message=message)
        (pipeline,) = await pushes.pipelines()
        assert (pipeline.skipped, pipeline.jobs, pipeline.error) == (True, None, None)
        assert await pushes.builds() == {}
        data = await ask.data(SHOWN, owner, path=str(pushes.project.id))
        assert data["project"]["pipelines"]["nodes"][0]["status"] == "NONE"

    async def test_only_the_newest_message_counts(self, pushes: PushScenario) -> None:
        first = await pushes.commit(STAGES, message="[ci skip]")
        second = await pushes.commit(STAGES, message="Build it")
        await pushes.record_push(replace(second, old=first.old))
        assert [pipeline.skipped for pipeline in await pushes.pipelines()] == [False]

    async def test_each_ref_has_a_pipeline_of_its_own(self, pushes: PushScenario) -> None:
        sha = await pushes(STAGES)
        git(pushes.path, "tag", "v9", sha)
        git(pushes.path, "tag", "-a", "-m", "A tag", "v10", sha)
        annotated = git(pushes.path, "rev-parse", "v10")
        assert annotated != sha
        await pushes.record_push(RefCommand("refs/tags/v9", None, sha), RefCommand("refs/tags/v10", None, annotated))
        found = [(each.ref, each.tag, each.sha) for each in await pushes.pipelines()]
        assert found == [("master", False, sha), ("v9", True, sha), ("v10", True, sha)]

    @pytest.mark.parametrize("is_one_push", [True, False])
    async def test_a_branch_and_a_tag_of_one_name_have_each_their_own(self, pushes: PushScenario, is_one_push: bool) -> None:
        branch = await pushes.commit("a: {script: x, only: [branches]}\nrelease: {script: x, only: [tags]}\n", "v1")
        tag = RefCommand("refs/tags/v1", None, branch.new)
        for updates in ([branch, tag],) if is_one_push else ([branch], [tag]):
            await pushes.record_push(*updates)

        made = {(each.ref, each.tag): each.id for each in await pushes.pipelines()}
        assert set(made) == {("v1", False), ("v1", True)}
        found = {build.name: (build.tag, build.pipeline_id) for build in (await pushes.builds()).values()}
        assert found == {"a": (False, made["v1", False]), "release": (True, made["v1", True])}

    async def test_the_same_push_is_not_built_twice(self, pushes: PushScenario) -> None:
        update = await pushes.commit(STAGES)
        await pushes.record_push(update)
        await pushes.record_push(update)
        assert len(await pushes.pipelines()) == 1
        assert len(await pushes.builds()) == 1

    async def test_deleted_refs_and_non_commits_are_not_built(self, pushes: PushScenario) -> None:
        sha = await pushes(None)
        blob = git(pushes.path, "hash-object", "-w", "--stdin", stdin=b"x")
        git(pushes.path, "tag", "blob", blob)
        await pushes.record_push(RefCommand("refs/tags/blob", None, blob), RefCommand("refs/heads/gone", sha, None))
        assert await pushes.pipelines() == []

    async def test_a_new_branch_is_built(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        sha = await pushes(STAGES)
        values = {"projectPath": str(pushes.project.id), "name": "next", "ref": "master"}
        await ask.data(CREATE, owner, input=values)
        assert [(each.ref, each.sha) for each in await pushes.pipelines()] == [("master", sha), ("next", sha)]

    async def test_a_merge_is_built_in_its_target(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        merges = MergeRequestFactory(pushes.make, pushes.project, pushes.pusher)
        proposal = await merges.proposal("feature")
        async with acting(pushes.services, pushes.pusher) as context:
            merged = await merging.accept_now(context, proposal.row)
        assert [(each.ref, each.user_id) for each in await pushes.pipelines()] == [("master", pushes.pusher.id)] * 2
        assert (await pushes.pipelines())[1].sha == merged.merge_commit_oid

    async def test_of_many_refs_the_first_are_built(self, pushes: PushScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipeline_planner, "MAX_REFS", 2)
        sha = await pushes("a: {script: x}")
        await pushes.record_push(*(RefCommand(f"refs/tags/t{number}", None, sha) for number in range(4)))
        assert [each.ref for each in await pushes.pipelines()] == ["master", "t0", "t1"]

    async def test_of_many_jobs_the_first_are_built(self, pushes: PushScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipeline_planner, "MAX_PLANNED_BYTES", 2 * pipeline_planner.MIN_JOB_BYTES)
        sha = await pushes("a: {script: x}\nb: {script: y}")
        await pushes.record_push(*(RefCommand(f"refs/tags/t{number}", None, sha) for number in range(4)))
        assert [each.ref for each in await pushes.pipelines()] == ["master", "t0"]

    async def test_a_branch_moved_without_a_push_has_no_build_author(self, pushes: PushScenario) -> None:
        update = await pushes.commit(STAGES)
        await pushes.record_push(replace(update, new=update.old, old=update.new))
        git(pushes.path, "update-ref", "refs/heads/master", str(update.new))
        assert len(await ref_adoption.adopt_changes(pushes.services, pushes.project.id)) == 1
        assert [(each.sha, each.user_id) for each in await pushes.pipelines()] == [(update.new, None)]
        assert names((await pushes.builds()).values()) == ["compile"]

    async def test_an_imported_repository_is_not_built(self, pushes: PushScenario) -> None:
        await pushes.commit(STAGES)
        await commit_index.index_imported(pushes.services, pushes.project.id)
        assert await pushes.pipelines() == []

    async def test_a_failed_push_leaves_neither_head_nor_pipeline(self, pushes: PushScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise RuntimeError("as a process that dies")

        update = await pushes.commit(STAGES)
        with monkeypatch.context() as patch:
            patch.setattr("graph.rules.git.ref_updates._notify", fail)
            with pytest.raises(RuntimeError, match="dies"):
                await pushes.record_push(update)
        assert await pushes.pipelines() == []
        await pushes.record_push(update)
        assert [each.sha for each in await pushes.pipelines()] == [update.new]

    async def test_costs_the_same_whatever_the_jobs(self, pushes: PushScenario, statements: StatementRecorder) -> None:
        def text(count: int) -> str:
            return "\n".join(f"job{number}: {{script: x}}" for number in range(count))

        await pushes(text(1))
        with statements.record() as few:
            await pushes(text(3))
        with statements.record() as many:
            await pushes(text(30))
        assert len(await pushes.builds()) == 30
        assert len(many) == len(few)

    async def test_a_push_without_the_file_runs_no_statement(self, pushes: PushScenario, statements: StatementRecorder) -> None:
        await pushes(None)
        with statements.record() as seen:
            await pushes(None)
        assert not [statement for statement in seen if "FROM pipelines" in statement or "FROM builds" in statement]


class TestErrors:
    async def test_a_wrong_file_shows_and_fails_the_commit(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        sha = await pushes("a: {}\nb: {script: x, stage: y}")
        data = await ask.data(SHOWN, owner, path=str(pushes.project.id))
        (shown,) = data["project"]["pipelines"]["nodes"]
        assert shown["error"].splitlines() == [
            "line 1: `a` job: `script` is missing. The name of a template without a script must begin with a dot.",
            "line 2: `b` job: the stage `y` is not one of `build`, `test`, `deploy`.",
        ]
        assert (shown["status"], shown["stages"]) == ("FAILED", [])
        assert (await ask.data(OF_COMMIT, owner, path=str(pushes.project.id), rev=sha))["project"]["commit"]["status"] == "FAILED"
        async with pushes.services.database.read_session() as session:
            (status,) = list(await session.scalars(select(tables.CommitStatus)))
        assert (status.name, status.ref, status.status, status.allow_failure) == (FILE, "master", FAILED, False)
        assert (status.description, status.author_id) == (shown["error"].splitlines()[0], owner.id)
        assert status.finished_at is not None

    @pytest.mark.parametrize(
        ("mode", "data", "message"),
        [
            (0o120000, b"elsewhere.yml", "The file is a symbolic link. It must be a regular file."),
            (0o100644, b"a\0b", "The file is binary. It must be text."),
            (0o100644, b"a" * 262_145, "The file has 262145 bytes; the limit is 262144."),
            (0o100644, b"a" * 9_000_000, "The file has 9000000 bytes; the limit is 262144."),
            (0o100644, b"", "The file has no jobs. Define one with a `script`."),
        ],
    )
    async def test_a_binary_file_is_an_error(self, pushes: PushScenario, mode: int, data: bytes, message: str) -> None:
        sha = commit_files(pushes.path, {FILE: (mode, data)})
        git(pushes.path, "tag", "odd", sha)
        await pushes.record_push(RefCommand("refs/tags/odd", None, sha))
        assert [each.error for each in await pushes.pipelines()] == [message]

    @pytest.mark.parametrize("files", [{f"{FILE}/a": b"x"}, {"sub/" + FILE: b"a: {script: x}"}])
    async def test_a_folder_of_that_name_or_a_file_elsewhere_is_no_file(self, pushes: PushScenario, files: Any) -> None:
        sha = commit_files(pushes.path, files)
        git(pushes.path, "tag", "odd", sha)
        await pushes.record_push(RefCommand("refs/tags/odd", None, sha))
        assert await pushes.pipelines() == []

    async def test_a_reader_that_fails_loses_no_push(self, pushes: PushScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: str) -> None:
            raise RecursionError

        monkeypatch.setattr(config_parser, "parse_config", fail)
        await pushes(STAGES)
        assert [each.error for each in await pushes.pipelines()] == ["The file cannot be read."]


class TestStages:
    async def test_go_on_when_all_of_the_stage_have_succeeded(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        assert await pushes.finish("compile") == ["unit", "lint"]
        assert await pushes.finish("unit") == ["lint"]
        assert await pushes.finish("lint") == ["deploy", "clean"]
        assert await pushes.finish("deploy", "clean") == []
        assert names(await _events(pushes, PENDING)) == ["clean", "compile", "deploy", "lint", "unit"]

    async def test_later_builds_are_of_the_pusher_and_the_commit(self, pushes: PushScenario, owner: tables.User) -> None:
        sha = await pushes(STAGES)
        await pushes.finish("compile")
        build = (await pushes.builds())["unit"]
        assert (build.sha, build.ref, build.user_id, build.stage_index, build.queue) == (sha, "master", owner.id, 1, "")

    async def test_a_failure_starts_on_failure_jobs(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile")
        assert await pushes.finish("lint") == ["unit"]
        assert await pushes.finish("unit", to=FAILED) == ["alarm", "clean"]

    async def test_a_stage_without_matching_jobs_is_skipped(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        assert await pushes.finish("compile", to=FAILED) == ["alarm", "clean"]

    async def test_an_allowed_failure_is_none(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile", "unit")
        assert await pushes.finish("lint", to=FAILED) == ["deploy", "clean"]

    async def test_canceled_beside_success_has_not_passed(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile", "unit")
        assert await pushes.finish("lint", to=CANCELED) == ["alarm", "clean"]

    async def test_canceling_all_builds_ends_the_pipeline(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        assert await pushes.finish("compile", to=CANCELED) == []

    async def test_a_successful_retry_creates_the_next_stage(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile", to=FAILED)
        await pushes.finish("alarm", "clean")
        await pushes.retry("compile")
        assert await pushes.finish("compile") == ["unit", "lint"]
        assert await pushes.finish("unit", "lint") == ["deploy"]

    async def test_a_retry_makes_nothing_twice(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile")
        await pushes.finish("unit", "lint")
        await pushes.retry("compile")
        assert await pushes.finish("compile") == ["deploy", "clean"]
        assert len(await pushes.builds()) == 5

    async def test_nothing_goes_on_while_an_earlier_build_is_run_again(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile", "unit")
        await pushes.retry("compile")
        assert await pushes.finish("lint") == ["compile"]
        assert await pushes.finish("compile") == ["deploy", "clean"]

    @pytest.mark.parametrize("switch", [{"buildsEnabled": False}, {"archived": True}])
    async def test_wait_while_builds_are_disabled(
        self, pushes: PushScenario, ask: Ask, owner: tables.User, make: DataFactory, switch: dict[str, Any]
    ) -> None:
        await pushes(None)
        head = await pushes(STAGES, "feature")
        row = await make.merge_request(pushes.project, author=owner, source_branch="feature", target_branch="master", head_oid=head)
        await maintenance.run_once(pushes.services)
        path = {"projectPath": str(pushes.project.id)}
        wanted = {**path, "databaseId": row.id, "mergeWhenBuildSucceeds": True}
        assert (await ask.data(ACCEPT, owner, input=wanted))["acceptMergeRequest"]["mergeRequest"]["state"] == "OPENED"

        await ask.data(SWITCH, owner, input={**path, **switch})
        assert await pushes.finish("compile") == ["unit", "lint"]
        await maintenance.run_once(pushes.services)
        found = await make.fetch(tables.MergeRequest, row.id)
        assert found is not None and found.state is MergeRequestState.OPENED
        assert {build.queue for build in (await pushes.builds(PENDING)).values()} == {None}

        await ask.data(SWITCH, owner, input={**path, **{name: not value for name, value in switch.items()}})
        assert {build.queue for build in (await pushes.builds(PENDING)).values()} == {""}
        assert await pushes.finish("unit", "lint") == ["clean"]

    async def test_builds_of_outside_systems_lead_to_nothing(self, pushes: PushScenario, make: DataFactory) -> None:
        sha = await pushes(None)
        build = await make.build(pushes.project, sha)
        await change_build(pushes.services, build, SUCCESS)
        assert len(await pushes.builds()) == 1

    async def test_two_that_end_at_once_make_the_next_stage_once(self, pushes: PushScenario) -> None:
        await pushes(STAGES)
        await pushes.finish("compile")
        found = await pushes.builds(PENDING)
        await asyncio.gather(*(change_build(pushes.services, build, SUCCESS) for build in found.values()))
        async with pushes.services.database.read_session() as session:
            rows = list(await session.scalars(select(tables.Build)))
        assert names(rows) == ["clean", "compile", "deploy", "lint", "unit"]

    async def test_many_that_end_at_once_make_the_next_stage_once(self, pushes: PushScenario) -> None:
        await pushes("\n".join(f"job{number}: {{script: x}}" for number in range(12)) + "\nlast: {stage: deploy, script: x}")
        found = await pushes.builds(PENDING)
        await asyncio.gather(*(change_build(pushes.services, build, SUCCESS) for build in found.values()))
        assert list(await pushes.builds(PENDING)) == ["last"]

    async def test_the_next_stage_costs_the_same_whatever_its_jobs(self, pushes: PushScenario, statements: StatementRecorder) -> None:
        counted = []
        for count in (3, 30):
            jobs = "\n".join(f"job{number}: {{script: x}}" for number in range(count))
            await pushes(f"first{count}: {{stage: build, script: x}}\n{jobs}")
            build = (await pushes.builds(PENDING))[f"first{count}"]
            # On SQLite it is cached for a second that no hook wants the event.
            pushes.services.outbox.record_hook_change()
            with statements.record() as seen:
                await change_build(pushes.services, build, SUCCESS)
            counted.append(len(seen))
        assert counted[0] == counted[1]


async def _events(pushes: PushScenario, new_state: CheckStatus) -> list[tables.Build]:
    async with pushes.services.database.read_session() as session:
        of = select(tables.Build).join(tables.Change, col(tables.Change.build_id) == col(tables.Build.id))
        return list(await session.scalars(of.where(col(tables.Change.new_state) == new_state)))


class TestPipelineFields:
    async def test_shows_everything(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        before = git(pushes.path, "rev-parse", "master")
        sha = await pushes(STAGES)
        await pushes.finish("compile", "unit")
        (row,) = await pushes.pipelines()
        (shown,) = (await ask.data(SHOWN, owner, path=str(pushes.project.id)))["project"]["pipelines"]["nodes"]
        assert shown == {
            "databaseId": row.id,
            "sha": sha,
            "ref": "master",
            "tag": False,
            "beforeSha": before,
            "error": None,
            "skipped": False,
            "status": "RUNNING",
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "user": {"username": owner.username},
            "project": {"path": pushes.project.path},
            "commit": {"title": "Change"},
            "builds": {
                "totalCount": 3,
                "nodes": [{"name": name, "pipeline": {"databaseId": row.id}} for name in ("compile", "unit", "lint")],
            },
            "stages": [
                {"name": "build", "status": "SUCCESS", "builds": [{"name": "compile", "status": "SUCCESS"}]},
                {
                    "name": "test",
                    "status": "RUNNING",
                    "builds": [{"name": "unit", "status": "SUCCESS"}, {"name": "lint", "status": "PENDING"}],
                },
                {"name": "deploy", "status": "NONE", "builds": []},
            ],
        }

    async def test_the_status_is_read_without_the_scripts(
        self, make: DataFactory, owner: tables.User, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graph.operations.execution.MAX_ANSWER_BYTES", 10**5)
        project = await make.project(owner=owner, builds_enabled=True)
        jobs = [{"name": name, "stage": name, "stage_index": index} for index, name in enumerate(("build", "test"))]
        rows = [tables.Pipeline(project_id=project.id, sha=f"{number:040x}", ref="master", jobs=jobs) for number in range(3)]
        await make.save(*rows)
        for row in rows:
            for index, status in enumerate((CheckStatus.SUCCESS, CheckStatus.FAILED)):
                await make.build(
                    project,
                    row.sha,
                    pipeline_id=row.id,
                    stage_index=index,
                    status=status,
                    allow_failure=row is rows[0],
                    commands="x" * 10**5,
                )
        rows[1].jobs = [{**jobs[0], "commands": "x" * 10**5}]
        await make.save(rows[1])

        query = "query ($path: String!) { project(path: $path) { pipelines(first: 100) { nodes { status commit { title } } } } }"
        assert (await ask.data(query, owner, path=str(project.id)))["project"]["pipelines"]["nodes"] == [
            {"status": status, "commit": None} for status in ("FAILED", "FAILED", "SUCCESS")
        ]
        query = "query ($path: String!) { project(path: $path) { pipelines(last: 1) { nodes { stages { status } } } } }"
        assert (await ask.data(query, owner, path=str(project.id)))["project"]["pipelines"]["nodes"] == [
            {"stages": [{"status": "SUCCESS"}, {"status": "SUCCESS"}]}
        ]

    async def test_lists_are_newest_first_and_filtered(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        first, second = await pushes(STAGES), await pushes(STAGES, "topic")

        async def refs(**wanted: Any) -> list[str]:
            data = await ask.data(SHOWN, owner, path=str(pushes.project.id), filter=wanted)
            return [node["ref"] for node in data["project"]["pipelines"]["nodes"]]

        assert await refs() == ["topic", "master"]
        assert await refs(ref=["master"]) == ["master"]
        assert await refs(sha=[second]) == ["topic"]
        assert await refs(sha=[first, second], ref=["none"]) == []
        data = await ask.data(
            "query ($p: String!) { project(path: $p) { pipelines { nodes { createdAt } } } }", owner, p=str(pushes.project.id)
        )
        newest, oldest = (node["createdAt"] for node in data["project"]["pipelines"]["nodes"])
        assert await refs(created={"since": newest}) == ["topic"]
        assert await refs(created={"since": oldest, "until": newest}) == ["master"]
        assert await refs(created={"until": oldest}) == []
        data = await ask.data(OF_COMMIT, owner, path=str(pushes.project.id), rev=first)
        assert data["project"]["commit"] == {"status": "PENDING", "pipelines": {"nodes": [{"ref": "master"}]}}

    async def test_pipelines_require_permission_to_see_builds(
        self, make: DataFactory, pushes: PushScenario, ask: Ask, owner: tables.User
    ) -> None:
        guest = await make.user()
        project = await make.fetch(tables.Project, pushes.project.id)
        assert project is not None
        project.public_builds = False
        await make.save(project)
        sha = await pushes(STAGES)
        assert await ask.codes(SHOWN, guest, path=str(project.id)) == ["FORBIDDEN"]
        assert "FORBIDDEN" in await ask.codes(OF_COMMIT, guest, path=str(project.id), rev=sha)
        await make.member(project, guest, AccessLevel.REPORTER)
        assert (await ask.data(SHOWN, guest, path=str(project.id)))["project"]["pipelines"]["totalCount"] == 1

    async def test_statement_count_does_not_grow_with_rows(
        self, pushes: PushScenario, ask: Ask, owner: tables.User, statements: StatementRecorder
    ) -> None:
        query = SHOWN.replace("commit { title }", "").replace("$filter) {", "$filter, first: 30) {").replace("totalCount", "")
        sha = await pushes(STAGES)
        path = str(pushes.project.id)
        await ask.data(query, owner, path=path)
        with statements.record() as one:
            await ask.data(query, owner, path=path)
        await pushes.record_push(*(RefCommand(f"refs/tags/t{number}", None, sha) for number in range(29)))
        with statements.record() as thirty:
            data = await ask.data(query, owner, path=path)
        assert len(data["project"]["pipelines"]["nodes"]) == 30
        assert len(thirty) == len(one)


class TestCiLint:
    async def test_shows_the_jobs(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        data = await ask.data(LINT_QUERY, owner, path=str(pushes.project.id), content=STAGES)
        found = data["ciConfig"]
        assert (found["valid"], found["errors"], found["stages"]) == (True, [], ["build", "test", "deploy"])
        assert [job["name"] for job in found["jobs"]] == ["compile", "unit", "lint", "deploy", "alarm", "clean"]
        assert found["jobs"][0] == {
            "name": "compile",
            "stage": "build",
            "commands": "make",
            "tags": ["a", "b"],
            "allowFailure": False,
            "runWhen": "ON_SUCCESS",
            "only": None,
            "excepted": None,
            "line": 2,
        }
        assert found["jobs"][3]["only"] == ["master"]

    async def test_shows_the_jobs_of_a_ref(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        data = await ask.data(LINT_QUERY, owner, path=str(pushes.project.id), content=STAGES, ref="topic")
        assert "deploy" not in [job["name"] for job in data["ciConfig"]["jobs"]]

    async def test_reports_errors(self, pushes: PushScenario, ask: Ask, owner: tables.User) -> None:
        data = await ask.data(LINT_QUERY, owner, path=str(pushes.project.id), content="\na: [x")
        found = data["ciConfig"]
        assert (found["valid"], found["stages"], found["jobs"]) == (False, [], [])
        assert found["errors"] == [
            {"message": "The file is not valid YAML: while parsing a flow sequence, did not find expected ',' or ']'.", "line": 2}
        ]

    async def test_requires_permission_to_read_code(self, make: DataFactory, ask: Ask) -> None:
        outsider, guest = await make.user(), await make.user()
        project = await make.project(members=[(guest, AccessLevel.GUEST)])
        assert await ask.codes(LINT_QUERY, outsider, path=str(project.id), content="a") == ["NOT_FOUND"]
        assert await ask.codes(LINT_QUERY, guest, path=str(project.id), content="a") == ["FORBIDDEN"]
