"""Deliveries to hooks: at least once, by the schedule, and nobody waits for anybody."""

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import random
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlmodel import col

from graph.context import Context, Services
from graph.events import deliver, object_payloads, payloads, sending
from graph.events.deliver import AT_ONCE_TO_A_HOST, GAPS, Deliverer, gap_after
from graph.events.outbox import Outbox
from graph.events.publish import publish, publish_each
from graph.events.sending import Result
from graph.transaction import keep
from storage import tables
from storage.tables import DeliveryState
from tests.make import Make
from tests.receivers import Receiver
from tests.rest_v3.rules import cites
from tests.statements import Statements

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def step(self, **length: float) -> None:
        self.now += timedelta(**length)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def services(services: Services, clock: Clock) -> AsyncIterator[Services]:
    ours = dataclasses.replace(services, outbox=Outbox(allow_local=True), clock=clock)
    yield ours
    await ours.outbox.close()


class Forge:
    """Makes hooks, publishes events, and delivers them with a jitter that changes nothing."""

    def __init__(self, services: Services, make: Make) -> None:
        self.services = services
        self.make = make
        self.deliverer = self.another()

    def another(self, **settings: Any) -> Deliverer:
        return Deliverer(self.services, **{"jitter": lambda low, high: 1.0, **settings})

    async def hook(self, url: str, **columns: Any) -> tables.Hook:
        hook = tables.Hook(url=url, **columns)
        await self.make.save(hook)
        self.services.outbox.hooks_changed()
        return hook

    async def happen(self, kind: Any = payloads.UserCreated, *subjects: Any, times: int = 1) -> None:
        """Publishes within a transaction that is kept, as an operation does."""
        subjects = subjects or (self.anybody,)
        async with self.services.database.writing() as session:
            context = Context(self.services, session, self.anybody, "test")
            for _ in range(times):
                await publish(context, kind, *subjects)
            await keep(context)

    @property
    def anybody(self) -> tables.User:
        return tables.User(id=7, username="ada", name="Ada", email="ada@example.org", created_at=START, updated_at=START)

    async def deliveries(self) -> list[tables.Delivery]:
        async with self.services.database.reading() as session:
            return list((await session.execute(select(tables.Delivery).order_by(col(tables.Delivery.id)))).scalars())

    async def delivery(self) -> tables.Delivery:
        (only,) = await self.deliveries()
        return only

    async def deliver(self) -> None:
        await self.deliverer.turn()
        await self.deliverer.idle()


@pytest.fixture
def forge(services: Services, make: Make) -> Forge:
    return Forge(services, make)


class TestPublish:
    async def test_writes_nothing_and_asks_once_without_a_hook(self, forge: Forge, statements: Statements) -> None:
        with statements.counted() as seen:
            await forge.happen(times=3)

        assert len(seen) == (1 if forge.services.database.dialect == "sqlite" else 3)
        assert await forge.make.count(tables.Event) == 0

    async def test_costs_the_same_statements_for_one_hook_and_for_thirty(self, forge: Forge, statements: Statements) -> None:
        await forge.hook("http://hooks.example/")
        with statements.counted() as one:
            await forge.happen()
        for _ in range(29):
            await forge.hook("http://hooks.example/")
        with statements.counted() as thirty:
            await forge.happen()

        assert len(one) == len(thirty) == 3
        assert len(await forge.deliveries()) == 31
        assert len({delivery.webhook_id for delivery in await forge.deliveries()}) == 31

    async def test_of_many_rows_costs_what_one_does(self, forge: Forge, statements: Statements) -> None:
        await forge.hook("http://hooks.example/")
        projects = [await forge.make.project(owner=await forge.make.user()) for _ in range(4)]
        costs = []
        for ids in ([projects[0].id], [project.id for project in projects]):
            async with forge.services.database.writing() as session:
                context = Context(forge.services, session, None, "test")
                with statements.counted() as seen:
                    await publish_each(context, payloads.ProjectDestroyed, select(tables.Project).where(col(tables.Project.id).in_(ids)))
                costs.append(len(seen))
                await keep(context)

        assert costs[0] == costs[1] == 6
        assert len(await forge.deliveries()) == 5

    async def test_is_undone_with_the_change(self, forge: Forge) -> None:
        await forge.hook("http://hooks.example/")
        async with forge.services.database.writing() as session:
            context = Context(forge.services, session, None, "test")
            await publish(context, payloads.UserCreated, forge.anybody)

        assert await forge.deliveries() == []

    @cites("Events: a hook hears of an event only where its switch is on")
    async def test_tells_only_hooks_whose_switch_is_on_and_none_that_is_disabled(self, forge: Forge) -> None:
        project = await forge.make.project()
        issue = await forge.make.issue(project)
        await forge.hook("http://a.example/")
        wants = await forge.hook("http://b.example/", issues_events=True)
        await forge.hook("http://c.example/", issues_events=True, disabled_at=START)

        await forge.happen(object_payloads.IssueChanged, issue, "open")

        assert [(each.hook_id, each.event_name) for each in await forge.deliveries()] == [(wants.id, "issue")]


