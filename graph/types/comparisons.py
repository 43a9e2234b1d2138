"""Comparisons of two commits."""

from typing import Annotated, Any

import strawberry

from graph.connections import UncountedConnection, Window
from graph.context import Info
from graph.rules import comparing
from graph.rules.policy import Action, require
from graph.types.commits import Commit, DiffEntry
from graph.types.diff_stats import DiffStat
from graph.types.shown_commits import commit_of

NAME = "a branch, a tag, a full id, or the unique start of an id of at least 7 digits. No revision syntax."


@strawberry.type(description="What one commit has that another has not.")
class Comparison:
    @strawberry.field(name="from", description="The commit that is compared with.")
    def start(self) -> Commit:
        return _of(self).start  # type: ignore[return-value]

    @strawberry.field(name="to", description="The commit whose side is shown.")
    def end(self) -> Commit:
        return _of(self).end  # type: ignore[return-value]

    @strawberry.field(description="The newest commit that both sides hold; null when they have nothing in common.")
    async def merge_base(self, info: Info) -> Commit | None:
        found = _of(self)
        oid = await comparing.merge_base(info.context, found)
        return await commit_of(info, found.project_id, oid)

    @strawberry.field(
        description="The commits that `to` has and `from` has not, newest first. A page after a cursor continues the list that the cursor"
        " began, wherever the branches are now."
    )
    async def commits(
        self,
        info: Info,
        first: Annotated[int | None, strawberry.argument(description="How many commits; 20, at most 100.")] = None,
        after: Annotated[str | None, strawberry.argument(description="Continue after the commit of this cursor.")] = None,
        offset: Annotated[int | None, strawberry.argument(description="Commits to skip, beside `first`.")] = None,
    ) -> UncountedConnection[Commit] | None:
        return await comparing.commits(info.context, _of(self), Window.of(first, after, offset=offset))  # type: ignore[return-value]

    @strawberry.field(
        description="What `to` changed since it left `from`, or when compared straight, what differs between them; whole up to 5 MB."
        " Null, with an error, when the operation has read 5 MB of diffs before."
    )
    async def diff(self, info: Info) -> list[DiffEntry] | None:
        return await comparing.changes(info.context, _of(self))  # type: ignore[return-value]

    @strawberry.field(description="How much `diff` changes, counted whole.")
    async def diff_stat(self, info: Info) -> DiffStat | None:
        return await comparing.diff_stat(info.context, _of(self))  # type: ignore[return-value]

    @strawberry.field(description="How many commits `to` has that `from` has not.")
    async def ahead_by(self, info: Info) -> int | None:
        return (await comparing.ahead_behind(info.context, _of(self)))[0]

    @strawberry.field(description="How many commits `from` has that `to` has not.")
    async def behind_by(self, info: Info) -> int | None:
        return (await comparing.ahead_behind(info.context, _of(self)))[1]


def _of(comparison: Any) -> comparing.Comparison:
    return comparison  # type: ignore[no-any-return]


@strawberry.type
class ProjectComparisons:
    """The part of a project that holds two of its commits against each other."""

    @strawberry.field(description="Two commits held against each other. Null, with an error, where a name is not there.")
    async def compare(
        self,
        info: Info,
        start: Annotated[str, strawberry.argument(name="from", description=f"What to compare with: {NAME}")],
        end: Annotated[str, strawberry.argument(name="to", description=f"Whose side to show: {NAME}")],
        straight: Annotated[
            bool, strawberry.argument(description="True: the diff is of the two as they are, and not since they parted.")
        ] = False,
    ) -> Comparison | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await comparing.between(info.context, project, start, end, straight)  # type: ignore[return-value]
