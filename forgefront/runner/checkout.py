"""Checks out the commit of a build: as a new clone, from a copy that the runner keeps, or not at all.

Git runs outside of the sandbox, before any script of the build has run, in a folder that no build has written. Only git's environment
contains the token.
"""

import asyncio
import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from forgefront.runner.executors.executor import Workspace
from forgefront.runner.executors.processes import run_process
from forgefront.runner.forge_client import ClaimedBuild
from forgefront.runner.mirrors import MirrorStore
from forgefront.runner.scripts import build_environment, runner_path
from forgefront.runner.trace_buffer import TraceBuffer
from storage.git.subprocesses import git_command

STRATEGIES = ("fetch", "clone", "none")
SUBMODULE_STRATEGIES = ("none", "normal", "recursive")
MAX_DEPTH = 1_000_000


class CheckoutFailed(Exception):
    """The code cannot be fetched; the message is for the trace."""


@dataclass(frozen=True, slots=True)
class CheckoutOptions:
    """GIT_STRATEGY, GIT_DEPTH and GIT_SUBMODULE_STRATEGY of a build."""

    strategy: str = "fetch"
    depth: int | None = None
    submodules: str = "none"

    @classmethod
    def parse(cls, variables: Mapping[str, str]) -> "CheckoutOptions":
        """Raises CheckoutFailed."""
        strategy = variables.get("GIT_STRATEGY") or "fetch"
        submodules = variables.get("GIT_SUBMODULE_STRATEGY") or "none"
        depth = variables.get("GIT_DEPTH") or "0"
        if strategy not in STRATEGIES:
            raise CheckoutFailed(f"GIT_STRATEGY is {strategy!r}; it can be {', '.join(STRATEGIES)}.")
        if submodules not in SUBMODULE_STRATEGIES:
            raise CheckoutFailed(f"GIT_SUBMODULE_STRATEGY is {submodules!r}; it can be {', '.join(SUBMODULE_STRATEGIES)}.")
        if not depth.isascii() or not depth.isdigit() or len(depth) > len(str(MAX_DEPTH)):
            raise CheckoutFailed(f"GIT_DEPTH is {depth!r}; it can be a number of commits, or 0 for all.")
        return cls(strategy, int(depth) or None, submodules)

    @property
    def uses_mirror(self) -> bool:
        """Whether objects are read from a copy; a shallow clone has few of its own."""
        return self.strategy == "fetch" and self.depth is None


