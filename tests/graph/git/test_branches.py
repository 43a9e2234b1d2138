"""Branches through the graph: create, delete, protect; effects and refusals."""

import asyncio
from typing import Any

import pytest

from graph.rules.branches import branches
from graph.rules.branches.branches import BranchRef
from graph.rules.git import ref_updates
from storage import tables
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

CREATE = (
    "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { branch { name target { oid } } userErrors { field code } } }"
)
DELETE = (
    "mutation ($input: DeleteBranchInput!) { deleteBranch(input: $input) { branch { name target { oid } } userErrors { field code } } }"
)
PROTECT = """mutation ($input: ProtectBranchInput!) {
    protectBranch(input: $input) { branch { name protected developersCanPush } userErrors { field code } } }"""
UNPROTECT = """mutation ($input: UnprotectBranchInput!) {
    unprotectBranch(input: $input) { branch { name protected developersCanPush } userErrors { field code } } }"""
BRANCHES = """query ($path: String!) { project(path: $path) { defaultBranch viewerCan { pushCode }
    branches { nodes { name protected developersCanPush viewerCan { push forcePush delete protect } } } } }"""


@pytest.fixture
async def people(make: DataFactory) -> dict[str, tables.User]:
    return {"reporter": await make.user(), "developer": await make.user(), "master": await make.user()}


@pytest.fixture
async def project(make: DataFactory, people: dict[str, tables.User]) -> tables.Project:
    members = zip(people.values(), (AccessLevel.REPORTER, AccessLevel.DEVELOPER, AccessLevel.MASTER), strict=True)
    return await make.project(history={"commits": 4}, members=members)


async def tips(make: DataFactory, project: tables.Project) -> dict[str, str]:
    return {ref.name: ref.oid for ref in await make.services.repositories.read(project.id, lambda repository: repository.branches())}


def of(project: tables.Project, name: str, **more: Any) -> dict[str, Any]:
    return {"projectPath": str(project.id), "name": name, **more}


