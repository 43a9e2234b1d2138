"""Imports of runners."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.runners import RUNNERS
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A runner of the source.")
class ImportRunnerInput:
    source_id: strawberry.ID = source_id()
    token: str | None = optional(
        "Token by which the runner identifies itself; a runner of this instance with this token is reused. Default: a new one."
    )
    description: str = strawberry.field(description="Description; at most 255 characters.")
    active: bool | None = optional("Whether builds are assigned to it; default true.")
    shared: bool | None = optional("Whether it is shared by all projects; default false.")
    tags: list[str] | None = optional("Tags; it takes only builds all of whose tags it has.")
    run_untagged: bool | None = optional("Whether it takes builds without tags; default true.")
    project_ids: list[strawberry.ID] | None = optional("The source's IDs of all projects that it serves, if it is not shared.")
    name: str | None = optional("Name the runner reports.")
    version: str | None = optional("Version the runner reports.")
    revision: str | None = optional("Revision the runner reports.")
    platform: str | None = optional("Operating system the runner reports.")
    architecture: str | None = optional("Processor architecture the runner reports.")
    contacted_at: datetime | None = optional("When it last called.")
    created_at: datetime | None = optional("When it was registered; default now.")
    updated_at: datetime | None = optional("When it was last changed; default: when it was registered.")


@strawberry.input(description="Input of `importRunners`.")
class ImportRunnersInput(ImportInput):
    items: list[ImportRunnerInput] = strawberry.field(description="The runners; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports runners with the projects that they serve. Administrators only, while the import runs.",
)
async def import_runners(info: Info, input: ImportRunnersInput) -> list[ItemResult]:
    return await write_inputs(info, RUNNERS, input.import_id, input.items)


@strawberry.type
class ImportRunnerMutations:
    import_runners = import_runners
