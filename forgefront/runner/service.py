"""What a runner says to the service, and what it hears: the operations of `runner.graphql`, tried again while the service is away."""

import asyncio
import platform
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import structlog

OPERATIONS = Path(__file__).with_name("runner.graphql")
WAIT_SECONDS = 20
"""How long the service is asked to wait for a build."""
ANSWER_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
AGAIN = frozenset((408, 429, 500, 502, 503, 504, 507))
PIECE = 2**18
"""Bytes of a file that are sent at once."""

log = structlog.get_logger("runner")


class Refused(Exception):
    """The service does not do it, now or later: a wrong token, or an address without a forge."""


class Gone(Exception):
    """The build is not this runner's any more: it was canceled, or given to another one."""


class Unreachable(Exception):
    """The service gave no answer for as long as it was worth trying."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What to keep of the work folder; `when` is ON_SUCCESS, ON_FAILURE or ALWAYS."""

    paths: tuple[str, ...]
    untracked: bool
    name: str
    when: str


@dataclass(frozen=True, slots=True)
class Job:
    """A build to run. `secrets` are values that no trace shows."""

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
    artifacts: Kept | None
    timeout_seconds: int
    lease_seconds: int
    trace_offset: int
    trace_limit: int


class Service:
    """The service at an address. `pause` is how long to wait after the first failure, in seconds."""

    def __init__(self, url: str, token: str, *, name: str = "", pause: float = FIRST_PAUSE) -> None:
        self._token = token
        self._pause = pause
        self._document = OPERATIONS.read_text(encoding="utf-8")
        self._about = {
            "name": name or "forgefront",
            "version": version("forgefront"),
            "platform": platform.system().lower(),
            "architecture": platform.machine(),
        }
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"), timeout=httpx.Timeout(ANSWER_SECONDS, connect=5.0), follow_redirects=False, trust_env=False
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def claim(self, wait_seconds: int = WAIT_SECONDS) -> Job | None:
        """A build to run; waits so long for one. Raises Refused, Unreachable."""
        payload = await self._call("Claim", {**self._about, "waitSeconds": wait_seconds}, self._token, tries_for=0.0)
        return _job(payload["build"]["databaseId"], payload["job"]) if payload["build"] else None

    async def say(self, job: Job, status: str, *, tries_for: float) -> None:
        """RUNNING, SUCCESS, FAILED, or PENDING to give the build back. Raises Gone, Unreachable after so many seconds."""
        await self._call("Report", {"databaseId": job.build_id, "status": status}, job.token, tries_for=tries_for)

    async def append(self, job: Job, text: str, offset: int, *, tries_for: float) -> None:
        """Adds to the trace; `offset` is its length so far in bytes. Raises Gone, Unreachable after so many seconds."""
        await self._call("Append", {"databaseId": job.build_id, "text": text, "offset": offset}, job.token, tries_for=tries_for)

    async def upload(self, job: Job, file: Path, filename: str, told: Callable[[int, int], None], *, tries_for: float) -> None:
        """Sends the artifact; `told` hears how many bytes of how many are sent. Raises Gone, Refused, Unreachable."""
        size = (await asyncio.to_thread(file.stat)).st_size
        given = {"databaseId": job.build_id, "filename": filename, "size": size}

        async def once() -> httpx.Response:
            # A new address each time, since one is good for one upload.
            payload = await self._call("Upload", given, job.token, tries_for=tries_for)
            where = payload["upload"]
            headers = {each["name"]: each["value"] for each in where["headers"]} | {"Content-Length": str(size)}
            timeout = httpx.Timeout(300.0, connect=5.0)
            return await self._http.request(
                where["method"], where["url"], headers=headers, content=_pieces(file, size, told), timeout=timeout
            )

        response = await self._again(once, tries_for)
        if response.status_code >= 300:
            raise Refused(f"The artifact was not taken: {response.status_code} {response.text[:200]}")

    async def _call(self, operation: str, given: dict[str, Any], token: str, *, tries_for: float) -> dict[str, Any]:
        body = {"query": self._document, "operationName": operation, "variables": {"input": given}}
        response = await self._again(lambda: self._http.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token}), tries_for)
        try:
            answer = response.json()
            errors, data = answer.get("errors") or [], answer.get("data")
        except (ValueError, AttributeError):
            raise Refused(f"There is no forge at {self._http.base_url}: it answers {response.status_code}.") from None
        if errors:
            code, message = errors[0].get("extensions", {}).get("code"), errors[0].get("message", "")
            if code in ("UNAUTHENTICATED", "NOT_FOUND", "FORBIDDEN") and token != self._token:
                raise Gone("The build is not this runner's any more.")
            if code == "UNAUTHENTICATED":
                raise Refused("The service does not know this token.")
            raise Refused(f"The service refused: {message}")
        ((_, payload),) = data.items()
        for error in payload["userErrors"]:
            if error["code"] in ("CONFLICT", "NOT_ALLOWED"):
                raise Gone(error["message"])
            raise Refused(f"{error['field'] or 'The service'}: {error['message']}")
        return payload  # type: ignore[no-any-return]

    async def _again(self, call: Callable[[], Any], tries_for: float) -> httpx.Response:
        """The answer of a call, which is tried again for so many seconds while the service is away or has too much to do."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + tries_for, self._pause
        while True:
            try:
                response: httpx.Response = await call()
                if response.status_code not in AGAIN:
                    return response
                why = f"it answers {response.status_code}"
                asked = response.headers.get("retry-after", "")
                wait = float(asked) if asked.isascii() and asked.isdigit() else pause
            except httpx.TransportError as error:
                why, wait = type(error).__name__, pause
            if loop.time() + wait >= until:
                raise Unreachable(f"The service cannot be reached: {why}.")
            log.warning("the service is away", why=why, again_in=round(wait, 1))
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - so that runners do not come back all at once
            pause = min(2 * pause, LONGEST_PAUSE)


async def _pieces(file: Path, size: int, told: Callable[[int, int], None]) -> AsyncIterator[bytes]:
    sent = 0
    opened = await asyncio.to_thread(file.open, "rb")
    try:
        while piece := await asyncio.to_thread(opened.read, PIECE):
            yield piece
            sent += len(piece)
            told(sent, size)
    finally:
        opened.close()


def _job(build_id: int, said: dict[str, Any]) -> Job:
    kept = said["artifacts"]
    variables = {each["key"]: each["value"] for each in said["variables"]}
    return Job(
        build_id=build_id,
        token=said["token"],
        name=said["name"],
        ref=said["ref"],
        sha=said["sha"],
        repository_url=said["repositoryUrl"],
        script=tuple(said["script"]),
        after_script=tuple(said["afterScript"]),
        variables=variables,
        secrets=frozenset(each["value"] for each in said["variables"] if not each["public"]) | {said["token"]},
        artifacts=Kept(tuple(kept["paths"]), kept["untracked"], kept["name"], kept["when"]) if kept else None,
        timeout_seconds=said["timeoutSeconds"],
        lease_seconds=said["leaseSeconds"],
        trace_offset=said["traceOffset"],
        trace_limit=said["traceLimit"],
    )
