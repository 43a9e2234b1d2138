"""The administration of the instance and the account of a user in a real browser."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.forgefront.pages.test_pages import HOSTILE
from tests.forgefront.pages.test_settings_pages import KEY, SettingsSite
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoCommit, DemoProject, run_demo_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)"),
]

PATH = "web/storefront"
SAID = "document.getElementById('said').textContent"
USER = """query ($name: String!) { user(username: $name) {
    name email state isAdmin projectsLimit bio hasPassword sshKeys { nodes { title } } emails { nodes { email } } } }"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SettingsSite]:
    folder = tmp_path_factory.mktemp("administration")
    projects = (DemoProject(PATH, "The shop.", (DemoCommit("First", "mei", 18),)),)
    async with (
        run_demo_server(folder / "data", projects, hooks_allow_local=True) as forge,
        open_chromium() as page,
    ):
        yield SettingsSite(forge, page)


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: SettingsSite) -> AsyncIterator[SettingsSite]:
    """What the browser complains of fails the test in which it happens, as does a request to anybody else."""
    await shared.page.set_viewport(1280, 800)
    with shared.page.expect_no_errors():
        yield shared


async def user(site: SettingsSite, username: str) -> dict[str, Any]:
    found: dict[str, Any] = (await site.ask(USER, name=username))["user"]
    return found


async def test_administrators_see_the_state_and_others_find_nothing(site: SettingsSite) -> None:
    page = site.page
    await site.visit("/")
    await site.tab_to("Administration")
    await page.press("Enter")
    await page.wait_for("document.activeElement.tagName === 'H1' && document.querySelector('.job')")
    shown = await page.evaluate("document.querySelector('main').innerText")
    assert "database" in shown
    assert "SQLite 3" in shown
    assert "token uses" in shown
    assert await page.evaluate("document.querySelectorAll('main .rows:first-of-type [data-state=FAILED]').length") == 0

    # A failure is first, with its error as text.
    with pytest.raises(ValueError, match="script"), site.forge.app.graph.services.job_monitor.record_run("broken", 5.0):
        raise ValueError(HOSTILE)
    await page.open(f"{site.forge.address}/-/admin")
    await page.wait_for("document.querySelector('.job code')")
    assert await page.evaluate("document.querySelector('.job .row-title').innerText") == "broken"
    assert await page.evaluate("document.querySelector('.job code').innerText") == f"ValueError: {HOSTILE}"

    async with page.observe_network():
        for section in ("", "/users", "/users/ada", "/runners", "/hooks", "/hooks/1", "/settings"):
            await site.visit(f"/-/admin{section}", "mei")
            assert await page.evaluate("document.querySelector('h1').innerText") == "Not found"
            assert not await page.evaluate("document.querySelector('#account a[href*=admin]')")
    assert page.requests
    assert not any("admin" in url and "graphql" in url.split("operations")[0] for url in page.requests)


async def test_an_administrator_creates_changes_blocks_and_deletes_a_user_by_keyboard(site: SettingsSite) -> None:
    page = site.page
    await site.visit("/-/admin/users")
    await page.press("/")
    await page.type("no such user")
    await page.press("Enter")
    await page.wait_for_text("No user matches.")
    await site.tab_to("User name")
    await page.type("ada")
    await page.press("Tab")
    await page.type(HOSTILE)
    await page.press("Tab")
    await page.type("carol@example.org")
    await page.press("Tab")
    await page.type("carol signs in")
    await page.press("Enter")
    await site.wait_for_refusal("username", "already been taken")
    await page.evaluate("document.activeElement.select()")
    await page.type("carol")
    await page.press("Enter")
    await page.wait_for(f"location.pathname.endsWith('/users/carol') && document.querySelector('h1')?.innerText === {HOSTILE!r}")
    drafts = await page.evaluate("Object.entries(sessionStorage).filter(([name]) => name.startsWith('forgefront.draft')).join()")
    assert "carol signs in" not in drafts

    await site.tab_to("Name")
    await page.evaluate("document.activeElement.select()")
    await page.type("Carol")
    await site.tab_to("Personal projects")
    await page.evaluate("document.activeElement.select()")
    await page.type("3")
    await site.tab_to("Is an administrator")
    await page.press(" ", "Enter")
    await page.wait_for(
        "document.querySelector('h1')?.innerText === 'Carol' && document.querySelector('.tag')?.innerText === 'administrator'"
    )
    found = await user(site, "carol")
    assert (found["email"], found["isAdmin"], found["projectsLimit"], found["hasPassword"]) == ("carol@example.org", True, 3, True)

    await site.tab_to("Block")
    await page.press("Enter")
    await page.wait_for("[...document.querySelectorAll('.tag')].some(each => each.innerText === 'blocked')")
    assert (await user(site, "carol"))["state"] == "BLOCKED"
    await page.open(f"{site.forge.address}/-/admin/users?state=blocked")
    await page.wait_for("document.querySelector('.entry a')?.innerText === 'Carol'")
    await page.press("j", "Enter")
    await page.wait_for("[...document.querySelectorAll('button')].some(each => each.innerText === 'Unblock')")
    await site.tab_to("Delete")
    await page.press("Enter")
    await page.wait_for("document.activeElement.id === 'confirm-name'")
    await page.type("caro")
    await page.press("Enter")
    assert await page.evaluate("document.querySelector('dialog[open] .danger').disabled")
    await page.type("l")
    await page.press("Enter")
    await page.wait_for("location.pathname.endsWith('/admin/users')")
    await page.wait_for(f"{SAID} === 'The user is deleted.'")
    assert (await site.ask('{ users(filter: {search: "carol"}) { totalCount } }'))["users"]["totalCount"] == 0
    # Nobody blocks, deletes or demotes themselves.
    await page.open(f"{site.forge.address}/-/admin/users/ada")
    await page.wait_for("document.querySelector('[name=username]')")
    assert not await page.evaluate("document.querySelector('[name=admin], .danger')")


