"""Data that a viewer cannot read by its own field cannot be read by another: by id, as a child, or by a reference."""

import asyncio
import runpy
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, select, text
from sqlmodel import col

from graph.context import Context, Services
from graph.fields.declarations import column
from graph.fields.entities import ENTITIES, Node, entity, global_id
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.issues import issue_closing
from graph.rules.permissions.policy import Action
from storage import migrations, tables
from storage.database.engine import Database
from storage.secrets import digest_token
from storage.tables import AccessLevel, CheckStatus, MergeRequestState, Visibility
from tests.make import DataFactory
from tests.storage.test_migrations import NewDatabase, run_on
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

NODE = "query ($id: ID!) { node(id: $id) { __typename } }"
SHA = "a" * 40
OTHER = "b" * 40


def run_migration_0002(connection: Connection) -> None:
    """Runs its statements alone, whatever the tables' present revision."""
    revision = runpy.run_path(str(migrations.VERSIONS / "0002_closing_notes_have_a_source.py"))
    with Operations.context(MigrationContext.configure(connection)):
        revision["upgrade"]()


async def node_by_id(ask: Ask, viewer: tables.User, name: str, key: object) -> Any:
    """What `node` gives of this id; it must not be an error."""
    return (await ask.data(NODE, viewer, id=global_id(name, key)))["node"]


class TestEntities:
    def test_without_a_right_or_a_reason_cannot_be_declared(self) -> None:
        with pytest.raises(TypeError, match=r"Secret: pass `action=Action\.READ_…`.*or `unrestricted="):

            @entity(tables.Counter, name="Secret", description="A secret.")
            class Secret(Node):
                kind: str = column(description="Its kind.")

    def test_with_both_a_right_and_a_reason_cannot_be_declared(self) -> None:
        with pytest.raises(TypeError, match="not both"):
            entity(tables.Counter, name="Secret", description="A secret.", action=Action.READ_CODE, unrestricted="It is open.")

    def test_all_have_a_right_or_a_reason(self) -> None:
        reasons = {each.name for each in ENTITIES.values() if each.action is None}
        assert reasons == {"User", "AccessToken", "SshKey", "Email", "Runner", "GroupMember", "Hook", "Delivery", "Activity"}


class TestNodes:
    @pytest.mark.parametrize(
        ("feature", "kind"),
        [
            ("issues_enabled", "Issue"),
            ("merge_requests_enabled", "MergeRequest"),
            ("snippets_enabled", "Snippet"),
            ("builds_enabled", "Build"),
        ],
    )
    async def test_of_a_feature_that_is_disabled_are_not_found(self, ask: Ask, make: DataFactory, feature: str, kind: str) -> None:
        owner = await make.user()
        for enabled in (True, False):
            project = await make.project(owner=owner, **{feature: enabled})
            rows: dict[str, Any] = {"Issue": make.issue, "MergeRequest": make.merge_request, "Snippet": make.snippet}
            row = await (rows[kind](project) if kind in rows else make.build(project, SHA))
            things = [(kind, row.id), *([("Note", (await make.note(row)).id)] if kind != "Build" else [])]
            for name, key in things:
                assert (await node_by_id(ask, owner, name, key) is not None) is enabled

    async def test_of_issues_that_are_disabled_are_not_listed(self, ask: Ask, api: Api, make: DataFactory) -> None:
        owner = await make.user()
        shown = await make.issue(await make.project(owner=owner), author=owner)
        await make.issue(await make.project(owner=owner, issues_enabled=False), author=owner)
        listed = await ask.data("{ issues { nodes { databaseId } } }", owner)
        assert listed == {"issues": {"nodes": [{"databaseId": shown.id}]}}
        assert [each["id"] for each in (await api.get("/issues", owner)).json()] == [shown.id]

    async def test_ids_of_other_types_are_not_found(self, ask: Ask, make: DataFactory) -> None:
        build = await make.build(await make.project(), SHA)
        artifact, runner = await make.artifact(build), await make.runner()
        outsider = await make.user()
        for name, key in (("Artifact", artifact.id), ("Artifact", artifact.id + 1), ("Runner", runner.id), ("Runner", runner.id + 1)):
            assert await node_by_id(ask, outsider, name, key) is None

    async def test_of_uploads_are_for_their_author_and_masters(self, ask: Ask, make: DataFactory) -> None:
        author, master, developer, outsider = [await make.user() for _ in range(4)]
        members = [(master, AccessLevel.MASTER), (developer, AccessLevel.DEVELOPER)]
        project = await make.project(visibility=Visibility.PUBLIC, members=members)
        upload = await make.upload(project, author=author)
        seen = [
            await node_by_id(ask, each, "Upload", upload.id) is not None
            for each in (author, master, await make.admin(), developer, outsider)
        ]
        assert seen == [True, True, True, False, False]
        by_secret = "query ($p: String!, $s: String!, $n: String!) { project(path: $p) { upload(secret: $s, name: $n) { name } } }"
        values = {"p": str(project.id), "s": upload.secret, "n": upload.name}
        assert await ask.data(by_secret, outsider, **values) == {"project": {"upload": {"name": upload.name}}}


