"""Branches and tags."""

from typing import Annotated, Any

import strawberry

from graph.connections import Connection
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, window_of
from graph.mutations import mutation
from graph.rules import branches, finding, pushing
from graph.rules.branches import BranchRef, ProjectRef, TagRef
from graph.rules.policy import Action, may, require
from graph.rules.pushing import Move
from graph.types.branch_health import HealthOfBranch
from graph.types.branch_history import HistoryOfBranch
from graph.types.branch_timeline import TimelineOfBranch
from graph.types.commits import Commit
from graph.types.inputs import given, value_or
from graph.types.shown_commits import commit_of
from storage import tables
from storage.tables.settings import BranchProtection


async def _protection(root: Any, info: Info) -> BranchProtection:
    ref: ProjectRef = root
    return (await pushing.protections_of(info.context, ref.project_id)).get(ref.name, BranchProtection.NONE)


@strawberry.type(description="What the viewer may do with a branch.")
class BranchAbilities:
    push: bool = strawberry.field(description="Add commits to it.")
    force_push: bool = strawberry.field(description="Move it to commits that do not hold those it has.")
    delete: bool = strawberry.field(description="Delete it.")
    protect: bool = strawberry.field(description="Protect it and take its protection away.")


@entity(
    BranchRef,
    name="Branch",
    description="A line of work: a name that moves with its newest commit. Its id is that of the name: of a branch that is deleted and"
    " made again it is the same.",
    action=Action.READ_CODE,
    nodes=branches.branch_nodes,
)
class Branch(Node, HealthOfBranch, TimelineOfBranch, HistoryOfBranch):
    name: str = column(description="The name, without `refs/heads/`.")

    @strawberry.field(description="Whether developers may not force-push to it or delete it.")
    async def protected(self, info: Info) -> bool:
        return await _protection(self, info) is not BranchProtection.NONE

    @strawberry.field(description="Whether developers may add commits to it.")
    async def developers_can_push(self, info: Info) -> bool:
        return Move.PUSH in pushing.DEVELOPERS[await _protection(self, info)]

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> BranchAbilities:
        context, ref = info.context, _ref(self)
        project = await finding.project(context, str(ref.project_id))
        moves = await pushing.moves_of(context, project, ref.name)
        return BranchAbilities(
            push=Move.PUSH in moves,
            force_push=Move.FORCE in moves,
            delete=Move.DELETE in moves,
            protect=await may(context, Action.PROTECT_BRANCH, project),
        )

    @strawberry.field(description="The newest commit; null when the repository cannot give it.")
    async def target(self, info: Info) -> Commit | None:
        return await commit_of(info, _ref(self).project_id, _ref(self).oid)


@entity(TagRef, name="Tag", description="A name for one commit, for good.", action=Action.READ_CODE, nodes=branches.tag_nodes)
class Tag(Node):
    name: str = column(description="The name, without `refs/tags/`.")

    @strawberry.field(
        description="The commit, found through the tag's own object where it has one; null when the repository cannot give it."
    )
    async def target(self, info: Info) -> Commit | None:
        return await commit_of(info, _ref(self).project_id, _ref(self).oid)


def _ref(branch: Any) -> ProjectRef:
    return branch  # type: ignore[no-any-return]


async def _branches(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await branches.branches(info.context, root, window_of(arguments))


async def _tags(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await branches.tags(info.context, root, window_of(arguments))


@strawberry.type
class ProjectBranches:
    """The part of a project that is about its branches and tags."""

    branches: Connection[Branch] | None = connection_field(
        _branches, description="The branches, by name; null when there is no repository."
    )
    tags: Connection[Tag] | None = connection_field(_tags, description="The tags of commits, by name; null when there is no repository.")

    @strawberry.field(description="A branch by its exact name; without one the default branch, null while the project has none.")
    async def branch(
        self, info: Info, name: Annotated[str | None, strawberry.argument(description="The name; without one, the default branch.")] = None
    ) -> Branch | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await branches.one_of_many(info.context, project, name)  # type: ignore[return-value]


@strawberry.input
class OfBranch:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    name: str = strawberry.field(description="The name of the branch, without `refs/heads/`.")


@strawberry.input(description="A new branch.")
class CreateBranchInput(OfBranch):
    ref: str = strawberry.field(description="Where it starts: a branch, a tag, or the id of a commit.")


@strawberry.input(description="Names the branch to delete.")
class DeleteBranchInput(OfBranch):
    pass


@strawberry.input(description="Names the branch to protect.")
class ProtectBranchInput(OfBranch):
    developers_can_push: bool | None = given("Whether developers may add commits to it all the same; false when not sent.")


@strawberry.input(description="Names the branch whose protection ends.")
class UnprotectBranchInput(OfBranch):
    pass


async def _project(context: Context, input: OfBranch, action: Action) -> tables.Project:
    project = await finding.project(context, input.project_path)
    await require(context, action, project)
    return project


@mutation(entity="branch", returns=Branch, entity_description="The new branch.", description="Creates a branch; who may push may.")
async def create_branch(info: Info, input: CreateBranchInput) -> BranchRef:
    project = await _project(info.context, input, Action.PUSH_CODE)
    return await branches.create(info.context, project, input.name, input.ref)


@mutation(
    entity="branch",
    returns=Branch,
    entity_description="The branch as it was.",
    description="Deletes a branch with its protection; who may push may, and masters where it is protected.",
)
async def delete_branch(info: Info, input: DeleteBranchInput) -> BranchRef:
    project = await _project(info.context, input, Action.PUSH_CODE)
    return await branches.delete(info.context, project, input.name)


@mutation(
    entity="branch",
    returns=Branch,
    entity_description="The protected branch.",
    description="Protects a branch: developers can no longer move or delete it as they like. Masters may.",
)
async def protect_branch(info: Info, input: ProtectBranchInput) -> BranchRef:
    context = info.context
    project = await _project(context, input, Action.PROTECT_BRANCH)
    branch = await branches.branch(context, project, input.name)
    wanted = BranchProtection.PARTIAL if value_or(input.developers_can_push, False) else BranchProtection.FULL
    await pushing.protect(context, project, branch.name, wanted)
    return branch


@mutation(
    entity="branch",
    returns=Branch,
    entity_description="The branch, which is not protected any more.",
    description="Takes the protection of a branch away; does nothing for one without. Masters may.",
)
async def unprotect_branch(info: Info, input: UnprotectBranchInput) -> BranchRef:
    context = info.context
    project = await _project(context, input, Action.PROTECT_BRANCH)
    branch = await branches.branch(context, project, input.name)
    await pushing.protect(context, project, branch.name, BranchProtection.NONE)
    return branch


@strawberry.type
class BranchMutations:
    create_branch = create_branch
    delete_branch = delete_branch
    protect_branch = protect_branch
    unprotect_branch = unprotect_branch
