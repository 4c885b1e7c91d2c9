"""Every metric, and every option of a callback with its default, is in a table.

tables.py ROOT

A row of docs/callbacks.md that begins with the callback, or with the call that
adds it, has each field of its options as `field = default`; one without a
default in the header as `field`. docs/metrics.md has a row for each function
that makes a metric.
"""
import pathlib
import re
import sys

# Options whose name does not begin with that of the call that takes them.
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
    """The name in the table, and its fields as the table has them."""
    for file in sorted((root / "callbacks").rglob("*.h")):
        text = without_comments(file)
        for struct in re.finditer(r"struct (\w*Options) {(.*?)\n *};", text, re.DOTALL):
            name = struct[1]
            if name == "Options":
                name = re.findall(r"class (\w+)", text[: struct.start()])[-1]
            name = CALLS.get(name, name.removesuffix("Options"))
            body = re.sub(r"static .*?}\n *}|NamedFieldsOnly .*?;", "", struct[2], flags=re.DOTALL)
            fields = [
                found[1] if default in ("", "{}") else f"{found[1]} = {default}"
                for statement in body.split(";")
                for found in FIELD.finditer(" ".join(statement.split()))
                for default in [found[2] or found[3]]
            ]
            yield name, fields


def metrics(root):
    for folder in "learner", "vision":
        for file in sorted((root / folder).rglob("*.h")):
            yield from re.findall(r"^(?:Metric|std::vector<Metric>) (\w+)\(", without_comments(file), re.MULTILINE)


def row_of(begin, page):
    return next((line for line in page.splitlines() if line.startswith(f"| `{begin}")), "")


def main():
    root = pathlib.Path(sys.argv[1])
    missing = []
    page = (root / "docs/callbacks.md").read_text()
    page = page[page.index("## Options") :]
    count = 0
    for name, fields in options(root):
        row = row_of(f"{name}`", page)
        count += len(fields)
        missing += [f"docs/callbacks.md: the row of `{name}` lacks `{field}`" for field in fields if f"`{field}`" not in row]
    names = list(metrics(root))
    page = (root / "docs/metrics.md").read_text()
    missing += [f"docs/metrics.md: no row begins with `{name}`" for name in names if not row_of(f"{name}(", page)]
    print(f"{count} options and {len(names)} metrics", *missing, sep="\n")
    return 1 if missing or count < 50 or len(names) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
