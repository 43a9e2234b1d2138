"""Pictures of the pages, from a real Chromium: `scripts/screenshots [FOLDER]`, by default docs/screenshots."""

import asyncio
import sys
import tempfile
from pathlib import Path

import structlog

from tests.forgefront.browser import Page, chromium
from tests.forgefront.showing import Proposal, Push, Showing, Shown, showing

GOOD = "compile+ style+ unit+ contract+"
PROJECTS = (
    Shown("docs/handbook", "How we work.", ()),
    Shown("mobile/android", "The app.", (Push("Ask for the camera only when it is used", "jonas", 2900, "compile+ style+ unitx"),)),
    Shown("platform/ledger", "Who owes whom what.", (Push("Rounding follows the currency, not the locale", "ada", 1600, GOOD),)),
    Shown(
        "web/design", "Colours, type, parts.", (Push("Focus rings are seen on every background", "priya", 410, "style+ unit+ browser+"),)
    ),
    Shown("platform/search", "Finds things.", (Push("An index is built beside the old one and then takes its place", "tomas", 300, GOOD),)),
    Shown("mobile/ios", "The app.", (Push("Photos are sent when there is a network again", "mei", 260, "compile+ unit+ package+"),)),
    Shown("platform/mail", "Sends what others write.", (Push("A bounced address is asked for again once", "jonas", 190, GOOD),)),
    Shown("platform/identity", "Who is who.", (Push("Keys are rolled over without a restart", "priya", 55, "compile? unit? contract?"),)),
    Shown(
        "web/checkout",
        "From the basket to the receipt.",
        (Push("The basket survives a lost connection", "tomas", 4, "compile+ style+ unit* browser?"),),
    ),
    Shown(
        "platform/gateway",
        "The door to all services.",
        (
            Push(
                "Time limits are per route, and the log says which one was met",
                "ada",
                71,
                "compile+ style+ unit- contract- browser- packagex",
            ),
        ),
    ),
    Shown(
        "web/storefront",
        "The shop that customers see.",
        (
            Push("Prices are shown with the tax of the buyer's country", "mei", 18, "compile+ style+ unit+ browser- packagex"),
            Push("Pictures load when they come into view", "tomas", 130, "compile+ style+ unit+ browser+ package+"),
            Push("The list of sizes says what is sold out", "priya", 205, "compile+ style+ unit+ browser+ package+"),
            Push("Reviews are sorted by how helpful they were", "jonas", 420, "compile+ style- unit+ browser+ packagex"),
            Push("Search forgives a wrong letter", "mei", 640, "compile+ style+ unit+ browser+ package+"),
            Push("One query instead of forty for the front page", "ada", 1500, "compile+ style+ unit+ browser+ package+"),
            Push("The footer names the company's address", "priya", 1700, "compile+ style+ unit+ browser+ package+"),
        ),
        (
            Proposal("Show delivery dates before the basket", "priya", 26, "delivery-dates", "compile+ style+ unit* browser?"),
            Proposal("Round prices after the tax, not before", "mei", 13, "tax-rounding", "compile+ style+ unit+ browser+"),
            Proposal("WIP: A wish list without an account", "jonas", 900, "wish-list", "compile+ style+ unit-"),
        ),
        (
            ("Prices in Norway are off by one øre", "jonas"),
            ("The search field is not reached by keyboard", "priya"),
            ("Show which sizes come back", "mei"),
        ),
    ),
)
WALL = (1280, 800)
PHONE = (390, 844)


async def take(folder: Path) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs
    with tempfile.TemporaryDirectory(prefix="forgefront-pictures-") as scratch:
        async with showing(Path(scratch, "data"), PROJECTS) as forge, chromium(Path(scratch, "profile")) as page:
            await sign_in(page, forge, "ada")
            build = await running_build(forge)
            for name, path, awaited in PICTURES:
                path = path.format(**build)
                for scheme, (width, height) in (("light", WALL), ("dark", WALL), ("phone", PHONE)):
                    await page.scheme("light" if scheme == "phone" else scheme)
                    await page.size(width, height, scale=2 if scheme == "phone" else 1, mobile=scheme == "phone")
                    await page.open(forge.address + path)
                    await page.until(f"document.querySelector({awaited!r})")
                    to = folder / (f"{name}.png" if scheme == "light" else f"{name}-{scheme}.png")
                    to.write_bytes(await page.picture())
                    print(to, to.stat().st_size // 1024, "KiB")
            if page.complaints:
                sys.exit("\n".join(page.complaints))


PICTURES = (
    ("wall", "/", ".tile"),
    ("project", "/web/storefront", ".row"),
    ("merge-requests", "/web/storefront/merge_requests", ".row"),
    ("builds", "/web/storefront/builds", ".row"),
    ("merge-request", "/web/storefront/merge_requests/1", ".line"),
    ("build", "/web/storefront/builds/{databaseId}", ".output-line"),
    ("commit", "/web/storefront/commit/{sha}", ".line"),
    ("graphiql", "/-/graphiql", ".examples li"),
    ("reference", "/-/reference#MergeRequest", "#filter:not([hidden])"),
)
"""The name of a picture, the page, and what is waited for. In braces: a value of a build that runs."""


async def running_build(forge: Showing) -> dict[str, str]:
    text = '{ project(path: "web/storefront") { builds(first: 1, filter: {status: [RUNNING]}) { nodes { databaseId sha } } } }'
    outcome = await forge.app.graph.run_text(text, {}, None, forge.tokens["ada"], request_id="pictures")
    found: dict[str, str] = (outcome.data or {})["project"]["builds"]["nodes"][0]
    return found


async def sign_in(page: Page, forge: Showing, username: str) -> None:
    """As somebody who does it by hand."""
    await page.open(f"{forge.address}/-/sign_in")
    await page.until("document.activeElement?.id === 'field-token'")
    await page.type(forge.tokens[username])
    await page.press("Enter")
    await page.until("document.querySelector('#account a')")


def main() -> None:
    asyncio.run(take(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots")))


if __name__ == "__main__":
    main()
