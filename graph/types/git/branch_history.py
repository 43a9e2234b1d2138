"""The commits of a branch, ordered by ancestry."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import Window
from graph.fields.connections import UncountedConnection
from graph.rules.branches import branch_history
from graph.rules.branches.branch_history import HistoryQuery
from graph.types.git.commit_loader import is_page_indexed
from graph.types.git.commits import Commit
from graph.types.inputs import DateTimeRange


@strawberry.type
class BranchHistoryFields:
    """Fields of a branch about its commits."""

    @strawberry.field(
        description="Commits of the branch in topological order; null if the repository cannot be read. A page after a cursor continues"
        " the original walk even if the branch has moved. With `path` or `range` at most 2,000 commits are examined per page: a"
        " page may have fewer than `first` commits, or none, and still have a next page. `totalCount` is null."
    )
    async def history(
        self,
        info: Info,
        first: Annotated[int, strawberry.argument(description="Number of commits; default 20, maximum 100.")] = 20,
        after: Annotated[str | None, strawberry.argument(description="Return commits after this cursor.")] = None,
        first_parent: Annotated[
            bool,
            strawberry.argument(
                description="Follow only the first parent of merge commits. If false, return all commits in `git log` order, like"
                " `Project.commits`."
            ),
        ] = True,
        path: Annotated[
            str | None,
            strawberry.argument(
                description="Only commits that changed the file or directory at this path: compared with all parents, or with the first"
                " parent if `firstParent` is true."
            ),
        ] = None,
        range: Annotated[DateTimeRange | None, strawberry.argument(description="Only commits committed in this time range.")] = None,
    ) -> UncountedConnection[Commit] | None:
        branch: Any = self
        span = range or DateTimeRange()
        query = HistoryQuery(first_parent, (path or "").strip("/"), span.since, span.until)
        return await branch_history.history_page(info.context, branch, query, Window.of(first, after), from_index=is_page_indexed(info))  # type: ignore[return-value]
