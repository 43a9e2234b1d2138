"""Imports of projects, their members and stars."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.groups import PROJECT_MEMBERS
from graph.rules.imports.projects import STARS
from graph.rules.imports.projects import import_projects as write_projects
from graph.types.accounts.members import AccessLevel
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional, sent_values
from graph.types.visibility import Visibility


@strawberry.input(description="A project of the source.")
class ImportProjectInput:
    source_id: strawberry.ID = source_id()
    namespace_id: strawberry.ID | None = optional("The source's ID of the group or personal namespace.")
    namespace_path: str | None = optional("Path of a namespace of this instance, instead of `namespaceId`.")
    creator_id: strawberry.ID | None = optional("The source's ID of the user who created it.")
    forked_from_id: strawberry.ID | None = optional("The source's ID of the project that it is a fork of.")
    name: str = strawberry.field(description="Name.")
    path: str = strawberry.field(description="Last segment of the full path.")
    description: str | None = optional("Description.")
    visibility: Visibility = strawberry.field(description="Visibility.")  # type: ignore[valid-type]
    default_branch: str | None = optional("Branch that HEAD names until the repository is imported.")
    issues_enabled: bool | None = optional("Whether issues are enabled; default: true.")
    merge_requests_enabled: bool | None = optional("Whether merge requests are enabled; default: true.")
    builds_enabled: bool | None = optional("Whether builds are enabled; default: true.")
    wiki_enabled: bool | None = optional("Whether the wiki is enabled; default: true.")
    snippets_enabled: bool | None = optional("Whether snippets are enabled; default: true.")
    shared_runners_enabled: bool | None = optional("Whether shared runners run its builds; default: true.")
    public_builds: bool | None = optional(
        "Whether builds are visible to everyone who can see the internal or public project; default: true."
    )
    archived: bool | None = optional("Whether it is archived.")
    avatar_url: str | None = optional("URL of the avatar; http or https.")
    tag_list: list[str] | None = optional("Tags.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")
    last_activity_at: datetime | None = optional("When something last happened in it.")


@strawberry.input(description="Input of `importProjects`.")
class ImportProjectsInput(ImportInput):
    items: list[ImportProjectInput] = strawberry.field(description="The projects; 1 to 100.")


@mutation(**RESULTS, description="Imports projects. Each has an empty repository. Administrators only, while the import runs.")
async def import_projects(info: Info, input: ImportProjectsInput) -> list[ItemResult]:
    return await write_projects(info.context, input.import_id, [sent_values(each) for each in input.items])


@strawberry.input(description="A member of a project.")
class ImportProjectMemberInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it has one; with kept IDs that of the row.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    user_id: strawberry.ID = strawberry.field(description="The source's ID of the user.")
    access_level: AccessLevel = strawberry.field(description="Access level; an owner becomes a master.")  # type: ignore[valid-type]
    created_at: datetime | None = optional("When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importProjectMembers`.")
class ImportProjectMembersInput(ImportInput):
    items: list[ImportProjectMemberInput] = strawberry.field(description="The members of projects; 1 to 100.")


@mutation(**RESULTS, description="Imports members of projects. Administrators only, while the import runs.")
async def import_project_members(info: Info, input: ImportProjectMembersInput) -> list[ItemResult]:
    return await write_inputs(info, PROJECT_MEMBERS, input.import_id, input.items)


@strawberry.input(description="A star of a project.")
class ImportProjectStarInput:
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    user_id: strawberry.ID = strawberry.field(description="The source's ID of the user.")
    created_at: datetime | None = optional("When it was created.")


@strawberry.input(description="Input of `importProjectStars`.")
class ImportProjectStarsInput(ImportInput):
    items: list[ImportProjectStarInput] = strawberry.field(description="The stars of projects; 1 to 100.")


@mutation(**RESULTS, description="Imports stars of projects. Administrators only, while the import runs.")
async def import_project_stars(info: Info, input: ImportProjectStarsInput) -> list[ItemResult]:
    return await write_inputs(info, STARS, input.import_id, input.items)


@strawberry.type
class ImportProjectMutations:
    import_projects = import_projects
    import_project_members = import_project_members
    import_project_stars = import_project_stars
