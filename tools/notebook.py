"""Turns examples in the percent format into executed notebooks and HTML pages.

notebook.py copy SOURCE COPY                     writes the program to compile
notebook.py run SOURCE FOLDER [OPTION...] -- PROGRAM [ARGUMENT...]
                                                 runs it; writes FOLDER/NAME.ipynb
notebook.py html NOTEBOOK...                     writes a page next to each notebook

In a source, the line `// %% [markdown]` begins a text cell, whose text is in comments,
and the line `// %%` begins a code cell, as in VS Code, Jupytext and Spyder. A mark at
the beginning of a line separates definitions. An indented mark separates two
statements of `main`; the program's output from there on belongs to its cell.

`copy` replaces each indented mark with a call. With this call the program reports to
`run` that a cell begins, and waits until `run` has read the output so far and the
images that have appeared or changed below the current folder. Line numbers do not
change.

`run --small` shrinks images until the notebook can be committed, and `run
--without-images REASON` lists them instead of showing them. A folder that receives
more than a dozen images in one cell is a dataset, and is not shown.

`html` needs Markdown and Pygments, `--small` needs Pillow; the rest needs only Python.
"""
import argparse
import base64
import dataclasses
import html
import importlib.util
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MIME = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml"}
PROGRESS = re.compile(r"^\S[^\n]* \d+/\d+(?:  loss \S+)?  [\d:]+ left\n", re.MULTILINE)
MOST_IMAGES = 12  # of one folder in one cell
SMALL_IMAGE = 40_000  # bytes, with --small
SITE_PYTHON = pathlib.Path.home() / ".cache/tern/site/bin/python"  # ./dev installs it, with Pillow
METADATA = {
    "kernelspec": {"display_name": "C++20", "language": "cpp", "name": "xcpp20"},
    "language_info": {"codemirror_mode": "text/x-c++src", "file_extension": ".cpp", "mimetype": "text/x-c++src",
                      "name": "c++", "pygments_lexer": "cpp", "version": "20"},
}

# ---- From a source to cells ----

# A mark is a whole comment: its text within a string or another comment is ignored.
# Numbers are tokens too, because of the quotation mark in 10'000.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^()\s"]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\d(?:'?\w)*|'(?:\\.|[^'\\\n])+'""", re.DOTALL)
MARK = re.compile(r"// ?%%(?:\s+(.*?))?\s*$")


@dataclasses.dataclass
class Cell:
    kind: str  # "markdown" or "code"
    source: str
    line: int  # of its mark, counted from 0; -1 without one
    indent: str = ""


class SourceError(ValueError):
    pass


def marks_of(text):
    """Line, indentation and kind of each mark."""
    for token in TOKEN.finditer(text):
        found = MARK.match(token[0]) if token[0].startswith("//") else None
        indent = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
        if not found or indent.strip():
            continue
        line = text.count("\n", 0, token.start())
        kind = {None: "code", "": "code", "[markdown]": "markdown", "[md]": "markdown"}.get(found[1])
        if not kind:
            raise SourceError(f"line {line + 1}: '{token[0].strip()}'; expected '// %%' or '// %% [markdown]'.")
        yield line, indent, kind


def without_blank_ends(lines):
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def text_of_comments(lines, first):
    """Returns the Markdown in comments; `first` is the number of the first line."""
    text = []
    for number, line in enumerate(lines, first):
        found = re.match(r"\s*(?://(?: (.*)|(.*)))?$", line)
        if not found:
            raise SourceError(f"line {number}: '{line.strip()}' in a cell of text; expected a comment, or '// %%' before it.")
        text.append(found[1] or found[2] or "")
    return "\n".join(without_blank_ends(text))


def dedented(lines, indent):
    """Removes `indent`, up to the first line with a smaller indentation, where `main` ends."""
    out = []
    for i, line in enumerate(lines):
        if line and not line.startswith(indent):
            return out + lines[i:]
        out.append(line[len(indent) :])
    return out


