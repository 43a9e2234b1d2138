"""Members of groups and projects through the graph."""

import asyncio
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

LEVELS = list(AccessLevel)


def mutation(verb: str, noun: str) -> str:
    name = f"{verb}{noun}Member"
    return (
        f"mutation ($input: {name[0].upper()}{name[1:]}Input!) {{ {name}(input: $input) {{"
        " member { accessLevel accessLevelValue user { username } } userErrors { field message code } } }"
    )


ADD_TO_GROUP, UPDATE_IN_GROUP, REMOVE_FROM_GROUP = (mutation(verb, "Group") for verb in ("add", "update", "remove"))
ADD_TO_PROJECT, UPDATE_IN_PROJECT, REMOVE_FROM_PROJECT = (mutation(verb, "Project") for verb in ("add", "update", "remove"))
MEMBERS = """query ($path: String!, $first: Int) { project(path: $path) { members(first: $first) { totalCount
    nodes { accessLevel createdAt user { username name } } } } }"""


async def result(ask: Ask, query: str, viewer: tables.User, **input: Any) -> tuple[dict[str, Any] | None, list[tuple[str | None, str]]]:
    """The member of a mutation that ran, and the (field, code) of its user errors."""
    ((payload,),) = [tuple((await ask.data(query, viewer, input=input)).values())]
    return payload["member"], [(error["field"], error["code"]) for error in payload["userErrors"]]


