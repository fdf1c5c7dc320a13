"""A headless Chromium, controlled by its DevTools protocol: for tests, the bench and the pictures of the docs.

    with Chromium() as browser:
        page = browser.open(html, width=390, dark=True)
        page.evaluate("document.title")

It uses a browser on PATH. If there is none, it uses the browser that `make chromium` unpacks into build/.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import websocket

from sandbox.template import ROOT

_UNPACKED = ROOT / "build" / "chromium" / "chromium"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # a container may lack the rights for a sandbox; only our own pages are opened
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_PATIENCE_SECONDS = 60


def find_chromium() -> str | None:
    """Return the command of a browser; None if there is no browser."""
    on_path = next(filter(None, map(shutil.which, _NAMES)), None)
    return on_path or (str(_UNPACKED) if _UNPACKED.exists() else None)


class Chromium(AbstractContextManager["Chromium"]):
    """One browser process. Raises FileNotFoundError if there is no browser."""

    def __enter__(self) -> Chromium:
        command = find_chromium()
        if command is None:
            raise FileNotFoundError("no Chromium: make chromium")
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            arguments = [command, *_FLAGS, f"--user-data-dir={self._folder / 'profile'}", "about:blank"]
            process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
            self._port = self._wait_for_port(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _wait_for_port(self, process: subprocess.Popen[bytes]) -> str:
        file, patience = self._folder / "profile" / "DevToolsActivePort", time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < patience and process.poll() is None:
            if file.exists() and len(lines := file.read_text().splitlines()) == 2:
                return "".join(lines)
            time.sleep(0.02)
        raise RuntimeError("Chromium does not start")

    def open(self, html: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Open a page in a window of this size, and return the page when it has loaded."""
        file = self._folder / "page.html"
        file.write_text(html, encoding="utf-8")
        page = Page(f"ws://127.0.0.1:{self._port}")
        self._stack.callback(page.close)
        page.resize(width, height, dark=dark)
        page.load(file.as_uri())
        return page


class Page:
    """A tab. ``complaints``: its console output, exceptions, and violations of its content security policy."""

    def __init__(self, browser: str) -> None:
        self.complaints: list[str] = []
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._socket = websocket.create_connection(browser, timeout=_PATIENCE_SECONDS, suppress_origin=True)
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Close the tab, whose timers would otherwise continue to run."""
        if self._socket.connected:
            self.call("Target.closeTarget", targetId=self._target)
            self._socket.close()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while (answer := self._next()).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        match message.get("method"):
            case "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(message["params"]))
        return message

    def resize(self, width: int, height: int, *, dark: bool) -> None:
        """Change the size of the window and its color scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def load(self, url: str) -> None:
        """Open a URL and wait until the page has loaded."""
        self.call("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, script: str) -> Any:
        """Return the awaited value of an expression. The page's security policy does not apply to it."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press and release a key."""
        event = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Type a text into the focused element."""
        self.call("Input.insertText", text=text)

    def tree(self) -> list[tuple[str, str]]:
        """Return roles and names in a screen reader's order, without ignored nodes.

        Some builds of Chromium end a name with a space, which no reader speaks.
        """
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "").strip())
            for node in nodes
            if not node.get("ignored")
        ]

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the window, or of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def printed(self) -> bytes:
        """Return a PDF on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=False, **size)["data"])
