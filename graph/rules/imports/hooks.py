"""Imported hooks of the instance and of projects.

They are disabled unless the item says otherwise, so that a rehearsal sends nothing to the receivers of the source. Their addresses are
checked when something is sent: what the source may call is not resolved here.
"""

from graph.errors import Invalid
from graph.events.address_guard import HookUrl, InvalidHookUrl, parse_hook_url
from graph.rules.events import hooks
from graph.rules.imports.batches import Batch
from graph.rules.imports.item_kinds import TIMES, ImportField, ItemKind, reference
from storage import tables
from storage.tables import ImportKind
from storage.tables.base import MAX_URL_LENGTH

DISABLED_REASON = "imported"


def _validate_url(field: str, value: str) -> HookUrl:
    try:
        return parse_hook_url(value, max_length=MAX_URL_LENGTH)
    except InvalidHookUrl as error:
        raise Invalid(field, str(error)) from None


async def _prepare(batch: Batch) -> None:
    for item in batch.open_items:
        target: HookUrl = item.columns["url"]
        item.columns["url"] = target.url
        if target.credentials is not None:
            item.secrets["credentials"] = target.credentials
        is_enabled = bool(item.values.get("enabled"))
        item.initial["disabled_at"] = None if is_enabled else item.initial["created_at"] or batch.running.started_at
        item.initial["disabled_reason"] = None if is_enabled else DISABLED_REASON


async def _write_related(batch: Batch) -> None:
    if batch.written_items:
        batch.context.after_commit.append(batch.context.services.outbox.record_hook_change)


HOOKS = ItemKind(
    kind=ImportKind.HOOK,
    table=tables.Hook,
    fields={
        "project_id": reference(ImportKind.PROJECT),
        "url": ImportField(validate=_validate_url, is_required=True),
        "token": ImportField(validate=lambda _, value: hooks.validate_token(value), is_sealed=True),
        "credentials": ImportField(is_sealed=True),
        **{name: ImportField(default=default) for name, default in hooks.DEFAULT_SWITCHES.items()},
        **TIMES,
    },
    reuses_ids=True,
    prepare=_prepare,
    write_related=_write_related,
)
