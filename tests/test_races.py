"""Concurrent callers through the whole service (docs/promises.md R4, R5, R19, R21, R22), at the size of a suite.

Equal creates by one caller stand with their noun in tests/rest_v3: labels, milestones, groups, members, e-mails, keys, users.
The same at full size, against a served process that is killed, stands in tests/reliability.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from forgefront.app import App
from forgefront.config import Config
from storage import tables
from storage.database.clock import now
from tests.make import EXTERNAL_URL, DataFactory, ssh_key, token_of

AT_ONCE = 32
EACH = 3
ISSUES = """
query Walk($path: String!, $after: String) {
  project(path: $path) { issues(first: 5, after: $after) { nodes { iid } pageInfo { hasNextPage endCursor } } }
}
"""


class RaceClient:
    """The whole service, as one caller after the other sees it: `await service.post("/projects/1/issues", user, title="t")`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def ask(self, method: str, path: str, user: tables.User, **settings: Any) -> httpx.Response:
        return await self.client.request(method, f"/api/v3{path}", headers={"PRIVATE-TOKEN": token_of(user)}, **settings)

    async def get(self, path: str, user: tables.User, /, **params: Any) -> Any:
        response = await self.ask("GET", path, user, params=params)
        assert response.status_code == 200
        return response.json()

    async def post(self, path: str, user: tables.User, /, **params: Any) -> httpx.Response:
        return await self.ask("POST", path, user, json=params)

    async def delete(self, path: str, user: tables.User) -> httpx.Response:
        return await self.ask("DELETE", path, user)

    async def graphql(self, query: str, user: tables.User, **variables: Any) -> Any:
        headers = {"Authorization": f"Bearer {token_of(user)}"}
        response = await self.client.post("/graphql", headers=headers, json={"query": query, "variables": variables})
        assert "errors" not in response.json()
        return response.json()["data"]


@asynccontextmanager
async def open_service(folder: Path, database_url: str, clock: Callable[[], datetime] = now) -> AsyncIterator[RaceClient]:
    app = App(Config.load(data=folder, database_url=database_url, hooks_allow_local=True, external_url=EXTERNAL_URL), clock=clock)
    await app.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=EXTERNAL_URL) as client:
            yield RaceClient(client)
    finally:
        await app.stop()


@pytest.fixture
async def service(make: DataFactory, tmp_path: Path, database_url: str) -> AsyncIterator[RaceClient]:
    async with open_service(tmp_path, database_url) as service:
        yield service


async def run_concurrently(calls: list[Awaitable[httpx.Response]]) -> tuple[Counter[int], list[Any]]:
    """How often each status came, and the bodies of the refusals."""
    responses = await asyncio.gather(*calls)
    return Counter(response.status_code for response in responses), [
        response.json() for response in responses if response.status_code >= 400
    ]


class TestDuplicateCreates:
    """One of equal requests wins (R5)."""

    async def test_email_of_many_users(self, service: RaceClient, make: DataFactory) -> None:
        users = [await make.user() for _ in range(AT_ONCE)]

        codes, refusals = await run_concurrently([service.post("/user/emails", user, email="Same@example.org") for user in users])

        assert codes == {201: 1, 400: AT_ONCE - 1}
        assert refusals == [{"message": {"email": ["has already been taken"]}}] * (AT_ONCE - 1)
        assert await make.count(tables.Email) == AT_ONCE + 1

    async def test_key_of_many_users(self, service: RaceClient, make: DataFactory) -> None:
        users = [await make.user() for _ in range(AT_ONCE)]

        codes, refusals = await run_concurrently([service.post("/user/keys", user, title=user.username, key=ssh_key(1)) for user in users])

        assert codes == {201: 1, 400: AT_ONCE - 1}
        assert {tuple(refusal["message"]["fingerprint"]) for refusal in refusals} == {("has already been taken",)}
        assert await make.count(tables.SshKey) == 1

    async def test_label_of_many_users_in_another_case(self, service: RaceClient, make: DataFactory) -> None:
        users = [await make.user() for _ in range(AT_ONCE)]
        project = await make.project(members=[(user, tables.AccessLevel.MASTER) for user in users])
        path = f"/projects/{project.id}/labels"

        codes, _ = await run_concurrently(
            [service.post(path, user, name=name, color="#FF0000") for user, name in zip(users, ["bug", "Bug"] * 16, strict=True)]
        )

        assert codes == {200: 2, 409: AT_ONCE - 2}
        assert sorted(label["name"] for label in await service.get(path, users[0])) == ["Bug", "bug"]

    async def test_group_path_that_names_a_user_too(self, service: RaceClient, make: DataFactory) -> None:
        users, admin = [await make.user() for _ in range(AT_ONCE - 1)], await make.admin()
        body = {"email": "tools@example.org", "username": "tools", "name": "Tools", "password": "long-enough", "confirm": False}

        codes, _ = await run_concurrently(
            [*(service.post("/groups", user, name=user.username, path="tools") for user in users), service.post("/users", admin, **body)]
        )

        # A group path refused is a 400, a user name refused a 409.
        assert codes in ({201: 1, 400: AT_ONCE - 1}, {201: 1, 400: AT_ONCE - 2, 409: 1})

    async def test_member_added_by_many_owners(self, service: RaceClient, make: DataFactory) -> None:
        owners, user = [await make.user() for _ in range(AT_ONCE)], await make.user()
        group = await make.group(members=[(owner, tables.AccessLevel.OWNER) for owner in owners])

        codes, _ = await run_concurrently(
            [service.post(f"/groups/{group.id}/members", owner, user_id=user.id, access_level=30) for owner in owners]
        )

        assert codes == {201: 1, 409: AT_ONCE - 1}


