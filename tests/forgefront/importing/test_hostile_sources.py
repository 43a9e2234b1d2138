"""Sources that answer rubbish: the thing is skipped and reported, and the run goes on; a later run brings what was missing."""

from pathlib import Path
from typing import Any

import httpx
import orjson
from sqlalchemy import func, select

from forgefront.backend import Backend
from forgefront.config import Config
from storage import tables
from tests.make import DataFactory, token_of
from tests.support.import_source import Answer, head_of, import_from, open_backend, serve_source, skip_waiting

COUNTED = (tables.Label, tables.Milestone, tables.Issue, tables.MergeRequest, tables.Note, tables.Snippet, tables.Build, tables.GitRef)


def ok(value: Any, *headers: tuple[bytes, bytes]) -> Answer:
    return 200, orjson.dumps(value), list(headers)


async def count_rows(backend: Backend) -> dict[str, int]:
    async with backend.database.read_session() as session:
        return {table.__name__: int(await session.scalar(select(func.count()).select_from(table)) or 0) for table in COUNTED}


class TestHostileSource:
    async def test_everything_else_arrives_and_a_later_run_brings_the_rest(
        self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path
    ) -> None:
        admin, ann = await make.user("root", admin=True), await make.user("ann")
        project = await make.project(owner=ann, path="web", history={"commits": 3})
        issues = [await make.issue(project, author=ann, title=f"Issue {number}") for number in range(3)]
        for issue in issues:
            await make.note(issue, author=ann)
        await make.label(project, "bug")
        await make.milestone(project)
        await make.merge_request(project, author=ann)
        snippet = await make.snippet(project, author=ann)
        await make.build(project, head_of(make, project))
        other = await make.project(owner=admin, path="api", history={"commits": 2})
        await make.issue(other, author=admin)
        below = f"/api/v3/projects/{project.id}"
        calm, details, taken = False, dict[str, Any](), dict[str, Any]()

        def sabotage(path: str, query: dict[str, list[str]]) -> Answer | None:
            page = int(query.get("page", ["1"])[0])
            if calm:
                is_moved = taken and path == f"/api/v3/projects/{other.id}/issues"
                return ok([taken]) if is_moved else None
            match path:
                case _ if path == f"{below}/labels":
                    return ok([7, None, {"name": None}, {"name": "ok", "color": "#112233"}, {"name": "bad", "color": "no colour"}])
                case _ if path == f"{below}/milestones":
                    return 500, b"oops", []
                case _ if path == f"{below}/merge_requests":
                    return ok([{"id": 1}], (b"x-next-page", str(page + 1).encode()))
                case _ if path == f"{below}/issues/{issues[0].id}/notes":
                    return 200, b"<html>not JSON", []
                case _ if path == f"{below}/issues/{issues[1].id}/notes":
                    return ok([{"id": "x"}, {"id": -3}], (b"link", b'<https://evil.example/?page=2>; rel="next"'))
                case _ if path == f"{below}/snippets/{snippet.id}/raw":
                    return 500, b"", []
                case _ if path == f"{below}/builds":
                    return ok({"message": "not a list"})
                case _ if path == f"/api/v3/projects/{other.id}/issues":
                    entry = {"project_id": other.id, "title": "T", "state": "opened", "created_at": "2016-01-04T15:31:46Z", "labels": "x"}
                    wrong = [{**entry, "iid": 2, "id": number} for number in (0, -1, 2**40, "7", None)]
                    strange = {**entry, "iid": 3, "id": 903, "author": {"id": -5}, "assignee": [], "milestone": {"id": "a"}}
                    return ok([*wrong, strange, strange, {**entry, "id": 901}, {**entry, "id": 902, "iid": 2, "state": "lost"}])
                case _ if path in (below, f"/api/v3/projects/{other.id}"):
                    # Each is a fork of the other.
                    return ok({**details[path], "forked_from_project": {"id": project.id + other.id - int(path.rpartition("/")[2])}})
                case _ if path.startswith("/ann/web.git/"):
                    return 500, b"", []
            return None

        config = Config.load(data=tmp_path, database_url=database_url)
        target = Config.load(data=tmp_path / "target", database_url=new_database())
        async with serve_source(config, sabotage=sabotage) as (address, _), open_backend(target) as backend:
            async with httpx.AsyncClient(base_url=address, headers={"PRIVATE-TOKEN": token_of(admin)}) as client:
                calm = True
                details = {path: (await client.get(path)).json() for path in (below, f"/api/v3/projects/{other.id}")}
                calm = False

            async def run() -> Any:
                return await import_from(address, token_of(admin), backend, sleep=skip_waiting)

            report = await run()
            assert report.is_complete
            reasons = {(each.kind, each.where.removeprefix(below), each.reason) for each in report.left_behind}
            for kind, where, reason in (
                ("labels", "/labels", "2 entries are no objects"),
                ("labels", "/labels/?", "it has no name"),
                ("milestones", "/milestones", "status 500 after 5 attempts"),
                ("merge requests", "/merge_requests", "page 2 repeats an earlier page"),
                ("notes", f"/issues/{issues[0].id}/notes", "the answer is not JSON"),
                ("notes", f"/issues/{issues[1].id}/notes", "the link to the next page leads to another host"),
                ("notes", f"/issues/{issues[1].id}/notes/?", "it has no body"),
                ("snippets", f"/snippets/{snippet.id}", "status 500 after 5 attempts"),
                ("builds", "/builds", "the answer is an object, not a list"),
                ("issues", f"/api/v3/projects/{other.id}/issues/?", "it has no valid id"),
                ("issues", f"/api/v3/projects/{other.id}/issues/901", "it has no valid iid"),
                ("issues", f"/api/v3/projects/{other.id}/issues/902", "its state is unknown"),
            ):
                assert (kind, where, reason) in reasons, report.as_text(max_lines=200)
            assert any(each.kind == "repositories" and each.where == "ann/web.git" for each in report.left_behind)
            assert any(each.kind == "labels" and each.where.endswith("/bad") for each in report.left_behind)
            found = await count_rows(backend)
            assert found | {"GitRef": 0} == {
                "Label": 1, "Milestone": 0, "Issue": 4, "MergeRequest": 0, "Note": 1, "Snippet": 0, "Build": 0, "GitRef": 0,
            }  # fmt: skip
            assert token_of(admin) not in report.as_html() + report.as_text() + str(report.as_json())

            calm = True
            assert (await run()).is_complete
            found = await count_rows(backend)
            assert found | {"GitRef": 0} == {
                "Label": 2, "Milestone": 1, "Issue": 5, "MergeRequest": 1, "Note": 3, "Snippet": 1, "Build": 1, "GitRef": 0,
            }  # fmt: skip
            assert found["GitRef"] >= 2
            # An issue of another project.
            taken |= {"id": issues[0].id, "iid": 9, "title": "Taken", "state": "opened", "created_at": "2016-01-04T15:31:46Z"}
            taken |= {"updated_at": "2040-01-04T15:31:46Z"}
            again = await run()
            assert {each.reason for each in again.left_behind} == {"sourceId was imported into another project", "status 404"}
            assert await count_rows(backend) == found
            assert sum(count.created + count.updated for count in again.counts.values()) == 0, again.as_text()

    async def test_names_that_are_taken_are_reported(self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path) -> None:
        admin, ann = await make.user("root", admin=True), await make.user("ann")
        project = await make.project(owner=ann, path="web")
        await make.issue(project, author=ann)
        await make.group(path="team", owner=ann)
        config = Config.load(data=tmp_path, database_url=database_url)
        target = Config.load(data=tmp_path / "target", database_url=new_database())
        async with serve_source(config) as (address, _), open_backend(target) as backend:
            from forgefront.importing.import_target import OPERATIONS_FILE
            from forgefront.local_client import LocalClient

            client = LocalClient(backend.graph, OPERATIONS_FILE)
            for username in ("boss", "ann", "team"):
                values = {"username": username, "name": "X", "email": f"{username}@here.example", "admin": username == "boss"}
                await client.run("CreateAdministrator", input=values)
            report = await import_from(address, token_of(admin), backend)
            assert report.is_complete
            kinds = {each.kind for each in report.left_behind}
            assert kinds >= {"users", "groups", "projects"}, report.as_text()
            assert (await count_rows(backend))["Issue"] == 0
