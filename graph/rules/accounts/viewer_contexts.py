"""Contexts for other users, to check what they may do and to write in their name."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import Any

from graph.context import Context
from graph.operations.loaders import Loader
from graph.operations.token_scopes import Scopes, has_scope
from graph.rules.permissions.policy import PROJECT_LEVELS_LOADER, project_level_loader
from storage import tables
from storage.tables import TokenScope
from storage.tables.accounts import members

USERS_PER_STATEMENT = 500


async def build_user_contexts(context: Context, users: Collection[tables.User], project_ids: Collection[int]) -> dict[int, Context]:
    """Contexts by user id, to check what these users may do in the projects and to write in their name.

    Takes one statement. Changes and after-commit callbacks still belong to the one operation.
    """
    ids = {user.id for user in users}
    levels: dict[int, dict[int, int]] = {key: dict.fromkeys(project_ids, 0) for key in ids}
    if ids and project_ids:
        for user_id, project_id, level in await context.tuples(members.levels_of_users(sorted(ids), sorted(project_ids))):
            levels[user_id][project_id] = level
    # Rows are the same for every viewer; results of other loaders may depend on the viewer.
    for table in (tables.Project, tables.Namespace, tables.User, tables.Settings):
        context.rows_by_id(table)
    rows: dict[Hashable, Loader[Any, Any]] = {name: loader for name, loader in context.loaders.items() if isinstance(name, type)}
    contexts = {user.id: replace(context, viewer_or_none=user, loaders=dict(rows)) for user in users}
    for user_id, user_context in contexts.items():
        for project_id, level in levels[user_id].items():
            project_level_loader(user_context).prime(project_id, level)
    return contexts


class _UserLevels:
    """The levels of one user, as a view of a loader keyed by (user id, project id)."""

    __slots__ = ("_levels", "_user_id")

    def __init__(self, user_id: int, levels: Loader[tuple[int, int], int]) -> None:
        self._user_id = user_id
        self._levels = levels

    def is_loaded(self, project_id: int) -> bool:
        return self._levels.is_loaded((self._user_id, project_id))

    def get_loaded(self, project_id: int) -> int | None:
        return self._levels.get_loaded((self._user_id, project_id))

    async def get(self, project_id: int) -> int | None:
        return await self._levels.get((self._user_id, project_id))

    async def get_many(self, project_ids: Collection[int]) -> dict[int, int | None]:
        found = await self._levels.get_many([(self._user_id, key) for key in project_ids])
        return {key: level for (_, key), level in found.items()}


def create_level_loader(context: Context) -> Loader[tuple[int, int], int]:
    """A loader of access levels by (user id, project id); one statement per USERS_PER_STATEMENT users."""

    async def fetch(keys: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
        user_ids, project_ids = sorted({key for key, _ in keys}), sorted({key for _, key in keys})
        found: dict[tuple[int, int], int] = {}
        for start in range(0, len(user_ids), USERS_PER_STATEMENT):
            rows = await context.tuples(members.levels_of_users(user_ids[start : start + USERS_PER_STATEMENT], project_ids))
            found.update({(user_id, project_id): level for user_id, project_id, level in rows})
        return found

    return Loader(fetch)


@dataclass(frozen=True, slots=True)
class ViewerIdentity:
    """The fields of a user that the policy reads, and what else a result may depend on: the scopes of an access token."""

    id: int
    admin: bool
    can_create_group: bool
    scopes: Scopes | None = None

    @classmethod
    def of_scopes(cls, id: int, admin: bool, can_create_group: bool, scopes: Scopes | None) -> "ViewerIdentity":
        """The user with the rights that the scopes leave."""
        return cls(id, admin and has_scope(scopes, TokenScope.ADMIN), can_create_group, scopes)


def build_viewer_context(context: Context, identity: ViewerIdentity, levels: Loader[tuple[int, int], int]) -> Context:
    """A context for one of many viewers whose rights are checked.

    It shares everything that `context` has loaded so far.
    """
    loaders: dict[Hashable, Any] = {**context.loaders, PROJECT_LEVELS_LOADER: _UserLevels(identity.id, levels)}
    viewer: Any = identity
    return replace(context, viewer_or_none=viewer, loaders=loaders)
