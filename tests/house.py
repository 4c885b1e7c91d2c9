"""Prints how the house stands and checks that it does not become a maze again.

house.py ROOT

Limits go down with the code and are never raised: a change that needs a higher
one has to make room first. A unit is a header with the sources of its name; a
circle is a set of units that reach each other by their includes.
"""
import collections
import pathlib
import re
import sys

FOLDERS = ("kernels", "data", "learner", "callbacks", "vision")
ENDINGS = (".h", ".cpp", ".cu", ".cuh")

CORE_FILES = 137
CORE_LINES = 13665
LEARNER_HEADER_LINES = 273
LEARNER_METHODS = 60
# The largest circles that are left, by the number of their units.
CIRCLES = (2, 2)


def product_files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in ENDINGS:
                yield path


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
    names = re.findall(r"^  (?:[\w:<>&*, ]+? )?[&*]?(\w+)\(", body, re.MULTILINE)
    return sorted(set(names) - {"Learner", "return"})


def main():
    root = pathlib.Path(sys.argv[1])
    failures = []

    def check(what, value, limit):
        print(f"{what}: {value}, at most {limit}")
        if value > limit:
            failures.append(f"{what} is {value}; at most {limit} is allowed.")

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
