"""The description of a job for its runner (docs/wire-facts.md 13.2): commands, variables and artifacts."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from graph.context import Context
from graph.events.payloads import full_path
from graph.rules.builds import job_variables
from graph.rules.builds.variables import load_build_variables
from graph.rules.runners import status_reports
from storage import tables

BUILD_TOKEN_USERNAME = "gitlab-ci-token"  # noqa: S105 - a username
"""Username beside a build's token when git asks for both; any other username works too."""
DEFAULT_ARTIFACT_NAME = "artifacts"


class UploadCondition(StrEnum):
    """The result of a build for which its artifacts are uploaded."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A variable of the job; the trace may show the value of a `public` one."""

    key: str
    value: str
    public: bool


@dataclass(frozen=True, slots=True)
class ArtifactPatterns:
    """What the runner uploads as the artifact: file patterns, the archive's name, for which result, and how long it is stored."""

    paths: list[str]
    untracked: bool
    name: str
    when: UploadCondition
    expire_in: str | None


@dataclass(frozen=True, slots=True)
class RunnerJob:
    build: tables.Build
    token: str
    repository_url: str
    variables: list[EnvironmentVariable]
    after_script: list[str]
    artifacts: ArtifactPatterns | None
    image: str | None
    timeout_seconds: int
    lease_seconds: int


async def build_claimed_job(context: Context, claimed: tuple[tables.Build, str] | None) -> tuple[tables.Build | None, RunnerJob | None]:
    """The build and the job of a claim, which returned a build and its token; None for both if there was no build."""
    if claimed is None:
        return None, None
    build, token = claimed
    return build, await build_runner_job(context, build, token)


async def build_runner_job(context: Context, build: tables.Build, token: str) -> RunnerJob:
    project = await context.rows_by_id(tables.Project).get(build.project_id)
    assert project is not None, "a foreign key guarantees that the project exists"  # noqa: S101
    clone_url = f"{context.services.external_url}/{await full_path(context, project)}.git"
    options = build.options
    image = options.get("image")
    return RunnerJob(
        build=build,
        token=token,
        repository_url=clone_url,
        variables=_build_variables(context, build, token, clone_url, await job_variables.load_pipeline(context, build)),
        after_script=[line for line in options.get("after_script") or [] if isinstance(line, str)],
        artifacts=_parse_artifact_patterns(options.get("artifacts")),
        image=image if isinstance(image, str) else None,
        timeout_seconds=status_reports.timeout_seconds(context.services, build),
        lease_seconds=context.services.build_lease,
    )


def _build_variables(
    context: Context, build: tables.Build, token: str, clone_url: str, pipeline: tables.Pipeline | None
) -> list[EnvironmentVariable]:
    scheme, _, address = clone_url.partition("://")
    predefined = job_variables.predefined_variables(context, build, pipeline)
    configured = job_variables.configured_variables(build)
    environment = job_variables.environment_variables(build.options, {**predefined, **configured})
    secret = {"CI_BUILD_TOKEN": token, "CI_BUILD_REPO": f"{scheme}://{BUILD_TOKEN_USERNAME}:{token}@{address}"}
    return [
        *(EnvironmentVariable(key, value, True) for key, value in {**predefined, **environment}.items()),
        *(EnvironmentVariable(key, value, False) for key, value in secret.items()),
        *(EnvironmentVariable(key, value, True) for key, value in configured.items()),
        *(EnvironmentVariable(key, value, False) for key, value in load_build_variables(context, build)),
    ]


def _parse_artifact_patterns(section: Any) -> ArtifactPatterns | None:
    if not isinstance(section, dict):
        return None
    paths = [path for path in section.get("paths") or [] if isinstance(path, str)]
    untracked = section.get("untracked") is True
    if not paths and not untracked:
        return None
    name = section.get("name")
    when, expire_in = section.get("when"), section.get("expire_in")
    return ArtifactPatterns(
        paths,
        untracked,
        name if isinstance(name, str) and name.strip() else DEFAULT_ARTIFACT_NAME,
        UploadCondition(when) if when in set(UploadCondition) else UploadCondition.ON_SUCCESS,
        expire_in if isinstance(expire_in, str) else None,
    )