class TestNumbers:
    async def test_issues_of_many_writers_leave_no_gap(self, service: RaceClient, make: DataFactory) -> None:
        users = [await make.user() for _ in range(AT_ONCE)]
        project = await make.project(members=[(user, tables.AccessLevel.REPORTER) for user in users])
        path, seen = f"/projects/{project.id}/issues", []

        async def write(user: tables.User) -> None:
            for number in range(EACH):
                response = await service.post(path, user, title=f"{user.username} {number}", labels=f"all,{user.username}")
                assert response.status_code == 200, response.text
                seen.append(response.json()["iid"])

        async with asyncio.TaskGroup() as writers:
            for user in users:
                writers.create_task(write(user))

        assert sorted(seen) == list(range(1, AT_ONCE * EACH + 1))
        assert await make.count(tables.Issue) == AT_ONCE * EACH
        assert await make.count(tables.Label) == AT_ONCE + 1
        assert await make.count(tables.IssueLabel) == 2 * AT_ONCE * EACH

    async def test_rise_when_the_clock_is_set_back(self, make: DataFactory, tmp_path: Path, database_url: str) -> None:
        project = await make.project(owner=(user := await make.user()))
        path, ahead = f"/projects/{project.id}/issues", timedelta(hours=1)

        async with open_service(tmp_path, database_url, lambda: now() + ahead) as service:
            first = (await service.post(path, user, title="first", labels="a")).json()
            ahead = timedelta()
            second = (await service.post(path, user, title="second", labels="a,b")).json()
            closed = await service.ask("PUT", f"{path}/{first['id']}", user, json={"state_event": "close"})

        assert (second["id"] > first["id"], second["iid"]) == (True, first["iid"] + 1)
        assert (closed.status_code, closed.json()["state"]) == (200, "closed")
        assert datetime.fromisoformat(second["created_at"]) < datetime.fromisoformat(first["created_at"])
        assert first["created_at"].endswith("Z")


class TestDeletes:
    """Deletes are idempotent, also concurrent ones (R21)."""

    @pytest.mark.parametrize("noun", ["keys", "emails"])
    async def test_of_a_user(self, service: RaceClient, make: DataFactory, noun: str) -> None:
        user = await make.user()
        params = {"keys": {"title": "a", "key": ssh_key(1)}, "emails": {"email": "second@example.org"}}[noun]
        made = (await service.post(f"/user/{noun}", user, **params)).json()

        codes, _ = await run_concurrently([service.delete(f"/user/{noun}/{made['id']}", user) for _ in range(AT_ONCE)])

        assert codes == {200: AT_ONCE}
        assert await service.get(f"/user/{noun}", user) == []

    async def test_of_a_hook(self, service: RaceClient, make: DataFactory) -> None:
        made = (await service.post("/hooks", admin := await make.admin(), url="http://127.0.0.1:9/told")).json()[0]

        codes, _ = await run_concurrently([service.delete(f"/hooks/{made['id']}", admin) for _ in range(AT_ONCE)])

        assert codes == {200: AT_ONCE}
        assert await service.get("/hooks", admin) == []


class TestPagination:
    """Ten pages while another client adds to the list; many rows share a moment (R19)."""

    SIZE, PAGES = 5, 10

    async def prepare(self, make: DataFactory) -> tuple[tables.User, tables.Project, list[int]]:
        project = await make.project(owner=(user := await make.user()))
        moments = [now() - timedelta(minutes=number // 7) for number in range(self.SIZE * self.PAGES)]
        iids = [(await make.issue(project, author=user, created_at=moment)).iid for moment in moments]
        return user, project, iids

    @pytest.mark.parametrize("order_by", ["created_at", "updated_at"])
    async def test_page_numbers(self, service: RaceClient, make: DataFactory, order_by: str) -> None:
        user, project, before = await self.prepare(make)
        path, seen = f"/projects/{project.id}/issues", []

        async def page(number: int, **order: str) -> list[int]:
            found = await service.get(path, user, page=number, per_page=self.SIZE, order_by=order_by, **order)
            return [issue["iid"] for issue in found]

        # The oldest first, new rows come behind what was read.
        for number in range(1, self.PAGES + 1):
            seen += await page(number, sort="asc")
            await service.post(path, user, title="inserted")
        assert sorted(iid for iid in seen if iid in before) == before

        # The newest first, a page number means the rows pushed down by what came in front: some are seen again, none is missed.
        seen, number = [], 1
        while found := await page(number, sort="desc"):
            seen += found
            number += 1
            if number <= self.PAGES:
                await service.post(path, user, title="inserted")
        assert set(before) <= set(seen)

    async def test_cursors_see_each_row_once(self, service: RaceClient, make: DataFactory) -> None:
        user, project, before = await self.prepare(make)
        seen: list[int] = []
        after, more = None, True
        while more:
            issues = (await service.graphql(ISSUES, user, path=str(project.id), after=after))["project"]["issues"]
            seen += [int(issue["iid"]) for issue in issues["nodes"]]
            after, more = issues["pageInfo"]["endCursor"], issues["pageInfo"]["hasNextPage"]
            await service.post(f"/projects/{project.id}/issues", user, title="inserted")

        assert sorted(seen) == before
