"""HTTP client of the instance that is imported: bounded rate and concurrency, retries, bounded answers, guarded pagination.

The token is sent in the header PRIVATE-TOKEN, to the host of the instance alone. It is in no message.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import httpx

from forgefront.importing.source_errors import (
    SourceError,
    SourceFailed,
    SourceForbidden,
    SourceMalformed,
    SourceMissing,
    SourceTooLarge,
    SourceUnauthorized,
    SourceUnreachable,
)
from forgefront.importing.source_pages import PAGE_SIZE, SourcePage, next_page_number, parse_json, parse_page, type_name
from graph.http.response_headers import parse_date, parse_retry_after

TOKEN_HEADER = "PRIVATE-TOKEN"  # noqa: S105 - the name of a header
MAX_PAGES = 100_000
MAX_JSON_BYTES = 32 * 2**20
MAX_FILE_BYTES = 2 * 2**30
TIMEOUT = httpx.Timeout(60, connect=15)
MAX_ATTEMPTS = 5
"""Attempts of a request that is answered by 5xx."""
MAX_CONNECTION_ATTEMPTS = 8
MAX_FIRST_CONNECTION_ATTEMPTS = 2
"""Attempts while nothing was answered in this run: the address is probably wrong, or the instance is down."""
MAX_THROTTLED_ATTEMPTS = 30
"""Attempts of a request that is answered by 429, or by 503 with Retry-After while no other is answered."""
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 600.0
USER_AGENT = "forgefront-import"
INVALID_URL_ERRORS = (httpx.InvalidURL, ValueError)
"""What httpx raises for a URL that it cannot send, as one with control characters, or a host that is no domain."""

Params = Mapping[str, Any]


@dataclass
class SourceClient:
    """Reads from one instance. `url` is its address, without `/api`; close it with `aclose`."""

    url: str
    token: str = field(repr=False)
    requests_per_second: float = 20.0
    parallel: int = 4
    transport: httpx.AsyncBaseTransport | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    requests: int = 0
    retries: int = 0
    started_at: datetime | None = None
    """When the first request was answered, by the clock of the instance; None if it does not say."""

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")
        self._origin = _origin_of(httpx.URL(self.url))
        self._slots = asyncio.Semaphore(self.parallel)
        self._next_start = 0.0
        self._answered = 0
        # The authorities of the system, as git uses them, or those of SSL_CERT_FILE and SSL_CERT_DIR.
        verify = ssl.create_default_context()
        # Each with one connection: a pool of several checks the sockets of all of them for each request.
        self._clients = [self._open_client(verify) for _ in range(self.parallel)]
        self._idle = list(self._clients)

    def _open_client(self, verify: ssl.SSLContext) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self.transport,
            verify=verify,
            timeout=TIMEOUT,
            follow_redirects=False,
            headers={TOKEN_HEADER: self.token, "User-Agent": USER_AGENT, "Accept": "application/json"},
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            # Proxies and .netrc of the environment would receive the token.
            trust_env=False,
        )

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def get(self, path: str, params: Params | None = None) -> Any:
        """The JSON value at `path`. Raises SourceError."""
        async with self._request(path, params) as response:
            return await self._read_json(path, response)

    async def get_object(self, path: str, params: Params | None = None) -> dict[str, Any]:
        """The JSON object at `path`. Raises SourceError."""
        value = await self.get(path, params)
        if not isinstance(value, dict):
            raise SourceMalformed(path, f"the answer is {type_name(value)}, not an object")
        return value

    async def get_text(self, path: str, params: Params | None = None, *, max_bytes: int = MAX_JSON_BYTES) -> bytes:
        """The bytes at `path`. Raises SourceError."""
        async with self._request(path, params) as response:
            return await _read_bounded(path, response, max_bytes)

    async def get_once(self, address: str, headers: Mapping[str, str], *, max_bytes: int) -> tuple[httpx.Headers, bytes] | None:
        """The headers and bytes at a URL of the instance; None unless the only attempt succeeds. Raises SourceMissing for status 404."""
        async with self._slots:
            client = self._idle.pop()
            try:
                await self._wait_for_start()
                self.requests += 1
                async with client.stream("GET", address, headers=dict(headers)) as response:
                    if response.status_code == httpx.codes.NOT_FOUND:
                        raise SourceMissing(address, "status 404")
                    if response.status_code != httpx.codes.OK:
                        return None
                    return response.headers, await _read_bounded(address, response, max_bytes)
            except (httpx.HTTPError, *INVALID_URL_ERRORS, SourceTooLarge):
                return None
            finally:
                self._idle.append(client)

    async def stream(self, path: str, *, max_bytes: int = MAX_FILE_BYTES) -> AsyncGenerator[bytes, None]:
        """The bytes at `path`, block by block. Raises SourceError."""
        async with self._request(path, None) as response:
            size = 0
            async for block in response.aiter_bytes():
                size += len(block)
                if size > max_bytes:
                    raise SourceTooLarge(path, f"the file is larger than {max_bytes:,} bytes")
                yield block

    async def pages(self, path: str, params: Params | None = None) -> AsyncGenerator[SourcePage, None]:
        """The pages of a collection, by `Link`, `X-Next-Page`, or number. Raises SourceError.

        Without headers, pages are requested by number until one is short. A page that was there before ends with SourceMalformed, unless
        the instance sends no headers: it then has answered the whole list to each number.
        """
        number, digests, link = 1, set[bytes](), None
        for _ in range(MAX_PAGES):
            query = {**(params or {}), "page": number, "per_page": PAGE_SIZE}
            async with self._request(link or path, None if link else query) as response:
                body = await _read_bounded(path, response, MAX_JSON_BYTES)
                headers = response.headers
            page = parse_page(path, body, headers)
            digest = blake2b(body, digest_size=16).digest()
            has_headers = "x-next-page" in headers or "link" in headers
            if digest in digests and (page.entries or page.malformed):
                if not has_headers:
                    return
                raise SourceMalformed(path, f"page {number} repeats an earlier page")
            digests.add(digest)
            yield page
            link = self._next_link(path, headers)
            if link is None:
                following = next_page_number(headers, number, len(page.entries) + page.malformed)
                if following is None:
                    return
                if following <= number:
                    raise SourceMalformed(path, f"the page after {number} is {following}")
                number = following
            else:
                number += 1
        raise SourceMalformed(path, f"there are more than {MAX_PAGES:,} pages")

    async def entries_oldest_first(
        self,
        path: str,
        is_known: Callable[[dict[str, Any]], bool] | None = None,
        has_changed: Callable[[dict[str, Any]], bool] = lambda entry: False,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The entries of a collection that is listed newest first, in reverse, without the first known one and all older ones.

        Of the page with the first known one, entries that have changed are included. Where the instance reports the total, pages are read
        from the last to the first, so that not all entries are in memory. An entry that is added meanwhile moves others to a later page,
        so that they occur twice. Raises SourceError.
        """
        last, total, collected, is_read = 0, None, list[dict[str, Any]](), False
        async for page in self.pages(path):
            last, total, is_read = last + 1, page.total, True
            known = next((index for index, entry in enumerate(page.entries) if is_known(entry)), None) if is_known else None
            collected = [*(collected if total is None else []), *page.entries[:known]]
            if known is not None:
                collected += filter(has_changed, page.entries[known:])
                break
            if is_known is None and total is not None and total > PAGE_SIZE:
                last, is_read = -(-total // PAGE_SIZE), False
                break
        for number in range(last, 0, -1) if total is not None else ():
            if not is_read:
                async with self._request(path, {"page": number, "per_page": PAGE_SIZE}) as response:
                    body = await _read_bounded(path, response, MAX_JSON_BYTES)
                    collected = parse_page(path, body, response.headers).entries
            for entry in reversed(collected):
                yield entry
            collected, is_read = [], False
        for entry in reversed(collected):
            yield entry

    async def read_all(self, path: str) -> AsyncGenerator[dict[str, Any], None]:
        """The entries of a collection, one by one. Raises SourceError."""
        async for page in self.pages(path):
            for entry in page.entries:
                yield entry

    def _next_link(self, path: str, headers: httpx.Headers) -> str | None:
        """The address of the next page, only where no number says it. A link to another host is not followed."""
        if headers.get("x-next-page") is not None or "link" not in headers:
            return None
        for link in httpx.Response(200, headers={"link": headers["link"]}).links.values():
            if link.get("rel") == "next" and (target := link.get("url")):
                try:
                    url = httpx.URL(self.url).join(target)
                    origin = _origin_of(url)
                except INVALID_URL_ERRORS:
                    raise SourceMalformed(path, "the link to the next page is not a URL") from None
                if origin != self._origin:
                    raise SourceMalformed(path, "the link to the next page leads to another host")
                return str(url)
        return None

    @asynccontextmanager
    async def _request(self, path: str, params: Params | None) -> AsyncIterator[httpx.Response]:
        """A successful response, whose body is not read yet. Raises SourceError."""
        address = path if path.startswith(("http://", "https://")) else f"{self.url}{path}"
        shown = address.removeprefix(self.url)
        async with self._slots:
            client = self._idle.pop()
            try:
                response = await self._send(client, address, shown, params)
                try:
                    yield response
                except httpx.HTTPError as error:
                    raise SourceFailed(shown, f"the answer broke off ({type(error).__name__})") from None
                finally:
                    await response.aclose()
            finally:
                self._idle.append(client)

    async def _send(self, client: httpx.AsyncClient, address: str, shown: str, params: Params | None) -> httpx.Response:
        failures = connection_failures = throttled = 0
        others = self._answered
        try:
            request = client.build_request("GET", address, params=params)
        except INVALID_URL_ERRORS as error:
            # Some paths have names that the instance answered.
            raise SourceMalformed(shown, f"this is not a URL: {error}") from None
        while True:
            await self._wait_for_start()
            self.requests += 1
            try:
                response = await client.send(request, stream=True)
            except httpx.TransportError as error:
                connection_failures += 1
                if connection_failures >= (MAX_CONNECTION_ATTEMPTS if self._answered else MAX_FIRST_CONNECTION_ATTEMPTS):
                    raise SourceUnreachable(shown, f"{self.url} cannot be reached: {self._describe_failure(error)}") from None
                await self._back_off(connection_failures)
                continue
            status = response.status_code
            if response.is_success:
                if not self._answered:
                    self.started_at = parse_date(response.headers.get("date", ""))
                self._answered += 1
                return response
            retry_after = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
            await response.aclose()
            if status == 429:
                throttled += 1
                if throttled >= MAX_THROTTLED_ATTEMPTS:
                    raise SourceFailed(shown, f"status {status} after {throttled} attempts")
                await self._pause(retry_after, throttled)
            elif status >= 500:
                failures += 1
                # While nothing is answered the instance may restart, and has said for how long; otherwise this request alone fails.
                is_down = status == 503 and retry_after is not None and self._answered == others
                if failures >= (MAX_THROTTLED_ATTEMPTS if is_down else MAX_ATTEMPTS):
                    raise SourceFailed(shown, f"status {status} after {failures} attempts")
                await self._back_off(failures, retry_after if status == 503 else None)
            else:
                self._answered += 1
                raise _error_of(status, shown, response.headers)

    def _describe_failure(self, error: httpx.TransportError) -> str:
        reason = (str(error) or type(error).__name__).replace(self.token, "***")
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            reason += "; set SSL_CERT_FILE to the authority that issued its certificate"
        return reason

    async def _wait_for_start(self) -> None:
        """Waits until the next request may start: starts are evenly spaced, also after a pause."""
        now = self.clock()
        start = max(now, self._next_start)
        self._next_start = start + 1 / self.requests_per_second
        if start > now:
            await self.sleep(start - now)

    async def _pause(self, retry_after: float | None, attempt: int) -> None:
        """No request starts before the time that the instance named."""
        self.retries += 1
        if retry_after is None:
            await self.sleep(_backoff_seconds(attempt))
            return
        self._next_start = max(self._next_start, self.clock() + min(retry_after, MAX_RETRY_AFTER_SECONDS))

    async def _back_off(self, attempt: int, retry_after: float | None = None) -> None:
        self.retries += 1
        await self.sleep(_backoff_seconds(attempt) if retry_after is None else min(retry_after, MAX_RETRY_AFTER_SECONDS))

    async def _read_json(self, path: str, response: httpx.Response) -> Any:
        return parse_json(path, await _read_bounded(path, response, MAX_JSON_BYTES))


def _backoff_seconds(attempt: int) -> float:
    """Doubles with each attempt, with full jitter above the half."""
    seconds: float = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** (attempt - 1))
    return seconds * random.uniform(0.5, 1)  # noqa: S311 - not for secrets


def _error_of(status: int, path: str, headers: httpx.Headers) -> SourceError:
    if status == 401:
        return SourceUnauthorized(path, "status 401: the token is not valid")
    if status == 403:
        return SourceForbidden(path, "status 403: the token lacks the right, or the feature is switched off")
    if status in (404, 405, 410):
        return SourceMissing(path, f"status {status}")
    if status in (301, 302, 303, 307, 308):
        return SourceFailed(path, f"status {status}: redirected to {headers.get('location', 'nowhere')}; name that address instead")
    return SourceFailed(path, f"status {status}")


async def _read_bounded(path: str, response: httpx.Response, max_bytes: int) -> bytes:
    blocks, size = [], 0
    async for block in response.aiter_bytes():
        size += len(block)
        if size > max_bytes:
            raise SourceTooLarge(path, f"the answer is larger than {max_bytes:,} bytes")
        blocks.append(block)
    return b"".join(blocks)


def _origin_of(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
