"""Access tokens: what each scope allows, creation, revocation, expiry, and when they were last used."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from forgefront.git_http.endpoint import refusal_of
from graph.context import Services
from graph.errors import OperationError
from graph.fields.entities import global_id
from graph.git_access import GitAccess
from graph.http.endpoint import make_response
from graph.jobs import token_uses
from graph.live.subscription_streams import SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.operations.execution import Graph
from graph.operations.token_cache import USE_SECONDS
from graph.rules.accounts.viewer_contexts import ViewerIdentity
from storage import tables
from storage.secrets import digest_token
from storage.tables import TokenScope
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

READ, WRITE, GIT, ADMIN = TokenScope
VIEWER = "{ viewer { username isAdmin privateToken } }"
ALL_HOOKS = "{ hooks { totalCount } }"
CHANGED = "subscription ($projects: [String!]!) { buildChanged(projects: $projects) { seq to } }"
CREATE = """
mutation ($input: CreateAccessTokenInput!) {
  createAccessToken(input: $input) {
    token accessToken { id databaseId name scopes createdAt expiresAt lastUsedAt } userErrors { field message code }
  }
}
"""
REVOKE = "mutation ($input: RevokeAccessTokenInput!) { revokeAccessToken(input: $input) { deletedId userErrors { code } } }"
TOKENS = "query ($name: String!) { user(username: $name) { accessTokens { totalCount nodes { databaseId name scopes lastUsedAt } } } }"
ADD_KEY = 'mutation { addSshKey(input: {title: "k", key: "x"}) { userErrors { code } } }'


@pytest.fixture
def moment() -> list[datetime]:
    """The services' clock, to be set."""
    return [datetime(2026, 1, 2, tzinfo=UTC)]


@pytest.fixture
def services(services: Services, moment: list[datetime]) -> Services:
    return replace(services, clock=lambda: moment[0])


async def run(graph: Graph, token: str, query: str, **variables: Any) -> Any:
    """The data of an operation, or the code of its error."""
    outcome = await graph.run_document(query, variables, None, token, request_id="test")
    return str(outcome.errors[0].code) if outcome.errors else outcome.data


ALLOWED = {
    "query": {READ, WRITE},
    "mutation": {WRITE},
    "subscription": {READ, WRITE},
    "fetch": {READ, WRITE, GIT},
    "push": {GIT},
    "GET /user": {READ, WRITE},
    "PUT /projects/:id": {WRITE},
    "administration": set(),
    "GET /hooks": set(),
    "own SSH key": set(),
}
"""What an access token with one of these scopes alone may do, if its user may; everything else is forbidden."""


