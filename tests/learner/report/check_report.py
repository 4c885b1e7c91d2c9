"""Opens pages in headless Chromium, dark and light, narrow and wide.

  check_report.py FOLDER

Of each page in FOLDER: nothing on the console, no request for anything but the
page itself, no sideways scrolling of the whole page, dark where the system is,
pictures decoded. Leaves screenshots beside the pages. Exits with 77 where there
is no browser.
"""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
]
LOOK = """JSON.stringify({
  wide: document.documentElement.scrollWidth, seen: innerWidth,
  back: getComputedStyle(document.body).backgroundColor,
  broken: [...document.images].filter(i => !i.naturalWidth).length,
  curves: document.querySelectorAll('svg path').length,
  headings: document.querySelectorAll('h2').length})"""


class Browser:
    """Chromium by the DevTools protocol over a pair of pipes."""

    def __init__(self, program, folder):
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()

        def connect():
            # Behind all other numbers first: a pipe may be 3 or 4 itself.
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
        self.inp = os.fdopen(to_us, "rb")
        self.count, self.session, self.events = 0, None, []

    def read(self):
        message = bytearray()
        while (byte := self.inp.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has ended")
            message += byte
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
        while not any(e.get("method") == method for e in self.events):
            self.events.append(self.read())

    def open_tab(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")


def problems_of(browser, page, scheme, width):
    browser.events.clear()
    browser.call("Emulation.setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Emulation.setDeviceMetricsOverride", width=width,
                 height=900, deviceScaleFactor=1, mobile=width < 600)
    browser.call("Page.navigate", url=page.as_uri())
    browser.wait_for("Page.loadEventFired")
    time.sleep(0.2)
    look = json.loads(browser.call(
        "Runtime.evaluate", expression=LOOK)["result"]["value"])
    picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True)
    page.with_name(f"{page.stem}_{scheme}_{width}.png").write_bytes(
        base64.b64decode(picture["data"]))

    found = []
    for event in browser.events:
        kind, params = event.get("method"), event.get("params", {})
        if kind in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown",
                    "Log.entryAdded"):
            found.append(f"on the console: {json.dumps(params)[:300]}")
        if kind == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if url != page.as_uri() and not url.startswith("data:"):
                found.append(f"a request for {url}")
    if look["wide"] > look["seen"]:
        found.append(f"{look['wide']} pixels wide in {look['seen']}")
    red = int(look["back"].split("(")[1].split(",")[0])
    if (red < 128) != (scheme == "dark"):
        found.append(f"the background is {look['back']}")
    if look["broken"]:
        found.append(f"{look['broken']} broken pictures")
    if look["headings"] < 1:
        found.append("no headings")
    return found


def main(folder):
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if not program:
        print("SKIPPED: there is no " + ", ".join(names))
        return SKIPPED
    pages = sorted(pathlib.Path(folder).resolve().glob("*.html"))
    failed = not pages
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            browser.open_tab()
            for page in pages:
                for scheme in ("light", "dark"):
                    for width in (400, 1400):
                        for problem in problems_of(browser, page, scheme, width):
                            failed = True
                            print(f"{page.name}, {scheme}, {width}: {problem}")
        finally:
            browser.process.kill()
            browser.process.wait()
    print(f"{len(pages)} pages looked at")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
