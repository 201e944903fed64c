# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, asked over its own debugging protocol (CDP).

Owns the process and its profile. The protocol is JSON over a WebSocket, which aiohttp, a dependency
of the product, speaks: no driver has to match the browser's version.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Root has no use for the sandbox's user namespaces, and a test machine may have no /dev/shm.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip
SECONDS = 60.0


class Browser:
    """One tab. `console` collects what the page complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.console: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""

    async def open(self) -> Self:
        """A new tab. To be called once, while `read` runs."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        found = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        return self

    async def read(self) -> None:
        """Take answers and events until the connection ends."""
        async for message in self._socket:
            data = json.loads(message.data)
            if waiting := self._answers.pop(data.get("id", 0), None):
                waiting.set_result(data)
            elif data.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(json.dumps(data["params"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One method of the protocol. Raises AssertionError with what the browser said."""
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        async with asyncio.timeout(SECONDS):
            answer = await self._answers[number]
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    async def ask(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait for an expression to be true; it is looked at with every frame of the page."""
        watch = (
            "new Promise((done) => { const look = () => { const found = (() => " + script + ")();"
            " found ? done(found) : setTimeout(look, 50); }; look(); })"
        )
        try:
            return await self.ask(watch)
        except TimeoutError:
            text = await self.ask("document.body.innerText")
            raise AssertionError(f"{script}: {text}\n{self.console}") from None

    async def click(self, selector: str) -> None:
        """A real click in the middle of an element, which scrolls into view."""
        place = await self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left",
                clickCount=1,
            )  # fmt: skip

    async def type(self, text: str) -> None:
        """Text into what has the focus, as from a keyboard."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, code: int) -> None:
        """One key, by its name and its code."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and the colours that its user likes."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """What is seen, as PNG."""
        found = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])


def program() -> str | None:
    """The browser's path; None where there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    """A browser with a profile of its own in `folder`."""
    path = program()
    assert path is not None, "no Chromium: tests/host_packages.py web"
    process = await asyncio.create_subprocess_exec(
        path, *FLAGS, f"--user-data-dir={folder}", env={**os.environ, "HOME": str(folder)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        url = await _listening(folder / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as s:
            tab = Browser(s)
            reading = asyncio.create_task(tab.read())
            yield await tab.open()
            await s.close()
            await reading
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its helpers
        await process.wait()


async def _listening(file: Path) -> str:
    """The address of the protocol, which Chromium leaves in a file when it is ready."""
    async with asyncio.timeout(SECONDS):
        while True:
            lines = file.read_text().splitlines() if file.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            await asyncio.sleep(0.05)
