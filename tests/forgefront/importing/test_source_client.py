"""The client of the source: retries, rates, pages, and what it does with answers that are wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from forgefront.importing import source_client
from forgefront.importing.ref_listing import CONTENT_TYPE, RefLister
from forgefront.importing.source_client import SourceClient
from forgefront.importing.source_errors import (
    SourceFailed,
    SourceForbidden,
    SourceMalformed,
    SourceMissing,
    SourceUnauthorized,
    SourceUnreachable,
)
from forgefront.importing.source_instance import InvalidSource, open_source
from forgefront.importing.source_routes import ApiVersion
from storage.git.protocol.packets import FLUSH_PACKET, encode_packet, encode_packets

Handler = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]
URL = "https://old.example"


class FakeTime:
    """A clock that sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@asynccontextmanager
async def open_client(handler: Handler, *, rate: float = 1e6, parallel: int = 4) -> AsyncIterator[tuple[SourceClient, FakeTime]]:
    time = FakeTime()
    client = SourceClient(
        URL, "secret-token", rate, parallel, transport=httpx.MockTransport(handler), sleep=time.sleep, clock=lambda: time.now
    )
    yield client, time
    await client.aclose()


async def read_ids(client: SourceClient) -> list[int]:
    return [each["id"] async for each in client.read_all("/api/v3/things")]


