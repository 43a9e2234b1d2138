"""Drives a real headless Firefox over WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/)."""

import asyncio
import base64
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from tests.forgefront.support.browser import STARTUP_SECONDS, BrowserPage, ConditionNotMet

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
KEYS = {
    "Home": "\ue011",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Tab": "\ue004",
    "ArrowDown": "\ue015",
    "ArrowRight": "\ue014",
    "ArrowLeft": "\ue012",
}
"""The code points of keys that type nothing (WebDriver, section 17.4.2)."""
PREFERENCES = """
user_pref("app.update.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("intl.accept_languages", "en");
"""


@dataclass
class FirefoxPage(BrowserPage):
    """One tab, with the methods of Chromium's that tests of both use."""

    context: str = ""

    def _handle_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "network.beforeRequestSent":
            self.requests.append(params["request"]["url"])
        elif method == "log.entryAdded" and params["level"] in ("error", "warn"):
            self.errors.append(str(params["text"]))

    async def open(self, address: str) -> None:
        await self.send("browsingContext.navigate", context=self.context, url=address, wait="none")

    async def evaluate(self, script: str) -> Any:
        found = await self.send(
            "script.evaluate",
            expression=f"(async () => JSON.stringify((await ({script})) ?? null))()",
            target={"context": self.context},
            awaitPromise=True,
        )
        if found["type"] != "success":
            raise RuntimeError(found["exceptionDetails"]["text"])
        return json.loads(found["result"]["value"])

    async def type(self, text: str) -> None:
        await self._press_keys(list(text))

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self._press_keys([KEYS.get(key, key)])

    async def _press_keys(self, keys: list[str]) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        await self.send("input.performActions", context=self.context, actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    async def set_viewport(self, width: int, height: int, *, scale: float = 1, mobile: bool = False) -> None:
        await self.send("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})

    async def set_color_scheme(self, name: str) -> None:
        raise NotImplementedError("WebDriver BiDi cannot set the colour scheme")

    async def screenshot(self) -> bytes:
        return base64.b64decode((await self.send("browsingContext.captureScreenshot", context=self.context))["data"])


@asynccontextmanager
async def open_firefox(profile: Path) -> AsyncIterator[FirefoxPage]:
    """A browser with one tab, whose settings and storage are in `profile`."""
    profile.mkdir()  # noqa: ASYNC240 - nothing else runs
    (profile / "user.js").write_text(PREFERENCES)
    process = await asyncio.create_subprocess_exec(
        str(FIREFOX),
        *("--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        address = await _session_url(profile, process)
        async with connect(address, max_size=None, compression=None, ping_interval=None) as socket:
            page = FirefoxPage(socket)
            listening = asyncio.create_task(page.read_messages())
            await page.send("session.new", capabilities={})
            page.context = (await page.send("browsingContext.getTree"))["contexts"][0]["context"]
            await page.send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
            yield page
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _session_url(profile: Path, process: asyncio.subprocess.Process) -> str:
    """Where sessions are created: the browser writes its port into its profile."""
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end and process.returncode is None:
        with suppress(FileNotFoundError, ValueError):
            found = json.loads((profile / "WebDriverBiDiServer.json").read_text())
            return f"ws://{found['ws_host']}:{found['ws_port']}/session"
        await asyncio.sleep(0.05)
    raise ConditionNotMet("firefox did not start")