COMMITS = "query ($p: String!) { project(path: $p) { mergeRequests { nodes { commits { nodes { oid title %s } } } } } }"
PROTECTED = (
    "comments { nodes { note } }", "commentCount", "status", "allowFailure", "diff { diff }", "rollup { state }",
    "statuses { nodes { name } }",
    "builds { nodes { name } }", "pipelines { nodes { ref } }",
)  # fmt: skip


class TestCommits:
    @pytest.mark.parametrize("field", PROTECTED)
    async def test_of_a_merge_request_show_a_guest_no_more_than_v3(self, ask: Ask, api: Api, make: DataFactory, field: str) -> None:
        guest, reporter = await make.user(), await make.user()
        members = [(guest, AccessLevel.GUEST), (reporter, AccessLevel.REPORTER)]
        project = await make.project(owner=(owner := await make.user()), members=members, history={"commits": 2})
        await make.indexed(project)
        sha = await make.services.repositories.read(project.id, lambda repository: repository.resolve("master"))
        await make.commit_comment(project, sha or "", author=owner, note="Hidden words")
        row = await make.merge_request(project, head_oid=sha, commit_count=1)
        await make.save(tables.MergeRequestCommit(merge_request_id=row.id, position=0, oid=sha))

        plain = await ask.data(COMMITS % "", guest, p=str(project.id))
        assert plain["project"]["mergeRequests"]["nodes"][0]["commits"]["nodes"][0]["oid"] == sha
        for _ in range(3):
            assert (await ask(COMMITS % field, reporter, p=str(project.id))).errors == []
            assert set(await ask.codes(COMMITS % field, guest, p=str(project.id))) == {"FORBIDDEN"}
        assert (await api.get(f"/projects/{project.id}/repository/commits/{sha}/comments", guest)).status_code == 403


