"""Restricts webhooks to http and https and to public addresses, to prevent requests to the server's own network (SSRF).

A name is resolved once per delivery, all its addresses are checked, and the connection is made to a checked address. So a name that
changes its addresses in between (DNS rebinding) has no effect.
"""

import asyncio
import contextlib
import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

from graph.events.name_resolver import NameResolver

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host and a port to addresses, best first. Raises OSError."""

NON_PUBLIC_IPV4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a carrier's customers (CGNAT)
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the metadata service of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
IPV6_PUBLIC = ipaddress.IPv6Network("2000::/3")
"""All global unicast. Outside are loopback, unique local, link-local, multicast, IPv4-mapped (::ffff:0:0/96) and NAT64 (64:ff9b::/96)."""
NON_PUBLIC_IPV6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, among them Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: contains an IPv4 address, which may be private
        "3fff::/20",  # documentation
    )
)

_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
"""A name that every client reads in the same way: git decodes `%2e`, and would resolve another name than the one that was checked."""


class InvalidHookUrl(Exception):
    """The URL is not allowed for hooks; the message gives the reason."""


class ForbiddenAddress(Exception):
    """The address is not allowed for hooks; the message is for the delivery log."""


class UnresolvableHost(Exception):
    """The name has no address, or cannot be resolved now."""


@dataclass(frozen=True, slots=True)
class HookUrl:
    """A URL without its credentials, and the credentials "user:password" that it contained."""

    url: str
    credentials: str | None


def parse_hook_url(value: str, *, max_length: int) -> HookUrl:
    """Validates a hook's URL and separates its credentials. Raises InvalidHookUrl.

    >>> parse_hook_url("https://ci:secret@hooks.example/x?y=1", max_length=2000)
    HookUrl(url='https://hooks.example/x?y=1', credentials='ci:secret')
    """
    value = value.strip()
    if len(value) > max_length:
        raise InvalidHookUrl(f"is too long (maximum is {max_length} characters)")
    if any(character.isspace() for character in value):
        raise InvalidHookUrl("must not contain spaces")
    try:
        url = httpx.URL(value)
        host, port = url.host, url.port
    except (httpx.InvalidURL, ValueError):
        raise InvalidHookUrl("is not a URL") from None
    if url.scheme not in ("http", "https"):
        raise InvalidHookUrl("must begin with http:// or https://")
    if not host or (port is not None and not 0 < port < 65536):
        raise InvalidHookUrl("must contain a host")
    if ":" not in host and _HOST_NAME.fullmatch(url.raw_host.decode("ascii")) is None:
        raise InvalidHookUrl("must contain a host name of letters, digits, dots, hyphens and underscores")
    credentials = f"{url.username}:{url.password}" if url.userinfo else None
    stripped = str(url.copy_with(username=None, password=None, fragment=None) if url.userinfo or url.fragment else url)
    if len(stripped) > max_length:
        raise InvalidHookUrl(f"is too long when it is escaped (maximum is {max_length} characters)")
    return HookUrl(stripped, credentials)


def port_of(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def is_public(address: str) -> bool:
    """Whether an IP address is public.

    >>> is_public("93.184.216.34"), is_public("169.254.169.254"), is_public("::ffff:10.0.0.1")
    (True, False, False)
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in NON_PUBLIC_IPV4)
    return parsed.scope_id is None and parsed in IPV6_PUBLIC and not any(parsed in network for network in NON_PUBLIC_IPV6)


class AddressGuard:
    """Resolves URLs to addresses that hooks are allowed to call."""

    def __init__(self, *, allow_local: bool = False, resolve: Resolver | None = None) -> None:
        self._allow_local = allow_local
        self._resolve = resolve or self._resolve_with_system
        self._names: NameResolver | None = None

    async def addresses(self, url: httpx.URL) -> list[str]:
        """Returns the addresses of the URL's host, best first. Raises ForbiddenAddress if any is not public, UnresolvableHost."""
        host = url.raw_host.decode("ascii").strip("[]")
        found = _ip_literal(host)
        if found is None:
            if _HOST_NAME.fullmatch(host) is None:
                raise UnresolvableHost(f"{host} is not a host name")
            try:
                found = await self._resolve(host, port_of(url))
            except (OSError, UnicodeError) as error:
                raise UnresolvableHost(f"{host} cannot be resolved") from error
        if not found:
            raise UnresolvableHost(f"{host} has no address")
        if not self._allow_local:
            for address in found:
                if not is_public(address):
                    raise ForbiddenAddress(f"{host} is at {address}, which is not a public address")
        return found

    async def check(self, url: httpx.URL, *, seconds: float) -> None:
        """Raises ForbiddenAddress if the host has an address that is not public.

        A name that does not resolve (yet) passes, because it is checked again before every delivery.
        """
        if self._allow_local:
            return
        with contextlib.suppress(UnresolvableHost, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.addresses(url)

    def close(self) -> None:
        if self._names is not None:
            self._names.close()

    async def _resolve_with_system(self, host: str, port: int) -> list[str]:
        if self._names is None:
            self._names = NameResolver()
        return await self._names.resolve(host, port)


def _ip_literal(host: str) -> list[str] | None:
    """Returns an IP address literal; None for a name. Unusual forms (`127.1`, `0x7f.1`) are names, which the system resolves."""
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        return None
