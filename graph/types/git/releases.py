"""Releases of tags."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.errors import Conflict
from graph.fields.declarations import column, computed
from graph.fields.entities import Node, entity
from graph.fields.mutations import mutation
from graph.rules.git import releases
from graph.rules.permissions.policy import Action
from graph.types.inputs import ProjectInput, find_project
from graph.types.markdown import markdown_html
from storage import tables


@entity(
    tables.Release,
    description="Release notes of a tag. They are deleted with the tag.",
    project_key="project_id",
    action=Action.READ_CODE,
)
class Release(Node):
    tag_name: str = column(tables.Release.tag, description="Name of the tag, without `refs/tags/`.")
    description: str = column(description="Release notes.")
    description_html: str = markdown_html(tables.Release.project_id, tables.Release.description, description="Release notes")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")

    @computed(tables.Release.project_id, description="Path of the tags in the v3 API, which has no path of a release itself.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/repository/tags"  # type: ignore[attr-defined]


@strawberry.input
class ReleaseInput(ProjectInput):
    tag_name: str = strawberry.field(description="Name of the tag, without `refs/tags/`.")
    description: str = strawberry.field(description="Release notes.")


@strawberry.input(description="Input of `createRelease`.")
class CreateReleaseInput(ReleaseInput):
    pass


@strawberry.input(description="Input of `updateRelease`.")
class UpdateReleaseInput(ReleaseInput):
    pass


@mutation(
    entity="release",
    returns=Release,
    entity_description="The created release.",
    description="Writes release notes for a tag that has none. Requires permission to push.",
    conflict=Conflict("tagName", "Release already exists"),
)
async def create_release(info: Info, input: CreateReleaseInput) -> tables.Release:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    return await releases.create_release(info.context, project, input.tag_name, input.description)


@mutation(
    entity="release",
    returns=Release,
    entity_description="The updated release.",
    description="Changes the release notes of a tag. Requires permission to push.",
)
async def update_release(info: Info, input: UpdateReleaseInput) -> tables.Release:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    return await releases.update_release(info.context, project, input.tag_name, input.description)


@strawberry.type
class ReleaseMutations:
    create_release = create_release
    update_release = update_release
