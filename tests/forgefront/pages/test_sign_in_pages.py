"""The sign-in page with an OpenID provider and with links, in a browser, against npm's oidc-provider."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.forgefront.pages.test_pages import PagesSite
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.demo_server import DemoProject, run_demo_server
from tests.support.database.databases import free_port
from tests.support.servers.oidc_provider import CLIENT_ID, CLIENT_SECRET, run_oidc_provider

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: the pages in a browser (apt install chromium)"),
    pytest.mark.asyncio(loop_scope="module"),
]
PROJECTS = (DemoProject("web/storefront", "The shop."),)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PagesSite]:
    folder, port = tmp_path_factory.mktemp("pages"), free_port()
    with run_oidc_provider(f"http://127.0.0.1:{port}/-/sign_in") as issuer:
        settings = {"oidc_issuer": issuer, "oidc_client_id": CLIENT_ID, "oidc_client_secret": CLIENT_SECRET, "oidc_label": "Example"}
        forge = run_demo_server(folder / "data", PROJECTS, port=port, oidc_match_email=True, **settings)
        async with forge as running, open_chromium() as page:
            yield PagesSite(running, page)


async def test_the_provider_signs_in_and_out(site: PagesSite) -> None:
    page, forge = site.page, site.forge
    await site.visit("/web/storefront?from=here", None)
    await page.click(".provider")
    await page.wait_for("document.querySelector('[name=login]')")
    await page.evaluate("document.querySelector('[name=login]').value = 'mei', document.querySelector('[name=password]').value = 'x'")
    await page.evaluate("document.querySelector('form').submit()")
    await page.wait_for("document.querySelector('[name=prompt][value=consent]')")
    await page.evaluate("document.querySelector('form').submit()")

    await page.wait_for_text("The shop.")
    assert await page.evaluate("location.pathname + location.search + location.hash") == "/web/storefront?from=here"
    session = json.loads(await page.evaluate("sessionStorage.getItem('forgefront.session')"))
    assert session["token"] == forge.tokens["mei"]
    assert await page.evaluate("sessionStorage.length + localStorage.length + document.cookie.length") == 1
    await page.click("#sign-out")
    await page.wait_for("location.pathname === '/session/end'")

    # A code without the ticket of this tab is useless, for every site that sends the browser here with it.
    await site.visit("/-/sign_in?code=stolen&state=theirs", None)
    await page.wait_for_text("This sign-in was started in another tab or browser.")
    assert await page.evaluate("location.search") == ""
    await site.visit(
        "/-/sign_in?error=access_denied&error_description=%3Cb%3ENo%3C/b%3E&state=s", None, **{"forgefront.openid": '{"ticket":"t"}'}
    )
    await page.wait_for_text("The provider has not signed you in: <b>No</b>")


async def test_an_administrators_link_signs_in_once(site: PagesSite) -> None:
    page = site.page
    await site.visit("/u/jonas")
    await page.click("#make-link")
    await page.wait_for("document.querySelector('#sign-in-link')?.value.includes('#link=')")
    link = str(await page.evaluate("document.querySelector('#sign-in-link').value")).removeprefix(site.forge.address)
    await site.visit(link, None)
    assert await page.evaluate("location.hash") == ""
    await page.evaluate("document.querySelector('[name=password]').focus()")
    await page.type("jonas chooses")
    await page.click(".primary")
    await page.wait_for("document.querySelector('.who-name')?.textContent === 'Jonas Weber'")
    page.errors.clear()

    await site.visit(link, None)
    await page.click(".primary")
    await page.wait_for_text("The link is not valid")
    await site.visit("/-/sign_in", None)
    await page.click(".switch")
    await page.type("jonas")
    await page.press("Tab")
    await page.type("jonas chooses")
    await page.click(".primary")
    await page.wait_for("document.querySelector('.who-name')?.textContent === 'Jonas Weber'")
    # The browser itself reports each answer of 401.
    assert all("401" in error for error in page.errors)
    await site.visit("/u/jonas", "mei")
    await page.wait_for_text("Jonas Weber")
    assert await page.evaluate("document.querySelector('#make-link')") is None
