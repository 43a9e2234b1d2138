"""The section Limits of the interface document: pages of every list, and the limits that settings give."""

import pytest

from storage import tables
from tests.make import DataFactory
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.scenario import Scenario, valid_v3_request

WHOLE = {"GET /projects/:id/repository/commits/:sha/diff"}
"""Lists that are not paged: a diff is one thing."""
LISTS = 26
"""How many calls the document answers with an array."""


@pytest.fixture
async def labels(make: DataFactory) -> tuple[tables.Project, tables.User]:
    """A project with 101 labels, and its owner."""
    project = await make.project(owner=(owner := await make.user()))
    await make.save(*(tables.Label(project_id=project.id, title=f"{number:03}", color="#428BCA") for number in range(101)))
    return project, owner


class TestPages:
    @cites("Limits: a page has 20 entries by default", "Limits: a page has 100 entries at most")
    @pytest.mark.parametrize(
        ("params", "first", "last"),
        [
            ({}, 0, 19),
            ({"per_page": "100"}, 0, 99),
            ({"per_page": "101"}, 0, 99),
            ({"per_page": "2147483648"}, 0, 99),
            ({"per_page": "0"}, 0, 19),
            ({"per_page": "-1"}, 0, 19),
            ({"per_page": "1"}, 0, 0),
            ({"page": "1"}, 0, 19),
            ({"page": "2"}, 20, 39),
            ({"page": "0"}, 0, 19),
            ({"page": "6"}, 100, 100),
            ({"page": "2", "per_page": "100"}, 100, 100),
            ({"page": "2", "per_page": "1000"}, 100, 100),
        ],
    )
    async def test_have_20_entries_or_up_to_100(
        self, api: Api, labels: tuple[tables.Project, tables.User], params: dict[str, str], first: int, last: int
    ) -> None:
        project, owner = labels

        response = await api.get(f"/projects/{project.id}/labels", owner, **params)

        assert [label["name"] for label in response.json()] == [f"{number:03}" for number in range(first, last + 1)]
        assert response.headers["X-Total"] == "101"

    @cites(
        "Limits: a page has 20 entries by default",
        "Limits: a page has 100 entries at most",
        "Limits: lists are paged by page, from one, and per_page",
    )
    async def test_of_every_list(self, api: Api, scenario: Scenario) -> None:
        reader, lists = scenario.users["AD"], set()
        for documented in DOCUMENTED_CALLS:
            if not documented.call.startswith("GET "):
                continue
            _, path, _ = await valid_v3_request(scenario, documented.call, "AD")
            if "/artifacts" in path or not isinstance((await api.get(path, reader)).json(), list):
                continue
            lists.add(documented.call)
            seen = []
            for params in ({}, {"per_page": "101"}, {"page": "2", "per_page": "1"}, {"page": "0"}):
                headers = (await api.get(path, reader, **params)).headers
                seen.append((headers.get("X-Page"), headers.get("X-Per-Page")))
            unpaged = documented.call in WHOLE
            assert seen == ([(None, None)] * 4 if unpaged else [("1", "20"), ("1", "100"), ("2", "1"), ("1", "20")]), documented.call
        assert len(lists) == LISTS


class TestProjectsOfAUser:
    @cites("Limits: default_projects_limit is 10 and is given to new users")
    async def test_default_limit_is_ten(self, api: Api, make: DataFactory) -> None:
        admin, values = await make.admin(), {"name": "X", "password": "12345678"}

        async def limit_of(username: str, **params: object) -> int:
            person = {**values, "username": username, "email": f"{username}@example.org"}
            return int((await api.post("/users", admin, **person, **params)).json()["projects_limit"])

        assert (await api.get("/application/settings", admin)).json()["default_projects_limit"] == 10
        assert await limit_of("ada") == 10
        assert await limit_of("bob", projects_limit=0) == 0
        await api.put("/application/settings", admin, default_projects_limit=4)
        assert await limit_of("eve") == 4
