"""Sources that answer rubbish: the thing is skipped and reported, and the run goes on; a later run brings what was missing."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import func, select
from sqlmodel import col

from forgefront.backend import Backend
from forgefront.config import Config
from forgefront.importing.import_target import OPERATIONS_FILE
from forgefront.local_client import LocalClient
from storage import tables
from tests.make import DataFactory, token_of
from tests.support.imports.import_source import Answer, Sabotage, head_of, import_from, open_backend, serve_source, skip_waiting

WHEN = "2016-01-04T15:31:46Z"
LATER = "2040-01-04T15:31:46Z"
WHOLE = {"Label": 1, "Milestone": 1, "Issue": 1, "MergeRequest": 1, "Note": 1, "Snippet": 1, "Build": 1, "GitRef": 1}
"""The rows of a project when everything of it was imported."""


def ok(value: Any, *headers: tuple[bytes, bytes]) -> Answer:
    return 200, orjson.dumps(value), list(headers)


def always(answer: Answer) -> Callable[[int], Answer]:
    return lambda page: answer


def an_issue(**values: Any) -> dict[str, Any]:
    return {"id": 901, "iid": 9, "title": "T", "state": "opened", "created_at": WHEN, "labels": [], **values}


@dataclass(frozen=True)
class Fault:
    """Of one project of the source. In paths, `{issue}` and `{snippet}` are ids, and `{id}` is the project's own."""

    name: str
    path: str
    answer: Callable[[int], Answer]
    """Of a page."""
    left_behind: frozenset[tuple[str, str, str | None]]
    """Kind, path, and reason; None where git or the graph says it in words of their own."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """What differs from WHOLE after the first run."""
    later_rows: Mapping[str, int] = field(default_factory=dict)


API = "/api/v3/projects/{id}"
NOTES = f"{API}/issues/{{issue}}/notes"

FAULTS = (
    Fault(
        "entries-that-are-no-labels",
        f"{API}/labels",
        always(ok([7, None, {"name": None}, {"name": "ok", "color": "#112233"}, {"name": "bad", "color": "no colour"}])),
        frozenset(
            {
                ("labels", f"{API}/labels", "2 entries are no objects"),
                ("labels", f"{API}/labels/?", "it has no name"),
                ("labels", f"{API}/labels/bad", None),
            }
        ),
        later_rows={"Label": 2},
    ),
    Fault(
        "status-500",
        f"{API}/milestones",
        always((500, b"oops", [])),
        frozenset({("milestones", f"{API}/milestones", "status 500 after 5 attempts")}),
        {"Milestone": 0},
    ),
    Fault(
        "endless-pages",
        f"{API}/merge_requests",
        lambda page: ok([{"id": 1}], (b"x-next-page", str(page + 1).encode())),
        frozenset(
            {
                ("merge requests", f"{API}/merge_requests", "page 2 repeats an earlier page"),
                ("merge requests", f"{API}/merge_requests/1", "status 404"),
            }
        ),
        {"MergeRequest": 0},
    ),
    Fault(
        "no-json",
        NOTES,
        always((200, b"<html>not JSON", [])),
        frozenset({("notes", NOTES, "the answer is not JSON")}),
        {"Note": 0},
    ),
    Fault(
        "pages-of-another-host",
        NOTES,
        always(ok([], (b"link", b'<https://evil.example/?page=2>; rel="next"'))),
        frozenset({("notes", NOTES, "the link to the next page leads to another host")}),
        {"Note": 0},
    ),
    Fault(
        "notes-without-a-body",
        NOTES,
        always(ok([{"id": "x"}, {"id": -3}])),
        frozenset({("notes", f"{NOTES}/?", "it has no body")}),
        {"Note": 0},
    ),
    Fault(
        "no-text",
        f"{API}/snippets/{{snippet}}/raw",
        always((500, b"", [])),
        frozenset({("snippets", f"{API}/snippets/{{snippet}}", "status 500 after 5 attempts")}),
        {"Snippet": 0},
    ),
    Fault(
        "no-list",
        f"{API}/builds",
        always(ok({"message": "not a list"})),
        frozenset({("builds", f"{API}/builds", "the answer is an object, not a list")}),
        {"Build": 0},
    ),
    Fault(
        "wrong-ids",
        f"{API}/issues",
        always(ok([an_issue(id=number) for number in (0, -1, 2**40, "7", None)])),
        frozenset({("issues", f"{API}/issues/?", "it has no valid id")}),
        {"Issue": 0, "Note": 0},
    ),
    Fault(
        "no-iid",
        f"{API}/issues",
        always(ok([an_issue(iid=None)])),
        frozenset({("issues", f"{API}/issues/901", "it has no valid iid")}),
        {"Issue": 0, "Note": 0},
    ),
    Fault(
        "unknown-state",
        f"{API}/issues",
        always(ok([an_issue(state="lost")])),
        frozenset({("issues", f"{API}/issues/901", "its state is unknown")}),
        {"Issue": 0, "Note": 0},
    ),
    Fault(
        "no-clone",
        "/ann/no-clone.git/",
        always((500, b"", [])),
        frozenset({("repositories", "ann/no-clone.git", None)}),
        {"GitRef": 0},
    ),
)


async def count_rows(backend: Backend, path: str) -> dict[str, int]:
    """Of the project of this path; refs count as one."""
    counted = (
        tables.Label, tables.Milestone, tables.Issue, tables.MergeRequest, tables.Note, tables.Snippet, tables.Build, tables.GitRef,
    )  # fmt: skip
    async with backend.database.read_session() as session:
        project_id = await session.scalar(select(col(tables.Project.id)).where(col(tables.Project.path) == path))
        rows = {
            table.__name__: int(await session.scalar(select(func.count()).where(col(table.project_id) == project_id)) or 0)
            for table in counted
        }
    return rows | {"GitRef": min(rows["GitRef"], 1)}


@asynccontextmanager
async def run_between(
    database_url: str, new_database: Any, folder: Path, sabotage: Sabotage | None = None
) -> AsyncIterator[tuple[str, Backend]]:
    """The address of a source with the data of the test, and an empty instance."""
    config = Config.load(data=folder, database_url=database_url)
    target = Config.load(data=folder / "target", database_url=new_database())
    async with serve_source(config, sabotage=sabotage) as (address, _), open_backend(target) as backend:
        yield address, backend


class SourceFaults:
    """Answers the faults, each in the project of its name, until it `is_calm`."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        self.is_calm = False

    def __call__(self, path: str, query: dict[str, list[str]]) -> Answer | None:
        if self.is_calm:
            return None
        found = self.faults.get(path) or next(
            (fault for start, fault in self.faults.items() if start.endswith("/") and path.startswith(start)), None
        )
        return None if found is None else found.answer(int(query.get("page", ["1"])[0]))


