"""A merge request, a build, a commit, GraphiQL and the reference in a real browser, over the whole service."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.forgefront.browser import CHROMIUM, Page, chromium
from tests.forgefront.showing import Proposal, Push, Showing, Shown, showing

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
PROJECTS = (
    Shown(
        PATH,
        "The shop.",
        (Push("Prices are shown with tax", "mei", 18, "compile+ browser* unit-"),),
        (Proposal("Show delivery dates", "priya", 10, "delivery", "compile+"), Proposal("A wish list", "jonas", 9, "wishes", "unit-")),
    ),
)
BUILDS = """query ($path: String!) {
  project(path: $path) { builds(filter: {ref: ["main"]}) { nodes { databaseId name sha trace { totalBytes } } } }
}"""
CLOSE = """mutation ($path: String!) {
  updateMergeRequest(input: {projectPath: $path, iid: 2, stateEvent: CLOSE}) { userErrors { message } }
}"""


class World:
    """One service and one browser for the whole file."""

    def __init__(self, forge: Showing, page: Page) -> None:
        self.forge = forge
        self.page = page

    async def ask(self, text: str, **variables: Any) -> Any:
        outcome = await self.forge.app.graph.run_text(text, variables, None, self.forge.tokens["ada"], request_id="test")
        assert outcome.errors == []
        return outcome.data

    async def builds(self) -> dict[str, Any]:
        """Those of the commit that was pushed to the main branch, by name."""
        return {build["name"]: build for build in (await self.ask(BUILDS, path=PATH))["project"]["builds"]["nodes"]}

    async def merge_request_id(self) -> int:
        found = await self.ask("query ($path: String!) { project(path: $path) { mergeRequest(iid: 1) { databaseId } } }", path=PATH)
        return int(found["project"]["mergeRequest"]["databaseId"])

    async def visit(self, path: str, username: str = "ada") -> None:
        await self.page.open(f"{self.forge.address}/-/health")
        await self.page.until("location.pathname === '/-/health' && document.body")
        session = json.dumps({"token": self.forge.tokens[username], "until": None})
        await self.page.evaluate(f"sessionStorage.setItem('forgefront.session', {json.dumps(session)})")
        await self.page.open(self.forge.address + path)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("work")
    async with showing(folder / "data", PROJECTS) as forge, chromium(folder / "profile") as page:
        yield World(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared: World) -> AsyncIterator[World]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    shared.page.complaints.clear()
    shared.page.requests.clear()
    await shared.page.size(1280, 800)
    yield shared
    assert shared.page.complaints == []
    assert {url for url in shared.page.requests if not url.startswith((shared.forge.address, "data:"))} == set()


class TestMergeRequest:
    async def test_is_talked_about_and_merged(self, world: World) -> None:
        page = world.page
        await world.visit(f"/{PATH}/merge_requests/1")
        await page.sees("It can be merged.")
        await page.until("[...document.querySelectorAll('.line.added .text')].some(line => line.innerText === '+Show delivery dates')")
        await page.until("document.querySelector('#comment')")
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Good <b>work</b>")
        await page.click(".stack .primary")
        await page.sees("Good <b>work</b>")
        await page.click(".verdict .primary")
        await page.until("document.querySelector('.verdict .badge')?.innerText === 'merged'")

    async def test_says_what_stands_in_the_way_and_changes_while_it_is_read(self, world: World) -> None:
        page = world.page
        await world.visit(f"/{PATH}/merge_requests/2", "tomas")
        await page.sees("Builds of its newest commit failed.")
        await page.until("document.querySelector('#live[data-state=live]')")
        await world.ask(CLOSE, path=PATH)
        await page.until("document.querySelector('.verdict .badge')?.innerText === 'closed'")
        assert await page.evaluate("document.getElementById('said').textContent") == "The merge request is closed."


class TestBuild:
    async def test_shows_what_it_prints_as_it_comes(self, world: World) -> None:
        page = world.page
        build = (await world.builds())["browser"]
        await world.visit(f"/{PATH}/builds/{build['databaseId']}")
        await page.sees("17 of 40 done")
        await page.until("document.querySelector('#live[data-state=live]')")
        text = "".join(f"\x1b[32mline {number}\x1b[0m\n" for number in range(300))
        await world.forge.do(
            "ada", "AppendBuildTrace", projectPath=PATH, databaseId=build["databaseId"], text=text, offset=build["trace"]["totalBytes"]
        )
        await page.until(
            "document.querySelector('.output .ink-green:last-of-type') && document.querySelector('.output').innerText.includes('line 299')"
        )
        assert await page.evaluate(
            "(b => b.scrollTop > 0 && b.scrollHeight - b.scrollTop - b.clientHeight < 2)(document.querySelector('.output'))"
        )
        await world.forge.finish(PATH, build["databaseId"], "SUCCESS")
        await page.until("document.querySelector('.facts .badge').innerText === 'passed'")

    async def test_runs_again_and_keeps_the_attempt_before(self, world: World) -> None:
        page = world.page
        build = (await world.builds())["unit"]
        await world.visit(f"/{PATH}/builds/{build['databaseId']}")
        await page.sees("1 failed, 127 passed")
        await page.click(".head-line button")
        await page.until("document.querySelector('.facts .badge').innerText === 'waiting'")
        await page.click(".attempts summary")
        await page.until("document.querySelector('.attempts .output').innerText.includes('1 failed, 127 passed')")


class TestCommit:
    async def test_joins_builds_and_lines_and_is_commented(self, world: World) -> None:
        page = world.page
        oid = (await world.builds())["compile"]["sha"]
        await world.visit(f"/{PATH}/commit/{oid[:10]}")
        await page.sees(oid)
        await page.until("document.querySelector('.line')")
        await page.until("document.querySelector('#comment')")
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Seen.")
        await page.click(".stack .primary")
        await page.until("document.querySelector('.note')?.innerText.includes('Seen.')")


async def test_all_of_them_fit_a_telephone(world: World) -> None:
    await world.page.size(360, 640, mobile=True)
    build = (await world.builds())["browser"]
    # A word that is longer than the screen is wide, as whole ids of commits are.
    said = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { code } } }"
    given = {"projectPath": PATH, "mergeRequestDatabaseId": await world.merge_request_id(), "body": f"See {'5a74c29c' * 8}."}
    assert (await world.ask(said, input=given))["createNote"]["userErrors"] == []
    for path, last in (
        ("merge_requests/1", ".note .prose"),
        (f"builds/{build['databaseId']}", ".output-line"),
        (f"commit/{build['sha']}", ".line"),
    ):
        await world.visit(f"/{PATH}/{path}")
        await world.page.until(f"document.querySelector({last!r})")
        assert await world.page.evaluate("document.documentElement.scrollWidth") == 360, path


async def test_graphiql_runs_an_example_without_the_internet(world: World) -> None:
    page = world.page
    await world.visit("/-/graphiql")
    await page.until("document.querySelectorAll('.examples li').length === 13")
    await page.until("document.querySelector('.monaco-editor .view-lines')?.innerText")
    await page.evaluate("[...document.querySelectorAll('.examples button')].find(each => each.innerText === 'Commit page').click()")
    await page.until(
        "document.querySelector('.graphiql-tab.graphiql-tab-active, [aria-selected=true]')?.innerText.includes('D10_CommitPage')"
    )
    await page.click(".graphiql-execute-button")
    await page.until("document.querySelector('.result-window').innerText.includes('authoredAt')")
    # What introspection told.
    await page.click("[aria-label='Show Documentation Explorer']")
    await page.until("document.querySelector('.graphiql-doc-explorer')?.innerText.includes('Subscription')")


async def test_reference_is_filtered(world: World) -> None:
    page = world.page
    await world.visit("/-/reference")
    await page.until("document.querySelector('#filter:not([hidden])')")
    await page.press("/")
    await page.type("closeissue")
    await page.press("Enter")
    await page.until("location.hash === '#Mutation.closeIssue'")
    shown = await page.evaluate(
        "[...document.querySelectorAll('nav li')].filter(each => each.checkVisibility()).map(each => each.innerText)"
    )
    assert shown == ["closeIssue", "CloseIssuePayload"]


async def test_a_snippet_opens_at_its_web_url_and_is_commented(world: World) -> None:
    write = """mutation ($path: String!) { createSnippet(input: {projectPath: $path, title: "Taxes", fileName: "taxes.py",
      content: "rate = <b>24</b>", visibility: INTERNAL}) { snippet { webUrl } userErrors { message } } }"""
    url = (await world.ask(write, path=PATH))["createSnippet"]["snippet"]["webUrl"]

    await world.visit(urlsplit(url).path)
    await world.page.until("document.querySelector('h1')?.innerText === 'Taxes'")
    assert await world.page.evaluate("document.querySelector('pre').innerText") == "rate = <b>24</b>"
    await world.page.evaluate("document.querySelector('textarea').value = 'As of May.'")
    await world.page.evaluate("document.querySelector('form button.primary').click()")
    await world.page.until("document.querySelector('.notes')?.innerText.includes('As of May.')")
