"""Deletion of a user, in this order:

1. Reject the deletion if the user is the only owner of a group, because the group would have no owner.
2. Lock the personal projects, so that none is moved to a group before its files are deleted, and publish hook events for everything that
   is deleted, while the rows still exist.
3. Delete personal projects with everything in them.
4. Reassign what the user wrote elsewhere to the ghost user, so that discussions stay complete.
5. Delete the user; foreign keys delete the keys, addresses, tokens and memberships.
6. After the commit, delete the files of the personal projects. A crash before that leaves files without a row, never a row without its
   repository.
"""

from typing import Any

from sqlalchemy import delete
from sqlmodel import col

from graph.context import Context
from graph.errors import Conflict, Forbidden
from graph.events import payloads
from graph.events.publisher import publish, publish_each
from graph.rules.accounts import accounts
from graph.rules.builds import stored_objects
from graph.rules.projects.projects import clean_up_deleted_projects, prepare_deletion
from storage import tables
from storage.tables import NamespaceKind
from storage.tables.accounts import access_conditions, members, namespaces, users
from storage.tables.projects.projects import ids_in_namespace_for_update


async def delete_user(context: Context, user: tables.User) -> None:
    """Delete a user that `accounts.lock_user` returned.

    Raises Conflict naming the groups that only this user owns, and Forbidden.
    """
    if user.id == context.viewer.id:
        raise Forbidden("You cannot delete yourself")
    await accounts.require_remaining_administrator(context, user)
    await _require_other_owners(context, user)
    personal = await context.first(namespaces.personal(user.id))
    projects = await context.all(ids_in_namespace_for_update(personal.id)) if personal is not None else []
    await _publish_deletions(context, user)
    await stored_objects.erase_objects_of_projects(context, projects)
    ghost = await accounts.get_or_create_ghost(context)
    session = context.session
    await prepare_deletion(context, projects)
    namespace = tables.Namespace
    await session.execute(delete(namespace).where(col(namespace.owner_id) == user.id, col(namespace.kind) == NamespaceKind.USER))
    for statement in users.reassign_authored(user.id, ghost.id):
        await session.execute(statement)
    await session.execute(delete(tables.User).where(col(tables.User.id) == user.id))
    context.loaders.clear()
    await clean_up_deleted_projects(context, projects)


async def _publish_deletions(context: Context, user: tables.User) -> None:
    await publish_each(context, payloads.ProjectDestroyed, tables.all_rows(tables.Project, access_conditions.owned_projects(user.id)))
    owned_tables: tuple[tuple[type[payloads.EventPayload], Any], ...] = (
        (payloads.KeyDestroyed, tables.SshKey),
        (payloads.UserRemovedFromProject, tables.ProjectMember),
        (payloads.UserRemovedFromGroup, tables.GroupMember),
    )
    for kind, table in owned_tables:
        await publish_each(context, kind, tables.all_rows(table, col(table.user_id) == user.id))
    await publish(context, payloads.UserDestroyed, user)


async def _require_other_owners(context: Context, user: tables.User) -> None:
    owned = {group.id: group.path for group in await context.all(members.owned_groups_for_update(user.id))}
    if not owned:
        return
    with_other_owners = set(await context.all(members.groups_with_other_owner(user.id, list(owned))))
    solely_owned = sorted(path for key, path in owned.items() if key not in with_other_owners)
    if solely_owned:
        raise Conflict(None, f"{user.username} is the only owner of {', '.join(solely_owned)}; add another owner to each first.")
