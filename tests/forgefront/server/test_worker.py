"""The background worker, which runs beside the requests."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from forgefront.app import App
from forgefront.config import Config
from forgefront.server.task_runner import TaskRunner, repeat_every
from graph.context import Context, Services
from graph.events import delivery_worker, payloads
from graph.events.publisher import publish
from graph.operations.transaction import commit_and_notify
from storage import tables
from storage.tables import DeliveryState
from tests.make import DataFactory, token_of
from tests.support.servers.fork_server import start_program
from tests.support.servers.webhook_receiver import WebhookReceiver


class TestWorker:
    async def test_restarts_only_the_task_that_failed(self) -> None:
        ran: list[str] = []
        enough = asyncio.Event()

        async def failing() -> None:
            ran.append("failing")
            if ran.count("failing") == 3:
                enough.set()
            raise ValueError("as asked")

        async def done() -> None:
            ran.append("done")

        worker = TaskRunner({"failing": failing, "done": done, "waiting": asyncio.Event().wait}, min_restart_seconds=0.01)  # type: ignore[dict-item]
        worker.start()
        async with asyncio.timeout(5):
            await enough.wait()
            await worker.stop()

        assert ran.count("done") == 1
        assert {task.get_name() for task in asyncio.all_tasks()} & {"failing", "done", "waiting"} == set()

    async def test_tasks_begin_in_iterations_of_the_event_loop_of_their_own(self) -> None:
        began: list[str] = []
        last = asyncio.Event()

        async def work(name: str) -> None:
            began.append(name)
            asyncio.get_running_loop().call_soon(began.append, "others")
            if name == "three":
                asyncio.get_running_loop().call_soon(last.set)

        worker = TaskRunner({name: partial(work, name) for name in ("one", "two", "three")})
        worker.start()
        async with asyncio.timeout(5):
            await last.wait()
        await worker.stop()
        assert began == ["one", "others", "two", "others", "three", "others"]

    async def test_stop_without_a_start_does_nothing(self) -> None:
        await TaskRunner({"never": asyncio.Event().wait}).stop()  # type: ignore[dict-item]

    async def test_every_repeats(self) -> None:
        times: list[float] = []

        async def work() -> None:
            times.append(time.monotonic())
            if len(times) == 3:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            await repeat_every(0.01, work)()
        assert times[2] - times[0] >= 0.02


async def publish_event(services: Services, user: tables.User) -> None:
    async with services.database.write_session() as session:
        context = Context(services, session, user, "test")
        await publish(context, payloads.UserCreated, user)
        await commit_and_notify(context)


class TestApp:
    async def test_delivers_published_events_immediately(self, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        # Only the notification of a commit is left to start a delivery.
        monkeypatch.setattr(delivery_worker, "POLL_SECONDS", 600.0)
        app = App(Config.load(data=tmp_path, database_url=database_url, hooks_allow_local=True))
        await app.start()
        services = app.graph.services
        make = DataFactory(services, tmp_path)
        admin = await make.admin()
        async with WebhookReceiver() as receiver, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge") as client:
            answer = await client.post("/api/v3/hooks", headers={"PRIVATE-TOKEN": token_of(admin)}, json={"url": receiver.url})
            assert answer.status_code == 201
            await publish_event(services, admin)
            (request,) = await receiver.wait_for_requests(1, 60)
            assert request.json["username"] == admin.username
            async with asyncio.timeout(60):
                await app.stop()
            text = (await client.get("/-/metrics")).text
        assert 'forgefront_hook_deliveries_total{outcome="delivered"} 1.0' in text


@contextmanager
def start_claim_server(data: Path, database_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, ready."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")},
        "FORGEFRONT_DATA": str(data),
        "FORGEFRONT_DATABASE_URL": database_url,
        "FORGEFRONT_PORT": "0",
        "FORGEFRONT_HOOKS_ALLOW_LOCAL": "true",
        "FORGEFRONT_LOG_LEVEL": "error",
        "FORGEFRONT_WARM_UP": "false",
    }
    process = start_program("tests.forgefront.support.claim_server", env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class TestKilledProcess:
    async def test_a_delivery_survives_a_kill_and_a_stop(
        self, services: Services, make: DataFactory, database_url: str, tmp_path: Path
    ) -> None:
        async with WebhookReceiver(silent=True) as receiver:
            await make.save(tables.Hook(url=receiver.url))
            await publish_event(services, await make.user())
            with start_claim_server(tmp_path, database_url) as process:
                await receiver.wait_for_requests(1, 20)
                process.kill()
                process.wait()
            killed = await make.fetch(tables.Delivery, 1)
            assert killed is not None
            assert (killed.state, killed.attempts) == (DeliveryState.PENDING, 0)
            assert killed.claimed_by is not None

            config = Config.load(data=tmp_path, database_url=database_url, hooks_allow_local=True)
            app = App(config)
            await app.start()
            await receiver.wait_for_requests(2)
            await app.stop()
            stopped = await make.fetch(tables.Delivery, 1)
            assert stopped is not None
            assert (stopped.state, stopped.attempts, stopped.claimed_by) == (DeliveryState.PENDING, 0, None)

            receiver.silent = False
            app = App(config)
            await app.start()
            await receiver.wait_for_requests(3)
            await app.stop()

        delivered = await make.fetch(tables.Delivery, 1)
        assert delivered is not None
        assert (delivered.state, delivered.attempts) == (DeliveryState.DELIVERED, 1)
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
