"""How runners come by themselves: registration tokens, and what is done with them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.mutations import mutation
from graph.rules import finding, runner_registration, runners
from graph.rules.policy import Action, may, require
from graph.types.inputs import given, value_or
from graph.types.runners import Runner
from storage import tables
from storage.tables.registration_tokens import INSTANCE

if TYPE_CHECKING:
    from graph.types.projects import Project


@strawberry.type
class SettingsRunnerRegistration:
    """The part of the settings that is about runners."""

    @strawberry.field(description="Who knows this token registers runners that serve every project.")
    async def runners_registration_token(self, info: Info) -> str:
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
    async def value(self, info: Info) -> str:
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


@strawberry.input(description="A runner that makes itself known.")
class RegisterRunnerInput:
    registration_token: str = strawberry.field(description="A project's `runnersToken`, or the instance's `runnersRegistrationToken`.")
    description: str | None = given("What it is, in words; at most 255 characters. Without it the runner is called by its name.")
    tags: list[str] | None = given("What it has to offer; all tags of a build must be among them.")
    name: str | None = given("What the runner calls itself.")
    version: str | None = given("The release of its program.")
    revision: str | None = given("The commit that its program was built of.")
    platform: str | None = given("The system that it runs on.")
    architecture: str | None = given("The kind of processor that it runs on.")


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The new runner.",
    beside=("token", str, "What the runner calls with. It is shown here alone, and never again."),
    description="Makes a runner known that knows a registration token; needs no other credential.",
)
async def register_runner(info: Info, input: RegisterRunnerInput) -> tuple[tables.Runner, str]:
    about = runners.About(**{key: value_or(getattr(input, key), None) for key in runners.About.__slots__})
    tags = value_or(input.tags, [])
    return await runner_registration.register(info.context, input.registration_token, value_or(input.description, ""), tags, about)


@strawberry.input(description="A runner that goes.")
class UnregisterRunnerInput:
    token: str = strawberry.field(description="What the runner calls with.")


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The runner as it was.",
    description="Forgets the runner that has this token; needs no other credential. What it runs is given to another one.",
)
async def unregister_runner(info: Info, input: UnregisterRunnerInput) -> tables.Runner:
    return await runner_registration.unregister(info.context, input.token)


@strawberry.type
class RunnerRegistrationMutations:
    reset_runners_token = reset_runners_token
    register_runner = register_runner
    unregister_runner = unregister_runner