class TestScopes:
    async def test_each_forbids_what_it_does_not_include(self, graph: Graph, services: Services, api: Api, make: DataFactory) -> None:
        owner = await make.admin()
        project = await make.project(owner=owner, history={"commits": 1})
        path, access = f"{owner.username}/{project.path}", GitAccess(services)
        rename = f'mutation {{ updateProject(input: {{projectPath: "{project.id}", description: "d"}}) {{ userErrors {{ code }} }} }}'

        async def attempt(name: str, token: str) -> str:
            match name:
                case "query" | "mutation" | "administration" | "own SSH key":
                    query = {"query": VIEWER, "mutation": rename, "administration": ALL_HOOKS, "own SSH key": ADD_KEY}[name]
                    found = await run(graph, token, query)
                    return found if isinstance(found, str) else "ok"
                case "subscription":
                    stream = await subscribe(graph, CHANGED, {"projects": [str(project.id)]}, None, token, request_id="test")
                    if not isinstance(stream, SubscriptionStream):
                        return str(stream.errors[0].code)
                    stream.close()
                    return "ok"
                case "fetch" | "push":
                    try:
                        await (access.authorize_fetch if name == "fetch" else access.authorize_push)(path, token, "test")
                    except OperationError as error:
                        refusal = refusal_of(error)
                        assert refusal is not None and (refusal.status, refusal.message) == (403, error.message)
                        return str(error.code)
                    return "ok"
            method, _, route = name.partition(" ")
            settings: dict[str, Any] = {"json": {"description": "d"}} if method == "PUT" else {}
            response = await api.request(method, route.replace(":id", str(project.id)), headers={"PRIVATE-TOKEN": token}, **settings)
            if response.status_code == 403 and "lacks the scope" in response.json()["message"]:
                scope = "read" if method == "GET" else "write"
                assert response.json() == {"message": f"403 Forbidden - The access token lacks the scope `{scope}`."}
                return "INSUFFICIENT_SCOPE"
            return "ok" if response.status_code == 200 else "FORBIDDEN"

        every = [({scope}, await make.access_token(owner, scope)) for scope in TokenScope]
        every += [({READ, ADMIN}, await make.access_token(owner, READ, ADMIN)), (set(TokenScope), token_of(owner))]
        for scopes, token in every:
            for name, sufficient in ALLOWED.items():
                needs_admin = name in ("administration", "GET /hooks")
                can_start = bool(scopes & ({READ, WRITE} if needs_admin else sufficient))
                expected = "ok" if can_start else "INSUFFICIENT_SCOPE"
                if needs_admin and can_start and ADMIN not in scopes:
                    expected = "FORBIDDEN"
                if name == "own SSH key" and {WRITE, GIT} <= scopes:
                    expected = "ok"
                assert (name, scopes, await attempt(name, token)) == (name, scopes, expected)

    async def test_are_named_by_the_status_of_graphql(self, graph: Graph, make: DataFactory) -> None:
        token = await make.access_token(await make.user(), GIT)
        response = make_response(await graph.run_document(VIEWER, {}, None, token, request_id="r"), "r", "application/json")
        assert (response.status, response.headers) == (403, {"www-authenticate": 'Bearer error="insufficient_scope"'})
        (error,) = response.body["errors"]
        assert (error["message"], error["extensions"]["code"]) == ("The access token lacks the scope `read`.", "INSUFFICIENT_SCOPE")

    async def test_without_admin_the_viewer_is_no_administrator(self, graph: Graph, services: Services, make: DataFactory) -> None:
        admin, owner = await make.admin(), await make.user()
        hidden = await make.project(owner=owner, history={"commits": 1})
        query = f'{{ viewer {{ isAdmin privateToken }} project(path: "{hidden.id}") {{ name }} }}'
        both, alone = await make.access_token(admin, READ, GIT, ADMIN), await make.access_token(admin, READ, GIT)

        assert (await run(graph, both, query))["viewer"] == {"isAdmin": True, "privateToken": None}
        assert (await run(graph, token_of(admin), VIEWER))["viewer"]["privateToken"] == token_of(admin)
        assert await run(graph, alone, query) == "NOT_FOUND"
        assert (await run(graph, alone, VIEWER))["viewer"] == {"username": admin.username, "isAdmin": False, "privateToken": None}
        access, path = GitAccess(services), f"{owner.username}/{hidden.path}"
        grant = await access.authorize_push(path, both, "test")
        assert (await access.authorize_updates(grant, [], "test")) == []
        with pytest.raises(OperationError, match="not found"):
            await access.authorize_push(path, alone, "test")
        # The rights are those of the grant, also when the pack has arrived.
        with pytest.raises(OperationError, match="not found"):
            await access.authorize_updates(replace(grant, scopes=frozenset((GIT,))), [], "test")
        assert (found := await make.fetch(tables.User, admin.id)) is not None and found.admin

    async def test_signing_in_shows_the_private_token(self, graph: Graph, make: DataFactory) -> None:
        user = await make.user(password_hash=await make.services.passwords.hash("12345678"))
        token = await make.access_token(user, WRITE)
        sign_in = f'mutation {{ signIn(input: {{login: "{user.username}", password: "12345678"}}) {{ user {{ privateToken }} }} }}'
        assert await run(graph, token, sign_in) == {"signIn": {"user": {"privateToken": token_of(user)}}}

    async def test_none_leads_to_the_rights_of_an_administrator(self, graph: Graph, make: DataFactory, moment: list[datetime]) -> None:
        admin, other, user = await make.admin(), await make.admin(), await make.user()
        everything = await make.access_token(admin, *TokenScope)
        errors = "userErrors { code }"
        new_user = 'username: "eve", email: "eve@example.com", name: "Eve", password: "12345678"'
        forbidden = {
            "own private token": f"mutation {{ resetPrivateToken(input: {{}}) {{ {errors} }} }}",
            "private token": f"mutation {{ resetPrivateToken(input: {{databaseId: {other.id}}}) {{ {errors} }} }}",
            "link": f"mutation {{ createSignInLink(input: {{databaseId: {admin.id}}}) {{ {errors} }} }}",
            "password": f'mutation {{ updateUser(input: {{databaseId: {admin.id}, password: "12345678"}}) {{ {errors} }} }}',
            "identity": f'mutation {{ updateUser(input: {{databaseId: {other.id}, externUid: "eve", provider: "o"}}) {{ {errors} }} }}',
            "promotion": f"mutation {{ updateUser(input: {{databaseId: {user.id}, admin: true}}) {{ {errors} }} }}",
            "new administrator": f"mutation {{ createUser(input: {{{new_user}, admin: true}}) {{ {errors} }} }}",
            "import": f'mutation {{ beginImport(input: {{source: "https://old.example"}}) {{ {errors} }} }}',
        }
        allowed = {
            "other's private token": f"mutation {{ resetPrivateToken(input: {{databaseId: {user.id}}}) {{ {errors} }} }}",
            "other's link": f"mutation {{ createSignInLink(input: {{databaseId: {user.id}}}) {{ {errors} }} }}",
            "other's password": f'mutation {{ updateUser(input: {{databaseId: {user.id}, password: "12345678"}}) {{ {errors} }} }}',
            "administrator's name": f'mutation {{ updateUser(input: {{databaseId: {other.id}, name: "A", admin: true}}) {{ {errors} }} }}',
            "new user": f"mutation {{ createUser(input: {{{new_user}}}) {{ {errors} }} }}",
        }
        assert {name: await run(graph, everything, query) for name, query in forbidden.items()} == dict.fromkeys(
            forbidden, "INSUFFICIENT_SCOPE"
        )
        assert [value for query in allowed.values() for value in (await run(graph, everything, query)).values()] == [
            {"userErrors": []}
        ] * len(allowed)
        assert (await run(graph, token_of(admin), VIEWER))["viewer"]["privateToken"] == token_of(admin)

    async def test_ssh_keys_have_no_more_rights_than_the_token(self, graph: Graph, make: DataFactory, moment: list[datetime]) -> None:
        admin, user = await make.admin(), await make.user()
        expires = moment[0] + timedelta(hours=1)
        for owner, scopes, expires_at, expected in (
            (user, (WRITE, GIT), None, "ok"),
            (user, (WRITE, GIT), expires, "INSUFFICIENT_SCOPE"),
            (admin, (WRITE, GIT), None, "INSUFFICIENT_SCOPE"),
            (admin, (WRITE, GIT, ADMIN), None, "ok"),
        ):
            found = await run(graph, await make.access_token(owner, *scopes, expires_at=expires_at), ADD_KEY)
            assert (found if isinstance(found, str) else "ok") == expected, (scopes, expires_at)

    async def test_tokens_that_change_something_need_write(self, graph: Graph, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        project = await make.project(owner=admin)
        added = f'mutation {{ createTrigger(input: {{projectPath: "{project.id}"}}) {{ trigger {{ token }} }} }}'
        token = (await ask.data(added, admin))["createTrigger"]["trigger"]["token"]
        runner = await make.runner(project)
        query = f'{{ project(path: "{project.id}") {{ runnersToken triggers {{ nodes {{ token }} }} }} runners {{ nodes {{ token }} }} }}'
        shared = "{ settings { runnersRegistrationToken } }"

        async def read(*scopes: TokenScope) -> Any:
            value = await make.access_token(admin, *scopes)
            found = await run(graph, value, query)
            of_project = found["project"]
            tokens = [
                of_project["runnersToken"],
                *(node["token"] for node in (*of_project["triggers"]["nodes"], *found["runners"]["nodes"])),
            ]
            return tokens, await run(graph, value, shared)

        assert await read(READ, ADMIN) == ([None, None, None], "INSUFFICIENT_SCOPE")
        tokens, settings = await read(WRITE, ADMIN)
        assert tokens[1:] == [token, make.runner_token(runner)] and tokens[0] and settings["settings"]["runnersRegistrationToken"]

    def test_identities_of_different_rights_share_no_answers(self) -> None:
        scopes = (None, frozenset((READ,)), frozenset((READ, ADMIN)))
        assert len({ViewerIdentity.of_scopes(1, True, True, each) for each in scopes}) == 3
        assert [ViewerIdentity.of_scopes(1, True, True, each).admin for each in scopes] == [True, False, True]


class TestCreation:
    async def test_shows_the_value_once_and_stores_its_digest(self, ask: Ask, make: DataFactory, moment: list[datetime]) -> None:
        user, expires = await make.user(), moment[0] + timedelta(days=1)
        created = (await ask.data(CREATE, user, input={"name": " CI ", "scopes": ["GIT", "READ"], "expiresAt": expires.isoformat()}))[
            "createAccessToken"
        ]
        token, value = created["accessToken"], created["token"]
        assert token == {
            "id": global_id("AccessToken", token["databaseId"]),
            "databaseId": token["databaseId"],
            "name": "CI",
            "scopes": ["READ", "GIT"],
            "createdAt": "2026-01-02T00:00:00.000000Z",
            "expiresAt": "2026-01-03T00:00:00.000000Z",
            "lastUsedAt": None,
        }
        row = await make.fetch(tables.Token, token["databaseId"])
        assert row is not None
        assert (row.digest, row.sealed, row.scopes) == (digest_token(value), "", "read,git")
        assert value not in str(row)
        assert (await run(ask.graph, value, VIEWER))["viewer"]["username"] == user.username

    async def test_rejects_invalid_input(self, ask: Ask, make: DataFactory, moment: list[datetime]) -> None:
        user = await make.user()
        found = await ask.data(CREATE, user, input={"name": " ", "scopes": [], "expiresAt": moment[0].isoformat()})
        assert [(error["field"], error["code"]) for error in found["createAccessToken"]["userErrors"]] == [
            ("name", "REQUIRED"),
            ("scopes", "INVALID"),
            ("expiresAt", "INVALID"),
        ]
        for scopes in (["ADMIN"], ["READ", "ADMIN"]):
            found = await ask.data(CREATE, user, input={"name": "n", "scopes": scopes})
            assert {error["field"] for error in found["createAccessToken"]["userErrors"]} == {"scopes"}, scopes
        assert await make.count(tables.Token) == 1

    async def test_by_an_access_token_gives_no_further_rights(self, graph: Graph, make: DataFactory, moment: list[datetime]) -> None:
        admin, soon = await make.admin(), moment[0] + timedelta(hours=1)
        lasting = await make.access_token(admin, WRITE)
        expiring = await make.access_token(admin, WRITE, expires_at=soon)
        for token, values in (
            (lasting, {"scopes": ["GIT"]}),
            (lasting, {"scopes": ["READ", "ADMIN"]}),
            (expiring, {"scopes": ["READ"]}),
            (expiring, {"scopes": ["READ"], "expiresAt": (soon + timedelta(seconds=1)).isoformat()}),
        ):
            found = await run(graph, token, CREATE, input={"name": "n", **values})
            ok = isinstance(found, dict) and found["createAccessToken"]["userErrors"]
            assert found == "INSUFFICIENT_SCOPE" or ok, values
        for token, values in ((lasting, {"scopes": ["READ", "WRITE"]}), (expiring, {"scopes": ["WRITE"], "expiresAt": soon.isoformat()})):
            found = await run(graph, token, CREATE, input={"name": "n", **values})
            assert found["createAccessToken"]["userErrors"] == []


class TestExpiry:
    async def test_holds_although_tokens_are_cached(self, graph: Graph, make: DataFactory, moment: list[datetime]) -> None:
        start, user = moment[0], await make.user()
        token = await make.access_token(user, READ, expires_at=start + timedelta(seconds=0.5))
        for seconds, expected in ((0, "ok"), (0.4, "ok"), (0.5, "UNAUTHENTICATED"), (0.6, "UNAUTHENTICATED")):
            moment[0] = start + timedelta(seconds=seconds)
            found = await run(graph, token, VIEWER)
            assert (found if isinstance(found, str) else "ok") == expected, seconds

    async def test_ends_streams(self, graph: Graph, make: DataFactory, moment: list[datetime]) -> None:
        user = await make.user()
        project = await make.project(owner=user)
        token = await make.access_token(user, READ, expires_at=datetime.now(UTC) + timedelta(hours=1))
        stream = await subscribe(graph, CHANGED, {"projects": [str(project.id)]}, None, token, request_id="test")
        assert isinstance(stream, SubscriptionStream)
        live, database = graph.services.broadcaster, graph.services.database
        await live.end_invalid_streams(database)
        assert await stream.next(0.01) is None and not stream.is_ended
        async with database.write_session() as session:
            row = await session.scalar(token_with_value(token))
            row.expires_at = datetime.now(UTC)
            await session.commit()
        await live.end_invalid_streams(database)
        ended = await stream.next(1)
        assert ended is not None and [str(error.code) for error in ended.result.errors] == ["UNAUTHENTICATED"]


class TestRevocation:
    async def test_applies_at_once_and_only_to_access_tokens(self, ask: Ask, make: DataFactory) -> None:
        user, other, admin = await make.user(), await make.user(), await make.admin()
        value = await make.access_token(user, READ)
        (listed,) = (await ask.data(TOKENS, user, name=user.username))["user"]["accessTokens"]["nodes"]
        assert (await run(ask.graph, value, VIEWER))["viewer"]["username"] == user.username
        named = {"databaseId": listed["databaseId"]}

        assert await ask.codes(TOKENS, other, name=user.username) == ["FORBIDDEN"]
        assert (await ask.data(TOKENS, admin, name=user.username))["user"]["accessTokens"]["nodes"] == [listed]
        assert await ask.codes(REVOKE, other, input=named) == ["NOT_FOUND"]
        assert await ask.codes(REVOKE, other, input={"id": global_id("AccessToken", listed["databaseId"])}) == ["NOT_FOUND"]
        assert await ask.codes(REVOKE, other, input={**named, "userId": user.id}) == ["FORBIDDEN"]
        for viewer in (user, other, admin):
            for token_id in range(1, listed["databaseId"]):
                private = {"id": global_id("AccessToken", token_id)}
                assert await ask.codes(REVOKE, viewer, input=private) == ["NOT_FOUND"]
                assert (await ask.data("query ($id: ID!) { node(id: $id) { id } }", viewer, **private))["node"] is None
        assert await make.count(tables.Token) == 4
        deleted = await ask.data(REVOKE, admin, input={**named, "userId": user.id})
        assert deleted["revokeAccessToken"]["deletedId"] == global_id("AccessToken", listed["databaseId"])
        assert await run(ask.graph, value, VIEWER) == "UNAUTHENTICATED"


class TestLastUse:
    async def test_is_written_in_the_background_at_most_once_in_some_minutes(
        self, graph: Graph, make: DataFactory, moment: list[datetime], statements: StatementRecorder
    ) -> None:
        start, user = moment[0], await make.user()
        values = [await make.access_token(user, READ) for _ in range(3)]

        async def use(*tokens: str) -> list[str]:
            """The statements of one operation for each token, and of the job after it."""
            seconds_before = moment[0]
            for token in tokens:
                with statements.assert_at_most(0):
                    await run(graph, token, VIEWER.replace("privateToken", ""))
            assert moment[0] == seconds_before
            with statements.record() as seen:
                await token_uses.write_uses(graph.services)
            return seen

        async def uses() -> list[datetime | None]:
            async with graph.services.database.read_session() as session:
                return [(await session.scalar(token_with_value(value))).last_used_at for value in values]

        assert await use(token_of(user)) == []
        assert len(await use(*values[:2])) == 1
        assert await uses() == [start, start, None]
        moment[0] = start + timedelta(seconds=USE_SECONDS - 1)
        assert await use(*values[:2]) == []
        moment[0] = start + timedelta(seconds=USE_SECONDS)
        assert len(await use(values[0], token_of(user))) == 1
        assert await uses() == [moment[0], start, None]

    async def test_that_cannot_be_written_is_kept(self, graph: Graph, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        token = await make.access_token(await make.user(), READ)
        await run(graph, token, VIEWER)

        def unavailable(_: Any) -> Any:
            raise ConnectionRefusedError

        with monkeypatch.context() as patched:
            patched.setattr("graph.jobs.token_uses.write_transaction", unavailable)
            await token_uses.write_uses(graph.services)
        assert len(graph.services.token_cache.take_uses()) == 1


def token_with_value(value: str) -> Any:
    return select(tables.Token).where(col(tables.Token.digest) == digest_token(value))
