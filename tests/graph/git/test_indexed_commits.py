"""Commits read from the index equal those that git reads, whatever they contain."""

from typing import Any

import pytest

from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.types.git.commit_loader import GIT_ONLY_FIELDS, INDEXED_FIELDS
from storage import tables
from storage.git.repositories import Repositories
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.git.git_history import git, write_commit

FIELDS = "id oid shortOid title authorName authorEmail authoredAt committerName committerEmail committedAt restPath author { username }"
COLUMNS = "oid title authorName authorEmail authoredAt committerName committerEmail committedAt"
HEADS = "query ($path: String!) {{ project(path: $path) {{ mergeRequests(first: 100) {{ nodes {{ iid headCommit {{ {} }} }} }} }} }}"

LONG_MESSAGE = b"x" * 1_200
AUTHORS = [
    b"A U Thor <author@example.org> 1400000000 +0000",
    b"A U Thor <author@example.org> 1400000000 -0030",
    b"\xc3\x84nne <ANNE@example.org> 1400000001 +0545",
    b"A U Thor <author@example.org> 1400000000 +2359",
    b"Nobody <> 0 +9999",
    b"no address at all",
    b"\xff\xfe <\xff@example.org> 1400000000 x",
    LONG_MESSAGE + b" <" + LONG_MESSAGE + b"@example.org> 1400000000 +0100",
    b"Late <late@example.org> 253402300799 -1200",
    b"Later <later@example.org> 253402300800 +0000",
    b"Last <last@example.org> 99999999999999999999 +0000",
]
MESSAGES = [b"A title\n\nAnd more.\n", b"", b"\n\n", b"t" * 101, b"t" * 100, b"first\r\nsecond", b"with \xff and \x00 in it", LONG_MESSAGE]


def raw_commit(tree: str, author: bytes, message: bytes) -> bytes:
    return b"tree " + tree.encode() + b"\nauthor " + author + b"\ncommitter " + author + b"\n\n" + message


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("anne", email="anne@example.org")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    """Each of these commits is the head of a branch and of a merge request."""
    project = await make.project(owner=owner, history={"commits": 4})
    path = make.services.repositories.path_of(project.id)
    tree = git(path, "rev-parse", "master^{tree}")
    oids = [write_commit(path, raw_commit(tree, author, MESSAGES[0])) for author in AUTHORS]
    oids += [write_commit(path, raw_commit(tree, AUTHORS[0], message)) for message in MESSAGES]
    git(path, "update-ref", "--stdin", stdin=b"".join(b"create refs/heads/odd%d %s\n" % (n, oid.encode()) for n, oid in enumerate(oids)))
    await make.indexed(project)
    # One that the index does not have, and one that nobody has.
    oids += [write_commit(path, raw_commit(tree, AUTHORS[0], b"Left out")), "f" * 40]
    for number, oid in enumerate(oids):
        await make.merge_request(project, author=owner, source_branch=f"odd{number}", head_oid=oid)
    return project


async def branch_heads(ask: Ask, viewer: tables.User, project: tables.Project, fields: str) -> list[dict[str, Any] | None]:
    data = await ask.data(HEADS.format(fields), viewer, path=str(project.id))
    return [node["headCommit"] for node in data["project"]["mergeRequests"]["nodes"]]


@pytest.mark.parametrize("fields", [FIELDS, COLUMNS], ids=["all", "columns"])
async def test_fields_match_git(ask: Ask, owner: tables.User, project: tables.Project, fields: str) -> None:
    reported = await branch_heads(ask, owner, project, fields)
    whole = await branch_heads(ask, owner, project, f"{fields} message")

    assert reported == [commit and {key: value for key, value in commit.items() if key != "message"} for commit in whole]
    assert [commit["title"] if commit else None for commit in reported[:2]] == [None, "Left out"]
    assert fields == COLUMNS or {"username": "anne"} in [commit["author"] for commit in reported if commit]


@requires_planner
async def test_next_to_rows_that_refer_to_them(
    ask: Ask, make: DataFactory, owner: tables.User, project: tables.Project, statements: StatementRecorder
) -> None:
    indexed = await make.project(owner=owner)
    for oid in await make.linear_commits(indexed, 2, oids=[f"{number:040x}" for number in (1, 2)]):
        await make.merge_request(indexed, author=owner, head_oid=oid)
    fields = "oid committedAt builds(first: 5) { nodes { name } }"
    await branch_heads(ask, owner, indexed, fields)

    with statements.record() as seen:
        assert [commit and commit["oid"] for commit in await branch_heads(ask, owner, indexed, fields)] == [f"{2:040x}", f"{1:040x}"]
    assert sum(text.count("commits__1 ON") for text in seen) == 1
    assert not [text for text in seen if "FROM commits" in text]

    with statements.record() as seen:
        assert len([commit for commit in await branch_heads(ask, owner, project, fields) if commit]) == len(AUTHORS) + len(MESSAGES) + 1
    assert len([text for text in seen if "FROM commits" in text]) == 1


async def test_in_one_statement_and_without_git(
    ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await make.group(owner=owner)
    for _ in range(2):
        project = await make.project(group=group)
        (oid,) = await make.linear_commits(project, 1, oids=[f"{7:040x}"])
        await make.merge_request(project, author=owner, head_oid=oid)

    async def refuse(*_: Any) -> Any:
        raise AssertionError("a repository was read")

    monkeypatch.setattr(Repositories, "read", refuse)
    query = """query ($group: String!) { group(path: $group) { mergeRequests { nodes { headCommit { ...fields } } } } }
        fragment fields on Commit { title ... on Commit { oid __typename } }"""
    with statements.record() as seen:
        data = await ask.data(query, owner, group=group.path)

    reported = {"title": "Commit 0007", "oid": f"{7:040x}", "__typename": "Commit"}
    assert data["group"]["mergeRequests"]["nodes"] == [{"headCommit": reported}] * 2
    assert len([text for text in seen if "FROM commits" in text]) == 1


def test_every_field_is_known_to_need_git_or_not() -> None:
    assert set(SCHEMA.type_map["Commit"].fields) == (set(INDEXED_FIELDS) | GIT_ONLY_FIELDS) - {"__typename"}  # type: ignore[attr-defined]
