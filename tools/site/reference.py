"""Writes a Markdown page for each public header, in the order of the header.

Doxygen finds the declarations of a header and their lines. Signatures and comments are
copied from these lines of the file, so that a page reads like its header.
"""
import collections
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

DOXYFILE = """
INPUT = {input}
OUTPUT_DIRECTORY = {output}
STRIP_FROM_PATH = {root}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = TERN_WITH_ARCHIVES TERN_WITH_VISION TORCH_MODULE(x)=
QUIET = YES
WARNINGS = NO
WARN_IF_DOC_ERROR = NO
WARN_IF_UNDOCUMENTED = NO
WARN_IF_INCOMPLETE_DOC = NO
INCLUDE_GRAPH = NO
INCLUDED_BY_GRAPH = NO
"""
TOPS = {
    "learner": "The Learner, its parts, and its features",
    "callbacks": "Callbacks of the training loop",
    "data": "Datasets, loaders, files",
    "vision": "Images: decoding, transforms, networks, plots",
    "kernels": "Fused operations on tensors, on CPU and GPU",
}
HEADER = re.compile(r"\b((?:kernels|data|learner|callbacks|vision)/[\w/]+\.h|tern\.h)\b")


@dataclasses.dataclass
class Entity:
    kind: str  # class, function, variable, enum, typedef
    name: str
    line: int  # from 1
    members: list = dataclasses.field(default_factory=list)


PRIVATE = "Private to Tern"  # in the comment of a header or class that is not part of the interface


def public_headers(root):
    """Returns the headers that cmake/InstallHeaders.cmake installs, except private ones."""
    script = (root / "cmake/InstallHeaders.cmake").read_text()
    roots = re.search(r"set\(roots ([^)]*)\)", script)[1].split()
    found = []
    while roots:
        header = roots.pop(0)
        if header not in found:
            found.append(header)
            text = (root / header).read_text()
            roots += re.findall(r'^#include [<"]tern/([^">]+)[">]', text, re.MULTILINE)
    return sorted(header for header in found if not is_private(root / header))


def is_private(header):
    """True if the comment of a file, above its namespace, marks it as private."""
    return PRIVATE in " ".join(header.read_text().partition("\nnamespace ")[0].replace("///", "").split())


def run_doxygen(root, headers, folder):
    if not shutil.which("doxygen"):
        sys.exit("There is no doxygen, which reads the headers for the reference; install it with your system's packages.")
    folder.mkdir(parents=True, exist_ok=True)
    settings = DOXYFILE.format(
        input=" ".join(f'"{root / header}"' for header in headers), output=folder, root=root
    )
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True)
    return folder / "xml"


def entities_of(xml):
    """Returns the entities of each header, in order; classes contain their members."""
    files = collections.defaultdict(list)
    classes = {}
    for entry in ElementTree.parse(xml / "index.xml").getroot():
        if entry.get("kind") not in ("namespace", "class", "struct"):
            continue
        compound = ElementTree.parse(xml / f"{entry.get('refid')}.xml").getroot()[0]
        place = compound.find("location")
        if entry.get("kind") != "namespace":
            name = compound.findtext("compoundname")
            entity = Entity("class", name.removeprefix("tern::"), int(place.get("line")))
            classes[name] = entity
            if compound.get("prot") == "public" or compound.get("prot") is None:
                outer = name.rpartition("::")[0]
                files[place.get("file")].append((outer, entity))
        for member in compound.iter("memberdef"):
            if member.get("prot") != "public" or member.get("kind") == "friend":
                continue
            at = member.find("location")
            found = Entity(member.get("kind"), member.findtext("name"), int(at.get("line")))
            if entry.get("kind") == "namespace":
                files[at.get("file")].append(("", found))
            else:
                entity.members.append(found)
    result = {}
    for file, found in files.items():
        result[file] = []
        for outer, entity in found:
            (classes[outer].members if outer in classes else result[file]).append(entity)
        result[file].sort(key=lambda entity: entity.line)
    for entity in classes.values():
        entity.members.sort(key=lambda member: member.line)
    return result


