"""Files of merge requests that the viewer has viewed. A mark ends when the file changes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graph.context import Context
from graph.errors import Conflict, Invalid, UnreadableRepository
from graph.rules import validation
from graph.rules.git.commits import run_in_repository
from storage import tables
from storage.git import trees
from storage.git.refs.ref_names import NULL_ID
from storage.git.repository import Repository, UnknownCommit
from storage.tables.merge_requests import viewed_files


class ComparedCommits(NamedTuple):
    """A merge request and the commits whose difference it shows."""

    merge_request_id: int
    project_id: int
    base_oid: str | None
    head_oid: str | None

    @classmethod
    def of(cls, row: tables.MergeRequest) -> "ComparedCommits":
        return cls(row.id, row.project_id, row.base_oid, row.head_oid)


async def mark_file(context: Context, row: tables.MergeRequest, path: str, head_oid: str, is_viewed: bool) -> None:
    """Mark a file of the merge request as viewed by the viewer, or remove the mark.

    Raises Conflict if the head is not `head_oid`, Invalid for a file that the merge request does not change, Unavailable.
    """
    validation.validate_string("path", path)
    if row.head_oid is None or row.head_oid != head_oid.lower():
        raise Conflict("headOid", "The merge request has new commits. Reload it and retry.")
    blob = (await _read_changed_blobs(context, ComparedCommits.of(row), [path])).get(path)
    if blob is None:
        raise Invalid("path", "The merge request does not change this file")
    statement = viewed_files.remove(context.viewer.id, row.id, path)
    if is_viewed:
        statement = viewed_files.upsert(context.services.database.dialect, context.viewer.id, row.id, path, blob)
    await context.session.execute(statement)


async def load_viewed_paths(context: Context, row: tables.MergeRequest) -> list[str]:
    """The paths that the viewer has marked and that have not changed since, in the order of the marks. Raises Unavailable."""
    if context.viewer_or_none is None:
        return []
    user_id = context.viewer_or_none.id

    async def fetch(keys: list[ComparedCommits]) -> Mapping[ComparedCommits, list[str]]:
        marks: defaultdict[int, dict[str, str]] = defaultdict(dict)
        for number, path, blob in await context.tuples(viewed_files.of_user(user_id, [key.merge_request_id for key in keys])):
            marks[number][path] = blob
        found = {}
        for key in keys:
            if own := marks.get(key.merge_request_id):
                current = await _read_changed_blobs(context, key, own)
                found[key] = [path for path, blob in own.items() if current.get(path) == blob]
        return found

    return await context.loader("viewed files", fetch).get(ComparedCommits.of(row)) or []


async def _read_changed_blobs(context: Context, commits: ComparedCommits, paths: Iterable[str]) -> dict[str, str]:
    """The blob ids at the head of those of these files that the merge request changes; NULL_ID of one that it deletes."""
    base, head = commits.base_oid, commits.head_oid
    if head is None:
        return {}
    requested = list(paths)

    def work(repository: Repository) -> dict[str, str]:
        found = {}
        for path in requested:
            before = trees.find_blob(repository, base, path) if base is not None else None
            after = trees.find_blob(repository, head, path)
            if before != after:
                found[path] = after[0] if after is not None else NULL_ID
        return found

    try:
        return await run_in_repository(context, commits.project_id, work, cancellable=True)
    except UnknownCommit as error:
        raise UnreadableRepository from error
