"""Environments and deployments."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.fields.scalars import GitOid
from graph.rules.builds import environments
from graph.rules.permissions.policy import Action, can
from graph.types.accounts.users import User
from graph.types.git.commit_loader import load_commit
from graph.types.inputs import ProjectResourceInput, find_in_project
from storage import tables

if TYPE_CHECKING:
    from graph.types.builds.builds import Build
    from graph.types.git.commits import Commit
    from graph.types.projects.projects import Project


@strawberry.input(description="Filters environments; all specified fields must match.")
class EnvironmentFilter:
    name: list[str] | None = strawberry.field(description="Name is one of these.", default=None)
    stopped: bool | None = strawberry.field(description="Whether it is stopped; null for both.", default=None)

    list_attributes: ClassVar[tuple[str, ...]] = ("name",)

    def conditions(self) -> list[Any]:
        row = tables.Environment
        found: list[Any] = [] if self.name is None else [col(row.name).in_(self.name)]
        if self.stopped is not None:
            found.append(col(row.stopped_at).is_not(None) if self.stopped else col(row.stopped_at).is_(None))
        return found


@entity(
    tables.Deployment,
    description="A build that deployed a commit to an environment.",
    project_key="project_id",
    action=Action.READ_BUILD,
)
class Deployment(Node):
    database_id: int = column(tables.Deployment.id, description="Number of the deployment, increasing over time.")
    sha: GitOid = column(description="Full ID of the commit.")
    ref: str = column(description="Branch or tag.")
    tag: bool = column(description="Whether `ref` is a tag.")
    created_at: datetime = column(description="When the build succeeded.")
    user: User | None = to_one(
        tables.Deployment.user_id, description="User who played the build, or whose push created it; null if nobody did."
    )
    environment: Annotated["Environment", strawberry.lazy("graph.types.builds.environments")] = to_one(
        tables.Deployment.environment_id, description="Environment to which the commit was deployed."
    )
    build: Annotated["Build", strawberry.lazy("graph.types.builds.builds")] | None = to_one(
        tables.Deployment.build_id, description="The build; null if it was deleted."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Deployment.project_id, description="Project it belongs to."
    )

    @strawberry.field(description="The commit; null if it cannot be read.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.git.commits")] | None:
        row: Any = self
        return await load_commit(info, row.project_id, row.sha)


@strawberry.type(description="Actions the viewer is allowed to perform on an environment in its current state.")
class EnvironmentAbilities:
    stop: bool = strawberry.field(description="Stop the environment.")


@entity(
    tables.Environment,
    description="A place to which builds deploy, named by `environment` in the CI file.",
    project_key="project_id",
    action=Action.READ_BUILD,
)
class Environment(Node):
    database_id: int = column(tables.Environment.id, description="Number of the environment, increasing over time.")
    name: str = column(description="Name, with its variables expanded.")
    external_url: str | None = column(description="URL of what the last deployment deployed; null if the CI file names none.")
    stop_job: str | None = column(description="Job that stops it, `on_stop` in the CI file; null if there is none.")
    created_at: datetime = column(description="When it was first deployed to.")
    stopped_at: datetime | None = column(description="When it was stopped; null if it was not, or was deployed to again.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Environment.project_id, description="Project it belongs to."
    )
    deployments: Connection[Deployment] = to_many(
        tables.Deployment.environment_id,
        order_by=Order(tables.Deployment.id, descending=True),
        action=Action.READ_BUILD,
        description="Deployments, newest first.",
    )

    @strawberry.field(description="Newest deployment; null if it was deleted.")
    async def last_deployment(self, info: Info) -> Deployment | None:
        row: Any = self
        return await environments.last_deployment_loader(info.context).get(row.id)  # type: ignore[no-any-return]

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> EnvironmentAbilities:
        row: Any = self
        return EnvironmentAbilities(stop=row.stopped_at is None and await can(info.context, Action.UPDATE_BUILD, row))


@strawberry.type
class BuildDeploymentFields:
    """Fields of a build about its deployment."""

    @strawberry.field(description="What the build deployed; null if it deployed nothing.")
    async def deployment(self, info: Info) -> Deployment | None:
        row: Any = self
        return await environments.deployment_loader(info.context).get(row.id)  # type: ignore[no-any-return]


@strawberry.type
class ProjectEnvironmentFields:
    """Fields of a project about its environments."""

    environments: Connection[Environment] | None = to_many(
        tables.Environment.project_id,
        order_by=Order(tables.Environment.name),
        filter=EnvironmentFilter,
        action=Action.READ_BUILD,
        description="Environments of the project, by name; null, with an error, if the viewer cannot see builds.",
    )
    deployments: Connection[Deployment] | None = to_many(
        tables.Deployment.project_id,
        order_by=Order(tables.Deployment.id, descending=True),
        action=Action.READ_BUILD,
        description="Deployments of the project, newest first; null, with an error, if the viewer cannot see builds.",
    )


@strawberry.input(description="Identifies an environment.")
class StopEnvironmentInput(ProjectResourceInput):
    pass


@mutation(
    entity="environment",
    returns=Environment,
    entity_description="The environment; it is stopped when its `stopJob` has succeeded, at once without one.",
    description="Stops an environment: plays or retries the `stopJob` of its last deployment. Requires the developer role.",
)
async def stop_environment(info: Info, input: StopEnvironmentInput) -> tables.Environment:
    _, environment = await find_in_project(info.context, tables.Environment, input, action=Action.UPDATE_BUILD)
    return await environments.stop_environment(info.context, environment)


@strawberry.type
class EnvironmentMutations:
    stop_environment = stop_environment
