"""Takes screenshots of the pages in Chromium, and writes what each page costs: `scripts/screenshots [FOLDER]`.

Without a folder it writes the screenshots that the documents show, and the table `pages.md`, into docs/screenshots; with one, screenshots
of all pages in both themes and on a phone.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import structlog

from tests.forgefront.support.browser import BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoProject, DemoServer, run_demo_server
from tests.forgefront.support.page_tour import ALL_PASSED, FILES, OTHER_STOPS, STOREFRONT, TourStop, create_tour, sign_in
from tests.support.database.statements import StatementRecorder

SHORT_PASSED = "compile+ style+ unit+ contract+"
PROJECTS = (
    DemoProject("docs/handbook", "How we work.", ()),
    DemoProject(
        "mobile/android", "The app.", (DemoCommit("Ask for the camera only when it is used", "jonas", 2900, "compile+ style+ unitx"),)
    ),
    DemoProject(
        "platform/ledger", "Who owes whom what.", (DemoCommit("Rounding follows the currency, not the locale", "ada", 1600, SHORT_PASSED),)
    ),
    DemoProject(
        "web/design",
        "Colours, type, parts.",
        (DemoCommit("Focus rings are seen on every background", "priya", 410, "style+ unit+ browser+"),),
    ),
    DemoProject(
        "platform/search",
        "Finds things.",
        (DemoCommit("An index is built beside the old one and then takes its place", "tomas", 300, SHORT_PASSED),),
    ),
    DemoProject(
        "mobile/ios", "The app.", (DemoCommit("Photos are sent when there is a network again", "mei", 260, "compile+ unit+ package+"),)
    ),
    DemoProject(
        "platform/mail", "Sends what others write.", (DemoCommit("A bounced address is asked for again once", "jonas", 190, SHORT_PASSED),)
    ),
    DemoProject(
        "platform/identity", "Who is who.", (DemoCommit("Keys are rolled over without a restart", "priya", 55, "compile? unit? contract?"),)
    ),
    DemoProject(
        "web/checkout",
        "From the basket to the receipt.",
        (DemoCommit("The basket survives a lost connection", "tomas", 4, "compile+ style+ unit* browser?"),),
    ),
    DemoProject(
        "platform/gateway",
        "The door to all services.",
        (
            DemoCommit(
                "Time limits are per route, and the log says which one was met",
                "ada",
                71,
                "compile+ style+ unit- contract- browser- packagex",
            ),
        ),
    ),
)
EARLIER_TITLES = (
    "The basket remembers the size",
    "Vouchers are checked when they are entered",
    "Pictures have a text for those who cannot see them",
    "The menu closes by Escape",
    "Orders can be repeated",
    "Prices are cached for a minute",
)
DESKTOP_SIZE = (1280, 800)
PHONE_SIZE = (390, 844)


DOCUMENTED = {"wall": "wall", "dashboard": "dashboard", "merge request changes": "merge-request", "file": "file"}
"""The pages that the documents show, with the names of their screenshots."""


def storefront() -> DemoProject:
    """The storefront with four weeks of commits, so that its dashboard has something to say."""
    earlier = tuple(
        DemoCommit(
            EARLIER_TITLES[number % len(EARLIER_TITLES)],
            ("mei", "tomas", "priya", "jonas", "ada")[number % 5],
            2_600 + number * 1_440,
            ALL_PASSED if number % 6 not in (3, 4) else "compile+ style+ unit- browser+ packagex",
            duration_factor=0.7 + number / 80 + number * 7 % 5 / 20,
        )
        for number in range(26)
    )
    oldest = DemoCommit("Begin", "ada", 41_000, ALL_PASSED, FILES)
    return replace(STOREFRONT, pushes=(*(replace(push, files=()) for push in STOREFRONT.pushes), *earlier, oldest))


async def take_screenshots(folder: Path | None) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    target = folder or Path("docs/screenshots")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="forgefront-screenshots-") as scratch:
        projects = (*PROJECTS, storefront())
        async with (
            run_demo_server(Path(scratch, "data"), projects, warm_up=False) as forge,
            open_chromium() as page,
        ):
            stops = await create_tour(forge)
            await page.set_viewport(*DESKTOP_SIZE)
            await sign_in(page, forge, "ada")
            if folder is not None:
                for stop in (*stops, *OTHER_STOPS):
                    await take_all_variants(page, forge, stop, folder)
                return
            await page.set_color_scheme("light")
            rows = []
            for stop in (*stops, *OTHER_STOPS):
                rows.append(await measure(page, forge, stop))
                print(rows[-1])
                if name := DOCUMENTED.get(stop.name):
                    save_screenshot(await page.screenshot(), target / f"{name}.png")
            (target / "pages.md").write_text(TABLE_HEAD + "\n".join(rows) + "\n")


TABLE_HEAD = """# What each page costs

Written by `scripts/screenshots`, in a browser without a cache: milliseconds until the first paint of contents, kB that are transferred
until the page is complete, requests, and SQL statements of the service (SQLite; without look-ups of tokens).

| Page | Address | First paint | Transferred | Requests | SQL |
|---|---|---:|---:|---:|---:|
"""
COSTS = """(() => {
  const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  const [paint] = performance.getEntriesByName('first-contentful-paint');
  const bytes = entries.reduce((sum, each) => sum + each.transferSize, 0);
  return [Math.round(paint?.startTime ?? 0), Math.round(bytes / 1000), entries.length]; })()"""


async def measure(page: BrowserPage, forge: DemoServer, stop: TourStop) -> str:
    """The row of a page, opened a second time, so that the service has compiled what it runs."""
    await page.send("Network.enable")
    await page.send("Network.setCacheDisabled", cacheDisabled=True)
    await show(page, forge, stop)
    with StatementRecorder(forge.app.graph.services.database.engine.sync_engine).record() as statements:
        await show(page, forge, stop)
    paint, size, requests = await page.evaluate(COSTS)
    return f"| {stop.name} | `{stop.path}` | {paint} ms | {size} kB | {requests} | {len(statements)} |"


async def show(page: BrowserPage, forge: DemoServer, stop: TourStop) -> None:
    """Opens a page, and waits until it is complete and a moment more, for what comes after it."""
    await page.open("about:blank")
    await page.wait_for("location.href === 'about:blank'")
    await page.open(forge.address + stop.path)
    await page.wait_for(f"document.querySelector({json.dumps(stop.selector)}) && !document.querySelector('main[aria-busy]')")
    await page.evaluate("new Promise(go => requestIdleCallback(go, {timeout: 1000}))")


async def take_all_variants(page: BrowserPage, forge: DemoServer, stop: TourStop, folder: Path) -> None:
    for scheme, (width, height) in (("light", DESKTOP_SIZE), ("dark", DESKTOP_SIZE), ("phone", PHONE_SIZE)):
        await page.set_color_scheme("light" if scheme == "phone" else scheme)
        await page.set_viewport(width, height, scale=2 if scheme == "phone" else 1, mobile=scheme == "phone")
        await show(page, forge, stop)
        save_screenshot(await page.screenshot(), folder / f"{stop.name.replace('/', ' ').replace(' ', '-')}-{scheme}.png")


def save_screenshot(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    print(path, len(data) // 1000, "kB")


def main() -> None:
    asyncio.run(take_screenshots(Path(sys.argv[1]) if len(sys.argv) > 1 else None))


if __name__ == "__main__":
    main()
