"""What is new in merge requests since the viewer last visited them."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.fields.metadata import facts
from graph.fields.scalars import GitOid
from graph.rules.merge_requests import visits
from graph.types.git.commit_loader import load_commits
from graph.types.git.commits import Commit, DiffEntry


def _as_visit(visit: Any) -> visits.LastVisit:
    return visit  # type: ignore[no-any-return]


@strawberry.type(description="What the viewer had seen of a merge request when the last visit ended, and what is new since then.")
class MergeRequestVisit:
    visited_at: datetime = column(description="When the visit ended.")
    head_oid: GitOid | None = column(description="ID of the head commit whose changes the viewer saw; null if none were.")

    @strawberry.field(description="v3 ID of the newest note that the viewer saw; null if there was none.")
    def note_database_id(self) -> int | None:
        return _as_visit(self).note_number or None

    @strawberry.field(description="Number of notes that other users wrote since then; system notes are not counted.")
    async def new_note_count(self, info: Info) -> int:
        return await visits.count_new_notes(info.context, _as_visit(self))

    @strawberry.field(
        description="Number of commits of the merge request that `headOid` does not reach, at most 10,000. Null without `headOid`, or if"
        " its commit was deleted from the repository after a forced push; and, with an error, if the repository cannot be read.",
    )
    async def new_commit_count(self, info: Info) -> int | None:
        return await visits.count_new_commits(info.context, _as_visit(self))

    @strawberry.field(
        description=f"These commits, newest first, at most {visits.MAX_COMMITS}. Null in the same cases as `newCommitCount`.",
    )
    async def new_commits(self, info: Info) -> list[Commit] | None:
        project_id = _as_visit(self).project_id
        oids = await visits.list_new_commits(info.context, _as_visit(self))
        if oids is None:
            return None
        return [commit for commit in await load_commits(info, [(project_id, oid) for oid in oids]) if commit is not None]

    @strawberry.field(
        description="Diff from `headOid` to the head commit, by file, complete up to 5 MB. If the branch was rebased or has merged its"
        " target, files that only the target branch changed are left out. Null in the same cases as `newCommitCount`, or, with an error,"
        " if the operation has already read 5 MB of diffs.",
    )
    async def changes(self, info: Info) -> list[DiffEntry] | None:
        return await visits.load_changes_since(info.context, _as_visit(self))  # type: ignore[return-value]


@strawberry.type
class MergeRequestVisitFields:
    """Fields of a merge request about visits."""

    # Its new commits and changes start processes that walk a history.
    @strawberry.field(
        metadata=facts(extra_rows=100),
        description="The viewer's last visit, as `markMergeRequestVisited` recorded it; null if there was none. Marks that are less than 30"
        " minutes apart are one visit, during which the visit before it is returned.",
    )
    async def last_visit(self, info: Info) -> MergeRequestVisit | None:
        return await visits.load_last_visit(info.context, self)  # type: ignore[arg-type,return-value]
