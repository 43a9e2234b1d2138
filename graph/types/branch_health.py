"""Whether a branch is good, since when, and what broke it."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.connections import Connection, UncountedConnection, Window
from graph.context import Info
from graph.declare import connection_field, window_of
from graph.rules import branch_health
from graph.rules.branch_health import Health
from graph.rules.branches import ProjectRef
from graph.rules.policy import Action, may, require
from graph.selecting import Shape, asks_only
from graph.types.builds import Build
from graph.types.commits import Commit
from graph.types.rollups import RollupState
from graph.types.shown_commits import commit_of, is_told


def _health(health: Any) -> Health:
    return health  # type: ignore[no-any-return]


async def _failing(root: Any, info: Info, **arguments: Any) -> Any:
    return await branch_health.failing_page(info.context, root, window_of(arguments))


@strawberry.type(
    description="Whether a branch is good, by its history of first parents, in the order of ancestry: what was merged counts as its merge."
    " A commit is green when its rollup is `SUCCESS` and bad when it is `FAILED`; `NONE`, `PENDING`, `RUNNING` and `CANCELED` decide"
    " nothing and are walked past. At most 1,000 commits are looked at: where a longer history is red throughout, `lastGreen` is null and"
    " `firstBad` the oldest bad one of these, and where it is green throughout, `since` is of the oldest green one of these."
)
class BranchHealth:
    state: RollupState = strawberry.field(  # type: ignore[valid-type]
        description="`SUCCESS` or `FAILED`: what the newest commit that decides comes to. Where none does, what the head comes to; `NONE`"
        " also in the moment before a push is recorded."
    )

    @strawberry.field(
        description="When it came to be so: when the checks of `firstBad` had ended, or those of the oldest commit of the newest unbroken"
        " run of green. Null where no commit decides."
    )
    async def since(self, info: Info) -> datetime | None:
        return await branch_health.since(info.context, _health(self))

    @strawberry.field(description="The newest green commit; null without one, or when the repository cannot give it.")
    async def last_green(self, info: Info) -> Commit | None:
        return await commit_of(info, _health(self).project_id, _health(self).last_good)

    @strawberry.field(
        description="The oldest bad commit after `lastGreen`, or of all where there is no green one. Null when `state` is not `FAILED`, or"
        " when the repository cannot give it."
    )
    async def first_bad(self, info: Info) -> Commit | None:
        first = _health(self).first_bad
        return await commit_of(info, _health(self).project_id, first.oid if first is not None else None)

    @strawberry.field(
        description="The commits after `lastGreen` up to and with `firstBad`, newest first, also those that decide nothing: one of them"
        " broke the branch. Empty when `state` is not `FAILED`."
    )
    async def suspects(
        self,
        info: Info,
        first: Annotated[int, strawberry.argument(description="How many commits; 20, at most 100.")] = 20,
        after: Annotated[str | None, strawberry.argument(description="Continue after the commit of this cursor.")] = None,
    ) -> UncountedConnection[Commit]:
        return await branch_health.suspect_page(info.context, _health(self), Window.of(first, after), told=is_told(info))  # type: ignore[return-value]

    failing: Connection[Build] = connection_field(
        _failing,
        description="The builds by which the newest commit that decides is red, the newest attempt of each: those that failed and were not"
        " allowed to, oldest first. Empty when `state` is not `FAILED`, and for who may not see builds.",
    )


UNDATED: Shape = dict.fromkeys(("__typename", "state", "lastGreen", "firstBad", "suspects", "failing"))


async def health_of(info: Info, branch: ProjectRef, names: list[str] | None = None) -> Health:
    """The health of a branch, walked so far as it is asked for. Raises LimitExceeded."""
    # A name would tell whether there is such a build, and how it ended.
    builds = names is None or await may(info.context, Action.READ_BUILD, branch)
    head = (branch.project_id, branch.oid)
    return await branch_health.of_head(info.context, head, names, dated=not asks_only(info, UNDATED), builds=builds)


@strawberry.type
class HealthOfBranch:
    """The part of a branch that says whether it is good."""

    @strawberry.field(description="Whether the branch is good, since when, and which commits may have broken it.")
    async def health(
        self,
        info: Info,
        name: Annotated[
            list[str] | None,
            strawberry.argument(
                description="Only checks of these names count, as if there were no others; at most 100. For who may not see builds, only"
                " commit statuses."
            ),
        ] = None,
    ) -> BranchHealth:
        branch: Any = self
        await require(info.context, Action.READ_CHECKS, branch)
        return await health_of(info, branch, name)  # type: ignore[return-value]
