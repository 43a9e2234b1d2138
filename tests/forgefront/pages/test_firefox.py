"""The main flows in a real Firefox, as a person goes through them; the tests in Chromium look at the details."""

import json
import os
from pathlib import Path

import pytest

from tests.forgefront.support.demo_server import run_demo_server
from tests.forgefront.support.firefox import FIREFOX, FirefoxPage, open_firefox
from tests.forgefront.support.page_tour import PATH, STOREFRONT, create_tour, sign_in

pytestmark = [
    pytest.mark.skipif(FIREFOX is None, reason="NOT RUN: firefox (apt install firefox-esr)"),
    pytest.mark.skipif("FORGEFRONT_ALL_PAGES" not in os.environ, reason="scripts/check --pages runs it"),
]


async def press_button(page: FirefoxPage, word: str) -> None:
    """Presses the button with this text."""
    found = f"[...document.querySelectorAll('main button')].find(each => each.innerText.trim() === {json.dumps(word)} && !each.disabled)"
    await page.wait_for(found, f"there is no button {word!r}")
    await page.evaluate(f"void {found}.click()")


async def test_the_main_flows(tmp_path: Path) -> None:
    async with run_demo_server(tmp_path / "data", (STOREFRONT,)) as forge, open_firefox(tmp_path / "profile") as page:
        await create_tour(forge)
        await page.set_viewport(1280, 800)
        await sign_in(page, forge, "ada")

        # The wall follows builds, and the project is opened by keyboard.
        await page.wait_for("document.querySelector('.tile')?.dataset.state === 'FAILED'")
        await page.wait_for("document.querySelector('#live').dataset.state === 'live'")
        await forge.set_status_by_name(PATH, "contract", "FAILED")
        await page.wait_for("document.querySelector('.tile').innerText.includes('contract')")
        await page.press("j", "Enter")
        await page.wait_for(f"location.pathname === '/{PATH}' && document.querySelector('.row')")

        # Files: a README, a file with its colours and a marked line.
        await page.click(".tabs a[href$='/files'], .tabs a[href*='/files']")
        await page.wait_for("document.querySelector('.readme table')")
        await page.click(".readme a[href*='prices.py']")
        await page.wait_for("document.querySelector('.syntax-keyword')")
        await page.click("[data-number='7']")
        await page.wait_for("location.hash === '#L7' && document.querySelector('.code-line.chosen')")

        # An issue is commented by keyboard, and the comment appears with its links.
        await page.open(f"{forge.address}/{PATH}/issues/1")
        await page.wait_for("document.querySelector('textarea')")
        await page.evaluate("document.querySelector('textarea').focus()")
        await page.type("Fixed by !2, thanks @mei")
        await press_button(page, "Comment")
        await page.wait_for("[...document.querySelectorAll('a')].some(each => each.innerText === '@mei' && each.closest('li, article'))")

        # A merge request is reviewed and merged.
        await page.open(f"{forge.address}/{PATH}/merge_requests/2/changes")
        await page.wait_for("document.querySelector('.line')")
        await page.open(f"{forge.address}/{PATH}/merge_requests/2")
        await press_button(page, "Merge")
        await page.wait_for_text("merged")

        # A build that runs shows its output as it comes; the artifact of another is browsed.
        await page.open(f"{forge.address}/{PATH}/builds/{forge.builds[PATH]['unit']}")
        await page.click(".files a[href*='unit.log']")
        await page.wait_for("document.querySelector('.code-line')?.innerText.includes('test_prices.py')")
        await page.open(f"{forge.address}/{PATH}/dashboard")
        await page.wait_for("document.querySelector('main svg path, main svg rect')")

        # The box finds things.
        await page.click("#find")
        await page.wait_for("document.activeElement.closest('dialog[open]')")
        await page.type("Norway")
        await page.wait_for("document.querySelector('dialog[open]').innerText.includes('Prices in Norway')")
        await page.press("Escape")
        await page.click("#sign-out")
        await page.wait_for("location.pathname === '/-/sign_in' && document.querySelector('form')")
        assert page.errors == []
        assert {url for url in page.requests if not url.startswith((forge.address, "data:", "about:", "blob:"))} == set()
