"""The pages in a real browser, over the whole service: what people see, how they move, and that what changes is seen at once."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from graph.live import End
from tests.forgefront.browser import CHROMIUM, Page, chromium
from tests.forgefront.showing import Proposal, Push, Showing, Shown, showing

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

LONG = "A title that is longer than a telephone is wide, and has_a_word_in_it_that_cannot_be_broken_anywhere_at_all"
HOSTILE = "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
PROJECTS = (
    Shown("web/design", "", (Push("Focus rings are seen", "priya", 400, "style+ unit+"),)),
    Shown("web/checkout", "", (Push("The basket survives", "tomas", 4, "compile+ unit*"),)),
    Shown(
        "web/storefront",
        "The shop.",
        (Push(LONG, "mei", 18, "compile+ browser-"), Push(HOSTILE, "ada", 90, "compile+")),
        (Proposal("Show delivery dates", "priya", 10, "delivery", "compile+"),),
        (("Prices are off", "jonas"),),
    ),
    Shown("empty/handbook", "Nothing yet."),
)


@dataclass
class World:
    """One service and one browser for the whole file."""

    forge: Showing
    page: Page

    async def visit(self, path: str, username: str | None = "ada", **stored: str) -> None:
        """Opens a page in a tab that knows nothing but who is signed in."""
        await self.page.open(f"{self.forge.address}/-/health")
        await self.page.until("location.pathname === '/-/health' && document.body")
        await self.page.evaluate("sessionStorage.clear(), localStorage.clear()")
        if username is not None:
            stored["forgefront.session"] = json.dumps({"token": self.forge.tokens[username], "until": None})
        for name, value in stored.items():
            await self.page.evaluate(f"sessionStorage.setItem({json.dumps(name)}, {json.dumps(value)})")
        await self.page.open(self.forge.address + path)
        await self.page.until("document.querySelector('main').childElementCount && !document.querySelector('main[aria-busy]')")

    async def settings(self, **values: str | None) -> None:
        text = "mutation ($input: UpdateSettingsInput!) { updateSettings(input: $input) { userErrors { message } } }"
        assert await self.run(text, input=values) == {"updateSettings": {"userErrors": []}}

    async def run(self, text: str, username: str = "ada", **variables: object) -> object:
        """The data of an operation, run as somebody."""
        outcome = await self.forge.app.graph.run_text(text, variables, None, self.forge.tokens[username], request_id="test")
        assert outcome.errors == []
        return outcome.data

    async def becomes(self, path: str, state: str) -> None:
        """Waits until a tile has a state."""
        await self.page.until(f"document.querySelector('[data-path=\"{path}\"]').dataset.state === '{state}'")

    async def tiles(self) -> list[list[str]]:
        """The tiles in their order: name, state, word."""
        told = "[t.querySelector('h2').innerText, t.dataset.state, t.querySelector('.badge').innerText]"
        found: list[list[str]] = await self.page.evaluate(f"[...document.querySelectorAll('.tile')].map(t => {told})")
        return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("pages")
    async with showing(folder / "data", PROJECTS) as forge, chromium(folder / "profile") as page:
        yield World(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared: World) -> AsyncIterator[World]:
    """What the browser complains of, as of a breach of the content security policy, fails the test in which it happens."""
    shared.page.complaints.clear()
    shared.page.requests.clear()
    await shared.page.size(1280, 800)
    await shared.page.scheme("light")
    yield shared
    assert shared.page.complaints == []
    assert {url for url in shared.page.requests if not url.startswith((shared.forge.address, "data:"))} == set()


class TestSigningIn:
    async def test_with_a_token_leads_to_what_was_asked_for(self, world: World) -> None:
        page = world.page
        await world.settings(signInText="Ask [the office](https://office.example.org/keys) first.\n\n<b>Not</b> bold.")
        await world.visit("/web/storefront", None)
        await page.sees("<b>Not</b> bold.")
        assert await page.evaluate("document.querySelector('.prose a').href") == "https://office.example.org/keys"

        await page.type("no-such-token")
        await page.press("Enter")
        await page.sees("Nobody has this token.")
        # The browser itself reports each answer of 401 on its console.
        assert all("401" in said for said in page.complaints)
        page.complaints.clear()
        await page.type(world.forge.tokens["ada"])
        await page.press("Enter")

        await page.sees("The shop.")
        assert await page.evaluate("document.title") == "Web / storefront · Forgefront"
        assert await page.evaluate("localStorage.length + document.cookie.length") == 0

    async def test_with_a_password_and_staying(self, world: World) -> None:
        page = world.page
        await world.visit("/-/sign_in", None)
        await page.click(".switch")
        await page.type("mei")
        await page.press("Tab")
        await page.type("mei signs in")
        await page.click("[name=stay]")
        await page.click(".primary")
        await page.until("document.querySelectorAll('.tile').length === 4")
        assert await page.evaluate("location.pathname") == "/"
        assert world.forge.tokens["mei"] in await page.evaluate("localStorage.getItem('forgefront.session')")

    async def test_out_again(self, world: World) -> None:
        page = world.page
        await world.visit("/")
        await world.settings(afterSignOutPath="/-/health?bye")
        await page.click("#sign-out")
        await page.until("location.search === '?bye'")
        assert await page.evaluate("sessionStorage.length") == 0
        await world.settings(afterSignOutPath=None)

    async def test_the_front_page_sends_strangers_home(self, world: World) -> None:
        await world.settings(homePageUrl=f"{world.forge.address}/-/health?home")
        await world.page.open(f"{world.forge.address}/-/health")
        await world.page.evaluate("sessionStorage.clear(), localStorage.clear()")
        await world.page.open(world.forge.address)
        await world.page.until("location.search === '?home'")
        await world.settings(homePageUrl=None)


class TestTheWall:
    async def test_shows_who_how_long_and_what_fails_the_worst_first(self, world: World) -> None:
        await world.visit("/")
        await world.page.until("document.querySelector('.tile')")
        assert await world.tiles() == [
            ["storefront", "FAILED", "failed"],
            ["checkout", "RUNNING", "running"],
            ["design", "SUCCESS", "passed"],
            ["handbook", "NONE", "no builds"],
        ]
        first = await world.page.evaluate(
            "document.querySelector('.tile').innerText.split('\\n').map(t => t.replace(/\\s+/g, ' ').trim()).filter(Boolean)"
        )
        assert first == [
            "storefront",
            "Web · main",
            "failed",
            f"{LONG[:80]}…",
            "MT",
            "Mei Tanaka",
            "18 minutes ago",
            "browser",
            "6 min 55 s",
        ]

    async def test_a_build_that_ends_is_seen_in_its_place(self, world: World) -> None:
        page = world.page
        await world.visit("/")
        await page.until("document.querySelector('#live[data-state=live]')")
        await page.evaluate(
            "document.querySelector('[data-path=\"web/checkout\"] a').focus(), window.kept = document.querySelector('.tile')"
        )
        await world.forge.tell("web/checkout", "unit", "FAILED")
        await world.becomes("web/checkout", "FAILED")
        assert [name for name, *_ in await world.tiles()] == ["storefront", "checkout", "design", "handbook"], "tiles keep their places"
        assert await page.evaluate("document.activeElement.textContent") == "checkout"
        assert await page.evaluate("document.querySelector('.tile') === window.kept"), "only the tile concerned is made anew"
        await page.until("document.getElementById('said').textContent === 'checkout: failed.'")

    async def test_what_happens_during_a_break_is_seen_after_it(self, world: World) -> None:
        page = world.page
        await world.visit("/")
        for name, status in (("contract", "RUNNING"), ("package", "FAILED")):
            await page.until("document.querySelector('#live[data-state=live]')")
            for follower in list(world.forge.app.graph.services.live._followers):
                follower.end(End.SLOW)
            await world.forge.tell("web/design", name, status)
            await world.becomes("web/design", "RUNNING")
        await world.forge.tell("web/design", "contract", "SUCCESS")
        await world.becomes("web/design", "FAILED")

    async def test_what_another_system_says_of_a_commit_is_seen_too(self, world: World) -> None:
        await world.visit("/")
        await world.page.until("document.querySelector('#live[data-state=live]')")
        project, tip = world.forge.tips["web/checkout"]
        for state in ("SUCCESS", "FAILED"):
            text = "mutation ($input: CreateCommitStatusInput!) { createCommitStatus(input: $input) { userErrors { message } } }"
            told = {"projectPath": project, "sha": tip, "ref": "main", "name": "unit", "state": state}
            await world.run(text, input=told)
            await world.becomes("web/checkout", state)

    async def test_a_token_that_is_taken_back_ends_at_the_page_for_signing_in(self, world: World) -> None:
        page = world.page
        await world.visit("/", "guest")
        await page.until("document.querySelector('#live[data-state=live]')")
        text = "mutation { resetPrivateToken(input: {}) { userErrors { message } } }"
        await world.run(text, "guest")
        world.forge.tokens["guest"] = await world.forge.token("guest")
        await page.sees("You are no longer signed in")
        assert all("401" in said for said in page.complaints)
        page.complaints.clear()

    async def test_by_keyboard_alone(self, world: World) -> None:
        page = world.page
        await world.visit("/")
        await page.until("document.querySelector('.tile')")
        await page.press("?")
        await page.until("document.querySelector('dialog[open]')")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog[open]')")
        await page.press("/")
        await page.type("e")
        await page.press("Escape", "j", "j", "k", "ArrowRight")
        assert await page.evaluate("document.activeElement === document.querySelectorAll('.tile:not([hidden]) h2 a')[1]")
        await page.press("/")
        await page.type("design")
        await page.until("[...document.querySelectorAll('.tile')].filter(t => !t.hidden).length === 1")
        await page.press("ArrowDown", "Enter")
        await page.until("location.pathname === '/web/design' && document.activeElement.tagName === 'H1'")
        await page.press("u")
        await page.until("location.pathname === '/groups/web' && document.querySelectorAll('.tile').length === 3")
        await page.evaluate("history.back()")
        await page.until("document.querySelector('.tabs')")

    async def test_says_what_there_is_when_there_is_nothing(self, world: World) -> None:
        await world.visit("/", "guest")
        await world.page.sees("No projects yet")


class TestProjects:
    async def test_join_commits_builds_and_merge_requests(self, world: World) -> None:
        page = world.page
        await world.visit("/web/storefront")
        await page.sees("Show delivery dates")
        shown = await page.evaluate("document.querySelector('.rows').innerText")
        assert HOSTILE in shown
        assert "Mei Tanaka" in shown
        assert await page.evaluate("document.querySelectorAll('.row .dots a').length") == 3
        await page.click(".tabs a[href$=builds]")
        await page.until("location.pathname.endsWith('/builds') && document.querySelectorAll('.row').length === 4")
        await page.click(".chips a[href*=failed]")
        await page.until("location.search === '?status=failed' && document.querySelectorAll('.row').length === 1")
        await page.click(".tabs a[href$=issues]")
        await page.until("location.pathname.endsWith('/issues') && document.querySelectorAll('.row').length === 1")
        await page.click(".row a[href$='/issues/1']")
        await page.sees("Prices are off")
        assert await page.evaluate("location.pathname") == "/web/storefront/issues/1"

    async def test_an_issue_is_answered_and_closed(self, world: World) -> None:
        page = world.page
        await world.visit("/web/storefront/issues/1", "mei")
        await page.evaluate("document.querySelector('textarea').focus()")
        await page.type(f"Seen too. {HOSTILE}")
        await page.click(".actions button")
        await page.sees("Status changed to closed")
        await page.sees(f"Seen too. {HOSTILE}")

    async def test_what_is_hidden_is_not_found(self, world: World) -> None:
        for path in ("/web/storefront", "/web/nothing", "/web/storefront/issues/1", "/groups/nobody", "/u/nobody"):
            await world.visit(path, "guest")
            await world.page.sees("Not found")
        assert await world.page.evaluate("document.title") == "Not found · Forgefront"


class TestLooks:
    async def test_fit_a_telephone_and_can_be_read_in_both_schemes(self, world: World) -> None:
        page = world.page
        await page.size(360, 640, mobile=True)
        for path in LOOKED_AT.split():
            await page.scheme("light")
            await world.visit(path)
            assert await page.evaluate("document.documentElement.scrollWidth") == 360, path
            for scheme, bright in (("light", "> 600"), ("dark", "< 150")):
                await page.scheme(scheme)
                await page.until(f"{BRIGHTNESS} {bright}")
                assert await page.evaluate(CONTRAST) == [], (path, scheme)

    async def test_follows_the_system_until_a_scheme_is_chosen(self, world: World) -> None:
        page = world.page
        await world.visit("/")
        await page.until(f"{BRIGHTNESS} > 600")
        await page.scheme("dark")
        await page.until(f"{BRIGHTNESS} < 150")
        await page.click("#theme")
        await page.until(f"{BRIGHTNESS} > 600", "light is chosen")
        await page.open(world.forge.address)
        await page.until(f"document.querySelector('.tile') && {BRIGHTNESS} > 600", "light stays chosen")


LOOKED_AT = """/ /web/storefront /web/storefront/builds /web/storefront/issues/1 /web/storefront/merge_requests/1 /web/storefront/builds/4
/-/sign_in"""
BRIGHTNESS = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
CONTRAST = """[...document.querySelectorAll('body *')].filter(each => each.checkVisibility() && !each.closest('.unseen, .skip')
    && [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim())).flatMap(each => {
  const sheet = window.sheet ??= Object.assign(document.createElement('canvas'), {width: 1, height: 1});
  const canvas = sheet.getContext('2d', {willReadFrequently: true});
  const layers = [];
  for (let at = each; at; at = at.parentElement) {
    layers.push(getComputedStyle(at).backgroundColor);
  }
  const luminance = (colours) => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const below = ['white', ...layers.toReversed()];
  const [a, b] = [luminance(below), luminance([...below, getComputedStyle(each).color])].sort();
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return ratio < 4.5 ? [`${each.className} ${each.textContent.slice(0, 30)} ${ratio.toFixed(2)}`] : [];
})"""
"""The texts whose contrast is under 4.5 to 1 (WCAG 2.2, 1.4.3): colours are laid over each other from the root inward."""