def cells_of(text):
    """Returns the cells of a source. A comment at the beginning of a file is a text cell,
    with or without a mark."""
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    marks = list(marks_of(text))
    cells = []
    head = lines[: marks[0][0] if marks else len(lines)]
    count = next((i for i, line in enumerate(head) if not line.startswith("//")), len(head))
    if count:
        cells.append(Cell("markdown", text_of_comments(head[:count], 1), -1))
    cells.append(Cell("code", "\n".join(without_blank_ends(head[count:])), -1))
    for i, (line, indent, kind) in enumerate(marks):
        body = lines[line + 1 : marks[i + 1][0] if i + 1 < len(marks) else len(lines)]
        if kind == "markdown":
            cells.append(Cell(kind, text_of_comments(body, line + 2), line, indent))
        else:
            cells.append(Cell(kind, "\n".join(dedented(without_blank_ends(body), indent)), line, indent))
    return [cell for cell in cells if cell.source]


def main_cell(cells):
    """Returns the number of the cell for output before the first indented mark."""
    code = [i for i, cell in enumerate(cells) if cell.kind == "code"]
    return next((i for i in code if re.search(r"^int main\b", cells[i].source, re.MULTILINE)), code[0] if code else 0)


# The program's side. TERN_NOTEBOOK contains two file descriptors: to `run` and from it.
PREAMBLE = """\
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <unistd.h>
[[maybe_unused]] static void tern_begin_cell(int cell) {
  int to = -1, from = -1;
  const char* const pipes = std::getenv("TERN_NOTEBOOK");
  if (pipes == nullptr || std::sscanf(pipes, "%d,%d", &to, &from) != 2) return;
  std::cout.flush();
  std::fflush(nullptr);
  char response = 0;
  if (dprintf(to, "%d\\n", cell) < 0 || read(from, &response, 1) != 1) std::abort();
}
"""


def copy_of(text, name):
    """Returns the program with a call at each mark and the line numbers of the source."""
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    for number, cell in enumerate(cells_of(text)):
        if cell.kind == "code" and cell.indent:
            lines[cell.line] = f"{cell.indent}tern_begin_cell({number});"
    return f'{PREAMBLE}#line 1 "{name}"\n' + "\n".join(lines)


# ---- Running ----


def images_in(folder):
    """Returns every image below a folder, with its time and size to detect changes."""
    found = {}
    for path in folder.rglob("*"):
        if path.suffix.lower() in MIME and path.is_file():
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


class Outputs:
    """Collects the output and images of a program, cell by cell."""

    def __init__(self, folder, out, err):
        self.folder, self.streams = folder, {"stdout": out, "stderr": err}
        self.seen = images_in(folder)

    def take(self):
        """Returns what is new since the last call, as outputs of a notebook."""
        outputs = []
        for name, file in self.streams.items():
            text = file.read().decode(errors="replace")
            if text:
                print(text, end="", flush=True, file=getattr(sys, name))
                outputs.append({"output_type": "stream", "name": name, "text": text})
        now = images_in(self.folder)
        changed = [path for path, state in now.items() if self.seen.get(path) != state]
        self.seen = now
        folders = [path.parent for path in changed]
        for path in sorted(changed, key=lambda path: now[path]):
            if folders.count(path.parent) <= MOST_IMAGES:
                outputs.append(image_output(path.read_bytes(), path.suffix.lower(), str(path.relative_to(self.folder))))
        return outputs


def image_output(data, suffix, name):
    content = data.decode() if suffix == ".svg" else base64.b64encode(data).decode()
    return {"output_type": "display_data", "data": {MIME[suffix]: content, "text/plain": name}, "metadata": {}}


def run_program(cells, command, folder):
    """Runs a program in `folder`. Returns its exit code and the outputs of each cell."""
    to_us, from_program = os.pipe()
    to_program, from_us = os.pipe()
    outputs = {}
    with tempfile.TemporaryDirectory() as temp:
        files = [pathlib.Path(temp, name) for name in ("stdout", "stderr")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            taken = Outputs(folder, *(file.open("rb") for file in files))
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, "TERN_NOTEBOOK": f"{from_program},{to_program}"}, pass_fds=(from_program, to_program))
        os.close(from_program)
        os.close(to_program)
        cell = main_cell(cells)
        with os.fdopen(to_us) as cuts:
            for cut in cuts:
                outputs.setdefault(cell, []).extend(taken.take())
                cell = int(cut)
                os.write(from_us, b"\n")
        code = process.wait()
        outputs.setdefault(cell, []).extend(taken.take())
        os.close(from_us)
        for file in taken.streams.values():
            file.close()
    return code, outputs


