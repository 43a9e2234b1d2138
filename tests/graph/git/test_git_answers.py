"""Answers that a commit determines come from a cache, for viewers who may still read the code and refs that have not moved."""

from pathlib import Path

import pytest
from graphql import GraphQLObjectType

from graph.fields.metadata import facts_of
from graph.operations.git_answer_cache import GitAnswer, GitAnswerCache
from graph.rules.git import ref_adoption
from graph.schema import graphql_schema
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_files, commit_to_branch, git
from tests.support.measuring.measured_memory import measure_memory

TREE = """query ($path: String!, $ref: String, $folder: String = "folder") { project(path: $path) {
  tree(ref: $ref, path: $folder) { totalCount pageInfo { endCursor } edges { cursor } nodes { name path kind mode oid size } } } }"""
BLOB = """query ($path: String!, $ref: String, $file: String = "folder/file") { project(path: $path) {
  blob(ref: $ref, path: $file) { name text size base64 commitOid lastCommitOid } } }"""
RUNS = 3
"""A string is planned at its second run, and the answer of a plan is cached."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "master", str(path))
    files = {"folder/file": b"first\n", "folder/other": b"other\n", "README.md": b"# Title\n"}
    git(path, "update-ref", "refs/heads/master", commit_files(path, files))
    return path


@pytest.fixture
def ask(planned_ask: Ask) -> Ask:
    return planned_ask


@pytest.mark.parametrize(("query", "field"), [(TREE, "tree"), (BLOB, "blob")])
class TestAnswers:
    async def test_are_made_once(
        self,
        ask: Ask,
        viewer: tables.User,
        project: tables.Project,
        reads: list[int],
        statements: StatementRecorder,
        query: str,
        field: str,
    ) -> None:
        path = str(project.id)
        answers = [await ask.data(query, viewer, path=path) for _ in range(RUNS)]
        reads.clear()
        # The project with the viewer's levels, and the caller.
        with statements.assert_at_most(2):
            answers.append(await ask.data(query, viewer, path=path))
        assert (answers.count(answers[0]), reads) == (RUNS + 1, [])
        assert len(ask.graph.services.git_answers) == 1
        # Another name of the same commit has an answer of its own.
        for _ in range(2):
            assert (await ask.data(query, viewer, path=path, ref="master"))["project"][field].items() >= answers[0]["project"][
                field
            ].items()
        assert len(ask.graph.services.git_answers) == 2

    async def test_follow_the_refs(
        self, ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project, query: str, field: str
    ) -> None:
        path = str(project.id)
        for ref in (None, "master"):
            old = [await ask.data(query, viewer, path=path, ref=ref) for _ in range(RUNS)][-1]
            commit_to_branch(make.services.repositories.path_of(project.id), "master", {"folder/file": f"of {ref}\n".encode()})
            assert await ref_adoption.adopt_changes(make.services, project.id)
            new = await ask.data(query, viewer, path=path, ref=ref)
            assert new != old
            assert new == await ask.data(query, viewer, path=path, ref=ref)
        async with make.services.database.write_session() as session:
            row = await session.get(tables.Project, project.id)
            row.default_branch = "gone"
            await session.commit()
        assert await ask.codes(query, viewer, path=path) == ["NOT_FOUND"]

    async def test_are_for_those_who_may_read_the_code(
        self, ask: Ask, make: DataFactory, viewer: tables.User, project: tables.Project, query: str, field: str
    ) -> None:
        path, guest, stranger, admin = str(project.id), await make.user(), await make.user(), await make.admin()
        await make.member(project, guest, AccessLevel.GUEST)
        found = [await ask.data(query, viewer, path=path) for _ in range(RUNS)][-1]
        assert await ask.data(query, admin, path=path) == found
        for _ in range(RUNS):
            assert await ask.codes(query, guest, path=path) == ["FORBIDDEN"]
            assert (await ask(query, stranger, path=path)).data == {"project": None}
        async with make.services.database.write_session() as session:
            row = await session.get(tables.Project, project.id)
            row.visibility_level = Visibility.INTERNAL
            await session.commit()
        assert await ask.data(query, stranger, path=path) == await ask.data(query, stranger, path=path) == found
        async with make.services.database.write_session() as session:
            row = await session.get(tables.Project, project.id)
            row.visibility_level = Visibility.PRIVATE
            await session.commit()
        assert (await ask(query, stranger, path=path)).data == {"project": None}
        assert await ask.data(query, viewer, path=path) == found
        await ask.data("mutation ($path: String!) { deleteProject(input: {projectPath: $path}) { userErrors { code } } }", admin, path=path)
        assert (await ask(query, viewer, path=path)).data == {"project": None}

    async def test_that_refs_do_not_determine_are_made_again(
        self,
        ask: Ask,
        make: DataFactory,
        viewer: tables.User,
        project: tables.Project,
        monkeypatch: pytest.MonkeyPatch,
        query: str,
        field: str,
    ) -> None:
        path, answers = str(project.id), ask.graph.services.git_answers
        short = git(make.services.repositories.path_of(project.id), "rev-parse", "--short=8", "master")
        for _ in range(RUNS):
            await ask.data(query, viewer, path=path, ref=short)
            assert await ask.codes(query, viewer, path=path, folder="none", file="none") == ["NOT_FOUND"]
        assert len(answers) == 0
        for beside in ("name", "openIssuesCount", 'commit(rev: "master") { oid }'):
            for _ in range(RUNS):
                await ask.data(query.replace("{ project(path: $path) {", "{ project(path: $path) { " + beside), viewer, path=path)
        assert len(answers) == 0
        monkeypatch.setattr(answers, "_max_entry_bytes", 1_000)
        for _ in range(RUNS):
            await ask.data(query, viewer, path=path)
        assert len(answers) == 0


async def test_what_depends_on_the_database_is_not_cached(ask: Ask, viewer: tables.User, project: tables.Project) -> None:
    for selected in (
        'blob(path: "README.md") { html }',
        'blob(path: "README.md") { lastCommit { oid } }',
        "tree { nodes { lastCommit { oid } } }",
    ):
        query = f"query ($path: String!) {{ project(path: $path) {{ {selected} }} }}"
        for _ in range(RUNS):
            await ask.data(query, viewer, path=str(project.id))
    assert len(ask.graph.services.git_answers) == 0


async def test_text_is_counted_each_time(ask: Ask, viewer: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(RUNS):
        await ask.data(BLOB, viewer, path=str(project.id))
    assert len(ask.graph.services.git_answers) == 1
    monkeypatch.setattr("graph.operations.execution.MAX_ANSWER_BYTES", 4)
    assert await ask.codes(BLOB, viewer, path=str(project.id)) == ["LIMIT_EXCEEDED"]


def test_facts_name_arguments_of_fields_of_projects() -> None:
    found = {}
    for kind in graphql_schema.type_map.values():
        if isinstance(kind, GraphQLObjectType):
            found |= {(kind.name, name): (facts_of(field), field) for name, field in kind.fields.items()}
    named = {key: (facts.revision_argument, field) for key, (facts, field) in found.items() if facts.revision_argument is not None}
    assert set(named) == {("Project", "tree"), ("Project", "blob")}
    assert all(argument in field.args for argument, field in named.values())
    assert {key for key, (facts, field) in found.items() if facts.is_pure} == {("Blob", "base64"), ("Blob", "lastCommitOid")}


def test_the_estimate_is_within_a_factor_of_two() -> None:
    cache = GitAnswerCache()
    with measure_memory() as measured:
        for number in range(100):
            nodes = [{"name": f"file {number} {each}", "path": f"folder/{number}/{each}", "size": 1000 + each} for each in range(20)]
            cache.put((object(), number, *range(15)), GitAnswer({"pageInfo": {"hasNextPage": False}, "nodes": nodes}, 0, 0))
    assert len(cache) == 100
    assert measured.bytes / 2 < cache.bytes < measured.bytes * 2
