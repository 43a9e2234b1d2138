"""The files of a project in a real browser: read, changed and compared, by those who may push and those who may not."""

import base64
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from tests.forgefront.pages.test_pages import CONTRAST, HOSTILE
from tests.forgefront.pages.test_repository_pages import SAID
from tests.forgefront.pages.test_settings_pages import SettingsSite
from tests.forgefront.support.browser import CHROMIUM, BrowserPage, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
PROJECTS = (DemoProject(PATH, "The shop.", (DemoCommit(HOSTILE, "mei", 18),)), DemoProject("web/empty", ""))
NAME = f'src/{HOSTILE.replace("/", "_")}/100%2F "#1?.html'
COMMIT = (
    """mutation ($input: CreateCommitInput!) { createCommit(input: $input) { fileCommit { commit { oid } } userErrors { message } } }"""
)
BLOB = "query ($path: String!, $at: String!, $ref: String) { project(path: $path) { blob(path: $at, ref: $ref) { base64 } } }"
ENTRIES = "[...document.querySelectorAll('.file .row-title')].map(each => each.innerText.trim())"
CHOSEN = "[...document.querySelectorAll('.code-line.chosen .number')].map(each => Number(each.dataset.number))"


def png() -> bytes:
    """An image of two pixels by one."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" + b"\x80" * 6)) + chunk(b"IEND", b"")


FILES = {
    NAME: f"<script>alert(1)</script> {HOSTILE}".encode(),
    "README.md": f"# {HOSTILE}\n\nhttps://example.org/\n\n![An image](image.png)\n".encode(),
    "docs/guide/deep/er/page.txt": b"".join(b"line %d\n" % number for number in range(1, 3201)),
    "docs/windows.txt": b"one\r\ntwo\r\n",
    "docs/latin.txt": "caf\u00e9 \u00e0 la cr\u00e8me".encode("latin-1"),
    "image.png": png(),
    "image.svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)" width="9" height="9"><script>alert(2)</script></svg>',
    "broken.gif": b"GIF\0",
    "data.bin": b"\0\1",
    "order.js": "x = '\u202e'".encode(),
    "empty.txt": b"",
}


def encoded(at: str) -> str:
    """As `encodeURIComponent` of JavaScript encodes each name of a path."""
    return quote(at, safe="/!'()*~")


def address(part: str, at: str = "", **query: str) -> str:
    parameters = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"/{PATH}/{part}" + (f"/{encoded(at)}" if at else "") + (f"?{parameters}" if parameters else "")


class FilesSite(SettingsSite):
    async def commit(self, username: str, branch: str, *actions: dict[str, str]) -> str:
        """Commits without the page; returns the id of the commit."""
        input = {"projectPath": PATH, "branch": branch, "message": "Behind", "actions": list(actions)}
        payload = (await self.ask(COMMIT, username, input=input))["createCommit"]
        assert payload["userErrors"] == []
        return str(payload["fileCommit"]["commit"]["oid"])

    async def content(self, at: str, ref: str = "main") -> bytes | None:
        outcome = await self.forge.app.graph.run_document(
            BLOB, {"path": PATH, "at": at, "ref": ref}, None, self.forge.tokens["ada"], request_id="test"
        )
        blob: Any = (outcome.data or {})["project"]["blob"]
        return base64.b64decode(blob["base64"]) if blob else None

    async def retype(self, **values: str) -> None:
        """Replaces the contents of fields by typing."""
        for name, value in values.items():
            await self.page.wait_for(f"document.querySelector('form [name={name}]')")
            await self.page.evaluate(f"document.querySelector('form [name={name}]').select()")
            await self.page.type(value)

    async def press_with_control(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            await self.page.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=13, modifiers=2)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FilesSite]:
    folder = tmp_path_factory.mktemp("files")
    async with run_demo_server(folder / "data", PROJECTS) as forge, open_chromium() as page:
        await forge.run_as("ada", "AddProjectMember", projectPath=PATH, username="guest", accessLevel="REPORTER")
        site = FilesSite(forge, page)
        contents = {path: base64.b64encode(content).decode() for path, content in FILES.items()}
        await site.commit(
            "ada", "main", *({"action": "CREATE", "path": path, "content": text, "encoding": "BASE64"} for path, text in contents.items())
        )
        for name in ("topic/one", "gone"):
            await forge.run_as("ada", "CreateBranch", projectPath=PATH, name=name, ref="main")
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: FilesSite) -> AsyncIterator[FilesSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    with shared.page.expect_no_errors():
        yield shared


HOLD_README = """(() => {
  const fetchReally = window.fetch, released = new Promise((resolve) => (window.release = resolve));
  window.fetch = async (url, options) => {
    const operation = String(url).endsWith('/graphql') && JSON.parse(new TextDecoder().decode(options.body)).operationName;
    if (operation === 'Readme') (window.isHeld = true, await released);
    return fetchReally(url, options);
  };
})()"""
"""Holds requests for the README from now on, until `release()` is called."""


async def scroll_to_the_end(site: FilesSite) -> BrowserPage:
    """Opens the project in a low window, and scrolls below its README."""
    page = site.page
    await page.set_viewport(1280, 300)
    await site.visit(f"/{PATH}", "guest")
    await page.wait_for("document.querySelector('.readme .markdown h3')")
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    await page.wait_for("scrollY > 0")
    return page


@pytest.mark.parametrize("is_scrolled", [False, True])
async def test_back_leads_to_the_place_of_the_page_also_if_it_grows_late(site: FilesSite, is_scrolled: bool) -> None:
    page = await scroll_to_the_end(site)
    await page.evaluate("window.place = scrollY, document.querySelector('.tabs a[href$=files]').click()")
    await page.wait_for("document.querySelector('.file')")
    await page.evaluate(HOLD_README)
    await page.evaluate("history.back()")
    await page.wait_for("window.isHeld && document.querySelector('.columns') && !document.querySelector('.readme .markdown')")
    assert await page.evaluate("scrollY < window.place")
    if is_scrolled:
        await page.evaluate("dispatchEvent(new WheelEvent('wheel')), scrollTo(0, 10)")
    await page.evaluate("window.release()")
    await page.wait_for("document.querySelector('.readme .markdown h3')")
    await page.wait_for("scrollY === 10" if is_scrolled else "scrollY === window.place")


async def test_a_reload_leads_to_the_place_of_the_page(site: FilesSite) -> None:
    page = await scroll_to_the_end(site)
    place = await page.evaluate("(window.isOld = true, scrollY)")
    await page.evaluate("location.reload()")
    await page.wait_for(f"!window.isOld && document.querySelector('.readme .markdown h3') && scrollY === {place}")


async def test_a_reporter_reads_directories_and_files(site: FilesSite) -> None:
    page = site.page
    await site.visit(f"/{PATH}", "guest")
    await page.wait_for("document.querySelector('.readme .markdown h3')")
    await page.click(".tabs a[href$=files]")
    await page.wait_for("document.querySelector('.file')")
    entries = ["docs", "src", "README.md", "broken.gif", "data.bin", "empty.txt", "file-0.txt", "image.png", "image.svg", "order.js"]
    assert await page.evaluate(ENTRIES) == entries
    await page.wait_for(f"document.querySelectorAll('.file-change a[href*=commit]').length === {len(entries)}")
    assert HOSTILE in await page.evaluate("document.querySelector('.file-change:has(time)').closest('ol').innerText")
    assert await page.evaluate("document.querySelector('.readme .markdown h3').innerText") == HOSTILE
    assert await page.evaluate("document.querySelectorAll('.readme .markdown a[href=\\'https://example.org/\\']').length") == 1
    await page.evaluate("document.querySelector('.readme').scrollIntoView()")
    await page.wait_for('document.querySelector(\'.readme a[href*="/files/image.png"] > img[alt="An image"]\')?.naturalWidth > 0')
    assert await page.evaluate("document.querySelectorAll('main [href*=new_file], main .danger').length") == 0

    # By keyboard: the first entry, the file in it, and up again.
    await page.press("j", "j", "Enter")
    await page.wait_for(f"{ENTRIES}.length === 1 && document.title.startsWith('src ')")
    await page.press("j", "Enter")
    await page.wait_for(f"{ENTRIES}[0].startsWith('100%2F')")
    await page.press("j", "Enter")
    await page.wait_for_text("<script>alert(1)</script>")
    assert await page.evaluate("location.pathname") == f"/{PATH}/files/{encoded(NAME)}"
    assert await page.evaluate("document.querySelector('.file-path').innerText.replaceAll('\\n', '/')") == f"storefront/{NAME}"
    assert await page.evaluate("document.title") == f"{NAME} \N{MIDDLE DOT} Web / storefront \N{MIDDLE DOT} Forgefront"
    await page.press("u")
    await page.wait_for(f"{ENTRIES}.length === 1 && location.pathname.endsWith('/')")

    # Lines: from the address, by a click with Shift, and by keyboard; a file of more lines than are drawn at first.
    await site.visit(address("files", "docs/guide/deep/er/page.txt") + "#L3150-3152", "guest")
    await page.wait_for(f"{CHOSEN}.length === 3")
    assert await page.evaluate("document.querySelector('.chosen').innerText.trim()") == "line 3150"
    assert await page.evaluate("document.querySelector('.chosen').getBoundingClientRect().top < innerHeight && scrollY > 1000")
    await page.evaluate("document.querySelector('[data-number=\"7\"]').click()")
    await page.evaluate(
        "document.querySelector('[data-number=\"9\"]')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true, shiftKey: true}))"
    )
    assert await page.evaluate(CHOSEN) == [7, 8, 9]
    assert await page.evaluate("location.hash") == "#L7-9"
    await page.press("/")
    await page.type("41")
    await page.press("Enter")
    await page.wait_for(f"location.hash === '#L41' && {CHOSEN}.join() === '41'")

    await page.click(".file-head a.button")
    await page.wait_for(f"/ref=[0-9a-f]{{40}}$/.test(location.search) && location.hash === '#L41' && {CHOSEN}.join() === '41'")
    await page.wait_for("document.querySelector('.file-head a.button')?.innerText !== 'Permalink'")

    # Another branch, whose name has a slash, at the same path; a directory without the slash at its end; a commit.
    await page.evaluate("(e => { e.value = 'topic/one'; e.dispatchEvent(new Event('change')) })(document.getElementById('ref'))")
    await page.wait_for("location.search === '?ref=topic%2Fone' && document.querySelectorAll('.code-line').length === 3000")
    await site.visit(address("files", "docs/guide", ref="topic/one"), "guest")
    await page.wait_for(f"location.pathname.endsWith('/guide/') && {ENTRIES}.join() === 'deep'")
    await page.click(".newest-title")
    await page.click(".facts a[href*='/files/']")
    await page.wait_for(f"/ref=[0-9a-f]{{40}}$/.test(location.search) && {ENTRIES}.length === {len(entries)}")

    for name, text in (
        ("data.bin", "binary"),
        ("empty.txt", "This file is empty."),
        ("order.js", "invisible characters"),
        ("broken.gif", "The image cannot be shown."),
        ("image.svg", "onload"),
    ):
        await site.visit(address("files", name), "guest")
        await page.wait_for_text(text)
    await site.visit(address("blame", "order.js"), "guest")
    await page.wait_for_text("invisible characters")
    for name, width in (("image.svg", 9), ("image.png", 2)):
        await site.visit(address("files", name), "guest")
        await page.wait_for(f"document.querySelector('.image img')?.naturalWidth === {width}")
    await page.evaluate("[...document.querySelectorAll('.file-head button')].find(each => each.innerText === 'Download').click()")
    await page.wait_for(
        "performance.getEntriesByType('resource').some(each => each.name.includes('filepath=') && each.responseStatus === 200)"
    )

    # Syntax colours, the blame and a search by keyboard.
    await site.visit(address("files", NAME), "guest")
    await page.wait_for("document.querySelector('.syntax-tag')")
    assert await page.evaluate("document.querySelector('.code-line .text').innerText.includes('<script>alert(1)</script>')")
    await page.evaluate("[...document.querySelectorAll('.file-head a')].find(each => each.innerText === 'Blame').click()")
    await page.wait_for("document.querySelector('.blame-lines')?.innerText.startsWith('<script>alert(1)</script>')")
    links = "[...document.querySelectorAll('.file-links a')].map(each => each.innerText)"
    assert await page.evaluate(links) == ["Show it", "History"]
    await page.press("j", "Enter")
    await page.wait_for("/commit.[0-9a-f]{40}$/.test(location.pathname) && document.querySelector('.facts')")
    await site.visit(address("blame", NAME, ref=await page.evaluate("location.pathname.slice(-40)")), "guest")
    await page.wait_for("document.querySelector('.blame-lines')")
    assert await page.evaluate(links) == ["Show it"], "the history of a file is that of a branch"
    await site.visit(address("search"), "guest")
    await page.wait_for("document.activeElement?.id === 'search'")
    await page.type("alert(")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('.found-line mark').length >= 3")
    await page.evaluate("[...document.querySelectorAll('.found-line a')].at(-1).click()")
    await page.wait_for(f"{CHOSEN}.join() === '1'")

    # The box that finds things, by keyboard: a branch, a commit by the start of its id, a hostile file, and an issue by its number.
    issue = 'mutation ($path: String!) { createIssue(input: {projectPath: $path, title: "Found"}) { issue { iid } } }'
    number = (await site.ask(issue, path=PATH))["createIssue"]["issue"]["iid"]
    oid = await site.commit("ada", "gone", {"action": "CREATE", "path": "found", "content": "-"})
    await site.visit(f"/{PATH}/branches", "guest")
    for text, end in (
        ("topic", "/files/"),
        (oid[:9], f"/commit/{oid}"),
        ("100% html", "/files/" + encoded(NAME)),
        (f"#{number}", f"/issues/{number}"),
    ):
        await page.wait_for("document.querySelector('.tabs')")
        await page.press("/")
        await page.wait_for("document.activeElement?.id === 'find-field'")
        await page.type(text)
        await page.wait_for(f"document.querySelector('.find-row[aria-selected=true]')?.pathname === '/{PATH}{end}'")
        await page.press("Enter")
        await page.wait_for(f"location.pathname === '/{PATH}{end}' && !document.querySelector('dialog.find')")
        await site.visit(f"/{PATH}/branches", "guest")

    await page.set_viewport(360, 640, mobile=True)
    for path in (
        f"blame/{encoded(NAME)}",
        "search?q=alert(",
        "files/docs/",
        "files/docs/windows.txt",
        f"files/{encoded(NAME)}",
        "compare?from=main&to=topic%2Fone",
        "contributors",
    ):
        for scheme in ("light", "dark"):
            await page.set_color_scheme(scheme)
            await site.visit(f"/{PATH}/{path}", "guest")
            assert await page.evaluate("document.documentElement.scrollWidth") == 360, path
            assert await page.evaluate(CONTRAST) == [], (path, scheme)
    await page.set_viewport(1280, 800)
    await page.set_color_scheme("light")


async def test_missing_files_refs_and_projects_are_reported(site: FilesSite) -> None:
    page = site.page
    await site.visit(address("files", ref="gone"))
    # The image in README.md must be loaded before its branch is deleted.
    await page.wait_for(f"{ENTRIES}.length > 3 && document.querySelector('.readme img')?.naturalWidth > 0")
    await site.ask(
        "mutation ($input: DeleteBranchInput!) { deleteBranch(input: $input) { deletedId } }", input={"projectPath": PATH, "name": "gone"}
    )
    await site.visit(address("files", "docs/windows.txt", ref="gone"))
    await page.wait_for_text("There is no gone")
    await page.click(".empty a")
    await page.wait_for("location.search === '' && document.querySelector('.code-line')")
    await site.visit(address("files", "nothing/here%2e.txt"))
    await page.wait_for_text("Not in this version")
    assert "nothing/here%2e.txt" in await page.evaluate("document.querySelector('.empty').innerText")
    await page.click(".empty a[href*=new_file]")
    await page.wait_for("document.querySelector('[name=path]')?.value === 'nothing/here%2e.txt'")
    # Addresses that other servers have.
    await site.visit(f"/{PATH}/blob/topic/one/docs/guide/deep/er/page.txt#L5", "guest")
    await page.wait_for(f"{CHOSEN}.length === 1 && location.search === '?ref=topic%2Fone' && location.hash === '#L5'")
    await site.visit(f"/{PATH}/tree/main/docs", "guest")
    await page.wait_for("location.pathname.endsWith('/files/docs/') && document.querySelector('.file')")
    await site.visit(f"/{PATH}/tree/gone/docs", "guest")
    await page.wait_for_text("This branch or tag does not exist")
    for part in ("edit_file", "remove_file"):
        await site.visit(address(part, "nothing", ref="main"))
        await page.wait_for_text("This file does not exist")
    await site.visit(address("remove_file", "docs/latin.txt"))
    await page.wait_for_text("Earlier commits keep it.")
    await site.visit(address("edit_file", "docs/latin.txt", ref="main"))
    await page.wait_for_text("not UTF-8")
    await site.visit(address("new_file"), "guest")
    await page.wait_for_text("You may not push to this project.")
    await site.visit("/web/nothing/files")
    await page.wait_for_text("Project not found")

    await site.visit("/web/empty/compare")
    await page.wait_for_text("Choose what to compare")
    await site.visit("/web/empty/contributors")
    await page.wait_for_text("There are no commits yet.")
    await site.visit("/web/empty/files")
    await page.wait_for_text("No files yet")
    await page.click(".empty a")
    await page.wait_for("document.activeElement?.name === 'path'")
    await site.retype(path="README", content="First")
    await site.press_with_control("Enter")
    await page.wait_for("location.pathname === '/web/empty/files/README' && document.querySelector('.code-line')")


async def test_a_file_is_created_edited_renamed_and_removed(site: FilesSite) -> None:
    page = site.page
    await site.visit(address("files", "docs/"))
    await page.click("main a[href*=new_file]")
    await page.wait_for("document.activeElement?.value === 'docs/'")
    await site.retype(path="docs/windows.txt", content=HOSTILE)
    await site.press_with_control("Enter")
    await site.wait_for_refusal("path", "already exists")
    await site.retype(path=f"docs/{NAME}")
    await site.press_with_control("Enter")
    await page.wait_for(f"{SAID} === 'The commit is made.' && document.querySelector('.code-line')")
    assert await page.evaluate("location.pathname") == f"/{PATH}/files/docs/{encoded(NAME)}"
    assert await site.content(f"docs/{NAME}") == HOSTILE.encode()

    # The line ends of the file stay. What was typed survives a reload, and is forgotten when it is committed.
    await site.visit(address("files", "docs/windows.txt"))
    await page.click("main a[href*=edit_file]")
    await page.wait_for("document.querySelector('[name=content]')?.value === 'one\\ntwo\\n'")
    await site.retype(content="one\nthree\n", message="Count on")
    await page.evaluate("location.reload()")
    await page.wait_for_text("This is what you typed before")
    assert await page.evaluate("document.querySelector('[name=content]').value") == "one\nthree\n"

    # Somebody else commits another version of it: nothing is lost on either side.
    await site.commit("mei", "topic/one", {"action": "CREATE", "path": "aside.txt", "content": "A commit elsewhere does not matter."})
    await site.commit("ada", "main", {"action": "UPDATE", "path": "docs/windows.txt", "content": "theirs\n"})
    await site.submit("Edit the file")
    await page.wait_for_text("Somebody else has changed this file")
    assert await site.content("docs/windows.txt") == b"theirs\n"
    await page.click(".draft-note a")
    await page.wait_for("[...document.querySelectorAll('.line.added .text')].some(each => each.innerText === 'theirs')")
    await page.evaluate("history.back()")
    await page.wait_for("document.querySelector('[name=content]')?.value === 'one\\nthree\\n'")
    await site.submit("Edit the file")
    await page.wait_for_text("Overwrite with my text")
    await page.evaluate("[...document.querySelectorAll('.draft-note button')].find(each => each.innerText.startsWith('Overwrite')).click()")
    await page.wait_for("location.pathname.endsWith('/files/docs/windows.txt') && document.querySelectorAll('.code-line').length === 2")
    assert await site.content("docs/windows.txt") == b"one\r\nthree\r\n"
    assert await page.evaluate("Object.keys(sessionStorage)") == ["forgefront.session"]

    # A rename, then the removal, on a branch that is made for it, from which a merge request is made.
    await page.click("main a[href*=edit_file]")
    await site.retype(path="docs/unix.txt", content="one\n")
    await page.evaluate("document.querySelector('[name=branch]').scrollIntoView()")
    await site.submit("Edit the file")
    await page.wait_for("location.pathname.endsWith('/files/docs/unix.txt') && document.querySelector('.code-line')")
    assert (await site.content("docs/windows.txt"), await site.content("docs/unix.txt")) == (None, b"one\r\n")
    await page.click("main a[href*=remove_file]")
    await site.retype(branch="tidy/up")
    await site.press_with_control("Enter")
    await page.wait_for("location.pathname.endsWith('/compare') && document.querySelector('.line.removed')")
    assert await page.evaluate("location.search") == "?from=main&to=tidy%2Fup"
    assert (await site.content("docs/unix.txt"), await site.content("docs/unix.txt", "tidy/up")) == (b"one\r\n", None)
    assert await page.evaluate("document.querySelector('.diff-path').innerText") == "docs/unix.txt"
    await page.click("details.menu summary")
    assert await page.evaluate("document.querySelector('[name=title]').value") == "Remove docs/unix.txt"
    await site.submit("New merge request")
    await page.wait_for(
        "/merge_requests\\/\\d+$/.test(location.pathname) && document.querySelector('h1').innerText.includes('Remove docs/unix.txt')"
    )

    # Signing out removes what was typed and not sent.
    await site.visit(address("new_file"))
    await site.retype(content="Secret")
    await page.wait_for("Object.keys(sessionStorage).length === 2")
    await page.click("#sign-out")
    await page.wait_for("location.pathname.endsWith('/sign_in') && document.querySelector('form')")
    assert await page.evaluate("sessionStorage.length") == 0


async def test_a_ci_file_is_checked_while_it_is_typed(site: FilesSite) -> None:
    page = site.page
    await site.visit(address("new_file", ".gitlab-ci.yml"))
    await page.wait_for_text("The file is empty.")
    await site.retype(content=f"unit:\n  script: make\n  nope: '{HOSTILE}'\n")
    await page.wait_for("document.querySelector('.ci-errors button')")
    assert "nope" in str(await page.evaluate("document.querySelector('.ci-errors').innerText"))
    await page.click(".ci-errors button")
    selected = "(field => field.value.slice(field.selectionStart, field.selectionEnd))(document.activeElement)"
    assert await page.evaluate(selected) == f"  nope: '{HOSTILE}'"
    await site.retype(content="unit:\n  script: make\n  stage: test\n")
    await page.wait_for_text("Valid: 1 job")
    # As by deleting everything and taking that back.
    await site.retype(content="")
    await page.wait_for_text("The file is empty.")
    await site.retype(content="unit:\n  script: make\n  stage: test\n")
    await page.wait_for_text("Valid: 1 job")
    await site.retype(path="notes.txt")
    await page.wait_for("!document.querySelector('.ci-check').checkVisibility()")
    await page.evaluate("sessionStorage.clear()")


async def test_a_developer_is_offered_a_new_branch_beside_a_protected_one(site: FilesSite) -> None:
    page = site.page
    protect = "mutation ($input: ProtectBranchInput!) { protectBranch(input: $input) { userErrors { message } } }"
    await site.ask(protect, input={"projectPath": PATH, "name": "main", "developersCanPush": False})
    await site.visit(address("edit_file", "README.md", ref="main"), "mei")
    await page.wait_for("document.querySelector('[name=branch]')?.value === 'mei-patch'")
    await site.retype(content="Mine", branch="main")
    await site.submit("Edit the file")
    await site.wait_for_refusal("branch", "protected")
    await site.retype(branch="bad..name")
    await site.submit("Edit the file")
    await site.wait_for_refusal("branch", "not a valid branch")
    await site.retype(branch="mei-patch", content="x" * 1_100_000)
    await site.submit("Edit the file")
    await page.wait_for_text("too large to be committed here")
    assert page.errors == []
    await site.retype(content="Mine")
    await site.submit("Edit the file")
    await page.wait_for("location.search === '?from=main&to=mei-patch' && document.querySelector('.line.added')")
    assert await site.content("README.md", "mei-patch") == b"Mine"


async def test_refs_are_compared_and_people_and_commits_listed(site: FilesSite) -> None:
    page = site.page
    await site.forge.run_as("ada", "CreateBranch", projectPath=PATH, name="left", ref="topic/one")
    oid = await site.commit("mei", "left", {"action": "CREATE", "path": "left.txt", "content": "Left\n"})
    await site.visit(f"/{PATH}/branches")
    await page.click("[aria-label='Compare left with main']")
    await page.wait_for("[...document.querySelectorAll('.line.added .text')].some(each => each.innerText === 'Left')")
    assert await page.evaluate("[document.querySelector('[name=from]').value, document.querySelector('[name=to]').value]") == [
        "main",
        "left",
    ]
    # By ids, and in the other direction; the address that other servers have.
    await page.evaluate("document.querySelector('[name=from]').select()")
    await page.type("topic/one")
    await page.press("Tab")
    await page.type(oid[:9])
    await page.press("Enter")
    await page.wait_for(f"location.search === '?from=topic%2Fone&to={oid[:9]}' && !document.querySelector('details.menu')")
    await page.wait_for("document.querySelector('.line.added')", "commits are compared, and not merged")
    await page.evaluate("[...document.querySelectorAll('.comparison a')].find(each => each.innerText === 'Swap').click()")
    await page.wait_for_text("has all commits of topic/one")
    await site.visit(f"/{PATH}/compare/topic/one...left", "guest")
    await page.wait_for("[...document.querySelectorAll('.line.added .text')].some(each => each.innerText === 'Left')")
    await site.visit(f"/{PATH}/compare/left...left")
    await page.wait_for_text("are the same commit")
    await site.visit(address("compare", **{"from": "main", "to": HOSTILE}))
    await page.wait_for_text(f"{HOSTILE} is not a branch, a tag or a commit")

    await site.visit(address("files", ref="left"), "guest")
    await page.click(".file-links a[href*=contributors]")
    await page.wait_for("document.querySelector('.part .row')")
    assert "Mei Tanaka" in await page.evaluate("document.querySelector('.part').innerText")
    await site.visit(address("files", "left.txt", ref="left"), "guest")
    await page.click(".file-links a[href*=history]")
    await page.wait_for("document.querySelectorAll('.part .row').length === 1")
    await page.click(".part .row a")
    await page.wait_for(f"location.pathname.endsWith('/commit/{oid}') && document.querySelector('.facts')")
