"""Prints how the house stands and checks that it does not become a maze again.

house.py ROOT

Checked are the arrows of includes between the folders, circles of includes,
definitions outside the folder that declares, and the size of the core. Limits go
down with the code and are never raised: a change that needs a higher one has to
make room first. A unit is a header with the sources of its name; a circle is a
set of units that reach each other by their includes.
"""
import collections
import pathlib
import re
import sys

TOPS = ("kernels", "data", "learner", "callbacks", "vision")
ENDINGS = (".h", ".cpp", ".cu", ".cuh")

CORE_FILES = 30
CORE_LINES = 4000
LEARNER_HEADER_LINES = 220
LEARNER_METHODS = 45
LOOP_LINES = 80
# Of a family of networks; resnet.cpp has two, torchvision's and fastai's.
FAMILY_LINES = 160
FAMILY = re.compile(r"\breturn named<")
TWO_FAMILIES = {"resnet"}
# The loop can be read without a word of them.
NOT_IN_LOOP = re.compile("resume|continuation|checkpoint|rank|communicator|graph|master", re.IGNORECASE)
# Allowed circles, by the number of their units: none.
CIRCLES = ()

# Which folders a folder may include besides itself. `learner` is the core: its
# root alone, which knows none of the folders beside it.
BELOW_CORE = {"kernels", "data", "data/formats"}
CORE = BELOW_CORE | {"learner"}
BESIDE_CORE = {
    "learner/" + folder
    for folder in (
        "checkpoint distributed graph losses metrics optim precision predict report weights"
    ).split()
}
MAY_INCLUDE = {
    "kernels": set(),
    "data/formats": set(),
    "data": {"data/formats", "kernels"},
    "learner": BELOW_CORE,
    "learner/losses": CORE,
    "learner/metrics": CORE,
    "learner/optim": CORE,
    "learner/precision": CORE | {"learner/optim"},
    "learner/predict": CORE,
    "learner/weights": CORE | {"learner/precision", "learner/predict"},
    "learner/checkpoint": CORE | {"learner/optim", "learner/precision", "learner/weights"},
    "learner/distributed": CORE | {"learner/optim", "learner/precision"},
    "learner/graph": CORE | {"learner/optim", "learner/precision"},
    "learner/report": CORE | {"learner/optim", "learner/precision"},
    "callbacks": CORE | BESIDE_CORE,
    "vision": CORE | BESIDE_CORE,
}
# What every folder may include.
EVERYWHERE = {"version.h"}
# The addresses that hand-written loops know; the classes live in precision/.
FORWARDERS = {"learner/autocast.h", "learner/grad_scaler.h"}
# Classes whose methods may be defined in the folder that does the work, as
# fastai attaches them: pictures and state of the Recorder, DataBunch::presize,
# state dicts and TorchScript of Model, Metric of a function.
ATTACHED = {"AllReduce", "DataBunch", "Learner", "LoadReport", "Metric", "Model", "Recorder"}


def product_files(root):
    for top in TOPS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in ENDINGS:
                yield path


def folder_of(path):
    """The folder of MAY_INCLUDE that a path, relative to the root, belongs to."""
    folder = path.rpartition("/")[0]
    while folder not in MAY_INCLUDE:
        folder = folder.rpartition("/")[0]
    return folder


def wrong_includes(root):
    """Includes against the arrows, and of what a folder must not know."""
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
            elif me != "vision" and re.search(r"<(opencv2/|jpeglib)", line):
                yield f"{name}: {line}; only vision/ knows OpenCV and libjpeg-turbo."


def definitions_elsewhere(root):
    """A method or function that is declared in one folder and defined in another."""
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
                yield f"{name} defines something of {owner}, which is declared in {home}/."


def unit(name):
    return re.sub(r"\.\w+$", "", name)


def includes_of_units(root):
    graph = collections.defaultdict(set)
    for path in product_files(root):
        me = unit(str(path.relative_to(root)))
        for line in path.read_text().splitlines():
            match = re.match(r'#include "tern/(.*)"', line)
            if match and unit(match[1]) != me:
                graph[me].add(unit(match[1]))
    return graph


def circles(graph):
    """Tarjan's strongly connected components of more than one unit."""
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
    return sorted(found, key=len, reverse=True)


def public_methods(header):
    text = header.read_text()
    body = text[text.index("class Learner {") : text.index(" private:\n")]
    body = re.sub(r"//.*", "", body)
    names = re.findall(r"^  (?:\w[\w:<>&*, ]*? )?[&*]?(\w+)\(", body, re.MULTILINE)
    return sorted(set(names) - {"Learner", "return"})


def main():
    root = pathlib.Path(sys.argv[1])
    failures = []

    def check(what, value, limit):
        print(f"{what}: {value}, at most {limit}")
        if value > limit:
            failures.append(f"{what} is {value}; at most {limit} is allowed.")

    failures += wrong_includes(root)
    failures += definitions_elsewhere(root)
    files = list(product_files(root))
    lines = sum(len(path.read_text().splitlines()) for path in files)
    print(f"product: {len(files)} files, {lines} lines")
    core = [path for path in files if path.parent == root / "learner"]
    header = root / "learner/learner.h"
    check("files of learner/", len(core), CORE_FILES)
    core_lines = sum(len(path.read_text().splitlines()) for path in core)
    check("lines of learner/", core_lines, CORE_LINES)
    header_lines = len(header.read_text().splitlines())
    check("lines of learner.h", header_lines, LEARNER_HEADER_LINES)
    check("public methods of Learner", len(public_methods(header)), LEARNER_METHODS)
    loop = (root / "learner/fit.cpp").read_text()
    body = loop[loop.index("Learner& Learner::fit") : loop.rindex("}  // namespace")]
    check("lines of the loop", len([line for line in body.splitlines() if line]), LOOP_LINES)
    for path in files:
        text = path.read_text()
        if path.match("vision/models/*/*.cpp") and FAMILY.search(text) and path.stem not in TWO_FAMILIES:
            check(f"lines of {path.name}", len(text.splitlines()), FAMILY_LINES)
    if word := NOT_IN_LOOP.search(loop):
        failures.append(f'learner/fit.cpp says "{word[0]}"; the loop leaves that to what it calls.')
    if re.search(r"^\s*friend (class|struct)", header.read_text(), re.MULTILINE):
        failures.append("learner.h has a friend; expected none.")
    left = circles(includes_of_units(root))
    for i, circle in enumerate(left):
        limit = CIRCLES[i] if i < len(CIRCLES) else 1
        check("units in a circle", len(circle), limit)
        print("  " + ", ".join(circle))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
