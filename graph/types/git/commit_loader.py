"""Loads commits for fields: from the index if it has every requested field, otherwise from git."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph.context import Info
from graph.fields.declarations import IndexedBy
from graph.fields.selections import SelectionShape, selects_only
from graph.operations.loaders import Loader
from graph.rules.git import commits
from graph.rules.git.indexed_commits import SHORT_OID_LENGTH, IndexedCommit, may_be_clamped, may_be_truncated, with_offset
from storage import tables

if TYPE_CHECKING:
    from graph.types.git.commits import Commit

INDEXED_FIELDS: SelectionShape = dict.fromkeys(
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
"""Fields of a commit that need no repository."""
FIELDS_WITHOUT_CHECKS: SelectionShape = {name: None for name in INDEXED_FIELDS if name not in ("status", "allowFailure", "rollup")}
"""Those of INDEXED_FIELDS that need no checks."""
GIT_ONLY_FIELDS = frozenset(("message", "parentOids", "diff"))
"""Fields that are read from git."""


def _shorten_oid(oid: str) -> str:
    return oid[:SHORT_OID_LENGTH]


KEY_COLUMNS = ("project_id", "oid")
SIGNATURE_COLUMNS = ("author_name", "author_email", "committer_name", "committer_email")
COMMIT_INDEX = IndexedBy(
    table=tables.Commit,
    key_columns=(tables.Commit.project_id, tables.Commit.oid),
    fields=frozenset(FIELDS_WITHOUT_CHECKS),
    row_class=IndexedCommit,
    attributes={
        **{name: ((name,), None) for name in (*KEY_COLUMNS, "title", *SIGNATURE_COLUMNS)},
        "short_oid": (("oid",), _shorten_oid),
        "authored_at": (("authored_at", "authored_offset"), with_offset),
        "committed_at": (("committed_at", "committed_offset"), with_offset),
    },
    properties={"id": KEY_COLUMNS, "key": KEY_COLUMNS},
    policy_columns=("project_id",),
    offset_columns={"authored_at": "authored_offset", "committed_at": "committed_offset"},
    incomplete_if={**dict.fromkeys(SIGNATURE_COLUMNS, may_be_truncated), **dict.fromkeys(("authored_at", "committed_at"), may_be_clamped)},
)
"""How plans join the index to rows that refer to commits, by project id and commit id."""

INDEXED_PAGE_FIELDS: SelectionShape = {
    "__typename": None,
    "totalCount": None,
    "pageInfo": None,
    "nodes": INDEXED_FIELDS,
    "edges": {"__typename": None, "cursor": None, "node": INDEXED_FIELDS},
}


async def load_commit(info: Info, project_id: int, oid: str | None) -> "Commit | None":
    """The commit of a field, batched per level; None without one, or if neither index nor git has it.

    Raises Unavailable.
    """
    return commits.raise_if_error(await _commit_loader(info).get((project_id, oid))) if oid is not None else None


async def load_commits(info: Info, keys: Sequence[tuple[int, str | None]]) -> "list[Commit | None]":
    """`load_commit` for each of these (project id, commit id)."""
    read = await _commit_loader(info).get_many({key for key in keys if key[1] is not None})
    return [commits.raise_if_error(read.get(key)) for key in keys]


def _commit_loader(info: Info) -> Loader[Any, Any]:
    return commits.commit_loader(
        info.context, from_index=selects_only(info, INDEXED_FIELDS), with_checks=not selects_only(info, FIELDS_WITHOUT_CHECKS)
    )


def is_page_indexed(info: Info) -> bool:
    """Whether the index has every field requested of the commits in a connection's page."""
    return selects_only(info, INDEXED_PAGE_FIELDS)
