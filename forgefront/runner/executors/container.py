"""The executor `container`: scripts run in containers of podman or docker, with the image and the services of the build.

Each script runs in a container of its own, with the same folders; services run as long as the build. The variables go to the script through
standard input: neither command lines nor the files of the container engine contain them.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from forgefront.runner.executors.executor import (
    UNLIMITED,
    BuildImages,
    BuildNotStarted,
    BuildPaths,
    Executor,
    ExecutorUnavailable,
    Limits,
    Session,
    Workspace,
)
from forgefront.runner.executors.processes import run_process
from forgefront.runner.scripts import NAME_PATTERN, export_lines
from forgefront.runner.trace_buffer import TraceBuffer

PROGRAMS = ("podman", "docker")
CALL_SECONDS = 60.0
"""Time limit of a call of the container engine that runs no script."""
STOP_SECONDS = 10
NAME_PREFIX = "forgefront-"
SCRIPT_PATH, MIRROR_PATH = "/run/forgefront/script", "/run/forgefront/mirror.git"
ENTRY = """\
eval "$(cat)"; exec </dev/null
if command -v bash >/dev/null 2>&1; then bash --noprofile --norc -eo pipefail "$0" & else sh -e "$0" & fi
trap "kill -TERM $!" TERM; wait $!; code=$?
while kill -0 $! 2>/dev/null; do wait $!; code=$?; done
exit $code
"""
"""Reads the variables from standard input, and runs the script in bash, or in sh if the image has no other.

