"""Deliveries to hooks: at least once, on schedule, and independent of each other."""

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlmodel import col

from graph.context import Context, Services
from graph.events import delivery_worker, object_payloads, payloads, webhook_sender
from graph.events.delivery_worker import MAX_CONCURRENT_PER_HOST, RETRY_DELAYS_SECONDS, DeliveryWorker, retry_delay
from graph.events.outbox import Outbox
from graph.events.publisher import publish, publish_each
from graph.events.webhook_sender import TIMEOUT_SECONDS, DeliveryResult
from graph.operations.transaction import commit_and_notify
from storage import tables
from storage.tables import DeliveryState
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.database.statements import StatementRecorder
from tests.support.servers.webhook_receiver import WebhookReceiver, finish_deliveries

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class ManualClock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def step(self, **length: float) -> None:
        self.now += timedelta(**length)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(services: Services, clock: ManualClock) -> AsyncIterator[Services]:
    ours = dataclasses.replace(services, outbox=Outbox(allow_local=True), clock=clock)
    yield ours
    await ours.outbox.close()


class DeliveryScenario:
    """Makes hooks, publishes events, and delivers them with a jitter that changes nothing."""

    def __init__(self, services: Services, make: DataFactory) -> None:
        self.services = services
        self.make = make
        self.deliverer = self.other_process()

    def other_process(self, **settings: Any) -> DeliveryWorker:
        return DeliveryWorker(self.services, **{"jitter": lambda low, high: 1.0, **settings})

    async def hook(self, url: str, **columns: Any) -> tables.Hook:
        hook = tables.Hook(url=url, **columns)
        await self.make.save(hook)
        self.services.outbox.record_hook_change()
        return hook

    async def publish_events(self, kind: Any = payloads.UserCreated, *subjects: Any, times: int = 1) -> None:
        """Publishes within a transaction that is kept, as an operation does."""
        subjects = subjects or (self.create_user,)
        async with self.services.database.write_session() as session:
            context = Context(self.services, session, self.create_user, "test")
            for _ in range(times):
                await publish(context, kind, *subjects)
            await commit_and_notify(context)

    @property
    def create_user(self) -> tables.User:
        return tables.User(id=7, username="ada", name="Ada", email="ada@example.org", created_at=START, updated_at=START)

    async def deliveries(self) -> list[tables.Delivery]:
        async with self.services.database.read_session() as session:
            return list((await session.execute(select(tables.Delivery).order_by(col(tables.Delivery.id)))).scalars())

    async def delivery(self) -> tables.Delivery:
        (only,) = await self.deliveries()
        return only

    async def deliver(self) -> None:
        await self.deliverer.run_once()
        await finish_deliveries(self.deliverer)


@pytest.fixture
def forge(services: Services, make: DataFactory) -> DeliveryScenario:
    return DeliveryScenario(services, make)


