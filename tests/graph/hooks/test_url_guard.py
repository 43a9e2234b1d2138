"""Addresses that hooks may call."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from graph.events import name_resolver
from graph.events.address_guard import AddressGuard, ForbiddenAddress, InvalidHookUrl, UnresolvableHost, is_public, parse_hook_url
from graph.events.name_resolver import MAX_FAST_LOOKUPS, NameResolver
from tests.support.waiting import wait_until

PRIVATE_ADDRESSES = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.0.1 169.254.169.254 172.16.0.1
    172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1
    239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:10.0.0.1 ::127.0.0.1 64:ff9b::a00:1 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1
    2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1::1 2002:a00:1:: 3fff::1 5f00::1 fc00::1
    fd12:3456:789a::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 2606:4700::1%1
    hooks.example 1 127.1
"""
PUBLIC_ADDRESSES = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 126.1.1.1 128.0.0.1 169.253.1.1 172.15.255.255 172.32.0.1 192.0.1.1
    192.167.1.1 192.169.1.1 198.17.1.1 198.20.1.1 223.255.255.255 2606:4700:4700::1111 2a00:1450:4001::200e 2001:4860:4860::8888
"""

BAD_URLS = [
    "",
    "hooks.example/x",
    "//hooks.example/x",
    "ftp://hooks.example/",
    "file:///etc/passwd",
    "gopher://hooks.example:70/x",
    "http://",
    "http:///x",
    "http://hooks.example:0/",
    "http://hooks.example:65536/",
    "http://hooks.example:x/",
    "http://hooks.example/a b",
    "http://hooks.exa\nmple/",
    "http://hooks.example/\x7f",
    "http://[::1/",
    "http://hooks%2eexample/",
    "http://127%2e0%2e0%2e1.hooks.example/",
    "http://hooks.example;x/",
    "http://user@/x",
    "https://hooks.example/" + "x" * 1980,
    "https://hooks.example/" + "ü" * 500,
]


class TestIsPublic:
    @pytest.mark.parametrize("address", PRIVATE_ADDRESSES.split())
    def test_rejects_private_addresses(self, address: str) -> None:
        assert not is_public(address)

    @pytest.mark.parametrize("address", PUBLIC_ADDRESSES.split())
    def test_allows_the_internet(self, address: str) -> None:
        assert is_public(address)


class TestReadUrl:
    @pytest.mark.parametrize("text", BAD_URLS)
    def test_rejects_invalid_urls(self, text: str) -> None:
        with pytest.raises(InvalidHookUrl):
            parse_hook_url(text, max_length=2000)

    @pytest.mark.parametrize(
        ("text", "url", "credentials"),
        [
            (" https://hooks.example/a?b=c ", "https://hooks.example/a?b=c", None),
            ("http://u:p%40ss%3A@hooks.example:81/a#here", "http://hooks.example:81/a", "u:p@ss:"),
            ("http://token@hooks.example/", "http://hooks.example/", "token:"),
            ("http://[2606:4700::1]:8080/x", "http://[2606:4700::1]:8080/x", None),
        ],
    )
    def test_strips_credentials(self, text: str, url: str, credentials: str | None) -> None:
        target = parse_hook_url(text, max_length=2000)

        assert (target.url, target.credentials) == (url, credentials)


class TestGuard:
    def guard(self, *addresses: str, allow_local: bool = False) -> AddressGuard:
        async def resolve(host: str, port: int) -> list[str]:
            self.asked.append((host, port))
            return list(addresses)

        self.asked: list[tuple[str, int]] = []
        return AddressGuard(allow_local=allow_local, resolve=resolve)

    async def test_resolves_a_name_once(self) -> None:
        guard = self.guard("8.8.8.8", "2606:4700::1")

        assert await guard.addresses(httpx.URL("https://hooks.example/")) == ["8.8.8.8", "2606:4700::1"]
        assert self.asked == [("hooks.example", 443)]

    @pytest.mark.parametrize("addresses", [["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:169.254.169.254"]])
    async def test_rejects_a_name_with_any_private_address(self, addresses: list[str]) -> None:
        with pytest.raises(ForbiddenAddress):
            await self.guard(*addresses).addresses(httpx.URL("http://hooks.example/"))

    @pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://[::1]/", "http://[::ffff:7f00:1]:80/", "http://169.254.169.254/latest"])
    async def test_rejects_private_ip_addresses_in_urls(self, url: str) -> None:
        guard = self.guard("8.8.8.8")
        with pytest.raises(ForbiddenAddress):
            await guard.addresses(httpx.URL(url))
        assert self.asked == []

    async def test_does_not_resolve_a_name_that_other_clients_decode(self) -> None:
        """Git connects to `127.0.0.1.example` instead, and would resolve it itself. The URL may have been stored by an older version."""
        with pytest.raises(UnresolvableHost):
            await self.guard("8.8.8.8").addresses(httpx.URL("http://127%2e0%2e0%2e1.example/a.git"))
        assert self.asked == []

    @pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "017700000001", "localhost"])
    async def test_rejects_alternative_spellings_of_loopback(self, host: str) -> None:
        guard = AddressGuard()
        with pytest.raises((ForbiddenAddress, UnresolvableHost)):
            await guard.addresses(httpx.URL(f"http://{host}/"))
        guard.close()

    async def test_private_addresses_are_allowed_by_configuration(self) -> None:
        assert await self.guard(allow_local=True).addresses(httpx.URL("http://127.0.0.1/")) == ["127.0.0.1"]

    async def test_does_not_wait_for_a_slow_name_server_when_a_hook_is_made(self) -> None:
        async def resolve(host: str, port: int) -> list[str]:
            await asyncio.sleep(60)
            return []

        await AddressGuard(resolve=resolve).check(httpx.URL("http://hooks.example/"), seconds=0.01)


class TestDeadNameServers:
    """Names whose servers do not answer hold their threads for as long as the system tries."""

    @pytest.fixture
    def answers(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """Names that end with `dead` are answered after this event."""
        event = threading.Event()

        def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
            if host.endswith("dead"):
                assert event.wait(30)
            return [(None, None, None, "", ("1.1.1.1", 80))]

        monkeypatch.setattr("graph.events.name_resolver.socket.getaddrinfo", look_up)
        monkeypatch.setattr(name_resolver, "SLOW_SECONDS", 0.01)
        yield event
        event.set()

    async def test_other_names_are_resolved_meanwhile(self, answers: threading.Event) -> None:
        guard = AddressGuard()
        dead = [asyncio.create_task(guard.addresses(httpx.URL(f"http://{number}.dead/"))) for number in range(MAX_FAST_LOOKUPS + 8)]
        async with asyncio.timeout(20):
            await asyncio.sleep(0.05)
            assert await guard.addresses(httpx.URL("http://hooks.example/")) == ["1.1.1.1"]
            assert not any(task.done() for task in dead)
            # Those that were slow before take few threads, of callers too that have given up.
            again = [asyncio.create_task(guard.addresses(httpx.URL(f"http://{number}.dead/"))) for number in range(MAX_FAST_LOOKUPS)]
            await asyncio.sleep(0.05)
            for task in again:
                task.cancel()
            assert guard._names is not None
            assert guard._names._slow.locked()
            assert await guard.addresses(httpx.URL("http://hooks.example/")) == ["1.1.1.1"]
            answers.set()
            assert await asyncio.gather(*dead) == [["1.1.1.1"]] * len(dead)
        guard.close()

    async def test_a_name_that_is_slow_once_may_be_fast_later(self, answers: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
        resolver = NameResolver()
        waiting = asyncio.create_task(resolver.resolve("a.dead", 80))
        await wait_until(lambda: "a.dead" in resolver._slow_names)
        answers.set()
        assert await waiting == ["1.1.1.1"]
        monkeypatch.setattr(name_resolver, "SLOW_SECONDS", 10.0)
        assert await resolver.resolve("a.dead", 80) == ["1.1.1.1"]
        assert resolver._slow_names == {}
        resolver.close()
