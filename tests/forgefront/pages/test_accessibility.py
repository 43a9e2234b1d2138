"""Every page in Chromium: no violation of axe-core (WCAG 2.2 AA, best practices), no overflow on a phone, no complaint of the browser,
no message without a text, the same breadcrumbs on all pages of a project.

`scripts/check --pages` tries every page in both themes, at desktop and at phone size. The suite tries every tenth, in the light theme at
desktop size and in the dark one at phone size.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.forgefront.support.browser import CHROMIUM, BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoServer, run_demo_server
from tests.forgefront.support.page_tour import OTHER_STOPS, PATH, STOREFRONT, TourStop, create_tour, sign_in, views_not_visited
from tests.support.npm import install_packages

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)")

DESKTOP, PHONE = (1280, 800), (360, 740)
VARIANTS = [("light", DESKTOP), ("dark", PHONE)]
STEP = 10
if os.environ.get("FORGEFRONT_ALL_PAGES"):
    VARIANTS += [("dark", DESKTOP), ("light", PHONE)]
    STEP = 1
VENDORED = [".monaco-editor", ".graphiql-tabs"]
"""Parts of GraphiQL that are not this project's."""
RUN_AXE = (
    f"""axe.run({{exclude: {json.dumps(VENDORED)}}}, """
    """{resultTypes: ['violations'], iframes: false,
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
  .then(({violations}) => violations.flatMap(({id, nodes}) =>
    nodes.map(({target, failureSummary}) => `${id} ${target.join(' ')}: ${failureSummary}`)))"""
)
EMPTY_MESSAGES = """[...document.querySelectorAll('.wrong, [role=alert]')]
  .filter(each => !each.textContent.trim() && each.checkVisibility() && each.getBoundingClientRect().height > 1)
  .map(each => each.outerHTML)"""
PROJECT_CRUMBS = ["Web", "storefront"]
CRUMBS = "[...document.querySelectorAll('#crumbs a')].slice(0, 2).map(each => each.textContent)"
FOLLOW = """(address => {
  for (const each of document.querySelector('main').children) each.dataset.previous = '';
  const link = Object.assign(document.createElement('a'), {href: address});
  document.body.append(link); link.click(); link.remove(); })"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core."""
    folder = install_packages(Path(__file__).parents[1] / "accessibility", "axe-core on all pages")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


class Inspector:
    """Runs axe-core on pages, and collects what it and the browser find."""

    def __init__(self, page: BrowserPage, axe: str) -> None:
        self.page = page
        self.axe = axe
        self.findings: list[str] = []

    async def inspect(self, stop: TourStop) -> None:
        await self.page.wait_for("!document.querySelector('main[aria-busy], main > [data-previous]')", f"{stop.name} is not shown")
        await self.page.wait_for(f"document.querySelector({json.dumps(stop.selector)})", f"{stop.name} is not complete")
        if stop.repeated:
            await self.page.evaluate(f"[...document.querySelectorAll({json.dumps(stop.repeated)})].slice(10).map(each => each.remove())")
        if not await self.page.evaluate("typeof axe === 'object'"):
            await self.page.send("Runtime.evaluate", expression=self.axe)
        for scheme, (width, height) in VARIANTS:
            await self.page.set_color_scheme(scheme)
            await self.page.set_viewport(width, height, mobile=width < 500)
            await self.page.evaluate("scrollTo(0, 0)")
            where = f"{stop.name} ({scheme}, {width} px)"
            found: list[Any] = await self.page.evaluate(RUN_AXE)
            self.findings += [f"{where}: {each}" for each in found]
            self.findings += [f"{where}: has an empty message: {each}" for each in await self.page.evaluate(EMPTY_MESSAGES)]
            shown = await self.page.evaluate("document.documentElement.scrollWidth")
            if shown > width:
                self.findings.append(f"{where}: is {shown} px wide")


async def visit_all(page: BrowserPage, forge: DemoServer, axe: str) -> list[str]:
    stops = await create_tour(forge)
    assert views_not_visited(stops) == set(), "add a stop to tests/forgefront/support/page_tour.py"
    inspector = Inspector(page, axe)
    # The policy of the pages would keep axe-core from compiling its templates.
    await page.send("Page.setBypassCSP", enabled=True)
    await sign_in(page, forge, "ada")
    for stop in stops[::STEP]:
        # Each page is opened as by a link, so that the modules and axe-core are loaded once.
        await page.evaluate(f"{FOLLOW}({json.dumps(forge.address + stop.path)})")
        await page.wait_for(f"location.pathname + location.search === {json.dumps(stop.path)}")
        await inspector.inspect(stop)
        if stop.name != "not found" and stop.path.startswith(f"/{PATH}") and (crumbs := await page.evaluate(CRUMBS)) != PROJECT_CRUMBS:
            inspector.findings.append(f"{stop.name}: its breadcrumbs begin with {crumbs}")
    for stop in OTHER_STOPS[::STEP]:
        await page.open(forge.address + stop.path)
        await inspector.inspect(stop)
    return inspector.findings


async def test_no_page_has_a_violation(tmp_path: Path, axe: str) -> None:
    async with run_demo_server(tmp_path / "data", (STOREFRONT,)) as forge, open_chromium() as page:
        findings = await visit_all(page, forge, axe)
        assert findings == []
        # The browser itself reports the status of the page that is not there.
        assert [error for error in page.errors if "404" not in error] == []
