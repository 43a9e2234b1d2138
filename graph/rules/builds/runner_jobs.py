"""The description of a job for its runner (docs/wire-facts.md 13.2): commands, variables and artifacts."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from graph.context import Context
from graph.events.payloads import full_path
from graph.rules.builds import runners
from graph.rules.builds.variables import given_variables
from storage import tables
from storage.git.ref_names import NULL_ID
from storage.tables import RunWhen

BUILD_TOKEN_USERNAME = "gitlab-ci-token"  # noqa: S105 - a username
"""Username beside a build's token when git asks for both; any other username works too."""
DEFAULT_ARTIFACT_NAME = "artifacts"


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A variable of the job; the trace may show the value of a `public` one."""

    key: str
    value: str
    public: bool


@dataclass(frozen=True, slots=True)
class ArtifactPatterns:
    """What the runner uploads as the artifact: file patterns, the archive's name, and for which result."""

    paths: list[str]
    untracked: bool
    name: str
    when: RunWhen


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
        variables=_build_variables(context, build, token, clone_url, await _load_pipeline(context, build)),
        after_script=[line for line in options.get("after_script") or [] if isinstance(line, str)],
        artifacts=_parse_artifact_patterns(options.get("artifacts")),
        image=image if isinstance(image, str) else None,
        timeout_seconds=runners.timeout_seconds(context.services, build),
        lease_seconds=context.services.build_lease,
    )


async def _load_pipeline(context: Context, build: tables.Build) -> tables.Pipeline | None:
    return await context.rows_by_id(tables.Pipeline).get(build.pipeline_id) if build.pipeline_id is not None else None


def _build_variables(
    context: Context, build: tables.Build, token: str, clone_url: str, pipeline: tables.Pipeline | None
) -> list[EnvironmentVariable]:
    scheme, _, address = clone_url.partition("://")
    program_version = version("forgefront")
    is_triggered = pipeline is not None and pipeline.trigger_request_id is not None
    predefined = {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_SERVER": "yes",
        "CI_SERVER_NAME": "Forgefront",
        "CI_SERVER_VERSION": program_version,
        # A released program has no other revision.
        "CI_SERVER_REVISION": program_version,
        "CI_SERVER_URL": context.services.external_url,
        "CI_PROJECT_ID": str(build.project_id),
        "CI_BUILD_ID": str(build.id),
        "CI_BUILD_REF": build.sha,
        "CI_BUILD_BEFORE_SHA": (pipeline and pipeline.before_sha) or NULL_ID,
        "CI_BUILD_REF_NAME": build.ref,
        "CI_BUILD_NAME": build.name,
        "CI_BUILD_STAGE": build.stage,
        **({"CI_BUILD_TAG": build.ref} if build.tag else {}),
        **({"CI_BUILD_TRIGGERED": "true"} if is_triggered else {}),
    }
    secret = {"CI_BUILD_TOKEN": token, "CI_BUILD_REPO": f"{scheme}://{BUILD_TOKEN_USERNAME}:{token}@{address}"}
    configured = build.options.get("variables") or {}
    return [
        *(EnvironmentVariable(key, value, True) for key, value in predefined.items()),
        *(EnvironmentVariable(key, value, False) for key, value in secret.items()),
        *(EnvironmentVariable(str(key), str(value), True) for key, value in configured.items()),
        *(EnvironmentVariable(key, value, False) for key, value in given_variables(context, build)),
    ]


def _parse_artifact_patterns(section: Any) -> ArtifactPatterns | None:
    if not isinstance(section, dict):
        return None
    paths = [path for path in section.get("paths") or [] if isinstance(path, str)]
    untracked = section.get("untracked") is True
    if not paths and not untracked:
        return None
    name = section.get("name")
    when = section.get("when")
    return ArtifactPatterns(
        paths,
        untracked,
        name if isinstance(name, str) and name.strip() else DEFAULT_ARTIFACT_NAME,
        RunWhen(when) if when in set(RunWhen) else RunWhen.ON_SUCCESS,
    )
