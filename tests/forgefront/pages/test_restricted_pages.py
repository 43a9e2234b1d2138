"""Pages in a real browser of which the viewer may see only a part: features that are disabled, and the guest of a private project."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.forgefront.pages.test_list_pages import ListSite
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
TITLE = "Prices are shown with tax"
PROJECTS = (
    DemoProject(PATH, "The shop.", (DemoCommit(TITLE, "mei", 18, "compile+ unit+"),), (DemoMergeRequest("Dates", "priya", 10, "dates"),)),
    DemoProject("web/website", "", (DemoCommit("Begin", "mei", 20, "compile+ unit+"),)),
)
SECTIONS = {
    "buildsEnabled": "Newest builds",
    "mergeRequestsEnabled": "Open merge requests",
    "issuesEnabled": "Open issues",
    "snippetsEnabled": None,
}
"""Each feature, and its section of the overview."""
UPDATE = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { message } } }"
HEADINGS = "[...document.querySelectorAll('main h1, main h2')].map((each) => each.innerText)"
TILES = "[...document.querySelectorAll('.tile h2')].map((each) => each.innerText).sort()"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ListSite]:
    folder = tmp_path_factory.mktemp("restricted")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
        await page.set_viewport(1280, 800)
        yield ListSite(forge, page)


async def headings(site: ListSite, path: str, username: str) -> list[str]:
    await site.visit(path, username)
    found: list[str] = await site.page.evaluate(HEADINGS)
    return found


async def tiles(site: ListSite, path: str, username: str) -> list[str]:
    await site.visit(path, username)
    found: list[str] = await site.page.evaluate(TILES)
    return found


async def failed_charts(site: ListSite, path: str, username: str) -> list[str]:
    """The messages that a dashboard shows in place of charts."""
    await site.visit(path, username)
    await site.page.wait_for(
        "document.querySelector('.chart .card-body').childElementCount && !document.querySelector('.chart[aria-busy]')"
    )
    found: list[str] = await site.page.evaluate("[...document.querySelectorAll('.chart .card-body .wrong')].map((each) => each.innerText)")
    return found


class TestRestrictedPages:
    async def test_show_what_the_viewer_may_see(self, site: ListSite) -> None:
        project, tip = site.forge.tips[PATH]
        sections = {section for section in SECTIONS.values() if section}
        for disabled in SECTIONS:
            await site.run(UPDATE, input={"projectPath": project, **{feature: feature != disabled for feature in SECTIONS}})
            for path in ("/", "/groups/web"):
                assert await tiles(site, path, "mei") == ["storefront", "website"], disabled
            shown = await headings(site, f"/{PATH}", "mei")
            assert sections & set(shown) == sections - {SECTIONS[disabled]}, disabled
            assert "Commits" in shown
            await site.visit(f"/{PATH}/commits", "mei")
            assert TITLE in await site.page.evaluate("document.querySelector('.row-title').innerText"), disabled
            shown = await headings(site, f"/{PATH}/commit/{tip}", "mei")
            assert shown[0] == TITLE
            assert ("Builds" in shown) is (disabled != "buildsEnabled")
            assert await failed_charts(site, "/groups/web/dashboard", "mei") == [], disabled

        await site.run(UPDATE, input={"projectPath": project, **dict.fromkeys(SECTIONS, True)})
        await site.forge.run_as("ada", "AddProjectMember", projectPath=PATH, username="guest", accessLevel="GUEST")
        assert await failed_charts(site, "/groups/web/dashboard", "guest") == []
        for path in ("/", "/groups/web"):
            assert await tiles(site, path, "guest") == ["storefront"]
        assert "You may not see the code of this project." in await site.page.evaluate("document.querySelector('.tile').innerText")
        shown = await headings(site, f"/{PATH}", "guest")
        assert sections & set(shown) == {"Open merge requests", "Open issues"}
        assert "No access to the code" in shown
        assert "Nothing to see here" in await headings(site, f"/{PATH}/commits", "guest")
        assert await headings(site, f"/{PATH}/commit/{tip}", "guest") == ["Not allowed"]
        assert site.page.errors == []