class TestPublish:
    async def test_without_hooks_runs_one_query_and_writes_nothing(self, forge: DeliveryScenario, statements: StatementRecorder) -> None:
        with statements.record() as seen:
            await forge.publish_events(times=3)

        assert len(seen) == (1 if forge.services.database.dialect == "sqlite" else 3)
        assert await forge.make.count(tables.Event) == 0

    async def test_statement_count_does_not_grow_with_rows(self, forge: DeliveryScenario, statements: StatementRecorder) -> None:
        await forge.hook("http://hooks.example/")
        with statements.record() as one:
            await forge.publish_events()
        for _ in range(29):
            await forge.hook("http://hooks.example/")
        with statements.record() as thirty:
            await forge.publish_events()

        assert len(one) == len(thirty) == 3
        assert len(await forge.deliveries()) == 31
        assert len({delivery.webhook_id for delivery in await forge.deliveries()}) == 31

    async def test_statement_count_does_not_grow_with_events(self, forge: DeliveryScenario, statements: StatementRecorder) -> None:
        await forge.hook("http://hooks.example/")
        projects = [await forge.make.project(owner=await forge.make.user()) for _ in range(4)]
        costs = []
        for ids in ([projects[0].id], [project.id for project in projects]):
            async with forge.services.database.write_session() as session:
                context = Context(forge.services, session, None, "test")
                with statements.record() as seen:
                    await publish_each(context, payloads.ProjectDestroyed, select(tables.Project).where(col(tables.Project.id).in_(ids)))
                costs.append(len(seen))
                await commit_and_notify(context)

        assert costs[0] == costs[1] == 6
        assert len(await forge.deliveries()) == 5

    async def test_is_undone_with_the_change(self, forge: DeliveryScenario) -> None:
        await forge.hook("http://hooks.example/")
        async with forge.services.database.write_session() as session:
            context = Context(forge.services, session, None, "test")
            await publish(context, payloads.UserCreated, forge.create_user)

        assert await forge.deliveries() == []

    @cites("Events: a hook receives an event only if its switch is on")
    async def test_notifies_only_enabled_hooks_subscribed_to_the_event(self, forge: DeliveryScenario) -> None:
        project = await forge.make.project()
        issue = await forge.make.issue(project)
        await forge.hook("http://a.example/")
        wants = await forge.hook("http://b.example/", issues_events=True)
        await forge.hook("http://c.example/", issues_events=True, disabled_at=START)

        await forge.publish_events(object_payloads.IssueChanged, issue, "open")

        assert [(each.hook_id, each.event_name) for each in await forge.deliveries()] == [(wants.id, "issue")]


