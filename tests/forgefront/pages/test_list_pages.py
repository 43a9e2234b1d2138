"""Issues and merge requests in a real browser: lists with filters, counts, pages and keys; forms that create and change them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from graph.live.broadcaster import StreamEnd
from tests.forgefront.support.browser import CHROMIUM, BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, DemoServer, run_demo_server
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
WRITTEN = "web/written"
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
    DemoProject(
        WRITTEN, "", (DemoCommit("Begin", "mei", 18),), (DemoMergeRequest("Reviewed", "priya", 10, "topic"),), (("Old title", "jonas"),)
    ),
)
ISSUE = """mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { issue { iid } userErrors { message } } }"""
NEW_ISSUE = """mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { iid } userErrors { message } } }"""
NOTE = """mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { message } } }"""
MILESTONE = (
    """mutation ($input: CreateMilestoneInput!) { createMilestone(input: $input) { milestone { databaseId } userErrors { message } } }"""
)
NEW_PROJECT = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { userErrors { message } } }"
RENAME = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { message } } }"
LIVE = "document.querySelector('#live[data-state=live]')"
HIDDEN_TAB = """Object.defineProperties(Document.prototype, {
  hidden: {get: () => !window.isShown}, visibilityState: {get: () => window.isShown ? 'visible' : 'hidden'}})"""
"""Opens pages as in a tab in the background, until they set `isShown`."""
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
        await self.page.visit(self.forge.address + path, self.forge.tokens[username])

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
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
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
    await shared.page.set_viewport(1280, 800)
    with shared.page.expect_no_errors():
        yield shared


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

    async def test_an_earlier_request_that_fails_late_shows_nothing(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/issues")
        await page.evaluate("""(() => {
          const fetchReally = window.fetch;
          window.fetch = (url, options) => {
            const name = String(url).endsWith('/graphql') && JSON.parse(new TextDecoder().decode(options.body)).operationName;
            if (name !== 'ProjectIssues' || window.fail) return fetchReally(url, options);
            return new Promise((_, reject) => (window.fail = () => reject(new TypeError('Failed to fetch'))));
          };
          window.narrow = (words) => {
            const field = document.querySelector('#filter-search');
            field.value = words;
            field.dispatchEvent(new Event('change'));
          };
        })()""")
        await page.evaluate("window.narrow('Step 01')")
        await page.wait_for("window.fail")
        await page.evaluate("window.narrow('Step 02')")
        await page.wait_for(f"({TITLES}).join() === 'Step 02'")
        await page.evaluate("(window.fail(), new Promise((resolve) => setTimeout(resolve, 50)))")
        assert await page.evaluate(TITLES) == ["Step 02"]

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
        await page.wait_for(f"({TITLES}).includes('Show delivery dates')")
        await site.visit("/", "mei")
        await page.press("i")
        await site.wait_for_titles(HOSTILE)
        await page.evaluate("[...document.querySelectorAll('.chips a')].find(each => each.innerText === 'created by you').click()")
        await page.wait_for_text("No issues yet")
        await page.press("m")
        await page.wait_for("location.pathname === '/-/merge_requests' && /merge requests/i.test(document.querySelector('h1').innerText)")
        await site.visit("/-/merge_requests?scope=created", "priya")
        await page.wait_for(f"({TITLES}).includes('Show delivery dates')")


class TestNewIssue:
    async def test_what_was_typed_survives_a_service_that_cannot_be_reached(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{WRITTEN}/issues")
        await page.click(".list-head .primary")
        await page.wait_for("document.activeElement.name === 'title'")
        await page.type(HOSTILE)
        await page.evaluate("document.querySelector('[name=description]').focus()")
        await page.type("It **leaks** <b>badly</b>")
        await page.click(".preview-button")
        await page.wait_for("document.querySelector('.preview strong')?.innerText === 'leaks'")
        assert await page.evaluate("document.querySelector('.preview').innerText.trim()") == "It leaks <b>badly</b>"
        await page.click(".preview-button")
        async with page.without_network():
            await page.click(".work-form .primary")
            await page.wait_for_text("The service cannot be reached.")
            await page.click("#crumbs a")
            await page.wait_for_text("This page opens as soon as it answers.")
        await page.wait_for("document.querySelector('.tabs')", "the page opens automatically")
        await page.evaluate("history.back()")
        await page.wait_for("document.querySelector('.work-form')")
        assert all("ERR_INTERNET_DISCONNECTED" in error for error in page.errors)
        page.errors.clear()
        await page.send("Page.reload")
        await page.wait_for_text("This is what you typed before and did not send.")
        assert await page.evaluate("document.querySelector('[name=title]').value") == HOSTILE
        # A name that no label may have is refused at its field.
        await page.evaluate("document.querySelector('[name=newLabels]').focus()")
        await page.type("urgent, a?b")
        await page.click(".work-form .primary")
        await page.wait_for("document.querySelector('[data-field=labels] .wrong:not([hidden])')?.innerText.includes('is invalid')")
        await page.evaluate("document.querySelector('[name=newLabels]').value = 'urgent'")
        await page.click(".work-form .primary")
        await page.wait_for("/issues\\/2$/.test(location.pathname) && document.querySelector('.facts .label')?.innerText === 'urgent'")
        assert HOSTILE in await page.evaluate("document.querySelector('h1').innerText")
        assert await page.evaluate("Object.keys(sessionStorage).filter(each => each.includes('draft')).length") == 0

    async def test_labels_milestone_and_assignee_are_changed_in_place(self, site: ListSite) -> None:
        page = site.page
        await site.run(MILESTONE, input={"projectPath": WRITTEN, "title": "Spring"})
        await site.visit(f"/{WRITTEN}/issues/1")
        await page.evaluate("document.querySelector('.triage').open = true")
        await page.wait_for("document.querySelector('.triage [name=milestoneId]')")
        # Meanwhile somebody else adds a label, which stays.
        await site.run(ISSUE, input={"projectPath": WRITTEN, "iid": 1, "labels": ["of another"]})
        await page.evaluate("document.querySelector('.triage [name=newLabels]').value = 'late'")
        for name, word in (("milestoneId", "Spring"), ("assigneeId", "Mei Tanaka (mei)")):
            choice = f"[...document.querySelector('[name={name}]').options].find(each => each.innerText === '{word}').selected = true"
            await page.evaluate(choice)
        await page.click(".triage .primary")
        facts = "document.querySelector('.facts').innerText"
        await page.wait_for(f"['Spring', 'Mei Tanaka', 'late', 'of another'].every(each => {facts}.includes(each))")

    async def test_an_edit_does_not_overwrite_another(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{WRITTEN}/issues/1")
        await page.click(".head-line .button")
        await page.wait_for("document.activeElement.name === 'title'")
        await page.evaluate("document.activeElement.select()")
        await page.type("My title")
        await site.run(ISSUE, input={"projectPath": WRITTEN, "iid": 1, "description": "Theirs"})
        await page.click(".work-form .primary")
        await page.wait_for_text("Somebody else has changed this")
        await page.click(".work-form .primary")
        await page.wait_for("/issues\\/1$/.test(location.pathname) && document.querySelector('h1').innerText.includes('My title')")

    async def test_a_comment_is_kept_until_it_is_sent(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{WRITTEN}/issues/1", "jonas")
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Half a thought")
        await page.press("Escape", "w")
        await page.wait_for("document.querySelector('.tile')")
        await page.evaluate("history.back()")
        await page.wait_for("document.querySelector('#comment')?.value === 'Half a thought'")
        await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Close the issue').click()")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'closed'")
        await page.wait_for_text("Half a thought")
        assert await page.evaluate("document.querySelector('#comment').value") == ""

        # The comment is changed, and what was typed stays while the page is loaded again.
        edit = "document.querySelector('.note:not(.system) .edit-note')"
        editor = "document.querySelector('.note textarea')"
        await page.evaluate(f"{edit}.click()")
        await page.wait_for(f"{editor}?.value === 'Half a thought' && document.activeElement === {editor}")
        await page.evaluate(f"{editor}.select()")
        await page.type(f"A *whole* {HOSTILE}")
        await page.wait_for("Object.keys(sessionStorage).some(each => each.includes(' note '))", "the draft is kept")
        await page.evaluate("window.isOld = true, location.reload()")
        await page.wait_for(f"!window.isOld && {editor}?.value.startsWith('A *whole*')")
        await page.evaluate(f"{editor}.form.requestSubmit()")
        await page.wait_for("document.querySelector('.note .markdown em')?.innerText === 'whole'")
        assert HOSTILE.strip() in await page.evaluate("document.querySelector('.note .markdown:has(em)').innerText")
        assert await page.evaluate(f"document.activeElement === {edit}"), "the focus returns to the button"
        create = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { message } } }"
        await site.run(create, "mei", input={"projectPath": WRITTEN, "issueIid": 1, "body": "Meanwhile"})
        await page.wait_for_text("Meanwhile")
        assert await page.evaluate(f"document.activeElement === {edit}"), "the focus stays while others comment"

        await site.visit(f"/{WRITTEN}/issues/1", "mei")
        await page.wait_for_text("A whole")
        assert await page.evaluate("document.querySelector('.note:has(em) .edit-note')") is None, (
            "only the author and masters may change it"
        )
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Another thought")
        await page.evaluate("document.activeElement.form.requestSubmit()")
        await page.wait_for("document.querySelectorAll('.note:not(.system)').length === 3 && document.activeElement.id === 'comment'")
        await page.type(":+1:")
        await page.evaluate("document.activeElement.form.requestSubmit()")
        await page.wait_for("[...document.querySelectorAll('.note')].at(-1).innerText.includes('+1 In favor')", "a vote is shown as one")


class TestLiveIssues:
    async def test_changes_by_others_appear_also_after_a_disconnect(self, site: ListSite) -> None:
        page = site.page
        live = "document.querySelector('#live[data-state=live]')"
        made = await site.run(NEW_ISSUE, input={"projectPath": WRITTEN, "title": "Followed"})
        iid = made["createIssue"]["issue"]["iid"]
        issue = {"projectPath": WRITTEN, "iid": iid}
        await site.visit(f"/{WRITTEN}/issues/{iid}", "jonas")
        await page.wait_for(live)
        async with page.observe_network():
            await page.evaluate("document.querySelector('#comment').focus()")
            await page.type("Half a thought")
            await site.run(ISSUE, input={**issue, "title": HOSTILE, "labels": ["urgent"]})
            await page.wait_for(f"document.querySelector('h1').innerText.startsWith({json.dumps(HOSTILE)})")
            await page.wait_for("document.querySelector('.facts').innerText.includes('urgent')")
            broadcaster = site.forge.app.graph.services.broadcaster
            for body, reason in (("One more", StreamEnd.SHUTDOWN), ("And one", None)):
                for follower in list(broadcaster._subscribers) if reason else ():
                    follower.end(reason)
                await site.run(NOTE, input={"projectPath": WRITTEN, "issueIid": iid, "body": body})
                await page.wait_for_text(body)
            assert await page.evaluate("document.activeElement.id + document.activeElement.value") == "commentHalf a thought"
        # Nothing was requested without an event: the stream again, and the issue for each of them.
        assert 4 <= len(page.requests) <= 6
        await site.run(ISSUE, input={**issue, "stateEvent": "CLOSE"})
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'closed'")
        assert await page.evaluate("document.querySelector('#comment').value") == "Half a thought"
        await site.visit(f"/{WRITTEN}/issues")
        await page.wait_for(live)
        await site.run(NEW_ISSUE, input={"projectPath": WRITTEN, "title": "Made meanwhile"})
        await page.wait_for(f"({TITLES})[0] === 'Made meanwhile'")

    async def test_typing_and_the_focus_stay_in_a_list_that_changes(self, site: ListSite) -> None:
        page = site.page
        await site.visit(f"/{WRITTEN}/issues")
        await page.wait_for(LIVE)
        await page.press("/")
        await page.type("Half a word")
        await site.run(NEW_ISSUE, input={"projectPath": WRITTEN, "title": "While a filter is typed"})
        await page.wait_for(f"({TITLES})[0] === 'While a filter is typed'")
        assert await page.evaluate("document.activeElement.name + ' ' + document.activeElement.value") == "search Half a word"
        await page.evaluate("document.activeElement.value = '', document.querySelectorAll('nav.chips a')[1].focus()")
        await site.run(NEW_ISSUE, input={"projectPath": WRITTEN, "title": "While a link has the focus"})
        await page.wait_for(f"({TITLES})[0] === 'While a link has the focus'")
        assert await page.evaluate("document.activeElement === document.querySelectorAll('nav.chips a')[1]")

    async def test_others_change_a_long_issue_while_a_comment_is_typed(self, site: ListSite) -> None:
        page = site.page
        path = "web/moving"
        await site.run(NEW_PROJECT, input={"name": "moving", "path": "moving", "namespacePath": "web"})
        await site.run(NEW_ISSUE, input={"projectPath": path, "title": "Long"})
        for number in range(52):
            await site.run(NOTE, input={"projectPath": path, "issueIid": 1, "body": f"Note {number:02}"})
        await site.visit(f"/{path}/issues/1")
        await page.wait_for(LIVE)

        # Both change the labels and the assignee.
        await page.click(".triage summary")
        await page.wait_for("document.querySelector('[name=assigneeId]')?.options.length > 1")
        await site.run(ISSUE, input={"projectPath": path, "iid": 1, "labels": ["urgent"]})
        await page.wait_for("document.querySelector('.facts').innerText.includes('urgent')")
        await page.evaluate(
            "(field => { field.selectedIndex = 1; field.form.requestSubmit(); })(document.querySelector('[name=assigneeId]'))"
        )
        await page.wait_for("document.querySelector('.facts').innerText.includes('assigned to')")
        assert "urgent" in await page.evaluate("document.querySelector('.facts').innerText")

        # Another closes the issue.
        await page.wait_for("!document.querySelector('main[aria-busy]')")
        await page.evaluate("document.querySelector('#comment').focus(), document.querySelector('#comment').isOld = true")
        await page.type("Half a ")
        await site.run(ISSUE, input={"projectPath": path, "iid": 1, "stateEvent": "CLOSE"})
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'closed'")
        await page.press(*"word")
        assert await page.evaluate("document.activeElement.isOld && document.activeElement.value") == "Half a word"
        assert await page.evaluate("[...document.querySelectorAll('form button')].some(each => each.innerText === 'Reopen')")

        # One's own comment is behind those of the first page, and the page stays where it is.
        await page.evaluate("window.below = scrollY, document.activeElement.form.requestSubmit()")
        await page.wait_for_text("Half a word")
        assert await page.evaluate("below > 500 && scrollY >= below")
        assert await page.evaluate("document.querySelectorAll('.note:not(.system)').length") == 53
        last = await page.evaluate("[...document.querySelectorAll('.note[id]')].at(-1).id")
        await page.evaluate("[...document.querySelectorAll('form button')].find(each => each.innerText === 'Reopen').click()")
        await page.wait_for("document.querySelector('#comment') && !document.querySelector('#comment').isOld")
        assert await page.evaluate("scrollY > 500")
        await page.open("about:blank")
        await site.visit(f"/{path}/issues/1#{last}")
        await page.wait_for(f"(e => e && e.getBoundingClientRect().top > 0 && e.getBoundingClientRect().bottom < innerHeight)({last})")

        await site.run(RENAME, input={"projectPath": path, "path": "moved"})
        await site.run(NOTE, input={"projectPath": "web/moved", "issueIid": 1, "body": "After the move"})
        await page.wait_for_text("This was moved or deleted")

    async def test_a_hidden_tab_has_no_stream(self, site: ListSite) -> None:
        page = site.page
        streams = site.forge.app.graph.services.broadcaster._subscribers
        async with page.script_on_open(HIDDEN_TAB):
            await page.open("about:blank")
            await wait_until(lambda: not streams)
            await site.visit(f"/{PATH}/issues/2")
            assert not streams and not await page.evaluate(LIVE)
            await site.run(NOTE, input={"projectPath": PATH, "issueIid": 2, "body": "Unseen"})
            await page.evaluate("window.isShown = true, document.dispatchEvent(new Event('visibilitychange'))")
            await page.wait_for(LIVE)
            await page.wait_for_text("Unseen")

    async def test_changes_while_a_list_is_opened_appear(self, site: ListSite) -> None:
        page = site.page
        async with page.hold("ProjectIssues", answered=True):
            await page.open_signed_in(f"{site.forge.address}/{WRITTEN}/issues", site.forge.tokens["ada"])
            await page.wait_for("window.isHeld")
        await site.run(NEW_ISSUE, input={"projectPath": WRITTEN, "title": "Made while it was opened"})
        # A renewal begins 0.4 s after an event.
        await asyncio.sleep(0.6)
        await page.evaluate("window.release()")
        await page.wait_for(f"({TITLES})[0] === 'Made while it was opened'")


class TestLinksOfTexts:
    async def test_lead_to_files_headings_and_addresses(self, site: ListSite) -> None:
        page = site.page
        uploads = f"{site.forge.address}/api/v3/projects/{PATH.replace('/', '%2F')}/uploads"
        async with httpx.AsyncClient(headers={"PRIVATE-TOKEN": site.forge.tokens["ada"]}) as http:
            upload = (await http.post(uploads, files={"file": ("notes.pdf", b"%PDF-1.4", "application/pdf")})).json()["markdown"]
        lines = "A line\n\n" * 80
        text = f"{upload} [Mail](mailto:ada@example.org) [Below](#the-end)\n\n{lines}## The end!"
        made = await site.run(NEW_ISSUE, input={"projectPath": PATH, "title": "Links", "description": text})
        await site.visit(f"/{PATH}/issues/{made['createIssue']['issue']['iid']}")
        link = "document.querySelectorAll('.markdown a')"
        await page.evaluate("document.querySelector('h1').isOld = true")
        await page.evaluate("URL.createObjectURL = (blob) => (window.saved = blob.size, 'data:,')")
        await page.evaluate(f"{link}[0].click()")
        await page.wait_for("window.saved === 8")
        assert await page.evaluate(f"{link}[1].href") == "mailto:ada@example.org"
        await page.evaluate(f"{link}[2].click()")
        await page.wait_for("scrollY > 500 && location.hash === '#the-end'")
        await page.evaluate("history.back()")
        await page.wait_for("scrollY === 0 && location.hash === ''")
        assert await page.evaluate("document.querySelector('h1').isOld"), "the page is not opened again"


class TestNewMergeRequest:
    async def test_is_created_from_a_branch(self, site: ListSite) -> None:
        page = site.page
        branch = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { userErrors { message } } }"
        await site.run(branch, input={"projectPath": WRITTEN, "name": "feature", "ref": "topic"})
        await site.visit(f"/{WRITTEN}/merge_requests/new?title=Feature")
        assert await page.evaluate("document.querySelector('[name=targetBranch]').value") == "main"
        await page.evaluate("document.querySelector('[name=sourceBranch]').focus()")
        await page.type("nowhere")
        await page.press("Enter")
        wrong = "document.querySelector('[data-field=sourceBranch] .wrong:not([hidden])')"
        await page.wait_for(f"{wrong}?.innerText.includes('is not a branch')")
        await page.evaluate("document.querySelector('[name=sourceBranch]').select()")
        await page.type("feature")
        await page.press("Enter")
        await page.wait_for("document.querySelector('.facts .ref')?.innerText.includes('feature → main')")
        await page.evaluate("document.querySelector('.triage').open = true")
        await page.wait_for("document.querySelector('.triage [name=newLabels]')")
        await page.evaluate("document.querySelector('.triage [name=newLabels]').value = 'ready'")
        await page.click(".triage .primary")
        await page.wait_for("document.querySelector('.facts .label')?.innerText === 'ready'")


async def test_unusual_values_of_an_address_are_understood(site: ListSite) -> None:
    page = site.page
    await site.visit(f"/{PATH}/dashboard?range=constructor")
    await page.wait_for("document.querySelector('[name=range]')?.value === '30'")
    await site.visit(f"/{PATH}/builds?days=999999999")
    await page.wait_for("document.querySelector('.row')?.innerText.includes('compile')")
    for part in ("issues/99999999999", "merge_requests/99999999999/changes", "builds/2147483648"):
        await site.visit(f"/{PATH}/{part}")
        assert await page.evaluate("document.querySelector('h1').innerText") == "Not found", part


async def test_long_words_fit_a_telephone(site: ListSite) -> None:
    page = site.page
    await page.set_viewport(360, 640, mobile=True)
    word = "unbreakable_" * 12
    made = await site.run(NEW_ISSUE, input={"projectPath": WRITTEN, "title": word, "labels": [word]})
    issue = made["createIssue"]["issue"]["iid"]
    request = "mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { userErrors { message } } }"
    await site.run(request, input={"projectPath": WRITTEN, "iid": 1, "title": word})
    snippet = "mutation ($input: CreateSnippetInput!) { createSnippet(input: $input) { snippet { databaseId } userErrors { message } } }"
    values = {"projectPath": WRITTEN, "title": word, "fileName": word, "content": "1", "visibility": "PRIVATE"}
    snippet_id = (await site.run(snippet, input=values))["createSnippet"]["snippet"]["databaseId"]
    for part in (f"issues/{issue}", "merge_requests/1", f"snippets/{snippet_id}"):
        await site.visit(f"/{WRITTEN}/{part}")
        await page.wait_for("document.querySelector('h1')?.innerText.includes('unbreakable')")
        assert await page.evaluate("document.documentElement.scrollWidth") == 360, part


async def test_lists_fit_a_telephone(site: ListSite) -> None:
    await site.page.set_viewport(360, 640, mobile=True)
    for path in (f"/{PATH}/issues", f"/{PATH}/merge_requests", "/groups/web/issues", "/-/issues", f"/{PATH}/issues/new"):
        await site.visit(path)
        await site.page.wait_for("document.querySelector('.row, .empty, .work-form')")
        assert await site.page.evaluate("document.documentElement.scrollWidth") == 360, path
