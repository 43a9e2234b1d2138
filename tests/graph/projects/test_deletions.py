"""Payloads of deletions."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from graphql import GraphQLObjectType, get_named_type
from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.fields import mutations
from graph.operations.results import OperationResult
from graph.rules.builds import stored_objects
from graph.rules.merge_requests import merge_request_refresh
from graph.rules.projects import projects
from graph.schema import graphql_schema
from storage import tables
from storage.database.engine import DatabaseSession
from storage.tables import MergeRequestState, MergeStatus, counters
from storage.tables.counters import CounterKind
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.scenario import Scenario, valid_mutation_input
from tests.support.waiting import wait_for_lock_waiter

assert graphql_schema.mutation_type is not None
DELETIONS = {
    name: field for name, field in graphql_schema.mutation_type.fields.items() if name.startswith(("delete", "remove", "unregister"))
}
NODE = "query ($id: ID!) { node(id: $id) { id } }"


def test_there_are_deletions() -> None:
    assert len(DELETIONS) >= 14


@pytest.mark.parametrize("name", DELETIONS)
def test_each_payload_has_the_deleted_id(name: str) -> None:
    payload = get_named_type(DELETIONS[name].type)
    assert isinstance(payload, GraphQLObjectType)
    field = payload.fields["deletedId"]
    assert str(field.type) == "ID"
    assert field.description


@pytest.mark.parametrize("name", sorted(DELETIONS))
async def test_the_deleted_id_is_no_longer_found(ask: Ask, scenario: Scenario, name: str) -> None:
    root = scenario.users["AD"]
    assert root is not None
    input = await valid_mutation_input(scenario, name, "AD")
    payload = get_named_type(DELETIONS[name].type)
    assert isinstance(payload, GraphQLObjectType)
    (entity,) = payload.fields.keys() - {"deletedId", "userErrors"}
    text = f"""mutation ($input: {DELETIONS[name].args["input"].type}) {{ {name}(input: $input) {{
      deletedId {entity} {{ id }} userErrors {{ message }} }} }}"""

    answer = (await ask.data(text, root, input=input))[name]

    assert answer["userErrors"] == []
    if name != "deleteArtifact":
        assert answer["deletedId"] == answer[entity]["id"]
    assert answer["deletedId"] is not None
    assert (await ask.data(NODE, root, id=answer["deletedId"])) == {"node": None}


@pytest.mark.parametrize("name", sorted(DELETIONS))
async def test_concurrent_deletions_succeed_once(ask: Ask, scenario: Scenario, name: str) -> None:
    root = scenario.users["AD"]
    await scenario.make.save(tables.Hook(url="http://hooks.example/"))
    input = await valid_mutation_input(scenario, name, "AD")
    text = f"mutation ($input: {DELETIONS[name].args['input'].type}) {{ {name}(input: $input) {{ deletedId userErrors {{ code }} }} }}"

    outcomes = await asyncio.gather(*(ask(text, root, input=input) for _ in range(4)))

    lost = [[error.code.name for error in each.errors] for each in outcomes if not (each.data or {}).get(name, {}).get("deletedId")]
    # The artifact of a build may be missing already. The token of a runner that is deleted by then is a wrong one.
    expected: dict[str, list[list[str]]] = {"deleteArtifact": [[]], "unregisterRunner": [["NOT_FOUND"], ["FORBIDDEN"]]}
    assert len(lost) == 3
    assert [codes for codes in lost if codes not in expected.get(name, [["NOT_FOUND"]])] == []
    async with scenario.make.services.database.read_session() as session:
        events = [json.dumps(event.payload, sort_keys=True) for event in (await session.execute(select(tables.Event))).scalars()]
    assert len(set(events)) == len(events)


@pytest.mark.parametrize("name", ["deleteGroup", "deleteUser"])
async def test_a_project_that_is_transferred_meanwhile_has_its_repository_if_it_remains(
    ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch, name: str, dialect: str
) -> None:
    admin, owner, group, target = await make.admin(), await make.user(), await make.group(), await make.group()
    project = await make.project(history={"commits": 1}, **({"owner": owner} if name == "deleteUser" else {"group": group}))
    transfers: list[asyncio.Task[OperationResult]] = []
    transfer = "mutation ($input: TransferProjectInput!) { transferProject(input: $input) { userErrors { code } } }"
    erase_objects = stored_objects.erase_objects_of_projects

    async def interrupted(*arguments: Any) -> None:
        input = {"projectPath": str(project.id), "groupPath": target.path}
        transfers.append(asyncio.create_task(ask(transfer, admin, input=input)))
        await asyncio.wait(transfers, timeout=0.5)
        await erase_objects(*arguments)

    monkeypatch.setattr(stored_objects, "erase_objects_of_projects", interrupted)
    named = {"databaseId": owner.id} if name == "deleteUser" else {"groupPath": group.path}
    text = f"mutation ($input: {DELETIONS[name].args['input'].type}) {{ {name}(input: $input) {{ deletedId userErrors {{ code }} }} }}"
    assert (await ask.data(text, admin, input=named))[name]["userErrors"] == []
    await transfers[0]
    row = await make.fetch(tables.Project, project.id)
    assert make.services.repositories.path_of(project.id).exists() is (row is not None)


async def test_nothing_is_deleted_where_there_is_a_user_error(ask: Ask, make: DataFactory) -> None:
    owner = await make.user("ada")
    await make.group(owner=owner, path="mills")
    text = """mutation { removeGroupMember(input: {groupPath: "mills", username: "ada"}) {
      deletedId member { id } userErrors { code } } }"""

    answer = (await ask.data(text, owner))["removeGroupMember"]

    assert (answer["deletedId"], answer["member"], len(answer["userErrors"])) == (None, None, 1)


async def test_deleting_a_missing_artifact_returns_no_id(ask: Ask, make: DataFactory) -> None:
    project = await make.project(owner=(owner := await make.user()), history={"commits": 1})
    build = await make.build(project, "f" * 40)
    text = """mutation ($id: Int!, $p: String!) { deleteArtifact(input: {projectPath: $p, databaseId: $id}) {
      deletedId build { databaseId } userErrors { code } } }"""

    answer = (await ask.data(text, owner, id=build.id, p=str(project.id)))["deleteArtifact"]

    assert answer == {"deletedId": None, "build": {"databaseId": build.id}, "userErrors": []}


def deletion_input(name: str, project: tables.Project, group: tables.Namespace, user: tables.User) -> dict[str, str | int | None]:
    """The input of one of the three mutations that delete projects."""
    inputs: dict[str, dict[str, str | int | None]] = {
        "deleteProject": {"projectPath": str(project.id)},
        "deleteGroup": {"groupPath": group.path},
        "deleteUser": {"databaseId": user.id},
    }
    return inputs[name]


@pytest.mark.parametrize("name", ["deleteProject", "deleteGroup", "deleteUser"])
async def test_merge_requests_from_a_deleted_project_cannot_be_merged(ask: Ask, make: DataFactory, name: str) -> None:
    root, author = await make.admin(), await make.user()
    target = await make.project(owner=root)
    group = await make.group(owner=root)
    fork = await (make.project(group=group) if name == "deleteGroup" else make.project(owner=author))
    waiting = {"merge_status": MergeStatus.CAN_BE_MERGED, "merge_when_build_succeeds": True, "merge_user_id": root.id}
    lost = await make.merge_request(target, source_project_id=fork.id, **waiting)
    merged = await make.merge_request(
        target, source_project_id=fork.id, state=MergeRequestState.MERGED, merge_status=MergeStatus.CAN_BE_MERGED
    )
    other = await make.merge_request(target, **waiting)
    input = deletion_input(name, fork, group, author)

    text = f"mutation ($input: {DELETIONS[name].args['input'].type}) {{ {name}(input: $input) {{ userErrors {{ message }} }} }}"
    assert (await ask.data(text, root, input=input))[name]["userErrors"] == []
    await merge_request_refresh.refresh_unchecked(make.services)

    found = [await make.fetch(tables.MergeRequest, row.id) for row in (lost, merged, other)]
    assert [(row.merge_status, row.merge_when_build_succeeds) for row in found if row is not None] == [
        (MergeStatus.CANNOT_BE_MERGED, False),
        (MergeStatus.CAN_BE_MERGED, False),
        (MergeStatus.CAN_BE_MERGED, True),
    ]


@dataclass(frozen=True)
class Deletion:
    """A deletion of a project, and the transaction of another writer, which has the number for a new issue in it."""

    viewer: tables.User
    project: tables.Project
    text: str
    input: dict[str, str | int | None]
    writer: DatabaseSession


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
@pytest.mark.parametrize("name", ["deleteProject", "deleteGroup", "deleteUser"])
class TestConflictsOfLocks:
    @pytest.fixture
    async def deletion(self, make: DataFactory, name: str) -> AsyncIterator[Deletion]:
        await make.save(tables.Hook(url="http://hooks.example/"))
        owner, group = await make.user(), await make.group()
        project = await make.project(**({"owner": owner} if name == "deleteUser" else {"group": group}))
        await make.issue(project)
        input = deletion_input(name, project, group, owner)
        text = f"mutation ($input: {DELETIONS[name].args['input'].type}) {{ {name}(input: $input) {{ deletedId userErrors {{ code }} }} }}"
        async with make.services.database.write_session() as writer:
            await writer.execute(counters.advance("postgresql", project.id, CounterKind.ISSUE))
            yield Deletion(await make.admin(), project, text, input, writer)

    async def test_a_deletion_waits_for_writers_before_it_locks_the_project(
        self, ask: Ask, make: DataFactory, deletion: Deletion, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """A new row of the writer refers to the project. Waiting for each other, they would be unavailable after a second."""
        monkeypatch.setattr(mutations, "MAX_DELETION_ATTEMPTS", 1)
        monkeypatch.setattr(projects, "MAX_LOCK_WAIT_MILLISECONDS", 10_000)
        deleting = asyncio.create_task(ask.data(deletion.text, deletion.viewer, input=deletion.input))
        await wait_for_lock_waiter(make.services.database)
        deletion.writer.add(tables.Label(project_id=deletion.project.id, title="new", color="#428BCA"))
        await deletion.writer.commit()
        assert (await deleting)[name]["deletedId"] is not None
        assert await make.fetch(tables.Project, deletion.project.id) is None

    async def test_a_deletion_that_waits_for_long_is_repeated(
        self, ask: Ask, make: DataFactory, deletion: Deletion, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        restarts: list[Context] = []
        restart = mutations.restart

        async def commit_and_restart(context: Context) -> None:
            restarts.append(context)
            if len(restarts) == 2:
                await deletion.writer.commit()
            await restart(context)

        monkeypatch.setattr(mutations, "restart", commit_and_restart)
        monkeypatch.setattr(projects, "MAX_LOCK_WAIT_MILLISECONDS", 5)
        data = await ask.data(deletion.text, deletion.viewer, input=deletion.input)
        assert data[name]["deletedId"] is not None
        assert len(restarts) >= 2
        assert await make.fetch(tables.Project, deletion.project.id) is None
        async with make.services.database.read_session() as session:
            events = list((await session.execute(select(col(tables.Event.name)))).scalars())
        assert events.count("project_destroy") == 1
