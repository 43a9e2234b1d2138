"""The team of a project: its members, those of its group, and the owner of its personal namespace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlmodel import col

from graph.context import Context
from graph.fields.connection_pages import ConnectionPage, Window, make_page
from graph.fields.keyset_listing import KeysetListing, Order
from graph.operations.loaders import Loader
from graph.rules.permissions.policy import project_level_loader
from storage import tables
from storage.tables.accounts import members, users


@dataclass(frozen=True, slots=True)
class MembershipLevels:
    """The levels of the viewer as a member of a project and as a member of its group; None without the membership."""

    project_level: int | None
    group_level: int | None


NO_MEMBERSHIP = MembershipLevels(None, None)


async def load_memberships(context: Context, project_ids: Sequence[int]) -> list[MembershipLevels]:
    """The memberships of the viewer in each project, which also prime the access levels; one statement for all projects of a level."""
    found = await membership_loader(context).get_many(project_ids)
    return [found[key] or NO_MEMBERSHIP for key in project_ids]


def membership_loader(context: Context) -> Loader[int, MembershipLevels]:
    """The loader of the viewer's memberships by project id, which also primes the access levels."""

    async def fetch(ids: list[int]) -> Mapping[int, MembershipLevels]:
        rows = await context.tuples(members.MEMBERSHIP_LEVELS, user_id=context.viewer.id, project_ids=ids)
        return {key: record_membership(context, key, in_project, in_group) for key, in_project, in_group in rows}

    return context.loader("viewer memberships", fetch)


def record_membership(context: Context, project_id: int, in_project: int | None, in_group: int | None) -> MembershipLevels:
    """The viewer's levels in a project as one value; they prime the access level too."""
    if not context.viewer.admin:
        project_level_loader(context).prime(project_id, max(in_project or 0, in_group or 0))
    return MembershipLevels(in_project, in_group)


async def load_team_page(context: Context, project: tables.Project, window: Window, search: str | None) -> ConnectionPage:
    """A page of the users in the team of a project, oldest account first; one statement for all projects of a level.

    `search` is a part of the username or a whole e-mail address; administrators search parts of names and addresses too.
    """
    listing = KeysetListing(tables.User, Order(tables.User.id))
    conditions: list[Any] = [users.search(search, all_fields=context.viewer.admin)] if search else []

    team = members.TEAM_MEMBERS

    async def fetch(ids: list[int]) -> Mapping[int, list[tables.User]]:
        number = func.row_number().over(partition_by=team.c.project_id, order_by=listing.order_by(window)).label("number")
        ranked = select(team.c.project_id, team.c.user_id, number).join(tables.User, col(tables.User.id) == team.c.user_id)
        page = ranked.where(*conditions, *listing.cursor_conditions(window)).subquery("page")
        statement = select(page.c.project_id, tables.User).join(page, page.c.user_id == col(tables.User.id))
        last = window.offset + window.size + 1
        found: dict[int, list[tables.User]] = {}
        for key, user in await context.tuples(
            statement.where(page.c.number > window.offset, page.c.number <= last).order_by(page.c.project_id, page.c.number),
            project_ids=ids,
        ):
            found.setdefault(key, []).append(user)
        return found

    async def fetch_counts(ids: list[int]) -> Mapping[int, int]:
        counted = select(team.c.project_id, func.count()).join(tables.User, col(tables.User.id) == team.c.user_id)
        return dict(map(tuple, await context.tuples(counted.where(*conditions).group_by(team.c.project_id), project_ids=ids)))

    async def count() -> int:
        return await context.loader(("team counts", search), fetch_counts).get(project.id) or 0

    rows = await context.loader(("teams", window, search), fetch).get(project.id) or []
    return make_page(rows, window, listing.cursor, count)
