"""System hooks through the graph."""

import asyncio
import base64
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from graph.context import Context, Services
from graph.events import payloads
from graph.events.delivery_worker import DeliveryWorker
from graph.events.outbox import Outbox
from graph.events.publisher import publish
from graph.fields.entities import global_id
from graph.operations.transaction import commit_and_notify
from storage import tables
from storage.tables import DeliveryState
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.servers.webhook_receiver import WebhookReceiver, finish_deliveries

CREATE = """mutation ($input: CreateHookInput!) { createHook(input: $input) { userErrors { field code message } hook {
    id databaseId url pushEvents tagPushEvents issuesEvents mergeRequestsEvents noteEvents enableSslVerification hasCredentials hasSecret
    lastSuccessAt failingSince disabledAt disabledReason restPath } } }"""
TEST = """mutation ($input: HookInput!) { testHook(input: $input) { userErrors { code } delivery {
    event state attempts responseCode error payload hook { url } } } }"""
DELETE = "mutation ($input: HookInput!) { deleteHook(input: $input) { hook { databaseId } userErrors { code } } }"
REDELIVER = """mutation ($input: RedeliverHookInput!) { redeliverHook(input: $input) { delivery { state attempts webhookId nextAttemptAt }
    userErrors { code } } }"""
LIST = """query ($first: Int) { hooks(first: $first) { totalCount nodes { url deliveries(first: $first) { totalCount nodes {
    event state attempts responseCode nextAttemptAt payload } } } } }"""


@pytest.fixture
async def services(services: Services) -> AsyncIterator[Services]:
    ours = dataclasses.replace(services, outbox=Outbox(allow_local=True))
    yield ours
    await ours.outbox.close()


@pytest.fixture
async def guarded(services: Services) -> Ask:
    """The forge as it is by default: hooks may not call inner addresses."""
    from graph.operations.execution import Graph

    return Ask(Graph(dataclasses.replace(services, outbox=Outbox())))


async def make_hook(make: DataFactory, url: str = "http://hooks.example/", **columns: Any) -> tables.Hook:
    hook = tables.Hook(url=url, **columns)
    await make.save(hook)
    return hook


async def create_deliveries(services: Services, user: tables.User, times: int = 1) -> None:
    async with services.database.write_session() as session:
        context = Context(services, session, user, "test")
        for _ in range(times):
            await publish(context, payloads.UserCreated, user)
        await commit_and_notify(context)


