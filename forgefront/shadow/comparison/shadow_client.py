"""Sends copies of requests to the shadow server."""

import asyncio
import ssl
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from time import perf_counter
from urllib.parse import quote

import httpx

from forgefront.shadow.exchanges import Exchange
from forgefront.shadow.settings import ShadowSettings

CONNECT_SECONDS = 5.0
ASCII = "".join(map(chr, range(128)))
LEFT_OUT = frozenset(
    (
        # Those of the connection and the framing.
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding",
        "upgrade",
        # The servers have different entity tags, so one could answer 304 and the other not.
        "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShadowAnswer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    seconds: float


class NoShadowAnswerError(Exception):
    """There is no answer to compare; the message is the reason to count."""


class ShadowClient:
    """Keeps nothing of an answer: no cookies, no redirects, no connection with the name of a user."""

    def __init__(self, settings: ShadowSettings) -> None:
        self._settings = settings
        self._address = settings.secondary
        self._client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=settings.copies_at_once, max_keepalive_connections=settings.copies_at_once),
            follow_redirects=False,
            trust_env=False,
            # The authorities of the system, or those of SSL_CERT_FILE, as for the server that answers.
            verify=ssl.create_default_context() if settings.secondary.is_tls else False,
        )
        # Cookies of clients are neither kept in memory nor sent with the requests of others.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, exchange: Exchange, target: str, body: bytes) -> ShadowAnswer:
        """Sends a copy. Raises NoShadowAnswerError."""
        began = perf_counter()
        try:
            async with asyncio.timeout(self._settings.copy_seconds):
                response = await self._client.send(self._build_request(exchange, target, body), stream=True)
                try:
                    content = await self._read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise NoShadowAnswerError("shadow server: too slow") from None
        except httpx.ConnectError as error:
            is_certificate = "CERTIFICATE_VERIFY_FAILED" in str(error)
            raise NoShadowAnswerError(f"shadow server: {'certificate not accepted' if is_certificate else 'no connection'}") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, UnicodeError) as error:
            raise NoShadowAnswerError(f"shadow server: {type(error).__name__}") from None
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
        return ShadowAnswer(response.status_code, headers, content, perf_counter() - began)

    def _build_request(self, exchange: Exchange, target: str, body: bytes) -> httpx.Request:
        host = next((value for name, value in exchange.request_headers if name.lower() == "host"), "")
        if self._settings.rewrites_host or not host:
            host = self._address.host_header
        headers = [(name, value) for name, value in exchange.request_headers if name.lower() not in LEFT_OUT]
        headers += [("Host", host), ("Accept-Encoding", "identity")]
        if body or exchange.method in ("POST", "PUT", "PATCH"):
            headers.append(("Content-Length", str(len(body))))
        seconds = self._settings.copy_seconds
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        return httpx.Request(
            exchange.method,
            str(self._address),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            content=body or None,
            # The target as the client sent it: httpx would change some characters of a URL. h11 sends no bytes beyond ASCII.
            extensions={"timeout": timeout.as_dict(), "target": quote(target, safe=ASCII, encoding="latin-1").encode()},
        )

    async def _read(self, response: httpx.Response) -> bytes:
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            raise NoShadowAnswerError("shadow server: stream of events")
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > self._settings.max_body:
                raise NoShadowAnswerError("shadow server: body over the limit")
        return bytes(content)
