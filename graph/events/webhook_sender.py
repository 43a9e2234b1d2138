"""Sends one webhook by POST: signed, with a time limit, to a checked address. The response body is never read."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ssl
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

import httpx

from graph.events.address_guard import AddressGuard, ForbiddenAddress, UnresolvableHost
from graph.http.response_headers import parse_retry_after

TIMEOUT_SECONDS = 10.0
"""Time limit of an attempt: name resolution, connection, TLS, request, and the headers of the response."""
USER_AGENT = f"Forgefront/{version('forgefront')}"
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of secrets
SYSTEM_HOOK = "System Hook"
MAX_ERROR_LENGTH = 255
MAX_ADDRESSES = 3


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """A message and its destination. `kind` is the `X-Gitlab-Event` header, and `token` the `X-Gitlab-Token` header.

    `credentials` is "user:password"; `secret` is `whsec_` followed by the base64 of a key.
    """

    url: str
    webhook_id: str
    body: bytes
    verify: bool = True
    credentials: str | None = None
    secret: str | None = None
    token: str | None = None
    kind: str = SYSTEM_HOOK


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of an attempt: `error` is None if the receiver accepted it. `retry_after` is its Retry-After in seconds."""

    code: int | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def is_ok(self) -> bool:
        return self.error is None

    @property
    def is_gone(self) -> bool:
        """Whether the receiver responded with 410 Gone."""
        return self.code == 410


class WebhookSender:
    """Sends messages. Connections are not reused, so the address is checked for each message."""

    def __init__(self, guard: AddressGuard) -> None:
        self.guard = guard
        self._transports: dict[bool, httpx.AsyncHTTPTransport] = {}

    async def send(self, message: WebhookMessage, moment: datetime, *, seconds: float = TIMEOUT_SECONDS) -> DeliveryResult:
        """Sends a message once. Raises only a cancellation; errors are in the result."""
        try:
            async with asyncio.timeout(seconds):
                return await self._send(message, moment)
        except TimeoutError:
            return DeliveryResult(error=f"no answer within {seconds:g} s")
        except (ForbiddenAddress, UnresolvableHost) as error:
            return DeliveryResult(error=_truncate(str(error)))
        except httpx.ConnectError as error:
            return DeliveryResult(error=_truncate(f"cannot connect: {error}"))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return DeliveryResult(error=_truncate(f"{type(error).__name__}: {error}"))

    async def close(self) -> None:
        self.guard.close()
        for transport in self._transports.values():
            await transport.aclose()
        self._transports.clear()

    async def _send(self, message: WebhookMessage, moment: datetime) -> DeliveryResult:
        url = httpx.URL(message.url)
        addresses = (await self.guard.addresses(url))[:MAX_ADDRESSES]
        headers = headers_of(message, url, moment)
        # The certificate is verified for the URL's host name, not for the address.
        extensions = {"sni_hostname": url.raw_host.decode("ascii").strip("[]")}
        transport = self._transport(message.verify and url.scheme == "https")
        for address in addresses:
            request = httpx.Request(
                "POST", url.copy_with(host=address, fragment=None), headers=headers, content=message.body, extensions=extensions
            )
            try:
                response = await transport.handle_async_request(request)
            except httpx.ConnectError:
                if address == addresses[-1]:
                    raise
                continue
            await response.aclose()
            return _make_result(response, moment)
        raise AssertionError("there is an address")

    def _transport(self, verify: bool) -> httpx.AsyncHTTPTransport:
        found = self._transports.get(verify)
        if found is None:
            # SSL_CERT_FILE and SSL_CERT_DIR may add certificate authorities. Proxies of the environment are not used.
            context = httpx.create_ssl_context() if verify else _unverified_ssl_context()
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            found = self._transports[verify] = httpx.AsyncHTTPTransport(verify=context, limits=limits, trust_env=False)
        return found


def headers_of(message: WebhookMessage, url: httpx.URL, moment: datetime) -> dict[str, str]:
    """Returns the headers of an attempt at this time."""
    timestamp = int(moment.timestamp())
    headers = {
        "Host": url.netloc.decode("ascii"),
        "Content-Type": "application/json",
        "Accept": "*/*",
        "User-Agent": USER_AGENT,
        "Connection": "close",
        "X-Gitlab-Event": message.kind,
        "webhook-id": message.webhook_id,
        "webhook-timestamp": str(timestamp),
    }
    if message.secret is not None:
        headers["webhook-signature"] = sign(message.secret, message.webhook_id, timestamp, message.body)
    if message.token is not None:
        headers["X-Gitlab-Token"] = message.token
    if message.credentials is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(message.credentials.encode()).decode()}"
    return headers


def sign(secret: str, webhook_id: str, timestamp: int, body: bytes) -> str:
    """Signs a message by <https://www.standardwebhooks.com>: HMAC-SHA256 over `ID.TIMESTAMP.BODY`, as `v1,BASE64`."""
    signed = b"%s.%d.%s" % (webhook_id.encode(), timestamp, body)
    return f"v1,{base64.b64encode(hmac.digest(parse_secret(secret), signed, hashlib.sha256)).decode()}"


def parse_secret(secret: str) -> bytes:
    """Returns the key of a secret. Raises ValueError unless it is `whsec_` followed by the base64 of 24 to 64 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True) if secret.startswith(SECRET_PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError(f"must be {SECRET_PREFIX} followed by the base64 of 24 to 64 bytes")
    return key


def _make_result(response: httpx.Response, moment: datetime) -> DeliveryResult:
    code = response.status_code
    if 200 <= code < 300:
        return DeliveryResult(code)
    error = f"answered {code}" + ("; redirects are not followed" if 300 <= code < 400 else "")
    return DeliveryResult(code, error, parse_retry_after(response.headers.get("retry-after"), moment))


def _unverified_ssl_context() -> ssl.SSLContext:
    """Returns the TLS context for hooks without `enable_ssl_verification`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 1] + "…"
