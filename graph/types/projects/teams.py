"""The team of a project, and the viewer's place in it."""

from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import computed
from graph.rules.projects import teams
from graph.types.accounts.members import AccessLevel
from storage import tables


@strawberry.type(description="Memberships of the viewer that give access to a project.")
class ViewerMembership:
    project_level_value: int | None = strawberry.field(
        description="Access level as a member of the project, as in v3; null if not a member. The owner of a personal project has 50."
    )
    group_level_value: int | None = strawberry.field(
        description="Access level as a member of the group of the project, as in v3; null if not a member."
    )

    @strawberry.field(description="Access level as a member of the project; null if not a member.")
    def project_level(self) -> AccessLevel | None:  # type: ignore[valid-type]
        return None if self.project_level_value is None else tables.AccessLevel(self.project_level_value)

    @strawberry.field(description="Access level as a member of the group of the project; null if not a member.")
    def group_level(self) -> AccessLevel | None:  # type: ignore[valid-type]
        return None if self.group_level_value is None else tables.AccessLevel(self.group_level_value)


@strawberry.type
class ProjectTeamFields:
    """Fields of a project about its team."""

    @computed(
        tables.Project.id,
        batch=lambda info, rows: load_memberships(info, [row.id for row in rows]),
        description="Memberships of the viewer.",
    )
    async def viewer_membership(self, info: Info) -> ViewerMembership:
        project: Any = self
        return (await load_memberships(info, [project.id]))[0]


async def load_memberships(info: Info, project_ids: list[int]) -> list[ViewerMembership]:
    found = await teams.load_memberships(info.context, project_ids)
    return [ViewerMembership(project_level_value=each.project_level, group_level_value=each.group_level) for each in found]