class TestFaults:
    async def test_each_is_reported_skipped_and_made_good_by_a_later_run(
        self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path
    ) -> None:
        admin, ann = await make.user("root", admin=True), await make.user("ann")
        sabotage, expected = SourceFaults(), dict[str, set[tuple[str, str, str | None]]]()
        for fault in (None, *FAULTS):
            name = "whole" if fault is None else fault.name
            project = await make.project(owner=ann, path=name, history={"commits": 2})
            issue = await make.issue(project, author=ann)
            await make.note(issue, author=ann)
            await make.label(project, "bug")
            await make.milestone(project)
            await make.merge_request(project, author=ann)
            snippet = await make.snippet(project, author=ann)
            await make.build(project, head_of(make, project))
            ids = {"id": project.id, "issue": issue.id, "snippet": snippet.id}
            if fault is not None:
                sabotage.faults[fault.path.format(**ids)] = fault
                expected[name] = {(kind, where.format(**ids), reason) for kind, where, reason in fault.left_behind}
        async with run_between(database_url, new_database, tmp_path, sabotage) as (address, backend):
            report = await import_from(address, token_of(admin), backend, sleep=skip_waiting)
            assert report.is_complete
            unexplained = {(kind, where) for found in expected.values() for kind, where, reason in found if reason is None}
            left = {(each.kind, each.where, None if (each.kind, each.where) in unexplained else each.reason) for each in report.omissions}
            assert left == set().union(*expected.values()), report.as_text(max_lines=200)
            assert await count_rows(backend, "whole") == WHOLE
            for fault in FAULTS:
                assert await count_rows(backend, fault.name) == {**WHOLE, **fault.rows}, fault.name
            assert token_of(admin) not in report.as_html() + report.as_text() + str(report.as_json())

            sabotage.is_calm = True
            again = await import_from(address, token_of(admin), backend, sleep=skip_waiting)
            assert again.is_complete and not again.omissions, again.as_text()
            for fault in FAULTS:
                assert await count_rows(backend, fault.name) == {**WHOLE, **fault.later_rows}, fault.name


