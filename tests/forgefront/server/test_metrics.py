"""The request id, the access log and the metrics of requests, around small apps."""

import asyncio
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from prometheus_client import parser as plain_metrics
from prometheus_client.core import CounterMetricFamily
from prometheus_client.openmetrics import parser as open_metrics
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forgefront import logs
from forgefront.runner.metrics import RunnerMetrics
from forgefront.server.metrics import Metrics
from forgefront.server.middleware import RequestMiddleware
from forgefront.server.request_metrics import MAX_SERIES
from graph.jobs.backlog import Backlog
from graph.jobs.build_analytics import CopyState
from storage.database.errors import is_unavailable

OPEN = "application/openmetrics-text"
SECRET = "hunter2-AbCdEf_012345"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    yield stream
    structlog.reset_defaults()


async def plain(scope: Scope, receive: Receive, send: Send) -> None:
    scope["state"]["route"] = "/things/:id"
    scope["state"]["user_id"] = 7
    await PlainTextResponse("fine")(scope, receive, send)


def failing(error: Exception) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    return app


def client(app: ASGIApp, metrics: Metrics | None = None) -> httpx.AsyncClient:
    attended = RequestMiddleware(app, metrics or Metrics(), is_unavailable)
    return httpx.AsyncClient(transport=httpx.ASGITransport(attended), base_url="http://forge")


def check_manual(exposition: str, manual: str) -> None:
    """Fails unless the manual has the name of each metric, and no other."""
    documented = set(re.findall(r"`(forgefront_\w+)", Path(manual).read_text()))
    families = {(family.name, family.type) for family in plain_metrics.text_string_to_metric_families(exposition)}
    names = {f"{name}_total" if kind == "counter" else name for name, kind in families if name.startswith("forgefront_")}
    assert len(names) > 5
    assert names == documented, manual


class TestRequestId:
    async def test_a_valid_request_id_is_accepted(self, written: io.StringIO) -> None:
        response = await client(plain).get("/things/1", headers={"X-Request-Id": "a-b_c.9"})
        assert response.headers["X-Request-Id"] == "a-b_c.9"
        assert json.loads(written.getvalue())["request_id"] == "a-b_c.9"

    @pytest.mark.parametrize("sent", ["", " ", "a b", "x" * 65, "-a", "a/b", 'a"b', "é"])
    async def test_an_invalid_request_id_is_replaced(self, sent: str, written: io.StringIO) -> None:
        response = await client(plain).get("/", headers={"X-Request-Id": sent.encode()})
        assert re.fullmatch("[0-9a-f]{24}", response.headers["X-Request-Id"])

    async def test_each_request_has_its_own(self, written: io.StringIO) -> None:
        async with client(plain) as http:
            assert len({(await http.get("/")).headers["X-Request-Id"] for _ in range(20)}) == 20

    async def test_the_app_sees_it(self, written: io.StringIO) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["state"]["request_id"] == logs.REQUEST_ID.get()
            await PlainTextResponse(scope["state"]["request_id"])(scope, receive, send)

        response = await client(app).get("/")
        assert response.text == response.headers["X-Request-Id"]


