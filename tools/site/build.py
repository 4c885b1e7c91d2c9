"""Builds the site: guides, reference, executed examples, benchmarks.

build.py ROOT PAGES SITE

The documents of ROOT, a page for each public header, the pages that the
examples have written to PAGES, and those of other files that documents link to
are laid out as ROOT is, in SITE-pages; Zensical makes SITE of them. A link that
leads nowhere ends it.
"""
import base64
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import reference

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "examples/README.md")
# The guides, by what a reader is about to do; those beside the home page first.
START = ("tutorial", "from_fastai_and_pytorch", "building", "faq")
GUIDES = {
    "Data": ("images", "data", "shards"),
    "Training": ("callbacks", "metrics", "optimizers", "mixed_precision", "checkpoints", "distributed", "gpu", "your_own"),
    "Networks": ("vision", "detection", "weights", "matting"),
    "Results": ("inference", "reports"),
    "Inside": ("architecture", "side_effects"),
}
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".cu": "cpp", ".py": "python", ".cmake": "cmake"}
SETTINGS = {
    "site_name": "Tern",
    "site_description": "fastai's way of training for C++, on LibTorch",
    "use_directory_urls": False,
    "theme": {
        "name": "material",
        "font": False,
        "features": [
            "navigation.tabs", "navigation.top", "navigation.indexes", "navigation.prune", "navigation.footer",
            "content.code.copy", "search.highlight", "toc.follow",
        ],
        # The first follows the system.
        "palette": [
            {"media": "(prefers-color-scheme)", "primary": "indigo",
             "toggle": {"icon": "lucide/sun-moon", "name": "Light mode"}},
            {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "indigo",
             "toggle": {"icon": "lucide/sun", "name": "Dark mode"}},
            {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "indigo",
             "toggle": {"icon": "lucide/moon", "name": "As the system"}},
        ],
    },
    "extra_css": ["style.css"],
    "markdown_extensions": [
        "tables", "attr_list", "md_in_html", "pymdownx.superfences", "pymdownx.inlinehilite",
        {"toc": {"permalink": True, "toc_depth": 4}},
        {"pymdownx.highlight": {"anchor_linenums": False}},
    ],
}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```|<!--.*?-->)[^\n]*\n", re.MULTILINE | re.DOTALL)


class Site:
    def __init__(self, root, pages, stage):
        self.root, self.pages, self.stage = root, pages, stage
        headers = reference.public_headers(root)
        self.reference = reference.Reference(root, headers, reference.run_doxygen(root, headers, stage.with_name("doxygen")))
        self.documents = [*DOCUMENTS, *(str(path.relative_to(root)) for path in sorted((root / "docs").glob("*.md")))]
        # The page and the source of each example that has written a page.
        self.examples = {}
        for source in [*(root / "examples").glob("*.cpp"), *(root / "examples/effective").glob("*.cpp")]:
            if (page := pages / f"{source.stem}.html").is_file():
                self.examples[source.stem] = (page, str(source.relative_to(root)))
        self.colors = page_colors(root)
        self.sources = set()  # other files that documents link to
        self.dead = []

    def write(self, page, text):
        file = self.stage / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def target(self, page, link):
        """Where a document's link leads on the site."""
        path, _, place = link.partition("#")
        if re.match(r"(https?|mailto):", link) or not path:
            return link
        file = os.path.normpath(os.path.join(os.path.dirname(page), path))
        source = self.root / file
        if (self.stage / file).is_file() and file not in self.documents:
            return link  # made for the site
        if file in self.documents or source.suffix in (".png", ".jpg", ".svg"):
            if not source.is_file():
                self.dead.append(f"{page}: {link}")
            elif file not in self.documents:
                (self.stage / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, self.stage / file)
            return link
        if not source.is_file():
            self.dead.append(f"{page}: {link}")
            return link
        if source.parts[len(self.root.parts)] == "examples" and source.stem in self.examples:
            return os.path.relpath(f"examples/{source.stem}.md", os.path.dirname(page))
        if file not in self.reference.headers:
            self.sources.add(file)
        return f"{path}.md"

    def rewritten(self, page, text):
        """With links that hold on the site; names in code lead to the reference."""

        def prose(piece):
            piece = LINK.sub(lambda match: f"{match[1]}({self.target(page, match[2])})", piece)

            # There the first column has other libraries' names.
            foreign = r"|^\| .* \| (?=[^|]*\|$)" if "/from_" in page else ""

            def code(match):
                target = self.reference.link(page, match[1])
                return f"[`{match[1]}`]({target})" if target else match[0]

            kept = re.split(rf"(\[[^\]]*\]\([^)]*\)|^#.*${foreign})", piece, flags=re.MULTILINE)
            return "".join(
                part if i % 2 else re.sub(r"(?<![\[`])`([\w:.]+(?:\([^`]*\))?)`(?!`)", code, part)
                for i, part in enumerate(kept)
            )

        parts, at = [], 0
        for fence in FENCE.finditer(text):
            parts += [prose(text[at : fence.start()]), "" if fence[0].startswith("<!-- cpp") else fence[0]]
            at = fence.end()
        return "".join(parts) + prose(text[at:])

    def write_documents(self):
        for page in self.documents:
            text = (self.root / page).read_text()
            if page == "examples/README.md":
                text = self.example_cards(text)
            self.write(page, self.rewritten(page, text))

    def write_reference(self):
        for header in self.reference.headers:
            self.write(f"{header}.md", self.reference.page(header))
        self.write("reference.md", self.reference.index())

    def write_sources(self):
        for file in sorted(self.sources):
            source = self.root / file
            text = source.read_text()
            fence = "`" * 4
            language = LANGUAGES.get(source.suffix, "text")
            self.write(f"{file}.md", f"# {source.name}\n\n`{file}`\n\n{fence}{language}\n{text}\n{fence}\n")

    # ---- Examples ----

    def example_cards(self, text):
        """The tables of examples/README.md as cards with a picture each."""

        def card(match):
            cells = [cell.strip() for cell in match[0].strip().strip("|").split(" | ")]
            if len(cells) != 3 or cells[0] == "program" or not cells[0].startswith("["):
                return "" if cells[0] in ("program", "---") or set(match[0]) <= set("|- \n") else match[0]
            cards = []
            for name, file in re.findall(r"\[(\w+)\]\(([\w./]+)\)", cells[0]):
                picture = self.thumbnail(name)
                image = f"![]({picture}){{ loading=lazy }}\n\n" if picture else ""
                cards.append(f'<div class="card" markdown>\n\n{image}**[{name}]({file})**\n\n{cells[1]}\n\n{cells[2]}\n\n</div>\n')
            return "".join(cards)

        lines, out, inside = text.splitlines(keepends=True), [], False
        for line in lines:
            is_row = line.startswith("|")
            if is_row != inside:
                out.append('\n<div class="cards" markdown>\n\n' if is_row else "\n</div>\n\n")
                inside = is_row
            out.append(card(re.match(r".*\n?", line)) if is_row else line)
        return "".join(out) + ("\n</div>\n" if inside else "")

    def thumbnail(self, name):
        """The first image or plot of a page, as a file beside it."""
        if name not in self.examples:
            return None
        text = self.examples[name][0].read_text()
        found = re.search(r'src="data:image/(png|svg\+xml);base64,([^"]+)"|(<svg .*?</svg>)', text, re.DOTALL)
        if not found:
            return None
        ending = "png" if found[1] == "png" else "svg"
        file = self.stage / "examples" / "thumbnails" / f"{name}.{ending}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(found[2]) if found[1] else standalone(found[3], self.colors[0]).encode())
        return f"thumbnails/{name}.{ending}"

    def write_examples(self):
        for name, (page, source) in self.examples.items():
            text = page.read_text()
            title = re.search(r"<title>(.*?)</title>", text)[1]
            body = text[text.index("</h1>") + 5 : text.rindex("</body>")]
            body, _, made = body.partition('<p class="made">')
            command = html.unescape("".join(re.findall(r"<code>(.*)</code>", made, re.DOTALL)))
            self.sources.add(source)
            self.write(
                f"examples/{name}.md",
                f"# {html.unescape(title)}\n\n{markdown_of(body)}\n\nThe whole program: "
                f"[{source}]({os.path.relpath(source, 'examples')}.md). This page was written by\n\n"
                f"```sh\nbuild/examples/{command}\n```\n",
            )

    # ---- Navigation ----

    def navigation(self):
        examples, group = [], None
        for line in (self.root / "examples/README.md").read_text().splitlines():
            if line.startswith("## "):
                group = []
                examples.append({line[3:].replace('"', ""): group})
            for name in re.findall(r"\[(\w+)\]\([\w./]+\.cpp\)", line) if line.startswith("|") else ():
                if name in self.examples:
                    group.append({name: f"examples/{name}.md"})
        examples = [one for one in examples if next(iter(one.values()))]
        listed = {name for names in GUIDES.values() for name in names}
        missing = {path.stem for path in (self.root / "docs").glob("*.md")} - listed - {*START, "benchmarks"}
        if missing:
            sys.exit(f"tools/site/build.py: GUIDES lacks {', '.join(sorted(missing))}.")
        headers = [
            {top: [{header.removeprefix(top + "/"): f"{header}.md"} for header in self.reference.headers if header.startswith(top + "/")]}
            for top in reference.TOPS
        ]
        others = [header for header in self.reference.headers if "/" not in header]
        return [
            {"Tern": ["README.md", *(f"docs/{name}.md" for name in START)]},
            {"Guides": [{group: [f"docs/{name}.md" for name in names]} for group, names in GUIDES.items()]},
            {"Examples": ["examples/README.md", *examples]},
            {"Reference": ["reference.md", *({name: f"{name}.md"} for name in others), *headers]},
            {"Benchmarks": ["docs/benchmarks.md"]},
            {"Project": ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md",
                         *({name: f"{name}.md"} for name in ("LICENSE", "NOTICE"))]},
        ]

    def build(self, site):
        shutil.rmtree(self.stage, ignore_errors=True)
        self.sources |= {"LICENSE", "NOTICE"}
        self.write_examples()
        self.write_documents()
        self.write_reference()
        self.write_sources()
        if self.dead:
            sys.exit("These links lead nowhere:\n" + "\n".join(self.dead))
        style = pathlib.Path(__file__).with_name("style.css").read_text()
        light, dark = self.colors
        self.write("style.css", f':root {{ {light} }}\n[data-md-color-scheme="slate"] {{ {dark} }}\n{style}')
        settings = {**SETTINGS, "docs_dir": self.stage.name, "site_dir": site.name, "nav": self.navigation()}
        config = self.stage.with_name(f"{site.name}.yml")
        config.write_text(json.dumps(settings, indent=1))  # which is YAML too
        zensical = pathlib.Path(sys.executable).with_name("zensical")
        return subprocess.run([zensical, "build", "--strict", "--clean", "--config-file", config], cwd=config.parent).returncode


