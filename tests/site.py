"""Builds the site and checks every link.

site.py ROOT PAGES SITE

PAGES may contain notebooks that the examples wrote; otherwise those in docs/notebooks
are used. Each public header, document and example has a page on the site; headers
private to Tern have none. Each link and image refers to a file of the site, and each
fragment to an existing anchor. An index has every name. SITE-page contains notebooks as
standalone pages. Exits with 77 if the tools that build the site are not installed.
"""
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

SKIPPED = 77
ALONE = ("curve_fitting", "amp_by_hand")  # as standalone pages


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


def examples_of(root):
    sources = [*(root / "examples").glob("*.cpp"), *(root / "examples/effective").glob("*.cpp")]
    return {file.stem for file in sources if re.search(r"^int main\(", file.read_text(), re.MULTILINE)}


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
                yield f"{file.relative_to(site)}: {link} is a dead link"
            elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].places:
                yield f"{file.relative_to(site)}: there is no anchor {link}"


def missing_pages(root, names, site):
    sys.path.insert(0, str(root / "tools/site"))
    import reference

    headers = reference.public_headers(root)
    if len(headers) < 100:
        yield f"only {len(headers)} public headers were found; expected cmake/InstallHeaders.cmake to name their roots"
    expected = [f"{header}.html" for header in headers]
    expected += [f"docs/{page.stem}.html" for page in (root / "docs").glob("*.md")]
    expected += [f"examples/{name}.html" for name in names]
    expected += ["index.html", "reference.html", "names.html", "examples/index.html", "CONTRIBUTING.html", "CHANGELOG.html"]
    for name in expected:
        if not (site / name).is_file():
            yield f"there is no page {name}"


def wrong_index(site, pages, names):
    """Checks the index of examples: a card for each, and an image if its page has one."""
    index = pages[site / "examples/index.html"]
    if index.cards != len(names):
        yield f"examples/index.html has {index.cards} cards; expected one for each of {len(names)} examples"
    for name in sorted(names):
        has_image = "<img" in (site / f"examples/{name}.html").read_text().partition("<article")[2].partition("</article")[0]
        shown = {link for link in index.links if re.search(rf"images/{name}_\d+\.", link)}
        if f"{name}.html" not in index.links:
            yield f"examples/index.html has no link to {name}"
        if bool(has_image) != bool(shown):
            yield f"examples/index.html: {name} has {'no thumbnail' if has_image else 'a thumbnail without an image'}"


def wrong_notebooks(root, site, python):
    """Checks pages of notebooks: code is highlighted, images are embedded, nothing is loaded from elsewhere."""
    folder = site.with_name(f"{site.name}-page")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ALONE:
        shutil.copy(root / f"docs/notebooks/{name}.ipynb", folder)
    subprocess.run([python, root / "tools/notebook.py", "html", *folder.glob("*.ipynb")], check=True)
    for name in ALONE:
        text = (folder / f"{name}.html").read_text()
        for part in '<pre class="code">', '<span class="k">', "<h1>", "<pre>", f"build/examples/{name}":
            if part not in text:
                yield f"{name}.html has no {part}"
        if re.search(r'<(script|link rel="stylesheet")|src="(?!data:)', text):
            yield f"{name}.html loads external content"


def wrong_search(site):
    items = json.loads((site / "search.json").read_text())["items"]
    for word, page in ("GradScaler", "learner/amp/grad_scaler.h"), ("fit_one_cycle", "learner/learner.h"):
        if not any(word in item["title"] + item["text"] and item["location"].startswith(page) for item in items):
            yield f"the search does not lead from {word} to {page}"


def wrong_names(site):
    """Checks the index of names: it is sorted, and each name links to its heading."""
    names = re.findall(r'<a href="([^"]+)"><code>(\w+)</code></a>', (site / "names.html").read_text())
    if [name.lower() for _, name in names] != sorted(name.lower() for _, name in names):
        yield "names.html is not sorted"
    for name, link in (
        ("fit_one_cycle", "learner/learner.h.html#Learner-fit_one_cycle"),
        ("unfreeze", "learner/learner.h.html#Learner"),  # has no separate heading
        ("ResNet", "vision/models/cnn/resnet.h.html#ResNetImpl"),
        ("accuracy", "learner/metrics/metrics.h.html#accuracy"),
    ):
        if (link, name) not in names:
            yield f"names.html does not lead from {name} to {link}"
    if any(name in ("operator", "StepRunner") or name.startswith("~") for _, name in names):
        yield "names.html has an operator, or a name that is private to Tern"


def private_pages(pages, site):
    for file in pages:
        if "Private to Tern" in re.sub(r"\s+", " ", file.read_text()):
            yield f"{file.relative_to(site)} shows something that is private to Tern"
        if file.relative_to(site) == pathlib.Path("learner/interfaces.h.html"):
            yield "learner/interfaces.h is private to Tern, but has a page"


def main():
    root, examples, site = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    names = examples_of(root)
    python = pathlib.Path.home() / ".cache/tern/site/bin/python"
    if not python.is_file():
        print(f"SKIPPED: there is no {python}; ./dev docs installs it")
        return SKIPPED
    if subprocess.run([python, root / "tools/site/build.py", root, examples, site]).returncode:
        sys.exit("The site was not built; the errors are above.")
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    wrong = [*missing_pages(root, names, site), *wrong_links(site, pages), *wrong_search(site)]
    wrong += [*wrong_index(site, pages, names), *wrong_names(site), *private_pages(pages, site)]
    wrong += [*wrong_notebooks(root, site, python)]
    for file, page in pages.items():
        if page.headings == 0:
            wrong.append(f"{file.relative_to(site)} has no title")
        if not {"default", "slate"} <= page.schemes:
            wrong.append(f"{file.relative_to(site)} has no light and dark mode; expected default and slate")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links", *wrong[:40], sep="\n")
    return 1 if wrong or len(pages) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
