"""How tools/notebook.py splits, runs and writes programs."""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/notebook.py"
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests"))
import notebook
import notebooks as committed

# The smallest PNG: one black pixel.
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")

PROGRAM = """\
// %% [markdown]
// # Two cells

// %%
#include <cstdio>
#include <fstream>
#include <iostream>

int helper() { return __LINE__; }

// %%
int main(int argc, char** argv) {
  std::printf("begins, %s\\n", argc > 1 ? argv[1] : "");

  // %% [markdown]
  // ## The first

  // %%
  std::cout << "line " << helper();  // no line break, no flush
  std::cerr << "a warning\\n";
  for (int i = 0; i < 3; ++i) {
    // %%
    std::printf("round %d\\n", i);
  }

  // %%
  std::ofstream("plot.svg") << "<svg/>";
  std::printf("%d\\n", __LINE__);
  return argc > 2 ? 3 : 0;
}
"""


def cells(text):
    return [(cell.kind, cell.source) for cell in notebook.cells_of(text)]


class Cells(unittest.TestCase):
    def test_a_file_without_marks_is_its_first_comment_and_one_cell(self):
        self.assertEqual(cells("// Adds.\n// Twice.\nint main() {}\n"), [("markdown", "Adds.\nTwice."), ("code", "int main() {}")])
        self.assertEqual(cells("int main() {}\n"), [("code", "int main() {}")])
        self.assertEqual(cells(""), [])

    def test_marks_between_definitions_and_statements(self):
        self.assertEqual(
            cells("// %% [markdown]\n// # Title\n\n// %%\nint f() {\n  return 1;\n}\n\n// %%\nint main() {\n  f();\n\n"
                  "  // %%\n  if (f()) {\n    f();\n  }\n  return 0;\n}\n"),
            [("markdown", "# Title"), ("code", "int f() {\n  return 1;\n}"), ("code", "int main() {\n  f();"),
             ("code", "if (f()) {\n  f();\n}\nreturn 0;\n}")])

    def test_the_end_of_main_keeps_its_indentation(self):
        self.assertEqual(cells("int main() try {\n  // %%\n  f();\n} catch (...) {\n  return 1;\n}\n")[-1],
                         ("code", "f();\n} catch (...) {\n  return 1;\n}"))

    def test_text_keeps_lists_and_code(self):
        text = "// %% [markdown]\n// Do:\n//\n// - one\n//   more\n// - two\n//\n// ```sh\n// ls \\\n//   -l\n// ```\n//no space\n"
        self.assertEqual(cells(text), [("markdown", "Do:\n\n- one\n  more\n- two\n\n```sh\nls \\\n  -l\n```\nno space")])

    def test_marks_in_strings_and_comments_are_none(self):
        for text in ('const char* s = R"(\n// %%\n)";', 'const char* s = R"x(\n)"\n// %%\n)x";', "/*\n// %%\n*/", 'f("// %%");',
                     "f();  // %%", "// see // %% there", "f('\"');\n// %%percent", '#define A "\\"// %%"', "// %%%"):
            self.assertEqual(len([cell for cell in cells(text + "\nint x;\n") if cell[0] == "code"]), 1, text)
        self.assertEqual(len(cells("int a = 10'000;\n// %%\nint b = 1'0;\n")), 2)
        self.assertEqual(len(cells("char c = '\\'';\n// %%\nint b;\n")), 2)

    def test_windows_line_ends(self):
        text = "// %% [markdown]\n// # A\n\n// %%\nint main() {\n  // %%\n  f();\n}\n"
        self.assertEqual(cells(text.replace("\n", "\r\n")), cells(text))
        self.assertEqual(notebook.copy_of(text.replace("\n", "\r\n"), "a.cpp"), notebook.copy_of(text, "a.cpp"))

    def test_what_cannot_be_a_cell_is_refused_by_line(self):
        for text, message in (("// %% [markdown]\n// A\nint x;\n", "line 3: 'int x;' in a cell of text"),
                              ("int y;\n// %% [raw]\n", "line 2: '// %% \\[raw]'; expected")):
            with self.assertRaisesRegex(notebook.SourceError, message):
                cells(text)

    def test_empty_cells_are_left_out(self):
        self.assertEqual(cells("// %%\n\n// %%\nint x;\n// %% [markdown]\n\n"), [("code", "int x;")])


class Copy(unittest.TestCase):
    def test_lines_stay_and_each_indented_mark_is_a_call(self):
        copy = notebook.copy_of(PROGRAM, "two.cpp").split('#line 1 "two.cpp"\n')[1].splitlines()
        changed = [(old, new) for old, new in zip(PROGRAM.splitlines(), copy, strict=True) if old != new]
        self.assertEqual([old.strip() for old, _ in changed], ["// %%"] * 3)
        self.assertEqual([new for _, new in changed],
                         ["  tern_begin_cell(4);", "    tern_begin_cell(5);", "  tern_begin_cell(6);"])


