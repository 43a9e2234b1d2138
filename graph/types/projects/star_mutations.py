"""Starring projects."""

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.projects import stars
from graph.types.inputs import ProjectInput
from graph.types.projects.projects import Project
from storage import tables


@strawberry.input(description="Input of `starProject`.")
class StarProjectInput(ProjectInput):
    pass


@strawberry.input(description="Input of `unstarProject`.")
class UnstarProjectInput(ProjectInput):
    pass


@mutation(
    entity="project",
    returns=Project,
    entity_description="The starred project.",
    description="Stars a project for the viewer. Does nothing if the viewer has already starred it.",
)
async def star_project(info: Info, input: StarProjectInput) -> tables.Project:
    project = await lookup.get_project(info.context, input.project_path)
    return await stars.star_project(info.context, project)


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project.",
    description="Removes the star of the viewer from a project. Does nothing if there is none.",
)
async def unstar_project(info: Info, input: UnstarProjectInput) -> tables.Project:
    project = await lookup.get_project(info.context, input.project_path)
    return await stars.unstar_project(info.context, project)


@strawberry.type
class StarMutations:
    star_project = star_project
    unstar_project = unstar_project