async def test_an_administrator_changes_settings_hooks_and_runners(site: SettingsSite) -> None:
    page = site.page
    settings = "{ settings { signInText restrictedVisibilityLevels sessionExpireDelay restrictedSignupDomains signupEnabled } }"
    before = (await site.ask(settings))["settings"]
    await site.visit("/-/admin/settings")
    await site.fill(sessionExpireDelay="-1")
    await site.submit("Settings of the instance")
    assert await page.evaluate("document.querySelector('[name=sessionExpireDelay]').matches(':invalid')")
    await site.fill(
        sessionExpireDelay="600", signInText=HOSTILE, homePageUrl="javascript:alert(1)", restrictedSignupDomains="*.example.org, b.org"
    )
    await page.click("[name='level:PUBLIC']")
    await site.submit("Settings of the instance")
    await site.wait_for_refusal("homePageUrl", "")
    assert (await site.ask(settings))["settings"] == before, "nothing is changed if a value is invalid"
    await page.evaluate("document.querySelector('[name=homePageUrl]').value = ''")
    await site.submit("Settings of the instance")
    await page.wait_for(f"{SAID} === 'The settings are saved.'")
    assert (await site.ask(settings))["settings"] == {
        "signInText": HOSTILE,
        "restrictedVisibilityLevels": ["PUBLIC"],
        "sessionExpireDelay": 600,
        "restrictedSignupDomains": ["*.example.org", "b.org"],
        "signupEnabled": before["signupEnabled"],
    }
    await site.settings(signInText=None)
    await site.ask(
        "mutation { updateSettings(input: {restrictedVisibilityLevels: null, restrictedSignupDomains: null}) { userErrors { message } } }"
    )

    await page.open(f"{site.forge.address}/-/admin/hooks")
    await page.wait_for_text("No system hook yet.")
    assert not await page.evaluate("document.querySelector('[name=token]')")
    await site.fill(url=f"{site.forge.address}/-/health")
    await site.submit("Add a system hook")
    await page.wait_for("document.querySelector('h1')?.innerText.startsWith('System hook #')")
    await page.evaluate("[...document.querySelectorAll('button')].find(each => each.innerText === 'Send a test').click()")
    await page.wait_for("document.querySelector('.attempts summary')?.innerText.includes('HTTP 405')")
    await page.click(".attempts summary")
    await page.wait_for("document.querySelector('.attempts .output')?.innerText.includes('project_create')")
    await page.evaluate("document.querySelector('[name=buildEvents]').click()")
    await site.submit("Change the hook")
    await page.wait_for("document.querySelector('main:not([aria-busy]) [name=buildEvents]')?.defaultChecked")
    await site.confirm("Remove the hook", "Remove")
    await page.wait_for_text("No system hook yet.")

    create = "mutation ($input: CreateRunnerInput!) { createRunner(input: $input) { runner { databaseId } userErrors { message } } }"
    await site.ask(create, input={"description": HOSTILE, "projectPath": PATH, "tags": ["linux"]})
    await site.ask(create, input={"description": "everywhere", "shared": True})
    await page.open(f"{site.forge.address}/-/admin/runners?scope=specific")
    await page.wait_for(f"document.querySelector('.entry .row-meta a')?.innerText === {PATH!r}")
    assert await page.evaluate("document.querySelectorAll('.entry').length") == 1
    await page.press("j", "Enter")
    await site.tab_to("Description")
    await page.evaluate("document.activeElement.select()")
    await page.type("builder")
    await page.press("Enter")
    await page.wait_for("document.querySelector('.entry summary')?.innerText.endsWith('builder')")
    await page.click("[aria-label='Pause builder']")
    await page.wait_for("document.activeElement.ariaLabel === 'Resume builder'")
    await site.confirm("Remove builder", "Remove")
    await page.wait_for_text("No such runner.")
    nodes = (await site.ask("{ runners { nodes { description } } }"))["runners"]["nodes"]
    assert nodes == [{"description": "everywhere"}]


