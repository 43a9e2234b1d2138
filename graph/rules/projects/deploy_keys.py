"""Deploy keys of projects (docs/wire-facts.md 8.4 and 14)."""

from collections.abc import Sequence

from graph.context import Context
from graph.errors import Invalid, Required, UserError, UserErrors
from graph.events import payloads
from graph.events.publisher import publish
from graph.rules import lookup, validation
from graph.rules.accounts import ssh_keys
from graph.rules.permissions.policy import Action, can, filter_visible_projects, require
from storage import tables
from storage.tables.projects import deploy_keys

BLANK = ("can't be blank", "is too short (minimum is 0 characters)")


async def get_deploy_key(context: Context, project: tables.Project, key_id: int) -> tables.DeployKey:
    """The deploy key of the project. Raises Forbidden before NotFound."""
    await require(context, Action.ADMIN_DEPLOY_KEY, project)
    return await lookup.get_in_project(context, tables.DeployKey, project, database_id=key_id)


async def add_deploy_key(context: Context, project: tables.Project, title: str, key: str) -> tables.DeployKey:
    """Add a key to the project, or return the project's own.

    A key of another project is accepted with its title if the viewer administrates the deploy keys there. Raises UserErrors with every
    problem found, also when a user or another project has the key.
    """
    cleaned_title, cleaned_key, fingerprint = await _validate(title, key)
    await ssh_keys.lock_fingerprint(context, fingerprint)
    same = await context.all(deploy_keys.of_fingerprint(fingerprint))
    own = next((row for row in same if row.project_id == project.id), None)
    if own is not None:
        return own
    if await ssh_keys.is_users_key(context, fingerprint):
        raise ssh_keys.taken_errors()
    usable = await _find_usable(context, same)
    if same and usable is None:
        raise ssh_keys.taken_errors()
    moment = context.now()
    row = tables.DeployKey(
        project_id=project.id,
        title=usable.title if usable is not None else cleaned_title,
        key=usable.key if usable is not None else cleaned_key,
        fingerprint=fingerprint,
        created_at=moment,
        updated_at=moment,
    )
    await context.add(row)
    await publish(context, payloads.DeployKeyCreated, row)
    return row


async def delete_deploy_key(context: Context, key: tables.DeployKey) -> tables.DeployKey:
    """Delete a key of a project; the same key of other projects stays."""
    await publish(context, payloads.DeployKeyDestroyed, key)
    await context.delete(key)
    return key


async def _find_usable(context: Context, rows: Sequence[tables.DeployKey]) -> tables.DeployKey | None:
    """The first key of a project in which the viewer administrates deploy keys."""
    visible = await filter_visible_projects(context, [row.project_id for row in rows])
    for row in rows:
        if row.project_id in visible and await can(context, Action.ADMIN_DEPLOY_KEY, row):
            return row
    return None


async def _validate(title: str, key: str) -> tuple[str, str, str]:
    """The title, the key and its fingerprint. A missing one is an invalid value, as legacy clients expect. Raises UserErrors."""
    problems: list[UserError] = []
    cleaned_title = cleaned_key = fingerprint = ""
    try:
        cleaned_title = validation.validate_title("title", title)
    except Required:
        problems += [Invalid("title", message) for message in BLANK]
    except UserError as error:
        problems.append(error)
    if not key.strip():
        problems += [Invalid("key", message) for message in BLANK]
    try:
        cleaned_key, fingerprint = await ssh_keys.parse_key(key)
    except UserError as error:
        problems += error.errors if isinstance(error, UserErrors) else [error]
    if problems:
        raise UserErrors(problems)
    return cleaned_title, cleaned_key, fingerprint