class TestAttempt:
    @cites("Events: a delivery is a signed POST that ends in time")
    async def test_is_a_signed_post(self, forge: Forge) -> None:
        async with Receiver() as receiver:
            seal = forge.services.cipher.encrypt
            await forge.hook(receiver.url, sealed_credentials=seal("ci:s3cret"), sealed_secret=seal(SECRET))
            await forge.happen()
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

    async def test_follows_no_redirect(self, forge: Forge) -> None:
        async with Receiver() as elsewhere, Receiver(302, headers={"Location": elsewhere.url}) as receiver:
            await forge.hook(receiver.url)
            await forge.happen()
            await forge.deliver()

        assert elsewhere.requests == []
        delivery = await forge.delivery()
        assert (delivery.state, delivery.response_code) == (DeliveryState.PENDING, 302)
        assert delivery.error == "answered 302; redirects are not followed"

    async def test_looks_at_the_address_again(self, forge: Forge) -> None:
        async with Receiver() as receiver:
            await forge.hook(f"http://localhost:{receiver.port}/")
            await forge.happen()
            await forge.services.outbox.close()
            forge.services.outbox.sender.guard._allow_local = False
            await forge.deliver()

        assert receiver.requests == []
        assert "is not a public address" in ((await forge.delivery()).error or "")

    @cites("Events: a delivery is a signed POST that ends in time")
    async def test_ends_in_time_and_leaves_no_connection(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sending.Sender.send, "__kwdefaults__", {"seconds": 0.1})
        async with Receiver(silent=True) as receiver:
            await forge.hook(receiver.url)
            await forge.happen()
            await forge.deliver()

            assert (await forge.delivery()).error == "no answer within 0.1 s"
            await receiver.until_left()


class TestSchedule:
    @cites("Events: a delivery that fails is tried ten times")
    async def test_has_ten_attempts(self, forge: Forge, clock: Clock) -> None:
        async with Receiver(500) as receiver:
            await forge.hook(receiver.url)
            await forge.happen()
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
            gaps = [gap_after(attempts, Result(500, "answered 500"), chance.uniform) or 0.0 for _ in range(200)]
            assert GAPS[attempts] * 0.9 <= min(gaps) < GAPS[attempts] * 0.95
            assert GAPS[attempts] * 1.05 < max(gaps) <= GAPS[attempts] * 1.1
        assert gap_after(10, Result(500, "answered 500")) is None

    async def test_410_disables_the_hook(self, forge: Forge) -> None:
        async with Receiver(410) as receiver:
            hook = await forge.hook(receiver.url)
            await forge.happen(times=3)
            await forge.deliver()

        assert len(receiver.requests) == 1
        assert [delivery.state for delivery in await forge.deliveries()] == [DeliveryState.FAILED] * 3
        row = await forge.make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.disabled_at, row.disabled_reason) == (START, "The receiver wants no more: it answered 410.")
        await forge.happen()
        assert len(await forge.deliveries()) == 3

    async def test_five_days_without_a_success_disable_the_hook(self, forge: Forge, clock: Clock) -> None:
        async with Receiver(500) as receiver:
            hook = await forge.hook(receiver.url, last_success_at=START - timedelta(days=30))
            for day in range(6):
                clock.now = START + timedelta(days=day)
                row = await forge.make.fetch(tables.Hook, hook.id)
                assert row is not None
                assert row.disabled_at is None
                await forge.happen()
                await forge.deliver()

        row = await forge.make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.disabled_at, row.disabled_reason) == (clock.now, "Nothing was taken for 5 days.")
        assert {delivery.state for delivery in await forge.deliveries()} == {DeliveryState.FAILED}

    async def test_a_success_forgives(self, forge: Forge, clock: Clock) -> None:
        async with Receiver(500) as receiver:
            hook = await forge.hook(receiver.url)
            await forge.happen()
            await forge.deliver()
            receiver.status = 204
            clock.step(days=6)
            await forge.deliver()

        row = await forge.make.fetch(tables.Hook, hook.id)
        assert row is not None
        assert (row.failing_since, row.disabled_at, row.last_success_at) == (None, None, clock.now)