async def test_a_user_changes_profile_password_keys_and_addresses(site: SettingsSite) -> None:
    page = site.page
    await site.visit("/u/mei", "mei")
    await site.tab_to("Edit your account")
    await page.press("Enter")
    await site.tab_to("About you")
    await page.type(HOSTILE)
    # What was typed is there again after the page was left.
    await page.wait_for("Object.keys(sessionStorage).some(name => name.startsWith('forgefront.draft'))")
    await page.open(f"{site.forge.address}/-/profile")
    await page.wait_for(f"document.querySelector('[name=bio]')?.value === {HOSTILE!r}")
    await site.submit("Profile")
    await page.wait_for(f"{SAID} === 'Your profile is saved.' && !document.querySelector('.draft-note')")
    assert (await user(site, "mei"))["bio"] == HOSTILE
    await site.fill(name="Mei the Second")
    await site.submit("Profile")
    await page.wait_for("document.querySelector('.who').title === 'Mei the Second (mei)'")

    await site.fill(currentPassword="wrong password", password="mei signs in again")
    await site.submit("Password")
    await site.wait_for_refusal("currentPassword", "is wrong")
    await site.fill(currentPassword="mei signs in")
    await site.submit("Password")
    await page.wait_for(f"{SAID} === 'Your password is changed.'")
    signing_in = 'mutation { signIn(input: {login: "mei", password: "mei signs in again"}) { user { username } } }'
    assert (await site.forge.app.graph.run_document(signing_in, {}, None, None, request_id="test")).errors == []

    await site.tab_to("Add an SSH key")
    await page.press("Enter", "Tab")
    await page.type(HOSTILE)
    await page.press("Tab")
    await page.type(KEY)
    await site.submit("Add an SSH key")
    await page.wait_for(f"document.querySelector('.entry summary')?.innerText === {HOSTILE!r}")
    await site.tab_to("Add an email address")
    await page.press("Enter", "Tab")
    await page.type("ada@example.org")
    await page.press("Enter")
    await site.wait_for_refusal("address", "taken")
    await page.evaluate("document.activeElement.select()")
    await page.type("mei@elsewhere.example")
    await page.press("Enter")
    await page.wait_for(f"{SAID} === 'mei@elsewhere.example is added.'")
    found = await user(site, "mei")
    assert found["sshKeys"]["nodes"] == [{"title": HOSTILE}]
    assert found["emails"]["nodes"] == [{"email": "mei@elsewhere.example"}]

    await site.visit("/-/admin/users/mei")
    await site.confirm(f"Remove the key {HOSTILE}", "Remove")
    await page.wait_for_text("No SSH key yet.")
    await site.confirm("Remove mei@elsewhere.example", "Remove")
    await page.wait_for_text("No further address.")