class Header:
    """The text of a header, with access to its declarations and comments."""

    def __init__(self, path):
        self.lines = path.read_text().splitlines()

    def first_line(self, line):
        """Returns the first line of the declaration whose name is in `line`; both from 0."""
        while line > 0:
            above = self.lines[line - 1].split("//")[0].rstrip()
            if not above or above[-1] in ";{}:" or above.startswith("#"):
                return line
            line -= 1
        return line

    def comment(self, line):
        """Returns the lines of the comment above `line`, without slashes."""
        first = line
        while first > 0 and self.lines[first - 1].lstrip().startswith("///"):
            first -= 1
        return [text.lstrip()[3:] for text in self.lines[first:line]]

    def remark(self, line):
        """Returns the comment at the end of a one-line declaration, or ""."""
        code, slashes, text = self.lines[line].partition("  // ")
        return text if slashes and code.strip() else ""

    def section(self, line):
        """Returns the name of the section of a class that contains a line."""
        for text in reversed(self.lines[:line]):
            if match := re.match(r" +// ---- (.*) ----", text):
                return match[1]
            if re.match(r"(class|struct) ", text):
                return ""
        return ""

    def signature(self, first):
        """Returns a declaration without its body, without the indentation of a class."""
        depth, text = 0, ""
        for line in self.lines[first:]:
            code = line.split("  //")[0]
            for at, letter in enumerate(code):
                depth += (letter in "([") - (letter in ")]")
                if depth == 0 and letter == ";":
                    return dedent(text + code[: at + 1])
                if depth == 0 and letter == "{":
                    if ")" not in text + code[:at] and ";" in code[at:]:
                        continue  # a value in braces
                    return dedent((text + code[:at]).rstrip()) + ";"
                if depth < 0:
                    return dedent(text)
                before = (text + code[:at]).rstrip()
                if depth == 0 and letter == ":" and before.endswith((")", "noexcept")):
                    return dedent(before) + ";"
            text += code + "\n"
        return dedent(text)


def dedent(text):
    lines = text.rstrip().splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return "\n".join(line[indent:].rstrip() for line in lines)


def paragraphs(comment):
    """Yields the parts of a comment: ("text" | "code" | "\\param" ..., lines)."""
    part = None
    after_blank = False
    lines = [part for raw in comment for part in re.split(r"(?<=\S) (?=\\(?:throws|return)\b)", raw)]
    for raw in lines:
        line = raw.removeprefix(" ")
        if not line.strip():
            after_blank = True
            if part and part[0] == "code":
                part[1].append("")
            continue
        tag = re.match(r"\\(param|tparam|return|throws)\b\s*(.*)", line)
        indented = line.startswith("  ") and (after_blank or (part and part[0] == "code"))
        if tag:
            yield from [part] if part else []
            part = (tag[1], [tag[2]])
        elif indented and not (part and part[0] not in ("text", "code") and not after_blank):
            if not part or part[0] != "code":
                yield from [part] if part else []
                part = ("code", [])
            part[1].append(line)
        elif part and part[0] != "code" and not after_blank:
            if line.lstrip().startswith("- "):
                part[1].append("\n" + line.strip())
            else:
                part[1].append(line.strip())
        else:
            yield from [part] if part else []
            part = ("text", [line.strip()])
        after_blank = False
    if part:
        yield part


