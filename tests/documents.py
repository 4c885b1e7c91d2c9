"""Compiles every C++ block in the documents and in comments of headers.

documents.py BUILD_FOLDER ROOT
documents.py --programs FILE ROOT    writes the programs, to be compiled and run

A block with `int main()` is a program and includes only the headers that it shows. A
program that shows no headers consists of all blocks of its page, in order. Any other
block is a fragment: it is compiled inside a function, after `#include <tern/tern.h>`
and the headers that it shows, and can use the names of earlier blocks on its page.
Code that a page should not show is in a comment, which is compiled as another block:

    <!-- cpp
    extern tern::Learner learn;
    -->

Code that should not be compiled is not marked ```cpp.

The first block of README.md must equal examples/mnist.cpp, except for comments and
line breaks.
"""
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import header_blocks

COMPILED_AS = "/tern_documents.cpp"
UMBRELLA = "#include <tern/tern.h>"
CPP_FENCE = re.compile(r"(```+|~~~+)\s*(cpp|c\+\+|cc|cxx|c|hpp|h)\b", re.IGNORECASE)


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of the first line of code
    code: list
    is_shown: bool

    def is_program(self):
        return any(re.match(r"int main\(", line) for line in self.code)

    def includes(self):
        return [line for line in self.code if line.startswith("#include")]

    def body(self):
        """The code without its includes, which are not allowed in a function."""
        place = f'#line {self.line} "{self.page}"'
        keep = ["" if line in self.includes() else line for line in self.code]
        return [place, *keep]


def blocks_of(page, text):
    blocks = []
    end = None
    for number, line in enumerate(text.splitlines(), 1):
        if end is not None:
            if line.strip() == end:
                end = None
            else:
                blocks[-1].code.append(line)
        elif line.strip() in ("```cpp", "<!-- cpp"):
            is_shown = line.strip() == "```cpp"
            end = "```" if is_shown else "-->"
            blocks.append(Block(page, number + 1, [], is_shown))
        elif CPP_FENCE.match(line.strip()):
            sys.exit(f"{page}:{number}: C++ blocks must be marked ```cpp, so that "
                     "they are compiled.")
    if end is not None:
        sys.exit(f"{blocks[-1].page}:{blocks[-1].line}: this block has no end.")
    return blocks


def code_of(lines):
    """The code without comments and whitespace, which depend on the formatter."""
    return "".join("".join(line.split("//")[0].split()) for line in lines)


def is_first_example(block, root):
    file = root / "examples" / "mnist.cpp"
    if code_of(block.code) == code_of(file.read_text().splitlines()):
        return True
    print(f"{block.page}:{block.line}: this program differs from "
          "examples/mnist.cpp; expected the same code. Change one of them.")
    return False


def name_of(*parts):
    return re.sub(r"\W", "_", "_".join(map(str, parts)))


def fragments(blocks):
    """The fragments of one page, each in the scope of the previous one."""
    lines = [f"namespace {name_of(blocks[0].page)} {{", "void fragments() {"]
    for block in blocks:
        lines += ["{", *block.body()]
    return lines + ["}" * len(blocks), "}", "}"]


def program(blocks):
    """A program whose main is an ordinary function in a namespace, which must return."""
    name = name_of(blocks[-1].page, blocks[-1].line)
    body = [line for block in blocks for line in block.body()]
    if body[-1] == "}":
        body[-1] = "  return 0; }"
    return [f"namespace {name} {{", *body, "}"]


def programs(blocks):
    """Yields the blocks of each program of a page."""
    for block in blocks:
        if block.is_program():
            yield [block] if block.includes() else blocks


def includes_of(blocks):
    return frozenset(line for block in blocks for line in block.includes())


def by_includes(pages):
    """Code grouped by its includes: parsing LibTorch takes most of the time, so code
    with the same includes is compiled together."""
    groups = collections.defaultdict(list)
    for blocks in pages:
        rest = list(blocks)
        for parts in programs(blocks):
            groups[includes_of(parts)] += program(parts)
            rest = [block for block in rest if block not in parts]
        if rest:
            groups[includes_of(rest) | {UMBRELLA}] += fragments(rest)
    return groups


def compile_command(build, includes):
    """The command of tern_documents.cpp. Its precompiled header is tern.h, which must
    not be visible to a program that does not include it."""
    entries = json.loads((build / "compile_commands.json").read_text())
    command = next(
        one["command"] for one in entries if one["file"].endswith(COMPILED_AS)
    )
    words = shlex.split(command[: command.index(" -o ")])
    if UMBRELLA not in includes:
        options = re.findall(r" (-isystem \S+|-[DI]\S+|-std=\S+)", command)
        words = [words[0], *shlex.split(" ".join(options))]
    return [*words, "-w", "-fsyntax-only"]


def compile_one(build, file, includes, lines):
    file.write_text("\n".join([*sorted(includes), *lines, ""]))
    command = [*compile_command(build, includes), str(file)]
    done = subprocess.run(command, cwd=build, stderr=subprocess.PIPE, text=True)
    print(done.stderr, end="", flush=True)
    return done.returncode == 0


def pages_of(root):
    pages = []
    for pattern in "*.md", "docs/**/*.md", "examples/**/*.md":
        for file in sorted(root.glob(pattern)):
            page = str(file.relative_to(root))
            if blocks := blocks_of(page, file.read_text()):
                pages.append(blocks)
    return pages


def write_programs(file, root):
    """Writes all programs as one, except README's, which is in examples/. It prints
    which of them fails."""
    parts = [
        one
        for blocks in pages_of(root)
        for one in programs(blocks)
        if one[0].page != "README.md"
    ]
    lines = sorted({line for one in parts for line in includes_of(one)})
    for one in parts:
        lines += program(one)
    lines += ["int main() {", "  int failures = 0;"]
    for one in parts:
        name = name_of(one[-1].page, one[-1].line)
        lines.append(f'  fmt::print("{one[-1].page}:{one[-1].line}\\n");')
        lines.append(f"  failures += {name}::main() != 0;")
    lines += [f"  return failures == 0 && {len(parts)} > 1 ? 0 : 1;", "}", ""]
    file.write_text("\n".join(lines))
    return 0


def main():
    if sys.argv[1] == "--programs":
        return write_programs(*map(pathlib.Path, sys.argv[2:]))
    build, root = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    pages = pages_of(root)
    count = sum(block.is_shown for blocks in pages for block in blocks)
    if count == 0:
        sys.exit(f"{root}: no document has a C++ block; expected the folder of "
                 "the repository.")
    groups = [*by_includes(pages).items()]
    in_headers, includes, lines = header_blocks.unit(root)
    groups.append((frozenset(includes), lines))
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        jobs = [
            pool.submit(
                compile_one,
                build,
                pathlib.Path(folder) / f"group_{number}.cpp",
                includes,
                lines,
            )
            for number, (includes, lines) in enumerate(groups)
        ]
        good = all([job.result() for job in jobs])
    readme = next(blocks for blocks in pages if blocks[0].page == "README.md")
    good = is_first_example(readme[0], root) and good
    print(f"{count} C++ blocks of {len(pages)} documents, {in_headers} of headers: "
          + ("all compile." if good else "the errors are above."))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
