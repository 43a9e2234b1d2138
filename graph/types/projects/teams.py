"""The team of a project, and the viewer's place in it."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import computed, connection_field, make_window
from graph.fields.row_sources import FromSql
from graph.rules.permissions.policy import Action, require
from graph.rules.projects import teams
from graph.rules.search_terms import validate_search
from graph.types.accounts.members import AccessLevel
from graph.types.accounts.users import User
from storage import tables
from storage.tables.accounts import members


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


async def _resolve_team(root: Any, info: Info, *, search: str | None, **arguments: Any) -> Any:
    await require(info.context, Action.READ_PROJECT_MEMBER, root)
    string = validate_search(search) if search else None
    return await teams.load_team_page(info.context, root, make_window(arguments), string)


@strawberry.type
class ProjectTeamFields:
    """Fields of a project about its team."""

    team: Connection[User] = connection_field(
        _resolve_team,
        description="Members of the project and of its group, and the owner of a personal project; oldest account first.",
        extra_arguments={
            "search": (
                Annotated[
                    str | None,
                    strawberry.argument(
                        description="Part of the username, or a whole e-mail address; for administrators also parts of names and addresses."
                    ),
                ],
                None,
            )
        },
    )

    @computed(
        tables.Project.id,
        batch=lambda info, rows: load_memberships(info, [row.id for row in rows]),
        from_row=FromSql(
            lambda project, viewer: [*members.membership_levels(viewer.id, project)] * 2,
            fields=("projectLevelValue", "groupLevelValue", "projectLevel", "groupLevel"),
        ),
        description="Memberships of the viewer.",
    )
    async def viewer_membership(self, info: Info) -> ViewerMembership:
        project: Any = self
        return (await load_memberships(info, [project.id]))[0]


async def load_memberships(info: Info, project_ids: list[int]) -> list[ViewerMembership]:
    found = await teams.load_memberships(info.context, project_ids)
    return [ViewerMembership(project_level_value=each.project_level, group_level_value=each.group_level) for each in found]
