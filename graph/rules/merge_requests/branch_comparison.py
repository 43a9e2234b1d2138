"""Comparison of the branches of a merge request by git, in a thread, and its diff."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from graph.context import Context, Services
from graph.errors import UnreadableRepository
from graph.rules.git import refs
from graph.rules.git.commits import load_diff_between
from storage import tables
from storage.database.engine import DatabaseSession
from storage.git import merge_preview
from storage.git.diffs.diff import FileDiff
from storage.git.merge import DiffTotals, is_ancestor
from storage.git.merge_preview import MergePreview
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import GitCommit, NotARepository, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import MergeStatus
from storage.tables.git import refs as git_refs

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """The state of two branches when git compared them. Values that could not be determined are None.

    - `head_oid` and `target_oid`: None when the branch or its repository is missing.
    - `oids`: the commits of the merge request, newest first, at most 10,000 of `commit_count`; `newest` are the first of them.
    - `messages`: the messages of all commits that may refer to an issue.
    - `landed_oid`: the commit by which the target came to contain the head known before (`known_head`), if it does.
    - `since`: the version that the refs of the target project had before commits of a fork were looked for there; None if it is no fork.
    """

    source_project_id: int
    target_project_id: int
    source_branch: str
    target_branch: str
    head_oid: str | None = None
    target_oid: str | None = None
    base_oid: str | None = None
    oids: tuple[str, ...] = ()
    newest: tuple[GitCommit, ...] = ()
    messages: tuple[str, ...] = ()
    commit_count: int | None = None
    stat: DiffTotals | None = None
    merge_status: MergeStatus = MergeStatus.CANNOT_BE_MERGED
    landed_oid: str | None = None
    since: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether both branches exist and git could compare them."""
        return self.commit_count is not None

    def matches(self, merge_request: tables.MergeRequest) -> bool:
        """Whether it compares the current branches of the merge request."""
        source = (self.source_project_id, self.source_branch)
        target = (self.target_project_id, self.target_branch)
        return source == (merge_request.source_project_id, merge_request.source_branch) and target == (
            merge_request.project_id,
            merge_request.target_branch,
        )


@dataclass(frozen=True, slots=True)
class BranchHeads:
    """The heads of a source and a target branch; None for one that does not exist."""

    source: str | None
    target: str | None


async def read_heads(context: Context, row: tables.MergeRequest) -> BranchHeads:
    """The current heads of the branches of a merge request."""
    return (await read_all_heads(context, [row]))[row.id]


async def read_all_heads(context: Context, rows: Collection[tables.MergeRequest]) -> dict[int, BranchHeads]:
    """The current heads of the branches of merge requests, by the id of each, in one statement."""
    keys = {row.id: (_branch_key(row.source_project_id, row.source_branch), _branch_key(row.project_id, row.target_branch)) for row in rows}
    found = await refs.current_of_projects(context, {key for both in keys.values() for key in both})
    return {number: BranchHeads(found.get(source), found.get(target)) for number, (source, target) in keys.items()}


async def is_current(context: Context, row: tables.MergeRequest, comparison: BranchComparison) -> bool:
    """Whether a comparison is one of the current heads of the branches of the merge request, and what it needs of a fork is still there.

    The transaction has locked the target project.
    """
    if not comparison.matches(row) or await read_heads(context, row) != BranchHeads(comparison.head_oid, comparison.target_oid):
        return False
    return not await find_outdated(context, [comparison])


async def find_outdated(context: Context, comparisons: Iterable[BranchComparison]) -> set[tuple[int, int]]:
    """The pairs of target project and `since` of the comparisons whose commits of a fork a collection may have deleted from the target.

    The transaction has locked the target projects. Objects of a project itself are reachable by its branch.
    """
    read = {(each.target_project_id, each.since) for each in comparisons if each.since is not None}
    if not read:
        return set()
    versions: dict[int, int] = dict(await context.tuples(git_refs.versions({project_id for project_id, _ in read})))
    return await refs.find_outdated(context, read, versions)


def _branch_key(project_id: int, name: str) -> tuple[int, str]:
    return project_id, BRANCHES + name


