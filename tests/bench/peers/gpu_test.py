"""What ./dev gpu writes into docs/gpu.md, tried without a GPU."""
import pathlib
import shutil
import tempfile
import unittest

import gpu
from run import write


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
        for one in gpu.COMPARISONS:
            is_measured = f"<!-- peers {one.name}:" in page
            self.assertNotEqual(is_measured, f"`{one.name}`" in table, one.name)

    def test_a_measured_comparison_waits_no_more(self):
        for one in gpu.COMPARISONS:
            write(f"peers {one.name}", ["### Measured"], self.page, gpu.COMMAND)
            gpu.list_waiting(self.page)
            page = self.page.read_text()
            section = page.index(f"<!-- peers {one.name}:")
            waits = page.index("## What still waits")
            self.assertLess(section, waits)
            self.assertNotIn(f"`{one.name}`", page[waits:])
        self.assertIn("Every comparison is measured.", page)


if __name__ == "__main__":
    unittest.main()