class TestTokensOfBuilds:
    async def test_read_their_own_build_alone(self, ask: Ask, make: DataFactory, services: Services) -> None:
        project = await make.project(owner=(owner := await make.user()), visibility=Visibility.PUBLIC, history={"commits": 1})
        sha = await make.services.repositories.read(project.id, lambda repository: repository.resolve("master")) or ""
        await make.commit_comment(project, sha, author=owner, note="Hidden words")
        pipeline = tables.Pipeline(project_id=project.id, sha=sha, ref="master")
        await make.save(pipeline)
        runner = await make.runner()
        token = "fb-{}-" + "x" * 20
        own = await make.build(project, sha, status=CheckStatus.RUNNING, runner_id=runner.id, pipeline_id=pipeline.id, name="own")
        own.token_digest, own.lease_until = digest_token(token.format(own.id)), own.created_at
        other = await make.build(project, sha, pipeline_id=pipeline.id, name="other")
        await make.save(own)
        await make.trace(other, "Hidden words\n")
        upload = await make.upload(project)

        async def read(fields: str) -> Any:
            change = f"mutation {{ updateBuild(input: {{databaseId: {own.id}}}) {{ build {{ {fields} }} userErrors {{ message }} }} }}"
            return await ask.graph.run_document(change, {}, None, token.format(own.id), request_id="test")

        assert (await read("name commit { oid title message }")).errors == []
        for fields in (
            "commit { comments { nodes { note } } }",
            "commit { commentCount }",
            "commit { status }",
            "commit { diff { diff } }",
            "pipeline { builds { nodes { trace { lines } } } }",
            "pipeline { stages { builds { name } } }",
            "pipeline { status }",
            f'project {{ upload(secret: "{upload.secret}", name: "{upload.name}") {{ url }} }}',
            "project { issues { nodes { title } } }",
            "project { members { nodes { accessLevel } } }",
        ):
            outcome = await read(fields)
            assert {str(problem.code) for problem in outcome.errors} <= {"FORBIDDEN", "UNAUTHENTICATED"} and outcome.errors, fields


class TestForks:
    """The checks of what a merge request proposes stand in the fork that it comes from."""

    @pytest.fixture
    async def people(self, make: DataFactory) -> dict[str, tables.User]:
        return {name: await make.user(name) for name in ("owner", "forker", "outsider")} | {"admin": await make.admin()}

    @pytest.fixture
    async def target(self, make: DataFactory, people: dict[str, tables.User]) -> tables.Project:
        project = await make.project(owner=people["owner"], visibility=Visibility.PUBLIC)
        for number, visibility in enumerate((Visibility.PRIVATE, Visibility.PUBLIC)):
            fork = await make.project(owner=people["forker"], visibility=visibility, forked_from_id=project.id)
            sha = str(number) * 40
            await make.build(fork, sha, status=CheckStatus.FAILED)
            row = {"source_project_id": fork.id, "head_oid": sha, "commit_count": 1}
            await make.merge_request(project, **row)
            await make.merge_request(project, **row, state=MergeRequestState.MERGED)
        return project

    ROWS = "query ($p: String!) { project(path: $p) { mergeRequests(filter: {state: OPENED}) { nodes { iid blockers } } } }"
    RED = """query ($p: String!) { project(path: $p) {
        mergeRequests(filter: {headState: [FAILED], state: OPENED}) { totalCount nodes { iid } }
        mergeRequestStats(filter: {headState: [FAILED]}) { opened redAtMerge }
        all: mergeRequestStats { redAtMerge }
    } }"""

    async def test_that_are_private_show_no_blockers(self, ask: Ask, target: tables.Project, people: dict[str, tables.User]) -> None:
        for name, shown in (("outsider", [3]), ("owner", [3]), ("forker", [1, 3]), ("admin", [1, 3])):
            data = await ask.data(self.ROWS, people[name], p=str(target.id))
            red = [row["iid"] for row in data["project"]["mergeRequests"]["nodes"] if "BUILD_FAILED" in row["blockers"]]
            assert sorted(red) == shown, name

    async def test_that_are_private_do_not_count(self, ask: Ask, target: tables.Project, people: dict[str, tables.User]) -> None:
        for _ in range(3):
            for name, shown in (("outsider", [3]), ("owner", [3]), ("forker", [1, 3]), ("admin", [1, 3])):
                project = (await ask.data(self.RED, people[name], p=str(target.id)))["project"]
                assert sorted(row["iid"] for row in project["mergeRequests"]["nodes"]) == shown, name
                assert project["mergeRequests"]["totalCount"] == len(shown)
                assert project["mergeRequestStats"] == [{"opened": 2 * len(shown), "redAtMerge": len(shown)}]
                assert project["all"] == [{"redAtMerge": len(shown)}]

    async def test_cost_the_same_whatever_their_number(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder, people: dict[str, tables.User], target: tables.Project
    ) -> None:
        await ask.data(self.ROWS, people["outsider"], p=str(target.id))
        with statements.assert_at_most(99) as few:
            await ask.data(self.ROWS, people["outsider"], p=str(target.id))
        for number in range(6):
            fork = await make.project(owner=people["forker"], visibility=Visibility.PUBLIC, forked_from_id=target.id)
            await make.merge_request(target, source_project_id=fork.id, head_oid=f"{number + 2}" * 40, commit_count=1)
        with statements.assert_at_most(len(few)):
            await ask.data(self.ROWS, people["outsider"], p=str(target.id))


