"""Runs a job of a checkout's `.gitlab-ci.yml` without a server: its tracked files, with changes that are not committed."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forgefront.runner.build_execution import BuildExecution, BuildOutcome
from forgefront.runner.checkout import Checkout, CheckoutFailed, CheckoutOptions
from forgefront.runner.executors.executor import Executor, Session, Workspace
from forgefront.runner.executors.processes import run_process
from forgefront.runner.forge_client import ArtifactRules, BuildRevoked, ClaimedBuild
from forgefront.runner.mirrors import MirrorStore
from graph.rules.builds.artifact_dependencies import select_strings
from graph.rules.builds.job_variables import environment_variables, ref_slug
from graph.rules.ci.config_errors import PipelineConfigError
from graph.rules.ci.config_parser import CONFIG_FILENAME, parse_config
from graph.rules.ci.job_selection import JobConfig
from storage.git.refs.ref_names import NULL_ID
from storage.git.subprocesses import git_command

MAX_TRACE_BYTES = 2**40
LEASE_SECONDS = 3600
IDENTITY = {f"GIT_{who}_{what}": "runner" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
"""Author and committer of the commit that has the changes; git writes it beside the branches."""
REPOSITORY_VARIABLES = frozenset(
    f"GIT_{name}"
    for name in (
        *("ALTERNATE_OBJECT_DIRECTORIES", "COMMON_DIR", "DIR", "GRAFT_FILE", "IMPLICIT_WORK_TREE", "INDEX_FILE", "NAMESPACE"),
        *("OBJECT_DIRECTORY", "PREFIX", "QUARANTINE_PATH", "REPLACE_REF_BASE", "SHALLOW_FILE", "WORK_TREE"),
    )
)
"""Those of `git rev-parse --local-env-vars`, without configuration."""


class LocalBuildRejected(Exception):
    """The folder is no checkout, or has no such job."""


@dataclass(slots=True)
class LocalService:
    """Takes the place of a forge: the trace goes to `write`, and the artifact into `artifact_folder`, if there is one."""

    write: Callable[[str], None]
    artifact_folder: Path | None = None
    artifacts: list[Path] = field(default_factory=list)

    async def append_trace(self, job: ClaimedBuild, text: str, offset: int, *, retry_seconds: float) -> None:
        try:
            self.write(text)
        except BrokenPipeError:
            raise BuildRevoked("Nobody reads the output any more.") from None

    async def report_status(self, job: ClaimedBuild, status: str, *, retry_seconds: float, failure_reason: str | None = None) -> None:
        """There is nobody to report to."""

    async def upload_artifact(self, job: ClaimedBuild, file: Path, filename: str, on_progress: Any, *, retry_seconds: float) -> None:
        if self.artifact_folder is not None:
            target = self.artifact_folder / Path(filename).name
            await asyncio.to_thread(shutil.copyfile, file, target)
            self.artifacts.append(target)


@dataclass
class LocalBuildExecution(BuildExecution):
    """A build whose code is a commit of a repository on this machine."""

    repository: Path = Path()

    async def _check_out(self, workspace: Workspace, session: Session, options: CheckoutOptions) -> Checkout:
        checkout = Checkout(self.job, CheckoutOptions("none"), workspace, self.mirrors, self.trace, self._stop)
        # The commit is on no branch if it has changes that are not committed.
        settings = {"protocol.file.allow": "always", "uploadpack.allowAnySHA1InWant": "true", "advice.detachedHead": "false"}
        environment = {**_git_environment(), **git_command.config_environment(settings)}
        depth = [f"--depth={options.depth}"] if options.depth else []
        commands = (
            ("init", "--quiet"),
            ("fetch", "--quiet", *depth, self.repository.as_uri(), self.job.sha),
            ("checkout", "--quiet", "--detach", self.job.sha),
        )
        for command in commands:
            if await run_process(["git", *command], workspace.code, environment, self.trace, self._stop) != 0:
                self._raise_if_stopped()
                raise CheckoutFailed("The code cannot be copied.")
        return checkout


def read_job(folder: Path, name: str) -> JobConfig:
    """The job of the file in a folder. Raises LocalBuildRejected, PipelineConfigError."""

    def read_included(path: str) -> str:
        # Unlike Path.resolve, it accepts links that lead to themselves.
        file = Path(os.path.realpath(folder / path))
        if not file.is_relative_to(folder.resolve()) or not file.is_file():
            raise PipelineConfigError.from_message("The checkout has no such file.")
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PipelineConfigError.from_message(f"The file cannot be read: {error}") from error

    try:
        config = parse_config((folder / CONFIG_FILENAME).read_text(encoding="utf-8"), read_included)
    except (OSError, UnicodeDecodeError) as error:
        raise LocalBuildRejected(f"{folder / CONFIG_FILENAME} cannot be read: {error}") from None
    found = next((job for job in config.jobs if job.name == name), None)
    if found is None:
        raise LocalBuildRejected(f"There is no job {name!r}. The jobs are {', '.join(job.name for job in config.jobs)}.")
    return found


def describe_build(folder: Path, job: JobConfig, variables: Mapping[str, str], timeout_seconds: int) -> ClaimedBuild:
    """The job as a forge would describe it. Raises LocalBuildRejected."""
    head = _read_git(folder, "rev-parse", "HEAD")
    # Of a file whose times changed without its contents, as after `touch`, `git stash create` fails without a message.
    _run_git(folder, "update-index", "-q", "--refresh")
    sha = _read_git(folder, "stash", "create") or head
    ref = _read_git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    predefined = {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_SERVER": "yes",
        "CI_SERVER_NAME": "Forgefront",
        "CI_BUILD_ID": "0",
        "CI_BUILD_REF": sha,
        "CI_BUILD_BEFORE_SHA": NULL_ID,
        "CI_BUILD_REF_NAME": ref,
        "CI_BUILD_REF_SLUG": ref_slug(ref),
        "CI_BUILD_NAME": job.name,
        "CI_BUILD_STAGE": job.stage,
    }
    options = job.options
    configured = {key: str(value) for key, value in (options.get("variables") or {}).items()}
    predefined |= environment_variables(options, {**predefined, **configured})
    artifacts = options.get("artifacts") or {}
    paths, untracked = tuple(select_strings(artifacts.get("paths")) or ()), artifacts.get("untracked") is True
    return ClaimedBuild(
        build_id=0,
        token="",
        name=job.name,
        ref=ref,
        sha=sha,
        repository_url=f"file://{folder}",
        script=(job.commands,),
        after_script=tuple(select_strings(options.get("after_script")) or ()),
        variables={**predefined, **configured, **variables},
        secrets=frozenset(),
        artifacts=ArtifactRules(
            paths, untracked, str(artifacts.get("name") or "artifacts"), str(artifacts.get("when") or "on_success").upper()
        )
        if paths or untracked
        else None,
        timeout_seconds=timeout_seconds,
        lease_seconds=LEASE_SECONDS,
        trace_offset=0,
        trace_limit=MAX_TRACE_BYTES,
        image=options.get("image") if isinstance(options.get("image"), str) else None,
        services=tuple(select_strings(options.get("services")) or ()),
    )


def find_checkout(folder: Path) -> Path:
    """The top folder of the checkout. Raises LocalBuildRejected."""
    return Path(_read_git(folder, "rev-parse", "--show-toplevel"))


async def run_local_build(
    job: ClaimedBuild, repository: Path, service: LocalService, executor: Executor, folder: Path, on_start: Callable[[BuildExecution], None]
) -> BuildOutcome:
    """Runs the build in a folder; `on_start` takes the execution, which can be stopped."""
    execution = LocalBuildExecution(service, job, folder, "", executor, MirrorStore(folder / "mirrors"), repository=repository)  # type: ignore[arg-type]
    on_start(execution)
    return await execution.run()


def _git_environment() -> dict[str, str]:
    """The environment without the variables that name a repository: git sets them for hooks, and they come before the folder."""
    return {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}


def _run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**_git_environment(), **IDENTITY},
    )


def _read_git(folder: Path, *arguments: str) -> str:
    done = _run_git(folder, *arguments)
    if done.returncode != 0:
        raise LocalBuildRejected(f"git {' '.join(arguments)} in {folder} fails: {done.stderr.strip()}")
    return done.stdout.strip()
