"""What ./dev gpu writes into docs/gpu.md, tried without a GPU."""
import pathlib
import shutil
import tempfile
import unittest
import zlib

import gpu
import gpu_converge
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
            waits = page.index("## What still waits")
            self.assertLess(section, waits)
            self.assertNotIn(f"`{one.name}`", page[waits:])
        self.assertIn("Every comparison is measured.", page)

    def test_a_mean_within_fp32s_spread_is_told_from_one_below(self):
        def reports(*accuracies):
            return [{"accuracy": a, "seconds": 1.0} for a in accuracies]

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


if __name__ == "__main__":
    unittest.main()