class TestNamesOfBuilds:
    HEALTH = """query ($p: String!, $n: [String!]) { project(path: $p) { branch {
        health(name: $n) { state since failing { nodes { name } } suspects { nodes { oid } } }
    } } }"""

    async def test_are_not_found_out_by_the_health_of_a_branch(self, ask: Ask, make: DataFactory) -> None:
        reporter, outsider = await make.user(), await make.user()
        project = await make.project(
            visibility=Visibility.INTERNAL, public_builds=False, members=[(reporter, AccessLevel.REPORTER)], history={"commits": 1}
        )
        await make.indexed(project)
        sha = await make.services.repositories.read(project.id, lambda repository: repository.resolve("master")) or ""
        await make.build(project, sha, name="secret job", status=CheckStatus.FAILED)
        await make.commit_status(project, sha, name="outside", status=CheckStatus.FAILED)

        async def state(viewer: tables.User, *names: str) -> str:
            data = await ask.data(self.HEALTH, viewer, p=str(project.id), n=list(names))
            return str(data["project"]["branch"]["health"]["state"])

        assert [await state(reporter, name) for name in ("secret job", "outside", "nothing")] == ["FAILED", "FAILED", "NONE"]
        assert [await state(outsider, name) for name in ("secret job", "outside", "nothing")] == ["NONE", "FAILED", "NONE"]


NOTES = "query ($id: ID!) { node(id: $id) { ... on Issue { notes { nodes { id body } } } } }"


