"""Signing in with the password of a directory, and the job that compares accounts with it; against slapd, or ldap3's
server in memory."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
from sqlalchemy import select, update

from graph.context import Context, Services
from graph.errors import Taken
from graph.identity_providers.ldap_directory import LdapDirectory
from graph.identity_providers.people import AccountPolicy, GroupGrant, GroupMapping, IdentityProviderUnavailable
from graph.operations.execution import OperationResult
from graph.operations.transaction import session_for
from graph.rules.accounts import accounts
from graph.rules.accounts.failure_limiter import FailureLimiter
from graph.rules.external_accounts import directory_sync, external_accounts
from storage import tables
from storage.tables import AccessLevel, UserState
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder
from tests.support.servers.ldap_server import GROUPS, PASSWORD, PEOPLE, LdapServer, ldap, needs_slapd, slapd
from tests.support.waiting import wait_until

__all__ = ["ldap", "slapd"]
SIGN_IN = """mutation ($login: String!, $password: String!) { signIn(input: {login: $login, password: $password}) {
    user { username name email externUid provider isAdmin confirmed privateToken } userErrors { code } } }"""
LOCAL_PASSWORD = "battery staple"
DEVS, OPS, ROOTS = (f"cn={name},{GROUPS}" for name in ("devs", "ops", "roots"))
MAPPING = GroupMapping(
    (
        GroupGrant("tools", AccessLevel.DEVELOPER, DEVS),
        GroupGrant("tools", AccessLevel.MASTER, OPS),
        GroupGrant("ops", AccessLevel.OWNER, OPS),
    ),
    admin_group=ROOTS,
)
DIRECTORY_DOWN = "The directory cannot be reached"


@pytest.fixture
def policy() -> AccountPolicy:
    return AccountPolicy()


@pytest.fixture
async def services(services: Services, ldap: LdapServer, policy: AccountPolicy) -> AsyncIterator[Services]:
    with ldap.directory(policy=policy) as directory:
        yield replace(services, directory=directory, sign_in_failures=FailureLimiter())


def directory_of(services: Services) -> LdapDirectory:
    assert services.directory is not None
    return services.directory


async def sign_in(ask: Ask, login: str, password: str = PASSWORD) -> dict[str, Any]:
    user: dict[str, Any] = (await ask.data(SIGN_IN, login=login, password=password))["signIn"]["user"]
    return user


def errors_of(outcome: OperationResult) -> list[str]:
    return [str(error.code) for error in outcome.errors]


async def fetch_user(make: DataFactory, username: str) -> tables.User:
    async with make.services.database.read_session() as session:
        user: tables.User = (await session.read(select(tables.User).where(tables.User.username == username)))[0][0]
        return user


async def levels_of(make: DataFactory, user_id: int) -> dict[str, int]:
    statement = select(tables.Namespace.path, tables.GroupMember.access_level).join(
        tables.GroupMember, tables.GroupMember.group_id == tables.Namespace.id
    )
    async with make.services.database.read_session() as session:
        return dict(map(tuple, await session.read(statement.where(tables.GroupMember.user_id == user_id))))


class TestFirstSignIn:
    async def test_makes_an_account(self, ask: Ask, api: Api, make: DataFactory, ldap: LdapServer) -> None:
        dn = ldap.add_person("ada", cn="Ada Lovelace")
        shown = await sign_in(ask, " ADA ")
        assert len(shown.pop("privateToken")) == 20
        assert shown == {
            "username": "ada",
            "name": "Ada Lovelace",
            "email": "ada@example.org",
            "externUid": dn,
            "provider": "ldapmain",
            "isAdmin": False,
            "confirmed": True,
        }
        # The second sign-in finds it, also when the username and the address are others now.
        admin, user = await make.admin(), await fetch_user(make, "ada")
        await api.put(f"/users/{user.id}", admin, username="countess", email="countess@example.org")
        response = await api.post("/session", login="ada", password=PASSWORD)
        assert (response.status_code, response.json()["username"]) == (201, "countess")
        assert (await api.post("/session", login="ada", password="wrong")).json() == {"message": "401 Unauthorized"}

    async def test_finds_an_imported_account_by_its_identity(self, ask: Ask, make: DataFactory, ldap: LdapServer) -> None:
        ldap.add_person("ada")
        imported = await make.user("lovelace", provider="ldapmain", extern_uid=f"UID=Ada, OU=People, {PEOPLE.partition(',')[2]}")
        shown = await sign_in(ask, "ada")
        assert (shown["username"], shown["privateToken"]) == ("lovelace", token_of(imported))

    async def test_never_takes_over_an_account(self, ask: Ask, make: DataFactory, ldap: LdapServer, services: Services) -> None:
        """Usernames and addresses of others are theirs, whatever the directory says."""
        hashed = await services.passwords.hash(LOCAL_PASSWORD)
        await make.user("ada", email="ada@elsewhere.example", password_hash=hashed)
        await make.group(path="Ada1")
        await make.user("owner", email="bob@example.org")
        await make.user("other", provider="ldapmain", extern_uid="uid=adam,dc=elsewhere")
        for uid in ("ada", "bob", "admin", "42"):
            ldap.add_person(uid)
        ldap.add_person("é.git", mail="e@example.org")

        assert (await sign_in(ask, "ada"))["username"] == "ada2"
        assert (await sign_in(ask, "ada", LOCAL_PASSWORD))["username"] == "ada"
        assert [(await sign_in(ask, login))["username"] for login in ("admin", "42", "é.git")] == ["admin1", "user42", "_"]
        outcome = await ask(SIGN_IN, login="bob", password=PASSWORD)
        assert errors_of(outcome) == ["FORBIDDEN"] and "Another account has your email address" in str(outcome.errors[0].reason)

    @pytest.mark.parametrize("policy", [AccountPolicy(matches_email=True), AccountPolicy(creates_accounts=False)], ids=["match", "none"])
    async def test_matches_confirmed_addresses_only_if_configured(
        self, ask: Ask, make: DataFactory, ldap: LdapServer, policy: AccountPolicy
    ) -> None:
        for name in ("ada", "bob", "eve", "ivy", "kim"):
            ldap.add_person(name)
        ldap.add_person("nora")
        await make.user("a", email="ada@example.org")
        await make.user("b", email="bob@example.org", confirmed=False)
        await make.user("e", email="eve@example.org", admin=True)
        await make.user("i", email="ivy@example.org", provider="ldapmain", extern_uid="uid=somebody")
        second = await make.user("k")
        await make.save(tables.Email(user_id=second.id, email="kim@example.org"))

        outcomes = {name: await ask(SIGN_IN, login=name, password=PASSWORD) for name in ("ada", "bob", "eve", "ivy", "kim", "nora")}

        signed = {name: (outcome.data or {})["signIn"]["user"]["username"] for name, outcome in outcomes.items() if not outcome.errors}
        assert signed == ({"ada": "a", "nora": "nora"} if policy.matches_email else {})
        assert {code for outcome in outcomes.values() for code in errors_of(outcome)} == {"FORBIDDEN"}


class TestPasswords:
    @needs_slapd
    async def test_that_are_wrong_are_limited_for_all_spellings_of_a_login(
        self, ask: Ask, make: DataFactory, ldap: LdapServer, services: Services
    ) -> None:
        ldap.add_person("ada l", mail="ada@example.org")
        # Servers ignore the number of spaces (RFC 4518), so that each of these is the login of the same person.
        codes = [errors_of(await ask(SIGN_IN, login=f"ada{' ' * number}l", password="wrong"))[0] for number in range(1, 12)]
        assert codes == ["UNAUTHENTICATED"] * 10 + ["LIMIT_EXCEEDED"]
        assert errors_of(await ask(SIGN_IN, login="ada l", password=PASSWORD)) == ["LIMIT_EXCEEDED"]
        # Else the limit would show whose address it is.
        assert errors_of(await ask(SIGN_IN, login="ada@example.org", password="wrong")) == ["UNAUTHENTICATED"]

    async def test_of_a_directory_account_are_those_of_the_directory(
        self, ask: Ask, make: DataFactory, ldap: LdapServer, services: Services
    ) -> None:
        """The local password of such an account is no way around the directory, except for administrators."""
        hashed = await services.passwords.hash(LOCAL_PASSWORD)
        for name in ("ada", "root"):
            dn = ldap.add_person(name)
            await make.user(name, provider="ldapmain", extern_uid=dn, password_hash=hashed, admin=name == "root")
        assert errors_of(await ask(SIGN_IN, login="ada", password=LOCAL_PASSWORD)) == ["UNAUTHENTICATED"]
        assert [(await sign_in(ask, "root", password))["username"] for password in (LOCAL_PASSWORD, PASSWORD)] == ["root", "root"]
        for outcome in [await ask(SIGN_IN, login=login, password=PASSWORD) for login in ("nobody", "*", "ada)(uid=*")]:
            assert [(str(error.code), error.message) for error in outcome.errors] == [("UNAUTHENTICATED", "Invalid login or password.")]

    async def test_of_people_who_are_disabled_or_blocked_are_rejected(self, ask: Ask, make: DataFactory, ldap: LdapServer) -> None:
        await make.user("bob", provider="ldapmain", extern_uid=ldap.add_person("bob"), state=UserState.BLOCKED)
        dn = ldap.add_person("ada", description="x")
        await sign_in(ask, "ada")
        ldap.delete(dn)
        for login in ("ada", "bob"):
            assert errors_of(await ask(SIGN_IN, login=login, password=PASSWORD)) == ["UNAUTHENTICATED"]

    async def test_work_where_password_sign_in_is_disabled(self, ask: Ask, make: DataFactory, ldap: LdapServer, services: Services) -> None:
        ldap.add_person("ada")
        await make.user("bob", password_hash=await services.passwords.hash(LOCAL_PASSWORD))
        await make.settings(signin_enabled=False)
        assert (await sign_in(ask, "ada"))["username"] == "ada"
        assert errors_of(await ask(SIGN_IN, login="bob", password=LOCAL_PASSWORD)) == ["UNAUTHENTICATED"]


class TestDirectoryThatIsDown:
    @pytest.fixture
    async def services(self, services: Services, ldap: LdapServer, closed_port: int) -> AsyncIterator[Services]:
        with ldap.directory(server={"urls": (f"ldap://127.0.0.1:{closed_port}",)}) as directory:
            yield replace(services, directory=directory, sign_in_failures=FailureLimiter())

    async def test_lets_local_accounts_in_and_says_so_to_others(self, ask: Ask, api: Api, make: DataFactory, services: Services) -> None:
        hashed = await services.passwords.hash(LOCAL_PASSWORD)
        await make.user("local", password_hash=hashed)
        await make.user("root", password_hash=hashed, admin=True, provider="ldapmain", extern_uid="uid=root")
        managed = await make.user("ada", provider="ldapmain", extern_uid="uid=ada")

        with structlog.testing.capture_logs() as lines:
            for _ in range(12):
                outcome = await ask(SIGN_IN, login="ada", password="directory word")
                assert errors_of(outcome) == ["UNAVAILABLE"] and outcome.errors[0].message.startswith(DIRECTORY_DOWN)
            assert (await api.post("/session", login="nobody", password="directory word")).status_code == 503
        assert "directory word" not in repr(lines) and any("refused" in line.get("error", "") for line in lines)
        assert [(await sign_in(ask, name, LOCAL_PASSWORD))["username"] for name in ("local", "root")] == ["local", "root"]
        with pytest.raises(IdentityProviderUnavailable):
            await directory_sync.synchronize(services, directory_of(services))
        assert (await make.fetch(tables.User, managed.id)) is not None
        assert (await fetch_user(make, "ada")).state is UserState.ACTIVE
        # Guesses of a local password count, although the directory cannot say whether it is its own.
        codes = [errors_of(await ask(SIGN_IN, login="local", password="guess"))[0] for _ in range(11)]
        assert codes == ["UNAVAILABLE"] * 10 + ["LIMIT_EXCEEDED"]


@pytest.mark.parametrize("policy", [AccountPolicy(MAPPING)], ids=["mapped"])
class TestGroups:
    async def test_give_levels_and_rights_at_each_sign_in(self, ask: Ask, make: DataFactory, ldap: LdapServer) -> None:
        dn = ldap.add_person("ada")
        keeper = await make.user("keeper")
        tools, other = await make.group(path="Tools", owner=keeper), await make.group(path="other")
        devs, ops, roots = ldap.add_group("devs", dn), ldap.add_group("ops", dn), ldap.add_group("roots", dn)
        assert (await sign_in(ask, "ada"))["isAdmin"] is True
        ada = await fetch_user(make, "ada")
        assert await levels_of(make, ada.id) == {"Tools": AccessLevel.MASTER}
        await make.save(tables.GroupMember(group_id=other.id, user_id=ada.id, access_level=AccessLevel.GUEST))
        await make.group(path="ops", owner=keeper)
        ldap.set_members(ops), ldap.set_members(roots)
        await make.admin()
        assert (await sign_in(ask, "ada"))["isAdmin"] is False
        assert await levels_of(make, ada.id) == {"Tools": AccessLevel.DEVELOPER, "other": AccessLevel.GUEST}
        ldap.set_members(devs)
        await sign_in(ask, "ada")
        assert await levels_of(make, ada.id) == {"other": AccessLevel.GUEST}
        assert await levels_of(make, keeper.id) == {"Tools": AccessLevel.OWNER, "ops": AccessLevel.OWNER}
        assert tools.path == "Tools"

    async def test_never_leave_a_group_without_owner_or_an_instance_without_administrator(
        self, ask: Ask, make: DataFactory, ldap: LdapServer
    ) -> None:
        dn = ldap.add_person("ada")
        await make.user("ada", provider="ldapmain", extern_uid=dn, admin=True)
        ada = await fetch_user(make, "ada")
        await make.group(path="ops", owner=ada)
        await make.group(path="tools", owner=ada)
        ldap.add_group("devs", dn)
        assert (await sign_in(ask, "ada"))["isAdmin"] is True
        assert await levels_of(make, ada.id) == {"ops": AccessLevel.OWNER, "tools": AccessLevel.OWNER}


@pytest.mark.parametrize("policy", [AccountPolicy(MAPPING)], ids=["mapped"])
class TestSynchronization:
    async def test_blocks_and_unblocks_and_stops_tokens_at_once(
        self, ask: Ask, make: DataFactory, ldap: LdapServer, services: Services
    ) -> None:
        dns = {name: ldap.add_person(name) for name in ("ada", "bob", "eve")}
        users = {name: await make.user(name, provider="ldapmain", extern_uid=dn) for name, dn in dns.items()}
        local = await make.user("local")
        await make.group(path="tools", owner=local)
        await ask.data("{ viewer { username } }", users["ada"])
        ldap.delete(dns["ada"])
        ldap.add_group("devs", dns["bob"])
        directory = directory_of(services)

        assert await directory_sync.synchronize(services, directory) == 2

        assert errors_of(await ask("{ viewer { username } }", users["ada"])) == ["UNAUTHENTICATED"]
        blocked = await fetch_user(make, "ada")
        assert (blocked.state, blocked.blocked_by_directory) == (UserState.BLOCKED, True)
        assert await levels_of(make, users["bob"].id) == {"tools": AccessLevel.DEVELOPER}
        for user in (users["bob"], users["eve"], local):
            await ask.data("{ viewer { username } }", user)
        assert await directory_sync.synchronize(services, directory) == 0
        ldap.add_person("ada")
        assert await directory_sync.synchronize(services, directory) == 1
        await ask.data("{ viewer { username } }", users["ada"])
        # A block by an administrator is not the directory's.
        async with services.database.write_session() as session:
            await session.execute(update(tables.User).where(tables.User.id == users["eve"].id).values(state=UserState.BLOCKED))
            await session.commit()
        assert await directory_sync.synchronize(services, directory) == 0
        assert (await fetch_user(make, "eve")).state is UserState.BLOCKED
        # An empty answer is a mistake of the configuration, not the end of everybody.
        ldap.clear()
        with pytest.raises(IdentityProviderUnavailable, match="finds nobody"):
            await directory_sync.synchronize(services, directory)
        # So is one of which no account is.
        ldap.add_person("stranger")
        for number in range(directory_sync.MIN_DOUBTFUL_BLOCKS - 2):
            await make.user(f"more{number}", provider="ldapmain", extern_uid=f"uid=more{number},dc=elsewhere")
        with pytest.raises(
            IdentityProviderUnavailable, match="none of the accounts with identities of ldapmain is in the directory, 5 would"
        ):
            await directory_sync.synchronize(services, directory)
        assert (await fetch_user(make, "bob")).state is UserState.ACTIVE
        ldap.add_person("eve")
        assert await directory_sync.synchronize(services, directory) == directory_sync.MIN_DOUBTFUL_BLOCKS
        assert (await fetch_user(make, "bob")).state is UserState.BLOCKED

    async def test_leave_the_block_of_an_administrator_alone(
        self, ask: Ask, make: DataFactory, ldap: LdapServer, services: Services
    ) -> None:
        dns = {name: ldap.add_person(name) for name in ("ada", "bob", "eve")}
        for name, dn in dns.items():
            state = UserState.ACTIVE if name == "bob" else UserState.BLOCKED
            await make.user(name, provider="ldapmain", extern_uid=dn, state=state)
        directory = directory_of(services)
        ldap.delete(dns["ada"])
        assert await directory_sync.synchronize(services, directory) == 0
        disabled = [replace(person, is_active=False) for person in await directory.list_people() if person.username == "eve"]
        assert [
            each.account.username for each in (await directory_sync.compare_accounts(services.database, directory, disabled)).changed
        ] == ["bob"]
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "directory")
            eve = await accounts.lock_user(context, (await fetch_user(make, "eve")).id)
            await external_accounts.refresh_account(context, eve, disabled[0], directory.policy)
            await session.commit()
        ldap.add_person("ada")
        assert await directory_sync.synchronize(services, directory) == 0
        for name in ("ada", "eve"):
            account = await fetch_user(make, name)
            assert (account.state, account.blocked_by_directory) == (UserState.BLOCKED, False), name
        # When the administrator unblocks the account while the person is away, the directory blocks it.
        ldap.delete(dns["ada"])
        admin, ada = await make.admin(), await fetch_user(make, "ada")
        unblock = "mutation($id: Int!) { unblockUser(input: {databaseId: $id}) { user { state } userErrors { message } } }"
        assert (await ask.data(unblock, admin, id=ada.id))["unblockUser"]["user"] == {"state": "ACTIVE"}
        assert await directory_sync.synchronize(services, directory) == 1
        account = await fetch_user(make, "ada")
        assert (account.state, account.blocked_by_directory) == (UserState.BLOCKED, True)

    @pytest.mark.parametrize("change", ["deleted", "disabled"])
    async def test_never_blocks_the_last_administrator(
        self, make: DataFactory, ldap: LdapServer, services: Services, change: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dns = {name: ldap.add_person(name) for name in ("ada", "bob", "eve")}
        for name, dn in dns.items():
            await make.user(name, provider="ldapmain", extern_uid=dn, admin=name != "eve")
        await make.user("former", admin=True, state=UserState.BLOCKED)
        directory = directory_of(services)
        people = [person for person in await directory.list_people() if change == "disabled" or person.username == "eve"]
        people = [replace(person, is_active=person.username == "eve") for person in people]
        comparison = await directory_sync.compare_accounts(services.database, directory, people)
        assert [each.account.username for each in comparison.changed if each.blocks] == ["ada"]

        async def list_people() -> list[Any]:
            return people

        monkeypatch.setattr(directory, "list_people", list_people)
        with structlog.testing.capture_logs() as logs:
            await directory_sync.synchronize(services, directory)
        states = [(await fetch_user(make, name)).state for name in ("ada", "bob", "eve")]
        assert states == [UserState.BLOCKED, UserState.ACTIVE, UserState.ACTIVE]
        assert (await fetch_user(make, "bob")).admin
        assert [line["user"] for line in logs if line["event"].startswith("the last administrator is not blocked")] == ["bob"]
        # With another administrator, the account is blocked by the next comparison.
        await make.user("root", admin=True)
        await directory_sync.synchronize(services, directory)
        assert (await fetch_user(make, "bob")).state is UserState.BLOCKED

    async def test_shows_whom_it_would_block(self, make: DataFactory, ldap: LdapServer, services: Services) -> None:
        ldap.add_person("ada")
        for name in ("ada", "gone", "blocked"):
            state = UserState.BLOCKED if name == "blocked" else UserState.ACTIVE
            await make.user(name, provider="ldapmain", extern_uid=f"uid={name},{PEOPLE}", state=state)
        directory = directory_of(services)
        people = await directory.list_people()
        comparison = await directory_sync.compare_accounts(services.database, directory, people)
        assert [each.account.username for each in comparison.changed if each.blocks] == ["gone"] and comparison.matched == 1
        # A person whom the directory has disabled is blocked too.
        disabled = [replace(person, is_active=False) for person in people]
        comparison = await directory_sync.compare_accounts(services.database, directory, disabled)
        assert [each.account.username for each in comparison.changed if each.blocks] == ["ada", "gone"]
        assert [(await fetch_user(make, name)).state for name in ("ada", "gone")] == [UserState.ACTIVE] * 2

    async def test_runs_again_after_a_failure(self, make: DataFactory, ldap: LdapServer, services: Services) -> None:
        dn = ldap.add_person("ada")
        ldap.add_person("bob")
        await make.user("ada", provider="ldapmain", extern_uid=dn)
        with ldap.directory(sync_seconds=0.01) as directory:
            failures = iter([IdentityProviderUnavailable("down")])
            list_people, starts = directory.list_people, list[None]()

            async def list_or_fail() -> Any:
                starts.append(None)
                for failure in failures:
                    raise failure
                return await list_people()

            vars(directory)["list_people"] = list_or_fail
            with structlog.testing.capture_logs() as lines:
                job = asyncio.create_task(directory_sync.run_forever(replace(services, directory=directory)))
                ldap.delete(dn)
                await wait_until(lambda: lines[-1:] != [] and lines[-1]["event"] == "account blocked by the directory")
                # Only a run that has ended counts; the next one starts after it.
                begun = len(starts)
                await wait_until(lambda: len(starts) > begun)
                job.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await job
                # Another server process does not repeat a run of this interval.
                directory.options = replace(directory.options, sync_seconds=3600.0)
                vars(directory)["list_people"] = None
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(directory_sync.run_forever(replace(services, directory=directory)), 0.1)
        events = [line["event"] for line in lines if "group" not in line]
        assert events == ["the directory cannot be read; nothing was changed", "account blocked by the directory"]
        assert (await fetch_user(make, "ada")).state is UserState.BLOCKED

    @needs_slapd
    async def test_replaces_imported_names_by_ids_that_survive_renaming(
        self, make: DataFactory, ldap: LdapServer, services: Services
    ) -> None:
        dns = [ldap.add_person(name) for name in ("ada", "bob")]
        for number, dn in enumerate(dns):
            await make.user(f"u{number}", provider="ldapmain", extern_uid=dn)
        with ldap.directory(id_attribute="entryUUID") as directory:
            assert await directory_sync.synchronize(services, directory) == 2
            assert await directory_sync.synchronize(services, directory) == 0
            ldap.rename(dns[0], "uid=countess")
            assert await directory_sync.synchronize(services, directory) == 0
        assert [(await fetch_user(make, name)).state for name in ("u0", "u1")] == [UserState.ACTIVE] * 2

    async def test_blocks_others_although_two_accounts_have_identities_of_one_person(
        self, make: DataFactory, ldap: LdapServer, services: Services
    ) -> None:
        """One from a sign-in with the id, and one that was imported later with the DN."""
        dn = ldap.add_person("ada")
        await make.user("ada", provider="ldapmain", extern_uid="ada")
        await make.user("imported", provider="ldapmain", extern_uid=dn)
        await make.user("gone", provider="ldapmain", extern_uid="gone")
        with ldap.directory(id_attribute="uid") as directory:
            with structlog.testing.capture_logs() as lines:
                assert await directory_sync.synchronize(services, directory) == 1
            assert [(line["event"], line["user"]) for line in lines] == [
                ("two accounts have identities of one person in the directory", "imported"),
                ("account blocked by the directory", "gone"),
            ]
            assert [(await fetch_user(make, name)).state for name in ("ada", "imported", "gone")] == [
                UserState.ACTIVE,
                UserState.ACTIVE,
                UserState.BLOCKED,
            ]
            assert await directory_sync.synchronize(services, directory) == 0

    async def test_blocks_others_although_an_account_cannot_be_changed(
        self, make: DataFactory, ldap: LdapServer, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ldap.add_person("ada")
        for name in ("first", "second"):
            await make.user(name, provider="ldapmain", extern_uid=f"uid={name},{PEOPLE}")
        await make.user("ada", provider="ldapmain", extern_uid=f"uid=ada,{PEOPLE}")
        lock_user = accounts.lock_user

        async def fail_once(context: Context, user_id: int) -> tables.User:
            monkeypatch.setattr(accounts, "lock_user", lock_user)
            raise Taken("username")

        monkeypatch.setattr(accounts, "lock_user", fail_once)
        assert await directory_sync.synchronize(services, directory_of(services)) == 1
        assert [(await fetch_user(make, name)).state for name in ("first", "second")] == [UserState.ACTIVE, UserState.BLOCKED]

    async def test_takes_two_statements_for_a_thousand_accounts(
        self, make: DataFactory, ldap: LdapServer, services: Services, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make.group(path="tools")
        devs = []
        for number in range(12):
            devs.append(ldap.add_person(f"u{number}"))
            await make.user(f"u{number}", provider="ldapmain", extern_uid=devs[-1])
            if number in (0, 11):
                with statements.assert_at_most(3):
                    assert await directory_sync.synchronize(services, directory_of(services)) == 0
        monkeypatch.setattr(directory_sync, "ACCOUNTS_PER_STATEMENT", 5)
        with statements.assert_at_most(1 + 2 * 3):
            assert await directory_sync.synchronize(services, directory_of(services)) == 0
        ldap.add_group("devs", devs[0], devs[5], devs[11])
        assert await directory_sync.synchronize(services, directory_of(services)) == 3
        assert await directory_sync.synchronize(services, directory_of(services)) == 0
