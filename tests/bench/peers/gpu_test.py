"""Tests how ./dev gpu runs its comparisons, with small programs in place of Tern's and
PyTorch's, and what it writes to docs/gpu.md; without a GPU and without torch.
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zlib
from unittest import mock

import gpu
import gpu_converge
import run
from programs import Failed
from run import write

ALL = gpu.COMPARISONS + gpu_converge.TRAININGS


class GpuPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "gpu.md"
        shutil.copy(gpu.ROOT / "docs" / "gpu.md", self.page)

    def test_is_up_to_date(self):
        before = self.page.read_text()
        gpu.list_waiting(self.page)
        self.assertEqual(self.page.read_text(), before)

    def test_each_comparison_is_measured_or_waits(self):
        page = self.page.read_text()
        table = page[page.index("<!-- waiting:"):]
        for one in ALL:
            is_measured = f"<!-- peers {one.name}:" in page
            self.assertNotEqual(is_measured, f"`{one.name}`" in table, one.name)

    def test_a_measured_comparison_waits_no_more(self):
        for one in ALL:
            write(f"peers {one.name}", ["### Measured"], self.page, gpu.COMMAND)
            gpu.list_waiting(self.page)
            page = self.page.read_text()
            section = page.index(f"<!-- peers {one.name}:")
            waits = page.index("## Not measured yet")
            self.assertLess(section, waits)
            self.assertNotIn(f"`{one.name}`", page[waits:])
        self.assertIn("Every comparison is measured.", page)

    def test_what_other_machines_gave_stays_beside_new_numbers(self):
        def lines(machine, time):
            return ["### A step", "", f"{machine}; torch 2.11.0", "",
                    "| what |", "|---|", f"| {time} ms |"]

        amd, amx, intel = (
            f"{name}, 2 cores, no GPU"
            for name in ("AMD EPYC with AVX-512", "Intel(R) Xeon(R) with AMX",
                         "Intel(R) Core with AVX2")
        )
        h200 = "Intel(R) Xeon(R) with AMX, 16 cores, NVIDIA H200"
        for machine, time in [(amd, 1), (amx, 2), (intel, 3), (h200, 4),
                              ("AMD EPYC 9V74 with AVX512-BF16, 4 cores, no GPU", 5),
                              (amx, 6)]:
            write("peers a_step", lines(machine, time), self.page, "a command")
        text = self.page.read_text()
        self.assertEqual(text.count("<!-- peers a_step:"), 1)
        self.assertEqual(text.count("### A step"), 1)
        section = text[text.index("### A step"):text.index("<!-- end of peers a_step")]
        self.assertEqual(
            re.findall(r"\| (\d) ms", section), ["6", "5", "4", "3"])
        blocks = section.strip().split("\n\n")
        self.assertEqual(len(blocks), 1 + 2 * 4)
        self.assertIn("9V74", blocks[3])

    def test_a_mean_within_fp32s_spread_is_told_from_one_below(self):
        def reports(*accuracies):
            return [{"accuracy": a} for a in accuracies]

        lines = gpu_converge.convergence_table(
            {
                "fp32": reports(0.90, 0.92, 0.94),
                "amp": reports(0.88, 0.89, 0.90),
                "bf16": reports(0.86, 0.88, 0.89),
            }
        )
        self.assertIn("0.8900 (0.8800 to 0.9000) | yes", lines[3])
        self.assertIn("0.8767 (0.8600 to 0.8900) | NO", lines[4])

    def test_a_picture_is_written_as_png(self):
        file = self.page.parent / "a.png"
        gpu_converge.write_png(file, 3, bytes([0, 128, 255, 1, 2, 3]))
        data = file.read_bytes()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        begin = data.index(b"IDAT") + 4
        rows = zlib.decompress(data[begin : data.index(b"IEND") - 8])
        self.assertEqual(rows, bytes([0, 0, 128, 255, 0, 1, 2, 3]))


# Replaces both programs. It logs its actions in the file `diary`; its job determines its behavior.
PROGRAM = """#!{python}
import json, os, pathlib, sys, time

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path({folder!r})
job, side = options["--job"], pathlib.Path(sys.argv[0]).name


def note(what):
    with open(folder / "diary", "a") as file:
        file.write(json.dumps([job, side, what, os.getpid()]) + "\\n")


if job == "breaks" and side == "gpu_torch.py":
    sys.exit("there are no weights for this")
if job == "hangs":
    os.fork()  # a worker
note("starts")
time.sleep(0.1 * (side == "gpu_torch.py"))
print("a library says something")
note("is ready")
print("ready", flush=True)
for round_, _ in enumerate(sys.stdin):
    note("begins")
    if job == "hangs" or job == "hangs_later" and round_ == 1:
        time.sleep(60)
    if job == "reads_the_page":
        page = pathlib.Path(os.environ["OUT"]) / "gpu.md"
        note(page.read_text().count("written by ./dev gpu -->"))
    if job == "converge":
        name = options["--precision"] + options["--seed"]
        (folder / name).touch()
        end = time.monotonic() + 20
        while len(list(folder.glob("*[123]"))) < 15 and time.monotonic() < end:
            time.sleep(0.01)
        if name == "bf162":
            sys.exit("the loss is NaN")
        result = dict(accuracy=len(list(folder.glob("*[123]"))))
    else:
        result = dict(step_seconds=1 + (side == "gpu_torch.py"))
    note("ends")
    print(json.dumps(result), flush=True)
