"""Projects and their tags, branches and snippets in a real browser, as those who may change them and those who may not."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.forgefront.pages.test_pages import HOSTILE
from tests.forgefront.pages.test_settings_pages import SettingsSite
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
PROJECTS = (
    DemoProject(PATH, "The shop.", (DemoCommit(HOSTILE, "mei", 18, "compile-"), DemoCommit("First", "mei", 19, "compile+"))),
    DemoProject("web/empty", ""),
)
SAID = "document.getElementById('said').textContent"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SettingsSite]:
    folder = tmp_path_factory.mktemp("repository")
    async with run_demo_server(folder / "data", PROJECTS, hooks_allow_local=True) as forge, open_chromium() as page:
        guest = {"projectPath": PATH, "username": "guest", "accessLevel": "REPORTER"}
        await forge.run_as("ada", "AddProjectMember", **guest)
        yield SettingsSite(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: SettingsSite) -> AsyncIterator[SettingsSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    with shared.page.expect_no_errors():
        yield shared


async def press(site: SettingsSite, selector: str, word: str) -> None:
    """Presses the button with this word below the first element that a selector matches."""
    await site.page.evaluate(
        f"[...document.querySelector({selector!r}).querySelectorAll('button')].find(e => e.innerText === {word!r}).click()"
    )


async def test_a_developer_writes_tags_and_their_notes(site: SettingsSite) -> None:
    page = site.page
    text = "query ($path: String!) { project(path: $path) { tags { nodes { name message release { description } } } } }"

    async def tags() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await site.ask(text, path=PATH))["project"]["tags"]["nodes"]
        return found

    await site.visit(f"/{PATH}", "mei")
    await page.click(".tabs a[href$=tags]")
    await page.wait_for_text("No tags yet.")
    await site.fill(name="v1", ref="nowhere", releaseDescription=f"Notes {HOSTILE}")
    await site.submit("Create a tag")
    await site.wait_for_refusal("ref", "is not a branch, a tag or a commit")
    await site.fill(ref="main")
    await site.submit("Create a tag")
    await page.wait_for(f"{SAID} === 'The tag v1 is created.'")
    await site.fill(name="v2", message="Second")
    await site.submit("Create a tag")
    await page.wait_for(f"{SAID} === 'The tag v2 is created.'")
    assert await page.evaluate("[...document.querySelectorAll('.entry-title > a')].map(each => each.innerText)") == ["v2", "v1"]
    assert f"Notes {HOSTILE}" in await page.evaluate("document.querySelector('.release-notes').innerText")

    await page.click("[aria-label='Write the release notes of v2']")
    await page.evaluate("document.getElementById('notes-v2').focus()")
    await page.type("Two")
    await page.wait_for("Object.values(sessionStorage).some(each => each.includes('Two'))")
    await site.submit("Release notes of v2")
    await page.wait_for(f"{SAID} === 'The release notes of v2 are saved.'")
    # Two frames, since what was typed and not sent is unfolded in the next one.
    await page.evaluate("await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert await page.evaluate("document.querySelectorAll('.draft-note, .entry details[open]').length") == 0, "it was sent"
    await page.click("[aria-label='Edit the release notes of v2']")
    await page.wait_for("document.getElementById('notes-v2').closest('details').open")
    await page.evaluate("document.getElementById('notes-v2').select()")
    await page.type("Deux")
    await page.wait_for("document.getElementById('notes-v2').value === 'Deux'")
    await site.submit("Release notes of v2")
    await page.wait_for("document.querySelector('.release-notes').innerText === 'Deux'")
    assert await tags() == [
        {"name": "v1", "message": None, "release": {"description": f"Notes {HOSTILE}"}},
        {"name": "v2", "message": "Second", "release": {"description": "Deux"}},
    ]
    await page.click("[aria-label='Download v2']")
    await press(site, "[aria-label='Formats of v2']", "zip")
    await page.wait_for(f"/storefront-v2.*\\.zip is downloaded/.test({SAID})")
    await site.confirm("Delete the tag v2", "Delete")
    await page.wait_for(f"{SAID} === 'The tag v2 is deleted.'")
    assert [each["name"] for each in await tags()] == ["v1"]

    await site.visit(f"/{PATH}/tags", "guest")
    assert await page.evaluate("document.querySelectorAll('.entry').length") == 1
    assert await page.evaluate("document.querySelectorAll('.settings form, .settings .danger').length") == 0
    await page.click(".entry-title a[href$='ref=v1']")
    await page.wait_for("location.pathname.endsWith('/commits') && document.querySelectorAll('.row').length === 2")
    await page.click("[aria-label='Download v1']")
    await press(site, "[aria-label='Formats of v1']", "tar.bz2")
    await page.wait_for(f"/storefront-v1.*\\.tar\\.bz2 is downloaded/.test({SAID})")


async def test_branches_are_created_protected_and_deleted(site: SettingsSite) -> None:
    page = site.page
    text = "query ($path: String!) { project(path: $path) { branches { nodes { name protected developersCanPush } } } }"
    rights = "[...document.querySelectorAll('.entry .actions')].map(each => [...each.querySelectorAll('button')].map(b => b.innerText))"

    async def branches() -> list[tuple[str, bool, bool]]:
        nodes = (await site.ask(text, path=PATH))["project"]["branches"]["nodes"]
        return [(each["name"], each["protected"], each["developersCanPush"]) for each in nodes]

    await site.visit(f"/{PATH}/branches")
    main = await page.evaluate("document.querySelector('.entry').innerText.replace(/\\s+/g, ' ')")
    assert main.startswith("failed main default") and HOSTILE in main and "failing since" in main
    await site.fill(name="main")
    await site.submit("Create a branch")
    await site.wait_for_refusal("name", "has already been taken")
    await site.fill(name="topic/one")
    await site.submit("Create a branch")
    await page.wait_for(f"{SAID} === 'The branch topic/one is created.'")
    await page.click("[aria-label='Protect topic/one']")
    await page.wait_for("document.activeElement.ariaLabel === 'Unprotect topic/one'")
    assert ("topic/one", True, False) in await branches()
    await page.click("[aria-label='Let developers push to topic/one']")
    await page.wait_for("document.querySelector('[aria-label=\"Let only masters push to topic/one\"]')")
    assert ("topic/one", True, True) in await branches()

    await site.visit(f"/{PATH}/branches", "mei")
    await site.fill(name="topic/two")
    await site.submit("Create a branch")
    await page.wait_for(f"{SAID} === 'The branch topic/two is created.'")
    assert await page.evaluate(rights) == [[], [], ["Delete"]], "neither the default branch nor a protected one"
    await site.confirm("Delete the branch topic/two", "Cancel")
    await site.confirm("Delete the branch topic/two", "Delete")
    await page.wait_for(f"{SAID} === 'The branch topic/two is deleted.'")

    await site.visit(f"/{PATH}/branches", "guest")
    assert await page.evaluate(rights) == [[], []]
    assert await page.evaluate("document.querySelectorAll('.settings form').length") == 0
    await site.visit(f"/{PATH}/branches")
    await page.click("[aria-label='Unprotect topic/one']")
    await page.wait_for("document.activeElement.ariaLabel === 'Protect topic/one'")
    await site.confirm("Delete the branch topic/one", "Delete")
    await page.wait_for("document.querySelectorAll('.entry').length === 1")
    assert [name for name, *_ in await branches()] == ["main"]
    await page.set_viewport(360, 640, mobile=True)
    for part in ("branches", "tags", "snippets", "commits"):
        await site.visit(f"/{PATH}/{part}")
        assert await page.evaluate("document.documentElement.scrollWidth") == 360, part
    await page.set_viewport(1280, 800)
    await site.visit("/web/empty/branches")
    await page.wait_for_text("No branches yet.")


async def test_a_snippet_is_created_changed_and_deleted(site: SettingsSite) -> None:
    page = site.page
    text = "query ($path: String!) { project(path: $path) { snippets { nodes { title fileName content visibility } } } }"

    async def snippets() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await site.ask(text, path=PATH))["project"]["snippets"]["nodes"]
        return found

    await site.visit(f"/{PATH}", "guest")
    await page.click(".tabs a[href$=snippets]")
    await page.wait_for_text("No snippets yet.")
    await site.fill(title=HOSTILE, fileName="a/b", content="<b>one</b>")
    await site.submit("Create a snippet")
    await site.wait_for_refusal("fileName", "can contain only letters")
    await site.fill(fileName="one.html")
    await site.submit("Create a snippet")
    await page.wait_for("/snippets\\/\\d+$/.test(location.pathname) && document.querySelector('pre')?.innerText === '<b>one</b>'")
    await press(site, "article", "Download")
    await page.wait_for("performance.getEntriesByType('resource').some(each => each.name.endsWith('/raw') && each.responseStatus === 200)")
    await page.click("article details summary")
    await page.wait_for("document.querySelector('article [name=title]').value.startsWith('<img')")
    await page.evaluate("document.querySelector('article [name=content]').select()")
    await page.type("two\u202e")
    await page.evaluate("document.querySelector('article [name=visibility]').value = 'PUBLIC'")
    await site.submit("Edit the snippet")
    await page.wait_for("document.querySelector('pre').innerText === 'two\u202e'")
    await page.wait_for_text("This snippet has invisible characters")
    assert await snippets() == [{"title": HOSTILE, "fileName": "one.html", "content": "two\u202e", "visibility": "PUBLIC"}]

    await site.visit(f"/{PATH}/snippets", "mei")
    await page.click(".entry a[href*='/snippets/']")
    await page.wait_for("document.querySelector('pre')?.innerText === 'two\u202e'")
    assert await page.evaluate("document.querySelectorAll('article details, article .danger').length") == 0
    path = await page.evaluate("location.pathname")
    await site.visit(path, "guest")
    await page.evaluate("document.querySelector('article .danger').ariaLabel = 'Delete it'")
    await site.confirm("Delete it", "Delete")
    await page.wait_for("location.pathname.endsWith('/snippets')")
    await page.wait_for_text("No snippets yet.")
    assert await snippets() == []


async def test_a_project_is_created_by_an_import_changed_and_archived(site: SettingsSite) -> None:
    page, forge = site.page, site.forge
    text = "query ($path: String!) { project(path: $path) { name description visibility archived issuesEnabled snippetsEnabled } }"
    await site.visit("/", "mei")
    await page.click(".page-head a.button[href$='/-/new_project']")
    await page.wait_for("document.querySelector('#field-namespacePath')?.value === 'mei'")
    await page.evaluate("document.querySelector('[name=name]').focus()")
    await page.type("Copy")
    await page.press("Tab")
    await page.type("a b")
    await site.submit("New project")
    await site.wait_for_refusal("path", "can contain only")
    await page.evaluate("document.activeElement.select()")
    await page.type("copy")
    await page.evaluate("document.querySelector('[name=importUrl]').focus()")
    await page.type("ftp://example.org/x")
    await site.submit("New project")
    await site.wait_for_refusal("importUrl", "http")
    await page.evaluate("document.activeElement.select()")
    await page.type(f"{forge.address}/web/nothing.git")
    await site.submit("New project")
    await page.wait_for("location.pathname === '/mei/copy' && document.querySelector('.import .wrong')?.innerText")
    assert "import failed" in await page.evaluate("document.querySelector('.import').innerText")
    await page.evaluate("document.querySelector('[name=importUrl]').select()")
    await page.type(forge.address.replace("//", f"//mei:{forge.tokens['mei']}@") + f"/{PATH}.git")
    await site.submit("Import again")
    await page.wait_for("!document.querySelector('.import') && document.querySelectorAll('.row.long').length === 2")
    assert forge.tokens["mei"] not in await page.evaluate("document.documentElement.innerHTML")

    await site.visit("/mei/copy/settings/general", "mei")
    await site.fill(name=f"-{HOSTILE}")
    await site.submit("General settings")
    await site.wait_for_refusal("name", "can contain only letters")
    await site.fill(name="Copied", description=HOSTILE)
    await page.evaluate("document.querySelector('[name=visibility]').value = 'INTERNAL'")
    await page.click("[name=issuesEnabled]")
    await site.submit("General settings")
    await page.wait_for(f"{SAID} === 'The settings are saved.' && document.querySelector('#crumbs').innerText.includes('Copied')")
    await page.wait_for("document.activeElement.tagName === 'H1'")
    changed = {"name": "Copied", "description": HOSTILE, "visibility": "INTERNAL", "issuesEnabled": False, "snippetsEnabled": True}
    assert (await site.ask(text, path="mei/copy"))["project"] == {**changed, "archived": False}
    await site.confirm("Archive the project", "Archive")
    await page.wait_for_text("Unarchive")
    assert (await site.ask(text, path="mei/copy"))["project"] == {**changed, "archived": True}
    await press(site, ".settings", "Unarchive")
    await page.wait_for("document.querySelector('[aria-label=\"Archive the project\"]')")

    # Neither a reporter nor a developer changes them.
    for username in ("guest", "tomas"):
        await site.visit(f"/{PATH}/settings/general", username)
        await page.wait_for("document.querySelector('h1').innerText === 'Not allowed'")


async def test_a_reporter_forks_a_project(site: SettingsSite) -> None:
    page = site.page
    await site.visit(f"/{PATH}", "guest")
    await page.click(".head-side a.button")
    await page.wait_for("document.querySelector('h1').innerText === 'Fork web/storefront'")
    options = "(name => [...document.querySelectorAll(`#field-${name} option`)].map(each => each.value))"
    assert await page.evaluate(f"{options}('groupPath')") == ["guest"]
    assert await page.evaluate(f"{options}('visibility')") == ["PRIVATE"]
    await site.submit("Fork")
    await page.wait_for("location.pathname === '/guest/storefront' && document.querySelectorAll('.row.long').length === 2")
    assert "fork of web/storefront" in await page.evaluate("document.querySelector('.head-line').textContent")
    await site.visit(f"/{PATH}/fork", "guest")
    await site.submit("Fork")
    await site.wait_for_refusal("path", "has already been taken")
    await page.set_viewport(360, 640, mobile=True)
    for path in (f"/{PATH}/fork", "/-/new_project", "/guest/storefront/settings/general", "/guest/storefront"):
        await site.visit(path, "guest")
        assert await page.evaluate("document.documentElement.scrollWidth") == 360, path
    await page.set_viewport(1280, 800)
    for path in ("/web/nothing/fork", "/guest/storefront/fork"):
        await site.visit(path, "jonas")
        await page.wait_for("document.querySelector('h1').innerText === 'Not found'")


async def test_long_lists_of_builds_and_checks_go_on(site: SettingsSite) -> None:
    page = site.page
    find = "query ($path: String!) { project(path: $path) { branch { target { oid } } } }"
    oid = (await site.ask(find, path=PATH))["project"]["branch"]["target"]["oid"]
    builds = "mutation ($input: CreateBuildInput!) { createBuild(input: $input) { userErrors { message } } }"
    checks = "mutation ($input: CreateCommitStatusInput!) { createCommitStatus(input: $input) { userErrors { message } } }"
    for text, count in ((builds, 120), (checks, 55)):
        for number in range(count):
            input = {"projectPath": PATH, "sha": oid, "ref": "main", "name": f"part-{number:03}"}
            input |= {"status": "SUCCESS"} if text is builds else {"state": "SUCCESS"}
            payload = await site.ask(text, input=input)
            assert [each["userErrors"] for each in payload.values()] == [[]]
    await site.visit(f"/{PATH}/commit/{oid}", "mei")
    builds_shown, checks_shown = (f"document.querySelectorAll('section.part:nth-of-type({at}) .row').length" for at in (1, 2))
    assert await page.evaluate(f"[{builds_shown}, {checks_shown}]") == [100, 50]
    await press(site, "main", "More builds")
    await page.wait_for(f"{builds_shown} === 121")
    await press(site, "main", "More checks")
    await page.wait_for(f"{checks_shown} === 55")
    assert await page.evaluate("[...document.querySelectorAll('button.more')].filter(each => !each.hidden).length") == 0
    # An event renews both lists with their further pages.
    again = {"projectPath": PATH, "sha": oid, "ref": "main", "name": "last", "status": "RUNNING"}
    await site.ask(builds, input=again)
    await page.wait_for(f"{builds_shown} === 122 && {checks_shown} === 55")

    # A merge request shows the first 50, and leads to the commit.
    commit = (
        "mutation ($input: CreateCommitInput!) { createCommit(input: $input) { fileCommit { commit { oid } } userErrors { message } } }"
    )
    action = {"action": "CREATE", "path": "long.txt", "content": "long"}
    branch = "mutation ($input: CreateBranchInput!) { createBranch(input: $input) { userErrors { message } } }"
    await site.ask(branch, input={"projectPath": PATH, "name": "long", "ref": "main"})
    input = {"projectPath": PATH, "branch": "long", "message": "Long", "actions": [action]}
    head = (await site.ask(commit, input=input))["createCommit"]["fileCommit"]["commit"]["oid"]
    request = "mutation ($input: CreateMergeRequestInput!) { createMergeRequest(input: $input) { mergeRequest { iid } } }"
    branches = {"projectPath": PATH, "sourceBranch": "long", "targetBranch": "main", "title": "Long"}
    iid = (await site.ask(request, input=branches))["createMergeRequest"]["mergeRequest"]["iid"]
    link = f"document.querySelector('main p a[href$=\"/commit/{head}\"]')"
    for number in range(51):
        if number == 50:
            await site.visit(f"/{PATH}/merge_requests/{iid}/builds", "mei")
            await page.wait_for("document.querySelectorAll('section.part .row').length === 50")
            assert not await page.evaluate(f"!!{link}")
        name = f"part-{number:03}"
        await site.ask(builds, input={"projectPath": PATH, "sha": head, "ref": "long", "name": name, "status": "SUCCESS"})
    await site.visit(f"/{PATH}/merge_requests/{iid}/builds", "mei")
    await page.wait_for(f"{link}?.innerText === 'All builds of the commit'")
