"""Whether a merge request can be merged: permissions, state, and whether git can merge its branches."""

from collections.abc import Callable
from typing import TypeVar

import structlog

from graph.context import Context
from graph.errors import Forbidden, NotAllowed, NotMergeable, Unavailable
from graph.rules.git import ref_updates, refs
from graph.rules.git.commits import run_in_repository, use_repository
from graph.rules.git.ref_updates import BranchOperation
from graph.rules.permissions.policy import Action, can, load_project_of
from graph.rules.states import is_work_in_progress
from storage import tables
from storage.git import merge, merge_preview
from storage.git.commit_writer import CommitSignature
from storage.git.merge import MergeConflict, UnrelatedHistories
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables.merge_requests.merge_requests import OPEN

T = TypeVar("T")

CANNOT_MERGE_MESSAGE = "Branch cannot be merged"

log = structlog.get_logger("graph")


async def can_accept(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may merge into the target branch, regardless of the merge request's state."""
    project = await load_project_of(context, merge_request)
    if not await can(context, Action.READ_MERGE_REQUEST, project):
        return False
    return BranchOperation.PUSH in await ref_updates.allowed_operations(context, project, merge_request.target_branch)


async def require_right_to_accept(context: Context, merge_request: tables.MergeRequest) -> None:
    """Raises Forbidden if the viewer may not merge. Its subject is Branch, because v3 answers 401 then, also in an update."""
    if not await can_accept(context, merge_request):
        raise Forbidden("You are not allowed to merge into this branch.", subject="Branch")


async def require_acceptable(context: Context, merge_request: tables.MergeRequest) -> None:
    """Raises Forbidden if the viewer may not merge, NotAllowed if it is not open or not ready."""
    await require_right_to_accept(context, merge_request)
    if merge_request.state not in OPEN:
        raise NotAllowed(None, f"The merge request is already {merge_request.state}.")
    if is_work_in_progress(merge_request.title):
        raise NotAllowed(None, "The merge request is marked as work in progress.")


def default_message(merge_request: tables.MergeRequest) -> str:
    """The default message of the merge commit (docs/wire-facts.md 5.3)."""
    first = f"Merge branch '{merge_request.source_branch}' into '{merge_request.target_branch}'"
    parts = (first, merge_request.title, (merge_request.description or "").strip(), f"See merge request !{merge_request.iid}")
    return "\n\n".join(part for part in parts if part)


async def read_head(context: Context, merge_request: tables.MergeRequest) -> str | None:
    """The current head of the source branch; None when the branch or its project is deleted."""
    return await refs.find(context, merge_request.source_project_id, BRANCHES + merge_request.source_branch)


async def read_target(context: Context, merge_request: tables.MergeRequest) -> str | None:
    """The current head of the target branch; None when the branch is deleted."""
    return await refs.find(context, merge_request.project_id, BRANCHES + merge_request.target_branch)


async def require_mergeable(context: Context, merge_request: tables.MergeRequest, source: str) -> None:
    """Raises NotMergeable when merging `source` now would fail or have no effect, Unavailable."""

    old = await read_target(context, merge_request)

    def work(repository: Repository) -> bool:
        return old is not None and not merge.is_ancestor(repository, source, old) and merge.try_merge(repository, old, source).mergeable

    try:
        is_mergeable = await _run_with_source(context, merge_request, source, work)
    except (UnknownCommit, GitCommandError) as error:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE) from error
    if not is_mergeable:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)


async def create_merge_commit(context: Context, merge_request: tables.MergeRequest, source: str, old: str, message: str | None) -> str:
    """Write the commit that merges `source` into `old`, the head of the target. Raises NotMergeable, Unavailable.

    A target that already contains the source cannot be merged either.
    """
    signature = CommitSignature(context.viewer.name, context.viewer.email, context.now())
    commit_message = message if message and message.strip() else default_message(merge_request)

    def work(repository: Repository) -> str | None:
        if merge.is_ancestor(repository, source, old):
            return None
        return merge.write_merge(repository, old, source, commit_message, signature, signature)

    try:
        new = await _run_with_source(context, merge_request, source, work)
    except GitCommandError as error:
        log.warning("merge commit could not be created", merge_request_id=merge_request.id, request_id=context.request_id, error=str(error))
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE) from error
    except (MergeConflict, UnrelatedHistories, UnknownCommit) as error:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE) from error
    except OSError as error:
        log.error("merge commit could not be written", merge_request_id=merge_request.id, request_id=context.request_id, error=str(error))
        raise Unavailable("The disk of the service is full or cannot be written; nothing was merged.") from error
    if new is None:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    return new


async def _run_with_source(context: Context, merge_request: tables.MergeRequest, source: str, work: Callable[[Repository], T]) -> T:
    """Run `work` on the target's repository, after fetching the commit of a fork if it is missing there. Raises Unavailable."""
    if merge_request.source_project_id == merge_request.project_id:
        return await run_in_repository(context, merge_request.project_id, work)

    def fetch_and_work(repository: Repository) -> T:
        merge_preview.fetch_commit(repository, path, source)
        return work(repository)

    async with use_repository(context, merge_request.source_project_id) as path:
        return await run_in_repository(context, merge_request.project_id, fetch_and_work)
