"""Lists of issues and merge requests in a real browser: filters, counts, pages and keys."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.forgefront.support.browser import CHROMIUM, BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, DemoServer, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
HOSTILE = "<img src=x onerror=alert(1)> & 'quotes\" <script>alert(2)</script>"
HOSTILE_LABEL = "<script>alert(3)</script>"
PROJECTS = (
    DemoProject(
        PATH,
        "The shop.",
        (DemoCommit("Prices are shown with tax", "mei", 18, "compile+"),),
        (DemoMergeRequest("Show delivery dates", "priya", 10, "delivery"),),
        tuple((f"Step {number:02}", "jonas") for number in range(1, 35)),
    ),
    DemoProject("web/empty", ""),
)
ISSUE = """mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { issue { iid } userErrors { message } } }"""
MILESTONE = (
    """mutation ($input: CreateMilestoneInput!) { createMilestone(input: $input) { milestone { databaseId } userErrors { message } } }"""
)
TITLES = "[...document.querySelectorAll('.row-title')].map(each => each.innerText)"
CHIPS = "[...document.querySelectorAll('nav.chips a')].map(each => each.innerText.replace(/\\s+/g, ' '))"


class ListSite:
    """One service and one browser for the whole file."""

    def __init__(self, forge: DemoServer, page: BrowserPage) -> None:
        self.forge = forge
        self.page = page

    async def run(self, text: str, username: str = "ada", **variables: Any) -> Any:
        outcome = await self.forge.app.graph.run_document(text, variables, None, self.forge.tokens[username], request_id="test")
        assert outcome.errors == []
        return outcome.data

    async def visit(self, path: str, username: str = "ada") -> None:
        await self.page.open(f"{self.forge.address}/-/health")
        await self.page.wait_for("location.pathname === '/-/health' && document.body")
        session = json.dumps({"token": self.forge.tokens[username], "until": None})
        await self.page.evaluate(f"sessionStorage.setItem('forgefront.session', {json.dumps(session)})")
        await self.page.open(self.forge.address + path)
        await self.page.wait_for("document.querySelector('main h1') && !document.querySelector('main[aria-busy]')")

    async def choose(self, name: str, value: str) -> None:
        """Types into a filter, as a person who leaves the field by Enter."""
        await self.page.evaluate(f"document.querySelector('.choices [name={name}]').focus()")
        await self.page.evaluate(f"document.querySelector('.choices [name={name}]').select()")
        await self.page.type(value)
        await self.page.press("Enter")

    async def wait_for_titles(self, *titles: str) -> None:
        await self.page.wait_for(f"JSON.stringify({TITLES}) === JSON.stringify({json.dumps(titles)})", f"not {titles}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ListSite]:
    folder = tmp_path_factory.mktemp("lists")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium(folder / "profile") as page:
        # Only a page with the focus has events of the focus.
        await page.send("Emulation.setFocusEmulationEnabled", enabled=True)
        site = ListSite(forge, page)
        milestone = await site.run(MILESTONE, input={"projectPath": PATH, "title": HOSTILE})
        values: dict[str, Any] = {"title": HOSTILE, "labels": [HOSTILE_LABEL, "urgent"], "assigneeId": 2}
        values["milestoneId"] = milestone["createMilestone"]["milestone"]["databaseId"]
        assert (await site.run(ISSUE, input={"projectPath": PATH, "iid": 34, **values}))["updateIssue"]["userErrors"] == []
        await site.run(ISSUE, input={"projectPath": PATH, "iid": 1, "stateEvent": "CLOSE"})
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: ListSite) -> AsyncIterator[ListSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    shared.page.errors.clear()
    shared.page.requests.clear()
    await shared.page.set_viewport(1280, 800)
    yield shared
    assert shared.page.errors == []
    assert {url for url in shared.page.requests if not url.startswith((shared.forge.address, "data:"))} == set()


class TestFilters:
    async def test_stand_in_the_address_and_are_taken_back(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/issues?sort=oldest")
        await page.wait_for("document.querySelectorAll('.row').length === 30")
        assert await page.evaluate(CHIPS) == ["open 33", "closed 1", "all 34"]
        await page.press("/")
        assert await page.evaluate("document.activeElement.name") == "search"
        await page.type("Step 03")
        await page.press("Enter")
        await site.wait_for_titles("Step 03")
        assert await page.evaluate("location.search") == "?search=Step+03&sort=oldest"
        assert await page.evaluate(CHIPS) == ["open 1", "closed 0", "all 1"]
        await page.press("j")
        assert await page.evaluate("document.activeElement.innerText") == "Step 03"
        await page.press("Enter")
        await page.wait_for("location.pathname.endsWith('/issues/3') && document.querySelector('h1').innerText.includes('Step 03')")
        await page.evaluate("history.back()")
        await site.wait_for_titles("Step 03")
        await page.evaluate("history.back()")
        await page.wait_for("document.querySelectorAll('.row').length === 30 && location.search === '?sort=oldest'")
        assert await page.evaluate("document.querySelector('.choices [name=search]').value") == ""

    async def test_are_combined_and_show_hostile_names_as_text(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/issues")
        await page.evaluate("document.querySelector('.choices [name=label]').focus()")
        await page.wait_for("[...document.querySelectorAll('#filter-label-known option')].some(each => each.value === 'urgent')")
        for number, (name, value) in enumerate((("label", "urgent"), ("milestone", HOSTILE), ("assignee", "mei"), ("author", "jonas"))):
            await site.choose(name, value)
            await page.wait_for(f"document.querySelectorAll('.removable').length === {number + 1}")
            await site.wait_for_titles(HOSTILE)
        assert await page.evaluate("document.querySelector('.row .label').innerText") == HOSTILE_LABEL
        assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        await site.visit(await page.evaluate("location.pathname + location.search"))
        await site.wait_for_titles(HOSTILE)
        await site.choose("author", "mei")
        await page.wait_for_text("No issue matches")
        await page.evaluate("[...document.querySelectorAll('.empty a')].find(each => each.innerText === 'Clear the filters').click()")
        await page.wait_for("document.querySelectorAll('.row').length === 30")
        assert await page.evaluate("location.search") == ""

    async def test_pages_have_addresses(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/issues?state=all&sort=oldest")
        await page.wait_for("document.querySelectorAll('.row').length === 30")
        for step, first, count in (("Next", "Step 31", 4), ("Previous", "Step 01", 30)):
            await page.evaluate(f"[...document.querySelectorAll('.turning a')].find(each => each.innerText === '{step}').click()")
            await page.wait_for(f"({TITLES})[0] === '{first}' && ({TITLES}).length === {count}")
        await page.evaluate("history.back()")
        await page.wait_for(f"({TITLES})[0] === 'Step 31'")
        assert await page.evaluate("[...document.querySelectorAll('.turning a')].map(each => each.innerText)") == ["First", "Previous"]

    async def test_an_empty_list_says_why(self, site: ListSite) -> None:
        await site.visit("/web/empty/issues")
        await site.page.wait_for_text("No issues yet")
        await site.visit(f"/{PATH}/merge_requests?state=merged")
        await site.page.wait_for_text("There are 1 open.")
        await site.page.click(".empty a")
        await site.wait_for_titles("Show delivery dates")


class TestGroupAndOwnLists:
    async def test_span_projects(self, site: ListSite) -> None:
        page = site.page
        await site.visit("/groups/web/issues?search=alert(2)")
        await site.wait_for_titles(HOSTILE)
        assert PATH in await page.evaluate("document.querySelector('.row-meta').innerText")
        await page.evaluate("[...document.querySelectorAll('.tabs a')].find(each => each.innerText === 'Merge requests').click()")
        await site.wait_for_titles("Show delivery dates")
        await site.visit("/", "mei")
        await page.press("i")
        await site.wait_for_titles(HOSTILE)
        await page.evaluate("[...document.querySelectorAll('.chips a')].find(each => each.innerText === 'created by you').click()")
        await page.wait_for_text("No issues yet")
        await page.press("m")
        await page.wait_for("location.pathname === '/-/merge_requests'")
        await site.visit("/-/merge_requests?scope=created", "priya")
        await site.wait_for_titles("Show delivery dates")


async def test_lists_fit_a_telephone(site: ListSite) -> None:
    await site.page.set_viewport(360, 640, mobile=True)
    for path in (f"/{PATH}/issues", f"/{PATH}/merge_requests", "/groups/web/issues", "/-/issues"):
        await site.visit(path)
        await site.page.wait_for("document.querySelector('.row, .empty')")
        assert await site.page.evaluate("document.documentElement.scrollWidth") == 360, path
