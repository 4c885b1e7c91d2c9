"""Opens the site in headless Chromium, in dark and light mode, at phone and desktop size.

site_browser.py SITE

Checks some pages of every kind, and the page of a notebook: the console is empty, the
page does not scroll sideways, wide content scrolls in its own box, figures have a size,
dark mode follows the system and dims images, and on a desktop there are links to
neighboring pages. The search finds a class in the reference. Leaves screenshots in
SITE-screenshots. Exits with 77 without a browser.
"""
import functools
import http.server
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))
import browser as chromium

# Pages, and an element that each must show.
PAGES = {
    "index.html": "pre",
    "examples/index.html": ".card img",
    "examples/curve_fitting.html": ".output figure img",
    "examples/amp_by_hand.html": ".output pre",
    "learner/learner.h.html": "pre",
    "docs/benchmarks.html": "table",
}
LOOK = """({
  shown: [...document.querySelectorAll(%r)].map(one => one.getBoundingClientRect())
    .map(box => [box.width, box.height]),
  dazzling: [...document.querySelectorAll('.output img, .card img, figure img')]
    .filter(one => getComputedStyle(one).filter == 'none').length,
  beside: [...document.querySelectorAll('.md-sidebar--primary a')].filter(one => one.offsetParent).length,
  loose: [...document.querySelectorAll('pre, table')].filter(one => {
    for (let box = one; box; box = box.parentElement) {
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(box).overflowX)) return false;
      if (box.scrollWidth <= box.clientWidth && box.getBoundingClientRect().right <= innerWidth) return false;
    }
    return true;
  }).length})"""
# The links of the search results, which are in a shadow tree.
FOUND = """new Promise(done => {
  const ask = tries => {
    const links = [...document.querySelectorAll('div')].filter(one => one.shadowRoot)
      .flatMap(one => [...one.shadowRoot.querySelectorAll('a')].map(link => link.href));
    if (links.length || !tries) done(links); else setTimeout(ask, 100, tries - 1);
  };
  ask(100);
})"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def problems_of(browser, url, shown, scheme, width, screenshot):
    browser.open(url, scheme, width)
    look = browser.evaluate(LOOK % shown)
    browser.save_screenshot(screenshot, whole=False)
    found = browser.problems(scheme)
    if not look["shown"] or min(map(min, look["shown"])) < 10:
        found.append(f"no {shown} of some size: {look['shown']}")
    if scheme == "dark" and look["dazzling"]:
        found.append(f"{look['dazzling']} images as bright as in light mode")
    if width > 1000 and url.startswith("http") and "benchmarks" not in url and look["beside"] < 3:
        found.append(f"{look['beside']} links to neighboring pages")
    if look["loose"]:
        found.append(f"{look['loose']} wide blocks without a scroll bar")
    return found


def problems_of_search(browser, url, word, page):
    browser.open(url, "light", 1400)
    browser.evaluate("document.querySelector('.md-search__button').click()")
    browser.call("Input.insertText", text=word)
    links = browser.evaluate(FOUND)
    if not links or page not in links[0]:
        yield f"{url}: the search for {word} finds {links[:3]}; expected {page} first"


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    screenshots = site.with_name(f"{site.name}-screenshots")
    screenshots.mkdir(exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    server.handle_error = lambda *_: None  # if the browser closes in the middle of a page
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_port}/"
    looked_at = {at + name: (name.replace("/", "_"), shown) for name, shown in PAGES.items()}
    looked_at[(site.with_name(f"{site.name}-page") / "curve_fitting.html").as_uri()] = ("page", "figure img")
    wrong = []
    with chromium.opened() as browser:
        if not browser:
            return chromium.SKIPPED
        for url, (name, shown) in looked_at.items():
            for scheme, width in chromium.VIEWS:
                file = screenshots / f"{name}_{scheme}_{width}.png"
                wrong += [f"{url}, {scheme}, {width}: {problem}" for problem in problems_of(browser, url, shown, scheme, width, file)]
        wrong += problems_of_search(browser, at + "index.html", "GradientClip", "callbacks/gradients.h.html")
    print(f"{len(looked_at)} pages looked at", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