async def test_an_owner_creates_changes_and_deletes_a_group_with_a_project(site: SettingsSite) -> None:
    page = site.page
    members = "query ($path: String!) { group(path: $path) { members { nodes { accessLevel user { username } } } } }"

    async def levels() -> dict[str, str]:
        nodes = (await site.ask(members, path="acme"))["group"]["members"]["nodes"]
        return {each["user"]["username"]: each["accessLevel"] for each in nodes}

    await site.visit("/")
    await site.tab_to("New group")
    await page.press("Enter")
    await site.tab_to("Name")
    await page.type("Acme Works")
    await page.press("Tab")
    await page.type("web")
    await page.press("Enter")
    await site.wait_for_refusal("path", "taken")
    await page.evaluate("document.activeElement.select()")
    await page.type("acme-1")
    await page.press("Enter")
    await page.wait_for("location.pathname === '/groups/acme-1' && document.querySelector('h1')?.innerText === 'Acme Works'")
    await site.tab_to("Settings")
    await page.press("Enter")
    await site.tab_to("Path")
    await page.evaluate("document.activeElement.select()")
    await page.type("acme")
    await page.press("Enter")
    await page.wait_for("location.pathname === '/groups/acme/settings' && document.querySelector('.tabs a[href=\"/groups/acme/members\"]')")

    await site.tab_to("Members")
    await page.press("Enter")
    await site.tab_to("User name")
    await page.type("priya")
    await page.press("Enter")
    await page.wait_for(f"{SAID} === 'Priya Nair is a member now.'")
    assert await levels() == {"ada": "OWNER", "priya": "DEVELOPER"}
    await page.evaluate(
        "(select => { select.value = 'OWNER'; select.dispatchEvent(new Event('change')); })(document.querySelector('#level-priya'))"
    )
    await page.click("[aria-label='Change the access level of Priya Nair']:not([hidden])")
    await page.wait_for(f"{SAID} === 'Priya Nair: Owner.'")
    await site.confirm("Remove Priya Nair", "Remove")
    await page.wait_for_text("1 member")
    assert await levels() == {"ada": "OWNER"}

    # A project of the group: another address, another group, and its end.
    create = "mutation ($input: CreateProjectInput!) { createProject(input: $input) { project { fullPath } userErrors { message } } }"
    await site.ask(create, input={"name": "one", "groupPath": "acme"})
    await page.open(f"{site.forge.address}/acme/one/settings/general")
    await site.fill(newPath="two")
    await site.submit("Address")
    await page.wait_for("document.querySelector('[name=newPath]')?.defaultValue === 'two'")
    await site.fill(group="nowhere")
    await site.submit("Transfer")
    await site.wait_for_refusal("group", "not found")
    await site.fill(group="web")
    await site.submit("Transfer")
    await page.wait_for("document.querySelector('.tabs a')?.pathname.startsWith('/web/two/') && document.querySelector('.danger')")
    await page.click("[aria-label='Delete the project']")
    await page.wait_for("document.activeElement.id === 'confirm-name'")
    await page.type("web/two")
    await page.press("Enter")
    await page.wait_for(f"location.pathname === '/' && {SAID} === 'The project is deleted.'")
    await page.open(f"{site.forge.address}/groups/acme/settings")
    await page.wait_for("document.querySelector('.danger')")
    await page.click("[aria-label='Delete the group']")
    await page.wait_for("document.activeElement.id === 'confirm-name'")
    await page.type("acme")
    await page.press("Enter")
    await page.wait_for(f"location.pathname === '/' && {SAID} === 'The group is deleted.'")

    # Others are not offered what they may not do.
    await site.visit("/groups/web/members", "guest")
    assert await page.evaluate("document.querySelectorAll('main form, .tabs a[href$=settings]').length") == 0


async def test_a_merge_request_is_offered_after_a_push(site: SettingsSite) -> None:
    page = site.page
    await site.visit(f"/{PATH}")
    assert not await page.evaluate("document.querySelector('.push-offer')")
    branch = 'mutation ($path: String!) { createBranch(input: {projectPath: $path, name: "a/<b>", ref: "main"}) { branch { name } } }'
    await site.ask(branch, path=PATH)
    commit = (
        """mutation ($input: CreateCommitInput!) { createCommit(input: $input) { fileCommit { branchName } userErrors { message } } }"""
    )
    actions = [{"action": "CREATE", "path": "new.txt", "content": "1"}]
    await site.ask(commit, input={"projectPath": PATH, "branch": "a/<b>", "message": HOSTILE, "actions": actions})

    await page.open(f"{site.forge.address}/{PATH}")
    await page.wait_for("document.querySelector('.push-offer .ref')?.innerText === 'a/<b>'")
    await page.click(".push-offer a")
    await page.wait_for("document.querySelector('[name=sourceBranch]')?.value === 'a/<b>'")
    assert await page.evaluate("document.querySelector('[name=title]').value") == HOSTILE
    await site.submit("New merge request")
    await page.wait_for(f"/merge_requests\\/\\d+$/.test(location.pathname) && document.querySelector('h1').innerText.includes({HOSTILE!r})")
    # It is offered once, and to nobody else.
    for path, username in ((f"/{PATH}/merge_requests", "ada"), (f"/{PATH}", "mei")):
        await site.visit(path, username)
        await page.wait_for("document.querySelector('.row')")
        assert not await page.evaluate("document.querySelector('.push-offer')")
