"""Fork relations: setting and removing the project that a project is a fork of."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.permissions.policy import Action, require
from graph.rules.projects import forks
from graph.rules.projects.forks import ForkRelation
from graph.types.inputs import find_project
from graph.types.projects.projects import Project


@strawberry.type(description="Relation of a fork to the project that it is a fork of.")
class ForkLink:
    @strawberry.field(description="The fork.")
    def project(self) -> Project:
        return _relation(self).project  # type: ignore[return-value]

    @strawberry.field(description="v3 ID of the fork.")
    def project_id(self) -> int:
        return _relation(self).project.id

    @strawberry.field(description="v3 ID of the project that it is, or was, a fork of.")
    def source_id(self) -> int:
        return _relation(self).source.id

    @strawberry.field(description="When the fork was created.")
    def created_at(self) -> datetime:
        return _relation(self).project.created_at

    @strawberry.field(description="When the fork was last changed.")
    def updated_at(self) -> datetime:
        return _relation(self).project.updated_at


def _relation(link: Any) -> ForkRelation:
    return link  # type: ignore[no-any-return]


@strawberry.input(description="Input of `linkFork`.")
class LinkForkInput:
    project_path: str = strawberry.field(description="Full path of the fork, or its v3 ID.")
    source_path: str = strawberry.field(description="Full path of the project that it is a fork of, or its v3 ID.")


@strawberry.input(description="Input of `unlinkFork`.")
class UnlinkForkInput:
    project_path: str = strawberry.field(description="Full path of the fork, or its v3 ID.")


@mutation(
    entity="fork_link",
    returns=ForkLink,
    entity_description="The new relation.",
    description="Makes a project a fork of another one, which must be at least as visible. Administrators only.",
)
async def link_fork(info: Info, input: LinkForkInput) -> ForkRelation:
    await require(info.context, Action.LINK_FORK)
    project = await lookup.get_project(info.context, input.project_path)
    source = await lookup.get_project(info.context, input.source_path)
    return await forks.link_fork(info.context, project, source)


@mutation(
    entity="fork_link",
    returns=ForkLink,
    entity_description="The removed relation; null if the project was no fork.",
    description="Makes a project a fork of none. Its merge requests into the former source remain. Requires the owner role.",
)
async def unlink_fork(info: Info, input: UnlinkForkInput) -> ForkRelation | None:
    project = await find_project(info.context, input.project_path, Action.OWN_PROJECT)
    return await forks.unlink_fork(info.context, project)


@strawberry.type
class ForkMutations:
    link_fork = link_fork
    unlink_fork = unlink_fork
