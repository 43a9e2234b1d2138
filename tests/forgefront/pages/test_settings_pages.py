"""The stars, the activity and the settings of a project in a real browser, as a master, a developer and a stranger use them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.forgefront.pages.test_pages import HOSTILE, PagesSite
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
PROJECTS = (
    DemoProject(
        PATH,
        "The shop.",
        (DemoCommit(HOSTILE, "mei", 18, "compile+"),),
        (DemoMergeRequest("Show delivery dates", "priya", 10, "delivery"),),
        (("Prices are off", "jonas"),),
    ),
    DemoProject("web/other", "", (DemoCommit("First", "mei", 18),)),
)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJjBNlMcmVxUlHDOIFS8T8E0nXTDhNOMgjHmTBqw6KbO"
SECTIONS = ("members", "general", "hooks", "deploy_keys", "variables", "runners", "triggers")
LABEL = "e => (e.labels?.[0] ?? e).innerText.trim() || e.ariaLabel"
ACTIVE = f"({LABEL})(document.activeElement)"
"""The label of the control that has the focus, or its text."""
MAX_TABS = 80


class SettingsSite(PagesSite):
    async def ask(self, text: str, username: str = "ada", **variables: Any) -> Any:
        return await self.run(text, username, **variables)

    async def fill(self, **values: str) -> None:
        """Types into fields of the page, by their names."""
        for name, value in values.items():
            await self.page.wait_for(f"document.querySelector('[name={name}]')")
            await self.page.evaluate(f"document.querySelector('.part .stack [name={name}]').select()")
            await self.page.type(value)

    async def submit(self, name: str) -> None:
        await self.page.evaluate(f"document.querySelector('form[aria-label=\"{name}\"] .primary').click()")

    async def confirm(self, label: str, answer: str) -> None:
        """Presses a button that removes something, and answers the question by the button with this word."""
        await self.page.click(f"[aria-label={json.dumps(label)}]")
        await self.page.wait_for("document.activeElement.closest('dialog[open]')")
        await self.page.evaluate(
            f"[...document.querySelectorAll('dialog[open] button')].find(each => each.innerText === {answer!r}).click()"
        )
        await self.page.wait_for("!document.querySelector('dialog[open]')")

    async def wait_for_refusal(self, name: str, message: str) -> None:
        """Waits until a refusal is shown at a field, which has the focus and is described by it."""
        await self.page.wait_for(
            f"(e => e.name === {name!r} && e.ariaInvalid === 'true' && e.getAttribute('aria-describedby').split(' ')"
            f".some(id => document.getElementById(id).innerText.includes({message!r})))(document.activeElement)",
            f"no refusal {message!r} at {name}",
        )

    async def tab_to(self, label: str) -> None:
        """Presses Tab until the control with this label or text has the focus."""
        controls = "[...document.querySelectorAll('a, button, input, select, textarea, summary')]"
        await self.page.wait_for(f"{controls}.some(each => ({LABEL})(each) === {json.dumps(label)})", f"there is no control {label!r}")
        for _ in range(MAX_TABS):
            if await self.page.evaluate(ACTIVE) == label:
                return
            await self.page.press("Tab")
        raise AssertionError(f"{label!r} is not reached; the focus is at {await self.page.evaluate(ACTIVE)!r}")

    async def entries(self) -> list[str]:
        found: list[str] = await self.page.evaluate("[...document.querySelectorAll('.entry-title')].map(each => each.innerText.trim())")
        return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SettingsSite]:
    folder = tmp_path_factory.mktemp("settings")
    async with (
        run_demo_server(folder / "data", PROJECTS, hooks_allow_local=True) as forge,
        open_chromium() as page,
    ):
        yield SettingsSite(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: SettingsSite) -> AsyncIterator[SettingsSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    await shared.page.set_viewport(1280, 800)
    with shared.page.expect_no_errors():
        yield shared


async def test_a_master_stars_and_changes_variables_by_keyboard_alone(site: SettingsSite) -> None:
    page = site.page
    await site.visit(f"/{PATH}")
    await site.tab_to("Star")
    await page.press("Enter")
    await page.wait_for("document.activeElement.ariaPressed === 'true' && document.querySelector('.star a').innerText.startsWith('1')")
    await page.press("Tab", "Enter")
    await page.wait_for("location.pathname.endsWith('/stars') && document.querySelector('.row')?.innerText.includes('Ada Lindqvist')")
    await site.tab_to("Settings")
    await page.press("Enter")
    await page.wait_for("document.activeElement.tagName === 'H1' && document.activeElement.innerText === 'Settings'")
    await site.tab_to("Variables")
    await page.press("Enter")
    await page.wait_for_text("No variable yet.")

    await site.tab_to("Name")
    await page.type("API KEY")
    await page.press("Tab")
    await page.type("s3cret <b>value</b>")
    await page.press("Tab", "Enter")
    await site.wait_for_refusal("key", "can contain only letters")
    assert await page.evaluate("document.querySelector('[name=value]').value") == "s3cret <b>value</b>", "what was typed stays"
    await page.evaluate("document.activeElement.select()")
    await page.type("API_KEY")
    await page.press("Enter")
    await page.wait_for("document.querySelector('.entry')?.innerText.includes('API_KEY')")
    await page.wait_for("document.getElementById('said').textContent === 'The variable API_KEY is added.'")
    value = "query ($path: String!) { project(path: $path) { variables { nodes { key value } } } }"
    assert (await site.ask(value, path=PATH))["project"]["variables"]["nodes"] == [{"key": "API_KEY", "value": "s3cret <b>value</b>"}]

    await page.open(f"{site.forge.address}/{PATH}/settings/variables")
    await page.wait_for("document.querySelector('.entry')")
    assert "s3cret" not in await page.evaluate("document.documentElement.innerHTML")
    await page.press("j", "Enter")
    await page.wait_for("document.activeElement.closest('details').open")
    await page.press("Tab")
    await page.type("other")
    await page.press("Tab", "Enter")
    await page.wait_for("document.getElementById('said').textContent === 'The variable API_KEY is changed.'")
    assert (await site.ask(value, path=PATH))["project"]["variables"]["nodes"] == [{"key": "API_KEY", "value": "other"}]

    await site.tab_to("Remove")
    await page.press("Enter")
    await page.wait_for("document.activeElement.innerText === 'Cancel'")
    await page.press("Escape")
    await page.wait_for("!document.querySelector('dialog[open]') && document.activeElement.ariaLabel === 'Remove the variable API_KEY'")
    await page.press("Enter")
    await page.wait_for("document.activeElement.innerText === 'Cancel'")
    await page.press("Tab", "Enter")
    await page.wait_for_text("No variable yet.")
    assert (await site.ask(value, path=PATH))["project"]["variables"]["nodes"] == []


async def test_a_master_adds_changes_and_removes_members(site: SettingsSite) -> None:
    page = site.page
    text = """query ($path: String!) { project(path: $path) { members(first: 100) { nodes { accessLevel user { username } } } } }"""

    async def level_of(username: str) -> str | None:
        nodes = (await site.ask(text, path=PATH))["project"]["members"]["nodes"]
        return next((each["accessLevel"] for each in nodes if each["user"]["username"] == username), None)

    await site.visit(f"/{PATH}/settings")
    assert await site.entries() == ["MT\nMei Tanaka", "TR\nTomás Rivera", "PN\nPriya Nair", "JW\nJonas Weber", "AL\nAda Lindqvist"]
    await site.fill(username="nobody")
    await site.submit("Add a member")
    await site.wait_for_refusal("username", "User not found")
    await site.fill(username="mei")
    await site.submit("Add a member")
    await site.wait_for_refusal("username", "Already exists")

    await site.fill(username="gue")
    await page.wait_for("document.querySelector('#people option')?.value === 'guest'")
    await site.fill(username="guest")
    # The service restarts: what was typed stays, and is sent again.
    async with page.without_network():
        await site.submit("Add a member")
        await page.wait_for_text("The service cannot be reached.")
    page.errors.clear()
    await page.evaluate("document.querySelector('#field-accessLevel').value = 'REPORTER'")
    await site.submit("Add a member")
    await page.wait_for("document.getElementById('said').textContent === 'Guest is a member now.'")
    await page.wait_for_text("5 members")
    assert await level_of("guest") == "REPORTER"

    assert await page.evaluate("document.querySelector('[aria-label=\"Change the access level of Guest\"]').hidden")
    await page.evaluate(
        "(select => { select.value = 'DEVELOPER'; select.dispatchEvent(new Event('change')); })(document.querySelector('#level-guest'))"
    )
    await page.click("[aria-label='Change the access level of Guest']:not([hidden])")
    await page.wait_for("document.activeElement.id === 'level-guest' && document.activeElement.value === 'DEVELOPER'")
    assert await level_of("guest") == "DEVELOPER"

    await site.confirm("Remove Guest", "Cancel")
    assert await level_of("guest") == "DEVELOPER"
    await site.confirm("Remove Guest", "Remove")
    await page.wait_for_text("4 members")
    assert await level_of("guest") is None


async def test_a_master_adds_tests_and_removes_a_hook(site: SettingsSite) -> None:
    page = site.page
    text = """query ($path: String!) { project(path: $path) { hooks { nodes {
        url pushEvents issuesEvents hasToken hasSecret enableSslVerification deliveries { totalCount } } } } }"""

    async def hooks() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await site.ask(text, path=PATH))["project"]["hooks"]["nodes"]
        return found

    await site.visit(f"/{PATH}/settings/hooks")
    await site.fill(url="ftp://files.example.org/<b>", token="a token")
    await site.submit("Add a hook")
    await site.wait_for_refusal("url", "http")
    url = f"{site.forge.address}/-/health?<script>alert(1)</script>"
    await site.fill(url=url)
    await page.click("[name=issuesEvents]")
    await site.submit("Add a hook")
    await page.wait_for("/hooks\\/\\d+$/.test(location.pathname) && document.querySelector('h1').innerText.startsWith('Hook #')")
    (hook,) = await hooks()
    assert (hook["pushEvents"], hook["issuesEvents"], hook["hasToken"], hook["hasSecret"]) == (True, True, True, False)
    assert "a token" not in await page.evaluate("document.documentElement.innerHTML")

    # The service does not accept POST there.
    await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Send a test').click()")
    await page.wait_for("document.querySelector('.attempts summary')?.innerText.includes('HTTP 405')")
    await page.click(".attempts summary")
    await page.wait_for("document.querySelector('.attempts .output')?.innerText.includes('\"object_kind\": \"push\"')")
    await page.evaluate("[...document.querySelectorAll('.attempts button')].find(each => each.innerText === 'Send again').click()")
    await page.wait_for("document.getElementById('said').textContent === 'It is sent again.'")

    await page.click("[name=issuesEvents]")
    await page.click("[name=noToken]")
    await site.submit("Change the hook")
    await page.wait_for("document.querySelector('[name=issuesEvents]')?.checked === false && !document.querySelector('[name=noToken]')")
    (changed,) = await hooks()
    assert changed["url"] == hook["url"]
    assert (changed["issuesEvents"], changed["hasToken"], changed["deliveries"]["totalCount"]) == (False, False, 1)

    await site.confirm("Remove the hook", "Remove")
    await page.wait_for("location.pathname.endsWith('/settings/hooks')")
    await page.wait_for_text("No hook yet.")
    assert await hooks() == []


async def test_a_master_adds_and_removes_deploy_keys_and_triggers(site: SettingsSite) -> None:
    page = site.page
    await site.visit(f"/{PATH}/settings/deploy_keys")
    await site.fill(title=HOSTILE, key="no key")
    await site.submit("Add a deploy key")
    await site.wait_for_refusal("key", "is invalid")
    await site.fill(key=KEY)
    await site.submit("Add a deploy key")
    await page.wait_for(f"document.querySelector('.entry summary')?.innerText === {HOSTILE!r}")
    await site.confirm(f"Remove the key {HOSTILE}", "Remove")
    await page.wait_for_text("No deploy key yet.")

    tokens = "query ($path: String!) { project(path: $path) { triggers { nodes { token } } } }"
    await page.click(".tabs a[href$=triggers]")
    await page.wait_for_text("No trigger yet.")
    await page.click(".part .primary")
    await page.wait_for("document.querySelector('.entry')")
    ((token,),) = [each.values() for each in (await site.ask(tokens, path=PATH))["project"]["triggers"]["nodes"]]
    assert token not in await page.evaluate("document.documentElement.innerHTML")
    await page.click(".entry button[data-item]")
    await page.wait_for(f"document.activeElement.innerText === {token!r}")
    await site.confirm("Remove the trigger", "Remove")
    await page.wait_for_text("No trigger yet.")
    assert (await site.ask(tokens, path=PATH))["project"]["triggers"]["nodes"] == []


async def test_a_master_pauses_assigns_and_removes_runners(site: SettingsSite) -> None:
    page = site.page
    create = """mutation ($input: CreateRunnerInput!) { createRunner(input: $input) { runner { databaseId } userErrors { message } } }"""
    served = """query ($path: String!) { project(path: $path) { runnersToken
        runners(includeShared: true) { nodes { description active } } } }"""

    async def runners() -> list[tuple[str, bool]]:
        nodes = (await site.ask(served, path=PATH))["project"]["runners"]["nodes"]
        return [(each["description"], each["active"]) for each in nodes]

    await site.ask(create, input={"description": HOSTILE, "projectPath": PATH, "tags": ["linux"]})
    await site.ask(create, input={"description": "borrowed", "projectPath": "web/other"})
    await site.visit(f"/{PATH}/settings/runners")
    assert await page.evaluate("document.querySelector('.entry').innerText.replace(/\\s+/g, ' ').includes('never seen linux')")
    await page.click(f"[aria-label={json.dumps(f'Pause {HOSTILE}')}]")
    await page.wait_for(f"document.activeElement.ariaLabel === {f'Resume {HOSTILE}'!r}")
    assert await runners() == [(HOSTILE, False)]

    names = "[...document.querySelectorAll('#field-runnerId option')].map(each => each.innerText.split(' (')[0])"
    assert await page.evaluate(names) == ["borrowed"]
    await site.submit("Assign a runner")
    await page.wait_for("document.querySelectorAll('.entry').length === 2")
    await page.wait_for_text("Your other projects have no further runner.")
    assert await runners() == [(HOSTILE, False), ("borrowed", True)]
    await site.confirm("Unassign borrowed", "Unassign")
    await page.wait_for("document.querySelectorAll('.entry').length === 1 && document.querySelector('#field-runnerId')")

    token = (await site.ask(served, path=PATH))["project"]["runnersToken"]
    assert token not in await page.evaluate("document.documentElement.innerHTML")
    await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Show the token').click()")
    await page.wait_for(f"document.activeElement.innerText === {token!r}")
    await site.confirm("Replace the token", "Replace the token")
    await page.wait_for(
        f"document.querySelector('.token').innerText.length > 8 && document.querySelector('.token').innerText !== {token!r}"
    )

    await site.confirm(f"Remove {HOSTILE}", "Cancel")
    await site.confirm(f"Remove {HOSTILE}", "Remove")
    await page.wait_for_text("No runner yet.")
    assert await runners() == []


async def test_more_variables_than_a_page_has_are_shown(site: SettingsSite) -> None:
    create = "mutation ($input: CreateVariableInput!) { createVariable(input: $input) { userErrors { code } } }"
    for number in range(51):
        await site.ask(create, input={"projectPath": "web/other", "key": f"V{number:02}", "value": "v"})
    await site.visit("/web/other/settings/variables")
    assert len(await site.entries()) == 50
    await site.page.click(".more:not([hidden])")
    await site.page.wait_for("document.querySelectorAll('.entry').length === 51 && document.querySelector('.more').hidden")
    await site.confirm("Remove the variable V50", "Remove")
    await site.page.wait_for("document.getElementById('said').textContent === 'The variable V50 is removed.'")
    assert [len(await site.entries()), await site.page.evaluate("document.querySelector('.more').hidden")] == [50, True]


async def test_a_developer_sees_the_members_and_may_leave(site: SettingsSite) -> None:
    page = site.page
    await site.visit("/web/other", "tomas")
    await page.click(".tabs a[href$=settings]")
    await page.wait_for("document.querySelector('h1').innerText === 'Members'")
    assert await page.evaluate("[...document.querySelectorAll('.settings select, .settings form')].length") == 0
    assert await page.evaluate("[...document.querySelectorAll('.tabs a, .settings button:not([hidden])')].map(e => e.innerText)") == [
        "Members",
        "Leave",
    ]
    for name in SECTIONS[1:]:
        await site.visit(f"/web/other/settings/{name}", "tomas")
        await page.wait_for("document.querySelector('h1').innerText === 'Not allowed'")
    for path in (*(f"settings/{name}" for name in SECTIONS), "settings/hooks/1", "activity", "stars"):
        await site.visit(f"/web/other/{path}", "guest")
        await page.wait_for("document.querySelector('h1').innerText === 'Not found'")

    await site.visit("/web/other/settings", "tomas")
    await site.confirm("Leave the project", "Leave")
    await page.wait_for("document.querySelector('h1').innerText === 'Not found'")


async def test_activity_is_read_in_pages(site: SettingsSite) -> None:
    page = site.page
    note = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { userErrors { code } } }"
    for number in range(30):
        body = f"Seen {number}. {HOSTILE}"
        await site.ask(note, "mei", input={"projectPath": PATH, "issueIid": 1, "body": body})
    await site.ask("mutation ($p: String!) { closeIssue(input: {projectPath: $p, iid: 1}) { userErrors { code } } }", "jonas", p=PATH)
    await site.visit(f"/{PATH}", "jonas")
    await page.click(".tabs a[href$=activity]")
    await page.wait_for("document.querySelectorAll('.row').length === 30")
    rows = "[...document.querySelectorAll('.row')].map(each => each.innerText.replace(/\\s+/g, ' '))"
    first, second, *_ = await page.evaluate(rows)
    assert first.startswith("JW Jonas Weber closed issue #1") and "Prices are off" in first
    assert second.startswith("MT Mei Tanaka commented on issue #1") and f"Seen 29. {HOSTILE}" in second
    await page.evaluate("document.querySelector('.more').focus()")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('.row').length > 36 && document.querySelector('.more').hidden")
    assert await page.evaluate("document.activeElement === [...document.querySelectorAll('.row a')].at(-1)")
    change = "mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { userErrors { code } } }"
    await site.ask(change, input={"projectPath": PATH, "iid": 1, "description": "Soon"})
    # A renewal begins 0.4 s after an event.
    await asyncio.sleep(1)
    assert await page.evaluate("document.querySelectorAll('.row').length") > 36
    shown = "\n".join(await page.evaluate(rows))
    for words in ("Priya Nair opened merge request !1", "Mei Tanaka joined the project", "created the project", HOSTILE):
        assert words in shown
    await page.click(".row a[href$='/commits?ref=delivery']")
    await page.wait_for("location.search === '?ref=delivery' && document.querySelectorAll('.row').length === 2")


async def test_a_draft_has_what_was_typed_and_what_others_changed(site: SettingsSite) -> None:
    page = site.page
    await site.visit("/web/other/settings/general")
    await page.wait_for("document.querySelector('[name=description]')")
    await page.evaluate("document.querySelector('[name=description]').focus()")
    await page.type("Half a description")
    await page.evaluate("[...document.querySelectorAll('#crumbs a')].at(-1).click()")
    await page.wait_for("location.pathname === '/web/other' && document.querySelector('.row')")
    change = "mutation ($input: UpdateProjectInput!) { updateProject(input: $input) { userErrors { code } } }"
    await site.ask(change, input={"projectPath": "web/other", "visibility": "INTERNAL"})
    await page.evaluate("history.back()")
    await page.wait_for("document.querySelector('.draft-note')")
    values = "['description', 'visibility'].map(name => document.querySelector(`[name=${name}]`).value)"
    assert await page.evaluate(values) == ["Half a description", "INTERNAL"]

    # A session that has ended is seen when the form is sent, and the draft is there after signing in.
    old = "{...options, headers: {...options?.headers, 'PRIVATE-TOKEN': 'old'}}"
    await page.evaluate(f"void (really => window.fetch = (url, options) => really(url, {old}))(fetch)")
    await site.submit("General settings")
    await page.wait_for_text("You are no longer signed in")
    assert all("401" in error for error in page.errors)
    page.errors.clear()
    assert "Half a description" in await page.evaluate("Object.values(sessionStorage).join()")


async def test_all_fit_a_telephone(site: SettingsSite) -> None:
    await site.page.set_viewport(360, 640, mobile=True)
    for path in ("activity", "stars", *(f"settings/{name}" for name in SECTIONS)):
        await site.visit(f"/{PATH}/{path}")
        assert await site.page.evaluate("document.documentElement.scrollWidth") == 360, path
        if path != "stars":
            box = "document.querySelector('.tabs [aria-current]').getBoundingClientRect()"
            assert await site.page.evaluate(f"{box}.left >= 0 && {box}.right <= 360"), f"the tab of {path} is seen"


async def test_labels_and_milestones_are_created_changed_and_deleted_by_keyboard(site: SettingsSite) -> None:
    page = site.page
    text = """query ($path: String!) { project(path: $path) { labels { nodes { name color description openIssuesCount } }
        milestones { nodes { title dueDate state description } } } }"""

    async def stored() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        project = (await site.ask(text, path=PATH))["project"]
        return project["labels"]["nodes"], project["milestones"]["nodes"]

    await site.visit(f"/{PATH}/issues")
    await site.tab_to("Labels")
    await page.press("Enter")
    await page.wait_for_text("No label yet.")
    await site.tab_to("Name")
    await page.type("a,b")
    # What was typed is there again after the page was left.
    await site.tab_to("Description")
    await page.type("Typed before")
    await page.open(f"{site.forge.address}/{PATH}/milestones")
    await page.wait_for_text("No active milestone.")
    await page.open(f"{site.forge.address}/{PATH}/labels")
    await page.wait_for("document.querySelector('.draft-note') && document.querySelector('#name-new').value === 'a,b'")
    await site.tab_to("Name")
    await page.press("Enter")
    await site.wait_for_refusal("name", "is invalid")
    await page.evaluate("document.activeElement.select()")
    await page.type(HOSTILE.replace("&", "").replace("?", "").replace(",", ""))
    await page.press("Enter")
    await page.wait_for("document.querySelector('.entry .label') && !document.querySelector('.draft-note')")
    ((label,), _) = await stored()
    assert (label["color"], label["description"]) == ("#428bca", "Typed before")
    await page.wait_for_text("1 label")
    await page.press("Escape", "j", "Enter")
    await page.wait_for("document.activeElement.closest('details').open")
    await site.tab_to("Name")
    await page.evaluate("document.activeElement.select()")
    await page.type("bug")
    await page.press("Enter")
    await page.wait_for("document.querySelector('.entry .label')?.innerText === 'bug'")
    await site.ask(
        'mutation ($path: String!) { createIssue(input: {projectPath: $path, title: "B", labels: ["bug"]}) { issue { iid } } }', path=PATH
    )

    await site.tab_to("Milestones")
    await page.press("Enter")
    await site.tab_to("New milestone")
    await page.press("Enter")
    await site.tab_to("Title")
    await page.type(HOSTILE)
    await page.evaluate("document.querySelector('[name=dueDate]').value = '2016-02-29'")
    await page.evaluate("document.querySelector('textarea').focus()")
    await page.type("By **then**.")
    await site.submit("New milestone")
    await page.wait_for("location.pathname.endsWith('/milestones/1') && document.querySelector('h1')?.innerText.startsWith('<')")
    await page.wait_for("document.querySelector('.badge[data-state=FAILED]')?.innerText === 'overdue'")
    assert await page.evaluate("document.querySelector('.markdown strong').innerText") == "then"
    await site.tab_to("Edit")
    await page.press("Enter")
    await site.tab_to("Title")
    await page.evaluate("document.activeElement.select()")
    await page.type("v1")
    await page.press("Enter")
    await page.wait_for("document.querySelector('h1')?.innerText === 'v1'")
    assert (await stored())[1] == [{"title": "v1", "dueDate": "2016-02-29", "state": "ACTIVE", "description": "By **then**."}]
    await page.click("[aria-label='Close v1']")
    await page.wait_for("document.querySelector('.badge[data-state=CLOSED]')")
    await page.open(f"{site.forge.address}/{PATH}/milestones?state=closed")
    await page.wait_for("document.querySelector('.entry')?.innerText.includes('0 of 0 issues are closed')")
    await site.confirm("Delete v1", "Delete")
    await page.wait_for_text("No closed milestone.")

    await page.open(f"{site.forge.address}/{PATH}/labels")
    await page.wait_for("document.querySelector('.entry .row-meta')?.innerText.includes('1 open')")
    await site.confirm("Delete the label bug", "Delete")
    await page.wait_for_text("No label yet.")
    assert await stored() == ([], [])

    # Developers change labels, masters milestones.
    await site.visit(f"/{PATH}/milestones", "priya")
    await page.wait_for_text("No active milestone.")
    assert await page.evaluate("document.querySelectorAll('main form').length") == 0
