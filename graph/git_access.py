"""Access of git over HTTP and SSH to the graph: authorizes fetches, pushes and ref updates, and moves refs.

These are not operations of the schema, because anonymous callers may clone a public project, and a push is authorized in the middle of a
conversation that may take minutes. The rules are those of `graph/rules`.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from graph.context import Context, Services
from graph.errors import Forbidden, NotFound, OperationError, Unauthenticated, Unavailable
from graph.events.payloads import full_path
from graph.operations.callers import authenticate
from graph.operations.token_scopes import FETCH_SCOPES, PUSH_SCOPES, Scopes, limit_user, require_scope
from graph.operations.transaction import commit, run_after_commit, session_for
from graph.rules import lookup
from graph.rules.git import ref_reservations, ref_updates, refs
from graph.rules.git.refs import RefConflict
from graph.rules.permissions.policy import Action, can, can_anybody
from graph.rules.runners import runner_tokens
from storage import tables
from storage.database.engine import DatabaseSession
from storage.database.errors import is_unavailable
from storage.git import merge
from storage.git.history import commit_walk
from storage.git.packing.pack_transfer import PacksUnavailable
from storage.git.protocol.push import PushDecision, PushRule, RefCommand
from storage.git.repository import Repository
from storage.git.repository_folders import sync_packs
from storage.tables.accounts import ssh_keys
from storage.tables.projects import deploy_keys

RETRY_SECONDS = (0.5, 2.0, 5.0)
"""Seconds before each retry to move refs while the database is unavailable."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class PushedMoves:
    """Moves of a push that are committed: the context of their transaction, and the projection of their refs."""

    context: Context
    projection: "asyncio.Task[None]"


