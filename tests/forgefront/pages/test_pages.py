"""The pages in a real browser, over the whole service: contents, navigation and live updates."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from graph.live.broadcaster import StreamEnd
from storage import tables
from storage.tables import ActivityAction, ActivitySubject
from tests.forgefront.support.browser import CHROMIUM, IS_SHOWN, BrowserPage, open_chromium, open_windows
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, DemoServer, run_demo_server
from tests.forgefront.support.page_tour import run
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

LONG = "A title that is longer than a telephone is wide, and has_a_word_in_it_that_cannot_be_broken_anywhere_at_all"
HOSTILE = "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
KEEP_MINUTES = """(() => {
  const repeat = window.setInterval;
  window.minutes = [];
  window.setInterval = (act, pause) => { if (pause === 60_000) window.minutes.push(act); return repeat(act, pause); };
})()"""
"""Keeps what a page does each minute, so that a test need not wait."""
PASTE_IMAGE = """(() => {
  const clipboardData = new DataTransfer();
  clipboardData.items.add(new File(['GIF89a'], 'shot.gif', {type: 'image/gif'}));
  document.querySelector('textarea').dispatchEvent(new ClipboardEvent('paste', {clipboardData, bubbles: true, cancelable: true})); })()"""
PROJECTS = (
    DemoProject("web/design", "", (DemoCommit("Focus rings are seen", "priya", 400, "style+ unit+"),)),
    DemoProject("web/checkout", "", (DemoCommit("The basket survives", "tomas", 4, "compile+ unit*"),)),
    DemoProject(
        "web/storefront",
        "The shop.",
        (DemoCommit(LONG, "mei", 18, "compile+ browser-"), DemoCommit(HOSTILE, "ada", 90, "compile+")),
        (DemoMergeRequest("Show delivery dates", "priya", 10, "delivery", "compile+"),),
        (("Prices are off", "jonas"),),
    ),
    DemoProject("empty/handbook", "Nothing yet."),
)


@dataclass
class PagesSite:
    """One service and one browser for the whole file."""

    forge: DemoServer
    page: BrowserPage

    async def visit(self, path: str, username: str | None = "ada", **stored: str) -> None:
        """Shows a page to somebody, or to nobody in a new document whose storage has what is given."""
        if username is not None:
            await self.page.visit(self.forge.address + path, self.forge.tokens[username])
        else:
            await self.page.open_with_storage(self.forge.address + path, stored, clear=True)
            await self.page.wait_for(IS_SHOWN)

    async def settings(self, **values: str | None) -> None:
        text = "mutation ($input: UpdateSettingsInput!) { updateSettings(input: $input) { userErrors { message } } }"
        assert await self.run(text, input=values) == {"updateSettings": {"userErrors": []}}

    async def run(self, text: str, username: str = "ada", **variables: object) -> object:
        """The data of an operation, run as somebody."""
        outcome = await self.forge.app.graph.run_document(text, variables, None, self.forge.tokens[username], request_id="test")
        assert outcome.errors == []
        return outcome.data

    async def set_external_status(self, path: str, state: str) -> None:
        """Reports a state of the check `unit` of the newest commit of a project."""
        project, tip = self.forge.tips[path]
        text = "mutation ($input: CreateCommitStatusInput!) { createCommitStatus(input: $input) { userErrors { message } } }"
        await self.run(text, input={"projectPath": project, "sha": tip, "ref": "main", "name": "unit", "state": state})

    async def wait_for_state(self, path: str, state: str) -> None:
        """Waits until a tile has a state."""
        await self.page.wait_for(f"document.querySelector('[data-path=\"{path}\"]').dataset.state === '{state}'")

    async def tiles(self) -> list[list[str]]:
        """The tiles in their order: name, state, word."""
        expression = "[t.querySelector('h2').innerText, t.dataset.state, t.querySelector('.badge').innerText]"
        found: list[list[str]] = await self.page.evaluate(f"[...document.querySelectorAll('.tile')].map(t => {expression})")
        return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PagesSite]:
    folder = tmp_path_factory.mktemp("pages")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
        yield PagesSite(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: PagesSite) -> AsyncIterator[PagesSite]:
    """What the browser complains of, as of a breach of the content security policy, fails the test in which it happens."""
    await shared.page.set_viewport(1280, 800)
    await shared.page.set_color_scheme("light")
    with shared.page.expect_no_errors():
        yield shared


class TestSignIn:
    async def test_sign_in_by_token_redirects_to_the_requested_page(self, site: PagesSite) -> None:
        page = site.page
        await site.settings(signInText="Ask [the office](https://office.example.org/keys) first.\n\n<b>Not</b> bold.")
        await site.visit("/web/storefront", None)
        await page.wait_for_text("<b>Not</b> bold.")
        assert await page.evaluate("document.querySelector('.prose a').href") == "https://office.example.org/keys"

        await page.type("no-such-token")
        await page.press("Enter")
        await page.wait_for_text("Invalid token.")
        # The browser itself reports each answer of 401 on its console.
        assert all("401" in error for error in page.errors)
        page.errors.clear()
        await page.type(site.forge.tokens["ada"])
        await page.press("Enter")

        await page.wait_for_text("The shop.")
        assert await page.evaluate("document.title") == "Web / storefront · Forgefront"
        assert await page.evaluate("localStorage.length + document.cookie.length") == 0

    async def test_sign_in_by_password_with_a_kept_session(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/-/sign_in", None)
        await page.click(".switch")
        await page.type("mei")
        await page.press("Tab")
        await page.type("mei signs in")
        await page.click("[name=stay]")
        await page.click(".primary")
        await page.wait_for("document.querySelectorAll('.tile').length === 4")
        assert await page.evaluate("location.pathname") == "/"
        assert site.forge.tokens["mei"] in await page.evaluate("localStorage.getItem('forgefront.session')")

    async def test_sign_out(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/")
        await site.settings(afterSignOutPath="/-/health?bye")
        await page.click("#sign-out")
        await page.wait_for("location.search === '?bye'")
        assert await page.evaluate("sessionStorage.length") == 0
        await site.settings(afterSignOutPath=None)

    async def test_sign_out_forgets_what_is_being_typed(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/web/storefront/issues/1", "mei")
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Not sent")
        await page.evaluate("document.querySelector('#sign-out').click()")
        await page.wait_for("location.pathname === '/-/sign_in' && document.querySelector('form')")
        # What is typed is stored after 0.3 s.
        await asyncio.sleep(0.4)
        assert await page.evaluate("sessionStorage.length") == 0

    async def test_the_front_page_redirects_anonymous_visitors(self, site: PagesSite) -> None:
        await site.settings(homePageUrl=f"{site.forge.address}/-/health?home")
        await site.page.open(f"{site.forge.address}/-/health")
        await site.page.evaluate("sessionStorage.clear(), localStorage.clear()")
        await site.page.open(site.forge.address)
        await site.page.wait_for("location.search === '?home'")
        await site.settings(homePageUrl=None)


class TestFiles:
    async def test_those_of_a_page_are_requested_once(self, site: PagesSite) -> None:
        await site.visit("/web/storefront")
        for path in ("/", "/web/storefront"):
            await site.page.open_signed_in(site.forge.address + path, site.forge.tokens["ada"])
            await site.page.wait_for(IS_SHOWN)
        files = "performance.getEntriesByType('resource').filter(each => each.name.includes('/-/pages/'))"
        assert await site.page.evaluate(f"{files}.length") > 10
        assert await site.page.evaluate(f"{files}.filter(each => each.transferSize > 0).map(each => each.name)") == []


class TestWall:
    async def test_shows_author_age_and_failures_worst_first(self, site: PagesSite) -> None:
        await site.visit("/")
        await site.page.wait_for("document.querySelector('.tile')")
        assert await site.tiles() == [
            ["storefront", "FAILED", "failed"],
            ["checkout", "RUNNING", "running"],
            ["design", "SUCCESS", "passed"],
            ["handbook", "NONE", "no builds"],
        ]
        first = await site.page.evaluate(
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

    async def test_a_finished_build_updates_its_tile(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/")
        await page.wait_for("document.querySelector('#live[data-state=live]')")
        await page.evaluate(
            "document.querySelector('[data-path=\"web/checkout\"] a').focus(), window.kept = document.querySelector('.tile')"
        )
        await site.forge.set_status_by_name("web/checkout", "unit", "FAILED")
        await site.wait_for_state("web/checkout", "FAILED")
        assert [name for name, *_ in await site.tiles()] == ["storefront", "checkout", "design", "handbook"], "tiles keep their places"
        assert await page.evaluate("document.activeElement.textContent") == "checkout"
        assert await page.evaluate("document.querySelector('.tile') === window.kept"), "only the tile concerned is replaced"
        await page.wait_for("document.getElementById('said').textContent === 'checkout: failed.'")

    async def test_events_during_a_disconnect_appear_after_reconnecting(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/")
        for name, status in (("contract", "RUNNING"), ("package", "FAILED")):
            await page.wait_for("document.querySelector('#live[data-state=live]')")
            for follower in list(site.forge.app.graph.services.broadcaster._subscribers):
                follower.end(StreamEnd.SLOW_CONSUMER)
            await site.forge.set_status_by_name("web/design", name, status)
            await site.wait_for_state("web/design", "RUNNING")
        await site.forge.set_status_by_name("web/design", "contract", "SUCCESS")
        await site.wait_for_state("web/design", "FAILED")

    async def test_external_statuses_appear(self, site: PagesSite) -> None:
        await site.visit("/")
        await site.page.wait_for("document.querySelector('#live[data-state=live]')")
        for state in ("SUCCESS", "FAILED"):
            await site.set_external_status("web/checkout", state)
            await site.wait_for_state("web/checkout", state)

    @pytest.mark.parametrize(("operation", "answered"), [("Builds", False), ("Wall", True), ("Heads", False)])
    async def test_changes_while_it_is_opened_appear(self, site: PagesSite, operation: str, answered: bool) -> None:
        """Before its first stream, while the projects are read, and before its second stream."""
        page = site.page
        async with page.hold(operation, answered=answered):
            await page.open_signed_in(site.forge.address, site.forge.tokens["ada"])
            await page.wait_for("window.isHeld" if operation == "Wall" else "window.isHeld && document.querySelector('.tile')")
        broadcaster = site.forge.app.graph.services.broadcaster
        for state in ("SUCCESS", "FAILED"):
            position = broadcaster.watermark
            await site.set_external_status("web/checkout", state)
            await wait_until(lambda position=position: broadcaster.watermark > position)
            await page.evaluate("window.release()")
            await page.wait_for("document.querySelector('.tile')")
            await site.wait_for_state("web/checkout", state)

    async def test_a_revoked_token_redirects_to_sign_in(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/", "guest")
        await page.wait_for("document.querySelector('#live[data-state=live]')")
        text = "mutation { resetPrivateToken(input: {}) { userErrors { message } } }"
        await site.run(text, "guest")
        site.forge.tokens["guest"] = await site.forge.token("guest")
        await page.wait_for_text("You are no longer signed in")
        assert all("401" in error for error in page.errors)
        page.errors.clear()

    async def test_access_tokens_are_created_shown_once_and_revoked(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/u/mei", "mei")
        await page.wait_for_text("No access tokens.")
        assert await page.evaluate("!document.querySelector('[value=ADMIN]')")
        await page.evaluate("document.querySelector('#token-name').focus()")
        await page.type("CI server")
        await page.evaluate("document.querySelector('[value=READ]').click(), document.querySelector('#token-expires').value = '2999-01-01'")
        await page.open(f"{site.forge.address}/-/profile")
        await page.wait_for("location.pathname === '/-/profile' && document.querySelector('main form')")
        await page.open(f"{site.forge.address}/u/mei")
        await page.wait_for_text("This is what you typed before")
        assert await page.evaluate("[document.querySelector('#token-name').value, document.querySelector('[value=READ]').checked]") == [
            "CI server",
            True,
        ]
        await page.evaluate("document.querySelector('form button.primary').click()")
        await page.wait_for_text("It is not shown again.")
        token = await page.evaluate("document.querySelector('[role=status] code').textContent")
        assert await page.evaluate("Object.keys(sessionStorage)") == ["forgefront.session"]
        viewer = await site.forge.app.graph.run_document("{ viewer { username } }", {}, None, str(token), request_id="test")
        assert viewer.data == {"viewer": {"username": "mei"}}
        await site.visit("/u/mei", "mei")
        await page.wait_for_text("never used")
        text = str(await page.evaluate("document.querySelector('.tokens').textContent"))
        assert "CI server" in text and "read" in text and "expires in" in text
        assert str(token) not in str(await page.evaluate("document.body.textContent"))
        await site.visit("/u/mei", "ada")
        await page.wait_for_text("CI server")
        assert await page.evaluate("!document.querySelector('#token-name')")
        for answer, rows in (("false", 1), ("true", 0)):
            await page.evaluate(f"window.confirm = (question) => (window.question = question, {answer})")
            await page.evaluate("document.querySelector('.tokens button').click()")
            await page.wait_for(f"document.querySelectorAll('.tokens .row').length === {rows}")
            assert "Revoke" in str(await page.evaluate("window.question"))
        await site.visit("/u/mei", "guest")
        await page.wait_for_text("member since")
        assert "Access tokens" not in str(await page.evaluate("document.body.textContent"))

    async def test_the_page_of_a_person_shows_what_the_viewer_may_see(self, site: PagesSite) -> None:
        page = site.page
        texts = "[...document.querySelectorAll('main .part')].map((part) => [part.querySelector('h2').innerText, part.innerText])"
        await site.visit("/u/mei", "priya")
        parts = dict(await page.evaluate(texts))
        assert list(parts) == ["Activity", "Projects", "Builds"]
        assert "joined the project" in parts["Activity"] and "web/storefront" in parts["Activity"]
        assert "web/storefront" in parts["Projects"] and "private" in parts["Projects"]
        await site.visit("/u/mei", "guest")
        parts = dict(await page.evaluate(texts))
        assert all("web/" not in text and "that you can see" in text for text in parts.values())
        async with site.forge.app.graph.services.database.write_session() as session:
            common = {"project_id": 1, "author_id": 1, "action": ActivityAction.JOINED, "subject": ActivitySubject.MEMBER}
            session.add_all([tables.Activity(**common) for _ in range(20)])
            await session.commit()
        await site.visit("/u/ada", "mei")
        parts = dict(await page.evaluate(texts))
        assert "Web" in parts["Groups"]
        shown = await page.evaluate("document.querySelectorAll('.column:first-child .row').length")
        await page.evaluate("[...document.querySelectorAll('button.more')].find((each) => each.innerText === 'More activity').click()")
        await page.wait_for(f"document.querySelectorAll('.column:first-child .row').length > {shown}")

        await site.visit("/u/priya", "mei")
        links = await page.evaluate("[...document.querySelectorAll('nav.chips a')].map((each) => [each.innerText, each.search])")
        assert links[0] == ["Merge requests created", "?author=priya&scope=all"]
        await page.evaluate("document.querySelector('nav.chips a').click()")
        await page.wait_for("document.querySelector('h1').innerText === 'Merge requests of all projects'")
        await page.wait_for_text("Show delivery dates")
        await site.visit("/-/merge_requests?author=priya&scope=all", "guest")
        await page.wait_for_text("No merge request matches")

    async def test_keyboard_navigation(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/")
        await page.wait_for("document.querySelector('.tile')")
        await page.press("?")
        await page.wait_for("document.querySelector('dialog[open]')")
        await page.press("Escape")
        await page.wait_for("!document.querySelector('dialog[open]')")
        await page.press("/")
        await page.type("e")
        await page.press("Escape", "j", "j", "k", "ArrowRight")
        assert await page.evaluate("document.activeElement === document.querySelectorAll('.tile:not([hidden]) h2 a')[1]")
        await page.press("/")
        await page.type("design")
        await page.wait_for("[...document.querySelectorAll('.tile')].filter(t => !t.hidden).length === 1")
        await page.press("ArrowDown", "Enter")
        await page.wait_for("location.pathname === '/web/design' && document.activeElement.tagName === 'H1'")
        # The filter is written into the address 0.25 s after it was typed.
        await asyncio.sleep(0.4)
        assert await page.evaluate("location.search") == ""
        await page.press("/")
        await page.wait_for("document.activeElement.id === 'find-field'")
        await page.type("checkout")
        await page.wait_for("document.querySelector('[role=option][aria-selected=true]')?.innerText.includes('checkout')")
        await page.evaluate("document.activeElement.select()")
        await page.type("storefront")
        await page.press("Enter")
        await page.wait_for_text("The shop.")
        assert await page.evaluate("location.pathname") == "/web/storefront", "what was typed is opened, not what was found before"
        await page.press("u")
        await page.wait_for("location.pathname === '/groups/web' && document.querySelectorAll('.tile').length === 3")
        await page.evaluate("history.back()")
        await page.wait_for("document.querySelector('.tabs')")

    async def test_the_find_box_searches_again_after_a_failure_and_closes_with_its_page(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/web/checkout")
        await page.evaluate("document.querySelector('#find').click()")
        await page.wait_for("document.activeElement.id === 'find-field'")
        await page.type("checkout")
        option = "document.querySelector('[role=option][aria-selected=true]')"
        await page.wait_for(f"{option}?.innerText.includes('checkout')")
        await page.evaluate("(window.really = fetch, window.fetch = () => Promise.reject(new TypeError('Failed to fetch')), 1)")
        await page.evaluate("document.activeElement.select()")
        await page.type("storefront")
        await page.wait_for(f"document.querySelector('.find-note').innerText === 'The service cannot be reached.' && !{option}")
        await page.evaluate("(window.fetch = window.really, 1)")
        await page.press("Enter")
        await page.wait_for("location.pathname === '/web/storefront' && !document.querySelector('dialog.find')")
        await page.evaluate("document.querySelector('#find').click()")
        await page.wait_for("document.activeElement.id === 'find-field'")
        await page.evaluate("history.back()")
        await page.wait_for("location.pathname === '/web/checkout' && !document.querySelector('dialog.find')")

    async def test_the_find_box_opens_what_was_typed_although_answers_about_an_earlier_text_arrive(self, site: PagesSite) -> None:
        page = site.page
        async with page.hold("FindFiles", answered=True):
            await site.visit("/web/design")
            await page.evaluate("document.querySelector('#find').click()")
            await page.wait_for("document.activeElement.id === 'find-field'")
            await page.type("checkout")
            await page.wait_for(
                "window.isHeld && document.querySelector('[role=option][aria-selected=true]')?.innerText.includes('checkout')"
            )
            enter = "new KeyboardEvent('keydown', {key: 'Enter', cancelable: true})"
            await page.evaluate(
                "((field) => (field.value = 'storefront', field.dispatchEvent(new Event('input')), field.dispatchEvent("
                f"{enter}), release()))(document.querySelector('#find-field'))"
            )
            await page.wait_for("location.pathname !== '/web/design' && !document.querySelector('dialog.find')")
            assert await page.evaluate("location.pathname") == "/web/storefront"

    async def test_shows_an_empty_state(self, site: PagesSite) -> None:
        await site.visit("/", "guest")
        await site.page.wait_for_text("No projects yet")
        # Also on a phone, one's own issues and the way out have links.
        await site.page.set_viewport(360, 640, mobile=True)
        shown = "[...document.querySelectorAll('.top :is(a, button)')].filter(each => each.checkVisibility()).map(each => each.ariaLabel)"
        assert {"Find", "Your issues", "Your merge requests", "Sign out"} <= set(await site.page.evaluate(shown))
        assert await site.page.evaluate("document.documentElement.scrollWidth") == 360
        await site.page.set_viewport(1280, 800)
        await site.visit("/empty/handbook")
        await site.page.wait_for_text("git push -u origin main")


class TestProjects:
    async def test_join_commits_builds_and_merge_requests(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/web/storefront")
        await page.wait_for_text("Show delivery dates")
        shown = await page.evaluate("document.querySelector('.rows').innerText")
        assert HOSTILE in shown
        assert "Mei Tanaka" in shown
        assert await page.evaluate("document.querySelectorAll('.row .dots a').length") == 3
        await page.click(".tabs a[href$=builds]")
        await page.wait_for("location.pathname.endsWith('/builds') && document.querySelectorAll('.row').length === 4")
        chips = await page.evaluate("document.querySelector('nav.chips[aria-label=\"Filter by state\"]').innerText")
        assert chips.split()[:4] == ["all", "4", "failed", "1"]
        assert await page.evaluate("/[A-Z]/.test(document.querySelector('.row time').title.split(' ').at(-1))"), "the time has a zone"
        await page.click(".chips a[href*=failed]")
        await page.wait_for("location.search === '?status=failed' && document.querySelectorAll('.row').length === 1")
        await page.click(".tabs a[href$=issues]")
        await page.wait_for("location.pathname.endsWith('/issues') && document.querySelectorAll('.row').length === 1")
        await page.click(".row a[href$='/issues/1']")
        await page.wait_for_text("Prices are off")
        assert await page.evaluate("location.pathname") == "/web/storefront/issues/1"

    async def test_an_issue_is_answered_and_closed(self, site: PagesSite) -> None:
        page = site.page
        async with page.script_on_open(KEEP_MINUTES):
            await site.visit("/web/storefront/issues/1", "mei")
        await page.evaluate("document.querySelector('textarea').focus()")
        await page.type(f"Seen too. {HOSTILE}")
        await page.evaluate(PASTE_IMAGE)
        await page.wait_for("document.querySelector('textarea').value.includes('![shot](')")
        await page.click(".actions button")
        await page.wait_for_text("Status changed to closed")
        await page.wait_for_text(f"Seen too. {HOSTILE}")
        await page.wait_for("document.querySelector('.note img[alt=shot]')?.src.startsWith('data:')")
        # What somebody else writes appears while a comment is being typed.
        await page.evaluate("document.querySelector('textarea').focus()")
        await page.type("But")
        comment = """mutation { createNote(input: {projectPath: "web/storefront", issueIid: 1, body: "Fixed in 1.2."}) {
            userErrors { message } } }"""
        assert (await run(site.forge, comment))["createNote"]["userErrors"] == []
        await page.wait_for("document.querySelector('.notes').innerText.includes('Fixed in 1.2.')")
        # No event reports a changed description, so the page polls each minute.
        described = """mutation { updateIssue(input: {projectPath: "web/storefront", iid: 1, description: "Told better."}) {
            userErrors { message } } }"""
        assert (await run(site.forge, described))["updateIssue"]["userErrors"] == []
        await page.evaluate("minutes.forEach((act) => act())")
        await page.wait_for_text("Told better.")
        assert await page.evaluate("document.activeElement.value") == "But"

    async def test_hidden_objects_are_not_found(self, site: PagesSite) -> None:
        for path in ("/web/storefront", "/web/nothing", "/web/storefront/issues/1", "/groups/nobody", "/u/nobody"):
            await site.visit(path, "guest")
            await site.page.wait_for_text("Not found")
            await site.page.wait_for_text("or you may not see it.")
            await site.page.wait_for("document.getElementById('live').hidden", "the page has no streams")
        assert await site.page.evaluate("document.title") == "Not found · Forgefront"


class TestAppearance:
    async def test_fit_a_telephone_and_can_be_read_in_both_schemes(self, site: PagesSite) -> None:
        page = site.page
        await page.set_viewport(360, 640, mobile=True)
        for path in VISITED_PATHS.split():
            await page.set_color_scheme("light")
            await site.visit(path)
            assert await page.evaluate("document.documentElement.scrollWidth") == 360, path
            for scheme, bright in (("light", "> 600"), ("dark", "< 150")):
                await page.set_color_scheme(scheme)
                await page.wait_for(f"{BRIGHTNESS} {bright}")
                assert await page.evaluate(CONTRAST) == [], (path, scheme)

    async def test_follows_the_system_until_a_scheme_is_chosen(self, site: PagesSite) -> None:
        page = site.page
        await site.visit("/")
        await page.wait_for(f"{BRIGHTNESS} > 600")
        await page.set_color_scheme("dark")
        await page.wait_for(f"{BRIGHTNESS} < 150")
        await page.click("#theme")
        await page.wait_for(f"{BRIGHTNESS} > 600", "light is chosen")
        await page.open(site.forge.address)
        await page.wait_for(f"document.querySelector('.tile') && {BRIGHTNESS} > 600", "light stays chosen")


async def test_pushes_to_projects_that_were_not_on_the_wall_at_first_appear(site: PagesSite) -> None:
    page = site.page
    commit = """mutation ($path: String!, $file: String!) { createCommit(input: {projectPath: $path, branch: "main", message: "Pushed",
      actions: [{action: CREATE, path: $file, content: "a"}]}) { userErrors { message } } }"""
    await site.visit("/?search=design")
    await page.wait_for("document.querySelector('#live[data-state=live]')")
    await page.evaluate("(field => { field.value = ''; field.dispatchEvent(new Event('input')); })(document.querySelector('#filter'))")
    await page.wait_for("document.querySelectorAll('.tile').length === 4")
    for path in ("web/checkout", "empty/handbook"):
        await site.run(commit, path=path, file="new.txt")
        await page.wait_for(f"document.querySelector('[data-path=\"{path}\"]').innerText.includes('Pushed')")


VISITED_PATHS = """/ /web/storefront /web/storefront/builds /web/storefront/issues/1 /web/storefront/merge_requests/1
/web/storefront/builds/4 /web/storefront/activity /web/storefront/settings /web/storefront/settings/hooks /-/sign_in"""
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
  const above = getComputedStyle(each).color;
  const known = window.ratios ??= new Map();
  const key = [...below, above].join();
  if (!known.has(key)) {
    const [a, b] = [luminance(below), luminance([...below, above])];
    known.set(key, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  const ratio = known.get(key);
  return ratio < 4.5 ? [`${each.className} ${each.textContent.slice(0, 30)} ${ratio.toFixed(2)}`] : [];
})"""
"""The texts whose contrast is under 4.5 to 1 (WCAG 2.2, 1.4.3): colours are laid over each other from the root inward."""