class TestCreateHook:
    async def test_stores_switches_and_never_returns_the_secret(self, ask: Ask, make: DataFactory) -> None:
        secret = "whsec_" + base64.b64encode(bytes(32)).decode()
        fields = {"url": "http://u:p.w@hooks.example/x", "secret": secret, "issuesEvents": True, "pushEvents": False, "noteEvents": None}
        data = await ask.data(CREATE, await make.admin(), input=fields)

        hook = data["createHook"]["hook"]
        assert hook["url"] == "http://hooks.example/x"
        assert (hook["hasCredentials"], hook["hasSecret"]) == (True, True)
        switches = ("pushEvents", "tagPushEvents", "issuesEvents", "mergeRequestsEvents", "noteEvents", "enableSslVerification")
        assert [hook[name] for name in switches] == [False, False, True, False, False, True]
        assert hook["restPath"] == f"/api/v3/hooks/{hook['databaseId']}"
        row = await make.fetch(tables.Hook, hook["databaseId"])
        assert row is not None
        # No ciphertext has a full stop in it.
        assert "p.w" not in (row.sealed_credentials or "") + row.url

    async def test_is_changed_by_what_is_sent(self, ask: Ask, make: DataFactory) -> None:
        created = (await ask.data(CREATE, admin := await make.admin(), input={"url": "http://u:p@hooks.example/x"}))["createHook"]["hook"]
        update = CREATE.replace("Create", "Update").replace("create", "update")
        key = {"databaseId": created["databaseId"]}
        data = await ask.data(update, admin, input={**key, "pushEvents": False, "noteEvents": None, "buildEvents": True})
        changed = data["updateHook"]["hook"]
        assert changed == {**created, "pushEvents": False}
        changed = (await ask.data(update, admin, input={**key, "url": "https://hooks.example/y"}))["updateHook"]["hook"]
        assert (changed["url"], changed["hasCredentials"]) == ("https://hooks.example/y", False)
        project_hook = tables.Hook(url="http://hooks.example/", project_id=(await make.project()).id)
        await make.save(project_hook)
        assert await ask.codes(update, admin, input={"databaseId": project_hook.id}) == ["NOT_FOUND"]

    async def test_rejects_invalid_input(self, guarded: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        for arguments, code in (
            ({"url": ""}, "REQUIRED"),
            ({"url": "hooks.example"}, "INVALID"),
            ({"url": "http://hooks.example/", "secret": "secret"}, "INVALID"),
            ({"url": "http://127.0.0.1:8080/"}, "INVALID"),
            ({"url": "http://169.254.169.254/latest/meta-data"}, "INVALID"),
            ({"url": "http://[::ffff:10.0.0.1]/"}, "INVALID"),
            ({"url": "http://localhost/"}, "INVALID"),
        ):
            assert await guarded.codes(CREATE, admin, input=arguments) == [code]
        assert await make.count(tables.Hook) == 0

    @cites("Events: a hook made in the graph, where administrators work, receives its events")
    async def test_a_new_hook_is_notified_immediately(self, ask: Ask, make: DataFactory, services: Services) -> None:
        admin = await make.admin()
        await create_deliveries(services, admin)
        await ask.data(CREATE, admin, input={"url": "http://hooks.example/"})
        await create_deliveries(services, admin)

        assert await make.count(tables.Delivery) == 1


class TestRights:
    async def test_require_an_administrator(self, ask: Ask, make: DataFactory, services: Services) -> None:
        hook, user = await make_hook(make), await make.user()
        await create_deliveries(services, user)
        hook_id, delivery_id = global_id("Hook", hook.id), global_id("Delivery", 1)

        for query, arguments in (
            (CREATE, {"url": "http://a.example/"}),
            (TEST, {"id": hook_id}),
            (DELETE, {"id": hook_id}),
            (REDELIVER, {"id": "x"}),
        ):
            assert await ask.codes(query, user, input=arguments) == ["FORBIDDEN"]
        assert await ask.codes(LIST, user, first=1) == ["FORBIDDEN"]
        assert await ask.codes("{ hook(databaseId: 1) { url } }", user) == ["FORBIDDEN"]
        nodes = "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }"
        assert (await ask.data(nodes, user, ids=[hook_id, delivery_id]))["nodes"] == [None, None]
        assert [node["id"] for node in (await ask.data(nodes, await make.admin(), ids=[hook_id, delivery_id]))["nodes"]] == [
            hook_id,
            delivery_id,
        ]


class TestListHooks:
    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, services: Services, statements: StatementRecorder
    ) -> None:
        admin = await make.admin()
        for _ in range(30):
            await make_hook(make)
        await create_deliveries(services, admin, times=30)

        with statements.record() as few:
            await ask.data(LIST, admin, first=2)
        with statements.record() as many:
            data = await ask.data(LIST, admin, first=30)

        assert data["hooks"]["totalCount"] == len(data["hooks"]["nodes"]) == 30
        log = data["hooks"]["nodes"][0]["deliveries"]
        assert log["totalCount"] == len(log["nodes"]) == 30
        assert log["nodes"][0]["state"] == "PENDING"
        assert log["nodes"][0]["payload"]["event_name"] == "user_create"
        assert len(many) <= len(few)

    async def test_filters_the_log(self, ask: Ask, make: DataFactory, services: Services) -> None:
        await make_hook(make)
        await create_deliveries(services, admin := await make.admin())
        query = "query ($filter: DeliveryFilter) { hook(databaseId: 1) { deliveries(filter: $filter) { totalCount } } }"
        for arguments, count in (
            ({"state": ["PENDING"]}, 1),
            ({"state": ["FAILED"]}, 0),
            ({"event": ["user_create"]}, 1),
            ({"event": []}, 0),
        ):
            data = await ask.data(query, admin, filter=arguments)
            assert data["hook"]["deliveries"]["totalCount"] == count