async def compare_branches(
    services: Services,
    *,
    target_project_id: int,
    source_project_id: int,
    source_branch: str,
    target_branch: str,
    known_head: str | None = None,
    heads: BranchHeads | None = None,
    since: int | None = None,
    session: DatabaseSession | None = None,
) -> BranchComparison:
    """Compare the branches in the repositories, fetching a fork's commits into the target repository.

    `heads` are the commits to compare instead of the current heads, and `since` a version that the refs of the target had before this call.
    `known_head` is the head known so far, to detect that somebody has merged it. `session` is that of a caller whose transaction has locked
    the projects. Missing branches, unrelated histories, and comparisons that exceed git's time limit (logged) cannot be merged. Raises
    Unavailable when an existing repository cannot be read or the disk is full.
    """
    is_fork = source_project_id != target_project_id
    if is_fork and since is None:
        # Before the objects are looked for: a collection deletes those that nothing reached for two weeks, also if the fork has them.
        since = await _read_version(services, target_project_id, session)
    if heads is None:
        async with services.database.read_session() as reader:
            source_key, target_key = _branch_key(source_project_id, source_branch), _branch_key(target_project_id, target_branch)
            found_refs = await refs.current_of_projects(Context(services, reader, None, "compare"), {source_key, target_key})
            heads = BranchHeads(found_refs.get(source_key), found_refs.get(target_key))
    head, target = heads.source, heads.target
    empty = BranchComparison(
        source_project_id,
        target_project_id,
        source_branch,
        target_branch,
        head_oid=head,
        target_oid=target,
        since=since if is_fork else None,
    )

    def work(source_path: Path, repository: Repository) -> BranchComparison:
        found = empty
        try:
            if head is not None and target is not None:
                merge_preview.fetch_commit(repository, source_path, head)
                found = _with_preview(found, merge_preview.preview_merge(repository, head, target))
            return replace(found, landed_oid=_find_landing_commit(repository, found, known_head))
        except (GitCommandError, UnknownCommit) as error:
            log.warning("branches could not be compared", source=source_project_id, target=target_project_id, head=head, error=str(error))
            return found

    try:
        if not is_fork or head is None:
            # The source may have no repository: its project was deleted, or is not that of an import.
            return await services.repositories.read(target_project_id, partial(work, services.repositories.path_of(target_project_id)))
        async with services.repositories.use(source_project_id) as source_path:
            found = await services.repositories.read(target_project_id, partial(work, source_path))
        # The target has the commits of the fork now, and a ref of the target will keep them.
        await refs.publish_objects(services, target_project_id, session)
        return found
    except (NotARepository, OSError) as error:
        log.warning("repository cannot be read", project_id=target_project_id, source=source_project_id, error=str(error))
        raise UnreadableRepository from error


async def _read_version(services: Services, project_id: int, session: DatabaseSession | None) -> int | None:
    """The version of the refs of a project; None if it does not exist."""
    statement = git_refs.version(project_id)
    if session is not None:
        return await Context(services, session, None, "compare").value(statement)
    async with services.database.read_session() as reader:
        return await Context(services, reader, None, "compare").value(statement)


def _with_preview(found: BranchComparison, preview: MergePreview) -> BranchComparison:
    if preview.mergeable is None:
        log.warning("test merge did not finish", target=found.target_project_id, head=preview.head, into=preview.target)
    return replace(
        found,
        base_oid=preview.base,
        oids=preview.oids,
        newest=preview.newest,
        messages=preview.messages,
        commit_count=preview.count,
        stat=preview.stat,
        merge_status=MergeStatus.CAN_BE_MERGED if preview.mergeable else MergeStatus.CANNOT_BE_MERGED,
    )


def _find_landing_commit(repository: Repository, found: BranchComparison, known_head: str | None) -> str | None:
    """The commit that merged the known head, if the target contains it.

    None if the source has further commits.
    """
    if known_head is None or found.target_oid is None or (found.head_oid is not None and found.base_oid != found.head_oid):
        return None
    if not merge_preview.has_commit(repository, known_head) or not is_ancestor(repository, known_head, found.target_oid):
        return None
    return merge_preview.introducing_commit(repository, known_head, found.target_oid)


async def load_changes(context: Context, merge_request: tables.MergeRequest) -> list[FileDiff]:
    """The diff of the merge request as last compared; that of a merged or closed one no longer changes.

    Limited like every diff (storage/git/diffs/diff.py), and together with all diffs of the operation. Empty before the first comparison.
    Raises Unavailable, LimitExceeded.
    """
    if merge_request.head_oid is None:
        return []
    found = await load_diff_between(context, merge_request.project_id, merge_request.base_oid, merge_request.head_oid)
    return found or []
