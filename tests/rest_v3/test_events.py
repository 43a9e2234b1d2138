"""The section Events of the interface document: what hooks carry, and which calls they hear of."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Services
from graph.events.deliver import Deliverer
from graph.events.outbox import Outbox
from storage import tables
from tests.forge import Api
from tests.make import Make
from tests.receivers import Receiver
from tests.rest_v3.document import DOCUMENTED
from tests.rest_v3.rules import cites
from tests.world import World, v3_request

SWITCHES = ("push_events", "tag_push_events", "issues_events", "merge_requests_events", "note_events", "enable_ssl_verification")

HEARD = {
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


@cites("Events: a hook made with POST /hooks is told of what happens")
async def test_a_hook_is_told(api: Api, make: Make, services: Services) -> None:
    admin, deliverer = await make.admin(), Deliverer(services)
    async with Receiver() as receiver:
        assert (await api.post("/hooks", admin, url=receiver.url)).status_code == 201
        user = (await api.post("/users", admin, username="bob", name="Bob", email="bob@example.org", password="12345678")).json()
        await deliverer.turn()
        await deliverer.idle()

    (request,) = receiver.requests
    assert (request.method, request.path, request.headers["x-gitlab-event"]) == ("POST", "/told", "System Hook")
    told = {"event_name": "user_create", "user_id": user["id"], "username": "bob", "name": "Bob", "email": "bob@example.org"}
    assert {key: request.json[key] for key in told} == told


@cites("Events: a hook's record carries the five switches and enable_ssl_verification")
@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_record_carries_the_switches(api: Api, make: Make, switch: str) -> None:
    admin = await make.admin()
    for on in (True, False):
        columns: dict[str, Any] = {name: (name == switch) is on for name in SWITCHES}
        hook = tables.Hook(url="https://hooks.example/", **columns)
        await make.save(hook)

        record = (await api.delete(f"/hooks/{hook.id}", admin)).json()

        assert {name: record[name] for name in SWITCHES} == columns


@cites("Events: other operations emit no event")
async def test_of_nothing_but_what_hooks_are_for(api: Api, make: Make, world: World, services: Services) -> None:
    """Every call of the document, done lawfully by an administrator beside a hook that wants everything."""
    admin = world.users["AD"]
    switches: dict[str, Any] = dict.fromkeys(SWITCHES, True)
    await make.save(tables.Hook(url="https://hooks.example/", **switches))
    last = 0
    heard: dict[str, set[str]] = {}
    for documented in DOCUMENTED:
        method, path, params = await v3_request(world, documented.call, "AD")
        settings = {"params": params} if method in ("GET", "DELETE") else {"json": params}
        # Keys and addresses below `/user` are their owner's.
        response = await api.request(method, path, world.somebody if path.startswith("/user/") else admin, **settings)
        assert response.status_code < 300 or documented.status == 405, documented.call
        async with services.database.reading() as session:
            query = select(tables.Event).where(col(tables.Event.id) > last).order_by(col(tables.Event.id))
            events = list((await session.execute(query)).scalars())
        last = max([last, *(event.id for event in events)])
        if events:
            heard[documented.call] = {event.name for event in events}

    assert heard == HEARD