def page_colors(root):
    """The colours of plots, tables and code, light and dark, as HtmlPage has them."""
    text = (root / "learner/report/html_page.cpp").read_text()
    blocks = re.findall(r":root {(.*?)}", text, re.DOTALL)[:2]
    return [" ".join(re.findall(r"--[\w-]+: [^;]+;", block)) for block in blocks]


def standalone(svg, colors):
    """A plot of a page as a file of its own, whose colours are the page's."""
    svg = svg.replace("<svg ", f'<svg style="{colors}" ', 1)
    return svg if "xmlns=" in svg else svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def markdown_of(body):
    """The body of an example's page: its code is highlighted like that of every
    other page, the rest stays HTML."""
    body = re.sub(r"<nav>.*?</nav>\n?", "", body, flags=re.DOTALL)

    def code(match):
        text = html.unescape(re.sub(r"<[^>]+>", "", match[1])).rstrip("\n")
        return f"\n\n```cpp\n{text}\n```\n\n"

    body = re.sub(r'<pre class="code">(.*?)</pre>\n?', code, body, flags=re.DOTALL)
    body = re.sub(r'<h2 id="s\d+">(.*?)</h2>', r"\n\n## \1\n\n", body)
    parts = re.split(r"(\n\n```cpp\n.*?\n```\n\n|\n\n## [^\n]*\n\n)", body, flags=re.DOTALL)
    for i in range(0, len(parts), 2):
        if parts[i].strip():
            parts[i] = f'\n\n<div class="output">\n{re.sub(chr(10) + "{2,}", blank_lines, parts[i].strip())}\n</div>\n\n'
    return "".join(parts)


def blank_lines(match):
    """A blank line would end the HTML."""
    return "\n" + "&#8203;\n" * (len(match[0]) - 1)


if __name__ == "__main__":
    root, pages, site = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    sys.exit(Site(root, pages, site.with_name(f"{site.name}-pages")).build(site))
