"""Opens pages in headless Chromium, dark and light, narrow and wide.

  check_report.py FOLDER

Of each page in FOLDER: nothing on the console, no request for anything but the
page itself, no sideways scrolling of the whole page, dark where the system is,
images decoded. Leaves screenshots beside the pages. Exits with 77 where there
is no browser.
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
    print(f"{len(pages)} pages looked at")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
