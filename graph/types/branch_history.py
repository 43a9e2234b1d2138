"""The commits of a branch, in the order of ancestry."""

from typing import Annotated, Any

import strawberry

from graph.connections import UncountedConnection, Window
from graph.context import Info
from graph.rules import branch_history
from graph.rules.branch_history import Wanted
from graph.types.commits import Commit
from graph.types.inputs import DateTimeRange
from graph.types.shown_commits import is_told


@strawberry.type
class HistoryOfBranch:
    """The part of a branch that is about its commits."""

    @strawberry.field(
        description="The commits of the branch, each before its parents; null when the repository cannot be read. A page after a cursor"
        " goes on from there, wherever the branch is now. With `path` or `range` a page looks at no more than 2,000 commits: it may be"
        " shorter than `first`, or empty, and have a next page that looks on. The commits are not counted: `totalCount` is null."
    )
    async def history(
        self,
        info: Info,
        first: Annotated[int, strawberry.argument(description="How many commits; 20, at most 100.")] = 20,
        after: Annotated[str | None, strawberry.argument(description="Continue after the commit of this cursor.")] = None,
        first_parent: Annotated[
            bool,
            strawberry.argument(
                description="Only the branch's own commits: of a merge not what it brought. Else all that the branch holds, in the order of"
                " `git log`, as `Project.commits` has them."
            ),
        ] = True,
        path: Annotated[
            str | None,
            strawberry.argument(
                description="Only commits that changed the file or directory at this path: where it differs from all parents, or, along"
                " first parents, from the first one."
            ),
        ] = None,
        range: Annotated[DateTimeRange | None, strawberry.argument(description="Only commits that were committed in this time.")] = None,
    ) -> UncountedConnection[Commit] | None:
        branch: Any = self
        span = range or DateTimeRange()
        wanted = Wanted(first_parent, (path or "").strip("/"), span.since, span.until)
        return await branch_history.page(info.context, branch, wanted, Window.of(first, after), told=is_told(info))  # type: ignore[return-value]
