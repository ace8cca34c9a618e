"""A headless Chromium, driven by the DevTools protocol through a pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str:
    """Where Chromium is. Raises LookupError where it is not installed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise LookupError("these tests need Chromium: apt-get install chromium")
    return found


class Page:
    """One page: what it loads and what it complains of is collected in `requests` and `complaints`."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self._note(found)

    def _read(self) -> Any:
        while b"\0" not in self._rest:
            assert select.select([self._reads], [], [], 60)[0], "the browser does not answer"
            data = os.read(self._reads, 65_536)
            assert data, "the browser has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def _note(self, event: Any) -> None:
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(event["params"]["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(event["params"]["entry"]["text"])

    def look(self, *, width: int = 1_440, height: int = 900, dark: bool = False) -> None:
        """Sets the window's size and the colours that the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Opens an address."""
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """What an expression of the page's language gives."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Waits until an expression holds."""
        end = time.monotonic() + 60
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() < end, (script, self.value("document.body.innerText"), self.complaints)
            time.sleep(0.05)

    def write(self, selector: str, text: str) -> None:
        """Writes into a field as from a keyboard."""
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, code: int, modifiers: int = 0) -> None:
        """Presses a key; modifiers are 2 for Ctrl."""
        typed = {"text": "\r"} if key == "Enter" and not modifiers else {}
        for kind in ("keyDown" if typed else "rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
                **typed,
            )

    def click(self, selector: str) -> None:
        """Clicks on an element."""
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def picture(self, path: Path) -> None:
        """Writes what is seen of the whole page as PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A page of a browser that knows nothing."""
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    command = [chromium(), *FLAGS, f"--user-data-dir={folder / 'browser'}"]
    shell = f'exec "$@" 3<&{from_us} 4>&{to_us}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", shell, "browser", *command],
        pass_fds=(from_us, to_us),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(to_us)
    try:
        yield Page(from_browser, to_browser)
    finally:
        os.close(to_browser)  # the browser ends with its pipe
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)
