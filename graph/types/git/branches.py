"""Branches."""

from typing import Annotated, Any
from urllib.parse import quote

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window
from graph.fields.entities import Node, entity
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.branches import branch_distances, branches
from graph.rules.branches.branches import BranchRef, ProjectRef
from graph.rules.git import ref_updates
from graph.rules.git.ref_updates import BranchOperation
from graph.rules.permissions.policy import Action, can, require
from graph.types.git.branch_health import BranchHealthFields
from graph.types.git.branch_history import BranchHistoryFields
from graph.types.git.branch_timeline import BranchTimelineFields
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from graph.types.inputs import ProjectInput, find_project, get_or, is_set, optional
from storage.tables.settings import BranchProtection

MAX_REFS = 1_000
"""Maximum size of a page of branches or tags."""


async def _load_protection(root: Any, info: Info) -> BranchProtection:
    ref: ProjectRef = root
    return (await ref_updates.load_protections(info.context, ref.project_id)).get(ref.name, BranchProtection.NONE)


@strawberry.type(description="Actions the viewer is allowed to perform on a branch.")
class BranchAbilities:
    push: bool = strawberry.field(description="Push commits to the branch.")
    force_push: bool = strawberry.field(description="Force-push to the branch.")
    delete: bool = strawberry.field(description="Delete the branch.")
    protect: bool = strawberry.field(description="Protect and unprotect the branch.")


@entity(
    BranchRef,
    name="Branch",
    description="A git branch. The ID is derived from its name: a branch that is deleted and created again has the same ID.",
    action=Action.READ_CODE,
    load_nodes=branches.branch_nodes,
)
class Branch(Node, BranchHealthFields, BranchTimelineFields, BranchHistoryFields):
    name: str = column(description="Branch name, without `refs/heads/`.")

    @strawberry.field(description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{_as_ref(self).project_id}/repository/branches/{quote(_as_ref(self).name, safe='')}"

    @strawberry.field(description="Whether developers are prevented from force-pushing to the branch or deleting it.")
    async def protected(self, info: Info) -> bool:
        return await _load_protection(self, info) is not BranchProtection.NONE

    @strawberry.field(description="Whether developers can push to the branch.")
    async def developers_can_push(self, info: Info) -> bool:
        return BranchOperation.PUSH in ref_updates.DEVELOPER_OPERATIONS[await _load_protection(self, info)]

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> BranchAbilities:
        context, ref = info.context, _as_ref(self)
        project = await lookup.get_project(context, str(ref.project_id))
        moves = await ref_updates.allowed_operations(context, project, ref.name)
        return BranchAbilities(
            push=BranchOperation.PUSH in moves,
            force_push=BranchOperation.FORCE in moves,
            delete=BranchOperation.DELETE in moves,
            protect=await can(context, Action.PROTECT_BRANCH, project),
        )

    @strawberry.field(description="Newest commit; null if it cannot be read.")
    async def target(self, info: Info) -> Commit | None:
        return await load_commit(info, _as_ref(self).project_id, _as_ref(self).oid)

    # Each starts a process that walks a history.
    @strawberry.field(
        description="Number of commits that the branch has and the default branch does not. Null if there is no default branch, or the"
        " operation has already counted for 3 seconds.",
    )
    async def ahead_by(self, info: Info) -> int | None:
        found = await branch_distances.find_distance(info.context, _as_ref(self))
        return found.ahead if found else None

    @strawberry.field(description="Number of commits that the default branch has and the branch does not. Null in the cases of `aheadBy`.")
    async def behind_by(self, info: Info) -> int | None:
        found = await branch_distances.find_distance(info.context, _as_ref(self))
        return found.behind if found else None


def _as_ref(branch: Any) -> ProjectRef:
    return branch  # type: ignore[no-any-return]


async def _resolve_branches(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await branches.list_branches(info.context, root, make_window(arguments, MAX_REFS))


@strawberry.type
class ProjectBranchFields:
    """Fields of a project about its branches."""

    branches: Connection[Branch] | None = connection_field(
        _resolve_branches, description="Branches, sorted by name; null if there is no repository.", max_page_size=MAX_REFS
    )

    @strawberry.field(description="Branch with this exact name; by default the default branch, null if the project has none.")
    async def branch(
        self, info: Info, name: Annotated[str | None, strawberry.argument(description="Branch name; default: the default branch.")] = None
    ) -> Branch | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await branches.get_branch_or_default(info.context, project, name)  # type: ignore[return-value]


@strawberry.input
class BranchInput(ProjectInput):
    name: str = strawberry.field(description="Branch name, without `refs/heads/`.")


@strawberry.input(description="Input of `createBranch`.")
class CreateBranchInput(BranchInput):
    ref: str = strawberry.field(description="Start point: a branch, a tag or a commit ID.")


@strawberry.input(description="Input of `deleteBranch`.")
class DeleteBranchInput(BranchInput):
    unprotected_only: bool | None = optional(
        "If true, refuse a protected branch and the default branch with NOT_ALLOWED, whatever the viewer is allowed to do; default false."
    )


@strawberry.input(description="Input of `protectBranch`.")
class ProtectBranchInput(BranchInput):
    developers_can_push: bool | None = optional(
        "Whether developers can still push to the branch. Default: unchanged for a protected branch, otherwise false."
    )


@strawberry.input(description="Input of `unprotectBranch`.")
class UnprotectBranchInput(BranchInput):
    pass


@mutation(
    entity="branch", returns=Branch, entity_description="The created branch.", description="Creates a branch. Requires permission to push."
)
async def create_branch(info: Info, input: CreateBranchInput) -> BranchRef:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    return await branches.create_branch(info.context, project, input.name, input.ref)


@mutation(
    entity="branch",
    returns=Branch,
    deletes=True,
    entity_description="The deleted branch.",
    description="Deletes a branch and its protection. Requires permission to push, or the master role if the branch is protected.",
)
async def delete_branch(info: Info, input: DeleteBranchInput) -> BranchRef:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    return await branches.delete_branch(info.context, project, input.name, unprotected_only=get_or(input.unprotected_only, False))


@mutation(
    entity="branch",
    returns=Branch,
    entity_description="The protected branch.",
    description="Protects a branch: developers can no longer delete it or push to it freely. Requires the master role.",
)
async def protect_branch(info: Info, input: ProtectBranchInput) -> BranchRef:
    project = await find_project(info.context, input.project_path, Action.PROTECT_BRANCH)
    protection = None
    if is_set(input.developers_can_push):
        protection = BranchProtection.PARTIAL if input.developers_can_push else BranchProtection.FULL
    return await branches.protect_branch(info.context, project, input.name, protection)


@mutation(
    entity="branch",
    returns=Branch,
    entity_description="The branch, which is no longer protected.",
    description="Removes the protection of a branch, if it has any. Requires the master role.",
)
async def unprotect_branch(info: Info, input: UnprotectBranchInput) -> BranchRef:
    project = await find_project(info.context, input.project_path, Action.PROTECT_BRANCH)
    return await branches.protect_branch(info.context, project, input.name, BranchProtection.NONE)


@strawberry.type
class BranchMutations:
    create_branch = create_branch
    delete_branch = delete_branch
    protect_branch = protect_branch
    unprotect_branch = unprotect_branch
