"""Import of the settings of the instance."""

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports import instance_imports
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.instance_settings import import_settings as write_settings
from graph.rules.permissions.policy import Action, require
from graph.types.imports.items import ImportInput, ImportItemResult
from graph.types.inputs import sent_values
from graph.types.settings import UpdateSettingsInput


@strawberry.input(description="Input of `importSettings`; the fields are those of `updateSettings`.")
class ImportSettingsInput(ImportInput, UpdateSettingsInput):
    pass


@mutation(
    entity="result",
    returns=ImportItemResult,
    entity_description="What became of the settings.",
    description="Imports settings of the instance; invalid ones are left out. Administrators only, while the import runs.",
)
async def import_settings(info: Info, input: ImportSettingsInput) -> ItemResult:
    await require(info.context, Action.IMPORT_INSTANCE)
    await instance_imports.lock_running(info.context, input.import_id)
    return await write_settings(info.context, sent_values(input))


@strawberry.type
class ImportSettingsMutations:
    import_settings = import_settings
