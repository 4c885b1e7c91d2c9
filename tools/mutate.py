"""Plants the faults of mutants.txt one at a time, and checks that the tests find each.

./dev mutate [WORD...] [--whole] [--folder CLONE] [--commit REF]
./dev mutate --check

Works in a clone of the last commit (build-mutate). Plants a fault, builds and runs the
programs of its tests, and restores the line. A fault is killed if one of these tests,
all of which pass without the fault, fails or hangs. With WORDs, plants only the faults
whose file or description contains one of them. Results of an earlier call for the same
commit are reused. --whole runs all tests on the faults that survive. --check only
checks that the sources still contain the lines. Exits with 1 if fewer than 29 of 30
faults are killed.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools/mutants.txt"
TEST_SECONDS = 120  # most take a hundredth of it


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    fault: str
    tests: tuple[str, ...]
    reason: str  # why it survives, if it is known to

    def has(self, words: list[str]) -> bool:
        return not words or any(w in f"{self.file}: {self.fault}" for w in words)


def read_table() -> list[Mutant]:
    text = "".join(l for l in open(TABLE, encoding="utf-8") if l[0] != "#")
    mutants = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        reason = ""
        if lines[-1].startswith("survives: "):
            reason = lines.pop().removeprefix("survives: ")
        if len(lines) != 5 or lines[1][:2] != "- " or lines[2][:1] != "+":
            sys.exit(f"{TABLE}: expected a file, - line, + line, the fault and its "
                     f"tests, each in a line; there is:\n{block}")
        file, old, new, fault, tests = lines
        mutants.append(Mutant(file, old[2:], new[2:], fault,
                              tuple(tests.split()), reason))
    return mutants


def planted(source: str, mutant: Mutant) -> str | None:
    """Returns the source with the fault, or None unless it has the line exactly once."""
    lines = source.split("\n")
    at = [i for i, line in enumerate(lines) if line.strip() == mutant.old]
    if len(at) != 1:
        return None
    indent = lines[at[0]][:-len(lines[at[0]].lstrip())]
    lines[at[0]] = indent + mutant.new
    return "\n".join(lines)


def programs_in(build: pathlib.Path) -> dict[str, str]:
    """Returns the program of each test of a build, even if it is not built yet."""
    programs = {}
    for listed in build.rglob("CTestTestfile.cmake"):
        programs |= dict(re.findall(r'add_test\(\[=\[(.+?)\]=\] "(.+?)"',
                                    listed.read_text()))
    return programs


def check(mutants: list[Mutant]) -> int:
    faults = [m.fault for m in mutants]
    problems = [f"the fault '{f}' is listed twice" for f in set(faults)
                if faults.count(f) > 1]
    for m in mutants:
        path = ROOT / m.file
        if not path.is_file():
            problems.append(f"{m.file}: there is no such file")
        elif planted(path.read_text(), m) is None:
            problems.append(f"{m.file}: expected this line once, to plant '{m.fault}':"
                            f"\n    {m.old}")
    programs = programs_in(ROOT / "build")
    problems += [f"{m.file}: there is no test {t}, to find '{m.fault}'" for m in mutants
                 for t in m.tests if programs and t not in programs]
    for problem in problems:
        print(problem)
    if problems:
        print("tools/mutants.txt contains lines that have changed in the sources. Update "
              "these lines, or replace their faults with similar ones; ctest -N lists "
              "the names of tests.")
    return 1 if problems else 0


class Clone:
    """A clone of a commit, its build, and the known results of its faults."""

    def __init__(self, folder: pathlib.Path, commit: str):
        self.folder, self.build = folder, folder / "build"
        self.known_file = folder / ".git/mutants.json"
        if not (folder / ".git").exists():
            self.run("git", "clone", "--quiet", "--no-checkout", ROOT, folder, cwd=ROOT)
        self.run("git", "fetch", "--quiet", ROOT, commit)
        self.run("git", "checkout", "--quiet", "--force", "--detach", commit)
        if not programs_in(self.build):
            self.builds(["tern_fmt"])  # small; CMake lists the tests before it
        known = json.loads(self.known_file.read_text()) if self.known_file.exists() else {}
        self.known = known if known.get("commit") == commit else {"commit": commit}

    def run(self, *command, cwd=None) -> None:
        subprocess.run(command, cwd=cwd or self.folder, check=True)

    def remember(self, key: str, value: str) -> None:
        self.known[key] = value
        self.known_file.write_text(json.dumps(self.known, indent=1))

    def builds(self, targets: list[str]) -> bool:
        made = subprocess.run(["./dev", "build", *targets], cwd=self.folder,
                              capture_output=True, text=True)
        if made.returncode:
            print(made.stdout[-3000:], made.stderr[-3000:], sep="")
        return made.returncode == 0

    def ctest(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["ctest", "--test-dir", "build", "--timeout", str(TEST_SECONDS), *arguments],
            cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, "GTEST_FAIL_FAST": "1"})

    def targets(self, tests: tuple[str, ...]) -> list[str]:
        """Returns the programs of these tests, as targets of the build."""
        programs = programs_in(self.build)
        unknown = [t for t in tests if t not in programs]
        if unknown:
            sys.exit(f"{TABLE}: there is no test {unknown[0]}; ctest -N lists them.")
        return sorted({pathlib.Path(programs[t]).name for t in tests})

    def first_failure(self, tests: tuple[str, ...]) -> str:
        """Returns the name of the first test that fails, or ""."""
        for test in tests:
            if self.ctest("-R", f"^{test}$").returncode:
                return test
        return ""

    def expect_sound(self, tests: tuple[str, ...]) -> None:
        new = tuple(t for t in tests if f"sound {t}" not in self.known)
        if not new:
            return
        if not self.builds(self.targets(new)):
            sys.exit("The commit does not build.")
        failure = self.first_failure(new)
        if failure:
            sys.exit(f"{failure} fails before a fault is planted.")
        for test in new:
            self.remember(f"sound {test}", "yes")

    def outcome(self, m: Mutant, whole: bool) -> str:
        key = " | ".join((m.file, m.old, m.new, *m.tests))
        known = self.known.get(key, "")
        if known and not (whole and known == "survived"):
            return known
        self.expect_sound(m.tests)
        path = self.folder / m.file
        source = path.read_text() if path.is_file() else ""
        changed = planted(source, m)
        if changed is None:
            sys.exit(f"{m.file} does not contain the line exactly once at this commit. Commit "
                     "the line first; ./dev mutate --check prints details.")
        path.write_text(changed)
        try:
            targets = [] if whole else self.targets(m.tests)
            if not self.builds(targets):
                result = "did not compile"
            elif whole:
                result = "killed by the whole suite" if self.ctest().returncode else \
                    "survived the whole suite"
            else:
                failure = self.first_failure(m.tests)
                result = f"killed by {failure}" if failure else "survived"
        finally:
            path.write_text(source)
        self.remember(key, result)
        return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build-mutate")
    parser.add_argument("--commit", default="HEAD")
    options = parser.parse_args()
    mutants = [m for m in read_table() if m.has(options.words)]
    if options.check:
        return check(mutants)
    commit = subprocess.run(["git", "rev-parse", options.commit], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.strip()
    clone = Clone(options.folder.absolute(), commit)
    killed = 0
    for m in mutants:
        begin = time.monotonic()
        result = clone.outcome(m, whole=False)
        if options.whole and result == "survived":
            result = clone.outcome(m, whole=True)
        killed += result.startswith("killed")
        why = f" ({m.reason})" if m.reason and not result.startswith("killed") else ""
        print(f"{result:<34} {m.file}: {m.fault}{why}, "
              f"{time.monotonic() - begin:.0f} s", flush=True)
    print(f"{killed} of {len(mutants)} are killed")
    return 0 if killed * 30 >= 29 * len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
