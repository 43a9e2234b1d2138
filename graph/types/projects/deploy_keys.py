"""Deploy keys of projects."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules.permissions.policy import Action
from graph.rules.projects import deploy_keys
from graph.types.inputs import ProjectInput, ProjectResourceInput, find_in_project, find_project
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@entity(
    tables.DeployKey,
    description="SSH public key that may fetch from a project; it belongs to no user, and cannot push.",
    project_key="project_id",
    action=Action.ADMIN_DEPLOY_KEY,
)
class DeployKey(Node):
    database_id: int = column(tables.DeployKey.id, description="ID in the v3 API.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.DeployKey.project_id, description="Project it may fetch from."
    )
    title: str = column(description="Title.")
    key: str = column(description="Public key in one line.")
    fingerprint: str = column(description="MD5 fingerprint, 16 pairs of hexadecimal digits; never that of a user's key.")
    created_at: datetime = column(description="When it was added.")
    updated_at: datetime = column(description="When it was last changed.")

    @computed(tables.DeployKey.project_id, tables.DeployKey.id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/keys/{row.id}"


@strawberry.type
class ProjectDeployKeyFields:
    """Fields of a project about its deploy keys."""

    deploy_keys: Connection[DeployKey] | None = to_many(
        tables.DeployKey.project_id,
        order_by=Order(tables.DeployKey.id),
        action=Action.ADMIN_DEPLOY_KEY,
        description="Deploy keys, oldest first. Requires the master role.",
    )

    @strawberry.field(description="Deploy key of the project, by v3 ID; an error if there is none. Requires the master role.")
    async def deploy_key(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="ID in the v3 API.")]
    ) -> DeployKey | None:
        project: Any = self
        return await deploy_keys.get_deploy_key(info.context, project, database_id)  # type: ignore[return-value]


@strawberry.input(description="Input of `addDeployKey`.")
class AddDeployKeyInput(ProjectInput):
    title: str = strawberry.field(description="Title; at most 255 characters.")
    key: str = strawberry.field(description="Public key in one line, such as `ssh-ed25519 AAAA… comment`.")


@strawberry.input(description="Identifies a deploy key.")
class DeleteDeployKeyInput(ProjectResourceInput):
    pass


@mutation(
    entity="deploy_key",
    returns=DeployKey,
    entity_description="The added key, or the project's own if it already has this key.",
    description="Adds a key that may fetch from a project, or the key of another project in which the viewer administrates it. Requires the"
    " master role.",
)
async def add_deploy_key(info: Info, input: AddDeployKeyInput) -> tables.DeployKey:
    project = await find_project(info.context, input.project_path, Action.ADMIN_DEPLOY_KEY)
    return await deploy_keys.add_deploy_key(info.context, project, input.title, input.key)


@mutation(
    entity="deploy_key",
    returns=DeployKey,
    deletes=True,
    entity_description="The deleted key.",
    description="Deletes a deploy key of a project; the same key in other projects stays. Requires the master role.",
)
async def delete_deploy_key(info: Info, input: DeleteDeployKeyInput) -> tables.DeployKey:
    _, key = await find_in_project(info.context, tables.DeployKey, input, action=Action.ADMIN_DEPLOY_KEY)
    return await deploy_keys.delete_deploy_key(info.context, key)


@strawberry.type
class DeployKeyMutations:
    add_deploy_key = add_deploy_key
    delete_deploy_key = delete_deploy_key
