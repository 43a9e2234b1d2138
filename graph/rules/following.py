"""Following builds, merge requests and branches: what may be asked for, and who is told of a change."""

from collections.abc import Sequence

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.live import Wanted
from graph.loading import Loader
from graph.rules import building, commits, finding
from graph.rules.branches import BranchRef
from graph.rules.policy import Action, may, require
from graph.settled import Change
from storage import tables
from storage.tables import ChangeKind, branches

MOST_PROJECTS = 50
MOST_REFS = 100

ACTIONS: dict[ChangeKind, tuple[Action, ...]] = {
    ChangeKind.BUILD: (Action.READ_BUILD,),
    ChangeKind.MERGE_REQUEST: (Action.READ_MERGE_REQUEST,),
    ChangeKind.BRANCH: (Action.READ_CODE, Action.READ_CHECKS),
}
"""What one must be allowed to do to hear of changes of a kind."""


async def wanted(
    context: Context, kind: ChangeKind, projects: Sequence[str] | None, after_seq: str | None, refs: Sequence[str | None] | None = None
) -> Wanted:
    """Raises NotFound and Forbidden for a project where the viewer does not see what is to be followed, BadRequest, LimitExceeded."""
    for what, names, most in (("projects", projects, MOST_PROJECTS), ("refs", refs, MOST_REFS)):
        if names is not None and len(names) > most:
            raise LimitExceeded(f"At most {most} {what} can be named. Name none to follow all, or open another stream.")
    ids: set[int] | None = None if projects is None else set()
    for path in dict.fromkeys(projects or ()):
        found = await finding.project(context, path)
        for action in ACTIONS[kind]:
            await require(context, action, found)
        assert ids is not None  # noqa: S101
        ids.add(found.id)
    return Wanted(
        kind,
        frozenset(ids) if ids is not None else None,
        frozenset(refs) if refs is not None else None,
        sequence_number(after_seq) if after_seq is not None else None,
    )


def share(context: Context) -> None:
    """Has the context load, once for all who listen by it, what everybody is shown alike."""
    for table in (tables.Project, tables.Build, tables.MergeRequest, tables.User, tables.Namespace, tables.Runner):
        context.rows_by_id(table)
    _branches(context)
    building.share(context)
    commits.share(context)


async def is_told(context: Context, change: Change) -> bool:
    """Whether the viewer hears of a change: what has changed is still there, and the viewer sees it now."""
    subject = await _subject(context, change)
    if subject is None:
        return False
    for action in ACTIONS[change.kind]:
        if not await may(context, action, subject):
            return False
    return True


async def branch_of(context: Context, change: Change) -> BranchRef | None:
    """The branch that has changed, where the index has it now; None once it is gone."""
    return await _branches(context).get((change.project_id, change.ref))


def _branches(context: Context) -> Loader[tuple[int, str], BranchRef]:
    async def fetch(keys: list[tuple[int, str]]) -> dict[tuple[int, str], BranchRef]:
        return {(key, name): BranchRef(key, name, oid) for key, name, oid in await context.tuples(branches.of_names(keys))}

    return context.loader("branches that changed", fetch)


async def _subject(context: Context, change: Change) -> tables.Build | tables.MergeRequest | BranchRef | None:
    if change.kind is ChangeKind.BRANCH:
        return await branch_of(context, change)
    if change.kind is ChangeKind.BUILD:
        return await context.rows_by_id(tables.Build).get(change.subject_id or 0)
    return await context.rows_by_id(tables.MergeRequest).get(change.subject_id or 0)


def sequence_number(text: str) -> int:
    """Raises BadRequest for what no change has as its `seq`."""
    number = 0 if text == "0" else finding.as_id(text)
    if number is None:
        raise BadRequest("`afterSeq` is the `seq` of an event that you were sent, or 0.")
    return number
