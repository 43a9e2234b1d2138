"""Commits as fields show them: from the index where it tells all that is asked, else from git."""

from typing import TYPE_CHECKING

from graph.context import Info
from graph.rules import commits
from graph.selecting import Shape, asks_only

if TYPE_CHECKING:
    from graph.types.commits import Commit

INDEXED: Shape = dict.fromkeys(
    (
        "__typename",
        "id",
        "oid",
        "shortOid",
        "title",
        "authorName",
        "authorEmail",
        "authoredAt",
        "committerName",
        "committerEmail",
        "committedAt",
        "restPath",
        "project",
        "author",
        "comments",
        "commentCount",
        "status",
        "statuses",
        "allowFailure",
        "rollup",
        "pipelines",
        "builds",
        "mergeRequests",
        "viewerCan",
    )
)
"""The fields of a commit that need nothing of its repository."""
WHOLE = frozenset(("message", "parentOids", "diff"))
"""Those that git tells."""

PAGE: Shape = {
    "__typename": None,
    "totalCount": None,
    "pageInfo": None,
    "nodes": INDEXED,
    "edges": {"__typename": None, "cursor": None, "node": INDEXED},
}


async def commit_of(info: Info, project_id: int, oid: str | None) -> "Commit | None":
    """The commit of a field, among others of its level; None without one, and where neither has it. Raises Unavailable."""
    if oid is None:
        return None
    read = commits.told if asks_only(info, INDEXED) else commits.by_oid
    return await read(info.context, (project_id, oid))  # type: ignore[return-value]


def is_told(info: Info) -> bool:
    """Whether the index tells all that is asked of the commits of a connection's page."""
    return asks_only(info, PAGE)