class TestRetries:
    async def test_failures_are_repeated_with_growing_waits_and_then_distinguished(self) -> None:
        answers = iter([httpx.Response(500), httpx.ConnectError("down"), httpx.Response(502), httpx.Response(200, json={"id": 1})])

        def handler(request: httpx.Request) -> httpx.Response:
            assert request.headers["private-token"] == "secret-token"
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with open_client(handler) as (client, time):
            assert await client.get("/api/v3/things/1") == {"id": 1}
            assert (client.requests, client.retries) == (4, 3)
            assert 3 * source_client.FIRST_BACKOFF_SECONDS * 0.5 <= time.now <= 4 * source_client.FIRST_BACKOFF_SECONDS
        async with open_client(lambda _: httpx.Response(500)) as (client, _):
            with pytest.raises(SourceFailed, match="status 500 after 5 attempts"):
                await client.get("/x")

        def refuse(_: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("https://secret-token@old.example")

        async with open_client(refuse) as (client, _):
            with pytest.raises(SourceUnreachable) as caught:
                await client.get("/x")
            assert client.requests == source_client.MAX_FIRST_CONNECTION_ATTEMPTS
            assert str(caught.value) == "/x: https://old.example cannot be reached: https://***@old.example"
            assert "secret-token" not in repr(client)

        answered = iter([httpx.Response(200, json={})])

        def answer_once(request: httpx.Request) -> httpx.Response:
            return next(answered, None) or refuse(request)

        async with open_client(answer_once) as (client, _):
            await client.get("/x")
            with pytest.raises(SourceUnreachable):
                await client.get("/x")
            assert client.requests == 1 + source_client.MAX_CONNECTION_ATTEMPTS

    async def test_retry_after_delays_all_requests(self) -> None:
        starts: list[float] = []

        def handler(request: httpx.Request) -> httpx.Response:
            starts.append(time.now)
            if len(starts) == 1:
                return httpx.Response(429, headers={"Retry-After": "7"})
            return httpx.Response(503, headers={"Retry-After": "3"}) if len(starts) == 2 else httpx.Response(200, json={})

        async with open_client(handler) as (client, time):
            await client.get("/x")
            await client.get("/y")
        assert starts[1] >= 7
        assert starts[2] >= starts[1] + 3
        # asctime writes no zone (RFC 9110, 5.6.7).
        for date in ("Wed, 21 Oct 2015 07:28:00 GMT", "Wed Oct 21 07:28:00 2015", "Wed, 21 Oct 99999999999 07:28:00 GMT"):
            always = open_client(lambda _, date=date: httpx.Response(429, headers={"Retry-After": date}))
            async with always as (client, _):
                with pytest.raises(SourceFailed, match="429"):
                    await client.get("/x")

    async def test_one_request_that_is_unavailable_does_not_delay_the_others(self) -> None:
        def handler(request: httpx.Request) -> httpx.Response:
            return httpx.Response(503, headers={"Retry-After": "9"}) if request.url.path == "/bad" else httpx.Response(200, json={})

        async with open_client(handler) as (client, time):
            await client.get("/good")
            failing = asyncio.create_task(client.get("/bad"))
            await asyncio.sleep(0)
            await client.get("/good")
            with pytest.raises(SourceFailed, match="503 after 5 attempts"):
                await failing
            assert time.now <= 4 * 9 + 1
        async with open_client(handler) as (client, _):
            with pytest.raises(SourceFailed, match=f"503 after {source_client.MAX_THROTTLED_ATTEMPTS} attempts"):
                await client.get("/bad")

    async def test_statuses_have_errors_of_their_own(self) -> None:
        for status, error in (
            (401, SourceUnauthorized),
            (403, SourceForbidden),
            (404, SourceMissing),
            (410, SourceMissing),
            (302, SourceFailed),
        ):
            async with open_client(lambda _, status=status: httpx.Response(status, headers={"Location": "https://new.example/"})) as (
                client,
                _,
            ):  # type: ignore[misc]
                with pytest.raises(error):
                    await client.get("/x")
                assert client.requests == 1


class TestRate:
    async def test_starts_are_spaced_and_concurrency_is_bounded(self) -> None:
        running = most = 0

        async def answer(request: httpx.Request) -> httpx.Response:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return httpx.Response(200, json={})

        async with open_client(answer, rate=10, parallel=3) as (client, time):
            await asyncio.gather(*(client.get("/x") for _ in range(20)))
            assert most <= 3
            assert 1.85 <= time.now <= 2.1


class TestPages:
    async def test_are_followed_by_header_link_and_number(self) -> None:
        things = [{"id": number} for number in range(250)]

        def page_of(request: httpx.Request) -> tuple[int, list[Any]]:
            page, size = int(request.url.params["page"]), int(request.url.params["per_page"])
            return page, things[(page - 1) * size : page * size]

        def by_header(request: httpx.Request) -> httpx.Response:
            page, entries = page_of(request)
            return httpx.Response(200, json=entries, headers={"X-Next-Page": str(page + 1) if page < 3 else "", "X-Total": "250"})

        def by_link(request: httpx.Request) -> httpx.Response:
            page, entries = page_of(request)
            following = f'<{URL}/api/v3/things?page={page + 1}&per_page=100>; rel="next", ' if page < 3 else ""
            return httpx.Response(200, json=entries, headers={"Link": f'{following}<{URL}/api/v3/things?page=1>; rel="first"'})

        def by_number(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=page_of(request)[1])

        def whole(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=things)

        for handler in (by_header, by_link, by_number, whole):
            async with open_client(handler) as (client, _):
                assert await read_ids(client) == list(range(250)), handler.__name__
                assert client.requests <= 3

    async def test_are_read_from_the_oldest_entry(self) -> None:
        """Without what is known, and without a page that was not needed; also from a server that reports no total."""
        for number in (0, 1, 100, 101, 250):
            things = [{"id": each} for each in range(number, 0, -1)]
            for has_total in (True, False):

                def handler(request: httpx.Request, things: list[dict[str, int]] = things, has_total: bool = has_total) -> httpx.Response:
                    page, size = int(request.url.params["page"]), int(request.url.params["per_page"])
                    following = str(page + 1) if page * size < len(things) else ""
                    headers = {"X-Next-Page": following, **({"X-Total": str(len(things))} if has_total else {})}
                    return httpx.Response(200, json=things[(page - 1) * size : page * size], headers=headers)

                for mark in (0, 1, 150, 249, 250):
                    async with open_client(handler) as (client, _):
                        is_known = (lambda entry, mark=mark: entry["id"] <= mark) if mark else None
                        found = [entry["id"] async for entry in client.entries_oldest_first("/x", is_known)]
                        assert found == list(range(mark + 1, number + 1)), (number, has_total, mark)
                        if mark >= number:
                            assert client.requests == 1

    async def test_that_do_not_end_are_malformed(self) -> None:
        def same(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=[{"id": 1}], headers={"X-Next-Page": str(int(request.url.params["page"]) + 1)})

        def backwards(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=[{"id": 1}], headers={"X-Next-Page": "1"})

        def elsewhere(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=[{"id": 1}], headers={"Link": '<https://evil.example/next>; rel="next"'})

        for handler, reason in ((same, "repeats"), (backwards, "the page after 1 is 1"), (elsewhere, "another host")):
            async with open_client(handler) as (client, _):
                with pytest.raises(SourceMalformed, match=reason):
                    await read_ids(client)

        def endless(request: httpx.Request) -> httpx.Response:
            page = int(request.url.params["page"])
            return httpx.Response(200, json=[{"id": page}], headers={"X-Next-Page": str(page + 1)})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source_client, "MAX_PAGES", 20)
            async with open_client(endless) as (client, _):
                with pytest.raises(SourceMalformed, match="more than 20 pages"):
                    await read_ids(client)

    @pytest.mark.parametrize("link", ["//[::1", "https://old.example:port/", "\x7f", "https://xn--/"])
    async def test_with_links_that_are_no_urls_are_reported(self, link: str) -> None:
        def handler(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=[{"id": 1}], headers={"Link": f'<{link}>; rel="next"'})

        async with open_client(handler) as (client, _):
            with pytest.raises(SourceMalformed, match="not a URL"):
                await read_ids(client)

    async def test_at_paths_that_are_in_no_url_are_reported(self) -> None:
        """As with the names of a project or a file that the instance answered."""
        async with open_client(lambda request: httpx.Response(200, json=[])) as (client, _):
            with pytest.raises(SourceMalformed, match="not a URL"):
                await client.get("/ada/\x7f/uploads/1/a")
            assert await RefLister(client).list_refs(f"{URL}/ada/\x7f.git", None) is None
            assert await read_ids(client) == []

    async def test_rubbish_is_malformed_and_bounded(self) -> None:
        for body, reason in (
            (b"<html>", "not JSON"),
            (b'{"a": 1}', "an object, not a list"),
            (b"[" + b" " * 2000, "larger than 1,000 bytes"),
        ):
            async with open_client(lambda _, body=body: httpx.Response(200, content=body)) as (client, _):  # type: ignore[misc]
                with pytest.MonkeyPatch.context() as patch, pytest.raises(SourceMalformed, match=reason):
                    patch.setattr(source_client, "MAX_JSON_BYTES", 1000)
                    await read_ids(client)
        async with open_client(lambda _: httpx.Response(200, json=[{"id": 1}, 7, None])) as (client, _):
            pages = [page async for page in client.pages("/x")]
            assert [(page.entries, page.malformed) for page in pages] == [([{"id": 1}], 2)]


