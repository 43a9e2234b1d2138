"""Who calls is remembered for a moment; what changes of them is seen by the very next operation."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, text, update
from sqlmodel import col

from graph import viewers as remembering
from graph.context import Services
from graph.viewers import SECONDS, Viewers
from storage import tables
from storage.database import Database, Session
from storage.notices import Notices
from storage.secrets import digest
from storage.tables import UserState
from tests.forge import Ask
from tests.make import Make, token_of

VIEWER = "query { viewer { name isAdmin } }"
Work = Callable[[Session], Awaitable[Any]]


@pytest.fixture
def moment() -> list[datetime]:
    """The services' clock, to be set."""
    return [datetime(2026, 1, 2, tzinfo=UTC)]


@pytest.fixture
def services(services: Services, moment: list[datetime]) -> Services:
    return replace(services, clock=lambda: moment[0])


async def change(database: Database, work: Work) -> None:
    async with database.writing() as session:
        await work(session)
        await session.commit()


def changing(user: tables.User, **values: Any) -> Work:
    """By the ORM, a row of the session."""

    async def work(session: Session) -> None:
        row = await session.get(tables.User, user.id)
        for name, value in values.items():
            setattr(row, name, value)

    return work


class TestRemembering:
    async def test_asks_the_database_once_in_a_moment(
        self, ask: Ask, make: Make, moment: list[datetime], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user, asked = await make.user(), []
        read = remembering.viewer_of

        async def counted(session: Session, wanted: str) -> tables.User | None:
            asked.append(moment[0])
            return await read(session, wanted)

        monkeypatch.setattr(remembering, "viewer_of", counted)
        start = moment[0]
        for seconds in (0.0, 0.0, SECONDS - 0.1, SECONDS):
            moment[0] = start + timedelta(seconds=seconds)
            await ask.data(VIEWER, user)
        assert asked == [start, start + timedelta(seconds=SECONDS)]

    async def test_remembers_nothing_of_wrong_tokens_and_a_bounded_number_of_right_ones(
        self, database: Database, make: Make, moment: list[datetime]
    ) -> None:
        users = [await make.user() for _ in range(3)]
        viewers = Viewers(most=2)
        for token in ("wrong", *map(token_of, users)):
            await viewers.find(database, digest(token), moment[0])
        assert len(viewers) == 2
        assert viewers.known(database, digest(token_of(users[0])), moment[0]) is None

    async def test_does_not_remember_what_was_read_while_it_changed(
        self, ask: Ask, make: Make, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = await make.user()
        read = remembering.viewer_of

        async def overtaken(session: Session, wanted: str) -> tables.User | None:
            found = await read(session, wanted)
            await change(database, changing(user, name="New"))
            return found

        monkeypatch.setattr(remembering, "viewer_of", overtaken)
        await ask.data(VIEWER, user)
        monkeypatch.undo()
        assert (await ask.data(VIEWER, user))["viewer"]["name"] == "New"


class TestForgetting:
    @pytest.mark.parametrize(
        "work",
        [
            lambda user: changing(user, state=UserState.BLOCKED),
            lambda user: lambda session: session.execute(update(tables.User).values(state=UserState.BLOCKED)),
            lambda user: lambda session: session.execute(text("UPDATE users SET state = 'blocked'")),
            lambda user: lambda session: session.execute(delete(tables.Token)),
            lambda user: lambda session: session.execute(update(tables.Token).values(digest="0" * 64)),
            lambda user: lambda session: session.execute(delete(tables.User).where(col(tables.User.id) == user.id)),
            lambda user: lambda session: session.fetch("DELETE FROM tokens", ()),
        ],
        ids=["blocked", "in bulk", "as text", "token deleted", "token reset", "deleted", "past the ORM"],
    )
    async def test_who_may_not_call_any_more_is_nobody_at_once(
        self, ask: Ask, make: Make, database: Database, work: Callable[[tables.User], Work]
    ) -> None:
        user = await make.user()
        await ask.data(VIEWER, user)
        await change(database, work(user))
        assert await ask.codes(VIEWER, user) == ["UNAUTHENTICATED"]

    async def test_what_is_changed_is_seen_at_once(self, ask: Ask, make: Make, database: Database) -> None:
        user = await make.user(admin=True)
        assert (await ask.data(VIEWER, user))["viewer"]["isAdmin"] is True
        await change(database, changing(user, admin=False, name="New"))
        assert (await ask.data(VIEWER, user))["viewer"] == {"name": "New", "isAdmin": False}

    async def test_what_is_rolled_back_or_elsewhere_forgets_nothing(self, ask: Ask, make: Make, database: Database) -> None:
        user = await make.user()
        await ask.data(VIEWER, user)
        version = database.accounts.version
        async with database.writing() as session:
            await session.execute(update(tables.User).values(name="New"))
            assert not database.accounts.settled
            await session.rollback()
        await make.project(owner=user)
        assert (version, True) == (database.accounts.version, database.accounts.settled)

    async def test_other_processes_hear_of_it(self, make: Make, database: Database, database_url: str) -> None:
        if database.dialect == "sqlite":
            pytest.skip("one process alone")
        user, heard = await make.user(), asyncio.Event()
        notices = Notices(database, "other", lambda: None, {database.accounts.channel: heard.set})
        listening = asyncio.create_task(notices.keep_listening())
        try:
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
            other = Database(database_url)
            await change(other, changing(user, name="New"))
            await asyncio.wait_for(heard.wait(), 10)
            await other.close()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


class TestAnotherProcessOnSqlite:
    """A connection that knows nothing of this process's cache, as `forgefront admin` has."""

    CHANGES = {
        "blocked": "UPDATE users SET state = 'blocked' WHERE id = :id",
        "token reset": "UPDATE tokens SET digest = 'x' WHERE user_id = :id",
        "token deleted": "DELETE FROM tokens WHERE user_id = :id",
    }

    @pytest.fixture
    def elsewhere(self, database: Database) -> Iterator[sqlite3.Connection]:
        if database.dialect != "sqlite":
            pytest.skip("PostgreSQL notifies other processes")
        connection = sqlite3.connect(str(database.url.database), isolation_level=None)
        yield connection
        connection.close()

    @pytest.mark.parametrize("change", CHANGES)
    async def test_who_may_not_call_any_more_is_nobody_at_once(
        self, ask: Ask, make: Make, elsewhere: sqlite3.Connection, change: str
    ) -> None:
        user, other = await make.user(), await make.user()
        for _ in range(2):
            await ask.data(VIEWER, user)
            await ask.data(VIEWER, other)

        elsewhere.execute(self.CHANGES[change], {"id": user.id})

        assert await ask.codes(VIEWER, user) == ["UNAUTHENTICATED"]
        assert (await ask.data(VIEWER, other))["viewer"]["name"] == other.name

    async def test_other_changes_of_the_file_forget_nobody(
        self, ask: Ask, make: Make, elsewhere: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user, asked = await make.user(), []
        await ask.data(VIEWER, user)
        read = remembering.viewer_of

        async def counted(session: Session, wanted: str) -> tables.User | None:
            asked.append(wanted)
            return await read(session, wanted)

        monkeypatch.setattr(remembering, "viewer_of", counted)
        await make.project(owner=user)
        elsewhere.execute("UPDATE users SET name = 'Other' WHERE id <> ?", (user.id,))
        for _ in range(3):
            await ask.data(VIEWER, user)

        assert asked == []

    async def test_a_locked_file_is_asked_as_if_nobody_was_remembered(
        self, database: Database, make: Make, moment: list[datetime], elsewhere: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = await make.user()
        viewers, wanted = Viewers(), digest(token_of(user))
        await viewers.find(database, wanted, moment[0])
        await viewers.find(database, wanted, moment[0])
        assert viewers.known(database, wanted, moment[0]) is not None

        monkeypatch.setattr(database.data_version, "fetch", lambda *_: None)

        assert viewers.known(database, wanted, moment[0]) is None
        found = await viewers.find(database, wanted, moment[0])
        assert found is not None and (found.id, len(viewers)) == (user.id, 0)
