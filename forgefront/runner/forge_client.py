"""The runner's client of the service: the operations of `runner.graphql`, retried while the service is unavailable."""

import asyncio
import platform
import random
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import structlog

from graph.http.response_headers import parse_retry_after

OPERATIONS_FILE = Path(__file__).with_name("runner.graphql")
CLAIM_WAIT_SECONDS = 20
"""Seconds that the service waits for a build before it responds."""
RESPONSE_TIMEOUT_SECONDS = 30.0
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 10.0
RETRYABLE_STATUSES = frozenset((408, 429, 500, 502, 503, 504, 507))
RETRYABLE_CODES = frozenset(("UNAVAILABLE", "LIMIT_EXCEEDED", "INTERNAL"))
"""Codes of errors that say nothing about the request, such as that of an operation that took too long; many have the status 200."""
UNPARSED_TIMEOUT_SECONDS, UNPARSED_TRACE_BYTES = 60, 2**20
"""Limits of a build that cannot be parsed: it only reports why."""
CHUNK_BYTES = 2**18
"""Bytes of a file that are sent at once."""

log = structlog.get_logger("runner")


class RequestRejected(Exception):
    """The service rejects the request permanently: a wrong token, or an address without a forge."""


class BuildRevoked(Exception):
    """The build was canceled, or assigned to another runner."""


class ServiceUnreachable(Exception):
    """The service did not respond within the time limit of the request."""


class _OperationFailed(Exception):
    """An operation ended with one of RETRYABLE_CODES."""


