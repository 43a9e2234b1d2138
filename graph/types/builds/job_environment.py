"""The environment of a job: service images, caches, and earlier builds."""

from typing import Any

import strawberry

from graph.context import Info
from graph.rules.builds import artifact_dependencies
from graph.types.builds.builds import Build


@strawberry.type(description="Files cached between builds of the same job or branch, for runners that support caches.")
class JobCache:
    key: str | None = strawberry.field(description="Cache key; builds with the same key share the cache.")
    untracked: bool | None = strawberry.field(description="Whether to include all untracked files.")
    paths: list[str] | None = strawberry.field(description="Files and directories in the working directory.")


@strawberry.type
class JobEnvironmentFields:
    """Fields of a job about its environment."""

    @strawberry.field(description="The build.")
    def build(self) -> Build:
        job: Any = self
        return job.build  # type: ignore[no-any-return]

    @strawberry.field(description="Images of services to run alongside the build, for runners that support images.")
    def services(self) -> list[str]:
        return artifact_dependencies.select_strings(_options_of(self).get("services")) or []

    @strawberry.field(description="Files to cache between builds; null if none.")
    def cache(self) -> JobCache | None:
        options = _options_of(self).get("cache")
        if not isinstance(options, dict):
            return None
        key, untracked = options.get("key"), options.get("untracked")
        return JobCache(
            key=key if isinstance(key, str) else None,
            untracked=untracked if isinstance(untracked, bool) else None,
            paths=artifact_dependencies.select_strings(options.get("paths")),
        )

    @strawberry.field(
        description="Names of the jobs in earlier stages whose artifacts the build needs; null if it needs those of all, empty if of none."
    )
    def dependencies(self) -> list[str] | None:
        return artifact_dependencies.select_strings(_options_of(self).get("dependencies"))

    @strawberry.field(description="Builds of earlier stages, latest attempt of each; `jobArtifact` returns their artifacts.")
    async def depends_on(self, info: Info) -> list[Build]:
        job: Any = self
        return await artifact_dependencies.load_earlier_builds(info.context, job.build)  # type: ignore[return-value]


def _options_of(job: Any) -> dict[str, Any]:
    return job.build.options  # type: ignore[no-any-return]
