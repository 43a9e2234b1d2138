"""The comparison: shadow servers that misbehave, what the report shows, and how much it holds."""

import asyncio
import base64
import errno
import gc
import json
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import structlog

from forgefront.shadow.comparison import traffic_report
from forgefront.shadow.comparison.comparison_worker import ComparisonWorker
from forgefront.shadow.comparison.report_files import format_text, write_report
from forgefront.shadow.comparison.route_names import RouteNames
from forgefront.shadow.comparison.status_page import create_status_app
from forgefront.shadow.comparison.traffic_report import OTHERS, TrafficReport
from forgefront.shadow.exchanges import Exchange, SkipReason
from forgefront.shadow.settings import ShadowSettings
from tests.forgefront.support.scripted_server import OK, ScriptedServer, answering, run_scripted

JSON = [("Content-Type", "application/json")]


def exchange(target: str = "/api/v3/projects", body: Any = None, *, method: str = "GET", status: int = 200, **headers: str) -> Exchange:
    sent = [("Host", "forge.example"), ("User-Agent", "script"), *((name.replace("_", "-"), value) for name, value in headers.items())]
    found = Exchange(method, target, sent, status=status, response_headers=JSON, seconds=0.01)
    found.response_body = body if isinstance(body, bytes) else orjson.dumps({} if body is None else body)
    return found


async def compare_with(new: str, *exchanges: Exchange, **settings: Any) -> dict[str, Any]:
    """The report after these exchanges."""
    worker = ComparisonWorker(ShadowSettings(old="http://old.example", new=new, **settings))
    for each in exchanges:
        await worker.take(each)
    reader = asyncio.StreamReader()
    reader.feed_eof()
    await worker.run(reader)
    return worker.report.as_json()


