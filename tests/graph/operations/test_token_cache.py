"""The token cache: the viewer is cached briefly, and a change of the viewer applies to the next operation."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, text, update
from sqlmodel import col

from graph.context import Services
from graph.operations import token_cache
from graph.operations.token_cache import CACHE_SECONDS, TokenCache
from graph.operations.token_scopes import TokenIdentity
from storage import tables
from storage.database.engine import Database, DatabaseSession
from storage.database.pg_notify import Notifications
from storage.secrets import digest_token
from storage.tables import UserState
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask

VIEWER = "query { viewer { name isAdmin } }"
Work = Callable[[DatabaseSession], Awaitable[Any]]


@pytest.fixture
def moment() -> list[datetime]:
    """The services' clock, to be set."""
    return [datetime(2026, 1, 2, tzinfo=UTC)]


@pytest.fixture
def services(services: Services, moment: list[datetime]) -> Services:
    return replace(services, clock=lambda: moment[0])


async def run_change(database: Database, work: Work) -> None:
    async with database.write_session() as session:
        await work(session)
        await session.commit()


def change_user(user: tables.User, **values: Any) -> Work:
    """By the ORM, a row of the session."""

    async def work(session: DatabaseSession) -> None:
        row = await session.get(tables.User, user.id)
        for name, value in values.items():
            setattr(row, name, value)

    return work


