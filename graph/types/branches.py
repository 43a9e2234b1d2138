"""Branches and tags."""

from typing import Annotated, Any

import strawberry

from graph.connections import Connection
from graph.context import Context, Info
from graph.declare import column, connection_field, window_of
from graph.rules import branches, commits
from graph.rules.branches import ProjectRef
from graph.rules.policy import Action, require
from graph.types.commits import Commit


async def _target(root: Any, info: Info) -> Any:
    ref: ProjectRef = root
    context: Context = info.context
    return await commits.by_oid(context, (ref.project_id, ref.oid))


@strawberry.type(description="A line of work: a name that moves with its newest commit.")
class Branch:
    name: str = column(description="The name, without `refs/heads/`.")

    @strawberry.field(description="The newest commit; null when the repository cannot give it.")
    async def target(self, info: Info) -> Commit | None:
        return await _target(self, info)  # type: ignore[no-any-return]


@strawberry.type(description="A name for one commit, for good.")
class Tag:
    name: str = column(description="The name, without `refs/tags/`.")

    @strawberry.field(
        description="The commit, found through the tag's own object where it has one; null when the repository cannot give it."
    )
    async def target(self, info: Info) -> Commit | None:
        return await _target(self, info)  # type: ignore[no-any-return]


async def _branches(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await branches.branches(info.context, root, window_of(arguments))


async def _tags(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await branches.tags(info.context, root, window_of(arguments))


@strawberry.type
class ProjectBranches:
    """The part of a project that is about its branches and tags."""

    branches: Connection[Branch] | None = connection_field(
        _branches, description="The branches, by name; null when there is no repository."
    )
    tags: Connection[Tag] | None = connection_field(_tags, description="The tags of commits, by name; null when there is no repository.")

    @strawberry.field(description="A branch by its exact name.")
    async def branch(
        self, info: Info, name: Annotated[str | None, strawberry.argument(description="The name; without one, the default branch.")] = None
    ) -> Branch | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await branches.branch(info.context, project, name)  # type: ignore[return-value]
