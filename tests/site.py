"""Builds the site, and looks at the pages of the examples and at every link.

site.py ROOT PAGES SITE

PAGES has what the examples wrote: a page for each, but for those that need a
data set where TERN_DATA is not set. On the site each public header, document
and example has a page; each link and image leads to a file of the site, and each
place within a page is there. Exits with 77 where nothing has installed what
builds the site.
"""
import html
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

SKIPPED = 77


class Page(html.parser.HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.links, self.places, self.headings, self.schemes, self.cards = [], set(), 0, set(), 0
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.headings += tag == "h1"
        self.cards += attributes.get("class") == "card"
        self.places.add(attributes.get("id"))
        self.schemes.add(attributes.get("data-md-color-scheme"))
        for name in "href", "src":
            if attributes.get(name):
                self.links.append(attributes[name])


# ---- The examples ----


def examples_of(root):
    """Every example, and those of them that need a data set."""
    sources = [*(root / "examples").glob("*.cpp"), *(root / "examples/effective").glob("*.cpp")]
    names = {file.stem for file in sources if re.search(r"^int main\(", file.read_text(), re.MULTILINE)}
    return names, set(re.findall(r"^tern_example_on\((\w+)", (root / "examples/CMakeLists.txt").read_text(), re.MULTILINE))


def text_of(markup):
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def wrong_examples(names, pages):
    for name in sorted(names):
        file = pages / f"{name}.html"
        if not file.is_file():
            yield f"{name} has written no page to {pages}; expected {file.name}, which ./dev examples {name} makes"
            continue
        page = file.read_text()
        cells = re.findall(r'<pre class="code">(.*?)</pre>', page, re.DOTALL)
        if not any('<span class="k">' in cell for cell in cells):
            yield f"{file.name} has no highlighted code"
        for line in "\n".join(map(text_of, cells)).splitlines():
            if re.match(r"\s*(note\.|(tern::examples::)?Notebook\b|return 0;|return .*\? 0 : 1;$)", line):
                yield f"{file.name} shows what is no part of the example: {line}"
        for output in re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL):
            if re.search(r"^epoch +train_loss", text_of(output), re.MULTILINE):
                yield f"{file.name} has a table of epochs as text"
        if not re.search(rf'<p class="made">Made by <code>{name}\b', page):
            yield f"{file.name} does not say which command wrote it"


# ---- The site ----


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


def missing_pages(root, names, site):
    sys.path.insert(0, str(root / "tools/site"))
    import reference

    headers = reference.public_headers(root)
    if len(headers) < 100:
        yield f"only {len(headers)} public headers are found; expected cmake/InstallHeaders.cmake to name their roots"
    expected = [f"{header}.html" for header in headers]
    expected += [f"docs/{page.stem}.html" for page in (root / "docs").glob("*.md")]
    expected += [f"examples/{name}.html" for name in names]
    expected += ["index.html", "reference.html", "examples/index.html", "CONTRIBUTING.html", "CHANGELOG.html"]
    for name in expected:
        if not (site / name).is_file():
            yield f"there is no page {name}"


def wrong_index(site, pages, names, all_names):
    """Of the index of examples: a card for each, an image where its page has one."""
    index = pages[site / "examples/index.html"]
    if index.cards != len(all_names):
        yield f"examples/index.html has {index.cards} cards; expected one for each of {len(all_names)} examples"
    for name in sorted(names):
        has_image = re.search(r"<svg|<img", (site / f"examples/{name}.html").read_text().partition("<article")[2].partition("</article")[0])
        shown = {link for link in index.links if re.search(rf"thumbnails/{name}\.", link)}
        if f"{name}.html" not in index.links:
            yield f"examples/index.html has no link to {name}"
        if bool(has_image) != bool(shown):
            yield f"examples/index.html: {name} has {'no thumbnail' if has_image else 'a thumbnail of nothing'}"


def wrong_search(site):
    items = json.loads((site / "search.json").read_text())["items"]
    for word, page in ("GradScaler", "learner/amp/grad_scaler.h"), ("fit_one_cycle", "learner/learner.h"):
        if not any(word in item["title"] + item["text"] and item["location"].startswith(page) for item in items):
            yield f"the search does not lead from {word} to {page}"


def main():
    root, examples, site = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    all_names, with_data = examples_of(root)
    names = all_names if os.environ.get("TERN_DATA") else all_names - with_data
    wrong = [*wrong_examples(names, examples)]
    print(f"{len(names)} pages of {len(all_names)} examples", *wrong, sep="\n")
    if wrong or len(names) < 20:
        return 1
    python = pathlib.Path.home() / ".cache/tern/site/bin/python"
    if not python.is_file():
        print(f"SKIPPED: there is no {python}; ./dev docs installs it")
        return SKIPPED
    if subprocess.run([python, root / "tools/site/build.py", root, examples, site]).returncode:
        sys.exit("The site was not built; what is wrong is above.")
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    wrong = [*missing_pages(root, names, site), *wrong_links(site, pages), *wrong_search(site)]
    wrong += wrong_index(site, pages, names, all_names)
    for file, page in pages.items():
        if page.headings == 0:
            wrong.append(f"{file.relative_to(site)} has no title")
        if not {"default", "slate"} <= page.schemes:
            wrong.append(f"{file.relative_to(site)} has no light and dark mode; expected default and slate")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links", *wrong[:40], sep="\n")
    return 1 if wrong or len(pages) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