@dataclass(frozen=True, slots=True)
class RepositoryGrant:
    """Grants a caller access to the repository at `path`; `viewer_id` is None for a caller who is no user.

    `scopes` are those of the caller's access token. `version` is that of the refs when access was granted. `moves` are those that
    `finish_push` has to finish. `caller_project_id` is the project whose build or deploy key the caller is.
    """

    project_id: int
    path: Path
    viewer_id: int | None
    scopes: Scopes | None = None
    version: int | None = None
    moves: list[PushedMoves] = field(default_factory=list, compare=False)
    caller_project_id: int | None = None

    @property
    def requester(self) -> str:
        """Who shares the processes of git with others: all anonymous callers together, because one may have many addresses."""
        if self.viewer_id is not None:
            return f"user {self.viewer_id}"
        return "anonymous" if self.caller_project_id is None else f"project {self.caller_project_id}"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An SSH public key as a credential, after its owner has been authenticated. `fingerprint` has the format of the table `ssh_keys`."""

    fingerprint: str
    blob: bytes

    def is_same(self, public_key: str) -> bool:
        """Whether this is the key of a row; the fingerprint is an MD5 hash, so the whole key is compared."""
        return base64.b64decode(public_key.split()[1]) == self.blob


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """The user who owns a key, or `deploy key ID` without a `user_id`."""

    user_id: int | None
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
        """Returns the active user who owns the key, or the deploy key that it is; None if it is neither."""
        async with session_for(self._services.database, writing=False) as session:
            user = await _user_of_key(session, key)
            if user is not None:
                return KeyOwner(user.id, user.username)
            rows = [row for (row,) in await session.read(deploy_keys.of_fingerprint(key.fingerprint)) if key.is_same(row.key)]
            return KeyOwner(None, f"deploy key {rows[0].id}") if rows else None

    async def authorize_updates(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str) -> list[PushDecision]:
        """Decides which refs may move, by the current permissions. Raises Unauthenticated if the viewer was blocked, NotFound."""
        async with session_for(self._services.database, writing=False) as session:
            context = await self._make_context(session, grant, request_id)
            project = await lookup.get_project(context, str(grant.project_id))
            return await ref_updates.authorize_updates(context, project, updates)

    def reserve(self, grant: RepositoryGrant, updates: list[RefCommand]) -> AbstractAsyncContextManager[None]:
        """Lets merges wait for a push that has arrived, so that they do not overtake it while it is processed."""
        return ref_reservations.reserve(self._services, grant.project_id, updates)

    async def move_refs(self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str, *, atomic: bool) -> list[str | None]:
        """Moves the refs of a push, whose objects are in the repository, with all effects; all or none if `atomic`.

        Returns for each update the reason why it was not made, or None. Raises nothing.
        """
        if not updates:
            return []
        try:
            for attempt, pause in enumerate((*RETRY_SECONDS, None)):
                try:
                    return await self._move_refs(grant, updates, request_id, atomic=atomic, is_retry=attempt > 0)
                except Exception as error:
                    if pause is None or not (isinstance(error, Unavailable) or is_unavailable(error)):
                        raise
                    await asyncio.sleep(pause)
        except OperationError as error:
            reason = error.message
        except RefConflict as error:
            reason = str(error)
        except Exception as error:
            reason = "The service failed; nothing was changed. Its log has the reason."
            if is_unavailable(error):
                reason = "The database of the service cannot be reached; nothing was changed. Try again."
            log.error("push failed", project_id=grant.project_id, request_id=request_id, exc_info=error)
        return [reason] * len(updates)

    @asynccontextmanager
    async def open(self, grant: RepositoryGrant) -> AsyncIterator[Path]:
        """The path of the repository, whose files show the current refs and stay until the end of the block. Raises Unavailable."""
        try:
            async with self._services.repositories.use(grant.project_id) as path:
                yield path
        except PacksUnavailable as error:
            raise _unreadable(grant.project_id, error) from error

    async def finish_push(self, grant: RepositoryGrant) -> None:
        """Runs what follows from the moves of a push but is no part of its answer: background jobs would compete with that.

        Git's files then show the refs that were moved. A fetch that comes before brings them up to date itself.
        """
        try:
            await asyncio.gather(*(each.projection for each in grant.moves))
        finally:
            while grant.moves:
                await run_after_commit(grant.moves.pop(0).context)

    async def _project_refs(self, project: tables.Project) -> None:
        """Makes git's files show the refs that a push has moved, so that the next fetch need not. A failure is logged."""
        try:
            await refs.project_refs_of(self._services, project)
        except Exception as error:
            log.warning("refs could not be projected", project_id=project.id, error=str(error) or type(error).__name__)

    async def _move_refs(
        self, grant: RepositoryGrant, updates: list[RefCommand], request_id: str, *, atomic: bool, is_retry: bool
    ) -> list[str | None]:
        services = self._services
        if len({update.ref for update in updates}) < len(updates):
            return ["A push can update each ref only once."] * len(updates)
        # Objects are on the disk before the row that refers to them. Meanwhile they can be read.
        syncing = asyncio.create_task(asyncio.to_thread(sync_packs, grant.path))
        try:
            prepared = await ref_updates.prepare_updates(services, grant.project_id, updates, since=grant.version)
        finally:
            await syncing
        async with refs.move_lock(services, grant.project_id), session_for(services.database, writing=True) as session:
            locked = await ref_updates.lock_projects(Context(services, session, None, request_id), grant.project_id, prepared)
            context = await self._make_context(session, grant, request_id)
            if is_retry and await _are_applied(context, grant.project_id, updates):
                # The connection was lost during the commit.
                return [None] * len(updates)
            # Permissions may have changed since the pack arrived.
            decisions = dict(zip(updates, await ref_updates.authorize_updates(context, locked, updates), strict=True))
            forced = await self._find_forced(grant, [update for update, each in decisions.items() if each.rule is PushRule.FAST_FORWARD])
            refused = {update: each.reason for update, each in decisions.items() if each.rule is PushRule.REJECT or update in forced}
            refused |= await refs.find_conflicts(context, grant.project_id, [update for update in updates if update not in refused])
            accepted = [update for update in updates if update not in refused]
            if accepted and not (refused and atomic):
                await ref_updates.apply_updates(context, locked, prepared.only(accepted))
                await commit(context)
                grant.moves.append(PushedMoves(context, asyncio.create_task(self._project_refs(locked))))
        return _report(updates, refused, atomic=atomic)

    async def _find_forced(self, grant: RepositoryGrant, updates: list[RefCommand]) -> set[RefCommand]:
        """Those of these updates whose old commit is not reachable from the new one."""
        if not updates:
            return set()

        def is_forced(repository: Repository, update: RefCommand) -> bool:
            if not (update.old and update.new):
                return True
            # Without a process, since the project is locked.
            return not (
                commit_walk.is_reachable(repository, update.old, {update.new}) or merge.is_ancestor(repository, update.old, update.new)
            )

        return await self._services.repositories.read(
            grant.project_id, lambda repository: {update for update in updates if is_forced(repository, update)}
        )

    async def _make_context(self, session: DatabaseSession, grant: RepositoryGrant, request_id: str) -> Context:
        context = Context(self._services, session, None, request_id)
        viewer = await context.rows_by_id(tables.User).get(grant.viewer_id) if grant.viewer_id is not None else None
        if viewer is None or viewer.state is not tables.UserState.ACTIVE:
            raise Unauthenticated
        return replace(context, viewer_or_none=limit_user(viewer, grant.scopes))

    async def _authorize(self, path: str, credential: str | PublicKey | None, request_id: str, action: Action) -> RepositoryGrant:
        async with session_for(self._services.database, writing=False) as session:
            if isinstance(credential, str) and runner_tokens.is_build_token(credential):
                return await self._authorize_runner(Context(self._services, session, None, request_id), path, credential, action)
            scopes = None
            if isinstance(credential, PublicKey):
                viewer = await _user_of_key(session, credential)
            elif identity := await authenticate(self._services, session, credential):
                viewer, scopes = identity.user, identity.scopes
                require_scope(scopes, *(PUSH_SCOPES if action is Action.PUSH_CODE else FETCH_SCOPES))
            else:
                viewer = None
            if viewer is None and isinstance(credential, PublicKey):
                return await self._authorize_deploy_key(session, path, credential, action)
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
            return await self._grant(project, viewer, scopes)

    async def _grant(
        self, project: tables.Project, viewer: tables.User | None, scopes: Scopes | None = None, *, caller_project_id: int | None = None
    ) -> RepositoryGrant:
        """The grant, after git's files show the current refs. Raises Unavailable."""
        version = project.refs_version
        try:
            await refs.project_refs_of(self._services, project)
        except PacksUnavailable as error:
            raise _unreadable(project.id, error) from error
        path = self._services.repositories.path_of(project.id)
        return RepositoryGrant(project.id, path, viewer.id if viewer else None, scopes, version, caller_project_id=caller_project_id)

    async def _authorize_runner(self, context: Context, path: str, token: str, action: Action) -> RepositoryGrant:
        """Authorizes a build's token: while the build is running it can fetch from its project, and, for submodules, from public ones."""
        runner_identity = await runner_tokens.authenticate(context.session, token)
        if runner_identity is None or runner_identity.build is None or not runner_identity.is_assigned(runner_identity.build):
            raise Unauthenticated
        project = await context.rows_by_id(tables.Project).get(runner_identity.build.project_id)
        if project is None or (await full_path(context, project)).lower() != path.lower():
            try:
                public = await self._find_public_project(context, path, action)
                return await self._grant(public, None, caller_project_id=runner_identity.build.project_id)
            except Unauthenticated:
                raise NotFound("Project") from None
        if action is not Action.READ_CODE:
            raise Forbidden("A build's token can fetch, but not push.")
        return await self._grant(project, None, caller_project_id=project.id)

    async def _authorize_deploy_key(self, session: DatabaseSession, path: str, key: PublicKey, action: Action) -> RepositoryGrant:
        """Authorizes a key that is no active user's: a deploy key can only fetch, from its projects."""
        if not any(key.is_same(row.key) for (row,) in await session.read(deploy_keys.of_fingerprint(key.fingerprint))):
            raise Unauthenticated
        parsed = lookup.parse_project_key(path)
        found = await session.read(deploy_keys.projects_of_key(key.fingerprint, *parsed)) if isinstance(parsed, tuple) else []
        project = next((project for project, public_key in found if key.is_same(public_key)), None)
        if project is None:
            raise NotFound("Project")
        if action is not Action.READ_CODE:
            raise Forbidden("A deploy key can fetch, but not push.")
        return await self._grant(project, None, caller_project_id=project.id)

    async def _find_public_project(self, context: Context, path: str, action: Action) -> tables.Project:
        try:
            # Raises Unauthenticated itself for a private project, because an anonymous caller has no membership.
            project = await lookup.get_project(context, path)
        except NotFound:
            raise Unauthenticated from None
        if not can_anybody(action, project):
            raise Unauthenticated
        return project


def _unreadable(project_id: int, error: PacksUnavailable) -> Unavailable:
    log.error("packs cannot be read", project_id=project_id, error=str(error))
    return Unavailable("The object store of the service cannot be read. Try again in a moment, or ask an administrator to check its log.")


async def _are_applied(context: Context, project_id: int, updates: list[RefCommand]) -> bool:
    current = await refs.current(context, project_id, {update.ref for update in updates})
    return all(current.get(update.ref) == update.new for update in updates)


def _report(updates: list[RefCommand], refused: Mapping[RefCommand, str], *, atomic: bool) -> list[str | None]:
    """The reasons in the order of the updates."""
    if refused and atomic:
        return [refused.get(update, "Nothing was changed, because the push is atomic and another ref was refused.") for update in updates]
    return [refused.get(update) for update in updates]


async def _user_of_key(session: DatabaseSession, key: PublicKey) -> tables.User | None:
    for user, public_key in await session.read(ssh_keys.USER_BY_FINGERPRINT, {"fingerprint": key.fingerprint}):
        if user.state is tables.UserState.ACTIVE and key.is_same(public_key):
            found: tables.User = user
            return found
    return None