class TestHookTest:
    async def test_a_success_enables_the_hook(self, ask: Ask, make: DataFactory, services: Services) -> None:
        async with WebhookReceiver() as receiver:
            hook = await make_hook(make, receiver.url, disabled_at=services.clock(), disabled_reason="x", failing_since=services.clock())
            data = await ask.data(TEST, await make.admin(), input={"id": global_id("Hook", hook.id)})

        delivery = data["testHook"]["delivery"]
        assert delivery == {
            "event": "project_create",
            "state": "DELIVERED",
            "attempts": 1,
            "responseCode": 200,
            "error": None,
            "payload": payloads.SAMPLE,
            "hook": {"url": receiver.url},
        }
        row = await make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.disabled_at, row.disabled_reason, row.failing_since) == (None, None, None)

    async def test_a_private_address_is_rejected_again(self, guarded: Ask, make: DataFactory) -> None:
        async with WebhookReceiver() as receiver:
            hook = await make_hook(make, receiver.url)
            data = await guarded.data(TEST, await make.admin(), input={"databaseId": hook.id})

        assert receiver.requests == []
        delivery = data["testHook"]["delivery"]
        assert (delivery["state"], delivery["responseCode"]) == ("FAILED", None)
        assert "not a public address" in delivery["error"]

    async def test_writers_do_not_wait_for_the_receiver(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        async with WebhookReceiver(silent=True) as receiver:
            hook = await make_hook(make, receiver.url)
            testing = asyncio.create_task(ask(TEST, admin, input={"databaseId": hook.id}))
            await receiver.wait_for_requests(1)
            async with asyncio.timeout(2):
                await ask.data(CREATE, admin, input={"url": "http://hooks.example/"})
                await ask.data(DELETE, admin, input={"databaseId": hook.id})
        outcome = await testing

        assert [problem.subject for problem in outcome.errors] == ["Hook"]
        assert await make.count(tables.Delivery) == 0


class TestDeleteHook:
    async def test_deletes_its_deliveries_and_succeeds_once(self, ask: Ask, make: DataFactory, services: Services) -> None:
        hook, admin = await make_hook(make), await make.admin()
        await create_deliveries(services, admin)
        codes = await asyncio.gather(*(ask.codes(DELETE, admin, input={"databaseId": hook.id}) for _ in range(8)))

        assert sorted(codes) == [[], *[["NOT_FOUND"]] * 7]
        assert await make.count(tables.Delivery) == 0


class TestRedeliverHook:
    async def test_redelivers_the_same_body(self, ask: Ask, make: DataFactory, services: Services) -> None:
        admin = await make.admin()
        async with WebhookReceiver(410) as receiver:
            await make_hook(make, receiver.url)
            await create_deliveries(services, admin)
            deliverer = DeliveryWorker(services)
            await deliverer.run_once()
            await finish_deliveries(deliverer)
            failed = await make.fetch(tables.Delivery, 1)
            assert failed is not None
            assert failed.state is DeliveryState.FAILED

            data = await ask.data(REDELIVER, admin, input={"id": global_id("Delivery", 1)})
            again = data["redeliverHook"]["delivery"]
            assert (again["state"], again["attempts"], again["webhookId"]) == ("PENDING", 0, failed.webhook_id)
            assert again["nextAttemptAt"] is not None
            # To a disabled hook it goes once; taken there, it enables the hook.
            receiver.status = 500
            await deliverer.run_once()
            await finish_deliveries(deliverer)
            second = await make.fetch(tables.Delivery, 1)
            assert second is not None
            assert (second.state, second.error) == (DeliveryState.FAILED, "answered 500")
            receiver.status = 200
            await ask.data(REDELIVER, admin, input={"databaseId": 1})
            await deliverer.run_once()
            await finish_deliveries(deliverer)

        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
        assert len(receiver.requests) == 3
        hook = await make.fetch(tables.Hook, 1)
        assert hook is not None
        assert hook.disabled_at is None

    async def test_a_missing_id_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        for arguments in ({"databaseId": 9}, {"id": "x"}, {"id": global_id("Hook", 1)}):
            assert await ask.codes(REDELIVER, admin, input=arguments) == ["NOT_FOUND"]
