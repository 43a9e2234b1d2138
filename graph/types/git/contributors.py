"""Contributors: the authors of a history."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.fields.metadata import facts
from graph.fields.scalars import GitOid
from graph.rules.git import contributors
from graph.rules.permissions.policy import Action, require
from graph.types.git.trees import REF_ARGUMENT


@strawberry.type(description="An author of commits, by email address.")
class Contributor:
    name: str = column(description="Name that most of the commits have.")
    email: str = column(description="Email address.")
    commits: int = column(description="Number of commits, without merges.")


@strawberry.type(description="The authors of the history of a commit.")
class Contributors:
    commit_oid: GitOid | None = column(description="ID of the newest commit that is counted; null in an empty repository.")
    authors: list[Contributor] = column(description="Authors, those with most commits first.")


@strawberry.type
class ProjectContributorFields:
    """Fields of a project about its contributors."""

    # It starts a process that walks a history.
    @strawberry.field(
        description="Authors of the history of a branch, tag or commit. Null, with an error, if it does not exist.",
        metadata=facts(extra_rows=500),
    )
    async def contributors(self, info: Info, ref: Annotated[str | None, REF_ARGUMENT] = None) -> Contributors | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await contributors.list_contributors(info.context, project, ref)  # type: ignore[return-value]
