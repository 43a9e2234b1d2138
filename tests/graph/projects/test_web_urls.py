"""`webUrl`: each is the address of a page that shows the object."""

from urllib.parse import urlsplit

import pytest

from forgefront.pages import is_page
from storage import tables
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner

LISTS = """query ($p: String!) { project(path: $p) {
  webUrl
  issues { nodes { iid webUrl } }
  mergeRequests { nodes { iid webUrl } }
  builds(filter: {latestAttemptOnly: false}) { nodes { databaseId webUrl commit { oid webUrl } } }
  milestones { nodes { iid webUrl } }
  snippets { nodes { databaseId webUrl } }
  commits(first: 2) { nodes { oid webUrl } } } }"""


@pytest.fixture
async def ada(make: DataFactory) -> tables.User:
    return await make.user("ada")


@pytest.fixture
async def project(make: DataFactory, ada: tables.User) -> tables.Project:
    project = await make.project(owner=ada, path="mill", history={"commits": 2}, builds_enabled=True)
    await create_rows(make, project)
    return project


async def create_rows(make: DataFactory, project: tables.Project) -> None:
    await make.issue(project)
    await make.merge_request(project)
    await make.milestone(project)
    await make.snippet(project)
    oid = await make.services.repositories.read(project.id, lambda repository: repository.resolve("master"))
    await make.build(project, str(oid))


async def test_leads_to_the_page_of_each_thing(ask: Ask, ada: tables.User, project: tables.Project) -> None:
    shown = (await ask.data(LISTS, ada, p="ada/mill"))["project"]

    base = f"{EXTERNAL_URL}/ada/mill"
    found = []
    for name, section, key in (
        ("issues", "issues", "iid"),
        ("mergeRequests", "merge_requests", "iid"),
        ("builds", "builds", "databaseId"),
        ("milestones", "milestones", "iid"),
        ("snippets", "snippets", "databaseId"),
        ("commits", "commit", "oid"),
    ):
        for node in shown[name]["nodes"]:
            assert node["webUrl"] == f"{base}/{section}/{node[key]}"
            found.append(node["webUrl"])
    commit = shown["builds"]["nodes"][0]["commit"]
    assert commit["webUrl"] == f"{base}/commit/{commit['oid']}"
    assert len(found) == 7
    assert [url for url in found if not is_page(urlsplit(url).path)] == []


async def test_of_a_superseded_attempt_is_that_of_the_build(ask: Ask, make: DataFactory, ada: tables.User, project: tables.Project) -> None:
    build = await make.build(project, "f" * 40, attempt=2)
    earlier = await make.build(project, "f" * 40, current_id=build.id)
    query = """query ($p: String!) { project(path: $p) { builds(filter: {latestAttemptOnly: false}) { nodes { databaseId webUrl } } } }"""

    nodes = (await ask.data(query, ada, p="ada/mill"))["project"]["builds"]["nodes"]

    urls = {node["databaseId"]: node["webUrl"] for node in nodes}
    assert urls[earlier.id] == urls[build.id] == f"{EXTERNAL_URL}/ada/mill/builds/{build.id}"


async def test_follows_a_project_that_is_renamed(ask: Ask, ada: tables.User, project: tables.Project) -> None:
    rename = 'mutation ($p: String!) { updateProject(input: {projectPath: $p, path: "works"}) { userErrors { message } } }'
    await ask.data(rename, ada, p=str(project.id))

    shown = (await ask.data(LISTS, ada, p=str(project.id)))["project"]

    assert shown["issues"]["nodes"][0]["webUrl"] == f"{EXTERNAL_URL}/ada/works/issues/1"


@requires_planner
async def test_costs_as_many_statements_for_many_as_for_one(
    ask: Ask, make: DataFactory, ada: tables.User, project: tables.Project, statements: StatementRecorder
) -> None:
    for _ in range(2):
        await ask.data(LISTS, ada, p="ada/mill")
    with statements.record() as few:
        await ask.data(LISTS, ada, p="ada/mill")
    for _ in range(4):
        await create_rows(make, project)

    with statements.assert_at_most(len(few)):
        await ask.data(LISTS, ada, p="ada/mill")