class TestWindows:
    async def test_of_one_browser_leave_connections_for_requests(self, site: PagesSite) -> None:
        """A browser has six connections for a service, and the page of a project three streams."""
        request = "fetch('/-/health', {credentials: 'omit', signal: AbortSignal.timeout(5000)}).then(() => true, () => false)"
        state = "document.getElementById('live').dataset.state"
        broadcaster = site.forge.app.graph.services.broadcaster
        await site.page.open("about:blank")
        await wait_until(lambda: not broadcaster._subscribers)
        async with open_windows(2) as windows:
            first, second = windows
            for window in windows:
                await window.open_signed_in(f"{site.forge.address}/web/storefront", site.forge.tokens["ada"])
                await window.wait_for(f"{state} === 'live'")
            await first.wait_for(f"{state} === 'paused'")
            await wait_until(lambda: len(broadcaster._subscribers) == 3)
            assert [await window.evaluate(request) for window in windows] == [True, True]

            text = "mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { userErrors { message } } }"
            await site.run(text, input={"projectPath": "web/storefront", "iid": 1, "title": "Another title"})
            has_title = "document.querySelector('main').innerText.includes('Another title')"
            await second.wait_for(has_title)
            assert not await first.evaluate(has_title)
            await first.evaluate("dispatchEvent(new Event('focus'))")
            await first.wait_for(f"{state} === 'live' && {has_title}")
            await second.wait_for(f"{state} === 'paused'")

            await first.open("about:blank")
            await second.wait_for(f"{state} === 'live'")
            assert [window.errors for window in windows] == [[], []]


