"""Opens pages in headless Chromium, dark and light, narrow and wide.

  check_report.py FOLDER

Checks each page in FOLDER: no console messages, no requests except for the page
itself, no horizontal scrolling of the page, a dark theme on dark systems, and
decoded images. Writes screenshots next to the pages. Exits with 77 if there is no
browser.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import browser as chromium

HEADINGS = "document.querySelectorAll('h2').length"


def problems_of(browser, page, scheme, width):
    browser.open(page.as_uri(), scheme, width)
    browser.save_screenshot(page.with_name(f"{page.stem}_{scheme}_{width}.png"))
    found = browser.problems(scheme)
    found += [f"a request for {url}" for url in browser.requests()
              if url != page.as_uri() and not url.startswith("data:")]
    if browser.evaluate(HEADINGS) < 1:
        found.append("no headings")
    return found


def main(folder):
    pages = sorted(pathlib.Path(folder).resolve().glob("*.html"))
    failed = not pages
    with chromium.opened() as browser:
        if not browser:
            return chromium.SKIPPED
        for page in pages:
            for view in chromium.VIEWS:
                for problem in problems_of(browser, page, *view):
                    failed = True
                    print(f"{page.name}, {view}: {problem}")
    print(f"{len(pages)} pages checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