class TestSourceAgainstItself:
    """Entries that are valid alone, and contradict others."""

    async def test_two_forks_of_each_other_are_imported(
        self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path
    ) -> None:
        admin, ann = await make.user("root", admin=True), await make.user("ann")
        first, second = [await make.project(owner=ann, path=path) for path in ("web", "api")]
        details = dict[str, Any]()

        def sabotage(path: str, query: dict[str, list[str]]) -> Answer | None:
            return ok(details[path]) if path in details else None

        async with run_between(database_url, new_database, tmp_path, sabotage) as (address, backend):
            async with httpx.AsyncClient(base_url=address, headers={"PRIVATE-TOKEN": token_of(admin)}) as client:
                for project, other in ((first, second), (second, first)):
                    path = f"/api/v3/projects/{project.id}"
                    details[path] = {**(await client.get(path)).json(), "forked_from_project": {"id": other.id}}
            report = await import_from(address, token_of(admin), backend)
            assert report.is_complete
            assert report.counts["projects"].created == 2, report.as_text()

    async def test_an_issue_twice_in_a_list_with_strange_relations_is_imported_once(
        self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path
    ) -> None:
        admin = await make.user("root", admin=True)
        project = await make.project(owner=admin, path="web")
        strange = an_issue(labels="x", author={"id": -5}, assignee=[], milestone={"id": "a"})

        def sabotage(path: str, query: dict[str, list[str]]) -> Answer | None:
            return ok([strange, strange]) if path == f"/api/v3/projects/{project.id}/issues" else None

        async with run_between(database_url, new_database, tmp_path, sabotage) as (address, backend):
            report = await import_from(address, token_of(admin), backend)
            assert report.is_complete
            assert (await count_rows(backend, "web"))["Issue"] == 1, report.as_text()

    async def test_an_issue_of_another_project_changes_nothing(
        self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path
    ) -> None:
        admin, ann = await make.user("root", admin=True), await make.user("ann")
        issue = await make.issue(await make.project(owner=ann, path="web"), author=ann)
        other = await make.project(owner=ann, path="api")
        taken = dict[str, Any]()

        def sabotage(path: str, query: dict[str, list[str]]) -> Answer | None:
            return ok([taken]) if taken and path == f"/api/v3/projects/{other.id}/issues" else None

        async with run_between(database_url, new_database, tmp_path, sabotage) as (address, backend):
            assert not (await import_from(address, token_of(admin), backend)).omissions
            taken |= an_issue(id=issue.id, title="Taken", updated_at=LATER)
            again = await import_from(address, token_of(admin), backend)
            assert {each.reason for each in again.omissions} == {"sourceId was imported into another project", "status 404"}
            assert [(await count_rows(backend, path))["Issue"] for path in ("web", "api")] == [1, 0]
            assert sum(count.created + count.updated for count in again.counts.values()) == 0, again.as_text()


class TestTakenNames:
    @pytest.mark.parametrize("names", [("ann", "team"), ()], ids=["taken", "free"])
    async def test_are_reported_and_what_is_below_them_is_left_behind(
        self, make: DataFactory, database_url: str, new_database: Any, tmp_path: Path, names: tuple[str, ...]
    ) -> None:
        admin, ann = await make.user("root", admin=True), await make.user("ann")
        await make.issue(await make.project(owner=ann, path="web"), author=ann)
        await make.group(path="team", owner=ann)
        async with run_between(database_url, new_database, tmp_path) as (address, backend):
            client = LocalClient(backend.graph, OPERATIONS_FILE)
            for username in ("boss", *names):
                values = {"username": username, "name": "X", "email": f"{username}@here.example", "admin": username == "boss"}
                await client.run("CreateAdministrator", input=values)
            report = await import_from(address, token_of(admin), backend)
            assert report.is_complete
            kinds = {each.kind for each in report.omissions}
            assert (kinds & {"users", "groups", "projects"} == {"users", "groups", "projects"}) is bool(names), report.as_text()
            assert (await count_rows(backend, "web"))["Issue"] == (0 if names else 1)
