"""Filters of subscriptions to builds, merge requests, issues and branches, and the visibility of each change."""

from collections.abc import Sequence

from graph.context import Context
from graph.errors import BadRequest, Forbidden, LimitExceeded, NotFound, OperationError
from graph.live.broadcaster import ChangeFilter
from graph.live.change_log import LoggedChange
from graph.live.trace_feeds import MAX_POSITION_DIGITS, TraceFilter, TracePiece
from graph.operations.loaders import Loader
from graph.rules import lookup
from graph.rules.branches.branches import BranchRef
from graph.rules.builds import builds, commit_checks
from graph.rules.git import commits
from graph.rules.git.refs import current_of_projects
from graph.rules.permissions.policy import Action, can, can_see_project, require
from storage import tables
from storage.git.refs.ref_names import BRANCHES
from storage.tables import ChangeKind
from storage.tables.base import Row

MAX_PROJECTS = 50
MAX_REFS = 100

REQUIRED_ACTIONS: dict[ChangeKind, tuple[Action, ...]] = {
    ChangeKind.BUILD: (Action.READ_BUILD,),
    ChangeKind.MERGE_REQUEST: (Action.READ_MERGE_REQUEST,),
    ChangeKind.ISSUE: (Action.READ_ISSUE,),
    ChangeKind.BRANCH: (Action.READ_CODE, Action.READ_CHECKS),
}
"""Actions that the viewer must be allowed to perform to receive changes of a kind."""


async def build_filter(
    context: Context, kind: ChangeKind, projects: Sequence[str] | None, after_seq: str | None, refs: Sequence[str | None] | None = None
) -> ChangeFilter:
    """Build the filter of a subscription.

    Raises NotFound or Forbidden for a project in which the viewer may not see objects of this kind, BadRequest, LimitExceeded.
    """
    for label, names, maximum in (("projects", projects, MAX_PROJECTS), ("refs", refs, MAX_REFS)):
        if names is not None and len(names) > maximum:
            raise LimitExceeded(f"At most {maximum} {label} can be given. Give none to follow all, or open another subscription.")
    ids: set[int] | None = None if projects is None else set()
    for path in dict.fromkeys(projects or ()):
        found = await lookup.get_project(context, path)
        for action in REQUIRED_ACTIONS[kind]:
            await require(context, action, found)
        assert ids is not None  # noqa: S101
        ids.add(found.id)
    return ChangeFilter(
        kind,
        frozenset(ids) if ids is not None else None,
        frozenset(refs) if refs is not None else None,
        parse_sequence_number(after_seq) if after_seq is not None else None,
    )


async def trace_filter(context: Context, project: str, build_id: int, after: str | None) -> TraceFilter:
    """Build the filter of a subscription to the trace of a build.

    Raises NotFound or Forbidden like a read of the trace, BadRequest.
    """
    found = await lookup.get_project(context, project)
    await require(context, Action.READ_BUILD, found)
    build = await builds.get_build(context, found, build_id)
    if after is not None and not (after.isascii() and after.isdigit() and len(after) <= MAX_POSITION_DIGITS):
        raise BadRequest("`afterBytes` must be the `position` or the `endBytes` of a piece you received, or 0.")
    return TraceFilter(ChangeKind.BUILD, frozenset((found.id,)), None, int(after) if after is not None else None, build.id)


async def find_denial(context: Context, change_filter: ChangeFilter) -> OperationError | None:
    """Why the viewer could not subscribe again: they may see objects of this kind in none of the projects. None if they could.

    The projects and the viewer's levels in them are read by the loaders of the context.
    """
    denial: OperationError | None = None
    for project_id in change_filter.projects or ():
        project = await context.rows_by_id(tables.Project).get(project_id)
        if project is None or not await can_see_project(context, project):
            denial = denial or NotFound("Project")
        elif await _may_receive(context, change_filter.kind, project):
            return None
        else:
            denial = Forbidden()
    return denial


def share_loaders(context: Context) -> None:
    """Create the loaders whose results do not depend on the viewer, so that all subscribers share them."""
    for table in (tables.Project, tables.Build, tables.MergeRequest, tables.Issue, tables.User, tables.Namespace, tables.Runner):
        context.rows_by_id(table)
    _branch_loader(context)
    commit_checks.share_loader(context)
    commits.share_loaders(context)


async def is_visible(context: Context, change: LoggedChange | TracePiece) -> bool:
    """Whether the viewer receives a change: the object still exists and the viewer may see it now."""
    subject = await _load_subject(context, change)
    return subject is not None and await _may_receive(context, change.kind, subject)


async def _may_receive(context: Context, kind: ChangeKind, subject: Row | BranchRef) -> bool:
    """Whether the viewer may perform all actions that changes of a kind need on the subject, or on its project."""
    for action in REQUIRED_ACTIONS[kind]:
        if not await can(context, action, subject):
            return False
    return True


async def load_branch(context: Context, change: LoggedChange) -> BranchRef | None:
    """The branch that has changed, as it is now; None after it was deleted."""
    return await _branch_loader(context).get((change.project_id, change.ref))


def _branch_loader(context: Context) -> Loader[tuple[int, str], BranchRef]:
    async def fetch(keys: list[tuple[int, str]]) -> dict[tuple[int, str], BranchRef]:
        found = await current_of_projects(context, [(project_id, BRANCHES + name) for project_id, name in keys])
        branches = [BranchRef(project_id, name.removeprefix(BRANCHES), oid) for (project_id, name), oid in found.items()]
        return {(branch.project_id, branch.name): branch for branch in branches}

    return context.loader("branches that changed", fetch)


SUBJECT_TABLES: dict[ChangeKind, type[Row]] = {
    ChangeKind.BUILD: tables.Build,
    ChangeKind.MERGE_REQUEST: tables.MergeRequest,
    ChangeKind.ISSUE: tables.Issue,
}


async def _load_subject(context: Context, change: LoggedChange | TracePiece) -> Row | BranchRef | None:
    if isinstance(change, LoggedChange) and change.kind is ChangeKind.BRANCH:
        return await load_branch(context, change)
    return await context.rows_by_id(SUBJECT_TABLES[change.kind]).get(change.subject_id or 0)


def parse_sequence_number(string: str) -> int:
    """Parse the `seq` of a change; 0 is the beginning. Raises BadRequest."""
    number = 0 if string == "0" else lookup.parse_id(string)
    if number is None:
        raise BadRequest("`afterSeq` must be the `seq` of an event you received, or 0.")
    return number
