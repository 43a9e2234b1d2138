"""Registration tokens, and registration of runners with them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.fields.mutations import mutation
from graph.operations.token_scopes import may_see_writing_tokens, require_scope
from graph.rules.permissions.policy import Action, can, require
from graph.rules.runners import build_claims, runner_registration
from graph.types.builds.runners import Runner
from graph.types.inputs import find_project, get_or, optional, sent_values
from storage import tables
from storage.tables import TokenScope
from storage.tables.builds.registration_tokens import INSTANCE_SCOPE

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@strawberry.type
class SettingsRunnerRegistrationFields:
    """Fields of the settings about runner registration."""

    @strawberry.field(description="Token to register shared runners. An access token needs the scope WRITE.")
    async def runners_registration_token(self, info: Info) -> str:
        if info.context.access_token is not None:
            require_scope(info.context.access_token.scopes, TokenScope.WRITE)
        return await runner_registration.get_token(info.context, INSTANCE_SCOPE)


@strawberry.type
class ProjectRunnerRegistrationFields:
    """Fields of a project about runner registration."""

    @strawberry.field(
        description="Token to register runners for the project; null if the viewer cannot change the settings of the project, and for an"
        " access token without the scope WRITE."
    )
    async def runners_token(self, info: Info) -> str | None:
        project: Any = self
        if not may_see_writing_tokens(info.context.access_token) or not await can(info.context, Action.UPDATE_PROJECT, project):
            return None
        return await runner_registration.get_token(info.context, project.id)


@dataclass(frozen=True)
class RegistrationTarget:
    """The scope of a registration token; `project` is None for the instance."""

    project: tables.Project | None

    @property
    def scope(self) -> int:
        return self.project.id if self.project is not None else INSTANCE_SCOPE


@strawberry.type(description="Token to register runners.")
class RunnersToken:
    @strawberry.field(description="The token.")
    async def value(self, info: Info) -> str:
        registration: Any = self
        return await runner_registration.get_token(info.context, registration.scope)

    @strawberry.field(description="Project of the runners registered with the token; null for shared runners.")
    def project(self) -> Annotated["Project", strawberry.lazy("graph.types.projects.projects")] | None:
        registration: Any = self
        return registration.project  # type: ignore[no-any-return]


@strawberry.input(description="Input of `resetRunnersToken`.")
class ResetRunnersTokenInput:
    project_path: str | None = optional("Full path of the project, or its v3 ID; if omitted, the token of the instance is replaced.")


async def _find_registration(context: Context, path: str | None) -> RegistrationTarget:
    """The project with this path, or the instance, if the viewer may change its token. Raises NotFound, Forbidden."""
    if path is None:
        await require(context, Action.ADMIN_SETTINGS)
        return RegistrationTarget(None)
    project = await find_project(context, path, Action.UPDATE_PROJECT)
    return RegistrationTarget(project)


@mutation(
    entity="runners_token",
    returns=RunnersToken,
    entity_description="The new token.",
    description="Replaces the registration token of a project or of the instance. The old token becomes invalid immediately; runners"
    " registered with it remain. Requires the master role in the project, or an administrator.",
)
async def reset_runners_token(info: Info, input: ResetRunnersTokenInput) -> RegistrationTarget:
    registration = await _find_registration(info.context, get_or(input.project_path, None))
    await runner_registration.reset_token(info.context, registration.scope)
    return registration


@strawberry.input(description="Input of `registerRunner`.")
class RegisterRunnerInput:
    registration_token: str = strawberry.field(description="`runnersToken` of a project, or `runnersRegistrationToken` of the instance.")
    description: str | None = optional("Description, at most 255 characters; default: the name.")
    tags: list[str] | None = optional("Tags of the runner; it takes only builds all of whose tags it has.")
    name: str | None = optional("Name the runner reports.")
    version: str | None = optional("Version of the runner.")
    revision: str | None = optional("Revision the runner was built from.")
    platform: str | None = optional("Operating system of the runner.")
    architecture: str | None = optional("Processor architecture of the runner.")


@mutation(
    entity="runner",
    returns=Runner,
    anonymous=True,
    entity_description="The created runner.",
    second_field=("token", str, "Authentication token of the runner."),
    description="Registers a runner with a registration token; no other credential is required.",
)
async def register_runner(info: Info, input: RegisterRunnerInput) -> tuple[tables.Runner, str]:
    details, tags = build_claims.RunnerDetails.of(sent_values(input)), get_or(input.tags, [])
    return await runner_registration.register_runner(info.context, input.registration_token, get_or(input.description, ""), tags, details)


@strawberry.input(description="Input of `unregisterRunner`.")
class UnregisterRunnerInput:
    token: str = strawberry.field(description="Authentication token of the runner.")


@mutation(
    entity="runner",
    returns=Runner,
    anonymous=True,
    deletes=True,
    entity_description="The deleted runner.",
    description="Deletes the runner with this token; no other credential is required. Its running builds are assigned to other runners.",
)
async def unregister_runner(info: Info, input: UnregisterRunnerInput) -> tables.Runner:
    return await runner_registration.unregister_runner(info.context, input.token)


@strawberry.type
class RunnerRegistrationMutations:
    reset_runners_token = reset_runners_token
    register_runner = register_runner
    unregister_runner = unregister_runner
