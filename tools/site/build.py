"""Builds the site: guides, reference, executed examples, benchmarks.

build.py ROOT PAGES SITE

Writes the documents of ROOT and a page for each public header, each example and each
other file that documents link to into SITE-pages, in the layout of ROOT. Zensical builds
SITE from these pages. A dead link is an error. The page of an example shows the outputs
of its notebook, from PAGES or else docs/notebooks, if the notebook matches the current
source.
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

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import notebook

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "examples/README.md",
             "docs/notebooks/README.md")
# The guides, grouped by the reader's task. The guides of START follow the home page.
START = ("tutorial", "from_fastai_and_pytorch", "building", "limits", "faq")
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
        # The notebook and the source of each example.
        self.examples = {}
        for source in [*(root / "examples").glob("*.cpp"), *(root / "examples/effective").glob("*.cpp")]:
            if re.search(r"^int main\(", source.read_text(), re.MULTILINE):
                self.examples[source.stem] = (self.notebook(source), str(source.relative_to(root)))
        self.colors = page_colors(root)
        self.sources = set()  # other files that documents link to
        self.dead = []

    def notebook(self, source):
        """Returns the notebook with the outputs of the last run, if the source has not changed since."""
        text = source.read_text()
        for folder in self.pages, self.root / "docs/notebooks":
            file = folder / f"{source.stem}.ipynb"
            if file.is_file() and notebook.is_of(made := json.loads(file.read_text()), text):
                return made
        return notebook.notebook_of(notebook.cells_of(text), {}, str(source.relative_to(self.root)), "")

    def write(self, page, text):
        file = self.stage / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def target(self, page, link):
        """Returns the target on the site of a link in a document."""
        path, _, place = link.partition("#")
        if re.match(r"(https?|mailto):", link) or not path:
            return link
        file = os.path.normpath(os.path.join(os.path.dirname(page), path))
        source = self.root / file
        if (self.stage / file).is_file() and file not in self.documents:
            return link  # a page of the site itself
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
        if file.startswith(("examples/", "docs/notebooks/")) and source.suffix in (".cpp", ".ipynb") and source.stem in self.examples:
            return os.path.relpath(f"examples/{source.stem}.md", os.path.dirname(page))
        if file not in self.reference.headers:
            self.sources.add(file)
        return f"{path}.md"

    def rewritten(self, page, text):
        """Adapts the links to the site, and links names in code to the reference."""

        def prose(piece):
            piece = LINK.sub(lambda match: f"{match[1]}({self.target(page, match[2])})", piece)

            # In this document the first column has names of other libraries.
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
        self.write("names.md", self.reference.name_index())

    def write_sources(self):
        for file in sorted(self.sources):
            source = self.root / file
            text = source.read_text()
            fence = "`" * 4
            language = LANGUAGES.get(source.suffix, "text")
            self.write(f"{file}.md", f"# {source.name}\n\n`{file}`\n\n{fence}{language}\n{text}\n{fence}\n")

    # ---- Examples ----

    def example_cards(self, text):
        """Writes the tables of examples/README.md as cards, each with an image."""

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
        """Returns the first image of an example's page."""
        made = self.examples[name][0]
        return next((self.image(name, number, output) for number, output in outputs_of(made) if image_of(output)), None)

    def image(self, name, number, output):
        """Writes the image of an output to a file next to the page."""
        mime, data = image_of(output)
        file = self.stage / "examples" / "images" / f"{name}_{number}.{mime.partition('/')[2].partition('+')[0]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return f"images/{file.name}"

    def write_examples(self):
        for name, (made, source) in self.examples.items():
            numbers = iter(range(1_000_000))
            parts = []
            for cell in made["cells"][:-1]:  # the last one names the source and the command
                text = "".join(cell["source"])
                if cell["cell_type"] == "markdown":
                    parts.append(text)
                    continue
                parts.append(f"```cpp\n{text}\n```")
                parts += [self.output(name, next(numbers), output) for output in cell["outputs"]]
            command = made["metadata"]["tern"]["command"]
            run = f"This page was created by\n\n```sh\nbuild/examples/{command}\n```" if command else \
                f"`./dev examples {name}` runs it, and adds its output and images to this page."
            self.sources.add(source)
            parts.append(f"The whole program: [{source}]({os.path.relpath(source, 'examples')}.md). {run}\n")
            self.write(f"examples/{name}.md", "\n\n".join(parts))

    def output(self, name, number, output):
        if image_of(output):
            text = html.escape("".join(output["data"]["text/plain"]))
            return f'<div class="output">\n<figure><img alt="{text}" src="{self.image(name, number, output)}"></figure>\n</div>'
        text = "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])
        # A blank line would end the HTML.
        return f'<div class="output">\n<pre>{re.sub(chr(10) + "{2,}", blank_lines, html.escape(text.strip(chr(10))))}</pre>\n</div>'

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
            {"Examples": ["examples/README.md", "docs/notebooks/README.md", *examples]},
            {"Reference": ["reference.md", {"All names": "names.md"}, *({name: f"{name}.md"} for name in others), *headers]},
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
        config.write_text(json.dumps(settings, indent=1))  # JSON is also YAML
        zensical = pathlib.Path(sys.executable).with_name("zensical")
        return subprocess.run([zensical, "build", "--strict", "--clean", "--config-file", config], cwd=config.parent).returncode


def page_colors(root):
    """Returns the colors of code and rules of HtmlPage, light and dark."""
    text = (root / "learner/report/html_page.cpp").read_text()
    blocks = re.findall(r":root {(.*?)}", text, re.DOTALL)[:2]
    return [" ".join(re.findall(r"--[\w-]+: [^;]+;", block)) for block in blocks]


def outputs_of(made):
    """Yields each output with its number."""
    return enumerate(output for cell in made["cells"] for output in cell.get("outputs", ()))


def image_of(output):
    """Returns the type and the bytes of an output's image, or None."""
    for mime in notebook.MIME.values():
        if mime in output.get("data", {}):
            text = "".join(output["data"][mime])
            return mime, text.encode() if mime.endswith("xml") else base64.b64decode(text)
    return None


def blank_lines(match):
    """A blank line would end the HTML."""
    return "\n" + "&#8203;\n" * (len(match[0]) - 1)


if __name__ == "__main__":
    root, pages, site = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    sys.exit(Site(root, pages, site.with_name(f"{site.name}-pages")).build(site))
