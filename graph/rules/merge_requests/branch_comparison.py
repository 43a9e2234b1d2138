"""What the branches of a merge request come to: compared in git, in a thread, and the changes file by file."""

from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from graph.context import Context, Services
from graph.errors import Unavailable
from graph.rules.git.commits import load_diff_between
from storage import tables
from storage.git import merge_preview
from storage.git.diff import FileDiff
from storage.git.merge import DiffTotals, is_ancestor
from storage.git.merge_preview import BRANCH_PREFIX, MergePreview
from storage.git.repository import DamagedRepository, GitCommit, NotARepository, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import MergeStatus

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """Two branches as they were when git was asked.

    `head_oid` and `target_oid` are None where the branch, or its repository, is missing. `oids` are the commits that the merge request
    brings, newest first, at most 10,000 of `commit_count`; `newest` are the first of them, and
    `messages` those of all that may name an issue. What could not be found out is None.
    `landed_oid` is the commit by which the target came to hold the head that was known before (`known_head`), if it does.
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

    @property
    def is_complete(self) -> bool:
        """Whether both branches are there and git told what lies between them."""
        return self.commit_count is not None

    def matches(self, merge_request: tables.MergeRequest) -> bool:
        """Whether it compared the branches that the merge request has now."""
        source = (self.source_project_id, self.source_branch)
        target = (self.target_project_id, self.target_branch)
        return source == (merge_request.source_project_id, merge_request.source_branch) and target == (
            merge_request.project_id,
            merge_request.target_branch,
        )


async def compare_branches(
    services: Services,
    *,
    target_project_id: int,
    source_project_id: int,
    source_branch: str,
    target_branch: str,
    known_head: str | None = None,
    previous_target: str | None = None,
) -> BranchComparison:
    """Compares the branches as the repositories have them. Nothing but git is asked; what a fork proposes is fetched into the target's.

    `known_head` is the head that the merge request had until now, where somebody may have merged that. `previous_target` compares with that
    commit instead of the target's head. Missing branches and unrelated histories cannot be merged; nor can what git takes too long for,
    which is logged. Raises Unavailable when a repository is there and cannot be read, or the disk is full.
    """
    empty = BranchComparison(source_project_id, target_project_id, source_branch, target_branch)
    repositories = services.repositories
    source_path = repositories.path_of(source_project_id)

    def work(repository: Repository) -> BranchComparison:
        target = previous_target or repository.find_ref(BRANCH_PREFIX + target_branch)
        if source_project_id == target_project_id:
            head = repository.find_ref(BRANCH_PREFIX + source_branch)
        else:
            head = _head_of_fork(source_path, source_branch)
        found = replace(empty, head_oid=head, target_oid=target)
        try:
            if head is not None and target is not None:
                merge_preview.fetch_commit(repository, source_path, head)
                found = _with_proposal(found, merge_preview.preview_merge(repository, head, target))
            return replace(found, landed_oid=_find_landing_commit(repository, found, known_head))
        except (GitCommandError, UnknownCommit) as error:
            log.warning("branches not compared", source=source_project_id, target=target_project_id, head=head, error=str(error))
            return found

    try:
        return await repositories.read(target_project_id, work)
    except (NotARepository, OSError) as error:
        log.warning("repository cannot be read", project_id=target_project_id, source=source_project_id, error=str(error))
        raise Unavailable("The repository cannot be read right now.") from error


def _head_of_fork(path: Path, branch: str) -> str | None:
    try:
        return merge_preview.branch_head(path, branch)
    except DamagedRepository:
        raise
    except NotARepository:
        if path.exists():
            raise
        return None


def _with_proposal(found: BranchComparison, proposal: MergePreview) -> BranchComparison:
    if proposal.mergeable is None:
        log.warning("merge not tried to its end", target=found.target_project_id, head=proposal.head, into=proposal.target)
    return replace(
        found,
        base_oid=proposal.base,
        oids=proposal.oids,
        newest=proposal.newest,
        messages=proposal.messages,
        commit_count=proposal.count,
        stat=proposal.stat,
        merge_status=MergeStatus.CAN_BE_MERGED if proposal.mergeable else MergeStatus.CANNOT_BE_MERGED,
    )


def _find_landing_commit(repository: Repository, found: BranchComparison, known_head: str | None) -> str | None:
    """Whether somebody merged the head that was known: then the target holds it, and the source has nothing more."""
    if known_head is None or found.target_oid is None or (found.head_oid is not None and found.base_oid != found.head_oid):
        return None
    if not merge_preview.has_commit(repository, known_head) or not is_ancestor(repository, known_head, found.target_oid):
        return None
    return merge_preview.introducing_commit(repository, known_head, found.target_oid)


async def load_changes(context: Context, merge_request: tables.MergeRequest) -> list[FileDiff]:
    """What the merge request changes, file by file, as it was last seen; what was merged or closed stays as it was.

    Bounded as every diff (storage/git/diff.py), and all those of one operation as one. Empty before anything was seen.
    Raises Unavailable, LimitExceeded.
    """
    if merge_request.head_oid is None:
        return []
    found = await load_diff_between(context, merge_request.project_id, merge_request.base_oid, merge_request.head_oid)
    return found or []
