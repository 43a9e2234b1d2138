"""Comparisons of two commits."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import Window
from graph.fields.connections import UncountedConnection
from graph.fields.metadata import facts
from graph.rules.git import commit_comparison
from graph.rules.permissions.policy import Action, require
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit, DiffEntry
from graph.types.git.diff_stats import DiffStat

MAX_COMMITS = 1_000
"""Maximum size of a page of commits."""

REVISION_DESCRIPTION = "a full commit ID, branch, tag or unambiguous ID prefix of at least 7 digits. Revision syntax is not supported."


@strawberry.type(description="Comparison of two commits.")
class Comparison:
    @strawberry.field(name="from", description="Base of the comparison.")
    def start(self) -> Commit:
        return _as_comparison(self).start  # type: ignore[return-value]

    @strawberry.field(name="to", description="Head of the comparison.")
    def end(self) -> Commit:
        return _as_comparison(self).end  # type: ignore[return-value]

    @strawberry.field(description="Merge base of both commits; null if they have no common ancestor.")
    async def merge_base(self, info: Info) -> Commit | None:
        comparison = _as_comparison(self)
        oid = await commit_comparison.load_merge_base(info.context, comparison)
        return await load_commit(info, comparison.project_id, oid)

    @strawberry.field(
        description="Commits reachable from `to` but not from `from`, newest first. A page after a cursor continues the original list even"
        " if the branches have moved.",
        metadata=facts(max_page_size=MAX_COMMITS),
    )
    async def commits(
        self,
        info: Info,
        first: Annotated[int | None, strawberry.argument(description=f"Number of commits; default 20, maximum {MAX_COMMITS}.")] = None,
        after: Annotated[str | None, strawberry.argument(description="Return commits after this cursor.")] = None,
        offset: Annotated[int | None, strawberry.argument(description="Number of commits to skip; used with `first`.")] = None,
    ) -> UncountedConnection[Commit] | None:
        window = Window.of(first, after, offset=offset, max_size=MAX_COMMITS)
        return await commit_comparison.commit_page(info.context, _as_comparison(self), window)  # type: ignore[return-value]

    @strawberry.field(
        description="Diff from the merge base to `to`, or from `from` to `to` if `straight`; complete up to 5 MB. Null, with an error, if"
        " the operation has already read 5 MB of diffs."
    )
    async def diff(self, info: Info) -> list[DiffEntry] | None:
        return await commit_comparison.load_changes(info.context, _as_comparison(self))  # type: ignore[return-value]

    @strawberry.field(description="Statistics of the complete `diff`.")
    async def diff_stat(self, info: Info) -> DiffStat | None:
        return await commit_comparison.load_diff_stat(info.context, _as_comparison(self))  # type: ignore[return-value]

    @strawberry.field(description="Whether the diff of a file in `diff` was truncated or omitted.")
    async def diff_truncated(self, info: Info) -> bool | None:
        entries = await commit_comparison.load_changes(info.context, _as_comparison(self))
        return any(entry.too_large for entry in entries or ())

    @strawberry.field(description="Whether `from` and `to` are the same commit.")
    def same_commit(self) -> bool:
        return _as_comparison(self).start.oid == _as_comparison(self).end.oid

    @strawberry.field(description="Number of commits reachable from `to` but not from `from`.")
    async def ahead_by(self, info: Info) -> int | None:
        return (await commit_comparison.load_ahead_behind(info.context, _as_comparison(self)))[0]

    @strawberry.field(description="Number of commits reachable from `from` but not from `to`.")
    async def behind_by(self, info: Info) -> int | None:
        return (await commit_comparison.load_ahead_behind(info.context, _as_comparison(self)))[1]


def _as_comparison(comparison: Any) -> commit_comparison.CommitComparison:
    return comparison  # type: ignore[no-any-return]


@strawberry.type
class ProjectComparisonFields:
    """Fields of a project about comparisons of its commits."""

    # It starts processes that walk a history.
    @strawberry.field(
        description="Comparison of two commits. Null, with an error, if one of the revisions does not exist.",
        metadata=facts(extra_rows=500),
    )
    async def compare(
        self,
        info: Info,
        start: Annotated[str, strawberry.argument(name="from", description=f"Base of the comparison: {REVISION_DESCRIPTION}")],
        end: Annotated[str, strawberry.argument(name="to", description=f"Head of the comparison: {REVISION_DESCRIPTION}")],
        straight: Annotated[
            bool, strawberry.argument(description="If true, compare the two commits directly instead of from their merge base.")
        ] = False,
    ) -> Comparison | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await commit_comparison.compare_commits(info.context, project, start, end, straight)  # type: ignore[return-value]
