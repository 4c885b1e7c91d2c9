#!/usr/bin/env python3
"""Prints the messages of the library: errors, warnings and log messages.

messages.py [--root ROOT] [PATTERN]

Each line has a file, a line number and a complete message, folder by folder in source
order. PATTERN is a regular expression that the message or its file must match. Adjacent
string literals are joined. `{}` represents a value: a placeholder of fmt::format, or an
expression between two literals that are joined by `+` or by the commas of TORCH_CHECK.
The sources are tokenized, not parsed. A literal counts if it has two words and is a
direct or nested argument of a call that reports (REPORTS), or if it has four words
anywhere else, because helpers return messages and parts of them. Text of pages, plots
and program options (OTHER_TEXT) is left out.
"""
import argparse
import collections
import pathlib
import re
import sys

FOLDERS = ("kernels", "data", "learner", "callbacks", "vision", "tools", "examples/support")
ENDINGS = (".h", ".cpp", ".cu", ".cuh")

# Functions, macros and classes that report an error, a warning or a log message.
REPORTS = re.compile(
    r"T(ORCH|ERN)_(INTERNAL_ASSERT|CHECK|WARN)\w*|C10_THROW_ERROR|static_assert|\w*Error|invalid_argument"
    r"|(throw|raise|fail|refuse|reject|warn|check|expect|require|explain)(_\w+)?|warning|line|log|tell|say|act|or_warn|or_else"
    r"|problem|unexpected|give_up|terminate|blame|found|add_context|with_place_in_errors|is_called|archive_set_error"
)
# All arguments of these calls form one text.
STREAMS = re.compile(r"TORCH_(INTERNAL_ASSERT|CHECK|WARN)\w*|C10_THROW_ERROR")
# Functions whose text is not a message: options of programs, pages, plots, schemas, tables.
OTHER_TEXT = re.compile(
    r"app|add_(option|flag|subcommand|number|choice)|Options|command|def|nvtx_push|raw|heading|subheading|paragraph|print"
    r"|draw_matrix|image_grid|batch_plot|save_plot|starts_with|contains|find|says_any|is_transport|option|group|range"
)
# Pages, drawings, log records, lists of keywords.
NO_MESSAGE = re.compile(r"</?\w+[ >]|^\s*(<|{{\"|:root)|\bauto bool break\b|^https://\S+$|--query")
TOKEN = re.compile(
    r"(?P<blank>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*)"
    r'|R"(?P<end>[^(\s]*)\((?P<raw>.*?)\)(?P=end)"|"(?P<literal>(?:\\.|[^"\\\n])*)"'
    r"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|\d[\w.']*|::|->|.",
    re.DOTALL | re.MULTILINE,
)

# `literal` is None for all tokens except literals.
Token = collections.namedtuple("Token", "text line literal")
# `pieces` are the literals that form `text`.
Message = collections.namedtuple("Message", "file line text pieces")


def tokens_of(source):
    tokens, line = [], 1
    for match in TOKEN.finditer(source):
        if match["blank"] is None:
            literal = match["raw"]
            if match["literal"] is not None:
                literal = re.sub(r'\\(["\\])', r"\1", match["literal"])
            tokens.append(Token("" if literal is not None else match[0], line, literal))
        line += match[0].count("\n")
    return tokens


def calls_around(tokens):
    """For each token, the names of the functions of which it is an argument."""
    open_brackets, before = [], ""
    for token in tokens:
        if token.text in (")", "]", "}") and open_brackets:
            open_brackets.pop()
        yield [name for name in open_brackets if name]
        if token.text in ("(", "[", "{"):
            open_brackets.append(before if token.text == "(" and re.match(r"[A-Za-z_]", before) else "")
        if token.text != ">":
            before = token.text


def end_of_operand(tokens, at):
    """The position after the operand that begins at `at`."""
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if depth == 0 and text in ("+", ",", ";", ":", "?", "<", ")", "]", "}"):
            break
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        at += 1
    return at


def pieces_at(tokens, at, joins):
    """The pieces of the text that begins with the literal at `at`, and the position after
    it. An operand that `joins` joins to a literal is None unless it is itself a literal."""
    pieces = []
    while True:
        while at < len(tokens) and tokens[at].literal is not None:
            pieces.append(tokens[at].literal)
            at += 1
        if at + 1 >= len(tokens) or tokens[at].text not in joins:
            return pieces, at
        end = end_of_operand(tokens, at + 1)
        is_literal = tokens[at + 1].literal is not None
        if end == at + 1 or is_literal and tokens[at].text == "," and pieces[-1] is not None:
            return pieces, at + 1
        at += 1
        if not is_literal:
            pieces.append(None)
            # A literal within the operand starts a new text.
            if any(token.literal is not None for token in tokens[at:end]):
                return pieces, at
            at = end


def words_in(text):
    return len(re.findall(r"(?<![\w/.])(?:a|[A-Za-z][a-z']+)(?![\w/(])", text))


def messages_of(file, source):
    tokens = tokens_of(source)
    calls = list(calls_around(tokens))
    at = 0
    while at < len(tokens):
        begin = at
        at += 1
        if tokens[begin].literal is None:
            continue
        is_stream = bool(calls[begin]) and STREAMS.fullmatch(calls[begin][-1])
        pieces, at = pieces_at(tokens, begin, ("+", ",") if is_stream else ("+",))
        if begin and tokens[begin - 1].text == "+":
            pieces.insert(0, None)
        text = "".join("{}" if piece is None else piece for piece in pieces)
        reports = any(REPORTS.fullmatch(name) for name in calls[begin])
        shows = any(OTHER_TEXT.fullmatch(name) for name in calls[begin])
        if words_in(text) >= (2 if reports else 4) and (reports or not shows) and not NO_MESSAGE.search(text):
            yield Message(file, tokens[begin].line, text.replace("\n", r"\n"), pieces)


def messages(root):
    """All messages of the sources below `root`."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.*"), key=lambda file: (file.parent, file.name)):
            if file.suffix in ENDINGS:
                yield from messages_of(str(file.relative_to(root)), file.read_text())


def main():
    parser = argparse.ArgumentParser(description="Prints the errors, warnings and log messages of the library.")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("pattern", nargs="?", default="", help="regular expression that a message or its file must match")
    arguments = parser.parse_args()
    pattern = re.compile(arguments.pattern)
    for message in messages(arguments.root):
        if pattern.search(message.text) or pattern.search(message.file):
            print(f"{message.file}:{message.line}: {message.text}")


if __name__ == "__main__":
    sys.exit(main())
