"""Commits as fields show them: from the index where it tells all that is asked, else from git."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from graph.context import Info
from graph.declare import Told
from graph.loading import Loader
from graph.rules import commits
from graph.rules.indexed_commits import SHORT, IndexedCommit, may_be_cut, may_be_moved, zoned
from graph.scalars import spell_instant
from graph.selecting import Shape, asks_only
from storage import tables

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
        "webUrl",
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
UNCHECKED: Shape = {name: None for name in INDEXED if name not in ("status", "allowFailure", "rollup")}
"""Those of them that need nothing of its checks."""
WHOLE = frozenset(("message", "parentOids", "diff"))
"""Those that git tells."""


def _spelled(moment: datetime, offset: int) -> str:
    return spell_instant(zoned(moment.replace(tzinfo=UTC), offset))


def _short(oid: str) -> str:
    return oid[:SHORT]


OIDS = ("project_id", "oid")
TEXTS = ("author_name", "author_email", "committer_name", "committer_email")
TOLD = Told(
    table=tables.Commit,
    by=(tables.Commit.project_id, tables.Commit.oid),
    fields=frozenset(UNCHECKED),
    row=IndexedCommit,
    attributes={
        **{name: ((name,), None) for name in (*OIDS, "title", *TEXTS)},
        "short_oid": (("oid",), _short),
        "authored_at": (("authored_at", "authored_offset"), zoned),
        "committed_at": (("committed_at", "committed_offset"), zoned),
    },
    properties={"id": OIDS, "key": OIDS},
    judged=("project_id",),
    offsets={"authored_at": "authored_offset", "committed_at": "committed_offset"},
    spell=_spelled,
    unless={**dict.fromkeys(TEXTS, may_be_cut), **dict.fromkeys(("authored_at", "committed_at"), may_be_moved)},
)
"""How the index tells of commits beside the rows that name them, by their project and their id."""

PAGE: Shape = {
    "__typename": None,
    "totalCount": None,
    "pageInfo": None,
    "nodes": INDEXED,
    "edges": {"__typename": None, "cursor": None, "node": INDEXED},
}


async def commit_of(info: Info, project_id: int, oid: str | None) -> "Commit | None":
    """The commit of a field, among others of its level; None without one, and where neither has it. Raises Unavailable."""
    return commits.or_raise(await _loader(info).get((project_id, oid))) if oid is not None else None


async def commits_of(info: Info, keys: Sequence[tuple[int, str | None]]) -> "list[Commit | None]":
    """`commit_of` each of these (project id, id of the commit)."""
    read = await _loader(info).get_many({key for key in keys if key[1] is not None})
    return [commits.or_raise(read.get(key)) for key in keys]


def _loader(info: Info) -> Loader[Any, Any]:
    return commits.loader_of(info.context, told=asks_only(info, INDEXED), checked=not asks_only(info, UNCHECKED))


def is_told(info: Info) -> bool:
    """Whether the index tells all that is asked of the commits of a connection's page."""
    return asks_only(info, PAGE)
