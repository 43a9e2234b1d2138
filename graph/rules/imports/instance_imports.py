"""Beginning, continuing and finishing the import of an instance.

An import is known by the URL of its source: beginning it again continues it, with what was imported until then.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sqlmodel import col

from graph.context import Context
from graph.errors import Invalid, LimitExceeded, NotAllowed
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.operations.token_scopes import require_private_token
from graph.rules import settings, validation
from graph.rules.accounts.accounts import GHOST_USERNAME
from graph.rules.imports.item_kinds import MAX_ITEMS
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.tables import ImportKind, InstanceImportState, NamespaceKind, import_identities, import_marks, instance_imports
from storage.tables.import_marks import MAX_MARK_LENGTH, MAX_MARK_NAME_LENGTH
from storage.tables.merge_requests import merge_request_branches

MAX_PAGE_SIZE = 1_000


def normalize_source(value: str) -> str:
    """The URL of an instance without credentials, query, fragment and slash at the end; scheme and host in lower case. Raises Invalid."""
    address = settings.validate_url("source", value)
    if address is None:
        raise Invalid("source", "must be a valid URL")
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2].lower()
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


async def begin_import(context: Context, source: str, keeps_ids: bool) -> tables.InstanceImport:
    """Begin the import of an instance, or continue it. Raises Invalid, InsufficientScope."""
    _require_private_token(context)
    url = normalize_source(source)
    # The settings exist always: their lock serializes the beginnings of imports.
    await settings.lock_settings(context)
    row = await context.first(instance_imports.of_source_for_update(url))
    if row is None:
        if keeps_ids:
            await _require_empty_instance(context)
        row = tables.InstanceImport(source=url, keeps_ids=keeps_ids, started_at=context.now())
    elif row.keeps_ids != keeps_ids:
        begun = "keeps" if row.keeps_ids else "does not keep"
        raise Invalid("keepIds", f"cannot be changed: the import of this source {begun} the IDs")
    row.state, row.started_at, row.finished_at = InstanceImportState.RUNNING, context.now(), None
    row.user_id = context.viewer.id or None
    return await context.add(row)


async def _require_empty_instance(context: Context) -> None:
    """Raises Invalid unless the instance has nothing but the viewer."""
    others = col(tables.User.id) != context.viewer.id, col(tables.User.username) != GHOST_USERNAME
    conditions: tuple[tuple[str, Any], ...] = (
        ("projects", tables.any_row(tables.Project)),
        ("groups", tables.any_row(tables.Namespace, col(tables.Namespace.kind) == NamespaceKind.GROUP)),
        ("other users", tables.any_row(tables.User, *others)),
    )
    for name, condition in conditions:
        if await context.exists(condition):
            raise Invalid("keepIds", f"requires an instance without users and projects; this one has {name}")


async def finish_import(context: Context, import_id: int) -> tables.InstanceImport:
    """Finish a running import. Raises Invalid, NotAllowed.

    Whether open merge requests can be merged is then checked in the background, because branches may have moved after they were imported.
    """
    row = await lock_running(context, import_id)
    row.state, row.finished_at = InstanceImportState.FINISHED, context.now()
    imported = import_identities.ids_of(row.id, ImportKind.PROJECT)
    await context.session.execute(merge_request_branches.mark_all_unchecked(imported))
    context.wake_maintenance(MaintenanceWork.MERGE_REQUESTS)
    return await context.add(row)


async def lock_running(context: Context, import_id: int) -> tables.InstanceImport:
    """The running import, locked until the transaction ends. Raises Invalid, NotAllowed, InsufficientScope."""
    _require_private_token(context)
    row = await context.first(instance_imports.for_update(import_id))
    if row is None:
        raise Invalid("importId", "is not the ID of an import")
    if row.state is not InstanceImportState.RUNNING:
        raise NotAllowed("importId", "The import is not running. Continue it with `beginImport`.")
    return row


def _require_private_token(context: Context) -> None:
    """Raises InsufficientScope for an access token, because an import writes private tokens, SSH keys and administrators."""
    require_private_token(context.access_token, "import an instance")


async def require_batch(context: Context, items: Sequence[Any]) -> None:
    """Require an administrator and a batch of at most MAX_ITEMS. Raises Forbidden, LimitExceeded."""
    await require(context, Action.IMPORT_INSTANCE)
    if not 1 <= len(items) <= MAX_ITEMS:
        raise LimitExceeded(f"The batch has {len(items):,} items; send 1 to {MAX_ITEMS}.")


async def lock_for_items(context: Context, import_id: int, items: Sequence[Any]) -> tables.InstanceImport:
    """The running import, for a batch of an administrator. Raises Forbidden, LimitExceeded, Invalid, NotAllowed."""
    await require_batch(context, items)
    return await lock_running(context, import_id)


async def count_identities(context: Context, import_id: int) -> dict[ImportKind, int]:
    """The number of imported items of each kind; one statement for all imports of a level."""

    async def fetch(ids: list[int]) -> dict[int, dict[ImportKind, int]]:
        found: dict[int, dict[ImportKind, int]] = {key: {} for key in ids}
        for key, kind, number in await context.tuples(import_identities.counts(ids)):
            found[key][kind] = number
        return found

    return await context.loader("import identity counts", fetch).get(import_id) or {}


async def load_identities(context: Context, import_id: int, kind: ImportKind, after: str, limit: int) -> list[tables.ImportIdentity]:
    """The identities of a kind after a source id, at most MAX_PAGE_SIZE. Raises LimitExceeded."""
    _require_page_size(limit)
    return await context.all(import_identities.page(import_id, kind, after, limit))


async def load_marks(context: Context, import_id: int, after: str, limit: int) -> list[tables.ImportMark]:
    """The marks after a name, at most MAX_PAGE_SIZE. Raises LimitExceeded."""
    _require_page_size(limit)
    return await context.all(import_marks.page(import_id, after, limit))


def _require_page_size(limit: int) -> None:
    if not 0 <= limit <= MAX_PAGE_SIZE:
        raise LimitExceeded(f"`first` is {limit:,}; it must be between 0 and {MAX_PAGE_SIZE:,}.")


async def set_marks(context: Context, running: tables.InstanceImport, items: Sequence[Mapping[str, Any]]) -> tables.InstanceImport:
    """Replace the values of marks. Raises Required, Invalid."""
    marks: dict[str, str] = {}
    for values in items:
        name = validation.validate_string("name", values["name"], max_length=MAX_MARK_NAME_LENGTH)
        marks[name] = validation.validate_string("value", values["value"], max_length=MAX_MARK_LENGTH)
    rows = [{"import_id": running.id, "name": name, "value": value} for name, value in marks.items()]
    await context.session.execute(import_marks.upsert(context.services.database.dialect), rows)
    return running
