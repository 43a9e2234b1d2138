"""A parameter that becomes a list accepts at most 1,000 values."""

from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Api

MESSAGE = "has too many values (maximum is 1000)"


class TestListParameters:
    async def test_with_too_many_values_answer_400(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        names, numbers = ",".join(f"l{number}" for number in range(1001)), ",".join(map(str, range(1001)))
        path = f"/projects/{project.id}/issues"

        for response, name in (
            (await api.get(path, owner, labels=names), "labels"),
            (await api.get(path, owner, iid=numbers), "iid"),
            (await api.post(path, owner, title="T", labels=names), "labels"),
        ):
            assert response.status_code == 400
            assert response.json() == {"message": {name: [MESSAGE]}}
        assert await make.count(tables.Issue) == 0

    async def test_with_as_many_as_allowed_are_taken(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.issue(project)
        numbers = ",".join(map(str, range(1, 1001)))

        response = await api.get(f"/projects/{project.id}/issues", owner, iid=numbers)

        assert (response.status_code, len(response.json())) == (200, 1)
