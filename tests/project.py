"""Checks that the project's statements about itself are true.

project.py ROOT

The lists of "How to add" in CONTRIBUTING.md match the files that name their examples, and are not longer
than promised, individually and in total. version.h, CITATION.cff and CHANGELOG.md have the same version. The
page for users of other libraries uses only names that Tern has; docs/limits.md quotes errors of the code; no
file contains merge conflict markers; headers that moved and the files in the architecture document exist, and so do
the modules that scripts import. The product prints only through a sink.
"""
import pathlib
import re
import sys

TEXTS = (".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".yml")
MOST_FILES = 5
# Maximum length of all lists of a section together, for sections with several lists.
MOST_IN_ALL = {"A kernel": 8, "A fused optimizer": 6, "A network": 10}
PRODUCT = ("kernels", "data", "learner", "callbacks", "vision")
# Contains one network for each way in which timm renames.
TAKES_AN_EXAMPLE = "tests/vision/models/timm_files_fixture.py"
# Files where something else is built on an example.
MADE_OF_IT = {"RAdam": ("learner/optim/layer_groups.cpp", "learner/optim/optimizer_factory.h")}  # ranger


def sections(text):
    """Yields title and text of each section of "How to add"."""
    text = text[text.index("## How to add") : text.index("\n## Documents")]
    for part in text.split("\n### ")[1:]:
        title, _, body = part.partition("\n")
        yield title, body


def files_of(line):
    return re.findall(r"`([\w/.]+\.\w+)`", line.partition(": ")[0])


def users(root, pattern, folder):
    """Yields files that name the example and therefore must be listed: in its folder,
    CMake's files, the umbrella headers, and the scripts of the tests that write
    Python's numbers. C++ tests may use it as a convenient example."""
    files = [root / "tern.h", *root.glob("vision/vision.h"), *root.rglob("CMakeLists.txt")]
    files += [file for file in (root / folder).rglob("*.*") if file.suffix in (".h", ".cpp", ".cu")]
    files += [*root.glob("tests/learner/**/*.py"), *root.glob("tests/vision/**/*.py")]
    for file in files:
        name = str(file.relative_to(root))
        if name != TAKES_AN_EXAMPLE and not name.startswith("build") and pattern.search(file.read_text()):
            yield name


def check_how_to_add(root):
    for title, body in sections((root / "CONTRIBUTING.md").read_text()):
        example, header = re.search(r"\[`(\w+)`\]\(([\w/.]+)\)", body).groups()
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", example).lower().strip("_")
        pattern = re.compile(rf"\b({example}|{snake})(_cuda)?\b")
        parts = [
            [file for line in part.splitlines() if line.startswith("- ") for file in files_of(line)]
            for part in body.split("too:\n")
        ]
        listed = sum(parts, [])
        for part in parts:
            if len(part) > MOST_FILES:
                yield f"{title}: a list has {len(part)} files; expected at most {MOST_FILES}."
        if len(listed) > MOST_IN_ALL.get(title, MOST_FILES):
            yield f"{title}: {len(listed)} files in all; expected at most {MOST_IN_ALL.get(title, MOST_FILES)}."
        for file in listed:
            if not (root / file).is_file():
                yield f"{title}: there is no file {file}."
            elif file != header and not re.search(
                rf"{pattern.pattern}|{re.escape(pathlib.Path(header).stem)}", (root / file).read_text(), re.I
            ):
                yield f"{title}: {file} does not mention {example}."
        for file in users(root, pattern, header.split("/")[0]):
            if file not in listed and file not in MADE_OF_IT.get(example, ()):
                yield f"{title}: {file} mentions {example} but is not listed."


def check_version(root):
    text = (root / "version.h").read_text()
    version = re.search(r'TERN_VERSION_STRING "(.*)"', text)[1]
    numbers = re.findall(r"#define TERN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text)
    if ".".join(numbers) != version:
        yield f"version.h: the numbers are {numbers}, the text is {version}."
    for file, line in ("CITATION.cff", f"version: {version}\n"), ("CHANGELOG.md", f"\n## {version}"):
        if line not in (root / file).read_text():
            yield f"{file}: expected the version of version.h, {version}."


def check_merges(root):
    """No file contains the conflict markers of a merge."""
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    for file in root.rglob("*"):
        name = str(file.relative_to(root))
        if file.suffix in TEXTS and not name.startswith(("build", ".")) and marks.search(file.read_text()):
            yield f"{name}: contains conflict markers of a merge; resolve the conflict."


def check_names(root):
    """The last column of each table names only what Tern has."""
    page = "docs/from_fastai_and_pytorch.md"
    known = set()
    for folder in PRODUCT:
        for header in (root / folder).rglob("*.h"):
            known |= set(re.findall(r"\w+", re.sub(r"//.*", "", header.read_text())))
    count = 0
    for line in (root / page).read_text().splitlines():
        cell = line.rstrip("| ").rpartition(" | ")[2] if line.startswith("| ") else ""
        for code in re.findall(r"`([^`]+)`", cell):
            code = re.sub(r'"[^"]*"|<torch/[\w/.]+>|torch::[\w:]+|\b\d[\de.-]*', "", code)
            for name in re.findall(r"[A-Za-z_]\w+", code):
                count += 1
                if name not in known | {"learn", "data", "file", "value"}:
                    yield f"{page}: Tern has no {name}, which `{line}` names."
    if count < 100:
        yield f"{page}: only {count} names of Tern were found."


def check_limits(root):
    """Errors quoted in docs/limits.md are in the code, where strings may be broken into lines."""
    code = []
    for folder in PRODUCT:
        for file in (root / folder).rglob("*.*"):
            if file.suffix in (".h", ".cpp"):
                code.append(re.sub(r'"\s*"', "", file.read_text()))
    quoted, is_quoting = 0, False
    for line in (root / "docs/limits.md").read_text().splitlines():
        cell = line.rstrip("| ").rpartition(" | ")[2] if line.startswith("| ") else ""
        is_quoting = cell == "the error says" or (is_quoting and line.startswith("|"))
        for text in re.findall(r"^`([^`]+)`$", cell) if is_quoting else ():
            quoted += 1
            if not any(text in part for part in code):
                yield f"docs/limits.md: no error contains `{text}`."
    if quoted < 40:
        yield f"docs/limits.md: only {quoted} errors are quoted."


def check_header_names(root):
    """Each namespace of tests/header_names.h is named after a header."""
    headers = {re.sub(r"[/.]", "_", str(path.relative_to(root))) for top in PRODUCT for path in (root / top).rglob("*.h")}
    for name in re.findall(r"^namespace (\w+_h) {", (root / "tests/header_names.h").read_text(), re.MULTILINE):
        if name not in headers:
            yield f"tests/header_names.h: there is no header for the namespace {name}."


def check_imports_of_scripts(root):
    """The modules that a Python file imports are beside it or in the folders under ROOT
    that it names. Some scripts run only with a GPU, so no test would notice."""
    scripts = sorted([*root.glob("tests/**/*.py"), *root.glob("tools/**/*.py")])
    ours = {script.stem for script in scripts}
    for script in scripts:
        text = script.read_text()
        named = [re.findall(r'"([\w.-]+)"', chain) for chain in re.findall(r'\bROOT((?: / "[\w.-]+")+)', text)]
        folders = [script.parent, *(root.joinpath(*parts) for parts in named)]
        if "sys.path.insert" in text and not named:
            continue  # its folders are arguments
        for module in re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE):
            if module in ours and not any((folder / f"{module}.py").exists() for folder in folders):
                yield f"{script.relative_to(root)} imports {module}, which is in none of the folders that it names."


def check_addresses(root):
    """docs/moved_headers.txt leads to existing headers, and docs/architecture.md to existing files and folders."""
    for line in (root / "docs/moved_headers.txt").read_text().splitlines():
        old, new = line.split()
        if (root / old).exists() or not (root / new).is_file():
            yield f"docs/moved_headers.txt: {line}; expected an old header that no longer exists and a new one that does."
    text = (root / "docs/architecture.md").read_text()
    named = [name for name in re.findall(r"`([a-z]\w*/[\w/*.]*)`", text) if not name.startswith("onnx/")]
    for name in named:
        name = name.rstrip("/")
        patterns = [name, name + ".h", *(f"{top}/**/{name}" for top in PRODUCT)]
        if not any(any(root.glob(pattern)) for pattern in patterns):
            yield f"docs/architecture.md: there is no {name}."
    if len(named) < 40:
        yield f"docs/architecture.md: only {len(named)} files and folders were found."


# Calls that write to stdout, to stderr or to the system log.
PRINTS = re.compile(
    r"std::w?(cout|cerr|clog)\b|fmt::v?print(ln)?\b|std::v?print(ln)?\b"
    r"|\b(v?[fd]?printf|f?puts|f?putc|putchar|perror|psignal|syslog|LOG)\s*\("
    r"|\bstd(out|err)\b|\bSTD(OUT|ERR)_FILENO\b"
)
MAY_PRINT = {
    "data/support/sink.h": "terminal() writes to stdout by default",
    "data/support/sink.cpp": "the terminal's sink",
    "vision/decode/decode_opencv.cpp": "captures what OpenCV writes to std::cerr, and writes nothing",
}
# Raw strings, comments and strings, which contain no calls.
NO_CODE = re.compile(r'R"([^(\s]*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def prints_of(text):
    """Yields number and text of each line that prints directly."""
    code = NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines = zip(text.split("\n"), code.split("\n"))
    for number, (line, code_of_line) in enumerate(lines, 1):
        if PRINTS.search(code_of_line):
            yield number, line.strip()


def check_output(root):
    """All output of Tern goes through a Sink (data/support/sink.h)."""
    for folder in PRODUCT:
        for file in sorted((root / folder).rglob("*.*")):
            name = str(file.relative_to(root))
            if file.suffix not in (".h", ".cpp", ".cu", ".cuh") or name in MAY_PRINT:
                continue
            for number, line in prints_of(file.read_text()):
                yield f"{name}:{number}: `{line}` prints directly; expected a Sink. Accept one as an option."
    for name in MAY_PRINT:
        if not any(prints_of((root / name).read_text())):
            yield f"{name}: no longer prints; remove it from MAY_PRINT."


# torch::tensor converts a double to kFloat, which rounds it.
TENSOR_OF_VALUE = re.compile(r"torch::(?:tensor|scalar_tensor)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
NAMES_A_TYPE = re.compile(r"torch::k[A-Z]|options\(\)|ScalarType|dtype")


def untyped_numbers(text):
    """The calls in C++ code that create a tensor of a number without stating its type."""
    code = NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [match[0] for match in TENSOR_OF_VALUE.finditer(code) if not NAMES_A_TYPE.search(match[1])]


def check_numbers(root):
    """Saved numbers keep their precision: in learner/ and callbacks/, tensors of numbers state their type."""
    assert untyped_numbers('x = torch::tensor(lr); y = torch::tensor(f(n), torch::kLong); // torch::tensor(z)') == ["torch::tensor(lr)"]
    for folder in ("learner", "callbacks"):
        for file in sorted((root / folder).rglob("*.*")):
            if file.suffix in (".h", ".cpp") and "onnx" not in file.parts:
                for call in untyped_numbers(file.read_text()):
                    yield f"{file.relative_to(root)}: `{call}` converts a double to kFloat; expected a type such as torch::kDouble."


def main():
    root = pathlib.Path(sys.argv[1])
    wrong = [
        *check_how_to_add(root), *check_version(root), *check_merges(root), *check_names(root), *check_limits(root),
        *check_addresses(root), *check_imports_of_scripts(root), *check_header_names(root), *check_output(root), *check_numbers(root),
    ]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
