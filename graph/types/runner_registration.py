"""How runners come by themselves: registration tokens, and what is done with them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.mutations import mutation
from graph.rules import finding, runner_registration
from graph.rules.policy import Action, may, require
from graph.types.inputs import given, value_or
from storage import tables
from storage.tables.registration_tokens import INSTANCE

if TYPE_CHECKING:
    from graph.types.projects import Project


@strawberry.type
class SettingsRunnerRegistration:
    """The part of the settings that is about runners."""

    @strawberry.field(description="Who knows this token registers runners that serve every project.")
    async def runners_registration_token(self, info: Info) -> str | None:
        return await runner_registration.token(info.context, INSTANCE)


@strawberry.type
class ProjectRunnerRegistration:
    """The part of a project that is about who may register runners for it."""

    @strawberry.field(
        description="Who knows this token registers runners for the project; null for viewers who may not change the project's settings."
    )
    async def runners_token(self, info: Info) -> str | None:
        project: Any = self
        if not await may(info.context, Action.UPDATE_PROJECT, project):
            return None
        return await runner_registration.token(info.context, project.id)


@dataclass(frozen=True)
class Registration:
    """What a registration token is for: the instance where `project` is None."""

    project: tables.Project | None

    @property
    def scope(self) -> int:
        return self.project.id if self.project is not None else INSTANCE


@strawberry.type(description="A token with which runners are registered.")
class RunnersToken:
    @strawberry.field(description="The token.")
    async def value(self, info: Info) -> str | None:
        registration: Any = self
        return await runner_registration.token(info.context, registration.scope)

    @strawberry.field(description="The project whose runners are registered with it; null for runners that serve every project.")
    def project(self) -> Annotated["Project", strawberry.lazy("graph.types.projects")] | None:
        registration: Any = self
        return registration.project  # type: ignore[no-any-return]


@strawberry.input(description="Names a registration token.")
class ResetRunnersTokenInput:
    project_path: str | None = given("The full path of the project, or its v3 id in digits; without one, the instance's token is meant.")


@mutation(
    entity="runners_token",
    returns=RunnersToken,
    entity_description="The new token.",
    description="Gives a project, or the instance, another token to register runners with. The old one is worthless at once; runners that "
    "were registered with it stay. For masters of the project, and administrators.",
)
async def reset_runners_token(info: Info, input: ResetRunnersTokenInput) -> Registration:
    context: Context = info.context
    path = value_or(input.project_path, None)
    project: tables.Project | None = None
    if path is None:
        await require(context, Action.ADMIN_SETTINGS)
    else:
        project = await finding.project(context, path)
        await require(context, Action.UPDATE_PROJECT, project)
    registration = Registration(project)
    await runner_registration.reset(context, registration.scope)
    return registration


@strawberry.type
class RunnerRegistrationMutations:
    reset_runners_token = reset_runners_token
