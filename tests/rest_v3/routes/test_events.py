"""The section Events of the interface document: payloads of hooks, and the calls that cause them."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Services
from graph.events.delivery_worker import DeliveryWorker
from graph.events.outbox import Outbox
from storage import tables
from tests.make import DataFactory
from tests.rest_v3.support.interface_document import DOCUMENTED_CALLS
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api
from tests.support.scenario import Scenario, valid_v3_request
from tests.support.servers.webhook_receiver import WebhookReceiver, finish_deliveries

SWITCHES = ("push_events", "tag_push_events", "issues_events", "merge_requests_events", "note_events", "enable_ssl_verification")

EXPECTED_EVENTS = {
    "POST /projects/:id/issues": {"issue"},
    "PUT /projects/:id/issues/:issue_id": {"issue"},
    "POST /projects/:id/issues/:issue_id/notes": {"note"},
    "POST /projects/:id/snippets/:snippet_id/notes": {"note"},
    "POST /projects/:id/merge_requests/:merge_request_id/notes": {"note"},
    "POST /projects/:id/repository/commits/:sha/comments": {"note"},
    "POST /projects/:id/merge_requests": {"merge_request"},
    "PUT /projects/:id/merge_requests/:merge_request_id": {"merge_request"},
    "PUT /projects/:id/merge_requests/:merge_request_id/merge": {"merge_request", "push"},
    "GET /hooks/:id": {"project_create"},
    "POST /users": {"user_create"},
    "DELETE /users/:id": {"user_destroy"},
    "POST /user/keys": {"key_create"},
    "POST /users/:id/keys": {"key_create"},
    "DELETE /user/keys/:id": {"key_destroy"},
    "DELETE /users/:uid/keys/:id": {"key_destroy"},
    "POST /groups": {"group_create", "user_add_to_group"},
    "DELETE /groups/:id": {"group_destroy", "project_destroy", "user_remove_from_group"},
    "POST /groups/:id/projects/:project_id": {"project_transfer"},
    "POST /groups/:id/members": {"user_add_to_group"},
    "DELETE /groups/:id/members/:user_id": {"user_remove_from_group"},
}
"""The call → the events that hooks hear of it; calls that are not here emit none."""


@pytest.fixture
async def services(services: Services) -> AsyncIterator[Services]:
    """Hooks may call the receivers on loopback here."""
    allowing = dataclasses.replace(services, outbox=Outbox(allow_local=True))
    yield allowing
    await allowing.outbox.close()


@cites("Events: a hook made with POST /hooks receives its events")
async def test_a_hook_is_notified(api: Api, make: DataFactory, services: Services) -> None:
    admin, deliverer = await make.admin(), DeliveryWorker(services)
    async with WebhookReceiver() as receiver:
        assert (await api.post("/hooks", admin, url=receiver.url)).status_code == 201
        user = (await api.post("/users", admin, username="bob", name="Bob", email="bob@example.org", password="12345678")).json()
        await deliverer.run_once()
        await finish_deliveries(deliverer)

    (request,) = receiver.requests
    assert (request.method, request.path, request.headers["x-gitlab-event"]) == ("POST", "/told", "System Hook")
    payload = {"event_name": "user_create", "user_id": user["id"], "username": "bob", "name": "Bob", "email": "bob@example.org"}
    assert {key: request.json[key] for key in payload} == payload


@cites("Events: a hook's record carries the five switches and enable_ssl_verification")
@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_record_carries_the_switches(api: Api, make: DataFactory, switch: str) -> None:
    admin = await make.admin()
    for on in (True, False):
        columns: dict[str, Any] = {name: (name == switch) is on for name in SWITCHES}
        hook = tables.Hook(url="https://hooks.example/", **columns)
        await make.save(hook)

        record = (await api.delete(f"/hooks/{hook.id}", admin)).json()

        assert {name: record[name] for name in SWITCHES} == columns


@cites("Events: other operations emit no event")
async def test_other_operations_publish_nothing(api: Api, make: DataFactory, scenario: Scenario, services: Services) -> None:
    """Every call of the document, done lawfully by an administrator beside a hook that wants everything."""
    admin = scenario.users["AD"]
    switches: dict[str, Any] = dict.fromkeys(SWITCHES, True)
    await make.save(tables.Hook(url="https://hooks.example/", **switches))
    last = 0
    received: dict[str, set[str]] = {}
    for documented in DOCUMENTED_CALLS:
        method, path, params = await valid_v3_request(scenario, documented.call, "AD")
        settings = {"params": params} if method in ("GET", "DELETE") else {"json": params}
        # Keys and addresses below `/user` are their owner's.
        response = await api.request(method, path, scenario.somebody if path.startswith("/user/") else admin, **settings)
        assert response.status_code < 300 or documented.status == 405, documented.call
        async with services.database.read_session() as session:
            query = select(tables.Event).where(col(tables.Event.id) > last).order_by(col(tables.Event.id))
            events = list((await session.execute(query)).scalars())
        last = max([last, *(event.id for event in events)])
        if events:
            received[documented.call] = {event.name for event in events}

    assert received == EXPECTED_EVENTS
