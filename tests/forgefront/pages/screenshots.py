"""Takes screenshots of the pages in Chromium: `scripts/screenshots [FOLDER]`, by default docs/screenshots."""

import asyncio
import sys
import tempfile
from pathlib import Path

import structlog

from tests.forgefront.support.browser import BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, DemoServer, run_demo_server

ALL_PASSED = "compile+ style+ unit+ contract+"
PROJECTS = (
    DemoProject("docs/handbook", "How we work.", ()),
    DemoProject(
        "mobile/android", "The app.", (DemoCommit("Ask for the camera only when it is used", "jonas", 2900, "compile+ style+ unitx"),)
    ),
    DemoProject(
        "platform/ledger", "Who owes whom what.", (DemoCommit("Rounding follows the currency, not the locale", "ada", 1600, ALL_PASSED),)
    ),
    DemoProject(
        "web/design",
        "Colours, type, parts.",
        (DemoCommit("Focus rings are seen on every background", "priya", 410, "style+ unit+ browser+"),),
    ),
    DemoProject(
        "platform/search",
        "Finds things.",
        (DemoCommit("An index is built beside the old one and then takes its place", "tomas", 300, ALL_PASSED),),
    ),
    DemoProject(
        "mobile/ios", "The app.", (DemoCommit("Photos are sent when there is a network again", "mei", 260, "compile+ unit+ package+"),)
    ),
    DemoProject(
        "platform/mail", "Sends what others write.", (DemoCommit("A bounced address is asked for again once", "jonas", 190, ALL_PASSED),)
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
    DemoProject(
        "web/storefront",
        "The shop that customers see.",
        (
            DemoCommit("Prices are shown with the tax of the buyer's country", "mei", 18, "compile+ style+ unit+ browser- packagex"),
            DemoCommit("Pictures load when they come into view", "tomas", 130, "compile+ style+ unit+ browser+ package+"),
            DemoCommit("The list of sizes says what is sold out", "priya", 205, "compile+ style+ unit+ browser+ package+"),
            DemoCommit("Reviews are sorted by how helpful they were", "jonas", 420, "compile+ style- unit+ browser+ packagex"),
            DemoCommit("Search forgives a wrong letter", "mei", 640, "compile+ style+ unit+ browser+ package+"),
            DemoCommit("One query instead of forty for the front page", "ada", 1500, "compile+ style+ unit+ browser+ package+"),
            DemoCommit("The footer names the company's address", "priya", 1700, "compile+ style+ unit+ browser+ package+"),
        ),
        (
            DemoMergeRequest("Show delivery dates before the basket", "priya", 26, "delivery-dates", "compile+ style+ unit* browser?"),
            DemoMergeRequest("Round prices after the tax, not before", "mei", 13, "tax-rounding", "compile+ style+ unit+ browser+"),
            DemoMergeRequest("WIP: A wish list without an account", "jonas", 900, "wish-list", "compile+ style+ unit-"),
        ),
        (
            ("Prices in Norway are off by one øre", "jonas"),
            ("The search field is not reached by keyboard", "priya"),
            ("Show which sizes come back", "mei"),
        ),
    ),
)
DESKTOP_SIZE = (1280, 800)
PHONE_SIZE = (390, 844)


async def take_screenshots(folder: Path) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs
    with tempfile.TemporaryDirectory(prefix="forgefront-pictures-") as scratch:
        async with run_demo_server(Path(scratch, "data"), PROJECTS) as forge, open_chromium(Path(scratch, "profile")) as page:
            await sign_in(page, forge, "ada")
            build = await running_build(forge)
            for name, path, selector in PICTURES:
                path = path.format(**build)
                for scheme, (width, height) in (("light", DESKTOP_SIZE), ("dark", DESKTOP_SIZE), ("phone", PHONE_SIZE)):
                    await page.set_color_scheme("light" if scheme == "phone" else scheme)
                    await page.set_viewport(width, height, scale=2 if scheme == "phone" else 1, mobile=scheme == "phone")
                    await page.open(forge.address + path)
                    await page.wait_for(f"document.querySelector({selector!r})")
                    to = folder / (f"{name}.png" if scheme == "light" else f"{name}-{scheme}.png")
                    to.write_bytes(await page.screenshot())
                    print(to, to.stat().st_size // 1024, "KiB")
            if page.errors:
                sys.exit("\n".join(page.errors))


PICTURES = (
    ("wall", "/", ".tile"),
    ("project", "/web/storefront", ".row"),
    ("files", "/web/storefront/files", ".file-change time"),
    ("merge-requests", "/web/storefront/merge_requests", ".row"),
    ("builds", "/web/storefront/builds", ".row"),
    ("merge-request", "/web/storefront/merge_requests/1/changes", ".line"),
    ("build", "/web/storefront/builds/{databaseId}", ".output-line"),
    ("commit", "/web/storefront/commit/{sha}", ".line"),
    ("activity", "/web/storefront/activity", ".row"),
    ("settings", "/web/storefront/settings", ".entry"),
    ("graphiql", "/-/graphiql", ".examples li"),
    ("reference", "/-/reference#MergeRequest", "#filter:not([hidden])"),
)
"""The name of a picture, the page, and what is waited for. In braces: a value of a build that runs."""


async def running_build(forge: DemoServer) -> dict[str, str]:
    text = '{ project(path: "web/storefront") { builds(first: 1, filter: {status: [RUNNING]}) { nodes { databaseId sha } } } }'
    outcome = await forge.app.graph.run_document(text, {}, None, forge.tokens["ada"], request_id="pictures")
    found: dict[str, str] = (outcome.data or {})["project"]["builds"]["nodes"][0]
    return found


async def sign_in(page: BrowserPage, forge: DemoServer, username: str) -> None:
    """As somebody who does it by hand."""
    await page.open(f"{forge.address}/-/sign_in")
    await page.wait_for("document.activeElement?.id === 'field-token'")
    await page.type(forge.tokens[username])
    await page.press("Enter")
    await page.wait_for("document.querySelector('#account a')")


def main() -> None:
    asyncio.run(take_screenshots(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots")))


if __name__ == "__main__":
    main()
