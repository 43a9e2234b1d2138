"""Imports of builds."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.builds import BUILDS
from graph.types.builds.build_filters import BuildStatus
from graph.types.builds.pipelines import JobWhen
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A build of the source.")
class ImportBuildInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    sha: str = strawberry.field(description="Full ID of the commit.")
    ref: str = strawberry.field(description="Branch or tag.")
    tag: bool | None = optional("Whether `ref` is a tag, default false.")
    name: str = strawberry.field(description="Name of the job; at most 255 characters.")
    stage: str = strawberry.field(description="Stage in the pipeline.")
    stage_index: int | None = optional("Position of the stage in the pipeline, from 0.")
    status: BuildStatus = strawberry.field(  # type: ignore[valid-type]
        description="Status. No runner takes a pending or running one; a later import updates it."
    )
    allow_failure: bool | None = optional("Whether it can fail without failing the commit, default false.")
    run_when: JobWhen | None = optional("Result of the earlier stages for which it runs, default `ON_SUCCESS`.")  # type: ignore[valid-type]
    user_id: strawberry.ID | None = optional("The source's ID of the user who created it.")
    runner_id: strawberry.ID | None = optional("The source's ID of the runner that ran it.")
    coverage: float | None = optional("Code coverage in percent.")
    description: str | None = optional("Additional description.")
    target_url: str | None = optional("URL of a page with details; left out unless it is http, https or relative.")
    created_at: datetime = strawberry.field(description="When it was created.")
    started_at: datetime | None = optional("When it started.")
    finished_at: datetime | None = optional("When it finished.")
    erased_at: datetime | None = optional("When its trace and artifact were erased.")


@strawberry.input(description="Input of `importBuilds`.")
class ImportBuildsInput(ImportInput):
    items: list[ImportBuildInput] = strawberry.field(description="The builds; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports builds, in the order of their IDs, without traces and artifacts. Administrators only, while the import runs.",
)
async def import_builds(info: Info, input: ImportBuildsInput) -> list[ItemResult]:
    return await write_inputs(info, BUILDS, input.import_id, input.items)


@strawberry.type
class ImportBuildMutations:
    import_builds = import_builds