@dataclass(frozen=True, slots=True)
class ArtifactRules:
    """The artifact of a build; `when` is ON_SUCCESS, ON_FAILURE or ALWAYS."""

    paths: tuple[str, ...]
    includes_untracked: bool
    name: str
    when: str


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The files of a build that are kept for later builds; `key` is None without one."""

    key: str | None
    paths: tuple[str, ...]
    includes_untracked: bool


@dataclass(frozen=True, slots=True)
class EarlierArtifact:
    """The artifact of a build in an earlier stage."""

    build_id: int
    build_name: str
    size: int


@dataclass(frozen=True, slots=True)
class ClaimedBuild:
    """A build to run. `secrets` are values that are masked in the trace; `dependencies` the artifacts that it needs.

    `problem` says why the runner cannot run the build, whose other fields are then empty; the build fails with it.
    """

    build_id: int
    token: str
    name: str
    ref: str
    sha: str
    repository_url: str
    script: tuple[str, ...]
    after_script: tuple[str, ...]
    variables: dict[str, str]
    secrets: frozenset[str]
    artifacts: ArtifactRules | None
    timeout_seconds: int
    lease_seconds: int
    trace_offset: int
    trace_limit: int
    image: str | None = None
    services: tuple[str, ...] = ()
    cache: CacheRules | None = None
    dependencies: tuple[EarlierArtifact, ...] = ()
    problem: str = ""


class ForgeClient:
    """The service at an address. `min_retry_seconds` is the delay after the first failure."""

    def __init__(self, url: str, token: str, *, name: str = "", min_retry_seconds: float = MIN_RETRY_SECONDS) -> None:
        self._token = token
        self._min_retry_seconds = min_retry_seconds
        self._document = OPERATIONS_FILE.read_text(encoding="utf-8")
        self._runner_info = {
            "name": name or "forgefront",
            "version": version("forgefront"),
            "platform": platform.system().lower(),
            "architecture": platform.machine(),
        }
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            timeout=httpx.Timeout(RESPONSE_TIMEOUT_SECONDS, connect=5.0),
            follow_redirects=False,
            # The authorities of the system, as git uses them, or those of SSL_CERT_FILE and SSL_CERT_DIR.
            verify=ssl.create_default_context(),
            # Proxies and .netrc of the environment would receive the token.
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def claim(self, wait_seconds: int = CLAIM_WAIT_SECONDS) -> ClaimedBuild | None:
        """A build to run; waits up to the given seconds for one. Raises RequestRejected, ServiceUnreachable."""
        payload = await self._call("Claim", {**self._runner_info, "waitSeconds": wait_seconds}, self._token, retry_seconds=0.0)
        return parse_build(payload["build"]["databaseId"], payload["job"]) if payload["build"] else None

    async def report_status(self, job: ClaimedBuild, status: str, *, retry_seconds: float, failure_reason: str | None = None) -> None:
        """Sets RUNNING, SUCCESS, FAILED, or PENDING to return the build to the queue. Raises BuildRevoked, ServiceUnreachable after the
        given seconds."""
        report = {"databaseId": job.build_id, "status": status, **({"failureReason": failure_reason} if failure_reason else {})}
        await self._call("Report", report, job.token, retry_seconds=retry_seconds)

    async def append_trace(self, job: ClaimedBuild, text: str, offset: int, *, retry_seconds: float) -> None:
        """Appends to the trace; `offset` is its length so far in bytes. Raises BuildRevoked, ServiceUnreachable after the given seconds."""
        await self._call("Append", {"databaseId": job.build_id, "text": text, "offset": offset}, job.token, retry_seconds=retry_seconds)

    async def upload_artifact(
        self, job: ClaimedBuild, file: Path, filename: str, on_progress: Callable[[int, int], None], *, retry_seconds: float
    ) -> None:
        """Uploads the artifact; `on_progress` takes the bytes sent and the total bytes.

        Raises BuildRevoked, RequestRejected, ServiceUnreachable.
        """
        size = (await asyncio.to_thread(file.stat)).st_size
        upload_input = {"databaseId": job.build_id, "filename": filename, "size": size}

        async def upload_once() -> httpx.Response:
            # A new URL for each attempt, since one is valid for one upload.
            payload = await self._call("Upload", upload_input, job.token, retry_seconds=retry_seconds)
            where = payload["upload"]
            headers = {each["name"]: each["value"] for each in where["headers"]} | {"Content-Length": str(size)}
            timeout = httpx.Timeout(300.0, connect=5.0)
            return await self._http.request(
                where["method"], where["url"], headers=headers, content=_read_chunks(file, size, on_progress), timeout=timeout
            )

        response = await self._retry(upload_once, retry_seconds)
        if response.status_code >= 300:
            raise RequestRejected(f"The service rejected the artifact: {response.status_code} {response.text[:200]}")

    async def download_artifact(self, job: ClaimedBuild, artifact: EarlierArtifact, target: Path, *, retry_seconds: float) -> None:
        """Writes the artifact of an earlier build into a file; writes no more than its declared size.

        Raises BuildRevoked, RequestRejected, ServiceUnreachable, OSError.
        """
        path, headers = f"/ci/api/v1/builds/{artifact.build_id}/artifacts", {"BUILD-TOKEN": job.token}

        async def download_once() -> httpx.Response:
            async with self._http.stream("GET", path, headers=headers) as response:
                if response.status_code == 200:
                    with target.open("wb") as file:
                        async for chunk in response.aiter_bytes(CHUNK_BYTES):
                            if file.tell() + len(chunk) > artifact.size:
                                raise RequestRejected(f"The artifact of {artifact.build_name} is larger than the service declared.")
                            await asyncio.to_thread(file.write, chunk)
                return response

        response = await self._retry(download_once, retry_seconds)
        if response.status_code == 403:
            raise BuildRevoked("The build is no longer assigned to this runner.")
        if response.status_code != 200:
            raise RequestRejected(f"The artifact of {artifact.build_name} cannot be downloaded: {response.status_code}.")

    async def _call(self, operation: str, input_values: dict[str, Any], token: str, *, retry_seconds: float) -> dict[str, Any]:
        body = {"query": self._document, "operationName": operation, "variables": {"input": input_values}}

        errors: list[dict[str, Any]] = []
        data: dict[str, Any] = {}

        async def post_once() -> httpx.Response:
            nonlocal errors, data
            response = await self._http.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token})
            if response.status_code not in RETRYABLE_STATUSES:
                errors, data = self._parse_answer(response)
                if errors:
                    code, message = _describe_error(errors[0])
                    if code in RETRYABLE_CODES:
                        raise _OperationFailed(message.rstrip("."))
            return response

        await self._retry(post_once, retry_seconds)
        if errors:
            code, message = _describe_error(errors[0])
            if code in ("UNAUTHENTICATED", "NOT_FOUND", "FORBIDDEN") and token != self._token:
                raise BuildRevoked("The build is no longer assigned to this runner.")
            if code == "UNAUTHENTICATED":
                raise RequestRejected("The service does not know this token.")
            raise RequestRejected(f"The service rejected the request: {message}")
        (payload,) = data.values()
        for error in payload["userErrors"]:
            if error["code"] in ("CONFLICT", "NOT_ALLOWED"):
                raise BuildRevoked(error["message"])
            raise RequestRejected(f"{error['field'] or 'The service'}: {error['message']}")
        return payload  # type: ignore[no-any-return]

    def _parse_answer(self, response: httpx.Response) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The errors and the data of a response, which has one of them. Raises RequestRejected."""
        try:
            answer = response.json()
        except ValueError:
            answer = None
        errors, data = (answer.get("errors") or [], answer.get("data")) if isinstance(answer, dict) else ([], None)
        if isinstance(errors, list) and errors and all(isinstance(error, dict) for error in errors):
            return errors, {}
        if not errors and isinstance(data, dict) and [type(payload) for payload in data.values()] == [dict]:
            return [], data
        raise RequestRejected(f"{self._http.base_url} is not a Forgefront service: it responds with {response.status_code}.")

    async def _retry(self, call: Callable[[], Any], retry_seconds: float) -> httpx.Response:
        """The response of a call, which is retried for the given seconds while the service is unavailable or overloaded."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + retry_seconds, self._min_retry_seconds
        while True:
            try:
                response: httpx.Response = await call()
                if response.status_code not in RETRYABLE_STATUSES:
                    return response
                reason = f"it responds with {response.status_code}"
                retry_after = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
                # A result is better reported against the will of a proxy than not at all.
                is_in_time = retry_after is not None and loop.time() + retry_after < deadline
                wait = max(retry_after or 0.0, self._min_retry_seconds) if is_in_time else pause
            except httpx.RequestError as error:
                # Besides failures of the connection, a response whose compression is damaged.
                reason, wait = _describe_failure(error), pause
            except _OperationFailed as error:
                reason, wait = str(error), pause
            if loop.time() + wait >= deadline:
                raise ServiceUnreachable(f"The service cannot be reached: {reason}.")
            log.warning("service unavailable", why=reason, again_in=round(wait, 1))
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - so that runners do not retry at the same time
            pause = min(2 * pause, MAX_RETRY_SECONDS)


async def _read_chunks(file: Path, size: int, on_progress: Callable[[int, int], None]) -> AsyncIterator[bytes]:
    sent = 0
    opened = await asyncio.to_thread(file.open, "rb")
    try:
        while chunk := await asyncio.to_thread(opened.read, CHUNK_BYTES):
            yield chunk
            sent += len(chunk)
            on_progress(sent, size)
    finally:
        opened.close()


def _describe_error(error: dict[str, Any]) -> tuple[str | None, str]:
    """The code and the message of an entry of `errors`. Other services have other extensions."""
    extensions = error.get("extensions")
    return extensions.get("code") if isinstance(extensions, dict) else None, str(error.get("message", ""))


def _describe_failure(error: httpx.RequestError) -> str:
    reason = type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        reason = f"{error}; set SSL_CERT_FILE to the authority that issued its certificate"
    return reason


def parse_build(build_id: int, payload: Any) -> ClaimedBuild:
    """The build that a service describes. One that this runner cannot parse has a `problem`, which is reported to the service.

    Raises ServiceUnreachable if it has not even a token.
    """
    try:
        return _parse_build(build_id, payload)
    except Exception as error:
        log.error("build cannot be parsed", build=build_id, exc_info=error)
        token = payload.get("token") if isinstance(payload, dict) else None
        if not isinstance(token, str):
            raise ServiceUnreachable(f"The service assigned build {build_id} without a token.") from error
        name, offset, lease_seconds = (payload.get(key) for key in ("name", "traceOffset", "leaseSeconds"))
        return ClaimedBuild(
            build_id=build_id,
            token=token,
            name=name if isinstance(name, str) else "",
            ref="",
            sha="",
            repository_url="",
            script=(),
            after_script=(),
            variables={},
            secrets=frozenset((token,)),
            artifacts=None,
            timeout_seconds=UNPARSED_TIMEOUT_SECONDS,
            lease_seconds=lease_seconds if isinstance(lease_seconds, int) else UNPARSED_TIMEOUT_SECONDS,
            trace_offset=offset if isinstance(offset, int) else 0,
            trace_limit=UNPARSED_TRACE_BYTES,
            problem=f"The runner cannot parse the build: {type(error).__name__}: {error}",
        )


def _parse_build(build_id: int, payload: dict[str, Any]) -> ClaimedBuild:
    artifact_rules, cache_rules = payload["artifacts"], payload["cache"]
    variables = {each["key"]: each["value"] for each in payload["variables"]}
    for text in (payload["token"], payload["repositoryUrl"], *payload["script"], *payload["afterScript"], *variables, *variables.values()):
        if not isinstance(text, str):
            raise TypeError(f"{type(text).__name__} instead of a string")
    return ClaimedBuild(
        build_id=build_id,
        token=payload["token"],
        name=payload["name"],
        ref=payload["ref"],
        sha=payload["sha"],
        repository_url=payload["repositoryUrl"],
        script=tuple(payload["script"]),
        after_script=tuple(payload["afterScript"]),
        variables=variables,
        secrets=frozenset(each["value"] for each in payload["variables"] if not each["public"]) | {payload["token"]},
        artifacts=ArtifactRules(tuple(artifact_rules["paths"]), artifact_rules["untracked"], artifact_rules["name"], artifact_rules["when"])
        if artifact_rules
        else None,
        timeout_seconds=payload["timeoutSeconds"],
        lease_seconds=payload["leaseSeconds"],
        trace_offset=payload["traceOffset"],
        trace_limit=payload["traceLimit"],
        image=payload["image"],
        services=tuple(payload["services"]),
        cache=CacheRules(cache_rules["key"], tuple(cache_rules["paths"] or ()), cache_rules["untracked"] or False) if cache_rules else None,
        dependencies=tuple(_parse_dependencies(payload)),
    )


def _parse_dependencies(payload: dict[str, Any]) -> Iterator[EarlierArtifact]:
    """The artifacts that the build downloads: those of all earlier builds, unless it names some."""
    names = payload["dependencies"]
    for build in payload["dependsOn"]:
        if build["artifact"] is not None and (names is None or build["name"] in names):
            yield EarlierArtifact(build["databaseId"], build["name"], build["artifact"]["size"])