class TestAccessLine:
    async def test_fields(self, written: io.StringIO) -> None:
        await client(plain).get("/things/a%2Fb%0A?private_token=x")
        line = json.loads(written.getvalue())
        assert line.pop("time") and line.pop("request_id") and line.pop("duration_ms") >= 0
        assert line == {
            "event": "request",
            "level": "info",
            "logger": "access",
            "method": "GET",
            "path": "/things/a%2Fb%0A",
            "status": 200,
            "user_id": 7,
        }

    @pytest.mark.parametrize("app", [plain, failing(ValueError(f"password={SECRET}")), failing(OSError(f"token: {SECRET}"))])
    async def test_no_credential(self, app: ASGIApp, written: io.StringIO) -> None:
        await client(app).post(
            f"/x/token={SECRET}?private_token={SECRET}",
            headers={"PRIVATE-TOKEN": SECRET, "Authorization": f"Bearer {SECRET}"},
            data={"private_token": SECRET, "password": SECRET},
        )
        assert written.getvalue()
        assert SECRET not in written.getvalue()

    async def test_a_secret_path_is_logged_by_its_template(self, written: io.StringIO) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] |= {"route": "/-/artifacts/:ticket", "secret_path": True}
            await PlainTextResponse("")(scope, receive, send)

        await client(app).put(f"/-/artifacts/{SECRET}")
        assert json.loads(written.getvalue())["path"] == "/-/artifacts/:ticket"

    @pytest.mark.parametrize("token", ["abcdef0123456789abcdef01234567", "fr-Ab3dEf-hIjKlMnOpQrStU", "AbCdEfGhIjKlMnOpQrSt"])
    @pytest.mark.parametrize(("route", "status"), [(None, 405), ("preflight", 204), ("/-/pages", 404)])
    async def test_a_path_without_a_route_has_no_tokens(self, token: str, route: str | None, status: int, written: io.StringIO) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] |= {"route": route} if route else {}
            await PlainTextResponse("", status)(scope, receive, send)

        for path in (f"/projects/a-project-with-a-long-name/triggers/{token}/x", f"/triggers%2F{token}", f"/{'x/' * 250}{token}"):
            await client(app).get(path)
        assert token[:8] not in written.getvalue()
        assert json.loads(written.getvalue().splitlines()[0])["path"] == "/projects/a-project-with-a-long-name/triggers/[redacted]/x"

    @pytest.mark.parametrize(
        ("path", "status", "logged"),
        [
            ("/projects/AbCdEfGhIjKlMnOpQrSt/issues/7", 404, "/projects/[redacted]/issues/7"),
            ("/projects/1/issues/fr-Ab3dEf-hIjKlMnOpQrStU", 404, "/projects/1/issues/[redacted]"),
            ("/projects/abcdef0123456789abcdef01234567/issues/7", 401, "/projects/[redacted]/issues/7"),
            ("/projects/AbCdEfGhIj%4blMnOpQrSt%20/issues/7", 404, "/projects/[redacted]/issues/7"),
            ("/projects/Infrastructure-2%2FCustomer-Portal-Backend-2/issues/7", 403, ""),
            ("/projects/a-group-with-a-long-name/issues/12345678901", 404, ""),
            # What was found is no token.
            ("/projects/Infrastructure-Team-2/issues/7", 200, ""),
        ],
    )
    async def test_an_id_that_is_not_found_is_no_token(self, path: str, status: int, logged: str, written: io.StringIO) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] |= {"route": "/api/v3/projects/:id/issues/:issue_id"}
            await PlainTextResponse("", status)(scope, receive, send)

        await client(app).get(f"/api/v3{path}")
        assert json.loads(written.getvalue())["path"] == f"/api/v3{logged or path}"

    async def test_a_path_with_a_route_is_complete(self, written: io.StringIO) -> None:
        await client(plain).get(f"/things/{'0a' * 20}")
        assert json.loads(written.getvalue())["path"] == f"/things/{'0a' * 20}"


class TestFailures:
    async def test_unknown_failure(self, written: io.StringIO) -> None:
        response = await client(failing(ValueError("details"))).get("/", headers={"X-Request-Id": "r1"})
        assert (response.status_code, response.json()) == (500, {"message": "500 Internal Server Error"})
        failure, access = map(json.loads, written.getvalue().splitlines())
        assert failure["request_id"] == access["request_id"] == response.headers["X-Request-Id"] == "r1"
        assert "ValueError: details" in failure["exception"]
        assert access["status"] == 500

    @pytest.mark.parametrize("error", [ConnectionRefusedError("no"), TimeoutError()])
    async def test_absent_database(self, error: Exception, written: io.StringIO) -> None:
        response = await client(failing(error)).get("/")
        assert (response.status_code, response.json()) == (503, {"message": "503 Service Unavailable"})
        assert 1 <= int(response.headers["Retry-After"]) <= 5
        assert "Traceback" not in written.getvalue()

    async def test_client_disconnect(self, written: io.StringIO) -> None:
        metrics = Metrics()
        with pytest.raises(AssertionError):  # httpx misses its answer
            await client(failing(ClientDisconnect()), metrics).get("/")
        assert json.loads(written.getvalue())["status"] == 499

    async def test_failure_in_the_middle(self, written: io.StringIO) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ValueError("late")

        with pytest.raises(AssertionError):
            await client(app).get("/")
        assert "late" in written.getvalue()

    async def test_nosniff_once(self, written: io.StringIO) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse("x", headers={"X-Content-Type-Options": "nosniff"})(scope, receive, send)

        for wrapped in (app, plain, failing(ValueError())):
            response = await client(wrapped).get("/")
            assert response.headers.get_list("X-Content-Type-Options") == ["nosniff"]


