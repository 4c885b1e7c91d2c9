"""Headless Chromium for tests that check pages."""
import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
]
# Every page is checked in each of these windows.
VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in (400, 1400)]
LOOK = """({
  wide: document.documentElement.scrollWidth, seen: innerWidth,
  back: getComputedStyle(document.body).backgroundColor,
  broken: [...document.images].filter(one => one.loading != 'lazy' && !one.naturalWidth).length})"""
CONSOLE = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    """Chromium by the DevTools protocol over a pair of pipes."""

    def __init__(self, program, folder):
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()

        def connect():
            # First duplicated to higher numbers: a pipe may itself be 3 or 4.
            reads, writes = os.dup2(to_browser, 100), os.dup2(from_browser, 101)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        self.process = subprocess.Popen(
            [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=connect, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.out = os.fdopen(from_us, "wb", buffering=0)
        self.inp, self.pending = to_us, bytearray()
        self.count, self.session, self.events = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def read(self):
        while (end := self.pending.find(b"\0")) < 0:
            if not (more := os.read(self.inp, 1 << 16)):
                raise RuntimeError("the browser has ended")
            self.pending += more
        message = self.pending[:end]
        del self.pending[: end + 1]
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        request = {"id": self.count, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        self.out.write(json.dumps(request).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())

    def open(self, url, scheme, width):
        """Loads a page in a window of this width with this color scheme."""
        self.events.clear()
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")
        time.sleep(0.2)

    def evaluate(self, script):
        """The value of a script, or of the promise it returns."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def problems(self, scheme):
        """The problems of all pages opened in this color scheme."""
        look = self.evaluate(LOOK)
        found = [f"on the console: {text}" for text in self.console()]
        if look["wide"] > look["seen"]:
            found.append(f"{look['wide']} pixels wide in {look['seen']}")
        red = int(look["back"].split("(")[1].split(",")[0])
        if (red < 128) != (scheme == "dark"):
            found.append(f"the background is {look['back']}")
        if look["broken"]:
            found.append(f"{look['broken']} broken images")
        return found

    def save_screenshot(self, file, whole=True):
        """Captures the whole page, or only the window, which takes 0.2 s."""
        image = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(image["data"]))

    def console(self):
        """The console messages since the page was opened."""
        return [json.dumps(event["params"])[:300] for event in self.events if event.get("method") in CONSOLE]

    def requests(self):
        """The URLs that the page has requested."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]


@contextlib.contextmanager
def opened():
    """A browser, or None if none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if not program:
        print("SKIPPED: there is no " + ", ".join(NAMES))
        yield None
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            yield browser
        finally:
            browser.process.kill()
            browser.process.wait()
