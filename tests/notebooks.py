"""Checks that docs/notebooks is the output of ./dev notebooks.

notebooks.py ROOT

Each notebook has the cells of its example's current source, outputs if the program
prints, the metadata of a C++ kernel, at most 300 KB, and no path of the machine that
wrote it. It is valid nbformat, which the package nbformat checks if it is installed.
There is one notebook for each name in examples/CMakeLists.txt.
"""
import json
import pathlib
import re
import sys

MOST_BYTES = 300_000
SITE = pathlib.Path.home() / ".cache/tern/site"
PLACE = re.compile(r"(?<![\w.~/:-])/(?:[\w.+-]+/){2,}[\w.+-]*")


def validator():
    """Returns nbformat.validate from this Python, or from the one that builds the site."""
    for folder in None, *SITE.glob("lib/python3*/site-packages"):
        if folder:
            sys.path.append(str(folder))
        try:
            import nbformat
        except ImportError:
            continue
        return nbformat.validate
    return None


def structure(notebook):
    """Checks the parts of nbformat 4.5 that these notebooks use."""
    if (notebook.get("nbformat"), notebook.get("nbformat_minor")) != (4, 5):
        yield "is not nbformat 4.5"
    ids = [cell.get("id", "") for cell in notebook["cells"]]
    if len(set(ids)) != len(ids) or not all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids):
        yield "has cells without a unique id"
    keys = {"markdown": {"cell_type", "id", "metadata", "source"}}
    keys["code"] = keys["markdown"] | {"execution_count", "outputs"}
    for cell in notebook["cells"]:
        if set(cell) != keys.get(cell["cell_type"]):
            yield f"{cell['id']} has the keys {sorted(cell)}"
        for output in cell.get("outputs", ()):
            expected = {"output_type", "name", "text"} if output["output_type"] == "stream" else {"output_type", "data", "metadata"}
            if set(output) != expected:
                yield f"{cell['id']} has an output with the keys {sorted(output)}"


def texts(notebook):
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            yield "".join(output.get("text", output.get("data", {}).get("text/plain", "")))


def problems(root, file, validate):
    import notebook as tool

    text = file.read_text()
    notebook = json.loads(text)
    source = root / notebook["metadata"]["tern"]["source"]
    if not source.is_file() or source.stem != file.stem:
        yield f"names the source {source.relative_to(root)}"
        return
    if not tool.is_of(notebook, source.read_text()):
        yield f"does not have the cells of {source.relative_to(root)}; ./dev notebooks {file.stem} updates it"
    if len(text.encode()) > MOST_BYTES:
        yield f"has {len(text.encode())} bytes; expected at most {MOST_BYTES}"
    if notebook["metadata"]["kernelspec"]["name"] != "xcpp20":
        yield "does not have the metadata of a C++ kernel"
    if not any(texts(notebook)):
        yield "has no output; it was not run"
    for place in {place for text in texts(notebook) for place in PLACE.findall(text)}:
        yield f"contains a path of the machine that wrote it: {place}"
    yield from structure(notebook)
    if validate:
        try:
            validate(notebook)
        except Exception as error:  # noqa: BLE001 of nbformat or jsonschema
            yield f"is not valid: {str(error).splitlines()[0]}"


def expected_names(root):
    """The names that examples/CMakeLists.txt writes; `amp_${name}` is expanded for each item of a list."""
    text = (root / "examples/CMakeLists.txt").read_text()
    for names, call in re.findall(r"foreach\(name IN ITEMS ([^)]*)\)\n +tern_docs_notebook\(([\w/${}]+)\)", text):
        yield from (pathlib.Path(call.replace("${name}", name)).name for name in names.split())
    yield from re.findall(r"^tern_docs_notebook\((\w+)", text, re.MULTILINE)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(root / "tools"))
    files = sorted((root / "docs/notebooks").glob("*.ipynb"))
    validate = validator()
    wrong = [f"{file.name} {problem}." for file in files for problem in problems(root, file, validate)]
    expected = set(expected_names(root))
    found = {file.stem for file in files}
    wrong += [f"There is no docs/notebooks/{name}.ipynb; ./dev notebooks writes it." for name in sorted(expected - found)]
    wrong += [f"docs/notebooks/{name}.ipynb is not written by ./dev notebooks." for name in sorted(found - expected)]
    print(f"{len(files)} notebooks, {sum(file.stat().st_size for file in files) // 1000} KB,"
          f" {'checked by nbformat' if validate else 'without nbformat'}", *wrong, sep="\n")
    return 1 if wrong or len(expected) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