class TestManyProjects:
    async def test_are_found_by_description_and_by_group(self, site: PagesSite) -> None:
        page = site.page
        text = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { userErrors { message } } }"
        await site.run(text, input={"name": "oldest", "groupPath": "empty", "description": "Flown by a drone."})
        for number in range(52):
            await site.run(text, input={"name": f"number {number}", "groupPath": "empty"})
        await site.run(text, input={"name": "latest", "groupPath": "web"})
        shown = "[...document.querySelectorAll('.tile')].filter((each) => each.checkVisibility()).map((each) => each.dataset.path)"
        await site.visit("/")
        await page.wait_for(f"({shown}).length === 50")
        for typed, found in (("drone", "empty/oldest"), ("web", "web/latest"), ("number", "empty/number-51")):
            async with page.observe_network():
                await page.evaluate("(document.querySelector('#filter').focus(), document.querySelector('#filter').select())")
                await page.type(typed)
                await page.wait_for(f"location.search === '?search={typed}'")
                await wait_until(lambda: bool(page.requests))
            # Until the service has answered, those that are loaded are narrowed.
            await asyncio.sleep(0.3)
            await page.wait_for(f"({shown}).includes('{found}')")
        await page.wait_for("document.querySelector('.chips [aria-pressed=true] b').innerText === '50+'")
