"""An import from a server where v3 is gone."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from forgefront.config import Config
from storage import tables
from storage.tables import CheckStatus, IssueState, Visibility
from tests.support.import_source import import_from, open_backend, serve_app
from tests.support.v4_source import TOKEN, V4Server


async def test_everything_of_the_documentation_is_imported(new_database: Any, tmp_path: Path) -> None:
    server = V4Server(tmp_path / "client.git")
    config = Config.load(data=tmp_path / "target", database_url=new_database())
    async with serve_app(server) as address, open_backend(config) as backend:
        report = await import_from(address, TOKEN, backend, keeps_ids=True)
        assert (report.api, report.is_complete) == ("v4", True)
        left = {(each.kind, each.reason) for each in report.left_behind}
        assert ("builds", "the status manual is unknown here") in left
        assert ("project members", "the access level 5 is unknown here") in left
        assert ("groups", "its place in diaspora/inner: groups here do not nest") in left
        assert {kind for kind, _ in left} <= {"builds", "project members", "groups"}, report.as_text()

        async with backend.database.read_session() as session:

            async def one(table: Any) -> Any:
                (row,) = (await session.scalars(select(table))).all()
                return row

            project = await one(tables.Project)
            assert (project.id, project.path, project.visibility_level, project.default_branch) == (
                3,
                "client",
                Visibility.INTERNAL,
                "master",
            )
            issue = await one(tables.Issue)
            assert (issue.id, issue.iid, issue.state, issue.author_id, issue.milestone_id) == (41, 1, IssueState.CLOSED, 1, 12)
            assert issue.closed_at.isoformat().startswith("2016-01-05T15:31:46.176")
            request = await one(tables.MergeRequest)
            assert (request.id, request.source_branch, request.source_project_id) == (8, "topic", 3)
            note = await one(tables.Note)
            assert (note.id, note.body, note.system, note.issue_id) == (302, "closed", True, 41)
            build = await one(tables.Build)
            assert (build.id, build.name, build.status, build.sha) == (7, "rspec", CheckStatus.SUCCESS, server.oid)
            assert ((await one(tables.CommitStatus)).id, (await one(tables.CommitComment)).note) == (91, "this code is really nice")
            assert ((await one(tables.Variable)).key, (await one(tables.ProtectedBranch)).developers_can_push) == ("NEW", True)
            hook = (await session.scalars(select(tables.Hook).where(tables.Hook.project_id == 3))).one()
            assert (hook.url, hook.build_events, hook.disabled_at is not None) == ("http://example.com/hook", True, True)
            user = (await session.scalars(select(tables.User).where(tables.User.id == 1))).one()
            assert (user.username, user.extern_uid) == ("john_smith", "cn=john")
            assert sorted((await session.scalars(select(tables.Namespace.path))).all())[:2] == ["diaspora", "diaspora-inner"]
        server.paths.clear()
        again = await import_from(address, TOKEN, backend, keeps_ids=True)
        assert sum(count.created + count.updated for count in again.counts.values()) == 0, again.as_text()
        assert any(
            path.startswith("/api/v4/projects/3/issues?") and "updated_after=2016-01-04T15%3A31%3A46.176" in path for path in server.paths
        )


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_a_token_that_is_wrong_is_refused_first(dialect: str, tmp_path: Path) -> None:
    from forgefront.importing.source_instance import InvalidSource

    server = V4Server(tmp_path / "client.git")
    config = Config.load(data=tmp_path / "target", database_url=f"sqlite+aiosqlite:///{tmp_path}/target.db")
    async with serve_app(server) as address, open_backend(config) as backend:
        with pytest.raises(InvalidSource, match="does not accept the token"):
            await import_from(address, "wrong", backend)
