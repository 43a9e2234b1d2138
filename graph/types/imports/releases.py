"""Imports of releases."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.releases import RELEASES
from graph.types.imports.items import RESULTS, ImportInput, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A release of a tag of the source.")
class ImportReleaseInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it shows one; used only for the ID of the row if IDs are kept.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    tag_name: str = strawberry.field(description="Name of the tag, which must exist.")
    description: str = strawberry.field(description="Description of the release.")
    created_at: datetime | None = optional("When it was created; default now.")
    updated_at: datetime | None = optional("When it was last changed; default: when it was created.")


@strawberry.input(description="Input of `importReleases`.")
class ImportReleasesInput(ImportInput):
    items: list[ImportReleaseInput] = strawberry.field(description="The releases; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports the releases of tags. Administrators only, while the import runs.",
)
async def import_releases(info: Info, input: ImportReleasesInput) -> list[ItemResult]:
    return await write_inputs(info, RELEASES, input.import_id, input.items)


@strawberry.type
class ImportReleaseMutations:
    import_releases = import_releases