class TestShadowServers:
    async def test_that_misbehave_are_counted(self) -> None:
        async def hang(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await script.read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
            await asyncio.sleep(60)

        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        cases: dict[str, Any] = {
            "shadow server: too slow": hang,
            "shadow server: RemoteProtocolError": answering(b"rubbish\r\n\r\n", closes=True),
            "shadow server: body over the limit": answering(head + b"Content-Length: 5000\r\n\r\n" + b"1" * 5000),
            "shadow server: stream of events": answering(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"),
        }
        for reason, handler in cases.items():
            async with run_scripted(handler) as new:
                total = (await compare_with(new.url, exchange(), copy_seconds=0.5, max_body=1000))["total"]
                assert (total["seen"], total["not_compared"]) == (1, {reason: 1})
        for lying in (b"Content-Length: 9\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
            async with run_scripted(answering(head + lying, closes=True)) as new:
                total = (await compare_with(new.url, exchange()))["total"]
                assert total["not_compared"] == {"shadow server: RemoteProtocolError": 1}
        async with run_scripted(answering(head + b"Content-Length: 1\r\n\r\n{", closes=True)) as new:
            (route,) = (await compare_with(new.url, exchange()))["routes"]
            assert [(each["kind"], each["example"]["new"]) for each in route["differences"]] == [("body", "1 bytes: {")]

    async def test_receive_the_request_of_the_client_and_no_cookies(self) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nSet-Cookie: session=1; Path=/\r\nContent-Length: 2\r\n\r\n{}"
        async with run_scripted(answering(answer)) as new:
            sent = exchange(
                "/api/v3/projects/a%2Fb//x?q=%zz&r=caf\xe9",
                PRIVATE_TOKEN="secret",
                If_None_Match="x",
                Accept_Encoding="br",
                X_Forwarded_For="10.0.0.1",
            )
            report = await compare_with(new.url, sent, sent, exchange(method="HEAD", body=b""), copies_at_once=1)
        lines = new.requests[0].split(b"\r\n")
        assert lines[0] == b"GET /api/v3/projects/a%2Fb//x?q=%zz&r=caf%E9 HTTP/1.1"
        assert sorted(line.lower() for line in lines[1:] if line) == [
            b"accept-encoding: identity", b"host: forge.example", b"private-token: secret",
            b"user-agent: script", b"x-forwarded-for: 10.0.0.1",
        ]  # fmt: skip
        assert new.requests[1] == new.requests[0]
        assert new.requests[2].startswith(b"HEAD /api/v3/projects HTTP/1.1")
        assert report["total"]["equal"] == 3

    async def test_writes_wait_for_reads_and_reads_for_writes(self) -> None:
        async def slow(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while request := await script.read_request(reader):
                order.append(request.split(b" ")[1])
                await asyncio.sleep(0.05)
                order.append(request.split(b" ")[1])
                writer.write(OK)

        order: list[bytes] = []
        async with run_scripted(slow) as new:
            write = exchange("/write", method="POST")
            write.request_body = b"{}"
            failed = exchange("/failed", method="POST", status=500)
            report = await compare_with(new.url, exchange("/1"), exchange("/2"), write, failed, exchange("/3"), replays_writes=True)
        assert set(order[:4]) == {b"/1", b"/2"}
        assert order[4:] == [b"/write", b"/write", b"/3", b"/3"]
        assert report["total"]["not_compared"] == {"write that the server did not complete": 1}
        assert new.requests[2].endswith(b"\r\n\r\n{}")

    async def test_receive_no_requests_of_runners(self) -> None:
        claims = [
            exchange("/graphql", method="POST", body={"data": {}}),
            exchange("/ci/api/v1/builds/register.json", method="POST", status=201),
            exchange("/ci/api/v1/builds/7/artifacts"),
            exchange("/api/v4/jobs/request", method="POST", status=201),
        ]
        claims[0].request_body = orjson.dumps(
            {"query": "mutation Claim($i: ClaimBuildInput!) {\nclaimBuild(input: $i) { build { databaseId } } }"}
        )
        mentioned = exchange("/graphql", method="POST")
        mentioned.request_body = orjson.dumps({"query": "mutation { createIssue }", "variables": {"title": "why claimBuild fails"}})
        async with run_scripted(answering(OK)) as new:
            report = await compare_with(new.url, *claims, mentioned, replays_writes=True)
        assert [request.split(b" ")[1] for request in new.requests] == [b"/graphql"]
        assert report["total"]["not_compared"] == {"runners: a build belongs to the server that gave it": 4}

    async def test_that_hang_do_not_delay_the_end(self) -> None:
        async def hang(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with run_scripted(hang) as new:
            worker = ComparisonWorker(ShadowSettings(old="http://old.example", new=new.url, copies_at_once=2))
            reader = asyncio.StreamReader()
            for _ in range(5):
                reader.feed_data(exchange().encode())
            reader.feed_eof()
            working = asyncio.create_task(worker.run(reader))
            done, _ = await asyncio.wait({working}, timeout=0.2)
            assert not done
            worker.end_comparing()
            await asyncio.wait_for(working, 2)
        total = worker.report.as_json()["total"]
        assert (total["seen"], total["not_compared"]) == (5, {"the proxy stopped": 5})


class TestExamples:
    async def test_show_no_credentials(self) -> None:
        secret, password = "s3cr3t-t0ken", "pa ss/wörd"
        answer = orjson.dumps({"private_token": "other", "nested": {"api_token": "other"}, "text": "t", "url": "u", "long": "y" * 900})
        old = {
            "private_token": secret,
            "nested": {"api_token": secret},
            "text": f"your token is {secret}",
            "url": f"http://x/a?private_token=unrelated&page=2#{password}",
            "long": "x" * 900,
        }
        basic = base64.b64encode(f"user:{password}".encode()).decode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        broken = exchange("/api/v3/user", b'{"id": 1, "runners_token": "r4nd0m \\" value", "text": "password=hunter22 x"')
        elsewhere = exchange("/feed/Ab3dEf6hIj9lMn2p/x", method="OPTIONS", PRIVATE_TOKEN=secret)
        elsewhere.request_headers[1] = ("User-Agent", f"script of {secret}")
        elsewhere.skip_reason = SkipReason.OTHER_METHOD
        target = f"/api/v3/projects/3/triggers/abcdef0123?private%5Ftoken={secret}&search=word"
        async with run_scripted(answering(head + answer)) as new:
            sent = exchange(target, old, Authorization=f"Basic {basic}", PRIVATE_TOKEN=secret, Cookie=f"a={secret}")
            for masks in (False, True):
                report = await compare_with(new.url, sent, broken, elsewhere, masks_values=masks)
                for text in (json.dumps(report), format_text(report)):
                    for hidden in (secret, password, basic, "abcdef0123", "unrelated", 'other"', "Ab3dEf", "r4nd0m", "hunter22"):
                        assert hidden not in text, hidden
                assert {row["client"] for row in report["clients"]} == {"script", "script of ***"}
                route, other = report["routes"][:2]
                assert [each["kind"] for each in other["differences"]] == ["body"]
                examples = {each["place"]: each["example"] for each in route["differences"]}
                assert len(examples) == 5
                if masks:
                    assert examples["$.text"] == {
                        "request": "GET /api/v3/projects/:id/triggers/***?private%5Ftoken=***&search=***",
                        "old": f"string of {len(old['text'])}",
                        "new": "string of 1",
                    }
                else:
                    assert examples["$.text"]["request"] == "GET /api/v3/projects/3/triggers/***?private%5Ftoken=***&search=word"
                    assert examples["$.text"]["old"] == "your token is ***"
                    assert examples["$.long"]["old"] == "x" * 200 + "…"
                assert (examples["$.private_token"]["old"], examples["$.nested.api_token"]["new"]) == ("***", "***")

    async def test_show_neither_variables_of_builds_nor_tickets(self) -> None:
        answer = orjson.dumps({"variables": [{"key": "DEPLOY", "value": "n3w"}], "ticket": "gAAAAnew"})
        old = {"variables": [{"key": "DEPLOY", "value": "0ld"}], "ticket": "gAAAAold"}
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        async with run_scripted(answering(head + answer)) as new:
            report = await compare_with(new.url, exchange(body=old))
        examples = {each["place"]: each["example"] for each in report["routes"][0]["differences"]}
        assert examples.keys() == {"$.variables[*].value", "$.ticket"}
        assert {example[side] for example in examples.values() for side in ("old", "new")} == {"***"}


class TestReport:
    async def test_counts_by_route_and_client(self, tmp_path: Path) -> None:
        answer = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"id":1,"name":"b"} '
        skipped = exchange("/api/v3/projects/3/issues", method="POST")
        skipped.skip_reason = SkipReason.WRITE
        skipped.lost = 7
        page = exchange("/demo/tools")
        page.response_headers = [("Content-Type", "text/html; charset=utf-8")]
        exchanges = (
            exchange("/api/v3/projects/3", {"id": 1, "name": "b"}),
            exchange("/api/v3/projects/a%2Fb?x=1", {"id": 1, "name": "a"}),
            exchange("/api/v4/projects/4/jobs/5", {"id": 1, "name": "a", "current_sign_in_at": 1}),
            skipped,
            page,
            exchange("/-/health"),
        )
        path = tmp_path / "report.txt"
        async with run_scripted(answering(answer)) as new:
            report = await compare_with(new.url, *exchanges, report_file=str(path))
        total = report["total"]
        assert (total["seen"], total["equal"], total["different"], total["lost"]) == (6, 1, 2, 7)
        assert total["not_compared"] == {"write": 1, "pages for browsers": 1, "each server's own health, metrics and pages": 1}
        rows = {row["route"]: (row["seen"], row["equal"], row["different"]) for row in report["routes"]}
        assert rows == {
            "GET /api/v3/projects/:id": (2, 1, 1),
            "GET /api/v4/projects/:id/jobs/:id": (1, 0, 1),
            "POST /api/v3/projects/:id/issues": (1, 0, 0),
            "GET /:namespace/:project": (1, 0, 0),
            "GET /-/health": (1, 0, 0),
        }
        ((place, example),) = [(each["place"], each["example"]) for each in report["routes"][0]["differences"]]
        assert (place, example) == ("$.name", {"request": "GET /api/v3/projects/a%2Fb?x=1", "old": "a", "new": "b"})
        assert [(row["client"], row["seen"]) for row in report["clients"]] == [("script", 6)]
        assert report["ignored"] == [
            {"rule": "$..current_sign_in_at", "reason": "each server records the sign-ins that it saw", "count": 1}
        ]
        text = path.read_text()
        assert text.startswith("Old server answers; http://old.example (old) against")
        assert "6 requests: 1 equal, 2 different, 3 not compared, 7 lost by the queue" in text
        assert '  value $.name: 1 times, by script\n    GET /api/v3/projects/a%2Fb?x=1\n    old: "a"\n    new: "b"' in text
        with pytest.raises(OSError, match="No such file"):
            write_report(tmp_path / "missing" / "report.json", report)
        assert [each.name for each in path.parent.glob("*")] == ["report.txt"]

    async def test_that_cannot_be_written_leaves_the_one_before_and_the_comparison_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "report.json"
        worker = ComparisonWorker(ShadowSettings(old="http://old.example", new="http://new.example", report_file=str(path)))
        await worker.write_report()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        before = path.read_bytes()

        def fill_disk(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched, structlog.testing.capture_logs() as lines:
            patched.setattr("os.fsync", fill_disk)
            await worker.write_report()
            skipped = exchange(method="POST")
            skipped.skip_reason = SkipReason.WRITE
            await worker.take(skipped)
        assert [(line["event"], "No space left" in line["error"]) for line in lines] == [("the report was not written", True)]
        assert path.read_bytes() == before
        assert [each.name for each in path.parent.glob("*")] == ["report.json"]
        await worker.write_report()
        assert json.loads(path.read_bytes())["total"]["seen"] == 1

    def test_is_bounded(self) -> None:
        """Clients choose their names and the paths that they request."""
        report = TrafficReport(ShadowSettings(old="http://a", new="http://b"))
        gc.collect()
        tracemalloc.start()
        for number in range(20_000):
            route = f"GET /{number}/{'x' * 300}"
            report.count(route, f"client {number} {'y' * 5000}").seen += 1
            report.count("GET /", "one").not_compared["write"] += 1
            report.count_difference("GET /", "value", f"$.{number}{'z' * 300}", f"client {number}")
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        written = report.as_json()
        assert size < 4_000_000
        assert written["total"]["seen"] == 20_000
        assert len(written["routes"]) <= traffic_report.MAX_ROUTES + 1
        assert len(written["clients"]) <= traffic_report.MAX_CLIENTS + 1
        (row,) = [row for row in written["routes"] if row["route"] == "GET /"]
        assert len(row["differences"]) == traffic_report.MAX_DIFFERENCES_OF_A_ROUTE + 1
        assert row["differences"][0]["place"] == OTHERS

    def test_names_of_routes_have_no_ids(self) -> None:
        names = RouteNames()
        for target, name in {
            "/api/v3/projects/3/issues/41?page=2": "/api/v3/projects/:id/issues/:issue_id",
            "/api/v3/projects/a%2Fb/repository/files?file_path=x": "/api/v3/projects/:id/repository/files",
            "/api/v3//projects//3": "/api/v3/projects/:id",
            "/api/v3/nothing/3/here": "/api/v3/nothing/:id/here",
            "/demo/tools/issues/3": "/:namespace/:project/issues/:id",
            "/demo/tools.git/info/refs?service=x": "/:namespace/:project.git/info/refs",
            "/demo/tools/commit/0123456789abcdef": "/:namespace/:project/commit/:id",
            "http://forge/api/v3/user": "/api/v3/user",
            "/": "/",
            "*": "/*",
            "/" + "a/" * 50: "/:namespace/:project" + "/a" * 6,
        }.items():
            assert names.find("GET", target) == f"GET {name}", target
        assert names.find("HEAD", "/api/v3/projects/3") == "HEAD /api/v3/projects/:id"


class TestStatusPage:
    async def test_loads_its_own_files_only(self) -> None:
        report = TrafficReport(ShadowSettings(old="http://a", new="http://b"))
        transport = httpx.ASGITransport(app=create_status_app(report.as_json))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8082") as client:
            page = await client.get("/")
            names = [part.split('"')[0] for part in page.text.replace('src="', 'href="').split('href="')[1:]]
            for name in ("/report.json", *(each for each in names if not each.startswith("#"))):
                answer = await client.get(name)
                assert (answer.status_code, "default-src 'none'" in answer.headers["content-security-policy"]) == (200, True), name
            script = (await client.get("/report.js")).text
            for name in ("/-/pages/dom.js", "/-/pages/themes.js"):
                assert f'from "{name}"' in script
                assert (await client.get(name)).status_code == 200
            assert (await client.get("/report.json")).headers["cache-control"] == "no-store"
            assert (await client.post("/report.json")).status_code == 404
            assert (await client.get("/", headers={"Host": "rebound.example"})).status_code == 400
        assert "<script>" not in page.text
        assert "style=" not in page.text
