"""An import from a server where v3 is gone."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from forgefront.config import Config
from forgefront.importing.build_import import CANCELED_TRACE
from storage import tables
from storage.tables import CheckStatus, IssueState, UserState, Visibility
from tests.support.imports.import_source import check_rehearsal, import_from, open_backend, rehearse, serve_app
from tests.support.imports.v4_source import NOTE, TOKEN, V4Server


async def test_everything_of_the_documentation_is_imported(new_database: Any, tmp_path: Path) -> None:
    server = V4Server(tmp_path / "client.git")
    config = Config.load(data=tmp_path / "target", database_url=new_database())
    async with serve_app(server) as address, open_backend(config) as backend:
        rehearsal = await rehearse(address, TOKEN)
        report = await import_from(address, TOKEN, backend, keeps_ids=True)
        check_rehearsal(rehearsal, report, left_out=frozenset({"repositories"}))
        assert (report.api, report.is_complete) == ("v4", True)
        left = {(each.kind, each.where.removeprefix("/api/v4").removeprefix("/projects/3")): each.reason for each in report.omissions}
        assert left.pop(("repositories", "diaspora/tracker.git")).startswith("fatal: ")
        assert left == {
            ("projects", "/projects/9"): "its visibility: only members see its issues, so that the whole project is private here",
            ("users", "/users/2"): "its limits: an external user would see internal projects here, and is blocked until an administrator"
            " decides",
            ("groups", "/groups/5"): "its place in diaspora/inner: groups here do not nest",
            ("group members", "/groups/4/members/2"): "its end on 2030-01-31: remove the member by hand then",
            ("project members", "/members/1"): "the access level 5 is unknown here",
            ("variables", "/variables/SECRET"): "it is for protected branches alone",
            ("variables", "/variables/NEW"): "it is for the environment production alone",
            ("variables", "/variables/FILE"): "it is a file, which builds do not get here",
            ("issues", "/issues/42"): "confidential Confidential issues and notes are not supported.",
            ("notes", "/issues/1/notes/303"): "confidential Confidential issues and notes are not supported.",
            ("wikis", "diaspora/client.wiki.git"): "its pages: clone it by hand",
            ("LFS objects", "diaspora/client.git"): "the files that its .gitattributes keep outside of git: copy them by hand",
            ("builds", "/jobs/8"): "the status manual is unknown here",
            ("pipelines", "/pipelines/5"): "it has no builds; its status is skipped",
        }, report.as_text()

        async with backend.database.read_session() as session:

            async def one(table: Any) -> Any:
                (row,) = (await session.scalars(select(table))).all()
                return row

            project, private = (await session.scalars(select(tables.Project).order_by(tables.Project.id))).all()
            assert (private.id, private.visibility_level) == (9, Visibility.PRIVATE)
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
            build, waiting = (await session.scalars(select(tables.Build).order_by(tables.Build.id))).all()
            assert (waiting.id, waiting.status, waiting.queue) == (9, CheckStatus.PENDING, None)
            (unfinished,) = (note for note in report.notes if "unfinished" in note)
            assert unfinished.startswith("diaspora/client: unfinished builds: 1 (ids 9); runners here do not continue them")
            assert (build.id, build.name, build.status, build.sha) == (7, "rspec", CheckStatus.SUCCESS, server.oid)
            assert ((await one(tables.CommitStatus)).id, (await one(tables.CommitComment)).note) == (91, "this code is really nice")
            assert ((await one(tables.Variable)).key, (await one(tables.ProtectedBranch)).developers_can_push) == ("NEW", True)
            hook = (await session.scalars(select(tables.Hook).where(tables.Hook.project_id == 3))).one()
            assert (hook.url, hook.build_events, hook.disabled_at is not None) == ("http://example.com/hook", True, True)
            user = (await session.scalars(select(tables.User).where(tables.User.id == 1))).one()
            assert (user.username, user.extern_uid) == ("john_smith", "cn=john")
            guest = (await session.scalars(select(tables.User).where(tables.User.id == 2))).one()
            assert guest.state is UserState.BLOCKED
            assert sorted((await session.scalars(select(tables.Namespace.path))).all())[:2] == ["diaspora", "diaspora-inner"]
        # A server may repeat a build under its id, which is older than what the last run read.
        ended = {"status": "failed", "finished_at": "2040-01-04T15:31:46.176Z"}
        for changes, expected in (({"status": "running", "finished_at": None}, CheckStatus.RUNNING), (ended, CheckStatus.FAILED)):
            *newer, job = server.answers["/projects/3/jobs"]
            server.answers["/projects/3/jobs"] = [*newer, {**job, **changes}]
            report = await import_from(address, TOKEN, backend, keeps_ids=True)
            assert (report.counts["builds"].updated, report.is_complete) == (1, True), report.as_text()
            async with backend.database.read_session() as session:
                assert (await session.scalars(select(tables.Build).where(tables.Build.id == 7))).one().status is expected
        last = await import_from(address, TOKEN, backend, keeps_ids=True, cancels_builds=True)
        assert "diaspora/client: unfinished builds, canceled here: 1 (ids 9)" in last.notes
        async with backend.database.read_session() as session:
            canceled = (await session.scalars(select(tables.Build).where(tables.Build.id == 9))).one()
            assert (canceled.status, canceled.trace_size) == (CheckStatus.CANCELED, len(CANCELED_TRACE))
        repeated = await import_from(address, TOKEN, backend, keeps_ids=True, cancels_builds=True)
        assert sum(count.created + count.updated for count in repeated.counts.values()) == 0, repeated.as_text()
        server.paths.clear()
        # An issue that becomes confidential later stays readable, which is reported; what is written to it then is not read.
        issues = server.answers["/projects/3/issues"]
        issues[0] = {**issues[0], "confidential": True, "updated_at": "2016-02-04T15:31:46.176Z"}
        server.answers["/projects/3/issues/1/notes"].append({**NOTE, "id": 305, "system": False, "body": "for members"})
        again = await import_from(address, TOKEN, backend, keeps_ids=True, cancels_builds=True)
        assert sum(count.created + count.updated for count in again.counts.values()) == 0, again.as_text()
        (reason,) = [each.reason for each in again.omissions if each.where == "/api/v4/projects/3/issues/41"]
        assert reason.endswith("is readable here: delete it.")
        assert not any("/issues/1/notes" in path for path in server.paths)
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
