"""Drives Chromium in real time over a pipe, by the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/).

    with Chromium(command, profile) as chromium:
        tab = chromium.open(page.as_uri(), width=390)
        tab.until("document.querySelector('button')", seconds=60)
        tab.press("Enter")

Commands and answers are JSON objects, each ended by a zero byte: the browser reads them from file descriptor 3 and writes to 4.
"""

import base64
import fcntl
import json
import os
import select
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND")
ANSWER = 120  # seconds to wait for an answer, on a machine that does other things too
KEYS = {"Enter": (13, "\r"), " ": (32, " "), "Tab": (9, ""), "ArrowLeft": (37, ""), "ArrowUp": (38, "")}
KEYS |= {"ArrowRight": (39, ""), "ArrowDown": (40, "")}  # each with its code and the text that it types


class Chromium:
    """A browser without a window; used in a `with`, which ends it."""

    def __init__(self, command: str, profile: Path) -> None:
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]  # neither is 3 or 4
        places = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        places += [(os.POSIX_SPAWN_OPEN, output, os.devnull, os.O_WRONLY, 0) for output in (1, 2)]
        places += [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(high, (3, 4), strict=True)]
        given = [command, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = os.posix_spawn(command, given, os.environ, file_actions=places, setpgroup=0)
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._count, self._read = 0, b""
        self._waiting: deque[dict[str, Any]] = deque()
        self._tabs: dict[str, Tab] = {}

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def open(self, address: str, *, width: int = 1280, height: int = 1000, **media: str) -> "Tab":
        """Open a page and wait until it is loaded.

        Args:
            address: of the page.
            width: of the screen, in pixels.
            height: of the screen, in pixels.
            media: media features, such as `prefers_reduced_motion="reduce"`.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        self._tabs[tab.session] = tab
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.resize(width, height)
        tab.call("Emulation.setEmulatedMedia", features=[{"name": k.replace("_", "-"), "value": v} for k, v in media.items()])
        tab.call("Page.navigate", url=address)
        tab.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return tab

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Give a command and return its result; meanwhile the tabs are told what happens in them."""
        self._count += 1
        said = {"id": self._count, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(said).encode() + b"\0")
        deadline = time.monotonic() + ANSWER
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if tab := self._tabs.get(answer.get("sessionId", "")):
                tab.hear(answer["method"], answer["params"])

    def _next(self, deadline: float, method: str) -> dict[str, Any]:
        """Return what the browser says next."""
        while not self._waiting:
            if not select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer to {method} within {ANSWER} seconds")
            read = os.read(self._in, 2**16)
            if not read:
                raise RuntimeError("Chromium has ended")
            *whole, self._read = (self._read + read).split(b"\0")
            self._waiting.extend(map(json.loads, whole))
        return self._waiting.popleft()


class Tab:
    """A page. `problems` has what its scripts threw and its console's errors, `requests` every address that it asked for."""

    def __init__(self, chromium: Chromium, session: str) -> None:
        self.session, self._chromium = session, chromium
        self.problems: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command of the DevTools protocol to this page."""
        return self._chromium.call(method, self.session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Make the screen so large, in pixels."""
        self.size = width, height
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def hear(self, method: str, told: dict[str, Any]) -> None:
        """Note an event."""
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(x.get("value", x.get("description"))) for x in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.problems.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is waited for."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if details := done.get("exceptionDetails"):
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return done["result"].get("value")

    def until(self, script: str, seconds: float = ANSWER) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"!!({script})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true after {seconds} seconds: {script}")
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """Press a key of `KEYS` and release it."""
        code, text = KEYS[key]
        given = dict(key=key, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def drag(self, points: list[tuple[float, float]]) -> None:
        """Press the mouse at the first of these points (in pixels from the left and the top of the screen), move, release."""
        for kind, (x, y) in [("mousePressed", points[0]), *(("mouseMoved", p) for p in points), ("mouseReleased", points[-1])]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        old, whole = self.size, self.call("Page.getLayoutMetrics")["cssContentSize"]
        self.resize(old[0], whole["height"])
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
        self.resize(*old)
