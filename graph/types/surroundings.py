"""What is around a build that a runner was given: what it asks to run beside, what to keep between builds, the builds before it."""

from typing import Any

import strawberry

from graph.context import Info
from graph.rules import dependencies
from graph.types.builds import Build


@strawberry.type(description="Files that builds hand on to the next of the same job or branch, for runners that keep such.")
class JobCache:
    key: str | None = strawberry.field(description="Builds with the same key share it.")
    untracked: bool | None = strawberry.field(description="Whether all files are kept that git does not know.")
    paths: list[str] | None = strawberry.field(description="Files and folders in the work folder.")


@strawberry.type
class JobSurroundings:
    """The part of a job that is about what is around it."""

    @strawberry.field(description="The build itself.")
    def build(self) -> Build:
        job: Any = self
        return job.build  # type: ignore[no-any-return]

    @strawberry.field(description="Images that the build asks to run beside it, for runners that have images.")
    def services(self) -> list[str]:
        return dependencies.texts(_options(self).get("services")) or []

    @strawberry.field(description="What to keep between builds; null for nothing.")
    def cache(self) -> JobCache | None:
        said = _options(self).get("cache")
        if not isinstance(said, dict):
            return None
        key, untracked = said.get("key"), said.get("untracked")
        return JobCache(
            key=key if isinstance(key, str) else None,
            untracked=untracked if isinstance(untracked, bool) else None,
            paths=dependencies.texts(said.get("paths")),
        )

    @strawberry.field(description="The builds of the earlier stages, each in its newest attempt: `jobArtifact` gives what they left.")
    async def depends_on(self, info: Info) -> list[Build]:
        job: Any = self
        return await dependencies.before(info.context, job.build)  # type: ignore[return-value]


def _options(job: Any) -> dict[str, Any]:
    return job.build.options  # type: ignore[no-any-return]
