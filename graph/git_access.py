"""Access of git over HTTP and SSH to the graph: authorizes fetches, pushes and ref updates, and records pushes.

These are not operations of the schema, because anonymous callers may clone a public project, and a push is authorized in the middle of a
conversation that may take minutes. The rules are those of `graph/rules`.
"""

import asyncio
import base64
from dataclasses import dataclass
from pathlib import Path

import structlog

from graph.context import Context, Services
from graph.errors import Forbidden, NotFound, Unauthenticated, Unavailable
from graph.events.payloads import full_path
from graph.operations.execution import authenticate
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules import lookup
from graph.rules.builds import runner_tokens
from graph.rules.git import commit_index, ref_updates
from graph.rules.git.commit_index import RefUpdate
from graph.rules.policy import Action, can, can_anybody
from storage import tables
from storage.database.engine import DatabaseSession, is_unavailable
from storage.git.protocol.push import PushDecision, RefCommand
from storage.tables.accounts import ssh_keys

RECORD_RETRY_SECONDS = (0.5, 2.0, 5.0)
"""Seconds before each retry to record a push while the database is unavailable."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class RepositoryGrant:
    """Grants a caller access to the repository at `path`; `viewer_id` is None for an anonymous caller."""

    project_id: int
    path: Path
    viewer_id: int | None


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An SSH public key as a credential, after its owner has been authenticated. `fingerprint` has the format of the table `ssh_keys`."""

    fingerprint: str
    blob: bytes


@dataclass(frozen=True, slots=True)
class KeyOwner:
    user_id: int
    username: str


class GitAccess:
    """Git access over the services of this process.

    Projects are named by the path `NAMESPACE/NAME`, ignoring case; a credential is a private token or a public key.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def authorize_fetch(self, project: str, credential: str | PublicKey | None, request_id: str) -> RepositoryGrant:
        """Authorizes a fetch. Raises Unauthenticated, NotFound, Forbidden.

        To an anonymous caller a project that is not public looks like one that does not exist.
        """
        return await self._authorize(project, credential, request_id, Action.READ_CODE)

    async def authorize_push(self, project: str, credential: str | PublicKey | None, request_id: str) -> RepositoryGrant:
        """Authorizes a push; `authorize_updates` then decides about its refs. Raises as `authorize_fetch`."""
        return await self._authorize(project, credential, request_id, Action.PUSH_CODE)

    async def find_key_owner(self, key: PublicKey) -> KeyOwner | None:
        """Returns the active user who owns the key; None if there is none."""
        async with session_for(self._services.database, writing=False) as session:
            user = await _user_of_key(session, key)
            return KeyOwner(user.id, user.username) if user else None

    async def authorize_updates(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> list[PushDecision]:
        """Decides which refs may move, by the current permissions. Raises Unauthenticated if the viewer was blocked, NotFound."""
        async with session_for(self._services.database, writing=False) as session:
            context = await self._make_context(session, grant, request_id)
            project = await lookup.get_project(context, str(grant.project_id))
            return await ref_updates.authorize_updates(context, project, updates)

    async def record_push(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> None:
        """Records moved refs. A failure is logged and left to the index reconciler, because the repository is the source of truth."""
        with self._services.index_drift.recording(grant.project_id):
            is_recorded = await self._try_record(grant, updates, request_id)
        if not is_recorded:
            commit_index.flag_drift(self._services, grant.project_id)

    async def _try_record(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> bool:
        """Returns whether the push is recorded, or its project was deleted."""
        for pause in (*RECORD_RETRY_SECONDS, None):
            try:
                indexed_updates = await commit_index.index_updates(self._services, grant.project_id, updates)
                await self._record(grant, updates, indexed_updates, request_id)
            except NotFound:
                return True
            except Exception as error:
                is_transient = isinstance(error, Unavailable) or is_unavailable(error)
                if is_transient and pause is not None:
                    await asyncio.sleep(pause)
                    continue
                log.error("push not recorded", project_id=grant.project_id, request_id=request_id, exc_info=error)
                return False
            return True
        return False

    async def _record(self, grant: RepositoryGrant, updates: list[RefCommand], indexed_updates: list[RefUpdate], request_id: str) -> None:
        async with session_for(self._services.database, writing=True) as session:
            viewer = await session.get(tables.User, grant.viewer_id) if grant.viewer_id is not None else None
            context = Context(self._services, session, viewer, request_id)
            project = await context.rows_by_id(tables.Project).get(grant.project_id)
            if project is None:
                raise NotFound("Project")
            await ref_updates.handle_ref_updates(context, project, updates, indexed_updates)
            await commit_and_notify(context)

    async def _make_context(self, session: DatabaseSession, grant: RepositoryGrant, request_id: str) -> Context:
        viewer = await session.get(tables.User, grant.viewer_id)
        if viewer is None or viewer.state is not tables.UserState.ACTIVE:
            raise Unauthenticated
        return Context(self._services, session, viewer, request_id)

    async def _authorize(self, path: str, credential: str | PublicKey | None, request_id: str, action: Action) -> RepositoryGrant:
        async with session_for(self._services.database, writing=False) as session:
            if isinstance(credential, str) and runner_tokens.is_build_token(credential):
                return await self._authorize_runner(Context(self._services, session, None, request_id), path, credential, action)
            viewer = await (_user_of_key(session, credential) if isinstance(credential, PublicKey) else authenticate(session, credential))
            if viewer is None and credential is not None:
                raise Unauthenticated
            context = Context(self._services, session, viewer, request_id)
            if viewer is None:
                project = await self._find_public_project(context, path, action)
            else:
                project = await lookup.get_project(context, path)
                if not await can(context, action, project):
                    raise Forbidden(
                        ref_updates.refusal_reason(project) if action is Action.PUSH_CODE else "You are not allowed to read this code."
                    )
            return RepositoryGrant(project.id, self._services.repositories.path_of(project.id), viewer.id if viewer else None)

    async def _authorize_runner(self, context: Context, path: str, token: str, action: Action) -> RepositoryGrant:
        """Authorizes a build's token: it can only fetch from the build's project while the build is running."""
        runner_identity = await runner_tokens.authenticate(context.session, token)
        if runner_identity is None or runner_identity.build is None or not runner_identity.is_assigned(runner_identity.build):
            raise Unauthenticated
        project = await context.rows_by_id(tables.Project).get(runner_identity.build.project_id)
        if project is None or (await full_path(context, project)).lower() != path.lower():
            raise NotFound("Project")
        if action is not Action.READ_CODE:
            raise Forbidden("A build's token can fetch, but not push.")
        return RepositoryGrant(project.id, self._services.repositories.path_of(project.id), None)

    async def _find_public_project(self, context: Context, path: str, action: Action) -> tables.Project:
        try:
            # Raises Unauthenticated itself for a private project, because an anonymous caller has no membership.
            project = await lookup.get_project(context, path)
        except NotFound:
            raise Unauthenticated from None
        if not can_anybody(action, project):
            raise Unauthenticated
        return project


async def _user_of_key(session: DatabaseSession, key: PublicKey) -> tables.User | None:
    for user, public_key in await session.read(ssh_keys.USER_BY_FINGERPRINT, {"fingerprint": key.fingerprint}):
        # The fingerprint is an MD5 hash, so the whole key is compared.
        if user.state is tables.UserState.ACTIVE and base64.b64decode(public_key.split()[1]) == key.blob:
            found: tables.User = user
            return found
    return None
