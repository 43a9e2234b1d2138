"""Drives a real headless Chromium over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

import asyncio
import atexit
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The first has the engine without the windows, menus and tabs that the second draws unseen: it takes 0.6 of its CPU time."""
CHROMIUM_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    " --disable-sync --disable-extensions --disable-dev-shm-usage --hide-scrollbars --force-color-profile=srgb --lang=en"
    " --remote-debugging-port=0 --remote-allow-origins=*"
)
LOCAL_HOSTS_ONLY = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
"""A request to anybody else fails, which the console reports."""
STARTUP_SECONDS = 60.0
WAIT_SECONDS = 20.0
"""Seconds after which what should come to be seen is given up."""
WAIT_IN_PAGE = """await (async () => {
  const isReal = [setTimeout, performance.now].every((each) => /native code/.test(each));
  for (const end = isReal ? performance.now() + 500 : 0; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    if (CONDITION) return true;
    if (!isReal || performance.now() > end) return false;
  }
})()"""
"""Asking from outside again and again takes a tenth of the CPU time of a test; of a page whose timers are replaced it is the only way."""
FOLLOW_LINK = """((address, key, token) => {
  const url = new URL(address), main = document.getElementById('main');
  const isFragment = url.hash && url.href.split('#')[0] === location.href.split('#')[0];
  if (!main || isFragment || JSON.parse(sessionStorage.getItem(key))?.token !== token) return false;
  for (const each of main.children) each.dataset.previous = '';
  const link = Object.assign(document.createElement('a'), {href: address});
  document.body.append(link);
  link.click();
  link.remove();
  return true;
})"""
"""Follows a link in a page of the service, whose content is marked until that of the other page replaces it. False: the document has to be
opened, since it is not a page of the service, or the page of another user.
"""
IS_SHOWN = "document.querySelector('main')?.childElementCount && !document.querySelector('main[aria-busy], main > [data-previous]')"
"""A page is shown to its end, and is not the one whose link was followed."""
SESSION_KEY = "forgefront.session"
"""Where the pages store the token of a session (`pages/static/session.js`)."""
KEYS = {
    "Home": (36, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "ArrowDown": (40, ""),
    "ArrowRight": (39, ""),
    "ArrowLeft": (37, ""),
}


class ConditionNotMet(AssertionError):
    """Something did not come to be."""


@dataclass
class BrowserPage:
    """One tab. `errors` are those of the console, uncaught exceptions and breaches of the content security policy."""

    _socket: ClientConnection
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """The addresses that were requested since `observe_network`."""
    _is_visited: bool = False
    """In this test, a page of the service."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _pending: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def send(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._pending[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return await asyncio.wait_for(self._pending[number], WAIT_SECONDS)

    async def read_messages(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                waiting = self._pending.pop(message["id"])
                if "error" in message:
                    waiting.set_exception(RuntimeError(message["error"]["message"]))
                elif not waiting.done():
                    waiting.set_result(message["result"])
            else:
                self._handle_event(message["method"], message["params"])

    def _handle_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Audits.issueAdded" and "contentSecurityPolicyIssueDetails" in params["issue"]["details"]:
            self.errors.append(json.dumps(params["issue"]["details"]))

    @contextmanager
    def expect_no_errors(self) -> Iterator[None]:
        """What the browser complains of inside is an error, as is a request to anybody but this machine."""
        self.errors.clear()
        self._is_visited = False
        yield
        assert self.errors == []

    @asynccontextmanager
    async def observe_network(self) -> AsyncIterator[None]:
        """Records requests inside. That takes a fifth of the CPU time of a page."""
        await self.send("Network.enable")
        self.requests.clear()
        try:
            yield
        finally:
            await self.send("Network.disable")

    @asynccontextmanager
    async def without_network(self) -> AsyncIterator[None]:
        """The service cannot be reached inside."""
        async with self.observe_network():
            await self.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
            yield

    async def open(self, address: str) -> None:
        await self.send("Page.navigate", url=address)

    async def open_with_storage(self, address: str, items: dict[str, str], *, clear: bool = False) -> None:
        """Opens an address whose document finds these items in `sessionStorage`. `clear`: and nothing else, there and in `localStorage`."""
        empty = "sessionStorage.clear(), localStorage.clear(), " if clear else ""
        # An empty document has no storage.
        script = f"if (top === self && location.protocol !== 'about:') {empty}Object.assign(sessionStorage, {json.dumps(items)})"
        async with self.script_on_open(script):
            if "loaderId" not in await self.send("Page.navigate", url=address):
                # Only the fragment differs, so that the document stayed.
                await self.open("about:blank")
                await self.open(address)

    @asynccontextmanager
    async def script_on_open(self, source: str) -> AsyncIterator[None]:
        """Runs a script in each document that is opened inside, before its own scripts."""
        added = await self.send("Page.addScriptToEvaluateOnNewDocument", source=source)
        try:
            yield
        finally:
            await self.send("Page.removeScriptToEvaluateOnNewDocument", **added)

    @asynccontextmanager
    async def hold(self, operation: str, *, answered: bool) -> AsyncIterator[None]:
        """Holds the first request for an operation, or with `answered` its answer, of pages opened inside until they call `release()`."""
        script = f"""(() => {{
          const fetchReally = window.fetch;
          const released = new Promise((resolve) => (window.release = resolve));
          window.fetch = async (url, options) => {{
            const name = String(url).endsWith('/graphql') && JSON.parse(new TextDecoder().decode(options.body)).operationName;
            if (name !== {json.dumps(operation)} || window.isHeld) return fetchReally(url, options);
            const answer = {json.dumps(answered)} && await fetchReally(url, options);
            window.isHeld = true;
            await released;
            return answer || fetchReally(url, options);
          }};
        }})()"""
        async with self.script_on_open(script):
            await self.open("about:blank")
            yield

    async def open_signed_in(self, address: str, token: str, *, clear: bool = False) -> None:
        """Opens a page of the service, for the owner of a private token. `clear`: as of `open_with_storage`."""
        await self.open_with_storage(address, {SESSION_KEY: json.dumps({"token": token, "until": None})}, clear=clear)

    async def visit(self, address: str, token: str) -> None:
        """Shows a page of the service to the owner of a private token: the first of a test in a new document whose storage has nothing
        else, the next ones as by a link in it, which takes a third of the CPU time.
        """
        arguments = ", ".join(map(json.dumps, (address, SESSION_KEY, token)))
        if not (self._is_visited and await self.evaluate(f"{FOLLOW_LINK}({arguments})")):
            await self.open_signed_in(address, token, clear=True)
        self._is_visited = True
        await self.wait_for(IS_SHOWN, f"{address} is not shown")

    async def evaluate(self, script: str) -> Any:
        """The value of an expression, in which `await` may stand."""
        found = await self.send("Runtime.evaluate", expression=f"(async () => ({script}))()", awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return found["result"].get("value")

    async def wait_for(self, script: str, what: str | None = None) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            # While a page is left, there is nothing to evaluate in.
            with suppress(RuntimeError):
                if await self.evaluate(WAIT_IN_PAGE.replace("CONDITION", script)):
                    return
            await asyncio.sleep(0.03)
        shown = await self.evaluate("document.body.innerText")
        raise ConditionNotMet(f"{what or script}: the page shows {shown!r}, and complained of {self.errors}")

    async def wait_for_text(self, text: str) -> None:
        await self.wait_for(f"document.querySelector('main').innerText.includes({json.dumps(text)})", f"there is no {text!r}")

    async def click(self, selector: str) -> None:
        await self.wait_for(f"document.querySelector({json.dumps(selector)})", f"there is no {selector}")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def press(self, *keys: str) -> None:
        for key in keys:
            code, text = KEYS.get(key, (ord(key[0].upper()), key))
            event = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
            await self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def set_viewport(self, width: int, height: int, *, scale: float = 1, mobile: bool = False) -> None:
        await self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    async def set_color_scheme(self, name: str) -> None:
        """`dark` or `light`, as the system would say."""
        features = [{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def open_chromium() -> AsyncIterator[BrowserPage]:
    """A tab with settings and storage of its own, in the browser of this process."""
    async with open_windows(1) as [page]:
        yield page


@asynccontextmanager
async def open_windows(number: int) -> AsyncIterator[list[BrowserPage]]:
    """Windows with common settings and storage of their own, in the browser of this process. All of them are visible and have the focus."""
    async with AsyncExitStack() as stack:
        socket = await stack.enter_async_context(connect(await asyncio.to_thread(shared_chromium), max_size=None, compression=None))
        browser = BrowserPage(socket)
        await stack.enter_async_context(_read_messages(browser))
        context = (await browser.send("Target.createBrowserContext"))["browserContextId"]
        tabs = f"{shared_chromium().partition('/devtools/')[0]}/devtools/page"
        async with AsyncExitStack() as opened:
            pages = []
            for _ in range(number):
                target = await browser.send("Target.createTarget", url="about:blank", browserContextId=context, newWindow=True)
                pages.append(await opened.enter_async_context(_open_tab(f"{tabs}/{target['targetId']}")))
            yield pages
        await browser.send("Target.disposeBrowserContext", browserContextId=context)


def start_chromium(profile: Path) -> subprocess.Popen[bytes]:
    command = [str(CHROMIUM), *CHROMIUM_FLAGS.split(), LOCAL_HOSTS_ONLY, f"--user-data-dir={profile}", "about:blank"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def stop_chromium(process: subprocess.Popen[bytes]) -> None:
    """Kills the browser and its processes: what was started may be a script that waits for the browser."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@cache
def shared_chromium() -> str:
    """The address of the DevTools of the browser that ends with this process: its start takes as much as three tests."""
    profile = Path(tempfile.mkdtemp(prefix="forgefront-chromium-"))
    process = start_chromium(profile)

    @atexit.register
    def stop() -> None:
        stop_chromium(process)
        shutil.rmtree(profile, ignore_errors=True)

    return _devtools_url(profile, process)


@asynccontextmanager
async def _open_tab(address: str) -> AsyncIterator[BrowserPage]:
    async with connect(address, max_size=None, compression=None, ping_interval=None) as socket:
        page = BrowserPage(socket)
        async with _read_messages(page):
            for domain in ("Page", "Runtime", "Log", "Audits"):
                await page.send(f"{domain}.enable")
            yield page


@asynccontextmanager
async def _read_messages(page: BrowserPage) -> AsyncIterator[None]:
    reading = asyncio.create_task(page.read_messages())
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _devtools_url(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the browser listens: it writes its port and path into its profile."""
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with suppress(FileNotFoundError, ValueError):
            port, path = (profile / "DevToolsActivePort").read_text().split()
            return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.05)
    raise ConditionNotMet("chromium did not start")