# ---- Notebooks ----


def last_cell(source, command):
    """Returns the text of the last cell: the source and command of a notebook."""
    if source.startswith("examples/"):
        return f"This notebook was created from [{source}](../../{source}) by\n\n```sh\nbuild/examples/{command}\n```"
    return f"This notebook was created from {source} by\n\n```sh\n{command}\n```"


def lines_of(text):
    return text.splitlines(keepends=True)


def joined(outputs):
    """Joins consecutive streams, since a cell in a loop is entered many times."""
    out = []
    for output in outputs:
        if out and output["output_type"] == "stream" and out[-1].get("name") == output["name"]:
            out[-1]["text"] += output["text"]
        else:
            out.append(dict(output))
    for output in out:
        if output["output_type"] == "stream":
            output["text"] = lines_of(output["text"])
        elif "image/svg+xml" in output["data"]:
            output["data"]["image/svg+xml"] = lines_of(output["data"]["image/svg+xml"])
    return out


def notebook_of(cells, outputs, source, command):
    """Returns a notebook in nbformat 4.5, as a value for JSON."""
    count = 0
    made = [*cells, Cell("markdown", last_cell(source, command), -1)]
    notebook = {"cells": [], "metadata": {**METADATA, "tern": {"source": source, "command": command}},
                "nbformat": 4, "nbformat_minor": 5}
    for number, cell in enumerate(made):
        entry = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": lines_of(cell.source)}
        if cell.kind == "code":
            count += 1
            entry |= {"execution_count": count, "outputs": joined(outputs.get(number, []))}
        notebook["cells"].append(entry)
    return notebook


