"""Memberships that follow from the groups of a directory or provider.

In a group that the configuration maps, the membership of everybody from the provider is what the mapping says: it is added, changed and
removed. People without an identity of the provider keep theirs. The last owner of a group always stays.
"""

from collections.abc import Collection, Mapping

import structlog

from graph.context import Context
from graph.errors import Invalid, NotFound
from graph.events import payloads
from graph.events.publisher import publish
from graph.rules.accounts import groups, members
from storage import tables
from storage.tables import AccessLevel
from storage.tables.accounts import members as member_statements
from storage.tables.accounts import namespaces

log = structlog.get_logger("directory")


async def apply_levels(context: Context, user: tables.User, levels: Mapping[str, AccessLevel], mapped_paths: Collection[str]) -> None:
    """Give the user these levels in groups, by path in lower case, and none in the other mapped groups."""
    if not mapped_paths:
        return
    found = await context.all(namespaces.groups_of_paths(sorted(mapped_paths)))
    current = dict(map(tuple, await context.tuples(member_statements.levels_in_groups(user.id, [group.id for group in found]))))
    for group in found:
        level = levels.get(group.path_key)
        if level == current.get(group.id):
            continue
        try:
            await _change_level(context, group, user, level)
        except Invalid:
            log.warning("the last owner of a group stays, although the directory says otherwise", group=group.path, user=user.username)
        except NotFound:
            # The group or the membership was deleted meanwhile.
            continue


async def _change_level(context: Context, group: tables.Namespace, user: tables.User, level: AccessLevel | None) -> None:
    if level is None:
        await members.remove_group_member(context, group, user)
        return
    await groups.lock_group(context, group)
    member = await context.first(member_statements.group_member_for_update(group.id, user.id))
    if member is None:
        moment = context.now()
        member = tables.GroupMember(group_id=group.id, user_id=user.id, access_level=level, created_at=moment, updated_at=moment)
        await context.add(member)
        await publish(context, payloads.UserAddedToGroup, member)
        return
    await members.require_another_owner(context, member)
    member.access_level, member.updated_at = level, context.now()
    await context.session.flush()
