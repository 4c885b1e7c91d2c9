"""Checks that the tables in the docs are complete: every metric, loss, optimizer and transform, and every
option of a callback with its default. A GAN takes at most 60 lines.

tables.py ROOT

A header of a callback with options declares `option_values`, with which reports show them.
A row of docs/callbacks.md that begins with the callback, or with the call that adds it, has
each field of its options as `field = default`, or as `field` if the header has no default,
and no other. docs/metrics.md has a row for each function that creates a metric. Losses,
optimizers and transforms are named in a row of their section, and every transform that a row
names exists.
"""
import pathlib
import re
import sys

# Options whose name does not begin with the call that takes them.
CALLS = {
    "AmpOptions": "to_amp",
    "DistributedOptions": "to_distributed",
    "FineTuneOptions": "fine_tune",
    "FlatCosOptions": "flat_cos",
    "LrFindOptions": "lr_find",
    "MaxBatchSizeOptions": "max_batch_size",
    "MixedPrecisionOptions": "to_fp16",
    "OneCycleOptions": "fit_one_cycle",
    "PrecisionAuditOptions": "audit_precision",
    "SgdrOptions": "sgdr",
    "TrainingPlanOptions": "plan",
}
FIELD = re.compile(r"(\w+) ?(?:= ?([^,{}]*(?:{[^}]*})?)|({[^}]*}))(?:, |$)")


def without_comments(file):
    return re.sub(r"//.*", "", file.read_text())


def options(root):
    """Yields the name in the table and its fields as the table shows them."""
    for file in sorted((root / "callbacks").rglob("*.h")):
        text = without_comments(file)
        for struct in re.finditer(r"struct (\w*Options) {(.*?)\n *};", text, re.DOTALL):
            name = struct[1]
            if name == "Options":
                name = re.findall(r"class (\w+)", text[: struct.start()])[-1]
            name = CALLS.get(name, name.removesuffix("Options"))
            body = re.sub(r"static [^{]*{.*?\n *}|using .*?;|NamedFieldsOnly .*?;", "", struct[2], flags=re.DOTALL)
            fields = []
            for statement in (" ".join(s.split()) for s in body.split(";")):
                found = FIELD.findall(statement) or re.findall(r"(\w+)()()$", statement)
                defaults = [(field, with_sign or in_braces) for field, with_sign, in_braces in found]
                fields += [field if default in ("", "{}") else f"{field} = {default}" for field, default in defaults]
            yield name, fields


def declared(root, pattern):
    """Yields matches of the pattern in the headers of these two folders."""
    for folder in "learner", "vision":
        for file in sorted((root / folder).rglob("*.h")):
            yield from re.findall(pattern, without_comments(file), re.MULTILINE)


# Sections with a table, and the pattern of the names that the table must contain.
LISTS = {
    ("docs/metrics.md", "Losses"): r"^Loss (\w+)\(",
    ("docs/optimizers.md", "Optimizers"): r"^class (\w+) final[\s:]+public (?:\w+Base<|FusedOptimizerOf<)|^OptimizerFactory (\w+)\(\);",
    ("docs/images.md", "Transforms"): r"^(?:TransformPtr|TransformLists)\s(\w+)\(",
}
# `drawn` is for custom transforms, and the default optimizer is not a choice.
NOT_LISTED = {"drawn", "default_optimizer"}


def missing_of_lists(root):
    for (file, title), pattern in LISTS.items():
        page = "\n" + (root / file).read_text()
        section = page[page.index(f"# {title}\n") :].split("\n## ")[0]
        rows = set(re.findall(r"\w+", " ".join(re.findall(r"^\|.*", section, re.MULTILINE))))
        names = {name for found in declared(root, pattern) for name in ([found] if isinstance(found, str) else found) if name}
        if len(names) < 3:
            yield f"{file}: only {sorted(names)} are declared for the section {title}"
        yield from (f"{file}: no row of {title} has `{name}`" for name in sorted(names - rows - NOT_LISTED))
        if title == "Transforms":
            shown = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| \w+ \| (`[^;\n]*)", section, re.MULTILINE)))
            yield from (f"{file}: there is no transform `{name}`" for name in shown if name not in names)


def without_option_values(root):
    """Yields headers whose callbacks would show no options in a report, except function callbacks."""
    for file in sorted((root / "callbacks").rglob("*.h")):
        text = without_comments(file)
        if re.search(r"(struct|using) Options\b", text) and "option_values" not in text and file.name != "lambda_callback.h":
            yield f"{file.relative_to(root)}: a class with Options has no `option_values`"


def row_of(begin, page):
    return next((line for line in page.splitlines() if line.startswith(f"| `{begin}")), "")


def main():
    root = pathlib.Path(sys.argv[1])
    missing = []
    page_of_callbacks = page = (root / "docs/callbacks.md").read_text()
    page = page[page.index("## Options") :].split("\n## ")[0]
    count = 0
    known = {}
    for name, fields in options(root):
        known.setdefault(name, set()).update(fields)
        row = row_of(f"{name}`", page)
        count += len(fields)
        missing += [f"docs/callbacks.md: the row of `{name}` lacks `{field}`" for field in fields if f"`{field}`" not in row]
    for row in re.findall(r"^\| `(\w+)` \| (`.*) \|$", page, re.MULTILINE):
        fields = re.findall(r"`([^`]*)`", row[1])
        missing += [f"docs/callbacks.md: the options of `{row[0]}` have no `{field}`" for field in fields if field not in known.get(row[0], ())]
    names = list(declared(root, r"^(?:Metric|std::vector<Metric>) (\w+)\("))
    missing += missing_of_lists(root)
    missing += without_option_values(root)
    gan = page_of_callbacks.split("## Several optimizers")[1].split("```")[1].strip().splitlines()
    missing += [f"docs/callbacks.md: the GAN has {len(gan)} lines; expected at most 60"] if len(gan) > 60 else []
    page = (root / "docs/metrics.md").read_text()
    missing += [f"docs/metrics.md: no row begins with `{name}`" for name in names if not row_of(f"{name}(", page)]
    print(f"{count} options and {len(names)} metrics", *missing, sep="\n")
    return 1 if missing or count < 50 or len(names) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
