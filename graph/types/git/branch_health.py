"""The health of a branch: whether it is good, since when, and which commits may have broken it."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import Window
from graph.fields.connections import Connection, UncountedConnection
from graph.fields.declarations import connection_field, make_window
from graph.fields.selections import SelectionShape, selects_only
from graph.rules.branches import branch_health
from graph.rules.branches.branch_health import BranchHealthReport
from graph.rules.branches.branches import ProjectRef
from graph.rules.permissions.policy import Action, can, require
from graph.types.builds.builds import Build
from graph.types.builds.rollups import RollupState
from graph.types.git.commit_loader import is_page_indexed, load_commit
from graph.types.git.commits import Commit


def _as_health(health: Any) -> BranchHealthReport:
    return health  # type: ignore[no-any-return]


async def _resolve_failing(root: Any, info: Info, **arguments: Any) -> Any:
    return await branch_health.failing_page(info.context, root, make_window(arguments))


@strawberry.type(
    description="Health of a branch along its first-parent history; a merged branch counts as its merge commit. A commit is green if its"
    " rollup is `SUCCESS` and bad if it is `FAILED`; commits with `NONE`, `PENDING`, `RUNNING` or `CANCELED` are skipped. At"
    " most 1,000 commits are examined: if none of them is green, `lastGreen` is null and `firstBad` is the oldest bad one; if"
    " none of them is bad, `since` refers to the oldest green one."
)
class BranchHealth:
    state: RollupState = strawberry.field(  # type: ignore[valid-type]
        description="`SUCCESS` or `FAILED`, from the newest commit that is green or bad. If there is none, the rollup of the head commit;"
        " `NONE` also until a push is recorded."
    )

    @strawberry.field(
        description="When the current state began: when the checks of `firstBad` finished, or those of the oldest commit of the latest run"
        " of green commits. Null if no commit is green or bad."
    )
    async def since(self, info: Info) -> datetime | None:
        return await branch_health.get_since(info.context, _as_health(self))

    @strawberry.field(description="Newest green commit; null if there is none or it cannot be read.")
    async def last_green(self, info: Info) -> Commit | None:
        return await load_commit(info, _as_health(self).project_id, _as_health(self).last_good)

    @strawberry.field(
        description="Oldest bad commit after `lastGreen`, or the oldest bad commit if there is no green one. Null if `state` is not"
        " `FAILED` or it cannot be read."
    )
    async def first_bad(self, info: Info) -> Commit | None:
        first = _as_health(self).first_bad
        return await load_commit(info, _as_health(self).project_id, first.oid if first is not None else None)

    @strawberry.field(
        description="Commits after `lastGreen` up to and including `firstBad`, newest first; one of them broke the branch. Includes"
        " commits that are neither green nor bad. Empty if `state` is not `FAILED`."
    )
    async def suspects(
        self,
        info: Info,
        first: Annotated[int, strawberry.argument(description="Number of commits; default 20, maximum 100.")] = 20,
        after: Annotated[str | None, strawberry.argument(description="Return commits after this cursor.")] = None,
    ) -> UncountedConnection[Commit]:
        return await branch_health.suspect_page(info.context, _as_health(self), Window.of(first, after), from_index=is_page_indexed(info))  # type: ignore[return-value]

    failing: Connection[Build] = connection_field(
        _resolve_failing,
        description="Builds that make the newest green or bad commit bad: the latest attempts that failed without `allowFailure`, oldest"
        " first. Empty if `state` is not `FAILED` or the viewer cannot see builds.",
    )


FIELDS_WITHOUT_SINCE: SelectionShape = dict.fromkeys(("__typename", "state", "lastGreen", "firstBad", "suspects", "failing"))


async def load_branch_health(info: Info, branch: ProjectRef, names: list[str] | None = None) -> BranchHealthReport:
    """The health of a branch, walked as far as the requested fields need. Raises LimitExceeded."""
    # A filter by name would reveal whether such a build exists and how it finished.
    includes_builds = names is None or await can(info.context, Action.READ_BUILD, branch)
    head = (branch.project_id, branch.oid)
    return await branch_health.get_head_health(
        info.context, head, names, dated=not selects_only(info, FIELDS_WITHOUT_SINCE), builds=includes_builds
    )


@strawberry.type
class BranchHealthFields:
    """Fields of a branch about its health."""

    @strawberry.field(description="Health of the branch: its state, since when, and which commits may have broken it.")
    async def health(
        self,
        info: Info,
        name: Annotated[
            list[str] | None,
            strawberry.argument(
                description="Consider only checks with these names; maximum 100. If the viewer cannot see builds, only commit statuses are"
                " considered."
            ),
        ] = None,
    ) -> BranchHealth:
        branch: Any = self
        await require(info.context, Action.READ_CHECKS, branch)
        return await load_branch_health(info, branch, name)  # type: ignore[return-value]