"""


def is_running(pid):
    """False for a dead process whose parent has not read its exit code."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Rows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        text = PROGRAM.format(python=sys.executable, folder=folder.name)
        self.peer = self.folder / "gpu_torch.py"
        tern = self.folder / gpu.TERN_PROGRAM
        tern.parent.mkdir(parents=True)
        for program in self.peer, tern:
            program.write_text(text)
            program.chmod(0o755)
        self.out = self.folder / "out"
        self.page = self.out / "gpu.md"
        self.enterContext(
            mock.patch.dict(
                os.environ, OUT=str(self.out), TERN_COMMIT="abc1234"
            )
        )
        rows = ["breaks", "hangs", "hangs_later", "reads_the_page", "works"]
        comparisons = [self.comparison(name) for name in rows]
        self.enterContext(mock.patch.object(gpu, "COMPARISONS", comparisons))

    def comparison(self, name):
        """`json` is used as a peer that is installed."""
        rows = gpu.steps()[:1]
        one = gpu.comparison(name, f"This one {name}", rows, name, peer="json")
        one.peer_program = str(self.peer)
        return one

    def run_gpu(self, *words):
        """Returns the exit code and the output."""
        words = [*words, "--device", "cpu", "--build", str(self.folder)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = gpu.main(words)
        return code, printed.getvalue()

    def diary(self):
        lines = (self.folder / "diary").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def assert_all_have_ended(self):
        pids = {pid for *_, pid in self.diary()}
        end = time.monotonic() + 10
        while any(map(is_running, pids)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual([pid for pid in pids if is_running(pid)], [])

    def test_one_process_a_side_for_all_rounds_which_take_turns(self):
        code, printed = self.run_gpu("works", "--rounds", "3")
        self.assertEqual(code, 0, printed)
        diary = self.diary()
        self.assertEqual(len({pid for *_, pid in diary}), 2)
        # Both are ready before either measures.
        self.assertEqual(
            {what for _, _, what, _ in diary[:4]}, {"starts", "is ready"}
        )
        round_ = [
            (side, what)
            for side in ("gpu_timed", "gpu_torch.py")
            for what in ("begins", "ends")
        ]
        turns = [(side, what) for _, side, what, _ in diary[4:]]
        self.assertEqual(turns, 3 * round_)
        self.assertIn("Median of 3 rounds", self.page.read_text())
        self.assert_all_have_ended()

    def test_comparisons_run_in_the_order_of_their_names(self):
        self.run_gpu("works", "reads_*", "work*", "--rounds", "1")
        jobs = list(dict.fromkeys(job for job, *_ in self.diary()))
        self.assertEqual(jobs, ["works", "reads_the_page"])

    def test_an_unknown_name_ends_all_before_any_runs(self):
        with self.assertRaisesRegex(SystemExit, "no comparison workz"):
            self.run_gpu("works", "workz")
        self.assertFalse((self.folder / "diary").exists())

    def test_one_that_fails_says_why_and_does_not_end_the_others(self):
        code, printed = self.run_gpu("breaks", "works", "--rounds", "1")
        self.assertEqual(code, 1)
        self.assertIn("breaks FAILED", printed)
        self.assertIn("ended with 1:\nthere are no weights for this", printed)
        self.assertTrue(printed.endswith("Failed: breaks\n"), printed)
        page = self.page.read_text()
        self.assertIn("<!-- peers works:", page)
        self.assertNotIn("<!-- peers breaks:", page)
        self.assert_all_have_ended()

    def test_a_program_that_is_not_there_fails_only_its_comparison(self):
        one = self.comparison("missing")
        one.tern_program = "no_such_program"
        gpu.COMPARISONS.append(one)
        code, printed = self.run_gpu("missing", "works", "--rounds", "1")
        self.assertEqual(code, 1)
        says = "missing FAILED: .*no_such_program does not start"
        self.assertRegex(printed, says)
        self.assertIn("<!-- peers works:", self.page.read_text())

    def test_the_limit_ends_both_programs_with_their_workers(self):
        begin = time.monotonic()
        words = ["hangs", "works", "--rounds", "1", "--limit", "1"]
        code, printed = self.run_gpu(*words)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(code, 1)
        self.assertIn("hangs FAILED: TIME OUT after 1 s", printed)
        self.assertTrue(printed.endswith("Failed: hangs\n"), printed)
        self.assertIn("<!-- peers works:", self.page.read_text())
        self.assert_all_have_ended()

    def test_whole_rounds_count_where_a_later_one_has_no_time(self):
        words = ["hangs_later", "--rounds", "3", "--limit", "2"]
        code, printed = self.run_gpu(*words)
        self.assertEqual(code, 1)
        self.assertIn("hangs_later FAILED: TIME OUT", printed)
        page = self.page.read_text()
        self.assertIn("Median of 1 rounds", page)
        self.assertIn("| the step | 1000.000 ms (1000.000 to 1000.000) |", page)

    def test_after_the_deadline_the_rest_is_named_and_skipped(self):
        words = ["hangs", "works", "--rounds", "1", "--deadline", "2"]
        with mock.patch.object(gpu, "LEAST_SECONDS", 0.5):
            code, printed = self.run_gpu(*words)
        self.assertEqual(code, 1)
        self.assertIn("hangs FAILED: TIME OUT after 2 s", printed)
        self.assertIn("No time was left for: works\n", printed)
        self.assertNotIn("works", {job for job, *_ in self.diary()})

    def test_the_page_is_a_copy_in_OUT_and_written_after_each(self):
        docs = gpu.ROOT / "docs" / "gpu.md"
        before = docs.read_text()
        self.run_gpu("works", "reads_the_page", "--rounds", "1")
        self.assertEqual(docs.read_text(), before)
        page = self.page.read_text()
        self.assertEqual(page[:1000], before[:1000])
        # The second comparison found the section of the first on the page.
        begun = [what for *_, what, _ in self.diary() if isinstance(what, int)]
        sections = before.count("written by ./dev gpu -->")
        self.assertEqual(begun, 2 * [sections + 1])
        self.assertEqual(list(self.out.iterdir()), [self.page])

    def test_sigterm_ends_the_programs_and_keeps_what_was_measured(self):
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import gpu, programs\n"
            "programs.end_on_sigterm()\n"
            "rows = gpu.steps()[:1]\n"
            "one = gpu.comparison('slow', 'Slow', rows, 'hangs_later')\n"
            "one.peer, one.peer_program = 'json', sys.argv[2]\n"
            "gpu.COMPARISONS = [one]\n"
            "gpu.main(['slow', '--device', 'cpu', '--build', sys.argv[3]])\n"
        )
        here = str(pathlib.Path(gpu.__file__).parent)
        words = [here, str(self.peer), str(self.folder)]
        runner = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + 30
        begun = 0
        while begun < 3 and time.monotonic() < end:
            time.sleep(0.05)
            if (self.folder / "diary").exists():
                begun = [what for *_, what, _ in self.diary()].count("begins")
        runner.send_signal(signal.SIGTERM)
        _, errors = runner.communicate(timeout=30)
        self.assertIn("ended by SIGTERM", errors)
        self.assertIn("Median of 1 rounds", self.page.read_text())
        self.assert_all_have_ended()

    def test_the_commit_is_TERN_COMMITs_or_gits_or_unknown(self):
        self.run_gpu("works", "--rounds", "1")
        page = self.page.read_text()
        self.assertIn("Tern at abc1234, unknown compiler.", page)
        del os.environ["TERN_COMMIT"]
        with mock.patch.object(run, "output", return_value=""):
            self.assertEqual(run.commit(), "unknown commit")
        with mock.patch.object(run, "output", side_effect=["def5678", " M a"]):
            self.assertEqual(run.commit(), "def5678 with local changes")

    def test_the_compiler_of_a_build_from_another_machine_is_named(self):
        cache = self.folder / "CMakeCache.txt"
        cache.write_text("CMAKE_CXX_COMPILER:STRING=/no/such/clang++-16\n")
        self.assertEqual(run.compiler(self.folder), "/no/such/clang++-16")

    def train(self, seconds):
        training = gpu_converge.Convergence(
            "converge", "Digits", 3, lambda path: path.touch()
        )
        arguments = argparse.Namespace(
            build=self.folder, device="cpu", page=self.page
        )
        training.run(arguments, gpu.COMMAND, seconds)

    def test_trainings_run_side_by_side_and_one_that_fails_ends_no_other(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            says = "bf16_2: .*\n.*the loss is NaN"
            with self.assertRaisesRegex(Failed, says):
                self.train(seconds=60)
        # Each run saw all 15 start before it reported.
        lines = printed.getvalue().splitlines()
        self.assertEqual(sum("accuracy 15" in line for line in lines), 14, lines)
        page = self.page.read_text()
        self.assertIn("| bf16 | 15.0000 (15.0000 to 15.0000) | yes |", page)
        self.assert_all_have_ended()

    def test_trainings_have_a_limit(self):
        (self.folder / gpu.TERN_PROGRAM).write_text(
            f"#!{sys.executable}\nimport time\ntime.sleep(60)\n"
        )
        with contextlib.redirect_stdout(io.StringIO()):
            with self.assertRaisesRegex(Failed, "amp_3: TIME OUT after 1 s"):
                self.train(seconds=1)
        self.assertFalse(self.page.exists())


if __name__ == "__main__":
    unittest.main()
