"""The section Builds of the interface document, except artifacts."""

import shutil
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from graph.context import Services
from graph.rules.builds import traces
from graph.rules.builds.trace_files import StoredTrace
from storage import tables
from storage.database.clock import now
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

STATUSES = ("pending", "running", "failed", "success", "canceled")


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user(bio="Writes", website_url="http://dev.example")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, history={"commits": 4})


@pytest.fixture
async def head(services: Services, project: tables.Project) -> str:
    """The commit of `master`."""
    return str(await services.repositories.read(project.id, lambda repository: repository.resolve("master")))


async def add_artifact_and_trace(make: DataFactory, build: tables.Build) -> None:
    """Gives the build an artifact, as a row."""
    artifact = tables.Artifact(project_id=build.project_id, build_id=build.id, filename="a.zip", size=2**33, key=f"{build.id:032x}")
    await make.save(artifact)


async def names(api: Api, path: str, viewer: tables.User, **params: Any) -> str:
    # The client drops the query of an address where it is given parameters, even none.
    response = await (api.get(path, viewer, **params) if params else api.request("GET", path, viewer))
    assert response.status_code == 200
    return "".join(build["name"] for build in response.json())


class TestListProjectBuilds:
    """GET /projects/:id/builds"""

    @pytest.fixture
    async def builds(self, make: DataFactory, project: tables.Project, head: str) -> list[tables.Build]:
        return [await make.build(project, head, name=status[0], status=CheckStatus(status)) for status in STATUSES]

    @pytest.mark.usefixtures("builds")
    async def test_the_newest_first(self, api: Api, owner: tables.User, project: tables.Project) -> None:
        response = await api.get(f"/projects/{project.id}/builds", owner, per_page=2)

        assert [build["name"] for build in response.json()] == ["c", "s"]
        assert (response.headers["X-Total"], response.headers["X-Next-Page"]) == ("5", "2")
        assert await names(api, f"/projects/{project.id}/builds", owner, per_page=2, page=3) == "p"

    @cites("States: states of a build")
    @pytest.mark.usefixtures("builds")
    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ("", "csfrp"),
            ("scope=", "csfrp"),
            ("scope=pending", "p"),
            ("scope[]=pending&scope[]=running", "rp"),
            ("scope[0]=pending&scope[1]=success", "sp"),
            ("scope=failed&scope=canceled", "cf"),
            ("scope%5B%5D=failed", "f"),
        ],
    )
    async def test_in_the_states_of_the_scope(self, api: Api, owner: tables.User, project: tables.Project, query: str, shown: str) -> None:
        assert await names(api, f"/projects/{project.id}/builds?{query}", owner) == shown

    @pytest.mark.parametrize(
        "query",
        [
            *("scope=skipped", "scope=PENDING", "scope[]=pending&scope[]=x", "scope=pending,running"),
            *("scope[a]=evil", "scope[a]=pending", "scope[][a]=pending", "scope[0][]=pending", "scope[=pending", "scope[a=pending"),
            "scope[]=pending&scope[a]=evil",
        ],
    )
    async def test_rejects_unknown_states(self, api: Api, make: DataFactory, project: tables.Project, query: str) -> None:
        await make.member(project, reporter := await make.user(), AccessLevel.REPORTER)
        await make.member(project, guest := await make.user(), AccessLevel.GUEST)

        path = f"/projects/{project.id}/builds?{query}"
        response = await api.request("GET", path, reporter)

        assert (response.status_code, response.json()) == (400, {"message": "Scope contains invalid value(s)"})
        # The permission to see builds is checked first (docs/decisions.md 5).
        assert (await api.request("GET", path, guest)).status_code == 403
        assert (await api.request("GET", path, await make.user())).status_code == 404

    async def test_excludes_retried_builds(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        build = await make.build(project, head, name="n", status=CheckStatus.FAILED)
        await api.post(f"/projects/{project.id}/builds/{build.id}/retry", owner)

        response = await api.get(f"/projects/{project.id}/builds", owner)

        assert ([each["id"] for each in response.json()], response.headers["X-Total"]) == ([build.id], "1")

    async def test_statement_count_does_not_grow_with_rows(
        self, api: Api, make: DataFactory, statements: StatementRecorder, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        counts = []
        for number in (1, 29):
            for _ in range(number):
                build = await make.build(project, head, user_id=(await make.user()).id, runner_id=(await make.runner()).id)
                await add_artifact_and_trace(make, build)
            with statements.record() as seen:
                assert (await api.get(f"/projects/{project.id}/builds", owner, per_page=30)).status_code == 200
            counts.append(len(seen))

        # Beside those of one row it is counted how many there are.
        assert counts[0] in (counts[1], counts[1] - 1)

    async def test_of_a_project_with_private_builds(self, api: Api, make: DataFactory) -> None:
        """Section Authentication and docs/promises.md (d): what outsiders see of a public project follows its `public_builds`."""
        for public_builds, status in ((True, 200), (False, 403)):
            project = await make.project(visibility=Visibility.PUBLIC, public_builds=public_builds, history={"commits": 4})
            build = await make.build(project, "f" * 40)
            for path in ("", f"/{build.id}"):
                assert (await api.get(f"/projects/{project.id}/builds{path}", await make.user())).status_code == status


class TestListBuildsOfCommit:
    """GET /projects/:id/repository/commits/:sha/builds"""

    async def test_by_any_exact_name(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        await make.build(project, head, name="a")
        await make.build(project, head, name="b", status=CheckStatus.FAILED)
        await make.build(project, "f" * 40, name="c")
        path = f"/projects/{project.id}/repository/commits"

        for sha in (head, head[:8], "master"):
            assert await names(api, f"{path}/{sha}/builds", owner) == "ba"
        assert await names(api, f"{path}/master/builds", owner, scope="failed") == "b"
        assert await names(api, f"{path}/topic/builds", owner) == ""
        assert (await api.get(f"{path}/master/builds", owner, scope="x")).json() == {"message": "Scope contains invalid value(s)"}
        for missing in ("gone", "f" * 40):
            response = await api.get(f"{path}/{missing}/builds", owner, scope="x")
            assert (response.status_code, response.json()) == (404, {"message": "404 Commit Not Found"})


class TestGetBuild:
    """GET /projects/:id/builds/:build_id"""

    async def test_shows_it(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str) -> None:
        runner = await make.runner(description="In the cellar", name="cellar")
        columns = {"status": CheckStatus.SUCCESS, "coverage": 98.29, "stage": "deploy", "ref": "v1", "tag": True}
        build = await make.build(project, head, name="unit", user_id=owner.id, runner_id=runner.id, **columns)
        await add_artifact_and_trace(make, build)

        shown = (await api.get(f"/projects/{project.id}/builds/{build.id}", owner)).json()

        commit = shown.pop("commit")
        assert (commit["id"], commit["short_id"]) == (head, head[:8])
        user = shown.pop("user")
        assert (user["username"], user["bio"], user["website_url"], user["is_admin"]) == (
            owner.username,
            "Writes",
            "http://dev.example",
            False,
        )
        assert all(shown.pop(key).endswith("Z") for key in ("created_at", "started_at", "finished_at"))
        assert shown == {
            "id": build.id,
            "status": "success",
            "stage": "deploy",
            "name": "unit",
            "ref": "v1",
            "tag": True,
            "coverage": 98.29,
            "download_url": f"{EXTERNAL_URL}/api/v3/projects/{project.id}/builds/{build.id}/artifacts",
            "artifacts_file": {"filename": "a.zip", "size": 2**33},
            "runner": {"id": runner.id, "description": "In the cellar", "active": True, "is_shared": True, "name": "cellar"},
        }

    async def test_missing_values_are_null(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project) -> None:
        build = await make.build(project, "f" * 40)

        shown = (await api.get(f"/projects/{project.id}/builds/{build.id}", owner)).json()

        absent = ("started_at", "finished_at", "coverage", "download_url", "artifacts_file", "runner", "commit", "user")
        assert [shown[key] for key in absent] == [None] * len(absent)

    async def test_of_another_project_or_none_is_not_found(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        build = await make.build(project, "f" * 40)
        past = await make.build(project, "f" * 40, current_id=build.id)
        other = await make.project(owner=owner)
        for method, action in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry"), ("POST", "/erase")):
            for project_id, key in ((other.id, build.id), (project.id, past.id), (project.id, 999), (project.id, "1x"), (project.id, -1)):
                response = await api.request(method, f"/projects/{project_id}/builds/{key}{action}", owner)
                assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})
        assert await make.fetch(tables.Build, past.id) is not None


async def test_a_change_is_answered_where_the_repository_cannot_be_read(
    api: Api, make: DataFactory, services: Services, owner: tables.User, project: tables.Project, head: str
) -> None:
    """What was done is not called a failure because the commit beside it cannot be shown."""
    build = await make.build(project, head)
    shutil.rmtree(services.repositories.path_of(project.id))

    response = await api.post(f"/projects/{project.id}/builds/{build.id}/cancel", owner)

    assert (response.status_code, response.json()["status"], response.json()["commit"]) == (201, "canceled", None)


@pytest.mark.parametrize("status", STATUSES)
class TestChanges:
    """Section States and transitions, and docs/decisions.md 2 and 11: each answers 201 with the build."""

    @cites("States: a build is canceled by cancel", "States: cancel leaves a finished build as it is")
    async def test_cancel(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str, status: str) -> None:
        """POST /projects/:id/builds/:build_id/cancel"""
        build = await make.build(project, head, status=CheckStatus(status))

        response = await api.post(f"/projects/{project.id}/builds/{build.id}/cancel", owner)

        assert response.status_code == 201
        assert response.json()["status"] == ("canceled" if status in ("pending", "running") else status)

    @cites(
        "States: a build is pending after retry, with started_at and finished_at null",
        "States: retry and erase are for builds that have ended",
    )
    async def test_retry(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str, status: str) -> None:
        """POST /projects/:id/builds/:build_id/retry"""
        build = await make.build(project, head, status=CheckStatus(status), user_id=owner.id)
        await add_artifact_and_trace(make, build)

        response = await api.post(f"/projects/{project.id}/builds/{build.id}/retry", owner)

        if status in ("pending", "running"):
            assert (response.status_code, response.json()) == (403, {"message": "403 Forbidden - Build is not retryable"})
        else:
            shown = response.json()
            assert (response.status_code, shown["id"], shown["status"]) == (201, build.id, "pending")
            absent = ("started_at", "finished_at", "coverage", "download_url", "artifacts_file", "runner")
            assert [shown[key] for key in absent] == [None] * len(absent)

    @cites("States: erase leaves the status of a build as it is", "States: retry and erase are for builds that have ended")
    async def test_erase(self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, head: str, status: str) -> None:
        """POST /projects/:id/builds/:build_id/erase"""
        build = await make.build(project, head, status=CheckStatus(status))
        await add_artifact_and_trace(make, build)
        path = f"/projects/{project.id}/builds/{build.id}"

        response = await api.post(f"{path}/erase", owner)

        refused = (403, {"message": "403 Forbidden - Build is not erasable!"})
        if status in ("pending", "running"):
            assert (response.status_code, response.json()) == refused
        else:
            # The closed shape has no artifacts_file.
            assert (response.status_code, response.json()["status"], response.json()["download_url"]) == (201, status, None)
            assert (await api.get(path, owner)).json()["artifacts_file"] is None
            again = await api.post(f"{path}/erase", owner)
            assert (again.status_code, again.json()) == refused


class TestTrace:
    """GET /projects/:id/builds/:build_id/trace"""

    async def test_is_streamed_as_text(
        self, api: Api, ask: Ask, make: DataFactory, services: Services, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        build = await make.build(project, head, status=CheckStatus.SUCCESS, finished_at=now() - timedelta(hours=1))
        path = f"/projects/{project.id}/builds/{build.id}/trace"
        empty = await api.get(path, owner)
        assert (empty.status_code, empty.content) == (200, b"")
        await make.trace(build, "one\n", "<b>two</b>\n", "três\n")
        printed = "one\n<b>two</b>\ntrês\n".encode()

        async def parts() -> int:
            return await make.count(tables.TracePart)

        for count in (3, 1):
            whole = await api.get(path, owner)
            assert (whole.status_code, whole.content, await parts()) == (200, printed, count)
            assert whole.headers["content-type"] == "text/plain; charset=utf-8"
            assert whole.headers["content-disposition"] == f'infile; filename="{build.id}.log"'
            assert {"x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'; sandbox"}.items() <= dict(
                whole.headers
            ).items()
            part = await api.request("GET", path, owner, headers={"Range": "bytes=2-9" if count == 3 else "Bytes=2-9"})
            assert (part.status_code, part.content) == (206, printed[2:10])
            head_only = await api.request("HEAD", path, owner)
            assert (head_only.content, head_only.headers["content-length"]) == (b"", str(len(printed)))
            await traces.join_traces(services)
        await ask.data("mutation ($input: BuildInput!) { eraseBuild(input: $input) { userErrors { code } } }", owner, input=of_build(build))
        assert (await api.get(path, owner)).content == b""
        for other in ("999999", "1x"):
            missing = await api.get(f"/projects/{project.id}/builds/{other}/trace", owner)
            assert (missing.status_code, missing.json()) == (404, {"message": "404 Not Found"})

    async def test_parts_that_are_joined_meanwhile_do_not_end_it(
        self, make: DataFactory, services: Services, project: tables.Project, head: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build = await make.build(project, head, status=CheckStatus.SUCCESS, finished_at=now() - timedelta(hours=1))
        await make.trace(build, *(f"{number}\n" for number in range(5)))
        file = StoredTrace(services, build.id, build.attempt, 0, "x.log", build.trace_size)
        outdated, find_part = await parts_of(services), StoredTrace._find_part
        found: list[int] = []

        async def find_outdated_part(trace: StoredTrace, offset: int) -> tables.TracePart:
            """The parts are joined between the lookup of the part and its opening."""
            found.append(offset)
            return outdated[1] if len(found) == 1 else await find_part(trace, offset)

        async with file.open(1, 8) as chunks:
            read = await anext(aiter(chunks))
            await traces.join_traces(services)
            monkeypatch.setattr(StoredTrace, "_find_part", find_outdated_part)
            async for chunk in chunks:
                read += chunk

        assert (read, found) == (b"\n1\n2\n3\n4", [2, 2])
        for row in await parts_of(services):
            await services.objects.delete(row.key)
        with pytest.raises(FileNotFoundError):
            async with file.open(0, 4):
                raise AssertionError("the object is missing")

    async def test_of_a_build_that_is_retried_meanwhile_it_is_that_of_the_attempt(
        self, ask: Ask, make: DataFactory, services: Services, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        build = await make.build(project, head, status=CheckStatus.SUCCESS, started_at=now())
        await make.trace(build, "first\n", "first\n")
        file = StoredTrace(services, build.id, build.attempt, 0, "x.log", build.trace_size)

        async with file.open(0, 12) as chunks:
            read = await anext(aiter(chunks))
            await ask.data(
                "mutation ($input: BuildInput!) { retryBuild(input: $input) { userErrors { code } } }", owner, input=of_build(build)
            )
            again = await make.fetch(tables.Build, build.id)
            assert again is not None and again.attempt == 2
            await make.trace(again, "other\n", "other\n")
            async for chunk in chunks:
                read += chunk
        assert read == b"first\nfirst\n"

        async with StoredTrace(services, again.id, 2, 1, "x.log", 12).open(0, 6) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"other\n"
        again.trace_generation = 2
        await make.save(again)
        # The runner was lost, and another one has begun the attempt.
        with pytest.raises(FileNotFoundError):
            async with StoredTrace(services, again.id, 2, 1, "x.log", 12).open(0, 12):
                raise AssertionError("it is another run")

    async def test_leaves_out_what_may_be_the_beginning_of_a_secret(
        self, api: Api, ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, head: str
    ) -> None:
        build = await make.build(project, head, status=CheckStatus.RUNNING)
        append = "mutation ($input: AppendBuildTraceInput!) { appendBuildTrace(input: $input) { userErrors { code } } }"
        beginning = token_of(owner)[:-1]

        await ask.data(append, owner, input={**of_build(build), "text": f"a{beginning}", "offset": 0})

        assert (await api.get(f"/projects/{project.id}/builds/{build.id}/trace", owner)).content == b"a"


def of_build(build: tables.Build) -> dict[str, Any]:
    return {"projectPath": str(build.project_id), "databaseId": build.id}


async def parts_of(services: Services) -> list[tables.TracePart]:
    async with services.database.read_session() as session:
        return [row for (row,) in await session.read(select(tables.TracePart))]