def samples(text: str, name: str) -> dict[str, float]:
    found = re.findall(rf"^{name}({{[^}}]*}})? ([0-9.e+-]+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


class TestMetrics:
    async def test_counts_by_template(self, written: io.StringIO) -> None:
        metrics = Metrics()
        async with client(plain, metrics) as http:
            for number in range(5):
                await http.get(f"/things/{number}")
            await http.request("BREW", "/things/1")
        text = metrics.render().decode()
        assert samples(text, "forgefront_http_requests_total") == {
            '{method="GET",route="/things/:id",status="200"}': 5,
            '{method="OTHER",route="/things/:id",status="200"}': 1,
        }
        assert samples(text, "forgefront_http_request_duration_seconds_count")['{method="GET",route="/things/:id"}'] == 5
        assert samples(text, "forgefront_http_requests_in_flight") == {'{kind="http"}': 0, '{kind="websocket"}': 0}
        assert list(samples(text, "forgefront_build_info").values()) == [1]
        assert samples(text, "process_open_fds")

    async def test_in_flight(self, written: io.StringIO) -> None:
        metrics = Metrics()
        seen: list[dict[str, float]] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(samples(metrics.render().decode(), "forgefront_http_requests_in_flight"))
            raise ValueError

        await client(app, metrics).get("/")
        assert seen[0]['{kind="http"}'] == 1
        assert samples(metrics.render().decode(), "forgefront_http_requests_in_flight")['{kind="http"}'] == 0

    def test_series_are_bounded(self) -> None:
        metrics = Metrics()
        for number in range(MAX_SERIES + 100):
            metrics.count("GET", f"/{number}", 200, 0.1)
        requests = samples(metrics.render().decode(), "forgefront_http_requests_total")
        assert len(requests) == MAX_SERIES + 1
        assert requests['{method="GET",route="other",status="200"}'] == 100

    async def test_its_page(self, written: io.StringIO) -> None:
        async with client(Metrics()) as http:
            response = await http.get("/-/metrics")
            assert response.headers["Content-Type"].startswith("text/plain; version=")
            assert "forgefront_build_info" in response.text
            refused = await http.post("/-/metrics")
            assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        ("accept", "kind"),
        [
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                "application/openmetrics-text; version=1.0.0",
            ),
            (OPEN, f"{OPEN}; version=1.0.0"),
            (f"{OPEN}; version=abc", "text/plain; version=0.0.4"),
            (f"{OPEN}; version=1.0.0 x", "text/plain; version=0.0.4"),
            ("text/plain", "text/plain; version=0.0.4"),
            ("*/*", "text/plain; version=0.0.4"),
        ],
    )
    async def test_open_metrics_by_content_negotiation(self, accept: str, kind: str, written: io.StringIO) -> None:
        async def two() -> Backlog:
            return Backlog(2, 1, 0.5, 40, 30, 60.0, 70, CopyState(12, 0.25, True))

        metrics = Metrics(two)
        metrics.count("GET", "/x", 200, 0.01)
        async with client(metrics, metrics) as http:
            response = await http.get("/-/metrics", headers={"Accept": accept})
        assert response.headers["Content-Type"].startswith(kind)
        assert response.headers["Vary"] == "Accept"
        parse = (
            open_metrics.text_string_to_metric_families if kind.startswith("application") else plain_metrics.text_string_to_metric_families
        )
        found = {sample.name: sample.value for family in parse(response.text) for sample in family.samples}
        assert found["forgefront_http_requests_total"] == 1
        assert (found["forgefront_builds_waiting"], found["forgefront_hook_deliveries_waiting"]) == (2, 1)
        assert found["forgefront_hook_deliveries_oldest_seconds"] == 0.5
        assert found["forgefront_build_changes_logged"] == 40
        logged = [found[f"forgefront_changes_{name}"] for name in ("logged", "oldest_seconds", "recorded_total")]
        assert logged == [30, 60.0, 70]
        assert [found[f"forgefront_analytics_{name}"] for name in ("builds", "behind_seconds", "rebuilding")] == [12, 0.25, 1]
        assert response.text.endswith("# EOF\n") is kind.startswith("application")

    async def test_every_metric_is_in_the_manual(self, written: io.StringIO) -> None:
        async def read() -> Backlog:
            return Backlog(2, 1, 0.5, 40, 30, 60.0, 70, CopyState(12, 0.25, True))

        metrics = Metrics(read)
        async with client(metrics, metrics) as http:
            text = (await http.get("/-/metrics")).text
        check_manual(text, "docs/operations.md")
        check_manual(RunnerMetrics().render().decode(), "docs/runner.md")

    async def test_a_database_that_is_away_takes_only_its_own_gauges(self, written: io.StringIO) -> None:
        async def away() -> Backlog:
            raise ConnectionRefusedError

        metrics = Metrics(away)
        async with client(metrics, metrics) as http:
            response = await http.get("/-/metrics")
        assert response.status_code == 200
        assert "forgefront_build_info" in response.text
        assert "waiting" not in response.text

    async def test_are_rendered_outside_of_the_event_loop(self, written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
        metrics, render, running, threads = Metrics(), Metrics.render, 0, list[tuple[bool, int]]()

        def observed_render(*arguments: Any) -> bytes:
            nonlocal running
            running += 1
            threads.append((threading.current_thread() is threading.main_thread(), running))
            try:
                return render(*arguments)
            finally:
                running -= 1

        monkeypatch.setattr(Metrics, "render", observed_render)
        async with client(metrics, metrics) as http:
            responses = await asyncio.gather(*(http.get("/-/metrics") for _ in range(3)))
        assert {response.status_code for response in responses} == {200}
        assert threads == [(False, 1)] * 3

    def test_series_may_be_added_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        metrics, add = Metrics(), CounterMetricFamily.add_metric

        def count_and_add(self: CounterMetricFamily, labels: Sequence[str], *arguments: Any, **named: Any) -> None:
            if self.name == "forgefront_http_requests":
                metrics.count("GET", f"{labels[1]}/next", 200, 0.1)
            add(self, labels, *arguments, **named)

        for number in range(3):
            metrics.count("GET", f"/{number}", 200, 0.1)
        monkeypatch.setattr(CounterMetricFamily, "add_metric", count_and_add)
        assert len(samples(metrics.render().decode(), "forgefront_http_requests_total")) == 3

    async def test_concurrent_scrapes_share_one_backlog_query(self, written: io.StringIO) -> None:
        reads = 0

        async def read() -> Backlog:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)
            return Backlog(reads, 0, 0.0, 0)

        metrics = Metrics(read)
        async with client(metrics, metrics) as http:
            await asyncio.gather(*(http.get("/-/metrics") for _ in range(5)))
        assert reads == 1

    def test_several_processes_are_summed(self, tmp_path: Path) -> None:
        """Processes of one interpreter, which decides when it starts that metrics are stored in files."""
        code = (
            f"values = {Backlog(3, 2, 1.5, 0)._asdict()}"
            + """
import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from forgefront.server.metrics import Metrics
async def read():
    # As Backlog, whose module takes many times as long to import.
    return SimpleNamespace(**values)
def run(number, accept):
    metrics = Metrics(read)
    metrics.count("GET", "/x", 200, 0.01)
    metrics.running_requests.inc()
    scraped = {}
    async def send(message):
        scraped.update(message)
    async def scrape():
        scope = {"type": "http", "method": "GET", "path": "/-/metrics", "headers": [(b"accept", accept.encode())]}
        await metrics(scope, None, send)
    asyncio.run(scrape())
    Path(sys.argv[1], f"scraped{number}").write_bytes(scraped["body"])
for number, accept in enumerate(sys.argv[2:]):
    process = os.fork()
    if process == 0:
        run(number, accept)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
"""
        )
        command = [sys.executable, "-c", code, str(tmp_path), "*/*", "*/*", "application/openmetrics-text"]
        (tmp_path / "values").mkdir()
        subprocess.run(command, env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "values")}, check=True, capture_output=True)
        text = (tmp_path / "scraped1").read_text()
        assert samples(text, "forgefront_http_requests_total") == {'{method="GET",route="/x",status="200"}': 2}
        assert list(samples(text, "forgefront_build_info").values()) == [1]
        # Each process reads it from the database, so it is not summed.
        assert samples(text, "forgefront_builds_waiting") == {"": 3}
        text = (tmp_path / "scraped2").read_text()
        found = {sample.name: sample.value for family in open_metrics.text_string_to_metric_families(text) for sample in family.samples}
        assert (found["forgefront_http_requests_total"], found["forgefront_builds_waiting"]) == (3, 3)


class TestWebSocket:
    async def test_accepted_and_closed(self, written: io.StringIO) -> None:
        sent: list[dict[str, Any]] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 1000})

        async def send(message: Any) -> None:
            sent.append(message)

        receive: Callable[[], Awaitable[Any]] = lambda: None  # type: ignore[assignment, return-value] # noqa: E731
        scope = {"type": "websocket", "path": "/graphql", "raw_path": b"/graphql", "headers": [(b"x-request-id", b"ws1")]}
        await RequestMiddleware(app, Metrics(), is_unavailable)(scope, receive, send)
        assert (b"x-request-id", b"ws1") in sent[0]["headers"]
        line = json.loads(written.getvalue())
        assert (line["event"], line["status"], line["request_id"]) == ("websocket", 101, "ws1")