class TestSideBySide:
    async def test_a_slow_receiver_delays_nobody(self, forge: Forge) -> None:
        async with Receiver(silent=True) as slow, Receiver() as quick:
            for _ in range(20):
                await forge.hook(slow.url, last_success_at=START)
            await forge.hook(quick.url)
            await forge.happen(times=5)
            running = asyncio.create_task(forge.deliverer.run())
            started = time.monotonic()
            await quick.until(5)
            assert time.monotonic() - started < 3
            await slow.until(AT_ONCE_TO_A_HOST)
            assert slow.most_connected == AT_ONCE_TO_A_HOST
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await forge.deliverer.close()

            waiting = [delivery for delivery in await forge.deliveries() if delivery.state is DeliveryState.PENDING]
            assert len(waiting) == 100
            assert {(delivery.claimed_by, delivery.attempts) for delivery in waiting} == {(None, 0)}

    async def test_a_receiver_that_never_took_anything_gets_one_at_a_time(self, forge: Forge) -> None:
        async with Receiver(silent=True) as receiver:
            await forge.hook(receiver.url)
            await forge.happen(times=5)
            for _ in range(3):
                await forge.deliverer.turn()
            await receiver.until(1)
            assert receiver.most_connected == 1
            await forge.deliverer.close()

    async def test_processes_never_take_the_same(self, forge: Forge) -> None:
        async with Receiver() as receiver:
            for _ in range(10):
                await forge.hook(receiver.url, last_success_at=START)
            await forge.happen(times=6)
            processes = [forge.another() for _ in range(3)]

            async def work(deliverer: Deliverer) -> None:
                while len(receiver.requests) < 60:
                    await deliverer.turn()
                    await asyncio.sleep(0)
                await deliverer.idle()

            async with asyncio.timeout(20):
                await asyncio.gather(*map(work, processes))

        assert len(receiver.requests) == len({request.headers["webhook-id"] for request in receiver.requests}) == 60
        assert {delivery.state for delivery in await forge.deliveries()} == {DeliveryState.DELIVERED}

    async def test_a_backlog_is_not_read_through(self, forge: Forge, statements: Statements) -> None:
        hook = await forge.hook("http://hooks.example/")
        await forge.happen(times=40)
        due, pause = await forge.deliverer._due(START)
        assert (len(due), pause) == (1, 0.0)
        assert hook.id is not None

        with statements.counted() as seen:
            await forge.deliverer._due(START - timedelta(hours=1))
        assert len(seen) == 1


class TestCrash:
    async def test_claims_of_a_killed_process_run_out(self, forge: Forge, clock: Clock) -> None:
        async with Receiver(silent=True) as receiver:
            await forge.hook(receiver.url)
            await forge.happen()
            killed = forge.another()
            await killed.turn()
            await receiver.until(1)
            receiver.silent = False

            await forge.deliver()
            assert len(receiver.requests) == 1
            clock.now += deliver.LEASE
            await forge.deliver()
            first, second = await receiver.until(2)
            await killed.close()

        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        delivery = await forge.delivery()
        assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 1)

    async def test_an_outcome_whose_claim_is_lost_is_dropped(self, forge: Forge) -> None:
        async with Receiver(500) as receiver:
            await forge.hook(receiver.url)
            await forge.happen()
            await forge.deliverer.turn()
            await receiver.until(1)
            async with forge.services.database.writing() as session:
                await session.execute(update(tables.Delivery).values(claimed_by="another"))
                await session.commit()
            await forge.deliverer.idle()

        assert (await forge.delivery()).attempts == 0

    async def test_outcomes_wait_for_the_database(self, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
        async with Receiver() as receiver:
            await forge.hook(receiver.url)
            await forge.happen()
            await forge.deliverer.turn()
            await asyncio.wait(forge.deliverer._running)
            with monkeypatch.context() as patch:
                patch.setattr(deliver, "kept", None)
                with pytest.raises(TypeError):
                    await forge.deliverer.turn()
            await forge.deliverer.turn()

        assert (await forge.delivery()).state is DeliveryState.DELIVERED


class TestSweep:
    async def test_forgets_what_is_done_and_old(self, forge: Forge, clock: Clock) -> None:
        async with Receiver() as receiver:
            await forge.hook(receiver.url, last_success_at=START)
            await forge.happen(times=2)
            await forge.deliver()
            await forge.deliver()
            receiver.status = 500
            await forge.happen()
            await forge.deliver()
        clock.step(days=31)
        await forge.happen()
        await forge.deliverer.sweep()

        # The second is still to be tried again, the third is new.
        async with forge.services.database.reading() as session:
            kept = (await session.execute(select(func.count()).select_from(tables.Event))).scalar()
        assert kept == 2
        assert len(await forge.deliveries()) == 2
