"""What the statement of a page of projects reads beside their columns, because fields below the page ask for it.

The loaders that those fields ask are primed with it. Without, each of them runs a statement of its own for the projects of the page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, bindparam, select
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connections import KeysetListing, Window
from graph.fields.selections import selected_below
from graph.operations.loaders import Loader
from graph.rules.projects import forks, stars, teams
from storage import tables
from storage.database.statement_cache import mark_constant
from storage.tables.accounts import members
from storage.tables.issues import issues
from storage.tables.projects import stars as star_rows

VIEWER_ID: Any = bindparam("viewer_id", type_=Integer)
"""The parameter of the statements that is the id of the viewer."""


@dataclass(frozen=True, eq=False)
class Detail:
    """A part of each project. `fields` are those that ask for it.

    `select(is_admin)` returns its columns in a statement on `Project`. `prime(context, project, values)` tells the loaders their values.
    """

    fields: frozenset[str]
    select: Callable[[bool], list[Any]]
    prime: Callable[..., None]
    width: int = 1
    """The number of its columns; a row counts as one."""


def _prime_row(table: type[tables.Namespace | tables.User]) -> Callable[..., None]:
    def prime(context: Context, project: tables.Project, row: Any) -> None:
        if row is not None:
            context.rows_by_id(table).prime_if_absent(row.id, row)

    return prime


def _prime_membership(context: Context, project: tables.Project, in_project: int | None, in_group: int | None) -> None:
    levels = teams.record_membership(context, project.id, in_project, in_group)
    teams.membership_loader(context).prime(project.id, levels)


_PATHS = ("fullPath", "nameWithNamespace", "webUrl", "httpUrlToRepo", "sshUrlToRepo")
NAMESPACE = Detail(frozenset(("namespace", "owner", *_PATHS)), lambda is_admin: [tables.Namespace], _prime_row(tables.Namespace))
OWNER = Detail(frozenset(("owner",)), lambda is_admin: [tables.User], _prime_row(tables.User))
MEMBERSHIP = Detail(
    frozenset(("viewerMembership", "viewerAccessLevel", "viewerCan", "openIssuesCount")),
    lambda is_admin: [*members.membership_levels(VIEWER_ID)],
    _prime_membership,
    width=2,
)
STARS = Detail(
    frozenset(("starCount",)),
    lambda is_admin: [star_rows.star_count()],
    lambda context, project, count: stars.count_loader(context).prime(project.id, count),
)
FORKS = Detail(
    frozenset(("forkCount",)),
    lambda is_admin: [members.fork_count() if is_admin else members.fork_count(VIEWER_ID)],
    lambda context, project, count: forks.count_loader(context).prime(project.id, count),
)
OPEN_ISSUES = Detail(
    frozenset(("openIssuesCount",)),
    lambda is_admin: [issues.open_count()],
    lambda context, project, count: open_issues_loader(context).prime(project.id, count),
)
DETAILS = (NAMESPACE, OWNER, MEMBERSHIP, STARS, FORKS, OPEN_ISSUES)
NODE_PATHS = ("nodes", "edges.node")


def open_issues_loader(context: Context) -> Loader[int, int]:
    """The loader of the numbers of open issues by project id; None for none."""

    async def fetch(ids: list[int]) -> dict[int, int]:
        return dict(map(tuple, await context.tuples(issues.OPEN_COUNTS, project_ids=ids)))

    return context.loader("open issues", fetch)


def details_selected(info: Info) -> tuple[Detail, ...]:
    """The details that the nodes of a connection are asked for."""
    names = selected_below(info, NODE_PATHS)
    return tuple(each for each in DETAILS if not each.fields.isdisjoint(names))


def prime_details(context: Context, details: Sequence[Detail], rows: Sequence[Any]) -> None:
    """Tells the loaders what the rows of a `page_statement` have beside the projects."""
    position = 1
    for detail in details:
        end = position + detail.width
        for row in rows:
            detail.prime(context, row[0], *row[position:end])
        position = end


def page_statement(listing: KeysetListing, window: Window, details: tuple[Detail, ...], *, is_admin: bool) -> Any:
    """The constant statement of a page without cursors, from the parameter `offset` on: the projects with these details.

    The ids of the page are a subquery, because SQLite counts before it sorts and cuts off.
    """
    project: Any = tables.Project
    ordered = listing.order_by(window)
    page = select(col(project.id)).where(*listing.conditions).order_by(*ordered).limit(window.size + 1)
    ids = page.offset(bindparam("offset", type_=Integer)).subquery("page")
    values = [value for detail in details for value in detail.select(is_admin)]
    statement = select(project, *values).join_from(ids, project, ids.c.id == col(project.id))
    if NAMESPACE in details:
        statement = statement.join(tables.Namespace, col(tables.Namespace.id) == col(project.namespace_id))
    if OWNER in details:
        statement = statement.outerjoin(tables.User, col(tables.User.id) == col(tables.Namespace.owner_id))
    return mark_constant(statement.order_by(*ordered))
