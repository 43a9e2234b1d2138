"""What the git doors ask of the graph: may this caller read or push to this project, which refs may move, and what follows.

No operation of the schema could stand for it: a public project is cloned by callers whom the graph has none of, and a push is judged
between two halves of a conversation that takes minutes. The rules are the graph's all the same (`graph/rules`).
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
from storage.tables import ssh_keys

RECORD_RETRY_SECONDS = (0.5, 2.0, 5.0)
"""Seconds between the tries to record a push while the database cannot take it."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class RepositoryGrant:
    """The repository at `path` is open to this caller for this; `viewer_id` None is somebody who is not signed in."""

    project_id: int
    path: Path
    viewer_id: int | None


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An SSH key, as a credential of whoever has proved to hold its other half. `fingerprint` is as the table keeps it."""

    fingerprint: str
    blob: bytes


@dataclass(frozen=True, slots=True)
class KeyOwner:
    user_id: int
    username: str


class GitAccess:
    """Over the services of this process. A project is named `NAMESPACE/NAME`, without case; a credential is a private token or a key."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def authorize_fetch(self, project: str, credential: str | PublicKey | None, request_id: str) -> RepositoryGrant:
        """Who may fetch. Raises Unauthenticated, NotFound, Forbidden.

        Without a credential a project that is not public and one that is not there are the same.
        """
        return await self._authorize(project, credential, request_id, Action.READ_CODE)

    async def authorize_push(self, project: str, credential: str | PublicKey | None, request_id: str) -> RepositoryGrant:
        """Who may push something; `authorize_updates` says what. Raises as `authorize_fetch`."""
        return await self._authorize(project, credential, request_id, Action.PUSH_CODE)

    async def find_key_owner(self, key: PublicKey) -> KeyOwner | None:
        """The active user whose key this is."""
        async with session_for(self._services.database, writing=False) as session:
            user = await _user_of_key(session, key)
            return KeyOwner(user.id, user.username) if user else None

    async def authorize_updates(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> list[PushDecision]:
        """Which refs may move, by the rights as they are now. Raises Unauthenticated when the viewer was blocked, NotFound."""
        async with session_for(self._services.database, writing=False) as session:
            context = await self._make_context(session, grant, request_id)
            project = await lookup.get_project(context, str(grant.project_id))
            return await ref_updates.authorize_updates(context, project, updates)

    async def record_push(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> None:
        """Records refs that moved. What cannot be recorded is logged, and left to `reconciling`: the repository is the truth."""
        with self._services.index_drift.recording(grant.project_id):
            is_recorded = await self._try_record(grant, updates, request_id)
        if is_recorded:
            await self._run_after_push(grant, updates, request_id)
        else:
            commit_index.flag_drift(self._services, grant.project_id)

    async def _try_record(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> bool:
        """Whether nothing is left to record: also of a project that is gone."""
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

    async def _run_after_push(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> None:
        """What is worked out after the push is recorded, before the pusher is told. It catches what it cannot do: chores do that later."""

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
        """A build's token fetches the code of its project while the build runs, and nothing else."""
        runner_identity = await runner_tokens.authenticate(context.session, token)
        if runner_identity is None or runner_identity.build is None or not runner_identity.is_assigned(runner_identity.build):
            raise Unauthenticated
        project = await context.rows_by_id(tables.Project).get(runner_identity.build.project_id)
        if project is None or (await full_path(context, project)).lower() != path.lower():
            raise NotFound("Project")
        if action is not Action.READ_CODE:
            raise Forbidden("A build's token fetches, and does not push.")
        return RepositoryGrant(project.id, self._services.repositories.path_of(project.id), None)

    async def _find_public_project(self, context: Context, path: str, action: Action) -> tables.Project:
        try:
            # Raises Unauthenticated itself for a private project, since nobody's membership can be looked up.
            project = await lookup.get_project(context, path)
        except NotFound:
            raise Unauthenticated from None
        if not can_anybody(action, project):
            raise Unauthenticated
        return project


async def _user_of_key(session: DatabaseSession, key: PublicKey) -> tables.User | None:
    for user, public_key in await session.read(ssh_keys.USER_BY_FINGERPRINT, {"fingerprint": key.fingerprint}):
        # The fingerprint finds; since it is an MD5 sum, the whole key decides.
        if user.state is tables.UserState.ACTIVE and base64.b64decode(public_key.split()[1]) == key.blob:
            found: tables.User = user
            return found
    return None