class TestCreateBranch:
    @pytest.mark.parametrize("start", ["master", "v1", "{oid}", "{short}"])
    async def test_starts_at_the_given_ref(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User], start: str
    ) -> None:
        oid = await make.services.repositories.read(project.id, lambda repository: repository.resolve("v1" if start == "v1" else "master"))
        assert oid is not None
        ref = start.format(oid=oid, short=oid[:9])
        data = await ask.data(CREATE, people["developer"], input=of(project, "new/one", ref=ref))
        assert data["createBranch"] == {"branch": {"name": "new/one", "target": {"oid": oid}}, "userErrors": []}
        assert (await tips(make, project))["new/one"] == oid
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.last_activity_at > project.last_activity_at

    @pytest.mark.parametrize(
        ("name", "ref", "code"),
        [
            ("master", "topic", "TAKEN"),
            ("master/x", "topic", "CONFLICT"),
            ("x", "nope", "INVALID"),
            ("x", "@{-1}", "INVALID"),
            ("x", "--all", "INVALID"),
            ("--output=x", "master", "INVALID"),
            ("../x", "master", "INVALID"),
            ("a b", "master", "INVALID"),
            ("HEAD", "master", "INVALID"),
            ("a" * 40, "master", "INVALID"),
            ("x" * 256, "master", "INVALID"),
            ("", "master", "REQUIRED"),
        ],
    )
    async def test_rejects_invalid_input(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User], name: str, ref: str, code: str
    ) -> None:
        before = await tips(make, project)
        assert await ask.codes(CREATE, people["developer"], input=of(project, name, ref=ref)) == [code]
        assert await tips(make, project) == before

    async def test_a_protected_name_requires_a_master(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await make.save(tables.ProtectedBranch(project_id=project.id, name="release"))
        assert await ask.codes(CREATE, people["developer"], input=of(project, "release", ref="master")) == ["FORBIDDEN"]
        await ask.data(CREATE, people["master"], input=of(project, "release", ref="master"))

    async def test_an_archived_project_takes_none(self, ask: Ask, make: DataFactory, people: dict[str, tables.User]) -> None:
        project = await make.project(history={"commits": 4}, archived=True, members=[(people["master"], AccessLevel.OWNER)])
        for viewer in (people["master"], await make.admin()):
            assert await ask.codes(CREATE, viewer, input=of(project, "x", ref="master")) == ["FORBIDDEN"]

    async def test_a_failed_commit_deletes_the_branch(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*arguments: object) -> None:
            raise GitCommandError("on purpose")

        monkeypatch.setattr(ref_updates, "apply_updates", fail)
        before = await tips(make, project)
        assert await ask.codes(CREATE, people["developer"], input=of(project, "x", ref="master")) == ["INTERNAL"]
        assert await ask.codes(DELETE, people["developer"], input=of(project, "topic")) == ["INTERNAL"]
        assert await tips(make, project) == before


class TestDeleteBranch:
    async def test_returns_the_deleted_branch(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        oid = (await tips(make, project))["topic"]
        data = await ask.data(DELETE, people["developer"], input=of(project, "topic"))
        assert data["deleteBranch"] == {"branch": {"name": "topic", "target": {"oid": oid}}, "userErrors": []}
        assert (await tips(make, project)).keys() == {"master"}
        assert await ask.codes(DELETE, people["developer"], input=of(project, "topic")) == ["NOT_FOUND"]

    async def test_a_protected_branch_is_for_masters(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await ask.data(PROTECT, people["master"], input=of(project, "master", developersCanPush=True))
        assert await ask.codes(DELETE, people["developer"], input=of(project, "master")) == ["FORBIDDEN"]
        await ask.data(DELETE, people["master"], input=of(project, "master"))
        assert await make.count(tables.ProtectedBranch) == 0
        row = await make.fetch(tables.Project, project.id)
        assert row is not None and row.default_branch == "topic"


class TestProtectBranch:
    async def test_protection_is_created_changed_and_removed(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        for query, more, expected in [
            (PROTECT, {}, (True, False)),
            (PROTECT, {"developersCanPush": True}, (True, True)),
            (PROTECT, {"developersCanPush": None}, (True, False)),
            (UNPROTECT, {}, (False, True)),
            (UNPROTECT, {}, (False, True)),
        ]:
            data = await ask.data(query, people["master"], input=of(project, "master", **more))
            ((payload, *_),) = [list(data.values())]
            assert payload["userErrors"] == []
            assert (payload["branch"]["protected"], payload["branch"]["developersCanPush"]) == expected
        assert await make.count(tables.ProtectedBranch) == 0

    async def test_concurrent_protections_succeed(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        outcomes = await asyncio.gather(*(ask.data(PROTECT, people["master"], input=of(project, "topic")) for _ in range(8)))
        assert [outcome["protectBranch"]["userErrors"] for outcome in outcomes] == [[]] * 8
        assert await make.count(tables.ProtectedBranch) == 1

    async def test_a_branch_that_is_deleted_meanwhile_leaves_no_protection(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        get_branch = branches.get_branch

        async def interrupted(*arguments: Any) -> BranchRef:
            monkeypatch.setattr(branches, "get_branch", get_branch)
            found = await get_branch(*arguments)
            await ask.data(DELETE, people["developer"], input=of(project, "topic"))
            return found

        monkeypatch.setattr(branches, "get_branch", interrupted)
        assert await ask.codes(PROTECT, people["master"], input=of(project, "topic")) == ["NOT_FOUND"]
        assert await make.count(tables.ProtectedBranch) == 0

    @pytest.mark.parametrize("operation", [CREATE, DELETE], ids=["create", "delete"])
    async def test_a_branch_that_is_protected_meanwhile_is_not_moved(
        self,
        ask: Ask,
        make: DataFactory,
        project: tables.Project,
        people: dict[str, tables.User],
        monkeypatch: pytest.MonkeyPatch,
        operation: str,
    ) -> None:
        name = "new" if operation == CREATE else "topic"
        prepare_updates = ref_updates.prepare_updates

        async def interrupted(*arguments: Any, **settings: Any) -> ref_updates.PreparedUpdates:
            await make.save(tables.ProtectedBranch(project_id=project.id, name=name))
            return await prepare_updates(*arguments, **settings)

        before = await tips(make, project)
        monkeypatch.setattr(ref_updates, "prepare_updates", interrupted)
        more = {"ref": "master"} if operation == CREATE else {}
        assert await ask.codes(operation, people["developer"], input=of(project, name, **more)) == ["FORBIDDEN"]
        assert await tips(make, project) == before
        assert await make.count(tables.ProtectedBranch) == 1

    async def test_rejects_a_missing_branch(self, ask: Ask, project: tables.Project, people: dict[str, tables.User]) -> None:
        for query in (PROTECT, UNPROTECT):
            for name in ("nope", "", "v1", "refs/heads/master", "HEAD"):
                assert await ask.codes(query, people["master"], input=of(project, name)) == ["NOT_FOUND"]

    async def test_permissions_by_access_level_of_branches(self, ask: Ask, project: tables.Project, people: dict[str, tables.User]) -> None:
        await ask.data(PROTECT, people["master"], input=of(project, "master", developersCanPush=True))
        nothing = {"push": False, "forcePush": False, "delete": False, "protect": False}
        everything = dict.fromkeys(nothing, True)
        for role, master, topic in [
            ("reporter", nothing, nothing),
            ("developer", {**nothing, "push": True}, {**everything, "protect": False}),
            ("master", everything, everything),
        ]:
            found = (await ask.data(BRANCHES, people[role], path=str(project.id)))["project"]
            assert found["viewerCan"] == {"pushCode": role != "reporter"}
            assert [(each["name"], each["viewerCan"]) for each in found["branches"]["nodes"]] == [("master", master), ("topic", topic)]

    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, project: tables.Project, people: dict[str, tables.User], statements: StatementRecorder
    ) -> None:
        with statements.record() as few:
            await ask.data(BRANCHES, people["developer"], path=str(project.id))
        oid = (await tips(make, project))["master"]

        def more(repository: Any) -> None:
            for number in range(30):
                repository.move_ref(f"refs/heads/b{number}", oid, None)

        await make.services.repositories.read(project.id, more)
        await make.save(*(tables.ProtectedBranch(project_id=project.id, name=f"b{number}") for number in range(30)))
        with statements.record() as many:
            await ask.data(BRANCHES, people["developer"], path=str(project.id))
        assert len(many) == len(few)


async def test_an_imported_project_is_protected_as_by_its_first_push(ask: Ask, make: DataFactory) -> None:
    admin, source = await make.admin(), make.repository_with_history({"commits": 4})
    create = """mutation ($input: CreateProjectInput!) { createProject(input: $input) {
        project { branches { nodes { name protected developersCanPush } } } } }"""
    data = await ask.data(create, admin, input={"name": "Copy", "repositoryPath": str(source)})
    assert data["createProject"]["project"]["branches"]["nodes"] == [
        {"name": "master", "protected": True, "developersCanPush": True},
        {"name": "topic", "protected": False, "developersCanPush": True},
    ]
    data = await ask.data(create, admin, input={"name": "Empty"})
    assert data["createProject"]["project"]["branches"]["nodes"] == []
    assert await make.count(tables.ProtectedBranch) == 1


async def test_a_public_project_takes_no_branch_from_others(ask: Ask, make: DataFactory) -> None:
    project = await make.project(history={"commits": 4}, visibility=Visibility.PUBLIC)
    assert await ask.codes(CREATE, await make.user(), input=of(project, "x", ref="master")) == ["FORBIDDEN"]


class TestDefaultBranch:
    ONE = "query ($path: String!, $name: String) { project(path: $path) { branch(name: $name) { name } } }"

    async def test_is_null_before_the_first_push_and_another_is_not_found(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)

        assert await ask.data(self.ONE, owner, path=str(project.id)) == {"project": {"branch": None}}
        assert await ask.codes(self.ONE, owner, path=str(project.id), name="master") == ["NOT_FOUND"]
