"""The viewers of open streams, by the digests of their tokens: who they are and what they may see now."""

from collections.abc import Mapping, Sequence
from typing import Any

from graph.context import Context, Services
from graph.operations.loaders import Loader
from graph.operations.token_scopes import parse_scopes
from graph.rules.accounts import viewer_contexts
from graph.rules.accounts.viewer_contexts import ViewerIdentity
from storage.database.engine import Database
from storage.database.text_budget import TextBudget
from storage.tables.accounts import users


class StreamViewers:
    """Loads the contexts of viewers, and their access levels, for hundreds of them by one statement.

    `contexts` has them by the digest of the token, without those of invalid tokens; `access_levels` by (user id, project id). They share
    the rows that `base_context` has loaded when a viewer's context is made.
    """

    def __init__(self, services: Services) -> None:
        session: Any = _PerStatementSession(services.database)
        self.base_context = Context(services, session, None, "live")
        self.contexts = Loader(self._load_contexts)
        self.access_levels = viewer_contexts.create_level_loader(self.base_context)

    async def _load_contexts(self, digests: Sequence[str]) -> Mapping[str, Context]:
        found: dict[str, Context] = {}
        for start in range(0, len(digests), viewer_contexts.USERS_PER_STATEMENT):
            some = list(digests[start : start + viewer_contexts.USERS_PER_STATEMENT])
            rows = await self.base_context.tuples(users.by_digests(some, self.base_context.now()))
            found.update(
                {
                    digest: viewer_contexts.build_viewer_context(
                        self.base_context,
                        ViewerIdentity.of_scopes(user_id, admin, can_create_group, parse_scopes(scopes)),
                        self.access_levels,
                    )
                    for digest, user_id, admin, can_create_group, scopes in rows
                }
            )
        return found


class _PerStatementSession:
    """Reads like a session, but opens one for each statement, because its user has no defined end."""

    budget: TextBudget | None = None

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        async with self._database.read_session() as session:
            return await session.read(statement, values)