class TestAttempt:
    @cites("Events: a delivery is a signed POST that ends in time")
    async def test_is_a_signed_post(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver() as receiver:
            seal = forge.services.cipher.encrypt
            await forge.hook(receiver.url, sealed_credentials=seal("ci:s3cret"), sealed_secret=seal(SECRET))
            await forge.publish_events()
            await forge.deliver()
        (request,) = receiver.requests
        delivery = await forge.delivery()

        assert (request.method, request.path) == ("POST", "/told")
        assert request.json == {
            "event_name": "user_create",
            "created_at": "2026-03-01T12:00:00Z",
            "updated_at": "2026-03-01T12:00:00Z",
            "user_id": 7,
            "username": "ada",
            "name": "Ada",
            "email": "ada@example.org",
        }
        headers = request.headers
        assert headers["content-type"] == "application/json"
        assert headers["x-gitlab-event"] == "System Hook"
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert headers["user-agent"].startswith("Forgefront/")
        assert headers["authorization"] == "Basic Y2k6czNjcmV0"
        assert headers["webhook-id"] == delivery.webhook_id
        assert headers["webhook-timestamp"] == str(int(START.timestamp()))
        signed = b".".join([delivery.webhook_id.encode(), headers["webhook-timestamp"].encode(), request.body])
        mac = hmac.new(b"0123456789abcdef0123456789abcdef", signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
        assert (delivery.state, delivery.attempts, delivery.response_code) == (DeliveryState.DELIVERED, 1, 200)
        assert (delivery.delivered_at, delivery.next_attempt_at, delivery.claimed_by) == (START, None, None)

    async def test_follows_no_redirect(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver() as elsewhere, WebhookReceiver(302, headers={"Location": elsewhere.url}) as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events()
            await forge.deliver()

        assert elsewhere.requests == []
        delivery = await forge.delivery()
        assert (delivery.state, delivery.response_code) == (DeliveryState.PENDING, 302)
        assert delivery.error == "answered 302; redirects are not followed"

    async def test_checks_the_resolved_address_again(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver() as receiver:
            await forge.hook(f"http://localhost:{receiver.port}/")
            await forge.publish_events()
            await forge.services.outbox.close()
            forge.services.outbox.sender.guard._allow_local = False
            await forge.deliver()

        assert receiver.requests == []
        assert "is not a public address" in ((await forge.delivery()).error or "")

    @cites("Events: a delivery is a signed POST that ends in time")
    async def test_ends_in_time_and_leaves_no_connection(self, forge: DeliveryScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(webhook_sender.WebhookSender.send, "__kwdefaults__", {"seconds": 0.1})
        async with WebhookReceiver(silent=True) as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events()
            await forge.deliver()

            assert (await forge.delivery()).error == "no answer within 0.1 s"
            await receiver.wait_until_disconnected()


class TestSchedule:
    @cites("Events: a delivery that fails is tried ten times")
    async def test_has_ten_attempts(self, forge: DeliveryScenario, clock: ManualClock) -> None:
        async with WebhookReceiver(500) as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events()
            gaps = []
            last = clock.now
            while (delivery := await forge.delivery()).state is DeliveryState.PENDING:
                due = delivery.next_attempt_at
                assert due is not None
                gaps.append((due - last).total_seconds())
                clock.now = due - timedelta(milliseconds=1)
                await forge.deliver()
                assert (await forge.delivery()).attempts == delivery.attempts
                last = clock.now = due
                await forge.deliver()

        assert gaps == [0, 5, 20, 60, 300, 1800, 7200, 18000, 36000, 86400]
        assert len(receiver.requests) == 10
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
        assert (delivery.state, delivery.attempts, delivery.error) == (DeliveryState.FAILED, 10, "answered 500")

    def test_jitter_is_a_tenth(self) -> None:
        chance = random.Random(7)
        for attempts in range(1, 10):
            gaps = [retry_delay(attempts, DeliveryResult(500, "answered 500"), chance.uniform) or 0.0 for _ in range(200)]
            assert RETRY_DELAYS_SECONDS[attempts] * 0.9 <= min(gaps) < RETRY_DELAYS_SECONDS[attempts] * 0.95
            assert RETRY_DELAYS_SECONDS[attempts] * 1.05 < max(gaps) <= RETRY_DELAYS_SECONDS[attempts] * 1.1
        assert retry_delay(10, DeliveryResult(500, "answered 500")) is None

    async def test_410_disables_the_hook(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver(410) as receiver:
            hook = await forge.hook(receiver.url)
            await forge.publish_events(times=3)
            await forge.deliver()

        assert len(receiver.requests) == 1
        assert [delivery.state for delivery in await forge.deliveries()] == [DeliveryState.FAILED] * 3
        row = await forge.make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.disabled_at, row.disabled_reason) == (START, "The receiver responded with 410 Gone.")
        await forge.publish_events()
        assert len(await forge.deliveries()) == 3

    async def test_five_days_without_a_success_disable_the_hook(self, forge: DeliveryScenario, clock: ManualClock) -> None:
        async with WebhookReceiver(500) as receiver:
            hook = await forge.hook(receiver.url, last_success_at=START - timedelta(days=30))
            for day in range(6):
                clock.now = START + timedelta(days=day)
                row = await forge.make.fetch(tables.Hook, hook.id)
                assert row is not None
                assert row.disabled_at is None
                await forge.publish_events()
                await forge.deliver()

        row = await forge.make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.disabled_at, row.disabled_reason) == (clock.now, "All deliveries failed for 5 days.")
        assert {delivery.state for delivery in await forge.deliveries()} == {DeliveryState.FAILED}

    async def test_a_success_resets_the_failures(self, forge: DeliveryScenario, clock: ManualClock) -> None:
        async with WebhookReceiver(500) as receiver:
            hook = await forge.hook(receiver.url)
            await forge.publish_events()
            await forge.deliver()
            receiver.status = 204
            clock.step(days=6)
            await forge.deliver()

        row = await forge.make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.failing_since, row.disabled_at, row.last_success_at) == (None, None, clock.now)


class TestConcurrency:
    async def test_a_slow_receiver_does_not_delay_others(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver(silent=True) as slow, WebhookReceiver() as quick:
            for _ in range(20):
                await forge.hook(slow.url, last_success_at=START)
            await forge.hook(quick.url)
            await forge.publish_events(times=5)
            running = asyncio.create_task(forge.deliverer.run())
            # Before the slow one has used up the time of its first requests.
            await quick.wait_for_requests(5, TIMEOUT_SECONDS - 1)
            await slow.wait_for_requests(MAX_CONCURRENT_PER_HOST)
            assert slow.max_connected == MAX_CONCURRENT_PER_HOST
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await forge.deliverer.close()

            waiting = [delivery for delivery in await forge.deliveries() if delivery.state is DeliveryState.PENDING]
            assert len(waiting) == 100
            assert {(delivery.claimed_by, delivery.attempts) for delivery in waiting} == {(None, 0)}

    async def test_an_unresponsive_receiver_gets_one_request_at_a_time(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver(silent=True) as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events(times=5)
            for _ in range(3):
                await forge.deliverer.run_once()
            await receiver.wait_for_requests(1)
            assert receiver.max_connected == 1
            await forge.deliverer.close()

    async def test_processes_never_claim_the_same_delivery(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver() as receiver:
            for _ in range(10):
                await forge.hook(receiver.url, last_success_at=START)
            await forge.publish_events(times=6)
            processes = [forge.other_process() for _ in range(3)]

            async def work(deliverer: DeliveryWorker) -> None:
                while len(receiver.requests) < 60:
                    await deliverer.run_once()
                    await asyncio.sleep(0)
                await finish_deliveries(deliverer)

            async with asyncio.timeout(20):
                await asyncio.gather(*map(work, processes))

        assert len(receiver.requests) == len({request.headers["webhook-id"] for request in receiver.requests}) == 60
        assert {delivery.state for delivery in await forge.deliveries()} == {DeliveryState.DELIVERED}

    async def test_a_backlog_is_not_scanned(self, forge: DeliveryScenario, statements: StatementRecorder) -> None:
        hook = await forge.hook("http://hooks.example/")
        await forge.publish_events(times=40)
        due, pause = await forge.deliverer._find_due(START)
        assert (len(due), pause) == (1, 0.0)
        assert hook.id is not None

        with statements.record() as seen:
            await forge.deliverer._find_due(START - timedelta(hours=1))
        assert len(seen) == 1


class TestCrash:
    async def test_claims_of_a_killed_process_run_out(self, forge: DeliveryScenario, clock: ManualClock) -> None:
        async with WebhookReceiver(silent=True) as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events()
            killed = forge.other_process()
            await killed.run_once()
            await receiver.wait_for_requests(1)
            receiver.silent = False

            await forge.deliver()
            assert len(receiver.requests) == 1
            clock.now += delivery_worker.LEASE
            await forge.deliver()
            first, second = await receiver.wait_for_requests(2)
            await killed.close()

        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        delivery = await forge.delivery()
        assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 1)

    async def test_an_outcome_whose_claim_is_lost_is_dropped(self, forge: DeliveryScenario) -> None:
        async with WebhookReceiver(500) as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events()
            await forge.deliverer.run_once()
            await receiver.wait_for_requests(1)
            async with forge.services.database.write_session() as session:
                await session.execute(update(tables.Delivery).values(claimed_by="another"))
                await session.commit()
            await finish_deliveries(forge.deliverer)

        assert (await forge.delivery()).attempts == 0

    async def test_outcomes_wait_for_the_database(self, forge: DeliveryScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        async with WebhookReceiver() as receiver:
            await forge.hook(receiver.url)
            await forge.publish_events()
            await forge.deliverer.run_once()
            await asyncio.wait(forge.deliverer._running)
            with monkeypatch.context() as patch:
                patch.setattr(delivery_worker, "write_transaction", None)
                with pytest.raises(TypeError):
                    await forge.deliverer.run_once()
            await forge.deliverer.run_once()

        assert (await forge.delivery()).state is DeliveryState.DELIVERED


class TestCleanup:
    async def test_deletes_old_finished_deliveries(self, forge: DeliveryScenario, clock: ManualClock) -> None:
        async with WebhookReceiver() as receiver:
            await forge.hook(receiver.url, last_success_at=START)
            await forge.publish_events(times=2)
            await forge.deliver()
            await forge.deliver()
            receiver.status = 500
            await forge.publish_events()
            await forge.deliver()
        clock.step(days=31)
        await forge.publish_events()
        await forge.deliverer.sweep()

        # The second is still to be tried again, the third is new.
        async with forge.services.database.read_session() as session:
            stored = (await session.execute(select(func.count()).select_from(tables.Event))).scalar()
        assert stored == 2
        assert len(await forge.deliveries()) == 2
