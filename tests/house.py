"""Checks that includes follow the arrows of docs/architecture.md, without cycles.

house.py ROOT

A folder may include only the folders that MAY_INCLUDE lists for it, no header includes
itself through others, and a class is defined in the folder that declares it. Prints the
sizes of the folders; none of them is a limit.
"""
import collections
import pathlib
import re
import sys

TOPS = ("kernels", "data", "learner", "callbacks", "vision")
ENDINGS = (".h", ".cpp", ".cu", ".cuh")

# The folders that each folder may include besides itself. A folder that is not listed uses the
# entry of its nearest listed parent.
BELOW_CORE = {"kernels", "data", "data/formats", "data/support"}
CORE = BELOW_CORE | {"learner", "learner/plots"}
BESIDE_CORE = CORE | {
    "learner/" + folder
    for folder in (
        "amp checkpoint cuda_graph distributed export inference losses metrics optim report weights"
    ).split()
}
MAY_INCLUDE = {
    "kernels": set(),
    "data/formats": set(),
    "data/support": {"data/formats", "kernels"},
    "data": {"data/formats", "data/support", "kernels"},
    # Curves as SVG and PNG, which do not depend on Learner.
    "learner/plots": BELOW_CORE,
    "learner": BELOW_CORE | {"learner/plots"},
    "learner/losses": CORE,
    "learner/metrics": CORE,
    "learner/optim": CORE,
    "learner/inference": CORE,
    "learner/amp": CORE | {"learner/optim"},
    "learner/weights": CORE | {"learner/amp"},
    "learner/export": CORE | {"learner/amp", "learner/inference", "learner/weights"},
    "learner/checkpoint": CORE | {"learner/amp", "learner/optim", "learner/weights"},
    "learner/distributed": CORE | {"learner/amp", "learner/optim"},
    "learner/cuda_graph": CORE | {"learner/amp", "learner/optim"},
    "learner/report": CORE | {"learner/amp", "learner/optim"},
    "callbacks": BESIDE_CORE,
    "vision/decode": BESIDE_CORE,
    "vision/transforms": BESIDE_CORE | {"vision/decode"},
    "vision/datasets": BESIDE_CORE | {"vision/decode", "vision/transforms"},
    "vision/models": BESIDE_CORE,
}
IMAGES = {"vision/decode", "vision/transforms", "vision/datasets"}
MAY_INCLUDE["vision/predict"] = BESIDE_CORE | IMAGES | {"vision/models"}
MAY_INCLUDE["vision/interpret"] = MAY_INCLUDE["vision/predict"] | {"vision/predict"}
MAY_INCLUDE["vision/matting"] = MAY_INCLUDE["vision/interpret"] | {"vision/interpret"}
MAY_INCLUDE["vision"] = MAY_INCLUDE["vision/matting"] | {"vision/matting"}

# Files that every folder may include.
EVERYWHERE = {"version.h"}
# The headers of learner/amp at the addresses that hand-written loops use.
FORWARDERS = {"learner/autocast.h", "learner/grad_scaler.h"}
# Classes whose methods may be defined in the folder of their subject, as fastai
# attaches `to_fp16` to its Learner.
ATTACHED = {"DataBunch", "ImageDataBunch", "Learner", "LoadReport", "Metric", "Model"}


def product_files(root):
    for top in TOPS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in ENDINGS:
                yield path


def folder_of(path):
    """The entry of MAY_INCLUDE for a path relative to the root."""
    folder = path.rpartition("/")[0]
    while folder not in MAY_INCLUDE:
        folder = folder.rpartition("/")[0]
    return folder


def wrong_includes(root):
    """Yields includes against the arrows, and of libraries that a folder must not use."""
    for path in product_files(root):
        name = str(path.relative_to(root))
        if name in FORWARDERS:
            continue
        me = folder_of(name)
        for line in re.findall(r"^[ \t]*#[ \t]*include .*", path.read_text(), re.MULTILINE):
            if match := re.search(r'"tern/([^"]+)"', line):
                if match[1] not in EVERYWHERE and folder_of(match[1]) not in MAY_INCLUDE[me] | {me}:
                    allowed = ", ".join(sorted(MAY_INCLUDE[me] | {me}))
                    yield f"{name}: {line}; {me}/ may include: {allowed}."
            elif '"' in line:
                yield f'{name}: {line}; our headers are included as "tern/folder/file.h".'
            elif me == "data/formats" and re.search(r"<(torch|ATen|c10|caffe2|cuda|opencv2|fmt)[/_.]", line):
                yield f"{name}: {line}; data/formats/ is built without LibTorch, so that it can be fuzzed fast."
            elif not me.startswith("vision") and re.search(r"<(opencv2/|jpeglib)", line):
                yield f"{name}: {line}; only vision/ uses OpenCV and libjpeg-turbo."


def definitions_elsewhere(root):
    """Yields methods that are declared in one folder and defined in another."""
    declared = {}
    for path in product_files(root):
        if path.suffix == ".h":
            for name in re.findall(r"^(?:class|struct) (\w+)[^;]*?{", path.read_text(), re.MULTILINE):
                declared.setdefault(name, folder_of(str(path.relative_to(root))))
    declared["loop"] = "learner"
    definition = re.compile(r"^(?:[A-Za-z][^\n;={}]*[ &*])?(\w+)::~?\w+\(", re.MULTILINE)
    for path in product_files(root):
        if path.suffix == ".h":
            continue
        name = str(path.relative_to(root))
        text = path.read_text()
        for owner in sorted(set(definition.findall(text)) - ATTACHED):
            is_own = re.search(rf"^(?:class|struct) {owner}\b[^;]*?{{", text, re.MULTILINE)
            home = declared.get(owner, folder_of(name))
            if home != folder_of(name) and not is_own:
                yield f"{name} defines a method of {owner}, which is declared in {home}/."


def includes_of_headers(root):
    graph = collections.defaultdict(set)
    for path in product_files(root):
        if path.suffix in (".h", ".cuh"):
            included = re.findall(r'^#include "tern/(.*)"', path.read_text(), re.MULTILINE)
            graph[str(path.relative_to(root))].update(included)
    return graph


def circles(graph):
    """Strongly connected components of more than one header (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] != index[node]:
            return
        component = []
        while not component or component[-1] != node:
            component.append(stack.pop())
            on_stack.discard(component[-1])
        if len(component) > 1:
            found.append(sorted(component))

    sys.setrecursionlimit(10000)
    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def print_figures(root):
    sizes = collections.defaultdict(lambda: [0, 0])
    for path in product_files(root):
        size = sizes[folder_of(str(path.relative_to(root)))]
        size[0] += 1
        size[1] += len(path.read_text().splitlines())
    sizes["all"] = [sum(column) for column in zip(*sizes.values())]
    for folder, (files, lines) in sizes.items():
        print(f"{folder:22} {files:4} files {lines:6} lines")


def main():
    root = pathlib.Path(sys.argv[1])
    print_figures(root)
    failures = [*wrong_includes(root), *definitions_elsewhere(root)]
    failures += ["These include each other: " + ", ".join(circle) + "." for circle in circles(includes_of_headers(root))]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
