"""The C++ in comments of public headers, for documents.py to compile.

Indented text in a `///` comment, after an empty line of it, is a block. Its C++
paragraphs are compiled; formulas, output and lists of files are not. Each block is in
a function after tern.h, in a namespace of its header with the names of
tests/header_names.h. `...` represents code of the reader, and `.loss = x` an option
of a Learner.
"""
import re

FOLDERS = ("kernels", "data", "learner", "callbacks", "vision")


def blocks_of(text):
    """The number of the first line and the text of each block."""
    lines = text.splitlines()
    blocks, inside = [], False
    for number, line in enumerate(lines, 1):
        comment = re.match(r"\s*/// ?(.*)", line)
        shown = comment and re.match(r" {2,}(?!\\)", comment[1])
        if shown and not inside and re.match(r"\s*///\s*$", lines[number - 2]):
            blocks.append((number, []))
            inside = True
        inside = inside and bool(comment) and bool(shown or not comment[1].strip())
        if inside:
            blocks[-1][1].append(comment[1])
    return blocks


def without_comment(line):
    return re.sub(r"\s*// .*", "", line)


def is_code(paragraph):
    """True for statements, options or a class, but not for a formula, JSON or a list of files."""
    code = [bare for line in paragraph if (bare := without_comment(line).strip())]
    if not code or re.match(r'\{"|\d\.|<|\(1 - ', code[0]):
        return False
    return code[0].startswith(".") or bool(re.search(r"([;{}]|\) \.\.\.)$", code[-1]))


def filled(text):
    """The text with each `...` replaced by code."""
    text = re.sub(r"for \(\.\.\.\)", "for (;;)", text)
    text = re.sub(r"\{ \.\.\. \}", "{}", text)
    text = re.sub(r"\(\.\.\.\)", "()", text)
    text = re.sub(r"^\s*\.\.\.$", "", text, flags=re.MULTILINE)
    return re.sub(r"\) \.\.\.$", ") {}", text, flags=re.MULTILINE)


def code_of(paragraph):
    """The paragraph as statements; an option belongs to a Learner, a method to a callback."""
    text = filled("\n".join(map(without_comment, paragraph)))
    if text.lstrip().startswith("."):
        options = re.split(r"\n(?=\s*\.\w)", text)
        return " ".join(f"(void)LearnerOptions{{{option}}};" for option in options)
    if re.match(r"\s*void \w+\(.*override \{", text):
        return f"struct : Callback {{ {text} }} callback;"
    return text


def functions(root):
    """Yields the header and the code of each block."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.h")):
            header = str(file.relative_to(root))
            scope = re.sub(r"\W", "_", header)
            for number, lines in blocks_of(file.read_text()):
                paragraphs = [part.split("\n") for part in re.split(r"\n\s*\n", "\n".join(lines).rstrip())]
                code = [code_of(part) for part in paragraphs if is_code(part)]
                if not code:
                    continue
                body = f'#line {number} "{header}"\n' + "\n".join(code)
                # A function needs no function around it.
                is_function = re.match(r"\s*\w[\w<>]* \w+\([^;]*\) \{", code[0]) and not code[0].lstrip().startswith("for")
                inner = body if is_function else f"[[maybe_unused]] static void block_{number}() {{\n{body}\n}}"
                yield header, f"namespace tern::header_names::{scope} {{\n{inner}\n}}"


def unit(root):
    """The number of blocks, their includes, and the code after them."""
    found = list(functions(root))
    includes = {f"#include <tern/{header}>" for header, _ in found if not header.startswith("kernels")}
    return len(found), ["#include <tern/tern.h>", *sorted(includes), '#include "tern/tests/header_names.h"'], [lines for _, lines in found]


if __name__ == "__main__":
    import pathlib
    import sys

    count, includes, lines = unit(pathlib.Path(sys.argv[1]))
    print(*includes, *lines, sep="\n")
