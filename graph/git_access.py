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
from graph.execute import authenticate
from graph.rules import finding, indexing, machines, pushing
from graph.rules.indexing import News
from graph.rules.policy import Action, anybody_may, may
from graph.transaction import keep, session_for
from storage import tables
from storage.database import Session, is_unavailable
from storage.git.pushes import Update, Verdict
from storage.tables import ssh_keys

RECORDING_PAUSES = (0.5, 2.0, 5.0)
"""Seconds between the tries to record a push while the database cannot take it."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class Granted:
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
class Holder:
    user_id: int
    username: str


class GitAccess:
    """Over the services of this process. A project is named `NAMESPACE/NAME`, without case; a credential is a private token or a key."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def reader(self, project: str, credential: str | PublicKey | None, request_id: str) -> Granted:
        """Who may fetch. Raises Unauthenticated, NotFound, Forbidden.

        Without a credential a project that is not public and one that is not there are the same.
        """
        return await self._granted(project, credential, request_id, Action.READ_CODE)

    async def pusher(self, project: str, credential: str | PublicKey | None, request_id: str) -> Granted:
        """Who may push something; `judge` says what. Raises as `reader`."""
        return await self._granted(project, credential, request_id, Action.PUSH_CODE)

    async def holder(self, key: PublicKey) -> Holder | None:
        """The active user whose key this is."""
        async with session_for(self._services.database, writing=False) as session:
            user = await _of_key(session, key)
            return Holder(user.id, user.username) if user else None

    async def judge(self, granted: Granted, updates: list[Update], request_id: str) -> list[Verdict]:
        """Which refs may move, by the rights as they are now. Raises Unauthenticated when the viewer was blocked, NotFound."""
        async with session_for(self._services.database, writing=False) as session:
            context = await self._context(session, granted, request_id)
            project = await finding.project(context, str(granted.project_id))
            return await pushing.judge(context, project, updates)

    async def pushed(self, granted: Granted, updates: list[Update], request_id: str) -> None:
        """Records refs that moved. What cannot be recorded is logged, and left to `reconciling`: the repository is the truth."""
        with self._services.noticed.recording(granted.project_id):
            recorded = await self._recorded(granted, updates, request_id)
        if recorded:
            await self._follow(granted, updates, request_id)
        else:
            indexing.notice(self._services, granted.project_id)

    async def _recorded(self, granted: Granted, updates: list[Update], request_id: str) -> bool:
        """Whether nothing is left to record: also of a project that is gone."""
        for pause in (*RECORDING_PAUSES, None):
            try:
                news = await indexing.index(self._services, granted.project_id, updates)
                await self._record(granted, updates, news, request_id)
            except NotFound:
                return True
            except Exception as error:
                passing = isinstance(error, Unavailable) or is_unavailable(error)
                if passing and pause is not None:
                    await asyncio.sleep(pause)
                    continue
                log.error("push not recorded", project_id=granted.project_id, request_id=request_id, exc_info=error)
                return False
            return True
        return False

    async def _follow(self, granted: Granted, updates: list[Update], request_id: str) -> None:
        """What is worked out after the push is recorded, before the pusher is told. It catches what it cannot do: chores do that later."""

    async def _record(self, granted: Granted, updates: list[Update], news: list[News], request_id: str) -> None:
        async with session_for(self._services.database, writing=True) as session:
            viewer = await session.get(tables.User, granted.viewer_id) if granted.viewer_id is not None else None
            context = Context(self._services, session, viewer, request_id)
            project = await context.rows_by_id(tables.Project).get(granted.project_id)
            if project is None:
                raise NotFound("Project")
            await pushing.pushed(context, project, updates, news)
            await keep(context)

    async def _context(self, session: Session, granted: Granted, request_id: str) -> Context:
        viewer = await session.get(tables.User, granted.viewer_id)
        if viewer is None or viewer.state is not tables.UserState.ACTIVE:
            raise Unauthenticated
        return Context(self._services, session, viewer, request_id)

    async def _granted(self, path: str, credential: str | PublicKey | None, request_id: str, action: Action) -> Granted:
        async with session_for(self._services.database, writing=False) as session:
            if isinstance(credential, str) and machines.is_build_token(credential):
                return await self._granted_to_runner(Context(self._services, session, None, request_id), path, credential, action)
            viewer = await (_of_key(session, credential) if isinstance(credential, PublicKey) else authenticate(session, credential))
            if viewer is None and credential is not None:
                raise Unauthenticated
            context = Context(self._services, session, viewer, request_id)
            if viewer is None:
                project = await self._open_to_anybody(context, path, action)
            else:
                project = await finding.project(context, path)
                if not await may(context, action, project):
                    raise Forbidden(pushing.refusal(project) if action is Action.PUSH_CODE else "You are not allowed to read this code.")
            return Granted(project.id, self._services.repositories.path_of(project.id), viewer.id if viewer else None)

    async def _granted_to_runner(self, context: Context, path: str, token: str, action: Action) -> Granted:
        """A build's token fetches the code of its project while the build runs, and nothing else."""
        machine = await machines.authenticate(context.session, token)
        if machine is None or machine.build is None or not machine.has(machine.build):
            raise Unauthenticated
        project = await context.rows_by_id(tables.Project).get(machine.build.project_id)
        if project is None or (await full_path(context, project)).lower() != path.lower():
            raise NotFound("Project")
        if action is not Action.READ_CODE:
            raise Forbidden("A build's token fetches, and does not push.")
        return Granted(project.id, self._services.repositories.path_of(project.id), None)

    async def _open_to_anybody(self, context: Context, path: str, action: Action) -> tables.Project:
        try:
            # Raises Unauthenticated itself for a private project, since nobody's membership can be looked up.
            project = await finding.project(context, path)
        except NotFound:
            raise Unauthenticated from None
        if not anybody_may(action, project):
            raise Unauthenticated
        return project


async def _of_key(session: Session, key: PublicKey) -> tables.User | None:
    for user, text in await session.read(ssh_keys.HOLDER, {"fingerprint": key.fingerprint}):
        # The fingerprint finds; since it is an MD5 sum, the whole key decides.
        if user.state is tables.UserState.ACTIVE and base64.b64decode(text.split()[1]) == key.blob:
            found: tables.User = user
            return found
    return None