The first process of a container gets only signals that it handles, and `--init` needs a program that not every machine has.
"""
IMAGE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}")
REMEDY = "Install podman (Debian: apt-get install podman) or docker, and try `podman info` as the runner's user."


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """`image` is for builds that name none; `options` are further ones of `run`; `allowed_images` are patterns, all if there is none."""

    program: str = ""
    image: str = "debian:stable-slim"
    pull: str = "missing"
    has_network: bool = True
    options: tuple[str, ...] = ()
    allowed_images: tuple[str, ...] = ()


DEFAULT_SETTINGS = ContainerSettings()


class ContainerExecutor(Executor):
    """Runs scripts in containers."""

    name = "container"

    def __init__(self, limits: Limits = UNLIMITED, settings: ContainerSettings = DEFAULT_SETTINGS) -> None:
        self.limits = limits
        self.settings = settings
        candidates = (settings.program,) if settings.program else PROGRAMS
        self.program = next((found for name in candidates if (found := shutil.which(name))), "")

    async def check(self) -> None:
        if not self.program:
            raise ExecutorUnavailable(f"{self.settings.program or 'Neither podman nor docker'} is not installed.", REMEDY)
        code, output = await self.call("info")
        if code != 0:
            remedy = f"Start its daemon if it needs one, and permit the runner's user to use it: try `{self.program} info`."
            raise ExecutorUnavailable(f"{self.program} does not work: {_last_line(output).rstrip('.?')}.", remedy)

    async def call(self, *arguments: str, seconds: float = CALL_SECONDS) -> tuple[int, str]:
        """Calls the container engine; its exit code, and what it printed. A call that takes too long is killed, and fails."""
        process = await asyncio.create_subprocess_exec(
            self.program, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            return 124, f"no answer within {seconds:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output.decode(errors="replace")

    @asynccontextmanager
    async def open(self, workspace: Workspace, images: BuildImages, trace: TraceBuffer, stop: asyncio.Event) -> AsyncIterator[Session]:
        image = images.image or self.settings.image
        for name in (image, *images.services):
            await self._pull(name, trace, stop)
        session = ContainerSession(self, workspace, image, f"{NAME_PREFIX}{workspace.root.parent.name}-{workspace.root.name}")
        try:
            await session.start_services(images, trace)
            yield session
        finally:
            await asyncio.shield(session.remove())

    async def remove_leftovers(self, folder: Path) -> None:
        """Removes the containers of a killed runner, and their networks."""
        for kind, listing in (("rm", ("ps", "-a")), ("network", ("network", "ls"))):
            column = "Names" if kind == "rm" else "Name"
            _, output = await self.call(*listing, "--filter", f"name={NAME_PREFIX}{folder.name}-", "--format", f"{{{{.{column}}}}}")
            for name in output.split():
                if name.startswith(f"{NAME_PREFIX}{folder.name}-"):
                    await self.call(*(("rm", "-f", "-v", name) if kind == "rm" else ("network", "rm", name)))

    async def _pull(self, image: str, trace: TraceBuffer, stop: asyncio.Event) -> None:
        """Raises BuildNotStarted when the image cannot be used."""
        if not IMAGE_PATTERN.fullmatch(image):
            raise BuildNotStarted(f"{image!r} is not the name of an image.")
        allowed = self.settings.allowed_images
        if allowed and image != self.settings.image and not any(re.fullmatch(_to_expression(pattern), image) for pattern in allowed):
            raise BuildNotStarted(f"This runner does not permit the image {image}. It permits {', '.join(allowed)}.")
        is_present = (await self.call("image", "inspect", image))[0] == 0
        if self.settings.pull == "never" and not is_present:
            raise BuildNotStarted(f"The image {image} is not on the runner, which pulls none.")
        if self.settings.pull == "always" or (self.settings.pull == "missing" and not is_present):
            trace.write_line(f"Pulling {image} …")
            environment = {**os.environ}
            if await run_process([self.program, "pull", "--quiet", image], Path("/"), environment, trace, stop) != 0:
                raise BuildNotStarted(f"The image {image} cannot be pulled.")

    def run_options(self) -> list[str]:
        """The options that every container of a build has."""
        limits, options = self.limits, ["--security-opt", "no-new-privileges"]
        if limits.memory_bytes:
            options += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
        if limits.cpus:
            options += ["--cpus", str(limits.cpus)]
        if limits.processes:
            options += ["--pids-limit", str(limits.processes)]
        return [*options, *self.settings.options]


class ContainerSession(Session):
    """A build in containers. `name` begins the names of its containers, and is that of its network."""

    def __init__(self, executor: ContainerExecutor, workspace: Workspace, image: str, name: str) -> None:
        project = re.sub(r"[^A-Za-z0-9._-]", "-", workspace.project_name).lstrip(".") or "code"
        # The images' own search paths differ.
        self.paths = BuildPaths(f"/builds/{project}", "/builds/.home", "/builds/.tmp", MIRROR_PATH, path="")
        self._executor = executor
        self._workspace = workspace
        self._image = image
        self._name = name
        self._network = "bridge" if executor.settings.has_network else "none"
        self._containers: list[str] = []
        self._has_network = False

    async def start_services(self, images: BuildImages, trace: TraceBuffer) -> None:
        """Starts the services, which scripts reach by the name of their image. Raises BuildNotStarted."""
        if not images.services:
            return
        internal = [] if self._executor.settings.has_network else ["--internal"]
        code, output = await self._executor.call("network", "create", *internal, self._name)
        if code != 0:
            raise BuildNotStarted(f"The network of the services cannot be created: {_last_line(output)}.")
        self._has_network, self._network = True, self._name
        # A line of this file is a variable, so those with several lines are left out.
        pairs = (images.service_variables or {}).items()
        lines = "".join(
            f"{key}={value}\n" for key, value in pairs if NAME_PATTERN.fullmatch(key) and "\n" not in value and "\0" not in value
        )
        variables = self._workspace.root / "services"
        await asyncio.to_thread(variables.write_text, lines)
        for number, image in enumerate(images.services):
            name = f"{self._name}-service-{number}"
            aliases = [option for alias in service_aliases(image) for option in ("--network-alias", alias)]
            self._containers.append(name)
            command = ("run", "--detach", "--name", name, "--network", self._network, *aliases, "--env-file", str(variables))
            code, output = await self._executor.call(*command, *self._executor.run_options(), "--pull", "never", image)
            if code != 0:
                raise BuildNotStarted(f"The service {image} cannot be started: {_last_line(output)}.")
            trace.write_line(f"Started the service {image}, which is reached as {' or '.join(service_aliases(image))}.")

    async def run(self, script: Path, environment: Mapping[str, str], trace: TraceBuffer, stop: asyncio.Event) -> int:
        name = f"{self._name}-{secrets.token_hex(4)}"
        self._containers.append(name)
        mounts = [
            *(f"{self._workspace.code}:{self.paths.code}", f"{self._workspace.home}:{self.paths.home}"),
            *(f"{self._workspace.temporary}:{self.paths.temporary}", f"{script}:{SCRIPT_PATH}:ro"),
            *([f"{self._workspace.mirror}:{MIRROR_PATH}:ro"] if self._workspace.mirror and self._workspace.mirror.exists() else []),
        ]
        options = [option for mount in mounts for option in ("--volume", mount)]
        if "docker" in Path(self._executor.program).name and os.getuid() != 0:
            # Its daemon is root, and the runner must be able to remove the files.
            options += ["--user", f"{os.getuid()}:{os.getgid()}"]
        command = [
            *(self._executor.program, "run", "--rm", "--interactive", "--pull", "never", "--name", name, "--network", self._network),
            *("--workdir", self.paths.code, "--entrypoint", "/bin/sh", *options, *self._executor.run_options()),
            *(self._image, "-c", ENTRY, SCRIPT_PATH),
        ]
        # A pipe holds less than the variables may be.
        handle = os.memfd_create("forgefront-runner")
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                file.write(export_lines(environment).encode())
            os.lseek(handle, 0, os.SEEK_SET)
            ended = asyncio.Event()
            watch = asyncio.create_task(self._stop_with(name, stop, ended))
            try:
                # Stopping is the engine's task: a signal to its client would leave the container behind.
                return await run_process(command, self._workspace.root, {**os.environ}, trace, ended, input_fd=handle)
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
                await self._remove_container(name)
        finally:
            os.close(handle)

    async def _stop_with(self, name: str, stop: asyncio.Event, ended: asyncio.Event) -> None:
        await stop.wait()
        await self._executor.call("stop", "-t", str(STOP_SECONDS), name, seconds=2 * STOP_SECONDS)
        await self._remove_container(name)
        ended.set()

    async def _remove_container(self, name: str) -> None:
        await self._executor.call("rm", "--force", "--volumes", name)
        with contextlib.suppress(ValueError):
            self._containers.remove(name)

    async def remove(self) -> None:
        """Removes the remaining containers of the build, and its network."""
        for name in list(self._containers):
            await self._remove_container(name)
        if self._has_network:
            await self._executor.call("network", "rm", self._name)


def service_aliases(image: str) -> tuple[str, ...]:
    """The host names of a service.

    >>> service_aliases("registry.example.com/team/postgres:16")
    ('registry.example.com__team__postgres', 'registry.example.com-team-postgres')
    >>> service_aliases("redis")
    ('redis',)
    """
    name = re.sub(r"(@.*|:[^/]*)$", "", image).replace(":", "")
    return tuple(dict.fromkeys((name.replace("/", "__"), name.replace("/", "-"))))


def _to_expression(pattern: str) -> str:
    """The expression of a pattern in which `*` stands for any characters."""
    return ".*".join(map(re.escape, pattern.split("*")))


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1].rstrip(".")
