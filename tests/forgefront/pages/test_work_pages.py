"""A merge request, a build, a commit, GraphiQL and the reference in a real browser, over the whole service."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import pytest_asyncio
from sqlalchemy import update
from sqlmodel import col

from storage import tables
from storage.database.clock import now
from storage.tables import CheckStatus
from tests.forgefront.support.browser import CHROMIUM, BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, DemoServer, run_demo_server
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
PROJECTS = (
    DemoProject(
        PATH,
        "The shop.",
        (DemoCommit("Prices are shown with tax", "mei", 18, "compile+ browser* unit-"),),
        (
            DemoMergeRequest("Show delivery dates", "priya", 10, "delivery", "compile+"),
            DemoMergeRequest("A wish list", "jonas", 9, "wishes", "unit-"),
        ),
    ),
)
HOSTILE = "<img src=x onerror=alert(1)> $(document).body"
TRACE = (
    "section_start:1700000000:prepare\r\x1b[0KPreparing\n  fetch\nsection_end:1700000065:prepare\r\x1b[0K\n"
    "section_start:1700000065:tests[collapsed=true]\r\x1b[0KTests\n1 passed\n2 pas\x1b[32msed\x1b[0m\nsection_end:1700000070:tests\r\x1b[0K"
    "loading\rdone\n\x1b[1;31mred\x1b[0m \x1b[30;48;2;255;255;0mgreen\x1b[39;49m\x1b[4m mixed\x1b[m plain\n"
    f"\x1b]0;a title\x07\x1b[2J\x1b[5;5H{HOSTILE}\x1b]8;;javascript:alert(2)\x07\x1b]8;;\x07\n"
    "after\n"
)
TRACE_LINES = """[...document.querySelectorAll('.output-line')].map(each =>
  [Number(each.querySelector('.number').dataset.number), each.querySelector('.text').innerText])"""
BUILDS = """query ($path: String!) {
  project(path: $path) { builds(filter: {ref: ["main"]}) { nodes { databaseId name sha status trace { totalBytes } } } }
}"""
RETRY = """mutation ($path: String!, $id: Int!) {
  retryBuild(input: {projectPath: $path, databaseId: $id}) { userErrors { message } }
}"""
HIDEABLE_TAB = """Object.defineProperties(Document.prototype, {
  hidden: {get: () => window.isHidden === true}, visibilityState: {get: () => window.isHidden ? 'hidden' : 'visible'}})"""
CLOSE_WINDOW_SECONDS = """mutation ($path: String!) {
  updateMergeRequest(input: {projectPath: $path, iid: 2, stateEvent: CLOSE}) { userErrors { message } }
}"""


class WorkPagesSite:
    """One service and one browser for the whole file."""

    def __init__(self, forge: DemoServer, page: BrowserPage) -> None:
        self.forge = forge
        self.page = page

    async def ask(self, text: str, **variables: Any) -> Any:
        outcome = await self.forge.app.graph.run_document(text, variables, None, self.forge.tokens["ada"], request_id="test")
        assert outcome.errors == []
        return outcome.data

    async def builds(self) -> dict[str, Any]:
        """Those of the commit that was pushed to the main branch, by name."""
        return {build["name"]: build for build in (await self.ask(BUILDS, path=PATH))["project"]["builds"]["nodes"]}

    async def print_trace(self, *pieces: str) -> int:
        """The v3 id of a new build with this output."""
        made = await self.forge.run_as(
            "ada", "CreateBuild", projectPath=PATH, sha=(await self.builds())["browser"]["sha"], ref="main", name="traced", status="RUNNING"
        )
        offset = 0
        for piece in pieces:
            await self.forge.run_as("ada", "AppendBuildTrace", projectPath=PATH, databaseId=made["id"], text=piece, offset=offset)
            offset += len(piece.encode())
        return int(made["id"])

    async def merge_request_id(self) -> int:
        found = await self.ask("query ($path: String!) { project(path: $path) { mergeRequest(iid: 1) { databaseId } } }", path=PATH)
        return int(found["project"]["mergeRequest"]["databaseId"])

    async def visit(self, path: str, username: str = "ada") -> None:
        await self.page.visit(self.forge.address + path, self.forge.tokens[username])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkPagesSite]:
    folder = tmp_path_factory.mktemp("work")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
        yield WorkPagesSite(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: WorkPagesSite) -> AsyncIterator[WorkPagesSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    await shared.page.set_viewport(1280, 800)
    with shared.page.expect_no_errors():
        yield shared


class TestMergeRequest:
    async def test_comments_and_merge(self, site: WorkPagesSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/merge_requests/1")
        await page.wait_for_text("It can be merged.")
        await page.wait_for("document.querySelector('#comment')")
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Good <b>work</b> by **@ada** in !1 [x](javascript:alert(1))")
        await page.click(".stack .primary")
        await page.wait_for_text("Good <b>work</b> by @ada in !1 [x](javascript:alert(1))")
        links = "[...document.querySelectorAll('.note .markdown a')].map(each => [each.innerText, new URL(each.href).pathname])"
        assert await page.evaluate(links) == [["@ada", "/u/ada"], ["!1", f"/{PATH}/merge_requests/1"]]
        await page.click(".merge-status .primary")
        await page.wait_for("document.querySelector('.merge-status .badge')?.innerText === 'merged'")

    async def test_shows_merge_blockers_and_updates_live(self, site: WorkPagesSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/merge_requests/2", "tomas")
        await page.wait_for_text("Builds of its newest commit failed.")
        await page.wait_for("document.querySelector('#live[data-state=live]')")
        await site.ask(CLOSE_WINDOW_SECONDS, path=PATH)
        await page.wait_for("document.querySelector('.merge-status .badge')?.innerText === 'closed'")
        assert await page.evaluate("document.getElementById('said').textContent") == "The merge request is closed."


class TestBuild:
    async def test_shows_the_trace_as_it_grows(self, site: WorkPagesSite) -> None:
        page = site.page
        build = (await site.builds())["browser"]
        await site.visit(f"/{PATH}/builds/{build['databaseId']}")
        await page.wait_for_text("17 of 40 done")
        await page.wait_for("document.querySelector('#live[data-state=live]')")
        text = "".join(f"\x1b[32mline {number}\x1b[0m\n" for number in range(300))
        await site.forge.run_as(
            "ada", "AppendBuildTrace", projectPath=PATH, databaseId=build["databaseId"], text=text, offset=build["trace"]["totalBytes"]
        )
        await page.wait_for(
            "document.querySelector('.output .ink-green:last-of-type') && document.querySelector('.output').innerText.includes('line 299')"
        )
        assert await page.evaluate(
            "(b => b.scrollTop > 0 && b.scrollHeight - b.scrollTop - b.clientHeight < 2)(document.querySelector('.output'))"
        )
        await site.forge.set_build_status(PATH, build["databaseId"], "SUCCESS")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'passed'")

    async def test_shows_the_new_trace_of_a_build_that_started_again_while_the_tab_was_hidden(self, site: WorkPagesSite) -> None:
        page = site.page
        build = (await site.builds())["browser"]
        if build["status"] not in ("PENDING", "RUNNING"):
            await site.ask(RETRY, path=PATH, id=build["databaseId"])
        await site.forge.set_build_status(PATH, build["databaseId"], "RUNNING")
        append = {"projectPath": PATH, "databaseId": build["databaseId"], "offset": 0}
        await site.forge.run_as("ada", "AppendBuildTrace", **append, text="the first output\n", replace=True)
        async with page.script_on_open(HIDEABLE_TAB):
            await site.visit(f"/{PATH}/builds/{build['databaseId']}")
            await page.wait_for_text("the first output")
            await page.evaluate("window.isHidden = true, document.dispatchEvent(new Event('visibilitychange'))")
            # The tab closes its streams some seconds later.
            await wait_until(lambda: not site.forge.app.graph.services.trace_feeds._feeds)
            await site.forge.run_as("ada", "AppendBuildTrace", **append, text="another output, which is longer\nthan that\n", replace=True)
            await page.evaluate("window.isHidden = false, document.dispatchEvent(new Event('visibilitychange'))")
            await page.wait_for_text("than that")
        shown = await page.evaluate(TRACE_LINES)
        assert [text for _, text in shown][:2] == ["another output, which is longer", "than that"]

    async def test_retry_preserves_the_earlier_attempt(self, site: WorkPagesSite) -> None:
        page = site.page
        build = (await site.builds())["unit"]
        await site.visit(f"/{PATH}/builds/{build['databaseId']}")
        await page.wait_for_text("1 failed, 127 passed")
        await page.click(".head-line button")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'waiting'")
        await page.click(".attempts summary")
        await page.wait_for("document.querySelector('.attempts .output').innerText.includes('1 failed, 127 passed')")
        # There is no output to search in.
        await page.press("/")
        await page.wait_for("document.activeElement.id === 'find-field'")
        await page.press("Escape")
        await site.forge.set_build_status(PATH, build["databaseId"], "RUNNING")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'running'")
        assert await page.evaluate("document.querySelector('.attempts details').open")

    async def test_erase_asks_first(self, site: WorkPagesSite) -> None:
        page = site.page
        build = (await site.builds())["compile"]
        await site.visit(f"/{PATH}/builds/{build['databaseId']}")
        await page.wait_for_text("make compile")
        for answer, erased in (("Cancel", False), ("Erase", True)):
            await page.evaluate("document.querySelector('.head-line .danger').focus()")
            await page.press("Enter")
            await page.wait_for("document.activeElement.closest('dialog[open]')?.innerText.includes('This cannot be undone.')")
            await page.evaluate(
                f"[...document.querySelectorAll('dialog[open] button')].find(each => each.innerText === {answer!r}).click()"
            )
            await page.wait_for(
                f"!document.querySelector('dialog[open]') && (document.activeElement.innerText === 'Erase' || {str(erased).lower()})"
            )
            if erased:
                await page.wait_for_text("There is no output, or it was erased.")
            else:
                assert "make compile" in await page.evaluate("document.querySelector('.output').innerText")


class TestBuilds:
    async def test_are_filtered_by_fields_and_grouped_by_commit_and_stage(self, site: WorkPagesSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/builds?status=all")
        await page.wait_for("document.querySelector('input[name=job]')")
        await page.evaluate("document.querySelector('input[name=job]').focus()")
        await page.type("compile")
        await page.press("Enter")
        await page.wait_for(
            "location.search.includes('job=compile') && document.querySelector('.removable')?.innerText.includes('job: compile')"
        )
        names = "[...document.querySelectorAll('.row .row-title')].map(each => each.innerText)"
        assert set(await page.evaluate(names)) == {"compile"}

        await site.visit(f"/{PATH}/builds?by=commit&status=all&ref=main")
        await page.wait_for_text("one by one")
        commit = await page.evaluate("document.querySelector('.row .stages').innerText.split(/\\s+/)")
        assert {"compile", "browser", "test"} <= set(commit)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

        await site.visit(f"/{PATH}/nothing/here")
        await page.wait_for_text("Not found")
        assert await page.evaluate("document.querySelector('main a.button').innerText") == "All projects"
        assert "status of 404" in page.errors.pop()


class TestCommits:
    async def test_controls_stay_as_they_are_while_builds_change(self, site: WorkPagesSite) -> None:
        page = site.page
        await site.visit(f"/{PATH}/commits")
        await page.wait_for("document.querySelector('#live[data-state=live]') && document.querySelector('.row')")
        await page.evaluate("document.querySelector('main .menu').open = true, document.querySelector('#ref').focus()")
        await page.evaluate("document.querySelector('.row').isOld = true")
        await site.print_trace("A new build")
        await page.wait_for("!document.querySelector('.row').isOld")
        assert await page.evaluate("[document.querySelector('main .menu').open, document.activeElement.id]") == [True, "ref"]


class TestTrace:
    async def test_colours_sections_and_overwritten_text(self, site: WorkPagesSite) -> None:
        page, build = site.page, await site.print_trace(TRACE)
        await site.visit(f"/{PATH}/builds/{build}#L2")
        await page.wait_for_text("after")
        lines = await page.evaluate(TRACE_LINES)
        assert lines[:3] == [[1, "Preparing"], [2, "  fetch"], [3, ""]]
        # A section that asks to be folded is: its lines 5 and 6 are not there.
        assert lines[3:] == [[4, "Tests"], [7, "doneing"], [8, "red green mixed plain"], [9, HOSTILE], [10, "after"]]
        assert await page.evaluate("document.querySelector('.output-line.chosen .text').innerText") == "  fetch"
        assert await page.evaluate("document.querySelector('.section-time').innerText") == "1 min 5 s"
        ink = "[...document.querySelectorAll('.output-line')].find(each => each.innerText.includes('mixed')).querySelectorAll('.text span')"
        assert await page.evaluate(f"[...{ink}].map(each => [each.className, getComputedStyle(each).backgroundColor])") == [
            ["bold ink-red", "rgba(0, 0, 0, 0)"],
            ["", "rgb(255, 255, 0)"],
            ["underline", "rgba(0, 0, 0, 0)"],
        ]

        await page.evaluate("[...document.querySelectorAll('.fold')].at(-1).focus()")
        await page.press("Enter")
        await page.wait_for("document.querySelectorAll('.output-line').length === 10")
        assert await page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
        await page.evaluate("[...document.querySelectorAll('.number')][8].click()")
        assert await page.evaluate("location.hash") == "#L9"
        click = "new MouseEvent('click', {bubbles: true, cancelable: true, shiftKey: true})"
        await page.evaluate(f"[...document.querySelectorAll('.number')][9].dispatchEvent({click})")
        await page.wait_for("location.hash === '#L9-10' && document.querySelectorAll('.output-line.chosen').length === 2")

    async def test_search_by_keyboard_unfolds_what_it_finds(self, site: WorkPagesSite) -> None:
        page, build = site.page, await site.print_trace(TRACE)
        await site.visit(f"/{PATH}/builds/{build}")
        await page.wait_for_text("after")
        await page.press("/")
        await page.type("PASSED")
        await page.wait_for("document.querySelector('.match-count').innerText === '1 of 2 lines'")
        await page.wait_for("document.querySelector('mark[data-current=true]')?.innerText === 'passed'")
        await page.press("Enter")
        await page.wait_for("document.querySelector('.match-count').innerText === '2 of 2 lines'")
        # It is found where colours change within the word.
        await page.wait_for("[...document.querySelectorAll('mark[data-current=true]')].map(each => each.innerText).join('|') === 'pas|sed'")

    async def test_a_long_trace_has_few_elements(self, site: WorkPagesSite) -> None:
        page, build = site.page, await site.print_trace("".join(f"{number}\n" for number in range(1, 140_001)), "x" * 900_000, "\nend")
        await site.visit(f"/{PATH}/builds/{build}")
        await page.wait_for_text("140,002 lines")
        # A very long line is truncated.
        await page.wait_for("[...document.querySelectorAll('.output-line .text')].some(each => each.innerText === 'x'.repeat(10000) + '…')")
        assert await page.evaluate("document.querySelectorAll('.output-line').length") < 120
        for number in (3, 99_998, 139_999):
            await page.evaluate(f"location.hash = 'L{number}'")
            await page.wait_for(f"document.querySelector('.output-line.chosen .text')?.innerText === '{number}'")
            shown = "(row, box) => row.top >= box.top && row.bottom <= box.bottom"
            boxes = "...['.output-line.chosen', '.output'].map(each => document.querySelector(each).getBoundingClientRect())"
            assert await page.evaluate(f"({shown})({boxes})")
        await page.evaluate("document.querySelector('.output').focus()")
        await page.press("Home")
        await page.wait_for("document.querySelector('.output-line .text').innerText === '1'")

    async def test_every_colour_can_be_read(self, site: WorkPagesSite) -> None:
        await site.visit(f"/{PATH}")
        worst = await site.page.evaluate("""await import('/-/pages/trace/colours.js').then(({ contrast, inks, PAPER }) => {
          const some = [...Array(256).keys(), '#000000', '#ffffff', '#123456', '#808080', null];
          return Math.min(...some.flatMap(text => some.filter((_, index) => index % 5 === 0 || index > 255).flatMap(background =>
            [false, true].map(inverse => inks({ text, background, inverse }))
              .filter(each => each.text).map(each => contrast(each.text, each.background ?? PAPER)))));
        })""")
        assert worst >= 4.5


class TestEnvironments:
    async def test_a_manual_build_is_played_and_what_it_deploys_to_is_stopped(self, site: WorkPagesSite) -> None:
        page, sha = site.page, (await site.builds())["compile"]["sha"]
        common: dict[str, Any] = {"project_id": 1, "sha": sha, "ref": "main"}
        async with site.forge.app.graph.services.database.write_session() as session:
            session.add(pipeline := tables.Pipeline(**common))
            session.add(place := tables.Environment(project_id=1, name="production", external_url="https://shop.example/", stop_job="halt"))
            await session.flush()
            common |= {"pipeline_id": pipeline.id, "options": {"environment": {"name": "production"}}}
            session.add(build := tables.Build(**common, name="release", status=CheckStatus.SUCCESS, started_at=now(), finished_at=now()))
            session.add(halt := tables.Build(**common, name="halt", status=CheckStatus.MANUAL))
            await session.flush()
            session.add(tables.Deployment(project_id=1, sha=sha, ref="main", environment_id=place.id, build_id=build.id, user_id=1))
            session.add(
                tables.Artifact(
                    project_id=1, build_id=build.id, filename="a.zip", size=1, key="0" * 32, expires_at=now() + timedelta(days=1)
                )
            )
            await session.commit()
            build_id, halt_id = build.id, halt.id
        await site.visit(f"/{PATH}/environments")
        await page.wait_for("document.querySelectorAll('.entry').length === 1")
        shown = await page.evaluate("document.querySelector('.entry').innerText")
        assert all(each in shown for each in ("production", "Prices are shown with tax", "main", f"release #{build_id}"))
        await page.click(".entry .actions button")
        await page.wait_for("document.getElementById('said').textContent === 'production is being stopped.'")
        await page.click(".entry a[href*='/builds/']")
        await page.wait_for("document.body.innerText.includes('Deployed to') && document.body.innerText.includes('It is deleted on')")
        await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Keep').click()")
        await page.wait_for("!document.body.innerText.includes('It is deleted on')")
        await site.visit(f"/{PATH}/builds/{halt_id}")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'waiting'")
        async with site.forge.app.graph.services.database.write_session() as session:
            await session.execute(update(tables.Build).where(col(tables.Build.id) == halt_id).values(status=CheckStatus.MANUAL))
            await session.commit()
        await site.visit(f"/{PATH}/builds/{halt_id}")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'manual'")
        await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Play').click()")
        await page.wait_for("document.querySelector('.facts .badge').innerText === 'waiting'")


class TestCommit:
    async def test_shows_builds_and_diff_and_accepts_comments(self, site: WorkPagesSite) -> None:
        page = site.page
        oid = (await site.builds())["compile"]["sha"]
        await site.visit(f"/{PATH}/commit/{oid[:10]}")
        await page.wait_for_text(oid)
        await page.wait_for("document.querySelector('.line')")
        await page.wait_for("document.querySelector('#comment')")
        await page.evaluate("document.querySelector('#comment').focus()")
        await page.type("Seen.")
        await page.click(".stack .primary")
        await page.wait_for("document.querySelector('.note')?.innerText.includes('Seen.')")


async def test_all_of_them_fit_a_telephone(site: WorkPagesSite) -> None:
    await site.page.set_viewport(360, 640, mobile=True)
    build = (await site.builds())["browser"]
    # A word that is longer than the screen is wide, as whole ids of commits are.
    mutation = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { code } } }"
    values = {"projectPath": PATH, "mergeRequestDatabaseId": await site.merge_request_id(), "body": f"See {'5a74c29c' * 8}."}
    assert (await site.ask(mutation, input=values))["createNote"]["userErrors"] == []
    for path, last in (
        ("merge_requests/1", ".note .prose"),
        ("merge_requests/1/changes", ".line"),
        (f"builds/{build['databaseId']}", ".output-line"),
        (f"commit/{build['sha']}", ".line"),
    ):
        await site.visit(f"/{PATH}/{path}")
        await site.page.wait_for(f"document.querySelector({last!r})")
        assert await site.page.evaluate("document.documentElement.scrollWidth") == 360, path


async def test_graphiql_runs_an_example_without_the_internet(site: WorkPagesSite) -> None:
    page = site.page
    await page.open_signed_in(f"{site.forge.address}/-/graphiql", site.forge.tokens["ada"])
    await page.wait_for("document.querySelectorAll('.examples li').length === 13")
    await page.wait_for("document.querySelector('.monaco-editor .view-lines')?.innerText")
    await page.set_viewport(360, 640, mobile=True)
    await page.wait_for("document.querySelector('.graphiql-editors').clientWidth > 300", "the editor has the width of a phone")
    await page.set_viewport(1280, 800)
    await page.evaluate("[...document.querySelectorAll('.examples button')].find(each => each.innerText === 'Commit page').click()")
    await page.wait_for(
        "document.querySelector('.graphiql-tab.graphiql-tab-active, [aria-selected=true]')?.innerText.includes('D10_CommitPage')"
    )
    await page.click(".graphiql-execute-button")
    await page.wait_for("document.querySelector('.result-window').innerText.includes('authoredAt')")
    # The types that introspection returned.
    await page.click("[aria-label='Show Documentation Explorer']")
    await page.wait_for("document.querySelector('.graphiql-doc-explorer')?.innerText.includes('Subscription')")


async def test_graphiql_leaves_connections_to_other_windows(site: WorkPagesSite) -> None:
    """A browser has six of them for a service; the last event that was received says where the stream goes on."""
    page, streams = site.page, site.forge.app.graph.services.broadcaster._subscribers
    query = quote(f'subscription {{ issueChanged(projects: ["{PATH}"]) {{ issue {{ title }} }} }}')
    await page.open_signed_in(f"{site.forge.address}/-/graphiql#query={query}", site.forge.tokens["ada"])
    await wait_until(lambda: not streams)
    await page.wait_for("document.querySelector('.monaco-editor .view-lines')?.innerText.includes('issueChanged')")
    await page.click(".graphiql-execute-button")
    await wait_until(lambda: len(streams) == 1)
    # Until it has received something, the page does not know where the stream is.
    await site.forge.run_as("ada", "CreateIssue", projectPath=PATH, title="Before")
    await page.wait_for("document.querySelector('.result-window').innerText.includes('Before')")

    report = "(window.other ??= new BroadcastChannel('forgefront.streams')).postMessage({id: 'x', focusedAt: 1e15, streams: %d})"
    await page.evaluate(report % 4)
    await wait_until(lambda: not streams)
    await site.forge.run_as("ada", "CreateIssue", projectPath=PATH, title="Meanwhile")
    await page.evaluate(report % 0)
    await page.wait_for("document.querySelector('.result-window').innerText.includes('Meanwhile')")
    assert len(streams) == 1
    await page.click(".graphiql-execute-button")
    await wait_until(lambda: not streams)


async def test_reference_is_filtered(site: WorkPagesSite) -> None:
    page = site.page
    await page.open_signed_in(f"{site.forge.address}/-/reference", site.forge.tokens["ada"])
    await page.wait_for("document.querySelector('#filter:not([hidden])')")
    await page.press("/")
    await page.type("closeissue")
    await page.press("Enter")
    shown = "[...document.querySelectorAll('nav li')].filter(each => each.checkVisibility()).map(each => each.innerText)"
    await page.wait_for(f"location.hash === '#Mutation.closeIssue' && {shown}.join() === 'closeIssue,CloseIssuePayload'")


async def test_a_snippet_opens_at_its_web_url_and_is_commented(site: WorkPagesSite) -> None:
    write = """mutation ($path: String!) { createSnippet(input: {projectPath: $path, title: "Taxes", fileName: "taxes.py",
      content: "rate = <b>24</b>", visibility: INTERNAL}) { snippet { webUrl } userErrors { message } } }"""
    url = (await site.ask(write, path=PATH))["createSnippet"]["snippet"]["webUrl"]

    await site.visit(urlsplit(url).path)
    await site.page.wait_for("document.querySelector('h1')?.innerText === 'Taxes'")
    assert await site.page.evaluate("document.querySelector('pre').innerText") == "rate = <b>24</b>"
    await site.page.evaluate("document.querySelector('#comment').value = 'As of May.'")
    await site.page.evaluate("document.querySelector('#comment').form.querySelector('.primary').click()")
    await site.page.wait_for("document.querySelector('.notes')?.innerText.includes('As of May.')")

    # A change that was not sent is shown again after a reload, in its folded form.
    edit = "document.querySelector('[aria-label=\"Edit the snippet\"] [name=title]')"
    await site.page.evaluate(f"{edit}.closest('details').open = true, {edit}.select(), {edit}.focus()")
    await site.page.type("Old taxes")
    await site.page.evaluate("window.isOld = true, location.reload()")
    await site.page.wait_for(f"!window.isOld && {edit}?.value === 'Old taxes' && {edit}.checkVisibility()")
