"""What a runner is told of a build that it was given (wire facts 13.2): what to run, with which variables, and what to keep of it."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from graph.context import Context
from graph.events.payloads import full_path
from graph.rules import runners
from storage import tables
from storage.tables import RunWhen

BUILD_USER = "gitlab-ci-token"
"""Whose password a build's token is where git asks for a name too; any name would do."""
ARTIFACTS = "artifacts"


@dataclass(frozen=True, slots=True)
class Variable:
    """`public` ones may be shown in the trace."""

    key: str
    value: str
    public: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """What of the work folder a build leaves: files and folders by patterns, under a name, when it ended so."""

    paths: list[str]
    untracked: bool
    name: str
    when: RunWhen


@dataclass(frozen=True, slots=True)
class Job:
    build: tables.Build
    token: str
    repository_url: str
    variables: list[Variable]
    after_script: list[str]
    artifacts: Kept | None
    image: str | None
    timeout_seconds: int
    lease_seconds: int


async def job_of(context: Context, build: tables.Build, token: str) -> Job:
    project = await context.rows_by_id(tables.Project).get(build.project_id)
    assert project is not None, "a foreign key keeps the project of a build"  # noqa: S101
    address = f"{context.services.external_url}/{await full_path(context, project)}.git"
    options = build.options
    image = options.get("image")
    return Job(
        build=build,
        token=token,
        repository_url=address,
        variables=_variables(context, build, token, address),
        after_script=[line for line in options.get("after_script") or [] if isinstance(line, str)],
        artifacts=_kept(options.get("artifacts")),
        image=image if isinstance(image, str) else None,
        timeout_seconds=runners.timeout_of(context.services, build),
        lease_seconds=context.services.build_lease,
    )


def _variables(context: Context, build: tables.Build, token: str, address: str) -> list[Variable]:
    scheme, _, rest = address.partition("://")
    own = {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_SERVER": "yes",
        "CI_SERVER_NAME": "Forgefront",
        "CI_SERVER_VERSION": version("forgefront"),
        "CI_SERVER_URL": context.services.external_url,
        "CI_PROJECT_ID": str(build.project_id),
        "CI_BUILD_ID": str(build.id),
        "CI_BUILD_REF": build.sha,
        "CI_BUILD_REF_NAME": build.ref,
        "CI_BUILD_NAME": build.name,
        "CI_BUILD_STAGE": build.stage,
        **({"CI_BUILD_TAG": build.ref} if build.tag else {}),
    }
    secret = {"CI_BUILD_TOKEN": token, "CI_BUILD_REPO": f"{scheme}://{BUILD_USER}:{token}@{rest}"}
    of_file = build.options.get("variables") or {}
    return [
        *(Variable(key, value, True) for key, value in own.items()),
        *(Variable(key, value, False) for key, value in secret.items()),
        *(Variable(str(key), str(value), True) for key, value in of_file.items()),
    ]


def _kept(given: Any) -> Kept | None:
    if not isinstance(given, dict):
        return None
    paths = [path for path in given.get("paths") or [] if isinstance(path, str)]
    untracked = given.get("untracked") is True
    if not paths and not untracked:
        return None
    name = given.get("name")
    when = given.get("when")
    return Kept(
        paths,
        untracked,
        name if isinstance(name, str) and name.strip() else ARTIFACTS,
        RunWhen(when) if when in set(RunWhen) else RunWhen.ON_SUCCESS,
    )
