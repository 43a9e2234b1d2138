"""The interface of executors, the folders of a build, and its limits."""

from abc import ABC, abstractmethod
from asyncio import Event
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from forgefront.runner.trace_buffer import TraceBuffer

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ExecutorUnavailable(Exception):
    """An executor cannot be used on this machine; `remedy` says what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


class BuildNotStarted(Exception):
    """The executor cannot run this build, for example because its image does not exist. The message is for the trace."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each build; None is unlimited. `cpus` is a number of processors."""

    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    disk_bytes: int | None = None


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one build on this machine. `mirror` is a repository with objects of the project, which the build may read."""

    root: Path
    project_name: str
    mirror: Path | None = None

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def scripts(self) -> Path:
        return self.root / "scripts"

    @property
    def folders(self) -> tuple[Path, ...]:
        return self.code, self.home, self.temporary, self.scripts


@dataclass(frozen=True, slots=True)
class BuildPaths:
    """The folders of a build as its scripts see them."""

    code: str
    home: str
    temporary: str
    mirror: str
    path: str = SYSTEM_PATH


@dataclass(frozen=True, slots=True)
class BuildImages:
    """The container images that a build requests, and the variables that its services receive."""

    image: str | None = None
    services: tuple[str, ...] = ()
    service_variables: Mapping[str, str] | None = None


class Session(ABC):
    """A build in an executor."""

    paths: BuildPaths

    @abstractmethod
    async def run(self, script: Path, environment: Mapping[str, str], trace: TraceBuffer, stop: Event) -> int:
        """Runs a script of `Workspace.scripts`, and returns its exit code; a negative one is the signal that ended it.

        When `stop` is set, its processes are asked to end, and killed a moment later. None of them runs any more when it returns.
        """


class Executor(ABC):
    """Runs builds in one way. `name` is the one of the configuration."""

    name: str
    limits: Limits

    @abstractmethod
    async def check(self) -> None:
        """Tries whether builds can run. Raises ExecutorUnavailable."""

    @abstractmethod
    def open(self, workspace: Workspace, images: BuildImages, trace: TraceBuffer, stop: Event) -> AbstractAsyncContextManager[Session]:
        """Returns a context manager that yields the session of a build. Raises BuildNotStarted when entered."""

    async def remove_leftovers(self, folder: Path) -> None:  # noqa: B027 - a killed runner's processes end with it
        """Removes what a killed runner left behind for the builds in its folder."""