class TestAddGroupMember:
    async def test_accepts_the_user_by_id_or_username_and_the_level_by_name_or_number(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        ada, bob = await make.user("ada"), await make.user("bob")

        added = await result(ask, ADD_TO_GROUP, owner, groupPath=group.path, userId=ada.id, accessLevelValue=30)
        assert added == ({"accessLevel": "DEVELOPER", "accessLevelValue": 30, "user": {"username": "ada"}}, [])
        added = await result(ask, ADD_TO_GROUP, owner, groupPath=str(group.id), username="BOB", accessLevel="OWNER")
        assert added == ({"accessLevel": "OWNER", "accessLevelValue": 50, "user": {"username": "bob"}}, [])
        assert await ask.codes(ADD_TO_GROUP, bob, input={"groupPath": group.path, "userId": bob.id, "accessLevel": "GUEST"}) == ["CONFLICT"]

    async def test_errors_about_the_user_name_the_field_that_was_sent(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user("ada")))
        project = await make.project(owner=owner)
        await make.member(project, await make.user("bob"), AccessLevel.GUEST)

        for named, field in (
            ({"username": "ADA"}, "username"),
            ({"userId": owner.id}, "userId"),
            ({"userId": None, "username": "ada"}, "username"),
        ):
            input: dict[str, Any] = {"groupPath": group.path, "accessLevel": "GUEST", **named}
            assert await result(ask, ADD_TO_GROUP, owner, **input) == (None, [(field, "CONFLICT")])
            assert await result(ask, UPDATE_IN_GROUP, owner, **input) == (None, [(field, "INVALID")])
            assert await result(ask, REMOVE_FROM_GROUP, owner, groupPath=group.path, **named) == (None, [(field, "INVALID")])
        member: dict[str, Any] = {"projectPath": str(project.id), "username": "bob", "accessLevel": "GUEST"}
        assert await result(ask, ADD_TO_PROJECT, owner, **member) == (None, [("username", "CONFLICT")])

    async def test_concurrent_calls_add_a_member_once(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        await make.user("bob")
        input = {"groupPath": group.path, "username": "bob", "accessLevel": "GUEST"}

        added = await asyncio.gather(*(result(ask, ADD_TO_GROUP, owner, **input) for _ in range(4)))

        assert sorted(str(errors) for _, errors in added) == ["[('username', 'CONFLICT')]"] * 3 + ["[]"]

    @pytest.mark.parametrize(
        ("input", "error"),
        [
            ({"accessLevelValue": 60}, ("accessLevel", "INVALID")),
            ({"accessLevelValue": 0}, ("accessLevel", "INVALID")),
            ({"accessLevelValue": 15}, ("accessLevel", "INVALID")),
            ({}, ("accessLevel", "REQUIRED")),
            ({"accessLevel": "GUEST", "userId": None}, ("userId", "REQUIRED")),
        ],
    )
    async def test_rejects_missing_and_invalid_values(
        self, ask: Ask, make: DataFactory, input: dict[str, Any], error: tuple[str, str]
    ) -> None:
        group = await make.group(owner=(owner := await make.user()))
        user = await make.user()

        assert await result(ask, ADD_TO_GROUP, owner, **{"groupPath": group.path, "userId": user.id, **input}) == (None, [error])

    async def test_a_missing_user_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))

        for named in ({"userId": 999}, {"userId": -1}, {"username": "nobody"}):
            assert await ask.codes(ADD_TO_GROUP, owner, input={"groupPath": group.path, "accessLevel": "GUEST", **named}) == ["NOT_FOUND"]

    @pytest.mark.parametrize("level", LEVELS)
    async def test_requires_an_owner(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        group = await make.group(members=[(member := await make.user(), level)])
        other = await make.user()
        input = {"groupPath": group.path, "userId": other.id, "accessLevel": "GUEST"}

        assert await ask.codes(ADD_TO_GROUP, member, input=input) == ([] if level is AccessLevel.OWNER else ["FORBIDDEN"])

    async def test_is_forbidden_to_members_and_hidden_from_others(self, ask: Ask, make: DataFactory) -> None:
        group, outsider = await make.group(), await make.user()
        input = {"groupPath": group.path, "userId": outsider.id, "accessLevel": "OWNER"}

        assert await ask.codes(ADD_TO_GROUP, outsider, input=input) == ["NOT_FOUND"]
        await make.project(group=group, visibility=Visibility.PUBLIC)
        assert await ask.codes(ADD_TO_GROUP, outsider, input=input) == ["FORBIDDEN"]
        assert await ask.codes(ADD_TO_GROUP, await make.admin(), input=input) == []

    async def test_concurrent_additions_create_one_membership(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        user = await make.user()
        input = {"groupPath": group.path, "userId": user.id, "accessLevel": "GUEST"}

        codes = await asyncio.gather(*(ask.codes(ADD_TO_GROUP, owner, input=input) for _ in range(32)))

        assert sorted(codes) == [[]] + [["CONFLICT"]] * 31
        assert await make.count(tables.GroupMember) == 2


class TestUpdateGroupMember:
    async def test_changes_the_access_level(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user("ada")
        group = await make.group(owner=(owner := await make.user()), members=[(user, AccessLevel.GUEST)])

        changed = await result(ask, UPDATE_IN_GROUP, owner, groupPath=group.path, userId=user.id, accessLevelValue=40)

        assert changed == ({"accessLevel": "MASTER", "accessLevelValue": 40, "user": {"username": "ada"}}, [])

    async def test_the_last_owner_cannot_be_removed(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        admin = await make.admin()

        for viewer in (owner, admin):
            changed = await result(ask, UPDATE_IN_GROUP, viewer, groupPath=group.path, userId=owner.id, accessLevel="MASTER")
            assert changed == (None, [("userId", "INVALID")])
        assert await ask.codes(UPDATE_IN_GROUP, owner, input={"groupPath": group.path, "userId": owner.id, "accessLevel": "OWNER"}) == []

    async def test_finds_members_only(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()))
        input = {"groupPath": group.path, "userId": (await make.user()).id, "accessLevel": "GUEST"}

        assert await ask.codes(UPDATE_IN_GROUP, owner, input=input) == ["NOT_FOUND"]

    @pytest.mark.parametrize("level", LEVELS)
    async def test_requires_an_owner(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        member, other = await make.user(), await make.user()
        group = await make.group(members=[(member, level), (other, AccessLevel.GUEST)])
        input = {"groupPath": group.path, "userId": other.id, "accessLevel": "REPORTER"}

        assert await ask.codes(UPDATE_IN_GROUP, member, input=input) == ([] if level is AccessLevel.OWNER else ["FORBIDDEN"])


class TestRemoveGroupMember:
    @pytest.mark.parametrize("level", LEVELS)
    async def test_requires_an_owner_or_the_member_itself(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        member, other = await make.user("ada"), await make.user()
        group = await make.group(owner=await make.user(), members=[(member, level), (other, AccessLevel.GUEST)])

        codes = await ask.codes(REMOVE_FROM_GROUP, member, input={"groupPath": group.path, "userId": other.id})
        assert codes == ([] if level is AccessLevel.OWNER else ["FORBIDDEN"])
        left, errors = await result(ask, REMOVE_FROM_GROUP, member, groupPath=group.path, username="Ada")
        assert (left, errors) == ({"accessLevel": level.name, "accessLevelValue": int(level), "user": {"username": "ada"}}, [])
        assert await ask.codes(REMOVE_FROM_GROUP, member, input={"groupPath": group.path, "userId": member.id}) == ["NOT_FOUND"]

    async def test_does_not_reveal_whether_a_user_exists(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(members=[(guest := await make.user(), AccessLevel.GUEST)])

        assert await ask.codes(REMOVE_FROM_GROUP, guest, input={"groupPath": group.path, "userId": 999}) == ["FORBIDDEN"]

    async def test_the_last_owner_cannot_be_removed(self, ask: Ask, make: DataFactory) -> None:
        group = await make.group(owner=(owner := await make.user()), members=[(await make.user(), AccessLevel.MASTER)])

        for viewer in (owner, await make.admin()):
            removed = await result(ask, REMOVE_FROM_GROUP, viewer, groupPath=group.path, userId=owner.id)
            assert removed == (None, [("userId", "INVALID")])

    async def test_concurrent_leaves_preserve_one_owner(self, ask: Ask, make: DataFactory) -> None:
        owners = [await make.user() for _ in range(8)]
        group = await make.group(members=[(owner, AccessLevel.OWNER) for owner in owners])

        codes = await asyncio.gather(
            *(ask.codes(REMOVE_FROM_GROUP, owner, input={"groupPath": group.path, "userId": owner.id}) for owner in owners)
        )

        assert sorted(codes) == [[]] * 7 + [["INVALID"]]
        assert await make.count(tables.GroupMember) == 1

    async def test_revokes_access_to_group_projects_immediately(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        group = await make.group(owner=(owner := await make.user()), members=[(user, AccessLevel.MASTER)])
        project = await make.project(group=group)
        query = "query ($path: String!) { project(path: $path) { viewerAccessLevel } }"
        assert (await ask.data(query, user, path=str(project.id)))["project"] == {"viewerAccessLevel": "MASTER"}

        await result(ask, REMOVE_FROM_GROUP, owner, groupPath=group.path, userId=user.id)

        assert await ask.codes(query, user, path=str(project.id)) == ["NOT_FOUND"]


class TestProjectMembers:
    async def test_are_added_changed_and_removed_by_masters(self, ask: Ask, make: DataFactory) -> None:
        master, user = await make.user(), await make.user("ada")
        project = await make.project(members=[(master, AccessLevel.MASTER)])
        here: dict[str, Any] = {"projectPath": str(project.id), "userId": user.id}

        shown: dict[str, Any] = {"accessLevel": "REPORTER", "accessLevelValue": 20, "user": {"username": "ada"}}
        assert await result(ask, ADD_TO_PROJECT, master, **here, accessLevel="REPORTER") == (shown, [])
        assert await result(ask, ADD_TO_PROJECT, master, **here, accessLevel="GUEST") == (None, [("userId", "CONFLICT")])
        shown |= {"accessLevel": "MASTER", "accessLevelValue": 40}
        assert await result(ask, UPDATE_IN_PROJECT, master, **here, accessLevelValue=40) == (shown, [])
        assert await result(ask, REMOVE_FROM_PROJECT, master, **here) == (shown, [])
        assert await ask.codes(REMOVE_FROM_PROJECT, master, input=here) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE_IN_PROJECT, master, input={**here, "accessLevel": "GUEST"}) == ["NOT_FOUND"]

    async def test_never_own_the_project(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), members=[(user := await make.user(), AccessLevel.GUEST)])
        error = (None, [("accessLevel", "INVALID")])

        here: dict[str, Any] = {"projectPath": str(project.id)}
        assert await result(ask, UPDATE_IN_PROJECT, owner, **here, userId=user.id, accessLevelValue=50) == error
        assert await result(ask, ADD_TO_PROJECT, owner, **here, userId=(await make.user()).id, accessLevel="OWNER") == error

    @pytest.mark.parametrize("level", LEVELS[:3])
    async def test_below_masters_may_only_leave(self, ask: Ask, make: DataFactory, level: AccessLevel) -> None:
        member, other = await make.user(), await make.user()
        project = await make.project(members=[(member, level), (other, AccessLevel.GUEST)])
        here = {"projectPath": str(project.id), "userId": other.id}

        assert await ask.codes(ADD_TO_PROJECT, member, input={**here, "accessLevel": "GUEST"}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE_IN_PROJECT, member, input={**here, "accessLevel": "GUEST"}) == ["FORBIDDEN"]
        assert await ask.codes(REMOVE_FROM_PROJECT, member, input=here) == ["FORBIDDEN"]
        assert await ask.codes(REMOVE_FROM_PROJECT, member, input={**here, "userId": member.id}) == []

    async def test_of_a_private_project_are_not_found_by_others(self, ask: Ask, make: DataFactory) -> None:
        project, outsider = await make.project(), await make.user()
        here = {"projectPath": str(project.id), "userId": outsider.id}

        for query in (ADD_TO_PROJECT, UPDATE_IN_PROJECT):
            assert await ask.codes(query, outsider, input={**here, "accessLevel": "MASTER"}) == ["NOT_FOUND"]
        assert await ask.codes(REMOVE_FROM_PROJECT, outsider, input=here) == ["NOT_FOUND"]
        assert await ask.codes(MEMBERS, outsider, path=str(project.id)) == ["NOT_FOUND"]

    async def test_are_added_once_by_many_at_once(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        input = {"projectPath": str(project.id), "userId": (await make.user()).id, "accessLevel": "GUEST"}

        codes = await asyncio.gather(*(ask.codes(ADD_TO_PROJECT, owner, input=input) for _ in range(32)))

        assert sorted(codes) == [[]] + [["CONFLICT"]] * 31
        assert await make.count(tables.ProjectMember) == 1

    async def test_are_removed_once_by_many_at_once(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), members=[(user := await make.user(), AccessLevel.GUEST)])

        codes = await asyncio.gather(
            *(ask.codes(REMOVE_FROM_PROJECT, owner, input={"projectPath": str(project.id), "userId": user.id}) for _ in range(8))
        )

        assert sorted(codes) == [[]] + [["NOT_FOUND"]] * 7

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, members=[(await make.user(), AccessLevel.GUEST) for _ in range(30)])

        with statements.record() as one:
            await ask.data(MEMBERS, owner, path=str(project.id), first=1)
        with statements.record() as thirty:
            data = await ask.data(MEMBERS, owner, path=str(project.id), first=30)

        assert (data["project"]["members"]["totalCount"], len(data["project"]["members"]["nodes"])) == (30, 30)
        assert len(thirty) <= len(one)
