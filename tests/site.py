"""Builds the site, and follows every link on it.

site.py ROOT PAGES SITE

PAGES has the pages that the examples wrote, if any. Each public header, each
document and each of these has a page; each link and picture leads to a file of
the site, and each place within a page is there.
"""
import html.parser
import pathlib
import subprocess
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.links, self.places, self.headings = [], set(), 0
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.headings += tag == "h1"
        self.places.add(attributes.get("id"))
        for name in "href", "src":
            if attributes.get(name):
                self.links.append(attributes[name])


def wrong_links(site, pages):
    for file, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            path = urllib.parse.unquote(url.path)
            target = (site / path[1:] if path.startswith("/") else file.parent / path).resolve() if path else file
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file():
                yield f"{file.relative_to(site)}: {link} leads nowhere"
            elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].places:
                yield f"{file.relative_to(site)}: there is no place {link}"


def missing_pages(root, examples, site):
    sys.path.insert(0, str(root / "tools/site"))
    import reference

    headers = reference.public_headers(root)
    if len(headers) < 100:
        yield f"only {len(headers)} public headers are found; expected cmake/InstallHeaders.cmake to name their roots"
    expected = [f"{header}.html" for header in headers]
    expected += [f"docs/{page.stem}.html" for page in (root / "docs").glob("*.md")]
    expected += [f"examples/{page.name}" for page in examples.glob("*.html") if page.stem != "index"]
    expected += ["index.html", "reference.html", "examples/index.html", "CONTRIBUTING.html", "CHANGELOG.html"]
    for name in expected:
        if not (site / name).is_file():
            yield f"there is no page {name}"


def main():
    root, examples, site = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    if subprocess.run([sys.executable, root / "tools/site/build.py", root, examples, site]).returncode:
        sys.exit("The site was not built; what is wrong is above.")
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    wrong = [*missing_pages(root, examples, site), *wrong_links(site, pages)]
    wrong += [f"{file.relative_to(site)} has no title" for file, page in pages.items() if page.headings == 0]
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links", *wrong[:40], sep="\n")
    return 1 if wrong or len(pages) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
