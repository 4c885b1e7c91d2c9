"""Prints the summary of ./dev test: the ten slowest tests, and how many tests were
skipped for which reason, including tests within a program.

    python3 tools/test_summary.py RESULTS.xml    the output of ctest --output-junit
"""
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest prints the reason before the verdict of the test.
SKIPPED_WITHIN = re.compile(
    r"^\S+:\d+: Skipped\n(?P<reason>.*?)\n\n?\[  SKIPPED \] \S+ \(\d+ ms\)$",
    re.MULTILINE | re.DOTALL,
)
# Scripts print the reason in one line.
SKIPPED_SCRIPT = re.compile(r"^SKIPPED: (?P<reason>.*)$", re.MULTILINE)


def skipped(output):
    """Yields a reason for each skipped test in the output of a program."""
    for pattern in SKIPPED_WITHIN, SKIPPED_SCRIPT:
        for match in pattern.finditer(output):
            yield " ".join(match["reason"].split())


def main():
    root = ElementTree.parse(sys.argv[1]).getroot()
    tests, reasons = [], collections.Counter()
    for case in root.iter("testcase"):
        tests.append((float(case.get("time", 0)), case.get("name")))
        found = list(skipped(case.findtext("system-out") or ""))
        if not found and case.find("skipped") is not None:
            found = ["no reason was printed"]
        reasons.update(found)
    print("Slowest tests:")
    for seconds, name in sorted(tests, reverse=True)[:10]:
        print(f"{seconds:7.1f} s  {name}")
    if reasons:
        print(f"Skipped: {reasons.total()}")
        for reason, count in reasons.most_common():
            print(f"{count:7}    {reason}")


if __name__ == "__main__":
    main()