class TestDetection:
    async def test_prefers_v3_and_takes_v4_where_it_is_gone(self) -> None:
        user = {"id": 1, "username": "root", "is_admin": True}

        def old(request: httpx.Request) -> httpx.Response:
            is_known = request.url.path in ("/api/v3/user", "/api/v3/application/settings")
            return httpx.Response(200, json=user) if is_known else httpx.Response(404, json={})

        def new(request: httpx.Request) -> httpx.Response:
            if request.url.path.startswith("/api/v3"):
                return httpx.Response(410, json={"error": "API V3 is no longer supported. Use API V4 instead."})
            if request.url.path == "/api/v4/version":
                return httpx.Response(200, json={"version": "13.2.1", "revision": "x"})
            return httpx.Response(200, json={"id": 1, "username": "root"})

        async with open_client(old) as (client, _):
            source = await open_source(client)
            assert (source.api, source.version, source.is_admin, source.gaps) == (ApiVersion.V3, None, True, ())
            assert source.path("trace", project="a/b", build=7) == "/api/v3/projects/a%2Fb/builds/7/trace"
        async with open_client(new) as (client, _):
            source = await open_source(client)
            assert (source.api, source.version, source.is_admin) == (ApiVersion.V4, "13.2.1", True)
            assert source.path("trace", project=3, build=7) == "/api/v4/projects/3/jobs/7/trace"

    async def test_says_what_a_token_lacks_and_what_is_no_forge(self) -> None:
        def plain(request: httpx.Request) -> httpx.Response:
            is_user = request.url.path == "/api/v3/user"
            return httpx.Response(200, json={"id": 2, "username": "ann", "is_admin": False}) if is_user else httpx.Response(403)

        async with open_client(plain) as (client, _):
            assert any("settings" in gap for gap in (await open_source(client)).gaps)
        for handler, reason in (
            (lambda _: httpx.Response(401), "does not accept the token"),
            (lambda _: httpx.Response(404), "neither API v3 nor v4"),
            (lambda _: httpx.Response(200, text="<html>"), "neither API v3 nor v4"),
            (lambda _: httpx.Response(200, json={"message": "hello"}), "not answer with a user"),
        ):
            async with open_client(handler) as (client, _):
                with pytest.raises(InvalidSource, match=reason):
                    await open_source(client)


class TestRefs:
    async def test_are_listed_by_one_request_and_left_to_git_when_it_fails(self) -> None:
        packets = [b"# service=git-upload-pack\n", b"1" * 40 + b" HEAD\0symref=HEAD:refs/heads/main\n"]
        body = encode_packet(packets[0]) + FLUSH_PACKET + encode_packets(packets[1:])
        good = httpx.Response(200, headers={"content-type": CONTENT_TYPE}, content=body)
        others = (httpx.Response(401), httpx.Response(503), httpx.Response(302, headers={"location": "/"}), httpx.ConnectError("down"))
        answers = iter([good, httpx.Response(200, content=body), *others])

        def handler(request: httpx.Request) -> httpx.Response:
            assert str(request.url) == f"{URL}/acme/web.git/info/refs?service=git-upload-pack"
            assert (request.headers["authorization"], request.headers["accept"]) == ("Basic cm9vdDpzZWNyZXQ=", "*/*")
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with open_client(handler) as (client, _):
            lister = RefLister(client)
            listed = [await lister.list_refs(f"{URL}/acme/web.git", "root:secret") for _ in range(2 + len(others))]
        assert listed == [f"ref: refs/heads/main\tHEAD\n{'1' * 40}\tHEAD\n", *[None] * 5]
        assert client.requests == len(listed)

    async def test_of_a_missing_repository_are_not_left_to_git(self) -> None:
        async with open_client(lambda _: httpx.Response(404)) as (client, _):
            with pytest.raises(SourceMissing):
                await RefLister(client).list_refs(f"{URL}/acme/web.wiki.git", None)