class TestCaching:
    async def test_a_lookup_is_cached_for_its_lifetime(
        self, ask: Ask, make: DataFactory, moment: list[datetime], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user, lookups = await make.user(), []
        read = token_cache.find_token

        async def counted(session: DatabaseSession, wanted: str, now: datetime) -> TokenIdentity | None:
            lookups.append(moment[0])
            return await read(session, wanted, now)

        monkeypatch.setattr(token_cache, "find_token", counted)
        start = moment[0]
        for seconds in (0.0, 0.0, CACHE_SECONDS - 0.1, CACHE_SECONDS):
            moment[0] = start + timedelta(seconds=seconds)
            await ask.data(VIEWER, user)
        assert lookups == [start, start + timedelta(seconds=CACHE_SECONDS)]

    async def test_caches_only_valid_tokens_up_to_a_bound(self, database: Database, make: DataFactory, moment: list[datetime]) -> None:
        users = [await make.user() for _ in range(3)]
        viewers = TokenCache(max_entries=2)
        for token in ("wrong", *map(token_of, users)):
            await viewers.find(database, digest_token(token), moment[0])
        assert len(viewers) == 2
        assert viewers.find_cached(database, digest_token(token_of(users[0])), moment[0]) is None

    async def test_a_lookup_overtaken_by_a_change_is_not_cached(
        self, ask: Ask, make: DataFactory, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = await make.user()
        read = token_cache.find_token

        async def overtaken(session: DatabaseSession, wanted: str, now: datetime) -> TokenIdentity | None:
            found = await read(session, wanted, now)
            await run_change(database, change_user(user, name="New"))
            return found

        monkeypatch.setattr(token_cache, "find_token", overtaken)
        await ask.data(VIEWER, user)
        monkeypatch.undo()
        assert (await ask.data(VIEWER, user))["viewer"]["name"] == "New"


class TestInvalidation:
    @pytest.mark.parametrize(
        "work",
        [
            lambda user: change_user(user, state=UserState.BLOCKED),
            lambda user: lambda session: session.execute(update(tables.User).values(state=UserState.BLOCKED)),
            lambda user: lambda session: session.execute(text("UPDATE users SET state = 'blocked'")),
            lambda user: lambda session: session.execute(delete(tables.Token)),
            lambda user: lambda session: session.execute(update(tables.Token).values(digest="0" * 64)),
            lambda user: lambda session: session.execute(delete(tables.User).where(col(tables.User.id) == user.id)),
            lambda user: lambda session: session.fetch("DELETE FROM tokens", ()),
        ],
        ids=["blocked", "in bulk", "as text", "token deleted", "token reset", "deleted", "past the ORM"],
    )
    async def test_a_revoked_token_is_rejected_immediately(
        self, ask: Ask, make: DataFactory, database: Database, work: Callable[[tables.User], Work]
    ) -> None:
        user = await make.user()
        await ask.data(VIEWER, user)
        await run_change(database, work(user))
        assert await ask.codes(VIEWER, user) == ["UNAUTHENTICATED"]

    async def test_changes_are_visible_immediately(self, ask: Ask, make: DataFactory, database: Database) -> None:
        user = await make.user(admin=True)
        assert (await ask.data(VIEWER, user))["viewer"]["isAdmin"] is True
        await run_change(database, change_user(user, admin=False, name="New"))
        assert (await ask.data(VIEWER, user))["viewer"] == {"name": "New", "isAdmin": False}

    async def test_rollbacks_and_other_tables_do_not_invalidate(self, ask: Ask, make: DataFactory, database: Database) -> None:
        user = await make.user()
        await ask.data(VIEWER, user)
        version = database.account_tables.version
        async with database.write_session() as session:
            await session.execute(update(tables.User).values(name="New"))
            assert not database.account_tables.is_stable
            await session.rollback()
        await make.project(owner=user)
        assert (version, True) == (database.account_tables.version, database.account_tables.is_stable)

    async def test_a_canceled_write_may_have_been_committed(self, make: DataFactory, database: Database) -> None:
        user, version = await make.user(), database.account_tables.version
        name = "'New'"
        writing = asyncio.create_task(database.write([(f"UPDATE users SET name = {name} WHERE id = {user.id} RETURNING id", [])]))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert database.account_tables.version > version

    async def test_other_processes_are_notified(self, make: DataFactory, database: Database, database_url: str) -> None:
        if database.dialect == "sqlite":
            pytest.skip("one process alone")
        user, notified = await make.user(), asyncio.Event()
        notices = Notifications(database, {database.account_tables.channel: lambda _: notified.set()})
        listening = asyncio.create_task(notices.run())
        try:
            await asyncio.wait_for(notified.wait(), 10)
            notified.clear()
            other = Database(database_url)
            await run_change(other, change_user(user, name="New"))
            await asyncio.wait_for(notified.wait(), 10)
            await other.close()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


class TestOtherProcessOnSqlite:
    """A connection that knows nothing of this process's cache, as `forgefront admin` has."""

    CHANGES = {
        "blocked": "UPDATE users SET state = 'blocked' WHERE id = :id",
        "token reset": "UPDATE tokens SET digest = 'x' WHERE user_id = :id",
        "token deleted": "DELETE FROM tokens WHERE user_id = :id",
    }

    @pytest.fixture
    def other_process(self, database: Database) -> Iterator[sqlite3.Connection]:
        if database.dialect != "sqlite":
            pytest.skip("PostgreSQL notifies other processes")
        connection = sqlite3.connect(str(database.url.database), isolation_level=None)
        yield connection
        connection.close()

    @pytest.mark.parametrize("change", CHANGES)
    async def test_a_revoked_token_is_rejected_immediately(
        self, ask: Ask, make: DataFactory, other_process: sqlite3.Connection, change: str
    ) -> None:
        user, other = await make.user(), await make.user()
        for _ in range(2):
            await ask.data(VIEWER, user)
            await ask.data(VIEWER, other)

        other_process.execute(self.CHANGES[change], {"id": user.id})

        assert await ask.codes(VIEWER, user) == ["UNAUTHENTICATED"]
        assert (await ask.data(VIEWER, other))["viewer"]["name"] == other.name

    async def test_unrelated_changes_of_the_file_do_not_invalidate(
        self, ask: Ask, make: DataFactory, other_process: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user, lookups = await make.user(), []
        await ask.data(VIEWER, user)
        read = token_cache.find_token

        async def counted(session: DatabaseSession, wanted: str, now: datetime) -> TokenIdentity | None:
            lookups.append(wanted)
            return await read(session, wanted, now)

        monkeypatch.setattr(token_cache, "find_token", counted)
        await make.project(owner=user)
        other_process.execute("UPDATE users SET name = 'Other' WHERE id <> ?", (user.id,))
        for _ in range(3):
            await ask.data(VIEWER, user)

        assert lookups == []

    async def test_commits_of_this_process_read_no_rows(
        self, ask: Ask, make: DataFactory, database: Database, other_process: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = database.data_version
        assert file is not None
        file.current()
        if file.begin_own_commit() is None:
            pytest.skip("only Linux shows the header of the index")
        user = await make.user()
        project = await make.project(owner=user)
        variables = {"input": {"projectPath": str(project.id), "title": "New"}}
        create = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { userErrors { code } } }"
        await ask.data(create, user, **variables)
        await ask.data(VIEWER, user)
        read, fetch = [], file.fetch
        monkeypatch.setattr(file, "fetch", lambda *arguments: read.append(arguments) or fetch(*arguments))

        for _ in range(2):
            await ask.data(create, user, **variables)
            await ask.data(VIEWER, user)
        assert read == []

        other_process.execute("UPDATE projects SET description = 'Other'")
        await ask.data(VIEWER, user)
        assert len(read) == 1

    async def test_a_locked_file_bypasses_the_cache(
        self,
        database: Database,
        make: DataFactory,
        moment: list[datetime],
        other_process: sqlite3.Connection,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        user = await make.user()
        viewers, token_digest = TokenCache(), digest_token(token_of(user))
        await viewers.find(database, token_digest, moment[0])
        await viewers.find(database, token_digest, moment[0])
        assert viewers.find_cached(database, token_digest, moment[0]) is not None

        monkeypatch.setattr(database.data_version, "fetch", lambda *_: None)
        monkeypatch.setattr(database.data_version, "current", lambda: None)

        assert viewers.find_cached(database, token_digest, moment[0]) is None
        found = await viewers.find(database, token_digest, moment[0])
        assert found is not None and (found.user.id, len(viewers)) == (user.id, 0)
