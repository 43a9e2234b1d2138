"""The dashboards in a real browser, over the whole service."""

import json
import os
from collections.abc import AsyncIterator, Callable
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio

from tests.forgefront.pages.test_pages import PagesSite
from tests.forgefront.support import wall_playback
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

HOSTILE = "<img src=x onerror=alert(1)>"
PROJECTS = (
    DemoProject(
        "web/storefront",
        "",
        (DemoCommit(HOSTILE, "mei", 60, "compile+ unit-"), DemoCommit("Prices", "ada", 60 * 24 * 3, "compile+ unit+")),
        (DemoMergeRequest("Show delivery dates", "priya", 60 * 30, "delivery", "compile+"),),
    ),
    DemoProject("web/design", "", (DemoCommit("Focus rings", "priya", 400, "style+"),)),
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PagesSite]:
    folder = tmp_path_factory.mktemp("dashboards")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
        await page.set_viewport(1280, 800)
        yield PagesSite(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: PagesSite) -> AsyncIterator[PagesSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    with shared.page.expect_no_errors():
        yield shared


async def card(site: PagesSite, title: str) -> str:
    """The text of a card, when it has been filled."""
    section = f"document.querySelector('section[aria-label=\"{title}\"]')"
    await site.page.wait_for(f"{section} && !{section}.hasAttribute('aria-busy') && {section}.querySelector('.card-body').textContent")
    return str(await site.page.evaluate(f"{section}.innerText"))


async def test_a_project_has_pictures_that_lead_to_their_rows_and_operations(site: PagesSite) -> None:
    page = site.page
    await site.visit("/web/storefront/dashboard")
    assert "75 %" in await card(site, "Success rate")
    branch = await card(site, "The branch over time")
    assert f"broken by\nMT\n{HOSTILE}" in branch and "not fixed yet" in branch
    assert "Show delivery dates" in await card(site, "Open merge requests by age")
    # The names of people are in the table even though charts do not show them.
    assert "mei" in await card(site, "People and builds")
    links = await page.evaluate(
        "[...document.querySelectorAll('section[aria-label=\"Success rate\"] .card-links a')].map(link => link.href)"
    )
    assert links[0].endswith("/web/storefront/builds?status=failed&branch=default&days=30")
    fragment = parse_qs(urlsplit(links[1]).fragment)
    assert (
        fragment["query"][0].startswith("query ProjectBuildsOverTime(") and json.loads(fragment["variables"][0])["path"] == "web/storefront"
    )
    async with httpx.AsyncClient() as http:
        table = await http.get(links[2], headers={"PRIVATE-TOKEN": site.forge.tokens["ada"]})
    assert table.status_code == 200 and table.text.startswith("bucketStart,counts.total,counts.success,")
    await page.evaluate(f"location.href = {json.dumps(links[0])}")
    await page.wait_for("document.querySelectorAll('.row').length === 1 && document.querySelector('main').innerText.includes('days: 30')")


async def test_filters_stand_in_the_address(site: PagesSite) -> None:
    page = site.page
    await site.visit("/web/storefront/dashboard?job=compile&range=90&zone=Europe/Helsinki")
    assert "100 %" in await card(site, "Success rate")
    find = "const field = document.querySelector(`[name=${name}]`)"
    change = f"(name, value) => {{ {find}; field.value = value; field.dispatchEvent(new Event('change')); }}"
    await page.evaluate(f"({change})('job', 'unit')")
    await page.wait_for("document.querySelector('section[aria-label=\"Success rate\"] dd')?.innerText === '50 %'")
    assert await page.evaluate("location.search") == "?range=90&zone=Europe%2FHelsinki&job=unit"
    await page.evaluate(f"({change})('zone', 'Nowhere/At_all')")
    assert await page.evaluate("location.search") == "?range=90&zone=Europe%2FHelsinki&job=unit"


async def test_the_newest_choice_is_shown_and_failures_are_seen(site: PagesSite) -> None:
    page = site.page
    hold = """void (really => window.fetch = async (url, options) => {
      if (String(url).includes('/q/')) return new Response('', {status: 503});
      const name = String(url).endsWith('/graphql') && JSON.parse(new TextDecoder().decode(options.body)).operationName;
      const answer = await really(url, options);
      if (name === 'ProjectBuildsOverTime' && !window.release) await new Promise((resolve) => (window.release = resolve));
      return answer;
    })(fetch)"""
    await site.visit("/web/storefront/dashboard")
    assert "75 %" in await card(site, "Success rate")
    await page.evaluate(hold)
    choose = (
        "(value => { const field = document.querySelector('[name=job]'); field.value = value; field.dispatchEvent(new Event('change')); })"
    )
    await page.evaluate(f"{choose}('unit')")
    await page.wait_for("window.release")
    await page.evaluate(f"{choose}('compile')")
    rate = "document.querySelector('section[aria-label=\"Success rate\"] dd')?.innerText"
    await page.wait_for(f"{rate} === '100 %'")
    await page.evaluate("window.release(), new Promise((resolve) => setTimeout(resolve, 300))")
    assert await page.evaluate(rate) == "100 %"

    link = "[...document.querySelectorAll('section[aria-label=\"Success rate\"] .card-links a')]"
    await page.evaluate(f"{link}.find(each => each.innerText === 'CSV').click()")
    await page.wait_for_text("The file cannot be downloaded (503).")
    await page.evaluate(f"{link}.find(each => each.innerText === 'GraphiQL').click()")
    await page.wait_for("location.pathname === '/-/graphiql' && !document.getElementById('crumbs')", "the link leads out of the pages")
    await page.open("about:blank")


async def test_a_group_on_a_screen_rotates_without_controls(site: PagesSite) -> None:
    page = site.page
    await page.set_viewport(800, 420)
    await site.visit("/groups/web/dashboard?screen=5")
    await page.wait_for("document.querySelectorAll('.chart:not([hidden])').length < document.querySelectorAll('.chart').length")
    assert await page.evaluate("[...document.querySelectorAll('.top, .foot, .choices')].every(each => !each.checkVisibility())")
    first = await page.evaluate("document.querySelector('.chart:not([hidden])').ariaLabel")
    await page.wait_for(f"document.querySelector('.chart:not([hidden])').ariaLabel !== {json.dumps(first)}")
    await page.evaluate("document.querySelector('.charts').id = 'before'")
    await page.press("Escape")
    await page.wait_for("!document.querySelector('#before') && document.querySelector('.choices')?.checkVisibility()")
    assert "web/design" in await card(site, "Projects")


async def test_pictures_of_a_group_lead_to_its_builds(site: PagesSite) -> None:
    page = site.page
    await page.set_viewport(1280, 800)
    await site.visit("/groups/web/dashboard")
    # Cards are filled one by one, and a card gets its links last.
    footers = "[...document.querySelectorAll('.chart .card-links')]"
    await page.wait_for(f"{footers}.length && {footers}.every(each => each.firstChild)")
    rows = f"{footers}.map(each => each.firstChild.innerText)"
    assert "GraphiQL" not in await page.evaluate(rows), "each chart leads to its rows"
    await page.evaluate("document.querySelector('section[aria-label=\"Success rate\"] .card-links a').click()")
    await page.wait_for("document.querySelectorAll('.row').length > 0 && location.pathname === '/groups/web/builds'")
    assert await page.evaluate("location.search") == "?status=failed&branch=default&days=30"
    chosen = await page.evaluate("[...document.querySelectorAll('.removable')].map(each => each.firstChild.textContent)")
    assert chosen == ["branch: default", "days: 30"]
    shown = "[...document.querySelectorAll('.row')].map(each => each.innerText)"
    assert all("web/" in each and "failed" in each for each in await page.evaluate(shown))
    await site.visit("/groups/web/dashboard")
    await card(site, "People and builds")
    people = "[...document.querySelectorAll('section[aria-label=\"People and builds\"] th a')]"
    await page.evaluate(f"{people}.find(each => each.innerText === 'mei').click()")
    await page.wait_for("location.search.includes('author=mei') && document.querySelector('.row')")


async def test_a_wall_on_a_screen_needs_no_more_memory_after_a_day(site: PagesSite, record_property: Callable[[str, object], None]) -> None:
    """In the suite after an hour; `scripts/check --pages` plays a day."""
    page = site.page
    of_day = 1 if os.environ.get("FORGEFRONT_ALL_PAGES") else 1 / 24
    try:
        async with page.script_on_open(wall_playback.SCRIPT):
            await page.set_viewport(700, 420)
            await site.visit("/?screen=20")
            await page.wait_for("document.querySelectorAll('.tile').length === 2")
            paths = [project.path for project in PROJECTS]
            await wall_playback.play(page, paths, 0.1, of_day)
            early = await wall_playback.measure_memory(page)
            counts = await wall_playback.play(page, paths, 0.9, of_day)
            late = await wall_playback.measure_memory(page)
    finally:
        await page.set_viewport(1280, 800)
    record_property("memory", f"{early} after a tenth, {late} after all of {counts}")
    assert counts["sent"] == counts["tiles"] >= wall_playback.DAY_EVENTS * of_day - 1 and counts["failed"] == 0
    assert counts["connections"] - 1 == counts["resumed"] == counts["sent"] // wall_playback.EVENTS_BETWEEN_DISCONNECTS
    assert late.nodes <= early.nodes + 40
    assert late.listeners <= early.listeners + 4
    assert late.heap_bytes <= early.heap_bytes + 400_000