class Reference:
    """The pages of all headers, and the heading that explains each name."""

    def __init__(self, root, headers, xml):
        self.root = root
        self.headers = headers
        self.entities = entities_of(xml)
        self.names = {}
        self.places = []  # (name, class, header, anchor) of all pages
        for header in headers:
            text = Header(root / header)
            self.entities[header] = public_of(text, self.entities.get(header, []))
            for entity in self.entities[header]:
                if entity.kind in ("class", "enum") or text.comment(text.first_line(entity.line - 1)):
                    self.names.setdefault(entity.name, f"{header}.md#{anchor(entity.name)}")

        # Resolves `learn.fit()` in a text.
        learner = Header(root / "learner/learner.h")
        self.methods = {
            member.name: f"learner/learner.h.md#{anchor(f'Learner::{member.name}')}"
            for entity in self.entities["learner/learner.h"]
            for member in entity.members
            if learner.comment(learner.first_line(member.line - 1))
        }

    def link(self, page, text):
        """Returns a link from a page to the heading that explains a name, or None."""
        name = re.sub(r"^(tern::)|[(<].*$", "", text)
        if name.startswith("learn."):
            target = self.methods.get(name.removeprefix("learn."))
        else:
            # Short lowercase names are variables: `lr`, `x`.
            target = self.names.get(name) if len(name) > 3 or name[:1].isupper() else None
        if not target:
            return None
        file, _, place = target.partition("#")
        return f"{os.path.relpath(file, pathlib.Path(page).parent)}#{place}"

    def prose(self, page, text):
        """Returns the text of a comment as Markdown, with links to headers and classes."""
        parts = text.split("`")
        for i, part in enumerate(parts):
            if i % 2:
                target = self.link(page, part)
                parts[i] = f"[`{part}`]({target})" if target else f"`{part}`"
                continue
            part = re.sub(r"([\\*_<\[\]|])", r"\\\1", part)

            def header(match):
                file = match[1].replace("\\", "")
                if file not in self.headers or f"{file}.md" == page:
                    return f"`{file}`"
                return f"[`{file}`]({os.path.relpath(file, pathlib.Path(page).parent)}.md)"

            def class_name(match):
                target = self.link(page, match[0])
                return f"[{match[0]}]({target})" if target else match[0]

            links = re.split(r"((?:kernels|data|learner|callbacks|vision)/[\w/\\]+\.h\b|\btern\.h\b)", part)
            parts[i] = "".join(
                HEADER.sub(header, piece.replace("\\", "")) if HEADER.fullmatch(piece.replace("\\", ""))
                else re.sub(r"\b[A-Z]\w*[a-z]\w*[A-Z]\w*\b", class_name, piece)
                for piece in links
            )
        return "".join(parts)

    def markdown(self, page, comment):
        out, parameters = [], []
        for kind, lines in paragraphs(comment):
            if kind == "code":
                language = "cpp" if re.search(r"[;({]", "".join(lines)) else "text"
                out.append(f"```{language}\n{dedent(chr(10).join(lines))}\n```")
                continue
            text = " ".join(lines).replace(" \n", "\n")
            if kind == "text":
                out.append("\n".join(self.prose(page, line) for line in text.split("\n")))
            elif kind in ("param", "tparam"):
                name, _, rest = text.partition(" ")
                parameters.append((f"`{name}`", self.prose(page, rest.strip())))
            elif kind == "throws":
                name, _, rest = text.partition(" ")
                out.append(f"**Throws** `{name.rstrip(',')}`{',' if name.endswith(',') else ''} {self.prose(page, rest)}")
            else:
                out.append(f"**Returns** {self.prose(page, text.strip())}")
        if parameters:
            table = table_of(("parameter", ""), parameters)
            at = next((i for i, part in enumerate(out) if part.startswith("**")), len(out))
            out.insert(at, table)
        return "\n\n".join(out)

    def function(self, page, header, group, level, owner):
        """Returns consecutive overloads under one heading; an overload without a comment
        shares the comment of the one before."""
        parts = []  # (signatures, comment)
        for entity in group:
            first = header.first_line(entity.line - 1)
            doc = self.markdown(page, header.comment(first))
            if not parts or (doc and parts[-1][1]):
                parts.append([[], ""])
            parts[-1][0].append(header.signature(first))
            parts[-1][1] = parts[-1][1] or doc
        out = [heading(level, owner, group[0].name)]
        for signatures, doc in parts:
            out += ["```cpp\n" + "\n".join(signatures) + "\n```", doc]
        return out

    def fields(self, page, header, members):
        rows = []
        seen = set()
        for member in members:
            first = header.first_line(member.line - 1)
            if first in seen:
                continue
            seen.add(first)
            doc = self.markdown(page, header.comment(first)) or self.prose(page, header.remark(member.line - 1))
            code = " ".join(header.signature(first).rstrip(";").split())
            rows.append((code.replace("|", "\\|"), doc))
        if all("\n" not in doc for _, doc in rows):
            return [table_of(("field", ""), [(f"`{code}`", doc) for code, doc in rows])]
        return [part for code, doc in rows for part in (f"```cpp\n{code};\n```", doc)]

    def members(self, page, header, members, level, owner=""):
        """Returns the entities of a class or file, in order."""
        out, quiet, fields, section = [], [], [], ""

        def flush():
            if fields:
                out.extend(self.fields(page, header, fields))
            if quiet:
                out.append("```cpp\n" + "\n".join(quiet) + "\n```")
            fields.clear()
            quiet.clear()

        at = 0
        while at < len(members):
            entity = members[at]
            now = header.section(entity.line - 1) if owner else ""
            if now and now != section:
                flush()
                out.append(f"{'#' * level} {now}")
            section = now
            deeper = level + 1 if section else level
            if entity.kind == "class":
                flush()
                out.extend(self.class_(page, header, entity, deeper))
            elif entity.kind == "variable" and owner:
                if quiet:
                    flush()
                fields.append(entity)
            else:
                group = [entity]
                while at + 1 < len(members) and members[at + 1].name == entity.name:
                    at += 1
                    group.append(members[at])
                first = header.first_line(entity.line - 1)
                documented = any(header.comment(header.first_line(e.line - 1)) for e in group)
                if fields:
                    flush()
                if entity.kind == "enum":
                    flush()
                    out.extend(self.enum(page, header, entity, deeper, owner))
                elif documented:
                    flush()
                    out.extend(self.function(page, header, group, deeper, owner))
                elif not header.lines[first].lstrip().startswith("#"):
                    signatures = [header.signature(header.first_line(e.line - 1)) for e in group]
                    quiet.extend(code for code in signatures if not re.search(r"~|operator=|= delete", code))
            at += 1
        flush()
        return out

    def enum(self, page, header, entity, level, owner):
        first = header.first_line(entity.line - 1)
        last = first
        while "};" not in header.lines[last]:
            last += 1
        code = dedent("\n".join(header.lines[first : last + 1]))
        return [
            heading(level, owner, entity.name),
            f"```cpp\n{code}\n```",
            self.markdown(page, header.comment(first)),
        ]

    def class_(self, page, header, entity, level):
        first = header.first_line(entity.line - 1)
        head = header.signature(first).rstrip(";")
        if len(head.splitlines()) > 6:
            head = header.lines[first].rstrip(" {")
        owner, _, name = entity.name.rpartition("::")
        return [
            heading(level, owner, name),
            f"```cpp\n{head}\n```",
            self.markdown(page, header.comment(first)),
            *self.members(page, header, entity.members, level + 1, entity.name),
        ]

    def page(self, file):
        """Returns the page of a header; its name is the header's name with .md appended."""
        page = f"{file}.md"
        header = Header(self.root / file)
        parts = [
            f"# {pathlib.Path(file).name}",
            f"```cpp\n#include <tern/{file}>\n```",
            *self.members(page, header, self.entities.get(file, []), 2),
        ]
        if len(parts) == 2:
            code = "\n".join(line for line in header.lines if line != "#pragma once")
            parts.append(f"```cpp\n{code.strip()}\n```")
        text = "\n\n".join(part for part in parts if part) + "\n"
        self.places += self.places_of(file, header, set(re.findall(r"^#+ .* \{ #([\w-]+) \}$", text, re.MULTILINE)))
        return text

    def places_of(self, file, header, headings, entities=None, owner=""):
        """Yields the names of a page, except fields, constructors, operators and overrides,
        each with its heading or, if it has none, the heading of its class."""
        for entity in self.entities.get(file, []) if entities is None else entities:
            own_name = entity.name.rpartition("::")[2]
            place = anchor(entity.name if entity.kind == "class" else f"{owner}::{entity.name}")
            code = header.signature(header.first_line(entity.line - 1))
            is_said = re.fullmatch(r"\w+", own_name) and own_name != owner.rpartition("::")[2]
            is_field = entity.kind == "variable" and owner
            if is_said and not is_field and (place in headings or not re.search(r"\boverride\b|\bfinal;|= delete", code)):
                of = entity.name.rpartition("::")[0] if entity.kind == "class" else owner
                module = own_name.removesuffix("Impl")
                is_module = f"TORCH_MODULE({module});" in header.lines
                yield module if is_module else own_name, of, file, place if place in headings else anchor(owner)
            if entity.kind == "class":
                yield from self.places_of(file, header, headings, entity.members, entity.name)

    def name_index(self):
        """Returns the page with all names; call it after all other pages were created."""
        parts = ["# Names", "Classes, functions and methods of the reference, in alphabetical order."]
        letter, rows = "", []

        def flush():
            if rows:
                parts.append(table_of(("name", "of", "header"), rows))
            rows.clear()

        for name, owner, file, place in sorted(set(self.places), key=lambda one: (one[0].lower(), *one)):
            if name[0].upper() != letter:
                flush()
                letter = name[0].upper()
                parts.append(f"## {letter}")
            link = f"{file}.md#{place}" if place else f"{file}.md"
            rows.append((f"[`{name}`]({link})", f"`{owner}`" if owner else "", file.replace("_", "\\_")))
        flush()
        return "\n\n".join(parts) + "\n"

    def index(self):
        """Returns the page with a table of all headers."""
        parts = ["# Reference", "A page for each installed header. `tern.h` includes most of them. [All names](names.md) lists every name in alphabetical order."]
        for top, title in TOPS.items():
            rows = []
            for file in self.headers:
                if file.startswith(top + "/"):
                    names = list(dict.fromkeys(e.name for e in self.entities.get(file, ())))
                    shown = ", ".join(f"`{name}`" for name in names[:6]) + (", ..." if len(names) > 6 else "")
                    rows.append((f"[{file.removeprefix(top + '/')}]({file}.md)", shown))
            parts += [f"## {top}", title + ".", table_of(("header", "names"), rows)]
        return "\n\n".join(parts) + "\n"


def public_of(header, entities):
    """Returns the entities whose comment does not mark them as private."""
    kept = []
    for entity in entities:
        if PRIVATE not in " ".join(" ".join(header.comment(header.first_line(entity.line - 1))).split()):
            entity.members = public_of(header, entity.members)
            kept.append(entity)
    return kept


def table_of(header, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))


def heading(level, owner, name):
    return f"{'#' * min(level, 6)} {name} {{ #{anchor(f'{owner}::{name}')} }}"


def anchor(name):
    return re.sub(r"\W+", "-", name).strip("-")
