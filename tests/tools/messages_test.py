"""tools/messages.py finds the messages in the sources, and they are well-formed."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import messages

# At least one message of each kind: file, and words of the message.
KNOWN = (
    ("kernels/images/normalize_images", "[{}] dtype is k{}; expected kFloat, kHalf or kBFloat16."),  # TERN_CHECK_VALUE
    ("kernels/load_cuda", "[load_cuda] this machine has an NVIDIA driver, but {} does not load: {}."),  # TORCH_WARN
    ("data/formats/error", "cannot {}: {} (errno {})"),  # an exception's constructor
    ("data/formats/atomic_file", "rename the finished file to this name"),  # IoError
    ("data/formats/sha256", "has the SHA-256 {}; expected {}. The file is damaged"),  # DataError
    ("data/formats/csv", "a quote is not closed"),  # a file's own `fail`
    ("data/download/fetch_weights", "{} is damaged, so it is downloaded again"),  # a warning
    ("learner/callback", "[Learner::add] this is not a callback;"),  # static_assert
    ("learner/distributed/process_group", "[ProcessGroup] rank 0 calls {}, but rank {} calls {};"),  # DistributedError
    ("learner/checkpoint/resume", "Resuming at step {} from {}."),  # a log message
    ("learner/export/onnx", "it draws random numbers in evaluation"),  # a text returned by a helper
    ("callbacks/monitor", "EarlyStopping: {}; training stops."),
    ("vision/data_block", "has no label; expected one."),  # throw_data_error
    ("tools/doctor", "The NVIDIA driver is too old"),
    ("examples/support/synthetic_digits", "using GENERATED data"),
)
LEAST = {"kernels": 45, "data": 340, "learner": 480, "callbacks": 160, "vision": 350, "tools": 20, "examples": 2}
# Parts of messages that begin like complete messages.
PARTS = {"[shard_images] the annotations"}

SOURCE = r'''
#include "a header that is no message"
// TORCH_CHECK(false, "in a comment");
void f(int n, const std::string& name) {
  TORCH_CHECK(n > 0, "[f] n is ", n, "; expected a "
              "number > 0.");
  TORCH_CHECK_VALUE(name != "loss", fmt::format("[f] the name is \"{}\"", name));
  throw DataError(name, "has " + std::to_string(n) + " bytes");
  app.add_option("--n", "how many of them there are");
  const auto text = is_new ? "a text of more than four words" : "not this";
}
'''


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = list(messages.messages(ROOT))

    def test_joins_literals_and_leaves_other_text_out(self):
        self.assertEqual(
            [(message.line, message.text) for message in messages.messages_of("a.cpp", SOURCE)],
            [
                (5, "[f] n is {}; expected a number > 0."),
                (7, '[f] the name is "{}"'),
                (8, "has {} bytes"),
                (10, "a text of more than four words"),
            ],
        )

    def test_finds_known_messages(self):
        for file, words in KNOWN:
            self.assertTrue(
                any(message.file.startswith(file) and words in message.text for message in self.found),
                f"no message of {file}: {words}",
            )

    def test_finds_those_of_each_folder(self):
        for folder, least in LEAST.items():
            count = sum(message.file.startswith(folder + "/") for message in self.found)
            self.assertGreaterEqual(count, least, folder)

    def test_a_message_is_well_formed(self):
        for message in self.found:
            text, place = message.text, f"{message.file}:{message.line}: {message.text}"
            if re.match(r"\[[\w{]", text) and text not in PARTS:
                self.assertRegex(text, r'^\[[\w:~{}"\[\]]+\] \S', place)  # [Name] what was given
                self.assertRegex(text, r"[.})]$", place)
            if "\\n" not in text and "   " not in text:  # not a table
                self.assertNotRegex(text, r"\S  +\S", place)

    def test_literals_are_joined_rightly(self):
        for message in self.found:
            place = f"{message.file}:{message.line}: {message.text}"
            for left, right in zip(message.pieces, message.pieces[1:]):
                if left is None or right is None or left.endswith("\\n"):
                    continue
                self.assertFalse(
                    re.search(r"[\w,.;:)]$", left) and re.match(r"[\w(\[{]", right),
                    f"expected a blank between '{left[-20:]}' and '{right[:20]}' in {place}",
                )
                # As clang-format leaves them after a word is added to the line above.
                self.assertGreater(len(left), 12, f"'{left}' fits into the next line of {place}; join the literals")


if __name__ == "__main__":
    unittest.main()