class TestClosingNotes:
    @pytest.fixture
    async def world(self, make: DataFactory, services: Services) -> dict[str, Any]:
        """An issue in a public project that a private project closed, first by a commit and then by a merge request."""
        ada, guest, outsider = await make.user("ada"), await make.user("guest"), await make.user("outsider")
        private = await make.project(owner=ada, path="hidden", default_branch="master", members=[(guest, AccessLevel.GUEST)])
        public = await make.project(owner=ada, path="open", visibility=Visibility.PUBLIC)
        issue = await make.issue(public)
        request = await make.merge_request(private, description="Fixes ada/open#1")
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, ada, "test")
            await issue_closing.record_closings(context, [(request, ())])
            await issue_closing.close_after_push(context, private, [_commit("Fixes ada/open#1")])
            await commit_and_notify(context)
        await self.reopen(make, issue)
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, ada, "test")
            await issue_closing.close_after_merge(context, request)
            await commit_and_notify(context)
        return {"ada": ada, "guest": guest, "outsider": outsider, "issue": issue, "public": public, "private": private, "request": request}

    @staticmethod
    async def reopen(make: DataFactory, issue: tables.Issue) -> None:
        async with make.services.database.write_session() as session:
            await session.execute(text("UPDATE issues SET state = 'opened', closed_at = NULL WHERE id = :id"), {"id": issue.id})
            await session.commit()

    async def test_require_permission_to_see_the_closing_source(self, ask: Ask, api: Api, world: dict[str, Any]) -> None:
        commit, merged = f"Status changed to closed by commit ada/hidden@{SHA}", "Status changed to closed by merge request ada/hidden!1"
        issue, public = world["issue"], world["public"]
        notes: dict[str, str] = {}
        for name, bodies in (("ada", [commit, merged]), ("guest", [merged]), ("outsider", [])):
            data = await ask.data(NOTES, world[name], id=global_id("Issue", issue.id))
            assert [note["body"] for note in data["node"]["notes"]["nodes"]] == bodies, name
            notes |= {note["id"]: note["body"] for note in data["node"]["notes"]["nodes"]}
            response = await api.get(f"/projects/{public.id}/issues/{issue.id}/notes", world[name])
            assert [note["body"] for note in response.json()] == bodies, name
        for key in notes:
            assert (await ask.data(NODE, world["outsider"], id=key))["node"] is None

    async def test_each_closing_by_the_same_source_is_noted(self, make: DataFactory, services: Services, world: dict[str, Any]) -> None:
        for _ in range(2):
            await self.reopen(make, world["issue"])
            async with session_for(services.database, writing=True) as session:
                context = Context(services, session, world["ada"], "test")
                await issue_closing.close_after_merge(context, world["request"])
                await commit_and_notify(context)
        async with services.database.read_session() as session:
            bodies = (await session.scalars(select(col(tables.Note.body)))).all()
        assert bodies.count("Status changed to closed by merge request ada/hidden!1") == 3

    async def test_of_older_folders_get_their_source_or_lose_the_name(self, new_database: NewDatabase, make: DataFactory) -> None:
        """Revision 0002, which changes no table, on notes as they were written before."""
        url = new_database()
        await asyncio.to_thread(migrations.upgrade, url)
        there = DataFactory(_services_on(make.services, Database(url)), make.folder)
        try:
            ada = await there.user("ada")
            hidden, public = await there.project(owner=ada, path="Hidden"), await there.project(owner=ada, path="open")
            issue, request = await there.issue(public), await there.merge_request(hidden)
            own = await there.merge_request(public)
            (known,) = await there.linear_commits(hidden, 1)
            closed = "Status changed to closed"
            expected: dict[str, tuple[str, int | None, str | None]] = {
                f"{closed} by commit ada/Hidden@{known}": ("", hidden.id, f"commit:{known}"),
                f"{closed} by commit ada/Hidden@{OTHER}": (closed, None, None),
                f"{closed} by commit {OTHER}": ("", public.id, f"commit:{OTHER}"),
                f"{closed} by commit ada/gone@{known}": (closed, None, None),
                f"{closed} by merge request ada/hidden!1": ("", hidden.id, f"merge_request:{request.id}"),
                f"{closed} by merge request ada/hidden!9999999999": (closed, None, None),
                f"{closed} by merge request !1": ("", public.id, f"merge_request:{own.id}"),
                f"{closed} by merge request !2": (closed, None, None),
                closed: (closed, None, None),
                "mentioned in issue #1": ("mentioned in issue #1", None, None),
            }
            notes = {body: await there.note(issue, author=ada, body=body, system=True) for body in expected}
            by_hand = await there.note(issue, author=ada, body=f"{closed} by commit ada/gone@{known}")
            await run_on(url, run_migration_0002)
            for body, note in notes.items():
                row = await there.fetch(tables.Note, note.id)
                wanted_body, project_id, source = expected[body]
                assert row is not None
                key = f"{source}:{note.id}" if source is not None else None
                assert (row.body, row.source_project_id, row.source) == (wanted_body or body, project_id, key), body
            stored = await there.fetch(tables.Note, by_hand.id)
            assert stored is not None and stored.body == by_hand.body
        finally:
            await there.services.database.close()


def _services_on(services: Services, database: Database) -> Services:
    from dataclasses import replace

    return replace(services, database=database)


def _commit(message: str) -> Any:
    from datetime import UTC, datetime

    from storage.git.commits import GitCommit

    moment = datetime(2026, 3, 1, tzinfo=UTC)
    return GitCommit(SHA, (), message, "A U Thor", "stranger@example.org", moment, "C O Mitter", "committer@example.org", moment)
