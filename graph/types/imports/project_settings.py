"""Imports of what masters set in projects, and of hooks of the instance."""

from datetime import date, datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.labels import LABELS, MILESTONES
from graph.rules.imports.hooks import HOOKS
from graph.rules.imports.project_settings import DEPLOY_KEYS, PROTECTED_BRANCHES, TRIGGERS, VARIABLES
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional
from graph.types.issues.milestones import MilestoneState


@strawberry.input(description="A label of a project.")
class ImportLabelInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it has one; with kept IDs that of the row.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    name: str = strawberry.field(description="Name, unique in the project (case-sensitive).")
    color: str = strawberry.field(description="Color, such as `#FF0000`.")
    description: str | None = optional("Description.")
    template: bool | None = optional("Whether it is a template.")
    created_at: datetime | None = optional("When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importLabels`.")
class ImportLabelsInput(ImportInput):
    items: list[ImportLabelInput] = strawberry.field(description="The labels; 1 to 100.")


@mutation(**RESULTS, description="Imports labels. Administrators only, while the import runs.")
async def import_labels(info: Info, input: ImportLabelsInput) -> list[ItemResult]:
    return await write_inputs(info, LABELS, input.import_id, input.items)


@strawberry.input(description="A milestone of a project.")
class ImportMilestoneInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    iid: int = strawberry.field(description="Number within the project.")
    title: str = strawberry.field(description="Title, unique in the project.")
    description: str | None = optional("Description.")
    due_date: date | None = optional("Due date.")
    state: MilestoneState | None = optional("State; default: active.")  # type: ignore[valid-type]
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importMilestones`.")
class ImportMilestonesInput(ImportInput):
    items: list[ImportMilestoneInput] = strawberry.field(description="The milestones; 1 to 100.")


@mutation(**RESULTS, description="Imports milestones. Administrators only, while the import runs.")
async def import_milestones(info: Info, input: ImportMilestonesInput) -> list[ItemResult]:
    return await write_inputs(info, MILESTONES, input.import_id, input.items)


@strawberry.input(description="A hook of a project or of the instance.")
class ImportHookInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID | None = optional("The source's ID of the project; null for a hook of the instance.")
    url: str = strawberry.field(description="http or https URL; a user name and password in it are stored separately, encrypted.")
    token: str | None = optional("Token that is sent in the `X-Gitlab-Token` header. Never returned.")
    push_events: bool | None = optional("Send push events for branches; default: true.")
    tag_push_events: bool | None = optional("Send push events for tags.")
    issues_events: bool | None = optional("Send issue events.")
    merge_requests_events: bool | None = optional("Send merge request events.")
    note_events: bool | None = optional("Send note events.")
    build_events: bool | None = optional("Send events of builds that start or finish.")
    enable_ssl_verification: bool | None = optional("Verify the TLS certificate of the receiver; default: true.")
    enabled: bool | None = optional("Whether it is enabled at its creation; default: false.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importHooks`.")
class ImportHooksInput(ImportInput):
    items: list[ImportHookInput] = strawberry.field(description="The hooks; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports hooks. They are created disabled unless `enabled` is true, so that a rehearsal sends nothing."
    " Administrators only, while the import runs.",
)
async def import_hooks(info: Info, input: ImportHooksInput) -> list[ItemResult]:
    return await write_inputs(info, HOOKS, input.import_id, input.items)


@strawberry.input(description="A deploy key of a project.")
class ImportDeployKeyInput:
    source_id: strawberry.ID = strawberry.field(description="ID in the source, which may have one key for several projects.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    title: str = strawberry.field(description="Title.")
    key: str = strawberry.field(description="Public key in one line.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importDeployKeys`.")
class ImportDeployKeysInput(ImportInput):
    items: list[ImportDeployKeyInput] = strawberry.field(description="The deploy keys; 1 to 100.")


@mutation(**RESULTS, description="Imports deploy keys. Administrators only, while the import runs.")
async def import_deploy_keys(info: Info, input: ImportDeployKeysInput) -> list[ItemResult]:
    return await write_inputs(info, DEPLOY_KEYS, input.import_id, input.items)


@strawberry.input(description="A secret variable of a project.")
class ImportVariableInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it has one; with kept IDs that of the row.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    key: str = strawberry.field(description="Name, unique in the project.")
    value: str = strawberry.field(description="Value.")
    created_at: datetime | None = optional("When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")


@strawberry.input(description="Input of `importVariables`.")
class ImportVariablesInput(ImportInput):
    items: list[ImportVariableInput] = strawberry.field(description="The secret variables; 1 to 100.")


@mutation(**RESULTS, description="Imports secret variables. Administrators only, while the import runs.")
async def import_variables(info: Info, input: ImportVariablesInput) -> list[ItemResult]:
    return await write_inputs(info, VARIABLES, input.import_id, input.items)


@strawberry.input(description="A trigger of a project.")
class ImportTriggerInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it has one; with kept IDs that of the row.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    token: str = strawberry.field(description="Its token.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed.")
    last_used_at: datetime | None = optional("When it last created builds.")


@strawberry.input(description="Input of `importTriggers`.")
class ImportTriggersInput(ImportInput):
    items: list[ImportTriggerInput] = strawberry.field(description="The triggers; 1 to 100.")


@mutation(**RESULTS, description="Imports triggers. Administrators only, while the import runs.")
async def import_triggers(info: Info, input: ImportTriggersInput) -> list[ItemResult]:
    return await write_inputs(info, TRIGGERS, input.import_id, input.items)


@strawberry.input(description="A protected branch of a project.")
class ImportProtectedBranchInput:
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    name: str = strawberry.field(description="Name of the branch, which need not exist yet.")
    developers_can_push: bool | None = optional("Whether developers may push.")
    created_at: datetime | None = optional("When it was created.")


@strawberry.input(description="Input of `importProtectedBranches`.")
class ImportProtectedBranchesInput(ImportInput):
    items: list[ImportProtectedBranchInput] = strawberry.field(description="The protected branches; 1 to 100.")


@mutation(**RESULTS, description="Imports protected branches. Administrators only, while the import runs.")
async def import_protected_branches(info: Info, input: ImportProtectedBranchesInput) -> list[ItemResult]:
    return await write_inputs(info, PROTECTED_BRANCHES, input.import_id, input.items)


@strawberry.type
class ImportProjectSettingMutations:
    import_labels = import_labels
    import_milestones = import_milestones
    import_hooks = import_hooks
    import_deploy_keys = import_deploy_keys
    import_variables = import_variables
    import_triggers = import_triggers
    import_protected_branches = import_protected_branches