def save(notebook, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def is_of(notebook, text):
    """True if the cells of a notebook equal those of a source."""
    tern = notebook["metadata"]["tern"]
    expected = [(cell.kind, cell.source) for cell in cells_of(text)]
    expected.append(("markdown", last_cell(tern["source"], tern["command"])))
    return expected == [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def small_image(data, suffix):
    """Returns the image in at most SMALL_IMAGE bytes: as JPEG if PNG is larger, then with fewer pixels."""
    if suffix == ".svg" or len(data) <= SMALL_IMAGE:
        return data, suffix
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    width = min(image.width, 900)
    while True:
        height = round(image.height * width / image.width)
        file = io.BytesIO()
        image.convert("RGB").resize((width, height), Image.LANCZOS).save(file, "JPEG", quality=82, optimize=True)
        if len(file.getvalue()) <= SMALL_IMAGE or width < 200:
            return file.getvalue(), ".jpg"
        width = width * 4 // 5


def without_images(outputs, reason):
    """Replaces images, but not plots, with their names and the reason for leaving them out."""
    kept, names = [], []
    for output in outputs:
        if output["output_type"] == "display_data" and "image/svg+xml" not in output["data"]:
            names.append(output["data"]["text/plain"])
        else:
            kept.append(output)
    if names:
        text = f"{' and '.join(names)}: left out here, since {reason}\n"
        kept.append({"output_type": "display_data", "data": {"text/plain": text}, "metadata": {}})
    return kept


def with_small_images(outputs):
    for output in outputs:
        for suffix, mime in MIME.items():
            content = output.get("data", {}).get(mime)
            if content and suffix in (".png", ".jpg"):
                data, suffix = small_image(base64.b64decode(content), suffix)
                output = image_output(data, suffix, output["data"]["text/plain"])
        yield output


def tidy(outputs, places):
    """Replaces folders of this machine with the names in `places`, and removes the progress
    line that a Learner prints once a minute."""
    for output in outputs:
        if output["output_type"] == "stream":
            for place, name in places:
                output["text"] = output["text"].replace(place, name) if place else output["text"]
            output["text"] = PROGRESS.sub("", output["text"])
        if output.get("text") != "":
            yield output


def run(arguments):
    if arguments.small and not importlib.util.find_spec("PIL") and pathlib.Path(sys.executable) != SITE_PYTHON and SITE_PYTHON.exists():
        os.execv(SITE_PYTHON, [str(SITE_PYTHON), *sys.argv])
    source = arguments.source.resolve()
    cells = cells_of(source.read_text())
    folder = pathlib.Path.cwd()
    code, outputs = run_program(cells, arguments.command, folder)
    if code:
        print(f"notebook.py: {' '.join(arguments.command)} ended with {code}; no notebook was written.", file=sys.stderr)
        return code if code > 0 else 128 - code
    places = [(f"{folder}/", ""), (os.environ.get("TERN_CACHE", ""), "CACHE"), (os.environ.get("TERN_DATA", ""), "TERN_DATA"),
              (str(pathlib.Path.home()), "~")]
    for cell, some in outputs.items():
        if arguments.without_images:
            some = without_images(some, arguments.without_images)
        if arguments.small:
            some = with_small_images(some)
        outputs[cell] = list(tidy(some, places))
    command = shlex.join([source.stem, *arguments.command[1:]])
    name = str(source.relative_to(ROOT)) if source.is_relative_to(ROOT) else source.name
    save(notebook_of(cells, outputs, name, command), arguments.folder / f"{source.stem}.ipynb")
    return 0


# ---- Pages ----


def style():
    """Returns the style sheet of HtmlPage."""
    return re.search(r'R"css\((.*?)\)css"', (ROOT / "learner/report/html_page.cpp").read_text(), re.DOTALL)[1]


def highlighted(code):
    from pygments import lexers, token

    classes = {token.Comment.Preproc: "p", token.Comment: "c", token.Keyword: "k", token.String: "s", token.Number: "n"}
    out = []
    for kind, text in lexers.get_lexer_by_name("cpp").get_tokens(code):
        name = next((name for parent, name in classes.items() if kind in parent), None)
        out.append(f'<span class="{name}">{html.escape(text)}</span>' if name else html.escape(text))
    return "".join(out)


def html_of_output(output):
    if output["output_type"] == "stream":
        return f'<pre>{html.escape("".join(output["text"]))}</pre>\n'
    name = html.escape("".join(output["data"]["text/plain"]))
    for mime in MIME.values():
        if mime in output["data"]:
            content = "".join(output["data"][mime])
            if mime == MIME[".svg"]:
                content = base64.b64encode(content.encode()).decode()
            return (f'<div class="pictures"><figure><img alt="{name}" src="data:{mime};base64,{content}">'
                    f"<figcaption>{name}</figcaption></figure></div>\n")
    return f"<p>{name}</p>\n"


def title_of(notebook):
    text = "".join(notebook["cells"][0]["source"])
    found = re.match(r"# (.*)", text)
    return found[1] if found else pathlib.Path(notebook["metadata"]["tern"]["source"]).stem


def page_of(notebook):
    """Returns a self-contained HTML page, which loads no other file."""
    import markdown

    body = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            body.append(markdown.markdown(source, extensions=["fenced_code", "tables", "sane_lists"]) + "\n")
        else:
            body.append(f'<pre class="code">{highlighted(source)}</pre>\n')
            body += map(html_of_output, cell["outputs"])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title_of(notebook))}</title>\n<style>{style()}</style>\n</head>\n<body>\n"
        f"{''.join(body)}</body>\n</html>\n")


# ---- Commands ----


def write_copy(arguments):
    text = copy_of(arguments.source.read_text(), arguments.source.resolve())
    arguments.copy.parent.mkdir(parents=True, exist_ok=True)
    # Keeps the time of an unchanged file, so that it is not compiled again.
    if not arguments.copy.exists() or arguments.copy.read_text() != text:
        arguments.copy.write_text(text)
    return 0


def write_pages(arguments):
    for file in arguments.notebooks:
        file.with_suffix(".html").write_text(page_of(json.loads(file.read_text())))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("copy")
    command.add_argument("source", type=pathlib.Path)
    command.add_argument("copy", type=pathlib.Path)
    command.set_defaults(call=write_copy)
    command = commands.add_parser("run")
    command.add_argument("source", type=pathlib.Path)
    command.add_argument("folder", type=pathlib.Path, help="receives the notebook")
    command.add_argument("--small", action="store_true", help="shrink large images")
    command.add_argument("--without-images", metavar="REASON")
    command.add_argument("command", nargs="+")
    command.set_defaults(call=run)
    command = commands.add_parser("html")
    command.add_argument("notebooks", type=pathlib.Path, nargs="+")
    command.set_defaults(call=write_pages)
    arguments = parser.parse_args()
    try:
        return arguments.call(arguments)
    except SourceError as error:
        print(f"{arguments.source}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
