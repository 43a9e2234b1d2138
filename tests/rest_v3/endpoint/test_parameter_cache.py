"""The variables of requests that read are made once for each address, without credentials and errors."""

import gc

import pytest

from graph.operations.query_checks import QueryChecks
from graph.planner.coerce.arguments import VariableValues
from rest_v3 import pagination
from rest_v3.endpoints.endpoint import Endpoint
from rest_v3.requests import parameter_cache
from rest_v3.requests.parameter_cache import MAX_QUERY_BYTES, ParameterCache, RequestParameters
from storage.tables import IssueState
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api
from tests.support.measuring.measured_memory import measure_memory


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The query strings whose variables were made. Nothing is cached at first, as tests on the other database have the same addresses."""
    parameter_cache._PARAMETERS.clear()
    found: list[str] = []
    read = Endpoint._read_variables

    def record(self: Endpoint, request, sent):  # type: ignore[no-untyped-def]
        found.append(request.query.decode())
        return read(self, request, sent)

    monkeypatch.setattr(Endpoint, "_read_variables", record)
    return found


async def test_an_address_is_read_once(api: Api, make: DataFactory, queries: list[str]) -> None:
    project = await make.project(owner=(owner := await make.user()))
    for state in (IssueState.OPENED, IssueState.CLOSED, IssueState.OPENED):
        await make.issue(project, state=state)
    path, stranger = f"/projects/{project.id}/issues", await make.user()
    for state, iids in (("opened", [3]), ("closed", [2])):
        queries.clear()
        responses = [await api.get(path, owner, state=state, per_page=1) for _ in range(2)]
        assert [[issue["iid"] for issue in response.json()] for response in responses] == [iids, iids]
        assert responses[0].headers["link"] == responses[1].headers["link"]
        assert f"state={state}" in responses[1].headers["link"]
        assert len(queries) == 1
        assert (await api.get(path, stranger, state=state, per_page=1)).status_code == 404
        assert len(queries) == 1
    second = await api.get(path, owner, state="opened", per_page=1, page=2)
    assert [issue["iid"] for issue in second.json()] == [1]


async def test_the_pages_of_a_list_and_its_batches_have_their_own_values(
    api: Api, make: DataFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of an address is that of its first batch."""
    project = await make.project(owner=(owner := await make.user()))
    rows = [await make.issue(project) for _ in range(7)]
    monkeypatch.setattr(pagination, "read_page_request", lambda sent, rules: pagination.PageRequest(int(sent.get("page", 1)), 5))
    endpoints = [each for each in gc.get_objects() if isinstance(each, Endpoint) and each.route.path == "/projects/:id/issues"]
    for endpoint in endpoints:
        monkeypatch.setattr(endpoint, "_batch_rows", 2)
    newest_first = [row.iid for row in reversed(rows)]
    for _ in range(3):
        for page, iids in ((1, newest_first[:5]), (2, newest_first[5:])):
            response = await api.get(f"/projects/{project.id}/issues", owner, page=page)
            assert [issue["iid"] for issue in response.json()] == iids


async def test_credentials_and_errors_are_not_cached(api: Api, make: DataFactory, queries: list[str]) -> None:
    project = await make.project(owner=(owner := await make.user()))
    path = f"/projects/{project.id}/issues"
    for _ in range(2):
        assert (await api.get(path, private_token=token_of(owner))).status_code == 200
        assert (await api.get(f"/projects/{project.id}/repository/files", owner, file_path="a")).status_code == 400
        assert (await api.get(path, owner, labels="a" * MAX_QUERY_BYTES)).status_code == 200
    assert len(queries) == 6
    assert not any(token_of(owner).encode() in query for _, _, query in parameter_cache._PARAMETERS._entries)


def test_the_estimate_is_within_a_factor_of_two() -> None:
    cache, entries = ParameterCache(), parameter_cache._PARAMETERS
    for key in [*entries._entries]:
        entries.pop(key)
    with measure_memory() as measured:
        for number in range(200):
            sent = {"state": f"opened{number}", "per_page": str(number + 1000), "order_by": f"created_at{number}"}
            variables = {"id": str(10_000 + number), **sent, "first": number + 1000, "offset": 0}
            query = "&".join(f"{name}={value}" for name, value in sent.items()).encode()
            checks = QueryChecks()
            checks.values = VariableValues([], {**variables}, {**variables})
            cache.put([variables["id"]], query, RequestParameters(sent, variables, checks))
    assert len(entries) == 200
    assert measured.bytes / 2 < entries.bytes < measured.bytes * 2
