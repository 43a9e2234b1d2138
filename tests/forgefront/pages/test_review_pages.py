"""The review of a merge request in a real browser: tabs, changed lines, comments on lines, suggestions, what was viewed."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select
from sqlmodel import col

from graph.fields.entities import global_id
from storage import tables
from tests.forgefront.pages.test_file_pages import FilesSite
from tests.forgefront.pages.test_pages import CONTRAST, HOSTILE
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
PROJECTS = (DemoProject(PATH, "The shop.", (DemoCommit("Start", "mei", 18),)),)
HOSTILE_NAME = f"src/{HOSTILE.replace('/', '_')}.html"
LINES = [f"def price_{number}(tax):\n" if number % 2 else f"    return {number} * tax\n" for number in range(1, 121)]
FILES = {"shop.py": "".join(LINES), HOSTILE_NAME: "old\n", "gone.txt": "gone\n", "with #space.txt": "a\n"}
CHANGED = [*LINES[:59], "    return 60 * vat  # <b>\u202e</b>\n", "added = 1\n", *LINES[60:]]
REQUEST = f"/{PATH}/merge_requests/1"
COMMENT = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { note { databaseId } userErrors { message } } }"
REPLY = "mutation ($input: ReplyToThreadInput!) { replyToThread(input: $input) { userErrors { message } } }"
TEXTS = "[...document.querySelectorAll('{}')].map(each => each.innerText.trim())"
FILE = "document.querySelector('#file-2 .diff-lines')"
HOLD_ANSWER = """void (really => window.fetch = async (url, options) => {{
  const name = String(url).endsWith('/graphql') && JSON.parse(new TextDecoder().decode(options.body)).operationName;
  const answer = await really(url, options);
  if (name === '{}' && !window.release) await new Promise((resolve) => (window.release = resolve));
  return answer;
}})(fetch)"""
"""Holds the next answer of an operation until the test calls `release()`."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FilesSite]:
    folder = tmp_path_factory.mktemp("review")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
        site = FilesSite(forge, page)
        encoded = {path: base64.b64encode(text.encode()).decode() for path, text in FILES.items()}
        await site.commit(
            "ada", "main", *({"action": "CREATE", "path": path, "content": text, "encoding": "BASE64"} for path, text in encoded.items())
        )
        await forge.run_as("ada", "CreateBranch", projectPath=PATH, name="topic", ref="main")
        await site.commit(
            "mei",
            "topic",
            {"action": "UPDATE", "path": "shop.py", "content": "".join(CHANGED)},
            {"action": "UPDATE", "path": HOSTILE_NAME, "content": f"<script>alert(1)</script> {HOSTILE}\n"},
            {"action": "DELETE", "path": "gone.txt"},
            {"action": "UPDATE", "path": "with #space.txt", "content": "b\n"},
        )
        await forge.run_as("mei", "CreateMergeRequest", projectPath=PATH, sourceBranch="topic", targetBranch="main", title=HOSTILE)
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: FilesSite) -> AsyncIterator[FilesSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    await shared.page.set_viewport(1280, 800)
    with shared.page.expect_no_errors():
        yield shared


class TestChanges:
    async def test_tabs_are_in_the_address(self, site: FilesSite) -> None:
        page = site.page
        await site.visit(REQUEST)
        await page.wait_for_text("It can be merged.")
        assert await page.evaluate(TEXTS.format(".tabs a")) == ["Discussion", "Commits 1", "Builds", "Changes 4"]
        assert "You may merge into main." in await page.evaluate("document.querySelector('.blockers').innerText")
        for word, found in (("Commits", "Behind"), ("Builds", "There are no builds"), ("Changes", "gone.txt")):
            await page.evaluate(f"[...document.querySelectorAll('.tabs a')].find(each => each.innerText.startsWith({word!r})).click()")
            await page.wait_for(
                f"location.pathname.endsWith({('/' + word.lower())!r}) && document.querySelector('.tab-body').innerText.includes({found!r})"
            )
            assert await page.evaluate("document.querySelector('.tabs [aria-current]').innerText") in (word, f"{word} 1", f"{word} 4")

    async def test_lines_words_colours_and_context(self, site: FilesSite) -> None:
        page = site.page
        await site.visit(f"{REQUEST}/changes")
        await page.wait_for("document.querySelector('#file-2 .syntax-keyword')")
        names = await page.evaluate("[...document.querySelectorAll('.file-list a')].map(each => each.title)")
        assert names == ["gone.txt", "shop.py", HOSTILE_NAME, "with #space.txt"]
        assert await page.evaluate(TEXTS.format("#file-2 .word")) == ["tax", "vat", "# <b>\u202e</b>"]
        assert "invisible characters" in await page.evaluate("document.querySelector('#file-2').innerText")
        new_lines = f"[...{FILE}.querySelectorAll('.line.same, .line.added')]"
        numbers = f"{new_lines}.map(each => Number(each.querySelectorAll('.number')[1].dataset.number))"
        assert await page.evaluate(numbers) == list(range(57, 65))
        await page.click("#file-2 .expand")
        await page.wait_for(f"{numbers}[0] === 37")
        await page.evaluate(f"[...{FILE}.querySelectorAll('.expand')].at(-1).click()")
        await page.wait_for(f"{numbers}.at(-1) === 84")
        assert await page.evaluate(numbers) == list(range(37, 85))
        for _ in range(4):
            await page.evaluate(f"[...{FILE}.querySelectorAll('.expand')].forEach(each => each.click())")
            await page.evaluate("new Promise(resolve => setTimeout(resolve, 50))")
        await page.wait_for(f"{numbers}.length === 121 && !{FILE}.querySelector('.expand')")
        text = f"{new_lines}.map(each => each.querySelector('.text').textContent.trimEnd())"
        assert await page.evaluate(text) == [each.rstrip() for each in CHANGED]

    async def test_side_by_side(self, site: FilesSite) -> None:
        page = site.page
        await site.visit(f"{REQUEST}/changes")
        await page.wait_for("document.querySelector('#file-2 .syntax-keyword')")
        await page.click("[data-layout=split]")
        await page.wait_for("document.querySelector('#file-2 .pair .half.removed')")
        number = "half => half.querySelector('.number').dataset.number ?? null"
        halves = f"[...document.querySelectorAll('#file-2 .pair')].map(each => [...each.querySelectorAll('.half')].map({number}))"
        assert await page.evaluate(halves) == [
            ["57", "57"],
            ["58", "58"],
            ["59", "59"],
            ["60", "60"],
            [None, "61"],
            ["61", "62"],
            ["62", "63"],
            ["63", "64"],
        ]
        await page.set_viewport(360, 640, mobile=True)
        await page.wait_for("!document.querySelector('.pair')")
        assert await page.evaluate("document.documentElement.scrollWidth") == 360
        await page.set_viewport(1280, 800)
        await page.wait_for("document.querySelector('#file-2 .pair')", "the choice stays")
        await page.click("[data-layout=unified]")

    async def test_a_comparison_and_a_commit_have_the_same_lines(self, site: FilesSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/compare?from=main&to=topic")
        # The address changes before the page does.
        for place, is_shown in (("compare", "document.querySelector('.comparison')"), ("commit", "!document.querySelector('.comparison')")):
            await page.wait_for(f"{is_shown} && document.querySelector('#file-2 .syntax-keyword')")
            assert await page.evaluate(TEXTS.format("#file-2 .word")) == ["tax", "vat", "# <b>\u202e</b>"]
            await page.click("#file-2 .expand")
            await page.wait_for(f"{FILE}.querySelectorAll('.line.same').length > 20")
            assert not await page.evaluate("document.querySelector('.diff-head')"), "nothing is marked as viewed"
            if place == "compare":
                await page.click(".rows .row-title a")

    async def test_by_keyboard_and_readable_in_both_schemes(self, site: FilesSite) -> None:
        page = site.page
        await site.visit(f"{REQUEST}/changes")
        await page.wait_for("document.querySelector('#file-2 .syntax-keyword')")
        for name in ("gone.txt", "shop.py"):
            await page.press("j")
            assert name in await page.evaluate("document.activeElement.innerText")
        await page.press("Enter")
        await page.wait_for("!document.querySelector('#file-2').open")
        await page.press("Enter")
        await page.wait_for("document.querySelector('#file-2').open")
        for scheme in ("light", "dark"):
            await page.set_color_scheme(scheme)
            assert await page.evaluate(CONTRAST) == []
        await page.set_color_scheme("light")


class TestThreads:
    async def test_a_line_is_discussed_by_keyboard_and_followed(self, site: FilesSite) -> None:
        """A thread is started, answered by somebody else, shown in the talk, resolved, and outdated by a commit."""
        page = site.page
        focused = "document.activeElement.getAttribute('aria-label')"
        await site.visit(f"{REQUEST}/changes")
        await page.wait_for("document.querySelector('#file-2 .syntax-keyword')")
        await page.evaluate(f"{FILE}.querySelector('.line-button[tabindex=\"0\"]').focus()")
        await page.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
        assert await page.evaluate(focused) == "Comment on line 60"
        await page.press("Enter")
        await page.wait_for("document.activeElement.matches('textarea')")
        await page.type(f"Which tax? {HOSTILE}")
        await page.wait_for("Object.keys(sessionStorage).some(each => each.endsWith('line +60 shop.py'))", "the draft is kept")
        await page.evaluate("window.isOld = true, location.reload()")
        await page.wait_for(f"!window.isOld && document.querySelector('#file-2 textarea')?.value === {f'Which tax? {HOSTILE}'!r}")
        await page.evaluate("document.querySelector('#file-2 textarea').focus()")
        await site.press_with_control("Enter")
        thread = "document.querySelector('#file-2 .thread')"
        await page.wait_for(f"{thread}?.innerText.includes('Which tax?') && !document.querySelector('#file-2 textarea')")
        assert await page.evaluate(f"{thread}.closest('.line-threads').previousElementSibling.querySelector('.text').innerText.trim()") == (
            "return 60 * vat  # <b>\u202e</b>"
        )
        assert await page.evaluate(focused) == "Comment on line 60"
        await page.click("[data-layout=split]")
        await page.wait_for("document.querySelector('#file-2 .pair + .line-threads .thread')")
        await page.set_viewport(360, 640, mobile=True)
        await page.wait_for("!document.querySelector('.pair')")
        assert await page.evaluate("document.documentElement.scrollWidth") == 360
        await page.set_viewport(1280, 800)
        await page.click("[data-layout=unified]")

        key = await page.evaluate("document.querySelector('#file-2 .thread').id.slice('thread-'.length)")
        await site.ask(REPLY, "mei", input={"id": global_id("ReviewThread", key), "body": "The local one."})
        await page.wait_for(f"{thread}.innerText.includes('The local one.')", "a reply is shown while the page is open")
        for scheme in ("light", "dark"):
            await page.set_color_scheme(scheme)
            assert await page.evaluate(CONTRAST) == []
        await page.set_color_scheme("light")

        await site.visit(REQUEST, "mei")
        await page.wait_for_text("1 unresolved thread")
        await page.wait_for_text("The local one.")
        assert await page.evaluate(TEXTS.format(".thread .excerpt .added .text")) == ["return 60 * vat  # <b>\u202e</b>"]
        await page.press("j")
        await page.wait_for("document.activeElement.matches('.thread summary')")
        await page.evaluate("[...document.querySelectorAll('.thread button')].find(each => each.innerText === 'Resolve').click()")
        await page.wait_for("document.querySelector('.thread').dataset.resolved === 'true' && !document.querySelector('.thread').open")
        await page.wait_for_text("All threads resolved")
        await page.evaluate("document.querySelector('.review input[type=checkbox]').click()")
        assert await page.evaluate("document.querySelector('.thread').checkVisibility()") is False

        await site.commit("mei", "topic", {"action": "UPDATE", "path": "shop.py", "content": "".join(CHANGED).replace("vat", "sum")})
        await site.visit(f"{REQUEST}/changes", "mei")
        await page.wait_for_text("Threads on lines that are not in the changes any more")
        assert (await page.evaluate(TEXTS.format(".review + .part .tag")))[0] == "outdated"

        await page.evaluate(f"{FILE}.querySelector('[aria-label=\"Comment on line 61\"]').click()")
        await page.evaluate(
            "[...document.querySelectorAll('#file-2 form button')].find(each => each.innerText === 'Suggest a change').click()"
        )
        await page.type("added = 2  # \u202e")
        await site.press_with_control("Enter")
        await page.wait_for("document.querySelector('#file-2 .suggestion')")
        assert await page.evaluate(TEXTS.format("#file-2 .suggestion .text")) == ["added = 1", "added = 2  # \u202e"]
        # What it commits may differ from what its reader sees.
        assert "invisible characters" in await page.evaluate("document.querySelector('#file-2 .suggestion').innerText")
        await page.click("#file-2 .suggestion button")
        await page.wait_for("document.querySelector('.suggestion figcaption')?.innerText.startsWith('Applied as ')")
        assert "added = 2  # \u202e\n".encode() in (await site.content("shop.py", "topic") or b"")
        await site.commit("mei", "topic", {"action": "UPDATE", "path": "shop.py", "content": "".join(CHANGED)})


class TestViewedFiles:
    async def test_a_mark_ends_when_the_file_changes(self, site: FilesSite) -> None:
        page = site.page
        await site.visit(f"{REQUEST}/changes")
        await page.wait_for_text("0 of 4 viewed")
        for name in ("gone.txt", "shop.py"):
            await page.press("j")
            await page.press("v")
            await page.wait_for(f"!document.activeElement.parentElement.open && document.activeElement.innerText.includes({name!r})")
        await page.wait_for_text("2 of 4 viewed")
        await site.visit(f"{REQUEST}/changes", "mei")
        await page.wait_for_text("0 of 4 viewed")
        await site.commit("mei", "topic", {"action": "UPDATE", "path": "shop.py", "content": "".join(CHANGED).replace("vat", "tax")})
        await site.visit(f"{REQUEST}/changes")
        await page.wait_for_text("1 of 4 viewed")
        assert await page.evaluate(TEXTS.format(".file-list .done .file-name")) == ["gone.txt"]
        await page.evaluate("document.querySelector('#file-1 summary').click()")
        await page.evaluate("document.querySelector('#file-1 input').click()")
        await page.wait_for_text("0 of 4 viewed")


async def wait_until_recorded(site: FilesSite, username: str, column: Any) -> None:
    """Waits until the visit of a user has a head commit or a newest comment; the page records it after it shows the files or the talk."""
    recorded = (
        select(column)
        .join(tables.User, col(tables.User.id) == tables.MergeRequestVisit.user_id)
        .where(col(tables.User.username) == username)
    )
    async with asyncio.timeout(10), site.forge.app.database.write_session() as session:
        while not await session.scalar(recorded):
            await session.rollback()
            await asyncio.sleep(0.02)


class TestVisits:
    async def test_what_is_new_since_the_last_visit(self, site: FilesSite) -> None:
        """Commits and comments that came after a visit are marked, and are shown by a button or a key."""
        page = site.page
        pressed = "document.querySelector('[data-changes][aria-pressed=true]')?.innerText"
        files = TEXTS.format("#main .file-list .file-name")
        comment = {"projectPath": PATH, "mergeRequestIid": 1}
        await site.ask(COMMENT, "mei", input={**comment, "body": "An old remark."})
        await site.visit(REQUEST, "tomas")
        await page.wait_for_text("An old remark.")
        await wait_until_recorded(site, "tomas", tables.MergeRequestVisit.note_number)
        await page.evaluate("[...document.querySelectorAll('.tabs a')].at(-1).click()")
        await page.wait_for_text("0 of 4 viewed")
        assert await page.evaluate("document.querySelectorAll('.new-tag, .new-line, [data-changes]').length") == 0
        await wait_until_recorded(site, "tomas", tables.MergeRequestVisit.head_oid)

        text = "".join(CHANGED).replace("return 60 * vat", "return 61 * vat")
        await site.commit("mei", "topic", {"action": "UPDATE", "path": "shop.py", "content": text})
        await page.wait_for_text("There are new commits.")
        await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Show them').click()")
        await page.wait_for(f"{pressed} === 'All changes'")
        await page.press("s")
        await page.wait_for(f"{pressed} === 'Since your last visit (1 commit)' && {files}.length === 1")
        assert await page.evaluate(files) == ["shop.py"]
        added = "document.querySelector('#file-1 .line.added .text')?.innerText.includes('return 61 * vat')"
        await page.wait_for(f"{added} && document.querySelectorAll('#file-1 .line-button').length === 1")
        for scheme in ("light", "dark"):
            await page.set_color_scheme(scheme)
            assert await page.evaluate(CONTRAST) == []
        await page.set_color_scheme("light")
        await page.set_viewport(360, 640, mobile=True)
        assert await page.evaluate("document.documentElement.scrollWidth") == 360
        await page.set_viewport(1280, 800)
        # An earlier answer that comes later is not shown.
        await page.evaluate(HOLD_ANSWER.format("Changes"))
        await page.press("s")
        await page.wait_for("window.release")
        await page.evaluate("document.querySelector('#file-1').isOld = true")
        await page.press("s")
        await page.wait_for("!document.querySelector('#file-1').isOld")
        await page.evaluate("window.release(), new Promise((resolve) => setTimeout(resolve, 300))")
        assert await page.evaluate(files) == ["shop.py"]
        await page.click("[data-changes=all]")
        await page.wait_for(f"{files}.length === 4")
        await page.evaluate("[...document.querySelectorAll('.tabs a')][1].click()")
        await page.wait_for("document.querySelectorAll('.row').length > 1")
        assert await page.evaluate("[...document.querySelectorAll('.row')].findIndex(each => each.querySelector('.new-tag'))") == 0
        assert await page.evaluate("document.querySelectorAll('.row .new-tag').length") == 1

        await site.ask(COMMENT, "tomas", input={**comment, "body": "My own remark."})
        await site.visit(REQUEST, "jonas")
        await page.wait_for_text("My own remark.")
        await site.ask(COMMENT, "mei", input={**comment, "body": "A new remark."})
        await page.wait_for_text("A new remark.")
        await site.visit(REQUEST, "tomas")
        await page.wait_for_text("A new remark.")
        new = TEXTS.format(".new-line ~ .note")
        assert [each.splitlines()[-1] for each in await page.evaluate(new)] == ["just now", "My own remark.", "A new remark."]
        assert "Added 1 commit" in (await page.evaluate(new))[0]
        assert (await page.evaluate(TEXTS.format(".tabs a")))[0] == "Discussion 1 new"
        await site.visit(REQUEST, "priya")
        await page.wait_for_text("A new remark.")
        assert await page.evaluate("document.querySelectorAll('.new-tag, .new-line').length") == 0

        async with site.forge.app.database.write_session() as session:
            for row in await session.scalars(select(tables.MergeRequestVisit)):
                row.head_oid = row.previous_head_oid = "1" * 40
            await session.commit()
        await site.visit(f"{REQUEST}/changes", "tomas")
        await page.wait_for_text("the newest commit was 11111111. It is no longer in the repository, so all changes are shown.")


async def test_what_is_edited_and_chosen_stays_while_others_change_a_merge_request(site: FilesSite) -> None:
    page = site.page
    start = "mutation ($input: CreateThreadInput!) { createThread(input: $input) { thread { id } userErrors { message } } }"
    change = "mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { userErrors { message } } }"
    request = {"projectPath": PATH, "iid": 1}
    thread = (await site.ask(start, input={**request, "body": "Why?"}))["createThread"]["thread"]["id"]
    await site.visit(REQUEST)
    await page.wait_for("document.querySelector('#live[data-state=live]') && document.querySelector('#remove')")
    edited = "[...document.querySelectorAll('.thread')].at(-1)"
    await page.wait_for(f"{edited}?.innerText.includes('Why?')")
    await page.evaluate(f"{edited}.querySelector('.edit-note').click()")
    await page.wait_for("document.activeElement.matches('.thread textarea')")
    await page.type("Half a word: ")
    await site.ask(REPLY, "mei", input={"id": thread, "body": "An answer."})
    await page.wait_for_text("An answer.")
    await page.press("x")
    assert await page.evaluate("document.activeElement.matches('.thread textarea') && document.activeElement.value") == "Half a word: xWhy?"

    await page.evaluate("document.querySelector('#remove').click(), document.querySelector('#remove').focus()")
    await site.ask(change, input={**request, "title": "Another title", "description": "Another description"})
    await page.wait_for("document.querySelector('h1').innerText.startsWith('Another title')")
    await page.wait_for_text("Another description")
    assert await page.evaluate("[document.querySelector('#remove').checked, document.activeElement.id]") == [True, "remove"]
    assert "Another title" in await page.evaluate("document.title")

    # An earlier answer that comes later is not shown.
    await page.evaluate(HOLD_ANSWER.format("MergeRequest"))
    await site.ask(change, input={**request, "title": "First title"})
    await page.wait_for("window.release")
    await site.ask(change, input={**request, "title": "Second title"})
    await asyncio.sleep(1)
    await page.evaluate("window.release()")
    await page.wait_for("document.querySelector('h1').innerText.startsWith('Second title')")
    await asyncio.sleep(0.5)
    assert await page.evaluate("document.querySelector('h1').innerText.startsWith('Second title')")


async def test_a_reply_to_a_long_thread_is_shown(site: FilesSite) -> None:
    page = site.page
    start = "mutation ($input: CreateThreadInput!) { createThread(input: $input) { thread { id } userErrors { message } } }"
    request = {"projectPath": PATH, "iid": 1}
    thread = (await site.ask(start, input={**request, "body": "Long?"}))["createThread"]["thread"]["id"]
    for number in range(22):
        await site.ask(REPLY, "mei", input={"id": thread, "body": f"Reply {number}."})
    await site.visit(REQUEST)
    card = "[...document.querySelectorAll('.thread')].at(-1)"
    await page.wait_for(f"{card}?.innerText.includes('Reply 18.') && !{card}.innerText.includes('Reply 19.')")
    await page.evaluate(f"[...{card}.querySelectorAll('button')].find((each) => each.innerText === 'Reply').click()")
    await page.wait_for("document.activeElement.matches('.thread textarea')")
    await page.type("The last one.")
    await page.evaluate("document.activeElement.form.requestSubmit()")
    await page.wait_for(f"{card}.innerText.includes('The last one.') && !{card}.querySelector('textarea')")
    await site.ask(REPLY, "mei", input={"id": thread, "body": "Another one."})
    await page.wait_for(f"{card}.innerText.includes('Another one.')", "replies of others are shown on pages that are open")
    replies = f"[...{card}.querySelectorAll('.note')].map((each) => each.innerText).filter((each) => each.includes('Reply 21.')).length"
    assert await page.evaluate(replies) == 1
