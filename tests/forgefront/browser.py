"""Drives a real headless Chromium over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

import asyncio
import base64
import itertools
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    " --disable-sync --disable-extensions --disable-dev-shm-usage --hide-scrollbars --force-color-profile=srgb --lang=en"
    " --remote-debugging-port=0 --remote-allow-origins=*"
)
STARTING_SECONDS = 60.0
PATIENCE = 20.0
"""Seconds after which what should come to be seen is given up."""
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "ArrowRight": (39, ""), "ArrowLeft": (37, "")}


class NotSeen(AssertionError):
    """Something did not come to be."""


@dataclass
class Page:
    """One tab. `complaints` are errors of the console, uncaught exceptions and breaches of the content security policy."""

    _socket: ClientConnection
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def send(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return await asyncio.wait_for(self._waiting[number], PATIENCE)

    async def listen(self) -> None:
        async for text in self._socket:
            said = json.loads(text)
            if "id" in said:
                waiting = self._waiting.pop(said["id"])
                if "error" in said:
                    waiting.set_exception(RuntimeError(said["error"]["message"]))
                elif not waiting.done():
                    waiting.set_result(said["result"])
            else:
                self._hear(said["method"], said["params"])

    def _hear(self, method: str, told: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(each.get("value", each.get("description"))) for each in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Audits.issueAdded" and "contentSecurityPolicyIssueDetails" in told["issue"]["details"]:
            self.complaints.append(json.dumps(told["issue"]["details"]))

    async def open(self, address: str) -> None:
        await self.send("Page.navigate", url=address)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression, in which `await` may stand."""
        found = await self.send("Runtime.evaluate", expression=f"(async () => ({script}))()", awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return found["result"].get("value")

    async def until(self, script: str, what: str | None = None) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            # While a page is left, there is nothing to evaluate in.
            with suppress(RuntimeError):
                if await self.evaluate(f"!!({script})"):
                    return
            await asyncio.sleep(0.03)
        shown = await self.evaluate("document.body.innerText")
        raise NotSeen(f"{what or script}: the page shows {shown!r}, and complained of {self.complaints}")

    async def sees(self, text: str) -> None:
        await self.until(f"document.querySelector('main').innerText.includes({json.dumps(text)})", f"there is no {text!r}")

    async def click(self, selector: str) -> None:
        await self.until(f"document.querySelector({json.dumps(selector)})", f"there is no {selector}")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def press(self, *keys: str) -> None:
        for key in keys:
            code, text = KEYS.get(key, (ord(key[0].upper()), key))
            told = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
            await self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **told)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def size(self, width: int, height: int, *, scale: float = 1, mobile: bool = False) -> None:
        await self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    async def scheme(self, name: str) -> None:
        """`dark` or `light`, as the system would say."""
        features = [{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Page]:
    """A browser with one tab, whose settings and storage are in `profile`."""
    process = await asyncio.create_subprocess_exec(
        str(CHROMIUM),
        *FLAGS.split(),
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with connect(await _address(profile, process), max_size=None, compression=None) as socket:
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
                await page.send(f"{domain}.enable")
            yield page
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    finally:
        process.kill()
        await process.wait()


async def _address(profile: Path, process: asyncio.subprocess.Process) -> str:
    """Where the first tab listens: the browser writes its port into its profile."""
    end = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < end and process.returncode is None:
        with suppress(FileNotFoundError, IndexError, httpx.HTTPError, StopIteration):
            port = (profile / "DevToolsActivePort").read_text().split("\n")[0]
            async with httpx.AsyncClient() as http:
                tabs = (await http.get(f"http://127.0.0.1:{port}/json/list")).json()
            return next(str(tab["webSocketDebuggerUrl"]) for tab in tabs if tab["type"] == "page")
        await asyncio.sleep(0.05)
    raise NotSeen("chromium did not start")