def compiler():
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", "c++"), "c++", "g++", "clang++-16"])), None)


@unittest.skipUnless(compiler(), "there is no compiler")
class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temp.name)
        (cls.folder / "two.cpp").write_text(PROGRAM)
        tool(cls.folder, "copy", "two.cpp", "copy.cpp")
        subprocess.run([compiler(), "-Wall", "-Wextra", "-Werror", "copy.cpp", "-o", "two"], cwd=cls.folder, check=True)
        (cls.folder / "old.png").write_bytes(PNG)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def made(self, *options, arguments=("--now",)):
        tool(self.folder, "run", "two.cpp", "out", *options, "--", self.folder / "two", *arguments)
        return json.loads((self.folder / "out/two.ipynb").read_text())

    def test_each_cell_has_its_output_and_its_images(self):
        made = self.made()
        outputs = ["".join(output.get("text", "")) or output["data"]["text/plain"] for cell in made["cells"] for output in cell.get("outputs", ())]
        self.assertEqual(outputs, ["begins, --now\n", "line 9", "a warning\n", "round 0\nround 1\nround 2\n", "28\n", "plot.svg"])
        streams = [output.get("name") for cell in made["cells"] for output in cell.get("outputs", ())]
        self.assertEqual(streams, ["stdout", "stdout", "stderr", "stdout", "stdout", None])
        self.assertEqual(made["cells"][-2]["outputs"][1]["data"]["image/svg+xml"], ["<svg/>"])
        self.assertIn("\ntwo --now\n", "".join(made["cells"][-1]["source"]))
        self.assertTrue(notebook.is_of(made, (self.folder / "two.cpp").read_text()))
        self.assertFalse(notebook.is_of(made, (self.folder / "two.cpp").read_text().replace("The first", "Another")))
        self.assertEqual(list(committed.structure(made)), [])
        if validate := committed.validator():
            validate(made)

    def test_the_program_runs_by_itself(self):
        done = subprocess.run([self.folder / "two"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.splitlines()[0], done.stderr), (0, "begins, ", "a warning\n"))

    def test_a_program_that_fails_writes_no_notebook(self):
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            self.made(arguments=("two", "arguments"))
        self.assertEqual(caught.exception.returncode, 3)
        self.assertIn("a warning", caught.exception.stderr)
        self.assertFalse((self.folder / "out/two.ipynb").exists())


class Outputs(unittest.TestCase):
    def test_images_that_may_not_be_shown_are_named(self):
        plot = notebook.image_output(b"<svg/>", ".svg", "losses.svg")
        kept = notebook.without_images([notebook.image_output(PNG, ".png", "a.png"), plot], "they are secret.")
        self.assertEqual(kept[0], plot)
        self.assertEqual(kept[1]["data"], {"text/plain": "a.png: left out here, since they are secret.\n"})

    def test_a_folder_of_many_images_is_a_dataset(self):
        with tempfile.TemporaryDirectory() as temp:
            folder = pathlib.Path(temp)
            (folder / "out").write_bytes(b"")
            with (folder / "out").open("rb") as out, (folder / "out").open("rb") as err:
                taken = notebook.Outputs(folder, out, err)
                (folder / "many").mkdir()
                for i in range(notebook.MOST_IMAGES + 1):
                    (folder / f"many/{i}.png").write_bytes(PNG)
                (folder / "one.png").write_bytes(PNG)
                self.assertEqual([output["data"]["text/plain"] for output in taken.take()], ["one.png"])
                self.assertEqual(taken.take(), [])
                (folder / "many/3.png").write_bytes(PNG + b" ")
                self.assertEqual([output["data"]["text/plain"] for output in taken.take()], ["many/3.png"])

    def test_folders_of_the_machine_and_progress_are_left_out(self):
        text = "in /a/b/run/x.png, /a/b/cache/y\nepoch 6/6 train [======    ] 3/5  loss 0.5673  00:06 left\n"
        output = {"output_type": "stream", "name": "stdout", "text": text}
        found = list(notebook.tidy([output], [("/a/b/run/", ""), ("", "nothing"), ("/a/b/cache", "CACHE")]))
        self.assertEqual(found[0]["text"], "in x.png, CACHE/y\n")

    def test_the_committed_notebooks_are_checked(self):
        text = "// # A\nint main() {}\n"
        made = notebook.notebook_of(notebook.cells_of(text), {}, "a.cpp", "a")
        self.assertEqual(list(committed.structure(made)), [])
        made["cells"][0]["id"] = made["cells"][1]["id"]
        del made["cells"][1]["outputs"]
        self.assertEqual(len(list(committed.structure(made))), 2)
        self.assertTrue(committed.PLACE.search("see /home/me/run/x"))
        for harmless in "a/b/c", "https://a.org/b/c", "images/s", "1/2/3", "~/x/y/z":
            self.assertFalse(committed.PLACE.search(harmless), harmless)


def tool(folder, *arguments):
    """Runs the command. On failure, its output is in the error."""
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], cwd=folder, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    unittest.main()
