"""The section System hooks of v3."""

import base64
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

import rest_v3
from graph.context import Services
from graph.events.outbox import Outbox
from graph.events.payloads import SAMPLE
from graph.operations.execution import Graph
from storage import tables
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, route_operations
from tests.support.servers.webhook_receiver import WebhookReceiver

URL = "https://hooks.example/told?of=it"


@pytest.fixture
async def services(services: Services) -> AsyncIterator[Services]:
    """Hooks may call the receivers on loopback here."""
    allowing = dataclasses.replace(services, outbox=Outbox(allow_local=True))
    yield allowing
    await allowing.outbox.close()


async def make_hook(make: DataFactory, **columns: Any) -> tables.Hook:
    hook = tables.Hook(**{"url": URL, **columns})
    await make.save(hook)
    return hook


class TestEveryRoute:
    @cites("Authentication: system hooks are for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        await make_hook(make)
        user = await make.user()
        for method, path in (("GET", "/hooks"), ("POST", "/hooks"), ("GET", "/hooks/1"), ("DELETE", "/hooks/1")):
            body: Any = {"json": {"url": URL}} if method == "POST" else {}
            assert (await api.request(method, path, **body)).status_code == 401
            assert (await api.request(method, path, user, **body)).status_code == 403
        assert await make.count(tables.Hook) == 1

    async def test_checks_permission_before_parameters(self, api: Api, make: DataFactory) -> None:
        assert (await api.post("/hooks", await make.user())).status_code == 403


class TestListHooks:
    async def test_returns_the_newest_first_in_pages(self, api: Api, make: DataFactory) -> None:
        hooks = [await make_hook(make) for _ in range(3)]

        response = await api.get("/hooks", await make.admin(), per_page=2)

        assert response.status_code == 200
        assert [hook["id"] for hook in response.json()] == [hooks[2].id, hooks[1].id]
        assert response.headers["X-Total"] == "3"


class TestCreateHook:
    async def test_answers_a_list_of_one(self, api: Api, make: DataFactory) -> None:
        response = await api.post("/hooks", await make.admin(), url=URL)

        assert response.status_code == 201
        (hook,) = response.json()
        assert hook["url"] == URL
        row = await make.fetch(tables.Hook, hook["id"])
        assert row is not None
        switches = (row.push_events, row.tag_push_events, row.issues_events, row.merge_requests_events, row.note_events)
        assert (*switches, row.enable_ssl_verification) == (True, False, False, False, False, True)

    async def test_answers_an_object_to_legacy_clients(self, graph: Graph, make: DataFactory) -> None:
        app = rest_v3.create_app(graph, external_url=EXTERNAL_URL, profile="gitlab-8.5", operations=route_operations())
        headers = {"PRIVATE-TOKEN": token_of(await make.admin())}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=EXTERNAL_URL) as client:
            response = await client.post("/hooks", headers=headers, json={"url": URL})

        assert response.status_code == 201
        assert response.json()["url"] == URL

    async def test_requires_a_url(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        for params in ({}, {"url": " "}):
            response = await api.post("/hooks", admin, **params)
            assert response.status_code == 400
            assert response.json() == {"message": '400 (Bad request) "url" not given'}

    async def test_does_not_find_a_bad_url(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        for url in ("ftp://hooks.example/", "hooks.example", "javascript:alert(1)", "http://", f"http://x.example/{'x' * 2000}"):
            response = await api.post("/hooks", admin, url=url)
            assert response.status_code == 404
            assert response.json() == {"message": "404 Not Found"}
        assert await make.count(tables.Hook) == 0

    async def test_never_shows_a_password_of_the_url(self, api: Api, make: DataFactory, services: Services) -> None:
        response = await api.post("/hooks", admin := await make.admin(), url="https://ci:s3cret@hooks.example/x")

        assert response.json()[0]["url"] == "https://hooks.example/x"
        assert "s3cret" not in (await api.get("/hooks", admin)).text
        row = await make.fetch(tables.Hook, response.json()[0]["id"])
        assert row is not None
        assert row.sealed_credentials is not None
        assert services.cipher.decrypt(row.sealed_credentials) == "ci:s3cret"


class TestTestHook:
    @cites("Events: the test of a hook answers the sample project_create")
    async def test_sends_the_sample_and_answers_it(self, api: Api, make: DataFactory, services: Services) -> None:
        async with WebhookReceiver() as receiver:
            sealed = services.cipher.encrypt("ci:s3cret")
            hook = await make_hook(make, url=receiver.url, sealed_credentials=sealed)

            response = await api.get(f"/hooks/{hook.id}", await make.admin())

            assert response.status_code == 200
            assert response.json() == SAMPLE
            (request,) = receiver.requests
        assert request.json == SAMPLE
        assert request.headers["x-gitlab-event"] == "System Hook"
        assert request.headers["authorization"] == f"Basic {base64.b64encode(b'ci:s3cret').decode()}"
        (delivery,) = [await make.fetch(tables.Delivery, 1)]
        assert delivery is not None
        assert (delivery.state, delivery.response_code, delivery.attempts) == (tables.DeliveryState.DELIVERED, 200, 1)

    @cites("Events: the test of a hook answers the sample project_create")
    async def test_returns_the_sample_when_delivery_fails(self, api: Api, make: DataFactory, unused_tcp_port: int) -> None:
        hook = await make_hook(make, url=f"http://127.0.0.1:{unused_tcp_port}/")

        response = await api.get(f"/hooks/{hook.id}", await make.admin())

        assert (response.status_code, response.json()) == (200, SAMPLE)
        delivery = await make.fetch(tables.Delivery, 1)
        assert delivery is not None
        assert delivery.state is tables.DeliveryState.FAILED
        assert "cannot connect" in (delivery.error or "")

    async def test_a_missing_id_is_not_found(self, api: Api, make: DataFactory) -> None:
        admin = await make.admin()
        for number in ("9", "x", "2147483648"):
            assert (await api.get(f"/hooks/{number}", admin)).status_code == 404
        assert (await api.get("/hooks/9", admin)).json() == {"message": "404 Not found"}


class TestDeleteHook:
    async def test_answers_the_whole_record_once_and_null_after(self, api: Api, make: DataFactory) -> None:
        hook, admin = await make_hook(make, note_events=True), await make.admin()

        first = await api.delete(f"/hooks/{hook.id}", admin)
        second = await api.delete(f"/hooks/{hook.id}", admin)

        assert (first.status_code, second.status_code) == (200, 200)
        record = first.json()
        assert (record["id"], record["note_events"], record["project_id"], record["service_id"]) == (hook.id, True, None, None)
        assert second.json() is None
        assert await make.count(tables.Hook) == 0