class Checkout:
    """The checkout of one build. `run` does all of it."""

    def __init__(
        self,
        job: ClaimedBuild,
        options: CheckoutOptions,
        workspace: Workspace,
        mirrors: MirrorStore,
        trace: TraceBuffer,
        stop: asyncio.Event,
    ) -> None:
        self._job = job
        self._options = options
        self._workspace = workspace
        self._mirrors = mirrors
        self._trace = trace
        self._stop = stop
        self._environment = _git_environment(job, workspace)

    async def run(self, mirror_path: str) -> None:
        """Checks out the commit. `mirror_path` is where scripts find the copy. Raises CheckoutFailed."""
        job, code, mirror = self._job, self._workspace.code, self._workspace.mirror
        if self._options.strategy == "none":
            self._trace.write_line("Fetching no code, as GIT_STRATEGY says …")
            return
        self._trace.write_line(f"Fetching {job.repository_url} …")
        is_ready = await self._git(code, "init", "--quiet") and await self._git(code, "remote", "add", "origin", job.repository_url)
        is_ready = is_ready and (await self._fetch_from_mirror(mirror) if mirror else await self._fetch(code))
        if not is_ready or not (await self._check_out_commit() or (mirror and await self._check_out_without(mirror))):
            raise CheckoutFailed("The commit cannot be fetched.")
        if mirror and "GIT_ALTERNATE_OBJECT_DIRECTORIES" in self._environment:
            # Written at the end, since git itself runs outside of the sandbox.
            await asyncio.to_thread((code / ".git/objects/info/alternates").write_text, f"{mirror_path}/objects\n")
        if self._options.submodules != "none":
            await self._update_submodules()

    async def _check_out_commit(self) -> bool:
        return await self._git(self._workspace.code, "checkout", "--quiet", "--force", "--detach", self._job.sha)

    async def _check_out_without(self, mirror: Path) -> bool:
        """Discards a copy that has the commit but lacks other objects, as after a power failure, and fetches everything."""
        if self._environment.pop("GIT_ALTERNATE_OBJECT_DIRECTORIES", None) is None or self._stop.is_set():
            return False
        self._trace.write_line("The runner's copy is damaged. Cloning …")
        self._mirrors.discard(mirror)
        return await self._fetch(self._workspace.code) and await self._check_out_commit()

    async def list_tracked(self) -> frozenset[str]:
        """The files that were checked out. Call it before scripts run, since git would obey a configuration that they wrote."""
        if self._options.strategy == "none":
            return frozenset()
        listing = await asyncio.to_thread(
            subprocess.run,
            ["git", "ls-files", "-z", "--recurse-submodules"],
            cwd=self._workspace.code,
            env=self._environment,
            capture_output=True,
            check=False,
        )
        return frozenset(name.decode("utf-8", "surrogateescape") for name in listing.stdout.split(b"\0") if name)

    async def _fetch_from_mirror(self, mirror: Path) -> bool:
        """Fetches into the copy unless it has the commit; if the copy cannot be used, into the working folder."""
        async with self._mirrors.write(mirror, self._stop):
            target = f"refs/builds/{hashlib.sha256(self._job.ref.encode()).hexdigest()[:32]}"
            is_complete = await self._git(self._workspace.root, "init", "--quiet", "--bare", str(mirror))
            is_complete = is_complete and (await self._has_commit(mirror) or await self._fetch(mirror, target))
            if is_complete and await asyncio.to_thread(self._mirrors.has_many_packs, mirror):
                await self._git(mirror, "repack", "--quiet", "-a", "-d", "--keep-unreachable")
        if is_complete:
            self._environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(mirror / "objects")
            return True
        if self._stop.is_set():
            return False
        self._trace.write_line("The runner's copy cannot be used. Cloning …")
        if not await self._fetch(self._workspace.code):
            # The service cannot be reached, or has no such commit: the copy may be sound.
            return False
        self._mirrors.discard(mirror)
        return True

    async def _has_commit(self, folder: Path) -> bool:
        return await self._git(folder, "cat-file", "-e", f"{self._job.sha}^{{commit}}", is_silent=True)

    async def _fetch(self, folder: Path, target: str = "") -> bool:
        """Fetches the commit, or its ref, or everything: the commit may not be the newest one of its ref any more.

        `target` is the ref that it becomes, from which later fetches know what is there.
        """
        job = self._job
        kind = "tags" if job.variables.get("CI_BUILD_TAG") else "heads"
        depth = [f"--depth={self._options.depth}"] if self._options.depth else []
        into = target and f":{target}"
        one = ("--no-tags", "--force", *depth, job.repository_url)
        attempts = (
            (*one, f"+{job.sha}{into}"),
            (*one, f"+refs/{kind}/{job.ref}{into}"),
            (job.repository_url, "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"),
        )
        for attempt in attempts:
            if await self._git(folder, "fetch", "--quiet", *attempt) and await self._has_commit(folder):
                return True
        return False

    async def _update_submodules(self) -> None:
        """Fetches the submodules that are reached by HTTP. The build's token is sent to its own forge only."""
        self._trace.write_line("Fetching submodules …")
        options = ["--init", "--force", *(["--recursive"] if self._options.submodules == "recursive" else [])]
        if self._options.depth:
            options.append(f"--depth={self._options.depth}")
        if not await self._git(self._workspace.code, "submodule", "--quiet", "update", *options):
            raise CheckoutFailed("The submodules cannot be fetched. Those at the same server need a relative or an HTTP address.")

    async def _git(self, folder: Path, *arguments: str, is_silent: bool = False) -> bool:
        """Whether git succeeded; False when the build must end."""
        if self._stop.is_set():
            return False
        trace = TraceBuffer((), limit=2**20) if is_silent else self._trace
        return await run_process(["git", *arguments], folder, self._environment, trace, self._stop) == 0


def _git_environment(job: ClaimedBuild, workspace: Workspace) -> dict[str, str]:
    parts = urlsplit(job.repository_url)
    settings = {
        f"http.{parts.scheme}://{parts.netloc}/.extraHeader": git_command.basic_authorization(f"gitlab-ci-token:{job.token}"),
        "credential.helper": "",
        "protocol.allow": "never",
        "protocol.http.allow": "always",
        "protocol.https.allow": "always",
        "http.followRedirects": "false",
        "advice.detachedHead": "false",
        "init.defaultBranch": "master",
        "gc.auto": "0",
        "maintenance.auto": "false",
    }
    return {
        **build_environment({}, str(workspace.home), str(workspace.temporary), runner_path()),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_CONFIG_NOSYSTEM": "1",
        **git_command.authorities(),
        **git_command.config_environment(settings),
    }
