"""The team of a project: its members, those of its group, and the owner of its personal namespace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graph.context import Context
from storage.tables.accounts import members


@dataclass(frozen=True, slots=True)
class MembershipLevels:
    """The levels of the viewer as a member of a project and as a member of its group; None without the membership."""

    project_level: int | None
    group_level: int | None


NO_MEMBERSHIP = MembershipLevels(None, None)


async def load_memberships(context: Context, project_ids: Sequence[int]) -> list[MembershipLevels]:
    """The memberships of the viewer in each project; one statement for all projects of a level."""

    async def fetch(ids: list[int]) -> Mapping[int, MembershipLevels]:
        rows = await context.tuples(members.membership_levels(context.viewer.id, ids))
        return {key: MembershipLevels(in_project, in_group) for key, in_project, in_group in rows}

    found = await context.loader("viewer memberships", fetch).get_many(project_ids)
    return [found[key] or NO_MEMBERSHIP for key in project_ids]
