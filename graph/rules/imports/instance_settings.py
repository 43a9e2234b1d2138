"""Imported settings of the instance."""

from collections.abc import Mapping
from typing import Any

from graph.context import Context
from graph.errors import UserError
from graph.rules import settings
from graph.rules.imports.batches import ItemError, ItemResult
from graph.rules.imports.item_kinds import ImportOutcome
from graph.rules.validation import to_camel_case
from storage.tables.settings import SETTINGS_ID


async def import_settings(context: Context, values: Mapping[str, Any]) -> ItemResult:
    """Set the values of `ImportSettingsInput` that were sent; invalid ones are left out."""
    columns: dict[str, Any] = {}
    errors: list[ItemError] = []
    for name, value in values.items():
        if name != "import_id":
            try:
                columns |= settings.validate_columns({name: value})
            except UserError as error:
                errors.append(ItemError(to_camel_case(name), error.message, error.code))
    row = await settings.lock_settings(context)
    changed = {name: value for name, value in columns.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    if changed:
        row.updated_at = context.now()
        await context.session.flush()
    outcome = ImportOutcome.UPDATED if changed else ImportOutcome.UNCHANGED
    return ItemResult(str(SETTINGS_ID), SETTINGS_ID, outcome, errors)
